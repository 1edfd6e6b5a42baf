"""Plan of judging the number of clusters: leaves, mixtures of them, and then of the rows.

In two rounds the sites describe their columns. In three more the rows are described by up to 256
leaves, to which the server fits mixtures of all sizes and shapes without asking the sites. The
likeliest few take a few rounds of expectation and maximisation over the rows, and one more for
their likelihood and the overlap of their components.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedcluster.algorithms import GaussianMixture
from fedcluster.algorithms.gaussian_mixture import targets
from fedcluster.core import Floats, PlannedStep, State, Task
from fedcluster.metrics.columns import AxisCounts, ColumnShape
from fedcluster.metrics.gaussians import MixtureOverlap, densities
from fedcluster.metrics.leaves import LeafMoments
from fedcluster.metrics.moments import Moments
from fedcluster.mixtures.on_leaves import LeafRows, OnLeaves, Search, pruned
from fedcluster.mixtures.table import KINDS, Kind, Table
from fedcluster.preprocessing.moments import Covariance
from fedcluster.rounds import Plan, gather, server_update
from fedcluster.selection._likelihood import (
    MERGING,
    NONE,
    Mixture,
    clusters_of,
)

JUDGING: tuple[PlannedStep, ...] = (
    *(Moments, ColumnShape, Covariance, AxisCounts, LeafMoments, GaussianMixture, MixtureOverlap),
)
"""The steps that sites are asked for a verdict, whatever the rows are."""
SMALL: tuple[Kind, ...] = (("spherical", False), ("diag", False))
"""Shapes of components that may have fewer rows than columns."""
GRID = np.concatenate([[0.02, 0.05], np.linspace(0.1, 0.9, 17), [0.95, 0.98]])
"""Number of points on a ridge line."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long the likeliest number of clusters is sought."""

    rounds: int = 4  # rounds of expectation and maximisation over the rows
    rounds_of_means: int = 4  # rounds of k-means over the rows
    confirmed: int = 8  # mixtures that are fitted to the rows
    others: int = 2  # of those, mixtures with other numbers of clusters
    fullest: float = 0.2
    """Share of the rows, the most complete ones, from which overlaps are computed."""
    own: float = 1.05
    """Relative spread along a direction, compared with a component without any, that counts as
    none."""
    form: float = 1.15
    """Standard deviation of the logs of relative eigenvalues from which on the covariances of two
    components are unlike: pieces of skewed clusters and of heavy tails reach 1."""
    size: float = 3.0
    """Mean of these logs from which on they are: a heavy tail reaches 2.5, in 3 or more columns."""
    few: float = 0.08
    """Share of the rows below which a component that encloses others is rows gone astray."""
    agree: float = 0.95  # adjusted Rand index from which on k-means has the judged clusters
    sample_share: float = 0.2
    """As `Table.share`, of rows drawn again, since repeated ones look like small components: at
    0.04, samples of wine have up to six clusters; without a share, clusters of fewer rows than
    columns are lost."""
    leaves_each: int = 2  # leaves of a cluster that is seen
    many_leaves: int = 40  # leaves of all rows from which on only small clusters are not
    hidden: float = 0.05  # share of the rows that leaves lack from which on small clusters may be
    replicated: int = 4  # mixtures of a bootstrap sample that are fitted to its rows
    restarts: int = 10  # runs of k-means of the leaves, the best of which is continued


EFFORT = Effort()


def confirmed_plan(
    rows: LeafRows, likely: Sequence[OnLeaves], seed: int = 0, effort: Effort = EFFORT
) -> Plan[list[Mixture]]:
    """Plan the rounds that fit mixtures to the rows, all of them together."""
    table, present = rows.table, 0
    if table.has_gaps:
        present = _fullest(rows.missing, effort)
    each = [_fitted(mixture, table, present, seed, effort) for mixture in likely]
    fitted = yield from gather(each)
    return [mixture for mixture in fitted if len(mixture.weights)]


def _fullest(missing: Floats, effort: Effort) -> int:
    """Return the number of values of the most complete rows, a fifth of all rows or more.

    Examples
    --------
    >>> effort = Effort()
    >>> _fullest(np.array([0.1, 0.1]), effort), _fullest(np.array([0.6, 0.6]), effort)
    (2, 1)
    """
    chance = np.ones(1)  # chance[i]: i numbers are present, if columns are missing independently
    for share in missing:
        chance = np.convolve(chance, [share, 1 - share])
    at_least = np.cumsum(chance[::-1])[::-1]
    return int(np.flatnonzero(at_least >= effort.fullest).max())


