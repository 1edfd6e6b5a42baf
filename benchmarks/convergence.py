"""Whole fits to convergence from one start, beside peers on the pooled rows, in one process.

    .venv/bin/python benchmarks/convergence.py [--sizes 0,1] [--kinds uniform] [--repeats 3]
                                               [--json FILE]

Ours is `FederatedKMeans(algorithm="lloyd")` over five sites. Peers are scikit-learn's two
algorithms and, where they are installed, scikit-learn-intelex and faiss, each with its own rule to
stop and at most 100 iterations. All begin at the same rows. Each repeat times every library in
turn; a figure is the median of its times, a ratio the median of the ratios of one repeat.

J is the inertia over scikit-learn's, since who stops early is quick.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from fedcluster import FederatedKMeans

SIZES = (
    (1_000_000, 5, 16),
    (200_000, 32, 64),
    (20_000, 784, 60),
    (1_000_000, 16, 256),
    (100_000, 128, 1000),
)
KINDS = {"separated": 10.0, "overlapping": 1.5, "uniform": 0.0}
"""How far apart centres are, in standard deviations of a cluster; without any, uniform rows."""

MOST = 100
Fit = Callable[[], tuple[int, float]]


def rows(n: int, d: int, k: int, kind: str, dtype: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return rows and the k of them that all begin at."""
    rng = np.random.default_rng([n, d, k])
    if KINDS[kind]:
        centers = rng.normal(size=(k, d)) * KINDS[kind]
        X = centers[rng.integers(k, size=n)] + rng.normal(size=(n, d))
    else:
        X = rng.random((n, d))
    return X.astype(dtype), X[rng.choice(n, k, replace=False)].astype(dtype)


def fits(X: NDArray[Any], start: NDArray[Any]) -> Iterator[tuple[str, Fit]]:
    """Yield the name of each library that is here, and a fit by it."""
    k = len(start)
    sites = dict(zip("abcde", np.array_split(X, 5), strict=True))

    def ours() -> tuple[int, float]:
        model = FederatedKMeans(
            k, algorithm="lloyd", init=np.asarray(start, float), max_iter=MOST, random_state=0
        ).fit(sites)
        return model.n_iter_, float(model.inertia_)

    def sklearn(kind: Any, algorithm: str) -> tuple[int, float]:
        model = kind(k, init=start, n_init=1, max_iter=MOST, algorithm=algorithm).fit(X)
        return int(model.n_iter_), float(model.inertia_)

    yield "ours", ours
    yield "lloyd", partial(sklearn, KMeans, "lloyd")
    yield "elkan", partial(sklearn, KMeans, "elkan")
    try:
        from sklearnex.cluster import KMeans as IntelKMeans

        yield "intelex", partial(sklearn, IntelKMeans, "lloyd")
    except ImportError:
        pass
    try:
        from faiss import Kmeans
    except ImportError:
        return

    def faiss() -> tuple[int, float]:
        most = 2 * len(X) // k + 1  # it samples rows where they are more for each cluster
        model = Kmeans(X.shape[1], k, niter=MOST, max_points_per_centroid=most, seed=1)
        model.train(X.astype(np.float32), init_centroids=start.astype(np.float32))
        return len(model.iteration_stats), float(model.obj[-1])

    yield "faiss", faiss


def measured(X: NDArray[Any], start: NDArray[Any], repeats: int) -> dict[str, dict[str, float]]:
    """Return of each library its seconds, iterations and J, and its ratio to ours."""
    each = dict(fits(X, start))
    each["ours"]()  # compiles, where that is still to be done
    times: dict[str, list[float]] = {name: [] for name in each}
    found: dict[str, tuple[int, float]] = {}
    for _ in range(repeats):
        for name, fit in each.items():
            begun = time.perf_counter()
            found[name] = fit()
            times[name].append(time.perf_counter() - begun)
    mine = np.array(times["ours"])
    return {
        name: {
            "seconds": float(np.median(times[name])),
            "ours_to_it": float(np.median(mine / times[name])),
            "iterations": n_iter,
            "J": inertia / found["lloyd"][1],
        }
        for name, (n_iter, inertia) in found.items()
    }


def main() -> None:
    """Print one line for each rows, as they come."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="0,1,2,3,4")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    small, start = rows(2000, 5, 16, "uniform", np.float64)
    measured(small, start, 1)  # compiles
    lines = []
    for i, kind, dtype in product(given.sizes.split(","), given.kinds.split(","), ("f4", "f8")):
        n, d, k = SIZES[int(i)]
        X, start = rows(n, d, k, kind, dtype)
        line = {"rows": f"{n:,} x {d}, k {k}", "kind": kind, "dtype": dtype}
        lines.append({**line, **measured(X, start, given.repeats)})
        cells = [
            f"{name} {cell['seconds']:.2f} s in {cell['iterations']} ({cell['ours_to_it']:.2f})"
            for name, cell in lines[-1].items()
            if isinstance(cell, dict)
        ]
        print(*line.values(), *cells, sep="; ", flush=True)
        if given.json:
            given.json.write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
