"""Where a clustering has too many centres and where too few, from sums.

B. Fritzke, The breathing k-means algorithm, 2020 (arXiv 2006.15666): with d_1 and d_2 the
distances of a row to its nearest and second nearest centre,

    error    phi_j = sum of d_1^2           over the rows of cluster j  (eq. 4)
    utility    U_j = sum of d_2^2 - d_1^2   over the rows of cluster j  (eq. 6)

Centres are missing where the error is large; one of small utility is hardly needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from scipy.spatial.distance import cdist

from fedcluster.core import Data, State, Summary

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

    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: error and utility of each centre."""
        return len(state.centers), 2

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Sums of d_1^2 and of d_2^2 - d_1^2 by nearest centre."""
        k = len(state.centers)
        weight = np.ones(len(data)) if data.sample_weight is None else data.sample_weight
        sums, weights, rows = np.zeros((k, 2)), np.zeros(k), np.zeros(k)
        for start in range(0, len(data), CHUNK):
            part = slice(start, start + CHUNK)
            squared = cdist(data.X[part], state.centers, "sqeuclidean")
            label, w = squared.argmin(axis=1), weight[part]
            second_place = min(1, k - 1)  # a lone centre has no second: no utility
            first, second = np.partition(squared, second_place, axis=1)[:, [0, second_place]].T
            sums[:, 0] += np.bincount(label, w * first, k)
            sums[:, 1] += np.bincount(label, w * (second - first), k)
            weights += np.bincount(label, w, k)
            rows += np.bincount(label, minlength=k)
        return Summary(sums, weights, rows)
