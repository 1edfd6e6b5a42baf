"""What is examined at a site, or a coordinator, that does not work."""

import json
import os
import re
import shutil
import socket
import sqlite3
import ssl
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from operated import ScriptedCarrier
from strangers import NOBODY
from test_site_worker import question
from typed import invoke

from fedcluster.algorithms import Lloyd
from fedcluster.core import State, Task
from fedcluster.core.files import write_json
from fedcluster.engines.wire import unpack
from fedcluster.errors import InputError
from fedcluster_app.coordinator.certificates import Authority
from fedcluster_app.coordinator.doctor import examined
from fedcluster_app.coordinator.door import Door
from fedcluster_app.coordinator.folder import FIRST_ROWS, Federation
from fedcluster_app.coordinator.lifecycle import check_start
from fedcluster_app.coordinator.operators import TOKEN
from fedcluster_app.coordinator.service import operated
from fedcluster_app.coordinator.service_client import Coordinator
from fedcluster_app.site import doctor
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.logs import logged
from fedcluster_app.site.membership import Membership
from fedcluster_app.transports.flower.coordinator import check_state
from fedcluster_app.transports.reloading import ReloadingSite, check_files
from fedcluster_app.transports.reloading import check_start as check_site
from fedcluster_app.trust.findings import Finding
from fedcluster_app.trust.owned_files import running


@contextmanager
def coordinator(site: Path) -> Iterator[int]:
    """A server that accepts connections as a coordinator does, and sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        certificates = site.parents[1] / "certificates"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "server.crt", certificates / "server.key")

        def serve() -> None:
            with suppress(OSError):
                while True:
                    line, _ = server.accept()
                    with line, suppress(OSError):
                        context.wrap_socket(line, server_side=True).close()

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The folder of a site of a federation, with rows that only their owner may read."""
    status, said = invoke("federation", "new", tmp_path / "trial", "--sites", "north,south")
    assert status == 0, said
    folder = tmp_path / "trial" / "sites" / "north"
    rows = folder / "rows.csv"
    rows.write_text("age,bmi\n" + "".join(f"{i}.125,{i % 7}\n" for i in range(90)))
    rows.chmod(0o600)
    SiteFile.load(folder / "site.toml").confirm()
    return folder


def examine(folder: Path, port: int = 0) -> tuple[int, dict[str, Any], str]:
    """The exit status, the findings by what was examined, and all that is printed."""
    toml = folder / "site.toml"
    if port:
        toml.write_text(toml.read_text().replace(":8443", f":{port}"))
    return findings("site", toml)


def findings(of: str, path: Path) -> tuple[int, dict[str, Any], str]:
    status, said = invoke(of, "doctor", path, "--json")
    found = {each["what"]: (each["state"], each["said"]) for each in json.loads(said)["findings"]}
    return status, found, said


def test_a_site_that_works_is_good_and_no_value_is_told(site: Path, monkeypatch) -> None:
    here = site / "compiled"
    monkeypatch.setattr(doctor, "compiled_mark", lambda: here)
    with coordinator(site) as port:
        status, found, said = examine(site, port)
        assert (status, found["kernels"][0]) == (0, "doubtful")
        here.touch(0o600)
        status, found, said = examine(site)
    assert (status, {state for state, _ in found.values()}) == (0, {"good"})
    assert found["rows"][1] == "90 rows, 2 columns; 90 rows in groups"
    assert re.match(r"Python \S+, fedcluster ", found["versions"][1])
    assert f"flwr {version('flwr')}" in found["versions"][1]
    assert "is reached; its certificate is valid for 18" in found["coordinator"][1]
    assert not [i for i in range(90) if f"{i}.125" in said]
    assert not list(site.rglob("audit*"))


