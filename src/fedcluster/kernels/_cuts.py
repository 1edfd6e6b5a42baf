"""Cuts of rows in two, across the axis along which they lie widest apart."""

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.kernels._runtime import native, native_in_any_order

SAMPLE_ROWS, SORTED_ROWS, ITERATIONS = 2048, 8192, 6


@native
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
    places = _along(rows, _widest_axis(rows))
    is_first = places < _threshold(places, least)
    count = is_first.sum()
    if not least <= count <= len(rows) - least:  # too many places are equal
        count = len(rows) // 2
        is_first[:] = False
        is_first[np.argsort(places, kind="mergesort")[:count]] = True
    _partition(rows, order, is_first, count)
    return count


@native
def _threshold(places: Floats, least: int) -> float:
    """Return the place that leaves the least squares: balanced cuts first, then any."""
    step = 1 if len(places) <= SORTED_ROWS else len(places) // SAMPLE_ROWS
    ordered = np.sort(places[::step])
    least = max(1, least // step)
    balanced = _best_place(ordered, max(least, len(ordered) // 8))
    return balanced if np.isfinite(balanced) else _best_place(ordered, least)


@native
def _best_place(ordered: Floats, least: int) -> float:
    """Return the first place of the second part; NaN where the places do not differ."""
    n, middle = len(ordered), ordered[len(ordered) // 2]
    total = 0.0
    for place in ordered:
        total += place - middle
    best, threshold, before = -1.0, np.nan, 0.0
    for i in range(1, n - least + 1):
        before += ordered[i - 1] - middle
        if i >= least and ordered[i - 1] < ordered[i]:
            gap = total / n - before / i
            between = gap * gap * i / (n - i)
            if between > best:
                best, threshold = between, ordered[i]
    return threshold


@native_in_any_order
def _widest_axis(rows: Floats) -> Floats:
    """Return the first principal axis of some of the rows, (d,), nearly; 0 where all are equal."""
    step = (len(rows) + SAMPLE_ROWS - 1) // SAMPLE_ROWS
    sample = rows[::step].copy()
    for j in range(sample.shape[1]):
        sample[:, j] -= sample[:, j].mean()
    squares = (sample * sample).sum(axis=0)
    axis = np.zeros(len(squares))
    axis[squares.argmax()] = 1.0
    for _ in range(ITERATIONS):
        turned = np.zeros(len(axis))
        for row in sample:
            place = (row * axis).sum()
            turned += place * row
        length = np.sqrt((turned * turned).sum())
        if not 0 < length < np.inf:
            break
        axis = turned / length
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


@native
def _partition(
    rows: Floats, order: NDArray[np.int64], is_first: NDArray[np.bool_], count: int
) -> None:
    """Bring the rows of the first part to the front; the order within the parts stays."""
    old_rows, old_order, here, there = rows.copy(), order.copy(), 0, count
    for i in range(len(rows)):
        if is_first[i]:
            rows[here], order[here] = old_rows[i], old_order[i]
            here += 1
        else:
            rows[there], order[there] = old_rows[i], old_order[i]
            there += 1
