"""Exact federated k-means of rows with missing values, without filling them in.

J. T. Chi, E. C. Chi & R. G. Baraniuk, k-POD: a method for k-means clustering of missing data,
American Statistician 70 (2016), minimise

    J = sum over rows x and the columns l that x has, of (x_l - c_jl)^2,   c_j the centre of x

by repeatedly filling each gap with the value of the row's centre. Here J is minimised directly:
rows go to the centre that is nearest over the columns that they have (the partial distance of J. K.
Dixon, IEEE Trans. Systems, Man, and Cybernetics 9, 1979), and

    site i:   S_ijl = sum of x_l,  n_ijl = number,  J_ijl = sum of (x_l - c_jl)^2
              over the values x_l of the rows nearest to c_j;  n_ij = number of these rows
    server:   c_jl <- sum_i S_ijl / sum_i n_ijl     (without a value it stays where it was)

No step raises J. Without missing values this is Lloyd's algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.random import Generator

from fedcluster.algorithms.merging import total
from fedcluster.core import Data, FitParameters, Floats, Labels, Rows, State, Summary
from fedcluster.core.ranges import CENTERS, TOLERANCE, Allowed, Box, LineBounds
from fedcluster.metrics.moments import add_by_cluster, in_parts, row_weights
from fedcluster.metrics.objectives import PresentInertia, nearest_present


@dataclass(frozen=True, slots=True)
class IncompleteKMeans:
    """Exact federated k-means over the values that are present; starts at a state with centres.

    Parameters
    ----------
    tol : float, default=1e-4
        Converged when the squared Frobenius norm of the centres' move is at most ``tol`` times the
        mean variance of a column over its present values.

    Notes
    -----
    A site sends 3 k (d + 1) numbers a round: a line for each cluster and column, with the sum of
    its values, that of their squared distances to the centre and their number, so that limits
    count values; and a line for each cluster with the number of its rows.

    A row that is the mean of a group counts in a column with the full weight of the group, or not
    at all if the group has no value there.

    Examples
    --------
    >>> rows = Data(np.array([[1.0, np.nan], [3.0, 4.0], [np.nan, 9.0]]))
    >>> state = State.at(np.array([[2.0, 2.0], [0.0, 8.0]]))
    >>> answer = IncompleteKMeans().client_step(state, rows, np.random.default_rng(0))
    >>> answer.sums[:, 0], answer.weights
    (array([4., 4., 0., 9., 0., 0.]), array([2., 1., 0., 1., 2., 1.]))
    >>> IncompleteKMeans().server_step(state, [answer], np.random.default_rng(0)).centers
    array([[2., 4.],
           [0., 9.]])
    """

    allowed = Allowed({"tol": TOLERANCE}, CENTERS, gaps=True)
    client_additive = server_additive = needs_centers = True
    min_cluster_size = 1
    objective = PresentInertia

    tol: float = 1e-4

    @classmethod
    def from_fit(cls, fit: FitParameters) -> Self:
        """Return the algorithm with the parameters of a fit."""
        return cls(fit.tol)

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: two sums for each cluster and column, then clusters."""
        return len(state.centers) * (n_columns + 1), 2

    def assign(self, state: State, X: Rows) -> Labels:
        """Return the nearest centre of each row, over the columns that the row has."""
        return nearest_present(X, state.centers)[0]

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of an answer: of values and their squared distances."""
        squares, k = box.squares(state.centers) + (box.high - box.low) ** 2 / 4, len(state.centers)
        floor = np.where(np.isfinite(squares), 0.0, -np.inf).ravel()
        low = np.column_stack([np.tile(box.low, k), floor])
        high = np.column_stack([np.tile(box.high, k), squares.ravel()])
        sizes = np.zeros((k, 2))
        return LineBounds(np.vstack([low, sizes]), np.vstack([high, sizes]), disjoint=False)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return sums, squared distances and counts of the values of each cluster and column."""
        k, d = state.centers.shape
        sums, squares, weights, counts = np.zeros((4, k, d))
        sizes, rows = np.zeros((2, k))
        for part in in_parts(data, 8 * d + k):
            labels, _ = nearest_present(part.X, state.centers)
            weight, there = row_weights(part), ~np.isnan(part.X)
            values = np.where(there, part.X.astype(np.float64), 0.0)
            apart = np.where(there, values - state.centers[labels], 0.0)
            sums += add_by_cluster(labels, values, weight, k)
            squares += add_by_cluster(labels, apart**2, weight, k)
            weights += add_by_cluster(labels, there.astype(np.float64), weight, k)
            counts += add_by_cluster(labels, there.astype(np.float64), np.ones(len(part)), k)
            sizes += np.bincount(labels, weight, k)
            rows += np.bincount(labels, minlength=k)
        if (within := data.within) is not None:
            of_columns = weights.sum(axis=0)
            squares += within * weights / np.where(of_columns > 0, of_columns, 1.0)
        values = np.column_stack([sums.ravel(), squares.ravel()])
        return Summary(
            np.concatenate([values, np.zeros((k, 2))]),
            np.append(weights, sizes),
            np.append(counts, rows),
        )

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Move each coordinate of a centre to the mean of the values of its rows."""
        answer, (k, d) = total(answers), state.centers.shape
        sums, squares = np.moveaxis(answer.sums[: k * d].reshape(k, d, 2), 2, 0)
        weights, sizes = answer.weights[: k * d].reshape(k, d), answer.weights[k * d :]
        some = weights > 0
        centers = np.where(some, sums / np.where(some, weights, 1.0), state.centers)
        moves = centers - state.centers
        scale = _mean_variance(centers, squares - weights * moves**2, weights) if self.tol else 0.0
        settled = float((moves**2).sum()) <= self.tol * scale
        inertia = float(squares.sum())
        return State(centers, sizes, round=state.round + 1, inertia=inertia, converged=settled)


def _mean_variance(centers: Floats, within: Floats, weights: Floats) -> float:
    """Return the mean variance of a column, over its present values.

    Parameters
    ----------
    centers, within, weights : ndarray of shape (k, d)
        The mean of each cluster's values in each column, their squares about it, their weight.
    """
    n = weights.sum(axis=0)
    safe = np.where(n > 0, n, 1.0)
    middle = (weights * centers).sum(axis=0) / safe
    squares = within.sum(axis=0) + (weights * (centers - middle) ** 2).sum(axis=0)
    return max(0.0, float((squares / safe).mean()))
