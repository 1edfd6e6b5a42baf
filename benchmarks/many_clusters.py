"""Default fits of hundreds of clusters beside single runs of scikit-learn on the pooled rows.

    .venv/bin/python benchmarks/many_clusters.py [--sizes 60000x64x1500,50000x256x500]
                                                 [--kinds overlapping] [--sites 20]

A size is rows x columns x clusters; rows are those of `convergence.py`, and each is at a site drawn
for it. A line has the times of our fit and of three runs with ``n_init=1`` (their median), by how
much our inertia is above the least of theirs, and by how much the largest of theirs is.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans

from fedcluster import FederatedKMeans

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.convergence import KINDS, rows
from benchmarks.fair import conditions, start

SIZES = "60000x64x1500,50000x256x500,50000x64x1000"
RUNS, THREADS = 3, 2


def line(size: str, kind: str, n_sites: int) -> str:
    """Return the line of one case."""
    n, d, k = map(int, size.split("x"))
    X, _ = rows(n, d, k, kind, np.float32)
    site = np.random.default_rng(1).integers(n_sites, size=n)
    sites = [X[site == i] for i in range(n_sites)]
    begun = time.perf_counter()
    ours = FederatedKMeans(k, random_state=0).fit(sites)
    spent, times, inertias = time.perf_counter() - begun, [], []
    for seed in range(RUNS):
        begun = time.perf_counter()
        inertias.append(float(KMeans(k, n_init=1, random_state=seed).fit(X).inertia_))
        times.append(time.perf_counter() - begun)
    above, largest = (100 * (each / min(inertias) - 1) for each in (ours.inertia_, max(inertias)))
    usual = float(np.median(times))
    return (
        f"{size}, {kind}, {n_sites} sites: {spent:.1f} s in {ours.n_iter_} rounds, a run "
        f"{usual:.1f} s; ratio {spent / usual:.2f}; J {above:+.2f} % (theirs up to {largest:+.2f})"
    )


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default=SIZES, help="rows x columns x clusters, by comma")
    parser.add_argument("--kinds", default="overlapping", help=f"of {', '.join(KINDS)}, by comma")
    parser.add_argument("--sites", type=int, default=20)
    given = parser.parse_args()
    start(THREADS)
    print(conditions(THREADS), flush=True)
    warnings.simplefilter("ignore")
    line("2000x8x4", "overlapping", given.sites)  # compiles what is not yet
    for size in given.sizes.split(","):
        for kind in given.kinds.split(","):
            print(line(size, kind, given.sites), flush=True)


if __name__ == "__main__":
    main()
