"""The vocabulary: every message of federated clustering is a set of weighted sums.

Values are frozen dataclasses, protocols are structural. This module imports nothing of ours but the
addition of sums.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import KW_ONLY, dataclass, field, fields, is_dataclass, replace
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from types import NoneType
from typing import Any, Protocol, Self, TypedDict, runtime_checkable

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from fedcluster._exact import exact_sum

Floats = NDArray[np.float64]
Rows = NDArray[np.floating[Any]]
Labels = NDArray[np.int32]

GRID = 1 << 20
"""Multiples of 1 / GRID are the values of rows that are asked with noise: see `on_grid`."""

MOST_FOR_A_ROW = 1e150
"""Sum for a row beyond which squares overflow, so that other sites could not answer."""

ALL_SITES = "all sites"
"""Name of the sum of all sites among answers, where the sums are secure."""

ADDED_AT_ONCE = 1024
"""Summaries that are added at once, of many."""

SCALARS = (bool, int, float, str, NoneType)
"""Types that a parameter of a step or of a limit may have."""

__all__ = [
    "Algorithm",
    "Answers",
    "Assigns",
    "Column",
    "Data",
    "Engine",
    "Filter",
    "Iteration",
    "Metric",
    "Result",
    "RowStream",
    "Sensitive",
    "Sensitivity",
    "SiteInfo",
    "State",
    "Step",
    "Summary",
    "Task",
]


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
        return replace(
            self, counts=self.counts[rows], shares=shares, labels=labels, behind=behind
        )


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


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """The only thing that a site ever sends: weighted sums and their weights.

    A line of weight 0 says nothing. Summaries of the same shape add up.

    Parameters
    ----------
    sums : ndarray of shape (k, p), float64
        Weighted sums, one line for each cluster (or for whatever the step counts).
    weights : ndarray of shape (k,), float64
        The weight behind each line.
    support : ndarray of shape (k,), float64, optional
        How many rows, or persons, stand behind each line, where that is not the weight itself
        (rows may have weights of their own); a step counts the rows that it sees, which may be
        groups. The site's filters read it; it never leaves the site.
    rest : ndarray of shape (c, k, p + 1), float64, optional
        What rounding took from the sums, and in the last column from the weights, where the summary
        is a total: numbers whose exact sum with these is the exact total.

    Examples
    --------
    Addition is exact: in any order, in one step or through sums of sums, the bits are the same.

    >>> a = Summary(np.array([[2.0, 4.0]]), np.array([2.0]))
    >>> b = Summary(np.array([[1.0, 1.0]]), np.array([1.0]))
    >>> (a + b).sums / (a + b).weights[:, None]
    array([[1.        , 1.66666667]])
    """

    sums: Floats
    weights: Floats
    support: Floats | None = None
    rest: Floats | None = None

    def __post_init__(self) -> None:
        if self.sums.ndim != 2 or self.weights.shape != self.sums.shape[:1]:
            raise ValueError(
                f"a summary has sums (k, p) and weights (k,), "
                f"not {self.sums.shape} and {self.weights.shape}"
            )
        shape = (*self.sums.shape[:1], self.sums.shape[1] + 1)
        if self.rest is not None and (self.rest.ndim != 3 or self.rest.shape[1:] != shape):
            raise ValueError(f"what rounding took of sums has shape {self.rest.shape}")

    def __add__(self, other: Summary) -> Summary:
        return Summary.total([self, other])

    @staticmethod
    def total(answers: Iterable[Summary]) -> Summary:
        """Return the sum of summaries of one shape, correctly rounded, and what that leaves out.

        Parameters
        ----------
        answers : iterable of Summary
            At least one; one alone is returned as it is.

        Examples
        --------
        >>> parts = [Summary(np.array([[x]]), np.ones(1)) for x in (1e16, 1.0, -1e16)]
        >>> Summary.total(parts).sums, (parts[0] + parts[1]).sums + parts[2].sums
        (array([[1.]]), array([[0.]]))
        """
        left = iter(answers)
        total = next(left)
        while some := list(islice(left, ADDED_AT_ONCE)):
            total = _added([total, *some])
        return total

    @property
    def planes(self) -> Floats:
        """Sums and, in the last column, weights, then what rounding took: (c, k, p + 1)."""
        first = np.column_stack([self.sums, self.weights])[None]
        return first if self.rest is None else np.concatenate([first, self.rest])

    @staticmethod
    def from_planes(planes: Floats, support: Floats | None = None) -> Summary:
        """Return the summary of `planes`, a canonical expansion."""
        sums, weights = (
            np.ascontiguousarray(part) for part in (planes[0, :, :-1], planes[0, :, -1])
        )
        return Summary(sums, weights, support, planes[1:] if len(planes) > 1 else None)

    @property
    def rows(self) -> Floats:
        """Number of rows that stand behind each line, (k,)."""
        return self.weights if self.support is None else self.support

    @property
    def n_values(self) -> int:
        """Number of values that say something: those of the lines with a weight."""
        n_planes = 1 if self.rest is None else 1 + len(self.rest)
        return int(np.count_nonzero(self.weights) * (self.sums.shape[1] + 1)) * n_planes

    @property
    def is_finite(self) -> bool:
        """True if no number is NaN or infinite."""
        return bool(np.isfinite(self.sums).all() and np.isfinite(self.weights).all())

    @property
    def is_too_large(self) -> bool:
        """True if numbers are not finite, or squares of means would not be.

        Examples
        --------
        >>> sums = np.array([[2e150]])
        >>> [Summary(sums, np.array([rows])).is_too_large for rows in (1.0, 10.0)]
        [True, False]
        """
        if not self.is_finite:
            return True
        most = MOST_FOR_A_ROW * np.maximum(self.weights, 1.0)
        return bool((np.abs(self.sums) > most[:, None]).any())

    def keep(self, lines: NDArray[np.bool_]) -> Summary:
        """Return the summary with the lines that are not kept, (k,) booleans, set to zero."""
        support = None if self.support is None else np.where(lines, self.support, 0.0)
        rest = None if self.rest is None else np.where(lines[:, None], self.rest, 0.0)
        sums = np.where(lines[:, None], self.sums, 0.0)
        return Summary(sums, np.where(lines, self.weights, 0.0), support, rest)

    def leaving(self) -> Summary:
        """Return what leaves the site: everything but the support, and what rounding took."""
        if self.support is None and self.rest is None:
            return self
        return Summary(self.sums, self.weights)


def _added(answers: Sequence[Summary]) -> Summary:
    """Return the sum of some summaries."""
    support = None
    if any(answer.support is not None for answer in answers):
        support = np.sum([answer.rows for answer in answers], axis=0)
    k, p = answers[0].sums.shape
    terms = np.empty((len(answers), k, p + 1))
    for term, answer in zip(terms, answers, strict=True):
        term[:, :-1], term[:, -1] = answer.sums, answer.weights
    rests = [plane for answer in answers if answer.rest is not None for plane in answer.rest]
    return Summary.from_planes(exact_sum([*terms, *rests]), support)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """State of the server, which it broadcasts; empty before the first round.

    Parameters
    ----------
    centers : ndarray of shape (k, d)
        Cluster centres.
    weights : ndarray of shape (k,)
        The weight of the rows that stood behind each centre.
    round : int, default=0
        Rounds done so far.
    inertia : float
        Sum of squared distances to the centres *that this round was asked about*, that is the
        previous ones; nan where the algorithm does not learn it.
    converged : bool, default=False
        Whether the algorithm says that further rounds change nothing.
    memory : mapping of str to ndarray
        What an algorithm carries from round to round besides (a momentum, a tree).
    """

    centers: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    weights: Floats = field(default_factory=lambda: np.zeros(0))
    _: KW_ONLY
    round: int = 0
    inertia: float = float("nan")
    converged: bool = False
    memory: Mapping[str, Floats] = field(default_factory=dict)

    @classmethod
    def at(cls, centers: ArrayLike) -> Self:
        """Return a start at the given centres, (k, d)."""
        start = np.array(centers, dtype=np.float64)
        return cls(start, np.zeros(len(start)))


Describe = Callable[[Collection[str]], Sequence[Column]]
"""Describes the columns of a site, those that are named as text."""


class RowTransform(Protocol):
    """Transform that a site applies to its rows, each for itself, before a step sees them.

    Equal ones do the same: a site may keep what one has made of its rows.
    """

    @property
    def missing(self) -> str:
        """What becomes of missing values; prepared rows may have some where they are kept.

        "keep" and "ignore" do; "ignore" has values to fill them in for steps that take none.
        """

    @property
    def box(self) -> bool:
        """True if every prepared row lies in the box [-1, 1]^d, whatever the row was."""

    @property
    def n_columns_out(self) -> int:
        """Number of columns of the prepared rows."""

    @property
    def n_columns_assigned(self) -> int:
        """Number of columns of the rows as they are assigned to clusters, where they are."""

    @property
    def assigned(self) -> Any:
        """Task of the algorithm and the state that assign prepared rows; None where none does."""

    def apply(self, data: Data) -> Data:
        """Return the prepared rows."""

    def completing(self) -> Self:
        """Return the transform that fills in missing values which this one ignores."""

    def check(self, columns: Sequence[str]) -> None:
        """Raise ValueError, with the rule, where no site with these columns may be asked so."""

    def told_only(self, describe: Describe) -> Self:
        """Return the transform bound to what a site tells of its columns; it may refuse, too."""

    def plain(self) -> Mapping[str, Any]:
        """Return the transform as JSON can hold it, to travel to the sites."""


class Step(Protocol):
    """One question to the sites: a frozen dataclass of scalars, its hyper-parameters.

    It declares the laws of its answers and their shape; nothing is guessed.
    """

    @property
    def client_additive(self) -> bool:
        """True if the answers of two parts of the rows add up to the answer of both."""

    @property
    def server_additive(self) -> bool:
        """True if the sum of the sites' answers serves as well as the answers themselves.

        Of an algorithm: server([a, b]) = server([a + b]). Then a secure sum or a tree of sums can
        stand between the sites and the server.
        """

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape (k, p) of an answer.

        Parameters
        ----------
        state : State
            The state that is asked about.
        n_columns : int
            The columns of the rows, as they are prepared.

        Returns
        -------
        tuple of (int or None, int)
            The number of lines, None where any is right, and the number of sums in a line.
        """

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Compute the answer: sums over the rows of one site."""


PlannedStep = Step | type[Step]
"""Step that will be asked, or its class where its parameters are not known yet."""


class Algorithm(Step, Protocol):
    """A step whose answers make the next state."""

    @property
    def needs_centers(self) -> bool:
        """True if a run must start from centres."""

    @property
    def min_cluster_size(self) -> int:
        """Smallest cluster, in rows, that a site sends unless it decides otherwise."""

    def objective(self) -> Metric:
        """Return the metric that the algorithm makes small: of several runs, the least wins."""

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Compute the next state from the answers, in the order of the sites' names."""


