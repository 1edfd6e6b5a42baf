"""The interface for operators over TLS, and its client: on this machine and from another."""

from __future__ import annotations

import json
import socket
import ssl
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from operated import ScriptedCarrier
from ports import free_port
from typed import invoke

from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import Profile, fit_of
from fedcluster.model.file import FORMAT, FORMAT_VERSION
from fedcluster.recipes.specifications import RunOptions
from fedcluster_app.coordinator import door
from fedcluster_app.coordinator import runs as queues
from fedcluster_app.coordinator.folder import ADDRESS, Federation, create
from fedcluster_app.coordinator.operators import operators_log, remove_operator
from fedcluster_app.coordinator.service import operated, served
from fedcluster_app.coordinator.service_client import Coordinator
from fedcluster_app.transports.flower._programs import is_healthy
from fedcluster_app.trust.audit_log import read_log

SITES = ["north", "south"]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for waiting in (queues.RunQueue, Coordinator):
        monkeypatch.setattr(waiting, "interval", 0.01)
    monkeypatch.delenv("FEDCLUSTER_TOKEN", raising=False)


@contextmanager
def running(folder: Path, **how: Any) -> Iterator[ScriptedCarrier]:
    federation = create(folder, SITES, "localhost:8443", **how)
    carrier = ScriptedCarrier(federation)
    with operated(carrier):
        yield carrier


@pytest.fixture
def carrier(tmp_path: Path) -> Iterator[ScriptedCarrier]:
    with running(tmp_path / "trial") as carrier:
        yield carrier


@pytest.mark.parametrize(("error", "why"), [(KeyboardInterrupt, "asked to"), (OSError, "OSError")])
def test_connections_and_each_end_are_logged(tmp_path, monkeypatch, error, why) -> None:
    monkeypatch.setattr("fedcluster_app.coordinator.service.Health.connected_for", 0.01)
    log = operators_log(tmp_path / "trial").path
    with pytest.raises(error), running(tmp_path / "trial") as carrier:
        for n, online in ((2, ["north", "south"]), (3, ["south"]), (4, [])):
            carrier.online = online
            while sum("connected" in line["event"] for line in read_log(log)) < n:
                time.sleep(0.01)
        raise error
    lines = [(line["event"], line.get("member"), line.get("why")) for line in read_log(log)]
    assert [event for event, _, _ in lines[:2]] == ["begun", "started"]
    assert lines[2:] == [
        ("connected", "north", None), ("connected", "south", None),
        ("disconnected", "north", None), ("disconnected", "south", None), ("ended", None, why),
    ]  # fmt: skip


def quiet(_said: str) -> None:
    pass


def finishing(carrier: ScriptedCarrier, *args: Any, **how: Any) -> threading.Thread:
    """End the first run, as soon as it has begun."""

    def finish() -> None:
        with carrier.change:
            carrier.change.wait_for(lambda: carrier.begun, 60)
        carrier.finish(carrier.begun[0], *args, **how)

    thread = threading.Thread(target=finish)
    thread.start()
    return thread


def test_a_run_is_asked_for_followed_and_fetched(carrier, tmp_path: Path) -> None:
    coordinator = Coordinator.at(carrier.federation.folder)
    out, again = tmp_path / "out", tmp_path / "again"
    name = coordinator.begin(fit_of(3), RunOptions(out))
    thread = finishing(carrier, files={"model.json": '{"k": 3}', "report.html": "<p>"})
    outcome = coordinator.wait(name, out, quiet)
    thread.join()
    assert (outcome["out"], outcome["files"]) == (str(out), ["model.json", "report.html"])
    found = {path.name: path.read_text() for path in out.iterdir()}
    assert found == {"model.json": '{"k": 3}', "report.html": "<p>"}
    assert coordinator.out_of(name) == out
    assert coordinator.wait(coordinator.resume(name), again, quiet)["out"] == str(again)
    assert {path.name for path in again.iterdir()} == {"model.json", "report.html"}
    status, listed = invoke("federation show --json", coordinator.folder)
    assert status == 0
    [run] = json.loads(listed)["runs"]
    assert (run["name"], run["state"], run["job"]) == (name, "done", "fit -k 3")
    status, listed = invoke("federation show", coordinator.folder)
    assert status == 0
    for told in ("owner", "done", name, "not connected"):
        assert told in listed


def test_a_run_that_failed_says_how_it_goes_on(carrier, tmp_path: Path) -> None:
    coordinator = Coordinator.at(carrier.federation.folder)
    name = coordinator.begin(fit_of(3), RunOptions(tmp_path / "out"))
    thread = finishing(carrier, "no site answered")
    with pytest.raises(SiteError, match=f"no site answered; .* {coordinator.folder} resume {name}"):
        coordinator.wait(name, tmp_path / "out", quiet)
    thread.join()
    assert not (tmp_path / "out").exists()


