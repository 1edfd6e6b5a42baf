"""Site's end of the wire: questions come as bytes, replies leave as bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedcluster._refusals import RefusedError
from fedcluster._texts import printable
from fedcluster.core import Introduction, PlannedStep, Summary, Task
from fedcluster.engines._audit import NO_AUDIT, Auditor, Exchange
from fedcluster.engines._protocol import (
    QUESTION,
    UnknownError,
    about,
    check_known,
    planned_of,
    versions,
)
from fedcluster.engines._told import SiteClient, Told
from fedcluster.engines._wire import (
    ASKED,
    PROTOCOL,
    STATED,
    STEPS,
    Arrays,
    Header,
    Preprocessors,
    Steps,
    WireError,
    content_digest,
    digest,
    is_texts,
    pack,
    read_steps,
    read_tasks,
    unpack,
    write_site,
    write_summaries,
)
from fedcluster.errors import EndedError, InputError
from fedcluster.privacy._ledger import PolicyError
from fedcluster.privacy._policy import Policy

LOGGER = logging.getLogger(__name__)

LONGEST_TEXT = 1_000_000
"""Characters of the longest text of a question: one names all classes."""

LONGEST = 300
"""Characters of the reason for a refusal, which may quote the question."""

MOST_CLIENTS = 3
"""Choices of columns that are remembered besides the site's own."""


