"""A relay as a site of a federation: its sites are those of another one, below."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grids import KNOWN
from operated import operated
from test_site_worker import question

from fedcluster.algorithms import FKM, Lloyd
from fedcluster.coordinator import relay_site
from fedcluster.coordinator import run_job as relaying
from fedcluster.coordinator.folder import CANCEL, Federation, create
from fedcluster.coordinator.operators import add_operator
from fedcluster.coordinator.relay_site import RelayedRuns, answering
from fedcluster.core import Column, Data, State, Task
from fedcluster.engines.client import Client
from fedcluster.engines.remote import RemoteEngine
from fedcluster.engines.responder import Responder
from fedcluster.engines.wire import unpack
from fedcluster.errors import InputError
from fedcluster.jobs import Fit, execute, write_job
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.privacy.site_state import STATE_FILE, SiteState
from fedcluster.site.audit_log import read_log
from fedcluster.site.file import SiteFile
from fedcluster.site.membership import Membership
from fedcluster.site.owned_files import is_running

RNG = np.random.default_rng(3)
ROWS = {name: RNG.normal(size=(30, 2)) + 5 * (i % 2) for i, name in enumerate("abcdef")}


def client(name: str, columns: Any = ("x", "y"), *, raw: bool = False) -> Client:
    del raw
    places = [("x", "y").index(column) for column in columns or ("x", "y")]
    told = tuple(Column(("x", "y")[j]) for j in places)
    return Client(name, Data(ROWS[name][:, places], columns=told))


def responder(name: str, kept: list[Any] | None = None) -> Responder:
    def choose(columns: Any, *, raw: bool = False) -> Client:
        return client(name, columns, raw=raw)

    keep = None if kept is None else lambda model: kept.append((name, model))
    return Responder(client(name), columns=("x", "y"), choose=choose, keep=keep, **KNOWN)


class Below:
    """Runs of a federation below, each in a thread of this process."""

    def __init__(self, folder: Path, names: str = "abcd") -> None:
        self.folder = folder
        self.kept: list[Any] = []
        self.hang, self.asked = threading.Event(), threading.Event()
        self.hang.set()
        self.sites = {name: responder(name, self.kept) for name in names}
        self.jobs: list[str] = []
        self.threads: list[threading.Thread] = []
        self.job = relaying.Relaying("relay", 3)
        self.gone: set[str] = set()

    def begin(self, job: str) -> Path:
        folder = self.folder / f"run-{len(self.jobs)}"
        folder.mkdir(exist_ok=True)
        self.jobs.append(job)
        self.threads.append(threading.Thread(target=self._run, args=[folder]))
        self.threads[-1].start()
        return folder

    def exchange(self, messages: Any, enough: int) -> Any:
        """Carry questions to the sites below."""
        self.asked.set()
        assert self.hang.wait(20)
        there = messages.keys() - self.gone
        came = {name: self.sites[name].reply(messages[name]) for name in there}
        return came, dict.fromkeys(messages.keys() - there, "gone")

    def _run(self, folder: Path) -> None:
        engine = RemoteEngine(self, self.sites, quorum=3)
        content = {"parameters": {**asdict(self.job), "steps": []}, "out": ""}
        try:
            outcome = {"done": True, **relaying.relay(engine, content, folder)}
        except Exception as error:
            outcome = {"done": False, "error": str(error)}
        (folder / "outcome.json").write_text(json.dumps(outcome))

    def end(self) -> None:
        for folder in self.folder.glob("run-*"):
            (folder / CANCEL).touch()
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()


class Nowhere:
    """A coordinator that nobody asks."""

    @classmethod
    def at(cls, folder: Path) -> None:
        assert folder.name == "lower"


@pytest.fixture
def below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Below]:
    below = Below(tmp_path)
    monkeypatch.setattr(relay_site, "RelayedRuns", lambda *_: below)
    monkeypatch.setattr(relay_site, "Coordinator", Nowhere)
    yield below
    below.end()


def site_file(folder: Path, more: str = "", federation: str = "") -> SiteFile:
    path = folder / "site.toml"
    path.write_text(
        f'name = "relay"\n[source]\nfederation = "lower"\n{more}\n'
        f'[federation]\ncoordinator = "127.0.0.1:1"\ninsecure = true\n{federation}'
    )
    return SiteFile.load(path)


def connected(folder: Path, said: list[str] | None = None, more: str = "") -> Any:
    site = site_file(folder, more)
    heard: list[str] = [] if said is None else said
    return answering(site, Membership.from_site_file(site), heard.append)


class Above:
    """Transport of the federation above: a relay and sites beside it."""

    def __init__(self, relay: Any, others: str = "ef") -> None:
        self.sites = {"relay": relay, **{name: responder(name) for name in others}}

    def exchange(self, messages: Any, enough: int) -> Any:
        return {name: self.sites[name].reply(message) for name, message in messages.items()}, {}


class Flat:
    """All sites beside each other."""

    def exchange(self, messages: Any, enough: int) -> Any:
        return {name: responder(name).reply(message) for name, message in messages.items()}, {}


JOBS = {
    "lloyd": Fit(2, algorithm="lloyd", sums_only=True, seed=1),
    "default": Fit(2, sums_only=True, seed=1),
    "prepared": Fit(2, prepare=PreprocessingSpec(scale="standard"), sums_only=True, seed=1),
}


def asked(job: Fit, transport: Any, names: Any) -> Any:
    """Carry out a job as a run of a coordinator does."""
    engine = RemoteEngine(transport, names)
    engine.name_job("study")
    raw = job.prepare is not None
    engine.choose(None if raw else ["x", "y"], raw=raw)
    return engine, execute(job, engine, columns=("x", "y"))


def test_a_run_below_ends_soon_after_the_program_of_its_relay(below, tmp_path, monkeypatch):
    """Nothing is written at a kill, only a lock goes; so no run waits behind that of the relay."""
    monkeypatch.setattr(relaying, "UNHELD", 0.2)
    relay = connected(tmp_path)
    relay.reply(question(Task(Lloyd(), State.at([[0.0, 0.0], [5.0, 5.0]])), run="study"))
    folder = below.folder / f"run-{len(below.jobs) - 1}"
    assert is_running(folder / "relayed")
    below.threads[-1].join(0.5)
    assert not relaying.outcome_of(folder)
    monkeypatch.setattr(relaying, "is_running", lambda _box: False)
    below.threads[-1].join(20)
    assert re.search("program has ended; the run goes on", relaying.outcome_of(folder)["error"])


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_fit_over_a_relay_has_the_bits_of_one_over_all_its_sites(below, tmp_path, job):
    above = Above(connected(tmp_path))
    _, over_relay = asked(job, above, above.sites)
    _, flat = asked(job, Flat(), ROWS)
    ours, theirs = (report.clustering.state for report in (over_relay, flat))
    assert ours.centers.tobytes() == theirs.centers.tobytes()
    assert ours.weights.tobytes() == theirs.weights.tobytes()
    assert below.jobs == ["", "study"]


def test_the_default_fit_notices_that_a_relay_tells_sums_alone(below, tmp_path):
    above = Above(connected(tmp_path))
    _, report = asked(Fit(2, seed=1), above, above.sites)
    _, flat = asked(JOBS["default"], Flat(), ROWS)
    assert report.clustering.state.centers.tobytes() == flat.clustering.state.centers.tobytes()


def test_the_model_goes_down_to_the_sites_and_the_log_tells_what_left(below, tmp_path):
    said: list[str] = []
    above = Above(connected(tmp_path, said))
    engine, report = asked(JOBS["lloyd"], above, above.sites)
    (tmp_path / "out").mkdir()
    write_job(tmp_path / "out", report)
    model = json.loads((tmp_path / "out" / "model.json").read_text())
    assert set(engine.give(model)) == {"relay", "e", "f"}
    assert sorted(name for name, _ in below.kept) == list("abcd")
    kept = json.loads((tmp_path / "results" / "model.json").read_text())
    assert kept["centers"] == model["centers"]
    assert said[-1].endswith("and the sites below have it")
    lines = [line for line in read_log(tmp_path / "audit.jsonl") if "question" in line]
    assert sum("Lloyd" in str(line.get("tasks")) for line in lines) >= 1


def refusal(turns: Any, *tasks: Task, run: str = "r", **more: Any) -> str:
    header, arrays = unpack(turns.reply(question(*tasks, run=run, **more)))
    assert not arrays
    return str(header.get("refused") or header["failed"])


LLOYD = Task(Lloyd(), State.at(ROWS["a"][:2]))


def test_what_a_relay_refuses_names_none_of_its_sites(below, tmp_path):
    turns = connected(tmp_path)
    said = refusal(turns, Task(FKM(2), State()))
    assert "FKM needs each site's own answer" in said
    below.gone = {"b", "c"}
    said = refusal(turns, LLOYD, exchange=1)
    assert "SiteError" in said
    assert not any(f"'{name}'" in said or f" {name} " in said for name in ROWS)
    below.gone = {"b"}
    header, arrays = unpack(turns.reply(question(LLOYD, run="r", exchange=2)))
    assert arrays["0.weights"].sum() == 90
    assert "refused" not in header


@pytest.mark.parametrize(
    ("more", "federation", "why"),
    [
        ("fewest = 2", "", "fewest must be a whole number of at least 3, not 2"),
        ("quorum = 2", "", "quorum must be a whole number of at least 3, not 2"),
        ('lines = "yes"', "", "lines must be true or false"),
        ('path = "rows.csv"', "", "path"),
        ("[privacy]\nepsilon = 1.0\ndelta = 1e-6", "", "[privacy] is for sites with rows"),
        ("", "secure = true\n", "secure is for sites with rows"),
    ],
)
def test_a_relay_that_asks_for_the_impossible(below, tmp_path, more, federation, why):
    with pytest.raises(InputError, match=re.escape(why)):
        site = site_file(tmp_path, more, federation)
        answering(site, Membership.from_site_file(site), print)
    assert not below.jobs


def test_a_relay_has_no_rows_of_its_own(tmp_path):
    site = site_file(tmp_path)
    with pytest.raises(InputError, match="site 'relay': it is a relay, which has no rows"):
        site.opened(raw=True)


def test_a_run_below_that_ended_is_told_and_the_next_question_begins_another(below, tmp_path):
    turns = connected(tmp_path)
    _, arrays = unpack(turns.reply(question(LLOYD, run="r")))
    assert arrays["0.weights"].sum() == 120
    (tmp_path / "run-1" / CANCEL).touch()
    below.threads[-1].join(20)
    _, arrays = unpack(turns.reply(question(LLOYD, run="r", exchange=1)))
    assert arrays["0.weights"].sum() == 120
    assert below.jobs == ["", "r", "r"]


def test_a_question_that_nobody_waits_for_any_more_is_given_up(below, tmp_path):
    turns = connected(tmp_path)
    turns.reply(question(LLOYD, run="r"))
    below.asked.clear()
    below.hang.clear()
    came: list[str] = []
    asking = threading.Thread(target=lambda: came.append(refusal(turns, LLOYD, exchange=1)))
    asking.start()
    assert below.asked.wait(20)
    turns.end("a newer question came")
    asking.join(20)
    below.hang.set()
    assert came == ["a newer question came"]
    _, arrays = unpack(turns.reply(question(LLOYD, run="r", exchange=2)))
    assert arrays["0.weights"].sum() == 120


class Asked:
    """The coordinator below, through its interface in this process."""

    def __init__(self, asking: Any, federation: Federation) -> None:
        self.folder, self.federation, self._asking = federation.folder, federation, asking

    def post(self, path: str, body: object) -> Any:
        return self._asking.post(path, body, 201)

    def resume(self, name: str) -> str:
        return str(self._asking.post(f"/runs/{name}/resume")["run"])


def state_of(folder: Path) -> SiteState:
    (state := SiteState(folder / STATE_FILE)).create()
    return state


def test_a_relay_of_too_few_sites_is_refused(tmp_path):
    """It would wait for sites that there are not."""
    federation = create(tmp_path / "lower", ["a", "b"], "127.0.0.1:8443", insecure=True)
    job = relaying.Relaying("relay", 3)
    with operated(federation) as coordinator:
        below: Any = Asked(coordinator.by(), federation)
        with pytest.raises(InputError, match="has 2 sites, and a relay with fewest = 3 never"):
            RelayedRuns(below, job, None, state_of(tmp_path))


def test_each_run_above_has_one_below_that_goes_on_after_a_restart(tmp_path):
    federation = create(tmp_path / "lower", ["a", "b", "c"], "127.0.0.1:8443", insecure=True)
    job = relaying.Relaying("relay", 3, False, 2, 5, ("statistics.mean",))
    with operated(federation) as coordinator:
        below: Any = Asked(coordinator.by(), federation)
        runs = RelayedRuns(below, job, 3, state_of(tmp_path))
        one = runs.begin("one")
        assert runs.begin("one") == one
        content = json.loads((one / "job.json").read_text())
        assert (content["job"], content["quorum"]) == ("relay", 3)
        assert relaying.Relaying(**{**content["parameters"], "steps": job.steps}) == job
        coordinator.carrier.wait_for(one.name)
        coordinator.carrier.finish(one.name, "idle")
        again = RelayedRuns(below, job, 3, state_of(tmp_path))
        assert again.begin("one") == one
        coordinator.carrier.wait_for(one.name, one.name)
        (one / relaying.BOX).mkdir()
        (one / relaying.BOX / relaying.ENDED).touch()
        assert again.begin("one") != one
        assert again.begin("two") not in {one, again.begin("one")}


def test_only_an_administrator_relays(tmp_path):
    federation = create(tmp_path / "lower", ["a", "b", "c"], "127.0.0.1:8443", insecure=True)
    token = add_operator(federation.folder, "ada", admin=False)
    body = {"job": "relay", "parameters": asdict(relaying.Relaying("relay")), "options": {}}
    with operated(federation) as coordinator:
        told = coordinator.by(token).post("/runs", body, 400)
        assert told["error"] == "operator 'ada' may not relay: only administrators may"
        damaged = {**body, "parameters": {"steps": [], "colour": 1}}
        assert "damaged" in coordinator.by().post("/runs", damaged, 400)["error"]
