"""Indices of four rows and two centres, by hand."""

from math import log, pi, sqrt
from typing import Any

import numpy as np
import pytest
from partitions import on_line

from fedcluster.core import Data, State, Summary
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.metrics import METRICS, FuzzyObjective, Inertia
from fedcluster.metrics.clusters import (
    Clusters,
    Scatter,
    bic,
    davies_bouldin,
    davies_bouldin_at_means,
    second_round,
)
from fedcluster.metrics.external import (
    Contingency,
    SiteARI,
    adjusted_rand_index,
    mutual_information,
)
from fedcluster.metrics.gaussians import ColumnSpread, MixtureLikelihood, mixture_round
from fedcluster.metrics.indices import CHOOSING
from fedcluster.metrics.moments import Moments, SiteSize
from fedcluster.metrics.silhouettes import SimplifiedSilhouette, SquaredSilhouette, silhouettes
from fedcluster.recipes.scores import evaluation
from fedcluster.rounds import run_plan


def scores(
    rows: np.ndarray, centers: np.ndarray, weight: Any = None, m: float | None = None
) -> dict:
    data = Data(rows, None if weight is None else np.array(weight))
    engine = LocalEngine([Client("here", data, filters=())])
    return run_plan(evaluation(State.at(centers), m=m), engine).value


def test_indices_of_two_pairs() -> None:
    """Rows 0 2 | 10 14 at centres 0 and 10: means 1 and 12, 6.5 over all."""
    found = scores(on_line(0, 2, 10, 14), on_line(0, 10))
    within, between = 2.0 + 8, 2 * 5.5**2 * 2
    for name, score in {
        "inertia": 4 + 16,
        "within": within,
        "between": between,
        "total": within + between,
        "mean-distance": (2 + 4) / 4,
        "wsse": (2 + 4) / 4,
        "calinski-harabasz": (between / 1) / (within / 2),
        "davies-bouldin": (1 + 2) / 11,
        "davies-bouldin-at-centers": (1 + 2) / 10,
        # about 0 and 10: s = 1 of 0 and of 10, (8 - 2) / 8 of 2, (14 - 4) / 14 of 14
        "simplified-silhouette": (1 + 6 / 8 + 1 + 10 / 14) / 4,
        "bic": 4 * log(4) - 2 * (2 * 2 * log(1 / 2) - 2 * log(2 * pi * 5) - 1),
    }.items():
        assert found[name] == pytest.approx(score, rel=1e-12), name


def test_bic_needs_more_rows_than_clusters_and_is_infinite_without_spread() -> None:
    """And so does the index of Calinski and Harabasz, which is 1 without spread."""
    two = on_line(0, 10)
    few, alike = scores(two, two), scores(on_line(0, 0, 10), two)
    assert np.isnan([few["bic"], few["mixture-bic"], few["calinski-harabasz"]]).all()
    assert (alike["bic"], alike["calinski-harabasz"]) == (-np.inf, 1)
    assert np.isfinite(scores(on_line(0, 1, 10), two)["bic"])
    assert scores(np.ones((5, 2)), np.ones((1, 2)))["mixture-bic"] == -np.inf


def test_the_bic_of_a_mixture_counts_the_rows_of_all_clusters() -> None:
    """Rows -1 1 | 3 5 in the first column, variance 1; the second one varies as well, by 4 about
    its mean in both clusters; a third is constant and does not count.
    """
    rows = np.array([[-1.0, 2.0, 7.0], [1.0, -2.0, 7.0], [3.0, 2.0, 7.0], [5.0, -2.0, 7.0]])
    found = scores(rows, np.array([[0.0, 0.0, 7.0], [4.0, 0.0, 7.0]]))["mixture-bic"]

    def density(x: float, y: float, mean: float) -> float:
        return np.exp(-((x - mean) ** 2) / 2 - y**2 / 4 / 2) / (2 * pi * sqrt(4))

    likelihood = sum(log((density(x, y, 0) + density(x, y, 4)) / 2) for x, y, _ in rows)
    assert found == pytest.approx((1 + 2 * 2 + 2) * log(4) - 2 * likelihood, rel=1e-9)


