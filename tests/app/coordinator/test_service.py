"""The coordinator's queue of runs, and who may ask for what: over no transport."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from operated import FIT, Operated, operated
from ports import wait_until
from typed import invoke

from fedcluster.errors import InputError
from fedcluster_app.coordinator import runs as queues
from fedcluster_app.coordinator import service as services
from fedcluster_app.coordinator.doctor import examined
from fedcluster_app.coordinator.folder import Federation, create
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
from fedcluster_app.trust.audit_log import read_log, verify
from fedcluster_app.trust.owned_files import RUNNING, running

SITES = ["north", "south"]
MODEL = {"centers": [[0.0]]}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues.RunQueue, "interval", 0.01)
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


def test_a_new_federation_has_an_operator_whose_token_run_finds(federation: Federation) -> None:
    """No step more for a trial; the owner may remove it."""
    known = operator_of(federation.folder, own_token(federation.folder))
    assert known is not None
    assert (known.name, known.admin) == ("owner", True)
    remove_operator(federation.folder, "owner")
    assert operator_of(federation.folder, own_token(federation.folder)) is None


def test_a_guess_and_another_federation_s_token_are_none_here(federation, tmp_path) -> None:
    other = create(tmp_path / "other", SITES, "127.0.0.1:8443")
    for token in ("", "x", "fedcluster-", "\udcff", "ä" * 100_000, own_token(other.folder)):
        assert operator_of(federation.folder, token) is None


def test_operators_are_added_listed_and_removed(federation: Federation) -> None:
    folder = federation.folder

    def operator(*arguments: str, status: int = 0) -> str:
        ran = invoke("federation operator", folder, *arguments)
        assert ran[0] == status, ran[1]
        return ran[1]

    token = operator("ada").splitlines()[0]
    assert operator_of(folder, token) == operators(folder)[1]
    for name, reason in {"ada": "has a token", "ADA": "has a token", "../x": "letters"}.items():
        assert reason in operator(name, status=2)
    said = operator("--json")
    assert [each["name"] for each in json.loads(said)["operators"]] == ["owner", "ada"]
    assert operators(folder)[1].digest not in said
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
    monkeypatch.delenv("FEDCLUSTER_TOKEN")
    (federation.folder / TOKEN).unlink()
    with pytest.raises(InputError, match="runs need an operator's token: set FEDCLUSTER_TOKEN"):
        own_token(federation.folder)


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
    coordinator.carrier.why, coordinator.carrier.refuses = None, ""
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
