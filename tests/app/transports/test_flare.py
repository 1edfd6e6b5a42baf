"""FLARE as the carrier, without its processes: locks of kits, the executor and the controller."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from http.client import HTTPSConnection
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from federations import open_to_others
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.fuel.f3.cellnet.identity import CellIdentityResolver
from nvflare.fuel.f3.drivers.aio_context import AioContext
from nvflare.fuel.f3.drivers.aio_http_driver import AioHttpDriver
from nvflare.fuel.hci.client import api as console
from ports import free_port, wait_until
from typed import invoke

from fedcluster.core.files import write_json
from fedcluster.engines.wire import PROTOCOL, about, pack, unpack
from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import fit_of
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.recipes.specifications import RunOptions
from fedcluster_app.coordinator import run_job, runs
from fedcluster_app.coordinator.folder import CANCEL, Federation, create
from fedcluster_app.coordinator.lifecycle import expiry_notice
from fedcluster_app.coordinator.service import FolderWatch, days_of_certificate
from fedcluster_app.site.file import SiteFile
from fedcluster_app.transports.flare import _server as server
from fedcluster_app.transports.flare import _site as member
from fedcluster_app.transports.flare import coordinator as carrying
from fedcluster_app.transports.flare import locks
from fedcluster_app.transports.flare.coordinator import JOB_ID, FlareCarrier, make_kits
from fedcluster_app.transports.flare.locks import TOPIC, write_flare_job
from fedcluster_app.trust.audit_log import has_left, read_log
from fedcluster_app.trust.owned_files import environment, is_running, private_files
from fedcluster_app.wire import exchange
from fedcluster_app.wire.exchange import NoReplyError

SITES = ["north", "south"]
RNG = np.random.default_rng(0)
ROWS = {name: RNG.normal(size=(40, 2)) + 5 * RNG.integers(0, 3, (40, 1)) for name in SITES}


def done(*command: object) -> str:
    status, said = invoke(*command)
    assert status == 0, said
    return said


def refused(*command: object) -> str:
    status, said = invoke(*command)
    assert (status, len(said.splitlines())) == (2, 1), said
    return said


@pytest.fixture(scope="module")
def provisioned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation with kits as `fedcluster flare kit` makes them."""
    folder = tmp_path_factory.mktemp("flare") / "trial"
    make_kits(create(folder, SITES, "127.0.0.1:18443"))
    for name, X in ROWS.items():
        rows = folder / "sites" / name / "rows.csv"
        rows.write_text("x,y\n" + "".join(f"{x!r},{y!r}\n" for x, y in X.tolist()))
        rows.chmod(0o600)
        SiteFile.load(rows.with_name("site.toml")).confirm()
    return folder


@pytest.fixture
def trial(provisioned: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "trial"
    subprocess.run(["cp", "-a", str(provisioned), str(folder)], check=True)
    locks.harden(folder / "flare" / "server")  # its storage is where it is now
    return folder


def kits(folder: Path) -> dict[str, Path]:
    return {"server": folder / "flare" / "server", "site": folder / "sites" / "north" / "flare"}


@pytest.mark.thorough
def test_kits_have_all_locks_and_are_for_their_owner_only(trial):
    for kind, kit in kits(trial).items():
        assert locks.lacking(kit) == []
        assert done("flare", "check", kit) == f"{kit} has all locks of a {kind}.\n"
    assert open_to_others(trial) == []


def test_the_folders_say_how_to_start_flare(trial):
    """And nothing of Flower's programs, which a site would start in vain."""
    texts = [(folder / "README.md").read_text() for folder in (trial, trial / "sites" / "north")]
    assert "fedcluster federation start trial\n" in texts[0]
    assert "fedcluster site start site.toml\n" in texts[1]
    assert "fedcluster[flare]" in texts[1]
    for text in texts:
        assert not any(word in text for word in ("{", "flower"))
        assert "secret" in text.rpartition("\n\n")[2]


def test_a_site_that_is_added_gets_a_kit_of_the_same_authority_or_is_not_added(trial):
    startups = [*trial.rglob("flare/startup/*"), *trial.rglob("server/startup/*")]
    before = {path: path.read_bytes() for path in startups}
    assert len(before) > 20
    done("federation", "add-site", trial, "east")
    kit = trial / "sites" / "east" / "flare"
    assert locks.lacking(kit) == []
    assert "[flare]" in (kit.parent / "README.md").read_text()
    root = certificate(trial, "flare/server", "rootCA.pem")
    own = certificate(trial, "sites/east/flare")
    own.verify_directly_issued_by(root)
    assert "east" in own.subject.rfc4514_string()
    assert certificate(trial, "sites/east/flare", "rootCA.pem") == root
    assert {path: path.read_bytes() for path in before} == before
    state = trial / "flare" / "state"
    assert {"east", *SITES} < json.loads((state / "cert.json").read_text()).keys()
    assert not list(trial.glob(".flare-*"))
    assert open_to_others(trial) == []
    shutil.rmtree(state)
    toml = (trial / "federation.toml").read_bytes()
    said = refused("federation", "add-site", trial, "west")
    assert "FLARE's authority is not in" in said
    assert not (trial / "sites" / "west").exists()
    assert (trial / "federation.toml").read_bytes() == toml


@pytest.mark.parametrize("command", [("rotate-key", "north"), ("add-site", "east")])
def test_flare_makes_the_keys_of_its_kits(command, trial):
    before = {path: path.read_bytes() for path in trial.rglob("*.pub")}
    [verb, name] = command
    said = refused("federation", verb, trial, name, "--public-key", trial / "keys" / "south.pub")
    assert said == "error: FLARE makes the keys of its kits: leave --public-key out\n"
    assert {path: path.read_bytes() for path in trial.rglob("*.pub")} == before


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('bind = "192.0.2.1"', "bind = '192.0.2.1' of {toml}: FLARE listens at 127.0.0.1 only"),
        ('address = "127.0.0.1:18444"', "are for 127.0.0.1:18443, and {toml} says 127.0.0.1:18444"),
    ],
)
def test_what_flare_s_server_would_not_do_is_said_at_its_start(line, told, trial):
    toml = trial / "federation.toml"
    others = [each for each in toml.read_text().splitlines() if each[:7] != line[:7]]
    toml.write_text("\n".join([line, *others]))
    assert told.format(toml=toml) in refused("federation", "start", trial)


