"""A run at the coordinator, over any transport: its job, its records and its results.

Sites behind a relay answer as one: the relay forwards to them the requests that it receives. Its
program and the process of the run belong to the same user on one machine. Requests and replies are
files in the folder of the run, so that no further port is needed and either end may be restarted.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Unpack

from fedcluster.coordinator.folder import CANCEL, FIRST_ROWS, first_rows, keep_first_rows
from fedcluster.core import Answers, Introduction, SiteInfo, Task
from fedcluster.engines.recorder import PROGRESS, RecordedEngine, WatchedEngine
from fedcluster.engines.relay import Relay
from fedcluster.engines.remote import RemoteEngine, Transport
from fedcluster.engines.reply_validation import NOTHING_STATED, ReplyBounds
from fedcluster.engines.responder import Responder
from fedcluster.engines.wire import WireError, steps_by_name
from fedcluster.errors import CancelledError, HeldBackError, InputError, SiteError
from fedcluster.io.outputs import atomic_folder, atomic_write, write_json
from fedcluster.io.records import load_record, record_or
from fedcluster.jobs import (
    Job,
    JobReport,
    doubts_of,
    execute,
    job_from_json,
    preprocessing_of,
    procedure_of,
    steps_of,
    write_job,
)
from fedcluster.model.assigned_rows import row_transform
from fedcluster.preprocessing.fitting import STEPS as PREPARATION
from fedcluster.privacy.budget import PolicyError
from fedcluster.privacy.limits import Limits
from fedcluster.secure.engine import SecureEngine
from fedcluster.site.owned_files import ORPHAN, is_running, private_files, running

BOX = "relayed"
"""The folder, within that of a run, with questions and replies."""

QUESTION, REPLIED = "asked-", "replied-"
"""Prefixes of the files of questions and of replies."""

READY, ENDED = "columns.json", "ended"
"""Files that mark the beginning and the end of questions."""

IDLE = 300.0
"""Seconds without a question after which a run ends; it continues with the next question."""

UNHELD = 5.0
"""Seconds without a relay's program that holds the folder `BOX`, after which the same is done."""

GOES_ON = "the run goes on when the relay asks again"

MODEL_FILES = {"model": "model-asked.json", "beside": "model-beside.json"}
"""Parameters of a job that are models, with the files that hold them in the folder of a run."""

RESULT = "result"
"""The folder, within that of a run, for its result files."""

POLL = 0.01
"""Seconds between two checks for a question or a reply."""


@dataclass(frozen=True, slots=True)
class Relaying:
    """Job of the sites behind a relay.

    Parameters
    ----------
    name : str
        The name of the relay among the sites of the other federation.
    fewest : int
        The smallest number of sites in an answer.
    lines : bool
        Whether that applies to each line of an answer too.
    min_rows, min_cluster_size : int
        The relay's own limits on totals.
    steps : tuple of str
        Allowed steps in addition to those of the package.
    """

    kind: ClassVar[str] = "relay"

    name: str
    fewest: int = 3
    lines: bool = False
    min_rows: int = 1
    min_cluster_size: int = 1
    steps: tuple[str, ...] = ()


class BrokenOffError(SiteError):
    """A run was broken off where it can go on."""


