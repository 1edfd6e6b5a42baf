"""Starts: centres for algorithms that need some, from few rounds with the sites.

A start returns states to begin at and the rounds that it took.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.random import Generator

from fedcluster._random import stream
from fedcluster.algorithms import FKM, SiteSummaries, VarianceTree
from fedcluster.core import Algorithm, Floats, Iteration, Result, State, Task
from fedcluster.errors import HeldBackError
from fedcluster.kernels import kmeans
from fedcluster.rounds import Plan, gather, iterate, server_update

Starts = tuple[list[State], tuple[Iteration, ...]]
RESTART_WORK = 1 << 28
"""Products of a mean's value with a centre's that all restarts of one start may take."""

Seeding = Literal["k-means++", "random"] | Callable[..., Any]


def from_summaries(n_clusters: int, n_seeds: int, *, seed: int = 0) -> Plan[Starts]:
    """Plan a start from at most 2 k means of each site; one round.

    Where that gives fewer than k means in all (few rows for many clusters), smaller groups of
    rows are asked for in a second round.
    """
    description = yield from means_of_sites(n_clusters, seed=seed)
    return from_means(description.state, n_clusters, n_seeds, seed=seed), description.history


def from_sums(n_clusters: int, n_seeds: int, *, seed: int = 0) -> Plan[Starts]:
    """Plan a start from the leaves of a variance tree; sums alone, about log2(4 k) + 2 rounds."""
    description = yield from means_of_leaves(n_clusters, seed=seed)
    return from_means(description.state, n_clusters, n_seeds, seed=seed), description.history


def means_of_sites(n_clusters: int, *, seed: int = 0) -> Plan[Result]:
    """Plan what `from_summaries` starts at; serves any smaller number of clusters as well."""
    description = yield from iterate(SiteSummaries(2 * n_clusters), seed=seed)
    if _n_distinct(description.state.centers) >= n_clusters:
        return description
    finer = yield from iterate(SiteSummaries(2 * n_clusters, min_rows=1), seed=seed)
    return _better_described(description, finer)


def means_of_leaves(n_clusters: int, *, seed: int = 0) -> Plan[Result]:
    """Plan what `from_sums` starts at; serves any smaller number of clusters as well."""
    description = yield from iterate(VarianceTree(4 * n_clusters), seed=seed)
    if _n_distinct(description.state.centers) >= n_clusters:
        return description
    finer = yield from iterate(VarianceTree(4 * n_clusters, min_rows=1), seed=seed)
    return _better_described(description, finer)


def _n_distinct(means: Floats) -> int:
    """How many means differ: small sites with the same rows have the same."""
    return len(np.unique(means, axis=0))


def _better_described(description: Result, finer: Result) -> Result:
    """The finer of two descriptions, unless the sites' limits held back more of it."""
    better = finer if len(finer.state.centers) >= len(description.state.centers) else description
    return replace(better, history=description.history + finer.history)


def with_fkm(
    n_clusters: int, n_seeds: int, *, seed: int = 0, rounds: int = 10, n_fkm: int = 4
) -> Plan[Starts]:
    """Plan a start from summaries, joined by what FKM finds in rounds of its own."""
    summaries = from_summaries(n_clusters, n_seeds - n_fkm, seed=seed)
    (starts, history), (iterates, fkm_history) = yield from gather(
        [summaries, _iterates(FKM(n_clusters), rounds, seed)]
    )
    joining = [state for state in iterates[-n_fkm:] if len(state.centers) == n_clusters]
    return [*starts, *joining], history + fkm_history[len(history) :]


def drawn(n_clusters: int, n_seeds: int, seeding: Seeding, *, seed: int = 0) -> Plan[Starts]:
    """Plan starts from seeds that the sites draw, clustered at the server; one round."""
    fkm = FKM(n_clusters, client_init=seeding)
    runs = yield from gather([iterate(fkm, seed=seed + i, max_rounds=1) for i in range(n_seeds)])
    return [result.state for result in runs], runs[0].history


def best_seeds(state: State, n_clusters: int, n_seeds: int, rng: Generator) -> list[State]:
    """The best distinct weighted k-means of the means in a state, best first.

    Needs no communication. Five times as many are tried as seeds are wanted, fewer where the
    means are many and wide. Fewer than k means are filled up with copies, whose clusters stay
    empty.

    Raises
    ------
    HeldBackError
        If there is no mean.
    """
    if not len(state.centers):
        raise HeldBackError(
            "no site described its rows, every group of rows is smaller than its site's limit: "
            "lower the limit or ask for fewer clusters"
        )
    points, weights = _fill(state.centers, state.weights, n_clusters)
    restarts = int(np.clip(RESTART_WORK // (points.size * n_clusters), n_seeds, 5 * n_seeds))
    fits = [kmeans(points, n_clusters, weights, rng=rng, n_init=1) for _ in range(restarts)]
    fits.sort(key=lambda fit: fit.inertia)
    distinct = [
        fit
        for i, fit in enumerate(fits)
        if i == 0 or fit.inertia > fits[i - 1].inertia * (1 + 1e-9)
    ]
    return [State(f.centers, f.weights, round=state.round) for f in distinct[:n_seeds]]


def from_means(means: State, n_clusters: int, n_seeds: int, *, seed: int = 0) -> list[State]:
    """The best seeds from weighted means that the server has; no communication."""
    return best_seeds(means, n_clusters, n_seeds, stream(seed, means.round))


def _fill(points: Floats, weights: Floats, n: int) -> tuple[Floats, Floats]:
    short = max(0, n - len(points))
    copies = np.resize(np.arange(len(points)), short)
    return np.concatenate([points, points[copies]]), np.concatenate([weights, np.zeros(short)])


def _iterates(algorithm: Algorithm, rounds: int, seed: int) -> Plan[Starts]:
    """Plan an algorithm and keep every state, with its weights and without its round."""
    state, states, history = State(), [], []
    for _ in range(rounds):
        [answers] = yield [Task(algorithm, state, seed)]
        state, done = server_update(algorithm, state, answers, seed)
        states.append(replace(state, converged=False))
        history.append(done)
    return states, tuple(history)
