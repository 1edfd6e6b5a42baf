"""Thousands of histories of faults: every run ends, with the bits of a run without any.

A failure names its seed: `play(seed, MANY)` plays the same history again.
"""

from __future__ import annotations

import gc
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from simulator import Faults, World, grouped, simulated_disk

from fedcluster_app.coordinator.runs import RunQueue
from fedcluster_app.site import membership
from fedcluster_app.site.membership import SiteAuditor
from fedcluster_app.site.worker import ReceivedModels
from fedcluster_app.tables.outputs import check_folder
from fedcluster_app.trust import site_state
from fedcluster_app.trust.audit_log import LOG, AuditLog
from fedcluster_app.trust.site_state import SiteState
from fedcluster_app.wire import recorder
from fedcluster_app.wire.policy import Ledger, Policy, PolicyLimits
from fedcluster_app.wire.responder import AuditEntry, Auditor

RNG = np.random.default_rng(0)
ROWS = {
    name: grouped(name, RNG.normal(size=(n, 2)) + RNG.integers(0, 3, (n, 1)) * 6.0)
    for name, n in {"north": 21, "south": 27, "west": 24}.items()
}
JOB = {"n_clusters": 3, "seed": 1, "algorithm": "lloyd", "init": "random"}
MANY = Faults(lost=0.08, twice=0.1, slow=2.0, kills=5)
FEW = Faults(lost=0.03, twice=0.05, slow=1.0, kills=3)
AT_ONCE = 20
"""Number of histories of one test."""

Play = Callable[..., tuple[World, str]]


MEMORY = Path("/dev/shm")


@contextmanager
def memory(otherwise: Path) -> Iterator[Path]:
    """A folder in memory, if possible: SQLite waits for a disk that cannot be simulated."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else otherwise) as folder:
        yield Path(folder)


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """Play the history of a seed; return the world, and its model and history to the last bit."""
    monkeypatch.setattr("fedcluster_app.report.page.report_page", lambda *_: "")
    gc.collect()
    gc.freeze()  # what is there before a history is not searched for rubbish again and again
    with simulated_disk(monkeypatch) as on:

        def played(seed: int, faults: Faults, *, secure: bool = False) -> tuple[World, str]:
            with memory(tmp_path) as folder:
                world = World(folder, ROWS, seed, faults, secure=secure)
                on(world)
                try:
                    world.fit(JOB | {"init": "sums"} if secure else JOB)
                    world.check()
                except (Exception, AssertionError) as error:
                    raise AssertionError(f"seed {seed}, killed: {world.killed}: {error}") from error
                return world, _result(world)

        yield played
    gc.unfreeze()


def _result(world: World) -> str:
    files = (world.run / "result" / f"{name}.json" for name in ("model", "history"))
    model, told = (json.loads(file.read_text()) for file in files)
    return json.dumps([model["centers"], model["weights"], told])


def histories(play: Play, seeds: range, faults: Faults, **how: Any) -> list[World]:
    _, whole = play(10**6, Faults(), **how)
    worlds = []
    for seed in seeds:
        world, found = play(seed, faults, **how)
        assert found == whole, f"seed {seed} ends with another result; killed: {world.killed}"
        worlds.append(world)
    return worlds


@pytest.mark.parametrize("first", range(0, 3 * AT_ONCE, AT_ONCE))
def test_a_run_ends_with_the_same_bits_whatever_is_lost_and_killed(first: int, play: Play) -> None:
    worlds = histories(play, range(first, first + AT_ONCE), MANY)
    assert sum(len(world.killed) for world in worlds) > AT_ONCE / 2


@pytest.mark.thorough
def test_so_do_secure_sums(play: Play) -> None:
    worlds = histories(play, range(AT_ONCE), FEW, secure=True)
    assert any(world.killed for world in worlds)


@pytest.mark.long
@pytest.mark.parametrize("first", range(1000, 2000, 50))
def test_a_thousand_more(first: int, play: Play) -> None:
    histories(play, range(first, first + 50), MANY)
    histories(play, range(first, first + 10), FEW, secure=True)


def size(folder: Path, *, kept: tuple[str, ...] = ()) -> tuple[int, int]:
    """The bytes of the files that grow with each run, and of all others."""
    files = {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    grows = sum(n for path, n in files.items() if path.relative_to(folder).parts[0] in kept)
    return grows, sum(files.values()) - grows


@pytest.fixture
def lasting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world without faults, whose sites answer any number of runs."""
    monkeypatch.setattr("fedcluster_app.report.page.report_page", lambda *_: "")
    many = PolicyLimits(max_runs_per_day=10**5, max_rounds_per_day=10**6)
    monkeypatch.setattr("simulator.Policy", partial(Policy, many))
    with simulated_disk(monkeypatch) as on, memory(tmp_path) as folder:
        on(world := World(folder, ROWS, 0, Faults(), secure=False))
        yield world


def play_runs(world: World, seeds: range) -> None:
    """Play a run for each seed, and prune the folders of runs as the queue does."""
    for seed in seeds:
        world.run = world.run.with_name(f"run-{seed}")
        world.run.mkdir(exist_ok=True)
        world.lives = 0
        world.fit(JOB | {"seed": seed})
        rmtree(world.run.with_name(f"run-{seed - RunQueue.kept}"), ignore_errors=True)


