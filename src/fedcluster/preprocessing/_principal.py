"""Principal components of the rows of all sites.

Up to 2,000 columns from their scatter matrix, in one round; beyond, by subspace iteration: each
round sends the scatter times a basis of a few columns. N. Halko, P.-G. Martinsson & J. A. Tropp,
Finding structure with randomness, SIAM Review 53 (2011), algorithm 4.4, with the power of the
scatter taken by the sites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedcluster._random import stream
from fedcluster.core import Data, Floats, State, Summary, Task
from fedcluster.errors import InputError
from fedcluster.metrics._moments import Means
from fedcluster.preprocessing._columns import Principal
from fedcluster.preprocessing._moments import mean_of
from fedcluster.rounds import Plan

WHOLE = 2000
"""Columns up to which the whole scatter is sent."""
OVERSAMPLING = 10
"""Columns of the basis beyond the components that are wanted."""
MOST_ROUNDS = 40
SETTLED = 1e-10
"""Relative change of the spectrum in a round, from which on it is taken for exact."""


@dataclass(frozen=True, slots=True)
class Covariance:
    """Sum of (x - m) (x - m)^T, m being the state's one centre; or that times a basis (d, q).

    The basis is ``basis`` of the state's memory. A site sends d (d + 1) numbers, or d (q + 1): a
    line for each column.

    Examples
    --------
    >>> rows, mean = Data(np.array([[1.0, 0.0], [3.0, 4.0]])), State.at(np.array([[2.0, 2.0]]))
    >>> Covariance().client_step(mean, rows, np.random.default_rng(0)).sums
    array([[2., 4.],
           [4., 8.]])
    """

    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line as wide as rows or basis for each column."""
        basis = state.memory.get("basis")
        return n_columns, n_columns if basis is None else basis.shape[1]

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """The products of the centred rows."""
        X = data.X - state.centers[0]
        weight = np.ones(len(X)) if data.sample_weight is None else data.sample_weight
        basis = state.memory.get("basis")
        onto = X if basis is None else X @ basis
        d = X.shape[1]
        sums = X.T @ (weight[:, None] * onto)
        return Summary(sums, np.full(d, float(weight.sum())), np.full(d, float(len(X))))


def principal(n_components: int, *, seed: int = 0, whole: int = WHOLE) -> Plan[Principal]:
    """Plan the first principal components, as scikit-learn's `PCA` has them, signs included.

    Two rounds up to ``whole`` columns; beyond, one for the mean and about ten for the basis.

    Raises
    ------
    InputError
        If there are fewer columns than components.
    """
    [answers] = yield [Task(Means(), State())]
    total = answers.total()
    mean = mean_of(total)
    if not 1 <= n_components <= len(mean):
        raise InputError(
            f"{n_components} principal components are asked for, of {len(mean)} columns; "
            f"ask for at most {len(mean)}"
        )
    if len(mean) <= whole:
        [answers] = yield [Task(Covariance(), State.at(mean[None, :]))]
        values, vectors = np.linalg.eigh(answers.total().sums)
    else:
        values, vectors = yield from _subspace(mean, n_components, seed)
    first = np.argsort(values)[::-1][:n_components]
    rows = max(float(total.weights[0]) - 1.0, 1.0)
    return Principal(
        mean=tuple(mean.tolist()),
        components=tuple(map(tuple, _signed(vectors[:, first].T).tolist())),
        variances=tuple((np.maximum(values[first], 0.0) / rows).tolist()),
    )


def _subspace(mean: Floats, n_components: int, seed: int) -> Plan[tuple[Floats, Floats]]:
    """Plan the subspace iteration: Ritz values (q,) and vectors (d, q) of the scatter."""
    width = min(n_components + OVERSAMPLING, len(mean))
    basis = np.linalg.qr(stream(seed, 0).normal(size=(len(mean), width)))[0]
    before = np.zeros(n_components)
    for done in range(MOST_ROUNDS):
        state = State(mean[None, :], np.zeros(1), round=done, memory={"basis": basis})
        [answers] = yield [Task(Covariance(), state, seed)]
        image = answers.total().sums
        projected = basis.T @ image
        values, turned = np.linalg.eigh((projected + projected.T) / 2)
        leading = np.sort(values)[::-1][:n_components]
        if np.abs(leading - before).max() <= SETTLED * max(leading[0], 0.0):
            break
        before, basis_asked, basis = leading, basis, np.linalg.qr(image)[0]
    else:
        basis = basis_asked
    return values, basis @ turned


def _signed(components: Floats) -> Floats:
    """Components (q, d), each with its largest coordinate positive; of equal ones, the first."""
    size = np.abs(components)
    largest = (size >= (1 - 1e-6) * size.max(axis=1, keepdims=True)).argmax(axis=1)
    signs = np.where(components[np.arange(len(components)), largest] < 0, -1.0, 1.0)
    return components * signs[:, None]
