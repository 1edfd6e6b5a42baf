"""Tables of spreadsheets: CSV in its dialects, plain or compressed, and sheets of Excel."""

from __future__ import annotations

import codecs
import csv
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.csv

from fedcluster.errors import InputError
from fedcluster.io._cells import POINT, as_arrow, decimals_of, has_padding
from fedcluster.io._columns import first_twice
from fedcluster.io._csv_blocks import BLOCK, BlockReader, read_blocks
from fedcluster.io._reader import ArrowTable, TablePart
from fedcluster.io._rows import FileFingerprint, readable

DELIMITERS = ",;\t|"
UTF8 = "utf-8"
LOOKED_AT = 1 << 20
"""Bytes that show how letters are written."""
LARGE = 1 << 20
"""Bytes of a file that is read in blocks."""
HEAD = 1000
"""Rows that are looked at as they are written."""


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
    fingerprint : FileFingerprint
        The file as it was when it was opened.
    decimal : {".", ","}, default="."
        What the decimals of a number begin with.
    encoding : str, default="utf-8"
        How its letters are written.
    """

    path: Path
    names: tuple[str, ...]
    delimiter: str
    header_lines: int
    fingerprint: FileFingerprint
    decimal: str = POINT
    encoding: str = UTF8

    @classmethod
    def open(cls, path: Path, decimal: str | None = None, encoding: str | None = None) -> CsvFile:
        """Read the header, whose line shows the delimiter; the first rows show the decimals."""
        seen = FileFingerprint.now(path)
        encoding = _encoding(path) if encoding is None else _known(encoding, path)
        is_tsv = ".tsv" in path.name.lower()
        delimiter = "\t" if is_tsv else _delimiter(path, decimal or POINT, encoding)
        for line, record in _records(path, delimiter, encoding):
            if record:
                names = tuple(name.strip() for name in record)
                end = line + sum(value.count("\n") for value in record)
                file = cls(path, names, delimiter, end, seen, decimal or POINT, encoding)
                return file if decimal else replace(file, decimal=decimals_of(file.head()))
        raise InputError(f"{path} is empty; expected a header line and rows")

    def read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> TablePart:
        """Read columns by name; those among ``texts`` as they are written."""
        columns = list(dict.fromkeys(columns))
        options = self._options(columns, dict.fromkeys(texts, pa.string()))
        with self._whole(), self._stream() as stream:
            rows = pa.csv.read_csv(stream, *options).rename_columns(columns)
        return TablePart(self, 0, rows)

    def read_rows(
        self, values: Sequence[str], others: Sequence[str], texts: Sequence[str], *, missing: bool
    ) -> TablePart | None:
        """Read columns of numbers as rows, others by name; None where `read` must do it.

        That is so of small files, and of large ones that are not simple or wrong somewhere.
        """
        columns = [*values, *others]
        is_plain = self.encoding == UTF8 and self.path.suffix.lower() != ".gz"
        if not is_plain or self.fingerprint.size < LARGE or first_twice(columns) is not None:
            return None
        options = self._options(columns, dict.fromkeys(texts, pa.string()), quotes=False)
        options[0].skip_rows, options[0].use_threads, options[0].block_size = 0, False, BLOCK + 1
        reader = BlockReader(self.path, self.header_lines, *options)
        place = {name: str(i) for i, name in enumerate(self.names)}
        read = read_blocks(reader, [place[name] for name in values], missing=missing)
        if read is None:
            return None
        X, rest = read
        return TablePart(
            self, 0, rest.rename_columns([self.names[int(i)] for i in rest.column_names]), X
        )

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Read columns by name, some rows at a time, and keep none of them.

        The first rows say what is a number; where later ones are none, the rest is read as text.
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

    def padded(self) -> tuple[str, ...]:
        """Return the columns in whose first rows a number has zeros in front, as in "01015"."""
        return tuple(name for name, cells in self.head().items() if any(map(has_padding, cells)))

    def head(self) -> dict[str, tuple[str, ...]]:
        """Return the first cells of each column as they are written."""
        first = [record for _, (_, record) in zip(range(HEAD), self._rows(), strict=False)]
        return dict(zip(self.names, zip(*first, strict=False), strict=False))

    def _numbers(self, columns: Sequence[str], types: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns whose first values are numbers, or missing: floats, from there on."""
        first = next(self._blocks(columns, types), None)
        kinds = {} if first is None else {field.name: field.type for field in first.rows.schema}
        return {
            name: pa.float64()
            for name, kind in kinds.items()
            if pa.types.is_integer(kind) or pa.types.is_null(kind)
        }

    def _blocks(self, columns: Sequence[str], types: Mapping[str, Any]) -> Iterator[TablePart]:
        """Read columns by name, a block of the file at a time."""
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
        """Open the file, decompressed, for Arrow to read from by Python's hand.

        Arrow reads ahead in threads that outlive a reader which is left early. By a handle of its
        own they would go on with whichever file has got the number of the closed one.
        """
        kind = "gzip" if self.path.suffix.lower() == ".gz" else None
        with (
            readable(self.path),
            self.path.open("rb") as file,
            pa.input_stream(file, kind) as stream,
        ):
            yield stream

    def _options(
        self, columns: Sequence[str], types: Mapping[str, Any], *, quotes: bool | None = None
    ) -> tuple[Any, Any, Any]:
        """Return how Arrow reads the columns, which it knows by their places."""
        place = {name: str(i) for i, name in enumerate(self.names)}
        return (
            pa.csv.ReadOptions(
                column_names=[str(i) for i in range(len(self.names))],
                skip_rows=self.header_lines,
                encoding=self.encoding,
            ),
            pa.csv.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=self._has_quotes() if quotes is None else quotes,
                ignore_empty_lines=len(self.names) > 1,
            ),
            pa.csv.ConvertOptions(
                include_columns=[place[name] for name in columns],
                column_types={place[name]: kind for name, kind in types.items()},
                decimal_point=self.decimal,
            ),
        )

    def _has_quotes(self) -> bool:
        """Return whether values may stand in quotes, and so hold the ends of lines.

        Arrow reads a file without them in less time.
        """
        if self.path.suffix.lower() == ".gz" or self.encoding == "utf-16":
            return True
        with readable(self.path), self.path.open("rb") as file:
            for _ in range(self.header_lines):
                file.readline()
            return any(b'"' in block for block in iter(partial(file.read, LOOKED_AT), b""))

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Name the row that Arrow cannot read."""
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
        """Return the complaint about the first row that has too few or too many values."""
        for row, (line, record) in enumerate(self._rows()):
            if len(record) != len(self.names):
                values = "1 value" if len(record) == 1 else f"{len(record)} values"
                return (
                    f"row {row + 1} (line {line} of {self.path.name}) has {values}, "
                    f"but the header names {len(self.names)} columns; mend that line"
                )
        return None

    def where(self, row: int) -> str:
        """Return where a row, counted from 0, is found in the file."""
        lines = (line for i, (line, _) in enumerate(self._rows()) if i == row)
        return f"row {row + 1} (line {next(lines, '?')} of {self.path.name})"

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows below the header as Arrow counts them."""
        for line, record in _records(self.path, self.delimiter, self.encoding):
            if line > self.header_lines and (record or len(self.names) == 1):
                yield line, record or [""]


