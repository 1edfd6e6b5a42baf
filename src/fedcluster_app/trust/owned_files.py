"""Folders of one owner, private on shared machines, and changed completely or not at all.

New files are written to a separate folder, and a single rename commits them. Only then are they
moved to their places. If a command is killed after that, the next one that opens the folder
finishes its changes. Programs that work on a folder end with those that started them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
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


def _check(path: Path, mode: int, what: str) -> None:
    about = path.stat()
    if is_foreign(about):
        raise InputError(f"{path} belongs to another user of this machine: make a copy of your own")
    if about.st_mode & mode:
        raise InputError(f"other users of this machine may {what} {path}: chmod go-rwx {path}")


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
def running(folder: Path, what: str = "coordinator", patience: float = MOMENT) -> Iterator[None]:
    """Mark a folder as used by a running program within the block, however the program ends.

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
        yield


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
