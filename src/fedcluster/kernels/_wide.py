"""A fuzzy pass over rows of many columns: two matrix products a block, about the centres' mean.

With z = x - s and c less the same s, the first product, z.c, gives the squared distances

    |x - c|^2 = |z|^2 - 2 z.c + |c|^2,

and the second one adds w u^m z up. Matrices are filled up by 0 to whole tiles of products, and the
rows of a block stay in the cache from one product to the other.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcluster.kernels._degrees import lower, weigh
from fedcluster.kernels._native import native, native_in_any_order
from fedcluster.kernels._rows import Rows, Weights
from fedcluster.kernels._sweep import aligned_zeros, squared_distance
from fedcluster.kernels._tiles import PRODUCT_COLUMNS, PRODUCT_ROWS, add_product

WIDE_BLOCK = 96  # rows, in whole tiles
DEPTH = 256  # columns that are added up before they are added to others
LINE = 8  # numbers in a line of the cache
CANCELLED = 1e-5  # of |z|^2 + |c|^2: a smaller squared distance is measured directly


class Packed(NamedTuple):
    """Centres as wide rows are multiplied by them.

    Attributes
    ----------
    shift : ndarray of shape (d,)
        The centres' mean s.
    tiles : ndarray of shape (n_tiles, d, PRODUCT_COLUMNS)
        The differences c - s, one tile of centres after the other.
    norms : ndarray of shape (k,)
        Their squared lengths.
    """

    shift: NDArray[np.float64]
    tiles: NDArray[np.float64]
    norms: NDArray[np.float64]


@native
def pack_about_mean(centers: NDArray[np.float64]) -> Packed:
    """Pack centres."""
    k, d = centers.shape
    shift, C, norms = np.zeros(d), np.empty((k, d)), np.empty(k)
    for j in range(k):
        shift += centers[j]
    shift /= k
    _shift(centers, shift, C, norms)
    n_tiles = -(-k // PRODUCT_COLUMNS)
    tiles = aligned_zeros(np.float64, n_tiles * d, PRODUCT_COLUMNS)
    tiles = tiles.reshape(n_tiles, d, PRODUCT_COLUMNS)
    for j in range(k):
        tiles[j // PRODUCT_COLUMNS, :, j % PRODUCT_COLUMNS] = C[j]
    return Packed(shift, tiles, norms)


def whole_tiles(k: int, d: int) -> tuple[int, int]:
    """The shape of sums (k, d) in whole tiles."""
    return -(-k // PRODUCT_ROWS) * PRODUCT_ROWS, -(-d // PRODUCT_COLUMNS) * PRODUCT_COLUMNS


@native
def add_wide_rows(
    packed: Packed,
    X: Rows,
    centers: NDArray[np.float64],
    m: float,
    sample_weight: Weights,
    degrees: NDArray[np.float64],
    residuals: NDArray[np.float64],
    tallies: NDArray[np.float64],
) -> float:
    """``add_rows``, but of w u^m (x - s), and to residuals in whole tiles."""
    (height, width), change, norms = residuals.shape, 0.0, np.empty(WIDE_BLOCK)
    room = aligned_zeros(np.float64, WIDE_BLOCK, width + LINE)
    weights = aligned_zeros(np.float64, height, WIDE_BLOCK)
    squared = weights[: len(centers)]
    for start in range(0, len(X), WIDE_BLOCK):
        rows = slice(start, start + WIDE_BLOCK)
        some, w, u = X[rows], sample_weight[rows], degrees[rows]
        Z = room[: len(some)]
        _shift(some, packed.shift, Z, norms)
        products = _multiply(room, packed.tiles, len(some))
        smallest = _measure(products, norms, packed.norms, some, centers, squared)
        change += weigh(squared, smallest, len(some), m, w, u, tallies)
        for column in range(0, width, PRODUCT_COLUMNS):
            for j in range(0, height, PRODUCT_ROWS):
                add_product(weights, j, 0, Z, column, residuals)
    return change


@native_in_any_order
def _shift(
    X: Rows, shift: NDArray[np.float64], Z: NDArray[np.float64], norms: NDArray[np.float64]
) -> None:
    """Write z = x - s, (n, d), and |z|^2, (n,)."""
    n, d = X.shape
    for r in range(n):
        total = 0.0
        for f in range(d):
            z = X[r, f] - shift[f]
            Z[r, f] = z
            total += z * z
        norms[r] = total


@native
def _multiply(Z: NDArray[np.float64], tiles: NDArray[np.float64], n: int) -> NDArray[np.float64]:
    """Products z.c of n rows and maybe some more, (n_tiles, rows, PRODUCT_COLUMNS)."""
    n_tiles = len(tiles)
    products = aligned_zeros(np.float64, n_tiles * WIDE_BLOCK, PRODUCT_COLUMNS)
    products = products.reshape(n_tiles, WIDE_BLOCK, PRODUCT_COLUMNS)
    for first in range(0, tiles.shape[1], DEPTH):
        for tile in range(n_tiles):
            part = tiles[tile, first : first + DEPTH]
            for r in range(0, n, PRODUCT_ROWS):
                add_product(Z, r, first, part, 0, products[tile])
    return products


@native_in_any_order
def _measure(
    products: NDArray[np.float64],
    norms: NDArray[np.float64],
    center_norms: NDArray[np.float64],
    X: Rows,
    centers: NDArray[np.float64],
    squared: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Write squared distances (k, n), by the differences where products leave few digits.

    The smallest of each row are returned.
    """
    n, k = len(X), len(centers)
    smallest, largest = np.full(n, np.inf), center_norms.max()
    for j in range(k):
        tile, place, norm = j // PRODUCT_COLUMNS, j % PRODUCT_COLUMNS, center_norms[j]
        for r in range(n):
            squared[j, r] = norms[r] - 2.0 * products[tile, r, place] + norm
        lower(smallest, squared[j], n)
    for r in range(n):
        if smallest[r] < CANCELLED * (norms[r] + largest):
            smallest[r] = np.inf
            for j in range(k):
                squared[j, r] = squared_distance(X, r, centers, j)
                smallest[r] = min(smallest[r], squared[j, r])
    return smallest