def test_what_is_wrong_is_named_with_what_to_do(site: Path, monkeypatch) -> None:
    with coordinator(site) as port:
        pass  # nobody listens there any more
    status, found, _ = examine(site, port)
    assert (status, found["coordinator"][0]) == (1, "wrong")
    assert "cannot be reached (Connection refused)" in found["coordinator"][1]
    (site / "state/key").chmod(0o640)
    (site / "rows.csv").write_text("age,bmi,crp\n1,2,3\n3,4,3\n")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**8))
    status, found, said = examine(site)
    assert found["modes"] == ("doubtful", f"others may use state/key: chmod -R go= {site}")
    assert found["rows"] == ("wrong", "2 rows, 3 columns; with fewer than 20 nothing is sent")
    advice = "columns crp are not used: fedcluster check lets their names leave"
    assert found["names"] == ("doubtful", advice)
    (site / "rows.csv").write_text("age,crp\n1,2\n3,4\n")
    gone = "has no column 'bmi'; it has age, crp: run fedcluster check site.toml"
    assert gone in examine(site)[1]["names"][1]
    (site / "state/site.columns").unlink()
    assert examine(site)[1]["names"][0] == "wrong"
    assert found["disk"] == ("doubtful", "0.1 GB free: make room")
    assert json.loads(said)["wrong"] == ["rows", "coordinator", "start"]  # the key is readable
    (site / "rows.csv").unlink()
    assert "does not exist" in examine(site)[1]["rows"][1]
    (site / "site.toml").write_text("name = 3")
    status, found, _ = examine(site)
    assert (status, found["site file"][0], list(found)) == (1, "wrong", ["versions", "site file"])


def test_rows_that_are_in_no_group_are_not_good(site: Path) -> None:
    file = SiteFile.load(site / "site.toml")
    assert file.grouped_client().data.n_rows == 90
    rows, groups = site / "rows.csv", file.groups_file.read_bytes()
    lines = rows.read_text().splitlines()
    rows.write_text("\n".join(lines[:21]))
    state, said = examine(site)[1]["rows"]
    assert (state, "only 20 of 90 rows that were grouped are there" in said) == ("wrong", True)
    changed = [line + ".5" * (i % 3 == 1) for i, line in enumerate(lines)]
    rows.write_text("\n".join(changed))
    state, said = examine(site)[1]["rows"]
    assert state in {"doubtful", "wrong"}  # hardly a group has none of every third row
    assert said.startswith("90 rows, 2 columns; ")
    assert file.groups_file.read_bytes() == groups
    rows.write_text("\n".join(lines))
    status, printed = invoke("check", site / "site.toml")
    assert status == 0
    assert re.search("single values that follow from all that was told +0", printed)


def certificate_of(folder: Path, days: int) -> None:
    """Sign another certificate for the coordinator of a federation, as its authority does."""
    key, pem, own = ((folder / name).read_bytes() for name in ("ca.key", "ca.crt", "server.key"))
    server: Any = load_pem_private_key(own, None)
    signed = Authority.read(key, pem).sign(["127.0.0.1"], server.public_key(), days)
    (folder / "server.crt").write_bytes(signed)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("days", "state", "said"),
    [
        (9, "doubtful", "its certificate is valid for 8 days"),
        (0, "wrong", "by this machine's clock: the coordinator renews it"),
    ],
)
def test_a_certificate_that_ends_is_noticed_before(site: Path, days: int, state, said) -> None:
    certificate_of(site.parents[1] / "certificates", days)
    time.sleep(1.1)  # certificates count whole seconds
    with coordinator(site) as port:
        _, found, _ = examine(site, port)
    assert (found["coordinator"][0], said in found["coordinator"][1]) == (state, True)


def test_who_vouches_for_the_coordinator_is_known_by_the_site_or_by_its_kit(site: Path) -> None:
    """Over FLARE, the locks of the kit are looked at, too."""
    known = (site / "state/ca.crt").read_bytes()
    (site / "state/ca.crt").write_bytes(Authority.make().pem)
    with coordinator(site) as port:
        status, found, _ = examine(site, port)
        assert (status, found["coordinator"][0]) == (1, "wrong")
        assert "is not vouched for by" in found["coordinator"][1]
        assert "the site's folder is of another federation" in found["coordinator"][1]
        (startup := site / "flare" / "startup").mkdir(mode=0o700, parents=True)
        (startup / "rootCA.pem").write_bytes(known)
        status, found, _ = examine(site)
    assert (status, found["coordinator"][0], found["start"][0]) == (1, "good", "wrong")
    assert "is no startup kit of FLARE" in found["start"][1]


