"""What a coordinator believes of a reply: nothing that it has not checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcluster.core import Floats, SiteInfo, Summary, Task
from fedcluster.engines._wire import (
    LARGEST,
    PROTOCOL,
    TOLD,
    WireError,
    digest,
    read_site,
    read_summaries,
    unpack,
)

SLACK = 1 + 1e-9
"""How much more than all rows a line may weigh, for rounding."""


class ReplyError(ValueError):
    """A reply that is not believed; says why."""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What was asked, to be held against what comes back.

    Parameters
    ----------
    run : str
        The run that asks.
    exchange : int
        The number of the exchange in it, from 0.
    tasks : sequence of Task
        The tasks.
    message : bytes
        How they travel.
    describes : bool
        Whether the columns are to be described, too.
    labels : bool
        Whether the site is to say which reference labels it has.
    """

    run: str
    exchange: int
    tasks: Sequence[Task]
    message: bytes
    describes: bool = False
    labels: bool = False


@dataclass(frozen=True, slots=True)
class Holding:
    """What a site said of its rows before its first answer.

    Parameters
    ----------
    n_columns : int
        d.
    weight : float
        What all its rows weigh, as far as its limits let that be said.
    n_rows : float
        How many they are, as far as the same.
    """

    n_columns: int
    weight: float
    n_rows: float = 0.0

    @classmethod
    def from_answers(cls, answers: Sequence[Summary]) -> Holding:
        """Return what the answer to `SiteSize`, the first of a reply, says."""
        if not answers or len(answers[0].weights) != 1:
            raise ReplyError("it does not say in one line what it holds")
        _check_numbers(answers[0])
        d, weight = answers[0].sums.shape[1], float(answers[0].weights[0])
        return cls(d, weight, float(answers[0].sums.max(initial=0.0)))


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """A reply that comes from the right site and answers the right question.

    Parameters
    ----------
    site : SiteInfo
        What the site tells of itself.
    described : bool
        Whether its columns are described, and not only named.
    summaries : list of Summary
        Its answers, one for each task.
    """

    site: SiteInfo
    described: bool
    summaries: list[Summary]

    def check(self, tasks: Sequence[Task], holding: Holding) -> None:
        """Check every answer.

        Raises
        ------
        ReplyError
            Where other columns are described than the rows have, or an answer has a shape other
            than its step declares, holds NaN or infinity or a negative weight, weighs
            more than all rows of the site, or says something in a line of weight 0.
        """
        n, d = len(self.site.columns), holding.n_columns
        if self.described and n != d:
            raise ReplyError(f"{n} columns described, the rows have {d}")
        if len(self.summaries) != len(tasks):
            raise ReplyError(f"{len(self.summaries)} answers to {len(tasks)} tasks")
        at_most = max(holding.weight, holding.n_rows)
        for task, summary in zip(tasks, self.summaries, strict=True):
            try:
                _check_shape(task, summary, holding)
                _check_numbers(summary)
                _check_weights(summary.weights, at_most)
            except ReplyError as error:
                raise ReplyError(f"{type(task.step).__name__}: {error}") from error


def read_reply(message: bytes, question: Question, name: str, *, largest: int = LARGEST) -> Reply:
    """Read what one site sent; `Reply.check` checks the numbers.

    Parameters
    ----------
    message : bytes
        What came.
    question : Question
        What was asked.
    name : str
        The site that it came from.
    largest : int
        The most bytes that are read.

    Raises
    ------
    ReplyError
        If it is too large, of another protocol, site, run or question, not understood, or if
        the site itself reports a failure.
    """
    try:
        header, arrays = _opened(message, question, name, largest)
        told = {key: value for key, value in header.items() if key not in TOLD}
        asked = {"described": question.describes, "labels": question.labels}
        return Reply(read_site(name, told, **asked), question.describes, read_summaries(arrays))
    except WireError as error:
        raise ReplyError(str(error)) from error


def check_receipt(message: bytes, question: Question, name: str, *, largest: int = LARGEST) -> None:
    """Check a reply that has no content: that a site has got what it was given.

    Parameters and errors are those of `read_reply`.
    """
    try:
        _opened(message, question, name, largest)
    except WireError as error:
        raise ReplyError(str(error)) from error


def _opened(
    message: bytes, question: Question, name: str, largest: int
) -> tuple[dict[str, Any], dict[str, Floats]]:
    """The header and the arrays of a reply that comes from the right site to this question."""
    header, arrays = unpack(message, largest)
    _check_header(header, question, name)
    return header, arrays


def _check_header(header: dict[str, Any], question: Question, name: str) -> None:
    if header.get("protocol") != PROTOCOL:
        raise ReplyError(
            f"the reply is of protocol {header.get('protocol')!r}, here it is {PROTOCOL}: "
            "use the same fedcluster"
        )
    if header.get("site") != name:
        raise ReplyError(f"it says to come from {header.get('site')!r}, and did not")
    if header.get("question") != digest(question.message):
        raise ReplyError("it answers another question: a replay, or too late")
    for kind, said in (("refused", "refused the question"), ("failed", "failed, see its log")):
        if kind in header:
            raise ReplyError(f"{said}: {str(header[kind])[:200]}")
    if (header.get("run"), header.get("exchange")) != (question.run, question.exchange):
        raise ReplyError("it belongs to another round: a replay, or too late")


def _check_shape(task: Task, summary: Summary, holding: Holding) -> None:
    """Check that an answer has the shape that its step declares for the rows of the site."""
    given = task.preprocessor
    width = holding.n_columns if given is None else given.n_columns_out
    try:
        lines, p = task.step.answer_shape(task.state, width)
    except Exception as error:
        raise ReplyError(f"the step does not tell the shape of an answer: {error!r}") from error
    if summary.sums.shape[1] != p or (lines is not None and len(summary.sums) != lines):
        wanted = f"({'any' if lines is None else lines}, {p})"
        raise ReplyError(f"sums of shape {summary.sums.shape}, where {wanted} was expected")


def _check_numbers(summary: Summary) -> None:
    if not (np.isfinite(summary.sums).all() and np.isfinite(summary.weights).all()):
        raise ReplyError("it holds NaN or infinity")
    if (summary.weights < 0).any():
        raise ReplyError(f"a weight is negative: {summary.weights.min():g}")
    if summary.sums[summary.weights == 0].any():
        raise ReplyError("a line of weight 0 has sums")


def _check_weights(weights: Floats, at_most: float) -> None:
    if weights.size and weights.max() > at_most * SLACK:
        raise ReplyError(
            f"a line weighs {weights.max():g}, but all rows of the site together {at_most:g}"
        )
