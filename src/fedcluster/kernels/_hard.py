"""Hard passes: each row belongs to its nearest centre; late rounds rescore few rows.

``hard_sums`` keeps bounds for the rows (see below) in a cache that a site keeps between
rounds, for several runs that may take turns.

Successive hard passes: a row whose nearest centre is certain is not scored again.

Hamerly's bounds [1]_, a simpler form of Elkan's [2]_. For every row with its label a

    u >= ||x - c_a||    and    l <= ||x - c_j||  for all other centres c_j.

When the centres move, u grows by the displacement of c_a and l shrinks by the largest displacement
of another centre; also, l is at least the distance from c_a to its nearest other centre, less u.
While l is sufficiently above u, the label stays. The margin is derived from the rounding of a full
pass, so that the label is the one that a full pass would give in the arithmetic of the rows' type:
if scores are wrong by at most E, it is certain if l^2 - u^2 > 4 E.

A centre that moves far would make all rows uncertain. So the few that move farthest are scored for
all rows instead, and lower l where they are nearer; how many, depends on what takes least time.

The stored value is l plus all displacements of the other centres so far, so that it need not be
updated as they move. The sums of a cluster over a chunk of rows are kept as well: if neither its
centre nor a label changed, they are reused; otherwise its rows are added anew, in order, as in a
full pass. Thus the bits are the same.

.. [1] G. Hamerly, "Making k-means even faster", SDM 2010.
.. [2] C. Elkan, "Using the triangle inequality to accelerate k-means", ICML 2003.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.core import Floats, Labels
from fedcluster.core.threads import for_each_chunk, thread_count
from fedcluster.kernels._blocks import (
    ClusterSums,
    PackedCenters,
    Parts,
    forget,
    pack_centers,
    squared_distance,
    zero_parts,
)
from fedcluster.kernels._sweep import (
    add_all,
    add_by_centers,
    assign,
    by_label,
    handed_over,
    is_wide,
    is_worth_single,
    measured,
    sweep_once,
    swept,
)
from fedcluster.kernels._tiles import (
    ADD_LANES,
    TILE_CENTERS,
    add,
    aligned_zeros,
    block_rows,
    score_block,
)
from fedcluster.kernels.rows import (
    PADDING,
    Rows,
    Weights,
    as_centers,
    as_rows,
    as_weights,
    chunk_bounds,
    chunks,
    pad,
)
from fedcluster.kernels.runtime import inlined, inner, native

SLACK = np.float32(2.0**-19)  # relative slack, larger than the rounding errors of float32
TINY = np.float32(2.0**-64)  # absolute slack, larger than the root of the smallest normal float32
FARTHEST = np.float32(1e15)  # largest lower bound l; a larger u could overflow float32


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
    far : ndarray of shape (m,), int64
        The centres that moved farthest, which ``others`` and ``enough`` leave out: they are scored.
    packed : PackedCenters
        These centres alone, by the shift of all.
    """

    is_same: NDArray[np.bool_]
    others: NDArray[np.float32]
    enough: NDArray[np.float32]
    apart: NDArray[np.float32]
    rounding: tuple[np.float32, np.float32]
    far: NDArray[np.int64]
    packed: PackedCenters


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
def next_centers(centers: Floats, step: int = 1) -> tuple[Floats, float]:
    """Return lower bounds of the distance to the nearest other centre, (k,), and their mean.

    They are at most FARTHEST. If the step is larger than 1, only each such centre has one; the
    others have 0, which is a bound too.
    """
    k = len(centers)
    distances, total, count = aligned_zeros(centers.dtype, (k,)), 0.0, 0
    for j in range(0, k, step):
        distances[j] = np.float64(FARTHEST)
        for other in range(j if step == 1 else k):
            if other != j:
                distance = np.sqrt(squared_distance(centers, j, centers, other)) * (1 - SLACK)
                distances[j] = min(distances[j], distance)
                if step == 1:
                    distances[other] = min(distances[other], distance)
    for j in range(0, k, step):
        total, count = total + distances[j], count + 1
    return distances, total / count


