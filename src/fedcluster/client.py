"""The client: the only code that sees rows and answers tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import add

import numpy as np

from fedcluster.core import Data, Filter, RowStream, Site, Step, Summary, Task, stream
from fedcluster.privacy import MinRows, Persons, Tally

__all__ = ["Client", "Sent"]

NO_ROW = "there is no row of positive weight"


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
        Lines that stood for a single row: that row is known to whoever reads the message. Where
        rows are grouped, lines that may stand for a single person.
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

    Rows that do not fit in memory come as a `RowStream`. A step whose answers add up is asked
    about chunk after chunk; one whose answers do not loads all rows, and the client keeps them.

    Where rows say whose they are (``Data.groups``), the filters count persons: the fewest that can
    stand behind a line's rows, which is never more than there are.

    Parameters
    ----------
    name : str
        The site's name.
    load : Data, RowStream, or callable returning one of them
        Where the rows come from; a callable is called once, at the first task.
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
        load: Callable[[], Data | RowStream] | Data | RowStream,
        filters: Sequence[Filter] = (MinRows(2),),
    ) -> None:
        self.name = name
        self.filters = tuple(filters)
        self.sent: list[Sent] = []
        self._steps: dict[int, tuple[Step, str]] = {}
        self._load = load
        self._persons: Persons | None = None

    def __repr__(self) -> str:
        return f"Client({self.name!r}, filters={list(self.filters)})"

    @cached_property
    def rows(self) -> Data | RowStream:
        """Where the rows come from, opened once."""
        if isinstance(self._load, Data | RowStream):
            return self._load
        return self._load()

    @cached_property
    def data(self) -> Data:
        """The site's rows that have a weight, loaded once."""
        data = (self.rows if isinstance(self.rows, Data) else self.rows.load()).weighed()
        if not len(data):
            raise ValueError(NO_ROW)
        if data.groups is not None:
            tally = Tally()
            tally.add(data.groups)
            self._persons = tally.persons()
        return data

    @property
    def streams(self) -> bool:
        """Whether the rows come in chunks."""
        return not isinstance(self.rows, Data)

    @property
    def site(self) -> Site:
        """What the site tells of itself."""
        return Site(self.name, tuple(map(repr, self.filters)))

    def answer(self, task: Task) -> Summary:
        """The answer to one task."""
        return self.answers([task])[0]

    def answers(self, tasks: Sequence[Task]) -> list[Summary]:
        """Load, step, filter: the one way from rows to messages, for all tasks of a round."""
        streamed = [task for task in tasks if self._is_streamed(task)]
        added = iter(self._chunk_by_chunk(streamed))
        return [
            self._leaving(task, *(next(added) if self._is_streamed(task) else self._at_once(task)))
            for task in tasks
        ]

    def _is_streamed(self, task: Task) -> bool:
        return self.streams and task.step.client_additive

    def _at_once(self, task: Task) -> tuple[Summary, int]:
        """A task's answer before the filters, and how many rows it was asked about."""
        return self._step(task, self.data), len(self.data)

    def _chunk_by_chunk(self, tasks: Sequence[Task]) -> list[tuple[Summary, int]]:
        """The same for many tasks in one reading: the chunks' answers are added up."""
        totals: list[Summary] = []
        n_rows = 0
        for chunk in self._chunks() if tasks else ():
            found = [self._step(task, chunk) for task in tasks]
            totals = list(map(add, totals, found)) if totals else found
            n_rows += len(chunk)
        if tasks and not n_rows:
            raise ValueError(NO_ROW)
        return [(total, n_rows) for total in totals]

    def _chunks(self) -> Iterable[Data]:
        """The rows that have a weight, read anew."""
        if isinstance(self.rows, Data):
            return [self.data]
        chunks = filter(len, map(Data.weighed, self.rows.chunks()))
        return self._counted(chunks) if self._persons is None else chunks

    def _counted(self, chunks: Iterable[Data]) -> Iterator[Data]:
        """The same chunks; when the last has passed, it is known whose rows they are."""
        tally = None
        for chunk in chunks:
            if chunk.groups is not None:
                tally = tally or Tally()
                tally.add(chunk.groups)
            yield chunk
        if tally:
            self._persons = tally.persons()

    def _step(self, task: Task, data: Data) -> Summary:
        centers, d = task.state.centers, data.X.shape[1]
        if len(centers) and centers.shape[1] != d:
            raise ValueError(f"the centres have {centers.shape[1]} columns, the rows here {d}")
        return task.step.client_step(
            task.state, data, stream(task.seed, task.state.round, self.name)
        )

    def _leaving(self, task: Task, full: Summary, n_rows: int) -> Summary:
        """What the filters let through, logged; where rows are grouped, they see persons."""
        summary, n = full, n_rows
        if self._persons is not None:
            summary, n = replace(full, support=self._persons.behind(full.rows)), len(self._persons)
        for hold_back in self.filters:
            summary = hold_back(summary, n)
        self.sent.append(_sent(task, self._written(task.step), full, summary))
        return summary.leaving()

    def _written(self, step: Step) -> str:
        """A step with its hyper-parameters, written once and not in every round."""
        if id(step) not in self._steps:
            self._steps[id(step)] = step, repr(step)  # the step is kept, so its id stays its own
        return self._steps[id(step)][1]


def _sent(task: Task, step: str, full: Summary, summary: Summary) -> Sent:
    """The log's line for one message."""
    return Sent(
        round=task.state.round,
        step=step,
        lines=int(np.count_nonzero(summary.weights)),
        numbers=summary.numbers,
        lone_rows=int(np.count_nonzero((summary.rows == 1) & (summary.weights != 0))),
        held_back=round(float(full.rows.sum() - full.rows[summary.rows > 0].sum())),
    )
