"""Silhouettes, and their values for rows without clusters.

Silhouettes compare the distance of rows to their own cluster with that to the next one.

With a the distance of a row to its own cluster and b that to the nearest other one,

    s = (b - a) / max(a, b),        the score is the mean of s, from -1 to 1.

P. J. Rousseeuw, Silhouettes, J. Comput. Appl. Math. 20, 1987, takes for a and b the mean distance
to all rows of a cluster. Over sites:

- `SimplifiedSilhouette`: the distance to a centre (E. R. Hruschka, L. N. de Castro & R. J. G. B.
  Campello, ICDM 2004). One round.
- `SquaredSilhouette`: Rousseeuw's, for squared Euclidean distances, exactly; for the mean of
  |x - y|^2 over the rows y of a cluster is |x - m|^2 + V, with m their mean and V their variance.
  Two rounds: the first brings m, V and n.
- `ClusterSilhouettes`: the simplified ones, cluster by cluster.
- Rousseeuw's for plain distances takes every pair of rows, and so cannot be federated.

For an index, a site sends two numbers, the sum of s over its rows and their weight. They reveal
little, unless the site has very few rows; they are not held back by a limit on the size of
clusters, only by one on the rows of a site.

The silhouette by chance is that of rows without any clusters, cut into as many.

The indices of separation have no threshold in their sources, and k-means cuts any rows into k
clusters. So the server draws rows from a single cloud, clusters and scores them. The clouds are the
references used in the literature: a box along the principal axes (the gap statistic: R. Tibshirani,
G. Walther & T. Hastie, J. R. Statist. Soc. B 63, 2001) and one normal distribution (SigClust: Y.
Liu, D. N. Hayes, A. Nobel & J. S. Marron, J. Am. Statist. Assoc. 103, 2008). A clustering that does
not exceed the best of all draws shows no structure beyond that of a single cloud.

Deviations: both use the covariance of the rows. To avoid one more question, it is estimated here
from that of the clusters' means, c B, and the columns' variances T, as c B + diag(T - c diag B).
The factor c >= 1 compensates for the variance within clusters, and is chosen so that the clustered
draws have as much variance between clusters as the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.random import Generator

from fedcluster.core import Data, Floats, Labels, Rows, State, Summary
from fedcluster.core.ranges import CENTERS, Allowed, Array
from fedcluster.kernels import kmeans
from fedcluster.metrics import moments
from fedcluster.metrics.clusters import Clusters, Scatter, clusters_of, second_round
from fedcluster.metrics.gaussians import mixture_round


@dataclass(frozen=True, slots=True)
class ReferenceSize:
    """How many rows a reference for silhouettes by chance has."""

    most_rows: int = 1024  # largest number of rows of a reference
    most_values: int = 1 << 17  # largest number of its values
    rows_each: int = 8  # smallest number of its rows per cluster
    most_columns: int = 512  # columns up to which there are references


REFERENCE = ReferenceSize()


@dataclass(frozen=True, slots=True)
class SimplifiedSilhouette:
    """Mean of (b - a) / max(a, b), with a and b the distances to the nearest two centres.

    Asked about the final centres, it is what Garst & Reinders report for central k-means; for FKM,
    they move the centres to the means of their rows and assign the rows to these (FKM papers,
    figures 6 and 7), which is the same question about the means. A centre without rows counts like
    any other.

    Notes
    -----
    A site sends two numbers. The score is nan for a single centre.

    Examples
    --------
    >>> state, rows = State.at(np.array([[0.0], [4.0]])), Data(np.array([[0.0], [1.0], [4.0]]))
    >>> answer = SimplifiedSilhouette().client_step(state, rows, np.random.default_rng(0))
    >>> answer.sums  # 1 + 2/3 + 1
    array([[2.66666667]])
    """

    allowed = Allowed(centers=CENTERS)
    client_additive = server_additive = maximise = True
    answer_shape = moments.one_number

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the sum of s and the weight of the rows."""
        centers, total = state.centers, 0.0
        if len(centers) > 1:
            for part in moments.in_parts(data, 2 * len(centers)):
                apart = np.partition(scipy.spatial.distance.cdist(part.X, centers), 1, axis=1)
                total += float(moments.row_weights(part) @ silhouettes(apart[:, 0], apart[:, 1]))
        return moments.one_line(total, data)

    def score(self, state: State, total: Summary) -> float:
        """Return the mean."""
        return moments.mean(total) if len(state.centers) > 1 else float("nan")


