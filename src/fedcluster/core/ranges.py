"""Ranges of a step's parameters and of the state that a site may be asked about.

A step declares the ranges as its ``allowed``, and a site answers only questions within them, see
`fedcluster.privacy`.

Also bounds on a step's answers about rows that lie within a box.

A step whose lines are sums over rows declares these as its ``line_bounds``: a mean of numbers
between two bounds lies between them too. A coordinator that knows the range of each column
therefore knows the range of a sum of given weight.
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
"""Largest magnitude of a number in a question: its square is finite, as are sums of squares."""


Sizes = Mapping[str, int]
"""Sizes that a range may depend on: ``max_clusters`` of the site, ``d`` columns, ``k`` centres."""


class Range(Protocol):
    """A set of allowed values that can describe itself in words."""

    def holds(self, value: Any, sizes: Sizes) -> bool:
        """Return whether the value is allowed."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole numbers from ``least`` to ``most``, or to ``most`` times a size, or ``always`` if more.

    Examples
    --------
    >>> str(Whole(1, 2, "max_clusters")), Whole(1, 2, "max_clusters").holds(7, {"max_clusters": 3})
    ('1 to 2 max_clusters', False)
    >>> str(Whole(1, 2, "max_clusters", always=1000))
    '1 to 1,000 or 2 max_clusters'
    """

    least: int
    most: int
    of: str = ""
    none: bool = False
    always: int = 0

    def holds(self, value: Any, sizes: Sizes) -> bool:
        """Return whether the value is a whole number in the range; True and False are not."""
        if value is None:
            return self.none
        most = max(self.most * sizes.get(self.of, 1), self.always)
        return type(value) is int and self.least <= value <= most

    def __str__(self) -> str:
        most = f"{self.most:,}" if not self.of else f"{self.most} {self.of}".removeprefix("1 ")
        most = f"{self.always:,} or {most}" if self.always else most
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
        """Return whether the value is in the range; NaN is not."""
        if value is None:
            return self.none
        return type(value) in (int, float) and self.least <= value <= self.most

    def __str__(self) -> str:
        return f"{'None, ' * self.none}{self.least:g} to {self.most:g}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of the given values; True and False do not count as numbers."""

    values: tuple[Any, ...]

    def holds(self, value: Any, sizes: Sizes) -> bool:
        """Return whether the value is one of those given."""
        booleans = isinstance(value, bool)
        return any(each == value and isinstance(each, bool) == booleans for each in self.values)

    def __str__(self) -> str:
        return ", ".join(map(repr, self.values))


@dataclass(frozen=True, slots=True)
class Texts:
    """JSON lists of distinct texts, at most ``most``."""

    most = 1000
    longest = 10_000

    def holds(self, value: Any, sizes: Sizes) -> bool:
        """Return whether the text is such a list."""
        try:
            texts = json.loads(value)
        except (TypeError, ValueError, RecursionError):
            return False
        if not isinstance(texts, list) or len(texts) > self.most:
            return False
        short = all(isinstance(text, str) and len(text) <= self.longest for text in texts)
        return short and len(set(texts)) == len(texts)

    def __str__(self) -> str:
        return f"a JSON list of at most {self.most:,} texts"


@dataclass(frozen=True, slots=True)
class Array:
    """Arrays of a given shape whose numbers lie between ``least`` and ``most``.

    Parameters
    ----------
    *shape : str
        The name of each dimension: ``k`` centres, ``d`` columns, or a name in ``Allowed.sizes``.
    least, most : float
        The bounds of each number; NaN is not allowed.
    below : str
        For indices: the size below which these whole numbers from 0 must lie.
    rising : bool
        Whether the numbers of a line must not decrease.
    """

    shape: tuple[str, ...]
    least: float = -LARGEST
    most: float = LARGEST
    below: str = ""
    rising: bool = False

    def holds(self, value: Floats, sizes: Sizes) -> bool:
        """Return whether the array has the shape and numbers in the range."""
        if value.shape != tuple(sizes.get(name) for name in self.shape):
            return False
        least, most = (0, sizes[self.below] - 1) if self.below else (self.least, self.most)
        within = (value >= least).all() and (value <= most).all()
        whole = not self.below or (value == np.floor(value)).all()
        sorted_ = not self.rising or (value[..., 1:] >= value[..., :-1]).all()
        return bool(within and whole and sorted_)

    def reordered(self, value: Floats, order: NDArray[np.intp]) -> Floats:
        """Return an array with its clusters in another order: cluster i was cluster ``order[i]``.

        A negative one is new, and has the numbers of the first.

        Examples
        --------
        >>> Array(("k", "d")).reordered(np.array([[1.0], [2.0]]), np.array([1, 0])).ravel()
        array([2., 1.])
        >>> Array(("cuts",), below="k").reordered(np.array([0.0, 0.0, 1.0]), np.array([1, 0]))
        array([1., 1., 0.])
        """
        for axis, name in enumerate(self.shape):
            value = np.take(value, np.maximum(order, 0), axis) if name == "k" else value
        if self.below != "k":
            return value
        places = np.argsort(order)[np.count_nonzero(order < 0) :]
        return places[value.astype(np.intp)].astype(np.float64)

    def __str__(self) -> str:
        shape = f"({', '.join(self.shape)})"
        return f"{shape} of {self.numbers}{', rising' * self.rising}"

    @property
    def numbers(self) -> str:
        """Describe in words what each number must be."""
        if self.below:
            return f"places below {self.below}"
        return f"{self.least:g} to {self.most:g}"


