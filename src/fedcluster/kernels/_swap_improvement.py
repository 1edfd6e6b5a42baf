"""Improvement of groups by exchanging rows between them and splitting groups."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats, Labels
from fedcluster.kernels._tiles import aligned_zeros
from fedcluster.kernels.runtime import inlined, inner, inner_in_any_order, native

N_NEAR = 5  # groups that a row, or a group, is compared with

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
        if n_changes < 0.002 * len(rows):  # more passes change hardly anything
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
