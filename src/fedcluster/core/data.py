"""The rows of a site, and the classes that describe them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Rows = NDArray[np.floating[Any]]

Labels = NDArray[np.int32]

GRID = 1 << 20
"""On the grid, values are multiples of 1 / GRID; see `on_grid`."""


@dataclass(frozen=True, slots=True)
class Column:
    """Description of a column before it is prepared.

    Parameters
    ----------
    name : str
        The name.
    kind : {"number", "text", "date", "mixed", "empty"}
        What the column holds; "mixed" means numbers and text, "empty" no value at all.
    levels : tuple of str
        The texts that the codes 0, 1, ... in the rows stand for, if the column holds text.
    """

    name: str
    kind: str = "number"
    levels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """The rows behind a data set in which each row is the mean of a group of rows.

    Parameters
    ----------
    counts : ndarray of shape (n,)
        The number of rows in each group.
    shares : mapping of int to sparse array of shape (n, l)
        For each column of text, by its position: the share of each of its l levels in each group.
    classes : tuple of str, optional
        The reference labels; None stands for rows without a label.
    labels : ndarray of shape (n, q), optional
        The weight of the rows with each label.
    scatter : mapping of str to float
        For each column of numbers: nearly the sum of w (x - m)^2 over all rows, m being the mean of
        the row's group. One number for the whole site, never one per group; and no products of two
        columns, which would reveal values of single rows if one of the columns is rare.
    behind : ndarray of shape (n,), optional
        The smallest number of rows (of persons, if the rows have an owner) with a value in any
        column that the group reports. This is what limits count. By default ``counts``.
    even : bool, default=True
        Whether a share of a group's weight is the same share of its rows, or persons.
    """

    counts: Floats
    shares: Mapping[int, Any] = field(default_factory=dict)
    classes: tuple[str, ...] | None = None
    labels: Floats | None = None
    scatter: Mapping[str, float] = field(default_factory=dict)
    behind: Floats | None = None
    even: bool = True

    @property
    def smallest_first(self) -> Floats:
        """Smallest number of rows, or persons, in any 0, 1, ..., n of the groups, (n + 1,)."""
        sizes = self.counts if self.behind is None else self.behind
        return np.concatenate([[0.0], np.cumsum(np.sort(sizes))])

    def part(self, share: Any) -> Any:
        """Return the part of each group's rows that counts for a text or label, from its share.

        Parameters
        ----------
        share : ndarray or sparse array of shape (n, l)
            The share of each of l texts or labels in the weight of each group.

        Returns
        -------
        ndarray or sparse array of shape (n, l)
            The share itself if it is a share of rows; otherwise the share of a single row, or
            person, as no more is certain.
        """
        if self.even:
            return share
        sizes = self.counts if self.behind is None else self.behind
        return (share > 0) / sizes[:, None]

    def take(self, rows: NDArray[Any] | slice) -> Grouped:
        """Return the groups at the given places."""
        shares = {j: share[rows] for j, share in self.shares.items()}
        labels, behind = _part(self.labels, rows), _part(self.behind, rows)
        return replace(self, counts=self.counts[rows], shares=shares, labels=labels, behind=behind)


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """The rows of one site. They never leave it.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32 or float64
        The rows; before preparation, NaN marks a missing value.
    sample_weight : ndarray of shape (n,), optional
        Weight of each row, at least 0; by default each row weighs 1.
    y : ndarray of shape (n,), optional
        Reference labels, for metrics that compare with them.
    columns : tuple of Column, optional
        The d columns of rows that are not prepared yet.
    groups : ndarray of shape (n,), int64, optional
        The owner of each row, as an arbitrary number: if one person has many rows, limits count
        persons.
    grouped : Grouped, optional
        The groups behind the rows, if these are means of groups; see `fedcluster.privacy.Groups`.
    assigned : ndarray of shape (n,), int32, optional
        The cluster of each row, if it is not that of the nearest centre.

    Attributes
    ----------
    cache : dict of str to anything
        What steps keep between rounds; it never changes an answer. Derived data has a cache of its
        own.
    """

    X: Rows
    sample_weight: Floats | None = None
    y: NDArray[Any] | None = None
    columns: tuple[Column, ...] = ()
    groups: NDArray[np.int64] | None = None
    grouped: Grouped | None = None
    assigned: Labels | None = None
    cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def take(self, rows: NDArray[Any] | slice) -> Data:
        """Return the rows at the given places, or those selected by booleans or a slice."""
        weight, y, groups, assigned = (
            _part(each, rows) for each in (self.sample_weight, self.y, self.groups, self.assigned)
        )
        grouped = None if self.grouped is None else self.grouped.take(rows)
        return Data(_part(self.X, rows), weight, y, self.columns, groups, grouped, assigned)

    @property
    def n_rows(self) -> float:
        """Number of original rows: of those behind the groups if the rows are grouped."""
        return float(len(self) if self.grouped is None else self.grouped.counts.sum())

    @property
    def within(self) -> Floats | None:
        """Scatter (d,) of the rows about the means of their groups; None if not grouped."""
        if self.grouped is None:
            return None
        names = [column.name for column in self.columns]
        names = names or [f"x{j}" for j in range(self.X.shape[1])]
        return np.array([self.grouped.scatter.get(name, 0.0) for name in names])

    def with_scatter(self, scatter: Mapping[str, float]) -> Data:
        """Return the data with another scatter within groups, by column."""
        assert self.grouped is not None
        return replace(self, grouped=replace(self.grouped, scatter=scatter))

    def spread_within(self, weights: Floats) -> Floats:
        """Return the scatter within groups, divided among clusters by their weights, (k,)."""
        within, total = self.within, weights.sum()
        if within is None or not total:
            return np.zeros(len(weights))
        spread: Floats = within.sum() * (weights / total)
        return spread

    def labelled(self) -> Data:
        """Return rows with one label each: a group is repeated for each label that occurs in it."""
        if self.grouped is None or self.grouped.labels is None:
            return self
        group, label = np.nonzero(self.grouped.labels)
        weight, y = self.grouped.labels[group, label], np.array(self.grouped.classes)[label]
        return Data(self.X[group], weight, y, assigned=_part(self.assigned, group))

    def label_parts(self) -> Floats:
        """Return the part of a row that each `labelled` row counts for; see `Grouped.part`."""
        if self.grouped is None or self.grouped.labels is None:
            return np.ones(len(self))
        labels, counts = self.grouped.labels, self.grouped.counts
        parts: Floats = self.grouped.part(labels / counts[:, None])[labels != 0]
        return parts

    def weighed(self) -> Data:
        """Return the rows without those of weight 0, which do not count."""
        if self.sample_weight is None or (self.sample_weight > 0).all():
            return self
        return self.take(self.sample_weight > 0)

    def valued(self) -> Data:
        """Return the rows that have a weight, and a value in some column."""
        there = self.weighed()
        empty = there.empty
        return there.take(~empty) if empty.any() else there

    @property
    def empty(self) -> NDArray[np.bool_]:
        """Which rows have no value in any column, (n,)."""
        empty = np.isnan(self.X[:, 0]) if self.X.shape[1] else np.zeros(len(self), dtype=bool)
        empty[empty] = np.isnan(self.X[empty]).all(axis=1)
        return empty

    def canonical(self) -> Data:
        """Return the rows in lexicographic order, so that no random draw depends on their order."""
        weight = [] if self.sample_weight is None else [self.sample_weight]
        return self.take(lexicographic([*self.X.T, *weight]))


def _part(values: Any, rows: NDArray[Any] | slice) -> Any:
    if values is None:
        return None
    if isinstance(rows, slice):
        return values[rows]
    places = np.flatnonzero(rows) if rows.dtype == bool else rows
    # np.take is ten times as fast as values[rows] for 8 columns
    return np.take(values, places, axis=0)


def on_grid(values: Rows) -> Rows:
    """Return values truncated towards 0 to multiples of 2^-20.

    Sums of up to 2^33 such values in [-1, 1] are exact in any order. One record therefore changes a
    sum by exactly what it adds, as an answer with noise requires. No norm becomes larger.

    Examples
    --------
    >>> on_grid(np.array([0.25, 2.0**-20 * 1.75, -(2.0**-21)])) * 2**20
    array([ 2.62144e+05,  1.00000e+00, -0.00000e+00])
    """
    shortened: Rows = np.trunc(values * GRID) / GRID
    return shortened


def coarse(values: Floats, largest: Floats | float) -> Floats:
    """Return values rounded to multiples of 2^-32 of the power of two above ``largest``.

    Sums are rounded differently for each order of rows. Numbers that differ only by rounding must
    count as equal, in comparisons and in ties between centres.

    Examples
    --------
    >>> coarse(np.array([0.25, 0.25 + 1e-16]), 0.5).tolist()
    [0.25, 0.25]
    """
    places = np.frexp(largest)[1] - 32  # Bits of a number that decide what comes first.
    rounded: Floats = np.ldexp(np.rint(np.ldexp(values, -places)), places)
    return rounded


def first_of_each(keys: Sequence[NDArray[np.integer]], n: int = 1) -> NDArray[np.bool_]:
    """Return a mask of the rows among the first n of those with the same keys, (n_rows,).

    Examples
    --------
    >>> first_of_each([np.array([7, 5, 7, 7, 5])], 2)
    array([ True,  True,  True, False,  True])
    >>> first_of_each([np.array([7, 7, 5, 7]), np.array([0, 0, 0, 1])])
    array([ True, False,  True,  True])
    """
    order = np.lexsort(keys)
    begins = np.append(True, np.any([np.diff(each[order]) != 0 for each in keys], axis=0))
    place = np.arange(len(order))
    first = np.zeros(len(order), dtype=bool)
    first[order] = place - np.maximum.accumulate(np.where(begins, place, 0)) < n
    return first


def lexicographic(
    columns: Sequence[NDArray[Any]], tables: NDArray[np.integer] | None = None
) -> NDArray[np.intp]:
    """Return the order that sorts rows by their columns, the first column being decisive.

    The order is that of ``np.lexsort``, found faster if few rows share a value: a column is only
    compared for rows that the columns before it leave tied. If the rows are those of several
    tables, each is sorted for itself, and they follow one another.

    Examples
    --------
    >>> lexicographic([np.array([2.0, 1.0, 2.0]), np.array([5.0, 7.0, 4.0])])
    array([1, 2, 0])
    >>> lexicographic([np.array([2.0, 1.0, 4.0, 3.0])], np.array([0, 0, 1, 1]))
    array([1, 0, 3, 2])
    """
    order = np.argsort(columns[0])
    first = columns[0][order]
    if (first[1:] > first[:-1]).all():  # strictly increasing: no ties and no NaN
        return order if tables is None else order[np.argsort(tables[order], kind="stable")]
    columns = columns if tables is None else [tables, *columns]
    # lexsort takes three times as long as one argsort
    order = np.argsort(columns[0], kind="stable")
    places, tie = np.arange(len(order)), np.zeros(len(order), dtype=np.intp)
    for before, column in pairwise(columns):
        if not len(places):
            break
        values = before[order[places]]
        same = (values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1]))
        starts = np.append(True, ~(same & (tie[1:] == tie[:-1])))
        tied = ~(starts & np.append(starts[1:], True))
        places, tie = places[tied], np.cumsum(starts)[tied]
        # a radix sort of 16-bit integers takes half the time
        few = tie.astype(np.min_scalar_type(len(order)))
        order[places] = order[places[np.lexsort([column[order[places]], few])]]
    return order


@runtime_checkable
class RowStream(Protocol):
    """The rows of one site that are too many to be held in memory at once."""

    def __len__(self) -> int:
        """Return the number of rows, including those without weight."""

    def chunks(self) -> Iterator[Data]:
        """Yield the rows in parts; each call reads them anew."""

    def load(self) -> Data:
        """Return all rows at once."""
