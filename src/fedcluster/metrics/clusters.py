"""Inertia, and indices of hard clusters that follow from one message of k (d + 3) numbers.

Every row x belongs to its nearest centre. A site sends for each cluster j, w a row's weight,

    sum of w (x - c_j),  sum of w |x - c_j|^2,  sum of w |x - c_j|,  n_j = sum of w.

These give the means m_j of the clusters' rows, wherever the centres c_j are, and every sum of
squares about them; all from differences, so that an offset of the rows costs no digits.

They reveal, for each site, the mean, the size and the scatter of its part of each cluster, as one
round of Lloyd does, and the mean distance. Rows in a line that a site's limit holds back count for
no index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, pi

import numpy as np
import scipy
from numpy.random import Generator
from numpy.typing import NDArray

from fedcluster.core import Algorithm, Data, Floats, Labels, Metric, State, Summary
from fedcluster.core.ranges import CENTERS, Allowed, Array, Box, LineBounds
from fedcluster.kernels import nearest
from fedcluster.metrics import moments
from fedcluster.options.choices import known_name


def clusters_of(part: Data, centers: Floats) -> tuple[Labels, Floats]:
    """Return the cluster of each row, (n,), and its squared distance to that centre, (n,).

    The cluster is that of the nearest centre, unless the rows have clusters assigned.

    Examples
    --------
    >>> rows, centers = np.array([[1.0], [4.0]]), np.array([[0.0], [5.0]])
    >>> clusters_of(Data(rows), centers)
    (array([0, 1], dtype=int32), array([1., 1.]))
    >>> clusters_of(Data(rows, assigned=np.array([1, 1], dtype=np.int32)), centers)
    (array([1, 1], dtype=int32), array([16.,  1.]))
    """
    if part.assigned is None:
        return nearest(part.X, centers)
    squared: Floats = ((part.X - centers[part.assigned]) ** 2).sum(axis=1)
    return part.assigned, squared


@dataclass(frozen=True, slots=True)
class Inertia:
    """Sum of the weighted squared distances of rows to their nearest centres.

    A site sends two numbers, its part of the sum and its weight. If a site's limits hold its answer
    back, its rows are missing from the score.

    Examples
    --------
    >>> state, rows = State.at(np.array([[0.0], [9.0]])), Data(np.array([[0.0], [1.0], [8.0]]))
    >>> Inertia().score(state, Inertia().client_step(state, rows, np.random.default_rng(0)))
    2.0
    """

    allowed = Allowed(centers=CENTERS)
    client_additive = server_additive = True
    maximise = False
    answer_shape = moments.one_number

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of an answer: of the squared distance to the nearest centre."""
        most = box.distances(state.centers).min()
        return LineBounds(0.0 if np.isfinite(most) else -np.inf, most)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the site's part of the sum and the weight of its rows."""
        _, squared = nearest(data.X, state.centers, data.sample_weight, cache=data.cache)
        # in order, not as BLAS adds; 0 where the preparation has dropped all rows
        total = np.cumsum(squared * moments.row_weights(data))[-1:].sum()
        if (within := data.within) is not None:
            total += within.sum()
        return moments.one_line(total, data)

    def score(self, state: State, total: Summary) -> float:
        """Return the sum."""
        return float(total.sums[0, 0])


@dataclass(frozen=True, slots=True)
class Scatter:
    """Sums of the differences and distances of each cluster's rows to its centre.

    Notes
    -----
    A site sends k (d + 3) numbers.

    Examples
    --------
    >>> state, rows = State.at(np.array([[0.0], [9.0]])), Data(np.array([[0.0], [1.0], [7.0]]))
    >>> Scatter().client_step(state, rows, np.random.default_rng(0)).sums
    array([[ 1.,  1.,  1.],
           [-2.,  4.,  2.]])
    """

    allowed = Allowed(centers=CENTERS)
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each centre, of differences and two sums."""
        return len(state.centers), n_columns + 2

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return sums of differences, of their squares and lengths, by nearest centre."""
        k, d = state.centers.shape
        summary = moments.no_rows(k, d + 2)
        for part in moments.in_parts(data, 2 * d + 8):
            labels, squared = clusters_of(part, state.centers)
            differences = part.X - state.centers[labels]
            values = np.column_stack([differences, squared, np.sqrt(squared)])
            summary += moments.by_cluster(part, labels, values, k)
        if data.grouped is not None:
            summary.sums[:, d] += data.spread_within(summary.weights)
        return summary


