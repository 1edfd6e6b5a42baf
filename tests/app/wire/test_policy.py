"""What a site answers at all: the ranges that steps declare, narrowed by the site's own bounds."""

import re
import runpy
import tomllib
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from datetime import date
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from grids import KNOWN
from test_laws import STEPS, by_name
from test_replies import Postman
from test_replies import Told as Heard

from fedcluster import Client, Data, MinClusterSize, MinRows, State, Summary, Task
from fedcluster.algorithms import FFCM, FKM, FedAvg, KFed, Lloyd, SiteSummaries, VarianceTree
from fedcluster.core import Column, Step
from fedcluster.core.ranges import UNDECLARED, Allowed, Array, OneOf, Real, Texts, Whole, allowed_of
from fedcluster.engines import wire
from fedcluster.errors import InputError, PolicyError, SiteError
from fedcluster.metrics import Inertia
from fedcluster.metrics.clusters import Spread
from fedcluster.metrics.external import Contingency, contingency_table
from fedcluster.metrics.gaussians import MixtureLikelihood
from fedcluster.metrics.moments import Means
from fedcluster.preprocessing import Category, NumericColumn, Preprocessor
from fedcluster.preprocessing.moments import Covariance, Histogram, Missing, Principal
from fedcluster_app.extend import RemoteEngine, Responder
from fedcluster_app.site.file import SiteFile
from fedcluster_app.site.membership import Membership, site_responder
from fedcluster_app.trust.site_state import STATE_FILE, SiteState
from fedcluster_app.wire.policy import Ledger, Policy, PolicyLimits
from fedcluster_app.wire.responder import DisclosedColumns

COLUMNS = ("x", "y")
CENTERS = State.at([[0.0, 0.0], [9.0, 9.0]])
RUN = {"run": "r", "exchange": 0}


def check(*tasks: Task, header: Any = None, **limits: Any) -> None:
    Policy(PolicyLimits(**limits)).check(header or RUN, tasks, COLUMNS, 2)


def refused(match: str, *tasks: Task, **how: Any) -> None:
    with pytest.raises(PolicyError, match=match):
        check(*tasks, **how)


@pytest.mark.parametrize(
    ("held", "within", "without"),
    [
        (Whole(1, 3), [1, 3], [0, 4, True, 2.0, "2", None, nan, 10**400]),
        (Array(("k",)), [np.zeros(3)], [np.zeros(2), np.zeros((3, 1)), np.full(3, nan)]),
        (Whole(1, 3, none=True), [None, 2], [0, False]),
        (Whole(1, 2, "max_clusters"), [1, 20], [0, 21]),
        (Whole(1, 2, "max_clusters", always=15), [20], [21]),
        (Whole(1, 2, "max_clusters", always=30), [30], [31]),
        (Real(0, 1), [0, 0.5, 1], [-1e-300, 1.1, nan, inf, True, "0", None]),
        (Real(-1, 1, none=True), [None, -1.0], [nan, 2]),
        (OneOf(("a", 1, None)), ["a", 1, 1.0, None], ["b", True, 0, nan]),
        (Texts(), ["[]", '["a", "b"]'], ['["a", "a"]', "[1]", "{}", "[" * 99_999, "", None, 3]),
        (Array(("k",), below="d"), [np.array([0.0, 1, 1])], [np.full(3, 2.0), np.full(3, 0.5)]),
        (Array(("k",), rising=True), [np.array([0.0, 0, 2])], [np.array([0.0, 2, 1])]),
        (Array(("k",), -inf, inf), [np.array([-inf, 0, inf])], [np.array([0, nan, 0])]),
        (Array(("unknown",)), [], [np.zeros(3)]),
    ],
    ids=str,
)
def test_a_range_holds_what_it_says(held: Any, within: list[Any], without: list[Any]) -> None:
    sizes = {"max_clusters": 10, "k": 3, "d": 2}
    assert [value for value in within if not held.holds(value, sizes)] == []
    assert [value for value in without if held.holds(value, sizes)] == []


@by_name(STEPS)
def test_every_step_of_the_package_declares_what_it_may_be_asked(step: Step) -> None:
    allowed = allowed_of(step)
    assert allowed is not UNDECLARED
    parameters = {each.name: each.default for each in fields(step)}  # type: ignore[arg-type]
    assert allowed.fields.keys() <= parameters.keys()
    sizes = {"max_clusters": 500, "d": 2}
    for name, held in allowed.fields.items():
        if type(parameters[name]) in (bool, int, float, str):
            assert held.holds(parameters[name], sizes), name


