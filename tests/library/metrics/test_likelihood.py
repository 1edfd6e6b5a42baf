"""Number of clusters by likelihood: BIC, merging, the verdict and its doubts, by hand."""

from dataclasses import replace
from math import log, pi
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fedcluster import (
    Client,
    Data,
    FederatedGaussianMixture,
    FederatedKMeans,
    LocalEngine,
    select_k,
)
from fedcluster.algorithms import GaussianMixture
from fedcluster.algorithms.gaussian_mixture import targets
from fedcluster.core import Column, Grouped, State, Summary
from fedcluster.core.ranges import Box
from fedcluster.metrics.columns import AxisCounts, ColumnShape, Shapes, quantiles_of
from fedcluster.metrics.gaussians import MixtureOverlap, densities, row_logs
from fedcluster.mixtures.on_leaves import leaves_plan
from fedcluster.mixtures.table import Table, n_parameters, table_plan, with_noise
from fedcluster.preprocessing import Category, NumericColumn, Preprocessor
from fedcluster.rounds import run_plan, with_preprocessing
from fedcluster.selection._likelihood import Mixture, clusters_of, likeliest, merged
from fedcluster.selection._mixtures import shrunk_towards

RNG = np.random.default_rng(0)


def mixture(overlaps: Any, /, **changes: Any) -> Mixture:
    """Components of ten rows each, none of them normal, with rows that they share."""
    shared = np.array(overlaps)
    c = len(shared)
    one = Mixture("diag", c, np.full(c, 10.0), shared, 99.0, -100.0, (0, 4), 1)
    return replace(one, **changes)


def chain(own: Any, shared: Any, depth: Any = 1.0, **changes: Any) -> Mixture:
    """Components in a row; neighbours share rows, and the density between them falls to a depth."""
    c = len(own)
    overlaps, ridges = np.diag(own) + 0.0, np.full((c, c), -np.inf)
    for each, value in ((overlaps, shared), (ridges, np.log(depth))):
        each[range(c - 1), range(1, c)] = each[range(1, c), range(c - 1)] = value
    return mixture(overlaps, peaks=np.zeros(c), ridges=ridges, **changes)


@pytest.mark.parametrize(
    ("covariance_type", "p", "q"),
    [("spherical", 6 + 3, 2), ("diag", 6 + 6, 2), ("tied", 6, 3 + 2), ("full", 6 + 9, 2)],
)
def test_parameters_are_counted(covariance_type: str, p: int, q: int) -> None:
    """Three components in two columns: means, covariances, two shares."""
    assert n_parameters(covariance_type, 3, 2, [], noise=False) == (p, q)
    assert n_parameters(covariance_type, 3, 2, [], noise=True) == (p, q + 1 + 2 * 2)
    own, common = [(4, True)], [(4, False)]
    assert n_parameters(covariance_type, 3, 2, own, noise=False) == (p + 9, q)
    assert n_parameters(covariance_type, 3, 2, common, noise=False) == (p, q + 3)
    assert n_parameters("diag", 3, 0, own, noise=False) == (9, 2)


def test_a_components_parameters_count_by_its_own_rows() -> None:
    two = mixture([[10.0, 0.0], [0.0, 10.0]], n_parameters=(4, 3))
    assert two.bic(50.0) == pytest.approx(-100 - 4 / 2 * log(25) - 3 / 2 * log(50))


def test_the_two_that_overlap_most_are_merged_first_by_the_smaller_one() -> None:
    """A and B share 1 of 5 rows; C shares .4 of 10 with each, .8 of 10 with both together."""
    sizes = np.array([20.0, 5.0, 10.0])
    shared = np.array([[18.6, 1.0, 0.4], [1.0, 3.6, 0.4], [0.4, 0.4, 9.2]])
    three = mixture(shared, weights=sizes)
    apart, pair, one = [[0], [1], [2]], [[0, 1], [2]], [[0, 1, 2]]
    expected = ((0.21, apart, 0.0), (0.19, pair, 0.2), (0.081, pair, 0.2), (0.079, one, 0.2))
    for least, groups, most in expected:
        found, overlap = merged(three, least)
        assert found == groups
        assert overlap == pytest.approx(most)
    np.testing.assert_array_equal(sizes, [20.0, 5.0, 10.0])


