"""Exchange of one message and one reply with each of many sites, for all transports.

`RetryingTransport` repeats, waits and gives up; a `Carrier` only carries messages.
`ThreadedCarrier` turns a function that asks one site and blocks until it replies into a carrier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Protocol

from fedcluster.errors import CancelledError


def no_listener(_site: str) -> None:
    """Ignore that a site has replied."""


def never() -> bool:
    """Return False: the run is not cancelled."""
    return False


Revoked = Callable[[], Mapping[str, str]]
"""Function that returns the sites refused from now on because their keys were revoked, and why."""


def nobody() -> Mapping[str, str]:
    """Return an empty mapping: no site is refused."""
    return {}


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply of one site, or the reason why there is none.

    Parameters
    ----------
    site : str
        The site.
    exchange : int
        The number of the exchange that it replies to.
    content : bytes, optional
        The reply; None if there is none.
    reason : str
        Why there is no reply. It must not quote the site's own program.
    gone : bool
        Whether the message did not reach the site because it is not connected.
    """

    site: str
    exchange: int
    content: bytes | None
    reason: str = ""
    gone: bool = False


class Carrier(Protocol):
    """Carrier of messages to sites, without knowledge of rounds or retries."""

    def connected(self) -> Collection[str]:
        """Return the sites that a message can reach now."""

    def send(self, exchange: int, messages: Mapping[str, bytes], seconds: float) -> Collection[str]:
        """Send messages without waiting; return the sites whose messages are on their way.

        ``exchange`` is the number that replies carry; after ``seconds``, they are of no use.
        """

    def receive(self, seconds: float) -> Iterable[Reply]:
        """Return the available replies; wait for the first one, but no longer than ``seconds``."""


@dataclass(slots=True)
class _Exchange:
    """State of one exchange.

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
    waiting : dict of str to int
        The number of messages to which a site may still reply.
    """

    messages: Mapping[str, bytes]
    came: dict[str, bytes] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)

    def open(self) -> list[str]:
        """Return the sites that have not replied."""
        return [name for name in self.messages if name not in self.came]

    def awaited(self) -> set[str]:
        """Return the sites that may still reply."""
        return {name for name in self.open() if self.waiting.get(name)}


