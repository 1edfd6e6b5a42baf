"""How each method clusters, as the authors' program of autumn 2021, and how it is measured.

Facts are from the history of stallmo/federated_clustering before 2c4838f (17 December 2021) and
of stallmo/cluster_library at 481e7d5 (16 October 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fedcluster import Client, Data, FederatedFuzzyCMeans, LocalEngine, State
from fedcluster.algorithms import FFCM
from fedcluster.algorithms.merging import means
from fedcluster.core import Task
from fedcluster.kernels.fuzzy import fuzzy_cmeans
from fedcluster.rounds import server_update

Array = NDArray[np.float64]

METHODS = ("central", "avg_1", "avg_2")
MOST_ROUNDS = 1000

STARTS_OF_2022 = "starts of April 2022"
PROGRAMS: Mapping[str, Mapping[str, Any]] = {
    "2021": {},
    STARTS_OF_2022: {},
    "avg_2's k-means goes on": {"reseed": False},
    "support u^m": {"support": "u^m"},
    "one local step": {"local": "step"},
}
"""The program of 2021, and with one thing done otherwise: as the program since, or the text."""

CHANGED = dict(
    zip(PROGRAMS, (METHODS, METHODS, METHODS[2:], METHODS[1:], METHODS[1:]), strict=True)
)
"""Which methods each of them changes."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a run ends with.

    Attributes
    ----------
    centers : ndarray of shape (k, d)
        The server's centres.
    local : dict of str to ndarray of shape (k, d)
        What each site clusters its rows by: the server's centres if the run has converged, and
        otherwise its own, since the program of 2021 tells sites the last ones on convergence
        alone.
    converged : bool
        Whether it has, within ``MOST_ROUNDS``.
    period : int
        After how many rounds the centres come again, where they circle; otherwise 0.
    """

    centers: Array
    local: Mapping[str, Array]
    converged: bool = True
    period: int = 0


def engine(X: Array, site: NDArray[Any]) -> LocalEngine:
    """The sites, which hold nothing back."""
    names = np.unique(site)
    return LocalEngine(Client(str(name), Data(X[site == name]), filters=()) for name in names)


def clustered(
    method: str, X: Array, site: NDArray[Any], k: int, m: float, seed: int, program: str = "2021"
) -> Found:
    """What a method finds."""
    rng, d = np.random.default_rng(1000 + seed), X.shape[1]
    names = list(map(str, np.unique(site)))
    in_2022 = program == STARTS_OF_2022
    if method == "our default":
        model = FederatedFuzzyCMeans(k, m=m, random_state=seed)
        centers = np.asarray(model.fit(X, sites=site).cluster_centers_)
    elif method == "central":
        start = rng.integers(400, 700, (k, d)) if in_2022 else random_memberships(X, k, m, rng)
        centers = fuzzy_cmeans(X, start, m).centers
    else:
        ffcm = FFCM.program_2021(m, "avg_1" if method == "avg_1" else "avg_2")
        start = rng.uniform(size=(k, d)) if in_2022 else rng.integers(-10, 10, (k, d))
        return federated(replace(ffcm, **PROGRAMS[program]), engine(X, site), start)
    return Found(centers, dict.fromkeys(names, centers))


def random_memberships(X: Array, k: int, m: float, rng: Generator) -> Array:
    """The means that random memberships give, near the mean of all rows."""
    u = rng.uniform(size=(len(X), k))
    weights = (u / u.sum(axis=1, keepdims=True)) ** m
    return weights.T @ X / weights.sum(axis=0)[:, None]


def federated(ffcm: FFCM, sites: LocalEngine, start: NDArray[Any]) -> Found:
    """Run up to 1,000 rounds.

    The next centres depend on the last ones alone, to the last bit. So where centres come again
    the run circles, and all whole circles but the last are left out.
    """
    state, seen, period = State.at(start), dict[bytes, int](), 0
    while not state.converged and state.round < MOST_ROUNDS:
        asked = state.centers
        [answers] = sites.ask([Task(ffcm, state, seed=0)])
        state, _ = server_update(ffcm, state, answers, seed=0)
        before = seen.setdefault(state.centers.tobytes(), state.round)
        if before < state.round and not period:
            period = state.round - before
            state = replace(state, round=MOST_ROUNDS - (MOST_ROUNDS - state.round) % period)
    own = {
        name: means(answer.sums[:, :-1], answer.weights, otherwise=asked)
        for name, answer in answers.by_site.items()
    }
    last = dict.fromkeys(own, state.centers) if state.converged else own
    return Found(state.centers, last, state.converged, period)


def sse(X: Array, centers: Array) -> tuple[float, float]:
    """Within and outside "SSE": distances to the nearest centre, and to all others, a value."""
    distance = cdist(X, centers)
    within = distance.min(axis=1).sum()
    return within / X.size, (distance.sum() - within) / X.size


def mean_sse(X: Array, site: NDArray[Any], centers: Mapping[str, Array]) -> Array:
    """The mean over the sites, whatever their sizes, of both "SSE" by each one's centres."""
    each = [sse(X[site == name], centers[str(name)]) for name in np.unique(site)]
    return np.asarray(np.mean(each, axis=0))
