"""Seeds from weighted means: a search at the server, which takes no round.

Weighted k-means from Ward's clusters, which are better starts in many columns (J. H. Ward,
Hierarchical grouping to optimize an objective function, JASA 58, 1963), and from k-means++. Then
crossover: D. Gribel & T. Vidal, HG-means: a scalable hybrid genetic algorithm for minimum
sum-of-squares clustering, Pattern Recognition 88 (2019).

    population:  the best distinct fits of weighted k-means
    child:       of two fits, each the better of two drawn, match the centres by assignment, take
                 one of each pair by chance; move one centre, drawn by chance, to a mean drawn
                 with probability  w ||x - c||^2  about the others; weighted k-means from there
                 -> the population, whose worst leaves it

Deviations: children are made until a number of successive ones gained nothing, and the population
keeps its best members at once instead of growing and being pruned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy
from numpy.random import Generator
from numpy.typing import NDArray

from fedcluster import kernels
from fedcluster.algorithms.summaries import Points
from fedcluster.core import Data, Floats, State
from fedcluster.core.threads import on_threads
from fedcluster.errors import NOT_DESCRIBED, HeldBackError
from fedcluster.kernels import kmeans_plusplus, ward_merges
from fedcluster.kernels.iteration import LloydFit, kmeans_runs, lloyd

ROUNDED = 1e-9
"""Relative difference of equal values in different orders of the rows."""


@dataclass(frozen=True, slots=True)
class SeedEffort:
    """How long the best clusters of means are sought."""

    population: int = 12  # smallest number of fits that are kept and crossed
    restarts: int = 40  # runs of k-means++
    children: int = 160  # largest number of children
    patience: int = 40  # successive children without gain that end the search
    longer: int = 2  # factor by which the best of a larger population are searched longer
    fuzzy_restarts: int = 60
    """Runs of fuzzy c-means from k-means++, apart from those from the best k-means."""
    fuzzy_iterations: int = 60  # iterations of each fuzzy run
    most_means: int = 4096  # means in total that are searched as they are
    means_per_cluster: int = 64  # the same, per cluster
    merged: int = 2048  # means in total into which more are merged first
    merged_per_cluster: int = 128  # the same, per cluster
    behind: float = 0.1
    """Share of the inertia by which a fit of these is behind and not refined among all."""
    most_of_ward: int = 4096
    """Means that Ward's method merges; more are merged first by other means."""
    fewest_of_ward: int = 2  # the least number of these for each cluster
    leaves_each: int = 8
    """Leaves of a variance tree for each cluster that these need; else they are drawn apart."""
    search_work: int = 1 << 27  # products of values that one iteration of all runs may take
    seed_work: int = 1 << 32
    """Products of values that one iteration of all starts may take: where it is more, fewer are
    sought. Of 20,000 x 768 rows, 400 clusters, one start ends where the best of eight does. Where
    one alone takes more, Ward's is that one: restarts were never better, of 1,000 clusters."""
    few: int = 4
    """Restarts and children if there is no time for all and Ward's method is ahead of so many
    restarts, or one of them finds the same."""
    ahead: float = 0.01  # relative gain in inertia that it must have


SEED_EFFORT = SeedEffort()


