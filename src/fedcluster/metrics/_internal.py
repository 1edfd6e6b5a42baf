"""Internal indices: of the rows and the centres alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedcluster.core import Data, State, Summary
from fedcluster.kernels import fuzzy_pass, nearest


@dataclass(frozen=True, slots=True)
class Inertia:
    """Sum of the weighted squared distances of rows to their nearest centres.

    A site sends two numbers, its part of the sum and its weight. Where a site's limits hold its
    answer back, its rows are missing in the score.

    Examples
    --------
    >>> state, rows = State.at(np.array([[0.0], [9.0]])), Data(np.array([[0.0], [1.0], [8.0]]))
    >>> Inertia().score(state, Inertia().client_step(state, rows, np.random.default_rng(0)))
    2.0
    """

    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True
    maximise: ClassVar[bool] = False

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: one number."""
        return 1, 1

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """The site's part of the sum and the weight of its rows."""
        _, squared = nearest(data.X, state.centers)
        weight = np.ones(len(data)) if data.sample_weight is None else data.sample_weight
        return Summary(
            np.array([[squared @ weight]]), np.array([weight.sum()]), np.array([float(len(data))])
        )

    def score(self, state: State, total: Summary) -> float:
        """The sum."""
        return float(total.sums[0, 0])


@dataclass(frozen=True, slots=True)
class FuzzyObjective:
    """J_m = sum of w u^m |x - c|^2 over rows and centres (Bezdek 1981), for m > 1.

    A site sends two numbers, its part of the sum and its weight. Where a site's limits hold its
    answer back, its rows are missing in the score.

    Parameters
    ----------
    m : float, default=2
        The fuzzifier.

    Examples
    --------
    >>> state, rows = State.at(np.array([[0.0], [4.0]])), Data(np.array([[0.0], [1.0], [4.0]]))
    >>> answer = FuzzyObjective().client_step(state, rows, np.random.default_rng(0))
    >>> round(FuzzyObjective().score(state, answer), 12)  # 0.9^2 1 + 0.1^2 9
    0.9
    """

    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True
    maximise: ClassVar[bool] = False

    m: float = 2.0

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: one number."""
        return 1, 1

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """The site's part of the sum and the weight of its rows."""
        fuzzy = fuzzy_pass(data.X, state.centers, self.m, data.sample_weight)
        objective, weight = fuzzy.errors.sum(), fuzzy.supports.sum()
        return Summary(np.array([[objective]]), np.array([weight]), np.array([float(len(data))]))

    def score(self, state: State, total: Summary) -> float:
        """The sum."""
        return float(total.sums[0, 0])
