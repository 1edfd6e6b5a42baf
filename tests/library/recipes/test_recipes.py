"""The default way to cluster: its starts, its race, its breath; and the variance tree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from fedcluster import FederatedFuzzyCMeans, FederatedKMeans
from fedcluster.algorithms import SiteSummaries, VarianceTree
from fedcluster.core import Data, State
from fedcluster.core.task import stream
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.rounds import run
from reproduction.datasets import plane16

PLANE = plane16(noise=1.5)
POOLED = float(
    np.median([KMeans(16, n_init=10, random_state=s).fit(PLANE.X).inertia_ for s in range(5)])
)


def engine(X: np.ndarray, site: np.ndarray) -> LocalEngine:
    return LocalEngine(Client(str(s), Data(X[site == s])) for s in np.unique(site))


# The recipe


@pytest.mark.parametrize("params", [{}, {"sums_only": True}], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_pooled_quality(params: dict, seed: int) -> None:
    """The inertia of pooled k-means with ten restarts, within a thousandth, in few rounds."""
    model = FederatedKMeans(16, random_state=seed, **params).fit(PLANE.X, sites=PLANE.site)
    assert model.inertia_ <= 1.001 * POOLED
    assert model.n_iter_ <= 40
    steps = {step.split("(")[0] for step in model.steps_}
    if params.get("sums_only"):
        assert steps == {"VarianceTree", "Lloyd", "Inertia"}


def test_summaries_count_every_row_and_of_three_rows_send_none_as_it_is() -> None:
    for name in np.unique(PLANE.site):
        rows = Data(PLANE.X[PLANE.site == name])
        answer = SiteSummaries(32, min_rows=3).client_step(State(), rows, stream(0, 0, str(name)))
        assert answer.weights.sum() == len(rows)
        assert answer.weights.min() >= 3
        np.testing.assert_allclose(answer.sums.sum(axis=0), rows.X.sum(axis=0))
        means = answer.sums / answer.weights[:, None]
        assert not (means[:, None] == rows.X).all(axis=2).any()


@pytest.mark.parametrize("n_clusters", [4, 6])
def test_few_rows_for_many_clusters_are_asked_for_in_smaller_groups(n_clusters: int) -> None:
    sites = {"a": np.array([[0.0], [5.0], [10.0]]), "b": np.array([[20.0], [30.0], [40.0]])}
    model = FederatedKMeans(n_clusters, random_state=0).fit(sites)
    assert len(np.unique(model.labels_)) == n_clusters


def test_the_fuzzy_recipe_finds_the_pooled_optimum() -> None:
    model = FederatedFuzzyCMeans(16, random_state=0).fit(PLANE.X, sites=PLANE.site)
    one_table = FederatedFuzzyCMeans(16, random_state=1).fit(PLANE.X)
    assert model.inertia_ == pytest.approx(one_table.inertia_, rel=1e-3)
    assert model.score(PLANE.X) == pytest.approx(-model.inertia_)
    degrees = model.predict_proba(PLANE.X)
    np.testing.assert_allclose(degrees.sum(axis=1), 1.0)
    np.testing.assert_array_equal(degrees.argmax(axis=1), model.labels_)


# The variance tree


def grown(X: np.ndarray, n_leaves: int, n_sites: int = 3, min_rows: int = 5) -> State:
    site = np.random.default_rng(0).integers(0, n_sites, len(X))
    return run(VarianceTree(n_leaves, min_rows), engine(X, site)).state


@given(seed=st.integers(0, 10**6), n_leaves=st.integers(1, 20), min_rows=st.integers(1, 8))
def test_leaves_are_means_of_groups_that_are_large_enough(seed, n_leaves, min_rows):
    """Their weights sum to the rows, their sums to the sum, none is smaller than q."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, size=(rng.integers(12, 60), 2)) * 1.0
    state = grown(X, n_leaves, min_rows=min_rows)
    assert state.converged
    assert len(state.centers) <= n_leaves
    assert state.weights.sum() == len(X)
    assert state.weights.min() >= min(min_rows, len(X))
    np.testing.assert_allclose(state.weights @ state.centers, X.sum(axis=0), atol=1e-9)


def test_the_tree_does_not_depend_on_the_partition() -> None:
    one, many = grown(PLANE.X, 64, n_sites=1), grown(PLANE.X, 64, n_sites=20)
    np.testing.assert_allclose(one.centers, many.centers, rtol=1e-12)
    np.testing.assert_array_equal(one.weights, many.weights)
    assert len(one.centers) > 40


def test_the_tree_survives_an_offset_of_1e8() -> None:
    near, far = grown(PLANE.X, 64), grown(PLANE.X + 1e8, 64)
    np.testing.assert_array_equal(near.weights, far.weights)
    np.testing.assert_allclose(near.centers, far.centers - 1e8, atol=1e-6)


@pytest.mark.parametrize("sums_only", [False, True])
def test_small_sites_with_the_same_rows_are_described_more_finely(sums_only: bool) -> None:
    """Each describes its four rows by one mean, and both by the same."""
    rows = np.array([[0.0], [1.0], [8.0], [9.0]])
    model = FederatedKMeans(2, sums_only=sums_only, random_state=0).fit({"a": rows, "b": rows})
    assert sorted(model.cluster_centers_.ravel()) == [0.5, 8.5]
