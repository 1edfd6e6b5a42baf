"""Fitted preprocessors: what becomes of each row, the same at every site and for new rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fedcluster._ranges import UNTOLD
from fedcluster.core import Column, Data, Describe, Floats, Grouped, Rows
from fedcluster.errors import InputError
from fedcluster.io._columns import codes, columns_of
from fedcluster.metrics._moments import row_weights
from fedcluster.preprocessing._moments import Principal
from fedcluster.privacy._ledger import PolicyError

OTHER = "(other)"
MOST_LEVELS = 20_000
MOST_COLUMNS = 100_000
LARGEST_SCALE = 1e50
BLOCK = 1 << 16
"""Values that are prepared at a time."""


@dataclass(frozen=True, slots=True)
class NumericColumn:
    """Column of numbers: moved within bounds, as logarithm, filled in and scaled.

    Parameters
    ----------
    name : str
        The column.
    bounds : (float, float), optional
        A value outside is moved to the nearer of the two.
    log : bool, default=False
        Whether log(1 + x) is taken; x must be at least 0.
    fill : float, optional
        The value in the place of a missing one.
    shift, scale : float
        The result is (x - shift) / scale.
    """

    kind: ClassVar[str] = "number"
    name: str
    bounds: tuple[float, float] | None = None
    log: bool = False
    fill: float | None = None
    shift: float = 0.0
    scale: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the prepared columns."""
        return (self.name,)

    def apply(self, data: Data, j: int) -> Floats:
        """Return the prepared column (n, 1) of column j of the rows."""
        x = data.X[:, j].astype(np.float64)
        if self.bounds is not None:
            x = np.clip(x, *self.bounds)
        if self.log:
            if (x < 0).any():
                raise InputError(
                    f"column {self.name!r} has a negative value, of which there is no logarithm; "
                    "take it as it is"
                )
            x = np.log1p(x)
        if self.fill is not None:
            x[np.isnan(x)] = self.fill
        return ((x - self.shift) / self.scale)[:, None]

    def check(self) -> None:
        """Refuse numbers that no preparation of real rows has; their squares would overflow."""
        low, high = self.bounds or (0.0, 0.0)
        given = (low, high, self.shift, 0.0 if self.fill is None else self.fill)
        if not all(abs(x) <= LARGEST_SCALE for x in given) or low > high:
            raise ValueError(f"bounds, shift and fill must be numbers up to {LARGEST_SCALE:g}")
        if not 1 / LARGEST_SCALE <= self.scale <= LARGEST_SCALE:
            raise ValueError(f"scale must be {1 / LARGEST_SCALE:g} to {LARGEST_SCALE:g}")

    def told_only(self, told: Column) -> Self:
        """Return the same column; refuse one whose values are the codes of texts."""
        if told.kind not in ("number", "empty"):
            raise PolicyError("preparation: a column of numbers must hold numbers")
        return self

    def unknown(self, data: Data, j: int) -> int:
        """Return how many values are of no known level: none, as a number has no levels."""
        return 0

    def filled(self, data: Data, j: int) -> int:
        """Return how many values are filled in."""
        return 0 if self.fill is None else int(np.count_nonzero(np.isnan(data.X[:, j])))

    def within(self, data: Data, j: int) -> Floats:
        """Return the scatter (1,) within groups, 0 where logarithm or bounds bend the column."""
        if data.grouped is None or self.log or self.bounds is not None:
            return np.zeros(1)
        return np.array([data.grouped.scatter.get(self.name, 0.0) / self.scale**2])

    def invert(self, prepared: Floats) -> Floats:
        """Return prepared values (n, 1) in the column's own units."""
        x = prepared * self.scale + self.shift
        units: Floats = np.expm1(x) if self.log else x
        return units


