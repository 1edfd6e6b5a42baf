"""The own k-means of each of many small sites, whose clusters are held back where they are small.

The sites lie one after another in one array: the same bits as if each had answered for itself.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.kernels._sweep import sweep_small
from fedcluster.kernels.iteration import best_of_restarts, column_variance
from fedcluster.kernels.rows import Places, Rows, Weights
from fedcluster.kernels.runtime import native


class Sites(NamedTuple):
    """Where the rows of each site are, and what it lets out.

    Attributes
    ----------
    bounds : ndarray of shape (s + 1,)
        The rows of site i are those from ``bounds[i]`` to ``bounds[i + 1]``.
    heard : ndarray of shape (s,), bool
        Whether the site lets out anything.
    least : int
        The fewest rows behind a line that a site lets out.
    """

    bounds: Places
    heard: NDArray[np.bool_]
    least: int


class Draws(NamedTuple):
    """What each site needs for its own k-means.

    Attributes
    ----------
    n_means : ndarray of shape (s,)
        How many means it is to find.
    begins : ndarray of shape (s + 1,)
        The uniform numbers of site i are those from ``begins[i]`` to ``begins[i + 1]``.
    chances : ndarray of shape (m,)
        Uniform numbers of k-means++.
    """

    n_means: Places
    begins: Places
    chances: Floats


Totals = tuple[Floats, Floats, NDArray[np.int64]]
"""Sums (k, p) and weights (k,) of all sites; of each its lines, lone rows and rows held back,
(3, s)."""


@native
def means_of_sites(
    X: Rows,
    points: Floats,
    columns: Floats,
    sample_weight: Weights,
    sites: Sites,
    draws: Draws,
    least: int,
    how: tuple[int, float, bool, bool],
) -> Totals:
    """Return the sums of the clusters that k-means finds at each site, one site after another.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32 or float64
        The rows, padded.
    points : ndarray of shape (n, d), float64
        The same in float64.
    columns : ndarray of shape (n d,)
        The columns of the first site, one after another, then those of the second, ...
    sample_weight : ndarray of shape (n,)
        The weights of the rows, above 0.
    sites : Sites
        The sites.
    draws : Draws
        How many means each site is to find, and its uniform numbers.
    least : int
        The fewest rows of a cluster; those of smaller ones go to others, half of these at a time.
    how : tuple
        The arguments of ``best_of_restarts`` after the uniform numbers; ``tol`` is relative.
    """
    (k, begins, chances), d, line = draws, X.shape[1], 0
    sums, weights = np.empty((k.sum(), d)), np.empty(k.sum())
    sent, (max_iter, tol, relocate, drop) = np.zeros((3, len(sites.heard)), np.int64), how
    for site in range(len(sites.heard)):
        start, stop = sites.bounds[site], sites.bounds[site + 1]
        chance = chances[begins[site] : begins[site + 1]]
        spread, own = chance.reshape(1, k[site], len(chance) // k[site]), sample_weight[start:stop]
        across = columns[start * d : stop * d].reshape(d, stop - start)
        absolute, rows = tol * column_variance(across), points[start:]
        fit = best_of_restarts(rows, across, own, own, spread, max_iter, absolute, relocate, drop)
        _, _, own_weights, counts, _, own_sums = _large_groups(X[start:], own, fit[0], least)
        for j in range(len(counts)):
            if lets_out(sites, site, counts[j], sent):
                sums[line], weights[line] = own_sums[j], own_weights[j]
                line += 1
    return sums[:line], weights[:line], sent


@native
def _large_groups(X: Rows, sample_weight: Weights, centers: Floats, least: int) -> Any:
    """Return the sums over the rows of each centre, dropping centres until none has too few."""
    while True:
        groups = sweep_small(X, centers, sample_weight)
        counts, n_small = groups[3], 0
        for count in counts:
            n_small += count < least
        if len(centers) == 1 or n_small == 0:
            return groups
        kept = np.arange(len(centers))
        for _ in range(min(max(1, n_small // 2), len(centers) - 1)):
            gone = 0
            for place in range(len(kept)):
                gone = place if counts[kept[place]] < counts[kept[gone]] else gone
            kept[gone:-1] = kept[gone + 1 :]
            kept = kept[:-1]
        centers = centers[kept]


@native
def columns_of_sites(points: Floats, bounds: Places) -> Floats:
    """Return the columns of each site's rows one after another, (n d,)."""
    d, place = points.shape[1], 0
    columns = np.empty(bounds[-1] * d)
    for site in range(len(bounds) - 1):
        for f in range(d):
            for i in range(bounds[site], bounds[site + 1]):
                columns[place] = points[i, f]
                place += 1
    return columns


@native
def lets_out(sites: Sites, site: int, rows: int, sent: NDArray[np.int64]) -> bool:
    """Return whether a line of so many rows leaves its site, and count it."""
    if rows == 0:
        return False
    if rows < sites.least or not sites.heard[site]:
        sent[2, site] += rows
        return False
    sent[0, site] += 1
    sent[1, site] += rows == 1
    return True
