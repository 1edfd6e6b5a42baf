"""The rows of one site as they were read, in memory or in chunks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data, Filter, RowStream


@dataclass(frozen=True, slots=True, eq=False)
class SiteRows:
    """The rows of one site, wherever they came from.

    Parameters
    ----------
    name : str
        The site's name.
    rows : Data or RowStream
        Its rows (n, d) with weights, groups and labels: in memory, or in chunks.
    columns : tuple of str
        The names of the d columns.
    row_ids : ndarray of shape (n,), int64, or range
        The number of each row where it came from: in its file, from 1.
    ignored : tuple of str
        The other columns of its file.
    limits : tuple of Filter, optional
        What its site file holds back; None for rows that came without a site file.
    """

    name: str
    rows: Data | RowStream
    columns: tuple[str, ...]
    row_ids: NDArray[np.int64] | range
    ignored: tuple[str, ...] = ()
    limits: tuple[Filter, ...] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def data(self) -> Data:
        """Return all rows at once."""
        return self.rows if isinstance(self.rows, Data) else self.rows.load()

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the type that the rows are read as."""
        return next(iter(chunks_of(self.rows))).X.dtype


def chunks_of(rows: Data | RowStream) -> Iterable[Data]:
    """Return rows chunk by chunk where they come so, and otherwise all at once."""
    return [rows] if isinstance(rows, Data) else rows.chunks()
