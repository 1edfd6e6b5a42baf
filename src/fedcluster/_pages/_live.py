"""Server of the page that follows a run: on this machine only, for those who have its address."""

from __future__ import annotations

import hmac
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedcluster._html import Html, element, joined
from fedcluster._pages import _account as account
from fedcluster._pages._page import page, report_page
from fedcluster._pages._parts import named, section, table
from fedcluster._pages._progress import Progress, read_progress
from fedcluster._pages._run import damaged, read_run, written_by
from fedcluster._report._messages import counted
from fedcluster._report._tables import number
from fedcluster.errors import InputError

LOOPBACK = "127.0.0.1"
NOW = "now"
"""Where the page asks for its new contents."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Run that is followed.

    Parameters
    ----------
    folder : Path
        The folder of a run of a federation, or one that a job wrote.
    clock : callable
        Gives the time, in seconds since 1970.
    """

    folder: Path
    clock: Callable[[], float] = time.time

    @property
    def outcome(self) -> dict[str, Any]:
        """Return how the run ended, empty while it goes on."""
        path = self.folder / "outcome.json"
        if not (self.folder / "job.json").is_file():
            return {"done": True, "out": str(self.folder)}
        if not path.is_file():
            return {}
        with damaged(path):
            return dict(json.loads(path.read_text("utf-8")))

    def page(self) -> str:
        """Return the page as it is now: the report where the run has ended well."""
        if self.outcome.get("done"):
            run = read_run(self.folder)
            with damaged(written_by(self.folder)):
                return report_page(run)
        title = f"Run {self.folder.name}"
        return page(title, self.folder.name, self._parts(), live=NOW)

    def now(self) -> str:
        """Return as JSON what is new: whether the run has its report, and the page's contents."""
        done = bool(self.outcome.get("done"))
        main = "" if done else joined(*self._parts().values())
        return json.dumps({"done": done, "main": main})

    def _parts(self) -> dict[str, Html]:
        progress = read_progress(self.folder, self.clock())
        run = progress.run(self.folder.name)
        return {
            "now": now(progress, str(self.outcome.get("error", ""))),
            "convergence": account.convergence(run),
            "rounds": account.taking_part(run),
        }


def now(progress: Progress, error: str = "") -> Html:
    """Return where a run is: its round, what it has found, and what each site does."""
    said = [element("p", f"The run has ended: {error}.", class_="size") if error else None]
    last = progress.began[-1] if progress.began else None
    if last is None:
        return section("now", "Now", said, element("p", "Waiting for the sites."))
    statuses = {} if error else progress.statuses()
    there = sum(status == "answered" for status in statuses.values())
    facts = [["rounds that have ended", f"{len(progress.ended):,}"]]
    if not error:
        asked = ", ".join(last["tasks"])
        facts.insert(0, ["round", f"{last['round']}: {asked}"])
        facts.append(["sites that have answered it", f"{there} of {len(last['asked'])}"])
    if last["inertia"] is not None:
        facts.append(["inertia, the best so far in this step", number(last["inertia"])])
    if last["shift"] is not None:
        facts.append(["largest shift of a centre", number(last["shift"])])
    if progress.ended:
        facts.append(["a round takes", f"{progress.seconds:.2g} s"])
    if left := "" if error else progress.left():
        facts.append(["time left", left])
    rows = [[named(name), status] for name, status in statuses.items()]
    sites = table(f"{counted(len(rows), 'site')}", ["site", "now"], rows, class_="texts")
    return section(
        "now", "Now", said, table("The run", ["what", "now"], facts, class_="texts"), sites
    )


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


def followed(folder: Path) -> Path:
    """Return the folder of the run that is meant: of a federation, that which began last.

    Raises
    ------
    InputError
        If there is none.
    """
    if (folder / "federation.toml").is_file():
        runs = sorted(path.parent for path in folder.glob("runs/*/job.json"))
        if not runs:
            raise InputError(f"{folder} has no run yet; begin one with fedcluster federation run")
        return runs[-1]
    if not (folder / "job.json").is_file():
        read_run(folder)
    return folder