@runtime_checkable
class Assigns(Protocol):
    """An algorithm that says itself which clusters rows belong to.

    Rows of one that does not belong to the cluster of the nearest centre.
    """

    def assign(self, state: State, X: Rows) -> Labels | Floats:
        """Return the cluster of each row, or its membership in each; rows are independent.

        Parameters
        ----------
        state : State
            The final state, with its memory.
        X : ndarray of shape (n, d)
            Rows, as they are prepared; without missing values unless ``allowed.gaps``.

        Returns
        -------
        ndarray of shape (n,), int, or (n, k), float
            Labels from 0, -1 of a row of no cluster; or memberships of at least 0, whose row sums
            to 1. What it lacks to 1 is of no cluster.
        """


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Largest L2 change of an answer by one record more or less, whose row lies in [-1, 1]^d.

    Parameters
    ----------
    sums : float
        Largest change of the sums, all together as one vector; 0 where no sum depends on rows.
    weights : float
        Largest change of the weights, all together as one vector.
    share : float, default=0.5
        Part of an answer's privacy cost that the weights take, above 0 and below 1; the sums take
        the rest. Where one of the two cannot change, the other takes all.
    """

    sums: float
    weights: float
    share: float = 0.5


@runtime_checkable
class Sensitive(Protocol):
    """A step that can be asked with noise, as it says how much one record changes its answer."""

    def sensitivity(self, state: State, n_columns: int) -> Sensitivity:
        """Return how much one record more or less changes the answer; it depends on no row.

        Parameters
        ----------
        state : State
            The state that is asked about.
        n_columns : int
            The columns d of the rows, each of which lies in [-1, 1]^d.
        """


@dataclass(frozen=True, slots=True, eq=False)
class FitParameters:
    """The parameters of a fit that an algorithm with a name is built from.

    Parameters
    ----------
    n_clusters : int
        The number of clusters k.
    init : str, ndarray of shape (k, d) or callable
        The start: a name, centres, or what draws seeds at a site.
    n_init : int, optional
        The number of starts, by default the algorithm's own.
    tol : float, default=1e-4
        When centres count as settled.
    m : float, optional
        The fuzzifier, of fuzzy clusters.
    """

    n_clusters: int
    init: str | Floats | Callable[..., Any] = "auto"
    n_init: int | None = None
    tol: float = 1e-4
    m: float | None = None


class Metric(Step, Protocol):
    """A step whose total answer is a score."""

    @property
    def maximise(self) -> bool:
        """True if a higher score is a better one."""

    def score(self, state: State, total: Summary) -> float:
        """Compute the score from the sum of all answers."""


def check_step(step: object, protocol: type = Step) -> None:
    """Check that an object, or a class, has all that a step declares.

    Parameters
    ----------
    step : object
        A step from outside the package.
    protocol : type, default=Step
        What it must be: `Step`, `Algorithm` or `Metric`.

    Raises
    ------
    TypeError
        Naming all that is lacking.

    Examples
    --------
    >>> check_step(Summary(np.zeros((1, 1)), np.ones(1)))
    Traceback (most recent call last):
    TypeError: Summary lacks client_additive, server_additive, answer_shape, client_step; see
    "Add an algorithm" in CONTRIBUTING.md
    """
    declared = [name for name in (*vars(Step), *vars(protocol)) if not name.startswith("_")]
    if lacking := [name for name in dict.fromkeys(declared) if not hasattr(step, name)]:
        name = step.__name__ if isinstance(step, type) else type(step).__name__
        raise TypeError(
            f'{name} lacks {", ".join(lacking)}; see "Add an algorithm" in CONTRIBUTING.md'
        )


class Filter(Protocol):
    """Rule of a site on what may leave it; no task can switch it off."""

    def __call__(self, summary: Summary, n_rows: int) -> Summary:
        """Return what may leave of a summary over a site's ``n_rows`` rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Question to the sites: a step, the state that it is asked about, a seed.

    Parameters
    ----------
    step : Step
        What is asked.
    state : State
        What it is asked about.
    seed : int, default=0
        Makes the random choices at the sites.
    preprocessor : RowTransform, optional
        What each site does to its rows first.
    everyone : bool, default=False
        Whether all sites are asked, also where only a sample of them is asked in a round.
    resampled : int, optional
        The seed of a bootstrap: each site is asked about rows that it draws from its own.
    noise : float, optional
        The noise multiplier: the standard deviation of the Gaussian noise that is added to the
        answer over the answer's L2 sensitivity. Without it the answer is exact.
    shares : int, default=1
        By how many sites the noise is shared: each adds 1 / shares of its variance. Only a site
        itself sets it, where a secure sum is over so many; it does not travel.
    """

    step: Step
    state: State
    seed: int = 0
    preprocessor: RowTransform | None = None
    everyone: bool = False
    resampled: int | None = None
    noise: float | None = None
    shares: int = 1


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on what leaves a site, as the site tells of it: a name and its parameters.

    Parameters
    ----------
    name : str
        The name of the filter.
    parameters : tuple of (str, scalar)
        Its parameters by name.

    Examples
    --------
    >>> from fedcluster.privacy import MinClusterSize
    >>> limit = Limit.from_filter(MinClusterSize(5))
    >>> str(limit), limit.plain()
    ('MinClusterSize(p=5)', {'name': 'MinClusterSize', 'p': 5})
    """

    name: str
    parameters: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def from_filter(cls, rule: Filter) -> Self:
        """Return the name and the fields of a filter; its repr where it is no dataclass."""
        if not is_dataclass(rule):
            return cls(repr(rule))
        named = tuple((each.name, getattr(rule, each.name)) for each in fields(rule))
        return cls(type(rule).__name__, named)

    @classmethod
    def from_filters(cls, rules: tuple[Filter, ...]) -> tuple[Limit, ...]:
        """Return the limits of filters, the same objects for all sites with the same filters."""
        try:
            return _limits_of(rules)
        except TypeError:  # one of its own that cannot be hashed
            return tuple(map(cls.from_filter, rules))

    @classmethod
    def from_plain(cls, content: Any) -> Self:
        """Return the limit that `plain` gave, or JSON made of it.

        Raises
        ------
        ValueError
            If it is something else.
        """
        if not isinstance(content, Mapping) or not isinstance(content.get("name"), str):
            raise ValueError(f"{content!r} is not a limit: an object with a name")
        given = {name: value for name, value in content.items() if name != "name"}
        if not all(isinstance(value, SCALARS) for value in given.values()):
            raise ValueError(f"the parameters of the limit {content['name']!r} are not scalars")
        return cls(content["name"], tuple(given.items()))

    def plain(self) -> dict[str, Any]:
        """Return the limit as JSON can hold it."""
        return {"name": self.name, **dict(self.parameters)}

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.parameters)
        return f"{self.name}({values})" if values else self.name


