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
from fedcluster.kernels._tiles import (
    ADD_LANES,
    LARGEST_ANCHOR,
    TILE_CENTERS,
    aligned_zeros,
    clear_line,
    lanes,
)
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


class ClusterSums(NamedTuple):
    """Sums over the rows x of each centre c with weights w, as a site sends them.

    Attributes
    ----------
    sums_and_errors : ndarray of shape (k, d + 1), float64
        Sums of w x, in units of the rows; in the last column those of w ||x - c||^2, in squared
        units.
    weights : ndarray of shape (k,), float64
        Sums of w.
    counts : ndarray of shape (k,), int64
        Numbers of rows with w > 0.
    """

    sums_and_errors: Floats
    weights: Floats
    counts: NDArray[np.int64]

    @property
    def sums(self) -> Floats:
        """The sums of w x, (k, d)."""
        return self.sums_and_errors[:, :-1]

    @property
    def errors(self) -> Floats:
        """The sums of w ||x - c||^2, (k,)."""
        return self.sums_and_errors[:, -1]


class Parts(NamedTuple):
    """Sums over the rows of one chunk, in the layout to which rows are added.

    Attributes
    ----------
    residuals : ndarray of shape (k, d), float64, filled up to whole vectors
        Sums of w (x - g), with g the anchor of the centre: c rounded to float32. Relative to that,
        sums do not depend on the last bits of a centre, so that centres come to rest.
    weights, counts : ndarray of shape (k,)
        As in ``HardSums``.
    errors : ndarray of shape (k, ADD_LANES), float64
        Sums of w ||x - c||^2, not added up over the lanes yet.
    added : ndarray of shape (k,), int64
        Numbers of rows, those of weight 0 as well.
    """

    residuals: Floats
    weights: Floats
    counts: NDArray[np.int64]
    errors: Floats
    added: NDArray[np.int64]


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
    """

    shift: Rows
    tiles: Rows
    half_norms: Rows
    centers: Floats


@native
def pack_centers(X: Rows, centers: Floats) -> PackedCenters:
    """Return the centres in the layouts that these rows need."""
    k, d = centers.shape
    n_tiles, width = (k - 1) // TILE_CENTERS + 1, d + -d % ADD_LANES
    shift = aligned_zeros(X.dtype, (d + -d % lanes(X),))
    tiles = aligned_zeros(X.dtype, (n_tiles, d, TILE_CENTERS))
    half_norms = aligned_zeros(X.dtype, (n_tiles, TILE_CENTERS))
    padded = centers if width == d else aligned_zeros(centers.dtype, (k, width))
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
            if width != d:
                padded[j, f] = center
        half_norms[tile, place] = norm / 2
    return PackedCenters(shift, tiles, half_norms, padded)


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
    counts, added = aligned_zeros(np.int64, (k,)), aligned_zeros(np.int64, (k,))
    return Parts(residuals, aligned_zeros(dtype, (k,)), counts, errors, added)


@inlined
def forget(parts: Parts, j: int) -> None:
    """Set the sums of a cluster to 0; whole-array operations compile seconds longer."""
    parts.weights[j], parts.counts[j], parts.added[j] = 0.0, 0, 0
    clear_line(parts.residuals, j)
    clear_line(parts.errors, j)


@native
def add_up(empties: bool, total: Parts, part: Parts) -> None:
    """Add the sums of one chunk to a total, and set them to 0 if that is asked for."""
    k, width = total.residuals.shape
    for j in range(k):
        if part.added[j] == 0:
            continue
        total.weights[j] += part.weights[j]
        total.counts[j] += part.counts[j]
        total.added[j] += part.added[j]
        for f in range(width):
            total.residuals[j, f] += part.residuals[j, f]
        for lane in range(ADD_LANES):
            total.errors[j, lane] += part.errors[j, lane]
        if empties:
            forget(part, j)


@inlined
def anchor_of(center: float) -> float:
    """Return the anchor of a number of a centre: larger ones overflow in float32."""
    return np.float64(np.float32(center)) if abs(center) < LARGEST_ANCHOR else center


@native
def hand_over(parts: Parts, padded: Floats, d: int) -> ClusterSums:
    """Return the sums of all chunks, for padded centres, and set those of the parts to 0."""
    k = len(parts.weights)
    sums, weights = aligned_zeros(padded.dtype, (k, d + 1)), aligned_zeros(padded.dtype, (k,))
    counts = aligned_zeros(np.int64, (k,))
    for j in range(k):
        weights[j], counts[j] = parts.weights[j], parts.counts[j]
        for f in range(d):
            sums[j, f] = parts.residuals[j, f] + weights[j] * anchor_of(padded[j, f])
        for lane in range(ADD_LANES):
            sums[j, d] += parts.errors[j, lane]
        forget(parts, j)
    return ClusterSums(sums, weights, counts)


@native
def finish(parts: Parts, padded: Floats, d: int) -> HardSums:
    """Return sums (k, d) from the padded ones of all chunks, for padded centres."""
    k, weights = len(parts.weights), parts.weights
    residuals, totals = aligned_zeros(padded.dtype, (k, d)), aligned_zeros(padded.dtype, (k, d))
    errors = aligned_zeros(padded.dtype, (k,))
    for j in range(k):
        for f in range(d):
            residual, anchor = parts.residuals[j, f], anchor_of(padded[j, f])
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
