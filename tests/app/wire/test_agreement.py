"""Versions that differ: both ends do what both know, or refuse with both versions named."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grids import KNOWN
from installed import installed
from peer import ROWS, ByHand, asking, received, sent, site, spoken

from fedcluster import __version__
from fedcluster.algorithms import FFCM, Lloyd
from fedcluster.core import SiteInfo, State, Task
from fedcluster.engines.wire import PROTOCOL, pack, read_tasks, unpack
from fedcluster.errors import SiteError
from fedcluster.jobs import execute, fit_of
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster_app.wire.remote import Question, RemoteEngine, read_reply

RECORDED = Path(__file__).parents[2] / "protocol_1.json"
"""Questions, and the replies of a site of 12 whole numbers, as protocol 1 began."""

HERE = Path(__file__).parents[2]


def exchanges() -> list[tuple[bytes, bytes]]:
    recorded = json.loads(RECORDED.read_text("utf-8"))
    return [tuple(map(base64.b64decode, pair)) for pair in recorded]  # type: ignore[misc]


def without_version(header: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in header.items() if key != "about"}


def test_a_site_answers_questions_of_the_last_protocol_as_it_did_then():
    answering = site()
    assert len(exchanges()) > 6
    for question, reply in exchanges():
        then, numbers_then = unpack(reply)
        now, numbers_now = unpack(answering.reply(question))
        assert without_version(then).items() <= now.items()  # it may say more by now
        assert numbers_now.keys() == numbers_then.keys()
        for name, numbers in numbers_then.items():  # the last bits are the processor's
            np.testing.assert_allclose(numbers_now[name], numbers, rtol=1e-12, atol=1e-12)


def test_a_coordinator_reads_replies_of_the_last_protocol():
    taken = 0
    for message, reply in exchanges():
        header, arrays = unpack(message)
        question = Question(header, read_tasks(header["tasks"], arrays, **KNOWN))
        vars(question)["message"] = message  # as it travelled then
        first = "SiteSize" in message.decode("latin-1")
        before = SiteInfo("north", n_columns=None if first else 2, n_rows=6.0, weight=6.0)
        after, summaries = read_reply(reply, question, before)
        assert after.n_rows == len(ROWS)
        taken += len(summaries)
    assert taken >= 8


def carry_out(reply) -> list[bytes]:
    """Ask what a default fit of prepared rows, fuzzy c-means and a bare introduction ask."""
    transport = ByHand(reply)
    engine = RemoteEngine(transport, ["north"])
    engine.name_job("20261122-230000-aa00")
    engine.choose(None, raw=True)
    report = execute(fit_of(2, prepare=PreprocessingSpec(scale="standard"), seed=1), engine)
    engine.choose(["stay", "age"])
    engine.ask([Task(FFCM(2), State.at(ROWS[[0, 3]]), seed=3), Task(Lloyd(), State.at(ROWS[:2]))])
    assert report.sites[0].name == "north"
    return transport.replies


NEWER = {
    "another protocol": ({"protocol": 2}, "the question is of protocol 2, this site speaks 1"),
    "a word in a question": ({"halved": True}, "the question says 'halved', which is not known"),
    "a word in a task": ({"tasks": [{"halved": 1}]}, "task 0 says 'halved', which is not known"),
    "a step": ({"tasks": [{"step": "Newer", "fields": {}}]}, "step 'Newer' is not among the steps"),
    "a field": (
        {"tasks": [{"step": "Lloyd", "fields": {"newer": 1}}]},
        r"step 'Lloyd' does not have these fields: ['newer']",
    ),
}


def asked(more: Mapping[str, Any], about: object) -> bytes:
    """Return a question of a coordinator of another version."""
    task, arrays = unpack(Question({}, [Task(Lloyd(), State.at(ROWS[:2]))]).message)
    tasks = [{**task["tasks"][0], **each} for each in more.get("tasks", [{}])]
    header = {"protocol": 1, "run": "r", "exchange": 0, **more, "tasks": tasks, "about": about}
    return pack(header, arrays)


@pytest.mark.parametrize(("more", "reason"), NEWER.values(), ids=NEWER)
@pytest.mark.parametrize(
    ("about", "theirs"),
    [({"fedcluster": "9.9"}, "9.9"), ({}, "an unknown one"), ("odd", "an unknown one")],
)
def test_a_site_refuses_what_it_does_not_know_with_both_versions(more, reason, about, theirs):
    header, arrays = unpack(site().reply(asked(more, about)))
    assert header["refused"].startswith(reason)
    assert header["refused"].endswith(
        f"; this site has fedcluster {__version__}, the coordinator {theirs}: "
        "install the same at both"
    )
    assert not arrays


def test_the_same_version_is_not_blamed():
    header, _ = unpack(site().reply(asked({"halved": True}, {"fedcluster": __version__})))
    assert header["refused"] == "the question says 'halved', which is not known here"


def test_a_newer_coordinator_is_answered_what_both_know():
    about = {"fedcluster": "9.9", "job": "x", "colour": ["of", {"no": "meaning"}]}
    header, arrays = unpack(site().reply(asked({}, about)))
    assert "refused" not in header
    assert arrays["0.weights"].sum() == 6
    assert header["about"] == {"fedcluster": __version__}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"protocol": 2}, "the reply is of protocol 2, here it is 1"),
        ({"streams": None}, "it does not say whether its rows come in chunks"),
    ],
)
def test_a_coordinator_names_both_versions(changes, reason):
    answering = site()

    def reply(message: bytes) -> bytes:
        header, arrays = unpack(answering.reply(message))
        return pack({**header, **changes, "about": {"fedcluster": "0.0.1"}}, arrays)

    engine = RemoteEngine(ByHand(reply), ["north"])
    with pytest.raises(SiteError) as raised:
        engine.introduce()
    ends = (
        f"; the coordinator has fedcluster {__version__}, the site 0.0.1: install the same at both"
    )
    assert f"{reason}{ends}" in str(raised.value)


def with_peer(folder: Path, version: str, protocol: int) -> tuple[bytes, bytes]:
    """What this version finds at a site of another, and what the other finds here."""
    env = os.environ | {"PYTHONPATH": f"{installed(folder, version, protocol)}:{HERE}"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, HERE / "peer.py"], env=env, **pipes) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        end, answering = (peer.stdin, peer.stdout), site()
        here = spoken(asking(end))
        sent(end[0], b"")
        while question := received(end[1]):
            sent(end[0], answering.reply(question))
        return here, received(end[1])


def test_two_installed_versions_find_the_same_bits(tmp_path):
    expected = spoken(site().reply)
    assert len(expected) == ROWS[:2].nbytes
    assert with_peer(tmp_path, "9.9", PROTOCOL) == (expected, expected)


def test_two_installed_versions_of_other_protocols_name_both(tmp_path):
    here, there = with_peer(tmp_path, "9.9", PROTOCOL + 1)
    for said, coordinator, at_site in ((here, __version__, "9.9"), (there, "9.9", __version__)):
        assert said.decode().count("\n") == 0
        ends = f"; the coordinator has fedcluster {coordinator}, the site {at_site}: install the"
        assert f"{ends} same at both" in said.decode()
