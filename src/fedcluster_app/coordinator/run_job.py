"""A run at the coordinator, over any transport: its job, its records and its results."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcluster.core.files import atomic_write, write_json
from fedcluster.engines.reply_validation import NOTHING_STATED, ReplyBounds
from fedcluster.engines.wire import WireError
from fedcluster.errors import CancelledError, HeldBackError, InputError, SiteError
from fedcluster.jobs import Job, JobReport, execute, job_from_json, procedure_of
from fedcluster_app.coordinator.folder import CANCEL, FIRST_ROWS, first_rows, keep_first_rows
from fedcluster_app.coordinator.lifecycle import RevokedSites
from fedcluster_app.records import load_record, record_or
from fedcluster_app.report.job_files import write_job
from fedcluster_app.secure.cohort import two_sites_line
from fedcluster_app.secure.engine import SecureEngine
from fedcluster_app.tables.outputs import atomic_folder
from fedcluster_app.trust.owned_files import ORPHAN, running
from fedcluster_app.wire.exchange import Carrier, RetryingTransport
from fedcluster_app.wire.recorder import PROGRESS, RecordedEngine, WatchedEngine, note
from fedcluster_app.wire.remote import RemoteEngine, Transport

MODEL_FILES = {"model": "model-asked.json", "beside": "model-beside.json"}
MODEL_FILES |= {"previous": "model-previous.json"}
"""Parameters of a job that are models, with the files that hold them in the folder of a run."""

RESULT = "result"
"""The folder, within that of a run, for its result files."""

LOGGER = logging.getLogger(__name__)

HEADS = "log-heads.json"
"""The file, in the folder of a run, with the last line of each site's log, by its hash.

It repeats what earlier runs knew, whose folders may be removed.
"""


def run_in_folder(
    connect: Callable[[Mapping[str, Any]], RemoteEngine],
    folder: Path,
    reason: Callable[[Exception], str] = lambda _error: "",
) -> str:
    """Run the job in a folder and write its outcome there; return its error, if any.

    Parameters
    ----------
    connect : callable
        Returns the engine that asks the sites, given the content of ``job.json``.
    folder : Path
        The folder of the run.
    reason : callable, optional
        Returns the message for an error of the transport; nothing for other errors.

    Raises
    ------
    InputError
        If another process carries out the run and does not end.
    """
    with running(folder, "process of the run", ORPHAN):
        outcome = outcome_of(folder) or _outcome(connect, folder, reason)
    return str(outcome.get("error", ""))


def outcome_of(folder: Path) -> dict[str, Any]:
    """Return the outcome of a run, empty if there is none."""
    return record_or(folder / "outcome.json", dict[str, Any], {})


def _outcome(
    connect: Callable[[Mapping[str, Any]], RemoteEngine],
    folder: Path,
    reason: Callable[[Exception], str],
) -> dict[str, Any]:
    """Run the job in a folder; return and write its outcome."""
    try:
        written = load_record(folder / "job.json", dict[str, Any])
        content = located(written, folder)
        told = run_job(connect(content), content, folder)
        outcome = {"done": True, **told, "out": written["out"]}
    except (CancelledError, InputError, HeldBackError, SiteError, WireError) as error:
        outcome = {"done": False, "error": str(error)}
    except Exception as error:
        if not (why := reason(error)):
            LOGGER.exception("the run failed")
            why = f"{type(error).__name__}: {error}"
        outcome = {"done": False, "error": why}
    write_json(folder / "outcome.json", outcome)
    return outcome


def located(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the content of ``job.json`` with paths that programs in any folder understand.

    In the file, they begin at the folder of the run, so that a federation can be moved.
    """
    paths = {key: str(folder / content[key]) for key in ("out", "first_rows") if key in content}
    parameters = dict(content["parameters"])
    for key, file in MODEL_FILES.items():
        if parameters.get(key) == file:
            parameters[key] = str(folder / file)
    forgets = content.get("forgets")
    forgotten = {"forgets": {**forgets, "run": str(folder / forgets["run"])}} if forgets else {}
    return {**content, **paths, "parameters": parameters, **forgotten}


