"""Plan of fitting a mixture: leaves, a search among mixtures of these, and a race over the rows.

EM converges to a local maximum, and from the best clusters of k-means this is rarely the highest
one. The rows are described by leaves with second moments, to which the server fits mixtures from
many starts, without a round. With many components some end in the wrong place from every start.
So the findings of two runs are combined, and one component is moved:

    parents  two of the best runs, each the better of two that are drawn
    match    components of both, by the assignment of least squared distance of the means, each
             column in units of their standard deviation
    child    one component of each pair at random; mostly, one is then removed (any, or preferably
             a light one, or one near another) and its weight added to the nearest. In its place,
             another one, drawn by weight, is split along a row drawn from it or along a column,
             or one is added at a leaf, drawn by weight times distance (to the power of 0, 1 or 2)
             to the nearest component

F. Pernkopf & D. Bouchaffra, Genetic-based EM algorithm for learning Gaussian mixture models, IEEE
Trans. Pattern Anal. Mach. Intell. 27, 2005; N. Ueda, R. Nakano, Z. Ghahramani & G. E. Hinton, SMEM
algorithm for mixture models, Neural Comput. 12, 2000, which splits one component and merges two; D.
Gribel & T. Vidal, HG-means: A scalable hybrid genetic algorithm for minimum sum-of-squares
clustering, Pattern Recognition 88, 2019.

If all starts lead to one mixture of the leaves, it is the start of the rows' mixture. Else the
likeliest race over the rows, beside clusters of k-means of the leaves, as these start from a hard
assignment of the rows.

Components of very few rows are excluded. The covariance of at most as many rows as columns is
singular, and its likelihood depends on ``reg_covar`` only: at 1e-6, a row gains about 7 nats for
each missing direction. Runs are compared without that gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import log
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.linalg import solve_triangular
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from fedcluster.algorithms import GaussianMixture
from fedcluster.core import (
    Floats,
    Iteration,
    Labels,
    Result,
    RowTransform,
    State,
    Task,
)
from fedcluster.core.streams import stream
from fedcluster.errors import NOT_DESCRIBED, HeldBackError
from fedcluster.kernels.iteration import kmeans_runs
from fedcluster.metrics.gaussians import is_fitted, texts_of
from fedcluster.metrics.leaves import Leaves
from fedcluster.mixtures.agglomeration import agglomerated
from fedcluster.mixtures.growth import grown
from fedcluster.mixtures.on_leaves import LeafRows
from fedcluster.mixtures.table import REGULARISED, SETTLED, Table
from fedcluster.options.refusals import refused
from fedcluster.preprocessing import Category, Preprocessor
from fedcluster.preprocessing.moments import ColumnMoments
from fedcluster.recipes._search import race
from fedcluster.recipes._seeds import places_by_rise
from fedcluster.recipes.fit import algorithm_of, canonical, description, description_step
from fedcluster.recipes.specifications import FitSpec
from fedcluster.rounds import Plan, gather, reason

RESTARTS, WHOLE = 16, 300
"""Runs of k-means of the leaves, and leaves up to which they are joined by likelihood, too."""
BRIEF, LONG = 5, 20
"""Iterations of each mixture of the leaves, and of those that are kept."""
POPULATION, CHILDREN = 12, 32
"""Number of the best distinct mixtures that are kept, and of their children."""
GENERATIONS, PATIENCE = 10, 3
"""Largest number of generations, and of those without gain that end the search."""
N_STARTS, N_HARD = 4, 6
"""Numbers of mixtures that race over the rows, and of clusters of k-means beside them."""
KEEP, RACE = {12: 6, 16: 3, 24: 1}, 30
"""Number of runs that continue after each of these rounds, and the largest number of rounds."""
TOLD = 0.05
"""Gain of a row's log likelihood in a mixture of leaves, as a share of log k, from which on leaves
tell the components, so that no hard clusters need to race."""
MOVING, ADDED = 0.7, 0.4
"""Share of children in which a component moves, and of these, to a leaf."""
GAIN = 7.0
"""Gain in nats of a row for each direction in which its component has no variance."""
SAME, SHARED = 1e-3, 1e-2
"""Differences up to which two mixtures of leaves are the same: of the log likelihood of a row, and
of the share of a component."""
FINE = 8
"""Largest number of rows for each leaf up to which mixtures of leaves are crossed."""
SETTLING = 0.1
"""Share of ``tol`` at which a run has converged: several starts differ by less than ``tol``."""


def mixture(spec: FitSpec, preprocessor: RowTransform | None = None) -> Plan[Result]:
    """Plan the fit of a mixture of normal distributions.

    Components are in canonical order, unless the start was given.

    Parameters
    ----------
    spec : FitSpec
        The specification: ``covariance_type``, ``reg_covar``, ``noise`` and the start.
    preprocessor : Preprocessor, optional
        The preparation of the rows, which shows which columns are levels of texts.
    """
    step = algorithm_of(spec)
    assert isinstance(step, GaussianMixture)  # or it was refused
    start = spec.start or (State.at(spec.init) if isinstance(spec.init, np.ndarray) else None)
    if start is None:
        step, starts = yield from _found(step, spec, preprocessor)
    else:
        texts = text_columns(preprocessor, start.centers.shape[1])
        step = replace(step, levels=bool(texts.any()))
        step = yield from _with_noise(step, spec, start.centers.mean(axis=0), texts)
        starts = [_begun(step, start, texts)]
    result = yield from _likeliest(step, starts, spec)
    state = canonical(result.state, step) if start is None else result.state
    return replace(result, state=state, algorithm=step)


def _likeliest(step: GaussianMixture, starts: Sequence[State], spec: FitSpec) -> Plan[Result]:
    """Plan the race of the starts over the rows, and the likeliest until it converges."""
    done: tuple[Iteration, ...] = ()
    best, how, most = starts[0], "", min(RACE, spec.max_iter)
    if len(starts) > 1:
        finer, rank = replace(step, tol=SETTLING * step.tol), partial(supported, step)
        [first, *_] = yield from race(
            finer, starts, seed=spec.seed, max_rounds=most, keep=KEEP, eager=True, rank=rank
        )
        best, done, how = first.state, first.history, f", best of {len(starts)} starts"
        if best.converged or len(done) < most or most == spec.max_iter:
            return first
    left = spec.max_iter - len(done)
    [last] = yield from race(step, [best], seed=spec.seed, max_rounds=left, eager=True)
    history = done + last.history
    why = reason(last.state, len(history)) if done else last.reason
    return replace(last, history=history, reason=why + how)


def _found(
    step: GaussianMixture, spec: FitSpec, preprocessor: RowTransform | None
) -> Plan[tuple[GaussianMixture, list[State]]]:
    """Plan the description of the rows by leaves, and return likely starts with their step."""
    told = yield from ColumnMoments.unknown()
    mean, variance, texts = told.mean, told.variance, text_columns(preprocessor, len(told.mean))
    step = replace(step, levels=bool(texts.any()))
    gaps = spec.prepare is not None and spec.prepare.missing == "ignore"
    table = Table.by_column(float(told.weights.max()), texts, mean, variance, gaps=gaps)
    both: list[Any] = yield from gather(
        [_with_noise(step, spec, mean, texts), _described(table, spec)]
    )
    step, leaves = both
    while len(leaves.weights) < spec.n_clusters:
        leaves = leaves.halves(table.unit, np.flatnonzero(texts == 0))
    table = replace(table, log_noise=step.log_noise or 0.0)
    least = step.reg_covar or REGULARISED * float(variance.mean())
    on_leaves = replace(step, floors=True, tol=SETTLED, reg_covar=least)
    rng = stream(spec.seed, 3_000_000)
    search = _Search(LeafRows(leaves, table), on_leaves, spec.n_clusters, rng)
    few = sum(spec.site_rows) <= FINE * len(leaves.weights)
    found, hard = search.run(crossed=spec.smallest == 1 and few)
    chosen = found[: spec.n_init or (POPULATION if few else N_STARTS)]
    if len(found) > 1 and not spec.n_init:
        chosen += hard[:N_HARD]
    return step, [_begun(step, each, texts) for each in chosen]


def _described(table: Table, spec: FitSpec) -> Plan[Leaves]:
    """Plan leaves of single rows or more; with limits, which would hide them, the sites' means."""
    step = description_step(replace(spec, init="sums" if spec.init == "sums" else "auto"))
    if spec.smallest == 1 or step is None:
        return (yield from grown(table, table.n / max(sum(spec.site_rows), 1.0), spec.seed))
    told = (yield from description(step, spec.n_clusters, spec.seed)).state
    if not told.weights.any():
        raise HeldBackError(NOT_DESCRIBED)
    weights, points = told.weights[told.weights > 0], told.centers[told.weights > 0]
    numbers = np.flatnonzero(table.texts == 0)
    between = np.cov(points.T, aweights=weights, bias=True).reshape(len(table.texts), -1)
    within = np.diag(np.maximum(table.variance - np.diag(between), 0.0)[numbers])
    return Leaves(weights, points, np.repeat(within[None], len(points), axis=0))


