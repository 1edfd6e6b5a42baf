"""Fitted preprocessors: how each row is prepared, the same at every site and for new rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Describe, Floats, Grouped, Rows, on_grid
from fedcluster.core.ranges import EVERYTHING, LARGEST, Box, turned
from fedcluster.errors import InputError, PolicyError
from fedcluster.frames.columns import HELD, columns_of, kind_refused
from fedcluster.options.choices import PARTS, PREPARATIONS
from fedcluster.options.choices import made as made_by_name
from fedcluster.preprocessing.columns import (
    LARGEST_SCALE,
    AnyColumn,
    Category,
    NumericColumn,
    column_from_plain,
    column_to_plain,
    one_of,
)
from fedcluster.preprocessing.site_effects import SiteEffects, table


@dataclass(frozen=True, slots=True)
class Principal:
    """First q principal components of d prepared columns.

    Parameters
    ----------
    mean : tuple of float
        The means (d,), which are subtracted first.
    components : tuple of tuple of float
        Orthonormal components (q, d), by decreasing variance.
    variances : tuple of float
        The variances (q,) along the components.
    """

    mean: tuple[float, ...]
    components: tuple[tuple[float, ...], ...]
    variances: tuple[float, ...]

    def names(self, _names: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the components."""
        return tuple(f"pc{i}" for i in range(len(self.components)))

    def apply(self, X: Floats) -> Floats:
        """Return the coordinates (n, q) of rows (n, d) along the components."""
        along: Floats = (X - np.array(self.mean)) @ np.array(self.components).T
        return along

    def invert(self, X: Floats) -> Floats:
        """Return rows in the d columns from coordinates (n, q)."""
        back: Floats = X @ np.array(self.components) + np.array(self.mean)
        return back

    def check(self, width: int) -> None:
        """Check that the components are orthonormal directions in ``width`` columns.

        Raises
        ------
        ValueError
            If they are not.
        """
        components, mean = np.array(self.components), np.array(self.mean)
        if components.ndim != 2 or components.shape[1] != width or len(components) > width:
            raise ValueError("principal components must be of as many columns as there are")
        if not (np.abs(mean) <= LARGEST).all() or not (np.abs(self.variances) <= LARGEST**2).all():
            raise ValueError("means and variances of principal components must be finite")
        with np.errstate(all="ignore"):
            apart = np.abs(components @ components.T - np.eye(len(components)))
        # Largest deviation of the components' products from 0 and 1 for orthonormality.
        if not (apart <= 1e-6).all():
            raise ValueError("principal components must be orthonormal")

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> Self:
        """Return principal components from JSON, after checking their shapes.

        Raises
        ------
        ValueError, LookupError, TypeError
            If the content has another form.
        """
        mean, variances = table([content["mean"], content["variances"]])
        components = table(content["components"])
        if len(components) != len(variances) or any(len(line) != len(mean) for line in components):
            raise ValueError("the principal components have not all the same length")
        return cls(mean, components, variances)


# Users' own preparations: what is done to rows after everything in a `PreprocessingSpec`


class Preparation(Protocol):
    """A user's own map of rows, for ``prepare=``: a frozen dataclass of numbers and tuples.

    Each row is mapped independently, in the same way at every site. A preparation that has to be
    fitted also has a method ``fit(names)``: a plan that asks the sites and returns the fitted
    preparation.
    """

    def names(self, names: Sequence[str]) -> Sequence[str]:
        """Return the names of the q prepared columns, given those of the d raw ones."""

    def apply(self, X: Floats) -> Floats:
        """Return prepared rows (n, q) of rows (n, d)."""

    def invert(self, X: Floats) -> Floats:
        """Return rows (n, d) in the units of the columns from prepared rows (n, q)."""

    def check(self, width: int) -> None:
        """Raise ValueError if rows with ``width`` columns cannot be mapped by these parameters.

        A site calls this before it reads any row, because the parameters come from the coordinator.
        """


