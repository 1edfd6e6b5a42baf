"""Rows of tables in chunks: Parquet is read in every round, text and databases once.

Text and databases are copied to a temporary file without a name: nobody else can open it, and it
disappears when it is closed or the process ends, however it ends.
"""

from __future__ import annotations

import operator
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from fedcluster.core import Data
from fedcluster.errors import InputError
from fedcluster.frames.columns import Coding, choose, first_twice, has_columns
from fedcluster.frames.reader import Advise, BatchTable, ColumnRoles, Reader, Table, TablePart
from fedcluster.frames.rows import (
    FileFingerprint,
    FileSource,
    StreamedRows,
    WarehouseSource,
    check_chosen,
    chunk_rows_of,
    comparisons,
    error_prefix,
    patiently,
    prefetch,
    readable,
    unquoted,
)
from fedcluster_app.tables.remote import reachable, shown, store_at

READ = 1 << 16
"""Number of values of a table that are read at a time; database objects are ten times larger."""
SUFFIXES = (".parquet", ".pq")
MANY_CORES = pa.cpu_count() > 2
"""Whether to read columns in parallel; with two cores, the second one is needed for processing."""

DATA_SETS = "pyarrow.dataset"
"""Module that imports pandas, so that it is imported when it is needed."""


# Parquet


READING = {"batch_readahead": 1, "fragment_readahead": 1, "use_threads": MANY_CORES}
SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A Parquet file as a `Table`."""

    path: Path
    names: tuple[str, ...]
    fingerprint: FileFingerprint
    decimal: None = None

    @classmethod
    def open(cls, path: Path) -> ParquetFile:
        """Open a file and read the names of its columns."""
        with _whole_parquet(path):
            return cls(path, tuple(pa.parquet.read_schema(path).names), FileFingerprint.now(path))

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(pa.parquet.read_metadata(self.path).num_rows)

    def is_float32(self, columns: Sequence[str]) -> bool:
        """Return whether all of these columns are float32."""
        schema = pa.parquet.read_schema(self.path)
        return all(pa.types.is_float32(schema.field(name).type) for name in columns)

    def read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> TablePart:
        """Read columns by name, all rows."""
        with _whole_parquet(self.path):
            file = pa.parquet.ParquetFile(self.path)
            return TablePart(self, 0, file.read(columns=list(dict.fromkeys(columns))))

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Read columns by name, at most ``n_rows`` rows at a time, without keeping any."""
        start = 0
        self.fingerprint.check()
        with _whole_parquet(self.path):
            # Bytes that are read for a page's header; larger pages are read past this buffer.
            file = pa.parquet.ParquetFile(self.path, buffer_size=1 << 14, pre_buffer=False)
            wanted = list(dict.fromkeys(columns))
            for batch in file.iter_batches(n_rows, columns=wanted, use_threads=MANY_CORES):
                if batch.num_rows:
                    yield TablePart(self, start, pa.Table.from_batches([batch]))
                    start += batch.num_rows
        self.fingerprint.check()

    def where(self, row: int) -> str:
        """Return where a row, counted from 0, is in the file."""
        return f"row {row + 1} of {self.path.name}"


def parquet_rows(
    files: Sequence[ParquetFile],
    roles: ColumnRoles,
    owner: str | None = None,
    advise: Advise = choose,
    chunk_rows: int | None = None,
) -> StreamedRows:
    """Return the rows of one site from one or several Parquet files, in order.

    At most four chunks are in memory and one for each thread, and one page of each column, usually
    1 MB in Parquet, whatever the size of a row group. Rows are float32 if all columns of all files
    are; otherwise they are float64.

    Parameters
    ----------
    files : sequence of ParquetFile
        The files.
    roles : ColumnRoles
        The columns to read, in this order.
    owner : str, optional
        The beginning of an error message, such as "site 'north'"; by default the file.
    advise : callable
        Returns advice for non-numeric columns, given the numeric ones.
    chunk_rows : int, optional
        The largest number of rows in a chunk; by default about 262,000 values, more if there are
        many columns.

    Raises
    ------
    InputError
        If a file lacks a column or has no rows; later, if a value is missing, infinite or not a
        number, or if a file has changed since it was opened.
    """
    if not roles.chosen:
        raise InputError("no column was chosen")
    wanted = [*roles.chosen, *roles.others]
    for file in files:
        if not file.n_rows:
            raise InputError(f"{file.path} has columns but no rows; add rows or leave the file out")
        has_columns(owner or str(file.path), file.names, wanted)
    narrow = all(file.is_float32(roles.chosen) for file in files)
    dtype = np.dtype(np.float32 if narrow else np.float64)
    size = chunk_rows_of(chunk_rows, len(roles.chosen))

    def data(part: TablePart) -> Data:
        read = Reader(owner or str(part.table.path), part, roles, advise).data()
        return replace(read, X=read.X.astype(dtype, copy=False))

    def chunks() -> Iterator[Data]:
        parts = chain.from_iterable(file.parts(wanted, size) for file in files)
        return map(data, prefetch(parts))

    title = ", ".join(str(file.path) for file in files)
    return StreamedRows(
        title,
        roles.chosen,
        dtype,
        lambda: sum(file.n_rows for file in files),
        chunks,
        roles.beside,
    )


