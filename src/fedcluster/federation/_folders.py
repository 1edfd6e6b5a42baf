"""The folder of a federation: certificates, keys, Flower's app, and a folder for each site."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedcluster.errors import InputError
from fedcluster.federation import _pages as pages
from fedcluster.io._outputs import atomic_folder

YEARS = 5
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True, slots=True)
class Federation:
    """What stands in a federation's folder.

    Parameters
    ----------
    folder : Path
        The folder.
    address : str
        HOST:PORT at which the sites reach the coordinator.
    sites : tuple of str
        The names of the sites.
    insecure : bool
        Whether nothing is encrypted and nobody has to prove who he is; on one machine only.
    """

    folder: Path
    address: str
    sites: tuple[str, ...]
    insecure: bool = False

    @classmethod
    def load(cls, folder: Path) -> Federation:
        """Read ``federation.toml`` in a folder.

        Raises
        ------
        InputError
            If it is not there, or damaged.
        """
        path = folder / "federation.toml"
        try:
            content = tomllib.loads(path.read_text("utf-8"))
            sites = tuple(map(str, content["sites"]))
            return cls(folder.resolve(), str(content["address"]), sites, content["insecure"])
        except FileNotFoundError as error:
            raise InputError(
                f"{path} does not exist; fedcluster federation new {folder} makes it"
            ) from error
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
        except (ValueError, LookupError, TypeError) as error:
            raise InputError(f"{path} is damaged: {error}") from error

    @property
    def host(self) -> str:
        """The host of the address."""
        return self.address.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port of the address."""
        return int(self.address.rpartition(":")[2])

    def file(self, *parts: str) -> Path:
        """A file in the folder."""
        return self.folder.joinpath(*parts)

    def nodes(self) -> dict[int, str]:
        """The name of the site behind each node that was registered with Flower."""
        try:
            content = json.loads(self.file("flower", "nodes.json").read_text("utf-8"))
            return {int(node): str(name) for name, node in content.items()}
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.folder} is not started: run fedcluster federation start {self.folder}"
            ) from error


def create(folder: Path, sites: Sequence[str], address: str, *, insecure: bool) -> Federation:
    """Write the folder of a new federation, whole or not at all.

    Parameters
    ----------
    folder : Path
        The folder, which must not exist or be empty.
    sites : sequence of str
        The names of the sites.
    address : str
        HOST:PORT at which the sites will reach the coordinator.
    insecure : bool
        Without certificates and keys, for one machine.

    Raises
    ------
    InputError
        If a name or the address means nothing, or the folder holds something.
    """
    _check_sites(sites)
    federation = Federation(folder.absolute(), address, tuple(sorted(sites)), insecure)
    _check_address(federation)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not an empty folder; choose another")
    with atomic_folder(folder) as partial:
        files = pages.coordinator(federation)
        for site in federation.sites:
            files |= pages.site(federation, site)
        secret: dict[str, bytes] = {}
        if not insecure:
            public, secret = _certificates(federation)
            files |= public
        for name, content in files.items():
            _write(partial / name, content, 0o644)
        for name, content in secret.items():
            _write(partial / name, content, 0o600)
        for name in ("", "sites", *(f"sites/{site}" for site in sites)):
            (partial / name).chmod(0o700)
    return federation


def _write(path: Path, content: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def _check_sites(sites: Sequence[str]) -> None:
    for name in sites:
        if not NAME.fullmatch(name):
            raise InputError(
                f"site name {name!r}: use letters, digits, - and _, at most 40 of them, and "
                "begin with a letter or digit"
            )
    if twice := next((name for name in sites if sites.count(name) > 1), None):
        raise InputError(f"--sites names {twice!r} twice")
    if len({name.casefold() for name in sites}) < len(sites):
        raise InputError("two names of --sites differ in capital letters only; rename one")


def _check_address(federation: Federation) -> None:
    address = federation.address
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"--address {address!r} must be HOST:PORT, as in 127.0.0.1:8443")
    if federation.insecure and not _is_loopback(federation.host):
        raise InputError(
            f"--insecure is for one machine (127.0.0.1), not for {federation.host}: over a network "
            "anyone could read the sums and pretend to be a site"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _certificates(federation: Federation) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Files with certificates and public keys, and files with private keys."""
    authority = ec.generate_private_key(ec.SECP384R1())
    server = ec.generate_private_key(ec.SECP384R1())
    ca = _certificate("fedcluster federation", authority, None, authority)
    chain = _certificate(federation.host, server, federation.host, authority)
    public = {"certificates/ca.crt": ca, "certificates/server.crt": chain + ca}
    secret = {
        "certificates/ca.key": _private(authority),
        "certificates/server.key": _private(server),
    }
    for site in federation.sites:
        key = ec.generate_private_key(ec.SECP384R1())
        public[f"keys/{site}.pub"] = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        public[f"sites/{site}/ca.crt"] = ca
        secret[f"sites/{site}/key"] = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
    return public, secret


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    host: str | None,
    signer: ec.EllipticCurvePrivateKey,
) -> bytes:
    """A certificate of a host, or without one that of the authority itself."""
    is_authority = host is None
    now = datetime.now(UTC)
    usage = {
        field: field in (("key_cert_sign", "crl_sign") if is_authority else ("digital_signature",))
        for field in (
            *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
            *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
        )
    }
    builder = (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .issuer_name(_common_name("fedcluster federation"))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), True)
        .add_extension(x509.KeyUsage(**usage), True)
        .add_extension(_key_id(key), False)
        .add_extension(_authority_id(signer), False)
    )
    if host is not None:
        server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(_names(host), False).add_extension(server, False)
    signed = builder.sign(signer, hashes.SHA384())
    return signed.public_bytes(serialization.Encoding.PEM)


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _key_id(key: ec.EllipticCurvePrivateKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _authority_id(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _names(host: str) -> x509.SubjectAlternativeName:
    """The host's name or number, and those of this machine, for the coordinator's own programs."""
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    try:
        own: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        own = x509.DNSName(host)
    return x509.SubjectAlternativeName(names if own in names else [*names, own])
