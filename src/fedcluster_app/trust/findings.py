"""What an examination of a site or a coordinator finds, and what both look at."""

from __future__ import annotations

import platform
import shutil
import socket
import ssl
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from cryptography import x509

from fedcluster.errors import InputError, SiteError, first_cause, reason
from fedcluster_app.trust.identity import Address

EXPIRED, NOT_YET, OTHER_NAME, OTHER_NUMBER = 10, 9, 62, 64
"""Codes of OpenSSL: X509_V_ERR_CERT_HAS_EXPIRED and so on."""

GOOD, DOUBTFUL, WRONG = "good", "doubtful", "wrong"
PACKAGES = ("fedcluster", "numpy", "numba")


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding about a site or a coordinator.

    Parameters
    ----------
    what : str
        What was examined.
    state : str
        "good", "doubtful" or "wrong".
    said : str
        What was found, without any value of a row, and what to do.
    """

    what: str
    state: str
    said: str


def looked_at(what: str, examine: Callable[[], tuple[str, str]]) -> Finding:
    """Return the state and the text of an examination; what it refuses is wrong."""
    try:
        state, said = examine()
    except (InputError, SiteError) as error:
        state, said = WRONG, str(error)
    return Finding(what, state, said)


def disk(folder: Path) -> Finding:
    """Return whether there is room where a folder is."""
    free = shutil.disk_usage(folder).free
    said = f"{free / 1e9:,.1f} GB free"
    # Free bytes on the disk below which it is doubtful.
    return Finding("disk", *((GOOD, said) if free >= 1e9 else (DOUBTFUL, f"{said}: make room")))


def versions(packages: Sequence[str]) -> Finding:
    """Return the versions of Python and of packages, if they are installed."""
    told = [f"Python {platform.python_version()}"]
    for name in packages:
        try:
            told.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return Finding("versions", GOOD, ", ".join(told))


def reached(address: Address, authority: Path, host: str = "") -> Finding:
    """Return whether a coordinator is reached, and who vouches for it for how long.

    Parameters
    ----------
    address : Address
        Where it is.
    authority : Path
        The file of the authority that vouches for it.
    host : str
        The host of its certificate, if that is not the one of the address.
    """
    what, place = "coordinator", str(address)
    try:
        # Time within which the coordinator must accept a connection.
        with socket.create_connection((address.host, address.port), 5.0) as line:
            context = ssl.create_default_context(cafile=str(authority))
            with context.wrap_socket(line, server_hostname=host or address.host) as encrypted:
                certificate = encrypted.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        return Finding(what, WRONG, distrusted(error, place, authority))
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else reason(error) or str(error)
        advice = "is it started, and does a firewall let this connection out?"
        return Finding(what, WRONG, f"{place} cannot be reached ({why}): {advice}")
    ends = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    days = int((ends - time.time()) / 86400.0)
    told = f"{place} is reached; its certificate is valid for {days} days"
    return Finding(what, GOOD if days >= 30 else DOUBTFUL, told)


def unanswered(error: Exception, whom: str) -> str:
    """Return in words why a request has no good answer, by the error of its HTTP library.

    Examples
    --------
    >>> unanswered(ConnectionRefusedError(111, "Connection refused"), "the coordinator")
    'the coordinator cannot be reached (Connection refused)'
    """
    cause, response = first_cause(error), getattr(error, "response", None)
    if response is not None:
        return f"{whom} answers {response.status_code}: {' '.join(response.text.split())[:200]}"
    if isinstance(cause, TimeoutError):
        return f"{whom} does not answer in time: it is busy, or a firewall lies between"
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
        return f"{whom} is not trusted ({cause.reason or cause})"
    if isinstance(cause, OSError) and not isinstance(cause, ConnectionResetError | ssl.SSLError):
        return f"{whom} cannot be reached ({reason(cause)})"
    return f"{whom} broke off the connection"


def distrusted(why: ssl.SSLCertVerificationError, address: str, authority: Path) -> str:
    """Return why TLS does not trust a coordinator's certificate, with advice.

    Dates and names are those of the untrusted certificate, so its sender may have made them up.

    Parameters
    ----------
    why : SSLCertVerificationError
        The error from OpenSSL.
    address : str
        HOST:PORT.
    authority : Path
        The file of the authority that should vouch for it.
    """
    now = f"it is {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by this machine's clock"
    shown = shown_at(address)
    if why.verify_code == EXPIRED:
        end = f" on {shown.not_valid_after_utc:%Y-%m-%d}" if shown else ""
        return (
            f"the certificate of the coordinator at {address} expired{end}, and {now}: the "
            "coordinator renews it with fedcluster federation certificate, or this "
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


def shown_at(address: str) -> x509.Certificate | None:
    """Return the certificate that a server at an address shows, None if there is none."""
    place = Address.read(address)
    with suppress(OSError, ValueError):
        # Seconds that a program may take to show a certificate.
        pem = ssl.get_server_certificate((place.host, place.port), timeout=5.0)
        return x509.load_pem_x509_certificate(pem.encode())
    return None


def modes(folder: Path) -> Finding:
    """Return whether only the owner may read what is in the folder."""
    open_ = stat.S_IRWXG | stat.S_IRWXO
    found = [each for each in sorted(folder.rglob("*")) if each.lstat().st_mode & open_]
    found = [each for each in found if not each.is_symlink()]
    if not found:
        return Finding("modes", GOOD, "only you may read the folder's files")
    first = found[0].relative_to(folder)
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return Finding("modes", DOUBTFUL, f"others may use {first}{more}: chmod -R go= {folder}")
