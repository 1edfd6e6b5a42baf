"""Runs of a federation: their folders, their jobs and their outcomes."""

from __future__ import annotations

import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from fedcluster.core.files import plain, write_json
from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import Job, procedure_of
from fedcluster.recipes.specifications import RunOptions
from fedcluster.texts import command_line
from fedcluster_app.coordinator.certificates import REMOVED, PublicKey, former_keys
from fedcluster_app.coordinator.folder import CANCEL, FIRST_ROWS, Federation
from fedcluster_app.coordinator.operators import operators_log
from fedcluster_app.coordinator.run_job import MODEL_FILES, RESULT, outcome_of
from fedcluster_app.records import record_or
from fedcluster_app.secure.cohort import MIN_SITES, Cohort
from fedcluster_app.trust.owned_files import ORPHAN, RUNNING, has_run, is_running, private_files
from fedcluster_app.trust.permits import NO_PERMIT, NOT_COVERED, Permit

LOGGER = logging.getLogger(__name__)


class State(StrEnum):
    """The state of a run."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


GOING = {State.QUEUED, State.RUNNING}
"""States of a run that has not ended."""

EXCHANGES = "communication_rounds"
"""The folder, within that of a run, with the sites' answers."""

OPTIONS = ("quorum", "deadline", "permit", "columns", "secure")
"""Options of a run that an operator may set, which do not include output paths."""

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
WAS_CANCELLED = "the run was cancelled"


class Carrier(Protocol):
    """Carrier of runs: a transport from the coordinator's point of view."""

    @property
    def federation(self) -> Federation:
        """The federation."""
        ...

    def admit(
        self, keys: Mapping[str, Sequence[PublicKey]], leaving: Mapping[str, str]
    ) -> Collection[str]:
        """Let in who has these keys, and nobody else; return with which ones sites are connected.

        ``keys`` are those of each site, a new one last. ``leaving`` are sites, by the SHA-256 of
        their keys, that were removed and are still asked. SHA-256 are returned, too.
        """
        ...

    def hand_over(self, folder: Path) -> None:
        """Start the run whose job is in a folder."""
        ...

    def stop(self, folder: Path) -> None:
        """Stop a run, if it is active."""
        ...

    def end(self, folder: Path) -> str | None:
        """Return why a run has ended, None if it has not; raise SiteError if that is unknown."""
        ...

    def sites_online(self) -> list[str]:
        """Return the names of the sites that are connected."""
        ...


@dataclass(frozen=True, slots=True)
class Run:
    """State of a run and its history.

    Parameters
    ----------
    name : str
        The name of the run, and of its folder.
    state : str
        One of "queued", "running", "done", "failed", "cancelled" and "interrupted".
    operator : str
        The operator who requested it.
    job : str
        A description of the job.
    asked, began, ended : str
        The times in UTC; empty for what has not happened.
    attempts : int
        The number of times that it was started since it was requested.
    rounds : int
        The number of recorded exchanges with the sites.
    error : str
        The reason why it failed.
    """

    name: str = ""
    state: str = ""
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
        """Return the run in a folder; a run that has ended has an outcome."""
        run, outcome = record_or(folder / "state.json", cls, cls()), outcome_of(folder)
        state = run.state or State.INTERRUPTED
        if outcome and run.state not in GOING:
            kept = {State.CANCELLED, State.INTERRUPTED}
            failed = run.state if run.state in kept else State.FAILED
            state = State.DONE if outcome["done"] else failed
        return replace(
            run,
            name=folder.name,
            state=state,
            job=_in_words(_read(folder / "job.json")),
            rounds=(state not in GOING and run.rounds) or exchanges(folder),
            error=str(outcome.get("error", "")),
        )

    def save(self, folder: Path) -> None:
        """Write the state of the run into its folder."""
        names = ("state", "operator", "asked", "began", "ended", "attempts", "rounds")
        write_json(folder / "state.json", {name: getattr(self, name) for name in names})


