"""Sites that lie to the coordinator, played at home: what becomes of a fit to the others' rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Unpack

import numpy as np

from fedcluster.core import Answers, Engine, Floats, Introduction, SiteInfo, Summary, Task
from fedcluster.metrics.moments import SiteSize
from fedcluster.preprocessing._moments import Missing

MANY = 1e9
"""Rows that a site claims which has far fewer."""


@dataclass(frozen=True, slots=True)
class Lie:
    """Answers of a lying site.

    Parameters
    ----------
    tell : callable
        Makes the sums (k, p) that are told of the true ones, the weights (k,), and the number d of
        columns of prepared rows. Sums beyond the first d of a line are squares.
    rows : float, optional
        How many rows the site claims; by default those that it has.
    """

    tell: Callable[[Floats, Floats, int], Floats]
    rows: float | None = None

    def answer(self, task: Task, honest: Summary, n_rows: float, d: int) -> Summary:
        """Return what is told in the place of an honest answer."""
        if isinstance(task.step, SiteSize | Missing):
            return honest
        factor = 1.0 if self.rows is None else self.rows / n_rows
        weights = factor * honest.weights
        sums = np.where(weights[:, None] > 0, self.tell(factor * honest.sums, weights, d), 0.0)
        return Summary(sums, weights)


def corner(sums: Floats, weights: Floats, d: int) -> Floats:
    """Return the sums of as many rows in a corner that other rows reach too, with their squares."""
    told = np.abs(sums)
    told[:, :d] = REACH * weights[:, None]
    return told


def scaled(sums: Floats, _weights: Floats, _d: int) -> Floats:
    """Return a hundred times the sums."""
    return 100.0 * sums


def flipped(sums: Floats, _weights: Floats, _d: int) -> Floats:
    """Return the sums with the other sign, squares too."""
    return -sums


def overflowing(sums: Floats, _weights: Floats, _d: int) -> Floats:
    """Return sums whose squares overflow."""
    return np.where(sums != 0, 1e300, 0.0)


REACH = 4.0
"""The corner, in units of prepared rows: four standard deviations in each column."""

LIES: Mapping[str, Lie] = MappingProxyType(
    {
        "scaled": Lie(scaled),
        "flipped": Lie(flipped),
        "corner": Lie(corner),
        "many rows": Lie(corner, MANY),
        "overflow": Lie(overflowing),
    }
)
"""The lies of the table in ``docs/lying-sites.md``."""


class LyingEngine:
    """Engine some of whose sites lie.

    Parameters
    ----------
    engine : Engine
        Who is asked.
    lies : mapping of str to Lie
        The sites that lie, and how.
    """

    def __init__(self, engine: Engine, lies: Mapping[str, Lie]) -> None:
        self._engine, self._lies = engine, lies

    def introduce(self, **asked: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return what the sites tell of themselves; liars tell of the rows that they claim."""
        sites = self._engine.introduce(**asked)
        return tuple(map(self._claimed, sites))

    def _claimed(self, site: SiteInfo) -> SiteInfo:
        lie = self._lies.get(site.name)
        return site if lie is None or lie.rows is None else replace(site, n_rows=lie.rows)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Ask the sites, and let those that lie tell what they like."""
        rows = {site.name: site.n_rows or 1.0 for site in self._engine.introduce()}
        told = []
        for task, answers in zip(tasks, self._engine.ask(tasks, sites), strict=True):
            by_site = dict(answers.by_site)
            for name, lie in self._lies.items():
                if name in by_site:
                    honest = by_site[name]
                    d = task.state.centers.shape[1] or honest.sums.shape[1]
                    by_site[name] = lie.answer(task, honest, rows[name], d)
            told.append(Answers(by_site, answers.missing, answers.enough))
        return told
