"""Sums that describe columns, and the columns of each cluster.

Columns are described by sums: powers, grids of values, ranges along directions.

A column with two values has the kurtosis 1 + g^2, g being its skewness, and no other column has:
K. Pearson, Mathematical contributions to the theory of evolution XIX, Phil. Trans. R. Soc. A 216,
1916. Its values are m + s (g / 2 - r) and m + s (g / 2 + r), r^2 = 1 + g^2 / 4.

The rows of each cluster are described in the units of their columns, from sums and counts.

The rows have assigned clusters, unscaled numbers, and one column of 0 and 1 for each level of a
text. A line for each cluster and column reveals no more than a cluster's line in a round of Lloyd,
and each level of a text has a line of its own, so that a limit on the size of clusters holds back
levels with few rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedcluster.core import Data, Floats, Labels, State, Summary
from fedcluster.core.ranges import (
    CENTERS,
    ONE_CENTER,
    Allowed,
    Array,
    Box,
    LineBounds,
    OneOf,
    Whole,
)
from fedcluster.metrics.moments import add_by_cluster, in_parts, no_rows, row_weights
from fedcluster.metrics.objectives import nearest_present

POWERS = 4
GRIDS = (10.0, 5.0, 1.0, 0.5, 0.1)
"""Possible steps of which all values of a column may be multiples, largest first."""


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """First four powers of each column about a centre, and the weight of its rows on each grid.

    The state's memory has ``shift`` and ``scale``, (d,) each: grids refer to x scale + shift, the
    value before preparation, in powers of ten of its deviation. A last number is the weight of the
    rows if those of a group, seen as their mean, or those of a person count as one.

    Notes
    -----
    A site sends 11 d numbers, a line for each column.

    Examples
    --------
    >>> memory = {"shift": np.zeros(1), "scale": np.ones(1)}
    >>> state = State(np.array([[2.0]]), np.zeros(1), memory=memory)
    >>> rows = Data(np.array([[1.0], [2.5]]))
    >>> ColumnShape().client_step(state, rows, np.random.default_rng(0)).sums
    array([[-0.5   ,  1.25  , -0.875 ,  1.0625,  0.    ,  0.    ,  1.    ,  2.    ,
             2.    ,  2.    ]])
    """

    allowed = Allowed(centers=ONE_CENTER, memory={"shift": Array(("d",)), "scale": Array(("d",))})
    client_additive = server_additive = True
    on_grid = 1e-6  # distance from a multiple, in steps, up to which a value counts as one

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each column."""
        return n_columns, POWERS + len(GRIDS) + 1

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of what is sent: weights of some rows are parts of that of all."""
        parts = len(GRIDS) + 1
        return LineBounds(
            [*[-inf] * POWERS, *[0.0] * parts], [*[inf] * POWERS, *[1.0] * parts], disjoint=False
        )

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return sums of powers, the weight of rows on each grid, and that of groups or persons."""
        d, weight = data.X.shape[1], float(row_weights(data).sum())
        sums = np.zeros((d, POWERS + len(GRIDS) + 1))
        for part in in_parts(data, 4 * d):
            w, apart = row_weights(part), part.X - state.centers[0]
            power = np.ones_like(apart)
            for i in range(POWERS):
                power = power * apart
                sums[:, i] += w @ power
            raw = part.X * state.memory["scale"] + state.memory["shift"]
            for i, step in enumerate(GRIDS):
                places = raw / step
                sums[:, POWERS + i] += w @ (np.abs(places - np.round(places)) <= self.on_grid)
        if (within := data.within) is not None:
            sums[:, 1] += within
        sums[:, -1] = _seen_as_one(data)
        return Summary(sums, np.full(d, weight), np.full(d, float(len(data))))