CLUSTERS = CENTERS = Whole(1, 1, "max_clusters")
"""Range of the number of clusters, which is that of centres."""
MEANS = Whole(1, 2, "max_clusters", always=1000)
"""Range of the number of means of a site, or leaves of a tree: more than clusters."""
NO_CENTERS, ONE_CENTER = Whole(0, 0), Whole(1, 1)
TOLERANCE, FUZZIFIER = Real(0, LARGEST), Real(1, 100)
EITHER = OneOf((True, False))
UNTOLD = "\0untold "
"""Prefix that replaces, at a site, those texts of a question that the site does not disclose."""
WEIGHTS = Array(("k",), least=0.0)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Declaration of what a step may be asked; anything undeclared must be at its default.

    Parameters
    ----------
    fields : mapping of str to Range
        The ranges of parameters; any other parameter must be at its default.
    centers : Whole
        The number of centres in its state.
    memory : mapping of str to Array
        The arrays of the state's memory: all of them or, if ``optional``, none.
    optional : bool
        Whether the memory may be empty.
    sizes : mapping of str to Whole
        Other lengths of these arrays.
    gaps : bool
        Whether the step may be asked about rows with missing values.

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
    most_rounds = 1_000_000

    def check_fields(self, step: Any, sizes: Sizes) -> None:
        """Check the parameters of a step, a dataclass.

        Raises
        ------
        ValueError
            If a parameter is out of its range; the message names both.
        """
        for each in fields(step):
            held = self.fields.get(each.name, OneOf((each.default,)))
            if not held.holds(getattr(step, each.name), sizes):
                raise ValueError(f"{each.name} must be {held}")

    def lines(self, step: Any) -> int:
        """Return the largest number of lines of an answer whose length is not fixed."""
        counts = [name for name, held in self.fields.items() if held in (CLUSTERS, MEANS)]
        return max((int(getattr(step, name, None) or 0) for name in counts), default=0)

    def check_state(self, state: State, sizes: Sizes) -> None:
        """Check that a state has finite numbers and arrays of the declared shapes.

        Raises
        ------
        ValueError
            If a part of the state is out of its range; the message names both.
        """
        k = len(state.centers) if state.centers.ndim == 2 else -1
        sizes = {**sizes, "k": k}
        every = Array(("k", "d"))
        if not self.centers.holds(k, sizes) or (k and not every.holds(state.centers, sizes)):
            raise ValueError(f"centers must be {self.centers} lines (d,) of {every.numbers}")
        if not WEIGHTS.holds(state.weights, sizes):
            raise ValueError(f"weights must be an array {WEIGHTS}")
        if not 0 <= state.round <= self.most_rounds:
            raise ValueError(f"round must be 0 to {self.most_rounds:,}")
        if not (isnan(state.inertia) or abs(state.inertia) <= LARGEST**2):
            raise ValueError("inertia must be finite")
        self._check_memory(state.memory, sizes)

    def check_kept(self, step: Any, memory: Mapping[str, Floats], sizes: Sizes) -> None:
        """Check a step and the memory of its final state as far as they are declared.

        Sites are never asked about a final state, so it may hold undeclared arrays too.

        Raises
        ------
        ValueError
            If a parameter or an array is out of its range; the message names both.
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


ANY_CENTERS = Whole(0, 1, "max_clusters")
UNDECLARED = Allowed({"n_clusters": CLUSTERS}, ANY_CENTERS)
"""Declaration for a user's step that has none: its parameters at their defaults, any k."""


