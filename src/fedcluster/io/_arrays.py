"""Rows in memory: arrays and data frames, by site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data, Rows

BLOCK = 1 << 17
"""Values that are turned from columns into rows while they stay in the cache."""


@dataclass(frozen=True, slots=True, eq=False)
class SiteRows:
    """What was given for one site.

    Parameters
    ----------
    name : str
        The site's name.
    table : array or data frame of shape (n, d)
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
    X: Any, sites: Any = None, sample_weight: Any = None, groups: Any = None
) -> list[SiteRows]:
    """Part what was given into sites.

    Parameters
    ----------
    X : dict or list of tables, or one table
        Tables are arrays, data frames or `Data`, (n, d); of a dict the keys name the sites.
    sites : array of shape (n,), optional
        For one table: the site of each row. Without it the table is one site.
    sample_weight, groups : like X, or array of shape (n,), optional
        Weights, and whose rows they are, in the same form as ``X``.

    Examples
    --------
    >>> parts = by_site(np.arange(6.0).reshape(3, 2), sites=["b", "a", "b"])
    >>> [(part.name, part.place.tolist()) for part in parts]
    [('a', [1]), ('b', [0, 2])]
    """
    if _is_mapping(X) or _is_list_of_tables(X):
        if sites is not None:
            raise ValueError("sites= names the rows of one table; this X is already one per site")
        return _from_tables(X, sample_weight, groups)
    weight, group = _of_rows("sample_weight", sample_weight), _of_rows("groups", groups)
    if sites is None:
        return [SiteRows("site", X, weight, np.arange(_n_rows(X)), "", group)]
    sites = _site_names(sites)
    if sites.shape != (_n_rows(X),):
        raise ValueError(
            f"sites must name the site of each of the {_n_rows(X)} rows; its shape is {sites.shape}"
        )
    names, number = np.unique(sites, return_inverse=True)
    for what, given in (("sample_weight", weight), ("groups", group)):
        if given is not None and len(given) != len(sites):
            raise ValueError(f"{what} has {len(given)} entries for {len(sites)} rows")
    order = np.argsort(number, kind="stable")
    places = np.split(order, np.cumsum(np.bincount(number))[:-1])
    return [
        SiteRows(name, _take(X, at), _some(weight, at), at, _at(name), _some(group, at))
        for name, at in zip(names.tolist(), places, strict=True)
    ]


def _of_rows(what: str, given: Any) -> NDArray[Any] | None:
    """What was given for each row of one table."""
    if given is None:
        return None
    if _is_mapping(given):
        raise ValueError(f"{what} must be one array, as X is one table, not one for each site")
    return np.atleast_1d(np.asarray(given))


def _some(given: NDArray[Any] | None, place: NDArray[np.intp]) -> NDArray[Any] | None:
    return None if given is None else given[place]


def _site_names(sites: Any) -> NDArray[np.str_]:
    given = np.asarray(sites)
    if given.dtype.kind in "fO":
        missing = [i for i, name in enumerate(given.ravel()) if name is None or name != name]
        if len(missing):
            raise ValueError(f"row {missing[0]} has no site: sites holds a missing value there")
    return given.astype(str)


def _is_mapping(X: Any) -> bool:
    return isinstance(X, Mapping) and not hasattr(X, "shape")  # a sparse matrix can be a dict


def _is_list_of_tables(X: Any) -> bool:
    return isinstance(X, list | tuple) and len(X) > 0 and len(getattr(X[0], "shape", ())) == 2


def _from_tables(X: Any, sample_weight: Any, groups: Any) -> list[SiteRows]:
    tables: dict[str, Any] = dict(_named(X))
    weights = _of_each("sample_weight", sample_weight, tables)
    whose = _of_each("groups", groups, tables)
    if len(tables) != len(X):
        raise ValueError(f"two sites have the same name: {sorted(map(str, X))}")
    parts, start = [], 0
    for name, table in tables.items():
        place = np.arange(start, start + _n_rows(table))
        weight, group = weights.get(name), whose.get(name)
        parts.append(SiteRows(name, table, weight, place, _at(name), group))
        start += len(place)
    if not parts:
        raise ValueError("no site was given: X is empty")
    return parts


def _of_each(what: str, given: Any, tables: Mapping[str, Any]) -> dict[str, Any]:
    """What was given for the rows of each site, if anything was."""
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


def _take(X: Any, place: NDArray[np.intp]) -> Any:
    """Rows of an array, a list or a data frame."""
    if hasattr(X, "iloc"):
        return X.iloc[place]
    return X[place] if hasattr(X, "shape") else np.asarray(X)[place]


def column_names(table: Any) -> list[str] | None:
    """The names of a data frame's columns; None for an array, or where names are not strings."""
    columns = getattr(table, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return list(columns)


def in_order(table: Any, names: Sequence[str], where: str) -> Any:
    """A data frame's columns by name, in the order of ``names``; anything else as it is.

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
    """Columns (n,) as rows (n, d), of the columns' common type.

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
