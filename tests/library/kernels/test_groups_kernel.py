"""The partition into groups: sizes, closeness, and that only what the rows hold decides."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.cluster.hierarchy import fcluster, to_tree, ward

from fedcluster.kernels import _groups
from fedcluster.kernels._groups import cut, improve, partition, ward_groups, ward_merges


def scatter(rows, labels):
    """The sum of squares about the means of the groups."""
    return sum(len(part) * part.var(axis=0).sum() for part in map(rows.__getitem__, same(labels)))


def same(labels):
    return [np.flatnonzero(labels == group) for group in range(labels.max() + 1)]


def contents(rows, labels):
    """The groups by what their rows hold, in no order."""
    return sorted(sorted(map(tuple, rows[members].tolist())) for members in same(labels))


def assert_are_groups(labels, n, p):
    assert labels.shape == (n,)
    assert labels.dtype == np.int32
    sizes = np.bincount(labels)
    assert sizes.min() >= p
    assert sizes.max() < 2 * p
    assert sizes.sum() == n


KINDS = {
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "equal": lambda rng, n, d: np.full((n, d), rng.normal()),
    "few values": lambda rng, n, d: rng.integers(0, 3, (n, d)).astype(float),
    "one-hot": lambda rng, n, d: np.eye(d)[rng.integers(0, d, n)],
    "rare ones": lambda rng, n, d: (rng.random((n, d)) < 0.01).astype(float),
    "constant columns": lambda rng, n, d: np.where(np.arange(d) % 2, rng.normal(size=(n, d)), 7.0),
    "one far row": lambda rng, n, d: rng.normal(size=(n, d)) + 1e9 * (np.arange(n) == 3)[:, None],
    "offset": lambda rng, n, d: 1e12 + rng.normal(size=(n, d)),
    "lognormal": lambda rng, n, d: np.exp(2 * rng.normal(size=(n, d))),
    "cauchy": lambda rng, n, d: rng.standard_cauchy((n, d)),
    "sorted": lambda rng, n, d: np.sort(rng.normal(size=(n, d)), axis=0),
    "mostly one value": lambda rng, n, d: np.hstack(
        [
            np.exp(20 * rng.normal(size=(n, 1))) * (rng.random((n, 1)) < 0.1),
            1e-25 * rng.normal(size=(n, d - 1)),
        ]
    ),
    "huge": lambda rng, n, d: 1e200 * rng.normal(size=(n, d)),
    "tiny": lambda rng, n, d: 1e-200 * rng.normal(size=(n, d)),
    "lines": lambda rng, n, d: np.outer(np.arange(n), np.ones(d)),
}


def test_two_pairs_and_a_triple_by_hand():
    rows = np.array([[0.0], [9.0], [0.1], [5.0], [9.1], [5.2], [5.1]])
    found = contents(rows, partition(rows, 2))
    assert found == [[(0.0,), (0.1,)], [(5.0,), (5.1,), (5.2,)], [(9.0,), (9.1,)]]


@pytest.mark.parametrize(
    ("n", "p", "why"),
    [
        (0, 2, "0 rows are too few for groups of 2"),
        (9, 1, "at least 2 rows, not 1"),
        (4, 5, "4 rows are too few for groups of 5"),
    ],
)
def test_groups_of_one_and_of_more_than_there_are_rows_are_refused(n, p, why):
    with pytest.raises(ValueError, match=why):
        partition(np.zeros((n, 3)), p)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "d", "p"), [(57, 3, 5), (700, 1, 3), (2600, 4, 7), (3000, 9, 80)])
def test_every_group_has_p_rows_and_less_than_twice_as_many(kind, n, d, p):
    rows = KINDS[kind](np.random.default_rng(n), n, d)
    assert_are_groups(partition(rows, p), n, p)


@given(st.integers(2, 6), st.integers(0, 60), st.integers(1, 4), st.integers(0, 2**32))
def test_small_sets(p, more, d, seed):
    rng = np.random.default_rng(seed)
    rows = rng.choice([rng.normal(size=(p + more, d)), rng.integers(0, 2, (p + more, d))])
    labels = partition(rows, p)
    assert_are_groups(labels, len(rows), p)
    assert_array_equal(labels, partition(rows, p))


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_rows_does_not_matter(kind):
    rng = np.random.default_rng(1)
    rows = KINDS[kind](rng, 1500, 3)
    shuffled = rows[rng.permutation(len(rows))]
    assert contents(rows, partition(rows, 5)) == contents(shuffled, partition(shuffled, 5))


def test_zeros_of_both_signs_are_equal():
    rows = np.zeros((40, 2))
    rows[::2] *= -1
    rows[20:] += [[0.0, 1.0]]
    assert contents(rows, partition(rows, 5)) == contents(abs(rows), partition(abs(rows), 5))


def test_the_number_of_threads_does_not_matter(monkeypatch):
    rows = np.random.default_rng(2).normal(size=(40_000, 3))
    monkeypatch.setenv("FEDCLUSTER_NUM_THREADS", "1")
    alone = partition(rows, 5)
    monkeypatch.setenv("FEDCLUSTER_NUM_THREADS", "3")
    assert_array_equal(partition(rows, 5), alone)
    assert_are_groups(alone, len(rows), 5)


def test_the_rows_are_left_alone():
    rows = np.random.default_rng(3).normal(size=(3000, 3))
    before = rows.copy()
    rows.flags.writeable = False
    partition(rows, 5)
    assert_array_equal(rows, before)


def test_equal_rows_share_groups():
    rows = np.repeat(np.arange(30.0), np.arange(10, 40))[:, None]
    assert scatter(rows, partition(rows, 5)) == 0


FIRST = ("normal", "equal", "few values", "sorted")
LATE = [pytest.param(kind, marks=pytest.mark.long) for kind in KINDS if kind not in FIRST]


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [*FIRST, *LATE])
def test_neither_time_nor_memory_are_quadratic(kind):
    rng = np.random.default_rng(4)
    seconds = []
    partition(KINDS[kind](rng, 1_000, 2), 5)  # the kernel is compiled or loaded
    for n in (10_000, 80_000):  # eight times as many: 64 times as long if it were
        rows = KINDS[kind](rng, n, 2)
        begun = time.process_time()
        partition(rows, 5)
        seconds.append(time.process_time() - begun)
    assert seconds[1] < 32 * seconds[0] + 0.5


def best_of_a_line(values, p):
    """The least sum of squares: Hansen and Mukherjee, IEEE TKDE 2003, by dynamic programming."""
    values = np.sort(values)
    least = np.full(len(values) + 1, np.inf)
    least[0] = 0
    for end in range(p, len(values) + 1):
        for start in range(max(0, end - 2 * p + 1), end - p + 1):
            part = values[start:end]
            least[end] = min(least[end], least[start] + len(part) * part.var())
    return least[-1]


@pytest.mark.parametrize("p", [2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_nearly_the_best_of_a_line(p, seed, monkeypatch):
    """But for the pull towards centres, which spares whole clusters rather than groups."""
    monkeypatch.setattr(_groups, "PULL", 0.0)
    rng = np.random.default_rng(seed)
    for values in (rng.normal(size=200), rng.standard_cauchy(200), rng.random(200) ** 3):
        reached = scatter(values[:, None], partition(values[:, None], p))
        best = best_of_a_line(values, p)
        assert best * (1 - 1e-9) <= reached <= 1.25 * best


def test_far_clusters_are_not_mixed():
    rng = np.random.default_rng(5)
    cluster = np.repeat(np.arange(20), rng.integers(5, 40, 20))
    rows = rng.normal(size=(20, 4))[cluster] * 50 + rng.normal(size=(len(cluster), 4))
    labels = partition(rows, 5)
    assert all(len(set(cluster[members])) == 1 for members in same(labels))


def branches(node, p):
    """The smallest branches of at least p rows of a tree of scipy's."""
    parts = [node.left, node.right]
    if node.count < 2 or max(part.count for part in parts) < p:
        return [sorted(node.pre_order())]
    return [found for part in parts if part.count >= p for found in branches(part, p)]


