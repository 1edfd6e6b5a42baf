"""What the process of a worker does in tests; it imports little, so that a process starts soon."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.errors import InputError


class Odd(Exception):
    """An error that cannot be made again of its text."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def make() -> Callable[[Any], Callable[[], Any]]:
    """Make what the process does: it counts its calls."""
    calls = []

    def work(asked: Any) -> Callable[[], Any]:
        calls.append(asked)
        if isinstance(asked, str) and asked == "read long":
            _spend(2.5)
        return partial(JOBS[asked], len(calls)) if isinstance(asked, str) else lambda: asked

    return work


def _spend(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def _spin(_n: int) -> None:
    while True:
        pass


def _spin_outside(_n: int) -> None:
    """Take time where Python cannot be interrupted, and hold its lock."""
    ctypes.PyDLL(None).sleep(1000)


def _fail(_n: int) -> None:
    raise InputError("no such column")


def _fail_oddly(_n: int) -> None:
    raise Odd(1, 2)


def _linger(_n: int) -> None:
    """Begin a file, wait until somebody writes into it, and write down the own priority."""
    path = Path(os.environ["LINGER"])
    path.touch()
    while not path.read_text():
        time.sleep(0.01)
    time.sleep(0.3)
    path.write_text(str(os.nice(0)))


JOBS: dict[str, Callable[[int], Any]] = {
    "count": lambda n: n,
    "read long": lambda n: n,
    "pid": lambda _n: os.getpid(),
    "spin": _spin,
    "hold": _spin_outside,
    # 400 MB twice, without writing into them, which would take time
    "fill": lambda _n: len([np.empty(5 * 10**7) for _ in range(2)]),
    "fail": _fail,
    "fail oddly": _fail_oddly,
    "exit": lambda _n: sys.exit(3),
    "linger": _linger,
    "kill": lambda _n: os.kill(os.getpid(), signal.SIGKILL),
}
