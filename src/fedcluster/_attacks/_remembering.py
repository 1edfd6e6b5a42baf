"""Attacks on what a site has to remember: earlier versions, who is a person, earlier sums."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster._attacks._play import Play, changed, solved
from fedcluster._attacks._search import total_of
from fedcluster._attacks._site import values_of
from fedcluster.core import Data, Floats, State, Task
from fedcluster.engines._responder import Responder
from fedcluster.errors import InputError, SiteError
from fedcluster.metrics.moments import Means

CHANGED = 10
"""One row in so many has another value in the last of three versions."""
TARGETS = 10
OTHERS = 4
"""Sites that take part in secure sums beside the one that is attacked."""


def three_versions(play: Play) -> Floats:
    """Subtract groups of persons in a first and a third version; in the second, a unit is another.

    Known are who is in which group, all that did not change, and who changed: of a group with one
    of these, the difference is his.
    """
    rows, column = play.subject.rows, play.public.widest[-1]
    rows = replace(rows, groups=_persons(rows))
    place = [c.name for c in play.public.columns].index(play.public.numbers[column])
    few = np.random.default_rng(0).choice(len(rows), max(1, len(rows) // CHANGED), replace=False)
    earlier = changed(rows, few, place, -3.0 * float(play.public.step[column]))
    wrong = replace(earlier, X=np.where(np.arange(rows.X.shape[1]) == place, 2.0, 1.0) * earlier.X)
    play.subject = play.subject.version(earlier)
    try:
        plays = [play, *map(play.version, (wrong, rows))]
    except InputError:
        play.coordinator.refused += 1
        return play.public.claims(0)
    if total_of(play.coordinator) is None or play.subject.protection.groups is None:
        return play.public.claims(0)
    known, claims = play.numbers, []
    first, last = (_groups(each.units) for each in (plays[0], plays[-1]))
    for members in first & last:
        some = sorted(set(few.tolist()) & members)
        if len(some) == 1:
            mine = sorted(members)
            claim = known[some[0]].copy()
            claim[column] += (plays[-1].numbers[mine] - known[mine])[:, column].sum()
            claims.append(claim)
    return play.public.records(np.array(claims).reshape(-1, known.shape[1]))


def _groups(units: np.ndarray) -> set[frozenset[int]]:
    """Return the members of each group."""
    return {frozenset(np.flatnonzero(units == g).tolist()) for g in np.unique(units[units >= 0])}


def persons_named_later(play: Play) -> Floats:
    """Solve for rows from groups of rows and from those of persons, who is where being known."""
    rows = play.subject.rows
    if play.subject.protection.groups is None:
        return play.public.claims(0)
    play.subject = play.subject.version(replace(rows, groups=None))
    lines = [_lines(play)]
    try:
        lines.append(_lines(play.version(replace(rows, groups=_persons(rows)))))
    except InputError:
        play.coordinator.refused += 1
    behind = np.concatenate(lines)
    return play.public.records(solved(behind, behind @ play.numbers))


def _persons(rows: Data) -> NDArray[Any]:
    """Return whose each row is, (n,): of a person of its own where nobody says."""
    return np.arange(len(rows)) if rows.groups is None else rows.groups


def _lines(play: Play) -> Floats:
    """Return which rows are in each group, (g, n)."""
    units = play.units
    lines: Floats = (units == np.unique(units[units >= 0])[:, None]).astype(np.float64)
    return lines


def smaller_cohort(play: Play) -> Floats:
    """Ask for secure sums of all sites and then of all but this one, and subtract.

    What is left would be the sums of this site, of which all rows but one are known.
    """
    public, others = play.public, play.subject.others
    task = Task(Means(), State(), preprocessor=public.plain())
    names = ["north", *(f"site {i}" for i in range(OTHERS))]
    sites = {"north": play.subject}
    for i, name in enumerate(names[1:]):
        rows = others.take(np.arange(i % len(others), len(others), OTHERS))
        sites[name] = replace(play.subject, rows=rows, folder=play.subject.folder / name)
        sites[name].folder.mkdir()
    try:
        from fedcluster.secure import _engine, _site
    except ImportError:  # without the extra that brings secure sums, there are none to attack
        return public.claims(0)
    secure = _site.SecureSite.strangers(names)
    wire = _Wire({n: each.coordinator(public, n, secure[n]).responder for n, each in sites.items()})
    columns = [column.name for column in public.columns]
    totals = []
    for cohort in (names, names[1:]):
        play.coordinator.asked += 1
        engine = _engine.SecureEngine(wire, cohort)
        engine.choose(columns, raw=True)
        with suppress(SiteError):
            totals.append(engine.ask([task])[0].total().sums[:, 0])
    play.coordinator.refused += 2 - len(totals)
    if len(totals) < 2:
        return public.claims(0)
    return _all_but_one_known(play, totals[0] - totals[1])


def _all_but_one_known(play: Play, total: Floats) -> Floats:
    """Return a row of some groups, from the sums of the site and all of its other rows."""
    values, units = values_of(play.subject.rows, play.public)[:, :-1], play.units
    groups = [np.flatnonzero(units == g) for g in np.unique(units[units >= 0])]
    there = np.array([(~np.isnan(values[rows])).sum(axis=0) for rows in groups])
    protection = play.subject.protection.groups
    there[there < (1 if protection is None else protection.p)] = 0  # a mean of so few is not told
    sums = np.array([np.nansum(values[rows], axis=0) for rows in groups])
    sizes = np.array([[len(rows)] for rows in groups])
    told = sizes * np.where(there, sums / np.maximum(there, 1), play.public.middle)
    own = (total - (told.sum(axis=0) - told)) * there / sizes
    mine = np.nan_to_num(values[[rows[0] for rows in groups]])
    own[there == 0] = np.nan
    return play.public.records((own - (sums - mine))[:TARGETS])


class _Wire:
    """Transport to sites in this process."""

    def __init__(self, sites: Mapping[str, Responder]) -> None:
        self._sites = sites

    def exchange(
        self, messages: Mapping[str, bytes], enough: int
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """Carry messages to the sites."""
        return {name: self._sites[name].reply(message) for name, message in messages.items()}, {}
