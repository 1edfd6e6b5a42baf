"""Rows of tables in chunks: Parquet is read in every round, text and databases once, then a copy.

The copy lies in temporary files without a name: nobody else can open them, and they are gone when
they are closed or the process ends, however it ends.
"""

from __future__ import annotations

import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from io import BufferedRandom
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from fedcluster.core import Data
from fedcluster.errors import InputError
from fedcluster.io._columns import Coding, choose, common_columns, first_twice, has_columns
from fedcluster.io._reader import Advise, ColumnRoles, Reader, Table, TablePart
from fedcluster.io._rows import (
    FileFingerprint,
    chunk_rows_of,
    error_prefix,
    patiently,
    prefetch,
    readable,
    whole,
)

READ = 1 << 16
"""Values of a table that are read at a time: as objects of a database they are ten times larger."""
SMALL = 1 << 18
"""Values in a chunk: those of a copy come fast."""
SUFFIXES = (".parquet", ".pq")
READ_AHEAD = 1 << 14
"""Bytes of a column that are read for a page's header; larger pages are read past this buffer."""
MANY_CORES = pa.cpu_count() > 2
"""Whether columns are read in parallel; with two cores, what is done with them takes the other."""


# Parquet


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A Parquet file as a `Table`."""

    path: Path
    names: tuple[str, ...]
    fingerprint: FileFingerprint
    decimal: None = None

    @classmethod
    def open(cls, path: Path) -> ParquetFile:
        """Read the names of the columns."""
        with _whole_parquet(path):
            return cls(path, tuple(pa.parquet.read_schema(path).names), FileFingerprint.now(path))

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return int(pa.parquet.read_metadata(self.path).num_rows)

    def is_float32(self, columns: Sequence[str]) -> bool:
        """Return whether all of these columns are float32."""
        schema = pa.parquet.read_schema(self.path)
        return all(pa.types.is_float32(schema.field(name).type) for name in columns)

    def read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> TablePart:
        """Read columns by name, all rows."""
        with _whole_parquet(self.path):
            file = pa.parquet.ParquetFile(self.path)
            return TablePart(self, 0, file.read(columns=list(dict.fromkeys(columns))))

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Read columns by name, at most ``n_rows`` rows at a time, and keep none of them."""
        start = 0
        self.fingerprint.check()
        with _whole_parquet(self.path):
            file = pa.parquet.ParquetFile(self.path, buffer_size=READ_AHEAD, pre_buffer=False)
            wanted = list(dict.fromkeys(columns))
            for batch in file.iter_batches(n_rows, columns=wanted, use_threads=MANY_CORES):
                if batch.num_rows:
                    yield TablePart(self, start, pa.Table.from_batches([batch]))
                    start += batch.num_rows
        self.fingerprint.check()

    def where(self, row: int) -> str:
        """Return where a row, counted from 0, is found in the file."""
        return f"row {row + 1} of {self.path.name}"