@pytest.mark.parametrize(
    ("told", "key", "release"),
    [
        ({"status": "known", "version": version("fedcluster")}, "good", "good"),
        ({"status": "revoked on 2026-11-22", "version": "0.0.1"}, "wrong", "doubtful"),
        ({"status": "unknown", "version": ""}, "wrong", None),
        ({"status": "not looked at, as the clock says 2026-11-22 10:00 UTC"}, None, None),
    ],
)
def test_what_the_coordinator_says_of_the_key_and_of_its_version(told, key, release, site):
    found = {each.what: each for each in doctor.examined(site / "site.toml", told=told)}
    states = [found[what].state if what in found else None for what in ("key", "its version")]
    assert states == [key, release]
    assert ("clock" in found) == ("clock" in told.get("status", ""))
    if release == "doubtful":
        assert found["its version"].said.endswith("sites are updated first, then it")


def examine_federation(folder: Path) -> tuple[int, dict[str, Any]]:
    return findings("federation", folder)[:2]


def test_a_coordinator_is_examined_whether_it_runs_or_not(site: Path) -> None:
    """Nothing in its folder changes by that."""
    folder = site.parents[1]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    status, found = examine_federation(folder)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    states = {what: state for what, (state, _) in found.items() if what != "disk"}
    assert (status, states.pop("coordinator"), set(states.values())) == (0, "doubtful", {"good"})
    assert f"fedcluster federation start {folder}" in found["coordinator"][1]
    with coordinator(site) as port, running(folder):
        toml = folder / "federation.toml"
        toml.write_text(toml.read_text().replace(":8443", f":{port}"))
        said = examine_federation(folder)[1]["coordinator"][1]
    assert "is reached; its certificate is valid" in said


def test_sites_that_are_not_connected_are_named(site: Path, monkeypatch) -> None:
    told = {name: {"connected": True} for name in ("north", "south")}
    monkeypatch.setattr(Coordinator, "answers", lambda _: True)
    monkeypatch.setattr(Coordinator, "get", lambda _, path: {"sites": told})
    assert examine_federation(site.parents[1])[1]["sites"] == ("good", "all are connected")
    told["south"]["connected"] = False
    found = examine_federation(site.parents[1])[1]["sites"]
    assert found == ("doubtful", "not connected: south")


def test_what_a_coordinator_lacks_is_named_with_what_to_do(site: Path) -> None:
    folder = site.parents[1]
    status, said = invoke("federation", "rotate-key", folder, "north", "--revoke")
    assert status == 0, said
    certificate_of(folder / "certificates", 9)
    run = folder / "runs" / "a-run"
    run.mkdir(parents=True)
    (run / "job.json").write_text("{}")
    log = folder / "audit.jsonl"
    log.write_text(log.read_text().replace("key revoked", "key rotated"))
    status, found = examine_federation(folder)
    assert (status, found["log"][0]) == (1, "wrong")
    assert found["keys"] == ("doubtful", "north: not let in before rotate-key, or remove-site")
    assert found["certificate"][0] == "doubtful"
    assert "fedcluster federation certificate" in found["certificate"][1]
    assert found["runs"][1].endswith(f"run {folder} resume a-run")
    (folder / "federation.toml").unlink()
    status, found = examine_federation(folder)
    assert (status, list(found)) == (1, ["versions", "folder"])


def test_what_may_soon_be_wrong_at_a_coordinator_is_doubtful(site: Path, monkeypatch) -> None:
    folder = site.parents[1]
    (folder / TOKEN).write_bytes(b"\xff")
    write_json(folder / FIRST_ROWS, {"north": 0.0})
    monkeypatch.setattr(Door, "most", 1 << 40)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    doubts = examine_federation(folder)[1]
    assert doubts["operators"][1].startswith(f"{folder / TOKEN} is no operator's token")
    assert doubts["rows"][1] == "north told of no row: see fedcluster site doctor there"
    assert doubts["descriptors"][1].endswith("raise LimitNOFILE of its unit, or ulimit -Hn")
    assert doubts["growth"][1].endswith(f"prune {folder} removes records of runs")
    lacking = ("operators", "rows", "descriptors", "growth", "disk")
    assert {doubts[what][0] for what in lacking} == {"doubtful"}