@dataclass(frozen=True, slots=True)
class Category:
    """Column of text: one column of 0 and 1 for each of its levels (one-hot).

    Parameters
    ----------
    name : str
        The column.
    levels : tuple of str
        Its levels.
    other : bool, default=False
        Whether all other texts share one more column. Without it they are 0 in all columns.
    fill : str, optional
        The level that a missing value becomes.
    coded : bool, default=False
        Whether the result is the number of the level instead, one more for all other texts.
    """

    kind: ClassVar[str] = "category"
    name: str
    levels: tuple[str, ...]
    other: bool = False
    fill: str | None = None
    coded: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the prepared columns."""
        if self.coded:
            return (self.name,)
        levels = [*self.levels, *([OTHER] if self.other else [])]
        return tuple(f"{self.name}={level}" for level in levels)

    def apply(self, data: Data, j: int) -> Floats:
        """Return the prepared columns, (n, number of levels), NaN where a value is missing."""
        if data.grouped is not None:
            shares = self.shares(data, j)
            return 0.0 * shares[:, :1] if self.coded else shares[:, : len(self.names)]
        number, missing = self._numbers(data, j)
        lacking = missing & (number < 0)
        number[number < 0] = len(self.levels)  # the column of other texts, if there is one
        columns = number[:, None] if self.coded else number[:, None] == np.arange(len(self.names))
        prepared: Floats = columns.astype(np.float64)
        prepared[lacking] = np.nan
        return prepared

    def shares(self, data: Data, j: int) -> Floats:
        """Return the share of each level in each group, the last one of all others, (n, l + 1).

        NaN where a group tells nothing, unless that is filled in.

        Raises
        ------
        InputError
            If the column is no text at this site.
        """
        told = None if data.grouped is None else data.grouped.shares.get(j)
        if told is None:
            raise InputError(f"column {self.name!r} has no texts that its groups tell")
        here = {level: i for i, level in enumerate(columns_of(data)[j].levels)}
        agreed = [(i, here[level]) for i, level in enumerate(self.levels) if level in here]
        shares = np.zeros((len(data), len(self.levels) + 1))
        for i, own in agreed:
            shares[:, i] = told[:, [own]].toarray()[:, 0]
        shares[:, -1] = np.maximum(1.0 - shares[:, :-1].sum(axis=1), 0.0)
        absent = np.isnan(data.X[:, j])
        shares[absent] = np.nan
        if self.fill is not None:
            shares[absent] = np.array([*self.levels, None]) == self.fill
        return shares

    def check(self) -> None:
        """Refuse more levels than all sites together tell, and one that comes twice."""
        if len(self.levels) > MOST_LEVELS or len(set(self.levels)) < len(self.levels):
            raise ValueError(f"a category must have at most {MOST_LEVELS:,} different levels")

    def told_only(self, told: Column) -> Self:
        """Return the same column, in which no value has a level that the site does not tell.

        Such a level keeps its place, under a name that no text has.
        """
        names = {
            level: level if level in told.levels else f"{UNTOLD}{level}" for level in self.levels
        }
        fill = None if self.fill is None else names.get(self.fill)
        return replace(self, levels=tuple(names.values()), fill=fill)

    def unknown(self, data: Data, j: int) -> int:
        """Return how many values are of no known level, unless another column counts those."""
        if self.other:
            return 0
        number, missing = self._numbers(data, j)
        return int(np.count_nonzero((number < 0) & ~missing))

    def filled(self, data: Data, j: int) -> int:
        """Return how many values are filled in."""
        number, missing = self._numbers(data, j)
        return int(np.count_nonzero(missing & (number >= 0)))

    def within(self, data: Data, j: int) -> Floats:
        """Return the scatter within groups that the shares (n, l) of the levels have, (l,)."""
        share = np.nan_to_num(self.apply(data, j))
        within: Floats = row_weights(data) @ (share * (1.0 - share))
        return within

    def invert(self, prepared: Floats) -> Floats:
        """Return prepared values as they are: the shares of the levels."""
        return prepared

    def _numbers(self, data: Data, j: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Return the number of each row's level, (n,), -1 for none; and where one is missing."""
        here, code = codes(data, j)
        missing = np.isnan(code)
        place = {level: i for i, level in enumerate(self.levels)}
        fill = -1 if self.fill is None else place.get(self.fill, -1)
        agreed = np.array([*(place.get(level, -1) for level in here), fill], dtype=np.intp)
        return agreed[np.where(missing, len(here), code).astype(np.intp)], missing