@dataclass(frozen=True, slots=True)
class ClusterSilhouettes:
    """Sums of the simplified silhouettes of each cluster's rows, and of their squares.

    s = (b - a) / max(a, b), with a the distance of a row to the centre of its own cluster and b
    that to the nearest other centre. It is below 0 if another centre is nearer than its own, which
    happens only with an algorithm that assigns rows by another rule.

    Notes
    -----
    A site sends 4 k numbers: a line for each cluster, so that a limit on the size of clusters holds
    back small ones. All s are 0 for a single centre. For rows in groups, s is that of their means.

    Examples
    --------
    >>> state, rows = State.at(np.array([[0.0], [4.0]])), Data(np.array([[0.0], [1.0], [4.0]]))
    >>> ClusterSilhouettes().client_step(state, rows, np.random.default_rng(0)).sums  # 1 and 2/3; 1
    array([[1.66666667, 1.44444444],
           [1.        , 1.        ]])
    """

    allowed = Allowed(centers=CENTERS)
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: two sums for each cluster."""
        return len(state.centers), 2

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the sums, the weights and the numbers of the rows of each cluster."""
        k = len(state.centers)
        summary = moments.no_rows(k, 2)
        for part in moments.in_parts(data, 2 * k + 4):
            labels, squared = clusters_of(part, state.centers)
            s = np.zeros(len(part))
            if k > 1:
                apart = scipy.spatial.distance.cdist(part.X, state.centers)
                apart[np.arange(len(part)), labels] = np.inf
                s = silhouettes(np.sqrt(squared), apart.min(axis=1))
            summary += moments.by_cluster(part, labels, np.column_stack([s, s**2]), k)
        return summary


def silhouettes_by_cluster(total: Summary) -> Floats:
    """Return the mean and the spread of s in each cluster, (2, k), from `ClusterSilhouettes`.

    They are NaN for a cluster without rows.

    Examples
    --------
    >>> silhouettes_by_cluster(Summary(np.array([[1.2, 0.8]]), np.array([2.0]), np.array([2.0])))
    array([[0.6],
           [0.2]])
    """
    weights = np.where(total.weights > 0, total.weights, np.nan)
    means, squares = total.sums.T / weights
    return np.array([means, np.sqrt(np.maximum(squares - means**2, 0.0))])


