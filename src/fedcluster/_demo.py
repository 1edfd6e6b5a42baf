"""Demonstration: handwritten digits at five sites that each saw only some of the digits."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from fedcluster._report import Comparison, SiteRecord, picture
from fedcluster.core import Data, Floats
from fedcluster.io._rows import SiteRows
from fedcluster.kernels import nearest

SITES = ("Amsterdam", "Berlin", "Lisbon", "Oslo", "Vienna")
SHAPE = (8, 8)
"""Lines and columns of an image."""
PICTURE = "centers.png"


@dataclass(frozen=True, slots=True, eq=False)
class Digits:
    """Images of handwritten digits.

    Parameters
    ----------
    X : ndarray of shape (n, 64)
        The pixels' grey values, from 0 to 16.
    y : ndarray of shape (n,)
        The digits that the writers meant; only to compare with, never for clustering.
    """

    X: Floats
    y: NDArray[np.int64]

    @property
    def seen(self) -> tuple[int, ...]:
        """Return the digits that there are."""
        return tuple(np.unique(self.y).tolist())


def tables(sites: Mapping[str, Digits]) -> dict[str, SiteRows]:
    """Return the sites' rows as if they had been read from files."""
    columns = tuple(map(str, load_digits().feature_names))
    return {
        site: SiteRows(site, Data(digits.X), columns, range(1, len(digits.X) + 1))
        for site, digits in sites.items()
    }


def digits_by_site(seed: int = 0) -> dict[str, Digits]:
    """Split scikit-learn's 1797 digits over five sites.

    Each site saw four of the ten digits; each digit was seen at two sites, which share its
    images unevenly.

    Examples
    --------
    >>> {site: digits.seen for site, digits in digits_by_site(seed=0).items()}
    {'Amsterdam': (2, 4, 6, 7), 'Berlin': (2, 3, 5, 7), 'Lisbon': (0, 3, 5, 9),
     'Oslo': (0, 1, 8, 9), 'Vienna': (1, 4, 6, 8)}
    """
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(10)
    site = np.empty(len(y), dtype=np.intp)
    for place, digit in enumerate(order):
        images = rng.permutation(np.flatnonzero(y == digit))
        cut = round(len(images) * rng.uniform(0.15, 0.85))
        first = place // 2
        site[images[:cut]], site[images[cut:]] = first, (first - 1) % len(SITES)
    return {name: Digits(X[site == i], y[site == i]) for i, name in enumerate(SITES)}


def story(sites: Mapping[str, Digits]) -> str:
    """Return the line that says what the demonstration shows."""
    n = sum(len(digits.y) for digits in sites.values())
    seen = "; ".join(f"{site} {_listed(digits.seen)}" for site, digits in sites.items())
    return f"{n:,} handwritten digits at {len(sites)} sites, which saw: {seen}."


def _listed(digits: tuple[int, ...]) -> str:
    return ", ".join(map(str, digits))


def compare(sites: Mapping[str, Digits], centers: Floats, seed: int = 0) -> list[Comparison]:
    """Compare centres (k, 64) with k-means on the pooled rows, and with every site alone.

    All are judged on the rows of all sites; each k-means is scikit-learn's, best of ten.
    """
    X = np.concatenate([digits.X for digits in sites.values()])
    y = np.concatenate([digits.y for digits in sites.values()])
    pooled = _centers(X, len(centers), seed)
    everyone = {"fedcluster, no row moved": centers, "k-means on pooled rows": pooled}
    for site, digits in sites.items():
        everyone[f"{site} alone"] = _centers(digits.X, len(centers), seed)
    base = _inertia(X, pooled)
    return [
        Comparison(
            name,
            inertia=_inertia(X, found),
            ratio=_inertia(X, found) / base,
            ari=float(adjusted_rand_score(y, nearest(X, found)[0])),
        )
        for name, found in everyone.items()
    ]


def draw(
    folder: Path, records: Sequence[SiteRecord], centers: Floats, sites: Mapping[str, Digits]
) -> list[str]:
    """Draw the centres into ``centers.png``; returns that name, or nothing without matplotlib."""
    try:
        picture(
            folder / PICTURE,
            centers,
            records,
            shape=SHAPE,
            title="Ten kinds of handwritten digits, found by five sites that kept their images",
            subtitle="The centres of the clusters. Bars: at which sites a cluster's images lie.",
            captions={site: f"saw {_listed(digits.seen)}" for site, digits in sites.items()},
        )
    except ImportError:
        warnings.warn(
            "no picture of the centres without matplotlib: pip install 'fedcluster[plot]'",
            stacklevel=2,
        )
        return []
    return [PICTURE]


def _centers(X: Floats, k: int, seed: int) -> Floats:
    found: Floats = KMeans(k, n_init=10, random_state=seed).fit(X).cluster_centers_
    return found


def _inertia(X: Floats, centers: Floats) -> float:
    return float(nearest(X, centers)[1].sum())
