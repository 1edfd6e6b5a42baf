"""Runs of k-means on rows in one place: Lloyd's algorithm, and epochs in batches.

Lloyd's algorithm on rows in one place: k-means at a site, and on centres at the server.

Epochs of k-means in batches, as a site runs them between two messages of federated averaging.

D. Sculley, Web-scale k-means clustering, WWW 2010, with a rate that starts anew in every epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.core import Floats, Labels
from fedcluster.core.threads import for_each_chunk, thread_count
from fedcluster.kernels._blocks import HardSums, taken
from fedcluster.kernels._sweep import (
    Run,
    is_worth_single,
    run,
    run_in_one_call,
    sweep,
    sweep_padded,
)
from fedcluster.kernels._tiles import aligned_zeros
from fedcluster.kernels.rows import (
    Rows,
    Weights,
    as_centers,
    as_columns,
    as_double_rows,
    as_given_weights,
    as_rows,
    as_weights,
    chunk_bounds,
    is_small,
    pad,
)
from fedcluster.kernels.runtime import compiled_loops, native, with_names
from fedcluster.kernels.seeding import default_trials, draw_spread


@dataclass(frozen=True, slots=True, eq=False)
class LloydFit:
    """Centres and the clusters around them; all fields belong to the same centres.

    Attributes
    ----------
    centers : ndarray of shape (k, d), float64
        The centres.
    labels : ndarray of shape (n,), int32
        The nearest centre of each row.
    weights : ndarray of shape (k,), float64
        Sums of the rows' weights.
    counts : ndarray of shape (k,), int64
        Numbers of rows with positive weight.
    inertia : float
        Sum of w ||x - c||^2 over all rows, in squared units of the rows.
    n_iter : int
        The number of iterations, including the last one, which changes nothing.
    """

    centers: Floats
    labels: Labels
    weights: Floats
    counts: NDArray[np.int64]
    inertia: float
    n_iter: int


def lloyd(
    X: ArrayLike,
    centers: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    max_iter: int = 300,
    tol: float = 0.0,
    empty: Literal["keep", "relocate", "drop"] = "keep",
) -> LloydFit:
    """Run Lloyd's algorithm [1]_ from given centres.

    Assignment and averaging alternate until no label changes, the centres move by at most ``tol``,
    or ``max_iter`` iterations are done.

    Parameters
    ----------
    X : array_like of shape (n, d), float32 or float64
        The rows.
    centers : array_like of shape (k, d)
        The centres to start from.
    sample_weight : array_like of shape (n,), optional
        The rows' weights w >= 0; 1 each by default.
    max_iter : int, default=300
        The largest number of iterations.
    tol : float, default=0.0
        Stop when the sum over all centres of the squared distance moved is at most this, in
        squared units of the rows.
    empty : {"keep", "relocate", "drop"}, default="keep"
        What happens to a centre without rows of positive weight. "keep": it stays in place.
        "relocate": it moves to the row farthest from its own centre, whose cluster loses that row.
        "drop": it is left out if it has no row at the start, and relocated later on.

    Returns
    -------
    LloydFit
        The centres, and the clusters around them.

    Notes
    -----
    Follows scikit-learn's KMeans(algorithm="lloyd"). Deviations: several empty clusters take
    the farthest rows in order of distance, ties by index; rows of weight 0 and rows that lie on
    their centre are not taken; a cluster that finds no row, or that loses its last one, stays
    where it was; the last labels belong to the returned centres after a relocation too.

    References
    ----------
    .. [1] S. P. Lloyd, "Least squares quantization in PCM", IEEE Transactions on Information
       Theory 28(2), 1982.

    Examples
    --------
    >>> fit = lloyd([[0.0], [1.0], [5.0], [6.0]], centers=[[0.0], [1.0]])
    >>> fit.centers
    array([[0.5],
           [5.5]])
    >>> fit.inertia, fit.n_iter
    (1.0, 3)
    """
    rows, weights, start = as_rows(X), as_weights(sample_weight), as_centers(centers)
    how = max_iter, float(tol), empty != "keep"
    if _takes_one_call(rows, len(start)):
        once = run_without_empty if empty == "drop" else run_in_one_call
        return _as_fit(once(pad(rows), as_given_weights(weights, len(rows)), start, *how))
    if empty == "drop":
        start = start[sweep(rows, start, weights)[1].counts > 0]
    return _as_fit(run(rows, weights, start, *how))


@native
def run_without_empty(
    padded: Rows, sample_weight: Weights, centers: Floats, max_iter: int, tol: float, relocate: bool
) -> Run:
    """Act as `run_in_one_call`, from those centres that have rows."""
    none = 0 * max_iter  # not the literal 0, for which numba would compile the callee again
    counts = run_in_one_call(padded, sample_weight, centers, none, tol, relocate)[6]
    kept, some = 0, aligned_zeros(np.int64, (len(counts),))
    for j in range(len(counts)):
        if counts[j]:
            some[kept] = j
            kept += 1
    start = taken(centers, some[:kept])
    return run_in_one_call(padded, sample_weight, start, max_iter, tol, relocate)


def _takes_one_call(rows: Rows, k: int) -> bool:
    """Return whether a run is one compiled call, as is best for few rows on a single thread."""
    few = len(chunk_bounds(len(rows), k, rows.shape[1])) <= 3
    is_best = is_small(rows) or (few and not is_worth_single(rows, k))
    return is_best and compiled_loops.pay_off()


def kmeans(
    X: ArrayLike,
    n_clusters: int,
    sample_weight: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    n_init: int = 10,
    seeding: Literal["weighted", "unweighted"] = "weighted",
    max_iter: int = 300,
    tol: float = 1e-4,
) -> LloydFit:
    """Return the best of several runs of k-means++ and Lloyd's algorithm.

    Made for a server's few hundred rows, the centres of many sites.

    Parameters
    ----------
    X : array_like of shape (n, d)
        The rows; computed in float64.
    n_clusters : int
        The number of clusters, at most n. If there are fewer distinct rows, centres coincide.
    sample_weight : array_like of shape (n,), optional
        The rows' weights w >= 0, not all 0; 1 each by default.
    rng : numpy.random.Generator
        The random numbers for the seedings.
    n_init : int, default=10
        The number of runs. The one of smallest inertia is the best; in a tie, the first.
    seeding : {"weighted", "unweighted"}, default="weighted"
        Whether k-means++ uses the weights, as in scikit-learn from version 1.3, or treats all rows
        of positive weight alike, as in earlier versions.
    max_iter : int, default=300
        The largest number of iterations of a run.
    tol : float, default=1e-4
        As for ``lloyd``, in units of the mean over the columns of their unweighted variance.

    Returns
    -------
    LloydFit
        The best run, with empty clusters relocated as in ``lloyd``.

    Examples
    --------
    >>> fit = kmeans([[0.0], [1.0], [5.0], [6.0]], 2, rng=np.random.default_rng(0))
    >>> sorted(fit.centers.ravel().tolist())
    [0.5, 5.5]
    """
    chances = rng.random((n_init, n_clusters, default_trials(n_clusters)))
    arrays, absolute = _prepared(X, sample_weight, seeding, tol)
    fits: dict[int, LloydFit] = {}
    _write_best(fits, arrays, chances[np.newaxis], (max_iter, absolute), 0)
    return fits[0]


def kmeans_runs(
    X: ArrayLike,
    n_clusters: int,
    sample_weight: ArrayLike | None = None,
    *,
    rng: np.random.Generator,
    n_runs: int,
) -> list[LloydFit]:
    """Return several runs, on several threads: each as ``kmeans(n_init=1)`` would give in turn.

    Parameters
    ----------
    X, n_clusters, sample_weight, rng
        As in ``kmeans``.
    n_runs : int
        The number of runs.

    Examples
    --------
    >>> fits = kmeans_runs([[0.0], [1.0], [9.0]], 2, rng=np.random.default_rng(0), n_runs=3)
    >>> [fit.inertia for fit in fits]
    [0.5, 0.5, 0.5]
    """
    chances = rng.random((n_runs, 1, n_clusters, default_trials(n_clusters)))
    arrays, absolute = _prepared(X, sample_weight)
    fits: dict[int, LloydFit] = {}

    work = partial(_write_best, fits, arrays, chances, (300, absolute))
    for_each_chunk(work, n_runs, thread_count())
    return [fits[run] for run in range(n_runs)]


def _prepared(
    X: ArrayLike, sample_weight: ArrayLike | None, seeding: str = "weighted", tol: float = 1e-4
) -> tuple[tuple[Floats, Floats, Weights, Weights], float]:
    """Return the arrays that ``best_of_restarts`` needs, and ``tol`` in squared units."""
    rows = as_double_rows(X)
    weights = as_given_weights(as_weights(sample_weight), len(rows))
    seed_weights = weights if seeding == "weighted" else as_weights(weights > 0)
    padded: NDArray[Any] = pad(rows)
    columns = as_columns(rows)
    return (padded, columns, weights, seed_weights), tol * column_variance(columns)


def _write_best(
    fits: dict[int, LloydFit],
    arrays: tuple[Floats, Floats, Weights, Weights],
    chances: Floats,
    limits: tuple[int, float],
    number: int,
) -> None:
    """Write the best run, with a compiled loop over runs if there are several of few rows."""
    padded, columns, weights, seed_weights = arrays
    rows, how, found = padded[: len(weights)], (*limits, True), []
    if is_small(rows) and len(chances[number]) > 1 and compiled_loops.pay_off(len(chances[number])):
        found = [_as_fit(best_of_restarts(*arrays, chances[number], *how))]
    for chance in () if found else chances[number]:
        start: Any = rows[draw_spread(columns, seed_weights, len(chance), chance)]
        if _takes_one_call(rows, len(chance)):
            found.append(_as_fit(run_in_one_call(padded, weights, start, *how)))
        else:
            found.append(_as_fit(run(rows, weights, start, *how)))
    fits[number] = reduce(_better, found)


def _as_fit(fields: Run) -> LloydFit:
    """Return a run's centres and the clusters around them."""
    centers, labels, inertia, n_iter, _, weights, counts, _, _ = fields
    return LloydFit(centers, labels, weights, counts, inertia, n_iter)


