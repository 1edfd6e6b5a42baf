"""What a coordinator does with replies that are wrong: it says why, and does not use them."""

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from introductions import disclosed_columns, labels_told

from fedcluster import Client, Data, LocalEngine, MinRows, State, Task, run
from fedcluster.algorithms import Lloyd
from fedcluster.core import Column, Limit
from fedcluster.engines import wire
from fedcluster.engines.reply_validation import ReplyBounds
from fedcluster.engines.wire import about
from fedcluster.errors import SiteError
from fedcluster.metrics import Inertia
from fedcluster_app.extend import RemoteEngine, Responder
from fedcluster_app.tables import open_rows
from fedcluster_app.wire.responder import AuditEntry, Auditor

RNG = np.random.default_rng(0)
ROWS = {name: RNG.normal(size=(n, 2)) for name, n in {"a": 30, "b": 40, "c": 50, "d": 20}.items()}
STATED = ReplyBounds(rows={name: len(X) for name, X in ROWS.items()})
START = State.at(ROWS["a"][:3])
ASKED = [Task(Lloyd(), START), Task(Inertia(), START)]
ENVELOPE = {"protocol": wire.PROTOCOL, "run": "r", "exchange": 0, **about()}
Bend = Callable[[bytes, bytes], bytes]


class Postman:
    """Carries messages to responders in this process; one site's replies are bent on the way."""

    def __init__(self, sites, bent: str = "", bend: Bend | None = None, since: int = 0):
        self.sites, self.bent, self.bend, self.since = sites, bent, bend, since
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
    def bend(reply: bytes, question: bytes) -> bytes:
        old, arrays = wire.unpack(reply)
        return wire.pack({**old, **header}, arrays)

    return bend


