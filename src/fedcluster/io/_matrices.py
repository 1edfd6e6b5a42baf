"""Matrices whose columns have names: ``.npy``, sparse rows of counts, AnnData.

Sparse rows become dense float32 chunk by chunk: the kernels work on dense rows, and a chunk has
at most 8 million values, 32 MB.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats, Rows
from fedcluster.errors import InputError
from fedcluster.io._arrays import finite
from fedcluster.io._prefetch import prefetch
from fedcluster.io._reader import Columns, has_columns
from fedcluster.io._streams import ArrayFile, FileFingerprint, chunk_rows_of, whole
from fedcluster.io._tables import readable
from fedcluster.io._values import numbered_groups


@runtime_checkable
class Matrix(Protocol):
    """Rows of numbers (n, d) that are read some at a time."""

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

    def known(self, column: str) -> NDArray[Any]:
        """What else is known of each row, (n,)."""
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
    columns : Columns or sequence of str, optional
        The columns to cluster by; by default all.
    owner : str, default="the rows"
        How an error message begins, such as "site 'north'".
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
        columns: Columns | Sequence[str] | None = None,
        *,
        owner: str = "the rows",
        chunk_rows: int | None = None,
    ) -> None:
        if scipy.sparse.issparse(matrix):
            matrix = SparseMatrix(matrix)
        self._matrix: Matrix = matrix
        given = self._matrix.names if columns is None else columns
        roles = given if isinstance(given, Columns) else Columns(tuple(given))
        has_columns(owner, self._matrix.names, roles.values)
        for name in roles.others:
            if name not in self._matrix.beside:
                known = ", ".join(self._matrix.beside) or "no such columns"
                raise InputError(
                    f"{owner} has no column {name!r} beside the matrix; it has {known}"
                )
        self._roles, self._owner = roles, owner
        place = {name: j for j, name in enumerate(self._matrix.names)}
        chosen = np.array([place[name] for name in roles.values], dtype=np.intp)
        everything = roles.values == self._matrix.names
        self._chosen = None if everything else chosen
        self._chunk_rows = chunk_rows_of(chunk_rows, len(chosen))

    def __repr__(self) -> str:
        return f"MatrixRows({self._matrix!r})"

    def __len__(self) -> int:
        """The number of rows, of those without weight too."""
        return self._matrix.n_rows

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to cluster by."""
        return self._roles.values

    def chunks(self) -> Iterator[Data]:
        """The rows, at most ``chunk_rows`` at a time."""
        return prefetch(self._read())

    def load(self) -> Data:
        """All rows, dense."""
        return whole(self.chunks(), (len(self), len(self.columns)), self._matrix.dtype)

    def _read(self) -> Iterator[Data]:
        self._matrix.check()
        beside = self._beside()
        for start in range(0, len(self), self._chunk_rows):
            rows = slice(start, start + self._chunk_rows)
            X = self._matrix.block(rows, self._chosen)
            if not self._roles.raw:
                finite(None, X, f"{self._owner}, ", start)
            yield replace(beside.take(rows), X=X, columns=tuple(map(Column, self.columns)))
        self._matrix.check()

    def _beside(self) -> Data:
        """Weights, labels and groups of all rows, without their values."""
        weight, group, label = self._roles.weight, self._roles.group, self._roles.label
        known = self._matrix.known
        return Data(
            np.empty((len(self), 0)),
            None if weight is None else self._weights(weight, known(weight)),
            None if label is None else known(label).astype(np.str_),
            groups=None if group is None else numbered_groups(known(group).astype(np.str_)),
        )

    def _weights(self, name: str, given: NDArray[Any]) -> Floats:
        try:
            weights = given.astype(np.float64)
        except ValueError as error:
            raise InputError(f"{self._owner}, column {name!r}: weights must be numbers") from error
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise InputError(f"{self._owner}, column {name!r}: weights must be finite, at least 0")
        return weights


def opened_matrix(path: Path, names: Sequence[str] | None, key: str | None) -> Matrix | None:
    """Open a matrix in a file; None if the file is of another kind."""
    kind = path.suffix.lower()
    if kind == ".h5ad":
        return AnnDataMatrix(path, key or "X")
    if kind in (".npy", ".npz"):
        return NpyMatrix(path, names) if kind == ".npy" else SparseMatrix.read(path, names)
    if key is not None or names is not None:
        what = "matrix is for .h5ad" if key is not None else "names is for .npy and .npz"
        raise InputError(f"{what}, and {path} is none")
    return None


