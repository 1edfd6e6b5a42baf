"""Changes of several files of a folder that happen all or not at all, one command at a time.

New files are written aside, and a single rename decides that they count. Only then they go to their
places. What a command that was killed had decided is finished by whoever opens the folder next.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fedcluster.errors import InputError

LOCK, DECIDED, DRAFT = ".lock", ".changes", ".changes.partial"
"""Inside the folder: the lock, changes that count, and changes that are being written."""
GONE = "gone.json"
"""The file among changes that names what goes."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let no other command change a folder while the block lasts; finish what one had decided.

    Raises
    ------
    InputError
        If the folder cannot be written.
    """
    try:
        with os.fdopen(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
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
    told = json.loads((decided / GONE).read_text("utf-8"))
    for name in told["new"]:
        if (source := decided / "new" / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            source.replace(folder / name)
    for name in told["gone"]:
        (folder / name).unlink(missing_ok=True)
    (decided / GONE).unlink()
    shutil.rmtree(decided)
