"""What the rows of each cluster look like in the units of their columns, from sums and counts.

The rows come with their clusters, numbers as they are and text as one column of 0 and 1 for each
level. A line for each cluster and column says no more than the line of a cluster does in a round
of Lloyd, and each level of a text is a line of its own: a limit on the size of clusters holds back
those of few rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedcluster._ranges import CENTERS, Allowed, Array, Whole
from fedcluster.core import Data, Floats, Labels, State, Summary
from fedcluster.metrics._incomplete import nearest_present
from fedcluster.metrics._moments import add_by_cluster, in_parts, no_rows, row_weights


@dataclass(frozen=True, slots=True)
class ClusterColumns:
    """Rows of each cluster, and sums of x - c and (x - c)^2 in each column over those with a value.

    The state's centres (k, d) are points c near the means. Its memory holds ``texts (d,)``: 0 for
    a column of numbers, else the number 1, 2, ... of the text whose level the column is; a row is
    1 in the column of its level.

    Notes
    -----
    With t texts, cluster j has 1 + t + d lines: its rows; its rows that have a value in each text;
    and for each column of numbers the rows with a value and the two sums, for each level its rows
    alone. A site sends 3 k (1 + t + d) numbers.

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
        """Return the sums, the weights and the numbers of rows behind them."""
        k, d = state.centers.shape
        lines = 1 + n_texts(state) + d
        total = no_rows(k * lines, 2)
        for part in in_parts(data, 6 * lines):
            labels = _clusters(part, state.centers)
            counted, apart = _by_line(part.X, labels, state)
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
    """Return how many texts there are, by a state of `ClusterColumns`: at most one a column."""
    texts = state.memory["texts"]
    return int(min(texts.max(initial=0.0), len(texts)))


def _clusters(part: Data, centers: Floats) -> Labels:
    """Return the cluster of each row: the one it came with, or that of the nearest centre."""
    return nearest_present(part.X, centers)[0] if part.assigned is None else part.assigned


def _by_line(X: NDArray[np.floating], labels: Labels, state: State) -> tuple[Floats, Floats]:
    """Return how often each row counts in each line of its cluster, and how far it is from c."""
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
    """Return for how much of a row each row counts in each line, (n, p); see `Grouped.part`."""
    parts = (counted > 0).astype(np.float64)
    if part.grouped is not None:
        texts = np.flatnonzero(state.memory["texts"]) + parts.shape[1] - len(state.memory["texts"])
        parts[:, texts] = part.grouped.part(np.clip(counted[:, texts], 0.0, 1.0))
    return parts


def _within(within: Floats, weights: Floats, state: State) -> Floats:
    """Return each line's part (k, p) of the squares within groups (d,), by its weight."""
    parts = np.zeros_like(weights)
    own = weights[:, -len(within) :]
    total = own.sum(axis=0)
    share = np.divide(own, total, out=np.zeros_like(own), where=total > 0)
    parts[:, -len(within) :] = np.where(state.memory["texts"] == 0, share * within, 0.0)
    return parts


@dataclass(frozen=True, slots=True)
class ClusterCells:
    """Rows of each cluster, and of all, in cells (a, b] of some columns.

    The state has centres (k, d), and in its memory ``columns (t,)``, the columns; ``edges
    (k, t, c + 1)``, where the cells of each cluster begin and end; and ``overall (t, c + 1)``,
    those of all rows. Missing values lie in no cell.

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

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line without sums for each cell."""
        k, t, n_edges = state.memory["edges"].shape
        return (k + 1) * t * (n_edges - 1), 0

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the weights and the numbers of rows of the cells."""
        labels, weight = _clusters(data, state.centers), row_weights(data)
        edges = np.concatenate([state.memory["edges"], state.memory["overall"][None]])
        order = np.argsort(labels, kind="stable")
        stops = np.cumsum(np.bincount(labels, minlength=len(state.centers)))
        rows = [*np.split(order, stops[:-1]), np.arange(len(data))]
        lines = [
            _in_cells(data.X[mine, j], weight[mine], own)
            for mine, of_cluster in zip(rows, edges, strict=True)
            for j, own in zip(state.memory["columns"].astype(int), of_cluster, strict=True)
        ]
        weights, counts = np.concatenate(lines, axis=1)
        return Summary(np.zeros((len(weights), 0)), weights, counts)


def _in_cells(values: NDArray[np.floating], weight: Floats, edges: Floats) -> Floats:
    """Return the weight and the number of the values in each cell, (2, c)."""
    cell = np.searchsorted(edges, values, side="left") - 1
    inside = (cell >= 0) & (cell < len(edges) - 1) & ~np.isnan(values)
    cell, most = cell[inside], len(edges) - 1
    both = [np.bincount(cell, w, most) for w in (weight[inside], np.ones(len(cell)))]
    return np.array(both, dtype=np.float64)
