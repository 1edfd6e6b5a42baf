"""The search of quality="best" beside the strongest searches on pooled rows.

    .venv/bin/python benchmarks/best.py [--seeds 3] [--sets iris,wine,...] [--quality best]

J is the inertia divided by that of the best of three pooled searches, which read all rows: 50
restarts of k-means, breathing k-means, and HG-means with 3,000 iterations. Each of these is done
once and kept in --searches FILE, as it takes minutes. Bank marketing is read where its file lies
beside the project (../shared/reference) and left out otherwise. "sent" is what the most talkative
site sent, in numbers for each value that a site holds on average.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn import datasets
from sklearn.cluster import KMeans

from fedcluster import FederatedKMeans
from fedcluster.kernels import kmeans_plusplus
from fedcluster.kernels.iteration import LloydFit, lloyd

Rows = NDArray[np.float64]
BANK = Path(__file__).parent.parent.parent / "shared/reference/bank_marketing.parquet"


def standardised(X: Rows) -> Rows:
    return (X - X.mean(axis=0)) / X.std(axis=0)


def s4_like(rng: Generator) -> Rows:
    """Fifteen clouds in the plane that overlap strongly, as those of the set S4."""
    centers = rng.uniform(0.1, 0.9, (15, 2))
    return centers[rng.integers(15, size=5000)] + 0.06 * rng.normal(size=(5000, 2))


def bank() -> Rows:
    """The seven columns of numbers, of 5,000 rows."""
    from pyarrow import parquet

    table = parquet.read_table(BANK)
    numbers = [field.name for field in table.schema if str(field.type).startswith("int")]
    X = np.column_stack([table[name].to_numpy() for name in numbers]).astype(float)
    return standardised(X[np.sort(np.random.default_rng(0).permutation(len(X))[:5000])])


SETS: dict[str, tuple[Callable[[], Rows], int]] = {
    "iris": (lambda: datasets.load_iris().data, 10),
    "wine": (lambda: standardised(datasets.load_wine().data), 12),
    "cancer": (lambda: standardised(datasets.load_breast_cancer().data), 15),
    "diabetes": (lambda: datasets.load_diabetes().data, 8),
    "digits": (lambda: datasets.load_digits().data, 30),
    "uniform": (lambda: np.random.default_rng(0).random((2000, 2)), 30),
    "s4": (lambda: s4_like(np.random.default_rng(4)), 15),
    "bank": (bank, 25),
}


def restarts(X: Rows, k: int) -> float:
    return float(KMeans(k, n_init=50, tol=0, random_state=0).fit(X).inertia_)


def breathing(X: Rows, k: int, depth: int = 5) -> float:
    """Breathing k-means: Fritzke, 2020, with its m = 5 and epsilon = 1.1."""
    best = KMeans(k, n_init=10, tol=0, random_state=0).fit(X)
    centers, inertia, rng = best.cluster_centers_, best.inertia_, np.random.default_rng(0)
    m = depth
    while m > 0:
        new = lloyd(X, breathed_in(X, centers, m, rng))
        smaller = lloyd(X, breathed_out(X, new.centers, m))
        if smaller.inertia < inertia * (1 - 1e-9):
            centers, inertia = smaller.centers, smaller.inertia
        else:
            m -= 1
    return float(inertia)


def breathed_in(X: Rows, centers: Rows, m: int, rng: Generator) -> Rows:
    """The centres, and one more beside each of the m of largest error."""
    squared = cdist(X, centers, "sqeuclidean")
    errors = np.bincount(squared.argmin(axis=1), squared.min(axis=1), len(centers))
    root = np.sqrt(errors.sum() / len(X))
    aside = 0.01 * root * rng.uniform(-0.5, 0.5, (min(m, len(centers)), X.shape[1]))
    return np.concatenate([centers, centers[np.argsort(-errors)[:m]] + aside])


def breathed_out(X: Rows, centers: Rows, m: int, epsilon: float = 1.1) -> Rows:
    """All but the m of least utility; those near one that goes stay, while enough are left."""
    first, second = np.partition(cdist(X, centers, "sqeuclidean"), 1, axis=1)[:, :2].T
    labels = cdist(X, centers).argmin(axis=1)
    utility = np.bincount(labels, second - first, len(centers))
    apart, near = cdist(centers, centers), epsilon * np.sqrt(first.mean())
    gone: list[int] = []
    frozen: set[int] = set()
    for j in np.argsort(utility):
        if len(gone) < m and j not in frozen:
            gone.append(j)
            for i in np.flatnonzero(apart[j] < near):
                if i != j and i not in gone and len(frozen) + m < len(centers):
                    frozen.add(i)
    return np.delete(centers, gone, axis=0)


Member = tuple[LloydFit, float]
"""A solution, and its share alpha of draws that look at distances."""


def hg_means(X: Rows, k: int, iterations: int = 3000, least: int = 10, most: int = 20) -> float:
    """HG-means: Gribel & Vidal, Pattern Recognition 88 (2019)."""
    rng = np.random.default_rng(0)
    starts = [X[kmeans_plusplus(X, k, rng=rng)] for _ in range(least)]
    members = [(lloyd(X, start), rng.random()) for start in starts]
    for _ in range(iterations):
        one, other = (tournament(members, rng) for _ in range(2))
        alpha = float(np.clip((one[1] + other[1]) / 2 + rng.uniform(-0.2, 0.2), 0, 1))
        child = moved(X, crossed(one[0].centers, other[0].centers, rng), alpha, rng)
        members.append((lloyd(X, child), alpha))
        if len(members) > most:
            members = survivors(members, least)
    return min(fit.inertia for fit, _ in members)


def tournament(members: list[Member], rng: Generator) -> Member:
    return min((members[i] for i in rng.integers(len(members), size=2)), key=inertia)


def inertia(member: Member) -> float:
    return member[0].inertia


def crossed(one: Rows, other: Rows, rng: Generator) -> Rows:
    """One of each pair of centres that are matched with least distance in all."""
    matched = other[linear_sum_assignment(cdist(one, other))[1]]
    return np.where(rng.random(len(one))[:, None] < 0.5, one, matched)


def moved(X: Rows, centers: Rows, alpha: float, rng: Generator) -> Rows:
    """One centre removed, and put at a row that is drawn by its distance or evenly."""
    rest = np.delete(centers, rng.integers(len(centers)), axis=0)
    apart = cdist(X, rest).min(axis=1)
    chance = alpha * apart / apart.sum() + (1 - alpha) / len(X)
    return np.concatenate([rest, X[[rng.choice(len(X), p=chance)]]])


def survivors(members: list[Member], least: int) -> list[Member]:
    """The best, without copies where there are enough."""
    members = sorted(members, key=inertia)
    copies = [b for a, b in pairwise(members) if inertia(b) <= inertia(a) * (1 + 1e-9)]
    places = {id(copy) for copy in copies}
    distinct = [member for member in members if id(member) not in places]
    return (distinct + copies)[:least]


SEARCHES = {"restarts": restarts, "breathing": breathing, "hg-means": hg_means}


def searched(name: str, X: Rows, k: int, file: Path) -> dict[str, float]:
    """The inertia of each pooled search, from the file as far as it has them."""
    known = json.loads(file.read_text()) if file.exists() else {}
    results = known.setdefault(name, {})
    for search, run in SEARCHES.items():
        if search not in results:
            begun = time.perf_counter()
            results[search] = run(X, k)
            results[f"{search}, seconds"] = time.perf_counter() - begun
            file.write_text(json.dumps(known, indent=1))
    return {search: results[search] for search in SEARCHES}


def measured(name: str, quality: str, seeds: int, file: Path) -> list[float]:
    """Print the line of a set; J of each seed."""
    make, k = SETS[name]
    X = make()
    results = searched(name, X, k, file)
    best, models, begun = min(results.values()), [], time.perf_counter()
    for seed in range(seeds):
        site = np.random.default_rng(seed).integers(5, size=len(X))
        model = FederatedKMeans(k, quality=quality, random_state=seed).fit(X, sites=site)
        models.append(model)
    ratios = [model.inertia_ / best for model in models]
    rounds = [model.n_iter_ for model in models]
    sent = [max(model.values_sent_.values()) * 5 / X.size for model in models]
    print(
        f"{name:9} {k:3}",
        *(f"{results[search] / best:9.5f}" for search in SEARCHES),
        f"{statistics.mean(ratios):9.5f} {max(ratios):9.5f}",
        f"{statistics.mean(rounds):6.0f}/{max(rounds):<4} {max(sent):7.0f}",
        f"{(time.perf_counter() - begun) / seeds:6.2f}",
        flush=True,
    )
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--quality", default="best", choices=("good", "better", "best"))
    parser.add_argument("--searches", type=Path, default=Path(".cache/searches.json"))
    arguments = parser.parse_args()
    arguments.searches.parent.mkdir(exist_ok=True)
    print(
        "set         k  restarts breathing  hg-means         J       max rounds/max     sent      s"
    )
    ratios: list[float] = []
    for name in arguments.sets.split(","):
        if name != "bank" or BANK.exists():
            ratios += measured(name, arguments.quality, arguments.seeds, arguments.searches)
    print(f"mean J {statistics.mean(ratios):.5f}, largest {max(ratios):.5f}")


if __name__ == "__main__":
    main()