@dataclass(frozen=True, slots=True)
class Spread:
    """Sums of the distances of each cluster's rows to their mean.

    It is asked in the second round of an evaluation. Rows belong to the nearest centre; the means
    are in the state that `second_round` returns.

    Notes
    -----
    A site sends 2 k numbers: sums of w |x - m_j| and weights.
    """

    allowed = Allowed(
        centers=CENTERS,
        memory={"means": Array(("k", "d")), "variances": Array(("k",), least=0.0)},
    )
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a distance for each centre."""
        return len(state.centers), 1

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return sums of distances to the means, by nearest centre."""
        means = state.memory["means"]
        k, d = means.shape
        summary = moments.no_rows(k, 1)
        for part in moments.in_parts(data, 2 * d + 8):
            labels, _ = clusters_of(part, state.centers)
            distances = np.sqrt(((part.X - means[labels]) ** 2).sum(axis=1))
            summary += moments.by_cluster(part, labels, distances, k)
        return summary


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Clusters of all rows, from the total of `Scatter`.

    Parameters
    ----------
    centers : ndarray of shape (k, d)
        The centres c_j that were asked about.
    weights : ndarray of shape (k,)
        n_j.
    moves : ndarray of shape (k, d)
        m_j - c_j, from the centres to the means of their rows; 0 for a cluster without rows.
    errors : ndarray of shape (k,)
        Sums of w |x - c_j|^2, in squared units of the rows.
    distances : ndarray of shape (k,)
        Sums of w |x - c_j|, in units of the rows.
    """

    centers: Floats
    weights: Floats
    moves: Floats
    errors: Floats
    distances: Floats

    @classmethod
    def from_total(cls, state: State, total: Summary) -> Clusters:
        """Read the total of `Scatter` about the centres of a state."""
        weights = np.where(total.weights > 0, total.weights, 0.0)
        safe = np.where(weights > 0, weights, 1.0)
        moves = np.where(weights[:, None] > 0, total.sums[:, :-2] / safe[:, None], 0.0)
        errors, distances = total.sums[:, -2:].T
        return cls(state.centers, weights, moves, errors, distances)

    @property
    def present(self) -> NDArray[np.bool_]:
        """Return which clusters have rows, (k,) booleans."""
        return self.weights > 0

    @property
    def means(self) -> Floats:
        """The means m_j of the clusters' rows, (k, d)."""
        return self.centers + self.moves

    @property
    def within(self) -> Floats:
        """The sums of w |x - m_j|^2, (k,), in squared units of the rows."""
        within: Floats = self.errors - self.weights * (self.moves**2).sum(axis=1)
        # Relative rounding error of a difference of equal sums.
        return np.where(within > 1e-14 * self.errors, within, 0.0)

    @property
    def between(self) -> float:
        """The sum of n_j |m_j - m|^2, with m the mean of all rows."""
        if not self.present.any():
            return float("nan")
        means = (self.centers - self.centers[0]) + self.moves
        overall = np.average(means, axis=0, weights=self.weights)
        return float(self.weights @ ((means - overall) ** 2).sum(axis=1))


def second_round(state: State, scatter: Summary) -> State:
    """Return the state about which `Spread` and `SquaredSilhouette` are asked.

    Parameters
    ----------
    state : State
        The centres of the first round.
    scatter : Summary
        The total of `Scatter` about these centres.

    Returns
    -------
    State
        The same centres; its memory holds ``means`` (k, d) and ``variances`` (k,), within / n_j.
    """
    clusters = Clusters.from_total(state, scatter)
    variances = clusters.within / np.where(clusters.present, clusters.weights, 1.0)
    memory = {"means": clusters.means, "variances": variances}
    return State(clusters.centers, clusters.weights, memory=memory)


