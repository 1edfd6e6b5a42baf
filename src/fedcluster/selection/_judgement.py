"""Plan of a choice of k by likelihood, and of the clusters that were judged.

The result is what was judged: the clusters of the likeliest mixture, which are sets of its
components, or those of k-means if both agree and its centres rest by then. K-means with the likely
numbers of clusters shares its rounds with the mixtures.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcluster.algorithms import Lloyd
from fedcluster.algorithms.gaussian_mixture import MergedMixture, merged_state
from fedcluster.algorithms.merging import by_weight
from fedcluster.core import Answers, Floats, Result, RowTransform, State, Summary, Task
from fedcluster.core.task import stream
from fedcluster.errors import InputError
from fedcluster.kernels import kmeans, nearest
from fedcluster.metrics import Inertia
from fedcluster.metrics.external import adjusted_rand_index
from fedcluster.mixtures.on_leaves import LeafRows, leaves_plan
from fedcluster.mixtures.table import KINDS, Table
from fedcluster.recipes import Fit, clustering, mixture
from fedcluster.recipes.bootstrap import resampling
from fedcluster.recipes.fit import canonical
from fedcluster.rounds import Plan, everyone, gather, iterate, reason
from fedcluster.selection._likelihood import Likeliest, Mixture, likeliest
from fedcluster.selection._mixtures import (
    Effort,
    confirmed_plan,
    landscape,
    likely_mixtures,
    with_small,
)

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
    is_tried = spec.model == "auto" and spec.wish is None  # not of rows with gaps
    tried = sorted(set(counts) & set(ks)) if is_tried else []
    plans += [_by_means(rows, k, spec.seed, effort) for k in tried]
    mixtures, *found = yield from everyone(gather(plans))
    by_means = dict(zip(tried, found[len(draws) :], strict=True))
    seen = "rows" if table.rows_each == 1 else "rows or groups of rows"
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
    if spec.smallest > 1 and len(rows.leaves.weights) <= effort.many_leaves:
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
        told = yield tasks
        answers = [
            Answers(_halves(a.by_site), a.missing, a.enough, a.summed, a.early) for a in told
        ]  # not those of an engine that has added them up


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
    parts = by_weight(best.weights, best.state.centers)  # as in the result
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
    return [
        "diagonal covariances have fewer parameters: --set fit.covariance_type=diag, in Python "
        'covariance_type="diag"'
    ]


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
