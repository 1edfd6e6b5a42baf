"""Rows of a site, and what describes them."""

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
"""Multiples of 1 / GRID are the values of rows that are asked with noise: see `on_grid`."""


@dataclass(frozen=True, slots=True)
class Column:
    """Description of a column before it is prepared.

    Parameters
    ----------
    name : str
        The name.
    kind : {"number", "text", "date", "mixed", "empty"}
        What it holds; mixed are numbers and text, empty is a column without any value.
    levels : tuple of str
        The texts that the codes 0, 1, ... in the rows stand for, where it holds text.
    """

    name: str
    kind: str = "number"
    levels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """What stands behind rows each of which is the mean of a group of rows.

    Parameters
    ----------
    counts : ndarray of shape (n,)
        How many rows each stands for.
    shares : mapping of int to sparse array of shape (n, l)
        Of each column of text, by its place: the share of each of its l levels.
    classes : tuple of str, optional
        The reference labels; None of rows without labels.
    labels : ndarray of shape (n, q), optional
        The weight of the rows of each label.
    scatter : mapping of str to float
        Of columns of numbers: the sum of w (x - m)^2 over all rows, m being the mean of the row's
        group, nearly. One number for the whole site, never one for a group; and none of products
        of two columns: where one of them is rare, these are values of its few rows.
    behind : ndarray of shape (n,), optional
        The fewest rows, or persons where rows say whose they are, with a value in any column that
        the group tells: what limits count. By default ``counts``.
    even : bool, default=True
        Whether a share of a group's weight is that of its rows, or persons.
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
        """The fewest rows, or persons, behind 0, 1, ..., n of the groups, (n + 1,)."""
        sizes = self.counts if self.behind is None else self.behind
        return np.concatenate([[0.0], np.cumsum(np.sort(sizes))])

    def part(self, share: Any) -> Any:
        """Return for how much of a group its rows of a text or label count, by their share.

        Parameters
        ----------
        share : ndarray or sparse array of shape (n, l)
            The share of each of l texts or labels in the weight of each group.

        Returns
        -------
        ndarray or sparse array of shape (n, l)
            The share where that is one of rows; else only one row, or person, is sure to be there.
        """
        if self.even:
            return share
        sizes = self.counts if self.behind is None else self.behind
        return (share > 0) / sizes[:, None]

    def take(self, rows: NDArray[Any] | slice) -> Grouped:
        """Return what stands behind some of the groups."""
        shares = {j: share[rows] for j, share in self.shares.items()}
        labels, behind = _part(self.labels, rows), _part(self.behind, rows)
        return replace(self, counts=self.counts[rows], shares=shares, labels=labels, behind=behind)


@dataclass(frozen=True, slots=True, eq=False)
class Data:
    """The rows that one site holds. They never leave it.

    Parameters
    ----------
    X : ndarray of shape (n, d), float32 or float64
        The rows; before they are prepared, NaN where a value is missing.
    sample_weight : ndarray of shape (n,), optional
        Weight of each row, at least 0; without it each row weighs 1.
    y : ndarray of shape (n,), optional
        Reference labels, for metrics that compare with them.
    columns : tuple of Column, optional
        What the d columns are, of rows that are still to be prepared.
    groups : ndarray of shape (n,), int64, optional
        Whose row each is, as numbers that mean nothing else: where one person has many rows,
        limits count persons.
    grouped : Grouped, optional
        What stands behind rows that are means of groups of rows; see `fedcluster.privacy.Groups`.
    assigned : ndarray of shape (n,), int32, optional
        The cluster of each row, where it is not that of the nearest centre.

    Attributes
    ----------
    cache : dict of str to anything
        What steps keep between rounds; it never changes an answer. Other rows have another.
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
        """Return the rows at the given places, where given booleans are true, or of a slice."""
        weight, y, groups, assigned = (
            _part(each, rows) for each in (self.sample_weight, self.y, self.groups, self.assigned)
        )
        grouped = None if self.grouped is None else self.grouped.take(rows)
        return Data(self.X[rows], weight, y, self.columns, groups, grouped, assigned)

    @property
    def n_rows(self) -> float:
        """Number of rows that stand behind these, which is their own where they are not grouped."""
        return float(len(self) if self.grouped is None else self.grouped.counts.sum())

    @property
    def within(self) -> Floats | None:
        """Scatter (d,) of the rows about the means of their groups; None where not grouped."""
        if self.grouped is None:
            return None
        names = [column.name for column in self.columns]
        names = names or [f"x{j}" for j in range(self.X.shape[1])]
        return np.array([self.grouped.scatter.get(name, 0.0) for name in names])

    def with_scatter(self, scatter: Mapping[str, float]) -> Data:
        """Return groups with another scatter within them, by column."""
        assert self.grouped is not None
        return replace(self, grouped=replace(self.grouped, scatter=scatter))

    def spread_within(self, weights: Floats) -> Floats:
        """Return each cluster's part of the squares within groups, by its weight, (k,)."""
        within, total = self.within, weights.sum()
        if within is None or not total:
            return np.zeros(len(weights))
        spread: Floats = within.sum() * (weights / total)
        return spread

    def labelled(self) -> Data:
        """Return rows with one label each: of groups, one for each label that occurs in one."""
        if self.grouped is None or self.grouped.labels is None:
            return self
        group, label = np.nonzero(self.grouped.labels)
        weight, y = self.grouped.labels[group, label], np.array(self.grouped.classes)[label]
        return Data(self.X[group], weight, y, assigned=_part(self.assigned, group))

    def label_parts(self) -> Floats:
        """Return for how much of a row each of the `labelled` rows counts; see `Grouped.part`."""
        if self.grouped is None or self.grouped.labels is None:
            return np.ones(len(self))
        labels, counts = self.grouped.labels, self.grouped.counts
        parts: Floats = self.grouped.part(labels / counts[:, None])[labels != 0]
        return parts

    def weighed(self) -> Data:
        """Return the rows without those of weight 0, which say nothing."""
        if self.sample_weight is None or (self.sample_weight > 0).all():
            return self
        return self.take(self.sample_weight > 0)

    def canonical(self) -> Data:
        """Return the rows in lexicographic order: then no draw depends on the given one."""
        weight = [] if self.sample_weight is None else [self.sample_weight]
        return self.take(lexicographic([*self.X.T, *weight]))


