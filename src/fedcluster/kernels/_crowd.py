"""Sums over the rows of each of many small sites, held back where these are few, and added up.

The sites lie one after another in one array. Each has its own sums, which are added in the order
of the sites: the same bits as if each had answered for itself.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.kernels._blocks import (
    PackedCenters,
    Parts,
    add,
    aligned_zeros,
    pack_centers,
    score_block,
    zero_parts,
)
from fedcluster.kernels._lloyd import best_of_restarts, column_variance
from fedcluster.kernels._rows import (
    Cuts,
    Following,
    Leaves,
    Places,
    Rows,
    Weights,
    add_to_leaves,
)
from fedcluster.kernels._runtime import native
from fedcluster.kernels._sweep import sweep_small
from fedcluster.kernels._tiles import block_rows


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
def sums_of_sites(X: Rows, sample_weight: Weights, sites: Sites, centers: Floats) -> Totals:
    """Return the sums of w x and w ||x - c||^2 over the rows nearest to each centre, (k, d + 1).

    Parameters
    ----------
    X : ndarray of shape (n, d), float32 or float64
        The rows, padded.
    sample_weight : ndarray of shape (n,) or (0,)
        Their weights, above 0.
    sites : Sites
        The sites.
    centers : ndarray of shape (k, d)
        The centres.
    """
    (k, d), packed = centers.shape, pack_centers(X, centers)
    totals = np.zeros((k, d + 1)), np.zeros(k), np.zeros((3, len(sites.heard)), np.int64)
    _add_rows(X, sample_weight, sites, packed, zero_parts(packed), totals)
    return totals


@native
def _add_rows(
    X: Rows,
    sample_weight: Weights,
    sites: Sites,
    packed: PackedCenters,
    part: Parts,
    totals: Totals,
) -> None:
    """Add the rows of each site to its own sums, and these to the totals.

    Sums are an argument: what an inlined function writes elsewhere, numba may take for unused.
    """
    n, size, site = sites.bounds[-1], block_rows(X), 0
    block = aligned_zeros(X.dtype, len(packed.shift), size)
    lowest, nearest = np.empty(size, X.dtype), np.empty(size, np.int32)
    for start in range(0, n, size):
        score_block(X, start, packed, block, lowest, nearest, ())
        for i in range(start, min(start + size, n)):
            if i == sites.bounds[site + 1]:
                _hand_over(sites, site, part, packed, totals)
                site += 1
            add(X, sample_weight, i, nearest[i - start], packed, part)
    _hand_over(sites, site, part, packed, totals)


@native
def _hand_over(sites: Sites, site: int, part: Parts, packed: PackedCenters, totals: Totals) -> None:
    """Add what leaves a site to the totals, and set its own sums to 0."""
    sums, weights, sent = totals
    d = sums.shape[1] - 1
    for j in range(len(sums)):
        if part.counts[j] == 0:
            continue
        if _leaves(sites, site, part.counts[j], sent):
            weight, error = part.weights[j], 0.0
            for f in range(d):
                sums[j, f] += part.residuals[j, f] + weight * packed.anchors[j, f]
            for lane in range(part.errors.shape[1]):
                error += part.errors[j, lane]
            sums[j, d] += error
            weights[j] += weight
        part.weights[j], part.counts[j] = 0.0, 0
        part.residuals[j], part.errors[j] = 0.0, 0.0


@native
def leaf_sums_of_sites(
    X: Rows,
    sample_weight: Weights,
    sites: Sites,
    reference: Floats,
    cuts: Cuts,
    following: Following,
    places: Leaves,
) -> Totals:
    """Return the sums over the rows of each leaf of a tree, (l, 2 d), as ``leaf_sums``."""
    (n_leaves, d), n_sites = reference.shape, len(sites.heard)
    sums, weights = np.zeros((n_leaves, 2 * d)), np.zeros(n_leaves)
    sent = np.zeros((3, n_sites), np.int64)
    own, own_weights, counts = np.zeros((n_leaves, 2 * d)), np.zeros(n_leaves), np.zeros(n_leaves)
    totals = own, own_weights, counts
    for site in range(n_sites):
        start, stop = sites.bounds[site], sites.bounds[site + 1]
        rows, weight = X[start:stop], sample_weight[start:stop]
        add_to_leaves(rows, weight, reference, cuts, following, places[start:stop], totals)
        for leaf in range(n_leaves):
            if counts[leaf] == 0:
                continue
            if _leaves(sites, site, int(counts[leaf]), sent):
                weights[leaf] += own_weights[leaf]
                for f in range(2 * d):
                    sums[leaf, f] += own[leaf, f]
            own[leaf], own_weights[leaf], counts[leaf] = 0.0, 0.0, 0.0
    return sums, weights, sent


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
            if _leaves(sites, site, counts[j], sent):
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
def _leaves(sites: Sites, site: int, rows: int, sent: NDArray[np.int64]) -> bool:
    """Return whether a line of so many rows leaves its site, and count it."""
    if rows == 0:
        return False
    if rows < sites.least or not sites.heard[site]:
        sent[2, site] += rows
        return False
    sent[0, site] += 1
    sent[1, site] += rows == 1
    return True
