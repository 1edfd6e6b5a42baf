"""Bounds of the answers of a step about rows that lie within a box.

A step whose lines are sums over rows declares them, as its ``line_bounds``: the mean of numbers
between two bounds lies between them, too. So a coordinator that knows a range of each column knows
a range of every sum of so much weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from fedcluster.core import Floats, State, Step, Summary

EVERYTHING = (-np.inf, np.inf)
"""Range of a column of which none is known."""

ROUNDING = 1e-6
"""Share of a bound by which rounding may pass it; rows may have 32 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """Smallest and largest value of each column, (d,) each; infinite where none is known.

    Examples
    --------
    >>> Box(np.array([0.0]), np.array([2.0])).squares(np.array([[-1.0], [0.5]])).ravel()
    array([9.  , 2.25])
    """

    low: Floats
    high: Floats

    @classmethod
    def unbounded(cls, d: int) -> Self:
        """Return the box that holds all rows of d columns."""
        return cls(np.full(d, -np.inf), np.full(d, np.inf))

    def around(self, points: Floats) -> Box:
        """Return the box that holds points (q, d), too."""
        if not len(points):
            return self
        low, high = points.min(axis=0), points.max(axis=0)
        return Box(np.minimum(self.low, low), np.maximum(self.high, high))

    def squares(self, points: Floats) -> Floats:
        """Return the largest (x - c)^2 of a row in the box, of points c (k, d), (k, d)."""
        farthest: Floats = np.maximum(np.abs(self.low - points), np.abs(self.high - points)) ** 2
        return farthest

    def distances(self, points: Floats) -> Floats:
        """Return the largest sum of squares about points (k, d) for a row, (k,).

        A group of rows counts with its mean and its part of the squares within all groups, which
        are at most a quarter of the squared side.
        """
        within = (self.high - self.low) ** 2 / 4
        largest: Floats = (self.squares(points) + within).sum(axis=1)
        return largest

    def means(self, k: int) -> LineBounds:
        """Return the bounds of k lines that are sums of disjoint sets of rows."""
        shape = (k, len(self.low))
        return LineBounds(np.broadcast_to(self.low, shape), np.broadcast_to(self.high, shape))

    def sums_and_errors(self, centers: Floats) -> LineBounds:
        """Return the bounds of sums of rows and of their squared distances to centres (k, d)."""
        sums, errors = self.means(len(centers)), self.distances(centers)[:, None]
        low = np.where(np.isfinite(errors), 0.0, -np.inf)
        return LineBounds(np.hstack([sums.low, low]), np.hstack([sums.high, errors]))


@dataclass(frozen=True, slots=True, eq=False)
class LineBounds:
    """Bounds of the sums (k, p) of an answer, for a weight of 1 each.

    Parameters
    ----------
    low, high : array-like that broadcasts to shape (k, p)
        The smallest and the largest value.
    disjoint : bool, default=True
        Whether no row is in two lines, so that all together weigh no more than all rows.
    """

    low: ArrayLike
    high: ArrayLike
    disjoint: bool = True

    def beyond(self, summary: Summary) -> str | None:
        """Return which mean of an answer is out of bounds, in words; None where none is.

        Examples
        --------
        >>> answer = Summary(np.array([[300.0]]), np.array([2.0]))
        >>> LineBounds(0.0, 120.0).beyond(answer)
        'a mean of 150 in line 1, where 0 to 120 are possible'
        """
        some = summary.weights > 0
        each = summary.sums[some] / summary.weights[some, None]
        low, high = (np.broadcast_to(b, summary.sums.shape)[some] for b in (self.low, self.high))
        with np.errstate(invalid="ignore"):
            slack = ROUNDING * np.maximum(_finite(low), _finite(high))
            out = (each < low - slack) | (each > high + slack)
        if not out.any():
            return None
        i, j = np.argwhere(out)[0]
        line = np.flatnonzero(some)[i] + 1
        return (
            f"a mean of {each[i, j]:g} in line {line}, where {low[i, j]:g} to {high[i, j]:g} "
            "are possible"
        )


def _finite(bound: Floats) -> Floats:
    """Return the sizes of bounds, 0 of those that are infinite."""
    size: Floats = np.where(np.isfinite(bound), np.abs(bound), 0.0)
    return size


@runtime_checkable
class Bounded(Step, Protocol):
    """Step that knows bounds of its answers; one of one's own need not."""

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of its answers about rows within a box.

        Parameters
        ----------
        state : State
            The state that is asked about.
        box : Box
            The values of the rows, as they are prepared.
        """


@runtime_checkable
class Enclosed(Protocol):
    """Transform of rows that knows the box of what it makes."""

    def enclosing(self, ranges: Mapping[str, tuple[float, float]]) -> Box:
        """Return the box of prepared rows, from ranges of the columns before."""


def raw_box(names: Sequence[str], ranges: Mapping[str, tuple[float, float]]) -> Box:
    """Return the box of rows that are taken as they are."""
    ends = np.array([ranges.get(name, EVERYTHING) for name in names]).reshape(-1, 2)
    return Box(ends[:, 0], ends[:, 1])


def turned(box: Box, mean: Sequence[float], components: Floats) -> Box:
    """Return the box of the rows of another one along components (q, d), about their mean (d,).

    Examples
    --------
    >>> along = turned(Box(np.zeros(2), np.ones(2)), [0.0, 0.0], np.array([[0.6, -0.8]]))
    >>> along.low, along.high
    (array([-0.8]), array([0.6]))
    """
    with np.errstate(invalid="ignore"):
        ends = [
            np.where(components == 0, 0.0, components * (side - np.asarray(mean)))
            for side in (box.low, box.high)
        ]
    return Box(np.minimum(*ends).sum(axis=1), np.maximum(*ends).sum(axis=1))
