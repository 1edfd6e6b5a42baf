"""Inputs in Python: arrays, data frames of any library and dicts of columns, read as files are.

They come as one table per site, or as one table with a column of sites.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Rows
from fedcluster.errors import InputError
from fedcluster.frames.cells import as_arrow, as_floats, is_text
from fedcluster.frames.columns import (
    AS_IN_MODEL,
    called,
    first_twice,
    has_columns,
    is_blank,
    kind_refused,
    note_names,
    note_sites,
    other_columns,
    own_names,
)
from fedcluster.frames.reader import ColumnRoles, Reader, TablePart
from fedcluster.frames.rows import FileSource, WarehouseSource, check_finite, side_by_side
from fedcluster.lazy import LazyModule, made_by, of_application

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = LazyModule("pyarrow")

# Data frames and arrays


FLOATS = (np.float64, np.float32)
PLACES = (str, Path, FileSource, WarehouseSource)
"""Types that locate the rows of a site."""
OWNER = "the table"
"""Name that messages use for a table that belongs to no site."""


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Columns with names in memory: a data frame of any library, or a dict of columns.

    Parameters
    ----------
    source : narwhals.DataFrame
        The columns.
    """

    path: ClassVar[Path] = Path(OWNER)
    decimal: ClassVar[None] = None
    fingerprint: ClassVar[None] = None

    source: nw.DataFrame[Any]

    def __len__(self) -> int:
        return len(self.source)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.source.columns)

    def take(self, place: NDArray[np.intp]) -> Frame:
        """Return the rows at the given positions."""
        return Frame(self.source[place])

    def without(self, column: str) -> Frame:
        """Return the table without a column."""
        return Frame(self.source.drop(column))

    def column(self, name: str) -> Any:
        """Return a column, (n,), as a NumPy or Arrow array."""
        return _cells(self.source[name].to_native())

    def part(self, names: Sequence[str], *, raw: bool) -> TablePart:
        """Return some columns: numeric ones as one array, others as Arrow arrays."""
        chosen = self.source if tuple(names) == self.names else self.source.select(names)
        kinds = chosen.schema
        numbers = {name for name, kind in kinds.items() if _is_number(kind)}
        if chosen.implementation.is_pandas_like() and len(numbers) == len(names) and not raw:
            return TablePart(self, 0, pa.table({}), _floats(chosen.to_numpy()))
        others = {n: _arrow(self.column(n), n) for n in names if n not in numbers}
        if raw:  # a category is one although its levels are numbers
            levels = [
                name
                for name, each in others.items()
                if kinds[name] == nw.Categorical or (kinds[name] == nw.Enum and is_text(each.type))
            ]
            others |= {name: others[name].dictionary_encode() for name in levels}
        room = np.full(len(self), np.nan)
        X = side_by_side([_floats(self.column(n)) if n in numbers else room for n in names])
        return TablePart(self, 0, pa.table(others), X)

    def where(self, row: int) -> str:
        """Return where a row is, the first being row 0."""
        return f"row {row}"


def _is_number(kind: Any) -> bool:
    """Return whether a column's type is that of numbers as NumPy has them."""
    return bool(kind.is_integer() or kind.is_float())


def _floats(values: Any) -> Rows:
    """Return numbers of NumPy or Arrow as floats; float32 is kept."""
    if made_by("pyarrow", values) and isinstance(values, pa.ChunkedArray):
        return as_floats(values)
    numbers: Rows = values if values.dtype in FLOATS else values.astype(np.float64)
    return numbers


def _cells(values: Any) -> Any:
    """Return a column of any library as a NumPy or Arrow array."""
    if made_by("pyarrow", values) and isinstance(values, pa.Array | pa.ChunkedArray):
        return pa.chunked_array(values) if isinstance(values, pa.Array) else values
    series = nw.from_native(values, series_only=True, pass_through=True)
    if not isinstance(series, nw.Series):
        return np.asarray(values)
    if isinstance(series.dtype, nw.Datetime) and series.dtype.time_zone is not None:
        return np.asarray(series.dt.replace_time_zone(None).to_native())
    return series.to_numpy() if _is_number(series.dtype) else np.asarray(values)


