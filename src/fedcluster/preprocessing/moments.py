"""Missing values, moments, quantiles and principal components of the columns of all sites.

Means and variances take a round. Where the mean is so far from 0 that the sums of squares about 0
hold too few digits of a variance, centred squares are asked for in a second one.

Principal components of up to 2,000 columns come from their scatter matrix, in one round; those of
more columns from subspace iteration, in which each round sends the scatter matrix times a basis of
a few columns. N. Halko, P.-G. Martinsson & J. A. Tropp, Finding structure with randomness, SIAM
Review 53 (2011), algorithm 4.4, with the power of the scatter taken by the sites.

Quantiles come from counts; those of all columns are searched in the same rounds. No site sends its
smallest or largest value: by Cantelli's inequality, the value below which a share p of the weight
lies is at most sqrt((1 - p) / p) standard deviations below the mean and sqrt(p / (1 - p)) above it,
and the search begins there. It ends before the counts become small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from fedcluster.core import Answers, Data, Floats, State, Summary, Task
from fedcluster.core.ranges import (
    NO_CENTERS,
    ONE_CENTER,
    Allowed,
    Array,
    Box,
    LineBounds,
    Whole,
)
from fedcluster.core.task import stream
from fedcluster.errors import HeldBackError, InputError
from fedcluster.metrics.moments import Means, Squares
from fedcluster.preprocessing.transform import Principal as Principal

if TYPE_CHECKING:  # only for types: engines import numba, which loading a model must not
    from fedcluster.rounds import Plan


@dataclass(frozen=True, slots=True)
class PrincipalEffort:
    """How long principal components of many columns are sought."""

    oversampling: int = 10  # columns of the basis in addition to the components
    most_rounds: int = 40  # directions with nearly equal variances converge slowly
    settled: float = 1e-10
    """Relative change of the spectrum in a round up to which it counts as exact."""


PRINCIPAL_EFFORT = PrincipalEffort()


@dataclass(frozen=True, slots=True)
class Missing:
    """Count the missing values, and the rows, of each column.

    A site sends 2 d numbers: a line for each column. Rows are counted without their weights.

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
    """Plan the first round: return the mean and the weight of each column, (d,) each."""
    [answers] = yield [Task(Means(), State())]
    return means_from_total(answers.total())


def means_from_total(total: Summary) -> tuple[Floats, Floats]:
    """Return the mean and the weight of each column, (d,) each, from the total of `Means`.

    Raises
    ------
    HeldBackError
        If the sites' limits held back a column completely.
    """
    if not (total.weights > 0).all():
        raise HeldBackError(
            "the sites' limits held back every value of a column, which cannot be prepared then; "
            "lower the limits or leave the column out"
        )
    return total.sums[:, 0] / total.weights, total.weights


@dataclass(frozen=True, slots=True, eq=False)
class ColumnMoments:
    """Mean and variance of each column, from answers to `Squares`.

    The weight of all rows is the divisor, as in scikit-learn's `StandardScaler`.

    Parameters
    ----------
    center : ndarray of shape (d,)
        The point about which squares were computed.
    answers : Answers
        The answers.
    mean, weights, variance : ndarray of shape (d,)
        The mean, the weight and the variance of the present values of each column.
    """

    center: Floats
    answers: Answers
    mean: Floats
    weights: Floats
    variance: Floats

    @classmethod
    def of(cls, center: Floats, answers: Answers) -> Self:
        """Return the moments from the answers about a point (d,).

        Raises
        ------
        HeldBackError
            If the sites' limits held back a column completely.
        """
        total = answers.total()
        apart, weights = means_from_total(total)
        variance = np.maximum(total.sums[:, 1] / weights - apart**2, 0.0)
        return cls(center, answers, center + apart, weights, variance)

    def precise(self) -> Plan[Self]:
        """Plan a second round, about the means, if too few digits of a variance are known."""
        # Squared mean, in variances, beyond which squares about 0 hold less than ten digits
        # of these.
        if ((self.mean - self.center) ** 2 <= (2.0**20) * self.variance).all():
            return self
        return (yield from type(self).about(self.mean))

    @classmethod
    def about(cls, center: Floats) -> Plan[Self]:
        """Plan the moments from squares about a point (d,)."""
        [answers] = yield [Task(Squares(), State.at(center[None, :]))]
        return cls.of(center, answers)

    @classmethod
    def unknown(cls) -> Plan[Self]:
        """Plan the moments of columns of which nothing is known."""
        [answers] = yield [Task(Squares(), State())]
        return (yield from cls.of(np.zeros(len(answers.total().weights)), answers).precise())


