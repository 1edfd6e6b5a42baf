"""Plan of a whole clustering, which asks all sites or samples of them.

If rounds ask a sample of the sites, the last sums of the others are reused.

R. M. Neal & G. E. Hinton, A view of the EM algorithm that justifies incremental, sparse, and other
variants, Learning in Graphical Models (1998), with sites in place of rows:

    round 0   every site answers;  T_i = its sums
    round t   a sample of the sites answers anew;  T_i = its sums, the others' stay as they are
              server step from all T_i

Old sums belong to an earlier assignment of a site's rows, which is valid although no longer the
nearest. With T_i of that assignment,

    F = sum over sites and clusters of |x - c_j|^2,  x in cluster j of T_i

decreases when a site answers (its rows go to the nearest centres) and when the server moves the
centres (they become the means). So it decreases in every round, whichever sites are asked, until no
site's answer would change. Without the others' sums, centres would follow the sample, and a run
would end wherever its last sample left them.

Old sums can replace answers only if step(A + B) = step(A) + step(B) and the server needs only the
total, which a step declares (`client_additive`, `server_additive`).

The plan consists of starts, runs from them, and the exact score of the best.

A start is a set of centres, from few rounds with the sites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import ceil
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedcluster import algorithms, metrics
from fedcluster.algorithms import FKM, Lloyd, SiteSummaries, VarianceTree
from fedcluster.algorithms.fkm import site_seeding
from fedcluster.algorithms.merging import by_weight
from fedcluster.core import (
    Algorithm,
    Answers,
    FitParameters,
    Floats,
    Iteration,
    Metric,
    PlannedStep,
    Result,
    State,
    Step,
    Summary,
    Task,
    check_step,
)
from fedcluster.core.ranges import allowed_of
from fedcluster.core.task import stream
from fedcluster.errors import InputError
from fedcluster.lazy import LazyModule
from fedcluster.model.assignment import Assignment
from fedcluster.options.choices import builder, imported, is_step, made, written
from fedcluster.options.refusals import refused
from fedcluster.recipes._search import HALVING, MANY, SHORT, best_of, race
from fedcluster.recipes._seeds import best_seeds
from fedcluster.recipes.specifications import Fit, FuzzyFit, TrimmedFit
from fedcluster.rounds import (
    ENOUGH,
    EarlyStop,
    Plan,
    everyone,
    gather,
    iterate,
    reason,
    server_update,
)

PASSES = 6
"""Mean number of times that a site is asked before all are asked again."""

MOST_SAMPLED = 36
"""Largest number of rounds that ask a sample, before all sites are asked until convergence."""

KEPT = {1: 12, 2: 6, 3: 3}
"""Number of runs that continue after a site was asked this often, on average."""


@dataclass(slots=True)
class Sampled:
    """A run whose rounds ask a sample of the sites.

    Parameters
    ----------
    state : State
        Its present state.
    history : tuple of Iteration
        Its rounds.
    sums : mapping of str to Summary
        The last answer of each site.
    still : int
        Number of rounds since its centres moved.
    """

    state: State
    history: tuple[Iteration, ...] = ()
    sums: Mapping[str, Summary] = field(default_factory=dict)
    still: int = 0

    def update(self, algorithm: Algorithm, answers: Answers, seed: int) -> None:
        """Make the server step from the new sums, and from the last ones of all others."""
        every = {**self.sums, **answers.by_site}
        self.sums = {name: every[name] for name in sorted(every)}
        state, done = server_update(algorithm, self.state, Answers(self.sums), seed)
        done = replace(
            done,
            answered=answers.answered,
            missing=answers.missing,
            values_sent=answers.values_sent,
        )
        self.history = (*self.history, done)
        self.still = self.still + 1 if state.converged else 0
        self.state = replace(state, converged=False)


def keeps_sums(algorithm: Algorithm) -> bool:
    """Return whether a site that is not asked can be replaced by its last sums."""
    # its sums are about the means of a round, and those of two rounds cannot be added
    about_means = is_step(algorithm, "GaussianMixture")
    return algorithm.client_additive and algorithm.server_additive and not about_means


def sampled_run(algorithm: Algorithm, starts: Sequence[State], spec: Fit) -> Plan[Result]:
    """Plan the best of runs whose rounds ask a sample of the sites, with all at the end.

    Parameters
    ----------
    algorithm : Algorithm
        An algorithm that `keeps_sums`, and reports the inertia in its states.
    starts : sequence of State
        The starts.
    spec : Fit
        The fraction of the sites, the seed and the largest number of rounds.
    """
    best, stopped = yield from _sampled_rounds(algorithm, starts, spec)
    left = 1 if stopped else max(1, spec.max_iter - len(best.history))
    end = race(algorithm, [best.state], seed=spec.seed, max_rounds=left)
    [result] = yield from everyone(end)
    history = best.history + result.history
    of = f", best of {len(starts)} starts" if len(starts) > 1 else ""
    cut = "" if len(history) >= spec.max_iter else ENOUGH
    return Result(result.state, history, reason(result.state, len(history), cut) + of)


def _sampled_rounds(
    algorithm: Algorithm, starts: Sequence[State], spec: Fit
) -> Plan[tuple[Sampled, bool]]:
    """Plan rounds until convergence, the first and last with all sites; say if asked to end."""
    runs = [Sampled(start) for start in starts]
    a_pass = ceil(1 / spec.participation)
    done, last = 0, min(PASSES * a_pass, MOST_SAMPLED, max(1, spec.max_iter // 2))
    while done <= last:
        of_all = done in (0, last)
        try:
            answers = yield [Task(algorithm, r.state, spec.seed, everyone=of_all) for r in runs]
        except EarlyStop:
            return runs[0], True
        for run, answer in zip(runs, answers, strict=True):
            run.update(algorithm, answer, spec.seed)
        runs.sort(key=lambda run: run.state.inertia)
        passes, rest = divmod(done, a_pass)
        runs = runs if rest else runs[: KEPT.get(passes, len(runs))]
        rests = done < last and min(run.still for run in runs) > a_pass
        done = last if rests else done + 1
    return runs[0], False


N_SEEDS, N_MORE, N_MOST, MANY_ROWS = 8, 16, 48, 1000
"""Numbers of starts of the default way to cluster, the best among the means of all rows:
``N_SEEDS``; ``N_MORE`` from sums only, or if no site has ``MANY_ROWS`` rows, as the description is
coarse then; ``N_MOST`` if all sites together have fewer."""

BEHIND = 0.03
"""Share of the inertia by which a start may be behind the best among the means of all rows, if
these are ``MANY_ROWS`` and no limit hides some."""

N_DRAWN = 32
"""Number of starts if sites draw them, or if they are found among rows that are filled in."""

MEANS_PER_CLUSTER, LARGE_SITE, MOST_MEANS, FEWEST_MEANS = 160, 10_000, 256, 2
"""Numbers of means: per cluster over all sites, halved if a site has ``LARGE_SITE`` rows; at
most from one site; and at least from one site, per cluster."""

LEAVES_PER_CLUSTER, FEWEST_LEAVES, MOST_LEAVES, TREE_PASSES = 16, 256, 1000, 2
"""Numbers of a tree's leaves: per cluster, at least and at most; and of passes after it has
grown."""

HIDING_SITES, HIDDEN_SHARE = 10, 1e-3
"""Number of tiny sites that can hide a cluster from their means, since each holds few rows of it;
and the share of all rows at these that matters to the inertia."""

FINE_LEAVES, MOST_FINE, N_FINE = 128, 2000, 24
"""Leaves per cluster beside such sites, so that rare clusters have leaves too; at most in total;
and starts. With 64 leaves and 16 starts, one fit of 50 is more than 0.1 % above the same rows at
six random sites; with these, none of 248."""

COARSE_LEAVES, COARSE_ROWS = 4, 5
"""Leaves per cluster if sites hold back small groups, and the smallest number of rows of a leaf."""

MOST_TRIMMED = 0.5
"""The largest share of the rows that may belong to no cluster."""

GROUPS = 512
"""Number of means that a site is asked for if its rows are in groups, which are means already."""

trimming = LazyModule("fedcluster.recipes._trimming")

Starts = tuple[list[State], tuple[Iteration, ...]]
Seeding = Literal["k-means++", "random"] | Callable[..., Any]
Description = SiteSummaries | VarianceTree


def algorithm_of(spec: Fit) -> Algorithm:
    """Return the algorithm that a specification names or contains.

    A user's own algorithm is named by its module and class; its field ``n_clusters``, if it has
    one, is set to k, and its other fields keep their defaults.

    Raises
    ------
    InputError
        If the name is not that of an algorithm, or the algorithm does not support the metric.

    Examples
    --------
    >>> algorithm_of(TrimmedFit(3, trim=0.1)), algorithm_of(FuzzyFit(3, m=1.5)).m
    (TrimmedLloyd(trim=0.1, tol=0.0001), 1.5)
    """
    if isinstance(spec, TrimmedFit):
        return _trimmed(spec)
    if not isinstance(spec.algorithm, str):
        return _checked(spec.algorithm, spec)
    if "." in spec.algorithm:
        return _checked(_imported(spec.algorithm, spec), spec)
    build = builder(spec.algorithm, fuzzy=isinstance(spec, FuzzyFit), wish=spec.wish)
    given = FitParameters(spec.n_clusters, spec.init, spec.n_init, spec.tol, spec.m)
    built: Any = build(given)
    if is_step(built, "GaussianMixture"):
        built = replace(built, covariance_type=spec.covariance_type, reg_covar=spec.reg_covar)
    algorithm: Algorithm = built
    return algorithm


def _checked(algorithm: Algorithm, spec: Fit) -> Algorithm:
    """Return a user's own algorithm after checking that it supports the options."""
    name = type(algorithm).__name__
    if spec.model == "mixture" and not is_step(algorithm, "GaussianMixture"):
        raise refused("mixture-own", algorithm=name)
    if spec.wish == "missing='ignore'" and not allowed_of(algorithm).gaps:
        raise refused("missing-own", algorithm=name)
    return algorithm