def test_a_chain_without_valleys_stays_one() -> None:
    """Neighbours share .04 of their rows; the density between them falls to .5, then to .1."""
    one = chain([9.2, 9.2, 9.6], 0.4, [0.5, 0.1])
    assert merged(one, 0.05)[0] == [[0, 1], [2]]
    assert merged(replace(one, peaks=None), 0.05)[0] == [[0], [1], [2]]
    assert merged(chain([9.2, 9.2, 9.6], 0.2, [0.5, 0.1]), 0.05)[0] == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, 2),
        ({"noise": 0.1}, 1),  # took the tails
        ({"fourth": 8.6}, 1),  # above 3 + 2.5 sqrt(24 / 20)
        ({"covariance_type": "full"}, 1),
        ({"covariance_type": "spherical", "variances": np.array([1.0, 1.5])}, 2),
        ({"covariance_type": "spherical", "variances": np.array([1.0, 1.6])}, 1),
        ({"covariance_type": "diag", "variances": np.array([[1.0, 7.0], [1.4, 9.0]])}, 2),
        ({"covariance_type": "diag", "variances": np.array([[1.0, 7.0], [1.6, 9.0]])}, 1),
        ({"kurtosis": np.array([[3.0], [9.4]])}, 2),
        ({"kurtosis": np.array([[3.0], [9.6]])}, 1),  # mean 2.97 errors of sqrt(24 / 20) above 3
    ],
)
def test_normal_rows_of_one_covariance_are_merged_later(changes: dict[str, Any], says: int) -> None:
    """A fourth moment of d (d + 2) = 3 is that of normal rows in one column."""
    normal = {"covariance_type": "tied", "fourth": 3.0, **changes}
    assert likeliest([mixture([[9.0, 1.0], [1.0, 9.0]], **normal)], 20.0, [1, 2]).n_clusters == says


CROSSED: dict[str, Any] = {"unlike": np.ones((2, 2), bool)}
"""As of clusters that cross: no valley parts them."""
PARTED: dict[str, Any] = {
    "covariance_type": "full", "fourth": 3.0, "peaks": np.zeros(2),
    "ridges": np.full((2, 2), log(0.55)),
}  # fmt: skip
"""Normal ones, between which the density falls to .55."""


@pytest.mark.parametrize(
    ("two", "changes", "says"),
    [
        (CROSSED, {}, 2),
        (PARTED, {"ridges": np.full((2, 2), log(0.65))}, 1),  # hardly a valley
        (PARTED, {}, 2),
        (PARTED, {"fourth": 8.6}, 1),  # above 3 + 2.5 sqrt(24 / 20)
        (PARTED, {"weights": np.array([60.0, 10.0])}, 1),  # a tail has few rows
        (PARTED, {"noise": 0.1}, 1),
        (CROSSED, {"overlaps": np.array([[7.4, 2.6], [2.6, 7.4]])}, 1),  # by more than a quarter
        (CROSSED, {"weights": np.array([60.0, 10.0])}, 1),
        (CROSSED, {"unlike": ~np.ones((2, 2), bool)}, 1),
        (CROSSED, {"noise": 0.1}, 1),
    ],
)
def test_two_large_components_that_share_a_tenth_may_stay_apart(two, changes, says):
    said = likeliest([mixture([[9.0, 1.0], [1.0, 9.0]], **{**two, **changes})], 20.0, [1, 2])
    assert said.n_clusters == says
    assert any("with covariances of their own" in line for line in said.warnings) == (says == 2)
    assert (", each a cluster: 2" in said.reason) == (says == 2)


@pytest.mark.parametrize(
    ("n", "fourth", "doubts"), [(60.0, 3.0, 0), (59.0, 3.0, 1), (60.0, 6.0, 1)]
)
def test_many_rows_that_are_normal_within_components_leave_no_doubt(n, fourth, doubts):
    """Two populations of covariances of their own, of four shared parameters; one heavy-tailed."""
    how = {**CROSSED, "covariance_type": "full", "weights": np.full(2, 60.0), "fourth": fourth}
    said = likeliest([mixture([[54.0, 6.0], [6.0, 54.0]], **how)], n, [1, 2, 3])
    assert said.n_clusters == 2
    assert len([line for line in said.warnings if "of their own" in line]) == doubts


