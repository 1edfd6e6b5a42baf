"""A real federation on this machine: Flower's SuperLink and sites, each its own process."""

from __future__ import annotations

import json
import os
import secrets
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from introductions import disclosed_columns
from ports import free_port

from fedcluster.core import Column, Data, Result
from fedcluster.engines import LocalEngine, wire
from fedcluster.engines.client import Client
from fedcluster.jobs import Fit, drawn, plan_of
from fedcluster.preprocessing import Preprocessor
from fedcluster.preprocessing.agreement import agree
from fedcluster.preprocessing.fitting import fit as fit_preprocessor
from fedcluster.privacy import Groups
from fedcluster.rounds import run_plan, with_preprocessing
from fedcluster_app.coordinator.folder import create
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.worker import ReceivedModels
from fedcluster_app.trust.site_state import STATE_FILE, SiteState, state_folder

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
COMMAND = [sys.executable, "-c", "from fedcluster_app.cli import app; app()"]
MARK = "FEDCLUSTER_FEDERATION_OF_A_TEST"
PATIENCE = 900.0
"""Seconds that anything may take beside heavy work; without it none takes a tenth of them."""
LABELLED = 'label_column = "side"'


def rows_of(**sizes: int) -> dict[str, np.ndarray]:
    """Rows of sites, around some of four centres."""
    rng = np.random.default_rng(0)
    return {
        name: rng.normal(size=(n, 2)) * 2 + rng.integers(0, 4, (n, 1)) * [3.0, 5.0]
        for name, n in sizes.items()
    }


def lloyd_of(rounds: int) -> list[str]:
    """The options of exact k-means from the means of the sites, with so many rounds."""
    keys = ("init=summaries", "tol=0", f"max_iter={rounds}")
    return ["--algorithm", "lloyd", *(word for key in keys for word in ("--set", f"fit.{key}"))]


def open_to_others(folder: Path) -> list[Path]:
    """What others may read, write or run; a running program may delete files meanwhile."""
    found = [folder] if folder.is_file() and folder.stat().st_mode & 0o077 else []
    for here, _, names in os.walk(folder):
        for path in (Path(here), *(Path(here) / name for name in names)):
            with suppress(FileNotFoundError):
                if not path.is_symlink() and path.lstat().st_mode & 0o077:
                    found.append(path)
    return found


def labelled(folder: Path) -> str:
    """Return what became of the labels of a site, once they are written or not to be had."""
    end = time.monotonic() + PATIENCE
    models = ReceivedModels(SiteState(state_folder(folder) / STATE_FILE), folder / "results")
    while models.are_waiting or not models.outcome():
        assert time.monotonic() < end, "the labels are still to be written"
        time.sleep(0.02)
    return models.outcome()


