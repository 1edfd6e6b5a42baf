"""Clusters of any shape: what ``-k auto`` says of them, and its labels beside those of peers.

    .venv/bin/python benchmarks/shapes.py [--draws 1] [--kinds ...]
        [--hard | --near | --missing | --measured] [--peers] [--groups 5]

Moons, rings, spirals, arcs, stripes, long and skewed clouds, many clusters, rare ones, and many
columns, at four sites, standardised; from seeds that nothing was tuned on. Of each draw: the number
of clusters and the adjusted Rand index of ``fit -k auto``, with its exchanges about the prepared
rows and the numbers of a site; with --peers also the index of scikit-learn's pooled
GaussianMixture (full, by BIC), HDBSCAN, and KMeans that is told the true number. With --hard,
34 harder kinds: overlaps, noise, repeated rows, few telling columns, lines; with --near, kinds that
the choice of k was once wrong about; with --missing, three clusters of which cells are missing.

With --measured, rows whose classes are known: scikit-learn's, and where R is installed those of its
packages (Debian's r-cran-mass, -mclust, -gclus, -rrcov, -mlbench, -dslabs, -palmerpenguins); with
--peers beside mclust, its number by BIC, and clustCombi. A class need not be a cluster.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_moons
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from fedcluster import Client, Data, LocalEngine
from fedcluster.core import Column
from fedcluster.jobs import execute, fit_of, model_of
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.privacy import Groups

Floats = NDArray[np.float64]
Rows = tuple[Floats, NDArray[np.intp]]
STREAM, SITES = 90_333, 4
PEERS = ("mixture by BIC", "HDBSCAN", "KMeans, true k")
PREPARING = {"Missing", "Means", "Squares", "Histogram"}


def ring(r: Generator, n: int, radius: float, sd: float = 0.25) -> Floats:
    angle = r.uniform(0, 2 * np.pi, n)
    return radius * np.c_[np.cos(angle), np.sin(angle)] + r.normal(0, sd, (n, 2))


def spirals(r: Generator, turns: float = 0.8) -> Rows:
    t, y = r.uniform(0.25, 1, 1200), r.integers(2, size=1200)
    angle = 2 * np.pi * turns * t + np.pi * y
    X = 6 * t[:, None] * np.c_[np.cos(angle), np.sin(angle)]
    return X + r.normal(0, 0.15, X.shape), y


def arcs(r: Generator) -> Rows:
    y = r.integers(3, size=900)
    angle = r.uniform(0, np.pi, 900)
    X = 3 * np.c_[np.cos(angle), np.sin(angle) * np.where(y == 1, -1, 1)]
    X += np.array([[0, 0], [3, 1.2], [6, 0]])[y]
    return X + r.normal(0, 0.2, X.shape), y


def banana(r: Generator) -> Rows:
    y = r.integers(2, size=800)
    x = r.normal(0, 1.6, 800)
    arc, blob = np.c_[x, x**2 / 2], np.c_[0.5 * x, np.full(800, 7.0)]
    X = np.choose(y[:, None], [arc, blob])
    return X + r.normal(0, 0.35, X.shape), y


def spaced(r: Generator, k: int, d: int, least: float) -> Floats:
    """Return k means, none nearer to another than ``least``."""
    while True:
        means = r.normal(size=(k, d)) * least
        apart = np.sqrt(((means[:, None] - means) ** 2).sum(axis=2)) + 1e9 * np.eye(k)
        if apart.min() >= least:
            return means


def clouds(r: Generator, k: int, d: int, least: float, n: int = 1200, spread: float = 1.0) -> Rows:
    y = r.integers(k, size=n)
    sd = np.exp(r.uniform(-1, 1, (k, 1)) * np.log(spread))
    return spaced(r, k, d, least)[y] + sd[y] * r.normal(size=(n, d)), y


def grid(r: Generator, a: int, b: int, n: int, apart: float = 6.0) -> Rows:
    places = np.array([(x, y) for x in range(a) for y in range(b)]) * apart
    y = np.arange(n) % (a * b)
    return places[y] + r.normal(size=(n, 2)), y


def long(r: Generator, k: int, d: int = 2) -> Rows:
    """Return clouds as long as five of their widths, turned each in its own way."""
    y, turned = r.integers(k, size=300 * k), []
    for _ in range(k):
        axes = np.linalg.qr(r.normal(size=(d, d)))[0]
        turned.append(axes * np.r_[4.0, np.full(d - 1, 0.7)])
    X = np.array([turned[j] @ r.normal(size=d) for j in y])
    return X + spaced(r, k, d, 13.0)[y], y


def skewed(r: Generator, k: int, sigma: float = 0.6) -> Rows:
    y = r.integers(k, size=300 * k)
    places = np.array([[0, 0], [9, 0], [0, 9], [9, 9]])[:k]
    return np.exp(r.normal(0, sigma, (len(y), 2))) + places[y], y


def rare(r: Generator, n: int, few: int, d: int) -> Rows:
    y = np.r_[np.zeros(n, int), np.ones(few, int)]
    return r.normal(size=(n + few, d)) + y[:, None] * 10 / np.sqrt(d), y


def beside(one: Floats, other: Floats) -> Rows:
    return np.concatenate([one, other]), np.repeat([0, 1], [len(one), len(other)])


def moons(r: Generator, noise: float) -> Rows:
    X, y = make_moons(800, noise=noise, random_state=int(r.integers(2**31)))
    return 4 * X, y


def stripes(r: Generator, k: int) -> Rows:
    y = r.integers(k, size=400 * k)
    return r.normal(size=(len(y), 2)) * [6, 0.5] + np.c_[np.zeros(len(y)), 3.5 * y], y


def unequal(r: Generator) -> Rows:
    y = r.choice(2, 800, p=[0.8, 0.2])
    return r.normal(size=(800, 2)) * np.where(y, 0.4, 3)[:, None] + np.outer(y, [12, 0]), y


def heavy(r: Generator, k: int) -> Rows:
    y = r.integers(k, size=300 * k)
    return spaced(r, k, 3, 12.0)[y] + r.standard_t(3, (len(y), 3)), y


KINDS: dict[str, Callable[[Generator], Rows]] = {
    "moons": lambda r: moons(r, 0.06),
    "moons, more noise": lambda r: moons(r, 0.1),
    "ring and blob": lambda r: beside(ring(r, 500, 5.0, 0.4), r.normal(0, 0.6, (400, 2))),
    "two rings": lambda r: beside(ring(r, 500, 3.0), ring(r, 700, 6.0)),
    "ring beside blob": lambda r: beside(ring(r, 500, 4.0), r.normal([9, 0], 1, (400, 2))),
    "spirals": spirals,
    "spirals, half a turn": lambda r: spirals(r, 0.5),
    "three arcs": arcs,
    "banana and blob": banana,
    "two stripes": lambda r: stripes(r, 2),
    "four stripes": lambda r: stripes(r, 4),
    "long, 3": lambda r: long(r, 3),
    "long, 5": lambda r: long(r, 5),
    "long, 3 in 6 columns": lambda r: long(r, 3, 6),
    "lognormal, 3": lambda r: skewed(r, 3),
    "lognormal, 4": lambda r: skewed(r, 4, 0.5),
    "unequal widths": unequal,
    "widths from 0.4 to 2.5": lambda r: clouds(r, 4, 3, 12.0, spread=2.5),
    "25 round": lambda r: grid(r, 5, 5, 1500),
    "40 round": lambda r: grid(r, 5, 8, 2000),
    "16 round": lambda r: grid(r, 4, 4, 1200),
    "10 beside 2,000": lambda r: rare(r, 1990, 10, 3),
    "20 beside 2,000": lambda r: rare(r, 1980, 20, 3),
    "40 beside 1,000": lambda r: rare(r, 1000, 40, 8),
    "5 in 20 columns": lambda r: clouds(r, 5, 20, 6.0),
    "4 in 60 columns": lambda r: clouds(r, 4, 60, 8.0),
    "4 in 100 columns": lambda r: clouds(r, 4, 100, 9.0),
    "t3, 3": lambda r: heavy(r, 3),
    "t3, 5": lambda r: heavy(r, 5),
}


def one(draw: Callable[[Generator], Floats]) -> Callable[[Generator], Rows]:
    def drawn(r: Generator) -> Rows:
        X = draw(r)
        return X, np.zeros(len(X), int)

    return drawn


def crossed(r: Generator) -> Rows:
    """Return two long clouds that cross."""
    y = r.integers(2, size=800)
    X = r.normal(size=(800, 2)) * [4.0, 0.4]
    return np.where(y[:, None] == 1, X[:, ::-1], X), y


def within(r: Generator) -> Rows:
    """Return a narrow cloud at the edge of a wide one."""
    y = r.choice(2, 900, p=[0.7, 0.3])
    return r.normal(size=(900, 2)) * np.where(y, 0.25, 3.0)[:, None] + np.outer(y, [3, 0]), y


def sizes(r: Generator, each: tuple[int, ...], d: int, least: float) -> Rows:
    y = np.repeat(np.arange(len(each)), each)
    return spaced(r, len(each), d, least)[y] + r.normal(size=(len(y), d)), y


def in_noise(r: Generator, k: int, d: int, share: float) -> Rows:
    """Return clouds among uniform rows, which count for the nearest cloud."""
    X, y = clouds(r, k, d, 8.0, 1000)
    n = round(share * len(X))
    extra = r.uniform(X.min(axis=0), X.max(axis=0), (n, d))
    means = np.array([X[y == j].mean(axis=0) for j in range(k)])
    near = ((extra[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    return np.concatenate([X, extra]), np.concatenate([y, near])


def repeated(r: Generator, times: int) -> Rows:
    X, y = clouds(r, 3, 3, 8.0, 300)
    return np.repeat(X, times, axis=0), np.repeat(y, times)


def zeros(r: Generator, share: float) -> Rows:
    """Return clouds of amounts above 0, of which many cells are 0 whatever the cloud."""
    X, y = clouds(r, 3, 5, 7.0, 1200)
    X = X - X.min(axis=0) + 3.0
    X[:, 3:] *= r.random((len(X), 2)) > share
    return X, y


def uniform(r: Generator, k: int, d: int) -> Rows:
    y = r.integers(k, size=300 * k)
    return spaced(r, k, d, 6.0)[y] + r.uniform(-2, 2, (len(y), d)), y


def exponential(r: Generator, k: int) -> Rows:
    y = r.integers(k, size=300 * k)
    return spaced(r, k, 3, 9.0)[y] + r.exponential(size=(len(y), 3)), y


def turned(r: Generator, k: int, d: int, n: int, least: float) -> Rows:
    """Return clouds of which each has a covariance of its own."""
    y = r.integers(k, size=n)
    shapes = [
        np.linalg.qr(r.normal(size=(d, d)))[0] * np.exp(r.uniform(-0.7, 0.7, d)) for _ in range(k)
    ]
    X = np.array([shapes[j] @ r.normal(size=d) for j in y])
    return X + spaced(r, k, d, least)[y], y


def telling(r: Generator, k: int, few: int, d: int) -> Rows:
    X, y = clouds(r, k, few, 7.0, 1200)
    return np.hstack([X, r.normal(size=(len(X), d - few))]), y


def answers(r: Generator) -> Rows:
    """Return answers from 1 to 5 to ten questions, of four habits."""
    y = r.integers(4, size=1000)
    habits = r.choice([1.4, 2.6, 3.4, 4.6], (4, 10))
    return np.clip(np.round(habits[y] + r.normal(0, 0.8, (1000, 10))), 1, 5), y


def yes_no(r: Generator) -> Rows:
    """Return twelve columns of 0 and 1, of three classes."""
    y = r.integers(3, size=900)
    shares = np.where(np.arange(12) % 3 == np.arange(3)[:, None], 0.9, 0.12)
    return (r.random((900, 12)) < shares[y]).astype(float), y


def far(r: Generator) -> Rows:
    """Return clouds, and a few values that are mistakes."""
    X, y = clouds(r, 4, 3, 8.0, 1000)
    X[r.integers(1000, size=4), r.integers(3, size=4)] = r.choice([-1, 1], 4) * 300.0
    return X, y


def wave(r: Generator) -> Rows:
    t = r.uniform(0, 3 * np.pi, 700)
    X = np.c_[t, 2 * np.sin(t)] + r.normal(0, 0.2, (700, 2))
    return beside(X, r.normal([4.7, 5.5], 0.5, (300, 2)))


def rings(r: Generator) -> Rows:
    X = [ring(r, n, radius, 0.2) for n, radius in ((300, 2.0), (500, 4.0), (700, 6.0))]
    return np.concatenate(X), np.repeat([0, 1, 2], [300, 500, 700])


def with_columns(rows: Rows, r: Generator, d: int) -> Rows:
    X, y = rows
    return np.hstack([X, r.normal(size=(len(X), d)) * X.std()]), y


def ball(r: Generator, n: int, d: int) -> Floats:
    X = r.normal(size=(n, d))
    length = np.sqrt((X**2).sum(axis=1, keepdims=True))
    return X / length * r.random((n, 1)) ** (1 / d)


HARD: dict[str, Callable[[Generator], Rows]] = {
    "two that cross": crossed,
    "narrow in wide": within,
    "one line": one(lambda r: np.outer(r.uniform(0, 9, 700), [1, 2]) + r.normal(0, 0.2, (700, 2))),
    "one ball, 5 columns": one(lambda r: ball(r, 900, 5)),
    "one of t3": one(lambda r: r.standard_t(3, (900, 3))),
    "one pair and 10 more": one(
        lambda r: np.hstack(
            [r.multivariate_normal([0, 0], [[1, 0.95], [0.95, 1]], 800), r.normal(size=(800, 10))]
        )
    ),
    "60 % zeros, 3": lambda r: zeros(r, 0.6),
    "rows five times": lambda r: repeated(r, 5),
    "rows twice": lambda r: repeated(r, 2),
    "120 rows, 20 columns": lambda r: clouds(r, 3, 20, 7.0, 120),
    "16, 3.6 apart": lambda r: grid(r, 4, 4, 1600, 3.6),
    "9, 4 apart": lambda r: grid(r, 3, 3, 900, 4.0),
    "4, 4 apart": lambda r: clouds(r, 4, 2, 4.0, 1000),
    "6 in 5 columns, 4.5": lambda r: clouds(r, 6, 5, 4.5),
    "2 in 8 columns, 3.6": lambda r: clouds(r, 2, 8, 3.6, 900),
    "sizes 25 to 900": lambda r: sizes(r, (25, 60, 150, 400, 900), 3, 8.0),
    "12 beside 500s": lambda r: sizes(r, (12, 500, 500, 500), 4, 9.0),
    "20 % noise": lambda r: in_noise(r, 3, 2, 0.2),
    "30 % noise, 4 columns": lambda r: in_noise(r, 4, 4, 0.3),
    "t2, 3": lambda r: (lambda y: (spaced(r, 3, 2, 25.0)[y] + r.standard_t(2, (900, 2)), y))(
        r.integers(3, size=900)
    ),
    "boxes, 4": lambda r: uniform(r, 4, 2),
    "exponential, 4": lambda r: exponential(r, 4),
    "turned, 3 in 10 columns": lambda r: turned(r, 3, 10, 1200, 8.0),
    "turned, 6 in 3 columns": lambda r: turned(r, 6, 3, 1800, 9.0),
    "5 of 60 columns": lambda r: telling(r, 4, 5, 60),
    "3 of 40 columns": lambda r: telling(r, 4, 3, 40),
    "50 in 5 columns": lambda r: clouds(r, 50, 5, 7.0, 3000),
    "30 in 10 columns": lambda r: clouds(r, 30, 10, 7.0, 2400),
    "answers, 4": answers,
    "yes and no, 3": yes_no,
    "four mistakes": far,
    "wave and blob": wave,
    "three rings": rings,
    "moons and a column": lambda r: with_columns(moons(r, 0.06), r, 1),
}
"""Harder ones."""


def flat(r: Generator, k: int, d: int, column: Callable[[int], Any]) -> Rows:
    """Return clouds, and a column in which all values are alike often."""
    X, y = clouds(r, k, d, 7.0)
    return np.c_[X, column(len(X))], y


def unlike(r: Generator, k: int, d: int, least: float) -> Rows:
    """Return clouds that overlap, each with a covariance of its own."""
    y, places = r.integers(k, size=900), spaced(r, k, d, least)
    wide = np.exp(r.uniform(-0.8, 0.8, (k, d)))
    axes = np.array([np.linalg.qr(r.normal(size=(d, d)))[0] for _ in range(k)])
    return places[y] + np.einsum("nij,nj->ni", axes[y], wide[y] * r.normal(size=(900, d))), y


def sized(r: Generator) -> Rows:
    """Return animals of four forms, whose sizes vary more."""
    y, form = r.integers(4, size=400), np.zeros((4, 5))
    form[:, :3] = [[1.2, 1.2, 0], [1.2, -1.2, 0], [-1.2, 0, 1.2], [-1.2, 0, -1.2]]
    size = r.normal(0, 4, (400, 1)) * [1.0, 0.9, 1.1, 1.0, 0.8]
    return size + form[y] + r.normal(0, 0.35, (400, 5)), y


def tails(r: Generator) -> Rows:
    """Return a tight cloud, and two that leave it in different directions."""
    y = np.repeat([0, 1, 2], [150, 80, 70])
    wide = np.array([[0.4, 0.4, 0.5], [0.35, 0.35, 0.5], [0.5, 0.5, 0.3]])
    start = np.array([[0, 0, 0], [0.3, 0.5, 1.2], [1.5, 1.5, -0.8]])
    way = np.array([[0, 0, 0], [0.1, 0.3, 2.2], [2.5, 2.2, -0.2]])
    along = np.abs(r.normal(size=(300, 1)))
    return start[y] + along * way[y] + wide[y] * r.normal(size=(300, 3)), y


def astray(r: Generator, share: float, draw: Callable[[Any], Any]) -> Rows:
    """Return clouds of which a share of the rows is far away."""
    X, y = clouds(r, 4, 3, 8.0, 1000)
    few = r.random(1000) < share
    X[few] += draw((int(few.sum()), 3))
    return X, y


def persons(r: Generator, people: int, each: int) -> Rows:
    """Return several rows of each person, of three kinds of persons."""
    y = r.integers(3, size=people)
    own = spaced(r, 3, 4, 6.0)[y] + 0.8 * r.normal(size=(people, 4))
    X = np.repeat(own, each, axis=0)
    return X + 0.4 * r.normal(size=X.shape), np.repeat(y, each)


def counts(r: Generator, rates: Floats) -> Rows:
    y = r.integers(len(rates), size=900)
    return r.poisson(rates[y]).astype(float), y


def crossing(r: Generator, ratio: float, d: int) -> Rows:
    y, X = r.integers(2, size=800), r.normal(size=(800, d))
    X[:, 0] *= ratio
    return np.where(y[:, None] == 1, X[:, [1, 0, *range(2, d)]], X), y


def inside(r: Generator, at: float) -> Rows:
    """Return a narrow cloud in a wide one."""
    y = r.choice(2, 900, p=[0.65, 0.35])
    return r.normal(size=(900, 3)) * np.where(y, 1 / 6, 1.0)[:, None] + np.outer(y, [at, 0, 0]), y


def skewed_answers(r: Generator) -> Rows:
    y = r.integers(2, size=800)
    habits = np.array([[1.2, 1.3, 4.6, 1.1, 2], [3.6, 1.2, 2.2, 3.4, 1.5]])
    return np.clip(np.round(habits[y] + r.exponential(0.8, (800, 5)) - 0.4), 1, 5), y


def wide_and_few(r: Generator) -> Rows:
    """Return clouds, and a wide one of few rows beside them."""
    X, y = clouds(r, 3, 3, 8.0, 900)
    return np.concatenate([X, r.normal([-60, 0, 0], 7, (40, 3))]), np.r_[y, np.full(40, 3)]


def few(draw: Callable[[Generator], Rows], n: int) -> Callable[[Generator], Rows]:
    """Return what draws n of the rows of a kind."""

    def drawn(r: Generator) -> Rows:
        X, y = draw(r)
        some = r.permutation(len(X))[:n]
        return X[some], y[some]

    return drawn


RARE = np.array([[0.3, 2, 0.3, 3, 0.5], [2.5, 0.3, 0.4, 0.3, 2], [0.3, 0.3, 3, 2.5, 0.3]])
NEAR: dict[str, Callable[[Generator], Rows]] = {
    "3 and an age": lambda r: flat(r, 3, 4, lambda n: r.integers(18, 91, n)),
    "4 and an age": lambda r: flat(r, 4, 5, lambda n: r.integers(18, 91, n)),
    "4 and a key": lambda r: flat(r, 4, 6, r.permutation),
    "4 and a date": lambda r: flat(r, 4, 4, lambda n: r.uniform(0, 3000, n)),
    "3 and a lognormal": lambda r: flat(r, 3, 3, lambda n: np.exp(r.normal(0, 1, n))),
    "unlike, 3": lambda r: unlike(r, 3, 4, 3.6),
    "unlike, 3 in 6 columns": lambda r: unlike(r, 3, 6, 4.5),
    "unlike, 2": lambda r: unlike(r, 2, 3, 3.2),
    "sizes and forms": sized,
    "two tails": tails,
    "rare counts": lambda r: counts(r, RARE),
    "counts": lambda r: counts(r, r.uniform(2, 30, (4, 6))),
    "one of counts": lambda r: counts(r, r.uniform(0.5, 3, (1, 5))),
    "skewed answers": skewed_answers,
    "1 % astray": lambda r: astray(r, 0.01, lambda size: r.normal(0, 30, size)),
    "3 % astray": lambda r: astray(r, 0.03, lambda size: r.normal(0, 30, size)),
    "5 % Cauchy": lambda r: astray(r, 0.05, lambda size: 8 * r.standard_cauchy(size)),
    "60 persons": lambda r: persons(r, 60, 15),
    "100 persons": lambda r: persons(r, 100, 8),
    "cross, 4 : 1": lambda r: crossing(r, 4, 2),
    "cross, 10 : 1": lambda r: crossing(r, 10, 2),
    "cross in 4 columns": lambda r: crossing(r, 6, 4),
    "inside": lambda r: inside(r, 0),
    "inside, at the edge": lambda r: inside(r, 1.5),
    "t2.5": lambda r: (lambda y: (spaced(r, 3, 3, 9.0)[y] + r.standard_t(2.5, (700, 3)), y))(
        r.integers(3, size=700)
    ),
    "180 lognormal": few(KINDS["lognormal, 3"], 180),
    "240 of moons": few(KINDS["moons"], 240),
    "one of 300, lognormal": one(lambda r: r.lognormal(0, 0.7, (300, 3))),
    "one of 200, heavy": one(
        lambda r: r.standard_t(4, (200, 1)) * r.normal(size=(200, 4)) @ r.normal(size=(4, 4))
    ),
    "one of 300, unequal": one(
        lambda r: (lambda x: np.c_[x, r.normal(size=300) * np.exp(0.8 * x)])(r.normal(size=300))
    ),
    "a wide one of few": wide_and_few,
    "one of rare counts": one(lambda r: r.poisson(RARE[0], (900, 5)).astype(float)),
    "one of rare counts, 300": one(lambda r: r.poisson(RARE[0], (300, 5)).astype(float)),
    "one of answers": one(lambda r: np.minimum(r.geometric(0.6, (300, 8)), 5).astype(float)),
}
"""Kinds that the choice of k was wrong about, and their neighbours that it is right about."""


def measured(peers: bool) -> dict[str, tuple[Rows, list[NDArray[np.intp]]]]:
    """Return rows with known classes, and, of R, the labels of mclust and of clustCombi."""
    loads = {"breast cancer": load_breast_cancer, "digits": load_digits}
    loads |= {} if which("Rscript") else {"iris": load_iris, "wine": load_wine}
    found: dict[str, Any] = {name: (load(return_X_y=True), []) for name, load in loads.items()}
    if which("Rscript"):
        with TemporaryDirectory() as folder:
            script = Path(__file__).with_name("measured.R")
            environment = os.environ | {"PEERS": "1" if peers else ""}
            subprocess.run(["Rscript", script, folder], env=environment, check=True)
            for path in sorted(Path(folder).glob("*.csv")):
                table = np.loadtxt(path, delimiter=",")
                X, y, *labels = np.split(table, [-3, -2, -1] if peers else [-1], axis=1)
                found[path.stem] = ((X, y[:, 0]), [each[:, 0] for each in labels])
    return found


def gaps(share: float, how: str) -> Callable[[Generator], Rows]:
    """Return what draws three clusters in four columns of which cells are missing."""

    def draw(r: Generator) -> Rows:
        X, y = clouds(r, 3, 4, 8.0, 900)
        chance = np.full(X.shape, share)
        if how == "columns":
            chance = chance * [2, 2, 0, 0]
        elif how == "clusters":
            chance = np.where(y == 0, 3 * share, 0.0)[:, None] * np.ones(4)
        elif how == "large":
            chance = 2 * share * (np.median(X, axis=0) < X) * [1, 0, 1, 0]
        return np.where(r.random(X.shape) < chance, np.nan, X), y

    return draw


MISSING = {
    f"{share:.0%} missing, {how}": gaps(share, how)
    for share in (0.03, 0.1, 0.3)
    for how in ("anywhere", "columns", "clusters", "large")
}


def fitted(X: Floats, missing: Any, p: int = 0) -> dict[str, object]:
    """Return what ``fit -k auto`` finds in rows at four sites."""
    columns = tuple(Column(f"x{j}") for j in range(X.shape[1]))
    parts = [Data(X[i::SITES], columns=columns) for i in range(SITES)]
    protection = Groups(p) if p else None
    engine = LocalEngine(Client(str(i), part, (), protection) for i, part in enumerate(parts))
    started = time.process_time()
    job = fit_of("auto", prepare=PreprocessingSpec(missing=missing), seed=0)
    report = execute(job, engine)
    rounds = [each.steps for each in report.outcome.communication_rounds]
    return {
        "k": report.outcome.value.n_clusters,
        "labels": model_of(report).predict(X),
        "warned": bool(report.outcome.value.warnings or report.fit_report.warnings),
        "rounds": sum(not set(steps) <= PREPARING for steps in rounds),
        "numbers": max(report.outcome.values_sent().values()),
        "seconds": time.process_time() - started,
    }


def peers(X: Floats, k: int) -> list[NDArray[np.intp]]:
    """Return the labels of three peers on pooled, standardised rows."""
    Z = np.nan_to_num((X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0))
    most = min(30, len(Z) // 20)
    mixtures = [GaussianMixture(j, random_state=0).fit(Z) for j in range(1, most + 1)]
    best = min(mixtures, key=lambda each: each.bic(Z))
    means = KMeans(k, n_init=10, random_state=0).fit_predict(Z)
    return [best.predict(Z), HDBSCAN(min_cluster_size=max(5, len(Z) // 100)).fit_predict(Z), means]


def print_summary(found: list[dict]) -> None:
    right = [one["right"] for one in found]
    means = np.mean([one["scores"] for one in found], axis=0).round(2)
    silent = sum(not (one["right"] or one["warned"]) for one in found)
    warned = sum(one["right"] and one["warned"] for one in found)
    print(f"\nright: {sum(right)} of {len(right)}; ARI {' '.join(map(str, means))}")
    print(f"wrong in silence: {silent}; right, but warned: {warned}")
    print(f"exchanges: {max(one['rounds'] for one in found)} at most")
    numbers, seconds = (np.median([one[name] for one in found]) for name in ("numbers", "seconds"))
    print(f"numbers of a site: {numbers:,.0f}; seconds: {seconds:.1f}, medians")


def drawn(options: argparse.Namespace) -> Iterator[tuple[str, Rows, list[NDArray[np.intp]]]]:
    """Return the rows of each draw, and the labels of peers."""
    if options.measured:
        sets = measured(options.peers)
        yield from ((kind, *sets[kind]) for kind in options.kinds or sets)
        return
    table = MISSING if options.missing else HARD if options.hard else KINDS
    table = NEAR if options.near else table
    for kind in options.kinds or table:
        for draw in range(options.first, options.first + options.draws):
            X, y = table[kind](np.random.default_rng([STREAM, [*table].index(kind), draw]))
            yield kind, (X, y), peers(X, len(np.unique(y))) if options.peers else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kinds", nargs="*")
    parser.add_argument("--hard", action="store_true", help="harder kinds")
    parser.add_argument("--near", action="store_true", help="kinds near known weaknesses")
    parser.add_argument("--measured", action="store_true", help="rows with known classes")
    parser.add_argument("--missing", action="store_true", help="cells are missing")
    parser.add_argument("--groups", type=int, default=0, help="rows of a group")
    parser.add_argument("--fill", default="mean", help="what becomes of them")
    parser.add_argument("--peers", action="store_true", help="fit peers, too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found: list[dict] = []
    own = ("mclust", "clustCombi") if options.measured else PEERS
    head = ["rows", "k", "says", "ARI", *(own if options.peers else ()), ""]
    print(f"| {' | '.join(head)} |\n" + "|---" * len(head) + "|")
    for kind, (X, y), others in drawn(options):
        one = fitted(X, options.fill if options.missing else "error", options.groups)
        k, each = len(np.unique(y)), [one.pop("labels"), *others]
        scores = [adjusted_rand_score(y, labels) for labels in each]
        found.append({**one, "right": one["k"] == k, "scores": scores})
        shown = " | ".join(f"{score:.2f}" for score in scores)
        mark = "" if one["k"] == k else "wrong" if one["warned"] else "wrong in silence"
        print(f"| {kind} | {k} | {one['k']} | {shown} | {mark} |", flush=True)
    print_summary(found)


if __name__ == "__main__":
    main()