@pytest.mark.parametrize("p", [2, 5, 9])
@pytest.mark.parametrize("seed", range(3))
def test_branches_are_those_of_wards_hierarchy(p, seed):
    rows = np.random.default_rng(seed).normal(size=(150, 3))
    labels = ward_groups(rows.T.copy(), p)
    expected = branches(to_tree(ward(rows)), p)
    assert sorted(map(list, same(labels))) == sorted(expected)


@pytest.mark.parametrize("k", [2, 5, 40])
@pytest.mark.parametrize("times", [1, 3])
def test_cheapest_merges_are_wards_clusters_of_points_that_weigh_more(k, times):
    """A point of weight 3 is merged as three equal points are."""
    rng = np.random.default_rng(k)
    points, weights = rng.normal(size=(120, 3)), rng.integers(1, times + 1, 120)
    pairs, costs = ward_merges(points.T.copy(), weights.astype(float))
    labels = np.arange(120)
    for one, other in pairs[np.argsort(costs)][: 120 - k]:
        labels[labels == labels[other]] = labels[one]
    of_rows = np.repeat(np.arange(120), weights)
    expected = fcluster(ward(points[of_rows]), k, "maxclust")
    found = np.unique(labels[of_rows], return_inverse=True)[1]
    assert sorted(map(list, same(found))) == sorted(map(list, same(expected - 1)))


