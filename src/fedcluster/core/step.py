"""Steps, the questions to the sites, and the state that they are asked about."""

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

    def disclosed_only(self, describe: Describe) -> Self:
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
