"""Matrices whose columns have names: ``.npy``, sparse matrices of counts, AnnData.

Sparse rows are converted to dense float32 in chunks of at most 8 million values, 32 MB, because the
kernels work on dense rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats, Rows
from fedcluster.errors import InputError
from fedcluster.frames.cells import numbered_groups
from fedcluster.frames.columns import has_columns, in_common_codes
from fedcluster.frames.reader import ColumnRoles
from fedcluster.frames.rows import (
    FileFingerprint,
    StreamedRows,
    check_finite,
    chunk_rows_of,
    readable,
    reading_with,
)

Array = FileFingerprint | NDArray[Any]
"""An array in memory, or the ``.npy`` file that holds it."""


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Rows of numbers (n, d), read some at a time; a matrix format returns it.

    Parameters
    ----------
    title : str
        Its name in messages.
    names : tuple of str
        The names of the d columns.
    n_rows : int
        n.
    dtype : dtype
        The type of the rows when read: float32 or float64.
    block : callable
        ``block(rows)`` returns some rows as they are stored, dense or sparse.
    beside : mapping of str to callable
        Further data of the rows, by name: ``known(rows)`` returns an array (n,).
    files : tuple of FileFingerprint
        The files, which must not change.
    """

    title: str
    names: tuple[str, ...]
    n_rows: int
    dtype: np.dtype[Any]
    block: Callable[[slice], Any] = field(repr=False)
    beside: Mapping[str, Callable[[slice], NDArray[Any]]] = field(default_factory=dict)
    files: tuple[FileFingerprint, ...] = ()
    held_values = 1 << 26  # largest number of values that a command holds: half a gigabyte

    def dense(self, rows: slice, columns: NDArray[np.intp] | None = None) -> Rows:
        """Return some rows as a dense array, with all or some of the columns."""
        block = self.block(rows)
        block = block if columns is None else block[:, columns]
        block = block.toarray() if scipy.sparse.issparse(block) else block
        dense: Rows = np.ascontiguousarray(block, self.dtype)
        return dense

    def chunks(self) -> Iterator[Data]:
        """Yield all columns of the rows in chunks, without checking values."""
        columns, size = tuple(map(Column, self.names)), chunk_rows_of(None, len(self.names))
        for start in range(0, self.n_rows, size):
            yield Data(self.dense(slice(start, start + size)), columns=columns)

    def check(self) -> None:
        """Raise an error if a file has changed."""
        for file in self.files:
            file.check()

    def weighed(self, weights: Path | NDArray[Any]) -> Matrix:
        """Return the same rows with weights (n,), in memory or from a ``.npy`` file."""
        name = str(weights) if isinstance(weights, Path) else "the weights"
        source, array = _checked(weights, name, 1)
        if len(array) != self.n_rows:
            raise InputError(f"{name}: {len(array)} weights for {self.n_rows} rows")
        beside = {**self.beside, "weight": lambda part: np.array(_mapped(source)[part])}
        return replace(self, beside=beside, files=(*self.files, *_files(source)))


def matrix_rows(
    matrix: Matrix, roles: ColumnRoles, owner: str, chunk_rows: int | None = None
) -> StreamedRows:
    """Return the rows of a matrix in chunks, with weights, groups and labels.

    Parameters
    ----------
    matrix : Matrix
        The matrix.
    roles : ColumnRoles
        The roles of its columns, and of those beside it.
    owner : str
        The beginning of an error message, such as "site 'north'".
    chunk_rows : int, optional
        The largest number of rows in a chunk; by default about 262,000 values, more if there are
        many columns.

    Examples
    --------
    >>> counts = scipy.sparse.csr_array([[0, 3, 0], [1, 0, 0], [0, 0, 2]])
    >>> roles = ColumnRoles(("x0", "x1", "x2"))
    >>> rows = matrix_rows(sparse_matrix(counts), roles, "the rows", chunk_rows=2)
    >>> [chunk.X.tolist() for chunk in rows.chunks()]
    [[[0.0, 3.0, 0.0], [1.0, 0.0, 0.0]], [[0.0, 0.0, 2.0]]]
    >>> rows.load().X.dtype
    dtype('float32')
    """
    names, chosen = matrix.names, roles.chosen
    has_columns(owner, names, chosen)
    if lacking := [name for name in roles.others if name not in matrix.beside]:
        known = ", ".join(matrix.beside) or "no such columns"
        raise InputError(f"{owner} has no column {lacking[0]!r} beside the matrix; it has {known}")
    size = chunk_rows_of(chunk_rows, len(chosen))
    columns, place = tuple(map(Column, chosen)), {name: j for j, name in enumerate(names)}
    wanted = None if chosen == names else np.array([place[name] for name in chosen], np.intp)
    where = f"{owner}{': ' if owner == matrix.title else ', '}column {roles.weight!r}"

    def chunks() -> Iterator[Data]:
        matrix.check()
        for start in range(0, matrix.n_rows, size):
            rows = slice(start, start + size)
            X = matrix.dense(rows, wanted)
            check_finite(X, chosen, owner, start, gaps=roles.raw)
            weight, label, group = (
                None if name is None else matrix.beside[name](rows)
                for name in (roles.weight, roles.label, roles.group)
            )
            data = Data(
                X,
                None if weight is None else _checked_weights(weight, where, start),
                None if label is None else label.astype(np.str_),
                columns,
                None if group is None else numbered_groups(group.astype(np.str_)),
            )
            yield in_common_codes(data, roles.meanings, owner)
        matrix.check()

    return StreamedRows(
        matrix.title, chosen, matrix.dtype, lambda: matrix.n_rows, chunks, roles.beside
    )


