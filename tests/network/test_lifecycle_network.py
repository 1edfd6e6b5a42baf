"""A federation that changes while its coordinator and sites run, over a real network."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from federations import (
    LINUX,
    Command,
    RunningFederation,
    federation,
    in_one_process,
    lloyd_of,
    read_json,
    rows_of,
)
from installed import installed

from fedcluster import __version__
from fedcluster.engines.wire import PROTOCOL
from fedcluster.jobs import fit_of
from fedcluster_app.coordinator.backup import restore
from fedcluster_app.coordinator.folder import Federation
from fedcluster_app.coordinator.runs import runs
from fedcluster_app.transports.flower.node import TAKEN_BACK

pytestmark = [pytest.mark.long, LINUX]

ROUNDS = 6
ROWS = rows_of(north=60, south=80, west=70)
FIT = ["--scale", "none", "--set", "run.deadline=300"]
SHORT = ["-k", 3, "--algorithm", "lloyd", "--set", "fit.init=summaries", "--set", "fit.max_iter=2"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFederation]:
    with federation(tmp_path_factory.mktemp("lifecycle"), ROWS) as running:
        yield running


def fit(running: RunningFederation, out: Path, *more: object) -> set[str]:
    """The sites that answered the last round of a fit."""
    running.run("fit", *SHORT, *FIT, *more, "--out", out).done()
    return last_of(out)


def last_of(out: Path) -> set[str]:
    return set(read_json(out / "history.json")["history"][-1]["values_sent"])


def begin(running: RunningFederation, out: Path, *more: object):
    """A run that goes on for long, in its third exchange."""
    run = running.run("fit", "-k", 4, *lloyd_of(12), *FIT, *more, "--out", out)
    running.wait_for_exchange(2)
    return run


def change(running: RunningFederation, name: str, *arguments: object) -> None:
    said = running.command("federation", name, running.folder, *arguments).done()
    assert "The coordinator, which runs, has taken notice." in said


def test_a_site_is_added_while_a_run_goes_on(running: RunningFederation, tmp_path: Path) -> None:
    """That run goes on with those that it began with; the next one asks the new site, too."""
    run = begin(running, tmp_path / "before")
    with running.held("south"):  # the run waits for it
        change(running, "add-site", "east")
        running.fill("east", rows_of(east=50)["east"])
    running.join("east")
    run.done()
    assert last_of(tmp_path / "before") == {"north", "south", "west"}
    assert fit(running, tmp_path / "after") == {"north", "south", "west", "east"}


def test_a_site_is_removed_while_a_run_asks_it(running: RunningFederation, tmp_path: Path) -> None:
    """The run goes on with it; then it is disconnected."""
    run = begin(running, tmp_path / "before")
    with running.held("south"):
        change(running, "remove-site", "east")
    run.done()
    assert last_of(tmp_path / "before") == {"north", "south", "west", "east"}
    assert running.sites["east"].wait() == TAKEN_BACK
    assert fit(running, tmp_path / "after") == {"north", "south", "west"}


def test_keys_are_rotated_while_a_run_goes_on(running: RunningFederation, tmp_path: Path) -> None:
    """The sites notice their new keys by themselves, and the run reaches them by those.

    One gets its key from the coordinator, the other has made it.
    """
    run = begin(running, tmp_path / "out")
    with running.held("west"):
        change(running, "rotate-key", "north")
        toml = running.site("south") / "site.toml"
        running.command("site", "key", toml, "--new").done()
        change(running, "rotate-key", "south", "--public-key", toml.with_name("state") / "key.pub")
        for name in ("north", "south"):
            running.sites[name].wait_for("connected; Ctrl-C", times=2)
    run.done()
    assert last_of(tmp_path / "out") == set(ROWS)
    assert running.missing() == [[]] * len(running.missing())


def test_a_key_that_is_in_use_is_named_as_such(running: RunningFederation, tmp_path: Path) -> None:
    """In a copy of the site's folder, and in the folder itself."""
    copy = tmp_path / "copy"
    leave = shutil.ignore_patterns("flower", ".running")
    shutil.copytree(running.site("north"), copy, ignore=leave)
    copied = running.command("site", "start", copy / "site.toml", name="copy")
    again = running.command("site", "start", running.site("north") / "site.toml", name="again")
    assert (copied.wait(), again.wait()) == (2, 2)
    assert "its folder was copied, or is in use twice" in copied.said().splitlines()[-1]
    own = running.sites["north"].process.pid
    assert f"process {own}; end it first" in again.said().splitlines()[-1]
    assert fit(running, tmp_path / "out") == set(ROWS)


