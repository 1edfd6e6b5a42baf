"""Flower (flwr) carries the messages: sites connect to a SuperLink, and only outwards.

Both ends are thin. `FlowerCarrier` pushes messages and pulls replies; `replied` passes what a site
receives to its `Responder`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from flwr.app import ConfigRecord, Message, RecordDict

from fedcluster_app.wire.exchange import Reply
from fedcluster_app.wire.responder import RequestQueue, Responder

if TYPE_CHECKING:
    from flwr.serverapp import Grid

    from fedcluster_app.transports.reloading import ReloadingSite

KIND = "query"
KEY = "fedcluster"


class FlowerCarrier:
    """Carrier of messages over a Flower grid, which identifies a site by its registered node.

    Parameters
    ----------
    grid : Grid
        The grid of a ServerApp.
    nodes : callable
        Returns the nodes by which each site can be reached now; a site with a new key has two for a
        while.
    """

    poll = 0.1  # seconds between two checks for replies

    def __init__(self, grid: Grid, nodes: Callable[[], Mapping[str, Sequence[int]]]) -> None:
        self._grid, self._nodes = grid, nodes
        self._here: dict[str, int] = {}
        self._sent: dict[str, tuple[str, int]] = {}

    def connected(self) -> Collection[str]:
        """Return the sites that have a connected node."""
        here = set(self._grid.get_node_ids())
        nodes = self._nodes().items()
        self._here = {name: node for name, own in nodes for node in own if node in here}
        return self._here.keys()

    def send(self, exchange: int, messages: Mapping[str, bytes], seconds: float) -> Collection[str]:
        """Push messages to Flower and return the sites whose message was accepted."""
        pushed = [
            Message(
                RecordDict({KEY: ConfigRecord({"question": content})}),
                self._here[name],
                KIND,
                ttl=seconds,
                group_id=str(exchange),
            )
            for name, content in messages.items()
        ]
        ids = list(self._grid.push_messages(pushed))  # no id means that the messages were too large
        taken = [(name, sent) for name, sent in zip(messages, ids, strict=bool(ids)) if sent]
        self._sent |= {sent: (name, exchange) for name, sent in taken}
        return [name for name, _ in taken]

    def receive(self, seconds: float) -> Iterable[Reply]:
        """Pull the available replies; wait a little if there is none."""
        replies = []
        for reply in self._grid.pull_messages(list(self._sent)):
            known = self._sent.pop(reply.metadata.reply_to_message_id, None)
            if known is not None and reply.has_error():
                replies.append(Reply(*known, None, _reason(reply)))
            elif known is not None:
                replies.append(Reply(*known, _content(reply, "reply")))
        if not replies:
            time.sleep(min(self.poll, seconds))
        return replies


def _reason(reply: Message) -> str:
    """Return why Flower has no reply, without quoting the site's program: it may hold a value."""
    known = {2: "its app failed", 5: "it is gone", 8: "its app stopped"}
    return known.get(reply.error.code, f"Flower's error {reply.error.code}")


def _content(message: Message, key: str) -> bytes:
    """Return the bytes in a message, none if it has another content."""
    record = message.content.get(KEY)
    content = record.get(key) if isinstance(record, ConfigRecord) else None
    return content if isinstance(content, bytes) else b""


def replied(question: Message, responder: Responder | RequestQueue | ReloadingSite) -> Message:
    """Return the message with a site's reply to a question.

    Parameters
    ----------
    question : Message
        A message of a coordinator.
    responder : Responder, RequestQueue or ReloadingSite
        The responder of the site.
    """
    reply = responder.reply(_content(question, "question"))
    return Message(RecordDict({KEY: ConfigRecord({"reply": reply})}), reply_to=question)
