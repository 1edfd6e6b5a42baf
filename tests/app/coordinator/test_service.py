"""The coordinator's queue of runs, and who may ask for what: over no transport, and over TLS."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from operated import FIT, Operated, ScriptedCarrier, operated
from ports import free_port, wait_until
from typed import invoke

from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import Profile, fit_of
from fedcluster.model.file import FORMAT, FORMAT_VERSION
from fedcluster.recipes.specifications import RunOptions
from fedcluster_app.coordinator import door
from fedcluster_app.coordinator import runs as queues
from fedcluster_app.coordinator import service as services
from fedcluster_app.coordinator.doctor import examined
from fedcluster_app.coordinator.folder import ADDRESS, Federation, create
from fedcluster_app.coordinator.operators import (
    OPERATORS,
    TOKEN,
    add_operator,
    operator_of,
    operators,
    operators_log,
    own_token,
    remove_operator,
)
from fedcluster_app.coordinator.runs import Run, RunQueue, prune
from fedcluster_app.coordinator.service import operated as serving
from fedcluster_app.coordinator.service import served
from fedcluster_app.coordinator.service_client import Coordinator
from fedcluster_app.transports.flower._programs import is_healthy
from fedcluster_app.trust.audit_log import read_log, verify
from fedcluster_app.trust.owned_files import RUNNING, running

SITES = ["north", "south"]
MODEL = {"centers": [[0.0]]}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for waiting in (queues.RunQueue, Coordinator):
        monkeypatch.setattr(waiting, "interval", 0.01)
    monkeypatch.delenv("FEDCLUSTER_TOKEN", raising=False)


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return create(tmp_path / "trial", SITES, "127.0.0.1:8443")


@pytest.fixture
def coordinator(federation: Federation):
    with operated(federation) as coordinator:
        yield coordinator


def events(federation: Federation) -> list[dict]:
    log = read_log(operators_log(federation.folder).path)
    return [line for line in log if line["event"] != "begun"]


# Operators and their tokens


def test_of_a_token_only_a_hash_is_kept(federation: Federation) -> None:
    folder = federation.folder
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    token = add_operator(folder, "ada", admin=False)
    assert re.fullmatch(r"fedcluster-[\w-]{43}", token)
    written = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert not [path for path, content in written.items() if token.encode() in content]
    changed = {path.name for path, content in written.items() if before.get(path) != content}
    assert changed == {OPERATORS, ".lock"}
    known = operator_of(folder, token)
    assert known is not None
    assert (known.name, known.admin) == ("ada", False)
    for name in (OPERATORS, TOKEN):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


def test_a_guess_and_another_federation_s_token_are_none_here(federation, tmp_path) -> None:
    other = create(tmp_path / "other", SITES, "127.0.0.1:8443")
    for token in ("", "x", "fedcluster-", "\udcff", "ä" * 100_000, own_token(other.folder)):
        assert operator_of(federation.folder, token) is None


def test_operators_are_added_listed_and_removed(federation: Federation) -> None:
    """The first is the owner, who may be removed, too."""
    folder = federation.folder

    def operator(*arguments: str, status: int = 0) -> str:
        ran = invoke("federation operator", folder, *arguments)
        assert ran[0] == status, ran[1]
        return ran[1]

    token = operator("ada").splitlines()[0]
    owner, ada = operators(folder)
    assert operator_of(folder, token) == ada
    assert operator_of(folder, own_token(folder)) == owner
    assert (owner.name, owner.admin) == ("owner", True)
    for name, reason in {"ada": "has a token", "ADA": "has a token", "../x": "letters"}.items():
        assert reason in operator(name, status=2)
    said = operator("--json")
    assert [each["name"] for each in json.loads(said)["operators"]] == ["owner", "ada"]
    assert ada.digest not in said
    operator("ada", "--remove")
    assert operator_of(folder, token) is None
    said = operator("ada", "--remove", status=2)
    assert "there is no operator 'ada'; there are: owner" in said
    assert [line["event"] for line in events(federation)] == ["operator added", "operator removed"]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="has no modes of files")
@pytest.mark.parametrize("name", [OPERATORS, TOKEN])
def test_a_file_that_others_may_read_is_refused(name: str, federation: Federation) -> None:
    (federation.folder / name).chmod(0o640)
    with pytest.raises(InputError, match=f"other users of this machine may read .*{name}"):
        Federation.load(federation.folder)
    with pytest.raises(InputError, match="may read"):
        operator_of(federation.folder, own_token(federation.folder))


def test_the_token_of_the_environment_comes_first(federation: Federation, monkeypatch) -> None:
    monkeypatch.setenv("FEDCLUSTER_TOKEN", " mine\n")
    assert own_token(federation.folder) == "mine"


# Who is let in


EVERY = [
    ("GET", "/runs"),
    ("POST", "/runs"),
    ("GET", "/runs/x"),
    ("POST", "/runs/x/cancel"),
    ("POST", "/runs/x/resume"),
    ("POST", "/runs/x/forget"),
    ("GET", "/runs/x/result/model.json"),
    ("GET", "/sites"),
]


@pytest.mark.parametrize(("method", "path"), EVERY)
def test_nothing_is_done_without_a_token(method, path, coordinator: Operated) -> None:
    removed = add_operator(coordinator.federation.folder, "ada", admin=True)
    remove_operator(coordinator.federation.folder, "ada")
    for shown in ("", "Bearer", "Bearer x", f"Basic {removed}", f"Bearer {removed}"):
        answer = coordinator.client.request(method, path, headers={"Authorization": shown})
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert answer.json() == {"error": "no operator has this token"}
    assert coordinator.carrier.begun == []
    refused = [line for line in events(coordinator.federation) if line["event"] == "refused"]
    assert [line["path"] for line in refused] == [path] * 5


def test_every_path_that_is_served_is_tried_without_a_token(coordinator: Operated) -> None:
    """Anybody may ask whether it is there; `test_health` asks for metrics."""
    paths = {getattr(route, "path", "") for route in coordinator.app.routes}
    paths -= {"/health", "/metrics"}
    assert len(paths) == len({path for _, path in EVERY})
    assert coordinator.client.get("/health").json() == {"status": "ok"}


def test_a_damaged_list_of_operators_is_what_operators_are_told(coordinator: Operated) -> None:
    path = coordinator.federation.folder / "operators.json"
    path.write_text(path.read_text()[:-9])
    answer = coordinator.client.get("/runs", headers={"Authorization": "Bearer x"})
    assert answer.status_code == 503
    assert answer.json()["error"].endswith("see fedcluster federation doctor")
    found = {finding.what: finding for finding in examined(coordinator.federation.folder)}
    assert found["operators"].state == "wrong"
    assert "operators.json" in found["operators"].said


def test_many_guesses_do_not_fill_the_log(coordinator: Operated) -> None:
    for _ in range(3 * services.Service.refusals_logged):
        answer = coordinator.client.get("/runs", headers={"Authorization": "Bearer guess"})
        assert answer.status_code == 401
    assert len(events(coordinator.federation)) == services.Service.refusals_logged
    assert coordinator.by().get("/runs") == {"runs": []}  # and shut nobody else out


def test_an_operator_s_runs_are_not_another_s(coordinator: Operated) -> None:
    """Neither to see, cancel, resume, forget nor fetch; an administrator may."""
    tokens = [add_operator(coordinator.federation.folder, name, admin=False) for name in "ab"]
    a, b = (coordinator.by(token) for token in tokens)
    name = a.begin()
    coordinator.carrier.wait_for(name)
    for method, path in EVERY[2:-1]:
        path = path.replace("/x", f"/{name}")
        answer = b.get(path, 403) if method == "GET" else b.post(path, {"site": "north"}, 403)
        assert answer == {"error": f"run '{name}' is a's, not yours"}
    assert a.get(f"/runs/{name}")["state"] == "running"
    coordinator.by().post(f"/runs/{name}/cancel")
    coordinator.carrier.finish(name, "the run was cancelled")
    assert a.wait_until(name, "cancelled")["error"] == "the run was cancelled"
    told = [line for line in events(coordinator.federation) if line["event"] == "cancel"]
    assert [(line["operator"], line["run"]) for line in told] == [("owner", name)]


def test_only_an_administrator_may_ask_for_own_code(coordinator: Operated) -> None:
    ada = coordinator.by(add_operator(coordinator.federation.folder, "ada", admin=False))
    for job, parameters, more in (
        ("fit", {"n_clusters": 2, "algorithm": "antigravity.Mine"}, {}),
        ("fit", {"n_clusters": 2, "prepare": {"then": "antigravity.Mine"}}, {}),
        ("evaluate", {"metrics": ["antigravity.Mine"]}, {"model": MODEL}),
        ("profile", {"algorithms": ["antigravity.Mine"]}, {"model": MODEL}),
    ):
        body = {"job": job, "parameters": parameters, "options": {}, **more}
        assert "may not run code of their own" in ada.post("/runs", body, 400)["error"]
    assert list(coordinator.federation.file("runs").glob("*")) == []


# What a request may hold


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "the job is damaged: KeyError: 'job'"),
        ({**FIT, "job": "os.system"}, "there is no job 'os.system'"),
        ({**FIT, "job": ["fit"]}, "the job is damaged: TypeError"),
        ({**FIT, "parameters": {"no": 1}}, "the job is damaged: TypeError"),
        ({**FIT, "parameters": [1]}, "the job is damaged"),
        ({**FIT, "options": {"quorum": 3}}, "--quorum must be from 1 to 2, not 3"),
        ({**FIT, "options": {"deadline": 0}}, "run.deadline must be above 0 seconds, not 0"),
        ({**FIT, "options": {"permit": "../../x"}}, "does not exist"),
        ({**FIT, "job": "evaluate", "parameters": {"model": "/etc/passwd"}}, "must come with"),
        (
            {**FIT, "job": "evaluate", "model": MODEL, "parameters": {"beside": "/etc/passwd"}},
            "must come with",
        ),
        ({**FIT, "job": "profile", "parameters": {}}, "the job is damaged: TypeError"),
        ({**FIT, "parameters": {"n_clusters": 2, "model": "/etc/passwd"}}, "must come with"),
    ],
)
def test_a_job_that_means_nothing_is_refused(body, reason, coordinator: Operated) -> None:
    assert reason in coordinator.by().post("/runs", body, 400)["error"]
    assert coordinator.by().get("/runs") == {"runs": []}
    assert list(coordinator.federation.file("runs").iterdir()) == []


def test_an_operator_names_no_file_of_the_coordinator(coordinator: Operated, tmp_path) -> None:
    """What a run writes lies in its own folder."""
    owner = coordinator.by()
    there = tmp_path / "there"
    name = owner.begin(out=str(there), options={"out": str(there), "deadline": 5.0})
    coordinator.carrier.wait_for(name)
    folder = coordinator.federation.file("runs", name)
    job = json.loads((folder / "job.json").read_text())
    assert (job["out"], job["deadline"]) == ("result", 5.0)
    model = {**FIT, "job": "profile", "parameters": {"model": "/etc/passwd"}, "model": MODEL}
    second = owner.post("/runs", model, 201)["run"]
    folder = coordinator.federation.file("runs", second)
    given = json.loads((folder / "job.json").read_text())["parameters"]["model"]
    assert given == "model-asked.json"
    assert json.loads((folder / given).read_text()) == MODEL


@pytest.mark.parametrize("name", ["..", "%2e%2e", "..%2f..%2fx", "x/../../y", "a b", "x" * 99])
def test_no_other_path_is_a_run(name: str, coordinator: Operated) -> None:
    for tail in ("", "/result/model.json", "/result/..%2f..%2fjob.json"):
        answer = coordinator.client.get(f"/runs/{name}{tail}", headers=as_owner(coordinator))
        assert answer.status_code in {400, 404}, answer.text


def as_owner(coordinator: Operated) -> dict[str, str]:
    return {"Authorization": f"Bearer {own_token(coordinator.federation.folder)}"}


def carried_out(coordinator: Operated, name: str, *before: str, **how: Any) -> None:
    """Let a run that follows others begin, and end."""
    coordinator.carrier.wait_for(*before, name)
    coordinator.carrier.finish(name, **how)
    coordinator.by().wait_until(name, "done")


def test_only_the_files_of_a_result_are_given(coordinator: Operated) -> None:
    owner = coordinator.by()
    carried_out(coordinator, name := owner.begin(), files={"model.json": '{"k": 2}'})
    assert owner.get(f"/runs/{name}/result/model.json") == {"k": 2}
    for file in ("job.json", "..%2fjob.json", "%2e%2e", ".hidden", "model.json%00"):
        owner.get(f"/runs/{name}/result/{file}", 404)


def test_a_body_is_not_read_before_the_token(coordinator: Operated, monkeypatch) -> None:
    read: list[int] = []

    async def body(request):
        read.append(1)
        return FIT

    monkeypatch.setattr(services, "_body", body)
    assert coordinator.client.post("/runs", content=b"x" * 1000).status_code == 401
    assert read == []


def test_a_body_that_is_large_slow_or_no_json_is_refused(coordinator, monkeypatch) -> None:
    headers = as_owner(coordinator)
    monkeypatch.setattr(services, "LARGEST_REQUEST", 1000)
    deep = b"[" * 900
    for content, status in ((b"x" * 1001, 413), (b"{", 400), (b"[]", 400), (deep, 400)):
        answer = coordinator.client.post("/runs", content=content, headers=headers)
        assert (answer.status_code, "error" in answer.json()) == (status, True)
    monkeypatch.setattr(services, "REQUEST_SECONDS", 0.0)
    answer = coordinator.client.post("/runs", content=b"{}", headers=headers)
    assert answer.status_code == 408
    assert coordinator.carrier.begun == []


# The queue


def test_runs_wait_for_each_other_in_order(coordinator: Operated) -> None:
    owner = coordinator.by()
    names = [owner.begin() for _ in range(3)]
    coordinator.carrier.wait_for(names[0])
    told = [owner.get(f"/runs/{name}") for name in names]
    assert [each["state"] for each in told] == ["running", "queued", "queued"]
    waits = [each["doing"] for each in told[1:]]
    assert waits == ["waiting for 1 other run", "waiting for 2 other runs"]
    for i, name in enumerate(names):
        carried_out(coordinator, name, *names[:i])
    listed = owner.get("/runs")["runs"]
    assert sorted(names) == [each["name"] for each in listed]
    assert {(each["operator"], each["job"]) for each in listed} == {("owner", "fit -k 2")}
    assert all(each["began"] and each["ended"] >= each["began"] for each in listed)


def test_a_run_that_waits_is_cancelled_at_once(coordinator: Operated) -> None:
    owner = coordinator.by()
    first, second = owner.begin(), owner.begin()
    coordinator.carrier.wait_for(first)
    assert owner.post(f"/runs/{second}/cancel")["state"] == "cancelled"
    assert "nothing to cancel" in owner.post(f"/runs/{second}/cancel", status=400)["error"]
    coordinator.carrier.finish(first)
    owner.wait_until(first, "done")
    owner.post(f"/runs/{second}/resume")
    coordinator.carrier.wait_for(first, second)


def test_a_cancelled_run_that_does_not_end_is_stopped(coordinator: Operated, monkeypatch) -> None:
    monkeypatch.setattr(queues.RunQueue, "farewell", 0.01)
    owner = coordinator.by()
    name = owner.begin()
    coordinator.carrier.wait_for(name)
    owner.post(f"/runs/{name}/cancel")
    assert owner.wait_until(name, "cancelled")["error"] == "the run was cancelled"
    assert coordinator.carrier.stopped == [name]


def test_a_run_that_ends_without_a_word_has_failed(coordinator: Operated, monkeypatch) -> None:
    monkeypatch.setattr(queues.RunQueue, "ask", 0.01)
    owner = coordinator.by()
    coordinator.carrier.why = "killed"
    name = owner.begin()
    told = owner.wait_until(name, "interrupted")
    assert told["error"] == "the run has ended without a result: killed"
    assert told["advice"].endswith(f"fedcluster federation run DIR resume {name}")
    coordinator.carrier.refuses = "no room"
    assert owner.wait_until(owner.begin(), "failed")["error"] == "ValueError: no room"
    coordinator.carrier.why = coordinator.carrier.refuses = ""
    owner.post(f"/runs/{name}/resume")
    carried_out(coordinator, name, name)
    assert owner.post(f"/runs/{name}/resume") == {"run": name}
    assert owner.wait_until(name, "done")["rounds"] == 0


def test_a_queue_goes_on_where_a_coordinator_was_killed(federation: Federation) -> None:
    """First the run that it was at, then those that waited, in their order."""
    with operated(federation) as before:
        names = [before.by().begin() for _ in range(3)]
        before.carrier.wait_for(names[0])
    assert Run.load(federation.file("runs", names[0])).state == "running"
    with operated(federation) as after:
        for i, name in enumerate(names):
            carried_out(after, name, *names[:i])


def test_a_run_whose_process_is_killed_is_interrupted_and_holds_nobody_up(coordinator):
    """The next one begins at once, not when the transport misses a sign of life."""
    owner = coordinator.by()
    first, second = owner.begin(), owner.begin()
    coordinator.carrier.wait_for(first)
    folder = coordinator.federation.file("runs", first)
    (folder / RUNNING).touch()  # as before the process has locked it
    time.sleep(3 * queues.RunQueue.interval)
    assert owner.get(f"/runs/{first}")["state"] == "running"
    with running(folder):
        pass
    told = owner.wait_until(first, "interrupted")
    assert told["error"] == "the process of the run was ended"
    assert told["advice"].endswith(f"fedcluster federation run DIR resume {first}")
    coordinator.carrier.wait_for(first, second)
    owner.post(f"/runs/{first}/resume")
    coordinator.carrier.finish(second)
    coordinator.carrier.wait_for(first, second, first)
    coordinator.carrier.finish(first)
    owner.wait_until(first, "done")


@pytest.mark.thorough
@pytest.mark.parametrize("ends", [True, False])
def test_a_run_that_outlives_its_coordinator_is_waited_for(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, *, ends: bool
) -> None:
    """Over FLARE it goes on, and is not asked for twice; over Flower it ends soon."""
    monkeypatch.setattr(queues, "ORPHAN", 0.5 if not ends else 60)
    with operated(federation) as before:
        name = before.by().begin()
        before.carrier.wait_for(name)
    folder = federation.file("runs", name)
    with ExitStack() as process:
        process.enter_context(running(folder))
        with operated(federation) as after:
            owner = after.by()
            time.sleep(1)
            assert after.carrier.begun == []
            if ends:
                process.close()
                after.carrier.wait_for(name)
            after.carrier.finish(name)
            owner.wait_until(name, "done")
    assert after.carrier.begun == [name] * ends


def old_run(federation: Federation, name: str, state: str = "done", **about: Any) -> Path:
    """The folder of a run of an earlier coordinator."""
    folder = federation.file("runs", name)
    folder.mkdir(parents=True)
    (folder / "job.json").write_text("{}")
    if state:
        Run(name, state, "owner", **about).save(folder)
    return folder


def test_what_a_killed_coordinator_left_undone_is_settled(federation: Federation) -> None:
    """A run that had ended, one that was cancelled, one that ends each coordinator, and no run."""
    done, cancelled = (old_run(federation, n, "running", attempts=1) for n in ("done", "cancelled"))
    (done / "outcome.json").write_text('{"done": true}')
    (cancelled / "cancel").touch()
    old_run(federation, "ever", "running", attempts=queues.RunQueue.attempts)
    old_run(federation, "early", "")  # killed between two files
    with operated(federation) as coordinator:
        told = {run["name"]: run for run in coordinator.by().get("/runs")["runs"]}
    states = {"done": "done", "cancelled": "cancelled"}
    states |= {"ever": "interrupted", "early": "interrupted"}
    assert {name: run["state"] for name, run in told.items()} == states
    assert told["ever"]["error"] == "the coordinator ended 3 times during the run"
    assert coordinator.carrier.begun == []


def test_the_newest_ended_runs_alone_stay(federation: Federation, monkeypatch) -> None:
    monkeypatch.setattr(RunQueue, "kept", 2)
    for i in range(4):
        folder = old_run(federation, f"19991231-00000{i}-aaaa")
        (folder / "outcome.json").write_text('{"done": true}')
    with operated(federation) as coordinator:
        name = coordinator.by().begin()
        coordinator.carrier.wait_for(name)
        coordinator.carrier.finish(name)
        wait_until(lambda: len(queues.runs(federation)) == 2)
    assert [run.name for run in queues.runs(federation)] == ["19991231-000003-aaaa", name]


def test_records_of_ended_runs_are_pruned_and_results_stay(federation: Federation) -> None:
    ended = {"a": "2026-01-01", "b": "2026-02-01", "c": "2999-01-01", "going": ""}
    for name, when in ended.items():
        folder = old_run(federation, name, "done" if when else "running", ended=when)
        (folder / "communication_rounds").mkdir()
        (folder / "communication_rounds" / "exchange-0000").touch()
        (folder / "result").mkdir()
    assert prune(federation, keep=3) == []
    assert prune(federation, keep=1, older_than=timedelta(days=1)) == ["a", "b"]
    assert prune(federation, older_than=timedelta(days=1)) == []
    status, said = invoke("federation", "prune", federation.folder, "--keep", 0)
    assert (status, "the records of 1 run." in said) == (0, True), said
    assert (federation.file("runs", "going", "communication_rounds")).is_dir()
    for name in "abc":
        folder = federation.file("runs", name)
        assert (folder / "result").is_dir()
        assert Run.load(folder).rounds == 1
    status, said = invoke("federation", "prune", federation.folder)
    assert (status, "--older-than DAYS, --keep N" in said) == (2, True)


# The log


def test_the_log_tells_who_asked_for_what(coordinator: Operated) -> None:
    owner = coordinator.by()
    name = owner.begin(options={"columns": ["age"]})
    folder = coordinator.federation.folder
    status, said = invoke("federation", "log", folder)
    assert (status, "lines in 1 file." in said) == (0, True), said
    [line] = [line for line in said.splitlines() if " run " in line]
    for told in ("operator=owner", f"run={name}", "job=fit", "from=127.0.0.1", "columns=['age']"):
        assert told in line, line
    assert own_token(folder) not in said
    path = operators_log(folder).path
    path.write_bytes(path.read_bytes().replace(b'"owner"', b'"nobody"', 1))
    status, said = invoke("federation", "log", folder)
    assert (status, "was changed" in said) == (2, True)
    with pytest.raises(InputError, match="was changed"):
        verify(path)


# Over TLS, by the client of the command line


@contextmanager
def scripted(folder: Path, **how: Any) -> Iterator[ScriptedCarrier]:
    federation = create(folder, SITES, "localhost:8443", **how)
    carrier = ScriptedCarrier(federation)
    with serving(carrier):
        yield carrier


@pytest.fixture
def carrier(tmp_path: Path) -> Iterator[ScriptedCarrier]:
    with scripted(tmp_path / "trial") as carrier:
        yield carrier


@pytest.mark.parametrize(("error", "why"), [(KeyboardInterrupt, "asked to"), (OSError, "OSError")])
def test_connections_and_each_end_are_logged(tmp_path, monkeypatch, error, why) -> None:
    monkeypatch.setattr("fedcluster_app.coordinator.service.Health.connected_for", 0.01)
    log = operators_log(tmp_path / "trial").path
    with pytest.raises(error), scripted(tmp_path / "trial") as carrier:
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
    with scripted(tmp_path / "trial") as carrier:
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
def test_why_a_coordinator_does_not_answer_is_told(answer, said, federation, monkeypatch) -> None:
    """One that is busy is not said to have gone."""
    monkeypatch.setattr(Coordinator, "patience", 0.3)
    with answering(answer) as address:
        federation.file(ADDRESS).write_text(json.dumps({"address": address}))
        status, printed = invoke("federation", "show", federation.folder)
        assert (status, f"the coordinator at {address} {said}" in printed) == (2, True), printed
        if answer == b"":
            assert not is_healthy(address, federation.authority)  # a site waits for it


def with_status(status: int) -> Any:
    """An app that answers all alike."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"full"})

    return app