ADMIN = f"_admin_{UUID(int=1, version=4)}"
"""FLARE's name of a session of a person."""


class Door:
    """FLARE's server, as the component that lets sites in knows it; kits may be there before."""

    def __init__(self, folder: Path, *early: tuple[Path, str]) -> None:
        self.clients, self.sfm_conns, self.closed = dict[str, Any](), dict[str, Any](), set[str]()
        self.cell = self.core_cell = self.communicator = self.conn_manager = self
        self.server = self.client_manager = self
        self.identity_resolver: Any = CellIdentityResolver("server", {"server": "localhost"})
        self.get_workspace = workspace(folder / "flare" / "server").get_workspace
        for kit, name in early:
            self.connect(kit, name)
        self.component = server.Admission()
        context: Any = SimpleNamespace(get_engine=lambda: self)
        self.component.handle_event(EventType.SYSTEM_BOOTSTRAP, context)

    def get_clients(self) -> dict[str, Any]:
        return self.clients

    def logout_client(self, token: str) -> None:
        del self.clients[token]

    def connect(self, kit: Path, endpoint: str, name: str = "") -> str:
        """Connect by the certificate of a kit; return why not."""
        number = f"CN{len(self.sfm_conns)}"
        certificate = x509.load_pem_x509_certificate((kit / "startup/client.crt").read_bytes())
        shown = SimpleNamespace(getpeercert=lambda _: certificate.public_bytes(Encoding.DER))
        socket = SimpleNamespace(get_extra_info={"ssl_object": shown}.get)
        conn = SimpleNamespace(websocket=socket, close=lambda: self.closed.add(number))
        conn.get_conn_properties = lambda: {"peer_cn": name or endpoint}
        known = SimpleNamespace(endpoint=SimpleNamespace(name=endpoint))
        self.sfm_conns[number] = SimpleNamespace(conn=conn, sfm_endpoint=known)
        try:
            self.identity_resolver.require_match(endpoint, name or endpoint, f"connection {number}")
        except ValueError as error:
            return str(error)
        self.clients[number] = SimpleNamespace(name=name or endpoint)
        return ""


@contextmanager
def listening(trial: Path) -> Iterator[tuple[str, int]]:
    """FLARE's listener for sites behind a door; its host and port."""
    own = trial / "flare" / "server" / "startup"
    files = {"ca_cert": "rootCA.pem", "server_cert": "server.crt", "server_key": "server.key"}
    params: dict[str, Any] = {name: str(own / file) for name, file in files.items()}
    params |= {"host": "127.0.0.1", "port": str(free_port()), "secure": True}
    server.listen_behind_door()
    driver, connector = AioHttpDriver(), SimpleNamespace(params=params)
    thread = threading.Thread(target=driver.listen, args=[connector])
    thread.start()
    wait_until(lambda: driver.site is not None and driver.site._server is not None)  # noqa: SLF001
    yield params["host"], int(params["port"])
    driver.shutdown()
    thread.join(60)
    AioContext.close_global_context()
    assert not thread.is_alive()


@pytest.mark.skipif(sys.platform != "linux", reason="the door serves on Linux")
def test_strangers_leave_flare_its_descriptors_and_a_site_its_connection(trial):
    """FLARE sends by ``select``, which takes no descriptor above 1,023."""
    kit = trial / "sites" / "north" / "flare" / "startup"
    context = ssl.create_default_context(cafile=str(kit / "rootCA.pem"))
    context.check_hostname = False
    context.load_cert_chain(kit / "client.crt", kit / "client.key")
    with listening(trial) as at, ExitStack() as stack:
        site = stack.enter_context(closing(HTTPSConnection(*at, timeout=60, context=context)))
        site.request("GET", "/nothing")
        assert site.getresponse().read()
        connection, before, low = site.sock, *descriptors()
        for _ in range(200):
            stack.enter_context(socket.create_connection(at, 60))
        wait_until(lambda: descriptors()[0] == before + 400)
        assert descriptors()[1] == low + 200  # those of this test, not those of the server
        site.request("GET", "/nothing")
        assert (site.getresponse().status, site.sock) == (404, connection)


def descriptors() -> tuple[int, int]:
    numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    return len(numbers), sum(number < 1024 for number in numbers)


@pytest.mark.thorough
def test_a_revoked_kit_is_cut_off_and_kept_out_until_the_site_has_another(trial, tmp_path):
    door, kit = Door(trial), trial / "sites" / "north" / "flare"
    stolen = Path(shutil.copytree(kit, tmp_path / "stolen"))
    assert [door.connect(kit, "north"), door.connect(kit, "north.job", "north")] == ["", ""]
    assert "requires identity 'south'" in door.connect(kit, "south", "north")
    assert "is not known here" in door.connect(kit, "south")  # a name that no certificate is for
    done("federation", "rotate-key", trial, "north", "--revoke")
    door.component.look()
    assert (door.clients, door.closed) == ({}, {"CN0", "CN1"})
    assert "was revoked on 20" in door.connect(kit, "north")
    assert f"Hand {kit} to north" in done("federation", "rotate-key", trial, "north")
    assert "was revoked on 20" in door.connect(stolen, "north")
    assert "was revoked on 20" in door.connect(stolen, ADMIN, "north")
    assert Door(trial, (stolen, "north"), (kit, "north")).closed == {"CN0"}
    assert door.connect(kit, "north") == ""
    door.component.look()
    assert len(door.clients) == 1
    events = [line["event"] for line in read_log(trial / "audit.jsonl")]
    assert events == ["begun", "key revoked", "key rotated"]


