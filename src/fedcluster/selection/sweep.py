"""Plan of choosing k by an index: a clustering for each k, their indices, and a verdict.

The gap statistic is the gain over clustering rows without any clusters.

R. Tibshirani, G. Walther & T. Hastie, Estimating the number of clusters in a data set via the
gap statistic, J. R. Statist. Soc. B 63, 2001.

    gap(k) = mean over B references of log W*_k  -  log W_k

with W the within sum of squares, of the rows and of rows drawn uniformly from a box. The server
draws the references and clusters them alone. The paper's box spans the columns' ranges, but a
minimum or a maximum is the value of one row. Here the box has the mean and the variance of each
column, which come from sums, or public bounds.

Deviations: apart from the box, W is divided by its n - k degrees of freedom, so that references may
have fewer rows than there are. The paper takes the smallest k with gap(k) >= gap(k + 1) - s_{k+1};
that stops at 1 if clusters form a grid, and `fedcluster.selection` takes the smallest k whose gap
is within s of the largest.

All clusterings share their rounds.

Plan of a choice of k by likelihood, and of the clusters that were judged.

The result is what was judged: the clusters of the likeliest mixture, which are sets of its
components, or those of k-means if both agree and its centres rest by then. K-means with the likely
numbers of clusters shares its rounds with the mixtures.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, sqrt
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedcluster.algorithms import FFCM, Lloyd
from fedcluster.algorithms.gaussian_mixture import MergedMixture, merged_state
from fedcluster.algorithms.merging import by_weight
from fedcluster.core import Answers, Floats, Result, RowTransform, State, Summary, Task
from fedcluster.core.task import stream
from fedcluster.errors import InputError
from fedcluster.kernels import kmeans, nearest
from fedcluster.metrics import Inertia
from fedcluster.metrics.external import adjusted_rand_index
from fedcluster.metrics.moments import Moments
from fedcluster.mixtures.on_leaves import LeafRows, leaves_plan
from fedcluster.mixtures.table import KINDS, Table
from fedcluster.options.choices import FUZZY_RULES
from fedcluster.recipes import Fit, clustering, evaluation, mixture
from fedcluster.recipes.bootstrap import resampling
from fedcluster.recipes.fit import algorithm_of, canonical, description, description_step
from fedcluster.recipes.specifications import Rule
from fedcluster.rounds import EarlyStop, Plan, everyone, gather, iterate, reason
from fedcluster.selection._likelihood import Likeliest, Mixture, likeliest
from fedcluster.selection._mixtures import (
    EFFORT,
    Effort,
    confirmed_plan,
    landscape,
    likely_mixtures,
    with_small,
)
from fedcluster.selection._mixtures import JUDGING as JUDGING
from fedcluster.selection.verdict import Selection, judged, judged_by_likelihood

Labels = NDArray[np.intp]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """Verdict by likelihood, and its clusters.

    Attributes
    ----------
    verdict : Likeliest
        The number of clusters, and the reason.
    result : Result
        The clusters, as requested: what was judged, k-means, or a mixture.
    warnings : tuple of str
        Doubts about either.
    beside : mapping of int to Result
        K-means with one cluster less and one more, of the leaves if it was not tried on the rows.
    replicates : tuple of Result
        The clusters of the same rows drawn again, as judged anew.
    gaps : (ndarray, ndarray), optional
        The neighbour of each cluster of a mixture, and the density between both; see `gaps_of`.
    """

    verdict: Likeliest
    result: Result
    warnings: tuple[str, ...]
    beside: Mapping[int, Result] = field(default_factory=dict)
    replicates: tuple[Result, ...] = ()
    gaps: tuple[Labels, Floats] | None = None


def judged_plan(
    ks: Collection[int],
    spec: Fit,
    preprocessor: RowTransform | None,
    draws: Sequence[int],
    effort: Effort,
) -> Plan[Judgement]:
    """Plan the verdict on the number of clusters among ``ks``, and then these clusters.

    Parameters
    ----------
    ks : collection of int
        The numbers to choose from.
    spec : Fit
        The specification of the clustering; a ``model`` of "auto" is what was judged.
    preprocessor : RowTransform, optional
        The preparation of the rows, which shows a mixture the columns of text and of numbers.
    draws : sequence of int
        Seeds of bootstrap samples of the rows, which are judged in the same rounds.
    effort : Effort
        How long is sought.
    """
    leaves = partial(leaves_plan, preprocessor, noise=spec.noise, smallest=spec.smallest)
    described: list[Plan[Any]] = [
        leaves(spec.seed),
        *(_drawn(_sample(leaves(i), effort), i) for i in draws),
    ]
    (table, rows), *again = yield from everyone(gather(described))
    kinds = [(spec.covariance_type, bool(spec.noise))] if spec.model == "merged" else KINDS
    likely, counts = likely_mixtures(rows, ks, kinds, effort)
    smaller = with_small(rows, kinds, max((each.bic for each in likely), default=-np.inf), effort)
    plans: list[Plan[Any]] = [confirmed_plan(rows, likely, spec.seed, effort)]
    kinds = list(dict.fromkeys(each.kind for each in likely))
    for i, (_, own) in zip(draws, again, strict=True):
        best = likely_mixtures(own, ks, kinds, effort)[0][: effort.replicated]
        plans.append(_drawn(confirmed_plan(own, best, i, effort), i))
    is_tried = spec.model == "auto" and spec.wish is None  # not for rows with missing values
    tried = sorted(set(counts) & set(ks)) if is_tried else []
    plans += [_by_means(rows, k, spec.seed, effort) for k in tried]
    mixtures, *found = yield from everyone(gather(plans))
    by_means = dict(zip(tried, found[len(draws) :], strict=True))
    seen = "rows" if table.rows_each == 1 else "rows, persons or groups"
    verdict = likeliest(mixtures, table.n_seen, ks, seen)
    judgement = yield from _clusters_of(verdict, rows, by_means, spec, preprocessor, effort)
    beside = _beside(rows, judgement.verdict.n_clusters, by_means, spec.seed, effort)
    drawn = [
        _merged(found_again, own.table, effort)
        for each, (_, own) in zip(found, again, strict=False)
        if (found_again := likeliest(each, own.table.n_seen, ks)).groups
    ]
    return replace(
        judgement,
        warnings=(*judgement.warnings, *_unseen(rows, spec, judgement.verdict, smaller, effort)),
        beside=beside,
        replicates=tuple(drawn),
        gaps=gaps_of(judgement, table) if draws else None,
    )


def _unseen(
    rows: LeafRows, spec: Fit, verdict: Likeliest, smaller: int, effort: Effort
) -> list[str]:
    """Return sentences on clusters that limits of the sites, or many columns, may hide."""
    said, fewest = [], effort.leaves_each * rows.table.n / len(rows.leaves.weights)
    lacks = 1 - rows.leaves.weights.sum() / rows.table.n
    few = len(rows.leaves.weights) <= effort.many_leaves
    if spec.smallest > 1 and (few or lacks > effort.hidden):
        said.append(
            f"limits of the sites may hide clusters of fewer than about {fewest:.0f} rows; limits "
            "that let smaller groups pass would show them"
        )
    if smaller > verdict.n_clusters:
        said.append(
            f"clusters of fewer than {rows.table.fewest('diag'):.0f} rows are not looked for in "
            f"{rows.table.n_numbers} columns, but with such ones {smaller} are likelier: look at "
            f"them by -k {smaller}, in Python n_clusters={smaller}"
        )
    return said


def _sample(plan: Plan[tuple[Table, LeafRows]], effort: Effort) -> Plan[tuple[Table, LeafRows]]:
    """Plan leaves of rows drawn again, of which a component has a larger share at least."""
    table, rows = yield from plan
    table = replace(table, share=effort.sample_share)
    return table, LeafRows(rows.leaves, table)


def _drawn(plan: Plan[T], seed: int) -> Plan[T]:
    """Let a plan ask about rows that are drawn again, with half their weight.

    Rows count w times, a Poisson number with mean 1 and variance 1. Sums of w vary as those of
    (sum of w)^2 / sum of w^2 = n / 2 rows: taken for n rows, repeated ones look like clusters.
    """
    plan, answers = resampling(plan, seed), None
    while True:
        try:
            tasks = plan.send(answers)  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        counted = yield tasks
        answers = [
            Answers(_halves(a.by_site), a.missing, a.enough, a.summed, a.early) for a in counted
        ]  # unless the engine has added up the answers


def _halves(answers: Mapping[str, Summary]) -> dict[str, Summary]:
    """Return half of each summary, exactly."""
    return {name: Summary.from_planes(each.planes / 2) for name, each in answers.items()}


def gaps_of(judgement: Judgement, table: Table) -> tuple[Labels, Floats] | None:
    """Return the neighbour of each cluster, (k,), and the density between both, (k,).

    The density is the largest on the ridge lines from a component of one to a component of the
    other at its minimum, relative to the lower of the peaks of the two clusters; the neighbour is
    that with the largest one. It is NaN if all columns are text. The result is None unless the
    clusters are sets of components.
    """
    best, state = judgement.verdict.mixture, judgement.result.state
    if not isinstance(judgement.result.algorithm, MergedMixture) or best.state is None:
        return None
    k, cluster = len(state.centers), state.memory["cluster"].astype(int)
    every = np.ones((len(cluster), len(cluster)), dtype=bool)
    kind: Any = (best.covariance_type, best.noise is not None)
    peaks, ridges = landscape(kind, best.state, best.weights, every, table)
    parts = by_weight(best.weights, best.state.centers)  # the order of clusters in the result
    peaks, ridges = peaks[parts], ridges[np.ix_(parts, parts)]
    tops = np.full(k, -np.inf)
    np.maximum.at(tops, cluster, peaks)
    between = np.full((k, k), -np.inf)
    np.maximum.at(between, (cluster[:, None], cluster), ridges)
    between = np.exp(np.minimum(between - np.minimum(tops[:, None], tops), 0.0))
    np.fill_diagonal(between, -1.0)
    neighbours: Labels = between.argmax(axis=1)
    known = k > 1 and table.n_numbers > 0
    return neighbours, between.max(axis=1) if known else np.full(k, np.nan)


def _clusters_of(
    verdict: Likeliest,
    rows: LeafRows,
    by_means: Mapping[int, Result],
    spec: Fit,
    preprocessor: RowTransform | None,
    effort: Effort,
) -> Plan[Judgement]:
    """Plan the clusters that follow from a verdict; ``by_means`` were tried along with it."""
    table = rows.table
    if spec.model == "merged":
        verdict = replace(verdict, n_clusters=max(1, len(verdict.groups)))
        doubts = (*verdict.warnings, *_fewer_parameters(verdict, spec, table.n_seen))
        return Judgement(verdict, _merged(verdict, table, effort, apart=bool(spec.noise)), doubts)
    k, merged = verdict.n_clusters, None
    if len(verdict.groups) == k:
        merged = _merged(verdict, table, effort)
    if spec.model == "auto":
        own = by_means.get(k)
        if own is not None and merged is None:
            settled = yield from _settled(own, spec)
            return Judgement(verdict, settled, verdict.warnings)
        if own is not None and own.state.converged and _agree(rows, verdict, own) >= effort.agree:
            return Judgement(verdict, own, verdict.warnings)
        if merged is not None:
            return Judgement(verdict, merged, verdict.warnings)
    chosen = replace(spec, n_clusters=k)
    if spec.model == "mixture":
        result = yield from mixture(chosen, preprocessor)
        return Judgement(verdict, result, verdict.warnings)
    result = yield from clustering(chosen.cells())
    filled = preprocessor is not None and preprocessor.missing != "ignore"
    hidden = _hidden(rows, verdict, result, filled=filled, effort=effort)
    return Judgement(verdict, result, (*verdict.warnings, *hidden))


def _fewer_parameters(verdict: Likeliest, spec: Fit, n: float) -> list[str]:
    """Return advice where the covariances that are asked for have many parameters for n rows."""
    if spec.covariance_type in ("diag", "spherical") or not verdict.mixture.is_large(n):
        return []
    return ["diagonal covariances have fewer parameters: --set fit.covariance_type=diag"]


def _beside(
    rows: LeafRows, k: int, by_means: Mapping[int, Result], seed: int, effort: Effort
) -> dict[int, Result]:
    """Return k-means with one cluster less and one more, of the leaves if it was not tried."""
    points, weights = rows.table.clustered(rows.leaves.means), rows.leaves.weights
    found = {j: by_means[j] for j in (k - 1, k + 1) if j in by_means}
    for j in {k - 1, k + 1} - found.keys():
        if 1 < j <= len(points):
            rng = stream(seed, 0, f"leaves {j}")
            centers = kmeans(points, j, weights, rng=rng, n_init=effort.restarts).centers
            sizes = np.bincount(nearest(points, centers)[0], weights, j).astype(np.float64)
            state = canonical(State(centers, sizes), Lloyd())
            found[j] = Result(state, (), "of the leaves", Lloyd())
    return found


def _merged(verdict: Likeliest, table: Table, effort: Effort, *, apart: bool = False) -> Result:
    """Return the clusters of a verdict's mixture; with ``apart``, noise rows are in none.

    Raises
    ------
    InputError
        If the verdict has no mixture.
    """
    best = verdict.mixture
    if best.state is None:
        raise InputError("the rows are too few for any mixture; cluster them by k-means")
    step = table.step((best.covariance_type, best.noise is not None))  # type: ignore[arg-type]
    own = MergedMixture(step.covariance_type, step.log_noise, step.levels, apart)
    inertia = -best.log_likelihood * table.rows_each
    weighed = replace(best.state, weights=best.weights, inertia=inertia)
    state = merged_state(own, weighed, verdict.groups, table.shift, table.scale)
    why = f"the likeliest mixture, after {effort.rounds} rounds over the rows"
    return Result(state, (), why, own)


def _by_means(rows: LeafRows, k: int, seed: int, effort: Effort) -> Plan[Result]:
    """Plan a few rounds of k-means, starting from k-means of the leaves, and its inertia."""
    points = rows.table.clustered(rows.leaves.means)
    start = points
    if k < len(points):
        rng = stream(seed, 0, f"leaves {k}")
        start = kmeans(points, k, rows.leaves.weights, rng=rng, n_init=effort.restarts).centers
    return (yield from _refined(start[:k], seed, effort.rounds_of_means))


def _settled(found: Result, spec: Fit) -> Plan[Result]:
    """Plan the rounds of k-means until convergence, if its centres still move."""
    left = spec.max_iter - len(found.history)
    if found.state.converged or left <= 0:
        return found
    result = yield from _refined(found.state.centers, spec.seed, left)
    history = found.history + result.history
    return replace(result, history=history, reason=reason(result.state, len(history)))


def _refined(centers: Floats, seed: int, max_rounds: int) -> Plan[Result]:
    """Plan rounds of k-means, and the inertia of its centres."""
    step = Lloyd()
    result = yield from iterate(step, State.at(centers), seed=seed, max_rounds=max_rounds)
    [answers] = yield [Task(Inertia(), result.state, seed)]
    state = replace(result.state, inertia=Inertia().score(result.state, answers.total()))
    return replace(result, state=canonical(state, step), algorithm=step)


def _agree(rows: LeafRows, verdict: Likeliest, by_means: Result, *, filled: bool = True) -> float:
    """Return the adjusted Rand index, over leaves, of a mixture's clusters and k-means.

    Leaves have no gaps. The mixture is told by the values that rows have: if k-means has others
    filled in, rows with gaps count as if both were independent there.
    """
    points = rows.table.clustered(rows.leaves.means)
    of_means = nearest(points, by_means.state.centers)[0]
    of_mixture = _labels(rows, verdict.mixture, verdict.groups)
    k = max(len(verdict.groups), len(by_means.state.centers))
    table = np.zeros((k, k))
    np.add.at(table, (of_mixture, of_means), rows.leaves.weights)
    lacking = rows.lacking if filled else 0.0
    by_chance = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    return adjusted_rand_index((1 - lacking) * table + lacking * by_chance)


def _labels(rows: LeafRows, best: Mixture, groups: Sequence[Sequence[int]]) -> Labels:
    """Return the cluster of each leaf."""
    assert best.state is not None
    step = rows.table.step((best.covariance_type, best.noise is not None))  # type: ignore[arg-type]
    tau, _ = rows.posteriors(step, best.state)
    labels: Labels = np.stack([tau[:, list(g)].sum(axis=1) for g in groups], axis=1).argmax(axis=1)
    return labels


def _hidden(
    rows: LeafRows, verdict: Likeliest, by_means: Result, *, filled: bool, effort: Effort
) -> list[str]:
    """Return a sentence if the clusters of k-means differ from those that were judged.

    ``filled`` is whether k-means has missing values filled in.
    """
    if not verdict.groups or len(by_means.state.centers) < 2:
        return []
    if by_means.state.centers.shape[1] != len(rows.table.texts):
        return []
    agreement = _agree(rows, verdict, by_means, filled=False)
    if agreement < effort.agree:
        what = (
            "k-means hides the shapes of these clusters: its own agree with them by an adjusted "
            f"Rand index of {agreement:.2f}"
        )
    elif filled and _agree(rows, verdict, by_means) < effort.agree:
        what = (
            f"k-means has values filled in, in up to {100 * rows.lacking:.0f} % of the rows, which "
            "may belong to other clusters by the values that they have"
        )
    else:
        return []
    best = verdict.mixture
    noise = "" if best.noise is None else ", noise=True"
    return [
        f"{what}; those that were judged are had by --model auto, in Python by "
        f'FederatedGaussianMixture("auto", covariance_type="{best.covariance_type}", '
        f"merge=True{noise})"
    ]


def box(mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return the corners, (d,) each, of the box with this mean and variance of each column.

    Examples
    --------
    >>> box(np.array([5.0]), np.array([3.0]))
    (array([2.]), array([8.]))
    """
    half = np.sqrt(3 * variance)
    return mean - half, mean + half


