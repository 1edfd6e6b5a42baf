"""Tables with named columns, and the reader that turns their cells into numbers.

Table formats implement the protocol `Table`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats, Rows
from fedcluster.errors import InputError, ReadingNote
from fedcluster.frames.cells import (
    as_floats,
    at_codes,
    complaint,
    dates_in,
    days_of,
    days_of_numbers,
    days_of_texts,
    has_short_years,
    in_digits,
    is_amount,
    is_date,
    is_long,
    is_number,
    is_numeric,
    is_text,
    latest_of,
    levels_of,
    mostly_numbers,
    numbered_groups,
    numbers_of,
    order_of,
    orders_of,
    reads_as_number,
)
from fedcluster.frames.columns import (
    AS_IN_MODEL,
    Meanings,
    choose,
    codes,
    columns_of,
    in_common_codes,
    is_missing,
    put,
    quoted,
    renamed,
    same_levels,
    with_levels,
)
from fedcluster.frames.rows import FileFingerprint, StreamedRows, check_finite, side_by_side
from fedcluster.lazy import LazyModule
from fedcluster.texts import setting

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = LazyModule("pyarrow", "compute")

NO_DATE = "this column is to hold dates: mend it or drop the row"
LEAVE_OUT = "leave the column out"
"""Advice for an unreadable column that was not chosen by name."""
SiteT = TypeVar("SiteT")
Read = TypeVar("Read")
Advise = Callable[[Sequence[str]], str]
"""Function that returns advice for a non-numeric column, given the numeric ones."""


@dataclass(frozen=True, slots=True)
class Recoding:
    """Changes to values as they are read, the same for all sources.

    Parameters
    ----------
    missing : tuple of str
        Numbers or texts that mark a missing value; with the name of a column before them, as in
        "bmi:0", only in that column.
    codes : mapping of str to mapping of str to str
        By column, the new names of some of its texts; the others stay.
    factors : mapping of str to mapping of str to (float, float)
        By site and column, the factor and the summand of a change of units.

    Examples
    --------
    >>> rows = Data(np.array([[18.0, 0.0], [-999.0, 1.0]]),
    ...             columns=(Column("sbp"), Column("sex", "text", ("F", "female"))))
    >>> recoding = Recoding(("-999",), {"sex": {"female": "F"}}, {"west": {"sbp": (7.5, 0.0)}})
    >>> recoded = recoding.apply(rows, "west")
    >>> recoded.X, recoded.columns[1].levels
    (array([[135.,   0.],
           [ nan,   0.]]), ('F',))
    """

    missing: tuple[str, ...] = ()
    codes: Meanings = field(default_factory=dict)
    factors: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)

    def _missing_of(self, name: str) -> tuple[str, ...]:
        """Return the values that mark a missing value in a column."""
        own = [each[len(name) + 1 :] for each in self.missing if each.startswith(f"{name}:")]
        return (*self.missing, *own)

    def without_missing(self, name: str, texts: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return a column without the text cells that mark a missing value.

        This precedes the decision between numbers and text, which such a cell must not influence.
        """
        if pa.types.is_dictionary(texts.type):
            texts = texts.cast(pa.string())
        if not self.missing or not is_text(texts.type):
            return texts
        written = pa.compute.utf8_trim_whitespace(texts)
        is_none = pa.compute.is_in(written, pa.array(self._missing_of(name), texts.type))
        return pa.compute.if_else(is_none, pa.scalar(None, texts.type), texts)

    def without(self, columns: Collection[str]) -> Recoding:
        """Return the recoding without the factors of columns that are not read."""
        factors = {
            site: {name: factor for name, factor in each.items() if name not in columns}
            for site, each in self.factors.items()
        }
        return replace(self, factors=factors)

    def apply(self, data: Data, site: str, *, gaps: bool = True, start: int = 1) -> Data:
        """Return the recoded rows of a site, the first of which has the number ``start``.

        Raises
        ------
        InputError
            If there is no column for a factor, or, without ``gaps``, if a value is missing.
        """
        factors = self.factors.get(site, {})
        if not (self.missing or self.codes or factors):
            return data
        columns = list(columns_of(data))
        names = [column.name for column in columns]
        if unknown := sorted(factors.keys() - names, key=list(factors).index):
            raise InputError(f"factors: site {site!r} has no column {unknown[0]!r} to multiply")
        X = data.X.copy()
        for j, column in enumerate(columns):
            missing = self._missing_of(column.name)
            if column.kind == "number" and (own := self._coded(data, j)) is not None:
                columns[j], X[:, j] = own
            elif column.kind == "number":
                numbers = [float(text) for text in missing if is_number(text)]
                X[np.isin(X[:, j], numbers), j] = np.nan
                factor, added = factors.get(column.name, (1.0, 0.0))
                X[:, j] = factor * X[:, j] + added
            elif column.kind == "text":
                meaning = {**self.codes.get(column.name, {}), **dict.fromkeys(missing)}
                if not meaning.keys().isdisjoint(column.levels):
                    meant = [meaning.get(level, level) for level in column.levels]
                    named = (level for level in meant if level is not None)
                    X[:, j], levels = renamed(X[:, j], meant, named)
                    columns[j] = Column(column.name, "text", levels)
        if not gaps:
            check_finite(X, names, f"site {site!r}", start)
        return replace(data, X=X, columns=tuple(columns) if data.columns else ())

    def in_chunks(self, rows: StreamedRows, site: str, *, gaps: bool) -> StreamedRows:
        """Return rows of a site that are recoded as they are read."""
        if not (self.missing or self.factors.get(site)):
            return rows

        def recoded() -> Iterator[Data]:
            start = 1
            for each in rows.read():
                yield self.apply(each, site, gaps=gaps, start=start)
                start += len(each)

        return replace(rows, read=recoded)

    def _coded(self, data: Data, j: int) -> tuple[Column, Floats] | None:
        """Return a numeric column as text if some of its numbers are codes; else None."""
        name = columns_of(data)[j].name
        if name not in self.codes:
            return None
        meaning = {**self.codes[name], **dict.fromkeys(self._missing_of(name))}
        own, code = codes(data, j)
        if self.codes[name].keys().isdisjoint(own):
            return None
        meant = [meaning.get(each, each) for each in own]
        values, levels = renamed(code, meant, (each for each in meant if each is not None))
        return Column(name, "text", levels), values


