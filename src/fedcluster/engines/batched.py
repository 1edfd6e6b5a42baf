"""Sites whose rows lie one after another in one table: clients are created when looked up.

Many small sites in one process are asked at once, with the same bits as if each were asked, in far
less time.

For a site of a hundred rows, most of the time of an answer is overhead. So the rows of all such
sites are stored one after another. Compiled code computes the sums of each site, applies the site's
limits, and either adds the sums exactly or puts them side by side in the order of the sites, as the
server of the step would. The size of each site's message is counted; a single site's answer is
computed only on request.

This works for the steps below, which take most of the rounds of a fit. All other steps are asked of
each site.

An engine that holds all sites in this process.

It serves for simulations, for one owner of many files, and as a test double.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from itertools import pairwise, starmap
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple, TypeVar, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.algorithms import FKM, Lloyd, SiteSummaries, VarianceTree
from fedcluster.algorithms.summaries import Points
from fedcluster.algorithms.variance_tree import leaves, pass_number
from fedcluster.core import (
    MOST_FOR_A_ROW,
    Answers,
    Data,
    Floats,
    Introduction,
    SiteInfo,
    Step,
    Summary,
    Task,
    lexicographic,
)
from fedcluster.core.exact import canonical
from fedcluster.core.task import stream
from fedcluster.core.threads import on_threads, thread_count
from fedcluster.engines.client import NO_ROW, ONE_THREAD, Client, SharedLog
from fedcluster.errors import SiteError
from fedcluster.frames.inputs import places_of
from fedcluster.kernels import nearest
from fedcluster.kernels.rows import (
    as_centers,
    as_double_rows,
    as_given_weights,
    as_rows,
    as_weights,
    known_leaves,
    next_cuts,
    pad,
)
from fedcluster.kernels.runtime import compiled_loops
from fedcluster.kernels.seeding import default_trials
from fedcluster.kernels.site_sums import (
    Draws,
    ExactAccumulator,
    Sites,
    Totals,
    add_leaf_sums_of_sites,
    add_lines,
    add_sums_of_sites,
    columns_of_sites,
    empty_accumulator,
    lloyd_at_sites,
    may_exceed,
    means_of_sites,
    planes_of,
)
from fedcluster.metrics import Inertia
from fedcluster.metrics.moments import row_weights
from fedcluster.options.refusals import RefusedError
from fedcluster.privacy.disclosure import USUAL, Disclosure, SiteRules, SizeLimits

OWN = {"name", "n_rows", "weight"}
"""Facts that differ between the sites of a table."""
SHARED = {"limits", "streams", "columns", "labels", "answered", "n_columns", "secure"}
SHARED |= {"total_rows", "log", "refuses", "left", "sends", "is_partition"}
"""Facts that are common to all sites. If there are other facts, each client reports its own."""


class Stacked(Mapping[str, Client]):
    """Clients of sites that share a table and their limits, each created when it is looked up.

    Their facts, and what left them, are computed for all at once: for a site of ten rows, creating
    its client takes longer than adding its rows.

    Parameters
    ----------
    names : sequence of str
        The names of the sites, in their order.
    rows : Data
        Their rows.
    bounds : ndarray of shape (s + 1,)
        The rows of site i are those from ``bounds[i]`` to ``bounds[i + 1]`` of all, site by site.
    filters : sequence of Filter, or Disclosure
        The rules of each site on what leaves it.
    order : ndarray of shape (n,), optional
        The position of each row in the original table.
    are_sorted : bool, default=True
        Whether ``rows`` lie in this order already, instead of in that of the original table.

    Examples
    --------
    >>> sites = Stacked.of(Data(np.arange(5.0)[:, None]), ["b", "a", "b", "a", "b"], ())
    >>> sites["b"].data.X.ravel(), [site.n_rows for site in sites.infos()]
    (array([0., 2., 4.]), [2.0, 3.0])
    """

    sites_at_once: int = 1 << 14
    """Sites whose rows are copied for the kernels at once; more of them are asked in blocks. A
    block of so many takes megabytes, and some milliseconds more than its share of one table."""

    def __init__(
        self,
        names: Sequence[str],
        rows: Data,
        bounds: NDArray[np.intp],
        filters: SiteRules,
        order: NDArray[np.intp] | None = None,
        *,
        are_sorted: bool = True,
    ) -> None:
        self.names, self.rows, self.bounds = tuple(names), rows, bounds
        self.order = np.arange(len(rows)) if order is None else order
        self.disclosure, self.log = Disclosure.of(filters), SharedLog(len(bounds) - 1)
        self._are_sorted, self._made = are_sorted, dict[str, Client]()

    @classmethod
    def of(cls, data: Data, sites: ArrayLike, filters: SiteRules) -> Stacked:
        """Return the sites of one table of rows; see `LocalEngine.from_table`."""
        names, order, bounds = places_of(sites, len(data))
        if data.sample_weight is not None:
            some = data.sample_weight[order] > 0
            counts = np.add.reduceat(some, bounds[:-1], dtype=np.intp)
            if not counts.all():
                raise ValueError(f"site {names[np.argmin(counts)]!r}: {NO_ROW}")
            order, bounds = order[some], np.append(0, np.cumsum(counts))
        is_in_order = len(order) == len(data) and bool((np.diff(order) > 0).all())
        return cls(names, data, bounds, filters, order, are_sorted=is_in_order)

    @cached_property
    def data(self) -> Data:
        """The rows of all sites, one site after another."""
        return self._rows_of(0, len(self))

    def _rows_of(self, first: int, stop: int) -> Data:
        """Return the rows of the sites from one to another."""
        some = slice(*self.bounds[[first, stop]].tolist())
        return self.rows.take(some if self._are_sorted else self.order[some])

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def __getitem__(self, name: str) -> Client:
        if name not in self._made:
            place = self._places[name]
            client = Client(name, self._rows_of(place, place + 1), self.disclosure)
            client.share(self.log, place, since=0)
            self._made[name] = client
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Return the number of rows of each site, (s,)."""
        return np.diff(self.bounds)

    def share(self) -> None:
        """Log what leaves the sites in one shared log from now on."""
        for name, client in self._made.items():
            client.share(self.log, self._places[name])

    def infos(self) -> tuple[SiteInfo, ...]:
        """Return the metadata that each site reports without a specific request."""
        is_known = {each.name for each in fields(SiteInfo)} == SHARED | OWN
        if not is_known or self.disclosure.groups is not None:
            return tuple(client.site for client in self.values())
        first = self[self.names[0]].site
        shared = {name: getattr(first, name) for name in SHARED}
        sizes = self.sizes.astype(float).tolist()
        weights = sizes
        if self.rows.sample_weight is not None:
            of_rows = np.asarray(self.data.sample_weight)
            weights = [float(of_rows[a:b].sum()) for a, b in pairwise(self.bounds.tolist())]
        own = zip(self.names, sizes, weights, strict=True)
        return tuple(SiteInfo(name, n_rows=n, weight=w, **shared) for name, n, w in own)

    def blocks(self, limits: SizeLimits) -> Iterator[StackedRows]:
        """Yield the tables of at most `sites_at_once` sites each, of about as many sites."""
        edges = np.linspace(0, len(self), -(-len(self) // self.sites_at_once) + 1).round()
        for first, stop in pairwise(edges.astype(int).tolist()):
            bounds = self.bounds[first : stop + 1] - self.bounds[first]
            rows = self._rows_of(first, stop)
            yield StackedRows.laid(self.names[first:stop], rows, bounds, limits)

    def most(self, what: str) -> dict[str, int]:
        """Return ``most_lone_rows`` or ``most_rows_held_back`` for the client of each site."""
        _, lone_rows, held_back = self.log.most
        most = {"most_lone_rows": lone_rows, "most_rows_held_back": held_back}[what]
        found = dict(zip(self.names, np.minimum(most, self.sizes).tolist(), strict=True))
        return found | {name: getattr(client, what) for name, client in self._made.items()}


T = TypeVar("T")


Sent = NDArray[np.int64]
"""Number of lines, lone rows and rows held back for each site, (3, s)."""


class Joined(NamedTuple):
    """What all sites sent, taken together.

    Attributes
    ----------
    summary : Summary
        The exact sum of the answers; for a step whose server needs each answer, all lines.
    sent : ndarray of shape (3, s)
        The counts of what left each site, see `Sent`.
    may_be_too_large : bool
        Whether some site's answer may be too large, so that each has to be checked.
    """

    summary: Summary
    sent: Sent
    may_be_too_large: bool

    @classmethod
    def alone(cls, answer: Summary) -> Joined:
        """Return what a single site sent."""
        n_lines = np.count_nonzero(answer.weights)
        return cls(answer, np.array([[n_lines], [0], [0]]), answer.is_too_large)

    @classmethod
    def of(cls, parts: Sequence[Joined], step: Step) -> Joined:
        """Return what the sites of several blocks sent, in the order of the blocks."""
        each, is_any = [part.summary for part in parts], any(p.may_be_too_large for p in parts)
        if step.server_additive:
            summary = Summary.total(each)
        else:
            sums, weights = zip(*((answer.sums, answer.weights) for answer in each), strict=True)
            summary = Summary(np.concatenate(sums), np.concatenate(weights))
        return cls(summary, np.concatenate([part.sent for part in parts], axis=1), is_any)

    @property
    def width(self) -> int:
        """Number of values in a line."""
        return int(self.summary.sums.shape[1]) + 1


@dataclass(frozen=True, eq=False)
class StackedRows:
    """Rows of many sites, one site after another.

    Parameters
    ----------
    names : collection of str
        The names of the sites.
    data : Data
        The rows.
    padded : ndarray of shape (n + PADDING, d)
        The padded rows.
    sites : Sites
        The position of each site's rows, and what its limits permit.
    """

    names: Collection[str]
    data: Data
    padded: NDArray[Any]
    sites: Sites

    @classmethod
    def laid(
        cls, names: Collection[str], data: Data, bounds: NDArray[np.intp], limits: SizeLimits
    ) -> StackedRows:
        """Return the table of sites whose rows lie one after another."""
        padded = pad(as_rows(data.X))
        sites = Sites(bounds, np.diff(bounds) >= limits.rows, limits.line)
        return cls(names, Data(padded[: bounds[-1]], data.sample_weight), padded, sites)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Return the number of rows of each site, (s,)."""
        return np.diff(self.sites.bounds)

    @cached_property
    def canonical(self) -> StackedRows:
        """Return the table with the rows of each site in lexicographic order."""
        weights = [] if self.data.sample_weight is None else [self.data.sample_weight]
        # a radix sort of 16-bit integers takes a tenth of the time
        few = np.min_scalar_type(len(self.names))
        place = np.repeat(np.arange(len(self.names), dtype=few), self.sizes)
        data = self.data.take(lexicographic([*self.data.X.T, *weights], place))
        return StackedRows(self.names, data, pad(data.X), self.sites)

    @cached_property
    def points(self) -> tuple[Floats, Floats]:
        """The rows in float64, and the columns of each site, for k-means at the sites."""
        points = as_double_rows(self.padded)
        columns = columns_of_sites(points, self.sites.bounds)
        columns.flags.writeable = False
        return points, columns


def _lloyd(task: Task, table: StackedRows, accumulator: ExactAccumulator) -> Sent:
    weights, centers = as_weights(table.data.sample_weight), as_centers(task.state.centers)
    return add_sums_of_sites(table.padded, weights, table.sites, centers, accumulator)


def _tree(task: Task, table: StackedRows, accumulator: ExactAccumulator) -> Sent:
    if pass_number(task.state):
        return _lloyd(task, table, accumulator)
    cuts, reference = leaves(task.state, table.data.X.shape[1])
    known, places = known_leaves(table.data.cache, cuts, len(table.data))
    following = next_cuts(cuts, len(reference), known)
    weights, rows = as_weights(table.data.sample_weight), table.data.X
    arguments = reference, cuts, following, places
    sent = add_leaf_sums_of_sites(rows, weights, table.sites, *arguments, accumulator)
    table.data.cache["leaf_sums"] = cuts, places
    return sent


def _inertia(task: Task, table: StackedRows, accumulator: ExactAccumulator) -> Sent:
    _, squared = nearest(table.data.X, task.state.centers)
    (bounds, responding, least), sizes = table.sites, table.sizes
    leaves, weight = responding & (sizes >= least), row_weights(table.data)
    site = np.repeat(np.arange(len(sizes)), sizes)  # added in order, as by the step itself
    totals, own = np.bincount(site, squared * weight), sizes
    if table.data.sample_weight is not None:
        own = np.array([weight[i:j].sum() for i, j in pairwise(bounds.tolist())])
    add_lines(np.column_stack([totals, own])[leaves], accumulator)
    return np.stack([leaves, leaves & (sizes == 1), np.where(leaves, 0, sizes)]).astype(np.int64)


ADDED: dict[type[Step], Callable[[Task, StackedRows, ExactAccumulator], Sent]] = {
    Lloyd: _lloyd,
    VarianceTree: _tree,
    Inertia: _inertia,
}
"""How the answers of all sites are added, for exactly these types: subclasses may add others."""


def _add(task: Task, table: StackedRows) -> Joined:
    """Return the exact sum of the answers of all sites, and the counts of what left each."""
    # the squared errors of this pass are part of no answer
    adds_errors = type(task.step) is VarianceTree and pass_number(task.state)
    lines, p = task.step.answer_shape(task.state, table.data.X.shape[1])
    accumulator = empty_accumulator(lines or 0, p + 1 + bool(adds_errors))
    sent, planes = ADDED[type(task.step)](task, table, accumulator), planes_of(accumulator)
    if adds_errors:
        planes = [np.delete(plane, -2, axis=1) for plane in planes]
    total = Summary.from_planes(canonical(planes))
    return Joined(total, sent, may_exceed(accumulator, MOST_FOR_A_ROW))


def _means(task: Task, table: StackedRows) -> Joined:
    """Return the clusters of each site, one site after another; see `SiteSummaries`."""
    step, table = task.step, table.canonical
    assert isinstance(step, SiteSummaries)
    most = np.minimum(np.maximum(1, table.sizes // step.rows_per_mean), table.sizes)
    draws = _draws(task, table.names, np.minimum(step.n_means, most))
    weights = as_given_weights(as_weights(table.data.sample_weight), len(table.data))
    X, (points, columns), how = table.padded, table.points, (SiteSummaries.passes, 1e-4, True)

    def describe(some: slice, sites: Sites) -> Totals:
        edges = slice(some.start, some.stop + 1)
        mine = Draws(draws.n_means[some], draws.begins[edges], draws.chances)
        return means_of_sites(X, points, columns, weights, sites, mine, step.min_rows, how)

    return _beside(table, describe)


def _iterated(task: Task, table: StackedRows) -> Joined:
    """Return the clusters of each site after one iteration, site after site; see `FKM`."""
    weights = as_given_weights(as_weights(table.data.sample_weight), len(table.data))
    centers, how = as_centers(task.state.centers), (1, 0.0, True)
    return _beside(table, lambda _, at: lloyd_at_sites(table.padded, weights, at, centers, how))


def _beside(table: StackedRows, of_part: Callable[[slice, Sites], Totals]) -> Joined:
    """Return the lines of all sites, computed for some sites at a time."""
    bounds, responding, least = table.sites

    def totals(some: slice) -> Totals:
        return of_part(some, Sites(bounds[some.start : some.stop + 1], responding[some], least))

    sums, weight, sent = zip(*on_threads(totals, _parts(bounds)), strict=True)
    lines = Summary(np.concatenate(sums), np.concatenate(weight))
    return Joined(lines, np.concatenate(sent, axis=1), lines.is_too_large)


def _parts(bounds: NDArray[np.intp], *, part_rows: int = 2048) -> list[slice]:
    """Divide sites, in order, into parts with about as many rows each.

    ``part_rows``: number of rows of the sites that one thread describes before it takes others.
    """
    begins = np.searchsorted(bounds, np.arange(0, bounds[-1], part_rows))
    places = np.unique(np.append(begins, len(bounds) - 1)).tolist()
    return list(starmap(slice, pairwise(places)))


def _draws(task: Task, names: Iterable[str], n_means: NDArray[np.intp]) -> Draws:
    """Return each site's draws from its own stream, as `kmeans` would draw them there."""
    sizes = [k * default_trials(k) for k in n_means.tolist()]
    streams = (stream(task.seed, task.state.round, name) for name in names)
    chances = [rng.random(size) for rng, size in zip(streams, sizes, strict=True)]
    return Draws(n_means, np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(chances))


AT_ONCE: dict[type[Step], Callable[[Task, StackedRows], Joined]] = {
    **dict.fromkeys(ADDED, _add),
    SiteSummaries: _means,
    FKM: _iterated,
}
"""Functions that compute the answers of all sites to a step at once."""


class Batch:
    """Small sites that differ in their rows only, and are asked at once.

    Parameters
    ----------
    clients : mapping of str to Client
        The sites, all of the same `kind_of`, by name and sorted by name.
    limits : SizeLimits
        Their limits.
    """

    fewest = 8  # number of sites from which on asking them at once pays off
    fewest_of_fkm = 2  # the same for `FKM`, whose client step is slow

    def __init__(self, clients: Mapping[str, Client], limits: SizeLimits) -> None:
        self.clients, self._limits = clients, limits
        self._tables: list[tuple[Any, StackedRows]] = []
        if isinstance(clients, Stacked):
            self._log = clients.log
            clients.share()
        else:
            self._log = SharedLog(len(clients))
            for place, client in enumerate(clients.values()):
                client.share(self._log, place)

    def ask(self, tasks: Sequence[Task]) -> dict[int, Joined]:
        """Return all sites' answers to the tasks that can be asked at once, by task position."""
        some = {i: t for i, t in enumerate(tasks) if _pays_off(t, len(self.clients))}
        large = self.clients if isinstance(self.clients, Stacked) else None
        if large is not None and len(large) <= large.sites_at_once:
            large = None
        whole = {i for i, task in some.items() if large is None or task.preprocessor is not None}
        joined = _at_once({i: (some[i], self._table(some[i])) for i in whole})
        if large is not None and (parts := {i: some[i] for i in some.keys() - whole}):
            tables = large.blocks(self._limits)
            each = [_at_once({i: (task, table) for i, task in parts.items()}) for table in tables]
            every = set.intersection(*map(set, each))
            joined |= {i: Joined.of([one[i] for one in each], tasks[i].step) for i in every}
        for i in sorted(joined):
            self._log.append(tasks[i], joined[i].width, joined[i].sent)
        return joined

    def _table(self, task: Task) -> StackedRows:
        """Return the rows prepared for a task, kept for the next task."""
        for how, table in self._tables:
            if how is task.preprocessor or how == task.preprocessor:
                return table
        table = StackedRows.laid(self.clients, *self._laid(task), self._limits)
        self._tables = [*self._tables[-1:], (task.preprocessor, table)]
        return table

    def _laid(self, task: Task) -> tuple[Data, NDArray[np.intp]]:
        """Return the sites' rows prepared for a task, concatenated, and where each site begins."""
        if isinstance(self.clients, Stacked) and task.preprocessor is None:
            return self.clients.data, self.clients.bounds
        parts = [at_site(c, [task], lambda c: c.rows_for(task)) for c in self.clients.values()]
        weights, X = None, np.concatenate([part.X for part in parts])
        if any(part.sample_weight is not None for part in parts):
            weights = np.concatenate([row_weights(part) for part in parts])
        return Data(X, weights), np.concatenate([[0], np.cumsum([len(part.X) for part in parts])])


def _at_once(asked: Mapping[int, tuple[Task, StackedRows]]) -> dict[int, Joined]:
    """Return the answers of the sites of tables to those of their tasks that they fit."""
    able = [i for i, (task, table) in asked.items() if _fits(task, table)]
    joined = on_threads(lambda i: AT_ONCE[type(asked[i][0].step)](*asked[i]), able)
    return dict(zip(able, joined, strict=True))


def _pays_off(task: Task, n_sites: int) -> bool:
    """Return whether a task is asked of all sites at once if their rows permit."""
    step = task.step
    if type(step) not in AT_ONCE or task.resampled is not None or task.noise is not None:
        return False
    if isinstance(step, FKM) and not (step.is_published and len(task.state.centers)):
        return False
    fewest = Batch.fewest_of_fkm if isinstance(step, FKM) else Batch.fewest
    return n_sites >= fewest and compiled_loops.pay_off(n_sites)


def _fits(task: Task, table: StackedRows) -> bool:
    """Return whether a task can be asked of all sites at once."""
    if isinstance(task.step, SiteSummaries) and table.sizes.max() > Points.most_rows:
        return False
    centers = task.state.centers
    return not len(centers) or centers.shape[1] == table.data.X.shape[1]


Kind = tuple[int, Any, SizeLimits]
"""What sites that can be asked at once have in common: columns, their type, and limits."""


def kind_of(client: Any) -> Kind | None:
    """Return what a small site has in common with others; None if it must be asked separately."""
    if not isinstance(client, Client) or client.streams:
        return None
    data, limits = client.data, client.disclosure.sizes
    if data.X.size > ONE_THREAD or data.groups is not None or limits is None:
        return None
    return data.X.shape[1], data.X.dtype, limits


def _batches(clients: Mapping[str, Client], tasks: Sequence[Task]) -> list[tuple[Batch, Places]]:
    """Return the batches of sites that are asked at once, with their positions among all sites."""
    are_many = len(clients) >= Batch.fewest_of_fkm
    if isinstance(clients, Stacked) and are_many and clients.rows.groups is None:
        limits, largest = clients.disclosure.sizes, clients.sizes.max()
        if limits is not None and largest * clients.rows.X.shape[1] <= ONE_THREAD:
            return [(Batch(clients, limits), np.arange(len(clients)))]
    kinds: dict[Kind | None, list[int]] = {}
    every = list(clients.items())
    for place, (_, client) in enumerate(every):
        kinds.setdefault(at_site(client, tasks, kind_of), []).append(place)
    return [
        (Batch(dict(every[place] for place in places), kind[2]), np.array(places))
        for kind, places in kinds.items()
        if kind is not None and len(places) >= Batch.fewest_of_fkm
    ]


class Asked:
    """The sites asked in a round: batches of small ones, and single others.

    Parameters
    ----------
    clients : mapping of str to Client
        The sites by name, sorted by name.
    tasks : sequence of Task
        The first tasks that they are asked, to be named in an error.
    """

    def __init__(self, clients: Mapping[str, Client], tasks: Sequence[Task]) -> None:
        self.clients, self._batches = clients, _batches(clients, tasks)
        self._alone: list[Client] = []
        if sum(len(places) for _, places in self._batches) < len(clients):
            batched = {name for batch, _ in self._batches for name in batch.clients}
            self._alone = [client for name, client in clients.items() if name not in batched]

    def ask(
        self, tasks: Sequence[Task], missing: tuple[str, ...], workers: int = 1
    ) -> list[Answers]:
        """Return the answers to all tasks, computed in several threads if that pays off."""
        joined = [batch.ask(tasks) for batch, _ in self._batches]
        alone = [(self._alone, [*range(len(tasks))])]
        for (batch, _), done in zip(self._batches, joined, strict=True):
            if left := [t for t in range(len(tasks)) if t not in done]:
                alone.append(([*batch.clients.values()], left))
        own: list[dict[str, Summary]] = [{} for _ in tasks]
        for clients, places in alone:
            some = [tasks[t] for t in places]
            if workers > 1 and _two_are_large(clients, some):
                answers = partial(at_site, doing=some, do=methodcaller("answers", some))
                with ThreadPoolExecutor(min(workers, len(clients))) as pool:
                    replies = list(pool.map(answers, clients))
            else:
                replies = []
                for client in clients:
                    with site_named(client, some):
                        replies.append(client.answers(some))
            for client, reply in zip(clients, replies, strict=True):
                for t, answer in zip(places, reply, strict=True):
                    own[t][client.name] = answer
        return [
            self._answers(task, [each.get(t) for each in joined], own[t], missing)
            for t, task in enumerate(tasks)
        ]

    def _answers(
        self,
        task: Task,
        joined: Sequence[Joined | None],
        own: Mapping[str, Summary],
        missing: tuple[str, ...],
    ) -> Answers:
        """Return all answers to a task, those of batches and those of single sites."""
        every = zip(self._batches, joined, strict=True)
        parts = [(places, each) for (_, places), each in every if each is not None]
        if not parts:
            return Answers({name: own[name] for name in self.clients}, missing)
        for i, name in enumerate(self.clients if own else ()):
            if name in own:
                parts.append((np.array([i]), Joined.alone(own[name])))
        each = AnswersOfEach(self.clients, task, own, lambda n: self.clients[n].computed(task))
        return BatchedAnswers(each, missing, parts=parts)


Places = NDArray[np.intp]
Part = tuple[Places, Joined]
"""What some sites sent, and their positions among all sites."""


@dataclass(frozen=True, eq=False)
class BatchedAnswers(Answers):
    """Answers that are already joined; a single one is computed on request.

    Parameters
    ----------
    parts : sequence of (ndarray of shape (s,), Joined)
        What some sites sent, and their positions among all sites.
    """

    by_site: AnswersOfEach
    parts: Sequence[Part] = field(kw_only=True)

    @property
    def answered(self) -> tuple[str, ...]:
        """Names of the sites that answered."""
        return tuple(self.by_site)

    @property
    def summaries(self) -> list[Summary]:
        """Return one summary that the server takes in place of those of all sites."""
        return [self._joined]

    @cached_property
    def _joined(self) -> Summary:
        """The exact sum of all answers; for a step whose server needs each, all their lines."""
        each = [joined.summary for _, joined in self.parts]
        if len(each) == 1:
            return each[0]
        if self.by_site.task.step.server_additive:
            return Summary.total(each)
        place = [np.repeat(places, joined.sent[0]) for places, joined in self.parts]
        order = np.argsort(np.concatenate(place), kind="stable")
        sums = np.concatenate([answer.sums[answer.weights > 0] for answer in each])
        weights = np.concatenate([answer.weights[answer.weights > 0] for answer in each])
        return Summary(sums[order], weights[order])

    @property
    def numbers_sent(self) -> NDArray[np.int64]:
        """Number of values that each site sent, (s,), in the order of `answered`."""
        numbers = np.empty(len(self.by_site), np.int64)
        for places, joined in self.parts:
            numbers[places] = joined.sent[0] * joined.width
        return numbers

    def too_large(self) -> list[str]:
        """Return the names of the sites whose answers are too large to continue with."""
        is_any = any(joined.may_be_too_large for _, joined in self.parts)
        return Answers.too_large(self) if is_any else []

    def total(self) -> Summary:
        """Return the exact sum of the answers, correctly rounded."""
        if self.by_site.task.step.server_additive:
            return self._joined
        return Summary.total(self.by_site.values())


@dataclass(frozen=True, slots=True, eq=False)
class AnswersOfEach(Mapping[str, Summary]):
    """Mapping of sites to their answers to one task, some of them computed on request."""

    names: Collection[str]
    task: Task
    own: Mapping[str, Summary]
    computed: Callable[[str], Summary]

    def __getitem__(self, name: str) -> Summary:
        return self.own[name] if name in self.own else self.computed(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def at_site(client: Any, doing: str | Sequence[Task], do: Callable[[Any], T]) -> T:
    """Call a function for a site; errors name the site and the current task."""
    with site_named(client, doing):
        return do(client)


@contextmanager
def site_named(client: Any, doing: str | Sequence[Task]) -> Iterator[None]:
    """Make errors in a block name a site and the current task."""
    try:
        yield
    except RefusedError:
        raise
    except Exception as error:
        if not isinstance(doing, str):
            steps = ", ".join(dict.fromkeys(type(task.step).__name__ for task in doing))
            doing = f"round {doing[0].state.round + 1}, {steps}: "
        what = f"{type(error).__name__}: {error}"
        raise SiteError(f"site {client.name!r}, {doing}{what}") from error


def _two_are_large(
    clients: Sequence[Any], tasks: Sequence[Task], *, worth_a_thread: int = 50_000
) -> bool:
    """Return whether at least two sites hold enough numbers to be worth a thread each.

    ``worth_a_thread``: size of the second largest site, in numbers, from which on a thread per site
    saves time.
    """
    sizes = (at_site(client, tasks, _size) for client in clients)
    return sum(size >= worth_a_thread for size in sizes) > 1


def _size(client: Any) -> int:
    """Return how many numbers a site holds, loading its rows; 0 for a stream."""
    return client.data.X.size if isinstance(client, Client) and not client.streams else 0


class LocalEngine:
    """Engine that asks clients in this process.

    Sites with enough rows run in parallel threads, and many small sites are asked at once; no bit
    of a result depends on this.

    Parameters
    ----------
    clients : iterable of Client, or Stacked
        The sites; their names must differ.
    workers : int, optional
        The largest number of threads; by default as many as the kernels use.
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
        self.workers = workers
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
        return batches.ask(tasks, missing, self.workers or thread_count())


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