def lack(content: Mapping[str, Any], here: Collection[str]) -> str:
    """Return which sites of a run are not connected, nothing if enough are."""
    absent = sorted(set(content["sites"]) - set(here))
    enough = content["quorum"] or len(content["sites"])
    if len(content["sites"]) - len(absent) >= enough:
        return ""
    return f"not connected: {', '.join(absent)}; {enough} sites are needed"


def engine_of(
    carrier: Carrier,
    sites: Collection[str],
    content: Mapping[str, Any],
    folder: Path,
    cancelled: Callable[[], bool] | None = None,
    **how: Any,
) -> RemoteEngine:
    """Return the engine that asks the sites of a run over a carrier, until it is cancelled.

    Parameters
    ----------
    carrier : Carrier
        The carrier of the messages.
    sites : collection of str
        The sites that are asked.
    content : mapping
        The content of ``job.json``.
    folder : Path
        The folder of the run, in that of the federation, which has the current keys of each site.
    cancelled : callable, optional
        Returns whether the run is cancelled; by default as the folder says.
    **how : object
        Further arguments of `RetryingTransport`.
    """

    def responded(site: str) -> None:
        note(folder / PROGRESS, heard=site)

    cancelled = cancelled or (folder / CANCEL).exists
    how["revoked"] = RevokedSites(folder.parents[1], sites)
    transport = RetryingTransport(carrier, content["deadline"], cancelled, responded, **how)
    terms = {key: content[key] for key in ("quorum", "permit", "secure")}
    return engine_over(transport, sites, bounds=bounds_of(content), **terms)


def engine_over(
    transport: Transport,
    sites: Collection[str],
    *,
    quorum: int | None = None,
    permit: str | None = None,
    bounds: ReplyBounds = NOTHING_STATED,
    secure: bool = False,
) -> RemoteEngine:
    """Return the engine that asks sites over a transport, by the terms of a run."""
    engine = SecureEngine if secure else RemoteEngine
    return engine(transport, sites, quorum=quorum, permit=permit, bounds=bounds)


def bounds_of(content: Mapping[str, Any]) -> ReplyBounds:
    """Return the bounds on the sites' rows from ``job.json``."""
    path = Path(content.get("first_rows", FIRST_ROWS))
    return ReplyBounds(
        content.get("rows", {}),
        first_rows(path) if "first_rows" in content else {},
        {name: (low, high) for name, (low, high) in content.get("ranges", {}).items()},
        f"if that is right, write into {path.resolve().parent / 'federation.toml'}, under [rows], "
        "each on a line of its own: {rows}",
        bool(content.get("parameters", {}).get("robust")),
    )


