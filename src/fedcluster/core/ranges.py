"""Ranges of what a step may be asked: its parameters, and the state that it is asked about.

A step declares them as its ``allowed``; a site answers what lies within, see `fedcluster.privacy`.

Bounds of the answers of a step about rows that lie within a box.

A step whose lines are sums over rows declares them, as its ``line_bounds``: the mean of numbers
between two bounds lies between them, too. So a coordinator that knows a range of each column knows
a range of every sum of so much weight.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import isnan
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcluster.core import Floats, State, Step, Summary

LARGEST = 1e100
"""Largest size of a number in a question: its square is finite, and so is a sum of squares."""

MOST_ROUNDS = 1_000_000
MOST_TEXTS = 1000
LONGEST_TEXT = 10_000

Sizes = Mapping[str, int]
"""Sizes that a range may depend on: ``max_clusters`` of the site, ``d`` columns, ``k`` centres."""


class Range(Protocol):
    """Set of values, which says in words what it holds."""

    def holds(self, value: Any, sizes: Sizes) -> bool:
        """Return whether a value is among them."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole numbers from ``least`` to ``most``, or to ``most`` times a size.

    Examples
    --------
    >>> str(Whole(1, 2, "max_clusters")), Whole(1, 2, "max_clusters").holds(7, {"max_clusters": 3})
    ('1 to 2 max_clusters', False)
    """

    least: int
    most: int
    of: str = ""
    none: bool = False

    def holds(self, value: Any, sizes: Sizes) -> bool:
        """Return whether a value is among them; a truth value is none."""
        if value is None:
            return self.none
        return type(value) is int and self.least <= value <= self.most * sizes.get(self.of, 1)

    def __str__(self) -> str:
        most = f"{self.most:,}" if not self.of else f"{self.most} {self.of}".removeprefix("1 ")
        single = self.least == self.most and not self.of
        words = most if single else f"{self.least:,} to {most}"
        return f"None, {words}" if self.none else words


@dataclass(frozen=True, slots=True)
class Real:
    """Numbers from ``least`` to ``most``."""

    least: float
    most: float
    none: bool = False

    def holds(self, value: Any, sizes: Sizes) -> bool:
        """Return whether a value is among them; NaN is in no interval."""
        if value is None:
            return self.none
        return type(value) in (int, float) and self.least <= value <= self.most

    def __str__(self) -> str:
        return f"{'None, ' * self.none}{self.least:g} to {self.most:g}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """The values given; a truth value is no number."""

    values: tuple[Any, ...]

    def holds(self, value: Any, sizes: Sizes) -> bool:
        """Return whether a value is among them."""
        booleans = isinstance(value, bool)
        return any(each == value and isinstance(each, bool) == booleans for each in self.values)

    def __str__(self) -> str:
        return ", ".join(map(repr, self.values))


@dataclass(frozen=True, slots=True)
class Texts:
    """JSON lists of different texts, at most ``MOST_TEXTS``."""

    def holds(self, value: Any, sizes: Sizes) -> bool:
        """Return whether a text is such a list."""
        try:
            texts = json.loads(value)
        except (TypeError, ValueError, RecursionError):
            return False
        if not isinstance(texts, list) or len(texts) > MOST_TEXTS:
            return False
        short = all(isinstance(text, str) and len(text) <= LONGEST_TEXT for text in texts)
        return short and len(set(texts)) == len(texts)

    def __str__(self) -> str:
        return f"a JSON list of at most {MOST_TEXTS:,} texts"


@dataclass(frozen=True, slots=True)
class Array:
    """Arrays of a shape, whose numbers lie between ``least`` and ``most``.

    Parameters
    ----------
    *shape : str
        The name of each length: ``k`` centres, ``d`` columns, or another in ``Allowed.sizes``.
    least, most : float
        Of each number; NaN is none.
    below : str
        Where they are places: whole numbers from 0, below this size.
    rising : bool
        Whether no number of a line is smaller than the one before.
    """

    shape: tuple[str, ...]
    least: float = -LARGEST
    most: float = LARGEST
    below: str = ""
    rising: bool = False

    def holds(self, value: Floats, sizes: Sizes) -> bool:
        """Return whether an array is one of them."""
        if value.shape != tuple(sizes.get(name) for name in self.shape):
            return False
        least, most = (0, sizes[self.below] - 1) if self.below else (self.least, self.most)
        within = (value >= least).all() and (value <= most).all()
        whole = not self.below or (value == np.floor(value)).all()
        sorted_ = not self.rising or (value[..., 1:] >= value[..., :-1]).all()
        return bool(within and whole and sorted_)

    def reordered(self, value: Floats, order: NDArray[np.intp]) -> Floats:
        """Return an array with its clusters in another order: cluster i was cluster ``order[i]``.

        Examples
        --------
        >>> Array(("k", "d")).reordered(np.array([[1.0], [2.0]]), np.array([1, 0])).ravel()
        array([2., 1.])
        >>> Array(("cuts",), below="k").reordered(np.array([0.0, 0.0, 1.0]), np.array([1, 0]))
        array([1., 1., 0.])
        """
        for axis, name in enumerate(self.shape):
            value = np.take(value, order, axis) if name == "k" else value
        if self.below != "k":
            return value
        places: Floats = np.argsort(order)[value.astype(np.intp)].astype(np.float64)
        return places

    def __str__(self) -> str:
        shape = f"({', '.join(self.shape)})"
        return f"{shape} of {self.numbers}{', rising' * self.rising}"

    @property
    def numbers(self) -> str:
        """Return in words what each number is."""
        if self.below:
            return f"places below {self.below}"
        return f"{self.least:g} to {self.most:g}"


CLUSTERS, CENTERS = (Whole(1, times, "max_clusters") for times in (1, 2))
"""Clusters; centres of a state, as breathing tries up to as many besides."""
MEANS = Whole(1, 1000)
"""Means that a site describes itself by, and leaves of a tree: many more than clusters."""
NO_CENTERS, ONE_CENTER = Whole(0, 0), Whole(1, 1)
TOLERANCE, FUZZIFIER = Real(0, LARGEST), Real(1, 100)
EITHER = OneOf((True, False))
UNTOLD = "\0untold "
"""Beginning of what a site calls texts of a question that it does not tell of; none begins so."""
WEIGHTS = Array(("k",), least=0.0)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Declaration of what a step may be asked. What is not declared is its default, or not there.

    Parameters
    ----------
    fields : mapping of str to Range
        The values of its parameters; those of others are their defaults.
    centers : Whole
        How many centres its state has.
    memory : mapping of str to Array
        The arrays of the state's memory: all of them or, if ``optional``, none.
    optional : bool
        Whether the memory may be empty.
    sizes : mapping of str to Whole
        Other lengths of these arrays.
    gaps : bool
        Whether it may be asked about rows with missing values.

    Examples
    --------
    >>> allowed = Allowed({"rate": Real(0, 1)}, centers=Whole(1, 10))
    >>> allowed.check_state(State.at([[0.0], [np.inf]]), {"d": 1})
    Traceback (most recent call last):
    ValueError: centers must be 1 to 10 lines (d,) of -1e+100 to 1e+100
    """

    fields: Mapping[str, Range] = field(default_factory=dict)
    centers: Whole = CENTERS
    memory: Mapping[str, Array] = field(default_factory=dict)
    optional: bool = False
    sizes: Mapping[str, Whole] = field(default_factory=dict)
    gaps: bool = False

    def check_fields(self, step: Any, sizes: Sizes) -> None:
        """Check the parameters of a step, a dataclass.

        Raises
        ------
        ValueError
            Naming the parameter and its range.
        """
        for each in fields(step):
            held = self.fields.get(each.name, OneOf((each.default,)))
            if not held.holds(getattr(step, each.name), sizes):
                raise ValueError(f"{each.name} must be {held}")

    def lines(self, step: Any) -> int:
        """Return the most lines of an answer of any number of lines, by the step's parameters."""
        counts = [name for name, held in self.fields.items() if held in (CLUSTERS, MEANS)]
        return max((int(getattr(step, name, None) or 0) for name in counts), default=0)

    def check_state(self, state: State, sizes: Sizes) -> None:
        """Check a state: numbers that are finite, and arrays of the shapes that are declared.

        Raises
        ------
        ValueError
            Naming the part of the state, and its range.
        """
        k = len(state.centers) if state.centers.ndim == 2 else -1
        sizes = {**sizes, "k": k}
        every = Array(("k", "d"))
        if not self.centers.holds(k, sizes) or (k and not every.holds(state.centers, sizes)):
            raise ValueError(f"centers must be {self.centers} lines (d,) of {every.numbers}")
        if not WEIGHTS.holds(state.weights, sizes):
            raise ValueError(f"weights must be an array {WEIGHTS}")
        if not 0 <= state.round <= MOST_ROUNDS:
            raise ValueError(f"round must be 0 to {MOST_ROUNDS:,}")
        if not (isnan(state.inertia) or abs(state.inertia) <= LARGEST**2):
            raise ValueError("inertia must be finite")
        self._check_memory(state.memory, sizes)

    def check_kept(self, step: Any, memory: Mapping[str, Floats], sizes: Sizes) -> None:
        """Check a step and the memory of a final state as far as they are declared.

        Sites are never asked about a final state, so it may hold more.

        Raises
        ------
        ValueError
            Naming the parameter or the array, and its range.
        """
        sizes = {"max_clusters": sizes["k"], **sizes}
        for name, held in self.fields.items():
            if not held.holds(getattr(step, name), sizes):
                raise ValueError(f"{name} must be {held}")
        declared = {name: array for name, array in memory.items() if name in self.memory}
        self._check_memory(declared, sizes)

    def _check_memory(self, memory: Mapping[str, Floats], sizes: Sizes) -> None:
        if self.optional and not memory:
            return
        if memory.keys() != self.memory.keys():
            declared = ", ".join(self.memory) or "nothing"
            raise ValueError(f"memory must hold {declared}, and that alone")
        found = dict(sizes)
        for name, array in self.memory.items():
            for length, size in zip(array.shape, memory[name].shape, strict=False):
                if length in self.sizes and not self.sizes[length].holds(size, sizes):
                    raise ValueError(f"{length} of {name} must be {self.sizes[length]}")
                found.setdefault(length, size)
            if not array.holds(memory[name], found):
                raise ValueError(f"{name} must be an array {array}")


