"""Check what estimators are given: tables become rows of numbers, or one line says why not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, timedelta
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from fedcluster._choices import INITS, SCALES
from fedcluster.core import Algorithm, Column, Data, Engine, Rows, check_step
from fedcluster.errors import InputError
from fedcluster.io._columns import columns_of, common_columns, is_blank
from fedcluster.io._dates import checked_how
from fedcluster.io._frames import (
    column_names,
    finite,
    in_order,
    numeric,
    raw_rows,
)
from fedcluster.io._given import GivenTable, ReadPath
from fedcluster.jobs import tried
from fedcluster.preprocessing import PreprocessingSpec, Preprocessor

FLOATS = [np.float64, np.float32]


def path_reader(
    *,
    raw: bool,
    columns: Sequence[str] | None = None,
    coded: Sequence[str] = (),
    dates: Mapping[str, str] | None = None,
) -> ReadPath:
    """Return what reads the file of a path that was given in a table's place.

    Parameters
    ----------
    raw : bool
        Whether the rows are still to be prepared: text and missing values are allowed.
    columns : sequence of str, optional
        The columns to read; by default all.
    coded : sequence of str
        Columns that may hold numbers and text, all of them names.
    dates : mapping of str to str, optional
        By column, what becomes of its dates.
    """

    def read(path: Path, owner: str) -> Data:
        from fedcluster.io._sources import read_file  # pyarrow, which arrays do without

        return read_file(path, columns, owner, raw=raw, coded=coded, dates=dates)

    return read


def read_sites(
    parts: Sequence[GivenTable], *, raw: bool, dates: Mapping[str, str] | None = None
) -> dict[str, Data]:
    """Return the sites' rows, their columns in the order of the first site's.

    Rows that are still to be prepared (``raw``) keep their own columns, text and missing values;
    ``dates`` says what becomes of theirs.
    """
    names = None if raw else column_names(parts[0].table)
    plain = not raw and _are_plain([part.table for part in parts])
    data: dict[str, Data] = {}
    for part in parts:
        if raw:
            rows = raw_rows(part.table, where=part.where, dates=dates)
        else:
            table = part.table if names is None else in_order(part.table, names, part.where)
            if not isinstance(table, Data):
                table = Data(table if plain else read_rows(table, part.where))
            rows = table
        data[part.name] = _with_weights(rows, part)
    if dates:
        known = {column.name for rows in data.values() for column in columns_of(rows)}
        if unknown := [name for name in dates if name not in known]:
            raise ValueError(f"dates= names {unknown[0]!r}, and no site has such a column")
    if not (raw and next(iter(data.values())).columns):
        widths = {name: rows.X.shape[1] for name, rows in data.items()}
        if len(set(widths.values())) > 1:
            raise ValueError(f"every site must have the same number of columns, not {widths}")
    return data


def _with_weights(rows: Data, part: GivenTable) -> Data:
    """Return a site's rows with the weights and persons that were given for them."""
    weight = read_weights(part.sample_weight, rows.X, part.where)
    groups = read_groups(part.groups, rows.X, part.where)
    if weight is None and groups is None and rows is not part.table:
        return rows
    return replace(
        rows,
        sample_weight=rows.sample_weight if weight is None else weight,
        groups=rows.groups if groups is None else groups,
    )


def read_rows(table: Any, where: str) -> Rows:
    """Return a table as finite numbers, float32 or float64."""
    if is_plain(table):
        return np.asarray(table)
    no_times(table, where)
    numeric(table, where)
    with names_site(where):
        rows: Rows = check_array(table, dtype=FLOATS, ensure_all_finite=False)
    finite(table, rows, where)
    return rows


