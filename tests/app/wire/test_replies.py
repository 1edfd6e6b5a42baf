"""What a coordinator does with replies that are wrong: it says why, and does not use them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from introductions import disclosed_columns, labels_told

from fedcluster.algorithms import Lloyd
from fedcluster.core import Column, Data, Limit, State, Task
from fedcluster.engines import LocalEngine, wire
from fedcluster.engines.client import Client
from fedcluster.engines.reply_validation import ReplyBounds
from fedcluster.engines.wire import about
from fedcluster.errors import SiteError
from fedcluster.metrics import Inertia
from fedcluster.privacy import MinRows
from fedcluster.rounds import run
from fedcluster_app.tables import open_rows
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import AuditEntry, Auditor, Responder

RNG = np.random.default_rng(0)
ROWS = {name: RNG.normal(size=(n, 2)) for name, n in {"a": 30, "b": 40, "c": 50, "d": 20}.items()}
STATED = ReplyBounds(rows={name: len(X) for name, X in ROWS.items()})
START = State.at(ROWS["a"][:3])
ASKED = [Task(Lloyd(), START), Task(Inertia(), START)]
ENVELOPE = {"protocol": wire.PROTOCOL, "run": "r", "exchange": 0, **about()}
Bend = Callable[[bytes, bytes], bytes]


class Postman:
    """Carries messages to responders in this process; one site's replies are bent on the way."""

    def __init__(self, sites: Mapping[str, Responder], bent: str = "", bend: Bend | None = None):
        self.sites, self.bent, self.bend = sites, bent, bend
        self.since = 0
        self.communication_rounds = 0

    def exchange(self, messages, enough):
        self.communication_rounds += 1
        came = {name: self.sites[name].reply(message) for name, message in messages.items()}
        if self.bend and self.bent in came and self.communication_rounds > self.since:
            came[self.bent] = self.bend(came[self.bent], messages[self.bent])
        return came, {}


def responders(rows: Mapping[str, np.ndarray] = ROWS) -> dict[str, Responder]:
    return {name: Responder(Client(name, Data(X)), columns=("x", "y")) for name, X in rows.items()}


def changed(**header: object) -> Bend:
    """Other values in the header of a reply."""

    def bend(reply: bytes, question: bytes) -> bytes:
        old, arrays = wire.unpack(reply)
        return wire.pack({**old, **header}, arrays)

    return bend


def without(key: str) -> Bend:
    """A reply whose header lacks something."""

    def bend(reply: bytes, question: bytes) -> bytes:
        header, arrays = wire.unpack(reply)
        return wire.pack({name: header[name] for name in header if name != key}, arrays)

    return bend


