"""Folders of one owner, private on shared machines, and changed completely or not at all.

New files are written to a separate folder, and a single rename commits them. Only then are they
moved to their places. If a command is killed after that, the next one that opens the folder
finishes its changes. Programs that work on a folder end with those that started them.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import IO

from fedcluster.core.files import check_system, lock, write_durably
from fedcluster.errors import InputError

RUNNING = ".running"
"""File that is locked while a coordinator, a site, or the process of a run works on the folder."""

MOMENT = 0.5
"""Seconds for which somebody may look at the lock of that file."""

ORPHAN = 10.0
"""Seconds within which what a killed program had started has ended."""

PARENT_LOOK = 0.2
"""Seconds between two checks for the parent."""

_FOLLOWED: list[int] = []
"""The process with which this one ends, if it ends with one."""

LOCK, DECIDED, DRAFT = ".lock", ".changes", ".changes.partial"
"""Names in the folder: the lock, committed changes, and changes that are being written."""
GONE = "gone.json"
"""The file, among changes, that lists removed files."""

WRITTEN = (
    f"{RUNNING} runs logs logs/* state state/*.db flower flower/*.db flower/*.log audit.* site.db"
)
"""Folders, and files that grow; others, such as keys, are replaced as a whole."""

SHUTDOWN = re.compile(
    r"Shutting down|Waiting for \w+ shutdown|FastAPI lifespan|\w+ shutdown complete|Finished server"
)
"""Lines that a server prints after the reason for its end."""

LEVEL = re.compile(r"^(\S+Z )?(INFO|WARNING|ERROR|DEBUG)\s*(:|\[[\w.]+\])\s*")
"""The beginning of a line of Flower and, with the time, of its web server."""

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequences that colour a line."""


@contextmanager
def private_files() -> Iterator[None]:
    """Make all files written within the block private to this user, whatever the umask."""
    check_system()
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def check_private(paths: Iterable[Path], *, secret: Iterable[Path] = ()) -> None:
    """Raise an error for files that others own or may write, or may read if secret.

    Parameters
    ----------
    paths : iterable of Path
        Folders and files that only the owner may write; missing ones are ignored.
    secret : iterable of Path
        Files that only the owner may read.

    Raises
    ------
    InputError
        With advice. The administrator (root) does not count as another user.
    """
    check_system()
    for path in filter(Path.exists, secret):
        _check(path, 0o077, "read")
    for path in filter(Path.exists, paths):
        _check(path, 0o022, "write")


def check_writable(folder: Path) -> None:
    """Raise an error if a program that runs on a folder could not keep there what it must.

    Parameters
    ----------
    folder : Path
        The folder of a federation or of a site.

    Raises
    ------
    InputError
        With advice.
    """
    for path in (folder, *(path for each in WRITTEN.split() for path in folder.glob(each))):
        if not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            is_own = path.lstat().st_uid == os.geteuid()
            how = "chmod u+w" if is_own else f"chown {os.geteuid()}"
            how = f"{how} {shlex.quote(str(path))}, unless its disk is read-only"
            raise InputError(f"{path} cannot be written: {how}")


def _check(path: Path, mode: int, what: str) -> None:
    about = path.stat()
    if is_foreign(about):
        raise InputError(f"{path} belongs to another user of this machine: make a copy of your own")
    if about.st_mode & mode:
        raise InputError(
            f"other users of this machine may {what} {path}: chmod go-rwx {shlex.quote(str(path))}"
        )


