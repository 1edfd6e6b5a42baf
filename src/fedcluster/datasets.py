"""Data made by chance, split over sites: those of the papers.

The FKM papers (S. Garst & M. Reinders, Federated K-means clustering, ICPR 2024; arXiv
2310.01195) cluster 16 normal clouds on a plane that five sites see unequally. The positions of
the sites, the seed and the order of the draws are those of the authors' repository,
github.com/swiergarst/fedKMeans, so that the rows are the published ones, bit by bit.

The others publish no seed; their data are drawn anew from ``seed``:

- S. Triebe & R. Rajagopal, Federated K-Means: clustering algorithm and proof of concept, 2019;
- M. Stallmann & A. Wilbik, Towards federated clustering: a federated fuzzy c-means algorithm
  (FFCM), FL-AAAI 2022.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import NDArray

from fedcluster.core import Floats

__all__ = ["FFCM_CASES", "SplitRows", "ffcm_case", "plane16", "triebe", "variable_k"]

_SEED = 42
_MEANS = np.array([(x, y) for x in (-7.5, -2.5, 2.5, 7.5) for y in (-7.5, -2.5, 2.5, 7.5)])
_OBSERVERS = np.array(
    [
        [6.996601158324054, 4.124745404114659],
        [-5.2710667038492565, 7.157142451709259],
        [6.714794493537756, -9.174802677105856],
        [2.4435159206032413, 8.331910708477391],
        [-9.606948592795872, 2.769673398722041],
    ]
)
_CLUSTERS_SEEN = (16, 1, 3, 10, 7)

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


@dataclass(frozen=True, slots=True, eq=False)
class SplitRows:
    """Rows with their true clusters and the sites that hold them, in the order of their making.

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
        """The rows and the true clusters of each site, by name, in the order of the names."""
        holds = {str(name): self.site == name for name in np.unique(self.site)}
        return {name: (self.X[these], self.y[these]) for name, these in holds.items()}


def plane16(beta: float = 0.1, per_cluster: int = 50, noise: float = 1.0) -> SplitRows:
    """Sixteen clusters on a plane, seen by five observers (FKM papers, figures 1 to 4 and 8).

    The clusters' means are the points of the grid {-7.5, -2.5, 2.5, 7.5} x {-7.5, -2.5, 2.5, 7.5},
    in row order. An observer at the distance d sees a row with the probability
    1 - exp(-beta / d). A row belongs to one of those who see it, each as likely; where nobody
    does, to the nearest.

    Parameters
    ----------
    beta : float, default=0.1
        How far an observer sees, in the units of the plane; above 0. The papers take 0.1, 1
        and 10: the smaller it is, the more do the sites differ.
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
    rng = RandomState(_SEED)
    X = np.concatenate([_cloud(mean, per_cluster, noise, rng) for mean in _MEANS])
    observer = [_observer(x, beta, rng) for x in X]
    return SplitRows(X, np.repeat(np.arange(len(_MEANS)), per_cluster), _client_names(observer))


def variable_k(per_cluster: int = 50) -> SplitRows:
    """Sites that hold 16, 1, 3, 10 and 7 of sixteen clusters (FKM ICPR figure 5).

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
    rng = RandomState(_SEED)
    parts: list[tuple[Floats, int, int]] = []
    for cluster, mean in enumerate(_MEANS):
        cloud = _cloud(mean, per_cluster, 1.0, rng)
        holders = [i for i, seen in enumerate(_CLUSTERS_SEEN) if cluster < seen]
        share = per_cluster // len(holders)
        parts += [(cloud[j * share : (j + 1) * share], cluster, i) for j, i in enumerate(holders)]
    clouds, clusters, clients = zip(*parts, strict=True)
    sizes = [len(cloud) for cloud in clouds]
    return SplitRows(
        np.concatenate(clouds), np.repeat(clusters, sizes), _client_names(np.repeat(clients, sizes))
    )


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
    return _clouds(means, noise, counts, rng), _clouds(means, noise, counts, rng)


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
    return _clouds(np.array(means), noise, np.array(counts), np.random.default_rng(seed))


def _clouds(means: Floats, noise: float, counts: NDArray[np.intp], rng: Generator) -> SplitRows:
    """Normal rows by site, ``counts[i, j]`` of them around mean j at site i."""
    client, cluster = np.divmod(np.repeat(np.arange(counts.size), counts.ravel()), len(means))
    return SplitRows(rng.normal(means[cluster], noise), cluster, _client_names(client))


def _cloud(mean: Floats, n: int, noise: float, rng: RandomState) -> Floats:
    """Normal rows around a mean, (n, 2): all first coordinates are drawn before the second."""
    return np.column_stack([rng.normal(center, noise, n) for center in mean])


def _observer(x: Floats, beta: float, rng: RandomState) -> int:
    """Which observer a row belongs to."""
    distance = np.sqrt(((_OBSERVERS - x) ** 2).sum(axis=1))
    chance = 1.0 - np.exp(-beta / distance)
    sees = [bool(rng.choice([0, 1], p=[1.0 - p, p])) for p in chance]
    if not any(sees):
        return int(distance.argmin())
    return int(rng.choice(np.flatnonzero(sees)))


def _client_names(client: Any) -> NDArray[np.str_]:
    width = len(str(max(client)))  # so that names sort as numbers do
    return np.array([f"client-{i:0{width}}" for i in client])
