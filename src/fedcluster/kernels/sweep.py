"""One sweep over the rows: the nearest centre of each, and what the rows of each centre add up to.

The labels come from the expanded form, half of the squared distance less what all centres share,

    1/2 ||x - c||^2 - 1/2 ||x - s||^2  =  1/2 ||c - s||^2 - (x - s).(c - s),

with the shift s one of the centres: an offset that all rows share cancels before anything is
rounded, and whole numbers stay whole, so that ties are ties. All that is added up is added from
the differences x - c themselves, in float64.

Rows are read in blocks that stay in the cache, each row by the same operations wherever it lies.
Chunks of rows, which depend on the sizes only, have their own sums, added in the order of the
chunks: the number of threads never changes a bit.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedcluster.kernels.native import native, native_in_any_order
from fedcluster.kernels.rows import PADDING, Rows, Weights, as_weights, pad
from fedcluster.kernels.threads import for_each_chunk, thread_count
from fedcluster.kernels.tiles import (
    ADD_LANES,
    TILE_CENTERS,
    add_row,
    block_rows,
    lanes,
    score_tile,
    transpose_tile,
)

__all__ = ["Sums", "assign", "squared_distance", "sweep", "sweep_in_one_thread"]

CACHE_LINE = 64  # bytes
FEWEST_CHUNK_ROWS, MOST_CHUNK_ROWS, MOST_CHUNKS = 2048, 65536, 128
CHUNK_WORK = 1 << 24  # multiplications of a value with a centre's; all else counts as 16 more


class Sums(NamedTuple):
    """What the rows x of each centre c add up to, w their weights.

    Attributes
    ----------
    residuals : ndarray of shape (k, d), float64
        Sums of w (x - c).
    weights : ndarray of shape (k,), float64
        Sums of w.
    counts : ndarray of shape (k,), int64
        Numbers of rows with w > 0.
    errors : ndarray of shape (k,), float64
        Sums of w ||x - c||^2.
    """

    residuals: NDArray[np.float64]
    weights: NDArray[np.float64]
    counts: NDArray[np.int64]
    errors: NDArray[np.float64]


class Packed(NamedTuple):
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
    """

    shift: Rows
    tiles: Rows
    half_norms: Rows
    centers: NDArray[np.float64]


def sweep(
    X: Rows, centers: NDArray[np.float64], sample_weight: Weights
) -> tuple[NDArray[np.int32], Sums]:
    """Labels (n,) of the rows and the sums over the rows of each centre."""
    return _sweep(X, centers, sample_weight, np.empty(0))


