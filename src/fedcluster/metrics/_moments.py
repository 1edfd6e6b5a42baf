"""Mean and variance of each column over the rows of all sites, in two rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedcluster.core import Data, Floats, State, Summary
from fedcluster.metrics._by_cluster import in_parts, row_weights


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums of w (x - c) and w (x - c)^2 over all rows, c the only centre of a state.

    An empty state asks about c = 0, which brings the mean; asked again about that, the squares
    keep their digits at any offset of the rows.

    Notes
    -----
    A site sends 2 d + 1 numbers. Revealed are the mean and the variance of each of its columns;
    a limit on the size of clusters holds nothing of them back, only one on the rows of a site.

    Examples
    --------
    >>> rows = Data(np.array([[1.0], [3.0]]))
    >>> Moments().client_step(State.at([[1.0]]), rows, np.random.default_rng(0)).sums
    array([[2., 4.]])
    """

    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: two numbers for each column."""
        return 1, 2 * n_columns

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """The sums, and the weight of all rows."""
        d = data.X.shape[1]
        about = state.centers[0] if len(state.centers) else np.zeros(d)
        sums = np.zeros(2 * d)
        for part in in_parts(data, 2 * d):
            apart = part.X - about
            sums += np.concatenate([row_weights(part) @ apart, row_weights(part) @ apart**2])
        weight = np.array([row_weights(data).sum()])
        return Summary(sums[None], weight, np.array([float(len(data))]))

    @staticmethod
    def mean_and_variance(state: State, total: Summary) -> tuple[Floats, Floats]:
        """Mean and variance of each column, (d,) each, from the total answer."""
        moved, squares = np.split(total.sums[0] / total.weights[0], 2)
        about = state.centers[0] if len(state.centers) else 0.0
        variance: Floats = np.maximum(squares - moved**2, 0.0)
        return about + moved, variance
