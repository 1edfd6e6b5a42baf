"""Sweep over the rows: the nearest centre of each row, and the sums over each centre's rows.

Rows are read in blocks that stay in the cache, each row by the same operations wherever it lies.
Chunks of rows, which depend on the sizes only, have sums of their own, added in the order of the
chunks: the number of threads never changes a bit.
"""

from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats, Labels
from fedcluster.core.threads import BufferPool, for_each_chunk, thread_count
from fedcluster.kernels._blocks import (
    ClusterSums,
    HardSums,
    PackedCenters,
    Parts,
    add_up,
    finish,
    hand_over,
    pack_centers,
    squared_distance,
    zero_parts,
)
from fedcluster.kernels._tiles import (
    ROW_TILES,
    TILE_CENTERS,
    add,
    aligned_zeros,
    block_rows,
    lanes,
    measure,
    score_block,
    score_row,
)
from fedcluster.kernels.rows import (
    PADDING,
    SMALL_TABLE,
    Rows,
    Weights,
    as_given_weights,
    as_weights,
    chunk_bounds,
    chunks,
    is_small,
    pad,
)
from fedcluster.kernels.runtime import compiled_loops, inlined, inner, native, with_names

Run = tuple[Floats, Labels, float, int, Floats, Floats, NDArray[np.int64], Floats, Floats]
"""Centres, labels around them, their inertia, the number of iterations, and ``HardSums``."""

SLACK = 2.0**-18  # relative slack, larger than the rounding errors of float32
TINY = 2.0**-126  # absolute slack, the smallest normal float32
WORTH_SINGLE = 1024  # centres times columns, from which on float32 is tried first


class SpareParts:
    """Sums of earlier passes, set to 0, to be used again.

    Where they are large, getting new memory costs more than adding the rows.

    Parameters
    ----------
    most : int, default=2**26
        The largest number of bytes that are kept.
    number : int, default=16
        The largest number of sums that are kept: those of a few passes at the same time, each of
        which takes two, since all are looked through.
    """

    def __init__(self, most: int = 1 << 26, number: int = 16) -> None:
        self.most, self.number, self._kept, self._turn = most, number, list[Parts](), Lock()

    def take(self, padded: Floats, most: int) -> list[Parts]:
        """Return those for padded centres, a few at most."""
        with self._turn:
            fits = [parts for parts in self._kept if parts.residuals.shape == padded.shape][:most]
            self._kept = [parts for parts in self._kept if not any(parts is each for each in fits)]
        return fits

    def keep(self, *given: Parts) -> None:
        """Keep sums that have been set to 0, rather than the oldest."""
        with self._turn:
            self._kept = [*self._kept, *given][-self.number :]
            while sum(parts.residuals.nbytes for parts in self._kept) > self.most:
                self._kept.pop(0)


spare_parts = SpareParts()


def sweep(X: Rows, centers: Floats, sample_weight: Weights) -> tuple[Labels, HardSums]:
    """Return the labels (n,) of the rows and the sums over the rows of each centre.

    Several threads are used if that pays off.
    """
    if is_small(X) and compiled_loops.pay_off():
        given = as_given_weights(sample_weight, len(X))
        fields = run_in_one_call(pad(X), given, centers, 0, 0.0, False)
        return fields[1], HardSums(*fields[4:])
    packed = pack_centers(X, centers)
    labels, parts = swept(X, packed, sample_weight)
    return labels, finish(parts, packed.centers, centers.shape[1])


def sweep_once(X: Rows, centers: Floats, sample_weight: Weights) -> tuple[Labels, ClusterSums]:
    """Return the labels (n,) of the rows and the sums that a site sends; the same bits."""
    if is_small(X) and compiled_loops.pay_off():
        given = as_given_weights(sample_weight, len(X))
        _, labels, *_, weights, counts, errors, sums = run_in_one_call(
            pad(X), given, centers, 0, 0.0, False
        )
        return labels, ClusterSums(np.column_stack([sums, errors]), weights, counts)
    packed = pack_centers(X, centers)
    labels, parts = swept(X, packed, sample_weight)
    return labels, handed_over(parts, packed)


def handed_over(parts: Parts, packed: PackedCenters) -> ClusterSums:
    """Return the sums of all chunks as a site sends them, and keep the parts for another pass."""
    sums = hand_over(parts, packed.centers, packed.tiles.shape[1])
    spare_parts.keep(parts)
    return sums


