"""Lloyd's algorithm by moves of limited length, so that noise on its sums can be small.

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
from math import sqrt
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedcluster._ranges import CENTERS, LARGEST, Allowed, Array, Real
from fedcluster.algorithms.merging import total
from fedcluster.algorithms.private import clipped
from fedcluster.core import Data, Floats, Sensitivity, State, Summary, on_grid
from fedcluster.kernels import nearest
from fedcluster.metrics import Inertia
from fedcluster.metrics.moments import by_cluster, in_parts, no_rows

COUNTS = 0.25
"""Part of the privacy cost of an answer that its counts take."""

SQUARES = 0.5
"""What a squared length of 1 is in an answer: the squares add little to its sensitivity."""

SMALLEST, APART = 1e-6, 0.5
"""Smallest radius, and the first one in median distances of a centre to the nearest other one."""

FEWEST = 0.25
"""Part of an even share of the rows that a cluster is taken to have at least."""


@dataclass(frozen=True, slots=True)
class RelativeLloyd:
    """Lloyd's algorithm whose rows move a centre by a limited length; starts at centres.

    The state's memory has ``radius``, (k,), above 0; without it, half the median distance of a
    centre to the nearest other one, or the length of the row of ones for a single centre.

    Parameters
    ----------
    spread : float, default=2.0
        s: the next radius in root mean squared distances of rows to their centres.

    Notes
    -----
    A site sends k (d + 2) numbers a round. Without noise and with radii beyond all rows a round
    is one of `Lloyd`, but for clusters of few rows.

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

    allowed = Allowed(
        {"spread": Real(0, 100)},
        CENTERS,
        {"radius": Array(("k",), least=SMALLEST, most=LARGEST)},
        optional=True,
    )
    client_additive = server_additive = needs_centers = True
    converges = False  # noise never rests: it goes on for as many rounds as it is asked
    min_cluster_size: ClassVar[int] = 1
    objective = Inertia

    spread: float = 2.0

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: moves and squares for each centre."""
        return len(state.centers), n_columns + 1

    def sensitivity(self, state: State, n_columns: int) -> Sensitivity:
        """Return how much one record changes the answer: a move of length 1, and its square."""
        return Sensitivity(sqrt(1.0 + SQUARES**2), 1.0, COUNTS)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return moves, squares and counts of the rows nearest to each centre."""
        (k, d), radius = state.centers.shape, radii(state)
        summary = no_rows(k, d + 1)
        for part in in_parts(data, 4 * d):
            labels, _ = nearest(part.X, state.centers)
            apart = part.X - state.centers[labels]
            moves = on_grid(clipped(apart, radius[labels]) / radius[labels, None])
            squares = on_grid(SQUARES * np.square(moves).sum(axis=1))
            summary += by_cluster(part, labels, np.column_stack([moves, squares]), k)
        return summary

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Move each centre by the mean of its rows' moves, and fit the radius to the rows."""
        answer, radius = total(answers), radii(state)
        moves, squares = answer.sums[:, :-1], answer.sums[:, -1] / SQUARES
        n = max(float(answer.weights.sum()), 1.0)
        counts = np.maximum(answer.weights, FEWEST * n / len(radius))
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
    """Return the radius of each centre, (k,): that of the memory, or what their distances give.

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