def likely_mixtures(
    rows: LeafRows, ks: Collection[int], kinds: Sequence[Kind] = KINDS, effort: Effort = EFFORT
) -> tuple[list[OnLeaves], list[int]]:
    """Return the mixtures of the leaves that are worth fitting to the rows, likeliest first.

    Also return the number of clusters of each, estimated from leaves.
    """
    table = rows.table
    found = Search(rows, kinds if table.n_numbers else [("diag", False)]).likely()
    counts = [len(clusters_of(_on_leaves(each, rows, effort))[0]) for each in found]
    allowed = [i for i, v in enumerate(counts) if v in ks] or list(range(len(found)))
    chosen = allowed[: effort.confirmed - effort.others]
    for i in allowed[effort.confirmed - effort.others :]:
        if len(chosen) < effort.confirmed and counts[i] not in {counts[j] for j in chosen}:
            chosen.append(i)
    chosen += [i for i in allowed if i not in chosen][: effort.confirmed - len(chosen)]
    return [found[i] for i in chosen], [counts[i] for i in chosen]


def with_small(rows: LeafRows, kinds: Sequence[Kind], best: float, effort: Effort = EFFORT) -> int:
    """Return how many clusters leaves show if small components are kept; 0 if hardly likelier.

    Separate covariances are left out: of fewer rows than columns, they are not told.
    """
    table = rows.table
    small = LeafRows(rows.leaves, replace(table, share=0.0))
    kinds = [kind for kind in kinds if kind in SMALL]
    if not kinds or small.table.fewest("diag") == table.fewest("diag"):
        return 0
    found = Search(small, kinds).likely()[:1]
    if not found or found[0].bic < best + max(MERGING.close, MERGING.close_share * table.n_seen):
        return 0
    return len(clusters_of(_on_leaves(found[0], small, effort))[0])


def _on_leaves(found: OnLeaves, rows: LeafRows, effort: Effort) -> Mixture:
    """Return a mixture of leaves with the statistics that leaves give; none counts as normal."""
    step, k = rows.table.step(found.kind), len(found.state.centers)
    tau, likelihood = rows.posteriors(step, found.state)
    weighed = rows.leaves.weights[:, None] * tau
    shared = weighed[:, :k].T @ tau[:, :k]
    total = float(rows.leaves.weights @ likelihood)
    return _mixture(
        found, found.state, weighed.sum(axis=0), shared, np.inf, total, rows.table, effort
    )


def _fitted(
    found: OnLeaves, table: Table, present: int, seed: int, effort: Effort
) -> Plan[Mixture]:
    """Plan one mixture of the rows, and the overlap of its components."""
    step, state = table.step(found.kind), replace(found.state, round=0, converged=False)
    for _ in range(effort.rounds):
        if state.converged:
            break
        [answers] = yield [Task(step, state, seed, table.preprocessor)]
        state = table.with_common(server_update(step, state, answers, seed)[0])
    state = pruned(step, state)
    last = MixtureOverlap(step.covariance_type, step.log_noise, step.levels, present)
    asked_about = replace(state, memory={n: state.memory[n] for n in last.allowed.memory})
    [answer] = yield [Task(last, asked_about, seed, table.preprocessor)]
    total, k = answer.total(), len(state.centers)
    fourth = float(total.sums[:k, k].sum() / max(float(total.weights[:k].sum()), 1e-300))
    shared = total.sums[:k, :k]
    unseen = np.zeros(k, dtype=bool)
    if present:  # computed from the most complete rows only
        shared = shared * (total.weights[:k] / np.maximum(total.sums[:k, -1], 1e-300))[:, None]
        shared = (shared + shared.T) / 2
        unseen = total.sums[:k, -1] < 1.0
        least = 1.001 * MERGING.linked * np.minimum(total.weights[:k, None], total.weights[:k])
        shared = np.where(unseen[:, None] | unseen, least, shared)  # a valley alone separates them
    fitted = _mixture(
        found, state, total.weights, shared, fourth, last.score(state, total), table, effort
    )
    alive = (total.weights[:k] > 0) & (state.weights > 0)
    kurtosis = last.kurtosis(state, total)[alive]
    return replace(
        fitted, fourth=fourth / _fourth_of_normal(found.kind, fitted, table), kurtosis=kurtosis,
        unseen=int((unseen & (state.weights > 0)).sum()),
    )  # fmt: skip


