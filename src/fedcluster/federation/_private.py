"""What is nobody's business but the owner's, on a machine that others use too."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedcluster.errors import InputError

WRITABLE, READABLE = 0o022, 0o077
"""What others may do: write; anything."""


@contextmanager
def private_files() -> Iterator[None]:
    """Let all that is written while the block lasts be for this user alone, whatever the umask."""
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
    for path in filter(Path.exists, secret):
        _check(path, READABLE, "read")
    for path in filter(Path.exists, paths):
        _check(path, WRITABLE, "write")


def _check(path: Path, mode: int, what: str) -> None:
    about = path.stat()
    if about.st_uid not in {0, os.geteuid()}:
        raise InputError(f"{path} belongs to another user of this machine: make a copy of your own")
    if about.st_mode & mode:
        raise InputError(f"other users of this machine may {what} {path}: chmod go-rwx {path}")
