"""Sweep over the rows: the nearest centre of each, and sums over the rows of each centre.

The labels come from the expanded form, half of the squared distance less what all centres share,

    1/2 ||x - c||^2 - 1/2 ||x - s||^2  =  1/2 ||c - s||^2 - (x - s).(c - s),

with the shift s one of the centres: an offset that all rows share cancels before anything is
rounded, and whole numbers stay whole, so that ties are ties. All that is added up is added from
the differences x - c themselves, in float64.

Rows are read in blocks that stay in the cache, each row by the same operations wherever it lies.
Chunks of rows, which depend on the sizes only, have their own sums, added in the order of the
chunks: the number of threads never changes a bit.
"""

from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import DTypeLike, NDArray

from fedcluster.core import Floats, Labels
from fedcluster.kernels._rows import PADDING, Rows, Weights, as_given_weights, as_weights, pad
from fedcluster.kernels._runtime import inlined, native, native_in_any_order
from fedcluster.kernels._threads import BufferPool, for_each_chunk, thread_count
from fedcluster.kernels._tiles import (
    ADD_LANES,
    TILE_CENTERS,
    add_row,
    block_rows,
    lanes,
    score_tile,
    transpose_tile,
)

CACHE_LINE = 64  # bytes
FEWEST_CHUNK_ROWS, MOST_CHUNK_ROWS, MOST_CHUNKS = 2048, 65536, 128
SMALL = 1 << 14  # numbers
LARGEST_ANCHOR = 1e38
CHUNK_WORK = 1 << 24  # multiplications of a value with a centre's; all else counts as 16 more


class HardSums(NamedTuple):
    """Sums over the rows x of each centre c, w their weights.

    Attributes
    ----------
    residuals : ndarray of shape (k, d), float64
        Sums of w (x - c).
    weights : ndarray of shape (k,), float64
        Sums of w.
    counts : ndarray of shape (k,), int64
        Numbers of rows with w > 0.
    errors : ndarray of shape (k,), float64
        Sums of w ||x - c||^2, in squared units of the rows.
    sums : ndarray of shape (k, d), float64
        Sums of w x. The same bits for the same rows, as long as c moves by rounding only.
    """

    residuals: Floats
    weights: Floats
    counts: NDArray[np.int64]
    errors: Floats
    sums: Floats


class Parts(NamedTuple):
    """Sums over the rows of one chunk, in the layout that rows are added to.

    Attributes
    ----------
    residuals : ndarray of shape (k, d), float64, filled up to whole vectors
        Sums of w (x - g), with g the anchor of the centre.
    weights, counts : ndarray of shape (k,)
        As in ``HardSums``.
    errors : ndarray of shape (k, ADD_LANES), float64
        Sums of w ||x - c||^2, whose columns are still to be added up.
    """

    residuals: Floats
    weights: Floats
    counts: NDArray[np.int64]
    errors: Floats


class PackedCenters(NamedTuple):
    """Centres in the layouts that the rows are scored by and added to.

    Attributes
    ----------
    shift : ndarray of shape (d,), of the rows' type, filled up by 0 to whole vectors
        The shift s.
    tiles : ndarray of shape (n_tiles, d, TILE_CENTERS), of the rows' type, filled up by 0
        The differences c - s.
    half_norms : ndarray of shape (n_tiles, TILE_CENTERS), of the rows' type, filled up by infinity
        1/2 ||c - s||^2.
    centers : ndarray of shape (k, d), float64, filled up by 0 to whole vectors
        The centres c.
    anchors : ndarray of shape (k, d), float64, filled up by 0 to whole vectors
        The centres rounded to float32: what is added up in reference to these does not change
        its bits with the last bits of a centre, so that centres come to rest.
    """

    shift: Rows
    tiles: Rows
    half_norms: Rows
    centers: Floats
    anchors: Floats


def sweep(
    X: Rows, centers: Floats, sample_weight: Weights, squared: Floats | None = None
) -> tuple[Labels, HardSums]:
    """Return the labels (n,) of the rows and the sums over the rows of each centre.

    Sweeps on several threads where that pays. Squared distances (n,) are written where an array
    is given for them.
    """
    if squared is None and is_small(X):
        labels, *sums = sweep_small(pad(X), centers, as_given_weights(sample_weight, len(X)))
        return labels, HardSums(*sums)
    squared = np.empty(0) if squared is None else squared
    n, (k, d) = len(X), centers.shape
    labels, packed = np.empty(n, np.int32), pack_centers(X, centers)
    sources = chunks(X, chunk_bounds(n, k, d).tolist())
    buffers = BufferPool(partial(zero_parts, packed), clear, add_up)

    def work(chunk: int) -> None:
        (rows, source), parts = sources[chunk], buffers.take()
        sweep_chunk(source, sample_weight[rows], packed, labels[rows], squared[rows], parts)
        buffers.hand_in(chunk, parts)

    for_each_chunk(work, len(sources), thread_count() if len(sources) > 2 else 1)
    return labels, finish(buffers.total, packed, d)


