"""One table in one CSV file, in its dialects, plain or compressed."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.csv

from fedcluster.errors import InputError
from fedcluster.io._decimals import POINT
from fedcluster.io._tables import FilePart, readable

DELIMITERS = ",;\t|"
CSV_KINDS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
UNDECODED = "\N{REPLACEMENT CHARACTER}"


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
    decimal : {".", ","}, default="."
        What the decimals of a number begin with.
    """

    path: Path
    names: tuple[str, ...]
    delimiter: str
    header_lines: int
    decimal: str = POINT

    @classmethod
    def open(cls, path: Path, decimal: str = POINT) -> CsvFile:
        """Read the header; its line shows the delimiter."""
        delimiter = "\t" if ".tsv" in path.name.lower() else _delimiter(path, decimal)
        for line, record in _records(path, delimiter):
            if record:
                names = tuple(name.strip() for name in record)
                if UNDECODED in "".join(names):
                    raise InputError(f"{path} is not UTF-8 text; save it as CSV in UTF-8")
                return cls(path, names, delimiter, line + _extra_lines(record), decimal)
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
        with readable(self.path), self._bytes() as stream:
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
        with self._bytes() as stream:
            return pa.csv.read_csv(stream, *self._options(columns, types))

    @contextmanager
    def _bytes(self) -> Iterator[pa.NativeFile]:
        """The file, decompressed, for Arrow to read from by Python's hand.

        Arrow reads ahead in threads that outlive a reader which is left early. By a handle of its
        own they would go on with whichever file has got the number of the closed one.
        """
        kind = "gzip" if self.path.suffix.lower() == ".gz" else None
        with self.path.open("rb") as file, pa.input_stream(file, kind) as stream:
            yield stream

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
            pa.csv.ConvertOptions(
                include_columns=list(dict.fromkeys(columns)),
                column_types=types,
                decimal_point=self.decimal,
            ),
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


def _delimiter(path: Path, decimal: str) -> str:
    """The delimiter that is most frequent in the first line that is not blank.

    Where there is none, since there is one column, it is not what the decimals begin with.
    """
    with readable(path), _text(path) as file:
        header = next((line for line in file if line.strip()), "")
    bare = re.sub(r'"[^"]*"', "", header)
    return max(sorted(DELIMITERS, key=decimal.count), key=bare.count)


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
