"""Groups at a site of a network: what its site file says, over the wire, and at home."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_federation import content
from typed import invoke

from fedcluster.algorithms import Lloyd
from fedcluster.core import State, Task
from fedcluster.engines.wire import PROTOCOL, pack, unpack
from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import Evaluate, SelectK, execute, fit_of
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster_app.coordinator.run_job import known_heads, run_job
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership, site_models, site_responder
from fedcluster_app.wire.remote import RemoteEngine

pytestmark = pytest.mark.usefixtures("short_searches")

SITES = ("north", "south")


def write_site(
    folder: Path, name: str, seed: int, n: int = 300, more: str = "", missing: float = 0.05
) -> Path:
    """A site with numbers, texts, missing values, labels and a column that is not told."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 3, n)
    age, bmi = 40 + 15 * kind + rng.normal(0, 3, n), 22 + 4 * kind + rng.normal(0, 1, n)
    town = np.array(["Ahlen", "Bonn", "Celle"])[(kind + rng.integers(0, 2, n)) % 3]
    town[:2] = f"Zell-{name}"
    lines = ["id,age,bmi,town,diagnosis"]
    for i in range(n):
        shown = "" if rng.random() < missing else f"{age[i]:.1f}"
        lines.append(f"{i},{shown},{bmi[i]:.2f},{town[i]},{'abc'[kind[i]]}")
    (folder / name).mkdir(parents=True)
    (folder / name / "rows.csv").write_text("\n".join([*lines, ""]))
    toml = folder / name / "site.toml"
    toml.write_text(
        f'name = "{name}"\ncolumns = ["age", "bmi", "town"]\nlabel_column = "diagnosis"\n{more}'
        '[source]\npath = "rows.csv"\n[federation]\ncoordinator = "127.0.0.1:1"\n'
        'certificate = "system"\nkey = "site.toml"\n'
    )
    return toml


class InProcess:
    """Transport to sites of this process."""

    def __init__(self, tomls: list[Path]) -> None:
        sites = [SiteFile.load(toml) for toml in tomls]
        self.sites = {
            site.name: site_responder(site, Membership.from_site_file(site), lambda _line: None)
            for site in sites
        }

    def exchange(
        self, messages: Mapping[str, bytes], enough: int
    ) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        return {name: self.sites[name].reply(message) for name, message in messages.items()}, {}


@contextmanager
def network(tomls: list[Path]) -> Iterator[RemoteEngine]:
    """An engine that asks sites in processes of their own, which end with it, their labels too."""
    transport = InProcess(tomls)
    try:
        yield RemoteEngine(transport, transport.sites)
    finally:
        for site in transport.sites.values():
            site.end("")
        end = time.monotonic() + 60
        for toml in tomls:  # they are written beside the answers, in the folder of the site
            site_file = SiteFile.load(toml)
            models = site_models(site_file, Membership.from_site_file(site_file))
            while models.are_waiting:
                assert time.monotonic() < end
                time.sleep(0.02)


@pytest.fixture
def tomls(tmp_path: Path) -> list[Path]:
    return [write_site(tmp_path, name, seed) for seed, name in enumerate(SITES)]


def test_a_network_finds_the_same_bits_as_one_machine_with_groups(tomls, tmp_path) -> None:
    with network(tomls) as engine:
        engine.choose(None, raw=True)
        job = fit_of(3, prepare=PreprocessingSpec(missing="mean"), seed=3)
        there = execute(job, engine)
    out = tmp_path / "here"
    options = ["-k", 3, "--missing", "mean", "--seed", 3, "--set", "protection=groups", "--json"]
    status, said = invoke("fit", *tomls, *options, "--out", out)
    assert status == 0, said
    model = json.loads((out / "model.json").read_text())
    assert model["centers"] == there.outcome.value.state.centers.tolist()
    assert model["sites"][0]["limits"] == [{"name": "Groups", "p": 5, "min_rows": 20}]
    assert sum(map(len, (out / "labels" / "north.csv").read_text().splitlines())) > 300
    assert there.preprocessor is not None
    [town] = there.preprocessor.categories
    assert town.levels == ("Ahlen", "Bonn", "Celle")  # no text of two rows


def test_a_choice_of_k_and_scores_with_labels_work_on_groups(tomls, tmp_path) -> None:
    with network(tomls) as engine:
        engine.choose(None, raw=True)
        how = PreprocessingSpec(missing="median", scale="robust", columns=("age", "bmi"))
        chosen = execute(SelectK(1, 5, prepare=how, seed=0), engine)
        assert chosen.outcome.value.n_clusters == 3
        fit = tmp_path / "fit"
        invoke("fit", *tomls, "-k", 3, "--missing", "mean", "--out", fit)
        scores = execute(Evaluate(str(fit / "model.json"), labels=True), engine).outcome.value
    assert scores["ari"] > 0.8
    exact = json.loads(invoke("evaluate", fit, *tomls, "--json")[1])["scores"]
    for index in ("ari", "inertia"):
        assert scores[index] == pytest.approx(exact[index], rel=0.05), index


def test_what_columns_are_asked_for_never_changes_who_is_grouped(tmp_path) -> None:
    north, told = write_site(tmp_path, "north", 0, missing=0.0), []
    for columns in (["bmi", "age"], ["bmi"], ["age", "bmi"]):
        with network([north]) as engine:
            engine.choose(columns)
            [answers] = engine.ask([Task(Lloyd(), State.at(np.full((1, len(columns)), 20.0)))])
        told.append((answers.total(), (north.parent / "site.groups").read_bytes()))
    sums = [answer.sums[0] for answer, _ in told]
    assert sums[0][0] == sums[1][0] == sums[2][1]
    assert len({groups for _, groups in told}) == 1