def is_small(X: Rows) -> bool:
    """Return whether one call of a compiled function, on a copy of the rows, is fastest."""
    return X.size <= SMALL


def assign(X: Rows, centers: Floats) -> tuple[Labels, Floats]:
    """Return the labels (n,) of the rows and their squared distances (n,) to their centres."""
    squared = np.empty(len(X))
    labels, _ = sweep(X, centers, as_weights(None), squared)
    return labels, squared


def chunks(X: Rows, bounds: list[int]) -> list[tuple[slice, Rows]]:
    """Return the rows of each chunk: a slice of X, and an array that begins with them."""
    sources = [(slice(*bound), X[bound[0] :]) for bound in pairwise(bounds)]
    rows, tail = sources[-1]
    return [*sources[:-1], (rows, pad(tail))]


def add_all(parts: list[Parts]) -> Parts:
    """Add up the sums of all chunks, in their order."""
    residuals, weights, counts, errors = parts[0]
    total = Parts(residuals.copy(), weights.copy(), counts.copy(), errors.copy())
    for part in parts[1:]:
        add_up(total, part)
    return total


@native
def sweep_small(padded: Rows, centers: Floats, sample_weight: Weights) -> Any:
    """Sweep in one thread, the sums in a plain tuple: others are slow to hand over."""
    labels, sums = sweep(padded, centers, sample_weight)
    return labels, sums.residuals, sums.weights, sums.counts, sums.errors, sums.sums


@overload(sweep)
def _sweep_if_compiled(X: Rows, centers: Floats, sample_weight: Weights) -> Any:  # noqa: ARG001
    """Return what compiled callers call as ``sweep``, with padded rows and a weight for each."""
    return _sweep_in_one_thread


def _sweep_in_one_thread(
    X: Rows, centers: Floats, sample_weight: Weights
) -> tuple[Labels, HardSums]:
    """Sweep over padded rows."""
    n, (k, d) = len(sample_weight), centers.shape
    bounds = chunk_bounds(n, k, d)
    labels, packed, nowhere = np.empty(n, np.int32), pack_centers(X, centers), np.empty(0)
    total = zero_parts(packed)
    for chunk in range(len(bounds) - 1):
        start, part = bounds[chunk], zero_parts(packed) if chunk else total
        rows = slice(start, bounds[chunk + 1])
        sweep_chunk(X[start:], sample_weight[rows], packed, labels[rows], nowhere, part)
        if chunk:
            add_up(total, part)
    return labels, finish(total, packed, d)