def spread(**memory: Any) -> Task:
    given = {"means": CENTERS.centers, "variances": np.ones(2)} | memory
    return Task(Spread(), replace(CENTERS, memory=given))


def tree(**memory: Any) -> Task:
    cuts = {name: np.zeros(1) for name in ("parent", "child", "feature", "threshold")}
    leaves = {name: np.zeros(2) for name in ("undone", "column", "value")} | {"pass": np.zeros(1)}
    return Task(VarianceTree(4), replace(CENTERS, memory={**cuts, **leaves, **memory}))


def histogram(columns: list[float], edges: Any) -> Task:
    memory = {"columns": np.array(columns), "edges": np.array(edges, dtype=float)}
    return Task(Histogram(), State(memory=memory))


NO_PARAMETERS: list[Step] = [
    FKM(1, client_init="random", init_iterations=0),
    FedAvg(batch_size=1, client_rate=400.0),
    FKM(2, init_iterations=0),
    FKM(2, client_n_init=10**9),
    FKM(2, init_iterations=10**6),
    FKM(2, local_iterations=2),
    FKM(2, empty_clusters="relocate"),
    *(FKM(501), FKM(-1), KFed(501)),
    *(FedAvg(batch_size=1), FedAvg(client_rate=0.5), FedAvg(epochs=10**7)),
    *(FFCM(m=1e300), FFCM(local_tol=-1.0), FFCM(tol=nan), Lloyd(tol=inf)),
    *(Contingency('["a", "a"]'), Contingency("[" * 10_000)),
]
ONE = State(np.zeros((1, 2)), np.zeros(1))
NO_STATES = [
    State(),
    State.at([[0.0, nan]]),
    State.at([[0.0]]),
    State.at([[0.0, 1e101]]),
    State.at(np.zeros((1001, 2))),
    State(np.zeros(2), np.zeros(2)),
    replace(CENTERS, weights=np.zeros(3)),
    replace(CENTERS, weights=np.full(2, -1.0)),
    replace(CENTERS, weights=np.full(2, inf)),
    replace(CENTERS, round=-1),
    replace(CENTERS, round=10**9),
    replace(CENTERS, inertia=inf),
    replace(CENTERS, memory={"more": np.zeros(2)}),
    State(np.zeros((0, 10**12)), np.zeros(0)),
]
NO_TASKS = [
    *(Task(Lloyd(), state) for state in NO_STATES),
    *(Task(step, CENTERS) for step in NO_PARAMETERS),
    *(Task(step, State()) for step in (SiteSummaries(1001), VarianceTree(1001))),
    Task(SiteSummaries(4, min_rows=0), State()),
    *(Task(Lloyd(), CENTERS, seed=seed) for seed in (-1, 2**70)),
    *(Task(step, CENTERS) for step in (SiteSummaries(2), Spread(), MixtureLikelihood())),
    spread(means=np.zeros((3, 2))),
    spread(means=np.full((2, 2), nan)),
    spread(variances=-np.ones(2)),
    spread(more=np.zeros(2)),
    tree(feature=np.array([2.0])),
    tree(child=np.array([0.5])),
    tree(parent=np.array([-1.0])),
    tree(threshold=np.zeros(3)),
    tree(threshold=np.array([nan])),
    histogram([2], [[0, 1]]),
    histogram([0], [[0]]),
    histogram([0], [[1, 0]]),
    histogram([0] * 13, [[0, 1]] * 13),
    histogram([0], [[0, nan]]),
    Task(Covariance(), State()),
    Task(Covariance(), replace(ONE, memory={"basis": np.eye(3)})),
    Task(Covariance(), replace(ONE, memory={"basis": np.ones((2, 3))})),
]


def test_states_that_steps_are_asked_about_are_within() -> None:
    check(spread(), tree(), histogram([0], [[-inf, 0, inf]]), Task(VarianceTree(4), State()))
    check(Task(Covariance(), ONE), Task(FKM(2), CENTERS), Task(FKM(2), State()))