def is_foreign(about: os.stat_result) -> bool:
    """Return whether a file belongs to a user other than this one and the administrator."""
    check_system()
    return about.st_uid not in {0, os.geteuid()}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other commands from changing a folder within the block; finish pending changes.

    Raises
    ------
    InputError
        If the folder cannot be written.
    """
    try:
        with os.fdopen(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600), "rb") as held:
            lock(held)
            _finish(folder)
            yield
    except OSError as error:
        what = error.filename or folder
        raise InputError(f"{what} cannot be written: {error.strerror or error}") from error


def finish(folder: Path) -> None:
    """Finish the pending changes of a killed command, if there are any."""
    if (folder / DECIDED).is_dir():
        with locked(folder):
            pass


def commit(folder: Path, files: Mapping[str, bytes], gone: Iterable[str] = ()) -> None:
    """Write files and remove others, all or nothing; the folder must be `locked`.

    Parameters
    ----------
    folder : Path
        The folder.
    files : mapping of str to bytes
        New contents by relative path, in the order in which they are put in place.
    gone : iterable of str
        Relative paths of files to remove; missing ones are ignored.
    """
    draft = folder / DRAFT
    shutil.rmtree(draft, ignore_errors=True)
    for name, content in files.items():
        path = draft / "new" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_durably(path, content)
    (draft / "new").mkdir(parents=True, exist_ok=True)
    write_durably(draft / GONE, json.dumps({"new": list(files), "gone": list(gone)}).encode())
    draft.rename(folder / DECIDED)
    _finish(folder)


def _finish(folder: Path) -> None:
    """Put committed changes in place; this can safely be repeated."""
    decided = folder / DECIDED
    if not (decided / GONE).is_file():  # nothing was begun, or everything was completed
        shutil.rmtree(decided, ignore_errors=True)
        return
    changes = json.loads((decided / GONE).read_text("utf-8"))
    for name in changes["new"]:
        if (source := decided / "new" / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            source.replace(folder / name)
    for name in changes["gone"]:
        (folder / name).unlink(missing_ok=True)
    (decided / GONE).unlink()
    shutil.rmtree(decided)


@contextmanager
def running(folder: Path, what: str = "coordinator", patience: float = MOMENT) -> Iterator[IO[str]]:
    """Mark a folder as used by a running program within the block, however the program ends.

    Yields the marked file, which also marks the folder while another program inherits it.

    Parameters
    ----------
    folder : Path
        The folder of a federation, of a site, or of a run.
    what : str
        What uses it.
    patience : float
        Seconds within which another program of its kind may end.

    Raises
    ------
    InputError
        If another one is running, or the folder cannot be written.
    """
    try:
        descriptor = os.open(folder / RUNNING, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InputError(
            f"{folder / RUNNING} cannot be written: {error.strerror or error}"
        ) from error
    with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
        if not _lock_within(patience, file):
            who = file.read().strip()
            raise InputError(f"another {what} runs on {folder}, process {who}; end it first")
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield file


def _lock_within(seconds: float, file: IO[str]) -> bool:
    end = time.monotonic() + seconds
    while True:
        with suppress(BlockingIOError):
            lock(file, wait=False)
            return True
        if time.monotonic() > end:
            return False
        time.sleep(MOMENT / 10)


def is_running(folder: Path) -> bool:
    """Return whether a program of this machine runs on a folder, as `running` marks it."""
    with suppress(OSError), (folder / RUNNING).open("rb") as file:
        try:
            lock(file, shared=True, wait=False)
        except BlockingIOError:
            return True
    return False


def has_run(folder: Path) -> bool:
    """Return whether a program has run on a folder, or does; one that is about to has not yet."""
    with suppress(OSError):
        return (folder / RUNNING).stat().st_size > 0
    return False


def end_with(parent: int, grace: float = 0.0) -> None:
    """End this process as soon as its parent has ended, however it was started.

    Parameters
    ----------
    parent : int
        The process that started this one. A program that a script starts in the background ignores
        interrupts, as do its children, so nothing rests on them.
    grace : float, default=0
        Seconds to end by itself after an interrupt.
    """
    _FOLLOWED[:] = [parent]
    if grace:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    Thread(target=_follow, args=[parent, grace], daemon=True).start()


def _follow(parent: int, grace: float) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_LOOK)
    if grace:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(grace)
    os._exit(1)


def program() -> int:
    """Return the process with which this one ends; if it ends with none, this one."""
    return next(iter(_FOLLOWED), os.getpid())


def end_after(program: int, seconds: float) -> None:
    """End this process some seconds after a program has ended, which need not be its parent.

    Parameters
    ----------
    program : int
        The process of the program.
    seconds : float
        Seconds to finish what was begun.
    """
    Thread(target=_outlive, args=[program, seconds], daemon=True).start()


def _outlive(program: int, seconds: float) -> None:
    is_parent = os.getppid() == program
    while os.getppid() == program if is_parent else _is_there(program):
        time.sleep(PARENT_LOOK)
    time.sleep(seconds)
    os._exit(1)


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def reason_of_end(printed: str) -> str:
    """Return a program's last output, in one line without tracebacks and that of its shutdown."""
    _, trace, last = printed.rpartition("Traceback (most recent call last):\n")
    printed = "\n".join(line for line in last.splitlines() if not (trace and line[:1].isspace()))
    lines = [LEVEL.sub("", line.strip()) for line in printed.splitlines()]
    lines = [line for line in lines if line and not SHUTDOWN.match(line)]
    return " ".join(lines[-4:])[-300:] or "it said nothing"


