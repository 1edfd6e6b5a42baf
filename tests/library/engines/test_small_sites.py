"""Many small sites asked at once: what each would answer, to the last bit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from partitions import cases
from sklearn.base import clone
from test_laws import STEPS as ALL_STEPS
from test_laws import asked, by_name
from test_rounds import Failing

from fedcluster import Client, Data, FederatedFuzzyCMeans, FederatedGaussianMixture, State, run
from fedcluster import FederatedKMeans as KMeans
from fedcluster.algorithms import FFCM, FKM, Lloyd, SiteSummaries, VarianceTree
from fedcluster.algorithms.merging import pool
from fedcluster.algorithms.summaries import Points
from fedcluster.core import Answers, Filter, Step, Summary, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.batched import Batch, BatchedAnswers, Joined, Stacked, kind_of
from fedcluster.errors import HeldBackError, SiteError
from fedcluster.frames.inputs import unique_ids
from fedcluster.kernels.runtime import compiled_loops
from fedcluster.metrics import Inertia
from fedcluster.preprocessing import NumericColumn, Preprocessor
from fedcluster.privacy import Groups, MinClusterSize, MinRows
from fedcluster.rounds import Plan, iterate, run_plan

N_SITES, D = 60, 3


def sites(
    limits: tuple[Filter, ...], *, weighted: bool = False, dtype: Any = np.float64
) -> list[Client]:
    rng, made = np.random.default_rng(7), list[Client]()
    for i, n in enumerate(rng.integers(1, 40, size=N_SITES)):
        X = (1e3 + rng.standard_cauchy((n, D))).astype(dtype)
        weight = rng.integers(0, 3, size=n) + (np.arange(n) == 0) if weighted and i % 2 else None
        made.append(Client(f"{i:03d}", Data(X, weight), limits))
    return made


def states(step: Step) -> list[State]:
    if isinstance(step, SiteSummaries):
        return [State()]
    if not isinstance(step, VarianceTree):
        return [State.at(1e3 + np.random.default_rng(1).normal(size=(7, D)) * 3)]
    engine, state = LocalEngine(sites((MinRows(2),))), State()
    seen = [state]
    while not state.converged:
        [answers] = engine.ask([Task(step, state)])
        state = step.server_step(state, answers.summaries, np.random.default_rng(0))
        seen.append(state)
    return seen


def each(clients: list[Client], tasks: list[Task]) -> list[Answers]:
    replies = {client.name: client.answers(tasks) for client in clients}
    return [Answers({c: reply[t] for c, reply in replies.items()}) for t in range(len(tasks))]


def assert_same(one: Answers, other: Answers, step: Step) -> None:
    if step.server_additive:
        assert_array_equal(one.total().sums, other.total().sums)
        assert_array_equal(one.total().weights, other.total().weights)
    else:
        for mine, others in zip(pool(one.summaries), pool(other.summaries), strict=True):
            assert_array_equal(mine, others)
    assert one.values_sent == other.values_sent
    assert list(one.by_site) == list(other.by_site)
    for name, answer in one.by_site.items():
        assert_array_equal(answer.sums, other.by_site[name].sums)
        assert_array_equal(answer.weights, other.by_site[name].weights)


STEPS: list[Step] = [
    Lloyd(),
    Inertia(),
    VarianceTree(16, 2, passes=1),
    SiteSummaries(6),
    SiteSummaries(30, min_rows=4, rows_per_mean=2),
    FKM(7),
]


@pytest.mark.parametrize(
    ("dtype", "weighted"),
    [
        (np.float64, False),
        (np.float32, True),
        pytest.param(np.float64, True, marks=pytest.mark.long),
        pytest.param(np.float32, False, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize(
    "limits", [(), (MinRows(2),), (MinRows(9), MinClusterSize(3)), (MinClusterSize(40),)]
)
@pytest.mark.parametrize("step", STEPS)
def test_all_at_once_are_each_by_itself(step, limits, dtype, weighted):
    tasks = [Task(step, state) for state in states(step)]
    clients = sites(limits, weighted=weighted, dtype=dtype)
    engine = LocalEngine(sites(limits, weighted=weighted, dtype=dtype))
    for one, other in zip(engine.ask(tasks), each(clients, tasks), strict=True):
        assert isinstance(one, BatchedAnswers)
        assert_same(one, other, step)
    for client in clients:
        there = engine.clients[client.name]
        assert there.most_lone_rows == client.most_lone_rows
        assert there.most_rows_held_back == client.most_rows_held_back
        assert there.audit_log == client.audit_log


def test_the_log_keeps_the_order_of_messages() -> None:
    class Own(Inertia):
        pass

    centers = State.at(np.full((2, D), 1e3))
    rounds: list[list[Step]] = [[Own(), Lloyd()], [Inertia()], [Own()], [Lloyd(), Lloyd(0.5)]]
    engine, alone = LocalEngine(sites(())), sites(())
    for steps in rounds:
        tasks = [Task(step, centers) for step in steps]
        engine.ask(tasks)
        each(alone, tasks)
    for client in alone:
        for at in (slice(2), slice(2, 3), slice(3, 4), slice(4, None)):
            log, expected = (c.audit_log[at] for c in (engine.clients[client.name], client))
            assert sorted(map(str, log)) == sorted(map(str, expected))


def test_a_step_made_from_another_answers_for_itself() -> None:
    class Doubled(Inertia):
        def client_step(self, state: State, data: Data, rng: np.random.Generator) -> Any:
            answer = Inertia.client_step(self, state, data, rng)
            return answer + answer

    engine, state = LocalEngine(sites(())), State.at(np.full((1, D), 1e3))
    once, twice = engine.ask([Task(Inertia(), state), Task(Doubled(), state)])
    assert twice.total().weights == 2 * once.total().weights


def test_prepared_rows_are_those_of_each_site() -> None:
    how = Preprocessor(tuple(NumericColumn(f"x{j}", scale=2.0) for j in range(D)), missing="drop")
    rng = np.random.default_rng(3)
    tables = [rng.normal(1e3, 5, size=(6, D)) for _ in range(Batch.fewest)]
    for rows in tables:
        rows[0, 1] = np.nan
    engine, alone = ([Client(str(i), Data(X), ()) for i, X in enumerate(tables)] for _ in range(2))
    start = State.at(rng.normal(size=(2, D)))
    tasks = [Task(step, start, preprocessor=how) for step in (Lloyd(), Inertia())]
    for one, other in zip(LocalEngine(engine).ask(tasks), each(alone, tasks), strict=True):
        assert_same(one, other, Lloyd())


def test_rows_may_come_in_any_order() -> None:
    rng = np.random.default_rng(5)
    tables = [np.round(rng.normal(size=(n, D)), 1) for n in rng.integers(9, 60, size=20)]

    def means(given: list[NDArray[np.float64]]) -> tuple[NDArray[np.float64], ...]:
        engine = LocalEngine(Client(f"{i:02d}", Data(X), ()) for i, X in enumerate(given))
        [answers] = engine.ask([Task(SiteSummaries(5), State(), 3)])
        return pool(answers.summaries)

    for one, other in zip(means(tables), means([rng.permutation(X) for X in tables]), strict=True):
        assert_array_equal(one, other)


def test_sites_too_large_for_their_rows_to_be_points_describe_themselves() -> None:
    rng, step = np.random.default_rng(2), SiteSummaries(4)
    tables = [rng.normal(size=(n, 1)) for n in (Points.most_rows + 1, *[30] * Batch.fewest)]
    clients = [Client(str(i), Data(X), ()) for i, X in enumerate(tables)]
    [answers] = LocalEngine(clients).ask([Task(step, State())])
    assert not isinstance(answers, BatchedAnswers)
    assert len(answers.by_site["0"].weights) == 4


def mixed(limits: tuple[Filter, ...]) -> list[Client]:
    """Two crowds that differ in their limits; in between a large site, and one with persons."""
    rng = np.random.default_rng(8)
    large = Data(1e3 + rng.standard_cauchy((9000, D)))
    persons = Data(1e3 + rng.normal(size=(20, D)), groups=np.repeat(np.arange(10), 2))
    others = [Client("007", large, limits), Client("020", persons, limits)]
    crowd = [client for client in sites(limits) if client.name not in ("007", "020")]
    strict = [Client(f"{c.name}b", c.source, (MinRows(9),)) for c in sites(())[: Batch.fewest]]
    return crowd + others + strict


@pytest.mark.parametrize("limits", [(), (MinRows(2), MinClusterSize(3))])
@pytest.mark.parametrize("step", STEPS)
def test_large_sites_among_small_ones_answer_beside_them(step, limits):
    tasks = [Task(step, state) for state in states(step)]
    clients, engine = sorted(mixed(limits), key=lambda c: c.name), LocalEngine(mixed(limits))
    for one, other in zip(engine.ask(tasks), each(clients, tasks), strict=True):
        assert isinstance(one, BatchedAnswers)
        assert_same(one, other, step)
        if step.server_additive:
            assert one.total().planes.tobytes() == other.total().planes.tobytes()
    for client in clients:
        assert engine.clients[client.name].audit_log == client.audit_log


def test_of_a_site_beside_them_lines_are_counted_and_no_row_is_lone_or_held_back() -> None:
    answer = Summary(np.ones((3, 2)), np.array([1.0, 0.0, 2.0]))
    assert Joined.alone(answer).sent.tolist() == [[2], [0], [0]]


@pytest.mark.parametrize("n", [Batch.fewest - 1, Batch.fewest])
def test_few_sites_are_asked_for_themselves(n: int) -> None:
    state = State.at(np.full((2, D), 1e3))
    few = LocalEngine(sites(())[:n])
    assert isinstance(few.ask([Task(Lloyd(), state)])[0], BatchedAnswers) == (n == Batch.fewest)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_sites_are_asked_at_once_for_the_iterations_of_fkm(n: int) -> None:
    start, first = State.at(np.full((2, D), 1e3)), State()
    for step, state, at_once in (
        (FKM(2), start, n > 1),
        (FKM(2), first, False),
        (FKM(2, local_iterations=2), start, False),
        (FKM(2, empty_clusters="keep"), start, False),
        (FKM(2, empty_clusters="relocate"), start, False),
    ):
        [one] = LocalEngine(sites(())[:n]).ask([Task(step, state)])
        [other] = each(sites(())[:n], [Task(step, state)])
        assert isinstance(one, BatchedAnswers) == at_once
        assert_same(one, other, step)


def test_sites_that_differ_are_asked_for_themselves() -> None:
    [kind], ones = {kind_of(client) for client in sites(())}, np.ones((4, D))
    assert kind is not None
    others = {
        "other limits": Client("z", Data(ones), (MinRows(3),)),
        "a filter of its own": Client("z", Data(ones), (lambda summary, n_rows: summary,)),
        "groups of rows": Client("z", Data(ones), protection=Groups()),
        "persons": Client("z", Data(ones, groups=np.arange(4)), ()),
        "other type": Client("z", Data(ones.astype(np.float32)), ()),
        "many rows": Client("z", Data(np.ones((9000, D))), ()),
    }
    for why, other in others.items():
        assert kind_of(other) != kind, why


def test_centres_of_other_columns_name_the_site() -> None:
    with pytest.raises(SiteError, match=r"site '000', round 1, Lloyd: .*the centres have 2 col"):
        LocalEngine(sites(())).ask([Task(Lloyd(), State.at(np.zeros((2, 2))))])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "model",
    [
        *(KMeans(3, algorithm=each) for each in ("auto", "fkm", "kfed", "fedavg")),
        KMeans(3, sums_only=True),
        KMeans(3, trim=0.1),
        KMeans(3, min_cluster_size=5),
        FederatedFuzzyCMeans(3),
        FederatedGaussianMixture(3),
    ],
    ids=str,
)
def test_loops_in_python_have_the_bits_of_compiled_ones(model, dtype, monkeypatch):
    """As a first fit on a machine has them: it does not wait for their compilation."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(600, 3)) + 4 * rng.integers(3, size=(600, 1))).astype(dtype)
    once, again = (clone(model).set_params(random_state=0) for _ in range(2))
    once.fit(X, sites=np.arange(600) % 10)
    monkeypatch.setattr(compiled_loops, "left", 1 << 60)
    again.fit(X, sites=np.arange(600) % 10)
    assert compiled_loops.left != 1 << 60
    assert_array_equal(again.cluster_centers_, once.cluster_centers_)
    assert_array_equal(again.labels_, once.labels_)
    assert again.inertia_ == once.inertia_
    assert repr(again.history_) == repr(once.history_)  # NaN equals no NaN


