"""One pool of threads for all kernels, which release the interpreter's lock.

Work comes in numbered chunks whose results do not depend on who does them. The caller works too,
so that a call never waits for a pool that other callers keep busy: callers may be threads, and
as many as they like.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Lock
from typing import Generic, TypeVar

Room = TypeVar("Room")


def thread_count() -> int:
    """How many threads a kernel may use: ``FEDCLUSTER_NUM_THREADS``, or every usable core."""
    return int(os.environ.get("FEDCLUSTER_NUM_THREADS", 0)) or _core_count()


def for_each_chunk(work: Callable[[int], object], n_chunks: int, n_threads: int) -> None:
    """Call ``work(0)``, ..., ``work(n_chunks - 1)``, once each, on up to ``n_threads`` threads.

    Parameters
    ----------
    work : callable
        Writes the results of one chunk where no other chunk writes.
    n_chunks : int
        The number of chunks.
    n_threads : int
        The most threads to use, the caller's own among them.
    """
    chunks = iter(range(n_chunks))  # next() on it is atomic: each chunk is taken once
    n_helpers = min(n_threads, n_chunks) - 1
    helpers = [_pool().submit(_take_chunks, work, chunks) for _ in range(n_helpers)]
    try:
        _take_chunks(work, chunks)
    finally:
        for helper in helpers:
            if not helper.cancel():  # one that never started has nothing left to do
                helper.result()


def _take_chunks(work: Callable[[int], object], chunks: Iterator[int]) -> None:
    for chunk in chunks:
        work(chunk)


class Rooms(Generic[Room]):
    """Where chunks write what they find, which is added up in the order of their numbers.

    A room serves one chunk after the other: few are needed, however many chunks there are, and
    they stay in the cache. Memory that is new costs more than what is written into it.

    Parameters
    ----------
    new : callable
        Makes a room with nothing in it.
    clear : callable
        Empties one.
    add : callable
        Adds the second of two rooms to the first.
    """

    def __init__(
        self,
        new: Callable[[], Room],
        clear: Callable[[Room], object],
        add: Callable[[Room, Room], object],
    ) -> None:
        self._new, self._clear, self._add = new, clear, add
        self._free: list[Room] = []
        self._early: dict[int, Room] = {}
        self._next, self._turn = 0, Lock()
        self._total: Room | None = None

    @property
    def total(self) -> Room:
        """The room of chunk 0, to which those of all others that were handed in are added."""
        return self._new() if self._total is None else self._total

    def take(self) -> Room:
        """An empty room."""
        try:
            room = self._free.pop()
        except IndexError:
            return self._new()
        self._clear(room)
        return room

    def hand_in(self, chunk: int, room: Room) -> None:
        """Add what a chunk has found, once all chunks before it are added."""
        with self._turn:
            self._early[chunk] = room
            while self._next in self._early:
                found = self._early.pop(self._next)
                self._next += 1
                if self._total is None:
                    self._total = found
                else:
                    self._add(self._total, found)
                    self._free.append(found)


@cache
def _core_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_core_count(), thread_name_prefix="fedcluster-kernels")


if hasattr(os, "register_at_fork"):  # a forked child has none of its parent's threads
    os.register_at_fork(after_in_child=_pool.cache_clear)
