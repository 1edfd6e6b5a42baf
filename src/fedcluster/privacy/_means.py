"""Means of the groups of one site, and the survey of its rows before they are grouped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats, Grouped
from fedcluster.core.exact import ExactSums, exact_product
from fedcluster.frames.columns import Passes, columns_of, merged_kind
from fedcluster.privacy.limits import significant
from fedcluster.privacy.partition import Numbers, Partition, UnitReader, Units

BITS = 20
"""Number of binary digits to which a column's deviation is known, and its mean in deviations."""

Chunks = Callable[[], Iterable[Data]]


@dataclass(frozen=True, slots=True, eq=False)
class SiteTable:
    """Survey of a site's rows: what must be known before they are grouped.

    Parameters
    ----------
    columns : tuple of Column
        The d columns; text columns with their disclosed levels.
    mean, deviation : ndarray of shape (d,)
        Mean and standard deviation of the present numbers; 0 in columns without any.
    missing : ndarray of shape (d,)
        Whether the column has missing values.
    hiding : tuple of int
        Columns whose remaining texts have so few units that they count as missing.
    units : Units
        Rows, or persons.
    classes : tuple of str, optional
        The disclosed labels; None for rows without labels.
    log_weight : tuple of float, optional
        Mean and deviation of the logarithm of the rows' weights, if these differ.
    dtype : dtype
        The type of the rows.
    digits, weight_digits : tuple of int or None, or int or None
        The largest number of decimals in each column, and in the weights, below 0 if all are
        multiples of ten; None for numbers that are not decimal.
    steps : tuple of float
        The largest number of which all values are multiples, in each column and in the weights; 0
        for numbers that are not decimal.
    flags : ndarray of shape (d,), bool
        Whether a column has only the values 0 and 1, so that its sums are counts of rows.
    """

    columns: tuple[Column, ...]
    mean: Floats
    deviation: Floats
    missing: NDArray[np.bool_]
    hiding: tuple[int, ...]
    units: Units
    classes: tuple[str, ...] | None
    log_weight: tuple[float, float] | None
    dtype: np.dtype[Any]
    digits: tuple[int | None, ...]
    weight_digits: int | None
    steps: tuple[float, ...]
    flags: NDArray[np.bool_]
    few_levels = 20
    """Number of levels up to which a text column counts in the distances and the scatter."""
    missing_counts = 1.5
    """Contribution of a missing value to distances, in standard deviations of a column."""

    def shown(self, chunk: Data) -> Data:
        """Return rows without the texts that count as missing."""
        if not self.hiding:
            return chunk
        X = chunk.X.copy()
        for j in self.hiding:
            X[disclosed_codes(chunk, j, self.columns[j]) < 0, j] = np.nan
        return replace(chunk, X=X)

    def of_grouped(
        self, partition: Partition, chunks: Callable[[], Iterable[Data]], passes: Passes
    ) -> Self:
        """Return the survey in which names of texts and labels depend on rows in groups only.

        So do the kind of a column without values and the decimals. A row that waits for others
        to form a group with would else tell of itself, by a name that enough rows have with it.
        """
        grouped = np.append(partition.members, -1)[partition.places(self.units)] >= 0
        if grouped.all():
            return self
        here = grouped[self.units.of_rows]
        parts = (chunk.take(here[at : at + len(chunk)]) for at, chunk in placed(chunks()))
        if not grouped.any():
            columns = tuple(replace(column, levels=()) for column in self.columns)
            return replace(self, columns=columns, classes=None if self.classes is None else ())
        result = survey(filter(len, parts), partition.p, None, passes)
        both = zip(self.columns, result.columns, strict=True)
        return replace(
            self,
            columns=tuple(
                replace(c, kind=t.kind if c.kind == "number" else c.kind, levels=t.levels)
                for c, t in both
            ),
            hiding=result.hiding,
            missing=self.missing | result.missing,
            classes=result.classes,
            digits=result.digits,
            weight_digits=result.weight_digits,
        )

    def points(self, chunk: Data, scale: str, apart: Collection[int] = ()) -> Floats:
        """Return rows as points (n, e) whose distances measure similarity, scaled as in `Groups`.

        Columns in ``apart`` are left out.
        """
        counted = [j for j in range(len(self.columns)) if j not in apart]
        parts = [np.empty((len(chunk), 0)), *(self._points_of(chunk, j, scale) for j in counted)]
        if self.log_weight is not None and chunk.sample_weight is not None:
            mean, deviation = self.log_weight
            parts.append((np.log(chunk.sample_weight)[:, None] - mean) / deviation)
        return np.ascontiguousarray(np.concatenate(parts, axis=1))

    def _points_of(self, chunk: Data, j: int, scale: str) -> Floats:
        """Return the coordinates of the rows in one column, with a flag for missing values."""
        column, values = self.columns[j], chunk.X[:, j].astype(np.float64)
        unit = 1.0 if scale == "standard" else self._unit(j)
        flag = [self.missing_counts * unit * np.isnan(values)[:, None]] if self.missing[j] else []
        if column.kind == "number":
            own = self.deviation[j] or 1.0
            apart = _known(np.nan_to_num((values - self.mean[j]) / own), abs(self.mean[j] / own))
            return np.column_stack([apart * unit, *flag])
        if column.kind == "text" and len(column.levels) <= self.few_levels:
            return np.column_stack([one_hot(chunk, j, column) * unit, *flag])
        return np.empty((len(chunk), 0))

    def _unit(self, j: int) -> float:
        """Return what a deviation of a column counts, relative to the largest of all columns."""
        numbers = np.array([column.kind == "number" for column in self.columns])
        largest = self.deviation[numbers].max(initial=0.0) or 1.0
        own = (self.deviation[j] or largest) if numbers[j] else 1.0
        return float(significant(own / largest, BITS))


