"""Fits under a privacy budget: in process, by the commands and over a network."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from federations import labelled
from numpy.typing import NDArray
from test_budget import ByHand, ledger, responder
from test_private_clustering import STEPS as TRIED
from test_worker import started
from typed import invoke

from benchmarks.canaries import Understated, lower_bound, mechanism
from fedcluster import FederatedKMeans, Model
from fedcluster.algorithms.private import RelativeLloyd
from fedcluster.core import Data, Sensitive, State, Task, on_grid
from fedcluster.core.ranges import allowed_of
from fedcluster.engines.client import Client
from fedcluster.engines.wire import STEPS, step_of
from fedcluster.errors import InputError, SiteError, UnlikeRowsWarning
from fedcluster.jobs import JobReport, execute, fit_of
from fedcluster.privacy.budget import Budget
from fedcluster.recipes.private import AccountedEngine
from fedcluster_app.coordinator.folder import create
from fedcluster_app.coordinator.run_job import run_job
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership, site_budget, site_log
from fedcluster_app.trust.audit_log import read_log
from fedcluster_app.wire.remote import RemoteEngine

pytestmark = pytest.mark.usefixtures("short_searches")

RNG = np.random.default_rng(0)
MIDDLES = np.array([[2.0, 30.0], [8.0, 30.0], [5.0, 70.0]])
ROWS = MIDDLES[RNG.integers(0, 3, 3000)] + RNG.normal(0, [0.4, 3.0], (3000, 2))
BOUNDS = {"age": (0.0, 10.0), "bmi": (0.0, 100.0)}
LOW, HIGH = [0.0, 0.0], [10.0, 100.0]


def model(**more: Any) -> FederatedKMeans:
    given: dict[str, Any] = {"n_clusters": 3, "epsilon": 2.0, "bounds": (LOW, HIGH)}
    return FederatedKMeans(random_state=0, **given | more)


def in_units(fitted: Any) -> NDArray[np.float64]:
    """The centres in the order of `MIDDLES`."""
    centers = np.asarray(fitted.cluster_centers_)
    return centers[[int(((centers - middle) ** 2).sum(axis=1).argmin()) for middle in MIDDLES]]


def test_a_private_fit_finds_the_clusters_and_says_what_it_spent():
    fitted = model().fit(np.array_split(ROWS, 3))
    assert np.abs(in_units(fitted) - MIDDLES).max(axis=0) == pytest.approx([0, 0], abs=2.0)
    spent = fitted.privacy_
    assert spent is not None
    assert (spent.delta, spent.group_size, spent.budget) == (1e-6, 1, 2.0)
    assert 1.99 < spent.epsilon <= 2.0
    assert spent.rho == pytest.approx(Budget(2.0, 1e-6).rho, rel=1e-6)
    assert len(fitted.labels_) == len(ROWS)
    assert fitted.sites_[0].limits == ()
    assert set(fitted.rows_held_back_.values()) == set(fitted.lone_rows_.values()) == {0}


def test_all_that_is_told_of_centres_is_in_the_units_of_the_rows(tmp_path):
    """Rows were given as they are, so the box in which they were clustered is not seen."""
    fitted = model().fit(frame := pd.DataFrame(ROWS, columns=list(BOUNDS)))
    assert fitted.preprocessor_ is None
    fitted.save(tmp_path / "model.json")
    kept, again = Model.load(tmp_path), FederatedKMeans.load(tmp_path)
    np.testing.assert_array_equal(again.cluster_centers_, fitted.cluster_centers_)
    told = np.array(list(kept.centers_in_units.values())).T
    for centers in (told, fitted.centers_frame_, fitted.profile_[list(BOUNDS)]):
        np.testing.assert_array_equal(centers, fitted.cluster_centers_)
    far = np.linalg.norm(ROWS[:, None] - fitted.cluster_centers_, axis=2)
    for estimator in (fitted, again):
        np.testing.assert_allclose(estimator.transform(frame), far, rtol=1e-9)
        np.testing.assert_array_equal(estimator.predict(frame[["bmi", "age"]]), fitted.labels_)
    np.testing.assert_array_equal(kept.predict(frame[["bmi", "age"]]), fitted.labels_)
    near = np.abs((ROWS[:, None] - fitted.cluster_centers_) / [5.0, 50.0])
    clear = np.sort((near**2).sum(axis=2), axis=1)
    some = clear[:, 1] - clear[:, 0] > 1e-4
    np.testing.assert_array_equal((near**2).sum(axis=2).argmin(axis=1)[some], fitted.labels_[some])
    assert fitted.score(frame) == pytest.approx(-clear[:, 0].sum(), rel=1e-4)


def test_rows_outside_the_bounds_and_gaps_are_taken_as_the_fit_takes_them():
    fitted = model().fit(ROWS)
    inside = [[10.0, 100.0], [5.0, 30.0]]
    outside = np.array([[99.0, 1e6], [np.nan, 30.0]])
    np.testing.assert_allclose(fitted.transform(outside), fitted.transform(inside), rtol=1e-12)
    with pytest.warns(UnlikeRowsWarning, match="'x1': 1 of 2 values are unlike those of the fit"):
        labels = fitted.predict(outside)
    np.testing.assert_array_equal(labels, fitted.predict(inside))
    with pytest.raises(InputError, match="a privacy budget are scaled by the bounds: use predict"):
        fitted.to_sklearn()


def test_two_fits_with_one_seed_have_other_noise_and_rows_are_not_changed():
    rows = ROWS.copy()
    first, second = (model().fit(rows) for _ in range(2))
    model(bounds=([1.0, 10.0], [2.0, 20.0])).fit(rows)
    assert (first.cluster_centers_ != second.cluster_centers_).all()
    assert rows.tobytes() == ROWS.tobytes()


def test_without_epsilon_nothing_is_spent_and_nothing_changes():
    plain = FederatedKMeans(3, random_state=0).fit(ROWS)
    assert plain.privacy_ is None
    assert "privacy" not in Model.from_estimator(plain).plain()


def test_the_model_keeps_what_was_spent(tmp_path):
    fitted = model().fit(ROWS)
    fitted.save(tmp_path / "model.json")
    again = Model.load(tmp_path / "model.json")
    assert fitted.privacy_ is not None
    assert dict(again.privacy) == fitted.privacy_.plain()
    assert (again.predict(ROWS) == fitted.labels_).all()
    assert FederatedKMeans.load(tmp_path / "model.json").privacy_ == fitted.privacy_
    content = json.loads((tmp_path / "model.json").read_text())
    content["privacy"]["epsilon"] = "none"
    (tmp_path / "model.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"privacy.epsilon must be a number, not 'none'"):
        Model.load(tmp_path / "model.json")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"bounds": None}, "needs bounds of every column"),
        ({"bounds": ([0, 0], [1, 0])}, "column 'x1' has the bounds 0 and 0"),
        ({"bounds": {"x0": (0, 1)}}, "bounds must name each of the columns x0, x1"),
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"delta": 0.5}, "delta must be"),
        ({"group_size": 0}, "group_size must be"),
    ],
)
def test_what_does_not_go_together_with_a_budget_is_refused(more, reason):
    with pytest.raises((InputError, SiteError), match=re.escape(reason)):
        model(**more).fit(ROWS)


def test_persons_count_with_as_many_rows_as_the_group_has():
    persons = np.repeat(np.arange(1000), 3)
    fitted = model(group_size=2, epsilon=8.0).fit(ROWS, groups=persons)
    assert fitted.privacy_ is not None
    assert fitted.privacy_.group_size == 2
    assert fitted.privacy_.rho == pytest.approx(Budget(8.0, 1e-6, 2).rho, rel=1e-6)
    assert fitted.cluster_weights_.sum() == pytest.approx(2000, rel=0.1)


def test_an_engine_counts_before_it_asks():
    asked: list[Any] = []

    class Engine:
        introduce = staticmethod(lambda **how: ())

        def ask(self, tasks: Any, sites: Any = None) -> list[Any]:
            asked.extend(tasks)
            return []

    step = step_of(STEPS["RelativeLloyd"])()
    accounted = AccountedEngine(Engine(), Budget(1.0, 1e-6))
    for noise in (None, 1.0):
        with pytest.raises(InputError, match="nothing was asked"):
            accounted.ask([Task(step, State(), noise=noise)])
    accounted.ask([Task(step, State(), noise=100.0)] * 3)
    assert len(asked) == 3
    assert accounted.spent.answers == 3
    assert accounted.spent.rho == pytest.approx(3 / 20_000)
    with pytest.raises(InputError, match="no kinds, texts or labels"):
        accounted.introduce(columns=True)


# Sensitivities


def test_sensitivities_of_all_steps_are_held_to_what_records_change():
    bounded = {name for name, step in STEPS.items() if hasattr(step_of(step), "sensitivity")}
    assert bounded == {type(step).__name__ for step in TRIED}
    assert all(isinstance(step, Sensitive) for step in TRIED)


@pytest.mark.parametrize("radius", [1e9, 0.3, 1e-6])
@pytest.mark.parametrize("scale", [1e9, 1.0, 0.0])
def test_no_record_changes_updates_of_any_centres_by_more_than_their_sensitivity(radius, scale):
    """Fresh rows and states, some of them far out, as an opponent would choose."""
    rng, step = np.random.default_rng(0), RelativeLloyd()
    for d in (1, 2, 7):
        corners, inside = rng.choice([-1.0, 1.0], (20, d)), rng.uniform(-1, 1, (40, d))
        rows = on_grid(np.concatenate([inside, corners, np.zeros((1, d))]))
        centers = scale * rng.uniform(-1, 1, (5, d))
        state = State(centers, np.zeros(5), memory={"radius": np.full(5, radius)})
        allowed_of(step).check_state(state, {"max_clusters": 500, "d": d})
        bounds = step.sensitivity(state, d)
        whole = step.client_step(state, Data(rows), rng)
        for i in rng.choice(len(rows), 12, replace=False):
            less = step.client_step(state, Data(np.delete(rows, i, axis=0)), rng)
            assert np.linalg.norm(whole.sums - less.sums) <= bounds.sums * (1 + 1e-12)
            assert np.linalg.norm(whole.weights - less.weights) <= bounds.weights * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_no_audit_shows_more_than_the_stated_epsilon(epsilon):
    """A small one; ``benchmarks/canaries.py`` is the whole, with the recipe."""
    assert mechanism(epsilon, 100) <= epsilon


@pytest.mark.thorough
def test_an_audit_notices_a_sensitivity_that_is_stated_too_small():
    assert mechanism(1.0, 400, Understated()) > 1.0


def test_a_bound_is_that_of_clopper_and_pearson():
    """By hand: 500 of 500 right, none of 500 wrong; each rate's bound holds at 97.5 %."""
    rate = 0.025 ** (1 / 500)
    by_hand = np.log((rate - 1e-6) / (1 - rate))
    assert lower_bound(np.zeros(1000), np.ones(1000)) == pytest.approx(by_hand)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "north.csv", tmp_path / "south.csv"]
    for path, rows in zip(paths, np.array_split(ROWS, 2), strict=True):
        lines = [f"{x!r},{y!r},{'ab'[x > 5]}" for x, y in rows.tolist()]
        path.write_text("\n".join(["age,bmi,side", *lines, ""]))
    return paths


