"""The page that follows a run, made from its events, and its local server."""

from __future__ import annotations

import hmac
import json
import math
import secrets
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedcluster.algorithms import FFCM, GaussianMixture
from fedcluster.algorithms.private import RelativeLloyd
from fedcluster.engines.wire import STEPS, step_of
from fedcluster.errors import InputError
from fedcluster.metrics.clusters import OBJECTIVES, REPORTED, objective_name, shown_value
from fedcluster.model.run import Run, damaged, outcome_of, read_run, written_by
from fedcluster.texts.words import counted, number
from fedcluster_app.report.html import parts
from fedcluster_app.report.page import HEADINGS, convergence, page, report_page, taking_part
from fedcluster_app.wire.recorder import PROGRESS

RESULTS = ("step", "inertia", "shift")
"""Number of results of earlier rounds in the event of a round."""
MIXTURE = "GaussianMixture"
"""The step whose inertia is the negative log-likelihood."""


@dataclass(frozen=True)
class Progress:
    """Events of a run, and the time at which they are evaluated.

    Parameters
    ----------
    events : sequence of mapping
        The events that `WatchedEngine` and the transport logged, in order.
    now : float
        The time, in seconds since 1970.
    """

    events: Sequence[Mapping[str, Any]]
    now: float
    recent = 5  # number of rounds on which an estimate is based
    rest = 1e-3  # fraction of its largest shift at which a centre has almost converged
    late = 2.0  # factor of a usual round's duration from which on a site is late
    gone = 2  # number of successive rounds missed from which on a site counts as gone

    @cached_property
    def began(self) -> Sequence[Mapping[str, Any]]:
        """The events of rounds that began."""
        return [event for event in self.events if "asked" in event]

    @cached_property
    def ended(self) -> Mapping[int, Mapping[str, Any]]:
        """The rounds that have ended, by number."""
        return {event["round"]: event for event in self.events if "answered" in event}

    @property
    def open(self) -> Mapping[str, Any] | None:
        """The round that has begun and not ended."""
        last = self.began[-1] if self.began else None
        return None if last is None or last["round"] in self.ended else last

    @cached_property
    def seconds(self) -> float:
        """The median duration of recent rounds in seconds; nan before the first has ended."""
        took = [
            self.ended[event["round"]]["at"] - event["at"]
            for event in self.began
            if event["round"] in self.ended
        ]
        return statistics.median(took[-self.recent :]) if took else math.nan

    def statuses(self) -> dict[str, str]:
        """Return the state of each site, in words, by name."""
        names = dict.fromkeys(name for event in self.began for name in event["asked"])
        return {name: self._status(name) for name in names}

    def _status(self, name: str) -> str:
        if (now := self.open) is not None and name in now["asked"]:
            replied = (event.get("heard") for event in self.events[self.events.index(now) :])
            if name in replied:
                return "answered"
            waited = self.now - now["at"]
            if waited > self.late * self.seconds and waited > 1:
                return f"late, asked {_lasting(waited)} ago"
            return "asked"
        missed: list[str] = []  # why, of the last rounds, without a gap, that asked it in vain
        for done in reversed(list(self.ended.values())):
            if name in done["answered"]:
                break
            missed += [done["missing"][name]] if name in done["missing"] else []
        if not missed:
            return "answered" if self.ended else "asked"
        return f"{'gone' if len(missed) >= self.gone else 'missed the last round'}: {missed[0]}"

    def left(self) -> str:
        """Return the estimated remaining time in words; empty if unknown.

        Shifts of a centre decrease like a geometric series: the estimate is the time until they are
        small compared with the largest one. A search may start again at any time.
        """
        moved = [event["shift"] for event in self.began if event["shift"]]
        if len(moved) < self.recent or math.isnan(self.seconds):
            return ""
        recent = moved[-self.recent :]
        factor = (recent[-1] / recent[0]) ** (1 / (self.recent - 1))
        small = self.rest * max(moved)
        if recent[-1] <= small:
            return "nearly at rest"
        if factor >= 1:
            return ""
        rounds = math.ceil(math.log(small / recent[-1]) / math.log(factor))
        return f"about {_lasting(rounds * self.seconds)}, if centres come to rest as they do now"

    def run(self, name: str) -> Run:
        """Return the events as a run, for the sections of the report."""
        sites = dict.fromkeys(name for event in self.began for name in event["asked"])
        rounds = [
            {
                "round": event["round"],
                "tasks": event["tasks"],
                "missing": list(self.ended[event["round"]]["missing"]),
                "values_sent": self.ended[event["round"]]["answered"],
            }
            for event in self.began
            if event["round"] in self.ended
        ]
        missing = [
            {"site": site, "exchange": exchange, "reason": reason}
            for exchange, done in self.ended.items()
            for site, reason in done["missing"].items()
        ]
        known = [event for event in self.began if event["inertia"] is not None]
        step = known[-1]["step"] if known else ""
        history = [
            {"round": event["round"] - 1} | {name: event[name] for name in RESULTS}
            for event in known
            if event["step"] == step
        ]
        content = {
            "rounds": len(rounds),
            "model": "mixture" if step == MIXTURE else "k-means",
            "objective": measured_by(step),
            "sites": [{"name": site} for site in sites],
            "history": history,
            "missing": missing,
            "communication_rounds": rounds,
        }
        return Run(name, history=content)