@native
def chosen(packed: PackedCenters, some: NDArray[np.int64]) -> PackedCenters:
    """Return a few centres, packed by the shift of all."""
    (_, d, _), n_tiles = packed.tiles.shape, (len(some) + TILE_CENTERS - 1) // TILE_CENTERS
    tiles = aligned_zeros(packed.tiles.dtype, (n_tiles, d, TILE_CENTERS))
    half_norms = aligned_zeros(packed.tiles.dtype, (n_tiles, TILE_CENTERS))
    half_norms[:] = np.inf
    for place in range(len(some)):
        (tile, lane), (of, at) = divmod(place, TILE_CENTERS), divmod(some[place], TILE_CENTERS)
        half_norms[tile, lane] = packed.half_norms[of, at]
        for f in range(d):
            tiles[tile, f, lane] = packed.tiles[of, f, at]
    return PackedCenters(packed.shift, tiles, half_norms, packed.centers)


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
        if len(moves.far):
            _look_at_far(X, bounds, moves)
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
def _look_at_far(X: Rows, bounds: Bounds, moves: Moves) -> None:
    """Lower l of the rows to which another of the centres that moved far is nearer.

    ||x - c||^2 is twice the score, plus ||x - s||^2. Such rows become doubtful.
    """
    (labels, lower, above), packed, size = bounds, moves.packed, block_rows(X)
    (per_distance, besides), shift = moves.rounding, packed.shift.reshape((1, -1))
    block, nearest = aligned_zeros(X.dtype, (len(packed.shift), size)), np.empty(size, np.int32)
    lowest, second = np.empty(size, X.dtype), np.empty(size, X.dtype)
    for first in range(0, len(labels), size):
        second[:] = np.inf
        score_block(block, X, first, packed, lowest, nearest, (second,))
        for i in range(first, min(first + size, len(labels))):
            own, r = labels[i], i - first
            score = np.float64(second[r] if moves.far[nearest[r]] == own else lowest[r])
            squared = squared_distance(X, i, shift, 0)
            wrong = np.float64(per_distance) * np.sqrt(squared) + np.float64(besides)
            # the factor covers the rounding of the norm; what is NaN gives 0
            left = squared * (1 - SLACK**2) + 2 * score - wrong
            near = np.float32(min(np.sqrt(left), 2.0 * FARTHEST)) if left > 0 else np.float32(0)
            far = _stored(near, moves.others[own])
            if not far >= lower[i]:
                lower[i], above[i] = far, -np.inf


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
        j = np.uint32(labels[i])  # unsigned: numba then omits the check for negative indices
        doubtful[n_doubtful] = members[n_members] = i
        n_doubtful += not above[i] > enough[j]
        n_members += not same[j]
    return n_doubtful, n_members


@inner
def _uncertain(
    X: Rows, packed: PackedCenters, bounds: Bounds, moves: Moves, rows: NDArray[np.int32]
) -> int:
    """Move the rows that remain uncertain with u measured to the front; return their number."""
    (labels, lower, above), centers, count = bounds, packed.centers, 0
    others, apart, (per_distance, besides) = moves.others, moves.apart, moves.rounding
    for i in rows:
        j = labels[i]
        near = _upper(np.float32(squared_distance(X, i, centers, j)))
        far = max(lower[i] - others[j], apart[j] - near)
        is_certain = far > near and (far - near) * (far + near) > per_distance * near + besides
        above[i] = lower[i] - near
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
    squared = squared * (np.float32(1) - SLACK) + gap + gap - wrong
    return _stored(np.sqrt(max(squared, np.float32(0))), others)


