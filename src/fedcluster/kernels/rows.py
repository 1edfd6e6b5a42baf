"""Layouts of rows, weights and centres, and loops over rows and chunks of them.

Conversion of rows, weights and centres to the few layouts that kernels are compiled for.

Loops over single rows: sums over the leaves of a tree, and scaling of rows.

Chunks of rows, which depend on the sizes alone; each has its own sums, added in order.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fedcluster.core import Floats
from fedcluster.kernels._tiles import add_squares
from fedcluster.kernels.runtime import inner, native

Rows = NDArray[np.float32] | Floats
Weights = Floats
Places = NDArray[np.intp]

Cuts = tuple[Places, Places, Places, Floats]
"""Cuts in order: for each, the leaf that is cut, the new leaf, the column, the threshold."""

Leaves = NDArray[np.int32]
Following = tuple[Places, Places, Places]
"""By cut, the next cut of the leaf that is cut and of the new leaf; by leaf, its first cut."""

# Blocks read up to 47 rows beyond the last one, and vectors up to 15 more.
PADDING = 64


def as_rows(X: ArrayLike) -> Rows:
    """Return rows as a read-only C array of float32 or float64, copied only if necessary."""
    X = np.asarray(X)
    return _as_read_only(X, np.float32 if X.dtype == np.float32 else np.float64)


def as_double_rows(X: ArrayLike) -> Floats:
    """Return rows as a read-only C array of float64, copied only if necessary."""
    return _as_read_only(np.asarray(X), np.float64)


def as_columns(X: Rows) -> Floats:
    """Return the columns of rows (n, d) as a read-only C array (d, n) of float64."""
    return _as_read_only(X.T, np.float64)


def as_centers(centers: ArrayLike) -> Floats:
    """Return centres as a new C array of float64."""
    return np.array(centers, np.float64, order="C")


def as_weights(sample_weight: ArrayLike | None) -> Weights:
    """Return weights as a read-only array of float64; an empty one if there are none.

    Without weights each row counts 1. The empty array instead of None avoids compiling a second
    kernel.
    """
    if sample_weight is None:
        return _NO_WEIGHTS
    return _as_read_only(np.asarray(sample_weight), np.float64)


def as_given_weights(sample_weight: Weights, n: int) -> Weights:
    """Return one weight for each of n rows, as the kernels for small data require."""
    return sample_weight if len(sample_weight) else _ones(n)


@lru_cache(maxsize=64)
def _ones(n: int) -> Weights:
    """Return n ones, cached because a site asks for the same in every round."""
    ones = np.full(n, 1.0)
    ones.flags.writeable = False
    return ones


def pad(X: Rows) -> Rows:
    """Return rows followed by PADDING rows of 0, which kernels may read but do not use."""
    n, d = X.shape
    padded = np.empty((n + PADDING, d), X.dtype)
    padded[:n], padded[n:] = X, 0
    padded.flags.writeable = False
    return padded


def _as_read_only(array: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """Return a read-only view of the array, or of an aligned C copy of this type."""
    flags = array.flags
    if array.dtype != dtype or not (flags.c_contiguous and flags.aligned):
        array = np.require(array, dtype, ["C", "A"])
    view = array.view()
    view.flags.writeable = False
    return view


_NO_WEIGHTS = _as_read_only(np.empty(0), np.float64)


def leaf_sums(
    X: Rows,
    cuts: Cuts,
    reference: Floats,
    sample_weight: Weights | None = None,
    cache: dict[str, Any] | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Compute sums over the rows of each leaf of a tree.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32 or float64
        The rows.
    cuts : (parent, child, feature, threshold), of shape (c,) each
        All rows begin in leaf 0. At each cut in turn, those of leaf ``parent`` whose column
        ``feature`` is above ``threshold`` go to leaf ``child``.
    reference : ndarray of shape (l, d)
        For each leaf, the point about which squares are computed.
    sample_weight : ndarray of shape (n,), optional
        The rows' weights w; 1 each by default.
    cache : dict, optional
        Where the leaves of these rows are kept while a tree grows, so that known cuts are not
        repeated. It never changes a result.

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
    cache = {} if cache is None else cache
    known, places = known_leaves(cache, cuts, len(X))
    following = next_cuts(cuts, len(reference), known)
    sums = _leaf_sums(as_rows(X), as_weights(sample_weight), reference, cuts, following, places)
    cache["leaf_sums"] = cuts, places
    return sums


def known_leaves(cache: dict[str, Any], cuts: Cuts, n: int) -> tuple[int, Leaves]:
    """Return how many cuts are in the cache, and the leaf of each row after these, (n,)."""
    if "leaf_sums" in cache:
        made, places = cache["leaf_sums"]
        known = len(made[0])
        if all(np.array_equal(old, new[:known]) for old, new in zip(made, cuts, strict=True)):
            return known, places.copy()  # a copy, as other threads may be reading the array
    return 0, np.zeros(n, np.int32)


def next_cuts(cuts: Cuts, n_leaves: int, known: int = 0) -> Following:
    """Return, by cut, the next cut of the old and the new leaf, and each leaf's first; or -1.

    Examples
    --------
    >>> cuts = tuple(map(np.array, ([0, 0, 1], [1, 2, 3], [0, 0, 0], [5.0, 2.0, 7.0])))
    >>> [each.tolist() for each in next_cuts(cuts, 4, known=1)]  # the first has been made
    [[1, -1, -1], [2, -1, -1], [1, 2, -1, -1]]
    """
    parent, child = cuts[:2]
    order = np.argsort(parent, kind="stable")
    again = parent[order[1:]] == parent[order[:-1]]
    stays, first, begins = (np.full(n, -1) for n in (len(parent), n_leaves, n_leaves))
    stays[order[:-1][again]] = order[1:][again]
    for of_leaf, cut in ((first, order[::-1]), (begins, order[order >= known][::-1])):
        of_leaf[parent[cut]] = cut  # if a leaf has several cuts, numpy keeps the last assignment
    goes = first[child]
    goes[goes <= np.arange(len(goes))] = -1  # an invalid tree must not lead to an endless loop
    return stays, goes, begins


@native
def _leaf_sums(
    X: Rows,
    sample_weight: Weights,
    reference: Floats,
    cuts: Cuts,
    following: Following,
    places: Leaves,
) -> tuple[Floats, Floats, Floats]:
    n_leaves, d = reference.shape
    sums, weights, counts = np.zeros((n_leaves, 2 * d)), np.zeros(n_leaves), np.zeros(n_leaves)
    place_in_leaves(X, cuts, following, places)
    for i in range(len(X)):
        leaf, w = np.int64(places[i]), sample_weight[i] if len(sample_weight) else 1.0
        add_squares(X, (i, leaf), reference, w, sums)
        weights[leaf] += w
        counts[leaf] += 1.0
    return sums, weights, counts


@inner
def place_in_leaves(X: Rows, cuts: Cuts, following: Following, places: Leaves) -> None:
    """Write the leaves of rows, from those that they were in before the new cuts."""
    (_, child, feature, threshold), (stays, goes, begins) = cuts, following
    for i in range(len(X)):
        leaf = np.int64(places[i])
        cut = begins[leaf]
        while cut >= 0:
            if X[i, feature[cut]] > threshold[cut]:
                leaf, cut = child[cut], goes[cut]
            else:
                cut = stays[cut]
        places[i] = leaf


def scale_rows(
    X: Rows, out: Rows, shift: Floats, scale: Floats, step: Floats, fill: Floats, bounds: Floats
) -> bool:
    """Write (x - shift) / scale into ``out``, and return whether a value is still missing.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32 or float64
        The rows; NaN marks a missing value.
    out : ndarray of shape (n, d), of the same type
        Where to write; the computation is in float64.
    shift, scale : ndarray of shape (d,)
        The subtrahend and the divisor.
    step : ndarray of shape (d,)
        The power of two of which results are multiples; 0 leaves them as they are.
    fill : ndarray of shape (d,)
        The value that replaces a missing one; NaN keeps it missing.
    bounds : ndarray of shape (2, d)
        The lowest and the highest value, to which values are clipped first.

    Returns
    -------
    bool
        Whether ``out`` has a NaN.

    Examples
    --------
    >>> X, out = np.array([[50.0, 22.0], [np.nan, 99.0]]), np.empty((2, 2))
    >>> shift, scale, fill = np.array([40.0, 0.0]), np.array([10.0, 1.0]), np.array([40.0, np.nan])
    >>> bounds = np.array([[-np.inf, 0.0], [np.inf, 60.0]])
    >>> scale_rows(X, out, shift, scale, np.zeros(2), fill, bounds)
    False
    >>> out
    array([[ 1., 22.],
           [ 0., 60.]])
    """
    return bool(_scale_rows(as_rows(X), out, shift, scale, step, fill, bounds))


@native
def _scale_rows(
    X: Rows, out: Rows, shift: Floats, scale: Floats, step: Floats, fill: Floats, bounds: Floats
) -> bool:
    n_missing = 0
    for i in range(len(X)):
        for j in range(X.shape[1]):
            x = np.float64(X[i, j])
            x = fill[j] if np.isnan(x) else min(max(x, bounds[0, j]), bounds[1, j])
            scaled = (x - shift[j]) / scale[j]
            if step[j] > 0.0:
                scaled = np.rint(scaled / step[j]) * step[j]
            out[i, j] = scaled
            n_missing += np.isnan(scaled)
    return n_missing > 0


SMALL_TABLE = 1 << 14  # largest table, in numbers, that is converted as a whole


def is_small(X: Rows) -> bool:
    """Return whether one compiled call on a copy of the rows is fastest."""
    return X.size <= SMALL_TABLE


def chunks(X: Rows, bounds: Sequence[int]) -> list[tuple[slice, Rows]]:
    """Return the rows of each chunk: a slice of X, and an array that begins with these rows."""
    sources = [(slice(*bound), X[bound[0] :]) for bound in pairwise(bounds)]
    rows, tail = sources[-1]
    return [*sources[:-1], (rows, pad(tail))]


@lru_cache(maxsize=256)
def chunk_bounds(n: int, k: int, d: int) -> tuple[int, ...]:
    """Compute the bounds of the chunks from the sizes alone: enough work in each, few sums to keep.

    All chunks are alike except the last, whose rows must be padded; after any other, X continues.
    Small data are one chunk.
    """
    if n * d <= SMALL_TABLE:
        return 0, n
    # about 16 million multiplications; the other work of a value counts as 16 more centres
    size = min(max((1 << 24) // ((k + 16) * d), 2048), 65536)
    size = max(size, n // 128 + 1)
    most = max(n - PADDING, 0)
    n_chunks = (most - 1) // size + 1
    return *(chunk * most // n_chunks for chunk in range(n_chunks)), most, n
