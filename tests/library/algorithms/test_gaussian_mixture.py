"""Federated EM: equal to scikit-learn's on pooled rows, by hand, with limits, groups and levels."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.mixture import GaussianMixture as PooledMixture

from fedcluster import Client, Data, LocalEngine, State, run
from fedcluster.algorithms import GaussianMixture
from fedcluster.algorithms.gaussian_mixture import ComponentSums, covariances, regularised
from fedcluster.core import Algorithm
from fedcluster.options.choices import COVARIANCES
from fedcluster.privacy import MinClusterSize

K, D = 3, 4
SHARES = np.array([0.2, 0.3, 0.5])
PRECISIONS = {
    "full": np.repeat(np.diag([0.5, 0.25, 1.0, 0.5])[None], K, axis=0),
    "tied": np.diag([0.5, 0.25, 1.0, 0.5]),
    "diag": np.full((K, D), 0.5),
    "spherical": np.full(K, 0.5),
}
every_type = pytest.mark.parametrize("kind", COVARIANCES)


def rows(seed: int = 0, n: int = 240) -> np.ndarray:
    """Three correlated clouds that overlap; an offset of 2^20 leaves all digits of a row.

    Columns have variance 1 but for the last digits, by which ``reg_covar`` is scikit-learn's.
    """
    rng = np.random.default_rng(seed)
    clouds = [
        rng.normal(size=(n // K, D)) @ rng.normal(size=(D, D)) + 2 * rng.normal(size=D)
        for _ in range(K)
    ]
    X = rng.permutation(np.concatenate(clouds))
    return np.round((X - X.mean(axis=0)) / X.std(axis=0) * 2**30) / 2**30


def pooled(kind: str, X: np.ndarray, means: np.ndarray) -> PooledMixture:
    """Ten iterations of scikit-learn's."""
    start = {"weights_init": SHARES, "means_init": means, "precisions_init": PRECISIONS[kind]}
    return PooledMixture(K, covariance_type=kind, max_iter=10, tol=1e-300, **start).fit(X)


def start(em: GaussianMixture, means: np.ndarray, n: float) -> State:
    factors = np.sqrt(PRECISIONS[em.covariance_type])
    return em.start(means, SHARES * n, precisions_cholesky=factors)


def sites(*parts: Data, **how: Any) -> LocalEngine:
    return LocalEngine([Client(f"site {i}", part, **how) for i, part in enumerate(parts)])


