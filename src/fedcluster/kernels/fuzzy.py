"""Fuzzy assignment: each row belongs to every centre to some degree.

J. C. Bezdek, Pattern Recognition with Fuzzy Objective Function Algorithms, 1981:

    u_ij = 1 / sum_l (|x_i - c_j|^2 / |x_i - c_l|^2)^(1 / (m - 1))
    c_j  = sum_i u_ij^m x_i / sum_i u_ij^m            J_m = sum_ij u_ij^m |x_i - c_j|^2

A row that coincides with centres belongs to these alone, in equal parts. With m near 1 a centre
far from all rows may have degrees too small for numbers; below ``FAINTEST`` their sum is none.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.kernels.blas import blas_on_one_thread
from fedcluster.kernels.native import native, native_in_any_order
from fedcluster.kernels.rows import Rows, Weights, as_centers, as_rows, as_weights
from fedcluster.kernels.threads import for_each_chunk, thread_count

__all__ = ["FuzzyFit", "FuzzyPass", "fuzzy_cmeans", "fuzzy_pass", "memberships"]

CHUNK_WORK = 1 << 20
WORTH_A_THREAD = 1 << 18
BLOCK = 64  # rows
WIDE = 16  # columns from which on matrix products pay
MOST_CHUNKS = 128
CANCELLED = 1e-5  # of |z|^2 + |c|^2: a smaller squared distance is measured directly
FAINTEST = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
"""Sums of u^m from here on have full precision, and so have the means that they weigh."""


@dataclass(frozen=True, slots=True, eq=False)
class FuzzyPass:
    """What one sweep over the rows says about each centre.

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

    sums: NDArray[np.float64]
    weights: NDArray[np.float64]
    supports: NDArray[np.float64]
    rows: NDArray[np.float64]
    errors: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class FuzzyFit:
    """Centres of fuzzy c-means and the last pass, which belongs to them.

    Attributes
    ----------
    centers : ndarray of shape (k, d)
        The centres.
    found : FuzzyPass
        The pass at these centres.
    n_iter : int
        The iterations run.
    """

    centers: NDArray[np.float64]
    found: FuzzyPass
    n_iter: int


def fuzzy_pass(
    X: ArrayLike, centers: ArrayLike, m: float, sample_weight: ArrayLike | None = None
) -> FuzzyPass:
    """One step of fuzzy c-means, short of the division; the same bits on any number of threads.

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
    >>> found = fuzzy_pass([[0.0], [1.0], [4.0]], centers=[[0.0], [4.0]], m=2.0)
    >>> found.supports  # the row at 1 is nine times as near, in squares, to 0 as to 4
    array([1.9, 1.1])
    >>> found.weights
    array([1.81, 1.01])
    """
    rows, weights = as_rows(X), as_weights(sample_weight)
    found, _ = _sweep(rows, as_centers(centers), m, weights, np.empty((0, 0)))
    return found


def memberships(X: ArrayLike, centers: ArrayLike, m: float) -> NDArray[np.float64]:
    """Degrees u, (n, k), to which rows belong to centres; each row sums to 1.

    Examples
    --------
    >>> memberships([[0.0], [1.0], [4.0]], centers=[[0.0], [4.0]], m=2.0)
    array([[1. , 0. ],
           [0.9, 0.1],
           [0. , 1. ]])
    """
    rows, centers = as_rows(X), as_centers(centers)
    degrees = np.zeros((len(rows), len(centers)))
    _sweep(rows, centers, m, as_weights(None), degrees)
    return degrees


def fuzzy_cmeans(
    X: ArrayLike,
    centers: ArrayLike,
    m: float,
    sample_weight: ArrayLike | None = None,
    *,
    max_iter: int = 1000,
    tol: float = 1e-4,
) -> FuzzyFit:
    """Fuzzy c-means of rows in one place, from given centres.

    Stops when the Frobenius norm of the change of all memberships (n, k) falls below ``tol``.

    Examples
    --------
    >>> fit = fuzzy_cmeans([[0.0], [1.0], [9.0], [10.0]], [[0.0], [1.0]], m=2.0)
    >>> fit.centers.round(2)
    array([[0.5],
           [9.5]])
    """
    rows, centers, weights = as_rows(X), as_centers(centers), as_weights(sample_weight)
    degrees = np.zeros((len(rows), len(centers)))
    found, _ = _sweep(rows, centers, m, weights, degrees)
    for n_iter in range(1, max_iter + 1):
        some = found.weights > 0
        centers = centers.copy()
        centers[some] = found.sums[some] / found.weights[some, None]
        found, change = _sweep(rows, centers, m, weights, degrees)
        if change < tol:
            return FuzzyFit(centers, found, n_iter)
    return FuzzyFit(centers, found, max_iter)