@contextmanager
def names_site(where: str) -> Iterator[None]:
    """Let what scikit-learn's checks complain of begin with the site."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if not where:
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{where}{error}") from error


def is_plain(table: Any) -> bool:
    """Return whether a table is rows of finite numbers already, which need no further look."""
    if type(table) is not np.ndarray or table.dtype not in FLOATS or table.ndim != 2:
        return False
    return table.size > 0 and bool(np.isfinite(table).all())


def _are_plain(tables: Sequence[Any]) -> bool:
    """Return whether all tables are parts of one array of finite numbers, looked at once."""
    base = getattr(tables[0], "base", None)
    if not is_plain(base):
        return False
    return all(
        type(table) is np.ndarray and table.base is base and table.ndim == 2 and table.size
        for table in tables
    )


def no_times(table: Any, where: str) -> None:
    """Refuse dates, which some libraries take for numbers of nanoseconds."""
    if hasattr(table, "collect") and not hasattr(table, "shape"):
        raise ValueError(f"{where}the table is lazy; give what its collect() returns")
    if isinstance(table, Data):
        return
    first = {"the array": table[:1]} if isinstance(table, np.ndarray) else {}
    if names := column_names(table):
        head = table[:1]
        first = {f"column {name!r}": head[name] for name in names}
    for what, values in first.items():
        array = np.asarray(values)
        if array.dtype.kind in "mM" or any(isinstance(x, date | timedelta) for x in array.flat):
            raise ValueError(f"{where}{what} holds dates or times; choose columns of numbers")


def read_weights(sample_weight: Any, rows: Rows, where: str) -> NDArray[np.float64] | None:
    """Return weights of a site's rows: finite, not negative."""
    if sample_weight is None:
        return None
    weights = np.array(sample_weight, dtype=np.float64)
    if weights.shape != rows.shape[:1]:
        raise ValueError(
            f"{where}sample_weight has shape {weights.shape}, but there are {len(rows)} rows"
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError(f"{where}sample_weight must be finite and at least 0")
    if not weights.any():
        raise ValueError(f"{where}sample_weight is zero for every row")
    return weights


def read_groups(groups: Any, rows: Rows, where: str) -> NDArray[np.int64] | None:
    """Return whose each of a site's rows is, (n,), as numbers: equal where the names are.

    Examples
    --------
    >>> read_groups(["ann", "bob", "ann "], np.zeros((3, 2)), "")
    array([0, 1, 0])
    """
    if groups is None:
        return None
    names = np.asarray(groups)
    if names.shape != rows.shape[:1]:
        raise ValueError(f"{where}groups has shape {names.shape}, but there are {len(rows)} rows")
    if names.dtype.kind not in "iub":
        nobody = [is_blank(name) for name in names.tolist()]
        if any(nobody):
            raise ValueError(f"{where}row {nobody.index(True)}: groups does not say whose it is")
        names = np.char.strip(names.astype(str))
    numbers: NDArray[np.int64] = np.unique(names, return_inverse=True)[1].astype(np.int64)
    return numbers


def columns_told(engine: Engine) -> tuple[str, ...]:
    """Return the names of the columns, which all sites must have in the same order."""
    told = {
        site.name: tuple(column.name for column in site.columns)
        for site in engine.introduce(columns=True)
        if site.answered
    }
    columns = common_columns(told)
    for site, names in told.items():
        if names != columns:
            raise InputError(
                f"site {site!r} has its columns in another order than site {next(iter(told))!r}; "
                "let all sites read them in one order"
            )
    return columns


# Rows that are prepared


def wanted(prepare: Any) -> PreprocessingSpec | None:
    """Return what ``prepare=`` asks for: nothing, a name of a scale, or all of it."""
    if prepare is None:
        return None
    if isinstance(prepare, PreprocessingSpec):
        return replace(prepare, dates={c: checked_how(how) for c, how in prepare.dates.items()})
    if isinstance(prepare, str) and prepare in SCALES:
        return PreprocessingSpec(prepare)
    known = ", ".join(map(repr, SCALES))
    why = f"prepare must be None, one of {known} or a PreprocessingSpec, not {prepare!r}"
    raise ValueError(why)


def check_width(data: Data, n_features: int, where: str) -> None:
    """Refuse rows of another number of columns than were fitted."""
    if (n := data.X.shape[1]) != n_features:
        raise ValueError(f"{where}X has {n} features, but {n_features} were fitted")


def dates_of(preprocessor: Preprocessor) -> dict[str, str]:
    """Return what became of dates, by column."""
    return {c.name: c.date for c in preprocessor.numeric if c.date is not None}


def prepared_rows(table: Any, preprocessor: Preprocessor, n_features: int, where: str) -> Rows:
    """Return new rows as they are clustered, (n, p); NaN where a row would be dropped.

    Parameters
    ----------
    table : data frame, array or Data
        Rows as they were given to fit; of a frame the columns are found by name, an array has
        them in the order of ``feature_names_in_``.
    preprocessor : Preprocessor
        What was fitted.
    n_features : int
        The columns that an array must have.
    where : str
        How an error message begins.
    """
    data = raw_rows(table, where=where, dates=dates_of(preprocessor))
    if not isinstance(table, Data) and not hasattr(table, "columns"):
        check_width(data, n_features, where)
        if len(preprocessor.columns) == n_features:
            names = [column.name for column in preprocessor.columns]
            known = zip(names, columns_of(data), strict=True)
            columns = tuple(Column(name, each.kind, each.levels) for name, each in known)
            data = Data(data.X, columns=columns)
    return preprocessor.aligned(data)


# Parameters


def check_clusters(n_clusters: Any, n_rows: float) -> None:
    """Refuse what is no number of clusters, or no range of them, that there are rows for."""
    if isinstance(n_clusters, str):
        one_of("n_clusters", n_clusters, ("auto",), "a whole number or a range of them")
    elif isinstance(n_clusters, Iterable):
        for k in n_clusters:
            whole("each number of clusters to try", k)
    else:
        whole("n_clusters", n_clusters)
    ks = tried(n_clusters, n_rows)
    if ks == () and not isinstance(n_clusters, str):
        raise ValueError(f"n_clusters={n_clusters!r} holds no number to try")
    most = int(n_clusters) if ks is None else max(ks, default=1)
    if n_rows < most:
        raise ValueError(
            f"all sites together have n_samples={n_rows} rows: too few for "
            f"n_clusters={n_clusters}; ask for at most {n_rows} clusters"
        )


def check_engine_alone(*given: Any) -> None:
    """Refuse rows beside an engine, whose sites have their own."""
    if any(each is not None for each in given):
        raise ValueError(
            "engine has the sites with their rows: give X, sites, sample_weight and groups without "
            "an engine, or the engine alone"
        )


def whole(name: str, value: Any) -> None:
    """Refuse what is not a whole number of at least 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")


def one_of(name: str, value: Any, names: Collection[str], or_else: str = "") -> Any:
    """Return a value that is among the names, or refuse it with a list of them."""
    if value not in names:
        known = ", ".join(map(repr, names)) + (f" or {or_else}" if or_else else "")
        raise ValueError(f"{name} must be one of {known}, not {value!r}")
    return value


def checked_algorithm(algorithm: Any, n_clusters: Any, names: Collection[str]) -> Any:
    """Return an algorithm, which is one of the names or an object that lacks nothing."""
    if isinstance(algorithm, str):
        return one_of("algorithm", algorithm, names, "an algorithm object")
    if isinstance(algorithm, type):
        name = algorithm.__name__
        raise ValueError(f"algorithm is the class {name}; give an object of it, as in {name}()")
    check_step(algorithm, Algorithm)
    if getattr(algorithm, "n_clusters", n_clusters) != n_clusters:
        raise ValueError(f"n_clusters={n_clusters}, but algorithm is {algorithm!r}")
    return algorithm


def checked_init(init: Any, n_clusters: Any) -> Any:
    """Return where to start, checked as far as it can be without the rows."""
    if callable(init):
        return init
    if isinstance(init, str):
        return one_of("init", init, INITS, "an array or a callable")
    if not isinstance(n_clusters, Integral):
        raise ValueError(
            f"init is an array, which is a start for one number of clusters, but n_clusters="
            f"{n_clusters!r}; give init by name"
        )
    return check_array(init, dtype=np.float64)