def assert_same(state: State, model: PooledMixture, offset: float = 0.0) -> None:
    """Means, precisions, shares and the lower bound agree to 1e-9."""
    n = state.weights.sum()
    np.testing.assert_allclose(state.centers - offset, model.means_, rtol=1e-9, atol=1e-9)
    factors = state.memory["precisions_cholesky"]
    np.testing.assert_allclose(factors, model.precisions_cholesky_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state.weights / n, model.weights_, rtol=1e-9)
    np.testing.assert_allclose(-state.inertia / n, model.lower_bound_, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@every_type
@pytest.mark.parametrize(("split", "offset"), [(7, 0.0), (2, 2.0**20), (1, 0.0)])
def test_ten_iterations_are_scikit_learns_on_the_pooled_rows(kind, split, offset):
    """At 2^20 scikit-learn's squares lose digits; it is given the rows without the offset."""
    X, em = rows(split), GaussianMixture(kind, tol=0)
    means, parts = X[:K] + 0.25, [Data(X[i::split] + offset) for i in range(split)]
    ours = run(em, sites(*parts), start(em, means + offset, 240.0), max_rounds=10).state
    assert_same(ours, pooled(kind, X, means), offset)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@every_type
def test_a_start_without_precisions_takes_rows_for_their_nearest_centres(kind: str) -> None:
    """As scikit-learn starts from labels: the first step is its first M-step."""
    X, em = rows(7), GaussianMixture(kind, tol=0)  # type: ignore[arg-type]
    labels = ((X[:, None] - X[:K]) ** 2).sum(axis=2).argmin(axis=1)

    class FromLabels(PooledMixture):  # type: ignore[misc]
        def _initialize_parameters(self, X: Any, *_: Any, **__: Any) -> None:
            self._initialize(X, np.eye(K)[labels])

    model = FromLabels(K, covariance_type=kind, max_iter=5, tol=1e-300)
    ours = run(em, sites(Data(X[::2]), Data(X[1::2])), State.at(X[:K]), max_rounds=6).state
    assert_same(ours, model.fit(X))


@every_type
@pytest.mark.parametrize("unit", [1e-12, 1e-4, 1e12])
def test_the_amount_that_is_added_to_variances_has_the_unit_of_a_column(kind, unit):
    """A column that says nothing in its cluster has the same part of its variance in each unit."""
    X = rows(8)
    X[::3] = X[:1]  # a third of the rows is alike
    em = GaussianMixture(kind, reg_covar=1e-4)
    factor = np.array([unit] * D if kind == "spherical" else [1.0, unit, 1.0, unit**0.5])

    def after(f: np.ndarray) -> State:
        factors = np.sqrt(PRECISIONS[kind])
        factors = factors / (f if kind == "diag" else f[0] if kind == "spherical" else f[:, None])
        begun = em.start(X[:K] * f, SHARES * 240.0, precisions_cholesky=factors)
        return run(em, sites(Data(X[::2] * f), Data(X[1::2] * f)), begun, max_rounds=4).state

    one, other = after(np.ones(D)), after(factor)
    np.testing.assert_allclose(other.centers, one.centers * factor, rtol=1e-6)
    np.testing.assert_allclose(other.weights, one.weights, rtol=1e-6)


def test_a_covariance_that_rounding_makes_singular_is_mended_in_any_unit() -> None:
    rng = np.random.default_rng(1)
    X = np.repeat(rng.normal(size=(80, 1)), 3, axis=1) * [1e6, 1e-6, 1.0]
    fit = run(GaussianMixture(reg_covar=1e-17), sites(Data(X)), State.at(X[:2]), max_rounds=3)
    assert np.isfinite(fit.state.inertia)


def test_a_narrow_covariance_is_shrunk_towards_one_as_narrow() -> None:
    """The mean of both would be hundreds of times as wide: it is scaled down, to 0.02 at least."""
    narrow, wide = np.eye(2) * 0.001, np.diag([1.0, 2.0])
    scatter = 50 * np.array([narrow, wide])
    sums = ComponentSums(np.full(2, 50.0), np.zeros((2, 2)), scatter, 0.0, 100.0, 0.0, np.zeros(2))
    found = covariances(GaussianMixture("full"), sums, np.zeros((2, 2)), 50.0)
    pooled = (narrow + wide) / 2
    size = np.trace(np.linalg.solve(pooled, narrow)) / 2
    assert 4 * size < 0.02
    np.testing.assert_allclose(found[0], (narrow + 0.02 * pooled) / 2)
    np.testing.assert_allclose(found[1], (wide + pooled) / 2)


@pytest.mark.parametrize(("kind", "found"), [("spherical", [[0.25]]), ("diag", [[0.25, 0.1]])])
def test_no_component_is_narrower_than_the_grid_of_a_column(kind: Any, found: Any) -> None:
    """Else the density of repeated values grows without bounds: cells of counts were clusters."""
    floors, variances = np.array([0.25, 0.01]), np.array([[0.1, 0.1]])[:, : np.size(found)]
    each = regularised(GaussianMixture(kind), variances, floors, np.zeros(np.size(found)))
    np.testing.assert_array_equal(each, found)


def by_hand(em: Algorithm, state: State, *parts: Data) -> State:
    rng = np.random.default_rng(0)
    return em.server_step(state, [em.client_step(state, part, rng) for part in parts], rng)


def test_a_component_that_is_held_back_keeps_its_place_and_harms_no_other() -> None:
    X = np.concatenate([np.linspace(-1, 1, 20), np.linspace(9, 11, 20), [50.0, 51.0]])[:, None]
    em = GaussianMixture("full", tol=0)
    limited = sites(Data(X[::2]), Data(X[1::2]), filters=[MinClusterSize(5)])
    start = em.start(np.array([[0.0], [10.0], [50.0]]), np.array([20.0, 20.0, 2.0]))
    ours = run(em, limited, start, max_rounds=3).state
    assert (ours.centers[2], ours.weights[2]) == (50.0, 2.0)
    assert ours.memory["precisions_cholesky"][2] > 0.5
    without = run(em, sites(Data(X[:40])), State.at([[0.0], [10.0]]), max_rounds=3).state
    np.testing.assert_allclose(ours.centers[:2], without.centers, atol=1e-6)


@every_type
@pytest.mark.parametrize("log_noise", [None, -8.0])
def test_levels_are_counted_by_the_responsibilities(kind: str, log_noise: float | None) -> None:
    """Whatever the shape: of each component, the share of its rows that have the level."""
    rng = np.random.default_rng(3)
    levels = np.eye(3)[rng.integers(0, 3, 240)]
    X = np.column_stack([rows()[:, :2], levels])
    shapes = {"full": (K, 5, 5), "tied": (5, 5), "diag": (K, 5), "spherical": (K,)}
    factors = np.broadcast_to(np.eye(5) if kind in ("full", "tied") else 1.0, shapes[kind])
    em = GaussianMixture(kind, log_noise=log_noise, levels=True)  # type: ignore[arg-type]
    state = em.start(
        X[[0, 80, 160]],
        SHARES * 200,
        precisions_cholesky=factors.copy(),
        texts=np.array([0.0, 0, 1, 1, 1]),
        shares=np.array([[0, 0, 0.5, 0.3, 0.2], [0, 0, 0.1, 0.1, 0.8], [0, 0, 0.2, 0.7, 0.1]]),
        overall=np.array([0, 0, 0.3, 0.3, 0.4]),
        **({} if log_noise is None else {"noise": np.array([40.0])}),
    )
    tau = np.asarray(em.assign(state, X))[:, :K]
    after = run(em, sites(Data(X[::2]), Data(X[1::2])), state, max_rounds=1).state
    np.testing.assert_allclose(after.weights, tau.sum(axis=0), rtol=1e-10)
    expected = tau.T @ levels / tau.sum(axis=0)[:, None]
    np.testing.assert_allclose(after.centers[:, 2:], expected, rtol=1e-9)


@every_type
def test_a_weight_is_a_repetition_at_a_start_without_precisions(kind: str) -> None:
    """Also of texts, whose sums are of differences from the centres."""
    rng = np.random.default_rng(4)
    X = np.column_stack([rows()[:, :2], np.eye(3)[rng.integers(0, 3, 240)]])
    weight = rng.integers(0, 4, len(X)).astype(float)
    em = GaussianMixture(kind, levels=True)  # type: ignore[arg-type]
    texts = np.array([0.0, 0, 1, 1, 1])
    state = replace(State.at(X[[0, 80, 160]] + 0.25), memory={"texts": texts})
    one = by_hand(em, state, Data(X, weight))
    same = by_hand(em, state, Data(np.repeat(X, weight.astype(int), axis=0)))
    np.testing.assert_allclose(one.centers, same.centers, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(one.weights, same.weights)
