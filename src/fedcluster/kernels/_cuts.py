"""Cuts of rows in two, across the axis along which they lie widest apart."""

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.kernels._runtime import native_in_any_order

SAMPLE_ROWS, SORTED_ROWS, ITERATIONS = 2048, 8192, 6


def cut(rows: Floats, order: NDArray[np.int64], least: int) -> int:
    """Cut rows in two, reorder them in place, and return how many come first.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        The rows; those of the first part come first afterwards.
    order : ndarray of shape (n,)
        What belongs to the rows, reordered alike.
    least : int
        The fewest rows of a part; at most n / 2.
    """
    places = _along(rows, _widest_axis(rows[:: -(-len(rows) // SAMPLE_ROWS)].copy()))
    is_first = places < _threshold(places, least)
    count = int(is_first.sum())
    if not least <= count <= len(rows) - least:  # too many places are equal
        count = len(rows) // 2
        is_first[:] = False
        is_first[places.argsort(kind="stable")[:count]] = True
    for array in (rows, order):
        array[:count], array[count:] = array[is_first], array[~is_first]
    return count


def _threshold(places: Floats, least: int) -> float:
    """Return the first place of the second part, so that the cut leaves the least squares.

    Both parts have at least an eighth of the rows, unless more than that are equal: then these are
    parted from the greater of the other parts.
    """
    step = 1 if len(places) <= SORTED_ROWS else len(places) // SAMPLE_ROWS
    ordered = np.sort(places[::step])
    n, middle = len(ordered), ordered[len(ordered) // 2]
    fewest = max(1, least // step, n // 8)
    sizes = np.arange(fewest, n - fewest + 1)
    sizes = sizes[ordered[sizes - 1] < ordered[sizes]]
    if not len(sizes):
        before, until = np.searchsorted(ordered, middle), np.searchsorted(ordered, middle, "right")
        return float(middle if before >= n - until else ordered[until])
    totals = np.cumsum(ordered - middle)
    before = totals[sizes - 1]
    gaps = (totals[-1] - before) / (n - sizes) - before / sizes
    return float(ordered[sizes[np.argmax(gaps * gaps * sizes * (n - sizes))]])


@native_in_any_order
def _widest_axis(rows: Floats) -> Floats:
    """Return the first principal axis, (d,), nearly; the rows are centred in place."""
    n, d = rows.shape
    axis, squares = np.zeros(d), np.zeros(d)
    for j in range(d):
        mean = 0.0
        for i in range(n):
            mean += rows[i, j] / n
        for i in range(n):
            rows[i, j] -= mean
            squares[j] += rows[i, j] ** 2
    axis[squares.argmax()] = 1.0
    for _ in range(ITERATIONS):
        turned, length = np.zeros(d), 0.0
        for i in range(n):
            place = 0.0
            for j in range(d):
                place += rows[i, j] * axis[j]
            for j in range(d):
                turned[j] += place * rows[i, j]
        for j in range(d):
            length += turned[j] ** 2
        if length > 0:
            axis = turned / np.sqrt(length)
    return axis


@native_in_any_order
def _along(rows: Floats, axis: Floats) -> Floats:
    """Return where the rows lie along an axis, from the first of them on."""
    places = np.empty(len(rows))
    for i in range(len(rows)):
        place = 0.0
        for j in range(len(axis)):
            place += (rows[i, j] - rows[0, j]) * axis[j]
        places[i] = place
    return places