def numbers(change: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Bend:
    """Other sums and weights in the answer to the first task (the last two but one)."""

    def bend(reply: bytes, question: bytes) -> bytes:
        header, arrays = wire.unpack(reply)
        first = len(arrays) // 2 - len(ASKED)
        sums, weights = f"{first}.sums", f"{first}.weights"
        arrays[sums], arrays[weights] = change(arrays[sums], arrays[weights])
        return wire.pack(header, arrays)

    return bend


def put(array: np.ndarray, value: float) -> np.ndarray:
    array = array.copy()
    array.flat[0] = value
    return array


def weighing(weight: float) -> Bend:
    """A first line of this weight, and no other, in the answer to the first task."""
    return numbers(lambda sums, weights: (first_only(sums), put(np.zeros_like(weights), weight)))


def first_only(array: np.ndarray) -> np.ndarray:
    return np.where(np.arange(len(array))[:, None] == 0, array, 0.0)


def empty_line_with_sums(sums: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return sums, put(weights, 0.0)


BAD: dict[str, tuple[Bend, str]] = {
    "nan": (numbers(lambda s, w: (put(s, np.nan), w)), "Lloyd: it holds NaN or infinity"),
    "inf": (numbers(lambda s, w: (s, put(w, np.inf))), "Lloyd: it holds NaN or infinity"),
    "negative": (numbers(lambda s, w: (s, put(w, -1.0))), "Lloyd: a weight is negative: -1"),
    "absurd": (numbers(lambda s, w: (s, put(w, 1e12))), r"weighs 1e\+12, but all rows .* 40"),
    "a row too many": (numbers(lambda s, w: (s, put(w, 41.0))), "weighs 41, but all rows .* 40"),
    "empty": (numbers(empty_line_with_sums), "a line of weight 0 has sums"),
    "wide": (numbers(lambda s, w: (np.hstack([s, s]), w)), r"shape \(3, 6\), where \(3, 3\) was"),
    "long": (numbers(lambda s, w: (np.vstack([s, s]), np.r_[w, w])), r"shape \(6, 3\), where"),
    "apart": (numbers(lambda s, w: (s, w[:2])), r"the answers are not whole: a summary has sums"),
    "protocol": (changed(protocol=2), "the reply is of protocol 2, here it is 1"),
    "site": (changed(site="a"), "it says to come from 'a', and did not"),
    "run": (changed(run="other"), "it belongs to another round: a replay"),
    "round": (changed(exchange=99), "it belongs to another round: a replay"),
    "question": (changed(question="0" * 16), "it answers another question: a replay"),
    "limits": (changed(limits="none"), "its limits are not a list of names and parameters"),
    "streams": (changed(streams="no"), "it does not say whether its rows come in chunks"),
    "failed": (changed(failed="KeyError"), "failed, see its log: KeyError"),
    "garbage": (lambda reply, question: b"\x80\x04garbage", "no header that can be read"),
    "nothing": (lambda reply, question: b"", "no header that can be read"),
    "cut": (lambda reply, question: reply[:-8], "bytes of numbers announced"),
    "one too few": (
        lambda reply, question: wire.pack(wire.unpack(reply)[0], {}),
        "does not say in one line what it holds|0 answers to 2 tasks",
    ),
    "large": (lambda reply, question: reply + bytes(100_000_000), "at most 100,000,000 are read"),
}


@pytest.mark.parametrize("since", [0, 1], ids=["at once", "later"])
@pytest.mark.parametrize(("bend", "reason"), BAD.values(), ids=BAD)
def test_a_bad_reply_is_refused_and_the_round_goes_on(bend, reason, since, caplog):
    """From the first exchange on, or from the second: nothing of it is in the result."""
    post = Postman(responders(), "b", bend)
    post.since = since
    engine = RemoteEngine(post, ROWS, quorum=3)
    for _ in range(since):
        engine.ask(ASKED)
    with caplog.at_level(logging.WARNING):
        answers = engine.ask(ASKED)
    without = LocalEngine(Client(name, Data(X)) for name, X in ROWS.items() if name != "b")
    for got, expected in zip(answers, without.ask(ASKED), strict=True):
        assert got.missing == ("b",)
        assert got.total().sums.tobytes() == expected.total().sums.tobytes()
    [refusal] = engine.refusals
    assert (refusal.site, refusal.exchange) == ("b", since + 1)
    assert re.search(reason, refusal.reason)
    assert f"round {since + 1}, site 'b'" in caplog.text


def test_a_line_may_weigh_as_much_as_all_rows_of_its_site():
    """All 40 rows, and what rounding adds to their sum."""
    for weight in (40.0, 40.0 * (1 + 1e-12)):
        bend = weighing(weight)
        engine = RemoteEngine(Postman(responders(), "b", bend), ROWS)
        assert engine.ask(ASKED)[0].by_site["b"].weights[0] == weight


def test_the_largest_line_is_held_against_the_weight_of_all_rows_where_that_is_more():
    """Forty rows of weight 3 weigh 120; forty of weight 1/4 may still be counted as 40 rows."""
    for weight, fits, too_much in ((3.0, 120.0, 121.0), (0.25, 40.0, 41.0)):
        data = Data(ROWS["b"], np.full(40, weight))
        for sent in (fits, too_much):
            bend = weighing(sent)
            engine = RemoteEngine(Postman({"b": Responder(Client("b", data))}, "b", bend), ["b"])
            if sent == fits:
                assert engine.ask(ASKED)[0].by_site["b"].weights[0] == sent
                continue
            with pytest.raises(SiteError, match=f"weighs {sent:g}, but all rows .* {fits:g}"):
                engine.ask(ASKED)


def test_a_site_whose_limits_hide_all_its_rows_has_nothing_to_weigh() -> None:
    """Half a row is more than it told of."""
    lone = Responder(Client("b", Data(ROWS["b"][:1])))
    bend = numbers(lambda s, w: (s, put(w, 0.5)))
    engine = RemoteEngine(Postman({**responders(), "b": lone}, "b", bend), ROWS, quorum=3)
    engine.ask(ASKED)
    assert re.search(r"weighs 0.5, but all rows .* 0$", engine.refusals[0].reason)
    silent = RemoteEngine(Postman({**responders(), "b": lone}), ROWS)
    assert not silent.ask(ASKED)[0].by_site["b"].weights.any()


@pytest.mark.parametrize(("bend", "reason"), BAD.values(), ids=BAD)
def test_without_a_quorum_a_bad_reply_ends_the_run_with_its_reason(bend, reason):
    engine = RemoteEngine(Postman(responders(), "b", bend), ROWS)
    message = "round 1: 3 of 4 sites answered, where 4 are needed .b: .*"
    with pytest.raises(SiteError, match=f"{message}({reason})"):
        engine.ask(ASKED)


def test_nothing_is_believed_of_a_step_that_does_not_tell_its_shape(monkeypatch):
    def raises(self, state, n_columns):
        raise KeyError("basis")

    monkeypatch.setattr(Lloyd, "answer_shape", raises)
    monkeypatch.setattr("fedcluster_app.wire.policy._answered", lambda *_: 0)  # of sites
    engine = RemoteEngine(Postman(responders()), ROWS)
    with pytest.raises(SiteError, match="Lloyd: the step does not tell the shape"):
        engine.ask(ASKED)


def labelled() -> dict[str, Responder]:
    """Every site has two labels that several rows have, and one of a single row."""
    y = np.array(["sick", "well"] * 10)
    return {
        name: Responder(Client(name, Data(X[:20], y=np.where(np.arange(20), y, "rare"))))
        for name, X in ROWS.items()
    }


def test_a_site_that_does_not_say_whether_its_rows_come_in_chunks_is_refused():
    """It is an older one: taken for a site that holds its rows, it would have to hold them."""
    engine = RemoteEngine(Postman(responders(), "b", without("streams")), ROWS, quorum=3)
    engine.introduce()
    assert "whether its rows come in chunks" in engine.refusals[0].reason


def test_a_site_tells_with_its_first_reply_that_its_rows_come_in_chunks():
    many = Client("a", open_rows(ROWS["a"], chunk_rows=7))
    engine = RemoteEngine(Postman({**responders(), "a": Responder(many)}), ROWS)
    assert [site.name for site in engine.introduce() if site.streams] == ["a"]


def test_only_labels_of_several_rows_are_told():
    engine = RemoteEngine(Postman(labelled()), ROWS)
    assert labels_told(engine) == dict.fromkeys(ROWS, ("sick", "well"))
    assert labels_told(RemoteEngine(Postman(responders()), ROWS)) == dict.fromkeys(ROWS)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ("sick", "its labels are not a list of texts"),
        ([1, 2], "its labels are not a list of texts"),
        (["sick", "sick"], "its 2 labels are too many, or one is named twice"),
        ([str(i) for i in range(1001)], "its 1001 labels are too many"),
    ],
    ids=["text", "numbers", "twice", "many"],
)
def test_labels_that_make_no_sense_are_refused(labels, reason):
    post = Postman(labelled(), "b", changed(labels=labels))
    engine = RemoteEngine(post, ROWS, quorum=3)
    assert list(labels_told(engine)) == ["a", "c", "d"]
    assert reason in engine.refusals[0].reason


