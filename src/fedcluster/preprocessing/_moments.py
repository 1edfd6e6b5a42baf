"""Means and variances of columns, exact in two rounds: first the mean, then centred squares.

The one-round formula, E[x^2] - E[x]^2, is wrong where a mean is far from 0: at an offset of 1e8
nothing of the variance is left. See T. F. Chan, G. H. Golub & R. J. LeVeque, Algorithms for
computing the sample variance, American Statistician 37 (1983); centred squares are their
corrected two-pass algorithm, equation (1.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedcluster.core import Data, Floats, State, Summary, Task
from fedcluster.errors import HeldBackError
from fedcluster.rounds import Plan


@dataclass(frozen=True, slots=True)
class Means:
    """The sum and the weight of the values that each column has.

    A site sends 2 d numbers: a line for each column.

    Examples
    --------
    >>> rows = Data(np.array([[1.0, 5.0], [2.0, np.nan]]))
    >>> answer = Means().client_step(State(), rows, np.random.default_rng(0))
    >>> answer.sums.ravel(), answer.weights
    (array([3., 5.]), array([2., 1.]))
    """

    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each column."""
        return n_columns, 1

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Sums over the values that are there."""
        X, weights, counts = observed(data)
        return Summary(_sums(X, data)[:, None], weights, counts)


@dataclass(frozen=True, slots=True)
class Squares:
    """Sums of x - m and of (x - m)^2 for each column, m being the state's one centre, (1, d).

    A site sends 3 d numbers: a line for each column.

    Examples
    --------
    >>> rows, mean = Data(np.array([[1.0], [2.0], [6.0]])), State.at(np.array([[3.0]]))
    >>> Squares().client_step(mean, rows, np.random.default_rng(0)).sums
    array([[ 0., 14.]])
    """

    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: two sums for each column."""
        return n_columns, 2

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Sums over the values that are there, as far as they are from the mean."""
        X, weights, counts = observed(data)
        apart = X - state.centers[0]
        if (counts < len(X)).any():
            apart[np.isnan(data.X)] = 0.0
        first = _sums(apart, data)
        apart *= apart
        return Summary(np.column_stack([first, _sums(apart, data)]), weights, counts)


def observed(data: Data) -> tuple[Floats, Floats, Floats]:
    """Values (n, d) with 0 where one is missing; weight and number of the others, (d,) each."""
    X, missing = data.X.astype(np.float64, copy=False), np.isnan(data.X)
    if not missing.any():
        weight = len(X) if data.sample_weight is None else data.sample_weight.sum()
        return X, np.full(X.shape[1], float(weight)), np.full(X.shape[1], float(len(X)))
    there = (~missing).astype(np.float64)
    return np.where(missing, 0.0, X), _sums(there, data), there.sum(axis=0)


def _sums(X: Floats, data: Data) -> Floats:
    """Weighted sums of the columns, (d,)."""
    sums: Floats = X.sum(axis=0) if data.sample_weight is None else data.sample_weight @ X
    return sums


def mean_of(total: Summary) -> Floats:
    """The means (d,) from the total of `Means`.

    Raises
    ------
    HeldBackError
        If the sites' limits held back all of a column.
    """
    if not (total.weights > 0).all():
        raise HeldBackError(
            "the sites' limits held back every value of a column, which cannot be prepared then; "
            "lower the limits or leave the column out"
        )
    return total.sums[:, 0] / total.weights


def variances(mean: Floats) -> Plan[tuple[Floats, Floats]]:
    """Plan the second round: the mean to the last bit and the variance of each column, (d,).

    The weight of all rows is the divisor, as in scikit-learn's `StandardScaler`.
    """
    [answers] = yield [Task(Squares(), State.at(mean[None, :]))]
    total = answers.total()
    weights = np.where(total.weights > 0, total.weights, 1.0)
    apart = total.sums[:, 0] / weights
    return mean + apart, np.maximum(total.sums[:, 1] / weights - apart**2, 0.0)