def _in_words(content: Mapping[str, Any]) -> str:
    """Describe in a few words the job of a run, as options and keys.

    Examples
    --------
    >>> _in_words({"job": "fit", "parameters": {"n_clusters": 3, "m": 2.0, "model": "auto"}})
    'fit -k 3 fit.m=2.0'
    >>> _in_words({"job": "fit", "parameters": {"n_clusters": "auto", "model": "mixture"}})
    'fit -k auto --model mixture'
    """
    parameters = content.get("parameters", {})
    options = {option: parameters.get(name) for option, name in TELLING.items()}
    if parameters.get("model") in ("mixture", "merged"):
        options["--model "] = parameters["model"]
    given = [f"{option}{value}" for option, value in options.items() if value is not None]
    return " ".join([content.get("job", ""), *given])


TELLING = {"-k ": "n_clusters", "fit.m=": "m", "fit.epsilon=": "epsilon"}
"""Options and keys that tell runs apart, with their parameters."""


def exchanges(folder: Path) -> int:
    """Return the number of exchanges with the sites that a run has recorded."""
    return sum(1 for _ in (folder / EXCHANGES).glob("exchange-*"))


def run_folder(federation: Federation, name: str) -> Path:
    """Return the folder of an existing run.

    Raises
    ------
    InputError
        If there is no run with this name.
    """
    if (folder := find_run(federation, name)) is None:
        known = ", ".join(run.name for run in runs(federation))
        raise InputError(f"there is no run {name!r}; there are: {known}")
    return folder


def find_run(federation: Federation, name: str) -> Path | None:
    """Return the folder of a run, None if there is no run with this name."""
    folder = federation.file("runs", name)
    return folder if RUN_NAME.fullmatch(name) and (folder / "job.json").is_file() else None


def runs(federation: Federation) -> list[Run]:
    """Return the runs sorted by name, and thus by the time of the request."""
    folders = sorted(path.parent for path in federation.file("runs").glob("*/job.json"))
    return [Run.load(folder) for folder in folders]


def _read(path: Path) -> dict[str, Any]:
    return record_or(path, dict[str, Any], {})


def still_asked(federation: Federation) -> dict[str, str]:
    """Return the keys of removed sites that the active run asks: the sites by the keys' SHA-256."""
    former = former_keys(federation.folder).items()
    if not (removed := {digest: key.site for digest, key in former if key.why == REMOVED}):
        return {}
    going = [run.name for run in runs(federation) if run.state == State.RUNNING]
    jobs = [_read(federation.file("runs", name, "job.json")) for name in going]
    asked = {site for job in jobs for site in job.get("sites", ())}
    return {digest: site for digest, site in removed.items() if site in asked}


def new_run(federation: Federation) -> Path:
    """Return the folder for a new run, which does not exist yet."""
    name = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-") + os.urandom(2).hex()
    return federation.file("runs", name)


def check_options(federation: Federation, options: RunOptions) -> None:
    """Raise an error for invalid options.

    Raises
    ------
    InputError
        If the quorum or the deadline is invalid.
    """
    if options.quorum is not None and not 1 <= options.quorum <= len(federation.sites):
        raise InputError(
            f"--quorum must be from 1 to {len(federation.sites)}, not {options.quorum}"
        )
    if not options.deadline > 0:
        raise InputError(f"run.deadline must be above 0 seconds, not {options.deadline:g}")


def content_of(
    federation: Federation, folder: Path, job: Job, options: RunOptions
) -> dict[str, Any]:
    """Return the content of ``job.json`` for a new run.

    Raises
    ------
    InputError
        If an option is invalid, the job is not possible, the permit does not exist, or secure sums
        would be over too few sites.
    """
    check_options(federation, options)
    sites = list(federation.sites)
    if options.permit is not None:
        permit = Permit.load(federation.file("permits", f"{options.permit}.toml"))
        options = replace(options, columns=options.columns or permit.columns)
        sites = sorted(permit.sites) if options.secure else sites
    if options.secure:
        _check_cohort(sites, options.quorum)
    # otherwise the algorithm is checked where it runs
    if "." not in str(getattr(job, "algorithm", "")):
        procedure_of(procedure_of(job).with_public(None, federation.ranges, None)).check()
    parameters = plain(asdict(job))
    for key, file in MODEL_FILES.items():
        if parameters.get(key) == str(folder / file):
            parameters[key] = file
    return {
        "job": job.kind,
        "parameters": parameters,
        "sites": sites,
        **asdict(options),
        "out": RESULT,
    }


