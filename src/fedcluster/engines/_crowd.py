"""Many small sites of one process, asked at once: the bits of asking each, in far less time.

For a site of a hundred rows, most of the time of an answer goes into what surrounds its sums. So
the rows of all such sites are laid one after another, compiled code makes the sums of each site,
holds back what the site's limits hold back, and adds them up in the order of the sites. What left
each site is counted; its answer itself is computed where somebody asks for it.

That is done for the steps below, which take most of the rounds of a fit; all others are asked of
each site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.algorithms import Lloyd, VarianceTree
from fedcluster.algorithms._variance_tree import leaves, pass_number
from fedcluster.client import ONE_THREAD, Client, SharedLog
from fedcluster.core import Answers, Data, State, Step, Summary, Task
from fedcluster.engines._errors import at_site
from fedcluster.kernels import nearest
from fedcluster.kernels._crowd import Sites, Totals, leaf_sums_of_sites, sums_of_sites
from fedcluster.kernels._rows import as_centers, as_rows, as_weights, next_cuts, pad
from fedcluster.kernels._threads import for_each_chunk, thread_count
from fedcluster.metrics import Inertia
from fedcluster.metrics._moments import row_weights
from fedcluster.privacy import MinClusterSize, MinRows

FEWEST = 8
"""Sites from which on it pays to ask them at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of many sites, one site after another.

    Parameters
    ----------
    data : Data
        The rows.
    padded : ndarray of shape (n + PADDING, d)
        The same, padded.
    sites : Sites
        Where each site's rows are, and what its limits let out.
    """

    data: Data
    padded: NDArray[Any]
    sites: Sites

    @classmethod
    def of(cls, parts: Sequence[Data], fewest_rows: int, least: int) -> Table:
        """Return the rows of sites that let out lines of ``least`` rows, if they have enough."""
        sizes = np.array([len(part) for part in parts])
        padded = pad(as_rows(np.concatenate([part.X for part in parts])))
        weights = None
        if any(part.sample_weight is not None for part in parts):
            weights = np.concatenate([row_weights(part) for part in parts])
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        sites = Sites(bounds, sizes >= fewest_rows, least)
        return cls(Data(padded[: bounds[-1]], weights), padded, sites)


def _lloyd(task: Task, table: Table) -> Totals:
    weights, centers = as_weights(table.data.sample_weight), as_centers(task.state.centers)
    return sums_of_sites(table.padded, weights, table.sites, centers)


def _tree(task: Task, table: Table) -> Totals:
    if pass_number(task.state):
        sums, weights, sent = _lloyd(task, table)
        return np.ascontiguousarray(sums[:, :-1]), weights, sent
    cuts, reference = leaves(task.state, table.data.X.shape[1])
    weights, following = as_weights(table.data.sample_weight), next_cuts(cuts, len(reference))
    return leaf_sums_of_sites(table.data.X, weights, table.sites, reference, cuts, following)


def _inertia(task: Task, table: Table) -> Totals:
    _, squared = nearest(table.data.X, task.state.centers)
    (bounds, heard, least), weight = table.sites, table.data.sample_weight
    weight = np.ones(len(squared)) if weight is None else weight
    sizes, total, total_weight = np.diff(bounds), 0.0, 0.0
    leaves = heard & (sizes >= least)
    for site in np.flatnonzero(leaves).tolist():
        rows = slice(bounds[site], bounds[site + 1])
        total += float(squared[rows] @ weight[rows])
        total_weight += float(weight[rows].sum())
    sent = np.stack([leaves, leaves & (sizes == 1), np.where(leaves, 0, sizes)]).astype(np.int64)
    return np.array([[total]]), np.array([total_weight]), sent


AT_ONCE: dict[type[Step], Callable[[Task, Table], Totals]] = {
    Lloyd: _lloyd,
    VarianceTree: _tree,
    Inertia: _inertia,
}
"""How all sites answer a step. Of that very type: one made from it may answer otherwise."""


class Crowd:
    """Small sites that are alike but for their rows.

    Parameters
    ----------
    clients : sequence of Client
        The sites, in the order of their names; see `Crowd.is_one`.
    """

    def __init__(self, clients: Sequence[Client]) -> None:
        self.clients = {client.name: client for client in clients}
        limits = clients[0].filters
        self._fewest = max((f.n for f in limits if isinstance(f, MinRows)), default=0)
        self._least = max((f.p for f in limits if isinstance(f, MinClusterSize)), default=0)
        self._tables: list[tuple[Any, Table]] = []
        self._log = SharedLog()
        for place, client in enumerate(clients):
            client.share(self._log, place)

    @staticmethod
    def is_one(clients: Sequence[Client]) -> bool:
        """Return whether sites can be asked at once: many, small, exact, with the same limits."""
        if len(clients) < FEWEST or any(map(_is_other, clients)):
            return False
        first = clients[0]
        alike = {(c.data.X.shape[1], c.data.X.dtype, c.filters) for c in clients}
        return len(alike) == 1 and {type(f) for f in first.filters} <= {MinRows, MinClusterSize}

    def ask(self, tasks: Sequence[Task], missing: tuple[str, ...]) -> dict[int, Answers]:
        """Return the answers to those tasks that can be asked at once, by their place."""
        tables = {i: self._table(t) for i, t in enumerate(tasks) if type(t.step) in AT_ONCE}
        able = [i for i, table in tables.items() if _fits(tasks[i].state, table)]
        totals: dict[int, Totals] = {}

        def work(place: int) -> None:
            i = able[place]
            totals[i] = AT_ONCE[type(tasks[i].step)](tasks[i], tables[i])

        for_each_chunk(work, len(able), thread_count())
        return {i: self._answers(tasks[i], totals[i], missing) for i in able}

    def _table(self, task: Task) -> Table:
        """Return the rows as a task wants them, kept for the next one."""
        for how, table in self._tables:
            if how is task.preprocessor or how == task.preprocessor:
                return table
        parts = [at_site(c, [task], Client.rows_for, task) for c in self.clients.values()]
        table = Table.of(parts, self._fewest, self._least)
        self._tables = [*self._tables[-1:], (task.preprocessor, table)]
        return table

    def _answers(self, task: Task, totals: Totals, missing: tuple[str, ...]) -> Answers:
        """Log what left each site and return the sum of it."""
        sums, weights, sent = totals
        self._log.append(task, sums.shape[1] + 1, sent)
        numbers = sent[0] * (sums.shape[1] + 1)
        total = Summary(sums, weights)
        return Together(_Each(self.clients, task), missing, sum=total, numbers=numbers.tolist())


@dataclass(frozen=True, slots=True, eq=False)
class Together(Answers):
    """Answers that were added where they were made; each is computed where it is asked for."""

    sum: Summary = field(kw_only=True)
    numbers: Sequence[int] = field(kw_only=True)

    @property
    def summaries(self) -> list[Summary]:
        """Return the sum alone: the server needs no more of a step that adds up."""
        return [self.sum]

    @property
    def values_sent(self) -> dict[str, int]:
        """Return how many numbers each site sent."""
        return dict(zip(self.by_site, self.numbers, strict=True))

    def total(self) -> Summary:
        """Return the sum of the answers, added in the order of the sites' names."""
        return self.sum


@dataclass(frozen=True, slots=True, eq=False)
class _Each(Mapping[str, Summary]):
    """Answers of many sites to one task, each computed where it is asked for."""

    clients: Mapping[str, Client]
    task: Task

    def __getitem__(self, name: str) -> Summary:
        return self.clients[name].computed(self.task)

    def __iter__(self) -> Iterator[str]:
        return iter(self.clients)

    def __len__(self) -> int:
        return len(self.clients)


def _is_other(client: Client) -> bool:
    """Return whether a site has to be asked for itself."""
    if client.protection is not None or client.streams or client.data.X.size > ONE_THREAD:
        return True
    return client.counts_persons


def _fits(state: State, table: Table) -> bool:
    """Return whether centres have the columns of the rows; if not, a site says so itself."""
    return not len(state.centers) or state.centers.shape[1] == table.data.X.shape[1]
