"""How far the components of a mixture share their rows, and how normal these are.

Components of a mixture need not be clusters: two that share many rows are parts of one. For
components j and l with the probabilities tau_j and tau_l of a row, the sums over the rows are

    C_jl = sum of w tau_j tau_l,        F_j = sum of w tau_j q_j^2,

with q_j the squared Mahalanobis distance of the row to component j: of normal rows in d columns
F / N is d (d + 2). K. V. Mardia, Measures of multivariate skewness and kurtosis with
applications, Biometrika 57, 1970, section 3; C. Hennig, Methods for merging Gaussian mixture
components, Adv. Data Anal. Classif. 4, 2010, section 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedcluster._ranges import CLUSTERS, Allowed
from fedcluster.core import Data, State, Summary
from fedcluster.kernels._em import Densities, log_densities
from fedcluster.metrics._gaussians import (
    FIELDS,
    CovarianceType,
    densities,
    memory_of,
    posteriors,
    sizes_of,
)
from fedcluster.metrics._moments import in_parts, row_weights


@dataclass(frozen=True, slots=True)
class MixtureOverlap:
    """Rows that the components of a mixture share, their fourth moments, and the likelihood.

    Parameters
    ----------
    covariance_type, log_noise, levels
        As in `GaussianMixture`.

    Notes
    -----
    A site sends k (k + 3) numbers: for each component C_j1 to C_jk, F_j, its part of the log
    likelihood of the rows, and their weight; and as many for noise, if there is any.

    Examples
    --------
    >>> memory = {"precisions_cholesky": np.ones(2)}
    >>> state = State(np.array([[0.0], [0.0]]), np.array([1.0, 1.0]), memory=memory)
    >>> rows = Data(np.array([[0.0], [2.0]]))
    >>> MixtureOverlap("spherical").client_step(state, rows, np.random.default_rng(0)).sums.round(4)
    array([[ 0.5   ,  0.5   ,  8.    , -1.9189],
           [ 0.5   ,  0.5   ,  8.    , -1.9189]])
    """

    client_additive = server_additive = True

    covariance_type: CovarianceType = "full"
    log_noise: float | None = None
    levels: bool = False

    @property
    def allowed(self) -> Allowed:
        """Return what a site may be asked."""
        return Allowed(FIELDS, CLUSTERS, memory_of(self), sizes=sizes_of(self))

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each component, and for noise."""
        k = len(state.centers)
        return k + (self.log_noise is not None), k + 2

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return shared rows, fourth moments and likelihoods of the components."""
        model, k = densities(self, state, data), len(state.centers)
        lines = len(model.offsets)
        sums, weights, support = np.zeros((lines, k + 2)), np.zeros(lines), np.zeros(lines)
        for part in in_parts(data, 4 * lines):
            w = row_weights(part)
            logs = log_densities(part.X, model)
            tau, likelihood = posteriors(logs)
            weighed = w[:, None] * tau
            sums[:k, :k] += weighed[:, :k].T @ tau[:, :k]
            sums[:k, k] += (weighed[:, :k] * _distances(part, logs, model, k) ** 2).sum(axis=0)
            sums[:, k + 1] += np.where(np.isfinite(likelihood), likelihood, 0.0) @ weighed
            weights += weighed.sum(axis=0)
            support += tau[w > 0].sum(axis=0)
        return Summary(sums, weights, support)

    def score(self, state: State, total: Summary) -> float:
        """Return the log likelihood of all rows."""
        return float(total.sums[:, -1].sum())

    maximise = True


def _distances(part: Data, logs: np.ndarray, model: Densities, k: int) -> np.ndarray:
    """Return squared Mahalanobis distances (n, k): what numbers take from the log densities."""
    with np.errstate(invalid="ignore"):
        others = model.offsets[:k] + part.X[:, model.other] @ model.slopes[:k].T
        distances = 2.0 * (others - logs[:, :k])
    return np.where(np.isfinite(distances), np.maximum(distances, 0.0), 0.0)