def _check_cohort(sites: Sequence[str], quorum: int | None) -> None:
    """Raise an error for secure sums that every site would refuse."""
    cohort = Cohort("", tuple(sites), quorum or len(sites))
    try:
        cohort.check(sites, MIN_SITES)
    except ValueError as error:
        raise InputError(f"--secure: {error}") from error


def content_without(federation: Federation, name: str, site: str, folder: Path) -> dict[str, Any]:
    """Return the content for a new run that repeats another one without a site.

    Raises
    ------
    InputError
        If there is no such run, it did not ask the site, or had secure sums.
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
    for file in MODEL_FILES.values():
        if (before / file).exists():
            shutil.copyfile(before / file, folder / file)
    forgets = {"run": os.path.join("..", name), "site": site}
    return {**content, "sites": others, "quorum": quorum, "out": RESULT, "forgets": forgets}


def write_job(folder: Path) -> None:
    """Add the settings of the federation to ``job.json`` of a starting run."""
    federation = Federation.load(folder.parents[1])  # what it says now
    bounds = {
        "rows": dict(federation.rows),
        "ranges": dict(federation.ranges),
        "first_rows": os.path.join("..", "..", FIRST_ROWS),
    }
    content = _read(folder / "job.json")
    write_json(folder / "job.json", {**content, **bounds})


def begin_anew(folder: Path) -> None:
    """Remove the marks of a run's end."""
    for ended in ("outcome.json", CANCEL):
        (folder / ended).unlink(missing_ok=True)


def how_to_go_on(run: Run, folder: Path, where: str) -> str:
    """Return advice on how to continue after a failed run; ``where`` is the operators' folder."""
    if NO_PERMIT in run.error and not _read(folder / "job.json").get("permit"):
        permits = sorted(path.stem for path in (folder.parents[1] / "permits").glob("*.toml"))
        named = f"--permit {permits[0]}" if len(permits) == 1 else "--permit ID"
        return f"begin anew with {named}, or see fedcluster federation permit --help"
    if NOT_COVERED in run.error:
        return "begin anew with a permit that does, see fedcluster federation permit --help"
    return f"when that is mended: {command_line('federation', 'run', where, 'resume', run.name)}"


