"""An engine that holds all sites in this process.

It serves for simulations, for one owner of many files, and as a test double.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter, methodcaller
from typing import Unpack

from numpy.typing import ArrayLike

from fedcluster.core import (
    Answers,
    Data,
    Introduction,
    SiteInfo,
    Task,
)
from fedcluster.engines.batched import Asked, Stacked, at_site
from fedcluster.engines.client import Client
from fedcluster.privacy.disclosure import USUAL, SiteRules


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
