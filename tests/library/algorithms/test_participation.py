"""Sites that are not asked, do not answer, or come late: every algorithm copes and says so."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning

from fedcluster import FederatedFuzzyCMeans, FederatedKMeans, select_k
from fedcluster.algorithms import (
    FFCM,
    FKM,
    FedAvg,
    GaussianMixture,
    KFed,
    Lloyd,
    SiteSummaries,
    VarianceTree,
)
from fedcluster.core import Algorithm, Answers, Data, State, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.jobs import execute, fit_of
from fedcluster.kernels import nearest
from fedcluster.metrics import Inertia
from fedcluster.options.choices import AlgorithmName
from fedcluster.recipes.fit import Sampled, keeps_sums
from fedcluster.recipes.scores import objective_value
from fedcluster.rounds import EarlyStop, Plan, everyone, run, run_plan, server_update
from fedcluster_app.wire.recorder import RecordedEngine

pytestmark = pytest.mark.usefixtures("short_searches")

CENTERS = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0]])
RNG = np.random.default_rng(0)
ROWS = {f"s{i}": CENTERS[RNG.integers(0, 3, 40)] + RNG.normal(size=(40, 2)) for i in range(8)}
START = State.at(CENTERS + 2.0)
ALL: list[tuple[Algorithm, State]] = [
    (Lloyd(), START),
    (FKM(3), State()),
    (KFed(3), State()),
    (FedAvg(), START),
    (FFCM(), START),
    (FFCM(averaging="avg_2", local="converge", support="u"), START),
    (FFCM(m=1.0, averaging="avg_2"), START),
    (SiteSummaries(6), State()),
    (VarianceTree(12), State()),
]
each = pytest.mark.parametrize(
    ("algorithm", "start"), ALL, ids=lambda a: repr(a) if not isinstance(a, State) else ""
)


def engine(silent: Callable[[str, int], bool] | None = None) -> LocalEngine:
    return LocalEngine((Client(name, Data(X)) for name, X in ROWS.items()), silent=silent)


def close(centers: np.ndarray) -> bool:
    """Whether each true centre has a found one beside it."""
    return bool((np.linalg.norm(CENTERS[:, None] - centers, axis=2).min(axis=1) < 2.0).all())


@each
def test_a_sample_of_the_sites_a_round(algorithm: Algorithm, start: State) -> None:
    result = run(algorithm, engine(), start, participation=0.5, seed=1, max_rounds=15)
    assert close(result.state.centers)
    for done in result.history:
        assert len(done.answered) == 4
        assert sorted(done.answered + done.missing) == sorted(ROWS)
    if len(result.history) > 3:
        assert len({done.answered for done in result.history}) > 1


@each
def test_a_site_that_never_answers(algorithm: Algorithm, start: State) -> None:
    gone = engine(lambda site, r: site == "s3")
    without = LocalEngine(Client(n, Data(X)) for n, X in ROWS.items() if n != "s3")
    a, b = (run(algorithm, e, start, max_rounds=15) for e in (gone, without))
    assert a.state.centers.tobytes() == b.state.centers.tobytes()
    assert all(done.missing == ("s3",) for done in a.history)


@each
def test_a_site_that_comes_late_or_stays_away_for_a_while(algorithm, start):
    late = engine(lambda site, r: (site == "s0" and r < 2) or (site == "s1" and r == 1))
    result = run(algorithm, late, start, max_rounds=15)
    assert close(result.state.centers)
    missing = [done.missing for done in result.history[:3]]
    assert missing == [("s0",), ("s0", "s1"), ()][: len(missing)]


@pytest.mark.filterwarnings("ignore:stopped at the limit")
@pytest.mark.parametrize("algorithm", ["fkm", "kfed", "fedavg"])
def test_a_papers_algorithm_asks_a_sample_in_each_of_its_rounds(algorithm: AlgorithmName) -> None:
    model = sampled(algorithm=algorithm, max_iter=12)
    assert close(model.cluster_centers_)
    assert all(len(done["missing"]) == 4 for done in model.history_)
    assert model.communication_rounds_[-1]["missing"] == []  # the exact inertia
    assert model.inertia_ == pytest.approx(-model.score(ROWS))


def sampled(kind: type[Any] = FederatedKMeans, **how: Any) -> Any:
    return kind(3, participation=0.5, random_state=0, **how).fit(ROWS)


@pytest.mark.parametrize("algorithm", ["auto", "lloyd"])
def test_exact_lloyd_asks_all_sites_first_and_last(algorithm: AlgorithmName) -> None:
    model = sampled(algorithm=algorithm, max_iter=40)
    missing = [len(done["missing"]) for done in model.communication_rounds_]
    assert missing[:2] == [0, 0]  # the start, and the first sums
    first = missing.index(4)
    last = len(missing) - missing[::-1].index(4)
    assert set(missing[first:last]) == {4}
    assert set(missing[last:]) == {0}
    assert len(missing[last:]) >= 2  # until the centres rest, and the exact inertia
    rounds = sum("Lloyd" in done["tasks"] for done in model.communication_rounds_)
    assert model.stop_reason_.startswith(f"converged after {rounds} rounds")


def test_the_fuzzy_estimator_takes_a_fraction() -> None:
    model = sampled(FederatedFuzzyCMeans, tol=1e-9)
    whole = FederatedFuzzyCMeans(3, random_state=0, tol=1e-9).fit(ROWS)
    assert any(done["missing"] for done in model.history_)
    np.testing.assert_allclose(model.cluster_centers_, whole.cluster_centers_, atol=1e-5)


def test_the_last_sums_of_a_site_stand_in_for_it() -> None:
    """North holds 0 and 2, south 4 and 12; north alone answers the second round.

    From 1 and 9 the first round gives the means of 0, 2, 4 and of 12: 2 and 12. In the second
    round 0 and 2 stay with the first centre, and south's 4 and 12 where they were: 2 and 12 again.
    North's own sums alone would have moved the first centre to 1.
    """
    north, south = (
        Client(name, Data(np.array([[low], [high]])))
        for name, low, high in (("north", 0.0, 2.0), ("south", 4.0, 12.0))
    )
    sites, lloyd = LocalEngine([south, north]), Lloyd()
    run_ = Sampled(State.at([[1.0], [9.0]]))
    run_.update(lloyd, sites.ask([Task(lloyd, run_.state)])[0], 0)
    assert run_.state.centers.tolist() == [[2.0], [12.0]]
    run_.update(lloyd, sites.ask([Task(lloyd, run_.state)], ["north"])[0], 0)
    assert run_.state.centers.tolist() == [[2.0], [12.0]]
    assert run_.state.weights.tolist() == [3.0, 1.0]
    assert run_.history[-1].answered == ("north",)
    assert run_.history[-1].missing == ("south",)
    assert run_.history[-1].values_sent == {"north": 3}
    assert run_.still == 1


def test_with_all_sites_old_sums_change_nothing() -> None:
    lloyd, sites = Lloyd(), engine()
    run_, state = Sampled(START), START
    for _ in range(4):
        [answers] = sites.ask([Task(lloyd, state)])
        run_.update(lloyd, answers, 0)
        state, done = server_update(lloyd, state, answers, 0)
        assert run_.state.centers.tobytes() == state.centers.tobytes()
        assert run_.history[-1] == done


@pytest.mark.parametrize("seed", range(4))
def test_the_error_of_the_assignment_falls_in_every_round(seed: int) -> None:
    """F of the docstring, from the rows themselves: whoever is asked, it never rises."""
    rng = np.random.default_rng(seed)
    sites, lloyd = engine(), Lloyd()
    run_ = Sampled(State.at(rng.normal(3, 6, (4, 2))))
    labels: dict[str, np.ndarray] = {}
    errors = []
    for done in range(25):
        asked = list(ROWS) if not done else list(rng.choice(list(ROWS), 2, replace=False))
        for name in asked:
            labels[name] = nearest(ROWS[name], run_.state.centers)[0]
        run_.update(lloyd, sites.ask([Task(lloyd, run_.state)], asked)[0], 0)
        gaps = [ROWS[name] - run_.state.centers[labels[name]] for name in ROWS]
        errors.append(sum(float((gap**2).sum()) for gap in gaps))
    assert (np.diff(errors) <= 1e-9 * errors[0]).all()
    assert errors[-1] < errors[0]


@pytest.mark.parametrize(("n_sites", "fraction"), [(5, 0.5), (5, 0.2), (25, 0.5), (25, 0.2)])
def test_sampled_sites_of_different_rows_end_at_a_pooled_optimum(n_sites, fraction):
    """Each site holds rows of a corner of its own; the result is a fixed point of pooled Lloyd."""
    rows = make_blobs(1500, 3, centers=15, cluster_std=1.5, random_state=1)[0]
    corner = KMeans(n_sites, n_init=1, random_state=0).fit(rows).labels_
    model = FederatedKMeans(15, participation=fraction, random_state=0, tol=0)
    model.fit(rows, sites=corner)
    pooled = KMeans(15, n_init=10, random_state=0).fit(rows)
    assert model.inertia_ <= 1.005 * pooled.inertia_
    assert model.n_iter_ <= 60
    assert min(len(done["missing"]) for done in model.history_) == 0
    assert max(len(done["missing"]) for done in model.history_) >= n_sites * (1 - fraction)
    again = KMeans(15, init=model.cluster_centers_, n_init=1, max_iter=1, tol=0).fit(rows)
    np.testing.assert_allclose(again.cluster_centers_, model.cluster_centers_, atol=1e-9)
    assert model.inertia_ == pytest.approx(-model.score(rows), rel=1e-9)


def test_a_limit_of_rounds_holds_for_the_sampled_and_the_full_ones_together() -> None:
    how: dict[str, Any] = {"init": "k-means++", "n_init": 1, "max_iter": 9, "tol": 0}
    model = FederatedKMeans(15, participation=0.2, random_state=0, **how)
    rows = np.random.default_rng(0).uniform(size=(900, 2))
    with pytest.warns(ConvergenceWarning, match="stopped at the limit of 9 rounds"):
        model.fit(rows, sites=np.arange(900) % 5)
    lloyd = [done for done in model.communication_rounds_ if "Lloyd" in done["tasks"]]
    assert [bool(done["missing"]) for done in lloyd] == [False, *[True] * 3, *[False] * 5]
    assert model.stop_reason_.startswith("stopped at the limit of")


def test_every_k_is_clustered_by_samples_and_scored_by_all() -> None:
    chosen = select_k(ROWS, range(2, 5), rule="vote", participation=0.5, random_state=0)
    assert chosen.n_clusters == 3
    whole = select_k(ROWS, range(2, 5), rule="vote", random_state=0)
    for k, result in chosen.results.items():
        assert any(done.missing for done in result.history)
        assert result.state.inertia <= 1.005 * whole.results[k].state.inertia
        assert chosen.table[k]["inertia"] == pytest.approx(result.state.inertia)


def test_a_sampled_run_that_was_broken_off_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    job = fit_of(3, participation=0.3, seed=2)
    whole = execute(job, engine(), columns=["x", "y"]).outcome
    for kept in (1, 4, len(whole.communication_rounds) - 1):
        folder = tmp_path / str(kept)
        execute(job, RecordedEngine(engine(), folder), columns=["x", "y"])
        for path in sorted(folder.glob("exchange-*"))[kept:]:
            path.unlink()
        again = RecordedEngine(engine(), folder)
        outcome = execute(job, again, columns=["x", "y"]).outcome
        assert again.replayed == kept
        assert outcome.value.state.centers.tobytes() == whole.value.state.centers.tobytes()
        assert outcome.communication_rounds == whole.communication_rounds


def test_a_plan_for_everyone_is_told_when_it_is_enough() -> None:
    def patient() -> Plan[str]:
        try:
            yield [Task(Lloyd(), START)]
        except EarlyStop:
            [answers] = yield [Task(Lloyd(), START)]
            return f"told, {len(answers.by_site)}"
        return "not told"

    plan = everyone(patient())
    assert [task.everyone for task in next(plan)] == [True]
    assert [task.everyone for task in plan.throw(EarlyStop())] == [True]
    with pytest.raises(StopIteration) as end:
        plan.send([Answers({})])
    assert end.value.value == "told, 0"


@pytest.mark.parametrize("fraction", [0.0, 1.5, -1.0, float("nan")])
def test_a_fraction_beyond_its_bounds_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="participation must be above 0 and at most 1"):
        FederatedKMeans(3, participation=fraction).fit(ROWS)


def test_one_task_for_all_makes_a_round_ask_all() -> None:
    """A round is one message: a run that asks a sample may share it with one that asks all."""
    asked = []
    sites = LocalEngine(Client(f"{i}", Data(np.full((2, 1), float(i)))) for i in range(6))

    def plan() -> Plan[None]:
        few, all_ = (Task(Lloyd(), State.at([[0.0]]), everyone=each) for each in (False, True))
        for tasks in ([few], [few, all_], [all_, few], [all_], [few, few]):
            answers = yield tasks
            asked.append(len(answers[0].answered))

    run_plan(plan(), sites, participation=0.5)
    assert asked == [3, 6, 6, 6, 3]


@pytest.mark.parametrize("seed", range(2))
def test_what_a_fit_made_small_is_told_of_all_sites_whoever_takes_part(seed: int) -> None:
    """Two rows at each site, each 1 from the centre between them."""
    places = [0.0, 9.0, 20.0, 40.0]
    sites = LocalEngine(Client(f"{x}", Data(np.array([[x - 1.0], [x + 1.0]]))) for x in places)
    plan = objective_value(Inertia(), State.at([[x] for x in places]))
    assert run_plan(plan, sites, participation=0.25, seed=seed).value == {"inertia": 8.0}


def test_sums_about_the_means_of_their_round_stand_in_for_none_of_another() -> None:
    assert keeps_sums(Lloyd())
    assert not keeps_sums(GaussianMixture())  # although its sums add up
