"""Epochs of k-means in batches, as a site runs them between two messages of federated averaging.

D. Sculley, Web-scale k-means clustering, WWW 2010, with a rate that starts anew in every epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.core import Floats
from fedcluster.kernels._blocks import HardSums
from fedcluster.kernels._rows import (
    Rows,
    Weights,
    as_centers,
    as_double_rows,
    as_given_weights,
    as_rows,
    as_weights,
    pad,
)
from fedcluster.kernels._runtime import native
from fedcluster.kernels._sweep import sweep

WORTH_A_CALL = 1 << 16
"""Products of a batch from which on it pays to leave the compiled loop for one with threads."""


@dataclass(frozen=True, slots=True, eq=False)
class MiniBatchFit:
    """Centres after some epochs, and where the rows of the last epoch went.

    Attributes
    ----------
    centers : ndarray of shape (k, d), float64
        The centres.
    weights : ndarray of shape (k,), float64
        Sums of the rows' weights, each row at the centre that its batch found nearest.
    counts : ndarray of shape (k,), int64
        Numbers of these rows with w > 0.
    """

    centers: Floats
    weights: Floats
    counts: NDArray[np.int64]


def minibatch_epochs(
    X: ArrayLike,
    centers: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    batch_size: int,
    orders: Sequence[ArrayLike],
    rate: float = 1.0,
) -> MiniBatchFit:
    """Run epochs of k-means in batches; the same bits on any number of threads.

    In every epoch Lambda starts at 0. For each batch, with the weight L and the mean G of the
    rows nearest to a centre: Lambda += L, then c += rate (L / Lambda) (G - c).

    Parameters
    ----------
    X : array_like of shape (n, d)
        The rows; each ``batch_size`` of them, one after another, are a batch.
    centers : array_like of shape (k, d)
        The centres to start from.
    sample_weight : array_like of shape (n,), optional
        The rows' weights w >= 0; 1 each by default.
    batch_size : int
        Rows of a batch; the last one may have fewer.
    orders : sequence of array_like of shape (n_batches,), int
        The order of the batches in each epoch.
    rate : float, default=1.0
        The share of the way to a batch's mean that a centre goes.

    Examples
    --------
    >>> fit = minibatch_epochs([[0.0], [4.0], [8.0]], [[0.0]], batch_size=2, orders=[[0, 1]])
    >>> fit.centers  # 2 after the first batch, then a third of the way to 8
    array([[4.]])
    >>> fit.weights
    array([3.])
    """
    rows, centers = as_rows(X), as_centers(centers)
    weights = as_given_weights(as_weights(sample_weight), len(rows))
    how = weights, centers, batch_size, np.array(orders, np.int64), rate
    if min(batch_size, len(rows)) * centers.size >= WORTH_A_CALL:
        return MiniBatchFit(centers, *_run(rows, *how))
    return MiniBatchFit(centers, *_run_in_one_call(pad(as_double_rows(rows)), *how))


def _run(
    X: Rows,
    sample_weight: Weights,
    centers: Floats,
    batch_size: int,
    orders: NDArray[np.int64],
    rate: float,
) -> tuple[Floats, NDArray[np.int64]]:
    """Move the centres in place; return the weights and counts of the last epoch."""
    k, padding = len(centers), len(X) - len(sample_weight)
    for order in orders:
        weights, counts = np.zeros(k), np.zeros(k, np.int64)
        for batch in order:
            start = batch * batch_size
            weight = sample_weight[start : start + batch_size]
            _, sums = sweep(X[start : start + len(weight) + padding], centers, weight)
            _move(centers, weights, counts, sums, rate)
    return weights, counts


_run_in_one_call = native(_run)
"""The same in one thread over padded rows."""


@native
def _move(
    centers: Floats, weights: Floats, counts: NDArray[np.int64], sums: HardSums, rate: float
) -> None:
    """Count a batch and move the centres; L (G - c) is the sum of w (x - c)."""
    k, d = centers.shape
    for j in range(k):
        if sums.weights[j] > 0:
            weights[j] += sums.weights[j]
            counts[j] += sums.counts[j]
            for f in range(d):
                centers[j, f] += rate * sums.residuals[j, f] / weights[j]
