"""Objectives of algorithms, and indices of fuzzy clusters.

Distances and inertia of rows with missing values are over the columns that a row has:

    |x - c|^2 = sum of (x_l - c_l)^2 over the columns l that x has

as in k-POD, J. T. Chi, E. C. Chi & R. G. Baraniuk, k-POD: a method for k-means clustering of
missing data, American Statistician 70 (2016), whose objective is the sum of these. J. K. Dixon,
Pattern recognition with partly missing data, IEEE Trans. Systems, Man, and Cybernetics 9 (1979),
multiplies it by d / (number of columns that x has), to make distances of rows with few and with
many values comparable. That factor is the same for all centres and changes no assignment.

The objective of fuzzy c-means and the indices of fuzzy clusters come from one message of 7 k
numbers. A row x belongs to centre c_i to the degree u_i (Bezdek 1981, see
`fedcluster.kernels.fuzzy`). A site sends for each centre, w a row's weight, over *all* its rows,

    sums of w u_i,  w u_i^2,  w u_i^m |x - c_i|^2,  w |x - c_i|,  w |x - c_i|^2,
    the k-th part of the sum of w |x - c| for each row's nearest centre c, and the weight n.

This reveals moments of the distances of a site's rows to each centre: with more centres than
columns, the squares determine the mean of the site's rows. A limit on the size of clusters holds
back the line of a centre to which fewer rows belong, each counting by its degree, because with m
near 1 such a line reveals single rows. The centre then counts as unused at the site.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.random import Generator

from fedcluster.core import Data, Floats, Labels, Rows, State, Summary
from fedcluster.core.ranges import CENTERS, FUZZIFIER, Allowed, Box, LineBounds
from fedcluster.kernels import fuzzy_pass, memberships
from fedcluster.metrics.clusters import davies_bouldin
from fedcluster.metrics.moments import in_parts, one_line, one_number, row_weights


@dataclass(frozen=True, slots=True)
class FuzzyObjective:
    """J_m = sum of w u^m |x - c|^2 over rows and centres (Bezdek 1981), for m > 1.

    A site sends two numbers, its part of the sum and its weight. If a site's limits hold its answer
    back, its rows are missing from the score.

    Parameters
    ----------
    m : float, default=2
        The fuzzifier.

    Examples
    --------
    >>> state, rows = State.at(np.array([[0.0], [4.0]])), Data(np.array([[0.0], [1.0], [4.0]]))
    >>> answer = FuzzyObjective().client_step(state, rows, np.random.default_rng(0))
    >>> round(FuzzyObjective().score(state, answer), 12)  # 0.9^2 1 + 0.1^2 9
    0.9
    """

    allowed = Allowed({"m": FUZZIFIER}, CENTERS)
    client_additive = server_additive = True
    maximise = False
    answer_shape = one_number

    m: float = 2.0

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the site's part of the sum and the weight of its rows."""
        fuzzy = fuzzy_pass(data.X, state.centers, self.m, data.sample_weight)
        objective, weight = fuzzy.errors.sum(), fuzzy.supports.sum()
        return Summary(np.array([[objective]]), np.array([weight]), np.array([float(len(data))]))

    def score(self, state: State, total: Summary) -> float:
        """Return the sum."""
        return float(total.sums[0, 0])


@dataclass(frozen=True, slots=True)
class FuzzyScatter:
    """Degrees of membership of all rows, and their distances to every centre.

    Parameters
    ----------
    m : float, default=2
        The fuzzifier, above 1.

    Notes
    -----
    A site sends 7 k numbers.

    Examples
    --------
    >>> state, rows = State.at(np.array([[0.0], [4.0]])), Data(np.array([[0.0], [1.0], [4.0]]))
    >>> FuzzyScatter().client_step(state, rows, np.random.default_rng(0)).sums
    array([[ 1.9 ,  1.81,  0.81,  5.  , 17.  ,  0.5 ],
           [ 1.1 ,  1.01,  0.09,  7.  , 25.  ,  0.5 ]])
    """

    allowed = Allowed({"m": FUZZIFIER}, CENTERS)
    client_additive = server_additive = True

    m: float = 2.0

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: six sums for each centre."""
        return len(state.centers), 6

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the sums of the module's docstring, and the weight of all rows in each line."""
        centers = state.centers
        k = len(centers)
        sums, rows, weight = np.zeros((k, 6)), np.zeros(k), 0.0
        for part in in_parts(data, 4 * k):
            w, u = row_weights(part), memberships(part.X, centers, self.m)
            apart = scipy.spatial.distance.cdist(part.X, centers)
            squared = apart**2
            nearby = np.full(k, w @ apart.min(axis=1) / k)
            over_all = [w @ u, w @ u**2, w @ (u**self.m * squared), w @ apart, w @ squared]
            sums += np.column_stack([*over_all, nearby])
            rows += u.sum(axis=0)
            weight += float(w.sum())
        return Summary(sums, np.full(k, weight), rows)


def partition_coefficient(state: State, total: Summary) -> float:  # noqa: ARG001
    """Return the sum of w u^2 over rows and centres, divided by n: 1 / k if uniform, 1 if hard.

    J. C. Bezdek, Cluster validity with fuzzy sets, J. Cybernetics 3, 1974. It decreases with k.
    """
    return _by_n(total.sums[:, 1].sum(), total)


