"""Many runs with different seeds, on two processes; the results do not depend on how many."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

PROCESSES = 2
MOST = 25
"""So many seeds does a process take at once, or fewer, that all are busy to the end."""

S = TypeVar("S")


def runs_of(
    work: Callable[[S, int], object], settings: Sequence[S], runs: int
) -> list[NDArray[np.float64]]:
    """What ``work(setting, seed)`` returns for seeds 0, 1, ...; for each setting (runs, ...).

    Both must survive pickling: a function of a module, and plain values.
    """
    firsts = range(0, runs, min(MOST, max(1, runs // (4 * PROCESSES))))
    blocks = [
        (work, setting, range(first, min(first + firsts.step, runs)))
        for setting in settings
        for first in firsts
    ]
    done = iter(_pool().map(_block, blocks))
    return [
        np.array([found for _ in firsts for found in next(done)], dtype=float) for _ in settings
    ]


def _block(asked: tuple[Callable[[S, int], object], S, range]) -> list[object]:
    work, setting, seeds = asked
    return [work(setting, seed) for seed in seeds]


@cache
def _pool() -> ProcessPoolExecutor:
    """One core a process: a run is small, and threads would only get in each other's way."""
    for variable in ("FEDCLUSTER", "OMP", "OPENBLAS", "MKL"):
        os.environ[f"{variable}_NUM_THREADS"] = "1"
    return ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"))