def test_text_that_the_site_does_not_tell_is_nobody_s(tomls) -> None:
    with network(tomls) as engine:
        engine.choose(None, raw=True)
        [north, _] = engine.introduce(columns=True, labels=True)
    assert [column.name for column in north.columns] == ["age", "bmi", "town"]
    assert north.columns[2].levels == ("Ahlen", "Bonn", "Celle")
    assert north.labels == ("a", "b", "c")


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ('protection = "none"\n', "protection must be one of groups, limits, not 'none'"),
        ("[groups]\np = 1\n", "[groups], p must be a whole number of at least 2, not 1"),
        ("[groups]\np = 9\nmin_rows = 8\n", "[groups], min_rows must be at least p=9, not 8"),
        ('[groups]\nscale = "log"\n', "scale must be one of standard, none, not 'log'"),
        ("[groups]\nq = 9\n", "unknown key 'q'"),
    ],
)
def test_a_site_file_that_says_nonsense_of_groups_is_one_line(tmp_path, more, line) -> None:
    toml = write_site(tmp_path, "north", 0, 30, more)
    with pytest.raises(InputError) as raised:
        SiteFile.load(toml)
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)


def test_limits_that_are_too_small_for_a_network_are_refused(tmp_path) -> None:
    more = 'protection = "limits"\n[limits]\nmin_cluster_size = 4\n'
    site = SiteFile.load(write_site(tmp_path, "north", 0, 30, more))
    with pytest.raises(InputError, match=r"min_cluster_size must be at least 5 over a network"):
        site_responder(site, Membership.from_site_file(site), lambda _line: None)


def test_groups_that_were_lost_are_not_made_anew(tmp_path) -> None:
    toml = write_site(tmp_path, "north", 0, missing=0.0)
    with network([toml]) as engine:
        engine.choose(["age", "bmi"])
        engine.ask([Task(Lloyd(), State.at([[20.0, 30.0]]))])
    (toml.parent / "site.groups").unlink()
    site = SiteFile.load(toml)
    with pytest.raises(InputError, match=r"site\.groups is missing, and answers have left"):
        site_responder(site, Membership.from_site_file(site), lambda _line: None)


def replace_folder(folder: Path, by: Path) -> None:
    """Put a copy in the place of a site's folder, in which its comparison of columns may end."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(by, folder)


@pytest.mark.parametrize("how", ["put back", "begun anew", "another site"])
def test_a_whole_folder_of_before_is_noticed_at_both_ends(tmp_path, how, caplog) -> None:
    """By the line of its log that the coordinator knows; the newest folder goes on."""
    tomls = [write_site(tmp_path / "sites", name, i) for i, name in enumerate(SITES)]
    job, runs = fit_of(2, prepare=PreprocessingSpec(missing="mean"), seed=0), tmp_path / "runs"

    def run(name: str) -> dict[str, Any]:
        with network(tomls) as engine:
            return run_job(engine, content(tmp_path / name, job), runs / name)

    folder, copy, newest = tomls[0].parent, tmp_path / "copy", tmp_path / "newest"
    shutil.copytree(folder if how == "begun anew" else tomls[how == "another site"].parent, copy)
    run("1")
    shutil.copytree(folder, newest)
    replace_folder(folder, copy)
    (folder / "site.toml").write_text((newest / "site.toml").read_text())
    with pytest.raises(SiteError, match=r"log of the site lacks a line .*: put back the newest"):
        run("2")
    assert "its folder is an older copy" in caplog.text
    assert "its folder is an older copy" in (folder / "audit.jsonl").read_text()
    assert not (folder / "site.groups").exists()
    replace_folder(folder, newest)
    assert run("3")["files"]
    first, second = (json.loads((runs / name / "log-heads.json").read_text()) for name in "12")
    assert {site for site in SITES if first[site] != second[site]} == {SITES[1]}


def test_a_site_that_only_an_older_run_knows_stays_known(tmp_path) -> None:
    """As of a run that was resumed after a newer one of other sites."""
    for name, heads in {"1": {"a": "x", "b": "y"}, "2": {"a": "z"}}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "log-heads.json").write_text(json.dumps(heads))
    assert known_heads(tmp_path) == {"a": "z", "b": "y"}


def test_a_run_over_a_network_says_that_groups_are_large_beside_clusters(tomls, tmp_path) -> None:
    for k, lines in ((12, 1), (3, 0)):
        job = fit_of(k, prepare=PreprocessingSpec(missing="mean"), seed=0)
        with network(tomls) as engine:
            outcome = run_job(engine, content(tmp_path / f"{k}", job), tmp_path / f"run {k}")
        assert len(outcome["doubts"]) == lines


def test_whether_rows_can_be_labelled_is_not_told(tmp_path) -> None:
    """Else a model with a logarithm would ask whether any single row is negative."""
    toml = write_site(tmp_path, "north", 0, missing=0.0)
    model = {"columns": ["age", "bmi"], "nonsense": True}
    site = SiteFile.load(toml)
    turns = site_responder(site, Membership.from_site_file(site), lambda _line: None)
    try:
        header = {"protocol": PROTOCOL, "run": "r", "exchange": 0, "model": model}
        reply, _ = unpack(turns.reply(pack(header, {})))
    finally:
        turns.end("")
    assert "failed" not in reply
    assert "refused" not in reply
