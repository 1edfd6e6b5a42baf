"""All sums that a site told, over all versions of its rows, and what follows from them.

Each sum is a linear equation. Its unknowns are values of units: a value that changes is another
unknown. A value follows from the sums if its unit vector lies in their row space.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import scipy
from numpy.typing import NDArray

Ids = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """The sums that were told, each once.

    Parameters
    ----------
    values : ndarray of shape (t,), uint64
        Digests of the values that were added up, sum after sum.
    sums : ndarray of shape (t,), int32
        The number of each value's sum; -1 for values in sums that were held back.
    known : ndarray of shape (s,), uint64
        Sorted digests of all sums that were noted, told or held back.

    Examples
    --------
    >>> whole, rest = np.arange(6, dtype=np.uint64), np.arange(1, 6, dtype=np.uint64)
    >>> told = Told().adding(whole, np.zeros(6, np.int32), np.uint64([1]))
    >>> told.n_following, told.adding(rest, np.zeros(5, np.int32), np.uint64([2])).n_following
    (0, 1)
    """

    values: Ids = field(default_factory=lambda: np.empty(0, np.uint64))
    sums: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    known: Ids = field(default_factory=lambda: np.empty(0, np.uint64))

    def adding(self, values: Ids, sums: NDArray[np.integer], noted: Ids) -> Told:
        """Return these and further sums of values (t,), numbered by ``sums``, (t,), or held back.

        Nothing is added if all sums were noted before.
        """
        known = np.union1d(self.known, noted)
        if len(known) == len(self.known):
            return self
        first = int(self.sums.max(initial=-1)) + 1
        return replace(
            self,
            values=np.concatenate([self.values, values]),
            sums=np.concatenate([self.sums, np.where(sums < 0, -1, sums + first).astype(np.int32)]),
            known=known,
        )

    @property
    def n_following(self) -> int:
        """Return how many single values follow from all sums together.

        A sum with two values that are in no other takes no part in a combination that is a single
        value, and is left out, until all are or those that are left must be solved.
        """
        _, value = np.unique(self.values[self.sums >= 0], return_inverse=True)
        of_sum = self.sums[self.sums >= 0]
        while len(value):
            is_alone = np.bincount(value)[value] == 1
            stays = np.bincount(of_sum, is_alone)[of_sum] < 2
            if stays.all():
                break
            value, of_sum = value[stays], of_sum[stays]
        return _n_solved(value, of_sum)


def _n_solved(value: NDArray[np.intp], of_sum: NDArray[np.int32]) -> int:
    """Return how many values can be solved for, from the pairs of a value and its sum, (t,)."""
    if not len(value):
        return 0
    (_, column), (_, line) = (np.unique(each, return_inverse=True) for each in (value, of_sum))
    n_lines = int(line.max()) + 1
    pairs = scipy.sparse.coo_array((np.ones(len(line)), (line, n_lines + column)))
    side = max(pairs.shape)
    square = scipy.sparse.coo_array((pairs.data, pairs.coords), shape=(side, side))
    _, part = scipy.sparse.csgraph.connected_components(square, directed=False)
    order = np.argsort(part[line], kind="stable")
    ends = np.flatnonzero(np.diff(part[line][order])) + 1
    return sum(_n_solved_of(column[some], line[some]) for some in np.split(order, ends))


def _n_solved_of(column: NDArray[np.intp], line: NDArray[np.intp], *, exact: float = 1e-9) -> int:
    """Return how many values can be solved for, of sums that are connected.

    ``exact``: largest deviation of a squared length from 0 or 1 that rounding causes.
    """
    (_, column), (_, line) = (np.unique(each, return_inverse=True) for each in (column, line))
    sums = np.zeros((int(line.max()) + 1, int(column.max()) + 1))
    sums[line, column] = 1.0
    _, size, basis = np.linalg.svd(sums, full_matrices=False)
    inside = (basis[size > exact * size[0]] ** 2).sum(axis=0)
    return int(np.count_nonzero(np.abs(inside - 1.0) < exact))