@dataclass(frozen=True, slots=True)
class ColumnRoles:
    """Roles of the columns of a table.

    Parameters
    ----------
    values : tuple of str, optional
        The d columns to cluster by; by default all without another role.
    weight : str, optional
        The column with the rows' weights.
    group : str, optional
        The column with the person of each row, if persons have several rows.
    label : str, optional
        The column with reference labels, for metrics that compare with them.
    site : str, optional
        The column with the sites' names, in one table of all sites.
    raw : bool, default=False
        Whether the rows are not prepared yet, so that text and missing values are allowed.
    coded : tuple of str
        Columns that may mix numbers and text, all of them codes.
    meanings : mapping of str to mapping of str to str
        By column, the common names of the site's own codes.
    dates : mapping of str to str
        By column, the number that a date becomes, see `checked_how`; other dates are left out.
    excluded : tuple of str
        Columns that are not used.
    numeric : collection of str
        Columns that are numeric in a model, or dates according to ``dates``; they must not hold
        anything else.
    recoding : Recoding
        Changes to values as they are read.
    named : tuple of str
        Further column names that options use.
    renamed : mapping of str to mapping of str to str
        By site ("" for all sites), the new names of columns.
    levels : mapping of str to sequence of str
        By column, the texts that a model knows.
    orders : dict of str to set of str
        By column, what comes first in the dates of the sites that were read: "dmy" or "mdy".
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
    named: tuple[str, ...] = ()
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    levels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    orders: dict[str, set[str]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_columns(
        cls, columns: ColumnRoles | Sequence[str] | None, names: Sequence[str] | None = None
    ) -> ColumnRoles:
        """Return the roles of columns; given a table's names, all other columns are values."""
        if not isinstance(columns, ColumnRoles):
            columns = cls(None if columns is None else tuple(columns))
        roles = columns
        if roles.values is not None or names is None:
            return roles
        played = {*roles.others, *roles.excluded}
        return replace(roles, values=tuple(name for name in names if name not in played))

    @property
    def said(self) -> tuple[str, ...]:
        """Return all names of used columns."""
        factors = [name for each in self.recoding.factors.values() for name in each]
        each = (self.values or (), self.others, self.coded, self.meanings, self.dates)
        more = (self.excluded, self.numeric, self.recoding.codes, factors, self.named)
        return tuple(dict.fromkeys(name for names in (*each, *more) for name in names))

    def in_names(self, names: Mapping[str, str]) -> ColumnRoles:
        """Return the roles with some columns renamed."""
        if not names:
            return self

        def of(name: str | None) -> str | None:
            return None if name is None else names.get(name, name)

        def of_each(given: Iterable[str]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(names.get(name, name) for name in given))

        def by(given: Mapping[str, Any]) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for name, value in given.items():
                own, of = names.get(name, name), f"column {names.get(name, name)!r}"
                if isinstance(value, Mapping):
                    for text, meant in value.items():
                        put(found.setdefault(own, {}), text, meant, "codes", f"{text!r} in {of}")
                else:
                    put(found, own, value, "an option", of)
            return found

        recoding = replace(
            self.recoding,
            codes=by(self.recoding.codes),
            factors={site: by(each) for site, each in self.recoding.factors.items()},
        )
        return replace(
            self,
            values=None if self.values is None else of_each(self.values),
            weight=of(self.weight),
            group=of(self.group),
            label=of(self.label),
            site=of(self.site),
            coded=of_each(self.coded),
            meanings=by(self.meanings),
            dates=by(self.dates),
            excluded=of_each(self.excluded),
            numeric=frozenset(of_each(self.numeric)),
            recoding=recoding,
            named=of_each(self.named),
            levels=by(self.levels),
        )

    def in_known_orders(self) -> ColumnRoles:
        """Return the roles with the orders of dates in which other sites write them all."""
        known = {name: each for name, [each, *more] in self.orders.items() if not more}
        dates = {
            name: how if order_of(how) or name not in known else f"{how}:{known[name]}"
            for name, how in self.dates.items()
        }
        return replace(self, dates=dates)

    @property
    def chosen(self) -> tuple[str, ...]:
        """The columns to cluster by, which must be known by now."""
        return self.values or ()

    @property
    def others(self) -> list[str]:
        """The columns other than values."""
        parts = (self.site, self.weight, self.group, self.label)
        return [name for name in parts if name is not None]

    @property
    def beside(self) -> tuple[str, ...]:
        """The parts that come with the values: "weight", "group", "label"."""
        return tuple(p for p in ("weight", "group", "label") if getattr(self, p) is not None)

    @property
    def texts(self) -> list[str]:
        """The columns that are read as text."""
        return [name for name in (self.site, self.group, self.label) if name is not None]


