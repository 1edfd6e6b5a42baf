"""Normal clouds of five publications: the same rows where a seed is published, else drawn anew.

- S. Garst & M. Reinders, Federated K-means clustering, ICPR 2024; arXiv 2310.01195: the clusters of
  `plane16`. The positions of the sites, the seed and the order of the draws are those of the
  authors' repository, github.com/swiergarst/fedKMeans, so that the rows are the published ones,
  bit by bit.
- R. Mariescu-Istodor & C. Zhong, G2 data sets, 2016; in P. Fränti & S. Sieranoja, K-means
  properties on six clustering benchmark datasets, Applied Intelligence 48 (2018). The published
  sets have 1, 2, 4, ..., 1024 dimensions and deviations of 10, 20, ..., 100. Both papers of
  M. Stallmann & A. Wilbik cluster the hundred from two dimensions on, each row at a site drawn
  for it.
- O. J. Triebe & R. Rajagopal, Federated K-Means: clustering algorithm and proof of concept, 2019.
- M. Stallmann & A. Wilbik, Towards federated clustering: a federated fuzzy c-means algorithm
  (FFCM), FL-AAAI 2022.
- M. Stallmann & A. Wilbik, On a framework for federated cluster analysis, Applied Sciences 12
  (2022). Of its artificial set only so much is known: three sites, five clusters, and the fuzzy
  Davies-Bouldin index of the pooled rows for 2 to 8 clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import NDArray

from fedcluster.core import Floats

__all__ = [
    "FFCM_CASES",
    "SplitRows",
    "ffcm_case",
    "g2",
    "pentagon",
    "plane16",
    "read_g2",
    "triebe",
    "variable_k",
]

_PLANE_SEED = 42
_GRID = np.array([(x, y) for x in (-7.5, -2.5, 2.5, 7.5) for y in (-7.5, -2.5, 2.5, 7.5)])
_OBSERVERS = (
    (6.996601158324054, 4.124745404114659),
    (-5.2710667038492565, 7.157142451709259),
    (6.714794493537756, -9.174802677105856),
    (2.4435159206032413, 8.331910708477391),
    (-9.606948592795872, 2.769673398722041),
)
_CLUSTERS_SEEN = (16, 1, 3, 10, 7)
_G2_MEANS = (500.0, 600.0)
_G2_ROWS = 1024
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
"""Clusters' means, their standard deviation, and the rows of each cluster at each site."""


@dataclass(frozen=True, slots=True, eq=False)
class SplitRows:
    """Rows with their true clusters and the sites that hold them, in the order of generation.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The pooled rows.
    y : ndarray of shape (n,)
        The true cluster of each row.
    site : ndarray of shape (n,)
        The name of the site that holds each row.
    """

    X: Floats
    y: NDArray[np.intp]
    site: NDArray[np.str_]

    @property
    def sites(self) -> dict[str, tuple[Floats, NDArray[np.intp]]]:
        """Rows and true clusters of each site, by name, in the order of the names."""
        holds = {str(name): self.site == name for name in np.unique(self.site)}
        return {name: (self.X[these], self.y[these]) for name, these in holds.items()}


def plane16(beta: float = 0.1, per_cluster: int = 50, noise: float = 1.0) -> SplitRows:
    """Draw sixteen clusters on a plane, seen by five observers (FKM papers, figures 1 to 4 and 8).

    The clusters' means are the points of the grid {-7.5, -2.5, 2.5, 7.5} x {-7.5, -2.5, 2.5, 7.5},
    in row order. An observer at the distance d sees a row with the probability
    1 - exp(-beta / d). A row belongs to one of those who see it, each equally likely; where
    nobody does, to the nearest.

    Parameters
    ----------
    beta : float, default=0.1
        The distance that an observer sees, in the units of the plane; above 0. The papers take
        0.1, 1 and 10: the smaller it is, the more the sites differ.
    per_cluster : int, default=50
        Rows of each cluster; the papers take 50, 100 and 200.
    noise : float, default=1.0
        Standard deviation of a cluster in each coordinate; the papers take 1 to 1.5.

    Returns
    -------
    SplitRows
        The rows by cluster, held by ``client-0`` to ``client-4``.

    Notes
    -----
    The positions of the observers, the seed 42, the order of the draws and the rule for rows
    that nobody sees come from the program, swiergarst/fedKMeans; the papers leave them out. The
    pooled rows do not depend on ``beta``.

    Examples
    --------
    >>> rows = plane16(beta=0.1)
    >>> {name: len(X) for name, (X, y) in rows.sites.items()}
    {'client-0': 185, 'client-1': 144, 'client-2': 194, 'client-3': 74, 'client-4': 203}
    """
    if not (beta > 0 and noise >= 0 and per_cluster >= 1):
        raise ValueError(
            "plane16 needs beta above 0, noise of at least 0 and per_cluster of at least 1, "
            f"not {beta}, {noise} and {per_cluster}"
        )
    rng = RandomState(_PLANE_SEED)
    # of each cluster all first coordinates are drawn before the second
    X = np.concatenate([rng.normal(m, noise, per_cluster) for mean in _GRID for m in mean])
    X = X.reshape(len(_GRID), 2, per_cluster).transpose(0, 2, 1).reshape(-1, 2)
    site = np.array([f"client-{_observer(x, beta, rng)}" for x in X])
    return SplitRows(X, np.repeat(np.arange(len(_GRID)), per_cluster), site)


