"""Attacks over versions of the rows and of what a site keeps: groups that change tell the rest.

And on what leaves beside sums of rows: names, labels, files, noise and permitted steps. Each
returns claims of rows, or how many values or persons it read, which then needs no guess.

Where it says "given the groups", the members of each sum are known, and all values that its sums
determine are solved for.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from warnings import catch_warnings

import numpy as np
from numpy.typing import NDArray

from fedcluster.algorithms import FFCM, FKM, FedAvg, Lloyd
from fedcluster.algorithms.private import BallScatter, BoxMoments, RelativeLloyd
from fedcluster.core import Column, Data, Floats, Sensitive, State, Step, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.engines.wire import unpack
from fedcluster.errors import InputError
from fedcluster.frames.columns import columns_of
from fedcluster.jobs import execute, fit_of
from fedcluster.metrics.moments import Moments
from fedcluster.model.assigned_rows import AssignedRows
from fedcluster.preprocessing import PreprocessingSpec, Preprocessor
from fedcluster.privacy import Groups
from fedcluster.privacy.disclosure import Disclosure, scales
from fedcluster_app.audit._asking import total_of
from fedcluster_app.audit._combining import TARGETS, dump, solved, subtracted
from fedcluster_app.audit._site import AttackRun, Ids, owners, values_of
from fedcluster_app.report.job_files import write_job
from fedcluster_app.report.release_check import findings
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.means import group_once
from fedcluster_app.trust.permits import Asked
from fedcluster_app.wire.remote import Question

FEW = ("of few", "of many")
"""Texts and labels, the first of which one row less than a group has."""


EDITS = 8
CHANGED = 10
"""One row in this many has another value in the last of three versions."""


def _over(play: AttackRun, versions: Iterable[Data]) -> tuple[list[AttackRun], Floats]:
    """Return the site in each version, and the differences of its totals and all its lines."""
    plays, lines = [play], []
    for rows in versions:
        if (after := play.tried(rows)) is None:
            break
        plays.append(after)
    for each in plays:
        total = total_of(each.coordinator)
        lines += [] if total is None else [total[None, :]]
        lines.append(dump(each.coordinator))
    return plays, subtracted(lines, play.public)


def following(plays: Sequence[AttackRun]) -> Floats:
    """Return claims of all values that follow from the sums of several versions, given the groups.

    An unknown is what a person (or a row) adds to a sum of a column; if it changes, it is another
    one. Of persons with several rows, it is the sum of these.
    """
    public = plays[0].public
    claims = public.claims(1 + max(int(play.whose.max(initial=-1)) for play in plays))
    for j in range(len(public.numbers)):
        unknowns: dict[tuple[int, float], int] = {}
        lines: dict[frozenset[int], float] = {}
        for play in plays:
            for amounts in _disclosed_amounts(play, j):
                line = [unknowns.setdefault(each, len(unknowns)) for each in amounts.items()]
                lines[frozenset(line)] = sum(amounts.values())
        behind = np.zeros((len(lines), len(unknowns)))
        for each, of_line in zip(behind, lines, strict=True):
            each[list(of_line)] = 1.0
        place, values = solved(behind, np.array([*lines.values()])[:, None])
        whose = np.array([who for who, _ in unknowns], dtype=np.int64)[place]
        claims[whose[::-1], j] = values[::-1, 0]  # reversed, so that the earliest value wins
    return claims


def _disclosed_amounts(play: AttackRun, j: int) -> Iterator[dict[int, float]]:
    """Yield, for each sum that is told of a column, what each person (or row) adds to it."""
    groups, rows = play.subject.protection.groups, play.subject.rows
    values, person = values_of(rows, play.public)[:, j], owners(rows)
    for members in play.groups if groups is not None else ():
        here = members[np.isfinite(values[members])]
        who, place = np.unique(play.whose[here], return_inverse=True)
        if groups is not None and len(np.unique(person[here])) >= groups.p:
            amounts = np.bincount(place, values[here]).round(9)
            yield dict(zip(who.tolist(), amounts.tolist(), strict=True))


def removed_rows(play: AttackRun) -> Floats:
    """Ask for the total and all groups before and after single rows are removed."""
    versions, rows = [], play.subject.rows
    for _ in range(min(TARGETS, len(rows) // 4)):
        rows = rows.take(slice(1, None))
        versions.append(rows)
    return _over(play, versions)[1]


def added_rows(play: AttackRun) -> Floats:
    """Ask for the total and all groups before and after single rows are added."""
    every, n = play.subject.rows, len(play.subject.rows)
    first = min(TARGETS, n // 4)
    play.begin(every.take(slice(first, n)))
    return _over(play, [every.take(slice(first - 1 - i, n)) for i in range(first)])[1]


def changed_rows(play: AttackRun) -> Floats:
    """Ask for the total and all groups before and after single rows change in one column."""
    rows, versions = play.subject.rows, []
    column = play.public.widest[-1]
    for row in range(min(TARGETS, len(rows) // 4)):
        rows = play.public.changed(rows, np.array([row]), column, float(play.public.step[column]))
        versions.append(rows)
    plays, claims = _over(play, versions)
    claims[:, column] = np.nan
    return np.concatenate([claims, _moved(plays, column)])


def _moved(plays: Sequence[AttackRun], column: int) -> Floats:
    """Return values before they changed, from the sums of a column and of its squares."""
    public, places = plays[0].public, [column, len(plays[0].public.numbers) + column]
    answers = [p.coordinator.ask_one(Moments(), how=public.plain()) for p in plays]
    values = [[*a.sums[0, places], a.weights[0]] for a in answers if a is not None]
    apart = np.diff(np.array(values).reshape(-1, 3), axis=0)
    moved = apart[(abs(apart[:, 0]) > 1e-9) & (apart[:, 2] == 0)]  # otherwise a group was removed
    claims = public.claims(len(moved))
    claims[:, column] = (moved[:, 1] / moved[:, 0] - moved[:, 0]) / 2
    return claims


def many_versions(play: AttackRun) -> Floats:
    """Solve for rows over twenty versions with rows added and removed, given the groups."""
    every, rng = play.subject.rows, np.random.default_rng(0)
    n = len(every)
    waiting, here = list(range(n - min(100, n // 3), n)), list(range(n - min(100, n // 3)))
    whose, versions = play.whose, list[Ids]()
    play.begin(every.take(np.array(here)), whose[here])
    while len(waiting) >= 5 and len(versions) < 20:
        gone = set(rng.choice(here, 3, replace=False).tolist())
        here = [row for row in here if row not in gone] + [waiting.pop() for _ in range(5)]
        versions.append(np.array(here))
    plays, claims = _over(play, [every.take(rows) for rows in versions])
    for after, rows in zip(plays[1:], versions, strict=False):
        after.whose = whose[rows]
    return np.concatenate([claims, following(plays)])


def edited_rows(play: AttackRun) -> Floats:
    """Solve for rows of which two in five change in one column each time, given the groups."""
    rows, column = play.subject.rows, play.public.widest[-1]
    rng, every, versions = np.random.default_rng(0), np.arange(len(rows)), list[Data]()
    for _ in range(EDITS):
        some = rng.choice(every, 2 * len(every) // 5, replace=False)
        rows = play.public.changed(rows, some, column, float(play.public.step[column]))
        versions.append(rows)
    plays, claims = _over(play, versions)
    claims[:, column] = np.nan
    return np.concatenate([claims, following(plays)])


def three_versions(play: AttackRun) -> Floats:
    """Subtract groups of persons in the first and third of three versions.

    In the second, a column has another unit. The members of each group, all unchanged values and
    the changed persons are known: if a group has one of these, the difference is that person's.
    """
    rows, column = play.subject.rows, play.public.widest[-1]
    rows = replace(rows, groups=owners(rows))
    few = np.random.default_rng(0).choice(len(rows), max(1, len(rows) // CHANGED), replace=False)
    earlier = play.public.changed(rows, few, column, -3.0 * float(play.public.step[column]))
    all_rows, place = np.arange(len(rows)), play.public.place(column)
    wrong = play.public.changed(earlier, all_rows, column, earlier.X[:, place])
    play.begin(earlier)
    plays = _and(play, [(wrong, play.whose), (rows, play.whose)])
    if len(plays) < 3 or play.subject.protection.groups is None:
        return play.public.claims(0)
    known, claims = play.numbers, []
    first, last = ({frozenset(g.tolist()) for g in p.groups} for p in (plays[0], plays[-1]))
    for members in first & last:
        some = sorted(set(few.tolist()) & members)
        if len(some) == 1:
            mine = sorted(members)
            claim = known[some[0]].copy()
            claim[column] += (plays[-1].numbers[mine] - known[mine])[:, column].sum()
            claims.append(claim)
    return play.public.records(np.array(claims).reshape(-1, known.shape[1]))


def persons_named_later(play: AttackRun) -> Floats:
    """Solve for rows from groups of rows and of persons, given the members of each."""
    rows = play.subject.rows
    play.begin(replace(rows, groups=None))
    persons = owners(rows)
    return following(_and(play, [(replace(rows, groups=persons), np.arange(len(rows)))]))


def _and(play: AttackRun, versions: Iterable[tuple[Data, Ids]]) -> list[AttackRun]:
    """Return the site, and the site in each version that it does not refuse."""
    _ = play.units
    tried = (play.tried(rows, whose) for rows, whose in versions)
    return [play, *(after for after in tried if after is not None)]


class Renamed:
    """Persons who come, go, come back and are corrected, under identities written otherwise.

    Parameters
    ----------
    rows : Data
        All rows, half of whose persons are there at first.
    seed : int
        The seed of what happens, and how often.
    """

    def __init__(self, rows: Data, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.rows, self.X, self.person = rows, rows.X.copy(), owners(rows)
        n = int(self.person.max()) + 1
        self.there, self.ids = np.arange(n) < n // 2, rng.permutation(n)
        self.ever = self.there.copy()
        self.rates, self.are_all = rng.choice([0.0, 0.05, 0.2], 5), rng.random() < 0.5

    def version(self) -> tuple[Data, Ids]:
        """Return the rows as they are now, and the person of each."""
        some = self.there[self.person]
        whose = self.person[some]
        return replace(self.rows, X=self.X, groups=self.ids[self.person]).take(some), whose

    def _some(self, event: int, of: NDArray[np.bool_]) -> Ids:
        there: Ids = np.flatnonzero(of)
        some: Ids = there[self.rng.random(len(there)) < self.rates[event]]
        return some

    def _names(self, n: int) -> Ids:
        """Return new identities, (n,), without an order."""
        return 1 + int(self.ids.max()) + self.rng.permutation(n)

    def change(self, columns: Sequence[int]) -> None:
        """Correct values of columns, let persons go, come back and come, and rename them."""
        rng = self.rng
        for who in self._some(0, self.there):
            row, j = rng.choice(np.flatnonzero(self.person == who)), rng.choice(columns)
            self.X[row, j] = self.rows.X[rng.integers(len(self.X)), j]
        self.there[self._some(1, self.there)] = False
        back, new = self._some(2, ~self.there & self.ever), self._some(3, ~self.ever)
        self.there[back] = self.there[new] = self.ever[new] = True
        here = np.flatnonzero(self.there)
        if self.are_all and rng.random() < 0.5:
            self.ids = self._names(len(self.ids))
        if self.are_all and rng.random() < 0.3:
            self.ids[here] = rng.permutation(self.ids[here])
        part = self._some(4, self.there)
        self.ids[part] = self._names(len(part))


def renamed_persons(play: AttackRun) -> Floats:
    """Solve for values of persons who are renamed from version to version, given the groups."""
    found = []
    for seed in range(3):
        folder = play.subject.folder / f"history {seed}"
        folder.mkdir()
        each = AttackRun(replace(play.subject, folder=folder), play.public)
        found.append(renamed(each, seed))
        play.versions.append(each)
    return np.concatenate(found)


def renamed(play: AttackRun, seed: int) -> Floats:
    """Solve for values of persons in one history of renaming, given the groups."""
    history = Renamed(play.subject.rows, seed)
    columns = [play.public.place(j) for j in range(len(play.public.numbers))]
    play.begin(*history.version())

    def versions() -> Iterator[tuple[Data, Ids]]:
        for _ in range(EDITS - 1):
            history.change(columns)
            yield history.version()

    return following(_and(play, versions()))


def older_groups(play: AttackRun) -> Floats:
    """Put an older file of groups back, or take it away, before rows change; solve, given them."""
    every, whose, rng = play.subject.rows, play.whose, np.random.default_rng(0)
    file, n = play.subject.file, len(every)
    first = np.arange(n) < n - n // 4
    play.begin(every.take(first), whose[first])
    plays = _and(play, ())
    older = newest = file.read_bytes() if file.exists() else b""
    for i in range(EDITS if older else 0):
        if i % 2:
            file.unlink()
        else:
            file.write_bytes(older)
        rows = np.flatnonzero(first | (rng.random(n) < 0.7))
        if (after := play.tried(every.take(rows), whose[rows])) is None:
            file.write_bytes(newest)
        else:
            plays.append(after)
        newest = file.read_bytes()
    return following(plays)


def second_study(play: AttackRun) -> Floats:
    """Group the same rows for studies with other settings and files; solve, given the groups."""
    groups, rows = play.subject.protection.groups, play.subject.rows
    if groups is None:
        return play.public.claims(0)
    widths = play.public.width / play.public.step
    column = int(np.argmin(widths))  # sites recognise a row by half of its distinguishing columns
    moved = play.public.changed(rows, np.arange(len(rows)), column, float(play.public.step[column]))
    raised = groups.generation + 1
    studies = [
        (rows, replace(groups, p=groups.p + 1, min_rows=groups.min_rows + 1)),
        (rows, replace(groups, p=groups.p + 2, min_rows=groups.min_rows + 2, generation=raised)),
        (rows, replace(groups, scale="none", generation=raised)),
        (moved, replace(groups, generation=raised)),
        (rows.take(slice(1, None)), replace(groups, generation=raised)),
    ]
    plays = _and(play, ())
    for i, (each, other) in enumerate(studies):
        study = replace(play.subject.protection, name=f"study {i}", groups=other)
        after = play.tried(each, play.whose[-len(each) :], study)
        plays += [] if after is None else [after]
    return following(plays)


def a_rule_and_corrections(play: AttackRun) -> int:
    """Add a known number to a column while some values are corrected; count what follows of these.

    The sum of a group then changes by a multiple of it, and by what one of its persons is corrected
    by.
    """
    rows, public, column = play.subject.rows, play.public, play.public.widest[-1]
    rows = replace(rows, groups=owners(rows))
    play.begin(rows)
    some = np.flatnonzero(np.random.default_rng(0).random(len(rows)) < 1 / CHANGED)
    step = float(public.step[column])
    moved = public.changed(rows, np.arange(len(rows)), column, 100 * step)
    after = play.tried(public.changed(moved, some, column, 7 * step))
    if after is None or play.subject.protection.groups is None:
        return 0
    before, now = (dump(each.coordinator) for each in (play, after))
    others = [j for j in range(len(public.numbers)) if j != column]
    n_read = 0
    for line in now:
        alike = before[(abs(before[:, [*others, -1]] - line[[*others, -1]]) < 1e-6).all(axis=1)]
        apart = line[column] - alike[:, column] - 100 * step * line[-1]
        n_read += len(alike) == 1 and abs(apart[0] - 7 * step) < 1e-6
    return int(n_read)


def a_row_that_waits(play: AttackRun) -> int:
    """Count texts and labels that appear as a row is added which is in no group yet."""
    rows, n = play.subject.rows, play.subject.protection.smallest - 1
    has, whose = np.arange(len(rows)) < n, owners(rows)
    rows = replace(
        rows,
        X=np.column_stack([rows.X, np.where(has, 0.0, 1.0)]),
        y=np.where(has, *FEW),
        columns=(*columns_of(rows), Column(FEW[0], "text", FEW)),
        groups=None if rows.groups is None else whose,
    )
    more = rows.take(np.append(np.arange(len(rows)), 0))
    if rows.groups is not None:
        more = replace(more, groups=np.append(whose, whose.max() + 1))
    play.begin(rows)
    before, after = play.coordinator.facts(), play.tried(more)
    return 0 if after is None else len(after.coordinator.facts() - before)


def rounded_counts(play: AttackRun) -> int:
    """Count what published files of three sites with rounded counts tell beyond these."""
    rows, out = play.subject.rows, play.subject.folder / "published"
    X = rows.X[:, [play.public.place(j) for j in range(len(play.public.numbers))]]
    columns = tuple(Column(name) for name in play.public.numbers)
    parts = (Data(X[i::3], columns=columns) for i in range(3))
    clients = [Client(f"site {i}", each, (), Groups.strict()) for i, each in enumerate(parts)]
    job = fit_of(3, seed=0, prepare=PreprocessingSpec(missing="mean"), profile=True)
    play.coordinator.asked += 1
    try:
        with catch_warnings(action="ignore"):
            report = execute(job, LocalEngine(clients), columns=play.public.numbers)
    except ValueError:  # too few rows for groups of ten, or an empty column
        play.coordinator.refused += 1
        return 0
    out.mkdir()
    write_job(out, report)
    return sum(len(findings(json.loads(path.read_text("utf-8")))) for path in out.glob("*.json"))


def _written(rows: Data, path: Path, header: Sequence[str]) -> SiteFile:
    """Write rows to a CSV file, with or without a header, and a site file beside it."""
    columns = columns_of(rows)
    with path.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerows([header] if header else [])
        for row in rows.X.tolist():
            lines.writerow(
                "" if x != x else c.levels[int(x)] if c.levels else f"{x:.10g}"
                for x, c in zip(row, columns, strict=True)
            )
    names = f"columns = {json.dumps([*header], ensure_ascii=False)}\n" if header else ""
    text = f'name = "north"\n{names}[source]\npath = "{path.stem}.csv"\n'
    path.with_suffix(".toml").write_text(text, encoding="utf-8")
    return SiteFile.load(path.with_suffix(".toml"))


def names_that_are_values(play: AttackRun) -> Floats:
    """Read the first row of a file without a header as the names of its columns."""
    public, rows, claims = play.public, play.subject.rows, []
    for i in range(min(TARGETS, len(rows))):
        play.coordinator.asked += 1
        try:
            site = _written(rows.take(slice(i, None)), play.subject.folder / f"{i}", ())
            names = site.for_network().told_names()
        except InputError:
            play.coordinator.refused += 1
            continue
        claim = public.claims(1)
        for j in range(len(public.numbers)):
            with_value = names[public.place(j)].replace(".", "").replace("-", "")
            claim[0, j] = float(names[public.place(j)]) if with_value.isdigit() else np.nan
        claims.append(claim)
    return np.concatenate([public.claims(0), *claims])


def means_of_sessions(play: AttackRun) -> Floats:
    """Write means of groups once for each session, of rows of which one more is gone; subtract."""
    rows, folder, lines = play.subject.rows, play.subject.folder / "sessions", list[Floats]()
    places = [play.public.place(j) for j in range(len(play.public.numbers))]
    folder.mkdir()
    for i in range(TARGETS):
        name = "rows" if i % 2 else f"session {i}"
        play.coordinator.asked += 1
        try:
            site = _written(rows.take(slice(i, None)), folder / name, _names(rows))
            group_once(site)
            means = site.means()
        except InputError:
            play.coordinator.refused += 1
            continue
        weight = np.asarray(means.sample_weight)[:, None]
        lines.append(np.hstack([means.X[:, places] * weight, weight]))
    return subtracted([each[np.isfinite(each).all(axis=1)] for each in lines], play.public)


def _names(rows: Data) -> list[str]:
    return [column.name for column in columns_of(rows)]


def beyond_the_noise(play: AttackRun) -> int:
    """Count persons who change an answer by more than the noise of a stated epsilon hides.

    By brute force over neighbours: without the person, with the person's rows in another order, and
    with a record more, which may swap which of them count.
    """
    public, rows, whose = play.public, play.subject.rows, owners(play.subject.rows)
    raw = rows.X[:, [public.place(j) for j in range(len(public.numbers))]]
    how = Preprocessor.in_box(public.numbers, public.low.tolist(), public.high.tolist())
    named = Data(raw, columns=tuple(Column(name) for name in public.numbers))
    X: Floats = how.apply(named).X.astype(np.float64)
    far = whose[np.argsort(-(X**2).sum(axis=1), kind="stable")][:TARGETS]
    d = X.shape[1]
    wide, near = (
        State(np.zeros((1, d)), np.zeros(1), memory={"radius": np.array([r])}) for r in (2.0, 0.5)
    )
    asked: list[tuple[Step, State]] = [(BoxMoments(), State()), (BallScatter(), near)]
    asked += [(RelativeLloyd(), wide), (RelativeLloyd(), near)]
    tasks = [Task(step, state) for step, state in asked]
    play.coordinator.asked += len(tasks)
    # Largest change, in units of what the noise is made for, up to rounding.
    return sum(
        any(_change(X, whose, who, each) > 1 + 1e-9 for each in tasks) for who in {*far.tolist()}
    )


def _change(X: Floats, whose: Ids, who: int, task: Task) -> float:
    """Return the largest change by a person, in units of what the noise is made for."""
    mine, others, step = X[whose == who], X[whose != who], task.step
    assert isinstance(step, Sensitive)
    scale = [each or np.inf for each in scales(step.sensitivity(task.state, X.shape[1]), 1.0)]

    def published(person: Floats) -> Floats:
        groups = np.append(np.full(len(person), who), whose[whose != who])
        rows = Data(np.concatenate([person, others]), groups=groups)
        bounded = Client("north", rows, Disclosure(rows_per_person=1)).bounded(rows)
        exact = step.client_step(task.state, bounded, np.random.default_rng(0))
        return np.concatenate([exact.sums.ravel() / scale[0], exact.weights / scale[1]])

    corner, without = np.where(mine[:1] < 0, -1.0, 1.0), published(mine[:0])
    more = [np.concatenate([each, mine]) for each in (corner, -corner)]
    return max(
        float(np.linalg.norm(published(each) - without)) for each in (mine, mine[::-1], *more)
    )


def steps_in_preparations(play: AttackRun) -> int:
    """Count steps that a permit does not see where rows are prepared by them."""
    public, n_unseen = play.public, 0
    state = State.at(np.array([public.low, public.high]))
    for step in (FFCM(), FKM(2), FedAvg()):
        how = AssignedRows(public.plain(), Task(step, state))
        message = Question({"run": "permits"}, [Task(Lloyd(), state, preprocessor=how)]).message
        asked = Asked.from_header(unpack(message)[0], "", public.numbers)
        n_unseen += type(step).__name__ not in asked.steps
        play.coordinator.asked += 1
    return n_unseen
