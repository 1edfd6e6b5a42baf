"""Indices from sums equal those of the pooled rows; scikit-learn is the judge where it has one."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from partitions import Case, cases
from scipy.spatial.distance import cdist
from sklearn import metrics as sk

from fedcluster.core import Data, Filter, State, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.kernels import memberships, nearest
from fedcluster.metrics import METRICS
from fedcluster.metrics.external import Contingency
from fedcluster.metrics.objectives import FuzzyScatter
from fedcluster.privacy import MinClusterSize
from fedcluster.recipes.scores import evaluation
from fedcluster.rounds import run_plan
from reproduction.baselines import central_fuzzy_cmeans, central_kmeans
from reproduction.indices import knowledge_gap, normalised_gap, pooled_silhouette

Rows = NDArray[np.float64]


def scores(
    parts: Mapping[str, Data],
    centers: Rows,
    filters: Sequence[Filter] = (),
    classes: Sequence[object] | None = None,
) -> dict[str, float]:
    """All indices of the sites together."""
    engine = LocalEngine(Client(name, data, filters) for name, data in parts.items())
    return run_plan(evaluation(State.at(centers), m=2.0, classes=classes), engine).value


def repeated(case: Case) -> tuple[Rows, NDArray[np.int64]]:
    """Rows and their true labels, as often as they weigh."""
    times = np.ones(len(case.X), dtype=int) if case.weight is None else case.weight.astype(int)
    return np.repeat(case.X, times, axis=0), np.repeat(case.y, times)


def blobs(seed: int, n: int = 200, d: int = 3, k: int = 5) -> tuple[Rows, Rows]:
    """Rows on a grid of 2^-20, so that they may be moved by 2^20 without rounding; centres."""
    rng = np.random.default_rng(seed)
    middles = rng.normal(size=(k, d)) * 4
    X = middles[rng.integers(0, k, n)] + rng.normal(size=(n, d))
    centers = middles + rng.normal(size=(k, d)) / 4
    return np.round(X * 2**20) / 2**20, np.round(centers * 2**20) / 2**20


def sites_of(X: Rows, seed: int, n_sites: int = 4) -> dict[str, Data]:
    site = np.random.default_rng(seed).integers(0, n_sites, len(X))
    return {f"s{i}": Data(X[site == i]) for i in np.unique(site)}


def scikit_learn(X: Rows, labels: NDArray[np.int32]) -> dict[str, float]:
    """Its indices; it refuses a single cluster and one for every row."""
    if not 2 <= len(np.unique(labels)) < len(X):
        return {}
    return {
        "calinski-harabasz": sk.calinski_harabasz_score(X, labels),
        "davies-bouldin": sk.davies_bouldin_score(X, labels),
        "squared-silhouette": sk.silhouette_score(X, labels, metric="sqeuclidean"),
    }


@given(case=cases())
def test_scikit_learn_s_indices_over_any_partition(case: Case) -> None:
    """Weights are repetitions, clusters may be empty, and sites may lack some.

    The judge, which expands squares, is given the same rows as whole numbers; no scale matters.
    """
    found, (X, _) = scores(case.parts, case.centers), repeated(case)
    labels, whole = nearest(X, case.centers)[0], np.round((X - X[0]) * 10)
    for name, score in scikit_learn(whole, labels).items():
        assert found[name] == pytest.approx(score, rel=1e-10, abs=1e-12), name


@given(seed=st.integers(0, 10**6), n_sites=st.integers(1, 9), d=st.integers(1, 20))
def test_scikit_learn_s_indices_to_ten_digits(seed: int, n_sites: int, d: int) -> None:
    X, centers = blobs(seed, d=d)
    found = scores(sites_of(X, seed, n_sites), centers)
    for name, score in scikit_learn(X, nearest(X, centers)[0]).items():
        assert found[name] == pytest.approx(score, rel=1e-10), name


@pytest.mark.parametrize("seed", range(5))
def test_an_offset_costs_no_digits(seed: int) -> None:
    """Rows and centres a million away: the very same differences."""
    X, centers = blobs(seed)
    near = scores(sites_of(X, seed), centers)
    far = scores(sites_of(X + 2.0**20, seed), centers + 2.0**20)
    assert far == pytest.approx(near, rel=1e-9)


def test_fuzzy_indices_after_their_definitions() -> None:
    """With weights, an exponent other than 2, and memberships of all rows at once."""
    X, centers = blobs(3)
    m, w = 1.5, np.random.default_rng(3).uniform(0.5, 2, len(X))
    parts = {"a": Data(X[:50], w[:50]), "b": Data(X[50:], w[50:])}
    engine = LocalEngine(Client(name, data, filters=()) for name, data in parts.items())
    found = run_plan(evaluation(State.at(centers), m=m), engine).value
    u, apart = memberships(X, centers, m), cdist(X, centers)
    n, k, between = w.sum(), len(centers), cdist(centers, centers) + np.diag([np.inf] * 5)
    assert found["partition-coefficient"] == pytest.approx((w @ u**2).sum() / n)
    objective = (w @ (u**m * apart**2)).sum()
    assert found["xie-beni"] == pytest.approx(objective / n / (between**2).min())
    for name, mean in (
        ("fuzzy-db", w @ apart / n),
        ("fuzzy-db-squared", np.sqrt(w @ apart**2 / n)),
    ):
        s = mean * (w @ u) / n
        worst = [max((s[i] + s[j]) / between[i, j] for j in range(k)) for i in range(k)]
        assert found[name] == pytest.approx(np.mean(worst)), name
    assert found["wsse"] == pytest.approx(w @ apart.min(axis=1) / n / 3)
    assert found["osse"] == pytest.approx(w @ (apart.sum(axis=1) - apart.min(axis=1)) / n / 3)


@pytest.fixture(scope="module")
def g2(reference: Path) -> Mapping[str, Rows]:
    """Two normal clusters each, of rising overlap."""
    return np.load(reference / "g2_d2_to_d8.npz")


def test_the_published_minimum_of_fuzzy_davies_bouldin(g2: Mapping[str, Rows]) -> None:
    """Stallmann & Wilbik, Applied Sciences 2022: 0.5460 is the smallest over all G2 sets.

    Central fuzzy c-means; with q = 2 the smallest would be 0.7141 instead.
    """
    sets = {name: g2[name].astype(float) for name in g2 if name.endswith(("_10", "_20"))}
    found = {}
    for name, X in sets.items():
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        centers = central_fuzzy_cmeans(Z, 2, n_init=1).centers
        found[name] = scores({"a": Data(Z[::2]), "b": Data(Z[1::2])}, centers)
    best = min(found, key=lambda name: found[name]["fuzzy-db"])
    assert best == "g2_2_10"
    assert found[best]["fuzzy-db"] == pytest.approx(0.5460, abs=5e-5)
    assert found[best]["fuzzy-db-squared"] == pytest.approx(0.7141, abs=5e-5)


@given(case=cases())
def test_external_indices_are_scikit_learn_s_of_the_pooled_rows(case: Case) -> None:
    found, (X, y) = scores(case.parts, case.centers, classes=range(3)), repeated(case)
    labels = nearest(X, case.centers)[0]
    assert found["ari"] == pytest.approx(sk.adjusted_rand_score(y, labels), rel=1e-10, abs=1e-12)
    mutual = sk.normalized_mutual_info_score(y, labels)
    assert found["nmi"] == pytest.approx(mutual, rel=1e-10, abs=1e-12)
    most = sk.cluster.contingency_matrix(y, labels).max(axis=0).sum()
    assert found["purity"] == pytest.approx(most / len(y), rel=1e-12)


def test_the_mean_of_the_sites_own_indices() -> None:
    """FKM's statistic: weighted by rows, and blind to a class that two sites put apart."""
    X = np.array([[0.0], [0.1], [9.0], [9.1], [9.2], [0.2]])
    y = np.array(["a", "a", "b", "b", "a", "c"])
    parts = {"north": Data(X[:2], y=y[:2]), "south": Data(X[2:], y=y[2:])}
    found = scores(parts, np.array([[0.0], [9.0]]), classes="abc")
    labels = nearest(X, np.array([[0.0], [9.0]]))[0]
    south = sk.adjusted_rand_score(y[2:], labels[2:])
    assert found["mean-site-ari"] == pytest.approx((2 * 1.0 + 4 * south) / 6)
    assert found["ari"] == pytest.approx(sk.adjusted_rand_score(y, labels))


