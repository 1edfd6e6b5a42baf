"""Columns of numbers that are prepared in one reading: the bits of one after the other, faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from fedcluster.core import Floats, Rows


class Scaled(Protocol):
    """What is done to one column of numbers, as `NumericColumn` says it."""

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Between which values a value is moved."""
        ...

    @property
    def fill(self) -> float | None:
        """What a missing value becomes."""
        ...

    @property
    def shift(self) -> float:
        """What is subtracted."""
        ...

    @property
    def scale(self) -> float:
        """What is divided by."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """What is done to d columns of numbers.

    Parameters
    ----------
    shift, scale : ndarray of shape (d,)
        The result is (x - shift) / scale.
    fill : ndarray of shape (d,)
        What a missing value becomes; NaN where it stays one.
    bounds : ndarray of shape (2, d)
        A value outside is moved there first.

    Examples
    --------
    >>> from fedcluster.preprocessing import NumericColumn
    >>> age = NumericColumn("age", fill=40.0, shift=40.0, scale=10.0)
    >>> columns = [age, NumericColumn("bmi", (0.0, 60.0))]
    >>> rows = np.array([[50.0, 22.0], [np.nan, 99.0]])
    >>> found = np.empty((2, 2))
    >>> Scaling.of(columns).apply(rows, found)
    False
    >>> found
    array([[ 1., 22.],
           [ 0., 60.]])
    """

    shift: Floats
    scale: Floats
    fill: Floats
    bounds: Floats

    @classmethod
    def of(cls, columns: Sequence[Scaled]) -> Self:
        """That of some columns in this order."""
        everything = (-np.inf, np.inf)
        return cls(
            np.array([c.shift for c in columns]),
            np.array([c.scale for c in columns]),
            np.array([np.nan if c.fill is None else c.fill for c in columns]),
            np.array([everything if c.bounds is None else c.bounds for c in columns]).T.copy(),
        )

    def apply(self, X: Rows, found: Rows) -> bool:
        """Write the prepared rows (n, d) of X into ``found``; whether a value is still missing."""
        from fedcluster.kernels._row_loops import scale_rows  # to load a model takes no compiler

        return scale_rows(X, found, self.shift, self.scale, self.fill, self.bounds)
