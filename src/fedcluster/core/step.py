"""Steps, which are questions to sites about a state, and the weighted sums that answer them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from fedcluster.core.data import Column, Data, Floats, Labels, Rows
from fedcluster.core.exact import exact_sum

MOST_FOR_A_ROW = 1e150
"""Value in a row from which on squares overflow, so that other sites could not answer."""


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """The only thing that a site ever sends: weighted sums and their weights.

    A line of weight 0 carries no information. Summaries of the same shape add up.

    Parameters
    ----------
    sums : ndarray of shape (k, p), float64
        Weighted sums, one line for each cluster (or for whatever the step counts).
    weights : ndarray of shape (k,), float64
        The weight of the rows in each line.
    support : ndarray of shape (k,), float64, optional
        The number of rows, or persons, in each line, if that is not the weight itself (rows may be
        weighted); a step counts the rows that it sees, which may be groups. The site's filters read
        it; it never leaves the site.
    rest : ndarray of shape (c, k, p + 1), float64, optional
        For a total: the rounding errors of the sums and, in the last column, of the weights. Added
        exactly to the rounded numbers, they give the exact total.

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

    def without(self, part: Summary) -> Summary:
        """Return the exact sum of the other summaries of a `total`, correctly rounded.

        Examples
        --------
        >>> one, other = (Summary(np.array([[x]]), np.ones(1)) for x in (1e16, 1.0))
        >>> (one + other).without(one).sums
        array([[1.]])
        """
        support = None if part.support is None else -part.support
        rest = None if part.rest is None else -part.rest
        return self + Summary(-part.sums, -part.weights, support, rest)

    @staticmethod
    def total(answers: Iterable[Summary]) -> Summary:
        """Return the sum of summaries of one shape, correctly rounded, with its rounding errors.

        Parameters
        ----------
        answers : iterable of Summary
            At least one; a single one is returned unchanged.

        Examples
        --------
        >>> parts = [Summary(np.array([[x]]), np.ones(1)) for x in (1e16, 1.0, -1e16)]
        >>> Summary.total(parts).sums, (parts[0] + parts[1]).sums + parts[2].sums
        (array([[1.]]), array([[0.]]))
        """
        left = iter(answers)
        total = next(left)
        while some := list(islice(left, 1024)):
            total = _added([total, *some])
        return total

    @property
    def planes(self) -> Floats:
        """Sums and, in the last column, weights, followed by the rounding errors: (c, k, p + 1)."""
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
        """Number of rows in each line, (k,)."""
        return self.weights if self.support is None else self.support

    @property
    def n_values(self) -> int:
        """Number of values that carry information: those in lines with a weight."""
        n_planes = 1 if self.rest is None else 1 + len(self.rest)
        return int(np.count_nonzero(self.weights) * (self.sums.shape[1] + 1)) * n_planes

    @property
    def is_finite(self) -> bool:
        """True if no number is NaN or infinite."""
        return bool(np.isfinite(self.sums).all() and np.isfinite(self.weights).all())

    @property
    def is_too_large(self) -> bool:
        """True if numbers are not finite, or if squares of means would not be.

        Examples
        --------
        >>> sums = np.array([[2e150]])
        >>> [Summary(sums, np.array([rows])).is_too_large for rows in (1.0, 10.0)]
        [True, False]
        """
        if np.abs(self.sums).max(initial=0.0) <= MOST_FOR_A_ROW and np.isfinite(self.weights).all():
            return False  # the property must hold for all weights
        if not self.is_finite:
            return True
        most = MOST_FOR_A_ROW * np.maximum(self.weights, 1.0)
        return bool((np.abs(self.sums) > most[:, None]).any())

    def keep(self, lines: NDArray[np.bool_]) -> Summary:
        """Return the summary with all lines zero but those in ``lines``, (k,) booleans."""
        if lines.all():
            return self
        support = None if self.support is None else np.where(lines, self.support, 0.0)
        rest = None if self.rest is None else np.where(lines[:, None], self.rest, 0.0)
        sums = np.where(lines[:, None], self.sums, 0.0)
        return Summary(sums, np.where(lines, self.weights, 0.0), support, rest)

    def leaving(self) -> Summary:
        """Return what leaves the site: everything but the support and the rounding errors."""
        if self.support is None and self.rest is None:
            return self
        return Summary(self.sums, self.weights)


