"""How a run is made and measured, and what was published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fedcluster import Client, Data, FederatedKMeans, LocalEngine, nearest, run
from fedcluster.algorithms import FedAvg
from reproduction.baselines import random_start_kmeans
from reproduction.datasets import SplitRows, triebe
from reproduction.results import HERE, Cell, Estimate, Tolerance
from reproduction.runs import runs_of

K, ROUNDS = 5, 200
CENTRAL, DEFAULT = 0, -1
"""In the place of a number of sites: all rows pooled, and our default recipe."""

FITS = "0.5^((t - 1) / 50)"
OF_DEFAULT = "1 / (1 + 0.5 (t - 1) / 10)"
"""The reading that `FedAvg` takes by default."""

SERVER: Mapping[str, Mapping[str, Any]] = {
    FITS: {"schedule": "halving"},
    FITS + ", small among all rows": {"schedule": "halving", "total_rows": 500.0},
    OF_DEFAULT: {"schedule": "inverse"},
    "t^-0.5": {"schedule": "root"},
    "0.5^((t - 1) / 20)": {"schedule": lambda t: 0.5 ** ((t - 1) / 20)},
    "from 1 to 0.5, linear": {"schedule": lambda t: 1 - 0.5 * (t - 1) / (ROUNDS - 1)},
    "1, momentum 0.5": {"schedule": "constant", "momentum": 0.5},
    "1": {"schedule": "constant"},
    "0.5": {"schedule": "constant", "server_rate": 0.5},
}
"""Readings of alpha = (1, 0.5); the second, of the rule on small clusters, too."""


class Setting(NamedTuple):
    """Sites a round (or `CENTRAL`, `DEFAULT`), epochs, the sites' rate, the server's."""

    sites: int
    epochs: int = 1
    beta: float = 1.0
    server: str = FITS


def federated(setting: Setting) -> FedAvg:
    return FedAvg(epochs=setting.epochs, client_rate=setting.beta, **SERVER[setting.server])


def engine(rows: SplitRows) -> LocalEngine:
    return LocalEngine(Client(name, Data(X)) for name, (X, _) in rows.sites.items())


def one_run(setting: Setting, seed: int) -> list[float]:
    """Both measures on the sites of the training, then on the others."""
    train, test = triebe(seed)
    if setting.sites == CENTRAL:
        centers = random_start_kmeans(train.X, K, rounds=ROUNDS, seed=seed)
    elif setting.sites == DEFAULT:
        centers = FederatedKMeans(K, random_state=seed).fit(train.X, sites=train.site)
        centers = centers.cluster_centers_
    else:
        fedavg = federated(setting)
        start, share = fedavg.random_start(K, 1, seed), setting.sites / 50
        done = run(fedavg, engine(train), start, seed=seed, max_rounds=ROUNDS, participation=share)
        centers = done.state.centers
    return [*measures(train.X, centers), *measures(test.X, centers)]


def measures(X: NDArray[np.float64], centers: NDArray[np.float64]) -> tuple[float, float]:
    """Mean distance to the nearest centre, and the program's Davies-Bouldin index: of distances,
    not squared, and over the clusters that have rows.
    """
    labels, squared = nearest(X, centers)
    distance, used = np.sqrt(squared), np.unique(labels)
    spread = np.array([distance[labels == j].mean() for j in used])
    apart = cdist(centers[used], centers[used]) + np.diag([np.inf] * len(used))
    worst = ((spread[:, None] + spread) / apart).max(axis=1)
    return float(distance.mean()), float(worst.mean())


COLUMNS = {
    ("euclidean", "train"): 0,
    ("davies_bouldin", "train"): 1,
    ("euclidean", "test"): 2,
    ("davies_bouldin", "test"): 3,
}

# The published points

PANELS = {
    "1": "Fig1 (E=1,beta=1.0)",
    "2a": "Fig2a (E=10,beta=1.0)",
    "2b": "Fig2b (E=10,beta=0.1)",
    "3a": "Fig3a (E=5,beta=1.0)",
    "3b": "Fig3b (E=5,beta=0.2)",
    "4a": "Fig4a (C=0.1,beta=1.0)",
    "4b": "Fig4b (C=0.1,beta=0.1)",
    "5a": "Fig5a (C=0.1,E=1)",
    "5b": "Fig5b (C=0.1,E=10)",
}
PUBLISHED_RUNS = {"0.01": 30, "0.03": 10, "0.1": 10, "0.3": 3, "1.0": 3, "central": 10}
RUNS = {CENTRAL: 30, DEFAULT: 30, 1: 30, 5: 30, 15: 30, 50: 10}
LETTERS = {"sample_fraction": "C", "epochs E": "E", "beta": "beta"}


@cache
def published() -> pd.DataFrame:
    """The digitised figures."""
    return pd.read_csv(HERE / "published" / "triebe.csv", dtype={"x": str})


def setting_of(point: Any, server: str = FITS) -> Setting:
    """The setting of a published point; one site a round is the least."""
    if point.x == "central":
        return Setting(CENTRAL)
    given = dict(part.split("=") for part in point.figure.split("(")[1].strip(")").split(","))
    given[LETTERS[point.x_name]] = point.x
    sites = max(int(float(given["C"]) * 50), 1)
    return Setting(sites, int(given["E"]), float(given["beta"]), server)


def points(panel: str) -> list[Any]:
    data = published()
    return list(data[data.figure == PANELS[panel]].itertuples())


def published_runs(point: Any) -> int:
    """As the program has it; the text says ten everywhere."""
    return PUBLISHED_RUNS[point.x] if point.x_name == "sample_fraction" else 10


Found = dict[Setting, NDArray[np.float64]]


def all_runs(settings: Iterable[Setting], runs: Mapping[int, int]) -> Found:
    """The runs of each setting, done once however many points show it."""
    found: Found = {}
    for n in sorted(set(runs.values())):
        asked = list(dict.fromkeys(s for s in settings if runs[s.sites] == n))
        found |= dict(zip(asked, runs_of(one_run, asked, n), strict=True))
    return found


def cells_of(panel: str, found: Found, server: str = FITS) -> list[Cell]:
    """A cell for each point, on the sites of the training and on the others."""
    return [
        cell(point, which, panel, found, server)
        for point in points(panel)
        for which in ("train", "test")
        if setting_of(point, server) in found
    ]


def cell(point: Any, which: str, panel: str, found: Found, server: str) -> Cell:
    column = COLUMNS[point.metric, which]
    mean, low, high = (getattr(point, f"{which}_{part}") for part in ("mean", "lo", "hi"))
    band = max(high - mean, mean - low)
    default = found.get(Setting(DEFAULT))
    return Cell(
        {"figure": panel, LETTERS[point.x_name]: point.x, "measure": point.metric, "rows": which},
        Estimate.mean(found[setting_of(point, server)][:, column]),
        None if np.isnan(mean) else Estimate(mean, band, published_runs(point)),
        Tolerance(errors=0, absolute=band),
        None if default is None else Estimate.mean(default[:, column]),
    )
