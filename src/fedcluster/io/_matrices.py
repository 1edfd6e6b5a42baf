"""Matrices whose columns have names: ``.npy``, sparse rows of counts, AnnData.

Sparse rows become dense float32 chunk by chunk: the kernels work on dense rows, and a chunk has
at most 8 million values, 32 MB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats, Rows
from fedcluster.errors import InputError
from fedcluster.io._cells import numbered_groups
from fedcluster.io._columns import has_columns
from fedcluster.io._frames import finite
from fedcluster.io._reader import ColumnRoles
from fedcluster.io._rows import FileFingerprint, chunk_rows_of, prefetch, readable, whole


@runtime_checkable
class Matrix(Protocol):
    """What a format that holds a matrix gives: rows of numbers (n, d), some at a time."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the d columns."""
        ...

    @property
    def beside(self) -> tuple[str, ...]:
        """The names of what else is known of each row."""
        ...

    @property
    def n_rows(self) -> int:
        """N."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """What the rows are read as: float32 or float64."""
        ...

    def block(self, rows: slice, columns: NDArray[np.intp] | None) -> Rows:
        """Some rows, all or some of the columns, dense."""
        ...

    def known(self, column: str, rows: slice) -> NDArray[Any]:
        """What else is known of some rows, (n,)."""
        ...

    def check(self) -> None:
        """Refuse a file that is no longer the same."""
        ...


class MatrixRows:
    """The rows of one site in a matrix.

    Parameters
    ----------
    matrix : Matrix, or a sparse matrix or array of shape (n, d)
        Where they lie.
    columns : ColumnRoles or sequence of str, optional
        The columns to cluster by; by default all.
    owner : str, default="the rows"
        How an error message begins, such as "site 'north'".
    where : str, optional
        How one about a row begins; by default with the owner and a comma.
    chunk_rows : int, optional
        The largest number of rows in a chunk; by default about a million values, more where the
        columns are many.

    Raises
    ------
    InputError
        If it lacks a column; later, if a value is missing or infinite, or if a file has changed.

    Examples
    --------
    >>> counts = scipy.sparse.csr_array([[0, 3, 0], [1, 0, 0], [0, 0, 2]])
    >>> rows = MatrixRows(counts, chunk_rows=2)
    >>> [chunk.X.tolist() for chunk in rows.chunks()]
    [[[0.0, 3.0, 0.0], [1.0, 0.0, 0.0]], [[0.0, 0.0, 2.0]]]
    >>> rows.load().X.dtype
    dtype('float32')
    """

    def __init__(
        self,
        matrix: Matrix | Any,
        columns: ColumnRoles | Sequence[str] | None = None,
        *,
        owner: str = "the rows",
        where: str | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        if scipy.sparse.issparse(matrix):
            matrix = SparseMatrix(matrix)
        self._matrix: Matrix = matrix
        names = self._matrix.names
        roles = ColumnRoles.from_columns(columns, names)
        has_columns(owner, names, roles.chosen)
        for name in roles.others:
            if name not in self._matrix.beside:
                known = ", ".join(self._matrix.beside) or "no such columns"
                raise InputError(
                    f"{owner} has no column {name!r} beside the matrix; it has {known}"
                )
        self._roles = roles
        self._where = f"{owner}, " if where is None else where
        place = {name: j for j, name in enumerate(names)}
        chosen = np.array([place[name] for name in roles.chosen], dtype=np.intp)
        self._chosen = None if roles.chosen == names else chosen
        self.chunk_rows = chunk_rows_of(chunk_rows, len(chosen))

    def __repr__(self) -> str:
        return f"MatrixRows({self._matrix!r})"

    def __len__(self) -> int:
        """Return the number of rows, of those without weight too."""
        return self._matrix.n_rows

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns to cluster by."""
        return self._roles.chosen

    def chunks(self) -> Iterator[Data]:
        """Return the rows, at most ``chunk_rows`` at a time."""
        return prefetch(self._read())

    def load(self) -> Data:
        """Return all rows, dense."""
        return whole(self.chunks(), (len(self), len(self.columns)), self._matrix.dtype)

    def texts(self, column: str) -> NDArray[np.str_]:
        """Return what else is known of each row as text, (n,)."""
        return self._matrix.known(column, slice(None)).astype(np.str_)

    def _read(self) -> Iterator[Data]:
        self._matrix.check()
        columns = tuple(map(Column, self.columns))
        for start in range(0, len(self), self.chunk_rows):
            rows = slice(start, start + self.chunk_rows)
            X = self._matrix.block(rows, self._chosen)
            if not self._roles.raw:
                finite(None, X, self._where, start)
            yield self._with_others(X, columns, rows)
        self._matrix.check()

    def _with_others(self, X: Rows, columns: tuple[Column, ...], rows: slice) -> Data:
        """Return some rows with their weights, labels and groups."""
        weight, label, group = (
            None if name is None else self._matrix.known(name, rows)
            for name in (self._roles.weight, self._roles.label, self._roles.group)
        )
        return Data(
            X,
            None if weight is None else self._weights(weight, rows.start),
            None if label is None else label.astype(np.str_),
            columns,
            None if group is None else numbered_groups(group.astype(np.str_)),
        )

    def _weights(self, given: NDArray[Any], start: int) -> Floats:
        where = f"{self._where}column {self._roles.weight!r}: "
        try:
            weights: Floats = given.astype(np.float64, copy=False)
        except ValueError as error:
            raise InputError(f"{where}weights must be numbers") from error
        bad = ~(np.isfinite(weights) & (weights >= 0))
        if bad.any():
            row = int(bad.argmax())
            what = "negative" if weights[row] < 0 else "not finite"
            raise InputError(
                f"{where}the weight of row {start + row} is {what}; weights are at least 0"
            )
        return weights


