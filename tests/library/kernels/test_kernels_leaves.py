"""Sums over the leaves of a tree, against plain NumPy."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcluster.algorithms import VarianceTree
from fedcluster.core import Data, State
from fedcluster.kernels.rows import leaf_sums


def plain_leaves(X, parent, child, feature, threshold):
    """One cut after the other, each over all rows."""
    leaf = np.zeros(len(X), dtype=int)
    for p, c, f, t in zip(parent, child, feature, threshold, strict=True):
        leaf[(leaf == p) & (X[:, f] > t)] = c
    return leaf


def plain_sums(X, leaf, reference, w):
    X, n = X.astype(float), len(reference)
    columns = [*(X * w[:, None]).T, *((X - reference[leaf]) ** 2 * w[:, None]).T]
    return np.column_stack([np.bincount(leaf, x, n) for x in columns])


@st.composite
def trees(draw):
    """Any cuts of leaves that are there; small whole numbers, so that thresholds are met."""
    n, d, n_cuts = draw(st.integers(0, 60)), draw(st.integers(1, 9)), draw(st.integers(0, 9))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    X = (rng.integers(-4, 5, (n, d)) * 0.3).astype(draw(st.sampled_from([np.float32, float])))
    parent = np.array([rng.integers(c + 1) for c in range(n_cuts)], dtype=np.intp)
    feature = rng.integers(0, d, n_cuts)
    threshold = rng.choice([*X.ravel(), -0.5, 0.0, 9.0], n_cuts).astype(float)
    cuts = parent, np.arange(1, n_cuts + 1), feature, threshold
    w = rng.integers(0, 3, n) * 0.7 if draw(st.booleans()) else None
    return X, cuts, rng.normal(size=(n_cuts + 1, d)), w


@given(trees())
def test_as_in_plain_numpy_to_the_last_bit(tree):
    X, cuts, reference, w = tree
    sums, weights, counts = leaf_sums(X, cuts, reference, w)
    leaf, w = plain_leaves(X, *cuts), np.ones(len(X)) if w is None else w
    assert_array_equal(sums, plain_sums(X, leaf, reference, w))
    assert_array_equal(weights, np.bincount(leaf, w, len(reference)))
    assert_array_equal(counts, np.bincount(leaf, minlength=len(reference)))


@given(trees(), st.lists(st.integers(0, 9), max_size=6), st.booleans())
def test_a_tree_that_grows_or_shrinks_has_the_bits_of_a_new_one(tree, lengths, turned):
    """Whatever was asked of these rows before: a part of the tree, all of it, or another tree."""
    X, cuts, reference, w = tree
    cache: dict[str, Any] = {}
    for n in lengths:
        part = tuple(each[:n] for each in cuts)
        if turned and n % 2:
            part = (*part[:3], -part[3])
        leaves = reference[: len(part[0]) + 1]
        kept = leaf_sums(X, part, leaves, w, cache)
        for one, other in zip(kept, leaf_sums(X, part, leaves, w), strict=True):
            assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("feature", [2]),
        ("parent", [7]),
        ("feature", [-1]),
        ("feature", [np.nan]),
        ("parent", [-1]),
        ("child", [-2]),
        ("child", [2]),
        ("threshold", []),
        ("threshold", [0, 0]),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_a_tree_that_points_outside_is_refused(name, wrong):
    """A question comes from elsewhere: no site may read beyond its rows for it."""
    rows, rng = Data(np.arange(40.0).reshape(20, 2)), np.random.default_rng(0)
    tree, state = VarianceTree(4, min_rows=1), State()
    for _ in range(2):
        state = tree.server_step(state, [tree.client_step(state, rows, rng)], rng)
    assert len(state.memory["parent"]) == 1
    bent = replace(state, memory={**state.memory, name: np.array(wrong, float)})
    with pytest.raises(ValueError, match=r"^the cuts are not those of 2 leaves and 2 columns$"):
        tree.client_step(bent, rows, rng)
