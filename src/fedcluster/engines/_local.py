"""Engine that holds all sites in this process.

For simulation, for one owner of many files, and as a test double.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import repeat
from operator import attrgetter, methodcaller
from typing import cast

from numpy.typing import ArrayLike

from fedcluster.client import Client
from fedcluster.core import Answers, Data, Filter, PlannedStep, SiteInfo, Summary, Task
from fedcluster.engines._crowd import Asked
from fedcluster.engines._errors import at_site
from fedcluster.engines._relay import Relay
from fedcluster.engines._stacked import Stacked
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
    clients : iterable of Client or Relay, or Stacked
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
        clients: Iterable[Client | Relay] | Stacked,
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
    def from_table(
        cls, data: Data, sites: ArrayLike, filters: Sequence[Filter] = (MinRows(2),)
    ) -> LocalEngine:
        """Return an engine of any number of sites whose rows are in one table.

        Its answers are those of a client for each site, in far less time where these are small.

        Parameters
        ----------
        data : Data
            The rows of all sites.
        sites : array_like of shape (n,)
            The site of each row, a name or a number.
        filters : sequence of Filter, default=(MinRows(2),)
            What each site holds back.

        Raises
        ------
        ValueError
            If ``sites`` has another length than the rows, or a site has no row of positive weight.

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
        given = () if isinstance(self.clients, Stacked) else self.clients.values()
        relayed = bool(steps) and any(isinstance(each, Relay) for each in given)
        if not (columns or labels or relayed):
            return sites
        doing = "naming its labels, " if labels else "describing its columns, "
        asked = {"columns": columns, "texts": texts, "labels": labels}
        tell = methodcaller("introduce", **asked, **({"steps": steps} if relayed else {}))
        return tuple(at_site(client, doing, tell) for client in self.clients.values())

    @cached_property
    def _sites(self) -> tuple[SiteInfo, ...]:
        """What the sites tell without being asked for more."""
        if isinstance(self.clients, Stacked):
            return self.clients.told()
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
        joined, left = self._asked.at_once(tasks)
        own: list[dict[str, Summary]] = [{} for _ in tasks]
        for clients, places in left:
            asking = [tasks[t] for t in places]
            every = clients, repeat(asking), repeat(methodcaller("answers", asking))
            if self._worth_threads([at_site(client, tasks, _size) for client in clients]):
                with ThreadPoolExecutor(min(self.workers, len(clients))) as pool:
                    replies = list(pool.map(at_site, *every))
            else:
                replies = list(map(at_site, *every))
            for client, reply in zip(clients, replies, strict=True):
                for t, answer in zip(places, reply, strict=True):
                    own[t][client.name] = answer
        return [
            self._asked.answers(task, [each.get(t) for each in joined], own[t], missing)
            for t, task in enumerate(tasks)
        ]

    def _worth_threads(self, sizes: list[int]) -> bool:
        return self.workers > 1 and len(sizes) > 1 and sorted(sizes)[-2] >= _WORTH_A_THREAD


def _by_name(clients: Iterable[Client | Relay]) -> dict[str, Client]:
    """Return sites by their names, in the order of these."""
    given = sorted(clients, key=attrgetter("name"))
    if not given:
        raise ValueError("no site was given")
    by_name = {client.name: client for client in given}
    if len(by_name) < len(given):
        [(name, _), *_] = Counter(client.name for client in given).most_common(1)
        raise ValueError(f"two sites have the same name: {name!r}")
    return cast(dict[str, Client], by_name)  # or relays, which stand for clients here


def _size(client: Client | Relay) -> int:
    """Return how many numbers a site holds, loading them; 0 of a stream, with its own threads."""
    return 0 if isinstance(client, Relay) or client.streams else client.data.X.size
