"""A table's cells become finite numbers, or one line says which cell is none and what to do."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats, Rows
from fedcluster.errors import InputError
from fedcluster.io._arrays import side_by_side
from fedcluster.io._decimals import complaint
from fedcluster.io._tables import FileTable
from fedcluster.io._values import (
    as_floats,
    counts_rows,
    is_missing,
    is_numeric,
    levels_of,
    mostly_numbers,
    numbered_groups,
    reads_as_number,
)


def named(*columns: str | None) -> list[str]:
    """Those columns that are named."""
    return [name for name in columns if name is not None]


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
    raw : bool, default=False
        Whether the rows are still to be prepared: text and missing values are allowed.
    coded : tuple of str
        Columns that may hold numbers and text, all of them codes.
    """

    values: tuple[str, ...]
    weight: str | None = None
    group: str | None = None
    label: str | None = None
    raw: bool = False
    coded: tuple[str, ...] = ()

    @property
    def others(self) -> list[str]:
        """The columns besides the values."""
        return named(self.weight, self.group, self.label)

    @property
    def texts(self) -> list[str]:
        """The columns that are read as they are written."""
        return named(self.group, self.label)


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
    kinds : tuple of Column, optional
        What the columns hold, where the rows are still to be prepared: text as codes, NaN where a
        value is missing.
    groups : ndarray of shape (n,), int64, optional
        Whose row each is, as numbers, where a column that says it was named.
    """

    columns: tuple[str, ...]
    X: Rows
    numbers: NDArray[np.int64]
    weights: Floats | None = None
    ignored: tuple[str, ...] = ()
    kinds: tuple[Column, ...] = ()
    groups: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.X)

    @property
    def dtype(self) -> np.dtype[Any]:
        """What rows are read as."""
        return self.X.dtype

    @property
    def data(self) -> Data:
        """The rows and all that is known of them."""
        return Data(self.X, self.weights, columns=self.kinds, groups=self.groups)

    def take(self, rows: NDArray[np.intp]) -> SiteTable:
        """Some of the rows, by their places."""
        weights = None if self.weights is None else self.weights[rows]
        groups = None if self.groups is None else self.groups[rows]
        return replace(
            self, X=self.X[rows], numbers=self.numbers[rows], weights=weights, groups=groups
        )


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

    def table(
        self, columns: Sequence[str], weight: Sequence[str] = (), group: str | None = None
    ) -> SiteTable:
        """Columns as finite numbers, weights, and whose the rows are."""
        X, weights = self.rows(columns, weight)
        numbers = np.arange(1, len(X) + 1)
        ignored = self._ignored([*columns, *weight, *named(group)])
        groups = None if group is None else self.groups(group)
        return SiteTable(tuple(columns), X, numbers, weights, ignored, groups=groups)

    def raw(
        self,
        columns: Sequence[str],
        weight: Sequence[str] = (),
        texts: Collection[str] = (),
        group: str | None = None,
    ) -> SiteTable:
        """Columns as they are, to be prepared: numbers and text, values may be missing.

        Parameters
        ----------
        columns : sequence of str
            Their names.
        weight : sequence of str
            The column of weights, if there is one.
        texts : collection of str
            Columns that may hold numbers and text, all of them names.
        group : str, optional
            The column that says whose row it is.
        """
        read = self._read([*columns, *weight])
        if not len(read[0]):
            self._no_rows()
        both = zip(columns, read, strict=False)
        found = [self._coded(name, column, name in texts) for name, column in both]
        weights = None
        if weight:
            self._all_numeric({weight[0]: read[-1]})
            weights = self._weights(weight[0], self._finite(weight[0], read[-1]))
        X = side_by_side([values for _, values in found])
        ignored = self._ignored([*columns, *weight, *named(group)])
        kinds, numbers = tuple(kind for kind, _ in found), np.arange(1, len(X) + 1)
        groups = None if group is None else self.groups(group)
        return SiteTable(tuple(columns), X, numbers, weights, ignored, kinds, groups)

    def _ignored(self, used: Collection[str]) -> tuple[str, ...]:
        return tuple(name for name in self.file.names if name not in used)

    def data(self, columns: Columns) -> Data:
        """The rows with all that is known of them."""
        weight = named(columns.weight)
        if columns.raw:
            read = self.raw(columns.values, weight, columns.coded)
            X, weights, kinds = read.X, read.weights, read.kinds
        else:
            X, weights = self.rows(columns.values, weight)
            kinds = tuple(map(Column, columns.values))
        labels = None if columns.label is None else self._written(columns.label)
        groups = None if columns.group is None else self.groups(columns.group)
        return Data(X, weights, labels, kinds, groups)

    def rows(
        self, columns: Sequence[str], weight: Sequence[str] = ()
    ) -> tuple[Rows, Floats | None]:
        """The same without the rest: rows (n, d) and perhaps their weights (n,)."""
        wanted = [*columns, *weight]
        read = self._read(wanted)
        if not len(read[0]):
            self._no_rows()
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

    def _no_rows(self) -> NoReturn:
        raise InputError(
            f"{self.owner}: {self.file.path} has a header but no rows; "
            "add rows or leave the file out"
        )

    def _coded(
        self, name: str, column: pa.ChunkedArray, may_be_both: bool
    ) -> tuple[Column, NDArray[np.floating[Any]]]:
        """What a column holds, and its values or the codes of its texts, (n,)."""
        if pa.types.is_temporal(column.type):
            return Column(name, "date"), np.full(len(column), np.nan)
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            if not is_numeric(column):
                self._all_numeric({name: column})
            values = as_floats(column)
            if np.isinf(values).any():
                self._complain(name, int(np.isinf(values).argmax()), "the value is infinite")
            return Column(name), values
        decimal = self.file.decimal
        if not may_be_both and is_numeric(column, decimal):
            return Column(name), as_floats(column, decimal)
        levels, codes = levels_of(column)
        if not may_be_both and mostly_numbers(levels, codes):
            self._all_numeric({name: column}, mend=lambda numeric: "leave the column out")
        return Column(name, "text", levels), codes

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
        decimal = self.file.decimal
        numeric = [name for name, column in columns.items() if is_numeric(column, decimal)]
        for name, column in columns.items():
            if name not in numeric:
                measured = [n for n in numeric if not counts_rows(as_floats(columns[n], decimal))]
                row, what = _no_number(column.to_pylist(), decimal, mend(measured))
                self._complain(name, row, what)

    def _finite(self, name: str, column: pa.ChunkedArray) -> NDArray[np.floating[Any]]:
        """A column as finite numbers, (n,)."""
        values = as_floats(column, self.file.decimal)
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


def _no_number(cells: Sequence[object], decimal: str | None, mend: str) -> tuple[int, str]:
    """Where the first value is that is no number, and what is wrong with it."""
    numbers = [reads_as_number(cell, decimal) for cell in cells]
    row = numbers.index(False)
    cell = cells[row]
    if isinstance(cell, bytes):
        return row, f"the value is not UTF-8 text; {mend}"
    if not isinstance(cell, str):
        return row, f"the value, a {type(cell).__name__}, is not a number; {mend}"
    there = [each for each in cells if isinstance(each, str) and not is_missing(each)]
    if what := complaint(cell, there, decimal):
        return row, what
    shown = repr(cell if len(cell) <= 24 else f"{cell[:20]}...")
    if sum(numbers) > len(cells) / 2:
        return row, f"{shown} is not a number, as most of this column are; mend it or {mend}"
    return row, f"{shown} is not a number; {mend}"


def has_columns(owner: str, names: Iterable[str], wanted: Iterable[str]) -> None:
    """Refuse a table that lacks a column."""
    for name in wanted:
        if name not in names:
            have = ", ".join(filter(None, names))
            raise InputError(f"{owner} has no column {name!r}; it has {have}")
