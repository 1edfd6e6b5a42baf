"""Rows, weights and centres in the few layouts that kernels are compiled for."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fedcluster.core import Floats

Rows = NDArray[np.float32] | Floats
Weights = Floats

# A block reads at most 47 rows beyond the last one, a vector 15 numbers: at most 15 rows more.
PADDING = 64


def as_rows(X: ArrayLike) -> Rows:
    """Return rows as a read-only C array of float32 or float64, copied only where needed."""
    X = np.asarray(X)
    return _as_read_only(X, np.float32 if X.dtype == np.float32 else np.float64)


def as_double_rows(X: ArrayLike) -> Floats:
    """Return rows as a read-only C array of float64, copied only where needed."""
    return _as_read_only(np.asarray(X), np.float64)


def as_columns(X: Rows) -> Rows:
    """Return the columns of rows (n, d) one after the other, as a read-only C array (d, n)."""
    return _as_read_only(X.T, X.dtype)


def as_centers(centers: ArrayLike) -> Floats:
    """Return centres as a fresh C array of float64."""
    return np.array(centers, np.float64, order="C")


def as_weights(sample_weight: ArrayLike | None) -> Weights:
    """Return weights as a read-only array of float64; an empty one where there are none.

    Without weights each row counts 1. An empty array and not None, so that there is one compiled
    kernel and not two.
    """
    if sample_weight is None:
        return _NO_WEIGHTS
    return _as_read_only(np.asarray(sample_weight), np.float64)


def as_given_weights(sample_weight: Weights, n: int) -> Weights:
    """Return one weight for each of n rows, as kernels of small data take them."""
    return sample_weight if len(sample_weight) else _ones(n)


@lru_cache(maxsize=64)
def _ones(n: int) -> Weights:
    """Kept, because a site asks for the same in every round."""
    ones = np.full(n, 1.0)
    ones.flags.writeable = False
    return ones


def pad(X: Rows) -> Rows:
    """Return rows followed by PADDING rows of 0, which kernels may read and do not use."""
    n, d = X.shape
    padded = np.empty((n + PADDING, d), X.dtype)
    padded[:n], padded[n:] = X, 0
    padded.flags.writeable = False
    return padded


def _as_read_only(array: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """Return a read-only view of the array, or of an aligned C copy of this type."""
    flags = array.flags
    if array.dtype != dtype or not (flags.c_contiguous and flags.aligned):
        array = np.require(array, dtype, ["C", "A"])
    view = array.view()
    view.flags.writeable = False
    return view


_NO_WEIGHTS = _as_read_only(np.empty(0), np.float64)
