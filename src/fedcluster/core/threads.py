"""Threads of a computation: one shared pool, and BLAS on a single thread.

Work comes in numbered chunks whose results do not depend on the thread. The caller works too, so
that a call never waits for a pool kept busy by other callers; any number of threads may call.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, Generic, TypeVar

from threadpoolctl import ThreadpoolController

from fedcluster.lazy import LazyModule

joblib: Any = LazyModule("joblib")  # slow to import

Buffer = TypeVar("Buffer")
Given = TypeVar("Given")
Made = TypeVar("Made")


def thread_count() -> int:
    """Return the number of threads to use.

    ``FEDCLUSTER_NUM_THREADS`` if it is set and not 0. Otherwise the number of cores that the
    process may use, which a container's quota reduces, but no more than ``OMP_NUM_THREADS`` or a
    limit of threadpoolctl on OpenMP says.

    Raises
    ------
    ValueError
        If ``FEDCLUSTER_NUM_THREADS`` is no whole number of at least 0.

    Examples
    --------
    >>> from threadpoolctl import threadpool_limits
    >>> import sklearn.cluster  # loads OpenMP
    >>> with threadpool_limits(1):
    ...     thread_count()
    1
    """
    given = os.environ.get("FEDCLUSTER_NUM_THREADS") or "0"
    if not given.isdecimal():
        raise ValueError(
            f"FEDCLUSTER_NUM_THREADS is {given!r}: give a number of threads, or 0 for all"
        )
    return int(given) or min([_core_count(), *_of_others()])


def _of_others() -> list[int]:
    """Return the numbers of threads that OpenMP may use, where it says any."""
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    stated = [int(first)] if first.isdecimal() and int(first) else []
    return stated + [library.num_threads for library in _openmp()]


def for_each_chunk(work: Callable[[int], object], n_chunks: int, n_threads: int) -> None:
    """Call ``work(0)``, ..., ``work(n_chunks - 1)`` once each, on up to ``n_threads`` threads.

    Parameters
    ----------
    work : callable
        Writes the results of one chunk where no other chunk writes.
    n_chunks : int
        The number of chunks.
    n_threads : int
        The largest number of threads to use, including the caller's own.
    """
    chunks = iter(range(n_chunks))  # next() is atomic in CPython, so that each chunk is taken once
    n_helpers = min(n_threads, n_chunks) - 1
    helpers = [_pool().submit(list, map(work, chunks)) for _ in range(n_helpers)]
    try:
        list(map(work, chunks))
    finally:
        for helper in helpers:
            if not helper.cancel():  # cancel() is true for a helper that never started
                helper.result()


def on_threads(do: Callable[[Given], Made], given: Sequence[Given]) -> list[Made]:
    """Apply a function to each item on all available threads; return the results in order.

    Examples
    --------
    >>> on_threads(len, ["ab", "c", ""])
    [2, 1, 0]
    """
    made: dict[int, Made] = {}

    def work(place: int) -> None:
        made[place] = do(given[place])

    for_each_chunk(work, len(given), thread_count())
    return [made[place] for place in range(len(given))]


class BufferPool(Generic[Buffer]):
    """Buffers that chunks write their sums to, added up in the order of the chunks.

    Buffers are reused: few are needed, however many chunks there are, and they stay in the cache.
    Allocating new memory costs more than writing to it.

    Parameters
    ----------
    new : callable
        Makes an empty buffer.
    add : callable
        Adds the second of two buffers to the first, and empties the second.

    Attributes
    ----------
    free : list
        The empty buffers that were used.
    """

    def __init__(
        self,
        new: Callable[[], Buffer],
        add: Callable[[Buffer, Buffer], object],
    ) -> None:
        self._new, self._add = new, add
        self.free: list[Buffer] = []
        self._early: dict[int, Buffer] = {}
        self._next, self._turn = 0, Lock()
        self._total: Buffer | None = None

    @property
    def total(self) -> Buffer:
        """Return the total: the buffer of chunk 0, with those of the others added."""
        return self._new() if self._total is None else self._total

    def take(self) -> Buffer:
        """Return an empty buffer."""
        try:
            return self.free.pop()
        except IndexError:
            return self._new()

    def hand_in(self, chunk: int, buffer: Buffer) -> None:
        """Add the buffer of a chunk to the total, once all chunks before it are added."""
        with self._turn:
            self._early[chunk] = buffer
            while self._next in self._early:
                part = self._early.pop(self._next)
                self._next += 1
                if self._total is None:
                    self._total = part
                else:
                    self._add(self._total, part)
                    self.free.append(part)


_blas_lock = Lock()
_blas_callers: list[Any] = []  # one entry for each caller; the first holds what to restore


@contextmanager
def blas_on_one_thread() -> Iterator[None]:
    """Keep BLAS to one thread until the last of several simultaneous callers has finished.

    The last bits of results depend on the number of BLAS threads; and these wait for each other in
    busy loops, which takes ten times as long on a machine that others use.
    """
    with _blas_lock:
        limited = None if _blas_callers else _controller().limit(limits=1, user_api="blas")
        _blas_callers.append(limited)
    try:
        yield
    finally:
        with _blas_lock:
            limit = _blas_callers[0]
            _blas_callers.pop()
            if not _blas_callers:
                limit.restore_original_limits()


@cache
def _controller() -> Any:
    return ThreadpoolController()


def _openmp() -> Any:
    """Return OpenMP's libraries: found once scikit-learn's is loaded, which is with estimators."""
    is_loaded = "sklearn.utils._openmp_helpers" in sys.modules
    return _openmp_libraries() if is_loaded else ()


@cache
def _openmp_libraries() -> Any:
    return ThreadpoolController().select(user_api="openmp").lib_controllers


@cache
def _core_count() -> int:
    return int(joblib.cpu_count())


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_core_count(), thread_name_prefix="fedcluster-kernels")


if hasattr(os, "register_at_fork"):  # threads do not survive a fork: the child starts its own
    os.register_at_fork(after_in_child=_pool.cache_clear)