@pytest.mark.thorough
def test_rows_astray_are_no_cluster_but_a_wide_one_of_few_beside_others_is() -> None:
    """Three clouds, and 4 % of the rows around them, or as far apart and as wide beside them."""
    rng = np.random.default_rng(0)
    X = np.repeat([[0, 0], [9, 0], [0, 9]], 240, axis=0) + rng.normal(size=(720, 2))
    wide = rng.normal(0, 20, (30, 2))
    for away, says in ((0.0, 3), (150.0, 4)):
        rows = np.concatenate([X, wide + away])
        chosen = select_k(rows, sites=np.arange(750) % 3, random_state=0)
        assert chosen.n_clusters == says
        assert ("rows far around others" in chosen.reason) == (says == 3)
        assert not [line for line in chosen.warnings if "two normal populations" in line]


def test_normal_rows_that_cross_are_normal_though_components_are_shrunk() -> None:
    """The narrow side of each is widened by the other's long one, as nu rows of both."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(800, 2)) * [10.0, 1.0]
    rows[::2] = rows[::2, ::-1]
    chosen = select_k(rows, sites=np.arange(800) % 3, random_state=0)
    assert chosen.n_clusters == 2
    assert not [line for line in chosen.warnings if "two normal populations" in line]


def test_rare_counts_of_one_population_are_one_cluster() -> None:
    """Prepared columns have one deviation but grids of their own: narrower clouds were five."""
    rows = np.random.default_rng(0).poisson([0.3, 0.5, 0.7, 1.5, 2.5], (300, 5)).astype(float)
    chosen = select_k(rows, sites=np.arange(300) % 2, prepare="standard", random_state=0)
    assert chosen.n_clusters == 1
    assert not chosen.warnings


@pytest.mark.parametrize(
    ("kind", "depth", "groups"),
    [
        ("tied", 0.95, [[0, 1, 2]]),
        ("tied", 0.8, [[0], [1], [2]]),
        ("full", 0.55, [[0, 1, 2]]),  # a curve takes three or more, parted by valleys
    ],
)
def test_a_chain_of_normal_components_may_stay_one(kind, depth, groups):
    """Three in a row between which the density hardly falls are a line."""
    line = chain([9.0, 8.0, 9.0], 1.0, depth, covariance_type=kind, fourth=3.0)
    assert clusters_of(line)[0] == groups


def test_two_normal_components_without_a_valley_are_two_populations() -> None:
    two = chain([9.0, 8.0], 1.0, covariance_type="tied", fourth=3.0)
    assert clusters_of(two)[0] == [[0], [1]]


def test_a_valley_that_decides_is_a_doubt() -> None:
    """Neighbours share .03 of their rows, a little more than links them."""
    said = likeliest([chain([9.7, 9.7], 0.3, 0.5)], 20.0, [1, 2])
    assert said.n_clusters == 1
    assert any("some components overlap by nearly as much" in line for line in said.warnings)


@pytest.mark.parametrize(
    ("n", "said"), [(59.0, "its two components share 20 % of their rows"), (60.0, "")]
)
def test_small_parts_are_a_doubt_of_few_rows_alone(n: float, said: str) -> None:
    """A cluster with a part of 5 in 50 rows, and four parameters."""
    found = likeliest([chain([44, 4], 1.0, weights=np.array([45.0, 5.0]))], n, [1, 2, 3])
    assert found.n_clusters == 1
    assert [said in line for line in found.warnings] == [True] * bool(said)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ([20.0, 10.0, 20.0], "about 100 % of the rows by likelihood, may be two that overlap: two"),
        ([40.0, 10.0, 10.0], ""),  # one of the two parts has too few rows
        ([20.0, 20.0], "its two components share 15 % of their rows"),
    ],
)
def test_parts_of_a_cluster_that_overlap_little_are_a_doubt(sizes: list[float], said: str):
    """A chain without valleys, in which the last shares .1 of its rows with those before."""
    own, shared = [17.0, 6.0, 19.0][: len(sizes)], [3.0, 1.0][: len(sizes) - 1]
    found = likeliest([chain(own, shared, weights=np.array(sizes))], 50.0, [1, 2, 3])
    assert found.n_clusters == 1
    doubts = [line for line in found.warnings if "may be two" in line]
    assert [said in line for line in doubts] == [True] * bool(said)


@pytest.mark.parametrize(
    ("each", "found"), [((30, 14), [[0, 1, 2], [3]]), ((14, 30), [[0, 1], [2], [3]])]
)
def test_a_group_of_rows_mostly_around_others_counts_for_the_nearest(
    each: tuple[int, int], found: list[list[int]]
) -> None:
    """The first component is far wider than the clouds that it encloses, the second is not."""
    shared = np.diag([*each, 200.0, 200.0])
    shared[0, 1:] = shared[1:, 0] = [7.0, 0.2, 0.1]
    weights, around = np.diag(shared).copy(), np.array([True, False, False, False])
    mixture = Mixture("full", 4, weights, shared, 8.0, -9.0, (20, 3), 2, around=around)
    assert clusters_of(mixture)[0] == found


@pytest.mark.parametrize(("each", "doubts"), [(1.6, 1), (2.4, 0)])
def test_ends_of_a_curve_are_no_doubt_where_what_is_between_overlaps_both(each: float, doubts: int):
    """The ends share no rows, but each of them 8 or 12 % with the middle."""
    curve = chain([20 - each, 20 - 2 * each, 20 - each], each, weights=np.full(3, 20.0))
    found = likeliest([curve], 60.0, [1, 2, 3])
    assert found.n_clusters == 1
    assert sum("two parts of it share" in line for line in found.warnings) == doubts


def test_what_covariances_were_shrunk_towards_is_found_again() -> None:
    """A narrow component was shrunk towards as narrow a covariance, a wide one towards the mean."""
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(4, 3, 9)) * np.array([0.3, 1.0, 1.7, 0.7])[:, None, None]
    scatter, n, nu = roots @ np.swapaxes(roots, 1, 2), np.array([20.0, 50.0, 40.0, 9.0]), 2.5
    pooled = scatter.sum(axis=0) / n.sum()
    sizes = targets(scatter / n[:, None, None], pooled)
    assert sizes[0] < 0.5
    assert sizes[2] == 1.0
    shrunk = (scatter + nu * sizes[:, None, None] * pooled) / (n + nu)[:, None, None]
    found, again = shrunk_towards(("full", False), np.linalg.cholesky(shrunk), n, nu)
    np.testing.assert_allclose(found, pooled, rtol=1e-9)
    np.testing.assert_allclose(again, sizes, rtol=1e-9)


def test_clusters_must_gain_two_nats_however_many() -> None:
    """Sixteen are likelier than one by 2.1 nats; what seventeen gain besides is too little."""
    one, sixteen, more = (mixture(np.diag([10.0] * k)) for k in (1, 16, 17))
    sixteen = replace(sixteen, log_likelihood=one.log_likelihood + 2.1)
    for gain, says in ((1.9, 16), (2.1, 17)):
        more = replace(more, log_likelihood=sixteen.log_likelihood + gain)
        assert likeliest([one, more, sixteen], 20.0, [1, 16, 17]).n_clusters == says
        assert likeliest([more, one, sixteen], 20.0, [1, 16, 17]).n_clusters == says
    assert likeliest([one, sixteen], 20.0, [1, 16, 17]).n_clusters == 16


def test_the_verdict_is_one_of_the_numbers_that_may_be() -> None:
    one, two = mixture([[10.0]], log_likelihood=-50.0), mixture([[10.0, 0.0], [0.0, 10.0]])
    assert likeliest([one, two], 20.0, [1, 2]).n_clusters == 1
    assert likeliest([one, two], 20.0, [2, 3]).n_clusters == 2
    assert likeliest([one], 20.0, [2, 3]).n_clusters == 2
    none = likeliest([], 4.0, [2, 3])
    assert (none.n_clusters, none.warnings) == (2, ())
    assert none.reason == "The rows are too few for any mixture. The smallest k."


def test_the_reason_names_components_noise_and_overlap() -> None:
    two = mixture([[9.0, 1.0], [1.0, 9.0]], noise=0.021)
    assert likeliest([two], 20.0, [1, 2]).reason == (
        "A mixture of 2 normal distributions (diagonal covariances, 2.1 % noise) describes the "
        "rows best, and those that share up to 10 % of their rows are one: 1 cluster."
    )
    texts = mixture([[10.0, 0.0], [0.0, 10.0]], n_numbers=0)
    assert likeliest([texts], 20.0, [1, 2, 3]).reason == (
        "A mixture of 2 classes of texts describes the rows best, each a cluster: 2 clusters."
    )


APART = [[10.0, 0.0], [0.0, 10.0]]


@pytest.mark.parametrize(
    ("mixtures", "warning"),
    [
        ([mixture(APART)], None),
        ([mixture(APART), mixture([[10.0]], log_likelihood=-104.0)],
         "1 is nearly as likely a number of clusters as 2"),
        ([mixture(APART), mixture([[10.0]], log_likelihood=-104.0 - 20.0)], None),
        ([mixture([[9.6, 0.4], [0.4, 9.6]])], "1 is as good a number of clusters"),
        ([mixture([[9.8, 0.2], [0.2, 9.8]])], None),
        ([mixture([[9.0, 1.0], [1.0, 9.0]], covariance_type="tied", fourth=3.0)],
         "taken for two normal populations"),
        ([mixture(APART, flat=1)], "1 of 2 components without a spread of their own"),
        ([mixture(APART, n_parameters=(600, 100))], "rows are few for the 700 parameters"),
        ([mixture(np.diag([10.0] * 3))], "k = 3 is the largest that was tried"),
    ],
)  # fmt: skip
def test_warnings_are_about_what_would_change_the_verdict(mixtures, warning):
    said = likeliest(mixtures, 1000.0, [1, 2, 3]).warnings
    assert len(said) == (warning is not None)
    if warning is not None:
        assert warning in said[0]


@pytest.mark.parametrize(
    ("sizes", "d", "says"), [((20, 20, 20), 30, 3), ((200, 12), 24, 2), ((300, 8), 24, 1)]
)
def test_clusters_of_fewer_rows_than_columns_are_found_or_warned_of(sizes, d, says):
    """A covariance of its own needs as many rows as columns; other shapes share theirs."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(len(sizes)), sizes)
    X = (12 / np.sqrt(2 * d) * rng.normal(size=(len(sizes), d)))[y] + rng.normal(size=(len(y), d))
    chosen = select_k(X, sites=np.arange(len(X)) % 3, random_state=0)
    assert chosen.n_clusters == says
    proposed = [line for line in chosen.warnings if "look at them by -k" in line]
    assert len(proposed) == (says != len(sizes))
    for line in proposed:
        assert f"fewer than 12 rows are not looked for in {d} columns" in line
        k = int(line.rpartition("n_clusters=")[2])
        labels = FederatedKMeans(k, random_state=0).fit(X).labels_
        assert adjusted_rand_score(y, labels) == 1.0


