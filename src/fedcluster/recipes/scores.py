"""Plan of scoring a clustering by every index, in as few rounds as their dependence allows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from fedcluster.core import Answers, Metric, PlannedStep, State, Step, Summary, Task
from fedcluster.core.task import stream
from fedcluster.metrics.clusters import BY_CHANCE as BY_CHANCE
from fedcluster.metrics.clusters import metric_name, shown_value
from fedcluster.metrics.indices import COLUMNS, METRICS, SCATTER, SHARED, Given, Measurement
from fedcluster.metrics.silhouettes import silhouette_by_chance
from fedcluster.rounds import Plan, state_for


def evaluation(
    state: State,
    *,
    m: float | None = None,
    classes: Iterable[Any] | None = None,
    complete: bool = True,
    metrics: Sequence[Metric] = (),
    n_references: int = 0,
    seed: int = 0,
) -> Plan[dict[str, float]]:
    """Plan two rounds that score the centres of a state by every index that applies.

    Parameters
    ----------
    state : State
        The centres.
    m : float, optional
        The fuzzifier, for the indices of fuzzy clusters.
    classes : iterable, optional
        The labels that the sites have, for the indices that compare with them.
    complete : bool, default=True
        Whether these are all labels; if not, rows with other labels are left out of the comparison.
    metrics : sequence of Metric, optional
        Further metrics for the first round, each asked about the centres and the arrays of the
        memory that it declares.
    n_references : int, default=0
        Number of draws of each kind of rows without clusters, which the server clusters for
        comparison.
    seed : int, default=0
        Seed of these rows, and of the tasks, which draw nothing.

    Returns
    -------
    Plan of dict of str to float
        Scores by the names of `fedcluster.metrics.METRICS`, in that order, followed by the further
        metrics; nan if an index is undefined, as for a single cluster. With references, also the
        silhouette `BY_CHANCE`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster import Client, Data, LocalEngine
    >>> from fedcluster.rounds import run_plan
    >>> engine = LocalEngine(
    ...     [Client("north", Data(np.array([[0.0], [1.0], [9.0]]))),
    ...      Client("south", Data(np.array([[0.0], [8.0], [10.0]])))]
    ... )
    >>> outcome = run_plan(evaluation(State.at([[0.0], [9.0]])), engine)
    >>> outcome.value["inertia"], round(outcome.value["squared-silhouette"], 4)
    (3.0, 0.9817)
    >>> len(outcome.communication_rounds), outcome.values_sent()
    (2, {'north': 22, 'south': 22})
    """
    own = [Task(metric, state_for(metric, state), seed) for metric in metrics]
    state = replace(state, memory={})  # indices must not depend on the memory of an algorithm
    given = Given(m, None if classes is None else tuple(classes), complete)
    steps = _questions(given)
    tasks: dict[Measurement, Task] = {}
    totals: dict[Measurement, Summary] = {}
    others: list[Answers] = []
    for round in range(len(steps)):
        now = [each for each in steps if each not in totals and totals.keys() >= {*each.after}]
        if not now:
            break
        tasks |= {each: Task(steps[each], each.state(state, totals, round), seed) for each in now}
        answers = yield [*(tasks[each] for each in now), *(own if not round else ())]
        others = others if round else answers[len(now) :]
        totals |= {each: answer.total() for each, answer in zip(now, answers, strict=False)}
    scores = {
        name: index.score(tasks[index.asks].state, totals[index.asks])
        for name, index in METRICS.items()
        if index.asks in totals
    }
    if n_references:
        rng = stream(seed, 0, "chance")
        scores[BY_CHANCE] = silhouette_by_chance(
            state, totals[SCATTER], totals[COLUMNS], n_references, rng
        )
    return scores | {
        str(metric): metric.score(task.state, answer.total())
        for metric, task, answer in zip(metrics, own, others, strict=True)
    }


def objective_value(objective: Metric, state: State) -> Plan[dict[str, float]]:
    """Plan one round about the objective of a clustering, under the name that its fit uses.

    It refers to the rows as in the fit, including those of no cluster.
    """
    [answers] = yield [Task(objective, state_for(objective, state), 0, everyone=True)]
    name = metric_name(objective)
    return {name: shown_value(name, objective.score(state, answers.total()))}


def evaluation_steps(m: float | None, *, labels: bool = False) -> list[PlannedStep]:
    """Return the steps that `evaluation` asks, without users' own metrics.

    Parameters
    ----------
    m : float or None
        The fuzzifier.
    labels : bool, default=False
        Whether clusters are compared with labels.
    """
    given = Given(m, ("",) if labels else None)
    return [type(step) for step in dict.fromkeys(_questions(given).values())]


def _questions(given: Given) -> dict[Measurement, Step]:
    """Return the step of each measurement that applies, in the order of their tasks."""
    wanted = [*SHARED, *(index.asks for index in METRICS.values())]
    return {each: step for each in wanted if (step := each.step(given)) is not None}
