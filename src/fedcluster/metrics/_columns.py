"""What columns look like, from sums: powers, grids of values, ranges along directions.

A column with two values has the kurtosis 1 + g^2, g being its skewness, and no other column has:
K. Pearson, Mathematical contributions to the theory of evolution XIX, Phil. Trans. R. Soc. A 216,
1916. Its values are m + s (g / 2 - r) and m + s (g / 2 + r), r^2 = 1 + g^2 / 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.random import Generator

from fedcluster._ranges import ONE_CENTER, Allowed, Array, Whole
from fedcluster.core import Data, Floats, State, Summary
from fedcluster.metrics._moments import in_parts, row_weights

POWERS = 4
GRIDS = (10.0, 5.0, 1.0, 0.5, 0.1)
"""Steps of which the values of a column may all be multiples, widest first."""

ON_GRID = 1e-6
"""Distance from a multiple, in steps, at and below which a value is one."""

TWO_VALUED = 1e-6
"""Excess of the kurtosis over that of two values, at and below which a column has two."""

MOST_EDGES = 1000


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """First four powers of each column about a centre, and its rows that lie on each grid.

    The state's memory has ``shift`` and ``scale``, (d,) each: a value on a grid is x scale +
    shift, that is the value before it was prepared.

    Notes
    -----
    A site sends 10 d numbers, a line for each column.

    Examples
    --------
    >>> memory = {"shift": np.zeros(1), "scale": np.ones(1)}
    >>> state = State(np.array([[2.0]]), np.zeros(1), memory=memory)
    >>> rows = Data(np.array([[1.0], [2.5]]))
    >>> ColumnShape().client_step(state, rows, np.random.default_rng(0)).sums
    array([[-0.5   ,  1.25  , -0.875 ,  1.0625,  0.    ,  0.    ,  1.    ,  2.    ,
             2.    ]])
    """

    allowed = Allowed(centers=ONE_CENTER, memory={"shift": Array(("d",)), "scale": Array(("d",))})
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each column."""
        return n_columns, POWERS + len(GRIDS)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return sums of powers, and the weight of the rows on each grid."""
        d = data.X.shape[1]
        sums = np.zeros((d, POWERS + len(GRIDS)))
        for part in in_parts(data, 4 * d):
            w, apart = row_weights(part), part.X - state.centers[0]
            power = np.ones_like(apart)
            for i in range(POWERS):
                power = power * apart
                sums[:, i] += w @ power
            raw = part.X * state.memory["scale"] + state.memory["shift"]
            for i, step in enumerate(GRIDS):
                places = raw / step
                sums[:, POWERS + i] += w @ (np.abs(places - np.round(places)) <= ON_GRID)
        if (within := data.within) is not None:
            sums[:, 1] += within
        weight = float(row_weights(data).sum())
        return Summary(sums, np.full(d, weight), np.full(d, float(len(data))))


@dataclass(frozen=True, slots=True, eq=False)
class Shapes:
    """What `ColumnShape` tells of d columns.

    Attributes
    ----------
    mean, variance : ndarray of shape (d,)
        Of all rows.
    values : ndarray of shape (2, d)
        The two values of a column that has only two; NaN elsewhere.
    grid : ndarray of shape (d,)
        The widest step of which all values before preparation are multiples; 0 without one.
    """

    mean: Floats
    variance: Floats
    values: Floats
    grid: Floats

    @classmethod
    def from_total(cls, state: State, total: Summary) -> Shapes:
        """Return what the total answer tells.

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
            skewness = third / variance**1.5
            two = np.abs(fourth / variance**2 - skewness**2 - 1.0) <= TWO_VALUED * (
                1.0 + skewness**2
            )
            reach = np.sqrt(1.0 + skewness**2 / 4.0)
            ends = np.array([skewness / 2.0 - reach, skewness / 2.0 + reach])
        mean = state.centers[0] + m1
        values = np.where(two, mean + np.sqrt(variance) * ends, np.nan)
        on = total.sums[:, POWERS:] >= (1.0 - 1e-9) * n[:, None]
        grid = np.where(on.any(axis=1), np.array(GRIDS)[on.argmax(axis=1)], 0.0)
        return cls(mean, variance, values, grid)


@dataclass(frozen=True, slots=True)
class AxisCounts:
    """Weight of the rows in each cell (a, b] along directions, from a centre.

    The state's memory has ``axes (t, d)``, the directions, and ``edges (c + 1,)``, where the
    cells begin and end; a row x lies at (x - centre) . axis.

    Notes
    -----
    A site sends t c numbers at most: a line for each cell, without sums.

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
        sizes={"t": Whole(1, 1, "d"), "edges": Whole(2, MOST_EDGES)},
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
    """Return two quantiles of each line of counts, (t, 2), by position within its cell.

    Parameters
    ----------
    counts : ndarray of shape (t, c)
        The weight in each cell.
    edges : ndarray of shape (c + 1,)
        Where cells begin and end, all finite.
    shares : pair of float
        The shares of the weight below.

    Examples
    --------
    >>> quantiles_of(np.array([[0.0, 4.0, 0.0]]), np.array([0.0, 1.0, 2.0, 3.0]), (0.25, 0.5))
    array([[1.25, 1.5 ]])
    """
    upto = np.concatenate([np.zeros((len(counts), 1)), np.cumsum(counts, axis=1)], axis=1)
    places = [np.interp(np.array(shares) * each[-1], _rising(each), edges) for each in upto]
    return np.array(places).reshape(len(counts), 2)


def _rising(upto: Floats) -> Floats:
    """Return cumulated counts that rise everywhere, by nearly nothing in empty cells."""
    rising: Floats = upto + 1e-9 * max(upto[-1], 1.0) * np.arange(len(upto))
    return rising
