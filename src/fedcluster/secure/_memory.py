"""Memory of a site: which cohorts it has answered in, over all runs and restarts.

Two totals that a site is in tell their difference as well. So a site must know for ever whose
totals it was part of. The memory is made together with the site's identity and never again: a site
that has lost it does not answer.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fedcluster.errors import InputError
from fedcluster.io._outputs import atomic_write

Names = tuple[str, ...]
"""Names of the sites of a cohort, in order."""

WAIT = 60.0
"""Seconds to wait for another process that writes."""

TABLE = "CREATE TABLE cohorts (sites TEXT PRIMARY KEY, time TEXT NOT NULL) WITHOUT ROWID"


class CohortMemory:
    """Cohorts that one site has answered in.

    Parameters
    ----------
    path : Path, optional
        The SQLite file, which several processes may use; without one, the memory ends with the
        program.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     memory = CohortMemory(Path(folder) / "cohorts.sqlite")
    ...     memory.create()
    ...     memory.add(("east", "north", "south"), lambda earlier: print(sorted(earlier)))
    ...     sorted(CohortMemory(memory.path).earlier())
    []
    [('east', 'north', 'south')]
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._held: set[Names] = set()

    def create(self) -> None:
        """Make an empty memory, for the site's user alone; one that is there stays."""
        if self.path is None or self.path.exists():
            return
        with atomic_write(self.path) as temporary, closing(sqlite3.connect(temporary)) as file:
            file.execute(TABLE)

    def earlier(self) -> frozenset[Names]:
        """Return the cohorts that the site has answered in.

        Raises
        ------
        InputError
            If the file is missing, empty or damaged.
        """
        if self.path is None:
            return frozenset(self._held)
        with self._opened(self.path) as file:
            return _read(file)

    def add(self, sites: Names, check: Callable[[Collection[Names]], object]) -> None:
        """Write down that the site answers in a cohort; it is on the disk when this returns.

        Parameters
        ----------
        sites : tuple of str
            The sites of the cohort, in order.
        check : callable taking the cohorts so far
            What it raises is passed on, and nothing is written; no other process writes meanwhile.

        Raises
        ------
        InputError
            If the file is missing, empty or damaged, or cannot be written.
        """
        if self.path is None:
            check(frozenset(self._held))
            self._held.add(sites)
            return
        with self._opened(self.path) as file:
            earlier = _read(file)
            check(earlier)
            if sites not in earlier:
                row = json.dumps(sites), datetime.now(UTC).isoformat(timespec="seconds")
                file.execute("INSERT INTO cohorts (sites, time) VALUES (?, ?)", row)

    @contextmanager
    def _opened(self, path: Path) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction, which is on the disk when the block ends."""
        if not path.exists():
            raise InputError(
                f"{path} is missing; it says in which secure sums this site has answered: put back "
                "a copy, or remove identity.key too, and give the other sites a new key"
            )
        try:
            where = f"{path.absolute().as_uri()}?mode=rw"
            with closing(sqlite3.connect(where, WAIT, isolation_level=None, uri=True)) as file:
                file.execute("PRAGMA synchronous = FULL")
                file.execute("BEGIN IMMEDIATE")
                yield file
                file.execute("COMMIT")
        except (sqlite3.Error, TypeError) as error:
            raise InputError(
                f"{path} cannot be used: {error}; it says in which secure sums this site has "
                "answered: put back a copy"
            ) from error


def _read(file: sqlite3.Connection) -> frozenset[Names]:
    return frozenset(
        tuple(json.loads(sites)) for (sites,) in file.execute("SELECT sites FROM cohorts")
    )