def _begun(step: GaussianMixture, start: State, texts: Floats) -> State:
    """Return the state from which a run over the rows starts."""
    known = step.allowed.memory.keys()
    memory = {name: array for name, array in start.memory.items() if name in known}
    memory |= {"texts": texts} if step.levels else {}
    return step.start(start.centers, start.weights, **memory)


def text_columns(preprocessor: RowTransform | None, d: int) -> Floats:
    """Return, for each prepared column, the number of its text if it is a level; else 0.

    Raises
    ------
    InputError
        If levels of a text have weights, as a share of rows has no scale.

    Examples
    --------
    >>> from fedcluster.preprocessing import NumericColumn
    >>> text_columns(Preprocessor((NumericColumn("age"), Category("sex", ("F", "M")))), 3)
    array([0., 1., 1.])
    """
    if not isinstance(preprocessor, Preprocessor) or preprocessor.principal is not None:
        return np.zeros(d)
    texts: list[float] = []
    for column in preprocessor.columns:
        is_text = isinstance(column, Category)
        if isinstance(column, Category) and column.scale != 1.0:
            raise refused("mixture-weight", column=column.name)
        texts += [max(texts, default=0.0) + 1.0 if is_text else 0.0] * len(column.names)
    return np.array(texts)


def _with_noise(
    step: GaussianMixture, spec: FitSpec, center: Floats, texts: Floats
) -> Plan[GaussianMixture]:
    """Plan the log density of noise, -log V, with V given or that of a box fitted to the rows.

    A box with sides a has the variances a^2 / 12, so V^2 = 12^p |S|.
    """
    if not spec.noise:
        return step
    if not isinstance(spec.noise, bool):
        return replace(step, log_noise=-log(spec.noise))
    one = replace(step, covariance_type="full")
    state = _begun(one, State.at(center[None]), texts)
    [answers] = yield [Task(one, state, spec.seed)]
    after = one.server_step(state, answers.summaries, np.random.default_rng(0))
    factors = np.diagonal(after.memory["precisions_cholesky"][0])[texts == 0]
    return replace(step, log_noise=float(np.log(factors).sum() - len(factors) / 2 * log(12.0)))


