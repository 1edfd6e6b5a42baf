"""Attacks on what leaves beside sums of rows: names, labels, files, noise and permitted steps.

Each returns claims of rows, or how many values or persons it read, which then needs no guess.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from warnings import catch_warnings

import numpy as np

from fedcluster.algorithms import FFCM, FKM, FedAvg, Lloyd
from fedcluster.algorithms.private import BallScatter, BoxMoments, RelativeLloyd
from fedcluster.core import Column, Data, Floats, Sensitive, State, Step, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.engines.wire import unpack
from fedcluster.errors import InputError
from fedcluster.frames.columns import columns_of
from fedcluster.jobs import execute, fit_of
from fedcluster.model.assigned_rows import AssignedRows
from fedcluster.preprocessing import PreprocessingSpec, Preprocessor
from fedcluster.privacy import Groups
from fedcluster.privacy.disclosure import Disclosure, scales
from fedcluster_app.audit._combining import TARGETS, subtracted
from fedcluster_app.audit._site import Ids, Play, owners
from fedcluster_app.report.job_files import write_job
from fedcluster_app.report.release_check import findings
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.means import group_once
from fedcluster_app.trust.permits import Asked
from fedcluster_app.wire.remote import Question

FEW = ("of few", "of many")
"""Texts and labels, the first of which one row less than a group has."""


def a_row_that_waits(play: Play) -> int:
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


def rounded_counts(play: Play) -> int:
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
    except ValueError:  # there are too few rows for groups of ten, or a column has no value
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


def names_that_are_values(play: Play) -> Floats:
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


def means_of_sessions(play: Play) -> Floats:
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


def beyond_the_noise(play: Play) -> int:
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

    def told(person: Floats) -> Floats:
        groups = np.append(np.full(len(person), who), whose[whose != who])
        rows = Data(np.concatenate([person, others]), groups=groups)
        bounded = Client("north", rows, Disclosure(rows_per_person=1)).bounded(rows)
        exact = step.client_step(task.state, bounded, np.random.default_rng(0))
        return np.concatenate([exact.sums.ravel() / scale[0], exact.weights / scale[1]])

    corner, without = np.where(mine[:1] < 0, -1.0, 1.0), told(mine[:0])
    more = [np.concatenate([each, mine]) for each in (corner, -corner)]
    return max(float(np.linalg.norm(told(each) - without)) for each in (mine, mine[::-1], *more))


def steps_in_preparations(play: Play) -> int:
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
