"""Site summaries: one round in which every site describes its rows by a few weighted means.

    site i:   k-means of its rows with L clusters; a cluster of fewer than q rows gives its rows
              to the nearest other one; -> at most L means, each with its number of rows
    server:   lays them side by side

A good start for anything: weighted k-means of these means costs no further round. Unlike k-FED's
message every row is counted, and unlike FKM's first one no row is sent as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedcluster._ranges import MEANS, NO_CENTERS, Allowed, Whole
from fedcluster.algorithms._merging import pool
from fedcluster.core import Data, Floats, State, Summary
from fedcluster.kernels import hard_pass, kmeans
from fedcluster.kernels._hard import HardPass
from fedcluster.metrics import Inertia


@dataclass(frozen=True, slots=True)
class SiteSummaries:
    """Describe each site by at most ``n_means`` weighted means.

    Parameters
    ----------
    n_means : int
        L, the largest number of means that a site sends.
    min_rows : int, default=3
        q, the smallest number of rows that a mean stands for. A site with fewer than 2 q rows
        sends their common mean.

    Notes
    -----
    A site sends at most L (d + 1) numbers, once.

    Examples
    --------
    >>> rows = Data(np.array([[0.0], [1.0], [2.0], [8.0], [9.0], [10.0], [50.0]]))
    >>> answer = SiteSummaries(n_means=3).client_step(State(), rows, np.random.default_rng(0))
    >>> np.sort(answer.weights)
    array([3., 4.])
    """

    allowed = Allowed({"n_means": MEANS, "min_rows": Whole(1, 1_000_000)}, NO_CENTERS)
    client_additive = server_additive = needs_centers = False
    min_cluster_size = 1
    objective = Inertia

    n_means: int
    min_rows: int = 3

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: any number of means."""
        return None, n_columns

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return means of local clusters that are large enough."""
        data = data.canonical()
        k = min(self.n_means, len(data))
        fit = kmeans(data.X, k, data.sample_weight, rng=rng, n_init=1)
        groups = _large_enough(data, fit.centers, self.min_rows)
        return Summary(groups.sums, groups.weights, groups.counts.astype(np.float64))

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Return every mean of every site, with their weights."""
        centers, weights = pool(answers)
        return State(centers, weights, round=state.round + 1, converged=True)


def _large_enough(data: Data, centers: Floats, min_rows: int) -> HardPass:
    """Drop the smallest cluster until none has fewer than ``min_rows`` rows."""
    groups = hard_pass(data.X, centers, data.sample_weight)
    while len(centers) > 1 and groups.counts.min() < min_rows:
        centers = np.delete(centers, groups.counts.argmin(), axis=0)
        groups = hard_pass(data.X, centers, data.sample_weight)
    return groups
