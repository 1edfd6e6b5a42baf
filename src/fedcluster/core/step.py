"""Steps, which are the questions to the sites, and the state that they are about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike

from fedcluster.core.data import Column, Data, Floats, Labels, Rows
from fedcluster.core.summary import Summary


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
