"""Whole fits to convergence from one start, beside peers on the pooled rows, in one process.

    .venv/bin/python benchmarks/convergence.py [--sizes 0,1] [--kinds uniform] [--repeats 3]
                                               [--iterations 100] [--threads 2]
                                               [--libraries ours,lloyd] [--json FILE]

Ours is `FederatedKMeans(algorithm="lloyd")` over five sites. Peers are scikit-learn's two
algorithms and, where they are installed, scikit-learn-intelex, faiss and SuperKMeans, each with its
own rule to stop and at most so many iterations. All begin at the same rows, but for SuperKMeans,
which draws its own. Each repeat times every library in turn; a figure is the median of its times, a
ratio the median of the ratios of one repeat.

J is the inertia over scikit-learn's, since who stops early is quick.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster import FederatedKMeans
from fedcluster.core.threads import thread_count

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.fair import conditions
from benchmarks.fair import start as start_fairly

SIZES = (
    (1_000_000, 5, 16),
    (200_000, 32, 64),
    (20_000, 784, 60),
    (1_000_000, 16, 256),
    (100_000, 128, 1000),
    (50_000, 768, 1000),
    (100_000, 384, 300),
    (200_000, 1024, 256),
)
KINDS = {"separated": 10.0, "overlapping": 1.5, "close": 0.15, "uniform": 0.0}
"""How far apart centres are, in standard deviations of a cluster; without any, uniform rows."""

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


def ours(X: NDArray[Any], start: NDArray[Any], most: int) -> tuple[int, float]:
    """Fit over five sites, and return the rounds and the inertia; the others likewise."""
    sites = dict(zip("abcde", np.array_split(X, 5), strict=True))
    model = FederatedKMeans(
        len(start), algorithm="lloyd", init=np.asarray(start, float), max_iter=most, random_state=0
    ).fit(sites)
    return model.n_iter_, float(model.inertia_)


def sklearn(
    X: NDArray[Any], start: NDArray[Any], most: int, *, module: str, algorithm: Any
) -> tuple[int, float]:
    """Fit scikit-learn's estimator, or that of scikit-learn-intelex, on the pooled rows."""
    kind = import_module(module).KMeans
    model = kind(len(start), init=start, n_init=1, max_iter=most, algorithm=algorithm).fit(X)
    return int(model.n_iter_), float(model.inertia_)


def faiss(X: NDArray[Any], start: NDArray[Any], most: int) -> tuple[int, float]:
    """Fit on all rows: it samples them where they are more for each cluster."""
    k, kind = len(start), import_module("faiss").Kmeans
    model = kind(X.shape[1], k, niter=most, max_points_per_centroid=2 * len(X) // k + 1, seed=1)
    model.train(X.astype(np.float32), init_centroids=start.astype(np.float32))
    return len(model.iteration_stats), float(model.obj[-1])


def superkmeans(X: NDArray[Any], start: NDArray[Any], most: int) -> tuple[int, float]:
    """Fit on all rows, from rows that it draws itself."""
    k, kind = len(start), import_module("superkmeans").SuperKMeans
    of_all = {"sampling_fraction": 1.0, "max_points_per_cluster": len(X), "hierarchical": False}
    model = kind(k, X.shape[1], iters=most, n_threads=thread_count(), **of_all)
    model.train(X.astype(np.float32))
    return len(model.iteration_stats), float(model.iteration_stats[-1].objective)


LIBRARIES = {
    "ours": ("fedcluster", ours),
    "lloyd": ("sklearn", partial(sklearn, module="sklearn.cluster", algorithm="lloyd")),
    "elkan": ("sklearn", partial(sklearn, module="sklearn.cluster", algorithm="elkan")),
    "intelex": ("sklearnex", partial(sklearn, module="sklearnex.cluster", algorithm="lloyd")),
    "faiss": ("faiss", faiss),
    "superkmeans": ("superkmeans", superkmeans),
}
"""The module that a library needs, and its fit."""


def fits(X: NDArray[Any], start: NDArray[Any], most: int, names: list[str]) -> dict[str, Fit]:
    """Return a fit of at most so many iterations by each of the libraries that are here."""
    return {
        name: partial(LIBRARIES[name][1], X, start, most)
        for name in names
        if find_spec(LIBRARIES[name][0])
    }


def measured(
    X: NDArray[Any], start: NDArray[Any], repeats: int, most: int, names: list[str]
) -> dict[str, dict[str, float]]:
    """Return of each library its seconds, iterations and J, and its ratio to ours."""
    each = fits(X, start, most, names)
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
            "J": inertia / found["lloyd" if "lloyd" in found else "ours"][1],
        }
        for name, (n_iter, inertia) in found.items()
    }


def main() -> None:
    """Print one line for each rows, as they come."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="0,1,2,3,4")
    parser.add_argument("--kinds", default="separated,overlapping,uniform")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    start_fairly(given.threads)
    warnings.simplefilter("ignore")
    small, start = rows(2000, 5, 16, "uniform", np.float64)
    names = given.libraries.split(",")
    measured(small, start, 1, given.iterations, names)  # compiles, and loads all libraries
    print(conditions(given.threads), flush=True)
    lines = []
    for i, kind, dtype in product(given.sizes.split(","), given.kinds.split(","), ("f4", "f8")):
        n, d, k = SIZES[int(i)]
        X, start = rows(n, d, k, kind, dtype)
        line = {"rows": f"{n:,} x {d}, k {k}", "kind": kind, "dtype": dtype}
        lines.append({**line, **measured(X, start, given.repeats, given.iterations, names)})
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