BUDGETED = ("--set", "fit.epsilon=2", "--set", "prepare.bounds={age=[0,10],bmi=[0,100]}")


def test_a_private_fit_by_the_command(files, tmp_path):
    """Columns without bounds, such as one of text, are not used."""
    out = tmp_path / "out"
    status, said = invoke("fit", *files, "-k", 3, "--out", out, *BUDGETED)
    assert status == 0, said
    assert "Privacy budget spent: epsilon 2 of 2 at delta 1e-06 for each row" in said
    assert "Only model.json is covered by it." in said
    kept = json.loads((out / "model.json").read_text())
    assert kept["columns"] == ["age", "bmi"]
    assert 1.99 < kept["privacy"]["epsilon"] <= 2.0
    assert json.loads((out / "history.json").read_text())["privacy"] == kept["privacy"]
    page = (out / "report.html").read_text()
    assert "Every number that left a site has random noise" in page
    assert "Privacy budget spent: epsilon 2 of 2" in page


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--set", "fit.epsilon=2"), "needs bounds of every column"),
        ((*BUDGETED, "--missing", "mean"), "--missing is for other fits, not for a privacy budget"),
        ((*BUDGETED, "--set", "prepare.pca=1"), "prepare.pca is for other fits, not for"),
        ((*BUDGETED, "--profile"), "--profile is for other fits, not for a privacy budget"),
        ((*BUDGETED, "--set", "fit.group_size=0"), "fit.group_size must be at least 1"),
    ],
)
def test_the_command_refuses_what_would_see_the_rows(files, tmp_path, more, reason):
    asked = ("-k", 3, "--out", tmp_path / "out", "--columns", "age,bmi", *more)
    status, said = invoke("fit", *files, *asked)
    assert status
    assert reason in " ".join(said.split())
    assert not (tmp_path / "out").exists()


