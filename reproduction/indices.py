"""Indices that no federation can compute, for experiments with all rows, or the truth, at hand."""

from __future__ import annotations

from math import sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fedcluster.core import Rows
from fedcluster.metrics.moments import add_by_cluster
from fedcluster.metrics.silhouettes import silhouettes

__all__ = ["knowledge_gap", "normalised_gap", "pooled_silhouette"]

Matching = Literal["closest", "one-to-one"]
Distance = Literal["euclidean", "seuclidean"]


def knowledge_gap(
    centers: ArrayLike,
    known: ArrayLike,
    matching: Matching = "closest",
    distance: Distance = "euclidean",
) -> float:
    """Return the sum of the distances from centres to known ones.

    M. Stallmann & A. Wilbik, FFCM (FL-AAAI 2022), after their program: each is compared with the
    closest known one. So a known centre may be missed unnoticed; matched one to one, it is not.

    Parameters
    ----------
    centers : array_like of shape (k, d)
        The centres to compare.
    known : array_like of shape (q, d)
        The true ones.
    matching : {"closest", "one-to-one"}, default="closest"
        As published; or each to one of its own by the matching of least sum (H. W. Kuhn, The
        Hungarian method, 1955), which leaves the surplus out where k and q differ.
    distance : {"euclidean", "seuclidean"}, default="euclidean"
        Plain, in units of the rows, as their program since April 2022 (stallmo/cluster_library,
        81ac598). Or standardised Euclidean, without a unit, as their program of October 2021
        (481e7d5): each column is divided by its standard deviation over the k + q centres of both
        together, with k + q - 1 in the variance's denominator, as in scipy's ``cdist``. A column
        in which all of them are equal counts nothing.

    Examples
    --------
    >>> centers, known = [[0.0], [1.0]], [[0.0], [9.0]]
    >>> knowledge_gap(centers, known), knowledge_gap(centers, known, "one-to-one")
    (1.0, 8.0)
    >>> round(knowledge_gap([[1.0]], [[5.0]], distance="seuclidean"), 3)
    1.414
    """
    found, true = np.asarray(centers, float), np.asarray(known, float)
    if distance == "seuclidean":
        deviation = np.std(np.vstack([found, true]), axis=0, ddof=1)
        deviation[deviation == 0] = 1.0
        found, true = found / deviation, true / deviation
    apart = cdist(found, true)
    if matching == "closest":
        return float(apart.min(axis=1).sum())
    return float(apart[linear_sum_assignment(apart)].sum())


def normalised_gap(centers: ArrayLike, known: ArrayLike, matching: Matching = "closest") -> float:
    """Return the knowledge gap by sqrt(d), to compare data of different width (FFCM, table 5).

    Examples
    --------
    >>> normalised_gap([[3.0, 3.0, 3.0, 3.0]], [[0.0, 0.0, 0.0, 0.0]])
    3.0
    """
    return knowledge_gap(centers, known, matching) / sqrt(np.asarray(centers).shape[1])


def pooled_silhouette(X: Rows, labels: NDArray[np.integer]) -> float:
    """Return Rousseeuw's silhouette of rows in one place: for simulation only.

    It takes the Euclidean distances between rows of different sites, and so cannot be federated:
    no sum over a site's rows gives them. Equal to scikit-learn's ``silhouette_score``; nan for a
    single cluster.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The pooled rows.
    labels : ndarray of shape (n,)
        The cluster of each row.

    Examples
    --------
    >>> round(pooled_silhouette(np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([0, 0, 1, 1])), 6)
    0.79798
    """
    _, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        return float("nan")
    scores = np.zeros(len(X))
    for part in np.array_split(np.arange(len(X)), -(-len(X) * len(X) // (1 << 20))):
        sums = add_by_cluster(codes, cdist(X, X[part]), np.ones(len(X)), len(sizes)).T
        mine = np.arange(len(part)), codes[part]
        own_size = sizes[codes[part]]
        own = sums[mine] / np.maximum(own_size - 1, 1)
        sums[mine] = np.inf
        scores[part] = np.where(own_size > 1, silhouettes(own, (sums / sizes).min(axis=1)), 0.0)
    return float(scores.mean())