@lru_cache(maxsize=64)
def _limits_of(rules: tuple[Filter, ...]) -> tuple[Limit, ...]:
    """Return the limits of filters."""
    return tuple(map(Limit.from_filter, rules))


@dataclass(frozen=True, slots=True)
class SiteInfo:
    """Facts that a site tells of itself before it answers tasks.

    Parameters
    ----------
    name : str
        Its name.
    limits : tuple of Limit
        The limits that it puts on what leaves.
    streams : bool, default=False
        Whether its rows come in chunks, because they are too many to be held at once.
    columns : tuple of Column
        Its columns, where they were asked for; over a network always their names.
    labels : tuple of str or None
        Its reference labels, where they were asked for; None of rows without labels.
    answered : bool, default=True
        Whether it answered; of a site that did not, the name is known and what it told before.
    n_rows, weight : float or None
        How many rows it holds and what they weigh, as far as it told. Sites with other rows are
        the same sites: these do not count in a comparison.
    n_columns : int or None
        How many columns its rows have, where it told that; it does not count in a comparison.
    secure : bool, default=False
        Whether it tells sums of all sites only: then the next is known instead of its own.
    total_rows : float or None
        How many rows all sites hold together; it does not count either.
    log : str
        The hash of the last line of its log, where it keeps one; it does not count either.
    refuses : str
        Why its rows cannot be asked with noise, by the key in `fedcluster._refusals.REFUSALS`; ""
        if they can. It does not count either.
    """

    name: str
    limits: tuple[Limit, ...] = ()
    streams: bool = False
    columns: tuple[Column, ...] = ()
    labels: tuple[str, ...] | None = None
    answered: bool = True
    n_rows: float | None = field(default=None, compare=False)
    weight: float | None = field(default=None, compare=False)
    n_columns: int | None = field(default=None, compare=False)
    secure: bool = False
    total_rows: float | None = field(default=None, compare=False)
    log: str = field(default="", compare=False)
    refuses: str = field(default="", compare=False)


