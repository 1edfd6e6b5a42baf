"""Lloyd's algorithm and the server's k-means, beside scikit-learn's."""

import warnings
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from partitions import on_line
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from fedcluster.kernels import hard_pass, kmeans, kmeans_plusplus
from fedcluster.kernels.iteration import lloyd
from fedcluster.kernels.runtime import compiled_loops

seeds = st.integers(0, 2**32)


def of_sklearn(X, centers, sample_weight=None, *, max_iter=300):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # more clusters than rows that differ
        model = KMeans(len(centers), init=centers, n_init=1, tol=0, max_iter=max_iter)
        return model.fit(X, sample_weight=sample_weight)


def assert_belongs_to_its_centers(fit, X, sample_weight=None):
    found = hard_pass(X, fit.centers, sample_weight)
    assert_array_equal(fit.labels, found.labels)
    assert_array_equal(fit.weights, found.weights)
    assert_array_equal(fit.counts, found.counts)
    assert fit.inertia == pytest.approx(found.errors.sum(), rel=1e-14)


def test_four_points_by_hand():
    fit = lloyd([[0.0], [1.0], [5.0], [6.0]], [[0.0], [1.0]])
    # 0 | 1 5 6 -> centres 0, 4; then 0 1 | 5 6 -> centres 0.5, 5.5; then nothing changes
    assert_array_equal(fit.centers, [[0.5], [5.5]])
    assert_array_equal(fit.labels, [0, 0, 1, 1])
    assert_array_equal(fit.weights, [2, 2])
    assert fit.inertia == 1.0
    assert fit.n_iter == 3


@given(seeds, st.integers(2, 200), st.integers(1, 9), st.booleans())
def test_lloyd_is_scikit_learns(seed, n, k, is_weighted):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) + 4 * rng.integers(0, 3, (n, 1))
    k = min(n, k)
    sample_weight = rng.uniform(0.5, 3, n) if is_weighted else None
    start = rng.permutation(X)[:k]
    model = of_sklearn(X, start, sample_weight)
    fit = lloyd(X, start, sample_weight, empty="relocate")  # a cluster may run empty on the way
    assert_array_equal(fit.labels, model.labels_)
    assert_allclose(fit.centers, model.cluster_centers_, rtol=1e-12, atol=1e-12)
    assert fit.inertia == pytest.approx(model.inertia_, rel=1e-12, abs=1e-24)
    assert abs(fit.n_iter - model.n_iter_) <= 1  # its centres still move by rounding, ours do not
    assert_belongs_to_its_centers(fit, X, sample_weight)


@pytest.mark.parametrize("n", [120, 6000])
@given(seeds, st.sampled_from(["keep", "relocate", "drop"]), st.booleans(), st.booleans())
def test_small_data_take_a_shorter_way_to_the_same_bits(n, seed, empty, is_weighted, is_single):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32 if is_single else np.float64)
    start = np.vstack([X[:5], 9 + X[:2]])
    sample_weight = rng.integers(0, 3, len(X)) if is_weighted else None
    kwargs = {"max_iter": 4, "tol": 1e-3, "empty": empty}
    found = lloyd(X, start, sample_weight, **kwargs)
    assert_in_python(found, lambda: lloyd(X, start, sample_weight, **kwargs))


@given(seeds, st.integers(1, 300), st.integers(1, 40), st.integers(1, 4))
def test_restarts_in_python_have_the_bits_of_compiled_ones(seed, n, k, n_init):
    X, rng = np.random.default_rng(seed).normal(size=(n, 2)).round(1), np.random.default_rng
    found = kmeans(X, min(k, n), rng=rng(seed), n_init=n_init)
    assert_in_python(found, lambda: kmeans(X, min(k, n), rng=rng(seed), n_init=n_init))


