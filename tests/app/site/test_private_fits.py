"""Fits under a privacy budget: in process, by the commands and over a network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from federations import labelled
from numpy.typing import NDArray
from test_budget import ByHand, ledger, responder
from typed import invoke

from benchmarks.canaries import Understated, lower_bound, mechanism
from fedcluster import FederatedKMeans, Model
from fedcluster.core import Data, Sensitive, State, Task, on_grid
from fedcluster.core.ranges import allowed_of
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.engines.wire import STEPS, step_of
from fedcluster.errors import InputError, SiteError, UnlikeRowsWarning
from fedcluster.jobs import JobReport, execute, fit_of
from fedcluster.privacy import Groups
from fedcluster.privacy.budget import Budget
from fedcluster.recipes.private import AccountedEngine
from fedcluster_app.coordinator.folder import create
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership, site_budget, site_log, site_responder
from fedcluster_app.trust.audit_log import read_log
from fedcluster_app.wire.remote import RemoteEngine

pytestmark = pytest.mark.usefixtures("short_searches")

RNG = np.random.default_rng(0)
MIDDLES = np.array([[2.0, 30.0], [8.0, 30.0], [5.0, 70.0]])
ROWS = MIDDLES[RNG.integers(0, 3, 3000)] + RNG.normal(0, [0.4, 3.0], (3000, 2))
BOUNDS = {"age": (0.0, 10.0), "bmi": (0.0, 100.0)}
LOW, HIGH = [0.0, 0.0], [10.0, 100.0]


def model(**more: Any) -> FederatedKMeans:
    given: dict[str, Any] = {
        "n_clusters": 3,
        "epsilon": 2.0,
        "bounds": (LOW, HIGH),
        "random_state": 0,
    }
    return FederatedKMeans(**given | more)


def in_units(fitted: Any) -> NDArray[np.float64]:
    """The centres in the order of `MIDDLES`."""
    centers = np.asarray(fitted.cluster_centers_)
    return centers[[int(((centers - middle) ** 2).sum(axis=1).argmin()) for middle in MIDDLES]]


# In process


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


def test_two_fits_with_one_seed_have_other_noise():
    first, second = (model().fit(ROWS) for _ in range(2))
    assert (first.cluster_centers_ != second.cluster_centers_).all()


def test_without_epsilon_nothing_is_spent_and_nothing_changes():
    plain = FederatedKMeans(3, random_state=0).fit(ROWS)
    assert plain.privacy_ is None
    assert "privacy" not in Model.from_estimator(plain).plain()


def test_the_rows_given_are_not_changed():
    rows = ROWS.copy()
    model(bounds=([1.0, 10.0], [2.0, 20.0])).fit(rows)
    assert rows.tobytes() == ROWS.tobytes()


def test_the_model_keeps_what_was_spent(tmp_path):
    fitted = model().fit(ROWS)
    fitted.save(tmp_path / "model.json")
    again = Model.load(tmp_path / "model.json")
    assert fitted.privacy_ is not None
    assert dict(again.privacy) == fitted.privacy_.plain()
    assert (again.predict(ROWS) == fitted.labels_).all()
    content = json.loads((tmp_path / "model.json").read_text())
    content["privacy"]["epsilon"] = "none"
    (tmp_path / "model.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"privacy.epsilon must be a number, not 'none'"):
        Model.load(tmp_path / "model.json")


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (
            {"n_clusters": "auto"},
            "a choice of n_clusters is for other fits, not for a privacy budget",
        ),
        ({"min_cluster_size": 5}, "limits hold nothing back"),
        ({"protection": Groups()}, "groups of rows and noise do not go together"),
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


def test_too_few_rows_are_refused_before_anything_is_asked():
    with pytest.raises(InputError, match=r"rows are too few for 3 clusters with epsilon 0\.1"):
        model(epsilon=0.1).fit(ROWS[:200])


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


BOUNDED = [name for name, step in STEPS.items() if hasattr(step_of(step), "sensitivity")]


def states(name: str, d: int, rng: np.random.Generator) -> list[State]:
    """States that the policy lets a coordinator ask about, some of them far out."""
    k = 5
    far = [rng.uniform(-1, 1, (k, d)), np.zeros((k, d)), 1e9 * rng.normal(size=(k, d))]
    every = [State.at(centers) for centers in far]
    radii = [np.full(k, 1e-6), np.full(k, 0.3), np.full(k, 1e9)]
    every += [State(c, np.zeros(k), memory={"radius": r}) for c in far for r in radii]
    return every


@pytest.mark.parametrize("name", BOUNDED)
def test_no_record_changes_an_answer_by_more_than_its_sensitivity(name):
    """Fresh rows and states, the corners of the box among them, as an opponent would choose."""
    rng = np.random.default_rng()
    tried = 0
    np.seterr(over="ignore", divide="ignore")
    for d in (1, 2, 7):
        corners = rng.choice([-1.0, 1.0], (20, d))
        rows = on_grid(np.concatenate([rng.uniform(-1, 1, (40, d)), corners, np.zeros((1, d))]))
        for state in (State(), *states(name, d, rng)):
            step = step_of(STEPS[name])()
            try:
                allowed_of(step).check_state(state, {"max_clusters": 500, "d": d})
                bounds = step.sensitivity(state, d)
                whole = step.client_step(state, Data(rows), rng)
            except (ValueError, LookupError, IndexError):
                continue
            for i in rng.choice(len(rows), 12, replace=False):
                less = step.client_step(state, Data(np.delete(rows, i, axis=0)), rng)
                sums, weights = whole.sums - less.sums, whole.weights - less.weights
                assert np.linalg.norm(sums) <= bounds.sums * (1 + 1e-12)
                assert np.linalg.norm(weights) <= bounds.weights * (1 + 1e-12)
                tried += 1
    assert isinstance(step_of(STEPS[name])(), Sensitive)
    assert tried or name in NEED_MEMORY


NEED_MEMORY = {name for name in BOUNDED if name in ("GridCells", "HashedCells", "BallScatter")}
"""Steps whose states have a memory of their own; their own tests hold them to their bounds."""


# The audit


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_no_audit_shows_more_than_the_stated_epsilon(epsilon):
    """A small one; ``benchmarks/canaries.py`` is the whole, with the recipe."""
    assert mechanism(epsilon, 100) <= epsilon


def test_an_audit_notices_a_sensitivity_that_is_stated_too_small():
    assert mechanism(1.0, 400, Understated()) > 1.0


def test_a_bound_is_that_of_clopper_and_pearson():
    """By hand: 500 of 500 right, none of 500 wrong; each rate's bound holds at 97.5 %."""
    rate = 0.025 ** (1 / 500)
    assert lower_bound(np.zeros(1000), np.ones(1000)) == pytest.approx(
        np.log((rate - 1e-6) / (1 - rate))
    )