def _named(names: Sequence[str] | None, d: int, what: object) -> tuple[str, ...]:
    if names is not None and len(names) != d:
        raise InputError(f"{what} has {d} columns, but names lists {len(names)}")
    return tuple(f"x{j}" for j in range(d)) if names is None else tuple(names)


class _Bare:
    """A matrix that knows nothing else of its rows."""

    beside: tuple[str, ...] = ()

    def known(self, column: str) -> NDArray[Any]:
        """Nothing."""
        raise KeyError(column)

    def check(self) -> None:
        """Nothing to check."""


class NpyMatrix(_Bare):
    """A ``.npy`` file, of which only the rows that are read are mapped."""

    def __init__(self, path: Path, names: Sequence[str] | None = None) -> None:
        self._array = ArrayFile.of(path, str(path), 2)
        self.n_rows, d = self._array.shape
        self.names, self.dtype = _named(names, d, path), self._array.dtype

    def block(self, rows: slice, columns: NDArray[np.intp] | None) -> Rows:
        """Some rows."""
        found = self._array.read(rows)
        return found if columns is None else np.ascontiguousarray(found[:, columns])

    def check(self) -> None:
        """Refuse a file that is no longer the same."""
        self._array.check()


class SparseMatrix(_Bare):
    """Sparse rows in memory, such as counts of genes or of words."""

    dtype = np.dtype(np.float32)

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
        """Some rows, dense."""
        return _dense(self._matrix[rows], columns)


class AnnDataMatrix:
    """A matrix of an ``.h5ad`` file; what is known of each row is its table ``obs``.

    Parameters
    ----------
    path : Path
        The file.
    key : str
        "X", "layers/NAME" or "obsm/NAME".
    """

    dtype = np.dtype(np.float32)

    def __init__(self, path: Path, key: str = "X") -> None:
        try:
            import anndata
        except ImportError as error:
            raise InputError(
                f"reading {path} needs anndata: pip install 'fedcluster[anndata]'"
            ) from error
        self._seen, self._key = FileFingerprint.now(path), key
        with readable(path):
            self._file = anndata.read_h5ad(path, backed="r")
        self.beside = tuple(map(str, self._file.obs.columns))
        self._matrix, self.names = self._of(key, path)
        self.n_rows = int(self._matrix.shape[0])

    def _of(self, key: str, path: Path) -> tuple[Any, tuple[str, ...]]:
        """The matrix and the names of its columns."""
        place, _, name = key.partition("/")
        if key == "X":
            return self._file.X, tuple(map(str, self._file.var_names))
        if place not in ("layers", "obsm") or name not in getattr(self._file, place):
            raise InputError(f"{path} has no matrix {key!r}; write X, layers/NAME or obsm/NAME")
        found = getattr(self._file, place)[name]
        if place == "layers":
            return found, tuple(map(str, self._file.var_names))
        return found, tuple(f"{name}_{j}" for j in range(found.shape[1]))

    def __repr__(self) -> str:
        return f"AnnDataMatrix({str(self._seen.path)!r}, {self._key!r})"

    def block(self, rows: slice, columns: NDArray[np.intp] | None) -> Rows:
        """Some rows, dense."""
        return _dense(self._matrix[rows], columns)

    def known(self, column: str) -> NDArray[Any]:
        """A column of ``obs``."""
        found = self._file.obs[column]
        if found.isna().any():
            raise InputError(f"{self._seen.path}, column {column!r} of obs: a value is missing")
        return np.asarray(found)

    def check(self) -> None:
        """Refuse a file that is no longer the same."""
        self._seen.check()


def _dense(block: Any, columns: NDArray[np.intp] | None) -> Rows:
    """Some rows as dense float32; columns are chosen before."""
    if columns is not None:
        block = block[:, columns]
    dense = block.toarray() if scipy.sparse.issparse(block) else block
    rows: Rows = np.ascontiguousarray(dense, np.float32)
    return rows
