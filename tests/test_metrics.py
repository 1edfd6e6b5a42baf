"""Indices from sums equal those of the pooled rows; scikit-learn is the judge where it has one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from partitions import Case, cases
from sklearn import metrics as sk

from fedcluster.client import Client
from fedcluster.core import Data, State
from fedcluster.engines import LocalEngine
from fedcluster.kernels import nearest
from fedcluster.recipes.evaluation import evaluation
from fedcluster.rounds import drive

Rows = NDArray[np.float64]


def scores(parts: Mapping[str, Data], centers: Rows, m: float | None = 2.0) -> dict[str, float]:
    """All indices of the sites together."""
    engine = LocalEngine(Client(name, data, filters=()) for name, data in parts.items())
    return drive(evaluation(State.at(centers), m=m), engine).value


def repeated(case: Case) -> Rows:
    """Rows as often as they weigh."""
    return case.X if case.weight is None else np.repeat(case.X, case.weight.astype(int), axis=0)


def blobs(seed: int, n: int = 200, d: int = 3, k: int = 5) -> tuple[Rows, Rows]:
    """Rows on a grid of 2^-20, so that they may be moved by 2^20 without rounding; centres."""
    rng = np.random.default_rng(seed)
    middles = rng.normal(size=(k, d)) * 4
    X = middles[rng.integers(0, k, n)] + rng.normal(size=(n, d))
    centers = middles + rng.normal(size=(k, d)) / 4
    return np.round(X * 2**20) / 2**20, np.round(centers * 2**20) / 2**20


def sites_of(X: Rows, seed: int, n_sites: int = 4) -> dict[str, Data]:
    site = np.random.default_rng(seed).integers(0, n_sites, len(X))
    return {f"s{i}": Data(X[site == i]) for i in np.unique(site)}


def scikit_learn(X: Rows, labels: NDArray[np.int32]) -> dict[str, float]:
    """Its indices; it refuses a single cluster and one for every row."""
    if not 2 <= len(np.unique(labels)) < len(X):
        return {}
    return {
        "calinski-harabasz": sk.calinski_harabasz_score(X, labels),
        "davies-bouldin": sk.davies_bouldin_score(X, labels),
        "squared-silhouette": sk.silhouette_score(X, labels, metric="sqeuclidean"),
    }


@given(case=cases())
def test_scikit_learn_s_indices_over_any_partition(case: Case) -> None:
    """Weights are repetitions, clusters may be empty, and sites may lack some.

    The judge, which expands squares, is given the same rows as whole numbers; no scale matters.
    """
    found, X = scores(case.parts, case.centers), repeated(case)
    labels, whole = nearest(X, case.centers)[0], np.round((X - X[0]) * 10)
    for name, score in scikit_learn(whole, labels).items():
        assert found[name] == pytest.approx(score, rel=1e-10, abs=1e-12), name


@given(seed=st.integers(0, 10**6), n_sites=st.integers(1, 9), d=st.integers(1, 20))
def test_scikit_learn_s_indices_to_ten_digits(seed: int, n_sites: int, d: int) -> None:
    X, centers = blobs(seed, d=d)
    found = scores(sites_of(X, seed, n_sites), centers)
    for name, score in scikit_learn(X, nearest(X, centers)[0]).items():
        assert found[name] == pytest.approx(score, rel=1e-10), name


@pytest.mark.parametrize("seed", range(5))
def test_an_offset_costs_no_digits(seed: int) -> None:
    """Rows and centres a million away: the very same differences."""
    X, centers = blobs(seed)
    near = scores(sites_of(X, seed), centers)
    far = scores(sites_of(X + 2.0**20, seed), centers + 2.0**20)
    assert far == pytest.approx(near, rel=1e-9)


@given(case=cases())
def test_fuzzy_indices_are_those_of_the_pooled_rows(case: Case) -> None:
    apart, pooled = (scores(parts, case.centers) for parts in (case.parts, {"all": case.pooled}))
    for name in ("fuzzy-db", "fuzzy-db-squared", "xie-beni", "partition-coefficient", "osse"):
        assert apart[name] == pytest.approx(pooled[name], rel=1e-12, nan_ok=True), name
