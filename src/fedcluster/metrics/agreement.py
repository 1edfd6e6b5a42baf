"""Agreement of two clusterings of the same rows, and how far apart neighbouring clusters are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from fedcluster._ranges import CENTERS, CLUSTERS, Allowed, Array
from fedcluster.core import Data, Floats, State, Summary
from fedcluster.kernels import nearest
from fedcluster.metrics.clusters import clusters_of
from fedcluster.metrics.moments import add_by_cluster, in_parts, no_rows, row_weights


@dataclass(frozen=True, slots=True)
class Agreement:
    """Rows of each pair of the cluster that they come with and that of the nearest centre.

    Parameters
    ----------
    n_clusters : int
        The number k of clusters that rows come with; without, they come with that of the nearest
        centre.

    Notes
    -----
    A site sends at most k k' numbers, k' being the number of centres: a line without sums for each
    pair, so that a limit on the size of clusters holds back small ones.

    Examples
    --------
    >>> rows = Data(np.array([[0.0], [4.0], [9.0]]), assigned=np.array([0, 0, 1], dtype=np.int32))
    >>> state = State.at([[0.0], [8.0]])
    >>> Agreement(2).client_step(state, rows, np.random.default_rng(0)).weights
    array([2., 0., 0., 1.])
    """

    allowed = Allowed({"n_clusters": CLUSTERS}, CENTERS)
    client_additive = server_additive = True

    n_clusters: int = 1

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each pair."""
        return self.n_clusters * len(state.centers), 0

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the weight and the number of the rows of each pair."""
        other = nearest(data.X, state.centers)[0]
        own = np.minimum(other if data.assigned is None else data.assigned, self.n_clusters - 1)
        pairs, most = own * len(state.centers) + other, self.n_clusters * len(state.centers)
        weights, counts = (
            np.bincount(pairs, each, most).astype(np.float64)
            for each in (row_weights(data), np.ones(len(data)))
        )
        return Summary(np.zeros((most, 0)), weights, counts)


@dataclass(frozen=True, slots=True)
class Separation:
    """Rows along the lines between each cluster and its neighbour: sums of t and of t^2.

    The state's memory has ``neighbours (k,)``, the place of each cluster's; t is (x - c) . u, u
    the direction from the centre c to that of the neighbour.

    Notes
    -----
    A site sends 6 k numbers: for each cluster a line of its own rows, then one of its neighbour's.

    Examples
    --------
    >>> memory = {"neighbours": np.array([1.0, 0.0])}
    >>> state = State(np.array([[0.0], [8.0]]), np.zeros(2), memory=memory)
    >>> rows = Data(np.array([[-1.0], [1.0], [8.0]]))
    >>> Separation().client_step(state, rows, np.random.default_rng(0)).sums
    array([[  0.,   2.],
           [  0.,   0.],
           [  8.,  64.],
           [ 16., 130.]])
    """

    allowed = Allowed(centers=CENTERS, memory={"neighbours": Array(("k",), below="k")})
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: two lines of two sums for each cluster."""
        return 2 * len(state.centers), 2

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the sums, the weights and the numbers of rows."""
        centers, neighbours = state.centers, state.memory["neighbours"].astype(int)
        k = len(centers)
        total = no_rows(2 * k, 2)
        for part in in_parts(data, 4 * centers.shape[1] + 8):
            labels, _ = clusters_of(part, centers)
            for j in range(k):
                for line, cluster in ((j, j), (k + j, neighbours[j])):
                    mine = part.take(labels == cluster)
                    total += _along(mine, centers[j], centers[neighbours[j]], line, 2 * k)
        return total


def _along(rows: Data, start: Floats, stop: Floats, line: int, n_lines: int) -> Summary:
    """Return a summary whose one line has the sums of rows along a line."""
    length = float(np.sqrt(((stop - start) ** 2).sum()))
    direction = (stop - start) / length if length > 0 else np.zeros_like(start)
    t = (rows.X - start) @ direction
    at = np.full(len(rows), line)
    values = np.column_stack([t, t**2, np.ones(len(rows))])
    sums = add_by_cluster(at, values, row_weights(rows), n_lines)
    counts = np.bincount(at, minlength=n_lines).astype(np.float64)
    return Summary(sums[:, :2], sums[:, 2], counts)
