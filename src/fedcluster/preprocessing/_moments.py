"""Missing values, means, variances and principal components of the columns of all sites.

Means and variances are exact in two rounds: first the mean, then centred squares.

Principal components of up to 2,000 columns come from their scatter matrix, in one round; beyond,
from subspace iteration: each round sends the scatter times a basis of a few columns. N. Halko,
P.-G. Martinsson & J. A. Tropp, Finding structure with randomness, SIAM Review 53 (2011), algorithm
4.4, with the power of the scatter taken by the sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.random import Generator

from fedcluster._bounds import Box, LineBounds
from fedcluster._random import stream
from fedcluster._ranges import LARGEST, NO_CENTERS, ONE_CENTER, Allowed, Array, Whole
from fedcluster.core import Data, Floats, State, Summary, Task
from fedcluster.errors import HeldBackError, InputError
from fedcluster.metrics.moments import Means, Squares
from fedcluster.rounds import Plan

WHOLE = 2000
"""Columns up to which the whole scatter is sent."""
OVERSAMPLING = 10
"""Columns of the basis in addition to the components."""
ORTHONORMAL = 1e-6
"""Deviation of products of components from 0 and 1 at and below which they are orthonormal."""
MOST_ROUNDS = 40
SETTLED = 1e-10
"""Relative change of the spectrum in a round at and below which it is taken for exact."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Count the missing values of each column, out of how many rows.

    A site sends 2 d numbers: a line for each column. Rows are counted, whatever they weigh.

    Examples
    --------
    >>> rows = Data(np.array([[1.0, 5.0], [2.0, np.nan]]))
    >>> Missing().client_step(State(), rows, np.random.default_rng(0)).sums.ravel()
    array([0., 1.])
    """

    allowed = Allowed(centers=NO_CENTERS, gaps=True)
    client_additive = server_additive = True
    counts_rows = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each column."""
        return n_columns, 1

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of an answer: shares of rows."""
        return LineBounds(0.0, 1.0, disjoint=False)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Count NaN in each column."""
        missing = np.isnan(data.X)
        n = missing.sum(axis=0, dtype=np.float64)
        if data.grouped is not None:
            n = data.grouped.counts @ missing
        behind = np.full(len(n), float(len(data)))
        return Summary(n[:, None], np.full(len(n), data.n_rows), behind)


def means() -> Plan[tuple[Floats, Floats]]:
    """Plan the first round: the mean and the weight of each column, (d,) each."""
    [answers] = yield [Task(Means(), State())]
    return means_from_total(answers.total())


def means_from_total(total: Summary) -> tuple[Floats, Floats]:
    """Return the mean and the weight of each column, (d,) each, from the total of `Means`.

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
    return total.sums[:, 0] / total.weights, total.weights


def variances(mean: Floats) -> Plan[tuple[Floats, Floats]]:
    """Plan the second round: the mean, corrected, and the variance of each column, (d,) each.

    The weight of all rows is the divisor, as in scikit-learn's `StandardScaler`.
    """
    [answers] = yield [Task(Squares(), State.at(mean[None, :]))]
    total = answers.total()
    weights = np.where(total.weights > 0, total.weights, 1.0)
    apart = total.sums[:, 0] / weights
    return mean + apart, np.maximum(total.sums[:, 1] / weights - apart**2, 0.0)


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

    allowed = Allowed(
        centers=ONE_CENTER,
        memory={"basis": Array(("d", "q"))},
        optional=True,
        sizes={"q": Whole(1, 1, "d")},
    )
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line as wide as rows or basis for each column."""
        basis = state.memory.get("basis")
        return n_columns, n_columns if basis is None else basis.shape[1]

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Compute the products of the centred rows."""
        X = data.X - state.centers[0]
        weight = np.ones(len(X)) if data.sample_weight is None else data.sample_weight
        basis = state.memory.get("basis")
        onto = X if basis is None else X @ basis
        d = X.shape[1]
        sums = X.T @ (weight[:, None] * onto)
        if (within := data.within) is not None:
            sums += np.diag(within) if basis is None else within[:, None] * basis
        return Summary(sums, np.full(d, float(weight.sum())), np.full(d, float(len(X))))


@dataclass(frozen=True, slots=True)
class Principal:
    """First q principal components of d prepared columns.

    Parameters
    ----------
    mean : tuple of float
        (d,), subtracted first.
    components : tuple of tuple of float
        (q, d), orthonormal, by falling variance.
    variances : tuple of float
        (q,), along the components.
    """

    mean: tuple[float, ...]
    components: tuple[tuple[float, ...], ...]
    variances: tuple[float, ...]

    def names(self, _names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the components."""
        return tuple(f"pc{i}" for i in range(len(self.components)))

    def apply(self, X: Floats) -> Floats:
        """Return rows (n, d) along the components, (n, q)."""
        along: Floats = (X - np.array(self.mean)) @ np.array(self.components).T
        return along

    def invert(self, X: Floats) -> Floats:
        """Return rows (n, q) in the d columns."""
        back: Floats = X @ np.array(self.components) + np.array(self.mean)
        return back

    def check(self, width: int) -> None:
        """Check that they are orthonormal directions in so many columns.

        Raises
        ------
        ValueError
            If they are not.
        """
        components, mean = np.array(self.components), np.array(self.mean)
        if components.ndim != 2 or components.shape[1] != width or len(components) > width:
            raise ValueError("principal components must be of as many columns as there are")
        if not (np.abs(mean) <= LARGEST).all() or not (np.abs(self.variances) <= LARGEST**2).all():
            raise ValueError("means and variances of principal components must be finite")
        with np.errstate(all="ignore"):
            apart = np.abs(components @ components.T - np.eye(len(components)))
        if not (apart <= ORTHONORMAL).all():
            raise ValueError("principal components must be orthonormal")

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> Self:
        """Return principal components from JSON, all of one length.

        Raises
        ------
        ValueError, LookupError, TypeError
            If it is something else.
        """
        mean, variances = (tuple(map(float, content[key])) for key in ("mean", "variances"))
        components = tuple(tuple(map(float, line)) for line in content["components"])
        if len(components) != len(variances) or any(len(line) != len(mean) for line in components):
            raise ValueError("the principal components have not all the same length")
        return cls(mean, components, variances)


def principal(n_components: int, *, seed: int = 0, whole: int = WHOLE) -> Plan[Principal]:
    """Plan the first principal components, as scikit-learn's `PCA` has them, signs included.

    Two rounds up to ``whole`` columns; beyond, one for the mean and about ten for the basis.

    Raises
    ------
    InputError
        If there are fewer columns than components.
    """
    mean, weights = yield from means()
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
    rows = max(float(weights[0]) - 1.0, 1.0)
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
    """Return components (q, d), signed so that the (first) largest coordinate is positive."""
    size = np.abs(components)
    largest = (size >= (1 - 1e-6) * size.max(axis=1, keepdims=True)).argmax(axis=1)
    signs = np.where(components[np.arange(len(components)), largest] < 0, -1.0, 1.0)
    return components * signs[:, None]
