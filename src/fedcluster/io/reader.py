"""Tables with named columns, whose cells become numbers, or one line says which does not.

A format that holds a table needs only what `Table` asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats, Rows
from fedcluster.errors import InputError
from fedcluster.io.cells import (
    as_floats,
    at_codes,
    complaint,
    dates_in,
    days_of,
    is_numeric,
    is_text,
    levels_of,
    mostly_numbers,
    numbered_groups,
    reads_as_number,
)
from fedcluster.io.columns import AS_IN_MODEL, Meanings, choose, in_common_codes, is_missing
from fedcluster.io.recoding import Recoding, days_of_numbers, days_of_texts, is_date, numbers_of
from fedcluster.io.rows import FileFingerprint, side_by_side

NO_DATE = "this column is to hold dates: mend it or drop the row"
Advise = Callable[[Sequence[str]], str]
"""What to do where a column is no number, given those that are."""


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """The parts that columns of a table play.

    Parameters
    ----------
    values : tuple of str, optional
        The d columns to cluster by; by default all that play no other part.
    weight : str, optional
        The column with the rows' weights.
    group : str, optional
        The column that says whose row it is, where one person has many rows.
    label : str, optional
        The column with reference labels, for metrics that compare with them.
    site : str, optional
        The column with the sites' names, in one table of all sites.
    raw : bool, default=False
        Whether the rows are still to be prepared: text and missing values are allowed.
    coded : tuple of str
        Columns that may hold numbers and text, all of them codes.
    meanings : mapping of str to mapping of str to str
        By column, what all sites call each of the site's own codes.
    dates : mapping of str to str
        By column, what becomes of its dates, see `checked_how`; others are left out.
    excluded : tuple of str
        Columns that play no part.
    numeric : collection of str
        Columns that a model knows as numbers, or as dates by ``dates``; nothing else may be there.
    recoding : Recoding
        What values mean that are written otherwise.
    """

    values: tuple[str, ...] | None = None
    weight: str | None = None
    group: str | None = None
    label: str | None = None
    site: str | None = None
    raw: bool = False
    coded: tuple[str, ...] = ()
    meanings: Meanings = field(default_factory=dict)
    dates: Mapping[str, str] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()
    numeric: Collection[str] = ()
    recoding: Recoding = field(default_factory=Recoding)

    @classmethod
    def from_columns(
        cls, columns: ColumnRoles | Sequence[str] | None, names: Sequence[str] | None = None
    ) -> ColumnRoles:
        """Return the roles of columns; with a table's names, all others of them are values."""
        if not isinstance(columns, ColumnRoles):
            columns = cls(None if columns is None else tuple(columns))
        roles = columns
        if roles.values is not None or names is None:
            return roles
        played = {*roles.others, *roles.excluded}
        return replace(roles, values=tuple(name for name in names if name not in played))

    @property
    def chosen(self) -> tuple[str, ...]:
        """Return the columns to cluster by, which are known by now."""
        return self.values or ()

    @property
    def others(self) -> list[str]:
        """Return the columns besides the values."""
        parts = (self.site, self.weight, self.group, self.label)
        return [name for name in parts if name is not None]

    @property
    def beside(self) -> tuple[str, ...]:
        """Return which parts come with the values: "weight", "group", "label"."""
        return tuple(p for p in ("weight", "group", "label") if getattr(self, p) is not None)

    @property
    def texts(self) -> list[str]:
        """Return the columns that are read as they are written."""
        return [name for name in (self.site, self.group, self.label) if name is not None]


class Origin(Protocol):
    """Where rows come from: what messages about their cells need."""

    @property
    def path(self) -> Path:
        """Return what messages call it: the file."""

    @property
    def decimal(self) -> str | None:
        """Return what decimals begin with; None where numbers need not be written as text."""

    def where(self, row: int) -> str:
        """Return where a row, counted from 0, is found in it."""


class Table(Origin, Protocol):
    """Named columns, read some rows at a time: what a format of tables gives."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""

    @property
    def fingerprint(self) -> FileFingerprint | None:
        """Return the file as it was when it was opened; None of what is no file."""

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Read columns by name, about ``n_rows`` rows at a time, and keep none of them."""