def _sweep(
    X: Rows,
    centers: NDArray[np.float64],
    m: float,
    sample_weight: Weights,
    degrees: NDArray[np.float64],
) -> tuple[FuzzyPass, float]:
    """A pass; ``degrees``, where not empty, is brought up to date, and how far is returned."""
    n, (k, d) = len(X), centers.shape
    wide = d >= WIDE
    chunk_rows = max(512, -(-n // MOST_CHUNKS)) if wide else max(64, CHUNK_WORK // (k * d))
    n_chunks = -(-n // chunk_rows)
    residuals = np.zeros((n_chunks, k, d))
    weights, supports, counts, errors = np.zeros((4, n_chunks, k))
    changes = np.zeros(n_chunks)
    base = np.broadcast_to(centers.mean(axis=0), (k, d)) if wide else centers

    def work(chunk: int) -> None:
        rows = slice(chunk * chunk_rows, (chunk + 1) * chunk_rows)
        changes[chunk] = (_add_wide_rows if wide else _add_rows)(
            X[rows], centers, m, sample_weight[rows], degrees[rows],
            residuals[chunk], weights[chunk], supports[chunk], counts[chunk], errors[chunk],
        )  # fmt: skip

    with blas_on_one_thread() if wide else nullcontext():
        for_each_chunk(work, n_chunks, thread_count() if n * k * d >= WORTH_A_THREAD else 1)
    total = weights.sum(axis=0)
    total[total < FAINTEST] = 0.0
    # sum of v x = sum of v (x - b) + (sum of v) b
    sums = np.where(total[:, None] > 0, residuals.sum(axis=0) + total[:, None] * base, 0.0)
    found = FuzzyPass(sums, total, *(each.sum(axis=0) for each in (supports, counts, errors)))
    return found, float(np.sqrt(changes.sum()))


def _add_wide_rows(
    X: Rows,
    centers: NDArray[np.float64],
    m: float,
    sample_weight: Weights,
    degrees: NDArray[np.float64],
    residuals: NDArray[np.float64],
    weights: NDArray[np.float64],
    supports: NDArray[np.float64],
    counts: NDArray[np.float64],
    errors: NDArray[np.float64],
) -> float:
    """The same by two matrix products, with |z|^2 - 2 z.c + |c|^2 about the centres' mean."""
    shift = centers.mean(axis=0)
    Z, C = np.subtract(X, shift, dtype=np.float64), centers - shift
    squared = Z @ C.T
    change = _weigh_wide_rows(
        squared, Z, C, m, sample_weight, degrees, weights, supports, counts, errors
    )
    np.matmul(squared.T, Z, out=residuals)
    return float(change)


@native_in_any_order
def _weigh_wide_rows(
    products: NDArray[np.float64],
    Z: NDArray[np.float64],
    C: NDArray[np.float64],
    m: float,
    sample_weight: Weights,
    degrees: NDArray[np.float64],
    weights: NDArray[np.float64],
    supports: NDArray[np.float64],
    counts: NDArray[np.float64],
    errors: NDArray[np.float64],
) -> float:
    """Turn the products z.c into weights w u^m, in place; returns the change of the degrees."""
    k, change, u = len(C), 0.0, np.empty(len(C))
    norms = (C * C).sum(axis=1)
    largest = norms.max()
    for i in range(len(Z)):
        squared = products[i]
        norm = _dot(Z[i], Z[i])
        for j in range(k):
            squared[j] = norm - 2.0 * squared[j] + norms[j]
        if _smallest(squared) < CANCELLED * (norm + largest):  # few digits are left
            for j in range(k):
                squared[j] = _squared_distance(Z[i], C[j])
        _degrees(squared, m, u)
        if len(degrees):
            change += _squared_distance(u, degrees[i])
            degrees[i] = u
        w = sample_weight[i] if len(sample_weight) else 1.0
        one = 1.0 if w > 0.0 else 0.0
        for j in range(k):
            supports[j] += w * u[j]
            counts[j] += one * u[j]
        for j in range(k):
            u[j] = w * (u[j] * u[j] if m == 2.0 else u[j] ** m)
        for j in range(k):
            weights[j] += u[j]
            errors[j] += u[j] * squared[j]
        squared[:] = u
    return change


@native_in_any_order
def _dot(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    total = 0.0
    for c in range(len(a)):
        total += a[c] * b[c]
    return total


@native_in_any_order
def _squared_distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    total = 0.0
    for c in range(len(a)):
        total += (a[c] - b[c]) ** 2
    return total


@native_in_any_order
def _add_rows(
    X: Rows,
    centers: NDArray[np.float64],
    m: float,
    sample_weight: Weights,
    degrees: NDArray[np.float64],
    residuals: NDArray[np.float64],
    weights: NDArray[np.float64],
    supports: NDArray[np.float64],
    counts: NDArray[np.float64],
    errors: NDArray[np.float64],
) -> float:
    """Add each row to each centre; returns the squared change of the degrees.

    Rows are read in blocks, transposed, so that one instruction serves several rows.
    """
    k, d = centers.shape
    columns, w, one = np.empty((d, BLOCK)), np.ones(BLOCK), np.ones(BLOCK)
    squared, u, change = np.empty((k, BLOCK)), np.empty((k, BLOCK)), 0.0
    for start in range(0, len(X), BLOCK):
        n = min(BLOCK, len(X) - start)
        for r in range(n):
            for c in range(d):
                columns[c, r] = X[start + r, c]
            if len(sample_weight):
                w[r] = sample_weight[start + r]
                one[r] = 1.0 if w[r] > 0.0 else 0.0
        _measure_block(columns, centers, n, squared)
        _degrees_of_block(squared, m, n, u)
        if len(degrees):
            for j in range(k):
                for r in range(n):
                    change += (u[j, r] - degrees[start + r, j]) ** 2
                    degrees[start + r, j] = u[j, r]
        for j in range(k):
            for r in range(n):
                supports[j] += w[r] * u[j, r]
                counts[j] += one[r] * u[j, r]
            for r in range(n):
                u[j, r] = w[r] * (u[j, r] * u[j, r] if m == 2.0 else u[j, r] ** m)
            for r in range(n):
                weights[j] += u[j, r]
                errors[j] += u[j, r] * squared[j, r]
            for c in range(d):
                total, center = 0.0, centers[j, c]
                for r in range(n):
                    total += u[j, r] * (columns[c, r] - center)
                residuals[j, c] += total
    return change


@native_in_any_order
def _measure_block(
    columns: NDArray[np.float64],
    centers: NDArray[np.float64],
    n: int,
    squared: NDArray[np.float64],
) -> None:
    """Squared distances (k, n) of a block's n rows."""
    k, d = centers.shape
    for j in range(k):
        for r in range(n):
            squared[j, r] = 0.0
        for c in range(d):
            center = centers[j, c]
            for r in range(n):
                squared[j, r] += (columns[c, r] - center) ** 2


@native_in_any_order
def _degrees_of_block(
    squared: NDArray[np.float64], m: float, n: int, u: NDArray[np.float64]
) -> None:
    """The same as ``_degrees`` for a block's n rows at once."""
    k = len(squared)
    smallest, total = np.empty(n), np.zeros(n)
    for r in range(n):
        smallest[r] = squared[0, r]
    for j in range(1, k):
        for r in range(n):
            smallest[r] = squared[j, r] if squared[j, r] < smallest[r] else smallest[r]
    for j in range(k):
        for r in range(n):
            near = smallest[r] / squared[j, r] if squared[j, r] > 0.0 else 1.0
            u[j, r] = near if m == 2.0 else near ** (1.0 / (m - 1.0))
        for r in range(n):
            total[r] += u[j, r]
    for r in range(n):
        total[r] = 1.0 / total[r]
    for j in range(k):
        for r in range(n):
            u[j, r] *= total[r]


@native_in_any_order
def _degrees(squared: NDArray[np.float64], m: float, u: NDArray[np.float64]) -> None:
    """u_j = 1 / sum_l (d_j^2 / d_l^2)^(1 / (m - 1)), scaled by the smallest d^2."""
    smallest, total = _smallest(squared), 0.0
    if smallest == 0.0:
        for j in range(len(u)):
            u[j] = 1.0 if squared[j] == 0.0 else 0.0
    elif m == 2.0:
        for j in range(len(u)):
            u[j] = smallest / squared[j]
    else:
        for j in range(len(u)):
            u[j] = (smallest / squared[j]) ** (1.0 / (m - 1.0))
    for j in range(len(u)):
        total += u[j]
    for j in range(len(u)):
        u[j] *= 1.0 / total


@native
def _smallest(values: NDArray[np.float64]) -> float:
    """The smallest value; four at a time, which takes a third of the time of ``min``."""
    n, a = len(values), values[0]
    b, c, d = a, a, a
    for j in range(0, n - 3, 4):
        a = values[j] if values[j] < a else a
        b = values[j + 1] if values[j + 1] < b else b
        c = values[j + 2] if values[j + 2] < c else c
        d = values[j + 3] if values[j + 3] < d else d
    for j in range(n - n % 4, n):
        a = values[j] if values[j] < a else a
    return min(min(a, b), min(c, d))
