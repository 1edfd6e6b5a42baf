"""End of a process together with the one that started it, however that one has ended.

It is light, for programs that must start at once.
"""

from __future__ import annotations

import os
import signal
import time
from threading import Thread

PARENT_LOOK = 0.2
"""Seconds between two checks for the parent."""

_FOLLOWED: list[int] = []
"""The process with which this one ends, if it ends with one."""


def end_with(parent: int, grace: float = 0.0) -> None:
    """End this process as soon as its parent has ended, however it was started.

    Parameters
    ----------
    parent : int
        The process that started this one. A program that a script starts in the background ignores
        interrupts, as do its children, so nothing rests on them.
    grace : float, default=0
        Seconds to end by itself after an interrupt.
    """
    _FOLLOWED[:] = [parent]
    if grace:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    Thread(target=_follow, args=[parent, grace], daemon=True).start()


def _follow(parent: int, grace: float) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_LOOK)
    if grace:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(grace)
    os._exit(1)


def program() -> int:
    """Return the process with which this one ends; if it ends with none, this one."""
    return next(iter(_FOLLOWED), os.getpid())


def end_after(program: int, seconds: float) -> None:
    """End this process some seconds after a program has ended, which need not be its parent.

    Parameters
    ----------
    program : int
        The process of the program.
    seconds : float
        Seconds to finish what was begun.
    """
    Thread(target=_outlive, args=[program, seconds], daemon=True).start()


def _outlive(program: int, seconds: float) -> None:
    is_parent = os.getppid() == program
    while os.getppid() == program if is_parent else _is_there(program):
        time.sleep(PARENT_LOOK)
    time.sleep(seconds)
    os._exit(1)


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True
