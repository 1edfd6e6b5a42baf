"""Engines that hold all sites in this process.

`LocalEngine` asks a client for each site: for simulation, for one owner of many files, and as a
test double. `PooledEngine` holds very many small sites in one array. By the law, the answers of
sites add up to the answer of all their rows together. So where a step is additive, and the sites'
only limit is a smallest number of rows, one call answers for all of them. Otherwise each site
answers for itself, and where the sum is all that the server needs, only the sum is kept.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from operator import attrgetter, methodcaller
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster._random import sampled
from fedcluster.client import Client
from fedcluster.core import (
    Answers,
    Data,
    Filter,
    Limit,
    PlannedStep,
    SiteInfo,
    Summary,
    Task,
)
from fedcluster.engines._crowd import Asked
from fedcluster.engines._errors import at_site
from fedcluster.engines._relay import Relay
from fedcluster.io._given import numbered
from fedcluster.privacy import MinRows

_WORTH_A_THREAD = 50_000
"""Below so many values at the second largest site, handing sites to threads costs more than
it saves."""


class LocalEngine:
    """Engine that asks clients in this process.

    Sites run in parallel threads where their rows are many enough, and many small sites are asked
    at once; the answers, and so every bit of a result, do not depend on that.

    Parameters
    ----------
    clients : iterable of Client or Relay
        The sites; their names must differ.
    workers : int, optional
        The largest number of threads; by default one for each processor.
    silent : callable, optional
        ``silent(site, r)`` says whether a site gives no answer in round r = 0, 1, ...: to
        simulate sites that fail or come late.

    Raises
    ------
    ValueError
        If two sites have one name, or there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster.core import Data, State
    >>> from fedcluster.algorithms import Lloyd
    >>> engine = LocalEngine(Client(name, Data(np.arange(4.0)[:, None])) for name in "ba")
    >>> [answers] = engine.ask([Task(Lloyd(), State.at([[0.0], [3.0]]))])
    >>> list(answers.by_site), answers.total().weights
    (['a', 'b'], array([4., 4.]))
    """

    def __init__(
        self,
        clients: Iterable[Client | Relay],
        *,
        workers: int | None = None,
        silent: Callable[[str, int], bool] | None = None,
    ) -> None:
        given = sorted(clients, key=attrgetter("name"))
        if not given:
            raise ValueError("no site was given")
        by_name = {client.name: client for client in given}
        if len(by_name) < len(given):
            [(name, _), *_] = Counter(client.name for client in given).most_common(1)
            raise ValueError(f"two sites have the same name: {name!r}")
        self.clients = cast(dict[str, Client], by_name)  # or relays, which stand for clients here
        self.workers = workers or os.cpu_count() or 1
        self._silent = silent
        self._rounds = 0
        self._asked: Asked | None = None

    def introduce(
        self,
        *,
        columns: bool = False,
        texts: Collection[str] = (),
        labels: bool = False,
        steps: Sequence[PlannedStep] = (),
    ) -> tuple[SiteInfo, ...]:
        """Return what the sites tell of themselves, see `Engine`; opens their rows.

        A site in this process knows every step; a relay asks its sites.
        """
        sites = self._sites
        relayed = bool(steps) and any(isinstance(each, Relay) for each in self.clients.values())
        if not (columns or labels or relayed):
            return sites
        doing = "naming its labels, " if labels else "describing its columns, "
        asked = {"columns": columns, "texts": texts, "labels": labels}
        tell = methodcaller("introduce", **asked, **({"steps": steps} if relayed else {}))
        return tuple(at_site(client, doing, tell) for client in self.clients.values())

    @cached_property
    def _sites(self) -> tuple[SiteInfo, ...]:
        """What the sites tell without being asked for more."""
        opening = "opening its rows, "
        return tuple(at_site(c, opening, attrgetter("site")) for c in self.clients.values())

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Answer all tasks at each of the named sites, in the order of the names."""
        here, missing = self.clients, tuple[str, ...]()
        if sites is not None or self._silent is not None:
            asked = set(self.clients if sites is None else sites)
            if self._silent is not None:
                asked = {name for name in asked if not self._silent(name, self._rounds)}
            here = {name: client for name, client in self.clients.items() if name in asked}
            missing = tuple(name for name in self.clients if name not in asked)
        self._rounds += 1
        if self._asked is None or (self._asked.clients is not here and self._asked.clients != here):
            self._asked = Asked(here, tasks)
        return self._asked.ask(tasks, missing, self._each)

    def _each(self, clients: Sequence[Client], tasks: Sequence[Task]) -> list[list[Summary]]:
        """Ask each of some sites for itself, on threads where their rows are many enough."""
        sizes = sorted(at_site(client, tasks, _size) for client in clients)
        every = clients, repeat(tasks), repeat(methodcaller("answers", tasks))
        if self.workers > 1 and len(sizes) > 1 and sizes[-2] >= _WORTH_A_THREAD:
            with ThreadPoolExecutor(min(self.workers, len(clients))) as pool:
                return list(pool.map(at_site, *every))
        return list(map(at_site, *every))


def _size(client: Client | Relay) -> int:
    """Return how many numbers a site holds, loading them; 0 of a stream, with its own threads."""
    return 0 if isinstance(client, Relay) or client.streams else client.data.X.size


