"""The coordinator: it has jobs done by the sites of a federation, and waits for their outcome."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedcluster.errors import InputError, SiteError
from fedcluster.federation._folder import Federation
from fedcluster.io._outputs import write_json
from fedcluster.jobs import JOBS, Job
from fedcluster.transports.flower._superlink import (
    is_started,
    local_address,
    reason_of_finish,
    registered_nodes,
    stop_run,
    submit_run,
)

LOOK = 0.2
"""Seconds between two looks for an outcome."""

ASK = 5.0
"""Seconds between two questions whether a run still goes on."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a job is done.

    Parameters
    ----------
    out : Path
        The folder that receives the files.
    columns : tuple of str, optional
        What to cluster by; without it all columns, which must then be the same everywhere.
    quorum : int, optional
        The smallest number of sites that must answer a round; by default all.
    deadline : float
        Seconds after which a round goes on without those that have not answered.
    """

    out: Path
    columns: tuple[str, ...] | None = None
    quorum: int | None = None
    deadline: float = 120.0


def begin(federation: Federation, job: Job, options: RunOptions) -> Path:
    """Hand a job to Flower and return the folder of the run.

    Raises
    ------
    InputError
        If the federation is not started, or Flower does not take the job.
    """
    if options.quorum is not None and not 1 <= options.quorum <= len(federation.sites):
        raise InputError(
            f"--quorum must be from 1 to {len(federation.sites)}, not {options.quorum}"
        )
    name = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-") + os.urandom(2).hex()
    folder = federation.file("runs", name)
    content = {
        "job": next(name for name, kind in JOBS.items() if isinstance(job, kind)),
        "parameters": asdict(job),
        "columns": options.columns,
        "sites": list(federation.sites),
        "quorum": options.quorum,
        "deadline": options.deadline,
        "insecure": federation.insecure,
        "out": str(options.out.absolute()),
    }
    _submit(federation, folder, content)
    return folder


def resume(federation: Federation, name: str) -> Path:
    """Let a run that was broken off go on.

    Raises
    ------
    InputError
        If there is no such run, or it has ended well.
    """
    folder = federation.file("runs", name)
    try:
        content = json.loads((folder / "job.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        known = ", ".join(runs(federation))
        raise InputError(f"there is no run {name!r}; there are: {known}") from error
    if _outcome(folder).get("done"):
        raise InputError(f"run {name!r} has ended; its result is in {content['out']}")
    (folder / "outcome.json").unlink(missing_ok=True)
    _submit(federation, folder, content)
    return folder


def _submit(federation: Federation, folder: Path, content: Mapping[str, Any]) -> None:
    """Write a job down and hand it to Flower."""
    nodes = registered_nodes(federation)
    if not is_started(federation):
        raise InputError(
            f"no coordinator answers at {local_address(federation)}; start it with fedcluster "
            f"federation start {federation.folder}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "job.json", {**content, "nodes": nodes})
    submit_run(federation, folder)


def wait(federation: Federation, folder: Path, doing: Callable[[str], None]) -> dict[str, Any]:
    """Wait for the outcome of a run, and say meanwhile how far it is.

    Raises
    ------
    SiteError
        If the run failed, with its reason and how it can go on.
    """
    asked = time.monotonic()
    try:
        while not (outcome := _outcome(folder)):
            rounds = sum(1 for _ in (folder / "communication_rounds").glob("exchange-*"))
            doing(f"{rounds} rounds done" if rounds else "waiting for the sites")
            time.sleep(LOOK)
            if time.monotonic() - asked > ASK:
                _check(federation, folder)
                asked = time.monotonic()
    except KeyboardInterrupt:
        stop_run(federation, folder)
        raise
    if not outcome["done"]:
        raise SiteError(f"{outcome['error']}; {_go_on(folder)}")
    return outcome


def _go_on(folder: Path) -> str:
    federation = folder.parents[1]
    return f"when that is mended: fedcluster federation run {federation} resume {folder.name}"


def _outcome(folder: Path) -> dict[str, Any]:
    """Return the outcome of a run, empty while there is none."""
    with suppress(OSError, ValueError):
        return dict(json.loads((folder / "outcome.json").read_text("utf-8")))
    return {}


def _check(federation: Federation, folder: Path) -> None:
    """Complain where a run has ended and left no outcome, or nobody is left to end it."""
    try:
        reason = reason_of_finish(federation, folder)
    except ConnectionError as error:
        raise SiteError(
            f"the coordinator at {local_address(federation)} has gone; {_go_on(folder)}"
        ) from error
    if reason is not None and not _outcome(folder):
        raise SiteError(f"the run has ended without a result: {reason}; {_go_on(folder)}")


def runs(federation: Federation) -> dict[str, str]:
    """Return the runs by their names, and how they ended."""
    folders = sorted(federation.file("runs").glob("*/job.json"))
    outcomes = {path.parent.name: _outcome(path.parent) for path in folders}
    return {
        name: ("done" if outcome["done"] else outcome["error"]) if outcome else "not ended"
        for name, outcome in outcomes.items()
    }