# The commands


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
        ((*BUDGETED, "--scale", "robust"), "--scale is for other fits, not for a privacy budget"),
        ((*BUDGETED, "--missing", "mean"), "--missing is for other fits, not for a privacy budget"),
        (
            (*BUDGETED, "--set", "prepare.pca=1"),
            "prepare.pca is for other fits, not for",
        ),
        ((*BUDGETED, "--profile"), "--profile is for other fits, not for a privacy budget"),
        ((*BUDGETED, "--set", "fit.group_size=0"), "fit.group_size must be at least 1"),
        ((*BUDGETED, "--min-cluster-size", "5"), "limits hold nothing back"),
    ],
)
def test_the_command_refuses_what_would_see_the_rows(files, tmp_path, more, reason):
    status, said = invoke(
        "fit", *files, "-k", 3, "--out", tmp_path / "out", "--columns", "age,bmi", *more
    )
    assert status
    assert reason in " ".join(said.split())
    assert not (tmp_path / "out").exists()


# Over a network


def site(tmp_path: Path, name: str, epsilon: float = 2.0) -> Any:
    folder = tmp_path / name
    folder.mkdir()
    given = Client(name, Data(ROWS))
    return responder(folder, given, Budget(epsilon, 1e-6), steps=STEPS)


def test_sites_with_a_budget_are_asked_with_noise_and_nothing_else(tmp_path):
    post = ByHand(**{name: site(tmp_path, name) for name in ("north", "south")})
    remote = RemoteEngine(post, ["north", "south"])
    remote.choose_publicly(["x0", "x1"])
    bounds = dict(zip(["x0", "x1"], BOUNDS.values(), strict=True))
    job = fit_of(3, epsilon=2.0, bounds=bounds)
    report = execute(job, remote, columns=["x0", "x1"])
    assert not remote.refusals
    assert report.privacy is not None
    assert report.privacy.epsilon <= 2.0
    assert [told.n_rows for told in report.sites] == [None, None]
    with pytest.raises(InputError, match=r"'north' has epsilon 0 left .* nothing was asked"):
        execute(job, remote, columns=["x0", "x1"])  # of the next run nothing is left


@pytest.mark.parametrize(("first", "second"), [(1.5, 1.5), (2.0, 0.1), (0.0, 2.5)])
def test_a_run_that_a_budget_would_end_asks_nothing(tmp_path, first, second):
    """What it had spent until then would be lost; what is left is said, and is enough."""
    post = ByHand(**{name: site(tmp_path, name) for name in ("north", "south")})

    def fit(epsilon: float) -> JobReport:
        remote = RemoteEngine(post, ["north", "south"])
        remote.choose_publicly(["x0", "x1"])
        bounds = dict(zip(["x0", "x1"], BOUNDS.values(), strict=True))
        return execute(fit_of(2, epsilon=epsilon, bounds=bounds), remote, columns=["x0", "x1"])

    if first:
        fit(first)
    before = [len(ledger(tmp_path / name).charges) for name in ("north", "south")]
    with pytest.raises(InputError, match=r"site 'north' has epsilon .* nothing was asked") as error:
        fit(second)
    assert [len(ledger(tmp_path / name).charges) for name in ("north", "south")] == before
    left = float(re.findall(r"has epsilon (\S+) left", str(error.value))[0])
    assert left < second
    if left:
        assert fit(left).privacy is not None
        assert 1.97 < ledger(tmp_path / "south").spent <= 2.0


