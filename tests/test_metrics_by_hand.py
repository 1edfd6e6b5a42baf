"""Indices of four rows and two centres, by hand."""

from __future__ import annotations

from math import log, pi, sqrt

import numpy as np
import pytest

from fedcluster.client import Client
from fedcluster.core import Data, State, Summary
from fedcluster.engines import LocalEngine
from fedcluster.kernels import kmeans_plusplus
from fedcluster.metrics._clusters import davies_bouldin
from fedcluster.metrics._external import adjusted_rand_index, mutual_information, purity
from fedcluster.metrics._moments import Moments, SiteSize
from fedcluster.recipes._evaluation import evaluation
from fedcluster.rounds import run_plan


def on_line(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def scores(
    rows: np.ndarray,
    centers: np.ndarray,
    weight: list[float] | None = None,
    m: float | None = None,
) -> dict:
    data = Data(rows, None if weight is None else np.array(weight))
    engine = LocalEngine([Client("here", data, filters=())])
    return run_plan(evaluation(State.at(centers), m=m), engine).value


def test_indices_of_two_pairs() -> None:
    """Rows 0 2 | 10 14 at centres 0 and 10: means 1 and 12, 6.5 over all."""
    found = scores(on_line(0, 2, 10, 14), on_line(0, 10))
    within, between, n = 2.0 + 8, 2 * 5.5**2 * 2, 4
    expected = {
        "inertia": 4 + 16,
        "within": within,
        "between": between,
        "total": within + between,
        "mean-distance": (2 + 4) / 4,
        "wsse": (2 + 4) / 4,
        "calinski-harabasz": (between / 1) / (within / 2),
        "davies-bouldin": (1 + 2) / 11,
        "davies-bouldin-at-centers": (1 + 2) / 10,
        # about 0 and 10: s = 1 of 0 and of 10, (8 - 2) / 8 of 2, (14 - 4) / 14 of 14
        "simplified-silhouette": (1 + 6 / 8 + 1 + 10 / 14) / 4,
        "bic": 2 * 2 * log(1 / 2) - 2 * log(2 * pi * 5) - 1 - 4 / 2 * log(4),
    }
    for name, score in expected.items():
        if name in found:
            assert found[name] == pytest.approx(score, rel=1e-12), name
    assert len(expected.keys() & found.keys()) >= 10
    assert n == 4


def test_the_squared_silhouette_by_pairs() -> None:
    """To its own cluster's other row, and to the other's two: 0 has a = 4, b = (100 + 196) / 2."""
    found = scores(on_line(0, 2, 10, 14), on_line(0, 10))["squared-silhouette"]
    a, b = np.array([4, 4, 16, 16]), np.array([148, 104, 82, 170])
    assert found == pytest.approx(((b - a) / b).mean(), rel=1e-12)


def test_a_lone_row_has_no_silhouette() -> None:
    """Rows 0 2 and 10 alone: the third has s = 0, the first two 1 - 4 / 100 and 1 - 4 / 64."""
    found = scores(on_line(0, 2, 10), on_line(0, 10))["squared-silhouette"]
    assert found == pytest.approx((0.96 + 0.9375 + 0) / 3, rel=1e-12)


def test_bic_needs_more_rows_than_clusters_and_is_infinite_without_spread() -> None:
    two = on_line(0, 10)
    assert np.isnan(scores(two, two)["bic"])
    assert scores(on_line(0, 0, 10), two)["bic"] == np.inf
    assert np.isfinite(scores(on_line(0, 1, 10), two)["bic"])
    assert np.isnan(scores(two, two)["mixture-bic"])
    assert scores(np.ones((5, 2)), np.ones((1, 2)))["mixture-bic"] == np.inf


def test_the_bic_of_a_mixture_counts_the_rows_of_all_clusters() -> None:
    """Rows -1 1 | 3 5 in the first column, variance 1; the second one varies as well, by 4 about
    its mean in both clusters; a third is constant and does not count.
    """
    rows = np.array([[-1.0, 2.0, 7.0], [1.0, -2.0, 7.0], [3.0, 2.0, 7.0], [5.0, -2.0, 7.0]])
    found = scores(rows, np.array([[0.0, 0.0, 7.0], [4.0, 0.0, 7.0]]))["mixture-bic"]

    def density(x: float, y: float, mean: float) -> float:
        return np.exp(-((x - mean) ** 2) / 2 - y**2 / 4 / 2) / (2 * pi * sqrt(4))

    likelihood = sum(log((density(x, y, 0) + density(x, y, 4)) / 2) for x, y, _ in rows)
    assert found == pytest.approx(likelihood - (1 + 2 * 2 + 2) / 2 * log(4), rel=1e-9)


def test_a_column_that_does_not_vary_within_clusters_has_a_millionth_of_its_variance() -> None:
    """Rows (0, 0) (2, 0) | (0, 10) (2, 10): the second column varies by 25, and only between, so
    that no row can be of the other cluster; the first one by 1 within.
    """
    rows = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 10.0], [2.0, 10.0]])
    found = scores(rows, np.array([[1.0, 0.0], [1.0, 10.0]]))["mixture-bic"]
    density = np.exp(-1 / 2) / (2 * pi * sqrt(1 * 25e-6)) / 2
    assert found == pytest.approx(4 * log(density) - (1 + 2 * 2 + 2) / 2 * log(4), rel=1e-9)