def test_two_values_are_known_by_their_kurtosis() -> None:
    X = np.column_stack([RNG.choice([3.0, 7.5], 60, p=[0.9, 0.1]), RNG.integers(0, 3, 60)])
    state = State(np.array([[4.0, 1.0]]), np.zeros(1), memory=plain(2))
    answer = ColumnShape().client_step(state, Data(X), RNG)
    shapes = Shapes.from_total(state, answer)
    np.testing.assert_allclose(shapes.values[:, 0], [3.0, 7.5], rtol=1e-9)
    assert np.isnan(shapes.values[:, 1]).all()
    np.testing.assert_allclose(shapes.mean, X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(shapes.variance, X.var(axis=0), rtol=1e-10)
    assert shapes.grid.tolist() == [0.5, 1.0]


def plain(d: int) -> dict[str, np.ndarray]:
    return {"shift": np.zeros(d), "scale": np.ones(d)}


def test_counts_along_an_axis_give_quantiles() -> None:
    X = RNG.normal(size=(4000, 2))
    edges = np.linspace(-6, 6, 241)
    memory = {"axes": np.array([[0.6, 0.8]]), "edges": edges}
    state = State(np.array([[1.0, -2.0]]), np.zeros(1), memory=memory)
    counts = AxisCounts().client_step(state, Data(X + np.array([[1.0, -2.0]])), RNG).weights[None]
    expected = np.quantile(X @ [0.6, 0.8], [0.1, 0.7])
    np.testing.assert_allclose(quantiles_of(counts, edges, (0.1, 0.7))[0], expected, atol=0.02)


def test_the_overlap_is_that_of_the_responsibilities() -> None:
    """Two components with one text; against sums written out, with weights of rows."""
    X = np.column_stack([RNG.normal(size=50), RNG.integers(0, 2, 50)])
    w = RNG.uniform(0.5, 2.0, 50)
    centers, sd, shares = np.array([[0.0, 0.5], [1.0, 0.5]]), np.array([1.0, 2.0]), [0.2, 0.7]
    memory = {
        "precisions_cholesky": 1 / sd,
        "texts": np.array([0.0, 1.0]),
        "shares": np.array([[0.0, 0.2], [0.0, 0.7]]),
        "overall": np.array([0.0, 0.5]),
    }
    state = State(centers, np.array([3.0, 1.0]), memory=memory)
    answer = MixtureOverlap("spherical", levels=True).client_step(state, Data(X, w), RNG)
    q = ((X[:, :1] - centers[:, 0]) / sd) ** 2
    density = np.array([0.75, 0.25]) * np.exp(-q / 2) / (sd * np.sqrt(2 * pi))
    density = density * np.where(X[:, 1:] > 0, shares, 1 - np.array(shares))
    tau = density / density.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(answer.weights, w @ tau, rtol=1e-10)
    np.testing.assert_allclose(answer.sums[:, :2], (w[:, None] * tau).T @ tau, rtol=1e-9)
    np.testing.assert_allclose(answer.sums[:, 2], w @ (tau * q**2), rtol=1e-8)
    second, fourth = w @ (tau * q) / (w @ tau), w @ (tau * q**2) / (w @ tau)
    kurtosis = MixtureOverlap().kurtosis(state, answer)
    np.testing.assert_allclose(kurtosis[:, 0], fourth / second**2, rtol=1e-8)
    expected = w @ np.log(density.sum(axis=1))
    assert MixtureOverlap().score(state, answer) == pytest.approx(expected, rel=1e-10)


def prepared() -> tuple[Preprocessor, LocalEngine, np.ndarray]:
    """A number, one of two values and a text of three levels, at two sites."""
    X = np.column_stack([RNG.normal(50, 9, 90), RNG.choice([2.0, 6.0], 90), RNG.integers(0, 3, 90)])
    columns = (Column("age"), Column("group"), Column("ward", "text", ("a", "b", "c")))
    how = Preprocessor(
        (
            NumericColumn("age", shift=50.0, scale=9.0),
            NumericColumn("group", shift=4.0, scale=2.0),
            Category("ward", ("a", "b", "c"), scale=2.0),
        )
    )
    clients = [Client(str(i), Data(X[i::2], columns=columns), ()) for i in (0, 1)]
    return how, LocalEngine(clients), X


def told(how: Preprocessor, engine: LocalEngine) -> Table:
    table: Table = run_plan(with_preprocessing(table_plan(how), how), engine).value
    return table


def test_columns_of_two_values_and_levels_are_seen_as_0_and_1() -> None:
    how, engine, X = prepared()
    table = told(how, engine)
    assert table.texts.tolist() == [0, 2, 1, 1, 1]
    assert table.n_levels == [3, 2]
    assert isinstance(table.preprocessor, Preprocessor)
    source: Any = engine.clients["0"].source
    seen = table.preprocessor.apply(source).X
    np.testing.assert_allclose(seen[:, 1], (X[::2, 1] - 2.0) / 4.0, atol=1e-9)
    assert set(seen[:, 2:].ravel()) == {0.0, 1.0}
    clustered = np.asarray(how.apply(source).X, dtype=np.float64)
    np.testing.assert_allclose(table.seen(clustered), np.asarray(seen, float), atol=1e-9)
    np.testing.assert_allclose(table.mean[0], X[:, 0].mean() / 9 - 50 / 9, atol=1e-9)


@pytest.mark.parametrize("power", [-12, -7, -6, -1, 2, 12])
@pytest.mark.parametrize("scale", [None, "none", "standard"])
def test_the_least_variance_has_the_unit_of_its_column(scale: Any, power: int) -> None:
    """Of whole numbers, numbers in halves, and numbers on no grid; in any power of ten."""
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.poisson(3.0, 200), rng.integers(0, 90, 200) / 2, rng.normal(size=200)])

    def floors(unit: float) -> np.ndarray:
        shift, deviation = unit * X.mean(axis=0), unit * X.std(axis=0)
        shift, deviation = (shift, deviation) if scale == "standard" else (np.zeros(3), np.ones(3))
        each = zip("abc", shift.tolist(), deviation.tolist(), strict=True)
        how = Preprocessor(tuple(NumericColumn(n, shift=m, scale=s) for n, m, s in each))
        clients = [
            Client(str(i), Data(unit * X[i::2], columns=tuple(map(Column, "abc"))), ())
            for i in (0, 1)
        ]
        plan = table_plan(None) if scale is None else with_preprocessing(table_plan(how), how)
        table: Table = run_plan(plan, LocalEngine(clients)).value
        return table.floors * deviation**2 / unit**2

    np.testing.assert_allclose(floors(10.0**power), floors(1.0), rtol=1e-6)
    np.testing.assert_allclose(floors(10.0**power)[:2], [0.25, 0.0625], rtol=1e-6)


