"""Check what estimators are given: tables become rows of numbers, or one line says why not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from fedcluster.core import Algorithm, Data, Engine, Rows, check_step
from fedcluster.errors import InputError
from fedcluster.io.cells import Notation, checked_how
from fedcluster.io.columns import (
    columns_of,
    common_columns,
    common_levels,
    common_names,
    is_blank,
    note_names,
    own_names,
    warn_of_codes,
)
from fedcluster.io.inputs import FLOATS, SiteTable, column_names, in_names, read_table
from fedcluster.io.reader import ColumnRoles, warn_of_shares, warn_of_totals
from fedcluster.jobs import tried
from fedcluster.options.choices import INITS, PARTS, SCALES
from fedcluster.options.refusals import refused
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.preprocessing.own import preparation
from fedcluster.preprocessing.spec import MOST_CATEGORIES


def roles_for(prepare: PreprocessingSpec | None) -> ColumnRoles:
    """Return how all columns of rows to fit are read; to be prepared, they may have text."""
    if prepare is None:
        return ColumnRoles()
    dates = prepare.dates
    coded, numeric = tuple(prepare.named), frozenset(dates)
    return ColumnRoles(raw=True, coded=coded, dates=dates, numeric=numeric, named=prepare.said)


def read_sites(parts: Sequence[SiteTable], roles: ColumnRoles) -> dict[str, Data]:
    """Return the sites' rows, their columns in the order of the first site's.

    Rows that are still to be prepared keep their own columns, text and missing values.
    """
    raw = roles.raw
    if raw:
        parts = _in_common_names(parts, roles.said)
    names = None if raw else column_names(parts[0].table)
    plain = not raw and _are_plain([part.table for part in parts])
    data: dict[str, Data] = {}
    written: dict[str, dict[str, Notation]] = {}
    for part in parts:
        if plain:
            rows = Data(part.table)
        else:
            if names is not None:
                check_same(part, names)
            own = _roles_of(part, names, roles)
            written[part.name] = {}
            rows = read_table(part.table, own, part.owner, notations=written[part.name])
        warn_of_totals(part.owner, rows)
        data[part.name] = _with_weights(rows, part)
    warn_of_shares({name: (data[name], each) for name, each in written.items()})
    if raw:
        data = common_levels(data, MOST_CATEGORIES, roles.coded)
        warn_of_codes(data)
        _check_dates(data, roles.dates)
    if not (raw and next(iter(data.values())).columns):
        _check_widths(data)
    return data


def _check_widths(data: Mapping[str, Data]) -> None:
    """Refuse sites whose rows have more or fewer columns than others."""
    widths = {name: rows.X.shape[1] for name, rows in data.items()}
    if len(set(widths.values())) > 1:
        raise ValueError(f"every site must have the same number of columns, not {widths}")


def _in_common_names(parts: Sequence[SiteTable], said: Sequence[str]) -> list[SiteTable]:
    """Return tables whose columns all sites spell in one way, where that is certain."""
    named = {part.name: column_names(part.table) or () for part in parts}
    every = common_names(named, said)
    for part in parts:
        note_names(part.owner, every[part.name])
    return [replace(part, table=in_names(part.table, every[part.name])) for part in parts]


def _roles_of(part: SiteTable, names: list[str] | None, roles: ColumnRoles) -> ColumnRoles:
    """Return the roles of a site's columns: those of the first site, where all must have them."""
    if names is None or column_names(part.table) is None:
        return roles
    return replace(roles, values=tuple(names))


def check_same(part: SiteTable, names: Sequence[str]) -> None:
    """Refuse a table that lacks columns of the first site, or has others besides."""
    have = column_names(part.table)
    if have is None:
        return
    common = {own: name for name, own in own_names(have, names).items()}
    have = [common.get(name, name) for name in have]
    lacking = [name for name in names if name not in have]
    extra = [name for name in have if name not in names]
    if lacking or extra:
        what = " and ".join(
            f"{verb} {', '.join(map(repr, those))}"
            for verb, those in (("lacks", lacking), ("alone has", extra))
            if those
        )
        raise ValueError(f"{part.where}columns: {what}; every site must have the same columns")


def _check_dates(data: Mapping[str, Data], dates: Mapping[str, str]) -> None:
    """Refuse to make numbers of dates where no site has such a column, or another kind."""
    for name in dates:
        held = [c for rows in data.values() for c in columns_of(rows) if c.name == name]
        if not held:
            raise ValueError(f"dates= names {name!r}, and no site has such a column")


def _with_weights(rows: Data, part: SiteTable) -> Data:
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


def disclosed_columns(engine: Engine) -> tuple[str, ...]:
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
    if all(hasattr(prepare, part) for part in PARTS):
        return PreprocessingSpec("none", then=preparation(prepare))
    known = ", ".join(map(repr, SCALES))
    own = "a PreprocessingSpec or a preparation of your own"
    why = f"prepare must be None, one of {known}, {own}, not {prepare!r}"
    raise ValueError(why)


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
        raise refused("algorithm-clusters", n_clusters=n_clusters, algorithm=algorithm)
    return algorithm


def checked_init(init: Any, n_clusters: Any) -> Any:
    """Return where to start, checked as far as it can be without the rows."""
    if callable(init):
        return init
    if isinstance(init, str):
        return one_of("init", init, INITS, "an array or a callable")
    if not isinstance(n_clusters, Integral):
        raise refused("choice-start", option="init", n_clusters=n_clusters)
    return check_array(init, dtype=np.float64)