def test_a_site_that_knows_no_question_about_labels_is_refused():
    engine = RemoteEngine(Postman(labelled(), "b", without("labels")), ROWS, quorum=3)
    assert list(labels_told(engine)) == ["a", "c", "d"]
    assert "it does not say whether it has labels" in engine.refusals[0].reason


def test_an_old_reply_is_a_replay():
    """Word for word what the site once sent, with right numbers: it is refused all the same."""
    kept: list[bytes] = []

    def replay(reply: bytes, question: bytes) -> bytes:
        kept.append(reply)
        return kept[0]

    engine = RemoteEngine(Postman(responders(), "c", replay), ROWS, quorum=3)
    assert engine.ask(ASKED)[0].missing == ()
    assert engine.ask(ASKED)[0].missing == ("c",)
    assert "answers another question" in engine.refusals[0].reason


def test_a_site_cannot_speak_for_another():
    sites = responders()
    sites["b"] = sites["a"]
    engine = RemoteEngine(Postman(sites), ROWS, quorum=3)
    assert engine.ask(ASKED)[0].missing == ("b",)
    assert engine.refusals[0].reason == "it says to come from 'a', and did not"


def test_a_run_goes_on_without_a_site_that_turns_bad():
    post = Postman(responders(), "b", BAD["protocol"][0])
    post.since = 3  # the sites introduce themselves, and answer twice
    found = run(Lloyd(), RemoteEngine(post, ROWS, quorum=3), START)
    assert [done.missing for done in found.history][:4] == [(), (), ("b",), ("b",)]
    assert np.isfinite(found.state.centers).all()