@pytest.mark.parametrize("task", NO_TASKS, ids=lambda task: type(task.step).__name__)
def test_a_parameter_out_of_its_range_or_a_state_that_is_not_declared_is_refused(task) -> None:
    refused(f"by the policy of the site: {type(task.step).__name__}: ", task)


def test_a_refusal_names_the_rule_and_no_value() -> None:
    rule = "FKM: client_n_init must be 1 to 10"
    refused(f"^by the policy of the site: {rule}$", Task(FKM(2, client_n_init=11), State()))
    refused("Lloyd: centers must be 1 to max_clusters lines", Task(Lloyd(), State()))


def test_tasks_and_numbers_of_a_message_are_bounded() -> None:
    two, three = [Task(Inertia(), CENTERS)] * 2, Task(SiteSummaries(3), State())
    check(*two, max_numbers=12)
    check(three, max_numbers=9)  # 3 (d + 1)
    refused("at most 11 numbers", *two, max_numbers=11)
    refused("at most 8 numbers", three, max_numbers=8)
    no_lists: list[Any] = [[{}, {}], {}, 7]
    for headers in no_lists:
        with pytest.raises(PolicyError, match="at most 1 tasks"):
            Policy(PolicyLimits(max_tasks=1)).check_tasks(headers)


def test_a_site_allows_and_denies_steps() -> None:
    lloyd, fkm = ("Lloyd",), ("FKM",)
    for limits in ({"steps": fkm}, {"denied": lloyd}, {"steps": lloyd, "denied": lloyd}):
        refused("Lloyd: the step is not among those", Task(Lloyd(), CENTERS), **limits)
    check(Task(Lloyd(), CENTERS), steps=lloyd, denied=fkm)


def test_fewer_clusters_bound_centres_and_not_means_or_leaves() -> None:
    """Of which a description has many for each cluster."""
    three, four = (Task(Lloyd(), State.at(np.zeros((k, 2)))) for k in (3, 4))
    many = [Task(step, State()) for step in (VarianceTree(1000), SiteSummaries(1000))]
    check(Task(FKM(3), State()), three, *many, max_clusters=3)
    check(Task(SiteSummaries(2000), State()), max_clusters=1000)
    refused("n_means", Task(SiteSummaries(1001), State()), max_clusters=500)
    for task in (Task(FKM(4), State()), four):
        refused("max_clusters", task, max_clusters=3)


NO_RUNS: list[Any] = [None, "", "r" * 65, "\x1b[31m", 7, ["r"], {}]
NO_PLACES: list[dict[str, Any]] = [
    {"run": "r"},
    {"exchange": 0},
    *({**RUN, "run": run} for run in NO_RUNS),
    *({**RUN, "exchange": number} for number in (-1, True, 1.0, "1", None, [1])),
]


@pytest.mark.parametrize("header", NO_PLACES, ids=str)
def test_a_question_without_its_run_and_place_is_refused(header: dict[str, Any]) -> None:
    refused("must be a", header=header)


def test_rounds_of_a_run_rise_and_are_bounded() -> None:
    policy = Policy(PolicyLimits(max_rounds_per_run=3))
    for exchange in (0, 1, 5):
        policy.check({"run": "r", "exchange": exchange})
    for exchange, why in ((5, "must rise"), (2, "must rise"), (6, "at most 3 rounds in a run")):
        with pytest.raises(PolicyError, match=why):
            policy.check({"run": "r", "exchange": exchange})
    policy.check({"run": "s", "exchange": 0})


def test_rounds_and_runs_of_a_day_are_counted_over_restarts_and_clocks_set_back(tmp_path):
    today, state = date(2026, 3, 1), SiteState(tmp_path / STATE_FILE)
    state.create()
    limits = PolicyLimits(max_rounds_per_day=3, max_runs_per_day=2)

    def ask(run: str, exchange: int, why: str = "") -> None:
        header, ledger = {"run": run, "exchange": exchange}, Ledger(state, lambda: today)
        with pytest.raises(PolicyError, match=why) if why else nullcontext():
            Policy(limits, ledger).check(header)

    ask("r", 0)
    ask("r", 1)
    ask("s", 0)
    ask("s", 1, "at most 3 rounds a day")
    today = date(2026, 2, 28)  # the clock was set back
    ask("s", 1, "at most 3 rounds a day")
    today = date(2026, 3, 2)
    ask("t", 0)
    ask("u", 0)
    ask("v", 0, "at most 2 runs a day")
    ask("r", 1, "must rise")  # the run is known
    (tmp_path / STATE_FILE).write_text("{")
    with pytest.raises(InputError, match=r"site.db cannot be used"):
        ask("r", 9)


