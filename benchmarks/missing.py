"""How well clusters are found where values are missing: left as they are, filled in, or dropped.

    .venv/bin/python benchmarks/missing.py [--seeds 8]

Four normal clusters of 600 rows in eight columns at two sites; values are missing at random. The
adjusted Rand index is with the true clusters; with "drop" it is of the rows that are left. J is the
sum of squared differences over the values that are present.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from fedcluster import FederatedKMeans, PreprocessingSpec
from fedcluster.errors import SiteError

Rows = NDArray[np.float64]
K, N, D, SPREAD = 4, 600, 8, 1.4
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)


def drawn(share: float, seed: int) -> tuple[Rows, NDArray[np.intp]]:
    """Return rows with gaps, and the cluster of each."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(K), N // K)
    X = SPREAD * rng.normal(size=(K, D))[y] + rng.normal(size=(N, D))
    return np.where(rng.random(X.shape) < share, np.nan, X), y


def present(X: Rows, centers: Rows) -> float:
    """Return the sum of squared differences to the nearest centres, over values that are there."""
    gaps = np.nansum((X[:, None] - centers) ** 2, axis=2)
    return float(gaps.min(axis=1).sum())


def measured(share: float, seed: int) -> list[float]:
    """Return the index of each way, the share of rows that "drop" leaves, and a ratio of J."""
    X, y = drawn(share, seed)
    scores, inertias = [], []
    for way in ("ignore", "mean", "drop"):
        prepare = PreprocessingSpec("none", missing=way)
        try:
            model = FederatedKMeans(K, prepare=prepare, random_state=seed).fit([X[::2], X[1::2]])
        except (SiteError, ValueError):  # too few rows are left
            return [*scores, np.nan, 0.0, inertias[1] / inertias[0]]
        centers = model.preprocessor_.invert(model.cluster_centers_)
        labels = np.empty(N, np.intp)
        labels[::2], labels[1::2] = np.split(model.labels_, 2)
        there = labels >= 0
        scores.append(adjusted_rand_score(y[there], labels[there]))
        inertias.append(present(X, centers))
    return [*scores, float(there.mean()), inertias[1] / inertias[0]]


def main() -> None:
    """Print a line of a table for each share: means over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    given = parser.parse_args()
    print("| missing | ignore | mean | drop, on the rows that are left | J of mean / J of ignore |")
    print("|---|---|---|---|---|")
    for share in SHARES:
        runs = [measured(share, seed) for seed in range(given.seeds)]
        ignore, mean, drop, left, ratio = np.mean(runs, axis=0)
        dropped = "too few rows" if np.isnan(drop) else f"{drop:.3f}, on {left:.0%}"
        cells = f"{ignore:.3f} | {mean:.3f} | {dropped} | {ratio:.3f}"
        print(f"| {share:.0%} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
