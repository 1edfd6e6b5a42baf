"""Checks of what sites reply: a coordinator believes nothing that it has not checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcluster.core import Floats, SiteInfo, Summary, Task
from fedcluster.engines._wire import (
    LARGEST,
    PROTOCOL,
    WireError,
    digest,
    pack,
    read_site,
    read_summaries,
    unpack,
    write_tasks,
)

SLACK = 1 + 1e-9
"""Factor, for rounding, by which a line may weigh more than all rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """Question to a site, to be held against what comes back.

    Parameters
    ----------
    header : mapping
        The run that asks, the number of the exchange in it, from 0, and what is asked besides
        tasks.
    tasks : sequence of Task
        The tasks.
    message : bytes
        How they travel.
    """

    header: Mapping[str, Any]
    tasks: Sequence[Task]
    message: bytes

    @classmethod
    def from_tasks(cls, header: Mapping[str, Any], tasks: Sequence[Task] = ()) -> Question:
        """Return the question whether a site answers these tasks, and what the header asks."""
        headers, arrays = write_tasks(tasks)
        return cls(header, tasks, pack({"protocol": PROTOCOL, **header, "tasks": headers}, arrays))


@dataclass(frozen=True, slots=True)
class Holding:
    """Size of a site's rows, as it said before its first answer.

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
            raise WireError("it does not say in one line what it holds")
        _check_numbers(answers[0])
        d, weight = answers[0].sums.shape[1], float(answers[0].weights[0])
        return cls(d, weight, float(answers[0].sums.max(initial=0.0)))


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """Checked reply: it comes from the right site and answers the right question.

    Parameters
    ----------
    site : SiteInfo
        What the site tells of itself.
    holding : Holding
        What it said of its rows, now or before.
    summaries : list of Summary
        Its answers, one for each task.
    """

    site: SiteInfo
    holding: Holding
    summaries: list[Summary]


def read_reply(
    message: bytes,
    question: Question,
    name: str,
    holding: Holding | None,
    *,
    largest: int = LARGEST,
) -> Reply:
    """Read and check what one site sent.

    Parameters
    ----------
    message : bytes
        What came.
    question : Question
        What was asked.
    name : str
        The site that it came from.
    holding : Holding, optional
        What the site said of its rows before; without it, the first answer says so.
    largest : int
        The most bytes that are read.

    Raises
    ------
    WireError
        If it is too large, of another protocol, site, run or question, not understood, or if
        the site itself reports a failure; where other columns are described than the rows have,
        or an answer has a shape other than its step declares, holds NaN or infinity or a negative
        weight, weighs more than all rows of the site, or says something in a line of weight 0.
    """
    header, arrays = open_reply(message, question, name, largest)
    described = "described" in question.header
    site = read_site(name, header, described=described, labels="labels" in question.header)
    summaries, tasks = read_summaries(arrays), question.tasks
    if holding is None:
        holding = Holding.from_answers(summaries)
        summaries, tasks = summaries[1:], tasks[1:]
    if described and len(site.columns) != holding.n_columns:
        raise WireError(f"{len(site.columns)} columns described, the rows have {holding.n_columns}")
    if len(summaries) != len(tasks):
        raise WireError(f"{len(summaries)} answers to {len(tasks)} tasks")
    for task, summary in zip(tasks, summaries, strict=True):
        try:
            _check_shape(task, summary, holding)
            _check_numbers(summary)
            _check_weights(summary.weights, max(holding.weight, holding.n_rows))
        except WireError as error:
            raise WireError(f"{type(task.step).__name__}: {error}") from error
    known = replace(site, n_rows=holding.n_rows, weight=holding.weight)
    return Reply(known, holding, summaries)


def open_reply(
    message: bytes, question: Question, name: str, largest: int = LARGEST
) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Return the header and the arrays of a reply from the right site to this question.

    Parameters and errors are those of `read_reply`.
    """
    header, arrays = unpack(message, largest)
    if header.get("protocol") != PROTOCOL:
        raise WireError(
            f"the reply is of protocol {header.get('protocol')!r}, here it is {PROTOCOL}: "
            "use the same fedcluster"
        )
    if header.get("site") != name:
        raise WireError(f"it says to come from {header.get('site')!r}, and did not")
    if header.get("question") != digest(question.message):
        raise WireError("it answers another question: a replay, or too late")
    for kind, said in (("refused", "refused the question"), ("failed", "failed, see its log")):
        if kind in header:
            raise WireError(f"{said}: {str(header[kind])[:200]}")
    if any(header.get(key) != question.header[key] for key in ("run", "exchange")):
        raise WireError("it belongs to another round: a replay, or too late")
    return header, arrays


def _check_shape(task: Task, summary: Summary, holding: Holding) -> None:
    """Check that an answer has the shape that its step declares for the rows of the site."""
    given = task.preprocessor
    width = holding.n_columns if given is None else given.n_columns_out
    try:
        lines, p = task.step.answer_shape(task.state, width)
    except Exception as error:
        raise WireError(f"the step does not tell the shape of an answer: {error!r}") from error
    if summary.sums.shape[1] != p or (lines is not None and len(summary.sums) != lines):
        wanted = f"({'any' if lines is None else lines}, {p})"
        raise WireError(f"sums of shape {summary.sums.shape}, where {wanted} was expected")


def _check_numbers(summary: Summary) -> None:
    if not (np.isfinite(summary.sums).all() and np.isfinite(summary.weights).all()):
        raise WireError("it holds NaN or infinity")
    if (summary.weights < 0).any():
        raise WireError(f"a weight is negative: {summary.weights.min():g}")
    if summary.sums[summary.weights == 0].any():
        raise WireError("a line of weight 0 has sums")


def _check_weights(weights: Floats, at_most: float) -> None:
    if weights.size and weights.max() > at_most * SLACK:
        raise WireError(
            f"a line weighs {weights.max():g}, but all rows of the site together {at_most:g}"
        )
