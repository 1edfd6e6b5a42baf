"""Fuzzy passes and fuzzy c-means: each row belongs to every centre to some degree.

J. C. Bezdek, Pattern Recognition with Fuzzy Objective Function Algorithms, 1981:

    u_ij = 1 / sum_l (|x_i - c_j|^2 / |x_i - c_l|^2)^(1 / (m - 1))
    c_j  = sum_i u_ij^m x_i / sum_i u_ij^m            J_m = sum_ij u_ij^m |x_i - c_j|^2

A row that coincides with centres belongs to these alone, in equal parts. With m near 1 a centre
far from all rows may have memberships too small for numbers; below ``FAINTEST`` their sum is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import iadd

import numpy as np
from numpy.typing import ArrayLike

from fedcluster.core import Floats
from fedcluster.kernels._memberships import add_rows, add_wide_rows, pack_wide_centers, whole_tiles
from fedcluster.kernels._rows import Rows, Weights, as_centers, as_rows, as_weights
from fedcluster.kernels._threads import BufferPool, for_each_chunk, thread_count

CHUNK_WORK, FEWEST_CHUNK_ROWS, MOST_CHUNKS = 1 << 20, 1024, 128
WORTH_A_THREAD = 1 << 18
WIDE = 16  # columns from which on matrix products pay
FAINTEST = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
"""Sums of u^m from here on have full precision, and so have the means that they weigh."""


@dataclass(frozen=True, slots=True, eq=False)
class FuzzyPass:
    """Sums over the rows, for each centre.

    Attributes
    ----------
    sums : ndarray of shape (k, d)
        Sums of w u^m x.
    weights : ndarray of shape (k,)
        Sums of w u^m.
    supports : ndarray of shape (k,)
        Sums of w u.
    rows : ndarray of shape (k,)
        Sums of u: how many rows stand behind a centre, without their weights.
    errors : ndarray of shape (k,)
        Sums of w u^m |x - c|^2, in squared units of the rows; their sum is J_m.
    """

    sums: Floats
    weights: Floats
    supports: Floats
    rows: Floats
    errors: Floats


@dataclass(frozen=True, slots=True, eq=False)
class FuzzyFit:
    """Centres of fuzzy c-means, and the pass at these centres.

    Attributes
    ----------
    centers : ndarray of shape (k, d)
        The centres.
    last_pass : FuzzyPass
        The pass at these centres.
    n_iter : int
        The iterations run.
    """

    centers: Floats
    last_pass: FuzzyPass
    n_iter: int


def fuzzy_pass(
    X: ArrayLike, centers: ArrayLike, m: float, sample_weight: ArrayLike | None = None
) -> FuzzyPass:
    """Compute the sums of one step of fuzzy c-means, short of the division.

    The result has the same bits on any number of threads.

    Parameters
    ----------
    X : array_like of shape (n, d)
        The rows.
    centers : array_like of shape (k, d)
        The centres.
    m : float
        The fuzzifier, above 1.
    sample_weight : array_like of shape (n,), optional
        The rows' weights w >= 0; 1 each by default.

    Examples
    --------
    >>> sums = fuzzy_pass([[0.0], [1.0], [4.0]], centers=[[0.0], [4.0]], m=2.0)
    >>> sums.supports  # the row at 1 is nine times as near, in squares, to 0 as to 4
    array([1.9, 1.1])
    >>> sums.weights
    array([1.81, 1.01])
    """
    rows, weights = as_rows(X), as_weights(sample_weight)
    return _sweep(rows, as_centers(centers), m, weights, np.empty((0, 0)))[0]


def memberships(X: ArrayLike, centers: ArrayLike, m: float) -> Floats:
    """Compute the memberships u, (n, k), of rows in clusters; each row sums to 1.

    Examples
    --------
    >>> memberships([[0.0], [1.0], [4.0]], centers=[[0.0], [4.0]], m=2.0)
    array([[1. , 0. ],
           [0.9, 0.1],
           [0. , 1. ]])
    """
    rows, centers = as_rows(X), as_centers(centers)
    u = np.zeros((len(rows), len(centers)))
    _sweep(rows, centers, m, as_weights(None), u)
    return u


def fuzzy_cmeans(
    X: ArrayLike,
    centers: ArrayLike,
    m: float,
    sample_weight: ArrayLike | None = None,
    *,
    max_iter: int = 1000,
    tol: float = 1e-4,
) -> FuzzyFit:
    """Run fuzzy c-means on rows in one place, from given centres.

    Stops when the Frobenius norm of the change of all memberships (n, k) falls below ``tol``.

    Examples
    --------
    >>> fit = fuzzy_cmeans([[0.0], [1.0], [9.0], [10.0]], [[0.0], [1.0]], m=2.0)
    >>> fit.centers.round(2)
    array([[0.5],
           [9.5]])
    """
    rows, centers, weights = as_rows(X), as_centers(centers), as_weights(sample_weight)
    u = np.zeros((len(rows), len(centers)))
    sums, _ = _sweep(rows, centers, m, weights, u)
    for n_iter in range(1, max_iter + 1):
        some = sums.weights > 0
        centers = centers.copy()
        centers[some] = sums.sums[some] / sums.weights[some, None]
        sums, change = _sweep(rows, centers, m, weights, u)
        if change < tol:
            return FuzzyFit(centers, sums, n_iter)
    return FuzzyFit(centers, sums, max_iter)


def _sweep(
    X: Rows, centers: Floats, m: float, sample_weight: Weights, memberships: Floats
) -> tuple[FuzzyPass, float]:
    """Return the sums of a pass, and how far it changed the memberships (n, k).

    The memberships are written in place; empty ones are left alone.
    """
    n, (k, d) = len(X), centers.shape
    if d < WIDE:
        add, base, shape, enough = add_rows, centers, (k, d), CHUNK_WORK // (k * d)
    else:
        packed = pack_wide_centers(centers)
        add, base, shape = partial(add_wide_rows, packed), packed.shift, whole_tiles(k, d)
        enough = -(-n // MOST_CHUNKS)
    chunk_rows = max(enough, FEWEST_CHUNK_ROWS)
    n_chunks = -(-n // chunk_rows)
    buffers = BufferPool(lambda: np.zeros(shape), lambda buffer: buffer.fill(0.0), iadd)
    tallies, changes = np.zeros((n_chunks, 4, k)), np.zeros(n_chunks)

    def work(chunk: int) -> None:
        rows, residuals = slice(chunk * chunk_rows, (chunk + 1) * chunk_rows), buffers.take()
        u, sums = memberships[rows], (residuals, tallies[chunk])
        changes[chunk] = add(X[rows], centers, m, sample_weight[rows], u, *sums)
        buffers.hand_in(chunk, residuals)

    for_each_chunk(work, n_chunks, thread_count() if n * k * d >= WORTH_A_THREAD else 1)
    total, *others = tallies.sum(axis=0)
    total[total < FAINTEST] = 0.0
    # sum of v x = sum of v (x - b) + (sum of v) b
    residual = buffers.total[:k, :d]
    sums = np.where(total[:, None] > 0, residual + total[:, None] * base, 0.0)
    return FuzzyPass(sums, total, *others), float(np.sqrt(changes.sum()))