@pytest.mark.thorough
def test_an_old_kit_counts_until_the_new_one_is_used(trial, tmp_path):
    """Also where the new one is not handed over before the next is made."""
    door, kit = Door(trial), trial / "sites" / "north" / "flare"
    old = Path(shutil.copytree(kit, tmp_path / "old"))
    watch, waits = FolderWatch(FlareCarrier(Federation.load(trial))), trial / "keys/north.next.pub"
    for _ in range(2):
        lost = Path(shutil.copytree(kit, tmp_path / "lost", dirs_exist_ok=True))
        done("federation", "rotate-key", trial, "north")
        watch.update()
        assert waits.exists()
    assert "was replaced on 20" in door.connect(lost, "north")
    assert door.connect(old, "north") == door.connect(kit, "north") == ""
    watch.update()
    door.component.look()
    assert door.closed == {"CN1"}
    assert "was replaced on 20" in door.connect(old, "north")
    assert not waits.exists()


def test_a_removed_site_stays_for_the_run_that_asks_it(trial):
    door, run = Door(trial), trial / "runs" / "20260101-000000-aaaa"
    door.connect(trial / "sites" / "north" / "flare", "north")
    with private_files():
        run.mkdir(parents=True)
        write_json(run / "job.json", {"sites": ["north"]})
        runs.Run(run.name, runs.State.RUNNING).save(run)
    done("federation", "remove-site", trial, "north")
    door.component.look()
    assert not door.closed
    runs.Run(run.name, runs.State.DONE).save(run)
    door.component.look()
    assert door.closed == {"CN0"}


def test_flare_s_own_programs_and_persons_have_no_key_of_a_site(trial):
    door, lead = Door(trial), trial / "flare" / "lead"
    assert door.connect(lead, ADMIN, "lead@example.org") == ""
    assert door.connect(lead, "server.job", "localhost") == ""
    assert "requires identity" in door.connect(lead, "server.job", "north")


LEAVES = ("flare/server", "flare/lead", *(f"sites/{name}/flare" for name in SITES))


def certificate(folder: Path, kit: str, name: str = "") -> x509.Certificate:
    own = "server.crt" if kit == "flare/server" else "client.crt"
    return x509.load_pem_x509_certificate((folder / kit / "startup" / (name or own)).read_bytes())


def certificates(folder: Path, name: str = "") -> dict[str, x509.Certificate]:
    return {kit: certificate(folder, kit, name) for kit in LEAVES}


def outside_startup(folder: Path) -> dict[Path, bytes]:
    elsewhere = {"startup", "state", "keys", "certificates"}
    there = [path for path in folder.rglob("*") if path.is_file() and not elsewhere & {*path.parts}]
    return {path: path.read_bytes() for path in there if path.name[:5] not in {".lock", "audit"}}


@pytest.mark.thorough
def test_renewed_kits_are_known_by_the_same_authority(trial):
    """Others that count meanwhile; what a kit holds besides stays, such as the server's jobs."""
    before, roots = certificates(trial), certificates(trial, "rootCA.pem")
    with private_files():
        (trial / "flare" / "server" / "jobs").mkdir()
        (trial / "flare" / "server" / "jobs" / "one").write_text("kept")
    rest = outside_startup(trial)
    of_operators = (trial / "certificates" / "server.crt").read_bytes()
    assert "Its old kit counts until then" in done("federation", "certificate", trial)
    assert (trial / "certificates" / "server.crt").read_bytes() != of_operators
    assert certificates(trial, "rootCA.pem") == roots
    for kit, own in certificates(trial).items():
        own.verify_directly_issued_by(roots[kit])
        assert own.subject == before[kit].subject
        assert own.public_key() != before[kit].public_key()
    assert outside_startup(trial) == rest
    [_, line, *each] = read_log(trial / "audit.jsonl")
    assert (line["event"], line["new_authority"]) == ("certificate renewed", False)
    rotated = [(line["event"], line["member"]) for line in each]
    assert rotated == [("key rotated", name) for name in SITES]
    assert all(locks.lacking(kit) == [] for kit in kits(trial).values())
    assert not list(trial.glob(".flare-*"))
    assert open_to_others(trial) == []
    done("federation", "add-site", trial, "east")
    certificate(trial, "sites/east/flare").verify_directly_issued_by(roots["flare/server"])


def test_after_a_theft_no_kit_counts_that_was_made_before_and_handed_over(trial):
    before, [old, *_] = certificates(trial), certificates(trial, "rootCA.pem").values()
    kit = kits(trial)["site"]
    whole = {path for path in kit.rglob("*") if path.is_file()}
    shutil.rmtree(kit.parent)
    said = done("federation", "certificate", trial, "--new-authority")
    assert "place of its own. Grant permits anew" in said
    [root] = {*certificates(trial, "rootCA.pem").values()}
    assert root != old
    for name, own in certificates(trial).items():
        own.verify_directly_issued_by(root)
        with pytest.raises(InvalidSignature):
            before[name].verify_directly_issued_by(root)
    assert {path for path in kit.rglob("*") if path.is_file()} == whole
    assert [each for each in locks.lacking(kit) if "site.toml" not in each] == []


