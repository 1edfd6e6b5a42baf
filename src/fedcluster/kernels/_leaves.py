"""The rows of a tree's leaves, found and added up in one reading."""

import numpy as np
from numpy.typing import NDArray

from fedcluster.kernels._native import native
from fedcluster.kernels._rows import Rows, Weights, as_rows, as_weights

Places = NDArray[np.intp]
Floats = NDArray[np.float64]

Cuts = tuple[Places, Places, Places, Floats]
"""Of each cut, in their order: the leaf that is cut, the new leaf, the column, the threshold."""


def leaf_sums(
    X: Rows, cuts: Cuts, reference: Floats, sample_weight: Weights | None = None
) -> tuple[Floats, Floats, Floats]:
    """Sums over the rows of each leaf.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32 or float64
        The rows.
    cuts : (parent, child, feature, threshold), of shape (c,) each
        All rows begin in leaf 0. At each cut in turn, those of leaf ``parent`` whose column
        ``feature`` is above ``threshold`` go to leaf ``child``.
    reference : ndarray of shape (l, d)
        Of each leaf, the point about which squares are taken.
    sample_weight : ndarray of shape (n,), optional
        The rows' weights w; 1 each by default.

    Returns
    -------
    sums : ndarray of shape (l, 2 d)
        Sums of w x, and of w (x - reference)^2 column by column.
    weights, counts : ndarray of shape (l,)
        Sums of w, and numbers of rows.

    Examples
    --------
    >>> X, cut = np.array([[1.0], [2.0], [9.0]]), ([0], [1], [0], [5.0])
    >>> cuts = tuple(np.array(each) for each in cut)
    >>> leaf_sums(X, cuts, np.array([[0.0], [8.0]]))
    (array([[3., 5.],
           [9., 1.]]), array([2., 1.]), array([2., 1.]))
    """
    parent, child, feature, threshold = cuts
    stays, goes = _next_cuts(parent, child)
    rows, weights = as_rows(X), as_weights(sample_weight)
    first = 0 if len(parent) else -1
    return _leaf_sums(rows, weights, reference, first, stays, goes, child, feature, threshold)


def _next_cuts(parent: Places, child: Places) -> tuple[Places, Places]:
    """Of each cut, the next one of the leaf that is cut, and of the new leaf; -1 where none is."""
    following = dict[int, int]()
    stays, goes = np.full(len(parent), -1), np.full(len(parent), -1)
    for c in reversed(range(len(parent))):
        stays[c] = following.get(int(parent[c]), -1)
        goes[c] = following.get(int(child[c]), -1)
        following[int(parent[c])] = c
    return stays, goes


@native
def _leaf_sums(
    X: Rows,
    sample_weight: Weights,
    reference: Floats,
    first: int,
    stays: Places,
    goes: Places,
    child: Places,
    feature: Places,
    threshold: Floats,
) -> tuple[Floats, Floats, Floats]:
    (n, d), n_leaves = X.shape, len(reference)
    sums = np.zeros((n_leaves, 2 * d))
    weights, counts = np.zeros(n_leaves), np.zeros(n_leaves)
    for i in range(n):
        cut, leaf = first, 0
        while cut >= 0:
            if X[i, feature[cut]] > threshold[cut]:
                leaf, cut = child[cut], goes[cut]
            else:
                cut = stays[cut]
        w = sample_weight[i] if len(sample_weight) else 1.0
        for j in range(d):
            x = np.float64(X[i, j])
            off = x - reference[leaf, j]
            sums[leaf, j] += x * w
            sums[leaf, d + j] += off * off * w
        weights[leaf] += w
        counts[leaf] += 1.0
    return sums, weights, counts
