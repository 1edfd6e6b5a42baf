"""Plan of scoring a clustering by every index, in as few rounds as they depend on each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fedcluster.core import State, Summary, Task
from fedcluster.metrics._indices import METRICS, SHARED, Given, Measurement
from fedcluster.rounds import Plan


def evaluation(
    state: State,
    *,
    m: float | None = None,
    classes: Iterable[Any] | None = None,
    complete: bool = True,
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
        Whether these are all; if not, rows with others are missing in the comparison.
    seed : int, default=0
        Of the tasks; no index draws anything.

    Returns
    -------
    Plan of dict of str to float
        Scores by the names of `fedcluster.metrics.METRICS`, in that order; nan where an index
        says nothing, as of a single cluster.

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
    state = replace(state, memory={})  # what an algorithm remembers is no metric's business
    given = Given(m, None if classes is None else tuple(classes), complete)
    wanted = [*SHARED, *(index.asks for index in METRICS.values())]
    steps = {each: step for each in wanted if (step := each.step(given)) is not None}
    tasks: dict[Measurement, Task] = {}
    totals: dict[Measurement, Summary] = {}
    for round in range(len(steps)):
        now = [each for each in steps if each not in totals and totals.keys() >= {*each.after}]
        if not now:
            break
        tasks |= {each: Task(steps[each], each.state(state, totals, round), seed) for each in now}
        answers = yield [tasks[each] for each in now]
        totals |= {each: answer.total() for each, answer in zip(now, answers, strict=True)}
    return {
        name: index.score(tasks[index.asks].state, totals[index.asks])
        for name, index in METRICS.items()
        if index.asks in totals
    }
