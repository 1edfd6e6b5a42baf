"""Engines that ask through another engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Unpack

from fedcluster.core import Answers, Engine, Introduction, PlannedStep, SiteInfo, Task


class WrappedEngine:
    """Engine that asks through another one.

    Parameters
    ----------
    engine : Engine
        The engine that is asked.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def introduce(self, **requested: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return the metadata of the sites; see `Engine`."""
        return self._engine.introduce(**requested)

    def _names(
        self, sites: Iterable[str] | None, steps: Sequence[PlannedStep] = ()
    ) -> tuple[list[str], list[str]]:
        """Return the names of all sites and of those that are asked, in order."""
        names = [site.name for site in self._engine.introduce(steps=steps)]
        return names, names if sites is None else [name for name in names if name in set(sites)]


class WithoutSites(WrappedEngine):
    """Engine that leaves out some sites of another engine; they count as missing.

    Parameters
    ----------
    engine : Engine
        The engine that is asked.
    left_out : collection of str
        The sites that are not asked.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster import Client, Data, LocalEngine
    >>> from fedcluster.algorithms import Lloyd
    >>> from fedcluster.core import State
    >>> sites = [Client(name, Data(np.array([[x], [x]]))) for name, x in {"a": 1, "b": 9}.items()]
    >>> engine = WithoutSites(LocalEngine(sites), {"b"})
    >>> [site.name for site in engine.introduce()]
    ['a']
    >>> [answers] = engine.ask([Task(Lloyd(), State.at([[0.0]]))])
    >>> answers.answered, answers.missing
    (('a',), ('b',))
    """

    def __init__(self, engine: Engine, left_out: Collection[str]) -> None:
        super().__init__(engine)
        self._left_out = frozenset(left_out)

    def introduce(self, **requested: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return the metadata of the other sites."""
        sites = super().introduce(**requested)
        return tuple(site for site in sites if site.name not in self._left_out)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Carry all tasks of one round to the named sites except those left out."""
        recipients = [name for name in self._names(sites)[1] if name not in self._left_out]
        return [
            replace(each, missing=tuple(sorted({*each.missing, *self._left_out})))
            for each in self._engine.ask(tasks, recipients)
        ]