def _arrow(values: Any, name: str) -> Any:
    """Return a column as an Arrow array; texts may be numbers, and cells of several types."""
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.kind in "fiub":
        return pa.array(values)
    if values.dtype.kind == "M":
        return pa.array(values.astype("M8[s]"))
    if values.dtype.kind == "m":
        return pa.array(values)
    cells = [None if is_blank(cell) else cell for cell in values.tolist()]
    try:
        return as_arrow(cells)
    except TypeError as error:
        raise TypeError(f"column {name!r}: {error}") from error


def is_column(values: Any) -> bool:
    """Return whether values are those of one column, not of a table.

    Examples
    --------
    >>> [is_column(values) for values in ([1.0, "a"], np.zeros(3), [[1.0]], np.zeros((3, 1)))]
    [True, True, False, False]
    """
    if isinstance(values, list | tuple):
        return not any(isinstance(each, list | tuple) or np.shape(each) for each in values[:1])
    is_arrow = made_by("pyarrow", values) and isinstance(values, pa.Array | pa.ChunkedArray)
    return is_arrow or len(getattr(values, "shape", ())) == 1


def frame_of(table: Any, owner: str = OWNER) -> Frame | None:
    """Return a table whose columns have names; None if they have none, as in an array.

    Raises
    ------
    ValueError
        If the table is lazy, if two columns have the same name, or if some of several have none.

    Examples
    --------
    >>> frame_of({"age": [31.0, 47.0], "sex": ["f", "m"]}).names
    ('age', 'sex')
    """
    if isinstance(table, Frame | np.ndarray):
        return table if isinstance(table, Frame) else None
    if hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__array__"):
        table = pa.table(table)  # a DuckDB relation or a reader of record batches
    if hasattr(table, "to_batches") and not hasattr(table, "shape"):
        table = table.to_table()  # a pyarrow dataset
    if hasattr(table, "collect") and not hasattr(table, "shape"):
        raise InputError(f"{owner}: it is lazy; give what its collect() returns")
    is_dict = isinstance(table, Mapping) and not hasattr(table, "shape")
    names = list(
        table if is_dict else getattr(table, "column_names", getattr(table, "columns", ()))
    )
    if not any(isinstance(name, str) for name in names):
        return None
    if strange := [name for name in names if not isinstance(name, str)]:
        raise InputError(
            f"{owner}: the name of a column is {strange[0]!r}, which is no text; rename it"
        )
    if (twice := first_twice(names)) is not None:
        raise InputError(
            f"{owner}, column {twice!r}: there are two columns of this name; rename one of them"
        )
    known = nw.from_native(table, eager_only=True, pass_through=True)
    return Frame(known) if isinstance(known, nw.DataFrame) else _of_columns(table, names)


def _of_columns(table: Any, names: Iterable[str]) -> Frame:
    """Return columns that are found by name in a dict, or in an object of another library."""
    columns = {name: _arrow(_cells(table[name]), name) for name in names}
    return Frame(nw.from_native(pa.table(columns), eager_only=True))


