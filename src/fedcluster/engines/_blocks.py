"""A million small sites in one process, in blocks, as a simulation of who answers and when.

Sites have no names and no objects of their own: they are rows that lie one after another. Compiled
code makes each site's sums, holds back what its limits hold back, and adds the rest exactly, so the
bits do not depend on the blocks, and are those of a `LocalEngine` with one client for each site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from fedcluster._random import sampled, stream
from fedcluster.client import Client
from fedcluster.core import (
    Answers,
    Column,
    Data,
    Filter,
    Introduction,
    Limit,
    Rows,
    SiteInfo,
    Summary,
    Task,
)
from fedcluster.engines._crowd import ADDED, Table, bank_for, total_of
from fedcluster.errors import InputError
from fedcluster.privacy import MinClusterSize, MinRows

SITES_AT_ONCE = 1 << 14
"""Sites whose rows are copied at once."""

Places = NDArray[np.intp]
Block = tuple[Rows, Places]
"""Rows (n, d) of some sites, and where those of each begin and the last ends, (s + 1,)."""


class CrowdEngine:
    """Engine that asks very many small sites in this process, under one name.

    It answers steps that add (``server_additive``). For Lloyd, the variance tree and the inertia it
    takes well under a microsecond for a row; other steps are asked of each site, which takes some
    50 microseconds for each.

    Parameters
    ----------
    blocks : iterable of (ndarray of shape (n, d), ndarray of shape (s + 1,))
        Rows of some sites, one site after another, and the place at which each site begins, from 0
        to n. It is read anew in every round: a list of arrays, or an object that reads files.
    filters : sequence of Filter, default=(MinRows(2),)
        What each site holds back.
    participation : float, default=1
        The fraction of the sites that is asked in a round, a new sample each time.
    drop_outs : float, default=0
        The fraction of the asked sites that do not answer.
    late : float, default=0
        The fraction of the asked sites that answer too late. A late answer is dropped, as over a
        network, where it would belong to an earlier question; its site misses the next round, too.
    available : callable, optional
        ``available(r)`` says which sites can be asked in round r = 0, 1, ..., (sites,) booleans;
        the sample is drawn among them.
    seed : int, default=0
        Makes the samples, the drop-outs and the late answers.

    Attributes
    ----------
    n_sites, n_rows : int
        How many there are.
    n_asked, n_answered : list of int
        How many sites each round asked, and how many answered.
    answered : ndarray of shape (a,)
        The numbers, from 0, of the sites that answered in the last round.

    Raises
    ------
    ValueError
        If a fraction is out of range, or a block is none.

    Examples
    --------
    >>> from fedcluster import State, run
    >>> from fedcluster.algorithms import Lloyd
    >>> rows = np.random.default_rng(0).normal(size=(4000, 2)).round() * 9
    >>> engine = CrowdEngine([(rows, np.arange(0, 4001, 4))], participation=0.1, late=0.05)
    >>> result = run(Lloyd(), engine, State.at([[0.0, 0.0], [9.0, 9.0]]), max_rounds=3)
    >>> engine.n_sites, engine.n_asked, engine.n_answered
    (1000, [100, 100, 100], [93, 98, 98])
    """

    def __init__(
        self,
        blocks: Iterable[Block],
        filters: Sequence[Filter] = (MinRows(2),),
        *,
        participation: float = 1.0,
        drop_outs: float = 0.0,
        late: float = 0.0,
        available: Callable[[int], NDArray[np.bool_]] | None = None,
        seed: int = 0,
    ) -> None:
        if not 0 < participation <= 1:
            raise ValueError(f"participation must be above 0 and at most 1, not {participation}")
        if not (drop_outs >= 0 and late >= 0 and drop_outs + late < 1):
            raise ValueError("drop_outs and late must be at least 0, and below 1 together")
        self._blocks, self.filters, self._available = blocks, tuple(filters), available
        self._asked, self._lost, self._seed = participation, (drop_outs, late), seed
        shapes = [_shape_of(block) for block in blocks]
        if len({d for _, _, d in shapes}) != 1:
            raise ValueError("blocks must be given, whose rows have the same columns")
        self.n_sites, self.n_rows = (sum(shape[i] for shape in shapes) for i in (0, 1))
        self.name, self._n_columns = f"{self.n_sites} sites", shapes[0][2]
        self.answered = self._busy = np.zeros(0, np.intp)
        self.n_asked: list[int] = []
        self.n_answered: list[int] = []

    def introduce(self, **asked: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return what the sites tell of themselves, as one site whose rows come in chunks."""
        site = SiteInfo(
            self.name,
            tuple(map(Limit.from_filter, self.filters)),
            streams=True,
            n_rows=float(self.n_rows),
            weight=float(self.n_rows),
            n_columns=self._n_columns,
        )
        if asked.get("columns"):
            named = tuple(Column(f"x{j}") for j in range(self._n_columns))
            site = replace(site, columns=named)
        return (site,)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Answer all tasks for the sites that answer in this round.

        Raises
        ------
        InputError
            If a step does not add up, or is asked with noise.
        """
        for task in tasks:
            if not task.step.server_additive or task.noise is not None:
                raise InputError(
                    f"{type(task.step).__name__}: a crowd answers steps that add, without noise; "
                    "use sums_only=True"
                )
        self.answered = answering = self._answering()
        if (sites is not None and self.name not in sites) or not len(answering):
            return [Answers({}, (self.name,)) for _ in tasks]
        totals = [_Total.of(task, self._n_columns, self.filters) for task in tasks]
        for part in self._parts(answering):
            for total in totals:
                total.add(*part)
        return [total.answers(self.name) for total in totals]

    def _answering(self) -> Places:
        """Draw the sites that answer in this round, in their order."""
        number = len(self.n_asked)
        there = np.arange(self.n_sites)
        if self._available is not None:
            there = np.flatnonzero(self._available(number))
        asked = there[sampled(len(there), self._asked, self._seed, number)] if len(there) else there
        asked = np.setdiff1d(asked, self._busy, assume_unique=True)
        chance = stream(self._seed, number, "answers").random(len(asked))
        dropped, late = self._lost
        self._busy = asked[(chance >= dropped) & (chance < dropped + late)]
        answering = asked[chance >= dropped + late]
        self.n_asked.append(len(asked))
        self.n_answered.append(len(answering))
        return answering

    def _parts(self, answering: Places) -> Iterator[tuple[Rows, Places, Places]]:
        """Yield the rows of the sites that answer, their bounds, and their numbers."""
        before = 0
        for X, bounds in self._blocks:
            low, high = np.searchsorted(answering, [before, before + len(bounds) - 1])
            mine = answering[low:high] - before
            for start in range(0, len(mine), SITES_AT_ONCE):
                some = mine[start : start + SITES_AT_ONCE]
                yield *_taken(X, bounds, some), before + some
            before += len(bounds) - 1


def _shape_of(block: Block) -> tuple[int, int, int]:
    """Return how many sites, rows and columns a block has."""
    X, bounds = block
    steps = np.diff(bounds)
    if X.ndim != 2 or len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != len(X) or steps.min() < 1:
        raise ValueError(
            "a block has rows (n, d) and the places at which sites begin, from 0 to n, each with a "
            "row"
        )
    return len(steps), *X.shape


def _taken(X: Rows, bounds: Places, sites: Places) -> tuple[Rows, Places]:
    """Return the rows of some sites of a block, and their bounds."""
    sizes = bounds[sites + 1] - bounds[sites]
    ends = np.concatenate([[0], np.cumsum(sizes)])
    first, last = sites[0], sites[-1]
    if last - first + 1 == len(sites):
        return X[bounds[first] : bounds[last + 1]], ends
    return X[np.repeat(bounds[sites] - ends[:-1], sizes) + np.arange(ends[-1])], ends


@dataclass(slots=True)
class _Total:
    """Exact sum of the answers of sites to one task.

    Parameters
    ----------
    task : Task
        The task.
    filters : sequence of Filter
        What each site holds back.
    bank : Bank, optional
        The sums so far; None of a step that is asked of each site.
    summary : Summary, optional
        The total so far of such a step.
    lines, width : int
        Lines that left the sites, and numbers in each.
    """

    task: Task
    filters: Sequence[Filter]
    bank: Any = None
    summary: Summary | None = None
    lines: int = 0
    width: int = 0

    @classmethod
    def of(cls, task: Task, n_columns: int, filters: Sequence[Filter]) -> _Total:
        """Return the total of no site."""
        how = task.preprocessor
        d = n_columns if how is None else how.n_columns_out
        alike = {type(limit) for limit in filters} <= {MinRows, MinClusterSize}
        at_once = alike and type(task.step) in ADDED and task.resampled is None
        bank = bank_for(task, d) if at_once and (how is None or how.missing != "drop") else None
        return cls(task, filters, bank, width=task.step.answer_shape(task.state, d)[1] + 1)

    def add(self, X: Rows, bounds: Places, numbers: Places) -> None:
        """Add the answers of the sites with these numbers."""
        if self.bank is None:
            answers = list(self._one_by_one(X, bounds, numbers))
            self.summary = Summary.total(
                answers if self.summary is None else [self.summary, *answers]
            )
            return
        data = Data(X)
        if self.task.preprocessor is not None:
            data = self.task.preprocessor.apply(data)
        fewest = max((f.n for f in self.filters if isinstance(f, MinRows)), default=0)
        least = max((f.p for f in self.filters if isinstance(f, MinClusterSize)), default=0)
        table = Table.laid(data, bounds, fewest, least)
        self.lines += int(ADDED[type(self.task.step)](self.task, table, self.bank)[0].sum())

    def _one_by_one(self, X: Rows, bounds: Places, numbers: Places) -> Iterator[Summary]:
        """Compute each site's own answer."""
        for number, (start, stop) in zip(numbers.tolist(), pairwise(bounds.tolist()), strict=True):
            answer = Client(str(number), Data(X[start:stop]), self.filters).answer(self.task)
            self.lines += int(np.count_nonzero(answer.weights))
            yield answer

    def answers(self, name: str) -> Answers:
        """Return the total as the answer of one site."""
        total = self.summary if self.bank is None else total_of(self.task, self.bank)
        assert total is not None
        return _Counted({name: total}, n_sent=self.lines * self.width)


@dataclass(frozen=True, slots=True, eq=False)
class _Counted(Answers):
    """Total of many sites, and how many numbers they sent."""

    n_sent: int = 0

    @property
    def numbers_sent(self) -> NDArray[np.int64]:
        """How many numbers the sites sent together, (1,)."""
        return np.full(len(self.by_site), self.n_sent)