class OrderUnknown(InputError):
    """Error for dates of which nothing in their column shows whether the day comes first."""


def each_site(
    sites: Iterable[SiteT], roles: ColumnRoles, read: Callable[[SiteT, ColumnRoles], Read]
) -> list[Read]:
    """Read sites; dates that may begin with the day or the month are read as those of others."""
    found: list[Read | None] = []
    later: list[tuple[int, SiteT]] = []
    for i, site in enumerate(sites):
        try:
            found.append(read(site, roles))
        except OrderUnknown:
            found.append(None)
            later.append((i, site))
    for i, site in later:
        found[i] = read(site, roles.in_known_orders())
    return [each for each in found if each is not None]


class Origin(Protocol):
    """Origin of rows, for messages about their cells."""

    @property
    def path(self) -> Path:
        """The file, for messages."""

    @property
    def decimal(self) -> str | None:
        """The decimal sign; None for a source that stores numbers as such."""

    def where(self, row: int) -> str:
        """Return where a row, counted from 0, is in the source."""


class Table(Origin, Protocol):
    """Named columns, read some rows at a time; a table format returns it."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""

    @property
    def fingerprint(self) -> FileFingerprint | None:
        """The state of the file when it was opened; None if the source is not a file."""

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Read columns by name, about ``n_rows`` rows at a time, without keeping any."""


@runtime_checkable
class WholeTable(Protocol):
    """A `Table` that can also be read at once, faster or with better column types."""

    def read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> TablePart:
        """Read all rows of columns by name; those in ``texts`` are kept as text."""


@dataclass(frozen=True, slots=True)
class TablePart:
    """Rows of a table as they were read.

    Parameters
    ----------
    table : Origin
        The source of the rows.
    start : int
        The number of preceding rows.
    rows : pyarrow.Table
        The rows.
    X : ndarray of shape (n, d), optional
        The columns to cluster by; for those among ``rows``, it only reserves space.
    """

    table: Origin
    start: int
    rows: pa.Table
    X: Rows | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.rows.num_rows if self.X is None else len(self.X)