@native
def _stored(far: np.float32, others: np.float32) -> np.float32:
    """Return a distance to another centre as it is stored: with displacements, less a margin."""
    return (min(far, FARTHEST) + others) * (np.float32(1) - SLACK) - TINY


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
    n, by_centers = len(bounds.labels), is_wide(packed)
    step = n if by_centers else _rows_in_cache(X)
    _forget(parts, np.zeros(len(parts.weights), np.bool_))
    for start in range(0, n, step):
        stop = min(start + step, n)
        _score(X, packed, bounds, start, stop)
        if by_centers:
            add_by_centers(X, sample_weight, packed, bounds.labels, bounds.above, parts)
        else:
            for i in range(start, stop):
                bounds.above[i] = add(X, sample_weight, i, bounds.labels[i], packed, parts)
        _bound(bounds, moves, start, stop)


@native
def bound_all(X: Rows, packed: PackedCenters, bounds: Bounds, moves: Moves) -> None:
    """Write the labels and the bounds of the first rows, which are not added."""
    n = len(bounds.labels)
    _score(X, packed, bounds, 0, n)
    for i in range(n):
        bounds.above[i] = squared_distance(X, i, packed.centers, bounds.labels[i])
    _bound(bounds, moves, 0, n)


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
    for j in range(len(same)):
        if not same[j] and parts.added[j]:
            forget(parts, j)


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
    if is_wide(packed):
        rows = by_label(rows, labels, len(packed.centers))
    for i in rows:
        squared = add(X, sample_weight, i, labels[i], packed, parts)
        above[i] = lower[i] - _upper(np.float32(squared))


BUDGET = 1 << 28  # largest number of bytes of bounds that a site keeps
MOST_RUNS = 64  # largest number of runs whose centres are kept, with or without bounds
# multiplications of a full pass from which on bounds pay; rows per centre
WORTH_BOUNDS, ROWS_PER_CENTER = 1 << 22, 8
CENTERS_PER_PASS = 256  # rows per centre from which on all distances between centres are cheap
FAR = 0.125  # displacements, in distances to the next centre, after which most rows are uncertain
# relative costs of checking the bounds of a row and of collecting a row
LOOK_COST, FIND_COST = 1.4, 3.0
SOME = 1 << 12  # rows by which it is judged how many centres are scored for all
FEW, FEWEST = 64, 12  # one row in `FEW` is tried first, if that makes `FEWEST` rows


@dataclass(frozen=True, slots=True, eq=False)
class HardPass:
    """Labels of the rows, and sums over the rows of each centre.

    Attributes
    ----------
    labels : ndarray of shape (n,), int32
        The nearest centre of each row; in a tie, the one of lowest index.
    sums : ndarray of shape (k, d), float64
        Sums of w x over the rows x of each centre.
    weights : ndarray of shape (k,), float64
        Sums of w.
    counts : ndarray of shape (k,), int64
        Numbers of rows with w > 0.
    errors : ndarray of shape (k,), float64
        Sums of w ||x - c||^2, in squared units of the rows.
    """

    labels: Labels
    sums: Floats
    weights: Floats
    counts: NDArray[np.int64]
    errors: Floats


def hard_pass(X: ArrayLike, centers: ArrayLike, sample_weight: ArrayLike | None = None) -> HardPass:
    """Assign each row to its nearest centre and add up the rows of each centre.

    One pass over the rows: both halves of an iteration of Lloyd's algorithm [1]_, short of the
    division. All sums are in float64. The result has the same bits on any number of threads.

    Parameters
    ----------
    X : array_like of shape (n, d), float32 or float64
        The rows.
    centers : array_like of shape (k, d)
        The centres; k may exceed n.
    sample_weight : array_like of shape (n,), optional
        The rows' weights w >= 0; 1 each by default. A row of weight 0 gets a label and adds
        nothing.

    Returns
    -------
    HardPass
        Labels of the rows; sums, weights, counts and errors of the centres, 0 for a centre without
        rows.

    Notes
    -----
    Labels of float32 rows come from float32 arithmetic: a row whose two nearest centres are equally
    far up to float32 rounding may go to either.

    References
    ----------
    .. [1] S. P. Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information
       Theory 28(2), 1982.

    Examples
    --------
    >>> result = hard_pass([[0.0], [1.0], [5.0], [6.0]], centers=[[0.0], [5.0]])
    >>> result.labels
    array([0, 0, 1, 1], dtype=int32)
    >>> result.sums
    array([[ 1.],
           [11.]])
    >>> result.weights
    array([2., 2.])
    """
    labels, each = sweep_once(as_rows(X), as_centers(centers), as_weights(sample_weight))
    return HardPass(labels, each.sums, each.weights, each.counts, each.errors)


