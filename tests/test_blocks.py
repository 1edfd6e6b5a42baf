"""Sites in blocks: the bits of clients, whatever the blocks, and who answers when."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from fedcluster import Client, Data, LocalEngine, MinClusterSize, MinRows, State, Task
from fedcluster.algorithms import FFCM, KFed, Lloyd, VarianceTree
from fedcluster.core import Filter, Summary
from fedcluster.engines import CrowdEngine
from fedcluster.errors import InputError
from fedcluster.jobs import Fit, execute
from fedcluster.metrics import Inertia
from fedcluster.metrics.moments import Moments
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.rounds import iterate, run_plan

RNG = np.random.default_rng(5)
SIZES = RNG.integers(1, 12, 200)
SPOTS = np.array([[0.0, 0.0], [9.0, 1e5], [-9.0, 3e5]])
X = SPOTS[RNG.integers(0, 3, SIZES.sum())] + RNG.normal(size=(SIZES.sum(), 2)) / 3
BOUNDS = np.concatenate([[0], np.cumsum(SIZES)])
START = State.at(SPOTS + 0.1)
LIMITS = [[], [MinRows(4)], [MinRows(2), MinClusterSize(3)]]


def blocks(size: int, rows: NDArray[Any] = X) -> list[tuple[NDArray[Any], NDArray[np.intp]]]:
    edges = [*range(0, len(SIZES), size), len(SIZES)]
    return [
        (rows[BOUNDS[i] : BOUNDS[j]], BOUNDS[i : j + 1] - BOUNDS[i]) for i, j in pairwise(edges)
    ]


def local(limits: Sequence[Filter], sites: Any = None, rows: NDArray[Any] = X) -> LocalEngine:
    some = range(len(SIZES)) if sites is None else sites
    return LocalEngine(Client(str(i), Data(rows[BOUNDS[i] : BOUNDS[i + 1]]), limits) for i in some)


def same(one: Summary, other: Summary) -> None:
    assert one.planes.tobytes() == other.planes.tobytes()


@pytest.mark.parametrize("limits", LIMITS, ids=repr)
@pytest.mark.parametrize("step", [Lloyd(), Inertia(), VarianceTree(8), FFCM()], ids=repr)
def test_the_bits_are_those_of_clients_in_any_blocks(step: Any, limits: Sequence[Filter]) -> None:
    task = Task(step, State() if isinstance(step, VarianceTree) else START)
    for rows in (X, X.astype(np.float32)):
        [flat] = local(limits, rows=rows).ask([task])
        for size in (1, 7, 200):
            [answers] = CrowdEngine(blocks(size, rows), limits).ask([task])
            same(answers.total(), flat.total())
            assert sum(answers.values_sent.values()) == sum(flat.values_sent.values())


def test_parts_of_a_block_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(Lloyd(), START)
    [whole] = CrowdEngine(blocks(200)).ask([task])
    monkeypatch.setattr("fedcluster.engines._local.SITES_AT_ONCE", 3)
    [parts] = CrowdEngine(blocks(90)).ask([task])
    same(whole.total(), parts.total())


@pytest.mark.parametrize("step", [Lloyd(), Inertia()], ids=repr)
def test_large_sites_among_small_ones_answer_as_clients_do(step: Any) -> None:
    """Other kernels add the rows of a large site, with other bits."""
    rng = np.random.default_rng(8)
    sizes = np.array([3, 5000, *[4] * 20, 6000])
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    rows = SPOTS[rng.integers(0, 3, bounds[-1])] + rng.normal(size=(bounds[-1], 2)) / 3
    clients = [Client(str(i), Data(rows[a:b])) for i, (a, b) in enumerate(pairwise(bounds))]
    [answers] = CrowdEngine([(rows, bounds)]).ask([Task(step, START)])
    [flat] = LocalEngine(clients).ask([Task(step, START)])
    same(answers.total(), flat.total())
    assert sum(answers.values_sent.values()) == sum(flat.values_sent.values())


def test_a_tree_grows_as_with_clients() -> None:
    runs = [
        run_plan(iterate(VarianceTree(16, passes=2)), engine).value
        for engine in (CrowdEngine(blocks(60)), local([MinRows(2)]))
    ]
    assert runs[0].state.centers.tobytes() == runs[1].state.centers.tobytes()


def test_a_prepared_fit_is_the_one_of_clients() -> None:
    job = Fit(
        n_clusters=3,
        sums_only=True,
        init="sums",
        max_iter=10,
        n_init=2,
        prepare=PreprocessingSpec(),
    )
    engines = CrowdEngine(blocks(60)), local([MinRows(2)])
    one, other = (execute(job, engine).outcome.value.state.centers for engine in engines)
    np.testing.assert_allclose(one, other, rtol=1e-9)


def test_a_sample_answers_as_its_sites_do() -> None:
    engine = CrowdEngine(blocks(33), participation=0.3, drop_outs=0.2, late=0.2, seed=3)
    for _ in range(3):
        tasks = [Task(Lloyd(), START), Task(Moments(), START)]
        every = engine.ask(tasks)
        flat = local([MinRows(2)], engine.answered).ask(tasks)
        assert 0 < len(engine.answered) < 60
        for one, other in zip(every, flat, strict=True):
            same(one.total(), other.total())


def test_late_sites_miss_the_next_round_and_those_that_drop_out_do_not() -> None:
    late = CrowdEngine(blocks(200), late=0.5, seed=1)
    dropped = CrowdEngine(blocks(200), drop_outs=0.5, seed=1)
    for _ in range(3):
        for engine in (late, dropped):
            engine.ask([Task(Lloyd(), START)])
    first, second, third = late.n_asked
    assert first == 200
    assert second == late.n_answered[0]
    assert third == 200 - (second - late.n_answered[1])
    assert dropped.n_asked == [200] * 3
    assert all(60 < n < 140 for n in (*late.n_answered[:1], *dropped.n_answered))


def test_sites_that_are_not_available_are_not_asked() -> None:
    night = np.arange(200) < 50

    def available(number: int) -> NDArray[np.bool_]:
        return night if number % 2 else ~night

    engine = CrowdEngine(blocks(70), (), available=available)
    [day] = engine.ask([Task(Lloyd(), START)])
    [nightly] = engine.ask([Task(Lloyd(), START)])
    same(nightly.total(), local([], range(50)).ask([Task(Lloyd(), START)])[0].total())
    same(day.total(), local([], range(50, 200)).ask([Task(Lloyd(), START)])[0].total())
    nobody = CrowdEngine(blocks(70), available=lambda number: np.zeros(200, bool))
    [answers] = nobody.ask([Task(Lloyd(), START)])
    assert (dict(answers.by_site), answers.missing) == ({}, ("200 sites",))


def test_the_same_seed_asks_the_same_sites() -> None:
    def totals(seed: int) -> list[bytes]:
        engine = CrowdEngine(blocks(70), participation=0.2, drop_outs=0.1, seed=seed)
        return [engine.ask([Task(Lloyd(), START)])[0].total().sums.tobytes() for _ in range(3)]

    assert totals(1) == totals(1) != totals(2)


def test_the_crowd_tells_of_itself_as_one_site() -> None:
    [site] = CrowdEngine(blocks(70), [MinRows(3)]).introduce(columns=True)
    assert (site.name, site.streams, site.n_rows) == ("200 sites", True, len(X))
    assert [column.name for column in site.columns] == ["x0", "x1"]
    assert list(map(str, site.limits)) == ["MinRows(n=3)"]


@pytest.mark.parametrize("task", [Task(KFed(2), State()), Task(Lloyd(), START, noise=1.0)])
def test_what_does_not_add_is_refused(task: Task) -> None:
    with pytest.raises(InputError, match="a crowd answers steps that add, without noise"):
        CrowdEngine(blocks(70)).ask([task])


@pytest.mark.parametrize(
    ("given", "how", "why"),
    [
        ([], {}, "blocks must be given"),
        ([(X, BOUNDS), (X[:, :1], BOUNDS)], {}, "whose rows have the same columns"),
        ([(X, BOUNDS[:-1])], {}, "a block has rows"),
        ([(X, BOUNDS[1:])], {}, "a block has rows"),
        ([(X, np.append(BOUNDS, len(X)))], {}, "each with a row"),
        ([(X, BOUNDS)], {"participation": 0.0}, "participation must be above 0"),
        ([(X, BOUNDS)], {"drop_outs": 0.5, "late": 0.5}, "drop_outs and late must be"),
        ([(X, BOUNDS)], {"late": -0.1}, "drop_outs and late must be"),
    ],
)
def test_what_makes_no_crowd_is_refused(given: Any, how: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        CrowdEngine(given, **how)


def test_numbers_are_those_of_the_lines_that_left() -> None:
    [answers] = CrowdEngine(blocks(70), [MinRows(1000)]).ask([Task(Lloyd(), START)])
    assert_array_equal(answers.total().weights, 0)
    assert sum(answers.values_sent.values()) == 0


def numbered(i: int) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """A block that is made where it is asked for."""
    return blocks(70)[i]


class Sending(ThreadPoolExecutor):
    """An executor to whom all comes as bytes, as to another process."""

    def map(self, fn: Any, *of: Any, **how: Any) -> Any:
        sent = [pickle.loads(pickle.dumps(each)) for each in zip(*of, strict=True)]
        return super().map(pickle.loads(pickle.dumps(fn)), *zip(*sent, strict=True), **how)


def test_blocks_on_other_processes_give_the_same_bits() -> None:
    how: Any = {"participation": 0.4, "drop_outs": 0.2, "late": 0.1, "seed": 2}
    here = CrowdEngine(blocks(70), **how)
    made = [partial(numbered, i) for i in range(3)]
    tasks = [Task(Lloyd(), START), Task(FFCM(), START)]
    with Sending(2) as pool:
        elsewhere = CrowdEngine(made, executor=pool, **how)
        assert (elsewhere.n_sites, elsewhere.n_rows) == (here.n_sites, here.n_rows)
        for _ in range(3):
            every = zip(elsewhere.ask(tasks), here.ask(tasks), strict=True)
            for one, other in every:
                same(one.total(), other.total())
                assert dict(one.values_sent) == dict(other.values_sent)
        assert elsewhere.n_answered == here.n_answered


def test_blocks_of_which_no_site_answers_are_left_out() -> None:
    available = np.arange(200) >= 150
    engine = CrowdEngine(blocks(70), (), available=lambda number: available)
    [answers] = engine.ask([Task(Lloyd(), START)])
    same(answers.total(), local([], range(150, 200)).ask([Task(Lloyd(), START)])[0].total())