def test_a_column_that_does_not_vary_within_clusters_has_a_millionth_of_its_variance() -> None:
    """Rows (0, 0) (2, 0) | (0, 10) (2, 10): the second column varies by 25, and only between, so
    that no row can be of the other cluster; the first one by 1 within.
    """
    rows = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 10.0], [2.0, 10.0]])
    found = scores(rows, np.array([[1.0, 0.0], [1.0, 10.0]]))["mixture-bic"]
    density = np.exp(-1 / 2) / (2 * pi * sqrt(1 * 25e-6)) / 2
    assert found == pytest.approx((1 + 2 * 2 + 2) * log(4) - 8 * log(density), rel=1e-9)


@pytest.mark.parametrize(
    ("points", "spreads", "score"),
    [
        ([0, 4, 10], [1, 1, 2], 0.5),
        ([0, 3], [1, 2], 1.0),
        ([0, 0], [1, 2], 0.0),
        ([0, 3], [0, 0], 0.0),
        ([0, 0, 4], [1, 1, 1], 0.5),
    ],
)
def test_davies_bouldin_is_the_mean_of_the_worst(points, spreads, score):
    assert davies_bouldin(on_line(*points), np.array(spreads, float)) == pytest.approx(score)


def test_a_lone_pair_of_cluster_and_class_agrees() -> None:
    assert adjusted_rand_index([[5]]) == mutual_information([[5]]) == 1
    assert adjusted_rand_index([[1]]) == 1


MEANS = (
    "davies-bouldin", "davies-bouldin-at-centers", "simplified-silhouette", "mean-distance",
    "partition-coefficient", "xie-beni", "fuzzy-db", "osse",
)  # fmt: skip


@pytest.mark.parametrize("weight", [0.125, 8.0, 0.5])
def test_indices_that_are_means_do_not_depend_on_the_unit_of_weights(weight: float) -> None:
    """A cluster may weigh less than 1."""
    rng = np.random.default_rng(0)
    rows, centers = rng.normal(size=(12, 2)) + np.repeat([[0], [9]], 6, axis=0), on_line(0, 9, 30)
    one, other = (scores(rows, np.hstack([centers] * 2), [w] * 12, 1.5) for w in (1.0, weight))
    for name in MEANS:
        assert other[name] == pytest.approx(one[name], rel=1e-9), name
    for name in ("inertia", "within", "between", "total"):
        assert other[name] == pytest.approx(weight * one[name], rel=1e-9), name


def test_moments_and_sizes_are_weighted() -> None:
    rows = Data(np.array([[1.0, 0.0], [4.0, 3.0]]), np.array([2.0, 1.0]))
    rng = np.random.default_rng(0)
    first = Moments().client_step(State(), rows, rng)
    mean, variance = Moments.mean_and_variance(State(), first)
    np.testing.assert_allclose(mean, [2, 1])
    np.testing.assert_allclose(variance, [2, 2])
    about = State.at(np.array([[100.0, 100.0]]))
    again = Moments.mean_and_variance(about, Moments().client_step(about, rows, rng))
    np.testing.assert_allclose(again, [[2, 1], [2, 2]], rtol=1e-9)
    size = SiteSize().client_step(State(), rows, rng)
    assert SiteSize().score(State(), size) == 2
    assert SiteSize().score(State(), Summary(np.zeros((1, 0)), np.zeros(1))) == 0
    assert (size.weights[0], size.rows[0]) == (3, 2)


PLANE = np.array([[0.0, 0], [2, 2], [10, 0], [14, 0], [12, 3]])
TWO = np.array([[0.0, 0], [10, 0]])