def read_table(
    table: Any,
    roles: ColumnRoles | None = None,
    owner: str = OWNER,
    reader: str = "Model",
) -> Data:
    """Read a table in memory as rows, by the same rules as for files.

    Columns are found by name, and others are ignored. Text that can be read as a number is a
    number; other text is refused unless rows are to be prepared. The columns of an array are, by
    position, those requested.

    Parameters
    ----------
    table : Data, data frame or array of shape (n, d)
        The table: a pandas or polars data frame, an Arrow table, a dict of columns, or an array.
    roles : ColumnRoles, optional
        The columns to read, by default all, and whether they are to be prepared.
    owner : str
        The beginning of an error message, such as "site 'north'".
    reader : str
        Name of what requires the columns, for a message about an array of another width.

    Raises
    ------
    ValueError, TypeError
        In one line, with the column, the row, from 0, and the value.

    Examples
    --------
    >>> rows = read_table({"age": ["31", "47"], "sex": ["f", "n/a"]}, ColumnRoles(raw=True))
    >>> rows.X
    array([[31.,  0.],
           [47., nan]])
    >>> [column.kind for column in rows.columns]
    ['number', 'text']
    """
    roles = roles or ColumnRoles()
    if isinstance(table, Data):
        return _known(table, roles, owner, reader)
    frame = frame_of(table, owner)
    if frame is not None:
        return _of_frame(frame, roles, owner)
    array = _matrix(table, owner)
    names = tuple(f"x{j}" for j in range(array.shape[1])) if roles.values is None else roles.values
    _check_width(array, names, owner, reader)
    if array.dtype.kind in "fiub":
        X = _floats(array)
        check_finite(X, names, owner, gaps=roles.raw)
        data = Data(X)
    else:
        frame = _of_columns({name: array[:, j] for j, name in enumerate(names)}, names)
        data = _of_frame(frame, replace(roles, values=names), owner)
    if roles.values is None and all(column.kind == "number" for column in data.columns):
        return replace(data, columns=())
    return data if data.columns or not roles.raw else _named_columns(data, names)


def _named_columns(data: Data, names: Sequence[str]) -> Data:
    return replace(data, columns=tuple(map(Column, names)))


def _of_frame(
    frame: Frame,
    roles: ColumnRoles,
    owner: str,
) -> Data:
    """Return some columns of a frame as rows."""
    own = {} if roles.values is None else own_names(frame.names, roles.values)
    note_names(owner, own)
    roles = roles.in_names(own)
    beside = roles.others
    every = tuple(name for name in frame.names if name not in beside)
    names = every if roles.values is None else roles.values
    has_columns(owner, frame.names, [*names, *beside])
    if not (len(frame) and names):
        raise InputError(f"{owner} has no rows or no columns")
    part = frame.part(names, raw=roles.raw)
    if beside:
        others = {name: _arrow(frame.column(name), name) for name in beside}
        read = dict(zip(part.rows.column_names, part.rows.columns, strict=True))
        part = replace(part, rows=pa.table({**others, **read}))
    roles = replace(roles, values=tuple(names))
    data = Reader(owner, part, roles, other_columns).data()
    check_finite(data.X, names, owner, gaps=roles.raw)
    return called(data, own)


def _known(data: Data, roles: ColumnRoles, owner: str, reader: str) -> Data:
    """Return rows with the chosen columns, in the chosen order if there is one."""
    if roles.values is None:
        return data
    if not data.columns:
        _check_width(data.X, roles.values, owner, reader)
        return _named_columns(data, roles.values) if roles.raw else data
    own = own_names((column.name for column in data.columns), roles.values)
    note_names(owner, own)
    data = called(data, own)
    places = {column.name: j for j, column in enumerate(data.columns)}
    has_columns(owner, places, roles.values)
    if roles.raw:
        return data
    place = [places[name] for name in roles.values]
    mend = AS_IN_MODEL if roles.numeric else other_columns([])
    for j in place:
        kind_refused(data, j, owner, mend)
    if place == list(range(len(places))):
        return data
    chosen = tuple(data.columns[j] for j in place)
    return replace(data, X=data.X[:, place], columns=chosen)