@dataclass(frozen=True, slots=True)
class BatchTable:
    """A table that yields its rows in Arrow batches, anew on each reading.

    Parameters
    ----------
    path : Path
        Its name in messages.
    names : tuple of str
        The names of the columns.
    batches : callable
        ``batches(columns, n_rows)`` yields columns by name, in batches of about so many rows.
    fingerprint : FileFingerprint, optional
        The state of its file when it was opened.
    """

    path: Path
    names: tuple[str, ...]
    batches: Callable[[Sequence[str], int], Iterator[pa.Table]] = field(repr=False)
    fingerprint: FileFingerprint | None = None
    decimal: None = None

    def read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> TablePart:
        """Read all rows of columns by name."""
        columns = list(dict.fromkeys(columns))
        every = list(self.batches(columns, (1 << 31) - 1)) or [
            pa.table({name: [] for name in columns})
        ]
        return TablePart(self, 0, pa.concat_tables(every, promote_options="permissive"))

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Read columns by name, about ``n_rows`` rows at a time, without keeping any."""
        start = 0
        for rows in self.batches(list(dict.fromkeys(columns)), n_rows):
            if rows.num_rows:
                yield TablePart(self, start, rows)
                start += rows.num_rows

    def where(self, row: int) -> str:
        """Return where a row, counted from 0, is in the source."""
        return f"row {row + 1} of {self.path.name}"


@dataclass(frozen=True, slots=True)
class ArrowTable:
    """A table that is read at once, for formats that cannot be read in parts.

    Parameters
    ----------
    path : Path
        The file.
    rows : pyarrow.Table
        Its rows.
    header : int
        The number of lines in the file before the first row.
    decimal, fingerprint : None
        None, because numbers are stored as such and later changes of the file do not matter.
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
        """Return where a row, counted from 0, is in the file."""
        return f"row {row + 1} (line {self.header + row + 1} of {self.path.name})"


