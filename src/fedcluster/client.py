"""The client: the only code that sees rows and answers tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedcluster.core import Data, Filter, Site, Summary, Task, stream
from fedcluster.privacy import MinRows

__all__ = ["Client", "Sent"]


@dataclass(frozen=True, slots=True)
class Sent:
    """One message that left a site, for its log: never a value, only sizes.

    Parameters
    ----------
    round : int
        Rounds done before the task was asked.
    step : str
        The step with its hyper-parameters.
    lines, numbers : int
        Lines and numbers that left.
    lone_rows : int
        Lines that stood for a single row: that row is known to whoever reads the message.
    held_back : int
        Rows that stood behind lines which the site's filters held back.
    """

    round: int
    step: str
    lines: int
    numbers: int
    lone_rows: int
    held_back: int


class Client:
    """One site: its rows, its filters, its answers.

    A client is a pure function of (task, rows). What it keeps between rounds, the loaded rows
    and the log of what left, never changes an answer.

    Parameters
    ----------
    name : str
        The site's name.
    load : callable returning Data, or Data
        Where the rows come from; called once, at the first task.
    filters : sequence of Filter, default=(MinRows(2),)
        What the site holds back, applied in this order to every summary.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster.core import State
    >>> from fedcluster.algorithms import Lloyd
    >>> from fedcluster.privacy import MinClusterSize
    >>> rows = Data(np.array([[0.0], [1.0], [9.0]]))
    >>> client = Client("north", rows, [MinClusterSize(2)])
    >>> client.answer(Task(Lloyd(), State.at(np.array([[0.0], [9.0]])))).weights
    array([2., 0.])
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], Data] | Data,
        filters: Sequence[Filter] = (MinRows(2),),
    ) -> None:
        self.name = name
        self.filters = tuple(filters)
        self.sent: list[Sent] = []
        self._load = load

    def __repr__(self) -> str:
        return f"Client({self.name!r}, filters={list(self.filters)})"

    @cached_property
    def data(self) -> Data:
        """The site's rows that have a weight, loaded once."""
        data = (self._load if isinstance(self._load, Data) else self._load()).weighed()
        if not len(data):
            raise ValueError("there is no row of positive weight")
        return data

    @property
    def site(self) -> Site:
        """What the site tells of itself."""
        return Site(self.name, tuple(map(repr, self.filters)))

    def answer(self, task: Task) -> Summary:
        """Load, step, filter: the one way from rows to a message."""
        rng = stream(task.seed, task.state.round, self.name)
        full = task.step.client_step(task.state, self.data, rng)
        summary = full
        for hold_back in self.filters:
            summary = hold_back(summary, len(self.data))
        self.sent.append(_sent(task, full, summary))
        return summary.leaving()


def _sent(task: Task, full: Summary, summary: Summary) -> Sent:
    """The log's line for one message."""
    left = summary.weights != 0
    return Sent(
        round=task.state.round,
        step=repr(task.step),
        lines=int(left.sum()),
        numbers=summary.numbers,
        lone_rows=int((summary.rows[left] == 1).sum()),
        held_back=int(np.rint(full.rows.sum() - summary.rows.sum())),
    )
