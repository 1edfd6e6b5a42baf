"""Weighted sums and means of centres: made at the sites, added, divided and put in order.

The only two places that divide by a weight are here, and neither divides by zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data, Floats, Rows, Summary, coarse
from fedcluster.errors import HeldBackError


def total(answers: Sequence[Summary]) -> Summary:
    """Return the exact sum of all answers, correctly rounded; their order does not matter."""
    return Summary.total(answers)


def means(sums: Floats, weights: Floats, otherwise: Floats) -> Floats:
    """Return weighted means, (k, d); a line of weight 0 or less becomes that of ``otherwise``.

    Examples
    --------
    >>> means(np.array([[2.0], [0.0]]), np.array([4.0, 0.0]), np.array([[7.0], [7.0]]))
    array([[0.5],
           [7. ]])
    """
    some = weights > 0
    safe = np.where(some, weights, 1.0)
    return np.where(some[:, None], sums / safe[:, None], otherwise)


def by_weight(weights: Floats, centers: Floats) -> NDArray[np.intp]:
    """Return the order of clusters (k,) by decreasing weight, ties by coordinates.

    Both are compared as `fedcluster.core.coarse` numbers, so that rounding decides only between
    clusters that are equal otherwise.

    Examples
    --------
    >>> by_weight(np.array([4.0, 4.0 + 1e-15, 9.0]), np.array([[5.0], [2.0], [7.0]]))
    array([2, 1, 0])
    """
    totals, places = (
        coarse(each, float(np.abs(each).max(initial=0.0))) for each in (weights, centers)
    )
    return np.lexsort([*centers.T[::-1], *places.T[::-1], -totals])


def as_sums(centers: Floats, weights: Floats, counts: NDArray[np.integer | np.bool_]) -> Summary:
    """Return a site's own centres, (k, d), as sums: each multiplied by the weight of its rows."""
    return Summary(centers * weights[:, None], weights, counts.astype(np.float64))


def pool(answers: Sequence[Summary]) -> tuple[Floats, Floats]:
    """Return all means that were sent, stacked, and their weights: (q, d), (q,)."""
    sums = np.concatenate([a.sums for a in answers])
    weights = np.concatenate([a.weights for a in answers])
    some = weights > 0
    return sums[some] / weights[some, None], weights[some]


def too_few(name: str, n_clusters: int, received: int) -> HeldBackError:
    """Return the error for a first round that brought fewer than ``n_clusters`` centres."""
    return HeldBackError(
        f"{name} needs at least {n_clusters} centres from the sites in its first round "
        f"and received {received}: clusters smaller than the sites' limits are not sent; "
        "ask for fewer clusters or lower the limit"
    )


def tolerance(X: Rows, tol: float) -> float:
    """Return ``tol`` times the mean variance of the columns of X, (n, d), as in scikit-learn."""
    return tol * float(X.var(axis=0, dtype=np.float64).mean()) if tol else 0.0


def site_tolerance(data: Data, tol: float) -> float:
    """Return the `tolerance` for a site's rows, whose variance is computed only once."""
    if "variance" not in data.cache:
        data.cache["variance"] = tolerance(data.X, 1.0)
    return tol * float(data.cache["variance"])


def mean_variance(centers: Floats, errors: Floats, weights: Floats, asked: Floats) -> float:
    """Return the mean variance of a column over all rows, from the sums of one round.

    With m_j the mean, e_j the squared error about c_j and n_j the weight of cluster j, the total
    sum of squares is  sum_j [ e_j - n_j |m_j - c_j|^2 ] + sum_j n_j |m_j - m|^2.

    Parameters
    ----------
    centers, asked : ndarray of shape (k, d)
        The means m_j and the centres c_j that the errors belong to.
    errors, weights : ndarray of shape (k,)
        e_j and n_j.
    """
    n = weights.sum()
    if n <= 0:
        return 0.0
    within = errors.sum() - (weights * ((centers - asked) ** 2).sum(axis=1)).sum()
    middle = weights @ centers / n
    between = (weights * ((centers - middle) ** 2).sum(axis=1)).sum()
    return max(0.0, float((within + between) / (n * centers.shape[1])))