ANY_CENTERS = Whole(0, 2, "max_clusters")
UNDECLARED = Allowed({"n_clusters": CLUSTERS}, ANY_CENTERS)
"""What a step of one's own may be asked that declares nothing: its defaults, and its k."""


def allowed_of(step: Any) -> Allowed:
    """Return what a step, or its class, declares; `UNDECLARED` where it does not."""
    declared: Allowed = getattr(step, "allowed", UNDECLARED)
    return declared


EVERYTHING = (-np.inf, np.inf)
"""Range of a column of which none is known."""

ROUNDING = 1e-6
"""Share of a bound by which rounding may pass it; rows may have 32 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """Smallest and largest value of each column, (d,) each; infinite where none is known.

    Examples
    --------
    >>> Box(np.array([0.0]), np.array([2.0])).squares(np.array([[-1.0], [0.5]])).ravel()
    array([9.  , 2.25])
    """

    low: Floats
    high: Floats

    @classmethod
    def unbounded(cls, d: int) -> Self:
        """Return the box that holds all rows of d columns."""
        return cls(np.full(d, -np.inf), np.full(d, np.inf))

    def around(self, points: Floats) -> Box:
        """Return the box that holds points (q, d), too."""
        if not len(points):
            return self
        low, high = points.min(axis=0), points.max(axis=0)
        return Box(np.minimum(self.low, low), np.maximum(self.high, high))

    def squares(self, points: Floats) -> Floats:
        """Return the largest (x - c)^2 of a row in the box, of points c (k, d), (k, d)."""
        farthest: Floats = np.maximum(np.abs(self.low - points), np.abs(self.high - points)) ** 2
        return farthest

    def distances(self, points: Floats) -> Floats:
        """Return the largest sum of squares about points (k, d) for a row, (k,).

        A group of rows counts with its mean and its part of the squares within all groups, which
        are at most a quarter of the squared side.
        """
        within = (self.high - self.low) ** 2 / 4
        largest: Floats = (self.squares(points) + within).sum(axis=1)
        return largest

    def means(self, k: int) -> LineBounds:
        """Return the bounds of k lines that are sums of disjoint sets of rows."""
        shape = (k, len(self.low))
        return LineBounds(np.broadcast_to(self.low, shape), np.broadcast_to(self.high, shape))

    def sums_and_errors(self, centers: Floats) -> LineBounds:
        """Return the bounds of sums of rows and of their squared distances to centres (k, d)."""
        sums, errors = self.means(len(centers)), self.distances(centers)[:, None]
        low = np.where(np.isfinite(errors), 0.0, -np.inf)
        return LineBounds(np.hstack([sums.low, low]), np.hstack([sums.high, errors]))


@dataclass(frozen=True, slots=True, eq=False)
class LineBounds:
    """Bounds of the sums (k, p) of an answer, for a weight of 1 each.

    Parameters
    ----------
    low, high : array-like that broadcasts to shape (k, p)
        The smallest and the largest value.
    disjoint : bool, default=True
        Whether no row is in two lines, so that all together weigh no more than all rows.
    """

    low: ArrayLike
    high: ArrayLike
    disjoint: bool = True

    def beyond(self, summary: Summary) -> str | None:
        """Return which mean of an answer is out of bounds, in words; None where none is.

        Examples
        --------
        >>> answer = Summary(np.array([[300.0]]), np.array([2.0]))
        >>> LineBounds(0.0, 120.0).beyond(answer)
        'a mean of 150 in line 1, where 0 to 120 are possible'
        """
        some = summary.weights > 0
        each = summary.sums[some] / summary.weights[some, None]
        low, high = (np.broadcast_to(b, summary.sums.shape)[some] for b in (self.low, self.high))
        with np.errstate(invalid="ignore"):
            slack = ROUNDING * np.maximum(_finite(low), _finite(high))
            out = (each < low - slack) | (each > high + slack)
        if not out.any():
            return None
        i, j = np.argwhere(out)[0]
        line = np.flatnonzero(some)[i] + 1
        return (
            f"a mean of {each[i, j]:g} in line {line}, where {low[i, j]:g} to {high[i, j]:g} "
            "are possible"
        )


def _finite(bound: Floats) -> Floats:
    """Return the sizes of bounds, 0 of those that are infinite."""
    size: Floats = np.where(np.isfinite(bound), np.abs(bound), 0.0)
    return size


@runtime_checkable
class Bounded(Step, Protocol):
    """Step that knows bounds of its answers; one of one's own need not."""

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of its answers about rows within a box.

        Parameters
        ----------
        state : State
            The state that is asked about.
        box : Box
            The values of the rows, as they are prepared.
        """


@runtime_checkable
class Enclosed(Protocol):
    """Transform of rows that knows the box of what it makes."""

    def enclosing(self, ranges: Mapping[str, tuple[float, float]]) -> Box:
        """Return the box of prepared rows, from ranges of the columns before."""


def raw_box(names: Sequence[str], ranges: Mapping[str, tuple[float, float]]) -> Box:
    """Return the box of rows that are taken as they are."""
    ends = np.array([ranges.get(name, EVERYTHING) for name in names]).reshape(-1, 2)
    return Box(ends[:, 0], ends[:, 1])


def turned(box: Box, mean: Sequence[float], components: Floats) -> Box:
    """Return the box of the rows of another one along components (q, d), about their mean (d,).

    Examples
    --------
    >>> along = turned(Box(np.zeros(2), np.ones(2)), [0.0, 0.0], np.array([[0.6, -0.8]]))
    >>> along.low, along.high
    (array([-0.8]), array([0.6]))
    """
    with np.errstate(invalid="ignore"):
        ends = [
            np.where(components == 0, 0.0, components * (side - np.asarray(mean)))
            for side in (box.low, box.high)
        ]
    return Box(np.minimum(*ends).sum(axis=1), np.maximum(*ends).sum(axis=1))