def assert_in_python(found, again):
    """Assert that loops in Python have the same bits as compiled ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_loops, "left", 1 << 60)
        expected = again()
        assert compiled_loops.left != 1 << 60
    for field in fields(expected):
        assert_array_equal(getattr(found, field.name), getattr(expected, field.name), field.name)


@pytest.mark.parametrize("max_iter", [1, 2, 5])
def test_max_iter_is_scikit_learns(max_iter):
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = of_sklearn(X, X[:9], max_iter=max_iter)
    fit = lloyd(X, X[:9], max_iter=max_iter)
    assert_allclose(fit.centers, model.cluster_centers_, rtol=1e-12)
    assert_array_equal(fit.labels, model.labels_)
    assert fit.n_iter == model.n_iter_ == max_iter


def test_iterations_end_at_the_start_or_where_no_centre_moves_further_than_tol():
    """Which is a squared distance; the first iteration moves one centre by 3."""
    X, start = [[0.0], [4.0]], np.array([[0.0], [1.0]])
    assert lloyd(X, start, tol=9.0).n_iter == 1
    assert lloyd(X, start, tol=8.9).n_iter == 2
    fit = lloyd(X, start, max_iter=0)
    assert_array_equal(fit.centers, start)
    assert fit.n_iter == 0
    assert not np.shares_memory(fit.centers, start)


@given(seeds)
def test_relocation_is_scikit_learns(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 2))
    start = np.vstack([rng.permutation(X)[:3], [[50.0, 50.0]]])  # the last one attracts no row
    sample_weight = rng.uniform(0.5, 3, len(X))
    model = of_sklearn(X, start, sample_weight)
    fit = lloyd(X, start, sample_weight, empty="relocate")
    assert_array_equal(fit.labels, model.labels_)
    assert_allclose(fit.centers, model.cluster_centers_, rtol=1e-12, atol=1e-12)
    assert np.all(fit.counts > 0)
    assert_belongs_to_its_centers(fit, X, sample_weight)


@pytest.mark.parametrize(
    ("X", "start", "weights", "how", "centers", "found"),
    [
        ([0, 1, 2, 9], [1, 100], [1, 1, 1, 1], {}, [3, 100], [4, 0]),
        ([0, 1, 2, 9], [1, 100], [1, 1, 1, 1], {"empty": "relocate"}, [1, 9], [3, 1]),
        # off the old cluster goes what the row weighs
        ([0, 1, 9], [1, 50], [1, 1, 7], {"empty": "relocate", "max_iter": 1}, [0.5, 9], [2, 7]),
        # both 8 or 9 away from 1: the farthest rows, in order
        ([0, 1, 2, 9, -8], [1, 100, 200], [1, 1, 1, 1, 1],
         {"empty": "relocate", "max_iter": 1}, [1, -8, 9], [3, 1, 1]),
        # no row of weight 0, and no row on its centre
        ([0, 2, 99], [1, 500], [1, 1, 0], {"empty": "relocate"}, [2, 0], [1, 1]),
        ([3, 3, 3], [3, 8], [1, 1, 1], {"empty": "relocate"}, [3, 8], [3, 0]),
    ],
)  # fmt: skip
def test_an_empty_cluster_stays_or_takes_the_farthest_row(X, start, weights, how, centers, found):
    fit = lloyd(on_line(*X), on_line(*start), weights, **how)
    assert_array_equal(fit.centers, on_line(*centers))
    assert_array_equal(fit.weights, found)


def test_empty_clusters_are_dropped_at_the_start():
    X = [[0.0], [1.0], [9.0], [10.0]]
    start = np.array([[50.0], [2.0], [7.0], [-50.0]])
    fit = lloyd(X, start, empty="drop")
    assert_array_equal(fit.centers, [[0.5], [9.5]])
    assert_array_equal(lloyd(X, start, max_iter=0, empty="drop").centers, start[1:3])
    without = lloyd(X, start[1:3], empty="relocate")
    assert_array_equal(fit.centers, without.centers)
    assert fit.n_iter == without.n_iter


@pytest.mark.parametrize(
    ("dtype", "empty", "offset"),
    [(float, "keep", 1e8), (np.float32, "keep", 2.0**22), (float, "relocate", 1e8)],
)
def test_an_offset_only_moves_the_centres(dtype, empty, offset):
    X = np.random.default_rng(0).integers(-40, 41, (300, 3)).astype(dtype)
    X /= 8 if dtype is float else 1
    start = np.vstack([X[:6], [[99.0] * 3]])
    at_zero, far = (lloyd(X + dtype(at), start + at, empty=empty) for at in (0, offset))
    assert_array_equal(far.labels, at_zero.labels)
    assert_allclose(far.centers - offset, at_zero.centers, rtol=0, atol=3e-8)
    assert far.n_iter == at_zero.n_iter


@pytest.mark.parametrize(
    ("seeding", "dtype"),
    [("weighted", np.float64), ("unweighted", np.float64), ("weighted", np.float32)],
)
def test_kmeans_is_lloyd_from_the_seeding(seeding, dtype):
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(dtype)
    weights = np.random.default_rng(1).exponential(size=200) ** 4
    of_seeds = weights if seeding == "weighted" else None
    start = X[kmeans_plusplus(X, 7, of_seeds, rng=np.random.default_rng(5))].astype(float)
    for max_iter in (0, 300):
        expected = lloyd(X, start, weights, max_iter=max_iter, empty="relocate")
        how: dict[str, Any] = {"n_init": 1, "tol": 0, "max_iter": max_iter, "seeding": seeding}
        found = kmeans(X, 7, weights, rng=np.random.default_rng(5), **how)
        assert_array_equal(found.centers, expected.centers)
        assert found.centers.dtype == np.float64
        assert_array_equal(found.labels, expected.labels)
        assert found.n_iter == expected.n_iter
        assert found.inertia == pytest.approx(expected.inertia, rel=1e-14)


def test_kmeans_keeps_the_best_run():
    X = np.random.default_rng(0).normal(size=(150, 2))
    rng = np.random.default_rng(7)
    runs = [kmeans(X, 9, rng=rng, n_init=1).inertia for _ in range(10)]
    best = kmeans(X, 9, rng=np.random.default_rng(7), n_init=10)
    assert best.inertia == pytest.approx(min(runs), rel=1e-12)
    assert_belongs_to_its_centers(best, X)


@given(seeds, st.integers(1, 8), st.integers(1, 4))
def test_few_different_rows_give_coinciding_centres_and_never_nan(seed, k, n_different):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_different, 2))[rng.integers(0, n_different, 8)]
    fit = kmeans(X, k, rng=rng)
    assert fit.centers.shape == (k, 2)
    assert np.all(np.isfinite(fit.centers))
    if k >= n_different:
        assert fit.inertia == pytest.approx(0, abs=1e-25)
