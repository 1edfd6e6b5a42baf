"""The shared exchange over a scripted carrier: no transport, no thread and no clock."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from fedcluster.errors import CancelledError
from fedcluster_app.wire.exchange import NoReplyError, Reply, RetryingTransport, ThreadedCarrier

SITES = ("east", "north", "west")
DEADLINE = 120.0
NEVER = float("inf")


@dataclass
class Site:
    """A site's script: when it is there, how long it takes, what it does with its questions."""

    comes: float = 0.0
    goes: float = NEVER
    takes: float = 0.5
    fails: int = 0
    deaf: int = 0  # messages that it loses
    twice: bool = False
    asked: list[tuple[float, int]] = field(default_factory=list)


class Script:
    """A carrier whose time passes only while somebody waits."""

    def __init__(self, **sites: Site) -> None:
        self.sites, self.now, self.cancel = sites, 0.0, NEVER
        self.replies: list[tuple[float, Reply]] = []

    def clock(self) -> float:
        return self.now

    def connected(self) -> list[str]:
        return [name for name, site in self.sites.items() if site.comes <= self.now < site.goes]

    def send(self, exchange: int, messages: Mapping[str, bytes], seconds: float) -> list[str]:
        for name, message in messages.items():
            site = self.sites[name]
            site.asked.append((self.now, exchange))
            due = self.now + site.takes
            if site.deaf or due >= site.goes:
                site.deaf = max(site.deaf - 1, 0)
                continue
            site.fails, failed = max(site.fails - 1, 0), site.fails > 0
            content = None if failed else name.encode() + message
            reply = Reply(name, exchange, content, "its app stopped" if failed else "")
            self.replies += [(due, reply)] * (1 + site.twice)
        return list(messages)

    def receive(self, seconds: float) -> Iterable[Reply]:
        due = min([self.now + seconds, *(when for when, _ in self.replies)])
        self.now = max(self.now, due)
        came = [reply for when, reply in self.replies if when <= self.now]
        self.replies = [(when, reply) for when, reply in self.replies if when > self.now]
        return came


def exchanges(script: Script, **how) -> RetryingTransport:
    return RetryingTransport(
        script, DEADLINE, lambda: script.now >= script.cancel, clock=script.clock, **how
    )


def ask(transport: RetryingTransport, enough: int = 3, what: bytes = b"?") -> tuple[set, dict]:
    came, why = transport.exchange(dict.fromkeys(SITES, what), enough)
    assert all(content == name.encode() + what for name, content in came.items())
    assert came.keys() | why.keys() == set(SITES)
    return set(came), dict(why)


def script(**other: Site) -> Script:
    return Script(**{name: other.get(name, Site()) for name in SITES})


# A script of the west, how many replies are enough, why there is none, when the round ends, and how
# often the west was asked.
ROUNDS = {
    "as long as its slowest site": (Site(takes=7.0), 3, "", 7.0, 1),
    "not connected where too few reply": (Site(comes=NEVER), 3, "not connected", DEADLINE, 0),
    "not connected where enough reply": (Site(comes=NEVER), 2, "not connected", 0.5, 0),
    "late, and needed": (Site(comes=30.0), 3, "", 30.5, 1),
    "asked again after a third of the deadline": (Site(deaf=1), 3, "", 40.5, 2),
    "tried again": (Site(fails=3), 3, "", 6.5, 4),
    "not tried for ever": (Site(fails=99), 3, "its app stopped", 6.5, RetryingTransport.tries),
}


@pytest.mark.parametrize(("west", "enough", "why", "ends", "asked"), ROUNDS.values(), ids=ROUNDS)
def test_how_long_a_round_takes_by_what_one_site_does(west, enough, why, ends, asked):
    carrier = script(west=west)
    came, reasons = ask(exchanges(carrier), enough)
    assert came == set(SITES) - reasons.keys()
    assert reasons == ({"west": why} if why else {})
    assert ends <= carrier.now <= ends + RetryingTransport.recheck
    assert [len(site.asked) for site in carrier.sites.values()] == [1, 1, asked]


def test_the_first_exchange_has_patience_with_sites_that_start_slowly_and_no_other_has():
    carrier = script(west=Site(comes=9.0))
    transport = exchanges(carrier, grace=30.0)
    assert ask(transport, 2) == (set(SITES), {})
    carrier.sites["west"].goes = carrier.now
    began = carrier.now
    assert ask(transport, 2)[1] == {"west": "not connected"}
    assert carrier.now - began == 0.5
    carrier = script(west=Site(comes=NEVER))
    assert ask(exchanges(carrier, grace=30.0), 2)[1] == {"west": "not connected"}
    assert 30.0 <= carrier.now < 31.0


def test_a_site_that_dies_costs_one_deadline_and_then_nothing():
    carrier = script(west=Site(takes=10.0, goes=5.0))
    transport = exchanges(carrier)
    assert ask(transport, 2)[1] == {"west": "no reply within 120 s"}
    assert carrier.now == DEADLINE
    for _ in range(3):
        assert ask(transport, 2)[1] == {"west": "not connected"}
    assert carrier.now == pytest.approx(DEADLINE + 3 * 0.5)


