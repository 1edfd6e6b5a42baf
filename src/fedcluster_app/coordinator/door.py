"""Server whose port strangers cannot occupy: connections that nobody vouches for are closed first.

A connection is trusted once a request over it that shows a key or a token was accepted. All others
are strangers': each has some seconds for its handshake and for the head of a request, and if the
server has as many connections as it may have, the oldest one of the address with most of them is
closed when another comes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import uvicorn

with suppress(ModuleNotFoundError):  # the module does not exist on Windows, where nothing is served
    import resource

LOGGER = logging.getLogger("uvicorn.error")


def raise_descriptors() -> int:
    """Let this process open as many files and connections as its system allows; return how many."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(ValueError, OSError):  # some systems have a lower limit than they name
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class Visit:
    """Connection of a client, from its arrival.

    Parameters
    ----------
    connection : socket
        Its socket, which is closed by the transport that it is handed to.
    address : str
        The address of the client.
    """

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.connection, self.address = connection, address
        self.trusted, self.is_asking, self.since = False, False, time.monotonic()
        self.transport: asyncio.BaseTransport | None = None

    def close(self) -> None:
        """Close the connection, in or after its handshake."""
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()
        else:  # the handshake fails, and closes it
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)


class DoorServer(uvicorn.Server):
    """Server of uvicorn with limits on the connections of strangers.

    It raises this process's limit of descriptors, and closes connections of strangers where uvicorn
    would refuse more than ``limit_concurrency`` ones. A server that is given a socket listens at
    this one, otherwise at the host and port of its configuration.
    """

    most = 4096
    """Largest number of connections; with fewer descriptors, all but `kept`."""
    kept = 256
    """Descriptors for files and this machine's own programs."""
    handshake = 10.0
    """Seconds within which a connection is encrypted."""
    silence = 20.0
    """Seconds within which the head of a stranger's next request must arrive."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.visits: dict[Visit, None] = {}  # the oldest first
        self._strangers: Counter[str] = Counter()  # their number by address
        most = config.limit_concurrency or self.most
        config.limit_concurrency = None  # which would refuse whoever comes
        self._most = min(most, max(raise_descriptors() - self.kept, 16))
        self._admissions: set[asyncio.Task[None]] = set()  # end when their connections do

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        try:
            listener = sockets[0] if sockets else self._listener()
        except OSError as error:
            LOGGER.error("%s", error)
            sys.exit(1)
        listener.listen(self.config.backlog)
        listener.setblocking(False)
        await super().startup([])
        kind = _visitor(self.config.http_protocol_class)
        works = self._accept(listener, kind), self._watch()
        self._works = [asyncio.create_task(work) for work in works]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no further connections, and end the present ones."""
        for task in self._works:
            task.cancel()
        for visit in [*self.visits]:
            if not (visit.trusted and visit.is_asking):  # without waiting for the peer
                self.leave(visit)
                visit.close()
        await super().shutdown(sockets)

    def _listener(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.config.host else socket.AF_INET
        return socket.create_server((self.config.host, self.config.port), family=family)

    async def _accept(self, listener: socket.socket, kind: Callable[..., Any]) -> None:
        with listener:
            while True:
                try:
                    connection, where = await asyncio.get_running_loop().sock_accept(listener)
                except OSError as error:  # no descriptor is left, or the client has gone
                    LOGGER.warning("a connection was lost: %s", error)
                    if self.visits:
                        self._make_room()
                    await asyncio.sleep(0.1)
                    continue
                if len(self.visits) >= self._most:
                    self._make_room()
                visit = Visit(connection, where[0])
                self.visits[visit] = None
                self._strangers[visit.address] += 1
                task = asyncio.create_task(self._admit(visit, kind))
                self._admissions.add(task)
                task.add_done_callback(self._admissions.discard)

    async def _admit(self, visit: Visit, kind: Callable[..., Any]) -> None:
        """Encrypt a connection and hand it to the protocol, which ends the visit."""
        config, state = self.config, self.lifespan.state

        def protocol() -> Any:
            made = kind(config=config, server_state=self.server_state, app_state=state)
            made.door, made.visit = self, visit
            return made

        seconds = self.handshake if config.ssl else None
        try:
            loop = asyncio.get_running_loop()
            visit.transport, _ = await loop.connect_accepted_socket(
                protocol, visit.connection, ssl=config.ssl, ssl_handshake_timeout=seconds
            )
        except OSError:  # the client has gone, or does not encrypt
            self.leave(visit)

    def trust(self, visit: Visit) -> None:
        """Keep a connection that was used by somebody with a key or a token."""
        if visit in self.visits and not visit.trusted:
            self.leave(visit)
            visit.trusted = True
            self.visits[visit] = None

    def leave(self, visit: Visit) -> None:
        """Forget a connection that is closed."""
        if visit in self.visits:
            del self.visits[visit]
            self._strangers[visit.address] -= not visit.trusted
            if not self._strangers[visit.address]:
                del self._strangers[visit.address]

    def _make_room(self) -> None:
        """Close the oldest connection of the address that has most strangers."""
        [(address, number)] = self._strangers.most_common(1) or [("", 0)]
        first = next(
            visit
            for visit in self.visits
            if not number or (visit.address == address and not visit.trusted)
        )
        self.leave(first)
        first.close()

    async def _watch(self) -> None:
        """Close connections of strangers that request nothing."""
        while True:
            await asyncio.sleep(1)
            late = time.monotonic() - self.silence
            for visit in [*self.visits]:
                if not visit.trusted and not visit.is_asking and visit.since < late:
                    self.leave(visit)
                    visit.close()


def _visitor(kind: type[Any]) -> type[Any]:
    """Return a protocol of uvicorn whose connections tell their visit what they do."""

    class Visitor(kind):  # type: ignore[misc]
        app: Any
        door: DoorServer
        visit: Visit

        def __init__(self, *how: Any, **named: Any) -> None:
            super().__init__(*how, **named)
            self._behind: Any = self.app
            self.app = self._answer

        async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
            async def sends(message: Any) -> None:
                accepts = message["type"] == "http.response.start" and message["status"] < 400
                if accepts and _identifies(scope):
                    self.door.trust(self.visit)
                await send(message)

            self.visit.is_asking = True
            try:
                await self._behind(scope, receive, sends)
            finally:
                self.visit.is_asking, self.visit.since = False, time.monotonic()

        def connection_lost(self, error: Exception | None) -> None:
            self.door.leave(self.visit)
            super().connection_lost(error)

    return Visitor


def _identifies(scope: Any) -> bool:
    """Return whether an accepted request shows a key or a token; what all may ask does not."""
    return scope["method"] == "POST" or b"authorization" in dict(scope["headers"])