def measured_by(step: str) -> str:
    """Return the name of the quantity that a step reports as its inertia.

    Examples
    --------
    >>> measured_by("FFCM"), measured_by("Lloyd"), measured_by("Mine")
    ('fuzzy-objective', 'inertia', 'inertia as the algorithm reports it')
    """
    kind: Any = step_of(STEPS[step]) if step in STEPS else None
    if kind in (FFCM, GaussianMixture):
        kind = kind()  # their objective depends on their parameters
    if step in OBJECTIVES or not hasattr(kind, "objective"):
        return OBJECTIVES.get(step, REPORTED)
    return objective_name(kind, noisy=kind is RelativeLloyd)


def read_progress(folder: Path, now: float) -> Progress:
    """Read the events of a run, except a last line that is still being written."""
    path, events = folder / PROGRESS, []
    for line in path.read_text("utf-8").splitlines() if path.is_file() else ():
        with suppress(ValueError):
            events.append(json.loads(line))
    return Progress(events, now)


def _lasting(seconds: float) -> str:
    """Return a duration in words.

    Examples
    --------
    >>> _lasting(0.3), _lasting(61), _lasting(7200)
    ('1 s', '1 min 1 s', '2 h 0 min')
    """
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


LOOPBACK = "127.0.0.1"
BEST = "the best run so far, in the current or last step"
SO_FAR = "the best so far in this step"
NO_RUN = (
    "The federation has no run yet. Begin one with fedcluster federation run; this page follows "
    "it as soon as it has begun."
)


@dataclass(frozen=True, slots=True)
class Watched:
    """A run that is being followed.

    Parameters
    ----------
    folder : Path
        The folder of a federation's run, or of a job's files; or that of a federation without runs,
        whose first run is then followed.
    clock : callable
        Returns the time, in seconds since 1970.
    """

    folder: Path
    clock: Callable[[], float] = time.time

    @property
    def run(self) -> Path | None:
        """The folder of the run, None before it has begun."""
        if not is_federation(self.folder):
            return self.folder
        return next(iter(runs_of(self.folder)), None)

    def page(self) -> str:
        """Return the present page, or the report if the run has ended well."""
        run = self.run
        outcome = {} if run is None else outcome_of(run)
        if run is not None and outcome.get("done"):
            content = read_run(run)
            with damaged(written_by(run)):
                return report_page(content)
        contents: dict[str, Sequence[Any]] = {"now": [parts.paragraphs(NO_RUN)]}
        if run is not None:
            progress = read_progress(run, self.clock())
            known = progress.run(run.name)
            contents = {
                "now": now(progress, str(outcome.get("error", ""))),
                "convergence": convergence(known, BEST),
                "rounds": taking_part(known),
            }
        title = f"Run {run.name}" if run else f"Federation {self.folder.name}"
        shown = {key: parts.section(key, HEADINGS[key], *each) for key, each in contents.items()}
        return page(title, (run or self.folder).name, shown, live=True)


