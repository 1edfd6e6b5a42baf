"""Search along a column: sums over the rows below thresholds, which are subtracted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedcluster._attacks._coordinator import Coordinator
from fedcluster.core import Floats, State, Summary, Task
from fedcluster.metrics.moments import Moments

FIRST = 257
"""Thresholds of the first message of a search."""
MOST = 12_000
"""Thresholds of a search."""
ROUNDS = 14

Below = Callable[[Floats], Floats | None]
"""Returns for thresholds (t,) the sums over the rows below each, the last one their weight."""


def between(below: Below, low: float, high: float, step: float) -> tuple[Floats, Floats]:
    """Return sums over the rows between neighbouring thresholds, each with the middle of these.

    Intervals with more than one row are cut until they are narrower than a step.

    Parameters
    ----------
    below : callable
        Asks for the sums below thresholds; None where it is refused.
    low, high, step : float
        The range of the column, and by how much two values differ at least.

    Returns
    -------
    middles : ndarray of shape (i,)
        Of the intervals that hold rows.
    sums : ndarray of shape (i, p)
        The sums over their rows, the last one their weight.
    """
    at = np.linspace(low - step / 2, high + step / 2, FIRST)
    known = below(at)
    for _ in range(ROUNDS):
        if known is None or len(at) >= MOST:
            break
        apart = np.diff(known[:, -1])
        wide = (apart > 1.5) & (np.diff(at) > step * 0.6)
        cuts = (at[:-1] + np.diff(at) / 2)[wide][: MOST - len(at)]
        if not len(cuts):
            break
        more = below(cuts)
        if more is None:
            break
        order = np.argsort(np.append(at, cuts), kind="stable")
        at, known = np.append(at, cuts)[order], np.concatenate([known, more])[order]
    if known is None:
        return np.empty(0), np.empty((0, 1))
    sums = np.diff(known, axis=0)
    some = sums[:, -1] > 0.5
    return (at[:-1] + np.diff(at) / 2)[some], sums[some]


def below_of(
    coordinator: Coordinator, task: Callable[[float], Task], read: Callable[[Summary], Floats]
) -> Below:
    """Return what asks one task for each threshold.

    Parameters
    ----------
    coordinator : Coordinator
        Who asks.
    task : callable
        Makes the task of a threshold.
    read : callable
        Returns the sums below the threshold from the answer, the last one their weight.
    """

    def below(at: Floats) -> Floats | None:
        answers = coordinator.ask([task(float(t)) for t in at])
        if any(answer is None for answer in answers):
            return None
        return np.array([read(answer) for answer in answers if answer is not None])

    return below


def two_sides(total: Floats, d: int) -> Callable[[Summary], Floats]:
    """Return what reads the sums below from an answer of two lines, of which one may be held back.

    Parameters
    ----------
    total : ndarray of shape (d + 1,)
        The sums over all rows, the last one their weight.
    d : int
        The sums of a line that matter.
    """

    def read(answer: Summary) -> Floats:
        below, above = np.column_stack([answer.sums[:, :d], answer.weights])[:2]
        return np.asarray(total - above if above[-1] > 0 else below)

    return read


def total_of(coordinator: Coordinator, how: object = None) -> Floats | None:
    """Return the sums over all rows as they are prepared, (d + 1,), the last one their weight."""
    public = coordinator.public
    answer = coordinator.ask_one(Moments(), State(), how or public.plain())  # type: ignore[arg-type]
    if answer is None or not answer.weights.any():
        return None
    d = answer.sums.shape[1] // 2
    return np.append(answer.sums[0, :d], answer.weights[0])


def far_centers(public_middle: Floats, j: int, at: float, far: float) -> State:
    """Return two far centres that part the rows at a place of column j."""
    centers = np.array([public_middle, public_middle])
    centers[:, j] = at - far, at + far
    return State.at(centers)