def allowed_of(step: Any) -> Allowed:
    """Return the declaration of a step or of its class; `UNDECLARED` if it has none."""
    declared: Allowed = getattr(step, "allowed", UNDECLARED)
    return declared


EVERYTHING = (-np.inf, np.inf)
"""Range of a column for which none is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """Smallest and largest value of each column, (d,) each; infinite if unknown.

    Examples
    --------
    >>> Box(np.array([0.0]), np.array([2.0])).squares(np.array([[-1.0], [0.5]])).ravel()
    array([9.  , 2.25])
    """

    low: Floats
    high: Floats

    @classmethod
    def unbounded(cls, d: int) -> Self:
        """Return the box that contains all rows with d columns."""
        return cls(np.full(d, -np.inf), np.full(d, np.inf))

    def around(self, points: Floats) -> Box:
        """Return the box enlarged to contain points (q, d)."""
        if not len(points):
            return self
        low, high = points.min(axis=0), points.max(axis=0)
        return Box(np.minimum(self.low, low), np.maximum(self.high, high))

    def squares(self, points: Floats) -> Floats:
        """Return the largest (x - c)^2 by column of a row in the box, for points c (k, d)."""
        farthest: Floats = np.maximum(np.abs(self.low - points), np.abs(self.high - points)) ** 2
        return farthest

    def distances(self, points: Floats) -> Floats:
        """Return the largest sum of squares about points (k, d) of a row in the box, (k,).

        A group contributes its mean and its part of the scatter within groups, which is at most a
        quarter of the squared side of the box.
        """
        within = (self.high - self.low) ** 2 / 4
        largest: Floats = (self.squares(points) + within).sum(axis=1)
        return largest

    def means(self, k: int) -> LineBounds:
        """Return the bounds of k lines that are sums over disjoint sets of rows."""
        shape = (k, len(self.low))
        return LineBounds(np.broadcast_to(self.low, shape), np.broadcast_to(self.high, shape))

    def sums_and_errors(self, centers: Floats) -> LineBounds:
        """Return the bounds of sums of rows and of squared distances to the centres (k, d)."""
        sums, errors = self.means(len(centers)), self.distances(centers)[:, None]
        low = np.where(np.isfinite(errors), 0.0, -np.inf)
        return LineBounds(np.hstack([sums.low, low]), np.hstack([sums.high, errors]))


@dataclass(frozen=True, slots=True, eq=False)
class LineBounds:
    """Bounds on the sums (k, p) of an answer per unit of weight.

    Parameters
    ----------
    low, high : array-like that broadcasts to shape (k, p)
        The smallest and the largest value.
    disjoint : bool, default=True
        Whether no row counts in two lines, so that all lines together weigh no more than all rows.
    """

    low: ArrayLike
    high: ArrayLike
    disjoint: bool = True
    rounding = 1e-6  # relative amount by which rounding may exceed a bound; rows may have 32 bits

    def beyond(self, summary: Summary) -> str | None:
        """Describe which mean of an answer is out of bounds; None if none is.

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
            slack = self.rounding * np.maximum(_finite(low), _finite(high))
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
    """Return bounds with infinite ones replaced by 0."""
    size: Floats = np.where(np.isfinite(bound), np.abs(bound), 0.0)
    return size


@runtime_checkable
class Bounded(Step, Protocol):
    """A step that declares bounds on its answers; a user's step need not."""

    def line_bounds(self, state: State, box: Box) -> LineBounds:
        """Return the bounds of the answers about rows within a box.

        Parameters
        ----------
        state : State
            The state that the question is about.
        box : Box
            The ranges of the prepared rows.
        """


@runtime_checkable
class Enclosed(Protocol):
    """A transform of rows that can tell the box of the rows that it returns."""

    def enclosing(self, ranges: Mapping[str, tuple[float, float]]) -> Box:
        """Return the box of the prepared rows, from the ranges of the raw columns."""


def raw_box(names: Sequence[str], ranges: Mapping[str, tuple[float, float]]) -> Box:
    """Return the box of rows that are used without preparation."""
    ends = np.array([ranges.get(name, EVERYTHING) for name in names]).reshape(-1, 2)
    return Box(ends[:, 0], ends[:, 1])


def turned(box: Box, mean: Sequence[float], components: Floats) -> Box:
    """Return the box of rows after projection on components (q, d) about their mean (d,).

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
