"""Rows that are prepared at the sites: what a coordinator and a site believe of each other."""

from collections.abc import Mapping

import numpy as np
import pytest
from grids import KNOWN
from introductions import disclosed_columns
from test_replies import Bend, Postman, changed

from fedcluster import Client, Data, LocalEngine, MinClusterSize, MinRows, State, Task
from fedcluster.algorithms import Lloyd
from fedcluster.core import Column
from fedcluster.engines import wire
from fedcluster.errors import SiteError
from fedcluster.preprocessing import Category, NumericColumn, Preprocessor
from fedcluster.preprocessing.moments import Missing
from fedcluster_app.extend import RemoteEngine, Responder
from fedcluster_app.site.logs import answer_line, answers_of
from fedcluster_app.site.membership import QuestionFolder, SiteAuditor
from fedcluster_app.trust.audit_log import AuditLog, read_log

RNG = np.random.default_rng(0)
COLUMNS = (Column("age"), Column("sex", "text", ("F", "M")))
ROWS = {
    name: Data(np.column_stack([RNG.normal(50, 9, 30), RNG.integers(0, 2, 30)]), columns=COLUMNS)
    for name in "abc"
}
AGES = NumericColumn("age", shift=50.0, scale=9.0)
PREPARATION = Preprocessor((AGES, Category("sex", ("F", "M"))))
START = State.at(np.array([[-1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]))
ASKED = [Task(Lloyd(), START, preprocessor=PREPARATION)]


def responders() -> dict[str, Responder]:
    clients = [Client(name, rows) for name, rows in ROWS.items()]
    return {each.name: Responder(each, columns=("age", "sex"), **KNOWN) for each in clients}


def engine(bend: Bend | None = None, sites: Mapping[str, Responder] | None = None) -> RemoteEngine:
    return RemoteEngine(Postman(sites or responders(), "b", bend), ROWS, quorum=2)


def test_answers_about_prepared_rows_are_the_same_bits():
    here = LocalEngine(Client(name, rows) for name, rows in ROWS.items()).ask(ASKED)[0]
    there = engine().ask(ASKED)[0]
    assert there.missing == ()
    assert there.total().sums.tobytes() == here.total().sums.tobytes()


@pytest.mark.parametrize("described", [False, True])
def test_an_answer_as_wide_as_the_raw_rows_is_refused(described):
    def narrow(reply: bytes, question: bytes) -> bytes:
        header, arrays = wire.unpack(reply)
        name = f"{len(arrays) // 2 - 1}.sums"
        arrays[name] = arrays[name][:, :3].copy()
        return wire.pack(header, arrays)

    asked = engine(narrow)
    if described:
        asked.introduce(columns=True)
    assert asked.ask(ASKED)[0].missing == ("b",)
    assert "sums of shape (2, 3), where (2, 4) was expected" in asked.refusals[0].reason


AGE, TEXTS = ["age", "number", []], "has a name, a kind and a list of texts"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (None, "the description of the columns is not understood"),
        ([["age", "number"]], "the description of the columns is not understood"),
        ([["age", "number", []], ["sex", "colour", []]], "has a name, a kind and a list of texts"),
        ([["age", "number", []], [3, "text", []]], "has a name, a kind and a list of texts"),
        ([["age", "number", []], ["sex", "text", [1]]], "has a name, a kind and a list of texts"),
        ([["age", "number", ["F"]], ["sex", "text", []]], "a column of number with 1 texts"),
        ([["age", "number", []], ["sex", "text", ["F"] * 1001]], "a column of text with 1001"),
        ([["age", "number", []], ["age", "text", []]], "described under one name"),
        ([["age", "number", []]], "1 columns described, the rows have 2"),
    ],
)
def test_a_description_that_is_impossible_is_refused(told, reason):
    asked = engine(changed(described=told))
    assert list(disclosed_columns(asked)) == ["a", "c"]
    assert reason in asked.refusals[0].reason


def test_only_texts_that_the_limits_let_out_are_told_and_the_log_says_how_many(tmp_path):
    X = np.column_stack([np.arange(12.0), np.repeat([0.0, 1.0, 2.0, 3.0], [6, 3, 2, 1])])
    rows = Data(X, columns=(Column("age"), Column("ward", "text", ("east", "north", "hall", "x"))))
    client = Client("a", rows, (MinRows(2), MinClusterSize(3)))
    log = AuditLog(tmp_path / "audit.jsonl", "a")
    auditor = SiteAuditor(log, QuestionFolder(tmp_path / "questions", 1 << 20), "host:8443")
    site = Responder(client, columns=("age", "ward"), **KNOWN, auditor=auditor)
    told = disclosed_columns(RemoteEngine(Postman({"a": site}), ["a"]))
    assert told == {"a": (Column("age"), Column("ward", "text", ("east", "north")))}
    limits = [{"name": "MinRows", "n": 2}, {"name": "MinClusterSize", "p": 3}]
    _, line = read_log(log.path)
    stated = {"limits": limits, "streams": False, "secure": False, "log": line["previous"]}
    stated |= {"refuses": "noise-unbudgeted", "left": -1.0}
    assert (line["told"], line["round"]) == (stated, 1)
    assert line["described"] == {"number": 2, "texts": 2, "bytes": 60}
    [shown, _] = map(answer_line, answers_of([line]))
    assert shown.endswith("round 1  the names and kinds of 2 columns, 2 texts, 60 bytes")


def test_rows_are_opened_raw_only_where_that_is_asked_for():
    opened = []

    def choose(columns: tuple[str, ...], **how: bool) -> Client:
        opened.append((columns, how))
        return Client("a", ROWS["a"])

    site = Responder(Client("a", ROWS["a"]), columns=("age", "sex"), choose=choose, **KNOWN)
    asked = RemoteEngine(Postman({"a": site}), ["a"])
    asked.introduce()
    for columns, raw in ((None, True), (["sex"], True), (["sex"], False)):
        asked.choose(columns, raw=raw)
        asked.introduce(columns=raw)
    how = {"raw": True}
    assert opened == [(("age", "sex"), how), (("sex",), how), (("sex",), {})]


def test_weights_below_one_are_no_bound_for_counts_of_rows():
    light = Data(ROWS["a"].X, np.full(30, 0.1), columns=COLUMNS)
    sites = {**responders(), "a": Responder(Client("a", light), **KNOWN)}
    asked = engine(sites=sites)
    assert asked.ask([Task(Missing(), State())])[0].missing == ()
    assert asked.introduce()[0].weight == pytest.approx(3.0)


def test_a_site_drops_a_row_with_a_gap_and_does_not_tell_by_an_error_that_there_is_one():
    rows = {name: Data(each.X.copy(), columns=COLUMNS) for name, each in ROWS.items()}
    rows["a"].X[3, 0] = rows["b"].X[4, 1] = np.nan
    sites = {name: Responder(Client(name, each), **KNOWN) for name, each in rows.items()}
    [answers] = engine(sites=sites).ask(ASKED)
    assert answers.missing == ()
    assert [answer.weights.sum() for answer in answers.by_site.values()] == [29, 29, 30]


def test_a_site_that_prepares_no_rows_says_so():
    plain = {name: Responder(Client(name, rows)) for name, rows in ROWS.items()}
    with pytest.raises(SiteError, match="refused the question: this site prepares no rows"):
        engine(sites=plain).ask(ASKED)
