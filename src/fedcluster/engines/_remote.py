"""Engine that asks sites over a network; a `Transport` carries the bytes."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from fedcluster.core import Answers, SiteInfo, State, Task
from fedcluster.engines._replies import Holding, Question, Reply, open_reply, read_reply
from fedcluster.engines._wire import LARGEST, WireError
from fedcluster.errors import SiteError
from fedcluster.metrics import SiteSize

LOGGER = logging.getLogger(__name__)

SITE_SIZE = Task(SiteSize(), State())
T = TypeVar("T")


class Transport(Protocol):
    """Carrier of messages to sites and of their replies."""

    def exchange(
        self, messages: Mapping[str, bytes], enough: int
    ) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        """Send each site its message and wait.

        Returns what came, by site, and why the others' replies did not. May return before its
        deadline where ``enough`` replies are there and no other can be expected.
        """
        ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """Site whose answer to one exchange, counted from 1, is not in a result, and why."""

    site: str
    exchange: int
    reason: str


class RemoteEngine:
    """Ask sites over a network.

    All tasks of a round travel in one message to each site. Replies are held against the question
    and against what the site said of its rows; one that is not believed is refused with its
    reason, and the round goes on if enough others answered.

    Parameters
    ----------
    transport : Transport
        Who carries the messages.
    sites : iterable of str
        The names of the sites.
    quorum : int, optional
        The smallest number of sites that must answer a round; by default all that are asked.
    largest : int
        Bytes of the largest reply that is read.

    Attributes
    ----------
    refusals : list of Refusal
        Who is missing in which exchange, and why.

    Raises
    ------
    ValueError
        If there is no site, or the quorum is not between 1 and their number.
    """

    def __init__(
        self,
        transport: Transport,
        sites: Iterable[str],
        *,
        quorum: int | None = None,
        largest: int = LARGEST,
    ) -> None:
        self._sites = {name: SiteInfo(name, answered=False) for name in sorted(sites)}
        if not self._sites:
            raise ValueError("no site was given")
        if quorum is not None and not 1 <= quorum <= len(self._sites):
            raise ValueError(f"quorum must be from 1 to {len(self._sites)} sites, not {quorum}")
        self._transport, self._quorum, self._largest = transport, quorum, largest
        self._run, self._exchanges = secrets.token_hex(8), 0
        self._holdings: dict[str, Holding] = {}
        self._chosen: dict[str, Any] = {}
        self.refusals: list[Refusal] = []

    def introduce(
        self, *, columns: bool = False, texts: Collection[str] = (), labels: bool = False
    ) -> tuple[SiteInfo, ...]:
        """Return what the sites tell of themselves, see `Engine`.

        Without columns or labels, sites are asked only while none has told what it holds. What
        one does not answer now is as it was told before.

        Raises
        ------
        SiteError
            If fewer sites than the quorum gave an answer that is believed.
        """
        asked: dict[str, Any] = {"described": sorted(texts)} if columns else {}
        asked |= {"labels": True} if labels else {}
        if not asked and self._holdings:
            return tuple(self._sites.values())
        replies = self._round([], self._sites, asked)
        return tuple(replace(site, answered=name in replies) for name, site in self._sites.items())

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Carry all tasks of one round to the named sites.

        Raises
        ------
        SiteError
            If fewer sites than the quorum gave an answer that is believed.
        """
        replies = self._round(tasks, self._sites if sites is None else sites, {})
        missing = tuple(name for name in self._sites if name not in replies)
        return [
            Answers({name: reply.summaries[t] for name, reply in replies.items()}, missing)
            for t in range(len(tasks))
        ]

    def choose(self, columns: Sequence[str] | None, *, raw: bool = False) -> None:
        """From now on ask about these columns, in this order.

        Parameters
        ----------
        columns : sequence of str or None
            Their names; None for those that each site has.
        raw : bool
            Whether they are still to be prepared: text and missing values are allowed.
        """
        for site in self._sites.values():
            told = [column.name for column in site.columns]
            if raw != ("raw" in self._chosen) or told != list(columns or told):
                self._holdings.pop(site.name, None)
        self._chosen = {} if columns is None else {"columns": list(columns)}
        self._chosen |= {"raw": True} if raw else {}

    def give(self, model: Mapping[str, Any]) -> tuple[str, ...]:
        """Send every site the model that they found; return the sites that have it."""
        question = Question.from_tasks({**self._header(), "model": model})
        kept, _ = self._exchange(
            dict.fromkeys(self._sites, question.message),
            lambda name, came: open_reply(came, question, name, self._largest),
        )
        return tuple(kept)

    def _round(
        self, tasks: Sequence[Task], sites: Iterable[str], more: Mapping[str, Any]
    ) -> dict[str, Reply]:
        """Carry out one exchange; return the replies that are believed, by site in their order.

        Sites that have not told yet what they hold are asked that, too.
        """
        asked, header = set(sites), {**self._header(), **more}
        old, new = (Question.from_tasks(header, each) for each in (tasks, [SITE_SIZE, *tasks]))
        questions = {
            name: old if name in self._holdings else new for name in self._sites if name in asked
        }

        def read(name: str, came: bytes) -> Reply:
            before = self._holdings.get(name)
            reply = read_reply(came, questions[name], name, before, largest=self._largest)
            self._holdings[name], self._sites[name] = reply.holding, reply.site
            return reply

        messages = {name: question.message for name, question in questions.items()}
        replies, reasons = self._exchange(messages, read)
        enough = self._enough(len(questions))
        if len(replies) < enough:
            each = "; ".join(f"{name}: {reasons[name]}" for name in questions if name in reasons)
            raise SiteError(
                f"round {self._exchanges}: {len(replies)} of {len(questions)} sites answered, "
                f"where {enough} are needed ({each})"
            )
        return replies

    def _header(self) -> dict[str, Any]:
        return {"run": self._run, "exchange": self._exchanges, **self._chosen}

    def _exchange(
        self, messages: Mapping[str, bytes], read: Callable[[str, bytes], T]
    ) -> tuple[dict[str, T], Mapping[str, str]]:
        """Return what could be read of the replies, by site, and why others could not."""
        came, absent = self._transport.exchange(messages, self._enough(len(messages)))
        self._exchanges += 1
        replies: dict[str, T] = {}
        reasons = dict(absent)
        for name in messages:
            if name in came:
                try:
                    replies[name] = read(name, came[name])
                except WireError as error:
                    reasons[name] = str(error)
        for name in sorted(reasons):
            self.refusals.append(Refusal(name, self._exchanges, reasons[name]))
            LOGGER.warning("round %d, site %r: %s", self._exchanges, name, reasons[name])
        return replies, reasons

    def _enough(self, asked: int) -> int:
        return asked if self._quorum is None else min(self._quorum, asked)