def listed_parquet(paths: Sequence[str | Path]) -> list[ParquetFile]:
    """Open Parquet files, including all those in folders."""
    files = []
    for path in (file for each in paths for file in parquet_files(Path(each))):
        if path.suffix.lower() not in SUFFIXES:
            raise InputError(f"{path} is not Parquet; only Parquet files are read in chunks")
        files.append(ParquetFile.open(path))
        if first_twice(files[-1].names) is not None:
            raise InputError(f"{path} has two columns of one name; rename one of them")
    if not files:
        raise InputError("no Parquet file was given")
    return files


def parquet_files(path: Path) -> list[Path]:
    """Return a Parquet file, or those of a folder sorted by name.

    Files in folders that are called ``NAME=VALUE`` belong to it, as Spark and others write them.
    """
    if not path.is_dir():
        return [path]
    inside = [path, *(each for each in path.rglob("*=*") if each.is_dir())]
    files = sorted(f for each in inside for f in each.iterdir() if f.suffix.lower() in SUFFIXES)
    if not files:
        raise InputError(f"{path} is a folder without Parquet files (.parquet)")
    return files


def has_partitions(path: Path) -> bool:
    """Return whether Parquet files are in folders named ``NAME=VALUE``."""
    return path.is_dir() and any(each.is_dir() for each in path.glob("*=*"))


