"""Site's end of the wire: questions come as bytes, replies leave as bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Protocol, Unpack

import numpy as np
from numpy.typing import NDArray

from fedcluster._refusals import RefusedError
from fedcluster._texts import is_plain, printable
from fedcluster.core import Column, Introduction, PlannedStep, RowTransform, SiteInfo, Summary, Task
from fedcluster.engines._audit import AuditEntry, Auditor, Request
from fedcluster.engines._protocol import (
    QUESTION,
    UnknownError,
    about,
    check_known,
    planned_of,
    versions,
)
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
    is_texts,
    pack,
    read_steps,
    read_tasks,
    write_site,
    write_summaries,
)
from fedcluster.errors import EndedError, InputError
from fedcluster.metrics.external import Contingency
from fedcluster.privacy._ledger import PolicyError
from fedcluster.privacy._policy import Policy

LOGGER = logging.getLogger(__name__)

LONGEST = 300
"""Characters of the reason for a refusal, which may quote the question."""

DIGITS = 16
"""Digits of the hash of a question by which its reply names it."""

KEPT = 4
"""Descriptions of columns that are kept, each with other columns as text."""

MOST_CLIENTS = 3
"""Choices of columns that are remembered besides the site's own."""


class SiteClient(Protocol):
    """Client of a site as far as questions need it, wherever its rows are."""

    @property
    def name(self) -> str:
        """Name of the site."""

    def introduce(self, **asked: Unpack[Introduction]) -> SiteInfo:
        """Return what the site tells of itself, see `Engine`."""

    def answers(self, tasks: Sequence[Task]) -> list[Summary]:
        """Return the answers to all tasks of a round."""


