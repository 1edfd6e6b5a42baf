"""What the sites hold: the first question of a federation over a network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedcluster.core import Data, State, Summary


@dataclass(frozen=True, slots=True)
class SiteSize:
    """How many rows there are, and what they weigh: nothing of their values.

    By it a coordinator knows how many columns the rows have, and that no later answer weighs
    more than all rows together. The sites' filters apply to it as to any answer.

    Notes
    -----
    A site sends d + 1 numbers, once: its number of rows for each column, and their weight.

    Examples
    --------
    >>> rows = Data(np.zeros((5, 2)), sample_weight=np.full(5, 2.0))
    >>> answer = SiteSize().client_step(State(), rows, np.random.default_rng(0))
    >>> answer.sums, answer.weights
    (array([[5., 5.]]), array([10.]))
    """

    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True
    maximise: ClassVar[bool] = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a number for each column."""
        return 1, n_columns

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Count rows, once for each column."""
        n, d = data.X.shape
        weight = n if data.sample_weight is None else data.sample_weight.sum()
        return Summary(np.full((1, d), float(n)), np.array([float(weight)]), np.array([float(n)]))

    def score(self, state: State, total: Summary) -> float:
        """The number of rows of all sites."""
        return float(total.sums[0, 0]) if total.sums.size else 0.0