class RunQueue:
    """Queue of a federation's runs, which are carried out one at a time.

    Requests are stored in the folders of the runs, so that a killed coordinator continues with the
    interrupted run, and then with those that wait.

    Parameters
    ----------
    carrier : Carrier
        The carrier of the runs.
    observe : callable, optional
        Called with the folder of the active run, several times a second.
    """

    interval = 0.2  # seconds between two checks for an outcome
    farewell = 15.0  # seconds within which a run informs its sites that it is cancelled
    ask = 5.0  # seconds between two checks whether a run is still active
    silent = 2  # number of successive failures to answer that a transport's program is allowed
    attempts = 3
    """Number of times that a run is started automatically, over restarts of the coordinator."""
    kept = 1000
    """Number of ended runs whose folders stay, as all are read to list them."""

    def __init__(self, carrier: Carrier, observe: Callable[[Path], object] = str) -> None:
        self._carrier, self._observe = carrier, observe
        self.log = operators_log(carrier.federation.folder)
        self._change = threading.RLock()
        self._woken, self._closing = threading.Event(), threading.Event()
        self._worker = threading.Thread(target=self._work, name="runs", daemon=True)

    @property
    def federation(self) -> Federation:
        """The federation, as its folder describes it now."""
        return Federation.load(self._carrier.federation.folder)

    def start(self) -> None:
        """Resume what was interrupted, and begin to work."""
        for run in runs(self._carrier.federation):
            folder = self._folder(run.name)
            if run.state == State.RUNNING and outcome_of(folder):
                _end(folder, run)
            elif run.state == State.RUNNING and (folder / CANCEL).exists():
                _end(folder, run, WAS_CANCELLED)
            elif run.state == State.RUNNING and run.attempts >= self.attempts:
                why = f"the coordinator ended {self.attempts} times during the run"
                _end(folder, run, why, State.INTERRUPTED)
            elif run.state == State.RUNNING:
                replace(run, state=State.QUEUED).save(folder)
                LOGGER.info("run goes on after a restart", extra={"run": run.name})
        self._worker.start()

    def close(self) -> None:
        """Let no other run begin; the active one continues when the queue starts again."""
        self._closing.set()
        self._woken.set()
        self._worker.join(self.interval * 10)

    def submit(self, content: Callable[[Path], Mapping[str, Any]], operator: str) -> Run:
        """Append a new run to the queue.

        Parameters
        ----------
        content : callable
            Returns the content of its job, given its folder, into which it may write files.
        operator : str
            The operator who requests it.
        """
        with self._change:
            folder = new_run(self._carrier.federation)
            folder.mkdir(parents=True)
            try:
                with self.log.locked() as log:
                    own = {"operator": operator, "log": f"{log.line}:{log.hash}"}
                write_json(folder / "job.json", {**content(folder), **own})
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            run = Run(folder.name, State.QUEUED, operator, asked=_now())
            run.save(folder)
        self._woken.set()
        LOGGER.info("run is queued", extra={"run": run.name, "operator": operator})
        return Run.load(folder)

    def resume(self, name: str, operator: str) -> Run:
        """Resume an interrupted run; one that waits, is active or has ended well is left alone.

        Raises
        ------
        InputError
            If there is no such run.
        """
        with self._change:
            folder = run_folder(self._carrier.federation, name)
            run = Run.load(folder)
            if run.state not in (*GOING, State.DONE):
                begin_anew(folder)
                owner = run.operator or operator
                Run(name, State.QUEUED, owner, asked=_now()).save(folder)
        self._woken.set()
        return Run.load(folder)

    def cancel(self, name: str) -> Run:
        """Cancel a run; an active one informs its sites first.

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
            if run.state == State.QUEUED:
                _end(folder, run, WAS_CANCELLED)
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
                self._run_job(folder)

    def _next(self) -> Path | None:
        """Return the folder of the next run, which is now marked as running."""
        with self._change:
            waiting = [r for r in runs(self._carrier.federation) if r.state == State.QUEUED]
            if not waiting:
                return None
            run = min(waiting, key=lambda each: (not each.began, each.asked, each.name))
            folder = self._folder(run.name)
            replace(
                run, state=State.RUNNING, began=run.began or _now(), attempts=run.attempts + 1
            ).save(folder)
            return folder

    def _run_job(self, folder: Path) -> None:
        """Carry out a run and record its end, unless this process ends first."""
        LOGGER.info("run begins", extra={"run": folder.name})
        try:
            if not self._goes_on(folder):
                (folder / RUNNING).unlink(missing_ok=True)
                write_job(folder)
                self._carrier.hand_over(folder)
            self._wait(folder)
        except (InputError, SiteError) as error:
            _fail(folder, str(error))
        except Exception as error:
            LOGGER.exception("the run could not be carried out", extra={"run": folder.name})
            _fail(folder, f"{type(error).__name__}: {error}")
        if outcome_of(folder):
            with self._change:
                ended = _end(folder, Run.load(folder))
                for old in _ended(self._carrier.federation)[: -self.kept]:
                    shutil.rmtree(self._folder(old.name), ignore_errors=True)
            LOGGER.info("run is %s", ended.state, extra={"run": folder.name})

    def _goes_on(self, folder: Path) -> bool:
        """Return whether a process still works on a run since an earlier coordinator, or is done.

        One that ends with its coordinator is waited for.
        """
        end = time.monotonic() + ORPHAN
        while (
            is_running(folder) and time.monotonic() < end and not self._closing.wait(self.interval)
        ):
            pass
        return is_running(folder) or bool(outcome_of(folder))

    def _wait(self, folder: Path) -> None:
        """Wait until a run has an outcome, or this process is asked to end."""
        checked, farewell, silent = time.monotonic(), 0.0, 0
        while not outcome_of(folder) and not self._closing.wait(self.interval):
            now = time.monotonic()
            self._observe(folder)
            if (folder / CANCEL).exists():
                farewell = farewell or now + self.farewell
            if farewell and now > farewell:
                self._carrier.stop(folder)
                _fail(folder, WAS_CANCELLED)
            # check this first: a run that was seen and is not running has ended
            ran = has_run(folder)
            if is_running(folder):
                checked, silent = now, 0
            elif ran and not outcome_of(folder):
                self._is_known(folder)  # the transport may say why
                _break_off(folder, "the process of the run was ended")
            elif now - checked > self.ask:
                checked = now
                silent = 0 if self._is_known(folder) else silent + 1
                if silent > self.silent:
                    _break_off(folder, "the transport's program does not answer")
        self._observe(folder)

    def _is_known(self, folder: Path) -> bool:
        """Return whether the transport knows a run; write an outcome if it left none."""
        try:
            reason = self._carrier.end(folder)
        except SiteError as error:
            LOGGER.warning("%s", error, extra={"run": folder.name})
            return False
        if reason is not None and not outcome_of(folder):
            _break_off(folder, f"the run has ended without a result: {reason}")
        return True


@contextmanager
def queue_of(carrier: Carrier, observe: Callable[[Path], object] = str) -> Iterator[RunQueue]:
    """Run the queue of a federation within the block."""
    queue = RunQueue(carrier, observe)
    with private_files():
        queue.start()
        try:
            yield queue
        finally:
            queue.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _fail(folder: Path, error: str, *, interrupted: bool = False) -> None:
    if not outcome_of(folder):
        outcome = {"done": False, "error": error, "interrupted": interrupted}
        write_json(folder / "outcome.json", outcome)


_break_off = partial(_fail, interrupted=True)


def _end(folder: Path, run: Run, error: str = "", state: str = "") -> Run:
    """Record the end of a run: by its outcome, or by an error if there is none."""
    _fail(folder, error)
    outcome = outcome_of(folder)
    how = State.INTERRUPTED if outcome.get("interrupted") else State.FAILED
    how = State.CANCELLED if (folder / CANCEL).exists() else how
    state = state or (State.DONE if outcome["done"] else how)
    ended = replace(run, state=state, ended=_now(), rounds=exchanges(folder))
    ended.save(folder)
    return ended


def _ended(federation: Federation) -> list[Run]:
    return [run for run in runs(federation) if run.state not in GOING]


def prune(
    federation: Federation, *, older_than: timedelta | None = None, keep: int | None = None
) -> list[str]:
    """Remove the records, but not the results, of ended runs; return the names of the runs.

    Parameters
    ----------
    federation : Federation
        The federation.
    older_than : timedelta, optional
        Only remove those of runs that ended longer ago.
    keep : int, optional
        The number of most recent runs to spare.
    """
    ended = _ended(federation)
    if keep is not None:
        ended = ended[: max(0, len(ended) - keep)]
    if older_than is not None:
        limit = (datetime.now(UTC) - older_than).isoformat()
        ended = [run for run in ended if (run.ended or _date_in(run.name)) < limit]
    pruned = []
    for run in ended:
        records = federation.file("runs", run.name, EXCHANGES)
        if records.is_dir():
            run.save(records.parent)  # saves the number of rounds found in the records
            shutil.rmtree(records)
            pruned.append(run.name)
    return pruned


def _date_in(name: str) -> str:
    """Return the time in the name of a run whose end was not recorded."""
    digits = name[:8]
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}" if digits.isdigit() else ""
