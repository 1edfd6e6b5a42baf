"""Attacks that combine many answers: differences, whole runs, equations, versions of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.algorithms import KFed, Lloyd, SiteSummaries, VarianceTree
from fedcluster.core import Answers, Floats, SiteInfo, State, Summary, Task
from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import SelectK, fit_of, plan_of
from fedcluster.metrics.clusters import Scatter
from fedcluster.metrics.moments import Means
from fedcluster.preprocessing import Preprocessor
from fedcluster.recipes import evaluation
from fedcluster.rounds import run_plan, with_preprocessing
from fedcluster_app.audit._asking import total_of
from fedcluster_app.audit._site import (
    DECIMALS,
    AttackedSite,
    AttackRun,
    Coordinator,
    Public,
    values_of,
)
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder

CLUSTERS = 6
TARGETS = 10


class SitesHere:
    """Transport to sites in this process."""

    def __init__(self, sites: Mapping[str, Responder]) -> None:
        self._sites = sites

    def exchange(
        self, messages: Mapping[str, bytes], enough: int
    ) -> tuple[dict[str, bytes], dict[str, str]]:
        """Carry messages to the sites."""
        return {name: self._sites[name].reply(message) for name, message in messages.items()}, {}


class Recorder:
    """Engine that asks one site and records questions and answers."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._engine = RemoteEngine(SitesHere({"north": coordinator.responder}), ["north"])
        columns = [column.name for column in coordinator.public.columns]
        self._engine.choose(columns, raw=True)
        self.kept: list[tuple[Task, Summary]] = []

    def introduce(self, **requested: Any) -> tuple[SiteInfo, ...]:
        """Return the metadata of the site."""
        return self._engine.introduce(**requested)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Carry the tasks of a round to the site."""
        self._coordinator.asked += len(tasks)
        answers = self._engine.ask(tasks, sites)
        self.kept += [(t, a.total()) for t, a in zip(tasks, answers, strict=True)]
        return answers


def run_of(coordinator: Coordinator) -> list[tuple[Task, Summary]]:
    """Return all questions and answers of a clustering, a choice of k and an evaluation."""
    recorder, how = Recorder(coordinator), coordinator.public.plain()
    try:
        sites = recorder.introduce()
        fit = run_plan(with_preprocessing(plan_of(fit_of(CLUSTERS), sites), how), recorder)
        run_plan(with_preprocessing(plan_of(SelectK(k_max=CLUSTERS), sites), how), recorder)
        state = State(fit.value.state.centers, fit.value.state.weights)
        run_plan(with_preprocessing(evaluation(state), how), recorder)
    except (SiteError, InputError):  # plans raise these for sites with a privacy budget
        coordinator.refused += 1
    return recorder.kept


def summed(task: Task, answer: Summary, d: int) -> Floats:
    """Return the sums over rows in the lines of an answer, (l, d + 1), with the weight last."""
    sums = answer.sums[:, :d]
    if isinstance(task.step, Scatter):
        sums = sums + answer.weights[:, None] * task.state.centers
    if not isinstance(task.step, Lloyd | Scatter | SiteSummaries | VarianceTree | KFed):
        return np.empty((0, d + 1))
    return np.column_stack([sums, answer.weights])[answer.weights > 0]


def subtracted(answers: Iterable[Floats], public: Public) -> Floats:
    """Return differences of all lines, and of sums of two lines of an answer, of weight 1."""
    lines = []
    for each in answers:
        lines.append(each)
        # Number of lines of an answer up to which pairs of lines are added before comparison.
        if 1 < len(each) <= 12:
            lines.append(np.array([a + b for a, b in combinations(each, 2)]))
    d = len(public.numbers)
    every = np.unique(np.concatenate([np.empty((0, d + 1)), *lines]).round(6), axis=0)[:20_000]
    every = every[np.argsort(every[:, -1], kind="stable")]
    weight, found = every[:, -1], [public.claims(0)]
    for first in np.unique(weight):
        smaller, larger = (every[abs(weight - w) < 1e-6] for w in (first, first + 1))
        if len(smaller) and len(larger):
            apart = (larger[:, None, :d] - smaller[None, :, :d]).reshape(-1, d)
            found.append(public.records(apart[_possible(apart, public)]))
    alone = every[abs(weight - 1) < 1e-6][:, :d]
    return np.concatenate([*found, public.records(alone)])


def _possible(rows: Floats, public: Public) -> np.ndarray:
    """Return which rows are within the ranges of the columns and on their steps, (n,)."""
    inside = (rows >= public.low).all(axis=1) & (rows <= public.high).all(axis=1)
    steps = rows / public.step
    return np.asarray(inside & (abs(steps - steps.round()) < 0.02).all(axis=1))


def pairs_of_a_run(play: AttackRun) -> Floats:
    """Subtract all sums of a clustering, a choice of k and an evaluation from each other."""
    d = len(play.public.numbers)
    return subtracted((summed(t, a, d) for t, a in run_of(play.coordinator)), play.public)


def trajectories(play: AttackRun) -> Floats:
    """Solve for the rows from the sums of a run, given the members of each cluster."""
    lloyd = [(t, a) for t, a in run_of(play.coordinator) if isinstance(t.step, Lloyd)]
    return _solved(play, lloyd)


def equations(play: AttackRun) -> Floats:
    """Solve for the rows from sums about many random centres, given the members of each."""
    rng, public = np.random.default_rng(0), play.public
    # Number of questions about random centres.
    centers = rng.uniform(public.low, public.high, (80, CLUSTERS, len(public.numbers)))
    tasks = [Task(Lloyd(), State.at(c), preprocessor=public.plain()) for c in centers]
    answers = zip(tasks, play.coordinator.ask(tasks), strict=True)
    return _solved(play, [(t, a) for t, a in answers if a is not None])


def solved(behind: Floats, sums: Floats) -> tuple[NDArray[np.intp], Floats]:
    """Return the rows that are determined by sums over known sets of rows, as (r,) and (r, d).

    Rows in the same sums form one unknown; a row with its own set of sums is determined if some
    combination of the sums is that row (arXiv 2511.07073).

    Parameters
    ----------
    behind : ndarray of shape (l, n)
        1 if a row is in a sum.
    sums : ndarray of shape (l, d)
        The sums.

    Examples
    --------
    >>> solved(np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]), np.array([[9.0], [4.0]]))
    (array([2]), array([[5.]]))
    """
    takes_part = np.ones(len(behind), bool)
    while (
        takes_part.any()
    ):  # a combination of one row cannot contain two rows that no other sum contains
        alone = behind[takes_part].sum(axis=0) == 1
        stays = takes_part & (behind[:, alone].sum(axis=1) < 2)
        if (stays == takes_part).all():
            break
        takes_part = stays
    if not takes_part.any():
        return np.empty(0, np.intp), np.empty((0, sums.shape[1]))
    behind, sums = behind[takes_part], sums[takes_part]
    patterns, row, times = np.unique(behind, axis=1, return_index=True, return_counts=True)
    inverse = np.linalg.pinv(patterns * times, rcond=1e-9)
    known = np.abs(np.diag(inverse @ (patterns * times)) - 1.0) < 1e-6
    alone = known & (times == 1) & patterns.any(axis=0)
    return row[alone], (inverse @ sums)[alone]


def _solved(play: AttackRun, kept: Sequence[tuple[Task, Summary]]) -> Floats:
    d = len(play.public.numbers)
    behind, sums = [np.empty((0, len(play.units)))], [np.empty((0, d))]
    for task, answer in kept:
        sent = answer.weights > 0
        behind.append(play.lines(task.state.centers)[sent].astype(float))
        sums.append(answer.sums[sent, :d])
    lines, places = np.unique(np.concatenate(behind), axis=0, return_index=True)
    return play.public.records(solved(lines, np.concatenate(sums)[places])[1])


def dump(coordinator: Coordinator, how: Preprocessor | None = None) -> Floats:
    """Return as many lines as the site discloses at once, (l, d + 1): its groups, if any."""
    how = how or coordinator.public.plain()
    for most in (100_000, 1_000, 100, 20):
        for step in (KFed(most), SiteSummaries(most, min_rows=1)):
            answer = coordinator.ask_one(step, how=how)
            if answer is not None:
                sent = answer.weights > 0
                return np.column_stack([answer.sums, answer.weights])[sent]
    return np.empty((0, how.n_columns_out + 1))


def values_alone(coordinator: Coordinator, *, often: float = 0.2, seldom: float = 0.05) -> Floats:
    """Subtract from the sums of a column the values that many rows share, as equal means tell.

    The rest is the value of a row that is alone among them, or twice that of two.

    ``often``: where it pays to guess: the smallest share of the sums whose rows seem to agree.
    ``seldom``: the largest share of a column's steps that are claimed, as others hit by chance.
    """
    public, lines = coordinator.public, dump(coordinator)
    lines, found = lines[lines[:, -1] > 1], [public.claims(0)]
    for j in range(len(public.numbers)):
        means, times = np.unique((lines[:, j] / lines[:, -1]).round(DECIMALS), return_counts=True)
        if times.max(initial=0) < often * len(lines):
            continue
        # values of a column that are guessed to be shared by many rows
        known = np.unique([*means[np.argsort(-times, kind="stable")][:3], 0.0])
        pairs = [(a, b) for a in known for b in known]
        rest = np.concatenate([_alone(lines[:, [j, -1]], *pair) for pair in pairs])
        steps = (rest / public.step[j]).round(DECIMALS)
        inside = (rest > public.low[j]) & (rest < public.high[j])
        rest = np.setdiff1d(rest[inside & (steps == steps.round())], known)
        if len(rest) < seldom * public.width[j] / public.step[j]:
            found.append(public.claims(len(rest)))
            found[-1][:, j] = rest
    return np.concatenate(found)


def _alone(lines: Floats, a: float, b: float) -> Floats:
    """Return what is left of sums (l, 2), with weights, if all rows but one or two have a or b."""
    sums, weights = lines.T
    left = [
        (sums - (weights - n - i) * a - i * b)[weights > n + i] / n
        for n in (1, 2)
        for i in range(int(weights.max(initial=0)) if a != b else 1)
    ]
    return np.concatenate(left).round(DECIMALS)


def other_columns(play: AttackRun) -> Floats:
    """Ask for the same rows in other orders and scales, and without some columns."""
    public, d, lines = play.public, len(play.public.numbers), []
    for start in range(d):
        order = [(start + i) % d for i in range(d)]
        units = (2.0**start) * public.width
        columns = tuple(public.column(j, scale=float(units[j])) for j in order)
        dumped = dump(play.coordinator, Preprocessor(columns))
        back = np.argsort(order)
        lines.append(np.column_stack([dumped[:, :-1][:, back] * units, dumped[:, -1]]))
    found = [subtracted(_that_differ(lines), public)]
    for j in range(d if d > 1 else 0):
        kept = [i for i in range(d) if i != j]
        some = dump(play.coordinator, Preprocessor(tuple(public.column(i) for i in kept)))
        part = replace(
            public,
            numbers=tuple(public.numbers[i] for i in kept),
            **{name: getattr(public, name)[kept] for name in ("low", "high", "step")},
        )
        whole = lines[0][:, [*kept, d]] if len(lines[0]) else np.empty((0, d))
        claims = subtracted(_that_differ([whole, some]), part)
        found.append(np.insert(claims, j, np.nan, axis=1))
    return np.concatenate(found)


def _that_differ(dumps: Sequence[Floats]) -> list[Floats]:
    """Return the lines that are not in all dumps; there are none if the groups are the same."""
    every = [{tuple(line) for line in each.round(4).tolist()} for each in dumps]
    same = set.intersection(*every)
    return [np.array([*each - same]).reshape(-1, dumps[0].shape[1]) for each in every]


def all_rows_but_one(play: AttackRun) -> Floats:
    """Find one row by subtracting all other rows, which are known, from a sum."""
    total = total_of(play.coordinator)
    if total is None:
        return play.public.claims(0)
    rows = play.numbers
    if play.subject.protection.groups is None:
        return play.public.records(total[:-1] - (rows.sum(axis=0) - rows[:TARGETS]))
    claims, groups = [], dump(play.coordinator)
    for mine in (rows[group] for group in play.groups[:TARGETS]):
        nearest = abs(groups[:, :-1] / groups[:, -1:] - mine.mean(axis=0)).sum(axis=1).argmin()
        claims.append(groups[nearest, :-1] - mine[1:].sum(axis=0))
    return play.public.records(np.array(claims).reshape(-1, rows.shape[1]))


def smaller_cohort(play: AttackRun, *, n_others: int = 4) -> Floats:
    """Ask for secure sums over all sites, then over all except this one, and subtract.

    The difference would be the sums of this site, of which all rows except one are known. So would
    be the total over this site and two that have too few rows to tell of.

    ``n_others``: number of other sites in secure sums with the attacked one.
    """
    public, others = play.public, play.subject.others
    names = ["north", *(f"site {i}" for i in range(n_others))]
    every = {"north": play.subject}
    for i, name in enumerate(names[1:]):
        rows = others.take(np.arange(i % len(others), len(others), n_others))
        every[name] = replace(play.subject, rows=rows, folder=play.subject.folder / name)
        every[name].folder.mkdir()
    few = {}
    for name in names[1:3]:
        folder = play.subject.folder / f"few at {name}"
        folder.mkdir()
        few[name] = replace(every[name], rows=others.take(slice(1)), folder=folder)
    totals = _secure_totals(play, every, (names, names[1:]))
    found = [totals[0] - totals[1]] if len(totals) > 1 else []
    found += _secure_totals(play, {"north": play.subject, **few}, (names[:3],))
    return np.concatenate([public.claims(0), *(_all_but_one_known(play, each) for each in found)])


def _secure_totals(
    play: AttackRun, sites: Mapping[str, AttackedSite], cohorts: Sequence[Sequence[str]]
) -> list[Floats]:
    """Return the secure sums over cohorts of sites, as far as the sites answer."""
    try:
        from fedcluster_app.secure import engine, site
    except ImportError:  # secure sums need an extra, which may be missing
        return []
    public, secure = play.public, site.SecureSite.strangers(list(sites))
    task = Task(Means(), State(), preprocessor=public.plain())
    ends = {name: each.coordinator(public, name, secure[name]) for name, each in sites.items()}
    wire = SitesHere({name: each.responder for name, each in ends.items()})
    totals = []
    for cohort in cohorts:
        play.coordinator.asked += 1
        asking = engine.SecureEngine(wire, cohort)
        asking.choose([column.name for column in public.columns], raw=True)
        with suppress(SiteError, InputError):
            totals.append(asking.ask([task])[0].total().sums[:, 0])
    play.coordinator.refused += len(cohorts) - len(totals)
    return totals


def _all_but_one_known(play: AttackRun, total: Floats) -> Floats:
    """Return a row of some groups, from the sums of the site and all of its other rows."""
    values, groups = values_of(play.subject.rows, play.public)[:, :-1], play.groups
    there = np.array([(~np.isnan(values[rows])).sum(axis=0) for rows in groups])
    protection = play.subject.protection.groups
    # means of fewer rows are never published
    there[there < (1 if protection is None else protection.p)] = 0
    sums = np.array([np.nansum(values[rows], axis=0) for rows in groups])
    sizes = np.array([[len(rows)] for rows in groups])
    totals = sizes * np.where(there, sums / np.maximum(there, 1), play.public.middle)
    own = (total - (totals.sum(axis=0) - totals)) * there / sizes
    mine = np.nan_to_num(values[[rows[0] for rows in groups]])
    own[there == 0] = np.nan
    return play.public.records((own - (sums - mine))[:TARGETS])
