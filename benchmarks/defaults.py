"""Default fits: over many sites beside few, and beside restarts on the pooled rows.

    .venv/bin/python benchmarks/defaults.py [--sites 5,1000,10000] [--large 2000,10000]
                                            [--rows 100000,1000000] [--repeats 5] [--json FILE]

Rows are 16 normal clusters in 8 columns, whose centres lie 4 or 1.5 standard deviations about
their middle; five sites where nothing else is said. Each repeat fits in turn over every number of
sites; a figure is the least of its processor times, which other work disturbs least, and the ratio
is to that of the first number. Then 1,000 sites have a large one of so many more rows among them;
the ratio is to the time without it. The peer, scikit-learn's ``KMeans(n_init=10)``, is fitted once.
J is the inertia over the peer's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from fedcluster import FederatedKMeans

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.fair import conditions, start

K, D, N, FEW, MANY, THREADS = 16, 8, 100_000, 5, 1000, 2
SPREADS = {"separated": 4.0, "overlapping": 1.5}


def rows(n: int, spread: float) -> NDArray[np.float64]:
    """Return rows of normal clusters."""
    rng = np.random.default_rng(0)
    centers = rng.normal(0, spread, (K, D))
    return centers[rng.integers(K, size=n)] + rng.normal(size=(n, D))


def fitted(X: NDArray[np.float64], n_sites: int) -> FederatedKMeans:
    """Return a default fit over so many sites of about as many rows."""
    return over(X, np.random.default_rng(1).integers(n_sites, size=len(X)))


def over(X: NDArray[np.float64], sites: NDArray[np.int64]) -> FederatedKMeans:
    """Return a default fit over these sites."""
    return FederatedKMeans(K, random_state=0).fit(X, sites=sites)


def timed(fit: Callable[..., Any], *given: Any) -> tuple[float, float, Any]:
    """Return processor time and time by the clock, in seconds, and what came of it."""
    cpu, clock = time.process_time(), time.perf_counter()
    model = fit(*given)
    return time.process_time() - cpu, time.perf_counter() - clock, model


def many(numbers: Sequence[int], repeats: int) -> Iterator[dict[str, Any]]:
    """Yield a line for each kind of rows and number of sites."""
    for kind, spread in SPREADS.items():
        X = rows(N, spread)
        runs = [[timed(fitted, X, m) for m in numbers] for _ in range(repeats + 1)][1:]
        least = [min(run[i][0] for run in runs) for i in range(len(numbers))]
        for i, (m, seconds) in enumerate(zip(numbers, least, strict=True)):
            clock = min(run[i][1] for run in runs)
            line = {"sites": m, "kind": kind, "seconds": seconds, "clock": clock}
            yield line | {"ratio": seconds / least[0], "rounds": runs[0][i][2].n_iter_}


def beside(large: Sequence[int], repeats: int) -> Iterator[dict[str, Any]]:
    """Yield a line for each number of rows of one large site among 1,000 small ones."""
    for n in large:
        X = rows(N + n, SPREADS["separated"])
        where = np.random.default_rng(1).integers(MANY, size=len(X))
        where[N:] = MANY
        sizes = N, N + n
        runs = [[timed(over, X[:m], where[:m])[0] for m in sizes] for _ in range(repeats + 1)]
        without, seconds = (min(run[i] for run in runs[1:]) for i in (0, 1))
        yield {"large": n, "seconds": seconds, "without": without, "ratio": seconds / without}


def restarts(sizes: Sequence[int], repeats: int) -> Iterator[dict[str, Any]]:
    """Yield a line for each number of rows and each kind of them."""
    for n in sizes:
        for kind, spread in SPREADS.items():
            X = rows(n, spread)
            fitted(X[:N], FEW)
            ours = min((timed(fitted, X, FEW) for _ in range(repeats)), key=lambda run: run[0])
            peer = timed(KMeans(K, n_init=10, random_state=0).fit, X)
            line = {"rows": n, "kind": kind, "seconds": ours[0], "peer": peer[0]}
            line |= {"ratio": ours[0] / peer[0], "clock": ours[1] / peer[1]}
            line |= {"rounds": ours[2].n_iter_, "iterations": peer[2].n_iter_}
            yield line | {"J": ours[2].inertia_ / peer[2].inertia_}


def main() -> None:
    """Print a line for each measure, and write all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", default="5,1000,10000")
    parser.add_argument("--large", default="2000,10000")
    parser.add_argument("--rows", default="100000,1000000")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    start(THREADS)
    print(conditions(THREADS), flush=True)
    numbers, large, sizes = (
        [int(n) for n in text.split(",") if n] for text in (given.sites, given.large, given.rows)
    )
    lines, repeats = [], given.repeats
    for measure in (many(numbers, repeats), beside(large, repeats), restarts(sizes, repeats)):
        for line in measure:
            print(
                "  ".join(
                    f"{what} {value:.4g}" if isinstance(value, float) else f"{what} {value}"
                    for what, value in line.items()
                ),
                flush=True,
            )
            lines.append(line)
    if given.json:
        given.json.write_text(json.dumps(lines, indent=1))


if __name__ == "__main__":
    main()