def _matrix(table: Any, owner: str) -> NDArray[Any]:
    """Return rows without column names as an array (n, d); errors are worded as in scikit-learn."""
    if isinstance(table, np.ma.MaskedArray):
        table = np.ma.filled(table.astype(np.float64), np.nan)
    try:
        array = np.asarray(table)
    except ValueError as error:
        raise InputError(f"{owner}: {error}") from error
    if array.dtype.kind == "c":
        raise InputError(f"{owner}: Complex data not supported")
    if array.ndim < 2:
        raise InputError(
            f"{owner}: Expected 2D array, got {array.ndim}D array of shape {array.shape} instead. "
            "Reshape your data to rows (n, d)"
        )
    if array.ndim > 2:
        raise InputError(f"{owner}: Found array with dim {array.ndim}; rows have the shape (n, d)")
    for n, what in zip(array.shape, ("sample", "feature"), strict=True):
        if not n:
            raise InputError(
                f"{owner}: Found array with 0 {what}(s) (shape={array.shape}) while a minimum of 1 "
                "is required."
            )
    return array


def _check_width(
    rows: NDArray[Any], names: Sequence[str], owner: str, reader: str, *, shown: int = 6
) -> None:
    """Raise an error if rows without column names have another number of columns than chosen.

    ``shown``: number of columns that a message about an array lists.
    """
    if rows.shape[1] != len(names):
        raise InputError(
            f"{owner}: X has {rows.shape[1]} features, but {reader} is expecting {len(names)} "
            f"features as input: {', '.join(names[:shown])}{', ...' if names[shown:] else ''}"
        )


def in_names(table: Any, own: Mapping[str, str]) -> Any:
    """Return a table, a `Frame` or `Data`, with some columns renamed, given its own names."""
    if not own:
        return table
    if isinstance(table, Data):
        return called(table, own)
    return Frame(table.source.rename({name: each for each, name in own.items()}))


def column_names(table: Any) -> list[str] | None:
    """Return the names of a table's columns; None if it has none."""
    if isinstance(table, Data):
        return [column.name for column in table.columns] or None
    return list(table.names) if isinstance(table, Frame) else None


# Sites


ReadPath = Callable[[Any, str], Data]
"""``read_path(path, owner)`` reads the rows of a source; its errors begin with the owner."""


def file_reader(roles: ColumnRoles) -> ReadPath:
    """Return what reads these columns of a file; the application does it."""
    return lambda path, owner: of_application("tables.sources", "read_file")(roles, path, owner)


@dataclass(frozen=True, slots=True, eq=False)
class SiteTable:
    """Table of one site in the input of an estimator or a model.

    Parameters
    ----------
    name : str
        The site's name.
    table : array, data frame or Data of shape (n, d)
        Its rows.
    sample_weight : array of shape (n,) or None
        Their weights.
    place : ndarray of shape (n,) or slice
        Their positions among all rows of the input.
    where : str
        The beginning of an error message, such as "site 'north', ".
    groups : array of shape (n,) or None
        The person that each row belongs to.
    """

    name: str
    table: Any
    sample_weight: Any
    place: NDArray[np.intp] | slice
    where: str
    groups: Any = None

    @property
    def owner(self) -> str:
        """The beginning of an error message that names a column next."""
        return self.where.removesuffix(", ") or OWNER


