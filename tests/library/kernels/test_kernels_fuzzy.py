"""Fuzzy sums and fuzzy c-means in one place."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedcluster.kernels import fuzzy, fuzzy_pass, hard_pass, memberships, nearest
from fedcluster.kernels._tiles import PRODUCT_COLUMNS, PRODUCT_ROWS
from fedcluster.kernels.fuzzy import (
    DEPTH,
    FAINTEST,
    WIDE,
    WIDE_BLOCK,
    FuzzyPass,
    fuzzy_cmeans,
    whole_tiles,
    write_powers,
)
from fedcluster.kernels.runtime import native

FIELDS = FuzzyPass.__slots__
FUZZIFIERS = [1.01, 1.1, 1.5, 2.0, 3.0, 10.0]


def plain_memberships(X, centers, m):
    """Bezdek's formula; a row on centres belongs to these alone, in equal parts."""
    squared = np.square(np.asarray(X, float)[:, np.newaxis] - centers).sum(axis=2)
    least = squared.min(axis=1, keepdims=True)
    ratio = np.divide(least, squared, out=np.ones_like(squared), where=squared > 0)
    u = np.where(least > 0, ratio ** (1 / (m - 1)), squared == 0)
    return u / u.sum(axis=1, keepdims=True), squared


def plain_pass(X, centers, m, sample_weight=None):
    """The sums in plain NumPy."""
    w = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, float)
    u, squared = plain_memberships(X, centers, m)
    v = w[:, np.newaxis] * u**m
    v[:, v.sum(axis=0) < FAINTEST] = 0.0
    return FuzzyPass(
        v.T @ np.asarray(X, float),
        v.sum(axis=0),
        (w[:, np.newaxis] * u).sum(axis=0),
        u[w > 0].sum(axis=0),
        (v * squared).sum(axis=0),
    )


def assert_same(found, expected, scale, rtol=1e-12):
    """``scale`` is that of the rows, for sums in which they cancel."""
    total = 1 + expected.weights[:, np.newaxis]
    assert_allclose(found.sums / total, expected.sums / total, rtol, rtol * scale)
    for field in ("weights", "supports", "rows"):
        assert_allclose(getattr(found, field), getattr(expected, field), rtol, err_msg=field)
    assert_allclose(found.errors, expected.errors, rtol, atol=1e-280)


