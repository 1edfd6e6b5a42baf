"""The hundred G2 sets: two normal clusters each (Mariescu-Istodor & Zhong, 2016)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from fedcluster.core import Floats
from reproduction.datasets import g2
from reproduction.results import REFERENCE

DIMENSIONS = tuple(2**i for i in range(1, 11))
DEVIATIONS = tuple(range(10, 101, 10))
PUBLISHED = {
    **dict.fromkeys((2, 4, 8), "g2_d2_to_d8.npz"),
    **dict.fromkeys((16, 32, 64, 128), "g2_d16_to_d128.npz"),
}
"""The files of the published rows, by dimensions."""


@lru_cache(maxsize=2)
def g2_rows(dimensions: int, deviation: int) -> Floats:
    """Return the published rows where they are at hand, up to 128 columns; others drawn anew.

    Parameters
    ----------
    dimensions : int
        d, of `DIMENSIONS`.
    deviation : int
        Standard deviation of a cluster in each coordinate, of `DEVIATIONS`.

    Returns
    -------
    ndarray of shape (2048, d)
        The first half is the cluster around 500, the second that around 600.

    Examples
    --------
    >>> g2_rows(4, 10).shape
    (2048, 4)
    """
    path = REFERENCE / PUBLISHED.get(dimensions, "")
    if path.is_file():
        with np.load(path) as sets:
            return np.asarray(sets[f"g2_{dimensions}_{deviation}"], float)
    return g2(dimensions, deviation).X


def true_centers(dimensions: int) -> Floats:
    """Return the means that both clusters are drawn around, (2, d)."""
    return np.outer([500.0, 600.0], np.ones(dimensions))
