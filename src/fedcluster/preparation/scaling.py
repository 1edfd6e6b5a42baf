"""Columns of numbers that are prepared side by side: the bits of one after the other, faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from fedcluster.core import Floats, Rows

__all__ = ["BLOCK", "Scaled", "Scaling"]

BLOCK = 1 << 14
"""Values that are prepared at a time: they stay in a cache between the operations."""


class Scaled(Protocol):
    """What is done to one column of numbers, as `Measure` says it."""

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
    """What is done to d columns of numbers, repeated for as many rows as make a block.

    NumPy is several times faster over a whole block than row by row or column by column.

    Parameters
    ----------
    shift, scale : ndarray of shape (b, d)
        The result is (x - shift) / scale.
    fill : ndarray of shape (b, d)
        What a missing value becomes; NaN where it stays one.
    bounds : (ndarray, ndarray), optional
        (b, d) each: a value outside is moved there first.

    Examples
    --------
    >>> from fedcluster.preparation import Measure
    >>> columns = [Measure("age", fill=40.0, shift=40.0, scale=10.0), Measure("bmi", (0.0, 60.0))]
    >>> rows = np.array([[50.0, 22.0], [np.nan, 99.0]])
    >>> found = np.empty((2, 2))
    >>> Scaling.of(columns).apply(rows, found)
    >>> found
    array([[ 1., 22.],
           [ 0., 60.]])
    """

    shift: Floats
    scale: Floats
    fill: Floats
    bounds: tuple[Floats, Floats] | None

    @classmethod
    def of(cls, columns: Sequence[Scaled]) -> Self:
        """That of some columns in this order."""
        size = max(1, BLOCK // len(columns))

        def each(values: Sequence[float]) -> Floats:
            return np.tile(np.array(values, dtype=np.float64), (size, 1))

        bounds = [(-np.inf, np.inf) if c.bounds is None else c.bounds for c in columns]
        bounded = any(c.bounds is not None for c in columns)
        return cls(
            each([c.shift for c in columns]),
            each([c.scale for c in columns]),
            each([np.nan if c.fill is None else c.fill for c in columns]),
            (each([b[0] for b in bounds]), each([b[1] for b in bounds])) if bounded else None,
        )

    def apply(self, X: Rows, found: Rows) -> None:
        """Write the prepared rows (n, d) of X into ``found`` of the same shape."""
        for start in range(0, len(X), len(self.shift)):
            block = slice(start, start + len(self.shift))
            found[block] = self._block(X[block].astype(np.float64, copy=False))

    def _block(self, x: Floats) -> Floats:
        n = len(x)
        if self.bounds is not None:
            x = np.clip(x, self.bounds[0][:n], self.bounds[1][:n])
        if np.isnan(x.max()):
            x = np.where(np.isnan(x), self.fill[:n], x)
        prepared: Floats = x - self.shift[:n]
        prepared /= self.scale[:n]
        return prepared
