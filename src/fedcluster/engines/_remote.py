"""Asking sites that are elsewhere; who carries the bytes is another's matter."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

from fedcluster.core import Answers, SiteInfo, State, Task
from fedcluster.engines._replies import (
    Holding,
    Question,
    Reply,
    ReplyError,
    check_receipt,
    read_reply,
)
from fedcluster.engines._wire import LARGEST, PROTOCOL, pack, write_tasks
from fedcluster.errors import SiteError
from fedcluster.metrics import SiteSize

LOGGER = logging.getLogger(__name__)

SITE_SIZE = Task(SiteSize(), State())
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Transport(Protocol):
    """Carries messages to sites and brings back what they reply."""

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
    """A site whose answer to one exchange, counted from 1, is not in a result, and why."""

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
        self._columns: list[str] | None = None
        self._raw = False
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
        asked: dict[str, Any] = {"describe": sorted(texts)} if columns else {}
        asked |= {"labels": True} if labels else {}
        if not asked and self._holdings:
            return tuple(self._sites.values())
        validated = self._round([], None, asked)
        return tuple(
            replace(site, answered=name in validated) for name, site in self._sites.items()
        )

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Carry all tasks of one round to the named sites.

        Raises
        ------
        SiteError
            If fewer sites than the quorum gave an answer that is believed.
        """
        validated = self._round(tasks, sites)
        missing = tuple(name for name in self._sites if name not in validated)
        return [
            Answers({name: reply.summaries[t] for name, reply in validated.items()}, missing)
            for t in range(len(tasks))
        ]

    def _round(
        self, tasks: Sequence[Task], sites: Iterable[str] | None, more: Mapping[str, Any] = NOTHING
    ) -> dict[str, Reply]:
        """One exchange; the replies that are believed, in the order of the names."""
        asked = [
            name for name in self._sites if name in set(self._sites if sites is None else sites)
        ]
        questions = self._questions(asked, tasks, more)
        came, reasons = self._exchange(questions)
        validated: dict[str, Reply] = {}
        for name in asked:
            if name in came:
                try:
                    validated[name] = self._validated(name, came[name], questions[name], tasks)
                except ReplyError as error:
                    reasons[name] = str(error)
        self._record_refusals(reasons)
        self._check_quorum(len(validated), asked, reasons)
        return validated

    def choose(self, columns: Sequence[str] | None, *, raw: bool = False) -> None:
        """From now on ask about these columns, in this order.

        Parameters
        ----------
        columns : sequence of str or None
            Their names; None for those that each site has.
        raw : bool
            Whether they are still to be prepared: text and missing values are allowed.
        """
        asked = None if columns is None else tuple(columns)
        for site in self._sites.values():
            told = tuple(column.name for column in site.columns)
            if raw != self._raw or told != (asked or told):
                self._holdings.pop(site.name, None)
        self._columns, self._raw = None if asked is None else list(asked), raw

    def give(self, model: Mapping[str, Any]) -> tuple[str, ...]:
        """Send every site the model that they found; returns the sites that have it."""
        message = pack({**self._header(), "model": model}, {})
        question = Question(self._run, self._exchanges, (), message)
        came, reasons = self._exchange(dict.fromkeys(self._sites, question))
        kept = []
        for name, reply in came.items():
            try:
                check_receipt(reply, question, name, largest=self._largest)
                kept.append(name)
            except ReplyError as error:
                reasons[name] = str(error)
        self._record_refusals(reasons)
        return tuple(sorted(kept))

    def _questions(
        self, asked: Sequence[str], tasks: Sequence[Task], more: Mapping[str, Any]
    ) -> dict[str, Question]:
        """What each site is asked: new ones also what they hold."""
        old, new = (self._question(each, more) for each in (tasks, [SITE_SIZE, *tasks]))
        return {name: old if name in self._holdings else new for name in asked}

    def _question(self, tasks: Sequence[Task], more: Mapping[str, Any]) -> Question:
        headers, arrays = write_tasks(tasks)
        message = pack({**self._header(), **more, "tasks": headers}, arrays)
        asks = {"describes": "describe" in more, "labels": "labels" in more}
        return Question(self._run, self._exchanges, tasks, message, **asks)

    def _header(self) -> dict[str, Any]:
        header = {"protocol": PROTOCOL, "run": self._run, "exchange": self._exchanges}
        chosen = {} if self._columns is None else {"columns": self._columns}
        return {**header, **chosen, **({"raw": True} if self._raw else {})}

    def _exchange(
        self, questions: Mapping[str, Question]
    ) -> tuple[Mapping[str, bytes], dict[str, str]]:
        messages = {name: question.message for name, question in questions.items()}
        came, reasons = self._transport.exchange(messages, self._enough(len(messages)))
        self._exchanges += 1
        return came, dict(reasons)

    def _enough(self, asked: int) -> int:
        return asked if self._quorum is None else min(self._quorum, asked)

    def _validated(
        self, name: str, came: bytes, question: Question, tasks: Sequence[Task]
    ) -> Reply:
        """The reply of one site, checked, without what the site holds."""
        reply = read_reply(came, question, name, largest=self._largest)
        holding = self._holdings.get(name)
        if holding is None:
            holding = Holding.from_answers(reply.summaries)
            reply = replace(reply, summaries=reply.summaries[1:])
        reply.check(tasks, holding)
        self._holdings[name] = holding
        self._sites[name] = replace(reply.site, n_rows=holding.n_rows, weight=holding.weight)
        return reply

    def _record_refusals(self, reasons: Mapping[str, str]) -> None:
        for name in sorted(reasons):
            self.refusals.append(Refusal(name, self._exchanges, reasons[name]))
            LOGGER.warning("round %d, site %r: %s", self._exchanges, name, reasons[name])

    def _check_quorum(self, n: int, asked: Sequence[str], reasons: Mapping[str, str]) -> None:
        enough = self._enough(len(asked))
        if n < enough:
            each = "; ".join(f"{name}: {reasons[name]}" for name in asked if name in reasons)
            raise SiteError(
                f"round {self._exchanges}: {n} of {len(asked)} sites answered, where {enough} are "
                f"needed ({each})"
            )