def test_what_a_site_holds_back_it_holds_back_in_the_first_question_too():
    small = Client("a", Data(ROWS["a"]), [MinRows(31)])
    sites = {**responders(), "a": Responder(small)}
    engine = RemoteEngine(Postman(sites), ROWS)
    [answers, _] = engine.ask(ASKED)
    assert {site.name: site.weight for site in engine.introduce()} == {
        "a": 0.0,
        "b": 40.0,
        "c": 50.0,
        "d": 20.0,
    }
    assert not answers.by_site["a"].weights.any()
    assert engine.introduce()[0].limits == (Limit.from_filter(MinRows(31)),)


def test_what_leaves_after_an_error_holds_no_value():
    """The kind of the error, and no word of its text."""

    def load() -> Data:
        raise ValueError("row 17, column 'salary': 4711.50 is not a number")

    replies = Responder(Client("a", load))
    engine = RemoteEngine(Postman({"a": replies}), ["a"])
    with pytest.raises(SiteError, match="a: failed, see its log: ValueError") as caught:
        engine.ask(ASKED)
    headers, arrays = wire.write_tasks(ASKED)
    message = replies.reply(wire.pack({**ENVELOPE, "tasks": headers}, arrays))
    for text in (str(caught.value), message.decode()):
        assert "4711" not in text
        assert "salary" not in text


