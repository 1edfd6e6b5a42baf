"""How many clusters: the sweep's rounds, the indices, the verdict and its reason."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from benchmarks.shapes import HARD
from benchmarks.shapes import KINDS as SHAPES
from fedcluster import Client, Data, FederatedFuzzyCMeans, FederatedKMeans, LocalEngine, select_k
from fedcluster.algorithms import Lloyd
from fedcluster.core import Result, State
from fedcluster.jobs import execute, fit_of
from fedcluster.kernels import nearest
from fedcluster.metrics.indices import CHOOSING, JUDGES
from fedcluster.options.choices import RULES, RuleName
from fedcluster.recipes import clustering, evaluation
from fedcluster.rounds import EarlyStop, run_plan
from fedcluster.selection import INDICES, Rule, _mixtures
from fedcluster.selection.sweep import box, gaps, sweep
from fedcluster.selection.verdict import judged
from reproduction.datasets import ffcm_case

RNG = np.random.default_rng(0)
FOUR = np.array([[0.0, 0.0], [0.0, 4.0], [20.0, 20.0], [20.0, 24.0]])
NESTED = np.repeat(FOUR, 60, axis=0) + RNG.normal(0, 0.7, (240, 2))
CLEAR = np.repeat([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]], 40, axis=0) + RNG.normal(size=(120, 2))
SQUARE = ffcm_case("3d", seed=7)
ONE = RNG.normal(size=(300, 3))


def engine(X: np.ndarray, site: np.ndarray) -> LocalEngine:
    return LocalEngine(Client(str(s), Data(X[site == s])) for s in np.unique(site))


def sites(X: np.ndarray, n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, n, len(X))


# The sweep


@pytest.mark.parametrize(
    ("X", "most"),
    [(NESTED, 12), (CLEAR, 12), (ONE, 12), (SQUARE.X, 8), (CLEAR, 2), (CLEAR[:20], 12)],
    ids=["nested", "clear", "one", "square", "two", "few rows"],
)
@pytest.mark.parametrize("sums_only", [False, True])
def test_a_sweep_takes_half_as_many_rounds_more_at_most(X, most, sums_only):
    choice = fit_of(most, seed=1, sums_only=sums_only)
    alone, swept = (
        run_plan(plan, engine(X, sites(X, 5, 1))).communication_rounds
        for plan in (clustering(choice), sweep(range(1, most + 1), choice))
    )
    assert len(swept) <= max(12, 1.5 * len(alone))


@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_sweep_finds_what_a_fit_finds(k: int) -> None:
    """Each k starts from other means than a fit of its own; the best clustering is the same."""
    site = sites(NESTED, 3)
    swept = run_plan(sweep(range(1, 7), fit_of(1)), engine(NESTED, site)).value.results[k]
    alone = run_plan(clustering(fit_of(k)), engine(NESTED, site)).value
    assert swept.state.inertia == pytest.approx(alone.state.inertia, rel=1e-9)
    np.testing.assert_allclose(swept.state.centers, alone.state.centers, atol=1e-9)


def test_a_sweep_measures_the_rows_as_a_whole() -> None:
    X = NESTED * [1.0, 30.0] + 1e7
    found = run_plan(sweep([2], fit_of(2)), engine(X, sites(X, 4))).value
    np.testing.assert_allclose(found.mean, X.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(found.variance, X.var(axis=0), rtol=1e-9)
    assert found.weight == 240


@pytest.mark.parametrize(
    "params",
    [
        {"algorithm": "fkm"},
        {"algorithm": "kfed"},
        {"algorithm": "lloyd", "init": "k-means++"},
        {"n_init": 2},
        {"sums_only": True},
        {"min_cluster_size": 3},
    ],
    ids=str,
)
@pytest.mark.usefixtures("short_search")
def test_any_algorithm_can_be_swept(params: dict[str, Any]) -> None:
    model = FederatedKMeans(range(1, 6), random_state=0, **params)
    model.fit(CLEAR, sites=sites(CLEAR, 3))
    assert model.n_clusters_ == 3


# The indices


def test_mixture_bic_is_that_of_the_pooled_rows() -> None:
    centers = NESTED[[0, 60, 120]]
    found = run_plan(evaluation(State.at(centers)), engine(NESTED, sites(NESTED, 4))).value
    labels, _ = nearest(NESTED, centers)
    sizes = np.bincount(labels)
    means = np.array([NESTED[labels == j].mean(axis=0) for j in range(3)])
    variance = ((NESTED - means[labels]) ** 2).mean(axis=0)
    each = np.log(sizes / 240) - np.log(2 * np.pi * variance).sum() / 2
    each = each - ((NESTED[:, None] - means) ** 2 / variance).sum(axis=2) / 2
    expected = (2 + 6 + 2) * np.log(240) - 2 * logsumexp(each, axis=1).sum()
    assert found["mixture-bic"] == pytest.approx(expected, rel=1e-12)


def test_mixture_bic_does_not_depend_on_scales_offsets_and_constant_columns() -> None:
    """A constant column says nothing; another unit shifts every k by the same."""
    wide = np.column_stack([NESTED * [1.0, 1000.0], np.full(240, 1e8 / 3)])
    labels = np.repeat(np.arange(4), 60)

    def found(X: np.ndarray, parts: np.ndarray) -> float:
        k = parts.max() + 1
        state = State.at(np.array([X[parts == j].mean(axis=0) for j in range(k)]))
        scores = run_plan(evaluation(state), engine(X, sites(X, 4))).value
        return float(scores["mixture-bic"])

    gain = found(NESTED, labels) - found(NESTED, labels // 2)
    assert found(wide, labels) - found(wide, labels // 2) == pytest.approx(gain, rel=1e-6)


def test_gaps_do_not_depend_on_the_scale_of_the_rows() -> None:
    within = {1: 100.0, 2: 30.0, 3: 25.0}
    corners = box(np.array([0.0, 5.0]), np.array([1.0, 4.0]))
    ten = box(np.array([0.0, 50.0]), np.array([100.0, 400.0]))
    small = gaps(within, 200, corners, seed=3)
    large = gaps({k: 100 * w for k, w in within.items()}, 200, ten, seed=3)
    for k in within:
        np.testing.assert_allclose(small[k], large[k], rtol=1e-9, atol=1e-12)
    assert max(small, key=lambda k: small[k][0]) == 2


# The verdict


@pytest.mark.parametrize(
    ("X", "k"), [(NESTED, 4), (CLEAR, 3), (SQUARE.X, 4), (ONE, 1)], ids=["4", "3", "square", "1"]
)
@pytest.mark.parametrize(
    "n_sites", [1, 5, *(pytest.param(n, marks=pytest.mark.long) for n in (2, 10))]
)
def test_every_partition_gives_the_verdict(X, k, n_sites, request):
    if n_sites == 1:  # as pooled rows are searched at length by `test_kinds`
        request.getfixturevalue("short_search")
    found = select_k(X, range(1, 9), sites=sites(X, n_sites, seed=n_sites), random_state=0)
    assert found.n_clusters == k


@pytest.mark.usefixtures("short_search")
def test_a_site_for_each_cluster_gives_the_verdict() -> None:
    found = select_k({"a": CLEAR[:40], "b": CLEAR[40:80], "c": CLEAR[80:]}, random_state=0)
    assert found.n_clusters == 3


@pytest.mark.usefixtures("short_search")
def test_the_order_of_sites_does_not_touch_a_bit() -> None:
    parts = {name: CLEAR[i::3] for i, name in enumerate(("x", "y", "z"))}
    forth = select_k(parts, range(1, 6), random_state=0)
    back = select_k(dict(reversed(parts.items())), range(1, 6), random_state=0)
    for k, scores in forth.table.items():
        np.testing.assert_array_equal(list(scores.values()), list(back.table[k].values()))
    assert forth.reason == back.reason


def test_super_clusters_are_told() -> None:
    found = select_k(NESTED, range(1, 9), rule="vote", sites=sites(NESTED, 3), random_state=0)
    assert found.reason == (
        "The mixture BIC, the gap statistic and Calinski-Harabasz say 4, the squared silhouette "
        "says 2. "
        "The 4 clusters lie in 2 super-clusters."
    )
    assert found.warnings == (
        "the indices disagree: 4 and 2 clusters are each the best by some; look at the curves",
    )


def test_clear_clusters_leave_no_doubt() -> None:
    assert select_k(CLEAR, range(1, 7), random_state=0).warnings == ()
    found = select_k(CLEAR, range(1, 7), rule="vote", random_state=0)
    assert found.warnings == ()
    assert {found.says[index] for index in JUDGES} == {3}
    assert set(found.table) == set(found.results) == set(range(1, 7))
    assert "results" not in repr(found)


@dataclass(frozen=True)
class Said:
    """Scores of made-up clusterings by which each judge says what it is told to."""

    says: dict[str, int]
    tried: range = range(1, 9)

    def judged(self, rule: Rule = Rule("vote")) -> Any:  # noqa: B008
        signs = {"mixture-bic": -1.0}  # of those where lower is better
        table = {
            k: {i: signs.get(i, 1.0) * (said == k) for i, said in self.says.items()}
            for k in self.tried
        }
        for scores in table.values():
            scores["gap-error"] = 0.0
        far = 100.0 ** np.arange(10.0)
        results = {
            k: Result(State(far[:k, None], np.ones(k)), (), "converged after 1 round")
            for k in self.tried
        }
        return judged(table, results, rule)


@pytest.mark.parametrize(
    ("votes", "k", "reason"),
    [
        (
            (3, 3, 3, 3),
            3,
            "The mixture BIC, the gap statistic, Calinski-Harabasz and the squared silhouette "
            "say 3.",
        ),
        (
            (3, 5, 5, 4),
            5,
            "The gap statistic and Calinski-Harabasz say 5, the mixture BIC says 3, ",
        ),
        ((3, 5, 4, 2), 3, "The mixture BIC says 3, the gap statistic says 5"),
        (
            (1, 1, 2, 2),
            1,
            "The mixture BIC and the gap statistic say 1, Calinski-Harabasz and the squ",
        ),
        (
            (8, 8, 3, 4),
            3,
            "Calinski-Harabasz says 3, the squared silhouette says 4; in a tie Calinski-H",
        ),
        (
            (8, 8, 8, 8),
            8,
            "The mixture BIC, the gap statistic, Calinski-Harabasz and the squared silhouette "
            "say 8.",
        ),
    ],
)
def test_the_vote(votes: tuple[int, ...], k: int, reason: str) -> None:
    """Plurality, ties to the first judge, and who is still improving at the end has no vote."""
    found = Said(dict(zip(JUDGES, votes, strict=True))).judged()
    assert found.n_clusters == k
    assert found.reason.startswith(reason)
    abstained = any("still improving at k = 8" in warning for warning in found.warnings)
    assert abstained == (8 in votes and k != 8)
    assert any("k = 8 is the largest that was tried" in w for w in found.warnings) == (k == 8)


def test_the_gap_takes_the_smallest_k_within_its_error() -> None:
    table = {k: {"gap": gap, "gap-error": 0.1} for k, gap in enumerate([0.0, 0.95, 1.0, 0.2], 1)}
    results = {k: Result(State(np.eye(4)[:k], np.ones(k)), (), "") for k in table}
    assert judged(table, results, Rule("gap")).n_clusters == 2


def test_the_elbow_is_where_the_curve_bends() -> None:
    found = select_k(CLEAR, range(1, 8), rule="inertia", random_state=0)
    assert (found.n_clusters, found.reason) == (3, "The elbow of the inertia says 3.")
    bent = select_k(CLEAR, range(2, 8), rule="davies-bouldin", pick="elbow", random_state=0)
    assert bent.rule == "davies-bouldin, elbow"
    assert bent.n_clusters == bent.says["davies-bouldin"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.usefixtures("short_search")
def test_every_rule_finds_clear_clusters(rule: RuleName) -> None:
    found = select_k(CLEAR, range(2, 6), rule=rule, sites=sites(CLEAR, 3), random_state=0)
    assert found.n_clusters == 3
    assert found.rule == rule


@pytest.mark.parametrize("averaging", ["avg_1", "avg_2"])
def test_fuzzy_db_is_the_framework_of_its_paper(averaging: str) -> None:
    """One more round of sums at the centres of FFCM, and the least index."""
    options: dict[str, Any] = {
        "rule": "fuzzy-db",
        "averaging": averaging,
        "max_iter": 20,
        "random_state": 0,
    }
    found = select_k(SQUARE.X, range(2, 7), sites=SQUARE.site, **options)
    scores = {k: found.table[k]["fuzzy-db"] for k in found.table}
    assert found.n_clusters == min(scores, key=scores.__getitem__)
    assert {result.history[-1].step for result in found.results.values()} == {"FFCM"}


def test_rows_alike_are_one_cluster_and_distinct_rows_as_many() -> None:
    site, ones, few = np.arange(30) % 3, np.ones((30, 2)), np.repeat(np.eye(3), 10, axis=0)
    alike = select_k(ones, rule="vote", sites=site, random_state=0)
    assert alike.n_clusters == 1
    assert "11 of 12 clusterings have clusters without rows" in alike.warnings[-1]
    assert select_k(few, rule="vote", sites=site, random_state=0).n_clusters == 3
    assert select_k(ones, sites=site, random_state=0).n_clusters == 1
    judged = select_k(few, sites=site, random_state=0)  # thirty rows of zeros and ones
    assert judged.n_clusters in (2, 3)
    assert judged.n_clusters == 3 or "nearly as likely" in judged.warnings[0]


@given(seed=st.integers(0, 2**16), n=st.integers(4, 25))
@settings(max_examples=8)
@pytest.mark.usefixtures("short_search")
def test_few_rows_never_break_it(seed: int, n: int) -> None:
    X = np.random.default_rng(seed).integers(-3, 4, (n, 2)).astype(float)
    for rule in ("vote", "likelihood"):
        found = select_k({"a": X[: n // 2], "b": X[n // 2 :]}, rule=rule, random_state=0)
        assert 1 <= found.n_clusters <= min(n, 12)
        assert found.reason


# The estimators


@pytest.mark.usefixtures("short_search")
def test_auto_is_by_likelihood_and_keeps_what_it_found() -> None:
    model = FederatedKMeans("auto", random_state=0).fit(CLEAR, sites=sites(CLEAR, 3))
    assert model.n_clusters_ == 3
    assert model.selection_ is not None
    assert model.selection_.rule == "likelihood"
    assert sorted(model.selection_.results) == [2, 3, 4]  # with one less and one more
    np.testing.assert_array_equal(model.cluster_centers_, model.selection_.results[3].state.centers)
    np.testing.assert_array_equal(model.predict(CLEAR), model.labels_)
    assert len(model.get_feature_names_out()) == 3
    again = model.set_params(n_clusters=2).fit(CLEAR)
    assert (again.n_clusters_, again.selection_) == (2, None)


@pytest.mark.usefixtures("short_search")
def test_auto_is_fuzzy_too() -> None:
    model = FederatedFuzzyCMeans("auto", random_state=0).fit(CLEAR, sites=sites(CLEAR, 3))
    assert model.n_clusters_ == 3
    assert model.selection_ is not None
    judged_by_index = FederatedFuzzyCMeans("auto", rule="vote", random_state=0).fit(CLEAR)
    assert judged_by_index.selection_ is not None
    assert {"xie-beni", "fuzzy-db"} <= set(judged_by_index.selection_.says)


@pytest.mark.usefixtures("short_search")
def test_weights_are_repetition() -> None:
    weight = np.random.default_rng(1).integers(1, 4, len(CLEAR))
    weighed = select_k({"a": CLEAR}, range(1, 5), sample_weight={"a": weight}, random_state=0)
    repeated = select_k({"a": np.repeat(CLEAR, weight, axis=0)}, range(1, 5), random_state=0)
    assert weighed.n_clusters == repeated.n_clusters == 3
    likely = [found.table[3]["likelihood"] for found in (weighed, repeated)]
    assert likely[0] == pytest.approx(likely[1], rel=1e-9)
    by_vote: dict[str, Any] = {"rule": "vote", "random_state": 0}
    weighed = select_k({"a": CLEAR}, range(1, 5), sample_weight={"a": weight}, **by_vote)
    repeated = select_k({"a": np.repeat(CLEAR, weight, axis=0)}, range(1, 5), **by_vote)
    for k in (1, 3):
        assert weighed.table[k]["gap"] == pytest.approx(repeated.table[k]["gap"], rel=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k_range": 3}, "k_range must be 'auto' or several numbers, such as range(1, 9), not 3"),
        ({"k_range": "some"}, "n_clusters must be one of 'auto' or a whole number or a range"),
        ({"k_range": []}, "n_clusters=[] holds no number to try"),
        ({"k_range": [0, 2]}, "each number of clusters to try must be a whole number of at least"),
        ({"k_range": [2.0]}, "each number of clusters to try must be a whole number of at least"),
        ({"k_range": range(1, 200)}, "n_samples=120 rows: too few for n_clusters=range(1, 200)"),
        ({"rule": "best"}, "rule must be one of 'likelihood', 'vote', 'mixture-bic'"),
        ({"pick": "worst"}, "pick must be one of 'best', 'elbow', not 'worst'"),
        ({"pick": "elbow"}, "pick='elbow' is for a single index; name it as the rule"),
        ({"pick": "elbow", "rule": "vote"}, "pick='elbow' is for a single index; name it"),
        ({"averaging": "avg_3"}, "averaging must be one of 'avg_1', 'avg_2', not 'avg_3'"),
        ({"bounds": 3}, "bounds must be two finite numbers or two arrays"),
        ({"bounds": (1, 0)}, "bounds must be two finite numbers or two arrays"),
        ({"bounds": (0, np.inf)}, "bounds must be two finite numbers or two arrays"),
        ({"bounds": (np.zeros(3), np.ones(3))}, "the bounds are 3 pairs, but there are 2 columns"),
        ({"init": CLEAR[:3]}, "init is a start for one number of clusters, but n_clusters='auto'"),
    ],
)
def test_bad_input_is_refused_in_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        select_k(CLEAR, **options)
    assert "\n" not in str(error.value)


# The picture


@pytest.mark.usefixtures("short_search")
def test_the_curves_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = select_k(NESTED, range(1, 7), sites=sites(NESTED, 3), random_state=0)
    found.plot(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_every_index_has_a_name_that_people_know() -> None:
    assert set(CHOOSING) == set(INDICES)
    assert set(RULES) == {"vote", *INDICES}
    assert JUDGES == ("mixture-bic", "gap", "calinski-harabasz", "squared-silhouette")
    assert all(CHOOSING[index].label for index in INDICES)


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_a_race_that_is_told_it_is_enough_ends_with_what_it_has(participation: float) -> None:
    """The last round, which measures what was found, is asked all the same."""
    plan = clustering(fit_of(4, n_init=2, tol=0.0, participation=participation))
    asked = engine(NESTED, sites(NESTED, 3))
    tasks = next(plan)
    for _ in range(2):
        tasks = plan.send(asked.ask(tasks))
    tasks = plan.throw(EarlyStop())
    tasks = plan.throw(EarlyStop())
    assert {type(task.step).__name__ for task in tasks} == {"Inertia"}
    with pytest.raises(StopIteration) as stop:
        plan.send(asked.ask(tasks))
    assert stop.value.value.reason.startswith("stopped after 1 round, as the other fits were done")
    assert stop.value.value.state.centers.shape == (4, 2)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["60 % zeros, 3", "rows five times"])
def test_values_that_repeat_are_said_to_look_like_clusters(kind: str) -> None:
    X, _ = HARD[kind](np.random.default_rng(3))
    found = select_k(X, prepare="standard", random_state=0)
    assert any("without a spread of their own" in line for line in found.warnings), found.warnings


@pytest.mark.usefixtures("short_search")
def test_rows_that_do_not_repeat_are_not_said_to() -> None:
    X, _ = HARD["turned, 6 in 3 columns"](np.random.default_rng(3))
    found = select_k(X, prepare="standard", random_state=0)
    assert found.n_clusters == 6
    assert not any("spread of their own" in line for line in found.warnings)


@pytest.mark.thorough
@pytest.mark.parametrize(("ks", "means"), [("auto", False), ([4, 5], True)])
def test_k_means_whose_centres_still_move_gives_way_to_what_was_judged(monkeypatch, ks, means):
    """Where what was judged has another number of clusters, it goes on until they rest."""
    effort = replace(_mixtures.EFFORT, rounds_of_means=1)
    monkeypatch.setattr("fedcluster.selection.sweep.EFFORT", effort)
    X, _ = SHAPES["16 round"](np.random.default_rng(3))
    found = execute(fit_of(ks), engine(X, np.zeros(len(X)))).outcome.value
    result = found.results[found.n_clusters]
    assert isinstance(result.algorithm, Lloyd) == means
    assert result.state.converged
    assert (len(result.history) > 1) == means
    assert np.isfinite(result.state.inertia)
