"""Parquet: one file as a table, and one or several as rows that do not fit in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from fedcluster.core import Data
from fedcluster.errors import InputError
from fedcluster.io._columns import choose, common_columns, first_twice, has_columns
from fedcluster.io._reader import Advise, ColumnRoles, Reader, TablePart
from fedcluster.io._rows import FileFingerprint, chunk_rows_of, prefetch, readable, whole

SUFFIXES = (".parquet", ".pq")
READ_AHEAD = 1 << 14
"""Bytes of a column that are read for a page's header; larger pages are read past this buffer."""
MANY_CORES = pa.cpu_count() > 2
"""Whether columns are read in parallel; with two cores, what is done with them takes the other."""


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
        with _readable(path):
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
        with _readable(self.path):
            file = pa.parquet.ParquetFile(self.path)
            return TablePart(self, 0, file.read(columns=list(dict.fromkeys(columns))))

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Read columns by name, at most ``n_rows`` rows at a time, and keep none of them."""
        start = 0
        self.fingerprint.check()
        with _readable(self.path):
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
        self._files = [_checked(path) for each in given for path in parquet_files(Path(each))]
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


def _checked(path: Path) -> ParquetFile:
    """Open a Parquet file and see that its columns have names of their own."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path} is not Parquet; only Parquet files are read in chunks")
    file = ParquetFile.open(path)
    if first_twice(file.names) is not None:
        raise InputError(f"{path} has two columns of one name; rename one of them")
    if not file.n_rows:
        raise InputError(f"{path} has columns but no rows; add rows or leave the file out")
    return file


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what can go wrong with a file into one line."""
    try:
        with readable(path):
            yield
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} is not a whole Parquet file; write it again") from error