class Choosing:
    """Engine that asks the sites of a run about some of their columns.

    Parameters
    ----------
    engine : RemoteEngine
        The engine of the run.
    columns : sequence of str or None
        The columns; None for all.
    raw : bool
        Whether the rows are not prepared yet.
    """

    def __init__(self, engine: RemoteEngine, columns: Sequence[str] | None, *, raw: bool) -> None:
        self._engine, self._columns, self._raw = engine, columns, raw

    def introduce(self, **requested: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return the metadata of the sites.

        Raises
        ------
        PolicyError
            If too few sites can answer all planned steps; no site is named.
        """
        self._engine.choose(self._columns, raw=self._raw)
        try:
            return self._engine.introduce(**requested)
        except SiteError as error:
            if not requested.get("steps"):
                raise
            raise PolicyError(
                "too few sites behind the relay answer where all steps of the run are named; the "
                "relay's own run says why"
            ) from error

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Carry all tasks of one round to the sites."""
        self._engine.choose(self._columns, raw=self._raw)
        return self._engine.ask(tasks, sites)


def relay(engine: RemoteEngine, content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Answer the questions to a relay until there are no more; return the outcome of the run.

    Parameters
    ----------
    engine : RemoteEngine
        The engine that asks the sites.
    content : mapping
        The content of ``job.json``.
    folder : Path
        The folder of the run.

    Raises
    ------
    CancelledError
        If the run is cancelled.
    SiteError
        If too few sites answer at the start.
    BrokenOffError
        If the relay's program has ended, or asks nothing for long.
    """
    job = Relaying(**{**content["parameters"], "steps": tuple(content["parameters"]["steps"])})
    box = folder / BOX
    engine.name_job(folder.name, content.get("operator"))
    with private_files():
        box.mkdir(exist_ok=True)
        responder = _responder(engine, job)
        write_json(box / READY, {"columns": responder.columns})
        answered = 0
        for request in _questions(box, folder / CANCEL):
            reply = responder.reply(request.read_bytes())
            with atomic_write(box / request.name.replace(QUESTION, REPLIED)) as temporary:
                temporary.write_bytes(reply)
            request.unlink(missing_ok=True)
            answered += 1
    return {"out": content["out"], "files": [], "answered": answered, "model_at": [], "doubts": []}


def _responder(engine: RemoteEngine, job: Relaying) -> Responder:
    """Return the responder for all sites of a run."""
    limits = Limits(job.min_rows, job.min_cluster_size).filters

    def choose(columns: Sequence[str] | None, *, raw: bool = False) -> Relay:
        chosen = Choosing(engine, columns, raw=raw)
        return Relay(job.name, chosen, job.fewest, lines=job.lines, filters=limits)

    def keep(model: dict[str, Any]) -> None:
        engine.give(model)

    metadata = choose(None, raw=True).introduce()
    columns = tuple(column.name for column in metadata.columns)
    steps = steps_by_name([*PREPARATION, *job.steps])
    return Responder(
        choose(columns),
        columns=columns,
        choose=choose,
        steps=steps,
        preprocessors=partial(row_transform, steps=steps),
        keep=keep,
    )


def _questions(box: Path, cancel: Path) -> Iterator[Path]:
    """Yield the files of questions as they arrive, oldest first."""
    last = held = looked = time.monotonic()
    while not (box / ENDED).exists():
        now = time.monotonic()
        if cancel.exists():
            raise CancelledError("the run was cancelled")
        if now - last > IDLE:
            raise BrokenOffError(f"the relay has asked nothing for long; {GOES_ON}")
        if now - looked > UNHELD / 10:
            looked = now
            held = now if is_running(box) else held
        if now - held > UNHELD:
            raise BrokenOffError(f"the relay's program has ended; {GOES_ON}")
        if requests := sorted(box.glob(f"{QUESTION}*")):
            yield requests[0]
            last = time.monotonic()
        else:
            time.sleep(POLL)


def disclosed_columns(box: Path) -> tuple[str, ...] | None:
    """Return the names of the columns of all sites, None until they are known."""
    return record_or(box / READY, dict[str, tuple[str, ...]], {}).get("columns")


LOGGER = logging.getLogger(__name__)

HASH_DIGITS = 64
"""Number of digits of a hash of a line in a site's log."""


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
        run = relay if content["job"] == Relaying.kind else run_job
        outcome = {"done": True, **run(connect(content), content, folder), "out": written["out"]}
    except (CancelledError, InputError, HeldBackError, SiteError, WireError) as error:
        broken_off = isinstance(error, BrokenOffError)
        outcome = {"done": False, "error": str(error), "interrupted": broken_off}
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


def engine_over(
    transport: Transport,
    sites: Collection[str],
    *,
    quorum: int | None = None,
    permit: str | None = None,
    bounds: ReplyBounds = NOTHING_STATED,
    secure: bool = False,
) -> RemoteEngine:
    """Return the engine that asks sites over a transport; see `terms_of`."""
    engine = SecureEngine if secure else RemoteEngine
    return engine(transport, sites, quorum=quorum, permit=permit, bounds=bounds)


def terms_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terms of a run from ``job.json``."""
    terms = {"permit": None, "secure": False, **content}
    return {key: terms[key] for key in ("quorum", "permit", "secure")} | {
        "bounds": bounds_of(content)
    }


def bounds_of(content: Mapping[str, Any]) -> ReplyBounds:
    """Return the bounds on the sites' rows from ``job.json``."""
    path = Path(content.get("first_rows", FIRST_ROWS))
    return ReplyBounds(
        content.get("rows", {}),
        first_rows(path) if "first_rows" in content else {},
        {name: (low, high) for name, (low, high) in content.get("ranges", {}).items()},
        f"if that is right: fedcluster federation bounds {path.parent} --rows {{rows}}",
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
    engine.name_job(folder.name, content.get("operator"))
    watched = _watched(engine, content, folder)
    with watched.failure_noted():
        columns = _columns(engine, job, content["columns"], folder)
    with _first_rows_kept(engine, content):
        report = execute(job, watched, columns=columns, enough=_enough(job, content))
    introduced, members = engine.introduce(), {site.name for site in report.sites}
    heads = {site.name: site.log for site in introduced if len(site.log) == HASH_DIGITS}
    write_json(folder / "log-heads.json", heads)  # by which a change of a log would be noticed
    answered = tuple(site for site in introduced if site.name in members)
    report = replace(report, sites=answered, refusals=tuple(engine.refusals))
    out, doubts = Path(content["out"]), _doubts(report)
    with atomic_folder(out) as partial:
        shown = write_job(partial, report, out.name, doubts)
        files = sorted(path.name for path in partial.iterdir())
    kept: tuple[str, ...] = ()
    if "model.json" in files:
        kept = engine.give(json.loads((out / "model.json").read_text("utf-8")))
    return {**shown, "out": str(out), "files": files, "model_at": list(kept), "doubts": doubts}


def _enough(job: Job, content: Mapping[str, Any]) -> int | None:
    """Return the smallest number of sites with which a job may begin, None for all."""
    if content.get("secure"):  # a total without a site would tell its sums
        return None
    faults = procedure_of(job).faults
    return content.get("quorum") or (len(content["sites"]) - faults if faults else None)


def _doubts(report: JobReport) -> list[str]:
    """Return doubts about the result of a run."""
    doubts = [*report.fit_report.doubts]
    doubts += (
        ["sites write [factors] and [codes] into their site files"]
        if report.fit_report.warnings
        else []
    )
    return [*doubts, *doubts_of(report)]


def _watched(engine: RemoteEngine, content: Mapping[str, Any], folder: Path) -> WatchedEngine:
    """Return the engine of a run, which keeps records and logs progress."""
    earlier = content.get("forgets")
    forgets = earlier and (Path(earlier["run"]) / "communication_rounds", earlier["site"])
    recorded = RecordedEngine(engine, folder / "communication_rounds", forgets)
    return WatchedEngine(recorded, folder / PROGRESS, engine.refusals)


@contextmanager
def _first_rows_kept(engine: RemoteEngine, content: Mapping[str, Any]) -> Iterator[None]:
    """Record, at the end of a block and whatever happens, the rows that sites first reported."""
    try:
        yield
    finally:
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
    raw = preprocessing_of(job) is not None
    engine.choose(chosen, raw=raw)
    if raw:
        return tuple(chosen or ())
    sites = [site for site in engine.introduce(steps=steps_of(job)) if site.answered]
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
