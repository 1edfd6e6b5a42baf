"""One table in one file, whole or in parts; Parquet.

Errors of this module say what is wrong with the file and what to do; who it belongs to is added
by the caller.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet

from fedcluster.errors import InputError

READ_AHEAD = 1 << 14
"""Bytes of a column that are read for a page's header; larger pages are read past this buffer."""
MANY_CORES = pa.cpu_count() > 2
"""Whether columns are read in parallel; with two cores, what is done with them takes the other."""


class FileTable(Protocol):
    """A file that holds one table with named columns."""

    @property
    def path(self) -> Path:
        """The file."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, as the file gives them."""
        ...

    @property
    def decimal(self) -> str | None:
        """What decimals begin with; None where numbers need not be written as text."""
        ...

    def read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> list[pa.ChunkedArray]:
        """Read columns by name; those among ``texts`` as they are written."""
        ...

    def where(self, row: int) -> str:
        """Where a row, counted from 0, is found in the file."""
        ...


class Parted(Protocol):
    """A table with named columns that can be read some rows at a time."""

    @property
    def path(self) -> Path:
        """What messages call it: the file."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        ...

    @property
    def decimal(self) -> str | None:
        """What decimals begin with; None where numbers need not be written as text."""
        ...

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[FilePart]:
        """Read columns by name, about ``n_rows`` rows at a time, and keep none of them."""
        ...

    def where(self, row: int) -> str:
        """Where a row, counted from 0, is found in it."""
        ...


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A Parquet file; its fields are those of `FileTable`."""

    path: Path
    names: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> ParquetFile:
        """Read the names of the columns."""
        return cls(path, tuple(pa.parquet.read_schema(path).names))

    @property
    def decimal(self) -> None:
        """Nothing: numbers need not be written as text."""

    def read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> list[pa.ChunkedArray]:
        """Read columns by name; those among ``texts`` as strings."""
        with readable(self.path):
            rows = pa.parquet.ParquetFile(self.path).read(columns=list(dict.fromkeys(columns)))
            return FilePart(self, 0, rows).read(columns, texts)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(pa.parquet.read_metadata(self.path).num_rows)

    def is_float32(self, columns: Iterable[str]) -> bool:
        """Whether all of these columns are float32."""
        schema = pa.parquet.read_schema(self.path)
        return all(pa.types.is_float32(schema.field(name).type) for name in columns)

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[FilePart]:
        """Read columns by name, at most ``n_rows`` rows at a time, and keep none of them."""
        wanted, start = list(dict.fromkeys(columns)), 0
        with readable(self.path):
            file = pa.parquet.ParquetFile(self.path, buffer_size=READ_AHEAD, pre_buffer=False)
            for batch in file.iter_batches(n_rows, columns=wanted, use_threads=MANY_CORES):
                if batch.num_rows:
                    yield FilePart(self, start, pa.Table.from_batches([batch]))
                    start += batch.num_rows

    def where(self, row: int) -> str:
        """Where a row, counted from 0, is found in the file."""
        return f"row {row + 1} of {self.path.name}"


@dataclass(frozen=True, slots=True)
class FilePart:
    """Some rows of a file that were read, as a `FileTable` of their own.

    Parameters
    ----------
    file : Parted
        The file.
    start : int
        How many rows lie before them.
    rows : pyarrow.Table
        The rows.
    """

    file: Parted
    start: int
    rows: pa.Table

    @property
    def path(self) -> Path:
        """The file."""
        return self.file.path

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the file's columns."""
        return self.file.names

    @property
    def decimal(self) -> str | None:
        """What decimals begin with; None where numbers need not be written as text."""
        return self.file.decimal

    def read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> list[pa.ChunkedArray]:
        """Columns by name, of those that were read; those among ``texts`` as strings."""
        return [
            self.rows[name].cast(pa.string()) if name in texts else self.rows[name]
            for name in columns
        ]

    def where(self, row: int) -> str:
        """Where a row, counted from 0 within the part, is found in the file."""
        return self.file.where(self.start + row)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what can go wrong with a file into one line."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; check the path") from error
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as CSV: {error}") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file; write it again") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    except pa.ArrowInvalid as error:
        if path.suffix.lower() in (".parquet", ".pq"):
            raise InputError(f"{path} is not a whole Parquet file; write it again") from error
        raise


@contextmanager
def error_prefix(owner: str) -> Iterator[None]:
    """Let complaints begin with whose rows they are about."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(owner):
            raise
        raise type(error)(f"{owner}: {error}") from error
