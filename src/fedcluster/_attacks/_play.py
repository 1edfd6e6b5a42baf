"""What an attack is given: a coordinator of the site, and what some attacks assume besides."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedcluster._attacks._coordinator import Coordinator, Public
from fedcluster._attacks._site import Subject, values_of
from fedcluster.core import Data, Floats


@dataclass(eq=False)
class Play:
    """One attack on one site.

    Parameters
    ----------
    subject : Subject
        The site. An attack reads of it only what its description says that a coordinator may know:
        who is in which sum, or all rows but one.
    public : Public
        What is known without asking.
    """

    subject: Subject
    public: Public
    versions: list[Play] = field(default_factory=list, repr=False)

    @cached_property
    def coordinator(self) -> Coordinator:
        """Coordinator of the site."""
        return self.subject.coordinator(self.public)

    def version(self, rows: Data) -> Play:
        """Return the site with other rows, its groups kept; it is opened now."""
        _ = self.units  # of now: later versions change the site's file
        after = Play(self.subject.version(rows), self.public)
        _ = after.units
        self.versions.append(after)
        return after

    @property
    def refused(self) -> int:
        """Number of tasks that the site refused, in all versions."""
        return sum(play.coordinator.refused for play in (self, *self.versions))

    @property
    def asked(self) -> int:
        """Number of tasks, in all versions."""
        return sum(play.coordinator.asked for play in (self, *self.versions))

    # What a coordinator may know besides, in some attacks

    @cached_property
    def numbers(self) -> Floats:
        """Numbers of the rows, (n, d), filled in as the public preparation does."""
        values = values_of(self.subject.rows, self.public)[:, :-1]
        return np.where(np.isnan(values), self.public.middle, values)

    @cached_property
    def units(self) -> NDArray[np.int64]:
        """Sum that each row is in, (n,)."""
        _ = self.coordinator
        return self.subject.units()

    def lines(self, centers: Floats) -> NDArray[np.bool_]:
        """Return which rows stand behind each line of an answer about centres, (k, n)."""
        numbers = self.numbers.copy()
        for unit in np.unique(self.units) if self.subject.protection.groups else ():
            rows = self.units == unit
            numbers[rows] = numbers[rows].mean(axis=0)
        apart = ((numbers[:, None] - centers[None]) ** 2).sum(axis=2)
        is_line: NDArray[np.bool_] = apart.argmin(axis=1) == np.arange(len(centers))[:, None]
        return is_line & (self.units >= 0)


def solved(behind: Floats, sums: Floats) -> Floats:
    """Return the rows that sums over known sets of rows determine, (r, d).

    Rows that are in the same sums are one unknown; a row that is alone in its sums is known where
    a combination of the sums is that row (arXiv 2511.07073).

    Parameters
    ----------
    behind : ndarray of shape (l, n)
        1 where a row is in a sum.
    sums : ndarray of shape (l, d)
        The sums.

    Examples
    --------
    >>> solved(np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]), np.array([[9.0], [4.0]]))
    array([[5.]])
    """
    if not len(behind):
        return np.empty((0, sums.shape[1]))
    patterns, times = np.unique(behind, axis=1, return_counts=True)
    inverse = np.linalg.pinv(patterns * times, rcond=1e-9)
    known = np.abs(np.diag(inverse @ (patterns * times)) - 1.0) < 1e-6
    alone = known & (times == 1) & patterns.any(axis=0)
    rows: Floats = (inverse @ sums)[alone]
    return rows


def without(data: Data, row: int) -> Data:
    """Return rows without one."""
    return data.take(np.arange(len(data)) != row)


def changed(data: Data, rows: NDArray[np.int64], column: int, by: float) -> Data:
    """Return rows of which some have another value in one column."""
    X = data.X.copy()
    X[rows, column] += by
    return replace(data, X=X)
