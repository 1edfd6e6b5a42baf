"""Where rows lie and along which directions they vary, from sums that one record hardly changes.

C. Dwork, K. Talwar, A. Thakurta & L. Zhang, Analyze Gauss: optimal bounds for privacy-preserving
principal component analysis, STOC 2014, algorithm 1: noise on the matrix of second moments itself,
whose eigenvectors are then those of noisy sums.

    BoxMoments     sum of x, sum of x^2 by column         |(x, x^2)| <= sqrt(2 d) in [-1, 1]^d
    BallScatter    sum of y y', y = clip(x - m, R) / R    |y y'|_F = |y|^2 <= 1

clip(y, R) is y where |y| <= R, and else the nearest point of that ball. A matrix is sent as its
d (d + 1) / 2 entries on and above the diagonal, those above it times sqrt(2), so that the length
of the answer is the matrix's Frobenius norm.

Deviation: the rows lie about a mean m, and in a ball of a radius R, that noisy sums told before,
not in the unit ball about the origin; wide public bounds then cost little.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.random import Generator

from fedcluster._ranges import LARGEST, NO_CENTERS, ONE_CENTER, Allowed, Array, Whole
from fedcluster.core import Data, Floats, Sensitivity, State, Summary, on_grid
from fedcluster.metrics._moments import in_parts, one_line, row_weights

COUNTS = 0.1
"""Part of the privacy cost of an answer that its one weight takes."""


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

    allowed = Allowed(centers=NO_CENTERS)
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: sums and squares of all columns in one line."""
        return 1, 2 * n_columns

    def sensitivity(self, state: State, n_columns: int) -> Sensitivity:
        """Return how much one record changes the answer: at most 1 in each of 2 d sums."""
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
    """Second moments about a centre of the rows in units of a radius, clipped to length 1.

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

    allowed = Allowed(
        centers=ONE_CENTER,
        memory={"radius": Array(("one",), least=1e-9, most=LARGEST)},
        sizes={"one": Whole(1, 1)},
    )
    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: one line, the upper triangle of a matrix (d, d)."""
        return 1, n_columns * (n_columns + 1) // 2

    def sensitivity(self, state: State, n_columns: int) -> Sensitivity:
        """Return how much one record changes the answer: a matrix y y' of norm |y|^2 <= 1."""
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
        """Return the matrix (d, d) of the sums of y y' that a total answer holds."""
        entries = total.sums[0]
        d = (int(sqrt(8 * len(entries) + 1)) - 1) // 2
        matrix = np.zeros((d, d))
        matrix[np.triu_indices(d)] = entries
        return (matrix + matrix.T) / np.where(np.eye(d) > 0, 2.0, sqrt(2.0))


def clipped(rows: Floats, radius: Floats | float) -> Floats:
    """Return rows (n, d), those longer than a radius, or each its own (n,), shortened to it.

    Examples
    --------
    >>> clipped(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    array([[0.6, 0.8],
           [0.3, 0.4]])
    """
    length = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1))
    shorter: Floats = rows * np.minimum(1.0, radius / np.maximum(length, 1e-300))[:, None]
    return shorter
