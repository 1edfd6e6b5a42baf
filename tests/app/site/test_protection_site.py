"""Groups at a site of a network: what its site file says, over the wire, and at home."""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_budget import ByHand
from test_federation import content
from test_worker import FEDERATION, started, wait_until
from typed import invoke

from fedcluster.algorithms import Lloyd
from fedcluster.core import State, Task
from fedcluster.errors import SiteError
from fedcluster.jobs import Evaluate, SelectK, execute, fit_of
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster_app.coordinator.run_job import known_heads, run_job
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership, site_models
from fedcluster_app.wire.remote import RemoteEngine

pytestmark = pytest.mark.usefixtures("short_searches")

SITES = ("north", "south")


def write_site(folder: Path, name: str, seed: int, missing: float = 0.05) -> Path:
    """A site with numbers, texts, missing values, labels and a column that is not told."""
    rng, n = np.random.default_rng(seed), 300
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
        f'name = "{name}"\ncolumns = ["age", "bmi", "town"]\nlabel_column = "diagnosis"\n'
        f'[source]\npath = "rows.csv"{FEDERATION}'
    )
    return toml


@contextmanager
def network(tomls: list[Path]) -> Iterator[RemoteEngine]:
    """An engine that asks sites in processes of their own, which end with it, their labels too."""
    sites = [SiteFile.load(toml) for toml in tomls]
    models = [site_models(site, Membership.from_site_file(site)) for site in sites]
    with ExitStack() as stack:
        # labels are written beside the answers, in the folder of the site
        stack.callback(wait_until, lambda: not any(each.are_waiting for each in models))
        programs = {site.name: stack.enter_context(started(site)) for site in sites}
        yield RemoteEngine(ByHand(**programs), programs)


@pytest.fixture
def tomls(tmp_path: Path) -> list[Path]:
    return [write_site(tmp_path, name, seed) for seed, name in enumerate(SITES)]


def test_a_network_finds_the_same_bits_as_one_machine_with_groups(tomls, tmp_path) -> None:
    with network(tomls) as engine:
        engine.choose(None, raw=True)
        north, _ = engine.introduce(columns=True, labels=True)
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
    assert town.levels == north.columns[2].levels == ("Ahlen", "Bonn", "Celle")  # not of two rows
    assert [column.name for column in north.columns] == ["age", "bmi", "town"]
    assert north.labels == ("a", "b", "c")


@pytest.mark.thorough
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


def replace_folder(folder: Path, by: Path) -> None:
    """Put a copy in the place of a site's folder, in which its comparison of columns may end."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(by, folder)


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_a_run_over_a_network_says_that_groups_are_large_beside_clusters(tomls, tmp_path) -> None:
    for k, lines in ((12, 1), (3, 0)):
        job = fit_of(k, prepare=PreprocessingSpec(missing="mean"), seed=0)
        with network(tomls) as engine:
            outcome = run_job(engine, content(tmp_path / f"{k}", job), tmp_path / f"run {k}")
        assert len(outcome["doubts"]) == lines


def test_whether_rows_can_be_labelled_is_not_told(tmp_path) -> None:
    """Else a model with a logarithm would ask whether any single row is negative."""
    model = {"columns": ["age", "bmi"], "nonsense": True}
    with network([write_site(tmp_path, "north", 0, missing=0.0)]) as engine:
        assert engine.give(model) == ("north",)