def _encoding(path: Path) -> str:
    """Return how the first letters of a file are written: UTF-8, or what its bytes show."""
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with readable(path), opened(path, "rb") as file:
        first = file.read(LOOKED_AT)
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding in (UTF8, "cp1252"):
        with suppress(UnicodeDecodeError):
            codecs.getincrementaldecoder(encoding)().decode(first, len(first) < LOOKED_AT)
            return encoding
    return "latin-1"


def _known(encoding: str, path: Path) -> str:
    """Return the name of an encoding of text as Python writes it."""
    try:
        "a".encode(encoding)
    except (LookupError, UnicodeError) as error:
        raise InputError(
            f"{path}: no encoding is called {encoding!r}; write utf-8, utf-16, cp1252 (Windows) or "
            "latin-1, or save the file as UTF-8"
        ) from error
    return codecs.lookup(encoding).name


def _delimiter(path: Path, decimal: str, encoding: str) -> str:
    """Return the delimiter that is most frequent in the first line that is not blank.

    Where there is none, since there is one column, it is not what the decimals begin with.
    """
    with readable(path), _text(path, encoding) as file:
        header = next((line for line in file if line.strip()), "")
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
    """Open the file as text, decompressed, without a byte order mark."""
    encoding = "utf-8-sig" if encoding == UTF8 else encoding
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding=encoding, errors="replace", newline="")
    return path.open(encoding=encoding, errors="replace", newline="")


# Excel


def open_excel(path: Path, sheet: str | None = None) -> ArrowTable:
    """Read a sheet of an ``.xlsx`` file, by default the first one.

    Raises
    ------
    InputError
        If it is no Excel file or empty, if there is no such sheet, or if the extra ``excel`` is not
        installed.
    """
    lines = _sheet(path, sheet)
    header = next((i for i, line in enumerate(lines) if any(cell != "" for cell in line)), None)
    if header is None:
        raise InputError(f"{path} is empty; expected a header line and rows")
    names = [str(cell).strip() for cell in lines[header]]
    columns = zip(*lines[header + 1 :], strict=True) if lines[header + 1 :] else [()] * len(names)
    arrays = [as_arrow([None if cell == "" else cell for cell in cells]) for cells in columns]
    return ArrowTable(path, pa.Table.from_arrays(arrays, names), header + 1)


def _sheet(path: Path, name: str | None) -> list[list[Any]]:
    """Return the cells of a sheet, line by line."""
    try:
        import python_calamine as calamine  # an optional extra
    except ImportError as error:
        raise InputError(f"reading {path} needs pip install 'fedcluster[excel]'") from error
    with readable(path):
        path.open("rb").close()
        try:
            book = calamine.load_workbook(path)
            sheets = book.sheet_names
            if name is not None and name not in sheets:
                raise InputError(f"{path} has no sheet {name!r}; it has {', '.join(sheets)}")
            lines: list[list[Any]] = book.get_sheet_by_name(
                sheets[0] if name is None else name
            ).to_python(skip_empty_area=False)
        except (calamine.CalamineError, calamine.ZipError, calamine.XmlError) as error:
            raise InputError(f"{path} is not a whole Excel file: {error}") from error
    return lines
