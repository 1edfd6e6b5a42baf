"""Demonstration: handwritten digits at five sites that each saw only some of the digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from fedcluster._report._pictures import picture, pictured
from fedcluster._report._records import Comparison, SiteRecord
from fedcluster.core import Data, Floats, Rows
from fedcluster.io._rows import SiteRows
from fedcluster.kernels import nearest

SITES = ("Amsterdam", "Berlin", "Lisbon", "Oslo", "Vienna")
SHAPE = (8, 8)
"""Lines and columns of an image."""
PICTURE = "centers.png"


def tables(sites: Mapping[str, Data]) -> dict[str, SiteRows]:
    """Return the sites' rows as if they had been read from files."""
    columns = tuple(map(str, load_digits().feature_names))
    return {
        site: SiteRows(site, replace(digits, y=None), columns, range(1, len(digits) + 1))
        for site, digits in sites.items()
    }


def digits_by_site(seed: int = 0) -> dict[str, Data]:
    """Split scikit-learn's 1797 digits over five sites.

    Each site saw four of the ten digits; each digit was seen at two sites, which share its
    images unevenly. Rows are the grey values of 64 pixels, from 0 to 16; labels, only to compare
    with, the digits that the writers meant.

    Examples
    --------
    >>> {site: seen(digits) for site, digits in digits_by_site(seed=0).items()}
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
    return {name: Data(X[site == i], y=y[site == i]) for i, name in enumerate(SITES)}


def seen(digits: Data) -> tuple[int, ...]:
    """Return the digits that a site saw."""
    return tuple(np.unique(np.asarray(digits.y)).tolist())


def story(sites: Mapping[str, Data]) -> str:
    """Return the line that says what the demonstration shows."""
    n = sum(len(digits) for digits in sites.values())
    saw = "; ".join(f"{site} {_listed(seen(digits))}" for site, digits in sites.items())
    return f"{n:,} handwritten digits at {len(sites)} sites, which saw: {saw}."


MEANING = (
    "Of pooled: the inertia, divided by that of k-means on all images in one place; 1.000 is as "
    "good. ARI: how far the clusters are the digits that were meant; 1 is wholly, 0 as by chance."
)


def sent(records: Sequence[SiteRecord]) -> str:
    """Return the line that says how much left the sites."""
    most = max(record.values_sent for record in records)
    images = sum(record.rows for record in records)
    return (
        f"The {images:,} images stayed where they are. At most {most:,} numbers left a site, "
        "sums and counts of its images. The report lists them and says what they reveal."
    )


def what_next(out: Path, written: Sequence[str]) -> list[str]:
    """Return the lines that say what to look at, and what to try."""
    shown = [str(out / name) for name in ("report.html", PICTURE) if name in written]
    files = " ".join(f"clinics/{site}.csv" for site in ("north", "south", "west"))
    return [
        *([f"Open {' and '.join(shown)}."] if shown else []),
        "Then try files, one for each site:",
        "  python -m fedcluster.datasets clinics",
        f"  fedcluster fit {files} -k auto --out result",
    ]


def _listed(digits: tuple[int, ...]) -> str:
    return ", ".join(map(str, digits))


def compare(sites: Mapping[str, Data], centers: Floats, seed: int = 0) -> list[Comparison]:
    """Compare centres (k, 64) with k-means on the pooled rows, and with every site alone.

    All are judged on the rows of all sites; each k-means is scikit-learn's, best of ten.
    """
    X = np.concatenate([digits.X for digits in sites.values()])
    y = np.concatenate([np.asarray(digits.y) for digits in sites.values()])
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
    folder: Path, records: Sequence[SiteRecord], centers: Floats, sites: Mapping[str, Data]
) -> list[str]:
    """Draw the centres into ``centers.png``; returns that name, or nothing without matplotlib."""
    draw_centers = partial(
        picture,
        centers=centers,
        sites=records,
        shape=SHAPE,
        title="Ten kinds of handwritten digits, found by five sites that kept their images",
        subtitle="The centres of the clusters. Bars: at which sites a cluster's images lie.",
        captions={site: f"saw {_listed(seen(digits))}" for site, digits in sites.items()},
    )
    return pictured("centres", folder / PICTURE, draw_centers)


def _centers(X: Rows, k: int, seed: int) -> Floats:
    found: Floats = KMeans(k, n_init=10, random_state=seed).fit(X).cluster_centers_
    return found


def _inertia(X: Rows, centers: Floats) -> float:
    return float(nearest(X, centers)[1].sum())
