"""Certificates for the coordinator and keys for the sites, from ``cryptography``."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedcluster.federation._permits import new_key

DAYS = 5 * 365
"""How many days the coordinator's certificate is valid."""

AUTHORITY_DAYS = 20 * 365
"""How many days an authority may sign: it is renewed at all sites, the certificate at none."""

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
        The key by which it signs.
    certificate : Certificate
        Its own certificate, which the sites have.
    """

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls, days: int = AUTHORITY_DAYS) -> Authority:
        """Make a new authority."""
        key = ec.generate_private_key(ec.SECP384R1())
        subject = _common_name(AUTHORITY)
        builder = _builder(subject, subject, key.public_key(), key.public_key(), days)
        return cls(key, _for(builder, is_authority=True).sign(key, hashes.SHA384()))

    @classmethod
    def read(cls, key: bytes, certificate: bytes) -> Authority:
        """Read an authority from its two files.

        Raises
        ------
        ValueError
            If they are none, or do not belong together.
        """
        loaded = load_pem_private_key(key, None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError("the key is not one of an elliptic curve")
        for own in x509.load_pem_x509_certificates(certificate):
            if own.public_key() == loaded.public_key():
                return cls(loaded, own)
        raise ValueError("the key is not that of the authority")

    @property
    def pem(self) -> bytes:
        """Return the certificate as its file holds it."""
        return self.certificate.public_bytes(Encoding.PEM)

    def sign(
        self,
        hosts: Sequence[str],
        key: ec.EllipticCurvePublicKey,
        days: int = DAYS,
        *,
        own: bool = True,
    ) -> bytes:
        """Return a certificate for the coordinator, followed by that of the authority.

        Parameters
        ----------
        hosts : sequence of str
            The names and numbers by which it is reached; the first is the one for sites.
        key : EllipticCurvePublicKey
            The key of the coordinator.
        days : int
            How long it is valid; never longer than the authority.
        own : bool, default=True
            Whether it is for the loopback numbers, too.
        """
        subject, issuer = _common_name(hosts[0]), self.certificate.subject
        last = self.certificate.not_valid_after_utc
        builder = _builder(subject, issuer, key, self.key.public_key(), days, last)
        server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = _for(builder, is_authority=False)
        builder = builder.add_extension(alternative_names(hosts, own=own), False)
        builder = builder.add_extension(server, False)
        return builder.sign(self.key, hashes.SHA384()).public_bytes(Encoding.PEM) + self.pem


def issue(hosts: Sequence[str], sites: Sequence[str]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Make an authority, a certificate for the coordinator, and a key for each site.

    Parameters
    ----------
    hosts : sequence of str
        The names or numbers by which the coordinator is reached; the first is the one for sites.
    sites : sequence of str
        The names of the sites.

    Returns
    -------
    public, secret : dict of str to bytes
        Files by their names: certificates and public keys, and private keys.
    """
    authority, server = Authority.make(), ec.generate_private_key(ec.SECP384R1())
    public = {"certificates/ca.crt": authority.pem}
    public["certificates/server.crt"] = authority.sign(hosts, server.public_key())
    secret = {"certificates/server.key": private_pem(server)}
    secret["certificates/ca.key"] = private_pem(authority.key)
    secret["certificates/permit.key"], public["certificates/permit.pub"] = new_key()
    for site in sites:
        secret[f"sites/{site}/key"], public[f"keys/{site}.pub"] = site_key()
        public[f"sites/{site}/ca.crt"] = authority.pem
        public[f"sites/{site}/coordinator.pub"] = public["certificates/permit.pub"]
    return public, secret


def site_key() -> tuple[bytes, bytes]:
    """Make a key by which a site is known; return its private and its public file."""
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    return private, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as its file holds it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePublicKey,
    days: int,
    last: datetime | None = None,
) -> x509.CertificateBuilder:
    """Return the beginning of a certificate of a key."""
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
    """Return a certificate with what it may be used for."""
    allowed = ("key_cert_sign", "crl_sign") if is_authority else ("digital_signature",)
    usage = x509.KeyUsage(**{usage: usage in allowed for usage in USAGES})
    basic = x509.BasicConstraints(is_authority, 0 if is_authority else None)
    return builder.add_extension(basic, True).add_extension(usage, True)


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def alternative_names(hosts: Sequence[str], *, own: bool = True) -> x509.SubjectAlternativeName:
    """Return hosts, after the names of this machine for the coordinator's own programs."""
    here = ("localhost", "127.0.0.1", "::1") if own else ()
    names = [_general_name(host) for host in (*here, *hosts)]
    return x509.SubjectAlternativeName(list(dict.fromkeys(names)))


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
