"""A site whose key is taken back amid a run, with a scripted carrier."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedcluster_app.coordinator import lifecycle
from fedcluster_app.coordinator.folder import create
from fedcluster_app.coordinator.lifecycle import RevokedSites
from fedcluster_app.wire.exchange import Reply, RetryingTransport

WHY = "its key was revoked"
NORTH, SOUTH = Reply("north", 1, b"!"), Reply("south", 1, b"!")
GONE = Reply("south", 1, None, "it is gone")


class Scripted:
    """Carrier whose replies, and what happens before them, are written down."""

    def __init__(self, *steps: tuple[dict[str, str], list[Reply]]) -> None:
        self.steps, self.sent, self.now = list(steps), list[tuple[str, int]](), 0.0
        self.refused: Mapping[str, str] = {}

    def connected(self) -> Collection[str]:
        return ["north", "south"]

    def send(self, exchange: int, messages: Mapping[str, bytes], _: float) -> Collection[str]:
        self.sent += [(site, exchange) for site in messages]
        return list(messages)

    def receive(self, seconds: float) -> Iterable[Reply]:
        self.now += seconds
        if not self.steps:
            return []
        self.refused, replies = self.steps.pop(0)
        return replies

    def exchange(self, enough: int = 1) -> tuple[Mapping[str, bytes], Mapping[str, str]]:
        how: dict[str, Any] = {"clock": lambda: self.now, "revoked": lambda: self.refused}
        exchanges = RetryingTransport(self, 60, recheck=0, **how)
        return exchanges.exchange({"north": b"?", "south": b"?"}, enough)


def test_a_refused_site_is_sent_nothing() -> None:
    carrier = Scripted(({"south": WHY}, [NORTH]))
    carrier.refused = {"south": WHY}
    assert carrier.exchange() == ({"north": b"!"}, {"south": WHY})
    assert carrier.sent == [("north", 1)]


def test_a_run_that_needs_a_refused_site_ends_soon() -> None:
    """It would not be let in before somebody gives it a new key."""
    carrier = Scripted(*[({"south": WHY}, [NORTH][i:]) for i in range(20)])
    carrier.refused = {"south": WHY}
    assert carrier.exchange(enough=2) == ({"north": b"!"}, {"south": WHY})
    assert carrier.now < 10


def test_what_has_come_and_was_not_used_is_refused() -> None:
    """At once: the exchange does not wait for the deadline."""
    carrier = Scripted(({"south": WHY}, [SOUTH, NORTH]))
    assert carrier.exchange() == ({"north": b"!"}, {"south": WHY})
    assert carrier.now < 1


def test_an_error_that_the_transport_tells_later_is_not_counted_twice() -> None:
    """Else the exchange would wait for the deadline."""
    refused = {"south": WHY}
    carrier = Scripted((refused, []), (refused, [GONE]), (refused, [GONE]), (refused, [NORTH]))
    assert carrier.exchange() == ({"north": b"!"}, {"south": WHY})
    assert carrier.now < 2


def test_a_reply_by_the_old_key_is_not_used_after_a_new_one_was_given() -> None:
    """It was asked before; only an answer to what was asked after that counts."""
    old, new = Reply("south", 1, b"old"), Reply("south", 1, b"new")
    carrier = Scripted(({}, [NORTH]), ({"south": WHY}, []), ({}, [old]), ({}, [new]))
    assert carrier.exchange(enough=2) == ({"north": b"!", "south": b"new"}, {})


def test_the_folder_says_who_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    create(folder, ["north", "south"], "127.0.0.1:8443")
    refused = RevokedSites(folder, ["north", "south"])
    assert refused() == {}
    lifecycle.rotate_key(folder, "north")
    lifecycle.promote(folder, ["north"])
    assert refused() == {}
    lifecycle.revoke(folder, "north")
    assert list(refused()) == ["north"]
    assert refused()["north"].startswith("its key was revoked on 20")
    lifecycle.rotate_key(folder, "north")
    assert refused() == {}
    (folder / "keys/former.json").write_text("{")
    assert list(refused()) == ["north", "south"]


def test_a_run_goes_on_with_a_site_that_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    create(folder, ["north", "south"], "127.0.0.1:8443")
    lifecycle.remove_site(folder, "north")
    assert RevokedSites(folder, ["north", "south"])() == {}
