"""A site's end of the wire: questions come as bytes, replies leave as bytes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedcluster.client import Client
from fedcluster.core import Summary, Task
from fedcluster.engines.wire import (
    PROTOCOL,
    STEPS,
    Steps,
    WireError,
    digest,
    pack,
    read_tasks,
    unpack,
    write_summaries,
)

__all__ = ["Log", "Responder"]

LOGGER = logging.getLogger(__name__)

Log = Callable[[Mapping[str, Any], Sequence[Task], Sequence[Summary], int], None]
"""Told of every reply before it leaves: the question's header, its tasks, the answers, bytes."""


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
    steps : mapping of str to type
        The steps that it knows, as `steps_by_name` gives them.
    log : callable, optional
        Told of every reply before it leaves; where it fails, nothing leaves.
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
        steps: Steps = STEPS,
        log: Log | None = None,
        keep: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.client = client
        self.columns = tuple(columns)
        self._steps, self._log, self._keep = steps, log, keep
        self._last: tuple[str, dict[str, Any], list[Task], list[Summary]] | None = None

    def reply(self, question: bytes) -> bytes:
        """The reply to a question; it never raises."""
        me = {"protocol": PROTOCOL, "question": digest(question), "site": self.client.name}
        try:
            return self._reply(question, me)
        except WireError as error:  # about the question; no value of a row is in it
            LOGGER.warning("a question was refused: %s", error)
            return pack({**me, "refused": str(error)}, {})
        except Exception as error:
            LOGGER.exception("a question could not be answered")
            return pack({**me, "failed": type(error).__name__}, {})

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
        header, tasks, answers = self._answers(me["question"], header, arrays)
        card = {"limits": list(self.client.site.limits), "columns": list(self.columns)}
        reply = pack(echo | card, write_summaries(answers))
        if self._log is not None:
            self._log(header, tasks, answers, len(reply))
        return reply

    def _answers(
        self, name: str, header: dict[str, Any], arrays: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[Task], list[Summary]]:
        """The answers to a question, found once."""
        if self._last is None or self._last[0] != name:
            tasks = read_tasks(header.pop("tasks", ()), arrays, self._steps)
            self._last = name, header, tasks, self.client.answers(tasks)
        return self._last[1:]