class ParquetRows:
    """The rows of one site in one Parquet file or several, one after the other.

    Parameters
    ----------
    paths : str, Path or sequence of them
        The files; a folder stands for the Parquet files in it, in the order of their names.
    columns : ColumnRoles or sequence of str, optional
        The columns to read, in this order; by default all those of the first file that play no
        other part.
    owner : str, optional
        How an error message begins, such as "site 'north'"; by default the file.
    advise : callable, optional
        What to do where columns are no numbers, given those that are.
    chunk_rows : int, optional
        The largest number of rows in a chunk; by default about a million values, more where the
        columns are many.

    Raises
    ------
    InputError
        If a file is not Parquet, lacks a column or has no row; later, if a value is missing,
        infinite or not a number, or if a file has changed since this object was made.

    Notes
    -----
    In memory are eight chunks at most, and of each column a page, in Parquet usually 1 MB.

    float32 stays float32 where all columns of all files are; otherwise rows are float64.

    Examples
    --------
    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> from fedcluster import Client, State, Task
    >>> from fedcluster.algorithms import Lloyd
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "north.parquet")
    >>> table = pyarrow.table({"age": [30.0, 32.0, 80.0], "dose": [1, 1, 5]})
    >>> pyarrow.parquet.write_table(table, path)
    >>> client = Client("north", ParquetRows(path, chunk_rows=2))
    >>> client.answer(Task(Lloyd(), State.at([[31.0, 1.0], [80.0, 5.0]]))).sums
    array([[62.,  2.,  2.],
           [80.,  5.,  0.]])
    >>> folder.cleanup()
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        columns: ColumnRoles | Sequence[str] | None = None,
        *,
        owner: str | None = None,
        advise: Advise = choose,
        chunk_rows: int | None = None,
    ) -> None:
        given = [paths] if isinstance(paths, str | Path) else paths
        self._owner, self._advise = owner, advise
        self._files = [_with_rows(path) for each in given for path in parquet_files(Path(each))]
        if not self._files:
            raise InputError("no Parquet file was given")
        first = self._files[0]
        roles = ColumnRoles.from_columns(columns)
        if roles.values is None:
            named = [name for name in first.names if name not in roles.others]
            roles = replace(roles, values=common_columns({str(first.path): named}))
        self._roles, self.columns = roles, roles.chosen
        if not self.columns:
            raise InputError("no column was chosen")
        for file in self._files:
            has_columns(owner or str(file.path), file.names, [*self.columns, *roles.others])
        narrow = all(file.is_float32(self.columns) for file in self._files)
        self._dtype = np.dtype(np.float32 if narrow else np.float64)
        self.chunk_rows = chunk_rows_of(chunk_rows, len(self.columns))

    def __repr__(self) -> str:
        return f"ParquetRows({[str(file.path) for file in self._files]})"

    def __len__(self) -> int:
        """Return the number of rows, of those without weight too."""
        return sum(file.n_rows for file in self._files)

    def chunks(self) -> Iterator[Data]:
        """Return the rows, at most ``chunk_rows`` at a time."""
        return prefetch(map(self._rows, prefetch(self._parts())))

    def load(self) -> Data:
        """Return all rows."""
        return whole(self.chunks(), (len(self), len(self.columns)), self._dtype)

    def _parts(self) -> Iterator[TablePart]:
        for file in self._files:
            yield from file.parts([*self.columns, *self._roles.others], self.chunk_rows)

    def _rows(self, part: TablePart) -> Data:
        data = Reader(self._owner or str(part.table.path), part, self._advise).data(self._roles)
        return replace(data, X=data.X.astype(self._dtype, copy=False))


def parquet_files(path: Path) -> list[Path]:
    """Return a Parquet file, or those of a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    files = sorted(each for each in path.iterdir() if each.suffix.lower() in SUFFIXES)
    if not files:
        raise InputError(f"{path} is a folder without Parquet files (.parquet)")
    return files


def _with_rows(path: Path) -> ParquetFile:
    """Open a Parquet file that has rows, and columns with names of their own."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path} is not Parquet; only Parquet files are read in chunks")
    file = ParquetFile.open(path)
    if first_twice(file.names) is not None:
        raise InputError(f"{path} has two columns of one name; rename one of them")
    if not file.n_rows:
        raise InputError(f"{path} has columns but no rows; add rows or leave the file out")
    return file


@contextmanager
def _whole_parquet(path: Path) -> Iterator[None]:
    """Turn what can go wrong with a file into one line."""
    try:
        with readable(path):
            yield
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} is not a whole Parquet file; write it again") from error


# Copies


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
    ) -> None:
        self._table, self._given = table, columns
        self._owner, self._advise = owner, advise

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
        """Return the rows, some at a time."""
        return prefetch(self._copy.chunks(max(1, SMALL // len(self.columns))))

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
        copy = DiskCache(roles)
        parts = self._table.parts(wanted, max(1, READ // len(roles.chosen)), roles.texts)
        with error_prefix(self._owner):
            for data in prefetch(map(self._rows, parts)):
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
        self.files: dict[str, tuple[BufferedRandom, np.dtype[Any]]] = {}
        with _room():
            for name, kind in row.items():
                file = tempfile.TemporaryFile(prefix="fedcluster-")  # noqa: SIM115
                weakref.finalize(self, file.close)
                self.files[name] = file, np.dtype(kind)
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