def test_a_question_that_is_refused_is_not_counted() -> None:
    policy = Policy(PolicyLimits(max_rounds_per_day=1))
    with pytest.raises(PolicyError):
        policy.check(RUN, [Task(Lloyd(), State())], COLUMNS, 2)
    policy.check(RUN, [Task(Lloyd(), CENTERS)], COLUMNS, 2)


AXES = Principal((0.0, 0.0), ((1.0, 0.0), (0.0, 1.0)), (1.0, 1.0))
NOWHERE = (nan, inf, -inf, 1e51)


def prepared(*columns: Any, principal: Principal | None = None) -> Preprocessor:
    return Preprocessor(columns or (NumericColumn("x"), NumericColumn("y")), "error", principal)


def of_x(**how: Any) -> Preprocessor:
    return prepared(NumericColumn("x", **how))


NO_PREPARATIONS = [
    prepared(NumericColumn("z")),
    of_x(scale=0.0),
    prepared(NumericColumn("x"), NumericColumn("x")),
    Preprocessor(()),
    *(of_x(shift=value) for value in NOWHERE),
    *(of_x(fill=value) for value in NOWHERE),
    *(of_x(bounds=(0.0, value)) for value in (*NOWHERE, -1.0)),
    *(of_x(scale=value) for value in (*NOWHERE, -1.0, 1e-51)),
    prepared(Category("x", ("a", "a"))),
    prepared(Category("x", tuple(map(str, range(20_001))))),
    *(
        prepared(principal=replace(AXES, components=((1.0, 0.0), line)))
        for line in ((0.0, 2.0), (0.6, 0.8), (nan, 0.0), (inf, 0.0))
    ),
    prepared(principal=replace(AXES, mean=(nan, 0.0))),
    prepared(principal=replace(AXES, variances=(inf, 0.0))),
    prepared(principal=Principal((0.0,), ((1.0,),), (1.0,))),
    prepared(principal=Principal((0.0, 0.0), (), ())),
]


@pytest.mark.parametrize("how", NO_PREPARATIONS, ids=range(len(NO_PREPARATIONS)))
def test_a_preparation_that_no_plan_makes_is_refused(how: Preprocessor) -> None:
    refused("by the policy of the site: preparation: ", Task(Inertia(), CENTERS, preprocessor=how))


def test_only_what_counts_them_is_asked_about_rows_with_missing_values() -> None:
    gaps = [Task(Missing(), State()), Task(Means(), State()), histogram([0], [[0, 1]])]
    raw = {**RUN, "raw": True}
    check(*gaps, header=raw)
    refused("Lloyd: rows must have no", Task(Lloyd(), CENTERS), header=raw)
    for missing in ("keep", "ignore"):
        how = replace(prepared(), missing=missing)
        check(*(replace(task, preprocessor=how) for task in gaps), header=raw)
        refused("Lloyd: rows must have no", Task(Lloyd(), CENTERS, preprocessor=how))


def test_preparations_of_a_run_are_bounded_and_one_has_principal_components() -> None:
    def ask(policy: Policy, exchange: int, *hows: Preprocessor) -> None:
        tasks = [Task(Inertia(), CENTERS, preprocessor=how) for how in hows]
        policy.check({"run": "r", "exchange": exchange}, tasks, COLUMNS, 2)

    policy = Policy(PolicyLimits(max_preparations=2))
    ask(policy, 0, prepared(), prepared(principal=AXES))
    ask(policy, 1, prepared(), prepared(principal=AXES))
    with pytest.raises(PolicyError, match="at most 2 preparations"):
        ask(policy, 2, prepared(NumericColumn("x", shift=1.0), NumericColumn("y")))
    ask(policy := Policy(), 0, prepared(principal=AXES))
    turned = replace(AXES, components=((0.6, 0.8), (-0.8, 0.6)))
    with pytest.raises(PolicyError, match="at most one preparation with principal components"):
        ask(policy, 1, prepared(principal=turned))


