"""Turns of a site's questions: one after the other, and what nobody waits for any more is ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock

from fedcluster.engines._audit import Request
from fedcluster.engines._protocol import about_of
from fedcluster.engines._wire import LARGEST

GRACE = 3.0
"""Seconds that a question waits for an older one before that one is ended."""
REMEMBERED = 100
"""Runs that are remembered, the last ones."""
REPLACED = "a newer question came"
CANCELLED = "the run was cancelled"

Rank = tuple[int, int]


class Turns:
    """Order of the questions to a site, which come in threads of their own.

    One that comes while another is worked on waits for it, but not for long where it is newer: of
    a run that began later, or of a later round of the same run. Then the older one is ended, as is
    one whose run is cancelled: its coordinator has gone on without the answer. One that cannot be
    read is refused at once.

    Parameters
    ----------
    respond : callable taking a Request
        Answers a question, or refuses it where it says why.
    end : callable taking a str
        Ends the work on a question, which then gets a reply that says why.
    begin : callable taking a str
        Told of the job of each question before it is answered: the name that its coordinator gives
        a run, which stays where the run is resumed, or else the run.
    largest : int
        Bytes of the largest question that is read.
    """

    def __init__(
        self,
        respond: Callable[[Request], bytes],
        end: Callable[[str], None],
        begin: Callable[[str], None],
        largest: int = LARGEST,
    ) -> None:
        self._answer, self.end, self._begin, self._largest = respond, end, begin, largest
        self._turn, self._look = Lock(), Lock()
        self._runs: dict[str, int] = {}
        self._cancelled: set[int] = set()
        self._working: Rank | None = None

    def reply(self, content: bytes) -> bytes:
        """Return the reply to a question as it travels, when its turn has come."""
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
            self._begin(about_of(header, "job") or run)
            return self._answer(request)

    def _rank(self, run: str) -> int:
        """Return the number of a run, in the order in which they were first heard of."""
        with self._look:
            if run not in self._runs:
                self._runs[run] = 1 + max(self._runs.values(), default=0)
                while len(self._runs) > REMEMBERED:
                    del self._runs[next(iter(self._runs))]
            return self._runs[run]

    def _cancel(self, run: int) -> None:
        with self._look:
            self._cancelled.add(run)
            if self._working is not None and self._working[0] == run:
                self.end(CANCELLED)

    @contextmanager
    def _turn_of(self, rank: Rank) -> Iterator[None]:
        while not self._turn.acquire(timeout=GRACE):
            with self._look:
                if self._working is not None and self._working < rank:
                    self.end(REPLACED)
        try:
            with self._look:
                self._working = rank
            yield
        finally:
            with self._look:
                self._working = None
            self._turn.release()
