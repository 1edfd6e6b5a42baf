"""Layouts of centres and sums for a sweep, and the operations on one block or one row.

The labels come from the expanded form, half of the squared distance less a term that all centres
share,

    1/2 ||x - c||^2 - 1/2 ||x - s||^2  =  1/2 ||c - s||^2 - (x - s).(c - s),

with the shift s one of the centres: an offset that all rows share cancels before anything is
rounded, and whole numbers stay whole, so that ties are ties. All sums are computed from the
differences x - c themselves, in float64.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.kernels._tiles import ADD_LANES, TILE_CENTERS, aligned_zeros, lanes
from fedcluster.kernels.rows import Rows
from fedcluster.kernels.runtime import inlined, inner_in_any_order, native


class HardSums(NamedTuple):
    """Sums over the rows x of each centre c with weights w.

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
        Sums of w x. They have the same bits for the same rows, as long as c moves by rounding only.
    """

    residuals: Floats
    weights: Floats
    counts: NDArray[np.int64]
    errors: Floats
    sums: Floats


class Parts(NamedTuple):
    """Sums over the rows of one chunk, in the layout to which rows are added.

    Attributes
    ----------
    residuals : ndarray of shape (k, d), float64, filled up to whole vectors
        Sums of w (x - g), with g the anchor of the centre.
    weights, counts : ndarray of shape (k,)
        As in ``HardSums``.
    errors : ndarray of shape (k, ADD_LANES), float64
        Sums of w ||x - c||^2, not added up over the lanes yet.
    """

    residuals: Floats
    weights: Floats
    counts: NDArray[np.int64]
    errors: Floats


class PackedCenters(NamedTuple):
    """Centres in the layouts by which rows are scored and added.

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
        The centres rounded to float32. Sums relative to these do not depend on the last bits of a
        centre, so that centres come to rest.
    """

    shift: Rows
    tiles: Rows
    half_norms: Rows
    centers: Floats
    anchors: Floats


@native
def pack_centers(X: Rows, centers: Floats) -> PackedCenters:
    """Return the centres in the layouts that these rows need."""
    k, d = centers.shape
    n_tiles, width = (k - 1) // TILE_CENTERS + 1, d + -d % ADD_LANES
    shift = aligned_zeros(X.dtype, (d + -d % lanes(X),))
    tiles = aligned_zeros(X.dtype, (n_tiles, d, TILE_CENTERS))
    half_norms = aligned_zeros(X.dtype, (n_tiles, TILE_CENTERS))
    padded = aligned_zeros(centers.dtype, (k, width))
    anchors = aligned_zeros(centers.dtype, (k, width))
    central = _most_central(centers)
    for f in range(d):
        shift[f] = centers[central, f]
    for j in range(n_tiles * TILE_CENTERS):
        tile, place = j // TILE_CENTERS, j % TILE_CENTERS
        norm = 0.0 if j < k else np.inf
        for f in range(d if j < k else 0):
            center = centers[j, f]
            difference = center - np.float64(shift[f])
            tiles[tile, f, place] = difference
            norm += difference * difference
            padded[j, f] = center
            # larger values overflow in float32
            anchors[j, f] = np.float32(center) if abs(center) < 1e38 else center
        half_norms[tile, place] = norm / 2
    return PackedCenters(shift, tiles, half_norms, padded, anchors)


@inlined
def _most_central(centers: Floats) -> int:
    """Return the centre nearest to the mean of all, which shares their offset and is no outlier."""
    k, d = centers.shape
    mean = aligned_zeros(centers.dtype, (1, d))
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
def zero_parts(padded: Floats) -> Parts:
    """Return the sums over no rows for padded centres."""
    (k, width), dtype = padded.shape, padded.dtype
    residuals, errors = aligned_zeros(dtype, (k, width)), aligned_zeros(dtype, (k, ADD_LANES))
    return Parts(residuals, aligned_zeros(dtype, (k,)), aligned_zeros(np.int64, (k,)), errors)


@native
def clear(parts: Parts) -> None:
    """Set sums to 0."""
    parts.residuals[:], parts.weights[:], parts.counts[:], parts.errors[:] = 0.0, 0.0, 0, 0.0


@native
def add_up(total: Parts, part: Parts) -> None:
    """Add the sums of one chunk to a total; whole-array operations compile seconds longer."""
    k, width = total.residuals.shape
    for j in range(k):
        total.weights[j] += part.weights[j]
        total.counts[j] += part.counts[j]
        for f in range(width):
            total.residuals[j, f] += part.residuals[j, f]
        for lane in range(ADD_LANES):
            total.errors[j, lane] += part.errors[j, lane]


@native
def finish(parts: Parts, padded: Floats, anchors: Floats, d: int) -> HardSums:
    """Return sums (k, d) from the padded ones of all chunks, for padded centres."""
    k, weights = len(parts.weights), parts.weights
    residuals, totals = aligned_zeros(anchors.dtype, (k, d)), aligned_zeros(anchors.dtype, (k, d))
    errors = aligned_zeros(anchors.dtype, (k,))
    for j in range(k):
        for f in range(d):
            residual, anchor = parts.residuals[j, f], anchors[j, f]
            residuals[j, f] = residual + weights[j] * (anchor - padded[j, f])
            totals[j, f] = residual + weights[j] * anchor
        for lane in range(ADD_LANES):
            errors[j] += parts.errors[j, lane]
    return HardSums(residuals, weights, parts.counts, errors, totals)


@inlined
def taken(X: Floats, rows: NDArray[np.int64]) -> Floats:
    """Return some rows; X[rows] compiles longer than many a kernel."""
    some = aligned_zeros(X.dtype, (len(rows), X.shape[1]))
    for r in range(len(rows)):
        for f in range(X.shape[1]):
            some[r, f] = X[rows[r], f]
    return some


@inner_in_any_order
def squared_distance(these: Rows, i: int, those: Rows, j: int) -> float:
    """Return ||a_i - b_j||^2 from the differences, in float64, over the columns of ``these``."""
    total = 0.0
    for f in range(these.shape[1]):
        difference = np.float64(these[i, f]) - np.float64(those[j, f])
        total += difference * difference
    return total
