"""Sums over the leaves of a tree: the bits of adding row after row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedcluster.algorithms import VarianceTree
from fedcluster.core import Data, State
from fedcluster.kernels import Cuts, leaf_sums


def by_columns(X, references, cuts, weight):
    """The same with NumPy: each row's leaf first, then column after column."""
    columns, (n, d) = np.ascontiguousarray(X.T, np.float64), references.shape
    leaf = np.zeros(len(X), np.intp)
    for parent, child, feature, threshold in zip(*cuts, strict=True):
        leaf[(leaf == parent) & (columns[feature] > threshold)] = child
    sums, squares = np.empty((n, d)), np.empty((n, d))
    for j, x in enumerate(columns):
        sums[:, j] = np.bincount(leaf, x * weight, n)
        squares[:, j] = np.bincount(leaf, (x - references[:, j][leaf]) ** 2 * weight, n)
    return sums, squares, np.bincount(leaf, weight, n), np.bincount(leaf, minlength=n)


@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.tuples(st.integers(1, 300), st.integers(1, 7), st.integers(0, 12)),
    dtype=st.sampled_from([np.float32, np.float64]),
    offset=st.sampled_from([0.0, 1e8]),
    weighed=st.booleans(),
)
def test_the_bits_are_those_of_numpy(seed, sizes, dtype, offset, weighed) -> None:
    (n, d, c), rng = sizes, np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) * 3 + offset).astype(dtype)
    weight = rng.random(n) if weighed else np.ones(n)
    parents = np.array([rng.integers(0, i + 1) for i in range(c)], np.intp)
    features = rng.integers(0, d, c).astype(np.intp)
    cuts = Cuts(parents, np.arange(1, c + 1), features, X[rng.integers(0, n, c), features] * 1.0)
    cuts = cuts._replace(threshold=cuts.threshold.astype(np.float64))
    references = rng.normal(size=(c + 1, d)) + offset
    found = leaf_sums(X, references, cuts, weight if weighed else None)
    for one, other in zip(found, by_columns(X, references, cuts, weight), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "change",
    [
        {"feature": np.array([2.0])},
        {"feature": np.array([-1.0])},
        {"feature": np.array([np.nan])},
        {"parent": np.array([7.0])},
        {"child": np.array([-2.0])},
        {"threshold": np.zeros(0)},
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_a_tree_that_points_outside_is_refused(change) -> None:
    """A question comes from elsewhere: no site may read beyond its rows for it."""
    rows, rng = Data(np.arange(40.0).reshape(20, 2)), np.random.default_rng(0)
    tree, state = VarianceTree(4, min_rows=1), State()
    for _ in range(2):
        state = tree.server_step(state, [tree.client_step(state, rows, rng)], rng)
    assert len(state.memory["parent"]) == 1
    wrong = replace(state, memory={**state.memory, **change})
    with pytest.raises(ValueError, match=r"^the cuts are not those of 2 leaves and 2 columns$"):
        tree.client_step(wrong, rows, rng)
