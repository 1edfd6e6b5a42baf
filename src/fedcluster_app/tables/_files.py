"""Tables in files: CSV in its dialects, Excel, SQLite, DuckDB, SAS, SPSS and Stata.

Arrow reads a CSV file into columns, by several threads. Tables of databases are read in batches,
and all other formats whole, by their own libraries, in read-only mode.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import math
import re
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import islice, pairwise
from pathlib import Path
from posixpath import join, normpath
from typing import Any, TextIO
from urllib.parse import quote
from xml.etree import ElementTree
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from fedcluster.errors import InputError, ReadingNote, listed
from fedcluster.frames.cells import (
    POINT,
    as_arrow,
    column_of,
    decimals_of,
    is_date,
    is_number,
    is_written_number,
    may_be_number,
    unit_of,
)
from fedcluster.frames.columns import MISSING, first_twice, is_missing
from fedcluster.frames.reader import ArrowTable, BatchTable, TablePart
from fedcluster.frames.rows import (
    FileFingerprint,
    FileSource,
    check_chosen,
    in_quotes,
    readable,
    reading_with,
    statement,
)
from fedcluster.texts import setting
from fedcluster_app.tables.remote import own_folder

# CSV


DELIMITERS = ",;\t|"
UTF8 = "utf-8"
LOOKED_AT = 1 << 20
"""Number of bytes from which the encoding is detected."""
FIRST = 100
FIRST_LETTERS = 1 << 16
"""Numbers of lines, and of characters, in which the beginning of a table is sought."""


@dataclass(frozen=True, slots=True)
class CsvFile:
    """A CSV file with a header line, plain or compressed.

    Parameters
    ----------
    path : Path
        The file.
    names : tuple of str
        The names of the columns, stripped of blanks.
    delimiter : str
        The separator of values: comma, semicolon, tab or bar.
    header_lines : int
        The number of lines up to the end of the header.
    fingerprint : FileFingerprint
        The state of the file when it was opened.
    decimal : {".", ","}, default="."
        The decimal separator.
    encoding : str, default="utf-8"
        The encoding of the file.
    """

    path: Path
    names: tuple[str, ...]
    delimiter: str
    header_lines: int
    fingerprint: FileFingerprint
    decimal: str = POINT
    encoding: str = UTF8
    head_rows = 1000  # number of rows that are inspected as text

    @classmethod
    def open(
        cls,
        path: Path,
        decimal: str | None = None,
        encoding: str | None = None,
        skip: int | None = None,
        names: tuple[str, ...] | None = None,
    ) -> CsvFile:
        """Read the header, whose line shows the delimiter; the first rows show the decimal sign.

        The header follows ``skip`` lines; by default it is the first line of the table. A table
        without a header has the given names.
        """
        seen = FileFingerprint.now(path)
        _check_is_text(path)
        encoding = _encoding(path) if encoding is None else _known(encoding, path)
        first = _first_lines(path, encoding, skip or 0)
        delimiter = "\t" if ".tsv" in path.name.lower() else _delimiter(first, decimal or POINT)
        if skip is None and names is None:
            _check_no_titles(path, first, delimiter)
        for line, record in _records(path, delimiter, encoding):
            if record and line > (skip or 0):
                cells = tuple(name.strip() for name in record)
                _check_is_parted(path, cells, first)
                end = line + sum(value.count("\n") for value in record)
                if not has_header(path, cells, names):
                    end = line - 1
                names = names or cells
                file = cls(path, names, delimiter, end, seen, decimal or POINT, encoding)
                return file if decimal else replace(file, decimal=decimals_of(file.head()))
        raise InputError(f"{path} is empty; expected a header line and rows")

    def read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> TablePart:
        """Read columns by name; those in ``texts`` are kept as text."""
        columns = list(dict.fromkeys(columns))
        options = self._options(columns, dict.fromkeys(texts, pa.string()))
        with self._whole(), self._stream() as stream:
            rows = pa.csv.read_csv(stream, *options).rename_columns(columns)
        again = _misread(rows)
        return self.read(columns, [*texts, *again]) if again else TablePart(self, 0, rows)

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Read columns by name, in parts of some rows, without keeping any.

        The first rows determine which columns are numeric; if a later value is not a number, the
        rest of the column is read as text.
        """
        columns = list(dict.fromkeys(columns))
        types = dict.fromkeys(texts, pa.string())
        start = 0
        try:
            for part in self._blocks(columns, types | self._numbers(columns, types)):
                yield part
                start += part.rows.num_rows
        except pa.ArrowInvalid:
            with self._whole():
                for part in self._blocks(columns, dict.fromkeys(columns, pa.string())):
                    skipped = min(part.rows.num_rows, max(0, start - part.start))
                    if skipped < part.rows.num_rows:
                        yield TablePart(self, part.start + skipped, part.rows.slice(skipped))

    def head(self) -> dict[str, tuple[str, ...]]:
        """Return the first cells of each column as text."""
        first = self.first_rows(self.head_rows)
        return dict(zip(self.names, zip(*first, strict=False), strict=False))

    def first_rows(self, n: int) -> list[list[str]]:
        """Return the cells of the first n rows as text."""
        return [record for _, record in islice(self._rows(), n)]

    def _numbers(self, columns: Sequence[str], types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns, read as floats, whose first values are numbers or missing."""
        first = next(self._blocks(columns, types), None)
        if first is None:
            return {}
        numbers = {
            field.name: pa.float64()
            for field in first.rows.schema
            if pa.types.is_integer(field.type) or pa.types.is_null(field.type)
        }
        return numbers | dict.fromkeys(_misread(first.rows), pa.string())

    def _blocks(self, columns: Sequence[str], types: Mapping[str, Any]) -> Iterator[TablePart]:
        """Read columns by name, one block of the file at a time."""
        start = 0
        with (
            self._stream() as stream,
            pa.csv.open_csv(stream, *self._options(columns, types)) as reader,
        ):
            for batch in reader:
                if batch.num_rows:
                    rows = pa.Table.from_batches([batch]).rename_columns(list(columns))
                    yield TablePart(self, start, rows)
                    start += batch.num_rows

    @contextmanager
    def _stream(self) -> Iterator[pa.NativeFile]:
        """Open the file, decompressed, as a stream that Arrow reads through Python.

        Arrow reads ahead in threads that outlive an abandoned reader. With a file handle of its
        own, these could continue to read another file that has been given the number of the closed
        one.
        """
        kind = "gzip" if self.path.suffix.lower() == ".gz" else None
        with (
            readable(self.path),
            self.path.open("rb") as file,
            pa.input_stream(file, kind) as stream,
        ):
            yield stream

    def _options(self, columns: Sequence[str], types: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """Return Arrow's options for reading columns, which are identified by their positions."""
        place = {name: str(i) for i, name in enumerate(self.names)}
        return (
            pa.csv.ReadOptions(
                column_names=[str(i) for i in range(len(self.names))],
                skip_rows=self.header_lines,
                encoding=self.encoding,
            ),
            pa.csv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=self._has_quotes(),
                ignore_empty_lines=len(self.names) > 1,
            ),
            pa.csv.ConvertOptions(
                include_columns=[place[name] for name in columns],
                column_types={place[name]: kind for name, kind in types.items()},
                decimal_point=self.decimal,
            ),
        )

    def _has_quotes(self) -> bool:
        """Return whether the file has quotes, within which values can span lines.

        Arrow reads a file without quotes in less time.
        """
        if self.path.suffix.lower() == ".gz" or self.encoding.startswith("utf-16"):
            return True
        with readable(self.path), self.path.open("rb") as file:
            for _ in range(self.header_lines):
                file.readline()
            return any(b'"' in block for block in iter(partial(file.read, LOOKED_AT), b""))

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Turn an error of Arrow into one that names the row."""
        try:
            yield
        except UnicodeError as error:
            raise InputError(
                f"{self.path} is not {self.encoding} throughout; save it as UTF-8, or name another "
                "encoding"
            ) from error
        except pa.ArrowInvalid as error:
            raise InputError(self._ragged() or f"{self.path} cannot be read: {error}") from error

    def _ragged(self) -> str | None:
        """Return the message about the first row that has too few or too many values."""
        for row, (line, record) in enumerate(self._rows()):
            if len(record) != len(self.names):
                values = "1 value" if len(record) == 1 else f"{len(record)} values"
                return (
                    f"row {row + 1} (line {line} of {self.path.name}) has {values}, "
                    f"but the header names {len(self.names)} columns; mend that line"
                )
        return None

    def where(self, row: int) -> str:
        """Return where a row, counted from 0, is in the file."""
        lines = (line for i, (line, _) in enumerate(self._rows()) if i == row)
        return f"row {row + 1} (line {next(lines, '?')} of {self.path.name})"

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows below the header, numbered as in Arrow."""
        for line, record in _records(self.path, self.delimiter, self.encoding):
            if line > self.header_lines and (record or len(self.names) == 1):
                yield line, record or [""]


