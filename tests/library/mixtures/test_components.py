"""The search for a likelier mixture: starts from leaves, and children of two runs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as PooledMixture
from sklearn.preprocessing import StandardScaler

from fedcluster import FederatedGaussianMixture
from fedcluster.algorithms import GaussianMixture
from fedcluster.core import Data, State, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.jobs import execute, fit_of
from fedcluster.metrics.gaussians import drawn
from fedcluster.recipes._mixtures import (
    CHILDREN,
    FIRST,
    GAIN,
    POPULATION,
    ROUNDS,
    added,
    bred,
    crossed,
    distinct,
    moved,
    search,
    split,
    supported,
)
from fedcluster.recipes._search import race
from fedcluster.rounds import run, run_plan

RNG = np.random.default_rng(0)
CENTERS = np.array([(x, y) for x in (0.0, 8.0, 16.0) for y in (0.0, 8.0)])
ROWS = np.repeat(CENTERS, 40, axis=0) + RNG.normal(size=(240, 2))
TEXTS = np.array([0.0, 1.0, 1.0])

every_type = pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])


def engine(X: np.ndarray = ROWS) -> LocalEngine:
    return LocalEngine([Client(str(i), Data(X[i::2])) for i in range(2)])


def begun(step: GaussianMixture, places: Sequence[int], X: np.ndarray = ROWS) -> State:
    """A run of two rounds that started at some of the rows."""
    about: dict[str, Any] = {"texts": TEXTS} if step.levels else {}
    start = step.start(X[list(places)], **about)
    return run(step, engine(X), start, max_rounds=2).state


@every_type
@pytest.mark.parametrize("noise", [None, -6.0])
def test_children_are_states_that_a_site_may_be_asked_about(kind: Any, noise: float | None) -> None:
    levels = RNG.integers(0, 2, 240)
    X = np.column_stack([ROWS[:, 0], levels, 1 - levels]).astype(float)
    step = GaussianMixture(kind, log_noise=noise, levels=True)
    parents = [begun(step, places, X) for places in ([0, 90, 180], [10, 130, 230])]
    sizes = {"k": 3, "d": 3, "one": 1}
    for _ in range(40):
        child = bred(step, parents, State.at(X[::7]), RNG)
        assert np.isfinite(child.centers).all()
        assert (child.weights >= 0).all()
        assert child.memory.keys() == step.allowed.memory.keys()
        assert all(
            step.allowed.memory[name].holds(array, sizes) for name, array in child.memory.items()
        )
        [answer] = run_plan(one_round(step, child), engine(X)).value
        assert np.isfinite(answer.total().sums).all()


def one_round(step: GaussianMixture, state: State) -> Any:
    return (yield [Task(step, state)])


def test_a_child_has_one_of_each_pair_and_what_belongs_to_it() -> None:
    step = GaussianMixture("diag")
    one = step.start(np.array([[0.0], [9.0]]), np.array([1.0, 2.0]))
    one = replace(one, memory={"precisions_cholesky": np.array([[1.0], [2.0]])})
    other = step.start(np.array([[8.0], [1.0]]), np.array([3.0, 4.0]))
    other = replace(other, memory={"precisions_cholesky": np.array([[3.0], [4.0]])})
    seen = set()
    for _ in range(40):
        child = crossed(step, one, other, RNG)
        factors = child.memory["precisions_cholesky"].ravel().tolist()
        seen.add((*child.centers.ravel().tolist(), *child.weights.tolist(), *factors))
    assert seen == {
        (0.0, 9.0, 1.0, 2.0, 1.0, 2.0),
        (0.0, 8.0, 1.0, 3.0, 1.0, 3.0),
        (1.0, 9.0, 4.0, 2.0, 4.0, 2.0),
        (1.0, 8.0, 4.0, 3.0, 4.0, 3.0),
    }
    assert one.weights.tolist() == [1.0, 2.0]


def test_what_all_components_share_is_that_of_the_first_parent() -> None:
    step = GaussianMixture("tied")
    one, other = begun(step, [0, 90]), begun(step, [130, 200])
    for _ in range(10):
        child = crossed(step, one, other, RNG)
        np.testing.assert_array_equal(
            child.memory["precisions_cholesky"], one.memory["precisions_cholesky"]
        )


@every_type
def test_halves_lie_on_both_sides_and_weigh_what_it_weighed(kind: Any) -> None:
    step = GaussianMixture(kind)
    state = begun(step, [0, 90, 180])
    state = replace(state, weights=np.array([0.0, 0.0, 240.0]))
    halved = split(step, state, 0, RNG)
    np.testing.assert_allclose(halved.centers[[0, 2]].mean(axis=0), state.centers[2])
    assert np.abs(halved.centers[0] - state.centers[2]).max() > 0
    assert halved.weights.tolist() == [120.0, 0.0, 120.0]
    np.testing.assert_array_equal(halved.centers[1], state.centers[1])


@every_type
def test_a_drawn_row_has_the_covariance_of_its_component(kind: Any) -> None:
    step = GaussianMixture(kind)
    state = begun(step, [0, 90, 180])
    rows = drawn(step, state, 1, 20_000, RNG)
    factors = state.memory["precisions_cholesky"]
    factor = factors if kind == "tied" else factors[1]
    root = factor if factor.ndim == 2 else np.diag(np.broadcast_to(factor, 2))
    expected = np.linalg.inv(root @ root.T)
    np.testing.assert_allclose(np.cov(rows.T), expected, atol=0.06 * expected.max())
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=0.04 * np.sqrt(expected.max()))


def test_a_component_is_added_at_a_mean_of_the_rows() -> None:
    step = GaussianMixture("spherical")
    state = begun(step, [0, 90, 180])
    means = State(np.array([[40.0, 40.0]]), np.array([7.0]))
    more = added(step, state, 1, means, RNG)
    assert more.centers[1].tolist() == [40.0, 40.0]
    nearest = np.argmin(((state.centers[[0, 2]] - 40.0) ** 2).sum(axis=1)) * 2
    factors = more.memory["precisions_cholesky"]
    assert factors[1] == factors[nearest]
    assert more.weights[1] == np.clip(7.0, more.weights[nearest] / 10, more.weights[nearest] / 2)


def test_weight_that_is_removed_goes_to_the_nearest() -> None:
    step = GaussianMixture("spherical")
    state = begun(step, [0, 90, 180])
    for _ in range(20):
        assert moved(step, state, State(), RNG).weights.sum() == pytest.approx(240.0)


@every_type
def test_what_starts_at_the_wrong_places_is_found_by_children(kind: Any) -> None:
    """Three starts with two components in one cloud, and none in another, end there alone."""
    step = GaussianMixture(kind)
    wrong = [[0, 1, 41, 82, 125, 165], [0, 40, 41, 121, 161, 201], [2, 80, 120, 160, 161, 201]]
    starts = [step.start(ROWS[places]) for places in wrong]
    alone = run_plan(race(step, starts, max_rounds=100), engine()).value
    best = run_plan(search(step, starts, State.at(ROWS[::5])), engine()).value
    right = run(step, engine(), step.start(CENTERS), max_rounds=100).state
    assert alone[0].state.inertia > right.inertia + 40
    assert best.state.inertia < right.inertia + 1
    assert "best of 3 starts and their crossings" in best.reason


@pytest.mark.parametrize("most", [1, 3, 8, 12, 13, 20, 40])
def test_a_search_takes_no_more_rounds_than_it_may(most: int) -> None:
    step = GaussianMixture(tol=0.0)
    starts = [step.start(ROWS[[i, i + 50, i + 100]]) for i in (0, 20, 40)]
    outcome = run_plan(search(step, starts, State(), max_rounds=most), engine())
    assert len(outcome.communication_rounds) == most
    assert len(outcome.value.history) <= most
    bred_ = [len(done.steps) for done in outcome.communication_rounds]
    assert max(bred_) <= POPULATION + CHILDREN


def test_there_are_no_more_children_where_two_generations_gain_nothing() -> None:
    step = GaussianMixture("spherical")
    outcome = run_plan(search(step, [step.start(CENTERS)] * 2, State()), engine())
    children = [done for done in outcome.communication_rounds if len(done.steps) >= CHILDREN]
    assert 0 < len(children) <= 2 * ROUNDS
    assert len(outcome.communication_rounds) <= max(FIRST) + 2 * ROUNDS + 2


def many(apart: float, n: int = 6000, d: int = 3) -> np.ndarray:
    """Rows of four clouds, about points that are ``apart`` deviations from each other."""
    rng = np.random.default_rng(3)
    points = apart * rng.normal(size=(4, d))
    return points[rng.integers(4, size=n)] + rng.normal(size=(n, d))


@every_type
def test_one_start_is_enough_where_all_mixtures_of_leaves_agree(kind: Any) -> None:
    X = np.repeat(CENTERS, 1000, axis=0) + np.random.default_rng(0).normal(size=(6000, 2))
    model = FederatedGaussianMixture(6, covariance_type=kind, random_state=0).fit(X)
    assert "starts" not in model.stop_reason_
    assert model.n_iter_ <= 8
    assert sorted(map(tuple, model.means_.round())) == sorted(map(tuple, CENTERS))


@every_type
@pytest.mark.parametrize(("apart", "d"), [(2.0, 3), (0.0, 3), (1.0, 40)])
def test_of_many_rows_it_is_as_likely_as_the_best_of_five_pooled_starts(kind, apart, d):
    """In 40 columns, leaves have no products of columns."""
    X = many(apart, d=d)
    pooled = PooledMixture(4, covariance_type=kind, n_init=5, random_state=0).fit(X)
    model = FederatedGaussianMixture(4, covariance_type=kind, random_state=0)
    model.fit(X, sites=np.arange(len(X)) % 3)
    assert model.score(X) > pooled.score(X) - 1e-4


@pytest.mark.parametrize("most", [1, 3, 12])
def test_a_race_over_many_rows_takes_no_more_rounds_than_it_may(most: int) -> None:
    model = FederatedGaussianMixture(9, tol=0.0, max_iter=most, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(many(0.0))
    assert len(model.history_) == most
    assert model.n_iter_ == 4 + most


@pytest.mark.parametrize(
    ("how", "leaves"),
    [
        ({}, True),
        ({"init": "sums"}, True),
        ({"sums_only": True}, True),
        ({"init": "summaries"}, False),
        ({"init": "random"}, False),
        ({"n_init": 2}, False),
        ({"init": ROWS[::40]}, False),
    ],
)
def test_a_start_that_is_stated_is_taken(how: dict[str, Any], leaves: bool) -> None:
    report = execute(fit_of(6, model="mixture", max_iter=2, **how), engine())
    asked = {step for done in report.outcome.communication_rounds for step in done.steps}
    assert ("LeafMoments" in asked) == leaves


def test_weights_of_any_size_lead_to_the_same_mixture() -> None:
    one = FederatedGaussianMixture(6, random_state=0).fit(ROWS, sample_weight=np.ones(240))
    small = FederatedGaussianMixture(6, random_state=0).fit(ROWS, sample_weight=np.full(240, 1e-3))
    np.testing.assert_allclose(one.means_, small.means_, atol=0.01)


@every_type
@pytest.mark.parametrize("n", [9, 5000])
def test_there_may_be_fewer_distinct_rows_than_components(kind: Any, n: int) -> None:
    rows = np.resize([[0.0, 0.0], [0.0, 0.0], [5.0, 1.0]], (n, 2))
    model = FederatedGaussianMixture(6, covariance_type=kind, random_state=0, max_iter=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(rows)
    assert np.isfinite(model.lower_bound_)
    assert set(model.means_[model.weights_ > 0.01].round()[:, 0]) == {0.0, 5.0}


@pytest.mark.thorough
def test_a_component_of_too_few_rows_is_not_searched_for() -> None:
    """Of wine, two of 13 columns' components would have 5 and 7 rows."""
    X = StandardScaler().fit_transform(load_wine().data)
    site = np.random.default_rng(5).integers(0, 5, len(X))
    model = FederatedGaussianMixture(3, random_state=0).fit(X, sites=site)
    assert (model.weights_ * len(X)).min() >= 14
    pooled = PooledMixture(3, n_init=10, random_state=0).fit(X)
    assert model.lower_bound_ > pooled.lower_bound_


