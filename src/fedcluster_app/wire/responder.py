"""The site's end of the wire: questions arrive as bytes, and replies leave as bytes.

A site answers its questions one after another, and work that nobody waits for any more is ended.

An `Auditor` is the interface to the site's permits and its log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from threading import Lock
from typing import Any, Protocol, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from fedcluster import metrics
from fedcluster.core import Column, Introduction, PlannedStep, RowTransform, SiteInfo, Summary, Task
from fedcluster.engines import wire
from fedcluster.errors import EndedError, InputError, PolicyError
from fedcluster.options.refusals import RefusedError
from fedcluster.texts import is_plain, printable
from fedcluster_app.wire.policy import Policy


@dataclass(frozen=True, eq=False)
class Request:
    """A message to a site, in the form in which the site's program passes it on.

    Parameters
    ----------
    content : bytes
        The message as bytes.
    header : mapping
        Its header; empty if it could not be read.
    arrays : mapping of str to ndarray
        Its arrays.
    refused : str
        Why it is refused before any work is done; empty if it is not.

    Examples
    --------
    >>> Request.read(b"?").refused
    'the message has no header that can be read'
    """

    content: bytes
    header: wire.Header = field(default_factory=dict)
    arrays: wire.Arrays = field(default_factory=dict)
    refused: str = ""

    @classmethod
    def read(cls, content: bytes, largest: int = wire.SIZES.largest) -> Self:
        """Read a message of at most ``largest`` bytes; a message that cannot be read is refused."""
        try:
            # Largest number of characters of a text in a request: one names all classes.
            return cls(content, *wire.unpack(content, largest, 1_000_000))
        except wire.WireError as error:
            return cls(content, refused=str(error))

    @cached_property
    def digest(self) -> str:
        """The SHA-256 hash of the message."""
        return sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class AuditEntry:
    """A request to a site with its reply, as the site's audit log records them.

    Parameters
    ----------
    request : Request
        The request.
    reply : bytes
        The reply as bytes.
    tasks : sequence of Task
        The tasks that were answered.
    answers : sequence of Summary
        The answers, one for each task.
    metadata : mapping
        The site's metadata in the reply.
    refused : str
        Why there is no answer, in words for the site; empty if there is one.
    """

    request: Request
    reply: bytes
    tasks: Sequence[Task] = ()
    answers: Sequence[Summary] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""


class Auditor:
    """Interface to a site's permits and log; this base class admits everything and logs nothing."""

    def admit(self, request: Request) -> str:
        """Check that a request may be answered, before any work is done.

        Returns the hash of the last line of the log, which the site sends to the coordinator.

        Raises
        ------
        WireError
            If the request is refused, in words for the coordinator.
        """
        return ""

    def record(self, entry: AuditEntry) -> None:
        """Log what is about to leave; if this raises an error, nothing leaves.

        Raises
        ------
        WireError
            If the request may no longer be answered, in words for the coordinator.
        OSError, InputError
            If the log cannot be written.
        """


REPLACED = "a newer question came"
CANCELLED = "the run was cancelled"

Rank = tuple[int, int]