def stacked(limits: tuple[Filter, ...] = (MinRows(4),), n_sites: int = 12) -> Stacked:
    rng = np.random.default_rng(2)
    bounds = np.concatenate([[0], np.cumsum(rng.integers(1, 9, size=n_sites))])
    X = rng.normal(1e3, 3, size=(bounds[-1], D))
    names = np.repeat([f"{i:02d}" for i in range(n_sites)], np.diff(bounds))
    return Stacked.of(Data(X), names, limits)


@pytest.mark.parametrize("n_sites", [Batch.fewest - 1, 12])
@pytest.mark.parametrize("limits", [(), (MinRows(4),), (lambda summary, n_rows: summary,)])
def test_sites_of_one_table_tell_and_answer_as_clients_do(n_sites, limits):
    tables = stacked(limits, n_sites)
    clients = [Client(name, tables[name].source, limits) for name in tables]
    engine, other = LocalEngine(stacked(limits, n_sites)), LocalEngine(clients)
    for one, told in zip(engine.introduce(), other.introduce(), strict=True):
        for each in fields(one):
            assert getattr(one, each.name) == getattr(told, each.name), each.name
    state = State.at(np.full((2, D), 1e3))
    rounds: list[tuple[list[Step], list[str] | None]]
    rounds = [([Lloyd(), FFCM()], None), ([Inertia()], ["03", "05"]), ([Lloyd()], None)]
    for steps, names in rounds:
        tasks = [Task(step, state) for step in steps]
        pairs = zip(engine.ask(tasks, names), other.ask(tasks, names), steps, strict=True)
        for mine, others, step in pairs:
            assert_same(mine, others, step)
    assert isinstance(engine.clients, Stacked)
    for client in clients:
        log = engine.clients[client.name].audit_log
        assert sorted(map(repr, log)) == sorted(map(repr, client.audit_log))
        for what in ("most_lone_rows", "most_rows_held_back"):
            assert engine.clients.most(what)[client.name] == getattr(client, what)


