"""Sources of rows: a file of any format, a folder, or a database.

`FORMATS` is the only list of formats. To add a format, write a function that opens a path and
returns a `Table` or a `Matrix`, and add it to that list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedcluster.core import Data
from fedcluster.errors import InputError
from fedcluster.frames.cells import COMMA, NAMES, POINT, has_padding, is_number, is_text
from fedcluster.frames.columns import (
    choose,
    first_twice,
    has_columns,
    is_index,
    note_names,
    other_columns,
    own_names,
)
from fedcluster.frames.reader import (
    Advise,
    ArrowTable,
    ColumnRoles,
    OrderUnknown,
    Reader,
    Table,
    WholeTable,
)
from fedcluster.frames.rows import (
    FILE_OPTIONS,
    FileSource,
    Source,
    StreamedRows,
    WarehouseSource,
    error_prefix,
    patiently,
    readable,
)
from fedcluster_app.tables._files import (
    READERS,
    CsvFile,
    open_duckdb,
    open_excel,
    open_sqlite,
    open_statistics,
    said_of,
    values_in,
)
from fedcluster_app.tables.matrices import (
    Matrix,
    matrix_rows,
    open_h5ad,
    open_npy,
    open_npz,
    sparse_matrix,
)
from fedcluster_app.tables.table_rows import (
    ParquetFile,
    QuerySnapshot,
    cached_rows,
    has_partitions,
    listed_parquet,
    open_dataset,
    parquet_files,
    parquet_rows,
)

TITLES = {"cp1252": "Windows-1252", "latin-1": "Latin-1", "utf-16": "UTF-16"}
"""Names of unusual encodings."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format of files.

    Parameters
    ----------
    title : str
        Its name in messages.
    open : callable
        ``open(path, **options)`` returns a `Table` or a `Matrix`.
    options : tuple of str
        The fields of `FileSource` that it accepts.
    """

    title: str
    open: Callable[..., Any]
    options: tuple[str, ...] = ()


def _open_parquet(path: Path, where: str | None = None) -> Table:
    """Open a Parquet file, or as one data set a folder with partitions or some rows of files."""
    if where is not None or has_partitions(path):
        return open_dataset(FileSource(path, where=where))
    return ParquetFile.open(path)


CSV = Format("CSV", CsvFile.open, ("decimal", "encoding", "skip", "names"))
EXCEL = Format("Excel", open_excel, ("sheet", "skip", "names"))
PARQUET = Format("Parquet", _open_parquet, ("where",))
DATABASE = ("table", "where", "order")
FORMATS: dict[str, Format] = {
    ".csv": CSV,
    ".csv.gz": CSV,
    ".tsv": CSV,
    ".tsv.gz": CSV,
    ".parquet": PARQUET,
    ".pq": PARQUET,
    ".xlsx": EXCEL,
    ".npy": Format(".npy", open_npy, ("names",)),
    ".npz": Format(".npz", open_npz, ("names",)),
    ".h5ad": Format(".h5ad", open_h5ad, ("matrix",)),
    **dict.fromkeys((".sqlite", ".sqlite3", ".db"), Format("SQLite", open_sqlite, DATABASE)),
    ".duckdb": Format("DuckDB", open_duckdb, DATABASE),
    **dict.fromkeys(READERS, Format("SAS, SPSS and Stata", open_statistics)),
}
"""Formats by the ending of a file's name, in lower case."""


def suffix_of(name: str) -> str | None:
    """Return the ending of a file's name that determines its format.

    Examples
    --------
    >>> suffix_of("North.CSV.gz"), suffix_of("north.toml")
    ('.csv.gz', None)
    """
    return max((end for end in FORMATS if name.lower().endswith(end)), key=len, default=None)