def that_ends(path: Path, days: float) -> None:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    own = x509.load_pem_x509_certificate(path.read_bytes())
    made = (
        x509.CertificateBuilder()
        .subject_name(own.subject)
        .issuer_name(own.issuer)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(made.public_bytes(Encoding.PEM))


def test_the_end_of_a_kit_is_spoken_of_60_days_ahead(trial, monkeypatch):
    federation, kit = Federation.load(trial), kits(trial)["site"]
    started: list[tuple[Path, bool]] = []

    def execute(*_given):
        started.append((Path.cwd(), is_running(kit.parent)))

    monkeypatch.setattr(os, "execve", execute)
    monkeypatch.chdir(trial)
    assert expiry_notice(federation) == ""
    assert days_of_certificate(federation) == pytest.approx(360, abs=1)
    start = how_to_start("site", trial)
    done(*start)
    for path in (trial / "flare/server/startup/server.crt", kit / "startup" / "client.crt"):
        that_ends(path, 30.5)
    assert "server.crt expires on 20" in expiry_notice(federation)
    assert days_of_certificate(federation) == pytest.approx(30.5, abs=0.1)
    assert "in 30 days: fedcluster federation certificate" in done(*start)
    assert started == [(kit, True)] * 2


def how_to_start(kind: str, folder: Path) -> list[object]:
    site = ["site", "start", kits(folder)["site"].parent / "site.toml"]
    return site if kind == "site" else ["federation", "start", folder]


def test_a_kit_that_has_ended_is_named_as_such(trial):
    kit, lead = kits(trial)["site"], trial / "flare" / "lead" / "startup" / "client.crt"
    start = how_to_start("site", trial)
    that_ends(kit / "startup" / "client.crt", -1)
    assert "client.crt expired on 20" in refused(*start)
    shutil.copy(trial / "sites/south/flare/startup/client.crt", kit / "startup")
    assert "FLARE knows this one as 'south'" in refused(*start)
    that_ends(lead, -1)
    assert f"{lead} expired on 20" in refused("federation", "start", trial)


@pytest.mark.parametrize("kind", ["server", "site"])
def test_a_kit_as_it_is_provisioned_lacks_locks_and_is_not_started(kind, trial):
    """By default a site's log is streamed, its files are shown, and a lead's own code is run."""
    kit = kits(trial)[kind]
    for name in ("resources", "authorization"):
        path = kit / "local" / f"{name}.json"
        path.write_text(path.with_suffix(".json.default").read_text())
    missing = "\n".join(locks.lacking(kit))
    told = ["class_allow_list must be", "lead.byoc must be", "project_admin.byoc must be"]
    told += ["org_admin.shell_commands must be", "must go", "allow_log_streaming"]
    told += ["project_admin.submit_job must be"]
    if kind == "server":
        told += ["heart_beat_timeout must be", "uri_root must be", "root_dir must be"]
    assert [each for each in told if each not in missing] == []
    status, said = invoke("flare", "check", kit, "--json")
    assert (status, json.loads(said)["kind"]) == (1, kind)
    said = refused(*how_to_start(kind, trial))
    assert "lacks a lock" in said
    [how] = re.findall("fedcluster (flare check .* --harden)", said)
    assert done(how) == f"{kit} has all locks of a {kind}.\n"


RESOURCES, RIGHTS = "local/resources.json", "local/authorization.json"
COMM = "local/comm_config.json"


def edit(kit: Path, path: str, place: str, value: Any) -> None:
    """Put a value into a place of a JSON file of a kit, or None to take out what is there."""
    content = inner = json.loads((kit / path).read_text())
    *keys, last = place.split("/")
    for key in keys:
        inner = inner[key]
    if value is None:
        del inner[last]
    elif isinstance(inner, list):
        inner.append(value)
    else:
        inner[last] = value
    (kit / path).write_text(json.dumps(content))


def misplace(kit: Path) -> None:
    for path in (*kit.glob("../site.toml"), *kit.glob("../../federation.toml")):
        path.unlink()


LEAD, MEMBER = "permissions/lead/", "permissions/member"
LOG = {"id": "x", "path": "nvflare.app_common.logging.job_log_streamer.JobLogStreamer"}
INTERNAL = "internal/resources/"
LOOSE: dict[str, tuple[str, str, Any, str]] = {
    "another class": (RESOURCES, "class_allow_list/-", "a.B", "class_allow_list"),
    "own code": (RIGHTS, f"{LEAD}byoc", "any", "lead.byoc must be"),
    "any class": (RESOURCES, "class_allow_list", ["*"], "class_allow_list"),
    "a whole package": (RESOURCES, "class_allow_list", ["fedcluster"], "class_allow_list"),
    "a mode that warns": (RESOURCES, "class_list_enforcement_mode", "warn", 'must be "enforce"'),
    "no mode": (RESOURCES, "class_list_enforcement_mode", None, "enforce"),
    "streams logs": (RESOURCES, "allow_log_streaming", True, "be false"),
    "streams nothing said": (RESOURCES, "allow_log_streaming", None, "be false"),
    "a streamer": (RESOURCES, "components/-", LOG, "components.x must go"),
    "own code of the submitter": (RIGHTS, f"{LEAD}byoc", "n:submitter", "lead.byoc must be"),
    "shell": (RIGHTS, f"{LEAD}shell_commands", None, "lead.shell_commands must be"),
    "a chief": (RIGHTS, "permissions/project_admin", "any", "project_admin.byoc must be"),
    "another role": (RIGHTS, "permissions/guest", {"view": "any"}, "guest.byoc must be"),
    "a role that is left out": (RIGHTS, MEMBER, None, "member.byoc must be"),
    "others submit": (RIGHTS, f"{MEMBER}/submit_job", "any", "member.submit_job must be"),
    "open to the machine": (COMM, f"{INTERNAL}connection_security", "clear", "internal.resources."),
    "open to its network": (COMM, f"{INTERNAL}host", "0.0.0.0", "internal.resources."),
    "connections at will": (COMM, "allow_adhoc_conns", None, "allow_adhoc_con"),
}
WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "no rules of connections": (lambda kit: (kit / COMM).unlink(), "comm_config.json does not"),
    "open": (lambda kit: kit.chmod(0o755), "other users may read or change"),
    "no resources": (lambda kit: (kit / RESOURCES).unlink(), "resources.json does not exist"),
    "no rights": (lambda kit: (kit / RIGHTS).unlink(), "authorization.json does not exist"),
    "no list": (lambda kit: (kit / RESOURCES).write_text("[]"), "must be a table, not []"),
    "no JSON": (lambda kit: (kit / RIGHTS).write_text("{"), "is damaged: "),
    "an open key": (lambda kit: next((kit / "startup").glob("*.key")).chmod(0o640), ".key: chmod"),
    "open rights": (lambda kit: (kit / RIGHTS).chmod(0o604), "authorization.json: chmod"),
    "code of its own": (lambda kit: (kit / "local/custom").mkdir(mode=0o700), "local/custom"),
    "elsewhere": (misplace, "must be the folder flare"),
}


