"""Site's end of the wire: questions come as bytes, replies leave as bytes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from fedcluster.core import SiteInfo, Summary, Task
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
    digest,
    is_texts,
    pack,
    read_tasks,
    unpack,
    write_site,
    write_summaries,
)
from fedcluster.errors import EndedError, InputError

LOGGER = logging.getLogger(__name__)

Line = dict[str, Any]
"""One line of the log of what left: sizes, never a value."""


class SiteClient(Protocol):
    """Client of a site as far as questions need it, wherever its rows are."""

    @property
    def name(self) -> str:
        """Name of the site."""

    def introduce(
        self, *, columns: bool = False, texts: Collection[str] = (), labels: bool = False
    ) -> SiteInfo:
        """Return what the site tells of itself, see `Engine`."""

    def answers(self, tasks: Sequence[Task]) -> list[Summary]:
        """Return the answers to all tasks of a round."""


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
    log : callable taking a list of dict, optional
        Receives the lines of the log of each reply before it leaves; where it fails, nothing
        leaves.
    keep : callable taking a dict, optional
        Receives the model that the sites found, as ``model.json`` holds it.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster.client import Client
    >>> from fedcluster.core import Data
    >>> site = Responder(Client("north", Data(np.eye(3))))
    >>> header, _ = unpack(site.reply(pack({"protocol": 0}, {})))
    >>> header["site"], header["refused"]
    ('north', 'the question is of protocol 0, this site speaks 1: use the same fedcluster')
    """

    def __init__(
        self,
        client: SiteClient,
        *,
        columns: Sequence[str] = (),
        choose: Callable[..., SiteClient] | None = None,
        steps: Steps = STEPS,
        preprocessors: Preprocessors | None = None,
        log: Callable[[list[Line]], None] | None = None,
        keep: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.name, self.columns = client.name, tuple(columns)
        self._clients, self._choose = {(self.columns, False): client}, choose
        self._steps, self._preprocessors = steps, preprocessors
        self._log, self._keep = log, keep
        self._answers: dict[str, tuple[bytes, list[Line]]] = {}

    def reply(self, question: bytes, refused: str = "") -> bytes:
        """Return the reply to a question, refused unread where a reason is given; never raises."""
        me = {"protocol": PROTOCOL, "question": digest(question), "site": self.name}
        try:
            if refused:
                raise WireError(refused)
            return self._reply(question, me)
        except (WireError, EndedError) as error:  # about the question; no value of a row is in it
            LOGGER.warning("a question was refused: %s", error)
            return self._complaint({**me, "refused": str(error)})
        except Exception as error:
            whole = not isinstance(error, InputError)
            LOGGER.error("a question could not be answered: %s", error, exc_info=whole)
            return self._complaint({**me, "failed": type(error).__name__})

    def _complaint(self, header: dict[str, Any]) -> bytes:
        """Return a reply without an answer, logged if the log can be written."""
        reply = pack(header, {})
        if self._log is not None:
            with suppress(OSError):
                self._log([{"task": "none", "bytes": len(reply)}])
        return reply

    def _reply(self, question: bytes, me: dict[str, Any]) -> bytes:
        header, arrays = unpack(question)
        if header.get("protocol") != PROTOCOL:
            raise WireError(
                f"the question is of protocol {header.get('protocol')}, this site speaks "
                f"{PROTOCOL}: use the same fedcluster"
            )
        echo = {**me, "run": header.get("run"), "exchange": header.get("exchange")}
        if "model" in header:
            if self._keep is not None:
                self._keep(header["model"])
            return pack(echo, {})
        if header.get("cancel") is True:  # what was worked on has been ended before this turn
            return pack(echo, {})
        if me["question"] not in self._answers:  # the last reply is kept, for a repetition
            self._answers = {me["question"]: self._answered(header, arrays, echo)}
        reply, lines = self._answers[me["question"]]
        if self._log is not None:
            self._log(lines)
        return reply

    def _answered(
        self, header: Header, arrays: Arrays, echo: dict[str, Any]
    ) -> tuple[bytes, list[Line]]:
        """Return the reply to what is asked of the site itself and to tasks, and its log lines."""
        tasks = read_tasks(header.get("tasks", ()), arrays, self._steps, self._preprocessors)
        client = self._client(header.get("columns"), raw=header.get("raw") is True)
        texts = _names(header.get("described", ()))
        asked = {"columns": "described" in header, "labels": "labels" in header}
        site = client.introduce(texts=texts, **asked)
        answers, told = client.answers(tasks), write_site(site)
        more = {key: told[key] for key in ASKED if key in header}
        always = {key: told[key] for key in STATED}
        columns = header.get("columns", self.columns)
        reply = pack({**echo, **always, "columns": columns, **more}, write_summaries(answers))
        exchange = echo["exchange"]
        number = exchange + 1 if isinstance(exchange, int) else None  # people count from 1
        which = {"run": echo["run"], "round": number}
        lines = [*_told_lines(site, more), *map(_line, tasks, answers)]
        return reply, [{**which, **line, **always} for line in lines]

    def _client(self, columns: Any, *, raw: bool) -> SiteClient:
        """Return the site with the columns that are asked for, by default with its own."""
        chosen = self.columns if columns is None else _names(columns)
        if (chosen, raw) not in self._clients:
            if self._choose is None:
                raise WireError(
                    f"this site has the columns {', '.join(self.columns)} and no others"
                )
            how = {"raw": True} if raw else {}
            self._clients[chosen, raw] = self._choose(chosen, **how)
        return self._clients[chosen, raw]


def _names(given: Any) -> tuple[str, ...]:
    if not is_texts(given):
        raise WireError("the columns that are asked for are not a list of names")
    return tuple(given)


def _told_lines(site: SiteInfo, told: Mapping[str, Any]) -> Iterator[Line]:
    """Return what the log says of columns and labels, where they were asked for."""
    if "described" in told:
        texts = sum(len(column.levels) for column in site.columns)
        size = len(json.dumps(told["described"]))
        yield {"task": "describe", "columns": len(site.columns), "texts": texts, "bytes": size}
    if site.labels is not None:
        size = len(json.dumps(site.labels))
        yield {"task": "labels", "texts": len(site.labels), "bytes": size}


def _line(task: Task, answer: Summary) -> Line:
    """Return what the log says of one answer."""
    said = answer.weights[answer.weights != 0]
    return {
        "task": repr(task.step),
        "shape": list(answer.sums.shape),
        "smallest_weight": float(said.min()) if said.size else None,
        "bytes": answer.sums.nbytes + answer.weights.nbytes,
    }