def _misread(rows: pa.Table) -> list[str]:
    """Return the columns to read again as text.

    These are times of UTC, which their texts may not be, and numbers that may be long keys, whose
    last digits a float does not hold.
    """

    def is_long(column: pa.ChunkedArray) -> bool:
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            return False
        ends = pa.compute.min_max(column).as_py().values()
        return any(end is not None and 2.0**53 < abs(end) < math.inf for end in ends)

    return [
        name
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if getattr(column.type, "tz", None) or is_long(column)
    ]


OTHER_FILES = {
    b"PK\x03\x04": "an Excel file or an archive; name it .xlsx, or unpack it",
    b"\xd0\xcf\x11\xe0": "an old Excel file; save it as .xlsx or CSV",
    b"\x1f\x8b": "compressed; name it .csv.gz",
    b"PAR1": "a Parquet file; name it .parquet",
    b"SQLite format": "an SQLite database; name it .sqlite",
    b"<!DOCTYPE": "a page of HTML; save it as CSV",
    b"<html": "a page of HTML; save it as CSV",
    b"<table": "a page of HTML; save it as CSV",
    b"<?xml": "XML; save it as CSV",
    b"{": "JSON; save it as CSV",
    b"[{": "JSON; save it as CSV",
}
"""Signatures of other kinds of files, with advice if their names end in .csv."""