def _added(answers: Sequence[Summary]) -> Summary:
    """Return the sum of a few summaries."""
    support = None
    if any(answer.support is not None for answer in answers):
        support = np.sum([answer.rows for answer in answers], axis=0)
    rests = [plane for answer in answers if answer.rest is not None for plane in answer.rest]
    # sums and weights by themselves, as to join them is to copy all
    sums = exact_sum([*(a.sums for a in answers), *(plane[:, :-1] for plane in rests)])
    weights = exact_sum([*(a.weights for a in answers), *(plane[:, -1] for plane in rests)])
    k, p = answers[0].sums.shape
    left = np.zeros((max(len(sums), len(weights)) - 1, k, p + 1))
    left[: len(sums) - 1, :, :-1], left[: len(weights) - 1, :, -1] = sums[1:], weights[1:]
    return Summary(sums[0], weights[0], support, left if len(left) else None)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """State of the server that it broadcasts; empty before the first round.

    Parameters
    ----------
    centers : ndarray of shape (k, d)
        Cluster centres.
    weights : ndarray of shape (k,)
        The weight of the rows that each centre was made from.
    round : int, default=0
        Rounds done so far.
    inertia : float
        Sum of squared distances to the centres *that this round asked about*, which are the
        previous ones; nan if the algorithm does not measure it.
    converged : bool, default=False
        Whether the algorithm has converged, so that further rounds change nothing.
    memory : mapping of str to ndarray
        Whatever else an algorithm carries from round to round (a momentum, a tree).
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
        """Return a starting state with the given centres, (k, d)."""
        start = np.array(centers, dtype=np.float64)
        return cls(start, np.zeros(len(start)))

    @property
    def standing(self) -> State:
        """The state by which rows are assigned: clusters that are gone are far from all rows.

        The memory of a state has ``gone (k,)``, 1 for clusters of earlier years that are gone. They
        keep their number, and their centre is their last one.

        Examples
        --------
        >>> gone = {"gone": np.array([0.0, 1.0])}
        >>> State(np.array([[2.0], [5.0]]), np.array([9.0, 0.0]), memory=gone).standing.centers
        array([[2.e+00],
               [6.e+06]])
        """
        memory = dict(self.memory)
        if (gone := memory.pop("gone", None)) is None:
            return self
        far = 1e6 * (1.0 + np.abs(self.centers).max(initial=0.0))  # its square has 32 bits
        return replace(self, centers=np.where(gone[:, None] > 0, far, self.centers), memory=memory)


Describe = Callable[[Collection[str]], Sequence[Column]]
"""Type of the function that describes a site's columns, the named ones as text."""


class RowTransform(Protocol):
    """A transform that a site applies to each of its rows before a step sees them.

    Equal transforms give equal results, so a site may cache the rows that one returned.
    """

    @property
    def missing(self) -> str:
        """How missing values are treated; "keep" and "ignore" leave them in the prepared rows.

        With "ignore", they are filled in for steps that accept no missing values.
        """

    @property
    def box(self) -> bool:
        """True if every prepared row lies in the box [-1, 1]^d, whatever the raw row is."""

    @property
    def offset_rows(self) -> float:
        """The fewest rows of a subtype that decide the offset of a site; inf if there is none.

        With an offset, a row depends on the others of its site, and all are prepared at once.
        """

    @property
    def n_columns_out(self) -> int:
        """Number of columns of the prepared rows."""

    @property
    def assignments(self) -> Sequence[tuple[Any, int]]:
        """Tasks whose algorithm and state assign rows, with the number of columns of these rows."""

    def apply(self, data: Data) -> Data:
        """Return the prepared rows."""

    def completing(self) -> Self:
        """Return the transform that also fills in the missing values that this one ignores."""

    def check(self, columns: Sequence[str]) -> None:
        """Raise ValueError, naming the rule, if no site with these columns may be asked so."""

    def disclosed_only(self, describe: Describe) -> Self:
        """Return the transform restricted to what a site discloses about its columns, or refuse."""

    def plain(self) -> Mapping[str, Any]:
        """Return the transform as JSON-compatible values, to be sent to the sites."""


