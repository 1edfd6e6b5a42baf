"""Gap statistic: gain of clustering the rows over clustering rows without any clusters.

R. Tibshirani, G. Walther & T. Hastie, Estimating the number of clusters in a data set via the
gap statistic, J. R. Statist. Soc. B 63, 2001.

    gap(k) = mean over B references of log W*_k  -  log W_k

with W the within sum of squares, of the rows and of rows drawn uniformly from a box. The server
draws the references and clusters them alone. The paper's box spans the columns' ranges, but a
minimum or a maximum is the value of one row. Here the box has the mean and the variance of each
column, which sums tell, or bounds that everybody knows.

Deviations: the box, as said. W is divided by its n - k degrees of freedom, so that references may
have fewer rows than there are. The paper takes the smallest k with gap(k) >= gap(k + 1) - s_{k+1};
that stops at 1 where clusters form a grid, and `fedcluster.selection` takes the smallest k whose
gap is within s of the largest.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import numpy as np
from numpy.random import Generator

from fedcluster._random import stream
from fedcluster.core import Floats
from fedcluster.kernels import kmeans

MOST_ROWS = 2048
"""Rows of a reference, fewer where the rows are fewer or wide."""

MOST_VALUES = 1 << 18
"""Values of a reference."""


def box(mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return the corners, (d,) each, of the box with this mean and variance of each column.

    Examples
    --------
    >>> box(np.array([5.0]), np.array([3.0]))
    (array([2.]), array([8.]))
    """
    half = np.sqrt(3 * variance)
    return mean - half, mean + half


def gaps(
    within: Mapping[int, float],
    weight: float,
    bounds: tuple[Floats, Floats],
    *,
    n_references: int = 10,
    seed: int = 0,
) -> dict[int, tuple[float, float]]:
    """Return the gap statistic of each k and its standard error.

    Parameters
    ----------
    within : mapping of int to float
        The within sum of squares of the rows, by k.
    weight : float
        The weight of all rows, n.
    bounds : pair of ndarray of shape (d,)
        Lower and upper corner of the box.
    n_references : int, default=10
        B.
    seed : int, default=0
        Makes the draws.

    Returns
    -------
    dict of int to (float, float)
        gap(k) and s_k = sd sqrt(1 + 1 / B), both nan where W or all W* are 0.
    """
    lower, upper = bounds
    most = min(MOST_ROWS, max(MOST_VALUES // len(lower), 64 * max(within)))
    n = int(np.clip(weight, max(within) + 1, most))
    rng = stream(seed, 0, "references")
    boxes = (rng.uniform(lower, upper, (n, len(lower))) for _ in range(n_references))
    references = np.array([_log_within(rows, list(within), rng) for rows in boxes])
    expected, spread = references.mean(axis=0), references.std(axis=0) * sqrt(1 + 1 / n_references)
    return {
        k: (float(expected[i]) - _log(within[k], weight - k), float(spread[i]))
        for i, k in enumerate(within)
    }


def _log_within(rows: Floats, ks: list[int], rng: Generator) -> list[float]:
    """Return log(W* / (n - k)) of one reference, for each k."""
    return [_log(kmeans(rows, k, rng=rng, n_init=2).inertia, len(rows) - k) for k in ks]


def _log(within: float, freedom: float) -> float:
    return float(np.log(within / freedom)) if within > 0 and freedom > 0 else float("nan")