@pytest.mark.parametrize(
    ("kind", "weights", "gained"),
    [
        ("full", [2.0, 60.0], 54 * (2 + 60 / 49)),
        ("full", [12.0, 60.0], 54 * (12 + 60 / 49)),  # barely more rows than 9 columns need
        ("full", [0.0, 60.0], 54 * 60 / 49),
        ("full", [1e9, 1e9], 54 * 2),  # the number of parameters of two means and covariances
        ("tied", [1.0, 60.0], 0),
        ("diag", [1.0, 60.0], 9 * GAIN),
        ("spherical", [2.0, 60.0], 0),
    ],
)
def test_what_too_few_rows_gain(kind: Any, weights: list[float], gained: float) -> None:
    state = State(np.zeros((2, 9)), np.array(weights), inertia=1.0)
    assert supported(GaussianMixture(kind), state) == pytest.approx(1.0 + gained)


def test_levels_alone_are_crossed_too() -> None:
    step = GaussianMixture("diag", levels=True)
    texts = np.array([1.0, 1.0, 2.0, 2.0])
    X = np.eye(2)[RNG.integers(0, 2, (240, 2))].reshape(240, 4)
    start = step.start(X[[0, 1]] * 0.8 + 0.1, texts=texts)
    state = run(step, engine(X), start, max_rounds=3).state
    child = moved(step, state, State(), RNG)
    assert child.memory["shares"].shape == (2, 4)
    np.testing.assert_array_equal(child.memory["texts"], texts)


def test_of_mixtures_that_differ_by_rounding_the_first_is_a_parent() -> None:
    """They number their components differently, and what is drawn next goes on from one."""
    told = [(0.0, 3.0), (1.0, 2.0), (2.0, 2.0 - 1e-15)]
    states = [replace(State.at(np.array([[x]])), inertia=j) for x, j in told]
    found = distinct(GaussianMixture(), states)
    assert [float(state.centers[0, 0]) for state in found] == [1.0, 0.0]
