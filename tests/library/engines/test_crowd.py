"""Many sites in one table: the bits of an engine with one client for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from partitions import Case, cases
from test_laws import STEPS, asked, by_name
from test_rounds import Failing

from fedcluster import Client, Data, LocalEngine, MinClusterSize, MinRows, State, Task, run
from fedcluster.algorithms import FFCM, FKM, FedAvg, Lloyd, SiteSummaries, VarianceTree
from fedcluster.algorithms.merging import pool
from fedcluster.core import Filter, Step
from fedcluster.engines.batched import Stacked
from fedcluster.errors import HeldBackError, SiteError
from fedcluster.metrics import Inertia
from fedcluster.preprocessing import NumericColumn, Preprocessor
from fedcluster.rounds import iterate, run_plan

LIMITS: dict[str, Sequence[Filter]] = {
    "none": [],
    "more rows": [MinRows(9), MinRows(3)],
    "clusters": [MinRows(2), MinClusterSize(3)],
    "everything": [MinRows(1000)],
}


def both(case: Case, limits: Sequence[Filter]) -> tuple[LocalEngine, LocalEngine]:
    table = LocalEngine.from_table(case.pooled, [f"s{i}" for i in case.site], limits)
    return table, LocalEngine(Client(name, part, limits) for name, part in case.parts.items())


@by_name([*STEPS, FFCM(averaging="avg_2")])
@given(case=cases(), limits=st.sampled_from([*LIMITS.values()]))
def test_the_sites_of_a_table_answer_as_their_clients_do(step, limits, case):
    task = Task(step, asked(step, case.centers), seed=2)
    [table], [local] = (engine.ask([task]) for engine in both(case, limits))
    assert list(table.by_site) == list(local.by_site)
    assert table.values_sent == local.values_sent
    for name, answer in local.by_site.items():
        np.testing.assert_array_equal(table.by_site[name].sums, answer.sums)
        np.testing.assert_array_equal(table.by_site[name].weights, answer.weights)


RNG = np.random.default_rng(0)
N_SITES = 30
SITES = RNG.integers(0, N_SITES, 400)
MEANS = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
ROWS = Data(MEANS[RNG.integers(0, 3, 400)] + RNG.normal(size=(400, 2)), RNG.uniform(0, 2, 400))
START = State.at(MEANS + 1.0)
CLIENTS = {str(i): ROWS.take(np.equal(SITES, i)) for i in range(N_SITES)}


@pytest.mark.parametrize("participation", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("limit", [MinRows(12), MinClusterSize(2)], ids=repr)
@pytest.mark.parametrize("algorithm", [Lloyd(tol=0), FFCM(), FedAvg(), FKM(3)], ids=repr)
def test_a_run_on_a_table_is_a_run_on_its_sites(algorithm, limit, participation):
    """The samples of the sites are the same too, whose names sort as text."""
    start = State() if isinstance(algorithm, FKM) else START
    table = LocalEngine.from_table(ROWS, SITES, [limit])
    local = LocalEngine(Client(name, rows, [limit]) for name, rows in CLIENTS.items())

    def outcome(engine: LocalEngine) -> list[bytes] | None:
        plan = iterate(algorithm, start, seed=1, max_rounds=6)
        try:
            result = run_plan(plan, engine, participation=participation, seed=5).value
        except HeldBackError:  # the first sample was of one small site
            return None
        return [result.state.centers.tobytes(), result.state.weights.tobytes()]

    assert outcome(table) == outcome(local)


IN_BLOCKS: list[Step] = [Lloyd(), Inertia(), VarianceTree(8), SiteSummaries(4), FKM(3), FFCM()]


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
    whole, parts = (LocalEngine.from_table(rows, SITES, limit) for _ in range(2))
    assert isinstance(parts.clients, Stacked)
    parts.clients.sites_at_once = size
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
    def centers(size: int) -> bytes:
        engine = LocalEngine.from_table(ROWS, SITES)
        assert isinstance(engine.clients, Stacked)
        engine.clients.sites_at_once = size
        tree = run_plan(iterate(VarianceTree(16, passes=2)), engine)
        return tree.value.state.centers.tobytes()

    assert len({centers(size) for size in (1, 4, N_SITES)}) == 1


def test_the_page_on_scale_runs() -> None:
    page = (Path(__file__).parents[3] / "docs" / "performance.md").read_text("utf-8")
    [block] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(block, "performance.md", "exec"), {})


def test_rows_without_weight_are_no_rows() -> None:
    weight = np.where(np.arange(400) % 3 == 0, 0.0, 1.0)
    table = LocalEngine.from_table(Data(ROWS.X, weight), SITES)
    some = weight > 0
    for site in table.introduce():
        assert site.n_rows == np.sum(some & (int(site.name) == SITES))
        rows = table.clients[site.name].data.X
        np.testing.assert_array_equal(rows, ROWS.X[some & (int(site.name) == SITES)])


def test_persons_of_a_table_are_counted_as_those_of_its_sites() -> None:
    persons, limits, task = np.arange(400) // 80, [MinClusterSize(3)], Task(Lloyd(), START)
    table = LocalEngine.from_table(Data(ROWS.X, groups=persons), SITES, limits)
    clients = [
        Client(name, Data(rows.X, groups=persons[int(name) == SITES]), limits)
        for name, rows in CLIENTS.items()
    ]
    [mine], [others] = (engine.ask([task]) for engine in (table, LocalEngine(clients)))
    np.testing.assert_array_equal(mine.total().weights, others.total().weights)
    assert 0 < mine.total().weights.sum() < 400


def test_a_site_that_is_not_asked_is_missing() -> None:
    table = LocalEngine.from_table(ROWS, SITES)
    [answers] = table.ask([Task(Lloyd(), START)], ["3", "others"])
    assert list(answers.by_site) == ["3"]
    assert len(answers.missing) == N_SITES - 1


def test_a_fault_names_the_site() -> None:
    with pytest.raises(SiteError, match="site '0', round 1, Failing: ZeroDivisionError"):
        LocalEngine.from_table(ROWS, SITES).ask([Task(Failing(), State())])


def test_what_makes_no_sites_is_refused() -> None:
    with pytest.raises(ValueError, match="the site of each of the 400 rows; its shape"):
        LocalEngine.from_table(ROWS, [1, 2, 3])
    with pytest.raises(ValueError, match="site '7': there is no row of positive weight"):
        LocalEngine.from_table(Data(ROWS.X, np.where(SITES == 7, 0.0, 1.0)), SITES)


def test_when_limits_hold_everything_back_the_error_says_which() -> None:
    with pytest.raises(HeldBackError, match=r"MinRows\(n=999\) at 0, 1, 10, "):
        run(Lloyd(), LocalEngine.from_table(ROWS, SITES, [MinRows(999)]), START)
