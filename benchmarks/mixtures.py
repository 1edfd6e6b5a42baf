"""Mixtures of normal distributions beside scikit-learn's on the pooled rows.

    .venv/bin/python benchmarks/mixtures.py [--only wine] [--kinds full,tied,diag,spherical]
        [--held-out 5]

The difference of the lower bounds per row: `FederatedGaussianMixture` over five random sites less
``GaussianMixture(n_init=10)`` on all rows. Above 0, ours is likelier. With --held-out, the mean of
so many random halves: the log likelihood per row of the half that no mixture was fitted to, less
that of ``GaussianMixture(n_init=5)``; and how often it is lower by two standard errors, over rows.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.mixture import GaussianMixture

from fedcluster import FederatedGaussianMixture

Rows = NDArray[np.float64]
KINDS = "full,tied,diag,spherical"
SEED = 11
"""Of sites and draws; starts were chosen on others."""


def standardised(X: Rows) -> Rows:
    """Return columns with mean 0 and variance 1."""
    return (X - X.mean(axis=0)) / X.std(axis=0)


SETS: dict[str, tuple[Callable[[], Rows], tuple[int, ...]]] = {
    "iris": (lambda: datasets.load_iris().data, (3,)),
    "wine": (lambda: standardised(datasets.load_wine().data), (3, 8)),
    "cancer": (lambda: standardised(datasets.load_breast_cancer().data), (2,)),
    "diabetes": (lambda: standardised(datasets.load_diabetes().data), (3, 8, 15)),
}


def difference(X: Rows, k: int, kind: str) -> tuple[float, float, int]:
    """Return by how much ours is likelier for a row, its standard error, and the rounds."""
    return fitted(X, X, k, kind, SEED, 10)


def fitted(
    X: Rows, test: Rows, k: int, kind: str, seed: int, n_init: int
) -> tuple[float, float, int]:
    """Return by how much our mixture of rows is likelier for others, as `difference`."""
    site = np.random.default_rng(seed).integers(5, size=len(X))
    ours = FederatedGaussianMixture(k, covariance_type=kind, random_state=seed).fit(X, sites=site)
    peer = GaussianMixture(k, covariance_type=kind, n_init=n_init, random_state=seed).fit(X)
    gains = ours.score_samples(test) - peer.score_samples(test)
    return float(gains.mean()), float(gains.std() / len(gains) ** 0.5), ours.n_iter_


def held_out(X: Rows, k: int, kind: str, seed: int) -> tuple[float, float, int]:
    """Return the same for the half of the rows that is not fitted."""
    half = np.random.default_rng([SEED, seed]).permutation(len(X)) < len(X) // 2
    return fitted(X[half], X[~half], k, kind, seed, 5)


def main() -> None:
    """Print a line of a table for each set and k."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="sets whose name contains this")
    parser.add_argument("--kinds", default=KINDS, help="kinds of covariances, by comma")
    parser.add_argument("--held-out", type=int, default=0, help="random halves")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # the peer's, where a start does not converge
    kinds, found = given.kinds.split(","), []
    print(f"| rows | k | {' | '.join(kinds)} |\n|{'---|' * (2 + len(kinds))}")
    for name, (make, ks) in SETS.items():
        if given.only not in name:
            continue
        X = make()
        for k in ks:
            halves = range(given.held_out)
            by_kind = [
                [held_out(X, k, kind, i) for i in halves] or [difference(X, k, kind)]
                for kind in kinds
            ]
            found += [one for each in by_kind for one in each]
            gains = [float(np.mean([gain for gain, *_ in each])) for each in by_kind]
            cells = " | ".join(f"{gain:+.4f}".replace("-", "−") for gain in gains)
            print(f"| {name}, {len(X):,} rows, {X.shape[1]} columns | {k} | {cells} |", flush=True)
    differences, errors, rounds = (np.array(each) for each in zip(*found, strict=True))
    not_lower = differences > -0.001
    close = not_lower | (differences > -2 * errors)
    print(f"{not_lower.sum()} of {len(found)} not lower by more than 0.001, "
          f"{close.sum()} not by more than two standard errors; "
          f"rounds {rounds.min()} to {rounds.max()}, {rounds.mean():.0f} on average")  # fmt: skip


if __name__ == "__main__":
    main()
