"""Tasks of a round, and the metadata of a site."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from types import NoneType
from typing import Any, Protocol, Self, TypedDict

from fedcluster.core.data import Column
from fedcluster.core.step import PlannedStep, RowTransform, State, Step
from fedcluster.core.summary import Summary

SCALARS = (bool, int, float, str, NoneType)
"""Types that a parameter of a step or of a limit may have."""


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


def first_alike(tasks: Sequence[Task]) -> list[int]:
    """Return for each task the place of the first one with the same preprocessor.

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
    """A limit on what leaves a site, as the site states it: a name and its parameters.

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
    def from_plain(cls, content: Any) -> Self:
        """Return the limit that `plain` gave, or JSON made of it.

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
        """Return the limit as JSON can hold it."""
        return {"name": self.name, **dict(self.parameters)}

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.parameters)
        return f"{self.name}({values})" if values else self.name


@dataclass(frozen=True, slots=True)
class SiteInfo:
    """Metadata that a site states before it answers tasks.

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
        Why its rows cannot be asked with noise, by the key in
        `fedcluster.options.refusals.table`; "" if they can. It does not count either.
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


class Introduction(TypedDict, total=False):
    """Metadata that sites may be asked for, see `Engine.introduce`."""

    columns: bool
    texts: Collection[str]
    labels: bool
    steps: Sequence[PlannedStep]
