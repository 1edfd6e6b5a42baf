"""One clustering for each k, all in the same rounds, and all indices of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, cast

from fedcluster.core import Floats, Result, State, Task
from fedcluster.metrics import Moments
from fedcluster.recipes import FitSpec, algorithm_of, clustering, evaluation
from fedcluster.recipes._starts import means_of_leaves, means_of_sites
from fedcluster.rounds import EarlyStop, Plan, gather

MOST_ROUNDS = 1.5
"""The rounds of a sweep, in those of one clustering with the largest k."""

AFTERWARDS = 3
"""Rounds that follow a race: its inertia, and two for the indices."""


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """What was found for each k, and how the rows lie as a whole.

    Parameters
    ----------
    results : mapping of int to Result
        The clustering with k clusters, by rising k.
    scores : mapping of int to mapping of str to float
        Its indices, by the names of `fedcluster.metrics.METRICS`.
    weight : float
        The weight of all rows.
    mean, variance : ndarray of shape (d,)
        Of each column over all rows, in the rows' units and their squares.
    """

    results: Mapping[int, Result]
    scores: Mapping[int, Mapping[str, float]]
    weight: float
    mean: Floats
    variance: Floats


def sweep(k_range: Sequence[int], choice: FitSpec) -> Plan[Sweep]:
    """Plan a clustering for each k, in at most half as many rounds more as the largest takes.

    Where the choice starts from means that the sites send, they send them once: enough for the
    largest k, and the server starts every k from the same ones. That is less than twelve
    descriptions of the same rows, to send and to know. A k whose centres still move when the
    largest one's have settled long ago is ended where it is.

    Parameters
    ----------
    k_range : sequence of int
        Each k to try.
    choice : FitSpec
        What to cluster by; its number of clusters is left aside.
    """
    ks = sorted(set(k_range))
    choice = yield from _with_means(replace(choice, n_clusters=ks[-1]))
    plans = [clustering(replace(choice, n_clusters=k)) for k in ks]
    results = yield from gather(plans if choice.means is None else _in_time(plans))
    last: list[Plan[Any]] = [evaluation(r.state, m=choice.m, seed=choice.seed) for r in results]
    measured: list[Any] = yield from gather([*last, _moments(choice.seed)])
    *scores, moments = measured
    return Sweep(dict(zip(ks, results, strict=True)), dict(zip(ks, scores, strict=True)), *moments)


def _with_means(choice: FitSpec) -> Plan[FitSpec]:
    """Plan the means that every k starts from, where the choice starts from means at all."""
    if (
        not algorithm_of(choice).needs_centers
        or not isinstance(choice.init, str)
        or choice.quality != "good"
    ):
        return choice
    if choice.sums_only or choice.init == "sums":
        description = yield from means_of_leaves(choice.n_clusters, seed=choice.seed)
    elif choice.init in ("auto", "summaries"):
        description = yield from means_of_sites(choice.n_clusters, seed=choice.seed)
    else:
        return choice
    return replace(choice, means=replace(description.state, converged=False))


def _in_time(plans: Sequence[Plan[Result]]) -> list[Plan[Result]]:
    """Plans that end soon after the last of them, with what they have."""
    clock = _Clock()
    return [_timed(plan, clock, leads=plan is plans[-1]) for plan in plans]


@dataclass(slots=True)
class _Clock:
    """When the largest k was done, in rounds after the first one; not yet is infinite."""

    leader: float = inf

    def over(self, done: int) -> bool:
        """Whether one more round of a race would be too many."""
        return 1 + (done + 1) + AFTERWARDS > MOST_ROUNDS * (1 + self.leader)


def _timed(plan: Plan[Result], clock: _Clock, *, leads: bool) -> Plan[Result]:
    """One of them: it is told once when its time is over."""
    tasks, done, told = next(plan), 0, False
    while True:
        answers = yield tasks
        done += 1
        try:
            tasks = plan.send(answers)
            if clock.over(done) and not told:
                told, tasks = True, plan.throw(EarlyStop())
        except StopIteration as stop:
            clock.leader = done if leads else clock.leader
            return cast("Result", stop.value)


def _moments(seed: int) -> Plan[tuple[float, Floats, Floats]]:
    """Plan the weight, mean and variance of all rows, in two rounds."""
    state = State()
    for _ in range(2):
        [answers] = yield [Task(Moments(), state, seed)]
        total = answers.total()
        mean, variance = Moments.mean_and_variance(state, total)
        state = State.at(mean[None])
    return float(total.weights[0]), mean, variance
