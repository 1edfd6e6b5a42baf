"""Compilation of all kernels in advance, by small jobs of every kind in both precisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from fedcluster import (
    Data,
    FederatedFuzzyCMeans,
    FederatedGaussianMixture,
    FederatedKMeans,
    select_k,
)
from fedcluster.kernels import hard_sums, nearest
from fedcluster.kernels.runtime import announcer, compiled_loops, compiled_mark
from fedcluster.privacy import Groups
from fedcluster.privacy.groups import Grouping

SHAPES = (("few rows", 60, 4), ("many rows", 9000, 4), ("wide rows", 600, 40))
"""Numbers of rows and columns of a site, for single compiled calls and for chunks."""
PRECISIONS = (np.float64, np.float32)
WISHES = ({"trim": 0.1}, {"metric": "cosine"}, {"sums_only": True})

Job = tuple[str, Callable[[], object]]


def jobs() -> Iterator[Job]:
    """Yield the names of small jobs, and the jobs, that together compile all kernels."""
    few = _sites(60, 4, np.float64)
    yield "k-means", _fit(FederatedKMeans(3), few)
    yield "the choice of k", lambda: select_k(few, range(1, 5))
    for dtype in PRECISIONS:
        for shape, n, d in SHAPES:
            rows, of = _sites(n, d, dtype), f"{shape} in {np.dtype(dtype)}"
            yield f"k-means of {of}", _fit(FederatedKMeans(3, max_iter=20), rows)
            yield f"fuzzy c-means of {of}", _fit(FederatedFuzzyCMeans(3, max_iter=3), rows)
        small = list(np.vstack(_sites(600, 4, dtype)).reshape(100, 12, 4))
        of = f"many sites in {np.dtype(dtype)}"
        yield f"k-means of {of}", _fit(FederatedKMeans(3, max_iter=20), small)
        sums: Any = FederatedKMeans(3, max_iter=20, sums_only=True)
        yield f"k-means with sums_only of {of}", _fit(sums, small)
        yield f"late rounds in {np.dtype(dtype)}", partial(_late_rounds, dtype)
        rows, of = _sites(60, 4, dtype), f"of few rows in {np.dtype(dtype)}"
        for algorithm in ("fkm", "kfed", "fedavg"):
            yield f"{algorithm} {of}", _fit(FederatedKMeans(3, algorithm=algorithm), rows)
        for wish in WISHES:
            model: Any = FederatedKMeans(3, max_iter=20, **wish)
            yield f"k-means with {next(iter(wish))} {of}", _fit(model, rows)
    yield "mixtures", _fit(FederatedGaussianMixture(3, max_iter=3), few)
    yield "groups of rows", lambda: Grouping(Groups(p=5)).grouped(Data(few[0]))


def _sites(n: int, d: int, dtype: Any) -> list[Any]:
    """Return rows of two sites, in three clusters."""
    rng = np.random.default_rng(0)
    both = rng.normal(size=(2, n, d)) + 9 * rng.integers(0, 3, (2, n, 1))
    return list(both.astype(dtype))


def _late_rounds(dtype: Any) -> None:
    """Ask about centres that hardly move, for as many rows as it takes to keep bounds for them."""
    rows = _sites(9000, 40, dtype)[0]
    centers, cache = rows[:150].astype(np.float64), dict[str, Any]()
    for _ in range(4):
        hard_sums(rows, centers, cache=cache)
        centers[0] += 1e-3
    nearest(rows, centers, cache=cache)


def _fit(model: Any, rows: list[Any]) -> Callable[[], object]:
    """Return the job that fits a model and assigns rows by it."""
    return lambda: model.set_params(random_state=0).fit(rows).predict(rows[0])


def warmed(doing: Callable[[str], None]) -> int:
    """Compile missing kernels; return their number."""
    every = list(jobs())
    compiled_loops.left = 0
    for i, (name, job) in enumerate(every, 1):
        doing(f"compiling kernels, {i} of {len(every)}: {name}")
        job()
    with suppress(OSError):  # without a writable folder, kernels are not cached either
        compiled_mark().touch()
    return announcer.compiled