def _check_is_text(path: Path) -> None:
    """Raise an error for a file whose content does not match its name."""
    if path.suffix.lower() == ".gz":
        return
    with readable(path), path.open("rb") as file:
        first = file.read(64).removeprefix(codecs.BOM_UTF8).lstrip()
    if what := next((what for sign, what in OTHER_FILES.items() if first.startswith(sign)), None):
        raise InputError(f"{path} is called CSV and seems to be {what}")


def has_header(path: Path, first: Sequence[str], names: Sequence[str] | None) -> bool:
    """Return whether the first line of a table holds its names, which may be given.

    Raises
    ------
    InputError
        If other columns are named than there are.
    """
    if names is not None and len(names) != len(first):
        raise InputError(f"{path} has {len(first)} columns, but names has {len(names)}")
    return names is None or list(names) == list(first)


def _check_is_parted(path: Path, names: Sequence[str], lines: Sequence[str]) -> None:
    """Raise an error for a file whose columns are separated only by blanks."""
    rows = [line.split() for line in lines[1:] if line.strip()]
    n = len(names[0].split()) if len(names) == 1 else 0
    if n > 1 and len(rows) > 1 and all(len(row) == n for row in rows[:-1]):
        raise InputError(
            f"{path} seems to have {n} columns separated by blanks; save it with commas between "
            "them"
        )


def _encoding(path: Path) -> str:
    """Return the encoding of a file, judged by its first bytes: UTF-8 if they are valid."""
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with readable(path), opened(path, "rb") as file:
        first = file.read(LOOKED_AT)
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in first[:2]:  # half of a letter, without a byte order mark
        return "utf-16-be" if first.startswith(b"\0") else "utf-16-le"
    for encoding in (UTF8, "cp1252"):
        with suppress(UnicodeDecodeError):
            codecs.getincrementaldecoder(encoding)().decode(first, len(first) < LOOKED_AT)
            return encoding
    return "latin-1"


def _known(encoding: str, path: Path) -> str:
    """Return Python's name of an encoding; refuse an unknown one."""
    try:
        "a".encode(encoding)
    except (LookupError, UnicodeError) as error:
        raise InputError(
            f"{path}: no encoding is called {encoding!r}; write utf-8, utf-16, cp1252 (Windows) or "
            "latin-1, or save the file as UTF-8"
        ) from error
    return codecs.lookup(encoding).name


def _first_lines(path: Path, encoding: str, skip: int) -> list[str]:
    """Return the first lines of a file after skipping some."""
    with readable(path), _text(path, encoding) as file:
        for _ in islice(file, skip):
            pass
        return file.readlines(FIRST_LETTERS)[:FIRST]


