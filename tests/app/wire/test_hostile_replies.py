"""Replies of a site that means harm: they reach no terminal, no model and no other site."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from grids import KNOWN
from introductions import disclosed_columns, labels_told
from test_replies import Bend, Postman, changed, numbers

from fedcluster import Client, Data, LocalEngine, PreprocessingSpec, State, Task
from fedcluster.core import Column
from fedcluster.engines import wire
from fedcluster.jobs import Job, SelectK, execute, fit_of
from fedcluster.metrics import Inertia
from fedcluster.preprocessing.agreement import agree
from fedcluster.preprocessing.fitting import fit
from fedcluster.rounds import run_plan
from fedcluster.texts import first_not_plain, is_plain, printable
from fedcluster_app.extend import RemoteEngine, Responder

pytestmark = pytest.mark.usefixtures("short_searches")

RNG = np.random.default_rng(9)
SPOTS = {name: RNG.normal(size=(60, 3)) + RNG.integers(0, 3, (60, 1)) * 9 for name in "abc"}
XYZ = ("x", "y", "z")
TEXTS = {
    "escape": "\x1b[2J\x1b]0;owned\x07",
    "newline": "fine\nsite 'a': all rows sent",
    "return": "fine\rERROR",
    "c1": "\x9b31m",
    "bidi": "\u202egpj.exe",
    "isolate": "\u2066a",
    "separator": "a\u2028b",
    "nul": "a\x00b",
    "surrogate": "\ud83d",
    "tags": "a\U000e0041",
    "long": "a" * 4001,
}


def of_kind(rows: dict[str, Any]) -> dict[str, Responder]:
    data = {n: Data(np.asarray(X, float), columns=tuple(map(Column, XYZ))) for n, X in rows.items()}
    clients = {name: Client(name, each) for name, each in data.items()}
    return {
        name: Responder(c, columns=XYZ, choose=lambda columns, raw=False, c=c: c, **KNOWN)
        for name, c in clients.items()
    }


def bent(bend: Bend | None, rows: dict[str, Any] = SPOTS, job: Job | None = None) -> RemoteEngine:
    """An engine of three sites of which two are enough; what comes from b is bent."""
    engine = RemoteEngine(Postman(of_kind(rows), "b", bend), rows, quorum=2)
    if getattr(job, "prepare", None) is not None:
        engine.choose(None, raw=True)
    return engine


Y = ["y", "number", []]


Y = ["y", "number", []]
PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "limit": lambda text: {"limits": [{"name": text}]},
    "column": lambda text: {"described": [[text, "number", []], Y, Y]},
    "parameter": lambda text: {"limits": [{"name": "MinRows", text: 1}]},
    "value": lambda text: {"limits": [{"name": "MinRows", "n": text}]},
    "level": lambda text: {"described": [["x", "text", [text]], Y, Y]},
    "kind": lambda text: {"described": [["x", text, []], Y, Y]},
    "label": lambda text: {"labels": [text]},
    "name": lambda text: {"columns": [text]},
    "failed": lambda text: {"failed": {"a": [text]}},
}
for key in ("refused", "site", "run", "question", "protocol", "more"):
    PLACES[key] = lambda text, key=key: {key: text}  # type: ignore[misc]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_text_of_a_site_reaches_a_terminal_as_it_is(text, place, caplog):
    rows = {name: Data(X, y=np.repeat(["u", "v"], 30)) for name, X in SPOTS.items()}
    sites = {name: Responder(Client(name, each), columns=XYZ) for name, each in rows.items()}
    engine = RemoteEngine(Postman(sites, "b", changed(**PLACES[place](text))), rows, quorum=2)
    told = engine.introduce(columns=True, labels=True)
    assert [site.name for site in told if site.answered] == ["a", "c"]
    [refusal] = engine.refusals
    assert refusal.site == "b"
    assert is_plain(refusal.reason)
    assert len(refusal.reason) < 300
    assert first_not_plain([*caplog.messages, str(told)]) is None


def test_texts_of_all_the_world_are_taken():
    for text in ("Zürich", "5 000", "नमस्ते", "می‌خواهم", "👩‍⚕️", "e\u0301", "a\u00adb", "\ufeffname"):
        assert is_plain(text), text
        assert printable(text) == text
    assert printable("a\x1b[0m\n\u202e\U000e0041") == r"a\x1b[0m\n\u202e\U000e0041"


def test_a_site_does_not_tell_texts_that_no_message_may_hold():
    levels = ("bad\ttext", "good", "\u202edoog")
    X, y = np.array([[0.0, 1.0, 1.0, 2.0, 2.0, 0.0]]).T, np.array(["l\x1b"] * 3 + ["m"] * 3)
    rows = Data(X, y=y, columns=(Column("t", "text", levels),))
    site = Responder(Client("a", rows), columns=("t",))
    engine = RemoteEngine(Postman({"a": site}), ["a"])
    assert disclosed_columns(engine) == {"a": (Column("t", "text", ("good",)),)}
    assert labels_told(engine) == {"a": ("m",)}


def sized(rows: Any, weight: float | None = None) -> Bend:
    def bend(reply: bytes, question: bytes) -> bytes:
        header, arrays = wire.unpack(reply)
        if wire.unpack(question)[0]["tasks"][:1] and arrays["0.sums"].shape == (1, 3):
            arrays["0.sums"] = np.broadcast_to(np.float64(rows), (1, 3)).copy()
            arrays["0.weights"] = np.array([np.max(rows) if weight is None else weight])
        return wire.pack(header, arrays)

    return bend


ONE: dict[str, Any] = {"name": "A"}
NO_LIMITS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "many": ([{"name": f"Limit{i}"} for i in range(21)], "its limits are too many"),
    "nan": ([ONE | {"p": float("nan")}], "a number that is not finite"),
    "parameters": ([ONE | {f"p{i}": i for i in range(401)}], "its limits are too many"),
    "infinite": ([ONE | {"p": float("inf")}], "a number that is not finite"),
    "huge": ([ONE | {"p": 10**400}], "not finite or too large"),
    "long": ([{"name": "A" * 201}], "a limit is longer than 200"),
    "3 MB": ([ONE | {f"{'a' * 3000}{i}": i} for i in range(1000)], "its limits are too"),
    "wide": ([ONE | {"a" * 100 + str(i): 1 for i in range(3)}], "longer than 200"),
}
NO_ROWS: dict[str, tuple[Bend, str]] = {
    "1e13 rows": (sized(1e13), "it claims 1e+13 rows"),
    "each column": (sized([60.0, 60.0, 1e9]), "not as many of each column"),
    "1e200 rows": (sized(1e200), "it holds 1e+200"),
    "half a row": (sized(60.5), "it claims 60.5 rows"),
    "weight": (sized(60.0, 1e160), "it holds 1e+160"),
}
NOT_BELIEVED = NO_ROWS | {
    key: (changed(limits=said), why) for key, (said, why) in NO_LIMITS.items()
}


@pytest.mark.parametrize(("bend", "reason"), NOT_BELIEVED.values(), ids=NOT_BELIEVED)
def test_not_any_number_of_rows_is_believed_and_limits_are_few_and_short(bend, reason):
    engine = bent(bend)
    engine.introduce()
    [refusal] = engine.refusals
    assert (refusal.site, reason in refusal.reason) == ("b", True), refusal.reason


def test_a_site_that_comes_late_says_how_many_rows_it_has_and_no_others_later():
    """It was not there when all told of their rows; by other columns it may not grow."""
    post = Postman(of_kind(SPOTS), "b", lambda reply, question: b"")
    engine = RemoteEngine(post, SPOTS, quorum=2)
    engine.introduce()
    post.bend = None
    task = Task(Inertia(), State.at(SPOTS["a"][:2]))
    assert list(engine.ask([task])[0].by_site) == ["a", "b", "c"]
    post.bend = sized(61.0)
    engine.choose(["y", "x", "z"])
    assert list(engine.ask([task])[0].by_site) == ["a", "c"]
    assert engine.refusals[-1].reason == "it told of 60 rows before and tells of 61 now"


def grown(factor: float) -> Bend:
    def bend(reply: bytes, question: bytes) -> bytes:
        header, arrays = wire.unpack(reply)
        for name, array in arrays.items():
            if name.endswith(".sums") and not (array == 60).all():
                arrays[name] = array * factor
        return wire.pack(header, arrays)

    return bend


JOBS: dict[str, Job] = {
    "fit": fit_of(3),
    "fuzzy": fit_of(3, m=2.0),
    "fkm": fit_of(3, algorithm="fkm"),
    "scaled": fit_of(3, prepare=PreprocessingSpec(pca=2)),
    "robust": fit_of(3, prepare=PreprocessingSpec(scale="robust")),
    "number": SelectK(2, 4),
}


@pytest.mark.parametrize("factor", [1e22, 1e300, 1e45, 1e60, 1e90, 1e140])
@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
@pytest.mark.filterwarnings("ignore")
def test_large_numbers_are_refused_where_they_come_from(job, factor):
    """The run goes on with the quorum and comes to the result of the other two."""
    engine = bent(grown(factor), job=job)
    report = execute(job, engine, columns=XYZ)
    assert {refusal.site for refusal in engine.refusals} == {"b"}
    assert any("not believed" in refusal.reason for refusal in engine.refusals)
    if job == JOBS["fit"]:
        others = LocalEngine(Client(name, Data(SPOTS[name])) for name in "ac")
        alone = execute(job, others, columns=XYZ)
        found, expected = (r.outcome.value.state.centers for r in (report, alone))
        assert np.allclose(found, expected)


@pytest.mark.parametrize("weight", [1e-300, 1e-17])
def test_a_small_weight_makes_no_large_mean(weight):
    bend = numbers(lambda sums, weights: (sums, np.where(weights > 0, weight, 0.0)))
    engine = RemoteEngine(Postman(of_kind(SPOTS), "b", bend, 1), SPOTS, quorum=2)
    engine.introduce()
    engine.ask([Task(Inertia(), State.at(SPOTS["a"][:2] + 1e7))] * 2)
    assert {refusal.site for refusal in engine.refusals} == {"b"}


TAILS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "cauchy": lambda rng: rng.standard_cauchy((60, 3)),
    "units": lambda rng: rng.normal(size=(60, 3)),
    "lognormal": lambda rng: rng.lognormal(sigma=4.0, size=(60, 3)),
    "offset": lambda rng: rng.normal(size=(60, 3)) + 1e12,
    "tiny": lambda rng: rng.normal(size=(60, 3)) * 1e-200,
    "constant": lambda rng: 1.0 + (rng.random((60, 3)) < 0.1),
}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
@pytest.mark.parametrize("kind", TAILS)
@pytest.mark.filterwarnings("ignore")
def test_honest_sites_are_believed(job, kind):
    """However heavy their tails are, and however far apart they lie."""
    rng = np.random.default_rng(4)
    factors = (1e-6, 1.0, 1e6) if kind == "units" else (1.0, 1.0, 1.0)
    engine = bent(None, {n: TAILS[kind](rng) * f for n, f in zip("abc", factors, strict=True)}, job)
    execute(job, engine, columns=XYZ)
    assert engine.refusals == []


def told(**levels: Any) -> dict[str, list[Column]]:
    texts = {site: Column("t", "text", tuple(each)) for site, each in levels.items()}
    return {site: [Column("age"), column] for site, column in texts.items()}


@pytest.mark.parametrize("n", [19, 20, 300])
def test_the_texts_of_one_site_remove_no_column_for_all(n):
    few, own = ["m", "w"], [f"own {i}" for i in range(n)]
    schema = agree(told(a=few, b=[*few, *own], c=few))
    assert schema.flooded == {"t": "b"}
    assert agree(told(a=few, b=few, c=few)).flooded == {}
    free = {site: [f"{site} {i}" for i in range(n)] for site in "abc"}
    assert agree(told(**free)).flooded == {}
    assert agree(told(a=[*few, *own], b=few)).flooded == {}  # of two, neither is the odd one


def test_what_is_left_of_a_flooded_column_is_a_category_and_says_whose_texts_went():
    own = [f"own {i}" for i in range(30)]
    clients = []
    for name, levels in {"a": ["m", "w"], "b": ["m", "w", *own], "c": ["m", "w"]}.items():
        columns = (Column("age"), Column("t", "text", tuple(levels)))
        X = np.column_stack([RNG.normal(size=128), np.arange(128) % len(levels)])
        clients.append(Client(name, Data(X, columns=columns)))
    engine = LocalEngine(clients)
    schema = agree(disclosed_columns(engine))
    fitted = run_plan(fit(PreprocessingSpec(), schema), engine).value
    assert fitted.preprocessor.names_out == ("age", "t=m", "t=w", "t=(other)")
    assert fitted.fit_report.left_out == {"30 texts of t": "too many, and only b has them"}
    named = run_plan(fit(PreprocessingSpec(categories=("t",)), schema), engine).value
    assert named.fit_report.left_out == {}
    assert set(named.fit_report.pooled["t"]) == set(own)
