"""Persons behind rows: what limits count where one person has many rows.

A line of a summary knows how many rows stand behind it, and not whose they are. Counts of
distinct persons do not add up over chunks or sites' parts, but a bound holds for any rows: as few
persons stand behind r rows as if they were those who have the most.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats

MANY = 32
"""Parts that are counted apart before their counts are added."""
ROUNDING = 1e-6
"""What sums of degrees may be above a whole number without being it."""


@dataclass(frozen=True, slots=True, eq=False)
class Persons:
    """The persons of one site by how many rows they have.

    Parameters
    ----------
    most : ndarray of shape (p + 1,), float64
        The most rows that 0, 1, ..., p persons have together.

    Examples
    --------
    >>> counter = GroupCounter()
    >>> counter.add(np.array([7, 7, 7, 7, 8]))
    >>> counter.add(np.array([9, 9]))
    >>> persons = counter.persons()
    >>> len(persons)
    3
    >>> persons.min_groups(np.array([0.0, 4.0, 5.0, 7.0]))
    array([0., 1., 2., 3.])
    """

    most: Floats

    def __len__(self) -> int:
        return len(self.most) - 1

    def min_groups(self, rows: Floats) -> Floats:
        """Return the fewest persons who can have so many rows, (k,); never more than the rows.

        Rows of a fuzzy clustering, sums of degrees, need not be whole.
        """
        fewest = np.interp(rows, self.most, np.arange(len(self.most)))
        return np.minimum(np.ceil(fewest - ROUNDING), rows)

    def rows_of(self, persons: int) -> float:
        """Return the fewest rows that so many persons must have; infinite if they are too few."""
        return float(self.most[persons - 1]) + 1 if persons <= len(self) else np.inf


class GroupCounter:
    """Counts whose the rows are, part after part."""

    def __init__(self) -> None:
        self._counted = [(np.zeros(0, np.int64), np.zeros(0))]

    def add(self, groups: NDArray[np.int64]) -> None:
        """Count the rows of a part, (n,) numbers of persons."""
        names, times = np.unique(groups, return_counts=True)
        self._counted.append((names, times.astype(np.float64)))
        if len(self._counted) > MANY:
            self._counted = [self._together()]

    def persons(self) -> Persons:
        """Return the persons of all parts."""
        _, rows = self._together()
        return Persons(np.concatenate([[0.0], np.cumsum(np.sort(rows)[::-1])]))

    def _together(self) -> tuple[NDArray[np.int64], Floats]:
        """Return each person once, with the number of its rows."""
        names, times = (np.concatenate(each) for each in zip(*self._counted, strict=True))
        once, place = np.unique(names, return_inverse=True)
        return once, np.bincount(place, times, len(once)).astype(np.float64)