class RetryingTransport:
    """Transport that exchanges one message with each site, over a carrier.

    It waits for a disconnected site until the deadline only as long as there are too few replies. A
    site that was silent until a deadline is asked again, but not waited for until it replies.

    Parameters
    ----------
    carrier : Carrier
        The carrier of the messages.
    deadline : float
        Seconds for one exchange.
    cancelled : callable, optional
        Returns whether the run is cancelled.
    responded : callable, optional
        Called with the name of each site when its reply arrives.
    grace : float, default=0
        Seconds for which the first exchange waits for sites that are not connected yet, even if
        enough have replied.
    recheck : float, optional
        Seconds between two checks for sites that have come back.
    revoked : callable, optional
        Returns the sites that are refused from now on, and why. Messages on their way to or from
        such a site count as lost at once, and none is sent to it any more.
    clock : callable, optional
        Returns the time in seconds.
    """

    poll = 0.2  # seconds of waiting for a reply before checking whether the run is cancelled
    tries = 4  # largest number of times that a site is sent one message
    farewell = 10.0  # seconds for informing the sites that a run is cancelled
    recheck = 2.0  # seconds between two checks for sites that have come back

    def __init__(
        self,
        carrier: Carrier,
        deadline: float,
        cancelled: Callable[[], bool] = never,
        responded: Callable[[str], None] = no_listener,
        *,
        grace: float = 0.0,
        recheck: float | None = None,
        revoked: Revoked = nobody,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._carrier, self._deadline, self._cancelled = carrier, deadline, cancelled
        self._revoked = revoked
        self._responded, self._grace, self._clock = responded, grace, clock
        self._recheck = self.recheck if recheck is None else recheck
        self._silent: set[str] = set()
        self._number = 0

    def exchange(
        self, messages: Mapping[str, bytes], enough: int
    ) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        """Send each site its message and wait for the replies."""
        self._number += 1
        this, began, recheck = _Exchange(messages), self._clock(), 0.0
        while (spent := self._clock() - began) < self._deadline:
            if self._cancelled():
                self._deadline, self._cancelled = min(self._deadline, self.farewell), never
                raise CancelledError("the run was cancelled")
            if spent >= recheck:
                self._send(this, repeat=spent >= self._deadline / 3)
                recheck = spent + self._recheck
            self._receive(this, min(self.poll, self._deadline - spent))
            patient = self._number == 1 and self._clock() - began < self._grace
            if self._is_over(this, enough, patient=patient):
                break
        return this.came, self._missing(this)

    def _missing(self, this: _Exchange) -> dict[str, str]:
        """Return why sites have not replied; those that were waited for count as silent."""
        late = this.awaited()
        self._silent |= late
        for name in this.open():
            why = f"no reply within {self._deadline:g} s" if name in late else "not connected"
            this.reasons.setdefault(name, why)
        return {name: this.reasons[name] for name in this.open()}

    def _is_over(self, this: _Exchange, enough: int, *, patient: bool) -> bool:
        """Return whether waiting longer is pointless or not needed."""
        if this.awaited() - self._silent:
            return False
        lost = all(this.tries.get(name, 0) >= self.tries for name in this.open())
        return lost or (len(this.came) >= enough and not patient)

    def _send(self, this: _Exchange, *, repeat: bool) -> None:
        """Send the message to connected sites that have not received it yet.

        With ``repeat``, send it once more to sites that do not reply: a restarted site has lost
        what it had received.
        """
        refused = self._revoked()
        here, awaited = {*self._carrier.connected(), *refused}, this.awaited()
        names = [
            name
            for name in this.open()
            if name in here
            and this.tries.get(name, 0) < (1 + repeat if name in awaited else self.tries)
        ]
        this.reasons |= {name: refused[name] for name in names if name in refused}
        messages = {name: this.messages[name] for name in names if name not in refused}
        sent = self._carrier.send(self._number, messages, self._deadline) if messages else ()
        for name in names:
            this.tries[name] = this.tries.get(name, 0) + 1
        for name in sent:
            this.waiting[name] = this.waiting.get(name, 0) + 1

    def _receive(self, this: _Exchange, seconds: float) -> None:
        """Process arrived replies; a late reply to an earlier exchange shows a site to be alive."""
        replies = list(self._carrier.receive(seconds))
        refused = self._revoked()
        for name in filter(refused.__contains__, this.awaited()):
            this.waiting[name], this.reasons[name] = 0, refused[name]
        for reply in replies:
            name = reply.site
            if reply.content is not None and name not in refused:
                self._silent.discard(name)
            if reply.exchange != self._number or not this.waiting.get(name):
                continue
            this.waiting[name] -= 1
            if reply.gone:
                this.tries[name] = max(this.tries.get(name, 1) - 1, 0)
            elif reply.content is None:
                this.reasons[name] = reply.reason
            elif name not in this.came:
                this.came[name] = reply.content
                self._responded(name)


class NoReplyError(Exception):
    """A site was asked and has not replied; the text says why and quotes nothing from the site.

    Parameters
    ----------
    reason : str
        Why.
    gone : bool
        Whether the message has not reached the site.
    """

    def __init__(self, reason: str, *, gone: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.gone = reason, gone


Ask = Callable[[str, bytes, float], bytes]
"""Function that asks a site, by name, with a message and the seconds that a reply may take.

Raises `NoReplyError` if there is no reply, and TimeoutError if the site is silent.
"""


class ThreadedCarrier:
    """Carrier that asks each site in a thread of its own.

    A silent site is asked again, with a timeout doubled each time, until its message expires. A
    newer message replaces one that waits.

    Parameters
    ----------
    ask : callable
        See `Ask`.
    sites : collection of str
        The names of the sites.
    clock : callable, optional
        Returns the time in seconds.
    """

    ask_again = 10.0  # seconds after which a silent site is asked again, doubled each time
    at_once = 2
    """Largest number of simultaneous questions to a site: an old one, and one that ends it."""

    def __init__(
        self, ask: Ask, sites: Collection[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask, self._sites, self._clock = ask, frozenset(sites), clock
        self._lock = Lock()
        self._next: dict[str, tuple[int, bytes, float]] = {}
        self._asked: dict[str, list[int]] = {site: [] for site in self._sites}
        self._replies: SimpleQueue[Reply] = SimpleQueue()

    def connected(self) -> Collection[str]:
        """Return all sites, because only asking shows which can be reached."""
        return self._sites

    def send(self, exchange: int, messages: Mapping[str, bytes], seconds: float) -> Collection[str]:
        """Let threads ask the sites, except those that are being asked the same already."""
        end, sent = self._clock() + seconds, []
        for site, message in messages.items():
            with self._lock:
                asked = self._asked[site]
                if exchange in asked:
                    continue
                sent.append(site)
                self._next[site] = exchange, message, end
                if len(asked) >= self.at_once:
                    continue
                asked.append(exchange)
            Thread(target=self._work, args=(site, exchange), daemon=True).start()
        return sent

    def receive(self, seconds: float) -> Iterable[Reply]:
        """Return the available replies, or wait for the next one."""
        replies: list[Reply] = []
        try:
            replies.append(self._replies.get(timeout=seconds))
            while True:
                replies.append(self._replies.get_nowait())
        except Empty:
            return replies

    def _work(self, site: str, exchange: int) -> None:
        """Ask a site as long as there is a message for it."""
        while True:
            with self._lock:
                self._asked[site].remove(exchange)
                if site not in self._next:
                    return
                exchange, message, end = self._next.pop(site)
                self._asked[site].append(exchange)
            self._persist(site, exchange, message, end)

    def _persist(self, site: str, exchange: int, message: bytes, end: float) -> None:
        """Ask a site one question until it replies, time is up, or there is a newer question."""
        seconds = self.ask_again
        while (left := end - self._clock()) > 0 and site not in self._next:
            try:
                reply = Reply(site, exchange, self._ask(site, message, min(seconds, left)))
            except TimeoutError:
                seconds *= 2
                continue
            except NoReplyError as error:
                reply = Reply(site, exchange, None, error.reason, error.gone)
            self._replies.put(reply)
            return