def _imported(path: str, spec: Fit) -> Algorithm:
    """Return the algorithm with a dotted name, and maybe parameters."""
    try:
        kind = imported(written(path)[0])
        names = {field.name for field in fields(kind)} if is_dataclass(kind) else set()
        given = {name: getattr(spec, name) for name in names & {"n_clusters"}}
        algorithm: Algorithm = made(path, **given)
        check_step(algorithm, Algorithm)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"algorithm {path!r} cannot be made: {error}") from error
    return algorithm


def _trimmed(spec: TrimmedFit) -> algorithms.TrimmedLloyd:
    """Return the algorithm that trims a share of the rows."""
    if not 0 < spec.trim <= MOST_TRIMMED:
        raise InputError(f"trim must be from 0 to {MOST_TRIMMED:g}, not {spec.trim:g}")
    return algorithms.TrimmedLloyd(spec.trim, spec.tol)


def clustering(spec: Fit) -> Plan[Result]:
    """Plan a whole clustering, and a last round for its exact inertia.

    Clusters are in canonical order, unless the start was given as centres.

    Raises
    ------
    InputError
        If the algorithm has no centres and cannot assign rows without them.
    """
    algorithm, start = algorithm_of(spec), _given_start(spec)
    if is_step(algorithm, "TrimmedLloyd"):
        best = yield from everyone(_from_trimmed_starts(algorithm, spec))
        state = best.state if start else canonical(best.state, algorithm)
        return replace(best, state=state, algorithm=algorithm)
    if algorithm.needs_centers:
        results = yield from _from_starts(algorithm, spec)
    else:
        only = yield from iterate(algorithm, start, seed=spec.seed, max_rounds=spec.max_iter)
        results = [only]
    best = yield from everyone(best_of(results, algorithm.objective(), spec.seed))
    Assignment(best.state, algorithm)  # raises if no row could be assigned to the clusters
    state = best.state if start else canonical(best.state, algorithm)
    return replace(best, state=state, algorithm=algorithm)


