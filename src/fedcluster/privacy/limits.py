"""Limits on what leaves a site: sizes of groups, single values, dominance and diversity.

Size limits are filters that hold back lines of a summary over too few rows. The site owns them and
applies them to every summary, including those of seeding and of metrics. They protect a single
round; over many rounds, two nearly equal sums can still be subtracted.

Groups also satisfy rules of disclosure control:

A. Hundepool et al., Statistical disclosure control, 2012 (the (n,k)-rule and the p%-rule);
A. Machanavajjhala et al., l-diversity, ACM Trans. Knowledge Discovery from Data 1 (2007).

No value is alone. A sum of values that many rows share and of one that they do not share tells that
one: of costs 0, 0, 0, 0 and 812.50, the sum is 812.50, and of 100, 100, 100, 100 and 912.50 it is
too, less 400. So values that p units (rows, or persons) share are taken for known, and in each sum
the largest distance of another value from them has to be hidden by the distances of the rest, as in
the p%-rule:

    a_i = w_i min(|x_i - nearest shared value|, |x_i - median of the group|)
    sum of a_i over the units with another value than the largest >= 10 % of the largest a_i

where the largest is among the values that are not shared. If shared values are neighbours on the
column's grid (ages, small counts), a group's sum can be made up of them in many ways: a value
between the smallest and the largest of them is then compared with the median alone, and shared
values hide it by their distances from the median, too.

Dominance and diversity are further rules, if the owner asks for them.

Groups are formed to satisfy the rules: one that does not is merged with the nearest group until it
does. If even three times p units violate a rule on values, the unit that adds the most stays out of
all groups. So no disclosed value is left blank because of a row's value. What leaves remains a
function of one fixed set of sums, and changes within groups that keep their sums change no bit;
marking a column as missing in a group, in contrast, would reveal that one of its rows dominates.
What can be inferred instead is the number of rows in a merged group and, by anyone who knows the
number of rows of the site, how many stay out.

No unit of a dissolved group joins another. Each row is then in only one sum over all versions, and
no linear combination of sums is dominated: the rows that hide the largest one in each sum are in no
other, so they cannot be subtracted. (If rows were first grouped with larger ones and then with
smaller ones, a difference of sums would be dominated by the removed ones.)

Values of persons may change between versions. Each version is checked against the rules, and a
group that no longer satisfies them is dissolved for good, which may reveal the violation. The
difference between versions of one group involves at least p persons, and is not checked for single
or dominating values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.core import Floats, Limit, SiteInfo, Summary
from fedcluster.core.exact import exact_group_sums, exact_sum


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
    slack = 1e-9
    """Share by which a sum may miss a rule: shares that are equal to it differ by rounding."""

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
            (first > self.share * total * (1 + self.slack))
            | (rest < self.rest * ordered[0] * (1 - self.slack))
        )
        return dominated

    def is_as_strict_as(self, other: Dominance) -> bool:
        """Return whether satisfying this rule implies satisfying another."""
        tighter = self.share <= other.share and self.rest >= other.rest
        return tighter and self.largest >= other.largest

    def __str__(self) -> str:
        return f"{self.largest} below {100 * self.share:g} %, rest {100 * self.rest:g} %"


SINGLE = "single values"
"""What does not dominate a sum if the owner names no rule of dominance."""
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
        default only that no value is alone among values that p rows share. Neither applies to
        columns of 0 and 1, whose sums are counts of rows.
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
            "dominance": SINGLE if self.dominance is None else str(self.dominance),
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


STEP = 5
"""Base to which published counts are rounded, as in OpenSAFELY."""
SMALLEST = STRICT_P
"""Smallest published count that is not 0: that of a group where counts are rounded."""


def is_rounded(limits: Iterable[Limit]) -> bool:
    """Return whether a site with these limits requires rounded counts.

    Examples
    --------
    >>> is_rounded([Groups(10).limit]), is_rounded([Groups.strict().limit])
    (False, True)
    """
    return any(dict(limit.parameters).get("preset") == "strict" for limit in limits)


def must_round(sites: Sequence[SiteInfo]) -> bool:
    """Return whether one of the sites requires counts to be rounded."""
    return any(is_rounded(site.limits) for site in sites)


def rounded(counts: Any) -> Any:
    """Return counts rounded to multiples of 5: those below 10 to 0 or 10.

    Examples
    --------
    >>> rounded(np.array([0.0, 1.2, 5.0, 13.0, 998.0])), rounded(12)
    (array([   0.,    0.,   10.,   15., 1000.]), 10)
    """
    numbers = np.asarray(counts, dtype=np.float64)
    result = np.where(numbers < STEP, 0.0, np.maximum(STEP * np.rint(numbers / STEP), SMALLEST))
    result = np.where(np.isfinite(numbers), result, numbers)
    return int(result) if isinstance(counts, int) else float(result) if result.ndim == 0 else result


@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """Content of units that rules refer to.

    Parameters
    ----------
    adds : ndarray of shape (u, c)
        The amount that each unit adds to each of c sums; the last is the sum of weights.
    weights : ndarray of shape (u, c)
        The weight of the unit's values in each sum, 0 if it has none; 1 in the last one.
    holds : tuple of ndarray of shape (m, 2), uint64
        For each sensitive column, pairs of the index of a unit and one of its values, sorted by
        unit.
    apart : ndarray of shape (u, c)
        The weighted distance of the unit's value from the nearest one that many units share;
        infinite if it is not to be compared with these.
    shared : ndarray of shape (u, c), bool
        Whether many units share the unit's value.
    """

    adds: Floats
    weights: Floats
    holds: tuple[Ids, ...]
    apart: Floats
    shared: NDArray[np.bool_]

    @classmethod
    def raw(cls, adds: Floats, weights: Floats, holds: Sequence[Ids] = ()) -> Self:
        """Return the content of units whose values are not compared with those of others."""
        return cls(
            adds, weights, tuple(holds), np.full(adds.shape, np.inf), np.zeros(adds.shape, np.bool_)
        )

    def compared(self, p: int, steps: Sequence[float]) -> Contents:
        """Return the content, with values that p of the units share taken for known.

        ``steps`` are the numbers of which all values of each sum are multiples; 0 if there is none.
        """
        values = _values(self.adds, self.weights)
        apart, shared = np.full(values.shape, np.inf), np.zeros(values.shape, np.bool_)
        for j, column in enumerate(values.T):
            there = np.flatnonzero(self.weights[:, j] > 0)
            each, place, n = np.unique(column[there], return_inverse=True, return_counts=True)
            shared[there, j], known = n[place] >= p, each[n >= p]
            if len(known):
                ends = np.concatenate([[-np.inf], known, [np.inf]])
                above = np.searchsorted(ends, column[there])
                near = np.minimum(column[there] - ends[above - 1], ends[above] - column[there])
                if (np.diff(known) < 1.5 * steps[j]).any():
                    near[(column[there] >= known[0]) & (column[there] <= known[-1])] = np.inf
                apart[there, j] = self.weights[there, j] * near
        return replace(self, apart=apart, shared=shared)

    def of_persons(self, unit: Places, n_units: int) -> Contents:
        """Return the content of persons from that of their rows, with correctly rounded sums."""
        adds, weights = np.zeros((2, n_units, self.adds.shape[1]))
        for j in range(self.adds.shape[1]):
            adds[:, j] = exact_sum(exact_group_sums(self.adds[:, j], unit, n_units))[0]
            weights[:, j] = exact_sum(exact_group_sums(self.weights[:, j], unit, n_units))[0]
        weights[:, -1] = 1.0
        holds = []
        for pairs in self.holds:
            whose = unit[pairs[:, 0].astype(np.intp)].astype(np.uint64)
            holds.append(np.unique(np.column_stack([whose, pairs[:, 1]]), axis=0))
        return Contents.raw(adds, weights, holds)

    def take(self, units: Places) -> Contents:
        """Return the content of some units, given by increasing indices."""
        holds = []
        for pairs in self.holds:
            starts = np.searchsorted(pairs[:, 0].astype(np.intp), [units, units + 1])
            n = starts[1] - starts[0]
            first = np.repeat(starts[0] - (np.cumsum(n) - n), n)
            number = np.repeat(np.arange(len(units), dtype=np.uint64), n)
            holds.append(np.column_stack([number, pairs[first + np.arange(n.sum()), 1]]))
        arrays = {name: getattr(self, name)[units] for name in ARRAYS}
        return Contents(holds=tuple(holds), **arrays)

    @classmethod
    def together(cls, parts: Sequence[Contents]) -> Contents:
        """Return the content of the units of all parts."""
        arrays = {name: np.concatenate([getattr(p, name) for p in parts]) for name in ARRAYS}
        starts = np.cumsum([0, *(len(part.adds) for part in parts)]).tolist()
        shifted = [
            [pairs + np.array([start, 0], np.uint64) for pairs in part.holds]
            for start, part in zip(starts, parts, strict=False)
        ]
        holds = tuple(np.concatenate(each) for each in zip(*shifted, strict=True))
        return cls(holds=holds, **arrays)


ARRAYS = ("adds", "weights", "apart", "shared")


def _values(adds: Floats, weights: Floats) -> Floats:
    """Return the value of each unit, the mean of its rows', (u, c); infinite if it has none."""
    means = np.divide(adds, weights, np.full(adds.shape, np.inf), where=weights > 0)
    return significant(means, 40)  # Binary digits by which means of equal values agree.