SITES = ("north", "south")
BY_NAME = dict(zip(["x0", "x1"], BOUNDS.values(), strict=True))


@pytest.fixture
def sites(tmp_path: Path) -> ByHand:
    """Sites with budgets, whose ledgers are in folders of their names."""
    made = {}
    for name in SITES:
        (folder := tmp_path / name).mkdir()
        made[name] = responder(folder, Client(name, Data(ROWS)), Budget(2.0, 1e-6), steps=STEPS)
    return ByHand(**made)


def fit_over(sites: ByHand, k: int, epsilon: float) -> JobReport:
    remote = RemoteEngine(sites, SITES)
    remote.choose_publicly(["x0", "x1"])
    report = execute(fit_of(k, epsilon=epsilon, bounds=BY_NAME), remote, columns=["x0", "x1"])
    assert not remote.refusals
    return report


@pytest.mark.parametrize(("first", "second"), [(1.5, 1.5), (2.0, 0.1), (0.0, 2.5)])
def test_a_run_that_a_budget_would_end_asks_nothing(tmp_path, sites, first, second):
    """What it had spent until then would be lost; what is left is said, and is enough."""
    if first:
        fit_over(sites, 2, first)
    before = [len(ledger(tmp_path / name).charges) for name in SITES]
    with pytest.raises(InputError, match=r"site 'north' has epsilon .* nothing was asked") as error:
        fit_over(sites, 2, second)
    assert [len(ledger(tmp_path / name).charges) for name in SITES] == before
    left = float(re.findall(r"has epsilon (\S+) left", str(error.value))[0])
    assert left < second
    if left:
        report = fit_over(sites, 2, left)
        assert report.privacy is not None
        assert report.privacy.epsilon <= left
        assert [told.n_rows for told in report.sites] == [None, None]
        assert 1.97 < ledger(tmp_path / "south").spent <= 2.0


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """A federation whose sites have budgets, and are asked in this process."""
    folder = tmp_path / "trial"
    create(folder, SITES, "cluster.example.org:8443")
    for name, rows in zip(SITES, np.array_split(ROWS, 2), strict=True):
        home = folder / "sites" / name
        lines = [f"{x!r},{y!r}" for x, y in rows.tolist()]
        (home / "rows.csv").write_text("\n".join(["age,bmi", *lines, "", ""]))
        toml = (home / "site.toml").read_text().replace('protection = "groups"', "")
        (home / "site.toml").write_text(toml + "\n[privacy]\nepsilon = 2.0\ndelta = 1e-6\n")
    return folder


