"""Very many small sites in one array: for simulation.

By the law, the answers of sites add up to the answer of all their rows together. So where a step
is additive, and the sites' only limit is a smallest number of rows, one call answers for all of
them. Otherwise each site answers for itself, and where the sum is all that the server needs,
only the sum is kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster._random import sampled
from fedcluster.client import Client
from fedcluster.core import Answers, Data, Filter, Limit, SiteInfo, Summary, Task
from fedcluster.engines._local import AtSite
from fedcluster.privacy import MinRows


class PooledEngine:
    """Ask any number of sites in this process, under one name.

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
        self, *, columns: bool = False, texts: Collection[str] = (), labels: bool = False
    ) -> tuple[SiteInfo, ...]:
        """Return what the sites tell of themselves, as one site."""
        site = SiteInfo(
            self.name,
            tuple(map(Limit.from_filter, self.filters)),
            columns=self._all.describe(texts) if columns else (),
            labels=self._all.classes() if labels else None,
            n_rows=len(self._data),
        )
        return (site,)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Answer all tasks for this round's sample of the sites."""
        if sites is not None and self.name not in sites:
            return [Answers({}, (self.name,)) for _ in tasks]
        chosen = self._sample()
        return [self._answers(task, chosen) for task in tasks]

    def _sample(self) -> NDArray[np.bool_]:
        """Whether each site takes part in this round."""
        chosen = np.zeros(len(self._names), dtype=bool)
        chosen[sampled(len(chosen), self._sampled, self._seed, self._rounds)] = True
        self._rounds += 1
        return chosen

    def _answers(self, task: Task, chosen: NDArray[np.bool_]) -> Answers:
        """All answers as one where the server needs only their sum."""
        if not task.step.server_additive:
            return _Separate.from_answers(self.name, list(self._one_by_one(task, chosen)))
        alike = all(isinstance(limit, MinRows) for limit in self.filters)
        if task.step.client_additive and alike and (chosen & self._heard).any():
            return Answers({self.name: self._at_once(task, chosen & self._heard)})
        return Answers({self.name: reduce(add, self._one_by_one(task, chosen))})

    def _at_once(self, task: Task, chosen: NDArray[np.bool_]) -> Summary:
        """The answer of the union of sites."""
        every = bool((chosen == self._heard).all())
        union = self._all if every else self._union(chosen)
        with AtSite(union, [task]):
            return union.answer(task)

    def _union(self, chosen: NDArray[np.bool_]) -> Client:
        """Sites as one client, whose limits have been seen to."""
        rows = np.repeat(chosen, np.diff(self._bounds))
        return Client(self.name, self._data if rows.all() else self._data.take(rows), filters=())

    def _one_by_one(self, task: Task, chosen: NDArray[np.bool_]) -> Iterator[Summary]:
        """Each site's own answer, in the order of the names."""
        for i in np.flatnonzero(chosen):
            rows = self._data.take(slice(self._bounds[i], self._bounds[i + 1]))
            client = Client(self._names[i], rows, self.filters)
            with AtSite(client, [task]):
                yield client.answer(task)


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
        return cls({name: lines}, (), each)

    @property
    def summaries(self) -> list[Summary]:
        """The answers alone."""
        return list(self.each)


def _by_site(data: Data, sites: NDArray[Any]) -> tuple[list[str], NDArray[np.intp], Data]:
    """Names of the sites, in their order; where the rows of each begin and end; the rows."""
    if sites.shape != (len(data),):
        raise ValueError(f"sites has shape {sites.shape}, but there are {len(data)} rows")
    labels, number = np.unique(sites, return_inverse=True)
    names = labels.astype(str)
    by_name = np.argsort(names)
    place = np.argsort(by_name)[number]
    if data.sample_weight is not None:
        place, data = place[data.sample_weight > 0], data.weighed()
    counts = np.bincount(place, minlength=len(names))
    if not counts.all():
        empty = str(names[by_name[np.argmin(counts)]])
        raise ValueError(f"site {empty!r} has no row of positive weight")
    if (np.diff(place) < 0).any():
        data = data.take(np.argsort(place, kind="stable"))
    return names[by_name].tolist(), np.concatenate([[0], np.cumsum(counts)]), data