def test_a_site_that_was_silent_is_asked_and_not_waited_for_until_it_says_something():
    carrier = script(west=Site(deaf=3))
    transport = exchanges(carrier)
    assert ask(transport, 2)[1] == {"west": "no reply within 120 s"}
    assert [when for when, _ in carrier.sites["west"].asked] == [0.0, pytest.approx(40.0, abs=3)]
    began = carrier.now
    carrier.sites["west"].takes = 0.7
    assert ask(transport, 2)[1] == {"west": "no reply within 120 s"}  # it loses its last message
    assert ask(transport, 2)[1] == {"west": "no reply within 120 s"}  # it replies too late
    assert carrier.now - began == pytest.approx(1.0)
    carrier.sites["west"].takes = 2.0
    assert ask(transport, 2)[0] == set(SITES)


def test_a_reply_that_comes_twice_counts_once_and_one_of_a_site_that_was_not_asked_never():
    told: list[str] = []
    carrier = script(west=Site(twice=True))
    carrier.replies.append((0.1, Reply("nobody", 1, b"nobody?")))
    transport = RetryingTransport(carrier, DEADLINE, responded=told.append, clock=carrier.clock)
    for _ in range(3):
        assert ask(transport) == (set(SITES), {})
    assert sorted(told) == sorted(SITES * 3)


def test_a_reply_to_an_earlier_exchange_is_never_taken_for_one_to_this():
    carrier = script(west=Site(takes=130.0))
    transport = exchanges(carrier)
    assert ask(transport, 2, b"first")[1] == {"west": "no reply within 120 s"}
    carrier.sites["west"].takes = 30.0
    for what in (b"second", b"third", b"fourth"):
        carrier.sites["east"].takes = 15.0  # meanwhile, the reply to the first comes
        ask(transport, 2, what)
    assert ask(transport, 2, b"fifth")[0] == set(SITES)


def test_a_site_that_cannot_be_reached_may_come_back_as_often_as_it_likes():
    """What never reached it is no try."""
    carrier = script()
    real, lost = carrier.send, []

    def send(exchange, messages, seconds):
        there = dict(messages)
        if carrier.now < 50 and there.pop("west", None):
            carrier.replies.append((carrier.now, Reply("west", exchange, None, gone=True)))
            lost.append("west")
        real(exchange, there, seconds)
        return messages

    carrier.send = send  # type: ignore[method-assign]
    assert ask(exchanges(carrier)) == (set(SITES), {})
    assert len(lost) > RetryingTransport.tries


def test_a_cancelled_run_is_noticed_while_a_site_is_waited_for_and_all_sites_can_be_told():
    carrier = script(west=Site(deaf=99))
    carrier.cancel = 20.0
    transport = exchanges(carrier)
    with pytest.raises(CancelledError, match="the run was cancelled"):
        ask(transport)
    assert carrier.now == pytest.approx(20.0, abs=RetryingTransport.poll)
    assert ask(transport, 0, b"cancel")[0] == {"east", "north"}
    assert carrier.now == pytest.approx(20.0 + RetryingTransport.farewell, abs=0.5)
    assert carrier.sites["west"].asked[-1][1] == 2


# Over what asks one site and blocks


class Calls:
    def __init__(self, **what: Callable[[int, bytes, float], bytes]) -> None:
        self.what = what
        self.asked: dict[str, list[bytes]] = {name: [] for name in SITES}

    def __call__(self, site: str, message: bytes, seconds: float) -> bytes:
        self.asked[site].append(message)
        if site in self.what:
            return self.what[site](len(self.asked[site]), message, seconds)
        return site.encode() + message


def threaded(calls: Calls, deadline: float = 60.0) -> RetryingTransport:
    return RetryingTransport(ThreadedCarrier(calls, SITES), deadline, recheck=0.01)


def test_a_silent_site_is_asked_again_with_more_patience():
    waits: list[float] = []

    def late(n, message, seconds):
        waits.append(seconds)
        if n < 3:
            raise TimeoutError
        return b"west" + message

    assert ask(threaded(Calls(west=late))) == (set(SITES), {})
    assert waits == [10.0, 20.0, pytest.approx(40.0)]


def test_a_site_that_is_gone_or_fails_is_named_with_its_reason():
    def gone(n, message, seconds):
        raise NoReplyError("not connected", gone=True)

    def fails(n, message, seconds):
        raise NoReplyError("its program failed")

    calls = Calls(west=gone, east=fails)
    came, why = ask(threaded(calls), 1)
    assert came == {"north"}
    assert why == {"west": "not connected", "east": "its program failed"}


def test_a_site_that_blocks_does_not_keep_what_ends_its_work_from_it():
    """It is asked two things at a time, and no more, however many rounds go by without it."""
    free, lock, at_once = threading.Event(), threading.Lock(), [0, 0]

    def blocks(n, message, seconds):
        with lock:
            at_once[0] += 1
            at_once[1] = max(at_once)
        free.wait(60)
        with lock:
            at_once[0] -= 1
        return b"west" + message

    calls = Calls(west=blocks)
    transport = threaded(calls, 0.2)
    for i in range(6):
        assert ask(transport, 2, str(i).encode())[1] == {"west": "no reply within 0.2 s"}
    assert calls.asked["west"] == [b"0", b"1"]
    free.set()
    assert any("west" in ask(transport, 2)[0] for _ in range(1000))
    assert at_once[1] == 2
