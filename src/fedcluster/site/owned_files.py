"""Folders of one owner: private on a machine that others use too, changed all or not at all.

New files are written aside, and a single rename decides that they count. Only then they go to their
places. What a command that was killed had decided is finished by whoever opens the folder next.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fedcluster.errors import InputError
from fedcluster.io.outputs import check_system, lock

RUNNING = ".running"
"""The file of a folder that is locked while a coordinator, or a site, runs on it."""

LOCK, DECIDED, DRAFT = ".lock", ".changes", ".changes.partial"
"""Inside the folder: the lock, changes that count, and changes that are being written."""
GONE = "gone.json"
"""The file among changes that names what goes."""

WRITABLE, READABLE = 0o022, 0o077
"""What others may do: write; anything."""


@contextmanager
def private_files() -> Iterator[None]:
    """Let all that is written while the block lasts be for this user alone, whatever the umask."""
    check_system()
    before = os.umask(READABLE)
    try:
        yield
    finally:
        os.umask(before)


def check_private(paths: Iterable[Path], *, secret: Iterable[Path] = ()) -> None:
    """Refuse what another user of this machine owns or may write, or may read where it is secret.

    Parameters
    ----------
    paths : iterable of Path
        Folders and files that only the owner may write; what is not there is left out.
    secret : iterable of Path
        Files that only the owner may read.

    Raises
    ------
    InputError
        With what to do. The administrator (root) is no other user.
    """
    check_system()
    for path in filter(Path.exists, secret):
        _check(path, READABLE, "read")
    for path in filter(Path.exists, paths):
        _check(path, WRITABLE, "write")


def _check(path: Path, mode: int, what: str) -> None:
    about = path.stat()
    if is_foreign(about):
        raise InputError(f"{path} belongs to another user of this machine: make a copy of your own")
    if about.st_mode & mode:
        raise InputError(f"other users of this machine may {what} {path}: chmod go-rwx {path}")


def is_foreign(about: os.stat_result) -> bool:
    """Return whether a file belongs to another user than this one and the administrator."""
    check_system()
    return about.st_uid not in {0, os.geteuid()}


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let no other command change a folder while the block lasts; finish what one had decided.

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
    """Finish the changes of a command that was killed amid them, if there are any."""
    if (folder / DECIDED).is_dir():
        with locked(folder):
            pass


def commit(folder: Path, files: Mapping[str, bytes], gone: Iterable[str] = ()) -> None:
    """Write files and remove others, all or nothing; the folder is `locked`.

    Parameters
    ----------
    folder : Path
        The folder.
    files : mapping of str to bytes
        New contents by relative path, in the order in which they come to their places.
    gone : iterable of str
        Relative paths of files that go; what is not there is left out.
    """
    draft = folder / DRAFT
    shutil.rmtree(draft, ignore_errors=True)
    for name, content in files.items():
        path = draft / "new" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, content)
    (draft / "new").mkdir(parents=True, exist_ok=True)
    _write(draft / GONE, json.dumps({"new": list(files), "gone": list(gone)}).encode())
    draft.rename(folder / DECIDED)
    _finish(folder)


def _write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _finish(folder: Path) -> None:
    """Bring decided changes to their places; done twice, it is the same as done once."""
    decided = folder / DECIDED
    if not (decided / GONE).is_file():  # there is nothing, or all of it has come to its place
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
def running(folder: Path, what: str = "coordinator") -> Iterator[None]:
    """Say that a coordinator, or a site, runs on a folder while the block lasts.

    Raises
    ------
    InputError
        If another one does already, or the folder cannot be written.
    """
    try:
        descriptor = os.open(folder / RUNNING, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InputError(
            f"{folder / RUNNING} cannot be written: {error.strerror or error}"
        ) from error
    with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
        try:
            lock(file, wait=False)
        except BlockingIOError as error:
            who = file.read().strip()
            raise InputError(
                f"another {what} runs on {folder}, process {who}; end it first"
            ) from error
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield
