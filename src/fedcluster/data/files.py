"""The rows of several sites from their files: columns by name, every value a finite number."""

from __future__ import annotations

import csv
import io
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedcluster.core import Floats, Rows
from fedcluster.data.arrays import side_by_side
from fedcluster.data.tables import FileTable, InputError, open_table

__all__ = [
    "InputError",
    "Reader",
    "SiteTable",
    "Source",
    "column_list",
    "common_columns",
    "read_columns",
    "read_one_file",
    "read_sites",
    "sources",
]

MISSING = {"", "na", "n/a", "nan", "null", "none", "#n/a"}
EXTENSIONS = re.compile(r"\.(csv|tsv|parquet|pq)(\.gz)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """A site's name and its file."""

    site: str
    path: Path


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


def sources(arguments: Iterable[str]) -> list[Source]:
    """Name the sites of files: ``path`` after the file's stem, ``name=path`` as it says.

    Returns
    -------
    list of Source
        In the order of the names.

    Raises
    ------
    InputError
        If two sites have one name.

    Examples
    --------
    >>> [source.site for source in sources(["data/south.csv", "Upper North=data/n1.parquet"])]
    ['Upper North', 'south']
    """
    found: dict[str, Source] = {}
    for source in map(_source, arguments):
        if source.site in found:
            raise InputError(
                f"two sites are called {source.site!r} ({found[source.site].path} and "
                f"{source.path}); give one of them another name, as in "
                f"{shlex.quote(f'{source.site}-2={source.path}')}"
            )
        found[source.site] = source
    return [found[site] for site in sorted(found)]


def _source(argument: str) -> Source:
    name, equals, path = argument.partition("=")
    if equals and not Path(argument).exists():
        if not name.strip() or not path:
            raise InputError(f"{argument!r} must be FILE or NAME=FILE")
        return Source(name.strip(), Path(path))
    return Source(EXTENSIONS.sub("", Path(argument).name) or argument, Path(argument))


def column_list(text: str | None) -> list[str] | None:
    """Split ``a,b,c`` into names; one that holds a comma stands in double quotes.

    Examples
    --------
    >>> column_list('age, "height, cm"')
    ['age', 'height, cm']
    """
    if text is None:
        return None
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or "" in names:
        raise InputError(f"--columns {text!r} has an empty name; write --columns a,b,c")
    if twice := _twice(names):
        raise InputError(f"--columns names {twice!r} twice")
    return names


def read_sites(
    given: Sequence[Source],
    columns: Sequence[str] | None = None,
    weight_column: str | None = None,
    watch: Callable[[Source], None] = lambda source: None,
) -> dict[str, SiteTable]:
    """Read one file for each site.

    Parameters
    ----------
    given : sequence of Source
        The files.
    columns : sequence of str, optional
        The columns to read, in this order; by default all, which must then be the same at every
        site, in the order of the first site.
    weight_column : str, optional
        The column with the rows' weights.
    watch : callable taking a Source, optional
        Told of each file before it is read.

    Returns
    -------
    dict of str to SiteTable
        By the sites' names.

    Raises
    ------
    InputError
        With site, column, row and what to do.
    """
    files = {source.site: _open(source) for source in given}
    weight = [] if weight_column is None else [weight_column]
    chosen = columns
    if chosen is None:
        chosen = common_columns({site: _without(file, weight) for site, file in files.items()})
    tables = {}
    for source in given:
        watch(source)
        reader = Reader(f"site {source.site!r}", files[source.site])
        tables[source.site] = reader.table(chosen, weight)
    if columns is None:
        _warn_of_row_numbers(tables)
    return _weighing_something(tables, weight_column)


def read_one_file(
    source: Source,
    site_column: str,
    columns: Sequence[str] | None = None,
    weight_column: str | None = None,
) -> dict[str, SiteTable]:
    """Read one file with the rows of all sites, whose names stand in ``site_column``.

    Returns
    -------
    dict of str to SiteTable
        By the sites' names.
    """
    file = _open(source)
    weight = [] if weight_column is None else [weight_column]
    chosen = columns
    if chosen is None:
        chosen = common_columns({source.site: _without(file, [site_column, *weight])})
    reader = Reader(str(source.path), file)
    names = reader.texts(site_column)
    whole = reader.table(chosen, weight)
    if columns is None:
        _warn_of_row_numbers({source.site: whole})
    tables = {}
    for site in sorted(set(names.tolist())):
        mine = np.flatnonzero(names == site)
        weights = None if whole.weights is None else whole.weights[mine]
        tables[site] = SiteTable(whole.columns, whole.X[mine], mine + 1, weights)
    return _weighing_something(tables, weight_column)


def read_columns(source: Source, columns: Sequence[str]) -> SiteTable:
    """Read the named columns of one file; the others are ignored."""
    return Reader(f"site {source.site!r}", _open(source)).table(columns)


def _open(source: Source) -> FileTable:
    """Open a site's file and see that its columns have names of their own."""
    try:
        file = open_table(source.path)
    except InputError as error:
        raise InputError(f"site {source.site!r}: {error}") from error
    if twice := _twice(name for name in file.names if name):
        raise InputError(
            f"site {source.site!r}, column {twice!r}: {source.path} has two columns of this name; "
            "rename one of them"
        )
    if _looks_like_rows(file.names):
        raise InputError(
            f"site {source.site!r}: the first line of {source.path} holds numbers; "
            "put a line with the columns' names above it"
        )
    return file


def _twice(names: Iterable[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _looks_like_rows(names: Sequence[str]) -> bool:
    """Whether what should be names are values: all numbers, and not 0, 1, 2, ..."""
    counted = [[str(i) for i in range(start, start + len(names))] for start in (0, 1)]
    return bool(names) and list(names) not in counted and all(map(_is_number, names))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _without(file: FileTable, reserved: Sequence[str]) -> list[str]:
    return [name for name in file.names if name not in reserved]


def common_columns(names: Mapping[str, Sequence[str]]) -> list[str]:
    """The columns of all sites, which must be the same, in the order of the first."""
    first, *others = names
    common = [name for name in names[first] if all(name in names[site] for site in others)]
    for site in others:
        for here, there in ((site, first), (first, site)):
            for name in names[there]:
                if name not in names[here]:
                    raise InputError(
                        f"site {here!r} has no column {name!r}, which site {there!r} has; "
                        + (_choose(common) if common else "the sites have no column in common")
                    )
    if not common:
        raise InputError(f"site {first!r}: there is no column to cluster by")
    if unnamed := [name for name in common if _is_index(name)]:
        what = f"column {unnamed[0]!r} is an index" if unnamed[0] else "a column has no name"
        advice = _choose([name for name in common if not _is_index(name)])
        raise InputError(f"site {first!r}: {what}; {advice}")
    return common


def _is_index(name: str) -> bool:
    """Whether a column is the index of a data frame, as pandas writes it."""
    return not name or re.fullmatch(r"__index_level_\d+__", name) is not None


def _weighing_something(
    tables: dict[str, SiteTable], weight_column: str | None
) -> dict[str, SiteTable]:
    """The tables, unless all rows of one weigh nothing."""
    for site, table in tables.items():
        if table.weights is not None and not table.weights.any():
            raise InputError(
                f"site {site!r}, column {weight_column!r}: every weight is 0; "
                "leave the site out or weigh some row"
            )
    return tables


def _warn_of_row_numbers(tables: Mapping[str, SiteTable]) -> None:
    """Warn of columns that were not chosen and look like mere numbers of the rows."""
    columns = next(iter(tables.values())).columns
    counts = [
        name
        for j, name in enumerate(columns)
        if any(_counts_rows(table.X[:, j]) for table in tables.values())
    ]
    if 0 < len(counts) < len(columns):
        some = ", ".join(map(repr, counts))
        warnings.warn(
            f"clustered by {some} too, which only counts the rows; "
            + _choose([name for name in columns if name not in counts]),
            stacklevel=3,
        )


def _counts_rows(values: Rows) -> bool:
    """Whether values go up by one from row to row."""
    return len(values) > 2 and bool((np.diff(values) == 1).all())


def _choose(columns: Sequence[str]) -> str:
    """The advice to choose columns, ready to be copied."""
    if not columns:
        return "there is no other column"
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(columns)
    return f"choose columns with --columns {shlex.quote(line.getvalue())}"


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one file; its complaints begin with the owner: a site, or a file of all sites."""

    owner: str
    file: FileTable

    def table(self, columns: Sequence[str], weight: Sequence[str] = ()) -> SiteTable:
        """Columns as finite numbers, and weights."""
        X, weights = self.rows(columns, weight)
        numbers = np.arange(1, len(X) + 1)
        ignored = tuple(name for name in self.file.names if name not in {*columns, *weight})
        return SiteTable(tuple(columns), X, numbers, weights, ignored)

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
        self._all_numeric(dict(zip(columns, read, strict=False)), mend=_choose)
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

    def check(self, columns: Iterable[str]) -> None:
        """Refuse a file that lacks a column."""
        for name in columns:
            if name not in self.file.names:
                have = ", ".join(filter(None, self.file.names))
                raise InputError(f"{self.owner} has no column {name!r}; it has {have}")

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
                measured = [n for n in numeric if not _counts_rows(_as_floats(columns[n]))]
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
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
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
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        cells = column.to_pylist()
        return np.array([np.nan if _is_missing(cell) else float(cell) for cell in cells])
    if not pa.types.is_float32(column.type):
        column = column.cast(pa.float64(), safe=False)
    values: NDArray[np.floating[Any]] = column.to_numpy()
    return values


def _reads_as_number(cell: object) -> bool:
    if isinstance(cell, str):
        return _is_missing(cell) or _is_number(cell)
    return cell is None or isinstance(cell, float)


def _is_missing(cell: str | None) -> bool:
    return cell is None or cell.strip().lower() in MISSING