def _mixture(
    found: OnLeaves,
    state: State,
    weights: Floats,
    shared: Floats,
    fourth: float,
    likelihood: float,
    table: Table,
    effort: Effort,
) -> Mixture:
    """Return a mixture with its statistics, leaving out components without rows."""
    (shape, has_noise), k = found.kind, len(state.centers)
    kept = pruned(table.step(found.kind), replace(state, weights=weights[:k] * (state.weights > 0)))
    alive = (weights[:k] > 0) & (state.weights > 0)
    if not alive.any():
        return NONE
    own, overlaps = weights[:k][alive], shared[np.ix_(alive, alive)]
    shares = overlaps / np.maximum(np.minimum(own[:, None], own), 1e-300)
    peaks, ridges = landscape(found.kind, kept, own, shares >= MERGING.touching, table)
    return Mixture(
        shape,
        found.k,
        own,
        overlaps,
        fourth,
        likelihood / table.rows_each,
        table.n_parameters(found.kind, kept),
        table.n_numbers,
        float(weights[-1] / max(float(weights.sum()), 1e-300)) if has_noise else None,
        _variances(kept, table) if shape in ("spherical", "diag") else None,
        peaks,
        ridges,
        kept,
        _flat(found.kind, kept, table, effort),
        unlike=_unlike(found.kind, kept, table, effort),
        around=_around(found.kind, kept, table, effort),
    )


def _flat(kind: Kind, state: State, table: Table, effort: Effort) -> int:
    """Return the number of components without a spread of their own in some direction.

    Then S_j = (Q_j + nu r W) / (N_j + nu) is hardly more than nu r W / (N_j + nu) there.
    """
    step = table.step(kind)
    nu = step.shrinkage
    if kind[0] not in ("full", "diag") or not table.n_numbers:
        return 0
    roots, share = _roots(step, state), state.weights + nu
    pooled, sizes = shrunk_towards(kind, roots, state.weights, nu)
    inner = np.linalg.solve(np.linalg.cholesky(pooled), roots)
    least = np.linalg.svd(inner, compute_uv=False)[:, -1] ** 2
    return int((least <= effort.own * nu * sizes / share).sum())


def shrunk_towards(kind: Kind, roots: Floats, weights: Floats, nu: float) -> tuple[Floats, Floats]:
    """Return the pooled covariance W (p, p), and r (k,) with S_j = (Q_j + nu r W) / (N_j + nu)."""
    share, sizes = weights + nu, np.ones(len(weights))
    covariances = roots @ np.swapaxes(roots, 1, 2)
    pooled = np.tensordot(share / share.sum(), covariances, 1)
    times = 4 * share / (weights + 4 * nu)  # as `targets` sees Q_j / N_j, not S_j
    for _ in range(9 if kind[0] == "full" else 0):  # W is the mean of S_j by N_j + nu r
        scaled = pooled * (share.sum() / (weights + nu * sizes).sum())
        sizes = targets(covariances, scaled, times)
    return pooled * (share.sum() / (weights + nu * sizes).sum()), sizes


def _fourth_of_normal(kind: Kind, fitted: Mixture, table: Table) -> float:
    """Return the fourth moment of normal rows about shrunken components, relative to d (d + 2).

    Relative to S_j, Q_j / N_j = S_j + nu (S_j - r W) / N_j is A, and the moment is (tr A)^2 + 2 tr
    A^2. A narrow component beside a wide one would seem to have short tails.
    """
    step, state, p = table.step(kind), fitted.state, table.n_numbers
    if kind[0] == "tied" or not p or state is None:
        return 1.0
    roots, n, nu = _roots(step, state), state.weights[:, None, None], step.shrinkage
    pooled, sizes = shrunk_towards(kind, roots, state.weights, nu)
    covariances, target = roots @ np.swapaxes(roots, 1, 2), sizes[:, None, None] * pooled
    own = np.eye(p) + nu * (np.eye(p) - np.linalg.solve(covariances, target)) / n
    traces, squares = np.einsum("kii->k", own), np.einsum("kij,kji->k", own, own)
    moment = state.weights @ (traces**2 + 2 * squares) / state.weights.sum()
    return float(moment / (p * (p + 2)))


def _roots(step: GaussianMixture, state: State) -> Floats:
    """Return R_j (k, p, p) with S_j = R_j R_j^T."""
    factors = densities(step, state).factors
    if factors.ndim == 2:
        factors = factors[:, :, None] * np.eye(factors.shape[1])
    return np.swapaxes(np.linalg.inv(np.triu(factors)), 1, 2)


