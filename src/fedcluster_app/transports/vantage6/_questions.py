"""Questions in vantage6: a function for each kind, with readable arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedcluster.core import Floats
from fedcluster.engines.wire import (
    PROTOCOL,
    WireError,
    digest,
    pack,
    step_of,
    steps_by_name,
    unpack,
)

STEPS = steps_by_name()
KINDS = ("site_facts", "row_summaries", "column_sums", "cluster_sums", "cluster_scores", "profiles")
"""The partial functions."""

PLACES = {
    "fedcluster.algorithms.summaries": "row_summaries",
    "fedcluster.algorithms.variance_tree": "row_summaries",
    "fedcluster.algorithms": "cluster_sums",
    "fedcluster.metrics.columns": "profiles",
    "fedcluster.metrics.moments": "column_sums",
    "fedcluster.metrics": "cluster_scores",
    "fedcluster.preprocessing": "column_sums",
}
"""Kinds of questions by the module of their step; the first match is used."""

ARGUMENTS = ("about", "columns", "described", "exchange", "labels", "raw", "run", "tasks")
"""Parts of a question other than its numbers."""


def kind_of(step: str) -> str:
    """Return the function that answers a step.

    Examples
    --------
    >>> kind_of("Lloyd"), kind_of("SiteSize"), kind_of("Inertia")
    ('cluster_sums', 'site_facts', 'cluster_scores')
    """
    if step == "SiteSize":
        return "site_facts"
    if step not in STEPS:
        raise WireError(f"step {step!r} is not known")
    module = step_of(STEPS[step]).__module__
    return next(kind for place, kind in PLACES.items() if module.startswith(place))


def question_of(arguments: Mapping[str, Any]) -> bytes:
    """Return the message that arguments represent, the same at both ends.

    Raises
    ------
    WireError
        If the arguments are not understood.
    """
    header = {key: arguments[key] for key in ARGUMENTS if arguments.get(key) is not None}
    return pack({"protocol": PROTOCOL, **header}, read_numbers(arguments.get("states") or {}))


def parts_of(message: bytes) -> dict[str, tuple[dict[str, Any], list[int]]]:
    """Return the arguments of each function that a question is for, with the task numbers."""
    header, arrays = unpack(message)
    tasks = header["tasks"]
    kinds: dict[str, list[int]] = {}
    for i, task in enumerate(tasks):
        kinds.setdefault(kind_of(task["step"]), []).append(i)
    parts = {}
    for kind, numbers in (kinds or {"site_facts": []}).items():
        own: dict[str, Floats] = {}
        for new, i in enumerate(numbers):
            of_task = {n.partition(".")[2]: a for n, a in arrays.items() if n.startswith(f"{i}.")}
            own |= {f"{new}.{name}": array for name, array in of_task.items()}
        asked = {**header, "tasks": _chosen(tasks, numbers)}
        arguments = {key: asked[key] for key in ARGUMENTS if key in asked}
        parts[kind] = {**arguments, "states": write_numbers(own)}, numbers
    return parts


def _chosen(tasks: Sequence[Mapping[str, Any]], numbers: Sequence[int]) -> list[Mapping[str, Any]]:
    """Return some tasks; a repeated preparation is given by its number, others completely."""
    first: dict[int, int] = {}
    chosen = []
    for new, i in enumerate(numbers):
        how = tasks[i].get("preprocessing")
        if how is None:
            chosen.append(tasks[i])
            continue
        source = how if type(how) is int else i
        known = first.setdefault(source, new)
        whole = tasks[source]["preprocessing"]
        chosen.append({**tasks[i], "preprocessing": whole if known == new else known})
    return chosen


def joined(replies: Sequence[tuple[bytes, Sequence[int]]], question: str) -> bytes:
    """Return the replies of all functions as one reply to the whole question."""
    headers, answers = [], {}
    for content, numbers in replies:
        header, arrays = unpack(content)
        headers.append(header)
        for name, array in arrays.items():
            place, _, part = name.partition(".")
            answers[f"{numbers[int(place)]}.{part}"] = array
    bad = [each for each in headers if "refused" in each or "failed" in each]
    return pack({**(bad or headers)[0], "question": question}, {} if bad else answers)


def write_numbers(arrays: Mapping[str, Floats]) -> dict[str, Any]:
    """Return arrays as JSON-compatible values, with all digits."""
    return {n: {"shape": list(a.shape), "values": a.ravel().tolist()} for n, a in arrays.items()}


def read_numbers(plain: Mapping[str, Any]) -> dict[str, Floats]:
    """Return the arrays that `write_numbers` wrote.

    Raises
    ------
    WireError
        If they are not arrays.
    """
    try:
        return {
            str(name): np.array(each["values"], np.float64).reshape(each["shape"])
            for name, each in plain.items()
        }
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise WireError("the numbers are not understood") from error


Tasks = Callable[[str, Mapping[str, Any], Sequence[int]], Any]
"""Function that starts a task at organisations; it returns a function that waits for results."""


class Vantage6Transport:
    """Transport in which an exchange is a task for each kind of question, all started at once.

    Parameters
    ----------
    create : callable
        See `Tasks`.
    organizations : mapping of str to int
        The organisations by name of site.

    Attributes
    ----------
    exchanges : int
        The number of exchanges.
    """

    def __init__(self, create: Tasks, organizations: Mapping[str, int]) -> None:
        self._create, self._organizations = create, organizations
        self.exchanges = 0

    def exchange(
        self, messages: Mapping[str, bytes], enough: int
    ) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        """Ask each site and wait for all."""
        self.exchanges += 1
        asked: dict[bytes, list[str]] = {}
        for name, message in messages.items():
            asked.setdefault(message, []).append(name)
        ids = {m: [self._organizations[name] for name in asked[m]] for m in asked}
        begun = [
            (message, arguments, numbers, self._create(kind, arguments, ids[message]))
            for message in asked
            for kind, (arguments, numbers) in parts_of(message).items()
        ]
        came: dict[str, list[tuple[bytes, Sequence[int]]]] = {}
        for message, arguments, numbers, results in begun:
            for name, content in _replies(results(), digest(question_of(arguments))).items():
                if name in asked[message]:
                    came.setdefault(name, []).append((content, numbers))
        replies = {
            name: joined(came[name], digest(message))
            for name, message in messages.items()
            if len(came.get(name, ())) == len(parts_of(message))
        }
        return replies, {n: "no result that can be read" for n in messages if n not in replies}


def _replies(results: Sequence[Any], question: str) -> dict[str, bytes]:
    """Return results by the site that they name, dropping a site that two results name.

    Results for a question with another digest are ignored.
    """
    found: dict[str, list[bytes]] = {}
    for result in results:
        try:
            name, asked = str(result["facts"]["site"]), result["facts"]["question"]
            content = pack(result["facts"], read_numbers(result["sums"]))
        except (LookupError, TypeError, WireError):
            continue
        if asked == question:
            found.setdefault(name, []).append(content)
    return {name: each[0] for name, each in found.items() if len(each) == 1}
