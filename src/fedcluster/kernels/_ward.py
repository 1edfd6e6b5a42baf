"""Groups of p rows and a few more from Ward's hierarchy, found by chains of nearest neighbours.

J. H. Ward, "Hierarchical grouping to optimize an objective function", JASA 1963; F. Murtagh, "A
survey of recent advances in hierarchical clustering algorithms", The Computer Journal 1983. For
groups: J. Domingo-Ferrer and J. M. Mateo-Sanz, "Practical data-oriented microaggregation for
statistical disclosure control", IEEE TKDE 2002.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats, Labels
from fedcluster.kernels._runtime import inner, native

NO_GROUP = -1


class Clusters(NamedTuple):
    """Clusters that are still to be merged.

    Attributes
    ----------
    costs : ndarray of shape (n, n)
        By how much the sum of squares grows if two clusters are merged.
    sizes : ndarray of shape (n,)
        Rows of each cluster.
    alive : ndarray of shape (n,)
        The numbers of the clusters; those that are left come first.
    home : ndarray of shape (n,)
        The cluster of each row, while it has fewer than p rows.
    """

    costs: Floats
    sizes: NDArray[np.int64]
    alive: NDArray[np.int64]
    home: NDArray[np.int64]


@native
def ward_groups(columns: Floats, p: int) -> Labels:
    """Return the smallest branches of at least p rows, (n,); -1 for rows of smaller branches.

    Parameters
    ----------
    columns : ndarray of shape (d, n)
        The rows, column by column.
    p : int
        The fewest rows of a group, at least 2.
    """
    n = columns.shape[1]
    each, ones = np.arange(n), np.ones(n, np.int64)
    clusters = Clusters(_pair_costs(columns), ones, each, each.copy())
    labels = np.full(n, NO_GROUP, np.int32)
    chain, length, n_groups = np.zeros(n + 1, np.int64), 0, 0
    for n_alive in range(n, 1, -1):
        length = _grow(clusters, n_alive, chain, length)
        a, b = chain[length], chain[length + 1]
        n_groups += _keep(clusters, labels, n_groups, (a, b), p)
        _merge(clusters, n_alive, a, b)
    return labels


@inner
def _pair_costs(columns: Floats) -> Floats:
    """Return half of the squared distances (n, n), infinite from a row to itself."""
    n = columns.shape[1]
    costs = np.zeros((n, n))
    for i in range(n):
        line = costs[i]
        for column in columns:
            for j in range(n):
                line[j] += 0.5 * (column[j] - column[i]) ** 2
        line[i] = np.inf
    return costs


@inner
def _grow(clusters: Clusters, n_alive: int, chain: NDArray[np.int64], length: int) -> int:
    """Go on to the nearest cluster until two are nearest to each other; they end the chain."""
    if not length:
        chain[0], length = clusters.alive[0], 1
    while True:
        here = chain[length - 1]
        near = chain[length - 2] if length > 1 else clusters.alive[int(here == clusters.alive[0])]
        for k in range(n_alive):
            j = clusters.alive[k]
            if clusters.costs[here, j] < clusters.costs[here, near]:
                near = j
        if near in chain[: length - 1]:  # or it would be, but for rounding
            return length - 2
        chain[length] = near
        length += 1


@inner
def _keep(clusters: Clusters, labels: Labels, n_groups: int, pair: tuple[int, int], p: int) -> bool:
    """Label the rows of two clusters if they are a group now; a cluster below p gets no label."""
    (a, b), home = pair, clusters.home
    size_a, size_b = clusters.sizes[a], clusters.sizes[b]
    is_group = max(size_a, size_b) < p <= size_a + size_b
    if min(size_a, size_b) < p:
        for i in range(len(home)):
            if home[i] == a or home[i] == b:
                labels[i] = n_groups if is_group else NO_GROUP
                home[i] = a if size_a + size_b < p else -1
    return is_group


@inner
def _merge(clusters: Clusters, n_alive: int, a: int, b: int) -> None:
    """Merge cluster b into cluster a, with the costs after Lance and Williams."""
    costs, sizes, alive, _ = clusters
    size_a, size_b, cost = sizes[a], sizes[b], costs[a, b]
    for k in range(n_alive):
        if alive[k] == b:
            alive[k] = alive[n_alive - 1]
            break
    for k in range(n_alive - 1):
        j = alive[k]
        if j != a:
            size = sizes[j]
            grown = (size_a + size) * costs[a, j] + (size_b + size) * costs[b, j] - size * cost
            costs[a, j] = costs[j, a] = grown / (size_a + size_b + size)
    sizes[a] += size_b


@native
def join_nearest(rows: Floats, labels: Labels) -> None:
    """Give each row without a group to the group whose sum of squares grows least."""
    n_groups = labels.max() + 1
    means, sizes = np.zeros((n_groups, rows.shape[1])), np.zeros(n_groups)
    for is_joining in (False, True):
        for i in range(len(rows)):
            if (labels[i] < 0) == is_joining:
                if is_joining:
                    labels[i] = _cheapest(means, sizes, rows[i])
                group = labels[i]
                sizes[group] += 1
                means[group] += (rows[i] - means[group]) / sizes[group]


@inner
def _cheapest(means: Floats, sizes: Floats, row: Floats) -> int:
    best, least = 0, np.inf
    for group in range(len(means)):
        square = 0.0
        for j in range(len(row)):
            square += (row[j] - means[group, j]) ** 2
        cost = square * sizes[group] / (sizes[group] + 1)
        if cost < least:
            best, least = group, cost
    return best
