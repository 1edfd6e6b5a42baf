"""The inner loops of a fuzzy pass: blocks of rows, transposed, so that LLVM makes vectors of rows.

With squared distances D_j of a row to the centres, and near_j = min_l D_l / D_j, which is 1 for
the nearest centre and 0 for a centre apart from a row that lies on another one:

    g_j = near_j^(1 / (m - 1))        T = sum_l g_l        u_j = g_j / T
    u_j^m = near_j g_j T^-m           u_j^m D_j = g_j T^-m min_l D_l

so that there is one division for each row and centre, and no power where m = 2.

``tallies`` are an array (4, k) of sums over rows: of w u^m, of w u, of u where w > 0, and of
w u^m D.
"""

import numpy as np
from numpy.typing import NDArray

from fedcluster.kernels._native import native_in_any_order
from fedcluster.kernels._rows import Rows, Weights

BLOCK = 128  # rows


@native_in_any_order
def add_rows(
    X: Rows,
    centers: NDArray[np.float64],
    m: float,
    sample_weight: Weights,
    degrees: NDArray[np.float64],
    residuals: NDArray[np.float64],
    tallies: NDArray[np.float64],
) -> float:
    """Add w u^m (x - c) to the residuals (k, d), and to the tallies.

    The degrees u (n, k) are brought up to date where there are any; their squared change is
    returned.
    """
    (k, d), change = centers.shape, 0.0
    columns, squared, smallest = np.empty((d, BLOCK)), np.empty((k, BLOCK)), np.empty(BLOCK)
    for start in range(0, len(X), BLOCK):
        n = min(BLOCK, len(X) - start)
        rows = slice(start, start + n)
        for r in range(n):
            for c in range(d):
                columns[c, r] = X[start + r, c]
        _measure(columns, centers, n, squared, smallest)
        change += weigh(squared, smallest, n, m, sample_weight[rows], degrees[rows], tallies)
        _add(squared, columns, centers, n, residuals)
    return change


@native_in_any_order
def _measure(
    columns: NDArray[np.float64],
    centers: NDArray[np.float64],
    n: int,
    squared: NDArray[np.float64],
    smallest: NDArray[np.float64],
) -> None:
    """Squared distances (k, n), and the smallest of each row."""
    k, d = centers.shape
    smallest[:n] = np.inf
    for j in range(k):
        squared[j, :n] = 0.0
        for c in range(d):
            center = centers[j, c]
            for r in range(n):
                squared[j, r] += (columns[c, r] - center) ** 2
        lower(smallest, squared[j], n)


@native_in_any_order
def lower(smallest: NDArray[np.float64], values: NDArray[np.float64], n: int) -> None:
    """Keep the lesser of the first n of both."""
    for r in range(n):
        smallest[r] = min(smallest[r], values[r])


@native_in_any_order
def weigh(
    squared: NDArray[np.float64],
    smallest: NDArray[np.float64],
    n: int,
    m: float,
    sample_weight: Weights,
    degrees: NDArray[np.float64],
    tallies: NDArray[np.float64],
) -> float:
    """Turn squared distances (k, n) into weights w u^m in place; the rest as in ``add_rows``."""
    k, g, total = len(squared), np.empty((len(squared), n)), np.zeros(n)
    _compare(squared, smallest, m, g, total)
    weight, share, row, error = _factors(total, smallest, m, sample_weight)
    for j in range(k):
        weights, supports, rows, errors = 0.0, 0.0, 0.0, 0.0
        for r in range(n):
            squared[j, r] *= weight[r]
            weights += squared[j, r]
            supports += share[r] * g[j, r]
            rows += row[r] * g[j, r]
            errors += error[r] * g[j, r]
        tallies[0, j] += weights
        tallies[1, j] += supports
        tallies[2, j] += rows
        tallies[3, j] += errors
    return _update(degrees, g, total)


@native_in_any_order
def _compare(
    squared: NDArray[np.float64],
    smallest: NDArray[np.float64],
    m: float,
    g: NDArray[np.float64],
    total: NDArray[np.float64],
) -> None:
    """Write g (k, n), its sums T (n,), and near g in the place of the squared distances."""
    k, n = g.shape
    near = squared
    for j in range(k):
        for r in range(n):
            near[j, r] = smallest[r] / squared[j, r]
    for r in range(n):
        if smallest[r] == 0.0:
            for j in range(k):  # 0 / 0 is no number
                near[j, r] = 0.0 if near[j, r] == 0.0 else 1.0
    for j in range(k):
        if m == 2.0:
            for r in range(n):
                g[j, r] = near[j, r]
        else:
            for r in range(n):
                g[j, r] = near[j, r] ** (1.0 / (m - 1.0))
        for r in range(n):
            near[j, r] *= g[j, r]
            total[r] += g[j, r]


@native_in_any_order
def _factors(
    total: NDArray[np.float64], smallest: NDArray[np.float64], m: float, sample_weight: Weights
) -> tuple[NDArray[np.float64], ...]:
    """What near g, and three times g, of each row are multiplied by to be added up."""
    n = len(total)
    weight, share, row, error = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    for r in range(n):
        w = sample_weight[r] if len(sample_weight) else 1.0
        power = 1.0 / (total[r] * total[r]) if m == 2.0 else total[r] ** -m
        weight[r], share[r], row[r] = w * power, w / total[r], (w > 0.0) / total[r]
        error[r] = weight[r] * smallest[r]
    return weight, share, row, error


@native_in_any_order
def _update(
    degrees: NDArray[np.float64], g: NDArray[np.float64], total: NDArray[np.float64]
) -> float:
    """Write the degrees, where there is room for them; the squares of their changes, added up."""
    change = 0.0
    for r in range(len(degrees)):
        for j in range(len(g)):
            u = g[j, r] / total[r]
            change += (u - degrees[r, j]) ** 2
            degrees[r, j] = u
    return change


@native_in_any_order
def _add(
    weights: NDArray[np.float64],
    columns: NDArray[np.float64],
    centers: NDArray[np.float64],
    n: int,
    residuals: NDArray[np.float64],
) -> None:
    """Add v (x - c) to the residuals (k, d), for weights v (k, n)."""
    k, d = centers.shape
    for j in range(k):
        for c in range(d):
            total, center = 0.0, centers[j, c]
            for r in range(n):
                total += weights[j, r] * (columns[c, r] - center)
            residuals[j, c] += total
