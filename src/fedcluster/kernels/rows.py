"""What kernels read: rows, weights and centres in the few layouts that they are compiled for."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "PADDING",
    "Rows",
    "Weights",
    "as_centers",
    "as_double_rows",
    "as_rows",
    "as_weights",
    "pad",
]

Rows = NDArray[np.float32] | NDArray[np.float64]
Weights = NDArray[np.float64]

PADDING = 64  # a block of at most 48 rows, and at most 15 rows of one column for the last vector


def as_rows(X: ArrayLike) -> Rows:
    """Rows as a read-only C array of float32 or float64, copied only where they are not one."""
    X = np.asarray(X)
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    return _read_only(np.require(X, dtype, ["C", "A"]))


def as_double_rows(X: ArrayLike) -> NDArray[np.float64]:
    """Rows as a read-only C array of float64, copied only where they are not one."""
    return _read_only(np.require(X, np.float64, ["C", "A"]))


def as_centers(centers: ArrayLike) -> NDArray[np.float64]:
    """Centres as a fresh C array of float64."""
    return np.array(centers, np.float64, order="C")


def as_weights(sample_weight: ArrayLike | None) -> Weights:
    """Weights as a read-only array of float64; no weights, each row counting 1, are an empty one.

    An empty array and not None, so that there is one compiled kernel and not two.
    """
    given = np.empty(0) if sample_weight is None else sample_weight
    return _read_only(np.require(given, np.float64, ["C", "A"]))


def pad(X: Rows) -> Rows:
    """Rows followed by PADDING rows of 0, which kernels may read and do not use."""
    return _read_only(np.concatenate([X, np.zeros((PADDING, X.shape[1]), X.dtype)]))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
