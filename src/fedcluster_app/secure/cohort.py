"""Terms of the secure sums of one run, and the record of a site's earlier cohorts.

Two totals reveal their difference. So a site keeps a permanent record of the cohorts in whose
totals it took part: `earlier_cohorts` and `add_cohort`.

Two sites are alike if they are in the same cohorts whose totals the coordinator has, in any order
and interleaving. Every combination of totals counts alike sites equally, so the finest that can be
solved for are totals of classes of alike sites. Each site of a total saw all cohorts in which any
of its sites had answered before, signed with the very key that its mask is made of, and answers
only if it has not answered elsewhere since. So at least `min_sites` of them were alike at this
moment, and no later cohort separates them. If c of the sites collude with the coordinator and sign
another past, at least ``min_sites - c`` honest ones remain.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from fedcluster.errors import listed
from fedcluster_app.trust.site_state import SiteState

MIN_SITES = 3
"""Smallest number of sites in a disclosed total: each of two could infer the other's sums."""

Names = tuple[str, ...]
"""Sorted names of the sites of a cohort."""

Earlier = Sequence[Sequence[str]]
"""Cohorts in which a site has answered before, each of the sites that had rows to tell of."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a site's owner for its secure sums, from the site file.

    Parameters
    ----------
    min_sites : int, default=3
        The smallest number of sites in a total that the site helps to compute.
    colluders : int, optional
        The number of other sites that may collude with the coordinator. If given, the noise of
        answers is shared by the others; otherwise, the site adds all of it itself.
    allow_dropouts : bool, default=False
        Whether a run may continue without some of its sites. A lying coordinator can then find the
        sums of single sites.
    allow_alone : collection of str
        Sites whose own sums may be inferred because they join or leave alone.
    """

    min_sites: int = MIN_SITES
    colluders: int | None = None
    allow_dropouts: bool = False
    allow_alone: Collection[str] = ()


def fewest(n_sites: int, threshold: int, n_all: int, colluders: int = 0) -> int:
    """Return the smallest number of honest sites in a total, whatever each site is told.

    To leave m sites out, a coordinator needs, for each of them, `threshold` sites that treat it as
    dropped out. Colluding sites do so for any; an honest site does so for at most as many as the
    sites named to it exceed the threshold, and never for itself. n sites were named to this one,
    possibly all to the others.

    Parameters
    ----------
    n_sites : int
        n, the number of sites that were named to this one.
    threshold : int
        t, the number of sites that must remain.
    n_all : int
        The number of sites that began the run.
    colluders : int, default=0
        The number of these that collude with the coordinator.

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
    """The sites that take part in the secure sums of a run, with their terms.

    Parameters
    ----------
    run : str
        The run.
    sites : tuple of str
        Their names, sorted.
    threshold : int
        t, the number of sites that must remain for a sum. If it is the number of all, all must
        answer, and there is nothing to recover.
    """

    run: str
    sites: tuple[str, ...]
    threshold: int
    most_sites = 1 << 15
    """Largest number of sites in a total: up to then, words are added without a carry."""

    @classmethod
    def from_plain(cls, run: Any, content: Mapping[str, Any]) -> Self:
        """Return the cohort of a run from the result of `plain`.

        Raises
        ------
        ValueError
            If the content has another form.
        """
        sites, threshold = content.get("cohort"), content.get("threshold")
        if not isinstance(run, str) or not are_names(sites) or type(threshold) is not int:
            raise ValueError("the sites of secure sums are not named in order, with a threshold")
        return cls(run, tuple(sites or ()), threshold)

    def plain(self) -> dict[str, Any]:
        """Return the cohort as JSON-compatible values, without the run."""
        return {"cohort": list(self.sites), "threshold": self.threshold}

    @property
    def is_whole(self) -> bool:
        """True if all sites must answer."""
        return self.threshold == len(self.sites)

    def check(self, sites: Collection[str], min_sites: int, without: Collection[str] = ()) -> None:
        """Check that a sum over these sites includes enough of them that send something.

        Parameters
        ----------
        sites : collection of str
            The sites.
        min_sites : int
            The smallest number of them that add rows to the sum.
        without : collection of str
            The sites of the cohort that add none, as they have too few.

        Raises
        ------
        ValueError
            If not, or if they do not belong to the cohort.
        """
        if len(self.sites) > self.most_sites:
            raise ValueError(f"secure sums are for {self.most_sites:,} sites at most")
        if not set(sites) <= set(self.sites) or len(set(sites)) < len(sites):
            raise ValueError("a secure sum is asked for with sites that gave no keys, or twice")
        n, t = len(sites), self.threshold
        if not len(self.sites) < 2 * t <= 2 * len(self.sites) or n < t:
            raise ValueError(
                f"a secure sum over {n} sites where {t} of {len(self.sites)} must be left: more "
                "than half of them must, and as many must take part"
            )
        empty = sorted(set(sites) & set(without))
        if (least := fewest(n, t, len(self.sites)) - len(empty)) < min_sites:
            have = f" that have rows to tell of ({listed(empty)} too few)" if empty else ""
            raise ValueError(
                f"a secure sum could be over {least} sites{have}, and the fewest here are "
                f"{min_sites}: ask more sites, or raise the quorum"
            )

    def signed(self, site: str, key: str, earlier: Earlier, *, sends: bool) -> bytes:
        """Return the bytes that a site signs in a run.

        They hold the run and its terms, the key of the site, its earlier cohorts, and whether its
        rules let any sum over its rows leave.
        """
        signed = ["fedcluster secure sums", self.run, list(self.sites), self.threshold, site, key]
        return json.dumps([*signed, earlier, sends]).encode()


def two_sites_line(n_sites: int) -> list[str]:
    """Return the warning that each of two sites can subtract its own sums, if it applies.

    Examples
    --------
    >>> print(*two_sites_line(2))
    of two sites, each learns the other's sums of each cluster, as the model tells those of both: \
ask at least three
    """
    said = "of two sites, each learns the other's sums of each cluster, as the model tells those of"
    return [f"{said} both: ask at least three"] if n_sites == 2 else []


def are_names(value: Any) -> bool:
    """Return whether a JSON value is a sorted list of distinct texts."""
    texts = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return texts and value == sorted(set(value))


def earlier_cohorts(state: SiteState) -> frozenset[Names]:
    """Return the cohorts in which a site has answered.

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
    """Record durably that a site answers in a cohort.

    Parameters
    ----------
    state : SiteState
        The state of the site.
    sites : tuple of str
        The sites of the cohort, sorted.
    check : callable taking the cohorts so far
        If it raises an error, nothing is recorded; no other process writes meanwhile.

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
