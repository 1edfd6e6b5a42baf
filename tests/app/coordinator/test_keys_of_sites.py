"""Keys of sites at a coordinator that runs: who is registered, cut off, and told why."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
)
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from ports import wait_until

from fedcluster import __version__
from fedcluster.errors import InputError
from fedcluster_app.coordinator import certificates, lifecycle
from fedcluster_app.coordinator.certificates import make_site_key, read_public_key
from fedcluster_app.coordinator.folder import Federation, create
from fedcluster_app.coordinator.lifecycle import is_noticed
from fedcluster_app.coordinator.runs import Run, State
from fedcluster_app.coordinator.service import FolderWatch
from fedcluster_app.site.membership import Membership
from fedcluster_app.transports.flower import _launcher as launcher
from fedcluster_app.transports.flower import _programs as programs
from fedcluster_app.transports.flower import node as member
from fedcluster_app.transports.flower._programs import Access
from fedcluster_app.transports.flower.coordinator import FlowerCarrier, key_status, known_nodes
from fedcluster_app.trust import findings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create(tmp_path / "trial", ["north", "south"], "127.0.0.1:8443")
    (tmp_path / "trial/flower").mkdir(mode=0o700)
    return tmp_path / "trial"


# How a key stands, for whoever has it


def private_key(folder: Path, site: str = "north") -> ec.EllipticCurvePrivateKey:
    key = load_ssh_private_key((folder / "sites" / site / "state/key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


@pytest.fixture
def table(folder: Path) -> Path:
    """The file in which the coordinator says how each key stands."""
    path = folder / "standing.json"
    path.write_text(json.dumps(key_status(Federation.load(folder))))
    return path


def signed(key: Any, at: float | None = None, by: Any = None) -> dict[bytes, bytes]:
    """The question of who has a key, or says so."""
    now = f"{time.time() if at is None else at:.0f}".encode()
    der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    signature = (by or key).sign(launcher.KEY_STATUS.encode() + now, ec.ECDSA(SHA256()))
    told = (base64.b64encode(der), now, base64.b64encode(signature))
    return dict(zip((name.encode() for name in launcher.SIGNED), told, strict=True))


def test_whoever_has_a_key_is_told_how_it_stands(folder: Path, table: Path) -> None:
    own, gone = private_key(folder), private_key(folder, "south")
    assert launcher.key_status_of(signed(own), table) == b"known"
    lifecycle.revoke(folder, "south")
    table.write_text(json.dumps(key_status(Federation.load(folder))))
    assert launcher.key_status_of(signed(gone), table).startswith(b"revoked on 20")
    assert launcher.key_status_of(signed(own), table) == b"known"


def test_nobody_else_is_told_anything(folder: Path, table: Path, tmp_path: Path) -> None:
    """A public key alone, an old question, or anything else that is no proof."""
    own, other = private_key(folder), ec.generate_private_key(ec.SECP384R1())
    right, foreign = signed(own), Ed25519PrivateKey.generate().public_key()
    key, at, signature = (name.encode() for name in launcher.SIGNED)
    of_another_kind = foreign.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for headers in (
        signed(other),
        signed(own, by=other),
        {},
        *(right | {name: b""} for name in right),
        *(right | {name: b"\xff" * 5000} for name in right),
        right | {at: b"nan"},
        right | {at: b"inf"},
        right | {key: base64.b64encode(b"no key")},
        right | {key: base64.b64encode(of_another_kind)},
        right | {signature: base64.b64encode(b"0" * 96)},
    ):
        assert launcher.key_status_of(headers, table) == b"unknown"
    for late in (signed(each, time.time() + s) for each in (own, other) for s in (-400, 400)):
        told = launcher.key_status_of(late, table).decode()
        assert re.fullmatch(r"not looked at, as the clock says \d{4}-\d\d-\d\d \d\d:\d\d UTC", told)
    assert launcher.key_status_of(right, tmp_path / "none.json") == b"unknown"
    table.write_text("{")
    assert launcher.key_status_of(right, table) == b"unknown"


MEMBER = Membership("127.0.0.1:1", "state/ca.crt", "state/key")


def test_a_site_asks_how_its_key_stands(folder, table, monkeypatch):
    """Through the guard, as it stands before Flower's interfaces."""
    guard = launcher.FleetOnly(lambda *_: pytest.fail("passed on"), b"secret", table)

    def get(_address: str, path: str, _authority: Any, headers: dict[str, str]) -> httpx.Response:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        given = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "path": path, "headers": given, "client": ("192.0.2.1", 1)}
        asyncio.run(guard(scope, lambda: None, send))  # type: ignore[arg-type, return-value]
        return httpx.Response(200, content=sent[1]["body"], headers=sent[0]["headers"])

    monkeypatch.setattr(programs, "get", get)
    key, toml = folder / "sites/north/state/key", folder / "sites/north/site.toml"
    own = member.Credentials(MEMBER, toml.parent)
    assert own.key_status() == "known"
    assert member.told_by_coordinator(toml) == {"status": "known", "version": __version__}
    assert make_site_key(toml.parent, "state/key").waits
    waiting = key.with_name("key.next")
    assert own.key_status(waiting) == "unknown"
    assert own.key_status(folder / "none") == ""
    waiting.replace(key)
    told = member.told_by_coordinator(toml)
    assert told == {"status": "unknown", "version": ""}, "whoever has no key learns no version"
    assert member.told_by_coordinator(folder / "none.toml") == {}


