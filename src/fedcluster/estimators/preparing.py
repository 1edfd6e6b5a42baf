"""What estimators do with ``prepare=``."""

from __future__ import annotations

from typing import Any

from fedcluster.core import Column, Data, Rows
from fedcluster.data.columns import columns_of
from fedcluster.data.frames import raw_rows
from fedcluster.preparation import SCALES, Preparation, Prepare, aligned

__all__ = ["prepared_rows", "wanted"]


def wanted(prepare: Any) -> Prepare | None:
    """What ``prepare=`` asks for: nothing, a name of a scale, or all of it."""
    if prepare is None or isinstance(prepare, Prepare):
        return prepare
    if isinstance(prepare, str) and prepare in SCALES:
        return Prepare(prepare)
    known = ", ".join(map(repr, SCALES))
    raise ValueError(f"prepare must be None, one of {known} or a Prepare, not {prepare!r}")


def prepared_rows(table: Any, preparation: Preparation, n_features: int, where: str) -> Rows:
    """New rows as they are clustered, (n, p); NaN where a row would be dropped.

    Parameters
    ----------
    table : data frame, array or Data
        Rows as they were given to fit; of a frame the columns are found by name, an array has
        them in the order of ``feature_names_in_``.
    preparation : Preparation
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
        if len(preparation.columns) == n_features:
            names = [column.name for column in preparation.columns]
            known = zip(names, columns_of(data), strict=True)
            columns = tuple(Column(name, each.kind, each.levels) for name, each in known)
            data = Data(data.X, columns=columns)
    return aligned(preparation, data)
