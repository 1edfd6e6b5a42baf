"""What estimators do with ``prepare=``."""

from __future__ import annotations

from typing import Any

from fedcluster._choices import SCALES
from fedcluster.core import Column, Data, Rows
from fedcluster.io._columns import columns_of
from fedcluster.io._frames import raw_rows
from fedcluster.preprocessing import PreprocessingSpec, Preprocessor, aligned


def wanted(prepare: Any) -> PreprocessingSpec | None:
    """What ``prepare=`` asks for: nothing, a name of a scale, or all of it."""
    if prepare is None or isinstance(prepare, PreprocessingSpec):
        return prepare
    if isinstance(prepare, str) and prepare in SCALES:
        return PreprocessingSpec(prepare)
    known = ", ".join(map(repr, SCALES))
    raise ValueError(f"prepare must be None, one of {known} or a Prepare, not {prepare!r}")


def prepared_rows(table: Any, preprocessor: Preprocessor, n_features: int, where: str) -> Rows:
    """New rows as they are clustered, (n, p); NaN where a row would be dropped.

    Parameters
    ----------
    table : data frame, array or Data
        Rows as they were given to fit; of a frame the columns are found by name, an array has
        them in the order of ``feature_names_in_``.
    preparation : Preprocessor
        What was fitted.
    n_features : int
        The columns that an array must have.
    where : str
        How an error message begins.
    """
    data = raw_rows(table, where=where)
    if not isinstance(table, Data) and not hasattr(table, "columns"):
        if data.X.shape[1] != n_features:
            raise ValueError(
                f"{where}X has {data.X.shape[1]} features, but {n_features} were fitted"
            )
        if len(preprocessor.columns) == n_features:
            names = [column.name for column in preprocessor.columns]
            known = zip(names, columns_of(data), strict=True)
            columns = tuple(Column(name, each.kind, each.levels) for name, each in known)
            data = Data(data.X, columns=columns)
    return aligned(preprocessor, data)