@pytest.mark.parametrize("said", ["a\x1b[31m", "a\nb", "übel", "x" * 101])
def test_what_a_coordinator_says_of_a_key_is_one_plain_line(said, folder, monkeypatch):
    monkeypatch.setattr(programs, "get", lambda *_, **__: httpx.Response(200, text=said))
    told = member.Credentials(MEMBER, folder / "sites/north").key_status()
    assert told in {"", "x" * 100}
    assert member.why_not_let_in(told) == ""


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("known", "its folder was copied, or is in use twice"),
        ("unknown", "does not know this site's key"),
        ("revoked on 2026-11-22", "was revoked on 2026-11-22; ask the coordinator for a new one"),
        ("replaced on 2026-11-22", "was replaced on 2026-11-22; ask"),
        ("removed on 2026-11-22", "has this site removed on 2026-11-22"),
        ("not looked at, as the clock says 2026-11-22 10:00 UTC", "set the clock that is wrong"),
    ],
)
def test_why_a_site_is_not_let_in(told: str, says: str) -> None:
    assert says in member.why_not_let_in(told)


# Registrations


class Control:
    """Flower's interface for administrators: it never takes a key twice, as Flower does not."""

    def __init__(self) -> None:
        self.nodes: dict[bytes, SimpleNamespace] = {}

    def ListNodes(self, _request: object) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(nodes_info=list(self.nodes.values()))

    def RegisterNode(self, request: Any) -> SimpleNamespace:  # noqa: N802
        key = request.public_key
        if key in self.nodes:
            response = httpx.Response(400, text="Public key already in use.")
            asked = httpx.Request("POST", "http://a")
            raise httpx.HTTPStatusError("", request=asked, response=response)
        number = 100 + len(self.nodes)
        self.nodes[key] = SimpleNamespace(public_key=key, node_id=number, status="registered")
        return SimpleNamespace(node_id=number)

    def UnregisterNode(self, request: Any) -> None:  # noqa: N802
        [node] = [node for node in self.nodes.values() if node.node_id == request.node_id]
        node.status = "unregistered"

    def close(self) -> None:
        pass

    def let_in(self) -> set[bytes]:
        """The keys that count."""
        return {key for key, node in self.nodes.items() if node.status != "unregistered"}


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Control:
    control = Control()
    monkeypatch.setattr(programs, "client", lambda *_: control)
    return control


