"""Queue of the runs of a coordinator: one after the other, in the order in which they came."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fedcluster.errors import InputError, SiteError
from fedcluster.federation._folder import CANCEL, Federation
from fedcluster.federation._private import private_files
from fedcluster.federation._runs import (
    CANCELLED,
    DONE,
    EXCHANGES,
    FAILED,
    GOING,
    INTERRUPTED,
    QUEUED,
    RUNNING,
    WAS_CANCELLED,
    Carrier,
    Run,
    begin_anew,
    exchanges,
    new_run,
    outcome_of,
    run_folder,
    runs,
    write_job,
)
from fedcluster.io._outputs import write_json

LOGGER = logging.getLogger(__name__)

LOOK = 0.2
"""Seconds between two looks for an outcome."""

FAREWELL = 15.0
"""Seconds that a run has to tell its sites that it is cancelled."""

ASK = 5.0
"""Seconds between two questions whether a run still goes on."""

SILENT = 2
"""How often a transport's program may not answer, one time after the other."""

ATTEMPTS = 3
"""How often a run is begun by itself, over restarts of the coordinator."""


def unobserved(_folder: Path) -> None:
    """Take no note of a run."""


class RunQueue:
    """Runs of a federation that wait, or are carried out one at a time.

    What is asked for stands in the folders of the runs, so that a coordinator that was killed goes
    on with the run that it was at, and then with those that wait.

    Parameters
    ----------
    carrier : Carrier
        Who carries out a run.
    observe : callable, optional
        Called with the folder of the run that goes on, several times a second.
    """

    def __init__(self, carrier: Carrier, observe: Callable[[Path], None] = unobserved) -> None:
        self._carrier, self._observe = carrier, observe
        self._change = threading.RLock()
        self._woken, self._closing = threading.Event(), threading.Event()
        self._worker = threading.Thread(target=self._work, name="runs", daemon=True)

    @property
    def federation(self) -> Federation:
        """Return the federation, as its folder describes it now."""
        return Federation.load(self._carrier.federation.folder)

    def start(self) -> None:
        """Take up what was broken off, and begin to work."""
        for run in runs(self._carrier.federation):
            folder = self._folder(run.name)
            if run.state == RUNNING and outcome_of(folder):
                _settle(folder, run)
            elif run.state == RUNNING and (folder / CANCEL).exists():
                _end(folder, run, CANCELLED, WAS_CANCELLED)
            elif run.state == RUNNING and run.attempts >= ATTEMPTS:
                why = f"the coordinator ended {ATTEMPTS} times during the run"
                _end(folder, run, INTERRUPTED, why)
            elif run.state == RUNNING:
                replace(run, state=QUEUED).save(folder)
                LOGGER.info("run goes on after a restart", extra={"run": run.name})
        self._worker.start()

    def close(self) -> None:
        """Let no other run begin; the one at hand goes on when the queue starts again."""
        self._closing.set()
        self._woken.set()
        self._worker.join(LOOK * 10)

    def submit(self, content: Callable[[Path], Mapping[str, Any]], operator: str) -> Run:
        """Put a new run at the end of the queue.

        Parameters
        ----------
        content : callable
            Return what it is to do, given its folder; files that it needs are written there.
        operator : str
            Who asks for it.
        """
        with self._change:
            folder = new_run(self._carrier.federation)
            folder.mkdir(parents=True)
            try:
                write_json(folder / "job.json", {**content(folder), "operator": operator})
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            run = Run(folder.name, QUEUED, operator, asked=_now())
            run.save(folder)
        self._woken.set()
        LOGGER.info("run is queued", extra={"run": run.name, "operator": operator})
        return Run.load(folder)

    def resume(self, name: str, operator: str) -> Run:
        """Let a run that was broken off go on; one that waits or goes on is left alone.

        Raises
        ------
        InputError
            If there is no such run, or it has ended well.
        """
        with self._change:
            folder = run_folder(self._carrier.federation, name)
            run = Run.load(folder)
            if run.state == DONE:
                raise InputError(
                    f"run {name!r} has ended; fetch its result with fedcluster federation result"
                )
            if run.state not in GOING:
                begin_anew(folder)
                asked = run.operator or operator
                Run(name, QUEUED, asked, asked=_now()).save(folder)
        self._woken.set()
        return Run.load(folder)

    def cancel(self, name: str) -> Run:
        """Cancel a run; one that goes on tells its sites first.

        Raises
        ------
        InputError
            If there is no such run, or it has ended.
        """
        with self._change:
            folder = run_folder(self._carrier.federation, name)
            run = Run.load(folder)
            if run.state not in GOING:
                raise InputError(f"run {name!r} is {run.state}; there is nothing to cancel")
            (folder / CANCEL).touch()
            if run.state == QUEUED:
                _end(folder, run, CANCELLED, WAS_CANCELLED)
        LOGGER.info("run is cancelled", extra={"run": name})
        return Run.load(folder)

    def _folder(self, name: str) -> Path:
        return self._carrier.federation.file("runs", name)

    def _work(self) -> None:
        while not self._closing.is_set():
            self._woken.clear()
            if (folder := self._next()) is None:
                self._woken.wait()
            else:
                self._carry_out(folder)

    def _next(self) -> Path | None:
        """Return the folder of the run that is next, which is running now."""
        with self._change:
            waiting = [r for r in runs(self._carrier.federation) if r.state == QUEUED]
            if not waiting:
                return None
            run = min(waiting, key=lambda each: (not each.began, each.asked, each.name))
            folder = self._folder(run.name)
            replace(run, state=RUNNING, began=run.began or _now(), attempts=run.attempts + 1).save(
                folder
            )
            return folder

    def _carry_out(self, folder: Path) -> None:
        """Have a run done, and write down how it ended; nothing where this process ends first."""
        LOGGER.info("run begins", extra={"run": folder.name})
        try:
            write_job(self._carrier, folder)
            self._carrier.hand_over(folder)
            self._wait(folder)
        except (InputError, SiteError) as error:
            _fail(folder, str(error))
        except Exception as error:
            LOGGER.exception("the run could not be carried out", extra={"run": folder.name})
            _fail(folder, f"{type(error).__name__}: {error}")
        if outcome_of(folder):
            with self._change:
                ended = _settle(folder, Run.load(folder))
            LOGGER.info("run is %s", ended.state, extra={"run": folder.name})

    def _wait(self, folder: Path) -> None:
        """Wait until a run has an outcome, or this process is to end."""
        asked, farewell, silent = time.monotonic(), 0.0, 0
        while not outcome_of(folder) and not self._closing.wait(LOOK):
            now = time.monotonic()
            self._observe(folder)
            if (folder / CANCEL).exists():
                farewell = farewell or now + FAREWELL
            if farewell and now > farewell:
                self._carrier.stop(folder)
                _fail(folder, WAS_CANCELLED)
            if now - asked > ASK:
                asked = now
                silent = 0 if self._is_known(folder) else silent + 1
                if silent > SILENT:
                    _fail(folder, "the transport's program does not answer")
        self._observe(folder)

    def _is_known(self, folder: Path) -> bool:
        """Return whether the transport knows of a run; write an outcome where it left none."""
        try:
            reason = self._carrier.end(folder)
        except SiteError as error:
            LOGGER.warning("%s", error, extra={"run": folder.name})
            return False
        if reason is not None and not outcome_of(folder):
            _fail(folder, f"the run has ended without a result: {reason}")
        return True