def test_the_bic_counts_every_coordinate() -> None:
    """Rows (0, 0) (2, 2) | (10, 0) (14, 0) (12, 3): means (1, 1) and (12, 1), squares 4 and 8 + 6.
    With k = 2, d = 2 and n = 5: s^2 = 18 / (2 * 3) = 3, and 1 + 4 + 1 parameters.
    """
    found = scores(PLANE, TWO)
    assert found["within"] == pytest.approx(18)
    likelihood = 2 * log(2 / 5) + 3 * log(3 / 5) - 5 * 2 / 2 * log(2 * pi * 3) - 2 * 3 / 2
    assert found["bic"] == pytest.approx(6 * log(5) - 2 * likelihood, rel=1e-12)
    assert found["between"] == pytest.approx(2 * 3 / 5 * 11**2)
    assert found["calinski-harabasz"] == pytest.approx(2 * 3 / 5 * 121 / 1 / (18 / 3))
    distances = sqrt(8) + 4 + sqrt(4 + 9)
    assert found["mean-distance"] == pytest.approx(distances / 5)
    assert found["wsse"] == pytest.approx(distances / 5 / 2)
    spreads = sqrt(2), (2 * sqrt(5) + 2) / 3
    assert found["davies-bouldin"] == pytest.approx(sum(spreads) / 11)


@pytest.mark.parametrize("m", [None, 2.0])
def test_one_cluster_has_the_indices_that_need_no_other(m: float | None) -> None:
    """Rows (0, 0) and (6, 8) at (0, 0), and at an offset of which nothing is seen."""
    for at in (0.0, 2.0**30):
        found = scores(np.array([[0.0, 0], [6, 8]]) + at, np.zeros((1, 2)) + at, m=m)
        assert found["mean-distance"] == 5
        assert found["wsse"] == 2.5
        assert (found["within"], found["between"], found["total"]) == (50, 0, 50)
        # densities of two columns of variances 9 and 16, and 2 d parameters
        likelihood = -2 * log(2 * pi * 3 * 4) - 2
        assert found["mixture-bic"] == pytest.approx(4 * log(2) - 2 * likelihood, rel=1e-12)
        assert np.isnan(found["simplified-silhouette"])
        assert np.isnan(found["squared-silhouette"])


def test_what_rounding_leaves_of_a_difference_is_no_spread() -> None:
    """1 - (1 - x) of errors of 1: as little as 1e-14 of them is nothing."""
    for left, within in ((0.9e-14, 0.0), (1.5e-14, 1.5e-14), (-1e-15, 0.0)):
        moves = on_line(sqrt(1 - left))
        clusters = Clusters(on_line(0), np.ones(1), moves, np.ones(1), np.ones(1))
        assert clusters.within[0] == pytest.approx(within, rel=0.02)


def test_a_cluster_that_is_held_back_in_one_of_two_rounds_is_left_out() -> None:
    """The second one in the first round, the third one in the second."""
    points, spreads = on_line(0, 1, 2, 4), np.array([1.0, 1, 1, 1])
    state = State(points, np.array([2.0, 0, 2, 0.5]), memory={"means": points})
    total = Summary(
        np.array([[2.0], [3.0], [0.0], [1.5]]) * spreads[:, None], np.array([2.0, 3, 0, 0.5])
    )
    assert davies_bouldin_at_means(state, total) == pytest.approx((1 + 3) / 4)