def watch_of(folder: Path) -> FolderWatch:
    access = Access("127.0.0.1:1", folder / "ca.crt", b"")
    return FolderWatch(FlowerCarrier(Federation.load(folder), access))


@pytest.fixture
def registry(folder: Path, control: Control) -> FolderWatch:
    registry = watch_of(folder)
    registry.update()
    return registry


def flower_key(folder: Path, name: str) -> bytes:
    key = read_public_key(folder / "keys" / f"{name}.pub")
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return public_key_to_bytes(key)


def test_the_keys_in_the_folder_are_let_in_and_no_others(folder, control, registry):
    own = {flower_key(folder, name) for name in ("north", "south")}
    assert control.let_in() == own
    assert is_noticed(Federation.load(folder))
    lifecycle.add_sites(folder, ["west"])
    assert not is_noticed(Federation.load(folder))
    foreign = public_key_to_bytes(ec.generate_private_key(ec.SECP384R1()).public_key())
    control.RegisterNode(SimpleNamespace(public_key=foreign))  # by somebody, beside the folder
    registry.update()
    assert is_noticed(Federation.load(folder))
    assert control.let_in() == own | {flower_key(folder, "west")}
    lifecycle.revoke(folder, "west")
    registry.update()
    assert control.let_in() == own
    lifecycle.rotate_key(folder, "west")
    registry.update()
    assert control.let_in() == own | {flower_key(folder, "west")}


def test_both_keys_are_let_in_until_the_new_one_is_used(folder, control, registry):
    """A run that goes on reaches the site by either."""
    old, south = (flower_key(folder, name) for name in ("north", "south"))
    lifecycle.rotate_key(folder, "north")
    registry.update()
    new = flower_key(folder, "north.next")
    assert control.let_in() == {old, new, south}
    numbers = [control.nodes[key].node_id for key in (old, new)]
    assert known_nodes(folder / "flower")["north"] == numbers
    control.nodes[new].status = "online"
    registry.update()  # it is promoted
    registry.update()  # and the old one cut off
    assert control.let_in() == {new, south}
    assert known_nodes(folder / "flower")["north"] == numbers[1:]
    assert not (folder / "keys/north.next.pub").exists()


def test_a_removed_site_stays_until_the_runs_that_ask_it_have_ended(folder, control, registry):
    gone, run = flower_key(folder, "south"), folder / "runs/one"
    run.mkdir(parents=True)
    (run / "job.json").write_text(json.dumps({"sites": ["north", "south"]}))
    Run("one", State.RUNNING).save(run)
    lifecycle.remove_site(folder, "south")
    registry.update()
    assert gone in control.let_in()
    assert known_nodes(folder / "flower")["south"] == [control.nodes[gone].node_id]
    Run("one", State.INTERRUPTED).save(run)
    registry.update()
    assert gone not in control.let_in()


def test_a_key_that_flower_does_not_take_hinders_no_other(folder, control, registry, caplog):
    """Flower never takes a key again that it has unregistered once."""
    control.nodes[flower_key(folder, "north")].status = "unregistered"
    lifecycle.add_sites(folder, ["west"])
    registry.update()
    assert "Flower does not take the key of north: Public key already in use" in caplog.text
    assert flower_key(folder, "west") in control.let_in()


def test_a_folder_that_is_damaged_meanwhile_changes_nothing(folder, control, monkeypatch, caplog):
    monkeypatch.setattr(FolderWatch, "interval", 0.01)
    monkeypatch.setattr(FolderWatch, "again", 0.01)
    with watch_of(folder).kept():
        before = control.let_in()
        toml = (folder / "federation.toml").read_text()
        (folder / "federation.toml").write_text("sites = 3")
        wait_until(lambda: "the sites' keys stay as they are" in caplog.text)
        assert control.let_in() == before
        (folder / "federation.toml").write_text(toml)
        lifecycle.add_sites(folder, ["west"])
        wait_until(lambda: len(control.let_in()) == 3)