class Told(Auditor):
    """An auditor that remembers what it is told, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.exchanges: list[AuditEntry] = []

    def admit(self, request):
        return "the hash of a line"

    def record(self, entry):
        self.exchanges.append(entry)
        if self.error is not None:
            raise self.error


def test_a_question_asked_twice_gets_the_same_reply_without_new_work():
    client, told = Client("a", Data(ROWS["a"])), Told()
    site = Responder(client, auditor=told)
    headers, arrays = wire.write_tasks(ASKED)
    question = wire.pack({**ENVELOPE, "tasks": headers}, arrays)
    first = site.reply(question)
    assert site.reply(question) == first
    assert len(client.audit_log) == len(ASKED)  # answered once,
    assert len(told.exchanges) == 2  # sent twice
    assert told.exchanges[0] is told.exchanges[1]


def test_nothing_leaves_that_cannot_be_logged():
    """Not even why: only that something failed."""
    told = Told(OSError("no space left on device"))
    site = Responder(Client("a", Data(ROWS["a"])), auditor=told)
    headers, arrays = wire.write_tasks(ASKED)
    for message in (wire.pack({**ENVELOPE, "tasks": headers}, arrays), b"what?"):
        header, arrays = wire.unpack(site.reply(message))
        me = {"protocol": wire.PROTOCOL, "question": wire.digest(message), "site": "a"}
        assert header == me | about() | {"failed": "OSError"}
        assert arrays == {}


def test_the_auditor_is_told_all_of_the_question_and_of_what_leaves():
    told = Told()
    site = Responder(Client("a", Data(ROWS["a"])), auditor=told)
    headers, arrays = wire.write_tasks(ASKED)
    asked = {"protocol": wire.PROTOCOL, "run": "r", "exchange": 3, "tasks": headers}
    question = wire.pack(asked, arrays)
    reply = site.reply(question)
    header, answers = wire.unpack(reply)
    assert header["log"] == "the hash of a line"
    [exchange] = told.exchanges
    assert (exchange.request.content, exchange.reply, exchange.refused) == (question, reply, "")
    assert exchange.request.header["exchange"] == 3
    assert [task.step for task in exchange.tasks] == [task.step for task in ASKED]
    assert [answer.sums.shape for answer in exchange.answers] == [(3, 3), (1, 1)]
    assert exchange.answers[0].weights.tobytes() == answers["0.weights"].tobytes()
    limits = [{"name": "MinRows", "n": 2}]
    log = "the hash of a line"
    told_too = {"streams": False, "secure": False, "log": log}
    told_too |= {"refuses": "noise-unbudgeted", "left": -1.0}
    assert exchange.metadata == {"limits": limits, **told_too}
    site.reply(b"what?")
    assert told.exchanges[1].request.content == b"what?"
    assert told.exchanges[1].refused == "the message has no header that can be read"


def test_the_site_is_told_the_kind_of_its_own_error_only():
    """The log may be handed on; the error's text, which may hold a value, is for the screen."""

    def load() -> Data:
        raise ValueError("row 17, column 'salary': 4711.50 is not a number")

    told = Told()
    site = Responder(Client("a", load), auditor=told)
    headers, arrays = wire.write_tasks(ASKED)
    site.reply(wire.pack({"protocol": wire.PROTOCOL, "tasks": headers}, arrays))
    assert told.exchanges[0].refused == "ValueError, see what the site's program says"


def test_the_coordinator_chooses_among_columns_and_their_order():
    table = {"x": ROWS["a"][:, :1], "y": ROWS["a"][:, 1:]}

    def choose(columns: tuple[str, ...]) -> Client:
        return Client("a", Data(np.hstack([table[name] for name in columns])))

    site = Responder(choose(("x", "y")), columns=("x", "y"), choose=choose)
    engine = RemoteEngine(Postman({"a": site}), ["a"])
    engine.introduce()
    assert disclosed_columns(engine, columns=False) == {"a": (Column("x"), Column("y"))}
    engine.choose(["y", "x"])
    turned = engine.ask([Task(Lloyd(), State.at(START.centers[:, ::-1]))])[0].total()
    assert turned.sums[:, [1, 0, 2]].tobytes() == (
        LocalEngine([choose(("x", "y"))]).ask(ASKED)[0].total().sums.tobytes()
    )
    engine.choose(["y"])
    with pytest.raises(SiteError, match=r"refused .* policy of the site: Lloyd: centers"):
        engine.ask(ASKED)  # centres with two columns
    only = RemoteEngine(Postman(responders()), ROWS)
    only.choose(["z"])
    with pytest.raises(SiteError, match="this site has the columns x, y and no others"):
        only.ask(ASKED)


def test_an_unknown_step_is_refused_by_the_site():
    headers, arrays = wire.write_tasks(ASKED)
    headers = [{**header, "step": "Everything"} for header in headers]
    question = wire.pack({**ENVELOPE, "tasks": headers}, arrays)
    header, _ = wire.unpack(responders()["a"].reply(question))
    assert header["refused"] == (
        "step 'Everything' is not among the steps that this site knows; a step of your own must be "
        "named in steps under [federation] in its site.toml"
    )


