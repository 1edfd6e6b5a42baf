"""Certificates of the coordinator, and keys that identify the sites, from ``cryptography``.

``keys/NAME.pub`` is the key of a site. ``keys/NAME.next.pub`` is one that replaces it as soon as
the site has used it; until then, both are valid. ``keys/former.json`` has the keys that are no
longer valid.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedcluster.core.files import atomic_write
from fedcluster.errors import InputError
from fedcluster_app.records import load_record
from fedcluster_app.trust.owned_files import private_files
from fedcluster_app.trust.permits import new_key, public_text
from fedcluster_app.trust.site_state import state_folder

FORMER = "keys/former.json"
"""The file of keys that are no longer valid."""
CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey
"""A key that identifies a site; those of FLARE's kits are RSA."""

REVOKED, REPLACED, REMOVED = "revoked", "replaced", "removed"
"""Reasons why a key is no longer valid."""


NEXT_KEY, PUBLIC_KEY = "key.next", "key.pub"
"""Files of a site: a key that waits for the coordinator, and its public part."""

DAYS = 5 * 365
"""Number of days for which the coordinator's certificate is valid."""

AUTHORITY_DAYS = 20 * 365
"""Number of days for which an authority may sign: renewing it affects all sites, renewing a
certificate none."""

AUTHORITY = "fedcluster federation"
"""The common name of the authority that signs the coordinator's certificate."""

USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
"""All usages that a certificate allows or forbids."""


