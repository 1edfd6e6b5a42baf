"""A stand-in for the unpublished made-up data of the framework paper.

M. Stallmann & A. Wilbik, On a framework for federated cluster analysis, Applied Sciences 12
(2022). Of its artificial set only so much is known: three sites, five clusters, and the fuzzy
Davies-Bouldin index of the pooled rows for 2 to 8 clusters.
"""

from __future__ import annotations

import numpy as np

from fedcluster.datasets._split import SplitRows, clouds


def pentagon(
    seed: int = 0, *, rows_per_cluster: int = 200, radius: float = 5.0, noise: float = 1.0
) -> SplitRows:
    """Five clusters on a circle at three sites: a stand-in, not the framework paper's rows.

    The clusters' means are the corners of a regular pentagon around the origin. The sites hold
    the clusters 0 and 1, 2 and 3, 4 and 0; the two that hold cluster 0 share its rows.

    Parameters
    ----------
    seed : int, default=0
        Makes the draws.
    rows_per_cluster : int, default=200
        Rows of each cluster over all sites, even.
    radius : float, default=5
        Distance of the means from the origin.
    noise : float, default=1
        Standard deviation of a cluster in each coordinate.

    Returns
    -------
    SplitRows
        The rows by site, held by ``client-0`` to ``client-2``.

    Notes
    -----
    Of a few plain layouts this one comes nearest to the published index of the pooled rows: of
    2 to 5 clusters it is within 5 %, and smallest for five.

    Examples
    --------
    >>> {name: np.bincount(y, minlength=5) for name, (_, y) in pentagon().sites.items()}
    {'client-0': array([100, 200,   0,   0,   0]), 'client-1': array([  0,   0, 200, 200,   0]), \
'client-2': array([100,   0,   0,   0, 200])}
    """
    if rows_per_cluster < 2 or rows_per_cluster % 2:
        raise ValueError(
            f"pentagon needs an even rows_per_cluster of at least 2, not {rows_per_cluster}"
        )
    angle = np.arange(5) * 2 * np.pi / 5
    means = radius * np.column_stack([np.cos(angle), np.sin(angle)])
    all_, half = rows_per_cluster, rows_per_cluster // 2
    counts = np.array([[half, all_, 0, 0, 0], [0, 0, all_, all_, 0], [half, 0, 0, 0, all_]])
    return clouds(means, noise, counts, np.random.default_rng(seed))