def significant(values: ArrayLike, bits: int) -> Floats:
    """Return numbers rounded to a number of significant binary digits.

    Examples
    --------
    >>> significant([7.0, 0.7], 2)
    array([8.  , 0.75])
    """
    part, power = np.frexp(values)
    rounded: Floats = np.ldexp(np.rint(np.ldexp(part, bits)), power - bits)
    return rounded


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
    points : ndarray of shape (u, e), optional
        The points of the units; of several that add the same amount, the first one by these is
        left out.

    Examples
    --------
    >>> from fedcluster.privacy import Dominance
    >>> adds = np.array([[90.0], [4.0], [3.0], [2.0]])
    >>> rules = Rules(Groups(p=3, dominance=Dominance()), Contents.raw(adds, adds > 0))
    >>> rules.dominating(np.arange(4)), rules.dominating(np.arange(1, 4))
    (0, None)
    """

    hides = 0.1
    """Share of the largest distance that the others have to be: p of the p%-rule, as in UK ACRO."""
    most_times = 3  # largest size of a merged group, in multiples of p units
    most_cells = 1 << 20  # number of values that are compared at once, which bounds the memory

    def __init__(
        self, groups: Groups, contents: Contents, least: int = 0, points: Floats | None = None
    ) -> None:
        self._groups, self._least, self._contents = groups, least or groups.p, contents
        self._adds = np.abs(contents.adds)
        self._values = _values(contents.adds, contents.weights)
        places = np.arange(len(contents.adds) + 1, dtype=np.uint64)
        self._holds = [(np.searchsorted(each[:, 0], places), each[:, 1]) for each in contents.holds]
        self._ordered = np.arange(len(self._adds)) if points is None else np.lexsort(points.T)
        self._rank = np.argsort(self._ordered)

    def dominating(self, units: Places) -> int | None:
        """Return the unit that adds most to the first dominated sum; None if there is none."""
        rule, adds = self._groups.dominance, self._adds[units]
        if rule is not None:
            few = self._is_shown(units) & rule.dominated(adds)
            if few.any():
                amounts = adds[:, few.argmax()]
                return self._first(units[amounts == amounts.max()])
        alone = self.alone([units])[0]
        return int(alone[(alone >= 0).argmax()]) if (alone >= 0).any() else None

    def _is_shown(self, units: Places) -> NDArray[np.bool_]:
        """Return which sums over a group of units are told, (c,)."""
        shown: NDArray[np.bool_] = (self._contents.weights[units] > 0).sum(0) >= self._groups.p
        return shown

    def _first(self, units: Places) -> int:
        return int(self._ordered[self._rank[units].min()])

    def alone(self, members: Sequence[Places]) -> Places:
        """Return the unit whose value is alone in each sum of each group, (g, c); -1 if none is."""
        largest, rest, who = self.singles(members)
        few = rest < self.hides * largest * (1 - Dominance.slack)
        alone: Places = np.where((largest > 0) & few, who, -1)
        return alone

    def singles(self, members: Sequence[Places]) -> tuple[Floats, Floats, Places]:
        """Return how far single values are hidden in the sums of groups of units.

        Returns
        -------
        largest : ndarray of shape (g, c)
            The largest weighted distance of a value that is not shared; 0 if there is none, or if
            the sum is not told.
        rest : ndarray of shape (g, c)
            The total of the distances of the units with other values.
        who : ndarray of shape (g, c)
            A unit of the largest distance.
        """
        order = np.concatenate(members)
        starts = np.cumsum([0, *map(len, members[:-1])])
        group = np.repeat(np.arange(len(members)), [len(units) for units in members])
        c, some = self._values.shape[1], max(1, self.most_cells // len(order))
        parts = [
            self._singles(order, group, starts, slice(first, first + some))
            for first in range(0, c, some)
        ]
        largest, rest, who = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        return largest, rest, who

    def _singles(
        self, order: Places, group: Places, starts: Places, columns: slice
    ) -> tuple[Floats, Floats, Places]:
        """Return the same of some columns, in each of which units are read by increasing values."""
        values = self._values[order, columns]
        by_value = np.argsort(values, axis=0, kind="stable")
        by_group = np.argsort(group[by_value], axis=0, kind="stable")
        unit = order[np.take_along_axis(by_value, by_group, axis=0)]
        at = unit, np.arange(self._values.shape[1])[columns]
        values, shared = self._values[at], self._contents.shared[at]
        there = np.isfinite(values)
        n = np.add.reduceat(there.astype(np.intp), starts)
        middle = np.take_along_axis(values, starts[:, None] + np.maximum(n - 1, 0) // 2, axis=0)
        distance = np.abs(np.subtract(values, middle[group], np.zeros(values.shape), where=there))
        amounts = np.minimum(self._contents.apart[at], self._contents.weights[at] * distance)
        singles = np.where(shared, 0.0, amounts)
        largest = np.maximum.reduceat(singles, starts)
        is_largest = (singles == largest[group]) & (singles > 0)
        top = np.maximum.reduceat(np.where(is_largest, values, -np.inf), starts)
        is_top = is_largest & (values == top[group])
        is_far = np.logical_or.reduceat(is_top & np.isfinite(self._contents.apart[at]), starts)
        hiding = (values != top[group]) & ~(shared & is_far[group])
        rest = np.add.reduceat(np.where(hiding, amounts, 0.0), starts)
        rank = np.where(is_top, self._rank[unit], len(self._rank) - 1)
        who = self._ordered[np.minimum.reduceat(rank, starts)]
        return np.where(n >= self._groups.p, largest, 0.0), rest, who

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
        adds = self._adds[units]
        ordered = np.sort(adds, axis=0)[::-1]
        return np.where(self._is_shown(units), [ordered[0], ordered[1], adds.sum(axis=0)], 0.0)

    def agree(self, units: Places) -> NDArray[np.bool_]:
        """Return in which sensitive columns all these units have the same value, (s,)."""
        return np.array([len(each) > 0 and each.max() == len(units) for each in self.counts(units)])

    def broken_of(self, members: Sequence[Places]) -> list[int]:
        """Return the groups of units that violate the rules."""
        if not members:
            return []
        alone = np.asarray((self.alone(members) >= 0).any(axis=1))
        if self._groups.dominance is None and self._groups.diversity == 1:
            return [int(g) for g in np.flatnonzero(alone)]
        return [
            g
            for g, units in enumerate(members)
            if alone[g] or self.dominating(units) is not None or self.alike(units)
        ]

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
        broken = self.broken_of(joining.members)
        for g in sorted(broken, key=lambda g: tuple(joining.centers[g])):
            self._mend(joining, g)
        mended, parts = np.full(len(labels), -1, np.int32), list[Places]()
        for units in joining.members:
            parts += self._cut(units, points)
        for number, units in enumerate(filter(len, parts)):
            mended[units] = number
        return mended

    def _cut(self, units: Places, points: Floats) -> list[Places]:
        """Cut a merged group across its widest column while both parts satisfy the rules."""
        n = len(units)
        if n >= 2 * self._least:
            ordered = self._ordered[np.sort(self._rank[units])]
            widest = int(np.ptp(points[ordered], axis=0).argmax())
            ordered = ordered[np.argsort(points[ordered, widest], kind="stable")]
            for at in (n - self._least, self._least):
                parts = [np.sort(ordered[:at]), np.sort(ordered[at:])]
                if not self.broken_of(parts):
                    return [*self._cut(parts[0], points), *self._cut(parts[1], points)]
        return [units]

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
            is_last = near is None or after > self.most_times * self._least
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