def test_the_model_reaches_every_site():
    kept: dict[str, dict] = {}
    sites = {
        name: Responder(Client(name, Data(X)), keep=partial(kept.__setitem__, name))
        for name, X in ROWS.items()
    }
    model = {"centers": [[0.1, 1 / 3]]}
    assert RemoteEngine(Postman(sites), ROWS).give(model) == ("a", "b", "c", "d")
    assert kept == dict.fromkeys(ROWS, model)


def test_a_site_that_cannot_keep_the_model_is_told_of():
    def full(model: dict) -> None:
        raise OSError("no space left on device")

    sites = {**responders(), "c": Responder(Client("c", Data(ROWS["c"])), keep=full)}
    engine = RemoteEngine(Postman(sites), ROWS)
    assert engine.give({}) == ("a", "b", "d")
    assert engine.refusals[0].reason == "failed, see its log: OSError"


def test_a_header_is_json_in_one_line():
    """Anyone can read what was sent with nothing but a text editor and its first line."""
    reply = responders()["a"].reply(wire.pack(ENVELOPE, {}))
    header = json.loads(reply.split(b"\n")[0])
    assert header["columns"] == ["x", "y"]


def test_the_plan_of_a_run_ends_without_a_quorum():
    post = Postman(responders(), "b", BAD["protocol"][0])
    post.since = 2
    with pytest.raises(SiteError, match="round 3: 3 of 4 sites answered"):
        run(Lloyd(), RemoteEngine(post, ROWS), START)


@pytest.mark.parametrize("asked", [{}, {"columns": True}, {"labels": True}])
def test_sites_are_asked_to_introduce_themselves_where_something_new_is_wanted(asked):
    post = Postman(responders())
    engine = RemoteEngine(post, ROWS)
    engine.introduce(**asked)
    assert post.communication_rounds == 1
    first = engine.introduce()
    assert post.communication_rounds == 1
    assert [(site.name, site.n_columns, site.n_rows) for site in first] == [
        (name, 2, len(X)) for name, X in sorted(ROWS.items())
    ]
    engine.introduce(**asked)
    assert post.communication_rounds == 1 + bool(asked)


@pytest.mark.parametrize(("quorum", "fits"), [(0, False), (1, True), (4, True), (5, False)])
def test_a_quorum_is_from_one_site_to_all(quorum: int, fits: bool) -> None:
    if fits:
        RemoteEngine(Postman(responders()), ROWS, quorum=quorum, bounds=STATED).ask(ASKED)
        return
    with pytest.raises(ValueError, match=f"quorum must be from 1 to 4 sites, not {quorum}"):
        RemoteEngine(Postman(responders()), ROWS, quorum=quorum)


def test_a_quorum_may_be_more_than_the_sites_that_are_asked() -> None:
    post = Postman(responders(), "b", changed(protocol=2))
    engine = RemoteEngine(post, ROWS, quorum=3, bounds=STATED)
    assert engine.ask(ASKED, ["a", "c"])[0].missing == ("b", "d")
    with pytest.raises(SiteError, match=r"1 of 2 sites answered, where 2 are needed \(b: "):
        engine.ask(ASKED, ["a", "b"])


@pytest.mark.parametrize(("more", "fits"), [(0.9e-9, True), (1.5e-9, False)])
def test_rounding_is_a_billionth_of_what_all_rows_weigh(more: float, fits: bool) -> None:
    engine = RemoteEngine(Postman(responders(), "b", weighing(40 * (1 + more))), ROWS, quorum=3)
    assert engine.ask(ASKED)[0].missing == (() if fits else ("b",))


def test_what_is_chosen_is_asked_of_sites_again() -> None:
    """Other columns, or raw ones, have another width; the same ones do not."""
    post = Postman(responders())
    engine = RemoteEngine(post, ROWS)
    engine.introduce()
    for columns, raw, is_known in (
        (["x", "y"], False, True),
        (None, False, True),
        (None, True, False),
        (["y", "x"], False, False),
    ):
        engine.choose(columns, raw=raw)
        before = post.communication_rounds
        with nullcontext() if is_known else pytest.raises(SiteError, match="no others"):
            assert {site.n_columns for site in engine.introduce()} == {2}
        assert post.communication_rounds == before + (not is_known)