def xie_beni(state: State, total: Summary) -> float:
    """Return the sum of w u^m |x - c|^2 over rows and centres, divided by n min |c_i - c_j|^2.

    X. L. Xie & G. Beni, A validity measure for fuzzy clustering, IEEE PAMI 13, 1991, where m = 2.
    It is infinite if two centres coincide, and nan for a single one.
    """
    if len(state.centers) < 2:
        return float("nan")
    closest = scipy.spatial.distance.pdist(state.centers, "sqeuclidean").min()
    return _by_n(total.sums[:, 2].sum() / closest, total) if closest else float("inf")


def fuzzy_davies_bouldin(state: State, total: Summary) -> float:
    """Return FedFuzzyDB (Stallmann & Wilbik, Applied Sciences 12, 2022), after their program.

        S_i = (sum of w |x - c_i| / n) (sum of w u_i / n),   both sums over *all* rows,
        1 / k times the sum over i of max_{j != i} (S_i + S_j) / |c_i - c_j|.

    It equals that of the pooled rows. It is infinite if two centres coincide, and nan for a single
    one.
    """
    return _davies_bouldin_of_all(state, total, _means(total.sums[:, 3], total))


def fuzzy_davies_bouldin_squared(state: State, total: Summary) -> float:
    """Return FedFuzzyDB with q = 2, as in an earlier version of its program.

    Here Here S_i = sqrt(sum of w |x - c_i|^2 / n) (sum of w u_i / n).
    """
    return _davies_bouldin_of_all(state, total, np.sqrt(_means(total.sums[:, 4], total)))


def distance_to_others(state: State, total: Summary) -> float:
    """Return the OSSE of FFCM (Stallmann & Wilbik, FL-AAAI 2022), after their program.

    It is the sum of w |x - c| over all rows and all centres except each row's nearest, divided by n
    d. The paper prints squares; its program and its tables have none.
    """
    others = total.sums[:, 3].sum() - total.sums[:, 5].sum()
    return _by_n(others / state.centers.shape[1], total)


def _davies_bouldin_of_all(state: State, total: Summary, distances: Floats) -> float:
    """Return FedFuzzyDB from the mean distances of all rows to each centre, (k,)."""
    if len(state.centers) < 2 or not total.weights.any():
        return float("nan")
    if not scipy.spatial.distance.pdist(state.centers).all():
        return float("inf")
    return davies_bouldin(state.centers, distances * _means(total.sums[:, 0], total))


def _means(sums: Floats, total: Summary) -> Floats:
    """Return sums (k,) divided by the weight of their rows, 0 if there are none."""
    means: Floats = sums / np.where(total.weights > 0, total.weights, 1.0)
    return means


def _by_n(value: float, total: Summary) -> float:
    """Return a value divided by the weight n of all rows; nan if limits held back everything."""
    n = float(total.weights.max())
    return float(value) / n if n > 0 else float("nan")


def nearest_present(X: Rows, centers: Floats, *, block: int = 1 << 16) -> tuple[Labels, Floats]:
    """Return the nearest centre of each row, (n,), and the squared distance to it, (n,).

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Rows, with NaN for missing values; a row without any value has the distance 0 to all
        centres.
    centers : ndarray of shape (k, d)
        The centres.
    block : int
        Number of distances that are computed at a time.

    Examples
    --------
    >>> nan = float("nan")
    >>> nearest_present(np.array([[1.0, nan], [nan, 7.0]]), np.array([[0.0, 9.0], [5.0, 0.0]]))
    (array([0, 0], dtype=int32), array([1., 4.]))
    """
    k, d = centers.shape
    labels, squared = np.empty(len(X), dtype=np.int32), np.empty(len(X))
    size = max(1, block // max(1, k))
    for start in range(0, len(X), size):
        rows = X[start : start + size].T.astype(np.float64)
        there, distances = ~np.isnan(rows), np.zeros((k, rows.shape[1]))
        rows[~there] = 0.0
        for j in range(d):
            apart = rows[j] - centers[:, j, None]
            apart *= there[j]
            apart *= apart
            distances += apart
        nearest = distances.argmin(axis=0)
        labels[start : start + size] = nearest
        squared[start : start + size] = distances[nearest, np.arange(len(nearest))]
    return labels, squared


@dataclass(frozen=True, slots=True)
class PresentInertia:
    """Sum of weighted squared distances of rows to their centres, over present values.

    A site sends two numbers, its part of the sum and its weight.

    Examples
    --------
    >>> rows = Data(np.array([[1.0, np.nan], [np.nan, 7.0]]))
    >>> state = State.at(np.array([[0.0, 9.0], [5.0, 0.0]]))
    >>> PresentInertia().client_step(state, rows, np.random.default_rng(0)).sums
    array([[5.]])
    """

    allowed = Allowed(centers=CENTERS, gaps=True)
    client_additive = server_additive = True
    maximise = False
    answer_shape = one_number

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of an answer: of the squared distance to the nearest centre."""
        most = box.distances(state.centers).min()
        return LineBounds(0.0 if np.isfinite(most) else -np.inf, most)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the site's part of the sum and the weight of its rows."""
        total = nearest_present(data.X, state.centers)[1] @ row_weights(data)
        if (within := data.within) is not None:
            total += within.sum()
        return one_line(total, data)

    def score(self, state: State, total: Summary) -> float:
        """Return the sum."""
        return float(total.sums[0, 0])
