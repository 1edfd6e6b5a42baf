"""First centres: greedy k-means++ and the farthest rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcluster.kernels import kmeans_plusplus
from fedcluster.kernels.seeding import (
    _draw,
    _first_least,
    default_trials,
    draw_spread,
    farthest_first,
)

seeds = st.integers(0, 2**32)


def draw(X, k, sample_weight=None, *, seed=0, **options):
    return kmeans_plusplus(X, k, sample_weight, rng=np.random.default_rng(seed), **options)


@given(seeds, st.integers(1, 12))
def test_a_weight_is_a_repetition(seed, k):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 3))
    times = rng.integers(0, 5, len(X))
    weighted = X[draw(X, k, times, seed=seed)]
    repeated = np.repeat(X, times, axis=0)
    assert_array_equal(weighted, repeated[draw(repeated, k, seed=seed)])


def test_equal_rows_give_valid_indices():
    indices = draw(np.full((6, 2), 3.0), 6, [0, 1, 1, 1, 1, 0])
    assert (indices.shape, indices.dtype) == ((6,), np.int64)
    assert set(indices.tolist()) <= {1, 2, 3, 4}


def test_each_row_has_its_chances_and_two_trials_and_more():
    rng = np.random.default_rng
    X, weights = rng(0).normal(size=(200, 2)), rng(1).integers(0, 4, 200).astype(float)
    columns = np.ascontiguousarray(X.T)
    for asked, n_trials in ((None, default_trials(8)), (1, 1)):
        expected = draw_spread(columns, weights, 8, rng(5).random((8, n_trials)))
        assert_array_equal(draw(X, 8, weights, seed=5, n_local_trials=asked), expected)


@given(seeds, st.integers(1, 4), st.integers(0, 8), st.sampled_from([np.float32, np.float64]))
def test_farthest_first_is_that_of_plain_numpy(seed, m, n_more, dtype):
    rng = np.random.default_rng(seed)
    X = rng.integers(-5, 6, (30, 2)).astype(dtype)
    start = rng.integers(-5, 6, (m, 2)).astype(float)
    chosen, expected = list(start), []
    for _ in range(n_more):
        squared = np.square(X[:, np.newaxis] - np.array(chosen)).sum(axis=2).min(axis=1)
        expected.append(squared.argmax())
        chosen.append(X[expected[-1]])
    assert_array_equal(farthest_first(X, start, m + n_more), expected)


@pytest.mark.parametrize(
    ("masses", "chance", "row"),
    [
        ([0.0, 2, 2, 5], 0.0, 1),  # the first row has no mass, nor has the third one
        ([0.0, 2, 2, 5], 0.39, 1),
        ([0.0, 2, 2, 5], 0.4, 3),
        ([0.0, 2, 2, 5], 0.999, 3),
        ([1.0, 3, 3, 3], 0.2, 0),
        ([1.0, 3, 3, 3], 0.34, 1),
        ([1.0, 3, 3, 3], 1.0, 1),  # rounded up
        ([5.0, 5, 5], 0.5, 0),
        ([7.0], 0.5, 0),
        ([0.0, 0, 4], 0.0, 2),
        ([1.0, 2, 3, 4, 5, 6, 7, 8], 0.8, 6),
    ],
)
def test_a_row_is_drawn_by_its_share_of_the_mass(masses, chance, row):
    assert _draw(np.array(masses), chance) == row


def test_draws_by_hand():
    """Rows 0 1 3 of weights 1 2 1: masses 1 3 4; from 1, w D^2 is 1 0 4: masses 1 1 5."""
    columns, weights = np.array([[0.0, 1.0, 3.0]]), np.array([1.0, 2.0, 1.0])
    for chances, rows in (
        ([[0.5, 0.9], [0.1, 0.1]], [1, 0]),
        ([[0.5, 0.1], [0.3, 0.3]], [1, 2]),
        ([[0.5, 0.0], [0.1, 0.3]], [1, 2]),  # of two trials the one that leaves less: 1, not 4
        ([[0.5, 0.0], [0.3, 0.1]], [1, 2]),
    ):
        found = draw_spread(columns, weights, 2, np.array(chances))
        assert_array_equal(found, rows)
    tiny = draw_spread(1e-9 * columns, weights / 1000, 2, np.array([[0.5, 0.9], [0.1, 0.1]]))
    assert_array_equal(tiny, [1, 0])


def test_many_rows_are_tried_as_few_are():
    """More than a block: greedy trials in plain NumPy, by the same chances."""
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(1300, 2)), rng.integers(0, 4, 1300).astype(float)
    chances = rng.random((9, 4))
    expected: list[int] = []
    closest = np.full(len(X), np.inf)
    for c, shares in enumerate(chances):
        masses = np.cumsum(weights * closest if c else weights)
        trials = np.searchsorted(masses, (shares if c else shares[:1]) * masses[-1], side="right")
        squared = [np.minimum(closest, np.square(X - X[t]).sum(axis=1)) for t in trials]
        best = int(np.argmin([weights @ each for each in squared]))
        expected.append(int(trials[best]))
        closest = squared[best]
    found = draw_spread(np.ascontiguousarray(X.T), weights, 9, chances)
    assert_array_equal(found, expected)


def test_the_first_trial_wins_but_for_rounding() -> None:
    """Two rows that are each other's only neighbours leave the same sum of D^2."""
    as_good, better = np.array([1.0 + 2e-16, 1.0, 1.0 - 1e-16]), np.array([1.0, 0.9, 0.95])
    assert (_first_least(as_good), _first_least(better)) == (0, 1)