def nearest(
    X: ArrayLike,
    centers: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    cache: dict[str, Any] | None = None,
) -> tuple[Labels, Floats]:
    """Return the nearest centre of each row and the squared distance to it.

    Parameters
    ----------
    X : array_like of shape (n, d), float32 or float64
        The rows.
    centers : array_like of shape (k, d)
        The centres.
    sample_weight : array_like of shape (n,), optional
        The rows' weights, if a cache is given: those of its ``hard_sums``.
    cache : dict, optional
        The cache of ``hard_sums``: its bounds for similar centres save time. It never changes a
        result.

    Returns
    -------
    labels : ndarray of shape (n,), int32
        The nearest centre; in a tie, the one of lowest index.
    squared : ndarray of shape (n,), float64
        ||x - c||^2, from the differences, in squared units of the rows.

    Examples
    --------
    >>> labels, squared = nearest([[0.0], [1.0], [5.0], [6.0]], centers=[[0.0], [5.0]])
    >>> labels
    array([0, 0, 1, 1], dtype=int32)
    >>> squared
    array([0., 1., 0., 1.])
    """
    rows, weights, centers = as_rows(X), as_weights(sample_weight), as_centers(centers)
    memory: Memory | None = None if cache is None else cache.get("hard_sums")
    labels = memory.labels(rows, centers, weights) if memory else None
    if labels is not None:
        return labels, measured(rows, centers, labels)
    labels, squared = assign(rows, centers)
    if memory is not None:
        memory.last = centers.copy(), labels.copy()
    return labels, squared


def hard_sums(
    X: ArrayLike,
    centers: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    cache: dict[str, Any],
) -> ClusterSums:
    """Compute the sums of ``hard_pass``, in less time if the cache knows similar centres.

    Parameters
    ----------
    X : array_like of shape (n, d), float32 or float64
        The rows.
    centers : array_like of shape (k, d)
        The centres.
    sample_weight : array_like of shape (n,), optional
        The rows' weights w >= 0; 1 each by default.
    cache : dict
        Bounds from earlier calls with these rows and weights, updated by this one, at most 256 MiB;
        empty at first. It never changes a result.

    Returns
    -------
    ClusterSums
        The same bits as in ``HardPass``.

    Examples
    --------
    >>> sums = hard_sums([[0.0], [1.0], [5.0], [6.0]], centers=[[0.0], [5.0]], cache={})
    >>> sums.weights
    array([2., 2.])
    """
    rows, weights, centers = as_rows(X), as_weights(sample_weight), as_centers(centers)
    n, k = len(rows), len(centers)
    if k > 1 and n >= ROWS_PER_CENTER * k and rows.size * k >= WORTH_BOUNDS:
        memory: Memory = cache.setdefault("hard_sums", Memory())
        # overflow makes the bounds NaN, and rows count as uncertain
        with np.errstate(over="ignore", invalid="ignore"):
            return memory.sweep(rows, centers, weights)
    return sweep_once(rows, centers, weights)[1]


