"""Rows in each pair of clusters of two models: exact counts, and no more than any count tells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedcluster import Client, Data, LocalEngine
from fedcluster.algorithms import FFCM, Lloyd
from fedcluster.core import Column, State, Task
from fedcluster.errors import PolicyError, SiteError
from fedcluster.jobs import Evaluate, execute, fit_of, model_of, procedure_of
from fedcluster.metrics.external import Agreement
from fedcluster.metrics.moments import row_weights
from fedcluster.model import Model
from fedcluster.model.assigned_rows import AssignedRows, CrossedRows, row_transform
from fedcluster.model.stability import Crossing
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.privacy import Groups, MinClusterSize
from fedcluster.recipes.profiling import assigned_rows, crossed
from fedcluster.rounds import run_plan
from fedcluster_app.report.job_files import content_of
from fedcluster_app.wire.policy import Policy, PolicyLimits

pytestmark = pytest.mark.usefixtures("short_searches")

COLUMNS = (Column("x"), Column("y"), Column("town", "text", ("A", "B")))


def rows(seed: int, *, gaps: bool = True) -> Data:
    rng = np.random.default_rng(seed)
    kind = rng.integers(3, size=60)
    X = np.c_[rng.normal(4.0 * kind), rng.normal(-3.0 * kind), rng.integers(2, size=60)]
    if gaps:
        X[rng.choice(60, 7, replace=False), 0] = np.nan
        X[rng.choice(60, 5, replace=False), 1] = np.nan
    return Data(X, rng.integers(1, 4, size=60).astype(float), columns=COLUMNS)


def fitted(columns: tuple[str, ...], **how: Any) -> Model:
    engine = LocalEngine(
        Client(name, rows(seed, gaps=False)) for name, seed in (("a", 5), ("b", 6))
    )
    prepare = PreprocessingSpec(columns=columns, **how.pop("prepare", {}))
    return model_of(execute(fit_of(how.pop("k", 3), prepare=prepare, **how), engine))


MEAN = {"missing": "mean"}
MODELS = {
    "trimmed": lambda: fitted(("x", "y"), trim=0.1, prepare=MEAN),
    "any shape": lambda: fitted(("x", "y"), k="auto", model="merged", prepare=MEAN),
    "texts": lambda: fitted(("x", "y", "town"), prepare=MEAN),
    "fewer columns": lambda: fitted(("y",), k=4, prepare={"missing": "drop"}),
    "mixture": lambda: fitted(("x", "y"), k=2, model="mixture", prepare=MEAN),
    "gaps": lambda: fitted(("x", "y"), k=2, prepare={"missing": "ignore"}),
    "as they are": lambda: Model(np.array([[0.0, 0.0], [7.0, -6.0]]), np.ones(2), ("x", "y")),
}
SITES = {"north": rows(1), "south": rows(2)}
BOTH = LocalEngine(Client(site, each) for site, each in SITES.items())


@pytest.mark.parametrize("name", MODELS)
def test_pairs_are_those_of_predicted_rows(name: str) -> None:
    """By weight; a row that a preparation drops or that is trimmed is of no cluster."""
    one, other = MODELS["fewer columns"](), MODELS[name]()
    engine = LocalEngine(Client(site, each, [MinClusterSize(1)]) for site, each in SITES.items())
    for first, second in ((one, other), (other, one)):
        report = execute(Evaluate(first, n_references=0, beside=second), engine)
        table = np.zeros((len(first.weights) + 1, len(second.weights) + 1))
        for each in SITES.values():
            np.add.at(table, (labels(first, each), labels(second, each)), row_weights(each))
        assert report.beside is not None
        np.testing.assert_array_equal(report.beside.rows, table)
        assert report.beside.weight == table.sum() == sum(s.weight or 0 for s in report.sites)
        assert len(report.outcome.communication_rounds) == 2


def labels(model: Model, data: Data) -> Any:
    """The cluster of each row, -1 for none."""
    how = replace(model.by_name, missing="drop" if not model.has_gaps else "ignore")
    return model.assignment.labels(how.aligned(data))


def test_scores_beside_another_model_are_those_without_it_at_the_cost_of_the_pairs() -> None:
    model = MODELS["texts"]()
    alone, both, plain = (
        execute(Evaluate(model, n_references=0, profile=True, beside=each), BOTH)
        for each in (None, MODELS["gaps"](), MODELS["as they are"]())
    )
    assert alone.outcome.value == both.outcome.value
    assert content_of(both)["profiles"] == content_of(alone)["profiles"]
    assert alone.beside is None
    sent, before = plain.outcome.values_sent(), alone.outcome.values_sent()
    assert max(sent[site] - before[site] for site in SITES) <= 4 * 3 + 1
    assert Agreement(4).answer_shape(State.at(np.zeros((3, 1))), 1) == (12, 0)
    told = procedure_of(Evaluate(model, beside=MODELS["mixture"]())).steps()
    names = {step.__name__ if isinstance(step, type) else type(step).__name__ for step in told}
    assert {"Agreement", "Lloyd", "GaussianMixture"} <= names


def two_halves(edge: float) -> AssignedRows:
    """Rows below and above an edge."""
    return assigned_rows(State.at(np.array([[edge - 1.0], [edge + 1.0]])), None, None)


EDGES = np.linspace(-1.5, 1.5, 31)
NORMAL = Data(np.random.default_rng(3).normal(size=(60, 1)))


def test_pairs_of_models_that_differ_by_little_tell_less_than_a_step_of_k_means() -> None:
    """Limits hold back a line of few rows, and differences of lines tell the same rows in both."""
    engine = LocalEngine([Client("north", NORMAL, [MinClusterSize(5)])])
    for edge in EDGES[::2]:
        crossing = run_plan(crossed(two_halves(-5.0), two_halves(edge)), engine).value
        [step] = engine.ask([Task(Lloyd(), State.at(np.array([[edge - 1.0], [edge + 1.0]])))])
        assert np.array_equal(crossing.rows[1, :2], step.total().weights)
        for moved in EDGES[::6]:
            both = run_plan(crossed(two_halves(edge), two_halves(moved)), engine).value
            assert ((both.rows == 0) | (both.rows >= 5)).all()


def test_no_difference_of_pairs_is_about_fewer_rows_than_a_group() -> None:
    engine = LocalEngine([Client("north", NORMAL, [], Groups(5, scale="none"))])
    least = np.inf
    for one in EDGES[::10]:
        tables = [
            run_plan(crossed(two_halves(one), two_halves(other)), engine).value.rows
            for other in EDGES
        ]
        steps = np.diff([table[:2, 0] for table in tables], axis=0)  # rows between two edges
        least = min(least, steps[steps != 0].min())
    assert least >= 5


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    ("bad", "denied", "reason"),
    [
        (AssignedRows(None, Task(Lloyd(), State.at(np.full((2, 1), 1e200)))), (), "Lloyd: centers"),
        (AssignedRows(None, Task(FFCM(), State.at(np.ones((2, 1))))), ("FFCM",), "FFCM: the step"),
        (two_halves(0.0), ("Agreement",), "Agreement: the step"),
    ],
)
def test_a_site_checks_both_assignments_and_the_count(bad, denied, reason, place):
    both = [two_halves(0.0), two_halves(1.0)]
    both[place] = bad
    [task, _] = next(crossed(*both))
    with pytest.raises(PolicyError, match=reason):
        Policy(PolicyLimits(denied=denied)).check({"run": "r", "exchange": 1}, [task], width=1)


def test_a_transform_of_pairs_travels_and_holds_no_other_pairs() -> None:
    how = CrossedRows(two_halves(0.0), two_halves(1.0))
    assert row_transform(how.plain()) == how
    assert how != CrossedRows(two_halves(1.0), two_halves(0.0))
    nothing: dict[str, Any] = {"columns": [], "missing": "drop", "principal": None}
    stranges: list[list[Any]] = [[how.plain()] * 2, [two_halves(0.0).plain()], [nothing] * 2]
    for strange in stranges:
        with pytest.raises((LookupError, ValueError)):
            row_transform({"crossed": strange})


def test_what_is_hidden_or_of_no_cluster_is_said() -> None:
    crossing = Crossing(np.array([[20.0, 0, 3], [0, 0, 0], [8, 0, 0]]), 36.0)
    assert crossing.meaning[1:] == [
        "Rows in no cluster of the first model: 8.",
        "Rows in no cluster of the second model: 3.",
        "Not shown: 5 rows in pairs that are too small at their site for its limits.",
    ]
    nothing = Crossing(np.zeros((3, 3)), 4.0)
    assert nothing.meaning[0] == "No pair of clusters has enough rows at a site to be shown."


def test_a_model_that_says_nothing_of_columns_is_refused() -> None:
    lacking = Model(np.array([[0.0], [7.0]]), np.ones(2), ("z",))
    with pytest.raises(SiteError, match="there is no column 'z'"):
        execute(Evaluate(MODELS["texts"](), beside=lacking), BOTH)