@pytest.mark.parametrize("kind", ["server", "site"])
@pytest.mark.parametrize("what", [*LOOSE, *WRONG])
def test_each_lock_that_is_missing_is_named(kind, what, trial):
    kit = kits(trial)[kind]
    if what in LOOSE:
        path, place, value, told = LOOSE[what]
        edit(kit, path, place, value)
    else:
        change, told = WRONG[what]
        change(kit)
    assert told in "\n".join(locks.lacking(kit))
    with pytest.raises(InputError, match="lacks a lock"):
        locks.check_locks(kit)


@pytest.mark.parametrize("place", ["/tmp", "/tmp/nvflare/jobs"])
def test_a_server_does_not_store_where_all_users_do(place, trial):
    kit = kits(trial)["server"]
    content = json.loads((kit / RESOURCES).read_text())
    [manager] = [each for each in content["components"] if each["id"] == "job_manager"]
    manager["args"]["uri_root"] = place
    (kit / RESOURCES).write_text(json.dumps(content))
    assert f'uri_root must be "{kit}/storage/jobs"' in locks.lacking(kit)[0]


def test_what_is_no_kit_is_said(trial):
    lead = trial / "flare" / "lead"
    given = ["flare", "kit", trial.parent / "a", "--sites", "north,server"]
    assert "FLARE itself has the name 'server'" in refused(*given)
    assert "is no startup kit of FLARE" in refused("flare", "check", trial)
    assert "kit of a person" in refused("flare", "check", lead)
    assert "kit of a person" in refused("flare", "check", lead, "--harden")
    assert f"{trial / 'flare'} exists: the kits exist already" in refused("flare", "kit", trial)
    shutil.rmtree(trial / "flare")
    there = trial / "sites" / "north" / "flare"
    assert f"{there} exists: the kits exist already" in refused("flare", "kit", trial)


def test_a_job_is_three_files_that_name_the_two_classes_that_are_allowed(tmp_path):
    folder = write_flare_job(tmp_path / "job", "one", SITES)
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    config = ["app/config/config_fed_client.json", "app/config/config_fed_server.json"]
    assert files == [*config, "meta.json"]
    client, told, meta = (json.loads((folder / name).read_text()) for name in files)
    assert client["executors"] == [{"tasks": ["none"], "executor": {"path": locks.EXECUTOR}}]
    assert told["workflows"] == [{"id": "run", "path": locks.CONTROLLER, "args": {"run": "one"}}]
    assert meta["deploy_map"] == {"app": ["server", *SITES]}
    assert meta["min_clients"] == 2
    for kind in (member.SiteExecutor, server.RunController):
        assert f"{kind.__module__}.{kind.__name__}" in (locks.EXECUTOR, locks.CONTROLLER)
    assert member.SiteExecutor.__init__.__code__.co_argcount == 1


def workspace(kit: Path) -> Any:
    root = SimpleNamespace(get_root_dir=lambda: str(kit))
    return SimpleNamespace(get_workspace=lambda: root)


class Site:
    def __init__(self, kit: Path, identity: str) -> None:
        self.identity, self.executor = identity, member.SiteExecutor()
        self.handlers: dict[str, Any] = {}
        self.get_workspace = workspace(kit).get_workspace

    def register_aux_message_handler(self, topic, message_handle_func):
        self.handlers[topic] = message_handle_func

    def begin(self) -> None:
        context = SimpleNamespace(get_engine=lambda: self, get_identity_name=lambda: self.identity)
        self.executor.handle_event(EventType.START_RUN, context)

    def ask(self, question: object) -> Shareable:
        return self.handlers[TOPIC](TOPIC, Shareable({"question": question}), FLContext())

    def end(self) -> None:
        self.executor.handle_event(EventType.END_RUN, FLContext())
        self.executor._logs.close()  # noqa: SLF001


class Network:
    """FLARE's server in the process of a job, whose messages go straight to the sites."""

    def __init__(self, folder: Path) -> None:
        self.get_workspace = workspace(folder / "flare" / "server").get_workspace
        self.sites = {name: Site(folder / "sites" / name / "flare", name) for name in SITES}
        self.codes: dict[str, str] = {}
        self.new_context = lambda: nullcontext(FLContext())

    def send_aux_request(self, *, targets, topic, request, timeout, fl_ctx, optional):
        [name] = targets
        if name in self.codes:
            return {name: make_reply(self.codes[name])}
        if topic not in self.sites[name].handlers:
            return {name: make_reply(ReturnCode.TOPIC_UNKNOWN)}
        return {name: self.sites[name].handlers[topic](topic, request, fl_ctx)}

    def carry_out(self, name: str) -> None:
        controller = server.RunController(name)
        context: Any = SimpleNamespace(get_engine=lambda: self, get_job_id=lambda: "job")
        controller.log_info = controller.log_error = lambda *_: None
        controller.start_controller(context)
        controller.control_flow(Signal(), context)


