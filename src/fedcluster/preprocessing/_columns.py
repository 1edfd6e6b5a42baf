"""What is done to one column, or to all prepared columns: numbers, categories, components."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data, Floats
from fedcluster.errors import InputError
from fedcluster.io._columns import codes

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
        """The names of the prepared columns."""
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

    def filled(self, data: Data, j: int) -> int:
        """Return how many values are filled in."""
        return 0 if self.fill is None else int(np.count_nonzero(np.isnan(data.X[:, j])))

    def invert(self, prepared: Floats) -> Floats:
        """Return prepared values (n, 1) in the column's own units."""
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
        """The names of the prepared columns."""
        if self.coded:
            return (self.name,)
        levels = [*self.levels, *([OTHER] if self.other else [])]
        return tuple(f"{self.name}={level}" for level in levels)

    def apply(self, data: Data, j: int) -> Floats:
        """Return the prepared columns, (n, number of levels), NaN where a value is missing."""
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
        """Return how many values are of no level."""
        number, missing = self._numbers(data, j)
        return int(np.count_nonzero((number < 0) & ~missing))

    def filled(self, data: Data, j: int) -> int:
        """Return how many values are filled in."""
        number, missing = self._numbers(data, j)
        return int(np.count_nonzero(missing & (number >= 0)))

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
        """Return rows (n, d) along the components, (n, q)."""
        along: Floats = (X - np.array(self.mean)) @ np.array(self.components).T
        return along

    def invert(self, X: Floats) -> Floats:
        """Return rows (n, q) in the d columns."""
        back: Floats = X @ np.array(self.components) + np.array(self.mean)
        return back


def plain_column(column: NumericColumn | Category) -> dict[str, Any]:
    """Return a column as JSON can hold it."""
    kind = "number" if isinstance(column, NumericColumn) else "category"
    return {"kind": kind, **asdict(column)}


def column_from_plain(content: Mapping[str, Any]) -> NumericColumn | Category:
    """Return a column from JSON, each field of the right type."""
    given = dict(content)
    kind = one_of(given.pop("kind"), ("number", "category"))
    if not isinstance(given["name"], str):
        raise TypeError("the name of a column is not a text")
    if kind == "category":
        levels = given["levels"]
        if not isinstance(levels, list | tuple) or not all(isinstance(v, str) for v in levels):
            raise TypeError("expected a list of str")
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


def principal_from_plain(content: Mapping[str, Any]) -> Principal:
    """Return principal components from JSON, all of one length."""
    mean, variances = (tuple(map(float, content[key])) for key in ("mean", "variances"))
    components = tuple(tuple(map(float, line)) for line in content["components"])
    if len(components) != len(variances) or any(len(line) != len(mean) for line in components):
        raise ValueError("the principal components have not all the same length")
    return Principal(mean, components, variances)


def one_of(value: Any, names: tuple[str, ...]) -> Any:
    """Return a value that must be one of some names."""
    if value not in names:
        raise ValueError(f"{value!r} is none of {', '.join(names)}")
    return value