def _seen_as_one(data: Data) -> float:
    """Return the weight of the rows if those of a group or, in a part of them, a person are one.

    Examples
    --------
    >>> _seen_as_one(Data(np.zeros((3, 1)), groups=np.array([7, 7, 8])))
    2.0
    """
    weights = row_weights(data)
    if data.grouped is not None:
        return float(weights @ (1.0 / data.grouped.counts))
    if data.groups is None:
        return float(weights.sum())
    _, person, counts = np.unique(data.groups, return_inverse=True, return_counts=True)
    return float((np.bincount(person, weights) / counts).sum())


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """Shapes of d columns, from the total of `ColumnShape`.

    Attributes
    ----------
    mean, variance : ndarray of shape (d,)
        Mean and variance of all rows.
    values : ndarray of shape (2, d)
        The two values of a column that has only two; NaN elsewhere.
    grid : ndarray of shape (d,)
        The largest step of which all values before preparation are multiples; 0 if there is none.
    between : ndarray of shape (d,)
        The share of the variance that is between clusters; see `between_share`.
    n : float
        The weight of all rows.
    rows_each : float
        The mean number of rows that are seen as one, of a group or a person.
    """

    mean: Floats
    variance: Floats
    values: Floats
    grid: Floats
    between: Floats
    n: float
    rows_each: float

    @classmethod
    def from_total(cls, state: State, total: Summary) -> Shapes:
        """Return the shapes from the total of `ColumnShape`.

        Examples
        --------
        >>> memory = {"shift": np.zeros(1), "scale": np.ones(1)}
        >>> state = State(np.array([[0.0]]), np.zeros(1), memory=memory)
        >>> rows = Data(np.array([[1.0], [1.0], [3.0]]))
        >>> answer = ColumnShape().client_step(state, rows, np.random.default_rng(0))
        >>> shapes = Shapes.from_total(state, answer)
        >>> shapes.values.ravel().round(9), shapes.grid
        (array([1., 3.]), array([1.]))
        """
        n = np.maximum(total.weights, 1e-300)
        m1, m2, m3, m4 = (total.sums[:, :POWERS] / n[:, None]).T
        variance = np.maximum(m2 - m1**2, 0.0)
        third = m3 - 3 * m1 * m2 + 2 * m1**3
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        with np.errstate(divide="ignore", invalid="ignore"):
            skewness, kurtosis = third / variance**1.5, fourth / variance**2
            # equality up to rounding: two values have the least kurtosis possible
            two = np.abs(kurtosis - skewness**2 - 1.0) <= 1e-6 * (1.0 + skewness**2)
            reach = np.sqrt(1.0 + skewness**2 / 4.0)
            ends = np.array([skewness / 2.0 - reach, skewness / 2.0 + reach])
        mean = state.centers[0] + m1
        values = np.where(two, mean + np.sqrt(variance) * ends, np.nan)
        on = total.sums[:, POWERS:-1] >= (1.0 - 1e-9) * n[:, None]
        grid = np.where(on.any(axis=1), np.array(GRIDS)[on.argmax(axis=1)], 0.0)
        skewness, excess = np.nan_to_num([skewness, kurtosis - 3.0], posinf=0, neginf=0)
        between, seen = between_share(skewness, excess, n), total.sums[0, -1]
        rows_each = max(float(n[0] / seen), 1.0) if seen > 0 else 1.0
        return cls(mean, variance, values, grid, between, float(total.weights[0]), rows_each)


