"""Compilation of the kernels: without the interpreter's lock, once per machine, and announced."""

import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from glob import escape
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
from llvmlite.binding import get_host_cpu_features, get_host_cpu_name
from numba import njit
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile, _CacheLocator

logger = logging.getLogger("fedcluster")

COMPILING = (
    "compiling numerical kernels, once on this machine: 5 to 30 seconds; fedcluster warm-up"
    " does so beforehand"
)

IN_ANY_ORDER: dict[str, object] = {
    "fastmath": {"contract", "nsz", "reassoc"},
    "error_model": "numpy",
}

F = TypeVar("F", bound=Callable[..., object])

_folder = Path(__file__).parent
_files = sorted(_folder.glob("*.py"))
SOURCES = hashlib.sha256(b"".join(file.read_bytes() for file in _files)).hexdigest()

SHARED = [_folder / "__pycache__"]
"""Folders whose compiled functions are loaded even if this user may not write there."""
if numba.config.CACHE_DIR:
    _given = _CacheLocator.get_suitable_cache_subpath(__file__)
    SHARED.insert(0, Path(numba.config.CACHE_DIR, _given))


def native(function: F) -> F:
    """Compile a function at its first call, or load it if compiled from the same sources."""
    return _compiled(function)


def native_in_any_order(function: F) -> F:
    """Compile a loop whose sum may be reordered into vectors, alike for equal lengths."""
    return _compiled(function, **IN_ANY_ORDER)


def inner(function: F) -> F:
    """Compile a function for compiled callers only, without an entry point for Python.

    Entry points take a tenth of the compilation time of a first fit. Like `native`, it is compiled
    once for all its callers, and its additions stay as written even if the caller's need not.
    """
    return _inner(function)


def inner_in_any_order(function: F) -> F:
    """Compile like `native_in_any_order`, for compiled callers only."""
    return _inner(function, **IN_ANY_ORDER)


def inner_as_written(function: F) -> F:
    """Compile like `inner`, but dividing by 0 without an error, so that loops become vectors."""
    return _inner(function, error_model="numpy")


def inlined(function: F) -> F:
    """Compile a function as a part of each of its callers, in their mode, and never for itself.

    numba analyses the callers' code with that of the function in its place, which takes a fraction
    of the time of a function of its own.
    """
    return cast(F, njit(inline="always")(function))


def _inner(function: F, **options: object) -> F:
    return _njit(function, no_cpython_wrapper=True, **options)


def _njit(function: F, **options: object) -> F:
    """Compile in a mode of its own: numba gives a function without one that of its first caller."""
    given = {"fastmath": False, "error_model": "python", "no_cfunc_wrapper": True, **options}
    return cast(F, njit(nogil=True, **given)(function))


def _compiled(function: F, **options: object) -> F:
    """Compile with a cache that depends on the sources of all kernels.

    numba's own cache depends on the function's file only. After a change of another file, it would
    still run the old code of the functions called, possibly with new arguments.
    """
    dispatcher: Any = _njit(function, **options)
    dispatcher._cache = _Cache(function)
    return cast(F, dispatcher)


def with_names(function: F, **given: object) -> F:
    """Return a function of the same code in which some global names mean something else.

    A loop in Python becomes one that is compiled whole by the compiled form of what it calls.
    """
    source = cast(FunctionType, function)
    names = {**source.__globals__, **given}
    return cast(F, FunctionType(source.__code__, names, source.__name__))


class _Cache(FunctionCache):
    """Cache of compiled functions that a change in any kernel's source invalidates."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__(function)
        self._cache_file = _Files(self._cache_path, self._impl.filename_base)

    def _index_key(self, *args: Any) -> tuple[Any, ...]:
        return super()._index_key(*args), SOURCES


class _Files(IndexDataCacheFile):
    """Files of compiled functions, each named by its content.

    numba numbers the files and describes them in an index. If two processes compile at once, one
    may write the index and the other the file, so that a function is called with arguments of other
    types than it was compiled for.

    Files are also loaded from the folders where one account may compile for all. numba looks only
    into the folder that it may write to.
    """

    def __init__(self, folder: str, function: str) -> None:
        super().__init__(folder, function, None)
        self._function = function

    def save(self, key: tuple[Any, ...], data: object) -> None:
        self._save_data(self._name_of(key), data)
        self._drop_outdated(key[-1][:16])

    def load(self, key: tuple[Any, ...]) -> Any:
        name = self._name_of(key)
        for folder in (self._cache_path, *SHARED):
            with suppress(OSError):
                return self._load_data(str(Path(folder, name)))
        return None

    def _name_of(self, key: tuple[Any, ...]) -> str:
        what = hashlib.sha256(repr((self._version, key)).encode()).hexdigest()
        return f"{self._function}.{key[-1][:16]}-{what[:16]}.nbc"

    def _drop_outdated(self, sources: str) -> None:
        """Remove files of this function that were compiled from other sources."""
        for path in Path(self._cache_path).glob(f"{escape(self._function)}.*.nbc"):
            if sources not in path.name:
                path.unlink(missing_ok=True)


class _Announcer(event.Listener):
    """Listener that announces compilation once, if this machine has no compiled kernels yet.

    Attributes
    ----------
    has_spoken : bool
        Whether the announcement was made.
    compiled : int
        The number of kernels that this process has compiled.
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


def compiled_mark(what: str = "all") -> Path:
    """Return the marker file beside compiled kernels that exists once all of them are compiled.

    Another marker exists once compiling loops over kernels has paid off. The names depend on the
    sources, the processor and numba's version.
    """
    host = f"{get_host_cpu_name()} {get_host_cpu_features().flatten()} {numba.__version__}"
    machine = hashlib.sha256(f"{SOURCES} {host}".encode()).hexdigest()[:16]
    own = Path(str(_Cache(compiled_mark).cache_path))
    marks = [folder / f"{what}-{machine}.compiled" for folder in (own, *SHARED)]
    return next((mark for mark in marks if mark.exists()), marks[0])


LOOPS = 1 << 15
"""Number of loops that in Python take about as much longer as their compilation takes."""


class _CompiledLoops:
    """Whether loops over kernels are compiled as well, which never changes a bit of a result.

    Compiled, a loop takes 20 to 100 microseconds less, but a first fit two to four times as long.
    So on a machine without compiled kernels, loops run in Python until that has cost as much.

    Attributes
    ----------
    left : int, optional
        Number of loops before they are compiled; None before the first.
    """

    def __init__(self) -> None:
        self.left: int | None = None

    def pay_off(self, n: int = 1) -> bool:
        """Return whether n loops are to be compiled."""
        if self.left is None:
            are_here = any(compiled_mark(what).exists() for what in ("all", "loops"))
            self.left = 0 if are_here else LOOPS
        elif self.left:
            self.left = max(self.left - n, 0)
            if not self.left:
                with suppress(OSError):  # without a writable cache, each process counts for itself
                    compiled_mark("loops").touch()
        return not self.left


compiled_loops = _CompiledLoops()
announcer = _Announcer()
event.register("numba:compile", announcer)
