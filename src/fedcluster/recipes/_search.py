"""Race of runs of one algorithm from many starts: they share their rounds, fewer and fewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedcluster.core import Algorithm, Iteration, Result, State, Task
from fedcluster.rounds import EarlyStop, Plan, reason, server_update

HALVING = {4: 12, 8: 4, 12: 2}
"""Runs that stay in a race after so many rounds."""

SHORT = {8: {2: 4, 4: 2}, 16: {2: 8, 4: 4}}
"""The same from at most so many starts, which are good ones."""

Runner = tuple[State, tuple[Iteration, ...]]


def race(
    algorithm: Algorithm,
    starts: Sequence[State],
    *,
    seed: int = 0,
    max_rounds: int = 300,
    keep: Mapping[int, int] | None = None,
) -> Plan[list[Result]]:
    """Plan runs of one algorithm from many starts in the same rounds.

    Parameters
    ----------
    algorithm : Algorithm
        One that reports the inertia in its states.
    starts : sequence of State
        The starts.
    seed, max_rounds
        As in `iterate`.
    keep : mapping of int to int, optional
        ``{r: q}``: after round r only the q runs of smallest inertia go on, and of runs that have
        met only one; after the last such r the race is over as soon as the first of them has
        converged. Without it all runs go on until they have.

    Returns
    -------
    Plan of list of Result
        The runs that were kept, by rising inertia of their last round; equals as given. Told
        that it is enough, the race ends with those that are in it.
    """
    runners: list[Runner] = [(start, ()) for start in starts]
    for done in range(1, max_rounds + 1):
        asked = [i for i, (state, _) in enumerate(runners) if not state.converged]
        if not asked:
            break
        try:
            answers = yield [Task(algorithm, runners[i][0], seed) for i in asked]
        except EarlyStop:
            break
        for i, answer in zip(asked, answers, strict=True):
            state, round_ = server_update(algorithm, runners[i][0], answer, seed)
            runners[i] = state, (*runners[i][1], round_)
        runners = _distinct(runners)[: keep.get(done, len(runners))] if keep else runners
        if keep and done >= max(keep) and runners[0][0].converged:
            break
    best = f", best of {len(starts)} starts" if len(starts) > 1 else ""
    return [
        Result(state, history, reason(state, len(history)) + best, algorithm)
        for state, history in _ranked(runners)
    ]


def _ranked(runners: Sequence[Runner]) -> list[Runner]:
    """Return runners by rising inertia."""
    return sorted(runners, key=lambda runner: runner[0].inertia)


def _distinct(runners: Sequence[Runner]) -> list[Runner]:
    """Return runners by rising inertia, one of those with the same inertia and weights."""
    ranked = _ranked(runners)
    return [
        runner
        for i, runner in enumerate(ranked)
        if not any(_have_met(runner[0], other[0]) for other in ranked[:i])
    ]


def _have_met(state: State, other: State) -> bool:
    """Return whether two runs are at the same clusters, whatever their order."""
    near = np.isclose(state.inertia, other.inertia, rtol=1e-12, atol=0)
    return bool(near) and np.allclose(np.sort(state.weights), np.sort(other.weights), rtol=1e-12)
