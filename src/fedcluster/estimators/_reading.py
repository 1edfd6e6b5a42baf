"""Tables become rows, weights and groups of numbers, or one clear line says why not."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from fedcluster.core import Rows
from fedcluster.io._arrays import column_names, finite, numeric
from fedcluster.io._frames import is_missing

FLOATS = [np.float64, np.float32]


def read_rows(table: Any, where: str) -> Rows:
    """A table as finite numbers, float32 or float64."""
    no_times(table, where)
    numeric(table, where)
    try:
        rows: Rows = check_array(table, dtype=FLOATS, ensure_all_finite=False)
    except ValueError as error:
        raise ValueError(f"{where}{error}") from error
    finite(table, rows, where)
    return rows


def no_times(table: Any, where: str) -> None:
    """Refuse dates, which some libraries take for numbers of nanoseconds."""
    if hasattr(table, "collect") and not hasattr(table, "shape"):
        raise ValueError(f"{where}the table is lazy; give what its collect() returns")
    first = {"the array": table[:1]} if isinstance(table, np.ndarray) else {}
    if names := column_names(table):
        head = table[:1]
        first = {f"column {name!r}": head[name] for name in names}
    for what, values in first.items():
        array = np.asarray(values)
        if array.dtype.kind in "mM" or any(isinstance(x, date | timedelta) for x in array.flat):
            raise ValueError(f"{where}{what} holds dates or times; choose columns of numbers")


def read_weights(sample_weight: Any, rows: Rows, where: str) -> NDArray[np.float64] | None:
    """Weights of a site's rows: finite, not negative."""
    if sample_weight is None:
        return None
    weights = np.array(sample_weight, dtype=np.float64)
    if weights.shape != rows.shape[:1]:
        raise ValueError(
            f"{where}sample_weight has shape {weights.shape}, but there are {len(rows)} rows"
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError(f"{where}sample_weight must be finite and at least 0")
    if not weights.any():
        raise ValueError(f"{where}sample_weight is zero for every row")
    return weights


def read_groups(groups: Any, rows: Rows, where: str) -> NDArray[np.int64] | None:
    """Whose each of a site's rows is, (n,), as numbers: equal where the names are.

    Examples
    --------
    >>> read_groups(["ann", "bob", "ann "], np.zeros((3, 2)), "")
    array([0, 1, 0])
    """
    if groups is None:
        return None
    names = np.asarray(groups)
    if names.shape != rows.shape[:1]:
        raise ValueError(f"{where}groups has shape {names.shape}, but there are {len(rows)} rows")
    if names.dtype.kind not in "iub":
        nobody = [is_missing(name) for name in names.tolist()]
        if any(nobody):
            raise ValueError(f"{where}row {nobody.index(True)}: groups does not say whose it is")
        names = np.char.strip(names.astype(str))
    numbers: NDArray[np.int64] = np.unique(names, return_inverse=True)[1].astype(np.int64)
    return numbers