def test_a_model_goes_along(carrier, tmp_path: Path) -> None:
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, "centers": [[1.5]]}
    (tmp_path / "model.json").write_text(json.dumps(content))
    job, options = Profile(str(tmp_path / "model.json")), RunOptions(tmp_path, columns=["x"])
    name = Coordinator.at(carrier.federation.folder).begin(job, options)
    folder = carrier.federation.file("runs", name)
    given = json.loads((folder / "job.json").read_text())
    assert given["columns"] == ["x"]
    assert json.loads((folder / given["parameters"]["model"]).read_text()) == content


def test_ctrl_c_cancels_the_run(carrier, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(queues.RunQueue, "farewell", 0.01)
    coordinator = Coordinator.at(carrier.federation.folder)
    name = coordinator.begin(fit_of(3), RunOptions(tmp_path / "out"))
    carrier.wait_for(name)
    struck = iter([KeyboardInterrupt])

    def once(_: str) -> None:
        for error in struck:
            raise error

    with pytest.raises(KeyboardInterrupt):
        coordinator.wait(name, tmp_path / "out", once)
    assert coordinator.get(f"/runs/{name}")["state"] == "cancelled"
    status, said = invoke("federation", "cancel", coordinator.folder, name)
    assert (status, f"run '{name}' is cancelled; there is nothing to cancel" in said) == (2, True)


def test_without_a_token_the_command_line_is_refused(carrier, tmp_path: Path, monkeypatch) -> None:
    """Who stands on the same machine, even as the same user, starts nothing without it."""
    folder = carrier.federation.folder

    def refused(reason: str) -> None:
        status, said = invoke("federation run", folder, "fit", "-k", 2, "--out", tmp_path / "o")
        assert (status, reason in said) == (2, True), said

    (folder / "operator.token").rename(tmp_path / "elsewhere")
    refused("runs need an operator's token")
    (tmp_path / "elsewhere").rename(folder / "operator.token")
    monkeypatch.setenv("FEDCLUSTER_TOKEN", "guess")
    refused("no operator has this token")
    monkeypatch.delenv("FEDCLUSTER_TOKEN")
    remove_operator(folder, "owner")
    refused("no operator has this token")
    assert carrier.begun == []
    assert list(folder.rglob("secret")) == []


def test_the_files_of_a_coordinator_that_lies_stay_in_their_folder(carrier, tmp_path) -> None:
    coordinator = Coordinator.at(carrier.federation.folder)
    for name in ("../../evil.json", ".bashrc", "authorized_keys", "a/b.json", "x.json\n"):
        with pytest.raises(InputError, match="which is none of a result"):
            coordinator.fetch({"name": "x", "outcome": {"files": [name]}}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_impostor_gets_no_token(carrier, tmp_path: Path) -> None:
    """At the port that the coordinator had, with the certificate of another federation."""
    other = create(tmp_path / "other", SITES, "localhost:8443")
    asked: list[bytes] = []

    async def app(scope, receive, send):
        asked.append(scope["path"])

    with served(other, app) as address:  # type: ignore[arg-type]
        carrier.federation.file(ADDRESS).write_text(json.dumps({"address": address}))
        with pytest.raises(InputError, match="the coordinator's certificate is not vouched for"):
            Coordinator.at(carrier.federation.folder).get("/runs")
    assert asked == []


def test_a_coordinator_that_has_gone_is_named(tmp_path: Path) -> None:
    with running(tmp_path / "trial") as carrier:
        folder = carrier.federation.folder
        stale = carrier.federation.file(ADDRESS).read_text()
        coordinator = Coordinator.at(folder)
        name = coordinator.begin(fit_of(3), RunOptions(tmp_path / "out"))
        coordinator.__dict__.pop("_client").close()  # a connection in use is broken off
    line = f"\\(Connection refused\\); start .*; then: .* resume {name}"
    with pytest.raises(SiteError, match=line):
        coordinator.wait(name, tmp_path / "out", quiet)
    status, said = invoke("federation", "show", folder)
    assert (status, "is not started: run fedcluster federation start" in said) == (2, True)
    (folder / ADDRESS).write_text(stale)  # as after kill -9
    status, said = invoke("federation", "show", folder)
    assert (status, "cannot be reached (Connection refused); start it with" in said) == (2, True)


@contextmanager
def answering(answer: bytes | None) -> Iterator[str]:
    """A port where connections are accepted, and ended after an answer, if there is one."""
    held: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                held.append(server.accept()[0])
                if answer is not None:
                    held[-1].recv(4096)
                    held[-1].sendall(answer)
                    held[-1].close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)
    for connection in held:
        connection.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "does not answer in time: it is busy, or a firewall lies between; try again"),
        (b"", "broke off the connection; try again, or see its log"),
        (b"HTTP/1.1 400 Bad\r\n\r\n", "is not trusted (WRONG_VERSION_NUMBER); try again"),
    ],
)
def test_why_a_coordinator_does_not_answer_is_told(answer, said, tmp_path, monkeypatch) -> None:
    """One that is busy is not said to have gone."""
    monkeypatch.setattr(Coordinator, "patience", 0.3)
    federation = create(tmp_path / "trial", SITES, "localhost:8443")
    with answering(answer) as address:
        federation.file(ADDRESS).write_text(json.dumps({"address": address}))
        status, printed = invoke("federation", "show", federation.folder)
        assert (status, f"the coordinator at {address} {said}" in printed) == (2, True), printed
        if answer == b"":
            assert not is_healthy(address, federation.authority)  # a site waits for it