@dataclass(frozen=True, slots=True)
class Reader:
    """Reader of the cells of some rows of a table, as numbers and codes.

    Parameters
    ----------
    owner : str
        The beginning of an error message: a site, or a file of all sites.
    part : TablePart
        The rows.
    roles : ColumnRoles
        The columns to read.
    advise : callable
        Returns advice for non-numeric columns, given the numeric ones.
    """

    owner: str
    part: TablePart
    roles: ColumnRoles = field(default_factory=ColumnRoles)
    advise: Advise = choose

    def data(self) -> Data:
        """Return the rows with weights, labels, groups and columns.

        Values are finite numbers or, in rows that are to be prepared, also codes of texts and NaN
        for missing values. A missing label is "".
        """
        roles = self.roles
        if not self.part.n_rows:
            raise InputError(
                f"{self.owner}: {self.part.table.path} has a header but no rows; "
                "add rows or leave the file out"
            )
        columns, X = self._values()
        data = Data(
            X,
            None if roles.weight is None else self._weights(roles.weight),
            None if roles.label is None else self._written(roles.label),
            columns,
            None if roles.group is None else self.groups(roles.group),
        )
        data = in_common_codes(data, roles.meanings, self.owner)
        meanings = {
            j: same_levels(roles.levels.get(column.name, ()), column.levels)
            for j, column in enumerate(data.columns if roles.levels else ())
        }
        return with_levels(data, meanings, self.owner)

    def _values(self) -> tuple[tuple[Column, ...], Rows]:
        """Return the columns to cluster by, and their values side by side, (n, d)."""
        X, rows, names = self.part.X, self.part.rows, self.roles.chosen
        apart = set(rows.column_names)
        cells: dict[str, Any] = {
            name: rows[name] if X is None or name in apart else X[:, j]
            for j, name in enumerate(names)
        }
        if not self.roles.raw:
            self._all_numeric(cells)
        columns, values = zip(
            *(self._read(name, each) for name, each in cells.items()), strict=True
        )
        if X is None:
            return columns, side_by_side(values)
        for j, (own, read) in enumerate(zip(cells.values(), values, strict=True)):
            if read is not own:
                X[:, j] = read
        return columns, X

    def _read(
        self, name: str, cells: pa.ChunkedArray | Floats
    ) -> tuple[Column, NDArray[np.floating[Any]]]:
        """Return a column, and its values or the codes of its texts, (n,)."""
        if not self.roles.raw:
            is_read = isinstance(cells, np.ndarray)
            return Column(name), cells if is_read else self._finite(name, cells)
        if isinstance(cells, np.ndarray):
            return self._measured(name, cells)
        roles, decimal = self.roles, self.decimal
        is_coded = name in roles.coded or pa.types.is_dictionary(cells.type)
        cells = roles.recoding.without_missing(name, cells)
        if name in roles.numeric:
            return Column(name), self._known_numbers(name, cells)
        if pa.types.is_temporal(cells.type):
            return self._dated(name, days_of(cells))
        if not is_text((cells := in_digits(cells)).type):
            return self._measured(name, self._not_infinite(name, cells))
        if not is_coded and is_numeric(cells, decimal):
            return self._measured(name, as_floats(cells, decimal))
        levels, codes = levels_of(cells)
        if not is_coded and (days := self._days_of(name, levels)) is not None:
            return self._dated(name, at_codes(days, codes))
        if not is_coded and mostly_numbers(levels, codes):
            self._all_numeric({name: cells}, LEAVE_OUT)
        return Column(name, "text", levels), codes

    @property
    def decimal(self) -> str | None:
        """The decimal sign of the table."""
        return self.part.table.decimal

    def unreadable(self) -> dict[str, str]:
        """Return the columns of rows to be prepared that cannot be read, with the messages."""
        complaints = {}
        for name in self.roles.chosen:
            try:
                self._read(name, self.part.rows[name])
            except InputError as error:
                complaints[name] = str(error).removeprefix(f"{self.owner}, column {name!r}, ")
        return complaints

    def texts(self, column: str, lacking: str) -> NDArray[np.str_]:
        """Return a column as text, (n,); raise an error if a text is missing."""
        texts = self._written(column)
        if not all(texts):
            self._complain(column, int(np.argmin(texts != "")), lacking)
        return texts

    def _written(self, column: str) -> NDArray[np.str_]:
        """Return a column as text, stripped of blanks; missing values become empty."""
        texts = self.part.rows[column].cast(pa.string()).to_pylist()
        return np.array([text.strip() if text else "" for text in texts], dtype=np.str_)

    def groups(self, column: str) -> NDArray[np.int64]:
        """Return a hash of the person of each row, (n,); collisions are rare.

        Persons with the same hash count as one, so that limits never count too many.
        """
        texts = self.part.rows[column].cast(pa.string()).combine_chunks().fill_null("")
        nobody = pa.compute.equal(pa.compute.utf8_trim_whitespace(texts), "").to_numpy(False)
        if nobody.any():
            self._complain(column, int(nobody.argmax()), "it is not said whose row this is")
        return numbered_groups(texts)

    def _known_numbers(self, name: str, column: pa.ChunkedArray) -> NDArray[np.floating[Any]]:
        """Return a column that a model has as numbers, directly or converted from dates."""
        if name not in self.roles.dates:
            return self._not_infinite(name, column, AS_IN_MODEL)
        days = dates_in(column, self.part.table.decimal, partial(self._days_of, name))
        if days is None:
            self._no_date(name, column.to_pylist())
            days = np.full(len(column), np.nan)
        return self._dated(name, days)[1]

    def _days_of(self, name: str, texts: Sequence[str]) -> Floats | None:
        """Return texts as days since 1970, and say what is assumed of them where that counts."""
        how = self.roles.dates.get(name)
        if how is None:
            return days_of_texts(texts)
        latest, order, where = latest_of(how), order_of(how), f"{self.owner}, column {name!r}"
        days, dotted = days_of_texts(texts, order, latest), all("." in text for text in texts)
        orders = () if days is None else orders_of(texts)
        if len(orders) == 1 and not dotted:
            self.roles.orders.setdefault(name, set()).update(orders)
        if len(orders) == 2 and not order and not dotted:
            raise OrderUnknown(
                f"{where}: {texts[0]!r} and all others may begin with the day or with the month; "
                f"write {how}:dmy or {how}:mdy for the fit, or dates as 2021-12-31"
            )
        if len(orders) == 2:
            first = {"": "day", "dmy": "day", "mdy": "month"}[order]
            said = f"{where}: {texts[0]!r} is read with the {first} first"
            warnings.warn(said, ReadingNote, stacklevel=2)
        if days is not None and not how.startswith("month") and has_short_years(texts):
            said = f"{where}: years of two digits are read as {latest.year - 99} to {latest.year}"
            warnings.warn(said, ReadingNote, stacklevel=2)
        return days

    def _not_infinite(
        self, name: str, column: pa.ChunkedArray, mend: str = "mend it"
    ) -> NDArray[np.floating[Any]]:
        """Return a numeric column, (n,), that may have missing but no infinite values."""
        self._all_numeric({name: column}, mend)
        values = as_floats(column, self.part.table.decimal)
        if np.isinf(values).any():
            self._complain(name, int(np.isinf(values).argmax()), "the value is infinite")
        return values

    def _no_date(self, name: str, cells: Sequence[object]) -> None:
        """Raise an error for a column that does not hold the dates that a model expects."""
        there = [i for i, cell in enumerate(cells) if not is_missing(cell)]
        if there:
            row = next((i for i in there if not is_date(cells[i])), there[0])
            self._complain(name, row, f"{cells[row]!r} is no date; {NO_DATE}")

    def _measured(
        self, name: str, values: NDArray[np.floating[Any]]
    ) -> tuple[Column, NDArray[np.floating[Any]]]:
        """Return a numeric column, or a column of dates if all values are YYYYMMDD."""
        is_known = name in self.roles.numeric
        if is_known and name not in self.roles.dates:
            return Column(name), values
        is_coded = name in self.roles.coded
        days = None if is_coded else days_of_numbers(values, 1 if is_known else 3)
        if days is not None:
            return self._dated(name, days)
        if is_known:
            self._no_date(name, values.tolist())
        return Column(name), values

    def _dated(self, name: str, days: Floats | None) -> tuple[Column, NDArray[np.floating[Any]]]:
        """Return a column of dates: as numbers if its role says how, otherwise without values."""
        how = self.roles.dates.get(name)
        if how is None:
            return Column(name, "date"), np.full(self.part.n_rows, np.nan)
        known = np.zeros(0) if days is None else days[~np.isnan(days)]
        are_times = len(known) > 0 and bool((np.floor(known) == 0).all())
        is_hour = how.startswith("hour")
        if days is None:
            raise InputError(f"{self.owner}, column {name!r}: it holds durations, and no dates")
        if are_times and not is_hour:
            raise InputError(
                f"{self.owner}, column {name!r}: it holds times, and no dates; say "
                f"{setting('dates', name, to='hour')}"
            )
        if is_hour and len(known) and (known == np.floor(known)).all():
            raise InputError(f"{self.owner}, column {name!r}: it holds dates without times")
        return Column(name), numbers_of(days, how)

    def _all_numeric(self, columns: Mapping[str, Any], mend: str | None = None) -> None:
        """Raise an error for a non-numeric column, naming its first value that is not a number.

        By default, the advice is to choose the numeric columns.
        """
        decimal = self.part.table.decimal
        numeric = {
            name: column
            for name, column in columns.items()
            if isinstance(column, np.ndarray) or is_numeric(column, decimal)
        }
        for name, column in columns.items():
            if name in numeric:
                continue
            if mend is None:
                floats = {
                    n: each if isinstance(each, np.ndarray) else as_floats(each, decimal)
                    for n, each in numeric.items()
                }
                measured = [n for n, values in floats.items() if not counts_rows(values)]
                mend = AS_IN_MODEL if self.roles.numeric else self.advise(measured)
            row, what = _no_number(name, column.to_pylist(), decimal, mend)
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

    def _weights(self, name: str) -> Floats:
        column = self.part.rows[name]
        self._all_numeric({name: column}, "mend it")
        values = self._finite(name, column)
        if (values < 0).any():
            row = int(np.argmax(values < 0))
            self._complain(name, row, "the weight is negative; weights are at least 0")
        return values.astype(np.float64)

    def _complain(self, column: str, row: int, what: str) -> None:
        where = self.part.table.where(self.part.start + row)
        raise InputError(f"{self.owner}, column {column!r}, {where}: {what}")


