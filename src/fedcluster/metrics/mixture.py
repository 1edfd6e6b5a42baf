"""How likely the rows are, if each cluster is a round cloud: one number from each site.

The clusters that k-means found are read as a mixture of k spherical normal distributions of one
variance s^2, with their means m_j and shares n_j / n as they are:

    log L = sum over rows of w log sum_j n_j / n N(x; m_j, s^2 I),      s^2 = within / (n d).

X-means' criterion (`fedcluster.metrics.clusters.bic`) counts each row for its own cluster alone.
Where clusters overlap that is less than the likelihood, the more so the more clusters there are;
it then finds too few. This one costs a second round, and finds those too.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from fedcluster.core import Data, Floats, State, Summary
from fedcluster.metrics.by_cluster import in_parts, row_weights

__all__ = ["MixtureLikelihood"]


@dataclass(frozen=True, slots=True)
class MixtureLikelihood:
    """The Bayesian information criterion of the clusters as a mixture of round clouds.

        BIC = log L - p / 2 log n,        p = (k - 1) + k d + 1

    after G. Schwarz, Estimating the dimension of a model, Ann. Statist. 6, 1978. The most likely
    k has the *largest* BIC, and k = 1 is among the answers. k counts clusters that have rows.

    Asked about the state that `Clusters.described` makes of a first round's total.

    Deviation: the parameters are those of k-means, not the most likely ones, so that log L is a
    little too small; a few rounds of expectation and maximisation change no choice of k in
    `benchmarks/selection.py`.

    Notes
    -----
    A site sends two numbers, log L of its rows and their weight, and receives the mean, variance
    and size of each cluster. They reveal little, unless the site has very few rows; a limit on
    the size of clusters holds nothing of them back, only one on the rows of a site does.

    Examples
    --------
    >>> state = State(
    ...     np.array([[0.0], [4.0]]), np.array([2.0, 2.0]),
    ...     memory={"means": np.array([[0.0], [4.0]]), "variances": np.array([1.0, 1.0])},
    ... )
    >>> rows = Data(np.array([[-1.0], [1.0], [3.0], [5.0]]))
    >>> answer = MixtureLikelihood().client_step(state, rows, np.random.default_rng(0))
    >>> round(MixtureLikelihood().score(state, answer), 4)
    -11.1846
    """

    client_additive: ClassVar[bool] = True
    maximise: ClassVar[bool] = True

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Log L of the rows, 0 where every row equals its mean, and their weight."""
        sizes, d = state.weights, data.X.shape[1]
        some, variance, total = sizes > 0, _variance(state), 0.0
        if variance > 0:
            shares = np.log(sizes[some] / sizes.sum()) - d / 2 * log(2 * pi * variance)
            for part in in_parts(data, 2 * len(sizes)):
                squared = cdist(part.X, state.memory["means"][some], "sqeuclidean")
                likelihood = logsumexp(shares - squared / (2 * variance), axis=1)
                total += float(row_weights(part) @ likelihood)
        weight = np.array([row_weights(data).sum()])
        return Summary(np.array([[total]]), weight, np.array([float(len(data))]))

    def score(self, state: State, total: Summary) -> float:
        """The criterion; infinite if all rows equal their means, nan for n <= k."""
        k, d = int((state.weights > 0).sum()), int(state.centers.shape[1])
        n, [weight] = float(state.weights.sum()), total.weights
        if not (weight > 0 and n > k):
            return float("nan")
        if not _variance(state) > 0:
            return float("inf")
        likelihood = float(total.sums[0, 0] * n / weight)
        return likelihood - (k - 1 + k * d + 1) / 2 * log(n)


def _variance(state: State) -> float:
    """s^2, in squared units of the rows."""
    sizes: Floats = np.maximum(state.weights, 0.0)
    within, d = float(sizes @ state.memory["variances"]), int(state.centers.shape[1])
    return within / (max(float(sizes.sum()), 1.0) * d)
