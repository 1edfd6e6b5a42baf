"""Terms of the secure sums of one run, and the record of cohorts that a site has answered in.

Two totals also reveal their difference. So a site keeps a permanent record of the cohorts whose
totals it was part of: `earlier_cohorts` and `add_cohort`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from fedcluster.privacy.site_state import SiteState

MOST_SITES = 1 << 15
"""The most sites of a total: the words of so many are added without a carry."""

MIN_SITES = 3
"""The fewest sites that a total is told of: of two, each knows the other's sums."""

Names = tuple[str, ...]
"""Names of the sites of a cohort, in order."""

Earlier = Sequence[Sequence[str]]
"""Cohorts that a site has answered in before."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the owner of a site says of its secure sums, in the site file.

    Parameters
    ----------
    min_sites : int, default=3
        The fewest sites whose total may be found with the site's help.
    colluders : int, optional
        How many other sites may work with the coordinator. With it, the noise of answers is shared
        by the others; without it, the site adds all of it itself.
    allow_dropouts : bool, default=False
        Whether a run may go on without some of its sites. A coordinator that lies can then find
        the sums of single ones.
    allow_alone : collection of str
        Sites whose own sums may be found, as they alone join or leave.
    """

    min_sites: int = MIN_SITES
    colluders: int | None = None
    allow_dropouts: bool = False
    allow_alone: Collection[str] = ()


def fewest(n_sites: int, threshold: int, n_all: int, colluders: int = 0) -> int:
    """Return the fewest honest sites that a total is over, whatever each site is told.

    To leave m sites out, a coordinator needs for each of them `threshold` sites that say that it
    has dropped out. Those that work with it say so of any; another says so of as many as it was
    named sites beyond the threshold, and never of itself. This site was named n, the others maybe
    all.

    Parameters
    ----------
    n_sites : int
        n: how many sites this one was named.
    threshold : int
        t: how many must be left.
    n_all : int
        How many began the run.
    colluders : int, default=0
        How many of them work with the coordinator.

    Examples
    --------
    >>> fewest(10, 10, 10), fewest(10, 8, 10), fewest(8, 8, 10), fewest(3, 3, 4)
    (10, 8, 6, 3)
    >>> fewest(10, 10, 10, colluders=2), fewest(10, 8, 10, colluders=2)
    (8, 6)
    """
    honest, most, needed = n_all - colluders, n_all - threshold, threshold - colluders

    def can_leave_out(m: int) -> bool:
        votes = (honest - 1 - m) * min(most, m) + m * min(most, m - 1)
        return votes + min(n_sites - threshold, m) >= m * needed

    n_honest = n_sites - colluders
    return n_honest - max((m for m in range(1, n_honest) if can_leave_out(m)), default=0)


@dataclass(frozen=True, slots=True)
class Cohort:
    """The sites that take part in the secure sums of a run, and on which terms.

    Parameters
    ----------
    run : str
        The run.
    sites : tuple of str
        Their names, in order.
    threshold : int
        t: so many of them must be left for a sum. Where it is their number, all must answer, and
        there is nothing to recover.
    """

    run: str
    sites: tuple[str, ...]
    threshold: int

    @classmethod
    def from_plain(cls, run: Any, content: Mapping[str, Any]) -> Self:
        """Return the cohort that `plain` gave, of a run.

        Raises
        ------
        ValueError
            If it is something else.
        """
        sites, threshold = content.get("cohort"), content.get("threshold")
        if not isinstance(run, str) or not are_names(sites) or type(threshold) is not int:
            raise ValueError("the sites of secure sums are not named in order, with a threshold")
        return cls(run, tuple(sites or ()), threshold)

    def plain(self) -> dict[str, Any]:
        """Return the cohort as JSON can hold it, without the run."""
        return {"cohort": list(self.sites), "threshold": self.threshold}

    @property
    def is_whole(self) -> bool:
        """True if all must answer."""
        return self.threshold == len(self.sites)

    def check(self, sites: Collection[str], min_sites: int) -> None:
        """Check that a sum over these sites tells of enough of them.

        Raises
        ------
        ValueError
            If not, or they are not of the cohort.
        """
        if len(self.sites) > MOST_SITES:
            raise ValueError(f"secure sums are for {MOST_SITES:,} sites at most")
        if not set(sites) <= set(self.sites) or len(set(sites)) < len(sites):
            raise ValueError("a secure sum is asked for with sites that gave no keys, or twice")
        n, t = len(sites), self.threshold
        if not len(self.sites) < 2 * t <= 2 * len(self.sites) or n < t:
            raise ValueError(
                f"a secure sum over {n} sites where {t} of {len(self.sites)} must be left: more "
                "than half of them must, and as many must take part"
            )
        if (least := fewest(n, t, len(self.sites))) < min_sites:
            raise ValueError(
                f"a secure sum could be over {least} sites, and the fewest here are {min_sites}: "
                "ask more sites, or raise the quorum"
            )

    def signed(self, site: str, key: str, earlier: Earlier) -> bytes:
        """Return what a site signs: its key in this run, these terms, and its earlier cohorts."""
        signed = ["fedcluster secure sums", self.run, list(self.sites), self.threshold, site, key]
        return json.dumps([*signed, earlier]).encode()


def are_names(value: Any) -> bool:
    """Return whether a value that was JSON is a list of different texts, in order."""
    texts = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return texts and value == sorted(set(value))


def earlier_cohorts(state: SiteState) -> frozenset[Names]:
    """Return the cohorts that a site has answered in.

    Raises
    ------
    InputError
        If its state is missing, empty or damaged.
    """
    with state.transaction() as file:
        return _earlier(file)


def add_cohort(
    state: SiteState, sites: Names, check: Callable[[Collection[Names]], object]
) -> None:
    """Write down that a site answers in a cohort; it is on the disk when this returns.

    Parameters
    ----------
    state : SiteState
        The state of the site.
    sites : tuple of str
        The sites of the cohort, in order.
    check : callable taking the cohorts so far
        What it raises is passed on, and nothing is written; no other process writes meanwhile.

    Raises
    ------
    InputError
        If the state is missing, empty or damaged, or cannot be written.

    Examples
    --------
    >>> state = SiteState()
    >>> add_cohort(state, ("east", "north", "south"), lambda earlier: print(sorted(earlier)))
    []
    >>> sorted(earlier_cohorts(state))
    [('east', 'north', 'south')]
    """
    with state.transaction() as file:
        check(earlier := _earlier(file))
        if sites not in earlier:
            row = json.dumps(sites), datetime.now(UTC).isoformat(timespec="seconds")
            file.execute("INSERT INTO cohorts (sites, time) VALUES (?, ?)", row)


def _earlier(file: sqlite3.Connection) -> frozenset[Names]:
    return frozenset(
        tuple(json.loads(sites)) for (sites,) in file.execute("SELECT sites FROM cohorts")
    )
