"""Flower's SuperLink, as a process that ends with its parent.

    python _launcher.py PARENT OPTIONS...

The SuperLink serves three interfaces at one port, and authenticates clients only at the one for
sites. Here the other two, which start runs and register sites, are restricted to programs on this
machine that know the secret in a private file of the coordinator. This file is a separate script
without heavy imports, so that it starts at once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from fedcluster import __version__
from fedcluster_app.coordinator.certificates import following
from fedcluster_app.trust.owned_files import end_with

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

FOR_SITES = ("/v1/fleet/", "/health")
"""Prefixes of the paths that anyone may request; Flower checks the keys of sites itself."""

SECRET = "fedcluster-secret"
"""The header that identifies the coordinator's own programs."""

SECRET_FILE = "--superexec-auth-secret-file"
"""The option with the file of the secret of this start."""

KEY_STATUS = "/v1/fleet/fedcluster-standing"
"""Path of the status of a key, for its owner; a site requests it when it is not admitted."""

SIGNED = ("fedcluster-key", "fedcluster-time", "fedcluster-signature")
"""The headers of that request: the public key, the time, and its signature."""

VERSION, UNKNOWN = "fedcluster-version", b"unknown"
"""The header of the answer with the coordinator's version, and the answer to all others."""


CLOCK = b"not looked at, as the clock says"
"""The beginning of the answer to a client whose clock differs by more than five minutes."""

FORBIDDEN = b"for the coordinator only"
"""The body of the guard's answer, with status 403, to other requests of strangers."""

BACKOFF = 0.05
"""Seconds before a missing part of a message is requested again; Flower waits 1 s."""


def hasten() -> None:
    """Shorten Flower's waits in this process."""
    from flwr.supercore.inflatable import inflatable_utils as inflatable

    for pulls in (inflatable.pull_objects, inflatable.pull_and_inflate_object_from_tree):
        defaults: dict[str, Any] = pulls.__kwdefaults__  # type: ignore[assignment]
        defaults["initial_backoff"] = min(BACKOFF, defaults["initial_backoff"])


class FleetOnly:
    """Guard that lets strangers reach only the interface for sites.

    Parameters
    ----------
    app : callable
        The ASGI app behind it.
    secret : bytes
        The value that the coordinator's own programs send in the header `SECRET`.
    statuses : Path, optional
        The file with the status of each key.
    """

    def __init__(
        self,
        app: Callable[[Scope, Receive, Send], Awaitable[None]],
        secret: bytes,
        statuses: Path | None = None,
    ) -> None:
        self._app, self._secret, self._statuses = app, secret, statuses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it: with the status of a key, or with 403."""
        status, answer, headers = 403, FORBIDDEN, list[tuple[bytes, bytes]]()
        if scope["type"] == "http" and scope["path"] == KEY_STATUS and self._statuses is not None:
            status, answer = 200, key_status_of(dict(scope["headers"]), self._statuses)
            if not answer.startswith((UNKNOWN, CLOCK)):
                headers = [(VERSION.encode(), __version__.encode())]
        elif scope["type"] == "lifespan" or self._is_allowed(scope):
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _is_allowed(self, scope: Scope) -> bool:
        if scope["type"] == "http" and str(scope["path"]).startswith(FOR_SITES):
            return True
        shown = dict(scope["headers"]).get(SECRET.encode(), b"")
        return _is_here(scope) and hmac.compare_digest(shown, self._secret)


def _is_here(scope: Scope) -> bool:
    """Return whether a request comes from this machine, judged by the address that it uses."""
    asking, asked = ((scope.get(end) or ("",))[0] for end in ("client", "server"))
    try:
        return ipaddress.ip_address(asking).is_loopback or asking == asked
    except ValueError:
        return False


def key_status_of(headers: Mapping[bytes, bytes], path: Path) -> bytes:
    """Return the status of a key to a client that proves to own it, otherwise "unknown".

    If the client's clock differs, the answer says the time, and nothing of the key.
    """
    from cryptography.hazmat.primitives.asymmetric import ec  # installed with Flower
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    key, at, signature = (headers.get(name.encode(), b"")[:4096] for name in SIGNED)
    try:
        public: Any = load_der_public_key(der := base64.b64decode(key, validate=True))
        signed = base64.b64decode(signature, validate=True)
        public.verify(signed, KEY_STATUS.encode() + at, ec.ECDSA(SHA256()))
        # Largest difference of the two clocks in seconds.
        if abs(time.time() - float(at)) > 300.0:  # then the key is not even looked up
            return CLOCK + time.strftime(" %Y-%m-%d %H:%M UTC", time.gmtime()).encode()
        status = json.loads(path.read_text("utf-8"))[hashlib.sha256(der).hexdigest()]
    except Exception:  # any error means that this is not a site's key
        return UNKNOWN
    return str(status).encode()


def main() -> None:
    """Run Flower's SuperLink behind the guard."""
    parent, *options = sys.argv[1:]
    sys.argv = ["flower-superlink", *options]
    # Seconds within which a program whose parent has ended takes leave of the other end.
    end_with(int(parent), 3.0)
    from flwr.superlink import extensions
    from flwr.superlink.cli import flower_superlink
    from starlette.middleware import Middleware
    from uvicorn import config

    from fedcluster_app.coordinator.door import DoorServer

    main_of_uvicorn = sys.modules["uvicorn.main"]
    secret = Path(options[options.index(SECRET_FILE) + 1]).read_bytes()
    state = Path(options[options.index("--database") + 1])
    create = config.create_ssl_context

    def context(certfile: Path, keyfile: Path, **how: Any) -> Any:
        made = create(certfile=certfile, keyfile=keyfile, **how)
        return following(made, certfile, keyfile)

    guard = Middleware(FleetOnly, secret=secret, statuses=state.with_name("standing.json"))
    extensions.get_middleware = lambda: (guard,)
    vars(config)["create_ssl_context"] = context
    vars(main_of_uvicorn)["Server"] = DoorServer
    flower_superlink()


if __name__ == "__main__":
    main()
