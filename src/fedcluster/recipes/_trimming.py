"""Trimmed k-means of all rows: starts that outliers do not attract, a race, the end.

A race finds centres and, approximately, the radius within which rows are kept. Then the radius is
searched for with fixed centres, until no smaller one keeps as many rows; a step follows, and so on
in turn until the centres converge. So the result is a fixed point of trimmed k-means on the pooled
rows. While the radius changes and centres do not, only counts of rows are requested, no sums,
because the difference of the sums within two radii would be a sum over few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from fedcluster.algorithms.merging import means
from fedcluster.algorithms.trimmed import RadiusSearch, TrimmedLloyd
from fedcluster.core import Floats, Iteration, Result, State, Task
from fedcluster.errors import NOT_DESCRIBED, HeldBackError
from fedcluster.kernels import nearest
from fedcluster.metrics.moments import add_by_cluster
from fedcluster.recipes._search import race
from fedcluster.recipes._seeds import places_by_rise
from fedcluster.recipes.specifications import Fit
from fedcluster.rounds import Plan, reason, server_update

TRIMMED_SEEDS = 16
"""Number of starts of the default way to trim."""

KEEP = {6: 6, 10: 3, 14: 1}
"""Number of runs that stay in the race after each round; the first two find the radius."""


FITS_A_START, STEPS = 5, 50
"""Number of fits to the description per start, and of the steps of each."""

Trimmed = tuple[float, Floats, Floats]


def trimmed_run(algorithm: TrimmedLloyd, starts: Sequence[State], spec: Fit) -> Plan[Result]:
    """Plan a trimmed k-means from many starts, to a fixed point with an exact radius.

    Parameters
    ----------
    algorithm : TrimmedLloyd
        The algorithm, with the share to trim and the tolerance.
    starts : sequence of State
        The starts.
    spec : Fit
        The seed and the largest number of rounds.
    """
    # Largest number of rounds of the race; if limits hide rows, the radius may not converge in it.
    raced = min(spec.max_iter, 40)
    best, *_ = yield from race(algorithm, starts, seed=spec.seed, max_rounds=raced, keep=KEEP)
    state, history, hidden = best.state, best.history, False
    while True:
        if not hidden:
            state, searched, hidden = yield from exact_radius(algorithm, state, spec.seed)
            history += searched
        [answers] = yield [Task(algorithm, state, spec.seed)]
        after, done = server_update(algorithm, state, answers, spec.seed)
        history = (*history, done)
        if after.converged or len(history) >= spec.max_iter:
            break
        state = replace(after, memory=state.memory) if hidden else after
    inertia = float(answers.total().sums[: len(state.centers), -1].sum())
    state = replace(state, inertia=inertia, weights=after.weights, converged=after.converged)
    of = f", best of {len(starts)} starts" if len(starts) > 1 else ""
    return Result(state, history, reason(after, len(history)) + of)


def exact_radius(
    algorithm: TrimmedLloyd, state: State, seed: int
) -> Plan[tuple[State, tuple[Iteration, ...], bool]]:
    """Plan the search for the smallest radius that keeps enough rows, with fixed centres.

    If limits hide rows, it ends with the radius known so far.
    """
    history: tuple[Iteration, ...] = ()
    # Largest number of rounds of one search for the radius; only changing sites exhaust it.
    for _ in range(60):
        held = replace(state, memory={**state.memory, "radius": np.zeros(1)}, converged=False)
        [answers] = yield [Task(algorithm, held, seed)]
        state, done = server_update(algorithm, held, answers, seed)
        history = (*history, done)
        search = RadiusSearch.after(held, answers.total(), algorithm.trim)
        if search.exact or (search.hidden and search.radius):
            break
    return state, history, search.hidden


def trimmed_seeds(
    state: State, n_clusters: int, trim: float, n_seeds: int, rng: Generator
) -> list[State]:
    """Return the best distinct trimmed k-means of the weighted means in a state, best first.

    Parameters
    ----------
    state : State
        Means (q, d) of all rows with their weights.
    n_clusters : int
        k; fewer means are padded with copies, whose clusters stay empty.
    trim : float
        The share of the weight that belongs to no cluster.
    n_seeds : int
        The number of starts to return.
    rng : Generator
        Draws the seeds of each fit.

    Raises
    ------
    HeldBackError
        If there are no means.
    """
    if not len(state.centers):
        raise HeldBackError(NOT_DESCRIBED)
    copies = np.resize(np.arange(len(state.centers)), max(0, n_clusters - len(state.centers)))
    points = np.concatenate([state.centers, state.centers[copies]])
    weights = np.append(state.weights, np.zeros(len(copies)))
    fits = [_fit(points, weights, n_clusters, trim, rng) for _ in range(FITS_A_START * n_seeds)]
    distinct = [fits[i] for i in places_by_rise([fit[0] for fit in fits])]
    return [State(centers, sizes, round=state.round) for _, centers, sizes in distinct[:n_seeds]]


def _fit(points: Floats, weights: Floats, k: int, trim: float, rng: Generator) -> Trimmed:
    """Return a trimmed k-means of weighted points: its error, centres (k, d) and weights (k,)."""
    centers = _seeds(points, weights, k, trim, rng)
    for _ in range(STEPS):
        labels, squared = nearest(points, centers)
        kept = kept_weights(squared, weights, trim)
        sizes = np.bincount(labels, kept, minlength=k).astype(np.float64)
        moved = means(add_by_cluster(labels, points, kept, k), sizes, otherwise=centers)
        if np.array_equal(moved, centers):
            break
        centers = moved
    return float(kept @ squared), centers, sizes


def kept_weights(squared: Floats, weights: Floats, trim: float) -> Floats:
    """Return the part of each point's weight that is kept: all, none, or some at the quantile.

    Examples
    --------
    >>> kept_weights(np.array([4.0, 1.0, 9.0]), np.array([2.0, 1.0, 1.0]), 0.5)
    array([1., 1., 0.])
    """
    order = np.argsort(squared, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    kept = np.empty(len(weights))
    kept[order] = np.clip((1 - trim) * weights.sum() - before, 0.0, weights[order])
    return kept


def _seeds(points: Floats, weights: Floats, k: int, trim: float, rng: Generator) -> Floats:
    """Return k points to start at, drawn as by k-means++ but avoiding outliers.

    A. Bhaskara, S. Vadgama & H. Xu, Greedy sampling for approximate clustering in the presence of
    outliers, NeurIPS 2019: squared distances count up to a threshold, here their quantile.
    """
    chosen = [int(rng.choice(len(points), p=weights / weights.sum()))]
    squared = ((points - points[chosen[0]]) ** 2).sum(axis=1)
    for _ in range(k - 1):
        kept = kept_weights(squared, weights, trim) > 0
        chances = weights * np.minimum(squared, squared[kept].max())
        none = chances.sum() <= 0
        chances = np.ones(len(points)) if none else chances
        chosen.append(int(rng.choice(len(points), p=chances / chances.sum())))
        squared = np.minimum(squared, ((points - points[chosen[-1]]) ** 2).sum(axis=1))
    return points[chosen]
