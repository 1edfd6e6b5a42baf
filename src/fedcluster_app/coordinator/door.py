"""Ports that strangers cannot occupy: connections that nobody vouches for are closed first.

A connection is trusted once a certificate was shown where one is required, or a request that shows
a key or a token was accepted. All others are strangers': each costs a socket alone until the first
message of its handshake is there in whole, has some time until the head of its request is, and
where an address has many of them, their handshakes wait for each other, the newest goes first. If a
port has as many connections as it may have, the oldest one of the address with most strangers is
closed when another comes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from ipaddress import ip_network
from itertools import chain
from typing import Any

import uvicorn

with suppress(ModuleNotFoundError):  # they do not exist on Windows, where nothing is served
    import fcntl
    import resource

LOGGER = logging.getLogger("uvicorn.error")

HANDSHAKE, LONGEST_RECORD = 22, 1 << 14
"""The type of a TLS record that begins a handshake, and the most bytes of one (RFC 8446, 5.1)."""


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
        The address of the client; of an IPv6 address its network of 64 bits, which one client has.
    """

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.connection, self.address = connection, address
        if ":" in address:
            self.address = str(ip_network((address.partition("%")[0], 64), strict=False))
        self.trusted, self.is_asking, self.since = False, False, time.monotonic()
        self.admission: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport | None = None
        self._rest = 0.02

    def close(self) -> None:
        """Close the connection, before, in or after its handshake."""
        if self.transport is not None:
            self.transport.abort()
        elif self.admission is not None:
            self.admission.cancel()
            with suppress(OSError):  # its handshake may have ended just now
                self.connection.shutdown(socket.SHUT_RDWR)

    def rest(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        """Read no more for a while, which is longer each time: the head comes in small parts."""

        def read_on() -> None:
            if not transport.is_closing():
                transport.resume_reading()

        transport.pause_reading()
        self._rest = min(2 * self._rest, 8.0)
        loop.call_later(self._rest, read_on)


class Door:
    """Listener with limits on the connections of strangers.

    It raises this process's limit of descriptors.

    Parameters
    ----------
    protocol : callable
        Returns the protocol of asyncio for a visit.
    context : SSLContext, optional
        Encrypts the connections.
    most : int, optional
        The largest number of connections.
    """

    most = 8192
    """The same by default; with fewer descriptors, all but `kept`."""
    kept = 1024
    """Descriptors for files and this machine's own programs, or half of those that are allowed:
    the lowest, as FLARE waits for its own by ``select``, which takes none above 1,023."""
    silence = 60.0
    """Seconds within which a stranger's connection is encrypted and the head of its next request is
    there; a full port makes room anyway, and who is closed comes again and costs more."""
    crowd = 64
    """Number of strangers of an address above which their handshakes wait for those of others."""
    pace = 0.1
    """Seconds from one such handshake to the next, of which it takes two hundredths."""

    def __init__(
        self,
        protocol: Callable[[Visit], asyncio.BaseProtocol],
        context: ssl.SSLContext | None,
        most: int | None = None,
    ) -> None:
        self._protocol, self._context = protocol, context
        allowed = raise_descriptors()
        self._lowest = min(self.kept, allowed // 2)
        self._most = min(most or self.most, allowed - self._lowest)
        self.trusted: dict[Visit, None] = {}  # the oldest first
        self.strangers: dict[str, dict[Visit, None]] = {}  # by address, the oldest first
        self._waiting: dict[Visit, asyncio.Event] = {}
        self._number = 0

    @property
    def visits(self) -> list[Visit]:
        """All connections."""
        return [*self.trusted, *chain(*self.strangers.values())]

    def open(self, listener: socket.socket) -> None:
        """Begin to accept connections at a socket, in the loop that runs."""
        self.sockets = (listener,)
        listener.setblocking(False)
        self._loop = asyncio.get_running_loop()
        works = self._accept(listener), self._watch(), self._take_turns()
        self._works = [self._loop.create_task(work) for work in works]

    def close(self) -> None:
        """Accept no further connections, and end the present ones but for requests in work."""
        for task in self._works:
            task.cancel()
        for visit in self.visits:
            if not (visit.trusted and visit.is_asking):  # without waiting for the peer
                self._close(visit)

    async def _accept(self, listener: socket.socket) -> None:
        with listener:
            while True:
                try:
                    accepted, where = await self._loop.sock_accept(listener)
                    with accepted:
                        connection = self._above(accepted)
                except OSError as error:  # no descriptor is left, or the client has gone
                    LOGGER.warning("a connection was lost: %s", error)
                    self._make_room()
                    await asyncio.sleep(0.1)
                    continue
                if self._number >= self._most:
                    self._make_room()
                visit = Visit(connection, where[0])
                self.strangers.setdefault(visit.address, {})[visit] = None
                self._number += 1
                visit.admission = asyncio.create_task(self._admit(visit))
                visit.admission.add_done_callback(partial(self._admitted, visit))

    def _above(self, accepted: socket.socket) -> socket.socket:
        """Return a connection with a descriptor above those that are kept."""
        number = fcntl.fcntl(accepted, fcntl.F_DUPFD_CLOEXEC, self._lowest)
        connection = socket.socket(accepted.family, accepted.type, accepted.proto, number)
        connection.setblocking(False)
        return connection

    async def _admit(self, visit: Visit) -> None:
        """Encrypt a connection and hand it to the protocol, which ends the visit."""
        context = self._context
        with suppress(OSError):  # the client has gone, or does not encrypt
            await self._first_message(visit.connection)
            if len(self.strangers[visit.address]) > self.crowd:
                self._waiting[visit] = asyncio.Event()
                await self._waiting[visit].wait()
            visit.transport, _ = await self._loop.connect_accepted_socket(
                partial(self._protocol, visit),
                visit.connection,
                ssl=context,
                ssl_handshake_timeout=self.silence if context else None,
            )
            if context is not None and context.verify_mode == ssl.CERT_REQUIRED:
                self.trust(visit)

    def _admitted(self, visit: Visit, _: asyncio.Task[None]) -> None:
        """Forget a connection that did not get as far as the protocol."""
        if visit.transport is None:
            self.leave(visit)
            visit.connection.close()

    async def _take_turns(self) -> None:
        """Let those of a crowd begin their handshakes; who waits longest may wait in vain."""
        while True:
            await asyncio.sleep(self.pace)
            if self._waiting:
                self._waiting.popitem()[1].set()

    async def _first_message(self, connection: socket.socket) -> None:
        """Wait until a client has said something, or the beginning of a handshake in whole."""
        least, needed = 0, 5 if self._context else 1
        while needed > least:
            least, there = needed, asyncio.Event()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
            self._loop.add_reader(connection, there.set)
            try:
                await there.wait()
            finally:
                self._loop.remove_reader(connection)
            begun = connection.recv(least, socket.MSG_PEEK)
            if len(begun) < least:
                raise ConnectionResetError
            if self._context and begun[0] == HANDSHAKE:
                needed = 5 + min(int.from_bytes(begun[3:5]), LONGEST_RECORD)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

    def trust(self, visit: Visit) -> None:
        """Keep a connection that was used by somebody with a key or a token."""
        if not visit.trusted and self.leave(visit):
            visit.trusted = True
            self.trusted[visit] = None
            self._number += 1

    def leave(self, visit: Visit) -> bool:
        """Forget a connection that is closed; return whether it was known."""
        crowd = self.trusted if visit.trusted else self.strangers.get(visit.address, {})
        known = visit in crowd
        crowd.pop(visit, None)
        self._waiting.pop(visit, None)
        self._number -= known
        if not self.strangers.get(visit.address, True):
            del self.strangers[visit.address]
        return known

    def _close(self, visit: Visit) -> None:
        self.leave(visit)
        visit.close()

    def _make_room(self) -> None:
        """Close the oldest connection of the address that has most strangers."""
        most = max(self.strangers.values(), key=len, default=self.trusted)
        if oldest := next(iter(most), None):
            self._close(oldest)

    async def _watch(self) -> None:
        """Close connections of strangers that request nothing, and forget those that are closed."""
        while True:
            await asyncio.sleep(1)
            late = time.monotonic() - self.silence
            for visit in self.visits:
                if not visit.trusted and not visit.is_asking and visit.since < late:
                    self._close(visit)
                elif visit.transport is not None and visit.transport.is_closing():
                    self.leave(visit)


class DoorServer(uvicorn.Server):
    """Server of uvicorn behind a door, with ``limit_concurrency`` connections at most.

    A server that is given a socket listens at this one, otherwise at the host and port of its
    configuration.
    """

    kind = Door

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._most = config.limit_concurrency
        config.limit_concurrency = None  # uvicorn would refuse whoever comes

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        try:
            listener = sockets[0] if sockets else self._listener()
        except OSError as error:
            LOGGER.error("%s", error)
            sys.exit(1)
        listener.listen(self.config.backlog)
        await super().startup([])
        self._protocol = _visitor(self.config.http_protocol_class)
        self.door = self.kind(self._protocol_for, self.config.ssl, self._most)
        self.door.open(listener)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no further connections, and end the present ones."""
        self.door.close()
        await super().shutdown(sockets)

    def _listener(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.config.host else socket.AF_INET
        return socket.create_server((self.config.host, self.config.port), family=family)

    def _protocol_for(self, visit: Visit) -> Any:
        how = {"server_state": self.server_state, "app_state": self.lifespan.state}
        made = self._protocol(config=self.config, **how)
        made.door, made.visit = self.door, visit
        return made


def _visitor(kind: type[Any]) -> type[Any]:
    """Return a protocol of uvicorn whose connections tell their visit what they do."""

    class Visitor(kind):  # type: ignore[misc]
        app: Any
        door: Door
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

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not self.visit.trusted and (self.cycle is None or self.cycle.response_complete):
                self.visit.rest(self.loop, self.transport)

        def connection_lost(self, error: Exception | None) -> None:
            self.door.leave(self.visit)
            super().connection_lost(error)

    return Visitor


def _identifies(scope: Any) -> bool:
    """Return whether an accepted request shows a key or a token; what all may ask does not."""
    return scope["method"] == "POST" or b"authorization" in dict(scope["headers"])