@dataclass(frozen=True, slots=True, eq=False)
class _Means:
    """Weighted means to be clustered, and what the search knows about them.

    Parameters
    ----------
    points : ndarray of shape (q, d)
        The means.
    weights : ndarray of shape (q,)
        Their weights.
    n_clusters : int
        k.
    """

    points: Floats
    weights: Floats
    n_clusters: int

    @classmethod
    def of(cls, state: State, n_clusters: int) -> _Means:
        """Return the means in a state; fewer than k are padded with copies of weight 0."""
        missing = max(0, n_clusters - len(state.centers))
        copies = np.resize(np.arange(len(state.centers)), missing)
        points = np.concatenate([state.centers, state.centers[copies]])
        return cls(points, np.append(state.weights, np.zeros(missing)), n_clusters)

    def runs(self, least: int, most: int, work: int) -> int:
        """Return the number of runs that there is time for."""
        return int(np.clip(work // (self.points.size * self.n_clusters), least, most))

    def crossed(self, fits: Sequence[LloydFit], rng: Generator) -> Floats:
        """Return the centres (k, d) of two fits, matched and mixed, with one of them moved."""
        one, other = (fits[rng.integers(len(fits), size=2).min()].centers for _ in range(2))
        matched = other[
            scipy.optimize.linear_sum_assignment(
                scipy.spatial.distance.cdist(one, other, "sqeuclidean")
            )[1]
        ]
        centers = np.where(rng.random((len(one), 1)) < 0.5, one, matched)
        gone = rng.integers(len(centers))
        rest = np.concatenate([centers[:gone], centers[gone + 1 :]])
        squared = scipy.spatial.distance.cdist(rest, self.points, "sqeuclidean").min(axis=0)
        chance = (self.weights * squared).cumsum()
        place = chance.searchsorted(rng.random() * chance[-1], side="right")
        new = self.points[min(int(place), len(self.points) - 1)]
        return np.concatenate([rest, new[None]])


def best_seeds(
    state: State,
    n_clusters: int,
    n_seeds: int,
    rng: Generator,
    m: float | None = None,
    behind: float = np.inf,
    effort: SeedEffort | None = None,
) -> list[State]:
    """Return the best distinct weighted k-means (fuzzy c-means if m is given) of means.

    The best comes first. No communication is needed. Fewer are tried if there are many means in
    many columns. Fewer than k means are padded with copies, whose clusters stay empty. Weighted
    k-means whose inertia exceeds the least by more than the share ``behind`` are left out.

    Raises
    ------
    HeldBackError
        If there are no means.
    """
    effort = effort or SEED_EFFORT
    if m is not None:
        return best_fuzzy_seeds(state, n_clusters, n_seeds, m, rng, effort)
    if not state.weights.any():
        raise HeldBackError(NOT_DESCRIBED)
    n_seeds = _Means.of(state, n_clusters).runs(1, n_seeds, effort.seed_work)
    most = max(effort.most_means, effort.means_per_cluster * n_clusters)
    if len(state.centers) <= most:
        fits = _searched(state, n_clusters, n_seeds, rng, effort)
    else:
        few = _coarse(
            state, min(most, max(effort.merged, effort.merged_per_cluster * n_clusters)), rng
        )
        fits = _in_all(state, _searched(few, n_clusters, n_seeds, rng, effort), effort)
    near = _near(fits, behind)[:n_seeds]
    return [State(fit.centers, fit.weights, round=state.round) for fit in near]


def _near(fits: Sequence[LloydFit], behind: float) -> list[LloydFit]:
    """Return the fits whose inertia exceeds that of the first, the least, by at most a share."""
    least = fits[0].inertia
    # inf * 0 is NaN, which must not remove a fit
    return [fit for fit in fits if not fit.inertia - least > behind * least]


def _coarse(state: State, most: int, rng: Generator, *, apart: bool = False) -> State:
    """Return fewer means, each of several that are close together."""
    some = state.weights > 0
    data = Data(state.centers[some], state.weights[some])
    points = (Points.apart if apart else Points.of)(data, rng, most)
    return State(np.asarray(points.X, dtype=np.float64), points.weights)


def _in_all(state: State, fits: Sequence[LloydFit], effort: SeedEffort) -> list[LloydFit]:
    """Return fits of coarse means after refining them among all means, best first.

    Those that are far behind follow, behind the best by the same inertia as among coarse means:
    what a fit of these leaves out is their scatter, which is the same for all fits.
    """
    tol = 1e-4 * state.centers.var(axis=0).mean()
    near = _near(fits, effort.behind)

    def carried_on(fit: LloydFit) -> LloydFit:
        return lloyd(state.centers, fit.centers, state.weights, tol=tol, empty="relocate")

    refined = _distinct(on_threads(carried_on, near))
    scatter = refined[0].inertia - fits[0].inertia
    far = [replace(fit, inertia=fit.inertia + scatter) for fit in fits[len(near) :]]
    return [*refined, *far]


def _searched(
    state: State, n_clusters: int, n_seeds: int, rng: Generator, effort: SeedEffort
) -> list[LloydFit]:
    """Return the best distinct fits of weighted means: Ward's, restarts, and crossover.

    The best comes first. A large population stays diverse and converges slowly, so its best members
    then continue by themselves.
    """
    means, size = _Means.of(state, n_clusters), max(n_seeds, effort.population)
    by_ward, most = _by_ward(state, means, rng, effort), max(n_seeds, effort.restarts)
    n_runs, children = (
        means.runs(n_seeds, most, effort.search_work),
        (effort.children, effort.patience),
    )
    if by_ward and not means.runs(0, 1, effort.seed_work):
        return by_ward
    restarts = partial(kmeans_runs, means.points, n_clusters, means.weights, rng=rng)
    fits = restarts(n_runs=min(effort.few, n_runs))
    if n_runs < most and by_ward and _needs_no_more(by_ward[0], fits, effort):
        children = effort.few, effort.few
    else:
        fits += restarts(n_runs=n_runs - len(fits))
    fits = _crossed(means, _distinct([*by_ward, *fits])[:size], size, children, rng, effort)
    if size >= effort.longer * effort.population and children != (effort.few, effort.few):
        more = effort.longer * effort.children, effort.longer * effort.patience
        best = _crossed(means, fits[: effort.population], effort.population, more, rng, effort)
        fits = _distinct([*best, *fits])[:size]
    return fits


def _needs_no_more(by_ward: LloydFit, fits: Sequence[LloydFit], effort: SeedEffort) -> bool:
    """Return whether Ward's method is ahead of a few restarts, or one of them ends at the same."""
    least = min(fit.inertia for fit in fits)
    is_ahead = by_ward.inertia < (1 - effort.ahead) * least
    return is_ahead or abs(by_ward.inertia - least) <= ROUNDED * least


def _by_ward(state: State, means: _Means, rng: Generator, effort: SeedEffort) -> list[LloydFit]:
    """Return weighted k-means from the clusters of Ward's method; none for too few means."""
    if np.count_nonzero(state.weights) <= means.n_clusters:
        return []
    points, weights, pairs = _merges(_few(state, means.n_clusters, rng, effort))
    q = len(points)
    merged = pairs[: q - means.n_clusters].T
    _, labels = scipy.sparse.csgraph.connected_components(
        scipy.sparse.coo_array((np.ones(len(merged[0])), merged), (q, q)), False
    )
    sums = scipy.sparse.coo_array((weights, (labels, np.arange(q)))) @ points
    start = sums / np.bincount(labels, weights)[:, None]
    return [lloyd(means.points, start, means.weights, empty="relocate")]


def _few(state: State, n_clusters: int, rng: Generator, effort: SeedEffort) -> State:
    """Return as many means as Ward's method merges, or fewer."""
    most = max(effort.most_of_ward, effort.fewest_of_ward * n_clusters)
    if len(state.centers) <= most:
        return state
    return _coarse(state, most, rng, apart=most < effort.leaves_each * n_clusters)


@lru_cache(maxsize=1)
def _merges(state: State) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return means, their weights, and the pairs that Ward's method merges, cheapest first."""
    some = state.weights > 0
    points, weights = state.centers[some], state.weights[some]
    pairs, costs = ward_merges(np.ascontiguousarray(points.T), weights)
    return points, weights, pairs[np.argsort(costs, kind="stable")]


def _crossed(
    means: _Means,
    fits: list[LloydFit],
    size: int,
    children: tuple[int, int],
    rng: Generator,
    effort: SeedEffort,
) -> list[LloydFit]:
    """Return the best of a population and its children, which are at most ``children[0]``."""
    tol, idle = 1e-4 * means.points.var(axis=0).mean(), 0
    most, patience = children
    n_children = (
        means.runs(0, most, effort.search_work) if 1 < means.n_clusters < len(means.points) else 0
    )
    for _ in range(n_children):
        least = fits[0].inertia
        if idle == patience or least <= 0:
            break
        start = means.crossed(fits, rng)
        child = lloyd(means.points, start, means.weights, tol=tol, empty="relocate")
        fits = _distinct([*fits, child])[:size]
        idle = 0 if fits[0].inertia < least * (1 - 1e-6) else idle + 1
    return fits


def best_fuzzy_seeds(
    state: State,
    n_clusters: int,
    n_seeds: int,
    m: float,
    rng: Generator,
    effort: SeedEffort | None = None,
) -> list[State]:
    """Return the best distinct weighted fuzzy c-means of the means in a state, best first.

    If rows have heavy tails, the best k-means places centres at few far rows, and fuzzy c-means
    from there stays in a poor optimum. So runs start from k-means++ as well as from the best
    k-means, and are compared by J_m of the means.

    Parameters
    ----------
    state : State
        Weighted means that describe all rows.
    n_clusters, n_seeds : int
        k, and the largest number of starts to return.
    m : float
        The fuzzifier.
    rng : Generator
        Draws the restarts.
    """
    effort = effort or SEED_EFFORT
    crisp = best_seeds(state, n_clusters, n_seeds, rng, effort=effort)
    if len(state.centers) <= n_clusters:
        return crisp
    points, weights = state.centers, state.weights
    n_restarts = _Means.of(state, n_clusters).runs(
        n_seeds, effort.fuzzy_restarts, effort.search_work
    )
    drawn = [
        points[kmeans_plusplus(points, n_clusters, weights, rng=rng)] for _ in range(n_restarts)
    ]
    fits = [
        kernels.fuzzy_cmeans(points, start, m, weights, max_iter=effort.fuzzy_iterations, tol=1e-3)
        for start in [*(seed.centers for seed in crisp), *drawn]
    ]
    best: list[Any] = []
    for fit in (fits[i] for i in places_by_rise(list(map(_j_m, fits)))):
        if not best or _j_m(fit) > _j_m(best[-1]) * (1 + 1e-6):
            best.append(fit)
    return [State.at(fit.centers) for fit in best[:n_seeds]]


def _j_m(fit: Any) -> float:
    """Return the objective of fuzzy c-means."""
    return float(fit.last_pass.errors.sum())


def _distinct(fits: Sequence[LloydFit]) -> list[LloydFit]:
    """Return fits by increasing inertia, only one of several that differ by rounding."""
    return [fits[i] for i in places_by_rise([fit.inertia for fit in fits])]


def places_by_rise(values: Sequence[float]) -> list[int]:
    """Return the indices that sort values; of those that differ by rounding, only the first.

    Fits with the same clusters may number them differently. The choice between them determines what
    is drawn next, so it must not depend on their last digits, which depend on the order of rows.

    Examples
    --------
    >>> places_by_rise([5.0, 2.0, 2.0 - 1e-15, 3.0])
    [1, 3, 0]
    """
    return [first for first, *_ in ranked(values)]


def ranked(values: Sequence[float]) -> list[list[int]]:
    """Return the indices that sort values, keeping the order of those that differ by rounding.

    A value differs from the one before it if the relative difference exceeds `ROUNDED`.

    Examples
    --------
    >>> ranked([5.0, -2.0, -2.0 - 1e-15, 3.0])
    [[1, 2], [3], [0]]
    """
    groups: list[list[int]] = []
    before = 0.0
    for i in sorted(range(len(values)), key=values.__getitem__):
        if groups and values[i] <= before + ROUNDED * abs(before):
            groups[-1].append(i)
        else:
            groups.append([i])
        before = values[i]
    return [sorted(group) for group in groups]
