"""Plan of a clustering together with replicates of it on resampled rows, in the same rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcluster.algorithms import MergedMixture, TrimmedLloyd
from fedcluster.core import Floats, PlannedStep, Result, RowTransform, State, Task
from fedcluster.core.task import stream
from fedcluster.kernels import kmeans
from fedcluster.metrics.external import Agreement, Separation, lowest_between
from fedcluster.model.stability import Stability, jaccards
from fedcluster.recipes._search import race
from fedcluster.recipes._trimming import trimmed_seeds
from fedcluster.recipes.fit import algorithm_of, clustering, description, description_step
from fedcluster.recipes.specifications import Fit
from fedcluster.rounds import EarlyStop, Plan, each_task

REPLICATES = 20
"""Default number of replicates."""
MOST_STEPS, MOST_REPLICATES = 10, 200
"""Largest number of rounds of a replicate after its start, and of replicates."""
MOST_ROUNDS = 1.5
"""Largest number of rounds, as a multiple of those of the clustering alone."""
COMPARING: tuple[PlannedStep, ...] = (Separation, Agreement)
"""The steps that compare clusters with those of replicates."""

T = TypeVar("T")


def beside_replicates(
    plan: Plan[T], again: Callable[[int], Plan[Result]], n: int, seed: int, before: int = 0
) -> Plan[tuple[T, list[Result]]]:
    """Plan a job with replicates of its clustering, in at most half as many rounds more.

    Parameters
    ----------
    plan : Plan
        The job.
    again : callable
        ``again(seed)`` plans a replicate.
    n : int
        The number of replicates.
    seed : int
        Determines the draws of their rows, and their starts.
    before : int
        Number of rounds that the job took before.

    Returns
    -------
    Plan of (object, list of Result)
        The result of the job, and the replicates that finished in time.
    """
    others = [resampling(again(each), each) for each in draws(n, seed)]
    results: dict[int, Any] = {}
    answers: dict[int, Any] = dict.fromkeys(range(1 + n))
    done, limit = 0, np.inf
    running = dict(enumerate([plan, *others]))
    while running:
        asked: dict[int, list[Task]] = {}
        for i in list(running):
            # Number of rounds after the replicates were asked to end: the comparison.
            late = i > 0 and done + 1 + 1 > limit
            try:
                asked[i] = _next(running[i], answers[i], late=late)
            except StopIteration as stop:
                results[i] = stop.value
                del running[i]
                limit = limit if i else MOST_ROUNDS * (before + done) - before
            except EarlyStop:
                del running[i]
        every = iter((yield [task for tasks in asked.values() for task in tasks]) if asked else ())
        done += bool(asked)
        answers = {i: [next(every) for _ in tasks] for i, tasks in asked.items()}
    return results.pop(0), [results[i] for i in sorted(results)]


def draws(n: int, seed: int) -> list[int]:
    """Return the seeds of n bootstrap samples."""
    seeds: list[int] = stream(seed, 0, "bootstrap").integers(2**31, size=n).tolist()
    return seeds


def replicated(job: Fit, n_clusters: int) -> Any:
    """Return the specification of a replicate: one start, found anew, and few rounds."""
    start = "auto" if isinstance(job.init, np.ndarray) else job.init
    steps = min(job.max_iter, MOST_STEPS)
    return replace(job, n_clusters=n_clusters, init=start, n_init=1, max_iter=steps)


def replicate(job: Fit, seed: int) -> Plan[Result]:
    """Plan a clustering from a start that is found anew, the best of several among the means.

    A single start would measure how often the search fails, not whether the clusters are real.
    """
    spec = replace(job, seed=seed)
    step = description_step(spec)
    if step is None or job.algorithm != "auto":
        return (yield from clustering(spec))
    described = yield from description(step, job.n_clusters, seed)
    rng, means = stream(seed, described.state.round), described.state
    if len(means.centers) < job.n_clusters:
        return (yield from clustering(replace(spec, means=means)))
    algorithm = algorithm_of(spec)
    if isinstance(algorithm, TrimmedLloyd):  # k-means++ would choose outliers as starts
        [start] = trimmed_seeds(means, job.n_clusters, algorithm.trim, 1, rng)
    else:
        start = State.at(kmeans(means.centers, job.n_clusters, means.weights, rng=rng).centers)
    [result] = yield from race(algorithm, [start], seed=seed, max_rounds=job.max_iter)
    return result


def counted(plan: Plan[T]) -> Plan[tuple[T, int]]:
    """Let a plan also return its number of rounds."""
    answers: Any = None
    rounds = 0
    while True:
        try:
            tasks = plan.send(answers)
        except StopIteration as stop:
            return stop.value, rounds
        answers = yield tasks
        rounds += 1


def finished(value: T) -> Plan[T]:
    """Return a plan without rounds that returns a value."""
    return value
    yield []


def _next(plan: Plan[Any], answers: Any, *, late: bool) -> list[Task]:
    """Return the next tasks of a plan, which is asked to finish if it is late."""
    tasks = plan.send(answers)
    return plan.throw(EarlyStop()) if late else tasks


def resampling(plan: Plan[T], seed: int) -> Plan[T]:
    """Let a plan ask about resampled rows, the same in all its rounds."""
    return each_task(plan, lambda task: replace(task, resampled=seed))


def compared(
    state: State,
    replicates: Sequence[Result],
    how: RowTransform,
    left_out: int = 0,
    gaps: tuple[NDArray[np.intp], Floats] | None = None,
) -> Plan[Stability]:
    """Plan the round that compares clusters with those of replicates and with their neighbours.

    Parameters
    ----------
    state : State
        The clusters.
    replicates : sequence of Result
        The result of each replicate.
    how : RowTransform
        Prepares rows and assigns them to the clusters.
    left_out : int, default=0
        Number of replicates that did not finish in time.
    gaps : (ndarray of shape (k,), ndarray of shape (k,)), optional
        The neighbour of each cluster, and the density between both, if known.
    """
    k, centers = len(state.centers), state.centers
    apart = ((centers[:, None] - centers) ** 2).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    neighbours = apart.argmin(axis=1) if gaps is None else gaps[0]
    line = State(centers, np.zeros(k), memory={"neighbours": neighbours.astype(np.float64)})
    asked = [Task(Separation(), line)] if gaps is None else []
    asked += [_agreement(k, each) for each in replicates]
    counted = yield [replace(task, preprocessor=how, everyone=True) for task in asked]
    tables = [each.total().weights.reshape(k, -1) for each in counted[gaps is None :]]
    found = np.array([jaccards(table) for table in tables]).reshape(-1, k)
    if gaps is not None:
        return Stability(found, *gaps, left_out)
    cells = counted[0].total().weights.reshape(k, -1)
    seen = np.array([table.sum(axis=1) for table in tables]).reshape(-1, k)
    rows = seen.max(axis=0, initial=0.0)
    between = lowest_between(cells, rows + rows[neighbours])
    return Stability(found, neighbours, between if k > 1 else np.full(1, np.nan), left_out)


def _agreement(k: int, replicate: Result) -> Task:
    """Return the question how many rows each of k clusters shares with those of a replicate."""
    own, state = replicate.algorithm, replicate.state
    if not isinstance(own, MergedMixture):
        return Task(Agreement(k), State.at(state.centers))
    step = Agreement(k, True, own.covariance_type, own.log_noise, own.levels)
    return Task(step, State(state.centers, state.weights, memory=state.memory))
