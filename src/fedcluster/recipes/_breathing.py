"""Breath: one step of a search that goes on from a Lloyd optimum.

B. Fritzke, The breathing k-means algorithm, 2020 (arXiv 2006.15666). A breath adds m centres
beside those of the largest errors, iterates, drops the m of the smallest utilities, and iterates
again; it is kept if it made the inertia smaller. There, one breath follows another. A round costs
the same whatever it carries, so here breaths of many depths m share their rounds.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from fedcluster.algorithms import Lloyd
from fedcluster.algorithms._breathing import ErrorAndUtility
from fedcluster.core import Floats, State, Summary, Task
from fedcluster.rounds import Plan, gather, iterate

DEPTHS = (1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10, 12, 15)
"""m of each of the breaths that share their rounds."""

ASIDE = 0.01
"""How far from the old centre a new one lies, in standard deviations of the cluster. The less,
the more evenly both share its rows: far aside, in many dimensions, no row is nearest."""

INHALED = 5
"""Rounds with more centres, before some are dropped."""


def breathe(
    lloyd: Lloyd, state: State, summary: Summary, rng: Generator, *, seed: int = 0
) -> Plan[list[State]]:
    """Plan one breath of each depth: six rounds; the centres are still to be iterated.

    Parameters
    ----------
    lloyd : Lloyd
        The algorithm of the rounds with more centres.
    state : State
        A Lloyd optimum.
    summary : Summary
        What all sites answer `ErrorAndUtility` about it.
    rng : Generator
        Draws on which side of an old centre a new one lies.
    seed : int, default=0
        As in `iterate`.
    """
    errors = summary.sums[:, 0]
    spread = np.sqrt(errors / np.maximum(summary.weights, 1.0) / state.centers.shape[1])
    inhaled = [_inhale(state.centers, errors, spread, m, rng) for m in DEPTHS]
    return (yield from gather([_exhale(lloyd, each, state, seed) for each in inhaled]))


def _inhale(centers: Floats, errors: Floats, spread: Floats, m: int, rng: Generator) -> State:
    """Return the centres and, beside those of the m largest errors, one more each."""
    crowded = np.argsort(-errors, kind="stable")[:m]
    aside = ASIDE * rng.normal(size=(len(crowded), centers.shape[1])) * spread[crowded, None]
    return State.at(np.concatenate([centers, centers[crowded] + aside]))


def _exhale(lloyd: Lloyd, inhaled: State, before: State, seed: int) -> Plan[State]:
    """Plan Lloyd with more centres; then as many as before, without the least useful."""
    result = yield from iterate(lloyd, inhaled, seed=seed, max_rounds=INHALED)
    [answers] = yield [Task(ErrorAndUtility(), result.state, seed)]
    centers, utility = result.state.centers, answers.total().sums[:, 1]
    surplus = len(centers) - len(before.centers)
    return State.at(np.delete(centers, dispensable(centers, utility, surplus), axis=0))


def dispensable(centers: Floats, utility: Floats, m: int) -> list[int]:
    """Return the m centres of smallest utility, sparing the nearest neighbour of each that goes.

    Where that leaves too few to choose from, the next smallest go all the same.
    """
    distance = ((centers[:, None] - centers) ** 2).sum(axis=2)
    np.fill_diagonal(distance, np.inf)
    order = np.argsort(utility, kind="stable").tolist()
    spared: set[int] = set()
    gone: list[int] = []
    for j in order:
        if len(gone) < m and j not in spared:
            gone.append(j)
            spared.add(int(distance[j].argmin()))
    return (gone + [j for j in order if j not in gone])[:m]