def test_a_cut_by_hand():
    rows = np.array([[0.0, 1.0], [10.0, 1.0], [1.0, 1.0], [11.0, 1.0]])
    order = np.arange(4)
    assert cut(rows, order, 2) == 2
    assert_array_equal(order, [0, 2, 1, 3])
    assert_array_equal(rows[:, 0], [0, 1, 10, 11])


@pytest.mark.parametrize(
    ("values", "groups", "found"),
    [
        ([0, 0.1, 9, 9.1, 9.2], [0, 0, 0, 1, 1], [[0, 0.1], [9, 9.1, 9.2]]),
        ([0, 0.1, 5, 5.1, 9, 9.1], [0, 0, 0, 1, 1, 1], [[0, 0.1], [5, 5.1], [9, 9.1]]),
        ([0, 10, 1, 11], [0, 0, 1, 1], [[0, 1], [10, 11]]),
    ],
    ids=["move", "split", "swap"],
)
def test_improvements_by_hand(values, groups, found):
    rows, labels = np.array(values, float)[:, None], np.array(groups, np.int32)
    improve(rows, labels, 2, 1)
    assert contents(rows, labels) == [[(value,) for value in group] for group in found]


def test_a_search_never_makes_it_worse():
    rng = np.random.default_rng(6)
    rows, labels = rng.normal(size=(200, 3)), np.repeat(np.arange(29), 7)[:200].astype(np.int32)
    before = scatter(rows, labels)
    improve(rows, labels, 5, 3)
    assert scatter(rows, labels) < 0.5 * before
    assert_are_groups(labels, 200, 5)


def exchanged(rows, labels, p):
    """One pass of exchanges, each the one that lowers the sum of squares most, by trying all."""
    for i in range(len(rows)):
        home, best, lowest = labels[i], labels, scatter(rows, labels) - 1e-9
        sizes = np.bincount(labels)
        tries = []
        for group in set(labels.tolist()) - {home}:
            for j in np.flatnonzero(labels == group):
                tries.append(labels.copy())
                tries[-1][[i, j]] = group, home
            if sizes[home] > p and sizes[group] < 2 * p - 1:
                tries.append(labels.copy())
                tries[-1][i] = group
        for other in tries:
            if scatter(rows, other) < lowest:
                best, lowest = other, scatter(rows, other)
        labels = best
    return labels


@pytest.mark.parametrize("seed", range(6))
def test_each_exchange_is_the_best_of_all(seed):
    """Of five groups, each is near; two groups have too few rows for three."""
    rng, p = np.random.default_rng(seed), 3 + seed % 3
    rows = rng.standard_t(2, size=(5 * p + 3, 1 + seed % 2))
    labels = np.arange(len(rows), dtype=np.int32) % 5
    expected = exchanged(rows, labels, p)
    improve(rows, labels, p, 1)
    assert_array_equal(labels, expected)
