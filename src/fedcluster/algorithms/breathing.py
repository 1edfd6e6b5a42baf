"""Error and utility of centres: from sums, where centres are missing and where superfluous.

B. Fritzke, The breathing k-means algorithm, 2020 (arXiv 2006.15666): with d_1 and d_2 the
distances of a row to its nearest and second nearest centre,

    error    phi_j = sum of d_1^2           over the rows of cluster j  (eq. 4)
    utility    U_j = sum of d_2^2 - d_1^2   over the rows of cluster j  (eq. 6)

Centres are missing where the error is large; a centre of small utility is hardly needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.random import Generator

from fedcluster.core import Data, State, Summary
from fedcluster.core.ranges import CENTERS, Allowed
from fedcluster.metrics.moments import by_cluster, no_rows

CHUNK = 4096


@dataclass(frozen=True, slots=True)
class ErrorAndUtility:
    """Error and utility of each centre.

    Notes
    -----
    A site sends 3 k numbers.

    Examples
    --------
    >>> state = State.at(np.array([[0.0], [1.0], [9.0]]))
    >>> rows = Data(np.array([[0.0], [2.0], [9.0]]))
    >>> ErrorAndUtility().client_step(state, rows, np.random.default_rng(0)).sums
    array([[ 0.,  1.],
           [ 1.,  3.],
           [ 0., 64.]])
    """

    allowed = Allowed(centers=CENTERS)
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: error and utility of each centre."""
        return len(state.centers), 2

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return sums of d_1^2 and of d_2^2 - d_1^2 by nearest centre."""
        k = len(state.centers)
        summary, second_place = no_rows(k, 2), min(1, k - 1)  # a lone centre has no utility
        for start in range(0, len(data), CHUNK):
            part = data.take(slice(start, start + CHUNK))
            squared = scipy.spatial.distance.cdist(part.X, state.centers, "sqeuclidean")
            first, second = np.partition(squared, second_place, axis=1)[:, [0, second_place]].T
            values = np.column_stack([first, second - first])
            summary += by_cluster(part, squared.argmin(axis=1), values, k)
        return summary