class Memory:
    """Memory of the most recent runs, with bounds of the rows for each.

    Several runs may take turns: a question belongs to the run whose centres are nearest. While it
    is being answered, the run is taken off the list, so that two threads never write the same
    bounds. One thread at a time looks at the list, as a run comes back with other centres.
    """

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._turn = Lock()
        self.asked = 0
        self.last: tuple[Floats, Labels] | None = None  # of the last pass without bounds

    def __reduce__(self) -> Any:
        return Memory, ()  # a pickled copy starts without bounds

    def sweep(self, X: Rows, centers: Floats, sample_weight: Weights) -> ClusterSums:
        """Return the sums over all rows, using bounds if they pay off and fit into memory."""
        (apart, usual), packed = _next_centers(X, centers), pack_centers(X, centers)
        run, own = self._take(X, centers, usual) or (Run(centers), np.zeros(len(centers)))
        if run.bounds is None and not self._tries(run, X, packed, own, apart, usual):
            labels, parts = swept(X, packed, sample_weight)
            sums, self.last = handed_over(parts, packed), (centers, labels)
        else:
            sums = run.sweep(X, sample_weight, packed, own, apart, usual)
        run.counts = sums.counts
        self._keep(run)
        return sums

    def labels(self, X: Rows, centers: Floats, sample_weight: Weights) -> Labels | None:
        """Return the nearest centres of all rows, if they are known or bounds exist and pay off."""
        if self.last is not None and np.array_equal(self.last[0], centers):
            return self.last[1].copy()
        if all(run.bounds is None for run in self.runs):
            return None
        apart, usual = _next_centers(X, centers)
        taken = self._take(X, centers, usual)
        if taken is None:
            return None
        run, own = taken
        bounds = run.bounds
        if bounds is not None:
            packed = pack_centers(X, centers)
            run.counts = run.sweep(X, sample_weight, packed, own, apart, usual).counts
        self._keep(run)
        return None if bounds is None else bounds.rows.labels.copy()

    def _keep(self, run: Run) -> None:
        with self._turn:
            self.asked += 1
            run.asked = self.asked
            self.runs = [*self.runs, run][-MOST_RUNS:]

    def _tries(
        self, run: Run, X: Rows, packed: PackedCenters, own: Floats, apart: Floats, usual: float
    ) -> bool:
        """Return whether bounds for the rows are worth trying, and fit into memory."""
        if run.waits(X, own, usual) or not self._has_room(X, len(own)):
            return False
        return not run.is_mostly_uncertain(X, packed, own, apart, usual)

    def _take(self, X: Rows, centers: Floats, usual: float) -> tuple[Run, Floats] | None:
        """Remove the run with the most similar centres, if similar enough, and move it to these.

        Returns the run, without bounds that would not pay off, and the moves.
        """
        with self._turn:
            similar = [run for run in self.runs if run.centers.shape == centers.shape]
            moves = [displacements(run.centers, centers) for run in similar]
            means = [float(own.mean()) for own in moves]
            if not min(means, default=np.inf) <= usual / 2:
                return None
            best = means.index(min(means))
            run, own = similar[best], moves[best]
            self.runs.remove(run)
        run.centers = centers
        if run.bounds is not None and run.least_time(X, own) > 1.0:
            run.bounds = None
        return run, own

    def _has_room(self, X: Rows, k: int) -> bool:
        """Return whether more bounds fit once runs that do not take turns have dropped theirs."""
        total = bytes_needed(X, k)
        with self._turn:
            for run in sorted(self.runs, key=lambda run: run.asked, reverse=True):
                if run.bounds is not None:
                    total += run.bounds.n_bytes
                    if total > BUDGET and run.asked < self.asked - 2 * MOST_RUNS:
                        total -= run.bounds.n_bytes
                        run.bounds = None
        return total <= BUDGET