def open_source(
    source: Source, owner: str, said: Collection[str] | None = ()
) -> list[Table] | Matrix:
    """Open a source: one table or those of a folder, or a matrix.

    Parameters
    ----------
    source : FileSource, WarehouseSource or FederationSource
        The source.
    owner : str
        The beginning of an error message, such as "site 'north'".
    said : collection of str, optional
        Names of columns that the user has said: a header that holds one of them is not examined;
        None to examine none.

    Raises
    ------
    InputError
        If the source is missing, unreadable, empty or of an unknown format, has two columns of
        the same name, or begins with values where its header should be.
    """
    with error_prefix(owner):
        if isinstance(source, WarehouseSource):
            return [source.held or _query(source)]
        format = FORMATS.get(suffix_of(source.path.name) or "")
        if source.path.is_dir():
            format = PARQUET
        _check_options(source, format)
        if source.path.is_dir() and source.where is None and not has_partitions(source.path):
            tables: list[Table] = list(map(ParquetFile.open, parquet_files(source.path)))
        else:
            opened = _open(source, format)
            if isinstance(opened, Matrix):
                return opened
            tables = [opened]
    for table in tables:
        if format in (CSV, EXCEL) and said is not None and source.names is None:
            _check_header(table, owner, said)
        _check_names(table, owner)
    return tables


def _query(source: WarehouseSource) -> Table:
    if source.is_store:
        return open_dataset(source)
    from fedcluster_app.tables._sql import Query  # optional extra

    return Query(source)


def hold(source: WarehouseSource, columns: Sequence[str] | None = None) -> WarehouseSource:
    """Return a source with the rows that are there now, which every pass then reads.

    Parameters
    ----------
    source : WarehouseSource
        A database or a store.
    columns : sequence of str, optional
        The columns to read; by default all.

    Raises
    ------
    InputError
        If the database cannot be reached, or refuses the query.
    """
    return replace(source, held=patiently(lambda: QuerySnapshot(_query(source), columns)))


def version_of(source: WarehouseSource) -> str:
    """Return a hash of the result of the version query; "" without such a query."""
    if source.version is None:
        return ""
    asked = replace(source, query=source.version, table=None, where=None, order=None)
    return str(hold(asked).held.digest)


def _open(source: FileSource, format: Format | None) -> Table | Matrix:
    if format is None:
        with readable(source.path):
            source.path.open("rb").close()
        raise InputError(f"{source.path} is of an unknown kind; known are {', '.join(FORMATS)}")
    with readable(source.path):
        options = {name: getattr(source, name) for name in format.options}
        opened: Table | Matrix = format.open(source.path, **options)
        return opened


def _check_options(source: FileSource, format: Format | None) -> None:
    """Raise an error for an option that belongs to another format."""
    for option in FILE_OPTIONS:
        if getattr(source, option) is not None and option not in (format.options if format else ()):
            titles = dict.fromkeys(f.title for f in FORMATS.values() if option in f.options)
            raise InputError(f"{option} is for {' and '.join(titles)}, and {source.path} is none")


def _check_names(table: Table, owner: str) -> None:
    """Check that all columns have distinct names."""
    if twice := first_twice(name for name in table.names if name):
        raise InputError(
            f"{owner}, column {twice!r}: {table.path} has two columns of this name; "
            "rename one of them"
        )
    counted = [[str(i) for i in range(start, start + len(table.names))] for start in (0, 1)]
    numbers = bool(table.names) and all(is_number(name, table.decimal) for name in table.names)
    if numbers and list(table.names) not in counted:
        raise InputError(
            f"{owner}: the first line of {table.path} holds numbers; "
            "put a line with the columns' names above it"
        )


def _check_header(table: Table, owner: str, said: Collection[str]) -> None:
    """Raise an error if the first line of a text file or a sheet seems to hold values."""
    if any(name in said for name in table.names):
        return
    if isinstance(table, ArrowTable):  # a sheet of a workbook
        cells = [column.to_pylist() for column in table.rows.slice(0, 50).columns]
        lines = zip(*cells, strict=True)
        rows = [["" if cell is None else str(cell) for cell in line] for line in lines]
    else:
        assert isinstance(table, CsvFile)
        rows = table.first_rows(50)
    whole = [row for row in rows if len(row) == len(table.names)]
    if why := values_in(table.names, whole):
        raise InputError(
            f"{owner}: the first line of {table.path} seems to hold values, not the names of its "
            f"columns ({why}); put a line with names above it, or name them, as in "
            f"{said_of(table.path, 'names', ['A', 'B', 'C'])} or, in a site file, "
            'names = ["A", "B", "C"] under [source]'
        )


def names_of(opened: list[Table] | Matrix) -> tuple[str, ...]:
    """Return the names of the columns of an opened source."""
    return opened.names if isinstance(opened, Matrix) else opened[0].names


