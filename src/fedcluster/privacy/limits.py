"""Limits on what leaves a site: sizes of groups, dominance and diversity.

Size limits are filters that hold back lines of a summary over too few rows. The site owns them and
applies them to every summary, including those of seeding and of metrics. They protect a single
round; over many rounds, two nearly equal sums can still be subtracted.

Groups also satisfy two other rules of disclosure control, dominance and diversity:

A. Hundepool et al., Statistical disclosure control, 2012 (the (n,k)-rule and the p%-rule);
A. Machanavajjhala et al., l-diversity, ACM Trans. Knowledge Discovery from Data 1 (2007).

Groups are formed to satisfy the rules: one that does not is merged with the nearest group until it
does. If even three times p units violate dominance, the unit that adds the most stays out of all
groups. So no disclosed value is left blank because of a row's value. What leaves remains a function
of one fixed set of sums, and changes within groups that keep their sums change no bit; marking a
column as missing in a group, in contrast, would reveal that one of its rows dominates. What can be
inferred instead is the number of rows in a merged group and, by anyone who knows the number of rows
of the site, how many stay out.

With a dominance rule, no unit of a dissolved group joins another. Each row is then in only one sum
over all versions, and no linear combination of sums is dominated: the rows that hide the largest
one in each sum are in no other, so they cannot be subtracted. (If rows were first grouped with
larger ones and then with smaller ones, a difference of sums would be dominated by the removed
ones.)

Values of persons may change between versions. Each version is checked against the rules, and a
group that no longer satisfies them is dissolved for good, which may reveal the violation. The
difference between versions of one group involves at least p persons, and is not checked for
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
    """Filter that holds back lines with fewer than ``p`` rows (Garst & Reinders, section 3.2).

    Rows are counted, not their weights. A line that is held back is missing from the total, so the
    result is no longer exactly the pooled one; p = 1 holds nothing back.

    Parameters
    ----------
    p : int, default=2
        The smallest number of rows in a line that leaves the site. The paper's value is 2.

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
        """Return the summary with only the lines of at least ``p`` rows."""
        return summary.keep(summary.rows >= self.p)


