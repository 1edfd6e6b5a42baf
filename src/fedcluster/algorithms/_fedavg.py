"""Federated averaging for k-means.

O. J. Triebe & R. Rajagopal, Federated K-Means: clustering algorithm and proof of concept, 2019.

    Gamma_0 random
    round t, on a fraction C of the sites:
      site i:   mu = Gamma_(t-1); its rows in batches of B
                epoch e = 1..E:  Lambda = 0; for each batch, in random order:
                    L_k = rows nearest to mu_k, G_k = their mean;  Lambda += L
                    mu_k += beta L_k / Lambda_k (G_k - mu_k)
                send mu and the last epoch's Lambda
      server:   G = sum_i Lambda_i mu_i / sum_i Lambda_i    (a centre that nobody used stays)
                Gamma_t = Gamma_(t-1) + alpha_t (G - Gamma_(t-1))
      a cluster with fewer than 1 % of the rows for 20 rounds in a row gets a new random place

The fraction C is not the algorithm's but the run's: ``run_plan(..., participation=C)``.

Where the paper and the authors' program differ, or the paper is silent:

- ``schedule``: the paper says alpha = (1, 0.5) and no more, the program (HEAD, e8e6f89) has no
  schedule. The default is neither's but our reading of the text, a rate of 1 that falls with the
  decay 0.5 a ten rounds: "inverse", alpha_t = 1 / (1 + 0.5 (t - 1) / 10). "halving", alpha_t =
  0.5^((t - 1) / 50), fits the figures as well (reproduction/triebe/ends.py); the figures do not
  show which one the paper used.
- ``total_rows``: small is below 1 % of all rows (the paper) or of the rows of this round's sites
  (the program).
- ``momentum``: the program's, v <- rho v + (1 - rho) u and Gamma <- Gamma + v; the paper has none.
- ``batch_size``: the paper describes batches, its program has none.
- Start and new places are uniform in [low, high)^d; the program's box is [0, K + 1)^d.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.random import Generator

from fedcluster.algorithms.merging import as_sums, means, total
from fedcluster.core import Data, FitParameters, Floats, State, Summary, ranges
from fedcluster.core.task import stream
from fedcluster.kernels.iteration import minibatch_epochs
from fedcluster.metrics import Inertia

SCHEDULES: dict[str, Callable[[int], float]] = {
    "inverse": lambda t: 1 / (1 + 0.5 * (t - 1) / 10),
    "halving": lambda t: 0.5 ** ((t - 1) / 50),
    "root": lambda t: t**-0.5,
    "constant": lambda _t: 1.0,
}
"""Functions that give alpha_t / alpha_1 in round t = 1, 2, ..."""


@dataclass(frozen=True, slots=True)
class FedAvg:
    """Federated averaging for k-means (Triebe & Rajagopal).

    Parameters
    ----------
    epochs : int, default=1
        E, the number of passes over a site's rows in a round.
    batch_size : int, optional
        B; by default all rows of a site are one batch, as in all the paper's experiments.
    client_rate : float, default=1
        beta.
    server_rate : float, default=1
        alpha_1.
    schedule : {"inverse", "halving", "root", "constant"} or callable, default="inverse"
        alpha_t / alpha_1 in round t = 1, 2, ...: 1 / (1 + 0.5 (t - 1) / 10), 0.5^((t - 1) / 50),
        t^-0.5, or 1; a callable is given t. The default is our reading of the paper's
        alpha = (1, 0.5), which neither its text nor its program spells out.
    momentum : float, default=0
        rho, of the server's updates.
    reassign_share : float, default=0.01
        A cluster with less than this share of the rows is small; with 0, no cluster is moved.
    reassign_after : int, default=20
        Number of successive rounds for which a cluster must be small before it is moved.
    total_rows : float, optional
        The weight that the share refers to: that of all rows of all sites, as in the paper. By
        default that of the rows at the sites that took part in the round, as in the program.
    low : float, default=0
        Lower end, in each column, of the box of random places.
    high : float, optional
        Upper end of the box, by default k + 1.

    Notes
    -----
    A site sends at most k (d + 1) numbers a round.

    Examples
    --------
    >>> rows = Data(np.array([[0.0], [2.0], [9.0]]))
    >>> state, rng = State.at(np.array([[0.0], [9.0]])), np.random.default_rng(0)
    >>> answer = FedAvg(client_rate=0.5).client_step(state, rows, rng)
    >>> (answer.sums / answer.weights[:, None]).ravel()  # half of the way from 0 to 1
    array([0.5, 9. ])
    """

    converges = False  # runs for the stated number of rounds: there is no stopping rule
    allowed = ranges.Allowed(
        {  # small batches or other rates could move a centre onto a single row
            "epochs": ranges.Whole(1, 100),
            "server_rate": ranges.TOLERANCE,
            "schedule": ranges.OneOf(tuple(SCHEDULES)),
            "momentum": ranges.Real(0, 1),
            "reassign_share": ranges.Real(0, 1),
            "reassign_after": ranges.Whole(1, 1_000_000),
            "total_rows": ranges.Real(0, ranges.LARGEST, none=True),
            "low": ranges.Real(-ranges.LARGEST, ranges.LARGEST),
            "high": ranges.Real(-ranges.LARGEST, ranges.LARGEST, none=True),
        },
        ranges.CENTERS,
        memory={"velocity": ranges.Array(("k", "d")), "small_for": ranges.Array(("k",), least=0.0)},
        optional=True,
    )
    client_additive = False
    server_additive = needs_centers = True
    min_cluster_size = 1
    objective = Inertia

    epochs: int = 1
    batch_size: int | None = None
    client_rate: float = 1.0
    server_rate: float = 1.0
    schedule: Literal["inverse", "halving", "root", "constant"] | Callable[[int], float] = "inverse"
    momentum: float = 0.0
    reassign_share: float = 0.01
    reassign_after: int = 20
    total_rows: float | None = None
    low: float = 0.0
    high: float | None = None

    def __post_init__(self) -> None:
        if min(self.epochs, 1 if self.batch_size is None else self.batch_size) < 1:
            raise ValueError(
                f"epochs and batch_size must be at least 1, not {self.epochs} and {self.batch_size}"
            )
        if not (callable(self.schedule) or self.schedule in SCHEDULES):
            raise ValueError(
                f"schedule must be one of {', '.join(SCHEDULES)} or a callable, "
                f"not {self.schedule!r}"
            )

    def random_start(self, n_clusters: int, n_columns: int, seed: int) -> State:
        """Return Gamma_0, uniform in the box, from numbers that are used for nothing else."""
        return State.at(self._places(stream(seed, 0, "Gamma_0"), n_clusters, n_clusters, n_columns))

    def alpha(self, t: int) -> float:
        """Return the server rate in round t = 1, 2, ..."""
        decay = SCHEDULES[self.schedule] if isinstance(self.schedule, str) else self.schedule
        return self.server_rate * decay(t)

    @classmethod
    def from_fit(cls, fit: FitParameters) -> Self:
        """Return the algorithm for rows of any scale, which moves no centre to a random place."""
        return cls(reassign_share=0)

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each centre."""
        return len(state.centers), n_columns

    def line_bounds(self, state: State, box: ranges.Box) -> ranges.LineBounds:
        """Return the bounds of an answer: centres lie between the previous ones and the rows."""
        return box.around(state.centers).means(len(state.centers))

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Run E epochs of mini-batch k-means; the last epoch's counts weigh the result."""
        size = self.batch_size or len(data)
        if size < len(data):
            data = data.canonical().take(rng.permutation(len(data)))
            orders = [rng.permutation(-(-len(data) // size)) for _ in range(self.epochs)]
        else:
            orders = [np.zeros(1, int)] * self.epochs
        fit = minibatch_epochs(
            data.X,
            state.centers,
            data.sample_weight,
            batch_size=size,
            orders=orders,
            rate=self.client_rate,
        )
        return as_sums(fit.centers, fit.weights, fit.counts)

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Move towards the weighted mean by alpha_t, then reassign small clusters."""
        answer = total(answers)
        mean = means(answer.sums, answer.weights, otherwise=state.centers)
        update = self.alpha(state.round + 1) * (mean - state.centers)
        velocity = state.memory.get("velocity", np.zeros_like(update))
        velocity = self.momentum * velocity + (1 - self.momentum) * update
        centers = state.centers + velocity
        small = answer.weights < self.reassign_share * (self.total_rows or answer.weights.sum())
        small_for = np.where(small, state.memory.get("small_for", 0 * answer.weights) + 1, 0)
        moving = small_for >= self.reassign_after
        if moving.any():
            centers[moving] = self._places(rng, int(moving.sum()), *centers.shape)
            velocity[moving], small_for[moving] = 0.0, 0
        memory = {"velocity": velocity, "small_for": small_for}
        return State(centers, answer.weights, round=state.round + 1, memory=memory)

    def _places(self, rng: Generator, n: int, k: int, d: int) -> Floats:
        """Return new places for n of k centres, (n, d), uniform in the box."""
        high = k + 1.0 if self.high is None else self.high
        return rng.uniform(self.low, high, size=(n, d))
