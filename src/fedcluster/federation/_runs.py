"""Runs of a federation: their folders, how they begin, go on and end, over any transport."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from fedcluster._specifications import RunOptions
from fedcluster.errors import InputError, SiteError
from fedcluster.federation._bounds import FIRST_ROWS
from fedcluster.federation._folder import CANCEL, Federation
from fedcluster.federation._permits import NO_PERMIT, NOT_COVERED, Permit
from fedcluster.federation._private import private_files
from fedcluster.io._outputs import write_json
from fedcluster.jobs import JOBS, Job

LOOK = 0.2
"""Seconds between two looks for an outcome."""

FAREWELL = 15.0
"""Seconds that a run has to tell its sites that it is cancelled."""

ASK = 5.0
"""Seconds between two questions whether a run still goes on."""


class Carrier(Protocol):
    """Carrier of runs: a transport, as the coordinator's own programs use it."""

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


def _new_name() -> str:
    """Return a name for a new run."""
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S-") + os.urandom(2).hex()


@private_files()
def begin(carrier: Carrier, job: Job, options: RunOptions) -> Path:
    """Hand a job to a transport and return the folder of the run.

    Raises
    ------
    InputError
        If the quorum or the deadline means nothing, the federation is not started, or the
        transport does not take the job.
    """
    federation = carrier.federation
    if options.quorum is not None and not 1 <= options.quorum <= len(federation.sites):
        raise InputError(
            f"--quorum must be from 1 to {len(federation.sites)}, not {options.quorum}"
        )
    if not options.deadline > 0:
        raise InputError(f"--deadline must be above 0 seconds, not {options.deadline:g}")
    if options.permit is not None:
        permit = Permit.load(federation.file("permits", f"{options.permit}.toml"))
        options = replace(options, columns=options.columns or permit.columns)
    folder = federation.file("runs", _new_name())
    content = {
        "job": next(name for name, kind in JOBS.items() if isinstance(job, kind)),
        "parameters": asdict(job),
        "sites": list(federation.sites),
        "insecure": federation.insecure,
        **asdict(options),
        "out": str(options.out.absolute()),
    }
    _submit(carrier, folder, content)
    return folder


@private_files()
def resume(carrier: Carrier, name: str) -> Path:
    """Let a run that was broken off go on.

    Raises
    ------
    InputError
        If there is no such run, or it has ended well.
    """
    folder = carrier.federation.file("runs", name)
    content = _job_of(carrier.federation, folder)
    if outcome_of(folder).get("done"):
        raise InputError(f"run {name!r} has ended; its result is in {content['out']}")
    for ended in ("outcome.json", CANCEL):
        (folder / ended).unlink(missing_ok=True)
    _submit(carrier, folder, content)
    return folder


@private_files()
def forget(carrier: Carrier, name: str, site: str, out: Path) -> Path:
    """Let a run be done again as if a site had never been asked; return the folder of the run.

    Raises
    ------
    InputError
        If there is no such run, or it did not ask the site.
    """
    federation = carrier.federation
    before = federation.file("runs", name)
    content = _job_of(federation, before)
    if site not in content["sites"] or len(content["sites"]) < 2:
        raise InputError(
            f"run {name!r} asked {', '.join(content['sites'])}, of which {site!r} "
            "cannot be forgotten"
        )
    others = [each for each in content["sites"] if each != site]
    quorum = content["quorum"] and min(content["quorum"], len(others))
    new = federation.file("runs", _new_name())
    more = {"sites": others, "quorum": quorum, "out": str(out.absolute())}
    _submit(carrier, new, {**content, **more, "forgets": {"run": str(before), "site": site}})
    return new


def _job_of(federation: Federation, folder: Path) -> dict[str, Any]:
    """Return the content of ``job.json`` of a run."""
    try:
        return dict(json.loads((folder / "job.json").read_text("utf-8")))
    except (OSError, ValueError) as error:
        known = ", ".join(runs(federation))
        raise InputError(f"there is no run {folder.name!r}; there are: {known}") from error


def _submit(carrier: Carrier, folder: Path, content: Mapping[str, Any]) -> None:
    """Write a job down and hand it to the transport."""
    federation, ready = carrier.federation, carrier.ready()
    folder.mkdir(parents=True, exist_ok=True)
    bounds = {
        "rows": dict(federation.rows),
        "ranges": dict(federation.ranges),
        "first_rows": str(federation.file(FIRST_ROWS)),
    }
    write_json(folder / "job.json", {**content, **ready, **bounds})
    carrier.hand_over(folder)


def wait(carrier: Carrier, folder: Path, doing: Callable[[str], None]) -> dict[str, Any]:
    """Wait for the outcome of a run, and say meanwhile how far it is.

    Raises
    ------
    SiteError
        If the run failed, with its reason and how it can go on.
    """
    asked = time.monotonic()
    try:
        while not (outcome := outcome_of(folder)):
            rounds = sum(1 for _ in (folder / "communication_rounds").glob("exchange-*"))
            doing(f"{rounds} rounds done" if rounds else "waiting for the sites")
            time.sleep(LOOK)
            if time.monotonic() - asked > ASK:
                _check(carrier, folder)
                asked = time.monotonic()
    except KeyboardInterrupt:
        doing("telling the sites that it is cancelled")
        (folder / CANCEL).touch()
        end = time.monotonic() + FAREWELL
        while not outcome_of(folder) and time.monotonic() < end:
            time.sleep(LOOK)
        carrier.stop(folder)
        raise
    if not outcome["done"]:
        raise SiteError(f"{outcome['error']}; {_go_on(folder, outcome['error'])}")
    return outcome


def _go_on(folder: Path, error: str = "") -> str:
    federation = folder.parents[1]
    job = json.loads((folder / "job.json").read_text("utf-8"))
    if NO_PERMIT in error and not job.get("permit"):
        permits = sorted(path.stem for path in (federation / "permits").glob("*.toml"))
        named = f"--permit {permits[0]}" if len(permits) == 1 else "--permit ID"
        return f"begin anew with {named}, or see fedcluster federation permit --help"
    if NOT_COVERED in error:
        return "begin anew with a permit that does, see fedcluster federation permit --help"
    return f"when that is mended: fedcluster federation run {federation} resume {folder.name}"


def outcome_of(folder: Path) -> dict[str, Any]:
    """Return the outcome of a run, empty while there is none."""
    with suppress(OSError, ValueError):
        return dict(json.loads((folder / "outcome.json").read_text("utf-8")))
    return {}


def _check(carrier: Carrier, folder: Path) -> None:
    """Complain where a run has ended and left no outcome, or nobody is left to end it."""
    try:
        reason = carrier.end(folder)
    except SiteError as error:
        raise SiteError(f"{error}; {_go_on(folder)}") from error
    if reason is not None and not outcome_of(folder):
        raise SiteError(f"the run has ended without a result: {reason}; {_go_on(folder)}")


def runs(federation: Federation) -> dict[str, str]:
    """Return the runs by their names, and how they ended."""
    folders = sorted(federation.file("runs").glob("*/job.json"))
    outcomes = {path.parent.name: outcome_of(path.parent) for path in folders}
    return {
        name: ("done" if outcome["done"] else outcome["error"]) if outcome else "not ended"
        for name, outcome in outcomes.items()
    }
