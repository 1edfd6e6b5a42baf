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
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data
from fedcluster.errors import InputError
from fedcluster.io._coding import Coding
from fedcluster.io._csv_files import CsvFile
from fedcluster.io._prefetch import prefetch
from fedcluster.io._reader import Columns, Reader, choose, has_columns
from fedcluster.io._streams import FileFingerprint, chunk_rows_of
from fedcluster.io._tables import FilePart, Parted, error_prefix

T = TypeVar("T")
PAUSES = (0.5, 1.0, 2.0)
"""Seconds to wait before what cannot be reached is tried again."""

READ = 1 << 16
"""Values of a table that are read at a time: as objects of a database they are ten times larger."""


SMALL = 1 << 18
"""Values in a chunk: those of a copy come fast."""


class UnreachableError(InputError):
    """What holds the rows cannot be reached, which may pass."""


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
    table : Parted
        A CSV file or a query.
    columns : Columns or sequence of str, optional
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
        table: Parted,
        columns: Columns | Sequence[str] | None = None,
        *,
        owner: str = "the table",
        advise: Callable[[Sequence[str]], str] = choose,
        chunk_rows: int | None = None,
    ) -> None:
        self._table, self._given = table, columns
        self._owner, self._advise = owner, advise
        self._chunk_rows = chunk_rows
        self._seen = FileFingerprint.now(table.path) if isinstance(table, CsvFile) else None

    def __repr__(self) -> str:
        return f"SpooledRows({self._table!r})"

    def __len__(self) -> int:
        """The number of rows, of those without weight too; reads them."""
        return len(self._copy)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to cluster by."""
        return self._roles.values

    @cached_property
    def _roles(self) -> Columns:
        with error_prefix(self._owner):
            given = self._table.names if self._given is None else self._given
        return given if isinstance(given, Columns) else Columns(tuple(given))

    def read(self) -> CachedRows:
        """Read the rows, unless that was done."""
        self._copy  # noqa: B018
        return self

    def chunks(self) -> Iterator[Data]:
        """The rows, at most ``chunk_rows`` at a time."""
        size = chunk_rows_of(self._chunk_rows or max(1, SMALL // len(self.columns)), 1)
        return prefetch(self._copy.chunks(size))

    def load(self) -> Data:
        """All rows."""
        return self._copy.part(0, len(self))

    @cached_property
    def _copy(self) -> DiskCache:
        return patiently(self._copied)

    def _copied(self) -> DiskCache:
        columns = self._roles
        if self._seen:
            self._seen.check()
        has_columns(self._owner, self._table.names, [*columns.values, *columns.others])
        size = max(1, READ // len(columns.values))
        wanted = list(dict.fromkeys([*columns.values, *columns.others]))
        copy = DiskCache(len(columns.values))
        with error_prefix(self._owner):
            for data in prefetch(map(self._rows, self._table.parts(wanted, size, columns.texts))):
                copy.append(data)
            if self._seen:
                self._seen.check()
        if not len(copy):
            raise InputError(f"{self._owner}: {self._table} has no rows; add rows or leave it out")
        return copy

    def _rows(self, part: FilePart) -> Data:
        return Reader(self._owner, part, self._advise).data(self._roles)


class DiskCache:
    """Rows on disk, in files without a name.

    Parameters
    ----------
    d : int
        Columns.

    Examples
    --------
    >>> spool = DiskCache(2)
    >>> spool.append(Data(np.arange(6.0).reshape(3, 2)))
    >>> spool.append(Data(np.ones((1, 2))))
    >>> [chunk.X.tolist() for chunk in spool.chunks(3)]
    [[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], [[1.0, 1.0]]]
    """

    def __init__(self, d: int) -> None:
        self._n = 0
        self._X = _Numbers(np.dtype(np.float64), d)
        self._weights = _Numbers(np.dtype(np.float64))
        self._groups = _Numbers(np.dtype(np.int64))
        self._labels = _Numbers(np.dtype(np.int32))
        self._known: dict[str, int] = {}
        self._coding = Coding()

    def __len__(self) -> int:
        return self._n

    def append(self, data: Data) -> None:
        """Add rows; all of them, or none, have weights, groups and labels."""
        self._X.append(self._coding.recoded(data))
        if data.sample_weight is not None:
            self._weights.append(data.sample_weight)
        if data.groups is not None:
            self._groups.append(data.groups)
        if data.y is not None:
            codes = [self._known.setdefault(label, len(self._known)) for label in data.y.tolist()]
            self._labels.append(np.array(codes))
        self._n += len(data)

    def chunks(self, n_rows: int) -> Iterator[Data]:
        """The rows, at most ``n_rows`` at a time."""
        for start in range(0, self._n, n_rows):
            yield self.part(start, min(n_rows, self._n - start))

    def part(self, start: int, n: int) -> Data:
        """Some rows that lie side by side."""
        codes = self._labels.part(start, n)
        labels = None if codes is None else np.array(list(self._known))[codes]
        X = self._X.part(start, n)
        assert X is not None
        groups = self._groups.part(start, n)
        return Data(X, self._weights.part(start, n), labels, self._coding.columns, groups)


class _Numbers:
    """Numbers of one type in a file without a name, ``width`` of them a row."""

    def __init__(self, dtype: np.dtype[Any], width: int = 0) -> None:
        self._dtype, self._width = dtype, width
        self._file: Any = None
        self._lock = threading.Lock()

    def append(self, values: NDArray[Any]) -> None:
        """Write rows behind those that are there."""
        with _room(), self._lock:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="fedcluster-")  # noqa: SIM115
                weakref.finalize(self, self._file.close)
            self._file.seek(0, 2)
            self._file.write(np.ascontiguousarray(values, self._dtype).data)

    def part(self, start: int, n: int) -> NDArray[Any] | None:
        """Read rows; None where none were written."""
        if self._file is None:
            return None
        values = np.empty((n, self._width) if self._width else n, self._dtype)
        with self._lock:
            self._file.seek(start * self._dtype.itemsize * max(1, self._width))
            self._file.readinto(values.data.cast("B"))
        return values


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"the rows cannot be copied to {tempfile.gettempdir()}: {error.strerror or error}; "
            "set TMPDIR to a folder with room"
        ) from error