def swept(
    X: Rows, packed: PackedCenters, sample_weight: Weights, squared: Floats | None = None
) -> tuple[Labels, Parts]:
    """Return the labels and the sums, and write squared distances (n,) if an array is given."""
    squared = np.empty(0) if squared is None else squared
    n, k, d = len(X), len(packed.centers), packed.tiles.shape[1]
    labels, sources = np.empty(n, np.int32), chunks(X, chunk_bounds(n, k, d))
    buffers = BufferPool(partial(zero_parts, packed.centers), partial(add_up, True))
    buffers.free += spare_parts.take(packed.centers, 2)  # one thread fills one and adds to another
    single = None if is_small(X) else _in_single(X, packed, k)

    def work(chunk: int) -> None:
        (rows, source), parts, done = sources[chunk], buffers.take(), 0
        weights, marks, errors = sample_weight[rows], labels[rows], squared[rows]
        if single:
            done = sweep_chunk_in_single(source, weights, packed, *single, marks, errors, parts)
        if done < len(marks):
            rest = weights[done:], packed, marks[done:], errors[done:], parts
            sweep_chunk(source[done:], *rest)
        buffers.hand_in(chunk, parts)

    for_each_chunk(work, len(sources), thread_count() if len(sources) > 2 else 1)
    spare_parts.keep(*buffers.free)
    return labels, buffers.total


def is_worth_single(X: Rows, k: int) -> bool:
    """Return whether float64 rows are scored in float32 first."""
    return X.dtype == np.float64 and k > 1 and k * X.shape[1] >= WORTH_SINGLE


def _in_single(X: Rows, packed: PackedCenters, k: int) -> tuple[PackedCenters, Any] | None:
    """Return float32 centres for scoring float64 rows, with an error bound, if that pays off.

    Scores are wrong by at most E = (d + 8) eps M (||x - s|| + M / 2), with eps the unit roundoff
    and M the longest ||c - s||: both differences are rounded, and the product is added up in d
    steps. If the two lowest scores differ by more than 2 E of both types, float64 finds the same
    centre. This bound is returned as a factor of ||x - s|| and a constant.
    """
    d = X.shape[1]
    if not is_worth_single(X, k):
        return None
    longest = float(np.sqrt(2 * packed.half_norms.ravel()[:k].max())) * (1 + SLACK)
    if not (d + 8) * TINY < longest < 1e18:  # within these limits no finite score overflows
        return None
    tiles, half_norms = (each.astype(np.float32) for each in (packed.tiles, packed.half_norms))
    shift: Floats = np.append(packed.shift, np.zeros(PADDING))
    wrong = 2 * (d + 8) * 2.0**-24 * longest * (1 + SLACK) ** 2
    per_distance = wrong * (1 + (d + 8) * 2.0**-24)  # the distance is also accumulated in float32
    rounding = per_distance, wrong * longest / 2 + (d + 8) * TINY
    return PackedCenters(shift, tiles, half_norms, packed.centers), rounding


def assign(X: Rows, centers: Floats) -> tuple[Labels, Floats]:
    """Return the labels (n,) of the rows and their squared distances (n,) to their centres."""
    squared = np.empty(len(X))
    labels, _ = swept(X, pack_centers(X, centers), as_weights(None), squared)
    return labels, squared


def measured(X: Rows, centers: Floats, labels: Labels) -> Floats:
    """Return the squared distances (n,) of rows to the centres of their labels, like `assign`."""
    packed, squared = pack_centers(X, centers), np.empty(len(X))
    limits = chunk_bounds(len(X), *centers.shape)
    sources = chunks(X, limits)

    def work(chunk: int) -> None:
        rows, source = sources[chunk]
        measure_chunk(source, packed, labels[rows], squared[rows])

    for_each_chunk(work, len(sources), thread_count() if len(sources) > 2 else 1)
    return squared


def add_all(parts: list[Parts]) -> Parts:
    """Add up the sums of all chunks, in their order."""
    [total] = spare_parts.take(parts[0].residuals, 1) or [zero_parts(parts[0].residuals)]
    for part in parts:
        add_up(False, total, part)
    return total


@inlined
def sweep_padded(X: Rows, centers: Floats, sample_weight: Weights) -> tuple[Labels, HardSums]:
    """Act as ``sweep`` for compiled callers, over padded rows with explicit weights.

    The rows are those of one chunk, or two with a short last one.
    """
    n, d = len(sample_weight), centers.shape[1]
    labels, packed, most = aligned_zeros(np.int32, (n,)), pack_centers(X, centers), n
    if n * d > SMALL_TABLE:
        most = n - PADDING
    parts = zero_parts(packed.centers)
    nothing = parts.weights[:0]
    sweep_chunk(X, sample_weight[:most], packed, labels[:most], nothing, parts)
    if most < n:
        last = zero_parts(packed.centers)
        sweep_chunk(X[most:], sample_weight[most:], packed, labels[most:], nothing, last)
        add_up(False, parts, last)
    return labels, finish(parts, packed.centers, d)