@runtime_checkable
class WholeTable(Protocol):
    """A `Table` that is quicker, or knows more of its columns, when it is read at once."""

    def read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> TablePart:
        """Read columns by name, all rows; those among ``texts`` as they are written."""


@dataclass(frozen=True, slots=True)
class TablePart:
    """Some rows of a table that were read.

    Parameters
    ----------
    table : Origin
        Where they come from.
    start : int
        How many rows lie before them.
    rows : pyarrow.Table
        The rows.
    X : ndarray of shape (n, d), optional
        The columns to cluster by, but for those among ``rows``, which it only has room for.
    """

    table: Origin
    start: int
    rows: pa.Table
    X: Rows | None = None

    @property
    def n_rows(self) -> int:
        """Return how many rows there are."""
        return self.rows.num_rows if self.X is None else len(self.X)


@dataclass(frozen=True, slots=True)
class ArrowTable:
    """A table that is read at once, of a format that has no parts.

    Parameters
    ----------
    path : Path
        The file.
    rows : pyarrow.Table
        Its rows.
    header : int
        The lines of the file before the first row.
    decimal, fingerprint : None
        Numbers need not be written as text, and no later change of the file matters.
    """

    path: Path
    rows: pa.Table
    header: int = 0
    decimal: None = None
    fingerprint: None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(self.rows.column_names)

    def read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> TablePart:
        """Return columns by name."""
        return TablePart(self, 0, self.rows.select(list(dict.fromkeys(columns))))

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Return columns by name, ``n_rows`` rows at a time."""
        rows = self.read(columns).rows
        for start in range(0, len(rows), n_rows):
            yield TablePart(self, start, rows.slice(start, n_rows))

    def where(self, row: int) -> str:
        """Return where a row, counted from 0, is found in the file."""
        return f"row {row + 1} (line {self.header + row + 1} of {self.path.name})"


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads the cells of rows; its complaints begin with the owner: a site, or a file of all.

    Parameters
    ----------
    owner : str
        How an error message begins.
    part : TablePart
        The rows.
    advise : callable
        What to do where columns are no numbers, given those that are.
    """

    owner: str
    part: TablePart
    advise: Advise = choose

    def data(self, roles: ColumnRoles) -> Data:
        """Return the rows with all that is known of them.

        Values are finite numbers; of rows that are still to be prepared also the codes of texts,
        NaN where a value is missing. Where a label is missing, it is "".
        """
        if not self.part.n_rows:
            raise InputError(
                f"{self.owner}: {self.part.table.path} has a header but no rows; "
                "add rows or leave the file out"
            )
        columns, X = self._read(roles) if self.part.X is None else self._completed(roles)
        data = Data(
            X,
            None if roles.weight is None else self._weights(roles.weight),
            None if roles.label is None else self._written(roles.label),
            columns,
            None if roles.group is None else self.groups(roles.group),
        )
        return in_common_codes(data, roles.meanings, self.owner)

    def _read(self, roles: ColumnRoles) -> tuple[tuple[Column, ...], Rows]:
        """Return what the columns to cluster by hold, and their values side by side."""
        columns = {name: self.part.rows[name] for name in roles.chosen}
        if roles.raw:
            read = [self._coded(name, columns[name], roles) for name in roles.chosen]
        else:
            self._all_numeric(columns, mend=self._advise_for(roles))
            read = [(Column(name), self._finite(name, columns[name])) for name in roles.chosen]
        return tuple(column for column, _ in read), side_by_side([values for _, values in read])

    def _completed(self, roles: ColumnRoles) -> tuple[tuple[Column, ...], Rows]:
        """Return the same where columns of numbers lie side by side already."""
        X, rows, columns = self.part.X, self.part.rows, []
        assert X is not None
        for values, name in zip(X.T, roles.chosen, strict=True):
            if name in rows.column_names and roles.raw:
                column, read = self._coded(name, rows[name], roles)
            elif name in rows.column_names:
                self._all_numeric({name: rows[name]}, mend=self._advise_for(roles))
                column, read = Column(name), self._finite(name, rows[name])
            elif roles.raw:
                column, read = self._measured(name, values, roles)
            else:
                column, read = Column(name), values
            if read is not values:
                values[:] = read
            columns.append(column)
        return tuple(columns), X

    def unreadable(self, roles: ColumnRoles) -> dict[str, str]:
        """Return the columns that cannot be read, of rows to be prepared, with the complaints."""
        complaints = {}
        for name in roles.chosen:
            try:
                self._coded(name, self.part.rows[name], roles)
            except InputError as error:
                complaints[name] = str(error).removeprefix(f"{self.owner}, column {name!r}, ")
        return complaints

    def texts(self, column: str, lacking: str) -> NDArray[np.str_]:
        """Return a column as it is written, (n,); complain where a text is lacking."""
        texts = self._written(column)
        if not all(texts):
            self._complain(column, int(np.argmin(texts != "")), lacking)
        return texts

    def _written(self, column: str) -> NDArray[np.str_]:
        """Return a column as it is written, without blanks around; what is missing is empty."""
        texts = self.part.rows[column].cast(pa.string()).to_pylist()
        return np.array([text.strip() if text else "" for text in texts], dtype=np.str_)

    def groups(self, column: str) -> NDArray[np.int64]:
        """Return whose row each is, as a number that means nothing; two persons rarely share one.

        Persons who share one are counted as one, which no limit takes for more than they are.
        """
        texts = self.part.rows[column].cast(pa.string()).combine_chunks().fill_null("")
        nobody = pa.compute.equal(pa.compute.utf8_trim_whitespace(texts), "").to_numpy(False)
        if nobody.any():
            self._complain(column, int(nobody.argmax()), "it is not said whose row this is")
        return numbered_groups(texts)

    def _coded(
        self, name: str, column: pa.ChunkedArray, roles: ColumnRoles
    ) -> tuple[Column, NDArray[np.floating[Any]]]:
        """Return what a column holds, and its values or the codes of its texts, (n,)."""
        coded = roles.coded
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        if name in roles.numeric:
            return Column(name), self._known_numbers(name, column, roles)
        if pa.types.is_temporal(column.type):
            return self._dated(name, days_of(column), roles)
        if not is_text(column.type):
            return self._measured(name, self._not_infinite(name, column), roles)
        decimal = self.part.table.decimal
        if name not in coded and is_numeric(column, decimal):
            return self._measured(name, as_floats(column, decimal), roles)
        levels, codes = levels_of(column)
        if name not in coded and (days := days_of_texts(levels)) is not None:
            return self._dated(name, at_codes(days, codes), roles)
        if name not in coded and mostly_numbers(levels, codes):
            self._all_numeric({name: column}, mend=lambda _numeric: "leave the column out")
        return Column(name, "text", levels), codes

    def _known_numbers(
        self, name: str, column: pa.ChunkedArray, roles: ColumnRoles
    ) -> NDArray[np.floating[Any]]:
        """Return a column that a model knows as numbers, or the numbers that it made of dates."""
        decimal = self.part.table.decimal
        if name in roles.dates:
            days = dates_in(column, decimal)
            if days is None:
                self._no_date(name, column.to_pylist())
                days = np.full(len(column), np.nan)
            return numbers_of(days, roles.dates[name])
        return self._not_infinite(name, column, self._advise_for(roles))

    def _not_infinite(
        self, name: str, column: pa.ChunkedArray, mend: Advise = lambda _numeric: "mend it"
    ) -> NDArray[np.floating[Any]]:
        """Return a column of numbers, (n,), of which some may be missing."""
        self._all_numeric({name: column}, mend)
        values = as_floats(column, self.part.table.decimal)
        if np.isinf(values).any():
            self._complain(name, int(np.isinf(values).argmax()), "the value is infinite")
        return values

    def _no_date(self, name: str, cells: Sequence[object]) -> None:
        """Refuse a column that holds something else than the dates of a model."""
        there = [i for i, cell in enumerate(cells) if not is_missing(cell)]
        other = [i for i in there if not is_date(cells[i])]
        if there:
            row = next(iter(other), there[0])
            self._complain(name, row, f"{cells[row]!r} is no date; {NO_DATE}")

    def _measured(
        self, name: str, values: NDArray[np.floating[Any]], roles: ColumnRoles
    ) -> tuple[Column, NDArray[np.floating[Any]]]:
        """Return a column of numbers, or of dates where all of them are YYYYMMDD."""
        if name in roles.numeric and name not in roles.dates:
            return Column(name), values
        fewest = 1 if name in roles.numeric else 3
        days = None if name in roles.coded else days_of_numbers(values, fewest)
        if name in roles.numeric and days is None:
            self._no_date(name, values.tolist())
        if days is None:
            return Column(name), values
        return self._dated(name, days, roles)

    def _dated(
        self, name: str, days: Floats | None, roles: ColumnRoles
    ) -> tuple[Column, NDArray[np.floating[Any]]]:
        """Return a column of dates: without values, or the numbers that were asked for."""
        how = roles.dates.get(name)
        if how is None:
            return Column(name, "date"), np.full(self.part.n_rows, np.nan)
        if days is None:
            raise InputError(f"{self.owner}, column {name!r}: it holds times, and no dates")
        return Column(name), numbers_of(days, how)

    def _all_numeric(
        self,
        columns: Mapping[str, pa.ChunkedArray],
        mend: Advise = lambda _numeric: "mend it",
    ) -> None:
        """Refuse a column that is not numeric, naming its first value that is no number."""
        decimal = self.part.table.decimal
        numeric = [name for name, column in columns.items() if is_numeric(column, decimal)]
        for name, column in columns.items():
            if name not in numeric:
                measured = [n for n in numeric if not counts_rows(as_floats(columns[n], decimal))]
                row, what = _no_number(column.to_pylist(), decimal, mend(measured))
                self._complain(name, row, what)

    def _finite(self, name: str, column: pa.ChunkedArray) -> NDArray[np.floating[Any]]:
        """Return a column as finite numbers, (n,)."""
        values = as_floats(column, self.part.table.decimal)
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

    def _advise_for(self, roles: ColumnRoles) -> Advise:
        """Return what to do where a column is no number: of a model it cannot be left out."""
        return (lambda _numeric: AS_IN_MODEL) if roles.numeric else self.advise

    def _weights(self, name: str) -> Floats:
        column = self.part.rows[name]
        self._all_numeric({name: column})
        values = self._finite(name, column)
        if (values < 0).any():
            row = int(np.argmax(values < 0))
            self._complain(name, row, "the weight is negative; weights are at least 0")
        return values.astype(np.float64)

    def _complain(self, column: str, row: int, what: str) -> None:
        where = self.part.table.where(self.part.start + row)
        raise InputError(f"{self.owner}, column {column!r}, {where}: {what}")


def counts_rows(values: Rows) -> bool:
    """Return whether values go up by one from row to row."""
    return len(values) > 2 and bool((np.diff(values) == 1).all())


def _no_number(cells: Sequence[object], decimal: str | None, mend: str) -> tuple[int, str]:
    """Return where the first value is that is no number, and what is wrong with it."""
    numbers = [reads_as_number(cell, decimal) for cell in cells]
    row = numbers.index(False)
    cell = cells[row]
    if isinstance(cell, bytes):
        return row, f"the value is not UTF-8 text; save the file as UTF-8, or {mend}"
    if not isinstance(cell, str):
        return row, f"the value, a {type(cell).__name__}, is not a number; {mend}"
    there = [each for each in cells if isinstance(each, str) and not is_missing(each)]
    if what := complaint(cell, there, decimal):
        return row, what
    shown = repr(cell if len(cell) <= 24 else f"{cell[:20]}...")
    if sum(numbers) > len(cells) / 2:
        return row, f"{shown} is not a number, as most of this column are; mend it or {mend}"
    return row, f"{shown} is not a number; {mend}"
