"""One of Flower's own programs, as a process that ends with the one that started it.

    python _launcher.py PARENT superlink|supernode OPTIONS...

The SuperLink serves three interfaces at one port, and asks nobody who he is but at the one for
sites. Here the other two, which start runs and register sites, are for this machine only. This
file is a script of its own, so that Flower's programs need nothing of fedcluster.
"""

from __future__ import annotations

import ipaddress
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

FOR_SITES = ("/v1/fleet/", "/health")
"""Prefixes of the paths that other machines may request."""

FORBIDDEN = b"for this machine only"
"""The body of the guard's answer to any other request of theirs, with status 403."""


class FleetOnly:
    """The guard: lets other machines reach the interface for sites only.

    Parameters
    ----------
    app : callable
        The ASGI app behind it.
    """

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 403."""
        if scope["type"] == "lifespan" or _is_allowed(scope):
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 403, "headers": []})
        await send({"type": "http.response.body", "body": FORBIDDEN})


def _is_allowed(scope: Scope) -> bool:
    host = (scope.get("client") or ("",))[0]
    try:
        here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        here = False
    return here or (scope["type"] == "http" and str(scope["path"]).startswith(FOR_SITES))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    signal.raise_signal(signal.SIGINT)


def main() -> None:
    """Run one of Flower's programs."""
    parent, program, *options = sys.argv[1:]
    sys.argv = [f"flower-{program}", *options]
    threading.Thread(target=_end_with, args=[int(parent)], daemon=True).start()
    if program == "superlink":  # each loads its own part of Flower only: the other's is slow
        from flwr.superlink import extensions
        from flwr.superlink.cli import flower_superlink
        from starlette.middleware import Middleware

        extensions.get_middleware = lambda: (Middleware(FleetOnly),)
        flower_superlink()
    else:
        from flwr.supernode.cli import flower_supernode

        flower_supernode()
        os._exit(1)  # it has lost its connection; its server would keep the process alive


if __name__ == "__main__":
    main()