def test_folders_grow_by_logs_and_records_alone(lasting: World) -> None:
    """By less than 25 kB a run at a site, and at the coordinator, which may prune them."""
    play_runs(lasting, range(runs := 6))
    runs_folder = lasting.run.parent
    folders = {site.folder: (LOG, "questions") for site in lasting.sites.values()}
    everything = tuple(path.name for path in runs_folder.iterdir())
    for folder, kept in (folders | {runs_folder: everything}).items():
        logs, others = size(folder, kept=kept)
        assert 0 < logs < 25_000 * runs
        assert others < 200_000


@pytest.mark.long
def test_ten_thousand_runs_take_as_much_room_as_half_of_them(
    lasting: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of 1 MB in the log for 64, and 2 MB of questions for 64, so that all are full."""
    small = partial(membership.Membership, log_megabytes=1, questions_megabytes=2)
    monkeypatch.setattr(membership, "Membership", small)
    sizes = []
    for seeds in (range(5000), range(5000, 10_000)):
        play_runs(lasting, seeds)
        folders = [site.folder for site in lasting.sites.values()] + [lasting.run.parents[1]]
        sizes.append([size(folder)[1] for folder in folders])
    *at_sites, at_coordinator = sizes[1]
    assert max(at_sites) < 20 << 20
    assert at_coordinator < 25_000 * RunQueue.kept
    assert sizes[1] == pytest.approx(sizes[0], rel=0.06)  # one file of the log of sixteen


# Mistakes that were made once, or nearly: each is found again


def without_the_end_of_a_new_log(patch: pytest.MonkeyPatch) -> None:
    """A site that was killed twice while it wrote the first lines of its log never started."""
    real = AuditLog._keep_head  # noqa: SLF001

    def keep(log: AuditLog) -> None:
        if log._offset:  # noqa: SLF001
            real(log)

    patch.setattr(AuditLog, "_keep_head", keep)


def with_half_a_line_in_a_log(patch: pytest.MonkeyPatch) -> None:
    """A site that was killed while it wrote a line of its log never started."""
    patch.setattr(AuditLog, "_set_aside", lambda log, torn: None)


def with_replies_that_are_not_logged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("fedcluster_app.site.membership.SiteAuditor.record", Auditor.record)


def with_replies_that_are_logged_late(patch: pytest.MonkeyPatch) -> None:
    """A kill between a reply and its line left an answer that no log has."""
    real, waiting = SiteAuditor.record, dict[str, AuditEntry]()

    def record(auditor: SiteAuditor, entry: AuditEntry) -> None:
        site = str(auditor.log.path)
        if site in waiting:
            real(auditor, waiting.pop(site))
        waiting[site] = entry

    patch.setattr(SiteAuditor, "record", record)


def with_questions_that_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A site that restarted answered a question of a run a second time."""
    real = Ledger.__init__
    patch.setattr(Ledger, "__init__", lambda ledger, state=None: real(ledger))


def with_models_that_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    """A site that was killed after it acknowledged a model had none."""

    def receive(models: ReceivedModels, model: Any, rows: str) -> None:
        check_folder(models.results, overwrite=True)

    patch.setattr(ReceivedModels, "receive", receive)


def with_files_that_are_written_in_place(patch: pytest.MonkeyPatch) -> None:
    """A kill left half a record of an exchange, with which no run was resumed."""

    @contextmanager
    def written(path: Path) -> Iterator[Path]:
        path.unlink(missing_ok=True)
        path.touch(0o600)
        yield path
        with path.open("rb+") as file:
            os.fsync(file.fileno())

    for module in ("fedcluster_app.wire.recorder", "fedcluster.core.files"):
        patch.setattr(f"{module}.atomic_write", written)


def with_a_state_that_is_created_in_place(patch: pytest.MonkeyPatch) -> None:
    """A site that was killed at its first start had an empty state, and answered nothing."""

    def create(state: SiteState) -> None:
        assert state.path is not None
        state.path.touch(0o600)
        with state.path.open("rb+") as file:
            os.fsync(file.fileno())
        with closing(sqlite3.connect(state.path)) as file:
            file.executescript(site_state.TABLES)

    patch.setattr(SiteState, "create", create)


def with_a_run_that_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    """A resumed run asked all of it again, and each site answered twice."""
    real = recorder._write  # noqa: SLF001

    def write(path: Path, *args: Any) -> None:
        if not path.name.startswith("exchange"):
            real(path, *args)

    patch.setattr(recorder, "_write", write)


def with_questions_under_their_old_numbers(patch: pytest.MonkeyPatch) -> None:
    """What was asked again had the number of before, which a site refuses: no run was resumed."""
    token = SimpleNamespace(token_hex=lambda n: "00" * n)
    patch.setattr("fedcluster_app.wire.remote.secrets", token)


BREAKS = [value for name, value in [*globals().items()] if name.startswith("with_")]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("broken", "times"),
    [
        *((each, 2) for each in BREAKS),
        pytest.param(without_the_end_of_a_new_log, 25, marks=pytest.mark.long),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_broken_is_found(broken, times, play, monkeypatch):
    broken(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        histories(play, range(times * AT_ONCE), MANY)