def clustering_steps(spec: Fit) -> list[PlannedStep]:
    """Return the steps that a clustering, or a mixture, asks whatever the rows are.

    Raises
    ------
    InputError
        As in `algorithm_of`, or if the algorithm's objective is incomplete.

    Examples
    --------
    >>> clustering_steps(TrimmedFit(3, trim=0.1))
    [TrimmedLloyd(trim=0.1, tol=0.0001)]
    """
    algorithm = algorithm_of(spec)
    if spec.model == "mixture":
        started = spec.start is not None or _given_start(spec) is not None
        return [algorithm] if started or from_leaves(spec) else [Lloyd(), algorithm]
    if is_step(algorithm, "TrimmedLloyd"):
        return [algorithm]
    objective = algorithm.objective()
    try:
        check_step(objective, Metric)
    except TypeError as error:
        name = type(algorithm).__name__
        raise InputError(f"the objective of {name} cannot be used: {error}") from error
    return [algorithm, objective]


def _given_start(spec: Fit) -> State | None:
    """Return the start if it was given as centres."""
    return State.at(spec.init) if isinstance(spec.init, np.ndarray) else None


def _from_starts(algorithm: Algorithm, spec: Fit) -> Plan[list[Result]]:
    """Plan an algorithm that needs centres from one or many starts."""
    if spec.participation < 1 and keeps_sums(algorithm):
        return (yield from _from_samples(algorithm, spec))
    seeds, history = yield from drawn_starts(spec)
    free, hard = spec.algorithm == "auto" and not _given_start(spec), isinstance(algorithm, Lloyd)
    unhidden = is_step(algorithm, "FFCM") and spec.smallest == 1
    results = yield from race(
        algorithm,
        seeds,
        seed=spec.seed,
        max_rounds=spec.max_iter,
        keep=_staying(len(seeds), spec),
        eager=free and hard,
        ahead=free and (hard or unhidden),
    )
    return [replace(result, history=history + result.history) for result in results]


