"""How fast, side by side with peers in one process: medians of paired runs, and their ratios.

    .venv/bin/python benchmarks/speed.py [--only pass,rounds,...] [--repeats 7] [--json FILE]

Each row times ours and the peer in turn, ours, peer, ours, peer, ..., and prints the median of
each and the median of the ratios: machines are noisy, and what slows one slows the other. Rows
marked "absolute" have no peer: their bound is in the row's own unit, for orientation.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.cluster._k_means_lloyd import lloyd_iter_chunked_dense
from threadpoolctl import threadpool_limits

from fedcluster.algorithms import FKM, Lloyd
from fedcluster.core import Data, State, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.kernels import fuzzy_pass, hard_pass, kmeans_plusplus
from fedcluster.privacy import MinClusterSize
from fedcluster.rounds import run
from fedcluster_app.tables import open_rows

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.fair import conditions, start
from reproduction.datasets import plane16

SHAPES = ((1_000_000, 5, 16), (200_000, 32, 64), (20_000, 784, 60))
THREADS = 2


@dataclass(frozen=True)
class Row:
    """One line: seconds (or what the unit says), their ratio, and the most that it may be."""

    work: str
    ours: float
    peer: float
    ratio: float
    at_most: float
    unit: str = "ms"


def paired(
    ours: Callable[[], object], peer: Callable[[], object], repeats: int
) -> tuple[float, ...]:
    """Median milliseconds of both and the median of their ratios, after one warm-up of each."""
    ours()
    peer()
    times = np.array([(_timed(ours), _timed(peer)) for _ in range(repeats)])
    mine, theirs = np.median(times, axis=0) * 1e3
    return float(mine), float(theirs), float(np.median(times[:, 0] / times[:, 1]))


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def blobs(n: int, d: int, k: int, dtype: type) -> tuple[NDArray, NDArray]:
    """Rows around k centres, and a start from k-means++ on a part of them."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(k, d)) * 4.0
    X = (centers[rng.integers(0, k, n)] + rng.normal(size=(n, d))).astype(dtype)
    return X, X[kmeans_plusplus(X[:20_000], k, rng=rng)].astype(np.float64)


class Peer:
    """scikit-learn's compiled Lloyd iteration on two threads, as its ``fit`` calls it."""

    def __init__(self, X: NDArray, centers: NDArray) -> None:
        self.X, self.start = X, centers.astype(X.dtype)
        self.weight = np.ones(len(X), X.dtype)
        self.labels = np.empty(len(X), np.int32)

    def iterate(self, rounds: int) -> NDArray:
        old, new = self.start.copy(), np.empty_like(self.start)
        in_cluster, shift = np.empty(len(old), old.dtype), np.empty(len(old), old.dtype)
        with threadpool_limits(1, "blas"):
            for _ in range(rounds):
                lloyd_iter_chunked_dense(
                    self.X, self.weight, old, new, in_cluster, self.labels, shift, THREADS
                )
                old, new = new, old
        return self.labels


def passes(repeats: int) -> Iterator[Row]:
    """The first hard pass."""
    for (n, d, k), most in zip(SHAPES, (0.8, 1.0, 1.0), strict=True):
        for dtype in (np.float32, np.float64):
            X, start = blobs(n, d, k, dtype)
            peer = Peer(X, start)
            figures = paired(lambda: hard_pass(X, start), lambda: peer.iterate(1), repeats)  # noqa: B023
            yield Row(f"hard pass {n:,} x {d}, k {k}, {dtype.__name__}", *figures, most)


