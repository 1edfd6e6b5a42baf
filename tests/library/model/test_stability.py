"""Stability of clusters: bootstrap samples at the sites, replicates in the same rounds."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from partitions import InChunks
from sklearn.datasets import load_wine, make_moons
from sklearn.preprocessing import scale
from test_artefacts import validated
from test_federation_jobs import over, trial  # noqa: F401
from typed import run

from fedcluster import (
    Client,
    Data,
    FederatedFuzzyCMeans,
    FederatedGaussianMixture,
    FederatedKMeans,
    LocalEngine,
    PreprocessingSpec,
    State,
    Task,
)
from fedcluster.algorithms import Lloyd, MergedMixture
from fedcluster.core import Filter, Grouped, Result
from fedcluster.engines import wire
from fedcluster.engines.client import resampled
from fedcluster.errors import InputError, PolicyError
from fedcluster.jobs import JobReport, execute, fit_of
from fedcluster.metrics.external import Agreement, Separation, lowest_between
from fedcluster.model.stability import Stability, jaccards
from fedcluster.preprocessing import Preprocessor
from fedcluster.privacy import MinClusterSize
from fedcluster.recipes.bootstrap import MOST_ROUNDS, compared, replicated
from fedcluster_app.wire.policy import Policy

RNG = np.random.default_rng(0)
CENTERS = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
ROWS = np.concatenate([RNG.normal(center, 1.0, (60, 2)) for center in CENTERS])
SITE = RNG.integers(0, 3, len(ROWS))


def times(data: Data, seed: int = 1, key: bytes = b"") -> np.ndarray:
    """The weights of the rows that are drawn, by the first column."""
    rows = resampled(data, seed, "north", key)
    assert rows.sample_weight is not None
    return np.column_stack([rows.X[:, 0], rows.sample_weight])


def test_a_draw_is_the_same_in_any_order_of_rows_and_another_for_each_seed_and_key() -> None:
    rows = Data(np.arange(50.0)[:, None])
    order = RNG.permutation(50)
    mixed = times(rows.take(order))
    np.testing.assert_array_equal(mixed[np.argsort(mixed[:, 0])], times(rows))
    assert not np.array_equal(times(rows), times(rows, seed=2))
    assert not np.array_equal(times(rows), times(rows, key=b"secret"))
    assert not np.array_equal(times(rows), times(Data(rows.X[::-1] + 1.0)))


def test_rows_are_drawn_as_often_as_poisson_numbers_say() -> None:
    often = times(Data(np.arange(4000.0)[:, None]))[:, 1]
    counts = np.bincount(often.astype(int), minlength=4)[1:4] / 4000
    np.testing.assert_allclose(counts, np.exp(-1.0) / np.array([1.0, 2.0, 6.0]), atol=0.02)
    assert often.sum() == pytest.approx(4000, rel=0.05)


def test_a_draw_multiplies_weights_and_takes_whole_persons() -> None:
    rows = Data(np.arange(60.0)[:, None], np.full(60, 0.5), groups=np.repeat(np.arange(20), 3))
    drawn = pd.DataFrame(times(rows), columns=["row", "weight"])
    assert (drawn["weight"] % 0.5 == 0).all()
    persons = drawn.groupby(drawn["row"] // 3)["weight"]
    assert (persons.size() == 3).all()
    assert (persons.nunique() == 1).all()


def test_a_row_that_stands_for_a_group_is_drawn_by_its_rows() -> None:
    counts = np.full(500, 20.0)
    rows = Data(np.arange(500.0)[:, None], counts, grouped=Grouped(counts))
    weights = times(rows)[:, 1]
    assert len(weights) == 500
    assert weights.std() == pytest.approx(np.sqrt(20.0), rel=0.15)
    assert (weights == np.round(weights)).all()


def test_a_site_of_which_no_row_is_drawn_sends_nothing() -> None:
    client = Client("north", Data(np.array([[0.0], [1.0]])), ())
    state = State.at([[0.0]])
    answers = [client.answer(Task(Lloyd(), state, resampled=seed)) for seed in range(30)]
    weights = np.array([answer.weights[0] for answer in answers])
    assert 0 < np.count_nonzero(weights == 0) < 15
    assert weights.mean() == pytest.approx(2.0, abs=0.7)


def test_a_draw_travels_and_must_be_a_whole_number() -> None:
    headers, arrays = wire.write_tasks([Task(Lloyd(), State.at([[0.0]]), resampled=7)])
    header, received = wire.unpack(wire.pack({"tasks": headers}, arrays))
    [task] = wire.read_tasks(header["tasks"], received)
    assert task.resampled == 7
    with pytest.raises(wire.WireError, match="task 0 is not whole"):
        wire.read_tasks([{**headers[0], "resampled": "7"}], arrays)
    with pytest.raises(PolicyError, match="resampled must be"):
        Policy().check(
            {"run": "a", "exchange": 0}, [Task(Lloyd(), State.at([[0.0]]), resampled=-1)], width=1
        )


@cache
def moons() -> JobReport:
    rows = 4 * make_moons(300, noise=0.06, random_state=1)[0]
    return execute(fit_of("auto", stability=4, seed=0), sites_of(rows, 3), columns=["x", "y"])


def sites_of(rows: np.ndarray, n: int, *filters: Filter) -> LocalEngine:
    return LocalEngine(Client(f"s{i}", Data(rows[i::n]), filters) for i in range(n))


@pytest.fixture
def two_moons(short_search: None) -> JobReport:
    return moons()


def test_a_choice_of_any_shape_is_judged_again_in_each_sample(two_moons: JobReport) -> None:
    found, chosen = two_moons.stability, two_moons.outcome.value
    assert isinstance(two_moons.clustering.algorithm, MergedMixture)
    assert found is not None
    assert found.words == ("stable", "stable")
    assert (len(chosen.replicates), found.left_out) == (4, 0)
    assert all(isinstance(each.algorithm, MergedMixture) for each in chosen.replicates)
    plain = execute(fit_of("auto", seed=0), sites_of(ROWS, 1))
    assert len(two_moons.outcome.communication_rounds) <= 11
    assert plain.outcome.value.replicates == ()


def test_agreement_with_clusters_of_any_shape_is_that_of_their_labels(two_moons: JobReport) -> None:
    rows = 4 * make_moons(300, noise=0.06, random_state=2)[0]
    state, own = two_moons.clustering.state, two_moons.clustering.algorithm
    assert isinstance(own, MergedMixture)
    step = Agreement(3, True, own.covariance_type, own.log_noise, own.levels)
    labels = RNG.integers(0, 3, len(rows)).astype(np.int32)
    answer = step.client_step(state, Data(rows, assigned=labels), RNG)
    other = own.assign(state, rows).argmax(axis=1)
    np.testing.assert_array_equal(answer.weights.reshape(3, 2), pd.crosstab(labels, other))


@pytest.mark.usefixtures("short_search")
def test_the_density_between_two_components_is_that_on_their_ridge_line() -> None:
    """With one covariance, the ridge line is the line between the means."""
    rng = np.random.default_rng(4)
    rows = np.concatenate([rng.normal(0, 1, (300, 2)), rng.normal([3.4, 0], 1, (300, 2))])
    sites = np.arange(600) % 3
    model: Any = FederatedGaussianMixture(
        "auto", covariance_type="tied", merge=True, stability=2, random_state=0
    ).fit(rows, sites=sites)
    assert (model.n_clusters_, model.n_components_) == (2, 2)
    one, other = model.means_
    shift, scale = (model.state_.memory[name] for name in ("shift", "scale"))
    along = one + np.linspace(0, 1, 1001)[:, None] * (other - one)
    heights = np.exp(model.score_samples(along * scale + shift))
    expected = heights.min() / min(heights[0], heights[-1])
    np.testing.assert_allclose(model.stability_.between, expected, rtol=0.01)
    assert model.stability_.neighbours.tolist() == [1, 0]


@pytest.mark.thorough
def test_repeated_rows_of_a_sample_are_no_clusters() -> None:
    """With their full weight, samples of wine have up to five clusters."""
    rows = scale(load_wine().data)
    report = execute(fit_of("auto", stability=5, seed=0), sites_of(rows, 3))
    assert {len(each.state.centers) for each in report.outcome.value.replicates} == {3}


def test_leaves_are_large_enough_for_the_limits_of_each_site() -> None:
    """Leaves of five rows in all were held back at every site: one cluster of three was found."""
    rng = np.random.default_rng(0)
    rows = np.array([[0.0] * 4, [9.0] * 4, [0.0, 9.0] * 2])[np.arange(900) % 3]
    rows = rows + rng.normal(size=rows.shape)
    engine = sites_of(rows, 4, MinClusterSize(15))
    report = execute(fit_of("auto", stability=5, seed=0), engine)
    assert report.outcome.value.n_clusters == 3
    assert report.stability is not None
    assert (report.stability.jaccards > 0.98).all()
    [said] = report.outcome.value.warnings
    assert said.startswith("limits of the sites may hide clusters of fewer than about 450 rows")


def test_limits_that_hold_back_rows_may_hide_a_small_cluster() -> None:
    """One row in a hundred, at four sites with about five of them each."""
    rng = np.random.default_rng(0)
    middles = np.array([[0.0] * 3, [9.0] * 3, [0.0, 9.0, 0.0], [30.0] * 3])
    rows = np.repeat(middles, [660, 660, 660, 20], axis=0) + rng.normal(size=(2000, 3))
    rows = rng.permutation(rows)
    engine = sites_of(rows, 4, MinClusterSize(5))
    found = execute(fit_of("auto", seed=0), engine).outcome.value
    assert found.n_clusters == 3
    assert [line for line in found.warnings if line.startswith("limits of the sites may hide")]


@pytest.mark.usefixtures("short_search")
def test_gaps_are_compared_as_gaps() -> None:
    rng = np.random.default_rng(8)
    rows = np.repeat(CENTERS[:2], 150, axis=0) + rng.normal(size=(300, 2))
    moved = pd.DataFrame(np.where(rng.random((300, 2)) < 0.15, np.nan, rows), columns=["x", "y"])
    how = PreprocessingSpec(missing="ignore")
    model: Any = FederatedGaussianMixture(
        "auto", merge=True, prepare=how, stability=3, random_state=0
    )
    found = model.fit(moved, sites=np.arange(300) % 3)
    assert found.stability_.words == ("stable",) * 2
    assert (found.stability_.means > 0.95).all()


def test_the_jaccard_coefficient_of_a_cluster_is_that_of_its_best_match() -> None:
    """By hand: 6 of 6 + 2 + 1 = 9 rows, 3 of 2 + 3 + 2 = 7, and no rows."""
    table = np.array([[6.0, 2.0, 0.0], [1.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
    np.testing.assert_allclose(jaccards(table), [6 / 9, 3 / 4, np.nan])


def test_rows_are_counted_along_the_line_to_the_neighbour() -> None:
    """By hand, with the neighbour 10 away: -.1, .1, .5 (a tie), 1.1; and from the other end."""
    rows = Data(np.array([[-1.0, 5.0], [1.0, -5.0], [5.0, 0.0], [11.0, 3.0]]))
    memory = {"neighbours": np.array([1.0, 0.0])}
    state = State(np.array([[0.0, 0.0], [10.0, 0.0]]), np.zeros(2), memory=memory)
    answer = Separation().client_step(state, rows, RNG)
    assert answer.sums.shape == (18, 0)
    cells = answer.weights.reshape(2, 9)
    np.testing.assert_array_equal(cells, [[0, 2, 0, 0, 1, 0, 0, 1, 0], [0, 1, 0, 0, 1, 0, 0, 2, 0]])
    alone = State(state.centers[:1], np.zeros(1), memory={"neighbours": np.zeros(1)})
    assert not Separation().client_step(alone, rows, RNG).weights.any()


def test_a_gap_is_judged_by_the_lower_peak_and_by_rows_that_limits_hide() -> None:
    """By hand: cells are .3, .2 and .1 wide; the lower peak is 30 / .3, 3 + 1 rows between."""
    cells = np.array([[9.0, 30, 10, 4, 3, 5, 10, 60, 7], [5, 0, 0, 1, 1, 1, 10, 60, 0]])
    np.testing.assert_allclose(lowest_between(cells, cells.sum(axis=1)), [40 / 100, np.nan])
    hidden = np.array([[0.0, 30, 10, 0, 0, 5, 10, 60, 0]])  # 12 rows are lacking, in four cells
    np.testing.assert_allclose(lowest_between(hidden, hidden.sum(axis=1) + 12), [40 / 100])


def test_words_follow_from_the_mean_over_replicates() -> None:
    found = Stability(
        np.array([[1.0, 0.9, 0.9, np.nan], [0.9, 0.8, 0.5, np.nan]]),
        np.array([1, 0, 0, 0]),
        np.array([0.5, 0.51, 0.1, np.nan]),
    )
    assert found.words == ("stable", "doubtful", "unstable", "unknown")
    unstable, doubtful, unknown, no_proof = found.sentences()
    assert unstable.startswith("Cluster 2 is unstable: ")
    assert doubtful.startswith("Cluster 1 is doubtful: ")
    assert unknown.startswith("Cluster 3 is not compared: ")
    assert no_proof.startswith("A doubtful cluster may be a part of a larger one")
    steady = Stability(np.ones((3, 2)), np.array([1, 0]), np.zeros(2))
    assert steady.sentences()[0].startswith("All clusters are found again")
    alone = Stability(np.ones((3, 1)), np.zeros(1, int), np.array([np.nan]))
    assert alone.sentences() == ["A single cluster has nothing to be compared with."]


def test_replicates_that_are_left_out_are_said() -> None:
    found = Stability(np.array([[1.0, 0.79], [0.8, 0.5]]), np.array([1, 0]), np.ones(2), 1)
    told = found.plain()
    assert (told["replicates"], told["left_out"]) == (2, 1)
    assert [each["found_again"] for each in told["clusters"]] == [2, 0]
    assert [(each["lowest"], each["highest"]) for each in told["clusters"]] == [
        (0.8, 1.0), (0.5, 0.79)
    ]  # fmt: skip
    assert "1 of 3 replicates is left out: " in told["meaning"][2]
    none = Stability(np.zeros((0, 2)), np.array([1, 0]), np.ones(2), 20)
    assert none.sentences()[0].startswith("Clusters 0, 1 are not compared: ")
    assert none.sentences()[1].startswith("20 of 20 replicates are left out: ")
    assert np.isnan(none.plain()["clusters"][0]["lowest"])


@pytest.mark.filterwarnings("ignore:rows are seen in groups")
@pytest.mark.parametrize(
    ("estimator", "often"),
    [
        (FederatedKMeans(3, protection="groups"), 2),
        (FederatedKMeans(3, algorithm="lloyd", init=CENTERS), 1),
        (FederatedKMeans(3), 1),
        (FederatedKMeans(3, prepare="standard", sums_only=True), 1),
        (FederatedKMeans([2, 3], rule="bic"), 1),
        (FederatedKMeans(3, trim=0.1), 1),
        (FederatedKMeans(3, min_cluster_size=5), 1),
        (FederatedFuzzyCMeans(3), 1),
    ],
    ids=["groups", "start", "default", "sums", "chosen", "trimmed", "limits", "fuzzy"],
)
def test_clear_clusters_are_stable_and_nothing_else_changes(estimator: Any, often: int) -> None:
    rows = np.concatenate([ROWS + 0.01 * i for i in range(often)])
    sites = np.tile(SITE, often)
    alone: Any = estimator.set_params(random_state=0).fit(rows, sites=sites)
    labels, rounds = alone.labels_, alone.n_iter_
    beside: Any = estimator.set_params(stability=6).fit(rows, sites=sites)
    np.testing.assert_array_equal(beside.labels_, labels)
    assert rounds < beside.n_iter_ <= MOST_ROUNDS * rounds
    found = beside.stability_
    assert 1 <= len(found.jaccards) <= 6
    assert len(found.jaccards) + found.left_out == 6
    assert found.words == ("stable",) * 3
    assert (found.between < 0.3).all()


def test_outliers_that_are_trimmed_make_no_cluster_unstable() -> None:
    """A replicate starts at no outlier, and finishes in time."""
    for seed in (0, 1):
        rng = np.random.default_rng(seed)
        far = rng.uniform(-60, 60, (18, 2))
        model: Any = FederatedKMeans(3, random_state=0, trim=0.1, stability=6)
        found = model.fit(np.concatenate([ROWS, far]), sites=np.append(SITE, np.arange(18) % 3))
        assert found.stability_.words == ("stable",) * 3
        assert found.stability_.left_out == 0


def test_halves_of_one_cloud_are_not_stable() -> None:
    rows = np.random.default_rng(3).normal(size=(300, 3))
    model: Any = FederatedKMeans(4, random_state=0, stability=True)
    found = model.fit(rows, sites=np.arange(300) % 3).stability_
    assert len(found.jaccards) == 20
    assert not {"stable"} & set(found.words)
    again = model.fit(rows[::-1], sites=(np.arange(300) % 3)[::-1]).stability_
    np.testing.assert_allclose(found.jaccards, again.jaccards)


def test_a_gap_beside_a_larger_cluster_counts_the_rows_of_both() -> None:
    """Rows that neither has are none that limits hide."""
    rows = np.concatenate([RNG.normal(0, 1, (300, 2)), RNG.normal(20, 1, (40, 2))])
    model: Any = FederatedKMeans(2, random_state=0, stability=3)
    found = model.fit(rows, sites=np.arange(340) % 3).stability_
    assert (np.asarray(found.between) < 0.15).all()
    assert found.words == ("stable", "stable")


def test_clusters_are_compared_at_all_sites_though_rounds_ask_a_sample() -> None:
    fit = Result(State.at(CENTERS), (), "", Lloyd())
    tasks = next(compared(fit.state, [fit, fit], Preprocessor(())))
    assert [type(task.step) for task in tasks] == [Separation, Agreement, Agreement]
    assert all(task.everyone for task in tasks)


def test_a_replicate_does_not_start_at_the_centres_that_were_given() -> None:
    assert replicated(fit_of(3, init=ROWS[:3]), 3).init == "auto"
    assert replicated(fit_of(3, init="random"), 3).init == "random"


def test_what_cannot_be_replicated_is_refused() -> None:
    """Too many or too few replicates, and rows in chunks."""
    for n in (201, -1):
        said = f"stability must be 1 to 200 replicates, not {n}"
        with pytest.raises(InputError, match=said):
            execute(fit_of(2, stability=n), LocalEngine([Client("north", Data(ROWS))]))
    chunks = LocalEngine([Client("north", InChunks(Data(ROWS), 90))])
    with pytest.raises(InputError, match="those of north come in chunks"):
        execute(fit_of(2, stability=True), chunks)


def test_the_command_shows_what_stability_means(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for site in range(2):
        pd.DataFrame(ROWS[site::2], columns=["x", "y"]).to_csv(f"s{site}.csv", index=False)
    said = run("fit", "s0.csv", "s1.csv", "-k", 3, "--stability", "--out", "fit").stdout
    lines = said[said.index("Stability in 20 replicates") :].splitlines()
    assert lines[3].split() == ["0", "stable", "1.00", *lines[3].split()[3:]]
    assert "Stability does not show" in said
    told = json.loads(Path("fit/history.json").read_text("utf-8"))["stability"]
    assert told["replicates"] == 20
    assert [each["word"] for each in told["clusters"]] == ["stable"] * 3
    validated(Path("fit/history.json"))


def test_a_network_draws_rows_anew_too(trial, over, tmp_path) -> None:  # noqa: F811
    out = tmp_path / "there"
    status, said = over("fit", "-k", 3, "--stability", "--profile", "--out", out)
    assert (status, "Stability in 20 replicates" in said) == (0, True), said
    history = validated(out / "history.json")
    clusters = history["profiles"]["clusters"]
    assert all(0 < each["silhouette"] < 1 for each in clusters)
    report = (out / "report.html").read_text("utf-8")
    for section in ("stability", "silhouettes"):
        assert f'<section id="{section}">' in report
    assert "Hidden rows are those that the sums of the profiles do not include" in report
    found = history["stability"]["clusters"]
    assert all(each["found_again"] >= 19 for each in found)  # 40 rows do not show all gaps
    assert {each["word"] for each in found} <= {"stable", "doubtful"}