@native
def chunk_bounds(n: int, k: int, d: int) -> NDArray[np.int64]:
    """Compute the bounds of the chunks from the sizes alone: enough work in each, few sums to keep.

    All are alike but the last, whose rows must be padded; what lies beyond the others is in X.
    Small data are one chunk.
    """
    if n * d <= SMALL:
        return np.array([0, n])
    size = min(max(CHUNK_WORK // ((k + 16) * d), FEWEST_CHUNK_ROWS), MOST_CHUNK_ROWS)
    size = max(size, n // MOST_CHUNKS + 1)
    most = max(n - PADDING, 0)
    n_chunks = (most - 1) // size + 1
    bounds = np.full(n_chunks + 2, n)
    for chunk in range(n_chunks):
        bounds[chunk] = chunk * most // n_chunks
    bounds[n_chunks] = most
    return bounds


@native
def pack_centers(X: Rows, centers: Floats) -> PackedCenters:
    """Return the centres in the layouts that these rows need."""
    k, d = centers.shape
    n_tiles = (k - 1) // TILE_CENTERS + 1
    shift = np.zeros(_whole(d, lanes(X)), X.dtype)
    tiles = np.zeros((n_tiles, d, TILE_CENTERS), X.dtype)
    half_norms = np.full((n_tiles, TILE_CENTERS), np.inf, X.dtype)
    padded = aligned_zeros(np.float64, k, _whole(d, ADD_LANES))
    anchors = aligned_zeros(np.float64, k, _whole(d, ADD_LANES))
    central = _most_central(centers)
    for f in range(d):
        shift[f] = centers[central, f]
    for j in range(k):
        tile, place = j // TILE_CENTERS, j % TILE_CENTERS
        norm = 0.0
        for f in range(d):
            difference = centers[j, f] - np.float64(shift[f])
            tiles[tile, f, place] = difference
            norm += difference * difference
            padded[j, f] = anchors[j, f] = centers[j, f]
            if abs(centers[j, f]) < LARGEST_ANCHOR:
                anchors[j, f] = np.float32(centers[j, f])
        half_norms[tile, place] = norm / 2
    return PackedCenters(shift, tiles, half_norms, padded, anchors)


@native
def _whole(d: int, lanes: int) -> int:
    """Return the number of columns that whole vectors hold."""
    return ((d - 1) // lanes + 1) * lanes


@native
def _most_central(centers: Floats) -> int:
    """Return the centre closest to the mean of all: it has their offset, and is no outlier."""
    k, d = centers.shape
    mean = np.zeros((1, d))
    for j in range(k):
        for f in range(d):
            mean[0, f] += centers[j, f] / k
    best, lowest = 0, np.inf
    for j in range(k):
        squared = squared_distance(centers, j, mean, 0)
        if squared < lowest:
            best, lowest = j, squared
    return best


@native
def aligned_zeros(dtype: DTypeLike, rows: int, columns: int) -> NDArray[Any]:
    """Return zeros (rows, columns) that begin a cache line, so that no vector lies in two."""
    flat = np.zeros(rows * columns + CACHE_LINE, dtype)
    start = -flat.ctypes.data % CACHE_LINE // flat.itemsize
    return flat[start : start + rows * columns].reshape(rows, columns)


@native
def zero_parts(packed: PackedCenters) -> Parts:
    """Return the sums over no rows."""
    k, width = packed.centers.shape
    residuals = aligned_zeros(np.float64, k, width)
    errors = aligned_zeros(np.float64, k, ADD_LANES)
    return Parts(residuals, np.zeros(k), np.zeros(k, np.int64), errors)


@native
def clear(parts: Parts) -> None:
    """Set sums to 0."""
    parts.residuals[:], parts.weights[:], parts.counts[:], parts.errors[:] = 0.0, 0.0, 0, 0.0


@native
def add_up(total: Parts, part: Parts) -> None:
    """Add the sums of one chunk to a total; whole arrays take seconds longer to compile."""
    k, width = total.residuals.shape
    for j in range(k):
        total.weights[j] += part.weights[j]
        total.counts[j] += part.counts[j]
        for f in range(width):
            total.residuals[j, f] += part.residuals[j, f]
        for lane in range(ADD_LANES):
            total.errors[j, lane] += part.errors[j, lane]


@native
def finish(parts: Parts, packed: PackedCenters, d: int) -> HardSums:
    """Return sums (k, d) from those of all chunks, which are filled up to whole vectors."""
    k, weights, anchors = len(parts.weights), parts.weights, packed.anchors
    residuals, totals, errors = np.empty((k, d)), np.empty((k, d)), np.zeros(k)
    for j in range(k):
        for f in range(d):
            residual, anchor = parts.residuals[j, f], anchors[j, f]
            residuals[j, f] = residual + weights[j] * (anchor - packed.centers[j, f])
            totals[j, f] = residual + weights[j] * anchor
        for lane in range(ADD_LANES):
            errors[j] += parts.errors[j, lane]
    return HardSums(residuals, weights, parts.counts, errors, totals)


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
    block = aligned_zeros(X.dtype, len(packed.shift), size)
    lowest, nearest = np.empty(size, X.dtype), np.empty(size, np.int32)
    for start in range(0, n, size):
        score_block(X, start, packed, block, lowest, nearest, ())
        for i in range(start, min(start + size, n)):
            j = labels[i] = nearest[i - start]
            error = add(X, sample_weight, i, j, packed, parts)
            if len(squared):
                squared[i] = error


@inlined
def score_block(
    X: Rows,
    first: int,
    packed: PackedCenters,
    block: Rows,
    lowest: Rows,
    nearest: Labels,
    second: tuple[Rows, ...],
) -> None:
    """Write the nearest centres and the lowest scores of a block of rows from the first.

    And the second lowest scores, where ``second`` is a tuple of an array of infinity.
    """
    for r in range(0, block.shape[1], lanes(X)):
        for f in range(0, len(block), lanes(X)):
            transpose_tile(X, first + r, f, packed.shift, block, r)
    lowest[:], nearest[:] = np.inf, 0
    for tile in range(len(packed.tiles)):
        score_tile(block, packed.tiles, packed.half_norms, tile, lowest, nearest, second)


@inlined
def add(
    X: Rows, sample_weight: Weights, i: int, j: int, packed: PackedCenters, parts: Parts
) -> float:
    """Add row i to the sums of centre j and return its squared distance."""
    w = sample_weight[i] if len(sample_weight) else 1.0
    parts.weights[j] += w
    parts.counts[j] += w > 0
    return add_row(X, (i, j), packed.centers, packed.anchors, w, parts.residuals, parts.errors)


@native_in_any_order
def squared_distance(these: Rows, i: int, those: Rows, j: int) -> float:
    """Return ||a_i - b_j||^2 from the differences, in float64, over the columns of the first."""
    total = 0.0
    for f in range(these.shape[1]):
        difference = np.float64(these[i, f]) - np.float64(those[j, f])
        total += difference * difference
    return total
