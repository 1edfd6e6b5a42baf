"""Exact federated Lloyd: the k-means of the pooled rows, from sums and counts.

S. P. Lloyd, Least squares quantization in PCM, IEEE Trans. Inf. Theory 28 (1982). Summed over
sites by J. L. Corcuera Bárcena, F. Marcelloni, A. Renda, A. Bechini & P. Ducange (IEEE Trans. AI
5, 2024).

    site i:   S_ij = sum of x,  n_ij = number,  J_ij = sum of |x - c_j|^2   over x nearest to c_j
    server:   c_j <- sum_i S_ij / sum_i n_ij      (a centre that nobody uses stays where it was)

The same centres as Lloyd's algorithm on the pooled rows, whatever the partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.random import Generator

from fedcluster._bounds import Box, LineBounds
from fedcluster._ranges import CENTERS, TOLERANCE, Allowed
from fedcluster.algorithms.merging import mean_variance, means, total
from fedcluster.core import Data, FitParameters, State, Summary
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
        """Return the bounds of an answer: of means of rows, and squared distances."""
        return box.sums_and_errors(state.centers)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return sums, squared distances and counts of the rows nearest to each centre."""
        local = hard_sums(data.X, state.centers, data.sample_weight, cache=data.cache)
        errors = local.errors
        if data.grouped is not None:
            errors = errors + data.spread_within(local.weights)
        sums = np.column_stack([local.sums, errors])
        return Summary(sums, local.weights, local.counts.astype(np.float64))

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Move each centre to the mean of its rows."""
        answer = total(answers)
        sums, errors, weights = answer.sums[:, :-1], answer.sums[:, -1], answer.weights
        centers = means(sums, weights, otherwise=state.centers)
        moved = float(((centers - state.centers) ** 2).sum())
        scale = mean_variance(centers, errors, weights, state.centers) if self.tol else 0.0
        inertia, settled = float(errors.sum()), moved <= self.tol * scale
        return State(centers, weights, round=state.round + 1, inertia=inertia, converged=settled)
