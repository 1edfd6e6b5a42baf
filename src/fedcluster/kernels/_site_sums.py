"""Sums over the rows of each of many small sites, held back where these are few, added exactly.

The sites lie one after another in one array. What leaves each is rounded, as if it had answered
for itself; the sums of sites are not, so it does not matter in which blocks sites are asked.
"""

from typing import NamedTuple

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
from fedcluster.kernels._crowd import Sites
from fedcluster.kernels._rows import Cuts, Following, Leaves, Rows, Weights, add_to_leaves
from fedcluster.kernels._runtime import inner_as_written, native
from fedcluster.kernels._tiles import block_rows

MOST_PARTIALS = 42
"""Numbers of the longest expansion of a sum of float64."""


class Bank(NamedTuple):
    """Exact sums of sites: of each number, an expansion whose parts do not overlap.

    Attributes
    ----------
    partials : ndarray of shape (k, p, MOST_PARTIALS)
        The numbers, the smallest first.
    used : ndarray of shape (k, p)
        How many there are.
    """

    partials: Floats
    used: NDArray[np.int64]


def empty_bank(k: int, p: int) -> Bank:
    """Return sums (k, p) of no site."""
    return Bank(np.zeros((k, p, MOST_PARTIALS)), np.zeros((k, p), np.int64))


def planes_of(bank: Bank) -> list[Floats]:
    """Return arrays (k, p) whose exact sum is what was added, at least one."""
    most = max(1, int(bank.used.max(initial=0)))
    return [np.where(i < bank.used, bank.partials[:, :, i], 0.0) for i in range(most)]


@inner_as_written
def _grow(bank: Bank, j: int, f: int, x: float) -> None:
    """Add a number exactly to one sum (J. R. Shewchuk 1997, figure 6, zeros left out)."""
    partials, used = bank
    kept = 0
    for i in range(used[j, f]):
        y = partials[j, f, i]
        if abs(x) < abs(y):
            x, y = y, x
        high = x + y
        low = y - (high - x)
        if low != 0.0 and np.isfinite(high):
            partials[j, f, kept] = low
            kept += 1
        x = high
    partials[j, f, kept] = x
    used[j, f] = kept + 1


@native
def add_sums_of_sites(
    X: Rows, sample_weight: Weights, sites: Sites, centers: Floats, bank: Bank
) -> NDArray[np.int64]:
    """Add w x, w ||x - c||^2 and w over the rows nearest to each centre, (k, d + 2), to a bank.

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
    bank : Bank
        The sums of sites that were asked before.

    Returns
    -------
    ndarray of shape (3, s), int64
        Lines, lone rows and rows held back of each site.
    """
    packed, sent = pack_centers(X, centers), np.zeros((3, len(sites.heard)), np.int64)
    _add_rows(X, sample_weight, sites, packed, zero_parts(packed), bank, sent)
    return sent


@native
def _add_rows(
    X: Rows,
    sample_weight: Weights,
    sites: Sites,
    packed: PackedCenters,
    part: Parts,
    bank: Bank,
    sent: NDArray[np.int64],
) -> None:
    """Add the rows of each site to its own sums, and these to the bank.

    Sums are an argument: what an inlined function writes elsewhere, numba may take for unused.
    """
    n, size, site = sites.bounds[-1], block_rows(X), 0
    block = aligned_zeros(X.dtype, len(packed.shift), size)
    lowest, nearest = np.empty(size, X.dtype), np.empty(size, np.int32)
    for start in range(0, n, size):
        score_block(X, start, packed, block, lowest, nearest, ())
        for i in range(start, min(start + size, n)):
            if i == sites.bounds[site + 1]:
                _hand_over(sites, site, part, packed, bank, sent)
                site += 1
            add(X, sample_weight, i, nearest[i - start], packed, part)
    _hand_over(sites, site, part, packed, bank, sent)


@native
def _hand_over(
    sites: Sites,
    site: int,
    part: Parts,
    packed: PackedCenters,
    bank: Bank,
    sent: NDArray[np.int64],
) -> None:
    """Add what leaves a site to the bank, and set its own sums to 0."""
    d = bank.partials.shape[1] - 2
    for j in range(len(bank.partials)):
        if part.counts[j] == 0:
            continue
        if _leaves(sites, site, part.counts[j], sent):
            weight, error = part.weights[j], 0.0
            for f in range(d):
                _grow(bank, j, f, part.residuals[j, f] + weight * packed.anchors[j, f])
            for lane in range(part.errors.shape[1]):
                error += part.errors[j, lane]
            _grow(bank, j, d, error)
            _grow(bank, j, d + 1, weight)
        part.weights[j], part.counts[j] = 0.0, 0
        part.residuals[j], part.errors[j] = 0.0, 0.0


@native
def add_leaf_sums_of_sites(
    X: Rows,
    sample_weight: Weights,
    sites: Sites,
    reference: Floats,
    cuts: Cuts,
    following: Following,
    places: Leaves,
    bank: Bank,
) -> NDArray[np.int64]:
    """Add the sums over the rows of each leaf of a tree, (l, 2 d + 1), to a bank; see `leaf_sums`.

    Returns lines, lone rows and rows held back of each site, (3, s).
    """
    (n_leaves, d), n_sites = reference.shape, len(sites.heard)
    sent = np.zeros((3, n_sites), np.int64)
    own, own_weights, counts = np.zeros((n_leaves, 2 * d)), np.zeros(n_leaves), np.zeros(n_leaves)
    for site in range(n_sites):
        start, stop = sites.bounds[site], sites.bounds[site + 1]
        rows, weight = X[start:stop], sample_weight[start:stop]
        add_to_leaves(
            rows, weight, reference, cuts, following, places[start:stop], (own, own_weights, counts)
        )
        for leaf in range(n_leaves):
            if counts[leaf] == 0:
                continue
            if _leaves(sites, site, int(counts[leaf]), sent):
                for f in range(2 * d):
                    _grow(bank, leaf, f, own[leaf, f])
                _grow(bank, leaf, 2 * d, own_weights[leaf])
            own[leaf], own_weights[leaf], counts[leaf] = 0.0, 0.0, 0.0
    return sent


@native
def add_lines(lines: Floats, bank: Bank) -> None:
    """Add lines (s, p), of a site each, to the first line of a bank."""
    for i in range(len(lines)):
        for f in range(lines.shape[1]):
            _grow(bank, 0, f, lines[i, f])


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
