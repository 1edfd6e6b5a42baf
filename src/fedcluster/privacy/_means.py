"""Means of the groups of one site, as steps see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from fedcluster.core import Data, Floats, Grouped
from fedcluster.core.exact import ExactSums, exact_product
from fedcluster.privacy._survey import SiteTable, disclosed_codes, placed, whole
from fedcluster.privacy.partition import Partition

ENOUGH = 10
"""Groups that must be new before the scatter is computed anew."""
DOMINATES = 0.8
"""Share of the weight of a sum that one unit may have at most; else the sum is not disclosed."""
LARGEST = 5
"""No group counts more in the scatter of a column than the one whose scatter is fifth largest."""
DIGITS = 2.0**-7
"""Relative step of the scatter: with more digits it would tell whole numbers that are rare."""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Rows of a chunk that are in a group.

    Parameters
    ----------
    rows : Data
        The rows (n, d).
    group, unit : ndarray of shape (n,)
        The place of the group, and of the unit, of each.
    weight : ndarray of shape (n,)
        What each weighs.
    there : ndarray of shape (n, d), or (n, 1) where no value of the site is missing
        Whether a value is there.
    """

    rows: Data
    group: NDArray[np.intp]
    unit: NDArray[np.intp]
    weight: Floats
    there: NDArray[np.bool_]


