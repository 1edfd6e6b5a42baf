"""Cells of a grid, or of hyperplanes, with the rows in each: a start from few noisy sums.

D. Su, J. Cao, N. Li, E. Bertino & H. Jin, Differentially private k-means clustering, CODASPY 2016,
section 4.2: a row is in one cell of a uniform grid, so that it changes one count, by 1; k-means on
the cells' middles, weighted by their noisy counts, gives the centres. Beyond three dimensions a
grid has too many cells: M. S. Charikar, Similarity estimation techniques from rounding algorithms,
STOC 2002, section 3: the sides of b hyperplanes on which a row lies name one of 2^b cells, as
A. Chang & P. Kamath do (Google, Practical differentially private clustering, 2021).

    y = x - m,   z_j = a_j . y,  j = 1 ... q     along q axes, from a middle m
    GridCells      cell of z between low and high, bins_j of each axis    counts alone
    HashedCells    b(z)_i = 1 where p_i . z > 0,  i = 1 ... b       counts, sums of clip(z, R) / R

Deviations: the axes, the middle, low, high and R come from noisy sums before (`BoxMoments`,
`BallScatter`), and rows beyond low and high count in the outermost cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.random import Generator

from fedcluster._ranges import LARGEST, ONE_CENTER, Allowed, Array, Whole
from fedcluster.algorithms._private_moments import clipped
from fedcluster.core import Data, Floats, Labels, Sensitivity, State, Summary, on_grid
from fedcluster.metrics._moments import by_cluster, in_parts, no_rows

MOST_CELLS = 1 << 16
"""Cells of a grid, at most."""

NARROWEST = 1e-12
"""Distance of the ends of an axis, at least."""

MOST_PLANES = 12
"""Hyperplanes, at most."""

COUNTS = 0.2
"""Part of the privacy cost of sums and counts that the counts take."""


@dataclass(frozen=True, slots=True)
class GridCells:
    """Number of the rows in each cell of a uniform grid along q axes.

    The state has the middle m as its one centre; its memory has ``axes`` (q, d), ``low``, ``high``
    and ``bins``, (q,) each. Cells are numbered with the last axis fastest.

    Notes
    -----
    A site sends a number for each cell, without sums.

    Examples
    --------
    >>> ends = {"low": np.array([-1.0, -1.0]), "high": np.ones(2), "bins": np.array([2.0, 1.0])}
    >>> state = State(np.zeros((1, 2)), np.zeros(1), memory={"axes": np.eye(2), **ends})
    >>> rows = Data(np.array([[-0.5, 0.5], [0.5, 0.5], [7.0, 0.0]]))
    >>> GridCells().client_step(state, rows, np.random.default_rng(0)).weights
    array([1., 2.])
    >>> GridCells.middles(state)
    array([[-0.5,  0. ],
           [ 0.5,  0. ]])
    """

    allowed = Allowed(
        centers=ONE_CENTER,
        memory={
            "axes": Array(("q", "d")),
            "low": Array(("q",)),
            "high": Array(("q",)),
            "bins": Array(("q",), least=1.0, most=float(MOST_CELLS)),
        },
        sizes={"q": Whole(1, 3)},
    )
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each cell, without sums."""
        return prod(_bins(state)), 0

    def sensitivity(self, state: State, n_columns: int) -> Sensitivity:
        """Return how much one record changes the answer: 1 in one count."""
        return Sensitivity(0.0, 1.0)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the weight of the rows in each cell.

        Raises
        ------
        ValueError
            If there are more than 65,536 cells.
        """
        bins = _bins(state)
        if (n_cells := prod(bins)) > MOST_CELLS:
            raise ValueError(f"a grid has at most {MOST_CELLS:,} cells, not {n_cells:,}")
        low, high = state.memory["low"], state.memory["high"]
        width = np.maximum(high - low, NARROWEST) / bins
        summary = no_rows(n_cells, 0)
        for part in in_parts(data, 2 * data.X.shape[1]):
            places = np.floor((along(part, state) - low) / width)
            inside = np.clip(places, 0, np.array(bins) - 1).astype(np.intp)
            cell = np.ravel_multi_index(tuple(inside.T), bins).astype(np.int32)
            summary += by_cluster(part, cell, np.zeros((len(part), 0)), n_cells)
        return summary

    @staticmethod
    def middles(state: State) -> Floats:
        """Return the middles of the cells along the axes, (cells, q), in their order."""
        ends = zip(state.memory["low"], state.memory["high"], _bins(state), strict=True)
        axes = [low + (np.arange(bins) + 0.5) * (high - low) / bins for low, high, bins in ends]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


@dataclass(frozen=True, slots=True)
class HashedCells:
    """Numbers and sums of the rows in each cell between b hyperplanes through a middle.

    The state has the middle m as its one centre; its memory has ``axes`` (q, d), ``planes``
    (b, q), their normals, and ``radius``, (1,), to which rows are clipped along the axes.

    Notes
    -----
    A site sends 2^b (q + 1) numbers.

    Examples
    --------
    >>> memory = {"axes": np.eye(2), "planes": np.array([[1.0, 0.0]]), "radius": np.array([2.0])}
    >>> state = State(np.zeros((1, 2)), np.zeros(1), memory=memory)
    >>> rows = Data(np.array([[-1.0, 0.5], [0.0, 1.0], [3.0, 4.0]]))
    >>> answer = HashedCells().client_step(state, rows, np.random.default_rng(0))
    >>> answer.sums.round(3), answer.weights
    (array([[-0.5 ,  0.75],
           [ 0.6 ,  0.8 ]]), array([2., 1.]))
    """

    allowed = Allowed(
        centers=ONE_CENTER,
        memory={
            "axes": Array(("q", "d")),
            "planes": Array(("planes", "q")),
            "radius": Array(("one",), least=1e-9, most=LARGEST),
        },
        sizes={"q": Whole(1, 1, "d"), "planes": Whole(1, MOST_PLANES), "one": Whole(1, 1)},
    )
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each cell, a sum for each axis."""
        return 1 << len(state.memory["planes"]), len(state.memory["axes"])

    def sensitivity(self, state: State, n_columns: int) -> Sensitivity:
        """Return how much one record changes the answer: 1 in a count, a sum of length 1."""
        return Sensitivity(1.0, 1.0, COUNTS)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the sums of clip(z, R) / R, and the weights, of the rows in each cell."""
        planes, [radius] = state.memory["planes"], state.memory["radius"]
        n_cells, q = self.answer_shape(state, data.X.shape[1])
        summary = no_rows(n_cells or 0, q)
        for part in in_parts(data, 2 * data.X.shape[1] + 2 * q):
            z = along(part, state)
            sides = np.einsum("nq,bq->nb", z, planes) > 0
            cell: Labels = (sides @ (1 << np.arange(len(planes)))).astype(np.int32)
            values = on_grid(clipped(z, radius) / radius).astype(np.float64)
            summary += by_cluster(part, cell, values, len(summary.weights))
        return summary


def along(part: Data, state: State) -> Floats:
    """Return rows about the centre of a state along its axes, (n, q).

    Each row by itself: the same bits among others.
    """
    apart = np.ascontiguousarray(part.X - state.centers[0], dtype=np.float64)
    places: Floats = np.einsum("nd,qd->nq", apart, state.memory["axes"])
    return places


def _bins(state: State) -> tuple[int, ...]:
    """Return the number of cells of each axis."""
    return tuple(int(bins) for bins in state.memory["bins"])
