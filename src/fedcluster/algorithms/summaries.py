"""Site summaries: one round in which every site describes its rows by weighted means.

    site i:   where its rows are many, the leaves of a variance tree of its own replace them,
              unless L is large; k-means of its rows with L clusters, from rows that lie apart
              where both are many; a cluster of fewer than q rows gives its rows to the nearest
              other one; -> at most L means, each with its number of rows
    server:   lays them side by side

With many means for each cluster, the means can replace the rows in any search: weighted k-means of
them costs no further round. Unlike in k-FED's message, every row is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedcluster.algorithms.merging import pool
from fedcluster.algorithms.variance_tree import VarianceTree
from fedcluster.core import Data, Floats, Rows, State, Summary
from fedcluster.core.ranges import MEANS, NO_CENTERS, Allowed, Box, LineBounds, Whole
from fedcluster.kernels import hard_pass, kmeans, nearest
from fedcluster.kernels.iteration import lloyd
from fedcluster.metrics import Inertia


@dataclass(frozen=True, slots=True)
class SiteSummaries:
    """Description of each site by at most ``n_means`` weighted means.

    Parameters
    ----------
    n_means : int
        L, the largest number of means that a site sends.
    min_rows : int, default=1
        q, the smallest number of rows of a mean. A site with fewer than 2 q rows sends their common
        mean.
    rows_per_mean : int, default=1
        A site sends at most one mean per this many of its rows.

    Notes
    -----
    A site sends at most L (d + 1) numbers, once.

    Examples
    --------
    >>> rows = Data(np.array([[0.0], [1.0], [2.0], [8.0], [9.0], [10.0], [50.0]]))
    >>> answer = SiteSummaries(n_means=3).client_step(State(), rows, np.random.default_rng(0))
    >>> np.sort(answer.weights)
    array([1., 3., 3.])
    """

    allowed = Allowed(
        {
            "n_means": MEANS,
            "min_rows": Whole(1, 1_000_000),
            "rows_per_mean": Whole(1, 1_000_000),
        },
        NO_CENTERS,
    )
    client_additive = server_additive = needs_centers = False
    min_cluster_size = 1
    objective = Inertia

    n_means: int
    min_rows: int = 1
    rows_per_mean: int = 1
    passes = 10  # iterations of k-means at a site: a description need not be converged
    passes_apart = 3  # the same for many means of many rows

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: any number of means."""
        return None, n_columns

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of an answer: of means of rows."""
        return LineBounds(box.low, box.high)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the means of the local clusters that are large enough."""
        data = data.weighed()
        k = min(self.n_means, max(1, len(data) // self.rows_per_mean))
        if len(data) > Points.most_rows and k <= Points.most_rows // Points.leaves_each:
            points = Points.of(data, rng)  # leaves are found by exact sums
        else:
            data = data.canonical()  # draws are among rows
            points = Points.each(data)
        k = min(k, len(points.X))
        if len(points.X) <= 2 * Points.most_rows:
            fit = kmeans(points.X, k, points.weights, rng=rng, n_init=1, max_iter=self.passes)
        else:
            start = Points.apart(data, rng, k).X
            fit = lloyd(points.X, start, points.weights, max_iter=self.passes_apart)
        return points.summary(fit.centers, self.min_rows)

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Return all means of all sites, with their weights."""
        centers, weights = pool(answers)
        return State(centers, weights, round=state.round + 1, converged=True)


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Rows of a site, or means of a few rows each.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The points.
    weights, counts : ndarray of shape (n,)
        The weight and the number of rows of each point.
    """

    X: Rows
    weights: Floats
    counts: Floats
    most_rows = 2048
    """Number of rows above which the leaves of a variance tree replace them; also the most
    leaves."""
    leaves_each = 4
    """Smallest number of leaves for each of many clusters or means: leaves are boxes, which cut
    through clusters in many columns."""
    rounds = 5  # in which rows that lie apart are drawn

    @classmethod
    def each(cls, data: Data) -> Points:
        """Return the rows themselves."""
        ones = np.ones(len(data))
        return cls(data.X, ones if data.sample_weight is None else data.sample_weight, ones)

    @classmethod
    def apart(cls, data: Data, rng: Generator, most: int) -> Points:
        """Return means of the rows that are nearest to each of ``most`` rows which lie apart.

        These are drawn in a few rounds with probabilities proportional to w D^2, D being the
        distance to the nearest row of earlier rounds (B. Bahmani et al., Scalable k-means++, VLDB
        2012). That takes the time of scoring all rows for them twice.
        """
        rows = cls.each(data)
        chosen = rng.choice(len(data), 1, p=rows.weights / rows.weights.sum())
        squared = nearest(rows.X, rows.X[chosen])[1]
        for left in range(cls.rounds, 0, -1):
            mass = rows.weights * squared
            with np.errstate(divide="ignore"):  # a row that equals a chosen one comes last
                turns = rng.exponential(size=len(mass)) / mass
            more = min((most - len(chosen)) // left, int(np.count_nonzero(mass)))
            if more:
                new = np.sort(np.argpartition(turns, more - 1)[:more])
                squared = np.minimum(squared, nearest(rows.X, rows.X[new])[1])
                chosen = np.append(chosen, new)
        found = hard_pass(rows.X, rows.X[chosen], rows.weights)
        some = found.counts > 0  # of equal rows, one has all
        means = found.sums[some] / found.weights[some, None]
        return cls(means, found.weights[some], found.counts[some].astype(np.float64))

    @classmethod
    def of(cls, data: Data, rng: Generator, most: int = most_rows) -> Points:
        """Return the rows themselves or, if there are many, the leaves of a variance tree."""
        if len(data) <= most:
            return cls.each(data)
        weights = cls.each(data).weights
        tree, state = VarianceTree(most, min_rows=1), State()
        # scale the weights so that the smallest is 1
        relative = Data(data.X, weights / weights.min())
        while not state.converged:
            state = tree.server_step(state, [tree.client_step(state, relative, rng)], rng)
        leaves = tree.client_step(state, relative, rng)
        assert leaves.support is not None
        return cls(state.centers, leaves.weights * weights.min(), leaves.support)

    def summary(self, centers: Floats, min_rows: int) -> Summary:
        """Return sums over the points of each centre, dropping centres until no cluster is small.

        Of the centres with fewer than ``min_rows`` rows, half are dropped at a time, the smallest
        first.
        """
        while True:
            groups = hard_pass(self.X, centers, self.weights)
            counts = np.bincount(groups.labels, self.counts, len(centers)).astype(np.float64)
            small = np.flatnonzero(counts < min_rows)
            if len(centers) == 1 or not len(small):
                return Summary(groups.sums, groups.weights, counts)
            order = small[np.argsort(counts[small], kind="stable")]
            gone = order[: min(max(1, len(order) // 2), len(centers) - 1)]
            centers = np.delete(centers, gone, axis=0)
