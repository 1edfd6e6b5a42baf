"""Whether a program runs on a folder, and has taken notice of what changed there."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedcluster.errors import InputError
from fedcluster.federation._commit import DECIDED
from fedcluster.federation._folder import Federation
from fedcluster.federation._site_keys import FORMER
from fedcluster.io._outputs import atomic_write

RUNNING, NOTICED = ".running", ".noticed"
"""Files of the folder: locked while a coordinator runs, and the last state that it has seen."""


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
    with os.fdopen(descriptor, "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            who = lock.read().strip()
            raise InputError(
                f"another {what} runs on {folder}, process {who}; end it first"
            ) from error
        lock.truncate()
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def is_running(federation: Federation) -> bool:
    """Return whether a coordinator runs on a folder of this machine."""
    with suppress(OSError), federation.file(RUNNING).open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def state_of(folder: Path) -> str:
    """Return a text that changes when the sites or keys in a folder do."""
    paths = [folder / "federation.toml", folder / DECIDED, folder / FORMER]
    state = []
    for path in [*paths, *sorted((folder / "keys").glob("*.pub"))]:
        with suppress(OSError):
            about = path.stat()
            state.append(f"{path.name} {about.st_ino} {about.st_mtime_ns}")
    return "\n".join(state)


def take_notice(folder: Path, state: str) -> None:
    """Write down which state of the folder the coordinator has taken notice of."""
    with atomic_write(folder / NOTICED) as temporary:
        temporary.write_text(state, encoding="utf-8")


def is_noticed(federation: Federation) -> bool:
    """Return whether the coordinator has taken notice of the folder as it is now."""
    with suppress(OSError):
        told = federation.file(NOTICED).read_text("utf-8")
        return told == state_of(federation.folder)
    return False
