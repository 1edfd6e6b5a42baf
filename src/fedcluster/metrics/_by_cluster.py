"""How the metrics' steps add up: rows in parts, values by cluster."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array

from fedcluster.core import Data, Floats, Labels

PART_BYTES = 1 << 23


def in_parts(data: Data, numbers: int) -> Iterator[Data]:
    """The rows in parts, so small that ``numbers`` numbers for each row of one take few bytes."""
    rows = max(1, PART_BYTES // (8 * numbers))
    for start in range(0, len(data), rows):
        yield data.take(slice(start, start + rows))


def row_weights(data: Data) -> Floats:
    """The weight of each row, (n,)."""
    return np.ones(len(data)) if data.sample_weight is None else data.sample_weight


def add_by_cluster(labels: Labels, values: Floats, weight: Floats, k: int) -> Floats:
    """Sums (k, p) of weight (n,) times values (n, p) over the rows of each label.

    Examples
    --------
    >>> add_by_cluster(np.array([0, 2, 2]), np.array([[1.0], [2.0], [3.0]]), np.ones(3), 3)
    array([[1.],
           [0.],
           [5.]])
    """
    n = len(labels)
    belongs = csr_array((weight, labels, np.arange(n + 1)), shape=(n, k))
    sums: Floats = belongs.T @ values
    return sums
