"""Jobs on local rows, for the commands: check a job, run it, write and show results."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcluster import jobs
from fedcluster.core import Data, Filter, Labels, RowStream
from fedcluster.core.files import plain
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import InputError
from fedcluster.frames.columns import SourceSummary, label_counts
from fedcluster.frames.rows import SiteRows, chunks_of, error_prefix
from fedcluster.jobs import Compare, Evaluate, Fit, Job, JobReport, Profile, SelectK
from fedcluster.model import Model
from fedcluster.model.run import Run
from fedcluster.options.refusals import refused
from fedcluster.preprocessing import FitReport, PreprocessingSpec
from fedcluster.preprocessing.comparison import unlike_sites
from fedcluster.preprocessing.screening import screened
from fedcluster.privacy import MinClusterSize, MinRows

if TYPE_CHECKING:
    from fedcluster.selection import Selection
from fedcluster.texts import NOTHING, Table, counted, shown
from fedcluster_app.cli._options import FileOptions
from fedcluster_app.cli._reading import TABLES, Joining, Reading, read
from fedcluster_app.cli._screen import Doing, silent, watching
from fedcluster_app.report import job_files
from fedcluster_app.report.messages import by_interest
from fedcluster_app.report.page import REPORT
from fedcluster_app.report.tables import (
    SiteRecord,
    beside,
    centers_table,
    index_table,
    names_table,
    site_record,
    verdict_line,
)
from fedcluster_app.tables.outputs import atomic_folder, label_files, write_labels

HELD = {"number": "numbers", "date": "dates", "mixed": "mixed", "empty": "nothing"}
"""Words for the content of a column in a comparison."""

STUDY = "study.toml"
Counts = dict[str, dict[str, int]]
"""Counts by site and column."""
Scores = Mapping[str, float]


def run_job(
    job: Job, rows: Reading, doing: Doing, min_cluster_size: int | None = None
) -> tuple[JobReport, list[Client]]:
    """Check a job, and run it at local sites.

    Parameters
    ----------
    job : Fit, SelectK, Evaluate, Profile or Compare
        The job.
    rows : Reading
        The rows of the sites, and the decisions about their columns.
    doing : Doing
        Shows the progress: before the first round, and after each one.
    min_cluster_size : int, optional
        The smallest cluster that a site without limits of its own sends.

    Returns
    -------
    report : JobReport
        The result.
    clients : list of Client
        The sites.

    Raises
    ------
    InputError
        If the job asks for more clusters than there are rows, or if ``min_cluster_size`` is given
        although sites have limits of their own.
    """
    columns: tuple[str, ...] = ()
    if isinstance(job, Fit | SelectK):
        columns = next(iter(rows.tables.values())).columns
        job = _within_rows(job, rows)
    procedure = jobs.procedure_of(job)

    clients = clients_of(rows.tables, _limits_of(job, rows.tables, min_cluster_size))
    if (most := procedure.rows_per_person) is not None:
        for client in clients:
            client.disclosure = replace(client.disclosure, rows_per_person=most)
    doing("asking the sites")
    engine = LocalEngine(clients)
    report = jobs.execute(job, engine, columns=columns, watch=watching(doing))
    return report.with_decisions(rows.left_out, rows.notes, rows.warnings), clients


def _within_rows(job: Fit | SelectK, rows: Reading) -> Fit | SelectK:
    """Return a job with at most as many clusters as rows, and with the conversion of dates.

    Raises
    ------
    InputError
        If an option explicitly asks for more clusters.
    """
    n_rows = sum(map(len, rows.tables.values()))
    if isinstance(job, Fit):
        ks = jobs.tried(job.n_clusters, 1)
        options = {"-k": job.n_clusters if ks is None else ks[-1]}
    else:
        options = {"--k-min": job.k_min, "--k-max": job.k_max or 0}
    for option, k in options.items():
        if k > n_rows:
            raise InputError(
                f"{option} {k} asks for more clusters than there are rows in all ({n_rows}); "
                f"ask for at most {n_rows}"
            )
    if isinstance(job.prepare, PreprocessingSpec):
        prepare = job.prepare.in_names(rows.names)
        job = replace(job, prepare=replace(prepare, dates=rows.dates) if rows.dates else prepare)
    return jobs.procedure_of(job).within(n_rows) if isinstance(job, SelectK) else job


def _limits_of(job: Job, tables: Mapping[str, SiteRows], smallest: int | None) -> list[Filter]:
    """Return the limits that apply to sites without limits of their own."""
    is_fit = isinstance(job, Fit | SelectK)
    is_said = smallest is not None and (is_fit or smallest > 1)
    if is_said and any(table.limits is not None for table in tables.values()):
        raise refused("site-file-own", option="--min-cluster-size")
    if isinstance(job, Fit | SelectK):
        return jobs.procedure_of(job).limits(smallest)
    bounded = [MinClusterSize(smallest)] if smallest is not None and smallest > 1 else []
    return [*([MinRows(2)] if len(tables) > 1 else []), *bounded]


def clients_of(tables: Mapping[str, SiteRows], limits: Sequence[Filter]) -> list[Client]:
    """Return the clients of the sites, with their own limits or else the given ones."""
    return [
        Client(name, table.rows, limits if table.limits is None else table.limits)
        if table.protected is None
        else table.protected(table.columns, limits)
        for name, table in tables.items()
    ]


def label(model: Model, rows: Mapping[str, Data | RowStream]) -> dict[str, Labels]:
    """Return the labels of each site's rows."""
    labels = {}
    for site, own in rows.items():
        if model.adjusts and not isinstance(own, Data):
            raise refused("adjust-site", what="rows in chunks")
        with error_prefix(f"site {site!r}"):
            labels[site] = np.concatenate([model.predict(part) for part in chunks_of(own)])
    return labels


