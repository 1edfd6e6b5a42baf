"""A run that is followed: what is noted, what is said of it, and who can read it."""

import json
import stat
import time

import numpy as np
import pytest
from browser import page as browser_page
from browser import program
from test_report import made
from typed import invoke

from fedcluster import Client, Data, LocalEngine, State
from fedcluster.algorithms import Lloyd
from fedcluster.core import Answers
from fedcluster.errors import SiteError
from fedcluster.rounds import run
from fedcluster_app.coordinator.live import (
    PAGE,
    followed,
    read_progress,
    statuses,
    write_live,
)
from fedcluster_app.wire.recorder import PROGRESS, WatchedEngine, note
from fedcluster_app.wire.remote import Refusal

LIVE = 'http-equiv="refresh"'
"""What the contents of a page have that asks for itself again."""
ROWS = {"north": [0.0, 1.0, 3.0], "south": [8.0, 9.0, 5.0]}


def sites():
    return LocalEngine([Client(n, Data(np.array(x)[:, None]), ()) for n, x in ROWS.items()])


SITES = ("a", "b", "c")


def began(number, at, *, asked=SITES, shift=None, inertia=None):
    told = {"round": number, "asked": list(asked), "tasks": {"Lloyd": 2}, "step": "Lloyd"}
    return {**told, "inertia": inertia, "shift": shift, "at": at}


def ended(number, at, missing=()):
    answered = {name: 4 for name in SITES if name not in missing}
    told = {"answered": answered, "missing": dict.fromkeys(missing, "silent")}
    return {"round": number, **told, "at": at}


@pytest.fixture
def folder(tmp_path):
    """The folder of a run that goes on."""
    (tmp_path / "job.json").write_text("{}")
    (tmp_path / PROGRESS).write_text("")
    return tmp_path


def shown(folder):
    """The page about a run, and whether it goes on."""
    goes_on = write_live(folder, 100.0)
    return goes_on, (folder / PAGE).read_text()


def test_a_watched_run_is_the_run_and_its_events_are_its_history(tmp_path):
    start = State.at([[0.0], [1.0]])
    watched = run(Lloyd(), WatchedEngine(sites(), tmp_path / PROGRESS), start)
    alone = run(Lloyd(), sites(), start)
    np.testing.assert_array_equal(watched.state.centers, alone.state.centers)
    events = [event for event in read_progress(tmp_path) if "asked" in event]
    assert [event["round"] for event in events] == [done.round for done in alone.history]
    assert [event["inertia"] for event in events[1:]] == [d.inertia for d in alone.history[:-1]]
    assert [event["shift"] for event in events[1:]] == [d.shift for d in alone.history[:-1]]


@pytest.mark.parametrize("reason", ["silent", ""])
def test_who_is_missing_is_noted_with_the_reason_of_this_round(tmp_path, reason):
    class Lame(LocalEngine):
        def ask(self, tasks, sites=None):
            refusals.extend([Refusal("south", 2, reason)] if reason else [])
            return [Answers({"north": a.by_site["north"]}, ("south",)) for a in super().ask(tasks)]

    refusals = [Refusal("south", 1, "of an earlier round")]
    engine = WatchedEngine(Lame(sites().clients.values()), tmp_path / PROGRESS, refusals)
    run(Lloyd(), engine, State.at([[0.0], [9.0]]), max_rounds=1)
    [done] = (event for event in read_progress(tmp_path) if "answered" in event)
    assert (list(done["answered"]), done["missing"]) == (["north"], {"south": reason})


def test_a_round_that_failed_is_noted_with_who_did_not_answer(tmp_path):
    class Gone(LocalEngine):
        def ask(self, tasks, sites=None):
            refusals.append(Refusal("south", 2, "not connected"))
            raise SiteError("round 2: 1 of 2 sites answered")

    refusals = [Refusal("north", 1, "of an earlier round")]
    engine = WatchedEngine(Gone(sites().clients.values()), tmp_path / PROGRESS, refusals)
    with pytest.raises(SiteError):
        run(Lloyd(), engine, State.at([[0.0], [9.0]]))
    with pytest.raises(SiteError), engine.failure_noted():
        raise SiteError("nobody told of itself")
    events = read_progress(tmp_path)
    failures = [(each.get("round"), each["failed"]) for each in events if "failed" in each]
    assert failures == [(1, {"south": "not connected"}), (None, {})]
    [began] = (event for event in events if "asked" in event)
    assert not [event for event in events if "answered" in event]
    assert set(statuses(events, began["at"]).values()) == {"asked 0 s ago"}


