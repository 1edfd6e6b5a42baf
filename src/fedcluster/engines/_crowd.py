"""Many small sites of one process, asked at once: the bits of asking each, in far less time.

For a site of a hundred rows, most of the time of an answer goes into what surrounds its sums. So
the rows of all such sites are laid one after another, compiled code makes the sums of each site,
holds back what the site's limits hold back, and adds them up exactly, or lays them side by side in
the order of the sites, as the server of the step would. What left each site is counted; its answer
itself is computed where somebody asks for it.

That is done for the steps below, which take most of the rounds of a fit; all others are asked of
each site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, starmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcluster._exact import canonical
from fedcluster._random import stream
from fedcluster.algorithms import Lloyd, SiteSummaries, VarianceTree
from fedcluster.algorithms.summaries import MOST_POINTS, PASSES
from fedcluster.algorithms.variance_tree import leaves, pass_number
from fedcluster.client import ONE_THREAD, Client, SharedLog
from fedcluster.core import (
    MOST_FOR_A_ROW,
    Answers,
    Data,
    Filter,
    Floats,
    Step,
    Summary,
    Task,
    lexicographic,
)
from fedcluster.engines._errors import at_site
from fedcluster.engines._stacked import Stacked
from fedcluster.kernels import nearest
from fedcluster.kernels._crowd import Draws, Sites, Totals, columns_of_sites, means_of_sites
from fedcluster.kernels._site_sums import (
    Bank,
    add_leaf_sums_of_sites,
    add_lines,
    add_sums_of_sites,
    empty_bank,
    may_exceed,
    planes_of,
)
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
from fedcluster.kernels.runtime import on_threads
from fedcluster.kernels.seeding import default_trials
from fedcluster.metrics import Inertia
from fedcluster.metrics.moments import row_weights
from fedcluster.privacy import MinClusterSize, MinRows

FEWEST = 8
"""Sites from which on it pays to ask them at once."""

PART_ROWS = 2048
"""Rows of the sites that one thread describes before it takes others."""


Sent = NDArray[np.int64]
"""Lines, lone rows and rows held back of each site, (3, s)."""


class Joined(NamedTuple):
    """What left all sites together.

    Attributes
    ----------
    summary : Summary
        The exact sum of the answers; of a step whose server needs each, all their lines.
    sent : ndarray of shape (3, s)
        What left each site.
    may_be_too_large : bool
        Whether there may be a site whose answer is: then each is looked at.
    """

    summary: Summary
    sent: Sent
    may_be_too_large: bool

    @classmethod
    def alone(cls, answer: Summary) -> Joined:
        """Return what left one site."""
        n_lines = np.count_nonzero(answer.weights)
        return cls(answer, np.array([[n_lines], [0], [0]]), answer.is_too_large)

    @property
    def width(self) -> int:
        """Numbers in a line."""
        return int(self.summary.sums.shape[1]) + 1


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of many sites, one site after another.

    Parameters
    ----------
    names : tuple of str
        The sites' names.
    data : Data
        The rows.
    padded : ndarray of shape (n + PADDING, d)
        The same, padded.
    sites : Sites
        Where each site's rows are, and what its limits let out.
    """

    names: tuple[str, ...]
    data: Data
    padded: NDArray[Any]
    sites: Sites

    @classmethod
    def of(
        cls, parts: Sequence[Data], fewest_rows: int, least: int, names: tuple[str, ...]
    ) -> Table:
        """Return the rows of sites that let out lines of ``least`` rows, if they have enough."""
        weights, X = None, np.concatenate([part.X for part in parts])
        if any(part.sample_weight is not None for part in parts):
            weights = np.concatenate([row_weights(part) for part in parts])
        bounds = np.concatenate([[0], np.cumsum([len(part.X) for part in parts])])
        return cls.laid(Data(X, weights), bounds, fewest_rows, least, names)

    @classmethod
    def laid(
        cls,
        data: Data,
        bounds: NDArray[np.intp],
        fewest_rows: int,
        least: int,
        names: tuple[str, ...] = (),
    ) -> Table:
        """Return the same of rows that lie one after another, in a block without names."""
        padded, sites = pad(as_rows(data.X)), Sites(bounds, np.diff(bounds) >= fewest_rows, least)
        return cls(names, Data(padded[: bounds[-1]], data.sample_weight), padded, sites)

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Return the number of rows of each site, (s,)."""
        return np.diff(self.sites.bounds)

    @cached_property
    def canonical(self) -> Table:
        """Return the same with the rows of each site in lexicographic order."""
        weights = [] if self.data.sample_weight is None else [self.data.sample_weight]
        place = np.repeat(np.arange(len(self.names)), self.sizes)
        data = self.data.take(lexicographic([place, *self.data.X.T, *weights]))
        return Table(self.names, data, pad(data.X), self.sites)

    @cached_property
    def points(self) -> tuple[Floats, Floats]:
        """The rows in float64, and the columns of each site, for k-means at the sites."""
        points = as_double_rows(self.padded)
        columns = columns_of_sites(points, self.sites.bounds)
        columns.flags.writeable = False
        return points, columns


def _lloyd(task: Task, table: Table, bank: Bank) -> Sent:
    weights, centers = as_weights(table.data.sample_weight), as_centers(task.state.centers)
    return add_sums_of_sites(table.padded, weights, table.sites, centers, bank)


def _tree(task: Task, table: Table, bank: Bank) -> Sent:
    if pass_number(task.state):
        return _lloyd(task, table, bank)
    cuts, reference = leaves(task.state, table.data.X.shape[1])
    known, places = known_leaves(table.data.cache, cuts, len(table.data))
    following = next_cuts(cuts, len(reference), known)
    weights, rows = as_weights(table.data.sample_weight), table.data.X
    asked = reference, cuts, following, places
    sent = add_leaf_sums_of_sites(rows, weights, table.sites, *asked, bank)
    table.data.cache["leaf_sums"] = cuts, places
    return sent


def _inertia(task: Task, table: Table, bank: Bank) -> Sent:
    _, squared = nearest(table.data.X, task.state.centers)
    (bounds, heard, least), sizes = table.sites, table.sizes
    leaves, weight = heard & (sizes >= least), row_weights(table.data)
    parts = list(zip(bounds[:-1][leaves].tolist(), bounds[1:][leaves].tolist(), strict=True))
    is_weighed = table.data.sample_weight is not None
    own = [weight[i:j].sum() for i, j in parts] if is_weighed else sizes[leaves]
    add_lines(np.column_stack([[squared[i:j] @ weight[i:j] for i, j in parts], own]), bank)
    return np.stack([leaves, leaves & (sizes == 1), np.where(leaves, 0, sizes)]).astype(np.int64)


ADDED: dict[type[Step], Callable[[Task, Table, Bank], Sent]] = {
    Lloyd: _lloyd,
    VarianceTree: _tree,
    Inertia: _inertia,
}
"""How the answers of all sites are added. Of that very type: one made from it may add others."""


def bank_for(task: Task, n_columns: int) -> Bank:
    """Return room for the sums of a step of `ADDED`."""
    lines, p = task.step.answer_shape(task.state, n_columns)
    return empty_bank(lines or 0, p + 1 + _adds_errors(task))


def total_of(task: Task, bank: Bank) -> Summary:
    """Return the total of the answers that were added to a bank."""
    planes = planes_of(bank)
    if _adds_errors(task):
        planes = [np.delete(plane, -2, axis=1) for plane in planes]
    return Summary.from_planes(canonical(planes))


def _adds_errors(task: Task) -> bool:
    """Return whether squared distances are added that are no part of an answer."""
    return type(task.step) is VarianceTree and bool(pass_number(task.state))


def _add(task: Task, table: Table) -> Joined:
    """Return the exact sum of the answers of all sites, and what left each."""
    bank = bank_for(task, table.data.X.shape[1])
    sent = ADDED[type(task.step)](task, table, bank)
    return Joined(total_of(task, bank), sent, may_exceed(bank, MOST_FOR_A_ROW))


def _means(task: Task, table: Table) -> Joined:
    """Return the clusters of each site, one site after another; see `SiteSummaries`."""
    step, table = task.step, table.canonical
    assert isinstance(step, SiteSummaries)
    most = np.minimum(np.maximum(1, table.sizes // step.rows_per_mean), table.sizes)
    draws = _draws(task, table.names, np.minimum(step.n_means, most))
    weights = as_given_weights(as_weights(table.data.sample_weight), len(table.data))
    X, (points, columns), how = table.padded, table.points, (PASSES, 1e-4, True, False)

    def describe(some: slice) -> Totals:
        edges, (bounds, heard, least) = slice(some.start, some.stop + 1), table.sites
        sites = Sites(bounds[edges], heard[some], least)
        mine = Draws(draws.n_means[some], draws.begins[edges], draws.chances)
        return means_of_sites(X, points, columns, weights, sites, mine, step.min_rows, how)

    sums, weight, sent = zip(*on_threads(describe, _parts(table.sites.bounds)), strict=True)
    lines = Summary(np.concatenate(sums), np.concatenate(weight))
    return Joined(lines, np.concatenate(sent, axis=1), lines.is_too_large)


def _parts(bounds: NDArray[np.intp]) -> list[slice]:
    """Return sites one after another in parts with about as many rows each."""
    begins = np.searchsorted(bounds, np.arange(0, bounds[-1], PART_ROWS))
    places = np.unique(np.append(begins, len(bounds) - 1)).tolist()
    return list(starmap(slice, pairwise(places)))


def _draws(task: Task, names: Sequence[str], n_means: NDArray[np.intp]) -> Draws:
    """Return what each site draws from its own stream, as `kmeans` would there."""
    sizes = [k * default_trials(k) for k in n_means.tolist()]
    streams = (stream(task.seed, task.state.round, name) for name in names)
    chances = [rng.random(size) for rng, size in zip(streams, sizes, strict=True)]
    return Draws(n_means, np.concatenate([[0], np.cumsum(sizes)]), np.concatenate(chances))


AT_ONCE: dict[type[Step], Callable[[Task, Table], Joined]] = {
    **dict.fromkeys(ADDED, _add),
    SiteSummaries: _means,
}
"""How all sites answer a step."""


class Crowd:
    """Small sites that are alike but for their rows.

    Parameters
    ----------
    clients : mapping of str to Client
        The sites, of one `kind_of`, by their names and in the order of these.
    """

    def __init__(self, clients: Mapping[str, Client]) -> None:
        self.clients = clients
        if isinstance(clients, Stacked):
            limits, self._log = clients.filters, clients.log
            clients.share()
        else:
            limits, self._log = next(iter(clients.values())).filters, SharedLog(len(clients))
            for place, client in enumerate(clients.values()):
                client.share(self._log, place)
        self._fewest = max((f.n for f in limits if isinstance(f, MinRows)), default=0)
        self._least = max((f.p for f in limits if isinstance(f, MinClusterSize)), default=0)
        self._tables: list[tuple[Any, Table]] = []

    def ask(self, tasks: Sequence[Task]) -> dict[int, Joined]:
        """Return what leaves all sites for those tasks that can be asked at once, by place."""
        known = [i for i, t in enumerate(tasks) if type(t.step) in AT_ONCE and _is_plain(t)]
        tables = {i: self._table(tasks[i]) for i in known}
        able = [i for i, table in tables.items() if _fits(tasks[i], table)]
        joined = on_threads(lambda i: AT_ONCE[type(tasks[i].step)](tasks[i], tables[i]), able)
        for i, each in zip(able, joined, strict=True):
            self._log.append(tasks[i], each.width, each.sent)
        return dict(zip(able, joined, strict=True))

    def _table(self, task: Task) -> Table:
        """Return the rows as a task wants them, kept for the next one."""
        for how, table in self._tables:
            if how is task.preprocessor or how == task.preprocessor:
                return table
        names, limits = tuple(self.clients), (self._fewest, self._least)
        if isinstance(self.clients, Stacked) and task.preprocessor is None:
            table = Table.laid(self.clients.data, self.clients.bounds, *limits, names)
        else:
            asked = self.clients.values()
            rows = [at_site(client, [task], Client.rows_for, task) for client in asked]
            table = Table.of(rows, *limits, names)
        self._tables = [*self._tables[-1:], (task.preprocessor, table)]
        return table


Kind = tuple[int, Any, tuple[Filter, ...]]
"""What sites have in common that can be asked at once: columns, their type, and limits."""


def kind_of(client: Any) -> Kind | None:
    """Return what a small site has in common with others; None of one to be asked for itself."""
    if not isinstance(client, Client) or client.protection is not None or client.streams:
        return None
    X = client.data.X
    if X.size > ONE_THREAD or client.counts_persons or not _are_sizes(client.filters):
        return None
    return X.shape[1], X.dtype, client.filters


def _are_sizes(filters: Sequence[Filter]) -> bool:
    """Return whether all limits are of numbers of rows."""
    return {type(rule) for rule in filters} <= {MinRows, MinClusterSize}


def _are_one(clients: Mapping[str, Client]) -> bool:
    """Return whether all sites are one crowd, which is known without a look at each."""
    if not isinstance(clients, Stacked) or len(clients) < FEWEST or clients.data.groups is not None:
        return False
    largest = clients.sizes.max() * clients.data.X.shape[1]
    return bool(largest <= ONE_THREAD) and _are_sizes(clients.filters)


class Asked:
    """Sites that are asked in a round: crowds of small ones, and the others for themselves.

    Parameters
    ----------
    clients : mapping of str to Client
        The sites by their names, in the order of these.
    tasks : sequence of Task
        What they are asked first, to be named in an error.
    """

    def __init__(self, clients: Mapping[str, Client], tasks: Sequence[Task]) -> None:
        self.clients, self.names = clients, tuple(clients)
        self.alone: list[Client] = []
        if _are_one(clients):
            self.crowds, self.places = [Crowd(clients)], [np.arange(len(clients))]
            return
        every = list(clients.values())
        kinds: dict[Kind | None, list[int]] = {}
        for place, client in enumerate(every):
            kinds.setdefault(at_site(client, tasks, kind_of), []).append(place)
        many = [p for kind, p in kinds.items() if kind is not None and len(p) >= FEWEST]
        rest = np.delete(np.arange(len(every)), np.concatenate([[], *many]).astype(np.intp))
        self.alone = [every[place] for place in rest.tolist()]
        self.crowds = [Crowd({self.names[i]: every[i] for i in places}) for places in many]
        self.places = [np.array(places) for places in many]

    def at_once(self, tasks: Sequence[Task]) -> tuple[list[dict[int, Joined]], list[Left]]:
        """Return what left each crowd for those tasks that it is asked at once, and who is left."""
        joined, every = [crowd.ask(tasks) for crowd in self.crowds], range(len(tasks))
        left = [(self.alone, [*every])] if self.alone else []
        for crowd, found in zip(self.crowds, joined, strict=True):
            if rest := [t for t in every if t not in found]:
                left.append((list(crowd.clients.values()), rest))
        return joined, left

    def answers(
        self,
        task: Task,
        joined: Sequence[Joined | None],
        own: Mapping[str, Summary],
        missing: tuple[str, ...],
    ) -> Answers:
        """Return all answers to a task: what left each crowd, and those of sites by themselves."""
        parts = [(p, each) for p, each in zip(self.places, joined, strict=True) if each is not None]
        if not parts:
            return Answers({name: own[name] for name in self.names}, missing)
        for i, name in enumerate(self.names if own else ()):
            if name in own:
                parts.append((np.array([i]), Joined.alone(own[name])))
        return Together(_Each(self.names, self.clients, task, own), missing, parts=parts)


Left = tuple[list[Client], list[int]]
"""Sites that are to be asked by themselves, and the places of the tasks."""

Part = tuple[NDArray[np.intp], Joined]
"""What left some sites, and their places among all."""


@dataclass(frozen=True, eq=False)
class Together(Answers):
    """Answers that were joined where they were made; each is computed where it is asked for.

    Parameters
    ----------
    parts : sequence of (ndarray of shape (s,), Joined)
        What left some sites, and their places among all.
    """

    by_site: _Each
    parts: Sequence[Part] = field(kw_only=True)

    @property
    def answered(self) -> tuple[str, ...]:
        """Names of the sites that answered."""
        return self.by_site.names

    @property
    def summaries(self) -> list[Summary]:
        """Return one summary that the server takes for those of all sites."""
        return [self._joined]

    @cached_property
    def _joined(self) -> Summary:
        """The exact sum of all answers; of a step whose server needs each, all their lines."""
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
        """How many numbers each site sent, (s,), in the order of `answered`."""
        numbers = np.empty(len(self.by_site), np.int64)
        for places, joined in self.parts:
            numbers[places] = joined.sent[0] * joined.width
        return numbers

    def too_large(self) -> list[str]:
        """Return the names of the sites whose answers are too large to go on with."""
        is_any = any(joined.may_be_too_large for _, joined in self.parts)
        return Answers.too_large(self) if is_any else []

    def total(self) -> Summary:
        """Return the exact sum of the answers, correctly rounded."""
        if self.by_site.task.step.server_additive:
            return self._joined
        return Summary.total(self.by_site.values())


@dataclass(frozen=True, slots=True, eq=False)
class _Each(Mapping[str, Summary]):
    """Answers of many sites to one task: their own, others computed where they are asked for."""

    names: tuple[str, ...]
    clients: Mapping[str, Client]
    task: Task
    own: Mapping[str, Summary]

    def __getitem__(self, name: str) -> Summary:
        return self.own[name] if name in self.own else self.clients[name].computed(self.task)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _is_plain(task: Task) -> bool:
    """Return whether a task asks about all rows of a site, without noise."""
    return task.resampled is None and task.noise is None


def _fits(task: Task, table: Table) -> bool:
    """Return whether a question suits the rows of all sites; if not, each is asked for itself."""
    if isinstance(task.step, SiteSummaries) and table.sizes.max() > MOST_POINTS:
        return False
    centers = task.state.centers
    return not len(centers) or centers.shape[1] == table.data.X.shape[1]
