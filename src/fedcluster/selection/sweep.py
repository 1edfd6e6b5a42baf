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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any, cast

import numpy as np

from fedcluster.algorithms import FFCM
from fedcluster.core import Floats, Result, RowTransform, State, Task
from fedcluster.core.task import stream
from fedcluster.kernels import kmeans
from fedcluster.metrics.moments import Moments
from fedcluster.options.choices import FUZZY_RULES
from fedcluster.recipes import Fit, clustering, evaluation, mixture
from fedcluster.recipes.fit import algorithm_of, description, description_step
from fedcluster.recipes.specifications import Rule
from fedcluster.rounds import EarlyStop, Plan, everyone, gather
from fedcluster.selection._judgement import judged_plan
from fedcluster.selection._mixtures import EFFORT
from fedcluster.selection._mixtures import JUDGING as JUDGING
from fedcluster.selection.verdict import Selection, judged, judged_by_likelihood


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
    most_rounds = 1.5  # of a sweep, relative to those of a clustering with the largest k
    few_rounds = 12  # that a sweep may always take
    afterwards = 3  # rounds that follow a race: one for its inertia, and two for the indices


def _timed(plan: Plan[Result], clock: _Clock, *, leads: bool) -> Plan[Result]:
    """Run a plan, asking it once to finish when its time is over."""
    tasks, done, told = next(plan), 0, False
    while True:
        answers = yield tasks
        done += 1
        try:
            tasks = plan.send(answers)
            most = max(clock.few_rounds, clock.most_rounds * (1 + clock.leader))
            is_over = 1 + (done + 1) + clock.afterwards > most
            if is_over and not told:
                told, tasks = True, plan.throw(EarlyStop())
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