def _from_trimmed_starts(algorithm: Any, spec: Fit) -> Plan[Result]:
    """Plan trimmed k-means, from a description of all rows in which outliers do not count."""
    step = None if _given_start(spec) else description_step(spec)
    if step is None:
        seeds, history = yield from drawn_starts(spec)
    else:
        k = spec.n_clusters
        described = yield from description(step, k, spec.seed)
        n_seeds = spec.n_init or (trimming.TRIMMED_SEEDS if spec.algorithm == "auto" else 1)
        rng = stream(spec.seed, described.state.round)
        seeds = trimming.trimmed_seeds(described.state, k, algorithm.trim, n_seeds, rng)
        seeds = with_previous(seeds, spec)
        history = described.history
    result: Result = yield from trimming.trimmed_run(algorithm, seeds, spec)
    return replace(result, history=history + result.history)


def _from_samples(algorithm: Algorithm, spec: Fit) -> Plan[list[Result]]:
    """Plan the same with rounds that ask a sample of the sites, and all of them first and last."""
    seeds, history = yield from everyone(drawn_starts(spec))
    best = yield from sampled_run(algorithm, seeds, spec)
    return [replace(best, history=history + best.history)]


def canonical(state: State, algorithm: Algorithm) -> State:
    """Return a state with its clusters by decreasing weight, ties by coordinates.

    Its memory is reordered too, as the algorithm declares it (``allowed.memory``): each axis of
    length ``k``, and indices below ``k``. With memory that is not declared, the clusters stay in
    the algorithm's own order.

    Examples
    --------
    >>> from fedcluster.algorithms import FedAvg
    >>> velocity = np.array([[5.0], [6.0]])
    >>> state = State(velocity - 5, np.array([1.0, 3.0]), memory={"velocity": velocity})
    >>> canonical(state, FedAvg()).memory["velocity"].ravel()
    array([6., 5.])
    """
    declared = allowed_of(algorithm).memory
    if not state.memory.keys() <= declared.keys():
        return state
    return ordered(state, algorithm, by_weight(state.weights, state.centers))


def ordered(state: State, algorithm: Algorithm, order: NDArray[np.intp]) -> State:
    """Return a state in which cluster i was cluster ``order[i]``, or was not there, of weight 0."""
    declared, there = allowed_of(algorithm).memory, order >= 0
    memory = {
        name: declared[name].reordered(array, order) if name in declared else array
        for name, array in state.memory.items()
    }
    centers = state.centers[order] if len(state.centers) else state.centers
    return replace(state, centers=centers, weights=state.weights[order] * there, memory=memory)


def _n_seeds(spec: Fit) -> int:
    """Return the number of starts to seek among the means of all rows."""
    if spec.wish == "missing='ignore'":
        return N_DRAWN
    few = 0 < sum(spec.site_rows) < MANY_ROWS and not spec.grouped and spec.means is None
    small = bool(spec.site_rows) and max(spec.site_rows) < MANY_ROWS
    if few:
        return N_MOST
    if _are_some_tiny(spec):
        return N_MORE if spec.sums_only else N_FINE
    return N_MORE if spec.sums_only or small else N_SEEDS


