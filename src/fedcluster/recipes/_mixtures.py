"""Plan of fitting a mixture, with a search for one likelier than its starts lead to.

EM converges to a local maximum, and with many components some end in the wrong place from every
start. So the findings of two runs are combined, and one component is moved:

    parents  two of the best runs, each the better of two that are drawn
    match    components of both, by the assignment of least squared distance of the means, each
             column in units of their standard deviation
    child    one component of each pair at random; mostly, one is then removed (any, or preferably
             a light one, or one near another) and its weight added to the nearest. In its place,
             another one, drawn by weight, is split along a row drawn from it or along a column,
             or one is added at a mean of the rows, drawn by weight times distance (to the power
             of 0, 1 or 2) to the nearest component

F. Pernkopf & D. Bouchaffra, Genetic-based EM algorithm for learning Gaussian mixture models, IEEE
Trans. Pattern Anal. Mach. Intell. 27, 2005; N. Ueda, R. Nakano, Z. Ghahramani & G. E. Hinton, SMEM
algorithm for mixture models, Neural Comput. 12, 2000, which splits one component and merges two; D.
Gribel & T. Vidal, HG-means: A scalable hybrid genetic algorithm for minimum sum-of-squares
clustering, Pattern Recognition 88, 2019. The server knows the components, so breeding costs no
round; the children of a generation share their rounds with their parents.

Components of very few rows are excluded. The covariance of at most as many rows as columns is
singular, and its likelihood depends on ``reg_covar`` only: at 1e-6, a row gains about 7 nats for
each missing direction. That of hardly more is likelier on its rows than on new ones. Runs are
compared without what is gained so.

The rows are described by leaves with second moments, to which the server fits k-means and mixtures
without a round. Of many rows, the likeliest mixtures of leaves are nearly as good as can be, and
one is enough if all starts lead to it; a few race over the rows.

Few rows have more local maxima than leaves show, and the best clusters of k-means are rarely the
best start. Diverse starts help: runs of k-means of leaves from drawn seeds, stopped early, some of
them sooner than others. They share their rounds with the mixtures of leaves; after some rounds, the
likeliest continue and are crossed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import log
from typing import Any

import numpy as np
import scipy
from numpy.random import Generator

from fedcluster.algorithms import GaussianMixture, Lloyd
from fedcluster.core import Floats, Iteration, Labels, Result, RowTransform, State, Task
from fedcluster.core.task import stream
from fedcluster.kernels import kmeans_plusplus
from fedcluster.kernels.iteration import LloydFit, kmeans_runs, lloyd
from fedcluster.metrics.gaussians import drawn, is_fitted, texts_of
from fedcluster.mixtures.on_leaves import LeafRows, agglomerated, grown, sends_products
from fedcluster.mixtures.table import Table
from fedcluster.options.refusals import refused
from fedcluster.preprocessing import Category, Preprocessor
from fedcluster.preprocessing.moments import ColumnMoments, Covariance
from fedcluster.recipes._search import race
from fedcluster.recipes._seeds import places_by_rise
from fedcluster.recipes.fit import (
    algorithm_of,
    canonical,
    description,
    description_step,
    drawn_starts,
    from_leaves,
    with_previous,
)
from fedcluster.recipes.specifications import Fit
from fedcluster.rounds import Plan, gather, reason

FIRST = {4: 40, 8: 16}
"""Number of runs that continue after each of these rounds, before there are children."""
POPULATION, CHILDREN = 16, 32
"""Number of the best distinct runs that are kept, and of their children."""
GENERATIONS, ROUNDS, PATIENCE = 4, 5, 2
"""Largest number of generations; rounds of each; and generations without gain that end the
search."""
LAST = {1: 6, 6: 3, 12: 1}
"""Number of runs that continue after each of these rounds, when there are no more children."""
MOVING, ADDED = 0.7, 0.4
"""Share of children in which a component moves, and of these, to a mean of the rows."""
GAIN = 7.0
"""Gain in nats of a row for each direction in which its component has no variance."""
ENOUGH, SAME = 4, 0.1
"""Runs that reach the best likelihood after which there are no children, and the difference that
is none, as a share of ``tol``."""
ALIKE = 1e-6
"""Difference of a row's log likelihood below which two runs are the same, in any unit."""