def test_an_answer_that_is_an_error_is_told(federation: Federation) -> None:
    with served(federation, with_status(500)):
        status, printed = invoke("federation", "show", federation.folder)
    assert (status, "the coordinator answers 500; see its log" in printed) == (2, True), printed


def test_a_coordinator_of_other_certificates_or_encryption_is_refused(federation, tmp_path) -> None:
    """As soon as it answers, and not after waiting for another; at a free port nobody does."""
    own = federation.authority
    assert not is_healthy(f"127.0.0.1:{free_port()}", own)
    with served(federation, with_status(200)) as address:
        assert is_healthy(address, own)
        other = create(tmp_path / "other", SITES, "127.0.0.1:8443").authority
        with pytest.raises(InputError, match=r"certificate is not vouched for by .*other"):
            is_healthy(address, other)
    plain = "the coordinator at .* does not encrypt"
    with answering(b"HTTP/1.1 200 OK\r\n\r\n") as address, pytest.raises(InputError, match=plain):
        is_healthy(address, own)


@contextmanager
def connected(carrier: ScriptedCarrier) -> Iterator[socket.socket]:
    """A connection to the interface, not encrypted yet."""
    host, _, port = Coordinator.at(carrier.federation.folder).address.rpartition(":")
    with socket.create_connection((host, int(port)), 60) as plain:
        yield plain


@pytest.mark.thorough
def test_who_sends_no_request_is_cut_off(tmp_path: Path, monkeypatch) -> None:
    """Nor does half a head, or half of a second one, hold a connection."""
    monkeypatch.setattr(door.Door, "silence", 0.2)
    with scripted(tmp_path / "trial") as carrier:
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
    with serving(carrier):
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
    with pytest.raises(InputError, match="cannot be listened at"), serving(carrier):
        pass
