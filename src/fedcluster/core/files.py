"""Files that are written completely or not at all, and are private to their owner.

A file is written under a temporary name, then renamed. It is private whatever the umask: labels,
models and logs reveal information about rows, so other users of the machine may not read them
unless the owner permits it.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import get_ident
from typing import IO, Any

from fedcluster.core.task import Limit
from fedcluster.errors import InputError

# the module does not exist on Windows; `check_system` reports that
with suppress(ModuleNotFoundError):
    import fcntl


def has_locks() -> bool:
    """Return whether this system has file locks, which Windows has not."""
    return find_spec("fcntl") is not None


def check_system() -> None:
    """Raise an error on Windows, for functions that need file locks and private files.

    Raises
    ------
    InputError
        If this system does not support both.
    """
    if not has_locks():
        raise InputError(
            "a site or a coordinator runs on Linux or macOS, or in WSL on Windows; commands on "
            "data files, and those of an operator, run here too"
        )


def lock(file: IO[Any] | int, *, shared: bool = False, wait: bool = True) -> None:
    """Lock an open file or folder for this process, until it is closed.

    Parameters
    ----------
    file : file or int
        The file or its descriptor.
    shared : bool, default=False
        Whether other processes may share the lock.
    wait : bool, default=True
        Whether to wait for other processes.

    Raises
    ------
    BlockingIOError
        If another process holds the lock and ``wait`` is False.
    InputError
        If this is Windows.
    """
    check_system()
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)


@contextmanager
def opened_folder(folder: Path) -> Iterator[int]:
    """Open a folder within the block; yield its descriptor, to be locked or written to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Write a file under a temporary name; it gets its own name when it is complete.

    It is private to its owner, even while it is being written.
    """
    temporary = path.with_name(f".{path.name}-{os.getpid()}-{get_ident()}.partial")
    temporary.unlink(missing_ok=True)
    try:
        private_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL).close()
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_broken_off(path: Path) -> None:
    """Remove what killed programs left of a file or folder; nobody may be writing it."""
    for each in path.parent.glob(f".{path.name}-*.partial"):
        if each.is_dir():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)


def private_file(path: str | Path, flags: int) -> IO[bytes]:
    """Open a file for writing; a new one is readable by its owner only."""
    mode = "ab" if flags & os.O_APPEND else "wb"
    return os.fdopen(os.open(path, flags, stat.S_IRUSR | stat.S_IWUSR), mode)


def write_durably(path: Path, content: bytes | memoryview) -> None:
    """Append to a private file, and wait until the content is on disk."""
    with private_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file, completely or not at all."""
    with atomic_write(path) as temporary:
        temporary.write_text(json_text(content), encoding="utf-8")


def json_text(content: Mapping[str, Any]) -> str:
    """Return readable JSON: a line for each key and for each part of a long list.

    Examples
    --------
    >>> print(json_text({"k": 2, "centers": [[0.0, 1.0], [2.0, 3.0]]}), end="")
    {
      "k": 2,
      "centers": [
        [0.0, 1.0],
        [2.0, 3.0]
      ]
    }
    """
    lines = ",\n".join(f"  {json.dumps(key)}: {_lines(value)}" for key, value in content.items())
    return f"{{\n{lines}\n}}\n"


def _lines(value: Any) -> str:
    if isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple | Mapping):
        return "[\n    " + ",\n    ".join(map(_dumped, value)) + "\n  ]"
    return _dumped(value)


def _dumped(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def plain(value: Any) -> Any:
    """Return a record, or a value with records in it, for JSON; nan becomes null.

    Examples
    --------
    >>> plain((Limit("MinRows", (("n", 2),)), {"inertia": float("nan")}))
    [{'name': 'MinRows', 'n': 2}, {'inertia': None}]
    """
    if isinstance(value, Limit):
        return value.plain()
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if hasattr(value, "tolist"):  # an array
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