def _check_no_titles(path: Path, lines: Sequence[str], delimiter: str) -> None:
    """Raise an error for a file that begins with titles above its table."""
    first = (record for record in csv.reader(lines, delimiter=delimiter) if record)
    with suppress(csv.Error):
        if _is_header(list(islice(first, 2))):
            return
    choices = [delimiter] if ".tsv" in path.name.lower() else [delimiter, *DELIMITERS]
    for each in choices:
        reader, ends, records = csv.reader(lines, delimiter=each), [0], []
        with suppress(csv.Error):
            for record in reader:
                ends.append(reader.line_num)
                records.append(record)
        if len(lines) == FIRST or sum(map(len, lines)) >= FIRST_LETTERS:
            records = records[:-1]  # the last record may be incomplete
        if n := _titles(records):
            _refuse_titles(path, records[:n], ends[n])


def _is_header(records: Sequence[Sequence[Any]]) -> bool:
    """Return whether the first non-blank record is as wide as the next, without empty cells."""
    [first, *more] = records or [[]]
    is_wide = len(first) > 1 and all(cell != "" for cell in first)
    return is_wide and (not more or len(more[0]) == len(first))


def _titles(records: Sequence[Sequence[Any]]) -> int:
    """Return how many records precede the header of a table; 0 if uncertain.

    They have fewer filled cells than the header. From the header on, all records are equally wide;
    its cells are distinct texts, and there is a number below it.

    Examples
    --------
    >>> _titles([["Report"], [], ["age", "bmi"], ["31", "22"]])
    2
    >>> _titles([["Report", ""], ["age", "bmi"], ["31", "22"]]), _titles([["age", ""], ["31", "2"]])
    (1, 0)
    """
    filled = list(map(_filled, records))
    header = filled.index(max(filled)) if filled else 0
    if not any(filled[:header]) or filled[header] < 2:
        return 0
    below = [record for record in records[header + 1 :] if record]
    if any(len(record) != len(records[header]) for record in below):
        return 0
    names = [cell for cell in records[header] if cell != ""]
    if any(_is_figure(cell) for cell in names) or first_twice(map(str, names)) is not None:
        return 0
    return header if any(_is_figure(cell) for record in below for cell in record) else 0


def _filled(record: Sequence[Any]) -> int:
    return sum(cell != "" and str(cell).strip() != "" for cell in record)


def _is_figure(cell: Any) -> bool:
    """Return whether a cell is a number, in any notation, or anything else that is not text."""
    return not isinstance(cell, str) or is_number(cell) or is_written_number(cell)


def _refuse_titles(path: Path, titles: Sequence[Sequence[Any]], n_lines: int) -> None:
    """Raise an error that names the first of the titles above a table."""
    title = next(str(cell) for record in titles for cell in record if _filled([cell]))
    raise InputError(
        f"{path}: {title.strip()[:20]!r} seems to be a title, and line {n_lines + 1} the header; "
        f"say {said_of(path, 'skip', n_lines)} or, in a site file, skip = {n_lines} under [source]"
    )


def said_of(path: Path, key: str, to: Any) -> str:
    """Return the option that says how a file is read, if its site has the name of the file."""
    return setting("sites", re.sub(r"\.\w+(\.gz)?$", "", path.name), key, to=to)


def _delimiter(lines: Sequence[str], decimal: str) -> str:
    """Return the delimiter that is most frequent in the first non-blank line.

    If there is none, because there is only one column, return one that is not the decimal sign.
    """
    header = next((line for line in lines if line.strip()), "")
    bare = re.sub(r'"[^"]*"', "", header)
    return max(sorted(DELIMITERS, key=decimal.count), key=bare.count)