def _known(apart: Floats, offset: float) -> Floats:
    """Return distances (n,) from the mean in deviations, as far as any unit shows them alike.

    Groups depend on all digits of the points, and the last ones on the unit: all the more of
    values far from 0, and of those whose mean is ``offset`` deviations from 0.
    """
    # Number of binary digits to which a value is known in deviations, if that is finer than BITS.
    power = np.minimum(np.frexp(np.abs(apart) + offset)[1] - 26, -BITS)
    points: Floats = np.ldexp(np.rint(np.ldexp(apart, -power)), power)
    return points


def disclosed_codes(chunk: Data, j: int, column: Column) -> NDArray[np.intp]:
    """Return the index of each row's text among the disclosed levels, (n,); -1 for others."""
    place = {level: i for i, level in enumerate(column.levels)}
    own = [place.get(level, -1) for level in columns_of(chunk)[j].levels]
    codes = np.nan_to_num(chunk.X[:, j], nan=len(own)).astype(np.intp)
    return np.array([*own, -1], dtype=np.intp)[codes]


def one_hot(chunk: Data, j: int, column: Column) -> Floats:
    """Return indicators of the disclosed levels of each row, (n, l)."""
    is_level = disclosed_codes(chunk, j, column)[:, None] == np.arange(len(column.levels))
    return np.asarray(is_level, dtype=np.float64)


def placed(chunks: Iterable[Data]) -> Iterator[tuple[int, Data]]:
    """Yield chunks with the index of their first row."""
    start = 0
    for chunk in chunks:
        yield start, chunk
        start += len(chunk)


