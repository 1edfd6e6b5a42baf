"""Sums over the rows of each of many small sites, held back where these are few, and added up.

The sites lie one after another in one array. Each has its own sums, which are added in the order
of the sites: the same bits as if each had answered for itself.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.kernels._rows import Cuts, Following, Places, Rows, Weights, add_to_leaves
from fedcluster.kernels._runtime import native
from fedcluster.kernels._sweep import clear, pack_centers, sweep_chunk, zero_parts


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
    (k, d), n_sites = centers.shape, len(sites.heard)
    packed, nowhere = pack_centers(X, centers), np.empty(0)
    part, labels = zero_parts(packed), np.empty(np.diff(sites.bounds).max(), np.int32)
    sums, weights, sent = np.zeros((k, d + 1)), np.zeros(k), np.zeros((3, n_sites), np.int64)
    for site in range(n_sites):
        start, stop = sites.bounds[site], sites.bounds[site + 1]
        clear(part)
        own = sample_weight[start:stop]
        sweep_chunk(X[start:], own, packed, labels[: stop - start], nowhere, part)
        for j in range(k):
            if not _leaves(sites, site, part.counts[j], sent):
                continue
            weight, error = part.weights[j], 0.0
            for f in range(d):
                sums[j, f] += part.residuals[j, f] + weight * packed.anchors[j, f]
            for lane in range(part.errors.shape[1]):
                error += part.errors[j, lane]
            sums[j, d] += error
            weights[j] += weight
    return sums, weights, sent


@native
def leaf_sums_of_sites(
    X: Rows,
    sample_weight: Weights,
    sites: Sites,
    reference: Floats,
    cuts: Cuts,
    following: Following,
) -> Totals:
    """Return the sums over the rows of each leaf of a tree, (l, 2 d), as ``leaf_sums``."""
    (n_leaves, d), n_sites = reference.shape, len(sites.heard)
    sums, weights = np.zeros((n_leaves, 2 * d)), np.zeros(n_leaves)
    sent = np.zeros((3, n_sites), np.int64)
    own, own_weights, counts = np.zeros((n_leaves, 2 * d)), np.zeros(n_leaves), np.zeros(n_leaves)
    places, totals = np.zeros(len(X), np.int32), (own, own_weights, counts)
    for site in range(n_sites):
        start, stop = sites.bounds[site], sites.bounds[site + 1]
        rows, weight = X[start:stop], sample_weight[start:stop]
        add_to_leaves(rows, weight, reference, cuts, following, places[start:stop], totals)
        for leaf in range(n_leaves):
            if _leaves(sites, site, int(counts[leaf]), sent):
                weights[leaf] += own_weights[leaf]
                for f in range(2 * d):
                    sums[leaf, f] += own[leaf, f]
            if counts[leaf]:
                own[leaf], own_weights[leaf], counts[leaf] = 0.0, 0.0, 0.0
    return sums, weights, sent


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
