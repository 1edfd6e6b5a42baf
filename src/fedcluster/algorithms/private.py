"""Steps of a private clustering: moments, directions, and cells of a grid.

Location of the rows and directions of their variation, from sums that one record hardly changes.

C. Dwork, K. Talwar, A. Thakurta & L. Zhang, Analyze Gauss: optimal bounds for privacy-preserving
principal component analysis, STOC 2014, algorithm 1: noise on the matrix of second moments itself,
whose eigenvectors are then those of noisy sums.

    BoxMoments     sum of x, sum of x^2 by column         |(x, x^2)| <= sqrt(2 d) in [-1, 1]^d
    BallScatter    sum of y y', y = clip(x - m, R) / R    |y y'|_F = |y|^2 <= 1

clip(y, R) is y where |y| <= R, and else the nearest point of that ball. A matrix is sent as its
d (d + 1) / 2 entries on and above the diagonal, those above it times sqrt(2), so that the length
of the answer is the matrix's Frobenius norm.

Deviation: the rows lie about a mean m in a ball of radius R, both estimated from earlier noisy
sums, not in the unit ball about the origin; wide public bounds then cost little.

Cells of a grid with the rows in each: a start from few noisy sums.

D. Su, J. Cao, N. Li, E. Bertino & H. Jin, Differentially private k-means clustering, CODASPY 2016,
section 4.2: a row is in one cell of a uniform grid, so that it changes one count, by 1; k-means on
the cells' middles, weighted by their noisy counts, gives the centres.

    y = x - m,  z_j = a_j . y,  j = 1 ... q      along q axes, from a middle m
    n_b = number,  S_b = sum of clip(z, R) / R   over the rows whose z lies in cell b

If there are few cells along many axes, they are wide and their middles inaccurate; then the sums
S_b give the means of their rows, as in A. Chang & P. Kamath (Google, Practical differentially
private clustering, 2021), who make cells by hashing.

Deviations: the axes, the middle, the ends and R come from earlier noisy sums (`BoxMoments`,
`BallScatter`); the axes have different numbers of bins; rows beyond the ends count in the outermost
cells.

Lloyd's algorithm by moves of limited length, so that noise on its sums can be small.

A. Diaa, T. Humphries & F. Kerschbaum, FastLloyd: federated, accurate, secure and tunable k-means
clustering with differential privacy, USENIX Security 2025, section 4: sums are relative to the
centres, and what one row adds is limited by a radius, which is far smaller than the bounds of the
rows, and so is the noise.

    site:     y = clip(x - c_j, r_j) / r_j      over the rows x nearest to c_j
              S_j = sum of y,  Q_j = sum of |y|^2,  n_j = number
    server:   c_j <- c_j + r_j clip(S_j / n_j, 1)
              r_j <- min(r_j, s e),  e^2 = sum of r_j^2 (Q_j - |S_j|^2 / n_j) / sum of n_j

Deviations: a row farther than the radius is shortened, where FastLloyd leaves it out, so that
clusters that are wider than the radius move too; each cluster has a radius of its own, in whose
units its sums are; and the squares Q_j, which FastLloyd lacks, make the radius fit the clusters.
A cluster with few rows moves as if it had a quarter of its even share: its count is mostly noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedcluster.algorithms.merging import total
from fedcluster.core import Data, Floats, Sensitivity, State, Summary, on_grid, ranges
from fedcluster.kernels import nearest
from fedcluster.metrics import Inertia
from fedcluster.metrics.moments import by_cluster, in_parts, no_rows, one_line, row_weights

COUNTS = 0.1
"""Part of an answer's privacy cost that is spent on its single weight."""


