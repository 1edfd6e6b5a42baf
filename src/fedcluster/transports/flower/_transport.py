"""Flower (flwr) carries the messages: sites connect to a SuperLink, and only outwards.

Both ends are thin. `FlowerTransport` pushes one message a round to each site and pulls the replies;
`client_app` hands what a site receives to its `Responder`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from fedcluster.engines._believed import NOTHING_STATED, Believed
from fedcluster.engines._remote import RemoteEngine
from fedcluster.engines._responder import Responder
from fedcluster.engines._turns import Turns
from fedcluster.engines._wire import PROTOCOL, WireError, pack, unpack
from fedcluster.errors import CancelledError
from fedcluster.secure._engine import SecureEngine

KIND = "query"
KEY = "fedcluster"

POLL = 0.2
"""Seconds between two looks for replies."""

TRIES = 4
"""How often a site is sent one message, at most."""

FAREWELL = 10.0
"""Seconds for telling the sites that a run is cancelled."""


LOOK_AROUND = 2.0
"""Seconds between two looks for sites that come back."""


def unheard(_site: str) -> None:
    """Take no note of a site that has replied."""


def never() -> bool:
    """Return that a run is not cancelled."""
    return False


def flower_engine(
    grid: Grid,
    nodes: Mapping[int, str],
    *,
    quorum: int | None = None,
    deadline: float = 120.0,
    permit: str | None = None,
    believed: Believed = NOTHING_STATED,
    secure: bool = False,
    cancelled: Callable[[], bool] = never,
    heard: Callable[[str], None] = unheard,
) -> RemoteEngine:
    """Return an engine that asks sites through Flower.

    Parameters
    ----------
    grid : Grid
        The grid of a Flower ServerApp.
    nodes : mapping of int to str
        The name of the site behind each of Flower's node ids.
    quorum : int, optional
        The smallest number of sites that must answer a round; by default all that are asked.
    deadline : float, default=120
        Seconds after which a round goes on without those that have not replied. Flower tells of a
        site that died after at most 65.
    permit : str, optional
        The permit under which the sites are asked.
    believed : Believed
        What is believed of the sites' rows.
    secure : bool, default=False
        Whether the sites tell sums of all of them only.
    cancelled : callable, optional
        Says whether the run is cancelled: then the sites are told, and CancelledError is raised.
    heard : callable, optional
        Told of each site as its reply comes.

    Raises
    ------
    ValueError
        If there is no site, two nodes have one name, or the quorum is not between 1 and their
        number.
    """
    transport = FlowerTransport(grid, nodes, deadline, cancelled, heard)
    engine = SecureEngine if secure else RemoteEngine
    return engine(transport, nodes.values(), quorum=quorum, permit=permit, believed=believed)


@dataclass(slots=True)
class _Exchange:
    """The state of one exchange.

    Parameters
    ----------
    messages : mapping of str to bytes
        The message for each site.
    came : dict of str to bytes
        The replies.
    reasons : dict of str to str
        The reason why a site has not replied.
    tries : dict of str to int
        The number of times that a site was sent its message.
    """

    messages: Mapping[str, bytes]
    came: dict[str, bytes] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)

    def open(self) -> list[str]:
        """Return the sites that have not replied."""
        return [name for name in self.messages if name not in self.came]


class FlowerTransport:
    """Messages over a Flower grid; a site is known by the node that its key was registered for.

    A site that is away is waited for until the deadline only while the replies are too few. One
    that was silent until a deadline is asked again, but not waited for until it says something.

    Parameters
    ----------
    grid : Grid
        The grid of a ServerApp.
    nodes : mapping of int to str
        The name of the site behind each node id.
    deadline : float
        Seconds for one exchange.
    cancelled : callable, optional
        Says whether the run is cancelled.
    heard : callable, optional
        Told of each site as its reply comes.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Mapping[int, str],
        deadline: float,
        cancelled: Callable[[], bool] = never,
        heard: Callable[[str], None] = unheard,
    ) -> None:
        self._nodes = {name: node for node, name in nodes.items()}
        if len(self._nodes) < len(nodes):
            raise ValueError(f"two nodes have one name: {sorted(nodes.values())}")
        self._grid, self._deadline, self._cancelled = grid, deadline, cancelled
        self._heard = heard
        self._sent: dict[str, tuple[str, int]] = {}
        self._silent: set[str] = set()
        self._number = 0

    def exchange(
        self, messages: Mapping[str, bytes], enough: int
    ) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        """Send each site its message and wait for the replies."""
        self._number += 1
        this = _Exchange(messages)
        end = time.monotonic() + self._deadline
        again = time.monotonic() + self._deadline / 3
        look_around = 0.0
        while (now := time.monotonic()) < end:
            if self._cancelled():
                self._deadline, self._cancelled = min(self._deadline, FAREWELL), never
                raise CancelledError("the run was cancelled")
            if now >= look_around:
                self._send(this, repeat=now >= again)
                look_around = now + LOOK_AROUND
            self._receive(this)
            if self._is_over(this, enough):
                break
            time.sleep(POLL)
        late = self._waiting().intersection(this.open())
        self._silent |= late
        for name in this.open():
            why = f"no reply within {self._deadline:g} s" if name in late else "not connected"
            this.reasons.setdefault(name, why)
        return this.came, {name: this.reasons[name] for name in this.open()}

    def _is_over(self, this: _Exchange, enough: int) -> bool:
        """Return whether nothing more can be expected that is worth waiting for."""
        if self._waiting() - self._silent - this.came.keys():
            return False
        lost = all(this.tries.get(name, 0) >= TRIES for name in this.open())
        return lost or len(this.came) >= enough

    def _waiting(self) -> set[str]:
        """Return the sites from which a reply to this exchange may still come."""
        return {name for name, number in self._sent.values() if number == self._number}

    def _send(self, this: _Exchange, *, repeat: bool) -> None:
        """Send to the sites that are there and have not got their message yet.

        With ``repeat`` once more to those that do not reply: a site that was restarted has lost
        what it had received.
        """
        here, waiting = set(self._grid.get_node_ids()), self._waiting()
        names = [
            name
            for name in this.open()
            if self._nodes[name] in here
            and this.tries.get(name, 0) < (1 + repeat if name in waiting else TRIES)
        ]
        messages = [self._message(self._nodes[name], this.messages[name]) for name in names]
        ids = list(self._grid.push_messages(messages)) if messages else []
        for name, sent in zip(names, ids, strict=bool(ids)):  # none at all: they were too large
            if sent:
                self._sent[sent] = name, self._number
            this.tries[name] = this.tries.get(name, 0) + 1

    def _message(self, node: int, content: bytes) -> Message:
        record = RecordDict({KEY: ConfigRecord({"question": content})})
        return Message(record, node, KIND, ttl=self._deadline, group_id=str(self._number))

    def _receive(self, this: _Exchange) -> None:
        """Take in what has come; a late reply to an earlier exchange shows that its site lives."""
        for reply in self._grid.pull_messages(list(self._sent)):
            sent = reply.metadata.reply_to_message_id
            if sent not in self._sent:
                continue
            name, number = self._sent.pop(sent)
            if not reply.has_error():
                self._silent.discard(name)
            if number < self._number:
                continue
            if reply.has_error():
                this.reasons[name] = _reason(reply)
            elif name not in this.came:
                this.came[name] = _content(reply, "reply")
                self._heard(name)