def test_a_plain_fit_is_refused_by_sites_with_a_budget(tmp_path):
    remote = RemoteEngine(ByHand(north=site(tmp_path, "north")), ["north"])
    with pytest.raises(InputError, match="under a privacy budget, every answer needs noise"):
        execute(fit_of(3), remote, columns=["x0", "x1"])


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """A federation whose sites have budgets, and are asked in this process."""
    folder = tmp_path / "trial"
    create(folder, ["north", "south"], "cluster.example.org:8443")
    for name, rows in zip(("north", "south"), np.array_split(ROWS, 2), strict=True):
        home = folder / "sites" / name
        lines = [f"{x!r},{y!r}" for x, y in rows.tolist()]
        (home / "rows.csv").write_text("\n".join(["age,bmi", *lines, "", ""]))
        toml = (home / "site.toml").read_text().replace('protection = "groups"', "")
        (home / "site.toml").write_text(toml + "\n[privacy]\nepsilon = 2.0\ndelta = 1e-6\n")
    return folder


@pytest.fixture
def asked(trial: Path) -> Iterator[RemoteEngine]:
    """The programs of the sites, each with its rows in a process of its own."""
    programs = {}
    for name in ("north", "south"):
        site = SiteFile.load(trial / "sites" / name / "site.toml")
        programs[name] = site_responder(site, Membership.from_site_file(site), lambda line: None)
    yield RemoteEngine(ByHand(**programs), programs)
    for program in programs.values():
        program.end("the test is over")


def check_spent(home: SiteFile) -> None:
    """Hold the ledger of a site against its log."""
    ledger, folder = site_budget(home), home.path.parent
    assert ledger is not None
    assert 1.99 < ledger.spent <= 2.0
    labelled(folder)
    assert (folder / "results" / "labels.csv").exists()
    lines = read_log(site_log(home, Membership.from_site_file(home)).path)
    tasks = [each for line in lines for each in line.get("tasks", ())]
    assert len(tasks) == len(ledger.charges)
    assert all(each["noise"] > 0 for each in tasks)


def content_of(job: Any, out: Path, n_rows: int) -> dict[str, Any]:
    told = {"job": "fit", "parameters": asdict(job), "columns": None, "out": str(out)}
    return told | {"sites": ["north", "south"], "rows": {"north": n_rows, "south": n_rows}}


def test_a_private_job_from_its_plan_to_the_files_of_all(trial, asked, tmp_path):
    """By the ranges of columns and the rows that the federation states."""
    from fedcluster_app.coordinator.run_job import run_job

    content = content_of(fit_of(3, epsilon=2.0, bounds=None), tmp_path / "out", 2000)
    content |= {"ranges": BOUNDS | {"salary": (0.0, 9e5)}, "columns": ["bmi", "age"]}
    content = json.loads(json.dumps(content))
    done = run_job(asked, content, tmp_path / "run")
    assert done["model_at"] == ["north", "south"]
    assert done["privacy"]["epsilon"] <= 2.0
    kept = Model.load(tmp_path / "out")
    assert kept.columns == ("bmi", "age")
    centers = np.array(list(kept.centers_in_units.values()))[::-1].T
    assert np.abs(centers[:, None] - MIDDLES).sum(axis=2).min(axis=0).max() < 5
    for name in ("north", "south"):
        check_spent(SiteFile.load(trial / "sites" / name / "site.toml"))
    status, said = invoke("site", "log", trial / "sites" / "north" / "site.toml")
    assert status == 0
    assert "noise multiplier" in said


def test_too_few_stated_rows_spend_nothing(trial, asked, tmp_path):
    from fedcluster_app.coordinator.run_job import run_job

    content = content_of(fit_of(3, epsilon=0.05, bounds=BOUNDS), tmp_path / "out", 100)
    with pytest.raises(InputError, match="200 rows are too few"):
        run_job(asked, content, tmp_path / "run")
    for name in ("north", "south"):
        ledger = site_budget(SiteFile.load(trial / "sites" / name / "site.toml"))
        assert ledger is not None
        assert (ledger.spent, len(ledger.charges)) == (0.0, 0)


def test_noise_of_every_site_is_its_own():
    engine = LocalEngine(Client(name, Data(ROWS), ()) for name in ("a", "b"))
    bounds = dict(zip(["x0", "x1"], BOUNDS.values(), strict=True))
    seen: list[Any] = []

    class Spy:
        introduce = staticmethod(engine.introduce)

        def ask(self, tasks: Any, sites: Any = None) -> Any:
            seen.extend(answers := engine.ask(tasks, sites))
            return answers

    execute(fit_of(3, epsilon=2.0, bounds=bounds), Spy(), columns=["x0", "x1"])
    for answers in seen:
        first, second = answers.summaries
        assert (first.weights != second.weights).all()


def test_a_loaded_estimator_knows_what_was_spent(tmp_path):
    fitted = model().fit(ROWS)
    fitted.save(tmp_path / "model.json")
    assert FederatedKMeans.load(tmp_path / "model.json").privacy_ == fitted.privacy_
