"""Columns before and after preparation: numbers, and text as columns of 0 and 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats
from fedcluster.core.ranges import UNTOLD, Box
from fedcluster.errors import InputError, PolicyError
from fedcluster.frames.cells import checked_how
from fedcluster.frames.columns import codes, columns_of
from fedcluster.metrics.moments import row_weights

OTHER = "(other)"
MOST_CATEGORY_LEVELS = 20_000
LARGEST_SCALE = 1e50


@dataclass(frozen=True, slots=True)
class NumericColumn:
    """Numeric column: clipped to bounds, as a logarithm, filled in and scaled.

    Parameters
    ----------
    name : str
        The column.
    bounds : (float, float), optional
        A value outside is replaced by the nearer bound.
    log : bool, default=False
        Whether log(1 + x) is taken; x must be at least 0.
    fill : float, optional
        The value that replaces a missing one.
    shift, scale : float
        The result is (x - shift) / scale.
    step : float, default=0
        The result is rounded to a multiple of it, unless it is 0. The last bits of a scaled value
        depend on the unit of the column, and would decide between centres that are equally near.
    date : str, optional
        How dates were converted to numbers when the rows were read, such as "age:2024-12-31".
    """

    kind: ClassVar[str] = "number"
    finest: ClassVar[float] = 2.0**-36
    """The step for values that spread by about 1: above their rounding errors, which are up to
    1e-14, and below what measurements resolve. 240 fits in five units had equal labels, and with
    2^-40 all but one; without a step, 24 of 40 of questionnaires had."""
    name: str
    bounds: tuple[float, float] | None = None
    log: bool = False
    fill: float | None = None
    shift: float = 0.0
    scale: float = 1.0
    step: float = 0.0
    date: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the prepared columns."""
        return (self.name,)

    @property
    def as_found(self) -> Self:
        """Column that leaves the values unchanged."""
        return type(self)(self.name, date=self.date)

    def enclosing(self, given: tuple[float, float]) -> Box:
        """Return the smallest and the largest prepared value, from the range of the raw column."""
        ends = np.array(given)
        if self.bounds is not None:
            ends = np.clip(ends, *self.bounds)
        if self.log:
            ends = np.log1p(np.maximum(ends, 0.0))
        inner = ends if self.fill is None else np.append(ends, self.fill)
        return Box(*(self._scaled(np.array([end])) for end in (min(inner), max(inner))))

    def apply(self, data: Data, j: int) -> Floats:
        """Return the prepared column (n, 1) of column j of the rows."""
        x = data.X[:, j].astype(np.float64)
        if self.bounds is not None:
            x = np.clip(x, *self.bounds)
        if self.log:
            if (x < 0).any():
                raise InputError(
                    f"column {self.name!r} has a negative value, which has no logarithm: use the "
                    "column "
                    "without a logarithm"
                )
            x = np.log1p(x)
        if self.fill is not None:
            x[np.isnan(x)] = self.fill
        return self._scaled(x)[:, None]

    def _scaled(self, x: Floats) -> Floats:
        scaled = (x - self.shift) / self.scale
        return np.rint(scaled / self.step) * self.step if self.step else scaled

    def check(self) -> None:
        """Raise an error for parameters that real rows never give; their squares would overflow."""
        low, high = self.bounds or (0.0, 0.0)
        given = (low, high, self.shift, 0.0 if self.fill is None else self.fill)
        if not all(abs(x) <= LARGEST_SCALE for x in given) or low > high:
            raise ValueError(f"bounds, shift and fill must be numbers up to {LARGEST_SCALE:g}")
        _check_scale(self.scale)
        if not 0 <= self.step <= 1:
            raise ValueError("step must be 0 to 1")

    def disclosed_only(self, disclosed: Column) -> Self:
        """Return the column, safe for any values; refuse one whose values are codes of texts.

        Negative values become 0 before a logarithm, because an error would reveal that such a row
        exists.
        """
        if disclosed.kind not in ("number", "empty"):
            raise PolicyError("preparation: a column of numbers must hold numbers")
        if not self.log:
            return self
        low, high = self.bounds or (0.0, LARGEST_SCALE)
        return replace(self, bounds=(max(low, 0.0), max(high, 0.0)))

    def weighted(self, weight: float) -> Self:
        """Return the column whose squared differences count ``weight`` times."""
        factor = math.sqrt(weight)
        return replace(self, scale=self.scale / factor, step=self.step * factor)

    def filled(self, data: Data, j: int) -> int:
        """Return the number of values that are filled in."""
        return 0 if self.fill is None else int(np.count_nonzero(np.isnan(data.X[:, j])))

    def within(self, data: Data, j: int) -> Floats:
        """Return the scatter (1,) within groups, 0 if a logarithm or bounds change it."""
        if data.grouped is None or self.log or self.bounds is not None:
            return np.zeros(1)
        return np.array([data.grouped.scatter.get(self.name, 0.0) / self.scale**2])

    def placed(self, values: Floats) -> Floats:
        """Return the prepared values of values (n, 1) in the column's own units."""
        return self._scaled(np.log1p(np.maximum(values, 0.0)) if self.log else values)

    def invert(self, prepared: Floats) -> Floats:
        """Return prepared values (n, 1) in the column's own units."""
        x = prepared * self.scale + self.shift
        units: Floats = np.expm1(x) if self.log else x
        return units


