"""How kernels are compiled: without the interpreter's lock, once on a machine, and audibly."""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import event
from numba.core.caching import FunctionCache

logger = logging.getLogger("fedcluster")

F = TypeVar("F", bound=Callable[..., object])

_files = sorted(Path(__file__).parent.glob("*.py"))
SOURCES = hashlib.sha256(b"".join(file.read_bytes() for file in _files)).hexdigest()


def native(function: F) -> F:
    """Compile a function at its first call, or load what was compiled from the same sources."""
    return _compiled(function)


def native_in_any_order(function: F) -> F:
    """``native`` for a loop whose sum may be added in vectors: always the same for one length."""
    return _compiled(function, fastmath={"contract", "nsz", "reassoc"}, error_model="numpy")


def _compiled(function: F, **options: object) -> F:
    """Compile with a cache that looks at all kernels.

    numba's own looks at the file of the function alone. It would go on calling what the function
    called when that file was as it is: at best the old code, at worst with new arguments.
    """
    dispatcher: Any = njit(nogil=True, **options)(function)
    dispatcher._cache = _Cache(function)
    return cast(F, dispatcher)


class _Cache(FunctionCache):
    def _index_key(self, *args: Any) -> tuple[Any, ...]:
        return super()._index_key(*args), SOURCES


class _Announcer(event.Listener):
    """Says once that kernels are compiled, where none that this machine compiled is found."""

    def __init__(self) -> None:
        self.has_spoken = False

    def on_start(self, event: event.Event) -> None:
        ours = event.data["dispatcher"].__module__.startswith("fedcluster.")
        if ours and not self.has_spoken:
            self.has_spoken = True
            logger.info("compiling fedcluster's kernels, once on this machine: some seconds")

    def on_end(self, event: event.Event) -> None:
        pass


announcer = _Announcer()
event.register("numba:compile", announcer)