def test_noise_has_the_density_of_the_rows_range() -> None:
    """Of 20,000 uniform rows, .998 of each side of a box, whatever its scale."""
    X = RNG.uniform(0, 1, (20_000, 2)) * [3.0, 40.0]
    engine = LocalEngine([Client("one", Data(X), ())])
    table = run_plan(with_noise(run_plan(table_plan(None), engine).value), engine).value
    assert np.exp(-table.log_noise) == pytest.approx(0.998**2 * 120, rel=0.02)


@pytest.mark.parametrize(("d", "products"), [(5, True), (40, False)])
def test_a_round_takes_at_most_a_hundred_thousand_numbers(d: int, products: bool) -> None:
    """Leaves have no products of columns where the columns are many; the leaves hold all rows."""
    X = np.random.default_rng(0).normal(size=(1300, d))
    engine = LocalEngine([Client(str(i), Data(X[i::2]), ()) for i in (0, 1)])
    outcome = run_plan(leaves_plan(None), engine)
    assert max(r.values_sent["0"] for r in outcome.communication_rounds) <= 1e5
    assert any(f"LeafMoments(products={products}" in step for step in outcome.steps)
    table, rows = outcome.value
    leaves = rows.leaves
    assert leaves.weights.sum() == 1300
    assert leaves.weights.min() >= 5
    share = leaves.weights / 1300
    mean = share @ leaves.means
    np.testing.assert_allclose(mean, X.mean(axis=0), atol=1e-12)
    apart = leaves.means - mean
    total = np.einsum("l,lij->ij", share, leaves.covariances) + (apart.T * share) @ apart
    np.testing.assert_allclose(total, np.cov(X.T, bias=True), atol=1e-10)
    np.testing.assert_allclose(table.covariance, np.cov(X.T, bias=True), atol=1e-10)