@dataclass(frozen=True)
class Authority:
    """An authority that vouches for the coordinator.

    Parameters
    ----------
    key : EllipticCurvePrivateKey
        Its signing key.
    certificate : Certificate
        Its certificate, which the sites have.
    """

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, days: int = AUTHORITY_DAYS) -> Authority:
        """Create a new authority."""
        key = ec.generate_private_key(ec.SECP384R1())
        subject = common_name(AUTHORITY)
        builder = _builder(subject, subject, key.public_key(), key.public_key(), days)
        return cls(key, _for(builder, is_authority=True).sign(key, hashes.SHA384()))

    @classmethod
    def read(cls, key: bytes, certificate: bytes) -> Authority:
        """Read an authority from its two files.

        Raises
        ------
        ValueError
            If a file is invalid, or they do not belong together.
        """
        loaded = serialization.load_pem_private_key(key, None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError("the key is not one of an elliptic curve")
        for own in x509.load_pem_x509_certificates(certificate):
            if own.public_key() == loaded.public_key():
                return cls(loaded, own)
        raise ValueError("the key is not that of the authority")

    @property
    def pem(self) -> bytes:
        """Return the certificate in the form of its file."""
        return self.certificate.public_bytes(Encoding.PEM)

    def sign(self, hosts: Sequence[str], key: ec.EllipticCurvePublicKey, days: int = DAYS) -> bytes:
        """Return a certificate for the coordinator, followed by that of the authority.

        Parameters
        ----------
        hosts : sequence of str
            Its host names and IP addresses, the one for sites first.
        key : EllipticCurvePublicKey
            The key of the coordinator.
        days : int
            Number of days for which it is valid, at most as long as the authority.
        """
        subject, issuer = common_name(hosts[0]), self.certificate.subject
        last = self.certificate.not_valid_after_utc
        builder = _builder(subject, issuer, key, self.key.public_key(), days, last)
        server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = _for(builder, is_authority=False)
        builder = builder.add_extension(alternative_names(hosts), False)
        builder = builder.add_extension(server, False)
        return builder.sign(self.key, hashes.SHA384()).public_bytes(Encoding.PEM) + self.pem


def issue(hosts: Sequence[str], sites: Sequence[str]) -> dict[str, bytes]:
    """Create an authority, a certificate for the coordinator, and a key for each site.

    Parameters
    ----------
    hosts : sequence of str
        The host names and IP addresses of the coordinator, the one for sites first.
    sites : sequence of str
        The names of the sites.

    Returns
    -------
    dict of str to bytes
        Files by name.
    """
    authority, server = Authority.make(), new_server_key()
    files = {"certificates/ca.crt": authority.pem, "certificates/server.key": private_pem(server)}
    files["certificates/server.crt"] = authority.sign(hosts, server.public_key())
    files["certificates/ca.key"] = private_pem(authority.key)
    files["certificates/permit.key"], files["certificates/permit.pub"] = new_key()
    for site in sites:
        files[f"{state_at(site)}/key"], files[f"keys/{site}.pub"] = site_key()
        files[f"{state_at(site)}/ca.crt"] = authority.pem
        files[f"{state_at(site)}/coordinator.pub"] = files["certificates/permit.pub"]
    return files


def new_server_key() -> ec.EllipticCurvePrivateKey:
    """Create a key of the coordinator, of a curve by which a handshake is short.

    With P-384, it takes four times as long, and anybody may ask for one.
    """
    return ec.generate_private_key(ec.SECP256R1())


def state_at(site: str) -> str:
    """Return the folder of a site's keys in that of a federation."""
    return f"sites/{site}/state"


def site_key() -> tuple[bytes, bytes]:
    """Create a key that identifies a site; return its private and its public file."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return private, public_text(key.public_key()).encode()


def chain_pem(chain: Iterable[x509.Certificate]) -> bytes:
    """Return certificates in the form of a file."""
    return b"".join(each.public_bytes(Encoding.PEM) for each in chain)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key in the form of its file."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePublicKey,
    days: int,
    last: datetime | None = None,
) -> x509.CertificateBuilder:
    """Return a builder for the certificate of a key."""
    now = datetime.now(UTC)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(end if last is None else min(end, last))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), False)
    )


def _for(builder: x509.CertificateBuilder, *, is_authority: bool) -> x509.CertificateBuilder:
    """Return a certificate with its permitted uses."""
    allowed = ("key_cert_sign", "crl_sign") if is_authority else ("digital_signature",)
    usage = x509.KeyUsage(**{usage: usage in allowed for usage in USAGES})
    basic = x509.BasicConstraints(is_authority, 0 if is_authority else None)
    return builder.add_extension(basic, True).add_extension(usage, True)


def common_name(name: str) -> x509.Name:
    """Return the name of a certificate's owner."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def alternative_names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    """Return hosts, preceded by the local names that the coordinator's own programs use."""
    names = [_general_name(host) for host in ("localhost", "127.0.0.1", "::1", *hosts)]
    return x509.SubjectAlternativeName(list(dict.fromkeys(names)))


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that a site has created.

    Parameters
    ----------
    public : Path
        The file of its public part.
    digest : str
        The beginning of the public part's SHA-256, for people to compare.
    waits : bool
        Whether the site has another key, which is valid until the coordinator has accepted this
        one.
    """

    public: Path
    digest: str
    waits: bool


class FormerKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key that is no longer valid.

    Parameters
    ----------
    site : str
        The site whose key it was.
    why : {"revoked", "replaced", "removed"}
        The reason.
    at : str
        The time since which it is invalid, in UTC.
    """

    site: str
    why: str
    at: str


def make_site_key(folder: Path, key: str) -> NewKey:
    """Create a key of a site, in its own folder, replacing one that waited.

    Parameters
    ----------
    folder : Path
        The folder of the site file.
    key : str
        The name of the file of the site's key.
    """
    private, public = site_key()
    own, state = folder / key, state_folder(folder)
    waits = own.exists()
    with private_files():
        with atomic_write(state / NEXT_KEY if waits else own) as temporary:
            temporary.write_bytes(private)
        with atomic_write(state / PUBLIC_KEY) as temporary:
            temporary.write_bytes(public)
    return NewKey(state / PUBLIC_KEY, digest_of(state / PUBLIC_KEY), waits)


def digest_of(path: Path) -> str:
    """Return the beginning of the SHA-256 of a public key, for people to compare.

    Raises
    ------
    InputError
        If the file does not hold a public key.
    """
    digits = key_digest(read_public_key(path))[:32]
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def current(site: str) -> str:
    """Return the name of the file of a site's key."""
    return f"keys/{site}.pub"


def upcoming(site: str) -> str:
    """Return the name of the file of the key that will replace a site's key."""
    return f"keys/{site}.next.pub"


def read_public_key(path: Path, *, of_kit: bool = False) -> PublicKey:
    """Read the public key of a site; ``of_kit``: it may be that of a kit of FLARE.

    Raises
    ------
    InputError
        If it cannot be read, or is not a site's key.
    """
    try:
        with path.open("rb") as file:
            # Size in bytes of the largest file that can be a public key.
            key = serialization.load_ssh_public_key(file.read(10_000))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path} is no public key of a site: {error}") from error
    if of_kit and isinstance(key, rsa.RSAPublicKey):
        return key
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, CURVES):
        raise InputError(
            f"{path} is no public key of a site: fedcluster site key --new makes one, and writes "
            "its public part to key.pub"
        )
    return key


