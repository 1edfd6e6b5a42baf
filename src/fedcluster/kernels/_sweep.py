"""Sweep over the rows: the nearest centre of each row, and the sums over each centre's rows.

Rows are read in blocks that stay in the cache, each row by the same operations wherever it lies.
Chunks of rows, which depend on the sizes only, have sums of their own, added in the order of the
chunks: the number of threads never changes a bit.
"""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats, Labels
from fedcluster.core.threads import BufferPool, for_each_chunk, thread_count
from fedcluster.kernels._blocks import (
    HardSums,
    PackedCenters,
    Parts,
    add_up,
    clear,
    finish,
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


def sweep(
    X: Rows, centers: Floats, sample_weight: Weights, squared: Floats | None = None
) -> tuple[Labels, HardSums]:
    """Return the labels (n,) of the rows and the sums over the rows of each centre.

    Several threads are used if that pays off. Squared distances (n,) are written if an array is
    given for them.
    """
    if squared is None and is_small(X) and compiled_loops.pay_off():
        given = as_given_weights(sample_weight, len(X))
        swept = run_in_one_call(pad(X), given, centers, 0, 0.0, False)
        return swept[1], HardSums(*swept[4:])
    squared = np.empty(0) if squared is None else squared
    n, (k, d) = len(X), centers.shape
    labels, packed = np.empty(n, np.int32), pack_centers(X, centers)
    sources = chunks(X, chunk_bounds(n, k, d))
    buffers = BufferPool(partial(zero_parts, packed.centers), clear, add_up)
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
    return labels, finish(buffers.total, packed.centers, packed.anchors, d)


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
    return PackedCenters(shift, tiles, half_norms, packed.centers, packed.anchors), rounding


def assign(X: Rows, centers: Floats) -> tuple[Labels, Floats]:
    """Return the labels (n,) of the rows and their squared distances (n,) to their centres."""
    squared = np.empty(len(X))
    labels, _ = sweep(X, centers, as_weights(None), squared)
    return labels, squared


def measured(X: Rows, centers: Floats, labels: Labels) -> Floats:
    """Return the squared distances (n,) of rows to the centres of their labels, like `assign`."""
    packed, squared = pack_centers(X, centers), np.empty(len(X))
    limits = chunk_bounds(len(X), *centers.shape)
    sources = chunks(X, limits)

    def work(chunk: int) -> None:
        rows, source = sources[chunk]
        measure_chunk(source, packed, labels[rows], squared[rows], zero_parts(packed.centers))

    for_each_chunk(work, len(sources), thread_count() if len(sources) > 2 else 1)
    return squared


def add_all(parts: list[Parts]) -> Parts:
    """Add up the sums of all chunks, in their order."""
    residuals, weights, counts, errors = parts[0]
    total = Parts(residuals.copy(), weights.copy(), counts.copy(), errors.copy())
    for part in parts[1:]:
        add_up(total, part)
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
        add_up(parts, last)
    return labels, finish(parts, packed.centers, packed.anchors, d)


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
    for start in range(0, n, size):
        score_block(block, X, start, packed, lowest, nearest, ())
        for i in range(start, min(start + size, n)):
            j = labels[i] = nearest[i - start]
            error = add(X, sample_weight, i, j, packed, parts)
            if len(squared):
                squared[i] = error


@native
def measure_chunk(
    X: Rows, packed: PackedCenters, labels: Labels, squared: Floats, parts: Parts
) -> None:
    """Write the squared distances of the first rows to the centres of their labels."""
    for i in range(len(labels)):
        squared[i] = add(X, np.empty(0), i, labels[i], packed, parts)


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
    for start in range(0, n, size):
        if doubts > size + start // 8:  # one row in eight
            return start
        second[:] = np.inf
        score_block(block, X, start, single, lowest, nearest, (second,))
        stop, scored = min(start + size, n), (lowest, second, nearest)
        doubts += _score_doubtful(X, (start, stop), packed, rounding, block, scored)
        for i in range(start, stop):
            j = labels[i] = nearest[i - start]
            error = add(X, sample_weight, i, j, packed, parts)
            if len(squared):
                squared[i] = error
    return n


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