@pytest.mark.parametrize("n_sites", [40, 3])
@pytest.mark.parametrize("options", [{}, {"participation": 0.5}, {"min_cluster_size": 2}], ids=str)
@pytest.mark.parametrize("one_by_one", [True, False])
def test_one_table_is_fitted_as_one_for_each_site(options, n_sites, one_by_one, monkeypatch):
    """Whether these are read and asked at once, or one by one."""
    rng = np.random.default_rng(0)
    X, where = rng.normal(size=(400, 2)) * 3, rng.permutation(np.arange(400) % n_sites)
    tables: dict[str, Any] = {str(i): X[where == i] for i in rng.permutation(n_sites)}
    one, each = (KMeans(3, random_state=0, **options) for _ in range(2))
    one.fit(X, sites=where)
    if one_by_one:
        tables = {name: rows.tolist() for name, rows in tables.items()}
        monkeypatch.setattr("fedcluster.engines.batched.Batch.fewest", 1000)
    each.fit(tables)
    assert_array_equal(one.cluster_centers_, each.cluster_centers_)
    names = ("communication_rounds", "sites", "values_sent", "rows_held_back", "lone_rows")
    for told in (*names, "inertia", "influence"):
        assert getattr(one, f"{told}_") == getattr(each, f"{told}_"), told
    assert list(one.site_labels_) == list(each.site_labels_)
    assert_array_equal(each.labels_, np.concatenate([each.site_labels_[name] for name in tables]))
    for name in tables:
        assert_array_equal(one.site_labels_[name], each.site_labels_[name])
        assert_array_equal(one.labels_[where == int(name)], each.site_labels_[name])


