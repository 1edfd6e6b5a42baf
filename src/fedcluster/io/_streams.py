"""Rows that do not fit in memory: Parquet files and memory maps, chunk by chunk.

While a chunk is computed on, threads of their own read the next ones. Every round reads the same
rows again; a file that has changed in between is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedcluster.core import Data, Floats, Rows
from fedcluster.errors import InputError
from fedcluster.io._arrays import finite
from fedcluster.io._coding import Coding
from fedcluster.io._files import common_columns, open_table
from fedcluster.io._prefetch import prefetch
from fedcluster.io._reader import Columns, Reader, choose
from fedcluster.io._tables import FilePart, ParquetFile, readable

CHUNK = 1 << 20
"""Values in a chunk: few enough to stay in a cache on their way to the kernels."""


class ParquetRows:
    """The rows of one site in one Parquet file or several, one after the other.

    Parameters
    ----------
    paths : str, Path or sequence of them
        The files; a folder stands for the Parquet files in it, in the order of their names.
    columns : sequence of str, optional
        The columns to read, in this order; by default all those of the first file.
    weight_column : str, optional
        The column with the rows' weights.
    group_column : str, optional
        The column that says whose row it is, where one person has many rows.
    label_column : str, optional
        The column with reference labels.
    owner : str, optional
        How an error message begins, such as "site 'north'"; by default the file.
    advise : callable, optional
        What to do where columns are no numbers, given those that are.
    raw : bool, default=False
        Whether the rows are still to be prepared: text and missing values are allowed.
    coded : sequence of str, optional
        Columns that may hold numbers and text, all of them codes.
    chunk_rows : int, optional
        The largest number of rows in a chunk; by default about a million values, more where the
        columns are many.

    Raises
    ------
    InputError
        If a file is not Parquet, lacks a column or has no row; later, if a value is missing,
        infinite or not a number, or if a file has changed since this object was made.

    Notes
    -----
    In memory are eight chunks at most, and of each column a page, in Parquet usually 1 MB.

    float32 stays float32 where all columns of all files are; otherwise rows are float64.

    Examples
    --------
    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> from fedcluster import Client, State, Task
    >>> from fedcluster.algorithms import Lloyd
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "north.parquet")
    >>> table = pyarrow.table({"age": [30.0, 32.0, 80.0], "dose": [1, 1, 5]})
    >>> pyarrow.parquet.write_table(table, path)
    >>> client = Client("north", ParquetRows(path, chunk_rows=2))
    >>> client.answer(Task(Lloyd(), State.at([[31.0, 1.0], [80.0, 5.0]]))).sums
    array([[62.,  2.,  2.],
           [80.,  5.,  0.]])
    >>> folder.cleanup()
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        columns: Sequence[str] | None = None,
        weight_column: str | None = None,
        *,
        group_column: str | None = None,
        label_column: str | None = None,
        owner: str | None = None,
        advise: Callable[[Sequence[str]], str] = choose,
        raw: bool = False,
        coded: Sequence[str] = (),
        chunk_rows: int | None = None,
    ) -> None:
        given = [paths] if isinstance(paths, str | Path) else paths
        self._owner, self._advise = owner, advise
        self._files = [_parquet(path) for each in given for path in parquet_files(Path(each))]
        self._seen = [FileFingerprint.now(file.path) for file in self._files]
        if not self._files:
            raise InputError("no Parquet file was given")
        self._roles = Columns((), weight_column, group_column, label_column, raw, tuple(coded))
        self.columns = tuple(self._all_columns() if columns is None else columns)
        if not self.columns:
            raise InputError("no column was chosen")
        self._roles = replace(self._roles, values=self.columns)
        for file in self._files:
            Reader(self._name(file), file).check([*self.columns, *self._roles.others])
        narrow = all(file.is_float32(self.columns) for file in self._files)
        self._dtype = np.dtype(np.float32 if narrow else np.float64)
        self.chunk_rows = chunk_rows_of(chunk_rows, len(self.columns))

    def __repr__(self) -> str:
        return f"ParquetRows({[str(file.path) for file in self._files]})"

    def __len__(self) -> int:
        """The number of rows, of those without weight too."""
        return sum(file.n_rows for file in self._files)

    def chunks(self) -> Iterator[Data]:
        """The rows, at most ``chunk_rows`` at a time."""
        return prefetch(map(self._rows, prefetch(self._parts())))

    def load(self) -> Data:
        """All rows."""
        return whole(self.chunks(), (len(self), len(self.columns)), self._dtype)

    def _all_columns(self) -> list[str]:
        file = self._files[0]
        return common_columns(
            {str(file.path): [name for name in file.names if name not in self._roles.others]}
        )

    def _name(self, table: ParquetFile | FilePart) -> str:
        return self._owner or str(table.path)

    def _parts(self) -> Iterator[FilePart]:
        wanted = [*self.columns, *self._roles.others]
        for file, seen in zip(self._files, self._seen, strict=True):
            seen.check()
            yield from file.parts(wanted, self.chunk_rows)
            seen.check()

    def _rows(self, part: FilePart) -> Data:
        data = Reader(self._name(part), part, self._advise).data(self._roles)
        return replace(data, X=data.X.astype(self._dtype, copy=False))


