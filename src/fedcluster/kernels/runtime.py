"""How kernels run: compilation, and the threads that they share.

Compilation of the kernels: without the interpreter's lock, once on a machine, and audibly.

Threads of the kernels, which need no compiler: a pool that all share, and BLAS on one of them.

Work comes in numbered chunks whose results do not depend on who does them. The caller works too, so
that a call never waits for a pool that other callers keep busy: callers may be threads, and as many
as they like.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from glob import escape
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar, cast

import numba
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name
from numba import njit
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import register_jitable
from threadpoolctl import ThreadpoolController

logger = logging.getLogger("fedcluster")

COMPILING = (
    "compiling numerical kernels, once on this machine: 15 to 60 seconds; fedcluster warm-up"
    " does so beforehand"
)

IN_ANY_ORDER: dict[str, object] = {
    "fastmath": {"contract", "nsz", "reassoc"},
    "error_model": "numpy",
}

F = TypeVar("F", bound=Callable[..., object])

_files = sorted(Path(__file__).parent.glob("*.py"))
SOURCES = hashlib.sha256(b"".join(file.read_bytes() for file in _files)).hexdigest()


def native(function: F) -> F:
    """Compile a function at its first call, or load what was compiled from the same sources."""
    return _compiled(function)


def native_in_any_order(function: F) -> F:
    """Compile a loop whose sum may be added in vectors: always the same for one length."""
    return _compiled(function, **IN_ANY_ORDER)


def native_as_written(function: F) -> F:
    """Compile a function none of whose additions may be left out, though its caller's may.

    One that does not say so is compiled as the function that calls it first.
    """
    return _compiled(function, fastmath=False)


def inner(function: F) -> F:
    """Compile a function that compiled code alone calls, without a way in for Python.

    Ways in are a tenth of what the kernels of a first fit take to compile.
    """
    return _inner(function)


def inner_in_any_order(function: F) -> F:
    """Compile as `native_in_any_order` does what compiled code alone calls."""
    return _inner(function, **IN_ANY_ORDER)


def inner_as_written(function: F) -> F:
    """Compile as `native_as_written` does what compiled code alone calls."""
    return _inner(function, fastmath=False)


def inlined(function: F) -> F:
    """Compile a function as a part of each that calls it, where LLVM alone would not."""
    return cast(F, register_jitable(inline="always")(function))


def _inner(function: F, **options: object) -> F:
    return cast(F, register_jitable(no_cfunc_wrapper=True, **options)(function))


def _compiled(function: F, **options: object) -> F:
    """Compile with a cache that looks at all kernels.

    numba's own looks at the file of the function alone. It would go on calling what the function
    called when that file was as it is: at best the old code, at worst with new arguments.
    """
    dispatcher: Any = njit(nogil=True, no_cfunc_wrapper=True, **options)(function)
    dispatcher._cache = _Cache(function)
    return cast(F, dispatcher)


class _Cache(FunctionCache):
    """Cache of compiled functions that the sources of all kernels outdate."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self._cache_file = _Files(self._cache_path, self._impl.filename_base)

    def _index_key(self, *args: Any) -> tuple[Any, ...]:
        return super()._index_key(*args), SOURCES


class _Files(IndexDataCacheFile):
    """Files of compiled functions, each named by what it holds.

    numba numbers them, and an index says what each holds. Of two processes that compile at once,
    one may write the index and the other the file, so that a function is called with arguments of
    other types than it was compiled for.
    """

    def __init__(self, folder: str, function: str) -> None:
        super().__init__(folder, function, None)
        self._function = function

    def save(self, key: tuple[Any, ...], data: object) -> None:
        self._save_data(self._name_of(key), data)
        self._drop_outdated(key[-1][:16])

    def load(self, key: tuple[Any, ...]) -> Any:
        try:
            return self._load_data(self._name_of(key))
        except FileNotFoundError:
            return None

    def _name_of(self, key: tuple[Any, ...]) -> str:
        what = hashlib.sha256(repr((self._version, key)).encode()).hexdigest()
        return f"{self._function}.{key[-1][:16]}-{what[:16]}.nbc"

    def _drop_outdated(self, sources: str) -> None:
        """Remove what was compiled of this function from other sources."""
        for path in Path(self._cache_path).glob(f"{escape(self._function)}.*.nbc"):
            if sources not in path.name:
                path.unlink(missing_ok=True)


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


def compiled_mark() -> Path:
    """Return the file whose existence says that all kernels are compiled, beside them.

    It is another one for other sources, another processor and another numba.
    """
    host = f"{get_host_cpu_name()} {get_host_cpu_features().flatten()} {numba.__version__}"
    machine = hashlib.sha256(f"{SOURCES} {host}".encode()).hexdigest()[:16]
    return Path(str(_Cache(compiled_mark).cache_path)) / f"all-{machine}.compiled"


announcer = _Announcer()
event.register("numba:compile", announcer)


Buffer = TypeVar("Buffer")
Given = TypeVar("Given")
Made = TypeVar("Made")


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


def on_threads(do: Callable[[Given], Made], given: Sequence[Given]) -> list[Made]:
    """Return what is made of each of several things, in their order, on all threads there are.

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
