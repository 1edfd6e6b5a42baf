"""Every engine gives the same bits: the same class of tests for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from grids import flower_engine
from introductions import disclosed_columns, labels_told
from partitions import InChunks

from benchmarks.shapes import KINDS as SHAPES
from fedcluster.algorithms import FFCM, FKM, FedAvg, KFed, Lloyd, SiteSummaries, VarianceTree
from fedcluster.core import Column, Data, Engine, Filter, Limit, Result, RowStream, State, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import SiteError
from fedcluster.metrics import Inertia
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.preprocessing.agreement import agree
from fedcluster.preprocessing.fitting import fit as fit_preprocessor
from fedcluster.privacy import MinClusterSize, MinRows
from fedcluster.recipes import clustering
from fedcluster.recipes.specifications import fit_of
from fedcluster.rounds import Plan, gather, iterate, run_plan, with_preprocessing
from fedcluster.selection.sweep import select_k_plan
from fedcluster_app.tables import open_rows
from fedcluster_app.wire.recorder import RecordedEngine

pytestmark = pytest.mark.usefixtures("short_searches")

RNG = np.random.default_rng(5)
ROWS = {
    name: RNG.normal(size=(n, 3)) + RNG.integers(0, 4, (n, 1)) * 6.0
    for name, n in {"west": 70, "east": 90, "north": 31, "south": 44}.items()
}
WEIGHTS = {name: RNG.integers(0, 3, len(X)).astype(float) for name, X in ROWS.items()}
START = State.at(ROWS["west"][:4])
LIMITS = (MinRows(2),)


def clients(filters: tuple = LIMITS) -> list[Client]:
    """Sites in no order: one as a stream, one with weights, the others as they are."""
    data: dict[str, Data | RowStream] = {name: Data(X) for name, X in ROWS.items()}
    data["north"] = Data(ROWS["north"], WEIGHTS["north"])
    data["east"] = open_rows(ROWS["east"], chunk_rows=32)
    return [Client(name, rows, filters) for name, rows in data.items()]


def recorded(given, tmp_path):
    return RecordedEngine(LocalEngine(given), tmp_path / "recorded")


ENGINES = {
    "flower": lambda given, tmp_path: flower_engine(given),
    "recorded": recorded,
    "recorded-flower": lambda given, tmp_path: RecordedEngine(flower_engine(given), tmp_path / "f"),
}
PLANS = {
    "default": lambda: clustering(fit_of(4, seed=1)),
    "sums": lambda: clustering(fit_of(4, seed=1, sums_only=True, max_iter=20)),
    "fuzzy": lambda: clustering(fit_of(4, seed=3, m=2.0, max_iter=15)),
    "lloyd": lambda: iterate(Lloyd(), START),
    "fkm": lambda: iterate(FKM(4), seed=4, max_rounds=6),
    "kfed": lambda: iterate(KFed(4), seed=4),
    "fedavg": lambda: iterate(FedAvg(epochs=3, momentum=0.5), START, max_rounds=6),
    "ffcm": lambda: iterate(FFCM(averaging="avg_2", local="converge"), START, max_rounds=5),
    "summaries": lambda: iterate(SiteSummaries(5), seed=6),
    "tree": lambda: iterate(VarianceTree(9), seed=6),
}
engines = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
MOST = [
    pytest.param(engine, marks=[pytest.mark.long] if name == "recorded-flower" else [], id=name)
    for name, engine in ENGINES.items()
]
"""What records over Flower, too, is left to `make long` where it would be another draw only."""


FOUND: dict[tuple[Any, int], Any] = {}


def locally(
    find: Callable[..., Any], what: Any, given: Callable[[], list[Client]] = clients
) -> Any:
    """What a function finds with the sites of this process, once for all other engines."""
    if (key := (find, id(what))) not in FOUND:
        FOUND[key] = find(LocalEngine(given()), what)
    return FOUND[key]


def raw_clients() -> list[Client]:
    """Text, missing values, offsets and weights below 1; each site has its own codes and order."""
    given = []
    for i, (name, X) in enumerate(ROWS.items()):
        rng = np.random.default_rng([7, i])
        raw = np.column_stack([1e6 + 1e3 * X[:, :2], rng.integers(0, 2, len(X))])
        raw[rng.random(raw.shape) < 0.05] = np.nan
        levels = ("F", "M") if i % 2 else ("M", "F")
        columns = (Column("a"), Column("b"), Column("sex", "text", levels))
        order = rng.permutation(3)
        weight = np.full(len(X), 0.25) if name == "south" else None
        rows = Data(raw[:, order], weight, columns=tuple(columns[j] for j in order))
        given.append(Client(name, InChunks(rows, 25) if name == "east" else rows, LIMITS))
    return given


def prepared(engine: Engine, wish: PreprocessingSpec) -> Any:
    told = disclosed_columns(engine)
    before = run_plan(fit_preprocessor(wish, agree(told, wish.columns)), engine)
    plan = clustering(fit_of(4, seed=1, sums_only=wish.scale == "robust", max_iter=9))
    return told, before, run_plan(with_preprocessing(plan, before.value.preprocessor), engine)


@pytest.mark.parametrize("engine", MOST)
@pytest.mark.parametrize(
    "wish",
    [
        PreprocessingSpec(missing="mean"),
        PreprocessingSpec("robust", missing="drop"),
        PreprocessingSpec(missing="median", pca=2, log=["a"]),
        PreprocessingSpec("none", missing="mean", columns=["a", "b"]),
    ],
    ids=["mean", "robust-drop", "pca", "numbers"],
)
def test_a_preparation_is_the_same_bits_on_every_engine(engine, wish, tmp_path):
    """What is described, fitted and then clustered; every reply passes the checks."""
    here = locally(prepared, wish, given=raw_clients)
    there = prepared(engine(raw_clients(), tmp_path), wish)
    assert list(here[0]) == list(there[0]) == sorted(ROWS)
    told, before, after = zip(here, there, strict=True)
    assert told[0] == told[1]
    assert before[0].value.preprocessor == before[1].value.preprocessor
    assert before[0].value.fit_report.missing == before[1].value.fit_report.missing
    for one, other in (before, after):
        assert one.communication_rounds == other.communication_rounds
    assert bits(after[0].value) == bits(after[1].value)


def bits(found: Result) -> object:
    state, history = found.state, found.history
    arrays = [state.centers, state.weights, *state.memory.values()]
    return [a.tobytes() for a in arrays], repr(history), repr(state.inertia), found.reason


def planned(engine: Engine, plan: Callable[[], Plan[Any]]) -> Any:
    return run_plan(plan(), engine)


@pytest.mark.parametrize("engine", MOST)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_same_bits_on_every_engine(engine, plan, tmp_path):
    one, other = locally(planned, plan), planned(engine(clients(), tmp_path), plan)
    assert bits(one.value) == bits(other.value)
    assert one.communication_rounds == other.communication_rounds


LATE = [pytest.param(kind, marks=pytest.mark.long) for kind in ("moons", "unequal widths")]


@pytest.mark.parametrize("kind", ["two rings", *LATE])
def test_clusters_of_any_shape_are_the_same_bits_on_every_engine(kind):
    """A choice of k whose clusters are sets of components: clients, one table, and the wire."""
    X, y = SHAPES[kind](np.random.default_rng(4))
    site = np.arange(len(X)) % 3
    given = [Client(f"s{i}", Data(X[site == i]), LIMITS) for i in range(3)]
    table = LocalEngine.from_table(Data(X), [f"s{i}" for i in site], LIMITS)
    found = [
        run_plan(select_k_plan(range(1, 9), fit_of(2, seed=1)), engine).value
        for engine in (LocalEngine(given), table, flower_engine(given))
    ]
    assert [each.n_clusters for each in found] == [len(np.unique(y))] * 3
    one, *others = ([bits(result) for result in each.results.values()] for each in found)
    assert [each == one for each in others] == [True, True]


def test_a_start_that_was_asked_for_stays():
    """And so does the default where no site's rows come in chunks."""
    sites = LocalEngine(clients()).introduce()
    for init in ("summaries", "k-means++", START.centers):
        assert fit_of(4, init=init).at(sites).init is init
    assert fit_of(4).at(sites).init == "sums"
    assert fit_of(4).at(site for site in sites if not site.streams).init == "auto"


