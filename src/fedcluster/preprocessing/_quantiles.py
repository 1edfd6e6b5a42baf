"""Quantiles from counts: the interval that holds one is cut into cells, round after round.

All columns and all quantiles are searched in the same rounds. No site tells its smallest or
largest value: by Cantelli's inequality, the value below which a share p of the weight lies is at
most sqrt((1 - p) / p) standard deviations below the mean and sqrt(p / (1 - p)) above it, and the
search begins there. It ends before the counts become small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

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

    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line without sums for each cell."""
        intervals, edges = state.memory["edges"].shape
        return intervals * (edges - 1), 0

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Compute the weights and counts of the cells."""
        edges = state.memory["edges"]
        weights, counts = np.zeros(edges.shape), np.zeros(edges.shape)
        for i, j in enumerate(state.memory["columns"].astype(int)):
            values, cumulated = _sorted(data, j)
            below = np.searchsorted(values, edges[i], side="right")
            counts[i] = below
            weights[i] = below if cumulated is None else cumulated[below]
        weight, count = np.diff(weights, axis=1).ravel(), np.diff(counts, axis=1).ravel()
        return Summary(np.zeros((len(weight), 0)), weight, count)


def histogram_task(columns: Sequence[int], edges: Sequence[Floats]) -> Task:
    """Return the task that counts rows in cells: of each interval, its column and its edges."""
    most = max(map(len, edges))
    padded = [np.pad(each, (0, most - len(each)), mode="edge") for each in edges]
    memory = {"columns": np.array(columns, dtype=np.float64), "edges": np.array(padded)}
    return Task(Histogram(), State(memory=memory))


Sorted = tuple[NDArray[np.floating], Floats | None]


def _sorted(data: Data, j: int) -> Sorted:
    """Return a column's values in order, and the weight of the first 0, 1, ... of them.

    Without weights of rows, that is their number, and None stands for it.
    """
    kept: dict[int, Sorted] = data.cache.setdefault("sorted columns", {})
    if j in kept:
        return kept[j]
    order = np.argsort(data.X[:, j], kind="stable")[: np.count_nonzero(~np.isnan(data.X[:, j]))]
    cumulated = None
    if data.sample_weight is not None:
        cumulated = np.concatenate([[0.0], np.cumsum(data.sample_weight[order])])
    column = data.X[order, j], cumulated
    if sum(values.nbytes for values, _ in [*kept.values(), column]) <= KEPT_BYTES:
        kept[j] = column
    return column


@dataclass(slots=True)
class _Search:
    """Search for the value of one rank in one column, which lies in (low, high].

    Parameters
    ----------
    column : int
    rank : float
        The value sought is the smallest one with more weight than this at and below it.
    low, high : float
    below, inside : float
        The weight at and below ``low``, and in the interval.
    width : float
        That of an interval which is not cut any more.
    """

    column: int
    rank: float
    low: float
    high: float
    below: float
    inside: float
    width: float
    begun: bool = False

    def edges(self, small: float) -> Floats:
        """Return where to cut the interval; at first also the ends of the line."""
        cells = int(np.clip(self.inside // max(small, 1.0), 2, MOST_CELLS))
        cut = np.linspace(self.low, self.high, cells + 1)
        return cut if self.begun else np.concatenate([[-np.inf], cut, [np.inf]])

    def is_done(self, small: float) -> bool:
        """Return whether the interval is narrow enough, or has too few rows to be cut."""
        return self.begun and (self.high - self.low <= self.width or self.inside < 2 * small)

    def narrow(self, edges: Floats, weights: Floats) -> None:
        """Continue in the cell that holds the rank, or end the search where limits hide it."""
        upto = self.below + np.cumsum(weights)
        self.begun = True
        if not (upto > self.rank).any():
            self.width = np.inf
            return
        cell = int(np.argmax(upto > self.rank))
        low, high = edges[cell], edges[cell + 1]
        self.low = high if np.isinf(low) else low
        self.high = low if np.isinf(high) else high
        self.below, self.inside = upto[cell] - weights[cell], weights[cell]

    @property
    def value(self) -> float:
        """Middle of the interval, off by half of it at most."""
        return self.low + (self.high - self.low) / 2


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
    searches = {
        (j, rank): _begin(j, rank, mean[j], float(np.sqrt(variance[j])), weights[j], resolution)
        for j in range(len(mean))
        for share in shares
        for rank in _ranks(share, weights[j])
    }
    while open_ := [s for s in searches.values() if not s.is_done(small)]:
        question = histogram_task([s.column for s in open_], [s.edges(small) for s in open_])
        [answers] = yield [question]
        counted = answers.total().weights.reshape(len(open_), -1)
        edges = question.state.memory["edges"]
        for search, each, cells in zip(open_, edges, counted, strict=True):
            search.narrow(each, cells)
    values = [[_between(searches, j, q, weights[j]) for j in range(len(mean))] for q in shares]
    both = np.array(values).reshape(len(shares), len(mean), 2)
    return both[..., 0], both[..., 1]


def _ranks(share: float, weight: float) -> tuple[float, float]:
    """Return the ranks, from 0, of the two rows between which a quantile lies."""
    place = share * max(weight - 1.0, 0.0)
    return float(np.floor(place)), float(np.ceil(place))


def _begin(
    column: int, rank: float, mean: float, deviation: float, weight: float, resolution: float
) -> _Search:
    """Return the search for a rank, in the interval of Cantelli's inequality."""
    share = np.clip((rank + 0.5) / max(weight, 1.0), 1e-12, 1 - 1e-12)
    low = mean - 1.001 * deviation * float(np.sqrt((1 - share) / share))
    high = mean + 1.001 * deviation * float(np.sqrt(share / (1 - share)))
    rounding = 4 * float(np.spacing(max(abs(low), abs(high))))  # narrower than that it cannot get
    width = max(resolution * (high - low), rounding)
    return _Search(column, rank, low, high, 0.0, weight, width)


def _between(
    searches: dict[tuple[int, float], _Search], j: int, share: float, weight: float
) -> tuple[float, float]:
    """Return a quantile, from the values of two ranks, and its resolution step."""
    lower, upper = (searches[j, rank] for rank in _ranks(share, weight))
    t = share * max(weight - 1.0, 0.0) - lower.rank
    step = max(lower.high - lower.low, upper.high - upper.low)
    return lower.value + t * (upper.value - lower.value), step
