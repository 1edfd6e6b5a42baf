"""Tasks of a round, and the metadata of a site.

Random numbers that are the same on every engine: one stream per seed, round and site.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from types import NoneType
from typing import Any, Protocol, Self, TypedDict

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from fedcluster.core.data import Column
from fedcluster.core.step import PlannedStep, RowTransform, State, Step, Summary


def stream(seed: int, round: int, site: str = "") -> Generator:
    """Return the random generator for a seed, round and site; without a site, the server's.

    It is the same on every engine and in any order of sites: ``default_rng([seed, round, *site])``.
    """
    return _Stream([seed, round, *site.encode()])


def sampled(n: int, fraction: float, seed: int, round: int) -> NDArray[np.intp]:
    """Return which of n sites are asked in a round: max(int(C n), 1) of them, in order.

    Drawn from a stream that no site and no server step draws from.
    """
    if fraction >= 1.0:
        return np.arange(n)
    chosen = stream(seed, round, "asked").choice(n, max(int(fraction * n), 1), replace=False)
    return np.sort(chosen)


class _Stream(Generator):
    """A generator that is seeded when it is first used.

    Most steps draw nothing, and seeding takes 20 microseconds: it would make FKM over a hundred
    sites of twenty rows 1.4 times slower. A generator's methods read memory that only seeding
    fills, so every access has to pass through this class. It must be a real `Generator`, because
    NumPy and SciPy refuse anything else.
    """

    def __init__(self, words: list[int]) -> None:
        self._words = words

    def __getattribute__(self, name: str) -> Any:
        words = object.__getattribute__(self, "__dict__").pop("_words", None)
        if words is not None:
            # an array is hashed twice as fast as a list of Python integers
            if min(words) >= 0 and max(words) < 1 << 32:
                words = np.array(words, np.uint32)
            super().__init__(np.random.PCG64(words))
        return super().__getattribute__(name)


SCALARS = (bool, int, float, str, NoneType)
"""Types that a parameter of a step or of a limit may have."""


class Filter(Protocol):
    """A site's rule on what may leave it; no task can switch it off."""

    def __call__(self, summary: Summary, n_rows: int) -> Summary:
        """Return the part of a summary over a site's ``n_rows`` rows that may leave."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A question to the sites: a step, a state and a seed.

    Parameters
    ----------
    step : Step
        The step to carry out.
    state : State
        The state that the question is about.
    seed : int, default=0
        Determines the random choices at the sites.
    preprocessor : RowTransform, optional
        The transform that each site applies to its rows first.
    everyone : bool, default=False
        Whether all sites are asked even if a round asks only a sample of them.
    resampled : int, optional
        The seed of a bootstrap: each site answers about a resample of its rows.
    noise : float, optional
        The noise multiplier: the standard deviation of the Gaussian noise that is added to the
        answer over the answer's L2 sensitivity. Without it the answer is exact.
    shares : int, default=1
        The number of sites that share the noise: each adds 1 / shares of the variance. Only a site
        sets it itself, for a secure sum over that many sites; it does not travel.
    """

    step: Step
    state: State
    seed: int = 0
    preprocessor: RowTransform | None = None
    everyone: bool = False
    resampled: int | None = None
    noise: float | None = None
    shares: int = 1


def first_alike(tasks: Sequence[Task]) -> list[int]:
    """Return for each task the position of the first task with the same preprocessor.

    Examples
    --------
    >>> from fedcluster.metrics import Inertia
    >>> first_alike([Task(Inertia(), State()), Task(Inertia(), State())])
    [0, 0]
    """
    preprocessors = [task.preprocessor for task in tasks]
    return [
        next(i for i, each in enumerate(preprocessors) if each is mine) for mine in preprocessors
    ]


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on what leaves a site, as the site reports it: a name and its parameters.

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
        """Return the limit with a filter's name and fields, or its repr if it is no dataclass."""
        if not is_dataclass(rule):
            return cls(repr(rule))
        named = tuple((each.name, getattr(rule, each.name)) for each in fields(rule))
        return cls(type(rule).__name__, named)

    @classmethod
    def from_plain(cls, content: Any) -> Self:
        """Return the limit that was written by `plain`, possibly by way of JSON.

        Raises
        ------
        ValueError
            If it is something else.
        """
        if not isinstance(content, Mapping) or not isinstance(content.get("name"), str):
            raise ValueError(f"{content!r} is not a limit: an object with a name")
        parameters = {name: value for name, value in content.items() if name != "name"}
        if not all(isinstance(value, SCALARS) for value in parameters.values()):
            raise ValueError(f"the parameters of the limit {content['name']!r} are not scalars")
        return cls(content["name"], tuple(parameters.items()))

    def plain(self) -> dict[str, Any]:
        """Return the limit as JSON-compatible values."""
        return {"name": self.name, **dict(self.parameters)}

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.parameters)
        return f"{self.name}({values})" if values else self.name


@dataclass(frozen=True, slots=True)
class SiteInfo:
    """Metadata that a site reports before it answers tasks.

    Parameters
    ----------
    name : str
        Its name.
    limits : tuple of Limit
        The site's limits on what leaves it.
    streams : bool, default=False
        Whether its rows come in chunks, because they do not fit into memory.
    columns : tuple of Column
        Its columns, if they were asked for; over a network, their names are always reported.
    labels : tuple of str or None
        Its reference labels, if they were asked for; None stands for rows without a label.
    answered : bool, default=True
        Whether it answered; if not, only its name and its earlier reports are known.
    n_rows, weight : float or None
        Number and total weight of its rows, if reported. They are ignored in comparisons, because a
        site whose rows change remains the same site.
    n_columns : int or None
        Number of columns of its rows, if reported; ignored in comparisons.
    secure : bool, default=False
        Whether it takes part in sums over all sites only; then ``total_rows`` is known instead of
        its own number.
    total_rows : float or None
        Number of rows of all sites together; ignored in comparisons.
    log : str
        The hash of the last line of its log, if it keeps one; ignored in comparisons.
    refuses : str
        The reason why its rows cannot be asked with noise, as a key of
        `fedcluster.options.refusals.table`; "" if they can. Ignored in comparisons.
    left : float
        The rho that is left of its privacy budget for one record; -1 if it has none, or does not
        say. Ignored in comparisons.
    sends : bool, default=True
        Whether its rules let any sum over its rows leave, if this was asked for. Ignored in
        comparisons.
    is_partition : bool, default=False
        Whether it is a partition of a table, and no site of its own. Ignored in comparisons.
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
    left: float = field(default=-1.0, compare=False)
    sends: bool = field(default=True, compare=False)
    is_partition: bool = field(default=False, compare=False)


FirstTasks = Callable[[Sequence[Column] | None], Sequence[Task]]
"""Function that returns the first tasks about the numeric columns of a site, as it describes them,
and for None the same tasks in a form in which a site fills in its own columns."""


class Introduction(TypedDict, total=False):
    """Metadata that sites may be asked for; see `Engine.introduce`."""

    columns: bool
    texts: Collection[str]
    labels: bool
    steps: Sequence[PlannedStep]
    first_tasks: FirstTasks | None
    sends: bool