def records_of(
    report: JobReport,
    labels: Iterable[tuple[str, Labels]],
    k: int,
    files: Mapping[str, str] | None = None,
    clients: Sequence[Client] = (),
) -> tuple[SiteRecord, ...]:
    """Return what each site holds and sent, by its labels; ``files`` are those of the labels."""
    sent = report.outcome.values_sent()
    kept = {
        each.name: {
            "limits": each.site.limits,
            "rows_held_back": each.most_rows_held_back,
            "lone_rows": each.most_lone_rows,
        }
        for each in clients
    }
    return tuple(
        site_record(
            name,
            each,
            k,
            "" if files is None else files[name],
            values_sent=sent.get(name, 0),
            values_held=len(each) * len(report.columns),
            **kept.get(name, {}),
        )
        for name, each in labels
    )


def _asked(
    job: Evaluate | Profile | Compare, rows: Reading, doing: Doing, min_cluster_size: int
) -> tuple[JobReport, tuple[SiteRecord, ...]]:
    """Run a job on a model; return its report, and what each site holds and sent.

    Rows of weight 0 do not count.
    """
    report, clients = run_job(job, rows, doing, min_cluster_size)
    labels = {
        client.name: np.concatenate(
            [job.model.predict(part.weighed()) for part in chunks_of(client.source)]
        )
        for client in clients
    }
    return report, records_of(report, labels.items(), len(job.model.weights), clients=clients)


def write_report(out: Path | None, report: JobReport, content: Mapping[str, Any]) -> list[str]:
    """Write a choice of k, scores or profiles, if a folder is given; return the file names."""
    if out is None:
        return []
    with atomic_folder(out) as folder:
        return job_files.write_report(folder, report, content)


def result(content: Mapping[str, Any], out: Path | None, files: Sequence[str]) -> dict[str, Any]:
    """Return what ``--json`` prints for a job: its content, and the written files."""
    return {**content, "out": None if out is None else str(out), "files": list(files)}


# fit and predict