def between_share(
    skewness: Floats,
    excess: Floats,
    n: Floats,
    *,
    normal: float = 25.0,
) -> Floats:
    """Return the share b of a column's variance that is between clusters, as its moments tell.

    If a column is the sum of one of two values and of normal noise, 2 b^3 + e b - g^2 = 0 (A. C.
    Cohen, Estimation in mixtures of two normal distributions, Technometrics 9, 1967), which has one
    positive root. The share is 0 where n rows may be normal, and at most 0.98.

    Parameters
    ----------
    skewness, excess, n : ndarray of shape (d,)
        g, e and the weight of the rows.
    normal : float
        Largest n (g^2 / 6 + e^2 / 24), with g the skewness and e the excess of the kurtosis, at
        which a column counts as normal: a chi-square of two degrees of freedom (C. M. Jarque & A.
        K. Bera, Int. Stat. Rev. 55, 1987).

    Examples
    --------
    >>> between_share(np.zeros(2), np.array([-1.28, -0.01]), np.full(2, 900.0)).round(2)
    array([0.8, 0. ])
    """
    low, high = np.zeros(len(n)), np.full(len(n), 0.98)
    for _ in range(12):  # bisection: each pass halves the range
        half = (low + high) / 2
        above = 2 * half**3 + excess * half > skewness**2
        low, high = np.where(above, low, half), np.where(above, half, high)
    is_normal = n * (skewness**2 / 6 + excess**2 / 24) <= normal
    share: Floats = np.where(is_normal, 0.0, low)
    return share


@dataclass(frozen=True, slots=True)
class AxisCounts:
    """Weight of the rows in each cell (a, b] along directions, relative to a centre.

    The state's memory has ``axes (t, d)``, the directions, and ``edges (c + 1,)``, the edges of the
    cells; the position of a row x is (x - centre) . axis.

    Notes
    -----
    A site sends at most t c numbers: a line for each cell, without sums.

    Examples
    --------
    >>> memory = {"axes": np.array([[1.0, 1.0]]), "edges": np.array([-np.inf, 0.0, 5.0])}
    >>> state = State(np.zeros((1, 2)), np.zeros(1), memory=memory)
    >>> rows = Data(np.array([[1.0, 2.0], [-1.0, 0.5], [-2.0, 0.0]]))
    >>> AxisCounts().client_step(state, rows, np.random.default_rng(0)).weights
    array([2., 1.])
    """

    allowed = Allowed(
        centers=ONE_CENTER,
        memory={"axes": Array(("t", "d")), "edges": Array(("edges",), -inf, inf, rising=True)},
        sizes={"t": Whole(1, 2, "d"), "edges": Whole(2, 1000)},
    )
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line without sums for each cell."""
        return len(state.memory["axes"]) * (len(state.memory["edges"]) - 1), 0

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the weights and counts of the cells."""
        axes, edges = state.memory["axes"], state.memory["edges"]
        cells = len(edges) - 1
        weights, counts = np.zeros((len(axes), cells)), np.zeros((len(axes), cells))
        for part in in_parts(data, 2 * len(axes)):
            along = (part.X - state.centers[0]) @ axes.T
            cell = np.searchsorted(edges, along, side="left") - 1
            inside = (cell >= 0) & (cell < cells)
            for t in range(len(axes)):
                mine, w = cell[inside[:, t], t], row_weights(part)[inside[:, t]]
                weights[t] += np.bincount(mine, w, cells)
                counts[t] += np.bincount(mine, minlength=cells)
        return Summary(np.zeros((weights.size, 0)), weights.ravel(), counts.ravel())


def quantiles_of(counts: Floats, edges: Floats, shares: tuple[float, float]) -> Floats:
    """Return two quantiles of each line of counts, (t, 2), interpolated within cells.

    Parameters
    ----------
    counts : ndarray of shape (t, c)
        The weight in each cell.
    edges : ndarray of shape (c + 1,)
        The edges of the cells, all finite.
    shares : pair of float
        The shares of the weight below each quantile.

    Examples
    --------
    >>> quantiles_of(np.array([[0.0, 4.0, 0.0]]), np.array([0.0, 1.0, 2.0, 3.0]), (0.25, 0.5))
    array([[1.25, 1.5 ]])
    """
    upto = np.concatenate([np.zeros((len(counts), 1)), np.cumsum(counts, axis=1)], axis=1)
    places = [np.interp(np.array(shares) * each[-1], _rising(each), edges) for each in upto]
    return np.array(places).reshape(len(counts), 2)


def _rising(upto: Floats) -> Floats:
    """Return cumulative counts that strictly increase, by almost nothing in empty cells."""
    rising: Floats = upto + 1e-9 * max(upto[-1], 1.0) * np.arange(len(upto))
    return rising


