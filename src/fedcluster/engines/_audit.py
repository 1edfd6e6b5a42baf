"""Request to a site, read once, and the interface to what keeps the site's permits and its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, Self

from fedcluster.core import Summary, Task
from fedcluster.engines._wire import LARGEST, Arrays, Header, WireError, unpack

LONGEST_TEXT = 1_000_000
"""Characters of the longest text of a request: one names all classes."""


@dataclass(frozen=True, eq=False)
class Request:
    """Message to a site, as its program passes it on from hand to hand.

    Parameters
    ----------
    content : bytes
        How it travels.
    header : mapping
        Its header, empty where it could not be read.
    arrays : mapping of str to ndarray
        Its arrays.
    refused : str
        Why it is refused before anything is done, empty where it is not.

    Examples
    --------
    >>> Request.read(b"?").refused
    'the message has no header that can be read'
    """

    content: bytes
    header: Header = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)
    refused: str = ""

    @classmethod
    def read(cls, content: bytes, largest: int = LARGEST) -> Self:
        """Read a message of so many bytes at most; one that cannot be read is refused."""
        try:
            return cls(content, *unpack(content, largest, LONGEST_TEXT))
        except WireError as error:
            return cls(content, refused=str(error))

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the message."""
        return sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class AuditEntry:
    """Request to a site and its reply, for the site's own log.

    Parameters
    ----------
    request : Request
        The request.
    reply : bytes
        The reply, as it travels.
    tasks : sequence of Task
        The tasks that were answered.
    answers : sequence of Summary
        The answers, one for each task.
    metadata : mapping
        What the site tells of itself besides, as it travels.
    refused : str
        Why there is no answer, in words for the site; empty where there is one.
    """

    request: Request
    reply: bytes
    tasks: Sequence[Task] = ()
    answers: Sequence[Summary] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""


class Auditor:
    """Keeper of a site's permits and of its log; this one admits all, and writes nothing."""

    def admit(self, request: Request) -> str:
        """Check that a request may be answered, before any work is done.

        Returns the hash of the last line of the log, which the site tells the coordinator.

        Raises
        ------
        WireError
            If not, in words for the coordinator.
        """
        return ""

    def record(self, entry: AuditEntry) -> None:
        """Write down what is about to leave; where this raises, nothing leaves.

        Raises
        ------
        WireError
            If it may be answered no longer, in words for the coordinator.
        OSError, InputError
            If it cannot be written down.
        """
