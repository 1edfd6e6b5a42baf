"""Fuzzy c-means on rows in one place: memberships, sums, and whole runs.

Compiled inner loops of a fuzzy pass: narrow rows by differences, wide ones by matrix products.

With squared distances D_j of a row to the centres, and near_j = min_l D_l / D_j, which is 1 for
the nearest centre and 0 for a centre apart from a row that lies on another one:

    g_j = near_j^(1 / (m - 1))        T = sum_l g_l        u_j = g_j / T
    u_j^m = near_j g_j T^-m           u_j^m D_j = g_j T^-m min_l D_l

so that there is one division for each row and centre, and no power if m = 2. Rows are read in
transposed blocks, so that LLVM makes vectors of rows.

Rows of many columns take two matrix products per block, about the centres' mean s. With z = x - s
and c less the same s, the first product, z.c, gives the squared distances

    |x - c|^2 = |z|^2 - 2 z.c + |c|^2,

and the second one sums w u^m z. Matrices are padded with 0 to whole tiles of products, and the rows
of a block stay in the cache from one product to the other.

``tallies`` are an array (4, k) of sums over rows: of w u^m, of w u, of u where w > 0, and of
w u^m D.

Fuzzy passes and fuzzy c-means: each row belongs to every centre to some degree.

J. C. Bezdek, Pattern Recognition with Fuzzy Objective Function Algorithms, 1981:

    u_ij = 1 / sum_l (|x_i - c_j|^2 / |x_i - c_l|^2)^(1 / (m - 1))
    c_j  = sum_i u_ij^m x_i / sum_i u_ij^m            J_m = sum_ij u_ij^m |x_i - c_j|^2

A row that coincides with centres belongs to these alone, in equal parts. With m near 1, memberships
in a centre far from all rows may underflow; a sum below ``FAINTEST`` counts as 0.

Powers of many numbers in vectors; those of the C library are computed one by one.

    x = 2^e z                     log2 x = e + log2 z,   1 / sqrt 2 <= z < sqrt 2
    s = (z - 1) / (z + 1)         log2 z = 2 / ln 2 (s + s^3 / 3 + s^5 / 5 + ...)
    p log2 x = n + f              x^p = 2^n 2^f,   |f| <= 1 / 2,   2^f = 1 + f ln 2 + ...

A small power has a large logarithm, whose last digits count, so that each logarithm is a sum of
two numbers, ``high + low``, with 64 digits or more. These need each operation as it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from math import factorial
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import ArrayLike

from fedcluster.core import Floats
from fedcluster.core.threads import BufferPool, for_each_chunk, thread_count
from fedcluster.kernels._blocks import squared_distance
from fedcluster.kernels._tiles import (
    PRODUCT_COLUMNS,
    PRODUCT_ROWS,
    add_product,
    aligned_zeros,
    lanes,
    write_distances,
)
from fedcluster.kernels.rows import Rows, Weights, as_centers, as_rows, as_weights
from fedcluster.kernels.runtime import (
    inlined,
    inner,
    inner_as_written,
    inner_in_any_order,
    native,
    native_in_any_order,
)

LN2 = Decimal(2).ln()
_EXACT = [2 / LN2 / (2 * i + 1) for i in range(12)]
LOG = tuple(map(float, _EXACT))
LOG_LOW = tuple(float(exact - Decimal(near)) for exact, near in zip(_EXACT, LOG, strict=True))
EXP = tuple(float(LN2**i / factorial(i)) for i in range(14))

SMALLEST_NORMAL, SCALE, LOWEST = 2.0**-1022, 54, -1021.0  # subnormal numbers have less precision
TO_WHOLE, ROUND = 2.0**52, 1.5 * 2**52  # adding 2^52 leaves an integer in the low bits of a double
BIAS = TO_WHOLE + 1023
PLACES, ONE, SIGN_AND_EXPONENT, TO_ROOT = map(
    np.uint64, (52, 0x3FF << 52, 0xFFF << 52, (0x3FF << 52) - 0x3FE6A09E667F3BCD)
)
WHOLE_BITS = np.float64(TO_WHOLE).view(np.uint64)


@intrinsic
def fused(typing_context: object, a: types.Type, b: types.Type, c: types.Type) -> object:
    """Return a b + c, rounded once."""

    def generate(context: object, builder: ir.IRBuilder, signature: object, args: Any) -> ir.Value:
        kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()] * 3)
        return builder.call(
            cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.f64"), args
        )

    return types.float64(types.float64, types.float64, types.float64), generate


@inner_as_written
def write_powers(bases: Floats, p: float, powers: Floats) -> None:
    """Write x^p for the first numbers x: 0 <= x <= 1 and p > 0, or 1 <= x and p < 0.

    They are exact but for 1.25 units in the last place, and 0 below 2^-1021.
    """
    for i in range(len(powers)):
        x = bases[i]
        high, low = _log2(x)
        y = p * high
        f_low = fused(p, high, -y) + p * low
        y = max(y, -1100.0)
        n = (y + ROUND) - ROUND
        exponent = np.float64(y + ROUND).view(np.uint64) << PLACES
        scale = np.uint64(exponent + ONE).view(np.float64)
        power = _exp2((y - n) + f_low) * scale if n >= LOWEST else 0.0
        powers[i] = power if x > 0.0 else x  # 0 or NaN passes through


@inlined
def _log2(x: float) -> tuple[float, float]:
    """Return the logarithm of a positive number in two parts."""
    scaled = x * 2.0**SCALE if x < SMALLEST_NORMAL else x
    bits = np.float64(scaled).view(np.uint64)
    exponent = np.uint64(((bits + TO_ROOT) >> PLACES) | WHOLE_BITS).view(np.float64)
    e = exponent - (BIAS + SCALE if x < SMALLEST_NORMAL else BIAS)
    z = np.uint64(bits - ((bits + TO_ROOT) & SIGN_AND_EXPONENT) + ONE).view(np.float64)
    a, b = z - 1.0, z + 1.0
    b_low, inverse = z - (b - 1.0), 1.0 / b
    s = a * inverse
    s_low = inverse * fused(-s, b_low, fused(-s, b, a))
    q = s * s
    q_low = fused(s, s, -q) + 2.0 * s * s_low
    cube = s * q
    cube_low = fused(s, q, -cube) + fused(s, q_low, s_low * q)
    rest = q * _log_series(q)
    factor = LOG[1] + rest
    factor_low = (rest - (factor - LOG[1])) + LOG_LOW[1]
    second = cube * factor
    second_low = fused(cube, factor, -second) + fused(cube, factor_low, cube_low * factor)
    first = LOG[0] * s
    first_low = fused(LOG[0], s, -first) + fused(LOG[0], s_low, LOG_LOW[0] * s)
    log = first + second
    high = e + log
    return high, ((e - high) + log) + ((first - log) + second + (second_low + first_low))


@inlined
def _log_series(q: float) -> float:
    """Return the factor of s^5 in the logarithm, from even and odd terms at the same time."""
    r = q * q
    odd = fused(r, fused(r, fused(r, fused(r, LOG[11], LOG[9]), LOG[7]), LOG[5]), LOG[3])
    even = fused(r, fused(r, fused(r, fused(r, LOG[10], LOG[8]), LOG[6]), LOG[4]), LOG[2])
    return fused(q, odd, even)


@inlined
def _exp2(f: float) -> float:
    """Return 2^f."""
    r = f * f
    even = fused(r, fused(r, fused(r, EXP[12], EXP[10]), EXP[8]), EXP[6])
    even = fused(r, fused(r, even, EXP[4]), EXP[2])
    odd = fused(r, fused(r, fused(r, EXP[13], EXP[11]), EXP[9]), EXP[7])
    odd = fused(r, fused(r, fused(r, odd, EXP[5]), EXP[3]), EXP[1])
    return fused(f, fused(f, even, odd), 1.0)


NARROW_BLOCK = 128  # rows in a block, for few columns
WIDE_BLOCK = 96  # rows in a block, for many columns; a multiple of the tile
DEPTH = 256  # columns in a partial sum, which limits the rounding error
CACHE_LINE_NUMBERS = 8
# relative to |z|^2 + |c|^2; smaller squared distances are computed from differences
CANCELLED = 1e-5


@native_in_any_order
def add_rows(
    X: Rows,
    centers: Floats,
    m: float,
    sample_weight: Weights,
    memberships: Floats,
    residuals: Floats,
    tallies: Floats,
) -> float:
    """Add w u^m (x - c) to the residuals (k, d), and update the tallies.

    Writes the memberships u (n, k), unless that array is empty, and returns their squared change.
    """
    (k, d), change = centers.shape, 0.0
    columns, squared, smallest = (
        np.empty((d, NARROW_BLOCK)),
        np.empty((k, NARROW_BLOCK)),
        np.empty(NARROW_BLOCK),
    )
    for start in range(0, len(X), NARROW_BLOCK):
        n = min(NARROW_BLOCK, len(X) - start)
        rows = slice(start, start + n)
        for r in range(n):
            for c in range(d):
                columns[c, r] = X[start + r, c]
        _squared_distances(columns, centers, n, squared, smallest)
        change += _weigh(squared, smallest, n, m, sample_weight[rows], memberships[rows], tallies)
        _add_residuals(squared, columns, centers, n, residuals)
    return change


@inner_in_any_order
def _squared_distances(
    columns: Floats, centers: Floats, n: int, squared: Floats, smallest: Floats
) -> None:
    """Write squared distances (k, n) and the smallest one of each row."""
    k, d = centers.shape
    fours = d // 4 * 4
    for j in range(k):
        line = squared[j]
        line[:n] = 0.0
        for c in range(0, fours, 4):
            p, q, s, t = centers[j, c], centers[j, c + 1], centers[j, c + 2], centers[j, c + 3]
            x, y, z, v = columns[c], columns[c + 1], columns[c + 2], columns[c + 3]
            for r in range(n):  # four columns at a time: each distance is read and written once
                two = (line[r] + (x[r] - p) ** 2) + (y[r] - q) ** 2
                line[r] = (two + (z[r] - s) ** 2) + (v[r] - t) ** 2
        for c in range(fours, d):
            x, p = columns[c], centers[j, c]
            for r in range(n):
                line[r] += (x[r] - p) ** 2
    _write_smallest(squared, smallest, n)


@inner_in_any_order
def _write_smallest(squared: Floats, smallest: Floats, n: int) -> None:
    """Write the smallest of the first n numbers of each column.

    Two lines at a time: for one, LLVM stores only the lanes that change, which takes five times as
    long.
    """
    k, first = len(squared), squared[0]
    for r in range(n):  # a loop: for slices numba also compiles an error message, for seconds
        smallest[r] = first[r]
    for j in range(1, k, 2):
        line, other = squared[j], squared[min(j + 1, k - 1)]
        for r in range(n):
            lower = line[r] if line[r] < smallest[r] else smallest[r]
            smallest[r] = lower if lower < other[r] else other[r]


@inner_in_any_order
def _weigh(
    squared: Floats,
    smallest: Floats,
    n: int,
    m: float,
    sample_weight: Weights,
    memberships: Floats,
    tallies: Floats,
) -> float:
    """Turn squared distances (k, n) into weights w u^m in place; the rest as in ``add_rows``."""
    if m == 2.0:
        return _weigh_squares(squared, smallest, n, sample_weight, memberships, tallies)
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
    return _update(memberships, g, total)


@inner_in_any_order
def _weigh_squares(
    squared: Floats,
    smallest: Floats,
    n: int,
    sample_weight: Weights,
    memberships: Floats,
    tallies: Floats,
) -> float:
    """Act as ``_weigh`` for m = 2, where g is near: it takes the place of the distances."""
    k, total = len(squared), np.zeros(n)
    for j in range(k):
        line = squared[j]
        for r in range(n):
            line[r] = smallest[r] / line[r]
            total[r] += line[r]
    for r in range(n):
        if smallest[r] == 0.0:
            total[r] = 0.0
            for j in range(k):  # avoid 0 / 0 = NaN
                squared[j, r] = 0.0 if squared[j, r] == 0.0 else 1.0
                total[r] += squared[j, r]
    weight, share, row, error = _factors(total, smallest, 2.0, sample_weight)
    change = _update(memberships, squared, total)
    for j in range(k):
        line, weights, supports, rows, errors = squared[j], 0.0, 0.0, 0.0, 0.0
        for r in range(n):
            g = line[r]
            line[r] = g * g * weight[r]
            weights += line[r]
            supports += share[r] * g
            rows += row[r] * g
            errors += error[r] * g
        tallies[0, j] += weights
        tallies[1, j] += supports
        tallies[2, j] += rows
        tallies[3, j] += errors
    return change


@inner_in_any_order
def _compare(squared: Floats, smallest: Floats, m: float, g: Floats, total: Floats) -> None:
    """Write g (k, n) and its sums T (n,), and replace the squared distances by near g."""
    k, n = g.shape
    near = squared
    for j in range(k):
        for r in range(n):
            near[j, r] = smallest[r] / squared[j, r]
    for r in range(n):
        if smallest[r] == 0.0:
            for j in range(k):  # avoid 0 / 0 = NaN
                near[j, r] = 0.0 if near[j, r] == 0.0 else 1.0
    for j in range(k):
        write_powers(near[j], 1.0 / (m - 1.0), g[j])
        for r in range(n):
            near[j, r] *= g[j, r]
            total[r] += g[j, r]


@inner_in_any_order
def _factors(
    total: Floats, smallest: Floats, m: float, sample_weight: Weights
) -> tuple[Floats, ...]:
    """Return the factors of near g, and of g in three sums, for each row."""
    n = len(total)
    weight, share, row, error = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    if m != 2.0:
        write_powers(total, -m, weight)
    for r in range(n):
        w = sample_weight[r] if len(sample_weight) else 1.0
        power = 1.0 / (total[r] * total[r]) if m == 2.0 else weight[r]
        weight[r], share[r], row[r] = w * power, w / total[r], (w > 0.0) / total[r]
        error[r] = weight[r] * smallest[r]
    return weight, share, row, error


@inner_in_any_order
def _update(memberships: Floats, g: Floats, total: Floats) -> float:
    """Write the memberships, unless that array is empty, and return their squared change."""
    change = 0.0
    for r in range(len(memberships)):
        for j in range(len(g)):
            u = g[j, r] / total[r]
            change += (u - memberships[r, j]) ** 2
            memberships[r, j] = u
    return change


@inner_in_any_order
def _add_residuals(
    weights: Floats, columns: Floats, centers: Floats, n: int, residuals: Floats
) -> None:
    """Add v (x - c) to the residuals (k, d), for weights v (k, n)."""
    k, d = centers.shape
    for j in range(k):
        for c in range(d):
            total, center = 0.0, centers[j, c]
            for r in range(n):
                total += weights[j, r] * (columns[c, r] - center)
            residuals[j, c] += total


class WideCenters(NamedTuple):
    """Centres in the layout by which wide rows are multiplied.

    Attributes
    ----------
    shift : ndarray of shape (d,)
        The centres' mean s.
    tiles : ndarray of shape (n_tiles, d, PRODUCT_COLUMNS)
        The differences c - s, one tile of centres after the other.
    norms : ndarray of shape (n_tiles * PRODUCT_COLUMNS,)
        Their squared lengths, filled up by infinity.
    """

    shift: Floats
    tiles: Floats
    norms: Floats


def pack_wide_centers(centers: Floats) -> WideCenters:
    """Return the centres, shifted by their mean, in tiles."""
    k, d = centers.shape
    shift, n_tiles = np.zeros(d), -(-k // PRODUCT_COLUMNS)
    C = np.zeros((n_tiles * PRODUCT_COLUMNS, d))
    norms = np.full(len(C), np.inf)
    for center in centers:
        shift += center
    shift /= k
    _write_shifted(centers, shift, C, norms)
    line = np.zeros(C.size + CACHE_LINE_NUMBERS)
    start = -line.ctypes.data // line.itemsize % CACHE_LINE_NUMBERS
    tiles = line[start : start + C.size].reshape(n_tiles, d, PRODUCT_COLUMNS)
    tiles[:] = C.reshape(n_tiles, PRODUCT_COLUMNS, d).swapaxes(1, 2)
    return WideCenters(shift, tiles, norms)


def whole_tiles(k: int, d: int) -> tuple[int, int]:
    """Return the shape of sums (k, d) padded to whole tiles."""
    return -(-k // PRODUCT_ROWS) * PRODUCT_ROWS, -(-d // PRODUCT_COLUMNS) * PRODUCT_COLUMNS


@native
def add_wide_rows(
    packed: WideCenters,
    X: Rows,
    centers: Floats,
    m: float,
    sample_weight: Weights,
    memberships: Floats,
    residuals: Floats,
    tallies: Floats,
) -> float:
    """Add rows like ``add_rows``, but relative to s and with residuals in whole tiles."""
    (height, width), change = residuals.shape, 0.0
    norms = aligned_zeros(centers.dtype, (WIDE_BLOCK,))
    buffer = aligned_zeros(centers.dtype, (WIDE_BLOCK, width + CACHE_LINE_NUMBERS))
    weights = aligned_zeros(centers.dtype, (height + PRODUCT_COLUMNS, WIDE_BLOCK))
    squared = weights[: len(centers)]
    for start in range(0, len(X), WIDE_BLOCK):
        rows = slice(start, start + WIDE_BLOCK)
        some, w, u = X[rows], sample_weight[rows], memberships[rows]
        Z = buffer[: len(some)]
        _write_shifted(some, packed.shift, Z, norms)
        products = _products(buffer, packed.tiles, len(some))
        smallest = _wide_squared_distances(products, norms, packed.norms, some, centers, weights)
        change += _weigh(squared, smallest, len(some), m, w, u, tallies)
        for column in range(0, width, PRODUCT_COLUMNS):
            for j in range(0, height, PRODUCT_ROWS):
                add_product(weights, j, 0, Z, column, residuals)
    return change


@native_in_any_order
def _write_shifted(X: Rows, shift: Floats, Z: Floats, norms: Floats) -> None:
    """Write z = x - s, (n, d), and |z|^2, (n,)."""
    n, d = X.shape
    for r in range(n):
        total = 0.0
        for f in range(d):
            z = X[r, f] - shift[f]
            Z[r, f] = z
            total += z * z
        norms[r] = total


@inner
def _products(Z: Floats, tiles: Floats, n: int) -> Floats:
    """Return products z.c of at least n rows, (n_tiles, rows, PRODUCT_COLUMNS)."""
    n_tiles = len(tiles)
    products = aligned_zeros(Z.dtype, (n_tiles, WIDE_BLOCK, PRODUCT_COLUMNS))
    for first in range(0, tiles.shape[1], DEPTH):
        for tile in range(n_tiles):
            part = tiles[tile, first : first + DEPTH]
            for r in range(0, n, PRODUCT_ROWS):
                add_product(Z, r, first, part, 0, products[tile])
    return products


@inner
def _wide_squared_distances(
    products: Floats, norms: Floats, center_norms: Floats, X: Rows, centers: Floats, squared: Floats
) -> Floats:
    """Write squared distances, in lines that are followed by 0; return the smallest of each row.

    If the products leave few digits, they are computed from the differences.
    """
    n, k, largest, smallest = len(X), len(centers), 0.0, aligned_zeros(norms.dtype, (WIDE_BLOCK,))
    smallest[:] = np.inf
    for r in range(0, n, lanes(norms)):
        for tile in range(len(products)):
            j = tile * PRODUCT_COLUMNS
            write_distances(products[tile], r, norms, center_norms, j, squared, smallest)
    for j in range(len(squared)):
        if j < k:
            largest = max(largest, center_norms[j])
        else:
            squared[j] = 0.0
    for r in range(n):
        if smallest[r] < CANCELLED * (norms[r] + largest):
            smallest[r] = np.inf
            for j in range(k):
                squared[j, r] = squared_distance(X, r, centers, j)
                smallest[r] = min(smallest[r], squared[j, r])
    return smallest


WIDE = 16  # columns from which on matrix products pay
FAINTEST = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
"""Sum of u^m from which on it, and the mean that it weights, have full precision."""


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
        Sums of u: the unweighted number of rows of each centre.
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
        The number of iterations.
    """

    centers: Floats
    last_pass: FuzzyPass
    n_iter: int