def test_the_second_round_asks_about_means_and_variances_of_what_has_rows() -> None:
    """Sums about the centre of a cluster that weighs 1/2, and of one without rows."""
    state = State.at(np.array([[0.0, 0.0], [9.0, 9.0]]))
    sums = np.array([[1.0, 2.0, 20.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    asked = second_round(state, Summary(sums, np.array([0.5, 0.0])))
    np.testing.assert_array_equal(asked.memory["means"], [[2, 4], [9, 9]])
    np.testing.assert_array_equal(asked.memory["variances"], [(20 - 0.5 * 20) / 0.5, 0])
    np.testing.assert_array_equal(asked.weights, [0.5, 0])


def test_indices_of_nothing_are_nan() -> None:
    state, nothing = State.at(TWO), Summary(np.zeros((2, 4)), np.zeros(2))
    for name, index in METRICS.items():
        if index.asks is METRICS["inertia"].asks:
            assert np.isnan(index.score(state, nothing)), name
    assert np.isnan(bic(State.at(TWO[:1]), Summary(np.ones((1, 4)), np.ones(1))))


def mixture(k: int, weight: float, columns: int = 2) -> State:
    memory = {"means": np.zeros((k, columns)), "columns": np.ones(columns)}
    return State(np.zeros((k, columns)), np.full(k, weight), memory=memory)


def test_the_likelihood_of_rows_that_are_held_back_is_that_of_the_others() -> None:
    """10 rows stand behind the state, of which 5 answered -7: as if all had, -14."""
    score = MixtureLikelihood().score
    answered = Summary(np.array([[-7.0]]), np.array([5.0]))
    assert score(mixture(2, 5.0), answered) == pytest.approx(28 + 7 * log(10))
    assert np.isnan(score(mixture(2, 5.0), Summary(np.zeros((1, 1)), np.zeros(1))))
    assert np.isnan(score(mixture(2, 1.0), answered))
    assert np.isnan(score(mixture(2, 0.75), answered))
    assert np.isfinite(score(mixture(2, 1.25), answered))


def of_columns(mean: list[float], variance: list[float], weight: float) -> dict[str, np.ndarray]:
    """What is remembered of one cluster of this mean and variance, asked about at its mean."""
    sums = [*np.zeros(len(mean)), weight * sum(variance), 1.0]
    scatter = Summary(np.array([sums]), np.array([weight]))
    spread = Summary(weight * np.array([variance]), np.array([weight]))
    return dict(mixture_round(State.at(np.array([mean])), scatter, spread).memory)


@pytest.mark.parametrize("weight", [1.5, 4.0])
def test_a_variance_that_rounding_may_have_made_is_none(weight: float) -> None:
    """At 1e8 a deviation of 1e-5; each column has its own."""
    left = of_columns([1e8, 0.0, -1e8], [0.9e-10, 1e-20, 1.2e-10], weight)["columns"]
    np.testing.assert_allclose(left, [0, 1e-20, 1.2e-10], rtol=1e-9)


def test_columns_vary_about_the_means_that_centres_have_moved_to() -> None:
    """Rows 0 2 | 10 14 asked about at 0 and 10: squares 4 + 16 less 2 * 1 + 2 * 4, by 4 rows."""
    state, rng = State.at(on_line(0, 10)), np.random.default_rng(0)
    data = Data(on_line(0, 2, 10, 14))
    scatter, spread = (step.client_step(state, data, rng) for step in (Scatter(), ColumnSpread()))
    asked = mixture_round(state, scatter, spread)
    np.testing.assert_allclose(asked.memory["columns"], [10 / 4])
    np.testing.assert_allclose(asked.memory["means"], [[1], [12]])


def test_information_is_between_none_and_all() -> None:
    assert mutual_information([[1, 1], [1, 1]]) == 0
    assert mutual_information([[1, 2], [3, 6]]) == 0
    rng = np.random.default_rng(0)
    for k in range(2, 40):
        assert mutual_information(np.diag(rng.integers(1, 100, k))) <= 1
    assert mutual_information([[99, 1], [1, 99]]) == pytest.approx(
        2 * (log(2) + 0.99 * log(0.99) + 0.01 * log(0.01)) / (2 * log(2))
    )


@pytest.mark.parametrize("step", [Contingency('["a"]'), SiteARI()])
def test_rows_without_labels_cannot_be_compared(step: Contingency | SiteARI) -> None:
    rows = Data(on_line(0, 1))
    with pytest.raises(ValueError, match="the rows here have no labels to compare with"):
        step.client_step(State.at(on_line(0)), rows, np.random.default_rng(0))


def test_a_contingency_table_counts_weights_and_stands_on_rows() -> None:
    """Of class b two rows of weights 1/2 and 3 at the second centre; labels become text."""
    step, rng = Contingency.from_classes(["b", "a", "b"]), np.random.default_rng(0)
    data = Data(on_line(0, 9, 8, 1), np.array([2.0, 0.5, 3.0, 1.0]), np.array(list("abba")))
    answer = step.client_step(State.at(on_line(0, 9)), data, rng)
    np.testing.assert_array_equal(answer.weights, [3, 0, 0, 3.5])
    np.testing.assert_array_equal(answer.rows, [2, 0, 0, 2])
    assert answer.sums.shape == (4, 0)
    assert step.answer_shape(State.at(on_line(0, 9)), 7) == (4, 0)
    with pytest.raises(ValueError, match="1 of the 2 labels here are not among the 1 classes"):
        Contingency('["a"]').client_step(State.at(on_line(0)), data, rng)


def test_a_silhouette_where_all_distances_are_0_is_0() -> None:
    own, other = np.array([0.0, 1, 3, 0.5, 0]), np.array([0.0, 3, 1, 0.25, 0.5])
    np.testing.assert_allclose(silhouettes(own, other), [0, 2 / 3, -2 / 3, -0.5, 1])


def test_a_cluster_of_less_than_one_row_s_weight_has_no_squared_silhouette() -> None:
    """Weights 1 and 1/2 are no pair; 2 and 3 are pairs of their own."""
    rows, rng = np.array([[0.0], [10.0], [30.0]]), np.random.default_rng(0)
    for weights, mean in (([1.0, 0.5, 0.0], 0.0), ([2.0, 3.0, 0.0], 1.0)):
        memory = {"means": rows, "variances": np.zeros(3)}
        state = State(rows, np.array(weights), memory=memory)
        answer = SquaredSilhouette().client_step(state, Data(rows[:2]), rng)
        assert answer.sums[0, 0] / 2 == mean
        assert SquaredSilhouette().score(state, answer) == mean
    alone = State(rows, np.array([2.0, 0.0, 0.0]), memory=memory)
    answer = SquaredSilhouette().client_step(alone, Data(rows[:1]), rng)
    assert np.isnan(SquaredSilhouette().score(alone, answer))


HIGHER = {
    "between", "calinski-harabasz", "squared-silhouette", "simplified-silhouette",
    "simplified-silhouette-of-means", "partition-coefficient", "ari", "nmi", "purity",
    "mean-site-ari",
}  # fmt: skip


def test_the_direction_and_the_vote_of_every_index() -> None:
    neither = {name for name, index in METRICS.items() if index.maximise is None}
    assert neither == {"total", "osse"}
    assert {name for name, index in METRICS.items() if index.maximise} == HIGHER
    votes = {name: choosing.vote for name, choosing in CHOOSING.items() if choosing.vote}
    assert votes == {"mixture-bic": 1, "gap": 2, "calinski-harabasz": 3, "squared-silhouette": 4}
    shown = {name for name, choosing in CHOOSING.items() if choosing.always_shown}
    assert shown == {*votes, "inertia", "davies-bouldin"}
    for metric in (SimplifiedSilhouette(), SquaredSilhouette(), SiteARI()):
        assert metric.maximise
    for other in (Inertia(), FuzzyObjective(), MixtureLikelihood()):
        assert not other.maximise


def test_a_fuzzy_index_of_one_cluster_or_of_clusters_at_one_place() -> None:
    rows = on_line(0, 2)
    alone = scores(rows, on_line(1), m=2.0)
    assert (alone["partition-coefficient"], alone["osse"]) == (1, 0)
    assert all(np.isnan(alone[name]) for name in ("xie-beni", "fuzzy-db", "fuzzy-db-squared"))
    twins = scores(rows, on_line(1, 1), m=2.0)
    assert twins["partition-coefficient"] == 0.5
    assert twins["xie-beni"] == twins["fuzzy-db"] == np.inf
    state, nothing = State.at(on_line(0, 2)), Summary(np.zeros((2, 6)), np.zeros(2))
    for name in ("partition-coefficient", "xie-beni", "fuzzy-db", "fuzzy-db-squared", "osse"):
        assert np.isnan(METRICS[name].score(state, nothing)), name


def test_the_inertia_of_no_row_is_0() -> None:
    """As where a bootstrap sample of a site is empty."""
    state, rng = State.at(np.array([[0.0, 0.0], [1.0, 1.0]])), np.random.default_rng(0)
    answer = Inertia().client_step(state, Data(np.empty((0, 2))), rng)
    assert (answer.sums.tolist(), answer.weights.tolist()) == ([[0.0]], [0.0])
