"""Server of the page that follows a run: on this machine only, for those who have its address."""

from __future__ import annotations

import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedcluster._html import Html, element, joined
from fedcluster._pages import _account as account
from fedcluster._pages._page import page, report_page
from fedcluster._pages._parts import named, paragraphs, section, table
from fedcluster._pages._progress import Progress, measured_by, read_progress
from fedcluster._pages._run import damaged, read_run, written_by
from fedcluster._report._messages import counted
from fedcluster._report._tables import number
from fedcluster.errors import InputError
from fedcluster.metrics.objectives import shown_value

LOOPBACK = "127.0.0.1"
BEST = "the best run so far, in the current or last step"
SO_FAR = "the best so far in this step"
NO_RUN = (
    "The federation has no run yet. Begin one with fedcluster federation run; this page follows "
    "it as soon as it has begun.",
)
NOW = "now"
"""Where the page asks for its new contents."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Run that is followed.

    Parameters
    ----------
    folder : Path
        The folder of a run of a federation, or one that a job wrote; or that of a federation
        without a run, whose first one is followed when it has begun.
    clock : callable
        Gives the time, in seconds since 1970.
    """

    folder: Path
    clock: Callable[[], float] = time.time

    @property
    def run(self) -> Path | None:
        """Return the folder of the run, None before it has begun."""
        if not is_federation(self.folder):
            return self.folder
        return next(iter(runs_of(self.folder)), None)

    @property
    def outcome(self) -> dict[str, Any]:
        """Return how the run ended, empty while it goes on."""
        if (run := self.run) is None:
            return {}
        path = run / "outcome.json"
        if not (run / "job.json").is_file():
            return {"done": True, "out": str(run)}
        if not path.is_file():
            return {}
        with damaged(path):
            return dict(json.loads(path.read_text("utf-8")))

    def page(self) -> str:
        """Return the page as it is now: the report where the run has ended well."""
        run = self.run
        if run is not None and self.outcome.get("done"):
            content = read_run(run)
            with damaged(written_by(run)):
                return report_page(content)
        title = f"Run {run.name}" if run else f"Federation {self.folder.name}"
        return page(title, (run or self.folder).name, self._parts(), live=NOW)

    def now(self) -> str:
        """Return as JSON what is new: whether the run has ended well, its name and contents."""
        done = bool(self.outcome.get("done"))
        main = "" if done else joined(*self._parts().values())
        return json.dumps({"done": done, "name": str(self.run and self.run.name), "main": main})

    def _parts(self) -> dict[str, Html]:
        if (folder := self.run) is None:
            return {"now": section("now", "Now", paragraphs(NO_RUN))}
        progress = read_progress(folder, self.clock())
        run = progress.run(folder.name)
        return {
            "now": now(progress, str(self.outcome.get("error", ""))),
            "convergence": account.convergence(run, BEST),
            "rounds": account.taking_part(run),
        }


def now(progress: Progress, error: str = "") -> Html:
    """Return where a run is: its round, what it has found, and what each site does."""
    ended = element("p", f"The run has ended: {error}.", class_="size") if error else None
    if not progress.began:
        waiting = None if error else element("p", "Waiting for the sites.")
        return section("now", "Now", ended, waiting)
    statuses = {} if error else progress.statuses()
    facts = [["rounds that have ended", f"{len(progress.ended):,}"], *_found(progress)]
    if not error:
        facts = [*_asked(progress, statuses), *facts]
    rows = [[named(name), status] for name, status in statuses.items()]
    sites = table(counted(len(rows), "site"), ["site", "now"], rows, class_="texts")
    run = table("The run", ["what", "now"], facts, class_="texts")
    return section("now", "Now", ended, run, sites)


def _asked(progress: Progress, statuses: Mapping[str, str]) -> list[list[str]]:
    """Return which round it is, who has answered, and how long the run may take."""
    last = progress.began[-1]
    there = sum(statuses[name] == "answered" for name in last["asked"])
    facts = [
        ["round", f"{last['round']}: {', '.join(last['tasks'])}"],
        ["sites that have answered it", f"{there} of {len(last['asked'])}"],
    ]
    left = progress.left()
    return [*facts, *([["time left", left]] if left else [])]


def _found(progress: Progress) -> list[list[str]]:
    """Return what the run has found, and how long a round takes."""
    last, facts = progress.began[-1], []
    if last["inertia"] is not None:
        name = measured_by(last["step"])
        facts.append([f"{name}, {SO_FAR}", number(shown_value(name, last["inertia"]))])
    if last["shift"] is not None:
        facts.append(["largest shift of a centre", number(last["shift"])])
    if progress.ended:
        facts.append(["a round takes", f"{progress.seconds:.2g} s"])
    return facts


class Handler(BaseHTTPRequestHandler):
    """Answers for the page and its new contents, and for nothing else."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a request that has the key, from a program of this machine."""
        ours = {f"{host}:{self.server.server_port}" for host in (LOOPBACK, "localhost")}
        key, _, rest = self.path.removeprefix("/").partition("/")
        known = hmac.compare_digest(key.encode(), self.server.key.encode())
        if self.headers.get("Host") not in ours or not known or rest not in ("", NOW):
            self._answer(404, "text/plain", "There is nothing here.")
            return
        kind = "application/json" if rest else "text/html"
        try:
            self._answer(200, kind, self.server.run.now() if rest else self.server.run.page())
        except InputError as error:
            self._answer(500, "text/plain", str(error))

    def _answer(self, status: int, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
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
        """Say nothing: a line would hold the key."""


class Server(ThreadingHTTPServer):
    """Server of the page of one run, on the loopback address.

    Parameters
    ----------
    run : Watched
        The run.
    port : int
        Its port; 0 for one that is free.

    Attributes
    ----------
    key : str
        What the address holds, so that no other user of this machine can read the page.
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
        """Return where the page is."""
        return f"http://{LOOPBACK}:{self.server_port}/{self.key}/"


def is_federation(folder: Path) -> bool:
    """Return whether a folder is that of a federation."""
    return (folder / "federation.toml").is_file()


def runs_of(federation: Path) -> list[Path]:
    """Return the folders of the runs of a federation, the first one first."""
    return sorted(path.parent for path in federation.glob("runs/*/job.json"))


def followed(folder: Path) -> Path:
    """Return the folder of the run that is meant: of a federation, that which began last.

    Before a federation has a run it is its own folder.

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
