"""Engine that asks sites over a network and checks every reply; a `Transport` carries the bytes.

The coordinator accepts nothing unchecked: see `read_reply`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, Unpack

from fedcluster.core import (
    Answers,
    FirstTasks,
    Floats,
    Introduction,
    SiteInfo,
    State,
    Summary,
    Task,
)
from fedcluster.engines import wire
from fedcluster.engines.reply_validation import (
    NOTHING_STATED,
    ReplyBounds,
    check_answer,
    implausible,
    sized,
)
from fedcluster.errors import CancelledError, SiteError, listed
from fedcluster.metrics.moments import SiteSize
from fedcluster.options.refusals import refusal_in

LOGGER = logging.getLogger(__name__)


HASH = 64
"""Number of digits of a hash of a line in a site's log."""

SITE_SIZE = Task(SiteSize(), State())
T = TypeVar("T")


class Transport(Protocol):
    """Transport that carries messages to sites and brings back their replies."""

    def exchange(
        self, messages: Mapping[str, bytes], enough: int
    ) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        """Send each site its message and wait for the replies.

        Returns the replies by site, and the reasons for missing ones. May return before its
        deadline if there are ``enough`` replies and no other can be expected. Raises
        CancelledError, once, if the run is cancelled; then the sites are informed.
        """


@dataclass(frozen=True, slots=True)
class Refusal:
    """A site whose answer to one exchange, counted from 1, is missing from a result, and why."""

    site: str
    exchange: int
    reason: str


