"""Exchange of one message and one reply with each of many sites, for every transport.

`RetryingTransport` repeats, waits and gives up; a `Carrier` only carries. Where a transport asks
one site and blocks until the reply is there, `ThreadedCarrier` makes a carrier of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Protocol

from fedcluster.errors import CancelledError

POLL = 0.2
"""Seconds that are waited for a reply before looking whether the run is cancelled."""

TRIES = 4
"""How often a site is sent one message, at most."""

FAREWELL = 10.0
"""Seconds for telling the sites that a run is cancelled."""

LOOK_AROUND = 2.0
"""Seconds between two looks for sites that come back."""

ASK_AGAIN = 10.0
"""Seconds after which a silent site is asked again; each time twice as many."""

AT_ONCE = 2
"""Most questions that one site is asked at the same time: an old one, and what ends it."""


def no_listener(_site: str) -> None:
    """Take no note of a site that has replied."""


def never() -> bool:
    """Return that a run is not cancelled."""
    return False


Revoked = Callable[[], Mapping[str, str]]
"""Says which sites are refused from now on, as their keys were revoked, and why."""


def nobody() -> Mapping[str, str]:
    """Return that no site is refused."""
    return {}


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply of one site, or the reason why there is none.

    Parameters
    ----------
    site : str
        The site.
    exchange : int
        The number of the exchange whose message it answers.
    content : bytes, optional
        What came; None if nothing did.
    reason : str
        Why nothing came. A text of the site's own program must not be in it.
    gone : bool
        Whether the message has not reached the site, since it is not connected.
    """

    site: str
    exchange: int
    content: bytes | None
    reason: str = ""
    gone: bool = False


class Carrier(Protocol):
    """Carrier of messages to sites. It knows neither rounds nor retries."""

    def connected(self) -> Collection[str]:
        """Return the sites that a message may reach now."""

    def send(self, exchange: int, messages: Mapping[str, bytes], seconds: float) -> Collection[str]:
        """Send messages and do not wait; return the sites whose message is on its way.

        ``exchange`` is the number that replies carry, ``seconds`` how long they are of use.
        """

    def receive(self, seconds: float) -> Iterable[Reply]:
        """Return the replies that are there; wait for the first one, but not longer."""


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
        The number of messages to a site that it may still reply to.
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
        """Return the sites from which a reply may still come."""
        return {name for name in self.open() if self.waiting.get(name)}


