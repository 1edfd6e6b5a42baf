"""Rows that are filled in, bounded, shifted and scaled in one reading."""

import numpy as np
from numpy.typing import NDArray

from fedcluster.kernels._native import native
from fedcluster.kernels._rows import Rows, as_rows

Line = NDArray[np.float64]


def scale_rows(X: Rows, found: Rows, shift: Line, scale: Line, fill: Line, bounds: Line) -> bool:
    """Write (x - shift) / scale into ``found``, and tell whether a value is still missing.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32 or float64
        The rows, NaN where a value is missing.
    found : ndarray of shape (n, d), of the same type
        Where to write; computed is in float64.
    shift, scale : ndarray of shape (d,)
        What is subtracted, and then divided by.
    fill : ndarray of shape (d,)
        What a missing value becomes; NaN where it stays one.
    bounds : ndarray of shape (2, d)
        The lowest and the highest value; what lies outside is moved there first.

    Returns
    -------
    bool
        Whether ``found`` has a NaN.

    Examples
    --------
    >>> X, found = np.array([[50.0, 22.0], [np.nan, 99.0]]), np.empty((2, 2))
    >>> shift, scale, fill = np.array([40.0, 0.0]), np.array([10.0, 1.0]), np.array([40.0, np.nan])
    >>> scale_rows(X, found, shift, scale, fill, np.array([[-np.inf, 0.0], [np.inf, 60.0]]))
    False
    >>> found
    array([[ 1., 22.],
           [ 0., 60.]])
    """
    return bool(_scale(as_rows(X), found, shift, scale, fill, bounds[0], bounds[1]))


@native
def _scale(
    X: Rows, found: Rows, shift: Line, scale: Line, fill: Line, low: Line, high: Line
) -> bool:
    n_missing = 0
    for i in range(len(X)):
        for j in range(X.shape[1]):
            x = np.float64(X[i, j])
            x = fill[j] if np.isnan(x) else min(max(x, low[j]), high[j])
            scaled = (x - shift[j]) / scale[j]
            found[i, j] = scaled
            n_missing += np.isnan(scaled)
    return n_missing > 0