class RequestQueue:
    """Queue of the requests to a site, each of which comes in its own thread.

    A request waits while another is being answered. If it is newer, that is of a later run or a
    later round of the same run, the older one is ended after a few seconds, because its coordinator
    has continued without the answer. A request whose run is cancelled is ended too. A request that
    cannot be read is refused at once.

    Parameters
    ----------
    respond : callable taking a Request
        Answers a question, or refuses it if ``refused`` is set.
    end : callable taking a str
        Ends the work on a question, which is then answered with the given reason.
    begin : callable taking a str
        Called with the job of each question before it is answered: the coordinator's name for the
        run, which stays the same on resumption, or else the run itself.
    largest : int
        Size in bytes of the largest question that is read.
    """

    grace = 3.0  # seconds that a question waits for an older one before the older one is ended
    remembered = 100  # number of most recent runs that are remembered

    def __init__(
        self,
        respond: Callable[[Request], bytes],
        end: Callable[[str], None],
        begin: Callable[[str], None],
        largest: int = wire.SIZES.largest,
    ) -> None:
        self._answer, self.end, self._begin, self._largest = respond, end, begin, largest
        self._turn, self._state_lock = Lock(), Lock()
        self._runs: dict[str, int] = {}
        self._cancelled: set[int] = set()
        self._working: Rank | None = None

    def reply(self, content: bytes) -> bytes:
        """Return the reply to a question as bytes, when its turn has come."""
        return self.respond(Request.read(content, self._largest))

    def respond(self, request: Request) -> bytes:
        """Return the reply to a question, when its turn has come."""
        header = request.header
        if request.refused:
            return self._answer(request)
        run, exchange = str(header.get("run"))[:100], header.get("exchange")
        rank = self._rank(run), exchange if type(exchange) is int else -1
        if header.get("cancel") is True:
            self._cancel(rank[0])
        with self._turn_of(rank):
            if rank[0] in self._cancelled and header.get("cancel") is not True:
                return self._answer(replace(request, refused=CANCELLED))
            self._begin(wire.about_of(header, "job") or run)
            return self._answer(request)

    def _rank(self, run: str) -> int:
        """Return the rank of a run in the order of first requests."""
        with self._state_lock:
            if run not in self._runs:
                self._runs[run] = 1 + max(self._runs.values(), default=0)
                while len(self._runs) > self.remembered:
                    del self._runs[next(iter(self._runs))]
            return self._runs[run]

    def _cancel(self, run: int) -> None:
        with self._state_lock:
            self._cancelled.add(run)
            if self._working is not None and self._working[0] == run:
                self.end(CANCELLED)

    @contextmanager
    def _turn_of(self, rank: Rank) -> Iterator[None]:
        while not self._turn.acquire(timeout=self.grace):
            with self._state_lock:
                if self._working is not None and self._working < rank:
                    self.end(REPLACED)
        try:
            with self._state_lock:
                self._working = rank
            yield
        finally:
            with self._state_lock:
                self._working = None
            self._turn.release()


LOGGER = logging.getLogger(__name__)


class SiteClient(Protocol):
    """The part of a site's client that questions need, wherever its rows are."""

    @property
    def name(self) -> str:
        """The name of the site."""

    def introduce(self, **requested: Unpack[Introduction]) -> SiteInfo:
        """Return the metadata of the site; see `Engine`."""

    def answers(self, tasks: Sequence[Task]) -> list[Summary]:
        """Return the answers to all tasks of a round."""