def open_rows(
    source: Any,
    columns: ColumnRoles | Sequence[str] | Callable[[Sequence[str]], ColumnRoles] | None = None,
    *,
    sample_weight: str | Path | NDArray[Any] | None = None,
    owner: str | None = None,
    advise: Advise = choose,
    chunk_rows: int | None = None,
    said: Collection[str] = (),
) -> StreamedRows:
    r"""Open a source as rows in chunks.

    Parameters
    ----------
    source : FileSource, WarehouseSource, path, list of paths, array or sparse matrix
        The source of the rows: a file of any format, a folder of Parquet files, several Parquet
        files, a database, or rows (n, d) in memory, such as a `numpy.memmap`.
    columns : ColumnRoles or sequence of str, or callable, optional
        The roles of the columns, or a function that returns them from all names; by default all
        columns are clustered by.
    sample_weight : path of a ``.npy`` file or ndarray of shape (n,), optional
        The rows' weights, for an array, a sparse matrix, ``.npy`` or ``.npz``.
    owner : str, optional
        The beginning of an error message, such as "site 'north'"; by default the source.
    advise : callable, optional
        Returns advice for non-numeric columns, given the numeric ones.
    chunk_rows : int, optional
        The largest number of rows in a chunk of Parquet files or of a matrix; by default about
        262,000 values, more if there are many columns.
    said : collection of str
        Names of columns that the user has said, beside those in ``columns``; see `open_source`.

    Raises
    ------
    InputError
        If the source cannot be read; later, if a value is missing, infinite or not a number, or if
        a file has changed since it was opened.

    Notes
    -----
    For a ``.npy`` file, only the chunk being read is mapped. For a `numpy.memmap`, all pages that
    were read stay mapped: they count as memory of this process until the system needs it.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "north.csv")
    >>> _ = path.write_text("age,bmi\n31,22.5\n47,30\n")
    >>> [chunk.X.tolist() for chunk in open_rows(path).chunks()]
    [[[31.0, 22.5], [47.0, 30.0]]]
    >>> folder.cleanup()
    >>> rows = open_rows(np.arange(10.0).reshape(5, 2), chunk_rows=2)
    >>> [len(chunk) for chunk in rows.chunks()]
    [2, 2, 1]
    """
    source = FileSource(Path(source)) if isinstance(source, str | Path) else source
    in_place = isinstance(source, Source)
    name = owner or (str(source) if in_place else "the rows")
    with error_prefix(name):
        if in_place:
            known = () if callable(columns) else ColumnRoles.from_columns(columns).said
            opened = open_source(source, name, [*known, *said])
        elif isinstance(source, list | tuple):
            opened = list(listed_parquet(source))
        else:
            opened = sparse_matrix(source) if hasattr(source, "tocsr") else open_npy(source)
        if sample_weight is not None:
            if not isinstance(opened, Matrix):
                raise InputError(
                    "sample_weight is for arrays; of a table name the column, "
                    "ColumnRoles(weight=...)"
                )
            weights = Path(sample_weight) if isinstance(sample_weight, str) else sample_weight
            opened = opened.weighed(weights)
        names = names_of(opened)
        roles = columns(names) if callable(columns) else ColumnRoles.from_columns(columns, names)
        roles = roles if sample_weight is None else replace(roles, weight="weight")
        of_each = isinstance(source, list | tuple)  # then sites are named after their files
        return _stream(opened, roles, owner if of_each else name, advise, chunk_rows)


def _stream(
    opened: list[Table] | Matrix,
    roles: ColumnRoles,
    owner: str | None,
    advise: Advise,
    chunk_rows: int | None = None,
) -> StreamedRows:
    if isinstance(opened, Matrix):
        return matrix_rows(opened, roles, owner or opened.title, chunk_rows)
    if isinstance(opened[0], ParquetFile):
        files = [table for table in opened if isinstance(table, ParquetFile)]
        return parquet_rows(files, roles, owner, advise, chunk_rows)
    return cached_rows(opened[0], roles, owner=owner or str(opened[0].path), advise=advise)


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """All rows of a source.

    Parameters
    ----------
    data : Data
        The rows.
    sites : ndarray of shape (n,), optional
        The site of each row, if there is a column of sites.
    unreadable : dict of str to str
        Columns that were skipped, each with the error message.
    """

    data: Data
    sites: NDArray[np.str_] | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)


