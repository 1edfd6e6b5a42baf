"""Work of the commands between the arguments and the screen: cluster, label, write."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedcluster import jobs
from fedcluster.cli._naming import TABLES, Joining
from fedcluster.core import Filter, Labels
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import InputError
from fedcluster.io.outputs import atomic_folder, label_files, write_labels
from fedcluster.io.rows import SiteRows, chunks_of
from fedcluster.jobs import Fit, Job, JobReport, KJob
from fedcluster.model import Model
from fedcluster.options.refusals import refused
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.report.page import REPORT
from fedcluster.report.records import SiteRecord, site_record
from fedcluster.report.tables import centers_table, index_table, verdict_line
from fedcluster.selection import Selection
from fedcluster.texts.html import Table

Counts = dict[str, dict[str, int]]
"""By site and column."""
Doing = Callable[[str], None]
ALONE = Joining()
"""Clusters without anything of the rows' tables."""


@dataclass(frozen=True, slots=True, eq=False)
class FittedSites:
    """A fit on rows of this machine.

    Parameters
    ----------
    report : JobReport
        What came of the job.
    model : Model
        The clusters that were found.
    tables : mapping of str to SiteRows
        The rows of each site.
    labels : mapping of str to ndarray of shape (n,)
        The cluster of each row, by site.
    records : tuple of SiteRecord
        What each site holds and sent.
    """

    report: JobReport
    model: Model
    tables: Mapping[str, SiteRows]
    labels: Mapping[str, Labels]
    records: tuple[SiteRecord, ...]

    @property
    def selection(self) -> Selection | None:
        """Return why there are so many clusters, where that was asked."""
        value = self.report.outcome.value
        return value if isinstance(value, Selection) else None

    def with_decisions(self, left_out: Mapping[str, str], notes: Sequence[str]) -> Self:
        """Return the fit with what was decided on columns before."""
        return replace(self, report=self.report.with_decisions(left_out, notes))

    @property
    def warnings(self) -> list[str]:
        """Return what casts a doubt on the result."""
        doubts = jobs.doubts_of(self.report, self.labels.values())
        chosen = self.selection.warnings if self.selection else ()
        return [*self.report.fit_report.warnings, *doubts, *chosen]

    def shown(self, width: int, elsewhere: str) -> list[Table | str]:
        """Return why there are so many clusters, what was prepared, and the centres in units."""
        shown = [] if self.selection is None else verdict(self.selection)
        if self.model.preprocessor is None:
            return shown
        table = centers_table(self.model.preprocessor, self.model.centers, width, elsewhere)
        return [*shown, *self.report.prepared, *([table] if table else [])]


def with_dates(job: KJob, dates: Mapping[str, str]) -> KJob:
    """Return the job, whose preparation knows what became of dates."""
    prepare = job.prepare
    if not dates or not isinstance(prepare, PreprocessingSpec):
        return job
    return replace(job, prepare=replace(prepare, dates=dates))


def check_rows(options: Mapping[str, int], tables: Mapping[str, SiteRows]) -> int:
    """Return the number of rows; refuse options that ask for more clusters than that."""
    rows = sum(map(len, tables.values()))
    for option, k in options.items():
        if k > rows:
            raise InputError(
                f"{option} {k} asks for more clusters than there are rows in all ({rows}); "
                f"ask for at most {rows}"
            )
    return rows


def clients_of(
    tables: Mapping[str, SiteRows], limits: Sequence[Filter], min_cluster_size: int | None = None
) -> list[Client]:
    """Return the sites as they answer, with their own limits or else these.

    Raises
    ------
    InputError
        If a smallest cluster is given for sites that have limits of their own.
    """
    if min_cluster_size is not None and any(each.limits is not None for each in tables.values()):
        raise refused("site-file-limits")
    return [
        Client(name, table.rows, limits if table.limits is None else table.limits)
        if table.protected is None
        else table.protected(table.columns, limits)
        for name, table in tables.items()
    ]


def carry_out(
    job: Job, clients: Sequence[Client], columns: Sequence[str], doing: Doing
) -> JobReport:
    """Carry a job out at sites of this machine, and say after each round how far it is."""
    rounds = itertools.count(1)
    if isinstance(job, Fit) and job.epsilon is not None:
        for client in clients:
            client.rows_per_person = job.group_size
    return jobs.execute(
        job,
        LocalEngine(clients),
        columns=columns,
        watch=lambda each: doing(f"round {next(rounds)} done with {len(each.answered)} sites"),
    )


def cluster(
    job: Fit,
    tables: Mapping[str, SiteRows],
    doing: Doing,
    min_cluster_size: int | None = None,
) -> FittedSites:
    """Find clusters, and label the rows of each site."""
    ks = jobs.tried(job.n_clusters, 1)
    check_rows({"-k": job.n_clusters if ks is None else ks[-1]}, tables)
    clients = clients_of(tables, jobs.limits_of(job, min_cluster_size), min_cluster_size)
    doing("clustering")
    report = carry_out(job, clients, columns_of(tables), doing)
    narrow = all(table.dtype == np.float32 for table in tables.values())
    model = jobs.model_of(
        report,
        dtype="float32" if narrow else "float64",
        min_cluster_size=min_cluster_size or "auto",
    )
    labels, files = label(model, tables), label_files(list(tables))
    records = tuple(
        record_of(client, report, labels[client.name], len(model.centers), files[client.name])
        for client in sorted(clients, key=lambda client: client.name)
    )
    return FittedSites(report, model, tables, labels, records)


def columns_of(tables: Mapping[str, SiteRows]) -> tuple[str, ...]:
    """Return the columns of the first site, which are those of all where rows are as they are."""
    return next(iter(tables.values())).columns


