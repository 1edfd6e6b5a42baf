"""Assignment of rows to clusters: by the algorithm's own rule, or to the nearest centre.

Estimators, models and commands all prepare and assign the rows of tables by this module.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcluster import kernels
from fedcluster.core import Assigns, Data, Floats, Labels, Rows, State
from fedcluster.core.ranges import allowed_of
from fedcluster.errors import InputError
from fedcluster.frames.inputs import (
    OWNER,
    SiteTable,
    by_site,
    file_reader,
    frame_of,
    is_column,
    read_table,
)
from fedcluster.frames.reader import ColumnRoles
from fedcluster.frames.rows import error_prefix
from fedcluster.preprocessing import Preprocessor
from fedcluster.preprocessing.spec import noticed_in_words
from fedcluster.preprocessing.transform import on_whole_rows

NO_CLUSTER = -1
"""Label of a row of no cluster."""


@dataclass(frozen=True, slots=True, eq=False)
class Assignment:
    """Assignment of rows to the clusters of a state.

    Parameters
    ----------
    state : State
        The clusters.
    algorithm : Algorithm, optional
        The algorithm that found them; rows are assigned by its `Assigns.assign`, if it has one.
    m : float, optional
        The fuzzifier; with it, rows have the memberships of fuzzy c-means.

    Raises
    ------
    InputError
        If there are no centres and the algorithm has no ``assign``.

    Examples
    --------
    >>> clusters = State.at([[0.0], [10.0]])
    >>> Assignment(clusters).labels(np.array([[1.0], [9.0], [np.nan]]))
    array([ 0,  1, -1], dtype=int32)
    >>> Assignment(clusters, m=2.0).memberships(np.array([[5.0]]))
    array([[0.5, 0.5]])
    """

    state: State
    algorithm: Any = None
    m: float | None = None
    at_once = 1 << 14  # number of rows whose distances to all centres are held at a time

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", self.state.standing)
        if not len(self.state.centers) and self.own is None:
            name = "the state" if self.algorithm is None else type(self.algorithm).__name__
            raise InputError(
                f"{name} has no centres, so rows have no nearest one: give the algorithm a method "
                "assign(state, X) that returns labels or memberships"
            )

    @property
    def own(self) -> Assigns | None:
        """The algorithm, if it assigns rows by its own rule."""
        return self.algorithm if isinstance(self.algorithm, Assigns) else None

    @property
    def n_clusters(self) -> int:
        """The number of clusters k."""
        return len(self.state.centers) or len(self.state.weights)

    def soft(self, d: int) -> bool:
        """Return whether rows with d columns have memberships, and not only labels."""
        if self.own is None:
            return self.m is not None
        return bool(self._given(np.zeros((1, d))).ndim == 2)

    def labels(self, rows: Rows, cache: dict[str, Any] | None = None) -> Labels:
        """Return the label of each row, (n,); -1 for a row with NaN or of no cluster.

        The cache of `Data` with these very rows saves time.
        """
        if self.own is None:

            def nearest(whole: Rows) -> Labels:
                known = cache if whole is rows else None
                return kernels.nearest(whole, self.state.centers, cache=known)[0]

            return on_whole_rows(nearest, rows, NO_CLUSTER)
        labels: Labels = self._of_whole(lambda each: _labels(self._given(each)), rows, NO_CLUSTER)
        return labels

    def memberships(self, rows: Rows) -> Floats | None:
        """Return the memberships of rows, (n, k), NaN for a row with NaN; None if there are none.

        A row's label is the cluster of its largest membership.
        """
        if not self.soft(rows.shape[1]):
            return None
        if self.own is not None:
            memberships: Floats = self._of_whole(self._given, rows, np.nan)
            return memberships
        m = float(self.m)  # type: ignore[arg-type]
        return on_whole_rows(
            lambda whole: kernels.memberships(whole, self.state.centers, m), rows, np.nan
        )

    def margins(self, rows: Rows, labels: Labels) -> Floats:
        """Return rows' distances to their cluster's centre, and simplified silhouettes, (2, n).

        With a the distance to that centre and b that to the nearest other one, the simplified
        silhouette (Hruschka, de Castro & Campello, 2004) is (b - a) / max(a, b). If a row's cluster
        is that of the nearest centre, it is 1 - a / b, from 0 halfway between two centres to 1 at a
        centre. Distances are over the columns that a row has.

        Parameters
        ----------
        rows : ndarray of shape (n, d)
            Prepared rows.
        labels : ndarray of shape (n,)
            Their clusters; both numbers are NaN for a row without one.

        Examples
        --------
        >>> clusters = Assignment(State.at([[0.0], [10.0]]))
        >>> clusters.margins(np.array([[0.0], [2.0], [5.0]]), np.array([0, 0, 0]))
        array([[0.  , 2.  , 5.  ],
               [1.  , 0.75, 0.  ]])
        """
        margins = np.full((2, len(rows)), np.nan)
        for start in range(0, len(rows), self.at_once):
            part = slice(start, start + self.at_once)
            some = start + np.flatnonzero(labels[part] >= 0)
            each = np.arange(len(some)), labels[some]
            distances = _distances(rows[some], self.state.centers)
            own = distances[each]
            distances[each] = np.inf
            other = distances.min(axis=1, initial=np.inf)
            larger = np.maximum(own, other)
            with np.errstate(invalid="ignore"):
                clear = np.where(larger > 0, (other - own) / larger, 0.0)
            margins[:, some] = own, np.where(np.isinf(other), np.nan, clear)
        return margins

    def _of_whole(self, work: Any, rows: Rows, otherwise: float) -> Any:
        """Return results for the rows that the algorithm accepts, which may have missing values."""
        if not allowed_of(self.algorithm).gaps:
            return on_whole_rows(work, rows, otherwise)
        some = np.logical_not(np.isnan(rows).all(axis=1))
        results = work(rows[some])
        every = np.full((len(rows), *results.shape[1:]), otherwise, results.dtype)
        every[some] = results
        return every

    def _given(self, rows: Rows) -> Any:
        """Return the algorithm's assignment of rows, after checking it.

        Raises
        ------
        ValueError
            If the result is neither labels (n,) nor memberships (n, k).
        """
        given, n, k = (
            np.asarray(self.algorithm.assign(self.state, rows)),
            len(rows),
            self.n_clusters,
        )
        labels = given.shape == (n,) and np.issubdtype(given.dtype, np.integer)
        if labels and (given >= NO_CLUSTER).all() and (given < k).all():
            return given.astype(np.int32)
        memberships = given.shape == (n, k) and np.issubdtype(given.dtype, np.floating)
        if memberships and (given >= 0).all():
            return given.astype(np.float64)
        raise ValueError(
            f"{type(self.algorithm).__name__}.assign returned {given.dtype} of shape {given.shape} "
            f"for {n} rows: return labels ({n},) of -1 to {k - 1}, or memberships ({n}, {k}) of at "
            "least 0"
        )


def _distances(rows: Rows, centers: Floats) -> Floats:
    """Return the distances of rows to centres, (n, k), over the columns that a row has."""
    squares = [np.nansum((rows - center) ** 2, axis=1, dtype=np.float64) for center in centers]
    distances: Floats = np.sqrt(np.stack(squares, axis=1))
    return distances


def _labels(given: Any) -> Labels:
    """Return labels; for memberships, those of the largest one."""
    if given.ndim == 1:
        return given  # type: ignore[no-any-return]
    none = 1.0 - given.sum(axis=1) > given.max(axis=1)
    return np.where(none, NO_CLUSTER, given.argmax(axis=1)).astype(np.int32)


@dataclass(frozen=True, slots=True)
class RowForm:
    """The columns that new rows need for assignment to clusters, and their preparation.

    Parameters
    ----------
    columns : tuple of str
        The columns of the fit; those of arrays are x0, x1, ...
    preprocessor : Preprocessor, optional
        The preparation of the rows; without it, they must be numeric.
    reader : str
        Name, for messages, of what requires the columns.

    Examples
    --------
    >>> form = RowForm(("age", "bmi"))
    >>> form.prepared({"bmi": [22.5], "name": ["Ann"], "age": ["31"]})
    array([[31. , 22.5]])
    """

    columns: tuple[str, ...]
    preprocessor: Preprocessor | None = None
    reader: str = "Model"

    @property
    def roles(self) -> ColumnRoles:
        """Return how columns are read from files and from tables in memory."""
        how = self.preprocessor
        if how is None:
            return ColumnRoles(self.columns, numeric=frozenset(self.columns))
        return ColumnRoles(
            self.columns,
            raw=True,
            coded=tuple(column.name for column in how.categories),
            dates={column.name: column.date for column in how.numeric if column.date is not None},
            numeric=frozenset(column.name for column in how.numeric),
            levels={column.name: column.levels for column in how.categories},
        )

    def prepared(self, X: Any) -> Rows:
        """Return rows in the form for clustering, (n, p); several sites are concatenated.

        Named columns are found by name, in any order, and others are ignored; those of an array
        must be in the order of the fit. A row that the preparation drops is NaN; missing values are
        filled in as in the fit; unknown texts belong to no level, and a warning names them.

        Parameters
        ----------
        X : table, or dict or list of tables
            Data frames, Arrow tables, arrays, sparse matrices, AnnData, `Data`, paths of files, or
            a dict of columns, (n, d).

        Raises
        ------
        ValueError, TypeError
            If a column is missing, is duplicated or holds something other than in the fit; one line
            names it, and the first wrong row and value.
        """
        rows = [self.of_part(data, part) for part, data in self.read(X)]
        return np.concatenate(rows) if len(rows) > 1 else rows[0]

    def read(self, X: Any) -> list[tuple[SiteTable, Data]]:
        """Return the rows of each site before they are prepared; warn of texts unknown to the fit.

        Parameters and errors are those of `prepared`.
        """
        roles = self.roles
        named = frame_of(X) if self._are_columns(X) else None
        parts = by_site(X if named is None else named, read_path=file_reader(roles))
        read = [read_table(part.table, roles, part.owner, self.reader) for part in parts]
        # `Data` was checked by its owner
        if self.preprocessor is not None and not isinstance(X, Data):
            where = [part.name if part.where else OWNER for part in parts]
            tables = dict(zip(where, read, strict=True))
            _warn_of_unknown(self.preprocessor, tables)
            self.check_number(tables)
        return list(zip(parts, read, strict=True))

    def check_number(self, read: Mapping[str, Data]) -> None:
        """Warn of sites with few rows to find an offset from, where there are offsets.

        Raises
        ------
        InputError
            If a site has a single row.
        """
        if self.preprocessor is None or (effects := self.preprocessor.effects) is None:
            return
        how = f"predict {effects.fewest} or more, or by the model of a known site, in labels"
        for where, data in read.items():
            if len(data) >= effects.fewest or effects.is_clear(max(len(data), 1)):
                continue
            if len(data) == 1:
                one = f"{where} has a single row, of which the offset of the site cannot be told"
                raise InputError(f"{one}: {how}")
            few = f"{where} has {len(data)} rows to find the offset of the site from: {how}"
            warnings.warn(f"{few}; labels may be wrong", UserWarning, stacklevel=4)

    def aligned(self, data: Data) -> Rows:
        """Return the rows of a fit in the form for clustering, (n, p), NaN for a dropped row."""
        return data.X if self.preprocessor is None else self.preprocessor.aligned(data)

    def of_part(self, data: Data, part: SiteTable) -> Rows:
        """Return the rows of a site in the form for clustering."""
        with error_prefix(part.owner) if part.where else nullcontext():
            return self.aligned(data)

    def _are_columns(self, X: Any) -> bool:
        """Return whether X is a dict of columns, not of tables."""
        if not isinstance(X, Mapping) or hasattr(X, "shape") or not X:
            return False
        return all(map(is_column, X.values()))


def _warn_of_unknown(preprocessor: Preprocessor, read: Mapping[str, Data]) -> None:
    """Warn of texts in new rows that the fit did not know, by table and column."""
    unknown = {where: preprocessor.unknown(data) for where, data in read.items()}
    for line in noticed_in_words({where: each for where, each in unknown.items() if each}, {}):
        warnings.warn(line, UserWarning, stacklevel=4)
