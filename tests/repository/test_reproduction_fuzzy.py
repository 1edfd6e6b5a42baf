"""What the fuzzy papers' experiments measure, and the published numbers that they read."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from fedcluster.algorithms import FFCM
from fedcluster.core import State
from fedcluster.rounds import run
from reproduction.datasets import ffcm_case
from reproduction.ffcm import cases, methods
from reproduction.framework import artificial, g2_runs, index, sets, variants
from reproduction.framework.lean import LeanFFCM
from reproduction.g2_sets import DIMENSIONS, g2_rows, true_centers
from reproduction.indices import knowledge_gap
from reproduction.results import Estimate
from reproduction.triebe import runs

pytestmark = pytest.mark.thorough

LINE = np.array([[0.0], [2.0], [10.0], [12.0]])


def test_triebe_s_measures_by_hand() -> None:
    """Every row is 1 from its centre, the centres 10 apart; one without rows does not count."""
    for centers in ([[1.0], [11.0]], [[1.0], [11.0], [-50.0]]):
        assert list(runs.measures(LINE, np.array(centers))) == [1.0, pytest.approx(0.2)]


def test_triebe_s_points_have_their_settings() -> None:
    """Half a site is one; each point of figures 1 to 5 is there, and central has no setting."""
    assert {runs.setting_of(p).sites for p in runs.points("1")} == {1, 5, 15, 50, runs.CENTRAL}
    assert {runs.setting_of(p).epochs for p in runs.points("4a")} == {1, 2, 5, 10, 20, 50}
    assert {runs.setting_of(p).beta for p in runs.points("5b")} >= {1.0, 0.1, 0.01}
    assert sum(len(runs.points(panel)) for panel in runs.PANELS) == 112


def test_sse_are_sums_of_distances_by_hand() -> None:
    """To their own centre 1 each; to the other 11, 9, 9 and 11."""
    assert methods.sse(LINE, np.array([[1.0], [11.0]])) == (1.0, 10.0)


def test_the_mean_of_sites_ignores_their_sizes() -> None:
    """A site of three rows has 1 and 9, 9, 11 off its centres 1 and 11; one of a row 0 and 12."""
    site = np.array(["a", "a", "a", "b"])
    centers = {"a": np.array([[1.0], [11.0]]), "b": np.array([[0.0], [12.0]])}
    within, outside = methods.mean_sse(LINE, site, centers)
    assert within == pytest.approx((1 + 0) / 2)
    assert outside == pytest.approx(((11 + 9 + 9) / 3 + 12) / 2)


@pytest.mark.parametrize("rounds", [58, 59])
def test_a_run_that_circles_ends_where_all_its_rounds_would(monkeypatch, rounds):
    """Case 3's second sizes: the sites are left with centres of their own."""
    monkeypatch.setattr(methods, "MOST_ROUNDS", rounds)
    rows, start = ffcm_case("3b", 0), np.random.default_rng(1000).integers(-10, 10, (4, 2))
    sites, ffcm = methods.engine(rows.X, rows.site), FFCM.program_2021()
    found = methods.federated(ffcm, sites, start)
    assert not found.converged
    assert found.period > 1
    plain = run(ffcm, sites, State.at(start), max_rounds=rounds).state.centers
    np.testing.assert_array_equal(found.centers, plain)
    assert all(np.abs(own - plain).max() > 0.1 for own in found.local.values())


def test_a_run_that_converges_leaves_the_sites_the_server_s_centres() -> None:
    site = np.repeat(["a", "b"], 2)
    found = methods.clustered("avg_1", LINE, site, 1, 2.0, 0)
    assert found.converged
    assert found.local.keys() == {"a", "b"}
    for own in found.local.values():
        np.testing.assert_array_equal(own, found.centers)


def test_a_cell_may_be_off_by_three_standard_errors_or_a_tenth() -> None:
    ours = ten_runs(spread=1.0)
    assert cases.judged({}, ours, 1.0, ours).allowed == pytest.approx(3 * (2 / 10) ** 0.5)
    assert cases.judged({}, ours, 100.0, ours).allowed == pytest.approx(10.0)


def ten_runs(spread: float) -> Estimate:
    return Estimate(5.0, spread, cases.RUNS)


def test_all_published_values_are_found() -> None:
    for case in cases.TABLES:
        for method in methods.METHODS:
            for quantity in cases.QUANTITIES[:2]:
                assert cases.published_value(case, method, quantity)
    assert [cases.published_value("1b", m, "GT gap") for m in methods.METHODS] == [None] * 3
    for experiment in g2_runs.METHODS:
        assert 87 < sets.published_correct(experiment) < 93
    for k in artificial.ARTIFICIAL_K:
        value = index.published_value("A", f"artificial 3 clients, K={k}", "central", "FuzzyDB")
        assert 0.4 < value < 0.9


def test_the_least_index_chooses_k() -> None:
    """Of four runs one is best at 3 clusters; the gap is that of 2, or of the chosen number."""
    found = np.zeros((4, 2, 4))
    found[:, :, g2_runs.INDEX] = [[0.7, 0.5], [0.2, 0.3], [0.4, 0.9], [0.1, np.inf]]
    found[:, :, g2_runs.GAP] = [[1.0, 2.0]] * 4
    np.testing.assert_array_equal(g2_runs.chosen(found), [1, 0, 0, 0])
    assert g2_runs.correct(found) == 75
    changed = variants.gaps_as({g2_runs.CENTRAL: found}, g2_runs.GAP, at_chosen=True)
    np.testing.assert_array_equal(changed[g2_runs.CENTRAL][:, 0, g2_runs.GAP], [2, 1, 1, 1])


@pytest.mark.parametrize("averaging", ["avg_1", "avg_2"])
def test_lean_local_work_is_that_of_ffcm(averaging: Literal["avg_1", "avg_2"]) -> None:
    """The compiled loop ends in the centres of the library's passes."""
    rows, _ = g2_runs.scaled(g2_rows(4, 60), true_centers(4), "unit box")
    asked = methods.engine(rows, np.arange(len(rows)) % 3)
    first = State.at(g2_runs.start("integers", 3, rows, np.random.default_rng(0)))
    ends = [
        run(kind(2.0, averaging, local="converge", support="u", relative=False), asked, first)
        for kind in (FFCM, LeanFFCM)
    ]
    assert ends[0].state.round == ends[1].state.round
    np.testing.assert_allclose(ends[0].state.centers, ends[1].state.centers, atol=1e-12)


@pytest.mark.parametrize("how", ["raw", "unit box", "z-scored"])
def test_the_standardised_gap_has_no_scale(how: str) -> None:
    """Rows scaled with the true centres have the gap of raw rows."""
    X, true = g2_rows(2, 30), true_centers(2)
    rows, known = g2_runs.scaled(X, true, how)
    gap = knowledge_gap(rows[[0, -1]], known, distance="seuclidean")
    assert gap == pytest.approx(knowledge_gap(X[[0, -1]], true, distance="seuclidean"))


@pytest.mark.parametrize("dimensions", DIMENSIONS)
def test_g2_rows_lie_around_their_true_centres(dimensions: int) -> None:
    """Whole numbers, half a unit below the means for being cut; published or drawn anew."""
    halves = g2_rows(dimensions, 10).reshape(2, 1024, dimensions)
    np.testing.assert_array_equal(halves, np.floor(halves))
    np.testing.assert_allclose(halves.mean(axis=1), true_centers(dimensions) - 0.5, atol=1.5)