def record_of(
    client: Client, report: JobReport, labels: Labels, k: int, file: str = ""
) -> SiteRecord:
    """Return what a site of this machine holds and sent."""
    return site_record(
        client.name,
        labels,
        k,
        file,
        values_sent=report.outcome.values_sent().get(client.name, 0),
        limits=client.site.limits,
        rows_held_back=client.most_rows_held_back,
        lone_rows=client.most_lone_rows,
        values_held=len(labels) * len(report.columns),
    )


def write(
    out: Path,
    fitted: FittedSites,
    draw: Callable[[Path], list[str]] = lambda _folder: [],
    joining: Joining = ALONE,
    *,
    report: bool = True,
    **more: Any,
) -> tuple[dict[str, Any], list[str]]:
    """Write the outputs of a fit; returns what happened and the files, relative to the folder.

    ``draw(folder)`` may add files, whose names it returns; ``more`` goes into the history. With
    tables to join, labels have the rows' keys, and the tables are written; with ``report`` the
    page on the run, too.
    """
    labels = {record.name: record.labels for record in fitted.records}
    content = jobs.content_of(fitted.report, fitted.records) | {"warnings": fitted.warnings} | more
    with atomic_folder(out, obsolete=_of_earlier_run(out)) as folder:
        chosen = [] if fitted.selection is None else jobs.write_selection(folder, fitted.report)
        drawn = [*chosen, *draw(folder)]
        _write_labels(folder, labels, fitted.tables, fitted.labels, fitted.model, joining)
        fitted.model.save(folder / "model.json")
        files = ["model.json", "history.json", *drawn, *labels.values()]
        files += joining.files(list(labels.values()))
        page = out.name if report else None
        files = jobs.write_history(folder, fitted.report, content, files, page)
    return content, files


def write_found(out: Path | None, report: JobReport, content: Mapping[str, Any]) -> list[str]:
    """Write a choice of k, scores or profiles into a folder, if one is named; return the files."""
    if out is None:
        return []
    with atomic_folder(out) as folder:
        return jobs.write_report(folder, report, content)


def verdict(selection: Selection) -> list[Table | str]:
    """Return a choice of k as people see it: every index, and the verdict."""
    k, rule = selection.n_clusters, selection.rule
    return [
        index_table(k, rule, selection.says, selection.table),
        verdict_line(k, selection.reason),
    ]


def noticed(model: Model, tables: Mapping[str, SiteRows]) -> tuple[Counts, Counts]:
    """Return texts of new rows that a model does not know, and values that it fills in."""
    unknown: Counts = {}
    filled: Counts = {}
    if model.preprocessor is None:
        return unknown, filled
    for site, table in tables.items():
        texts, gaps = Counter[str](), Counter[str]()
        for part in chunks_of(table.rows):
            texts.update(model.preprocessor.unknown(part))
            gaps.update(model.preprocessor.filled(part))
        if texts:
            unknown[site] = dict(texts)
        if gaps:
            filled[site] = dict(gaps)
    return unknown, filled


def label(model: Model, tables: Mapping[str, SiteRows]) -> dict[str, Labels]:
    """Return the labels of each site's rows."""
    labels = {}
    for site, table in tables.items():
        try:
            labels[site] = np.concatenate([model.predict(part) for part in chunks_of(table.rows)])
        except InputError as error:
            raise InputError(f"site {site!r}: {error}") from error
    return labels


def write_labels_of(
    out: Path,
    model: Model,
    tables: Mapping[str, SiteRows],
    labels: Mapping[str, Labels],
    joining: Joining = ALONE,
) -> list[SiteRecord]:
    """Write the labels of new rows; returns what each site holds."""
    files = label_files(list(tables))
    with atomic_folder(out) as folder:
        _write_labels(folder, files, tables, labels, model, joining)
    k = len(model.centers)
    return [site_record(site, each, k, files[site]) for site, each in labels.items()]


def _write_labels(
    folder: Path,
    files: Mapping[str, str],
    tables: Mapping[str, SiteRows],
    labels: Mapping[str, Labels],
    model: Model,
    joining: Joining,
) -> None:
    (folder / "labels").mkdir()
    for site, table in tables.items():
        rows = table.data if model.preprocessor else table.data.X
        degrees = model.memberships(rows) if model.fuzzy else None
        keys = joining.keys(table)
        write_labels(folder / files[site], table.row_ids, labels[site], degrees, keys)
        joining.write(folder, files[site], table, model, labels[site])


def _of_earlier_run(out: Path) -> list[str]:
    """Return the labels, tables and report that an earlier fit wrote here, by its own account."""
    try:
        history = json.loads((out / "history.json").read_text("utf-8"))
        if history["format"] != jobs.HISTORY:
            return []
        files = [Path(name) for name in history["files"]]
    except (OSError, ValueError, LookupError, TypeError):
        return []
    folders = (Path("labels"), Path(TABLES))
    tables = [str(f) for f in files if f.parent in folders and f.suffix == ".csv"]
    return [*tables, *(str(f) for f in files if f == Path(REPORT))]


def result(content: Mapping[str, Any], out: Path | None, files: Sequence[str]) -> dict[str, Any]:
    """Return what ``--json`` prints of a job: what happened, and what was written."""
    return {**content, "out": None if out is None else str(out), "files": list(files)}


def unlabelled(labels: Mapping[str, Any]) -> list[str]:
    """Return how many rows of each site have no label."""
    counts = {site: int((each < 0).sum()) for site, each in labels.items()}
    some = [f"{n:,} of {site}" for site, n in counts.items() if n]
    return [f"Rows without a cluster (-1): {', '.join(some)}."] if some else []