TOTALS = {
    "total", "totals", "sum", "summe", "gesamt", "insgesamt", "subtotal", "grand total", "average",
    "mean", "mittelwert", "moyenne", "somme", "suma", "totale",
}  # fmt: skip
"""Names of the last row of a table that mark it as a total."""


def check_no_total(owner: str, data: Data) -> None:
    """Raise an error for a last row that seems to be the total of the others."""
    for j, column in enumerate(data.columns if len(data) > 1 else ()):
        if column.kind == "text" and column.levels:
            code = data.X[-1, j]
            word = "" if np.isnan(code) else column.levels[int(code)]
            is_named = word.strip(" :").casefold() in TOTALS and not (data.X[:-1, j] == code).any()
            if is_named and _is_total(data):
                raise InputError(
                    f"{owner}, column {column.name!r}: the last row, {word!r}, is the total of the "
                    "others; delete it"
                )
    if _is_sum(data):
        raise InputError(f"{owner}: the last row is the sum of all others; delete it")


def _is_total(data: Data) -> bool:
    """Return whether the last row is the sum or the mean of the others in a numeric column."""
    place = [j for j, column in enumerate(data.columns) if column.kind == "number"]
    rest, last = data.X[:-1, place], data.X[-1, place]
    near = [np.isclose(f(rest, axis=0), last, rtol=0.02) for f in (np.nansum, np.nanmean)]
    return bool(np.any(near))