class _Search:
    """Search for likely mixtures of leaves, from k-means and by crossing."""

    def __init__(self, rows: LeafRows, step: GaussianMixture, k: int, rng: Generator) -> None:
        self.rows, self.step, self.k, self.rng = rows.finer(), step, k, rng
        self.coarse = rows

    def run(self, *, crossed: bool) -> tuple[list[State], list[State]]:
        """Return distinct mixtures, likeliest first, and the clusters of k-means."""
        parts, points = self.coarse.parts(), self.coarse.table.unit
        scaled = self.coarse.leaves.means / points
        fits = kmeans_runs(scaled, self.k, parts.weights, rng=self.rng, n_runs=RESTARTS)
        fits = [fits[i] for i in places_by_rise([fit.inertia for fit in fits])]
        labels: list[Labels] = [fit.labels for fit in fits]
        if self.step.covariance_type == "full" and self.k < len(scaled) <= WHOLE:
            labels.append(agglomerated(parts, "likelihood", self.k)[self.k].astype(np.int32))
        begun = [self.rows.started(self.step, self.k, np.tile(each, 2)) for each in labels]
        found = self._best([self.rows.iterated(self.step, each, BRIEF) for each in begun])
        found = self._best([self.rows.iterated(self.step, each, LONG) for each in found])
        if crossed and len(found) > 1 < self.k:
            found = self._bred(found)
        one = self.rows.started(self.step, 1, np.zeros(len(self.rows.leaves.weights), dtype=int))
        apart = self.rows.iterated(self.step, one, 1).inertia - found[0].inertia
        told = apart > TOLD * log(self.k) * self.rows.leaves.weights.sum()
        return found, [] if told else begun

    def _bred(self, found: list[State]) -> list[State]:
        """Return the mixtures after generations of children."""
        leaves, idle = self.coarse.leaves, 0
        means, least = State(leaves.means, leaves.weights), self.step.tol * leaves.weights.sum()
        for _ in range(GENERATIONS):
            best = supported(self.step, found[0])
            children = [bred(self.step, found, means, self.rng) for _ in range(CHILDREN)]
            found = self._best(
                [*found, *(self.rows.iterated(self.step, c, BRIEF) for c in children)]
            )
            found = self._best([self.rows.iterated(self.step, each, BRIEF) for each in found])
            idle += best - supported(self.step, found[0]) < least
            if idle == PATIENCE:
                break
        return found

    def _best(self, states: Sequence[State]) -> list[State]:
        """Return the likeliest distinct mixtures, likeliest first."""
        return distinct(self.step, [each for each in states if np.isfinite(each.inertia)])