class Command:
    """A command of ours that runs in a session of its own."""

    def __init__(
        self, arguments: list[str], out: Path, env: Mapping[str, str], way: Sequence[str] = ()
    ) -> None:
        self.out, self.arguments = out, arguments
        with out.open("wb") as file:
            self.process = subprocess.Popen(
                [*way, *COMMAND, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=dict(env),
                start_new_session=True,
                umask=0,  # what must be private is so nevertheless
            )

    def said(self) -> str:
        return self.out.read_text("utf-8", errors="replace")

    def wait_for(self, text: str, times: int = 1) -> None:
        end = time.monotonic() + PATIENCE
        while self.said().count(text) < times:
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end, f"no {text!r} within {PATIENCE} s: {self.said()}"
            time.sleep(0.1)

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def done(self) -> str:
        """What it said, once it has ended well."""
        assert self.wait() == 0, self.said()
        return self.said()

    def kill(self) -> None:
        """Without asking: as a machine that loses its power."""
        self.process.kill()
        self.process.wait()

    def ask_to_end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()

    def end(self) -> None:
        """By asking, and if that does not help without."""
        self.ask_to_end()
        if self.process.poll() is None:
            try:
                self.process.wait(120)
            except subprocess.TimeoutExpired:
                self.kill()


def parent_of(pid: int) -> int:
    """The process that started another, 0 where it has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


class RunningFederation:
    """A federation with its folder; started and ended by `federation`."""

    def __init__(
        self, folder: Path, rows: Mapping[str, np.ndarray], host: str = "127.0.0.1"
    ) -> None:
        self.folder, self.rows = folder / "federation", dict(rows)
        self.mark = secrets.token_hex(8)
        self.env = os.environ | {MARK: self.mark, "OMP_NUM_THREADS": "1"}
        self.logs = folder
        self.commands: list[Command] = []
        self.way: tuple[str, ...] = ()
        """What starts a program, before its arguments; by default this process."""
        self.options: dict[str, tuple[str, ...]] = {}
        """More options of the programs, by the site, or "start" for the coordinator."""
        self.sites: dict[str, Command] = {}
        address = f"{host}:{free_port()}"
        self.federation = create(self.folder, list(rows), address)
        for name, X in rows.items():
            self.fill(name, X)

    def fill(self, name: str, X: np.ndarray) -> None:
        """Give a site its rows."""
        text = "".join(f"{x!r},{y!r},{'left' if x < 4 else 'right'}\n" for x, y in X.tolist())
        (self.site(name) / "rows.csv").write_text(f"x,y,side\n{text}")
        toml = self.site(name) / "site.toml"
        labelled = toml.read_text().replace('# label_column = "diagnosis"', LABELLED)
        assert LABELLED in labelled
        toml.write_text(labelled)
        SiteFile.load(toml).confirm()

    def served_certificate(self) -> str:
        """What the coordinator shows to those that connect now."""
        return ssl.get_server_certificate((self.federation.host, self.federation.port))

    def wait_until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, f"not within {PATIENCE} s"
            time.sleep(0.1)

    def site(self, name: str) -> Path:
        return self.folder / "sites" / name

    def command(self, *arguments: object, name: str = "command") -> Command:
        out = self.logs / f"{name}-{len(self.commands)}.txt"
        self.commands.append(Command(list(map(str, arguments)), out, self.env, self.way))
        return self.commands[-1]

    def start(self) -> Command:
        start = ("federation", "start", self.folder, *self.options.get("start", ()))
        self.coordinator = self.command(*start, name="start")
        self.coordinator.wait_for("can connect")
        return self.coordinator

    def start_sites(self, *names: str) -> None:
        for name in names:
            toml = self.site(name) / "site.toml"
            start = ("site", "start", toml, *self.options.get(name, ()))
            self.sites[name] = self.command(*start, name=name)

    def join(self, *names: str) -> None:
        self.start_sites(*names)
        for name in names:
            self.sites[name].wait_for("connected; Ctrl-C")

    def connected(self) -> set[str]:
        """The sites that the coordinator says are connected."""
        shown = self.command("federation", "show", self.folder, "--json", name="show")
        assert shown.wait() == 0, shown.said()
        sites = json.loads(shown.said())["sites"]
        return {name for name, site in sites.items() if site["connected"]}

    def programs(self, command: Command) -> list[int]:
        """The process of a command and those that it has started."""
        family, parents = [command.process.pid], {pid: parent_of(pid) for pid in self.pids()}
        while new := {pid for pid, up in parents.items() if up in family} - set(family):
            family += sorted(new)
        return family

    def kill(self, command: Command) -> None:
        """A command without asking; what it has started notices."""
        command.kill()

    def children(self, command: Command, what: str) -> list[int]:
        """The processes of a command with this word among their arguments, however started."""
        return [
            pid
            for pid in self.programs(command)[1:]
            if what.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    def run(self, *arguments: object) -> Command:
        self.earlier = self._runs()
        self.asked = self.command("federation", "run", self.folder, *arguments, name="run")
        return self.asked

    def begun(self) -> set[Path]:
        """The folders of the runs since the last command."""
        return self._runs() - self.earlier

    def communication_rounds(self) -> list[Path]:
        """The recorded exchanges of the run that was begun last."""
        new = sorted(self.begun())
        return sorted((new[-1] / "communication_rounds").glob("exchange-*")) if new else []

    def _runs(self) -> set[Path]:
        return {path.parent for path in (self.folder / "runs").glob("*/job.json")}

    def missing(self) -> list[list[str]]:
        """The sites that are missing in each recorded exchange of that run."""
        headers = [wire.unpack(path.read_bytes())[0] for path in self.communication_rounds()]
        return [header["missing"] for header in headers]

    def wait_for_exchange(self, n: int, without: str | None = None) -> None:
        """Wait until the run has n exchanges, and one of them without a site."""
        end = time.monotonic() + PATIENCE
        while len(missing := self.missing()) < n or (without and [without] not in missing):
            assert self.asked.process.poll() is None, self.asked.said()
            assert time.monotonic() < end, f"{missing} after {PATIENCE} s"
            time.sleep(0.05)

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Let a site answer nothing while the block lasts, so that a run waits for it."""
        site = self.sites[name].process
        site.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            site.send_signal(signal.SIGCONT)

    def end(self) -> None:
        for command in self.commands:
            command.ask_to_end()
        for command in self.commands:
            command.end()

    def left_over(self, seconds: float = 120) -> list[int]:
        """Processes of this federation that still run."""
        end = time.monotonic() + seconds
        while (left := self.pids()) and time.monotonic() < end:
            time.sleep(0.2)
        return left

    def pids(self) -> list[int]:
        """The processes of this federation."""
        mark, found = f"{MARK}={self.mark}".encode(), []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in environ.read_bytes().split(b"\0"):
                    found.append(int(environ.parent.name))
            except OSError:
                continue
        return found


@contextmanager
def federation(
    folder: Path,
    rows: Mapping[str, np.ndarray],
    host: str = "127.0.0.1",
    prepare: Callable[[RunningFederation], None] | None = None,
) -> Iterator[RunningFederation]:
    """A running federation with all its sites; whatever happens, nothing of it is left."""
    running = RunningFederation(folder, rows, host)
    try:
        if prepare is not None:
            prepare(running)
        running.start()
        running.join(*rows)
        yield running
    finally:
        running.end()
        for pid in running.left_over():
            os.kill(pid, signal.SIGKILL)


def in_one_process(
    job: Fit, rows: Mapping[str, np.ndarray], silent: Callable[[str, int], bool] | None = None
) -> tuple[Preprocessor | None, Result]:
    """What the sites of a federation find, with the protection that a new site file has."""
    columns = (Column("x"), Column("y"))
    clients = (
        Client(name, Data(X, columns=columns), protection=Groups()) for name, X in rows.items()
    )
    sites, preprocessor = LocalEngine(clients, silent=silent), None
    if job.prepare is not None:
        fitted = run_plan(fit_preprocessor(job.prepare, agree(disclosed_columns(sites))), sites)
        preprocessor = fitted.value.preprocessor
    plan = with_preprocessing(plan_of(job, sites.introduce()), preprocessor)
    found = run_plan(plan, sites, participation=job.participation, seed=drawn(job.seed))
    return preprocessor, found.value


def read_json(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"))