def inertia(state: State, total: Summary) -> float:
    """Return the sum of w |x - c_j|^2 over all rows, which k-means minimises (Lloyd 1982).

    It is in squared units of the rows. It decreases with every further centre, so it does not
    determine k.
    """
    clusters = Clusters.from_total(state, total)
    return float(clusters.errors.sum()) if clusters.present.any() else float("nan")


def within_sum_of_squares(state: State, total: Summary) -> float:
    """Return the sum of w |x - m_j|^2 over all rows: the inertia about the clusters' means."""
    clusters = Clusters.from_total(state, total)
    return float(clusters.within.sum()) if clusters.present.any() else float("nan")


def between_sum_of_squares(state: State, total: Summary) -> float:
    """Return the sum of n_j |m_j - m|^2 over the clusters, m the mean of all rows."""
    return Clusters.from_total(state, total).between


def total_sum_of_squares(state: State, total: Summary) -> float:
    """Return the sum of w |x - m|^2 over all rows: within + between, whatever the centres."""
    clusters = Clusters.from_total(state, total)
    return float(clusters.within.sum()) + clusters.between


def mean_distance(state: State, total: Summary) -> float:
    """Return the mean Euclidean distance, sum of w |x - c_j| / n (Triebe & Rajagopal 2019)."""
    clusters = Clusters.from_total(state, total)
    n = float(clusters.weights.sum())
    return float(clusters.distances.sum()) / n if n else float("nan")


def mean_distance_per_column(state: State, total: Summary) -> float:
    """Return the WSSE of FFCM (Stallmann & Wilbik, FL-AAAI 2022): sum of w |x - c_j| / (n d).

    The paper prints squares; its program and its tables have none.
    """
    return mean_distance(state, total) / len(state.centers[0])


def calinski_harabasz(state: State, total: Summary) -> float:
    """Return (between / (k - 1)) / (within / (n - k)); T. Calinski & J. Harabasz, 1974.

    k counts clusters with rows. As in scikit-learn, it is 1 if all rows equal their means; it is
    nan for a single cluster and for n = k.
    """
    clusters = Clusters.from_total(state, total)
    k, n, within = int(clusters.present.sum()), float(clusters.weights.sum()), clusters.within.sum()
    if k < 2 or n <= k:
        return float("nan")
    return float(clusters.between * (n - k) / (within * (k - 1))) if within else 1.0


def bic(state: State, total: Summary) -> float:
    """Return the Bayesian information criterion of X-means; D. Pelleg & A. Moore, ICML 2000.

    The rows are modelled as draws from k spherical normal distributions with a common variance s^2:

        log L = sum_j n_j log(n_j / n) - n d / 2 log(2 pi s^2) - d (n - k) / 2
        s^2   = within / (d (n - k))
        BIC   = p log n - 2 log L,          p = (k - 1) + k d + 1

    The most likely k has the *smallest* BIC, and k = 1 is possible. k counts clusters with rows.
    The criterion is nan for n <= k, and minus infinity if all rows equal their means.

    Deviation: the paper prints within / (n - k) for s^2 and (n - k) / 2 in log L, which are
    right for d = 1 only. Its BIC is -1/2 times this one, which has scikit-learn's sign.
    """
    clusters = Clusters.from_total(state, total)
    sizes, d = clusters.weights[clusters.present], int(state.centers.shape[1])
    k, n, within = len(sizes), float(sizes.sum()), float(clusters.within.sum())
    if n <= k:
        return float("nan")
    if not within:
        return float("-inf")
    variance = within / (d * (n - k))
    likelihood = float(sizes @ np.log(sizes / n))
    likelihood -= n * d / 2 * log(2 * pi * variance) + d * (n - k) / 2
    return (k - 1 + k * d + 1) * log(n) - 2 * likelihood


def davies_bouldin_at_means(state: State, total: Summary) -> float:
    """Return the Davies-Bouldin index of the labelled rows, from the total of `Spread`.

    Equal to scikit-learn's ``davies_bouldin_score`` on the pooled rows, each labelled by its
    nearest centre.
    """
    some = (state.weights > 0) & (total.weights > 0)
    return davies_bouldin(state.memory["means"][some], total.sums[some, 0] / total.weights[some])


