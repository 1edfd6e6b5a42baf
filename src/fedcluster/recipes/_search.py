"""Race of runs of one algorithm from many starts, which share a decreasing number of rounds.

A last round asks for the exact inertia of the remaining runs, and shows what limits hid.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isclose
from operator import attrgetter
from typing import Any

import numpy as np

from fedcluster.algorithms import Lloyd
from fedcluster.core import Algorithm, Answers, Iteration, Metric, Result, State, Task
from fedcluster.recipes._seeds import ROUNDED, places_by_rise, ranked
from fedcluster.rounds import ENOUGH, EarlyStop, Plan, reason, server_update, state_for

HALVING = {4: 12, 8: 4, 12: 2}
"""Number of runs that stay in a race after each of these rounds."""

SHORT = {8: {2: 4, 4: 2}, 16: {2: 8, 4: 4}}
"""The same for a few starts, at most this many, which are good ones."""

MANY = {2: 16, 4: 4}
"""The same for the many good starts that few rows allow."""

Rank = Callable[[State], Any]


LONG_RUN = 8
"""Number of rounds after which a run is long."""


RACE_ENDED = "when the run that was ahead ended"
"""Reason given for a run that was cut off by the end of its race."""


@dataclass(frozen=True, slots=True, eq=False)
class _Runner:
    """A run in a race.

    Parameters
    ----------
    state : State
        Its present state.
    history : tuple of Iteration
        Its rounds.
    ahead : tuple of State
        Alternative states that may be asked about too.
    """

    state: State
    history: tuple[Iteration, ...] = ()
    ahead: tuple[State, ...] = ()
    gains_behind = 3
    """Number of its last gains by which a run may be behind the best one and stay in the race."""
    factors = (2.0, 4.0)  # larger steps that are also tried in a long run

    @property
    def cycles(self) -> bool:
        """Whether its inertia repeats an earlier one, as limits may cause."""
        inertias = [done.inertia for done in self.history]
        returned = len(inertias) > 2 and inertias[-1] in inertias[:-2]
        return returned and inertias[-1] != inertias[-2]

    def rests(self, eager: bool) -> bool:
        """Return whether the run has ended."""
        return self.state.converged or (eager and self.cycles)

    def result(self, algorithm: Algorithm, n_starts: int, eager: bool, cut: str) -> Result:
        """Return its result; ``cut`` says what ended the race, if not the limit on rounds."""
        if eager and self.cycles:
            cut = "as limits made centres return to where they were"
        why = reason(self.state, len(self.history), cut)
        best = f", best of {n_starts} starts" if n_starts > 1 else ""
        return Result(self.state, self.history, why + best, algorithm)

    def after(
        self, algorithm: Algorithm, places: Sequence[State], answers: Sequence[Answers], seed: int
    ) -> _Runner:
        """Return the run after a round that asked about some states, continuing from the best.

        The best is that of smallest inertia; for k-means, only among those about the same rows,
        because limits may hide others.
        """
        steps = [
            (place, *server_update(algorithm, place, answer, seed))
            for place, answer in zip(places, answers, strict=True)
        ]
        if isinstance(algorithm, Lloyd):
            weights = [float(step[1].weights.sum()) for step in steps]
            steps = [
                steps[i] for i in range(len(steps)) if i == 0 or isclose(weights[i], weights[0])
            ]
        place, state, done = min(steps, key=lambda step: step[1].inertia)
        ahead: tuple[State, ...] = ()
        if state.centers.shape == place.centers.shape:
            moves = state.centers - place.centers
            ahead = tuple(replace(state, centers=place.centers + f * moves) for f in self.factors)
        return _Runner(state, (*self.history, done), ahead)

    def may_catch_up(self, best: _Runner) -> bool:
        """Return whether a few gains like its last one would take it as far as the best run."""
        if len(self.history) < 2:
            return True
        gain = self.history[-2].inertia - self.state.inertia
        behind = self.state.inertia - best.state.inertia
        return self is best or behind <= self.gains_behind * gain + ROUNDED * abs(
            best.state.inertia
        )


def race(
    algorithm: Algorithm,
    starts: Sequence[State],
    *,
    seed: int = 0,
    max_rounds: int = 300,
    keep: Mapping[int, int] | None = None,
    eager: bool = False,
    ahead: bool = False,
    meet: bool = True,
    rank: Rank = attrgetter("inertia"),
) -> Plan[list[Result]]:
    """Plan runs of one algorithm from many starts in the same rounds.

    Parameters
    ----------
    algorithm : Algorithm
        An algorithm that reports the inertia in its states.
    starts : sequence of State
        The starts.
    seed, max_rounds
        As in `iterate`.
    keep : mapping of int to int, optional
        ``{r: q}``: after round r, only the q runs of smallest inertia continue; after the last such
        r, the race is over as soon as the best of them has converged. By default, all runs continue
        until they have converged.
    eager : bool, default=False
        Whether runs that can hardly catch up are dropped, and runs that cycle because of limits are
        ended. For k-means.
    ahead : bool, default=False
        Whether long runs are also evaluated at centres moved farther, and continue from there if
        that is better; a fixed point stays one. For k-means, and for fuzzy c-means without limits.
    meet : bool, default=True
        Whether with ``keep`` only one of runs that have met continues.
    rank : callable taking a State, optional
        A function that is smaller for better runs.

    Returns
    -------
    Plan of list of Result
        The runs that were kept, by increasing rank in their last round; ties keep the given order.
        If asked to finish, the race ends with the runs that are in it.
    """
    runners, cut = [_Runner(start) for start in starts], ""
    for done in range(1, max_rounds + 1):
        asked = [i for i, each in enumerate(runners) if not each.rests(eager)]
        if not asked:
            break
        far = ahead and done > LONG_RUN
        places = [[runners[i].state, *(runners[i].ahead if far else ())] for i in asked]
        try:
            answers = iter((yield [Task(algorithm, at, seed) for each in places for at in each]))
        except EarlyStop:
            cut = ENOUGH
            break
        for i, each in zip(asked, places, strict=True):
            given = [next(answers) for _ in each]
            runners[i] = runners[i].after(algorithm, each, given, seed)
        if keep:
            ordered = _distinct(runners, rank) if meet else _ranked(runners, rank)
            runners = ordered[: keep.get(done, len(runners))]
        runners = [each for each in runners if not eager or each.may_catch_up(runners[0])]
        if keep and done >= max(keep) and runners[0].rests(eager):
            cut = RACE_ENDED
            break
    return [each.result(algorithm, len(starts), eager, cut) for each in _ranked(runners, rank)]


def _ranked(runners: Sequence[_Runner], rank: Rank) -> list[_Runner]:
    """Return runners, best first; those that differ by rounding only keep the given order."""
    ranks = [rank(runner.state) for runner in runners]
    return [runners[i] for group in ranked(ranks) for i in group]


def _distinct(runners: Sequence[_Runner], rank: Rank) -> list[_Runner]:
    """Return runners, best first, only one of several with the same inertia and weights."""
    ranked = _ranked(runners, rank)
    return [
        runner
        for i, runner in enumerate(ranked)
        if not any(_have_met(runner.state, other.state) for other in ranked[:i])
    ]


def _have_met(state: State, other: State) -> bool:
    """Return whether two runs have the same clusters in any order."""
    near = isclose(state.inertia, other.inertia, rel_tol=1e-12)
    return near and np.allclose(np.sort(state.weights), np.sort(other.weights), rtol=1e-12)


def best_of(results: Sequence[Result], metric: Metric, seed: int) -> Plan[Result]:
    """Plan the last round: the exact score of every finalist, from the same sites."""
    tasks = [Task(metric, state_for(metric, result.state), seed) for result in results]
    try:
        answers = yield tasks
    except EarlyStop:  # a request to stop ends the search after this round
        answers = yield tasks
    scores = [
        metric.score(task.state, answer.total())
        for task, answer in zip(tasks, answers, strict=True)
    ]
    best = places_by_rise(scores)[0]
    hidden = "" if answers[best].missing else _hidden(results[best], scores[best], answers[best])
    state = replace(results[best].state, inertia=scores[best])
    return replace(results[best], state=state, reason=results[best].reason + hidden)


def _hidden(result: Result, inertia: float, answers: Answers) -> str:
    """Return the rows that limits hid from the last round of k-means, and their inertia."""
    last = result.history[-1] if result.history else None
    n_rows = float(answers.total().weights.sum())
    if not isinstance(result.algorithm, Lloyd) or last is None or last.missing or not n_rows:
        return ""
    rows = 1 - float(result.state.weights.sum()) / n_rows
    # Smallest share of the rows that is more than rounding.
    if rows < 1e-6 or inertia <= 0:
        return ""
    share = max(0.0, 1 - last.inertia / inertia)
    return f"; limits hid {rows:.2%} of the rows, which hold {share:.0%} of the inertia"