@dataclass(frozen=True, slots=True)
class Category:
    """Text column: one column of 0 and 1 for each of its levels (one-hot).

    Parameters
    ----------
    name : str
        The column.
    levels : tuple of str
        Its levels.
    other : bool, default=False
        Whether all other texts share an additional column. Otherwise they are 0 in all columns.
    fill : str, optional
        The level that replaces a missing value.
    coded : bool, default=False
        Whether the result is the index of the level instead, the next index for other texts.
    scale : float, default=1
        The value in a level's column is 1 / scale instead of 1, unless ``coded``.
    """

    kind: ClassVar[str] = "category"
    name: str
    levels: tuple[str, ...]
    other: bool = False
    fill: str | None = None
    coded: bool = False
    scale: float = 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the prepared columns."""
        if self.coded:
            return (self.name,)
        return tuple(f"{self.name}={level}" for level in self.all_levels)

    @property
    def all_levels(self) -> tuple[str, ...]:
        """The levels, with a name for all others if ``other`` is set."""
        return (*self.levels, *([OTHER] if self.other else []))

    @property
    def as_found(self) -> Self:
        """Column of the shares of the levels, without filling in missing values."""
        return type(self)(self.name, self.levels, self.other)

    def enclosing(self, _given: tuple[float, float]) -> Box:
        """Return the smallest and the largest prepared values, which depend on no range."""
        n, most = len(self.names), len(self.levels) if self.coded else 1 / self.scale
        return Box(np.zeros(n), np.full(n, float(most)))

    def apply(self, data: Data, j: int) -> Floats:
        """Return the prepared columns, (n, number of levels), NaN where a value is missing."""
        if data.grouped is not None:
            shares = self.shares(data, j)
            if self.coded:
                return 0.0 * shares[:, :1]
            scaled: Floats = shares[:, : len(self.names)] / self.scale
            return scaled
        number, missing = self._numbers(data, j)
        lacking = missing & (number < 0)
        # unknown texts go to the last column, if there is one for them
        number[number < 0] = len(self.levels)
        columns = number[:, None] if self.coded else number[:, None] == np.arange(len(self.names))
        prepared: Floats = columns.astype(np.float64)
        if not self.coded:
            prepared /= self.scale
        prepared[lacking] = np.nan
        return prepared

    def shares(self, data: Data, j: int) -> Floats:
        """Return the share of each level in each group, the last one for other texts, (n, l + 1).

        NaN for a group without values, unless they are filled in.

        Raises
        ------
        InputError
            If the column is not a text column at this site.
        """
        stored = None if data.grouped is None else data.grouped.shares.get(j)
        if stored is None:
            raise InputError(f"column {self.name!r} has no texts that its groups tell")
        here = {level: i for i, level in enumerate(columns_of(data)[j].levels)}
        agreed = [(i, here[level]) for i, level in enumerate(self.levels) if level in here]
        shares = np.zeros((len(data), len(self.levels) + 1))
        for i, own in agreed:
            shares[:, i] = stored[:, [own]].toarray()[:, 0]
        others = 1.0 - shares[:, :-1].sum(axis=1)
        # Rounding error that a sum of shares may have, per share.
        shares[:, -1] = np.where(others > (2.0**-50) * len(self.levels), others, 0.0)
        absent = np.isnan(data.X[:, j])
        shares[absent] = np.nan
        if self.fill is not None:
            shares[absent] = np.array([*self.levels, None]) == self.fill
        return shares

    def check(self) -> None:
        """Raise an error for duplicate levels, or more than all sites together can have."""
        if len(self.levels) > MOST_CATEGORY_LEVELS or len(set(self.levels)) < len(self.levels):
            raise ValueError(
                f"a category must have at most {MOST_CATEGORY_LEVELS:,} different levels"
            )
        _check_scale(self.scale)

    def disclosed_only(self, disclosed: Column) -> Self:
        """Return the column with those levels disguised that the site does not disclose.

        Such a level keeps its position, under a name that no text has.
        """
        names = {
            level: level if level in disclosed.levels else f"{UNTOLD}{level}"
            for level in self.levels
        }
        fill = None if self.fill is None else names.get(self.fill)
        return replace(self, levels=tuple(names.values()), fill=fill)

    def unknown(self, data: Data, j: int) -> int:
        """Return the number of values without a known level, unless another column counts them."""
        if self.other:
            return 0
        number, missing = self._numbers(data, j)
        return int(np.count_nonzero((number < 0) & ~missing))

    def weighted(self, weight: float) -> Self:
        """Return the column whose squared differences count ``weight`` times."""
        return replace(self, scale=self.scale / math.sqrt(weight))

    def filled(self, data: Data, j: int) -> int:
        """Return the number of values that are filled in."""
        number, missing = self._numbers(data, j)
        return int(np.count_nonzero(missing & (number >= 0)))

    def within(self, data: Data, j: int) -> Floats:
        """Return the scatter within groups of the levels' shares (n, l), (l,)."""
        share = np.nan_to_num(replace(self, scale=1.0).apply(data, j))
        within: Floats = row_weights(data) @ (share * (1.0 - share)) / self.scale**2
        return within

    def placed(self, values: Floats) -> Floats:
        """Return the prepared values of shares of the levels."""
        return values / self.scale

    def invert(self, prepared: Floats) -> Floats:
        """Return the shares of the levels in prepared rows."""
        shares: Floats = prepared * self.scale
        return shares

    def _numbers(self, data: Data, j: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Return the index of each row's level, (n,), -1 for none, and a mask of missing values."""
        here, code = codes(data, j)
        missing = np.isnan(code)
        place = {level: i for i, level in enumerate(self.levels)}
        fill = -1 if self.fill is None else place.get(self.fill, -1)
        agreed = np.array([*(place.get(level, -1) for level in here), fill], dtype=np.intp)
        return agreed[np.where(missing, len(here), code).astype(np.intp)], missing


AnyColumn = NumericColumn | Category


def column_to_plain(column: AnyColumn) -> dict[str, Any]:
    """Return a column as JSON-compatible values, leaving out dates if it has none."""
    own = {each.name: getattr(column, each.name) for each in fields(column)}
    plain = {"kind": column.kind, **own}
    return {key: value for key, value in plain.items() if key != "date" or value is not None}


def _check_scale(scale: float) -> None:
    """Raise an error for a scale that real rows never give."""
    if not 1 / LARGEST_SCALE <= scale <= LARGEST_SCALE:
        raise ValueError(f"scale must be {1 / LARGEST_SCALE:g} to {LARGEST_SCALE:g}")


def column_from_plain(content: Mapping[str, Any]) -> AnyColumn:
    """Return a column from JSON, after checking the type of each field."""
    given = dict(content)
    kind = one_of(given.pop("kind"), ("number", "category"))
    given["scale"] = float(given["scale"])
    if not given["scale"] > 0:
        raise ValueError("a column is divided by what is not above 0")
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
    if (date := given.get("date")) is not None and checked_how(date) != date:
        raise ValueError("a date becomes a number in a way that is not known")
    # earlier versions wrote no step
    bounds, given["step"] = given["bounds"], float(given.get("step", 0.0))
    for key in ("shift", *(["fill"] if given["fill"] is not None else [])):
        given[key] = float(given[key])
    if bounds is not None:
        low, high = map(float, bounds)
        given["bounds"] = low, high
    return NumericColumn(**given)


def one_of(value: Any, names: tuple[str, ...]) -> Any:
    """Return a value after checking that it is one of the given names."""
    if value not in names:
        raise ValueError(f"{value!r} is none of {', '.join(names)}")
    return value