def variable_k(per_cluster: int = 50) -> SplitRows:
    """Draw rows for sites that hold 16, 1, 3, 10 and 7 of sixteen clusters (FKM ICPR figure 5).

    The clusters are those of `plane16` with noise 1. Site i holds rows of the first K_i clusters,
    K = (16, 1, 3, 10, 7); the sites that hold a cluster share its rows in equal, consecutive
    parts, and the remainder is left out.

    Parameters
    ----------
    per_cluster : int, default=50
        Rows drawn of each cluster. The papers' figure takes 50, at least 5 is needed.

    Returns
    -------
    SplitRows
        The rows by cluster, held by ``client-0`` to ``client-4``.

    Notes
    -----
    Seed, order and shares come from the program, swiergarst/fedKMeans ("cluster_wise", with 50
    rows a cluster "cluster_wise_small"). The papers' text lists the numbers of clusters in
    another order.

    Examples
    --------
    >>> {name: len(np.unique(y)) for name, (X, y) in variable_k().sites.items()}
    {'client-0': 16, 'client-1': 1, 'client-2': 3, 'client-3': 10, 'client-4': 7}
    """
    if per_cluster < len(_CLUSTERS_SEEN):
        raise ValueError(
            f"variable_k needs per_cluster of at least {len(_CLUSTERS_SEEN)}, one row for each "
            f"site, not {per_cluster}"
        )
    drawn = plane16(per_cluster=per_cluster, noise=1.0).X.reshape(16, per_cluster, 2)
    rows, clients = [], []
    for cluster, cloud in enumerate(drawn):
        holders = [i for i, seen in enumerate(_CLUSTERS_SEEN) if cluster < seen]
        held = np.repeat(holders, per_cluster // len(holders))
        rows.append(cloud[: len(held)])
        clients.append(held)
    y = np.repeat(np.arange(len(drawn)), [len(held) for held in clients])
    return SplitRows(np.concatenate(rows), y, client_names(np.concatenate(clients)))


def _observer(x: Floats, beta: float, rng: RandomState) -> int:
    """Draw the observer of a row: one of those who see it, or the nearest."""
    distance = np.sqrt((np.subtract(_OBSERVERS, x) ** 2).sum(axis=1))
    chance = 1.0 - np.exp(-beta / distance)
    sees = [bool(rng.choice([0, 1], p=[1.0 - p, p])) for p in chance]
    if not any(sees):
        return int(distance.argmin())
    return int(rng.choice(np.flatnonzero(sees)))


def g2(
    dimensions: int, deviation: float, *, n_sites: int = 10, per_cluster: int = 1024, seed: int = 0
) -> SplitRows:
    """Draw two normal clusters around 500 and 600 in each coordinate.

    Parameters
    ----------
    dimensions : int
        d, at least 1.
    deviation : float
        Standard deviation of a cluster in each coordinate; the published ones are 10 to 100.
    n_sites : int, default=10
        Each row is at one of so many sites, each equally likely.
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
    means = np.repeat(_G2_MEANS, per_cluster)[:, None]
    rng = np.random.default_rng([seed, dimensions, int(deviation)])
    X = np.floor(rng.normal(means, deviation, (len(means), dimensions)))
    return _two_halves(X, n_sites, seed)


def read_g2(path: str | PathLike[str], *, n_sites: int = 10, seed: int = 0) -> SplitRows:
    """Read a published G2 set, such as ``g2-2-30.txt``.

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
    if len(X) != 2 * _G2_ROWS:
        raise ValueError(f"{path} has {len(X)} rows, a G2 set has {2 * _G2_ROWS}")
    return _two_halves(X, n_sites, seed)


def _two_halves(X: Floats, n_sites: int, seed: int) -> SplitRows:
    """Return rows of which each half is a cluster, and draw a site for each."""
    sites = np.random.default_rng(seed).integers(0, n_sites, len(X))
    return SplitRows(X, np.repeat([0, 1], len(X) // 2), client_names(sites))


def triebe(
    seed: int = 0, *, sites_per_cluster: int = 10, rows_per_site: int = 10, noise: float = 0.2
) -> tuple[SplitRows, SplitRows]:
    """Draw many small sites on a line, each within one of five clusters (Triebe & Rajagopal, 2019).

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
    """Draw the artificial data of the FFCM paper on a plane, by case (Stallmann & Wilbik, 2022).

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
    """Draw five clusters on a circle at three sites, in place of the framework paper's rows.

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


def clouds(means: Floats, noise: float, counts: NDArray[np.intp], rng: Generator) -> SplitRows:
    """Draw normal rows by site, ``counts[i, j]`` of them around mean j at site i."""
    client, cluster = np.divmod(np.repeat(np.arange(counts.size), counts.ravel()), len(means))
    return SplitRows(rng.normal(means[cluster], noise), cluster, client_names(client))


def client_names(client: Any) -> NDArray[np.str_]:
    """Return the name of each row's site from its number, (n,)."""
    width = len(str(max(client)))  # so that names sort as numbers do
    return np.array([f"client-{i:0{width}}" for i in client])
