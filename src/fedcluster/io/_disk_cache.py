"""Rows that are read once and then come from a copy of their numbers on the site's own disk.

A text file is parsed and a database asked once, not in every round. The copy is a temporary file
without a name: nobody else can open it, and it is gone when it is closed or the process ends,
however it ends.
"""

from __future__ import annotations

import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from io import BufferedRandom
from typing import Any, TypeVar

import numpy as np

from fedcluster.core import Data
from fedcluster.errors import InputError
from fedcluster.io._columns import Coding, choose, has_columns
from fedcluster.io._reader import Advise, ColumnRoles, Reader, Table, TablePart
from fedcluster.io._rows import chunk_rows_of, error_prefix, prefetch

T = TypeVar("T")
PAUSES = (0.5, 1.0, 2.0)
"""Seconds to wait before what cannot be reached is tried again."""
READ = 1 << 16
"""Values of a table that are read at a time: as objects of a database they are ten times larger."""
SMALL = 1 << 18
"""Values in a chunk: those of a copy come fast."""


class UnreachableError(InputError):
    """A database cannot be reached, which may pass."""


def patiently(work: Callable[[], T]) -> T:
    """Do what may fail for a while, four times at most."""
    for pause in PAUSES:
        try:
            return work()
        except UnreachableError:
            time.sleep(pause)
    try:
        return work()
    except UnreachableError as error:
        raise InputError(f"{error} (tried {len(PAUSES) + 1} times)") from None


class CachedRows:
    """The rows of one site from a table that is slow to read: read once, then from a copy.

    Parameters
    ----------
    table : Table
        A CSV file or a query.
    columns : ColumnRoles or sequence of str, optional
        The columns to read; by default all.
    owner : str, optional
        How an error message begins, such as "site 'north'".
    advise : callable, optional
        What to do where columns are no numbers, given those that are.
    chunk_rows : int, optional
        The largest number of rows in a chunk; by default about 250,000 values.

    Raises
    ------
    InputError
        At the first reading: if the table cannot be read, lacks a column, has no row, or has a
        value that is missing, infinite or not a number.

    Notes
    -----
    In memory are a few chunks. The copy takes 8 bytes a value in the folder of temporary files,
    which the environment's ``TMPDIR`` names.
    """

    def __init__(
        self,
        table: Table,
        columns: ColumnRoles | Sequence[str] | None = None,
        *,
        owner: str = "the table",
        advise: Advise = choose,
        chunk_rows: int | None = None,
    ) -> None:
        self._table, self._given = table, columns
        self._owner, self._advise = owner, advise
        self._chunk_rows = chunk_rows

    def __repr__(self) -> str:
        return f"CachedRows({self._table!r})"

    def __len__(self) -> int:
        """Return the number of rows, of those without weight too; reads them."""
        return len(self._copy)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns to cluster by."""
        return self._roles.chosen

    @cached_property
    def _roles(self) -> ColumnRoles:
        with error_prefix(self._owner):
            return ColumnRoles.from_columns(self._given, self._table.names)

    def chunks(self) -> Iterator[Data]:
        """Return the rows, at most ``chunk_rows`` at a time."""
        size = chunk_rows_of(self._chunk_rows or max(1, SMALL // len(self.columns)), 1)
        return prefetch(self._copy.chunks(size))

    def load(self) -> Data:
        """Return all rows."""
        return self._copy.part(0, len(self))

    @cached_property
    def _copy(self) -> DiskCache:
        return patiently(self._copied)

    def _copied(self) -> DiskCache:
        roles, seen = self._roles, self._table.fingerprint
        if seen:
            seen.check()
        wanted = list(dict.fromkeys([*roles.chosen, *roles.others]))
        has_columns(self._owner, self._table.names, wanted)
        size = max(1, READ // len(roles.chosen))
        copy = DiskCache(roles)
        with error_prefix(self._owner):
            for data in prefetch(map(self._rows, self._table.parts(wanted, size, roles.texts))):
                copy.append(data)
            if seen:
                seen.check()
        if not len(copy):
            raise InputError(f"{self._owner}: {self._table} has no rows; add rows or leave it out")
        return copy

    def _rows(self, part: TablePart) -> Data:
        return Reader(self._owner, part, self._advise).data(self._roles)


class DiskCache:
    """Rows on disk, in files without a name: values, weights, groups and coded labels, one each.

    Parameters
    ----------
    roles : ColumnRoles
        What is kept of each row.

    Examples
    --------
    >>> cache = DiskCache(ColumnRoles(("a", "b")))
    >>> cache.append(Data(np.arange(6.0).reshape(3, 2)))
    >>> cache.append(Data(np.ones((1, 2))))
    >>> [chunk.X.tolist() for chunk in cache.chunks(3)]
    [[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], [[1.0, 1.0]]]
    """

    def __init__(self, roles: ColumnRoles) -> None:
        others = {"weight": roles.weight, "group": roles.group, "label": roles.label}
        kinds = {"weight": np.float64, "group": np.int64, "label": np.int64}
        row: dict[str, Any] = {"X": (np.float64, (len(roles.chosen),))}
        row |= {name: kinds[name] for name, column in others.items() if column is not None}
        self.files = {name: (_nameless_file(self), np.dtype(row[name])) for name in row}
        self._n = 0
        self._labels: dict[str, int] = {}
        self._coding = Coding()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._n

    def append(self, data: Data) -> None:
        """Add rows; all of them, or none, have weights, groups and labels."""
        codes, labels = self._labels, () if data.y is None else data.y.tolist()
        held = {
            "X": self._coding.recoded(data),
            "weight": data.sample_weight,
            "group": data.groups,
            "label": [codes.setdefault(label, len(codes)) for label in labels],
        }
        with self._lock, _room():
            for name, (file, dtype) in self.files.items():
                file.seek(0, 2)
                file.write(np.ascontiguousarray(held[name], dtype.base).data)
        self._n += len(data)

    def chunks(self, n_rows: int) -> Iterator[Data]:
        """Return the rows, at most ``n_rows`` at a time."""
        for start in range(0, self._n, n_rows):
            yield self.part(start, min(n_rows, self._n - start))

    def part(self, start: int, n: int) -> Data:
        """Return ``n`` rows that lie side by side."""
        held: dict[str, Any] = {}
        with self._lock:
            for name, (file, dtype) in self.files.items():
                held[name] = np.empty(n, dtype)
                file.seek(start * dtype.itemsize)
                file.readinto(held[name].data)
        labels = np.array(list(self._labels))[held["label"]] if "label" in held else None
        return Data(held["X"], held.get("weight"), labels, self._coding.columns, held.get("group"))


def _nameless_file(owner: DiskCache) -> BufferedRandom:
    """Return a temporary file that is gone with its owner."""
    with _room():
        file = tempfile.TemporaryFile(prefix="fedcluster-")  # noqa: SIM115
    weakref.finalize(owner, file.close)
    return file


@contextmanager
def _room() -> Iterator[None]:
    """Turn what can go wrong with the disk into one line."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"the rows cannot be copied to {tempfile.gettempdir()}: {error.strerror or error}; "
            "set TMPDIR to a folder with room"
        ) from error
