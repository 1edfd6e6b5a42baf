"""Runs whose rounds ask a sample of the sites: how close they come to pooled k-means, and how soon.

    python benchmarks/participation.py [--seeds 1] [--only wine] [--cache FILE]

The rows of `families` (those of few clusters aside), at 5 and at 25 sites that hold rows of
neighbouring clusters, with a share of 1, 0.5 and 0.2 of the sites in a round. J as in
`quality.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
from families import SETS, Labels, RowSet
from quality import PooledInertias

from fedcluster import FederatedKMeans

SHARES = (1.0, 0.5, 0.2)
SITES = (5, 25)
LEAST = 10
"""The fewest clusters of a set that is tried."""


def by_label(y: Labels, n_sites: int, seed: int) -> Labels:
    """Return the site of each row: rows of neighbouring labels, one in ten anywhere."""
    rng = np.random.default_rng([seed, n_sites])
    place = y.argsort(kind="stable").argsort() * n_sites // len(y)
    return np.where(rng.random(len(y)) < 0.1, rng.integers(n_sites, size=len(y)), place)


def fits(each: RowSet, seed: int, reference: float) -> Iterator[tuple[int, float, float, int]]:
    """Yield sites, share, J and rounds of every fit of one set."""
    X, y = each.rows(seed)
    for n_sites, share in product(SITES, SHARES):
        model = FederatedKMeans(each.k, random_state=seed, participation=share)
        model.fit(X, sites=by_label(y, n_sites, seed))
        yield n_sites, share, model.inertia_ / reference, model.n_iter_


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="", help="sets whose name contains this")
    parser.add_argument("--cache", type=Path, help="where pooled inertias stay")
    arguments = parser.parse_args()
    pooled = PooledInertias(arguments.cache)
    found: dict[tuple[int, float], list[tuple[float, int, str]]] = {}
    for each, seed in product(SETS, range(arguments.seeds)):
        if each.k >= LEAST and not each.site_rows and arguments.only in each.name:
            reference = pooled.of(each, seed, each.rows(seed)[0])
            for n_sites, share, J, rounds in fits(each, seed, reference):
                found.setdefault((n_sites, share), []).append((J, rounds, each.name))
    print("sites  share  fits      J  largest  at most 1.005  rounds  most  the largest J")
    for (n_sites, share), group in found.items():
        J, rounds, names = (np.array(each) for each in zip(*group, strict=True))
        print(
            f"{n_sites:5} {share:6.1f} {len(group):5} {J.mean():6.4f} {J.max():8.4f} "
            f"{(J <= 1.005).mean():14.2f} {rounds.mean():7.1f} {rounds.max():5}  "
            f"{names[J.argmax()]}"
        )


if __name__ == "__main__":
    main()