class RemoteEngine:
    """Engine that asks sites over a network.

    All tasks of a round travel in one message to each site. Replies are checked against the
    question and against what the site reported about its rows; an implausible one is refused with a
    reason, and the round continues if enough others answered.

    Parameters
    ----------
    transport : Transport
        The carrier of the messages.
    sites : iterable of str
        The names of the sites.
    quorum : int, optional
        The smallest number of sites that must answer a round; by default all sites asked.
    largest : int
        Size in bytes of the largest reply that is read.
    permit : str, optional
        The permit under which the sites are asked.
    bounds : ReplyBounds
        The bounds against which replies are checked.

    Attributes
    ----------
    refusals : list of Refusal
        The sites missing in each exchange, and why.

    Raises
    ------
    ValueError
        If there is no site, or the quorum is not between 1 and their number.
    """

    asks_early = False
    """Whether the first tasks are asked along with the columns: where a round costs much, even if
    they have to be asked again, as where a column holds text."""

    def __init__(
        self,
        transport: Transport,
        sites: Iterable[str],
        *,
        quorum: int | None = None,
        largest: int = wire.SIZES.largest,
        permit: str | None = None,
        bounds: ReplyBounds = NOTHING_STATED,
    ) -> None:
        self._sites = {name: SiteInfo(name, answered=False) for name in sorted(sites)}
        if not self._sites:
            raise ValueError("no site was given")
        if quorum is not None and not 1 <= quorum <= len(self._sites):
            raise ValueError(f"quorum must be from 1 to {len(self._sites)} sites, not {quorum}")
        self._transport, self._quorum, self._largest = transport, quorum, largest
        self._run, self._exchanges = secrets.token_hex(8), 0
        self._bounds = bounds
        self._terms: dict[str, Any] = wire.about() | ({} if permit is None else {"permit": permit})
        self._chosen: dict[str, Any] = {}
        self._logs: dict[str, str] = {}
        self._plan_sent = True
        self._early: dict[str, dict[str, Summary]] = {}
        self._early_numbers: dict[str, int] = {}
        self.refusals: list[Refusal] = []

    @property
    def stated_rows(self) -> dict[str, float]:
        """Number of rows that each site is stated to have, or their total weight if larger."""
        sized = (site for site in self._sites.values() if site.n_columns is not None)
        return {site.name: max(site.n_rows or 0.0, site.weight or 0.0) for site in sized}

    def introduce(self, **requested: Unpack[Introduction]) -> tuple[SiteInfo, ...]:
        """Return the metadata of the sites; see `Engine`.

        Without columns or labels, sites are asked only if none has reported its metadata yet, or if
        they do not know the planned steps yet. For a site that does not answer now, its earlier
        report is used.

        Raises
        ------
        SiteError
            If fewer sites than the quorum gave a valid answer; with a quorum, if a site outweighs
            the others and no bound on its rows is stated.
        InputError
            If the reason is a site's refusal of something incompatible with its protection.
        """
        more = self._introduction(requested)
        known = any(site.n_columns is not None for site in self._sites.values())
        if not more and known and self._plan_sent:
            return tuple(self._sites.values())
        is_early = self.asks_early and requested.get("columns")
        first = requested.get("first_tasks") if is_early else None
        replies = self._round([], self._sites, more, first)
        self._plan_sent = True
        return tuple(replace(site, answered=name in replies) for name, site in self._sites.items())

    def _keep(self, first: FirstTasks, came: Mapping[str, list[Summary]]) -> None:
        """Keep the answers that came along with descriptions, for the next round.

        One that is not accepted is forgotten, as a site that told of its columns may take part.
        """
        self._early, sound = {}, {}
        self._early_numbers = {n: sum(each.n_values for each in own) for n, own in came.items()}
        for name, answers in came.items():
            with suppress(wire.WireError):
                _check(first(self._sites[name].columns), answers, self._sites[name], self._bounds)
                sound[name] = answers
        for name in sound.keys() - implausible(sound).keys():
            for task, answer in zip(first(self._sites[name].columns), sound[name], strict=True):
                self._early.setdefault(Question({}, [task]).content, {})[name] = answer

    def _introduction(self, requested: Introduction) -> dict[str, Any]:
        """Return the non-task part of a message; the planned steps are included from now on."""
        if steps := wire.write_steps(requested.get("steps", ())):
            self._plan_sent &= steps == self._terms["about"].get("steps")
            self._terms["about"] |= {"steps": steps}
        more: dict[str, Any] = {}
        more |= (
            {"described": sorted(requested.get("texts", ()))} if requested.get("columns") else {}
        )
        return more | ({"labels": True} if requested.get("labels") else {})

    def ask(self, tasks: Sequence[Task], sites: Iterable[str] | None = None) -> list[Answers]:
        """Carry all tasks of one round to the named sites.

        Raises
        ------
        SiteError
            If fewer sites than the quorum gave a valid answer.
        """
        recipients = set(self._sites if sites is None else sites)
        replies, enough = self._known(tasks, recipients), self._enough(len(recipients))
        early: Mapping[str, int] = {}
        if replies is None:  # no replies: the answers that came with the introduction are dropped
            replies, early = self._round(tasks, recipients, {}), self._early_numbers
        self._early_numbers = {}
        missing = tuple(name for name in self._sites if name not in replies)
        return [
            Answers(
                {name: reply[t] for name, reply in replies.items()},
                missing,
                enough,
                early={} if t else early,
            )
            for t in range(len(tasks))
        ]

    def _known(
        self, tasks: Sequence[Task], recipients: Collection[str]
    ) -> dict[str, list[Summary]] | None:
        """Return the answers that came along with descriptions, if they are to these tasks."""
        came, self._early = self._early, {}
        by_task = [came.get(Question({}, [task]).content, {}) for task in tasks] if came else []
        if not by_task or not all(set(recipients) <= each.keys() for each in by_task):
            return None
        return {n: [each[n] for each in by_task] for n in self._sites if n in recipients}

    def choose(self, columns: Sequence[str] | None, *, raw: bool = False) -> None:
        """Ask about these columns, in this order, from now on.

        Parameters
        ----------
        columns : sequence of str or None
            Their names; None for those that each site has.
        raw : bool, default=False
            Whether the rows are not prepared yet, so that text and missing values are allowed.
        """
        for name, site in self._sites.items():
            named = [column.name for column in site.columns]
            if raw != ("raw" in self._chosen) or named != list(columns or named):
                self._sites[name] = replace(site, n_columns=None)
        self._chosen = {} if columns is None else {"columns": list(columns)}
        self._chosen |= {"raw": True} if raw else {}

    def choose_publicly(self, columns: Sequence[str]) -> None:
        """Ask about these columns from now on, without asking sites for their columns or rows.

        This is for answers with noise, because the size of a site is an exact count.
        """
        self._chosen = {"columns": list(columns), "raw": True}
        for name, site in self._sites.items():
            self._sites[name] = replace(site, n_columns=len(columns), n_rows=None, weight=None)

    @property
    def log_heads(self) -> dict[str, str]:
        """The hash of the last line of each site's log, as far as sites have told it."""
        return {name: site.log for name, site in self._sites.items() if len(site.log) == HASH}

    def name_job(
        self, name: str, logs: Mapping[str, str] = MappingProxyType({}), **about: str
    ) -> None:
        """Tell the sites the name of this run from now on, which stays the same on resumption.

        A site answers all questions of one job from the same rows, or not at all. The operator
        and the last line of the coordinator's log, ``about``, are named for the sites' logs, which
        cannot verify them. The first messages have what is known of the sites' logs by earlier
        runs, so that a site notices an older copy of itself.
        """
        self._terms["about"] |= {"job": name, **about}
        self._logs = {site: logs[site] for site in self._sites if site in logs}

    def give(self, model: Mapping[str, Any]) -> tuple[str, ...]:
        """Send every site the final model; return the sites that received it."""
        question = Question({**self._header(), "model": model})
        kept, _ = self._exchange(
            dict.fromkeys(self._sites, question.message),
            lambda name, came: open_reply(came, question, name, self._largest),
        )
        return tuple(kept)

    def _round(
        self,
        tasks: Sequence[Task],
        sites: Iterable[str],
        more: Mapping[str, Any],
        first: FirstTasks | None = None,
    ) -> dict[str, list[Summary]]:
        """Carry out one exchange; return the valid answers by site, in order.

        Sites that have not reported their metadata yet are asked for it too.
        """
        recipients, header = set(sites), {**self._header(), **more}
        along, early = () if first is None else first(None), dict[str, list[Summary]]()
        old, new = (Question(header, each, along) for each in (tasks, [SITE_SIZE, *tasks]))
        questions = {
            name: new if site.n_columns is None else old
            for name, site in self._sites.items()
            if name in recipients
        }

        def read(name: str, came: bytes) -> list[Summary]:
            site = self._sites[name]
            terms = self._largest, self._bounds
            self._sites[name], answers = read_reply(came, questions[name], site, *terms)
            early[name] = answers[len(tasks) :]
            return answers[: len(tasks)]

        messages = {name: question.message for name, question in questions.items()}
        replies, reasons = self._exchange(messages, read)
        if first is not None:
            self._keep(first, early)
        if self._quorum is not None and new in questions.values():
            self._bounds.check_together(self.stated_rows, len(self._sites) - self._quorum)
        for name, reason in implausible(replies).items():
            del replies[name]
            reasons[name] = reason
            self._refuse(name, reason)
        enough = self._enough(len(questions))
        if len(replies) < enough:
            named = {name: reasons[name] for name in questions if name in reasons}
            if refusals := list(filter(None, map(refusal_in, named.values()))):
                raise refusals[0]
            raise SiteError(
                f"round {self._exchanges}: {len(replies)} of {len(questions)} sites answered, "
                f"where {enough} are needed ({by_reason(named)})"
            )
        return replies

    def _header(self) -> dict[str, Any]:
        header: dict[str, Any] = {"run": self._run, "exchange": self._exchanges}
        header |= {**self._terms, **self._chosen}
        # wait until each site has answered
        if not all(self._sites[name].log for name in self._logs):
            known = {wire.log_key(name): line for name, line in self._logs.items()}
            header["about"] = {**header["about"], "logs": known}
        return header

    def _exchange(
        self, messages: Mapping[str, bytes], read: Callable[[str, bytes], T]
    ) -> tuple[dict[str, T], dict[str, str]]:
        """Return the replies that could be read, by site, and why the others could not."""
        try:
            came, absent = self._transport.exchange(messages, self._enough(len(messages)))
        except CancelledError:
            cancel = Question({**self._header(), "cancel": True}).message
            self._transport.exchange(dict.fromkeys(self._sites, cancel), 0)
            raise
        self._exchanges += 1
        replies: dict[str, T] = {}
        reasons = dict(absent)
        for name in messages:
            if name in came:
                try:
                    replies[name] = read(name, came[name])
                except wire.WireError as error:
                    reasons[name] = str(error)
        for name in sorted(reasons):
            self._refuse(name, reasons[name])
        return replies, reasons

    def _refuse(self, name: str, reason: str) -> None:
        self.refusals.append(Refusal(name, self._exchanges, reason))
        LOGGER.warning("round %d, site %r: %s", self._exchanges, name, reason)

    def _enough(self, n_recipients: int) -> int:
        return n_recipients if self._quorum is None else min(self._quorum, n_recipients)


@dataclass(frozen=True, eq=False)
class Question:
    """A request to a site, with which its reply is compared.

    Parameters
    ----------
    header : mapping
        The run, the number of the exchange in it, from 0, and any requests other than tasks.
    tasks : sequence of Task
        The tasks.
    along : sequence of Task
        Tasks in which a site fills in its own columns; their answers are still to be checked.
    """

    header: Mapping[str, Any]
    tasks: Sequence[Task] = ()
    along: Sequence[Task] = ()

    @cached_property
    def message(self) -> bytes:
        """Return the message that carries the question."""
        return wire.pack(*self._parts)

    @property
    def content(self) -> str:
        """Return the hash of the question; see `content_digest`."""
        return wire.content_digest(*self._parts)

    @property
    def _parts(self) -> tuple[dict[str, Any], dict[str, Floats]]:
        headers, arrays = wire.write_tasks([*self.tasks, *self.along])
        return {"protocol": wire.PROTOCOL, **self.header, "tasks": headers}, arrays


def read_reply(
    message: bytes,
    question: Question,
    before: SiteInfo,
    largest: int = wire.SIZES.largest,
    bounds: ReplyBounds = NOTHING_STATED,
) -> tuple[SiteInfo, list[Summary]]:
    """Read and check the reply of one site.

    Parameters
    ----------
    message : bytes
        The reply.
    question : Question
        The question.
    before : SiteInfo
        What is known of the replying site; if its number of columns is not known, the first answer
        holds the size of its rows.
    largest : int
        The largest number of bytes that is read.
    bounds : ReplyBounds
        The bounds against which the reply is checked.

    Returns
    -------
    site : SiteInfo
        The site's metadata, with the size of its rows as reported now or earlier.
    summaries : list of Summary
        Its answers, one for each task, and those to the tasks that go along.

    Raises
    ------
    WireError
        If the reply is too large, belongs to another protocol, site, run or question, or is not
        understood; if the site reports a failure; if the described columns are not those of the
        rows; or if an answer has a shape other than its step declares, holds NaN, infinity or a
        negative weight, weighs more than all rows of the site, has numbers in a line of weight 0,
        or is out of bounds.
    """
    header, arrays = open_reply(message, question, before.name, largest)
    described, labels = (key in question.header for key in ("described", "labels"))
    known = replace(before, answered=True)
    try:
        site = wire.read_site(known, header, described=described, labels=labels)
    except wire.UnknownError as error:
        both = wire.versions(header, "the coordinator", "the site")
        raise wire.WireError(f"{error}{both}") from error
    summaries, tasks = wire.read_summaries(arrays), question.tasks
    if site.n_columns is None:
        site = sized(site, summaries, bounds)
        summaries, tasks = summaries[1:], tasks[1:]
    if not described and len(site.columns) > (site.n_columns or 0):
        raise wire.WireError(f"{len(site.columns)} columns named, the rows have {site.n_columns}")
    if described and len(site.columns) != site.n_columns:
        raise wire.WireError(
            f"{len(site.columns)} columns described, the rows have {site.n_columns}"
        )
    if len(summaries) < len(question.along):
        raise wire.WireError(f"{len(summaries)} answers to {len(question.along)} tasks")
    checked = summaries[: len(summaries) - len(question.along)]
    _check(tasks, checked, site, bounds, question.header.get("columns"))
    return site, summaries


