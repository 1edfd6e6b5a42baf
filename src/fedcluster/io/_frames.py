"""Tables in memory: arrays, data frames and their like, with their columns and what they hold."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats, Rows
from fedcluster.io._columns import is_missing
from fedcluster.io._dates import days_of_values, numbers_of

BLOCK = 1 << 17
"""Values that are turned from columns into rows while they stay in the cache."""


def column_names(table: Any) -> list[str] | None:
    """Return the names of a table's columns; None for an array, or where they are not strings."""
    columns = getattr(table, "columns", None)
    if isinstance(table, Data):
        return [column.name for column in table.columns] or None
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return list(columns)


def in_order(table: Any, names: Sequence[str], where: str) -> Any:
    """Return a table with its columns by name in the order of ``names``; an array as it is.

    Raises
    ------
    ValueError
        If it lacks one of them, or has others besides.
    """
    have = column_names(table)
    if have is None or have == list(names):
        return table
    lacking = [name for name in names if name not in have]
    extra = [name for name in have if name not in names]
    if lacking or extra:
        what = " and ".join(
            f"{verb} {', '.join(map(repr, those))}"
            for verb, those in (("lacks", lacking), ("alone has", extra))
            if those
        )
        raise ValueError(f"{where}columns: {what}; every site must have the same columns")
    if isinstance(table, Data):
        place = [have.index(name) for name in names]
        return replace(table, X=table.X[:, place], columns=tuple(table.columns[j] for j in place))
    return table[list(names)]


def numeric(table: Any, where: str) -> None:
    """Refuse a table with text that is not a number, naming the first such cell."""
    rows = np.asarray(table)
    if rows.dtype.kind not in "OUS" or rows.ndim != 2:
        return
    for i, j in np.ndindex(rows.shape):
        value: Any = rows[i, j]
        if isinstance(value, str) and not _is_number(value):
            raise ValueError(
                f"{where}{_cell(table, i, j)}: could not convert string to float: {str(value)!r}; "
                "choose numeric columns or turn the text into numbers"
            )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def finite(table: Any, rows: NDArray[Any], where: str, start: int = 0) -> None:
    """Refuse rows with a value that is NaN or infinite, naming the first such cell.

    The first row's number is ``start``.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(rows.sum()):
            return
    bad = np.argwhere(~np.isfinite(rows))
    if len(bad):
        i, j = bad[0]
        what = "NaN" if np.isnan(rows[i, j]) else "infinity (inf)"
        raise ValueError(
            f"{where}{_cell(table, start + i, j)}: the value is {what}; "
            "fill or drop missing and infinite values first"
        )


def _cell(table: Any, i: int, j: int) -> str:
    names = column_names(table)
    return f"row {i}, column {names[j]!r}" if names else f"row {i}, column {j}"


def side_by_side(columns: Sequence[Rows]) -> Rows:
    """Return columns (n,) as rows (n, d), of the columns' common type.

    Examples
    --------
    >>> side_by_side([np.array([1.0, 2.0]), np.array([3.0, 4.0], dtype=np.float32)])
    array([[1., 3.],
           [2., 4.]])
    """
    n, d = len(columns[0]), len(columns)
    X: Rows = np.empty((n, d), np.result_type(*columns))
    size = max(1, BLOCK // d)
    for start in range(0, n, size):
        rows = slice(start, start + size)
        X[rows] = np.array([column[rows] for column in columns]).T
    return X


# Rows that are still to be prepared


def raw_rows(
    table: Any,
    sample_weight: Floats | None = None,
    where: str = "",
    dates: Mapping[str, str] | None = None,
) -> Data:
    """Return a table as rows whose columns are known, NaN where a value is missing.

    Parameters
    ----------
    table : Data, data frame or array of shape (n, d)
        What to read; text is allowed, and what `is_missing` says is missing.
    sample_weight : ndarray of shape (n,), optional
        The rows' weights.
    where : str
        How an error message begins.
    dates : mapping of str to str, optional
        By column, what becomes of its dates; others are left out.

    Raises
    ------
    ValueError
        If it has not two axes, no row or no column, or an infinite value, or if a column that is
        among ``dates`` holds none.

    Examples
    --------
    >>> rows = raw_rows(np.array([["M", 3], ["F", None], ["n/a", 4]], dtype=object))
    >>> rows.X
    array([[ 1.,  3.],
           [ 0., nan],
           [nan,  4.]])
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
    names_or_places = names or [f"x{j}" for j in range(len(columns))]
    dates = dates or {}
    read = [
        _dated(name, values, dates[name], where) if name in dates else _column(name, values)
        for name, values in zip(names_or_places, columns, strict=True)
    ]
    X = side_by_side([values for _, values in read])
    finite(table, np.where(np.isnan(X), 0.0, X), where)
    known = tuple(column for column, _ in read)
    plain = names is None and all(column.kind == "number" for column in known)
    return Data(X, sample_weight, columns=() if plain else known)


def _dated(
    name: str, values: NDArray[Any], how: str, where: str
) -> tuple[Column, NDArray[np.floating[Any]]]:
    """Return a column of dates, and the numbers that are made of them."""
    days = days_of_values(values)
    if days is None:
        raise ValueError(f"{where}column {name!r}: dates= names it, but it holds no dates")
    return Column(name), numbers_of(days, how)


def _column(name: str, values: NDArray[Any]) -> tuple[Column, NDArray[np.floating[Any]]]:
    """Return what a column is, and its values or codes."""
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