def search(
    step: GaussianMixture,
    starts: Sequence[State],
    means: State,
    *,
    seed: int = 0,
    max_rounds: int = 300,
) -> Plan[Result]:
    """Plan a race of many starts, generations of children, and the best until convergence.

    Breeding ends after two generations that gain less than ``step.tol`` per row.

    Parameters
    ----------
    step : GaussianMixture
        The algorithm.
    starts : sequence of State
        The starts, as `GaussianMixture.start` returns them.
    means : State
        Weighted means that describe all rows; empty if the sites sent none.
    seed, max_rounds
        As in `iterate`.
    """
    rng, rank, left = stream(seed, 3_000_000), partial(supported, step), max_rounds - max(FIRST)
    first = min(max(FIRST), max_rounds)
    raced = yield from race(
        step, starts, seed=seed, max_rounds=first, keep=FIRST, meet=False, rank=rank
    )
    runs, history, idle = distinct(step, [run.state for run in raced]), raced[0].history, 0
    generations = 0 if _agreed(step, raced, runs[0]) else min(GENERATIONS, left // ROUNDS)
    for _ in range(generations):
        best, left = rank(runs[0]), left - ROUNDS
        children = [bred(step, runs, means, rng) for _ in range(CHILDREN)]
        raced = yield from race(step, [*runs, *children], seed=seed, max_rounds=ROUNDS, rank=rank)
        runs = distinct(step, [run.state for run in raced])
        history += raced[0].history
        idle += best - rank(runs[0]) < step.tol * runs[0].weights.sum()
        if idle == PATIENCE:
            break
    [end, *_] = yield from race(
        step, runs, seed=seed, max_rounds=max(left, 0), keep=LAST, rank=rank
    )
    history += end.history
    how = f"best of {len(starts)} starts{' and their crossings' if generations else ''}"
    why = f"{reason(end.state, len(history))}, {how}"
    return replace(end, history=history, reason=why)


def _agreed(step: GaussianMixture, raced: Sequence[Result], best: State) -> bool:
    """Return whether several starts led to the best mixture: others are hardly likelier."""
    near = supported(step, best) + SAME * step.tol * best.weights.sum()
    return sum(bool(supported(step, run.state) <= near) for run in raced) >= ENOUGH


def supported(step: GaussianMixture, state: State) -> float:
    """Return the inertia without what covariances of few rows gain on these rows alone.

    Of N normal rows in p columns, a covariance and a mean are likelier on them than on as many new
    ones by p (p + 3) / 2 in the limit, and by N / (N - p - 2) times that of few.

    Examples
    --------
    >>> state = State(np.zeros((1, 4)), np.array([12.0]), inertia=1.0)
    >>> supported(GaussianMixture("full"), state)
    29.0
    >>> supported(GaussianMixture("diag"), state)
    1.0
    """
    weights, d = state.weights, state.centers.shape[1]
    p = int((texts_of(state, d) == 0).sum())
    if step.covariance_type == "full":
        times = weights / np.maximum(weights - p - 2, 1.0)
        return state.inertia + p * (p + 3) / 2 * float(times.sum())
    lacking = p * np.clip(2 - weights, 0.0, 1.0) * (step.covariance_type != "tied")
    return state.inertia + GAIN * float(weights @ lacking)


def _alike(one: State, other: State) -> bool:
    """Return whether two runs have the same likelihood."""
    return bool(abs(one.inertia - other.inertia) <= ALIKE * one.weights.sum())


def distinct(
    step: GaussianMixture,
    states: Sequence[State],
    same: Callable[[State, State], bool] = _alike,
) -> list[State]:
    """Return the best mixtures, best first, only one of several that are the same.

    Examples
    --------
    >>> state = State.at(np.zeros((1, 1)))
    >>> each = [replace(state, inertia=inertia) for inertia in (3.0, 2.0, 2.0 + 1e-9)]
    >>> [state.inertia for state in distinct(GaussianMixture(), each)]
    [2.0, 3.0]
    """
    kept = list[State]()
    for state in (states[i] for i in places_by_rise([supported(step, each) for each in states])):
        if not any(same(state, other) for other in kept):
            kept.append(state)
    return kept[:POPULATION]


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
    apart = scipy.spatial.distance.cdist(one.centers / unit, other.centers / unit, "sqeuclidean")
    places, matched = np.arange(len(one.centers)), scipy.optimize.linear_sum_assignment(apart)[1]
    [taken] = np.nonzero(rng.random(len(places)) >= 0.5)
    return _with(step, one, taken, other, matched[taken])


def moved(step: GaussianMixture, state: State, means: State, rng: Generator) -> State:
    """Return a mixture with one component removed, and another split or added at a mean."""
    near = scipy.spatial.distance.cdist(
        state.centers / (unit := _units(state.centers)), state.centers / unit
    )
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
    [away] = drawn(step, state, half, 1, rng)
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
    apart = scipy.spatial.distance.cdist(means.centers / unit, state.centers[others] / unit)
    chance = means.weights * apart.min(axis=1) ** rng.integers(3)
    chance = chance if chance.any() else np.ones(len(chance))
    place = int(rng.choice(len(chance), p=chance / chance.sum()))
    nearest = others[apart[place].argmin()]
    state = _with(step, state, np.array([out]), state, np.array([nearest]))
    centers, weights = state.centers.copy(), state.weights.copy()
    centers[out] = means.centers[place]
    weights[out] = np.clip(means.weights[place], weights[nearest] / 10, weights[nearest] / 2)
    return replace(state, centers=centers, weights=weights, memory=_mixed(state, out, rng))


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


RESTARTS, N_STARTS, DRAWN_STARTS = 16, 8, 48
"""Numbers of runs of k-means of leaves, of the best ones over rows, and of those that are stopped
early."""
REFINED, BRIEFLY = 6, 2
"""Rounds of k-means for the starts, and for half of the drawn ones, to make these diverse."""
BRIEF, LONG, WHOLE = 5, 20, 300
"""Iterations of each mixture of leaves, and of the distinct ones; and leaves up to which clusters
of theirs are joined by likelihood, too."""
ROWS_EACH = 2
"""Smallest weight of a leaf; where rows weigh less than 1 on average, their smallest number."""
ROWS_FOR_LEAVES = 5_000
"""Number of rows from which on mixtures of leaves are searched instead of mixtures of the rows."""
N_FOUND, N_HARD = 3, 4
"""Numbers of mixtures of leaves that race over many rows, and of clusters of k-means."""
SOON, KEEP = {10: 3, 18: 1}, {6: 40, 10: 28, 15: 20, 25: 10}
"""Number of runs that continue after each of these rounds over many rows, and of stated starts."""
TOLD = 0.05
"""Gain of a row's log likelihood in a mixture of leaves, as a share of log k, from which on leaves
tell the components, so that no clusters of k-means need to race."""
BEHIND_LIKELIHOOD = 0.1
"""Difference of a row's log likelihood from which on a mixture of leaves is not continued."""
SAME_LEAVES, SAME_SHARES = 1e-3, 1e-2
"""Differences up to which two mixtures of leaves are the same: of the log likelihood of a row, and
of the share of a component."""
SETTLING = 0.1
"""Share of ``tol`` at which a run of several has converged: they differ by less than ``tol``."""


def mixture(spec: Fit, preprocessor: RowTransform | None = None) -> Plan[Result]:
    """Plan the fit of a mixture of normal distributions.

    Components are in canonical order, unless the start was given.

    Parameters
    ----------
    spec : Fit
        The specification: ``covariance_type``, ``reg_covar``, ``noise`` and the start.
    preprocessor : Preprocessor, optional
        The preparation of the rows, which shows which columns are levels of texts.
    """
    step, means = algorithm_of(spec), State()
    assert isinstance(step, GaussianMixture)  # guaranteed by the checks before the fit
    history: tuple[Iteration, ...] = ()
    many = from_leaves(spec) and not spec.noise and sum(spec.site_rows) >= ROWS_FOR_LEAVES
    if from_leaves(spec):
        step, begun, means = yield from _from_leaves(step, spec, preprocessor, many)
    else:
        starts, history, means = yield from _starts(spec)
        texts = text_columns(preprocessor, starts[0].centers.shape[1])
        step = replace(step, levels=bool(texts.any()))
        step = replace(step, log_noise=(yield from _log_noise(step, spec, starts[0], texts)))
        begun = [_begun(step, each, texts) for each in starts]
    result = yield from _best(step, begun, means, spec, many)
    given = spec.start is not None or isinstance(spec.init, np.ndarray)
    state = result.state if given else canonical(result.state, step)
    return replace(result, state=state, history=history + result.history, algorithm=step)


def _best(
    step: GaussianMixture, begun: Sequence[State], means: State, spec: Fit, many: bool
) -> Plan[Result]:
    """Plan the best mixture from the starts.

    With limits there is no search, as it would favour mixtures whose unlikely rows are held back.
    """
    how: dict[str, Any] = {"seed": spec.seed, "max_rounds": spec.max_iter}
    if len(begun) > 1 < spec.n_clusters and not spec.n_init and spec.smallest == 1 and not many:
        return (yield from search(step, begun, means, **how))
    if many and len(begun) > 1:
        finer, rank = replace(step, tol=SETTLING * step.tol), partial(supported, step)
        runs = yield from race(finer, begun, keep=SOON, rank=rank, **how)
    else:
        runs = yield from race(step, begun, keep=KEEP, **how)
    return runs[0]  # the best run, also if all converged before the race ended


def _starts(spec: Fit) -> Plan[tuple[list[State], tuple[Iteration, ...], State]]:
    """Plan the starts: the best of k-means, and drawn ones, each after some rounds of k-means.

    Returns the starts, the rounds that they took, and the means that describe all rows, if any.
    """
    if spec.start is not None or isinstance(spec.init, np.ndarray):
        return [spec.start or State.at(spec.init)], (), State()
    clusters = spec.cells(algorithm="auto", n_init=None, tol=1e-4)
    history: tuple[Iteration, ...] = ()
    seeds, means = list[State](), State()
    if (step := description_step(clusters)) is not None:
        described = yield from description(step, spec.n_clusters, spec.seed)
        clusters = replace(clusters, means=described.state)
        history, means, seeds = described.history, described.state, _seeds(described.state, spec)
    found, asked = yield from drawn_starts(clusters)
    half = len(seeds) // 2
    long = [*found[: spec.n_init or N_STARTS], *seeds[:half]]
    lengths = ((long, REFINED), (seeds[half:], BRIEFLY))
    refined = yield from gather(
        [race(Lloyd(), part, seed=spec.seed, max_rounds=length) for part, length in lengths]
    )
    starts = [State(run.state.centers, run.state.weights) for runs in refined for run in runs]
    return starts, history + asked + refined[0][0].history, means


def _seeds(means: State, spec: Fit) -> list[State]:
    """Return starts that k-means++ draws from the means."""
    rng = stream(spec.seed, 2_000_000)
    k, n = spec.n_clusters, 0 if spec.n_init else DRAWN_STARTS
    if len(means.centers) < k:
        return []
    points, weights = means.centers, means.weights
    drawn = (kmeans_plusplus(points, k, weights, rng=rng, n_local_trials=1) for _ in range(n))
    return [State.at(points[places]) for places in drawn]


def _from_leaves(
    step: GaussianMixture, spec: Fit, preprocessor: RowTransform | None, many: bool
) -> Plan[tuple[GaussianMixture, list[State], State]]:
    """Plan the starts that leaves give; return the step, the starts, and the leaves' means."""
    step, rows = yield from _described(step, spec, preprocessor)
    k, rng, table = spec.n_clusters, stream(spec.seed, 3_000_000), rows.table
    hard = _clustered(rows, k, 0 if many else DRAWN_STARTS, rng)
    found, starts = _likely(rows, step, k, [fit.labels for fit in hard[:RESTARTS]])
    if many:
        found = found[:N_FOUND]
    else:
        starts = [State(fit.centers * table.unit, fit.weights) for fit in hard]
    begun = [_begun(step, e, table.texts) for e in with_previous([*found, *starts], spec)]
    return step, begun, State(rows.leaves.means, rows.leaves.weights)


def _described(
    step: GaussianMixture, spec: Fit, preprocessor: RowTransform | None
) -> Plan[tuple[GaussianMixture, LeafRows]]:
    """Plan the description of the rows by leaves of two rows or more, at least one for each k."""
    moments = yield from ColumnMoments.unknown()
    texts = text_columns(preprocessor, len(moments.mean))
    step = replace(step, levels=bool(texts.any()))
    # spherical covariances need the same unit in all numeric columns
    if step.covariance_type == "spherical" and not texts.all():
        moments = replace(
            moments, variance=np.full(len(texts), moments.variance[texts == 0].mean())
        )
    table, center = Table.by_column(texts, moments, preprocessor), State.at(moments.mean[None])
    least = min(ROWS_EACH * table.n / max(sum(spec.site_rows), 1.0), ROWS_EACH)
    if not sends_products(table, least):
        [answers] = yield [Task(Covariance(), center, spec.seed)]
        table = table.with_products(answers.total())
    noise = _log_noise(step, spec, center, texts)
    both: list[Any] = yield from gather([noise, grown(table, least, spec.seed)])
    log_noise, leaves = both
    while len(leaves.weights) < spec.n_clusters:
        leaves = leaves.halves(table.unit, np.flatnonzero(texts == 0))
    return replace(step, log_noise=log_noise), LeafRows(leaves, table)


def _clustered(rows: LeafRows, k: int, n_drawn: int, rng: Generator) -> list[LloydFit]:
    """Return k-means of leaves, best first, and runs that are stopped early."""
    points, weights = rows.leaves.means / rows.table.unit, rows.leaves.weights
    fits = kmeans_runs(points, k, weights, rng=rng, n_runs=RESTARTS)
    fits = [fits[i] for i in places_by_rise([fit.inertia for fit in fits])]
    for i in range(n_drawn):
        start = points[kmeans_plusplus(points, k, weights, rng=rng, n_local_trials=1)]
        fits.append(lloyd(points, start, weights, max_iter=(REFINED, BRIEFLY)[i % 2]))
    return fits


def _likely(
    rows: LeafRows, step: GaussianMixture, k: int, labels: Sequence[Labels]
) -> tuple[list[State], list[State]]:
    """Return likely mixtures of leaves, likeliest first, and clusters if leaves hardly tell."""
    finer = rows.finer()
    n = float(rows.leaves.weights.sum())
    step = replace(
        step, floors=True, tol=Table.settled, reg_covar=step.reg_covar or Table.regularised
    )

    def carried_on(states: Sequence[State], most: int) -> list[State]:
        each = [finer.iterated(step, state, most)[0] for state in states]
        found = distinct(step, [state for state in each if np.isfinite(state.inertia)], _same)
        return [
            state for state in found if state.inertia <= found[0].inertia + BEHIND_LIKELIHOOD * n
        ]

    begun = [finer.started(step, k, np.tile(each, 2)) for each in labels]
    found = carried_on(carried_on(begun, BRIEF), LONG)
    if len(found) > 1 < k < len(labels[0]) <= WHOLE and step.covariance_type == "full":
        joined = agglomerated(rows.parts(), "likelihood", k)[k]
        found = carried_on([*found, finer.started(step, k, np.tile(joined, 2))], LONG)
    one = finer.started(step, 1, np.zeros(2 * len(labels[0]), dtype=int))
    one, _ = finer.iterated(step, one, 1)
    apart = one.inertia - min((state.inertia for state in found), default=np.inf)
    return found, begun[:N_HARD] if apart < TOLD * log(k) * n else []


def _same(one: State, other: State) -> bool:
    """Return whether two mixtures of leaves have the same likelihood and shares."""
    n = max(float(one.weights.sum()), 1e-300)
    apart = np.abs(np.sort(one.weights) - np.sort(other.weights)).max()
    return abs(one.inertia - other.inertia) <= SAME_LEAVES * n and bool(apart <= SAME_SHARES * n)


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


def _log_noise(step: GaussianMixture, spec: Fit, start: State, texts: Floats) -> Plan[float | None]:
    """Plan the log density of noise, if any: -log V, V being given or of a box fitted to the rows.

    A box with sides a has the variances a^2 / 12, so V^2 = 12^p |S|.
    """
    if not spec.noise:
        return None
    if not isinstance(spec.noise, bool):
        return -log(spec.noise)
    one = replace(step, covariance_type="full")
    weights = np.maximum(start.weights, 0.0)
    center = np.average(start.centers, axis=0, weights=weights if weights.any() else None)
    about = {"texts": texts} if step.levels else {}
    state = one.start(center[None], **about)
    [answers] = yield [Task(one, state, spec.seed)]
    after = one.server_step(state, answers.summaries, np.random.default_rng(0))
    factors = np.diagonal(after.memory["precisions_cholesky"][0])[texts == 0]
    return float(np.log(factors).sum() - len(factors) / 2 * log(12.0))