def by_site(
    X: Any,
    sites: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    read_path: ReadPath | None = None,
) -> list[SiteTable]:
    """Return the tables of an input, one for each site.

    Parameters
    ----------
    X : dict or list of tables, or one table
        Tables are arrays, sparse matrices, data frames, AnnData, `Data` or paths of files, (n, d);
        the keys of a dict name the sites.
    sites : array of shape (n,) or str, optional
        For one table: the site of each row, or the name of the column with the sites in a data
        frame or in AnnData's ``obs``. Without it, the table is one site.
    sample_weight, groups : like X, or array of shape (n,), optional
        The rows' weights and persons, in the same form as ``X``.
    read_path : callable, optional
        Reads the file at a path.

    Examples
    --------
    >>> parts = by_site(np.arange(6.0).reshape(3, 2), sites=["b", "a", "b"])
    >>> [(part.name, part.place.tolist()) for part in parts]
    [('a', [1]), ('b', [0, 2])]
    """
    if is_by_site(X):
        if sites is not None:
            raise ValueError("sites= names the rows of one table; this X is already one per site")
        return _from_tables(X, sample_weight, groups, read_path)
    if isinstance(sites, str):
        X, sites = _with_sites(X, sites)
    X = _dense(X, "", read_path)
    weight, group = _of_rows("sample_weight", sample_weight), _of_rows("groups", groups)
    if sites is None:
        return [SiteTable("site", X, weight, slice(None), "", group)]
    names, order, bounds = places_of(sites, len(X))
    for what, values in (("sample_weight", weight), ("groups", group)):
        if values is not None and len(values) != len(order):
            raise ValueError(f"{what} has {len(values)} entries for {len(order)} rows")
    places = [order[start:stop] for start, stop in pairwise(bounds.tolist())]
    none = [None] * len(places)
    weights = none if weight is None else [weight[at] for at in places]
    whose = none if group is None else [group[at] for at in places]
    parts = zip(names, _parts(X, places), weights, places, map(_at, names), whose, strict=True)
    return [SiteTable(*part) for part in parts]


def places_of(sites: Any, n_rows: int) -> tuple[list[str], NDArray[np.intp], NDArray[np.intp]]:
    """Return the names of sites, the row numbers sorted by site, and where each site begins.

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
    names, number = unique_ids(sites)
    note_sites(names.tolist())
    order = np.argsort(number.astype(np.min_scalar_type(len(names))), kind="stable")
    return names.tolist(), order, np.concatenate([[0], np.cumsum(np.bincount(number))])


def _with_sites(X: Any, column: str) -> tuple[Any, Any]:
    """Return a table without its column of sites, and that column."""
    beside = getattr(X, "obs", None) if hasattr(X, "var_names") else None
    table = None if isinstance(X, Data) else frame_of(X if beside is None else beside)
    if table is None:
        raise ValueError(
            f"sites={column!r} names a column of a data frame or of AnnData, and the columns of X "
            "have no names that are text; give the site of each row"
        )
    if column not in table.names:
        have = ", ".join(table.names)
        raise ValueError(f"X has no column {column!r} that names sites; it has {have}")
    return X if beside is not None else table.without(column), table.column(column)


def _dense(table: Any, where: str, read_path: ReadPath | None) -> Any:
    """Return a table as an array, a `Frame` or `Data`."""
    if isinstance(table, PLACES) and read_path is not None:
        path = Path(table) if isinstance(table, str) else table
        return read_path(path, where.removesuffix(", ") or str(table))
    if hasattr(table, "var_names") and hasattr(table, "to_df"):
        table = table.to_df()  # an AnnData object
    if hasattr(table, "toarray"):
        table = table.toarray()  # a scipy sparse matrix
    if isinstance(table, Data):
        return table
    owner = where.removesuffix(", ") or OWNER
    frame = frame_of(table, owner)
    return _matrix(table, owner) if frame is None else frame


def _of_rows(what: str, values: Any) -> NDArray[Any] | None:
    """Return weights or groups of the rows of one table as an array."""
    if values is None:
        return None
    if _is_mapping(values):
        raise ValueError(f"{what} must be one array, as X is one table, not one for each site")
    return np.atleast_1d(np.asarray(values))


def _site_names(sites: Any) -> NDArray[Any]:
    """Return the site of each row, as text or numbers without missing values."""
    names = np.asarray(sites)
    if names.dtype.kind in "fO":
        missing = [i for i, name in enumerate(names.ravel()) if is_blank(name)]
        if missing:
            raise ValueError(f"row {missing[0]} has no site: sites holds a missing value there")
    return names if names.dtype.kind in "biu" else names.astype(str)


def unique_ids(sites: NDArray[Any]) -> tuple[NDArray[np.str_], NDArray[np.intp]]:
    """Return the names of the sites, sorted as text, and the index of each row's site.

    Examples
    --------
    >>> unique_ids(np.array([10, 9, 10]))
    (array(['10', '9'], dtype='<U21'), array([0, 1, 0]))
    """
    if sites.dtype.kind == "U":  # factorise: sorting one text per row takes ten times as long
        each = sites.tolist()
        names = np.array(sorted(set(each)), dtype=sites.dtype)
        place = {name: i for i, name in enumerate(names.tolist())}
        return names, np.fromiter(map(place.__getitem__, each), np.intp, len(each))
    labels, number = _numbers(sites)
    names = labels.astype(str)
    order = np.argsort(names)
    return names[order], np.argsort(order)[number]


def _numbers(sites: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the distinct numbers of sites, sorted, and the index of each in them."""
    if sites.dtype.kind in "iu" and len(sites):
        low, high = int(sites.min()), int(sites.max())
        # for a small range, counting is faster than sorting
        if high - low < len(sites) and max(-low, high) < 1 << 62:
            offset = sites.astype(np.intp) - low
            is_there = np.bincount(offset) > 0
            return np.flatnonzero(is_there) + low, (np.cumsum(is_there) - 1)[offset]
    labels, number = np.unique(sites, return_inverse=True)
    return labels, number


