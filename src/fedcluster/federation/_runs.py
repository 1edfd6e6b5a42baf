"""Runs of a federation: their folders, what they are to do, and what became of them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from fedcluster._specifications import RunOptions
from fedcluster.errors import InputError
from fedcluster.federation._bounds import FIRST_ROWS
from fedcluster.federation._folder import CANCEL, Federation
from fedcluster.federation._permits import NO_PERMIT, NOT_COVERED, Permit
from fedcluster.federation._relaying import RELAY, Relaying
from fedcluster.io._outputs import write_json
from fedcluster.jobs import JOBS, Fit, Job, check_job
from fedcluster.secure._cohort import MIN_SITES, Cohort

QUEUED, RUNNING = "queued", "running"
DONE, FAILED, CANCELLED, INTERRUPTED = "done", "failed", "cancelled", "interrupted"
GOING = {QUEUED, RUNNING}
"""States of a run that has not ended."""

RESULT = "result"
"""The folder in that of a run that receives its files."""

EXCHANGES = "communication_rounds"
"""The folder in that of a run that has what the sites answered."""

OPTIONS = ("quorum", "deadline", "permit", "columns", "secure")
"""The options of a run that an operator may set; where its files are written is none of them."""

KINDS: dict[str, type[Any]] = {**JOBS, RELAY: Relaying}
"""The jobs by their names, with that of the sites behind a relay."""

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
WAS_CANCELLED = "the run was cancelled"


class Carrier(Protocol):
    """Carrier of runs: a transport, as the coordinator uses it."""

    @property
    def federation(self) -> Federation:
        """Return the federation."""
        ...

    def ready(self) -> Mapping[str, Any]:
        """Return what ``job.json`` must say for this transport; InputError if it is not started."""
        ...

    def hand_over(self, folder: Path) -> None:
        """Begin the run whose job is in a folder."""
        ...

    def stop(self, folder: Path) -> None:
        """Stop a run, if there is anybody to stop it."""
        ...

    def end(self, folder: Path) -> str | None:
        """Return why a run has ended, None while it goes on; SiteError where nobody can tell."""
        ...

    def sites_online(self) -> list[str]:
        """Return the names of the sites that are connected."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """What became of a run so far.

    Parameters
    ----------
    name : str
        The name of the run, and of its folder.
    state : str
        One of "queued", "running", "done", "failed", "cancelled" and "interrupted".
    operator : str
        Who asked for it.
    job : str
        What it is to do.
    asked, began, ended : str
        When, UTC; empty where it has not come to that.
    attempts : int
        How often it was begun, since somebody asked for it.
    rounds : int
        How many exchanges with the sites are recorded.
    error : str
        Why it failed.
    """

    name: str
    state: str
    operator: str = ""
    job: str = ""
    asked: str = ""
    began: str = ""
    ended: str = ""
    attempts: int = 0
    rounds: int = 0
    error: str = ""

    @classmethod
    def load(cls, folder: Path) -> Run:
        """Return the run of a folder; what has ended is known by its outcome."""
        told, outcome = _read(folder / "state.json"), outcome_of(folder)
        state = str(told.get("state", INTERRUPTED))
        if outcome and told.get("state") not in GOING:
            kept = told.get("state") in {CANCELLED, INTERRUPTED}
            state = DONE if outcome["done"] else state if kept else FAILED
        texts = {key: str(told.get(key, "")) for key in ("operator", "asked", "began", "ended")}
        rounds = int(told.get("rounds", 0)) if state not in GOING else 0
        return cls(
            folder.name,
            state,
            job=_said(_read(folder / "job.json")),
            attempts=int(told.get("attempts", 0)),
            rounds=rounds or exchanges(folder),
            error=str(outcome.get("error", "")),
            **texts,
        )

    def save(self, folder: Path) -> None:
        """Write the state of the run into its folder."""
        names = ("state", "operator", "asked", "began", "ended", "attempts", "rounds")
        write_json(folder / "state.json", {name: getattr(self, name) for name in names})


def _said(content: Mapping[str, Any]) -> str:
    """Return in a few words what a run is to do."""
    told = content.get("parameters", {})
    k = told.get("n_clusters")
    return f"{content.get('job', '')}{'' if k is None else f' -k {k}'}"


def exchanges(folder: Path) -> int:
    """Return how many exchanges with the sites a run has recorded."""
    return sum(1 for _ in (folder / EXCHANGES).glob("exchange-*"))


def run_folder(federation: Federation, name: str) -> Path:
    """Return the folder of a run that there is.

    Raises
    ------
    InputError
        If there is none of this name.
    """
    folder = federation.file("runs", name) if RUN_NAME.fullmatch(name) else None
    if folder is None or not (folder / "job.json").is_file():
        known = ", ".join(run.name for run in runs(federation))
        raise InputError(f"there is no run {name!r}; there are: {known}")
    return folder


def runs(federation: Federation) -> list[Run]:
    """Return the runs in the order of their names, hence of the time when they were asked for."""
    folders = sorted(path.parent for path in federation.file("runs").glob("*/job.json"))
    return [Run.load(folder) for folder in folders]


def outcome_of(folder: Path) -> dict[str, Any]:
    """Return the outcome of a run, empty while there is none."""
    return _read(folder / "outcome.json")


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        return dict(json.loads(path.read_text("utf-8")))
    return {}


def new_run(federation: Federation) -> Path:
    """Return the folder of a new run, which is not there yet."""
    name = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-") + os.urandom(2).hex()
    return federation.file("runs", name)


def check_options(federation: Federation, options: RunOptions) -> None:
    """Refuse options that mean nothing.

    Raises
    ------
    InputError
        If the quorum or the deadline is none.
    """
    if options.quorum is not None and not 1 <= options.quorum <= len(federation.sites):
        raise InputError(
            f"--quorum must be from 1 to {len(federation.sites)}, not {options.quorum}"
        )
    if not options.deadline > 0:
        raise InputError(f"--deadline must be above 0 seconds, not {options.deadline:g}")


def content_of(
    federation: Federation, folder: Path, job: Job | Relaying, options: RunOptions
) -> dict[str, Any]:
    """Return what a new run is to do, for ``job.json``.

    Raises
    ------
    InputError
        If an option means nothing, the job makes no sense, there is no such permit, or secure sums
        would be of too few sites.
    """
    check_options(federation, options)
    sites = list(federation.sites)
    if options.permit is not None:
        permit = Permit.load(federation.file("permits", f"{options.permit}.toml"))
        options = replace(options, columns=options.columns or permit.columns)
        sites = sorted(permit.sites) if options.secure else sites
    if options.secure:
        _check_cohort(sites, options.quorum)
    _check(job, federation)
    return {
        "job": next(name for name, kind in KINDS.items() if isinstance(job, kind)),
        "parameters": asdict(job),
        "sites": sites,
        "insecure": federation.insecure,
        **asdict(options),
        "out": str(folder / RESULT),
    }


def _check_cohort(sites: Sequence[str], quorum: int | None) -> None:
    """Refuse secure sums that every site would refuse."""
    cohort = Cohort("", tuple(sites), quorum or len(sites))
    try:
        cohort.check(sites, MIN_SITES)
    except ValueError as error:
        raise InputError(f"--secure: {error}") from error


def _check(job: Job | Relaying, federation: Federation) -> None:
    """Refuse a job that makes no sense; one with code of one's own is checked where that runs."""
    if isinstance(job, Relaying) or "." in str(getattr(job, "algorithm", "")):
        return
    if isinstance(job, Fit) and job.epsilon is not None and not job.bounds:
        job = replace(job, bounds=federation.ranges or None)
    check_job(job)