@pytest.mark.parametrize(
    ("complete", "limit", "labels", "weights"),
    [(False, 1, "abxbx", [1, 2, 0, 4]), (True, 2, "aabbb", [3, 0, 0, 9])],
)
def test_small_pairs_and_labels_of_no_class_count_for_none(complete, limit, labels, weights):
    rows = Data(
        np.array([[0.0], [1.0], [2.0], [9.0], [8.0]]), np.arange(1.0, 6.0), np.array([*labels])
    )
    step = Contingency.from_classes("ab", complete=complete)
    client = Client("north", rows, [MinClusterSize(limit)])
    answer = client.answer(Task(step, State.at(np.array([[0.0], [9.0]]))))
    assert answer.weights.tolist() == weights


def test_a_limit_holds_back_the_degrees_of_lone_rows() -> None:
    """With m near 1 a line of the fuzzy message is as good as that of a hard cluster."""
    client = Client("north", Data(np.array([[0.0], [1.0], [9.0]])), [MinClusterSize(2)])
    task = Task(FuzzyScatter(1.05), State.at(np.array([[0.0], [9.0]])))
    np.testing.assert_array_equal(client.answer(task).weights, [3, 0])


def test_where_limits_hold_back_every_cluster_no_index_is_good() -> None:
    X, centers = blobs(0, n=12, d=2)
    found = scores({"a": Data(X)}, centers, filters=[MinClusterSize(12)])
    of_all_rows = {"simplified-silhouette", "squared-silhouette"}  # one sum over the whole site
    assert all(np.isnan(score) for name, score in found.items() if name not in of_all_rows)