def _better(one: LloydFit, other: LloydFit) -> LloydFit:
    """Return the run of smaller inertia, or the first if they differ by rounding only."""
    return other if other.inertia < one.inertia * SURELY_LESS else one


SURELY_LESS = 1 - 1e-12
"""The factor of an inertia by which another is less not by another order of clusters alone."""


@native
def column_variance(columns: Floats) -> float:
    """Return the mean of the columns' variances."""
    total, (d, n) = 0.0, columns.shape
    for f in range(d):
        mean, squared = 0.0, 0.0
        for i in range(n):
            mean += columns[f, i]
        mean /= n
        for i in range(n):
            squared += (columns[f, i] - mean) ** 2
        total += squared / n
    return total / d


@native
def best_of_restarts(
    padded: Floats,
    columns: Floats,
    sample_weight: Weights,
    seed_weight: Weights,
    chances: Floats,
    max_iter: int,
    tol: float,
    relocate: bool,
) -> Run:
    """Run once for each set of random numbers (n_clusters, n_trials); keep the smallest inertia."""
    lowest = np.inf
    for restart in range(len(chances)):
        rows = draw_spread(columns, seed_weight, chances.shape[1], chances[restart])
        start = taken(padded, rows)
        run = run_in_one_call(padded, sample_weight, start, max_iter, tol, relocate)
        inertia = run[2]
        if restart == 0 or inertia < lowest * SURELY_LESS:
            lowest, best = inertia, run
    return best


