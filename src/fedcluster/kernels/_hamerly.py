"""Successive hard passes: a row whose nearest centre is certain is not scored again.

Hamerly's bounds [1]_, a simpler form of Elkan's [2]_. For every row with its label a

    u >= ||x - c_a||    and    l <= ||x - c_j||  for all other centres c_j.

When the centres move, u grows by the displacement of c_a and l shrinks by the largest displacement
of another centre; also, l is at least the distance from c_a to its nearest other centre, less u.
While l is sufficiently above u, the label stays. The margin is derived from the rounding of a full
pass, so that the label is the one that a full pass would give in the arithmetic of the rows' type:
if scores are wrong by at most E, it is certain if l^2 - u^2 > 4 E.

The stored value is l plus all displacements of the other centres so far, so that it need not be
updated as they move. The sums of a cluster over a chunk of rows are kept as well: if neither its
centre nor a label changed, they are reused; otherwise its rows are added anew, in order, as in a
full pass. Thus the bits are the same.

.. [1] G. Hamerly, "Making k-means even faster", SDM 2010.
.. [2] C. Elkan, "Using the triangle inequality to accelerate k-means", ICML 2003.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.kernels._blocks import (
    PackedCenters,
    Parts,
    squared_distance,
)
from fedcluster.kernels._tiles import add, aligned_zeros, block_rows, score_block
from fedcluster.kernels.rows import PADDING, Rows, Weights
from fedcluster.kernels.runtime import inlined, inner, native

SLACK = np.float32(2.0**-19)  # relative; more than some roundings in float32
TINY = np.float32(2.0**-64)  # absolute; more than the root of what float32 flushes to 0
FARTHEST = np.float32(1e15)  # l is at most this: where u is more, float32 might overflow


class Bounds(NamedTuple):
    """Labels and bounds of the rows of one chunk, or of all.

    Attributes
    ----------
    labels : ndarray of shape (n,), int32
        The nearest centre a.
    lower : ndarray of shape (n,), float32
        l, plus all displacements so far of the centres other than a.
    above : ndarray of shape (n,), float32
        ``lower`` less u.
    """

    labels: NDArray[np.int32]
    lower: NDArray[np.float32]
    above: NDArray[np.float32]


class Moves(NamedTuple):
    """Moves of the centres, and the rounding errors of scores.

    Attributes
    ----------
    is_same : ndarray of shape (k,), bool
        True for a centre that has not moved since the last pass.
    others : ndarray of shape (k,), float32
        The largest displacement of another centre, summed over the passes.
    enough : ndarray of shape (k,), float32
        A row is certain if its ``above`` is larger than this.
    apart : ndarray of shape (k,), float32
        The distance from each centre to its nearest other one.
    rounding : tuple of two floats
        4 E is at most the first number times u plus the second one.
    """

    is_same: NDArray[np.bool_]
    others: NDArray[np.float32]
    enough: NDArray[np.float32]
    apart: NDArray[np.float32]
    rounding: tuple[np.float32, np.float32]


@native
def empty_bounds(n: int) -> Bounds:
    """Return uninitialised bounds for n rows."""
    return Bounds(np.empty(n, np.int32), np.empty(n, np.float32), np.empty(n, np.float32))


@native
def displacements(before: Floats, after: Floats) -> Floats:
    """Return lower bounds of how far each centre moved, (k,); 0 only for an unmoved centre."""
    moved = aligned_zeros(after.dtype, (len(before),))
    for j in range(len(before)):
        is_same = True
        for f in range(before.shape[1]):
            is_same &= before[j, f] == after[j, f]
        if not is_same:
            moved[j] = np.sqrt(squared_distance(before, j, after, j)) * (1 + SLACK) + TINY
    return moved


@native
def next_centers(centers: Floats) -> Floats:
    """Return upper bounds of the distance to the nearest other centre, (k,), at most FARTHEST."""
    k = len(centers)
    distances = aligned_zeros(centers.dtype, (k,))
    distances[:] = np.float64(FARTHEST)
    for j in range(k):
        for other in range(j):
            distance = np.sqrt(squared_distance(centers, j, centers, other)) * (1 - SLACK)
            distances[j] = min(distances[j], distance)
            distances[other] = min(distances[other], distance)
    return distances


@native
def bounded_chunk(
    X: Rows,
    sample_weight: Weights,
    packed: PackedCenters,
    bounds: Bounds,
    moves: Moves,
    parts: Parts,
    is_known: bool,
) -> tuple[int, int, int]:
    """Update the sums and bounds of a chunk, as ``sweep_chunk`` does, but with bounds.

    If nothing is known, all bounds are computed. Returns the numbers of rows that looked uncertain,
    that were scored, and that were added.
    """
    n, same = len(bounds.labels), moves.is_same.copy()
    doubtful, members = np.empty(n, np.int32), np.empty(n, np.int32)
    n_doubtful, n_added = n, n
    if is_known:
        n_doubtful, n_added = _sort_out(bounds, moves.enough, same, doubtful, members)
    if n_doubtful > n // 2 or not is_known:
        _score_all(X, sample_weight, packed, bounds, moves, parts)
        return n, n, n
    n_scored = _uncertain(X, packed, bounds, moves, doubtful[:n_doubtful])
    if _score_some(X, packed, bounds, moves, same, doubtful[:n_scored]):
        _, n_added = _sort_out(bounds, moves.enough, same, doubtful, members)
    _forget(parts, same)
    _add(X, sample_weight, packed, bounds, parts, members[:n_added])
    return n_doubtful, n_scored, n_added


@inner
def _sort_out(
    bounds: Bounds,
    enough: NDArray[np.float32],
    same: NDArray[np.bool_],
    doubtful: NDArray[np.int32],
    members: NDArray[np.int32],
) -> tuple[int, int]:
    """Write the rows whose nearest centre may have changed, and those to be added anew."""
    labels, above, n_doubtful, n_members = bounds.labels, bounds.above, 0, 0
    for i in range(len(labels)):
        j = np.uint32(labels[i])  # numba asks of other integers whether they are negative
        doubtful[n_doubtful] = members[n_members] = i
        n_doubtful += not above[i] > enough[j]
        n_members += not same[j]
    return n_doubtful, n_members


@inner
def _uncertain(
    X: Rows, packed: PackedCenters, bounds: Bounds, moves: Moves, rows: NDArray[np.int32]
) -> int:
    """Move the rows that remain uncertain with u measured to the front; return their number."""
    labels, lower, centers, count = bounds.labels, bounds.lower, packed.centers, 0
    others, apart, (per_distance, besides) = moves.others, moves.apart, moves.rounding
    for i in rows:
        j = labels[i]
        near = _upper(np.float32(squared_distance(X, i, centers, j)))
        far = max(lower[i] - others[j], apart[j] - near)
        is_certain = far > near and (far - near) * (far + near) > per_distance * near + besides
        rows[count] = i
        count += not is_certain
    return count


@native
def _upper(squared: np.float32) -> np.float32:
    """Return u, the distance plus a margin for the rounding of all operations on it."""
    return np.sqrt(squared) * (np.float32(1) + SLACK) + TINY


@native
def _lower(
    squared: np.float32, gap: np.float32, others: np.float32, wrong: np.float32
) -> np.float32:
    """Return the stored form of l, from the distance and the gap of the two lowest scores."""
    least = np.float32(1) - SLACK
    far = np.sqrt(max(squared * least + gap + gap - wrong, np.float32(0)))
    return (min(far, FARTHEST) + others) * least - TINY


@inner
def _score_some(
    X: Rows,
    packed: PackedCenters,
    bounds: Bounds,
    moves: Moves,
    same: NDArray[np.bool_],
    rows: NDArray[np.int32],
) -> bool:
    """Score some rows, gathered a few blocks at a time; return whether sums must be recomputed.

    A cluster that gains or loses a row is marked as changed.
    """
    has_others = False
    d, step = X.shape[1], max(min(_rows_in_cache(X), len(rows)), 1)
    gathered, scored = np.empty((step + PADDING, d), X.dtype), empty_bounds(step)
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        for r in range(len(some)):
            for f in range(d):
                gathered[r, f] = X[some[r], f]
        _score(gathered, packed, scored, 0, len(some))
        for r in range(len(some)):
            i, j = some[r], scored.labels[r]
            if bounds.labels[i] != j:
                has_others |= same[bounds.labels[i]] or same[j]
                same[bounds.labels[i]] = same[j] = False
            scored.above[r] = squared_distance(X, i, packed.centers, j)
        _bound(scored, moves, 0, len(some))
        for r in range(len(some)):
            i = some[r]
            bounds.labels[i], bounds.lower[i] = scored.labels[r], scored.lower[r]
            bounds.above[i] = scored.above[r]
    return has_others


@inner
def _score_all(
    X: Rows,
    sample_weight: Weights,
    packed: PackedCenters,
    bounds: Bounds,
    moves: Moves,
    parts: Parts,
) -> None:
    """Score all rows, and add them while they are in the cache."""
    n, step = len(bounds.labels), _rows_in_cache(X)
    _forget(parts, np.zeros(len(parts.weights), np.bool_))
    for start in range(0, n, step):
        stop = min(start + step, n)
        _score(X, packed, bounds, start, stop)
        for i in range(start, stop):
            bounds.above[i] = add(X, sample_weight, i, bounds.labels[i], packed, parts)
        _bound(bounds, moves, start, stop)


@inner
def _bound(bounds: Bounds, moves: Moves, start: int, stop: int) -> None:
    """Replace score gaps in ``lower`` and squared distances in ``above`` by bounds."""
    (labels, lower, above), others, (per_distance, besides) = bounds, moves.others, moves.rounding
    for i in range(start, stop):
        squared = above[i]
        near = _upper(squared)
        far = _lower(squared, lower[i], others[labels[i]], per_distance * near + besides)
        lower[i], above[i] = far, far - near


@inner
def _rows_in_cache(X: Rows) -> int:
    """Return how many rows, in whole blocks, are scored before they are added."""
    size = block_rows(X)
    # what is scored before it is added stays in the cache: 128 KiB, at least 8 blocks
    return max((1 << 17) // (X.shape[1] * X.itemsize * size), 8) * size


@inlined
def _score(X: Rows, packed: PackedCenters, bounds: Bounds, start: int, stop: int) -> None:
    """Write the labels of consecutive rows and, for l, the gap between their two lowest scores."""
    (labels, gap, _), size = bounds, block_rows(X)
    block, nearest = aligned_zeros(X.dtype, (len(packed.shift), size)), np.empty(size, np.int32)
    lowest, second = np.empty(size, X.dtype), np.empty(size, X.dtype)
    for first in range(start, stop, size):
        second[:] = np.inf
        score_block(block, X, first, packed, lowest, nearest, (second,))
        for i in range(first, min(first + size, stop)):
            labels[i], gap[i] = nearest[i - first], second[i - first] - lowest[i - first]


@inner
def _forget(parts: Parts, same: NDArray[np.bool_]) -> None:
    """Reset the sums of the changed clusters to 0."""
    residuals, weights, counts, errors = parts
    for j in range(len(same)):
        if not same[j]:
            residuals[j], weights[j], counts[j], errors[j] = 0, 0, 0, 0


@inner
def _add(
    X: Rows,
    sample_weight: Weights,
    packed: PackedCenters,
    bounds: Bounds,
    parts: Parts,
    rows: NDArray[np.int32],
) -> None:
    """Add rows to the sums of their centres, which also gives their u."""
    labels, lower, above = bounds
    for i in rows:
        squared = add(X, sample_weight, i, labels[i], packed, parts)
        above[i] = lower[i] - _upper(np.float32(squared))
