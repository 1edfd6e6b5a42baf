"""Hard assignment: each row belongs to its nearest centre."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.kernels._rows import as_centers, as_rows, as_weights
from fedcluster.kernels._sweep import assign, sweep


@dataclass(frozen=True, slots=True, eq=False)
class HardPass:
    """What one sweep over the rows says about each centre.

    Attributes
    ----------
    labels : ndarray of shape (n,), int32
        The nearest centre of each row; of several, the one of lowest index.
    sums : ndarray of shape (k, d), float64
        Sums of w x over the rows x of each centre.
    weights : ndarray of shape (k,), float64
        Sums of w.
    counts : ndarray of shape (k,), int64
        Numbers of rows with w > 0.
    errors : ndarray of shape (k,), float64
        Sums of w ||x - c||^2, in squared units of the rows.
    """

    labels: NDArray[np.int32]
    sums: NDArray[np.float64]
    weights: NDArray[np.float64]
    counts: NDArray[np.int64]
    errors: NDArray[np.float64]


def hard_pass(X: ArrayLike, centers: ArrayLike, sample_weight: ArrayLike | None = None) -> HardPass:
    """Assign each row to its nearest centre and add up the rows of each centre.

    One pass over the rows: both halves of an iteration of Lloyd's algorithm [1]_, short of the
    division. All sums are in float64. The result has the same bits on any number of threads.

    Parameters
    ----------
    X : array_like of shape (n, d), float32 or float64
        The rows.
    centers : array_like of shape (k, d)
        The centres; k may exceed n.
    sample_weight : array_like of shape (n,), optional
        The rows' weights w >= 0; 1 each by default. A row of weight 0 gets a label and adds
        nothing.

    Returns
    -------
    HardPass
        Labels of the rows; sums, weights, counts and errors of the centres, 0 where a centre
        has no row.

    Notes
    -----
    Labels of float32 rows come from float32 arithmetic: rows whose two nearest centres are
    equally far but for float32's rounding may go to either.

    References
    ----------
    .. [1] S. P. Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information
       Theory 28(2), 1982.

    Examples
    --------
    >>> found = hard_pass([[0.0], [1.0], [5.0], [6.0]], centers=[[0.0], [5.0]])
    >>> found.labels
    array([0, 0, 1, 1], dtype=int32)
    >>> found.sums
    array([[ 1.],
           [11.]])
    >>> found.weights
    array([2., 2.])
    """
    labels, sums = sweep(as_rows(X), as_centers(centers), as_weights(sample_weight))
    return HardPass(labels, sums.totals, sums.weights, sums.counts, sums.errors)


def nearest(X: ArrayLike, centers: ArrayLike) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Nearest centre of each row and the squared distance to it.

    Parameters
    ----------
    X : array_like of shape (n, d), float32 or float64
        The rows.
    centers : array_like of shape (k, d)
        The centres.

    Returns
    -------
    labels : ndarray of shape (n,), int32
        The nearest centre; of several, the one of lowest index.
    squared : ndarray of shape (n,), float64
        ||x - c||^2, from the differences, in squared units of the rows.

    Examples
    --------
    >>> labels, squared = nearest([[0.0], [1.0], [5.0], [6.0]], centers=[[0.0], [5.0]])
    >>> labels
    array([0, 0, 1, 1], dtype=int32)
    >>> squared
    array([0., 1., 0., 1.])
    """
    return assign(as_rows(X), as_centers(centers))