@dataclass(frozen=True, slots=True)
class SquaredSilhouette:
    """Rousseeuw's silhouette for squared Euclidean distances, exact.

    Equal to scikit-learn's ``silhouette_score(X, labels, metric="sqeuclidean")`` on the pooled
    rows, each labelled by its nearest centre. a of a row is n / (n - 1) (|x - m|^2 + V) of its own
    cluster, so that the row itself does not count; the only row of a cluster has s = 0.

    It is asked about the state that `second_round` returns from the first round's total.

    Notes
    -----
    A site sends two numbers and receives the mean, variance and size of each cluster. If limits
    held back all rows of a cluster in the first round, its rows have s = 0 and it is not a
    neighbour of others. The score is nan for a single cluster.
    """

    allowed = Allowed(
        centers=CENTERS,
        memory={"means": Array(("k", "d")), "variances": Array(("k",), least=0.0)},
    )
    client_additive = server_additive = maximise = True
    answer_shape = moments.one_number

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the sum of s and the weight of the rows."""
        sizes, total = state.weights, 0.0
        if np.count_nonzero(sizes > 0) > 1:
            for part in moments.in_parts(data, 2 * len(sizes)):
                labels, _ = clusters_of(part, state.centers)
                s = _squared_silhouettes(part.X, labels, sizes, **state.memory)
                total += float(moments.row_weights(part) @ s)
        return moments.one_line(total, data)

    def score(self, state: State, total: Summary) -> float:
        """Return the mean."""
        return moments.mean(total) if np.count_nonzero(state.weights > 0) > 1 else float("nan")


def silhouettes(own: Floats, other: Floats) -> Floats:
    """Return (b - a) / max(a, b) of each row, 0 if both are 0.

    Examples
    --------
    >>> silhouettes(np.array([1.0, 3.0, 0.0]), np.array([2.0, 1.0, 0.0]))
    array([ 0.5       , -0.66666667,  0.        ])
    """
    larger = np.maximum(own, other)
    return (other - own) / np.where(larger > 0, larger, 1.0)


def _squared_silhouettes(
    X: Rows, labels: Labels, sizes: Floats, means: Floats, variances: Floats
) -> Floats:
    """Return the s of each row, from the mean, variance and size of each cluster."""
    mean_squares = scipy.spatial.distance.cdist(X, means, "sqeuclidean") + variances
    own = mean_squares[np.arange(len(X)), labels]
    mean_squares[np.arange(len(X)), labels] = np.inf
    mean_squares[:, sizes <= 0] = np.inf
    size = sizes[labels]
    others = np.where(size > 1, size - 1, 1.0)
    s = silhouettes(own * size / others, mean_squares.min(axis=1))
    return np.where(size > 1, s, 0.0)


SHAPES: tuple[Callable[[Generator, tuple[int, int]], Floats], ...] = (
    lambda rng, shape: rng.uniform(-np.sqrt(3), np.sqrt(3), shape),
    lambda rng, shape: rng.normal(size=shape),
)
"""The clouds along their principal axes, with variance 1: a box, and a normal distribution."""


@dataclass(frozen=True, slots=True, eq=False)
class Cloud:
    """Reference cloud without clusters, with the same variances as the rows.

    Parameters
    ----------
    between : ndarray of shape (d, d)
        B, the covariance of the clusters' means, weighted by size.
    variances : ndarray of shape (d,)
        T, the variances of the columns.
    n, k : int
        Number of rows to draw, and of clusters to cut them into.
    """

    between: Floats
    variances: Floats
    n: int
    k: int

    def axes(self, c: float) -> Floats:
        """Return the principal axes of the cloud, (d, d), each scaled to its standard deviation."""
        covariance = c * self.between
        rest = np.maximum(self.variances - np.diag(covariance), 0.0)
        values, vectors = np.linalg.eigh(covariance + np.diag(rest))
        axes: Floats = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        return axes

    def clustered(self, axes: Floats, shape: int, rng: Generator) -> tuple[float, float]:
        """Draw and cluster rows; return their squared silhouette and variance between clusters."""
        rows = Data(SHAPES[shape](rng, (self.n, len(axes))) @ axes)
        state = State.at(kmeans(rows.X, self.k, rng=rng, n_init=2).centers)
        scatter = Scatter().client_step(state, rows, rng)
        about = second_round(state, scatter)
        score = SquaredSilhouette().score(about, SquaredSilhouette().client_step(about, rows, rng))
        return score, Clusters.from_total(state, scatter).between / self.n

    def matched(self, shape: int, rng: Generator) -> Floats:
        """Return the axes at which clusters of the draws hide as much as those of the rows."""
        wanted, c = float(np.trace(self.between)), 1.0
        # Number of clusterings by which c is found.
        for _ in range(4):
            _, between = self.clustered(self.axes(c), shape, rng)
            c = float(np.clip(c * wanted / between, 1.0, self.variances.sum() / wanted))
        return self.axes(c)


def silhouette_by_chance(
    state: State,
    scatter: Summary,
    spread: Summary,
    n_references: int,
    rng: Generator,
    size: ReferenceSize = REFERENCE,
) -> float:
    """Return the largest squared silhouette of rows without clusters.

    Parameters
    ----------
    state : State
        The centres of the clustering.
    scatter, spread : Summary
        The totals of `Scatter` and `ColumnSpread` about these centres.
    n_references : int
        Number of draws of each of the two shapes.
    rng : Generator
        Generator for the draws.

    Returns
    -------
    float
        The silhouette; nan for a single cluster, for n <= k, for rows that are all equal, and above
        ``size.most_columns`` columns.
    """
    clusters, d = Clusters.from_total(state, scatter), state.centers.shape[1]
    k, n = int(clusters.present.sum()), float(clusters.weights.sum())
    if not (1 < k < n and d <= size.most_columns):
        return float("nan")
    apart = (clusters.means - clusters.means[clusters.present][0])[clusters.present]
    shares = clusters.weights[clusters.present] / n
    apart = apart - shares @ apart
    between = (apart * shares[:, None]).T @ apart
    if not np.trace(between) > 0:
        return float("nan")
    within = mixture_round(state, scatter, spread).memory["columns"]
    most = min(size.most_rows, max(size.most_values // d, size.rows_each * k))
    cloud = Cloud(between, np.diag(between) + within, int(np.clip(n, k + 1, max(most, k + 1))), k)
    shapes = range(len(SHAPES))
    axes = [cloud.matched(shape, rng) for shape in shapes]
    draws = [cloud.clustered(axes[s], s, rng)[0] for s in shapes for _ in range(n_references)]
    return float(np.max(draws))