class _Texts:
    """Counter of the units with each of some texts, over chunks."""

    most_levels = 1000
    """Largest number of levels of a text column that are disclosed, the most frequent ones."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._persons: dict[str, set[int]] = {}

    def add(self, names: Sequence[str], codes: NDArray[np.intp], groups: Numbers | None) -> None:
        """Count the rows, or the persons, of each code."""
        for name, n in zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True):
            if n:
                self._rows[name] = self._rows.get(name, 0) + n
        if groups is not None:
            for code, person in np.unique(np.column_stack([codes, groups]), axis=0).tolist():
                self._persons.setdefault(names[code], set()).add(person)

    def disclosed(self, p: int, passes: Passes, n_units: int) -> list[str]:
        """Return the texts of at least p units that pass, the most frequent first."""
        behind = {name: self._behind([name]) for name in self._rows}
        may = passes(np.array([*behind.values()], dtype=np.float64), n_units)
        shared = [name for (name, n), m in zip(behind.items(), may, strict=True) if n >= p and m]
        return sorted(shared, key=lambda name: (-behind[name], name))[: self.most_levels]

    def others(self, disclosed: Iterable[str]) -> int:
        """Return the number of units with a text that is not disclosed."""
        return self._behind(set(self._rows).difference(disclosed))

    def _behind(self, names: Iterable[str]) -> int:
        """Return the number of units with one of these texts."""
        if self._persons:
            return len(set().union(*(self._persons[name] for name in names)))
        return sum(self._rows[name] for name in names)


class _Numbers:
    """Mean and deviation of columns (or of a single series of numbers), over chunks."""

    def __init__(self) -> None:
        self._first: Floats | None = None
        self._sums, self._squares, self._n = np.zeros((3, 1))
        self._low, self._high = np.array([[np.inf], [-np.inf]])

    def add(self, values: NDArray[Any]) -> None:
        """Add values (n, d), with NaN for missing ones."""
        values = values.astype(np.float64)
        there = ~np.isnan(values)
        if self._first is None:  # sums of differences from it keep their digits
            first = np.nan_to_num(values)[there.argmax(axis=0), np.arange(values.shape[1])]
            self._first = np.where(there.any(axis=0), first, 0.0)
        apart = np.where(there, values - self._first, 0.0)
        self._sums = self._sums + apart.sum(axis=0)
        self._squares = self._squares + (apart**2).sum(axis=0)
        self._n = self._n + there.sum(axis=0)
        self._low = np.minimum(self._low, np.where(there, values, np.inf).min(axis=0))
        self._high = np.maximum(self._high, np.where(there, values, -np.inf).max(axis=0))

    def mean_and_deviation(self) -> tuple[Floats, Floats]:
        """Return mean and deviation, (d,) each.

        They are rounded, as the order of the rows decides their last digits, and groups depend on
        all digits of the points: relative to the range, so that the unit decides nothing.
        """
        n = np.maximum(self._n, 1.0)
        apart = self._sums / n
        deviation = np.sqrt(np.maximum(self._squares / n - apart**2, 0.0))
        first = np.zeros_like(n) if self._first is None else self._first
        varies = (deviation > 0) & (self._high > self._low)
        low = np.where(self._n > 0, self._low, 0.0)
        side = np.where(varies, self._high - low, 1.0)
        deviation = side * significant(np.where(varies, deviation / side, 1.0), BITS)
        steps = np.rint(np.ldexp((first - low + apart) / deviation, BITS))
        return low + np.ldexp(steps, -BITS) * deviation, np.where(varies, deviation, 0.0)


class _Decimals:
    """Counter of the decimals of a series of numbers, and their step, over chunks."""

    most_digits = 40
    """Largest number of decimals, or of zeros at the end, of a number that counts as decimal."""
    sample = 64  # number of values that are tried first, before all values
    whole = 2.0**47
    """Bound of decimals in units of their last digit, which leaves digits to tell them from others.
    """

    def __init__(self) -> None:
        self._digits: int | None = None
        self._largest, self._step = 0.0, 0

    def add(self, values: NDArray[Any]) -> None:
        """Add values (n,), with NaN for missing ones."""
        values = values[~np.isnan(values) & (values != 0)]
        self._largest = max(self._largest, float(np.abs(values).max(initial=0.0)))
        if not len(values):
            return
        if self._digits is None:  # the last digit of a number cannot come before its first
            self._digits = -int(np.floor(np.log10(self._largest)))
        few = values[: self.sample]
        while self._fits and not (_have(few, self._digits) and _have(values, self._digits)):
            self._digits, self._step = self._digits + 1, 10 * self._step
        for some in (few, values):
            if self._fits and self._step != 1:
                numbers = np.abs(whole(some, self._digits)).astype(np.int64)
                self._step = int(np.gcd.reduce(numbers, initial=self._step))

    @property
    def _fits(self) -> bool:
        digits = self._digits or 0
        return (
            abs(digits) <= self.most_digits and float(in_units(self._largest, digits)) < self.whole
        )

    @property
    def digits(self) -> int | None:
        """Return the number of decimals; None if the numbers are not decimal."""
        return (self._digits or 0) if self._fits else None

    @property
    def step(self) -> float:
        """Return the largest number of which all are multiples; 0 if they are not decimal."""
        return float(back(self._step or 1, self.digits)) if self._fits else 0.0


def _have(values: NDArray[Any], digits: int) -> bool:
    """Return whether numbers (n,) are, but for rounding, decimals with this many digits.

    A column in another unit is often multiplied by it, which rounds.
    """
    decimals = back(whole(values, digits), digits)
    # Largest difference of a decimal from its number, in units of the last binary digit.
    slack = 2 * np.finfo(values.dtype).eps * np.abs(values)
    return bool((np.abs(decimals.astype(values.dtype) - values) <= slack).all())


def whole(values: NDArray[Any], digits: int | None) -> Floats:
    """Return decimals (n,) in units of their last digit; other numbers unchanged.

    Examples
    --------
    >>> whole(np.array([0.1, 0.2]), 1).sum() / 10, 0.1 + 0.2
    (np.float64(0.3), 0.30000000000000004)
    >>> whole(np.array([3e9, 5e9]), -9)
    array([3., 5.])
    """
    numbers: Floats = values.astype(np.float64)
    if digits is not None:
        numbers = np.rint(in_units(numbers, digits))
    return numbers


def in_units(numbers: Any, digits: int | None) -> Any:
    """Return numbers in units of a digit; unchanged if there is none.

    A power of ten that is whole is exact up to 1e22, so it multiplies or divides.
    """
    if digits is None:
        return numbers
    return numbers * 10.0**digits if digits >= 0 else numbers / 10.0**-digits


def back(numbers: Any, digits: int | None) -> Any:
    """Return numbers in units of a digit as they were."""
    return in_units(numbers, None if digits is None else -digits)


class _Survey:
    """Accumulator of the first reading of a site's rows."""

    def __init__(self, first: Data, key: bytes | None) -> None:
        self.names = [column.name for column in columns_of(first)]
        self.kinds: list[set[str]] = [set() for _ in self.names]
        self.texts = [_Texts() for _ in self.names]
        self.labels = _Texts()
        self.numbers, self.weights = _Numbers(), _Numbers()
        self.decimals = [_Decimals() for _ in self.names]
        self.flags = np.ones(len(self.names), dtype=bool)
        self.of_weights = _Decimals()
        self.missing = np.zeros(len(self.names), dtype=bool)
        self.units = UnitReader(key)

    def add(self, chunk: Data) -> None:
        """Read a chunk."""
        self.units.add(chunk)
        self.numbers.add(chunk.X)
        absent = np.isnan(chunk.X)
        self.missing |= absent.any(axis=0)
        self.flags &= (absent | (chunk.X == 0) | (chunk.X == 1)).all(axis=0)
        for j, column in enumerate(columns_of(chunk)):
            empty = bool(absent[:, j].all()) and column.kind == "number"
            self.kinds[j].add("empty" if empty else column.kind)
            self.decimals[j].add(chunk.X[:, j])
            if column.levels:
                there = ~absent[:, j]
                persons = None if chunk.groups is None else chunk.groups[there]
                self.texts[j].add(column.levels, chunk.X[there, j].astype(np.intp), persons)
        if chunk.sample_weight is not None:
            self.weights.add(np.log(chunk.sample_weight)[:, None])
            self.of_weights.add(chunk.sample_weight)
        if chunk.y is not None:
            names, codes = np.unique(chunk.y.astype(str), return_inverse=True)
            self.labels.add(names.tolist(), codes, chunk.groups)

    def table(self, p: int, first: Data, passes: Passes) -> SiteTable:
        """Return the survey of the rows that were read."""
        units = self.units.units()

        def disclosed_levels(texts: _Texts) -> list[str]:
            return texts.disclosed(p, passes, len(units))

        mean, deviation = self.numbers.mean_and_deviation()
        (log_mean,), (log_deviation,) = self.weights.mean_and_deviation()
        kinds = map(merged_kind, self.kinds)
        columns = [
            Column(name, kind, tuple(sorted(disclosed_levels(texts))) if kind == "text" else ())
            for name, kind, texts in zip(self.names, kinds, self.texts, strict=True)
        ]
        numbered = enumerate(zip(columns, self.texts, strict=True))
        hiding = tuple(j for j, (c, t) in numbered if c.levels and 0 < t.others(c.levels) < p)
        self.missing[list(hiding)] = True
        return SiteTable(
            tuple(columns),
            mean,
            deviation,
            self.missing,
            hiding,
            units,
            None if first.y is None else self._classes(p, disclosed_levels(self.labels)),
            None if first.sample_weight is None else (float(log_mean), float(log_deviation) or 1.0),
            first.X.dtype,
            tuple(each.digits for each in self.decimals),
            self.of_weights.digits,
            tuple(each.step for each in (*self.decimals, self.of_weights)),
            self.flags,
        )

    def _classes(self, p: int, disclosed: list[str]) -> tuple[str, ...]:
        """Return the disclosed labels, provided that the others have p units or do not exist."""
        if 0 < self.labels.others(disclosed) < p:
            disclosed = disclosed[:-1]
        return tuple(sorted(disclosed))