def gaps(
    within: Mapping[int, float],
    weight: float,
    bounds: tuple[Floats, Floats],
    *,
    n_references: int = 10,
    seed: int = 0,
    most_rows: int = 2048,
    most_values: int = 1 << 18,
) -> dict[int, tuple[float, float]]:
    """Return the gap statistic of each k and its standard error.

    Parameters
    ----------
    within : mapping of int to float
        The within sum of squares of the rows, by k.
    weight : float
        The weight of all rows, n.
    bounds : pair of ndarray of shape (d,)
        Lower and upper corners of the box.
    n_references : int, default=10
        B.
    seed : int, default=0
        Determines the draws.
    most_rows : int
        Largest number of rows of a reference, less if there are fewer rows or many columns.
    most_values : int
        Largest number of values of a reference.

    Returns
    -------
    dict of int to (float, float)
        gap(k) and s_k = sd sqrt(1 + 1 / B), both nan where W or all W* are 0.
    """
    lower, upper = bounds
    most = min(most_rows, max(most_values // len(lower), 64 * max(within)))
    n = int(np.clip(weight, max(within) + 1, most))
    rng = stream(seed, 0, "references")
    boxes = (rng.uniform(lower, upper, (n, len(lower))) for _ in range(n_references))
    references = np.array(
        [
            [_log(kmeans(rows, k, rng=rng, n_init=2).inertia, n - k) for k in within]
            for rows in boxes
        ]
    )
    expected, spread = references.mean(axis=0), references.std(axis=0) * sqrt(1 + 1 / n_references)
    return {
        k: (float(expected[i]) - _log(within[k], weight - k), float(spread[i]))
        for i, k in enumerate(within)
    }


def _log(within: float, freedom: float) -> float:
    return float(np.log(within / freedom)) if within > 0 and freedom > 0 else float("nan")


LIKELIHOOD = "likelihood"


def clustered_by(rule: str, m: float | None = None, averaging: str = "avg_2") -> dict[str, Any]:
    """Return the parameters of a `Fit` that a rule determines.

    Parameters
    ----------
    rule : str
        One of `RULES`. "xie-beni" and "fuzzy-db" judge fuzzy clusters; "fuzzy-db" those of the
        program of Stallmann & Wilbik.
    m : float, optional
        The fuzzifier; these two rules imply m = 2.
    averaging : {"avg_2", "avg_1"}, default="avg_2"
        For "fuzzy-db": the averaging at the server.

    Examples
    --------
    >>> clustered_by("vote"), clustered_by("xie-beni")
    ({'m': None}, {'m': 2.0})
    >>> clustered_by("fuzzy-db", averaging="avg_1")["algorithm"].averaging
    'avg_1'
    """
    if m is None and rule in FUZZY_RULES:
        m = 2.0
    if rule != "fuzzy-db":
        return {"m": m}
    program = FFCM(m or 2.0, averaging=averaging, local="converge", support="u")  # type: ignore[arg-type]
    return {"m": m, "algorithm": program}


def select_k_plan(
    k_range: Sequence[int],
    spec: Fit,
    rule: Rule | None = None,
    *,
    preprocessor: RowTransform | None = None,
    draws: Sequence[int] = (),
) -> Plan[Selection]:
    """Plan the choice of k, with a clustering; by an index, with a clustering for each k.

    Parameters
    ----------
    k_range : sequence of int
        The numbers of clusters to try.
    spec : Fit
        The specification of the clustering, whose number of clusters is ignored.
    rule : Rule, optional
        The rule by which k is chosen; by default by likelihood.
    preprocessor : RowTransform, optional
        The preparation of the rows, which shows a mixture the columns of text and of numbers.
    draws : sequence of int
        By likelihood: seeds of bootstrap samples of the rows, which are judged, too.
    """
    rule = rule or Rule()
    if rule.name == LIKELIHOOD:
        judgement = yield from judged_plan(k_range, spec, preprocessor, draws, EFFORT)
        chosen = judged_by_likelihood(
            judgement.verdict, judgement.result, judgement.warnings, k_range, judgement.beside
        )
        return replace(chosen, replicates=judgement.replicates, gaps=judgement.gaps)
    swept = yield from sweep(k_range, spec.cells())
    selection = judged(_with_gaps(swept, rule, spec.seed), swept.results, rule)
    if spec.model != "mixture":
        return selection
    k = selection.n_clusters
    result = yield from mixture(replace(spec, n_clusters=k), preprocessor)
    return replace(selection, results={**selection.results, k: result})


def _with_gaps(swept: Sweep, rule: Rule, seed: int) -> dict[int, dict[str, float]]:
    """Return the indices of each k with its gap statistic."""
    within = {k: scores["within"] for k, scores in swept.scores.items()}
    lower, upper = box(swept.mean, swept.variance) if rule.bounds is None else rule.bounds
    bounds = np.broadcast_to(lower, swept.mean.shape), np.broadcast_to(upper, swept.mean.shape)
    by_k = gaps(within, swept.weight, bounds, seed=seed)
    return {
        k: {**scores, "gap": by_k[k][0], "gap-error": by_k[k][1]}
        for k, scores in swept.scores.items()
    }


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Clusterings and scores of each k, and moments of all rows.

    Parameters
    ----------
    results : mapping of int to Result
        The clustering with k clusters, by increasing k.
    scores : mapping of int to mapping of str to float
        The indices for each k, by the names of `fedcluster.metrics.METRICS`.
    weight : float
        The weight of all rows.
    mean, variance : ndarray of shape (d,)
        Moments of each column over all rows, in the rows' units and their squares.
    """

    results: Mapping[int, Result]
    scores: Mapping[int, Mapping[str, float]]
    weight: float
    mean: Floats
    variance: Floats


def sweep(k_range: Sequence[int], spec: Fit) -> Plan[Sweep]:
    """Plan a clustering for each k, in at most half as many rounds more as the largest takes.

    If the clustering starts from means that the sites send, they send them once, enough for the
    largest k, and the server starts every k from these. This sends and reveals less than a separate
    description for each k. A k whose centres still move long after those of the largest k have
    converged is ended early.

    Parameters
    ----------
    k_range : sequence of int
        The numbers of clusters to try.
    spec : Fit
        The specification of the clustering, whose number of clusters is ignored.
    """
    ks = sorted(set(k_range))
    results = yield from _clusterings(ks, spec)
    last: list[Plan[Any]] = [evaluation(r.state, m=spec.m, seed=spec.seed) for r in results]
    measured: list[Any] = yield from everyone(gather([*last, _moments(spec.seed)]))
    *scores, moments = measured
    return Sweep(dict(zip(ks, results, strict=True)), dict(zip(ks, scores, strict=True)), *moments)


def _clusterings(ks: Sequence[int], spec: Fit) -> Plan[list[Result]]:
    """Plan a clustering for each k."""
    spec = yield from _with_means(replace(spec, n_clusters=ks[-1]))
    plans = [clustering(replace(spec, n_clusters=k)) for k in ks]
    return (yield from gather(plans if spec.means is None else _in_time(plans)))


def _with_means(spec: Fit) -> Plan[Fit]:
    """Plan the means that every k starts from, if the specification starts from means."""
    if not isinstance(spec.init, str):
        return spec
    step = description_step(spec)
    if step is None or not algorithm_of(spec).needs_centers:
        return spec
    described = yield from everyone(description(step, spec.n_clusters, spec.seed))
    return replace(spec, means=replace(described.state, converged=False))


def _in_time(plans: Sequence[Plan[Result]]) -> list[Plan[Result]]:
    """Return plans that end, with what they have, soon after the last of them."""
    clock = _Clock()
    return [_timed(plan, clock, leads=plan is plans[-1]) for plan in plans]


@dataclass(slots=True)
class _Clock:
    """Number of rounds, after the first one, that the largest k took; infinite until it is done."""

    leader: float = inf
    # largest number of rounds of a sweep, relative to a clustering with the largest k
    most_rounds = 1.5
    few_rounds = 12  # number of rounds that a sweep may always take
    afterwards = 3  # rounds that follow a race: one for its inertia, and two for the indices


def _timed(plan: Plan[Result], clock: _Clock, *, leads: bool) -> Plan[Result]:
    """Run a plan, asking it once to finish when its time is over."""
    tasks, done, stopped = next(plan), 0, False
    while True:
        answers = yield tasks
        done += 1
        try:
            tasks = plan.send(answers)
            most = max(clock.few_rounds, clock.most_rounds * (1 + clock.leader))
            is_over = 1 + (done + 1) + clock.afterwards > most
            if is_over and not stopped:
                stopped, tasks = True, plan.throw(EarlyStop())
        except StopIteration as stop:
            clock.leader = done if leads else clock.leader
            return cast("Result", stop.value)


def _moments(seed: int) -> Plan[tuple[float, Floats, Floats]]:
    """Plan the weight, mean and variance of all rows, in two rounds."""
    state = State()
    for _ in range(2):
        [answers] = yield [Task(Moments(), state, seed)]
        total = answers.total()
        mean, variance = Moments.mean_and_variance(state, total)
        state = State.at(mean[None])
    return float(total.weights[0]), mean, variance