WARDS = Data(
    np.column_stack([np.arange(8.0), [0, 0, 0, 1, 1, 1, 2, np.nan]]),
    y=np.array(["ill"] * 4 + ["well"] * 3 + ["rare"]),
    columns=(Column("age"), Column("ward", "text", ("east", "north", "zell"))),
)


def told(*tasks: Task) -> list[Task]:
    """Tasks as they are answered: by what the site tells of its wards."""
    return DisclosedColumns(Client("a", WARDS, [MinRows(2), MinClusterSize(3)])).bound(tasks)


def told_rows(how: Preprocessor) -> np.ndarray:
    [task] = told(Task(Inertia(), CENTERS, preprocessor=how))
    assert isinstance(task.preprocessor, Preprocessor)
    return task.preprocessor.apply(WARDS).X


def test_a_level_that_the_site_does_not_tell_is_one_that_it_does_not_know() -> None:
    levels = ("east", "south", "zell")
    how = Preprocessor((Category("ward", levels, other=True, fill="south"),), "keep")
    rows = told_rows(how)
    assert rows.shape == how.apply(WARDS).X.shape
    assert rows[:, 0].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]  # east, which the site tells
    assert rows[:, 1].tolist() == [0, 0, 0, 0, 0, 0, 0, 1]  # south, of another site, for a gap
    assert not rows[:, 2].any()  # zell is one row's
    assert rows[:, 3].tolist() == [0, 0, 0, 1, 1, 1, 1, 0]
    assert how.apply(WARDS).X[6, 2] == 1


def test_numbers_as_names_are_looked_up_as_they_are_told_and_codes_of_texts_are_none() -> None:
    """A dictionary of values, asked of a column of numbers, finds none that one row has."""
    how = Preprocessor((Category("age", tuple(map(str, range(8)))),), "keep")
    assert not told_rows(how).any()
    assert how.apply(WARDS).X.any()
    with pytest.raises(PolicyError, match="must hold numbers"):
        told_rows(Preprocessor((NumericColumn("ward"),)))


def test_tasks_with_one_preparation_share_the_bound_one() -> None:
    hows = [how := Preprocessor((NumericColumn("age"),)), how, None]
    first, second, third = told(*(Task(Inertia(), CENTERS, preprocessor=how) for how in hows))
    assert first.preprocessor is second.preprocessor
    assert third.preprocessor is None


def test_labels_that_the_site_does_not_tell_are_not_counted() -> None:
    step = Contingency('["ill", "other", "rare", "well"]', complete=False)
    [task] = told(Task(step, State.at([[0.0, 0.0]])))
    rows, at = Data(WARDS.X[:, :1], y=WARDS.y), State.at([[0.0]])
    found = contingency_table(at, task.step.client_step(at, rows, np.random.default_rng(0)))
    assert found.tolist() == [[4, 0, 0, 3]]


def said(site: Responder, *tasks: Task, **more: Any) -> dict[str, Any]:
    headers, arrays = wire.write_tasks(tasks)
    question = {"protocol": wire.PROTOCOL, **RUN, "tasks": headers, **more}
    return wire.unpack(site.reply(wire.pack(question, arrays)))[0]


def test_what_goes_wrong_while_columns_are_described_is_not_told() -> None:
    """The text of an error may hold a value."""

    class Broken(Client):
        def describe(self, texts: Any = ()) -> Any:
            raise InputError("row 3 is 4711")

    how = Preprocessor((NumericColumn("age"),))
    site = Responder(Broken("a", WARDS), columns=("age", "ward"), **KNOWN)
    header = said(site, Task(Inertia(), State.at([[0.0]]), preprocessor=how))
    assert header["failed"] == "InputError"
    assert "4711" not in str(header)


@dataclass(frozen=True)
class Own:
    rate: float = 0.5
    n_clusters: int = 2

    client_additive = server_additive = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        return 1, 1

    def client_step(self, state: State, data: Data, rng: np.random.Generator) -> Summary:
        return Inertia().client_step(state, data, rng)


@dataclass(frozen=True)
class Declared(Own):
    allowed = Allowed({"rate": Real(0, 1)}, Whole(1, 2), {"v": Array(("k",))})


