"""Partition of rows into groups of at least p that lie close together (microaggregation).

J. Domingo-Ferrer and J. M. Mateo-Sanz, "Practical data-oriented microaggregation for statistical
disclosure control", IEEE TKDE 2002. Ours in four steps: rows are pulled a little towards the
centres of clusters of several sizes, so that fewer groups lie across what may be a border of
clusters later; they are cut into blocks; the smallest branches of at least p rows of Ward's
hierarchy of a block are groups; rows change places between these, and groups are split.

Nothing is drawn at random. Rows are first brought into an order that only what they hold decides,
so that neither the order in which they come nor the number of threads matters.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.core import Floats, Labels
from fedcluster.kernels._cuts import cut
from fedcluster.kernels._exchange import improve
from fedcluster.kernels._hard import nearest
from fedcluster.kernels._lloyd import kmeans
from fedcluster.kernels._rows import as_double_rows
from fedcluster.kernels._runtime import native
from fedcluster.kernels._threads import for_each_chunk, thread_count
from fedcluster.kernels._ward import join_nearest, ward_groups

SCALES, PULL = (2, 3, 4, 6, 8, 12, 16, 24, 32), 0.1
ROWS_A_CENTER = 4  # times p
SAMPLE_ROWS = 4096
BLOCK_ROWS, PASSES = 1024, 8
MANY_ROWS, MANY_BLOCK_ROWS, MANY_PASSES = 30_000, 384, 2
LARGEST_P = 64  # beyond, blocks are cut into groups directly
MIXER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio


def partition(Z: ArrayLike, p: int) -> Labels:
    """Return the group of each row: p to 2 p - 1 rows that lie close together.

    The groups are a function of the rows alone: of their order only in which of equal rows is in
    which group, and in how groups are numbered.

    Parameters
    ----------
    Z : array_like of shape (n, d)
        The rows, standardised and complete.
    p : int
        The fewest rows of a group, at least 2.

    Returns
    -------
    labels : ndarray of shape (n,), int32
        Groups 0 to g - 1, each of at least p rows.

    Raises
    ------
    ValueError
        Where there are fewer than p rows.

    Examples
    --------
    >>> partition([[0.0], [9.0], [0.1], [9.1], [0.2]], p=2).tolist()
    [0, 1, 0, 1, 0]
    """
    rows = as_double_rows(Z) + 0.0  # zeros of both signs are equal
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
    """Return a number for each row (n,), the same for equal rows, and in no order of values."""
    keys = np.zeros(len(bits), np.uint64)
    for i in range(len(bits)):
        key = np.uint64(0)
        for number in bits[i]:
            key = (key ^ number) * MIXER
            key ^= key >> np.uint64(29)
        keys[i] = key
    return keys


def _equal_rows(keys: NDArray[np.uint64], p: int) -> tuple[Labels, int]:
    """Return groups of p equal rows, as far as 2 p of a kind are left, and how many these are.

    The rows that are left, up to 2 p - 1 of a kind, have the label -1.
    """
    begins = np.flatnonzero(np.diff(keys, prepend=~keys[:1]))
    counts = np.diff(begins, append=len(keys))
    n_groups = np.maximum(counts // p - 1, 0)
    place = np.arange(len(keys)) - np.repeat(begins, counts)
    group = np.repeat(np.cumsum(n_groups) - n_groups, counts) + place // p
    is_in_group = place < np.repeat(n_groups * p, counts)
    return np.where(is_in_group, group, -1).astype(np.int32), int(n_groups.sum())


def _close_rows(rows: Floats, p: int) -> Labels:
    """Return groups of rows that lie close together, (n,)."""
    rows, order = _pulled(rows, p), np.arange(len(rows))
    block_rows, n_passes = BLOCK_ROWS, PASSES
    if len(rows) > MANY_ROWS:
        block_rows, n_passes = MANY_BLOCK_ROWS, MANY_PASSES
    blocks = _blocks(rows, order, p, block_rows if p <= LARGEST_P else 2 * p - 1)
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
    """Return rows about their mean, pulled towards the centres of clusters of several sizes."""
    rows = rows - rows.mean(axis=0)
    rows /= abs(rows).max() or 1.0
    sample, pulled = rows[:: -(-len(rows) // SAMPLE_ROWS)], rows.copy()
    for k in SCALES:
        if len(rows) >= ROWS_A_CENTER * p * k:
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
    """Return the groups of the rows of a block, (n,)."""
    labels = np.zeros(len(rows), np.int32)
    if len(rows) >= 2 * p:
        labels = ward_groups(np.ascontiguousarray(rows.T), p)
        join_nearest(rows, labels)
        _cut_large(rows, labels, p)
        improve(rows, labels, p, n_passes)
    return labels


def _cut_large(rows: Floats, labels: Labels, p: int) -> None:
    """Cut groups of 2 p rows and more until there are none."""
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