def any_passes(counts: Floats, n_units: int) -> NDArray[np.bool_]:  # noqa: ARG001
    """Let every text and label pass."""
    return np.ones(len(counts), dtype=bool)


def survey(
    chunks: Iterable[Data], p: int, key: bytes | None, passes: Passes = any_passes
) -> SiteTable:
    """Read rows once and return what must be known before they are grouped.

    Parameters
    ----------
    chunks : iterable of Data
        The rows that have a weight.
    p : int
        The smallest number of units with a disclosed text.
    key : bytes or None
        The site's key for identities; empty if none are kept, None if rows are only counted.
    passes : callable, optional
        ``passes(counts, n)`` returns which texts and labels, each of counts of the n units, may
        leave; by default all.

    Raises
    ------
    ValueError
        If there are no rows.
    """
    reading: _Survey | None = None
    for chunk in chunks:
        if reading is None:
            first, reading = chunk, _Survey(chunk, key)
        reading.add(chunk)
    if reading is None:
        raise ValueError("there is no row of positive weight")
    return reading.table(p, first, passes)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Rows of a chunk that are in a group.

    Parameters
    ----------
    rows : Data
        The rows (n, d).
    group, unit : ndarray of shape (n,)
        The index of the group, and of the unit, of each row.
    weight : ndarray of shape (n,)
        The weight of each row.
    there : ndarray of shape (n, d), or (n, 1) where no value of the site is missing
        Whether a value is present.
    """

    rows: Data
    group: NDArray[np.intp]
    unit: NDArray[np.intp]
    weight: Floats
    there: NDArray[np.bool_]


class GroupMeans:
    """Sums over the current groups of a site.

    Parameters
    ----------
    table : SiteTable
        The survey of the rows.
    partition : Partition
        The groups.
    chunks : callable
        Returns the rows anew.

    Attributes
    ----------
    disclosed : ndarray of shape (g, d), or (g, 1) where no value of the site is missing
        Which columns of each group are disclosed.
    """

    dominates = 0.8  # largest share of one unit in the weight of a disclosed sum

    def __init__(
        self, table: SiteTable, partition: Partition, chunks: Callable[[], Iterable[Data]]
    ) -> None:
        place = partition.places(table.units)
        member = np.append(partition.members, -1)[place]
        self.numbers, group = np.unique(member[member >= 0], return_inverse=True)
        self._group = np.full(len(member), -1)
        self._group[member >= 0] = group
        self._table, self._chunks = table, chunks
        self._weight_digits = table.weight_digits
        g, d = len(self.numbers), len(table.columns)
        self._counts, self._exact = np.zeros(g), [ExactSums(g) for _ in range(d)]
        shape = g, d if table.missing.any() else 1
        self._exact_weights = [ExactSums(g) for _ in range(shape[1])]
        self._there, self._largest = np.zeros((2, *shape))
        width = shape[1] if table.units.are_persons else 0
        self._of_unit = np.zeros((len(table.units), width))
        texts = [j for j, column in enumerate(table.columns) if column.levels]
        self._levels = {j: self._none(len(table.columns[j].levels)) for j in texts}
        self._labels = self._none(len(table.classes or ()))
        for part in self._parts():
            self._add(part)
        self._weights = np.column_stack([each.total for each in self._exact_weights])
        self._weights = back(self._weights, self._weight_digits)
        self._count_units()
        self.disclosed = (self._there >= partition.p) & (
            self._largest <= self.dominates * self._weights
        )
        self.partition = self._with_scatter(partition)

    def _none(self, width: int) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array((len(self.numbers), width))

    def _parts(self) -> Iterator[_Part]:
        """Yield the rows that are in a group, read anew."""
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

        Weights are in units of their last digit.
        """
        named = codes >= 0
        pairs, weight = (part.group[named], codes[named]), whole(part.weight, self._weight_digits)
        return scipy.sparse.csr_array((weight[named], pairs), shape=(len(self.numbers), len(names)))

    def _label_codes(self, y: NDArray[Any]) -> NDArray[np.intp]:
        """Return the index of each label among the disclosed ones, (n,); -1 for others."""
        place = {name: i for i, name in enumerate(self._table.classes or ())}
        names, code = np.unique(y.astype(str), return_inverse=True)
        return np.array([place.get(name, -1) for name in names.tolist()], dtype=np.intp)[code]

    def _count_units(self) -> None:
        """Count the persons in each sum after all their rows are added."""
        here = np.flatnonzero(self._group >= 0)
        for j in range(self._of_unit.shape[1]):
            weight, group = self._of_unit[here, j], self._group[here]
            there = weight > 0
            self._there[:, j] = np.bincount(group, there, len(self.numbers))
            np.maximum.at(self._largest[:, j], group, weight)

    def _with_scatter(self, partition: Partition) -> Partition:
        """Return the partition with the scatter within its groups, if enough of them are new."""
        if len(np.setdiff1d(self.numbers, partition.scatter_groups)) < Scatter.enough:
            return partition
        every = np.union1d(partition.scatter_groups, self.numbers)
        scatter = Scatter(partition.scatter_units).add(self.squares, self.means)
        return replace(
            partition,
            scatter=scatter.disclosed,
            scatter_units=scatter.units,
            scatter_groups=every,
        )

    @property
    def means(self) -> dict[str, Floats]:
        """The mean of each group for each numeric column, (g,), as it is told; else NaN."""
        columns = enumerate(self._table.columns)
        return {column.name: self._mean(j) for j, column in columns if column.kind == "number"}

    @cached_property
    def squares(self) -> dict[str, Floats]:
        """The scatter within each group for each numeric column, (g,); it stays at the site."""
        numbers = [j for j, column in enumerate(self._table.columns) if column.kind == "number"]
        squares = np.zeros((len(numbers), len(self.numbers)))
        for part in self._parts():
            for i, j in enumerate(numbers):
                disclosed = (
                    self._is_disclosed(j)[part.group] & part.there[:, j % part.there.shape[1]]
                )
                apart = np.where(disclosed, part.rows.X[:, j] - self._mean(j)[part.group], 0.0)
                squares[i] += self._by_group(part, part.weight * apart**2)
        return {self._table.columns[j].name: squares[i] for i, j in enumerate(numbers)}

    def _is_disclosed(self, j: int) -> NDArray[np.bool_]:
        disclosed: NDArray[np.bool_] = self.disclosed[:, j % self.disclosed.shape[1]]
        return disclosed

    def _weight(self, j: int) -> Floats:
        """Return the weight of a column's values in each group, 1 if it is held back."""
        return np.where(self._is_disclosed(j), self._weights[:, j % self._weights.shape[1]], 1.0)

    def _mean(self, j: int) -> Floats:
        sums = back(back(self._exact[j].total, self._table.digits[j]), self._weight_digits)
        return np.where(self._is_disclosed(j), sums / self._weight(j), np.nan)

    def _shares(self, j: int) -> scipy.sparse.csr_array:
        """Return the share of each level in each group, 0 if the column is not disclosed."""
        return scipy.sparse.csr_array(
            self._levels[j].multiply(
                (self._is_disclosed(j) / in_units(self._weight(j), self._weight_digits))[:, None]
            )
        )

    def data(self) -> Data:
        """Return the means of the groups, with facts about the rows in them."""
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
            back(self._labels.toarray(), self._weight_digits) if has_labels else None,
            self.partition.scatter,
            np.where(self.disclosed, self._there, np.inf).min(axis=1),
            even=not (self._of_unit.size or self._table.log_weight),
        )
        weight = np.where(self.disclosed, self._weights, 0.0).max(axis=1, initial=0.0)
        every = Data(X, weight, None, columns, None, grouped)
        return every.take(np.asarray(self.disclosed.any(axis=1)))