@contextmanager
def queue_of(carrier: Carrier, observe: Callable[[Path], None] = unobserved) -> Iterator[RunQueue]:
    """Carry out the runs of a federation while the block lasts."""
    queue = RunQueue(carrier, observe)
    with private_files():
        queue.start()
        try:
            yield queue
        finally:
            queue.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _fail(folder: Path, error: str) -> None:
    if not outcome_of(folder):
        write_json(folder / "outcome.json", {"done": False, "error": error})


def _end(folder: Path, run: Run, state: str, error: str) -> None:
    _fail(folder, error)
    replace(run, state=state, ended=_now(), rounds=exchanges(folder)).save(folder)


def _settle(folder: Path, run: Run) -> Run:
    """Write down how a run with an outcome has ended."""
    state = DONE if outcome_of(folder)["done"] else FAILED
    if state == FAILED and (folder / CANCEL).exists():
        state = CANCELLED
    ended = replace(run, state=state, ended=_now(), rounds=exchanges(folder))
    ended.save(folder)
    return ended


def prune(
    federation: Federation, *, older_than: timedelta | None = None, keep: int | None = None
) -> list[str]:
    """Remove the records of runs that have ended; results stay. Return the names of the runs.

    Parameters
    ----------
    federation : Federation
        The federation.
    older_than : timedelta, optional
        Only of runs that ended longer ago.
    keep : int, optional
        Not of so many that came last.
    """
    ended = [run for run in runs(federation) if run.state not in GOING]
    if keep is not None:
        ended = ended[: max(0, len(ended) - keep)]
    if older_than is not None:
        limit = (datetime.now(UTC) - older_than).isoformat()
        ended = [run for run in ended if (run.ended or _date_in(run.name)) < limit]
    pruned = []
    for run in ended:
        records = federation.file("runs", run.name, EXCHANGES)
        if records.is_dir():
            run.save(records.parent)  # with the number of rounds, which the records told
            shutil.rmtree(records)
            pruned.append(run.name)
    return pruned


def _date_in(name: str) -> str:
    """Return the time in the name of a run of which nobody wrote when it ended."""
    digits = name[:8]
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}" if digits.isdigit() else ""
