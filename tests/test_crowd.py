"""Many sites in one array: the numbers of a local engine with one client for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from partitions import Case, cases
from test_laws import STEPS, asked, assert_close, by_name
from test_rounds import Failing

from fedcluster import Client, Data, LocalEngine, MinClusterSize, MinRows, State, Task, run
from fedcluster.algorithms import FFCM, FKM, FedAvg, Lloyd
from fedcluster.core import Algorithm, Filter, Step, Summary
from fedcluster.engines import PooledEngine
from fedcluster.errors import HeldBackError, SiteError
from fedcluster.rounds import iterate, run_plan

LIMITS: dict[str, Sequence[Filter]] = {
    "none": [],
    "rows": [MinRows(2)],
    "more rows": [MinRows(9), MinRows(3)],
    "clusters": [MinRows(2), MinClusterSize(3)],
    "everything": [MinRows(1000)],
}


def both(case: Case, limits: Sequence[Filter]) -> tuple[PooledEngine, LocalEngine]:
    crowd = PooledEngine(case.pooled, [f"s{i}" for i in case.site], limits)
    return crowd, LocalEngine(Client(name, part, limits) for name, part in case.parts.items())


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@by_name([*STEPS, FFCM(averaging="avg_2")])
@given(case=cases())
def test_the_crowd_answers_as_its_sites_do(
    step: Step, limits: Sequence[Filter], case: Case
) -> None:
    task = Task(step, asked(step, case.centers), seed=2)
    [crowd], [local] = (engine.ask([task]) for engine in both(case, limits))
    assert len(crowd.by_site) == 1
    assert crowd.missing == ()
    if getattr(step, "server_additive", True):
        assert_close(crowd.total(), _leaving(local.summaries))
        assert len(crowd.summaries) == 1
    else:
        for one, other in zip(crowd.summaries, local.summaries, strict=True):
            np.testing.assert_array_equal(one.sums, other.sums)
            np.testing.assert_array_equal(one.weights, other.weights)
        [lines] = crowd.by_site.values()
        assert lines.n_values == sum(answer.n_values for answer in local.summaries)


def _leaving(answers: Sequence[Summary]) -> Summary:
    return Summary(sum(a.sums for a in answers), sum(a.weights for a in answers))  # type: ignore[arg-type]


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
def test_a_run_on_a_crowd_is_a_run_on_its_sites(
    algorithm: Algorithm, limit: Filter, participation: float
) -> None:
    """The samples of the sites are the same too, whose names sort as text."""
    start = State() if isinstance(algorithm, FKM) else START
    crowd = PooledEngine(ROWS, SITES, [limit], participation=participation, seed=5)
    local = LocalEngine(Client(name, rows, [limit]) for name, rows in CLIENTS.items())
    a, b = (iterate(algorithm, start, seed=1, max_rounds=6) for _ in range(2))
    crowded = _run(lambda: run_plan(a, crowd))
    single = _run(lambda: run_plan(b, local, participation=participation, seed=5))
    if single is None:  # the first sample was of one small site: the limits held it back
        assert crowded is None
        return
    assert crowded is not None
    np.testing.assert_allclose(
        crowded.value.state.centers, single.value.state.centers, rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(crowded.value.state.weights, single.value.state.weights, rtol=1e-12)
    assert {done.answered for done in crowded.value.history} == {("30 sites",)}


def _run(outcome):
    try:
        return outcome()
    except HeldBackError:
        return None


def test_a_round_of_many_tasks_has_one_sample() -> None:
    crowd = PooledEngine(ROWS, SITES, participation=0.2)
    one, other = crowd.ask([Task(Lloyd(), START), Task(Lloyd(), START)])
    np.testing.assert_array_equal(one.total().sums, other.total().sums)
    [next_round] = crowd.ask([Task(Lloyd(), START)])
    assert (next_round.total().sums != one.total().sums).any()


def test_a_crowd_that_is_not_asked_is_missing() -> None:
    crowd = PooledEngine(ROWS, SITES)
    [answers] = crowd.ask([Task(Lloyd(), START)], ["others"])
    assert answers.by_site == {}
    assert answers.missing == ("30 sites",)
    assert [str(limit) for limit in crowd.introduce()[0].limits] == ["MinRows(n=2)"]


def test_a_fault_names_the_crowd_or_the_site() -> None:
    task = Task(Failing(), State())
    with pytest.raises(SiteError, match="site '30 sites', round 1, Failing: ZeroDivisionError"):
        PooledEngine(ROWS, SITES).ask([task])
    with pytest.raises(SiteError, match="site '0', round 1, Failing: ZeroDivisionError"):
        PooledEngine(ROWS, SITES, [MinClusterSize(2)]).ask([task])


def test_what_makes_no_crowd_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sites has shape \(3,\), but there are 400 rows"):
        PooledEngine(ROWS, [1, 2, 3])
    with pytest.raises(ValueError, match="site '7' has no row of positive weight"):
        PooledEngine(Data(ROWS.X, np.where(SITES == 7, 0.0, 1.0)), SITES)
    for fraction in (0.0, 1.5):
        with pytest.raises(ValueError, match="participation must be above 0 and at most 1"):
            PooledEngine(ROWS, SITES, participation=fraction)


def test_when_limits_hold_everything_back_the_error_says_which() -> None:
    with pytest.raises(HeldBackError, match=r"MinRows\(n=999\) at 30 sites"):
        run(Lloyd(), PooledEngine(ROWS, SITES, [MinRows(999)]), START)
