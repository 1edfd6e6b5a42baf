"""One end of a connection between two versions: first a site, then its coordinator.

As a program, it is a site of its standard input until an empty message comes; then it asks what is
at the other end, and says what it has found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import IO, Any

import numpy as np

from fedcluster.core import Column, Data
from fedcluster.engines.client import Client
from fedcluster.engines.wire import steps_by_name
from fedcluster.errors import SiteError
from fedcluster.jobs import execute, fit_of
from fedcluster.model.assigned_rows import row_transform
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder

STEPS = steps_by_name()
KNOWN: dict[str, Any] = {"steps": STEPS, "preprocessors": partial(row_transform, steps=STEPS)}
"""What every site of a federation knows."""

ROWS = np.array([[1.0, 2], [1, 3], [2, 2], [8, 9], [9, 9], [9, 8]])


def site() -> Responder:
    columns = (Column("age"), Column("stay"))
    client = Client("north", Data(ROWS, columns=columns))

    def choose(names: tuple[str, ...], *, raw: bool = False) -> Client:
        places = [("age", "stay").index(name) for name in names]
        return Client("north", Data(ROWS[:, places], columns=tuple(columns[j] for j in places)))

    return Responder(client, columns=("age", "stay"), choose=choose, **KNOWN)


class ByHand:
    """A transport to one site, as a function of bytes."""

    def __init__(self, reply: Callable[[bytes], bytes]) -> None:
        self.reply = reply
        self.replies: list[bytes] = []

    def exchange(self, messages, enough):
        del enough
        came = {name: self.reply(message) for name, message in messages.items()}
        self.replies += came.values()
        return came, {}


def sent(file: IO[bytes], message: bytes) -> None:
    file.write(len(message).to_bytes(4, "big") + message)
    file.flush()


def received(file: IO[bytes]) -> bytes:
    return file.read(int.from_bytes(file.read(4), "big"))


def asking(end: tuple[IO[bytes], IO[bytes]]) -> Callable[[bytes], bytes]:
    """How the other end answers."""

    def reply(question: bytes) -> bytes:
        sent(end[0], question)
        return received(end[1])

    return reply


def spoken(reply: Callable[[bytes], bytes]) -> bytes:
    """The centres of a fit by this version, or its error."""
    engine = RemoteEngine(ByHand(reply), ["north"])
    try:
        engine.choose(None, raw=True)
        report = execute(fit_of(2, prepare=PreprocessingSpec(scale="standard"), seed=1), engine)
    except SiteError as error:
        return str(error).encode()
    return report.outcome.value.state.centers.tobytes()


def main() -> None:
    end, answering = (sys.stdout.buffer, sys.stdin.buffer), site()
    while question := received(end[1]):
        sent(end[0], answering.reply(question))
    said = spoken(asking(end))
    sent(end[0], b"")
    sent(end[0], said)


if __name__ == "__main__":
    main()
