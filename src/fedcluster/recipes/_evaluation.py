"""All indices of a clustering in two rounds: those that read the same message share it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedcluster.core import State, Step, Summary, Task
from fedcluster.metrics import (
    METRICS,
    Clusters,
    ColumnSpread,
    Contingency,
    FuzzyScatter,
    MixtureLikelihood,
    Scatter,
    SimplifiedSilhouette,
    SiteARI,
    Spread,
    SquaredSilhouette,
)
from fedcluster.metrics._indices import Place
from fedcluster.rounds import Plan

Key = tuple[type[Step], Place]


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
    seed : int
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
    >>> found = run_plan(evaluation(State.at([[0.0], [9.0]])), engine)
    >>> found.value["inertia"], round(found.value["squared-silhouette"], 4)
    (3.0, 0.9817)
    >>> len(found.communication_rounds), found.values_sent()
    (2, {'north': 22, 'south': 22})
    """
    steps: list[Step] = [Scatter(), SimplifiedSilhouette(), ColumnSpread()]
    steps += [FuzzyScatter(m)] if m is not None else []
    steps += [Contingency.of(classes, complete=complete), SiteARI()] if classes is not None else []
    first: dict[Key, Task] = {(type(s), "centers"): Task(s, state, seed) for s in steps}
    totals = yield from _totals(first)
    found, spread = Clusters.of(state, totals[Scatter, "centers"]), totals[ColumnSpread, "centers"]
    second = _second_round(found, spread, state.round + 1, seed)
    totals |= yield from _totals(second)
    tasks = first | second
    return {
        name: index.score(tasks[index.step, index.at].state, totals[index.step, index.at])
        for name, index in METRICS.items()
        if (index.step, index.at) in totals
    }


def _second_round(found: Clusters, spread: Summary, round: int, seed: int) -> dict[Key, Task]:
    """What can be asked only once the clusters' means are known."""
    described, mixture = found.described(round), MixtureLikelihood.described(found, spread, round)
    means = State(found.means[found.present], found.weights[found.present], round=round)
    return {
        (Spread, "described"): Task(Spread(), described, seed),
        (SquaredSilhouette, "described"): Task(SquaredSilhouette(), described, seed),
        (MixtureLikelihood, "described"): Task(MixtureLikelihood(), mixture, seed),
        (SimplifiedSilhouette, "means"): Task(SimplifiedSilhouette(), means, seed),
    }


def _totals(tasks: Mapping[Key, Task]) -> Plan[dict[Key, Summary]]:
    """Plan one round; the sum of the answers to each task."""
    answers = yield list(tasks.values())
    return {key: answer.total() for key, answer in zip(tasks, answers, strict=True)}
