"""Plan of choosing k: one clustering for each k in the same rounds, indices, gaps, verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, cast

import numpy as np

from fedcluster.algorithms import FFCM
from fedcluster.core import Floats, Result, State, Task
from fedcluster.metrics._moments import Moments
from fedcluster.recipes import FitSpec, clustering, evaluation
from fedcluster.recipes._clustering import algorithm_of, description, description_step
from fedcluster.rounds import EarlyStop, Plan, everyone, gather
from fedcluster.selection._gap import box, gaps
from fedcluster.selection._verdict import Rule, Selection, judged

MOST_ROUNDS = 1.5
"""The rounds of a sweep, in those of one clustering with the largest k."""

FEW_ROUNDS = 12
"""Rounds that a sweep may take in any case, however few its largest k does."""

AFTERWARDS = 3
"""Rounds that follow a race: its inertia, and two for the indices."""

FUZZY_RULES = ("fuzzy-db", "xie-beni")


def clustered_by(rule: str, m: float | None = None, averaging: str = "avg_2") -> dict[str, Any]:
    """Return the parameters of a `FitSpec` that a rule decides.

    Parameters
    ----------
    rule : str
        One of `RULES`. "xie-beni" and "fuzzy-db" judge fuzzy clusters; "fuzzy-db" those of the
        program of Stallmann & Wilbik.
    m : float, optional
        The fuzzifier; these two rules imply 2.
    averaging : {"avg_2", "avg_1"}, default="avg_2"
        For "fuzzy-db": how the server averages.

    Examples
    --------
    >>> clustered_by("vote"), clustered_by("xie-beni")
    ({'m': None}, {'m': 2.0})
    >>> clustered_by("fuzzy-db", averaging="avg_1")["algorithm"].averaging
    'avg_1'
    """
    if m is None and rule in FUZZY_RULES:
        m = 2.0
    if rule != "fuzzy-db":
        return {"m": m}
    program = FFCM(m or 2.0, averaging=averaging, local="converge", support="u")  # type: ignore[arg-type]
    return {"m": m, "algorithm": program}


def select_k_plan(
    k_range: Sequence[int], spec: FitSpec, rule: Rule | None = None
) -> Plan[Selection]:
    """Plan a clustering for each k and say which k is right.

    Parameters
    ----------
    k_range : sequence of int
        Each k to try.
    spec : FitSpec
        What to cluster by; its number of clusters is left aside.
    rule : Rule, optional
        How k is chosen; by default the vote.
    """
    rule = rule or Rule()
    swept = yield from sweep(k_range, spec)
    within = {k: scores["within"] for k, scores in swept.scores.items()}
    lower, upper = box(swept.mean, swept.variance) if rule.bounds is None else rule.bounds
    bounds = np.broadcast_to(lower, swept.mean.shape), np.broadcast_to(upper, swept.mean.shape)
    by_k = gaps(within, swept.weight, bounds, seed=spec.seed)
    table = {
        k: {**scores, "gap": by_k[k][0], "gap-error": by_k[k][1]}
        for k, scores in swept.scores.items()
    }
    return judged(table, swept.results, rule)


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Clusterings and scores of each k, and moments of all rows.

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


def sweep(k_range: Sequence[int], spec: FitSpec) -> Plan[Sweep]:
    """Plan a clustering for each k, in at most half as many rounds more as the largest takes.

    Where the clustering starts from means that the sites send, they send them once: enough for the
    largest k, and the server starts every k from the same ones. That is less than twelve
    descriptions of the same rows, to send and to know. A k whose centres still move when the
    largest one's have settled long ago is ended where it is.

    Parameters
    ----------
    k_range : sequence of int
        Each k to try.
    spec : FitSpec
        What to cluster by; its number of clusters is left aside.
    """
    ks = sorted(set(k_range))
    spec = yield from _with_means(replace(spec, n_clusters=ks[-1]))
    plans = [clustering(replace(spec, n_clusters=k)) for k in ks]
    results = yield from gather(plans if spec.means is None else _in_time(plans))
    last: list[Plan[Any]] = [evaluation(r.state, m=spec.m, seed=spec.seed) for r in results]
    measured: list[Any] = yield from everyone(gather([*last, _moments(spec.seed)]))
    *scores, moments = measured
    return Sweep(dict(zip(ks, results, strict=True)), dict(zip(ks, scores, strict=True)), *moments)


def _with_means(spec: FitSpec) -> Plan[FitSpec]:
    """Plan the means that every k starts from, where the specification starts from means."""
    if not isinstance(spec.init, str) or spec.quality != "good":
        return spec
    step = description_step(spec)
    if step is None or not algorithm_of(spec).needs_centers:
        return spec
    described = yield from everyone(description(step, spec.n_clusters, spec.seed))
    return replace(spec, means=replace(described.state, converged=False))


def _in_time(plans: Sequence[Plan[Result]]) -> list[Plan[Result]]:
    """Return plans that end soon after the last of them, with what they have."""
    clock = _Clock()
    return [_timed(plan, clock, leads=plan is plans[-1]) for plan in plans]


@dataclass(slots=True)
class _Clock:
    """Rounds after the first one that the largest k took; infinite until it is done."""

    leader: float = inf


def _timed(plan: Plan[Result], clock: _Clock, *, leads: bool) -> Plan[Result]:
    """Run a plan that is told once when its time is over."""
    tasks, done, told = next(plan), 0, False
    while True:
        answers = yield tasks
        done += 1
        try:
            tasks = plan.send(answers)
            most = max(FEW_ROUNDS, MOST_ROUNDS * (1 + clock.leader))
            is_over = 1 + (done + 1) + AFTERWARDS > most
            if is_over and not told:
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