def test_what_each_site_does_is_said():
    events = [
        *(began(1, 0.0), ended(1, 2.0, "c")),
        *(began(2, 2.0), ended(2, 4.0, "bc")),
        *(began(3, 4.0), {"heard": "a", "at": 5.0}),
    ]
    assert statuses(events, 14.0) == {
        "a": "answered", "b": "asked 10 s ago", "c": "asked 10 s ago"
    }  # fmt: skip
    between = statuses(events[:4], 5.0)
    missed = "missed the last round: silent"
    assert between == {"a": "answered", "b": missed, "c": missed}
    sampled = statuses([*events[:4], began(3, 4.0, asked=("a",))], 5.0)
    assert sampled == {"a": "asked 1 s ago", "b": missed, "c": missed}
    assert statuses(events[:1], 5.0)["a"] == "asked 5 s ago"


def test_a_line_that_is_being_written_is_left_for_later(folder):
    note(folder / PROGRESS, heard="a")
    with (folder / PROGRESS).open("a") as file:
        file.write('{"heard": "b", "a')
    assert [event["heard"] for event in read_progress(folder)] == ["a"]


def test_the_page_says_where_the_run_is(folder):
    assert "Waiting for the sites." in shown(folder)[1]
    lines = [began(1, 98.0), ended(1, 99.0, "c"), began(2, 99.0, inertia=12.5, shift=0.25)]
    (folder / PROGRESS).write_text("".join(json.dumps(each) + "\n" for each in lines))
    goes_on, text = shown(folder)
    for said in ("2: Lloyd", "12.5", "0 of 3", "0.25", "asked 1 s ago", LIVE):
        assert said in text
    assert goes_on
    assert stat.S_IMODE((folder / PAGE).stat().st_mode) == 0o600


def test_a_run_that_failed_says_why_and_one_that_ended_is_its_report(folder):
    (folder / "outcome.json").write_text('{"done": false, "error": "<b>west is silent"}')
    goes_on, text = shown(folder)
    assert "The run has ended: &lt;b&gt;west is silent." in text
    assert (goes_on, LIVE in text) == (False, False)
    out = folder / "out"
    out.mkdir()
    for name in ("model", "history"):
        content = {"format": f"fedcluster-{name}", **getattr(made(), name)}
        (out / f"{name}.json").write_text(json.dumps(content))
    (folder / "outcome.json").write_text(json.dumps({"done": True, "out": str(out)}))
    status, said = invoke("watch", folder)
    assert (status, "Ended." in said) == (0, True), said
    text = (folder / PAGE).read_text()
    assert ("How sure?" in text, LIVE in text) == (True, False)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("history.json", None, "holds no result"),
        ("history.json", "{", "history.json is damaged"),
        ("federation.toml", "", "has no run yet"),
    ],
)
def test_what_cannot_be_followed_is_said_in_one_line(tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text)
    status, told = invoke("watch", tmp_path)
    assert (status, said in told) == (2, True)


def test_the_last_run_of_a_federation_is_followed(tmp_path):
    (tmp_path / "federation.toml").write_text("")
    for name in ("20260101", "20260102"):
        run = tmp_path / "runs" / name
        run.mkdir(parents=True)
        (run / "job.json").write_text("{}")
    assert followed(tmp_path).name == "20260102"


@pytest.mark.skipif(program() is None, reason="there is no Chromium")
def test_a_browser_follows_the_run(folder, tmp_path):
    write_live(folder, 100.0)
    with browser_page(tmp_path / "profile") as shown:
        shown.open((folder / PAGE).as_uri())
        (folder / PROGRESS).write_text(json.dumps(began(7, 99.0)) + "\n")
        write_live(folder, 100.0)
        for _ in range(600):
            # the page may be loading itself again
            if "7: Lloyd" in shown.value("document.querySelector('main')?.textContent ?? ''"):
                break
            time.sleep(0.1)
        else:
            pytest.fail("the page does not follow the run")
        assert shown.errors == []