def test_the_doctor_finds_addresses_that_a_start_cannot_listen_at(site: Path) -> None:
    folder = site.parents[1]
    toml = folder / "federation.toml"
    with socket.create_server(("127.0.0.1", Federation.load(folder).port)):
        found = examine_federation(folder)[1]
    assert found["transport"][0] == "wrong"
    assert "cannot be listened at: Address already in use; end the program" in found["transport"][1]
    said = re.sub("(?m)^service = .*", "", toml.read_text())
    toml.write_text(f'service = "nowhere"\n{said}')
    service = examine_federation(folder)[1]["service"]
    assert service[0] == "wrong"
    assert service[1].startswith("service = 'nowhere' of federation.toml cannot be listened at")


def examined_site(folder: Path) -> list[Finding]:
    return list(doctor.examined(folder / "site.toml", check_start=check_site))


def examined_coordinator(folder: Path) -> list[Finding]:
    return list(examined(folder, check_transport=check_state))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "other": lambda path: path.write_bytes(b"?" + path.read_bytes()[1:]),
}


def bytes_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def damaged(
    folder: Path, names: Iterable[str], find: Callable[[Path], Iterable[Finding]]
) -> Iterator[tuple[str, str, Path, dict[str, str]]]:
    """Damage each file in four ways, in a copy: what, how, where, and what is found wrong then.

    The doctor changes nothing.
    """
    work = folder.parent / "work"
    for name, (damage, harm) in product(names, DAMAGES.items()):
        shutil.rmtree(work, ignore_errors=True)
        harm(shutil.copytree(folder, work) / name)
        before = bytes_of(work)
        found = list(find(work))
        assert before.items() <= bytes_of(work).items(), (name, damage)
        yield name, damage, work, {each.what: each.said for each in found if each.state == "wrong"}


REFUSED = {name: {*DAMAGES} for name in ("audit.head", "audit.jsonl", "federation.toml")}
REFUSED |= {f"certificates/{name}": {*DAMAGES} for name in ("ca.crt", "server.crt", "server.key")}
MAY_BE_GONE = ("former.json", "north.next.pub", "north.pub")
REFUSED |= {f"keys/{name}": {*DAMAGES} - {"gone"} for name in MAY_BE_GONE}
REFUSED |= {name: {*DAMAGES} - {"gone"} for name in (FIRST_ROWS, "operators.json")}
REFUSED["flower/state.db"] = {"cut", "other"}
"""What a start of a coordinator refuses; the other files are not read, or may be empty."""


def refusal_of_a_start(path: Path) -> str:
    """What the program of a site says before it connects; nothing if it would connect."""
    try:
        check_files(path, Membership.from_site_file(SiteFile.load(path)))
        ReloadingSite(path, list[str]().append).end("the test is over")
    except InputError as error:
        return str(error)
    return ""


@pytest.fixture
def used(site: Path, tmp_path: Path) -> Path:
    """The folder of a site that has answered, which a test may damage and copy anew."""
    started = ReloadingSite(site / "site.toml", list[str]().append)
    asked = question(Task(Lloyd(), State.at(np.zeros((2, 2)))), columns=["age", "bmi"])
    header, _ = unpack(started.reply(asked))
    assert not {"refused", "failed"} & header.keys(), header
    started.end("one answer is enough")
    return shutil.copytree(site, tmp_path / "used")


@pytest.mark.thorough
@pytest.mark.usefixtures("short_searches")
def test_the_doctor_finds_what_a_start_refuses(used: Path) -> None:
    """Each file that the site keeps is damaged in four ways, after a first answer."""
    kept = bytes_of(used)
    assert {"logs/audit.jsonl", "logs/audit.head", "state/site.db", "state/key"} <= {*kept}
    refused = 0
    for name, damage, work, wrong in damaged(used, kept, examined_site):
        said = refusal_of_a_start(work / "site.toml")
        refused += bool(said)
        wrong.pop("coordinator", "")  # nobody listens there
        if "rows" in wrong:  # are read at the first question
            continue
        assert bool(said) == bool(wrong), (name, damage, said, wrong)
        told = name == "logs/audit.jsonl" or not said or said in wrong.values()
        assert told, (name, damage, said, wrong)
    assert refused >= 12


def refusal_of_a_coordinator(folder: Path) -> str:
    """What a start says; nothing if it starts, over a scripted transport, and is reached."""
    try:
        federation = Federation.load(folder)
        check_start(federation)
        check_state(federation)
        with operated(ScriptedCarrier(federation)):
            assert Coordinator.at(folder).answers()
    except InputError as error:
        return str(error)
    return ""


