"""Compilation and threads of the kernels.

Kernels are compiled without the interpreter's lock, once on a machine, and audibly. They share one
pool of threads, and keep BLAS to one thread. Work comes in numbered chunks whose results do not
depend on who does them. The caller works too, so that a call never waits for a pool that other
callers keep busy: callers may be threads, and as many as they like.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar, cast

from numba import njit
from numba.core import event
from numba.core.caching import FunctionCache
from numba.extending import register_jitable
from threadpoolctl import ThreadpoolController

logger = logging.getLogger("fedcluster")

COMPILING = (
    "compiling numerical kernels, once on this machine: 15 to 60 seconds; fedcluster warm-up"
    " does so beforehand"
)

F = TypeVar("F", bound=Callable[..., object])
Buffer = TypeVar("Buffer")

_files = sorted(Path(__file__).parent.glob("*.py"))
SOURCES = hashlib.sha256(b"".join(file.read_bytes() for file in _files)).hexdigest()


def native(function: F) -> F:
    """Compile a function at its first call, or load what was compiled from the same sources."""
    return _compiled(function)


def native_in_any_order(function: F) -> F:
    """Compile a loop whose sum may be added in vectors: always the same for one length."""
    return _compiled(function, fastmath={"contract", "nsz", "reassoc"}, error_model="numpy")


def native_as_written(function: F) -> F:
    """Compile a function none of whose additions may be left out, though its caller's may.

    One that does not say so is compiled as the function that calls it first.
    """
    return _compiled(function, fastmath=False)


def inlined(function: F) -> F:
    """Compile a function as a part of each that calls it, where LLVM alone would not."""
    return cast(F, register_jitable(inline="always")(function))


def _compiled(function: F, **options: object) -> F:
    """Compile with a cache that looks at all kernels.

    numba's own looks at the file of the function alone. It would go on calling what the function
    called when that file was as it is: at best the old code, at worst with new arguments.
    """
    dispatcher: Any = njit(nogil=True, **options)(function)
    dispatcher._cache = _Cache(function)
    return cast(F, dispatcher)


class _Cache(FunctionCache):
    """Cache of compiled functions that the sources of all kernels outdate."""

    def _index_key(self, *args: Any) -> tuple[Any, ...]:
        return super()._index_key(*args), SOURCES


class _Announcer(event.Listener):
    """Listener that says once that kernels are compiled, where none of this machine is found.

    Attributes
    ----------
    has_spoken : bool
        Whether that was said.
    compiled : int
        How many kernels this process has compiled.
    """

    def __init__(self) -> None:
        self.has_spoken = False
        self.compiled = 0

    def on_start(self, event: event.Event) -> None:
        if not event.data["dispatcher"].__module__.startswith("fedcluster."):
            return
        self.compiled += 1
        if not self.has_spoken:
            self.has_spoken = True
            logger.warning(COMPILING)

    def on_end(self, event: event.Event) -> None:
        pass


announcer = _Announcer()
event.register("numba:compile", announcer)


def thread_count() -> int:
    """Return how many threads to use: ``FEDCLUSTER_NUM_THREADS``, or every usable core."""
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
    helpers = [_pool().submit(list, map(work, chunks)) for _ in range(n_helpers)]
    try:
        list(map(work, chunks))
    finally:
        for helper in helpers:
            if not helper.cancel():  # one that never started has nothing left to do
                helper.result()


class BufferPool(Generic[Buffer]):
    """Buffers that chunks write their sums to, added up in the order of the chunks.

    A buffer serves one chunk after the other: few are needed, however many chunks there are, and
    they stay in the cache. Memory that is new costs more than what is written into it.

    Parameters
    ----------
    new : callable
        Makes an empty buffer.
    clear : callable
        Empties a buffer.
    add : callable
        Adds the second of two buffers to the first.
    """

    def __init__(
        self,
        new: Callable[[], Buffer],
        clear: Callable[[Buffer], object],
        add: Callable[[Buffer, Buffer], object],
    ) -> None:
        self._new, self._clear, self._add = new, clear, add
        self._free: list[Buffer] = []
        self._early: dict[int, Buffer] = {}
        self._next, self._turn = 0, Lock()
        self._total: Buffer | None = None

    @property
    def total(self) -> Buffer:
        """Return the buffer of chunk 0, to which those of all others that came are added."""
        return self._new() if self._total is None else self._total

    def take(self) -> Buffer:
        """Return an empty buffer."""
        try:
            buffer = self._free.pop()
        except IndexError:
            return self._new()
        self._clear(buffer)
        return buffer

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
                    self._free.append(part)


_blas_lock = Lock()
_blas_callers: list[Any] = []  # one entry for each caller; the first holds what to restore


@contextmanager
def blas_on_one_thread() -> Iterator[None]:
    """Keep BLAS to one thread until the last of several callers at once is through.

    Its last bits depend on the number of its threads; and these wait for each other in busy loops,
    and on a machine that others use take ten times as long.
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