def rounds(repeats: int) -> Iterator[Row]:
    """Thirty rounds from one start, with the client's cache; the labels must agree at the end."""
    for n, d, k in SHAPES:
        for dtype in (np.float32, np.float64):
            X, start = blobs(n, d, k, dtype)
            peer = Peer(X, start)

            def ours() -> State:
                client, state, step = Client("site", Data(X)), State.at(start), Lloyd(tol=0)  # noqa: B023
                for _ in range(30):
                    answer = client.answer(Task(step, state))
                    state = step.server_step(state, [answer], np.random.default_rng(0))
                return state

            ends = hard_pass(X, ours().centers).labels, peer.iterate(31)
            differ = int((ends[0] != ends[1]).sum())
            figures = paired(ours, lambda: peer.iterate(30), max(3, repeats // 2))  # noqa: B023
            name = f"30 rounds {n:,} x {d}, k {k}, {dtype.__name__} ({differ} labels differ)"
            yield Row(name, *figures, 0.33)


def calls(repeats: int) -> Iterator[Row]:
    """One pass as an object call."""
    for n, d, k in SHAPES:
        X, start = blobs(n, d, k, np.float64)
        task = Task(Lloyd(), State.at(start))

        def peer() -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                KMeans(k, init=start, n_init=1, max_iter=1).fit(X)  # noqa: B023

        def ours() -> None:
            Client("site", Data(X)).answer(task)  # noqa: B023

        yield Row(f"object call {n:,} x {d}, k {k}", *paired(ours, peer, repeats), 0.12)


def fuzzy(repeats: int) -> Iterator[Row]:
    """One fuzzy pass, m = 2."""
    from skfuzzy.cluster._cmeans import _cmeans0

    for n, d, k in SHAPES:
        X, start = blobs(n, d, k, np.float64)
        rng = np.random.default_rng(0)
        degrees = rng.random((k, n))
        degrees /= degrees.sum(axis=0)
        columns = np.ascontiguousarray(X.T)
        figures = paired(
            lambda: fuzzy_pass(X, start, 2.0),  # noqa: B023
            lambda: _cmeans0(columns, degrees.copy(), k, 2.0, "euclidean"),  # noqa: B023
            max(3, repeats // 2),
        )
        yield Row(f"fuzzy pass {n:,} x {d}, k {k}", *figures, 0.08)


def fkm(repeats: int) -> Iterator[Row]:
    """FKM, 100 rounds, five sites of the 16-cluster plane, ten restarts at the server."""
    sites = {name: X for name, (X, _) in plane16().sites.items()}

    def ours() -> None:
        engine = LocalEngine(Client(n, Data(X), [MinClusterSize(2)]) for n, X in sites.items())
        run(FKM(16, server_seeding="unweighted"), engine, max_rounds=100)

    yield Row(
        "FKM, 100 rounds", *paired(ours, lambda: _plain_fkm(sites), max(3, repeats // 2)), 0.04
    )


def _plain_fkm(sites: dict[str, NDArray]) -> None:
    """FKM as its authors wrote it: a scikit-learn fit at each site and at the server."""
    first = [KMeans(16, max_iter=1, n_init=1, random_state=0).fit(X) for X in sites.values()]
    sent = [(fit.cluster_centers_, np.bincount(fit.labels_, minlength=16)) for fit in first]
    for _ in range(100):
        centers = np.concatenate([c[n >= 2] for c, n in sent])
        weights = np.concatenate([n[n >= 2] for _, n in sent])
        server = KMeans(16, n_init=10, random_state=0).fit(centers, sample_weight=weights)
        sent = []
        for X in sites.values():
            used = server.cluster_centers_[np.unique(server.predict(X))]
            fit = KMeans(len(used), init=used, n_init=1, max_iter=1).fit(X)
            sent.append((fit.cluster_centers_, np.bincount(fit.labels_, minlength=len(used))))


def crowd(repeats: int) -> Iterator[Row]:
    """One exact Lloyd round of 100,000 sites, in a process of its own."""
    seconds, megabytes = alone("one_crowd")
    yield Row("100,000 sites x 20 rows x 8 columns, a round", seconds, 1.0, seconds, 3.0, "s")
    yield Row("the same, resident", megabytes, 1.0, megabytes, 1000.0, "MB")


def one_crowd() -> float:
    """Seconds of the round."""
    rng = np.random.default_rng(0)
    X, site = rng.normal(size=(2_000_000, 8)), np.repeat(np.arange(100_000), 20)
    task = Task(Lloyd(), State.at(X[:16]))
    LocalEngine.from_table(Data(X[:200]), site[:200]).ask([task])
    begun = time.perf_counter()
    LocalEngine.from_table(Data(X), site).ask([task])
    return time.perf_counter() - begun


def parquet(repeats: int) -> Iterator[Row]:
    """One pass over a file that need not fit in memory, against just reading it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        names = [f"x{j}" for j in range(16)]
        schema = pa.schema([(name, pa.float32()) for name in names])
        rng = np.random.default_rng(0)
        with pq.ParquetWriter(path, schema) as writer:
            for _ in range(20):
                columns = rng.normal(size=(16, 1_000_000)).astype(np.float32)
                writer.write_table(pa.table(dict(zip(names, columns, strict=True)), schema))
        runs = [(alone("one_parquet_pass", path), alone("one_reading", path)) for _ in range(3)]
        times = np.array([(ours[0], peer[0]) for ours, peer in runs])
        ratio = float(np.median(times[:, 0] / times[:, 1]))
        ours, peer = np.median(times, axis=0)
        name = "20,000,000 x 16 float32 in Parquet, k 32, a pass"
        yield Row(name, float(ours), float(peer), ratio, 1.5, "s")
        megabytes = max(ours[1] for ours, _ in runs)
        yield Row("the same, resident", megabytes, 1.0, megabytes, 700.0, "MB")


def one_parquet_pass(path: str) -> float:
    """Seconds of a Lloyd pass through a client."""
    start = np.random.default_rng(0).normal(size=(32, 16))
    task = Task(Lloyd(), State.at(start))
    Client("warm", Data(start.astype(np.float32))).answer(task)
    begun = time.perf_counter()
    Client("site", open_rows(path)).answer(task)
    return time.perf_counter() - begun


def one_reading(path: str) -> float:
    """Seconds of reading the file batch by batch and keeping nothing, on all threads."""
    begun = time.perf_counter()
    for _ in pq.ParquetFile(path).iter_batches():
        pass
    return time.perf_counter() - begun


def alone(function: str, *arguments: object) -> tuple[float, float]:
    """What a function of this file returns in a process of its own, and its peak megabytes."""
    command = [sys.executable, __file__, "--alone", function, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, kilobytes = map(float, done.stdout.split())
    return seconds, kilobytes / 1024


def help_text(repeats: int) -> Iterator[Row]:
    """The command line's first word."""
    command = [str(Path(sys.executable).parent / "fedcluster"), "--help"]
    times = [
        _timed(lambda: subprocess.run(command, capture_output=True, check=True))
        for _ in range(repeats)
    ]
    seconds = float(np.median(times))
    yield Row("fedcluster --help", seconds, 1.0, seconds, 0.5, "s")


PARTS = {
    "pass": passes,
    "rounds": rounds,
    "calls": calls,
    "fuzzy": fuzzy,
    "fkm": fkm,
    "crowd": crowd,
    "parquet": parquet,
    "help": help_text,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(PARTS), help="parts, by comma")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--alone", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        seconds = globals()[arguments.alone[0]](*arguments.alone[1:])
        status = Path("/proc/self/status").read_text()  # getrusage knows the parent's peak too
        print(seconds, status.partition("VmHWM:")[2].split()[0])
        return
    start(THREADS)
    rows = []
    print(conditions(THREADS))
    head = f"{'work':60} {'ours':>10} {'peer':>10} {'ratio':>8} {'at most':>8}"
    print(head, flush=True)
    for part in arguments.only.split(","):
        for row in PARTS[part](arguments.repeats):
            rows.append(asdict(row))
            absolute = row.peer == 1.0 and row.ratio == row.ours
            peer = "absolute" if absolute else f"{row.peer:.4g} {row.unit}"
            print(
                f"{row.work:60} {row.ours:7.4g} {row.unit:2} {peer:>10} "
                f"{row.ratio:8.3f} {row.at_most:8.2f}",
                flush=True,
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