def _unlike(kind: Kind, state: State, table: Table, effort: Effort) -> NDArray[np.bool_]:
    """Return which components have covariances that are no multiples of each other, (c, c).

    Of the logs of the eigenvalues of S_a^-1 S_b, the mean tells sizes, and the variance forms;
    of samples of one population, the variance is about (p + 1) (1 / N_a + 1 / N_b).
    """
    c, p = len(state.weights), table.n_numbers
    unlike = np.zeros((c, c), dtype=bool)
    [large] = np.nonzero(state.weights >= MERGING.large * table.n)
    if kind[0] == "tied" or not p or len(large) < 2:
        return unlike
    roots = _roots(table.step(kind), state)
    for a, b in zip(*np.triu_indices(len(large), 1), strict=True):
        i, j = large[a], large[b]
        logs = 2 * np.log(np.linalg.svd(np.linalg.solve(roots[i], roots[j]), compute_uv=False))
        chance = (p + 1) * (1 / state.weights[i] + 1 / state.weights[j])
        form, size = logs.var() - chance, abs(logs.mean())
        unlike[i, j] = unlike[j, i] = form >= effort.form**2 or size >= effort.size
    return unlike


def _around(kind: Kind, state: State, table: Table, effort: Effort) -> NDArray[np.bool_]:
    """Return which components of few rows are far wider than most rows' and enclose them, (c,)."""
    c, p = len(state.weights), table.n_numbers
    around = np.zeros(c, dtype=bool)
    if kind[0] == "tied" or not p:
        return around
    roots, means = _roots(table.step(kind), state), state.centers[:, table.texts == 0]
    sizes, share = 2 * np.linalg.slogdet(roots)[1] / p, state.weights / state.weights.sum()
    for j in np.flatnonzero(share < effort.few):
        inner = np.linalg.solve(roots[j], (means - means[j]).T)
        inside = (inner**2).sum(axis=0) < p + 2 * np.sqrt(2 * p)
        around[j] = share @ (inside & (sizes < sizes[j] - effort.size)) > 0.5
    return around


def _variances(state: State, table: Table) -> Floats | None:
    """Return variances of numbers: (c,) for spherical and (c, p) for diagonal components."""
    if not table.n_numbers:
        return None
    precisions = state.memory["precisions_cholesky"]
    own: Floats = precisions if precisions.ndim == 1 else precisions[:, table.texts == 0]
    return own**-2.0


def landscape(
    kind: Kind, state: State, weights: Floats, pairs: NDArray[np.bool_], table: Table
) -> tuple[Floats, Floats]:
    """Return log densities at the means, (c,), and their minima on the ridge lines, (c, c).

    The minima are of ``pairs`` (c, c); those of others are minus infinity. Texts lower a ridge line
    by the log of the affinity of both components' levels.
    """
    model = densities(table.step(kind), state)
    (c, p), ridges = model.means.shape, np.full((len(weights), len(weights)), -np.inf)
    if not p:
        return np.zeros(c), ridges
    factors = model.factors
    if factors.ndim == 2:
        factors = factors[:, :, None] * np.eye(p)
    factors = np.broadcast_to(np.triu(factors), (c, p, p))
    precisions = factors @ np.swapaxes(factors, 1, 2)
    log_dets = np.log(np.abs(np.einsum("kii->ki", factors))).sum(axis=1)
    heights = np.log(np.maximum(weights, 1e-300)) + log_dets

    def density(points: Floats) -> Floats:
        logs = np.empty((c, len(points)))
        for j in range(c):
            logs[j] = heights[j] - (((points - model.means[j]) @ factors[j]) ** 2).sum(axis=1) / 2
        top = logs.max(axis=0)
        sums: Floats = top + np.log(np.exp(logs - top).sum(axis=0))
        return sums

    peaks = density(model.means)
    pulls = np.einsum("kij,kj->ki", precisions, model.means)
    for a, b in zip(*np.nonzero(np.triu(pairs, 1)), strict=True):
        mixed = np.outer(1 - GRID, precisions[a].ravel()) + np.outer(GRID, precisions[b].ravel())
        pull = np.outer(1 - GRID, pulls[a]) + np.outer(GRID, pulls[b])
        points = np.linalg.solve(mixed.reshape(-1, p, p), pull[:, :, None])[:, :, 0]
        least = min(float(density(points).min()), peaks[a], peaks[b])
        ridges[a, b] = ridges[b, a] = least + _affinity(state, table, a, b)
    return peaks, ridges


def _affinity(state: State, table: Table, a: int, b: int) -> float:
    """Return the log of the affinity of two components' levels: the sum of sqrt(p q)."""
    log_affinity = 0.0
    for number in range(1, len(table.n_levels) + 1):
        shares = state.memory["shares"][:, table.texts == number]
        one, other = (np.append(each, max(0.0, 1.0 - each.sum())) for each in shares[[a, b]])
        log_affinity += float(np.log(max(min(np.sqrt(one * other).sum(), 1.0), 1e-300)))
    return log_affinity
