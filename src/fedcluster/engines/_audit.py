"""Interface between a site's responder and what keeps the site's permits and its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedcluster.core import Summary, Task
from fedcluster.engines._wire import Header


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """Question to a site and its reply, for the site's own log.

    Parameters
    ----------
    question, reply : bytes
        How they travel.
    header : mapping
        The header of the question, empty where it could not be read.
    tasks : sequence of Task
        The tasks that were answered.
    answers : sequence of Summary
        The answers, one for each task.
    told : mapping
        What the site tells of itself besides, as it travels.
    refused : str
        Why there is no answer, in words for the site; empty where there is one.
    """

    question: bytes
    reply: bytes
    header: Mapping[str, Any] = field(default_factory=dict)
    tasks: Sequence[Task] = ()
    answers: Sequence[Summary] = ()
    told: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""


class Auditor(Protocol):
    """Keeper of a site's permits and of its log."""

    def admit(self, question: bytes, header: Header) -> str:
        """Check that a question may be answered, before any work is done.

        Returns the hash of the last line of the log, which the site tells the coordinator.

        Raises
        ------
        WireError
            If not, in words for the coordinator.
        """
        ...

    def record(self, exchange: Exchange) -> None:
        """Write down what is about to leave; where this raises, nothing leaves.

        Raises
        ------
        WireError
            If it may be answered no longer, in words for the coordinator.
        OSError, InputError
            If it cannot be written down.
        """
        ...


class _NoAudit:
    def admit(self, question: bytes, header: Header) -> str:
        """Admit a question."""
        return ""

    def record(self, exchange: Exchange) -> None:
        """Write nothing."""


NO_AUDIT: Auditor = _NoAudit()
"""Keeper of nothing: every question is admitted, and none is written down."""