def test_small_tables_that_are_not_alike_are_read_one_by_one() -> None:
    """Other types give the same clusters; what is wrong is named with its site."""
    rng, fits = np.random.default_rng(0), KMeans(3, random_state=0)
    tables = {f"s{i}": np.round(rng.normal(size=(20, 2)) * 3) for i in range(12)}
    centers = fits.fit(tables).cluster_centers_
    for other in (np.int64, np.float32):
        again = fits.fit(tables | {"s3": tables["s3"].astype(other)})
        assert_array_equal(again.cluster_centers_, centers)
    for wrong, words in (
        (np.full((20, 2), np.nan), "site 's3'"),
        (np.ones((20, 3)), "same number of columns"),
        (np.empty((0, 2)), "site 's3'"),
        (np.ones(20), "site 's3'"),
    ):
        with pytest.raises(ValueError, match=words):
            fits.fit(tables | {"s3": wrong})
    with pytest.raises(ValueError, match="two sites have the same name"):
        fits.fit({**dict(enumerate(tables.values())), "3": tables["s3"]})


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
@pytest.mark.parametrize("spread", [1, 1 << 40])
def test_sites_with_numbers_are_in_the_order_of_these_as_text(dtype: Any, spread: int) -> None:
    bounds, rng = np.iinfo(dtype), np.random.default_rng(0)
    for low in (bounds.min, 0, bounds.max - 20 * spread):
        if low < bounds.min or low + 20 * spread > bounds.max:
            continue
        sites = np.array([low + int(i) * spread for i in rng.integers(20, size=50)], dtype=dtype)
        names, number = unique_ids(sites)
        assert names.tolist() == sorted({str(site) for site in sites.tolist()})
        assert [str(names[i]) for i in number] == [str(site) for site in sites.tolist()]


