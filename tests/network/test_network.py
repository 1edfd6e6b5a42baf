"""A real federation: a SuperLink and four sites on this machine, over TLS, with keys."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from federations import (
    LINUX,
    RunningFederation,
    federation,
    in_one_process,
    labelled,
    lloyd_of,
    open_to_others,
    read_json,
    rows_of,
)
from typed import invoke

from fedcluster.core import Column, Data
from fedcluster.jobs import Fit, fit_of
from fedcluster.model import Model
from fedcluster.model.assignment import Assignment
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster_app.coordinator.folder import create
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.logs import answers_of
from fedcluster_app.trust.audit_log import read_log

pytestmark = [pytest.mark.network, LINUX]

ROWS = rows_of(north=60, south=80, west=70, east=50)

# A site that does not answer within a third of it is asked again, and answers twice.
WAIT = ["--set", "run.deadline=900"]
KFED = ["--algorithm", "kfed"]


def done(*arguments: object) -> str:
    """What a command says that starts no other program, in this process and without any umask."""
    before = os.umask(0)
    try:
        status, said = invoke(*arguments)
    finally:
        left = os.umask(before)
    assert (status, left) == (0, 0), said
    return said


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningFederation]:
    with federation(tmp_path_factory.mktemp("network"), ROWS) as running:
        yield running


def test_the_same_bits_as_in_one_process(running: RunningFederation, tmp_path: Path) -> None:
    """Rows are prepared, as they are by default."""
    said = running.run("fit", "-k", 3, *KFED, *WAIT, "--out", tmp_path / "out").done()
    job = fit_of(3, algorithm="kfed", prepare=PreprocessingSpec(missing="mean"))
    check(running, tmp_path / "out", job)
    assert "Prepared: x and y with mean 0 and variance 1." in said
    labels = "each labels its own rows by it from now on, "
    assert f"The model is at east, north, south, west; {labels}" in said
    site = running.site("north")
    shown = {path.name for path in site.iterdir() if path.name[0] != "."}
    assert shown == {"site.toml", "README.md", "logs", "results", "state", "rows.csv"}
    kept = {path.name for path in (site / "state").iterdir()}
    assert {"files.md", "key", "site.db", "site.groups", "flower"} <= kept
    for name in ROWS:
        answers = answers_of(read_log(running.site(name) / "logs/audit.jsonl"))
        assert [answer["task"].split("(")[0] for answer in answers] == [
            *("describe", "SiteSize", "Missing", "Squares", "KFed", "Inertia", "none")
        ]


def check(
    running: RunningFederation,
    out: Path,
    job: Fit,
    silent: Callable[[str, int], bool] | None = None,
) -> None:
    """Centres, history and the labels at the sites are the same bits as in this process."""
    preprocessor, expected = in_one_process(job, ROWS, silent)
    model, told = Model.load(out / "model.json"), read_json(out / "history.json")
    assert model.preprocessor == preprocessor
    assert model.centers.tobytes() == expected.state.centers.tobytes()
    assert model.inertia == expected.state.inertia
    for site in told["sites"]:
        sent = [done["values_sent"].get(site["name"], 0) for done in told["communication_rounds"]]
        assert sum(sent) == site["values_sent"]
    assert [(done["shift"], done["missing"], done["values_sent"]) for done in told["history"]] == [
        (None if np.isnan(done.shift) else done.shift, list(done.missing), done.values_sent)
        for done in expected.history
    ]
    for name, X in ROWS.items():
        assert labelled(running.site(name)).endswith("results")
        labels = running.site(name) / "results" / "labels.csv"
        written = np.loadtxt(labels, delimiter=",", skiprows=1)
        rows = Data(X, columns=(Column("x"), Column("y")))
        rows = rows if preprocessor is None else preprocessor.apply(rows)
        found = Assignment(expected.state, expected.algorithm).labels(rows.X)
        assert (written[:, 1] == found).all()


def test_a_site_that_is_killed_and_comes_back(running: RunningFederation, tmp_path: Path) -> None:
    """The run goes on with three, and with the fourth again when it is there."""
    steps = [*lloyd_of(8), "--scale", "none"]
    terms, out = ["--quorum", 3, *WAIT], tmp_path / "out"
    run = running.run("fit", "-k", 4, *steps, *terms, "--out", out)
    running.wait_for_exchange(2)
    running.sites["west"].kill()
    running.wait_for_exchange(3, without="west")
    with running.held("east"):
        running.join("west")
    run.done()
    missing = running.missing()
    assert all(set(names) <= {"west"} for names in missing)
    job = fit_of(4, algorithm="lloyd", init="summaries", tol=0, max_iter=8)
    check(running, out, job, lambda site, r: site in missing[r])


@pytest.mark.thorough
def test_a_coordinator_that_is_killed_goes_on(running: RunningFederation, tmp_path: Path) -> None:
    """The run ends with one clear error; resumed, it ends with the same bits."""
    steps = [*lloyd_of(2), "--scale", "none"]
    run = running.run("fit", "-k", 4, *steps, "--seed", 7, *WAIT, "--out", tmp_path / "out")
    running.wait_for_exchange(2)
    running.coordinator.kill()
    assert run.wait() == 2
    [line] = [line for line in run.said().splitlines() if line.startswith("error:")]
    assert "the coordinator at 127.0.0.1:" in line
    assert not (tmp_path / "out").exists()
    name = line.split()[-1]
    before = running.communication_rounds()
    assert len(before) >= 2
    running.start()
    kept = {path: path.stat().st_mtime_ns for path in before}
    again = running.run("resume", name)
    again.done()
    assert kept == {path: path.stat().st_mtime_ns for path in before}  # not asked again
    job = fit_of(4, algorithm="lloyd", init="summaries", tol=0, max_iter=2, seed=7)
    check(running, tmp_path / "out", job)


@pytest.mark.thorough
def test_strangers_are_refused(running: RunningFederation, tmp_path: Path) -> None:
    """An unregistered key, and an authority that vouches for another."""
    other = create(tmp_path / "other", ["north"], running.federation.address)
    stranger = other.file("sites", "north")
    shutil.copy(running.site("north") / "rows.csv", stranger)
    SiteFile.load(stranger / "site.toml").confirm()
    unknown = shutil.copytree(stranger, tmp_path / "unknown")
    shutil.copy(running.site("north") / "state/ca.crt", unknown / "state")
    for folder, reason in {
        unknown: "the coordinator does not know this site's key",
        stranger: "the coordinator's certificate is not vouched for",
    }.items():
        refused = running.command("site", "start", folder / "site.toml")
        assert refused.wait() == 2
        assert reason in refused.said()
    assert done("federation", "show", running.folder).count(" connected") == len(ROWS)


def test_what_either_end_writes_is_for_its_owner_only(running, tmp_path):
    """Without any umask; after all that the tests above have done."""
    word, toml, folder = tmp_path / "word", running.site("north") / "site.toml", running.folder
    word.write_text("correct horse")
    word.chmod(0o600)
    new, copy, file = (tmp_path / name for name in ("new", "copy", "file"))
    for line, *arguments in (
        ("federation operator", folder, "ada"),
        ("federation backup", folder, file, "--passphrase-file", word),
        ("federation restore", file, copy, "--passphrase-file", word),
        ("federation new --sites a,b --address 127.0.0.1:9444", new),
        ("federation add-site", new, "c"),
        ("federation rotate-key", new, "a"),
        ("federation rotate-key --revoke", new, "b"),
        ("federation certificate --new-authority", new),
        ("federation doctor", folder),
        ("federation prune --keep 0", folder),
        ("site reload", toml),
        ("site log", toml),
        ("site doctor", toml),
        ("site key --new", new / "sites" / "a" / "site.toml"),
    ):
        done(line, *arguments)
    running.run("fit", "-k", 2, "--set", "fit.max_iter=2", *WAIT, "--out", tmp_path / "out").done()
    written = (folder, new, copy, file, tmp_path / "out")
    open_ones = [path for each in written for path in open_to_others(each)]
    assert {path.name for path in open_ones} <= {"rows.csv"}, open_ones


def test_nothing_is_left_when_it_is_ended(running: RunningFederation) -> None:
    running.end()
    assert running.left_over() == []
