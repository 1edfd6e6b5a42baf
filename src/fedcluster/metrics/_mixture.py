"""Likelihood of the rows where all clusters are clouds of one shape: one number from a site.

The clusters that k-means found are read as a mixture of k normal distributions with their means
m_j and shares n_j / n as they are, and one variance s_c^2 for each column c:

    log L = sum over rows of w log sum_j n_j / n N(x; m_j, diag(s^2)),
    s_c^2 = sum of w (x_c - m_jc)^2 / n,  j the cluster of x.

X-means' criterion (`fedcluster.metrics.clusters.bic`) counts each row for its own cluster alone,
which is less than the likelihood where clusters overlap, the more so the more clusters there are:
it then finds too few. And it has one variance for all columns: where they have different scales,
it finds too many. This one costs d + 1 numbers more and a second round, and mends both.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi

import numpy as np
from numpy.random import Generator
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from fedcluster.core import Data, State, Summary
from fedcluster.core.ranges import CENTERS, Allowed, Array
from fedcluster.metrics.clusters import Clusters, clusters_of
from fedcluster.metrics.moments import in_parts, one_line, one_number, row_weights

LEAST = 1e-6
"""The least variance of a column within clusters, as a share of that over all rows."""

DIGITS = 1e-13
"""A column that varies by less than so much of its value is constant, but for rounding."""


@dataclass(frozen=True, slots=True)
class ColumnSpread:
    """Squared distances of rows to their nearest centres in each column.

    `MixtureLikelihood` needs them.

    Notes
    -----
    A site sends d + 1 numbers: the sums of w (x - c)^2 over its rows, and their weight. A limit
    on the size of clusters holds nothing of them back, only one on the rows of a site does.

    Examples
    --------
    >>> rows = Data(np.array([[0.0, 1.0], [2.0, 1.0], [9.0, 5.0]]))
    >>> state = State.at(np.array([[1.0, 1.0], [9.0, 2.0]]))
    >>> ColumnSpread().client_step(state, rows, np.random.default_rng(0)).sums
    array([[2., 9.]])
    """

    allowed = Allowed(centers=CENTERS)
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a number for each column."""
        return 1, n_columns

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return sums of squared differences to the nearest centre, by column."""
        sums = np.zeros(data.X.shape[1])
        for part in in_parts(data, 2 * len(sums)):
            labels, _ = clusters_of(part, state.centers)
            sums += row_weights(part) @ (part.X - state.centers[labels]) ** 2
        if (within := data.within) is not None:
            sums += within
        return one_line(sums, data)


@dataclass(frozen=True, slots=True)
class MixtureLikelihood:
    """Bayesian information criterion of the clusters as a mixture of clouds of one shape.

        BIC = p log n - 2 log L,        p = (k - 1) + k d + d

    after G. Schwarz, Estimating the dimension of a model, Ann. Statist. 6, 1978, with the
    sign of scikit-learn's ``GaussianMixture.bic``: the most likely k has the *smallest* BIC, and
    k = 1 is among the answers. k counts clusters that have rows, d columns that are not constant.
    The scale of a column does not matter.

    Asked about the state that `mixture_round` makes of a first round's totals.

    Deviation: the parameters are those of k-means, not the most likely ones, so that log L is a
    little too small. A few rounds of expectation and maximisation changed no choice of k.

    Notes
    -----
    A site sends two numbers, log L of its rows and their weight, and receives the mean and size
    of each cluster and the variance of each column. They reveal little, unless the site has very
    few rows; a limit on the size of clusters holds nothing of them back, only one on the rows of
    a site does.

    Examples
    --------
    >>> state = State(
    ...     np.array([[0.0], [4.0]]), np.array([2.0, 2.0]),
    ...     memory={"means": np.array([[0.0], [4.0]]), "columns": np.array([1.0])},
    ... )
    >>> rows = Data(np.array([[-1.0], [1.0], [3.0], [5.0]]))
    >>> answer = MixtureLikelihood().client_step(state, rows, np.random.default_rng(0))
    >>> round(MixtureLikelihood().score(state, answer), 4)
    22.3692
    """

    allowed = Allowed(
        centers=CENTERS,
        memory={"means": Array(("k", "d")), "columns": Array(("d",), least=0.0)},
    )
    client_additive = server_additive = True
    maximise = False
    answer_shape = one_number

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return log L of the rows, 0 where they are all alike, and their weight."""
        sizes, columns, total = state.weights, state.memory["columns"], 0.0
        some, varied = sizes > 0, columns > 0
        if some.any() and varied.any():
            shares = np.log(sizes[some] / sizes[some].sum())
            shares -= np.log(2 * pi * columns[varied]).sum() / 2
            means, deviations = state.memory["means"][some][:, varied], np.sqrt(columns[varied])
            for part in in_parts(data, 2 * len(sizes) + 2 * len(columns)):
                scaled = (part.X[:, varied] - means[0]) / deviations
                squared = cdist(scaled, (means - means[0]) / deviations, "sqeuclidean")
                total += float(row_weights(part) @ logsumexp(shares - squared / 2, axis=1))
        return one_line(total, data)

    def score(self, state: State, total: Summary) -> float:
        """Return the criterion; minus infinity if all rows are alike, nan for n <= k."""
        k, d = int((state.weights > 0).sum()), int((state.memory["columns"] > 0).sum())
        n, [weight] = float(state.weights.sum()), total.weights
        if not (weight > 0 and n > k):
            return float("nan")
        if not d:
            return float("-inf")
        likelihood = float(total.sums[0, 0] * n / weight)
        return (k - 1 + k * d + d) * log(n) - 2 * likelihood


def mixture_round(state: State, scatter: Summary, spread: Summary) -> State:
    """Return the state that `MixtureLikelihood` is asked about.

    Parameters
    ----------
    state : State
        The centres of the first round.
    scatter, spread : Summary
        The total answers to `Scatter` and `ColumnSpread` about them.

    Returns
    -------
    State
        The same centres; its memory holds ``means`` (k, d) and ``columns`` (d,), the variance of
        each column within the clusters, 0 where a column is constant.
    """
    clusters = Clusters.from_total(state, scatter)
    n = max(float(clusters.weights.sum()), 1.0)
    moved = clusters.weights @ clusters.moves**2 / n
    within = np.maximum(spread.sums[0] / max(float(spread.weights[0]), 1.0) - moved, 0.0)
    means = (clusters.centers - clusters.centers[0]) + clusters.moves
    apart = means - clusters.weights @ means / n
    overall = within + clusters.weights @ apart**2 / n
    rounding = (DIGITS * np.abs(clusters.means).max(axis=0)) ** 2
    columns = np.where(overall > rounding, np.maximum(within, LEAST * overall), 0.0)
    memory = {"means": clusters.means, "columns": columns}
    return State(clusters.centers, clusters.weights, memory=memory)