def davies_bouldin_at_centers(state: State, total: Summary) -> float:
    """Return the Davies-Bouldin index about the centres themselves (Triebe & Rajagopal 2019).

    It is `davies_bouldin` with c_j in place of m_j.
    """
    clusters = Clusters.from_total(state, total)
    some = clusters.present
    return davies_bouldin(clusters.centers[some], clusters.distances[some] / clusters.weights[some])


def davies_bouldin(points: Floats, spreads: Floats) -> float:
    """Return 1 / k times the sum over i of max_{j != i} (s_i + s_j) / |m_i - m_j|.

    D. L. Davies & D. W. Bouldin, A cluster separation measure, IEEE PAMI 1, 1979.

    Parameters
    ----------
    points : ndarray of shape (k, d)
        m_i.
    spreads : ndarray of shape (k,)
        s_i, mean distances of rows to m_i.

    Returns
    -------
    float
        As in scikit-learn, pairs of clusters at the same place are ignored; 0 if all are, or if
        there is no spread; nan for a single cluster.

    Examples
    --------
    >>> davies_bouldin(np.array([[0.0], [4.0], [10.0]]), np.array([1.0, 1.0, 2.0]))
    0.5
    """
    if len(points) < 2:
        return float("nan")
    apart = scipy.spatial.distance.cdist(points, points)
    if not apart.any() or not spreads.any():
        return 0.0
    apart[apart == 0] = np.inf
    return float(((spreads[:, None] + spreads) / apart).max(axis=1).mean())


# Names of objectives

LOG_LIKELIHOOD = "log-likelihood"
BY_CHANCE = "squared-silhouette-by-chance"
"""Name of the silhouette of rows without clusters."""
REPORTED = "inertia as the algorithm reports it"
"""Report of a round if an algorithm is a user's own, whose objective is asked after the last."""

OBJECTIVES: Mapping[str, str] = {
    "Inertia": "inertia",
    "PresentInertia": "present-inertia",
    "FuzzyObjective": "fuzzy-objective",
    "LogLikelihood": LOG_LIKELIHOOD,
}
"""Names of the package's objectives, by the steps that ask for them."""

MEANINGS: Mapping[str, str] = {
    "inertia": "the sum of squared distances of the rows to their centres",
    "present-inertia": "the sum of squared distances over the values that are not missing",
    "fuzzy-objective": "the sum of squared distances by membership to the power m",
    LOG_LIKELIHOOD: "the logarithm of the density of the rows",
    "noisy-inertia": "the sum of squared distances, clipped and with the noise of the budget",
    "robust-inertia": "the sum of squared distances, of sites that are farthest off bounded",
}
"""Descriptions of the package's objectives."""


def objective_name(
    algorithm: Algorithm | None, *, robust: bool = False, noisy: bool = False
) -> str:
    """Return the name of an algorithm's objective; for a user's own, the metric as text.

    Parameters
    ----------
    algorithm : Algorithm or None
        The algorithm; None if it is unknown.
    robust : bool, default=False
        Whether the fit bounds the influence of single sites.
    noisy : bool, default=False
        Whether the fit has a privacy budget.

    Examples
    --------
    >>> from fedcluster.algorithms import FFCM, Lloyd
    >>> objective_name(Lloyd()), objective_name(Lloyd(), robust=True), objective_name(FFCM(2.0))
    ('inertia', 'robust-inertia', 'fuzzy-objective')
    """
    name = "inertia" if algorithm is None else metric_name(algorithm.objective())
    changed = "noisy-" if noisy else "robust-" if robust else ""
    return f"{changed}{name}" if name == "inertia" else name


def metric_name(metric: Metric) -> str:
    """Return the name of an objective: a word or, for a user's own, the metric as text."""
    return OBJECTIVES.get(known_name(type(metric)), str(metric))


def shown_value(name: str, value: float) -> float:
    """Return an objective as shown to people: the log-likelihood with its sign restored."""
    return -value if name == LOG_LIKELIHOOD else value


def round_name(name: str) -> str:
    """Return the name of what each round of a run with this objective reports."""
    return name if name in MEANINGS else REPORTED