class SecureSums(Protocol):
    """Site's part in secure sums, see `fedcluster.secure._site`."""

    def check(
        self, asked: Any, tasks: Sequence[Task], planned: Sequence[PlannedStep] = ()
    ) -> dict[str, Any] | None:
        """Return what is asked of secure sums; refuse what is not given, before any work."""

    def noise_shares(self, header: Header, asked: dict[str, Any] | None) -> int:
        """Return by how many sites the noise on a sum is shared."""

    def said(self, header: Header, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a question that has no tasks."""

    def masked(
        self,
        header: Header,
        asked: dict[str, Any],
        content: str,
        tasks: Sequence[Task],
        answers: Sequence[Summary],
    ) -> tuple[NDArray[np.uint64], dict[str, Any]]:
        """Return the answers to tasks as masked words, and what goes with them."""


class Responder:
    """Site that answers the questions of a coordinator, with one client.

    Asked again the same question, it sends the same reply again: a retry costs no work. What goes
    wrong at the site leaves it as the kind of the error alone, because the text of an error may
    hold a value; the whole error goes to the site's own log.

    Parameters
    ----------
    client : Client or the like
        The site.
    columns : sequence of str
        The names of its columns, which it tells the coordinator.
    choose : callable taking a tuple of str, optional
        The same site with the columns that the coordinator asks for, in their order; with
        ``raw=True`` of rows that are still to be prepared.
    steps : mapping of str to type
        The steps that it knows, as `steps_by_name` gives them.
    preparations : callable, optional
        Makes a preparation of its plain form; without it no rows are prepared.
    policy : Policy, optional
        Says what may be asked at all; by default what the steps declare.
    auditor : Auditor, optional
        Says whether a question may be answered, and writes down each reply before it leaves; where
        it cannot, nothing leaves but that something failed.
    keep : callable taking a dict, optional
        Receives the model that the sites found, as ``model.json`` holds it. What it does, and for
        how long, must not depend on the rows: a model of the coordinator's making could be one that
        cannot label a row which has a negative value.
    secure : SecureSums, optional
        Masks what leaves; then sums of all sites are all that a coordinator learns.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster.client import Client
    >>> from fedcluster.core import Data
    >>> site = Responder(Client("north", Data(np.eye(3))))
    >>> header, _ = unpack(site.reply(pack({"protocol": 0}, {})))
    >>> header["site"], header["refused"]
    ('north', 'the question is of protocol 0, this site speaks 1; this site has fedcluster ...')
    """

    def __init__(
        self,
        client: SiteClient,
        *,
        columns: Sequence[str] = (),
        choose: Callable[..., SiteClient] | None = None,
        steps: Steps = STEPS,
        preprocessors: Preprocessors | None = None,
        policy: Policy | None = None,
        auditor: Auditor = NO_AUDIT,
        keep: Callable[[dict[str, Any]], None] | None = None,
        secure: SecureSums | None = None,
    ) -> None:
        self.name, self.columns = client.name, tuple(columns)
        self._first, self._policy = Told(client), policy or Policy()
        self._clients, self._choose = {(self.columns, False): self._first}, choose
        self._steps, self._preprocessors = steps, preprocessors
        self._auditor, self._keep, self._secure = auditor, keep, secure
        self._last: Exchange | None = None

    def reply(self, question: bytes, refused: str = "") -> bytes:
        """Return the reply to a question, refused unread where a reason is given; never raises."""
        me = {"protocol": PROTOCOL, "question": digest(question), "site": self.name, **about()}
        header: Header = {}
        try:
            if refused:
                raise WireError(refused)
            header, arrays = unpack(question, longest=LONGEST_TEXT)
            return self._reply(question, header, arrays, me)
        except (EndedError, PolicyError, RefusedError, WireError) as error:  # no value is in it
            said = str(error)
            if isinstance(error, UnknownError):
                said += versions(header, "this site", "the coordinator")
            reason = printable(said[:LONGEST])
            LOGGER.warning("a question was refused: %s", reason)
            told = {"refused": reason}
        except Exception as error:
            whole = not isinstance(error, InputError)
            LOGGER.error("a question could not be answered: %s", error, exc_info=whole)
            told = {"failed": type(error).__name__}
            reason = f"{type(error).__name__}, see what the site's program says"
        complaint = pack({**me, **told}, {})
        return self._complaint(Exchange(question, complaint, header, refused=reason), me)

    def _complaint(self, exchange: Exchange, me: dict[str, Any]) -> bytes:
        """Return a reply without an answer; only that there is none, if it cannot be logged."""
        try:
            self._auditor.record(exchange)
        except Exception as error:
            LOGGER.error("the log cannot be written: %s", error)
            return pack({**me, "failed": type(error).__name__}, {})
        return exchange.reply

    def _reply(self, question: bytes, header: Header, arrays: Arrays, me: dict[str, Any]) -> bytes:
        if header.get("protocol") != PROTOCOL:
            raise UnknownError(
                f"the question is of protocol {header.get('protocol')}, this site speaks {PROTOCOL}"
            )
        check_known(header, QUESTION, "the question")
        echo = {**me, "run": header.get("run"), "exchange": header.get("exchange")}
        if header.get("cancel") is True:  # what was worked on has been ended before this turn
            cancelled = Exchange(question, pack(echo, {}), header, refused="the run was cancelled")
            return self._complaint(cancelled, me)
        log = self._auditor.admit(question, header)
        if "model" in header:
            self._policy.check(header)
            self._auditor.record(Exchange(question, pack(echo, {}), header))
            if self._keep is not None:
                self._keep(header["model"])
            return pack(echo, {})
        if self._last is None or self._last.question != question:  # else it is a repetition
            self._last = self._answered(Exchange(question, b"", header), arrays, echo, log)
        self._auditor.record(self._last)
        return self._last.reply

    def _answered(
        self, asked: Exchange, arrays: Arrays, echo: dict[str, Any], log: str
    ) -> Exchange:
        """Answer what is asked of the site itself and tasks; ``log`` is its log's last hash."""
        header = asked.header
        headers = header.get("tasks", ())
        self._policy.check_tasks(headers)
        planned = self._planned(header)
        tasks = read_tasks(headers, arrays, self._steps, self._preprocessors)
        tasks = list(self._check_secure(header, tasks, planned))
        columns, texts = self._columns(header.get("columns")), _names(header.get("described", ()))
        self._policy.check(header, tasks, columns, len(columns) or self._first.width)
        known = self._client(columns, raw=header.get("raw") is True)
        known.begin(echo["run"])
        wanted: Introduction = {"columns": "described" in header, "labels": "labels" in header}
        wanted |= {"texts": texts, "steps": planned}
        secure = self._secure is not None
        site = replace(known.introduce(**wanted), log=log, secure=secure)
        answers, told = known.answers(tasks), write_site(site)
        told = {key: told[key] for key in (*STATED, *(key for key in ASKED if key in header))}
        said, numbers = self._leaving(header, arrays, tasks, answers)
        reply = pack({**echo, "columns": columns, **told, **said}, numbers)
        return replace(asked, reply=reply, tasks=tasks, answers=answers, told=told)

    def _planned(self, header: Header) -> list[PlannedStep]:
        """Return the steps that a run will ask; refuse it if this site will refuse one of them.

        Else a run would find out in its last round, after all the work.
        """
        planned = planned_of(header)
        self._policy.check_tasks(planned)
        steps = read_steps(planned, self._steps)
        self._policy.check_planned(steps)
        return steps

    def _check_secure(
        self, header: Header, tasks: Sequence[Task], planned: Sequence[PlannedStep]
    ) -> Sequence[Task]:
        """Check that what is asked of secure sums is what this site gives, before any work.

        Returns the tasks, with how far the sites share the noise of the answers.
        """
        if self._secure is not None:
            asked = self._secure.check(header.get("sums"), tasks, planned)
            shares = self._secure.noise_shares(header, asked)
            return [replace(task, shares=shares) for task in tasks]
        if "sums" in header:
            raise WireError(
                "this site has no keys for secure sums: write secure = true under [federation] in "
                "its site.toml"
            )
        return tasks

    def _leaving(
        self, header: Header, arrays: Arrays, tasks: Sequence[Task], answers: Sequence[Summary]
    ) -> tuple[Header, Arrays]:
        """Return what leaves of the answers: as they are, or as masked words."""
        if self._secure is None:
            return {}, write_summaries(answers)
        asked = self._secure.check(header.get("sums"), tasks)
        if asked is None:
            return {}, {}
        if not tasks:
            return {"sums": self._secure.said(header, asked)}, {}
        content = content_digest(header, arrays)
        words, said = self._secure.masked(header, asked, content, tasks, answers)
        return {"sums": said}, {"masked": words.view(np.float64)}  # bits, not numbers

    def _columns(self, columns: Any) -> tuple[str, ...]:
        """Return the columns that are asked for, by default those of the site."""
        chosen = self.columns if columns is None else _names(columns)
        if self.columns and not chosen:  # or all of them would be told where none is permitted
            raise WireError("no column is asked for: name some, or leave the list out")
        if not set(chosen) <= set(self.columns) or len(set(chosen)) < len(chosen):
            raise self._no_others()
        return chosen

    def _client(self, columns: tuple[str, ...], *, raw: bool) -> Told:
        """Return the site with these columns."""
        key = columns, raw
        if key not in self._clients:
            if self._choose is None:
                raise self._no_others()
            chosen = self._choose(columns, **({"raw": True} if raw else {}))
            kept = list(self._clients.items())
            self._clients = dict([*kept[:1], *kept[1:][-MOST_CLIENTS:], (key, Told(chosen))])
        return self._clients[key]

    def _no_others(self) -> WireError:
        return WireError(f"this site has the columns {', '.join(self.columns)} and no others")


def _names(given: Any) -> tuple[str, ...]:
    if not is_texts(given):
        raise WireError("the columns that are asked for are not a list of names")
    return tuple(given)