class PooledEngine:
    """Engine that asks any number of sites in this process, under one name.

    Every answer has the numbers of a `LocalEngine` with one client for each site; records of
    rounds stay small, because they know the crowd as one.

    Parameters
    ----------
    data : Data
        The rows of all sites.
    sites : array_like of shape (n,)
        The site of each row, a name or a number.
    filters : sequence of Filter, default=(MinRows(2),)
        What each site holds back.
    participation : float, default=1
        The fraction of the sites that take part in a round, a new sample each time. The
        ``participation`` of a run would choose among crowds.
    seed : int, default=0
        Makes the samples, as ``seed`` of `run_plan` does.

    Raises
    ------
    ValueError
        If ``sites`` has another length than the rows, or a site has no row of positive weight.

    Examples
    --------
    >>> from fedcluster.algorithms import Lloyd
    >>> from fedcluster.core import State
    >>> rows = Data(np.arange(8.0)[:, None])
    >>> engine = PooledEngine(rows, sites=[0, 1, 2, 3, 0, 1, 2, 3])
    >>> [answers] = engine.ask([Task(Lloyd(), State.at([[0.0], [7.0]]))])
    >>> list(answers.by_site), answers.total().weights
    (['4 sites'], array([4., 4.]))
    """

    def __init__(
        self,
        data: Data,
        sites: ArrayLike,
        filters: Sequence[Filter] = (MinRows(2),),
        *,
        participation: float = 1.0,
        seed: int = 0,
    ) -> None:
        if not 0 < participation <= 1:
            raise ValueError(f"participation must be above 0 and at most 1, not {participation}")
        self._names, self._bounds, self._data = _by_site(data, np.asarray(sites))
        self.name = f"{len(self._names)} sites"
        self.filters = tuple(filters)
        self._sampled, self._seed, self._rounds = participation, seed, 0
        smallest = max((f.n for f in self.filters if isinstance(f, MinRows)), default=0)
        self._heard = np.diff(self._bounds) >= smallest
        self._all = self._union(self._heard)

    def introduce(
        self,
        *,
        columns: bool = False,
        texts: Collection[str] = (),
        labels: bool = False,
        steps: Sequence[PlannedStep] = (),
    ) -> tuple[SiteInfo, ...]:
        """Return what the sites tell of themselves, as one site; they know every step."""
        site = self._all.introduce(columns=columns, texts=texts, labels=labels)
        limits = tuple(map(Limit.from_filter, self.filters))
        return (replace(site, limits=limits, n_rows=len(self._data)),)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Answer all tasks for this round's sample of the sites."""
        if sites is not None and self.name not in sites:
            return [Answers({}, (self.name,)) for _ in tasks]
        chosen = self._sample()
        return [self._answers(task, chosen) for task in tasks]

    def _sample(self) -> NDArray[np.bool_]:
        """Draw the sites that take part in this round, (n,) booleans."""
        chosen = np.zeros(len(self._names), dtype=bool)
        chosen[sampled(len(chosen), self._sampled, self._seed, self._rounds)] = True
        self._rounds += 1
        return chosen

    def _answers(self, task: Task, chosen: NDArray[np.bool_]) -> Answers:
        """Return all answers, as one where the server needs only their sum."""
        if not task.step.server_additive:
            return _Separate.from_answers(self.name, list(self._one_by_one(task, chosen)))
        alike = all(isinstance(limit, MinRows) for limit in self.filters)
        if task.step.client_additive and alike and (chosen & self._heard).any():
            return Answers({self.name: self._at_once(task, chosen & self._heard)})
        return Answers({self.name: Summary.total(self._one_by_one(task, chosen))})

    def _at_once(self, task: Task, chosen: NDArray[np.bool_]) -> Summary:
        """Return the answer of the union of sites."""
        every = bool((chosen == self._heard).all())
        union = self._all if every else self._union(chosen)
        return at_site(union, [task], Client.answer, task)

    def _union(self, chosen: NDArray[np.bool_]) -> Client:
        """Return sites as one client, whose limits have been seen to."""
        rows = np.repeat(chosen, np.diff(self._bounds))
        return Client(self.name, self._data if rows.all() else self._data.take(rows), filters=())

    def _one_by_one(self, task: Task, chosen: NDArray[np.bool_]) -> Iterator[Summary]:
        """Compute each site's own answer, in the order of the names."""
        for i in np.flatnonzero(chosen):
            rows = self._data.take(slice(self._bounds[i], self._bounds[i + 1]))
            client = Client(self._names[i], rows, self.filters)
            yield at_site(client, [task], Client.answer, task)


@dataclass(frozen=True, slots=True, eq=False)
class _Separate(Answers):
    """Answers that must not be added, recorded as one: all their lines."""

    each: Sequence[Summary] = ()

    @classmethod
    def from_answers(cls, name: str, each: Sequence[Summary]) -> _Separate:
        """Record answers under one name."""
        lines = Summary(
            np.concatenate([answer.sums for answer in each]),
            np.concatenate([answer.weights for answer in each]),
        )
        return cls({name: lines}, each=each)

    @property
    def summaries(self) -> list[Summary]:
        """Return the answers alone."""
        return list(self.each)


def _by_site(data: Data, sites: NDArray[Any]) -> tuple[list[str], NDArray[np.intp], Data]:
    """Return the sites' names in order, where the rows of each begin and end, and the rows."""
    if sites.shape != (len(data),):
        raise ValueError(f"sites has shape {sites.shape}, but there are {len(data)} rows")
    names, place = numbered(sites)
    if data.sample_weight is not None:
        place, data = place[data.sample_weight > 0], data.weighed()
    counts = np.bincount(place, minlength=len(names))
    if not counts.all():
        empty = str(names[np.argmin(counts)])
        raise ValueError(f"site {empty!r} has no row of positive weight")
    if (np.diff(place) < 0).any():
        data = data.take(np.argsort(place, kind="stable"))
    return names.tolist(), np.concatenate([[0], np.cumsum(counts)]), data
