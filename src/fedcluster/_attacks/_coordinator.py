"""Coordinator that attacks one site: it asks through the bytes that travel, and keeps answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedcluster.core import Column, Floats, RowTransform, State, Step, Summary, Task
from fedcluster.engines._remote import Question
from fedcluster.engines._responder import Responder
from fedcluster.engines._wire import read_summaries, unpack
from fedcluster.preprocessing import Preprocessor
from fedcluster.preprocessing._columns import NumericColumn

TASKS = 4000
"""Tasks of one message; where that is refused, an eighth of it is tried, and so on."""
PATIENCE = 3
"""Tasks refused each for itself before the rest of a list is taken for refused."""


@dataclass(frozen=True, slots=True, eq=False)
class Public:
    """Knowledge of a site that a coordinator has without asking, as from a data dictionary.

    Parameters
    ----------
    columns : tuple of Column
        The columns, without texts.
    numbers : tuple of str
        The d columns of numbers.
    low, high, step : ndarray of shape (d,)
        Their ranges, and by how much two values differ at least.
    texts : mapping of str to tuple of str
        For each column of text, every text that anybody may have.
    classes : tuple of str
        Every label that anybody may have.
    n_rows : int
        About how many rows the site has.
    """

    columns: tuple[Column, ...]
    numbers: tuple[str, ...]
    low: Floats
    high: Floats
    step: Floats
    texts: Mapping[str, tuple[str, ...]]
    classes: tuple[str, ...]
    n_rows: int

    @property
    def middle(self) -> Floats:
        """Middle of the ranges, (d,)."""
        return (self.low + self.high) / 2

    @property
    def width(self) -> Floats:
        """Width of the ranges, (d,)."""
        return self.high - self.low

    @property
    def widest(self) -> list[int]:
        """The two columns of numbers with the most steps, which tell rows apart best."""
        steps = self.width / self.step
        return [int(j) for j in np.argsort(-steps, kind="stable")[:2]]

    def column(self, j: int, **how: Any) -> NumericColumn:
        """Return the preparation of a column of numbers; what is missing becomes its middle."""
        return NumericColumn(self.numbers[j], **{"fill": float(self.middle[j]), **how})

    def plain(self) -> Preprocessor:
        """Return the preparation that leaves all numbers as they are."""
        return Preprocessor(tuple(self.column(j) for j in range(len(self.numbers))))

    def claims(self, n: int) -> Floats:
        """Return n claims, (n, d + 1), that say nothing yet: numbers, and the label's place."""
        return np.full((n, len(self.numbers) + 1), np.nan)

    def records(self, rows: Floats) -> Floats:
        """Return claims of the numbers (n, d) of rows."""
        claims = self.claims(len(rows))
        claims[:, :-1] = rows
        return claims


@dataclass(slots=True, eq=False)
class Coordinator:
    """Coordinator that asks one site.

    Parameters
    ----------
    responder : Responder
        The site's end.
    public : Public
        What is known without asking.
    asked, refused : int
        Tasks so far, and those among them that the site did not answer.
    """

    responder: Responder
    public: Public
    asked: int = 0
    refused: int = 0
    _exchanges: int = field(default=0, repr=False)
    _runs: int = field(default=0, repr=False)

    def ask(self, tasks: Sequence[Task]) -> list[Summary | None]:
        """Return the answers to tasks, None where the site refuses or fails."""
        self.asked += len(tasks)
        answers: list[Summary | None] = []
        size, alone = TASKS, 0
        while len(answers) < len(tasks) and alone < PATIENCE:
            part = tasks[len(answers) : len(answers) + size]
            came = self._exchange(part)
            if came is not None:
                answers += came
            elif len(part) > 1:
                size = max(1, len(part) // 8)
            else:
                answers, alone = [*answers, None], alone + 1
        answers += [None] * (len(tasks) - len(answers))
        self.refused += answers.count(None)
        return answers

    def ask_one(
        self, step: Step, state: State | None = None, how: RowTransform | None = None
    ) -> Summary | None:
        """Return the answer to one task."""
        return self.ask([Task(step, State() if state is None else state, preprocessor=how)])[0]

    def _exchange(self, tasks: Sequence[Task]) -> list[Summary] | None:
        """Return the answers to one message, asked in a new run where it is refused; else None."""
        answers = self._sent(tasks)
        if answers is None:
            self._runs += 1
            self._sent(())  # what a site may be asked about is what it has told in the run
            answers = self._sent(tasks)
        return answers

    def _sent(self, tasks: Sequence[Task]) -> list[Summary] | None:
        header: dict[str, Any] = {"run": f"audit {self._runs}", "exchange": self._exchanges}
        header |= {"columns": [column.name for column in self.public.columns], "raw": True}
        header |= {} if tasks else {"described": [], "labels": True}
        self._exchanges += 1
        reply, arrays = unpack(self.responder.reply(Question(header, tasks).message))
        return None if {"refused", "failed"} & reply.keys() else read_summaries(arrays)
