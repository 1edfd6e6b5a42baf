"""How each method clusters, and how it is measured."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fedcluster import Client, Data, FederatedFuzzyCMeans, LocalEngine, State, run
from fedcluster.algorithms import FFCM
from reproduction.baselines import central_fuzzy_cmeans

Array = NDArray[np.float64]

METHODS = ("central", "avg_1", "avg_2")
VARIANTS: dict[str, dict[str, Any]] = {
    "avg_1": {"local": "converge", "support": "u"},
    "avg_2": {"averaging": "avg_2", "local": "converge", "support": "u"},
    "avg_1, u^m": {"local": "converge", "support": "u^m"},
    "avg_1, one step": {"local": "step", "support": "u"},
    "avg_1, one step, u^m": {"local": "step", "support": "u^m"},
    "avg_2, one step": {"averaging": "avg_2", "local": "step", "support": "u"},
    "avg_2, weighted": {
        "averaging": "avg_2",
        "local": "converge",
        "support": "u",
        "weighted": True,
    },
}
"""FFCM by the switches that text and program set otherwise; the first two are the program's."""

MOST_ROUNDS = 20
"""In table 4 some runs of avg_1 circle for ever, to no other result; the program allows 1000."""


def engine(X: Array, site: NDArray[Any]) -> LocalEngine:
    return LocalEngine(Client(str(name), Data(X[site == name])) for name in np.unique(site))


def clustered(method: str, X: Array, site: NDArray[Any], k: int, m: float, seed: int) -> Array:
    """The centres that a method finds, (k, d)."""
    rng = np.random.default_rng(1000 + seed)
    if method == "our default":
        model = FederatedFuzzyCMeans(k, m=m, random_state=seed)
        return np.asarray(model.fit(X, sites=site).cluster_centers_)
    if method == "central, best of five":
        return central_fuzzy_cmeans(X, k, m, seed=seed).centers
    if method == "central":
        start = State.at(rng.integers(400, 700, (k, X.shape[1])))
        pooled = LocalEngine([Client("pooled", Data(X))])
        ffcm = FFCM(m, local="converge", relative=False)
        return run(ffcm, pooled, start, seed=seed, max_rounds=1).state.centers
    ffcm = FFCM(m, relative=False, **VARIANTS[method])
    start = State.at(rng.uniform(size=(k, X.shape[1])))
    return run(ffcm, engine(X, site), start, seed=seed, max_rounds=MOST_ROUNDS).state.centers


def sse(X: Array, centers: Array) -> tuple[float, float]:
    """Within and outside "SSE": distances to the nearest centre, and to all others, a value."""
    distance = cdist(X, centers)
    within = distance.min(axis=1).sum()
    return within / X.size, (distance.sum() - within) / X.size
