"""Persistent state of a site: one SQLite file, ``site.db``, in its `state_folder`.

| table | what it holds | who reads it |
|---|---|---|
| ``cohorts`` | with which sites secure sums were answered | secure sums, the evidence |
| ``spent`` | what each question has cost of the privacy budget | the policy, the log, the owner |
| ``asked`` | rounds and preparations of the last runs | the policy |
| ``days`` | rounds and runs of the last day | the policy |
| ``rows`` | the version of the rows that each of the last runs is about | the site's worker |
| ``models`` | the model that is still to be used, and what became of the last one | the labels |

A transaction is durable and atomic: a kill at any moment leaves the state either before or after
it. Several processes may use the file.

The file is created once, before the first answer, and never recreated: if it is missing or empty,
every use of it is an error, and the site answers nothing.
"""

from __future__ import annotations

import json
import os
import sqlite3
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from fedcluster.core.files import atomic_write, check_system, lock, opened_folder
from fedcluster.errors import InputError

STATE_FILE = "site.db"
"""The name of the file."""

STATE_FOLDER = "state"
"""The folder, beside a site file, that has it."""

STATE_VERSION = 0
"""SQLite's ``user_version`` of the file; a higher one is of a newer fedcluster, and not used."""


def state_folder(folder: Path) -> Path:
    """Return the folder of what a site keeps for itself: keys, groups, its state.

    Without a folder `STATE_FOLDER` before the first answer, that is the folder of the site file.

    Parameters
    ----------
    folder : Path
        The folder of the site file.
    """
    is_beside = (folder / STATE_FILE).exists() or not (folder / STATE_FOLDER).is_dir()
    return folder if is_beside else folder / STATE_FOLDER


TABLES = """
CREATE TABLE cohorts (sites TEXT PRIMARY KEY, time TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE spent (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time TEXT NOT NULL, run TEXT NOT NULL,
    exchange INTEGER NOT NULL, answers INTEGER NOT NULL, rho REAL NOT NULL CHECK (rho > 0)
);
CREATE TABLE asked (name TEXT PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE days (name TEXT PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE rows (name TEXT PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE models (name TEXT PRIMARY KEY, content TEXT NOT NULL);
"""


class SiteState:
    """State of one site.

    Parameters
    ----------
    path : Path, optional
        The file; without one, the state lasts as long as this object.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     state = SiteState(Path(folder) / STATE_FILE)
    ...     state.create()
    ...     with state.transaction() as file:
    ...         put(file, "rows", "a", "old")
    ...     with SiteState(state.path).transaction() as file:
    ...         get(file, "rows", "a"), get(file, "rows", "b")
    ('old', None)
    """

    wait = 60.0  # seconds to wait for another process that is writing

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._memory: tuple[sqlite3.Connection, Lock] | None = None
        if path is None:
            file = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            # small pages, as one process may hold many sites
            file.execute("PRAGMA page_size = 512")
            file.executescript(TABLES)
            self._memory = file, Lock()
            weakref.finalize(self, file.close)

    @property
    def is_there(self) -> bool:
        """Whether the state exists."""
        return self.path is None or self.path.exists()

    @property
    def missing(self) -> str:
        """Message for a missing state."""
        return f"{self.path} is missing; {SAYS}: put back a copy"

    def create(self) -> None:
        """Create an empty state, private to the site's user; keep an existing one."""
        if self.path is None:
            return
        check_system()
        with opened_folder(self.path.parent) as folder:
            lock(folder)  # keeps other processes from creating the file at the same time
            if not self.is_there:
                with atomic_write(self.path) as new, closing(sqlite3.connect(new)) as file:
                    file.executescript(TABLES)
                os.fsync(folder)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction; an error in the block undoes all changes.

        Raises
        ------
        InputError
            If the file is missing, empty or damaged, or cannot be written.
        """
        if self._memory is not None:
            file, turn = self._memory
            with turn, file:
                file.execute("BEGIN")
                yield file
            return
        assert self.path is not None
        if not self.is_there:
            raise InputError(self.missing)
        try:
            where = f"{self.path.absolute().as_uri()}?mode=rw"
            with (
                closing(sqlite3.connect(where, self.wait, isolation_level=None, uri=True)) as file,
                file,
            ):
                [newest] = file.execute("PRAGMA user_version").fetchone()
                if newest > STATE_VERSION:
                    raise InputError(
                        f"{self.path} was written by a newer fedcluster: use that version"
                    )
                if file.execute("PRAGMA page_count").fetchone() == (0,):
                    raise sqlite3.DatabaseError("it is empty")
                file.execute("PRAGMA synchronous = EXTRA")
                file.execute("BEGIN IMMEDIATE")
                yield file
        except sqlite3.Error as error:
            remedy = REMEDIES.get(
                getattr(error, "sqlite_errorcode", 0) & 0xFF, f"{SAYS}: put back a copy"
            )
            raise InputError(f"{self.path} cannot be used: {error}; {remedy}") from error

    def check(self) -> None:
        """Check that the file is a whole database.

        Raises
        ------
        InputError
            If it is damaged, or cannot be used.
        """
        with self.transaction() as file:
            [found] = file.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(found)


REMEDIES = {
    sqlite3.SQLITE_FULL: "make room on its disk; nothing is lost",
    sqlite3.SQLITE_IOERR: "see whether its disk is full or broken",
    sqlite3.SQLITE_BUSY: "another program holds it: try again once that has ended",
    sqlite3.SQLITE_READONLY: "let the site's program write it, and its folder",
    sqlite3.SQLITE_CANTOPEN: "let the site's program read and write it, and its folder",
}
"""What to do about an error that says nothing of what the file holds."""

SAYS = (
    "it says in which secure sums this site has answered, and what is spent of its privacy budget"
)
"""What a site would forget without its state, in words."""


def get(file: sqlite3.Connection, table: str, name: str) -> Any:
    """Return the content that a table holds under a name, None if there is none."""
    found = file.execute(f"SELECT content FROM {table} WHERE name = ?", (name,)).fetchone()
    return None if found is None else json.loads(found[0])


def last(file: sqlite3.Connection, table: str) -> tuple[str, Any] | None:
    """Return the most recent name and content in a table, None if it is empty."""
    newest = f"SELECT name, content FROM {table} ORDER BY rowid DESC LIMIT 1"
    found = file.execute(newest).fetchone()
    return None if found is None else (found[0], json.loads(found[1]))


def put(
    file: sqlite3.Connection, table: str, name: str, content: Any, most: int | None = None
) -> None:
    """Store a content under a name, dropping the oldest entries beyond ``most``."""
    row = name, json.dumps(content, allow_nan=False)
    file.execute(f"REPLACE INTO {table} (name, content) VALUES (?, ?)", row)
    if most is not None:
        kept = f"SELECT rowid FROM {table} ORDER BY rowid DESC LIMIT ?"
        file.execute(f"DELETE FROM {table} WHERE rowid NOT IN ({kept})", (most,))