class Scatter:
    """Scatter of columns within groups, as far as it may be disclosed.

    It could reveal a few groups that vary, or the one that varies most, because a sum and a sum of
    squares determine whole numbers. So it is rounded, to steps of the squared range of the groups'
    means, which these tell: in any unit alike.

    Parameters
    ----------
    units : mapping of str to float, optional
        The units of the columns whose scatter was told before. They stay, because what is rounded
        in several ways is known better.

    Examples
    --------
    >>> few = Scatter().add({"a": np.array([1.0, 1.0, 2.0, 0.0])}, {"a": np.arange(4.0)})
    >>> few.disclosed, few.units
    ({'a': 0.0}, {})
    >>> many = Scatter().add({"a": np.full(63, 4.0)}, {"a": np.arange(63.0)})
    >>> many.add({"a": np.array([1e9])}, {"a": np.array([64.0])}).disclosed
    {'a': 256.0}
    """

    enough = 10  # number of groups that must be new before the scatter is computed anew
    largest_rank = 5  # rank of the group whose scatter in a column caps that of all others
    resolution = 2.0**-7
    """Relative resolution of the scatter: more digits would reveal rare whole numbers."""

    def __init__(self, units: Mapping[str, float] | None = None) -> None:
        self._known: dict[str, tuple[int, float, Floats]] = {}
        self._ends: dict[str, tuple[float, float]] = {}
        self._units = dict(units or {})

    def add(self, squares: Mapping[str, Floats], means: Mapping[str, Floats]) -> Self:
        """Add the scatter of some groups, and their means, by column, (g,) each."""
        for name, each in squares.items():
            low, high = self._ends.get(name, (np.inf, -np.inf))
            there = means[name][~np.isnan(means[name])]
            low, high = float(there.min(initial=low)), float(there.max(initial=high))
            self._ends[name] = low, high
            n, rest, largest = self._known.get(name, (0, 0.0, np.empty(0)))
            varied = np.sort(np.append(largest, each[each > 0]))
            first = max(len(varied) - self.largest_rank, 0)
            n += int(np.count_nonzero(each > 0))
            self._known[name] = n, rest + float(varied[:first].sum()), varied[first:]
        return self

    @property
    def disclosed(self) -> dict[str, float]:
        """Return the scatter that may be disclosed, by column."""
        units = self.units
        return {
            name: self._rounded(known, units[name]) if name in units else 0.0
            for name, known in self._known.items()
        }

    @property
    def units(self) -> dict[str, float]:
        """Return the unit of each column whose scatter is told, or was."""
        enough = {name for name, (n, _, _) in self._known.items() if n >= self.enough}
        ranges = {name: (high - low) ** 2 for name, (low, high) in self._ends.items()}
        return {name: ranges[name] or 1.0 for name in enough} | self._units

    def _rounded(self, known: tuple[int, float, Floats], unit: float) -> float:
        n, rest, largest = known
        if n < self.enough:
            return 0.0
        total = (rest + len(largest) * float(largest[0])) / unit
        step = 2.0 ** np.round(np.log2(total * self.resolution))
        return float(np.round(total / step) * step) * unit