def _check(
    tasks: Sequence[Task],
    summaries: Sequence[Summary],
    site: SiteInfo,
    bounds: ReplyBounds,
    columns: Sequence[str] | None = None,
) -> None:
    """Check the answers of a site; see `check_answer`."""
    if len(summaries) != len(tasks):
        raise wire.WireError(f"{len(summaries)} answers to {len(tasks)} tasks")
    for task, summary in zip(tasks, summaries, strict=True):
        try:
            check_answer(task, summary, site, bounds, columns)
        except wire.WireError as error:
            raise wire.WireError(f"{type(task.step).__name__}: {error}") from error


def open_reply(
    message: bytes, question: Question, name: str, largest: int = wire.SIZES.largest
) -> tuple[dict[str, Any], dict[str, Floats]]:
    """Return the header and the arrays of the right site's reply to this question.

    Parameters and errors are those of `read_reply`.
    """
    header, arrays = wire.unpack(message, largest)
    if header.get("protocol") != wire.PROTOCOL:
        raise wire.WireError(
            f"the reply is of protocol {header.get('protocol')!r}, here it is {wire.PROTOCOL}"
            f"{wire.versions(header, 'the coordinator', 'the site')}"
        )
    if header.get("site") != name:
        raise wire.WireError(f"it says to come from {header.get('site')!r}, and did not")
    if header.get("question") != wire.digest(question.message):
        raise wire.WireError("it answers another question: a replay, or too late")
    for kind, words in (("refused", "refused the question"), ("failed", "failed, see its log")):
        if kind in header:
            # Number of characters of a site's reason that are read.
            raise wire.WireError(f"{words}: {str(header[kind])[:300]}")
    if any(header.get(key) != question.header[key] for key in ("run", "exchange")):
        raise wire.WireError("it belongs to another round: a replay, or too late")
    return header, arrays


def by_reason(reasons: Mapping[str, str]) -> str:
    """Return why sites did not answer: each reason once, with all its sites.

    Examples
    --------
    >>> by_reason({"north": "silent", "south": "refused", "west": "silent"})
    'north and west: silent; south: refused'
    """
    sites: dict[str, list[str]] = {}
    for site, reason in reasons.items():
        sites.setdefault(reason, []).append(site)
    return "; ".join(f"{listed(names)}: {reason}" for reason, names in sites.items())