def load(
    opened: list[Table] | Matrix,
    roles: ColumnRoles,
    owner: str,
    advise: Advise = choose,
    *,
    skip: bool = False,
) -> Loaded:
    """Read all rows of an opened source at once.

    Parameters
    ----------
    opened : list of Table or Matrix
        The source.
    roles : ColumnRoles
        The columns to read.
    owner : str
        The beginning of an error message.
    advise : callable, optional
        Returns advice for non-numeric columns, given the numeric ones.
    skip : bool, default=False
        Whether to skip unreadable columns of rows that are to be prepared.

    Raises
    ------
    InputError
        With the column, the row and advice.
    """
    if isinstance(opened, Matrix):
        sites = None if roles.site is None else opened.beside[roles.site](slice(None))
        data = matrix_rows(opened, roles, owner).load()
        return Loaded(data, None if sites is None else sites.astype(np.str_))
    [table, *more] = opened
    if more or not isinstance(table, WholeTable):
        return Loaded(_stream(opened, roles, owner, advise).load())
    has_columns(owner, table.names, [*roles.chosen, *roles.others])
    try:
        return _read_whole(table, roles, owner, advise)
    except InputError as error:
        if isinstance(error, OrderUnknown) or not (skip and roles.raw):
            raise
        with error_prefix(owner):
            part = table.read([*roles.chosen, *roles.others], roles.texts)
            complaints = Reader(owner, part, roles).unreadable()
        rest = tuple(name for name in roles.chosen if name not in complaints)
        if not complaints:
            raise
        read = _read_whole(table, replace(roles, values=rest), owner, advise) if rest else None
        rows = {each.partition(":")[0] for each in complaints.values()}
        if len(complaints) > 1 == len(rows) and not (read and _has_numbers(read.data)):
            raise InputError(
                f"{owner}, {rows.pop()} has no number in any column, as if it held the names or "
                "units of the columns; delete that line"
            ) from None
        if read is None:
            raise
        return replace(read, unreadable=complaints)


def _has_numbers(data: Data) -> bool:
    return any(column.kind == "number" for column in data.columns)


def _read_whole(table: WholeTable, roles: ColumnRoles, owner: str, advise: Advise) -> Loaded:
    """Read all rows of a table at once."""
    with error_prefix(owner):
        part = table.read([*roles.chosen, *roles.others], roles.texts)
    reader = Reader(owner, part, roles, advise)
    data = reader.data()
    if roles.label is not None:
        reader.texts(roles.label, "the label is missing; fill it in or drop the row")
    if roles.site is None:
        return Loaded(data)
    sites = reader.texts(roles.site, "the site's name is missing")
    return Loaded(data, sites)


def read_as(opened: list[Table] | Matrix, source: Source) -> tuple[str, ...]:
    """Return the detected dialect of a file, if it is not the usual one."""
    file = None if isinstance(opened, Matrix) else opened[0]
    if not (isinstance(file, CsvFile) and isinstance(source, FileSource)):
        return ()
    decimals = [NAMES[COMMA]] if source.decimal is None and file.decimal == COMMA else []
    is_usual = source.encoding is not None or file.encoding not in TITLES
    encodings = [] if is_usual else [TITLES[file.encoding]]
    return (*decimals, *encodings)


def padded_columns(opened: list[Table] | Matrix) -> tuple[str, ...]:
    """Return the columns whose numbers are written with leading zeros."""
    table = None if isinstance(opened, Matrix) else opened[0]
    cells: Mapping[str, Sequence[Any]] = {}
    if isinstance(table, CsvFile):
        cells = table.head()
    elif table is not None and isinstance(table, WholeTable):
        parts = table.parts([name for name in table.names if name], CsvFile.head_rows)
        columns = {
            name: part.rows[name] for part in islice(parts, 1) for name in table.names if name
        }
        cells = {name: each.to_pylist() for name, each in columns.items() if is_text(each.type)}
    return tuple(name for name, each in cells.items() if has_padding(each))


def read_file(roles: ColumnRoles, path: Path | Source, owner: str) -> Data:
    """Read all rows of a source at once.

    Parameters
    ----------
    roles : ColumnRoles
        The columns to read; by default all except the index of a data frame.
    path : Path, FileSource or WarehouseSource
        The file, a folder of Parquet files, or what describes a source.
    owner : str
        The beginning of an error message, such as "site 'north'".
    """
    source = FileSource(path) if isinstance(path, Path) else path
    opened = open_source(source, owner, roles.said)
    names = [name for name in names_of(opened) if not is_index(name)]
    roles = ColumnRoles.from_columns(roles, names)
    return load(opened, roles, owner, other_columns).data