@pytest.fixture
def network(trial, monkeypatch):
    monkeypatch.setattr(server, "RECHECK", 0.02)
    network = Network(trial)
    for site in network.sites.values():
        site.begin()
    yield network
    for site in reversed(network.sites.values()):
        site.end()


def begin(trial: Path, out: Path) -> Path:
    job = fit_of(3, prepare=PreprocessingSpec(missing="mean"))
    federation = Federation.load(trial)
    folder = runs.new_run(federation)
    folder.mkdir(parents=True)
    content = runs.content_of(federation, folder, job, RunOptions(out=out, deadline=900.0))
    write_json(folder / "job.json", {**content, "out": str(out)})
    runs.write_job(folder)
    return folder


def logs(trial: Path) -> list[list[dict[str, Any]]]:
    return [[*read_log(trial / "sites" / name / "logs/audit.jsonl")] for name in SITES]


def test_a_run_over_flare_is_the_same_bits_as_on_one_machine(network, trial, tmp_path):
    folder = begin(trial, tmp_path / "there")
    network.carry_out(folder.name)
    assert run_job.outcome_of(folder)["done"], run_job.outcome_of(folder)
    tomls = [trial / "sites" / name / "site.toml" for name in SITES]
    done("fit", *tomls, "-k", 3, "--out", tmp_path / "here")
    models = [tmp_path / side / "model.json" for side in ("here", "there")]
    here, there = (json.loads(path.read_text()) for path in models)
    assert here.pop("algorithm")["name"] == there.pop("algorithm")["name"]
    assert here == there
    assert all(any(map(has_left, log)) for log in logs(trial))


def test_rows_that_are_stated_while_a_coordinator_runs_count_in_the_next_run(trial, tmp_path):
    (tmp_path / "operator.toml").touch()
    said = refused("federation", "prune", tmp_path, "--keep", 1)
    assert f"{tmp_path} is an operator's: give this" in said
    folder = begin(trial, tmp_path / "out")
    with (trial / "federation.toml").open("a") as toml:
        toml.write("\n[rows]\nnorth = 40\n")
    runs.write_job(folder)
    content = json.loads((folder / "job.json").read_text())
    assert content["rows"] == {"north": 40}
    path = folder / content["first_rows"]
    how = run_job.bounds_of({**content, "first_rows": str(path)}).remedy
    assert f"write into {trial.resolve() / 'federation.toml'}, under" in how


def test_a_run_that_is_handed_in_again_goes_on_from_its_records(network, trial, tmp_path):
    """Whatever FLARE calls the job; and one that has ended is not carried out again."""
    folder = begin(trial, tmp_path / "out")
    network.codes["south"] = ReturnCode.HANDLER_EXCEPTION
    network.carry_out(folder.name)
    told = run_job.outcome_of(folder)["error"]
    assert told.endswith("where 2 are needed (south: FLARE says HANDLER_EXCEPTION)")
    network.codes.clear()
    runs.begin_anew(folder)
    network.carry_out(folder.name)
    assert run_job.outcome_of(folder)["done"]
    before = logs(trial)
    network.carry_out(folder.name)
    assert logs(trial) == before


def test_a_job_can_name_runs_of_the_federation_only(network, trial):
    for name in ("../../etc", "no-such-run", "", "..", "."):
        network.carry_out(name)
    assert not any(has_left(line) for log in logs(trial) for line in log)


def test_a_controller_does_not_start_on_a_kit_that_lacks_a_lock(trial, monkeypatch):
    edit(kits(trial)["server"], RESOURCES, "allow_log_streaming", True)
    told: list[str] = []
    monkeypatch.setattr(server.RunController, "system_panic", lambda self, why, _: told.append(why))
    Network(trial).carry_out("any")
    [why] = told
    assert "allow_log_streaming must be false" in why


def test_a_site_does_not_start_on_a_kit_that_is_another_s_or_lacks_a_lock(trial, caplog):
    """The coordinator is told only that it did not: the reason is in the site's own log."""
    kit = kits(trial)["site"]
    told = [reply_of_a_start(kit, "south")]
    (kit.parent / "site.toml").write_text("name = 4711")
    told.append(reply_of_a_start(kit, "north"))
    edit(kit, RIGHTS, f"{LEAD}byoc", "any")
    told.append(reply_of_a_start(kit, "north"))
    known = {"protocol", "question", "site", *about()}
    for header, site in zip(told, ("south", "north", "north"), strict=True):
        assert (header["site"], header["failed"]) == (site, "InputError")
        assert header.keys() == known | {"failed"}
    log = (kit.parent / "logs" / "site.jsonl").read_text()
    for why in ("FLARE knows this one as 'south'", "lead.byoc must be", "4711"):
        assert why in caplog.text
        assert why in log


def reply_of_a_start(kit: Path, identity: str) -> dict[str, Any]:
    site = Site(kit, identity)
    site.begin()
    header, arrays = unpack(site.ask(pack({"protocol": PROTOCOL}, {}))["reply"])
    site.end()
    assert not arrays
    return header


