"""The sources of a site's rows, its rows, and what all streams of rows share.

While one chunk is being processed, separate threads read the next ones. Every round reads the same
rows again; it is an error if a file has changed in between.
"""

from __future__ import annotations

import csv
import gzip
import re
import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Filter, Rows, RowStream
from fedcluster.errors import InputError, reason
from fedcluster.frames.columns import Coding, called, column_list, has_columns

T = TypeVar("T")
R = TypeVar("R")
STORES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "file")
"""Schemes of stores that pyarrow can read."""
OTHERS = ("sftp", "ftp", "smb", "az", "oss", "webhdfs", "github", "hf", "dropbox", "gdrive")
"""Schemes that only fsspec can read, with further packages."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """Rows in a file of any format, or in a folder of Parquet files.

    Parameters
    ----------
    path : Path
        The file or the folder.
    names : tuple of str, optional
        For ``.npy`` and ``.npz``, the names of the columns; by default x0, x1, ... For CSV and
        Excel, those of a table without a header.
    matrix : str, optional
        For ``.h5ad``, the matrix: "X" by default, "layers/NAME" or "obsm/NAME".
    decimal : {".", ","}, optional
        For CSV, the decimal sign; by default inferred from the first rows.
    encoding : str, optional
        For CSV, the encoding, such as "cp1252"; by default inferred from the first bytes.
    sheet : str, optional
        For Excel, the name of the sheet; by default the only one with a table.
    table : str, optional
        For SQLite and DuckDB, the table or view; by default the only one.
    skip : int, optional
        For CSV and Excel, the number of lines above the table; by default inferred from the first
        lines.
    where : str, optional
        Of SQLite, DuckDB and Parquet, which rows: comparisons, as in "year>=2020,ward=B".
    order : str, optional
        Of SQLite and DuckDB, the columns by which the rows are ordered.
    """

    path: Path
    names: tuple[str, ...] | None = None
    matrix: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    table: str | None = None
    skip: int | None = None
    where: str | None = None
    order: str | None = None

    def __str__(self) -> str:
        return str(self.path)


FILE_OPTIONS = tuple(each.name for each in fields(FileSource) if each.name != "path")
"""Options of a file besides its path; `FORMATS` lists those of each format."""


@dataclass(frozen=True, slots=True)
class WarehouseSource:
    """Rows of a database, or of Parquet files in a store.

    Parameters
    ----------
    url : str
        A database URL in SQLAlchemy's form, such as ``postgresql+psycopg://reader@db/clinic``;
        or a folder in a store, such as ``s3://bucket/visits/``.
        ``${NAME}`` stands for an environment variable. It must not hold a password.
    query : str, optional
        The query, instead of a table.
    password_file : Path, optional
        A file that holds the password.
    folder : Path
        The folder to which a relative path of SQLite or DuckDB refers.
    version : str, optional
        A query whose result changes with the rows, such as the time of the last entry.
    held : Table, optional
        The answer, where it was read already.
    table : str, optional
        The table or view, as in "clinic.visits"; only the columns that are needed are read.
    where : str, optional
        Which rows of it: comparisons, as in "year>=2020,ward=B".
    order : str, optional
        The columns by which they are ordered; by default the database gives them in any order.
    """

    url: str
    query: str | None = None
    password_file: Path | None = None
    folder: Path = Path()
    version: str | None = None
    held: Any = field(default=None, repr=False, compare=False)
    table: str | None = None
    where: str | None = None
    order: str | None = None

    def __str__(self) -> str:
        return self.url

    @property
    def is_store(self) -> bool:
        """Whether the address is that of files, not of a database."""
        return self.url.partition("://")[0] in (*STORES, *OTHERS)

    def check(self) -> None:
        """Raise an error for options that are incompatible with a query, or with a store."""
        asked = [name for name in ("query", "table") if getattr(self, name) is not None]
        if self.is_store and (asked or self.version or self.order):
            raise InputError("a store holds files: it takes where, and no query, table or order")
        if len(asked) != 1 and not self.is_store:
            raise InputError("a database needs a table or a query, and not both")
        if asked == ["query"] and (self.where or self.order):
            raise InputError("where and order go with a table; write them into the query")


Source = FileSource | WarehouseSource
COMPARISON = re.compile(r"(.+?)\s*(<=|>=|!=|=|<|>)\s*(.+)")


def comparisons(where: str | None) -> list[tuple[str, str, str]]:
    """Return the comparisons that select rows: a column, a sign and a value.

    Examples
    --------
    >>> comparisons("year>=2020, ward=B")
    [('year', '>=', '2020'), ('ward', '=', 'B')]
    """
    found = []
    for part in next(csv.reader([where or ""], skipinitialspace=True), []):
        if (each := COMPARISON.fullmatch(part.strip())) is None:
            raise InputError(f"where: {part!r} must be as in year>=2020, with commas between")
        found.append((each[1], each[2], each[3]))
    return found


def check_chosen(source: FileSource | WarehouseSource, names: Sequence[str]) -> None:
    """Raise an error for an unknown column in a filter or order; SQLite takes it for text."""
    by = column_list(source.order, "order") or []
    has_columns(
        f"where or order of {source}", names, [*(n for n, *_ in comparisons(source.where)), *by]
    )


def in_quotes(name: str) -> str:
    """Return the name of a table or a column as quoted in SQL."""
    return '"' + name.replace('"', '""') + '"'


def statement(
    table: str,
    columns: Sequence[str] | None,
    source: FileSource | WarehouseSource,
    quoted: Callable[[str], str] = in_quotes,
) -> str:
    r"""Return the SELECT statement for some rows of a table, whose name is already quoted.

    Examples
    --------
    >>> statement("visits", ["age"], WarehouseSource("", where="year>=2020,ward=B", order="id"))
    'SELECT "age" FROM visits WHERE "year" >= 2020 AND "ward" = \'B\' ORDER BY "id"'
    >>> statement("visits", None, WarehouseSource(""))
    'SELECT * FROM visits'
    """
    chosen = "*" if columns is None else ", ".join(map(quoted, columns))
    rules = [f"{quoted(n)} {sign} {_literal(x)}" for n, sign, x in comparisons(source.where)]
    by = ", ".join(map(quoted, column_list(source.order, "order") or ()))
    more = (" WHERE " + " AND ".join(rules)) if rules else ""
    return f"SELECT {chosen} FROM {table}{more}" + (f" ORDER BY {by}" if by else "")


def _literal(value: str) -> str:
    """Return a value as an SQL literal: a number, or a text, which may be quoted already."""
    if re.fullmatch(r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?", value):
        return value
    return "'" + unquoted(value).replace("'", "''") + "'"


def unquoted(value: str) -> str:
    """Return a value without enclosing quotes."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == "'" else value