def homes(trial: Path) -> list[SiteFile]:
    return [SiteFile.load(trial / "sites" / name / "site.toml") for name in SITES]


@pytest.fixture
def asked(trial: Path) -> Iterator[RemoteEngine]:
    """The programs of the sites, each with its rows in a process of its own."""
    with ExitStack() as stack:
        programs = {site.name: stack.enter_context(started(site)) for site in homes(trial)}
        yield RemoteEngine(ByHand(**programs), programs)


def content_of(job: Any, out: Path, n_rows: int) -> dict[str, Any]:
    told = {"job": "fit", "parameters": asdict(job), "columns": None, "out": str(out)}
    return told | {"sites": [*SITES], "rows": dict.fromkeys(SITES, n_rows)}


def test_a_private_job_from_its_plan_to_the_files_of_all(trial, asked, tmp_path):
    """By the ranges of columns and the rows that the federation states."""
    content = content_of(fit_of(3, epsilon=2.0, bounds=None), tmp_path / "out", 2000)
    content |= {"ranges": BOUNDS | {"salary": (0.0, 9e5)}, "columns": ["bmi", "age"]}
    content = json.loads(json.dumps(content))
    done = run_job(asked, content, tmp_path / "run")
    assert done["model_at"] == [*SITES]
    assert done["privacy"]["epsilon"] <= 2.0
    found = Model.load(tmp_path / "out")
    assert found.columns == ("bmi", "age")
    centers = np.array(list(found.centers_in_units.values()))[::-1].T
    assert np.abs(centers[:, None] - MIDDLES).sum(axis=2).min(axis=0).max() < 5
    for home in homes(trial):
        kept, folder = site_budget(home), home.path.parent
        assert kept is not None
        assert 1.99 < kept.spent <= 2.0
        labelled(folder)
        assert (folder / "results" / "labels.csv").exists()
        lines = read_log(site_log(home, Membership.from_site_file(home)).path)
        noises = [each["noise"] for line in lines for each in line.get("tasks", ())]
        assert len(noises) == len(kept.charges)
        assert min(noises) > 0
    status, said = invoke("site", "log", trial / "sites" / "north" / "site.toml")
    assert status == 0
    assert "noise multiplier" in said


def test_too_few_stated_rows_spend_nothing(trial, asked, tmp_path):
    content = content_of(fit_of(3, epsilon=0.05, bounds=BOUNDS), tmp_path / "out", 100)
    with pytest.raises(InputError, match="200 rows are too few"):
        run_job(asked, content, tmp_path / "run")
    for home in homes(trial):
        kept = site_budget(home)
        assert kept is not None
        assert (kept.spent, len(kept.charges)) == (0.0, 0)
