"""Server of the interface for operators: TLS by the coordinator's certificate, in a thread."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from fedcluster import __version__
from fedcluster.errors import InputError
from fedcluster.federation._folder import ADDRESS, Federation
from fedcluster.federation._health import Health
from fedcluster.federation._operators_log import operators_log
from fedcluster.federation._queue import RunQueue, queue_of
from fedcluster.federation._runs import Carrier
from fedcluster.federation._service import Service
from fedcluster.io._outputs import write_json

LOGGER = logging.getLogger(__name__)

FIRST_LINE = 20.0
"""Seconds in which the head of a request must have come."""

CONNECTIONS = 200
"""Connections at the same time; more are refused."""

LOOK = 2.0
"""Seconds between two looks whether the certificate has changed."""


class PromptProtocol(H11Protocol):
    """HTTP of which the head of a request must come soon, or the connection is closed."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the head of the first request."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a head, if it is not there."""
        super().data_received(data)
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            self._wait_for_head()
        elif self._late is not None:
            self._late.cancel()
            self._late = None

    def shutdown(self) -> None:
        """End an idle connection without waiting for the other end to agree."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()
        else:
            super().shutdown()

    def _wait_for_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(FIRST_LINE, self.transport.abort)


@contextmanager
def operated(carrier: Carrier) -> Iterator[RunQueue]:
    """Carry out runs and listen to operators while the block lasts; yields the runs."""
    federation = carrier.federation
    health = Health(lambda: Federation.load(federation.folder), carrier.sites_online, __version__)
    with queue_of(carrier, health.follow) as queue:
        log = operators_log(federation)
        with served(federation, Service(queue, log, health).app()) as address:
            log.append(lambda _: {"event": "started", "address": address})
            yield queue
            log.append(lambda _: {"event": "ended"})


@contextmanager
def served(federation: Federation, app: Starlette) -> Iterator[str]:
    """Serve the interface for operators while the block lasts; yields where.

    Raises
    ------
    InputError
        If its address means nothing, or cannot be listened at.
    """
    listener = _listening(federation)
    server = uvicorn.Server(_config(federation, app))
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="service", daemon=True
    )
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    path = federation.file(ADDRESS)
    thread.start()
    try:
        _wait(server, thread)
        write_json(path, {"address": address})
        yield address
    finally:
        path.unlink(missing_ok=True)
        server.should_exit = True
        thread.join(10)
        listener.close()


def _listening(federation: Federation) -> socket.socket:
    host, _, port = federation.service.rpartition(":")
    host = host.strip("[]")
    if federation.insecure and not _is_loopback(host):
        raise InputError(f"service = {federation.service!r}: without encryption, use 127.0.0.1:0")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
    except (OSError, ValueError, OverflowError) as error:
        listener.close()
        raise InputError(
            f"service = {federation.service!r} of federation.toml cannot be listened at: {error}"
        ) from error
    return listener


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _config(federation: Federation, app: Starlette) -> uvicorn.Config:
    encrypted: dict[str, Any] = {}
    if not federation.insecure:
        files = {"ssl_certfile": "server.crt", "ssl_keyfile": "server.key"}
        encrypted = {key: federation.file("certificates", name) for key, name in files.items()}
    config = uvicorn.Config(
        app,
        http=PromptProtocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=1,
        **encrypted,
    )
    config.load()
    if config.ssl is not None:
        _follow_certificate(federation, config)
    return config


def _follow_certificate(federation: Federation, config: uvicorn.Config) -> None:
    """Show a renewed certificate to whoever connects from then on."""
    files = [federation.file("certificates", name) for name in ("server.crt", "server.key")]
    context = config.ssl

    def follow() -> None:
        before = [path.stat().st_mtime_ns for path in files]
        while context is not None:
            time.sleep(LOOK)
            with suppress(OSError):  # half of it is there: the next look finds both
                now = [path.stat().st_mtime_ns for path in files]
                if now != before:
                    context.load_cert_chain(str(files[0]), str(files[1]))
                    before = now
                    LOGGER.info("the certificate was renewed")

    threading.Thread(target=follow, name="certificate", daemon=True).start()


def _wait(server: uvicorn.Server, thread: threading.Thread) -> None:
    while not server.started:
        if not thread.is_alive():
            raise InputError("the interface for operators did not start")
        time.sleep(0.02)
