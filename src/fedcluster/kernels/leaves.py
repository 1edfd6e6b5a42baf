"""Rows fall down a tree of cuts; what those of each leaf add up to."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.kernels.native import native
from fedcluster.kernels.rows import Rows, Weights, as_centers, as_rows, as_weights

__all__ = ["Cuts", "LeafSums", "leaf_sums"]


class Cuts(NamedTuple):
    """Cuts in the order in which they were made: rows of a leaf go to another.

    Attributes
    ----------
    parent, child : ndarray of shape (c,), intp
        The leaf that is cut, and the leaf that rows go to.
    feature : ndarray of shape (c,), intp
        The column that decides.
    threshold : ndarray of shape (c,), float64
        The value that a row must have more than to go.
    """

    parent: NDArray[np.intp]
    child: NDArray[np.intp]
    feature: NDArray[np.intp]
    threshold: NDArray[np.float64]


class LeafSums(NamedTuple):
    """What the rows x of each leaf add up to, w their weights.

    Attributes
    ----------
    sums, squares : ndarray of shape (n_leaves, d), float64
        Sums of w x, and of w (x - m)^2 by column, with m the leaf's reference point.
    weights : ndarray of shape (n_leaves,), float64
        Sums of w.
    counts : ndarray of shape (n_leaves,), int64
        Numbers of rows.
    """

    sums: NDArray[np.float64]
    squares: NDArray[np.float64]
    weights: NDArray[np.float64]
    counts: NDArray[np.int64]


def leaf_sums(
    X: ArrayLike, references: ArrayLike, cuts: Cuts, sample_weight: ArrayLike | None = None
) -> LeafSums:
    """Sums over the rows of each leaf, added in the order of the rows.

    Parameters
    ----------
    X : array_like of shape (n, d), float32 or float64
        The rows; all begin in leaf 0.
    references : array_like of shape (n_leaves, d)
        The leaves' reference points.
    cuts : Cuts
        The tree; its leaves are among these, its columns among those of the rows.
    sample_weight : array_like of shape (n,), optional
        The rows' weights; 1 each by default.

    Examples
    --------
    >>> one = np.zeros(1, np.intp)
    >>> found = leaf_sums([[1.0], [2.0], [6.0]], [[1.0], [7.0]], Cuts(one, one + 1, one, one + 4.0))
    >>> found.sums.ravel(), found.squares.ravel(), found.counts
    (array([3., 6.]), array([1., 1.]), array([2, 1]))
    """
    centers = as_centers(references)
    return LeafSums(*_leaf_sums(as_rows(X), centers, cuts, as_weights(sample_weight)))


@native
def _leaf_sums(X: Rows, references: NDArray[np.float64], cuts: Cuts, weights: Weights) -> Any:
    n_leaves, d = references.shape
    sums, squares = np.zeros((n_leaves, d)), np.zeros((n_leaves, d))
    total, counts = np.zeros(n_leaves), np.zeros(n_leaves, np.int64)
    for i in range(len(X)):
        leaf = 0
        for cut in range(len(cuts.parent)):
            if cuts.parent[cut] == leaf and X[i, cuts.feature[cut]] > cuts.threshold[cut]:
                leaf = cuts.child[cut]
        w = weights[i] if len(weights) else 1.0
        for f in range(d):
            x = np.float64(X[i, f])
            apart = x - references[leaf, f]
            sums[leaf, f] += x * w
            squares[leaf, f] += apart * apart * w
        total[leaf] += w
        counts[leaf] += 1
    return sums, squares, total, counts
