"""One pass of expectation and maximisation over rows, short of the division.

A. P. Dempster, N. M. Laird & D. B. Rubin, Maximum likelihood from incomplete data via the EM
algorithm, J. R. Stat. Soc. B 39, 1977. With log densities l_ij of row i in component j, including
shares, log L_i = log sum_j exp l_ij and tau_ij = exp(l_ij - log L_i), the pass adds up over the
rows with weights w:

    w tau,   w tau log L,   w tau (x - mu_j),   w tau (x - mu_j)(x - mu_j)^T

Moments are about the current means: raw ones lose all digits if rows lie far from 0. Rows are read
in transposed blocks, so that LLVM makes vectors of rows; no sum depends on the number of threads.
"""

from __future__ import annotations

from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.core import Floats
from fedcluster.core.threads import BufferPool, for_each_chunk, thread_count
from fedcluster.kernels.rows import Weights, as_double_rows, as_rows, as_weights
from fedcluster.kernels.runtime import (
    inlined,
    inner,
    inner_in_any_order,
    native_in_any_order,
)

BLOCK = 128
MAGIC = 1.5 * 2.0**52  # adding this rounds a number to an integer, held in the low bits
LOG2E, LN2_HIGH, LN2_LOW = (
    1.4426950408889634,
    6.93147180369123816490e-01,
    1.90821492927058770002e-10,
)
LEAST_EXPONENT = -708.0
Places = NDArray[np.intp]


class Densities(NamedTuple):
    """Log densities of k components, quadratic in p columns and linear in q others.

    l_j(x) = offsets_j - |(x_p - means_j) F_j|^2 / 2 + slopes_j . x_q; further lines of ``offsets``
    and ``slopes`` are components without a quadratic part.

    Attributes
    ----------
    means : ndarray of shape (k, p)
        The means.
    factors : ndarray of shape (k, p), (1, p, p) or (k, p, p)
        F_j: diagonal, one upper triangular factor for all, or one for each component.
    offsets : ndarray of shape (k + e,)
        Constants, the last e for components without a quadratic part.
    slopes : ndarray of shape (k + e, q)
        Coefficients of the other columns.
    numeric, other : ndarray of shape (p,) and (q,)
        The positions of the columns in a row.
    """

    means: Floats
    factors: Floats
    offsets: Floats
    slopes: Floats
    numeric: Places
    other: Places


class Moments(NamedTuple):
    """Sums over the rows.

    Attributes
    ----------
    tallies : ndarray of shape (3, k + e)
        Sums of w tau, of tau where w > 0, and of w tau log L.
    first : ndarray of shape (k, p)
        Sums of w tau (x - mu).
    second : ndarray of shape (k, p), (1, p, p) or (k, p, p)
        Sums of the squares of these differences, or of their products (the upper triangle); shaped
        like the factors, with one matrix for all components if they share a factor.
    other : ndarray of shape (k + e, q)
        Sums of w tau x of the other columns.
    """

    tallies: Floats
    first: Floats
    second: Floats
    other: Floats