def run_job(engine: RemoteEngine, content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Run a job and write its files; every exchange is recorded in ``folder``.

    Parameters
    ----------
    engine : RemoteEngine
        The engine that asks the sites.
    content : mapping
        The content of ``job.json``.
    folder : Path
        The folder of the run; recorded answers are not requested again.

    Returns
    -------
    dict
        The outcome for the coordinator.
    """
    job = job_from_json(content["job"], content["parameters"])
    rows = content.get("rows", {})
    n_rows = sum(rows.values()) if rows and set(content["sites"]) <= set(rows) else None
    job = procedure_of(job).with_public(content["columns"], content.get("ranges", {}), n_rows)
    folder.mkdir(parents=True, exist_ok=True)
    about = {key: content[key] for key in ("operator", "log") if content.get(key)}
    engine.name_job(folder.name, known_heads(folder.parent), **about)
    watched = _watched(engine, content, folder)
    with _kept(engine, content, folder):
        with watched.failure_noted():
            columns = _columns(engine, job, content["columns"], folder)
        report = execute(job, watched, columns=columns, enough=_enough(job, content))
    introduced, members = engine.introduce(), {site.name for site in report.sites}
    answered = tuple(site for site in introduced if site.name in members)
    report = replace(report, sites=answered, refusals=tuple(engine.refusals))
    out, doubts = Path(content["out"]), _doubts(report)
    with atomic_folder(out) as partial:
        shown = write_job(partial, report, out.name, doubts)
        files = sorted(path.name for path in partial.iterdir())
    kept: tuple[str, ...] = ()
    if "model.json" in files:
        kept = engine.give(json.loads((out / "model.json").read_text("utf-8")))
    doubts = [*two_sites_line(len(content.get("sites", ()))), *doubts]
    return {**shown, "out": str(out), "files": files, "model_at": list(kept), "doubts": doubts}


def _enough(job: Job, content: Mapping[str, Any]) -> int | None:
    """Return the smallest number of sites with which a job may begin, None for all."""
    if content.get("secure"):  # the difference of two totals would reveal a site's sums
        return None
    faults = procedure_of(job).faults
    return content.get("quorum") or (len(content["sites"]) - faults if faults else None)


def _doubts(report: JobReport) -> list[str]:
    """Return doubts about the result of a run."""
    doubts = [*report.fit_report.doubts]
    if report.fit_report.warnings:
        doubts.append("sites write [factors] and [codes] into their site files")
    return [*doubts, *procedure_of(report.job).doubts(report)]


def _watched(engine: RemoteEngine, content: Mapping[str, Any], folder: Path) -> WatchedEngine:
    """Return the engine of a run, which keeps records and logs progress."""
    earlier = content.get("forgets")
    forgets = earlier and (Path(earlier["run"]) / "communication_rounds", earlier["site"])
    recorded = RecordedEngine(engine, folder / "communication_rounds", forgets)
    return WatchedEngine(recorded, folder / PROGRESS, engine.refusals)


def known_heads(runs: Path) -> dict[str, str]:
    """Return the last line that the runs in a folder know of each site's log, by its hash."""
    heads: dict[str, str] = {}
    # names begin with the time, so this order is chronological; an older run that was resumed may
    # know a site that the newest does not
    for path in sorted(runs.glob(f"*/{HEADS}")):
        heads |= load_record(path, dict[str, str])
    return heads


@contextmanager
def _kept(engine: RemoteEngine, content: Mapping[str, Any], folder: Path) -> Iterator[None]:
    """Record, at the end of a block and whatever happens, what is known of the sites.

    That is the last line of each site's log, and the rows that each first reported.
    """
    try:
        yield
    finally:
        write_json(folder / HEADS, known_heads(folder.parent) | engine.log_heads)
        if "first_rows" in content:
            keep_first_rows(Path(content["first_rows"]), engine.stated_rows)


def _columns(
    engine: RemoteEngine, job: Job, chosen: list[str] | None, folder: Path
) -> tuple[str, ...]:
    """Choose the columns that all sites are asked about, and return them in a common order.

    Raises
    ------
    InputError
        If rows are not prepared and two sites have different columns, or if no column is named
        under a privacy budget.
    """
    if (public := procedure_of(job).public_columns(chosen)) is not None:
        engine.choose_publicly(public)
        return public
    raw = procedure_of(job).preprocessing is not None
    engine.choose(chosen, raw=raw)
    if raw:
        return tuple(chosen or ())
    sites = [site for site in engine.introduce(steps=procedure_of(job).steps()) if site.answered]
    by_site = {site.name: tuple(column.name for column in site.columns) for site in sites}
    first, *others = by_site
    columns = by_site[first]
    for site in others:
        if differing := sorted(set(columns) ^ set(by_site[site])):
            raise InputError(
                f"sites {first!r} and {site!r} have not the same columns: {', '.join(differing)}; "
                "name those to cluster by with --columns"
            )
    record = folder / "columns.json"
    if record.exists():
        columns = load_record(record, tuple[str, ...])
    with atomic_write(record) as temporary:
        temporary.write_text(json.dumps(columns), encoding="utf-8")
    engine.choose(columns)
    return columns
