"""Families of rows on which the default way to cluster is measured, and how sites share them.

A `RowSet` draws rows anew for each seed; real ones stay and are only split anew. `SPLITS` says who
holds which row. `benchmarks/quality.py --sets families` fits them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn import datasets

Rows = NDArray[np.float64]
Labels = NDArray[np.intp]
Labelled = tuple[Rows, Labels]
Draw = Callable[[Generator], Labelled]
N_SITES = 5


@dataclass(frozen=True)
class RowSet:
    """Rows with their number of clusters.

    Parameters
    ----------
    family : str
        The family: heavy, outliers, clouds, shapeless, codes, real or tiny.
    name : str
        The name, unlike any other.
    k : int
        The number of clusters.
    draw : callable
        Takes a generator, returns rows (n, d) and a label for each, (n,).
    site_rows : int, optional
        Rows of a site where sites are tiny: then that is the only way to split.
    """

    family: str
    name: str
    k: int
    draw: Draw
    site_rows: int | None = None

    def rows(self, seed: int) -> Labelled:
        """Return rows and labels of a seed."""
        return self.draw(np.random.default_rng([seed, *self.name.encode()]))

    def splits(self) -> tuple[str, ...]:
        """Return the names of the ways to split that make sense here."""
        return ("tiny",) if self.site_rows else tuple(SPLITS)

    def sites(self, X: Rows, y: Labels, split: str, seed: int) -> Labels:
        """Return the site of each row, (n,)."""
        rng = np.random.default_rng([seed, *split.encode()])
        if self.site_rows:
            return rng.permutation(len(X)) // self.site_rows
        return SPLITS[split](X, y, rng)


def at_random(X: Rows, y: Labels, rng: Generator) -> Labels:
    """Every site holds a fifth of the rows."""
    return rng.permutation(len(X)) % N_SITES


def by_label(X: Rows, y: Labels, rng: Generator) -> Labels:
    """Sites hold rows of neighbouring labels; a tenth of the rows is anywhere."""
    place = np.lexsort([X[:, 0], y]).argsort() * N_SITES // len(X)
    moved = rng.random(len(X)) < 0.1
    return np.where(moved, rng.integers(N_SITES, size=len(X)), place)


def unequal(X: Rows, y: Labels, rng: Generator) -> Labels:
    """Each site holds a quarter of the rows of the one before, at least eight."""
    sizes = np.maximum(8, len(X) // 4 ** np.arange(1, N_SITES))
    edges = np.cumsum(sizes)
    return np.searchsorted(edges, rng.permutation(len(X)), side="right")


SPLITS: dict[str, Callable[[Rows, Labels, Generator], Labels]] = {
    "random": at_random,
    "by label": by_label,
    "unequal": unequal,
}


def unlabelled(X: Rows) -> Labelled:
    """Rows with the fifth of their first column as label."""
    return X, X[:, 0].argsort().argsort() * N_SITES // len(X)


def lognormal(rng: Generator, n: int, d: int, sigma: float = 1.0) -> Labelled:
    return unlabelled(np.exp(rng.normal(0, sigma, (n, d))))


def pareto(rng: Generator, n: int, d: int, a: float = 2.0) -> Labelled:
    return unlabelled(rng.pareto(a, (n, d)))


def student(rng: Generator, n: int, d: int, df: float) -> Labelled:
    return unlabelled(rng.standard_t(df, (n, d)))


def clouds(
    rng: Generator, n: int, d: int, k: int, spread: float = 1.0, shares: float = 50.0
) -> Labelled:
    """Normal clouds; a low ``shares`` makes their sizes differ."""
    y = rng.choice(k, n, p=0.95 * rng.dirichlet(np.full(k, shares)) + 0.05 / k)
    return 5 * rng.normal(size=(k, d))[y] + spread * rng.normal(size=(n, d)), y


def with_outliers(rng: Generator, n: int, d: int, k: int, few: int, far: float) -> Labelled:
    """Clouds, and few rows that are far from all."""
    X, y = clouds(rng, n, d, k, 0.6)
    way = rng.normal(size=(few, d))
    X[:few] = far * way / np.linalg.norm(way, axis=1)[:, None] * rng.uniform(0.5, 1, (few, 1))
    return X, y


def noisy(rng: Generator, n: int, d: int, k: int) -> Labelled:
    """Clouds, and one row in fifty anywhere in a wide box."""
    X, y = clouds(rng, n, d, k, 0.6)
    X[: n // 50] = rng.uniform(-30, 30, (n // 50, d))
    return X, y


def three_and_five(rng: Generator, d: int) -> Labelled:
    """Three dense clouds of many rows, five wide ones of few."""
    y = np.repeat(np.arange(8), [1000] * 3 + [40] * 5)
    middle, spread = rng.normal(size=(8, d)), np.array([0.3] * 3 + [1.5] * 5)
    return 8 * middle[y] + spread[y, None] * rng.normal(size=(len(y), d)), y


def variances(rng: Generator, n: int, d: int, k: int) -> Labelled:
    """Clouds of widths from 0.1 to 3."""
    y, spread = rng.integers(k, size=n), np.geomspace(0.1, 3, k)
    return 5 * rng.normal(size=(k, d))[y] + spread[y, None] * rng.normal(size=(n, d)), y


def stretched(rng: Generator, n: int, d: int, k: int) -> Labelled:
    """Clouds ten times as long as wide, each its own way."""
    y, way = rng.integers(k, size=n), rng.normal(size=(k, d))
    way /= np.linalg.norm(way, axis=1)[:, None]
    along = 3 * rng.normal(size=(n, 1)) * way[y]
    return 5 * rng.normal(size=(k, d))[y] + along + 0.3 * rng.normal(size=(n, d)), y


def ring(rng: Generator, n: int) -> Labelled:
    angle = rng.uniform(0, 2 * np.pi, n)
    round_ = np.column_stack([np.cos(angle), np.sin(angle)])
    return unlabelled(10 * round_ + 0.3 * rng.normal(size=(n, 2)))


def box(rng: Generator, n: int, d: int) -> Labelled:
    return unlabelled(rng.random((n, d)))


def rounded(rng: Generator, n: int, d: int, k: int) -> Labelled:
    X, y = clouds(rng, n, d, k, 1.5)
    return X.round(), y


def answers(rng: Generator, n: int, d: int, k: int) -> Labelled:
    """Answers from 0 to 4 to d questions, of k kinds of people."""
    y = rng.integers(k, size=n)
    return np.clip(rng.normal(rng.uniform(0, 4, (k, d))[y], 0.8), 0, 4).round(), y


def one_hot(rng: Generator, n: int, k: int) -> Labelled:
    """Three numbers, and four texts of four levels as zeros and ones."""
    y, levels = rng.integers(0, k, n), rng.integers(0, 4, (n, 4))
    levels = np.where(rng.random((n, 4)) < 0.7, rng.integers(0, 4, (k, 4))[y], levels)
    numbers = 2 * rng.normal(size=(k, 3))[y] + rng.normal(size=(n, 3))
    return np.hstack([numbers, np.eye(4)[levels].reshape(n, 16)]), y


def duplicated(rng: Generator, n: int, d: int, k: int, times: int) -> Labelled:
    """Every row many times."""
    X, y = clouds(rng, n // times, d, k, 2.0)
    return np.repeat(X, times, axis=0), np.repeat(y, times)


def counts(rng: Generator, n: int, d: int, k: int) -> Labelled:
    """Counts of words, most of them 0."""
    y = rng.integers(k, size=n)
    return rng.poisson(rng.gamma(0.2, 2.0, (k, d))[y]).astype(float), y


def amounts(rng: Generator, n: int, d: int) -> Labelled:
    """Amounts with a heavy tail, seven in ten of them 0."""
    return unlabelled(np.where(rng.random((n, d)) < 0.7, 0.0, np.exp(rng.normal(1, 1, (n, d)))))


def real(name: str, rng: Generator) -> Labelled:
    """A set of scikit-learn, its columns standardised except digits and iris; rng is not used."""
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    scale = np.ones(X.shape[1]) if name in ("digits", "iris") else X.std(axis=0)
    return (X - X.mean(axis=0)) / scale, np.asarray(y).argsort(kind="stable").argsort()


def _set(family: str, name: str, k: int, draw: Callable[..., Labelled], /, **how: float) -> RowSet:
    return RowSet(family, name, k, partial(draw, **how))


def _heavy() -> Iterator[RowSet]:
    yield _set("heavy", "lognormal, 1 column", 10, lognormal, n=3000, d=1)
    yield _set("heavy", "lognormal, 4 columns", 8, lognormal, n=2000, d=4)
    yield _set("heavy", "lognormal, 10 columns", 12, lognormal, n=2000, d=10)
    yield _set("heavy", "lognormal, wide", 8, lognormal, n=2000, d=2, sigma=2.0)
    yield _set("heavy", "Pareto 2, 1 column", 8, pareto, n=2000, d=1)
    yield _set("heavy", "Pareto 2, 2 columns", 8, pareto, n=3000, d=2)
    yield _set("heavy", "Pareto 1.2, 3 columns", 10, pareto, n=2000, d=3, a=1.2)
    yield _set("heavy", "Cauchy, 1 column", 6, student, n=1000, d=1, df=1)
    yield _set("heavy", "Cauchy, 3 columns", 10, student, n=2000, d=3, df=1)
    yield _set("heavy", "Cauchy, 8 columns", 8, student, n=2000, d=8, df=1)
    yield _set("heavy", "t 2, 2 columns", 15, student, n=3000, d=2, df=2)
    yield _set("heavy", "t 2, 5 columns", 8, student, n=2000, d=5, df=2)
    yield _set("heavy", "t 3, 10 columns", 10, student, n=2000, d=10, df=3)
    yield _set("heavy", "amounts", 8, amounts, n=2000, d=6)


def _clouds() -> Iterator[RowSet]:
    yield _set(
        "outliers", "6 clouds, 3 outliers", 9, with_outliers, n=1500, d=2, k=6, few=3, far=90
    )
    yield _set(
        "outliers", "8 clouds, 5 outliers", 12, with_outliers, n=2000, d=5, k=8, few=5, far=60
    )
    yield _set(
        "outliers", "5 clouds, 1 outlier", 5, with_outliers, n=1000, d=3, k=5, few=1, far=500
    )
    yield _set("outliers", "clouds in noise", 16, noisy, n=3000, d=2, k=10)
    yield _set("clouds", "unbalanced, 2 columns", 10, clouds, n=3000, d=2, k=10, shares=0.3)
    yield _set("clouds", "unbalanced, 10 columns", 12, clouds, n=2000, d=10, k=12, shares=0.3)
    yield _set("clouds", "three and five", 8, three_and_five, d=2)
    yield _set("clouds", "overlapping, 2 columns", 15, clouds, n=5000, d=2, k=15, spread=2.0)
    yield _set("clouds", "overlapping, 5 columns", 8, clouds, n=2000, d=5, k=8, spread=4.0)
    yield _set("clouds", "variances, 2 columns", 8, variances, n=2000, d=2, k=8)
    yield _set("clouds", "variances, 8 columns", 16, variances, n=2000, d=8, k=16)
    yield _set("clouds", "long, 2 columns", 10, stretched, n=2000, d=2, k=6)
    yield _set("clouds", "long, 6 columns", 8, stretched, n=2000, d=6, k=8)
    for d, n in ((1, 2000), (8, 2000), (20, 1500), (50, 1000)):
        yield _set("clouds", f"clouds, {d} columns", 16, clouds, n=n, d=d, k=16)
    yield _set("clouds", "clouds, K too small", 6, clouds, n=2000, d=4, k=20)
    yield _set("clouds", "clouds, K too large", 25, clouds, n=2000, d=3, k=10)


def _others() -> Iterator[RowSet]:
    for d, k, n in ((2, 30, 2000), (4, 8, 2000), (10, 10, 2000)):
        yield _set("shapeless", f"uniform, {d} columns", k, box, n=n, d=d)
    yield _set("shapeless", "one normal cloud", 12, clouds, n=2000, d=3, k=1)
    yield _set("shapeless", "ring", 12, ring, n=1500)
    yield _set("codes", "whole numbers", 10, rounded, n=2000, d=3, k=10)
    yield _set("codes", "answers 0 to 4", 12, answers, n=2000, d=6, k=8)
    yield _set("codes", "one-hot", 8, one_hot, n=2000, k=8)
    yield _set("codes", "counts", 10, counts, n=2000, d=30, k=10)
    yield _set("codes", "duplicates", 12, duplicated, n=2000, d=3, k=8, times=10)
    for name, k in (("iris", 10), ("wine", 12), ("breast_cancer", 15), ("diabetes", 8)):
        yield RowSet("real", f"{name.replace('_', ' ')} K {k}", k, partial(real, name))
    for k in (20, 30):
        yield RowSet("real", f"digits K {k}", k, partial(real, "digits"))
    for n_sites, n, k in ((200, 3, 30), (500, 2, 20), (60, 8, 16)):
        draw = partial(clouds, n=n_sites * n, d=3, k=8, spread=2.0)
        yield RowSet("tiny", f"{n_sites} sites of {n}", k, draw, site_rows=n)
    draw = partial(student, n=600, d=2, df=2)
    yield RowSet("tiny", "100 sites of 6, t 2", 12, draw, site_rows=6)


SETS: tuple[RowSet, ...] = (*_heavy(), *_clouds(), *_others())
"""All sets."""


def cases(n_seeds: int) -> Iterator[tuple[RowSet, int, str]]:
    """Return every set with every seed and every way to split it."""
    for each, seed in product(SETS, range(n_seeds)):
        for split in each.splits():
            yield each, seed, split
