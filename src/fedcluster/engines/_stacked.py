"""Sites whose rows lie one after another in one table: a client is made where one is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.client import NO_ROW, Client, SharedLog
from fedcluster.core import Data, Filter, SiteInfo, Task
from fedcluster.io._inputs import places_of

OWN = {"name", "n_rows", "weight"}
"""Facts in which the sites of a table differ."""
SHARED = {"limits", "streams", "columns", "labels", "answered", "n_columns", "secure"}
SHARED |= {"total_rows", "log", "refuses"}
"""Facts that all have in common. If there are other facts, each client tells its own."""


class Stacked(Mapping[str, Client]):
    """Clients of sites that share a table and their limits, each made where it is looked up.

    Their facts, and what left them, are found for all at once: for a site of ten rows it takes
    longer to make its client than to add its rows.

    Parameters
    ----------
    names : array_like of shape (s,)
        The names of the sites, or their numbers, in their order.
    data : Data
        Their rows, of positive weight, one site after another.
    bounds : ndarray of shape (s + 1,)
        The rows of site i are those from ``bounds[i]`` to ``bounds[i + 1]``.
    filters : sequence of Filter
        What each site holds back.
    order : ndarray of shape (n,), optional
        Where each row lay among those that were given.
    is_block : bool, default=False
        Whether rows are prepared for all sites at once, with the bits of one table, and not for
        each site by itself.

    Examples
    --------
    >>> sites = Stacked.of(Data(np.arange(5.0)[:, None]), ["b", "a", "b", "a", "b"], ())
    >>> sites["b"].data.X.ravel(), [site.n_rows for site in sites.infos()]
    (array([0., 2., 4.]), [2.0, 3.0])
    """

    def __init__(
        self,
        names: ArrayLike,
        data: Data,
        bounds: NDArray[np.intp],
        filters: Sequence[Filter],
        order: NDArray[np.intp] | None = None,
        *,
        is_block: bool = False,
    ) -> None:
        self._given, self.data, self.bounds = names, data, bounds
        self.order = np.arange(len(data)) if order is None else order
        self.filters, self.log = tuple(filters), SharedLog(len(bounds) - 1)
        self._is_block, self._made = is_block, dict[str, Client]()

    @classmethod
    def of(cls, data: Data, sites: ArrayLike, filters: Sequence[Filter]) -> Stacked:
        """Return the sites of the rows of one table; see `LocalEngine.from_table`."""
        names, order, bounds = places_of(sites, len(data))
        if data.sample_weight is not None:
            some = data.sample_weight[order] > 0
            counts = np.add.reduceat(some, bounds[:-1], dtype=np.intp)
            if not counts.all():
                raise ValueError(f"site {names[np.argmin(counts)]!r}: {NO_ROW}")
            order, bounds = order[some], np.append(0, np.cumsum(counts))
        is_in_order = len(order) == len(data) and bool((np.diff(order) > 0).all())
        return cls(names, data if is_in_order else data.take(order), bounds, filters, order)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the sites, in their order."""
        return tuple(map(str, np.asarray(self._given).tolist()))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def __getitem__(self, name: str) -> Client:
        if name not in self._made:
            place = self._places[name]
            start, stop = self.bounds[place : place + 2].tolist()
            client = Client(name, self.data.take(slice(start, stop)), self.filters)
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
        """Let what leaves be logged in the log of all, from now on."""
        for name, client in self._made.items():
            client.share(self.log, self._places[name])

    def infos(self) -> tuple[SiteInfo, ...]:
        """Return the facts of each site that it tells without being asked for more."""
        if {each.name for each in fields(SiteInfo)} != SHARED | OWN:
            return tuple(client.site for client in self.values())
        first = self[self.names[0]].site
        shared = {name: getattr(first, name) for name in SHARED}
        sizes = self.sizes.astype(float).tolist()
        of_rows, weights = self.data.sample_weight, sizes
        if of_rows is not None:
            weights = [float(of_rows[a:b].sum()) for a, b in pairwise(self.bounds.tolist())]
        own = zip(self.names, sizes, weights, strict=True)
        return tuple(SiteInfo(name, n_rows=n, weight=w, **shared) for name, n, w in own)

    def laid(self, task: Task) -> tuple[Data, NDArray[np.intp]] | None:
        """Return the rows as a task wants them, and where those of each site begin.

        None if each site is to prepare its own.
        """
        how = task.preprocessor
        if how is not None and not self._is_block:
            return None
        data = self.data if how is None else how.apply(self.data)
        return (data, self.bounds) if len(data) == len(self.data) else None

    def most(self, what: str) -> dict[str, int]:
        """Return ``most_lone_rows`` or ``most_rows_held_back`` of each site's client."""
        _, lone_rows, held_back = self.log.most
        most = {"most_lone_rows": lone_rows, "most_rows_held_back": held_back}[what]
        found = dict(zip(self.names, np.minimum(most, self.sizes).tolist(), strict=True))
        return found | {name: getattr(client, what) for name, client in self._made.items()}