def em_pass(X: ArrayLike, densities: Densities, sample_weight: ArrayLike | None = None) -> Moments:
    """Compute the sums of one step of expectation and maximisation.

    The result has the same bits on any number of threads.

    Parameters
    ----------
    X : array_like of shape (n, d)
        The rows.
    densities : Densities
        The components.
    sample_weight : array_like of shape (n,), optional
        The rows' weights w >= 0; 1 each by default.

    Examples
    --------
    >>> places, log_share = np.arange(1), np.log([0.5, 0.5])
    >>> two = Densities(np.array([[0.0], [9.0]]), np.ones((2, 1)), log_share, np.zeros((2, 0)),
    ...                 places, places[:0])
    >>> sums = em_pass([[1.0], [-1.0], [8.0]], two)
    >>> sums.tallies[0].round(6), sums.second.round(6).ravel()
    (array([2., 1.]), array([2., 1.]))
    """
    rows, weights = as_rows(X), as_weights(sample_weight)
    n, work_of_row = len(rows), densities.factors.size + densities.slopes.size + 1
    # some 2 million products a chunk, which is worth a call, and at most 128 sums to add
    chunk_rows = max((1 << 21) // work_of_row, 1024, -(-n // 128))
    chunk_rows += -chunk_rows % BLOCK
    layout, n_chunks = _layout(densities), -(-n // chunk_rows)
    pool = BufferPool(lambda: _no_moments(densities), _add)

    def work(chunk: int) -> None:
        part, sums = slice(chunk * chunk_rows, (chunk + 1) * chunk_rows), pool.take()
        # the same kernel adds rows with and without covariances
        _add_rows(as_double_rows(rows[part]), weights[part], layout, sums)
        pool.hand_in(chunk, sums)

    for_each_chunk(work, n_chunks, thread_count() if n * work_of_row >= 1 << 18 else 1)
    return _about_means(pool.total, densities, layout)


def log_densities(X: ArrayLike, densities: Densities) -> Floats:
    """Return the log density of each row in each component, including shares, (n, k + e)."""
    rows, layout = as_double_rows(X), _layout(densities)
    logs = np.empty((len(rows), len(densities.offsets)))
    _write_logs(rows, layout, logs)
    return logs


class Layout(NamedTuple):
    """Components in the layout that the loops expect.

    Attributes
    ----------
    means, offsets, slopes, numeric, other
        As in `Densities`.
    shift : ndarray of shape (p,)
        Subtracted from rows first: if one factor serves all, the middle of the means.
    places, scales : ndarray of shape (k, p)
        The means in the space in which distances are computed, and the scale of each column there.
    turns : ndarray of shape (0, p, p), (1, p, p) or (k, p, p)
        The non-diagonal factors.
    """

    means: Floats
    offsets: Floats
    slopes: Floats
    numeric: Places
    other: Places
    shift: Floats
    places: Floats
    scales: Floats
    turns: Floats


def _layout(densities: Densities) -> Layout:
    """Return components as C-ordered arrays in the layout that the loops expect."""
    means, factors, *rest = densities
    p, places, scales = means.shape[1], means, np.ones(means.shape)
    shift, turns = np.zeros(p), factors
    if factors.ndim == 2:
        scales, turns = factors, np.zeros((0, p, p))
    elif len(factors) == 1:
        shift = means.mean(axis=0)
        places = (means - shift) @ np.triu(factors[0])
    arrays: Any = map(np.ascontiguousarray, (means, *rest, shift, places, scales, turns))
    return Layout(*arrays)


def _no_moments(densities: Densities) -> Moments:
    (k, p), (lines, q) = densities.means.shape, densities.slopes.shape
    shape = (k, 1, p) if densities.factors.ndim == 2 else densities.factors.shape
    return Moments(np.zeros((3, lines)), np.zeros((k, p)), np.zeros(shape), np.zeros((lines, q)))


def _add(sums: Moments, more: Moments) -> None:
    for array, other in zip(sums, more, strict=True):
        array += other
        other.fill(0.0)


def _about_means(sums: Moments, densities: Densities, layout: Layout) -> Moments:
    """Return the moments; with one factor for all, change products to be about the own means.

    They were computed about the shift s: with b = mu - s, the sum of products about mu is that
    about s less S b^T + b S^T + N b b^T, S and N being the first moment and the weight.
    """
    if densities.factors.ndim == 2:
        return sums._replace(second=sums.second[:, 0])
    if len(densities.factors) != 1:
        return sums
    apart, weights = densities.means - layout.shift, sums.tallies[0, : len(densities.means)]
    mixed = sums.first.T @ apart
    moved = mixed + mixed.T + (apart * weights[:, None]).T @ apart
    return sums._replace(second=sums.second - np.triu(moved))


@native_in_any_order
def _add_rows(X: Floats, sample_weight: Weights, layout: Layout, sums: Moments) -> None:
    """Add rows to the sums."""
    p, q = len(layout.numeric), len(layout.other)
    columns, turned, other = np.empty((p, BLOCK)), np.empty((p, BLOCK)), np.empty((q, BLOCK))
    logs = np.empty((len(layout.offsets), BLOCK))
    for start in range(0, len(X), BLOCK):
        n = min(BLOCK, len(X) - start)
        rows = X[start : start + n]
        _read(rows, layout, columns, other)
        _log_densities(columns, other, n, layout, turned, logs)
        _responsibilities(logs, n, sample_weight[start : start + n], sums.tallies)
        for j in range(len(logs)):
            for c in range(q):
                sums.other[j, c] += _dot(logs[j], other[c], n)
        # overwrites the weights if there is one factor
        _add_moments(columns, n, logs, layout, turned, sums)


@native_in_any_order
def _write_logs(X: Floats, layout: Layout, out: Floats) -> None:
    """Write the log densities of rows, (n, k + e)."""
    p, q = len(layout.numeric), len(layout.other)
    columns, turned, other = np.empty((p, BLOCK)), np.empty((p, BLOCK)), np.empty((q, BLOCK))
    logs = np.empty((len(layout.offsets), BLOCK))
    for start in range(0, len(X), BLOCK):
        n = min(BLOCK, len(X) - start)
        _read(X[start : start + n], layout, columns, other)
        _log_densities(columns, other, n, layout, turned, logs)
        for r in range(n):
            for j in range(len(logs)):
                out[start + r, j] = logs[j, r]


@inner_in_any_order
def _read(X: Floats, layout: Layout, columns: Floats, other: Floats) -> None:
    """Write the rows of a block as columns."""
    for c in range(len(layout.shift)):
        place = layout.numeric[c]
        for r in range(len(X)):
            columns[c, r] = X[r, place] - layout.shift[c]
    for c in range(len(other)):
        place = layout.other[c]
        for r in range(len(X)):
            other[c, r] = X[r, place]


@inner_in_any_order
def _log_densities(
    columns: Floats,
    other: Floats,
    n: int,
    layout: Layout,
    turned: Floats,
    logs: Floats,
) -> None:
    """Write log densities, (k + e, n); the array ``turned`` is overwritten."""
    k, one = len(layout.places), len(layout.turns) == 1
    for j in range(len(logs)):
        logs[j, :n] = layout.offsets[j]
        for c in range(len(other)):
            slope = layout.slopes[j, c]
            for r in range(n):
                logs[j, r] += slope * other[c, r]
    if one:
        _turn(columns, n, np.zeros(len(columns)), layout.turns[0], turned)
    for j in range(k):
        if len(layout.turns) == 0 or one:
            source = turned if one else columns
            _subtract_squares(source, n, layout.places[j], layout.scales[j], logs[j])
        else:
            _turn(columns, n, layout.places[j], layout.turns[j], turned)
            _subtract_squares(turned, n, layout.shift, layout.scales[j], logs[j])


@inner_in_any_order
def _subtract_squares(columns: Floats, n: int, at: Floats, scales: Floats, log: Floats) -> None:
    """Subtract half the scaled squared distance of each row from its log density.

    Two columns at a time are processed, so that the log density is read and written half as often.
    """
    whole = len(at) - len(at) % 2
    for c in range(0, whole, 2):
        center, scale, next_center, next_scale = at[c], scales[c], at[c + 1], scales[c + 1]
        for r in range(n):
            apart = (columns[c, r] - center) * scale
            next_apart = (columns[c + 1, r] - next_center) * next_scale
            log[r] -= 0.5 * (apart * apart + next_apart * next_apart)
    for c in range(whole, len(at)):
        center, scale = at[c], scales[c]
        for r in range(n):
            apart = (columns[c, r] - center) * scale
            log[r] -= 0.5 * apart * apart


@inner_in_any_order
def _turn(columns: Floats, n: int, at: Floats, factor: Floats, turned: Floats) -> None:
    """Write (x - at) F for an upper triangular F."""
    for c in range(len(at)):
        turned[c, :n] = 0.0
        for b in range(c + 1):
            center, scale = at[b], factor[b, c]
            for r in range(n):
                turned[c, r] += (columns[b, r] - center) * scale


@inner_in_any_order
def _responsibilities(logs: Floats, n: int, sample_weight: Weights, tallies: Floats) -> None:
    """Turn log densities into w tau in place, and add them to the tallies."""
    k, top, total, powers = len(logs), np.full(n, -np.inf), np.zeros(n), np.empty(n)
    for j in range(k):
        for r in range(n):
            top[r] = max(top[r], logs[j, r])
    for r in range(n):
        if top[r] == -np.inf:  # all densities underflow to 0
            top[r] = 0.0
    for j in range(k):
        _exponential(logs[j], top, n, powers)
        for r in range(n):
            total[r] += logs[j, r]
    for r in range(n):
        top[r] = top[r] + log(total[r]) if total[r] > 0 else 0.0
        total[r] = 1.0 / total[r] if total[r] > 0 else 0.0
    for j in range(k):
        _weigh(logs[j], total, top, sample_weight, tallies[:, j])


@native_in_any_order
def _weigh(
    part: Floats, scale: Floats, likelihood: Floats, sample_weight: Weights, tally: Floats
) -> None:
    """Turn parts of a sum into w tau in place, and add up weights, rows and likelihoods."""
    weights, rows, likelihoods = 0.0, 0.0, 0.0
    for r in range(len(scale)):
        tau = part[r] * scale[r]
        w = sample_weight[r] if len(sample_weight) else 1.0
        rows += tau if w > 0 else 0.0
        part[r] = w * tau
        weights += w * tau
        likelihoods += w * tau * likelihood[r]
    tally[0] += weights
    tally[1] += rows
    tally[2] += likelihoods


@inner
def _exponential(values: Floats, top: Floats, n: int, powers: Floats) -> None:
    """Replace the first n numbers x by exp(x - top), top >= x, to a relative error of 4e-16.

    ``powers`` is overwritten.

    exp x = 2^m exp r, |r| <= ln 2 / 2, with the Taylor sum of exp r; LLVM vectorises it.
    """
    bits = powers.view(np.int64)
    for i in range(n):
        x = max(values[i] - top[i], LEAST_EXPONENT)
        powers[i] = x * LOG2E + MAGIC
        m = powers[i] - MAGIC
        r = (x - m * LN2_HIGH) - m * LN2_LOW
        values[i] = _taylor(r) if x > LEAST_EXPONENT else 0.0
    for i in range(n):
        bits[i] = (bits[i] << 52) + (1023 << 52)
    for i in range(n):
        values[i] *= powers[i]


@inlined
def _taylor(r: float) -> float:
    """Return exp r for |r| <= ln 2 / 2: the sum of r^i / i! to i = 13."""
    high = 1 / 479001600 + r / 6227020800
    high = 1 / 3628800 + r * (1 / 39916800 + r * high)
    high = 1 / 40320 + r * (1 / 362880 + r * high)
    high = 1 / 720 + r * (1 / 5040 + r * high)
    high = 1 / 24 + r * (1 / 120 + r * high)
    high = 0.5 + r * (1 / 6 + r * high)
    return 1.0 + r * (1.0 + r * high)


@inner_in_any_order
def _add_moments(
    columns: Floats,
    n: int,
    weights: Floats,
    layout: Layout,
    apart: Floats,
    sums: Moments,
) -> None:
    """Add first and second moments about the means; the array ``apart`` is overwritten."""
    k, p = layout.means.shape
    for j in range(k):
        if len(layout.turns) == 0:
            _add_squares(columns, n, weights[j], layout.means[j], sums.first[j], sums.second[j, 0])
            continue
        for c in range(p):
            center = layout.means[j, c] - layout.shift[c]
            for r in range(n):
                apart[c, r] = columns[c, r] - center
            sums.first[j, c] += _dot(weights[j], apart[c], n)
        if len(layout.turns) > 1:
            _add_products(apart, n, weights[j], sums.second[j])
    if len(layout.turns) == 1:
        for j in range(1, k):
            for r in range(n):
                weights[0, r] += weights[j, r]
        _add_products(columns, n, weights[0], sums.second[0])


@inner_in_any_order
def _add_squares(
    columns: Floats, n: int, weight: Floats, mean: Floats, first: Floats, second: Floats
) -> None:
    """Add the sums of w (x - mean) and w (x - mean)^2, reading each column once."""
    for c in range(len(mean)):
        center, sums, squares = mean[c], 0.0, 0.0
        for r in range(n):
            apart = columns[c, r] - center
            weighed = weight[r] * apart
            sums += weighed
            squares += weighed * apart
        first[c] += sums
        second[c] += squares


@inner_in_any_order
def _add_products(columns: Floats, n: int, weight: Floats, products: Floats) -> None:
    """Add the upper triangle of the sum of w x x^T."""
    weighed = np.empty(n)
    for a in range(len(columns)):
        for r in range(n):
            weighed[r] = weight[r] * columns[a, r]
        for b in range(a, len(columns)):
            products[a, b] += _dot(weighed, columns[b], n)


@inner_in_any_order
def _dot(a: Floats, b: Floats, n: int) -> float:
    total = 0.0
    for r in range(n):
        total += a[r] * b[r]
    return total