AnyColumn = NumericColumn | Category


@dataclass(frozen=True, slots=True)
class Preprocessor:
    """Transform of the rows of every site, column by column, by name.

    Rows may have other columns too, and in any order; they are left out.

    Parameters
    ----------
    columns : tuple of NumericColumn or Category
        In the order of the prepared columns.
    missing : {"error", "drop", "keep"}
        What becomes of a value that is missing and not filled in: an error, its row is dropped,
        or it stays NaN.
    principal : Principal, optional
        Applied at the end.

    Examples
    --------
    >>> from fedcluster.core import Column
    >>> rows = Data(np.array([[0.0, 180.0], [1.0, 160.0]]), columns=(
    ...     Column("sex", "text", ("F", "M")), Column("height")))
    >>> preprocessor = Preprocessor((NumericColumn("height", shift=170.0, scale=10.0),
    ...                            Category("sex", ("F", "M"))))
    >>> preprocessor.names
    ('height', 'sex=F', 'sex=M')
    >>> preprocessor.apply(rows).X
    array([[ 1.,  1.,  0.],
           [-1.,  0.,  1.]])
    >>> preprocessor.invert(np.array([[0.5, 0.25, 0.75]]))
    array([[175.  ,   0.25,   0.75]])
    """

    columns: tuple[AnyColumn, ...]
    missing: str = "error"
    principal: Principal | None = None

    @property
    def numeric(self) -> tuple[NumericColumn, ...]:
        """Columns of numbers."""
        return tuple(c for c in self.columns if isinstance(c, NumericColumn))

    @property
    def categories(self) -> tuple[Category, ...]:
        """Columns of text."""
        return tuple(c for c in self.columns if isinstance(c, Category))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns before principal components: ``age``, ``sex=F``, ``sex=M``."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def names_out(self) -> tuple[str, ...]:
        """Names of the prepared columns."""
        if self.principal is None:
            return self.names
        return tuple(f"pc{i}" for i in range(len(self.principal.components)))

    @property
    def n_columns_out(self) -> int:
        """Number p of prepared columns."""
        return len(self.names_out)

    def apply(self, data: Data) -> Data:
        """Return prepared rows (n, p), without those that are dropped, of the type of the rows."""
        columns = self._columns_of(data)
        X = np.empty((len(data), self.n_columns_out), data.X.dtype)
        if self._is_scaled:
            is_missing = self._scale(data.X, [j for _, j in columns], X)
        else:
            size = max(1, BLOCK // max(1, len(self.names)))
            for start in range(0, len(data), size):
                block = slice(start, start + size)
                X[block] = self._block(data.take(block), columns)
            is_missing = bool(np.isnan(X.max(initial=-np.inf)))
        grouped = self._grouped(data, columns)
        prepared = Data(X, data.sample_weight, data.y, groups=data.groups, grouped=grouped)
        return self._complete(prepared) if is_missing else prepared

    def _grouped(self, data: Data, columns: Sequence[tuple[AnyColumn, int]]) -> Grouped | None:
        """Return what stands behind prepared groups; their scatter where columns are scaled."""
        if data.grouped is None:
            return None
        places = np.cumsum([0, *(len(column.names) for column, _ in columns)]).tolist()
        shares = {
            place: csr_array(np.nan_to_num(column.shares(data, j)))
            for place, (column, j) in zip(places, columns, strict=False)
            if isinstance(column, Category) and column.coded
        }
        within = np.concatenate([column.within(data, j) for column, j in columns])
        if self.principal is not None:
            within = np.array(self.principal.components) ** 2 @ within
        scatter = {f"x{i}": float(each) for i, each in enumerate(within)}
        return replace(data.grouped, shares=shares, scatter=scatter)

    def complete(self, data: Data) -> NDArray[np.bool_]:
        """Return whether each row is among the prepared ones, (n,)."""
        if self.missing != "drop":
            return np.ones(len(data), dtype=bool)
        kept = replace(self, missing="keep", principal=None).apply(data).X
        return np.logical_not(np.isnan(kept).any(axis=1))

    def unknown(self, data: Data) -> dict[str, int]:
        """Count texts of no known level, by column, where there are some."""
        return {c.name: n for c, j in self._columns_of(data) if (n := c.unknown(data, j))}

    def filled(self, data: Data) -> dict[str, int]:
        """Count values that are missing and filled in, by column, where there are some."""
        return {c.name: n for c, j in self._columns_of(data) if (n := c.filled(data, j))}

    def invert(self, centers: Floats) -> Floats:
        """Return prepared rows (k, p) in the units of the columns, as `names` names them.

        Of a text, the result is the share of each of its levels; of a logarithm, the value whose
        logarithm was meant.
        """
        X = np.asarray(centers, dtype=np.float64)
        if self.principal is not None:
            X = self.principal.invert(X)
        stops = np.cumsum([len(column.names) for column in self.columns])
        parts = zip(self.columns, np.split(X, stops[:-1], axis=1), strict=True)
        return np.concatenate([column.invert(part) for column, part in parts], axis=1)

    def check(self, columns: Sequence[str]) -> None:
        """Check that no row need be read to refuse it.

        Parameters
        ----------
        columns : sequence of str
            The columns that there are; none where they have no names.

        Raises
        ------
        ValueError
            Naming the rule that it breaks, and no value.
        """
        names = [column.name for column in self.columns]
        if not names or len(set(names)) < len(names) or not set(names) <= set(columns or names):
            raise ValueError("its columns must be some of those asked about, each once")
        for column in self.columns:
            column.check()
        if len(self.names) > MOST_COLUMNS:
            raise ValueError(f"at most {MOST_COLUMNS:,} prepared columns")
        if self.principal is not None:
            self.principal.check(len(self.names))

    def told_only(self, describe: Describe) -> Self:
        """Return the same preprocessor, bound to what a site tells of its columns.

        Parameters
        ----------
        describe : callable
            Describes them, those named as text, see `Client.describe`.

        Raises
        ------
        PolicyError
            If a column of text is taken for one of numbers.
        """
        told = {column.name: column for column in describe([c.name for c in self.categories])}
        if not told.keys() >= {column.name for column in self.columns}:
            raise PolicyError(
                "preparation: its columns must be some of those asked about, each once"
            )
        return replace(self, columns=tuple(c.told_only(told[c.name]) for c in self.columns))

    def plain(self) -> dict[str, Any]:
        """Return the preprocessor as JSON can hold it."""
        return asdict(self) | {"columns": [{"kind": c.kind, **asdict(c)} for c in self.columns]}

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> Self:
        """Return the preprocessor that `plain` described, or JSON made of it.

        Raises
        ------
        ValueError, LookupError, TypeError
            If it is something else.
        """
        principal = content["principal"]
        return cls(
            tuple(_column_from_plain(each) for each in content["columns"]),
            _one_of(content["missing"], ("error", "drop", "keep")),
            None if principal is None else Principal.from_plain(principal),
        )

    @property
    def _is_scaled(self) -> bool:
        """True if all columns are numbers, without logarithms or principal components."""
        plain = all(isinstance(c, NumericColumn) and not c.log for c in self.columns)
        return plain and bool(self.columns) and self.principal is None

    def _scale(self, X: Rows, places: Sequence[int], out: Rows) -> bool:
        """Write rows of numbers only, all columns in one reading; return whether one is missing.

        The bits are those of one column after the other.
        """
        from fedcluster.kernels._rows import scale_rows  # to load a model takes no compiler

        columns, everything = self.numeric, (-np.inf, np.inf)
        bounds = [everything if c.bounds is None else c.bounds for c in columns]
        return scale_rows(
            X if places == list(range(X.shape[1])) else X[:, places],
            out,
            shift=np.array([c.shift for c in columns]),
            scale=np.array([c.scale for c in columns]),
            fill=np.array([np.nan if c.fill is None else c.fill for c in columns]),
            bounds=np.array(bounds).T.copy(),
        )

    def _columns_of(self, data: Data) -> list[tuple[AnyColumn, int]]:
        """Return the columns, each with its index in these rows."""
        place = {column.name: j for j, column in enumerate(columns_of(data))}
        if lacking := [column.name for column in self.columns if column.name not in place]:
            raise InputError(
                f"there is no column {', '.join(map(repr, lacking))}; there are {', '.join(place)}"
            )
        return [(column, place[column.name]) for column in self.columns]

    def _block(self, data: Data, columns: Sequence[tuple[AnyColumn, int]]) -> Floats:
        """Return prepared rows (n, p), NaN where a value is missing."""
        X = np.concatenate([column.apply(data, j) for column, j in columns], axis=1)
        return X if self.principal is None else self.principal.apply(X)

    def _complete(self, prepared: Data) -> Data:
        """Return prepared rows without those that have a missing value, or raise an error."""
        if self.missing == "keep":
            return prepared
        lacking = np.asarray(np.isnan(prepared.X).any(axis=1))
        if self.missing == "drop":
            return prepared.take(~lacking)
        raise InputError(
            f"{np.count_nonzero(lacking)} of {len(prepared)} rows have a missing value, the first "
            f"one is row {int(np.argmax(lacking)) + 1}; fill them or drop these rows"
        )


def _column_from_plain(content: Mapping[str, Any]) -> AnyColumn:
    """Return a column from JSON, each field of the right type."""
    given = dict(content)
    kind = _one_of(given.pop("kind"), ("number", "category"))
    if not isinstance(given["name"], str):
        raise TypeError("the name of a column is not a text")
    if not all(type(given[key]) is bool for key in {"log", "other", "coded"} & given.keys()):
        raise TypeError("expected a truth value")
    if kind == "category":
        levels = given["levels"]
        if not isinstance(levels, list | tuple) or not all(isinstance(v, str) for v in levels):
            raise TypeError("expected a list of str")
        if given["fill"] not in (None, *levels):
            raise ValueError("a missing value becomes no level")
        return Category(**given | {"levels": tuple(levels)})
    bounds = given["bounds"]
    for key in ("shift", "scale", *(["fill"] if given["fill"] is not None else [])):
        given[key] = float(given[key])
    if not given["scale"] > 0:
        raise ValueError("a column is divided by what is not above 0")
    if bounds is not None:
        low, high = map(float, bounds)
        given["bounds"] = low, high
    return NumericColumn(**given)


def _one_of(value: Any, names: tuple[str, ...]) -> Any:
    """Return a value that must be one of some names."""
    if value not in names:
        raise ValueError(f"{value!r} is none of {', '.join(names)}")
    return value


def aligned(preprocessor: Preprocessor, data: Data) -> Rows:
    """Return prepared rows, one for each row given, (n, p); NaN where a row is dropped.

    Examples
    --------
    >>> from fedcluster.preprocessing import NumericColumn
    >>> rows = Data(np.array([[3.0], [np.nan]]))
    >>> aligned(Preprocessor((NumericColumn("x0", scale=3.0),), missing="drop"), rows)
    array([[ 1.],
           [nan]])
    """
    if preprocessor.missing != "drop":
        return preprocessor.apply(data).X
    rows = replace(preprocessor, missing="keep").apply(data).X
    rows[np.isnan(rows).any(axis=1)] = np.nan
    return rows


def on_whole_rows(
    work: Callable[[Rows], NDArray[Any]], rows: Rows, otherwise: float
) -> NDArray[Any]:
    """Return the results of ``work`` for the rows without NaN, ``otherwise`` for the others."""
    whole = np.logical_not(np.isnan(rows).any(axis=1))
    if whole.all():
        return work(rows)
    results = work(rows[whole])
    every: NDArray[Any] = np.full((len(rows), *results.shape[1:]), otherwise, results.dtype)
    every[whole] = results
    return every
