"""What is wrong with a certificate that was not believed, in words for who reads a terminal."""

from __future__ import annotations

import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from fedcluster.federation._addresses import Address
from fedcluster.federation._expiry import WARNING

EXPIRED, NOT_YET, OTHER_NAME, OTHER_NUMBER = 10, 9, 62, 64
"""Codes of OpenSSL: X509_V_ERR_CERT_HAS_EXPIRED and so on."""

PATIENCE = 5.0
"""Seconds that showing a certificate may take."""


def distrust(why: ssl.SSLCertVerificationError, address: str, authority: Path | None) -> str:
    """Return why a coordinator's certificate is not believed, and what to do.

    Dates and names are those of the certificate that was not believed: whoever answers wrote them.

    Parameters
    ----------
    why : SSLCertVerificationError
        What OpenSSL says.
    address : str
        HOST:PORT.
    authority : Path, optional
        The file of who should vouch for it.
    """
    now = f"it is {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by this machine's clock"
    shown = _shown(address)
    if why.verify_code == EXPIRED:
        end = f" on {shown.not_valid_after_utc:%Y-%m-%d}" if shown else ""
        return (
            f"the certificate of the coordinator at {address} expired{end}, and {now}: the "
            "coordinator renews it with fedcluster federation renew-certificates, or this "
            "machine's clock is wrong"
        )
    if why.verify_code == NOT_YET:
        start = f" until {shown.not_valid_before_utc:%Y-%m-%d %H:%M} UTC" if shown else ""
        return (
            f"the certificate of the coordinator at {address} is not valid{start}, and {now}: set "
            "the clock of this machine, or of the coordinator's"
        )
    if why.verify_code in {OTHER_NAME, OTHER_NUMBER}:
        return (
            f"the coordinator's certificate is not for {Address.read(address).host}: write the "
            "address that the coordinator gave to fedcluster federation new"
        )
    return (
        f"the coordinator's certificate is not vouched for by {authority}: another "
        f"answers at {address}, or the site's folder is of another federation"
    )


def ends_soon(address: str) -> str:
    """Return a line about the certificate at an address if it ends soon, else nothing."""
    shown = _shown(address)
    if shown is None or shown.not_valid_after_utc > datetime.now(UTC) + WARNING:
        return ""
    return (
        f"the coordinator's certificate expires on {shown.not_valid_after_utc:%Y-%m-%d}; remind "
        "the coordinator to renew it"
    )


def _shown(address: str) -> x509.Certificate | None:
    """Return the certificate that is shown at an address, None where none is."""
    place = Address.read(address)
    with suppress(OSError, ValueError):
        pem = ssl.get_server_certificate((place.host, place.port), timeout=PATIENCE)
        return x509.load_pem_x509_certificate(pem.encode())
    return None
