"""A site's end of the wire: questions come as bytes, replies leave as bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fedcluster.client import Client
from fedcluster.core import Floats, Summary, Task
from fedcluster.data.tables import InputError
from fedcluster.engines.wire import (
    PROTOCOL,
    STEPS,
    Header,
    Steps,
    WireError,
    digest,
    pack,
    read_tasks,
    unpack,
    write_summaries,
)

__all__ = ["Line", "Responder"]

LOGGER = logging.getLogger(__name__)

Line = dict[str, Any]
"""One line of the log of what left: sizes, never a value."""


class Responder:
    """Answers the questions of a coordinator with one client.

    Asked again the same question, it sends the same reply again: a retry costs no work. What goes
    wrong at the site leaves it as the kind of the error alone, because the text of an error may
    hold a value; the whole error goes to the site's own log.

    Parameters
    ----------
    client : Client
        The site.
    columns : sequence of str
        The names of its columns, which it tells the coordinator.
    choose : callable taking a tuple of str, optional
        The same site with the columns that the coordinator asks for, in their order.
    steps : mapping of str to type
        The steps that it knows, as `steps_by_name` gives them.
    log : callable taking a list of dict, optional
        Receives the lines of the log of each reply before it leaves; where it fails, nothing
        leaves.
    keep : callable taking a dict, optional
        Receives the model that the sites found, as ``model.json`` holds it.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcluster.core import Data
    >>> site = Responder(Client("north", Data(np.eye(3))))
    >>> header, _ = unpack(site.reply(pack({"protocol": 0}, {})))
    >>> header["site"], header["refused"]
    ('north', 'the question is of protocol 0, this site speaks 1: use the same fedcluster')
    """

    def __init__(
        self,
        client: Client,
        *,
        columns: Sequence[str] = (),
        choose: Callable[[tuple[str, ...]], Client] | None = None,
        steps: Steps = STEPS,
        log: Callable[[list[Line]], None] | None = None,
        keep: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.name, self.columns = client.name, tuple(columns)
        self._clients, self._choose = {self.columns: client}, choose
        self._steps, self._log, self._keep = steps, log, keep
        self._last: tuple[str, Client, list[Task], list[Summary]] | None = None

    def reply(self, question: bytes) -> bytes:
        """The reply to a question; it never raises."""
        me = {"protocol": PROTOCOL, "question": digest(question), "site": self.name}
        try:
            return self._reply(question, me)
        except WireError as error:  # about the question; no value of a row is in it
            LOGGER.warning("a question was refused: %s", error)
            return self._complaint({**me, "refused": str(error)})
        except InputError as error:
            LOGGER.error("a question could not be answered: %s", error)
            return self._complaint({**me, "failed": type(error).__name__})
        except Exception as error:
            LOGGER.exception("a question could not be answered")
            return self._complaint({**me, "failed": type(error).__name__})

    def _complaint(self, header: dict[str, Any]) -> bytes:
        """A reply without an answer, logged if the log can be written."""
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
        client, tasks, answers = self._answers(me["question"], header, arrays)
        limits = list(client.site.limits)
        card = {"limits": limits, "columns": header.get("columns", list(self.columns))}
        reply = pack(echo | card, write_summaries(answers))
        if self._log is not None:
            lines = [_line(*each) for each in zip(tasks, answers, strict=True)]
            which = {"run": echo["run"], "round": _counted(echo["exchange"])}
            self._log([{**which, **line, "limits": limits} for line in lines])
        return reply

    def _answers(
        self, name: str, header: Header, arrays: Mapping[str, Floats]
    ) -> tuple[Client, list[Task], list[Summary]]:
        """The answers to a question, found once."""
        if self._last is None or self._last[0] != name:
            tasks = read_tasks(header.get("tasks", ()), arrays, self._steps)
            client = self._client(header.get("columns"))
            self._last = name, client, tasks, client.answers(tasks)
        return self._last[1:]

    def _client(self, columns: Any) -> Client:
        """The site with the columns that are asked for, by default with its own."""
        if columns is None:
            return self._clients[self.columns]
        if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
            raise WireError("the columns that are asked for are not a list of names")
        chosen = tuple(columns)
        if chosen not in self._clients:
            if self._choose is None:
                raise WireError(
                    f"this site has the columns {', '.join(self.columns)} and no others"
                )
            self._clients[chosen] = self._choose(chosen)
        return self._clients[chosen]


def _counted(exchange: Any) -> int | None:
    """The number of an exchange as people count, from 1."""
    return exchange + 1 if isinstance(exchange, int) else None


def _line(task: Task, answer: Summary) -> Line:
    """What the log says of one answer."""
    said = answer.weights[answer.weights != 0]
    return {
        "task": repr(task.step),
        "shape": list(answer.sums.shape),
        "smallest_weight": float(said.min()) if said.size else None,
        "bytes": answer.sums.nbytes + answer.weights.nbytes,
    }