def test_an_own_step_is_asked_within_what_it_declares_or_with_its_defaults() -> None:
    with_memory = replace(CENTERS, memory={"v": np.ones(2)})
    check(Task(Own(), CENTERS), Task(Own(n_clusters=7), State()))
    refused("Own: rate must be 0.5", Task(Own(rate=0.4), CENTERS))
    refused("Own: memory must hold nothing", Task(Own(), with_memory))
    check(Task(Declared(rate=0.4), with_memory))
    refused("Declared: rate must be 0 to 1", Task(Declared(rate=2.0), with_memory))
    refused("Declared: memory must hold v", Task(Declared(), CENTERS))


def test_the_coordinator_and_the_log_are_told_of_a_refusal_and_no_row_is_opened() -> None:
    def load() -> Data:
        opened.append("rows")
        return Data(np.random.default_rng(0).normal(size=(30, 2)))

    opened: list[str] = []
    log = Heard()
    engine = asking(Client("a", load), auditor=log)
    why = "refused the question: by the policy of the site: FKM: init_it"
    with pytest.raises(SiteError, match=why):
        engine.ask([Task(FKM(2, init_iterations=0), State())])
    assert "init_iterations must be 1 to 20" in log.exchanges[0].refused
    assert not opened
    assert engine.ask([Task(FKM(2), State())])[0].missing == ()


def asking(client: Client, **how: Any) -> RemoteEngine:
    return RemoteEngine(Postman({"a": Responder(client, columns=COLUMNS, **how)}), ["a"])


def test_an_answer_that_is_not_finite_does_not_leave() -> None:
    engine = asking(Client("a", Data(np.full((30, 2), 1e200))))
    with np.errstate(all="ignore"), pytest.raises(SiteError, match="an answer is not finite"):
        engine.ask([Task(Lloyd(), CENTERS)])


def test_many_tasks_are_refused_before_they_are_read(monkeypatch) -> None:
    monkeypatch.delattr("fedcluster.engines.wire.read_tasks")
    site = Responder(Client("a", Data(np.eye(9))), columns=())
    many = said(site, tasks=[1] * 50_000)["refused"]
    assert many.endswith("at most 4,000 tasks in a message, as a list")
    lists = said(site, tasks=[[]] * 10**6)["refused"]
    assert lists == "the header of the message has more than 1,000,000 lists"


SITE = """
name = "north"
[source]
path = "rows.csv"
[federation]
coordinator = "127.0.0.1:1"
certificate = "system"
key = "site.toml"
[policy]
"""


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("max_cluster = 3", "unknown key 'max_cluster'; did you mean 'max_clusters'"),
        ('denied = ["Loyd"]', "no step is called 'Loyd'"),
        ("max_tasks = 0", "max_tasks must be a whole number of at least 1"),
        ('steps = "Lloyd"', "steps must be a list"),
    ],
)
def test_a_site_file_narrows_the_policy_or_makes_no_sense(policy, why, tmp_path) -> None:
    (tmp_path / "rows.csv").write_text("x,y\n1,2\n3,4\n")
    toml = tmp_path / "site.toml"
    toml.write_text(SITE + 'max_clusters = 20\ndenied = ["SiteARI"]')
    assert SiteFile.load(toml).policy == PolicyLimits(max_clusters=20, denied=("SiteARI",))
    toml.write_text(SITE + policy)
    with pytest.raises(InputError, match=why):
        site_responder(found := SiteFile.load(toml), Membership.from_site_file(found), print)


DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_shows_what_steps_declare() -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="what-leaves.md"))
    hook = runpy.run_path(str(DOCS / "hooks" / "steps.py"))["on_page_markdown"]
    made = hook("<!-- steps -->", page)
    assert {f"`{type(step).__name__}`" for step in STEPS} == {*re.findall("^. (`.+?`)", made, re.M)}
    ranges = "n_clusters 1 to K; client_init 'k-means++', 'random'; client_n_init 1 to 10; init_it"
    assert f"| `FKM` | {ranges}" in made


def test_the_page_shows_the_bounds_of_a_site_file() -> None:
    page = (DOCS / "protect.md").read_text("utf-8")
    given = tomllib.loads(page.split("```toml\n[policy]")[1].split("```")[0])
    defaults = {each.name: each.default for each in fields(PolicyLimits)}
    assert given.keys() == defaults.keys()
    assert defaults | {"steps": given["steps"], "denied": given["denied"]} == given