def test_a_certificate_is_renewed_while_a_run_goes_on(running, tmp_path):
    """Nobody has to be restarted, and connections that begin later get the new one."""
    before = running.served_certificate()
    run = begin(running, tmp_path / "out")
    with running.held("south"):
        running.command("federation", "certificate", running.folder, "--new-key").done()
        running.wait_until(lambda: running.served_certificate() != before)
    run.done()
    assert last_of(tmp_path / "out") == set(ROWS)
    assert fit(running, tmp_path / "after") == set(ROWS)


def test_a_key_is_revoked_while_a_run_goes_on(running: RunningFederation, tmp_path: Path) -> None:
    """It is cut off at once; the run refuses it and goes on, as its quorum allows."""
    run = begin(running, tmp_path / "out", "--quorum", 2)
    with running.held("south"):
        change(running, "rotate-key", "west", "--revoke")
        assert running.sites["west"].wait() == TAKEN_BACK
    assert "revoked" in running.sites["west"].said().splitlines()[-1]
    run.done()
    assert running.missing()[-1] == ["west"]  # it may have answered the one that waits for south
    told = read_json(tmp_path / "out" / "history.json")["missing"]
    assert {each["site"] for each in told} == {"west"}
    assert "its key was revoked on" in told[0]["reason"]
    again = running.command("site", "start", running.site("west") / "site.toml", name="again")
    assert again.wait() == TAKEN_BACK
    two = ["--quorum", 2, "--out", tmp_path / "two"]
    said = running.run("fit", *SHORT, *FIT, *two).done()
    assert re.search(r"west.*its key was revoked on", said), said
    change(running, "rotate-key", "west")
    running.join("west")
    assert fit(running, tmp_path / "after") == set(ROWS)


WORD = "correct horse"


def backed_up(running: RunningFederation, folder: Path) -> Path:
    """A backup, whose passphrase stands in a file beside it."""
    word, file = folder / "word", folder / "file"
    word.write_text(WORD)
    word.chmod(0o600)
    how = ("--passphrase-file", word)
    running.command("federation", "backup", running.folder, file, *how).done()
    return file


def check(out: Path, seed: int, k: int, rounds: int, rows: Mapping[str, np.ndarray]) -> None:
    """A result has the bits of the same fit in one process of this version."""
    job = fit_of(k, algorithm="lloyd", init="summaries", tol=0, max_iter=rounds, seed=seed)
    expected = in_one_process(job, rows)[1].state.centers
    assert np.array(read_json(out / "model.json")["centers"]).tobytes() == expected.tobytes()


