"""A federation whose ends have different versions of fedcluster, on the way up and back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from federations import (
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

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]

ROWS = rows_of(north=60, south=80, west=70)
ROUNDS = 6
FIT = [*lloyd_of(ROUNDS), "--scale", "none", "--set", "run.deadline=300"]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningFederation]:
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
        return self.running.run("fit", "-k", 3, *FIT, "--seed", seed, "--out", out)

    def fit(self, seed: int, out: Path) -> None:
        self.begin(seed, out).done()
        check(seed, out)

    def change_amid_a_run(self, seed: int, out: Path) -> None:
        """A run that one version of the coordinator begins and the other one ends."""
        run = self.begin(seed, out)
        self.running.wait_for_exchange(2)
        self.coordinator(self.other)
        assert "9.9" in self.done("--version")
        if run.wait():
            name = run.said().split()[-1]
            self.done("federation", "run", self.running.folder, "resume", name, "--out", out)
        check(seed, out)

    def done(self, *arguments: object) -> str:
        return self.running.command(*arguments).done()


def check(seed: int, out: Path) -> None:
    """A result has the bits of the same fit in one process of this version."""
    job = fit_of(3, algorithm="lloyd", init="summaries", tol=0, max_iter=ROUNDS, seed=seed)
    expected = in_one_process(job, ROWS)[1].state.centers
    assert np.array(read_json(out / "model.json")["centers"]).tobytes() == expected.tobytes()


def states(folder: Path) -> dict[str, str]:
    return {run.name: run.state for run in runs(Federation.load(folder))}


def test_versions_that_know_the_same_find_the_same_bits_and_read_each_others_files(
    running: RunningFederation, tmp_path: Path
) -> None:
    """Sites are updated first, then the coordinator, amid a run; and all of them back."""
    ends = Upgrades(running, installed(tmp_path / "other", "9.9"))
    ends.fit(1, tmp_path / "here")
    ends.sites(ends.other, "north", "south")
    ends.change_amid_a_run(2, tmp_path / "amid")
    ends.fit(3, tmp_path / "both")  # west has this version
    kept = states(restored_by_other(ends, tmp_path))
    assert kept == states(running.folder) == dict.fromkeys(kept, "done")
    ends.sites(ends.here, *ROWS)
    ends.running.env = ends.other
    ends.fit(4, tmp_path / "back")
    ends.coordinator(ends.here)
    ends.fit(5, tmp_path / "again")
    assert list(states(running.folder).values()) == ["done"] * 5
    ends.done("federation", "log", running.folder)
    for name in ROWS:
        ends.done("site", "log", running.site(name) / "site.toml")


def restored_by_other(ends: Upgrades, folder: Path) -> Path:
    """A backup by the other version, restored by this one."""
    word, file = folder / "word", folder / "file"
    word.write_text("correct horse")
    word.chmod(0o600)
    ends.done("federation", "backup", ends.running.folder, file, "--passphrase-file", word)
    return restore(file, folder / "restored", "correct horse").folder


def test_a_site_of_another_protocol_is_refused_in_a_line_with_both_versions(running, tmp_path):
    other = installed(tmp_path / "other", "9.9", PROTOCOL + 1)
    ends = Upgrades(running, other)
    ends.sites(ends.other, "north")
    refused(ends.begin(1, tmp_path / "first"), "north", __version__, "9.9")
    said = running.command("site", "doctor", running.site("north") / "site.toml").done()
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
