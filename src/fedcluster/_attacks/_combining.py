"""Attacks that combine many answers: differences, whole runs, equations, versions of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from fedcluster._attacks._coordinator import Coordinator, Public
from fedcluster._attacks._play import Play, changed, solved, without
from fedcluster._attacks._search import total_of
from fedcluster.algorithms import KFed, Lloyd, SiteSummaries, VarianceTree
from fedcluster.core import Answers, Data, Floats, SiteInfo, State, Summary, Task
from fedcluster.engines._remote import RemoteEngine
from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import Fit, SelectK, plan_of
from fedcluster.metrics.clusters import Scatter
from fedcluster.metrics.moments import Moments
from fedcluster.preprocessing import Preprocessor
from fedcluster.recipes import evaluation
from fedcluster.rounds import run_plan, with_preprocessing

CLUSTERS = 6
QUESTIONS = 80
"""Questions about random centres."""
TOGETHER = 12
"""Lines of an answer up to which two of them are added before they are compared."""
LINES = 20_000
TARGETS = 10
EDITS = 8


class Recorder:
    """Engine that asks one site and keeps what was asked and answered."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._engine = RemoteEngine(self, ["north"])
        columns = [column.name for column in coordinator.public.columns]
        self._engine.choose(columns, raw=True)
        self.kept: list[tuple[Task, Summary]] = []

    def exchange(
        self, messages: Mapping[str, bytes], enough: int
    ) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        """Carry a message to the site."""
        return {name: self._coordinator.responder.reply(m) for name, m in messages.items()}, {}

    def introduce(self, **asked: Any) -> tuple[SiteInfo, ...]:
        """Return what the site tells of itself."""
        return self._engine.introduce(**asked)

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Carry the tasks of a round to the site."""
        self._coordinator.asked += len(tasks)
        answers = self._engine.ask(tasks, sites)
        self.kept += [(t, a.total()) for t, a in zip(tasks, answers, strict=True)]
        return answers


def run_of(coordinator: Coordinator) -> list[tuple[Task, Summary]]:
    """Return all that a clustering, a choice of k and an evaluation asked and were answered."""
    recorder, how = Recorder(coordinator), coordinator.public.plain()
    try:
        sites = recorder.introduce()
        fit = run_plan(with_preprocessing(plan_of(Fit(CLUSTERS), sites), how), recorder)
        run_plan(with_preprocessing(plan_of(SelectK(k_max=CLUSTERS), sites), how), recorder)
        state = State(fit.value.state.centers, fit.value.state.weights)
        run_plan(with_preprocessing(evaluation(state), how), recorder)
    except SiteError:
        coordinator.refused += 1
    return recorder.kept


def summed(task: Task, answer: Summary, d: int) -> Floats:
    """Return the sums over rows in the lines of an answer, (l, d + 1), the last one the weight."""
    sums = answer.sums[:, :d]
    if isinstance(task.step, Scatter):
        sums = sums + answer.weights[:, None] * task.state.centers
    if not isinstance(task.step, Lloyd | Scatter | SiteSummaries | VarianceTree | KFed):
        return np.empty((0, d + 1))
    return np.column_stack([sums, answer.weights])[answer.weights > 0]


def subtracted(answers: Iterable[Floats], public: Public) -> Floats:
    """Return differences of all lines, and of pairs of lines of one answer, that weigh 1."""
    lines = []
    for each in answers:
        lines.append(each)
        if 1 < len(each) <= TOGETHER:
            lines.append(np.array([a + b for a, b in combinations(each, 2)]))
    d = len(public.numbers)
    every = np.unique(np.concatenate([np.empty((0, d + 1)), *lines]).round(6), axis=0)[:LINES]
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
    """Return which rows lie in the ranges of the columns and on their steps, (n,)."""
    inside = (rows >= public.low).all(axis=1) & (rows <= public.high).all(axis=1)
    steps = rows / public.step
    return np.asarray(inside & (abs(steps - steps.round()) < 0.02).all(axis=1))


def pairs_of_a_run(play: Play) -> Floats:
    """Subtract all sums of a clustering, a choice of k and an evaluation from each other."""
    d = len(play.public.numbers)
    return subtracted((summed(t, a, d) for t, a in run_of(play.coordinator)), play.public)


def trajectories(play: Play) -> Floats:
    """Solve for the rows from the sums of a run, who is in which cluster being known."""
    lloyd = [(t, a) for t, a in run_of(play.coordinator) if isinstance(t.step, Lloyd)]
    return _solved(play, lloyd)


def equations(play: Play) -> Floats:
    """Solve for the rows from sums about many random centres, who is where being known."""
    rng, public = np.random.default_rng(0), play.public
    centers = rng.uniform(public.low, public.high, (QUESTIONS, CLUSTERS, len(public.numbers)))
    tasks = [Task(Lloyd(), State.at(c), preprocessor=public.plain()) for c in centers]
    answers = zip(tasks, play.coordinator.ask(tasks), strict=True)
    return _solved(play, [(t, a) for t, a in answers if a is not None])


def _solved(play: Play, kept: Sequence[tuple[Task, Summary]]) -> Floats:
    d = len(play.public.numbers)
    behind, sums = [np.empty((0, len(play.units)))], [np.empty((0, d))]
    for task, answer in kept:
        said = answer.weights > 0
        behind.append(play.lines(task.state.centers)[said].astype(float))
        sums.append(answer.sums[said, :d])
    lines, places = np.unique(np.concatenate(behind), axis=0, return_index=True)
    return play.public.records(solved(lines, np.concatenate(sums)[places]))


def dump(coordinator: Coordinator, how: Preprocessor | None = None) -> Floats:
    """Return as many lines as the site tells at once, (l, d + 1): its groups, if it has any."""
    how = how or coordinator.public.plain()
    for most in (100_000, 1_000, 100, 20):
        for step in (KFed(most), SiteSummaries(most, min_rows=1)):
            answer = coordinator.ask_one(step, how=how)
            if answer is not None:
                said = answer.weights > 0
                return np.column_stack([answer.sums, answer.weights])[said]
    return np.empty((0, how.n_columns_out + 1))


def other_columns(play: Play) -> Floats:
    """Ask for the same rows in other orders and scales, and without some of the columns."""
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
    """Return the lines that are not in all of some dumps: of the same groups there are none."""
    every = [{tuple(line) for line in each.round(4).tolist()} for each in dumps]
    same = set.intersection(*every)
    return [np.array([*each - same]).reshape(-1, dumps[0].shape[1]) for each in every]


# Versions of the rows


def _over(play: Play, versions: Iterable[Data]) -> tuple[list[Play], Floats]:
    """Return the site in each version, and the differences of its totals and of all its lines."""
    plays, lines = [play], []
    for rows in versions:
        try:
            plays.append(play.version(rows))
        except InputError:  # the site refuses to open rows most of which are others
            play.coordinator.refused += 1
            break
    for each in plays:
        total = total_of(each.coordinator)
        lines += [] if total is None else [total[None, :]]
        lines.append(dump(each.coordinator))
    return plays, subtracted(lines, play.public)


def removed_rows(play: Play) -> Floats:
    """Ask for the total and all groups before and after single rows are removed."""
    versions, rows = [], play.subject.rows
    for _ in range(min(TARGETS, len(rows) // 4)):
        rows = without(rows, 0)
        versions.append(rows)
    return _over(play, versions)[1]


def added_rows(play: Play) -> Floats:
    """Ask for the total and all groups before and after single rows are added."""
    every, n = play.subject.rows, len(play.subject.rows)
    first = min(TARGETS, n // 4)
    play.subject = play.subject.version(every.take(slice(first, n)))
    return _over(play, [every.take(slice(first - 1 - i, n)) for i in range(first)])[1]


def changed_rows(play: Play) -> Floats:
    """Ask for the total and all groups before and after single rows change in one column."""
    rows, versions = play.subject.rows, []
    column = play.public.widest[-1]
    place = [c.name for c in play.public.columns].index(play.public.numbers[column])
    for row in range(min(TARGETS, len(rows) // 4)):
        rows = changed(rows, np.array([row]), place, float(play.public.step[column]))
        versions.append(rows)
    plays, claims = _over(play, versions)
    claims[:, column] = np.nan
    return np.concatenate([claims, _moved(plays, column)])


def _moved(plays: Sequence[Play], column: int) -> Floats:
    """Return values before they changed, from the sums of a column and of its squares."""
    public, places = plays[0].public, [column, len(plays[0].public.numbers) + column]
    answers = [p.coordinator.ask_one(Moments(), how=public.plain()) for p in plays]
    values = [[*a.sums[0, places], a.weights[0]] for a in answers if a is not None]
    apart = np.diff(np.array(values).reshape(-1, 3), axis=0)
    moved = apart[(abs(apart[:, 0]) > 1e-9) & (apart[:, 2] == 0)]  # else a group has left
    claims = public.claims(len(moved))
    claims[:, column] = (moved[:, 1] / moved[:, 0] - moved[:, 0]) / 2
    return claims


def many_versions(play: Play) -> Floats:
    """Solve for rows over twenty versions, five rows more and three fewer, who is where known."""
    every, rng = play.subject.rows, np.random.default_rng(0)
    n = len(every)
    waiting, here = list(range(n - min(100, n // 3), n)), list(range(n - min(100, n // 3)))
    play.subject = play.subject.version(every.take(np.array(here)))
    kept, versions = [np.array(here)], list[Data]()
    while len(waiting) >= 5 and len(versions) < 20:
        gone = set(rng.choice(here, 3, replace=False).tolist())
        here = [row for row in here if row not in gone] + [waiting.pop() for _ in range(5)]
        kept.append(np.array(here))
        versions.append(every.take(np.array(here)))
    plays, claims = _over(play, versions)
    return np.concatenate([claims, _solved_over(plays, kept[: len(plays)], n)])


def edited_rows(play: Play) -> Floats:
    """Solve for rows, two in five of which change in one column each time, who is where known."""
    rows, column = play.subject.rows, play.public.widest[-1]
    place = [c.name for c in play.public.columns].index(play.public.numbers[column])
    rng, every, versions = np.random.default_rng(0), np.arange(len(rows)), list[Data]()
    for _ in range(EDITS):
        some = rng.choice(every, 2 * len(every) // 5, replace=False)
        rows = changed(rows, some, place, float(play.public.step[column]))
        versions.append(rows)
    plays, claims = _over(play, versions)
    claims = np.concatenate([claims, _solved_over(plays, [every] * len(plays), len(rows))])
    claims[:, column] = np.nan
    return claims


def _solved_over(plays: Sequence[Play], kept: Sequence[np.ndarray], n: int) -> Floats:
    """Return rows solved for from the groups of all versions, who is in which being known."""
    behind, sums = [np.empty((0, n))], [np.empty((0, len(plays[0].public.numbers)))]
    for play, rows in zip(plays, kept, strict=True):
        if play.subject.protection.groups is None:
            continue
        units = play.units
        line = (units == np.unique(units[units >= 0])[:, None]).astype(float)
        here = np.zeros((len(line), n))
        here[:, rows] = line
        behind.append(here)
        sums.append(line @ play.numbers)
    lines, places = np.unique(np.concatenate(behind), axis=0, return_index=True)
    return plays[0].public.records(solved(lines, np.concatenate(sums)[places]))


def all_rows_but_one(play: Play) -> Floats:
    """Subtract all rows but one, which are known, from the sum of all, or of a group."""
    total = total_of(play.coordinator)
    if total is None:
        return play.public.claims(0)
    rows, units = play.numbers, play.units
    if play.subject.protection.groups is None:
        return play.public.records(total[:-1] - (rows.sum(axis=0) - rows[:TARGETS]))
    claims, told = [], dump(play.coordinator)
    for unit in np.unique(units[units >= 0])[:TARGETS]:
        mine = rows[units == unit]
        nearest = abs(told[:, :-1] / told[:, -1:] - mine.mean(axis=0)).sum(axis=1).argmin()
        claims.append(told[nearest, :-1] - mine[1:].sum(axis=0))
    return play.public.records(np.array(claims).reshape(-1, rows.shape[1]))
