"""Scores in words: thresholds of their sources, and the silhouette of rows without clusters."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import scale

from fedcluster import Client, Data, LocalEngine, State
from fedcluster.kernels import kmeans, nearest
from fedcluster.recipes import evaluation
from fedcluster.recipes.scores import BY_CHANCE
from fedcluster.rounds import run_plan
from fedcluster_app.report.messages import meaning


def scores_of(X: np.ndarray, k: int, n_references: int = 20, n_sites: int = 2) -> dict[str, float]:
    """Scores of the k-means of rows at some sites."""
    centers = kmeans(X, k, rng=np.random.default_rng(0), n_init=8).centers
    engine = LocalEngine(
        [Client(f"s{i}", Data(part), ()) for i, part in enumerate(np.array_split(X, n_sites))]
    )
    return dict(run_plan(evaluation(State.at(centers), n_references=n_references), engine).value)


def clouds(k: int, d: int, apart: float, n: int = 400) -> np.ndarray:
    rng = np.random.default_rng(k + d)
    centers = np.eye(k, d) * apart
    return np.asarray(centers[rng.integers(0, k, n)] + rng.normal(size=(n, d)))


def first_words(scores: dict[str, float]) -> str:
    return meaning(scores)[0].split(":")[0]


RNG = np.random.default_rng(1)
ALIKE = np.full((10, 10), 0.9) + 0.1 * np.eye(10)
NOTHING = {
    "normal": RNG.normal(size=(400, 2)),
    "normal, ten columns": RNG.normal(size=(400, 10)),
    "uniform": RNG.random((400, 2)),
    "heavy tails": RNG.standard_t(3, (400, 3)),
    "columns that go together": RNG.multivariate_normal(np.zeros(10), ALIKE, 400),
    "one column far wider": RNG.normal(size=(400, 2)) * [1.0, 1000.0],
}


@pytest.mark.parametrize("kind", NOTHING)
@pytest.mark.parametrize("k", [2, 4])
def test_a_single_cloud_that_is_cut_has_nothing_beyond_chance(kind: str, k: int) -> None:
    words = first_words(scores_of(NOTHING[kind], k))
    assert words.endswith(("No structure beyond chance", "hardly more than chance")), words


@pytest.mark.parametrize(
    ("X", "k"),
    [
        (clouds(3, 3, 6.0), 3),
        (clouds(4, 10, 5.0), 4),
        (clouds(2, 30, 6.0), 2),
        (scale(load_iris().data), 2),
        (scale(load_breast_cancer().data), 2),
    ],
)
def test_clusters_are_more_than_chance(X: np.ndarray, k: int) -> None:
    scores = scores_of(X, k)
    assert scores["squared-silhouette"] > scores[BY_CHANCE] > 0
    assert "chance" not in first_words(scores)
    assert (
        "By chance, rows of a single cloud, cut into as many clusters, reach up to 0."
        in (meaning(scores)[0])
    )


@pytest.mark.parametrize("X", [clouds(4, 2, 9.0), clouds(4, 10, 6.0), *NOTHING.values()])
def test_the_silhouette_of_plain_distances_is_about_that_and_rather_more(X: np.ndarray) -> None:
    """1 - a / b against 1 - (a / b)^2, for means over rows of which only these are known."""
    squared = scores_of(X, 4, 0)["squared-silhouette"]
    labels, _ = nearest(X, kmeans(X, 4, rng=np.random.default_rng(0), n_init=8).centers)
    told = 1 - np.sqrt(1 - squared)
    assert -0.01 < silhouette_score(X, labels) - told < 0.1


def test_chance_does_not_depend_on_the_sites_the_scale_or_the_place() -> None:
    X = clouds(3, 3, 6.0)
    ours = scores_of(X, 3)[BY_CHANCE]
    assert scores_of(X, 3, n_sites=7)[BY_CHANCE] == pytest.approx(ours, abs=1e-6)
    assert scores_of(X * 1024.0, 3)[BY_CHANCE] == pytest.approx(ours, abs=1e-6)
    assert scores_of(X + 1e5, 3)[BY_CHANCE] == pytest.approx(ours, abs=1e-3)


def test_what_cannot_be_compared_with_chance_says_nothing_of_it() -> None:
    assert np.isnan(scores_of(clouds(3, 3, 6.0), 1)[BY_CHANCE])
    assert np.isnan(scores_of(np.zeros((9, 2)), 2)[BY_CHANCE])
    assert np.isnan(scores_of(np.random.default_rng(0).normal(size=(20, 513)), 2)[BY_CHANCE])
    assert BY_CHANCE not in scores_of(clouds(3, 3, 6.0), 3, 0)
    assert meaning({"squared-silhouette": np.nan, BY_CHANCE: np.nan}) == []


@pytest.mark.parametrize(
    ("silhouette", "words"),
    [
        (1 - 0.29**2, "Clearly separated"),
        (1 - 0.30**2, "Reasonably separated"),
        (1 - 0.49**2, "Reasonably separated"),
        (1 - 0.50**2, "Weakly separated"),
        (1 - 0.74**2, "Weakly separated"),
        (1 - 0.75**2, "Overlapping"),
        (-0.2, "Overlapping"),
    ],
)
def test_the_thresholds_are_those_of_the_table(silhouette: float, words: str) -> None:
    """0.71, 0.51 and 0.26 of plain distances, and the next hundredth below."""
    assert first_words({"squared-silhouette": silhouette}) == words
    assert first_words({"squared-silhouette": silhouette, BY_CHANCE: silhouette}) == (
        "No structure beyond chance"
    )
    hardly = 1 - (1 - silhouette) / 0.95  # what is left is 0.95 of what chance leaves
    said = first_words({"squared-silhouette": silhouette, BY_CHANCE: hardly})
    assert said == f"{words}, hardly more than chance"


@pytest.mark.parametrize(
    ("ari", "name"), [(0.9, "excellent"), (0.89, "good"), (0.65, "moderate"), (-0.1, "poor")]
)
def test_the_agreement_with_labels_has_the_names_of_its_source(ari: float, name: str) -> None:
    assert f"is {name}: an adjusted Rand index of {ari:.2g}" in meaning({"ari": ari})[0]


def test_inertia_is_explained_once_and_what_has_no_threshold_is_named() -> None:
    said = meaning(scores_of(clouds(3, 3, 6.0), 3))
    assert sum("inertia is the sum of squared distances" in line for line in said) == 1
    assert "no thresholds in their sources" in said[-1]