def _named(names: Sequence[str] | None, d: int, what: object) -> tuple[str, ...]:
    if names is not None and len(names) != d:
        raise InputError(f"{what} has {d} columns, but names lists {len(names)}")
    return tuple(f"x{j}" for j in range(d)) if names is None else tuple(names)


class NpyMatrix:
    """An array in a ``.npy`` file or in memory, and perhaps another with the rows' weights.

    Of a file only the rows that are read are mapped.
    """

    def __init__(
        self,
        rows: Path | NDArray[Any],
        names: Sequence[str] | None = None,
        weights: Path | NDArray[Any] | None = None,
    ) -> None:
        self._rows, (self.n_rows, d), self.dtype = _checked(rows, "the rows", 2)
        self.names = _named(names, d, _name(rows, "the array"))
        self.beside: tuple[str, ...] = ("weight",) if weights is not None else ()
        self._weights: FileFingerprint | NDArray[Any] | None = None
        if weights is not None:
            self._weights, (n,), _ = _checked(weights, "the weights", 1)
            if n != self.n_rows:
                raise InputError(
                    f"{_name(weights, 'the weights')}: {n} weights for {self.n_rows} rows"
                )

    def block(self, rows: slice, columns: NDArray[np.intp] | None) -> Rows:
        """Return some rows, of a file mapped anew, so that their pages go when they do."""
        block = np.ascontiguousarray(_mapped(self._rows)[rows], self.dtype)
        return block if columns is None else np.ascontiguousarray(block[:, columns])

    def known(self, column: str, rows: slice) -> NDArray[Any]:
        """Return the weights of some rows."""
        assert self._weights is not None
        return np.array(_mapped(self._weights)[rows])

    def check(self) -> None:
        """Refuse a file that is no longer the same."""
        for source in (self._rows, self._weights):
            if isinstance(source, FileFingerprint):
                source.check()


def _checked(
    given: Path | NDArray[Any], what: str, ndim: int
) -> tuple[FileFingerprint | NDArray[Any], tuple[int, ...], np.dtype[Any]]:
    """See that it is an array of numbers with ``ndim`` axes and some rows."""
    source = FileFingerprint.now(given) if isinstance(given, Path) else given
    array = _mapped(source)
    if array.ndim != ndim or array.dtype.kind not in "fiub" or not array.size:
        raise InputError(
            f"{_name(given, what)}: expected {'rows (n, d)' if ndim == 2 else 'weights (n,)'} of "
            f"numbers, not {array.dtype} of shape {array.shape}"
        )
    return source, array.shape, np.dtype(np.float32 if array.dtype == np.float32 else np.float64)


def _name(given: Path | NDArray[Any], what: str) -> str:
    return str(given) if isinstance(given, Path) else what


def _mapped(source: FileFingerprint | NDArray[Any]) -> NDArray[Any]:
    """Return an array, of a file its map."""
    if not isinstance(source, FileFingerprint):
        return source
    with readable(source.path):
        try:
            mapped: NDArray[Any] = np.lib.format.open_memmap(source.path, mode="r")
        except ValueError as error:
            raise InputError(f"{source.path} is not a whole .npy file of numbers") from error
    return mapped


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
        given = Path(rows) if isinstance(rows, str) else rows
        weights = Path(sample_weight) if isinstance(sample_weight, str) else sample_weight
        matrix = NpyMatrix(given, weights=weights)
        self._name = _name(given, "the rows")
        roles = ColumnRoles(weight=None if weights is None else "weight")
        self._chunks = MatrixRows(matrix, roles, where=f"{self._name}: ", chunk_rows=chunk_rows)

    def __repr__(self) -> str:
        return f"MemoryMap({self._name!r})"

    def __len__(self) -> int:
        """Return the number of rows, of those without weight too."""
        return len(self._chunks)

    def chunks(self) -> Iterator[Data]:
        """Return the rows, at most ``chunk_rows`` at a time."""
        return self._chunks.chunks()

    def load(self) -> Data:
        """Return all rows."""
        return self._chunks.load()


