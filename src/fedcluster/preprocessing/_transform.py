"""A fitted preparation: what is done to each row, the same at every site and for new rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data, Floats, Rows
from fedcluster.errors import InputError
from fedcluster.io._columns import codes, columns_of
from fedcluster.preprocessing._scaling import Scaling

BLOCK = 1 << 16
"""Values that are prepared at a time."""
OTHER = "(other)"


@dataclass(frozen=True, slots=True)
class NumericColumn:
    """A column of numbers: x is moved within bounds, its logarithm taken, filled in, scaled.

    Parameters
    ----------
    name : str
        The column.
    bounds : (float, float), optional
        A value outside is moved to the nearer of the two.
    log : bool
        Whether log(1 + x) is taken; x must be at least 0.
    fill : float, optional
        What a missing value becomes.
    shift, scale : float
        The result is (x - shift) / scale.
    """

    name: str
    bounds: tuple[float, float] | None = None
    log: bool = False
    fill: float | None = None
    shift: float = 0.0
    scale: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """What the prepared columns are called."""
        return (self.name,)

    def apply(self, data: Data, j: int) -> Floats:
        """The prepared column (n, 1) of column j of the rows."""
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

    def filled(self, data: Data, j: int) -> int:
        """How many values are filled in."""
        return 0 if self.fill is None else int(np.count_nonzero(np.isnan(data.X[:, j])))

    def invert(self, prepared: Floats) -> Floats:
        """Prepared values (n, 1) in the column's own units."""
        x = prepared * self.scale + self.shift
        units: Floats = np.expm1(x) if self.log else x
        return units


