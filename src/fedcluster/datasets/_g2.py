"""The G2 benchmark: two overlapping clusters in any dimension.

R. Mariescu-Istodor & C. Zhong, G2 data sets, 2016; in P. Fränti & S. Sieranoja, K-means properties
on six clustering benchmark datasets, Applied Intelligence 48 (2018). The published sets have 1, 2,
4, ..., 1024 dimensions and deviations of 10, 20, ..., 100. Both papers of M. Stallmann &
A. Wilbik cluster the hundred from two dimensions on, each row at a site drawn for it.
"""

from __future__ import annotations

from os import PathLike

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats
from fedcluster.datasets._split import SplitRows, client_names

_MEANS = (500.0, 600.0)
_PER_CLUSTER = 1024


def g2(
    dimensions: int, deviation: float, *, n_sites: int = 10, per_cluster: int = 1024, seed: int = 0
) -> SplitRows:
    """Two normal clusters around 500 and 600 in each coordinate, drawn anew.

    Parameters
    ----------
    dimensions : int
        d, at least 1.
    deviation : float
        Standard deviation of a cluster in each coordinate; the published ones are 10 to 100.
    n_sites : int, default=10
        Each row is at one of so many sites, each as likely.
    per_cluster : int, default=1024
        Rows of each cluster.
    seed : int, default=0
        Makes the draws. The rows do not depend on ``n_sites``.

    Returns
    -------
    SplitRows
        The rows by cluster, held by ``client-0``, ``client-1``, ...

    Notes
    -----
    Values are cut to whole numbers, towards minus infinity, as in the published sets: their means
    are half a unit below 500 and 600.

    Examples
    --------
    >>> rows = g2(8, 50)
    >>> rows.X.shape, len(rows.sites)
    ((2048, 8), 10)
    """
    if not (dimensions >= 1 and deviation >= 0 and n_sites >= 1 and per_cluster >= 1):
        raise ValueError(
            "g2 needs dimensions, n_sites and per_cluster of at least 1 and a deviation of at "
            f"least 0, not {dimensions}, {n_sites}, {per_cluster} and {deviation}"
        )
    y = np.repeat([0, 1], per_cluster)
    means = np.repeat(_MEANS, per_cluster)[:, None]
    rng = np.random.default_rng([seed, dimensions, int(deviation)])
    X = np.floor(rng.normal(means, deviation, (len(y), dimensions)))
    return SplitRows(X, y, _drawn_sites(len(y), n_sites, seed))


def read_g2(path: str | PathLike[str], *, n_sites: int = 10, seed: int = 0) -> SplitRows:
    """Read a published set, such as ``g2-2-30.txt``.

    Parameters
    ----------
    path : str or path
        A text file of 2048 lines, the coordinates of a row separated by blanks; the first half is
        one cluster, the second half the other.
    n_sites, seed
        As in `g2`.

    Returns
    -------
    SplitRows

    Raises
    ------
    ValueError
        If the file holds anything else.

    Examples
    --------
    >>> read_g2("g2-2-30.txt").X.shape  # doctest: +SKIP
    (2048, 2)
    """
    try:
        X: Floats = np.loadtxt(path, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} is not a table of numbers separated by blanks: {error}") from None
    if len(X) != 2 * _PER_CLUSTER:
        raise ValueError(f"{path} has {len(X)} rows, a G2 set has {2 * _PER_CLUSTER}")
    return SplitRows(X, np.repeat([0, 1], _PER_CLUSTER), _drawn_sites(len(X), n_sites, seed))


def _drawn_sites(n_rows: int, n_sites: int, seed: int) -> NDArray[np.str_]:
    """A site for each row, each as likely."""
    return client_names(np.random.default_rng(seed).integers(0, n_sites, n_rows))
