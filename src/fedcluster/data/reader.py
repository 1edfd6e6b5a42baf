"""A table's cells become finite numbers, or one line says which cell is none and what to do."""

from __future__ import annotations

import csv
import io
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from fedcluster.core import Data, Floats, Rows
from fedcluster.data.arrays import side_by_side
from fedcluster.data.tables import FileTable, InputError

__all__ = [
    "Columns",
    "Reader",
    "SiteTable",
    "choose",
    "counts_rows",
    "has_columns",
    "is_number",
    "kind_of",
    "missing_in",
    "numbered_groups",
]

MISSING = {"", "na", "n/a", "nan", "null", "none", "#n/a"}


def choose(columns: Sequence[str]) -> str:
    """The advice to choose columns, ready to be copied."""
    if not columns:
        return "there is no other column"
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(columns)
    return f"choose columns with --columns {shlex.quote(line.getvalue())}"


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column of a table plays which part.

    Parameters
    ----------
    values : tuple of str
        The d columns to cluster by.
    weight : str, optional
        The column with the rows' weights.
    group : str, optional
        The column that says whose row it is, where one person has many rows.
    label : str, optional
        The column with reference labels, for metrics that compare with them.
    """

    values: tuple[str, ...]
    weight: str | None = None
    group: str | None = None
    label: str | None = None

    @property
    def others(self) -> list[str]:
        """The columns besides the values."""
        return [name for name in (self.weight, self.group, self.label) if name is not None]

    @property
    def texts(self) -> list[str]:
        """The columns that are read as they are written."""
        return [name for name in (self.group, self.label) if name is not None]


@dataclass(frozen=True, slots=True, eq=False)
class SiteTable:
    """The rows of one site as they were read.

    Parameters
    ----------
    columns : tuple of str
        The names of the d columns.
    X : ndarray of shape (n, d), float32 or float64
        The rows; float32 where every column is float32 in the file.
    numbers : ndarray of shape (n,), int64
        The number of each row in its file, from 1.
    weights : ndarray of shape (n,), optional
        The rows' weights, where a column of weights was named.
    ignored : tuple of str
        The other columns of the file.
    """

    columns: tuple[str, ...]
    X: Rows
    numbers: NDArray[np.int64]
    weights: Floats | None = None
    ignored: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.X)

    @property
    def dtype(self) -> np.dtype[Any]:
        """What rows are read as."""
        return self.X.dtype


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one table; its complaints begin with the owner: a site, or a file of all sites.

    Parameters
    ----------
    owner : str
        How an error message begins.
    file : FileTable
        The table.
    advise : callable
        What to do where columns are no numbers, given those that are.
    """

    owner: str
    file: FileTable
    advise: Callable[[Sequence[str]], str] = choose

    def table(self, columns: Sequence[str], weight: Sequence[str] = ()) -> SiteTable:
        """Columns as finite numbers, and weights."""
        X, weights = self.rows(columns, weight)
        numbers = np.arange(1, len(X) + 1)
        ignored = tuple(name for name in self.file.names if name not in {*columns, *weight})
        return SiteTable(tuple(columns), X, numbers, weights, ignored)

    def data(self, columns: Columns) -> Data:
        """The rows with all that is known of them."""
        X, weights = self.rows(columns.values, [] if columns.weight is None else [columns.weight])
        labels = None if columns.label is None else self._written(columns.label)
        groups = None if columns.group is None else self.groups(columns.group)
        return Data(X, weights, labels, groups=groups)

    def rows(
        self, columns: Sequence[str], weight: Sequence[str] = ()
    ) -> tuple[Rows, Floats | None]:
        """The same without the rest: rows (n, d) and perhaps their weights (n,)."""
        wanted = [*columns, *weight]
        read = self._read(wanted)
        if not len(read[0]):
            raise InputError(
                f"{self.owner}: {self.file.path} has a header but no rows; "
                "add rows or leave the file out"
            )
        self._all_numeric(dict(zip(columns, read, strict=False)), mend=self.advise)
        self._all_numeric(dict(zip(weight, read[len(columns) :], strict=True)))
        arrays = [self._finite(*both) for both in zip(wanted, read, strict=True)]
        X = side_by_side(arrays[: len(columns)])
        return X, self._weights(weight[0], arrays[-1]) if weight else None

    def texts(self, column: str) -> NDArray[np.str_]:
        """A column as it is written, without blanks around; no value may be missing."""
        [read] = self._read([column], texts=[column])
        found = np.array([text.strip() if text else "" for text in read.to_pylist()])
        if not all(found):
            self._complain(column, int(np.argmin(found != "")), "the site's name is missing")
        return found

    def _written(self, column: str) -> NDArray[np.str_]:
        """A column as it is written; what is missing is empty."""
        [read] = self._read([column], texts=[column])
        return np.array([text or "" for text in read.to_pylist()], dtype=np.str_)

    def groups(self, column: str) -> NDArray[np.int64]:
        """Whose row each is, as a number that means nothing; two persons rarely share one.

        Persons who share one are counted as one, which no limit takes for more than they are.
        """
        [read] = self._read([column], texts=[column])
        texts = read.combine_chunks().fill_null("")
        nobody = pa.compute.equal(pa.compute.utf8_trim_whitespace(texts), "").to_numpy(False)
        if nobody.any():
            self._complain(column, int(nobody.argmax()), "it is not said whose row this is")
        return numbered_groups(texts)

    def check(self, columns: Iterable[str]) -> None:
        """Refuse a file that lacks a column."""
        has_columns(self.owner, self.file.names, columns)

    def _read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> list[pa.ChunkedArray]:
        self.check(columns)
        try:
            return self.file.read(columns, texts)
        except InputError as error:
            raise InputError(f"{self.owner}: {error}") from error

    def _all_numeric(
        self,
        columns: Mapping[str, pa.ChunkedArray],
        mend: Callable[[Sequence[str]], str] = lambda numeric: "mend it",
    ) -> None:
        """Refuse a column that is not numeric, naming its first value that is no number."""
        numeric = [name for name, column in columns.items() if _is_numeric(column)]
        for name, column in columns.items():
            if name not in numeric:
                measured = [n for n in numeric if not counts_rows(_as_floats(columns[n]))]
                cells = column.to_pylist()
                row = next(i for i, cell in enumerate(cells) if not _reads_as_number(cell))
                share = sum(map(_reads_as_number, cells)) / len(cells)
                self._complain(name, row, _not_a_number(cells[row], share, mend(measured)))

    def _finite(self, name: str, column: pa.ChunkedArray) -> NDArray[np.floating[Any]]:
        """A column as finite numbers, (n,)."""
        values = _as_floats(column)
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(values.sum()):
                return values
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            if np.isnan(values).all():
                raise InputError(
                    f"{self.owner}, column {name!r}: every value is missing; leave the column out"
                )
            what = "missing" if np.isnan(values[bad[0]]) else "infinite"
            more = f", as {len(bad) - 1} more of this column are" if len(bad) > 1 else ""
            self._complain(
                name, int(bad[0]), f"the value is {what}{more}; fill it in or drop the row"
            )
        return values

    def _weights(self, name: str, values: NDArray[np.floating[Any]]) -> Floats:
        if (values < 0).any():
            row = int(np.argmax(values < 0))
            self._complain(name, row, "the weight is negative; weights are at least 0")
        return values.astype(np.float64)

    def _complain(self, column: str, row: int, what: str) -> None:
        raise InputError(f"{self.owner}, column {column!r}, {self.file.where(row)}: {what}")


