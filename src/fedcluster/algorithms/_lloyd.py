"""Exact federated Lloyd: the k-means of the pooled rows, from sums and counts.

S. P. Lloyd, Least squares quantization in PCM, IEEE Trans. Inf. Theory 28 (1982). Summed over
sites by J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini & P. Ducange (IEEE Trans. AI
5, 2024).

    site i:   S_ij = sum of x,  n_ij = number,  J_ij = sum of |x - c_j|^2   over x nearest to c_j
    server:   c_j <- sum_i S_ij / sum_i n_ij      (a centre that nobody uses stays where it was)

The same centres as Lloyd's algorithm on the pooled rows, whatever the partition.

Exact federated spherical k-means: centres of length 1 for rows of length 1.

I. S. Dhillon & D. S. Modha, Concept decompositions for large sparse text data using clustering,
Machine Learning 42 (2001), section 3.

    site i:   S_ij = sum of x,  n_ij = number,  J_ij = sum of |x - c_j|^2   over x nearest to c_j
    server:   c_j <- sum_i S_ij / |sum_i S_ij|     (a centre whose rows cancel stays where it was)

Of rows and centres of length 1, |x - c|^2 = 2 (1 - cos(x, c)): the nearest centre is the one of the
smallest angle, and the inertia is twice the sum of 1 - cos, which no step raises. The same centres
as on the pooled rows, whatever the partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.random import Generator

from fedcluster.algorithms.merging import mean_variance, means, total
from fedcluster.core import Data, FitParameters, Floats, State, Summary
from fedcluster.core.ranges import CENTERS, TOLERANCE, Allowed, Box, LineBounds
from fedcluster.kernels import hard_sums
from fedcluster.metrics import Inertia


@dataclass(frozen=True, slots=True)
class Lloyd:
    """Exact federated Lloyd; starts at a state that has centres.

    Parameters
    ----------
    tol : float, default=1e-4
        Converged when the squared Frobenius norm of the centres' move is at most ``tol`` times
        the mean variance of a column over all rows, as in scikit-learn. 0 asks for a fixed
        point: centres that do not move at all.

    Notes
    -----
    A site sends k (d + 2) numbers a round: for each cluster the sum of its rows, the sum of
    their squared distances to the centre, and their number.

    Examples
    --------
    >>> rows = Data(np.array([[0.0], [1.0], [8.0]]))
    >>> state = State.at(np.array([[0.0], [9.0]]))
    >>> answer = Lloyd().client_step(state, rows, np.random.default_rng(0))
    >>> answer.sums  # the sum of the rows, the sum of their squared distances
    array([[1., 1.],
           [8., 1.]])
    >>> Lloyd().server_step(state, [answer, answer], np.random.default_rng(0)).centers
    array([[0.5],
           [8. ]])
    """

    allowed = Allowed({"tol": TOLERANCE}, CENTERS)
    client_additive = server_additive = needs_centers = True
    min_cluster_size = 1
    objective = Inertia

    tol: float = 1e-4

    @classmethod
    def from_fit(cls, fit: FitParameters) -> Self:
        """Return the algorithm with the parameters of a fit."""
        return cls(fit.tol)

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: sums and squared distances for each centre."""
        return len(state.centers), n_columns + 1

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of an answer: of means of rows and squared distances."""
        return box.sums_and_errors(state.centers)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return sums, squared distances and counts of the rows nearest to each centre."""
        local = hard_sums(data.X, state.centers, data.sample_weight, cache=data.cache)
        if data.grouped is not None:
            local.errors[:] += data.spread_within(local.weights)
        return Summary(local.sums_and_errors, local.weights, local.counts.astype(np.float64))

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Move each centre to the mean of its rows."""
        answer = total(answers)
        sums, errors, weights = answer.sums[:, :-1], answer.sums[:, -1], answer.weights
        centers = means(sums, weights, otherwise=state.centers)
        moved = float(((centers - state.centers) ** 2).sum())
        scale = mean_variance(centers, errors, weights, state.centers) if self.tol else 0.0
        inertia, settled = float(errors.sum()), moved <= self.tol * scale
        return State(centers, weights, round=state.round + 1, inertia=inertia, converged=settled)


@dataclass(frozen=True, slots=True)
class SphericalKMeans:
    """Exact federated spherical k-means; starts at a state that has centres.

    Rows must have length 1, as after a preparation with ``unit=True``.

    Parameters
    ----------
    tol : float, default=1e-4
        Converged when the squared Frobenius norm of the centres' move is at most ``tol`` times
        the mean variance of a column over all rows, as in `Lloyd`.

    Notes
    -----
    A site sends k (d + 2) numbers a round, those of `Lloyd`.

    Examples
    --------
    >>> rows = Data(np.array([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]]))
    >>> state = State.at(np.array([[2.0, 1.0], [-3.0, 0.0]]))
    >>> answer = SphericalKMeans().client_step(state, rows, np.random.default_rng(0))
    >>> answer.weights
    array([2., 1.])
    >>> SphericalKMeans().server_step(state, [answer], np.random.default_rng(0)).centers.round(3)
    array([[ 0.894,  0.447],
           [-1.   ,  0.   ]])
    """

    allowed = Allowed({"tol": TOLERANCE}, CENTERS)
    client_additive = server_additive = needs_centers = True
    min_cluster_size = 1
    objective = Inertia

    tol: float = 1e-4

    @classmethod
    def from_fit(cls, fit: FitParameters) -> Self:
        """Return the algorithm with the parameters of a fit."""
        return cls(fit.tol)

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: sums and squared distances for each centre."""
        return len(state.centers), n_columns + 1

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of an answer: of means of rows and squared distances."""
        unit = directions(state.centers, state.centers)
        return box.sums_and_errors(unit)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return sums, squared distances and counts of the rows nearest to each unit centre."""
        unit = replace(state, centers=directions(state.centers, state.centers))
        return Lloyd(self.tol).client_step(unit, data, rng)

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Move each centre to the direction of the sum of its rows."""
        answer, asked = total(answers), directions(state.centers, state.centers)
        sums, errors, weights = answer.sums[:, :-1], answer.sums[:, -1], answer.weights
        used = np.where(weights[:, None] > 0, sums, 0.0)
        centers = directions(used, asked)
        moved = float(((centers - asked) ** 2).sum())
        middle = means(sums, weights, otherwise=asked)
        scale = mean_variance(middle, errors, weights, asked) if self.tol else 0.0
        inertia, settled = float(errors.sum()), moved <= self.tol * scale
        return State(centers, weights, round=state.round + 1, inertia=inertia, converged=settled)


def directions(sums: Floats, otherwise: Floats) -> Floats:
    """Return sums (k, d) scaled to length 1; a line of zeros becomes that of ``otherwise``.

    Examples
    --------
    >>> directions(np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    array([[0.6, 0.8],
           [0. , 1. ]])
    """
    largest = np.abs(sums).max(axis=1, initial=0.0, keepdims=True)
    scaled = sums / np.where(largest > 0, largest, 1.0)
    length = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
    return np.where(length > 0, scaled / np.where(length > 0, length, 1.0), otherwise)
