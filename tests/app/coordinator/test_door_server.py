"""A port that strangers cannot occupy: theirs are the connections that are closed."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from ports import wait_until
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fedcluster_app.coordinator.certificates import issue
from fedcluster_app.coordinator.door import Door, DoorServer, Visit, raise_descriptors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")

KNOWN = {"Authorization": "Bearer known"}


async def app(scope: Any, _receive: Any, send: Any) -> None:
    """Accepts those with a header, and all at /health; takes its time at /slow."""
    if scope["path"] == "/slow":
        await asyncio.sleep(2.5)
    known = b"authorization" in dict(scope["headers"]) or scope["path"] == "/health"
    await send({"type": "http.response.start", "status": 200 if known else 401, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def serving(
    files: Path | None = None, *, loop: Any = "auto", **limits: float
) -> Iterator[DoorServer]:
    """A server in a thread, with other limits; encrypted by the certificate in a folder."""
    how: dict[str, Any] = {"loop": loop, "lifespan": "off", "log_config": None}
    if files is not None:
        for name, content in issue(["127.0.0.1"], ()).items():
            (files / Path(name).name).write_bytes(content)
        how |= {"ssl_certfile": files / "server.crt", "ssl_keyfile": files / "server.key"}
    config = uvicorn.Config(app, port=0, timeout_keep_alive=60, **how)
    config.load()
    server = type("Limited", (DoorServer,), {"kind": type("Small", (Door,), limits)})(config)
    listener = socket.create_server(("127.0.0.1", 0))
    server.port = listener.getsockname()[1]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    yield server
    server.should_exit = True
    thread.join(60)
    assert not thread.is_alive()


def stranger(server: Any, says: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), 10, (source, 0))
    connection.sendall(says)
    return connection


def client(server: Any, files: Path | None = None) -> closing[HTTPConnection]:
    if files is None:
        return closing(HTTPConnection("127.0.0.1", server.port, timeout=30))
    context = ssl.create_default_context(cafile=files / "ca.crt")
    return closing(HTTPSConnection("127.0.0.1", server.port, timeout=30, context=context))


def asked(connection: HTTPConnection, headers: dict[str, str] = KNOWN, path: str = "/") -> int:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


both_loops = pytest.mark.parametrize("loop", ["auto", "asyncio"])


def test_strangers_do_not_displace_who_is_known_nor_who_comes():
    """Idle ones and slow ones, from the same address: the oldest of them make room."""
    with serving(most=40) as server, ExitStack() as stack:
        known = stack.enter_context(client(server))
        assert asked(known) == 200
        for says in [b"", b"GET / HTTP/1.1\r\nX-", b""] * 50:
            stack.enter_context(stranger(server, says))
        new = stack.enter_context(client(server))
        assert asked(new) == 200
        assert asked(known) == 200
        assert len(server.door.visits) <= 40
        assert sum(visit.trusted for visit in [*server.door.visits]) == 2


def test_an_address_with_many_strangers_makes_room_for_others():
    with serving(most=20) as server, ExitStack() as stack:
        other = stack.enter_context(stranger(server, source="127.0.0.2"))
        for _ in range(60):
            stack.enter_context(stranger(server))
        wait_until(lambda: len(server.door.visits) == 20)
        assert any(visit.address == "127.0.0.2" for visit in [*server.door.visits])
        other.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer known\r\n\r\n")
        assert other.recv(100).startswith(b"HTTP/1.1 200")


def test_what_all_may_ask_and_what_is_refused_makes_nobody_known():
    with serving() as server, client(server) as connection:
        assert asked(connection, {}, "/health") == 200
        assert asked(connection, {}) == 401
        assert [visit.trusted for visit in [*server.door.visits]] == [False]
        assert asked(connection) == 200
        assert [visit.trusted for visit in [*server.door.visits]] == [True]


@pytest.mark.thorough
def test_a_stranger_that_requests_nothing_is_closed_and_one_that_is_known_is_not():
    with serving(silence=0.3) as server, client(server) as known:
        assert asked(known) == 200
        with stranger(server) as silent, stranger(server, b"GET / HTTP/1.1\r\n") as slow:
            with suppress(ConnectionError):
                for _ in range(40):
                    slow.sendall(b"X: ")
                    time.sleep(0.1)
            assert silent.recv(1) == b""
            with pytest.raises(ConnectionError):
                slow.sendall(b"X: ")
        with client(server) as waiting:
            assert asked(waiting, path="/slow") == 200
        assert asked(known) == 200


@pytest.mark.thorough
@both_loops
def test_a_handshake_that_nobody_finishes_is_ended_and_leaves_no_descriptor(loop, tmp_path):
    limits = {"silence": 0.3, "most": 20.0}
    with serving(tmp_path, loop=loop, **limits) as server, client(server, tmp_path) as known:
        assert asked(known) == 200
        before = descriptors()
        for says in [b"", b"\x16\x03\x01"] * 30:
            stranger(server, says).close()
        held = [stranger(server) for _ in range(30)]
        assert asked(known) == 200
        assert [connection.recv(1) for connection in held] == [b""] * 30
        for connection in held:
            connection.close()
        wait_until(lambda: len(server.door.visits) == 1)
        wait_until(lambda: descriptors() <= before)
        assert asked(known) == 200


def hello() -> bytes:
    """The first message of a client that encrypts."""
    said = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context = ssl.create_default_context()
        context.wrap_bio(ssl.MemoryBIO(), said, server_hostname="localhost").do_handshake()
    return said.read()


@pytest.mark.thorough
@both_loops
def test_who_begins_a_handshake_and_says_no_more_is_closed(loop, tmp_path):
    with serving(tmp_path, loop=loop, silence=0.5) as server, client(server, tmp_path) as known:
        assert asked(known) == 200
        before = descriptors()
        with stranger(server, hello()) as begun, stranger(server, hello()[:-1]) as half:
            assert begun.recv(1) == b"\x16"  # the server's turn
            while begun.recv(4096):
                pass
            with suppress(ConnectionResetError):  # it costs no handshake
                assert half.recv(1) == b""
        wait_until(lambda: descriptors() <= before)


@both_loops
def test_a_first_message_may_come_in_parts(loop, tmp_path):
    with serving(tmp_path, loop=loop) as server, stranger(server) as slow:
        for part in (hello()[:2], hello()[2:9], hello()[9:]):
            slow.sendall(part)
            time.sleep(0.1)
        assert slow.recv(1) == b"\x16"


@pytest.mark.thorough
@both_loops
def test_a_head_that_comes_byte_by_byte_is_not_read_byte_by_byte(loop, monkeypatch):
    real, reads = HttpToolsProtocol.data_received, list[bytes]()

    def data_received(protocol: Any, data: bytes) -> None:
        reads.append(data)
        real(protocol, data)

    monkeypatch.setattr(HttpToolsProtocol, "data_received", data_received)
    head = b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer known\r\n" + b"X: y\r\n" * 10
    with serving(loop=loop) as server, stranger(server) as slow:
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        for byte in head + b"\r\n":
            slow.sendall(bytes([byte]))
            time.sleep(0.005)
        assert slow.recv(100).startswith(b"HTTP/1.1 200")
    assert b"".join(reads) == head + b"\r\n"
    assert len(reads) < 12


@pytest.mark.thorough
def test_the_handshakes_of_a_crowd_wait_for_each_other_and_not_those_of_others(tmp_path):
    with serving(tmp_path, crowd=4, pace=0.5) as server, ExitStack() as stack:
        crowd = [stack.enter_context(stranger(server, source="127.0.0.2")) for _ in range(14)]
        wait_until(lambda: len(server.door.visits) == 14)
        began = time.monotonic()
        for connection in crowd:
            connection.sendall(hello())
            connection.setblocking(False)
        known = stack.enter_context(client(server, tmp_path))
        assert asked(known) == 200
        answered = sum(_has_more(connection) for connection in crowd)
        assert answered <= (time.monotonic() - began) / 0.5
        wait_until(lambda: sum(map(_has_more, crowd)) >= 3)


def _has_more(connection: socket.socket) -> bool:
    with suppress(BlockingIOError):
        return bool(connection.recv(1, socket.MSG_PEEK))
    return False


@pytest.mark.parametrize(
    ("address", "shared"),
    [("192.0.2.7",) * 2, ("2001:db8::1:2:3:4", "2001:db8::/64"), ("fe80::1%lo", "fe80::/64")],
)
def test_an_address_is_what_one_client_has(address, shared):
    with closing(socket.socket()) as connection:
        assert Visit(connection, address).address == shared


def test_descriptors_are_raised_to_what_the_system_allows():
    assert raise_descriptors() == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
