"""Algorithms of an outsider whose rows do not belong to the nearest centre, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.special import logsumexp

from fedcluster.algorithms.merging import means, total
from fedcluster.core import Data, Floats, Labels, Rows, State, Summary
from fedcluster.core.ranges import CENTERS, Allowed, Array, OneOf, Real
from fedcluster.metrics import Inertia


@dataclass(frozen=True)
class IsotropicEM:
    """Mixture of isotropic normals by EM; its memory has the variance of each."""

    client_additive = server_additive = needs_centers = True
    min_cluster_size = 1
    objective = Inertia
    allowed = Allowed(
        {"tol": Real(0, 1), "broken": OneOf((False,))},
        CENTERS,
        memory={"variances": Array(("k",), least=1e-12)},
        optional=True,
    )
    tol: float = 1e-8
    broken: bool = False

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        return len(state.centers), n_columns + 2

    def assign(self, state: State, X: Rows) -> Floats:
        logs = self.logs(state, X)
        return np.exp(logs - logsumexp(logs, axis=1, keepdims=True))

    def logs(self, state: State, X: Rows) -> Floats:
        """Return log(share x density), (n, k); without memory all components are alike."""
        k, d = state.centers.shape
        variances = state.memory.get("variances", np.ones(k))
        weights = state.weights if state.memory else np.ones(k)
        squared = ((X[:, None] - state.centers) ** 2).sum(axis=2)
        shares = np.log(np.maximum(weights / weights.sum(), 1e-300))
        return shares - d / 2 * np.log(2 * np.pi * variances) - squared / (2 * variances)

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        w = np.ones(len(data)) if data.sample_weight is None else data.sample_weight
        shares = self.assign(state, data.X)
        r = shares * w[:, None]
        if self.broken:
            r = r / len(data)
        aside = data.X[:, None] - state.centers
        sums = np.einsum("nk,nkd->kd", r, aside)
        squares = np.einsum("nk,nkd->k", r, aside**2)
        likelihood = r.T @ logsumexp(self.logs(state, data.X), axis=1)
        all_sums = np.column_stack([sums, squares, likelihood])
        return Summary(all_sums, r.sum(axis=0), shares.sum(axis=0))

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        sent = total(answers)
        d = state.centers.shape[1]
        move = means(sent.sums[:, :d], sent.weights, np.zeros_like(state.centers))
        safe = np.maximum(sent.weights, 1e-12)
        variances = np.maximum(sent.sums[:, d] / safe - (move**2).sum(axis=1), 1e-9) / d
        loss = -float(sent.sums[:, d + 1].sum())
        done = abs(loss - state.inertia) <= self.tol * sent.weights.sum()
        return State(
            state.centers + move,
            sent.weights,
            round=state.round + 1,
            inertia=loss,
            converged=bool(done),
            memory={"variances": variances},
        )


@dataclass(frozen=True)
class Halves:
    """Algorithm without centres: rows left and right of the mean of the first column."""

    client_additive = server_additive = True
    needs_centers = False
    min_cluster_size = 1
    objective = Inertia
    allowed = Allowed()

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        return 1, n_columns

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        return Summary(data.X.sum(axis=0, keepdims=True), np.array([float(len(data))]))

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        sent = total(answers)
        middle = sent.sums[0] / sent.weights[0]
        return State(
            weights=np.array([1.0, 1.0]), round=1, converged=True, memory={"middle": middle}
        )


@dataclass(frozen=True)
class LabelledHalves(Halves):
    """The same, which assigns rows."""

    def assign(self, state: State, X: Rows) -> Labels:
        labels: Labels = (X[:, 0] > state.memory["middle"][0]).astype(np.int32)
        return labels