def test_hostile_bytes_are_refused_and_the_site_lives(network):
    site = network.sites["north"]
    for question in (b"", b"\0" * 100, b"{}", b'{"protocol": 1}\n', b"\xff" * 2000, b"[" * 5000):
        header, arrays = unpack(site.ask(question)["reply"])
        assert "refused" in header
        assert not arrays
    for odd in ("text", None, 7):
        assert site.ask(odd).get_return_code() == ReturnCode.BAD_REQUEST_DATA
    reply = site.executor.execute("train", Shareable(), FLContext(), Signal())
    assert reply.get_return_code() == ReturnCode.TASK_UNSUPPORTED
    good = pack({"protocol": PROTOCOL, "run": "a", "exchange": 0, "tasks": []}, {})
    assert unpack(site.ask(good)["reply"])[0]["site"] == "north"


def test_a_question_that_is_asked_again_meanwhile_is_answered_once():
    executor, free, asked = member.SiteExecutor(), threading.Event(), []
    came: list[bytes] = []

    def reply(question):
        asked.append(question)
        free.wait(60)
        return b"reply"

    def ask():
        request = Shareable({"question": b"?"})
        came.append(executor.answer(TOPIC, request, FLContext())["reply"])

    executor._reply = reply  # noqa: SLF001
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    free.set()
    for thread in threads:
        thread.join()
    assert came == [b"reply"] * 4
    assert 1 <= len(asked) <= 4
    assert executor._working == {}  # noqa: SLF001


@pytest.mark.parametrize(
    ("code", "error", "gone"),
    [
        (ReturnCode.TIMEOUT, TimeoutError, None),
        (ReturnCode.COMMUNICATION_ERROR, NoReplyError, True),
        (ReturnCode.TOPIC_UNKNOWN, NoReplyError, True),
        (ReturnCode.HANDLER_EXCEPTION, NoReplyError, False),
        (ReturnCode.RUN_MISMATCH, NoReplyError, False),
    ],
)
def test_what_flare_says_of_a_site_is_understood(code, error, gone, trial):
    network = Network(trial)
    network.codes["north"] = code
    with pytest.raises(error) as caught:
        server.FlareCaller(network)("north", b"?", 1.0)
    assert getattr(caught.value, "gone", None) is gone


@pytest.mark.parametrize("said", [{}, None])
def test_a_site_that_flare_does_not_know_is_not_connected(said):
    how = {"new_context": lambda: nullcontext(FLContext()), "send_aux_request": lambda **_: said}
    with pytest.raises(NoReplyError, match="not connected"):
        server.FlareCaller(SimpleNamespace(**how))("north", b"?", 1.0)


@pytest.mark.thorough
def test_a_server_that_is_not_there_or_ends_at_its_start_is_said_at_once(trial):
    """FLARE's own session would try for a while, and no command opens one."""
    with pytest.raises(SiteError, match=r"does not answer \(ConnectionRefusedError\)"):
        carrying.open_session(Federation.load(trial))
    for verb, *options in (["show"], ["run", "fit", "-k", 2, "--out", trial / "out"]):
        said = refused("federation", verb, trial, *options)
        assert f"run fedcluster federation start {trial}" in said
    startup = kits(trial)["server"] / "startup" / "fed_server.json"
    startup.write_text(json.dumps({"servers": [{"service": {"scheme": "http"}}]}))
    assert "FLARE's server has ended: " in refused("federation", "start", trial)


def test_what_flare_prints_is_nobody_s_to_read(capsys):
    """Its own progress, and tracebacks of what fails, which fedcluster tells in one line."""
    assert console is carrying.console  # type: ignore[attr-defined]
    console.AdminAPI._print_hci(None, "Connecting to FLARE ...")  # noqa: SLF001
    console.traceback.print_exc()
    assert capsys.readouterr() == ("", "")


