"""Many small sites asked at once: what each would answer, to the last bit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from sklearn.base import clone

from fedcluster import (
    Client,
    Data,
    FederatedFuzzyCMeans,
    FederatedGaussianMixture,
    FederatedKMeans,
    State,
)
from fedcluster.algorithms import FFCM, FKM, Lloyd, SiteSummaries, VarianceTree
from fedcluster.algorithms.merging import pool
from fedcluster.algorithms.summaries import Points
from fedcluster.core import Answers, Filter, Step, Summary, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.batched import Batch, BatchedAnswers, Joined, Stacked, kind_of
from fedcluster.errors import SiteError
from fedcluster.frames.inputs import unique_ids
from fedcluster.kernels.runtime import compiled_loops
from fedcluster.metrics import Inertia
from fedcluster.preprocessing import NumericColumn, Preprocessor
from fedcluster.privacy import Groups, MinClusterSize, MinRows
from fedcluster.rounds import Plan, run_plan

N_SITES, D = 60, 3


def sites(
    limits: tuple[Filter, ...], *, weighted: bool = False, dtype: Any = np.float64
) -> list[Client]:
    rng = np.random.default_rng(7)
    made = []
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
    replies = [client.answers(tasks) for client in clients]
    return [
        Answers({c.name: reply[t] for c, reply in zip(clients, replies, strict=True)})
        for t in range(len(tasks))
    ]


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
    asked: list[list[Step]] = [[Own(), Lloyd()], [Inertia()], [Own()], [Lloyd(), Lloyd(0.5)]]
    engine, alone = LocalEngine(sites(())), sites(())
    for steps in asked:
        tasks = [Task(step, centers) for step in steps]
        engine.ask(tasks)
        each(alone, tasks)
    for client in alone:
        log = engine.clients[client.name].audit_log
        by_round = [sorted(map(str, part)) for part in (log[:2], log[2:3], log[3:4], log[4:])]
        expected = client.audit_log
        parts = expected[:2], expected[2:3], expected[3:4], expected[4:]
        assert by_round == [sorted(map(str, part)) for part in parts]


def test_a_step_made_from_another_answers_for_itself() -> None:
    class Doubled(Inertia):
        def client_step(self, state: State, data: Data, rng: np.random.Generator) -> Any:
            answer = Inertia.client_step(self, state, data, rng)
            return answer + answer

    engine, state = LocalEngine(sites(())), State.at(np.full((1, D), 1e3))
    once, twice = engine.ask([Task(Inertia(), state), Task(Doubled(), state)])
    assert twice.total().weights == 2 * once.total().weights


def test_prepared_rows_are_those_of_each_site() -> None:
    columns = tuple(NumericColumn(f"x{j}", scale=2.0) for j in range(D))
    how = Preprocessor(columns, missing="drop")
    rng = np.random.default_rng(3)

    def made() -> list[Client]:
        rng = np.random.default_rng(3)
        X = [rng.normal(1e3, 5, size=(6, D)) for _ in range(Batch.fewest)]
        for rows in X:
            rows[0, 1] = np.nan
        return [Client(str(i), Data(rows), ()) for i, rows in enumerate(X)]

    start = State.at(rng.normal(size=(2, D)))
    tasks = [Task(Lloyd(), start, preprocessor=how), Task(Inertia(), start, preprocessor=how)]
    for one, other in zip(LocalEngine(made()).ask(tasks), each(made(), tasks), strict=True):
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
    kind, small = kind_of(sites(())[0]), Data(np.ones((4, D)))
    assert kind is not None
    assert {kind_of(client) for client in sites(())} == {kind}
    person: NDArray[np.int64] = np.arange(4)
    others = {
        "other limits": Client("z", small, (MinRows(3),)),
        "a filter of its own": Client("z", small, (lambda summary, n_rows: summary,)),
        "groups of rows": Client("z", small, protection=Groups()),
        "persons": Client("z", Data(np.ones((4, D)), groups=person), ()),
        "other type": Client("z", Data(np.ones((4, D), dtype=np.float32)), ()),
        "many rows": Client("z", Data(np.ones((9000, D))), ()),
    }
    for why, other in others.items():
        assert kind_of(other) != kind, why


def test_centres_of_other_columns_name_the_site() -> None:
    with pytest.raises(SiteError, match=r"site '000', round 1, Lloyd: .*the centres have 2 col"):
        LocalEngine(sites(())).ask([Task(Lloyd(), State.at(np.zeros((2, 2))))])


@pytest.mark.parametrize("participation", [1.0, 0.3])
def test_a_fit_has_the_bits_of_one_that_asks_each(participation, monkeypatch):
    rng = np.random.default_rng(0)
    X, where = rng.normal(size=(900, 2)) + 6 * rng.integers(3, size=(900, 1)), np.arange(900) % 30
    model = FederatedKMeans(3, random_state=0, participation=participation)
    once = model.fit(X, sites=where)
    labels, centers, sent = once.labels_, once.cluster_centers_, once.communication_rounds_
    influence = once.influence_
    monkeypatch.setattr("fedcluster.engines.batched.Batch.fewest", 1000)
    model.fit(X, sites=where)
    assert_array_equal(model.labels_, labels)
    assert_array_equal(model.cluster_centers_, centers)
    assert model.communication_rounds_ == sent
    assert model.influence_ == influence


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "model",
    [
        *(FederatedKMeans(3, algorithm=each) for each in ("auto", "fkm", "kfed", "fedavg")),
        FederatedKMeans(3, sums_only=True),
        FederatedKMeans(3, trim=0.1),
        FederatedKMeans(3, min_cluster_size=5),
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
        assert {f.name: getattr(one, f.name) for f in fields(one)} == {
            f.name: getattr(told, f.name) for f in fields(told)
        }
    state = State.at(np.full((2, D), 1e3))
    asked: list[tuple[list[Step], list[str] | None]] = [
        ([Lloyd(), FFCM()], None),
        ([Inertia()], ["03", "05"]),
        ([Lloyd()], None),
    ]
    for steps, names in asked:
        tasks = [Task(step, state) for step in steps]
        pairs = zip(engine.ask(tasks, names), other.ask(tasks, names), steps, strict=True)
        for mine, others, step in pairs:
            assert_same(mine, others, step)
    for client in clients:
        log = engine.clients[client.name].audit_log
        assert sorted(map(repr, log)) == sorted(map(repr, client.audit_log))
        assert isinstance(engine.clients, Stacked)
        for what in ("most_lone_rows", "most_rows_held_back"):
            assert engine.clients.most(what)[client.name] == getattr(client, what)


def test_a_client_that_is_made_late_knows_what_left_before() -> None:
    state = State.at(np.full((2, D), 1e3))
    engine = LocalEngine(stacked((MinRows(4),)))
    engine.ask([Task(Lloyd(), state)])
    assert isinstance(engine.clients, Stacked)
    alone = {name: Client(name, stacked()[name].source, (MinRows(4),)) for name in engine.clients}
    for client in alone.values():
        client.answer(Task(Lloyd(), state))
    expected = {name: client.most_rows_held_back for name, client in alone.items()}
    assert engine.clients.most("most_rows_held_back") == expected
    assert sum(expected.values()) > 0
    assert {name: engine.clients[name].audit_log for name in alone} == {
        name: client.audit_log for name, client in alone.items()
    }


@pytest.mark.parametrize("n_sites", [3, 40])
@pytest.mark.parametrize("options", [{}, {"participation": 0.5}, {"min_cluster_size": 2}], ids=str)
@pytest.mark.parametrize("as_lists", [False, True])  # these are asked one by one
def test_one_table_is_fitted_as_one_for_each_site(options, n_sites, as_lists):
    rng = np.random.default_rng(0)
    X, where = rng.normal(size=(400, 2)) * 3, rng.permutation(np.arange(400) % n_sites)
    one = FederatedKMeans(3, random_state=0, **options).fit(X, sites=where)
    tables: dict[str, Any] = {str(i): X[where == i] for i in rng.permutation(n_sites)}
    if as_lists:
        tables = {name: rows.tolist() for name, rows in tables.items()}
    each = FederatedKMeans(3, random_state=0, **options).fit(tables)
    assert_array_equal(one.cluster_centers_, each.cluster_centers_)
    for told in ("communication_rounds_", "sites_", "values_sent_", "rows_held_back_"):
        assert getattr(one, told) == getattr(each, told)
    assert (one.lone_rows_, one.inertia_) == (each.lone_rows_, each.inertia_)
    assert list(one.site_labels_) == list(each.site_labels_)
    labels = np.concatenate([each.site_labels_[name] for name in tables])
    assert_array_equal(each.labels_, labels)
    for name in tables:
        assert_array_equal(one.site_labels_[name], each.site_labels_[name])
        assert_array_equal(one.labels_[where == int(name)], each.site_labels_[name])


def test_small_tables_that_are_not_alike_are_read_one_by_one() -> None:
    """Other types give the same clusters; what is wrong is named with its site."""
    rng = np.random.default_rng(0)
    tables = {f"s{i}": np.round(rng.normal(size=(20, 2)) * 3) for i in range(12)}
    fits = FederatedKMeans(3, random_state=0)
    centers = fits.fit(tables).cluster_centers_
    for other in (np.int64, np.float32):
        assert_array_equal(
            fits.fit(tables | {"s3": tables["s3"].astype(other)}).cluster_centers_, centers
        )
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
        state = (
            State()
            if isinstance(step, SiteSummaries | VarianceTree)
            else State.at(np.zeros((1, D)))
        )
        return (yield [Task(step, state)])

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
    harmless = wrong == "as large as may be"
    n_large = 0 if harmless else len(WRONG[wrong])
    if n_large > spare:
        assert re.search(
            r"site '03', round 1, \w+: its sums are not finite, or beyond 1e\+150", once[0]
        )
        assert "scale down" in once[0]
    else:
        assert once[2][0].missing == ("03", "07")[:n_large]


def test_a_number_that_is_missing_is_found_among_many_sites() -> None:
    X, sites = np.arange(40.0).reshape(20, 2), np.arange(20) % 10
    X[13, 1] = np.inf
    with pytest.raises(ValueError, match="site '3', column 'x1', row 1"):
        FederatedKMeans(2).fit(X, sites=sites)


def test_rows_of_two_sites_never_make_up_a_line_together() -> None:
    """Three rows of each site are in each cluster, and a limit asks for four."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(6, 2)) + 10 * (np.arange(6)[:, None] >= 3) for _ in range(60)]
    few = [Client(f"s{i:02}", Data(X), (MinClusterSize(4),)) for i, X in enumerate(rows)]
    [answers] = LocalEngine(few).ask(
        [Task(Lloyd(), State.at(np.array([[0.0, 0.0], [10.0, 10.0]])))]
    )
    assert isinstance(answers, BatchedAnswers)
    assert answers.total().weights.tolist() == [0.0, 0.0]
    assert set(answers.values_sent.values()) == {0}


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
    cluster = np.concatenate(
        [rng.integers(only, k, size=sum(large)), rng.integers(only, size=100 * tiny)]
    )
    X = 4.0 * places[cluster] + 0.8 * rng.normal(size=(len(cluster), D))
    sizes = [*large, *[tiny] * 100]
    model = FederatedKMeans(k, random_state=seed)
    found = model.fit(X, sites=np.repeat(np.arange(len(sizes)), sizes)).inertia_
    dealt = model.fit(X, sites=rng.integers(6, size=len(X))).inertia_
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
    X = np.concatenate([large, rng.permutation(tiny)])
    model = FederatedKMeans(15, random_state=draw[1])
    sites = np.repeat(np.arange(101), [10_000, *[5] * 100])
    found = model.fit(X, sites=sites).inertia_
    dealt = model.fit(X, sites=np.random.default_rng(0).integers(6, size=len(X))).inertia_
    assert found <= 1.001 * dealt
