"""A search that goes on from a Lloyd optimum: breathing, many breaths in the same rounds.

B. Fritzke, The breathing k-means algorithm, 2020. There, one breath after another adds m centres
where the error is largest, iterates, drops the m of smallest utility, iterates, and keeps what is
better. A round costs the same whatever it carries, so here breaths of different m and of
different places race each other, and each moves m centres at once.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from fedcluster.algorithms import Lloyd
from fedcluster.algorithms.breathing import ErrorAndUtility
from fedcluster.core import Floats, Result, State, Task, stream
from fedcluster.recipes.race import HALVING, race
from fedcluster.rounds import Plan

__all__ = ["breathe"]

DEPTHS = (1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10, 12, 15)
"""How many centres each of the racing breaths moves."""


def breathe(
    result: Result, *, seed: int = 0, tol: float = 1e-4, max_rounds: int = 300, patience: int = 2
) -> Plan[Result]:
    """Plan breaths from a Lloyd optimum until ``patience`` of them in a row gain nothing.

    Parameters
    ----------
    result : Result
        A converged run of Lloyd.
    seed, tol, max_rounds
        As in `Lloyd` and `iterate`, for each breath.
    """
    best, history, failed, breath = result.state, result.history, 0, 0
    while failed < patience and len(best.centers) > 1:
        [answers] = yield [Task(ErrorAndUtility(), best, seed)]
        error, utility = answers.total().sums.T
        rng = stream(seed, 1_000_000 + breath)
        moved = [
            State.at(_moved(best.centers, error, utility, answers.total().weights, m, rng))
            for m in DEPTHS
            if m < len(best.centers)
        ]
        found, *_ = yield from race(
            Lloyd(tol), moved, seed=seed, max_rounds=max_rounds, keep=HALVING
        )
        history, breath = history + found.history, breath + 1
        gained = found.state.inertia < best.inertia * (1 - 1e-6)
        failed = 0 if gained else failed + 1
        best = found.state if gained else best
    return Result(best, history, f"{result.reason}; no gain in the last {patience} breaths")


def _moved(
    centers: Floats, error: Floats, utility: Floats, weights: Floats, m: int, rng: Generator
) -> Floats:
    """The centres with the m of smallest utility moved beside the m of largest error."""
    gone = _dispensable(centers, utility, m)
    stays = np.setdiff1d(np.arange(len(centers)), gone)
    crowded = stays[np.argsort(-error[stays], kind="stable")[: len(gone)]]
    spread = np.sqrt(error[crowded] / np.maximum(weights[crowded], 1.0) / centers.shape[1])
    centers = centers.copy()
    beside = rng.normal(size=(len(crowded), centers.shape[1])) * spread[:, None]
    centers[gone[: len(crowded)]] = centers[crowded] + beside
    return centers


def _dispensable(centers: Floats, utility: Floats, m: int) -> np.ndarray:
    """At most m centres of smallest utility; the nearest neighbour of one that goes stays."""
    distance = ((centers[:, None] - centers) ** 2).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    frozen: set[int] = set()
    gone: list[int] = []
    for j in np.argsort(utility, kind="stable").tolist():
        if len(gone) < m and j not in frozen:
            gone.append(j)
            frozen.add(int(distance[j].argmin()))
    return np.array(gone)