@pytest.mark.parametrize("shape", ["full", "tied", "diag", "spherical"])
def test_the_mean_of_a_group_has_the_mean_log_density_of_its_rows(shape: Any) -> None:
    """Rows lie on either side of the means along each column, as far in all groups."""
    rng = np.random.default_rng(8)
    means, apart = (
        rng.normal(size=(40, 3)) + np.repeat([[0], [6]], 20, axis=0),
        np.diag([1, 2, 0.5]),
    )
    rows = np.concatenate([means[:, None] + apart, means[:, None] - apart], axis=1)
    fit = FederatedGaussianMixture(2, covariance_type=shape, random_state=0)
    state, kind = fit.fit(rows.reshape(-1, 3)).state_, GaussianMixture(shape)
    scatter = dict(zip(("x0", "x1", "x2"), 80 * apart.diagonal() ** 2, strict=True))
    count = np.full(40, 6.0)
    grouped = Data(means, count, grouped=Grouped(count, scatter=scatter))
    found = row_logs(kind, state, means, densities(kind, state, grouped))
    of_rows = row_logs(kind, state, rows.reshape(-1, 3), densities(kind, state))
    np.testing.assert_allclose(found, of_rows.reshape(40, 6, 2).mean(axis=1))


def test_rows_that_are_seen_as_one_are_counted_by_sums() -> None:
    """A site that lies about its groups hides its own rows at most."""
    X, state = RNG.normal(size=(13, 2)), State(np.zeros((1, 2)), np.zeros(1), memory=plain(2))
    counts, step = np.array([5.0, 7.0, 8.0]), ColumnShape()
    groups = Data(X[:3], 2 * counts, grouped=Grouped(counts))
    total = Summary.total(step.client_step(state, each, RNG) for each in (groups, Data(X[3:])))
    assert (total.weights[0], total.sums[0, -1]) == (50.0, 16.0)
    assert Shapes.from_total(state, total).rows_each == 50 / 16
    assert Shapes.from_total(state, step.client_step(state, Data(X), RNG)).rows_each == 1.0
    bounds = step.line_bounds(state, Box.unbounded(2))
    for lie in (-1.0, 51.0):
        told = Summary(np.hstack([total.sums[:, :-1], np.full((2, 1), lie)]), total.weights)
        assert bounds.beyond(told) is not None
        assert bounds.beyond(total) is None
        assert Shapes.from_total(state, told).rows_each == 1.0