def assign(X: Rows, centers: NDArray[np.float64]) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Labels (n,) of the rows and their squared distances (n,) to their centres."""
    squared = np.empty(len(X))
    labels, _ = _sweep(X, centers, as_weights(None), squared)
    return labels, squared


def _sweep(
    X: Rows, centers: NDArray[np.float64], sample_weight: Weights, squared: NDArray[np.float64]
) -> tuple[NDArray[np.int32], Sums]:
    """Sweep on several threads where that pays; write squared distances where there is room."""
    n, (k, d) = len(X), centers.shape
    bounds = chunk_bounds(n, k, d).tolist()
    n_chunks, tail = len(bounds) - 1, pad(X[bounds[-2] :])
    labels, packed, parts = np.empty(n, np.int32), pack_centers(X, centers), {}

    def work(chunk: int) -> None:
        start, stop = bounds[chunk : chunk + 2]
        rows, source = slice(start, stop), X[start:] if stop < n else tail
        parts[chunk] = zero_sums(packed)
        sweep_chunk(source, sample_weight[rows], packed, labels[rows], squared[rows], parts[chunk])

    for_each_chunk(work, n_chunks, thread_count() if n_chunks > 2 else 1)
    total = parts[0]
    for chunk in range(1, n_chunks):
        add_up(total, parts[chunk])
    return labels, without_padding(total, d)


@native
def sweep_in_one_thread(
    padded: NDArray[np.float64], centers: NDArray[np.float64], sample_weight: Weights
) -> tuple[NDArray[np.int32], Sums]:
    """``sweep`` over padded rows, for callers that are compiled themselves."""
    n, (k, d) = len(sample_weight), centers.shape
    bounds = chunk_bounds(n, k, d)
    labels, packed = np.empty(n, np.int32), pack_centers(padded, centers)
    total = zero_sums(packed)
    for chunk in range(len(bounds) - 1):
        start, part = bounds[chunk], zero_sums(packed)
        rows = slice(start, bounds[chunk + 1])
        sweep_chunk(padded[start:], sample_weight[rows], packed, labels[rows], np.empty(0), part)
        add_up(total, part)
    return labels, without_padding(total, d)


@native
def chunk_bounds(n: int, k: int, d: int) -> NDArray[np.int64]:
    """Bounds of the chunks, from the sizes alone: enough to do in each, and few sums to keep.

    All are alike but the last, whose rows must be padded; what lies beyond the others is in X.
    """
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
def pack_centers(X: Rows, centers: NDArray[np.float64]) -> Packed:
    """Pack the centres for these rows."""
    k, d = centers.shape
    n_tiles = (k - 1) // TILE_CENTERS + 1
    shift = np.zeros(_whole(d, lanes(X)), X.dtype)
    tiles = np.zeros((n_tiles, d, TILE_CENTERS), X.dtype)
    half_norms = np.full((n_tiles, TILE_CENTERS), np.inf, X.dtype)
    padded = _aligned_zeros(np.float64, k, _whole(d, ADD_LANES))
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
            padded[j, f] = centers[j, f]
        half_norms[tile, place] = norm / 2
    return Packed(shift, tiles, half_norms, padded)


@native
def _whole(d: int, lanes: int) -> int:
    """The columns that whole vectors hold."""
    return ((d - 1) // lanes + 1) * lanes


@native
def _most_central(centers: NDArray[np.float64]) -> int:
    """The centre closest to the mean of the centres: it has their offset, and is no outlier."""
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
def _aligned_zeros(dtype: DTypeLike, rows: int, columns: int) -> NDArray[Any]:
    """Zeros from the start of a line of the cache, so that no vector lies in two."""
    flat = np.zeros(rows * columns + CACHE_LINE, dtype)
    start = -flat.ctypes.data % CACHE_LINE // flat.itemsize
    return flat[start : start + rows * columns].reshape(rows, columns)


@native
def zero_sums(packed: Packed) -> Sums:
    """Sums of no rows: residuals filled up to whole vectors, errors in ADD_LANES parts."""
    k, width = packed.centers.shape
    residuals, errors = (
        _aligned_zeros(np.float64, k, width),
        _aligned_zeros(np.float64, k, ADD_LANES),
    )
    return Sums(residuals, np.zeros(k), np.zeros(k, np.int64), errors)


@native
def add_up(total: Sums, part: Sums) -> None:
    """Add the sums of some rows to those of others."""
    k, width = total.residuals.shape
    for j in range(k):
        for f in range(width):
            total.residuals[j, f] += part.residuals[j, f]
        total.weights[j] += part.weights[j]
        total.counts[j] += part.counts[j]
        for lane in range(ADD_LANES):
            total.errors[j, lane] += part.errors[j, lane]


@native
def without_padding(total: Sums, d: int) -> Sums:
    """The sums as others know them."""
    k = len(total.weights)
    residuals, errors = np.empty((k, d)), np.zeros(k)
    for j in range(k):
        for f in range(d):
            residuals[j, f] = total.residuals[j, f]
        for lane in range(ADD_LANES):
            errors[j] += total.errors[j, lane]
    return Sums(residuals, total.weights, total.counts, errors)


@native
def sweep_chunk(
    X: Rows,
    sample_weight: Weights,
    packed: Packed,
    labels: NDArray[np.int32],
    squared: NDArray[np.float64],
    sums: Sums,
) -> None:
    """Write the labels of the first rows and add each to the sums of its centre."""
    size, n = block_rows(X), len(labels)
    block = _aligned_zeros(X.dtype, len(packed.shift), size)
    lowest, nearest = np.empty(size, X.dtype), np.empty(size, np.int32)
    for start in range(0, n, size):
        for r in range(0, size, lanes(X)):
            for f in range(0, len(packed.shift), lanes(X)):
                transpose_tile(X, start + r, f, packed.shift, block, r)
        for r in range(size):
            lowest[r], nearest[r] = np.inf, 0
        for tile in range(len(packed.tiles)):
            score_tile(block, packed.tiles, packed.half_norms, tile, lowest, nearest)
        for i in range(start, min(start + size, n)):
            j = labels[i] = nearest[i - start]
            w = sample_weight[i] if len(sample_weight) else 1.0
            error = add_row(X, i, packed.centers, j, w, sums.residuals, sums.errors)
            sums.weights[j] += w
            sums.counts[j] += w > 0
            if len(squared):
                squared[i] = error


@native_in_any_order
def squared_distance(these: Rows, i: int, those: Rows, j: int) -> float:
    """||a_i - b_j||^2 from the differences, in float64; columns as many as the first has."""
    total = 0.0
    for f in range(these.shape[1]):
        difference = np.float64(these[i, f]) - np.float64(those[j, f])
        total += difference * difference
    return total
