"""Flower's Grid in this process: messages go straight to the apps of the sites."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from flwr.app import Error, Message
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from peer import KNOWN as KNOWN
from peer import STEPS as STEPS

from fedcluster.engines.client import Client
from fedcluster_app.coordinator.run_job import engine_over
from fedcluster_app.transports.flower._transport import FlowerCarrier, replied
from fedcluster_app.wire.exchange import RetryingTransport, never
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder


@contextmanager
def identity(node: int):
    """Messages that are made here come from this node."""
    TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, node
    yield
    TaskIdentity.node_id = 1


class ProcessGrid(Grid):
    """Nodes 2, 3, ... are apps in this process; what goes wrong is told by the test."""

    def __init__(self, apps: Mapping[int, Callable[[Message], Message]]) -> None:
        self.apps = dict(apps)
        self.away: set[int] = set()  # nodes that are not connected
        self.dead: set[int] = set()  # nodes that never answer, though they seem to be there
        self.broken: dict[int, int] = {}  # nodes whose app fails so many times more
        self.mailed: list[tuple[int, str]] = []
        self.messages: dict[str, Message] = {}
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1

    def _not_asked(self, *_given: Any, **_how: Any) -> Any:
        raise NotImplementedError

    set_run = create_message = send_and_receive = _not_asked
    run = property(_not_asked)

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in self.apps if node not in self.away]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = name = f"message-{len(self.mailed)}"
            self.mailed.append((message.metadata.dst_node_id, message.metadata.group_id))
            self.messages[name] = copy.deepcopy(message)
            ids.append(name)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        replies = [self._replied(name) for name in message_ids if name in self.messages]
        return [reply for reply in replies if reply is not None]

    def _replied(self, name: str) -> Message | None:
        message = self.messages[name]
        node = message.metadata.dst_node_id
        if node in self.dead | self.away:
            return None
        del self.messages[name]
        with identity(node):
            if self.broken.get(node):
                self.broken[node] -= 1
                return Message(Error(8, "value 4711 of row 3"), reply_to=message)
            return self.apps[node](message)


def process_grid(responders: Iterable[Responder]) -> tuple[ProcessGrid, dict[int, str]]:
    """A grid of responders, and the names behind its nodes."""
    given = dict(enumerate(sorted(responders, key=lambda r: r.name, reverse=True), start=2))
    apps = {node: partial(replied, responder=responder) for node, responder in given.items()}
    return ProcessGrid(apps), {node: responder.name for node, responder in given.items()}


def flower_engine(clients: Iterable[Client], **how) -> RemoteEngine:
    """An engine over a grid in this process."""
    return over_grid(*process_grid(Responder(c, **KNOWN) for c in clients), **how)


def over_grid(
    grid: ProcessGrid,
    nodes: dict[int, str],
    *,
    deadline: float = 120.0,
    cancelled: Callable[[], bool] = never,
    **terms: Any,
) -> RemoteEngine:
    """An engine over a grid."""
    known = {name: [node] for node, name in nodes.items()}
    transport = RetryingTransport(FlowerCarrier(grid, lambda: known), deadline, cancelled)
    return engine_over(transport, nodes.values(), **terms)