def preparation(given: Any) -> Preparation:
    """Return a user's own preparation, imported if it is given by its dotted name.

    Raises
    ------
    InputError
        If it does not exist, or is incomplete.
    """
    try:
        made: Preparation = made_by_name(given) if isinstance(given, str) else given
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"preparation {given!r} cannot be made: {error}") from error
    lacking = [part for part in PARTS if not callable(getattr(made, part, None))]
    if lacking or not is_dataclass(made) or isinstance(made, type):
        what = f"lacks {', '.join(lacking)}" if lacking else "is no instance of a frozen dataclass"
        raise InputError(f"preparation {made!r} {what}")
    return made


def own_to_plain(own: Any) -> dict[str, Any]:
    """Return a user's own preparation as JSON-compatible values."""
    return {"own": type(own).__name__, "fields": asdict(own)}


def own_from_plain(content: Mapping[str, Any]) -> Preparation:
    """Return the preparation from its plain form, if its class is known here.

    Raises
    ------
    PolicyError
        If no loaded plugin defines its class.
    ValueError, LookupError, TypeError
        If the content has another form.
    """
    name, values = content["own"], content["fields"]
    if not isinstance(name, str) or name not in PREPARATIONS:
        raise PolicyError(
            f"preparation {str(name)[:100]!r} is of no plugin that is loaded here: name its module "
            "by --plugin, by plugins in a study.toml or site.toml, or in Python by load_plugins"
        )
    made: Preparation = PREPARATIONS[name](**{key: frozen(each) for key, each in values.items()})
    return made


def frozen(value: Any) -> Any:
    """Return a JSON value with tuples in place of lists; numbers must be finite."""
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("numbers of a preparation must be finite")
    if value is not None and not isinstance(value, str | int | float | bool):
        raise TypeError("a preparation has numbers, texts and lists of them")
    return value


# All of it