@dataclass(frozen=True, slots=True)
class ClusterColumns:
    """Rows of each cluster, and sums of x - c and (x - c)^2 in each column over present values.

    The state's centres (k, d) are points c near the means. Its memory holds ``texts (d,)``: 0 for a
    numeric column, else the number 1, 2, ... of the text of which the column is a level; a row has
    1 in the column of its level.

    Notes
    -----
    With t texts, cluster j has 1 + t + d lines: its rows, with the sums of m and m^2 over them, m
    being the number of others in the group of a row; its rows with a value in each text; for each
    numeric column, its rows with a value and the two sums; for each level, its rows. A site sends
    3 k (1 + t + d) numbers.

    Examples
    --------
    >>> memory = {"texts": np.array([0.0, 1.0, 1.0])}
    >>> state = State(np.array([[2.0, 0.0, 0.0]]), np.zeros(1), memory=memory)
    >>> rows = Data(np.array([[1.0, 1.0, 0.0], [5.0, 0.0, 1.0], [np.nan, 0.0, 1.0]]))
    >>> answer = ClusterColumns().client_step(state, rows, np.random.default_rng(0))
    >>> answer.weights, answer.sums[2]
    (array([3., 3., 2., 1., 2.]), array([ 2., 10.]))
    """

    allowed = Allowed(centers=CENTERS, memory={"texts": Array(("d",), 0.0)}, gaps=True)
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: lines of two sums, by cluster."""
        return len(state.centers) * (1 + n_texts(state) + n_columns), 2

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the sums, the weights and the numbers of rows."""
        k, d = state.centers.shape
        lines = 1 + n_texts(state) + d
        total = no_rows(k * lines, 2)
        for part in in_parts(data, 6 * lines):
            labels = _clusters(part, state.centers)
            counted, apart = _by_line(part.X, labels, state)
            apart[:, 0] = 0.0 if part.grouped is None else part.grouped.counts - 1.0
            weight, ones = row_weights(part), np.ones(len(part))
            values = np.column_stack([counted, apart, apart**2])
            weights, *sums = np.hsplit(add_by_cluster(labels, values, weight, k), 3)
            behind = add_by_cluster(labels, _parts(part, counted, state), ones, k)
            stacked = np.stack(sums, axis=2).reshape(-1, 2)
            total += Summary(stacked, weights.ravel(), behind.ravel())
        if (within := data.within) is not None:
            total.sums[:, 1] += _within(within, total.weights.reshape(k, lines), state).ravel()
        return total


def n_texts(state: State) -> int:
    """Return the number of text columns in a state of `ClusterColumns`."""
    texts = state.memory["texts"]
    return int(min(texts.max(initial=0.0), len(texts)))


def _clusters(part: Data, centers: Floats) -> Labels:
    """Return the cluster of each row: the assigned one, or that of the nearest centre."""
    return nearest_present(part.X, centers)[0] if part.assigned is None else part.assigned


def _by_line(X: NDArray[np.floating], labels: Labels, state: State) -> tuple[Floats, Floats]:
    """Return the count of each row in each line of its cluster, and its difference from c."""
    texts, there = state.memory["texts"], ~np.isnan(X)
    numbers = texts == 0
    apart = np.where(there, X - state.centers[labels], 0.0)
    counted = np.where(numbers, there, np.where(there, X, 0.0))
    firsts = [int(np.argmax(texts == i + 1)) for i in range(n_texts(state))]
    nothing = np.zeros((len(X), 1 + len(firsts)))
    return (
        np.column_stack([np.ones(len(X)), there[:, firsts], counted]),
        np.column_stack([nothing, np.where(numbers, apart, 0.0)]),
    )


def _parts(part: Data, counted: Floats, state: State) -> Floats:
    """Return the part of a row that counts in each line, (n, p); see `Grouped.part`."""
    parts = (counted > 0).astype(np.float64)
    if part.grouped is not None:
        texts = np.flatnonzero(state.memory["texts"]) + parts.shape[1] - len(state.memory["texts"])
        parts[:, texts] = part.grouped.part(np.clip(counted[:, texts], 0.0, 1.0))
    return parts