# A site whose key changes


def test_a_site_that_runs_takes_its_new_key(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key waits until the coordinator knows it; then the site connects anew."""
    site, known = folder / "sites/north", threading.Event()
    monkeypatch.setattr(member.Credentials, "interval", 0.01)
    monkeypatch.setattr(member.Credentials, "ask", 0.0)
    told = lambda *_: "known" if known.is_set() else "unknown"  # noqa: E731
    monkeypatch.setattr(member.Credentials, "key_status", told)
    make_site_key(site, "state/key")
    new = (site / "state/key.next").read_bytes()
    credentials = member.Credentials(MEMBER, site)
    node = member.Node(None, 1)  # type: ignore[arg-type]
    with credentials.followed(node):
        time.sleep(0.2)
        assert not node.has_ended
        known.set()
        wait_until(lambda: node.has_ended)
    assert (site / "state/key").read_bytes() == new
    assert node.why_ended == "its key, or who vouches for the coordinator, is another"
    credentials.check()


def test_a_site_whose_key_was_revoked_does_not_connect_again(folder, monkeypatch):
    monkeypatch.setattr(member.Credentials, "key_status", lambda *_: "revoked on 2026-11-22")
    credentials = member.Credentials(MEMBER, folder / "sites/north")
    said = "127.0.0.1:1 has ended it: this site's key was revoked on 2026"
    with pytest.raises(InputError, match=said):
        credentials.check()


# The certificate


def shown_at(port: int) -> str:
    return ssl.get_server_certificate(("127.0.0.1", port))


def test_a_server_shows_its_new_certificate_without_a_restart(folder):
    """Files that do not belong together, for a moment or for good, leave it as it is."""
    chain, key = folder / "certificates/server.crt", folder / "certificates/server.key"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    certificates.following(context, chain, key)

    async def shown() -> None:
        server = await asyncio.start_server(lambda _, w: w.close(), "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        first, right = await asyncio.to_thread(shown_at, port), key.read_bytes()
        for wrong in (b"nothing", key.with_name("ca.key").read_bytes()):
            key.write_bytes(wrong)
            for _ in range(2):
                assert await asyncio.to_thread(shown_at, port) == first
        key.write_bytes(right)
        lifecycle.renew(folder, new_key=True)
        while (now := await asyncio.to_thread(shown_at, port)) == first:
            await asyncio.sleep(0.01)
        server.close()
        assert now in chain.read_text()

    asyncio.run(asyncio.wait_for(shown(), 120))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (findings.EXPIRED, "expired, and it is 20"),
        (findings.NOT_YET, "is not valid, and it is 20"),
        (findings.OTHER_NAME, "is not for cluster.example.org: write the address"),
        (findings.OTHER_NUMBER, "is not for cluster.example.org"),
        (20, "is not vouched for by ca.crt: another answers at cluster.example.org:8443"),
    ],
)
def test_a_certificate_that_is_not_believed_is_spoken_of_in_one_line(code, says, monkeypatch):
    monkeypatch.setattr(ssl, "get_server_certificate", lambda *_, **__: "none")
    why = ssl.SSLCertVerificationError()
    why.verify_code = code
    told = findings.distrusted(why, "cluster.example.org:8443", Path("ca.crt"))
    assert says in told
    assert "\n" not in told


@pytest.mark.parametrize(("days", "says"), [(59, "expires on 20"), (61, "")])
def test_a_site_speaks_of_a_certificate_that_ends_soon(days, says, folder, monkeypatch):
    lifecycle.renew(folder, days=days)
    pem = (folder / "certificates/server.crt").read_text()
    monkeypatch.setattr(ssl, "get_server_certificate", lambda *_, **__: pem)
    told = programs.ends_soon("cluster.example.org:8443")
    assert told.startswith("the coordinator's certificate") == bool(says)
    assert says in told
