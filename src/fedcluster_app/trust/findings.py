"""What an examination of a site or a coordinator finds, and what both look at."""

from __future__ import annotations

import platform
import shutil
import socket
import ssl
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedcluster.errors import InputError, SiteError, first_cause, reason
from fedcluster_app.trust.identity import Address

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
    what, place = "coordinator", f"{address.host}:{address.port}"
    try:
        # Time within which the coordinator must accept a connection.
        with socket.create_connection((address.host, address.port), 5.0) as line:
            context = ssl.create_default_context(cafile=str(authority))
            with context.wrap_socket(line, server_hostname=host or address.host) as encrypted:
                certificate = encrypted.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        return Finding(what, WRONG, f"{place} is reached, but {_distrusted(error)}")
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


def _distrusted(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in (9, 10):  # 9: not yet valid; 10: expired
        now = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
        return (
            f"{error.verify_message}; the clock here says {now} UTC: set it, or ask for another "
            "certificate"
        )
    return f"{error.verify_message}: is the file of [federation] certificate the coordinator's?"


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
