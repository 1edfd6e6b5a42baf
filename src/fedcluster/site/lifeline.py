"""End of a process together with the one that started it, however that one has ended.

It is light, for programs that must start at once.
"""

from __future__ import annotations

import os
import signal
import time
from threading import Thread

LOOK = 0.2
"""Seconds between two checks for the parent."""


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
    if grace:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    Thread(target=_follow, args=[parent, grace], daemon=True).start()


def _follow(parent: int, grace: float) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    if grace:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(grace)
    os._exit(1)