@dataclass(frozen=True, slots=True)
class Category:
    """A column of text: one column of 0 and 1 for each of its levels (one-hot).

    Parameters
    ----------
    name : str
        The column.
    levels : tuple of str
        Its levels.
    other : bool
        Whether all other texts share one more column. Without it they are 0 in all columns.
    fill : str, optional
        The level that a missing value becomes.
    coded : bool
        Whether the result is the number of the level instead, one more for all other texts.
    """

    name: str
    levels: tuple[str, ...]
    other: bool = False
    fill: str | None = None
    coded: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """What the prepared columns are called."""
        if self.coded:
            return (self.name,)
        levels = [*self.levels, *([OTHER] if self.other else [])]
        return tuple(f"{self.name}={level}" for level in levels)

    def apply(self, data: Data, j: int) -> Floats:
        """The prepared columns, (n, number of levels), NaN where a value is missing."""
        number, missing = self._numbers(data, j)
        if self.coded:
            coded = np.where(number < 0, len(self.levels), number)
            return np.where(missing & (number < 0), np.nan, coded.astype(np.float64))[:, None]
        width = len(self.names)
        if self.other:
            number[(number < 0) & ~missing] = width - 1
        hot: Floats = (number[:, None] == np.arange(width)).astype(np.float64)
        hot[missing & (number < 0)] = np.nan
        return hot

    def unknown(self, data: Data, j: int) -> int:
        """How many values are of no level."""
        number, missing = self._numbers(data, j)
        return int(np.count_nonzero((number < 0) & ~missing))

    def filled(self, data: Data, j: int) -> int:
        """How many values are filled in."""
        number, missing = self._numbers(data, j)
        return int(np.count_nonzero(missing & (number >= 0)))

    def invert(self, prepared: Floats) -> Floats:
        """Prepared values are the shares of the levels already."""
        return prepared

    def _numbers(self, data: Data, j: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """The number of each row's level, (n,), -1 for none; and where the value is missing."""
        here, code = codes(data, j)
        missing = np.isnan(code)
        place = {level: i for i, level in enumerate(self.levels)}
        fill = -1 if self.fill is None else place.get(self.fill, -1)
        agreed = np.array([*(place.get(level, -1) for level in here), fill], dtype=np.intp)
        return agreed[np.where(missing, len(here), code).astype(np.intp)], missing


@dataclass(frozen=True, slots=True)
class Principal:
    """The first q principal components of d prepared columns.

    Parameters
    ----------
    mean : tuple of float
        (d,), subtracted first.
    components : tuple of tuple of float
        (q, d), orthonormal, by falling variance.
    variances : tuple of float
        (q,), along the components.
    """

    mean: tuple[float, ...]
    components: tuple[tuple[float, ...], ...]
    variances: tuple[float, ...]

    def apply(self, X: Floats) -> Floats:
        """Rows (n, d) along the components, (n, q)."""
        along: Floats = (X - np.array(self.mean)) @ np.array(self.components).T
        return along

    def invert(self, X: Floats) -> Floats:
        """Rows (n, q) back in the d columns."""
        back: Floats = X @ np.array(self.components) + np.array(self.mean)
        return back


@dataclass(frozen=True, slots=True)
class Preprocessor:
    """What is done to the rows of every site, column by column, by name.

    Rows may have other columns too, and in any order; they are left out.

    Parameters
    ----------
    columns : tuple of Measure or Category
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

    columns: tuple[NumericColumn | Category, ...]
    missing: str = "error"
    principal: Principal | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns before principal components: ``age``, ``sex=F``, ``sex=M``."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def names_out(self) -> tuple[str, ...]:
        """The names of the prepared columns."""
        if self.principal is None:
            return self.names
        return tuple(f"pc{i}" for i in range(len(self.principal.components)))

    @property
    def n_columns_out(self) -> int:
        """The number p of prepared columns."""
        return len(self.names) if self.principal is None else len(self.principal.components)

    def apply(self, data: Data) -> Data:
        """Prepared rows (n, p), without those that are dropped; of the type of the rows given."""
        places = self._places(data)
        X = np.empty((len(data), len(self.names_out)), data.X.dtype)
        scaling = self._scaling
        if scaling is not None:
            in_order = places == list(range(data.X.shape[1]))
            lacks = scaling.apply(data.X if in_order else data.X[:, places], X)
            return self._complete(X, data) if lacks else _prepared(X, data)
        size = max(1, BLOCK // max(1, len(self.names)))
        for start in range(0, len(data), size):
            block = slice(start, start + size)
            X[block] = self._block(data.take(block), places)
        return self._complete(X, data)

    def complete(self, data: Data) -> NDArray[np.bool_]:
        """Whether each row is among the prepared ones, (n,)."""
        if self.missing != "drop":
            return np.ones(len(data), dtype=bool)
        kept = replace(self, missing="keep", principal=None).apply(data).X
        return np.logical_not(_lacking(kept))

    def unknown(self, data: Data) -> dict[str, int]:
        """How many texts are of no level that is known, by column, of those that have some."""
        return self._counted(
            data,
            lambda c, j: c.unknown(data, j) if isinstance(c, Category) and not c.other else 0,
        )

    def filled(self, data: Data) -> dict[str, int]:
        """How many values are missing and filled in, by column, of those that lack some."""
        return self._counted(data, lambda c, j: c.filled(data, j))

    def _counted(
        self, data: Data, count: Callable[[NumericColumn | Category, int], int]
    ) -> dict[str, int]:
        """What is counted in each column of the rows, by name, where it is not 0."""
        places = zip(self.columns, self._places(data), strict=True)
        return {c.name: n for c, j in places if (n := count(c, j))}

    def invert(self, centers: Floats) -> Floats:
        """Prepared rows (k, p) in the units of the columns, as `names` names them.

        Of a text, the result is the share of each of its levels; of a logarithm, the value whose
        logarithm was meant.
        """
        X = np.asarray(centers, dtype=np.float64)
        if self.principal is not None:
            X = self.principal.invert(X)
        parts, start = [], 0
        for column in self.columns:
            stop = start + len(column.names)
            parts.append(column.invert(X[:, start:stop]))
            start = stop
        return np.concatenate(parts, axis=1)

    def plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self) | {"columns": [_plain(column) for column in self.columns]}

    @classmethod
    def of_plain(cls, content: Mapping[str, Any]) -> Self:
        """From what `plain` gave, or JSON made of it.

        Raises
        ------
        ValueError, LookupError, TypeError
            If it is something else.
        """
        principal = content["principal"]
        return cls(
            tuple(_column(each) for each in content["columns"]),
            _one_of(content["missing"], ("error", "drop", "keep")),
            None if principal is None else _principal(principal),
        )

    @property
    def _scaling(self) -> Scaling | None:
        """What is done to all columns side by side, where no more is done than that."""
        measures = [c for c in self.columns if isinstance(c, NumericColumn) and not c.log]
        if not measures or len(measures) < len(self.columns) or self.principal is not None:
            return None
        return Scaling.of(measures)

    def _places(self, data: Data) -> list[int]:
        """Where the columns stand in these rows."""
        place = {column.name: j for j, column in enumerate(columns_of(data))}
        if lacking := [column.name for column in self.columns if column.name not in place]:
            raise InputError(
                f"there is no column {', '.join(map(repr, lacking))}; there are {', '.join(place)}"
            )
        return [place[column.name] for column in self.columns]

    def _block(self, data: Data, places: Sequence[int]) -> Floats:
        X = np.concatenate(
            [column.apply(data, j) for column, j in zip(self.columns, places, strict=True)], axis=1
        )
        return X if self.principal is None else self.principal.apply(X)

    def _complete(self, X: Rows, data: Data) -> Data:
        prepared, lacking = _prepared(X, data), _lacking(X)
        if self.missing == "keep" or not lacking.any():
            return prepared
        if self.missing == "drop":
            return prepared.take(~lacking)
        raise InputError(
            f"{np.count_nonzero(lacking)} of {len(X)} rows have a missing value, the first one is "
            f"row {int(np.argmax(lacking)) + 1}; fill them or drop these rows"
        )


def _prepared(X: Rows, data: Data) -> Data:
    """Prepared rows, with what is known of each."""
    return Data(X, data.sample_weight, data.y, groups=data.groups)


def _lacking(X: Rows) -> NDArray[np.bool_]:
    """Whether each row lacks a value, (n,)."""
    if not np.isnan(X.max(initial=-np.inf)):
        return np.zeros(len(X), dtype=bool)
    lacking: NDArray[np.bool_] = np.asarray(np.isnan(X).any(axis=1))
    return lacking


def _plain(column: NumericColumn | Category) -> dict[str, Any]:
    kind = "number" if isinstance(column, NumericColumn) else "category"
    return {"kind": kind, **asdict(column)}


def _column(content: Mapping[str, Any]) -> NumericColumn | Category:
    """One column of a preparation from JSON, each field of the right type."""
    given = dict(content)
    kind = _one_of(given.pop("kind"), ("number", "category"))
    if not isinstance(given["name"], str):
        raise TypeError("the name of a column is not a text")
    if kind == "category":
        given["levels"] = tuple(_each(given["levels"], str))
        return Category(**given)
    bounds = given.pop("bounds")
    for key in ("shift", "scale", *(["fill"] if given["fill"] is not None else [])):
        given[key] = float(given[key])
    if not given["scale"] > 0:
        raise ValueError("a column is divided by what is not above 0")
    return NumericColumn(bounds=None if bounds is None else _pair(bounds), **given)


def _principal(content: Mapping[str, Any]) -> Principal:
    mean, variances = (tuple(map(float, content[key])) for key in ("mean", "variances"))
    components = tuple(tuple(map(float, line)) for line in content["components"])
    if len(components) != len(variances) or any(len(line) != len(mean) for line in components):
        raise ValueError("the principal components have not all the same length")
    return Principal(mean, components, variances)


def _pair(values: Any) -> tuple[float, float]:
    low, high = map(float, values)
    return low, high


def _each(values: Any, kind: type) -> list[Any]:
    if not isinstance(values, list | tuple) or not all(isinstance(v, kind) for v in values):
        raise TypeError(f"expected a list of {kind.__name__}")
    return list(values)


def _one_of(value: Any, names: tuple[str, ...]) -> Any:
    if value not in names:
        raise ValueError(f"{value!r} is none of {', '.join(names)}")
    return value