def _part(values: Any, rows: NDArray[Any] | slice) -> Any:
    return None if values is None else values[rows]


def on_grid(values: Rows) -> Rows:
    """Return values shortened, towards 0, to multiples of 2^-20.

    Sums of 2^33 of them that lie in [-1, 1] are exact, in any order. So one record changes a sum by
    what it adds to it and by no rounding, as an answer with noise needs; no norm becomes larger.

    Examples
    --------
    >>> on_grid(np.array([0.25, 2.0**-20 * 1.75, -(2.0**-21)])) * 2**20
    array([ 2.62144e+05,  1.00000e+00, -0.00000e+00])
    """
    shortened: Rows = np.trunc(values * GRID) / GRID
    return shortened


def lexicographic(columns: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
    """Return the order of rows by their columns, the first before all others.

    The one of ``np.lexsort``, in less time where few rows share a value: a column is only asked
    for those that the ones before it leave tied.

    Examples
    --------
    >>> lexicographic([np.array([2.0, 1.0, 2.0]), np.array([5.0, 7.0, 4.0])])
    array([1, 2, 0])
    """
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
        few = tie.astype(np.min_scalar_type(len(order)))  # 16 bits are sorted in half the time
        order[places] = order[places[np.lexsort([column[order[places]], few])]]
    return order


@runtime_checkable
class RowStream(Protocol):
    """The rows of one site where they are too many to be held at once."""

    def __len__(self) -> int:
        """Return the number of rows, those without weight too."""

    def chunks(self) -> Iterator[Data]:
        """Return the rows in parts, read anew by every call."""

    def load(self) -> Data:
        """Return all rows at once."""
