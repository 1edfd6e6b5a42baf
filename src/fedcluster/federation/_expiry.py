"""How long the certificates of a coordinator are valid, and what to do as they end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from fedcluster.errors import InputError
from fedcluster.federation._folder import Federation

WARNING = timedelta(days=60)
"""How long before its end a certificate is spoken of."""

CERTIFICATE, KEY = "certificates/server.crt", "certificates/server.key"
AUTHORITY, AUTHORITY_KEY = "certificates/ca.crt", "certificates/ca.key"
UPCOMING, UPCOMING_KEY = "certificates/ca-next.crt", "certificates/ca-next.key"
REQUEST = "certificates/server.csr"
FLARE = ("flare/server/startup/server.crt", "flare/lead/startup/client.crt")
FLARE_AUTHORITY = "flare/server/startup/rootCA.pem"
"""Files of the folder of a federation."""


def certificate_end(path: Path) -> datetime:
    """Return until when the first certificate of a file is valid.

    Raises
    ------
    InputError
        If it cannot be read, or holds none.
    """
    return certificates(path)[0].not_valid_after_utc


def own_certificates(federation: Federation) -> list[Path]:
    """Return the certificates by which the coordinator's own programs are known."""
    if federation.insecure:
        return []
    return [federation.file(name) for name in (FLARE if federation.has_flare else (CERTIFICATE,))]


def expiry_notice(federation: Federation) -> str:
    """Return a line about a certificate that ends soon; empty where none does, or there is none.

    Raises
    ------
    InputError
        If the certificate cannot be read.
    """
    if federation.insecure:
        return ""
    how = f"fedcluster federation renew-certificates {federation.folder}"
    notices = [notice_of(path, how) for path in own_certificates(federation)]
    authority = federation.file(FLARE_AUTHORITY if federation.has_flare else AUTHORITY)
    if authority.exists():
        last = max(each.not_valid_after_utc for each in certificates(authority))
        handed = "each site its kit" if federation.has_flare else "certificates/ca.crt to all sites"
        more = f"{how} --new-authority, and hand {handed}"
        notices.append(_notice(authority, last, more))
    return next(filter(None, notices), "")


def check_valid(federation: Federation) -> None:
    """Refuse a certificate of the coordinator that does not count now.

    Raises
    ------
    InputError
        With its date and what to do.
    """
    for path in own_certificates(federation):
        check_counts(path, f"fedcluster federation renew-certificates {federation.folder}")


def check_counts(path: Path, how: str) -> None:
    """Refuse a file's first certificate if it does not count now; ``how`` renews it.

    Raises
    ------
    InputError
        With its date and what to do.
    """
    certificate, now = certificates(path)[0], datetime.now(UTC)
    if certificate.not_valid_after_utc < now:
        raise InputError(notice_of(path, how))
    if certificate.not_valid_before_utc > now:
        raise InputError(
            f"{path} is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on, and "
            f"it is {now:%Y-%m-%d %H:%M} UTC by this machine's clock: set the clock"
        )


def notice_of(path: Path, how: str) -> str:
    """Return a line if a file's first certificate ends soon, or has ended; ``how`` renews it."""
    return _notice(path, certificate_end(path), how)


def _notice(path: Path, end: datetime, how: str) -> str:
    left = end - datetime.now(UTC)
    if left > WARNING:
        return ""
    if left < timedelta(0):
        return f"{path} expired on {end:%Y-%m-%d}: {how}"
    return f"{path} expires on {end:%Y-%m-%d}, in {left.days} days: {how}"


def certificates(path: Path) -> list[x509.Certificate]:
    """Return the certificates in a file.

    Raises
    ------
    InputError
        If it cannot be read, or holds none.
    """
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{path} holds no certificate in PEM") from error