def _behind(spec: Fit) -> float:
    """Return the share by which a start may be behind the best among the means of all rows."""
    asked, hidden = spec.algorithm != "auto" or spec.n_init, spec.grouped or spec.smallest > 1
    shown = bool(spec.site_rows) and _n_seeds(spec) in (N_SEEDS, N_MORE, N_FINE)
    return BEHIND if shown and not (asked or hidden) else np.inf


def _staying(n_starts: int, spec: Fit) -> Mapping[int, int]:
    """Return how many of these runs stay in their race; fewer if starts are good."""
    found = spec.algorithm == "auto" and not spec.n_init and _n_seeds(spec) == N_MOST
    usual = next((keep for most, keep in SHORT.items() if n_starts <= most), HALVING)
    return MANY if usual is HALVING and found and description_step(spec) else usual


def with_previous(starts: Sequence[State], spec: Fit) -> list[State]:
    """Return the starts of a search, and the centres of an earlier fit of as many clusters."""
    if spec.also is None or len(spec.also) != spec.n_clusters or spec.algorithm != "auto":
        return list(starts)
    return [*starts, State.at(spec.also)]


def drawn_starts(spec: Fit) -> Plan[Starts]:
    """Plan the starts that a specification requests, with the rounds that they take."""
    k, seed, auto = spec.n_clusters, spec.seed, spec.algorithm == "auto"
    m = spec.m if auto else None
    n_seeds = spec.n_init or (_n_seeds(spec) if auto else 1)
    if (start := _given_start(spec)) is not None:
        return [start], ()
    rounds: tuple[Iteration, ...] = ()
    if spec.means is not None:
        starts = best_seeds(spec.means, k, n_seeds, stream(seed, spec.means.round), m)
    elif (step := description_step(spec)) is None:
        n_drawn = spec.n_init or (N_DRAWN if auto else 1)
        starts, rounds = yield from drawn(k, n_drawn, site_seeding(spec.init), seed)
    else:
        starts, rounds = yield from from_description(step, k, n_seeds, seed, m, _behind(spec))
    return with_previous(starts, spec), rounds


def description_step(spec: Fit) -> Description | None:
    """Return the step that describes all rows by means to start from, if a start needs that.

    If the start is given as centres, it is that of the default start.
    """
    init = "auto" if isinstance(spec.init, np.ndarray) else spec.init
    if spec.sums_only or init == "sums" or (init == "auto" and _are_most_tiny(spec)):
        return _tree(spec)
    if init == "auto" and _are_some_tiny(spec):
        return _tree(spec, FINE_LEAVES, MOST_FINE)
    if init not in ("auto", "summaries"):
        return None
    if spec.grouped:  # not for groups, which are means of rows already
        most, smallest = max(FEWEST_MEANS * spec.n_clusters, GROUPS), spec.smallest
        return SiteSummaries(most, smallest, 2 * smallest if smallest > 1 else 1)
    fewer = 2 if max(spec.site_rows, default=0) >= LARGE_SITE else 1
    share = MEANS_PER_CLUSTER // fewer * spec.n_clusters // max(1, len(spec.site_rows))
    n_means = max(FEWEST_MEANS * spec.n_clusters, min(share, MOST_MEANS))
    return SiteSummaries(n_means, spec.smallest, 2 * spec.smallest)


def from_leaves(spec: Fit) -> bool:
    """Return whether a mixture starts from leaves: unless its start is stated, or limits hide rows.

    Examples
    --------
    >>> [from_leaves(Fit(3, **how)) for how in ({}, {"smallest": 5})]
    [True, False]
    """
    stated = spec.start is not None or spec.n_init is not None
    auto = isinstance(spec.init, str) and spec.init in ("auto", "sums")
    return auto and not stated and spec.smallest == 1


def start_step(spec: Fit, algorithm: Algorithm) -> Step | None:
    """Return the step by which sites are asked for a start; None if there is none."""
    given = spec.start is not None or isinstance(spec.init, np.ndarray)
    if given or not algorithm.needs_centers:
        return None
    if spec.model == "mixture" and from_leaves(spec):
        return metrics.LeafMoments()
    return description_step(spec) or FKM(spec.n_clusters)


