"""Prepared rows that stay beside the rows that they were made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data, Rows
from fedcluster.preprocessing._transform import Preprocessor


def aligned(preprocessor: Preprocessor, data: Data) -> Rows:
    """Prepared rows, one for each row given, (n, p); NaN where a row is dropped.

    Examples
    --------
    >>> from fedcluster.preprocessing import NumericColumn
    >>> rows = Data(np.array([[3.0], [np.nan]]))
    >>> aligned(Preprocessor((NumericColumn("x0", scale=3.0),), missing="drop"), rows)
    array([[ 1.],
           [nan]])
    """
    found = preprocessor.apply(data).X
    if len(found) == len(data):
        return found
    rows: Rows = np.full((len(data), found.shape[1]), np.nan, found.dtype)
    rows[preprocessor.complete(data)] = found
    return rows


def on_whole_rows(
    work: Callable[[Rows], NDArray[Any]], rows: Rows, otherwise: float
) -> NDArray[Any]:
    """What ``work`` makes of the rows without NaN, (m, ...); ``otherwise`` for the others."""
    whole = np.logical_not(np.isnan(rows).any(axis=1))
    if whole.all():
        return work(rows)
    found = work(rows[whole])
    every: NDArray[Any] = np.full((len(rows), *found.shape[1:]), otherwise, found.dtype)
    every[whole] = found
    return every