@native
def sweep_chunk(
    X: Rows,
    sample_weight: Weights,
    packed: PackedCenters,
    labels: Labels,
    squared: Floats,
    parts: Parts,
) -> None:
    """Write the labels of the first rows and add each to the sums of its centre."""
    size, n = block_rows(X), len(labels)
    block = aligned_zeros(X.dtype, (len(packed.shift), size))
    lowest, nearest = aligned_zeros(X.dtype, (size,)), aligned_zeros(np.int32, (size,))
    by_centers = is_wide(packed)
    for start in range(0, n, size):
        score_block(block, X, start, packed, lowest, nearest, ())
        for i in range(start, min(start + size, n)):
            j = labels[i] = nearest[i - start]
            if not by_centers:
                error = add(X, sample_weight, i, j, packed, parts)
                if len(squared):
                    squared[i] = error
    if by_centers:
        add_by_centers(X, sample_weight, packed, labels, squared, parts)


@inlined
def is_wide(packed: PackedCenters) -> bool:
    """Return whether rows are added centre by centre, as centres and sums exceed a core's cache."""
    return packed.centers.size >= 1 << 16  # numbers; both take 1 MiB


@inner
def add_by_centers(
    X: Rows,
    sample_weight: Weights,
    packed: PackedCenters,
    labels: Labels,
    squared: Rows,
    parts: Parts,
) -> None:
    """Add the first rows to the sums of their centres, and write squared distances.

    Centre by centre, where all exceed the cache; those of one stay in order, so that no bit
    changes.
    """
    rows = np.empty(len(labels), np.int32)
    for i in range(len(labels)):
        rows[i] = i
    for i in by_label(rows, labels, len(packed.centers)):
        error = add(X, sample_weight, i, labels[i], packed, parts)
        if len(squared):
            squared[i] = error


@inner
def by_label(rows: NDArray[np.int32], labels: Labels, k: int) -> NDArray[np.int32]:
    """Return rows by their labels, those of one label in their order."""
    places, ordered = np.zeros(k + 1, np.int64), np.empty(len(rows), np.int32)
    for i in rows:
        places[labels[i] + 1] += 1
    for j in range(k):
        places[j + 1] += places[j]
    for i in rows:
        j = labels[i]
        ordered[places[j]] = i
        places[j] += 1
    return ordered


@native
def measure_chunk(X: Rows, packed: PackedCenters, labels: Labels, squared: Floats) -> None:
    """Write the squared distances of the first rows to the centres of their labels."""
    for i in range(len(labels)):
        squared[i] = measure(X, i, labels[i], packed)


@native
def sweep_chunk_in_single(
    X: Rows,
    sample_weight: Weights,
    packed: PackedCenters,
    single: PackedCenters,
    rounding: tuple[float, float],
    labels: Labels,
    squared: Floats,
    parts: Parts,
) -> int:
    """Act as ``sweep_chunk``, but score in float32 first; return the number of rows done.

    It gives up if many rows have to be scored again.
    """
    size, n, d, doubts = block_rows(single.tiles), len(labels), packed.tiles.shape[1], 0
    block = aligned_zeros(single.tiles.dtype, (d + -d % lanes(single.tiles), size))
    lowest, second, nearest = block[0].copy(), block[0].copy(), np.empty(size, np.int32)
    by_centers, done = is_wide(packed), 0
    while done < n and doubts <= size + done // 8:  # one row in eight
        start, done = done, min(done + size, n)
        second[:] = np.inf
        score_block(block, X, start, single, lowest, nearest, (second,))
        scored = lowest, second, nearest
        doubts += _score_doubtful(X, (start, done), packed, rounding, block, scored)
        for i in range(start, done):
            j = labels[i] = nearest[i - start]
            if not by_centers:
                error = add(X, sample_weight, i, j, packed, parts)
                if len(squared):
                    squared[i] = error
    if by_centers:
        add_by_centers(X, sample_weight, packed, labels[:done], squared, parts)
    return done


@inner
def _score_doubtful(
    X: Rows,
    rows: tuple[int, int],
    packed: PackedCenters,
    rounding: tuple[float, float],
    block: Rows,
    scored: tuple[Rows, Rows, Labels],
) -> int:
    """Score doubtful rows of a block again in float64; return how many."""
    (first, stop), (lowest, second, nearest), count = rows, scored, 0
    norms, scores = np.zeros_like(lowest), np.empty(packed.half_norms.shape)
    for f in range(packed.tiles.shape[1]):
        for r in range(len(norms)):
            norms[r] += block[f, r] * block[f, r]
    for r in range(stop - first):
        gap = np.float64(second[r]) - np.float64(lowest[r])
        if not gap > rounding[0] * np.sqrt(np.float64(norms[r])) + rounding[1]:
            count += 1
            nearest[r] = _nearest_in_double(X, first + r, packed, scores)
    return count


