"""One of Flower's own programs, as a process that ends with the one that started it.

    python _launcher.py PARENT superlink|supernode OPTIONS...

The SuperLink serves three interfaces at one port, and asks nobody who he is but at the one for
sites. Here the other two, which start runs and register sites, are for programs of this machine
that know the secret in a file of the coordinator's own. This file is a script of its own, so that
Flower's programs need nothing of fedcluster.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from types import ModuleType
from typing import Any

LOGGER = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

FOR_SITES = ("/v1/fleet/", "/health")
"""Prefixes of the paths that anyone may request; Flower checks the keys of sites itself."""

SECRET = "fedcluster-secret"
"""The header by which the coordinator's own programs are known."""

SECRET_FILE = "--superexec-auth-secret-file"
"""The option of both programs that names the file of the secret of this start."""

FORBIDDEN = b"for the coordinator only"
"""The body of the guard's answer to any other request of theirs, with status 403."""

BACKOFF = 0.05
"""Seconds before a part of a message that is not there yet is asked for again; Flower waits 1 s."""

QUICK, IDLE = 0.1, 3.0
"""Seconds between two looks for a message while there are some, and where none came for long."""


class Pace:
    """Waits that are short while there is work, and grow to a tenth of the time without any.

    Parameters
    ----------
    quick : float
        Seconds of the shortest wait.
    idle : float
        Seconds of the longest wait.
    sleep : callable, optional
        Waits.
    """

    def __init__(
        self, quick: float, idle: float, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._quick, self._idle, self._sleep, self._without = quick, idle, sleep, 0.0

    def works(self) -> None:
        """Take note that there is work."""
        self._without = 0.0

    def wait(self) -> None:
        """Wait before the next look."""
        seconds = min(max(self._quick, self._without / 10), self._idle)
        self._without += seconds
        self._sleep(seconds)


class SuperNodeClock(ModuleType):
    """Stands for the module ``time`` in Flower's loop of a SuperNode, which sleeps less by it.

    Flower sleeps 3 s where no message has come, and 0.5 s while one is being answered.
    """

    def __init__(self) -> None:
        super().__init__("time")
        self._pace = Pace(QUICK, IDLE)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        """Sleep, but not for so long."""
        if seconds >= IDLE:
            self._pace.wait()
        else:
            self._pace.works()
            time.sleep(min(seconds, QUICK))


def hasten(*, supernode: bool = False) -> bool:
    """Shorten Flower's waits in this process; return False where a release has moved them.

    Then Flower keeps its own pace, of about 4 s a round, and a line of the log says so.
    """
    try:
        from flwr.supercore.inflatable import inflatable_utils as inflatable

        for pulls in (inflatable.pull_objects, inflatable.pull_and_inflate_object_from_tree):
            defaults: dict[str, Any] = pulls.__kwdefaults__  # type: ignore[assignment]
            defaults["initial_backoff"] = min(BACKOFF, defaults["initial_backoff"])
        if supernode:
            from flwr.supernode import start_client_internal as loop

            vars(loop)["time"]  # it is there
            vars(loop)["time"] = SuperNodeClock()
    except (ImportError, AttributeError, KeyError, TypeError) as error:
        LOGGER.warning("this release of Flower keeps its own pace, as it has no %s", error)
        return False
    return True


class FleetOnly:
    """The guard: lets strangers reach the interface for sites only.

    Parameters
    ----------
    app : callable
        The ASGI app behind it.
    secret : bytes
        What the coordinator's own programs send in the header `SECRET`.
    """

    def __init__(
        self, app: Callable[[Scope, Receive, Send], Awaitable[None]], secret: bytes
    ) -> None:
        self._app, self._secret = app, secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "lifespan" or self._is_allowed(scope):
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 403, "headers": []})
        await send({"type": "http.response.body", "body": FORBIDDEN})

    def _is_allowed(self, scope: Scope) -> bool:
        if scope["type"] == "http" and str(scope["path"]).startswith(FOR_SITES):
            return True
        given = dict(scope["headers"]).get(SECRET.encode(), b"")
        return _is_here(scope) and hmac.compare_digest(given, self._secret)


def _is_here(scope: Scope) -> bool:
    """Return whether a request comes from this machine."""
    try:
        return ipaddress.ip_address((scope.get("client") or ("",))[0]).is_loopback
    except ValueError:
        return False


def end_with(parent: int) -> None:
    """Interrupt this process as soon as another is not its parent any more."""
    while os.getppid() == parent:
        time.sleep(0.2)
    signal.raise_signal(signal.SIGINT)


def main() -> None:
    """Run one of Flower's programs."""
    parent, program, *options = sys.argv[1:]
    sys.argv = [f"flower-{program}", *options]
    threading.Thread(target=end_with, args=[int(parent)], daemon=True).start()
    if program == "superlink":  # each loads its own part of Flower only: the other's is slow
        from flwr.superlink import extensions
        from flwr.superlink.cli import flower_superlink
        from starlette.middleware import Middleware

        secret = Path(options[options.index(SECRET_FILE) + 1]).read_bytes()
        extensions.get_middleware = lambda: (Middleware(FleetOnly, secret=secret),)
        flower_superlink()
    else:
        from flwr.supernode.cli import flower_supernode

        hasten(supernode=True)
        flower_supernode()
        os._exit(1)  # it has lost its connection; its server would keep the process alive


if __name__ == "__main__":
    main()
