"""Engines, the answers that they bring back, and the records of a run."""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol, Unpack

import numpy as np
from numpy.typing import NDArray

from fedcluster.core.step import Algorithm, PlannedStep, State, Summary
from fedcluster.core.task import FirstTasks, Introduction, SiteInfo, Task

ALL_SITES = "all sites"
"""Name under which answers hold the sum of all sites if sums are secure."""


class Sent(Mapping[str, int]):
    """Mapping from site to the number of values that it sent, built when it is first read.

    Parameters
    ----------
    names : tuple of str
        The sites.
    numbers : ndarray of shape (s,)
        The number of values that each site sent.

    Examples
    --------
    >>> Sent(("north", "south"), np.array([6, 4])) == {"north": 6, "south": 4}
    True
    """

    def __init__(self, names: tuple[str, ...], numbers: NDArray[np.int64]) -> None:
        self._names, self._numbers = names, numbers

    @cached_property
    def _by_site(self) -> dict[str, int]:
        return dict(zip(self._names, self._numbers.tolist(), strict=True))

    def __repr__(self) -> str:
        return repr(self._by_site)

    def __getitem__(self, name: str) -> int:
        return self._by_site[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def items(self) -> ItemsView[str, int]:
        """Return the names and their numbers as pairs."""
        return self._by_site.items()


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The sites' answers to one task, in the order of their names, and the sites that sent none.

    Parameters
    ----------
    by_site : mapping of str to Summary
        The answers; with secure sums only their sum, under the name `ALL_SITES`.
    missing : tuple of str
        The sites that sent no answer.
    enough : int, optional
        The smallest number of answers with which a run continues; by default all that arrived.
    summed : tuple of str
        The sites that a secure sum adds up.
    early : mapping of str to int
        Number of further values that sites sent before, which these answers replace.
    """

    by_site: Mapping[str, Summary]
    missing: tuple[str, ...] = ()
    enough: int | None = None
    summed: tuple[str, ...] = ()
    early: Mapping[str, int] = field(default_factory=dict)

    def without(self, name: str) -> Answers:
        """Return the answers without that of the named site."""
        others = {site: answer for site, answer in self.by_site.items() if site != name}
        missing = tuple(sorted({*self.missing, name}))
        return Answers(others, missing, self.enough, early=self.early)

    @property
    def n_spare(self) -> int:
        """Number of answers that a run can do without."""
        return 0 if self.enough is None else max(0, len(self.by_site) - self.enough)

    @property
    def answered(self) -> tuple[str, ...]:
        """Names of the sites that answered."""
        return self.summed or tuple(self.by_site)

    @property
    def summaries(self) -> list[Summary]:
        """The summaries without the names of their sites."""
        return list(self.by_site.values())

    @property
    def numbers_sent(self) -> NDArray[np.int64]:
        """Number of values that each site sent, (s,), in the order of `answered`."""
        if self.summed:  # under secure sums, lines of weight 0 cannot be left out
            [total] = self.summaries
            return np.full(len(self.summed), total.sums.size + total.weights.size)
        numbers = [each.n_values + self.early.get(n, 0) for n, each in self.by_site.items()]
        return np.array(numbers, np.int64)

    @property
    def values_sent(self) -> Mapping[str, int]:
        """Number of values that each site sent, by name."""
        return Sent(self.answered, self.numbers_sent)

    def too_large(self) -> list[str]:
        """Return the names of the sites whose answers are too large to continue with."""
        return [name for name, summary in self.by_site.items() if summary.is_too_large]

    def total(self) -> Summary:
        """Return the exact sum of the answers, correctly rounded."""
        return Summary.total(self.summaries)


class Engine(Protocol):
    """An engine, which carries tasks to the sites and brings back their answers."""

    def introduce(
        self,
        *,
        columns: bool = False,
        texts: Collection[str] = (),
        labels: bool = False,
        steps: Sequence[PlannedStep] = (),
        first_tasks: FirstTasks | None = None,
        sends: bool = False,
    ) -> tuple[SiteInfo, ...]:
        """Return the metadata of the sites, in the order of their names.

        Names, limits and whether rows come in chunks are asked for once; further calls cost
        nothing.

        Parameters
        ----------
        columns : bool, default=False
            Whether the sites describe their columns, with those levels of text that several rows
            share and the limits permit.
        texts : collection of str
            Columns whose numbers are codes, to be described as text.
        labels : bool, default=False
            Whether the sites send the names of their reference labels, with the same restriction.
        steps : sequence of Step or type, default=()
            The steps that will be asked. A site that does not know one of them, or must not answer
            it, sends no answers from now on.
        first_tasks : callable, optional
            The tasks that will probably be asked first. An engine to which a round costs much asks
            them along with the columns, and then knows the answers.
        sends : bool, default=False
            Whether each site says if its rules let any sum over its rows leave.
        """

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Carry all tasks of one round to the named sites, by default to all."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """Record of one round of one run.

    Parameters
    ----------
    round : int
        The number of the round, from 1.
    step : str
        The name of the step.
    inertia : float
        Inertia of the centres that were broadcast; nan if the algorithm does not measure it.
    shift : float
        Largest distance by which a centre moved, in the units of the rows; nan at a start.
    answered, missing : tuple of str
        The sites that took part, and those that did not.
    values_sent : mapping of str to int
        The number of values that each site sent.
    """

    round: int
    step: str
    inertia: float
    shift: float
    answered: tuple[str, ...]
    missing: tuple[str, ...]
    values_sent: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """Result of a run: the final state, its rounds, the reason for its end, and the algorithm."""

    state: State
    history: tuple[Iteration, ...]
    reason: str
    algorithm: Algorithm | None = None


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