@dataclass(frozen=True, slots=True)
class MinRows:
    """Filter that holds back everything if the site has fewer than ``n`` rows in total.

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
    """Limits on the sums of a site.

    If a site names a group column, they count persons instead of rows.

    Parameters
    ----------
    min_rows : int, default=2
        With fewer rows in total, the site sends nothing.
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
    """Rule that no few rows (persons) dominate a sum of absolute values.

    The defaults are those of UK ACRO: ``safe_nk_n``, ``safe_nk_k`` and ``safe_pratio_p``.

    Parameters
    ----------
    largest : int, default=2
        n in the (n,k)-rule.
    share : float, default=0.9
        k in the (n,k)-rule: the n largest are at most this share of the sum.
    rest : float, default=0.1
        p in the p%-rule: all except the two largest are together at least this share of the
        largest, so that the owner of the second largest cannot estimate the largest more precisely.

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
        """Return which columns of values (m, c), at least 0, few of them dominate, (c,)."""
        ordered = np.sort(values, axis=0)[::-1]
        total, first = ordered.sum(axis=0), ordered[: self.largest].sum(axis=0)
        rest = ordered[2:].sum(axis=0)
        dominated: NDArray[np.bool_] = (total > 0) & (
            (first > self.share * total) | (rest < self.rest * ordered[0])
        )
        return dominated

    def is_as_strict_as(self, other: Dominance) -> bool:
        """Return whether satisfying this rule implies satisfying another."""
        tighter = self.share <= other.share and self.rest >= other.rest
        return tighter and self.largest >= other.largest

    def __str__(self) -> str:
        return f"{self.largest} below {100 * self.share:g} %, rest {100 * self.rest:g} %"


PRESETS = ("standard", "strict")
"""Sets of rules by name."""
STRICT_P = 10
"""Smallest number of rows in a group under the strict preset."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Protection of a site: every step sees the means of groups of at least p rows.

    Parameters
    ----------
    p : int, default=5
        The smallest number of rows, or of persons if rows have owners, in a group.
    min_rows : int, default=20
        With fewer rows (persons) in total, a site sends nothing.
    scale : {"standard", "none"}, default="standard"
        Whether similarity of rows is measured in standard deviations of the site's own columns, or
        in unscaled columns.
    generation : int, default=1
        To be raised by one when a site's rows belong to other persons than before: they are then
        grouped as if there were no earlier groups.
    dominance : Dominance, optional
        The rule that few rows must not dominate the sum of a numeric column, or of weights; by
        default none. It does not apply to columns of 0 and 1, whose sums are counts of rows.
    sensitive : tuple of str, default=()
        Columns (possibly that of labels) whose values must not be inferable from groups with a
        single value.
    diversity : int, default=1
        l in l-diversity: each group has at least this many values of each sensitive column; these
        columns are then ignored in the similarity of rows.
    preset : {"standard", "strict"}, default="standard"
        Whether the rules are at least as strict as `Groups.strict`; then reports on the site round
        counts to 5.

    Raises
    ------
    ValueError
        If p is below 2, min_rows is below p, or the scale is unknown; if no group of p rows could
        satisfy the rules; or if they are less strict than their preset.

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
        """Return groups as statistical agencies require: of 10 rows, none of which dominates.

        Parameters
        ----------
        **stricter : anything
            Parameters with stricter or other values.

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
        """Raise an error for rules that are less strict than their preset."""
        if self.p < STRICT_P:
            least = f"groups of at least {STRICT_P} rows, not {self.p}"
            raise ValueError(f"preset {self.preset!r} has {least}")
        if self.dominance is None or not self.dominance.is_as_strict_as(Dominance()):
            usual = f"dominance {Dominance()}, or less, not {self.dominance}"
            raise ValueError(f"preset {self.preset!r} has {usual}")

    @property
    def rules(self) -> Mapping[str, str]:
        """The rules for groups other than their size, in words, as the file of groups has them."""
        columns = ", ".join(sorted(self.sensitive))
        return {
            "dominance": "none" if self.dominance is None else str(self.dominance),
            "diversity": "none" if self.diversity == 1 else f"{self.diversity} of {columns}",
        }

    @property
    def limit(self) -> Limit:
        """Return what a site reports about its groups."""
        stated: dict[str, Any] = {"p": self.p, "min_rows": self.min_rows}
        stated |= {} if self.dominance is None else {"dominance": str(self.dominance)}
        stated |= {} if self.diversity == 1 else {"diversity": self.diversity}
        stated |= {} if self.preset == "standard" else {"preset": self.preset}
        return Limit("Groups", tuple(stated.items()))


Ids = NDArray[np.uint64]
Places = NDArray[np.intp]

MOST_TIMES = 3
"""Largest size of a merged group, in multiples of p units."""


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """Content of units that rules refer to.

    Parameters
    ----------
    adds : ndarray of shape (u, c)
        The amount that each unit adds to each of c sums.
    there : ndarray of shape (u, c), bool
        Whether the unit has a value there.
    holds : tuple of ndarray of shape (m, 2), uint64
        For each sensitive column, pairs of the index of a unit and one of its values, sorted by
        unit.
    """

    adds: Floats
    there: NDArray[np.bool_]
    holds: tuple[Ids, ...]

    def of_persons(self, unit: Places, n_units: int) -> Contents:
        """Return the content of persons from that of their rows, with correctly rounded sums."""
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
        """Return the content of some units, given by increasing indices."""
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
        """Return the content of the units of all parts."""
        adds, there = (np.concatenate([getattr(p, name) for p in parts]) for name in ARRAYS)
        starts = np.cumsum([0, *(len(part.adds) for part in parts)]).tolist()
        shifted = [
            [pairs + np.array([start, 0], np.uint64) for pairs in part.holds]
            for start, part in zip(starts, parts, strict=False)
        ]
        return cls(adds, there, tuple(np.concatenate(each) for each in zip(*shifted, strict=True)))


ARRAYS = ("adds", "there")


def members_of(labels: NDArray[np.integer[Any]]) -> list[Places]:
    """Return the sorted indices of the units of each group.

    Examples
    --------
    >>> [units.tolist() for units in members_of(np.array([1, 0, 1, 4]))]
    [[1], [0, 2], [3]]
    """
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(labels) else []


class Rules:
    """The rules of a site, applied to the content of units.

    Parameters
    ----------
    groups : Groups
        The protection.
    contents : Contents
        What the units hold.
    least : int, optional
        The smallest number of units in a new group, by default p.

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
        """Return the unit that adds most to the first dominated sum; None if there is none."""
        rule, adds = self._groups.dominance, self._adds[units]
        if rule is None:
            return None
        disclosed = self._there[units].sum(axis=0) >= self._groups.p
        few = disclosed & rule.dominated(adds)
        return int(units[adds[:, few.argmax()].argmax()]) if few.any() else None

    def counts(self, units: Places) -> list[NDArray[np.intp]]:
        """Return, for each sensitive column, the number of units with each value."""
        return [
            np.unique(
                np.concatenate([held[starts[u] : starts[u + 1]] for u in units.tolist()]),
                return_counts=True,
            )[1]
            for starts, held in self._holds
        ]

    def alike(self, units: Places) -> bool:
        """Return whether a group of units has too few values in a sensitive column.

        It has fewer than l values, or a value that all except fewer than l - 1 units have (persons
        may have several values).
        """
        least = self._groups.diversity
        return least > 1 and any(
            len(each) < least or each.max() > len(units) - (least - 1)
            for each in self.counts(units)
        )

    def amounts(self, units: Places) -> Floats:
        """Return the two largest amounts in each sum, and the total, (3, c); 0 if held back."""
        adds, disclosed = self._adds[units], self._there[units].sum(axis=0) >= self._groups.p
        ordered = np.sort(adds, axis=0)[::-1]
        return np.where(disclosed, [ordered[0], ordered[1], adds.sum(axis=0)], 0.0)

    def agree(self, units: Places) -> NDArray[np.bool_]:
        """Return in which sensitive columns all these units have the same value, (s,)."""
        return np.array([len(each) > 0 and each.max() == len(units) for each in self.counts(units)])

    def broken(self, units: Places) -> bool:
        """Return whether a group of units violates the rules."""
        return self.dominating(units) is not None or self.alike(units)

    def mended(self, labels: NDArray[np.integer[Any]], points: Floats) -> NDArray[np.int32]:
        """Return groups that satisfy the rules, derived from others; -1 for units left out.

        Parameters
        ----------
        labels : ndarray of shape (u,)
            The original group of each unit, 0 to g - 1.
        points : ndarray of shape (u, e)
            The points of the units.
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
        """Merge a group with the nearest one, or leave units out, until it satisfies the rules."""
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
    """Groups in the process of being merged."""

    def __init__(self, members: list[Places], points: Floats) -> None:
        self.members, self._points = members, points
        self.centers = np.array([points[units].mean(axis=0) for units in members])
        self._gone = np.zeros(len(members), dtype=bool)

    def nearest(self, g: int) -> int | None:
        """Return the group whose centre is nearest to that of a group; None if it is alone."""
        apart = ((self.centers - self.centers[g]) ** 2).sum(axis=1)
        apart[self._gone] = apart[g] = np.inf
        near = int(apart.argmin())
        return near if np.isfinite(apart[near]) else None

    def put(self, g: int, units: Places) -> None:
        """Replace the units of a group."""
        self.members[g], self._gone[g] = units, not len(units)
        if len(units):
            self.centers[g] = self._points[units].mean(axis=0)
