"""Rows as a program gives them: one table for each site, or one whose rows name their sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data
from fedcluster.io._frames import OWNER, Frame, frame_of

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
    place : ndarray of shape (n,) or slice
        Where they lie among all rows that were given.
    where : str
        How an error message begins, such as "site 'north', ".
    groups : array of shape (n,) or None
        Whose row each is.
    """

    name: str
    table: Any
    sample_weight: Any
    place: NDArray[np.intp] | slice
    where: str
    groups: Any = None

    @property
    def owner(self) -> str:
        """Return how an error message begins that names a column next."""
        return self.where.removesuffix(", ") or OWNER


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
        return [GivenTable("site", X, weight, slice(None), "", group)]
    names, order, bounds = places_of(sites, _n_rows(X))
    for what, given in (("sample_weight", weight), ("groups", group)):
        if given is not None and len(given) != len(order):
            raise ValueError(f"{what} has {len(given)} entries for {len(order)} rows")
    places = [order[start:stop] for start, stop in pairwise(bounds.tolist())]
    return [
        GivenTable(name, table, _some(weight, at), at, _at(name), _some(group, at))
        for name, table, at in zip(names, _parts(X, places), places, strict=True)
    ]


def places_of(sites: Any, n_rows: int) -> tuple[list[str], NDArray[np.intp], NDArray[np.intp]]:
    """Return the names of sites, the rows site after site, and where those of each begin.

    Examples
    --------
    >>> names, order, bounds = places_of(["b", "a", "b"], 3)
    >>> names, order.tolist(), bounds.tolist()
    (['a', 'b'], [1, 0, 2], [0, 1, 3])
    """
    sites = _site_names(sites)
    if sites.shape != (n_rows,):
        raise ValueError(
            f"sites must name the site of each of the {n_rows} rows; its shape is {sites.shape}"
        )
    names, number = numbered(sites)
    order = np.argsort(number.astype(np.min_scalar_type(len(names))), kind="stable")
    return names.tolist(), order, np.concatenate([[0], np.cumsum(np.bincount(number))])


def _with_sites(X: Any, column: str) -> tuple[Any, Any]:
    """Return a table without the column of its sites, and that column."""
    beside = getattr(X, "obs", None) if hasattr(X, "var_names") else None
    table = None if isinstance(X, Data) else frame_of(X if beside is None else beside)
    if table is None:
        raise ValueError(
            f"sites={column!r} names a column of a data frame or of AnnData, and X is none; give "
            "the site of each row"
        )
    if column not in table.names:
        have = ", ".join(table.names)
        raise ValueError(f"X has no column {column!r} that names sites; it has {have}")
    return X if beside is not None else table.without(column), table.column(column)


def _dense(table: Any, where: str, read_path: ReadPath | None) -> Any:
    """Return what was given as an array, a `Frame` or `Data`."""
    if isinstance(table, str | Path) and read_path is not None:
        return read_path(Path(table), where.removesuffix(", ") or str(table))
    if hasattr(table, "var_names") and hasattr(table, "to_df"):
        table = table.to_df()  # AnnData
    if hasattr(table, "toarray"):
        return table.toarray()  # a sparse matrix
    frame = None if isinstance(table, Data) else frame_of(table, where.removesuffix(", ") or OWNER)
    return table if frame is None else frame


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


def numbered(sites: NDArray[Any]) -> tuple[NDArray[np.str_], NDArray[np.intp]]:
    """Return the names of the sites in their order as text, and the number of that of each row.

    Examples
    --------
    >>> numbered(np.array([10, 9, 10]))
    (array(['10', '9'], dtype='<U21'), array([0, 1, 0]))
    """
    if sites.dtype.kind == "U":  # sorting as many texts as rows takes ten times as long
        each = sites.tolist()
        names = np.array(sorted(set(each)), dtype=sites.dtype)
        place = {name: i for i, name in enumerate(names.tolist())}
        return names, np.fromiter(map(place.__getitem__, each), np.intp, len(each))
    labels, number = _numbers(sites)
    names = labels.astype(str)
    order = np.argsort(names)
    return names[order], np.argsort(order)[number]


def _numbers(sites: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the different numbers of sites, rising, and the place of each among them."""
    if sites.dtype.kind in "iu" and len(sites):
        low, high = int(sites.min()), int(sites.max())
        if high - low < len(sites) and max(-low, high) < 1 << 62:  # counted sooner than sorted
            offset = sites.astype(np.intp) - low
            is_there = np.bincount(offset) > 0
            return np.flatnonzero(is_there) + low, (np.cumsum(is_there) - 1)[offset]
    labels, number = np.unique(sites, return_inverse=True)
    return labels, number


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
        stop = start + _n_rows(table)
        weight, group = weights.get(name), whose.get(name)
        parts.append(GivenTable(name, table, weight, slice(start, stop), _at(name), group))
        start = stop
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
    """Return rows of an array, a list, a `Frame` or `Data`."""
    if isinstance(X, Data | Frame):
        return X.take(place)
    return X[place] if hasattr(X, "shape") else np.asarray(X)[place]