@dataclass(frozen=True, slots=True, eq=False)
class StreamedRows:
    """Rows of one site that are read anew each time, in chunks.

    Parameters
    ----------
    title : str
        The name of the source.
    columns : tuple of str
        The columns to cluster by.
    dtype : dtype
        The type of the rows when read: float32 or float64.
    count : callable
        ``count()`` returns the number of rows, including those without weight.
    read : callable
        ``read()`` returns the chunks.
    beside : tuple of str
        The parts that come with the rows: "weight", "group", "label".
    """

    title: str
    columns: tuple[str, ...]
    dtype: np.dtype[Any] = field(repr=False)
    count: Callable[[], int] = field(repr=False)
    read: Callable[[], Iterator[Data]] = field(repr=False)
    beside: tuple[str, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return self.count()

    def chunks(self) -> Iterator[Data]:
        """Yield the rows, some at a time."""
        return prefetch(self.read())

    def called(self, own: Mapping[str, str]) -> StreamedRows:
        """Return the rows with the common names of their columns, given the site's own names."""
        if not own:
            return self
        common = {name: each for each, name in own.items()}
        columns = tuple(common.get(name, name) for name in self.columns)
        read = self.read
        return replace(self, columns=columns, read=lambda: (called(each, own) for each in read()))

    def load(self) -> Data:
        """Return all rows at once, without holding them twice."""
        X, start, coding = np.empty((len(self), len(self.columns)), self.dtype), 0, Coding()
        others: list[tuple[Any, ...]] = []
        for chunk in self.chunks():
            X[start : start + len(chunk)] = coding.recoded(chunk)
            others.append((chunk.sample_weight, chunk.y, chunk.groups))
            start += len(chunk)
        weight, y, groups = (
            None if each[0] is None else np.concatenate(each) for each in zip(*others, strict=True)
        )
        return Data(X, weight, y, coding.columns, groups)


@dataclass(frozen=True, slots=True, eq=False)
class SiteRows:
    """The rows of one site, wherever they came from.

    Parameters
    ----------
    name : str
        The site's name.
    rows : Data or RowStream
        Its rows (n, d) with weights, groups and labels: in memory, or in chunks.
    columns : tuple of str
        The names of the d columns; empty for an array without names.
    row_ids : ndarray of shape (n,), int64, or range
        The number of each row in its source: from 1 in a file; from 0 in the input of an estimator.
    ignored : tuple of str
        The other columns of its file.
    limits : tuple of Filter, optional
        The limits in its site file; None for rows without a site file.
    protected : callable, optional
        Returns the client that answers about some columns with groups of the rows, under the given
        limits if its site file has none.
    unreadable : mapping of str to str
        Columns of its file that could not be read, each with the reason.
    padded : tuple of str
        Columns of its file whose numbers have leading zeros.
    read_as : tuple of str
        The detected dialect of its file, if it is not the usual one.
    """

    name: str
    rows: Data | RowStream
    columns: tuple[str, ...]
    row_ids: NDArray[np.int64] | range
    ignored: tuple[str, ...] = ()
    limits: tuple[Filter, ...] | None = None
    protected: Callable[[Sequence[str], Any], Any] | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    padded: tuple[str, ...] = ()
    read_as: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def without(self, names: Collection[str]) -> SiteRows:
        """Return the rows without some columns."""
        kept = [j for j, name in enumerate(self.columns) if name not in names]
        if len(kept) == len(self.columns):
            return self
        left = tuple(self.columns[j] for j in kept)

        def part(data: Data) -> Data:
            columns = tuple(data.columns[j] for j in kept) if data.columns else ()
            return replace(data, X=np.ascontiguousarray(data.X[:, kept]), columns=columns)

        if isinstance(rows := self.rows, StreamedRows):
            some: Data | RowStream = replace(
                rows, columns=left, read=lambda: map(part, rows.read())
            )
        else:
            some = part(self.data)
        return replace(
            self,
            rows=some,
            columns=left,
            ignored=(*self.ignored, *(name for name in self.columns if name in names)),
        )

    @property
    def described_columns(self) -> tuple[Column, ...]:
        """Return descriptions of the columns of unprepared rows in memory."""
        return self.rows.columns if isinstance(self.rows, Data) else ()

    @property
    def data(self) -> Data:
        """Return all rows at once."""
        return self.rows if isinstance(self.rows, Data) else self.rows.load()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the rows when read."""
        return next(iter(chunks_of(self.rows))).X.dtype


def chunks_of(rows: Data | RowStream) -> Iterable[Data]:
    """Return rows in chunks; rows in memory form one chunk."""
    return [rows] if isinstance(rows, Data) else rows.chunks()


def batches(arrays: Iterable[Rows], n_rows: int) -> Iterator[Rows]:
    """Yield rows in order, joining small arrays of the same type.

    Parameters
    ----------
    arrays : iterable of ndarray of shape (n_i, d)
        The rows.
    n_rows : int
        The largest number of rows of joined arrays.

    Examples
    --------
    >>> [len(rows) for rows in batches([np.zeros((n, 1)) for n in (9, 1, 2, 3, 4)], 6)]
    [9, 6, 4]
    """
    held: list[Rows] = []
    n_held = 0
    for rows in arrays:
        fits = n_held + len(rows) <= n_rows
        if held and not (fits and rows.dtype == held[0].dtype):
            yield held[0] if len(held) == 1 else np.concatenate(held)
            held, n_held = [], 0
        held.append(rows)
        n_held += len(rows)
    if held:
        yield held[0] if len(held) == 1 else np.concatenate(held)


def n_columns_of(rows: Data | RowStream) -> int | None:
    """Return the number of columns; None for a stream that would have to be read for it."""
    if isinstance(rows, Data):
        return int(rows.X.shape[1])
    return len(rows.columns) if isinstance(rows, StreamedRows) else None


CHUNK = 1 << 18
"""Values in a chunk, few enough that all on their way to the kernels stay in a cache."""


def chunk_rows_of(chunk_rows: int | None, d: int) -> int:
    """Return the number of rows in a chunk: it fits the cache and is worth a call."""
    if chunk_rows is not None and chunk_rows < 1:
        raise InputError(f"chunk_rows must be at least 1, not {chunk_rows}")
    return chunk_rows or max(CHUNK // d, min(8192, 32 * CHUNK // d), 1)


def side_by_side(columns: Sequence[Rows], *, block: int = 1 << 17) -> Rows:
    """Return columns (n,) as rows (n, d), of the columns' common type.

    ``block``: number of values that are converted from columns to rows while they are in the cache.

    Examples
    --------
    >>> side_by_side([np.array([1.0, 2.0]), np.array([3.0, 4.0], dtype=np.float32)])
    array([[1., 3.],
           [2., 4.]])
    """
    n, d = len(columns[0]), len(columns)
    X: Rows = np.empty((n, d), np.result_type(*columns))
    size = max(1, block // d)
    for start in range(0, n, size):
        rows = slice(start, start + size)
        X[rows] = np.array([column[rows] for column in columns]).T
    return X


def check_finite(
    rows: Rows, names: Sequence[str], owner: str, start: int = 0, *, gaps: bool = False
) -> None:
    """Raise an error for rows (n, d) with infinite or NaN values, naming the first such cell.

    The first row's number is ``start``; with ``gaps`` values may be NaN.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(rows.sum()):
            return
    bad = np.argwhere(np.isinf(rows) if gaps else ~np.isfinite(rows))
    if len(bad):
        i, j = bad[0]
        what = "missing (NaN)" if np.isnan(rows[i, j]) else "infinite"
        raise InputError(
            f"{owner}, column {names[j]!r}, row {start + i}: the value is {what}; fill it in or "
            "drop the row"
        )


# Threads


def prefetch(parts: Iterator[T]) -> Iterator[T]:
    """Yield parts that another thread reads in advance."""
    with ThreadPoolExecutor(1, "fedcluster-reading") as thread:
        # Number of chunks that decoding and conversion to rows each complete in advance.
        coming = deque(thread.submit(next, parts, None) for _ in range(1))
        while (part := coming.popleft().result()) is not None:
            coming.append(thread.submit(next, parts, None))
            yield part
            del part  # free the memory before the next chunk is read


def in_order(work: Callable[[T], R], parts: Iterable[T], n_threads: int) -> Iterator[R]:
    """Yield ``work(part)`` for each part, several in parallel, in the order of the parts.

    An error is raised at the same position as without threads; later parts are not started.
    """
    if n_threads == 1:
        yield from map(work, parts)
        return
    with ThreadPoolExecutor(n_threads, "fedcluster-working") as threads:
        coming: deque[Future[R]] = deque()
        try:
            for part in parts:
                coming.append(threads.submit(work, part))
                if len(coming) > n_threads:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            for one in coming:
                one.cancel()


# Files


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """The state of a file when it was first seen: its size and the time of its last change."""

    path: Path
    size: int
    changed: int

    @classmethod
    def now(cls, path: Path) -> FileFingerprint:
        """Return the present fingerprint of a file."""
        with readable(path):
            size, changed = path.stat().st_size, path.stat().st_mtime_ns
        # the write-ahead log holds what is not in the database file yet
        for log in (f"{path}-wal", f"{path}.wal"):
            with suppress(OSError):
                status = Path(log).stat()
                size += status.st_size
                changed = max(changed, status.st_mtime_ns) if status.st_size else changed
        return cls(path, size, changed)

    def check(self) -> None:
        """Raise an error if the file has changed."""
        now = FileFingerprint.now(self.path)
        if now != self:
            sizes = "" if now.size == self.size else f" from {self.size} to {now.size} bytes"
            raise InputError(
                f"{self.path} has changed{sizes} since it was opened; all rounds must read the "
                "same rows: start again when nobody writes to it"
            )


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn errors of reading a file into one line."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist; check the path") from error
    except csv.Error as error:
        raise InputError(f"{path} cannot be read as CSV: {error}") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file; write it again") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason(error)}") from error


@contextmanager
def reading_with(extra: str, path: Path) -> Iterator[None]:
    """Report the extra that an import needs, and check that the file can be read."""
    try:
        yield
    except ImportError as error:
        raise InputError(f'reading {path} needs pip install "fedcluster[{extra}]"') from error
    with readable(path):
        path.open("rb").close()


@contextmanager
def error_prefix(owner: str) -> Iterator[None]:
    """Prefix error messages with the owner of the rows."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(owner):
            raise
        prefixed = type(error)(f"{owner}: {error}")
        prefixed.refusal = error.refusal
        raise prefixed from error


# What may pass


class UnreachableError(InputError):
    """A database cannot be reached, which may be temporary."""

    pauses = (0.5, 1.0, 2.0)  # seconds to wait before each further attempt to reach a source


def patiently(work: Callable[[], T]) -> T:
    """Call a function that uses a database, with up to four attempts to reach it."""
    for pause in UnreachableError.pauses:
        try:
            return work()
        except UnreachableError:
            time.sleep(pause)
    try:
        return work()
    except UnreachableError as error:
        raise InputError(f"{error} (tried {len(UnreachableError.pauses) + 1} times)") from None