@st.composite
def grids(draw, offsets=(0.0, 1e8), dtypes=(np.float32, np.float64), columns=(1, 8), rows=150):
    """Rows, centres and weights on a coarse grid, where coincidences and zeros abound."""
    n, d, k = (draw(st.integers(*ends)) for ends in ((1, rows), columns, (1, 9)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread, offset = draw(st.integers(1, 5)), draw(st.sampled_from(offsets))
    # steps of 8: what float32 can still tell apart at 1e8
    X = 8 * rng.integers(-spread, spread + 1, (n, d)) + offset
    centers = 8 * rng.integers(-spread, spread + 1, (k, d)) + offset
    sample_weight = draw(st.sampled_from([None, rng.integers(0, 4, n)]))
    m = draw(st.sampled_from(FUZZIFIERS))
    return X.astype(draw(st.sampled_from(dtypes))), centers, m, sample_weight


def wide_grids(**others):
    """Grids that are read by matrix products."""
    return grids(columns=(WIDE, WIDE + 9), rows=WIDE_BLOCK + 50, **others)


def assert_as_in_plain_numpy(case, rtol):
    """Of a pass and of memberships."""
    X, centers, m, _ = case
    found, expected = fuzzy_pass(*case), plain_pass(*case)
    assert_same(found, expected, np.abs(X).max(), rtol)
    u = memberships(X, centers, m)
    assert_allclose(u, plain_memberships(X, centers, m)[0], rtol=rtol)
    assert_allclose(u.sum(axis=1), 1, rtol=1e-14)
    return u


@given(grids())
def test_degrees_and_sums_are_those_of_plain_numpy(case):
    u, (X, centers, _, _) = assert_as_in_plain_numpy(case, 1e-12), case
    labels, _ = nearest(X, centers)
    assert_array_equal(u[np.arange(len(X)), labels], u.max(axis=1))


@given(wide_grids())
def test_those_of_wide_rows_too(case):
    """But for the digits that |z|^2 - 2 z.c + |c|^2 may lose."""
    assert_as_in_plain_numpy(case, 1e-10)


@pytest.mark.parametrize(("n", "d", "k"), [(5, 2 * DEPTH + 3, 3), (WIDE_BLOCK + 1, WIDE, 50)])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_matrices_may_be_any_number_of_tiles(n, d, k, offset):
    rng = np.random.default_rng(0)
    X, centers = rng.normal(size=(n, d)) + offset, rng.normal(size=(k, d)) + offset
    expected = plain_pass(X, centers, 2.0)
    assert_same(fuzzy_pass(X, centers, 2.0), expected, np.abs(X).max())


@given(st.integers(0, 2**32), st.sampled_from(FUZZIFIERS), st.floats(1e-9, 1e-2))
def test_wide_rows_close_to_a_centre_are_measured_directly(seed, m, distance):
    """Else nothing but rounding would be left of their distances."""
    rng = np.random.default_rng(seed)
    centers = 1e3 * rng.normal(size=(5, WIDE))
    X = centers[rng.integers(0, 5, 60)] + distance * rng.normal(size=(60, WIDE))
    found, expected = fuzzy_pass(X, centers, m), plain_pass(X, centers, m)
    assert_same(found, expected, np.abs(X).max(), rtol=1e-9)


@given(grids(dtypes=[np.float32]) | wide_grids(dtypes=[np.float32]))
def test_float32_rows_are_computed_as_the_numbers_that_they_are(case):
    X, centers, m, sample_weight = case
    assert_same_bits(
        fuzzy_pass(X, centers, m, sample_weight),
        fuzzy_pass(X.astype(float), centers, m, sample_weight),
    )


@given(grids(offsets=[0.0], dtypes=[np.float64]))
def test_an_offset_changes_no_degree(case):
    X, centers, m, sample_weight = case
    near = fuzzy_pass(X, centers, m, sample_weight)
    far = fuzzy_pass(X + 1e8, centers + 1e8, m, sample_weight)
    for field in ("weights", "supports", "rows", "errors"):
        assert_array_equal(getattr(far, field), getattr(near, field), field)


def assert_same_bits(found, expected):
    for field in FIELDS:
        assert_array_equal(getattr(found, field), getattr(expected, field), field)


@pytest.mark.parametrize("m", [1.01, 1 + 1e-12, 1.001, 1 + 1e-6])
def test_near_one_degrees_are_hard_and_finite(m):
    """Also where a ratio of distances has a power below the smallest number."""
    X = np.concatenate([8.0 * np.random.default_rng(0).integers(-2, 3, (60, 2)), [[1e9, 1e9]]])
    centers = np.array([[0.5, 0.25], [7.0, 8.5], [-9.0, 3.0], [1e12, 0.0]])
    u, found = memberships(X, centers, m), fuzzy_pass(X, centers, m)
    assert_allclose(u.sum(axis=1), 1)
    for values in (u, *(getattr(found, field) for field in FIELDS)):
        assert np.isfinite(values).all()
    if m < 1.001:  # but for the last row, which is nearly as far from all centres
        hard, found = hard_pass(X[:-1], centers), fuzzy_pass(X[:-1], centers, m)
        assert_allclose(found.weights, hard.weights, atol=1e-9)
        assert_allclose(found.errors.sum(), hard.errors.sum(), rtol=1e-9)


def test_sums_too_faint_for_exact_products_are_none():
    """m = 1.01: at squared distances 1 and 1000, degrees are as 1 to 1e-300."""
    found = fuzzy_pass([[0.0]], [[1.0], [1000**0.5]], 1.01)
    assert_array_equal(found.weights, [1, 0])
    assert_array_equal(found.sums, [[0], [0]])
    fit = fuzzy_cmeans([[0.0], [2.0]], [[1.0], [1000**0.5 + 1]], 1.01)
    assert_array_equal(fit.centers, [[1], [1000**0.5 + 1]])


def test_no_rows_add_nothing():
    found = fuzzy_pass(np.empty((0, 2)), [[0.0, 0.0], [1.0, 1.0]], 2.0)
    assert_array_equal(found.sums, np.zeros((2, 2)))
    assert_array_equal(found.weights, [0, 0])
    assert memberships(np.empty((0, 2)), [[0.0, 0.0]], 2.0).shape == (0, 1)


@pytest.mark.parametrize(("n", "d"), [(60_000, 4), (3000, 40)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_do_not_depend_on_the_number_of_threads(n, d, dtype, monkeypatch):
    """More rows than a chunk has."""
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(n, d)).astype(dtype), rng.uniform(0, 2, n)
    centers = X[:12].astype(float)
    monkeypatch.setenv("FEDCLUSTER_NUM_THREADS", "1")
    expected, fit = fuzzy_pass(X, centers, 1.5, weight), fuzzy_cmeans(X, centers, 2.0, max_iter=2)
    for n_threads in (2, 5):
        monkeypatch.setenv("FEDCLUSTER_NUM_THREADS", str(n_threads))
        assert_same_bits(fuzzy_pass(X, centers, 1.5, weight), expected)
        assert_array_equal(fuzzy_cmeans(X, centers, 2.0, max_iter=2).centers, fit.centers)


@pytest.mark.parametrize("m", [1.1, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_fuzzy_c_means_is_the_pass_repeated(m, seed):
    """Until the Frobenius norm of the change of all degrees is below ``tol``; the last pass
    belongs to the last centres.
    """
    rng = np.random.default_rng(seed)
    X, weight = rng.normal(size=(80, 2)) + 4 * rng.integers(0, 3, (80, 1)), rng.uniform(0, 2, 80)
    start = X[:3]
    fit = fuzzy_cmeans(X, start, m, weight, tol=1e-3)
    centers, n_iter, change = start, 0, np.inf
    while change >= 1e-3:
        before = plain_memberships(X, centers, m)[0]
        found = plain_pass(X, centers, m, weight)
        centers, n_iter = found.sums / found.weights[:, np.newaxis], n_iter + 1
        change = float(np.linalg.norm(plain_memberships(X, centers, m)[0] - before))
    assert fit.n_iter == n_iter
    assert_allclose(fit.centers, centers, rtol=1e-11, atol=1e-11)
    assert_same(fit.last_pass, plain_pass(X, fit.centers, m, weight), 10)


def test_the_iterations_end_at_their_limit_and_none_leaves_the_start():
    X = np.random.default_rng(0).normal(size=(50, 2))
    assert fuzzy_cmeans(X, X[:4], 2.0, max_iter=7, tol=0).n_iter == 7
    fit = fuzzy_cmeans([[0.0], [4.0]], [[1.0]], 2.0, max_iter=0)
    assert_array_equal(fit.centers, [[1]])
    assert_array_equal(fit.last_pass.errors, [10])


@pytest.mark.parametrize(("more", "tiles"), [(0, 1), (1, 2)])
def test_sums_have_whole_tiles_of_products(more, tiles):
    found = whole_tiles(PRODUCT_ROWS + more, PRODUCT_COLUMNS + more)
    assert found == (tiles * PRODUCT_ROWS, tiles * PRODUCT_COLUMNS)
    assert whole_tiles(1, 1) == (PRODUCT_ROWS, PRODUCT_COLUMNS)


def test_fuzzy_c_means_ends_after_a_thousand_iterations_or_a_change_below_its_tolerance():
    """Where every change counts, it goes on; rows alike in all clusters hardly ever settle."""
    X, start = np.array([[0.0], [1.0], [5.0], [6.0]]), [[0.0], [1.0]]
    default, finer, coarser, to_the_end = (
        fuzzy_cmeans(X, start, 2.0, **how).n_iter
        for how in (dict[str, Any](), {"tol": 1e-9}, {"tol": 1e-4}, {"tol": 0.0})
    )
    assert coarser == default < finer < 100 < to_the_end == 1000


@pytest.mark.parametrize("columns", [3, WIDE])
def test_a_whole_fuzzifier_takes_the_kernel_of_others(columns: int) -> None:
    """Another one was compiled for it, for seven seconds."""
    X = np.random.default_rng(0).normal(size=(9, columns))
    kernel = fuzzy.add_rows if columns < WIDE else fuzzy.add_wide_rows
    one = fuzzy_pass(X, X[:2], 2.0)
    compiled = list(vars(kernel)["overloads"])
    other = fuzzy_pass(X, X[:2], 2)
    assert list(vars(kernel)["overloads"]) == compiled != []
    for field in FIELDS:
        assert_array_equal(getattr(one, field), getattr(other, field))


@native
def powers_of(bases, p, powers):
    write_powers(bases, p, powers)


@pytest.mark.thorough
@pytest.mark.skipif(
    bool(np.finfo(np.longdouble).eps > 1e-18), reason="no longer numbers to compare to"
)
@pytest.mark.parametrize("p", [1e-3, 1 / 99, 0.5, 1 / 0.7, 2.0, 100.0, 1e15, -1.01, -2.5, -100.0])
def test_powers_are_exact_but_for_little_more_than_the_last_digit(p):
    """Of numbers of any size, and close to 1, in vectors and beside them."""
    share = np.random.default_rng(0).random(100_003)
    for x in (share, 1 - share / 1000, np.exp(-708 * share), np.exp(-700 * share / max(1, p))):
        bases, powers = (x if p > 0 else 1 / x[x > 1e-300]), np.empty(len(x))
        powers = powers[: len(bases)]
        powers_of(bases, p, powers)
        exact = bases.astype(np.longdouble) ** np.longdouble(p)
        large = exact > 2.0**-1021
        assert_array_equal(powers[exact < 2.0**-1022], 0)
        error = np.abs(powers - exact)[large] / np.spacing(exact[large].astype(float))
        assert error.max(initial=0) < 1.25
        each = np.empty(1)
        for i in range(5):
            powers_of(bases[i : i + 1], p, each)
            assert each == powers[i]


def test_powers_of_0_of_1_and_of_the_smallest_numbers():
    bases = np.array([0.0, 1.0, 5e-324, 1e-310, 2.0**-1022, np.nan])
    powers = np.empty(len(bases))
    powers_of(bases, 0.01, powers)
    assert_allclose(powers, bases**0.01, rtol=1e-15)
    assert_array_equal(powers[:2], bases[:2])
    powers_of(np.array([1.0]), -2.5, powers[:1])
    assert powers[0] == 1