@dataclass(frozen=True, slots=True, eq=False)
class FittedSites:
    """A fit on local rows.

    Parameters
    ----------
    report : JobReport
        The result of the job.
    model : Model
        The clusters.
    tables : mapping of str to SiteRows
        The rows of each site.
    labels : mapping of str to ndarray of shape (n,)
        The cluster of each row, by site.
    records : tuple of SiteRecord
        What each site holds and sent.
    doubts : sequence of str
        Doubts about the labels.
    """

    report: JobReport
    model: Model
    tables: Mapping[str, SiteRows]
    labels: Mapping[str, Labels]
    records: tuple[SiteRecord, ...]
    doubts: Sequence[str] = ()

    @property
    def selection(self) -> Selection | None:
        """The choice of the number of clusters; None if it was given."""
        return jobs.choice_of(self.report.outcome.value)

    @property
    def warnings(self) -> list[str]:
        """Doubts about the result."""
        doubts = jobs.procedure_of(self.report.job).doubts(self.report, self.labels or None)
        chosen = self.selection.warnings if self.selection else ()
        return [*self.report.fit_report.doubts, *doubts, *chosen, *self.doubts]

    def shown(self, width: int, out: Path) -> list[Table | str]:
        """Return the choice of k, the preparation of the rows, and the centres in units.

        ``out`` is the folder of their files.
        """
        choice, model = self.selection, self.model
        shown = [] if choice is None else verdict(choice, str(out / "selection.json"))
        if model.preprocessor is not None:
            path = str(out / "model.json")
            table = centers_table(model.preprocessor, model.centers, model.weights, width, path)
            shown += [*self.report.prepared, *([table] if table else [])]
        if self.report.profiles is None and len(model.weights):
            sizes = np.sum([record.clusters for record in self.records], axis=0)
            shown.append(names_table(Run(model=model.plain()).names, sizes))
        return shown


def fit(job: Fit, rows: Reading, doing: Doing, min_cluster_size: int | None = None) -> FittedSites:
    """Find clusters, and label the rows of each site."""
    tables = rows.tables
    report, clients = run_job(job, rows, doing, min_cluster_size)
    narrow = all(table.dtype == np.float32 for table in tables.values())
    model = jobs.model_of(
        report,
        dtype="float32" if narrow else "float64",
        min_cluster_size=min_cluster_size or "auto",
    )
    labels = label(model, {site: table.rows for site, table in tables.items()})
    files = label_files(list(tables))
    records = records_of(report, labels.items(), len(model.centers), files, clients)
    return FittedSites(report, model, tables, labels, records)


def write_fit(
    out: Path,
    fitted: FittedSites,
    study: str,
    *,
    label: Callable[[Path], FittedSites] | None = None,
    joining: Joining | None = None,
    report: bool = True,
) -> tuple[FittedSites, dict[str, Any], list[str]]:
    """Write the outputs of a fit.

    Parameters
    ----------
    out : Path
        The folder.
    fitted : FittedSites
        The fit.
    study : str
        The study file that repeats the fit.
    label : callable, optional
        ``label(folder)`` labels rows that are in no table, writes the labels, and returns the fit
        with its records.
    joining : Joining, optional
        The tables to which clusters are joined.
    report : bool, default=True
        Whether to write the page on the run.

    Returns
    -------
    fitted : FittedSites
        The fit, with its records.
    content : dict
        The content of ``history.json``, without the rounds.
    files : list of str
        The files that were written, relative to the folder.
    """
    joining = joining or Joining()
    with atomic_folder(out, obsolete=of_earlier_run(out)) as folder:
        fitted = fitted if label is None else label(folder)
        labels = {record.name: record.labels for record in fitted.records}
        content = job_files.content_of(fitted.report, fitted.records)
        content |= {"warnings": fitted.warnings}
        drawn = [] if fitted.selection is None else job_files.write_selection(folder, fitted.report)
        _write_labels(folder, labels, fitted.tables, fitted.labels, fitted.model, joining)
        fitted.model.save(folder / "model.json")
        (folder / STUDY).write_text(study, "utf-8")
        files = ["model.json", "history.json", STUDY, *drawn, *labels.values()]
        files += joining.files(list(labels.values()))
        page = Run(out.resolve().name, fitted.model.plain()) if report else None
        files = job_files.write_history(folder, fitted.report, content, files, page)
    return fitted, content, files


