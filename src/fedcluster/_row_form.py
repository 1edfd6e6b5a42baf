"""The one way from tables to the rows that are clustered, for estimators, models and commands."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedcluster.core import Data, Rows
from fedcluster.io._inputs import OWNER, GivenTable, by_site, frame_of, is_column, read_table
from fedcluster.io._reader import ColumnRoles
from fedcluster.io._rows import error_prefix
from fedcluster.io._sources import read_file
from fedcluster.preprocessing import Preprocessor
from fedcluster.preprocessing._spec import noticed_in_words


@dataclass(frozen=True, slots=True)
class RowForm:
    """What new rows must hold to be assigned to clusters, and how they are prepared.

    Parameters
    ----------
    columns : tuple of str
        The columns of the fit; those of arrays are x0, x1, ...
    preprocessor : Preprocessor, optional
        What is done to rows; without it they are numbers alone.
    reader : str
        What asks for the columns, for messages.

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
        """Return how the columns are read, from files and from tables in memory."""
        how = self.preprocessor
        if how is None:
            return ColumnRoles(self.columns, numeric=frozenset(self.columns))
        return ColumnRoles(
            self.columns,
            raw=True,
            coded=tuple(column.name for column in how.categories),
            dates={column.name: column.date for column in how.numeric if column.date is not None},
            numeric=frozenset(column.name for column in how.numeric),
        )

    def prepared(self, X: Any) -> Rows:
        """Return rows as they are clustered, (n, p); of several sites, site after site.

        Columns with names are found by these, in any order and beside others; those of an array are
        taken in the order of the fit. A row that the preparation drops is NaN; missing values are
        filled in as in the fit, and texts that it did not know are none, of which a warning tells.

        Parameters
        ----------
        X : table, or dict or list of tables
            Data frames, Arrow tables, arrays, sparse matrices, AnnData, `Data`, paths of files, or
            a dict of columns, (n, d).

        Raises
        ------
        ValueError, TypeError
            In one line, if a column is lacking, comes twice or holds something else than in the
            fit, naming it, and the first row and value that is wrong.
        """
        roles = self.roles
        if self._are_columns(X):
            X = frame_of(X)
        parts = by_site(X, read_path=partial(read_file, roles))
        read = [read_table(part.table, roles, part.owner, self.reader) for part in parts]
        rows = [self._of_part(data, part) for data, part in zip(read, parts, strict=True)]
        if self.preprocessor is not None and not isinstance(X, Data):  # who gives Data looks itself
            where = [part.name if part.where else OWNER for part in parts]
            _warn_of_unknown(self.preprocessor, dict(zip(where, read, strict=True)))
        return np.concatenate(rows) if len(rows) > 1 else rows[0]

    def aligned(self, data: Data) -> Rows:
        """Return the rows of a fit as they are clustered, (n, p), NaN where one is dropped."""
        return data.X if self.preprocessor is None else self.preprocessor.aligned(data)

    def _of_part(self, data: Data, part: GivenTable) -> Rows:
        with error_prefix(part.owner) if part.where else nullcontext():
            return self.aligned(data)

    def _are_columns(self, X: Any) -> bool:
        """Return whether X is a dict of columns, and not one of tables."""
        if not isinstance(X, Mapping) or hasattr(X, "shape") or not X:
            return False
        return all(map(is_column, X.values()))


def _warn_of_unknown(preprocessor: Preprocessor, read: Mapping[str, Data]) -> None:
    """Warn of texts of new rows that the fit did not know, by table and column."""
    unknown = {where: preprocessor.unknown(data) for where, data in read.items()}
    for line in noticed_in_words({where: each for where, each in unknown.items() if each}, {}):
        warnings.warn(line, UserWarning, stacklevel=4)
