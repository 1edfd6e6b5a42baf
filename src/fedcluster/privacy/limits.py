"""Limits on what leaves a site: sizes of groups, dominance and diversity.

Size limits are filters that hold back lines of a summary that sum too few rows. The site owns them
and applies them to every summary, those of seeding and of metrics included. They protect a single
round; over many rounds two nearly equal sums can still be subtracted.

Groups keep two other rules of disclosure control, dominance and diversity:

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Filter, Floats, Limit, Summary
from fedcluster.core.exact import exact_group_sums, exact_sum
from fedcluster.io.records import Positive


@dataclass(frozen=True, slots=True)
class MinClusterSize:
    """Filter that holds back lines of fewer than ``p`` rows (Garst & Reinders, section 3.2).

    Rows are counted, not their weights. A line that is held back is missing in the total, so the
    result is no longer exactly the pooled one; p = 1 holds nothing back.

    Parameters
    ----------
    p : int, default=2
        The smallest number of rows behind a line that leaves the site. The paper's value is 2.

    Examples
    --------
    >>> lone_and_pair = Summary(np.array([[5.0], [8.0]]), np.array([1.0, 2.0]))
    >>> MinClusterSize(2)(lone_and_pair, n_rows=3).sums.ravel()
    array([0., 8.])
    """

    p: int = 2

    def __post_init__(self) -> None:
        if self.p < 1:
            raise ValueError(f"min_cluster_size must be at least 1, not {self.p}")

    def __call__(self, summary: Summary, n_rows: int) -> Summary:
        """Return the summary with the lines of at least ``p`` rows only."""
        return summary.keep(summary.rows >= self.p)


@dataclass(frozen=True, slots=True)
class MinRows:
    """Filter that holds back everything where the site has fewer than ``n`` rows in all.

    Parameters
    ----------
    n : int, default=2
        The smallest number of rows with which a site takes part. With 2, the row of a site
        that has only one never leaves.
    """

    n: int = 2

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"the smallest number of rows must be at least 1, not {self.n}")

    def __call__(self, summary: Summary, n_rows: int) -> Summary:
        """Return the summary, without any line if the site has fewer than ``n`` rows."""
        return summary if n_rows >= self.n else summary.keep(summary.rows < 0)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the sums of a site, or of a relay.

    Where a site names a group column, they count persons instead of rows.

    Parameters
    ----------
    min_rows : int, default=2
        With fewer rows in all, the site sends nothing.
    min_cluster_size : int, default=2
        A sum over fewer rows is not sent.
    """

    min_rows: Positive = 2
    min_cluster_size: Positive = 2

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The limits as filters."""
        return MinRows(self.min_rows), MinClusterSize(self.min_cluster_size)


@dataclass(frozen=True, slots=True)
class Dominance:
    """Rule that a few rows (persons) do not dominate a sum, by absolute values.

    The defaults are those of UK ACRO: ``safe_nk_n``, ``safe_nk_k`` and ``safe_pratio_p``.

    Parameters
    ----------
    largest : int, default=2
        n of the (n,k)-rule.
    share : float, default=0.9
        k of the (n,k)-rule: the n largest are at most this share of the sum.
    rest : float, default=0.1
        p of the p%-rule: all but the two largest are together at least this share of the largest,
        so that who has the second largest cannot tell the largest better.

    Examples
    --------
    >>> Dominance().dominated(np.array([[90.0, 4.0], [4.0, 4.0], [1.0, 4.0]]))
    array([ True, False])
    """

    largest: int = 2
    share: float = 0.9
    rest: float = 0.1

    def __post_init__(self) -> None:
        if self.largest < 1 or not 0 < self.share < 1 or self.rest < 0:
            raise ValueError(
                "dominance has largest, at least 1, share, between 0 and 1, and rest, at least 0; "
                f"not {self.largest}, {self.share}, {self.rest}"
            )

    def dominated(self, values: Floats) -> NDArray[np.bool_]:
        """Return which columns of values (m, c), at least 0, a few of them dominate, (c,)."""
        ordered = np.sort(values, axis=0)[::-1]
        total, first = ordered.sum(axis=0), ordered[: self.largest].sum(axis=0)
        rest = ordered[2:].sum(axis=0)
        dominated: NDArray[np.bool_] = (total > 0) & (
            (first > self.share * total) | (rest < self.rest * ordered[0])
        )
        return dominated

    def is_as_strict_as(self, other: Dominance) -> bool:
        """Return whether what keeps this rule keeps another."""
        tighter = self.share <= other.share and self.rest >= other.rest
        return tighter and self.largest >= other.largest

    def __str__(self) -> str:
        return f"{self.largest} below {100 * self.share:g} %, rest {100 * self.rest:g} %"


PRESETS = ("standard", "strict")
"""Sets of rules by name."""
STRICT_P = 10
"""The fewest rows of a group by the strict ones."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Protection of a site: every step sees the means of groups of at least p rows.

    Parameters
    ----------
    p : int, default=5
        The smallest number of rows, or of persons where rows say whose they are, in a group.
    min_rows : int, default=20
        With fewer rows (persons) in all, a site sends nothing.
    scale : {"standard", "none"}, default="standard"
        Whether rows that are alike are sought in standard deviations of the site's own columns, or
        in the columns as they are.
    generation : int, default=1
        Raised by one when a site's rows are those of other persons than before: they are then
        grouped as if none ever were.
    dominance : Dominance, optional
        The rule that a few rows do not dominate the sum of a column of numbers, or of weights; by
        default none. Columns of 0 and 1 do not count: their sums are counts of rows.
    sensitive : tuple of str, default=()
        Columns (or that of labels) whose values nobody should learn from a group that agrees.
    diversity : int, default=1
        l of l-diversity: so many values each group has of each sensitive column, which then do
        not count in what is alike.
    preset : {"standard", "strict"}, default="standard"
        Whether the rules are those of `Groups.strict`, or stricter ones: reports on such sites
        round counts to 5.

    Raises
    ------
    ValueError
        If p is below 2, min_rows below p, or the scale another; if no group of p rows could keep
        the rules; or if they are less strict than their preset.

    Examples
    --------
    >>> from fedcluster import Client, Data
    >>> rows = Data(np.arange(40.0)[:, None])
    >>> client = Client("north", rows, protection=Groups(p=5))
    >>> len(client.source), client.data.sample_weight.min() >= 5
    (40, np.True_)
    """

    p: int = 5
    min_rows: int = 20
    scale: str = "standard"
    generation: int = 1
    dominance: Dominance | None = None
    sensitive: tuple[str, ...] = ()
    diversity: int = 1
    preset: str = "standard"

    @classmethod
    def strict(cls, **stricter: Any) -> Self:
        """Return groups as statistical agencies ask for them: of 10 rows, none of which dominates.

        Parameters
        ----------
        **stricter : anything
            Parameters that are to be stricter, or others.

        Examples
        --------
        >>> str(Groups.strict().limit)
        "Groups(p=10, min_rows=20, dominance='2 below 90 %, rest 10 %', preset='strict')"
        >>> Groups.strict(p=5)
        Traceback (most recent call last):
            ...
        ValueError: preset 'strict' has groups of at least 10 rows, not 5
        """
        return cls(**{"p": STRICT_P, "dominance": Dominance(), **stricter, "preset": "strict"})

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, not {self.preset!r}")
        if self.preset == "strict":
            self._check_strict()
        if self.p < 2:
            raise ValueError(f"groups must have at least 2 rows, not {self.p}")
        if self.min_rows < self.p:
            raise ValueError(f"min_rows must be at least p={self.p}, not {self.min_rows}")
        if self.scale not in ("standard", "none"):
            raise ValueError(f"scale must be 'standard' or 'none', not {self.scale!r}")
        if self.dominance is not None and self.dominance.dominated(np.ones((self.p, 1))).any():
            raise ValueError(f"dominance {self.dominance}: {self.p} equal rows do not keep it")
        if not 1 <= self.diversity <= self.p:
            raise ValueError(f"diversity must be 1 to p={self.p}, not {self.diversity}")
        if self.diversity > 1 and not self.sensitive:
            raise ValueError("diversity is that of sensitive columns: name some, or leave it out")

    def _check_strict(self) -> None:
        """Refuse rules that are less strict than their preset."""
        if self.p < STRICT_P:
            least = f"groups of at least {STRICT_P} rows, not {self.p}"
            raise ValueError(f"preset {self.preset!r} has {least}")
        if self.dominance is None or not self.dominance.is_as_strict_as(Dominance()):
            usual = f"dominance {Dominance()}, or less, not {self.dominance}"
            raise ValueError(f"preset {self.preset!r} has {usual}")

    @property
    def rules(self) -> Mapping[str, str]:
        """What groups keep besides their size, in words, as the file of the groups holds it."""
        columns = ", ".join(sorted(self.sensitive))
        return {
            "dominance": "none" if self.dominance is None else str(self.dominance),
            "diversity": "none" if self.diversity == 1 else f"{self.diversity} of {columns}",
        }

    @property
    def limit(self) -> Limit:
        """Return what a site states of its groups."""
        stated: dict[str, Any] = {"p": self.p, "min_rows": self.min_rows}
        stated |= {} if self.dominance is None else {"dominance": str(self.dominance)}
        stated |= {} if self.diversity == 1 else {"diversity": self.diversity}
        stated |= {} if self.preset == "standard" else {"preset": self.preset}
        return Limit("Groups", tuple(stated.items()))


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
        """Return for each sensitive column the number of units with each value."""
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
        """Join a group with the nearest one, or leave units out, until it satisfies the rules."""
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