def test_a_coordinator_that_is_lost_goes_on_from_its_backup_elsewhere(
    running: RunningFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made amid a run; sites reconnect by themselves, and the run has the bits of a whole one."""
    out, new = tmp_path / "out", tmp_path / "new"
    run = begin(running, out, "--seed", 3)
    with running.held("south"):  # the run waits for it
        file = backed_up(running, tmp_path)
        running.coordinator.kill()
        assert run.wait() == 2
    name = run.said().split()[-1]
    how = ("--passphrase-file", tmp_path / "word")
    running.command("federation", "restore", file, new, *how).done()
    monkeypatch.setattr(running, "folder", new)
    running.start()
    running.command("federation", "run", new, "resume", name, "--out", out).done()
    check(out, 3, 4, 12, {name: running.rows[name] for name in last_of(out)})


# Ends of different versions, on the way up and back


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[RunningFederation]:
    with federation(tmp_path / "net", ROWS) as running:
        yield running


class Upgrades:
    """The same federation, of which each program may be of this version or of another."""

    def __init__(self, running: RunningFederation, other: Path) -> None:
        self.running, self.here = running, dict(running.env)
        self.other = {**running.env, "PYTHONPATH": str(other)}

    def sites(self, env: dict[str, str], *names: str) -> None:
        for name in names:
            self.running.sites[name].end()
        self.running.env = env
        self.running.join(*names)

    def coordinator(self, env: dict[str, str]) -> None:
        self.running.coordinator.end()
        self.running.env = env
        self.running.start()

    def begin(self, seed: int, out: Path) -> Command:
        return self.running.run(
            "fit", "-k", 3, *lloyd_of(ROUNDS), *FIT, "--seed", seed, "--out", out
        )

    def fit(self, seed: int, out: Path) -> None:
        self.begin(seed, out).done()
        check(out, seed, 3, ROUNDS, ROWS)

    def change_amid_a_run(self, seed: int, out: Path) -> None:
        """A run that one version of the coordinator begins and the other one ends."""
        run = self.begin(seed, out)
        self.running.wait_for_exchange(2)
        self.coordinator(self.other)
        assert "9.9" in self.done("--version")
        if run.wait():
            name = run.said().split()[-1]
            self.done("federation", "run", self.running.folder, "resume", name, "--out", out)
        check(out, seed, 3, ROUNDS, ROWS)

    def done(self, *arguments: object) -> str:
        return self.running.command(*arguments).done()


def states(folder: Path) -> dict[str, str]:
    return {run.name: run.state for run in runs(Federation.load(folder))}


def test_versions_that_know_the_same_find_the_same_bits_and_read_each_others_files(fresh, tmp_path):
    """Sites are updated first, then the coordinator, amid a run; and all of them back."""
    ends = Upgrades(fresh, installed(tmp_path / "other", "9.9"))
    ends.fit(1, tmp_path / "here")
    ends.sites(ends.other, "north", "south")
    ends.change_amid_a_run(2, tmp_path / "amid")
    ends.fit(3, tmp_path / "both")  # west has this version
    restored = restore(
        backed_up(fresh, tmp_path), tmp_path / "restored", WORD
    ).folder  # by this one
    kept = states(restored)
    assert kept == states(fresh.folder) == dict.fromkeys(kept, "done")
    ends.sites(ends.here, *ROWS)
    ends.running.env = ends.other
    ends.fit(4, tmp_path / "back")
    ends.coordinator(ends.here)
    ends.fit(5, tmp_path / "again")
    assert list(states(fresh.folder).values()) == ["done"] * 5
    ends.done("federation", "log", fresh.folder)
    for name in ROWS:
        ends.done("site", "log", fresh.site(name) / "site.toml")


def test_a_site_of_another_protocol_is_refused_in_a_line_with_both_versions(fresh, tmp_path):
    ends = Upgrades(fresh, installed(tmp_path / "other", "9.9", PROTOCOL + 1))
    ends.sites(ends.other, "north")
    refused(ends.begin(1, tmp_path / "first"), "north", __version__, "9.9")
    said = ends.done("site", "doctor", fresh.site("north") / "site.toml")
    assert f"the coordinator has fedcluster {__version__}, another than here" in said
    ends.coordinator(ends.other)
    refused(ends.begin(1, tmp_path / "second"), "south and west", "9.9", __version__)
    ends.sites(ends.other, "south", "west")
    ends.fit(1, tmp_path / "third")


def refused(run: Command, who: str, coordinator: str, site: str) -> None:
    assert run.wait() == 2
    last = run.said().splitlines()[-1]
    assert f"{who}: the reply is of protocol" in last
    both = f"the coordinator has fedcluster {coordinator}, the site {site}: install the same"
    assert f"{both} at both" in last
