"""Rules of disclosure control that groups keep besides their size: dominance and diversity.

A. Hundepool et al., Statistical disclosure control, 2012 (the (n,k)-rule and the p%-rule);
A. Machanavajjhala et al., l-diversity, ACM Trans. Knowledge Discovery from Data 1 (2007).

Groups are made to keep them: one that does not is joined with the nearest one, until it does. Where
three times p units do not keep dominance either, the unit that adds most stays out of all groups.
So nothing that is disclosed is left blank because of a value. What leaves stays a function of one
fixed set of sums, and changes within groups that keep their sums change no bit: to tell a column as
missing in a group would say, for anybody to see, that a row of it dominates. What may be seen
instead is how many rows are behind a group, where it was joined, and, by who knows how many rows
the site has, how many stay out.

Where dominance counts, no unit whose group has left joins another. Each row is then in one sum, of
all versions, and no linear combination of sums is dominated: what hides the largest row of each sum
is in no other, so it cannot be taken away. (Of rows that had stood with larger ones, and then stand
with smaller ones, a difference of sums would be dominated by those that are gone.)

Values of persons may change from version to version. Each version is held against the rules, and
a group that no longer keeps them leaves for good; so to leave may tell that it does not keep them.
The difference between versions of one group is of at least p persons, and is not held against
dominance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.core.exact import exact_group_sums, exact_sum
from fedcluster.privacy.limits import Groups

Ids = NDArray[np.uint64]
Places = NDArray[np.intp]

MOST_TIMES = 3
"""A group that others join has at most so many times p units."""


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """What units hold that rules are about.

    Parameters
    ----------
    adds : ndarray of shape (u, c)
        What each adds to each of c sums.
    there : ndarray of shape (u, c), bool
        Whether that is anything.
    holds : tuple of ndarray of shape (m, 2), uint64
        Of each sensitive column pairs: the place of a unit, and a value that it has; by unit.
    """

    adds: Floats
    there: NDArray[np.bool_]
    holds: tuple[Ids, ...]

    def of_persons(self, unit: Places, n_units: int) -> Contents:
        """Return what persons hold, of what all their rows do; sums are correctly rounded."""
        adds, there = np.zeros((2, n_units, self.adds.shape[1]))
        for j in range(self.adds.shape[1]):
            adds[:, j] = exact_sum(exact_group_sums(self.adds[:, j], unit, n_units))[0]
            there[:, j] = np.bincount(unit, self.there[:, j], n_units)
        holds = []
        for pairs in self.holds:
            whose = unit[pairs[:, 0].astype(np.intp)].astype(np.uint64)
            holds.append(np.unique(np.column_stack([whose, pairs[:, 1]]), axis=0))
        return Contents(adds, there > 0, tuple(holds))

    def take(self, units: Places) -> Contents:
        """Return what some units hold, whose places rise."""
        holds = []
        for pairs in self.holds:
            starts = np.searchsorted(pairs[:, 0].astype(np.intp), [units, units + 1])
            n = starts[1] - starts[0]
            first = np.repeat(starts[0] - (np.cumsum(n) - n), n)
            number = np.repeat(np.arange(len(units), dtype=np.uint64), n)
            holds.append(np.column_stack([number, pairs[first + np.arange(n.sum()), 1]]))
        return Contents(self.adds[units], self.there[units], tuple(holds))

    @classmethod
    def together(cls, parts: Sequence[Contents]) -> Contents:
        """Return what the units of all parts hold."""
        adds, there = (np.concatenate([getattr(p, name) for p in parts]) for name in ARRAYS)
        starts = np.cumsum([0, *(len(part.adds) for part in parts)]).tolist()
        shifted = [
            [pairs + np.array([start, 0], np.uint64) for pairs in part.holds]
            for start, part in zip(starts, parts, strict=False)
        ]
        return cls(adds, there, tuple(np.concatenate(each) for each in zip(*shifted, strict=True)))


ARRAYS = ("adds", "there")


def members_of(labels: NDArray[np.integer[Any]]) -> list[Places]:
    """Return the places of the units of each group, rising.

    Examples
    --------
    >>> [units.tolist() for units in members_of(np.array([1, 0, 1, 4]))]
    [[1], [0, 2], [3]]
    """
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(labels) else []


class Rules:
    """The rules of a site, about what some units hold.

    Parameters
    ----------
    groups : Groups
        The protection.
    contents : Contents
        What the units hold.
    least : int, optional
        The fewest units of a group that is made, by default p.

    Examples
    --------
    >>> from fedcluster.privacy import Dominance
    >>> adds = np.array([[90.0], [4.0], [3.0], [2.0]])
    >>> rules = Rules(Groups(p=3, dominance=Dominance()), Contents(adds, adds > 0, ()))
    >>> rules.dominating(np.arange(4)), rules.dominating(np.arange(1, 4))
    (0, None)
    """

    def __init__(self, groups: Groups, contents: Contents, least: int = 0) -> None:
        self._groups, self._least = groups, least or groups.p
        self._there, self._adds = contents.there, np.abs(contents.adds)
        places = np.arange(len(contents.adds) + 1, dtype=np.uint64)
        self._holds = [(np.searchsorted(each[:, 0], places), each[:, 1]) for each in contents.holds]

    def dominating(self, units: Places) -> int | None:
        """Return the unit that adds most to the first sum that few dominate; None without one."""
        rule, adds = self._groups.dominance, self._adds[units]
        if rule is None:
            return None
        disclosed = self._there[units].sum(axis=0) >= self._groups.p
        few = disclosed & rule.dominated(adds)
        return int(units[adds[:, few.argmax()].argmax()]) if few.any() else None

    def counts(self, units: Places) -> list[NDArray[np.intp]]:
        """Return of each sensitive column how many of these units have each value."""
        return [
            np.unique(
                np.concatenate([held[starts[u] : starts[u + 1]] for u in units.tolist()]),
                return_counts=True,
            )[1]
            for starts, held in self._holds
        ]

    def alike(self, units: Places) -> bool:
        """Return whether a group of units has too few values of a sensitive column.

        That is fewer than l, or one that all but fewer than l - 1 units have: a person may have
        several.
        """
        least = self._groups.diversity
        return least > 1 and any(
            len(each) < least or each.max() > len(units) - (least - 1)
            for each in self.counts(units)
        )

    def amounts(self, units: Places) -> Floats:
        """Return the two largest amounts of each sum and that of all, (3, c); 0 if held back."""
        adds, disclosed = self._adds[units], self._there[units].sum(axis=0) >= self._groups.p
        ordered = np.sort(adds, axis=0)[::-1]
        return np.where(disclosed, [ordered[0], ordered[1], adds.sum(axis=0)], 0.0)

    def agree(self, units: Places) -> NDArray[np.bool_]:
        """Return of which sensitive columns all these units have one value, (s,)."""
        return np.array([len(each) > 0 and each.max() == len(units) for each in self.counts(units)])

    def broken(self, units: Places) -> bool:
        """Return whether a group of units does not keep the rules."""
        return self.dominating(units) is not None or self.alike(units)

    def mended(self, labels: NDArray[np.integer[Any]], points: Floats) -> NDArray[np.int32]:
        """Return groups that keep the rules, of others; -1 of units that stay out.

        Parameters
        ----------
        labels : ndarray of shape (u,)
            The group of each unit, as they were made: 0 to g - 1.
        points : ndarray of shape (u, e)
            Where the units lie.
        """
        joining = _Joining(members_of(labels), points)
        broken = [g for g, units in enumerate(joining.members) if self.broken(units)]
        for g in sorted(broken, key=lambda g: tuple(joining.centers[g])):
            self._mend(joining, g)
        mended = np.full(len(labels), -1, np.int32)
        for number, units in enumerate(filter(len, joining.members)):
            mended[units] = number
        return mended

    def _mend(self, joining: _Joining, g: int) -> None:
        """Join a group with its nearest, or leave units out, until it keeps the rules."""
        while len(units := joining.members[g]):
            largest, near, enough = (
                self.dominating(units),
                joining.nearest(g),
                len(units) >= self._least,
            )
            if enough and largest is None and not self.alike(units):
                return
            after = len(units) + (0 if near is None else len(joining.members[near]))
            is_last = near is None or after > MOST_TIMES * self._least
            if enough and largest is not None and is_last:
                joining.put(g, units[units != largest])
            elif near is None:
                joining.put(g, units[:0])
            else:
                joining.put(g, np.sort(np.concatenate([units, joining.members[near]])))
                joining.put(near, units[:0])


class _Joining:
    """Groups that are joined."""

    def __init__(self, members: list[Places], points: Floats) -> None:
        self.members, self._points = members, points
        self.centers = np.array([points[units].mean(axis=0) for units in members])
        self._gone = np.zeros(len(members), dtype=bool)

    def nearest(self, g: int) -> int | None:
        """Return the group whose centre is nearest to that of a group; None if it is the last."""
        apart = ((self.centers - self.centers[g]) ** 2).sum(axis=1)
        apart[self._gone] = apart[g] = np.inf
        near = int(apart.argmin())
        return near if np.isfinite(apart[near]) else None

    def put(self, g: int, units: Places) -> None:
        """Give a group other units."""
        self.members[g], self._gone[g] = units, not len(units)
        if len(units):
            self.centers[g] = self._points[units].mean(axis=0)