def test_with_a_limit_the_indices_are_those_of_the_rows_that_were_sent() -> None:
    """The lone row at 5 is in no sum; silhouettes, sums over a whole site, keep it."""
    rows = Data(np.array([[0.0], [1.0], [5.0], [9.0], [10.0]]))
    centers, kept = np.array([[0.0], [5.0], [9.0]]), rows.take(np.array([0, 1, 3, 4]))
    held = scores({"a": rows}, centers, filters=[MinClusterSize(2)])
    full = scores({"a": kept}, centers)
    for name in ("inertia", "within", "between", "bic", "davies-bouldin", "calinski-harabasz"):
        assert held[name] == pytest.approx(full[name]), name


def test_of_a_single_cluster_bic_says_something_and_separations_nothing() -> None:
    X = np.random.default_rng(0).normal(size=(100, 2))
    found = scores({"a": Data(X)}, np.zeros((1, 2)))
    s2 = X.var(axis=0, ddof=1).mean()
    likelihood = -100 * np.log(2 * np.pi * s2) - 2 * 99 / 2
    assert found["bic"] == pytest.approx(3 * np.log(100) - 2 * likelihood)
    silent = {name for name, score in found.items() if np.isnan(score)}
    assert silent == {
        "calinski-harabasz", "davies-bouldin", "davies-bouldin-at-centers", "squared-silhouette",
        "simplified-silhouette", "simplified-silhouette-of-means", "xie-beni", "fuzzy-db",
        "fuzzy-db-squared",
    }  # fmt: skip


def test_all_indices_take_two_rounds() -> None:
    X, centers = blobs(0)
    engine = LocalEngine(Client(n, data, filters=()) for n, data in sites_of(X, 0).items())
    outcome = run_plan(evaluation(State.at(centers), m=2.0), engine)
    k, d = centers.shape
    assert len(outcome.communication_rounds) == 2
    first, second = k * (d + 3) + 2 + 7 * k + (d + 1), 2 * k + 2 + 2 + 2
    assert set(outcome.values_sent().values()) == {first + second}


def test_every_index_is_among_the_scores_and_says_which_way_is_better() -> None:
    """Moved to their rows, the centres are better by each index that has a better."""
    X, centers = blobs(1, n=400, d=2)
    good = central_kmeans(X, 5).centers
    parts = {"a": Data(X, y=nearest(X, good)[0])}
    better, worse = (scores(parts, c, classes=range(5)) for c in (good, centers[:, ::-1]))
    assert list(better) == list(METRICS)
    for name, index in METRICS.items():
        if index.maximise is not None:
            assert (better[name] > worse[name]) == index.maximise, name


def test_the_silhouette_of_pooled_rows_is_scikit_learn_s() -> None:
    X, centers = blobs(2, n=1500)
    labels = nearest(X, centers)[0]
    assert pooled_silhouette(X, labels) == pytest.approx(sk.silhouette_score(X, labels), rel=1e-10)
    assert np.isnan(pooled_silhouette(X, np.zeros(len(X), dtype=int)))


def test_the_simplified_silhouette_of_femnist(reference: Path) -> None:
    """FKM papers, figures 5b and 6b: pooled k-means, from .2244 to .2436 in 200 runs."""
    pixels = np.load(reference / "femnist_10clients.npz")
    X = pixels["pixels_u8"] / 255
    parts = {f"client-{i}": Data(X[pixels["client"] == i]) for i in range(10)}
    found = scores(parts, central_kmeans(X, 60).centers)
    assert 0.2244 < found["simplified-silhouette"] < 0.2436


def test_after_re_meaning_rows_go_to_the_nearest_mean() -> None:
    """As FKM's authors score it; the row at 4 changes its cluster."""
    X = np.array([[0.0], [4.0], [5.0], [13.0]])
    found = scores({"a": Data(X[:2]), "b": Data(X[2:])}, np.array([[1.0], [8.0]]))
    near, far = np.sort(cdist(X, [[2.0], [9.0]]), axis=1).T
    assert found["simplified-silhouette-of-means"] == pytest.approx(((far - near) / far).mean())


def test_a_missed_centre_shows_only_where_centres_are_matched_one_to_one() -> None:
    known = np.array([[0.0, 0.0], [6.0, 8.0], [0.0, 8.0]])
    found = np.array([[0.0, 1.0], [0.0, 7.0], [0.0, 8.0]])
    assert knowledge_gap(found, known) == pytest.approx(2.0)
    assert knowledge_gap(found, known, "one-to-one") == pytest.approx(1.0 + np.hypot(6, 1))
    assert normalised_gap(found, known) == pytest.approx(np.sqrt(2))


def test_the_standardised_gap_is_scipys_and_ignores_equal_columns() -> None:
    known = np.array([[0.0, 0.0, 3.0], [6.0, 80.0, 3.0]])
    found = np.array([[0.0, 10.0, 3.0], [1.0, 70.0, 3.0], [5.0, 81.0, 3.0]])
    expected = cdist(found[:, :2], known[:, :2], "seuclidean").min(axis=1).sum()
    assert knowledge_gap(found, known, distance="seuclidean") == pytest.approx(expected)