class DisclosedColumns:
    """What a site tells of some of its columns and its labels, remembered within a run.

    Parameters
    ----------
    client : SiteClient
        The site with these columns.
    """

    def __init__(self, client: SiteClient) -> None:
        self._client, self._run = client, ""
        self._descriptions: list[tuple[Column, ...]] = []
        self._labels: frozenset[str] | None = None

    def begin(self, run: str) -> None:
        """Forget what another run was told: the rows may be others by now."""
        if run != self._run:
            self._run, self._descriptions, self._labels = run, [], None

    def introduce(self, **asked: Unpack[Introduction]) -> SiteInfo:
        """Return what the site tells of itself."""
        site = _tellable(self._client.introduce(**asked))
        if asked.get("columns"):
            self._descriptions = [site.columns, *self._descriptions][:KEPT]
        if asked.get("labels"):
            self._labels = frozenset(site.labels or ())
        return site

    @property
    def width(self) -> int:
        """Return how many columns there are, for where they have no names to be counted by."""
        return self._client.introduce().n_columns or len(self._describe(()))

    def answers(self, tasks: Sequence[Task]) -> list[Summary]:
        """Return the answers to tasks, bound to what the site tells; they are finite.

        Raises
        ------
        PolicyError
            If a preparation takes a column for what it is not, or an answer is not finite.
        """
        answers = self._client.answers(self.bound(tasks))
        if not all(answer.is_finite for answer in answers):
            raise PolicyError("an answer is not finite")
        return answers

    def bound(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks without levels and labels that the site does not tell."""
        hows = {id(task.preprocessor): task.preprocessor for task in tasks}
        bound = {key: how and how.told_only(self._describe) for key, how in hows.items()}
        return [self._bound(task, bound[id(task.preprocessor)]) for task in tasks]

    def _bound(self, task: Task, how: RowTransform | None) -> Task:
        step = task.step
        if isinstance(step, Contingency):
            if self._labels is None:
                self.introduce(labels=True)
            step = step.told_only(self._labels or ())
        return replace(task, step=step, preprocessor=how)

    def _describe(self, texts: Collection[str]) -> tuple[Column, ...]:
        """Return the columns as the site tells of them, with these as text and maybe others."""
        for known in self._descriptions:
            if not any(column.name in texts and column.kind == "number" for column in known):
                return known
        return self.introduce(columns=True, texts=texts).columns


def _tellable(site: SiteInfo) -> SiteInfo:
    """Return a site without the texts and labels that no message may hold: see `is_plain`."""
    columns = (replace(c, levels=tuple(filter(is_plain, c.levels))) for c in site.columns)
    labels = None if site.labels is None else tuple(filter(is_plain, site.labels))
    return replace(site, columns=tuple(columns), labels=labels)


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
    >>> from fedcluster.engines._wire import unpack
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
        auditor: Auditor | None = None,
        keep: Callable[[dict[str, Any]], None] | None = None,
        secure: SecureSums | None = None,
    ) -> None:
        self.name, self.columns = client.name, tuple(columns)
        self._first, self._policy = DisclosedColumns(client), policy or Policy()
        self._clients, self._choose = {(self.columns, False): self._first}, choose
        self._steps, self._preprocessors = steps, preprocessors
        self._auditor, self._keep, self._secure = auditor or Auditor(), keep, secure
        self._last: AuditEntry | None = None

    def reply(self, content: bytes) -> bytes:
        """Return the reply to a question as it travels; never raises."""
        return self.respond(Request.read(content))

    def respond(self, request: Request) -> bytes:
        """Return the reply to a question, refused where it says why; never raises."""
        me = {
            "protocol": PROTOCOL,
            "question": request.digest[:DIGITS],
            "site": self.name,
            **about(),
        }
        try:
            if request.refused:
                raise WireError(request.refused)
            return self._reply(request, me)
        except (EndedError, PolicyError, RefusedError, WireError) as error:  # no value is in it
            reason = str(error)
            if isinstance(error, UnknownError):
                reason += versions(request.header, "this site", "the coordinator")
            reason = printable(reason[:LONGEST])
            LOGGER.warning("a question was refused: %s", reason)
            outcome = {"refused": reason}
        except Exception as error:
            whole = not isinstance(error, InputError)
            LOGGER.error("a question could not be answered: %s", error, exc_info=whole)
            outcome = {"failed": type(error).__name__}
            reason = f"{type(error).__name__}, see what the site's program says"
        return self._recorded(AuditEntry(request, pack({**me, **outcome}, {}), refused=reason), me)

    def _recorded(self, entry: AuditEntry, me: dict[str, Any]) -> bytes:
        """Return a reply without an answer; only that there is none, if it cannot be logged."""
        try:
            self._auditor.record(entry)
        except Exception as error:
            LOGGER.error("the log cannot be written: %s", error)
            return pack({**me, "failed": type(error).__name__}, {})
        return entry.reply

    def _reply(self, request: Request, me: dict[str, Any]) -> bytes:
        header = request.header
        if header.get("protocol") != PROTOCOL:
            raise UnknownError(
                f"the question is of protocol {header.get('protocol')}, this site speaks {PROTOCOL}"
            )
        check_known(header, QUESTION, "the question")
        echo = {**me, "run": header.get("run"), "exchange": header.get("exchange")}
        if header.get("cancel") is True:  # what was worked on has been ended before this turn
            cancelled = AuditEntry(request, pack(echo, {}), refused="the run was cancelled")
            return self._recorded(cancelled, me)
        log = self._auditor.admit(request)
        if "model" in header:
            self._policy.check(header)
            self._auditor.record(AuditEntry(request, pack(echo, {})))
            if self._keep is not None:
                self._keep(header["model"])
            return pack(echo, {})
        if self._last is None or self._last.request.content != request.content:
            self._last = self._answered(request, echo, log)  # else it is a repetition
        self._auditor.record(self._last)
        return self._last.reply

    def _answered(self, request: Request, echo: dict[str, Any], log: str) -> AuditEntry:
        """Answer what is asked of the site itself and tasks; ``log`` is its log's last hash."""
        header = request.header
        headers = header.get("tasks", ())
        self._policy.check_tasks(headers)
        planned = self._planned(header)
        tasks = read_tasks(headers, request.arrays, self._steps, self._preprocessors)
        tasks = list(self._check_secure(header, tasks, planned))
        columns, texts = self._columns(header.get("columns")), _names(header.get("described", ()))
        self._policy.check(header, tasks, columns, len(columns) or self._first.width)
        known = self._client(columns, raw=header.get("raw") is True)
        known.begin(echo["run"])
        wanted: Introduction = {"columns": "described" in header, "labels": "labels" in header}
        wanted |= {"texts": texts, "steps": planned}
        secure = self._secure is not None
        site = replace(known.introduce(**wanted), log=log, secure=secure)
        answers, stated = known.answers(tasks), write_site(site)
        keys = (*STATED, *(key for key in ASKED if key in header))
        metadata = {key: stated[key] for key in keys}
        more, numbers = self._leaving(request, tasks, answers)
        reply = pack({**echo, "columns": columns, **metadata, **more}, numbers)
        return AuditEntry(request, reply, tasks, answers, metadata)

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
        self, request: Request, tasks: Sequence[Task], answers: Sequence[Summary]
    ) -> tuple[Header, Arrays]:
        """Return what leaves of the answers: as they are, or as masked words."""
        header = request.header
        if self._secure is None:
            return {}, write_summaries(answers)
        asked = self._secure.check(header.get("sums"), tasks)
        if asked is None:
            return {}, {}
        if not tasks:
            return {"sums": self._secure.said(header, asked)}, {}
        content = content_digest(header, request.arrays)
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

    def _client(self, columns: tuple[str, ...], *, raw: bool) -> DisclosedColumns:
        """Return the site with these columns."""
        key = columns, raw
        if key not in self._clients:
            if self._choose is None:
                raise self._no_others()
            chosen = DisclosedColumns(self._choose(columns, **({"raw": True} if raw else {})))
            kept = list(self._clients.items())
            self._clients = dict([*kept[:1], *kept[1:][-MOST_CLIENTS:], (key, chosen)])
        return self._clients[key]

    def _no_others(self) -> WireError:
        return WireError(f"this site has the columns {', '.join(self.columns)} and no others")


def _names(given: Any) -> tuple[str, ...]:
    if not is_texts(given):
        raise WireError("the columns that are asked for are not a list of names")
    return tuple(given)
