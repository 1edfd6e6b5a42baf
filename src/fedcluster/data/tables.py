"""One table in one file: CSV in its dialects, and Parquet.

Errors of this module say what is wrong with the file and what to do; who it belongs to is added
by the caller.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

__all__ = [
    "CsvFile",
    "FilePart",
    "FileTable",
    "InputError",
    "ParquetFile",
    "Parted",
    "open_table",
    "owned",
    "readable",
]

DELIMITERS = ",;\t|"
CSV_KINDS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
READ_AHEAD = 1 << 14
"""Bytes of a column that are read for a page's header; larger pages are read past this buffer."""
MANY_CORES = pa.cpu_count() > 2
"""Whether columns are read in parallel; with two cores, what is done with them takes the other."""
UNDECODED = "\N{REPLACEMENT CHARACTER}"


class InputError(ValueError):
    """What was given is wrong: one line that says where, what, and what to do."""


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

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[FilePart]:
        """Read columns by name, about ``n_rows`` rows at a time, and keep none of them."""
        ...

    def where(self, row: int) -> str:
        """Where a row, counted from 0, is found in it."""
        ...


def open_table(path: Path) -> CsvFile | ParquetFile:
    """Open a CSV or Parquet file and read the names of its columns.

    Raises
    ------
    InputError
        If it is not there, cannot be read, is empty or of another kind.
    """
    name = path.name.lower()
    if path.is_dir():
        raise InputError(f"{path} is a folder; give one file for each site")
    with readable(path):
        if name.endswith(CSV_KINDS):
            return CsvFile.open(path)
        if name.endswith((".parquet", ".pq")):
            return ParquetFile(path, tuple(pa.parquet.read_schema(path).names))
        path.open("rb").close()
    raise InputError(
        f"{path} is of an unknown kind; give CSV (.csv, .tsv, also with .gz) or Parquet (.parquet)"
    )


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A Parquet file; its fields are those of `FileTable`."""

    path: Path
    names: tuple[str, ...]

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

    def read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> list[pa.ChunkedArray]:
        """Columns by name, of those that were read; those among ``texts`` as strings."""
        return [
            self.rows[name].cast(pa.string()) if name in texts else self.rows[name]
            for name in columns
        ]

    def where(self, row: int) -> str:
        """Where a row, counted from 0 within the part, is found in the file."""
        return self.file.where(self.start + row)


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A CSV file with a header line, plain or compressed.

    Parameters
    ----------
    path : Path
        The file.
    names : tuple of str
        The names of the columns, without blanks around them.
    delimiter : str
        What stands between two values: comma, semicolon, tab or bar.
    header_lines : int
        How many lines the header ends after.
    """

    path: Path
    names: tuple[str, ...]
    delimiter: str
    header_lines: int

    @classmethod
    def open(cls, path: Path) -> CsvFile:
        """Read the header; its line shows the delimiter."""
        delimiter = "\t" if ".tsv" in path.name.lower() else _delimiter(path)
        for line, record in _records(path, delimiter):
            if record:
                names = tuple(name.strip() for name in record)
                if UNDECODED in "".join(names):
                    raise InputError(f"{path} is not UTF-8 text; save it as CSV in UTF-8")
                return cls(path, names, delimiter, line + _extra_lines(record))
        raise InputError(f"{path} is empty; expected a header line and rows")

    def read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> list[pa.ChunkedArray]:
        """Read columns by name; those among ``texts`` as they are written."""
        place = {name: str(i) for i, name in enumerate(self.names)}
        wanted = [place[name] for name in columns]
        try:
            with readable(self.path):
                table = self._parse(wanted, {place[name]: pa.string() for name in texts})
        except pa.ArrowInvalid as error:
            raise InputError(self._ragged() or f"{self.path} cannot be read: {error}") from error
        return [table[name] for name in wanted]

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[FilePart]:
        """Read columns by name, some rows at a time, and keep none of them.

        The first rows say what is a number; where later ones are none, the rest is read as text.
        """
        wanted = list(dict.fromkeys(columns))
        types = {name: pa.string() for name in texts}
        start = 0
        try:
            for part in self._blocks(wanted, types | self._numbers(wanted, types)):
                yield part
                start += part.rows.num_rows
        except pa.ArrowInvalid:
            try:
                for part in self._blocks(wanted, dict.fromkeys(wanted, pa.string())):
                    skipped = min(part.rows.num_rows, max(0, start - part.start))
                    if skipped < part.rows.num_rows:
                        yield FilePart(self, part.start + skipped, part.rows.slice(skipped))
            except pa.ArrowInvalid as error:
                raise InputError(
                    self._ragged() or f"{self.path} cannot be read: {error}"
                ) from error

    def _numbers(self, columns: Sequence[str], types: Mapping[str, Any]) -> dict[str, Any]:
        """The columns whose first values are numbers, or missing: floats, whatever follows."""
        first = next(self._blocks(columns, types), None)
        found = {} if first is None else {f.name: f.type for f in first.rows.schema}
        return {
            name: pa.float64()
            for name, kind in found.items()
            if pa.types.is_integer(kind) or pa.types.is_null(kind)
        }

    def _blocks(self, columns: Sequence[str], types: Mapping[str, Any]) -> Iterator[FilePart]:
        """Read columns by name, a block of the file at a time."""
        place = {name: str(i) for i, name in enumerate(self.names)}
        start = 0
        with readable(self.path), pa.input_stream(str(self.path)) as stream:
            options = self._options(
                [place[name] for name in columns], {place[n]: kind for n, kind in types.items()}
            )
            with pa.csv.open_csv(stream, *options) as reader:
                for batch in reader:
                    if batch.num_rows:
                        rows = pa.Table.from_batches([batch]).rename_columns(list(columns))
                        yield FilePart(self, start, rows)
                        start += batch.num_rows

    def _parse(self, columns: Sequence[str], types: dict[str, Any]) -> pa.Table:
        """Let Arrow read the columns, which are called by their places."""
        with pa.input_stream(str(self.path)) as stream:
            return pa.csv.read_csv(stream, *self._options(columns, types))

    def _options(self, columns: Sequence[str], types: dict[str, Any]) -> tuple[Any, Any, Any]:
        """How Arrow reads the columns, which are called by their places."""
        return (
            pa.csv.ReadOptions(
                column_names=[str(i) for i in range(len(self.names))],
                skip_rows=self.header_lines,
            ),
            pa.csv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=len(self.names) > 1,
            ),
            pa.csv.ConvertOptions(include_columns=list(dict.fromkeys(columns)), column_types=types),
        )

    def _ragged(self) -> str | None:
        """The complaint about the first row that has too few or too many values."""
        for row, (line, record) in enumerate(self._rows()):
            if len(record) != len(self.names):
                values = "1 value" if len(record) == 1 else f"{len(record)} values"
                return (
                    f"row {row + 1} (line {line} of {self.path.name}) has {values}, "
                    f"but the header names {len(self.names)} columns; mend that line"
                )
        return None

    def where(self, row: int) -> str:
        """Where a row, counted from 0, is found in the file."""
        lines = (line for i, (line, _) in enumerate(self._rows()) if i == row)
        return f"row {row + 1} (line {next(lines, '?')} of {self.path.name})"

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """The rows below the header as Arrow counts them."""
        for line, record in _records(self.path, self.delimiter):
            if line > self.header_lines and (record or len(self.names) == 1):
                yield line, record or [""]


def _delimiter(path: Path) -> str:
    """The delimiter that is most frequent in the first line that is not blank."""
    with readable(path), _text(path) as file:
        header = next((line for line in file if line.strip()), "")
    bare = re.sub(r'"[^"]*"', "", header)
    return max(DELIMITERS, key=bare.count)


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Each record with the number of its first line, from 1; blank lines are empty records."""
    with readable(path), _text(path) as file:
        reader = csv.reader(file, delimiter=delimiter)
        line = 1
        for record in reader:
            yield line, record
            line = reader.line_num + 1


def _extra_lines(record: Sequence[str]) -> int:
    """Line breaks within the values of a record."""
    return sum(value.count("\n") for value in record)


def _text(path: Path) -> TextIO:
    """The file as text, decompressed, without a byte order mark."""
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
    return path.open(encoding="utf-8-sig", errors="replace", newline="")


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
def owned(owner: str) -> Iterator[None]:
    """Let complaints begin with whose rows they are about."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(owner):
            raise
        raise type(error)(f"{owner}: {error}") from error