class Step(Protocol):
    """One question to the sites: a frozen dataclass of scalars, its hyper-parameters.

    It declares the laws of its answers and their shape; nothing is guessed.
    """

    @property
    def client_additive(self) -> bool:
        """True if the answers about two parts of the rows add up to the answer about both."""

    @property
    def server_additive(self) -> bool:
        """True if the sum of the sites' answers serves as well as the answers themselves.

        For an algorithm: server([a, b]) = server([a + b]). Then a secure sum or a tree of sums can
        stand between the sites and the server.
        """

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape (k, p) of an answer.

        Parameters
        ----------
        state : State
            The state that the question is about.
        n_columns : int
            The number of columns of the prepared rows.

        Returns
        -------
        tuple of (int or None, int)
            The number of lines, or None if it is not fixed, and the number of sums in a line.
        """

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Return the answer of one site: sums over its rows."""


PlannedStep = Step | type[Step]
"""A step that will be asked, or its class if its parameters are not known yet."""


class Algorithm(Step, Protocol):
    """A step whose answers are combined into the next state."""

    @property
    def needs_centers(self) -> bool:
        """True if a run must start from centres."""

    @property
    def min_cluster_size(self) -> int:
        """Smallest cluster, in rows, that a site sends unless the site sets a limit itself."""

    def objective(self) -> Metric:
        """Return the metric that the algorithm minimises; the best of several runs minimises it."""

    def server_step(self, state: State, answers: Sequence[Summary], rng: Generator) -> State:
        """Return the next state, computed from the answers in the order of the sites' names."""


@runtime_checkable
class Assigns(Protocol):
    """An algorithm with its own rule for which cluster a row belongs to.

    Without such a rule, a row belongs to the cluster of the nearest centre.
    """

    def assign(self, state: State, X: Rows) -> Labels | Floats:
        """Return the cluster of each row, or its membership in each; rows are independent.

        Parameters
        ----------
        state : State
            The final state, with its memory.
        X : ndarray of shape (n, d)
            Prepared rows; without missing values unless ``allowed.gaps``.

        Returns
        -------
        ndarray of shape (n,), int, or (n, k), float
            Labels from 0, or -1 for a row of no cluster; or memberships of at least 0 that sum to
            at most 1 in each row. The rest to 1 belongs to no cluster.
        """


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Largest L2 change of an answer if one record with a row in [-1, 1]^d is added or removed.

    Parameters
    ----------
    sums : float
        Largest change of all sums, taken as one vector; 0 if no sum depends on rows.
    weights : float
        Largest change of all weights, taken as one vector.
    share : float, default=0.5
        Part of an answer's privacy cost that is spent on the weights, above 0 and below 1; the rest
        is spent on the sums. If one of the two cannot change, all is spent on the other.
    """

    sums: float
    weights: float
    share: float = 0.5


@runtime_checkable
class Sensitive(Protocol):
    """A step that can be asked with noise, because it declares the sensitivity of its answer."""

    def sensitivity(self, state: State, n_columns: int) -> Sensitivity:
        """Return the sensitivity of the answer to one record; it depends on no row.

        Parameters
        ----------
        state : State
            The state that the question is about.
        n_columns : int
            The columns d of the rows, each of which lies in [-1, 1]^d.
        """


@dataclass(frozen=True, slots=True, eq=False)
class FitParameters:
    """The parameters of a fit from which an algorithm that is given by name is built.

    Parameters
    ----------
    n_clusters : int
        The number of clusters k.
    init : str, ndarray of shape (k, d) or callable
        The start: a name, centres, or a function that draws seeds at a site.
    n_init : int, optional
        The number of starts; by default the algorithm decides.
    tol : float, default=1e-4
        Tolerance of the test of convergence.
    m : float, optional
        The fuzzifier of fuzzy algorithms.
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
        """True if a higher score is better."""

    def score(self, state: State, total: Summary) -> float:
        """Return the score, computed from the sum of all answers."""


def check_step(step: object, protocol: type = Step) -> None:
    """Check that an object or a class has everything that a step must declare.

    Parameters
    ----------
    step : object
        A step from outside the package.
    protocol : type, default=Step
        The protocol that it must follow: `Step`, `Algorithm` or `Metric`.

    Raises
    ------
    TypeError
        If something is missing; the message names everything that is.

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