def of_earlier_run(out: Path) -> list[str]:
    """Return the labels, tables and report of an earlier fit, as listed in its history."""
    try:
        history = json.loads((out / "history.json").read_text("utf-8"))
        if history["format"] != job_files.HISTORY:
            return []
        files = [Path(name) for name in history["files"]]
    except (OSError, ValueError, LookupError, TypeError):
        return []
    folders = (Path("labels"), Path(TABLES))
    tables = [f for f in files if f.parent in folders and f.suffix == ".csv"]
    own = [str(f.with_suffix(".json")) for f in tables if f.parent == folders[0]]
    return [*map(str, tables), *own, *(str(f) for f in files if f == Path(REPORT))]


def write_predictions(
    out: Path,
    model: Model,
    tables: Mapping[str, SiteRows],
    labels: Mapping[str, Labels],
    joining: Joining,
) -> list[SiteRecord]:
    """Write the labels of new rows into a folder; return what each site holds."""
    files = label_files(list(tables), "")
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
    for site, table in tables.items():
        (folder / files[site]).parent.mkdir(exist_ok=True)
        degrees = None
        if model.fuzzy:  # an offset of a site is found from all its rows
            parts = [table.data] if model.adjusts else chunks_of(table.rows)
            rows = (part if model.preprocessor else part.X for part in parts)
            degrees = np.concatenate(list(map(model.memberships, rows)))
        keys = joining.keys(table)
        write_labels(folder / files[site], table.row_ids, labels[site], degrees, keys)
        joining.write(folder, files[site], table, model, labels[site])
        if model.adjusts:
            model.at_site(table.data).save((folder / files[site]).with_suffix(".json"))


def unknown_and_filled(model: Model, tables: Mapping[str, SiteRows]) -> tuple[Counts, Counts]:
    """Return the counts of unknown texts in new rows, and of values that were filled in."""
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


def unlike(model: Model, tables: Mapping[str, SiteRows]) -> tuple[str, ...]:
    """Return in which columns new rows are unlike those of the fit, judged by 20,000 of a site."""
    return model.check({site: _some(table) for site, table in tables.items()}, options=True)


