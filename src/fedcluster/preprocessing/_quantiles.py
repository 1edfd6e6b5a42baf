"""Quantiles from counts: the interval that holds one is cut into cells, round after round.

All columns and all quantiles are searched in the same rounds. No site tells its smallest or
largest value: by Cantelli's inequality, the value below which a share p of the weight lies is at
most sqrt((1 - p) / p) standard deviations below the mean and sqrt(p / (1 - p)) above it, and the
search begins there. It ends before the counts become small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from fedcluster._ranges import NO_CENTERS, Allowed, Array, Whole
from fedcluster.core import Data, Floats, State, Summary, Task
from fedcluster.rounds import Plan

MOST_CELLS = 32
"""Cells of one interval in one round."""
SMALL = 5
"""An interval is cut only as finely as leaves so many rows in a cell, on average."""
KEPT_BYTES = 1 << 28
"""The values of sorted columns that a site keeps between rounds; others are sorted anew."""
RESOLUTION = 2.0**-30
"""The width of an interval, as a share of the first one, that is not cut any more."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Weight in each cell (a, b] of the intervals that the state names.

    The state's memory holds ``columns (t,)``, the column of each interval, and ``edges
    (t, c + 1)``, where its cells begin and end. A site sends t c numbers at most: a line for each
    cell, without sums. Missing values lie in no cell.

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

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line without sums for each cell."""
        intervals, edges = state.memory["edges"].shape
        return intervals * (edges - 1), 0

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Compute the weights and counts of the cells."""
        edges = state.memory["edges"]
        weights, counts = np.zeros(edges.shape), np.zeros(edges.shape)
        for i, j in enumerate(state.memory["columns"].astype(int)):
            values, weight, count = _sorted(data, j)
            below = np.searchsorted(values, edges[i], side="right")
            counts[i] = below if count is None else count[below]
            weights[i] = below if weight is None else weight[below]
        in_cells, behind = np.diff(weights, axis=1).ravel(), np.diff(counts, axis=1).ravel()
        return Summary(np.zeros((len(in_cells), 0)), in_cells, behind)


def histogram_task(columns: ArrayLike, edges: Sequence[Floats]) -> Task:
    """Return the task that counts rows in cells: of each interval, its column and its edges."""
    most = max(map(len, edges))
    padded = [np.pad(each, (0, most - len(each)), mode="edge") for each in edges]
    memory = {"columns": np.array(columns, dtype=np.float64), "edges": np.array(padded)}
    return Task(Histogram(), State(memory=memory))


Sorted = tuple[NDArray[np.floating], Floats | None, Floats | None]


def _sorted(data: Data, j: int) -> Sorted:
    """Return a column's values in order, weight and number of the first 0, 1, ... of them.

    Where one is how many values there are, None stands for it.
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
    if sum(values.nbytes for values, *_ in [*kept.values(), column]) <= KEPT_BYTES:
        kept[j] = column
    return column


def quantiles(
    shares: Sequence[float],
    mean: Floats,
    variance: Floats,
    weights: Floats,
    *,
    small: float = SMALL,
    resolution: float = RESOLUTION,
) -> Plan[tuple[Floats, Floats]]:
    """Plan the search for quantiles of all columns, as `numpy.quantile` defines them.

    Parameters
    ----------
    shares : sequence of float
        q of them, each above 0 and below 1.
    mean, variance, weights : ndarray of shape (d,)
        Of the columns, over all sites; a weight counts as so many equal rows.
    small : float
        Intervals of less than twice as many rows are not cut: counts stay at least this large on
        average.
    resolution : float
        Nor are those narrower than this share of the first one.

    Returns
    -------
    Plan of (ndarray, ndarray) of shape (q, d) each
        The quantiles, and the resolution step of each: it is off by half of that at most.
    """
    places = np.outer(shares, np.maximum(weights - 1.0, 0.0))
    # a quantile lies between the rows of two ranks; a rank that comes twice is searched once
    ranks = np.array([np.floor(places), np.ceil(places)])
    pairs = np.column_stack([np.indices(ranks.shape)[2].ravel(), ranks.ravel()])
    searched, inverse = np.unique(pairs, axis=0, return_inverse=True)
    columns, rank = searched[:, 0].astype(int), searched[:, 1]
    weight = weights[columns]
    share = np.clip((rank + 0.5) / np.maximum(weight, 1.0), 1e-12, 1 - 1e-12)
    reach = 1.001 * np.sqrt(variance)[columns]  # by Cantelli
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
    """Plan the search for the values of s ranks, each in an interval (low, high], (s,).

    The value of a rank is the smallest one with more weight than the rank at and below it.
    ``below`` is the weight at and below ``low``, ``inside`` that in the interval.
    """
    rounding = 4 * np.spacing(np.maximum(abs(low), abs(high)))  # narrower than that it cannot get
    width = np.maximum(resolution * (high - low), rounding)
    below, inside, ends = np.zeros(len(rank)), weight, np.array([np.inf])
    open_ = np.arange(len(rank))
    while len(open_):
        n_cells = np.clip(inside[open_] // max(small, 1.0), 2, MOST_CELLS).astype(int)
        cuts = [np.linspace(low[i], high[i], n + 1) for i, n in zip(open_, n_cells, strict=True)]
        question = histogram_task(columns[open_], [np.r_[-ends, cut, ends] for cut in cuts])
        ends = ends[:0]  # only the first cells reach to the ends of the line
        [answers] = yield [question]
        counted = answers.total().weights.reshape(len(open_), -1)
        upto = below[open_, None] + np.cumsum(counted, axis=1)
        # where limits hide the cell that holds the rank, the search ends
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