def without(key: str) -> Bend:
    def bend(reply: bytes, question: bytes) -> bytes:
        header, arrays = wire.unpack(reply)
        return wire.pack({name: header[name] for name in header.keys() - {key}}, arrays)

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
    def first_only(sums: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.vstack([sums[:1], 0 * sums[1:]]), put(0 * weights, weight)

    return numbers(first_only)


def asking(**more: object) -> bytes:
    headers, arrays = wire.write_tasks(ASKED)
    return wire.pack({**ENVELOPE, "tasks": headers, **more}, arrays)


BAD: dict[str, tuple[Bend, str]] = {
    "nan": (numbers(lambda s, w: (put(s, np.nan), w)), "Lloyd: it holds NaN or infinity"),
    "site": (
        lambda reply, question: responders()["a"].reply(question),
        "it says to come from 'a', and did not",
    ),
    "inf": (numbers(lambda s, w: (s, put(w, np.inf))), "Lloyd: it holds NaN or infinity"),
    "negative": (numbers(lambda s, w: (s, put(w, -1.0))), "Lloyd: a weight is negative: -1"),
    "absurd": (numbers(lambda s, w: (s, put(w, 1e12))), r"weighs 1e\+12, but all rows .* 40"),
    "a row too many": (numbers(lambda s, w: (s, put(w, 41.0))), "weighs 41, but all rows .* 40"),
    "empty": (numbers(lambda s, w: (s, put(w, 0.0))), "a line of weight 0 has sums"),
    "wide": (numbers(lambda s, w: (np.hstack([s, s]), w)), r"shape \(3, 6\), where \(3, 3\) was"),
    "long": (numbers(lambda s, w: (np.vstack([s, s]), np.r_[w, w])), r"shape \(6, 3\), where"),
    "apart": (numbers(lambda s, w: (s, w[:2])), r"the answers are not whole: a summary has sums"),
    "protocol": (changed(protocol=2), "the reply is of protocol 2, here it is 1"),
    "run": (changed(run="other"), "it belongs to another round: a replay"),
    "round": (changed(exchange=99), "it belongs to another round: a replay"),
    "question": (changed(question="0" * 16), "it answers another question: a replay"),
    "limits": (changed(limits="none"), "its limits are not a list of names and parameters"),
    "streams": (changed(streams="no"), "it does not say whether its rows come in chunks"),
    "no streams": (without("streams"), "it does not say whether its rows come in chunks"),
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
def test_a_bad_reply_is_refused_and_the_round_goes_on_or_ends_the_run(bend, reason, since, caplog):
    """From the first exchange on, or from the second: nothing of it is in the result."""
    engine = RemoteEngine(Postman(responders(), "b", bend, since), ROWS, quorum=3)
    strict = RemoteEngine(Postman(responders(), "b", bend, since), ROWS)
    for _ in range(since):
        engine.ask(ASKED)
        strict.ask(ASKED)
    with caplog.at_level(logging.WARNING):
        answers = engine.ask(ASKED)
    others = LocalEngine(Client(name, Data(X)) for name, X in ROWS.items() if name != "b")
    for got, expected in zip(answers, others.ask(ASKED), strict=True):
        assert got.missing == ("b",)
        assert got.total().sums.tobytes() == expected.total().sums.tobytes()
    [refusal] = engine.refusals
    assert (refusal.site, refusal.exchange) == ("b", since + 1)
    assert re.search(reason, refusal.reason)
    assert f"round {since + 1}, site 'b'" in caplog.text
    message = f"round {since + 1}: 3 of 4 sites answered, where 4 are needed .b: .*"
    with pytest.raises(SiteError, match=f"{message}({reason})"):
        strict.ask(ASKED)


@pytest.mark.parametrize(
    ("weight", "fits", "too_much"), [(1.0, 40.0, 41.0), (3.0, 120.0, 121.0), (0.25, 40.0, 41.0)]
)
def test_a_line_weighs_at_most_as_much_as_all_rows_and_counts_of_them(weight, fits, too_much):
    """And a billionth more, for rounding. Forty rows of weight 1/4 may still be counted as 40."""
    site = Responder(Client("b", Data(ROWS["b"], np.full(40, weight))))
    for sent in (fits, fits * (1 + 0.9e-9), fits * (1 + 1.5e-9), too_much):
        engine = RemoteEngine(Postman({"b": site}, "b", weighing(sent)), ["b"])
        if sent < fits * (1 + 1e-9):
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


def test_nothing_is_believed_of_a_step_that_does_not_tell_its_shape(monkeypatch):
    def raises(self, state, n_columns):
        raise KeyError("basis")

    monkeypatch.setattr(Lloyd, "answer_shape", raises)
    monkeypatch.setattr("fedcluster_app.wire.policy._answered", lambda *_: 0)  # of sites
    engine = RemoteEngine(Postman(responders()), ROWS)
    with pytest.raises(SiteError, match="Lloyd: the step does not tell the shape"):
        engine.ask(ASKED)


def labelled() -> dict[str, Responder]:
    y = np.where(np.arange(20), ["sick", "well"] * 10, "rare")
    return {name: Responder(Client(name, Data(X[:20], y=y))) for name, X in ROWS.items()}


def test_a_site_tells_with_its_first_reply_that_its_rows_come_in_chunks():
    many = Client("a", open_rows(ROWS["a"], chunk_rows=7))
    engine = RemoteEngine(Postman({**responders(), "a": Responder(many)}), ROWS)
    assert [site.name for site in engine.introduce() if site.streams] == ["a"]


def test_only_labels_of_several_rows_are_told():
    engine = RemoteEngine(Postman(labelled()), ROWS)
    assert labels_told(engine) == dict.fromkeys(ROWS, ("sick", "well"))
    assert labels_told(RemoteEngine(Postman(responders()), ROWS)) == dict.fromkeys(ROWS)


@pytest.mark.parametrize(
    ("bend", "reason"),
    [
        (changed(labels="sick"), "its labels are not a list of texts"),
        (without("labels"), "it does not say whether it has labels"),
        (changed(labels=[1, 2]), "its labels are not a list of texts"),
        (changed(labels=["sick", "sick"]), "its 2 labels are too many, or one is named twice"),
        (changed(labels=[str(i) for i in range(1001)]), "its 1001 labels are too many"),
    ],
    ids=["text", "none", "numbers", "twice", "many"],
)
def test_labels_that_make_no_sense_are_refused(bend, reason):
    engine = RemoteEngine(Postman(labelled(), "b", bend), ROWS, quorum=3)
    assert list(labels_told(engine)) == ["a", "c", "d"]
    assert reason in engine.refusals[0].reason


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


def test_a_run_goes_on_without_a_site_that_turns_bad_or_ends_without_a_quorum():
    for_quorum = {quorum: Postman(responders(), "b", changed(protocol=2), 3) for quorum in (3, 4)}
    with pytest.raises(SiteError, match="round 4: 3 of 4 sites answered"):
        run(Lloyd(), RemoteEngine(for_quorum[4], ROWS), START)
    found = run(Lloyd(), RemoteEngine(for_quorum[3], ROWS, quorum=3), START)
    assert [done.missing for done in found.history][:4] == [(), (), ("b",), ("b",)]
    assert np.isfinite(found.state.centers).all()


def test_what_a_site_holds_back_it_holds_back_in_the_first_question_too():
    small = Responder(Client("a", Data(ROWS["a"]), [MinRows(31)]))
    engine = RemoteEngine(Postman({**responders(), "a": small}), ROWS)
    [answers, _] = engine.ask(ASKED)
    sites = engine.introduce()
    assert [site.weight for site in sites] == [0.0, 40.0, 50.0, 20.0]
    assert not answers.by_site["a"].weights.any()
    assert sites[0].limits == (Limit.from_filter(MinRows(31)),)


def test_after_an_error_its_kind_leaves_and_no_word_of_its_text_nor_is_it_logged():
    """The log may be handed on; the error's text, which may hold a value, is for the screen."""

    def load() -> Data:
        raise ValueError("row 17, column 'salary': 4711.50 is not a number")

    told = Told()
    site = Responder(Client("a", load), auditor=told)
    with pytest.raises(SiteError, match="a: failed, see its log: ValueError") as caught:
        RemoteEngine(Postman({"a": site}), ["a"]).ask(ASKED)
    for text in (str(caught.value), site.reply(asking()).decode()):
        assert "4711" not in text
        assert "salary" not in text
    said = {entry.refused for entry in told.exchanges}
    assert said == {"ValueError, see what the site's program says"}


class Told(Auditor):
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
    assert site.reply(asking()) == site.reply(asking())
    assert len(client.audit_log) == len(ASKED)  # answered once,
    assert len(told.exchanges) == 2  # sent twice
    assert told.exchanges[0] is told.exchanges[1]


def test_nothing_leaves_that_cannot_be_logged():
    told = Told(OSError("no space left on device"))
    site = Responder(Client("a", Data(ROWS["a"])), auditor=told)
    for message in (asking(), b"what?"):
        header, arrays = wire.unpack(site.reply(message))
        me = {"protocol": wire.PROTOCOL, "question": wire.digest(message), "site": "a"}
        assert header == me | about() | {"failed": "OSError"}
        assert arrays == {}


def test_the_auditor_is_told_all_of_the_question_and_of_what_leaves():
    told = Told()
    site = Responder(Client("a", Data(ROWS["a"])), auditor=told)
    question = asking(exchange=3)
    reply = site.reply(question)
    header, answers = wire.unpack(reply)
    assert header["log"] == "the hash of a line"
    [exchange] = told.exchanges
    assert (exchange.request.content, exchange.reply, exchange.refused) == (question, reply, "")
    assert exchange.request.header["exchange"] == 3
    assert [task.step for task in exchange.tasks] == [task.step for task in ASKED]
    assert [answer.sums.shape for answer in exchange.answers] == [(3, 3), (1, 1)]
    assert exchange.answers[0].weights.tobytes() == answers["0.weights"].tobytes()
    assert exchange.metadata == {
        "limits": [{"name": "MinRows", "n": 2}],
        "streams": False,
        "secure": False,
        "log": "the hash of a line",
        "refuses": "noise-unbudgeted",
        "left": -1.0,
    }
    site.reply(b"what?")
    assert told.exchanges[1].request.content == b"what?"
    assert told.exchanges[1].refused == "the message has no header that can be read"


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
    straight = LocalEngine([choose(("x", "y"))]).ask(ASKED)[0].total()
    assert turned.sums[:, [1, 0, 2]].tobytes() == straight.sums.tobytes()
    engine.choose(["y"])
    with pytest.raises(SiteError, match=r"refused .* policy of the site: Lloyd: centers"):
        engine.ask(ASKED)  # centres with two columns
    only = RemoteEngine(Postman(responders()), ROWS)
    only.choose(["z"])
    with pytest.raises(SiteError, match="this site has the columns x, y and no others"):
        only.ask(ASKED)


def test_the_model_reaches_every_site_and_one_that_cannot_keep_it_is_told_of():
    kept: dict[str, dict] = {}

    def keep(name: str, model: dict) -> None:
        if name == "c":
            raise OSError("no space left on device")
        kept[name] = model

    sites = {n: Responder(Client(n, Data(X)), keep=partial(keep, n)) for n, X in ROWS.items()}
    engine, model = RemoteEngine(Postman(sites), ROWS), {"centers": [[0.1, 1 / 3]]}
    assert engine.give(model) == ("a", "b", "d")
    assert kept == dict.fromkeys("abd", model)
    assert engine.refusals[0].reason == "failed, see its log: OSError"


@pytest.mark.parametrize("asked", [{}, {"columns": True}, {"labels": True}])
def test_sites_are_asked_to_introduce_themselves_where_something_new_is_wanted(asked):
    post = Postman(responders())
    engine = RemoteEngine(post, ROWS)
    engine.introduce(**asked)
    assert post.communication_rounds == 1
    first = engine.introduce()
    assert post.communication_rounds == 1
    told = [(site.name, site.n_columns, site.n_rows) for site in first]
    assert told == [(name, 2, len(X)) for name, X in sorted(ROWS.items())]
    engine.introduce(**asked)
    assert post.communication_rounds == 1 + bool(asked)


@pytest.mark.parametrize(("quorum", "fits"), [(0, False), (1, True), (4, True), (5, False)])
def test_a_quorum_is_from_one_site_to_all(quorum: int, fits: bool) -> None:
    said = f"quorum must be from 1 to 4 sites, not {quorum}"
    with nullcontext() if fits else pytest.raises(ValueError, match=said):
        RemoteEngine(Postman(responders()), ROWS, quorum=quorum, bounds=STATED).ask(ASKED)


def test_a_quorum_may_be_more_than_the_sites_that_are_asked() -> None:
    post = Postman(responders(), "b", changed(protocol=2))
    engine = RemoteEngine(post, ROWS, quorum=3, bounds=STATED)
    assert engine.ask(ASKED, ["a", "c"])[0].missing == ("b", "d")
    with pytest.raises(SiteError, match=r"1 of 2 sites answered, where 2 are needed \(b: "):
        engine.ask(ASKED, ["a", "b"])


def test_what_is_chosen_is_asked_of_sites_again() -> None:
    """Other columns, or raw ones, have another width; the same ones do not."""
    post = Postman(responders())
    engine = RemoteEngine(post, ROWS)
    engine.introduce()
    choices = ((["x", "y"], False, True), (None, False, True), (None, True, False))
    for columns, raw, is_known in (*choices, (["y", "x"], False, False)):
        engine.choose(columns, raw=raw)
        before = post.communication_rounds
        with nullcontext() if is_known else pytest.raises(SiteError, match="no others"):
            assert {site.n_columns for site in engine.introduce()} == {2}
        assert post.communication_rounds == before + (not is_known)
