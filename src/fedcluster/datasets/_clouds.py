"""Made-up data of three papers that publish no rows and no seed: normal clouds, drawn anew.

- S. Triebe & R. Rajagopal, Federated K-Means: clustering algorithm and proof of concept, 2019.
- M. Stallmann & A. Wilbik, Towards federated clustering: a federated fuzzy c-means algorithm
  (FFCM), FL-AAAI 2022.
- M. Stallmann & A. Wilbik, On a framework for federated cluster analysis, Applied Sciences 12
  (2022). Of its artificial set only so much is known: three sites, five clusters, and the fuzzy
  Davies-Bouldin index of the pooled rows for 2 to 8 clusters.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedcluster.datasets._split import SplitRows, clouds

_DIAGONAL = ((-2.0, -2.0), (0.0, 0.0), (2.0, 2.0))
_HIDDEN = ((5.0, 0.0), (5.0, 10.0), (10.0, 10.0))
_SQUARE = ((0.0, 0.0), (0.0, 10.0), (10.0, 10.0), (10.0, 0.0))
_THIRDS, _HALVES = (333, 333, 333), (500, 500, 0)
FFCM_CASES: Mapping[str, tuple[tuple[tuple[float, ...], ...], float, tuple[tuple[int, ...], ...]]]
FFCM_CASES = {
    "1a": (_DIAGONAL, 0.5, (_THIRDS, _THIRDS, _THIRDS)),
    "1b": (_DIAGONAL, 0.5, (_THIRDS, _THIRDS, _HALVES)),
    "2": (_HIDDEN, 1.1, ((900, 50, 50), (50, 900, 50))),
    "3a": (_SQUARE, 1.0, ((50, 50, 0, 0), (0, 500, 500, 0), (0, 0, 50, 50))),
    "3b": (_SQUARE, 1.0, ((50, 50, 0, 0), (0, 500, 500, 0), (0, 0, 500, 500))),
    "3c": (_SQUARE, 1.0, ((500, 500, 0, 0), (0, 50, 50, 0), (0, 0, 50, 50))),
    "3d": (_SQUARE, 1.0, ((500, 500, 0, 0), (0, 500, 500, 0), (0, 0, 500, 500))),
}
"""The clusters' means, their standard deviation, and the rows of each cluster at each site."""


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


def ffcm_case(case: str, seed: int = 0) -> SplitRows:
    """The made-up data of the FFCM paper on a plane, by case (Stallmann & Wilbik, 2022).

    Parameters
    ----------
    case : {"1a", "1b", "2", "3a", "3b", "3c", "3d"}
        ``"1a"``, ``"1b"``: clusters (-2, -2), (0, 0), (2, 2) at three sites that hold 333 rows of
        each; in 1b (experiment 2, table 2) the third holds 500 rows of the first two, and none
        of the last.
        ``"2"``: a cluster hidden from two sites (table 3, figure 1; the paper takes m = 1.1):
        (5, 0), (5, 10), (10, 10), of which one site holds 900, 50 and 50 rows and the other 50,
        900 and 50.
        ``"3a"`` to ``"3d"``: the corners of a square of side 10, of which three sites hold two
        neighbours each, in halves; 100, 1000 and 100 rows, (100, 1000, 1000), (1000, 100, 100),
        and 1000 each (table 4).
    seed : int, default=0
        Makes the draws.

    Returns
    -------
    SplitRows
        The rows by site, held by ``client-0``, ``client-1``, ...

    Notes
    -----
    Standard deviations are 0.5 (inferred from table 2; the paper does not say), 1.1 and 1.

    Examples
    --------
    >>> {name: len(X) for name, (X, y) in ffcm_case("3a").sites.items()}
    {'client-0': 100, 'client-1': 1000, 'client-2': 100}
    """
    if case not in FFCM_CASES:
        raise ValueError(f"ffcm_case knows {', '.join(FFCM_CASES)}, not {case!r}")
    means, noise, counts = FFCM_CASES[case]
    return clouds(np.array(means), noise, np.array(counts), np.random.default_rng(seed))


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