def _checked_weights(values: NDArray[Any], where: str, start: int) -> Floats:
    """Return weights as non-negative numbers."""
    try:
        weights: Floats = values.astype(np.float64, copy=False)
    except ValueError as error:
        raise InputError(f"{where}: weights must be numbers") from error
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        row = int(bad.argmax())
        what = "negative" if weights[row] < 0 else "not finite"
        raise InputError(
            f"{where}: the weight of row {start + row} is {what}; weights are at least 0"
        )
    return weights


def _named(names: Sequence[str] | None, d: int, what: object) -> tuple[str, ...]:
    if names is not None and len(names) != d:
        raise InputError(f"{what} has {d} columns, but names lists {len(names)}")
    return tuple(f"x{j}" for j in range(d)) if names is None else tuple(names)


def open_npy(rows: Path | NDArray[Any], names: Sequence[str] | None = None) -> Matrix:
    """Open an array in memory or in a ``.npy`` file.

    Only the rows being read are memory-mapped, anew each time, so that their pages are freed with
    them.
    """
    title = str(rows) if isinstance(rows, Path) else "the rows"
    source, array = _checked(rows, title, 2)
    return Matrix(
        title,
        _named(names, array.shape[1], title),
        len(array),
        np.dtype(np.float32 if array.dtype == np.float32 else np.float64),
        lambda part: _numbers(_mapped(source)[part]),
        files=_files(source),
    )


def _numbers(rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows as numbers: bfloat16, for which NumPy only knows two bytes, as float32.

    Examples
    --------
    >>> _numbers(np.array([0x3F80, 0xC020], np.uint16).view("V2"))
    array([ 1. , -2.5], dtype=float32)
    """
    if rows.dtype != "V2":
        return rows
    wide: NDArray[Any] = (rows.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return wide


def _files(source: Array) -> tuple[FileFingerprint, ...]:
    return (source,) if isinstance(source, FileFingerprint) else ()


def _checked(place: Path | NDArray[Any], what: str, ndim: int) -> tuple[Array, NDArray[Any]]:
    """Return the source of an array, and the array, after checking its type and ``ndim``."""
    source = FileFingerprint.now(place) if isinstance(place, Path) else place
    array = _mapped(source)
    is_known = array.dtype.kind in "fiub" or array.dtype == "V2"  # bfloat16
    if array.ndim != ndim or not is_known or not array.size:
        raise InputError(
            f"{what}: expected {'rows (n, d)' if ndim == 2 else 'weights (n,)'} of numbers, "
            f"not {array.dtype} of shape {array.shape}"
        )
    return source, array


def _mapped(source: Array) -> NDArray[Any]:
    """Return an array; for a file, its memory map."""
    if not isinstance(source, FileFingerprint):
        return source
    with readable(source.path):
        try:
            mapped: NDArray[Any] = np.lib.format.open_memmap(source.path, mode="r")
        except ValueError as error:
            raise InputError(f"{source.path} is not a whole .npy file of numbers") from error
    return mapped


def open_npz(path: Path, names: Sequence[str] | None = None) -> Matrix:
    """Read a file written by `scipy.sparse.save_npz`."""
    try:
        with readable(path):
            return sparse_matrix(scipy.sparse.load_npz(path), names)
    except (ValueError, KeyError) as error:
        raise InputError(f"{path}: {error}; save it with scipy.sparse.save_npz") from error


def sparse_matrix(matrix: Any, names: Sequence[str] | None = None) -> Matrix:
    """Return sparse rows in memory, such as counts of genes or of words, as a `Matrix`."""
    rows = scipy.sparse.csr_array(matrix)
    if rows.dtype.kind not in "fiub" or not rows.shape[0]:
        raise InputError(f"expected sparse rows (n, d) of numbers, not {matrix!r}")
    names = _named(names, rows.shape[1], "the sparse matrix")
    dtype = np.dtype(np.float32)
    return Matrix("the sparse matrix", names, rows.shape[0], dtype, lambda part: rows[part])


def open_h5ad(path: Path, matrix: str | None = None) -> Matrix:
    """Open a matrix of an ``.h5ad`` file, whose table ``obs`` describes the rows.

    Parameters
    ----------
    path : Path
        The file.
    matrix : str, optional
        "X", which is the default, "layers/NAME" or "obsm/NAME".
    """
    with reading_with("anndata", path):
        import anndata  # optional extra
    seen = FileFingerprint.now(path)
    with readable(path):
        file = anndata.read_h5ad(path, backed="r")
    rows, names = _matrix_of(file, matrix or "X", path)

    def known(column: str, part: slice) -> NDArray[Any]:
        values = file.obs[column]
        if values.isna().any():
            raise InputError(f"{path}, column {column!r} of obs: a value is missing")
        return np.asarray(values)[part]

    return Matrix(
        str(path),
        names,
        int(rows.shape[0]),
        np.dtype(np.float32),
        lambda part: rows[part],
        {str(column): partial(known, column) for column in file.obs.columns},
        (seen,),
    )


def _matrix_of(file: Any, key: str, path: Path) -> tuple[Any, tuple[str, ...]]:
    """Return a matrix of AnnData and the names of its columns."""
    place, _, name = key.partition("/")
    if key == "X":
        return file.X, tuple(map(str, file.var_names))
    if place not in ("layers", "obsm") or name not in getattr(file, place):
        raise InputError(f"{path} has no matrix {key!r}; write X, layers/NAME or obsm/NAME")
    matrix = getattr(file, place)[name]
    if place == "layers":
        return matrix, tuple(map(str, file.var_names))
    return matrix, tuple(f"{name}_{j}" for j in range(matrix.shape[1]))