class ManagedProcess:
    """Running program of a transport.

    Parameters
    ----------
    name : str
        The program, in words.
    process : Popen
        Its process.
    log : Path
        The file that receives its output.
    """

    start_seconds = 300.0  # seconds that it may take to start on a busy machine

    look = 0.5  # seconds between two checks whether it runs

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name, self.process, self.log = name, process, log

    @classmethod
    @contextmanager
    def running(
        cls,
        name: str,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str],
        told: bytes = b"",
    ) -> Iterator[ManagedProcess]:
        """Start a program, which is ended with the block; ``told`` is what it reads, privately."""
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
        with log.open("ab") as file:  # so that the program goes on at the end where it is shortened
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=env,
                # Ctrl-C should reach only this process, which then ends the child
                start_new_session=True,
            )
        try:
            if process.stdin is not None:  # a pipe, which is emptied by reading
                with suppress(BrokenPipeError), process.stdin as pipe:
                    pipe.write(told)
            yield cls(name, process, log)
        finally:
            end(process)

    @property
    def runs(self) -> bool:
        """Return whether the program is still running."""
        return self.process.poll() is None

    def printed(self) -> str:
        """Return the output of the program so far, without colours."""
        with suppress(OSError):
            return COLOURS.sub("", self.log.read_text("utf-8", errors="replace"))
        return ""

    def complaint(self) -> str:
        """Return its last output in one line."""
        return reason_of_end(self.printed())

    def wait_for_start(self, is_started: Callable[[], bool]) -> None:
        """Wait until the program answers.

        Raises
        ------
        InputError
            If it ends, or does not answer in time.
        """
        end = time.monotonic() + self.start_seconds
        while not is_started():
            self.check()
            if time.monotonic() > end:
                raise InputError(
                    f"{self.name} did not start within {self.start_seconds:g} s; see {self.log}"
                )
            time.sleep(0.1)
        self.check()  # another program may answer

    def watch(self, *logs: Path) -> None:
        """Keep its log short, and others, until the program ends.

        Raises
        ------
        InputError
            As in `check`.
        """
        while self.runs:
            for log in (self.log, *logs):
                shorten_log(log)
            time.sleep(self.look)
        self.check()

    def check(self) -> None:
        """Raise an error if the program has ended.

        Raises
        ------
        InputError
            With its last output and the file with all of it.
        """
        if not self.runs and self.process.returncode < 0:
            raise InputError(f"{self.name} was ended by signal {-self.process.returncode}")
        if not self.runs:
            raise InputError(f"{self.name} has ended: {self.complaint()}; see {self.log}")


def environment(other: str) -> dict[str, str]:
    """Return the environment of a program of a transport, whose ``python3`` is this Python.

    Variables that begin with ``other`` would be settings, and are left out.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith(other)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**own, "PATH": path}


def shorten_log(log: Path, largest: int = 16 << 20) -> None:
    """Move a log of more bytes to a second file, in place of the one that was moved before.

    A program that writes to its end goes on in the first one.
    """
    with suppress(OSError):
        if log.stat().st_size > largest:
            shutil.copyfile(log, log.with_suffix(".log.1"))
            os.truncate(log, 0)


@contextmanager
def repeated(look: Callable[[], float | None], seconds: float) -> Iterator[None]:
    """Call a function again and again within the block, in a thread.

    Parameters
    ----------
    look : callable
        The function, which may return for how long to rest.
    seconds : float
        Seconds between two calls otherwise.
    """
    ended = Event()

    def follow() -> None:
        while not ended.wait(look() or seconds):
            pass

    thread = Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process, at first by asking, and all its remaining children."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(5.0)  # seconds to end by itself
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, 9)
    process.wait()


def wait_for_port(host: str, port: int, most: float = ORPHAN) -> None:
    """Wait until the program of a coordinator that was killed has left a port.

    Raises
    ------
    InputError
        If a program does not leave it.
    """
    end = time.monotonic() + most
    while True:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((host, port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE and time.monotonic() < end:
                    time.sleep(0.05)
                    continue
                raise InputError(
                    f"port {port} cannot be listened at: {error.strerror}; end the program that "
                    "does, or see address and bind in federation.toml"
                ) from error
            return
