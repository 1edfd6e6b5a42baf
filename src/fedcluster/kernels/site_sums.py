"""Batched kernels for many small sites: k-means at each site, and sums over its rows.

Small clusters are held back. The rows of all sites lie one after another in one array, with the
same bits as if each site had answered for itself.

Sums over few rows are held back, and the others are added exactly.

The sites lie one after another in one array. What leaves each site is rounded as if it had answered
for itself; sums of sites are not rounded, so the division of sites into blocks does not matter.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.kernels._blocks import (
    HardSums,
    PackedCenters,
    Parts,
    anchor_of,
    forget,
    pack_centers,
    taken,
    zero_parts,
)
from fedcluster.kernels._sweep import sweep_padded
from fedcluster.kernels._tiles import (
    ADD_LANES,
    add,
    add_squares,
    aligned_zeros,
    block_rows,
    cut_line,
    exceeds_steps,
    score_block,
    take_line,
)
from fedcluster.kernels.iteration import best_of_restarts, column_variance, run_without_empty
from fedcluster.kernels.rows import Cuts, Following, Leaves, Places, Rows, Weights, place_in_leaves
from fedcluster.kernels.runtime import inner, native


class Sites(NamedTuple):
    """The position of each site's rows, and what the site may send.

    Attributes
    ----------
    bounds : ndarray of shape (s + 1,)
        The rows of site i are those from ``bounds[i]`` to ``bounds[i + 1]``.
    responding : ndarray of shape (s,), bool
        Whether the site may send anything.
    least : int
        The smallest number of rows in a line that a site sends.
    """

    bounds: Places
    responding: NDArray[np.bool_]
    least: int


class Draws(NamedTuple):
    """The parameters and random numbers of each site's own k-means.

    Attributes
    ----------
    n_means : ndarray of shape (s,)
        The number of means to find.
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
    how: tuple[int, float, bool],
) -> Totals:
    """Return the sums of the clusters that k-means finds at each site, one site after another.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32 or float64
        The rows, padded.
    points : ndarray of shape (n, d), float64
        The rows in float64.
    columns : ndarray of shape (n d,)
        The columns of the first site, one after another, then those of the second, ...
    sample_weight : ndarray of shape (n,)
        The weights of the rows, above 0.
    sites : Sites
        The sites.
    draws : Draws
        The number of means that each site is to find, and its uniform numbers.
    least : int
        The smallest number of rows in a cluster; smaller clusters are dissolved, half of them at a
        time.
    how : tuple
        The arguments of ``best_of_restarts`` after the uniform numbers; ``tol`` is relative.
    """
    (k, begins, chances), d, line = draws, X.shape[1], 0
    sums, weights = np.empty((k.sum(), d)), np.empty(k.sum())
    sent, (max_iter, tol, relocate) = np.zeros((3, len(sites.responding)), np.int64), how
    for site in range(len(sites.responding)):
        start, stop = sites.bounds[site], sites.bounds[site + 1]
        chance = chances[begins[site] : begins[site + 1]]
        spread, own = chance.reshape(1, k[site], len(chance) // k[site]), sample_weight[start:stop]
        across = columns[start * d : stop * d].reshape(d, stop - start)
        absolute, rows = tol * column_variance(across), points[start:]
        fit = best_of_restarts(rows, across, own, own, spread, max_iter, absolute, relocate)
        _, own_weights, counts, _, own_sums = _large_groups(X[start:], own, fit[0], least)
        for j in range(len(counts)):
            if passes_limits(sites, site, counts[j], sent):
                weights[line] = own_weights[j]
                for f in range(d):
                    sums[line, f] = own_sums[j, f]
                line += 1
    return sums[:line], weights[:line], sent


@native
def lloyd_at_sites(
    X: Rows,
    sample_weight: Weights,
    sites: Sites,
    centers: Floats,
    how: tuple[int, float, bool],
) -> Totals:
    """Return the sums of the clusters that `run_without_empty` finds at each site, site after site.

    The rows (n, d) are padded; ``how`` are the arguments after the centres (k, d).
    """
    n_sites, (k, d), line = len(sites.responding), centers.shape, 0
    sums, weights = np.empty((n_sites * k, d)), np.empty(n_sites * k)
    sent = np.zeros((3, n_sites), np.int64)
    for site in range(n_sites):
        start, stop = sites.bounds[site], sites.bounds[site + 1]
        fit = run_without_empty(X[start:], sample_weight[start:stop], centers, *how)
        means, own_weights, counts = fit[0], fit[5], fit[6]
        for j in range(len(counts)):
            if passes_limits(sites, site, counts[j], sent):
                weights[line] = own_weights[j]
                for f in range(d):
                    sums[line, f] = means[j, f] * own_weights[j]
                line += 1
    return sums[:line], weights[:line], sent


@native
def _large_groups(X: Rows, sample_weight: Weights, centers: Floats, least: int) -> HardSums:
    """Return the sums over the rows of each centre, dropping centres until none has too few."""
    while True:
        _, groups = sweep_padded(X, centers, sample_weight)
        counts, n_small = groups.counts, 0
        for count in counts:
            n_small += count < least
        if len(centers) == 1 or n_small == 0:
            return groups
        kept = np.zeros(len(centers), np.int64)
        for j in range(len(centers)):
            kept[j] = j
        for _ in range(min(max(1, n_small // 2), len(centers) - 1)):
            gone = 0
            for place in range(len(kept)):
                gone = place if counts[kept[place]] < counts[kept[gone]] else gone
            for place in range(gone, len(kept) - 1):
                kept[place] = kept[place + 1]
            kept = kept[:-1]
        centers = taken(centers, kept)


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
def passes_limits(sites: Sites, site: int, rows: int, sent: NDArray[np.int64]) -> bool:
    """Return whether a line with this number of rows may leave its site, and count it."""
    if rows == 0:
        return False
    if rows < sites.least or not sites.responding[site]:
        sent[2, site] += rows
        return False
    sent[0, site] += 1
    sent[1, site] += rows == 1
    return True


MOST_PARTIALS = 64
"""Largest length of an expansion; a full one is compressed to at most 40 numbers."""

CUT = 2.0**-41
"""Ratio of successive steps at which numbers are cut: of their 53 digits, sums use 12."""

MOST_WAITING = 256
"""Number of lines that may wait before a site adds its own."""

MOST_LINES, MARGIN = 1 << 11, 2.0**-12
"""Number of lines that are added to cut sums, and how far numbers must be below the step."""

ROOM = 16
"""Powers of two by which a step exceeds the number that it was made for."""

EXPONENTS = (-800, 900)
"""Exponents of numbers that are cut; others are added one by one."""


class ExactAccumulator(NamedTuple):
    """Exact sums over sites: for each number, an expansion and sums of digits without rounding.

    Attributes
    ----------
    partials : ndarray of shape (k, p, MOST_PARTIALS)
        Non-overlapping numbers, the smallest first.
    used : ndarray of shape (k, p)
        How many there are.
    cut : ndarray of shape (4, k, p), filled up by 0 to whole vectors
        Steps; then sums of the digits above each step, above the next smaller one, and the next.
    counts : ndarray of shape (k,)
        Number of lines in the sums of digits.
    lines : ndarray of shape (MOST_WAITING + k, p), filled up by 0 to whole vectors
        Lines waiting to be added: adding many in one call takes a tenth of the time.
    places : ndarray of shape (MOST_WAITING + k,)
        The sums to which these lines belong.
    largest : ndarray of shape (1,)
        The largest number for which a step was made, or that was added without one; see
        `may_exceed`.
    """

    partials: Floats
    used: NDArray[np.int64]
    cut: Floats
    counts: NDArray[np.int64]
    lines: Floats
    places: NDArray[np.int64]
    largest: Floats


def empty_accumulator(k: int, p: int) -> ExactAccumulator:
    """Return sums (k, p) over no sites."""
    width = p + -p % ADD_LANES
    partials, used = np.zeros((k, p, MOST_PARTIALS)), np.zeros((k, p), np.int64)
    cut, lines = _aligned(4, k, width), _aligned(MOST_WAITING + k, width)
    counts, places = np.zeros(k, np.int64), np.zeros(MOST_WAITING + k, np.int64)
    return ExactAccumulator(partials, used, cut, counts, lines, places, np.zeros(1))


def _aligned(*shape: int) -> Floats:
    """Return zeros aligned to cache lines."""
    flat = np.zeros(math.prod(shape) + 8)
    first = -flat.ctypes.data % 64 // 8
    return flat[first : first + math.prod(shape)].reshape(shape)


def may_exceed(accumulator: ExactAccumulator, most: float) -> bool:
    """Return whether a number in an added line may exceed ``most`` or not be finite.

    The sums do not show this, as numbers of sites can cancel. But each number either is recorded in
    ``largest`` or was cut at a step made for a recorded one.
    """
    above_its_maker = 2.0 ** (ROOM + 1) * MARGIN
    return not accumulator.largest[0] * above_its_maker <= most


def planes_of(accumulator: ExactAccumulator) -> list[Floats]:
    """Return arrays (k, p), at least one, whose exact sum is what was added."""
    most = int(accumulator.used.max(initial=0))
    partials = [
        np.where(i < accumulator.used, accumulator.partials[:, :, i], 0.0) for i in range(most)
    ]
    return [*accumulator.cut[1:, :, : accumulator.used.shape[1]], *partials]


@inner
def _compress(partials: Floats, used: NDArray[np.int64], j: int, f: int) -> None:
    """Make each number of an expansion at most half the last digit of the next (figure 15)."""
    n, own = used[j, f], partials[j, f]
    bottom, total = n - 1, own[n - 1]
    for i in range(n - 2, -1, -1):
        high = total + own[i]
        low = own[i] - (high - total)
        if low != 0.0:
            own[bottom] = high
            bottom -= 1
            high = low
        total = high
    own[bottom] = total
    used[j, f] = n - bottom
    for i in range(n - bottom):
        own[i] = own[bottom + i]


@inner
def _grow(partials: Floats, used: NDArray[np.int64], j: int, f: int, x: float) -> None:
    """Add a number exactly to one sum (J. R. Shewchuk 1997, figure 6, with zeros left out)."""
    if used[j, f] > MOST_PARTIALS - 2:
        _compress(partials, used, j, f)
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
def _add_waiting(accumulator: ExactAccumulator, n_waiting: int) -> int:
    """Add the waiting lines exactly to their sums; return how many are left, 0.

    With a step s well above x, (s + x) - s is x to a multiple of the last digit of s. Sums of these
    are exact, and so are those of what is left, cut at smaller steps, until nothing is left.
    """
    cut, lines = accumulator.cut, accumulator.lines
    for i in range(n_waiting):
        j = accumulator.places[i]
        if accumulator.counts[j] >= MOST_LINES:
            _settle(accumulator, j)
        if exceeds_steps(lines, i, cut, j, MARGIN):
            _take_unfit(accumulator, i, j)
        # two cuts leave nothing of most numbers
        is_left = cut_line(lines, i, cut, j, 1, 1.0) and cut_line(lines, i, cut, j, 2, CUT)
        if is_left and cut_line(lines, i, cut, j, 3, CUT * CUT):
            for f in range(accumulator.used.shape[1]):
                _grow(accumulator.partials, accumulator.used, j, f, lines[i, f])
        accumulator.counts[j] += 1
    return 0


@inner
def _take_unfit(accumulator: ExactAccumulator, waiting: int, j: int) -> None:
    """Add those numbers of a line that are too large for their steps, and enlarge the steps."""
    partials, used, cut, line, largest = (
        accumulator.partials,
        accumulator.used,
        accumulator.cut,
        accumulator.lines[waiting],
        accumulator.largest,
    )
    for f in range(used.shape[1]):
        x = line[f]
        if abs(x) <= cut[0, j, f] * MARGIN:
            continue
        if not abs(x) <= largest[0]:
            largest[0] = abs(x) if np.isfinite(x) else np.inf
        exponent = math.frexp(x)[1] if np.isfinite(x) else EXPONENTS[1]
        if EXPONENTS[0] < exponent < EXPONENTS[1]:
            for i in range(1, 4):
                _grow(partials, used, j, f, cut[i, j, f])
                cut[i, j, f] = 0.0
            cut[0, j, f] = math.ldexp(1.0, exponent + ROOM)
        _grow(partials, used, j, f, x)
        line[f] = 0.0


@inner
def _settle(accumulator: ExactAccumulator, j: int) -> None:
    """Add the sums of digits of line j to the expansions before they could round."""
    for f in range(accumulator.used.shape[1]):
        for i in range(1, 4):
            _grow(accumulator.partials, accumulator.used, j, f, accumulator.cut[i, j, f])
            accumulator.cut[i, j, f] = 0.0
    accumulator.counts[j] = 0


@native
def add_sums_of_sites(
    X: Rows, sample_weight: Weights, sites: Sites, centers: Floats, accumulator: ExactAccumulator
) -> NDArray[np.int64]:
    """Add w x, w ||x - c||^2 and w over the rows nearest to each centre, (k, d + 2).

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
    accumulator : ExactAccumulator
        The sums over the sites asked before.

    Returns
    -------
    ndarray of shape (3, s), int64
        Number of lines, lone rows and rows held back for each site.
    """
    packed, sent = pack_centers(X, centers), np.zeros((3, len(sites.responding)), np.int64)
    part, anchors = zero_parts(packed.centers), packed.centers.copy()
    for j in range(anchors.shape[0]):
        for f in range(anchors.shape[1]):
            anchors[j, f] = anchor_of(anchors[j, f])
    _add_rows(X, sample_weight, sites, packed, anchors, part, accumulator, sent)
    return sent


@native
def _add_rows(
    X: Rows,
    sample_weight: Weights,
    sites: Sites,
    packed: PackedCenters,
    anchors: Floats,
    part: Parts,
    accumulator: ExactAccumulator,
    sent: NDArray[np.int64],
) -> None:
    """Add the rows of each site to its own sums, and what leaves it to the accumulator.

    Sums are passed as an argument, because numba may treat other writes of an inlined function as
    unused. A call for each site, also an inlined one, would count references to all arrays that it
    is given, which takes longer than all else.
    """
    (bounds, responding, least), (size, site, n, i) = sites, (block_rows(X), 0, 0, 0)
    counts, lines, places = part.counts, accumulator.lines, accumulator.places
    d = accumulator.used.shape[1] - 2
    block = aligned_zeros(X.dtype, (len(packed.shift), size))
    lowest, nearest = aligned_zeros(X.dtype, (size,)), np.empty(size, np.int32)
    for start in range(0, bounds[-1], size):
        score_block(block, X, start, packed, lowest, nearest, ())
        while i < min(start + size, bounds[-1]):
            first, i = i, min(start + size, bounds[site + 1])
            for row in range(first, i):
                add(X, sample_weight, row, nearest[row - start], packed, part)
            if i == bounds[site + 1]:
                n = _add_waiting(accumulator, n) if n > MOST_WAITING else n
                begun, smallest = n, least if responding[site] else bounds[-1] + 1
                for j in range(len(counts)):
                    rows = counts[j]
                    if rows:
                        take_line(anchors, part, j, d, lines, n)
                        forget(part, j)
                        places[n] = j
                        n += rows >= smallest
                        sent[1, site] += 1 == rows >= smallest
                        sent[2, site] += rows if rows < smallest else 0
                sent[0, site], site = n - begun, site + 1
    _add_waiting(accumulator, n)


@native
def add_leaf_sums_of_sites(
    X: Rows,
    sample_weight: Weights,
    sites: Sites,
    reference: Floats,
    cuts: Cuts,
    following: Following,
    places: Leaves,
    accumulator: ExactAccumulator,
) -> NDArray[np.int64]:
    """Add the sums over the rows of each leaf of a tree, (l, 2 d + 1); see `leaf_sums`.

    Returns the number of lines, lone rows and rows held back for each site, (3, s).
    """
    (n_leaves, d), (bounds, responding, least), n = reference.shape, sites, 0
    sent, lines, at = (
        np.zeros((3, len(responding)), np.int64),
        accumulator.lines,
        accumulator.places,
    )
    own, weights = np.zeros((n_leaves, 2 * d)), np.zeros(n_leaves)
    counts = np.zeros(n_leaves, np.int64)
    place_in_leaves(X, cuts, following, places)
    for site in range(len(responding)):
        for i in range(bounds[site], bounds[site + 1]):
            leaf, w = np.int64(places[i]), sample_weight[i] if len(sample_weight) else 1.0
            add_squares(X, (i, leaf), reference, w, own)
            weights[leaf] += w
            counts[leaf] += 1
        n = _add_waiting(accumulator, n) if n > MOST_WAITING else n
        begun, smallest = n, least if responding[site] else bounds[-1] + 1
        for j in range(n_leaves):
            rows = counts[j]
            if rows:
                for f in range(2 * d):
                    lines[n, f], own[j, f] = own[j, f], 0.0
                lines[n, 2 * d], weights[j], counts[j], at[n] = weights[j], 0.0, 0, j
                n += rows >= smallest
                sent[1, site] += 1 == rows >= smallest
                sent[2, site] += rows if rows < smallest else 0
        sent[0, site] = n - begun
    _add_waiting(accumulator, n)
    return sent


@native
def add_lines(lines: Floats, accumulator: ExactAccumulator) -> None:
    """Add lines (s, p), one of each site, to the first line of an accumulator."""
    for start in range(0, len(lines), MOST_WAITING):
        count = min(MOST_WAITING, len(lines) - start)
        for i in range(count):
            accumulator.places[i] = 0
            for f in range(lines.shape[1]):
                accumulator.lines[i, f] = lines[start + i, f]
        _add_waiting(accumulator, count)
