"""Versions that differ: both ends do what both know, or refuse with both versions named."""

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
from fedcluster.algorithms import Lloyd
from fedcluster.core import SiteInfo, State, Task
from fedcluster.engines.wire import PROTOCOL, pack, read_tasks, unpack
from fedcluster.errors import SiteError
from fedcluster_app.wire.remote import Question, RemoteEngine, read_reply

HERE = Path(__file__).parents[2]
RECORDED = HERE / "protocol_1.json"
"""Questions, and the replies of a site of 12 whole numbers, as protocol 1 began."""

HERE = Path(__file__).parents[2]


def exchanges() -> list[tuple[bytes, bytes]]:
    recorded = json.loads(RECORDED.read_text("utf-8"))
    return [tuple(map(base64.b64decode, pair)) for pair in recorded]  # type: ignore[misc]


def test_a_site_answers_questions_of_the_last_protocol_as_it_did_then():
    answering = site()
    assert len(exchanges()) > 6
    for question, reply in exchanges():
        then, numbers_then = unpack(reply)
        now, numbers_now = unpack(answering.reply(question))
        then.pop("about", None)  # it may say more by now, and of another version
        assert then.items() <= now.items()
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


INSTALL = "install the same at both"
LISTED = "; a step of your own must be named in steps under [federation] in its site.toml"
NEWER_FIELD = {"step": "Lloyd", "fields": {"newer": 1}}
NEWER = {
    "protocol": ({"protocol": 2}, "the question is of protocol 2, this site speaks 1"),
    "step": (
        {"tasks": [{"step": "Newer", "fields": {}}]},
        f"step 'Newer' is not among the steps that this site knows{LISTED}",
    ),
    "question": ({"halved": True}, "the question says 'halved', which is not known here"),
    "task": ({"tasks": [{"halved": 1}]}, "task 0 says 'halved', which is not known here"),
    "field": ({"tasks": [NEWER_FIELD]}, "step 'Lloyd' does not have these fields: ['newer']"),
}


def asked(more: Mapping[str, Any], about: object) -> bytes:
    task, arrays = unpack(Question({}, [Task(Lloyd(), State.at(ROWS[:2]))]).message)
    tasks = [{**task["tasks"][0], **each} for each in more.get("tasks", [{}])]
    header = {"protocol": 1, "run": "r", "exchange": 0, **more, "tasks": tasks, "about": about}
    return pack(header, arrays)


@pytest.mark.parametrize(("more", "reason"), NEWER.values(), ids=NEWER)
def test_a_site_refuses_what_it_does_not_know_with_both_versions_where_they_differ(more, reason):
    names_both = f"; this site has fedcluster {__version__}, the coordinator {{}}: {INSTALL}"
    for about, theirs in (
        ({"fedcluster": "9.9"}, "9.9"),
        ({"fedcluster": __version__}, ""),
        ({}, "an unknown one"),
        ("odd", "an unknown one"),
    ):
        header, arrays = unpack(site().reply(asked(more, about)))
        assert header["refused"] == reason + (names_both.format(theirs) if theirs else "")
        assert not arrays


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
    def reply(message: bytes) -> bytes:
        header, arrays = unpack(site().reply(message))
        return pack({**header, **changes, "about": {"fedcluster": "0.0.1"}}, arrays)

    ends = f"the coordinator has fedcluster {__version__}, the site 0.0.1: install the same at both"
    with pytest.raises(SiteError) as raised:
        RemoteEngine(ByHand(reply), ["north"]).introduce()
    assert f"{reason}; {ends}" in str(raised.value)


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


@pytest.mark.thorough
def test_two_installed_versions_find_the_same_bits(tmp_path):
    expected = spoken(site().reply)
    assert len(expected) == ROWS[:2].nbytes
    assert with_peer(tmp_path, "9.9", PROTOCOL) == (expected, expected)


@pytest.mark.thorough
def test_two_installed_versions_of_other_protocols_name_both(tmp_path):
    here, there = with_peer(tmp_path, "9.9", PROTOCOL + 1)
    for said, coordinator, at_site in ((here, __version__, "9.9"), (there, "9.9", __version__)):
        assert said.decode().count("\n") == 0
        ends = f"; the coordinator has fedcluster {coordinator}, the site {at_site}: install the"
        assert f"{ends} same at both" in said.decode()