def now(progress: Progress, error: str = "") -> Sequence[Any]:
    """Return the section on the state of a run: its round, first results, and each site."""
    ended = parts.size(f"The run has ended: {error}.") if error else None
    if not progress.began:
        return [ended or parts.paragraphs("Waiting for the sites.")]
    last, facts = progress.began[-1], []
    statuses = {} if error else progress.statuses()
    if not error:
        there = sum(statuses[name] == "answered" for name in last["asked"])
        facts = [
            ["round", f"{last['round']}: {', '.join(last['tasks'])}"],
            ["sites that have answered it", f"{there} of {len(last['asked'])}"],
            ["time left", progress.left()],
        ]
    facts.append(["rounds that have ended", f"{len(progress.ended):,}"])
    if last["inertia"] is not None:
        name = measured_by(last["step"])
        facts.append([f"{name}, {SO_FAR}", number(shown_value(name, last["inertia"]))])
    if last["shift"] is not None:
        facts.append(["largest shift of a centre", number(last["shift"])])
    if progress.ended:
        facts.append(["a round takes", f"{progress.seconds:.2g} s"])
    run = parts.table("The run", ["what", "now"], [each for each in facts if each[1]], "texts")
    rows = [[parts.named(name), status] for name, status in statuses.items()]
    return [ended, run, parts.table(counted(len(rows), "site"), ["site", "now"], rows, "texts")]


class Handler(BaseHTTPRequestHandler):
    """Handler of requests for the page, which reloads itself each second, and nothing else."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request that has the key and comes from this machine."""
        ours = {f"{host}:{self.server.server_port}" for host in (LOOPBACK, "localhost")}
        key, _, rest = self.path.removeprefix("/").partition("/")
        known = hmac.compare_digest(key.encode(), self.server.key.encode())
        if self.headers.get("Host") not in ours or not known or rest:
            self._answer(404, "plain", "There is nothing here.")
            return
        try:
            self._answer(200, "html", self.server.run.page())
        except InputError as error:
            self._answer(500, "plain", str(error))

    def _answer(self, status: int, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": f"text/{kind}; charset=utf-8",
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because a line would contain the key."""


class Server(ThreadingHTTPServer):
    """Server of the page of one run, on the loopback address.

    Parameters
    ----------
    run : Watched
        The run.
    port : int
        The port; 0 for any free one.

    Attributes
    ----------
    key : str
        The secret part of the address, without which other users of this machine cannot read the
        page.
    """

    daemon_threads = True

    def __init__(self, run: Watched, port: int = 0) -> None:
        self.run, self.key = run, secrets.token_urlsafe(16)
        try:
            super().__init__((LOOPBACK, port), Handler)
        except OSError as error:
            why = error.strerror or error
            raise InputError(f"port {port} cannot be used: {why}; choose another --port") from error

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.key}/"


def is_federation(folder: Path) -> bool:
    """Return whether a folder is that of a federation."""
    return (folder / "federation.toml").is_file()


def runs_of(federation: Path) -> list[Path]:
    """Return the folders of a federation's runs, oldest first."""
    return sorted(path.parent for path in federation.glob("runs/*/job.json"))


def followed(folder: Path) -> Path:
    """Return the folder of the run to follow; for a federation, its latest run.

    If a federation has no runs yet, this is its own folder.

    Raises
    ------
    InputError
        If the folder is neither.
    """
    if is_federation(folder):
        return next(reversed(runs_of(folder)), folder)
    if not (folder / "job.json").is_file():
        read_run(folder)
    return folder
