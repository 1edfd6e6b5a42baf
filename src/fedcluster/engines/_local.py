"""Engines that hold all sites in this process.

`LocalEngine` serves for simulations, for one owner of many files, and as a test double.
`CrowdEngine` holds a million small sites in blocks, and simulates which sites answer and when.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import attrgetter, methodcaller
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.core import (
    Answers,
    Column,
    Data,
    Introduction,
    Rows,
    SiteInfo,
    Summary,
    Task,
)
from fedcluster.core.streams import sampled, stream
from fedcluster.engines.batched import Asked, Stacked, at_site
from fedcluster.engines.client import ONE_THREAD, Client
from fedcluster.errors import InputError
from fedcluster.privacy.disclosure import USUAL, Disclosure, SiteRules

SITES_AT_ONCE = 1 << 14
"""Number of a block's sites whose rows are copied at once."""

Places = NDArray[np.intp]
Block = tuple[Rows, Places]
"""Rows (n, d) of some sites, and the position of each site's first row, ending in n, (s + 1,)."""


class LocalEngine:
    """Engine that asks clients in this process.

    Sites with enough rows run in parallel threads, and many small sites are asked at once; no bit
    of a result depends on this.

    Parameters
    ----------
    clients : iterable of Client, or Stacked
        The sites; their names must differ.
    workers : int, optional
        The largest number of threads; by default one for each processor.
    silent : callable, optional
        ``silent(site, r)`` returns whether a site gives no answer in round r = 0, 1, ..., to
        simulate sites that fail or are late.

    Raises
    ------
    ValueError
        If two sites have the same name, or there is no site.

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
        clients: Iterable[Client] | Stacked,
        *,
        workers: int | None = None,
        silent: Callable[[str, int], bool] | None = None,
    ) -> None:
        self.clients: Mapping[str, Client] = (
            clients if isinstance(clients, Stacked) else _by_name(clients)
        )
        self.workers = workers or os.cpu_count() or 1
        self._silent = silent
        self._rounds = 0
        self._asked: Asked | None = None

    @classmethod
    def from_table(cls, data: Data, sites: ArrayLike, filters: SiteRules = USUAL) -> LocalEngine:
        """Return an engine of any number of sites whose rows are in one table.

        Its answers are those of one client per site, in far less time if sites are small.

        Parameters
        ----------
        data : Data
            The rows of all sites.
        sites : array_like of shape (n,)
            The site of each row, a name or a number.
        filters : sequence of Filter, or Disclosure, optional
            The limits of each site, or all its rules. By default `MinRows(2)`.

        Raises
        ------
        ValueError
            If the number of ``sites`` is not that of the rows, or a site has no row of positive
            weight.

        Examples
        --------
        >>> import numpy as np
        >>> from fedcluster.algorithms import Lloyd
        >>> from fedcluster.core import State
        >>> rows = Data(np.arange(8.0)[:, None])
        >>> engine = LocalEngine.from_table(rows, sites=[0, 1, 2, 3, 0, 1, 2, 3])
        >>> [answers] = engine.ask([Task(Lloyd(), State.at([[0.0], [7.0]]))])
        >>> list(answers.by_site), answers.total().weights
        (['0', '1', '2', '3'], array([4., 4.]))
        """
        return cls(Stacked.of(data, sites, filters))

    def introduce(self, **requested: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return the metadata of the sites; see `Engine`. This opens their rows.

        A site in this process knows every step.
        """
        labels = requested.get("labels")
        if not (requested.get("columns") or labels):
            return self._sites
        doing = "naming its labels, " if labels else "describing its columns, "
        tell = methodcaller("introduce", **requested)
        return tuple(at_site(client, doing, tell) for client in self.clients.values())

    @cached_property
    def _sites(self) -> tuple[SiteInfo, ...]:
        """Metadata that the sites report without a specific request."""
        if isinstance(self.clients, Stacked):
            return self.clients.infos()
        opening = "opening its rows, "
        return tuple(at_site(c, opening, attrgetter("site")) for c in self.clients.values())

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Answer all tasks at each of the named sites, in the order of the names."""
        here, missing = self.clients, tuple[str, ...]()
        if sites is not None or self._silent is not None:
            recipients = set(self.clients if sites is None else sites)
            if self._silent is not None:
                recipients = {name for name in recipients if not self._silent(name, self._rounds)}
            here = {name: self.clients[name] for name in self.clients if name in recipients}
            missing = tuple(name for name in self.clients if name not in recipients)
        self._rounds += 1
        batches = self._asked
        if batches is None or (batches.clients is not here and list(batches.clients) != list(here)):
            self._asked = batches = Asked(here, tasks)
        return batches.ask(tasks, missing, self.workers)


def _by_name(clients: Iterable[Client]) -> dict[str, Client]:
    """Return sites by name, sorted by name."""
    ordered = sorted(clients, key=attrgetter("name"))
    if not ordered:
        raise ValueError("no site was given")
    by_name = {client.name: client for client in ordered}
    if len(by_name) < len(ordered):
        [(name, _), *_] = Counter(client.name for client in ordered).most_common(1)
        raise ValueError(f"two sites have the same name: {name!r}")
    return by_name


class CrowdEngine:
    """Engine that asks very many small sites in this process, under one name.

    It answers additive steps (``server_additive``). For Lloyd, the variance tree and the inertia it
    takes well under a microsecond per row; other steps are asked of each site, which takes some 50
    microseconds per site.

    Parameters
    ----------
    blocks : iterable of (ndarray of shape (n, d), ndarray of shape (s + 1,)), or of callable
        Rows of some sites, one site after another, and the position at which each site begins, from
        0 to n; or a function that returns both. The iterable is read anew in every round: a list of
        arrays, or an object that reads files.
    filters : sequence of Filter, or Disclosure, optional
        The limits of each site, or all its rules. By default `MinRows(2)`.
    participation : float, default=1
        The fraction of the sites that is asked in a round, a new sample each time.
    drop_outs : float, default=0
        The fraction of the asked sites that do not answer.
    late : float, default=0
        The fraction of the asked sites that answer too late. A late answer is dropped, as over a
        network, where it would belong to an earlier question; its site misses the next round too.
    available : callable, optional
        ``available(r)`` returns which sites can be asked in round r = 0, 1, ..., as booleans
        (sites,); the sample is drawn from these.
    seed : int, default=0
        Determines the samples, the drop-outs and the late answers.
    executor : Executor, optional
        The executor that asks the blocks, such as the ``get_executor()`` of a Dask client, whose
        futures may be the blocks; by default this process, one block after another. It changes no
        bit of a result.

    Attributes
    ----------
    n_sites, n_rows : int
        The numbers of sites and of rows.
    n_asked, n_answered : list of int
        For each round, the number of sites asked and of sites that answered.
    answered : ndarray of shape (a,)
        The numbers, from 0, of the sites that answered in the last round.

    Raises
    ------
    ValueError
        If a fraction is out of range, or a block is not valid.

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
        blocks: Iterable[Block | Callable[[], Block]],
        filters: SiteRules = USUAL,
        *,
        participation: float = 1.0,
        drop_outs: float = 0.0,
        late: float = 0.0,
        available: Callable[[int], NDArray[np.bool_]] | None = None,
        seed: int = 0,
        executor: Executor | None = None,
    ) -> None:
        if not 0 < participation <= 1:
            raise ValueError(f"participation must be above 0 and at most 1, not {participation}")
        if not (drop_outs >= 0 and late >= 0 and drop_outs + late < 1):
            raise ValueError("drop_outs and late must be at least 0, and below 1 together")
        self._blocks, self._available = blocks, available
        self.disclosure = Disclosure.of(filters)
        self._asked, self._lost, self._seed = participation, (drop_outs, late), seed
        self._map = map if executor is None else executor.map
        shapes = list(self._map(_shape_of, blocks))
        if len({d for _, _, d in shapes}) != 1:
            raise ValueError("blocks must be given, whose rows have the same columns")
        self.n_sites, self.n_rows = (sum(shape[i] for shape in shapes) for i in (0, 1))
        self.name, self._n_columns = f"{self.n_sites} sites", shapes[0][2]
        self._begins = np.append(0, np.cumsum([shape[0] for shape in shapes]))
        self.answered = self._busy = np.zeros(0, np.intp)
        self.n_asked: list[int] = []
        self.n_answered: list[int] = []

    def introduce(self, **requested: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return the metadata of all sites, as of one site whose rows come in chunks."""
        site = SiteInfo(
            self.name,
            self.disclosure.stated,
            streams=True,
            n_rows=float(self.n_rows),
            weight=float(self.n_rows),
            n_columns=self._n_columns,
        )
        if requested.get("columns"):
            named = tuple(Column(f"x{j}") for j in range(self._n_columns))
            site = replace(site, columns=named)
        return (site,)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Answer all tasks on behalf of the sites that answer in this round.

        Raises
        ------
        InputError
            If a step is not additive, or is asked with noise.
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
        edges, begins = np.searchsorted(answering, self._begins), self._begins.tolist()
        mine = [
            answering[i:j] - start
            for (i, j), start in zip(pairwise(edges), begins[:-1], strict=True)
        ]
        question = _BlockQuestion(tuple(tasks), self.disclosure)
        parts = filter(None, self._map(question, self._blocks, begins[:-1], mine))
        return [_Counted({self.name: total}, n_sent=n) for total, n in reduce(_both, parts)]

    def _answering(self) -> Places:
        """Draw the sites that answer in this round, in order."""
        number = len(self.n_asked)
        there = np.arange(self.n_sites)
        if self._available is not None:
            there = np.flatnonzero(self._available(number))
        recipients = (
            there[sampled(len(there), self._asked, self._seed, number)] if len(there) else there
        )
        recipients = np.setdiff1d(recipients, self._busy, assume_unique=True)
        chance = stream(self._seed, number, "answers").random(len(recipients))
        dropped, late = self._lost
        self._busy = recipients[(chance >= dropped) & (chance < dropped + late)]
        answering = recipients[chance >= dropped + late]
        self.n_asked.append(len(recipients))
        self.n_answered.append(len(answering))
        return answering


@dataclass(frozen=True)
class _BlockQuestion:
    """A question to the sites of a block, wherever the block is stored."""

    tasks: Sequence[Task]
    disclosure: Disclosure

    def __call__(self, block: Any, before: int, mine: Places) -> list[tuple[Summary, int]]:
        """Return for each task the total over some sites, and the number of values they sent.

        Returns nothing if no site answers. Sites are named by their number among the sites of all
        blocks, ``before`` of which are in earlier blocks.
        """
        if not len(mine):
            return []
        asked = (LocalEngine(part).ask(self.tasks) for part in self._parts(block, before, mine))
        sent = ([(a.total(), int(a.numbers_sent.sum())) for a in each] for each in asked)
        return reduce(_both, sent)

    def _parts(self, block: Any, before: int, mine: Places) -> Iterator[Stacked | list[Client]]:
        """Yield the sites that answer, a part at a time, with large sites separate."""
        X, bounds = _made(block)
        is_large = np.diff(bounds)[mine] * X.shape[1] > ONE_THREAD
        if is_large.any():
            rows = {i: Data(X[bounds[i] : bounds[i + 1]]) for i in mine[is_large].tolist()}
            yield [Client(str(before + i), rows[i], self.disclosure) for i in rows]
            mine = mine[~is_large]
        for start in range(0, len(mine), SITES_AT_ONCE):
            some = mine[start : start + SITES_AT_ONCE]
            taken, ends = _taken(X, bounds, some)
            yield Stacked(before + some, Data(taken), ends, self.disclosure, is_block=True)


def _both(
    one: Sequence[tuple[Summary, int]], other: Sequence[tuple[Summary, int]]
) -> list[tuple[Summary, int]]:
    """Return the combined totals of two parts of the sites, and their number of values sent."""
    return [(Summary.total([a, b]), n + m) for (a, n), (b, m) in zip(one, other, strict=True)]


def _made(block: Any) -> Block:
    """Return a block, which may have to be created or read."""
    made: Block = block() if callable(block) else block
    return made


def _shape_of(block: Any) -> tuple[int, int, int]:
    """Return the numbers of sites, rows and columns of a block."""
    X, bounds = _made(block)
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


@dataclass(frozen=True, slots=True, eq=False)
class _Counted(Answers):
    """Total over many sites, with the number of values that they sent."""

    n_sent: int = 0

    @property
    def numbers_sent(self) -> NDArray[np.int64]:
        """Number of values that the sites sent together, (1,)."""
        return np.full(len(self.by_site), self.n_sent)
