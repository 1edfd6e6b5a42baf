"""Samples of columns: what some thousand rows of a site show of what its columns mean.

They are looked at where the rows are, by whoever holds them; nothing of a sample leaves a site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats, Rows
from fedcluster.io._columns import columns_of

MOST_ROWS = 20_000
"""Rows that are looked at, evenly spread; of fewer all are."""


BLOCK = 8192
"""Values that are compared at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class NumberSample:
    """Sample of a column of numbers at one site.

    Parameters
    ----------
    values : ndarray of shape (u,)
        The different values of the sample, rising.
    counts : ndarray of shape (u,)
        How many rows of the sample have each.
    low, high : float
        The smallest and the largest value of all rows.
    is_counter : bool
        Whether values go up by one from row to row.
    is_padded : bool
        Whether numbers are written with zeros in front, as in "01015".
    whole : bool
        Whether all values are whole numbers.
    n_rows : int
        How many rows the column has in all.

    Examples
    --------
    >>> sample = NumberSample.from_values(np.array([3.0, 1.0, 1.0, np.nan]))
    >>> sample.values, sample.counts, sample.n
    (array([1., 3.]), array([2, 1]), 3)
    """

    values: Floats
    counts: NDArray[np.intp]
    low: float
    high: float
    is_counter: bool = False
    is_padded: bool = False
    whole: bool = False
    n_rows: int = 0

    @classmethod
    def from_values(
        cls,
        rows: NDArray[np.floating],
        sample: NDArray[np.floating] | None = None,
        extremes: tuple[float, float] | None = None,
        *,
        is_padded: bool = False,
    ) -> NumberSample:
        """Return the sample of a column (n,), of which some rows were taken already.

        The smallest and the largest value of all rows may be known, too.
        """
        if sample is None:
            sample = rows
        there = sample[~np.isnan(sample)].astype(np.float64)
        values, counts = np.unique(there, return_counts=True)
        if not len(values):
            return cls(values, counts, np.nan, np.nan)
        if len(sample) == len(rows):
            extremes = values[0], values[-1]
        low, high = extremes or (np.fmin.reduce(rows), np.fmax.reduce(rows))
        head = rows[: len(sample)]
        is_counter = len(head) > 2 and bool((np.diff(head) == 1).all())
        whole = bool((values == np.floor(values)).all())
        return cls(values, counts, float(low), float(high), is_counter, is_padded, whole, len(rows))

    @property
    def n(self) -> int:
        """Return how many values there are in the sample."""
        return int(self.counts.sum())

    @property
    def is_distinct(self) -> bool:
        """Return whether no two rows of the sample have one value."""
        return len(self.values) == self.n

    def quantile(self, share: float) -> float:
        """Return the value below which a share of the sample lies."""
        place = np.searchsorted(np.cumsum(self.counts), share * self.n)
        return float(self.values[min(int(place), len(self.values) - 1)])

    def without(self, value: float) -> NumberSample:
        """Return the sample without the rows of one value."""
        kept = self.values != value
        values = self.values[kept]
        low, high = (values[0], values[-1]) if len(values) else (np.nan, np.nan)
        return replace(
            self, values=values, counts=self.counts[kept], low=float(low), high=float(high)
        )


@dataclass(frozen=True, slots=True, eq=False)
class SiteSample:
    """Samples of the columns of one site.

    Parameters
    ----------
    columns : mapping of str to Column
        What the columns are.
    numbers : mapping of str to NumberSample
        Of each column of numbers that has a value.
    """

    columns: Mapping[str, Column]
    numbers: Mapping[str, NumberSample]

    @classmethod
    def from_data(cls, data: Data, padded: Sequence[str] = ()) -> SiteSample:
        """Return the samples of rows; ``padded`` names the columns with zeros in front."""
        step = -(-len(data) // MOST_ROWS) if len(data) else 1
        sample = data.X if step == 1 else np.asfortranarray(data.X[::step])
        low, high = extremes(data.X)
        columns = {column.name: column for column in columns_of(data)}
        numbers = {
            name: NumberSample.from_values(
                data.X[:, j], sample[:, j], (low[j], high[j]), is_padded=name in padded
            )
            for j, (name, column) in enumerate(columns.items())
            if column.kind == "number"
        }
        return cls(columns, {name: each for name, each in numbers.items() if len(each.values)})


def extremes(X: Rows) -> tuple[Rows, Rows]:
    """Return the smallest and the largest value of each column, (d,), NaN where it has none."""
    n, d = X.shape
    many = max(1, BLOCK // max(d, 1))
    whole = n // many * many if X.flags.c_contiguous else 0
    low, high = np.full((2, many * d), np.nan, X.dtype)
    for lines in X[:whole].reshape(-1, many * d):
        np.fmin(low, lines, out=low)
        np.fmax(high, lines, out=high)
    low, high = low.reshape(many, d), high.reshape(many, d)
    return (
        np.fmin.reduce([*low, np.fmin.reduce(X[whole:], axis=0, initial=np.nan)], axis=0),
        np.fmax.reduce([*high, np.fmax.reduce(X[whole:], axis=0, initial=np.nan)], axis=0),
    )