WORTH_A_CALL = 1 << 16
"""Number of products in a batch from which on leaving the compiled loop for threads pays off."""


@dataclass(frozen=True, slots=True, eq=False)
class MiniBatchFit:
    """Centres after some epochs, and the assignment of rows in the last epoch.

    Attributes
    ----------
    centers : ndarray of shape (k, d), float64
        The centres.
    weights : ndarray of shape (k,), float64
        Sums of the rows' weights, each row counting for the centre nearest when its batch came.
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
        The rows; each ``batch_size`` successive rows form a batch.
    centers : array_like of shape (k, d)
        The centres to start from.
    sample_weight : array_like of shape (n,), optional
        The rows' weights w >= 0; 1 each by default.
    batch_size : int
        Number of rows in a batch; the last one may have fewer.
    orders : sequence of array_like of shape (n_batches,), int
        The order of the batches in each epoch.
    rate : float, default=1.0
        The fraction of the way to a batch's mean that a centre moves.

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
    is_large = min(batch_size, len(rows)) * centers.size >= WORTH_A_CALL
    if is_large or not compiled_loops.pay_off(how[3].size):
        return MiniBatchFit(centers, *_run_batches(rows, *how))
    return MiniBatchFit(centers, *_run_batches_in_one_call(pad(as_double_rows(rows)), *how))


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


def _run_batches(
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


_run_batches_in_one_call = native(with_names(_run_batches, sweep=sweep_padded))
"""`_run_batches` on one thread, over padded rows."""
