"""What groups of p rows cost: the inertia on exact rows of centres that were found from groups.

    .venv/bin/python benchmarks/groups.py [--seeds 3] [--p 5]

Each kind of rows is drawn anew for each seed and each ratio N / (K p), and cut into 2 to 10 sites,
each of which makes groups of its own rows, standardised by its own means and deviations. J is the
inertia of FederatedKMeans' centres on exact rows; the loss is how much greater it is if the sites
answer from the means and sizes of their groups, than if they answer from rows, and than the median
of pooled k-means with ten restarts. Last comes the time of one large partition.
"""

from __future__ import annotations

import argparse
import statistics
import time
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.base import clone
from sklearn.cluster import KMeans

from fedcluster import FederatedKMeans
from fedcluster.kernels import nearest
from fedcluster.kernels._groups import partition
from fedcluster.privacy import Groups

Rows = NDArray[np.float64]
BINS = (0, 15, 30, 60, 150, np.inf)


def clouds(rng: Generator, n: int, k: int, d: int, spread: float, skew: float = 9.0) -> Rows:
    """Normal clouds around k centres; a low skew makes their sizes differ."""
    shares = 0.9 * rng.dirichlet(np.full(k, skew)) + 0.1 / k
    return 3 * rng.normal(size=(k, d))[rng.choice(k, n, p=shares)] + spread * rng.normal(
        size=(n, d)
    )


def coded(rng: Generator, n: int, k: int) -> Rows:
    """Three numbers, and four texts of four levels one-hot."""
    cluster, levels = rng.integers(0, k, n), rng.integers(0, 4, (n, 4))
    levels = np.where(rng.random((n, 4)) < 0.7, rng.integers(0, 4, (k, 4))[cluster], levels)
    numbers = 2 * rng.normal(size=(k, 3))[cluster] + rng.normal(size=(n, 3))
    return np.hstack([numbers, np.eye(4)[levels].reshape(n, 16)])


KINDS: dict[str, tuple[int, Callable[[Generator, int, int], Rows]]] = {
    "plane": (16, lambda rng, n, k: clouds(rng, n, k, 2, 0.6)),
    "plane, overlapping": (16, lambda rng, n, k: clouds(rng, n, k, 2, 1.0)),
    "plane, unbalanced": (8, lambda rng, n, k: clouds(rng, n, k, 2, 0.5, 0.5)),
    "clouds, 5 columns": (8, lambda rng, n, k: clouds(rng, n, k, 5, 2.0)),
    "clouds, 10 columns": (8, lambda rng, n, k: clouds(rng, n, k, 10, 2.5)),
    "clouds, 50 columns": (8, lambda rng, n, k: clouds(rng, n, k, 50, 4.0)),
    "whole numbers": (8, lambda rng, n, k: clouds(rng, n, k, 3, 1.0).round()),
    "one-hot": (8, coded),
    "no clusters": (8, lambda rng, n, _: rng.random((n, 4))),
    "lognormal": (8, lambda rng, n, _: np.exp(rng.normal(size=(n, 4)))),
    "Pareto": (8, lambda rng, n, _: rng.pareto(2.0, (n, 4))),
    "Cauchy": (8, lambda rng, n, _: rng.standard_cauchy((n, 4))),
}


def drawn(rng: Generator, p: int, ratios: list[int]) -> list[tuple[str, Rows, int, int]]:
    """Names, rows, numbers of clusters and numbers of sites."""
    draws = [
        (name, draw(rng, ratio * p * k, k), k, int(rng.integers(2, 11)))
        for ratio in ratios
        for name, (k, draw) in KINDS.items()
    ]
    for ratio in ratios:
        draws.append(
            ("sites of 50 rows", clouds(rng, ratio * p * 5, 5, 3, 1.0), 5, ratio * p // 10)
        )
    wine, cancer, digits = (
        load().data
        for load in (datasets.load_wine, datasets.load_breast_cancer, datasets.load_digits)
    )
    real = [("wine", wine, 3, 2), ("breast cancer", cancer, 2, 3), ("breast cancer", cancer, 8, 2)]
    return [*draws, *real, ("digits", digits, 10, 3), ("digits", digits, 20, 3)]


def standardised(X: Rows) -> Rows:
    scale = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(scale > 0, scale, 1)


def inertia(X: Rows, centers: Rows) -> float:
    return float(nearest(X, centers)[1].sum())


def losses(X: Rows, sites: list[Rows], p: int, model: FederatedKMeans) -> tuple[float, float]:
    """Return the loss against the same fit on exact rows, and against pooled k-means."""
    k, groups = model.n_clusters, Groups(p, max(p, 20), "standard")
    found = inertia(X, clone(model).set_params(protection=groups).fit(sites).cluster_centers_)
    exact = inertia(X, clone(model).fit(sites).cluster_centers_)
    pooled = statistics.median(
        KMeans(k, n_init=10, random_state=r).fit(X).inertia_ for r in range(3)
    )
    return 100 * (found / exact - 1), 100 * (found / pooled - 1)


def large(n: int, p: int) -> None:
    """Print the time of a partition of n rows of ten columns."""
    X = np.random.default_rng(0).normal(size=(n, 10))
    partition(X[:2000], p)
    begun, used = time.perf_counter(), time.process_time()
    partition(X, p)
    wall, cpu = time.perf_counter() - begun, time.process_time() - used
    print(f"{n:,} x 10 rows into groups of {p}: {wall:.1f} s, {cpu:.1f} s of all cores")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--p", type=int, default=5)
    parser.add_argument("--ratios", default="20,40,80,200", help="N / (K p), by comma")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the large partition")
    arguments = parser.parse_args()
    p, ratios = arguments.p, [int(ratio) for ratio in arguments.ratios.split(",")]
    print(
        f"{'data':20} {'K':>3} {'sites':>5} {'N/(K p)':>8} {'loss %':>8} {'pooled':>8}", flush=True
    )
    by_bin: dict[int, list[float]] = defaultdict(list)
    for seed in range(arguments.seeds):
        rng = np.random.default_rng(seed)
        for name, rows, k, m in drawn(rng, p, ratios):
            X, ratio = standardised(rows), len(rows) / (k * p)
            sites = [part for part in np.array_split(rng.permutation(X), m) if len(part) >= p]
            loss, pooled = losses(X, sites, p, FederatedKMeans(k, random_state=seed))
            by_bin[bisect(BINS, ratio) - 1].append(loss)
            print(f"{name:20} {k:3} {m:5} {ratio:8.1f} {loss:8.3f} {pooled:8.3f}", flush=True)
    for place, found in sorted(by_bin.items()):
        low, high, middle = *BINS[place : place + 2], statistics.median(found)
        loss = f"median loss {middle:.3f} %, largest {max(found):.2f} %"
        print(f"N/(K p) {low:4g} to {high:4g}: {loss}")
    large(arguments.rows, p)


if __name__ == "__main__":
    main()
