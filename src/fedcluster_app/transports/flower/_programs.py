"""Flower's SuperLink: its process, its output, and clients of its interfaces.

It ends with the process that started it. Its output is parsed only here and, for its end, in
`fedcluster_app.trust.owned_files`; test_flower_contract.py compares each pattern with the installed
release of Flower.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supercore.retry import RetryInvoker, exponential
from flwr.supercore.runtime import RuntimeHttpClient

from fedcluster.errors import InputError, SiteError, first_cause
from fedcluster_app.coordinator.lifecycle import WARNING
from fedcluster_app.transports.flower import _launcher as launcher
from fedcluster_app.trust.findings import distrusted, shown_at, unanswered
from fedcluster_app.trust.owned_files import environment as own_environment

ClientT = TypeVar("ClientT", ControlHttpClient, RuntimeHttpClient)

ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
"""Path for which Flower also requires the secret."""

LOCAL_TIMEOUT = 60.0
"""Seconds that a local program may take to answer, however busy the machine is."""

GUARDED = ("/v1/control/list-nodes", "/v1/runtime/acquire-task")
"""One path of each interface that is only for the coordinator's own programs."""

HOST_OF_CERTIFICATE = "sni_hostname"
"""Extension of a request that names the host expected in the certificate, if not the address."""

ELSEWHERE = "192.0.2.1"
"""An address that belongs to nobody (RFC 5737)."""


def environment(home: Path, *, listens: str = "127.0.0.1") -> dict[str, str]:
    """Return the environment of Flower's programs, with files in ``home`` and no telemetry.

    Other settings for Flower are removed, as they can open unguarded ports. Only a proxy on this
    machine may forward requests for others, because the guard of the SuperLink trusts its headers.
    Its address is a loopback address, or the one at which the SuperLink listens.
    """
    reach_directly()
    return own_environment("FLWR_") | {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FORWARDED_ALLOW_IPS": f"127.0.0.1,::1,{listens}",
    }


def reach_directly() -> None:
    """Let this process and its children reach local addresses without a proxy.

    A proxy given by HTTPS_PROXY is used for the coordinator only.
    """
    for name in ("NO_PROXY", "no_proxy"):
        without = [each for each in os.environ.get(name, "").split(",") if each]
        if name in os.environ or name.isupper():
            os.environ[name] = ",".join(dict.fromkeys([*without, "127.0.0.1", "::1", "localhost"]))


def is_healthy(
    address: str, authority: Path, timeout: float = 5.0, host: str | None = None
) -> bool:
    """Return whether a SuperLink answers at an address; False if nobody does.

    Parameters
    ----------
    address : str
        HOST:PORT.
    authority : Path
        The certificate of the authority that must vouch for it.
    timeout : float, default=5
        Seconds that an answer may take.
    host : str, optional
        The host that its certificate is for, if that is not the one of the address.

    Raises
    ------
    InputError
        If the answer is not that of a SuperLink.
    """
    try:
        return get(address, "/health", authority, timeout, host=host).status_code == 200
    except httpx.TransportError as error:
        why = first_cause(error)
        if isinstance(why, ssl.SSLCertVerificationError):
            raise InputError(distrusted(why, address, authority)) from error
        if isinstance(why, ssl.SSLError) and not isinstance(why, ssl.SSLEOFError):  # it is busy
            raise InputError(f"the coordinator at {address} does not encrypt: {why}") from error
        return False


@dataclass(frozen=True, slots=True)
class Access:
    """Access of our own programs to one of Flower's on this machine.

    Parameters
    ----------
    address : str
        HOST:PORT.
    authority : Path
        The certificate of the authority that must vouch for it.
    secret : bytes
        The content of the secret file that both know.
    host : str, optional
        The host that its certificate is for, if that is not the one of the address.
    """

    address: str
    authority: Path
    secret: bytes = field(repr=False)
    host: str | None = None

    def intercept(self, context: ProtobufRequestContext, call: ProtobufCall) -> httpx.Response:
        """Add the secret to a request, as the guard requires."""
        context.request.headers[launcher.SECRET] = self.secret.decode()
        if self.host is not None:
            context.request.extensions[HOST_OF_CERTIFICATE] = self.host
        return call(context)