def open_dataset(source: FileSource | WarehouseSource) -> BatchTable:
    """Open Parquet files as one table: in ``NAME=VALUE`` folders, in a store, or with a filter.

    Only the selected columns and rows are read, batch by batch, in the order of the file names.

    Raises
    ------
    InputError
        If there are no files, a file lacks a column, or the filter names an unknown column or does
        not match its type; later, if a file has changed since it was opened.
    """
    path, data = _dataset(source)
    with _whole_parquet(path):
        check_chosen(source, data.schema.names)
        rule = _filter(data.schema, source)
        fragments = list(data.get_fragments(rule))
        for each in fragments:
            names = tuple(each.physical_schema.names)
            has_columns(each.path, (*names, *_of_folders(each)), data.schema.names)
    if not fragments:
        raise InputError(f"{path} has no rows where {source.where}")
    seen = _as_they_are(data)

    def check() -> None:
        if _as_they_are(data) != seen:
            raise InputError(
                f"{path} has changed since it was opened; start again when nobody writes to it"
            )

    def batches(columns: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        check()
        try:
            with _whole_parquet(path):
                rows = data.scanner(list(columns), rule, batch_size=min(n_rows, READ), **READING)
                for batch in rows.to_batches():
                    yield pa.Table.from_batches([batch])
        except InputError:
            check()
            raise
        check()

    return BatchTable(path, tuple(data.schema.names), batches)


def _of_folders(fragment: Any) -> dict[str, Any]:
    """Return the values that the folders of a file give its rows, by column."""
    ds = import_module(DATA_SETS)
    found: dict[str, Any] = ds.get_partition_keys(fragment.partition_expression)
    return found


def _dataset(source: FileSource | WarehouseSource) -> tuple[Path, Any]:
    """Return the name of a source in messages, and its files as a pyarrow data set."""
    ds = import_module(DATA_SETS)
    if isinstance(source, FileSource):
        store, path, place = pa.fs.LocalFileSystem(), source.path, str(source.path)
        files = list(map(str, parquet_files(path)))
    else:
        store, place = store_at(source.url)
        path, files = Path(shown(source.url)), _stored(store, place, source.url)
    scan = ds.ParquetFragmentScanOptions(pre_buffer=False)
    form = ds.ParquetFileFormat(default_fragment_scan_options=scan)
    how = ds.partitioning(flavor="hive")
    with _whole_parquet(path):
        return path, ds.dataset(files, None, form, store, how, place)


def _stored(store: Any, place: str, url: str) -> list[str]:
    """Return the Parquet files below a path in a store, sorted by name."""
    with reachable(url):
        inside = store.get_file_info(pa.fs.FileSelector(place, recursive=True))
    files = sorted(each.path for each in inside if each.path.lower().endswith(SUFFIXES))
    if not files:
        raise InputError(f"{shown(url)} is a folder without Parquet files (.parquet)")
    return files


def _as_they_are(data: Any) -> list[tuple[Any, ...]]:
    """Return the sizes of the files of a data set, and the times of their last changes."""
    files = data.filesystem.get_file_info(data.files)
    return [(each.path, each.size, each.mtime_ns) for each in files]


def _filter(schema: pa.Schema, source: FileSource | WarehouseSource) -> Any:
    """Return the expression that selects rows; None for all rows."""
    ds = import_module(DATA_SETS)
    rule = None
    for name, sign, value in comparisons(source.where):
        try:
            than = pa.scalar(unquoted(value)).cast(schema.field(name).type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            kind = schema.field(name).type
            raise InputError(
                f"where: column {name!r} holds {kind}, and {value!r} is none"
            ) from None
        each = SIGNS[sign](ds.field(name), than)
        rule = each if rule is None else rule & each
    return rule


@contextmanager
def _whole_parquet(path: Path) -> Iterator[None]:
    """Turn errors of reading a Parquet file into one line."""
    try:
        with readable(path):
            yield
    except pa.ArrowInvalid as error:
        raise InputError(f"{path} is not a whole Parquet file; write it again") from error


# Copies


def cached_rows(
    table: Table,
    columns: ColumnRoles | Sequence[str] | None = None,
    *,
    owner: str = "the table",
    advise: Advise = choose,
) -> StreamedRows:
    """Return the rows of a table that is slow to read, by way of a copy made at the first use.

    Only a few chunks are in memory. The copy takes 8 bytes per value in the folder of temporary
    files, which the environment variable ``TMPDIR`` names.

    Parameters
    ----------
    table : Table
        A CSV file or a query.
    columns : ColumnRoles or sequence of str, optional
        The columns to read; by default all.
    owner : str
        The beginning of an error message, such as "site 'north'".
    advise : callable
        Returns advice for non-numeric columns, given the numeric ones.

    Raises
    ------
    InputError
        At the first reading: if the table cannot be read, lacks a column, has no row, or has a
        value that is missing, infinite or not a number.
    """
    with error_prefix(owner):
        roles = ColumnRoles.from_columns(columns, table.names)

    copy = cache(lambda: patiently(lambda: _copied(table, roles, owner, advise)))
    return StreamedRows(
        str(table.path),
        roles.chosen,
        np.dtype(np.float64),
        lambda: len(copy()),
        lambda: copy().chunks(chunk_rows_of(None, len(roles.chosen))),
        roles.beside,
    )


def _copied(table: Table, roles: ColumnRoles, owner: str, advise: Advise) -> DiskCache:
    """Copy a table to disk."""
    seen = table.fingerprint
    if seen:
        seen.check()
    wanted = list(dict.fromkeys([*roles.chosen, *roles.others]))
    has_columns(owner, table.names, wanted)
    copy = DiskCache(roles)
    parts = table.parts(wanted, max(1, READ // len(roles.chosen)), roles.texts)
    read = (Reader(owner, part, roles, advise).data() for part in parts)
    with error_prefix(owner):
        for data in prefetch(read):
            copy.append(data)
        if seen:
            seen.check()
    if not len(copy):
        raise InputError(f"{owner}: {table.path} has no rows; add rows or leave it out")
    return copy


class DiskCache:
    """Rows on disk, in a file without a name: values, weights, groups and coded labels.

    Parameters
    ----------
    roles : ColumnRoles
        The roles of the columns to keep.

    Examples
    --------
    >>> cache = DiskCache(ColumnRoles(("a", "b")))
    >>> cache.append(Data(np.arange(6.0).reshape(3, 2)))
    >>> cache.append(Data(np.ones((1, 2))))
    >>> [chunk.X.tolist() for chunk in cache.chunks(3)]
    [[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], [[1.0, 1.0]]]
    """

    def __init__(self, roles: ColumnRoles) -> None:
        others = {"weight": roles.weight, "group": roles.group, "label": roles.label}
        kinds = {"weight": np.float64, "group": np.int64, "label": np.int64}
        row: list[Any] = [("X", np.float64, (len(roles.chosen),))]
        row += [(name, kinds[name]) for name, column in others.items() if column is not None]
        self._row = np.dtype(row)
        with _room():
            self.file = tempfile.TemporaryFile(prefix="fedcluster-")  # noqa: SIM115
        weakref.finalize(self, self.file.close)
        self._n = 0
        self._labels: dict[str, int] = {}
        self._coding = Coding()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._n

    def append(self, data: Data) -> None:
        """Add rows; either all or none must have weights, groups or labels."""
        codes, labels = self._labels, () if data.y is None else data.y.tolist()
        held = {
            "X": self._coding.recoded(data),
            "weight": data.sample_weight,
            "group": data.groups,
            "label": [codes.setdefault(label, len(codes)) for label in labels],
        }
        rows = np.empty(len(data), self._row)
        for name in rows.dtype.names or ():
            rows[name] = held[name]
        with self._lock, _room():
            self.file.seek(0, 2)
            self.file.write(rows.data)
        self._n += len(data)

    def chunks(self, n_rows: int) -> Iterator[Data]:
        """Yield the rows, at most ``n_rows`` at a time."""
        for start in range(0, self._n, n_rows):
            yield self.part(start, min(n_rows, self._n - start))

    def part(self, start: int, n: int) -> Data:
        """Return ``n`` consecutive rows."""
        rows = np.empty(n, self._row)
        with self._lock:
            self.file.seek(start * self._row.itemsize)
            self.file.readinto(rows.data)
        names = rows.dtype.names or ()
        held: dict[str, Any] = {name: np.ascontiguousarray(rows[name]) for name in names}
        labels = np.array(list(self._labels))[held["label"]] if "label" in held else None
        return Data(held["X"], held.get("weight"), labels, self._coding.columns, held.get("group"))


@contextmanager
def _room() -> Iterator[None]:
    """Turn errors of writing to disk into one line."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"the rows cannot be copied to {tempfile.gettempdir()}: {error.strerror or error}; "
            "set TMPDIR to a folder with room"
        ) from error


# Snapshots of queries


class QuerySnapshot:
    """All columns of a table's rows, on disk in a file without a name.

    Parameters
    ----------
    table : Table
        The table, which is read at once and completely.
    columns : sequence of str, optional
        The columns that are kept; by default all.

    Attributes
    ----------
    digest : str
        A hash of the names, the values and the order of the rows.

    Examples
    --------
    >>> from fedcluster.frames.reader import ArrowTable
    >>> rows = pa.table({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "z"]})
    >>> held = QuerySnapshot(ArrowTable(Path("here"), rows))
    >>> [part.rows.to_pydict() for part in held.parts(["b"], 2)]
    [{'b': ['x', 'y']}, {'b': ['z']}]
    """

    decimal = None
    fingerprint = None  # the copy does not change

    def __init__(self, table: Table, columns: Sequence[str] | None = None) -> None:
        self.path: Path = table.path
        self.names = tuple(table.names if columns is None else columns)
        has_columns(str(table.path), table.names, self.names)
        self._file = tempfile.TemporaryFile(prefix="fedcluster-")  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._lock = threading.Lock()  # several passes may read concurrently
        self._places: list[tuple[int, int]] = []
        digest = sha256(repr(self.names).encode())
        # Number of rows that are stored together.
        for part in table.parts(self.names, 8192):
            content = _bytes_of(part.rows)
            digest.update(content)
            self._places.append((self._file.tell(), len(content)))
            self._file.write(content)
        self._file.flush()
        self.digest = digest.hexdigest()

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Read columns by name, at most ``n_rows`` rows at a time."""
        start = 0
        for place, size in self._places:
            with self._lock:
                self._file.seek(place)
                content = self._file.read(size)
            with pa.ipc.open_stream(content) as stream:
                rows = stream.read_all().select(list(columns))
            for first in range(0, rows.num_rows, n_rows):
                few = rows.slice(first, n_rows)
                yield TablePart(self, start, few)
                start += few.num_rows

    def read(self, columns: Sequence[str], texts: Sequence[str] = ()) -> TablePart:
        """Read all rows of columns by name."""
        return BatchTable(self.path, self.names, self._batches).read(columns)

    def _batches(self, columns: Sequence[str], n_rows: int) -> Iterator[pa.Table]:
        return (part.rows for part in self.parts(columns, n_rows))

    def where(self, row: int) -> str:
        """Return where a row, counted from 0, is in the source."""
        return f"row {row + 1} of {self.path}"


def _bytes_of(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content
