"""What a Dask cluster of this machine costs and gives: fits, rows larger than memory.

    python benchmarks/on_dask.py fit           400,000 x 8, K 16, beside ten pooled restarts
    python benchmarks/on_dask.py dask-ml       the same rows by dask-ml, in its own environment
    python benchmarks/on_dask.py large FOLDER  10^8 x 8 in Parquet: passes beside reading alone
    python benchmarks/on_dask.py unlike        sites by Dirichlet shares and shards of labels

Two workers of one thread each.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from numpy.typing import NDArray

N, D, K = 400_000, 8, 16


def cluster() -> Client:
    """Return the client of two workers on this machine."""
    workers = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    return Client(workers)


def overlapping(n: int, seed: int = 0, d: int = D, k: int = K) -> NDArray[np.float64]:
    """Return rows of k clusters that overlap."""
    rng = np.random.default_rng(seed)
    spots = 1.5 * rng.normal(size=(k, d))
    return spots[rng.integers(0, k, n)] + rng.normal(size=(n, d))


def timed(do: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that something takes, and what it returns."""
    begin = time.perf_counter()
    made = do()
    return time.perf_counter() - begin, made


def inertia(X: NDArray[np.float64], centers: NDArray[np.float64]) -> float:
    """Return the sum of squared distances to the nearest centres."""
    return sum(
        float(((part[:, None] - centers) ** 2).sum(axis=2).min(axis=1).sum())
        for part in np.array_split(X, max(1, len(X) // 50_000))
    )


def fit() -> None:
    from sklearn.cluster import KMeans

    from fedcluster import FederatedKMeans
    from fedcluster.engines import DaskEngine

    X = overlapping(N)
    with cluster():
        rows = da.from_array(X, chunks=(N // 8, D)).persist()
        for name in ("first fit", "second fit"):
            model = FederatedKMeans(K, random_state=0)
            seconds, _ = timed(lambda: model.fit(engine=DaskEngine(rows)))  # noqa: B023
            print(f"{name}: {seconds:.1f} s, {model.n_iter_} rounds, inertia {model.inertia_:.6g}")
    best = min(KMeans(K, n_init=1, random_state=seed).fit(X).inertia_ for seed in range(10))
    print(f"over the best of ten pooled restarts: {model.inertia_ / best:.6f}")


def dask_ml() -> None:
    from dask_ml.cluster import KMeans

    X = overlapping(N)
    with cluster():
        rows = da.from_array(X, chunks=(N // 8, D)).persist()
        seconds, model = timed(lambda: KMeans(K, random_state=0).fit(rows))
        print(f"dask-ml: {seconds:.1f} s, inertia {inertia(X, model.cluster_centers_):.6g}")


def write(folder: Path, n_files: int, rows: int) -> None:
    """Write rows in float32, a file at a time, where there are none yet."""
    import pandas as pd

    folder.mkdir(exist_ok=True)
    for i in range(n_files):
        if not (path := folder / f"{i:03}.parquet").exists():
            X = overlapping(rows, seed=i).astype(np.float32)
            pd.DataFrame(X, columns=[f"x{j}" for j in range(D)]).to_parquet(path)


def peak() -> float:
    """Return the largest memory of this process in MB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def large(folder: str, n_files: int = 100, rows: int = 1_000_000) -> None:
    import dask.dataframe as dd

    from fedcluster import State, Task
    from fedcluster.algorithms import Lloyd
    from fedcluster.engines import DaskEngine
    from fedcluster.jobs import execute, fit_of

    write(Path(folder), n_files, rows)
    with cluster() as client:
        ddf = dd.read_parquet(f"{folder}/*.parquet")
        read, _ = timed(lambda: ddf.map_partitions(len, meta=("n", "i8")).compute())
        print(f"reading alone {read:.1f} s", flush=True)
        engine = DaskEngine(ddf, keep=False)
        opened, _ = timed(engine.introduce)
        print(f"opening {opened:.1f} s", flush=True)
        tasks = [Task(Lloyd(), State.at(overlapping(K)))]
        for _ in range(2):
            seconds, _ = timed(lambda: engine.ask(tasks))
            print(f"a pass {seconds:.1f} s, {seconds / read:.2f} of reading", flush=True)
        print("peak MB of workers", [round(mb) for mb in client.run(peak).values()], flush=True)
        seconds, report = timed(lambda: execute(fit_of(K, n_init=1, max_iter=2), engine))
        rounds = len(report.outcome.communication_rounds)
        print(f"fit, n_init=1, max_iter=2: {seconds:.0f} s, {rounds} rounds")
        print("peak MB of workers", [round(mb) for mb in client.run(peak).values()])


def unlike() -> None:
    from sklearn.cluster import KMeans
    from sklearn.datasets import load_digits

    from fedcluster import FederatedKMeans
    from fedcluster_app.datasets import sites_by_label

    X, y = load_digits(return_X_y=True)
    best = min(KMeans(10, n_init=10, random_state=seed).fit(X).inertia_ for seed in range(3))
    ways: dict[str, dict[str, Any]] = {
        "alike": {},
        "Dirichlet, alpha 1": {"alpha": 1.0},
        "Dirichlet, alpha 0.1": {"alpha": 0.1},
        "two shards each": {"labels_per_site": 2},
    }
    for name, how in ways.items():
        for algorithm in ("auto", "kfed", "fedavg"):
            found = [
                FederatedKMeans(10, algorithm=algorithm, random_state=seed)
                .fit(X, sites=sites_by_label(y, 20, seed=seed, **how))
                .inertia_
                / best
                for seed in range(5)
            ]
            most = f"{min(found):.4f} to {max(found):.4f}"
            print(f"{name}, {algorithm}: J {np.mean(found):.4f} ({most})")


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    run: dict[str, Callable[..., None]] = {
        "fit": fit,
        "dask-ml": dask_ml,
        "large": partial(large),
        "unlike": unlike,
    }
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    run[command](*arguments)