def check_guard(access: Access) -> None:
    """Raise an error for a SuperLink that lets strangers start runs or register sites.

    It is asked without the secret, with a wrong one, and as if by a local proxy for another
    machine.

    Raises
    ------
    InputError
        If the guard of `_launcher` does not answer 403, or does so to
        the coordinator's own programs.
    """
    own = {launcher.SECRET: access.secret.decode()}
    strangers = {
        "without the secret": {},
        "with another secret": {launcher.SECRET: "0" * len(access.secret)},
        "from another machine": own | {"X-Forwarded-For": ELSEWHERE},
    }
    for path in GUARDED:
        for who, headers in strangers.items():
            if (answer := _refusal(access, path, headers)) != launcher.FORBIDDEN.decode():
                raise InputError(
                    f"the port at {access.address} is not guarded: asked {who} for {path}, it "
                    f"answers {answer} instead of 403, so anyone could start runs; is another "
                    "release of flwr installed than this one of fedcluster is made for?"
                )
        if _refusal(access, path, own) == launcher.FORBIDDEN.decode():
            raise InputError(f"another coordinator answers at {access.address}; end it first")


def _refusal(access: Access, path: str, headers: dict[str, str]) -> str:
    """Return the guard's answer if it refuses a request, otherwise the actual answer."""
    try:
        how = (access.authority, LOCAL_TIMEOUT, headers, access.host)
        reply = get(access.address, path, *how)
    except httpx.TransportError as error:
        return str(error)
    refused = (reply.status_code, reply.content) == (403, launcher.FORBIDDEN)
    return reply.text if refused else str(reply.status_code)


def get(
    address: str,
    path: str,
    authority: Path,
    timeout: float = 5.0,
    headers: dict[str, str] | None = None,
    host: str | None = None,
) -> httpx.Response:
    """Request a path, encrypted if an authority vouches for the server or for another host."""
    trusted = ssl.create_default_context(cafile=authority)
    url = f"https://{address}{path}"
    reach_directly()
    more = {} if host is None else {HOST_OF_CERTIFICATE: host}
    with httpx.Client(verify=trusted, timeout=timeout) as http:
        return http.get(url, headers=headers, extensions=more)


def client(kind: type[ClientT], access: Access, max_tries: int, *interceptors: Any) -> ClientT:
    """Return a client of one of Flower's interfaces.

    It has our own retry policy. Flower's policy ends the asking process after an answer 401, so
    that a site would vanish if its sign of life came just after its answer, or belonged to a
    finished run.

    Parameters
    ----------
    kind : type
        `ControlHttpClient` or `RuntimeHttpClient`.
    access : Access
        The access to the program.
    max_tries : int
        The number of attempts if nobody answers.
    *interceptors : interceptor of Flower
        Interceptors that authenticate it, in addition to the secret.
    """
    reach_directly()
    waits = partial(exponential, max_delay=20)
    # the error is reported by fedcluster instead
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    return kind.from_server_address(
        server_address=access.address,
        insecure=False,
        root_certificates=access.authority.read_bytes(),
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="fedcluster"),
            access,
            *interceptors,
        ],
        retry_invoker=RetryInvoker(waits, httpx.TransportError, max_tries, None),
    )


def token_of(access: Access, run: int) -> str:
    """Return the token of the task of a run that was submitted; earlier ones are not begun.

    Raises
    ------
    SiteError
        If the SuperLink does not answer, or does not have it.
    """
    known = SuperExecAuthHttpInterceptor(master_secret=access.secret, protected_methods={ACQUIRE})
    request = AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
    with closing(client(RuntimeHttpClient, access, 3, known)) as runtime:
        try:
            while (acquired := runtime.AcquireTask(request)).HasField("task"):
                if acquired.task.run_id == run:
                    return str(acquired.token)
        except httpx.HTTPError as error:
            raise SiteError(unanswered(error, "Flower's superlink")) from error
    raise SiteError("Flower's superlink has the run no more")


@contextmanager
def task(access: Access, token: str, max_tries: int) -> Iterator[RuntimeHttpClient]:
    """Yield a client for one task, and tell Flower within the block that it is being worked on."""
    runtime = client(RuntimeHttpClient, access, max_tries, RuntimeTokenHttpInterceptor(token))

    def works() -> bool:
        with suppress(httpx.HTTPError):
            runtime.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        return True

    heart = HeartbeatSender(works)
    heart.start()
    try:
        yield runtime
    finally:
        heart.stop()
        runtime.close()


def ends_soon(address: str) -> str:
    """Return a line about the certificate at an address if it expires soon, else nothing."""
    shown = shown_at(address)
    if shown is None or shown.not_valid_after_utc > datetime.now(UTC) + WARNING:
        return ""
    return (
        f"the coordinator's certificate expires on {shown.not_valid_after_utc:%Y-%m-%d}; remind "
        "the coordinator to renew it"
    )
