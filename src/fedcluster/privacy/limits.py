"""Size limits: filters that hold back lines of a summary that sum too few rows.

Owned by the site and applied to every summary, those of seeding and of metrics included. They
protect a single round; over many rounds two nearly equal sums can still be subtracted.

Where rows are grouped, limits count the rows behind the groups: as few as stand behind so many of
the smallest groups. Groups of p rows already keep limits up to p, which are left out then.

Where one person has many rows, limits count persons. A line knows how many rows stand behind it,
and not whose they are. Counts of distinct persons do not add up over chunks or sites' parts, but a
bound holds for any rows: as few persons stand behind r rows as if they were those who have the
most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data, Filter, Floats, Grouped, Limit, Summary

MANY = 32
"""Parts whose counts are kept apart before they are added."""
ROUNDING = 1e-6
"""Tolerance for sums of memberships just above a whole number."""


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

    min_rows: int = 2
    min_cluster_size: int = 2

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

    def keep(self, rule: Filter) -> bool:
        """Return whether every sum over groups keeps a limit, whatever is asked."""
        return (isinstance(rule, MinRows) and rule.n <= self.p) or (
            isinstance(rule, MinClusterSize) and rule.p <= self.p
        )

    @property
    def limit(self) -> Limit:
        """Return what a site tells of its protection."""
        told: dict[str, Any] = {"p": self.p, "min_rows": self.min_rows}
        told |= {} if self.dominance is None else {"dominance": str(self.dominance)}
        told |= {} if self.diversity == 1 else {"diversity": self.diversity}
        told |= {} if self.preset == "standard" else {"preset": self.preset}
        return Limit("Groups", tuple(told.items()))


@dataclass(frozen=True, slots=True, eq=False)
class Persons:
    """Persons of one site, sorted by how many rows they have.

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

        Rows of a fuzzy clustering, sums of memberships, need not be whole.
        """
        fewest = np.interp(rows, self.most, np.arange(len(self.most)))
        return np.minimum(np.ceil(fewest - ROUNDING), rows)

    def rows_of(self, persons: int) -> float:
        """Return the fewest rows that so many persons must have; infinite if they are too few."""
        return float(self.most[persons - 1]) + 1 if persons <= len(self) else np.inf


class GroupCounter:
    """Counter of the rows of each person, part after part."""

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
        """Return each person once, with the number of their rows."""
        names, times = (np.concatenate(each) for each in zip(*self._counted, strict=True))
        once, place = np.unique(names, return_inverse=True)
        return once, np.bincount(place, times, len(once)).astype(np.float64)


def behind_groups(summary: Summary, data: Data, grouped: Grouped) -> Summary:
    """Return an answer about groups with the fewest rows, or persons, behind each of its lines.

    Parameters
    ----------
    summary : Summary
        The answer, whose support is how many groups stand behind each line; a group may count by a
        share. Without a support, as few groups are taken for it as can have so much weight.
    data : Data
        The groups that were asked about.
    grouped : Grouped
        What stands behind them.

    Examples
    --------
    >>> groups = Grouped(np.array([5.0, 9.0, 6.0]))
    >>> data = Data(np.zeros((3, 1)), groups.counts, grouped=groups)
    >>> lines = Summary(np.zeros((3, 0)), np.array([9.0, 11.0, 20.0]), np.array([1.0, 2.0, 3.0]))
    >>> behind_groups(lines, data, groups).support
    array([ 5., 11., 20.])
    """
    numbers = np.arange(len(data) + 1)
    n_groups = summary.support
    if n_groups is None:
        weights = np.zeros(len(data)) if data.sample_weight is None else data.sample_weight
        heaviest = np.append(0.0, np.cumsum(np.sort(weights)[::-1]))
        n_groups = np.interp(summary.weights, heaviest, numbers)
    if "smallest first" not in data.cache:
        data.cache["smallest first"] = grouped.smallest_first
    whole = np.rint(n_groups)
    n_groups = np.where(np.abs(n_groups - whole) < ROUNDING, whole, n_groups)
    return replace(summary, support=np.interp(n_groups, numbers, data.cache["smallest first"]))