def test_calinski_harabasz_needs_two_clusters_and_more_rows() -> None:
    assert np.isnan(scores(on_line(0, 1, 2), on_line(1))["calinski-harabasz"])
    assert np.isnan(scores(on_line(0, 10), on_line(0, 10))["calinski-harabasz"])
    assert scores(on_line(0, 0, 10), on_line(0, 10))["calinski-harabasz"] == 1


@pytest.mark.parametrize(
    ("points", "spreads", "score"),
    [
        ([0, 4, 10], [1, 1, 2], 0.5),
        ([0, 3], [1, 2], 1.0),
        ([0, 0], [1, 2], 0.0),
        ([0, 3], [0, 0], 0.0),
        ([0, 0, 4], [1, 1, 1], 0.5),
    ],
)
def test_davies_bouldin_is_the_mean_of_the_worst(
    points: list[float], spreads: list[float], score: float
) -> None:
    assert davies_bouldin(on_line(*points), np.array(spreads, float)) == pytest.approx(score)


def test_external_indices_by_hand() -> None:
    """A table of 2 1 | 0 2: pairs together 1 + 1, in clusters 3 + 1, in classes 1 + 3, of 10."""
    table = [[2, 1], [0, 2]]
    chance = 4 * 4 / 10
    assert adjusted_rand_index(table) == pytest.approx((2 - chance) / (4 - chance))
    assert purity(table) == pytest.approx(4 / 5)
    p = np.array(table) / 5
    information = sum(
        p[i, j] * log(p[i, j] / p[i].sum() / p[:, j].sum()) for i, j in ((0, 0), (0, 1), (1, 1))
    )
    entropy = -(0.6 * log(0.6) + 0.4 * log(0.4))
    assert mutual_information(table) == pytest.approx(2 * information / (2 * entropy))
    assert adjusted_rand_index([[5]]) == mutual_information([[5]]) == 1
    assert adjusted_rand_index([[1]]) == 1


@pytest.mark.parametrize("weight", [0.125, 0.5, 8.0])
def test_indices_that_are_means_do_not_depend_on_the_unit_of_weights(weight: float) -> None:
    """A cluster may weigh less than 1."""
    rng = np.random.default_rng(0)
    rows, centers = rng.normal(size=(12, 2)) + np.repeat([[0], [9]], 6, axis=0), on_line(0, 9, 30)
    one, other = (scores(rows, np.hstack([centers] * 2), [w] * 12, 1.5) for w in (1.0, weight))
    for name in (
        "davies-bouldin",
        "davies-bouldin-at-centers",
        "simplified-silhouette",
        "mean-distance",
        "partition-coefficient",
        "xie-beni",
        "fuzzy-db",
        "osse",
    ):
        assert other[name] == pytest.approx(one[name], rel=1e-9), name
    for name in ("inertia", "within", "between", "total"):
        assert other[name] == pytest.approx(weight * one[name], rel=1e-9), name


def test_moments_and_sizes_are_weighted() -> None:
    rows = Data(np.array([[1.0, 0.0], [4.0, 3.0]]), np.array([2.0, 1.0]))
    rng = np.random.default_rng(0)
    first = Moments().client_step(State(), rows, rng)
    mean, variance = Moments.mean_and_variance(State(), first)
    np.testing.assert_allclose(mean, [2, 1])
    np.testing.assert_allclose(variance, [2, 2])
    about = State.at(np.array([[100.0, 100.0]]))
    again = Moments.mean_and_variance(about, Moments().client_step(about, rows, rng))
    np.testing.assert_allclose(again, [[2, 1], [2, 2]], rtol=1e-9)
    size = SiteSize().client_step(State(), rows, rng)
    assert SiteSize().score(State(), size) == 2
    assert SiteSize().score(State(), Summary(np.zeros((1, 0)), np.zeros(1))) == 0
    assert (size.weights[0], size.rows[0]) == (3, 2)


def test_seeds_are_rows() -> None:
    rows = on_line(0, 0, 5, 5)
    assert set(rows[kmeans_plusplus(rows, 2, rng=np.random.default_rng(0))].ravel()) == {0, 5}
