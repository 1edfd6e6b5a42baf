"""Epochs of k-means in batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedcluster.kernels import iteration as minibatch
from fedcluster.kernels.iteration import minibatch_epochs


def plain_epochs(X, centers, w, batch_size, orders, rate):
    """The formulas in plain NumPy: mu += rate L / seen (G - mu), anew in each epoch."""
    mu = np.array(centers, float)
    for order in orders:
        seen, counts = np.zeros(len(mu)), np.zeros(len(mu), int)
        for b in order:
            rows = slice(b * batch_size, (b + 1) * batch_size)
            x, v = X[rows], w[rows]
            nearest = np.square(x[:, None] - mu).sum(axis=2).argmin(axis=1)
            for j in range(len(mu)):
                mine = nearest == j
                if v[mine].sum() > 0:
                    seen[j] += v[mine].sum()
                    counts[j] += (v[mine] > 0).sum()
                    G = np.average(x[mine], axis=0, weights=v[mine])
                    mu[j] += rate * v[mine].sum() / seen[j] * (G - mu[j])
    return mu, seen, counts


@st.composite
def cases(draw):
    """Rows without ties, weights with zeros, batches in some order in each epoch."""
    n, d, k, size, epochs = (draw(st.integers(1, most)) for most in (40, 5, 6, 45, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    X, centers = rng.normal(size=(n, d)), rng.normal(size=(k, d))
    weight = rng.integers(0, 4, n).astype(float) if draw(st.booleans()) else np.ones(n)
    orders = [rng.permutation(-(-n // size)) for _ in range(epochs)]
    return X, centers, weight, size, orders, draw(st.sampled_from([1.0, 0.5, 0.1]))


@given(cases())
def test_epochs_are_those_of_plain_numpy(case):
    X, centers, weight, size, orders, rate = case
    fit = minibatch_epochs(X, centers, weight, batch_size=size, orders=orders, rate=rate)
    expected = plain_epochs(X, centers, weight, size, orders, rate)
    assert_allclose(fit.centers, expected[0], rtol=1e-12, atol=1e-12)
    assert_array_equal(fit.weights, expected[1])
    assert_array_equal(fit.counts, expected[2])


@given(cases())
def test_an_offset_of_1e8_changes_no_assignment(case):
    """On a grid of 1/8, where the offset is exact; the means are then, too, but for rounding."""
    X, centers = np.round(8 * case[0]) / 8, np.round(8 * case[1]) / 8 + 1 / 16
    near, far = (
        minibatch_epochs(X + at, centers + at, batch_size=len(X), orders=[[0]]) for at in (0, 1e8)
    )
    assert_array_equal(far.weights, near.weights)
    assert_allclose(far.centers - 1e8, near.centers, atol=1e-7)


@given(cases())
def test_large_batches_go_another_way_to_the_same_bits(case):
    X, centers, weight, size, orders, rate = case
    small = minibatch_epochs(X, centers, weight, batch_size=size, orders=orders, rate=rate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minibatch, "WORTH_A_CALL", 0)
        large = minibatch_epochs(X, centers, weight, batch_size=size, orders=orders, rate=rate)
    assert_array_equal(large.centers, small.centers)
    assert_array_equal(large.weights, small.weights)
    assert_array_equal(large.counts, small.counts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [50, 5000])
def test_nothing_given_is_changed_and_float32_is_read(dtype, n):
    rng = np.random.default_rng(0)
    X, centers = rng.normal(size=(n, 6)).astype(dtype), rng.normal(size=(4, 6))
    before = X.copy(), centers.copy()
    fit = minibatch_epochs(X, centers, batch_size=n, orders=[[0]] * 2)
    assert_array_equal(X, before[0])
    assert_array_equal(centers, before[1])
    expected = plain_epochs(X.astype(float), centers, np.ones(n), n, [[0]] * 2, 1.0)
    assert_allclose(fit.centers, expected[0], rtol=1e-12)