@dataclass(frozen=True, slots=True)
class Preprocessor:
    """Transform of the rows of every site, column by column, by name.

    Rows may have additional columns, which are left out, and columns in any order. If there are no
    columns, a site fills in all of its own that are numbers, as they are.

    Parameters
    ----------
    columns : tuple of NumericColumn or Category
        The columns, in the order of the prepared ones.
    missing : {"error", "drop", "keep", "ignore"}
        What happens to a missing value that is not filled in: an error, its row is dropped, or it
        stays NaN. With "ignore", all stay NaN, and rows without any value are dropped.
    principal : Principal or Preparation, optional
        Principal components, or a user's own preparation, applied after the columns.
    unit : bool, default=False
        Whether each row is finally divided by its length; a row of zeros is dropped.
    box : bool, default=False
        Whether each value is finally clipped to [-1, 1], with 0 for a missing one, and truncated to
        a multiple of 2^-20, as differential privacy requires; see `fedcluster.core.on_grid`.
    effects : SiteEffects, optional
        The model by which a site finds the offset of its rows, which is subtracted from the numbers
        in the end; then all rows of a site must be prepared together.

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
    principal: Principal | Preparation | None = None
    unit: bool = False
    box: bool = False
    effects: SiteEffects | None = None
    block_values = 1 << 16
    """Values that are prepared at a time."""
    fewest_rows = 256
    """Rows that are prepared at a time, at least, as each column is a call."""

    @classmethod
    def as_they_are(cls, columns: Iterable[Column]) -> Self:
        """Return the preprocessor that keeps the numbers among some columns as they are."""
        names = (column.name for column in columns if column.kind == "number")
        return cls(tuple(map(NumericColumn, names)), missing="keep")

    @classmethod
    def in_box(cls, names: Sequence[str], low: Sequence[float], high: Sequence[float]) -> Self:
        """Return the preprocessor that scales the public bounds of numeric columns to [-1, 1].

        A value outside is replaced by the nearer bound, and a missing one by the middle.

        Parameters
        ----------
        names : sequence of str
            The columns.
        low, high : sequence of float
            The bounds of each column. They must be known without the rows.

        Raises
        ------
        InputError
            If bounds are not finite, or a lower bound is not below the upper one.

        Examples
        --------
        >>> ages = Preprocessor.in_box(["x0"], [0.0], [120.0])
        >>> ages.apply(Data(np.array([[90.0], [131.0], [np.nan]]))).X.tolist()
        [[0.5], [1.0], [0.0]]
        """
        columns = []
        for name, least, most in zip(names, map(float, low), map(float, high), strict=True):
            if not -LARGEST_SCALE <= least < most <= LARGEST_SCALE:
                raise InputError(
                    f"column {name!r} has the bounds {least:g} and {most:g}: give two finite "
                    "numbers, the lower one first"
                )
            middle = least / 2 + most / 2
            columns.append(
                NumericColumn(name, (least, most), False, middle, middle, most / 2 - least / 2)
            )
        return cls(tuple(columns), box=True)

    @property
    def numeric(self) -> tuple[NumericColumn, ...]:
        """The numeric columns."""
        return tuple(c for c in self.columns if isinstance(c, NumericColumn))

    @property
    def categories(self) -> tuple[Category, ...]:
        """The text columns."""
        return tuple(c for c in self.columns if isinstance(c, Category))

    def places(self, kind: type[AnyColumn]) -> list[int]:
        """Return the indices of the columns of a kind."""
        return [j for j, column in enumerate(self.columns) if isinstance(column, kind)]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns before principal components: ``age``, ``sex=F``, ``sex=M``."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def names_out(self) -> tuple[str, ...]:
        """Names of the prepared columns."""
        if self.principal is None:
            return self.names
        return tuple(self.principal.names(self.names))

    @property
    def n_columns_out(self) -> int:
        """The number p of prepared columns."""
        return len(self.names_out)

    @property
    def as_found(self) -> Self:
        """Transform that keeps columns in their own units, with gaps, and texts by level."""
        columns = tuple(column.as_found for column in self.columns)
        found = replace(self, columns=columns, missing="keep", principal=None, effects=None)
        return replace(found, unit=False, box=False)

    def enclosing(self, ranges: Mapping[str, tuple[float, float]]) -> Box:
        """Return the smallest and the largest values of prepared rows, from ranges of columns.

        Examples
        --------
        >>> age = NumericColumn("age", shift=40.0, scale=20.0)
        >>> Preprocessor((age, Category("sex", ("F",)))).enclosing({"age": (0.0, 120.0)})
        Box(low=array([-2.,  0.]), high=array([4., 1.]))
        """
        if self.box:
            return Box(np.full(self.n_columns_out, -1.0), np.full(self.n_columns_out, 1.0))
        if not self.columns:
            return Box.unbounded(0)
        boxes = [column.enclosing(ranges.get(column.name, EVERYTHING)) for column in self.columns]
        low, high = (np.concatenate([getattr(b, end) for b in boxes]) for end in ("low", "high"))
        found = Box(low, high)
        if self.principal is not None and not isinstance(self.principal, Principal):
            found = Box.unbounded(self.n_columns_out)
        elif self.principal is not None:
            found = turned(found, self.principal.mean, np.array(self.principal.components))
        if self.effects is not None:
            found = Box.unbounded(self.n_columns_out)
        if self.unit:
            found = Box(np.where(found.low >= 0, 0.0, -1.0), np.where(found.high <= 0, 0.0, 1.0))
        return found

    def apply(self, data: Data) -> Data:
        """Return prepared rows (n, p), in the type of the rows, without dropped ones."""
        X, dropped = self._made(data)
        grouped = self._grouped(data, self._columns_of(data))
        prepared = Data(X, data.sample_weight, data.y, groups=data.groups, grouped=grouped)
        return prepared if dropped is None else prepared.take(~dropped)

    def aligned(self, data: Data) -> Rows:
        """Return prepared rows, one for each given row, (n, p), with NaN for dropped ones.

        Examples
        --------
        >>> rows = Data(np.array([[3.0], [np.nan]]))
        >>> Preprocessor((NumericColumn("x0", scale=3.0),), missing="drop").aligned(rows)
        array([[ 1.],
               [nan]])
        """
        X, dropped = self._made(data)
        if dropped is not None:
            X[dropped] = np.nan
        return X

    def _made(self, data: Data) -> tuple[Rows, NDArray[np.bool_] | None]:
        """Return prepared rows (n, p), and a mask of dropped ones, (n,), or None if none is."""
        if self.missing == "ignore" or self.effects is not None:
            how = self.keeping() if self.effects is None else self.at_site(data)
            X = how.aligned(data)
            empty = np.asarray(np.isnan(X).all(axis=1))
            return X, empty if empty.any() else None
        columns = self._columns_of(data)
        X = np.empty((len(data), self.n_columns_out), data.X.dtype)
        if self._is_scaled:
            is_missing = self._scale(data.X, [j for _, j in columns], X)
        else:
            size = max(self.fewest_rows, self.block_values // max(1, len(self.names)))
            for start in range(0, len(data), size):
                block = slice(start, start + size)
                X[block] = self._block(data.take(block), columns)
            is_missing = bool(np.isnan(X.max(initial=-np.inf)))
        dropped = self._incomplete(X) if is_missing else None
        if self.unit:
            zero = to_unit_length(X, self.block_values)
            dropped = zero if dropped is None else dropped | zero
        if self.box:
            X = on_grid(np.clip(np.nan_to_num(X, nan=0.0), -1.0, 1.0)).astype(X.dtype)
        return X, dropped

    @property
    def offset_rows(self) -> float:
        """The fewest rows of a subtype that decide the offset of a site; inf if there is none."""
        return math.inf if self.effects is None else self.effects.least

    def at_site(self, data: Data) -> Self:
        """Return the preprocessor of one site, with its offset, and its gain, in its columns.

        Parameters
        ----------
        data : Data
            All rows of the site.

        Examples
        --------
        >>> effects = SiteEffects(((0.0,), (10.0,)), ((1.0,),), (99.0,))
        >>> how = Preprocessor((NumericColumn("x0"),), effects=effects)
        >>> here = how.at_site(Data(np.array([[6.0], [7.0], [16.0], [17.0]])))
        >>> round(here.columns[0].shift, 1), here.effects
        (6.5, None)
        """
        if self.effects is None:
            return self
        X = replace(self, effects=None, missing="keep").aligned(data)
        kept = ~np.isnan(X).any(axis=1)
        if not kept.any():
            return replace(self, effects=None)
        # new rows come without weights, and are to get the offset that they had in the fit
        weights = np.ones(len(X)) if data.grouped is None else data.grouped.counts
        within = np.zeros(X.shape[1])
        if self.effects.gains and data.grouped is not None:
            columns = self._columns_of(data)
            within = np.concatenate([column.within(data, j) for column, j in columns])
        stops = np.cumsum([len(column.names) for column in self.columns])
        places = stops[self.places(NumericColumn)] - 1
        scale, shift = (np.array([getattr(c, x) for c in self.numeric]) for x in ("scale", "shift"))
        factor, less = self.effects.adjustment(
            X[np.ix_(kept, places)].astype(np.float64) * scale + shift,
            weights[kept],
            within[places] * scale**2,
            None if data.groups is None else data.groups[kept],
        )
        pairs = zip(((shift + less) / factor).tolist(), (scale / factor).tolist(), strict=True)
        here = self.changed([{"shift": at, "scale": unit} for at, unit in pairs])
        return replace(here, effects=None)

    def changed(self, changes: Iterable[Mapping[str, Any]]) -> Self:
        """Return the preprocessor with changed fields in each numeric column, in order."""
        change = iter(changes)
        columns = (
            replace(column, **next(change)) if isinstance(column, NumericColumn) else column
            for column in self.columns
        )
        return replace(self, columns=tuple(columns))

    @property
    def fills(self) -> bool:
        """Whether numbers that are missing are filled in, and each column stays one of its own."""
        if self.unit or self.box or self.principal is not None or self.effects is not None:
            return False
        return any(column.fill is not None for column in self.numeric)

    def keeping(self) -> Self:
        """Return the preprocessor that fills nothing in and keeps missing values."""
        columns = tuple(replace(column, fill=None) for column in self.columns)
        return replace(self, columns=columns, missing="keep")

    def completing(self) -> Self:
        """Return the preprocessor that fills in the missing values that this one ignores."""
        return replace(self, missing="error") if self.missing == "ignore" else self

    def _grouped(self, data: Data, columns: Sequence[tuple[AnyColumn, int]]) -> Grouped | None:
        """Return the prepared groups, with their scatter if columns are only scaled."""
        if data.grouped is None:
            return None
        places = np.cumsum([0, *(len(column.names) for column, _ in columns)]).tolist()
        shares = {
            place: scipy.sparse.csr_array(np.nan_to_num(column.shares(data, j)))
            for place, (column, j) in zip(places, columns, strict=False)
            if isinstance(column, Category) and column.coded
        }
        if self.unit:  # the scatter of unit vectors says nothing about the columns
            return replace(data.grouped, shares=shares, scatter={})
        within = np.concatenate([column.within(data, j) for column, j in columns])
        if self.principal is not None and not isinstance(self.principal, Principal):
            return replace(data.grouped, shares={}, scatter={})
        if self.principal is not None:
            within = np.array(self.principal.components) ** 2 @ within
        scatter = {f"x{i}": float(each) for i, each in enumerate(within)}
        return replace(data.grouped, shares=shares, scatter=scatter)

    def complete(self, data: Data) -> NDArray[np.bool_]:
        """Return a mask of the rows that are not dropped, (n,)."""
        _, dropped = self._made(data)
        return np.ones(len(data), dtype=bool) if dropped is None else ~dropped

    def unknown(self, data: Data) -> dict[str, int]:
        """Count texts without a known level, by column, leaving out zeros."""
        texts = [(c, j) for c, j in self._columns_of(data) if isinstance(c, Category)]
        return {c.name: n for c, j in texts if (n := c.unknown(data, j))}

    def filled(self, data: Data) -> dict[str, int]:
        """Count missing values that are filled in, by column, leaving out zeros."""
        columns = [] if self.missing == "ignore" else self._columns_of(data)
        return {c.name: n for c, j in columns if (n := c.filled(data, j))}

    def invert(self, centers: Floats) -> Floats:
        """Return prepared rows (k, p) in the units of the columns, named as in `names`.

        For a text, the result is the share of each of its levels; for a logarithm, the value with
        that logarithm; for rows of unit length, rows at the distance 1 from the point that became
        0.
        """
        X = np.asarray(centers, dtype=np.float64)
        if self.principal is not None:
            X = self.principal.invert(X)
        stops = np.cumsum([len(column.names) for column in self.columns])
        parts = zip(self.columns, np.split(X, stops[:-1], axis=1), strict=True)
        return np.concatenate([column.invert(part) for column, part in parts], axis=1)

    def placed(self, values: Mapping[str, Sequence[float]], k: int) -> Floats:
        """Return k centres (k, p) of prepared rows from values in the units of the columns.

        The inverse of `invert`, by the names in `names`. A column that is not there is NaN; if one
        level of a text is there, others are 0.

        Examples
        --------
        >>> how = Preprocessor((NumericColumn("age", shift=40.0, scale=10.0),))
        >>> how.placed({"age": [50.0, 20.0]}, 2)
        array([[ 1.],
               [-2.]])
        """
        parts = []
        for column in self.columns:
            known = [name for name in column.names if name in values]
            part = np.full((k, len(column.names)), 0.0 if known else np.nan)
            for name in known:
                part[:, column.names.index(name)] = values[name]
            parts.append(column.placed(part))
        X = np.concatenate(parts, axis=1)
        if self.principal is not None:
            X = np.asarray(self.principal.apply(X), dtype=np.float64)
        if self.unit:
            to_unit_length(X)
        return X

    @property
    def assignments(self) -> tuple[()]:
        """Nothing, as the rows are not assigned to clusters."""
        return ()

    def check(self, columns: Sequence[str], *, most_columns: int = 100_000) -> None:
        """Check, without reading any row, that the preprocessor may be applied.

        Parameters
        ----------
        columns : sequence of str
            The existing columns; empty if they have no names.

        Raises
        ------
        ValueError
            If not; the message names the broken rule, and no value.
        """
        names = [column.name for column in self.columns]
        if self == type(self).as_they_are(()):
            return
        if not names or len(set(names)) < len(names) or not set(names) <= set(columns or names):
            raise ValueError("its columns must be some of those asked about, each once")
        for column in self.columns:
            column.check()
        if self.box and not all(map(_is_total, self.columns)):
            raise ValueError("for noise, columns must be numbers without logarithm, and filled in")
        if len(self.names) > most_columns:
            raise ValueError(f"at most {most_columns:,} prepared columns")
        if self.principal is not None:
            self.principal.check(len(self.names))
        if self.effects is not None:
            self.effects.check(len(self.numeric))
            gaps = self.missing in ("ignore", "keep")
            if self.unit or self.box or self.principal is not None or gaps:
                raise ValueError("offsets of sites are of whole rows, in columns of their own")

    def disclosed_only(self, describe: Describe) -> Self:
        """Return the preprocessor restricted to what a site discloses, and safe for any rows.

        Rows with missing values are dropped, because an error would reveal that such a row exists.

        Parameters
        ----------
        describe : callable
            Describes the columns, the named ones as text; see `Client.describe`.

        Raises
        ------
        PolicyError
            If a text column is treated as numeric.
        """
        described = {column.name: column for column in describe([c.name for c in self.categories])}
        if not self.columns:
            return self.as_they_are(described.values())
        if not described.keys() >= {column.name for column in self.columns}:
            raise PolicyError(
                "preparation: its columns must be some of those asked about, each once"
            )
        columns = tuple(c.disclosed_only(described[c.name]) for c in self.columns)
        missing = "drop" if self.missing == "error" else self.missing
        return replace(self, columns=columns, missing=missing)

    def plain(self) -> dict[str, Any]:
        """Return the preprocessor as JSON-compatible values."""
        columns = list(map(column_to_plain, self.columns))
        plain = asdict(replace(self, columns=())) | {"columns": columns}
        if self.principal is not None and not isinstance(self.principal, Principal):
            plain["principal"] = own_to_plain(self.principal)
        return {
            key: value for key, value in plain.items() if key not in ("box", "effects") or value
        }

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> Self:
        """Return the preprocessor from the result of `plain`, possibly by way of JSON.

        Raises
        ------
        ValueError, LookupError, TypeError
            If the content has another form.
        """
        principal = content["principal"]
        unit, box = (content.get(key, False) for key in ("unit", "box"))
        if not (isinstance(unit, bool) and isinstance(box, bool)):
            raise TypeError("expected a truth value")
        return cls(
            tuple(column_from_plain(each) for each in content["columns"]),
            one_of(content["missing"], ("error", "drop", "keep", "ignore")),
            None
            if principal is None
            else (own_from_plain if "own" in principal else Principal.from_plain)(principal),
            unit,
            box,
            SiteEffects.from_plain(effects) if (effects := content.get("effects")) else None,
        )

    @property
    def _is_scaled(self) -> bool:
        """True if all columns are numeric, without logarithms or principal components."""
        plain = all(isinstance(c, NumericColumn) and not c.log for c in self.columns)
        return plain and bool(self.columns) and self.principal is None

    def _scale(self, X: Rows, places: Sequence[int], out: Rows) -> bool:
        """Write numeric rows in one pass over all columns; return whether a value is missing.

        The bits are those of preparing one column after the other.
        """
        # lazy: loading a model must not import numba
        from fedcluster.kernels.rows import scale_rows

        columns, everything = self.numeric, (-np.inf, np.inf)
        bounds = [everything if c.bounds is None else c.bounds for c in columns]
        return scale_rows(
            X if places == list(range(X.shape[1])) else X[:, places],
            out,
            shift=np.array([c.shift for c in columns]),
            scale=np.array([c.scale for c in columns]),
            step=np.array([c.step for c in columns]),
            fill=np.array([np.nan if c.fill is None else c.fill for c in columns]),
            bounds=np.array(bounds).T.copy(),
        )

    def _columns_of(self, data: Data) -> list[tuple[AnyColumn, int]]:
        """Return the columns, each with its index in these rows."""
        own = columns_of(data)
        place = {column.name: j for j, column in enumerate(own)}
        if lacking := [column.name for column in self.columns if column.name not in place]:
            raise InputError(
                f"there is no column {', '.join(map(repr, lacking))}; there are {', '.join(place)}"
            )
        columns = [(column, place[column.name]) for column in self.columns]
        for column, j in columns:  # numbers can be levels as well
            if isinstance(column, NumericColumn) or own[j].kind in HELD:
                kind_refused(data, j)
        return columns

    def _block(self, data: Data, columns: Sequence[tuple[AnyColumn, int]]) -> Floats:
        """Return prepared rows (n, p), with NaN for missing values."""
        X = np.concatenate([column.apply(data, j) for column, j in columns], axis=1)
        if self.principal is None:
            return X
        made = np.asarray(self.principal.apply(X), dtype=np.float64)
        if made.shape != (len(X), self.n_columns_out):
            raise InputError(
                f"{type(self.principal).__name__} makes rows of shape {made.shape} of {X.shape}, "
                f"and names {self.n_columns_out} columns"
            )
        return made

    def _incomplete(self, X: Rows) -> NDArray[np.bool_] | None:
        """Return which prepared rows are dropped for a missing value, or raise an error."""
        if self.missing == "keep":
            return None
        lacking = np.asarray(np.isnan(X).any(axis=1))
        if self.missing == "drop":
            return lacking
        raise InputError(
            f"{np.count_nonzero(lacking)} of {len(X)} rows have a missing value, the first "
            f"one is row {int(np.argmax(lacking)) + 1}; fill them or drop these rows"
        )


def by_columns(how: Preprocessor | None, columns: Iterable[str]) -> Preprocessor:
    """Return the preparation of rows; without one, that of whole rows as they are, by name."""
    return how or Preprocessor(tuple(map(NumericColumn, columns)), "drop")


def _is_total(column: AnyColumn) -> bool:
    """Return whether a column can be prepared whatever its values are.

    A failure would reveal a value without noise.
    """
    return isinstance(column, NumericColumn) and not column.log and column.fill is not None


def to_unit_length(X: Rows, block_values: int = Preprocessor.block_values) -> NDArray[np.bool_]:
    """Divide rows (n, p) by their Euclidean lengths, in place; return which are zero, (n,).

    Zero rows stay zero, as they have no direction.

    Examples
    --------
    >>> rows = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, -1e-200]])
    >>> to_unit_length(rows)
    array([False,  True, False])
    >>> rows
    array([[ 0.6,  0.8],
           [ 0. ,  0. ],
           [ 0. , -1. ]])
    """
    zero = np.zeros(len(X), dtype=bool)
    size = max(1, block_values // max(1, X.shape[1]))
    for start in range(0, len(X), size):
        rows = X[start : start + size].astype(np.float64)
        largest = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
        zero[start : start + size] = largest[:, 0] == 0
        # divide first: squares of tiny or huge values under- or overflow
        rows /= np.where(largest == 0, 1.0, largest)
        length = np.sqrt((rows**2).sum(axis=1, keepdims=True))
        X[start : start + size] = rows / np.where(length == 0, 1.0, length)
    return zero


def on_whole_rows(
    work: Callable[[Rows], NDArray[Any]], rows: Rows, otherwise: float
) -> NDArray[Any]:
    """Return the results of ``work`` for rows without NaN, and ``otherwise`` for others."""
    if not np.isnan(rows.min(initial=0.0)):  # the minimum is NaN if any value is
        return work(rows)
    whole = np.logical_not(np.isnan(rows).any(axis=1))
    none = np.zeros((1, rows.shape[1]), rows.dtype)  # an empty table shows the shape of the results
    results = work(rows[whole]) if whole.any() else work(none)[:0]
    every: NDArray[Any] = np.full((len(rows), *results.shape[1:]), otherwise, results.dtype)
    every[whole] = results
    return every