def _is_mapping(X: Any) -> bool:
    return isinstance(X, Mapping) and not hasattr(X, "shape")  # a sparse matrix can be a dict


def is_by_site(X: Any) -> bool:
    """Return whether an input has a table for each site."""
    if _is_mapping(X):
        return True
    if not isinstance(X, list | tuple) or not X:
        return False
    return isinstance(X[0], PLACES) or len(getattr(X[0], "shape", ())) == 2


def _from_tables(
    X: Any, sample_weight: Any, groups: Any, read_path: ReadPath | None
) -> list[SiteTable]:
    tables: dict[str, Any] = dict(named_tables(X))
    weights = _of_each("sample_weight", sample_weight, tables)
    whose = _of_each("groups", groups, tables)
    if len(tables) != len(X):
        raise ValueError(f"two sites have the same name: {sorted(map(str, X))}")
    parts, start = [], 0
    for name, own in tables.items():
        table = _dense(own, _at(name), read_path)
        stop = start + len(table)
        weight, group = weights.get(name), whose.get(name)
        parts.append(SiteTable(name, table, weight, slice(start, stop), _at(name), group))
        start = stop
    if not parts:
        raise ValueError("no site was given: X is empty")
    return parts


def _of_each(what: str, values: Any, tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return weights or groups of the rows by site; empty if there are none."""
    if values is None:
        return {}
    arrays = (
        dict(named_tables(values))
        if _is_mapping(values) or isinstance(values, list | tuple)
        else {}
    )
    if arrays.keys() != tables.keys():
        got = sorted(arrays) if arrays else f"one {type(values).__name__}"
        raise ValueError(
            f"{what} must have one array for each of the sites {sorted(tables)}, not {got}"
        )
    return arrays


def named_tables(tables: Any) -> list[tuple[str, Any]]:
    """Return the tables of an input with the names of their sites."""
    if isinstance(tables, Mapping):
        return [(str(name), table) for name, table in tables.items()]
    width = len(str(len(tables) - 1))
    return [(f"site-{i:0{width}d}", table) for i, table in enumerate(tables)]


def _at(site: str) -> str:
    return f"site {site!r}, "


def _parts(X: Any, places: Sequence[NDArray[np.intp]]) -> Iterator[Any]:
    """Yield the rows for each set of positions, copying an array only once."""
    if isinstance(X, Data | Frame):
        yield from map(X.take, places)
        return
    rows, start = X[np.concatenate(places)], 0
    for place in places:
        yield rows[start : start + len(place)]
        start += len(place)
