"""The whole clustering as one plan, by the name of an algorithm or by the object itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcluster._choices import algorithm_classes, builder
from fedcluster.algorithms import Lloyd
from fedcluster.algorithms._fkm import site_seeding
from fedcluster.core import Algorithm, FitParameters, Floats, Metric, Result, SiteInfo, State, Task
from fedcluster.recipes import _starts as starts
from fedcluster.recipes._breathing import breathe
from fedcluster.recipes._race import HALVING, race
from fedcluster.rounds import EarlyStop, Plan, iterate

N_SEEDS = 32
"""Starts of the default way to cluster."""


@dataclass(frozen=True, slots=True, eq=False)
class FitSpec:
    """What to cluster by; the parameters of `FederatedKMeans`, checked.

    Parameters
    ----------
    n_clusters : int
    algorithm : {"auto", "lloyd", "fkm", "kfed"} or Algorithm
    init : {"auto", "summaries", "sums", "k-means++", "random"}, callable or ndarray of shape (k, d)
    n_init : int, optional
    tol : float
    max_rounds : int
    seed : int
    quality : {"good", "better", "best"}
    sums_only : bool
    m : float, optional
        The fuzzifier, for fuzzy c-means.
    means : State, optional
        Weighted means of the rows to start at, where the server has some already.
    """

    n_clusters: int
    algorithm: str | Algorithm = "auto"
    init: str | Floats | Callable[..., Any] = "auto"
    n_init: int | None = None
    tol: float = 1e-4
    max_rounds: int = 300
    seed: int = 0
    quality: str = "good"
    sums_only: bool = False
    m: float | None = None
    means: State | None = None

    @property
    def by(self) -> Algorithm:
        """The algorithm, built from the other parameters where it was given by name."""
        if isinstance(self.algorithm, str):
            build = builder(self.algorithm, fuzzy=self.m is not None)
            return build(FitParameters(self.n_clusters, self.init, self.n_init, self.tol, self.m))
        return self.algorithm

    @property
    def start(self) -> State | None:
        """The start, where it was given as centres."""
        return State.at(self.init) if isinstance(self.init, np.ndarray) else None

    def at(self, sites: Iterable[SiteInfo]) -> FitSpec:
        """The choice for these sites: ``init="auto"`` is "sums" where rows come in chunks.

        No site then holds all its rows at once. Over a network, a site that has not answered
        counts as one whose rows do not.
        """
        auto = isinstance(self.init, str) and self.init == "auto"
        streams = any(site.streams for site in sites)
        return replace(self, init="sums") if auto and streams else self


def clustering(choice: FitSpec) -> Plan[Result]:
    """Plan a whole clustering, and a last round for the exact inertia of what was found.

    Clusters come in canonical order, unless the start was given as centres.
    """
    algorithm = choice.by
    if algorithm.needs_centers:
        found = yield from _from_starts(algorithm, choice)
    else:
        only = yield from iterate(
            algorithm, choice.start, seed=choice.seed, max_rounds=choice.max_rounds
        )
        found = [only]
    best = yield from _best(found, algorithm.objective(), choice.seed)
    return best if choice.start else replace(best, state=canonical(best.state))


def _from_starts(algorithm: Algorithm, choice: FitSpec) -> Plan[list[Result]]:
    """Plan an algorithm that needs centres from one or many starts."""
    seeds, history = yield from _starts(choice)
    found = yield from race(
        algorithm, seeds, seed=choice.seed, max_rounds=choice.max_rounds, keep=HALVING
    )
    if choice.quality == "best" and isinstance(algorithm, Lloyd):
        best = yield from breathe(
            found[0], seed=choice.seed, tol=algorithm.tol, max_rounds=choice.max_rounds
        )
        found = [best, *found[1:]]
    return [replace(result, history=history + result.history) for result in found]


def _starts(choice: FitSpec) -> Plan[starts.Starts]:
    """Plan the starts that were chosen."""
    k, init, seed = choice.n_clusters, choice.init, choice.seed
    n_seeds = choice.n_init or (N_SEEDS if choice.algorithm == "auto" else 1)
    if choice.start:
        return [choice.start], ()
    if choice.means is not None:
        return starts.from_means(choice.means, k, n_seeds, seed=seed), ()
    if choice.sums_only or init == "sums":
        return (yield from starts.from_sums(k, n_seeds, seed=seed))
    if init == "auto" and choice.quality != "good":
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


def min_cluster_size(algorithm: str | Algorithm) -> int:
    """The smallest cluster that a site sends unless it decides otherwise: the paper's p."""
    named = algorithm_classes()[algorithm] if isinstance(algorithm, str) else algorithm
    size: int = named.min_cluster_size
    return size


def canonical(state: State) -> State:
    """The same clusters in canonical order: by falling weight, ties by coordinates."""
    order = np.lexsort([*state.centers.T[::-1], -state.weights])
    return replace(state, centers=state.centers[order], weights=state.weights[order])