def _records(path: Path, delimiter: str, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each record with the number of its first line, from 1; blank lines are empty."""
    with readable(path), _text(path, encoding) as file:
        reader = csv.reader(file, delimiter=delimiter)
        line = 1
        for record in reader:
            yield line, record
            line = reader.line_num + 1


def _text(path: Path, encoding: str) -> TextIO:
    """Open the file as text, decompressed and without a byte order mark."""
    encoding = "utf-8-sig" if encoding == UTF8 else encoding
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding=encoding, errors="replace", newline="")
    return path.open(encoding=encoding, errors="replace", newline="")


# The first line of a table: names of columns, or values of a row
#
# A name is of another kind than what is below it, as "age" is above numbers. A value is like what
# is below it: a number above numbers, "M" where other rows have "M", "P002" above "P003".


YEARS = range(1800, 2201)
"""Whole numbers that may be years."""
NUMBER = "a number"


@dataclass(frozen=True, slots=True)
class _Head:
    """First cell of a column, with the others that are not missing."""

    cell: str
    below: Sequence[str]
    kind: str
    """The kind of the first cell."""
    kinds: Sequence[str]
    """The kind of each of the others."""
    mostly = 0.9
    """Share of a column's cells that must be of the kind of its first one, for that to be a value.
    """

    @classmethod
    def of(cls, cell: str, below: Sequence[str]) -> _Head:
        """Return the first cell and those below it, with the kind of each."""
        return cls(cell, below, _kind(cell), list(map(_kind, below)))

    def as_value(self) -> str:
        """Return in words what the first cell is if it is like the others; else ""."""
        if is_missing(self.cell) or not self.below:
            return ""
        if self.kind and self.kinds.count(self.kind) >= self.mostly * len(self.below):
            return f"{self.kind}, as those below"
        if not self.kind and self.cell in self.below:
            return "a text that rows below have, too"
        return ""

    def is_name(self) -> bool:
        """Return whether the other cells are of one kind, and this one is not."""
        kinds = set(self.kinds)
        return not is_missing(self.cell) and len(kinds) == 1 and self.kind not in kinds


def values_in(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return why the first line of a table seems to hold values; "" if it may hold names.

    Parameters
    ----------
    names : sequence of str
        The cells of the first line.
    rows : sequence of sequence of str
        The cells of the lines below, each as long.

    Examples
    --------
    >>> values_in(["Ann", "F", "77.6"], [["Bob", "M", "60.5"], ["Eve", "F", "61"]])
    'cell 2 is a text that rows below have, too'
    >>> values_in(["name", "sex", "age"], [["Bob", "M", "60.5"], ["Eve", "F", "61"]])
    ''
    >>> values_in(["region", "2019", "2020"], [["north", "1.5", "2.5"], ["south", "3", "4"]])
    ''
    """
    names = [name.strip() for name in names]
    # Number of rows below the first line that are compared with it.
    rows = [[cell.strip() for cell in row] for row in rows[:50]]
    rows = [row for row in rows if row != names]
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    heads = [
        _Head.of(name, [cell for cell in cells if cell.lower() not in MISSING])
        for name, cells in zip(names, columns, strict=True)
    ]
    values = {i: why for i, head in enumerate(heads) if (why := head.as_value())}
    numbers = [i for i in values if heads[i].kind == NUMBER]
    below = [[row[i] for i in numbers] for row in rows]
    if _are_sorted_names([names[i] for i in numbers], below):
        values = {i: why for i, why in values.items() if i not in numbers}
    if len(values) <= sum(head.is_name() for head in heads):
        return ""
    first = min(values)
    return f"cell {first + 1} is {values[first]}"


def _kind(cell: str) -> str:
    """Return the kind of a cell in words; "" for a text without digits."""
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if value == value and "_" not in cell:  # the common case, checked first
        return NUMBER
    if may_be_number(cell) or is_written_number(cell):
        return NUMBER
    if "@" in cell:
        return "an address"
    if not any(map(str.isdigit, cell)):
        return ""
    if is_date(cell):
        return "a date"
    if unit := unit_of(cell):
        return f"a number of {unit}"
    signs = re.sub(r"[^\W_]", "", cell)
    # Smallest number of characters of keys that look random, such as digests.
    if len(cell) >= 8:
        return f"a text of {len(cell)} characters {signs}".strip()
    return "a text like " + re.sub(r"\d+", "1", re.sub(r"[^\W\d_]", "A", cell))


def _are_sorted_names(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether numbers above numbers are names: counted, years, or many sorted ones."""
    numbers = _numbers(names)
    if len(numbers) < max(2, len(names)) or not _are_sorted(numbers):
        return False
    # sorted columns, or columns 1, 2, 3, ..., that no row holds by chance
    if len(numbers) >= 8:
        return sum(_are_sorted(_numbers(row)) for row in rows) < len(rows) / 2
    if numbers in ([*range(len(numbers))], [*range(1, len(numbers) + 1)]):
        own = (name in column for name, column in zip(names, zip(*rows, strict=True), strict=True))
        return len(numbers) >= 5 or not any(own)
    years = [year for row in rows for year in _numbers(row) if year in YEARS]
    return all(year in YEARS for year in numbers) and len(years) < len(rows) * len(names) / 2


def _numbers(cells: Sequence[str]) -> list[float]:
    return [float(cell) for cell in cells if re.fullmatch(r"\d+(\.\d*)?", cell)]


def _are_sorted(numbers: Sequence[float]) -> bool:
    return all(a < b for a, b in pairwise(numbers)) or all(a > b for a, b in pairwise(numbers))


# Excel


def open_excel(
    path: Path,
    sheet: str | None = None,
    skip: int | None = None,
    names: tuple[str, ...] | None = None,
) -> ArrowTable:
    """Read a sheet of an ``.xlsx`` file, below skipped lines or titles.

    It is by default the only one with a table. A table without a header has the given names.

    Raises
    ------
    InputError
        If the file is not an Excel file, is empty or has no such sheet, or if the extra ``excel``
        is not installed.
    """
    lines, ranges = _sheet(path, sheet)
    is_plain = skip is not None or names is not None
    if not (is_plain or _is_header(list(filter(_filled, lines[:FIRST])))) and (
        n := _titles(lines[:FIRST])
    ):
        _refuse_titles(path, lines[:n], n)
    below = enumerate(lines[skip or 0 :], start=skip or 0)
    header = next((i for i, line in below if any(cell != "" for cell in line)), None)
    if header is None:
        raise InputError(f"{path} is empty; expected a header line and rows")
    first = tuple(" ".join(str(cell).split()) for cell in lines[header])
    start = header + has_header(path, first, names)
    _fill_merged(path, lines, ranges, start, skip or 0)
    columns = zip(*lines[start:], strict=True) if lines[start:] else [()] * len(first)
    arrays = [as_arrow([None if cell == "" else cell for cell in cells]) for cells in columns]
    return ArrowTable(path, pa.Table.from_arrays(arrays, names or first), start)


MergedCells = tuple[tuple[int, int], tuple[int, int]]
"""The line and the column, from 0, of the first and of the last of some merged cells."""


def _fill_merged(
    path: Path, lines: list[list[Any]], ranges: Sequence[MergedCells], start: int, skipped: int
) -> None:
    """Give each row the value of cells that are merged over rows of a column, with a note.

    Parameters
    ----------
    path : Path
        The workbook.
    lines : list of list
        The cells of the sheet, which are filled in.
    ranges : sequence of MergedCells
        Its merged cells.
    start, skipped : int
        The number of lines above the rows, and of those above the header.

    Raises
    ------
    InputError
        If cells are merged over columns, or in the header.
    """
    filled = []
    for (top, left), (bottom, right) in sorted(ranges):
        held = [cell for line in lines[top : top + 1] for cell in line[left : left + 1]]
        if bottom < skipped or not held or held[0] == "":
            continue
        where = f"{_cell(top, left)}:{_cell(bottom, right)}"
        if top < start:
            raise InputError(
                f"{path}: the cells {where} of its header are merged; unmerge them, and name each "
                "column in one line"
            )
        if left < right:
            raise InputError(
                f"{path}: the cells {where} are merged over columns, of which only one can have "
                "the value; unmerge them, and fill in each"
            )
        for line in lines[top : bottom + 1]:
            line[left] = lines[top][left]
        filled.append(f"{lines[top][left]!r} of the merged cells {where}")
    if filled:
        more = f", and so do {len(filled) - 1} more" if filled[1:] else ""
        said = f"{path.name}: {filled[0]} counts for each of their rows{more}"
        warnings.warn(said, ReadingNote, stacklevel=3)


def _cell(line: int, column: int) -> str:
    """Return the name of a cell, given its line and column from 0.

    Examples
    --------
    >>> _cell(1, 0), _cell(30, 27)
    ('A2', 'AB31')
    """
    letters, column = "", column + 1
    while column:
        column, place = divmod(column - 1, 26)
        letters = chr(ord("A") + place) + letters
    return f"{letters}{line + 1}"


def _sheet(path: Path, name: str | None) -> tuple[list[list[Any]], Sequence[MergedCells]]:
    """Return the cells of a sheet, line by line, and which of them are merged."""
    with reading_with("excel", path):
        import python_calamine as calamine  # optional extra
    with readable(path):
        try:
            book = calamine.load_workbook(path)
            sheets = book.sheet_names
            if name is not None and name not in sheets:
                raise InputError(f"{path} has no sheet {name!r}; it has {', '.join(sheets)}")
            found = {
                each: book.get_sheet_by_name(each)
                for each in (_shown(book) if name is None else [name])
            }
            held = {each: of.to_python(skip_empty_area=False) for each, of in found.items()}
        except (calamine.CalamineError, calamine.ZipError, calamine.XmlError) as error:
            raise InputError(f"{path} is not a whole Excel file: {error}") from error
    used = _only_table(path, held)
    if any("" in line for line in held[used]):
        _check_computed(path, used)
    return held[used], found[used].merged_cell_ranges or ()


def _check_computed(path: Path, sheet: str) -> None:
    """Raise an error for formulas without a value, as programs write that do not compute them.

    Where a program has given the parts of a workbook other names, they are not looked for.
    """
    try:
        with ZipFile(path) as file:
            related = ElementTree.fromstring(file.read("xl/_rels/workbook.xml.rels"))
            targets = {each.attrib["Id"]: each.attrib["Target"] for each in related}
            about = next(
                each.attrib
                for each in ElementTree.fromstring(file.read("xl/workbook.xml")).iter()
                if each.tag.endswith("}sheet") and each.attrib["name"] == sheet
            )
            target = next(targets[held] for key, held in about.items() if key.endswith("}id"))
            cells = file.read(normpath(join("/xl", target))[1:])
    except (KeyError, StopIteration):
        return
    if b"<f" not in cells:
        return
    empty = []
    for _, cell in ElementTree.iterparse(BytesIO(cells)):
        if cell.tag.endswith("}c"):
            held = {each.tag.rpartition("}")[2]: each.text for each in cell}
            if "f" in held and not held.get("v") and cell.attrib.get("t") != "str":
                empty.append(cell.attrib["r"])
            cell.clear()
    if empty:
        more = f", and so have {len(empty) - 1:,} more" if empty[1:] else ""
        raise InputError(
            f"{path}: cell {empty[0]} of sheet {sheet!r} has a formula but no value{more}; open "
            "the file in a spreadsheet program, which computes them, and save it"
        )


def _shown(book: Any) -> list[str]:
    """Return the names of the sheets that are not hidden, or else all."""
    shown = [each.name for each in book.sheets_metadata if str(each.visible).endswith("Visible")]
    return shown or list(book.sheet_names)


def _only_table(path: Path, sheets: Mapping[str, list[list[Any]]]) -> str:
    """Return the only sheet with a table, of two columns and two lines at least.

    Raises
    ------
    InputError
        If there are several.
    """
    first = next(iter(sheets))
    wide = {name: sum(_filled(line) > 1 for line in lines) for name, lines in sheets.items()}
    tables = [name for name, n_lines in wide.items() if n_lines > 1]
    if len(tables) > 1:
        said = ", ".join(f"{name!r} ({wide[name]:,} lines)" for name in tables)
        raise InputError(
            f"{path} has a table on each of the sheets {said}: name one, as in "
            f"{said_of(path, 'sheet', tables[0])} or, in a site file, "
            f'sheet = "{tables[0]}" under [source]'
        )
    used = tables[0] if tables else first
    if left := [name for name in sheets if name != used and any(map(_filled, sheets[name]))]:
        said = f"{path.name}: sheet {used!r} is read, and not {', '.join(map(repr, left))}"
        warnings.warn(said, ReadingNote, stacklevel=4)
    return used


# SQLite and DuckDB


TABLES = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' "
    "ESCAPE '~' ORDER BY name"
)


def open_sqlite(path: Path, **options: Any) -> BatchTable:
    """Open a table or a view of an SQLite file, by default its only one.

    Raises
    ------
    InputError
        If the file is not an SQLite file, or has no such table; later, if a row cannot be read.
    """
    with readable(path):
        path.open("rb").close()
    source = FileSource(path, **options)
    address = f"file:{quote(str(path.absolute()))}?mode=ro"

    @contextmanager
    def opened() -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(address, uri=True, check_same_thread=False)) as database:
                yield database
        except sqlite3.Error as error:
            raise InputError(f"{path} cannot be read as SQLite: {error}") from error

    def batches(columns: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        with opened() as database:
            answer = database.execute(statement(in_quotes(name), columns, source))
            while rows := answer.fetchmany(n_rows):
                cells = map(column_of, zip(*rows, strict=True))
                yield pa.Table.from_arrays(list(cells), list(columns))

    with opened() as database:
        name = _chosen([name for (name,) in database.execute(TABLES)], source.table, path)
        answer = database.execute(f"SELECT * FROM {in_quotes(name)} LIMIT 0")
        names = tuple(str(each[0]) for each in answer.description)
    check_chosen(source, names)
    return BatchTable(path, names, batches, FileFingerprint.now(path))


def open_duckdb(path: Path, **options: Any) -> BatchTable:
    """Open a table or a view of a DuckDB file, by default its only one.

    Raises
    ------
    InputError
        If the file is not a DuckDB file or has no such table, or if the extra ``duckdb`` is not
        installed; later, if a row cannot be read.
    """
    with reading_with("duckdb", path):
        import duckdb  # optional extra
    source = FileSource(path, **options)

    @contextmanager
    def opened() -> Iterator[Any]:
        try:
            with closing(connect_duckdb(path)) as database:
                yield database
        except duckdb.Error as error:
            first = str(error).partition("\n")[0]
            raise InputError(f"{path} cannot be read as DuckDB: {first}") from error

    def batches(columns: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        with opened() as database:
            answer = database.sql(statement(in_quotes(name), columns, source))
            read = getattr(answer, "to_arrow_reader", None) or answer.fetch_arrow_reader
            # Number of rows that DuckDB returns at a time.
            for batch in read(min(n_rows, 1 << 17)):
                yield pa.Table.from_batches([batch])

    with opened() as database:
        held = database.execute("SHOW TABLES").fetchall()
        name = _chosen([each for (each,) in held], source.table, path)
        columns = database.execute(f"SELECT * FROM {in_quotes(name)} LIMIT 0").description
    names = tuple(str(each[0]) for each in columns)
    check_chosen(source, names)
    return BatchTable(path, names, batches, FileFingerprint.now(path))


def connect_duckdb(path: Path | str) -> Any:
    """Open a DuckDB file read-only, in bounded memory, without a progress bar.

    By itself, DuckDB keeps what it reads in up to 80 % of the memory, and sorts beside the file.
    """
    import duckdb  # optional extra

    sorting = str(own_folder() / "duckdb")
    bounds: dict[str, Any] = {"memory_limit": "512MB", "threads": 4, "temp_directory": sorting}
    database = duckdb.connect(str(path), read_only=True, config=bounds)
    database.execute("SET enable_progress_bar = false")
    return database


def _chosen(names: Sequence[str], wanted: str | None, path: Path) -> str:
    """Return the named table or, without a name, the only one."""
    have = ", ".join(names) or "none"
    if wanted is not None and wanted not in names:
        raise InputError(f"{path} has no table {wanted!r}; it has {have}")
    if wanted is None and len(names) != 1:
        raise InputError(
            f"{path} has the tables {have}; name one, as in {said_of(path, 'table', 'NAME')}"
        )
    return names[0] if wanted is None else wanted


# SAS, SPSS and Stata


READERS = {
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".dta": "read_dta",
}
"""Functions that read a file, by the ending of its name."""


def open_statistics(path: Path) -> ArrowTable:
    """Read a file of SAS, SPSS or Stata, with the missing values that the program defines.

    A column of codes is read as their names ("value labels") if all codes have one.

    Raises
    ------
    InputError
        If the file is not valid, or if the extra ``stats`` is not installed.
    """
    with reading_with("stats", path):
        import pyreadstat  # optional extra
    read = getattr(pyreadstat, READERS[path.suffix.lower()])
    try:
        columns, known = read(str(path), output_format="dict")
    except (pyreadstat.ReadstatError, UnicodeError) as error:
        raise InputError(f"{path} is not a whole {path.suffix} file: {error}") from error
    labels = known.variable_value_labels
    for name, cells in columns.items():
        _say_names(path, str(name), cells, labels.get(name, {}))
    arrays = {str(name): _named(cells, labels.get(name, {})) for name, cells in columns.items()}
    return ArrowTable(path, pa.table(arrays))


def _say_names(path: Path, column: str, cells: Sequence[Any], names: Mapping[Any, str]) -> None:
    """Note the names of some values of a column whose other values have none."""
    held = {cell for cell in cells if isinstance(cell, int | float) and cell == cell}
    some = sorted(held & names.keys())[:3]
    if some and not held <= names.keys():
        shown = listed([f"{value:g} is {names[value]!r}" for value in some])
        mend = setting("missing_values", to=[f"{column}:{value:g}" for value in some])
        said = f"{path.name}, column {column!r}: {shown}; if that means missing, say {mend}"
        warnings.warn(said, ReadingNote, stacklevel=4)


def _named(cells: Sequence[Any], names: Mapping[Any, str]) -> pa.Array:
    """Return a column with its codes replaced by names if all of them have one.

    Examples
    --------
    >>> _named([1.0, 2.0, None], {1: "male", 2: "female"}).to_pylist()
    ['male', 'female', None]
    >>> _named([36.6, 99.0], {99: "refused"}).to_pylist()
    [36.6, 99.0]
    """
    cells = [None if cell is None or cell != cell else cell for cell in cells]
    held = {cell for cell in cells if cell is not None}
    if held and held <= names.keys():
        return pa.array([None if cell is None else str(names[cell]) for cell in cells])
    return pa.array(cells)
