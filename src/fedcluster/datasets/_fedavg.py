"""Triebe & Rajagopal's sites on a line.

S. Triebe & R. Rajagopal, Federated K-Means: clustering algorithm and proof of concept, 2019. They
publish no seed: the rows are drawn anew from ``seed``.
"""

from __future__ import annotations

import numpy as np

from fedcluster.datasets._split import SplitRows, clouds


def triebe(
    seed: int = 0, *, sites_per_cluster: int = 10, rows_per_site: int = 10, noise: float = 0.2
) -> tuple[SplitRows, SplitRows]:
    """Many small sites on a line, each within one of five clusters (Triebe & Rajagopal, 2019).

    The clusters' means are 1, 2, 3, 4 and 5. All rows of a site are of one cluster.

    Parameters
    ----------
    seed : int, default=0
        Makes the draws.
    sites_per_cluster : int, default=10
        Sites that hold rows of a cluster.
    rows_per_site : int, default=10
        Rows of each site.
    noise : float, default=0.2
        Standard deviation of a cluster.

    Returns
    -------
    train, test : SplitRows
        The rows of ``client-00`` to ``client-49`` in one dimension, and those of as many further
        sites from the same five clusters.

    Notes
    -----
    The mean distance of a row to the mean of its cluster is sqrt(2 / pi) times the noise: 0.160.

    Examples
    --------
    >>> train, test = triebe()
    >>> len(train.sites), train.sites["client-00"][0].shape
    (50, (10, 1))
    """
    means = np.arange(1.0, 6.0)[:, None]
    counts = np.kron(np.eye(5, dtype=int), np.full((sites_per_cluster, 1), rows_per_site))
    rng = np.random.default_rng(seed)
    return clouds(means, noise, counts, rng), clouds(means, noise, counts, rng)