class MemoryMap:
    """The rows of one site in a ``.npy`` file or in a `numpy.memmap`.

    Parameters
    ----------
    rows : str, Path or ndarray of shape (n, d)
        A ``.npy`` file, or an array, of numbers.
    sample_weight : str, Path or ndarray of shape (n,), optional
        The rows' weights.
    chunk_rows : int, optional
        The largest number of rows in a chunk; by default about a million values.

    Raises
    ------
    InputError
        If a file cannot be mapped or is of another shape; later, if a value is missing or
        infinite, or if a file has changed since this object was made.

    Notes
    -----
    Of a ``.npy`` file only the chunk that is read is mapped. Of a `numpy.memmap` all pages that
    were read stay mapped: they count as memory of this process, until the system needs it.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "north.npy")
    >>> np.save(path, np.arange(10.0).reshape(5, 2))
    >>> [len(chunk) for chunk in MemoryMap(path, chunk_rows=2).chunks()]
    [2, 2, 1]
    >>> folder.cleanup()
    """

    def __init__(
        self,
        rows: str | Path | NDArray[Any],
        sample_weight: str | Path | NDArray[Any] | None = None,
        *,
        chunk_rows: int | None = None,
    ) -> None:
        self._rows = ArrayFile.of(rows, "the rows", 2)
        n, d = self._rows.shape
        self._weight = (
            None if sample_weight is None else ArrayFile.of(sample_weight, "the weights", 1)
        )
        if self._weight and self._weight.shape != (n,):
            raise InputError(f"{self._weight.name}: {self._weight.shape[0]} weights for {n} rows")
        self.chunk_rows = chunk_rows_of(chunk_rows, d)

    def __repr__(self) -> str:
        return f"MemoryMap({self._rows.name!r})"

    def __len__(self) -> int:
        """The number of rows, of those without weight too."""
        return self._rows.shape[0]

    def chunks(self) -> Iterator[Data]:
        """The rows, at most ``chunk_rows`` at a time."""
        return prefetch(self._read())

    def load(self) -> Data:
        """All rows."""
        return whole(self.chunks(), self._rows.shape, self._rows.dtype)

    def _read(self) -> Iterator[Data]:
        arrays = [self._rows, *([self._weight] if self._weight else [])]
        for array in arrays:
            array.check()
        for start in range(0, len(self), self.chunk_rows):
            X, *weight = (array.part(slice(start, start + self.chunk_rows)) for array in arrays)
            yield Data(X, _at_least_0(weight[0], start) if weight else None)
        for array in arrays:
            array.check()


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """A file as it was when it was first seen: its size and the time of its last change."""

    path: Path
    size: int
    changed: int

    @classmethod
    def now(cls, path: Path) -> FileFingerprint:
        """A file as it is now."""
        with readable(path):
            found = path.stat()
        return cls(path, found.st_size, found.st_mtime_ns)

    def check(self) -> None:
        """Refuse a file that is no longer the same."""
        now = FileFingerprint.now(self.path)
        if now != self:
            sizes = "" if now.size == self.size else f" from {self.size} to {now.size} bytes"
            raise InputError(
                f"{self.path} has changed{sizes} since it was opened; all rounds must read the "
                "same rows: start again when nobody writes to it"
            )


