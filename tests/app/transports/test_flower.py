"""Flower as the carrier, with its Grid in this process: sites that are away, silent or failing."""

from collections import Counter

import numpy as np
import pytest
from grids import ProcessGrid, over_grid, process_grid

from fedcluster import Client, Data, LocalEngine, State, Task, run
from fedcluster.algorithms import Lloyd
from fedcluster.engines.wire import unpack
from fedcluster.errors import CancelledError, SiteError
from fedcluster_app.extend import RemoteEngine, Responder
from fedcluster_app.transports.flower import _transport as flower
from fedcluster_app.wire import exchange

RNG = np.random.default_rng(0)
ROWS = {name: RNG.normal(size=(30, 2)) + 4 * RNG.integers(0, 3, (30, 1)) for name in "abcd"}
START = State.at(ROWS["a"][:3])
ASKED = [Task(Lloyd(), START)]


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(flower.FlowerCarrier, "poll", 0.002)
    monkeypatch.setattr(exchange.RetryingTransport, "recheck", 0.004)


def federation(**how) -> tuple[RemoteEngine, ProcessGrid, dict[str, int]]:
    grid, nodes = process_grid(Responder(Client(name, Data(X))) for name, X in ROWS.items())
    engine = over_grid(grid, nodes, **how)
    return engine, grid, {name: node for node, name in nodes.items()}


def test_all_tasks_of_a_round_are_one_message_and_an_app_that_stops_is_tried_again():
    engine, grid, nodes = federation(deadline=60)
    grid.broken[nodes["a"]] = 2
    assert {answers.missing for answers in engine.ask(ASKED * 5)} == {()}
    times = {node: 3 if node == nodes["a"] else 1 for node in nodes.values()}
    assert Counter(grid.mailed) == {(node, "1"): n for node, n in times.items()}
    grid.broken[nodes["a"]] = 1000
    with pytest.raises(SiteError, match=r"where 4 are needed .a: its app"):
        engine.ask(ASKED)
    assert "4711" not in engine.refusals[0].reason


def test_a_site_that_is_not_connected_is_not_waited_for_once_enough_have_answered():
    engine, grid, nodes = federation(quorum=3, deadline=60)
    grid.away.add(nodes["b"])
    found = run(Lloyd(), engine, START)
    there = LocalEngine(Client(name, Data(ROWS[name])) for name in "acd")
    alone = run(Lloyd(), there, START)
    assert found.state.centers.tobytes() == alone.state.centers.tobytes()
    assert {refusal.reason for refusal in engine.refusals} == {"not connected"}
    assert engine.give({"k": 3}) == ("a", "c", "d")


def test_a_late_reply_is_not_taken_for_another():
    engine, grid, nodes = federation(quorum=3, deadline=0.2)
    grid.dead.add(nodes["b"])
    engine.ask(ASKED)
    grid.dead.clear()
    moved = [Task(Lloyd(), State.at(ROWS["b"][5:8]))]
    answers = [engine.ask(moved)[0] for _ in range(2)][1]
    expected = LocalEngine(Client(n, Data(X)) for n, X in ROWS.items()).ask(moved)[0]
    assert answers.total().sums.tobytes() == expected.total().sums.tobytes()


def test_a_cancelled_run_tells_all_its_sites_and_ends():
    """Also those that are still at work: their message waits at the site, and ends the work."""
    asked: list[dict] = []

    class Listening(Responder):
        def reply(self, content: bytes) -> bytes:
            asked.append(unpack(content)[0])
            return super().reply(content)

    sites = [Listening(Client(name, Data(X)), columns=("x", "y")) for name, X in ROWS.items()]
    engine = over_grid(*process_grid(sites), cancelled=lambda: len(asked) > 2 * len(ROWS))
    with pytest.raises(CancelledError, match="the run was cancelled"):
        for _ in range(9):
            engine.ask(ASKED)
    told = [header for header in asked if header.get("cancel") is True]
    assert len(told) == len(ROWS)
    assert {header["run"] for header in told} == {asked[0]["run"]}
    assert asked[-len(ROWS) :] == told