class DisclosedColumns:
    """Columns and labels that a site has disclosed, kept for the duration of a run.

    Parameters
    ----------
    client : SiteClient
        The client of the site, with these columns.
    """

    kept = 4  # number of cached descriptions of columns, each for another choice of text columns

    def __init__(self, client: SiteClient) -> None:
        self._client, self._run = client, ""
        self._descriptions: list[tuple[Column, ...]] = []
        self._labels: frozenset[str] | None = None

    def begin(self, run: str) -> None:
        """Forget what was disclosed to another run, because the rows may have changed."""
        if run != self._run:
            self._run, self._descriptions, self._labels = run, [], None

    def introduce(self, **requested: Unpack[Introduction]) -> SiteInfo:
        """Return the metadata of the site, without texts that no message may hold."""
        site = self._client.introduce(**requested)
        columns = (replace(c, levels=tuple(filter(is_plain, c.levels))) for c in site.columns)
        labels = None if site.labels is None else tuple(filter(is_plain, site.labels))
        site = replace(site, columns=tuple(columns), labels=labels)
        if requested.get("columns"):
            self._descriptions = [site.columns, *self._descriptions][: self.kept]
        if requested.get("labels"):
            self._labels = frozenset(site.labels or ())
        return site

    @property
    def width(self) -> int:
        """Return the number of columns, for columns without names."""
        return self._client.introduce().n_columns or len(self._describe(()))

    def answers(self, tasks: Sequence[Task]) -> list[Summary]:
        """Return the answers to tasks, restricted to disclosed levels and labels, and all finite.

        Raises
        ------
        PolicyError
            If a preparation assumes the wrong kind of a column, or an answer is not finite.
        """
        answers = self._client.answers(self.bound(tasks))
        if not all(answer.is_finite for answer in answers):
            raise PolicyError("an answer is not finite")
        return answers

    def bound(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks without levels and labels that the site does not disclose."""
        hows = {id(task.preprocessor): task.preprocessor for task in tasks}
        bound = {key: how and how.disclosed_only(self._describe) for key, how in hows.items()}
        return [self._bound(task, bound[id(task.preprocessor)]) for task in tasks]

    def _bound(self, task: Task, how: RowTransform | None) -> Task:
        step = task.step
        if isinstance(step, metrics.Contingency):
            if self._labels is None:
                self.introduce(labels=True)
            step = step.disclosed_only(self._labels or ())
        return replace(task, step=step, preprocessor=how)

    def _describe(self, texts: Collection[str]) -> tuple[Column, ...]:
        """Return the disclosed columns, with these, and possibly others, described as text."""
        for known in self._descriptions:
            if not any(column.name in texts and column.kind == "number" for column in known):
                return known
        return self.introduce(columns=True, texts=texts).columns


def _identity(request: Request, site: str) -> dict[str, Any]:
    """Return what each reply of a site says: who replies to which question."""
    # Number of digits of a question's hash by which its reply identifies it.
    about = {"question": request.digest[:16], "site": site, **wire.about()}
    return {"protocol": wire.PROTOCOL, **about}


def failed(request: Request, site: str, error: Exception) -> bytes:
    """Return the reply of a site that could not answer, with no more of the error than its kind."""
    return wire.pack({**_identity(request, site), "failed": type(error).__name__}, {})


class SecureSums(Protocol):
    """A site's part in secure sums; see `fedcluster_app.secure.site`."""

    def check(
        self, request: Any, tasks: Sequence[Task], planned: Sequence[PlannedStep] = ()
    ) -> dict[str, Any] | None:
        """Return what a request says about secure sums; refuse what this site does not support."""

    def noise_shares(self, header: wire.Header, request: dict[str, Any] | None) -> int:
        """Return the number of sites that share the noise on a sum."""

    def reply(
        self, header: wire.Header, request: dict[str, Any], *, sends: bool = True
    ) -> dict[str, Any]:
        """Return the answer to a request without tasks; see `masked`."""

    def masked(
        self,
        header: wire.Header,
        request: dict[str, Any],
        content: str,
        tasks: Sequence[Task],
        answers: Sequence[Summary],
        *,
        sends: bool = True,
    ) -> tuple[NDArray[np.uint64], dict[str, Any]]:
        """Return the answers to tasks as masked words, with their metadata.

        With ``sends``, the rules of the site let sums over its rows leave.
        """


class Responder:
    """Site that answers the questions of a coordinator, with one client.

    If a question is repeated, the same reply is sent again: a retry costs no work. Only the kind of
    an error leaves the site, because its text may hold a value; the full error goes to the site's
    own log.

    Parameters
    ----------
    client : Client or the like
        The site.
    columns : sequence of str
        The names of its columns, which are disclosed to the coordinator.
    choose : callable taking a tuple of str, optional
        Returns the client of the site with the columns that the coordinator asks for, in that
        order; with ``raw=True``, rows are not prepared yet.
    steps : mapping of str to type
        The steps that it knows, as returned by `steps_by_name`.
    preparations : callable, optional
        Creates a preparation from its plain form; without it, no rows are prepared.
    policy : Policy, optional
        Defines what may be asked; by default what the steps declare.
    auditor : Auditor, optional
        Decides whether a question may be answered, and logs each reply before it leaves; if it
        cannot, nothing leaves except that something failed.
    keep : callable taking a dict, optional
        Receives the final model, as in ``model.json``. What it does, and for how long, must not
        depend on the rows: a malicious coordinator could craft a model that fails, for instance, on
        rows with a negative value.
    secure : SecureSums, optional
        Masks what leaves, so that a coordinator learns only sums over all sites.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster.engines.client import Client
    >>> from fedcluster.core import Data
    >>> from fedcluster.engines.wire import unpack
    >>> site = Responder(Client("north", Data(np.eye(3))))
    >>> header, _ = wire.unpack(site.reply(wire.pack({"protocol": 0}, {})))
    >>> header["site"], header["refused"]
    ('north', 'the question is of protocol 0, this site speaks 1; this site has fedcluster ...')
    """

    def __init__(
        self,
        client: SiteClient,
        *,
        columns: Sequence[str] = (),
        choose: Callable[..., SiteClient] | None = None,
        steps: wire.Steps = wire.STEPS,
        preprocessors: wire.Preprocessors | None = None,
        policy: Policy | None = None,
        auditor: Auditor | None = None,
        keep: Callable[[dict[str, Any]], None] | None = None,
        secure: SecureSums | None = None,
    ) -> None:
        self.name, self.columns = client.name, tuple(columns)
        self._own, self._choose, self._policy = client, choose, policy or Policy()
        self._key, self._known = (self.columns, False), DisclosedColumns(client)
        self._steps, self._preprocessors = steps, preprocessors
        self._auditor, self._keep, self._secure = auditor or Auditor(), keep, secure
        self._last: AuditEntry | None = None

    def reply(self, content: bytes) -> bytes:
        """Return the reply to a question as bytes; this never raises an error."""
        return self.respond(Request.read(content))

    def respond(self, request: Request) -> bytes:
        """Return the reply to a request, or its refusal; this never raises an error."""
        me = _identity(request, self.name)
        try:
            if request.refused:
                raise wire.WireError(request.refused)
            return self._reply(request, me)
        except (
            EndedError,
            PolicyError,
            RefusedError,
            wire.WireError,
        ) as error:  # the message contains no value
            reason = str(error)
            if isinstance(error, wire.UnknownError):
                reason += wire.versions(request.header, "this site", "the coordinator")
            # Largest number of characters of the reason for a refusal, which may quote the
            # question.
            reason = printable(reason[:300])
            LOGGER.warning("a question was refused: %s", reason)
            outcome = {"refused": reason}
        except Exception as error:
            whole = not isinstance(error, InputError)
            LOGGER.error("a question could not be answered: %s", error, exc_info=whole)
            outcome = {"failed": type(error).__name__}
            reason = f"{type(error).__name__}, see what the site's program says"
        return self._recorded(AuditEntry(request, wire.pack({**me, **outcome}, {}), refused=reason))

    def _recorded(self, entry: AuditEntry) -> bytes:
        """Log an entry and return its reply, or if logging fails a reply that only says so."""
        try:
            self._auditor.record(entry)
        except Exception as error:
            LOGGER.error("the log cannot be written: %s", error)
            return failed(entry.request, self.name, error)
        return entry.reply

    def _reply(self, request: Request, me: dict[str, Any]) -> bytes:
        header = request.header
        if header.get("protocol") != wire.PROTOCOL:
            raise wire.UnknownError(
                f"the question is of protocol {header.get('protocol')}, this site speaks "
                f"{wire.PROTOCOL}"
            )
        wire.check_known(header, wire.QUESTION, "the question")
        echo = {**me, "run": header.get("run"), "exchange": header.get("exchange")}
        if header.get("cancel") is True:  # the earlier question was already ended
            cancelled = AuditEntry(request, wire.pack(echo, {}), refused="the run was cancelled")
            return self._recorded(cancelled)
        log = self._auditor.admit(request)
        if "model" in header:
            self._policy.check(header)
            self._auditor.record(AuditEntry(request, wire.pack(echo, {})))
            if self._keep is not None:
                self._keep(header["model"])
            return wire.pack(echo, {})
        if self._last is None or self._last.request.content != request.content:
            # otherwise the question is a repetition, and gets the same reply
            self._last = self._answered(request, echo, log)
        self._auditor.record(self._last)
        return self._last.reply

    def _answered(self, request: Request, echo: dict[str, Any], log: str) -> AuditEntry:
        """Answer a request for metadata and tasks; ``log`` is the hash of the log's last line."""
        header = request.header
        headers = header.get("tasks", ())
        self._policy.check_tasks(headers)
        planned = self._planned(header)
        tasks = wire.read_tasks(headers, request.arrays, self._steps, self._preprocessors)
        tasks = list(self._check_secure(header, tasks, planned))
        columns, texts = self._columns(header.get("columns")), _names(header.get("described", ()))
        known = self._client(columns, raw=header.get("raw") is True)
        self._policy.check(header, tasks, columns, len(columns) or known.width)
        known.begin(echo["run"])
        wanted: Introduction = {"columns": "described" in header, "labels": "labels" in header}
        wanted |= {"texts": texts, "steps": planned}
        secure = self._secure is not None
        site = known.introduce(**wanted, **({"sends": True} if secure else {}))
        refuses = site.refuses or self._policy.refuses
        left = self._policy.left
        site = replace(site, log=log, secure=secure, refuses=refuses, left=left)
        answers, stated = known.answers(tasks), wire.write_site(site)
        keys = (*wire.STATED, *(key for key in wire.ASKED if key in header))
        metadata = {key: stated[key] for key in keys}
        more, numbers = self._leaving(request, tasks, answers, sends=site.sends)
        reply = wire.pack({**echo, "columns": columns, **metadata, **more}, numbers)
        return AuditEntry(request, reply, tasks, answers, metadata)

    def _planned(self, header: wire.Header) -> list[PlannedStep]:
        """Return the planned steps of a run; refuse the run if this site will refuse one of them.

        Otherwise, a run would fail only in its last round, after all the work.
        """
        planned = wire.planned_of(header)
        self._policy.check_tasks(planned)
        steps = wire.read_steps(planned, self._steps)
        self._policy.check_planned(steps)
        return steps

    def _check_secure(
        self, header: wire.Header, tasks: Sequence[Task], planned: Sequence[PlannedStep]
    ) -> Sequence[Task]:
        """Check, before any work, that the secure sums requested are those that this site gives.

        Returns the tasks, with the number of sites that share the noise of the answers.
        """
        if self._secure is not None:
            sums = self._secure.check(header.get("sums"), tasks, planned)
            shares = self._secure.noise_shares(header, sums)
            return [replace(task, shares=shares) for task in tasks]
        if "sums" in header:
            raise wire.WireError(
                "this site has no keys for secure sums: write secure = true under [federation] in "
                "its site.toml"
            )
        return tasks

    def _leaving(
        self, request: Request, tasks: Sequence[Task], answers: Sequence[Summary], *, sends: bool
    ) -> tuple[wire.Header, wire.Arrays]:
        """Return the part of the answers that leaves: as they are, or as masked words.

        With ``sends``, the rules of the site let sums over its rows leave.
        """
        header = request.header
        if self._secure is None:
            return {}, wire.write_summaries(answers)
        sums = self._secure.check(header.get("sums"), tasks)
        if sums is None:
            return {}, {}
        if not tasks:
            return {"sums": self._secure.reply(header, sums, sends=sends)}, {}
        content = wire.content_digest(header, request.arrays)
        words, offer = self._secure.masked(header, sums, content, tasks, answers, sends=sends)
        # the bits of integers, sent as doubles
        return {"sums": offer}, {"masked": words.view(np.float64)}

    def _columns(self, columns: Any) -> tuple[str, ...]:
        """Return the requested columns, by default those of the site."""
        chosen = self.columns if columns is None else _names(columns)
        if self.columns and not chosen:  # an empty choice means all columns
            raise wire.WireError("no column is asked for: name some, or leave the list out")
        if not set(chosen) <= set(self.columns) or len(set(chosen)) < len(chosen):
            raise self._no_others()
        return chosen

    def _client(self, columns: tuple[str, ...], *, raw: bool) -> DisclosedColumns:
        """Return the client of the site with these columns, cached for the next question."""
        if (columns, raw) != self._key:
            client = self._own
            if (columns, raw) != (self.columns, False):
                if self._choose is None:
                    raise self._no_others()
                client = self._choose(columns, **({"raw": True} if raw else {}))
            self._key, self._known = (columns, raw), DisclosedColumns(client)
        return self._known

    def _no_others(self) -> wire.WireError:
        return wire.WireError(f"this site has the columns {', '.join(self.columns)} and no others")


def _names(value: Any) -> tuple[str, ...]:
    if not wire.is_texts(value):
        raise wire.WireError("the columns that are asked for are not a list of names")
    return tuple(value)
