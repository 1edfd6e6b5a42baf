"""Rows in memory: arrays, data frames and their like, by site."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats, Rows
from fedcluster.io._columns import is_missing
from fedcluster.io._dates import days_of_values, numbers_of

BLOCK = 1 << 17
"""Values that are turned from columns into rows while they stay in the cache."""

ReadPath = Callable[[Path, str], Data]
"""Read the rows of a file; errors begin with the given words."""


@dataclass(frozen=True, slots=True, eq=False)
class GivenTable:
    """A table that was given for one site.

    Parameters
    ----------
    name : str
        The site's name.
    table : array, data frame or Data of shape (n, d)
        Its rows.
    sample_weight : array of shape (n,) or None
        Their weights.
    place : ndarray of shape (n,)
        Where they lie among all rows that were given.
    where : str
        How an error message begins, such as "site 'north', ".
    groups : array of shape (n,) or None
        Whose row each is.
    """

    name: str
    table: Any
    sample_weight: Any
    place: NDArray[np.intp]
    where: str
    groups: Any = None


def by_site(
    X: Any,
    sites: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    read_path: ReadPath | None = None,
) -> list[GivenTable]:
    """Part what was given into sites.

    Parameters
    ----------
    X : dict or list of tables, or one table
        Tables are arrays, sparse matrices, data frames, AnnData, `Data` or paths of files, (n, d);
        of a dict the keys name the sites.
    sites : array of shape (n,) or str, optional
        For one table: the site of each row, or the name of the column that holds it, of a data
        frame or of AnnData's ``obs``. Without it the table is one site.
    sample_weight, groups : like X, or array of shape (n,), optional
        Weights, and whose rows they are, in the same form as ``X``.
    read_path : callable, optional
        What reads the file of a path.

    Examples
    --------
    >>> parts = by_site(np.arange(6.0).reshape(3, 2), sites=["b", "a", "b"])
    >>> [(part.name, part.place.tolist()) for part in parts]
    [('a', [1]), ('b', [0, 2])]
    """
    if _is_mapping(X) or _is_list_of_tables(X):
        if sites is not None:
            raise ValueError("sites= names the rows of one table; this X is already one per site")
        return _from_tables(X, sample_weight, groups, read_path)
    if isinstance(sites, str):
        X, sites = _with_sites(X, sites)
    X = _dense(X, "", read_path)
    weight, group = _of_rows("sample_weight", sample_weight), _of_rows("groups", groups)
    if sites is None:
        return [GivenTable("site", X, weight, np.arange(_n_rows(X)), "", group)]
    sites = _site_names(sites)
    if sites.shape != (_n_rows(X),):
        raise ValueError(
            f"sites must name the site of each of the {_n_rows(X)} rows; its shape is {sites.shape}"
        )
    names, number = _numbered(sites)
    for what, given in (("sample_weight", weight), ("groups", group)):
        if given is not None and len(given) != len(sites):
            raise ValueError(f"{what} has {len(given)} entries for {len(sites)} rows")
    order = np.argsort(number.astype(np.min_scalar_type(len(names))), kind="stable")
    places = np.split(order, np.cumsum(np.bincount(number))[:-1])
    return [
        GivenTable(name, table, _some(weight, at), at, _at(name), _some(group, at))
        for name, table, at in zip(names.tolist(), _parts(X, places), places, strict=True)
    ]


def _with_sites(X: Any, column: str) -> tuple[Any, Any]:
    """Return a table without the column of its sites, and that column."""
    beside = getattr(X, "obs", None) if hasattr(X, "var_names") else None
    names = column_names(X if beside is None else beside)
    if names is None or isinstance(X, Data):
        raise ValueError(
            f"sites={column!r} names a column of a data frame or of AnnData, and X is none; give "
            "the site of each row"
        )
    if column not in names:
        raise ValueError(f"X has no column {column!r} that names sites; it has {', '.join(names)}")
    if beside is not None:
        return X, beside[column]
    return X[[name for name in names if name != column]], X[column]


def _dense(table: Any, where: str, read_path: ReadPath | None) -> Any:
    """Return what was given as an array, a data frame or `Data`."""
    if isinstance(table, str | Path) and read_path is not None:
        return read_path(Path(table), where.removesuffix(", ") or str(table))
    if hasattr(table, "var_names") and hasattr(table, "to_df"):
        return table.to_df()  # AnnData
    return table.toarray() if hasattr(table, "toarray") else table  # a sparse matrix


def _of_rows(what: str, given: Any) -> NDArray[Any] | None:
    """Return what was given for each row of one table."""
    if given is None:
        return None
    if _is_mapping(given):
        raise ValueError(f"{what} must be one array, as X is one table, not one for each site")
    return np.atleast_1d(np.asarray(given))


def _some(given: NDArray[Any] | None, place: NDArray[np.intp]) -> NDArray[Any] | None:
    return None if given is None else given[place]


def _site_names(sites: Any) -> NDArray[Any]:
    """Return the site of each row, text or numbers, none of them missing."""
    given = np.asarray(sites)
    if given.dtype.kind in "fO":
        missing = [i for i, name in enumerate(given.ravel()) if name is None or name != name]
        if len(missing):
            raise ValueError(f"row {missing[0]} has no site: sites holds a missing value there")
    return given if given.dtype.kind in "biu" else given.astype(str)


def _numbered(sites: NDArray[Any]) -> tuple[NDArray[np.str_], NDArray[np.intp]]:
    """Return the names of the sites in their order as text, and the number of that of each row.

    Examples
    --------
    >>> _numbered(np.array([10, 9, 10]))
    (array(['10', '9'], dtype='<U21'), array([0, 1, 0]))
    """
    if sites.dtype.kind == "U":  # sorting as many texts as rows takes ten times as long
        each = sites.tolist()
        names = np.array(sorted(set(each)), dtype=sites.dtype)
        place = {name: i for i, name in enumerate(names.tolist())}
        return names, np.fromiter(map(place.__getitem__, each), np.intp, len(each))
    labels, number = np.unique(sites, return_inverse=True)
    names = labels.astype(str)
    order = np.argsort(names)
    return names[order], np.argsort(order)[number]


def _is_mapping(X: Any) -> bool:
    return isinstance(X, Mapping) and not hasattr(X, "shape")  # a sparse matrix can be a dict


def _is_list_of_tables(X: Any) -> bool:
    if not isinstance(X, list | tuple) or not X:
        return False
    return isinstance(X[0], str | Path) or len(getattr(X[0], "shape", ())) == 2


def _from_tables(
    X: Any, sample_weight: Any, groups: Any, read_path: ReadPath | None
) -> list[GivenTable]:
    tables: dict[str, Any] = dict(_named(X))
    weights = _of_each("sample_weight", sample_weight, tables)
    whose = _of_each("groups", groups, tables)
    if len(tables) != len(X):
        raise ValueError(f"two sites have the same name: {sorted(map(str, X))}")
    parts, start = [], 0
    for name, given in tables.items():
        table = _dense(given, _at(name), read_path)
        place = np.arange(start, start + _n_rows(table))
        weight, group = weights.get(name), whose.get(name)
        parts.append(GivenTable(name, table, weight, place, _at(name), group))
        start += len(place)
    if not parts:
        raise ValueError("no site was given: X is empty")
    return parts


def _of_each(what: str, given: Any, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given for the rows of each site, if anything was."""
    if given is None:
        return {}
    arrays = dict(_named(given)) if _is_mapping(given) or isinstance(given, list | tuple) else {}
    if arrays.keys() != tables.keys():
        got = sorted(arrays) if arrays else f"one {type(given).__name__}"
        raise ValueError(
            f"{what} must have one array for each of the sites {sorted(tables)}, not {got}"
        )
    return arrays


