"""A federation in one thread: real programs, a simulated network, clock and disk.

All that is drawn comes from one seed: how long messages take, which are lost or come twice, when a
program is killed, at which write to its disk, and when it is started again. Sites and coordinator
are the real ones, with their logs, states and records; only the bytes between them are carried
here, and only the clock and the disk's delays are not real. So a failure is a seed.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from peer import KNOWN

from fedcluster.core import Column, Data
from fedcluster.engines.client import Client
from fedcluster.privacy import Groups
from fedcluster_app.coordinator.run_job import HEADS, engine_over, run_in_folder
from fedcluster_app.secure.cohort import Terms
from fedcluster_app.secure.site import SecureSite
from fedcluster_app.site.membership import folder_auditor
from fedcluster_app.site.worker import ReceivedModels
from fedcluster_app.trust.audit_log import LOG, has_left, read_log, verify
from fedcluster_app.trust.site_state import STATE_FILE, SiteState
from fedcluster_app.wire.exchange import Reply, RetryingTransport
from fedcluster_app.wire.policy import Ledger, Policy
from fedcluster_app.wire.recorder import PROGRESS
from fedcluster_app.wire.responder import Responder

COLUMNS = ("age", "stay")
DEADLINE = 120.0
COORDINATOR = "coordinator"
GROUPS = Groups(3, min_rows=6)


class KilledError(BaseException):
    """A program ends here, without a word."""


@dataclass(frozen=True)
class Faults:
    """What may go wrong, and how often."""

    lost: float = 0.0  # the probability that a message is lost,
    twice: float = 0.0  # and that it comes twice
    slow: float = 0.5  # mean seconds that a message takes
    kills: int = 0  # of any program, at most


def grouped(name: str, rows: np.ndarray) -> Data:
    """The means of the groups of a site's rows, which each start would form alike."""
    client = Client(name, Data(rows, columns=tuple(map(Column, COLUMNS))), protection=GROUPS)
    assert isinstance(client.rows, Data)
    return client.rows


@dataclass
class Site:
    """A site: its folder, its rows, and its program while it runs."""

    name: str
    folder: Path
    rows: Data
    keys: Mapping[str, Ed25519PrivateKey] | None
    program: Responder | None = None
    said: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.folder / LOG

    @property
    def models(self) -> ReceivedModels:
        return ReceivedModels(self.state, self.folder / "results")

    @property
    def state(self) -> SiteState:
        return SiteState(self.folder / STATE_FILE)

    def start(self) -> None:
        """Start the program, as on a machine that was switched on."""
        (self.folder / "results").mkdir(parents=True, exist_ok=True)
        state = self.state
        if not state.is_there:
            state.create()
        client = Client(self.name, self.rows, protection=GROUPS)
        secure = None
        if self.keys is not None:
            peers = {name: key.public_key() for name, key in self.keys.items()}
            secure = SecureSite(self.name, self.keys[self.name], peers, Terms(), state)
        self.program = Responder(
            client,
            columns=COLUMNS,
            choose=lambda names, raw=False: client,
            policy=Policy(ledger=Ledger(state)),
            auditor=folder_auditor(self.folder, self.name, "here", COLUMNS, self.said.append),
            keep=lambda model: self.models.receive(model, "rows"),
            secure=secure,
            **KNOWN,
        )

    def left(self) -> set[str]:
        """The digests of all replies that left according to the log."""
        return {line["reply"] for line in read_log(self.log) if "reply" in line}


