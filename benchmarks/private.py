"""What privacy costs: inertia of private centres over that of the best pooled k-means.

    python -m benchmarks.private --seeds 10
    python -m benchmarks.private --only plane --wide 3 --sites 10
    python -m benchmarks.private --few

With ``--few``, how many rows a fit needs at the least for each budget, and what it reaches with so
many rows of well separated clusters, with twice as many, and with four times as many.

Ours is `fedcluster.recipes.private` with the noise that sites draw; with ``--sites`` each of so
many adds its own in full, otherwise one noise is shared, as under a secure sum. Beside it are
FastLloyd, as published (USENIX Security 2025, sections 4 and 5, and its program's constants), and
Google's clustering by hashing where its package ``clustering`` is on the path (github.com/google/
differential-privacy, learning/clustering). All have the same rows, in the same public bounds, the
same epsilon, and delta 1e-6; one record more or less is hidden.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits

from fedcluster import Client, Data, LocalEngine
from fedcluster.errors import InputError
from fedcluster.preprocessing import Preprocessor
from fedcluster.privacy.budget import Budget, noise_of
from fedcluster.recipes.private import fewest_rows, private_clustering
from fedcluster.recipes.specifications import fit_of
from fedcluster.rounds import run_plan, with_preprocessing

try:
    from clustering import clustering_algorithm as google
    from clustering import clustering_params as google_params
except ImportError:
    google = None

Rows = NDArray[np.float64]
DELTA = 1e-6
PLANE = np.array([(x, y) for x in (-7.5, -2.5, 2.5, 7.5) for y in (-7.5, -2.5, 2.5, 7.5)])


@dataclass(frozen=True)
class Kind:
    """A kind of rows, drawn anew for each seed, and the budgets that it is measured with."""

    name: str
    k: int
    draw: Callable[[Generator], Rows]
    epsilons: tuple[float, ...] = (1.0,)


def plane(rng: Generator, noise: float) -> Rows:
    """Draw the sixteen clusters of the papers on federated k-means, 200 rows of each."""
    centers = np.repeat(PLANE, 200, axis=0)
    return centers + rng.normal(0, noise, centers.shape)


def gaussians(
    rng: Generator,
    n: int,
    d: int,
    k: int,
    apart: float,
    *,
    shape: str = "round",
    sizes: Sequence[float] | None = None,
) -> Rows:
    """Draw rows about centres in a cube, the nearest two so many deviations apart."""
    centers = rng.uniform(-1, 1, (k, d))
    least = (0.35 if d > 3 else 1.5 * k ** (-1 / d)) * np.sqrt(d / 1.5)
    for _ in range(2000):
        gaps = cdist(centers, centers) + np.diag(np.full(k, np.inf))
        if gaps.min() >= least:
            break
        centers[gaps.min(axis=1).argmin()] = rng.uniform(-1, 1, d)
    deviation = (cdist(centers, centers) + np.diag(np.full(k, np.inf))).min() / apart
    share = None if sizes is None else np.array(sizes) / np.sum(sizes)
    label = rng.choice(k, n, p=share)
    spread = rng.standard_t(3, (n, d)) if shape == "tails" else rng.normal(size=(n, d))
    if shape == "stretched":
        spread *= np.exp(rng.uniform(-1, 1, (k, d)))[label]
    if shape == "correlated":
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
        spread = (spread * np.exp(np.linspace(-1.2, 1.0, d))) @ turn
    return centers[label] + deviation * spread


KINDS = (
    Kind("plane, noise 1", 16, lambda rng: plane(rng, 1.0), (1.0, 2.0, 4.0)),
    Kind("plane, noise 1.5", 16, lambda rng: plane(rng, 1.5), (1.0, 2.0, 4.0)),
    Kind("d 10, n 20,000", 10, lambda rng: gaussians(rng, 20_000, 10, 10, 10), (0.5,)),
    Kind("d 50, n 100,000", 10, lambda rng: gaussians(rng, 100_000, 50, 10, 10), (0.1,)),
    Kind("overlapping, d 2, n 5,000", 5, lambda rng: gaussians(rng, 5000, 2, 5, 2.5)),
    Kind("overlapping, d 10, n 20,000", 10, lambda rng: gaussians(rng, 20_000, 10, 10, 3)),
    Kind(
        "unbalanced 1 to 30, d 5, n 20,000",
        8,
        lambda rng: gaussians(rng, 20_000, 5, 8, 8, sizes=(1, 2, 3, 5, 8, 13, 20, 30)),
    ),
    Kind(
        "heavy tails, d 5, n 10,000", 6, lambda rng: gaussians(rng, 10_000, 5, 6, 8, shape="tails")
    ),
    Kind(
        "stretched, d 8, n 20,000",
        6,
        lambda rng: gaussians(rng, 20_000, 8, 6, 8, shape="stretched"),
    ),
    Kind(
        "correlated, d 20, n 20,000",
        6,
        lambda rng: gaussians(rng, 20_000, 20, 6, 8, shape="correlated"),
    ),
    Kind("few clusters, d 30, n 5,000", 3, lambda rng: gaussians(rng, 5000, 30, 3, 8)),
    Kind("many clusters, d 3, n 20,000", 20, lambda rng: gaussians(rng, 20_000, 3, 20, 8)),
    Kind(
        "many clusters, d 10, n 50,000", 40, lambda rng: gaussians(rng, 50_000, 10, 40, 8), (2.0,)
    ),
    Kind("no clusters, d 2, n 10,000", 10, lambda rng: rng.uniform(-1, 1, (10_000, 2))),
    Kind("no clusters, d 10, n 20,000", 10, lambda rng: rng.uniform(-1, 1, (20_000, 10))),
    Kind("digits, d 64, n 1,797", 10, lambda _: load_digits().data, (1.0, 4.0)),
)


def in_bounds(X: Rows, wide: float) -> Rows:
    """Return rows in [-1, 1]^d, by bounds so many times as wide as the rows."""
    low, high = X.min(axis=0), X.max(axis=0)
    half = np.where(high > low, (high - low) / 2, 1.0)
    return (X - (low + high) / 2) / (half * wide)


def ours(X: Rows, k: int, epsilon: float, seed: int, sites: int) -> Rows:
    """Return private centres of rows at sites."""
    names = [f"x{j}" for j in range(X.shape[1])]
    box = Preprocessor.in_box(names, [-1.0] * len(names), [1.0] * len(names))
    engine = LocalEngine([Client(f"s{i}", Data(X[i::sites]), filters=()) for i in range(sites)])
    plan = private_clustering(
        fit_of(k, seed=seed),
        Budget(epsilon, DELTA),
        n_rows=len(X),
        n_columns=X.shape[1],
        n_noises=sites,
    )
    return run_plan(with_preprocessing(plan, box), engine).value.state.centers


def fastlloyd(X: Rows, k: int, epsilon: float, seed: int, alpha: float) -> Rows:
    """Return the centres of FastLloyd: Gaussian noise, radius constraint, folded into the box."""
    rng, d = np.random.default_rng([seed, 1]), X.shape[1]
    noise, root = noise_of(Budget(epsilon, DELTA).rho), np.sqrt(4 * d)
    diagonal, share = 2 * np.sqrt(d), alpha / (2 * k ** (1 / d))
    eta = 2 * np.sqrt(d) * share
    rounds = 0.016 * len(X) ** 2 / (k**3 * eta**2 * (1 + root) ** 2 * noise**2)
    rounds = int(np.clip(rounds, 2, 7))
    centers = apart(k, d, rng)
    for i in range(rounds):
        reach = diagonal / 2 if i == 0 else diagonal * share
        reach = min(reach, diagonal)
        gaps = cdist(X, centers)
        label = np.where(gaps.min(axis=1) > reach, k, gaps.argmin(axis=1))
        counts = np.bincount(label, minlength=k + 1)[:k].astype(float)
        sums = np.array([(X[label == j] - centers[j]).sum(axis=0) for j in range(k)])
        scale = np.sqrt(rounds * (1 + root)) * noise
        sums += rng.normal(0, scale / root**0.5 * reach, sums.shape)
        counts = np.round(counts + rng.normal(0, scale, k))
        step = sums / (counts + 1e-9)[:, None]
        length = np.linalg.norm(step, axis=1, keepdims=True)
        step *= np.minimum(1.0, reach / np.maximum(length, 1e-12))
        centers = 1 - np.abs((centers + step + 1) % 4 - 2)
    return centers


def apart(k: int, d: int, rng: Generator) -> Rows:
    """Return centres as far apart in the box as a hundred tries for each find them."""
    gap = 1.0
    while True:
        found: list[Rows] = []
        for _ in range(100 * k):
            trial = rng.uniform(-1 + gap, 1 - gap, d)
            if all(np.linalg.norm(trial - each) >= 2 * gap for each in found):
                found.append(trial)
            if len(found) == k:
                return np.array(found)
        gap /= 2


def googles(X: Rows, k: int, epsilon: float, seed: int) -> Rows:
    """Return the centres of Google's program, which is told the largest length of a row."""
    np.random.seed(seed)  # noqa: NPY002  its program draws from it
    radius = float(np.linalg.norm(X, axis=1).max())
    budget = google_params.DifferentialPrivacyParam(epsilon=epsilon, delta=DELTA)
    return google.private_lsh_clustering(k, google_params.Data(X, radius), budget).centers