def supported(step: GaussianMixture, state: State) -> float:
    """Return the inertia without the gain of components with too few rows for a covariance.

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


def distinct(step: GaussianMixture, states: Sequence[State]) -> list[State]:
    """Return the likeliest mixtures, likeliest first, only one of several that are alike.

    Examples
    --------
    >>> state = State(np.zeros((1, 1)), np.ones(1))
    >>> each = [replace(state, inertia=inertia) for inertia in (3.0, 2.0, 2.0 + 1e-9)]
    >>> [state.inertia for state in distinct(GaussianMixture(), each)]
    [2.0, 3.0]
    """
    kept: list[State] = []
    for state in sorted(states, key=partial(supported, step)):
        if len(kept) < POPULATION and not any(_are_same(state, other) for other in kept):
            kept.append(state)
    return kept


def _are_same(one: State, other: State) -> bool:
    """Return whether two mixtures have the same likelihood and shares."""
    n = max(float(one.weights.sum()), 1e-300)
    apart = np.abs(np.sort(one.weights) - np.sort(other.weights)).max()
    return abs(one.inertia - other.inertia) <= SAME * n and bool(apart <= SHARED * n)


def bred(step: GaussianMixture, parents: Sequence[State], means: State, rng: Generator) -> State:
    """Return a child of two of the parents, which are sorted by quality."""
    one, other = (parents[rng.integers(len(parents), size=2).min()] for _ in range(2))
    child = crossed(step, one, other, rng)
    if len(child.centers) < 2 or not is_fitted(child) or not (child.weights > 0).any():
        return child
    if one is not other and rng.random() >= MOVING:
        return child
    return moved(step, child, means, rng)


def crossed(step: GaussianMixture, one: State, other: State, rng: Generator) -> State:
    """Return one component of each pair at random; shared parameters come from the first run.

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
    """Return a mixture with one component removed, and another split or added at a mean."""
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
    """Return a mixture in which ``out`` becomes half of another component, drawn by weight.

    The halves lie on both sides of its mean. For texts, the new half mixes in the shares of a third
    component.
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
    """Return the difference (d,) from the mean of a row drawn from a component.

    It is 0 in columns of levels.
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
    """Return a mixture with some components from another; shared parameters stay."""
    memory = dict(state.memory)
    for name, array in step.allowed.memory.items():
        if name in memory and array.shape[:1] == ("k",):
            memory[name] = memory[name].copy()
            memory[name][places] = other.memory[name][taken]
    centers, weights = state.centers.copy(), state.weights.copy()
    centers[places], weights[places] = other.centers[taken], other.weights[taken]
    return State(centers, weights, memory=memory)


def _mixed(state: State, component: int, rng: Generator) -> dict[str, Floats]:
    """Return the memory with a component's levels mixed half with those of another one."""
    memory = dict(state.memory)
    if "shares" in memory:
        shares = memory["shares"].copy()
        shares[component] = (shares[component] + shares[rng.integers(len(shares))]) / 2
        memory["shares"] = shares
    return memory


def _units(centers: Floats) -> Floats:
    """Return the standard deviation of the means in each column, (d,); 1 if they are equal."""
    sd: Floats = centers.std(axis=0)
    return np.where(sd > 0, sd, 1.0)