@dataclass(frozen=True, slots=True, eq=False)
class ArrayFile:
    """An array in a file, or in memory; what is read of it are finite floats.

    Parameters
    ----------
    name : str
        What messages call it.
    source : Seen or ndarray
        The file or the array.
    shape : tuple of int
        Its shape.
    dtype : dtype
        What it is read as: float32 or float64.
    """

    name: str
    source: FileFingerprint | NDArray[Any]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, given: str | Path | NDArray[Any], what: str, ndim: int) -> ArrayFile:
        """See that it is an array of numbers with ``ndim`` axes and some rows."""
        source = FileFingerprint.now(Path(given)) if isinstance(given, str | Path) else given
        name = str(given) if isinstance(source, FileFingerprint) else what
        array = _mapped(source)
        if array.ndim != ndim or array.dtype.kind not in "fiub" or not array.size:
            raise InputError(
                f"{name}: expected {'rows (n, d)' if ndim == 2 else 'weights (n,)'} of numbers, "
                f"not {array.dtype} of shape {array.shape}"
            )
        narrow = array.dtype == np.float32
        return cls(name, source, array.shape, np.dtype(np.float32 if narrow else np.float64))

    def check(self) -> None:
        """Refuse a file that is no longer the same."""
        if isinstance(self.source, FileFingerprint):
            self.source.check()

    def part(self, rows: slice) -> Rows:
        """Some rows, which must be finite."""
        part = self.read(rows)
        finite(None, part.reshape(len(part), -1), f"{self.name}: ", rows.start)
        return part

    def read(self, rows: slice) -> Rows:
        """Some rows, of a file mapped anew, so that their pages go when they do."""
        part: Rows = np.ascontiguousarray(_mapped(self.source)[rows], self.dtype)
        return part


def _at_least_0(weights: Rows, start: int) -> Floats:
    if (weights < 0).any():
        row = start + int(np.argmax(weights < 0))
        raise InputError(f"the weight of row {row} is negative; weights are at least 0")
    return weights.astype(np.float64, copy=False)


def _mapped(source: FileFingerprint | NDArray[Any]) -> NDArray[Any]:
    """An array, of a file its map."""
    if not isinstance(source, FileFingerprint):
        return source
    with readable(source.path):
        try:
            mapped: NDArray[Any] = np.lib.format.open_memmap(source.path, mode="r")
        except ValueError as error:
            raise InputError(f"{source.path} is not a whole .npy file of numbers") from error
    return mapped


def parquet_files(path: Path) -> list[Path]:
    """A Parquet file, or those of a folder in the order of their names."""
    if not path.is_dir():
        return [path]
    files = sorted(each for each in path.iterdir() if each.suffix.lower() in (".parquet", ".pq"))
    if not files:
        raise InputError(f"{path} is a folder without Parquet files (.parquet)")
    return files


def _parquet(path: Path) -> ParquetFile:
    """Open a Parquet file and see that its columns have names of their own."""
    file = open_table(path)
    if not isinstance(file, ParquetFile):
        raise InputError(f"{path} is not Parquet; only Parquet files are read in chunks")
    if len(set(file.names)) < len(file.names):
        raise InputError(f"{path} has two columns of one name; rename one of them")
    if not file.n_rows:
        raise InputError(f"{path} has columns but no rows; add rows or leave the file out")
    return file


def chunk_rows_of(given: int | None, d: int) -> int:
    """How many rows a chunk has: few enough for the cache, enough to be worth a call."""
    if given is not None and given < 1:
        raise InputError(f"chunk_rows must be at least 1, not {given}")
    return given or max(CHUNK // d, min(8192, 8 * CHUNK // d), 1)


def whole(chunks: Iterator[Data], shape: tuple[int, ...], dtype: DTypeLike) -> Data:
    """All chunks as one, without holding the rows twice."""
    X, start, coding = np.empty(shape, dtype), 0, Coding()
    others: list[tuple[Any, ...]] = []
    for chunk in chunks:
        X[start : start + len(chunk)] = coding.recoded(chunk)
        others.append((chunk.sample_weight, chunk.y, chunk.groups))
        start += len(chunk)
    weight, y, groups = (
        None if each[0] is None else np.concatenate(each) for each in zip(*others, strict=True)
    )
    return Data(X, weight, y, coding.columns, groups)
