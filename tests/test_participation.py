"""Sites that are not asked, do not answer, or come late: every algorithm copes and says so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedcluster import FederatedFuzzyCMeans, FederatedKMeans
from fedcluster.algorithms import FFCM, FKM, FedAvg, KFed, Lloyd, SiteSummaries, VarianceTree
from fedcluster.client import Client
from fedcluster.core import Algorithm, Data, State
from fedcluster.engines import LocalEngine
from fedcluster.errors import HeldBackError
from fedcluster.rounds import run

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
def test_a_site_that_comes_late_or_stays_away_for_a_while(
    algorithm: Algorithm, start: State
) -> None:
    late = engine(lambda site, r: (site == "s0" and r < 2) or (site == "s1" and r == 1))
    result = run(algorithm, late, start, max_rounds=15)
    assert close(result.state.centers)
    assert [done.missing for done in result.history[:3]] == [
        ("s0",),
        ("s0", "s1"),
        (),
    ][: len(result.history)]


@pytest.mark.parametrize("algorithm", [Lloyd(), FedAvg(), FFCM()], ids=repr)
def test_a_round_without_any_answer_changes_nothing(algorithm: Algorithm) -> None:
    result = run(algorithm, engine(lambda site, r: r == 1), START, max_rounds=3)
    none = result.history[1]
    assert none.answered == ()
    assert none.shift == 0.0
    assert close(result.state.centers)


def test_a_first_round_without_any_answer_is_an_error() -> None:
    with pytest.raises(HeldBackError, match="no site answered in the first round: s0, s1"):
        run(Lloyd(), engine(lambda site, r: True), START)


def test_one_site_is_always_asked() -> None:
    """max(int(C n), 1) sites, as Triebe & Rajagopal have it."""
    result = run(Lloyd(), engine(), START, participation=0.01, max_rounds=4)
    assert [len(done.answered) for done in result.history] == [1] * 4


@pytest.mark.parametrize("algorithm", ["auto", "lloyd", "fkm", "kfed", "fedavg"])
def test_estimators_take_a_fraction(algorithm: str) -> None:
    model = FederatedKMeans(
        3, algorithm=algorithm, participation=0.5, random_state=0, max_iter=12
    ).fit(ROWS)
    assert close(model.cluster_centers_)
    assert all(len(done["missing"]) == 4 for done in model.history_)


def test_the_fuzzy_estimator_takes_a_fraction() -> None:
    model = FederatedFuzzyCMeans(3, participation=0.5, random_state=0, max_iter=12).fit(ROWS)
    assert close(model.cluster_centers_)


@pytest.mark.parametrize("fraction", [0.0, 1.5, -1.0, float("nan")])
def test_a_fraction_beyond_its_bounds_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="participation must be above 0 and at most 1"):
        FederatedKMeans(3, participation=fraction).fit(ROWS)