def content_without(federation: Federation, name: str, site: str, folder: Path) -> dict[str, Any]:
    """Return what a new run is to do that does another again as if a site had never been asked.

    Raises
    ------
    InputError
        If there is no such run, it did not ask the site, or its records are gone.
    """
    before = run_folder(federation, name)
    content = _read(before / "job.json")
    if site not in content["sites"] or len(content["sites"]) < 2:
        raise InputError(
            f"run {name!r} asked {', '.join(content['sites'])}, of which {site!r} "
            "cannot be forgotten"
        )
    if content.get("secure"):
        raise InputError(
            f"run {name!r} had secure sums: a run without {site!r} beside it would tell the sums "
            "of that site, and its sites refuse it"
        )
    others = [each for each in content["sites"] if each != site]
    quorum = content["quorum"] and min(content["quorum"], len(others))
    more = {"sites": others, "quorum": quorum, "out": str(folder / RESULT)}
    return {**content, **more, "forgets": {"run": str(before), "site": site}}


def write_job(carrier: Carrier, folder: Path) -> None:
    """Add to ``job.json`` of a run what the transport and the federation say when it begins."""
    federation = carrier.federation
    bounds = {
        "rows": dict(federation.rows),
        "ranges": dict(federation.ranges),
        "first_rows": str(federation.file(FIRST_ROWS)),
    }
    content = _read(folder / "job.json")
    write_json(folder / "job.json", {**content, **carrier.ready(), **bounds})


def begin_anew(folder: Path) -> None:
    """Remove what says that a run has ended."""
    for ended in ("outcome.json", CANCEL):
        (folder / ended).unlink(missing_ok=True)


def how_to_go_on(run: Run, folder: Path, where: str) -> str:
    """Return what to do once a run has failed; ``where`` is the folder that operators name."""
    if NO_PERMIT in run.error and not _read(folder / "job.json").get("permit"):
        permits = sorted(path.stem for path in (folder.parents[1] / "permits").glob("*.toml"))
        named = f"--permit {permits[0]}" if len(permits) == 1 else "--permit ID"
        return f"begin anew with {named}, or see fedcluster federation permit --help"
    if NOT_COVERED in run.error:
        return "begin anew with a permit that does, see fedcluster federation permit --help"
    return f"when that is mended: fedcluster federation run {where} resume {run.name}"