@dataclass(slots=True, eq=False)
class Run:
    """A run of questions about centres, each set of which is near the previous one.

    Attributes
    ----------
    centers : ndarray of shape (k, d), float64
        The centres of the last question.
    asked : int
        The number of the last question.
    bounds : BoundedSweep, optional
        Bounds of the rows for these centres.
    counts : ndarray of shape (k,), int64, optional
        The rows of each centre in the last pass.
    far : float
        Displacement, relative to the distance to the nearest other centre, from which on bounds are
        not tried: half of that at which they did not pay off.
    """

    centers: Floats
    asked: int = 0
    bounds: BoundedSweep | None = None
    counts: NDArray[np.int64] | None = None
    far: float = field(default_factory=lambda: FAR)
    most_uncertain = 0.5  # share of uncertain rows from which on bounds do not pay
    # after such a failure, the factor by which the largest displacement for a new trial shrinks
    less = 0.8
    enough = 0.75  # largest estimated time of a first pass with bounds, relative to a full pass

    def waits(self, X: Rows, own: Floats, usual: float) -> bool:
        """Return whether it is too early to try bounds."""
        if self.counts is None or not _most_still(own) < self.far * usual:
            return True
        return self.least_time(X, own) > self.enough

    def is_mostly_uncertain(
        self, X: Rows, packed: PackedCenters, own: Floats, apart: Floats, usual: float
    ) -> bool:
        """Return whether, in a sample, most rows would be uncertain after another such move."""
        some = as_rows(X[::FEW])
        if len(some) < FEWEST:
            return False
        trial = BoundedSweep(some, len(own))
        trial.look(some, packed, own, apart)
        is_mostly_uncertain = (
            trial.least_scored(own, _rounding(some, packed))[0] > self.most_uncertain
        )
        if is_mostly_uncertain:
            self._wait_for_less(own, usual, self.less)
        return is_mostly_uncertain

    def least_time(self, X: Rows, own: Floats) -> float:
        """Return the relative time of a pass with bounds if no row were uncertain.

        The rows of centres that moved are added anew, which is most of a full pass if there are few
        centres and few columns. 1 is the time of a full pass.
        """
        if self.counts is None:
            return np.inf
        add, full = costs(X, len(own))[1], full_cost(X, len(own))
        moved = self.counts[own > 0].sum() / max(self.counts.sum(), 1)
        return float((LOOK_COST + (FIND_COST + add) * moved) / full)

    def sweep(
        self,
        X: Rows,
        sample_weight: Weights,
        packed: PackedCenters,
        own: Floats,
        apart: Floats,
        usual: float,
    ) -> ClusterSums:
        """Return the sums by bounds, which are given up if that took longer than a full pass."""
        bounds = self.bounds or BoundedSweep(X, len(own))
        is_new, sums = not bounds.is_known, bounds.sweep(X, sample_weight, packed, own, apart)
        if is_new or bounds.pay(X):
            self.bounds = bounds
        else:
            self.bounds = None
            self._wait_for_less(own, usual, 0.5)
        return sums

    def _wait_for_less(self, own: Floats, usual: float, factor: float) -> None:
        """Try no bounds before displacements are smaller; of the others where most centres rest."""
        self.far = min(self.far, (_most_still(own) or own.max()) / usual) * factor


