"""Federated equals central: scikit-learn on the pooled rows is the judge."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from fedcluster import FederatedKMeans
from fedcluster.algorithms import Lloyd
from fedcluster.core import Data, State
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.options.choices import AlgorithmName
from fedcluster.rounds import run


def blobs(seed: int, n: int = 300, d: int = 3, k: int = 5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(k, d))[rng.integers(0, k, n)] * 4 + rng.normal(size=(n, d))


SITES: dict[str, Any] = {
    "one cluster a site": lambda labels: labels,
    "one row alone": lambda labels: (np.arange(len(labels)) == 17).astype(int),
}


@pytest.mark.parametrize("kind", SITES)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_exact_lloyd_is_scikit_learn_on_pooled_rows(kind, seed, dtype):
    X = blobs(seed).astype(dtype)
    start = X[np.random.default_rng(seed).choice(len(X), 5, replace=False)].astype(float)
    pooled = KMeans(5, init=start, n_init=1, tol=0).fit(X.astype(float))
    ours = FederatedKMeans(5, algorithm="lloyd", init=start, tol=0, min_cluster_size=1)
    ours.fit(X, sites=SITES[kind](pooled.labels_))
    np.testing.assert_array_equal(ours.labels_, pooled.labels_)
    np.testing.assert_allclose(ours.cluster_centers_, pooled.cluster_centers_, rtol=1e-12)
    np.testing.assert_allclose(ours.inertia_, pooled.inertia_, rtol=1e-12)


@given(seed=st.integers(0, 10**6), k=st.integers(1, 9), n_sites=st.integers(1, 12))
def test_exact_lloyd_over_any_partition(seed: int, k: int, n_sites: int) -> None:
    """At an offset of 1e3 and with weights, the pooled run's centres, to 1e-12."""
    rng = np.random.default_rng(seed)
    X = blobs(seed, n=80, d=2) + 1e3
    weight = rng.integers(1, 4, len(X)).astype(float)
    start = X[rng.choice(len(X), k, replace=False)]
    pooled = KMeans(k, init=start, n_init=1, tol=0).fit(X, sample_weight=weight)
    site = rng.integers(0, n_sites, len(X))
    engine = LocalEngine(
        Client(f"s{i}", Data(X[site == i], weight[site == i]), filters=()) for i in np.unique(site)
    )
    state = run(Lloyd(tol=0), engine, State.at(start)).state
    np.testing.assert_allclose(state.centers, pooled.cluster_centers_, rtol=1e-12)


def test_tolerance_is_scikit_learn_s() -> None:
    """The mean variance behind tol comes from the sums of the round, and is the pooled one."""
    X = blobs(0)
    start = X[:5]
    for tol in (1e-1, 1e-2, 1e-3):
        pooled = KMeans(5, init=start, n_init=1, tol=tol).fit(X)
        parts = {"a": X[:100], "b": X[100:110], "c": X[110:]}
        ours = FederatedKMeans(5, algorithm="lloyd", init=start, tol=tol).fit(parts)
        np.testing.assert_allclose(ours.cluster_centers_, pooled.cluster_centers_, rtol=1e-12)


def test_an_empty_cluster_stays_where_it_was() -> None:
    """Moved to the farthest row, as is the habit elsewhere, it would publish an outlier."""
    X = np.array([[0.0], [1.0], [2.0], [50.0]])
    start = np.array([[1.0], [20.0], [900.0]])
    ours = FederatedKMeans(3, algorithm="lloyd", init=start, tol=0)
    with pytest.warns(match="only 2 of 3 clusters have rows"):
        ours.fit({"a": X[:2], "b": X[2:]})
    np.testing.assert_allclose(ours.cluster_centers_, [[1.0], [50.0], [900.0]])


@pytest.mark.parametrize("algorithm", ["auto", "lloyd", "fkm", "kfed"])
def test_far_from_the_origin_clusters_are_the_same(algorithm: AlgorithmName) -> None:
    """An offset that a start at N(0, 1) or an expanded square would not survive."""
    X, site = blobs(1), np.arange(300) % 4
    near = FederatedKMeans(5, algorithm=algorithm, random_state=0).fit(X, sites=site)
    far = FederatedKMeans(5, algorithm=algorithm, random_state=0).fit(X + 2.0**20, sites=site)
    if algorithm != "kfed":  # it projects uncentred rows, as published
        np.testing.assert_array_equal(near.labels_, far.labels_)
    assert np.isfinite(far.cluster_centers_).all()
    assert far.inertia_ < 3 * near.inertia_