def _not_a_number(cell: object, share: float, mend: str) -> str:
    """What is wrong with a value, in a column of which this share are numbers."""
    if isinstance(cell, bytes):
        return f"the value is not UTF-8 text; {mend}"
    if not isinstance(cell, str):
        return f"the value, a {type(cell).__name__}, is not a number; {mend}"
    shown = repr(cell if len(cell) <= 24 else f"{cell[:20]}...")
    if re.fullmatch(r"\s*[-+]?\d[\d.]*,\d+\s*", cell):
        return f"{shown} has a decimal comma; save the file with decimal points"
    if share > 0.5:
        return f"{shown} is not a number, as most of this column are; mend it or {mend}"
    return f"{shown} is not a number; {mend}"


def _is_numeric(column: pa.ChunkedArray) -> bool:
    """Whether all values are numbers or missing, perhaps written as text."""
    kind = column.type
    if _is_text(kind):
        return all(_reads_as_number(cell) for cell in column.to_pylist())
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    )


def _as_floats(column: pa.ChunkedArray) -> NDArray[np.floating[Any]]:
    """A numeric column as floats, NaN where a value is missing; float32 stays what it is."""
    if _is_text(column.type):
        cells = column.to_pylist()
        return np.array([np.nan if _is_missing(cell) else float(cell) for cell in cells])
    if not pa.types.is_float32(column.type):
        column = column.cast(pa.float64(), safe=False)
    values: NDArray[np.floating[Any]] = column.to_numpy()
    return values


def kind_of(column: pa.ChunkedArray) -> str:
    """What a column holds: "number", "text", "date", "mixed", or "empty" without any value."""
    kind = column.type
    if missing_in(column) == len(column):
        return "empty"
    if pa.types.is_temporal(kind):
        return "date"
    if not _is_text(kind):
        return "number" if _is_numeric(column) else str(kind)
    numbers = [is_number(cell) for cell in column.to_pylist() if not _is_missing(cell)]
    return "number" if all(numbers) else "mixed" if any(numbers) else "text"


def missing_in(column: pa.ChunkedArray) -> int:
    """How many values are missing."""
    if _is_text(column.type):
        return sum(map(_is_missing, column.to_pylist()))
    return int(pa.compute.sum(pa.compute.is_null(column, nan_is_null=True)).as_py() or 0)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _reads_as_number(cell: object) -> bool:
    if isinstance(cell, str):
        return _is_missing(cell) or is_number(cell)
    return cell is None or isinstance(cell, float)


def _is_missing(cell: str | None) -> bool:
    return cell is None or cell.strip().lower() in MISSING


def has_columns(owner: str, names: Iterable[str], wanted: Iterable[str]) -> None:
    """Refuse a table that lacks a column."""
    for name in wanted:
        if name not in names:
            have = ", ".join(filter(None, names))
            raise InputError(f"{owner} has no column {name!r}; it has {have}")


def numbered_groups(names: Any) -> NDArray[np.int64]:
    """Names of persons as numbers that mean nothing, (n,): equal where the names are."""
    coded = pa.array(names).dictionary_encode()
    numbers = np.array([hash(name.strip()) for name in coded.dictionary.to_pylist()], np.int64)
    found: NDArray[np.int64] = numbers[coded.indices.to_numpy()]
    return found


def is_number(text: str) -> bool:
    """Whether a text is a number for Python."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def counts_rows(values: Rows) -> bool:
    """Whether values go up by one from row to row."""
    return len(values) > 2 and bool((np.diff(values) == 1).all())
