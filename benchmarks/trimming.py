"""What groups of rows cost a trimmed fit: the trimmed inertia beside that of the same fit on rows.

    .venv/bin/python benchmarks/trimming.py [--seeds 3]

Clouds at five sites in groups of five, and outliers anywhere in a wide box; ``trim`` is their
share. The trimmed inertia is that of the rows themselves, less the share farthest from all centres.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from fedcluster import FederatedKMeans
from fedcluster.kernels import nearest

Rows = NDArray[np.float64]
SETS = ((6, 2, 6000, 0.05), (6, 2, 1500, 0.05), (8, 5, 6000, 0.05), (8, 5, 1500, 0.1))
"""Clouds, columns, rows, and the share of outliers."""
SITES, P = 5, 5


def drawn(k: int, d: int, n: int, share: float, seed: int) -> Rows:
    """Return rows of clouds, the first of them outliers."""
    rng = np.random.default_rng([seed, k, d, n])
    X = 5 * rng.normal(size=(k, d))[rng.integers(k, size=n)] + rng.normal(size=(n, d))
    few = round(share * n)
    X[:few] = rng.uniform(-30, 30, (few, d))
    return X


def trimmed(X: Rows, centers: Rows, share: float) -> float:
    """Return the inertia of the rows but for the share that is farthest."""
    errors = np.sort(nearest(X, centers)[1])
    return float(errors[: len(X) - round(share * len(X))].sum())


def main() -> None:
    """Print a line of a table for each set: the largest ratio of all seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    for k, d, n, share in SETS:
        ratios = []
        for seed in range(given.seeds):
            X, site = drawn(k, d, n, share, seed), np.arange(n) % SITES
            found = [
                FederatedKMeans(k, trim=share, protection=how, random_state=seed)
                .fit(X, sites=site)
                .cluster_centers_
                for how in ("groups", None)
            ]
            grouped, exact = (trimmed(X, centers, share) for centers in found)
            ratios.append(grouped / exact)
        told = f"{k} clouds in {d} columns, {n:,} rows, {share:.0%} outliers"
        print(f"| {told} | {n / (k * P):.0f} | {max(ratios):.3f} |", flush=True)


if __name__ == "__main__":
    main()
