"""A fitted preprocessor: what is done to each row, the same at every site and for new rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data, Floats, Rows
from fedcluster.errors import InputError
from fedcluster.io._columns import columns_of
from fedcluster.preprocessing._columns import (
    Category,
    NumericColumn,
    Principal,
    column_from_plain,
    one_of,
    plain_column,
    principal_from_plain,
)

BLOCK = 1 << 16
"""Values that are prepared at a time."""


@dataclass(frozen=True, slots=True)
class Preprocessor:
    """What is done to the rows of every site, column by column, by name.

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

    columns: tuple[NumericColumn | Category, ...]
    missing: str = "error"
    principal: Principal | None = None

    @property
    def numeric(self) -> tuple[NumericColumn, ...]:
        """The columns of numbers."""
        return tuple(c for c in self.columns if isinstance(c, NumericColumn))

    @property
    def categories(self) -> tuple[Category, ...]:
        """The columns of text."""
        return tuple(c for c in self.columns if isinstance(c, Category))

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
        """Return prepared rows (n, p), without those that are dropped, of the type of the rows."""
        places = self._places(data)
        X = np.empty((len(data), len(self.names_out)), data.X.dtype)
        if self._is_scaled:
            return self._complete(X, data) if self._scale(data.X, places, X) else _prepared(X, data)
        size = max(1, BLOCK // max(1, len(self.names)))
        for start in range(0, len(data), size):
            block = slice(start, start + size)
            X[block] = self._block(data.take(block), places)
        return self._complete(X, data)

    def complete(self, data: Data) -> NDArray[np.bool_]:
        """Return whether each row is among the prepared ones, (n,)."""
        if self.missing != "drop":
            return np.ones(len(data), dtype=bool)
        kept = replace(self, missing="keep", principal=None).apply(data).X
        return np.logical_not(_lacking(kept))

    def unknown(self, data: Data) -> dict[str, int]:
        """Count texts of no known level, by column, where there are some."""
        return self._counted(
            data,
            lambda c, j: c.unknown(data, j) if isinstance(c, Category) and not c.other else 0,
        )

    def filled(self, data: Data) -> dict[str, int]:
        """Count values that are missing and filled in, by column, where there are some."""
        return self._counted(data, lambda c, j: c.filled(data, j))

    def _counted(
        self, data: Data, count: Callable[[NumericColumn | Category, int], int]
    ) -> dict[str, int]:
        """Count in each column of the rows, by name, and leave out what is 0."""
        places = zip(self.columns, self._places(data), strict=True)
        return {c.name: n for c, j in places if (n := count(c, j))}

    def invert(self, centers: Floats) -> Floats:
        """Return prepared rows (k, p) in the units of the columns, as `names` names them.

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
        """Return the preprocessor as JSON can hold it."""
        return asdict(self) | {"columns": [plain_column(column) for column in self.columns]}

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
            tuple(column_from_plain(each) for each in content["columns"]),
            one_of(content["missing"], ("error", "drop", "keep")),
            None if principal is None else principal_from_plain(principal),
        )

    @property
    def _is_scaled(self) -> bool:
        """Whether nothing but numbers is prepared, and each by shift and scale alone."""
        plain = all(isinstance(c, NumericColumn) and not c.log for c in self.columns)
        return plain and bool(self.columns) and self.principal is None

    def _scale(self, X: Rows, places: Sequence[int], out: Rows) -> bool:
        """Write rows of numbers only, all columns in one reading; return whether one is missing.

        The bits are those of one column after the other.
        """
        from fedcluster.kernels._row_loops import scale_rows  # to load a model takes no compiler

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

    def _places(self, data: Data) -> list[int]:
        """Return where the columns stand in these rows."""
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
    """Return prepared rows, with the weights, labels and groups of the rows given."""
    return Data(X, data.sample_weight, data.y, groups=data.groups)


def _lacking(X: Rows) -> NDArray[np.bool_]:
    """Return whether each row lacks a value, (n,)."""
    if not np.isnan(X.max(initial=-np.inf)):
        return np.zeros(len(X), dtype=bool)
    lacking: NDArray[np.bool_] = np.asarray(np.isnan(X).any(axis=1))
    return lacking


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
    prepared = preprocessor.apply(data).X
    if len(prepared) == len(data):
        return prepared
    rows: Rows = np.full((len(data), prepared.shape[1]), np.nan, prepared.dtype)
    rows[preprocessor.complete(data)] = prepared
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