WRONG: dict[str, dict[int, float]] = {
    "one": {3: 1e160},
    "two that cancel": {3: 1e160, 7: -1e160},
    "beyond what is cut": {3: 1e300, 7: -1e300},
    "as large as may be": {3: 1e70, 7: -1e70},
}


def with_wrong(wrong: dict[int, float]) -> LocalEngine:
    rng = np.random.default_rng(0)
    tables = [rng.normal(size=(5, D)) for _ in range(12)]
    for i, value in wrong.items():
        tables[i][2, 1] = value
    return LocalEngine(Client(f"{i:02d}", Data(X), ()) for i, X in enumerate(tables))


@dataclass
class Spare:
    """Who listens can do without so many sites."""

    spare: int

    def __call__(self, tasks: Sequence[Task], answers: list[Answers]) -> list[Answers]:
        return answers


@pytest.mark.parametrize("spare", [0, 1, 2])
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    "step", [Lloyd(), Inertia(), VarianceTree(16), SiteSummaries(3)], ids=lambda s: type(s).__name__
)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_sums_that_are_too_large_are_found_as_where_each_is_asked(
    step: Step, wrong: str, spare: int, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Numbers of sites can cancel, so that nothing is wrong with their sum."""

    def plan() -> Plan[list[Answers]]:
        is_first = isinstance(step, SiteSummaries | VarianceTree)
        return (yield [Task(step, State() if is_first else State.at(np.zeros((1, D))))])

    def outcome() -> tuple[str, Any, Any]:
        caplog.clear()
        try:
            done = run_plan(plan(), with_wrong(WRONG[wrong]), listener=Spare(spare))
        except SiteError as error:
            return str(error), None, None
        [answers] = done.value
        return caplog.text, answers.total().planes.tobytes(), done.communication_rounds

    once = outcome()
    monkeypatch.setattr("fedcluster.engines.batched.Batch.fewest", 1000)
    assert outcome() == once
    n_large = 0 if wrong == "as large as may be" else len(WRONG[wrong])
    if n_large > spare:
        too_large = r"site '03', round 1, \w+: its sums are not finite, or beyond 1e\+150"
        assert re.search(too_large, once[0])
        assert "scale down" in once[0]
    else:
        assert once[2][0].missing == ("03", "07")[:n_large]


def test_a_number_that_is_missing_is_found_among_many_sites() -> None:
    X, sites = np.arange(40.0).reshape(20, 2), np.arange(20) % 10
    X[13, 1] = np.inf
    with pytest.raises(ValueError, match="site '3', column 'x1', row 1"):
        KMeans(2).fit(X, sites=sites)


def costs_of_sites(
    X: NDArray[np.float64], sizes: Sequence[int], k: int, seed: int, draw: Any
) -> Any:
    """The inertia with rows at sites of these sizes, and with a sixth of all at each of six."""
    model = KMeans(k, random_state=seed)
    found = model.fit(X, sites=np.repeat(np.arange(len(sizes)), sizes)).inertia_
    return found, model.fit(X, sites=draw.integers(6, size=len(X))).inertia_


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("large", "tiny", "k", "only"),
    [((10_000,), 5, 15, 5), ((10_000,), 3, 8, 4), ((5000, 5000), 6, 16, 8)],
    ids=str,
)
def test_clusters_that_only_tiny_sites_hold_are_found(large, tiny, k, only, seed):
    """A hundred tiny sites beside large ones: as if six sites had a share of all rows each."""
    rng = np.random.default_rng([seed, k])
    places = rng.permutation(np.stack(np.meshgrid(*[np.arange(4)] * D), -1).reshape(-1, D))[:k]
    of_large, of_tiny = rng.integers(only, k, size=sum(large)), rng.integers(only, size=100 * tiny)
    cluster = np.concatenate([of_large, of_tiny])
    X = 4.0 * places[cluster] + 0.8 * rng.normal(size=(len(cluster), D))
    found, dealt = costs_of_sites(X, [*large, *[tiny] * 100], k, seed, rng)
    assert found <= 1.001 * dealt


@pytest.mark.parametrize("draw", [(77, 4), (79, 75)], ids=str)
def test_clusters_that_overlap_and_only_tiny_sites_hold_are_found(draw: tuple[int, int]) -> None:
    """Two draws whose best start lies behind others among coarse sums."""
    rng = np.random.default_rng(draw)
    centers = rng.uniform(-10, 10, (1, 3))
    while len(centers) < 15:
        place = rng.uniform(-10, 10, 3)
        if np.linalg.norm(centers - place, axis=1).min() > 3:
            centers = np.vstack([centers, place])
    large = np.repeat(centers[:10], 1000, 0) + 1.2 * rng.normal(size=(10_000, 3))
    tiny = np.repeat(centers[10:], 100, 0) + 1.2 * rng.normal(size=(500, 3))
    X, sizes = np.concatenate([large, rng.permutation(tiny)]), [10_000, *[5] * 100]
    found, dealt = costs_of_sites(X, sizes, 15, draw[1], np.random.default_rng(0))
    assert found <= 1.001 * dealt


# Many sites in one table

LIMITS: dict[str, Sequence[Filter]] = {
    "none": [],
    "more rows": [MinRows(9), MinRows(3)],
    "clusters": [MinRows(2), MinClusterSize(3)],
    "everything": [MinRows(1000)],
}


@by_name([*ALL_STEPS, FFCM(averaging="avg_2")])
@given(case=cases(), limits=st.sampled_from([*LIMITS.values()]))
def test_the_sites_of_a_table_answer_as_their_clients_do(step, limits, case):
    table = LocalEngine.from_table(case.pooled, [f"s{i}" for i in case.site], limits)
    local = LocalEngine(Client(name, part, limits) for name, part in case.parts.items())
    task = Task(step, asked(step, case.centers), seed=2)
    assert_same(table.ask([task])[0], local.ask([task])[0], step)


RNG = np.random.default_rng(0)
N_TABLE = 30
SITES = RNG.integers(0, N_TABLE, 400)
MEANS = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
ROWS = Data(MEANS[RNG.integers(0, 3, 400)] + RNG.normal(size=(400, 2)), RNG.uniform(0, 2, 400))
START = State.at(MEANS + 1.0)
IN_BLOCKS: list[Step] = [Lloyd(), Inertia(), VarianceTree(8), SiteSummaries(4), FKM(3), FFCM()]


def in_blocks(size: int, rows: Data = ROWS, limits: Sequence[Filter] = ()) -> LocalEngine:
    engine = LocalEngine.from_table(rows, SITES, limits)
    assert isinstance(engine.clients, Stacked)
    engine.clients.sites_at_once = size
    return engine


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("size", [1, 7, 29])
def test_blocks_of_sites_give_the_bits_of_all_sites_at_once(size, limit, dtype):
    """Rows lie in any order; prepared rows are asked about in the same round."""
    rows = Data(ROWS.X.astype(dtype), ROWS.sample_weight)
    how = Preprocessor((NumericColumn("x0", scale=3.0), NumericColumn("x1", shift=1.0)))
    first = (VarianceTree, SiteSummaries)
    tasks = [Task(each, State() if isinstance(each, first) else START) for each in IN_BLOCKS]
    tasks.append(Task(Lloyd(), START, preprocessor=how))
    whole, parts = LocalEngine.from_table(rows, SITES, limit), in_blocks(size, rows, limit)
    for one, other in zip(parts.ask(tasks), whole.ask(tasks), strict=True):
        assert one.values_sent == other.values_sent
        if one.total().sums.size:
            assert one.total().planes.tobytes() == other.total().planes.tobytes()
        mine, others = (pool(each.summaries) for each in (one, other))
        assert [each.tobytes() for each in mine] == [each.tobytes() for each in others]
    for name, client in parts.clients.items():
        assert client.audit_log == whole.clients[name].audit_log
        assert client.most_rows_held_back == whole.clients[name].most_rows_held_back


def test_a_tree_grown_in_blocks_is_that_of_all_sites() -> None:
    plans = [(iterate(VarianceTree(16, passes=2)), size) for size in (1, 4, N_TABLE)]
    trees = [run_plan(plan, in_blocks(size)).value.state.centers for plan, size in plans]
    assert len({centers.tobytes() for centers in trees}) == 1


def test_the_page_on_scale_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "performance.md").read_text("utf-8")
    [block] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(block, "performance.md", "exec"), {})


def test_rows_of_a_table_without_weight_are_no_rows() -> None:
    weight = np.where(np.arange(400) % 3 == 0, 0.0, 1.0)
    table = LocalEngine.from_table(Data(ROWS.X, weight), SITES)
    for site in table.introduce():
        some = (weight > 0) & (int(site.name) == SITES)
        assert site.n_rows == np.sum(some)
        assert_array_equal(table.clients[site.name].data.X, ROWS.X[some])
    with pytest.raises(ValueError, match="site '7': there is no row of positive weight"):
        LocalEngine.from_table(Data(ROWS.X, np.where(SITES == 7, 0.0, 1.0)), SITES)
    with pytest.raises(ValueError, match="the site of each of the 400 rows; its shape"):
        LocalEngine.from_table(ROWS, [1, 2, 3])


def test_persons_of_a_table_are_counted_as_those_of_its_sites() -> None:
    limits, data = [MinClusterSize(3)], Data(ROWS.X, groups=np.arange(400) // 80)
    table = LocalEngine.from_table(data, SITES, limits)
    sites = [Client(str(i), data.take(np.equal(SITES, i)), limits) for i in range(N_TABLE)]
    mine, others = (e.ask([Task(Lloyd(), START)])[0].total() for e in (table, LocalEngine(sites)))
    assert_array_equal(mine.weights, others.weights)
    assert 0 < mine.weights.sum() < 400


def test_a_site_of_a_table_that_is_not_asked_is_missing_and_one_that_fails_is_named() -> None:
    table = LocalEngine.from_table(ROWS, SITES)
    [answers] = table.ask([Task(Lloyd(), START)], ["3", "others"])
    assert list(answers.by_site) == ["3"]
    assert len(answers.missing) == N_TABLE - 1
    with pytest.raises(SiteError, match="site '0', round 1, Failing: ZeroDivisionError"):
        table.ask([Task(Failing(), State())])
    with pytest.raises(HeldBackError, match=r"MinRows\(n=999\) at 0, 1, 10, "):
        run(Lloyd(), LocalEngine.from_table(ROWS, SITES, [MinRows(999)]), START)