def test_the_environment_of_a_program_names_our_python_and_none_of_flare_s_settings(monkeypatch):
    for name in ("NVFL_WORKSPACE", "NVFLARE_X"):
        monkeypatch.setenv(name, "1")
    given = environment("NVFL")
    assert not [name for name in given if name.startswith("NVFL")]
    assert given["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)


def test_a_cancelled_run_ends_over_flare_too(network, trial, tmp_path, monkeypatch):
    monkeypatch.setattr(exchange.RetryingTransport, "poll", 0.01)
    folder = begin(trial, tmp_path / "out")
    (folder / CANCEL).touch()
    network.carry_out(folder.name)
    assert run_job.outcome_of(folder)["error"] == "the run was cancelled"


def test_a_run_whose_job_flare_aborts_says_so(trial, tmp_path):
    """As FLARE does where its process at a site is killed: nobody cancelled the run."""
    folder, aborted = begin(trial, tmp_path / "out"), Signal()
    aborted.trigger("a job's process has ended")
    log = tmp_path / "log.txt"
    assert server.blamed(log, "j-2") == ""
    log.write_text("Failing job j-2 due to reported failure from south: killed\nFailing job j-1")
    said = [server.blamed(log, job) for job in ("j-1", "j-2")]
    assert said == ["", "its process at south failed or was killed"]
    with log.open("a") as more:
        more.write("\nnotified SJ of dead-job: job_id='j-3'; client_name='west'; reason='missing'")
    assert server.blamed(log, "j-3") == "its process at west failed or was killed"
    error = server.run_job(server.FlareCaller(None), folder, aborted, lambda: said[1])
    assert error == f"FLARE aborted the job of the run: {said[1]}"
    assert run_job.outcome_of(folder)["error"] == error


MODULES = {
    "flwr": ("flare", "_site _server coordinator locks node"),
    "nvflare": ("flower", "_transport coordinator _app node _launcher _programs"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("blocked", MODULES)
def test_a_transport_is_imported_without_the_other_s_library(blocked):
    home, names = MODULES[blocked]
    modules = [f"fedcluster_app.transports.{home}.{name}" for name in names.split()]
    code = f"import sys\nsys.modules[{blocked!r}] = None\nimport fedcluster_app.cli, "
    command = [sys.executable, "-W", "ignore", "-c", code + ", ".join(modules)]
    ran = subprocess.run(command, capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()


def test_commands_for_a_federation_of_flare_s_need_no_flower(trial, monkeypatch):
    from fedcluster_app.cli import _screen

    monkeypatch.setattr(_screen, "find_spec", lambda name: name != "flwr" and find_spec(name))
    done("federation", "operator", trial)
    (trial / "flare" / "server" / "startup" / "fed_server.json").unlink()
    assert "is no startup kit of FLARE" in refused("federation", "start", trial)


def test_folders_of_old_jobs_leave_a_kit(trial):
    """The newest stay, the present one among them, and all that is none."""
    kit = kits(trial)["site"]
    before = set(kit.iterdir())
    for i in range(15):
        job = kit / str(UUID(int=i))
        job.mkdir()
        os.utime(job, (i, i))
    member.forget_jobs(kit)
    assert set(kit.iterdir()) - before == {kit / str(UUID(int=i)) for i in range(5, 15)}
    assert before <= set(kit.iterdir())


class Console:
    """FLARE's session, in which sites come after so many looks, and a job is never begun.

    With ``fails``, its next questions fail.
    """

    def __init__(self, *looks: list[str]) -> None:
        self.looks, self.submitted, self.aborted = list(looks), 0, list[str]()
        self.jobs, self.fails = list[dict[str, str]](), list[Exception]()
        self.api = SimpleNamespace(close=lambda: None)
        self.abort_job = self.aborted.append
        self.get_job_meta = lambda job: {"status": "SUBMITTED"}
        self.list_jobs = lambda: self.jobs

    def get_system_info(self) -> Any:
        if self.fails:
            raise self.fails.pop()
        names = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return SimpleNamespace(client_info=[SimpleNamespace(name=name) for name in names])

    def submit_job(self, job: str) -> str:
        self.submitted += 1
        return "job"

    def delete_job(self, job: str) -> None:
        self.jobs = [each for each in self.jobs if each["job_id"] != job]


@pytest.fixture
def awaiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    sites = ("north", "south", "west")
    monkeypatch.setattr(carrying, "SITES_LOOK", 0.01)

    def made(console: Console, **terms: object) -> tuple[FlareCarrier, Path]:
        monkeypatch.setattr(carrying, "open_session", lambda _federation: console)
        content = {"sites": sites, "quorum": None, "deadline": 0.2, **terms}
        (tmp_path / "job.json").write_text(json.dumps(content))
        return FlareCarrier(Federation(tmp_path, "127.0.0.1:1", sites)), tmp_path

    return made


def test_a_site_that_is_absent_at_submission_is_named_at_the_deadline(awaiting) -> None:
    console = Console(["south"])
    carrier, folder = awaiting(console)
    with pytest.raises(SiteError, match=r"^not connected: north, west; 3 sites are needed$"):
        carrier.hand_over(folder)
    assert not console.submitted
    (folder / CANCEL).touch()
    began = time.monotonic()
    carrier, folder = awaiting(console, deadline=600)
    with pytest.raises(SiteError):
        carrier.hand_over(folder)
    assert time.monotonic() - began < 60


def test_a_session_that_flare_has_lost_is_opened_again(awaiting, monkeypatch) -> None:
    """Once for a question: then nobody answers, and the next question opens another."""
    asked, opened = Console(["south"]), list[object]()
    carrier, _ = awaiting(asked)

    def opening(federation: Federation) -> Console:
        opened.append(federation)
        return asked

    monkeypatch.setattr(carrying, "open_session", opening)
    assert carrier.sites_online() == ["south"]
    asked.fails = [RuntimeError("session closed")]
    assert carrier.sites_online() == ["south"]
    assert len(opened) == 2
    asked.fails = [RuntimeError("lost"), RuntimeError("lost")]
    with pytest.raises(SiteError, match=r"FLARE's server does not answer \(RuntimeError\)"):
        carrier.sites_online()
    assert carrier.sites_online() == ["south"]
    assert len(opened) == 4


@pytest.mark.parametrize(
    ("looks", "quorum"),
    [([["south"], ["south", "north"], ["south", "north", "west"]], None), ([["south", "west"]], 2)],
)
def test_a_run_is_submitted_once_enough_sites_are_there(awaiting, looks, quorum) -> None:
    console = Console(*looks)
    carrier, folder = awaiting(console, quorum=quorum, deadline=60)
    console.jobs = [
        {"job_id": str(i), "status": status, "submit_time": f"2026-01-{30 - i}"}
        for i, status in enumerate(["RUNNING", *["FINISHED:COMPLETED"] * 12, "SUBMITTED"])
    ]
    carrier.hand_over(folder)
    assert console.submitted == 1
    assert [job["job_id"] for job in console.jobs] == ["0", *map(str, range(1, 11)), "13"]


def test_a_run_that_flare_does_not_begin_is_aborted_and_says_for_whom(awaiting) -> None:
    console = Console(["north", "south", "west"])
    carrier, folder = awaiting(console)
    carrier.hand_over(folder)
    assert carrier.end(folder) is None
    console.looks = [["north", "west"]]
    assert carrier.end(folder) is None
    os.utime(folder / JOB_ID, (0, 0))
    assert carrier.end(folder) == "not connected: south; 3 sites are needed"
    console.looks = [["north", "south", "west"]]
    assert carrier.end(folder) is None
    assert console.aborted == ["job"]
    (folder / "flare" / "server").mkdir(parents=True)
    told = "job job due to reported failure from west: exception"
    (folder / "flare" / "server" / "log.txt").write_text(told)
    assert carrier.end(folder) == "its process at west failed or was killed"