@dataclass(frozen=True, slots=True)
class Covariance:
    """Sum of (x - m) (x - m)^T about the state's one centre m, or its product with a basis (d, q).

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


def principal(
    n_components: int,
    *,
    seed: int = 0,
    whole: int = 2000,
    effort: PrincipalEffort = PRINCIPAL_EFFORT,
) -> Plan[Principal]:
    """Plan the first principal components, with the signs of scikit-learn's `PCA`.

    This takes two rounds for up to ``whole`` columns; otherwise one for the mean and about ten for
    the basis.

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
        values, vectors = yield from _subspace(mean, n_components, seed, effort)
    first = np.argsort(values)[::-1][:n_components]
    rows = max(float(weights[0]) - 1.0, 1.0)
    return Principal(
        mean=tuple(mean.tolist()),
        components=tuple(map(tuple, _signed(vectors[:, first].T).tolist())),
        variances=tuple((np.maximum(values[first], 0.0) / rows).tolist()),
    )


def _subspace(
    mean: Floats, n_components: int, seed: int, effort: PrincipalEffort
) -> Plan[tuple[Floats, Floats]]:
    """Plan the subspace iteration; return Ritz values (q,) and vectors (d, q) of the scatter."""
    width = min(n_components + effort.oversampling, len(mean))
    basis = np.linalg.qr(stream(seed, 0).normal(size=(len(mean), width)))[0]
    before = np.zeros(n_components)
    for done in range(effort.most_rounds):
        state = State(mean[None, :], np.zeros(1), round=done, memory={"basis": basis})
        [answers] = yield [Task(Covariance(), state, seed)]
        image = answers.total().sums
        projected = basis.T @ image
        values, turned = np.linalg.eigh((projected + projected.T) / 2)
        leading = np.sort(values)[::-1][:n_components]
        if np.abs(leading - before).max() <= effort.settled * max(leading[0], 0.0):
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


# Quantiles: the interval that holds one is cut into cells, round after round


MOST_CELLS = 32
"""Largest number of cells of one interval in a round."""
FEWEST_IN_CELL = 5
"""Smallest mean number of rows in a cell down to which an interval is divided."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Weight of the rows in each cell (a, b] of the intervals that the state defines.

    The state's memory holds ``columns (t,)``, the column of each interval, and ``edges (t, c +
    1)``, the edges of its cells. A site sends at most t c numbers: a line for each cell, without
    sums. Missing values are in no cell.

    Examples
    --------
    >>> memory = {"columns": np.array([0.0]), "edges": np.array([[-np.inf, 1.0, 3.0]])}
    >>> rows = Data(np.array([[1.0], [2.0], [3.0], [4.0]]))
    >>> Histogram().client_step(State(memory=memory), rows, np.random.default_rng(0)).weights
    array([1., 2.])
    """

    allowed = Allowed(
        centers=NO_CENTERS,
        memory={
            "columns": Array(("intervals",), below="d"),
            "edges": Array(("intervals", "edges"), -inf, inf, rising=True),
        },
        sizes={"intervals": Whole(1, 6, "d"), "edges": Whole(2, 100_000)},
        gaps=True,
    )
    client_additive = server_additive = True
    kept_bytes = 1 << 28
    """Bytes of sorted columns that a site keeps between rounds; others are sorted anew."""

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line without sums for each cell."""
        intervals, edges = state.memory["edges"].shape
        return intervals * (edges - 1), 0

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Compute the weights and counts of the cells."""
        edges = state.memory["edges"]
        weights, counts = np.zeros(edges.shape), np.zeros(edges.shape)
        for i, j in enumerate(state.memory["columns"].astype(int)):
            values, weight, count = _sorted(data, j, self.kept_bytes)
            below = np.searchsorted(values, edges[i], side="right")
            counts[i] = below if count is None else count[below]
            weights[i] = below if weight is None else weight[below]
        in_cells, behind = np.diff(weights, axis=1).ravel(), np.diff(counts, axis=1).ravel()
        return Summary(np.zeros((len(in_cells), 0)), in_cells, behind)


def histogram_task(columns: ArrayLike, edges: Sequence[Floats]) -> Task:
    """Return the task that counts rows in cells, given each interval's column and edges."""
    most = max(map(len, edges))
    padded = [np.pad(each, (0, most - len(each)), mode="edge") for each in edges]
    memory = {"columns": np.array(columns, dtype=np.float64), "edges": np.array(padded)}
    return Task(Histogram(), State(memory=memory))


Sorted = tuple[NDArray[np.floating], Floats | None, Floats | None]


