"""Federated averaging for k-means.

S. Triebe & R. Rajagopal, Federated K-Means: clustering algorithm and proof of concept, 2019.

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

The fraction C is not the algorithm's but the run's: ``drive(..., participation=C)``.

Where the paper and the authors' program differ, or the paper is silent:

- ``schedule``: the paper says alpha = (1, 0.5) and no more. "inverse" is
  alpha_t = 1 / (1 + 0.5 (t - 1) / 10), which fits its figures best of those tried.
- ``reassign_below``: 1 % of all rows (the paper) or of the rows of this round's sites (the
  program).
- ``momentum``: the program's, v <- rho v + (1 - rho) u and Gamma <- Gamma + v; the paper has none.
- Batches: the paper describes them, its program has none.
- Start and new places are uniform in [low, high)^d; the program's box is [0, K + 1)^d.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from fedcluster.algorithms.merging import means, total
from fedcluster.core import Data, Floats, State, Summary, stream
from fedcluster.kernels import hard_pass

__all__ = ["FedAvg"]

Schedule = Literal["inverse", "constant", "root"]


@dataclass(frozen=True, slots=True)
class FedAvg:
    """Federated averaging for k-means (Triebe & Rajagopal).

    Parameters
    ----------
    epochs : int, default=1
        E, passes over a site's rows in a round.
    batch_size : int, optional
        B; by default all rows of a site are one batch, as in all the paper's experiments.
    client_rate : float, default=1
        beta.
    server_rate : float, default=1
        alpha_1.
    schedule : {"inverse", "root", "constant"}, default="inverse"
        alpha_t / alpha_1 in round t: 1 / (1 + 0.5 (t - 1) / 10), t^-0.5, or 1.
    momentum : float, default=0
        rho, of the server's updates.
    reassign_share : float, default=0.01
        A cluster below this share of the rows is small; 0 never moves one.
    reassign_after : int, default=20
        Rounds in a row for which it must be small.
    reassign_below : int, optional
        Number of rows that the share is taken of: all rows of all sites in the paper. By default
        the rows of the sites that took part in the round, as in the program.
    low, high : float, default=0 and k + 1
        The box of random places.

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

    client_additive: ClassVar[bool] = False
    server_additive: ClassVar[bool] = True
    needs_centers: ClassVar[bool] = True

    epochs: int = 1
    batch_size: int | None = None
    client_rate: float = 1.0
    server_rate: float = 1.0
    schedule: Schedule = "inverse"
    momentum: float = 0.0
    reassign_share: float = 0.01
    reassign_after: int = 20
    reassign_below: int | None = None
    low: float = 0.0
    high: float | None = None

    def random_start(self, n_clusters: int, n_columns: int, seed: int) -> State:
        """Gamma_0, uniform in the box."""
        return State.at(self._place(stream(seed, 0), n_clusters, n_columns, n_clusters))

    def alpha(self, t: int) -> float:
        """Server rate in round t = 1, 2, ..."""
        decay: dict[str, float] = {
            "inverse": 1 / (1 + 0.05 * (t - 1)),
            "root": t**-0.5,
            "constant": 1.0,
        }
        return self.server_rate * decay[self.schedule]

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """E epochs of mini-batch k-means; the last epoch's counts weigh the result."""
        batches = self._batches(data, rng)
        centers, seen, rows = state.centers.copy(), state.weights * 0, state.weights * 0
        for _ in range(self.epochs):
            seen, rows = seen * 0, rows * 0
            for b in rng.permutation(len(batches)):
                found = hard_pass(batches[b].X, centers, batches[b].sample_weight)
                seen, rows = seen + found.weights, rows + found.counts
                mean = means(found.sums, found.weights, otherwise=centers)
                share = np.divide(found.weights, seen, out=np.zeros_like(seen), where=seen > 0)
                centers += self.client_rate * share[:, None] * (mean - centers)
        return Summary(centers * seen[:, None], seen, rows)

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Move towards the weighted mean by alpha_t, then reassign small clusters."""
        answer = total(answers)
        mean = means(answer.sums, answer.weights, otherwise=state.centers)
        update = self.alpha(state.round + 1) * (mean - state.centers)
        velocity = state.memory.get("velocity", np.zeros_like(update))
        velocity = self.momentum * velocity + (1 - self.momentum) * update
        centers = state.centers + velocity
        of = self.reassign_below or answer.weights.sum()
        small_for = state.memory.get("small_for", np.zeros(len(centers)))
        small_for = np.where(answer.weights < self.reassign_share * of, small_for + 1, 0)
        moving = small_for >= self.reassign_after
        k, d = centers.shape
        centers[moving] = self._place(rng, int(moving.sum()), d, k)
        velocity[moving], small_for[moving] = 0.0, 0
        memory = {"velocity": velocity, "small_for": small_for}
        return State(centers, answer.weights, round=state.round + 1, memory=memory)

    def _batches(self, data: Data, rng: Generator) -> list[Data]:
        """The site's rows at random in batches of at most B."""
        if self.batch_size is None or self.batch_size >= len(data):
            return [data]
        order = rng.permutation(len(data))
        data = data.canonical()
        cuts = range(self.batch_size, len(data), self.batch_size)
        return [data.take(part) for part in np.split(order, list(cuts))]

    def _place(self, rng: Generator, n: int, d: int, k: int) -> Floats:
        high = k + 1.0 if self.high is None else self.high
        return rng.uniform(self.low, high, size=(n, d))
