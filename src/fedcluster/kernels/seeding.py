"""Seeding: rows as initial centres, drawn by k-means++ or chosen as the farthest."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.core import Floats
from fedcluster.kernels._blocks import squared_distance
from fedcluster.kernels._sweep import assign
from fedcluster.kernels._tiles import (
    TILE_CENTERS,
    aligned_zeros,
    block_rows,
    squared_distances,
)
from fedcluster.kernels.rows import (
    Rows,
    Weights,
    as_centers,
    as_columns,
    as_given_weights,
    as_rows,
    as_weights,
)
from fedcluster.kernels.runtime import inlined, inner_in_any_order, native


def kmeans_plusplus(
    X: ArrayLike,
    n_clusters: int,
    sample_weight: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    n_local_trials: int | None = None,
) -> NDArray[np.int64]:
    """Draw rows as first centres by greedy k-means++ [1]_.

    The first row is drawn with probability proportional to its weight w. Each further row is the
    best of a few trials, drawn with probability proportional to w D^2, where D is the distance to
    the nearest row chosen so far; the best trial minimises the sum of w D^2.

    Parameters
    ----------
    X : array_like of shape (n, d), float32 or float64
        The rows.
    n_clusters : int
        The number of rows to draw, at most n.
    sample_weight : array_like of shape (n,), optional
        The rows' weights w >= 0, 1 each by default. A row of weight 0 is never drawn.
    rng : numpy.random.Generator
        The random numbers. Their count does not depend on the rows, and a row of weight 3 is drawn
        by the same numbers as three equal rows in its place.
    n_local_trials : int, optional
        Trials for each row but the first: 2 + log(n_clusters), rounded down, by default.

    Returns
    -------
    indices : ndarray of shape (n_clusters,), int64
        The rows drawn, in order. Their values differ as long as there are enough distinct rows.

    References
    ----------
    .. [1] D. Arthur and S. Vassilvitskii, "k-means++: the advantages of careful seeding", SODA
       2007; the greedy trials as in the authors' code and in scikit-learn.

    Examples
    --------
    >>> X = [[0.0], [0.0], [5.0], [5.0]]
    >>> sorted(kmeans_plusplus(X, 2, [1, 0, 0, 1], rng=np.random.default_rng(0)).tolist())
    [0, 3]
    """
    rows = as_rows(X)
    weights = as_given_weights(as_weights(sample_weight), len(rows))
    n_trials = default_trials(n_clusters) if n_local_trials is None else n_local_trials
    chances = rng.random((n_clusters, n_trials))
    return draw_spread(as_columns(rows), weights, n_clusters, chances)


def farthest_first(X: ArrayLike, start_centers: ArrayLike, n_clusters: int) -> NDArray[np.int64]:
    """Continue a list of centres, each time with the row farthest from all of them.

    Steps 3 to 5 of kFed's server, Algorithm 2 of [1]_; ties go to the lowest index.

    Parameters
    ----------
    X : array_like of shape (n, d), float32 or float64
        The rows, in kFed the centres that the sites sent.
    start_centers : array_like of shape (m, d)
        The centres to start from, in kFed those of one site; 1 <= m <= n_clusters.
    n_clusters : int
        The total number of centres, including those of the start.

    Returns
    -------
    indices : ndarray of shape (n_clusters - m,), int64
        The rows chosen, in order.

    References
    ----------
    .. [1] D. K. Dennis, T. Li and V. Smith, "Heterogeneity for the win: one-shot federated
       clustering", ICML 2021.

    Examples
    --------
    >>> farthest_first([[0.0], [1.0], [5.0], [9.0]], start_centers=[[0.0]], n_clusters=3)
    array([3, 2])
    """
    rows, start = as_rows(X), as_centers(start_centers)
    _, squared = assign(rows, start)
    return _farthest(rows, squared, n_clusters - len(start))


def default_trials(n_clusters: int) -> int:
    """Return the number of trials of k-means++ per centre, 2 + log(k) rounded down."""
    return 2 + int(np.log(n_clusters))


@native
def draw_spread(
    columns: Floats, sample_weight: Weights, n_clusters: int, chances: Floats
) -> NDArray[np.int64]:
    """Draw rows by greedy k-means++ from uniform numbers (n_clusters, n_trials) in [0, 1).

    The rows are given as columns (d, n), so that distances from many rows are vectorised.
    """
    n, n_trials = columns.shape[1], chances.shape[1]
    indices, candidates = (
        aligned_zeros(np.int64, (n_clusters,)),
        aligned_zeros(np.int64, (n_trials,)),
    )
    # the squared distances if one more row is chosen
    trials, blocks = aligned_zeros(chances.dtype, (n_trials + 2, n)), _in_blocks(columns)
    closest, masses = trials[n_trials], trials[n_trials + 1]
    potentials = aligned_zeros(chances.dtype, (n_trials,))
    closest[:] = np.inf
    for c in range(n_clusters):
        _cumulate(sample_weight, closest, masses)
        for t in range(n_trials):
            # the first centre has one trial
            candidates[t] = _draw(masses, chances[c, t if c else 0])
        _try_all(blocks, sample_weight, candidates, closest, trials, potentials)
        best = _first_least(potentials)
        indices[c] = candidates[best]
        for i in range(n):
            closest[i] = trials[best, i]
    return indices


@inlined
def _in_blocks(columns: Floats) -> Floats:
    """Return columns (d, n) as blocks of rows (n / rows, d, rows), filled up by 0.

    A block is read from one place, columns of many rows from as many as there are columns.
    """
    (d, n), size = columns.shape, block_rows(columns)
    blocks = aligned_zeros(columns.dtype, ((n + size - 1) // size, d, size))
    for start in range(0, n, size):
        block = blocks[start // size]
        for f in range(d):
            for i in range(start, min(start + size, n)):
                block[f, i - start] = columns[f, i]
    return blocks


@inner_in_any_order
def _try_all(
    blocks: Floats,
    sample_weight: Weights,
    candidates: NDArray[np.int64],
    closest: Floats,
    trials: Floats,
    potentials: Floats,
) -> None:
    """Write D^2 of each row after adding each candidate, and the sums of w D^2."""
    n, (_, d, size) = len(closest), blocks.shape
    points = aligned_zeros(blocks.dtype, (d, TILE_CENTERS))
    squared = aligned_zeros(blocks.dtype, (TILE_CENTERS, size))
    potentials[:] = 0
    for tile in range(0, len(candidates), TILE_CENTERS):
        some = candidates[tile : tile + TILE_CENTERS]
        for t in range(len(some)):
            for f in range(d):
                points[f, t] = blocks[some[t] // size, f, some[t] % size]
        for start in range(0, n, size):
            squared_distances(blocks[start // size], points, squared)
            for t in range(len(some)):
                total = 0.0
                for i in range(start, min(start + size, n)):
                    least = min(squared[t, i - start], closest[i])
                    trials[tile + t, i] = least
                    total += sample_weight[i] * least
                potentials[tile + t] += total


@inlined
def _first_least(potentials: Floats) -> int:
    """Return the first trial that equals the best up to rounding.

    Two rows that are each other's only neighbours leave the same potential. Its last digits, which
    depend on the processor's vectors, must not decide between them.
    """
    best = 0
    for t in range(1, len(potentials)):
        if potentials[t] < potentials[best] * (1 - 1e-12):
            best = t
    return best


@inlined
def _cumulate(sample_weight: Weights, closest: Floats, masses: Floats) -> None:
    """Write cumulative sums of w D^2; of w for the first draw or if all rows equal drawn ones."""
    total = 0.0
    for i in range(len(closest)):
        total += sample_weight[i] * closest[i] if sample_weight[i] > 0 else 0.0
        masses[i] = total
    if not 0 < total < np.inf:
        total = 0.0
        for i in range(len(closest)):
            total += sample_weight[i]
            masses[i] = total


@inlined
def _draw(masses: Floats, chance: float) -> int:
    """Return the first row at which the cumulative sum exceeds this share of the total."""
    first, behind, mass = 0, len(masses) - 1, chance * masses[-1]
    while first < behind:  # binary search, as np.searchsorted takes long to compile
        middle = (first + behind) // 2
        # all further rows have the mass 0
        if masses[middle] > mass or masses[middle] == masses[-1]:
            behind = middle
        else:
            first = middle + 1
    return first


@native
def _farthest(X: Rows, squared: Floats, n_more: int) -> NDArray[np.int64]:
    """Choose ``n_more`` times the row with the largest D^2."""
    closest = squared.copy()
    indices = np.zeros(n_more, np.int64)
    for c in range(n_more):
        for i in range(len(X)):
            indices[c] = i if closest[i] > closest[indices[c]] else indices[c]
        for i in range(len(X)):
            closest[i] = min(closest[i], squared_distance(X, i, X, indices[c]))
    return indices
