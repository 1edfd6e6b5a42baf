"""All sites in this process: for simulation, for one owner of many files, and as test double."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from fedcluster.client import Client
from fedcluster.core import Answers, SiteInfo, Summary, Task
from fedcluster.errors import SiteError

T = TypeVar("T")

_WORTH_A_THREAD = 50_000
"""Below so many values at the second largest site, handing sites to threads costs more than
it saves."""


class LocalEngine:
    """Ask clients in this process.

    Sites run in parallel threads where their rows are many enough; the answers, and so every
    bit of a result, do not depend on that.

    Parameters
    ----------
    clients : iterable of Client
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
        clients: Iterable[Client],
        *,
        workers: int | None = None,
        silent: Callable[[str, int], bool] | None = None,
    ) -> None:
        given = sorted(clients, key=lambda client: client.name)
        if not given:
            raise ValueError("no site was given")
        for one, other in pairwise(given):
            if one.name == other.name:
                raise ValueError(f"two sites have the same name: {one.name!r}")
        self.clients = {client.name: client for client in given}
        self.workers = workers or os.cpu_count() or 1
        self._silent = silent or (lambda _site, _round: False)
        self._rounds = 0
        self._sites: dict[str, SiteInfo] = {}

    def introduce(
        self, *, columns: bool = False, texts: Collection[str] = (), labels: bool = False
    ) -> tuple[SiteInfo, ...]:
        """Return what the sites tell of themselves, see `Engine`; opens their rows."""
        told = []
        for client in self.clients.values():
            if client.name not in self._sites:
                self._sites[client.name] = _told(client, "opening its rows", lambda c: c.site)
            site = self._sites[client.name]
            if columns:
                described = _told(client, "describing its columns", lambda c: c.describe(texts))
                site = replace(site, columns=described)
            if labels:
                site = replace(site, labels=_told(client, "naming its labels", Client.classes))
            told.append(site)
        return tuple(told)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Answer all tasks at each of the named sites, in the order of the names."""
        asked = set(self.clients if sites is None else sites)
        asked = {name for name in asked if not self._silent(name, self._rounds)}
        self._rounds += 1
        here = [c for name, c in self.clients.items() if name in asked]
        if self._worth_threads([_size(client, tasks) for client in here]):
            with ThreadPoolExecutor(min(self.workers, len(here))) as pool:
                replies = list(pool.map(lambda client: _reply(client, tasks), here))
        else:
            replies = [_reply(client, tasks) for client in here]
        missing = tuple(name for name in self.clients if name not in asked)
        return [
            Answers({c.name: reply[t] for c, reply in zip(here, replies, strict=True)}, missing)
            for t in range(len(tasks))
        ]

    def _worth_threads(self, sizes: list[int]) -> bool:
        return self.workers > 1 and len(sizes) > 1 and sorted(sizes)[-2] >= _WORTH_A_THREAD


def _told(client: Client, doing: str, tell: Callable[[Client], T]) -> T:
    """Return what a client tells of itself; name the site in any error."""
    try:
        return tell(client)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise SiteError(f"site {client.name!r}, {doing}, {what}") from error


def _size(client: Client, tasks: Sequence[Task]) -> int:
    """How many numbers a site holds; loads them. A stream has threads of its own: none."""
    with AtSite(client, tasks):
        return 0 if client.streams else client.data.X.size


def _reply(client: Client, tasks: Sequence[Task]) -> list[Summary]:
    """One site's answers to all tasks of a round."""
    with AtSite(client, tasks):
        return client.answers(tasks)


class AtSite:
    """Give the site's name, the round and the steps to any exception.

    Not made by `contextlib.contextmanager`: its generators cost an FKM of small sites 3 %.
    """

    __slots__ = ("_client", "_tasks")

    def __init__(self, client: Client, tasks: Sequence[Task]) -> None:
        self._client, self._tasks = client, tasks

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            steps = ", ".join(dict.fromkeys(type(task.step).__name__ for task in self._tasks))
            what = f"{steps}: {type(error).__name__}: {error}"
            rounds = f"round {self._tasks[0].state.round + 1}"
            raise SiteError(f"site {self._client.name!r}, {rounds}, {what}") from error
