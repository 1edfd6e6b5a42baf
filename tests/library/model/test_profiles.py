"""Profiles of clusters, against pandas on the pooled rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from partitions import on_line
from scipy.spatial.distance import cdist
from scipy.stats import chi2_contingency
from typed import run

from fedcluster import (
    Client,
    Data,
    FederatedFuzzyCMeans,
    FederatedGaussianMixture,
    FederatedKMeans,
    LocalEngine,
    Model,
    PreprocessingSpec,
)
from fedcluster.core import Column, State
from fedcluster.errors import InputError
from fedcluster.jobs import Evaluate, Profile, execute
from fedcluster.metrics.columns import ClusterColumns
from fedcluster.metrics.silhouettes import ClusterSilhouettes, silhouettes_by_cluster
from fedcluster.model import profiles as profiles_of_clusters
from fedcluster.model.file import checked_names
from fedcluster.model.profiles import (
    NumberProfile,
    Profiles,
    TextProfile,
    cramers_v,
    proposed,
)
from fedcluster.model.run import read_run
from fedcluster.preprocessing import Category, Preprocessor
from fedcluster.privacy import Groups, MinClusterSize
from fedcluster.recipes.profiling import profiles_of, profiling
from fedcluster.rounds import run_plan, with_preprocessing

pytestmark = pytest.mark.usefixtures("short_searches")

RNG = np.random.default_rng(0)
N = 240
KIND = RNG.integers(0, 3, N)
SITE = np.where(KIND == 2, 2, RNG.integers(0, 3, N))  # one cluster at one site only
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(np.array([40.0, 80.0, 60.0])[KIND], 4.0),
        "weight_kg": 1e6 + RNG.normal(np.array([0.0, 30.0, 60.0])[KIND], 3.0),
        "fixed": 7.0,
        "ward": np.array(["Cardio", "Neuro", "Ortho"])[(KIND + (RNG.random(N) < 0.2)) % 3],
    }
)
GAPS = FRAME.mask(RNG.random(FRAME.shape) < 0.1).assign(fixed=7.0)
NUMBERS = FRAME[["age", "weight_kg"]]
FILLED = PreprocessingSpec(missing="mean")
BENT = PreprocessingSpec(log=("age",), bounds={"age": (45, 70)}, pca=2)

FITS: dict[str, tuple[Any, pd.DataFrame]] = {
    "bent": (FederatedKMeans(3, prepare=BENT), FRAME),
    "ignored": (FederatedKMeans(3, prepare=PreprocessingSpec(missing="ignore")), GAPS),
    "numbers": (FederatedKMeans(3, algorithm="lloyd"), NUMBERS),
    "text": (FederatedKMeans(3, prepare="standard"), FRAME),
    "gaps": (FederatedKMeans(3, prepare=FILLED), GAPS),
    "dropped": (FederatedKMeans(3, prepare=PreprocessingSpec(missing="drop")), GAPS),
    "cosine": (FederatedKMeans(3, metric="cosine", prepare="standard"), NUMBERS),
    "fuzzy": (FederatedFuzzyCMeans(3, prepare="standard"), NUMBERS),
    "mixture": (FederatedGaussianMixture(3, prepare="standard"), NUMBERS),
    "trimmed": (FederatedKMeans(3, trim=0.1, prepare="standard"), NUMBERS),
    "chosen": (FederatedKMeans([2, 3], rule="bic", prepare="standard"), NUMBERS),
    "one": (FederatedKMeans(1, prepare="standard"), FRAME),
}


def cohens_d(own: pd.Series, rest: pd.Series) -> float:
    """By its definition, from pandas."""
    n, m = own.count(), rest.count()
    pooled = ((n - 1) * own.var() + (m - 1) * rest.var()) / (n + m - 2)
    apart = own.mean() - rest.mean()
    return float(apart / np.sqrt(pooled)) if pooled > 1e-18 else 0.0


def check_numbers(column: NumberProfile, values: pd.Series, labels: np.ndarray) -> None:
    """Hold a profile against pandas, cluster by cluster, and all clustered rows together."""
    k = len(column.means) - 1
    parts = [values[labels == j] for j in range(k)] + [values[labels >= 0]]
    assert_array_equal(column.weights, [part.count() for part in parts])
    assert_allclose(column.means, [part.mean() for part in parts], rtol=1e-12)
    spreads = [part.std(ddof=0) for part in parts]
    assert_allclose(column.spreads, spreads, rtol=1e-10, atol=1e-12)
    medians = np.array([part.median() for part in parts])
    assert (np.abs(column.medians - medians) <= column.steps).all()
    assert (column.steps <= 0.25 * np.array(spreads) + 1e-8).all()
    if k > 1:
        every = values[labels >= 0]
        apart = [cohens_d(part, every.drop(part.index)) for part in parts[:k]]
        assert_allclose(column.differences, apart, rtol=1e-9, atol=1e-9)


def check_texts(column: TextProfile, values: pd.Series, labels: np.ndarray) -> None:
    """The same of levels; V by the correlation of each pair of a level and a cluster."""
    k = len(column.weights) - 1
    table = pd.crosstab(labels, values).reindex(range(k), fill_value=0)[list(column.levels)]
    counts = np.vstack([table, table.sum()])
    assert_array_equal(column.counts, counts)
    assert_array_equal(column.weights, counts.sum(axis=1))
    assert_allclose(column.shares, counts / counts.sum(axis=1, keepdims=True), rtol=1e-12)
    if k > 1:
        n = counts[-1].sum()
        for j in range(k):
            own, rest = counts[j], counts[-1] - counts[j]
            chi = chi2_contingency(np.array([own, rest]), correction=False).statistic
            assert column.associations[j] == pytest.approx(np.sqrt(chi / n), 1e-9)


@pytest.mark.filterwarnings("ignore:column 'fixed' is 7", "ignore:.* is one site's")
@pytest.mark.parametrize("name", FITS)
def test_every_kind_of_fit_has_the_profiles_of_the_pooled_rows(name: str) -> None:
    estimator, frame = FITS[name]
    model: Any = estimator.set_params(profile=True, random_state=0).fit(frame, sites=SITE)
    profiles, labels = model.profiles_, model.labels_
    sizes = np.bincount(labels[labels >= 0], minlength=model.n_clusters_)
    assert_array_equal(profiles.weights, sizes)
    assert_allclose(profiles.shares, sizes / sizes.sum(), rtol=1e-12)
    assert [column.name for column in profiles.columns] == list(frame.columns)
    for j in range(model.n_clusters_):
        there = set(SITE[labels == j].astype(str))
        assert set(profiles.sites_of(j)) == there
    for column in profiles.columns:
        check = check_numbers if isinstance(column, NumberProfile) else check_texts
        check(column, frame[column.name], labels)
    if name in ("ignored", "one"):
        assert profiles.silhouettes is None
        assert "silhouette" not in profiles.plain()["clusters"][0]
        return
    plain = model.preprocessor_ is None  # whose offset costs `transform` digits
    apart = cdist(frame, model.cluster_centers_) if plain else model.transform(frame)
    s = np.array([simplified_silhouette(*each) for each in zip(apart, labels, strict=True)])
    parts = [s[labels == j] for j in range(model.n_clusters_)]
    told = [[part.mean() for part in parts], [part.std() for part in parts]]
    assert_allclose(profiles.silhouettes, told, rtol=1e-9)
    assert profiles.plain()["clusters"][1]["silhouette"] == profiles.silhouettes[0, 1]


def simplified_silhouette(row: np.ndarray, own: int) -> float:
    """Of a row with these distances to the centres."""
    a, b = row[own], np.delete(row, own).min()
    return (b - a) / max(a, b)


def test_a_row_that_is_nearer_to_another_centre_has_a_silhouette_below_0() -> None:
    """By hand: 1 of 0 at 0; of 3, at 0 although 4 is nearer, (1 - 3) / 3; 1 - 1/3 of 5 at 4."""
    rows = Data(on_line(0, 3, 5), assigned=np.array([0, 0, 1], dtype=np.int32))
    state = State.at([[0.0], [4.0]])
    answer = ClusterSilhouettes().client_step(state, rows, np.random.default_rng(0))
    assert_allclose(answer.sums[:, 0], [1 / 3, 1 - 1 / 5])
    assert_allclose(answer.sums[:, 1], [1 + 4 / 9, (1 - 1 / 5) ** 2])
    assert answer.rows.tolist() == [2.0, 1.0]
    told = silhouettes_by_cluster(answer)
    assert_allclose(told, [[1 / 6, 4 / 5], [5 / 6, 0.0]], atol=1e-12)


def test_profiles_of_weighted_rows_count_a_weight_as_rows() -> None:
    weight = RNG.integers(1, 4, N).astype(float)
    model: Any = FederatedKMeans(3, algorithm="lloyd", random_state=0, profile=True)
    model.fit(NUMBERS, sites=SITE, sample_weight=weight)
    often = np.repeat(np.arange(N), weight.astype(int))
    for column in model.profiles_.columns:
        values = NUMBERS[column.name].iloc[often].reset_index(drop=True)
        check_numbers(column, values, model.labels_[often])


def test_a_profile_takes_two_rounds_and_none_besides_the_scores() -> None:
    model = FederatedKMeans(3, random_state=0).fit(NUMBERS, sites=SITE)
    data = {str(s): Data(NUMBERS[s == SITE].to_numpy()) for s in range(3)}
    engine = LocalEngine(Client(name, rows) for name, rows in data.items())
    kept = Model.from_estimator(model)
    alone: Any = execute(Profile(kept), engine)
    beside = execute(Evaluate(kept, profile=True), engine)
    assert len(alone.outcome.communication_rounds) == 2
    assert len(beside.outcome.communication_rounds) == 2
    scores = execute(Evaluate(kept), engine).outcome.value
    assert beside.outcome.value == pytest.approx(scores, nan_ok=True)
    assert alone.outcome.value is alone.profiles
    assert alone.profiles is not None
    assert beside.profiles is not None
    assert alone.profiles.plain() == beside.profiles.plain()
    fit: Any = FederatedKMeans(3, random_state=0, profile=True).fit(NUMBERS, sites=SITE)
    assert fit.n_iter_ == model.n_iter_ + 2
    assert_allclose(
        [column.means for column in fit.profiles_.columns],
        [column.means for column in alone.profiles.columns],
        rtol=1e-12,
    )


@pytest.mark.filterwarnings("ignore:rows are seen in groups", "ignore:.* is one site's")
def test_groups_of_rows_have_nearly_the_same_profiles() -> None:
    """Means are exact; the scatter within groups is spread over the clusters by their weight."""
    grouped, plain = (
        FederatedKMeans(3, prepare=FILLED, random_state=0, profile=True, protection=protection)
        .fit(FRAME.drop(columns="fixed"), sites=SITE)
        .profiles_
        for protection in (Groups(5), None)
    )
    assert grouped is not None
    assert plain is not None
    for ours, theirs in zip(grouped.columns, plain.columns, strict=True):
        if isinstance(ours, NumberProfile):
            assert isinstance(theirs, NumberProfile)
            assert ours.weights[-1] == theirs.weights[-1] == N
            assert_allclose(ours.means[-1], theirs.means[-1], rtol=1e-9)
            assert_allclose(ours.spreads[-1], theirs.spreads[-1], rtol=0.05)
        else:
            assert_allclose(ours.shares[-1].sum(), 1.0)


def found(plan: Any, engine: LocalEngine) -> Any:
    return run_plan(plan, engine).value


def engine_of(*parts: np.ndarray, limit: int = 1) -> LocalEngine:
    return LocalEngine(
        Client(f"s{i}", Data(part), [MinClusterSize(limit)]) for i, part in enumerate(parts)
    )


def test_a_limit_hides_small_lines_and_the_step_of_a_median_says_so() -> None:
    rows, centers = on_line(*np.linspace(0.0, 1.0, 40), 50, 51), on_line(0.5, 50)
    exact = found(profiling(centers, ["x"]), engine_of(rows))
    fine = found(profiling(centers, ["x"]), engine_of(rows, limit=5)).columns[0]
    hidden = found(profiling(centers, ["x"], smallest=5), engine_of(rows, limit=5))
    assert exact.weights.tolist() == [40.0, 2.0]
    assert hidden.weights.tolist() == [40.0, 0.0]
    [column] = hidden.columns
    assert np.isnan(column.means[1])
    assert fine.steps[0] > exact.columns[0].steps[0]
    for each in (column, fine):
        assert abs(each.medians[0] - 0.5) <= each.steps[0]
    for limit, is_hidden in ((1, False), (2, True)):
        engine = engine_of(on_line(0, 1, 2, 50), limit=limit)
        told = found(profiles_of(State.at(on_line(1, 50)), columns=["x"]), engine).silhouettes
        assert np.isnan(told).tolist() == [[False, is_hidden]] * 2


@pytest.mark.parametrize(("limit", "share"), [(3, 0.0), (1, 2 / 21)])
def test_a_level_of_few_rows_does_not_leave(limit: int, share: float) -> None:
    rows = Data(on_line(*[0] * 19, 1, 1), columns=(Column("ward", "text", ("a", "b")),))
    told = Preprocessor((Category("ward", ("a", "b")),), missing="keep")
    plan = with_preprocessing(profiling(np.zeros((1, 2)), (), told), told)
    engine = LocalEngine([Client("s", rows, [MinClusterSize(limit)])])
    assert found(plan, engine).columns[0].shares[0].tolist() == [19 / 21, share]


def test_a_line_stands_for_the_rows_that_have_a_value() -> None:
    """What a limit counts: not the rows of the cluster, and not their weight."""
    state = State(np.zeros((1, 1)), np.zeros(1), memory={"texts": np.zeros(1)})
    rows = Data(on_line(1, np.nan, 3), sample_weight=np.array([5.0, 1.0, 9.0]))
    answer = ClusterColumns().client_step(state, rows, np.random.default_rng(0))
    assert answer.weights.tolist() == [15.0, 14.0]
    assert answer.rows.tolist() == [3.0, 2.0]


def test_medians_of_two_far_values_are_between_them_and_clusters_without_rows_have_none() -> None:
    profiles = found(profiling(on_line(5, 99), ["x"]), engine_of(on_line(0, 0, 10, 10)))
    [column] = profiles.columns
    assert abs(column.medians[0] - 5.0) <= column.steps[0]
    assert column.means[[0, 2]].tolist() == [5.0, 5.0]
    assert profiles.weights.tolist() == [4.0, 0.0]
    assert profiles.names == ("average", "no rows")
    assert json.loads(json.dumps(profiles.plain()))["clusters"][1]["sites"] == {}


def test_a_median_is_as_fine_as_the_limits_of_all_sites_that_have_rows_permit() -> None:
    rows = np.random.default_rng(0).normal(size=(200, 1))
    engine = engine_of(rows, rows, rows, np.concatenate([rows, rows + 50.0]))
    [column] = found(profiling(on_line(0, 50), ["x"], smallest=20), engine).columns
    cells = np.round(2 * column.spreads / column.steps)
    assert cells.tolist() == [800 // (2 * 20 * 4), 200 // (2 * 20), 1000 // (2 * 20 * 4)]


def numbers(name: str, means: list[float], spread: float = 1.0) -> NumberProfile:
    n, k = np.full(len(means), 50.0), len(means)
    means = [*means, float(np.mean(means))]
    whole = float(np.sqrt(spread**2 + np.var(means[:-1])))
    spreads = np.append(np.full(k, spread), whole)
    return NumberProfile(
        name, np.append(n, n.sum()), np.array(means), spreads, np.array(means), np.ones(k + 1)
    )


def named(*columns: Any) -> tuple[str, ...]:
    k = len(columns[0].weights) - 1
    return proposed(Profiles({"s": np.full(k, 50.0)}, tuple(columns)))


def test_names_say_what_sets_clusters_apart_numbers_first() -> None:
    counts = np.array([[45.0, 5.0], [5.0, 45.0], [50.0, 50.0]])
    ward = TextProfile("ward", ("Cardiology", "yes"), np.array([50.0, 50.0, 100.0]), counts)
    pressure, age = numbers("blood_pressure", [140, 120], 9.0), numbers("Age at visit", [70, 50])
    assert named(ward, age, pressure) == (
        "older, high blood pressure, Cardiology",
        "younger, low blood pressure, ward yes",
    )


def test_names_of_alike_clusters_differ() -> None:
    assert named(numbers("x", [1.0, 1.0, 1.1])) == ("average", "average (2)", "average (3)")
    assert named(numbers("x", [0.0, 9.0, 9.0]), numbers("y", [0.0, 0.0, 0.45])) == (
        "low x",
        "high x, low y",
        "high x, high y",
    )


def test_a_column_of_0_and_1_is_named_by_its_value() -> None:
    half, n = np.array([0.95, 0.05, 0.5]), np.array([100.0, 100.0, 200.0])
    column = NumberProfile("diabetes", n, half, np.sqrt(half - half**2), half, half)
    assert named(column) == ("diabetes=1", "diabetes=0")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("a",), "2 clusters need 2 names, not 1"),
        (("a", " "), "1 to 200 characters"),
        (("a", "b\n c"), "can be printed"),
        (("a", "a "), "both be called 'a'"),
    ],
)
def test_names_that_are_none_are_refused(names: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        checked_names(names, 2)


def test_names_can_be_changed_and_are_kept(tmp_path: Path) -> None:
    model: Any = FederatedKMeans(3, random_state=0, profile=True).fit(NUMBERS, sites=SITE)
    assert model.cluster_names_ == model.profiles_.names
    assert model.profile_["name"].tolist() == [*model.cluster_names_, "all"]
    model.cluster_names_ = ["the old", "b", "c"]
    model.save(tmp_path / "model.json")
    loaded = FederatedKMeans.load(tmp_path / "model.json")
    assert (
        loaded.cluster_names_ == Model.load(tmp_path / "model.json").names == ("the old", "b", "c")
    )
    assert model.profile_.loc[0, "name"] == "the old"
    with pytest.raises(InputError, match="3 clusters need 3 names"):
        model.cluster_names_ = ["a"]
    plain = FederatedKMeans(3, random_state=0).fit(NUMBERS, sites=SITE)
    assert len(set(plain.cluster_names_)) == 3  # by the centres
    assert Model.from_estimator(plain).names == ()  # so that profiles may propose others


def test_cramers_v_of_unequal_tables() -> None:
    """By hand: chi^2 = 20 (10 * 5 - 5 * 0)^2 / (15 * 5 * 10 * 10) = 6.667, V^2 = 1 / 3."""
    assert cramers_v(np.array([[10.0, 5.0], [0.0, 5.0]])) == pytest.approx(np.sqrt(1 / 3))
    assert np.isnan(cramers_v(np.array([[1.0, 2.0], [0.0, 0.0]])))
    assert cramers_v(np.array([[3.0], [4.0]])) == 0.0


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    for site in range(3):
        FRAME[site == SITE].drop(columns="fixed").to_csv(f"s{site}.csv", index=False)
    return [f"s{site}.csv" for site in range(3)]


def test_commands_profile_name_and_keep(files: list[str]) -> None:
    fitted = run("fit", *files, "-k", 3, "--profile", "--out", "fit", "--json")
    told = json.loads(fitted.stdout)["profiles"]
    again = json.loads(run("profile", "fit", *files, "--out", "p", "--json").stdout)["profiles"]
    assert again == told
    assert json.loads(Path("p/profiles.json").read_text("utf-8"))["profiles"] == told
    beside = json.loads(run("evaluate", "fit", *files, "--profile", "--json").stdout)
    assert beside["profiles"] == told
    assert run("name", "fit", "1=the old").stdout.splitlines()[1] == "1: the old"
    said = run("profile", "fit", *files).stdout
    assert "Cluster 1: the old" in said
    assert said.index("\nClusters") < said.index("Cluster 0:") < said.index("Cohen's d")
    for wrong, why in (("9=x", "no cluster 9"), ("old", "names no cluster"), ("1=", "1 to 200")):
        assert why in run("name", "fit", wrong).stderr


def test_a_cluster_that_is_not_named_keeps_the_name_that_its_page_shows(files: list[str]) -> None:
    """It became "1": the page then showed numbers in place of what sets the clusters apart.

    A model without names keeps those that a profile proposes.
    """
    run("fit", *files, "-k", 3, "--out", "fit")
    shown = read_run(Path("fit")).names
    assert Model.load("fit").names == ()
    shutil.copy("fit/model.json", "alone.json")
    shutil.copytree("fit", "profiled")
    run("profile", "profiled", *files, "--keep-names", "--out", "p")
    kept = Model.load("profiled").names
    for names in (shown, kept):
        assert len(set(names)) == 3
        assert not set(names) & {"0", "1", "2"}
    for model, before in (("fit/model.json", shown), ("alone.json", shown), ("profiled", kept)):
        run("name", model, "0=mine")
        assert Model.load(model).names == ("mine", *before[1:])


def test_a_typical_level_is_frequent_by_share_and_not_by_rows() -> None:
    """Of a small cluster a tenth, of all others a hundredth."""
    counts = np.array([[90.0, 10.0], [900.0, 9.0], [990.0, 19.0]])
    town = TextProfile("town", ("Basel", "Uri"), counts.sum(axis=1), counts)
    assert [town.levels[town.typical(j)] for j in range(2)] == ["Uri", "Basel"]


def test_names_of_many_clusters_compare_each_column_once(monkeypatch):
    """A report of 50 clusters and 200 columns took eight seconds to name them."""
    real = profiles_of_clusters.standardised_differences
    counted = Mock(side_effect=real)
    monkeypatch.setattr(profiles_of_clusters, "standardised_differences", counted)
    n, rng = np.full(13, 10.0), np.random.default_rng(0)
    columns = tuple(
        NumberProfile(f"x{i}", n, rng.normal(size=13), np.ones(13), n, n) for i in range(5)
    )
    assert len(set(proposed(Profiles({"north": n[:-1]}, columns)))) == 12
    assert counted.call_count == 5