class GroupMeans:
    """Sums over the live groups of a site.

    Parameters
    ----------
    table : SiteTable
        What is known of the rows.
    partition : Partition
        Their groups.
    chunks : callable
        Returns the rows anew.
    """

    def __init__(
        self, table: SiteTable, partition: Partition, chunks: Callable[[], Iterable[Data]]
    ) -> None:
        place = partition.places(table.units)
        member = np.append(partition.members, -1)[place]
        self._fresh = np.append(partition.fresh, False)[place]
        self.numbers, group = np.unique(member[member >= 0], return_inverse=True)
        self._group = np.full(len(member), -1)
        self._group[member >= 0] = group
        self._table, self._chunks = table, chunks
        self._weight_digits = table.weight_digits
        self._unit = 10.0 ** max(table.weight_digits, 0)
        g, d = len(self.numbers), len(table.columns)
        self._counts, self._exact = np.zeros(g), [ExactSums(g) for _ in range(d)]
        shape = g, d if table.missing.any() else 1
        self._exact_weights = [ExactSums(g) for _ in range(shape[1])]
        self._there, self._behind, self._largest = np.zeros((3, *shape))
        width = shape[1] if table.units.are_persons else 0
        self._of_unit = np.zeros((len(table.units), width))
        texts = [j for j, column in enumerate(table.columns) if column.levels]
        self._levels = {j: self._none(len(table.columns[j].levels)) for j in texts}
        self._labels = self._none(len(table.classes or ()))
        for part in self._parts():
            self._add(part)
        self._weights = np.column_stack([each.total for each in self._exact_weights])
        self._weights /= self._unit
        self._count_units()
        self._disclosed = (self._behind >= partition.p) & (
            self._largest <= DOMINATES * self._weights
        )
        self.partition = self._with_scatter(partition)

    def _none(self, width: int) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array((len(self.numbers), width))

    def _parts(self) -> Iterator[_Part]:
        """Read the rows that are in a group."""
        for start, chunk in placed(self._chunks()):
            unit = self._table.units.of_rows[start : start + len(chunk)]
            grouped = self._group[unit] >= 0
            rows, unit = self._table.shown(chunk.take(grouped)), unit[grouped]
            weight = np.ones(len(rows)) if rows.sample_weight is None else rows.sample_weight
            there = np.ones((len(rows), 1), dtype=bool)
            if self._table.missing.any():
                there = ~np.isnan(rows.X)
            yield _Part(rows, self._group[unit], unit, weight, there)

    def _add(self, part: _Part) -> None:
        """Add the rows of a chunk."""
        self._counts += self._by_group(part, np.ones(len(part.rows)))
        for j in range(part.there.shape[1]):
            weight = part.weight * part.there[:, j]
            in_last_digits = whole(weight, self._weight_digits)
            self._exact_weights[j].add(in_last_digits, part.group)
            if self._of_unit.size:
                self._of_unit[:, j] += np.bincount(part.unit, weight, len(self._of_unit))
            else:
                there = part.there[:, j]
                self._there[:, j] += self._by_group(part, there.astype(np.float64))
                new = there & self._fresh[part.unit]
                self._behind[:, j] += self._by_group(part, new.astype(np.float64))
                np.maximum.at(self._largest[:, j], part.group, weight)
        for j, column in enumerate(self._table.columns):
            if column.kind == "number":
                values = whole(np.nan_to_num(part.rows.X[:, j]), self._table.digits[j])
                weight = whole(part.weight, self._weight_digits)
                for product in exact_product(weight, values):
                    self._exact[j].add(product, part.group)
            elif column.levels:
                self._levels[j] += self._crossed(
                    part, disclosed_codes(part.rows, j, column), column.levels
                )
        if part.rows.y is not None and self._table.classes is not None:
            codes = self._label_codes(part.rows.y)
            self._labels += self._crossed(part, codes, self._table.classes)

    def _by_group(self, part: _Part, values: Floats) -> Floats:
        sums: Floats = np.bincount(part.group, values, len(self.numbers)).astype(np.float64)
        return sums

    def _crossed(
        self, part: _Part, codes: NDArray[np.intp], names: Sequence[str]
    ) -> scipy.sparse.csr_array:
        """Return the weight of each name in each group, (g, l), without codes below 0.

        In units of the last digit of a weight.
        """
        named = codes >= 0
        pairs, weight = (part.group[named], codes[named]), whole(part.weight, self._weight_digits)
        return scipy.sparse.csr_array((weight[named], pairs), shape=(len(self.numbers), len(names)))

    def _label_codes(self, y: NDArray[Any]) -> NDArray[np.intp]:
        """Return the place of each label among those that are disclosed, (n,); -1 for others."""
        place = {name: i for i, name in enumerate(self._table.classes or ())}
        names, code = np.unique(y.astype(str), return_inverse=True)
        return np.array([place.get(name, -1) for name in names.tolist()], dtype=np.intp)[code]

    def _count_units(self) -> None:
        """Count persons behind each sum, when all their rows are added."""
        here = np.flatnonzero(self._group >= 0)
        for j in range(self._of_unit.shape[1]):
            weight, group = self._of_unit[here, j], self._group[here]
            there = weight > 0
            self._there[:, j] = np.bincount(group, there, len(self.numbers))
            self._behind[:, j] = np.bincount(group, there & self._fresh[here], len(self.numbers))
            np.maximum.at(self._largest[:, j], group, weight)

    def _with_scatter(self, partition: Partition) -> Partition:
        """Return the partition with the scatter within its groups, if enough of them are new."""
        if len(np.setdiff1d(self.numbers, partition.scatter_groups)) < ENOUGH:
            return partition
        numbers = [j for j, column in enumerate(self._table.columns) if column.kind == "number"]
        squares = np.zeros((len(numbers), len(self.numbers)))
        for part in self._parts():
            for i, j in enumerate(numbers):
                disclosed = (
                    self._is_disclosed(j)[part.group] & part.there[:, j % part.there.shape[1]]
                )
                apart = np.where(disclosed, part.rows.X[:, j] - self._mean(j)[part.group], 0.0)
                squares[i] += self._by_group(part, part.weight * apart**2)
        scatter = {
            self._table.columns[j].name: _disclosed_scatter(squares[i])
            for i, j in enumerate(numbers)
        }
        every = np.union1d(partition.scatter_groups, self.numbers)
        return replace(partition, scatter=scatter, scatter_groups=every)

    def _is_disclosed(self, j: int) -> NDArray[np.bool_]:
        disclosed: NDArray[np.bool_] = self._disclosed[:, j % self._disclosed.shape[1]]
        return disclosed

    def _weight(self, j: int) -> Floats:
        """Return the weight of the values of a column in each group, 1 where it is held back."""
        return np.where(self._is_disclosed(j), self._weights[:, j % self._weights.shape[1]], 1.0)

    def _mean(self, j: int) -> Floats:
        sums = self._exact[j].total / 10.0 ** max(self._table.digits[j], 0) / self._unit
        return np.where(self._is_disclosed(j), sums / self._weight(j), np.nan)

    def _shares(self, j: int) -> scipy.sparse.csr_array:
        """Return the share of each level in each group, 0 where the column is not disclosed."""
        return scipy.sparse.csr_array(
            self._levels[j].multiply(
                (self._is_disclosed(j) / (self._weight(j) * self._unit))[:, None]
            )
        )

    def data(self) -> Data:
        """Return the means of the groups, with what stands behind them."""
        columns = self._table.columns
        X = np.full((len(self.numbers), len(columns)), np.nan, self._table.dtype)
        for j, column in enumerate(columns):
            if column.kind == "number":
                X[:, j] = self._mean(j)
            elif column.levels:
                X[:, j] = np.where(self._is_disclosed(j), 0.0, np.nan)
        has_labels = self._table.classes is not None
        grouped = Grouped(
            self._counts,
            {j: self._shares(j) for j in self._levels},
            self._table.classes,
            self._labels.toarray() / self._unit if has_labels else None,
            self.partition.scatter,
            np.where(self._disclosed, self._there, np.inf).min(axis=1),
            even=not (self._of_unit.size or self._table.log_weight),
        )
        weight = np.where(self._disclosed, self._weights, 0.0).max(axis=1, initial=0.0)
        every = Data(X, weight, None, columns, None, grouped)
        return every.take(np.asarray(self._disclosed.any(axis=1)))


def _disclosed_scatter(squares: Floats) -> float:
    """Return the scatter of a column that may be disclosed, from that of each group, (g,).

    It would disclose few groups that vary, or one that varies most: a sum and a sum of squares
    are the values, where these are whole numbers.

    Examples
    --------
    >>> _disclosed_scatter(np.array([1.0, 1.0, 2.0, 0.0]))
    0.0
    >>> _disclosed_scatter(np.append(np.full(63, 4.0), 1e9))
    256.0
    """
    varied = np.sort(squares[squares > 0])
    if len(varied) < ENOUGH:
        return 0.0
    total = np.minimum(varied, varied[-LARGEST]).sum()
    step = 2.0 ** np.round(np.log2(total * DIGITS))
    return float(np.round(total / step) * step)