class Sent(Mapping[str, int]):
    """Mapping of sites to how many numbers each sent, made where somebody looks into it.

    Parameters
    ----------
    names : tuple of str
        The sites.
    numbers : ndarray of shape (s,)
        How many numbers each sent.

    Examples
    --------
    >>> Sent(("north", "south"), np.array([6, 4])) == {"north": 6, "south": 4}
    True
    """

    def __init__(self, names: tuple[str, ...], numbers: NDArray[np.int64]) -> None:
        self._names, self._numbers = names, numbers

    @cached_property
    def _by_site(self) -> dict[str, int]:
        return dict(zip(self._names, self._numbers.tolist(), strict=True))

    def __repr__(self) -> str:
        return repr(self._by_site)

    def __getitem__(self, name: str) -> int:
        return self._by_site[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def items(self) -> ItemsView[str, int]:
        """Return the names with their numbers."""
        return self._by_site.items()


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The sites' answers to one task, in the order of their names, and who gave none.

    Parameters
    ----------
    by_site : mapping of str to Summary
        The answers; only their sum, under the name `ALL_SITES`, where the sums are secure.
    missing : tuple of str
        The sites that gave none.
    enough : int, optional
        The fewest answers with which a run goes on; by default all that came.
    summed : tuple of str
        The sites that a secure sum is over.
    """

    by_site: Mapping[str, Summary]
    missing: tuple[str, ...] = ()
    enough: int | None = None
    summed: tuple[str, ...] = ()

    def without(self, name: str) -> Answers:
        """Return the answers of the other sites."""
        others = {site: answer for site, answer in self.by_site.items() if site != name}
        return Answers(others, tuple(sorted({*self.missing, name})), self.enough)

    @property
    def n_spare(self) -> int:
        """Number of answers without which a run goes on."""
        return 0 if self.enough is None else max(0, len(self.by_site) - self.enough)

    @property
    def answered(self) -> tuple[str, ...]:
        """Names of the sites that answered."""
        return self.summed or tuple(self.by_site)

    @property
    def summaries(self) -> list[Summary]:
        """Answers without the names."""
        return list(self.by_site.values())

    @property
    def numbers_sent(self) -> NDArray[np.int64]:
        """How many numbers each site sent, (s,), in the order of `answered`."""
        if self.summed:  # masked, a line of weight 0 is as long as any other
            [total] = self.summaries
            return np.full(len(self.summed), total.sums.size + total.weights.size)
        return np.array([summary.n_values for summary in self.by_site.values()], np.int64)

    @property
    def values_sent(self) -> Mapping[str, int]:
        """How many numbers each site sent."""
        return Sent(self.answered, self.numbers_sent)

    def too_large(self) -> list[str]:
        """Return the names of the sites whose answers are too large to go on with."""
        return [name for name, summary in self.by_site.items() if summary.is_too_large]

    def total(self) -> Summary:
        """Return the exact sum of the answers, correctly rounded."""
        return Summary.total(self.summaries)


def first_alike(tasks: Sequence[Task]) -> list[int]:
    """Return for each task the place of the first one with the same preprocessor.

    Examples
    --------
    >>> from fedcluster.metrics import Inertia
    >>> first_alike([Task(Inertia(), State()), Task(Inertia(), State())])
    [0, 0]
    """
    given = [task.preprocessor for task in tasks]
    return [next(i for i, each in enumerate(given) if each is mine) for mine in given]


class Introduction(TypedDict, total=False):
    """What sites may be asked to tell of themselves, see `Engine.introduce`."""

    columns: bool
    texts: Collection[str]
    labels: bool
    steps: Sequence[PlannedStep]


class Engine(Protocol):
    """Carrier of tasks to the sites and of their answers."""

    def introduce(
        self,
        *,
        columns: bool = False,
        texts: Collection[str] = (),
        labels: bool = False,
        steps: Sequence[PlannedStep] = (),
    ) -> tuple[SiteInfo, ...]:
        """Return what the sites tell of themselves, in the order of their names.

        Names, limits and whether rows come in chunks are asked for once; calling it again costs
        nothing.

        Parameters
        ----------
        columns : bool, default=False
            Whether the sites describe their columns, with the levels of text that several rows
            share and the limits let out.
        texts : collection of str
            Columns whose numbers are names, and are described as text.
        labels : bool, default=False
            Whether the sites tell their reference labels, with the same restriction.
        steps : sequence of Step or type, default=()
            The steps that will be asked. A site that does not know one of them, or must not answer
            it, answers nothing from now on.
        """

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Carry all tasks of one round to the named sites (to all without names)."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """Record of one round of one run.

    Parameters
    ----------
    round : int
        The number of the round, from 1.
    step : str
        What was asked.
    inertia : float
        Inertia of the centres that were broadcast; nan where the algorithm does not learn it.
    shift : float
        Largest distance by which a centre moved, in the units of the rows; nan at a start.
    answered, missing : tuple of str
        The sites that took part, and those that did not.
    values_sent : mapping of str to int
        How many numbers each site sent.
    """

    round: int
    step: str
    inertia: float
    shift: float
    answered: tuple[str, ...]
    missing: tuple[str, ...]
    values_sent: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """Result of a run: the final state, its rounds, why it stopped, and the algorithm."""

    state: State
    history: tuple[Iteration, ...]
    reason: str
    algorithm: Algorithm | None = None