@dataclass(frozen=True, slots=True)
class BoxMoments:
    """Sums and sums of squares of each column, about 0.

    Notes
    -----
    A site sends 2 d + 1 numbers.

    Examples
    --------
    >>> rows = Data(np.array([[0.5, -1.0], [0.5, 0.0]]))
    >>> BoxMoments().client_step(State(), rows, np.random.default_rng(0)).sums
    array([[ 1. , -1. ,  0.5,  1. ]])
    """

    allowed = ranges.Allowed(centers=ranges.NO_CENTERS)
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: sums and squares of all columns in one line."""
        return 1, 2 * n_columns

    def sensitivity(self, state: State, n_columns: int) -> Sensitivity:
        """Return the sensitivity of the answer: at most 1 in each of 2 d sums."""
        return Sensitivity(sqrt(2 * n_columns), 1.0, COUNTS)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the sums of the rows and of their squares."""
        d = data.X.shape[1]
        sums = np.zeros(2 * d)
        for part in in_parts(data, 2 * d):
            w = row_weights(part)
            sums += np.concatenate([w @ part.X, w @ on_grid(np.square(part.X, dtype=np.float64))])
        return one_line(sums, data)


@dataclass(frozen=True, slots=True)
class BallScatter:
    """Second moments about a centre, with rows in units of a radius and clipped to length 1.

    The state's memory has ``radius``, (1,), above 0.

    Notes
    -----
    A site sends d (d + 1) / 2 + 1 numbers.

    Examples
    --------
    >>> state = State(np.zeros((1, 2)), np.zeros(1), memory={"radius": np.array([2.0])})
    >>> rows = Data(np.array([[1.0, 0.0], [6.0, 8.0]]))  # clipped to (1.2, 1.6)
    >>> answer = BallScatter().client_step(state, rows, np.random.default_rng(0))
    >>> BallScatter.matrix(answer).round(3)
    array([[0.61, 0.48],
           [0.48, 0.64]])
    """

    allowed = ranges.Allowed(
        centers=ranges.ONE_CENTER,
        memory={"radius": ranges.Array(("one",), least=1e-9, most=ranges.LARGEST)},
        sizes={"one": ranges.Whole(1, 1)},
    )
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: one line, the upper triangle of a matrix (d, d)."""
        return 1, n_columns * (n_columns + 1) // 2

    def sensitivity(self, state: State, n_columns: int) -> Sensitivity:
        """Return the sensitivity of the answer: a matrix y y' of norm |y|^2 <= 1."""
        return Sensitivity(1.0, 1.0, COUNTS)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the sum of y y' over the rows, as the entries of its upper triangle."""
        d, [radius] = data.X.shape[1], state.memory["radius"]
        upper = np.triu_indices(d)
        scale = np.where(upper[0] == upper[1], 1.0, sqrt(2.0))
        sums = np.zeros(len(scale))
        for part in in_parts(data, len(scale)):
            y = clipped(part.X - state.centers[0], radius) / radius
            sums += row_weights(part) @ on_grid(y[:, upper[0]] * y[:, upper[1]] * scale)
        return one_line(sums, data)

    @staticmethod
    def matrix(total: Summary) -> Floats:
        """Return the matrix (d, d) of the sums of y y' from a total answer."""
        entries = total.sums[0]
        d = (int(sqrt(8 * len(entries) + 1)) - 1) // 2
        matrix = np.zeros((d, d))
        matrix[np.triu_indices(d)] = entries
        return (matrix + matrix.T) / np.where(np.eye(d) > 0, 2.0, sqrt(2.0))