def _within(within: Floats, weights: Floats, state: State) -> Floats:
    """Return each line's part (k, p) of the scatter within groups (d,), by its weight."""
    parts = np.zeros_like(weights)
    own = weights[:, -len(within) :]
    total = own.sum(axis=0)
    share = np.divide(own, total, out=np.zeros_like(own), where=total > 0)
    parts[:, -len(within) :] = np.where(state.memory["texts"] == 0, share * within, 0.0)
    return parts


@dataclass(frozen=True, slots=True)
class ClusterCells:
    """Rows of each cluster, and of all clusters, in cells (a, b] of some columns.

    The state has centres (k, d), and in its memory ``columns (t,)``, the columns; ``edges (k, t, c
    + 1)``, the edges of each cluster's cells; and ``overall (t, c + 1)``, those for all rows.
    Missing values are in no cell.

    Parameters
    ----------
    given : int, optional
        The number, from 1, of a column; only rows that have ``value`` there count.
    value : {0, 1}
        This value.

    Notes
    -----
    A site sends at most (k + 1) t c numbers: a line for each cell, without sums.

    Examples
    --------
    >>> memory = {"columns": np.zeros(1), "edges": np.array([[[-np.inf, 1.0, 3.0]]]),
    ...           "overall": np.array([[0.0, 2.0, np.inf]])}
    >>> state = State(np.array([[2.0]]), np.zeros(1), memory=memory)
    >>> rows = Data(np.array([[1.0], [2.0], [3.0], [4.0]]))
    >>> ClusterCells().client_step(state, rows, np.random.default_rng(0)).weights
    array([1., 2., 2., 2.])
    """

    allowed = Allowed(
        {"given": Whole(1, 1, "d", none=True), "value": OneOf((0, 1))},
        centers=CENTERS,
        memory={
            "columns": Array(("searched",), below="d"),
            "edges": Array(("k", "searched", "edges"), -inf, inf, rising=True),
            "overall": Array(("searched", "edges"), -inf, inf, rising=True),
        },
        sizes={"searched": Whole(1, 1, "d"), "edges": Whole(2, 1000)},
        gaps=True,
    )
    client_additive = server_additive = True
    given: int | None = None
    value: int = 1

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line without sums for each cell."""
        k, t, n_edges = state.memory["edges"].shape
        return (k + 1) * t * (n_edges - 1), 0

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the weights and the numbers of rows of the cells."""
        if self.given is not None:
            data = data.take(data.X[:, self.given - 1] == self.value)
        labels, weight = _clusters(data, state.centers), row_weights(data)
        edges = np.concatenate([state.memory["edges"], state.memory["overall"][None]])
        order = np.argsort(labels, kind="stable")
        stops = np.cumsum(np.bincount(labels, minlength=len(state.centers)))
        rows = [*np.split(order, stops[:-1]), np.arange(len(data))]
        lines = [
            in_cells(data.X[mine, j], weight[mine], own)
            for mine, of_cluster in zip(rows, edges, strict=True)
            for j, own in zip(state.memory["columns"].astype(int), of_cluster, strict=True)
        ]
        weights, counts = np.concatenate(lines, axis=1)
        return Summary(np.zeros((len(weights), 0)), weights, counts)


def in_cells(values: NDArray[np.floating], weight: Floats, edges: Floats) -> Floats:
    """Return the weight and the number of values in each cell, (2, c)."""
    cell = np.searchsorted(edges, values, side="left") - 1
    inside = (cell >= 0) & (cell < len(edges) - 1) & ~np.isnan(values)
    cell, most = cell[inside], len(edges) - 1
    both = [np.bincount(cell, w, most) for w in (weight[inside], np.ones(len(cell)))]
    return np.array(both, dtype=np.float64)
