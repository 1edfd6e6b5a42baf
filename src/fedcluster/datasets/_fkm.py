"""The FKM papers' plane: sixteen normal clouds that five sites see unequally.

S. Garst & M. Reinders, Federated K-means clustering, ICPR 2024; arXiv 2310.01195. The positions
of the sites, the seed and the order of the draws are those of the authors' repository,
github.com/swiergarst/fedKMeans, so that the rows are the published ones, bit by bit.
"""

from __future__ import annotations

import numpy as np
from numpy.random import RandomState

from fedcluster.core import Floats
from fedcluster.datasets._split import SplitRows, client_names

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
    return SplitRows(X, np.repeat(np.arange(len(_MEANS)), per_cluster), client_names(observer))


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
        np.concatenate(clouds), np.repeat(clusters, sizes), client_names(np.repeat(clients, sizes))
    )


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