class RetryingTransport:
    """Transport that exchanges one message with each site, over a carrier.

    A site that is away is waited for until the deadline only while the replies are too few. One
    that was silent until a deadline is asked again, but not waited for until it says something.

    Parameters
    ----------
    carrier : Carrier
        Who carries the messages.
    deadline : float
        Seconds for one exchange.
    cancelled : callable, optional
        Says whether the run is cancelled.
    responded : callable, optional
        Told of each site as its reply comes.
    grace : float, default=0
        Seconds in which the first exchange waits for sites that are not connected yet, though
        enough have replied.
    look_around : float, optional
        Seconds between two looks for sites that come back.
    revoked : callable, optional
        Says which sites are refused from now on, and why. What is on its way to or from such a site
        counts as lost at once, and no message is sent to it.
    clock : callable, optional
        Returns the time in seconds.
    """

    def __init__(
        self,
        carrier: Carrier,
        deadline: float,
        cancelled: Callable[[], bool] = never,
        responded: Callable[[str], None] = no_listener,
        *,
        grace: float = 0.0,
        look_around: float | None = None,
        revoked: Revoked = nobody,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._carrier, self._deadline, self._cancelled = carrier, deadline, cancelled
        self._revoked = revoked
        self._responded, self._grace, self._clock = responded, grace, clock
        self._look_around = LOOK_AROUND if look_around is None else look_around
        self._silent: set[str] = set()
        self._number = 0

    def exchange(
        self, messages: Mapping[str, bytes], enough: int
    ) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        """Send each site its message and wait for the replies."""
        self._number += 1
        this, began, look_around = _Exchange(messages), self._clock(), 0.0
        while (spent := self._clock() - began) < self._deadline:
            if self._cancelled():
                self._deadline, self._cancelled = min(self._deadline, FAREWELL), never
                raise CancelledError("the run was cancelled")
            if spent >= look_around:
                self._send(this, repeat=spent >= self._deadline / 3)
                look_around = spent + self._look_around
            self._receive(this, min(POLL, self._deadline - spent))
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
        """Return whether nothing more can be expected that is worth waiting for."""
        if this.awaited() - self._silent:
            return False
        lost = all(this.tries.get(name, 0) >= TRIES for name in this.open())
        return lost or (len(this.came) >= enough and not patient)

    def _send(self, this: _Exchange, *, repeat: bool) -> None:
        """Send to the sites that are there and have not got their message yet.

        With ``repeat`` once more to those that do not reply: a site that was restarted has lost
        what it had received.
        """
        refused = self._revoked()
        here, awaited = {*self._carrier.connected(), *refused}, this.awaited()
        names = [
            name
            for name in this.open()
            if name in here and this.tries.get(name, 0) < (1 + repeat if name in awaited else TRIES)
        ]
        this.reasons |= {name: refused[name] for name in names if name in refused}
        messages = {name: this.messages[name] for name in names if name not in refused}
        sent = self._carrier.send(self._number, messages, self._deadline) if messages else ()
        for name in names:
            this.tries[name] = this.tries.get(name, 0) + 1
        for name in sent:
            this.waiting[name] = this.waiting.get(name, 0) + 1

    def _receive(self, this: _Exchange, seconds: float) -> None:
        """Take in what has come; a late reply to an earlier exchange shows that its site lives."""
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
    """A site was asked and has not replied; the text says why, and holds nothing of the site's.

    Parameters
    ----------
    reason : str
        Why.
    gone : bool
        Whether the message has not reached it.
    """

    def __init__(self, reason: str, *, gone: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.gone = reason, gone


Ask = Callable[[str, bytes, float], bytes]
"""Asks one site, by its name, with a message and the seconds that a reply may take.

Raises `NoReplyError` where there is none, TimeoutError where the site is silent.
"""


class ThreadedCarrier:
    """Carrier that asks each site in a thread of its own.

    A silent site is asked again, each time with twice as many seconds, until its message is of no
    use any more. A newer message takes the place of one that waits.

    Parameters
    ----------
    ask : callable
        See `Ask`.
    sites : collection of str
        The names of the sites.
    clock : callable, optional
        Returns the time in seconds.
    """

    def __init__(
        self, ask: Ask, sites: Collection[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask, self._sites, self._clock = ask, frozenset(sites), clock
        self._lock = Lock()
        self._next: dict[str, tuple[int, bytes, float]] = {}
        self._asked: dict[str, list[int]] = {site: [] for site in self._sites}
        self._replies: SimpleQueue[Reply] = SimpleQueue()

    def connected(self) -> Collection[str]:
        """Return all sites: only asking shows which are there."""
        return self._sites

    def send(self, exchange: int, messages: Mapping[str, bytes], seconds: float) -> Collection[str]:
        """Let threads ask the sites, but for those that are being asked this already."""
        end, sent = self._clock() + seconds, []
        for site, message in messages.items():
            with self._lock:
                asked = self._asked[site]
                if exchange in asked:
                    continue
                sent.append(site)
                self._next[site] = exchange, message, end
                if len(asked) >= AT_ONCE:
                    continue
                asked.append(exchange)
            Thread(target=self._work, args=(site, exchange), daemon=True).start()
        return sent

    def receive(self, seconds: float) -> Iterable[Reply]:
        """Return the replies that are there, or the next one."""
        replies: list[Reply] = []
        try:
            replies.append(self._replies.get(timeout=seconds))
            while True:
                replies.append(self._replies.get_nowait())
        except Empty:
            return replies

    def _work(self, site: str, exchange: int) -> None:
        """Ask a site, as long as there is a message for it."""
        while True:
            with self._lock:
                self._asked[site].remove(exchange)
                if site not in self._next:
                    return
                exchange, message, end = self._next.pop(site)
                self._asked[site].append(exchange)
            self._persist(site, exchange, message, end)

    def _persist(self, site: str, exchange: int, message: bytes, end: float) -> None:
        """Ask a site one thing until it replies, its time is over, or there is something newer."""
        seconds = ASK_AGAIN
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