class World:
    """All programs of a federation of grouped rows, and what a seed lets happen to them."""

    def __init__(
        self,
        folder: Path,
        rows: Mapping[str, Data],
        seed: int,
        faults: Faults,
        secure: bool = False,
    ) -> None:
        self.rng, self.faults, self.now = np.random.default_rng(seed), faults, 0.0
        keys = {name: Ed25519PrivateKey.generate() for name in rows} if secure else None
        self.secure = secure
        self.sites = {n: Site(n, folder / "sites" / n, X, keys) for n, X in rows.items()}
        self.run = folder / "federation" / "runs" / "run-1"
        self.run.mkdir(parents=True)
        self.outcome: dict[str, Any] = {}
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._kills = int(self.rng.integers(faults.kills + 1))
        self._acting, self._writes = COORDINATOR, -1
        self.delivered: dict[str, set[str]] = {name: set() for name in rows}
        self.lives, self.killed, self.errors = 0, list[str](), list[str]()
        self._dead, self._kept = False, dict[int, int]()

    # The disk

    def write(self, descriptor: int | None = None) -> None:
        """Count a write to a disk; the program that writes may be killed there.

        What is killed does nothing any more: neither its handlers nor its context managers. Of a
        file that was not on the disk yet, a part of what is new may be there.
        """
        self._writes -= not self._dead
        if self._writes == -1 and not self._dead:
            self.killed.append(f"{self._acting} at {self.now:.1f} s")
            self._dead = True
            if descriptor is not None:
                file = os.fstat(descriptor)
                least = min(self._kept.get(file.st_ino, 0), file.st_size)
                os.ftruncate(descriptor, int(self.rng.integers(least, file.st_size + 1)))
        if self._dead:
            raise KilledError(self._acting)
        if descriptor is not None:
            file = os.fstat(descriptor)
            self._kept[file.st_ino] = file.st_size

    @contextmanager
    def _as(self, program: str, share: float = 0.12) -> Iterator[None]:
        """Let a program act; draw whether, and at which of its next writes, it is killed."""
        before = self._acting, self._writes
        self._acting, self._writes = program, -1
        if self._kills and self.rng.random() < share:
            self._kills -= 1
            self._writes = int(self.rng.integers(8))
        try:
            yield
        finally:
            self._acting, self._writes = before
            self._dead = False

    # The network

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Let something happen in some seconds."""
        heapq.heappush(self.events, (self.now + seconds, next(self._count), act))

    def carried(self, deliver: Callable[[], None]) -> None:
        """Carry a message: it takes a while, may be lost, or come twice."""
        if self.rng.random() < self.faults.lost:
            return
        for _ in range(1 + (self.rng.random() < self.faults.twice)):
            self.at(float(self.rng.exponential(self.faults.slow)), deliver)

    def connected(self) -> list[str]:
        """The sites whose programs run."""
        return [name for name, site in self.sites.items() if site.program is not None]

    def ask(self, site: Site, message: bytes, answer: Callable[[bytes], None]) -> None:
        """Let a site answer a message that reached its machine."""
        if site.program is None:
            return
        try:
            with self._as(site.name):
                reply = site.program.reply(message)
        except KilledError:
            site.program = None
            self.at(float(self.rng.uniform(0.1, 30.0)), lambda: self.start(site))
        else:
            self.carried(lambda: answer(reply))

    def start(self, site: Site) -> None:
        """Start a site, again and again if it is killed while it starts."""
        try:
            with self._as(site.name, share=0.3):
                site.start()
        except KilledError:
            site.program = None
            self.at(1.0, lambda: self.start(site))

    # The coordinator

    def fit(self, job: Mapping[str, Any], name: str = "fit") -> dict[str, Any]:
        """Carry out a job, and resume it however often it is broken off; return its outcome."""
        for site in self.sites.values():
            if site.program is None:
                self.start(site)
        content: dict[str, Any] = {"job": name, "parameters": job, "columns": None, "quorum": None}
        content |= {"sites": sorted(self.sites), "out": "result", "secure": self.secure}
        (self.run / "job.json").write_text(json.dumps(content))
        while True:
            self.lives += 1
            assert self.lives < 15, f"it never ends: {self.errors[-1:]}"
            (self.run / "outcome.json").unlink(missing_ok=True)
            try:
                with self._as(COORDINATOR, share=0.3):
                    error = run_in_folder(lambda _: self._engine(), self.run)
            except KilledError:
                continue
            if not error:
                self.outcome = json.loads((self.run / "outcome.json").read_text())
                return self.outcome
            self.errors.append(error)

    def _engine(self) -> Any:
        how: dict[str, Any] = {"clock": lambda: self.now, "grace": 30.0}
        transport = RetryingTransport(Connection(self), DEADLINE, **how)
        transport.poll = transport.recheck  # nobody cancels the run meanwhile
        return engine_over(transport, sorted(self.sites), secure=self.secure)

    # What must hold

    def check(self) -> None:
        """Check the logs: each reply that reached anybody is in the log of its site, in a chain."""
        heads = json.loads((self.run / HEADS).read_text())
        events = map(json.loads, (self.run / PROGRESS).read_text().splitlines())
        rounds = max(event.get("round", 0) for event in events)
        records = list((self.run / "communication_rounds").glob("exchange-*"))
        assert len(records) == rounds, "not every round is recorded"
        for name, site in self.sites.items():
            while site.program is None:  # a start may be killed, too
                self.start(site)
            end, known = verify(site.log, heads[name])
            assert known is not None, f"the coordinator knows a line that {name} does not"
            assert self.delivered[name] <= site.left(), f"{name} logs not all that left"
            assert end.line == sum(1 for _ in read_log(site.log))
            answered = [line for line in read_log(site.log) if has_left(line)]
            assert answered
            replies = {(line["question"], line["reply"]) for line in answered}
            assert len(replies) == len({question for question, _ in replies}), "answered twice"
            assert site.models.are_waiting or name not in self.outcome["model_at"]


class Connection:
    """The carrier of one life of the coordinator: replies to earlier lives never reach it."""

    def __init__(self, world: World) -> None:
        self._world, self._replies = world, list[Reply]()

    def connected(self) -> list[str]:
        return self._world.connected()

    def send(self, exchange: int, messages: Mapping[str, bytes], seconds: float) -> list[str]:
        del seconds
        for name, message in messages.items():
            site = self._world.sites[name]

            def answer(reply: bytes, name: str = name) -> None:
                self._world.delivered[name].add(sha256(reply).hexdigest())
                self._replies.append(Reply(name, exchange, reply))

            ask = partial(self._world.ask, site, message, answer)
            self._world.carried(ask)
        return list(messages)

    def receive(self, seconds: float) -> Iterable[Reply]:
        world, end = self._world, self._world.now + max(seconds, 0.001)
        while not self._replies and world.events and world.events[0][0] <= end:
            world.now, _, act = heapq.heappop(world.events)
            act()
        if not self._replies:
            world.now = end
        replies, self._replies = self._replies, []
        return replies


@contextmanager
def simulated_disk(monkeypatch: Any) -> Iterator[Callable[[World], None]]:
    """Let writes to the disk take no time, and count for a world."""
    worlds: deque[World] = deque(maxlen=1)

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*args: Any, **how: Any) -> Any:
            if worlds:
                worlds[-1].write()
            return change(*args, **how)

        return changed

    def synced(descriptor: int) -> None:
        if worlds:
            worlds[-1].write(descriptor if stat.S_ISREG(os.fstat(descriptor).st_mode) else None)

    with monkeypatch.context() as patch:
        for name in ("replace", "rename", "unlink", "rmdir"):
            patch.setattr(os, name, counted(getattr(os, name)))
        patch.setattr(os, "fsync", synced)
        yield worlds.append
