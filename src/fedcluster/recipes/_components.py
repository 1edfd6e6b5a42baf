"""Search for a likelier mixture than its starts lead to: components of two runs, crossed.

EM climbs to the nearest top, and of many components some end in the wrong place from every start.
So what two runs have found is put together, and one component of it moves:

    parents  two of the best runs, each the better of two that are drawn
    match    components of both, by the assignment of least squared distance of the means, each
             column in units of their standard deviation
    child    one component of each pair at random; mostly one is removed then (any, rather a light
             one, or rather one near another) and its weight goes to the nearest; instead another,
             drawn by its weight, is split along a row as that one would draw it or along one
             column of it, or one is added at a mean of the rows, drawn by weight times distance
             (to the power of 0, 1 or 2) to the nearest component

F. Pernkopf & D. Bouchaffra, Genetic-based EM algorithm for learning Gaussian mixture models, IEEE
Trans. Pattern Anal. Mach. Intell. 27, 2005; N. Ueda, R. Nakano, Z. Ghahramani & G. E. Hinton, SMEM
algorithm for mixture models, Neural Comput. 12, 2000, which splits one component and merges two; D.
Gribel & T. Vidal, HG-means: A scalable hybrid genetic algorithm for minimum sum-of-squares
clustering, Pattern Recognition 88, 2019. The server knows the components, so it costs no round to
breed; the children of a generation take their rounds beside their parents.

Components of very few rows are no part of the search. The covariance of no more rows than columns
is singular, and ``reg_covar`` alone says how likely they are: at 1e-6 a row gains about 7 nats for
each direction that it lacks. Runs are compared without that gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.random import Generator
from scipy.linalg import solve_triangular
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fedcluster._random import stream
from fedcluster.algorithms import GaussianMixture
from fedcluster.core import Floats, Result, State
from fedcluster.metrics._gaussians import is_fitted, texts_of
from fedcluster.recipes._search import race
from fedcluster.rounds import Plan, reason

FIRST = {4: 40, 8: 16}
"""Runs that go on after so many rounds, before there are children."""
POPULATION, CHILDREN = 16, 32
"""The best distinct runs, and how many children they have."""
GENERATIONS, ROUNDS, PATIENCE = 4, 5, 2
"""The most generations, the rounds of each, and those without gain after which it is enough."""
LAST = {1: 6, 6: 3, 12: 1}
"""Runs that go on after so many rounds, when there are no more children."""
MOVING, ADDED = 0.7, 0.4
"""Share of the children of which a component moves, and of these, to a mean of the rows."""
GAIN = 7.0
"""What a row gains for each direction in which its component has no variance, in nats."""
ALIKE = 1e-6
"""Relative difference of the likelihood below which two runs are one."""


def search(
    step: GaussianMixture,
    starts: Sequence[State],
    means: State,
    *,
    seed: int = 0,
    max_rounds: int = 300,
) -> Plan[Result]:
    """Plan a race of many starts, generations of children, and the best to its end.

    There are no more children after two generations that gain less than ``step.tol`` for each row.

    Parameters
    ----------
    step : GaussianMixture
        What is fitted.
    starts : sequence of State
        As `GaussianMixture.start` makes them.
    means : State
        Weighted means that describe all rows; none where the sites did not describe them.
    seed, max_rounds
        As in `iterate`.
    """
    rng, rank, left = stream(seed, 3_000_000), partial(supported, step), max_rounds - max(FIRST)
    first = min(max(FIRST), max_rounds)
    raced = yield from race(step, starts, seed=seed, max_rounds=first, keep=FIRST, rank=rank)
    runs, history, idle = distinct(step, raced), raced[0].history, 0
    for _ in range(min(GENERATIONS, left // ROUNDS)):
        best, left = rank(runs[0]), left - ROUNDS
        children = [bred(step, runs, means, rng) for _ in range(CHILDREN)]
        raced = yield from race(step, [*runs, *children], seed=seed, max_rounds=ROUNDS, rank=rank)
        runs, history = distinct(step, raced), history + raced[0].history
        idle += best - rank(runs[0]) < step.tol * runs[0].weights.sum()
        if idle == PATIENCE:
            break
    [end, *_] = yield from race(
        step, runs, seed=seed, max_rounds=max(left, 0), keep=LAST, rank=rank
    )
    history += end.history
    why = f"{reason(end.state, len(history))}, best of {len(starts)} starts and their crossings"
    return replace(end, history=history, reason=why)


def supported(step: GaussianMixture, state: State) -> float:
    """Return the inertia without what components gain that have too few rows for a covariance.

    Examples
    --------
    >>> state = State(np.zeros((1, 4)), np.array([2.0]), inertia=1.0)
    >>> supported(GaussianMixture("full"), state)  # singular in 4 + 1 - 2 directions
    43.0
    >>> supported(GaussianMixture("diag"), state)
    1.0
    """
    weights, d = state.weights, state.centers.shape[1]
    p = int((texts_of(state, d) == 0).sum())
    lacking = np.clip(p + 1 - weights, 0.0, p)
    if step.covariance_type != "full":
        lacking = p * np.clip(2 - weights, 0.0, 1.0) * (step.covariance_type != "tied")
    return state.inertia + GAIN * float(weights @ lacking)


def distinct(step: GaussianMixture, runs: Sequence[Result]) -> list[State]:
    """Return where the best runs are, the best first; of those alike only one.

    Examples
    --------
    >>> state = State.at(np.zeros((1, 1)))
    >>> each = [replace(state, inertia=inertia) for inertia in (3.0, 2.0, 2.0 + 1e-9)]
    >>> runs = [Result(state, (), "") for state in each]
    >>> [state.inertia for state in distinct(GaussianMixture(), runs)]
    [2.0, 3.0]
    """
    kept: list[State] = []
    for state in sorted((run.state for run in runs), key=partial(supported, step)):
        if not kept or not abs(state.inertia - kept[-1].inertia) <= ALIKE * abs(state.inertia):
            kept.append(state)
    return kept[:POPULATION]


def bred(step: GaussianMixture, parents: Sequence[State], means: State, rng: Generator) -> State:
    """Return a child of two of the parents, which are given best first."""
    one, other = (parents[rng.integers(len(parents), size=2).min()] for _ in range(2))
    child = crossed(step, one, other, rng)
    if len(child.centers) < 2 or not is_fitted(child) or not (child.weights > 0).any():
        return child
    if one is not other and rng.random() >= MOVING:
        return child
    return moved(step, child, means, rng)


def crossed(step: GaussianMixture, one: State, other: State, rng: Generator) -> State:
    """Return one component of each pair at random; what components share is the first's.

    Examples
    --------
    >>> step, rng = GaussianMixture("spherical"), np.random.default_rng(0)
    >>> one = step.start(np.array([[0.0], [9.0]]), np.array([1.0, 2.0]))
    >>> other = step.start(np.array([[8.0], [1.0]]), np.array([3.0, 4.0]))
    >>> crossed(step, one, other, rng).weights
    array([4., 2.])
    """
    unit = _units(one.centers)
    apart = cdist(one.centers / unit, other.centers / unit, "sqeuclidean")
    places, matched = np.arange(len(one.centers)), linear_sum_assignment(apart)[1]
    [taken] = np.nonzero(rng.random(len(places)) >= 0.5)
    return _with(step, one, taken, other, matched[taken])


def moved(step: GaussianMixture, state: State, means: State, rng: Generator) -> State:
    """Return a mixture with one component removed, and another split, or one added at a mean."""
    near = cdist(state.centers / (unit := _units(state.centers)), state.centers / unit)
    np.fill_diagonal(near, np.inf)
    least = [np.ones(len(near)), state.weights, near.min(axis=1)][rng.integers(3)]
    chance = 1.0 / np.maximum(least, 1e-9 * least.max() or 1.0)
    out = int(rng.choice(len(near), p=chance / chance.sum()))
    weights = state.weights.copy()
    weights[near[out].argmin()] += weights[out]
    weights[out] = 0.0
    state = replace(state, weights=weights, converged=False)
    if len(means.centers) and rng.random() < ADDED:
        return added(step, state, out, means, rng)
    return split(step, state, out, rng)


def split(step: GaussianMixture, state: State, out: int, rng: Generator) -> State:
    """Return a mixture in which ``out`` is one half of another component, drawn by its weight.

    The halves lie on both sides of its mean. Of texts the new one has half the shares of a third.
    """
    k, d = state.centers.shape
    half = int(rng.choice(k, p=state.weights / state.weights.sum()))
    state = _with(step, state, np.array([out]), state, np.array([half]))
    away = drawn(step, state, half, rng)
    if rng.random() < 0.5:
        away *= np.arange(d) == rng.integers(d)
    centers, weights = state.centers.copy(), state.weights.copy()
    centers[out] += away
    centers[half] -= away
    weights[[out, half]] /= 2
    return replace(state, centers=centers, weights=weights, memory=_mixed(state, out, rng))


def added(step: GaussianMixture, state: State, out: int, means: State, rng: Generator) -> State:
    """Return a mixture in which ``out`` is at a mean, with the spread of the nearest component."""
    unit, others = _units(state.centers), np.delete(np.arange(len(state.centers)), out)
    apart = cdist(means.centers / unit, state.centers[others] / unit)
    chance = means.weights * apart.min(axis=1) ** rng.integers(3)
    chance = chance if chance.any() else np.ones(len(chance))
    place = int(rng.choice(len(chance), p=chance / chance.sum()))
    nearest = others[apart[place].argmin()]
    state = _with(step, state, np.array([out]), state, np.array([nearest]))
    centers, weights = state.centers.copy(), state.weights.copy()
    centers[out] = means.centers[place]
    weights[out] = np.clip(means.weights[place], weights[nearest] / 10, weights[nearest] / 2)
    return replace(state, centers=centers, weights=weights, memory=_mixed(state, out, rng))


def drawn(step: GaussianMixture, state: State, component: int, rng: Generator) -> Floats:
    """Return the difference (d,) of a row, as a component would draw it, from the mean.

    0 of columns of levels.
    """
    d = state.centers.shape[1]
    [numeric] = np.nonzero(texts_of(state, d) == 0)
    factors = state.memory["precisions_cholesky"]
    factor = factors if step.covariance_type == "tied" else factors[component]
    away, normal = np.zeros(d), rng.normal(size=len(numeric))
    if factor.ndim == 2:
        inner = factor[np.ix_(numeric, numeric)]
        away[numeric] = solve_triangular(inner, normal, trans="T")
    else:
        away[numeric] = normal / (factor[numeric] if factor.ndim else factor)
    return away


def _with(
    step: GaussianMixture, state: State, places: np.ndarray, other: State, taken: np.ndarray
) -> State:
    """Return a mixture with components of another in some places; what all share stays."""
    memory = dict(state.memory)
    for name, array in step.allowed.memory.items():
        if name in memory and array.shape[:1] == ("k",):
            memory[name] = memory[name].copy()
            memory[name][places] = other.memory[name][taken]
    centers, weights = state.centers.copy(), state.weights.copy()
    centers[places], weights[places] = other.centers[taken], other.weights[taken]
    return State(centers, weights, memory=memory)


def _mixed(state: State, component: int, rng: Generator) -> dict[str, Floats]:
    """Return the memory with a component's levels half those of another component."""
    memory = dict(state.memory)
    if "shares" in memory:
        shares = memory["shares"].copy()
        shares[component] = (shares[component] + shares[rng.integers(len(shares))]) / 2
        memory["shares"] = shares
    return memory


def _units(centers: Floats) -> Floats:
    """Return the standard deviation of the means in each column, (d,); 1 where they are equal."""
    sd: Floats = centers.std(axis=0)
    return np.where(sd > 0, sd, 1.0)
