"""The whole clustering as one plan, by the name of an algorithm or by the object itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from importlib import import_module

import numpy as np

from fedcluster._choices import builder
from fedcluster._specifications import FitSpec
from fedcluster.algorithms import Lloyd
from fedcluster.algorithms._fkm import site_seeding
from fedcluster.core import (
    ALGORITHM_DECLARES,
    Algorithm,
    FitParameters,
    Metric,
    Result,
    State,
    Task,
    check_step,
)
from fedcluster.errors import InputError
from fedcluster.recipes import _starts as starts
from fedcluster.recipes._breathing import breathe
from fedcluster.recipes._race import HALVING, race
from fedcluster.rounds import EarlyStop, Plan, iterate

N_SEEDS = 32
"""Starts of the default way to cluster."""


def algorithm_of(spec: FitSpec) -> Algorithm:
    """Return the algorithm that a specification names or holds.

    One of one's own is named by its module and class; its field ``n_clusters``, if it has one, is
    k, and its other fields keep their defaults.

    Raises
    ------
    InputError
        If the name leads to no algorithm.

    Examples
    --------
    >>> algorithm_of(FitSpec(3, "kfed")) == algorithm_of(FitSpec(3, "fedcluster.algorithms.KFed"))
    True
    """
    if not isinstance(spec.algorithm, str):
        return spec.algorithm
    if "." in spec.algorithm:
        return _own(spec)
    build = builder(spec.algorithm, fuzzy=spec.m is not None)
    return build(FitParameters(spec.n_clusters, spec.init, spec.n_init, spec.tol, spec.m))


def _own(spec: FitSpec) -> Algorithm:
    """Make an algorithm of one's own from its dotted name."""
    module, _, name = str(spec.algorithm).rpartition(".")
    try:
        kind = getattr(import_module(module), name)
        given = {"n_clusters"} & {field.name for field in fields(kind)}
        algorithm: Algorithm = kind(**{field: getattr(spec, field) for field in given})
        check_step(algorithm, ALGORITHM_DECLARES)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"algorithm {spec.algorithm!r} cannot be made: {error}") from error
    return algorithm


def clustering(spec: FitSpec) -> Plan[Result]:
    """Plan a whole clustering, and a last round for the exact inertia of what was found.

    Clusters come in canonical order, unless the start was given as centres.
    """
    algorithm, start = algorithm_of(spec), _given_start(spec)
    if algorithm.needs_centers:
        found = yield from _from_starts(algorithm, spec)
    else:
        only = yield from iterate(algorithm, start, seed=spec.seed, max_rounds=spec.max_iter)
        found = [only]
    best = yield from _best(found, algorithm.objective(), spec.seed)
    return best if start else replace(best, state=canonical(best.state))


def _given_start(spec: FitSpec) -> State | None:
    """Return the start, where it was given as centres."""
    return State.at(spec.init) if isinstance(spec.init, np.ndarray) else None


def _from_starts(algorithm: Algorithm, spec: FitSpec) -> Plan[list[Result]]:
    """Plan an algorithm that needs centres from one or many starts."""
    seeds, history = yield from _starts(spec)
    found = yield from race(
        algorithm, seeds, seed=spec.seed, max_rounds=spec.max_iter, keep=HALVING
    )
    if spec.quality == "best" and isinstance(algorithm, Lloyd):
        best = yield from breathe(
            found[0], seed=spec.seed, tol=algorithm.tol, max_rounds=spec.max_iter
        )
        found = [best, *found[1:]]
    return [replace(result, history=history + result.history) for result in found]


def _starts(spec: FitSpec) -> Plan[starts.Starts]:
    """Plan the starts that were chosen."""
    k, init, seed = spec.n_clusters, spec.init, spec.seed
    n_seeds = spec.n_init or (N_SEEDS if spec.algorithm == "auto" else 1)
    if (start := _given_start(spec)) is not None:
        return [start], ()
    if spec.means is not None:
        return starts.from_means(spec.means, k, n_seeds, seed=seed), ()
    if spec.sums_only or init == "sums":
        return (yield from starts.from_sums(k, n_seeds, seed=seed))
    if init == "auto" and spec.quality != "good":
        return (yield from starts.with_fkm(k, n_seeds, seed=seed))
    if init in ("auto", "summaries"):
        return (yield from starts.from_summaries(k, n_seeds, seed=seed))
    return (yield from starts.drawn(k, n_seeds, site_seeding(init), seed=seed))


def _best(found: Sequence[Result], metric: Metric, seed: int) -> Plan[Result]:
    """Plan the last round: the exact score of every finalist, at the same sites."""
    tasks = [Task(metric, result.state, seed) for result in found]
    try:
        answers = yield tasks
    except EarlyStop:  # that there shall be no more rounds is no reason to end without this one
        answers = yield tasks
    scores = [
        metric.score(result.state, answer.total())
        for result, answer in zip(found, answers, strict=True)
    ]
    first = int(np.argmin(scores))
    best = found[first]
    return replace(best, state=replace(best.state, inertia=scores[first]))


def measure(metric: Metric, state: State, *, seed: int = 0) -> Plan[float]:
    """Plan one round that scores the centres of a state."""
    [answers] = yield [Task(metric, state, seed)]
    return metric.score(state, answers.total())


def canonical(state: State) -> State:
    """The same clusters in canonical order: by falling weight, ties by coordinates."""
    order = np.lexsort([*state.centers.T[::-1], -state.weights])
    return replace(state, centers=state.centers[order], weights=state.weights[order])