def test_an_answer_that_is_an_error_is_told(tmp_path: Path) -> None:
    federation = create(tmp_path / "trial", SITES, "localhost:8443")

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"full"})

    with served(federation, app):  # type: ignore[arg-type]
        status, printed = invoke("federation", "show", federation.folder)
    assert (status, "the coordinator answers 500; see its log" in printed) == (2, True), printed


@contextmanager
def connected(carrier: ScriptedCarrier) -> Iterator[socket.socket]:
    """A connection to the interface, not encrypted yet."""
    host, _, port = Coordinator.at(carrier.federation.folder).address.rpartition(":")
    with socket.create_connection((host, int(port)), 60) as plain:
        yield plain


def test_who_sends_no_request_is_cut_off(tmp_path: Path, monkeypatch) -> None:
    """Nor does half a head, or half of a second one, hold a connection."""
    monkeypatch.setattr(door.Door, "silence", 0.2)
    with running(tmp_path / "trial") as carrier:
        context = ssl.create_default_context(cafile=carrier.federation.authority)
        whole = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        for first, half in ((b"", b""), (b"", whole[:14]), (whole, whole[:7])):
            with (
                connected(carrier) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as connection,
            ):
                connection.sendall(first)
                received = b""
                while first and b'"ok"' not in received:
                    received += connection.recv(4096)
                connection.sendall(half)
                with suppress(ConnectionError, ssl.SSLError):
                    while connection.recv(4096):
                        pass


def test_nothing_is_said_without_encryption(carrier) -> None:
    received = b""
    with connected(carrier) as plain, suppress(ConnectionResetError):
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        received = plain.recv(4096)
    assert b"200" not in received


def listening_at(folder: Path, place: str) -> Federation:
    """A federation whose interface for operators listens at another place."""
    toml = folder / "federation.toml"
    toml.write_text(toml.read_text().replace("127.0.0.1:0", place))
    return Federation.load(folder)


def test_an_operator_asks_from_another_machine(tmp_path: Path) -> None:
    trial, ada, port = tmp_path / "trial", tmp_path / "ada", free_port()
    create(trial, SITES, "localhost:8443")
    status, said = invoke("federation", "operator", trial, "ada", "--out", ada)
    assert (status, "set service to an address that others reach" in said) == (2, True)
    carrier = ScriptedCarrier(listening_at(trial, f"0.0.0.0:{port}"))
    status, said = invoke("federation", "operator", trial, "ada", "--out", ada)
    assert status == 0, said
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in ada.iterdir()}
    assert modes == dict.fromkeys(["operator.toml", "ca.crt", "operator.token"], 0o600)
    with operated(carrier):
        coordinator = Coordinator.at(ada)
        assert coordinator.address == f"localhost:{port}"
        name = coordinator.begin(fit_of(2), RunOptions(tmp_path / "out"))
        thread = finishing(carrier, files={"history.json": "{}"})
        coordinator.wait(name, tmp_path / "out", quiet)
        thread.join()
        status, said = invoke("federation", "show", ada, "--json")
        assert (status, json.loads(said)["runs"][0]["operator"]) == (0, "ada")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["history.json"]


@pytest.mark.parametrize("place", ["nowhere", "127.0.0.1:x", "127.0.0.1:99999", "192.0.2.1:0"])
def test_where_nobody_can_or_may_listen_is_named(place, tmp_path: Path) -> None:
    create(tmp_path / "trial", SITES, "localhost:8443")
    carrier = ScriptedCarrier(listening_at(tmp_path / "trial", place))
    with pytest.raises(InputError, match="cannot be listened at"), operated(carrier):
        pass
