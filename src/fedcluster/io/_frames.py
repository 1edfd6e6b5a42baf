"""Data frames and arrays as rows that are still to be prepared: numbers, texts, missing values."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats
from fedcluster.io._arrays import column_names, finite, side_by_side


def raw_rows(table: Any, sample_weight: Floats | None = None, where: str = "") -> Data:
    """A table as rows whose columns are known, NaN where a value is missing.

    Parameters
    ----------
    table : Data, data frame or array of shape (n, d)
        What to read; text is allowed, None, NaN and the libraries' own signs are missing values.
    sample_weight : ndarray of shape (n,), optional
        The rows' weights.
    where : str
        How an error message begins.

    Raises
    ------
    ValueError
        If it has not two axes, no row or no column, or an infinite value.

    Examples
    --------
    >>> rows = raw_rows(np.array([["M", 3], ["F", None]], dtype=object))
    >>> rows.X
    array([[ 1.,  3.],
           [ 0., nan]])
    >>> [column.levels for column in rows.columns]
    [('F', 'M'), ()]
    """
    if isinstance(table, Data):
        return table
    names = column_names(table)
    if names is None:
        array = np.asarray(table)
        if array.ndim != 2 or not array.size:
            raise ValueError(f"{where}expected rows (n, d), not an array of shape {array.shape}")
        columns = [array[:, j] for j in range(array.shape[1])]
    else:
        columns = [np.asarray(table[name]) for name in names]
        if not columns or not len(columns[0]):
            raise ValueError(f"{where}the table has no rows or no columns")
    read = [
        _column(name, values)
        for name, values in zip(names or _numbered(len(columns)), columns, strict=True)
    ]
    X = side_by_side([values for _, values in read])
    finite(table, np.where(np.isnan(X), 0.0, X), where)
    known = tuple(column for column, _ in read)
    plain = names is None and all(column.kind == "number" for column in known)
    return Data(X, sample_weight, columns=() if plain else known)


def _numbered(d: int) -> list[str]:
    return [f"x{j}" for j in range(d)]


def _column(name: str, values: NDArray[Any]) -> tuple[Column, NDArray[np.floating[Any]]]:
    """What a column is, and its values or codes."""
    nothing = np.full(len(values), np.nan)
    if values.dtype.kind == "M":
        return Column(name, "date"), nothing
    if values.dtype.kind in "fiub":
        narrow = values.dtype == np.float32
        return Column(name), values.astype(np.float32 if narrow else np.float64)
    there = np.array([not is_missing(value) for value in values])
    given = values[there].tolist()
    if any(isinstance(value, datetime.date) for value in given):
        return Column(name, "date"), nothing
    texts = [isinstance(value, str) for value in given]
    if not any(texts):
        nothing[there] = np.array(given, dtype=np.float64)
        return Column(name), nothing
    if not all(texts):
        return Column(name, "mixed"), nothing
    levels, codes = np.unique(np.array(given, dtype=np.str_), return_inverse=True)
    nothing[there] = codes
    return Column(name, "text", tuple(levels.tolist())), nothing


def is_missing(value: Any) -> bool:
    """Whether a value of a table stands for none: None, NaN, blank, or a library's own sign."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return bool(value != value) or (isinstance(value, str) and not value.strip())