@pytest.fixture
def led(site: Path) -> Path:
    """The folder of a coordinator that was started, and whose sites' keys have changed."""
    folder = site.parents[1]
    for how in (["north"], ["south", "--revoke"]):
        status, said = invoke("federation", "rotate-key", folder, *how)
        assert status == 0, said
    assert not refusal_of_a_coordinator(folder)
    write_json(folder / FIRST_ROWS, {"north": 40, "south": 0})
    (folder / "flower").mkdir()
    with closing(sqlite3.connect(folder / "flower/state.db")) as database:
        database.execute("CREATE TABLE node (name)")
        database.executemany("INSERT INTO node VALUES (?)", [["x" * 999]] * 99)
        database.commit()
    for path in folder.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)
    return folder


@pytest.mark.thorough
def test_the_doctor_of_a_coordinator_finds_what_its_start_refuses(led: Path) -> None:
    """Each file of its folder is damaged in four ways; those of sites are theirs."""
    kept = {name for name in bytes_of(led) if not name.startswith("sites/")}
    assert kept >= {*REFUSED, "keys/north.next.pub"}
    refused = dict[str, set[str]]()
    for name, damage, work, wrong in damaged(led, sorted(kept), examined_coordinator):
        said = refusal_of_a_coordinator(work)
        assert said in ([*wrong.values()] or [""]), (name, damage, said, wrong)
        if said:
            refused.setdefault(name, set()).add(damage)
    assert refused == REFUSED


@contextmanager
def unwritable(folder: Path, name: str) -> Iterator[Path]:
    """A copy of a folder that belongs to this user, who is not root here, and may not write one."""
    # a folder that each user of the machine may enter, and this one may fill
    where = Path(os.sep, "tmp")
    with TemporaryDirectory(dir=where) as place, patch.object(tempfile, "tempdir", place):
        Path(place).chmod(0o755)
        copy = shutil.copytree(folder, Path(place) / "copy")
        path, before = copy / name, os.geteuid()
        path.chmod(path.stat().st_mode & ~0o222)
        if before == 0:  # who may write everywhere
            for each in (Path(place), copy, *copy.rglob("*")):
                os.chown(each, NOBODY, -1)
        os.seteuid(before or NOBODY)
        try:
            yield copy
        finally:
            os.seteuid(before)
            path.chmod(path.stat().st_mode | 0o700)


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize("name", ["", "logs", "state", "state/site.db", "logs/audit.jsonl"])
def test_the_doctor_finds_what_a_site_cannot_write(used, name, monkeypatch) -> None:
    monkeypatch.setattr(doctor, "compiled_mark", Path)
    assert not refusal_of_a_start(used / "site.toml")
    examined_site(used)  # imports what it needs
    with unwritable(used, name) as work:
        said = refusal_of_a_start(work / "site.toml")
        found = examined_site(work)
    path = work / name
    assert said == f"{path} cannot be written: chmod u+w {path}, unless its disk is read-only"
    assert said in [each.said for each in found if each.state == "wrong"]


@pytest.mark.parametrize("name", ["", "flower", "audit.jsonl", "flower/state.db"])
def test_the_doctor_finds_what_a_coordinator_cannot_write(led, name) -> None:
    with unwritable(led, name) as work:
        said = refusal_of_a_coordinator(work)
        with pytest.raises(InputError) as raised, logged(work / "logs" / "a.jsonl", printed=False):
            pytest.fail("the log was begun")
        found = examined_coordinator(work)
    path = work / name
    assert said == f"{path} cannot be written: chmod u+w {path}, unless its disk is read-only"
    assert [each.said for each in found if each.what == "folder"] == [said] == [*raised.value.args]


@pytest.mark.usefixtures("short_searches")
def test_the_doctor_begins_no_log_in_place_of_one_that_was_archived(used: Path) -> None:
    for path in (used / "logs").glob("audit.*"):
        path.unlink()
    before = {each: each.stat().st_mtime_ns for each in used.rglob("*")}
    found = {each.what: each for each in examined_site(used)}
    assert {each: each.stat().st_mtime_ns for each in used.rglob("*")} == before
    assert found["start"].state == "good"