def _reason(reply: Message) -> str:
    """Return why Flower has no reply; what a site's program said may hold a value and stays out."""
    known = {2: "its app failed", 5: "it is gone", 8: "its app stopped"}
    return known.get(reply.error.code, f"Flower's error {reply.error.code}")


def _content(message: Message, key: str) -> bytes:
    """Return the bytes in a message, none where it holds something else."""
    record = message.content.get(KEY)
    content = record.get(key) if isinstance(record, ConfigRecord) else None
    return content if isinstance(content, bytes) else b""


def client_app(responder: Callable[[Context], Responder | Turns]) -> ClientApp:
    """Return a Flower ClientApp that answers questions, and nothing else.

    Parameters
    ----------
    responder : callable taking a Context
        Gives what replies for the site.
    """
    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        reply = responder(context).reply(_content(message, "question"))
        return Message(RecordDict({KEY: ConfigRecord({"reply": reply})}), reply_to=message)

    return app


def discover_nodes(grid: Grid, sites: Iterable[str], deadline: float) -> dict[int, str]:
    """Ask all nodes for their names, where no key says who is who: on one machine, for trials.

    Returns the names by node as soon as all the sites are there, or at the deadline those that are.
    """
    wanted = set(sites)
    names: dict[int, str] = {}
    end = time.monotonic() + deadline
    header = {"protocol": PROTOCOL, "run": secrets.token_hex(8), "tasks": []}
    exchanges = count()  # of one run, for a site whose reply came too late is asked anew
    while wanted - set(names.values()) and time.monotonic() < end:
        question = pack({**header, "exchange": next(exchanges)}, {})
        new = {node: str(node) for node in grid.get_node_ids() if node not in names}
        came, _ = FlowerTransport(grid, new, min(5.0, deadline)).exchange(
            dict.fromkeys(new.values(), question), len(new)
        )
        told = {int(node): _name(reply) for node, reply in came.items()}
        names |= {node: name for node, name in told.items() if name in wanted}
        time.sleep(POLL)
    return names


def _name(reply: bytes) -> str:
    try:
        return str(unpack(reply)[0].get("site"))
    except WireError:
        return ""
