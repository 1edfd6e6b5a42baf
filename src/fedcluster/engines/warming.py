"""Compilation of all kernels before the first question, once per machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from fedcluster.core.files import lock
from fedcluster.errors import InputError
from fedcluster.kernels.runtime import compiled_mark


def ensure_warmed(say: Callable[[str], None]) -> None:
    """Compile the missing kernels in a separate process; announce it first.

    If several programs start at the same time, one compiles and the others wait.
    """
    mark = compiled_mark()
    if mark.exists():
        return
    say("compiling numerical kernels, once on this machine: about two minutes")
    with _alone(mark.with_suffix(".lock")):
        if not mark.exists():
            command = [sys.executable, "-P", "-m", "fedcluster_app", "warm-up", "--quiet"]
            subprocess.run(command, stdin=subprocess.DEVNULL, check=False)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock for the duration of a block, if the lock file can be stored."""
    with ExitStack() as held:
        with suppress(OSError, InputError):  # InputError on Windows
            path.parent.mkdir(parents=True, exist_ok=True)
            lock(held.enter_context(path.open("wb")))
        yield