def _sorted(data: Data, j: int, kept_bytes: int) -> Sorted:
    """Return a column's sorted values, and cumulative weights and numbers of them.

    None replaces an array that would only be 0, 1, ...
    """
    if data.grouped is not None and j in data.grouped.shares:
        share = data.grouped.shares[j]
        weight, count = data.sample_weight @ share, data.grouped.part(share).sum(axis=0)
        levels = np.arange(share.shape[1], dtype=np.float64)
        return levels, np.append(0.0, np.cumsum(weight)), np.append(0.0, np.cumsum(count))
    kept: dict[int, Sorted] = data.cache.setdefault("sorted columns", {})
    if j in kept:
        return kept[j]
    order = np.argsort(data.X[:, j], kind="stable")[: np.count_nonzero(~np.isnan(data.X[:, j]))]
    cumulated = None
    if data.sample_weight is not None:
        cumulated = np.concatenate([[0.0], np.cumsum(data.sample_weight[order])])
    column = data.X[order, j], cumulated, None
    if sum(values.nbytes for values, *_ in [*kept.values(), column]) <= kept_bytes:
        kept[j] = column
    return column


def quantiles(
    shares: Sequence[float],
    mean: Floats,
    variance: Floats,
    weights: Floats,
    *,
    small: float = FEWEST_IN_CELL,
    resolution: float = 2.0**-30,
) -> Plan[tuple[Floats, Floats]]:
    """Plan the search for quantiles of all columns, defined as in `numpy.quantile`.

    Parameters
    ----------
    shares : sequence of float
        The q shares, each above 0 and below 1.
    mean, variance, weights : ndarray of shape (d,)
        The moments of the columns over all sites; a weight counts as that many equal rows.
    small : float
        Intervals with less than twice as many rows are not divided: counts stay at least this large
        on average.
    resolution : float
        Intervals narrower than this share of the first one are not divided either.

    Returns
    -------
    Plan of (ndarray, ndarray) of shape (q, d) each
        The quantiles, and the resolution of each: the error is at most half of it.
    """
    places = np.outer(shares, np.maximum(weights - 1.0, 0.0))
    # a quantile lies between the rows of two ranks; a rank that comes twice is searched once
    ranks = np.array([np.floor(places), np.ceil(places)])
    pairs = np.column_stack([np.indices(ranks.shape)[2].ravel(), ranks.ravel()])
    searched, inverse = np.unique(pairs, axis=0, return_inverse=True)
    columns, rank = searched[:, 0].astype(int), searched[:, 1]
    weight = weights[columns]
    share = np.clip((rank + 0.5) / np.maximum(weight, 1.0), 1e-12, 1 - 1e-12)
    reach = 1.001 * np.sqrt(variance)[columns]  # Cantelli's inequality
    low = mean[columns] - reach * np.sqrt((1 - share) / share)
    high = mean[columns] + reach * np.sqrt(share / (1 - share))
    low, high = yield from _search(columns, rank, low, high, weight, small, resolution)
    each = inverse.reshape(ranks.shape)
    lower, upper = (low + (high - low) / 2)[each]
    return lower + (places - ranks[0]) * (upper - lower), (high - low)[each].max(axis=0)


def _search(
    columns: NDArray[np.intp],
    rank: Floats,
    low: Floats,
    high: Floats,
    weight: Floats,
    small: float,
    resolution: float,
) -> Plan[tuple[Floats, Floats]]:
    """Plan the search for the values of s ranks, each within an interval (low, high], (s,).

    The value of a rank is the smallest one such that the weight at and below it exceeds the rank.
    ``below`` is the weight at and below ``low``, ``inside`` that in the interval.
    """
    # the interval cannot become narrower than the spacing of doubles
    rounding = 4 * np.spacing(np.maximum(abs(low), abs(high)))
    width = np.maximum(resolution * (high - low), rounding)
    below, inside, ends = np.zeros(len(rank)), weight, np.array([np.inf])
    open_ = np.arange(len(rank))
    while len(open_):
        n_cells = np.clip(inside[open_] // max(small, 1.0), 2, MOST_CELLS).astype(int)
        cuts = [np.linspace(low[i], high[i], n + 1) for i, n in zip(open_, n_cells, strict=True)]
        question = histogram_task(columns[open_], [np.r_[-ends, cut, ends] for cut in cuts])
        ends = ends[:0]  # only in the first round do the outer cells extend to infinity
        [answers] = yield [question]
        counted = answers.total().weights.reshape(len(open_), -1)
        upto = below[open_, None] + np.cumsum(counted, axis=1)
        # if limits hide the cell of the rank, the search ends
        reached = upto > rank[open_, None]
        rows = np.flatnonzero(reached.any(axis=1))
        cell, open_ = reached[rows].argmax(axis=1), open_[rows]
        start, stop = (question.state.memory["edges"][rows, cell + side] for side in (0, 1))
        low[open_] = np.where(np.isinf(start), stop, start)
        high[open_] = np.where(np.isinf(stop), start, stop)
        inside[open_] = counted[rows, cell]
        below[open_] = upto[rows, cell] - inside[open_]
        open_ = open_[(high - low > width)[open_] & (inside[open_] >= 2 * small)]
    return low, high