def test_a_site_whose_rows_cannot_be_opened_is_named():
    def load():
        raise OSError("the disk is gone")

    engine = LocalEngine([Client("west", load)])
    with pytest.raises(SiteError, match="site 'west', opening its rows, OSError: the disk is gone"):
        run_plan(iterate(Lloyd(), START), engine)


@engines
def test_labels_are_told_alike_on_every_engine(engine, tmp_path):
    """In chunks or not; only those that enough rows have, or persons where rows are grouped."""

    def given() -> list[Client]:
        found = []
        for name, X in ROWS.items():
            y = np.array([*(np.arange(len(X) - 1) % 5).astype(str), "lone"])
            groups = np.maximum(np.arange(len(X)), 12) if name == "north" else None
            rows = Data(X, y=None if name == "west" else y, groups=groups)
            held = InChunks(rows, 25) if name in ("east", "north") else rows
            found.append(Client(name, held, (MinRows(2), MinClusterSize(9))))
        return found

    told = labels_told(LocalEngine(given()))
    assert told == {"east": (*"01234",), "north": (), "south": ("0", "1", "2"), "west": None}
    away = engine(given(), tmp_path)
    assert labels_told(away) == told
    assert list(labels_told(away)) == sorted(ROWS)


@engines
def test_the_sites_filters_hold_on_every_engine_and_only_sites_that_are_named_are_asked(
    engine, tmp_path
):
    filters: tuple[Filter, ...] = (MinRows(2), MinClusterSize(20))
    asked = [Task(Lloyd(), START), Task(Inertia(), START)]
    here = LocalEngine(clients(filters)).ask(asked)
    away: Engine = engine(clients(filters), tmp_path)
    for a, b in zip(here, away.ask(asked), strict=True):
        assert list(a.by_site) == list(b.by_site) == sorted(ROWS)
        assert [s.sums.tobytes() for s in a.summaries] == [s.sums.tobytes() for s in b.summaries]
    assert [site.name for site in away.introduce()] == sorted(ROWS)
    assert {site.limits for site in away.introduce()} == {tuple(map(Limit.from_filter, filters))}
    [answers] = away.ask(asked[:1], ["west", "north"])
    assert list(answers.by_site) == ["north", "west"]
    assert answers.missing == ("east", "south")


@engines
def test_runs_share_their_rounds_and_ask_samples_of_sites_alike_on_every_engine(engine, tmp_path):
    def found(engine: Engine) -> Any:
        together = gather([iterate(Lloyd(), START), iterate(FKM(4), max_rounds=5)])
        half = run_plan(iterate(Lloyd(), START), engine, participation=0.5, seed=3)
        return [*map(bits, run_plan(together, engine).value), repr(half.value.history)]

    assert found(LocalEngine(clients())) == found(engine(clients(), tmp_path))


@engines
def test_a_site_that_fails_is_named_on_every_engine(engine, tmp_path):
    given = [*clients()[1:], Client("west", Data(ROWS["west"][:, :2]))]
    with pytest.raises(SiteError, match=r"west.*(ValueError|Lloyd: centers)"):
        engine(given, tmp_path).ask([Task(Lloyd(), START)])