def _is_sum(data: Data) -> bool:
    """Return whether the last row is that of a total without a name.

    In two columns or more, and in all of numbers that it has, it is the sum of the others, beyond
    each of these.
    """
    place = [j for j, column in enumerate(data.columns) if column.kind == "number"]
    place = [j for j in place if len(data) > 5 and not np.isnan(data.X[-1, j])]
    for j in place:  # one by one: most tables are told by the first, and none is copied
        rest, last = data.X[:-1, j].astype(np.float64), float(data.X[-1, j])
        is_beyond = not (np.abs(rest) >= abs(last)).any()
        if not (is_beyond and np.isclose(np.nansum(rest), last, rtol=1e-6, atol=0)):
            return False
    return len(place) > 1


def counts_rows(values: Rows) -> bool:
    """Return whether values increase by one from row to row."""
    return len(values) > 2 and bool((np.diff(values) == 1).all())


def _no_number(
    name: str,
    cells: Sequence[object],
    decimal: str | None,
    mend: str,
    *,
    few_words: int = 3,
    few_names: int = 20,
) -> tuple[int, str]:
    """Return the row of the first value that is not a number, and the message about it.

    ``few_words``: largest number of distinct words among a column's numbers that are all named.
    ``few_names``: of words and numbers that may be names.
    """
    numbers = [reads_as_number(cell, decimal) for cell in cells]
    row = numbers.index(False)
    cell = cells[row]
    if isinstance(cell, bytes) and decimal is None:
        return (
            row,
            f"the value is of a type that is no number; cast it to numeric, or {mend}",
        )
    if isinstance(cell, bytes):
        return row, f"the value is not UTF-8 text; save the file as UTF-8, or {mend}"
    if not isinstance(cell, str):
        return row, f"the value, a {type(cell).__name__}, is not a number; {mend}"
    there = [each for each in cells if isinstance(each, str) and not is_missing(each)]
    if is_long(cell):
        return row, f"{cell.strip()!r} has more digits than a number holds; {mend}"
    if what := complaint(cell, there, decimal):
        return row, what
    if is_amount(cell):
        alone = "write the numbers alone, without symbols, units and signs of thousands"
        named = f", or say --categories auto,{quoted(name)} where all are names"
        # texts that are all different are no category
        named = named if len(set(there)) < len(there) else ""
        return row, f"{cell.strip()!r} is more than a number; {alone}{named}"
    shown = repr(cell if len(cell) <= 24 else f"{cell[:20]}...")
    if sum(numbers) > len(cells) / 2:
        n_bad = len(numbers) - sum(numbers)
        words = sorted({str(c).strip() for c, n in zip(cells, numbers, strict=True) if not n})
        if mend == LEAVE_OUT and len(words) <= few_words and "," not in "".join(words):
            mend += f", or say {setting('missing_values', to=words)} where no value is meant"
            if len({str(cell).strip() for cell in cells}) <= few_names:
                mend += f", --categories auto,{quoted(name)} where all are names"
        many = f" (nor are {n_bad - 1:,} more of its {len(cells):,} values)" if n_bad > 1 else ""
        mend = mend if mend.startswith("mend it") else f"mend it or {mend}"
        return row, f"{shown} is not a number, as most of this column are{many}; {mend}"
    return row, f"{shown} is not a number; {mend}"