def clipped(rows: Floats, radius: Floats | float) -> Floats:
    """Return rows (n, d), shortened to a radius > 0, common or of each (n,), if they are longer.

    Examples
    --------
    >>> clipped(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    length = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1))
    shorter: Floats = rows * (radius / np.maximum(length, radius))[:, None]
    return shorter


@dataclass(frozen=True, slots=True)
class GridCells:
    """Number of rows in each cell of a uniform grid along q axes, optionally with their sums.

    The state has the middle m as its one centre; its memory has ``axes`` (q, d), ``low``, ``high``
    and ``bins``, (q,) each, and ``radius``, (1,), to which rows are clipped in sums. Cells are
    numbered with the last axis fastest.

    Parameters
    ----------
    means : bool, default=False
        Whether the sums are asked for too.

    Notes
    -----
    A site sends one number for each cell, or q + 1 with sums.

    Examples
    --------
    >>> ends = {"low": np.array([-1.0, -1.0]), "high": np.ones(2), "bins": np.array([2.0, 1.0])}
    >>> memory = {"axes": np.eye(2), **ends, "radius": np.array([5.0])}
    >>> state = State(np.zeros((1, 2)), np.zeros(1), memory=memory)
    >>> rows = Data(np.array([[-0.5, 0.5], [0.5, 0.5], [6.0, 8.0]]))
    >>> answer = GridCells(means=True).client_step(state, rows, np.random.default_rng(0))
    >>> answer.sums.round(3), answer.weights
    (array([[-0.1,  0.1],
           [ 0.7,  0.9]]), array([1., 2.]))
    >>> GridCells.middles(state)
    array([[-0.5,  0. ],
           [ 0.5,  0. ]])
    """

    most_cells = 1 << 16  # largest number of cells of a grid
    allowed = ranges.Allowed(
        {"means": ranges.EITHER},
        ranges.ONE_CENTER,
        memory={
            "axes": ranges.Array(("q", "d")),
            "low": ranges.Array(("q",)),
            "high": ranges.Array(("q",)),
            "bins": ranges.Array(("q",), least=1.0, most=float(most_cells)),
            "radius": ranges.Array(("one",), least=1e-9),
        },
        sizes={"q": ranges.Whole(1, 1, "d"), "one": ranges.Whole(1, 1)},
    )
    client_additive = server_additive = True

    means: bool = False
    counts_share = 0.2  # part of the privacy cost of sums and counts that is spent on the counts

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each cell, a sum for each axis or none."""
        return prod(_bins(state)), len(state.memory["axes"]) if self.means else 0

    def sensitivity(self, state: State, n_columns: int) -> Sensitivity:
        """Return the sensitivity of the answer: 1 in one count, and a sum of length 1."""
        return Sensitivity(float(self.means), 1.0, self.counts_share)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the weight of the rows in each cell, and their sums.

        Raises
        ------
        ValueError
            If there are more than 65,536 cells.
        """
        bins, [radius] = _bins(state), state.memory["radius"]
        if (n_cells := prod(bins)) > self.most_cells:
            raise ValueError(f"a grid has at most {self.most_cells:,} cells, not {n_cells:,}")
        low, high = state.memory["low"], state.memory["high"]
        # Smallest distance between the ends of an axis.
        width, q = np.maximum(high - low, 1e-12) / bins, len(bins)
        summary = no_rows(n_cells, q if self.means else 0)
        for part in in_parts(data, 2 * (data.X.shape[1] + q)):
            z = along(part, state)
            inside = np.clip(np.floor((z - low) / width), 0, np.array(bins) - 1).astype(np.intp)
            cell = np.ravel_multi_index(tuple(inside.T), bins).astype(np.int32)
            values = on_grid(clipped(z, radius) / radius).astype(np.float64)
            summary += by_cluster(part, cell, values if self.means else values[:, :0], n_cells)
        return summary

    @staticmethod
    def middles(state: State) -> Floats:
        """Return the middles of the cells along the axes, (cells, q), in their order."""
        ends = zip(state.memory["low"], state.memory["high"], _bins(state), strict=True)
        axes = [low + (np.arange(bins) + 0.5) * (high - low) / bins for low, high, bins in ends]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def along(part: Data, state: State) -> Floats:
    """Return the rows about the centre of a state, along its axes, (n, q).

    Each row is computed by itself, so its bits do not depend on the other rows.
    """
    apart = np.ascontiguousarray(part.X - state.centers[0], dtype=np.float64)
    places: Floats = np.einsum("nd,qd->nq", apart, state.memory["axes"])
    return places


def _bins(state: State) -> tuple[int, ...]:
    """Return the number of cells of each axis."""
    return tuple(int(bins) for bins in state.memory["bins"])


SMALLEST, APART = 1e-6, 0.5
"""Smallest radius, and the first one as a multiple of the median distance between centres."""


@dataclass(frozen=True, slots=True)
class RelativeLloyd:
    """Lloyd's algorithm in which a row moves its centre by a limited length; starts at centres.

    The state's memory has ``radius``, (k,), above 0; by default half the median distance of a
    centre to its nearest other one, or sqrt(d) for a single centre.

    Parameters
    ----------
    spread : float, default=2.0
        s: the next radius, in units of the root mean squared distance of rows to their centres.

    Notes
    -----
    A site sends k (d + 2) numbers a round. Without noise, and with radii larger than all distances,
    a round equals one of `Lloyd` except for clusters with few rows.

    Examples
    --------
    >>> memory = {"radius": np.array([2.0, 2.0])}
    >>> state = State(np.array([[0.0], [8.0]]), np.zeros(2), memory=memory)
    >>> rows = Data(np.array([[0.0], [1.0], [7.0], [12.0]]))
    >>> answer = RelativeLloyd().client_step(state, rows, np.random.default_rng(0))
    >>> answer.sums  # of each cluster: moves, and half the squares
    array([[0.5  , 0.125],
           [0.5  , 0.625]])
    >>> RelativeLloyd().server_step(state, [answer], np.random.default_rng(0)).centers
    array([[0.5],
           [8.5]])
    """

    allowed = ranges.Allowed(
        {"spread": ranges.Real(0, 100)},
        ranges.CENTERS,
        {"radius": ranges.Array(("k",), least=SMALLEST, most=ranges.LARGEST)},
        optional=True,
    )
    client_additive = server_additive = needs_centers = True
    converges = False  # noise prevents convergence: all stated rounds are run
    min_cluster_size: ClassVar[int] = 1
    objective = Inertia

    spread: float = 2.0
    counts_share = 0.25  # part of the privacy cost of an answer that is spent on its counts
    squares = 0.5
    """Value of a squared length of 1 in an answer: squares then add little to the sensitivity."""
    fewest_share = 0.25
    """Smallest number of rows that a cluster is assumed to have, in parts of an even share."""

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: moves and squares for each centre."""
        return len(state.centers), n_columns + 1

    def sensitivity(self, state: State, n_columns: int) -> Sensitivity:
        """Return the sensitivity of the answer: a move of length 1, and its square."""
        return Sensitivity(sqrt(1.0 + self.squares**2), 1.0, self.counts_share)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return moves, squares and counts of the rows nearest to each centre."""
        (k, d), radius = state.centers.shape, radii(state)
        summary = no_rows(k, d + 1)
        for part in in_parts(data, 4 * d):
            labels, _ = nearest(part.X, state.centers)
            apart = part.X - state.centers[labels]
            moves = on_grid(clipped(apart, radius[labels]) / radius[labels, None])
            squares = on_grid(self.squares * np.square(moves).sum(axis=1))
            summary += by_cluster(part, labels, np.column_stack([moves, squares]), k)
        return summary

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Move each centre by the mean of its rows' moves, and fit the radius to the rows."""
        answer, radius = total(answers), radii(state)
        moves, squares = answer.sums[:, :-1], answer.sums[:, -1] / self.squares
        n = max(float(answer.weights.sum()), 1.0)
        counts = np.maximum(answer.weights, self.fewest_share * n / len(radius))
        steps = clipped(moves / counts[:, None], 1.0)
        left = squares - (steps**2).sum(axis=1) * counts
        inertia = max(float((radius**2) @ left), 0.0)
        fitted = np.minimum(radius, max(self.spread * sqrt(inertia / n), SMALLEST))
        centers = state.centers + radius[:, None] * steps
        return State(
            centers,
            np.maximum(answer.weights, 0.0),
            round=state.round + 1,
            inertia=inertia,
            memory={"radius": fitted},
        )


def radii(state: State) -> Floats:
    """Return the radius of each centre, (k,), from the memory or from the centres' distances.

    Examples
    --------
    >>> radii(State.at([[0.0], [1.0], [5.0]]))
    array([0.5, 0.5, 0.5])
    """
    if state.memory:
        return state.memory["radius"]
    k, d = state.centers.shape
    apart = np.sqrt(((state.centers[:, None] - state.centers) ** 2).sum(axis=2))
    np.fill_diagonal(apart, np.inf)
    first = APART * float(np.median(apart.min(axis=1))) if k > 1 else sqrt(d)
    return np.full(k, max(first, SMALLEST))
