"""One run of each method on a data set, and its score."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from fedcluster import Client, Data, FederatedKMeans, LocalEngine, MinClusterSize, State, Task, run
from fedcluster.algorithms import FKM, KFed
from fedcluster.metrics.external import SiteARI
from reproduction.baselines import central_kmeans
from reproduction.datasets import SplitRows, plane16, variable_k
from reproduction.results import REFERENCE

OF_2023, OF_2024 = FKM.program_2023(16), FKM.program_2024(16)
"""The authors' programs: of all figures but 4 and 7, and of these."""

Sample = NDArray[np.float64]
Source = tuple[str, ...]
"""A data set by name and parameters: ("plane", beta, rows a cluster, noise), ("variable",), ..."""


@cache
def rows_of(source: Source) -> SplitRows:
    match source:
        case ("plane", beta, per_cluster, noise):
            return plane16(float(beta), int(per_cluster), float(noise))
        case ("variable",):
            return variable_k()
        case ("older", beta):
            with np.load(REFERENCE / "fkm_regular_split.npz") as split:
                X, y, client = (split[f"regular_beta{beta}_{p}"] for p in ("X", "label", "client"))
            return SplitRows(X, y, np.array([f"client-{i}" for i in client]))
    raise ValueError(f"there is no data set {source}")


@cache
def sites_of(source: Source, p: int = 1) -> LocalEngine:
    """The clients, which hold back clusters of fewer than p rows."""
    return engine(rows_of(source), *([MinClusterSize(p)] if p > 1 else []))


def engine(rows: SplitRows, *limits: MinClusterSize) -> LocalEngine:
    return LocalEngine(Client(name, Data(X, y=y), limits) for name, (X, y) in rows.sites.items())


def ari_w(source: Source, state: State) -> float:
    """The mean of the clients' own adjusted Rand indices, weighted by their rows."""
    [answers] = sites_of(source).ask([Task(SiteARI(), state)])
    return SiteARI().score(state, answers.total())


# One run of each method; what it takes is (its setting, seed)


def fkm(setting: tuple[FKM, Source, Sequence[int]], seed: int) -> list[float]:
    """ARI_w after each of some rounds."""
    algorithm, source, rounds = setting
    state, scores = State(), []
    for wanted in rounds:
        more = wanted - state.round
        state = run(algorithm, sites_of(source, p=2), state, seed=seed, max_rounds=more).state
        scores.append(ari_w(source, state))
    return scores


def kfed(setting: tuple[KFed, Source], seed: int) -> float:
    algorithm, source = setting
    return ari_w(source, run(algorithm, sites_of(source), seed=seed).state)


def central(setting: tuple[Source, Sequence[Source]], seed: int) -> list[float]:
    """Pooled k-means, ten restarts: its ARI, and its ARI_w with the clients of some data sets."""
    pooled, split = setting
    rows = rows_of(pooled)
    fit = central_kmeans(rows.X, 16, seed=seed)
    scores = [ari_w(source, State.at(fit.centers)) for source in split]
    return [float(adjusted_rand_score(rows.y, fit.labels)), *scores]


def default(source: Source, seed: int) -> float:
    """Our default recipe."""
    rows = rows_of(source)
    model = FederatedKMeans(16, random_state=seed).fit(rows.X, sites=rows.site)
    return ari_w(source, State.at(model.cluster_centers_))
