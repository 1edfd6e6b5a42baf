"""One-shot federated clustering (k-FED): one round of local clusterings.

D. Dennis, T. Li & V. Smith, Heterogeneity for the win: one-shot federated clustering, ICML 2021;
the baseline of the other papers.

    site i:   project X_i on its top K_l right singular vectors (uncentred), seeds by k-means++;
              S_r = rows at most a third as far from seed r as from any other seed,
              start at the means of S_r, Lloyd to convergence -> K_l centres
    server:   M = the first site's K_l centres; while |M| < K add the received centre farthest
              from M; Lloyd from M over all received centres, each counting once

Deviations: seeds by k-means++ instead of the 10-approximation, as in the authors' program; the
projection is exact where theirs is randomised, and keeps min(K_l, d) directions where theirs
asserts K_l <= d; a local centre that loses all its rows is not sent, where scikit-learn would move
it to the farthest row. A site with at most K_l rows sends them all, unless a filter holds them
back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy
from numpy.random import Generator

from fedcluster.algorithms.merging import as_sums, pool, tolerance
from fedcluster.core import Data, FitParameters, Floats, State, Summary
from fedcluster.core.ranges import ANY_CENTERS, CLUSTERS, Allowed, Box, LineBounds
from fedcluster.errors import HeldBackError
from fedcluster.kernels import kmeans_plusplus
from fedcluster.kernels.iteration import lloyd
from fedcluster.kernels.seeding import farthest_first
from fedcluster.metrics import Inertia
from fedcluster.metrics.moments import row_weights


@dataclass(frozen=True, slots=True)
class KFed:
    """k-FED (Dennis, Li & Smith): one-shot federated clustering.

    Parameters
    ----------
    n_clusters : int
        K, at the server.
    local_clusters : int, optional
        K_l, at every site, at most K; by default K. The theory asks for at most sqrt(K).

    Notes
    -----
    A site sends at most K_l (d + 1) numbers, once. Their sizes travel with the centres, for the
    sites' filters, but the server does not use them.

    Examples
    --------
    >>> rows = Data(np.array([[0.0, 1.0], [0.0, 3.0], [8.0, 1.0], [8.0, 3.0]]))
    >>> answer = KFed(n_clusters=2).client_step(State(), rows, np.random.default_rng(1))
    >>> answer.weights
    array([2., 2.])
    """

    allowed = Allowed(
        {"n_clusters": CLUSTERS, "local_clusters": replace(CLUSTERS, none=True)}, ANY_CENTERS
    )
    client_additive = server_additive = needs_centers = False
    min_cluster_size = 1
    objective = Inertia

    n_clusters: int
    local_clusters: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.k_local <= self.n_clusters:
            raise ValueError(
                f"local_clusters must lie between 1 and n_clusters={self.n_clusters}, "
                f"not {self.local_clusters}"
            )

    @property
    def k_local(self) -> int:
        """The number of local clusters, K_l."""
        return self.n_clusters if self.local_clusters is None else self.local_clusters

    @classmethod
    def from_fit(cls, fit: FitParameters) -> Self:
        """Return the algorithm with the parameters of a fit."""
        return cls(fit.n_clusters)

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: any number of local centres."""
        return None, n_columns

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of an answer: of means of rows."""
        return LineBounds(box.low, box.high)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Cluster the rows by the method of Awasthi & Sheffet, which k-FED uses."""
        data = data.canonical()
        X = data.X.astype(np.float64, copy=False)
        if len(X) <= self.k_local:
            weights = row_weights(data)
            # with at most k rows, each row is its own centre
            return as_sums(X, weights, weights > 0)
        start = local_start(X, self.k_local, rng)
        fit = lloyd(X, start, data.sample_weight, tol=tolerance(X, 1e-4))
        return as_sums(fit.centers, fit.weights, fit.counts)

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Run Lloyd over all centres, from the first site's and those farthest from them."""
        received, sizes = pool(answers)
        if len(received) < self.n_clusters:
            raise HeldBackError(
                f"k-FED needs at least {self.n_clusters} centres from the sites and received "
                f"{len(received)}: raise local_clusters or lower the sites' limits"
            )
        first = received[: self.k_local]
        chosen = farthest_first(received, first, self.n_clusters)
        start = np.concatenate([first, received[chosen]])
        fit = lloyd(received, start, tol=tolerance(received, 1e-4), empty="relocate")
        weights = np.bincount(fit.labels, sizes, self.n_clusters).astype(np.float64)
        return State(fit.centers, weights, round=state.round + 1, converged=True)


def local_start(X: Floats, k: int, rng: Generator) -> Floats:
    """Return the start of the local Lloyd: the means of the seeds' safe neighbourhoods, (k, d).

    Examples
    --------
    >>> X = np.array([[0.0, 1.0], [0.0, 3.0], [9.0, 1.0], [9.0, 3.0]])
    >>> np.abs(np.sort(local_start(X, 2, np.random.default_rng(1)), axis=0).round(12))
    array([[0., 2.],
           [9., 2.]])
    """
    V = top_directions(X, k)
    H = X @ V
    seeds = H[kmeans_plusplus(H, k, rng=rng, n_local_trials=1)]
    return core_means(H, seeds) @ V.T


def core_means(H: Floats, seeds: Floats) -> Floats:
    """Return the mean of each seed's core rows, (k, q).

    Core rows are at most a third as far from the seed as from any other; a seed without any stays.

    Examples
    --------
    >>> H = np.array([[0.0], [2.0], [3.0], [8.0]])
    >>> core_means(H, seeds=np.array([[0.0], [8.0]]))  # 3 is too far from 0, 3 * 3 > 5
    array([[1.],
           [8.]])
    """
    distance = scipy.spatial.distance.cdist(H, seeds)
    nearest = distance.argmin(axis=1)
    runner_up = np.partition(distance, 1, axis=1)[:, 1] if len(seeds) > 1 else np.inf
    core = 3.0 * distance[np.arange(len(H)), nearest] <= runner_up
    cores = [H[core & (nearest == r)] for r in range(len(seeds))]
    pairs = zip(cores, seeds, strict=True)
    return np.stack([rows.mean(axis=0) if len(rows) else seed for rows, seed in pairs])


def top_directions(X: Floats, k: int) -> Floats:
    """Return the top min(k, d) right singular vectors of the uncentred rows, (d, q)."""
    _, vectors = np.linalg.eigh(X.T @ X)
    return vectors[:, ::-1][:, :k]