def key_digest(key: PublicKey) -> str:
    """Return the SHA-256 of a public key."""
    der = key.public_bytes(Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return sha256(der).hexdigest()


def certified_digest(certificate: bytes) -> str:
    """Return the SHA-256 of the public key in a certificate, which is in DER."""
    return key_digest(x509.load_der_x509_certificate(certificate).public_key())  # type: ignore[arg-type]


def accepted_keys(folder: Path, sites: Iterable[str]) -> dict[str, tuple[PublicKey, ...]]:
    """Return the valid keys of each site: its own, then the one that will replace it.

    Parameters
    ----------
    folder : Path
        The folder of the federation.
    sites : iterable of str
        The names of its sites.

    Raises
    ------
    InputError
        If a file does not hold a key.
    """
    gone, keys = former_keys(folder), {}
    for site in sites:
        paths = [folder / name(site) for name in (current, upcoming)]
        read = [read_public_key(path, of_kit=True) for path in paths if path.exists()]
        keys[site] = tuple(key for key in read if key_digest(key) not in gone)
    return keys


def former_keys(folder: Path) -> dict[str, FormerKey]:
    """Return the keys that are no longer valid, by SHA-256.

    Raises
    ------
    InputError
        If the file is damaged: then no key can be trusted.
    """
    path, remedy = folder / FORMER, "; put back a copy"
    return load_record(path, dict[str, FormerKey], remedy=remedy) if path.exists() else {}


def with_former(folder: Path, keys: Mapping[str, str], why: str) -> dict[str, bytes]:
    """Return the file of former keys with further keys added.

    Parameters
    ----------
    folder : Path
        The folder of the federation.
    keys : mapping of str to str
        The site of each key, by the SHA-256 of the key.
    why : str
        Why they are no longer valid.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    former = former_keys(folder)
    former |= {digest: FormerKey(site, why, now) for digest, site in keys.items()}
    return {FORMER: msgspec.json.format(msgspec.json.encode(former), indent=1)}


def following(context: ssl.SSLContext, certificate: Path, key: Path) -> ssl.SSLContext:
    """Let a server load its certificate and key again once both have changed; return its context.

    They are looked at as a handshake begins, and count from the next one on.
    """
    seen = [*map(file_state, (certificate, key))]

    def look(*_: object) -> None:
        nonlocal seen
        with suppress(OSError):  # only one of the two files may have been replaced
            if (now := [*map(file_state, (certificate, key))]) != seen:
                # a trial load: raises if key and certificate do not match
                ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
                context.load_cert_chain(certificate, key)
                seen = now

    context.sni_callback = look
    return context


def file_state(path: str | Path) -> tuple[int, int] | None:
    """Return a value that changes whenever a file is written, None if there is no file."""
    with suppress(OSError):
        about = os.stat(path)
        return about.st_ino, about.st_mtime_ns
    return None
