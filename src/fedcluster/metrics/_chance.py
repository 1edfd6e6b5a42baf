"""Silhouette by chance: how well rows without any clusters let themselves be cut into as many.

The indices of separation have no threshold in their sources, and k-means cuts any rows into k
clusters. So the server draws rows of a single cloud, clusters these alone, and scores them. The
clouds are those that are compared with in the literature: a box along the principal axes (the gap
statistic: R. Tibshirani, G. Walther & T. Hastie, J. R. Statist. Soc. B 63, 2001) and one normal
distribution (SigClust: Y. Liu, D. N. Hayes, A. Nobel & J. S. Marron, J. Am. Statist. Assoc. 103,
2008). Who does not exceed the best of all draws shows no structure that a single cloud would not.

Deviations: both take the covariance of the rows. It would be one more question, so here it is that
of the clusters' means, c B, beside the columns' variances T: c B + diag(T - c diag B). c >= 1 makes
up for what clusters hide, and is such that the draws, clustered, have as much variance between
clusters as the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedcluster.core import Data, Floats, State, Summary
from fedcluster.kernels import kmeans
from fedcluster.metrics._clusters import Clusters, Scatter, second_round
from fedcluster.metrics._mixture import mixture_round
from fedcluster.metrics._silhouettes import SquaredSilhouette

MOST_ROWS, MOST_VALUES, ROWS_EACH = 1024, 1 << 17, 8
"""Rows and values of a reference at most, but so many rows for each cluster at least."""
MOST_COLUMNS = 512
"""Columns up to which there are references."""
MATCHED = 4
"""Clusterings by which c is found."""

SHAPES: tuple[Callable[[Generator, tuple[int, int]], Floats], ...] = (
    lambda rng, shape: rng.uniform(-np.sqrt(3), np.sqrt(3), shape),
    lambda rng, shape: rng.normal(size=shape),
)
"""The clouds along their principal axes, of variance 1: a box, a normal distribution."""


@dataclass(frozen=True, slots=True, eq=False)
class Cloud:
    """Cloud without clusters, as wide as the rows.

    Parameters
    ----------
    between : ndarray of shape (d, d)
        B, the covariance of the clusters' means, each by its weight.
    variances : ndarray of shape (d,)
        T, of the columns.
    n, k : int
        Rows that are drawn, and clusters that they are cut into.
    """

    between: Floats
    variances: Floats
    n: int
    k: int

    def axes(self, c: float) -> Floats:
        """Return the principal axes of the cloud, (d, d), each as long as its deviation."""
        covariance = c * self.between
        rest = np.maximum(self.variances - np.diag(covariance), 0.0)
        values, vectors = np.linalg.eigh(covariance + np.diag(rest))
        axes: Floats = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        return axes

    def clustered(self, axes: Floats, shape: int, rng: Generator) -> tuple[float, float]:
        """Draw and cluster rows; returns their squared silhouette and variance between clusters."""
        rows = Data(SHAPES[shape](rng, (self.n, len(axes))) @ axes)
        state = State.at(kmeans(rows.X, self.k, rng=rng, n_init=2).centers)
        scatter = Scatter().client_step(state, rows, rng)
        about = second_round(state, scatter)
        score = SquaredSilhouette().score(about, SquaredSilhouette().client_step(about, rows, rng))
        return score, Clusters.from_total(state, scatter).between / self.n

    def matched(self, shape: int, rng: Generator) -> Floats:
        """Return the axes at which clusters of the draws hide as much as those of the rows."""
        wanted, c = float(np.trace(self.between)), 1.0
        for _ in range(MATCHED):
            _, between = self.clustered(self.axes(c), shape, rng)
            c = float(np.clip(c * wanted / between, 1.0, self.variances.sum() / wanted))
        return self.axes(c)


def silhouette_by_chance(
    state: State, scatter: Summary, spread: Summary, n_references: int, rng: Generator
) -> float:
    """Return the largest squared silhouette of rows without clusters.

    Parameters
    ----------
    state : State
        The centres that the sites were asked about.
    scatter, spread : Summary
        The total answers to `Scatter` and `ColumnSpread` about them.
    n_references : int
        Draws of each of the two shapes.
    rng : Generator
        Makes the draws.

    Returns
    -------
    float
        nan for a single cluster, for n <= k, for rows that are all alike, and above
        `MOST_COLUMNS` columns.
    """
    clusters, d = Clusters.from_total(state, scatter), state.centers.shape[1]
    k, n = int(clusters.present.sum()), float(clusters.weights.sum())
    if not (1 < k < n and d <= MOST_COLUMNS):
        return float("nan")
    apart = (clusters.means - clusters.means[clusters.present][0])[clusters.present]
    shares = clusters.weights[clusters.present] / n
    apart = apart - shares @ apart
    between = (apart * shares[:, None]).T @ apart
    if not np.trace(between) > 0:
        return float("nan")
    within = mixture_round(state, scatter, spread).memory["columns"]
    most = min(MOST_ROWS, max(MOST_VALUES // d, ROWS_EACH * k))
    cloud = Cloud(between, np.diag(between) + within, int(np.clip(n, k + 1, max(most, k + 1))), k)
    shapes = range(len(SHAPES))
    axes = [cloud.matched(shape, rng) for shape in shapes]
    draws = [cloud.clustered(axes[s], s, rng)[0] for s in shapes for _ in range(n_references)]
    return float(np.max(draws))
