"""Size limits: filters that hold back lines of a summary that sum too few rows.

Owned by the site and applied to every summary, those of seeding and of metrics included. They
protect a single round; over many rounds two nearly equal sums can still be subtracted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Filter, Floats, Limit, Summary
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