class SparseMatrix:
    """Sparse rows in memory, such as counts of genes or of words."""

    dtype = np.dtype(np.float32)
    beside: tuple[str, ...] = ()

    def __init__(self, matrix: Any, names: Sequence[str] | None = None) -> None:
        self._matrix = scipy.sparse.csr_array(matrix)
        if self._matrix.dtype.kind not in "fiub" or not self._matrix.shape[0]:
            raise InputError(f"expected sparse rows (n, d) of numbers, not {matrix!r}")
        self.n_rows, d = self._matrix.shape
        self.names = _named(names, d, "the sparse matrix")

    @classmethod
    def read(cls, path: Path, names: Sequence[str] | None = None) -> SparseMatrix:
        """Read what `scipy.sparse.save_npz` wrote."""
        try:
            with readable(path):
                return cls(scipy.sparse.load_npz(path), names)
        except (ValueError, KeyError) as error:
            raise InputError(f"{path}: {error}; save it with scipy.sparse.save_npz") from error

    def block(self, rows: slice, columns: NDArray[np.intp] | None) -> Rows:
        """Return some rows, dense."""
        return _dense(self._matrix[rows], columns)

    def known(self, column: str, rows: slice) -> NDArray[Any]:
        """Return nothing: no other column is known."""
        raise KeyError(column)

    def check(self) -> None:
        """Check nothing: the matrix is in memory."""


class AnnDataMatrix:
    """A matrix of an ``.h5ad`` file; what is known of each row is its table ``obs``.

    Parameters
    ----------
    path : Path
        The file.
    matrix : str, default="X"
        "X", "layers/NAME" or "obsm/NAME".
    """

    dtype = np.dtype(np.float32)

    def __init__(self, path: Path, matrix: str | None = None) -> None:
        try:
            import anndata  # an optional extra
        except ImportError as error:
            raise InputError(
                f"reading {path} needs anndata: pip install 'fedcluster[anndata]'"
            ) from error
        self._seen, self._key = FileFingerprint.now(path), matrix or "X"
        with readable(path):
            self._file = anndata.read_h5ad(path, backed="r")
        self.beside = tuple(map(str, self._file.obs.columns))
        self._matrix, self.names = self._of(self._key, path)
        self.n_rows = int(self._matrix.shape[0])

    def _of(self, key: str, path: Path) -> tuple[Any, tuple[str, ...]]:
        """Return the matrix and the names of its columns."""
        place, _, name = key.partition("/")
        if key == "X":
            return self._file.X, tuple(map(str, self._file.var_names))
        if place not in ("layers", "obsm") or name not in getattr(self._file, place):
            raise InputError(f"{path} has no matrix {key!r}; write X, layers/NAME or obsm/NAME")
        matrix = getattr(self._file, place)[name]
        if place == "layers":
            return matrix, tuple(map(str, self._file.var_names))
        return matrix, tuple(f"{name}_{j}" for j in range(matrix.shape[1]))

    def __repr__(self) -> str:
        return f"AnnDataMatrix({str(self._seen.path)!r}, {self._key!r})"

    def block(self, rows: slice, columns: NDArray[np.intp] | None) -> Rows:
        """Return some rows, dense."""
        return _dense(self._matrix[rows], columns)

    def known(self, column: str, rows: slice) -> NDArray[Any]:
        """Return some rows of a column of ``obs``."""
        values = self._file.obs[column]
        if values.isna().any():
            raise InputError(f"{self._seen.path}, column {column!r} of obs: a value is missing")
        return np.asarray(values)[rows]

    def check(self) -> None:
        """Refuse a file that is no longer the same."""
        self._seen.check()


def _dense(block: Any, columns: NDArray[np.intp] | None) -> Rows:
    """Return some rows as dense float32; columns are chosen before."""
    if columns is not None:
        block = block[:, columns]
    dense = block.toarray() if scipy.sparse.issparse(block) else block
    rows: Rows = np.ascontiguousarray(dense, np.float32)
    return rows