# The tables that rows were read from, as they are written: clusters are joined back to them


@dataclass(frozen=True, slots=True, eq=False)
class OwnTable:
    """The table from which a site's rows were read, for joining clusters to it.

    Parameters
    ----------
    source : FileSource or WarehouseSource
        Its file.
    opened : list of Table or Matrix
        The table, of which only the names need to be in memory.
    id_column : str, optional
        The column of the rows' keys.
    """

    source: Source
    opened: list[Table] | Matrix
    id_column: str | None = None

    @classmethod
    def open(cls, source: Source, owner: str, id_column: str | None = None) -> OwnTable:
        """Open a file or a folder of Parquet files, checking that it has the column of keys.

        Its header is examined where its rows are read.

        Raises
        ------
        InputError
            If the source cannot be read or lacks the column.
        """
        own = cls(source, open_source(source, owner, None), id_column)
        if id_column is not None:
            found = own_names(own.names, [id_column])
            note_names(owner, found)
            own = replace(own, id_column=found.get(id_column, id_column))
            id_column = own.id_column
        has_columns(owner, own.names, () if id_column is None else (id_column,))
        return own

    @property
    def dialect(self) -> tuple[str, str]:
        """Return the delimiter and the decimal sign of a text file."""
        first = None if isinstance(self.opened, Matrix) else self.opened[0]
        return (first.delimiter, first.decimal) if isinstance(first, CsvFile) else (",", POINT)

    def keys(self, rows: NDArray[np.int64] | range) -> tuple[str, pa.ChunkedArray] | None:
        """Return the name of the column of keys, and the key of each row; None without one."""
        if self.id_column is None:
            return None
        return self.id_column, self.read(rows, [self.id_column])[self.id_column]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, including those beside a matrix."""
        beside = self.opened.beside if isinstance(self.opened, Matrix) else ()
        return (*names_of(self.opened), *beside)

    def read(self, rows: NDArray[np.int64] | range, names: Sequence[str] | None = None) -> pa.Table:
        """Read columns of some rows unchanged, by default all columns.

        Parameters
        ----------
        rows : ndarray of shape (n,) or range
            The numbers of the rows in the file, from 1.
        names : sequence of str, optional
            The columns.

        Raises
        ------
        InputError
            If the file has changed since it was opened.
        """
        wanted = list(dict.fromkeys(self.names if names is None else names))
        table = self._all(wanted)
        if len(rows) and int(np.max(rows)) > table.num_rows:
            raise InputError(f"{self.source} has lost rows since they were read; start again")
        every = len(rows) == table.num_rows and isinstance(rows, range)
        return table if every else table.take(np.asarray(rows, np.int64) - 1)

    def read_all(self) -> pa.Table:
        """Read all columns that have a name, unchanged."""
        return self._all([name for name in self.names if name])

    def _all(self, wanted: Sequence[str]) -> pa.Table:
        if isinstance(self.opened, Matrix):
            return _of_matrix(self.opened, wanted)
        parts = []
        for table in self.opened:
            assert isinstance(table, WholeTable)
            if table.fingerprint is not None:
                table.fingerprint.check()
            with readable(table.path):
                parts.append(table.read(wanted, wanted).rows)
        return _one_below_the_other(parts)


def _one_below_the_other(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the concatenated rows of several files; columns of differing types become text."""
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowTypeError:
        texts = pa.schema([(name, pa.string()) for name in parts[0].column_names])
        return pa.concat_tables([part.cast(texts) for part in parts])


def _of_matrix(matrix: Matrix, wanted: Sequence[str]) -> pa.Table:
    """Return columns of a matrix and of the table beside it."""
    matrix.check()
    every, place = slice(None), {name: j for j, name in enumerate(matrix.names)}
    inside = [name for name in wanted if name in place]
    dense = matrix.dense(every, np.array([place[name] for name in inside], np.intp))
    columns: dict[str, Any] = dict(zip(inside, dense.T, strict=True))
    columns |= {name: matrix.beside[name](every) for name in wanted if name not in place}
    return pa.table({name: pa.array(columns[name]) for name in wanted})
