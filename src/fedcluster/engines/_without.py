"""Run without some sites that are there, as their columns are of other kinds than those of most."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Unpack

from fedcluster.core import Answers, Engine, Introduction, SiteInfo, Task


class WithoutSites:
    """Engine that asks all sites of another one but some, which count as missing.

    Parameters
    ----------
    engine : Engine
        Who is asked.
    left_out : collection of str
        The sites that are not.

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
        self._engine, self._left_out = engine, frozenset(left_out)

    def introduce(self, **asked: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return what the other sites tell of themselves."""
        sites = self._engine.introduce(**asked)
        return tuple(site for site in sites if site.name not in self._left_out)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Carry all tasks of one round to those of the named sites that are not left out."""
        names = [site.name for site in self._engine.introduce()] if sites is None else sites
        asked = [name for name in names if name not in self._left_out]
        answers = self._engine.ask(tasks, asked)
        return [
            replace(each, missing=tuple(sorted({*each.missing, *self._left_out})))
            for each in answers
        ]
