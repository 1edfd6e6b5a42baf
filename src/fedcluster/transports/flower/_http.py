"""Clients of Flower's interfaces over HTTP, and checks that these answer and are guarded."""

from __future__ import annotations

import logging
import socket
import ssl
from http.client import HTTPException, RemoteDisconnected
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import httpx
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.retry import RetryInvoker, exponential
from flwr.supercore.runtime import RuntimeHttpClient

from fedcluster.errors import InputError
from fedcluster.transports.flower._launcher import FORBIDDEN

if TYPE_CHECKING:
    from http.client import HTTPResponse

ClientT = TypeVar("ClientT", ControlHttpClient, RuntimeHttpClient)

GUARDED = ("/v1/control/list-nodes", "/v1/runtime/acquire-task")
"""One path of each interface that is for the coordinator's machine only."""

ELSEWHERE = "192.0.2.1"
"""An address that is nobody's (RFC 5737)."""

LOCAL_TIMEOUT = 60.0
"""Seconds that a program of this machine may take to answer, however busy the machine is."""


def is_healthy(address: str, authority: Path | None, timeout: float = 5.0) -> bool:
    """Return whether a SuperLink answers at an address; False where nobody does.

    Parameters
    ----------
    address : str
        HOST:PORT.
    authority : Path, optional
        The certificate of the authority that must vouch for it; without it nothing is encrypted.
    timeout : float, default=5
        Seconds that an answer may take.

    Raises
    ------
    InputError
        If somebody answers, but not as it should be.
    """
    try:
        with _get(address, "/health", authority, timeout) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError, HTTPException) as error:
        why = getattr(error, "reason", error)
        if isinstance(why, ssl.SSLCertVerificationError):
            raise InputError(
                f"the coordinator's certificate is not vouched for by {authority}: another "
                f"answers at {address}, or the site's folder is of another federation"
            ) from error
        if isinstance(why, ssl.SSLError):
            raise InputError(f"the coordinator at {address} does not encrypt: {why}") from error
        if authority is None and isinstance(why, RemoteDisconnected | ConnectionResetError):
            raise InputError(
                f"the coordinator wants an encrypted connection at {address}: write certificate "
                "and key in the site's file, not insecure"
            ) from error
        return False


def check_guard(address: str, authority: Path | None) -> None:
    """Refuse a SuperLink that lets other machines start runs or register sites.

    It is asked as by a proxy on this machine that speaks for another machine.

    Parameters
    ----------
    address : str
        HOST:PORT on this machine.
    authority : Path, optional
        As of `is_healthy`.

    Raises
    ------
    InputError
        If the guard of `fedcluster.transports.flower._launcher` does not answer 403.
    """
    for path in GUARDED:
        try:
            with _get(address, path, authority, LOCAL_TIMEOUT, ELSEWHERE) as reply:
                answer = str(reply.status)
        except HTTPError as error:
            with error:
                if error.code == 403 and error.read() == FORBIDDEN:
                    continue
            answer = str(error.code)
        except (OSError, HTTPException) as error:
            answer = str(error)
        raise InputError(
            f"the port at {address} is not guarded: asked from another machine for {path}, it "
            f"answers {answer} instead of 403, so anyone could start runs; is another release of "
            "flwr installed than this one of fedcluster is made for?"
        )


def _get(
    address: str, path: str, authority: Path | None, timeout: float, forwarded_for: str = ""
) -> HTTPResponse:
    """Request a path; with ``forwarded_for`` as a proxy would for a client of that address."""
    scheme = "http" if authority is None else "https"
    context = None if authority is None else ssl.create_default_context(cafile=authority)
    request = Request(
        f"{scheme}://{address}{path}",
        headers={"X-Forwarded-For": forwarded_for} if forwarded_for else {},
    )
    reply: HTTPResponse = urlopen(request, timeout=timeout, context=context)
    return reply


def free_port() -> int:
    """Return a port of this machine that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def retry_policy(max_tries: int) -> RetryInvoker:
    """Return how often a Flower program is asked where nobody answers.

    Flower's own policy ends the process that asks, where the answer is 401: a site whose sign of
    life came just after its answer, or belongs to a run that is over, would vanish.
    """
    return RetryInvoker(lambda: exponential(max_delay=20), httpx.TransportError, max_tries, None)


def client(
    kind: type[ClientT],
    address: str,
    max_tries: int,
    *interceptors: Any,
    certificate: bytes | None = None,
) -> ClientT:
    """Return a client of one of Flower's interfaces.

    Parameters
    ----------
    kind : type
        `ControlHttpClient` or `RuntimeHttpClient`.
    address : str
        HOST:PORT.
    max_tries : int
        How often it asks where nobody answers.
    *interceptors : interceptor of Flower
        By which it proves who it is.
    certificate : bytes, optional
        Of the authority that must vouch for the server; without it nothing is encrypted.
    """
    logging.getLogger("flwr").setLevel(logging.CRITICAL)  # we say it in our own words
    return kind.from_server_address(
        server_address=address,
        insecure=certificate is None,
        root_certificates=certificate,
        interceptors=[RuntimeVersionHttpInterceptor(component_name="fedcluster"), *interceptors],
        retry_invoker=retry_policy(max_tries),
    )