@inner
def _nearest_in_double(X: Rows, i: int, packed: PackedCenters, scores: Floats) -> int:
    """Return the nearest centre of a float64 row, with the bits of a float64 block."""
    for tile in range(0, len(scores), ROW_TILES):
        score_row(packed.tiles, tile, packed.half_norms, X, i, packed.shift, scores)
    nearest, lowest = 0, np.inf
    for j in range(scores.size):
        score = scores[j // TILE_CENTERS, j % TILE_CENTERS]
        if score < lowest:
            nearest, lowest = j, score
    return nearest


@native
def _are_equal(labels: Labels, others: Labels) -> bool:
    """Return whether two arrays of labels have the same length and values."""
    if len(labels) != len(others):
        return False
    for i in range(len(labels)):  # noqa: SIM110, to be compiled
        if labels[i] != others[i]:
            return False
    return True


@native
def _move(centers: Floats, moved: Floats, sums: HardSums) -> tuple[float, int]:
    """Write the new centres, c + sum of w (x - c) / sum of w, to an array that holds c.

    Return the sum over all centres of the squared distance moved, and the number of empty clusters.
    """
    (k, d), shift, n_empty = centers.shape, 0.0, 0
    for j in range(k):
        if sums.counts[j] > 0:
            for f in range(d):
                moved[j, f] += sums.residuals[j, f] / sums.weights[j]
        n_empty += sums.counts[j] == 0
        shift += squared_distance(moved, j, centers, j)
    return shift, n_empty


@native
def _move_after_relocating(
    X: Rows, sample_weight: Weights, centers: Floats, moved: Floats, labels: Labels, sums: HardSums
) -> tuple[float, bool]:
    """Act as `_move`, after moving empty clusters to the rows farthest from their centres.

    These rows are subtracted from the sums of their clusters. Return the squared distance moved,
    and whether a cluster was relocated.
    """
    (n, d), (residuals, weights, counts, errors, totals) = X.shape, sums
    left = HardSums(residuals.copy(), weights.copy(), counts.copy(), errors, totals)
    squared = aligned_zeros(centers.dtype, (n,))
    for i in range(n):
        if len(sample_weight) == 0 or sample_weight[i] > 0:
            squared[i] = squared_distance(X, i, centers, labels[i])
    has_relocated = False
    for empty in range(len(counts)):
        if counts[empty]:
            continue
        far = 0
        for i in range(n):
            far = i if squared[i] > squared[far] else far
        if squared[far] == 0:
            break
        squared[far], has_relocated = 0.0, True
        w, old = sample_weight[far] if len(sample_weight) else 1.0, labels[far]
        for f in range(d):
            moved[empty, f] = X[far, f]
            left.residuals[old, f] -= w * (np.float64(X[far, f]) - centers[old, f])
        left.weights[old] -= w
        left.counts[old] -= 1
    return _move(centers, moved, left)[0], has_relocated


def _no_labels() -> Labels:
    """Return labels that equal none."""
    return np.empty(0, np.int32)


def _added_up(errors: Floats) -> float:
    """Return the sum over all clusters, in their order."""
    return float(np.cumsum(errors)[-1])


def run(
    X: Rows,
    sample_weight: Weights,
    centers: Floats,
    max_iter: int,
    tol: float,
    relocate: bool,
) -> Run:
    """Run ``lloyd`` on several threads."""
    before, shift, has_relocated, n_iter = _no_labels(), np.inf, False, 0
    while True:
        labels, sums = sweep(X, centers, sample_weight)
        if shift <= tol or n_iter == max_iter:
            break
        n_iter += 1
        if not has_relocated and _are_equal(labels, before):
            break
        moved, has_relocated = centers.copy(), False
        shift, n_empty = _move(centers, moved, sums)
        if relocate and n_empty:
            rows, moved = X[: len(labels)], centers.copy()
            shift, has_relocated = _move_after_relocating(
                rows, sample_weight, centers, moved, labels, sums
            )
        before, centers = labels, moved
    residuals, weights, counts, errors, totals = sums
    inertia = _added_up(errors)
    return centers, labels, inertia, n_iter, residuals, weights, counts, errors, totals


@inlined
def _no_labels_compiled() -> Labels:
    return aligned_zeros(np.int32, (0,))


@inlined
def _added_up_compiled(errors: Floats) -> float:
    total = 0.0
    for error in errors:
        total += error
    return total


run_in_one_call = native(
    with_names(
        run, sweep=sweep_padded, _no_labels=_no_labels_compiled, _added_up=_added_up_compiled
    )
)
"""`run` on one thread, over padded rows with explicit weights; a sweep if ``max_iter`` is 0."""
