"""Certificates for the coordinator and keys for the sites, from ``cryptography``."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedcluster.federation._permits import new_key

LIFETIME = timedelta(days=5 * 365)
"""How long certificates are valid."""

AUTHORITY = "fedcluster federation"
"""The common name of the authority that signs the coordinator's certificate."""

USAGES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
"""All usages that a certificate allows or forbids."""


def issue(host: str, sites: Sequence[str]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Make a certificate for the coordinator, its key to sign permits, and a key for each site.

    The key of the authority that signs the certificate is not kept, so that nobody finds it.

    Parameters
    ----------
    host : str
        The name or number by which sites reach the coordinator.
    sites : sequence of str
        The names of the sites.

    Returns
    -------
    public, secret : dict of str to bytes
        Files by their names: certificates and public keys, and private keys.
    """
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca = _certificate(None, authority, authority)
    chain = _certificate(host, server, authority) + ca
    public = {"certificates/ca.crt": ca, "certificates/server.crt": chain}
    secret = {"certificates/server.key": _private(server, PrivateFormat.PKCS8)}
    secret["certificates/permit.key"], granter = new_key()
    for site in sites:
        key = ec.generate_private_key(ec.SECP384R1())
        public[f"keys/{site}.pub"] = key.public_key().public_bytes(
            Encoding.OpenSSH, PublicFormat.OpenSSH
        )
        public |= {f"sites/{site}/ca.crt": ca, f"sites/{site}/coordinator.pub": granter}
        secret[f"sites/{site}/key"] = _private(key, PrivateFormat.OpenSSH)
    return public, secret


def _private(key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def _certificate(
    host: str | None, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> bytes:
    """Return a certificate of a host, or without one that of the authority itself."""
    is_authority = host is None
    allowed = ("key_cert_sign", "crl_sign") if is_authority else ("digital_signature",)
    usage = x509.KeyUsage(**{usage: usage in allowed for usage in USAGES})
    own_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    signer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_common_name(host or AUTHORITY))
        .issuer_name(_common_name(AUTHORITY))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), True)
        .add_extension(usage, True)
        .add_extension(own_id, False)
        .add_extension(signer_id, False)
    )
    if host is not None:
        server = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = builder.add_extension(_alternative_names(host), False)
        builder = builder.add_extension(server, False)
    return builder.sign(signer, hashes.SHA384()).public_bytes(Encoding.PEM)


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _alternative_names(host: str) -> x509.SubjectAlternativeName:
    """Return the host and the names of this machine, for the coordinator's own programs."""
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    try:
        own: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        own = x509.DNSName(host)
    return x509.SubjectAlternativeName(names if own in names else [*names, own])