def inertia(X: Rows, centers: Rows) -> float:
    """Return the sum of squared distances to the nearest centre."""
    parts = np.array_split(X, max(1, len(X) // 20_000))
    return float(sum(cdist(part, centers, "sqeuclidean").min(axis=1).sum() for part in parts))


def measured(kind: Kind, epsilon: float, options: argparse.Namespace) -> dict[str, list[float]]:
    """Return J over the best pooled J of each seed, by method."""
    methods: dict[str, Callable[..., Rows]] = {"ours": partial(ours, sites=options.sites)}
    if not options.alone:
        methods["FastLloyd, 0.8"] = partial(fastlloyd, alpha=0.8)
        methods["FastLloyd, 2"] = partial(fastlloyd, alpha=2.0)
    if google is not None and not options.alone:
        methods["Google"] = googles
    ratios: dict[str, list[float]] = {name: [] for name in methods}
    for seed in range(options.seeds):
        rng = np.random.default_rng([seed, *kind.name.encode()])
        X = in_bounds(kind.draw(rng), options.wide)
        pooled = KMeans(kind.k, n_init=10 if len(X) < 50_000 else 3, random_state=seed).fit(X)
        for name, method in methods.items():
            try:
                centers = method(X, kind.k, epsilon, seed)
            except InputError:
                ratios[name].append(float("nan"))
                continue
            ratios[name].append(inertia(X, centers) / pooled.inertia_)
    return ratios


SIZES = ((3, 2), (5, 5), (10, 10), (20, 10), (10, 50))
EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0)


def two_digits(number: float) -> str:
    """Return a number rounded to two digits."""
    return f"{float(f'{number:.2g}'):,.0f}"


def few(seeds: int) -> None:
    """Print the fewest rows by clusters, columns and budget, and medians of J with such few."""
    sys.stdout.write(f"| clusters, columns | {' | '.join(map(str, EPSILONS))} |\n")
    for k, d in SIZES:
        least = (fewest_rows(k, d, Budget(epsilon, DELTA)) for epsilon in EPSILONS)
        sys.stdout.write(f"| {k}, {d} | {' | '.join(map(two_digits, least))} |\n")
    for (k, d), epsilon in ((size, e) for size in SIZES for e in (1.0, 4.0)):
        cells = []
        for times in (1, 2, 4):
            n = int(times * fewest_rows(k, d, Budget(epsilon, DELTA))) + 1
            ratios = []
            for seed in range(seeds):
                rng = np.random.default_rng([seed, k, d, times])
                X = in_bounds(gaussians(rng, n, d, k, 8), 1.0)
                pooled = KMeans(k, n_init=10, random_state=seed).fit(X).inertia_
                ratios.append(inertia(X, ours(X, k, epsilon, seed, 1)) / pooled)
            cells.append(f"{np.median(ratios):.2f}")
        sys.stdout.write(f"| {k}, {d}, epsilon {epsilon:g} | {' | '.join(cells)} |\n")
        sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table, one line for a kind and a budget: medians, and in brackets the worst."""
    parser = argparse.ArgumentParser("benchmarks.private", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default="", help="kinds whose names contain this")
    parser.add_argument("--alone", action="store_true", help="without peers")
    parser.add_argument("--sites", type=int, default=1, help="sites that each add full noise")
    parser.add_argument("--wide", type=float, default=1.0, help="bounds so many times too wide")
    parser.add_argument("--few", action="store_true", help="with as few rows as a budget allows")
    options = parser.parse_args(arguments)
    if options.few:
        few(options.seeds)
        return
    header: Any = None
    for kind in (kind for kind in KINDS if options.only in kind.name):
        for epsilon in kind.epsilons:
            ratios = measured(kind, epsilon, options)
            if header is None:
                header = ["kind", "k", "epsilon", *ratios]
                sys.stdout.write(f"| {' | '.join(header)} |\n|{'---|' * len(header)}\n")
            cells = [f"{np.median(r):.3f} ({np.max(r):.2f})" for r in ratios.values()]
            line = " | ".join([kind.name, str(kind.k), f"{epsilon:g}", *cells])
            sys.stdout.write(f"| {line} |\n".replace("nan (nan)", "refused"))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
