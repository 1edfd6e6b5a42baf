"""Groups of at least p rows that lie close together (microaggregation).

Cuts of rows in two, across the axis of their largest variance.

Groups of p rows and a few more from Ward's hierarchy, found by chains of nearest neighbours.

J. H. Ward, "Hierarchical grouping to optimize an objective function", JASA 1963; F. Murtagh, "A
survey of recent advances in hierarchical clustering algorithms", The Computer Journal 1983. For
groups: J. Domingo-Ferrer and J. M. Mateo-Sanz, "Practical data-oriented microaggregation for
statistical disclosure control", IEEE TKDE 2002.

Partition of rows into groups of at least p that lie close together (microaggregation).

J. Domingo-Ferrer and J. M. Mateo-Sanz, "Practical data-oriented microaggregation for statistical
disclosure control", IEEE TKDE 2002. Ours in four steps: rows are pulled a little towards the
centres of clusters of several sizes, so that fewer groups straddle a later border between clusters;
they are cut into blocks; the smallest branches of at least p rows of Ward's hierarchy of a block
are groups; rows change places between these, and groups are split.

Nothing is drawn at random. Rows are first sorted by their content, so that neither their original
order nor the number of threads matters.

Improvement of groups by exchanging rows between them and splitting groups.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.core import Floats, Labels
from fedcluster.core.threads import for_each_chunk, thread_count
from fedcluster.kernels._hard import nearest
from fedcluster.kernels._tiles import aligned_zeros
from fedcluster.kernels.iteration import kmeans
from fedcluster.kernels.rows import as_double_rows
from fedcluster.kernels.runtime import (
    inlined,
    inner,
    inner_in_any_order,
    native,
    native_in_any_order,
)

N_NEAR = 5  # number of nearest groups that a row or a group is compared with

Members = NDArray[np.int64]


class Groups(NamedTuple):
    """Groups of p to 2 p - 1 rows, with room for more groups.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        The group of each row.
    sizes : ndarray of shape (n // p,)
        Number of rows in each group, 0 for groups that do not exist yet.
    members : ndarray of shape (n // p, 2 p - 1)
        The rows of each group; entries beyond its size are unused.
    means : ndarray of shape (d, n // p)
        The means of the groups, infinite for groups that do not exist yet.
    """

    labels: Labels
    sizes: NDArray[np.int64]
    members: NDArray[np.int64]
    means: Floats


@native
def improve(rows: Floats, labels: Labels, p: int, n_passes: int) -> None:
    """Exchange rows between groups and split groups as long as the sum of squares decreases.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        The rows.
    labels : ndarray of shape (n,)
        The group of each row, changed in place; each has p to 2 p - 1 rows, before and after.
    p : int
        The smallest number of rows in a group.
    n_passes : int
        The largest number of passes over the rows.
    """
    groups = _groups(rows, labels, p)
    n_groups = _count(labels)
    for _ in range(n_passes):
        n_before = n_groups
        for group in range(n_before):
            n_groups += _split(rows, groups, group, n_groups, p)
        n_changes = n_groups - n_before
        for i in range(len(rows)):
            n_changes += _exchange(rows, groups, i, p)
        if n_changes < 0.002 * len(rows):  # converged: further passes change hardly anything
            break


@native
def _groups(rows: Floats, labels: Labels, p: int) -> Groups:
    most = len(labels) // p
    sizes, members = np.zeros(most, np.int64), np.empty((most, 2 * p - 1), np.int64)
    means = aligned_zeros(rows.dtype, (rows.shape[1], most))
    means[:] = np.inf
    groups = Groups(labels, sizes, members, means)
    for i in range(len(labels)):
        members[labels[i], sizes[labels[i]]] = i
        sizes[labels[i]] += 1
    for group in range(_count(labels)):
        _average(rows, groups, group)
    return groups


@inner
def _write(rows: Floats, groups: Groups, group: int, members: Members) -> None:
    """Make the given rows the members of a group."""
    groups.sizes[group] = len(members)
    for k in range(len(members)):
        groups.members[group, k] = members[k]
        groups.labels[members[k]] = group
    _average(rows, groups, group)


@inner
def _average(rows: Floats, groups: Groups, group: int) -> None:
    """Write the mean of a group."""
    size = groups.sizes[group]
    for j in range(rows.shape[1]):
        total = 0.0
        for k in range(size):
            total += rows[groups.members[group, k], j]
        groups.means[j, group] = total / size


@inner
def _exchange(rows: Floats, groups: Groups, i: int, p: int) -> bool:
    """Move a row to a nearby group, or swap it with a row of one, if that helps."""
    labels, sizes, members, means = groups
    home, squares = labels[i], _squares(means, rows[i])
    # a gain below this share of the squared distance from a row to its mean is rounding
    gain, best, partner = 1e-9 * squares[home], home, -1
    leaving = squares[home] * sizes[home] / (sizes[home] - 1) if sizes[home] > p else -np.inf
    squares[home] = np.inf
    for _ in range(N_NEAR):
        group = _lowest(squares)
        if squares[group] == np.inf:
            break
        joining = squares[group] * sizes[group] / (sizes[group] + 1)
        squares[group] = np.inf
        if sizes[group] < members.shape[1] and leaving - joining > gain:
            gain, best, partner = leaving - joining, group, -1
        swapping, k = _best_swap(rows, groups, i, group)
        if swapping > gain:
            gain, best, partner = swapping, group, k
    if best != home:
        _apply(rows, groups, i, (best, partner))
    return best != home


@inlined
def _count(labels: Labels) -> int:
    """Return the number of groups."""
    count = 0
    for label in labels:
        count = max(count, label + 1)
    return count


@inlined
def _lowest(squares: Floats) -> int:
    """Return the first group at the smallest squared distance."""
    lowest = 0
    for group in range(len(squares)):
        if squares[group] < squares[lowest]:
            lowest = group
    return lowest


@inner
def _squares(means: Floats, row: Floats) -> Floats:
    """Return the squared distances from a row to all means."""
    squares = np.zeros(means.shape[1])
    for j in range(len(row)):
        line = means[j]
        for group in range(len(squares)):
            squares[group] += (line[group] - row[j]) ** 2
    return squares


@inner_in_any_order
def _best_swap(rows: Floats, groups: Groups, i: int, group: int) -> tuple[float, int]:
    """Return how much the best swap with a row of a group lowers the sum of squares, and the row.

    Swapping x of a with y of b changes it by |y - x|^2 (1 / n_a + 1 / n_b) - 2 (y - x).(m_b - m_a).
    """
    home, best, partner = groups.labels[i], -np.inf, 0
    between = groups.means[:, group] - groups.means[:, home]
    share = 1 / groups.sizes[home] + 1 / groups.sizes[group]
    for k in range(groups.sizes[group]):
        j, product, square = groups.members[group, k], 0.0, 0.0
        for f in range(len(between)):
            difference = rows[j, f] - rows[i, f]
            product += difference * between[f]
            square += difference * difference
        if square * share - 2 * product > best:
            best, partner = square * share - 2 * product, k
    return best, partner


@inner
def _apply(rows: Floats, groups: Groups, i: int, to: tuple[int, int]) -> None:
    """Move a row to a group or, unless k is -1, swap it with the k-th row of that group."""
    labels, sizes, members, _ = groups
    home, (group, k) = labels[i], to
    place = 0
    while members[home, place] != i:
        place += 1
    if k < 0:
        k = sizes[group]
        sizes[group] += 1
        sizes[home] -= 1
        members[home, place] = members[home, sizes[home]]
    else:
        members[home, place] = members[group, k]
        labels[members[home, place]] = home
    members[group, k], labels[i] = i, group
    _average(rows, groups, home)
    _average(rows, groups, group)


@inner
def _split(rows: Floats, groups: Groups, home: int, new: int, p: int) -> bool:
    """Make three groups of one group and a nearby one, if there are enough rows and it helps."""
    near = _near_with(groups, home, 3 * p)
    if near < 0 or new == len(groups.sizes):
        return False
    size, total = groups.sizes[home], groups.sizes[home] + groups.sizes[near]
    order = np.zeros(total, np.int64)
    for k in range(total):
        order[k] = groups.members[home, k] if k < size else groups.members[near, k - size]
    before = _scatter(rows, order[:size]) + _scatter(rows, order[size:])
    _bring_apart(rows, order, p)
    _bring_apart(rows, order[p:], p)
    first, second, third = order[:p], order[p : 2 * p], order[2 * p :]
    if _scatter(rows, first) + _scatter(rows, second) + _scatter(rows, third) >= before:
        return False
    _write(rows, groups, home, first)
    _write(rows, groups, near, second)
    _write(rows, groups, new, third)
    return True


@inner
def _near_with(groups: Groups, home: int, n_rows: int) -> int:
    """Return the nearest group that has ``n_rows`` rows together with this one; -1 if none."""
    squares = _squares(groups.means, groups.means[:, home].copy())
    squares[home] = np.inf
    for _ in range(N_NEAR):
        near = _lowest(squares)
        if squares[near] < np.inf and groups.sizes[home] + groups.sizes[near] >= n_rows:
            return near
        squares[near] = np.inf
    return -1


@inner
def _bring_apart(rows: Floats, order: Members, p: int) -> None:
    """Move the row farthest from the mean to the front, followed by the p - 1 nearest to it."""
    mean = _mean(rows, order)
    for place in range(p):
        best, least = place, np.inf
        for k in range(place, len(order)):
            square = (
                _square(rows, order[k], rows[order[0]]) if place else -_square(rows, order[k], mean)
            )
            if square < least:
                best, least = k, square
        order[place], order[best] = order[best], order[place]


@inner
def _scatter(rows: Floats, members: Members) -> float:
    """Return the sum of squares about the mean."""
    mean, total = _mean(rows, members), 0.0
    for i in members:
        total += _square(rows, i, mean)
    return total


@inner
def _mean(rows: Floats, members: Members) -> Floats:
    mean = np.zeros(rows.shape[1])
    for i in members:
        for j in range(len(mean)):
            mean[j] += rows[i, j] / len(members)
    return mean


@inner_in_any_order
def _square(rows: Floats, i: int, point: Floats) -> float:
    total = 0.0
    for j in range(len(point)):
        total += (rows[i, j] - point[j]) ** 2
    return total


def cut(rows: Floats, order: NDArray[np.int64], least: int) -> int:
    """Cut rows in two, reorder them in place, and return the size of the first part.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        The rows; afterwards, those of the first part come first.
    order : ndarray of shape (n,)
        Numbers of the rows, reordered with them.
    least : int
        The smallest number of rows in a part; at most n / 2.
    """
    places = _along(rows, _widest_axis(rows[:: -(-len(rows) // SAMPLE_ROWS)].copy()))
    is_first = places < _threshold(places, least)
    count = int(is_first.sum())
    if not least <= count <= len(rows) - least:  # too many ties: the split is too uneven
        count = len(rows) // 2
        is_first[:] = False
        is_first[places.argsort(kind="stable")[:count]] = True
    for array in (rows, order):
        array[:count], array[count:] = array[is_first], array[~is_first]
    return count


def _threshold(places: Floats, least: int) -> float:
    """Return the first place of the second part for the cut that minimises the sum of squares.

    Each part has at least an eighth of the rows, unless that would split equal rows: then these are
    separated from the larger of the remaining parts.
    """
    # a sample of about 2,048 rows is enough to choose the axis
    step = 1 if len(places) <= 8192 else len(places) // 2048
    ordered = np.sort(places[::step])
    n, middle = len(ordered), ordered[len(ordered) // 2]
    fewest = max(1, least // step, n // 8)
    sizes = np.arange(fewest, n - fewest + 1)
    sizes = sizes[ordered[sizes - 1] < ordered[sizes]]
    if not len(sizes):
        before, until = np.searchsorted(ordered, middle), np.searchsorted(ordered, middle, "right")
        return float(middle if before >= n - until else ordered[until])
    totals = np.cumsum(ordered - middle)
    before = totals[sizes - 1]
    gaps = (totals[-1] - before) / (n - sizes) - before / sizes
    return float(ordered[sizes[np.argmax(gaps * gaps * sizes * (n - sizes))]])


@native_in_any_order
def _widest_axis(rows: Floats) -> Floats:
    """Return an approximate first principal axis, (d,); the rows are centred in place."""
    n, d = rows.shape
    axis, squares, widest = np.zeros(d), np.zeros(d), 0
    for j in range(d):
        mean = 0.0
        for i in range(n):
            mean += rows[i, j] / n
        for i in range(n):
            rows[i, j] -= mean
            squares[j] += rows[i, j] ** 2
        widest = j if squares[j] > squares[widest] else widest
    axis[widest] = 1.0
    for _ in range(6):
        turned, length = np.zeros(d), 0.0
        for i in range(n):
            place = 0.0
            for j in range(d):
                place += rows[i, j] * axis[j]
            for j in range(d):
                turned[j] += place * rows[i, j]
        for j in range(d):
            length += turned[j] ** 2
        if length > 0:
            axis = turned / np.sqrt(length)
    return axis


@native_in_any_order
def _along(rows: Floats, axis: Floats) -> Floats:
    """Return the coordinates of the rows along an axis, relative to the first row."""
    places = np.empty(len(rows))
    for i in range(len(rows)):
        place = 0.0
        for j in range(len(axis)):
            place += (rows[i, j] - rows[0, j]) * axis[j]
        places[i] = place
    return places


NO_GROUP = -1


class Clusters(NamedTuple):
    """Clusters that are still to be merged; those not merged yet come first.

    Attributes
    ----------
    means : ndarray of shape (d, n)
        The means of the clusters, column by column.
    sizes : ndarray of shape (n,)
        The number, or the weight, of their rows.
    names : ndarray of shape (n,)
        The number of the first row of each cluster.
    places : ndarray of shape (n,)
        The place of each name.
    """

    means: Floats
    sizes: Floats
    names: NDArray[np.int64]
    places: NDArray[np.int64]


def ward_groups(columns: Floats, p: int) -> Labels:
    """Return the smallest branches of at least p rows, (n,); -1 for rows of smaller branches.

    Parameters
    ----------
    columns : ndarray of shape (d, n)
        The rows, column by column.
    p : int
        The smallest number of rows in a group, at least 2.
    """
    n = columns.shape[1]
    pairs, _ = ward_merges(columns, np.ones(n))
    labels = np.full(n, NO_GROUP, np.int32)
    _write_branches(pairs, p, labels, np.ones(n), np.arange(n))
    return labels


@native
def _write_branches(
    pairs: NDArray[np.int64], p: int, labels: Labels, sizes: Floats, home: NDArray[np.int64]
) -> None:
    """Write the branches of `ward_groups`, from every row as a cluster of its own."""
    n, n_groups = len(labels), 0
    for i in range(len(pairs)):
        a, b = pairs[i]
        smaller, both = min(sizes[a], sizes[b]), sizes[a] + sizes[b]
        is_group = max(sizes[a], sizes[b]) < p <= both
        if smaller < p:
            for i in range(n):
                if home[i] == a or home[i] == b:
                    labels[i] = n_groups if is_group else NO_GROUP
                    home[i] = a if both < p else -1
        n_groups += is_group
        sizes[a] = both


def ward_merges(columns: Floats, weights: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the pairs of clusters (n - 1, 2) that Ward's method merges, and their costs.

    A merged cluster takes the number of the first of its pair. With the pairs sorted by increasing
    cost, the first n - k leave k clusters. Costs are computed from the means, as a matrix of all
    would take most of the time.

    Parameters
    ----------
    columns : ndarray of shape (d, n)
        The points, column by column.
    weights : ndarray of shape (n,)
        Their weights, above 0.
    """
    n = columns.shape[1]
    clusters = Clusters(np.array(columns), np.array(weights), np.arange(n), np.arange(n))
    pairs, costs = np.zeros((n - 1, 2), np.int64), np.zeros(n - 1)
    _write_merges(clusters, pairs, costs, np.zeros(n), np.zeros(n + 1, np.int64))
    return pairs, costs


@native
def _write_merges(
    clusters: Clusters,
    pairs: NDArray[np.int64],
    costs: Floats,
    row: Floats,
    chain: NDArray[np.int64],
) -> None:
    """Write the merges of `ward_merges`; the last two arrays are overwritten.

    Arrays are made by numpy: each kind that compiled code makes takes a tenth of a second.
    """
    n, length = len(row), 0
    for i in range(n - 1):
        length = _grow(clusters, row[: n - i], chain, length)
        a, b = chain[length], chain[length + 1]
        pairs[i, 0], pairs[i, 1] = a, b
        costs[i] = row[clusters.places[a]]
        _merge(clusters, n - i - 1, clusters.places[a], clusters.places[b])


@inner
def _write_costs(clusters: Clusters, here: int, costs: Floats) -> None:
    """Write the increase of the sum of squares if a cluster is merged with each of the others.

    It is the same for both clusters of a pair, to the last bit.
    """
    means, sizes, _, _ = clusters
    costs[:] = 0
    for f in range(len(means)):
        column, mean = means[f], means[f, here]
        for k in range(len(costs)):
            costs[k] += (column[k] - mean) ** 2
    for k in range(len(costs)):
        costs[k] *= np.divide(sizes[here] * sizes[k], sizes[here] + sizes[k])
    costs[here] = np.inf


@inlined
def _grow(clusters: Clusters, costs: Floats, chain: NDArray[np.int64], length: int) -> int:
    """Extend the chain to nearest clusters until its last two are nearest to each other.

    Writes the costs of merging the last with each other cluster.
    """
    names, places = clusters.names, clusters.places
    if not length:
        chain[0], length = names[0], 1
    while True:
        here = places[chain[length - 1]]
        _write_costs(clusters, here, costs)
        near = places[chain[length - 2]] if length > 1 else int(here == 0)
        for k in range(len(costs)):
            if costs[k] < costs[near]:
                near = k
        for place in range(length - 1):
            if chain[place] == names[near]:  # also accept equal names, where only rounding decided
                return length - 2
        chain[length] = names[near]
        length += 1


@inlined
def _merge(clusters: Clusters, last: int, a: int, b: int) -> None:
    """Merge the cluster at place b into that at place a, and fill its place with the last one."""
    means, sizes, names, places = clusters
    total = sizes[a] + sizes[b]
    for f in range(len(means)):  # a scalar loop: numba takes seconds to compile slices
        means[f, a] = (sizes[a] * means[f, a] + sizes[b] * means[f, b]) / total
        means[f, b] = means[f, last]
    sizes[a] = total
    sizes[b], names[b] = sizes[last], names[last]
    places[names[b]] = b


@native
def join_nearest(rows: Floats, labels: Labels) -> None:
    """Add each row without a group to the group whose sum of squares grows least."""
    n_groups = labels.max() + 1
    means, sizes = np.zeros((n_groups, rows.shape[1])), np.zeros(n_groups)
    for is_joining in (False, True):
        for i in range(len(rows)):
            if (labels[i] < 0) == is_joining:
                if is_joining:
                    labels[i] = _cheapest(means, sizes, rows[i])
                group = labels[i]
                sizes[group] += 1
                for j in range(rows.shape[1]):
                    means[group, j] += (rows[i, j] - means[group, j]) / sizes[group]


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


SCALES, PULL = (2, 3, 4, 6, 8, 12, 16, 24, 32), 0.1
SAMPLE_ROWS = 4096
MIXER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: Fibonacci hashing


def partition(Z: ArrayLike, p: int) -> Labels:
    """Return the group of each row: groups of p to 2 p - 1 rows that lie close together.

    The groups depend on the rows only; their order decides at most which of equal rows is in which
    group, and how groups are numbered.

    Parameters
    ----------
    Z : array_like of shape (n, d)
        The rows, standardised and complete.
    p : int
        The smallest number of rows in a group, at least 2.

    Returns
    -------
    labels : ndarray of shape (n,), int32
        Groups 0 to g - 1, each of at least p rows.

    Raises
    ------
    ValueError
        If there are fewer than p rows.

    Examples
    --------
    >>> partition([[0.0], [9.0], [0.1], [9.1], [0.2]], p=2).tolist()
    [0, 1, 0, 1, 0]
    """
    rows = as_double_rows(Z) + 0.0  # adding 0.0 turns -0.0 into 0.0
    if p < 2 or len(rows) < p:
        few = f"{len(rows)} rows are too few for groups of {p}"
        raise ValueError(few if p > 1 else f"a group has at least 2 rows, not {p}")
    keys = _content_keys(rows.view(np.uint64))
    order = np.argsort(keys, kind="stable")
    alike, n_groups = _equal_rows(keys[order], p)
    labels, rest = np.empty(len(rows), np.int32), order[alike < 0]
    labels[order] = alike
    labels[rest] = n_groups + _close_rows(rows[rest], p)
    return labels


@native
def _content_keys(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of each row (n,): equal for equal rows, and unrelated to the values' order."""
    keys = np.zeros(len(bits), np.uint64)
    for i in range(len(bits)):
        key = np.uint64(0)
        for number in bits[i]:
            key = (key ^ number) * MIXER
            key ^= key >> np.uint64(29)
        keys[i] = key
    return keys


def _equal_rows(keys: NDArray[np.uint64], p: int) -> tuple[Labels, int]:
    """Form groups of p equal rows while 2 p of a kind are left; return labels and their number.

    The remaining rows, up to 2 p - 1 of a kind, have the label -1.
    """
    begins = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
    counts = np.diff(begins, append=len(keys))
    n_groups = np.maximum(counts // p - 1, 0)
    place = np.arange(len(keys)) - np.repeat(begins, counts)
    group = np.repeat(np.cumsum(n_groups) - n_groups, counts) + place // p
    is_in_group = place < np.repeat(n_groups * p, counts)
    return np.where(is_in_group, group, -1).astype(np.int32), int(n_groups.sum())


def _close_rows(rows: Floats, p: int) -> Labels:
    """Return the labels of groups of rows that lie close together, (n,)."""
    rows, order = _pulled(rows, p), np.arange(len(rows))
    block_rows, n_passes = 1024, 8
    if len(rows) > 30_000:
        block_rows, n_passes = 384, 2
    # for larger p, blocks are cut into groups directly
    blocks = _blocks(rows, order, p, block_rows if p <= 64 else 2 * p - 1)
    parts = [np.empty(0, np.int32)] * len(blocks)

    def work(block: int) -> None:
        parts[block] = _block_groups(rows[blocks[block]], p, n_passes)

    for_each_chunk(work, len(blocks), thread_count())
    n_groups = np.array([part.max() + 1 for part in parts])
    befores = np.repeat(np.cumsum(n_groups) - n_groups, [len(part) for part in parts])
    labels = np.empty(len(rows), np.int32)
    labels[order] = np.concatenate(parts) + befores
    return labels


def _pulled(rows: Floats, p: int) -> Floats:
    """Return rows centred on their mean and pulled towards cluster centres at several sizes."""
    rows = rows - rows.mean(axis=0)
    rows /= abs(rows).max() or 1.0
    sample, pulled = rows[:: -(-len(rows) // SAMPLE_ROWS)], rows.copy()
    for k in SCALES:
        if len(rows) >= 4 * p * k:  # worthwhile from four groups of p rows for each centre
            fit = kmeans(sample, k, rng=np.random.default_rng(0), n_init=1, max_iter=20)
            pulled += PULL * fit.centers[nearest(rows, fit.centers)[0]]
    return pulled


def _blocks(rows: Floats, order: NDArray[np.int64], p: int, most: int) -> list[slice]:
    """Cut rows into blocks of p to ``most`` rows; reorder them in place, block by block."""
    blocks, parts = [], [slice(0, len(rows))]
    while parts:
        blocks += [part for part in parts if part.stop - part.start <= most]
        large = [part for part in parts if part.stop - part.start > most]
        middles = [part.start for part in large]

        def work(i: int, large: list[slice] = large, middles: list[int] = middles) -> None:
            middles[i] += cut(rows[large[i]], order[large[i]], p)

        for_each_chunk(work, len(large), thread_count())
        parts = [slice(part.start, middle) for part, middle in zip(large, middles, strict=True)]
        parts += [slice(middle, part.stop) for part, middle in zip(large, middles, strict=True)]
    return sorted(blocks, key=lambda block: block.start)


def _block_groups(rows: Floats, p: int, n_passes: int) -> Labels:
    """Return the group of each row in a block, (n,)."""
    labels = np.zeros(len(rows), np.int32)
    if len(rows) >= 2 * p:
        labels = ward_groups(np.ascontiguousarray(rows.T), p)
        join_nearest(rows, labels)
        _cut_large(rows, labels, p)
        improve(rows, labels, p, n_passes)
    return labels


def _cut_large(rows: Floats, labels: Labels, p: int) -> None:
    """Cut groups of at least 2 p rows until there are none."""
    large = [
        np.flatnonzero(labels == group) for group in np.flatnonzero(np.bincount(labels) >= 2 * p)
    ]
    n_groups = labels.max() + 1
    while large:
        members = large.pop()
        size = cut(rows[members], members, p)
        labels[members[size:]] = n_groups
        n_groups += 1
        large += [part for part in (members[:size], members[size:]) if len(part) >= 2 * p]