def _named(given: Any) -> list[tuple[str, Any]]:
    if isinstance(given, Mapping):
        return [(str(name), table) for name, table in given.items()]
    width = len(str(len(given) - 1))
    return [(f"site-{i:0{width}d}", table) for i, table in enumerate(given)]


def _n_rows(table: Any) -> int:
    if isinstance(table, Data):
        return len(table)
    shape = getattr(table, "shape", None)
    if shape is None:
        shape = np.asarray(table).shape
    return int(shape[0]) if shape else 0


def _at(site: str) -> str:
    return f"site {site!r}, "


def _parts(X: Any, places: Sequence[NDArray[np.intp]]) -> Iterator[Any]:
    """Yield the rows at several places; those of an array are copied once."""
    if not isinstance(X, np.ndarray):
        yield from (_take(X, place) for place in places)
        return
    rows, start = X[np.concatenate(places)], 0
    for place in places:
        yield rows[start : start + len(place)]
        start += len(place)


def _take(X: Any, place: NDArray[np.intp]) -> Any:
    """Return rows of an array, a list, a data frame or `Data`."""
    if isinstance(X, Data):
        return X.take(place)
    if hasattr(X, "iloc"):
        return X.iloc[place]
    return X[place] if hasattr(X, "shape") else np.asarray(X)[place]


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