def _some(table: SiteRows, most: int = 20_000) -> Data:
    """Return at most ``most`` evenly spaced rows of a site; texts keep the codes of their part."""
    every = slice(None, None, max(1, -(-len(table) // most)))
    parts = [part.take(every) for part in chunks_of(table.rows)]
    return (
        parts[0] if len(parts) == 1 else replace(parts[0], X=np.concatenate([p.X for p in parts]))
    )


def unlabelled(counts: Mapping[str, int]) -> list[str]:
    """Return a line on rows without a label, given their number by site."""
    some = [f"{n:,} of {site}" for site, n in counts.items() if n]
    return [f"Rows without a cluster (-1): {', '.join(some)}."] if some else []


# select-k


def verdict(selection: Selection, elsewhere: str) -> list[Table | str]:
    """Return a choice of k for the screen: every index, and the verdict."""
    k, rule = selection.n_clusters, selection.rule
    return [
        index_table(k, rule, selection.says, selection.table, elsewhere),
        verdict_line(k, selection.reason),
    ]


def selection_shown(report: JobReport, elsewhere: str) -> Iterator[Table | str]:
    """Yield a choice of k, the preparation of the rows, and the cost of the choice."""
    sent, rounds = report.outcome.values_sent(), len(report.outcome.communication_rounds)
    yield from verdict(report.outcome.value, elsewhere)
    yield from report.prepared
    yield (
        f"All k in the same {rounds} rounds with {counted(len(sent), 'site')}, "
        f"{sum(sent.values()):,} numbers sent. Seed {report.job.seed}."
    )


# evaluate


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Scores of a model on the rows of some sites.

    Parameters
    ----------
    report : JobReport
        The result of all sites together.
    by_site : mapping of str to mapping
        The scores of each site's own rows, unless they are partitions of one owner.
    sites : tuple of SiteRecord
        What each site sent.
    """

    report: JobReport
    by_site: Mapping[str, Scores]
    sites: tuple[SiteRecord, ...]

    @property
    def scores(self) -> Scores:
        """The scores over all sites, by index."""
        scores: Scores = self.report.outcome.value
        return scores

    @property
    def content(self) -> dict[str, Any]:
        """Return the content of ``scores.json`` and ``--json``, without the rounds."""
        content = job_files.content_of(self.report, self.sites)
        alone = {name: {"scores": plain(scores)} for name, scores in self.by_site.items()}
        sites = [{**site, **alone.get(site["name"], {})} for site in content["sites"]]
        return content | {"sites": sites}

    def table(self, width: int, elsewhere: str) -> Table:
        """Return a table with a line for each index; last sites are left out on a narrow screen.

        Users' own metrics come first, then indices that are explained in sentences.
        """
        sites = self.by_site if len(self.by_site) > 1 else {}
        better = self.content["better"]
        header = ["index", "better", "all", *sites]
        lines = [
            [
                name,
                better[name] or "",
                shown(self.scores[name]),
                *(shown(own[name]) if name in own else "" for own in sites.values()),
            ]
            for name in by_interest(self.scores)
        ]
        return beside("How good the clusters are", header, lines, width, elsewhere)

    @property
    def line(self) -> str:
        """Return how the scores were computed, in one line."""
        sent = sum(site.values_sent for site in self.sites)
        rows = sum(site.rows for site in self.sites)
        rounds = len(self.report.outcome.communication_rounds)
        line = f"{rows:,} rows; {sent:,} numbers sent in {counted(rounds, 'round')}."
        if len(self.by_site) > 1:
            line += " Under a site stands what it would find out alone."
        every = [self.scores, *self.by_site.values()]
        if any(math.isnan(score) for scores in every for score in scores.values()):
            line += f" {NOTHING} means that an index says nothing."
        return line


def on_model(
    job: Evaluate | Profile | Compare, rows: Reading, doing: Doing, min_cluster_size: int
) -> Evaluation:
    """Score a model by all applicable indices, of all sites and of each, or do another job."""
    if not isinstance(job, Evaluate):
        report, records = _asked(job, rows, doing, min_cluster_size)
        return Evaluation(report, {}, records)
    tables = rows.tables
    job = replace(job, classes=_classes(tables.values()))
    report, records = _asked(job, rows, doing, min_cluster_size)
    alone = replace(job, n_references=0, profile=False)  # once for all rows, without a profile
    by_site = {
        name: jobs.execute(alone, LocalEngine([Client(name, table.rows, ())])).outcome.value
        for name, table in tables.items()
    }
    return Evaluation(report, by_site, records)


def _classes(tables: Iterable[SiteRows]) -> tuple[str, ...] | None:
    """Return all labels of all sites; None if no site has any.

    Raises
    ------
    InputError
        If a row of a site has no label, or if only some sites have labels.
    """
    by_site: dict[str, Collection[str] | None] = {}
    for table in tables:
        with error_prefix(f"site {table.name!r}"):
            by_site[table.name] = label_counts(chunks_of(table.rows))
    lacking = [site for site, labels in by_site.items() if labels is None]
    if len(lacking) == len(by_site):
        return None
    if lacking:
        raise InputError(
            f"site {lacking[0]!r} names no label_column and another site does; name one at every "
            "site, or at none"
        )
    return tuple(sorted(set().union(*filter(None, by_site.values()))))


# check


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Content of the sites' files, and how a fit would use it.

    Parameters
    ----------
    reading : Reading
        The rows, and the decisions about their columns.
    fit_report : FitReport
        The report on the preparation of the rows, with all decisions.
    used : tuple of str
        The columns that a fit would cluster by.
    """

    reading: Reading
    fit_report: FitReport
    used: tuple[str, ...]

    def table(self, width: int) -> Table:
        """Return a table with a line for each column: its use, and its content at each site.

        Last sites are left out if the screen is too narrow. For numbers, it shows mean and
        deviation, which a federation discloses as well; for text, the number of distinct values;
        then the share of missing values.
        """
        tables = self.reading.tables
        held = [name for table in tables.values() for name in table.columns]
        names = dict.fromkeys([*held, *self.reading.left_out])
        lines = [
            (
                name,
                "clustered by" if name in self.used else "left out",
                *(self._held(table, name) for table in tables.values()),
            )
            for name in names
        ]
        rows = ("rows", "", *(f"{len(table):,}" for table in tables.values()))
        header = ("column", "use", *tables)
        # Number of sites that are always shown, however narrow the screen.
        width = width if len(tables) > 6 else sys.maxsize
        return beside("Sites side by side", header, lines, width, "--json", rows)

    @property
    def content(self) -> dict[str, object]:
        """Return the content of a comparison for ``--json``."""
        report = self.fit_report
        sites = {
            name: {
                "rows": len(table),
                "columns": {column.name: column.kind for column in table.described_columns},
            }
            for name, table in self.reading.tables.items()
        }
        return {
            "sites": sites,
            "used": list(self.used),
            "left_out": dict(report.left_out),
            "notes": list(report.notes),
            "missing": {site: dict(counts) for site, counts in report.missing.items()},
            "moments": {
                name: {site: list(both) for site, both in moments.items()}
                for name, moments in report.moments.items()
            },
        }

    def _held(self, table: SiteRows, name: str) -> str:
        """Return the content of a column at a site, in a few words."""
        summary = self.reading.summaries.get(table.name)
        if name not in table.columns or summary is None:
            return "" if name in (*table.columns, *table.ignored) else "lacking"
        column = summary.columns[name]
        gaps = column.missing / summary.n_rows
        missing = f", {gaps:.0%} missing" if gaps and column.kind in ("number", "text") else ""
        if column.kind == "text":
            return f"{len(column.levels)} texts{missing}"
        moments = self.fit_report.moments.get(name, {}).get(table.name)
        if moments is None:
            return f"{HELD[column.kind]}{missing}"
        mean, deviation = moments
        return f"{mean:.4g} ± {deviation:.3g}{missing}"


def compared(
    files: Sequence[str],
    options: FileOptions,
    prepare: PreprocessingSpec,
    doing: Doing = silent,
) -> Comparison:
    """Read the sites' files and prepare their rows, as a fit does before clustering.

    Raises
    ------
    InputError
        If a fit would refuse them.
    """
    reading = read(files, options, doing, prepare)
    engine = LocalEngine(clients_of(reading.tables, [MinRows(2)]))
    fitted = jobs.fitted_preprocessing(prepare.in_names(reading.names), engine)
    report = fitted.fit_report.with_decisions(reading.left_out, reading.notes, reading.warnings)
    return Comparison(reading, report, tuple(c.name for c in fitted.preprocessor.columns))


def doubts_about(data: Data) -> list[str]:
    """Return a line for each column of a site that looks unsuitable or wrong.

    Parameters
    ----------
    data : Data
        Some of its rows, before preparation.
    """
    screening = screened({"this site": SourceSummary.from_data(data)})
    lines = [
        f"Column {name!r} would be clustered by: {why.partition(': --')[0]}; choose columns "
        "without it if that is not meant."
        for name, why in screening.left_out.items()
    ]
    return [*lines, *(f"Look at {line}." for line in unlike_sites({"this site": data}))]