def _next_centers(X: Rows, centers: Floats) -> tuple[Floats, float]:
    """Return bounds of the distances between centres: of a few, if all would cost too much."""
    # a distance takes 9 times as long as a score of a row
    step = 1 if CENTERS_PER_PASS * len(centers) <= len(X) else -(-len(centers) // 16)
    return next_centers(centers, step)


def _most_still(own: Floats) -> float:
    """Return the largest displacement but for the quarter that moved farthest."""
    if not np.isfinite(own).all():
        return np.inf
    return float(np.sort(own)[len(own) - 1 - len(own) // 4])


def bytes_needed(X: Rows, k: int) -> int:
    """Estimate the bytes of a ``BoundedSweep`` for these rows and k centres."""
    (n, d), n_chunks = X.shape, len(chunk_bounds(len(X), k, X.shape[1])) - 1
    return 12 * n + 8 * n_chunks * k * (d + 2 * ADD_LANES)


class BoundedSweep:
    """Bounds and sums of the rows for one set of centres, and sweeps that use them.

    Attributes
    ----------
    rows : Bounds
        Labels and bounds of the rows, once they are known.
    others : ndarray of shape (k,), float64
        The largest displacement of another centre, summed over the passes.
    parts : list of Parts
        The sums of each chunk.
    n_doubtful, n_scored, n_added : int
        Numbers of rows in the last pass that looked uncertain, were scored, and were added.
    n_far : int
        Number of centres that were scored for all rows in the last pass.
    """

    def __init__(self, X: Rows, k: int) -> None:
        self.rows, self.others, self.is_known = empty_bounds(len(X)), np.zeros(k), False
        self.limits = chunk_bounds(len(X), k, X.shape[1])
        self.parts: list[Parts] = []
        self.n_doubtful = self.n_scored = self.n_added = self.n_far = 0

    @property
    def n_bytes(self) -> int:
        """The number of bytes of all arrays."""
        return sum(array.nbytes for arrays in (self.rows, *self.parts) for array in arrays)

    def look(self, X: Rows, packed: PackedCenters, own: Floats, apart: Floats) -> None:
        """Find labels and bounds of the rows for these centres, without their sums."""
        rounding = _rounding(X, packed)
        moves = self._moves(own, apart, rounding, np.empty(0, np.int64), packed)
        bound_all(pad(X), packed, self.rows, moves)
        self.is_known = True

    def sweep(
        self, X: Rows, sample_weight: Weights, packed: PackedCenters, own: Floats, apart: Floats
    ) -> ClusterSums:
        """Return the sums at new centres, for which bounds are known afterwards.

        ``own`` (k,) are the displacements of the centres, ``apart`` (k,) the distances to the
        nearest other ones.
        """
        rounding = _rounding(X, packed)
        far = self.least_scored(own, rounding)[1] if self.is_known else np.empty(0, np.int64)
        moves = self._moves(own, apart, rounding, far, packed)
        sources, (labels, lower, above) = chunks(X, self.limits), self.rows
        counts = np.zeros((len(sources), 3), np.int64)
        self.parts = self.parts or [zero_parts(packed.centers) for _ in sources]

        def work(chunk: int) -> None:
            rows, source = sources[chunk]
            bounds, weights = Bounds(labels[rows], lower[rows], above[rows]), sample_weight[rows]
            counts[chunk] = bounded_chunk(
                source, weights, packed, bounds, moves, self.parts[chunk], self.is_known
            )

        for_each_chunk(work, len(sources), thread_count() if len(sources) > 2 else 1)
        self.n_doubtful, self.n_scored, self.n_added = counts.sum(axis=0).tolist()
        self.is_known = True
        return handed_over(add_all(self.parts), packed)

    def least_scored(
        self, own: Floats, rounding: tuple[float, float]
    ) -> tuple[float, NDArray[np.int64]]:
        """Return how many of all scores a pass needs after these displacements, and what for.

        These are the centres to be scored for all rows; the other scores are those of rows that
        remain doubtful. Judged by some of the rows.
        """
        k, order = len(own), np.argsort(-own, kind="stable")
        some = slice(None, None, 1 + len(self.rows.labels) // SOME)
        above, labels = self.rows.above[some], self.rows.labels[some]
        least, far = np.inf, order[:0]
        n_far = 0
        while n_far <= k // 2:
            enough = self._enough(own, rounding, order[:n_far])[1]
            doubtful = 1 - float(np.mean(above > enough.astype(np.float32)[labels]))
            # to lay out and to measure a row costs as much as scoring a tile
            scored = doubtful + (n_far + TILE_CENTERS) / k * (n_far > 0)
            if scored < least:
                least, far = scored, order[:n_far]
            n_far = 2 * n_far or TILE_CENTERS
        return least, far

    def _enough(
        self, own: Floats, rounding: tuple[float, float], far: NDArray[np.int64]
    ) -> tuple[Floats, Floats]:
        """Return ``others`` after these displacements without some centres, and ``enough``."""
        still = own.copy()
        still[far] = 0.0
        longest = int(still.argmax())
        most = np.full(len(own), still[longest])
        most[longest] = np.delete(still, longest).max()
        others = self.others + most
        # infinite displacements make all rows uncertain
        others = np.where(others < 1e30, others, np.inf)
        # (l - u) (2 u + l - u) = l^2 - u^2 > 4 E, whatever u, if l - u is more than this
        ample = max(rounding[0] / 2, rounding[1] ** 0.5)
        return others, (others + own + ample) * (1 + SLACK)

    def _moves(
        self,
        own: Floats,
        apart: Floats,
        rounding: tuple[float, float],
        far: NDArray[np.int64],
        packed: PackedCenters,
    ) -> Moves:
        """Return the moves, and add the largest displacement of another centre to ``others``."""
        self.others, enough = self._enough(own, rounding, far)
        self.n_far = len(far)
        return Moves(
            own == 0,
            self.others.astype(np.float32),
            enough.astype(np.float32),
            apart.astype(np.float32),
            (np.float32(rounding[0]), np.float32(rounding[1])),
            far,
            chosen(packed, far),
        )

    def pay(self, X: Rows) -> bool:
        """Return whether the last pass took at most about as long as a full one.

        It may take up to a quarter longer, as the next ones will be faster.

        Notes
        -----
        Both times are estimated, in nanoseconds on one core of the machine of docs/performance.md,
        and only their ratio counts. In a full pass a row is transposed and scored, by its bytes
        times k, and added, by its columns. In a pass with bounds, the bounds of every row are
        checked; a doubtful row is read to measure u; one that remains uncertain is gathered and
        scored, which is slower out of order; and one that is added is looked up first.

        The single timings behind the numbers were not kept. On a second, busy machine `hard_pass`
        took 1.4 to 2.1 times ``score + add``, at 2 to 784 columns: if anything, full passes are
        rated too cheap, and bounds are given up early. The rows "30 rounds" of benchmarks/speed.py
        show whether bounds pay off as a whole.
        """
        n, (score, add, read) = len(X), costs(X, len(self.others))
        spent = LOOK_COST * n + (5.5 + read) * self.n_doubtful
        spent += (score * self.n_far / len(self.others) + read) * n * (self.n_far > 0)
        spent += (9 + read + 1.4 * score) * self.n_scored + (FIND_COST + add) * self.n_added
        return spent < 1.25 * full_cost(X, len(self.others)) * n


def costs(X: Rows, k: int) -> tuple[float, float, float]:
    """Estimate the times to score a row, to add it and to read it; see `BoundedSweep.pay`."""
    d = X.shape[1]
    return 1.5 + 0.003 * X.itemsize * k * d, 2.6 + 0.3 * d, 0.25 * d


def full_cost(X: Rows, k: int) -> float:
    """Estimate the times of a full pass to score a row (perhaps in float32) and to add it."""
    score, add, read = costs(X, k)
    return (0.6 * score + read if is_worth_single(X, k) else score) + add


def _rounding(X: Rows, packed: PackedCenters) -> tuple[float, float]:
    """Return a bound of 4 E, as a factor of u and a constant.

    The score of a centre is 1/2 ||c - s||^2 - (x - s).(c - s), both differences rounded, the
    product added up in d steps: wrong by at most E = (d + 8) eps M (||x - s|| + M / 2), with eps
    the unit roundoff and M the longest ||c - s||; and ||x - s|| <= u + M.
    """
    d, eps = X.shape[1], float(np.finfo(X.dtype).eps) / 2
    half_norms = packed.half_norms.ravel()[: len(packed.centers)]
    # float32 flushes shorter ones to 0
    longest = max(float(np.sqrt(2 * half_norms.max())) * float(1 + SLACK), float(TINY))
    per_distance = 4 * (d + 8) * eps * longest * float(1 + 4 * SLACK)
    # add the error of values that float32 flushes to 0
    return per_distance, per_distance * 1.5 * longest + (d + 8) * float(TINY) ** 2
