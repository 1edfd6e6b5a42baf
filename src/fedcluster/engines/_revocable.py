"""Refusal of what comes from a site whose key was taken back, amid a run, over any transport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from fedcluster.engines._exchange import Carrier, Reply

Revoked = Callable[[], Mapping[str, str]]
"""Says which sites are refused from now on, and why."""


def nobody() -> Mapping[str, str]:
    """Return that no site is refused."""
    return {}


class RevocableCarrier:
    """Carrier that sends nothing to sites that are refused, and passes on nothing of theirs.

    What is on its way to or from a site as it is refused counts as lost, at once, and so does what
    is sent to it later.

    Parameters
    ----------
    carrier : Carrier
        Who carries the messages.
    revoked : callable
        Says which sites are refused, and why.
    """

    def __init__(self, carrier: Carrier, revoked: Revoked) -> None:
        self._carrier, self._revoked = carrier, revoked
        self._on_its_way: Counter[tuple[str, int]] = Counter()
        self._unsent: list[Reply] = []

    def connected(self) -> Collection[str]:
        """Return the sites that a message may reach now, and those that are refused at once."""
        return {*self._carrier.connected(), *self._revoked()}

    def send(self, exchange: int, messages: Mapping[str, bytes], seconds: float) -> Collection[str]:
        """Send messages and do not wait; return the sites of which something will be heard."""
        refused = self._revoked()
        allowed = {site: message for site, message in messages.items() if site not in refused}
        sent = [*self._carrier.send(exchange, allowed, seconds)] if allowed else []
        self._on_its_way.update((site, exchange) for site in sent)
        unsent = [
            Reply(site, exchange, None, refused[site]) for site in messages if site in refused
        ]
        self._unsent += unsent
        return [*sent, *(reply.site for reply in unsent)]

    def receive(self, seconds: float) -> Iterable[Reply]:
        """Return the replies that are there, and for each message that was lost the reason."""
        replies = list(self._carrier.receive(seconds))
        refused = self._revoked()
        lost = [place for place in self._on_its_way.elements() if place[0] in refused]
        for place in lost:
            del self._on_its_way[place]
        wanted = [reply for reply in replies if self._is_wanted(reply)]
        unsent, self._unsent = self._unsent, []
        return [*unsent, *(Reply(*place, None, refused[place[0]]) for place in lost), *wanted]

    def _is_wanted(self, reply: Reply) -> bool:
        """Return whether a message to which this is a reply is on its way, and count it."""
        place = reply.site, reply.exchange
        if not self._on_its_way[place]:
            return False
        self._on_its_way[place] -= 1
        return True