def _tiny_rows(spec: Fit) -> tuple[float, int]:
    """Return the numbers of rows and of sites where these are too few to describe all clusters."""
    few = FEWEST_MEANS * spec.n_clusters
    tiny = [n for n in spec.site_rows if n < few]
    return sum(tiny), len(tiny)


def _are_most_tiny(spec: Fit) -> bool:
    """Return whether most rows are at sites too small to describe all clusters."""
    several = not spec.grouped and len(spec.site_rows) > 1
    return several and 2 * _tiny_rows(spec)[0] > sum(spec.site_rows)


def _are_some_tiny(spec: Fit) -> bool:
    """Return whether so many such sites stand beside larger ones that means may hide a cluster.

    Each of their means may be of rows of several clusters that no larger site has. Limits hold back
    what leaves tell of such sites, and sums that withstand false answers have no tree.
    """
    n_rows, n_sites = _tiny_rows(spec)
    enough = n_sites >= HIDING_SITES and n_rows >= HIDDEN_SHARE * sum(spec.site_rows)
    open_ = not (spec.grouped or spec.robust) and spec.smallest == 1
    return open_ and enough and not _are_most_tiny(spec)


def _tree(
    spec: Fit, per_cluster: int = LEAVES_PER_CLUSTER, most: int = MOST_LEAVES
) -> VarianceTree:
    """Return a tree of sums; a coarse one if sites hold back sums over few rows."""
    k = spec.n_clusters
    if spec.smallest == 1:
        fine = max(FEWEST_LEAVES, per_cluster * k)
        room = max(COARSE_LEAVES * k, int(sum(spec.site_rows)) // 2) if spec.site_rows else fine
        return VarianceTree(min(fine, room, max(most, FEWEST_MEANS * k)), 1, TREE_PASSES)
    leaves = min(COARSE_LEAVES * k, max(MOST_LEAVES, FEWEST_MEANS * k))
    return VarianceTree(leaves, max(COARSE_ROWS, spec.smallest))


def description(step: Description, n_clusters: int, seed: int) -> Plan[Result]:
    """Plan weighted means of all rows, which also serve for smaller numbers of clusters.

    If fewer than ``n_clusters`` are distinct, as with few rows or small sites with equal rows,
    smaller groups of rows are requested. These are used unless the sites' limits held back more of
    them.
    """
    best, history = yield from _described(step, seed)
    for finer in _finer(step):
        if _differ(best.centers, n_clusters):
            break
        state, more = yield from _described(finer, seed)
        best, history = max(state, best, key=lambda each: len(each.centers)), history + more
    return Result(best, history, reason(best, len(history)))


def _differ(means: Floats, n: int) -> bool:
    """Return whether at least n means differ, which is so if n differ in one column."""
    if means.size and len(np.unique(means[:, 0])) >= n:
        return True
    return len(np.unique(means, axis=0)) >= n


def _described(step: Description, seed: int) -> Plan[tuple[State, tuple[Iteration, ...]]]:
    """Plan one description, with the rounds that it takes."""
    result = yield from iterate(step, seed=seed)
    return result.state, result.history


def _finer(step: Description) -> list[Description]:
    """Return the step for smaller groups of rows, and for single rows."""
    if isinstance(step, SiteSummaries):
        finer = [replace(step, rows_per_mean=step.min_rows), SiteSummaries(step.n_means)]
        return [each for each in dict.fromkeys(finer) if each != step]
    finest = replace(step, min_rows=1)
    return [finest] if finest != step else []


def from_description(
    step: Description,
    n_clusters: int,
    n_seeds: int,
    seed: int,
    m: float | None = None,
    behind: float = np.inf,
) -> Plan[Starts]:
    """Plan a start from weighted means of all rows: one round of summaries, more from sums."""
    described = yield from description(step, n_clusters, seed)
    means, rng = described.state, stream(seed, described.state.round)
    return best_seeds(means, n_clusters, n_seeds, rng, m, behind), described.history


def drawn(n_clusters: int, n_seeds: int, seeding: Seeding, seed: int) -> Plan[Starts]:
    """Plan starts from seeds that the sites draw, clustered at the server; one round."""
    fkm = FKM(n_clusters, client_init=seeding)
    runs = yield from gather([iterate(fkm, seed=seed + i, max_rounds=1) for i in range(n_seeds)])
    return [result.state for result in runs], runs[0].history
