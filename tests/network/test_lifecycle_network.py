"""A federation that changes while its coordinator and sites run, over a real network."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from federations import RunningFederation, federation, in_one_process, lloyd_of, read_json, rows_of

from fedcluster.jobs import fit_of
from fedcluster_app.transports.flower.node import TAKEN_BACK

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]

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


def test_a_coordinator_that_is_lost_goes_on_from_its_backup_elsewhere(
    running: RunningFederation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made amid a run; sites reconnect by themselves, and the run has the bits of a whole one."""
    word, file, new = tmp_path / "word", tmp_path / "file", tmp_path / "new"
    word.write_text("correct horse")
    word.chmod(0o600)
    by_word = ("--passphrase-file", word)
    run = begin(running, tmp_path / "out", "--seed", 3)
    with running.held("south"):  # the run waits for it
        running.command("federation", "backup", running.folder, file, *by_word).done()
        running.coordinator.kill()
        assert run.wait() == 2
    name = run.said().split()[-1]
    running.command("federation", "restore", file, new, *by_word).done()
    monkeypatch.setattr(running, "folder", new)
    running.start()
    again = ("federation", "run", new, "resume", name, "--out", tmp_path / "out")
    running.command(*again).done()
    job = fit_of(4, algorithm="lloyd", init="summaries", tol=0, max_iter=12, seed=3)
    rows = {name: running.rows[name] for name in last_of(tmp_path / "out")}
    expected = in_one_process(job, rows)[1].state.centers
    found = np.array(read_json(tmp_path / "out" / "model.json")["centers"])
    assert found.tobytes() == expected.tobytes()