def fuzzy_pass(
    X: ArrayLike, centers: ArrayLike, m: float, sample_weight: ArrayLike | None = None
) -> FuzzyPass:
    """Compute the sums of one step of fuzzy c-means, without the division.

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
    rows, centers, given = as_rows(X), as_centers(centers), as_weights(sample_weight)
    u = np.zeros((len(rows), len(centers)))
    sums, _ = _sweep(rows, centers, m, given, u)
    for n_iter in range(1, max_iter + 1):
        weights = sums.weights[:, np.newaxis]
        centers = np.divide(sums.sums, weights, out=centers.copy(), where=weights > 0)
        sums, change = _sweep(rows, centers, m, given, u)
        if change < tol:
            return FuzzyFit(centers, sums, n_iter)
    return FuzzyFit(centers, sums, max_iter)


def _sweep(
    X: Rows, centers: Floats, m: float, sample_weight: Weights, memberships: Floats
) -> tuple[FuzzyPass, float]:
    """Return the sums of a pass, and the change of the memberships (n, k).

    The memberships are written in place, unless the array is empty.
    """
    n, (k, d) = len(X), centers.shape
    if d < WIDE:
        add, base, shape, enough = add_rows, centers, (k, d), (1 << 20) // (k * d)
    else:
        packed = pack_wide_centers(centers)
        add, base, shape = partial(add_wide_rows, packed), packed.shift, whole_tiles(k, d)
        enough = -(-n // 128)
    chunk_rows = max(enough, 1024)  # smaller chunks cost more in calls and additions than they gain
    n_chunks = max(1, -(-n // chunk_rows))
    tallies, changes = np.zeros((n_chunks, 4, k)), np.zeros(n_chunks)

    def work(chunk: int, residuals: Floats) -> None:
        rows = slice(chunk * chunk_rows, (chunk + 1) * chunk_rows)
        some = X[rows], centers, float(m), sample_weight[rows], memberships[rows]
        changes[chunk] = add(*some, residuals, tallies[chunk])

    residuals = _summed(work, shape, n_chunks, n * k * d >= 1 << 18)
    total, *others = tallies.sum(axis=0)
    total[total < FAINTEST] = 0.0
    # sum of v x = sum of v (x - b) + (sum of v) b, with the base b
    sums = total[:, None] * base
    sums += residuals[:k, :d]
    sums[~(total > 0)] = 0.0
    return FuzzyPass(sums, total, *others), float(np.sqrt(changes.sum()))


def _summed(
    work: Callable[[int, Floats], None], shape: tuple[int, int], n_chunks: int, is_worth: bool
) -> Floats:
    """Return the sum of what is added to zeros for each chunk; for one, without a pool."""
    if n_chunks == 1:
        residuals = np.zeros(shape)
        work(0, residuals)
        return residuals

    def add_up(total: Floats, part: Floats) -> None:
        total += part
        part.fill(0.0)

    buffers = BufferPool(lambda: np.zeros(shape), add_up)

    def add(chunk: int) -> None:
        residuals = buffers.take()
        work(chunk, residuals)
        buffers.hand_in(chunk, residuals)

    for_each_chunk(add, n_chunks, thread_count() if is_worth else 1)
    return buffers.total
