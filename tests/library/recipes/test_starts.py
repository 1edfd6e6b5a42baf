"""Starts, races and breaths: how many, from what, and for how long."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from partitions import on_line

from fedcluster import FederatedFuzzyCMeans, FederatedKMeans
from fedcluster.algorithms import FKM, Lloyd, SiteSummaries, VarianceTree, summaries
from fedcluster.core import Data, Floats, Iteration, Limit, Result, SiteInfo, State
from fedcluster.core.task import stream
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import HeldBackError
from fedcluster.kernels import kmeans, nearest
from fedcluster.kernels.fuzzy import fuzzy_cmeans
from fedcluster.kernels.iteration import kmeans_runs, lloyd
from fedcluster.privacy import MinClusterSize
from fedcluster.recipes import _search
from fedcluster.recipes import _seeds as seeds
from fedcluster.recipes import fit as starts
from fedcluster.recipes._search import _Runner, race
from fedcluster.recipes._seeds import (
    SeedEffort,
    _by_ward,
    _Means,
    _searched,
    best_fuzzy_seeds,
    best_seeds,
)
from fedcluster.recipes.fit import canonical, clustering
from fedcluster.recipes.specifications import Fit, fit_of
from fedcluster.rounds import Plan, iterate, run, run_plan
from reproduction.baselines import central_fuzzy_cmeans
from reproduction.datasets import plane16

PLANE = plane16(noise=1.5)


def engine(X: np.ndarray, sites: Sequence[int] | np.ndarray | None = None) -> LocalEngine:
    site = np.zeros(len(X), int) if sites is None else np.asarray(sites)
    return LocalEngine(Client(str(s), Data(X[site == s])) for s in np.unique(site))


def steps(outcome: Any) -> list[dict[str, int]]:
    """How many tasks of each kind every round carried."""
    return [
        {step: exchange.steps.count(step) for step in exchange.steps}
        for exchange in outcome.communication_rounds
    ]


# Descriptions of the rows


def step(k: int, init: str) -> starts.Description:
    found = starts.description_step(fit_of(k, init=init))
    assert found is not None
    return found


def means_of_sites(k: int) -> Plan[Result]:
    return starts.description(step(k, "summaries"), k, 0)


def means_of_leaves(k: int, seed: int = 0) -> Plan[Result]:
    return starts.description(step(k, "sums"), k, seed)


ALIKE = (5000.0,) * 8
TINY = (19.0,) * 9  # fewer rows than two for each cluster
TREE = {"sums_only": True}
GROUPS = {"site_rows": (5.0, 5.0), "grouped": True}


@pytest.mark.parametrize(
    ("k", "spec", "expected"),
    [
        # 160 means for each of ten clusters, in all; half as many where one is large;
        (10, {"site_rows": ALIKE}, SiteSummaries(200, 1, 2)),
        (10, {"site_rows": (10_000.0, *(10.0,) * 7)}, SiteSummaries(100, 1, 2)),
        # but no more than 256 of one site, and no fewer than two for each cluster;
        (10, {"site_rows": (9000.0, 9000.0)}, SiteSummaries(256, 1, 2)),
        (10, {"site_rows": (100.0,) * 500}, SiteSummaries(20, 1, 2)),
        # of as many rows as every site lets through.
        (10, {"site_rows": ALIKE, "smallest": 7}, SiteSummaries(200, 7, 14)),
        # Most rows are at sites of 19: no site can.
        (10, {"site_rows": (*TINY, 170.0)}, VarianceTree(170, 1, 2)),
        (10, {"site_rows": (*TINY, 172.0)}, SiteSummaries(160, 1, 2)),
        # Ten can hide a cluster; a limit would hold back leaves; but one that does not matter.
        (10, {"site_rows": (*TINY, 19.0, 9000.0)}, VarianceTree(1280, 1, 2)),
        (10, {"site_rows": (*TINY, 19.0, 9000.0), "smallest": 2}, SiteSummaries(145, 2, 4)),
        (10, {"site_rows": (*(2.0,) * 10, 30_000.0)}, SiteSummaries(72, 1, 2)),
        (10, {"site_rows": (20.0,) * 9}, SiteSummaries(177, 1, 2)),
        # A site alone describes itself.
        (10, {"site_rows": (19.0,)}, SiteSummaries(256, 1, 2)),
        (10, {}, SiteSummaries(256, 1, 2)),
        # Groups are told one by one, however few they are, unless a mean of one is held back.
        (10, GROUPS, SiteSummaries(512)),
        (300, GROUPS, SiteSummaries(600)),
        (10, {**GROUPS, "smallest": 3}, SiteSummaries(512, 3, 6)),
        # Each leaf of a tree needs so many rows at every site that has some of it.
        (10, {**TREE, "site_rows": (9000.0,), "smallest": 2}, VarianceTree(40, 5)),
        (10, {**TREE, "site_rows": (9000.0,), "smallest": 9}, VarianceTree(40, 9)),
        # A tree has many leaves for each cluster, of two rows at least.
        (10, TREE, VarianceTree(256, 1, 2)),
        (20, TREE, VarianceTree(320, 1, 2)),
        (80, TREE, VarianceTree(1000, 1, 2)),
        (300, TREE, VarianceTree(1000, 1, 2)),
        (600, TREE, VarianceTree(1200, 1, 2)),
        (10, {**TREE, "site_rows": (100.0, 101.0)}, VarianceTree(100, 1, 2)),
        (10, {**TREE, "site_rows": (30.0, 31.0)}, VarianceTree(40, 1, 2)),
    ],
    ids=str,
)
def test_how_sites_are_asked_to_describe_clusters(k, spec, expected):
    assert starts.description_step(fit_of(k, **spec)) == expected


def test_a_specification_knows_the_sites_rows_and_their_largest_limit() -> None:
    told = [
        SiteInfo("a", (Limit("MinClusterSize", (("p", 4),)), Limit("MinRows", (("n", 9),)))),
        SiteInfo("b", (Limit("MinClusterSize", (("p", 6),)),), n_rows=30.0),
        SiteInfo("c", n_rows=50.0),
    ]
    spec = fit_of(3).at(told)
    assert (spec.smallest, spec.site_rows) == (6, (30.0, 50.0))
    assert fit_of(3).at(told[2:]).smallest == 1
    assert (spec.init, spec.sums_only) == ("auto", False)
    streaming, secure = replace(told[2], streams=True), replace(told[2], secure=True)
    assert fit_of(3).at([*told, streaming]).init == "sums", "one site is enough"
    assert fit_of(3).at([*told, secure]).sums_only, "nobody sees the sums of a site"


@pytest.mark.parametrize("step", [SiteSummaries(9, 5), SiteSummaries(9, 1, 5), VarianceTree(9, 5)])
def test_means_that_are_enough_are_not_asked_for_again(step: starts.Description) -> None:
    """As many distinct ones as clusters: two groups of five are enough for k = 2, not for 3."""
    X = on_line(0, 0, 0, 0, 0, 9, 9, 9, 9, 8)
    enough, short = (run_plan(starts.description(step, k, 0), engine(X)) for k in (2, 3))
    assert len(enough.value.state.centers) == 2
    once, twice = len(enough.communication_rounds), len(short.communication_rounds)
    assert twice > once
    assert len(short.value.history) == twice
    assert len(np.unique(short.value.state.centers)) == 3


def test_means_of_single_rows_are_asked_for_once() -> None:
    for step in (SiteSummaries(9), VarianceTree(9, 1)):
        found = run_plan(starts.description(step, 3, 0), engine(on_line(0, 0, 9)))
        alone = run_plan(iterate(step), engine(on_line(0, 0, 9)))
        assert len(found.communication_rounds) == len(alone.communication_rounds)


def test_the_start_from_sums_is_that_of_the_leaves() -> None:
    X = np.random.default_rng(0).normal(size=(300, 2))
    plan = starts.from_description(step(3, "sums"), 3, 4, seed=7)
    seeds, history = run_plan(plan, engine(X)).value
    leaves = run_plan(means_of_leaves(3, seed=7), engine(X)).value
    expected = best_seeds(leaves.state, 3, 4, stream(7, leaves.state.round))
    assert len(seeds) == len(expected)
    for seed, other in zip(seeds, expected, strict=True):
        assert_array_equal(seed.centers, other.centers)
    assert len(history) == len(leaves.history)


# Seeds from means


def counted(monkeypatch: pytest.MonkeyPatch, name: str, make: Any) -> list[int]:
    """Number of runs of each call of a function that seeds are made by."""
    made: list[int] = []

    def counting(*args: Any, **options: Any) -> Any:
        made.append(options.get("n_runs", 1))
        return make(*args, **options)

    monkeypatch.setattr(seeds, name, counting)
    return made


@pytest.mark.parametrize(
    ("work", "restarts", "children"), [(1 << 28, 40, 160), (0, 3, 0), (50 * 24, 40, 50)]
)
def test_restarts_and_children_are_as_many_as_there_is_time_for(
    monkeypatch: pytest.MonkeyPatch, work: int, restarts: int, children: int
) -> None:
    """Six means of two values, two centres: 24 products an iteration; at least 3 for 3 seeds.

    Ward's clusters have a run besides.
    """
    restarted = counted(monkeypatch, "kmeans_runs", kmeans_runs)
    born = counted(monkeypatch, "lloyd", lloyd)
    effort = SeedEffort(search_work=work, patience=1000)
    state = State(np.random.default_rng(0).normal(size=(6, 2)), np.ones(6))
    best_seeds(state, 2, 3, stream(0, 0), effort=effort)
    assert (sum(restarted), sum(born)) == (restarts, children + 1)


def in_many_columns(spread: float = 0.7, k: int = 12, each: int = 30, d: int = 60) -> Floats:
    """Means of clusters, which overlap by default."""
    rng = np.random.default_rng(0)
    centers = rng.normal(0, spread, (k, d))
    return centers[np.arange(k * each) % k] + rng.normal(size=(k * each, d))


@pytest.mark.parametrize(
    ("spread", "work", "restarts"),
    [
        (0.7, 1 << 30, 40),
        (0.7, 1 << 22, 4),
        (5.0, 1 << 30, 40),
        (5.0, 1 << 22, 4),
        (0, 1 << 22, 16),
    ],
)
def test_where_wards_clusters_are_ahead_or_found_again_no_time_is_spent_on_restarts(
    monkeypatch: pytest.MonkeyPatch, spread: float, work: int, restarts: int
) -> None:
    """Ahead where clusters overlap, found again where they are far apart; neither without any."""
    made = counted(monkeypatch, "kmeans_runs", kmeans_runs)
    effort = SeedEffort(search_work=work, children=0)
    points = in_many_columns(spread)
    best_seeds(State(points, np.ones(len(points))), 12, 8, stream(0, 0), effort=effort)
    assert sum(made) == restarts


@pytest.mark.parametrize(("work", "n_seeds"), [(1, 1), (3 * 400 * 3 * 30, 3), (1 << 32, 8)])
def test_fewer_starts_are_sought_where_an_iteration_takes_long(work: int, n_seeds: int) -> None:
    """A start multiplies 400 means of 3 columns by 30 centres; of some work, three are enough."""
    points = np.random.default_rng(0).random((400, 3))
    effort = SeedEffort(seed_work=work)
    found = best_seeds(State(points, np.ones(400)), 30, 8, stream(0, 0), effort=effort)
    assert len(found) == n_seeds


def test_wards_clusters_are_found_where_restarts_get_stuck() -> None:
    points, k = in_many_columns(), 12
    planted = np.array([points[j::k].mean(axis=0) for j in range(k)])
    weights = np.ones(len(points))
    best, *_ = best_seeds(State(points, weights), k, 8, stream(0, 0))
    assert nearest(points, best.centers)[1].sum() <= lloyd(points, planted).inertia * (1 + 1e-9)


@pytest.mark.parametrize("most", [5, 40])
def test_more_means_than_ward_takes_are_joined_first(most, monkeypatch):
    """Two far pairs of clouds, found from five joined means as well as from all forty."""
    effort = SeedEffort(most_of_ward=most, children=0)
    points = on_line(*np.repeat([0.0, 100.0], 20)) + np.random.default_rng(0).normal(size=(40, 1))
    stuck = lloyd(points, on_line(0, 0.1), max_iter=0)
    monkeypatch.setattr(seeds, "kmeans_runs", lambda *_, n_runs, **__: [stuck] * n_runs)
    best, _ = best_seeds(State(points, np.ones(40)), 2, 3, stream(0, 0), effort=effort)
    assert_allclose(np.sort(best.weights), [20, 20])


@pytest.mark.parametrize(("n_seeds", "times"), [(3, 1), (23, 1), (24, 3)])
def test_children_end_after_so_many_without_gain(n_seeds, times, monkeypatch):
    """Two pairs of means: every restart finds the best clustering, and no child a better one.

    Of many seeds, the best have twice as many more.
    """
    made = counted(monkeypatch, "lloyd", lloyd)
    state = State(on_line(0, 1, 10, 11), np.ones(4))
    best, *_ = best_seeds(state, 2, n_seeds, stream(0, 0))
    assert len(made) == times * SeedEffort().patience + 1  # of Ward's clusters
    assert_allclose(np.sort(best.centers.ravel()), [0.5, 10.5])


def test_children_find_what_restarts_do_not() -> None:
    points = np.random.default_rng(0).uniform(size=(400, 2))

    def least(effort: SeedEffort) -> float:
        best, *_ = best_seeds(State(points, np.ones(400)), 30, 4, stream(0, 0), effort=effort)
        return float(nearest(points, best.centers)[1].sum())

    assert least(SeedEffort()) < 0.98 * least(SeedEffort(children=0))


def test_many_means_are_merged_first_and_hopeless_fits_not_refined_among_all(monkeypatch):
    """Of the fits among 2,048 means, those that are a tenth worse than the best stay so."""
    rng = np.random.default_rng(4)
    corners = 6 * rng.normal(size=(16, 8))
    points = np.repeat(corners, 300, axis=0) + rng.normal(size=(4800, 8))
    among, refined = list[int](), list[float]()

    def searched(state: State, *given: Any) -> Any:
        among.append(len(state.centers))
        return _searched(state, *given)

    def refining(X: Any, start: Any, *given: Any, **how: Any) -> Any:
        found = lloyd(X, start, *given, **how)
        refined.extend([found.inertia] if len(X) == len(points) else [])
        return found

    monkeypatch.setattr(seeds, "_searched", searched)
    monkeypatch.setattr(seeds, "lloyd", refining)
    found = best_seeds(State(points, np.ones(4800)), 16, 8, np.random.default_rng(0))
    assert among == [SeedEffort().merged]
    assert 0 < len(refined) < len(found)
    assert max(refined) < 1.1 * min(refined)
    assert_allclose(np.sort(found[0].centers, axis=0), np.sort(corners, axis=0), atol=0.4)
    assert nearest(points, found[-1].centers)[1].sum() > 1.1 * max(refined)


def test_seeds_are_weighted_and_know_the_rows_behind_them() -> None:
    """Means 0 and 1 of 99 and 1 rows and 10 of 50: two centres are 0.01 and 10."""
    state = State(on_line(0, 1, 10), np.array([99.0, 1.0, 50.0]), round=3)
    best, *_ = best_seeds(state, 2, 5, stream(0, 0))
    order = np.argsort(best.centers.ravel())
    assert_allclose(best.centers[order], on_line(0.01, 10))
    assert_allclose(best.weights[order], [100, 50])
    assert (best.round, best.converged) == (3, False)


def test_fewer_means_than_clusters_are_filled_up_with_copies() -> None:
    [seed] = best_seeds(State(on_line(0, 8), np.array([3.0, 5.0])), 5, 4, stream(0, 0))
    assert seed.centers.shape == (5, 1)
    assert set(seed.centers.ravel()) == {0.0, 8.0}
    assert sorted(seed.weights[seed.weights > 0]) == [3, 5]


def test_no_mean_is_an_error_that_says_what_to_do() -> None:
    for held_back in (State(), State.at(on_line(4.5))):
        with pytest.raises(HeldBackError, match="lower the limit or ask for fewer clusters"):
            best_seeds(held_back, 2, 4, stream(0, 0))


def test_drawn_starts_differ_by_their_seeds() -> None:
    sites = engine(PLANE.X, PLANE.site)
    found = run_plan(starts.drawn(4, 3, "random", seed=5), sites)
    assert steps(found) == [{"FKM": 3}]
    seeds, history = found.value
    assert len(history) == 1
    for i, seed in enumerate(seeds):
        alone = run(FKM(4, client_init="random"), sites, seed=5 + i, max_rounds=1)
        assert_array_equal(seed.centers, alone.state.centers)


def test_fits_that_differ_by_rounding_are_one_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is held against the one before it: by more than 1e-9 of it, it is another."""
    inertias = iter([9.0 * (1 + 2e-9), 5.0, 9.0, 5.0 * (1 + 0.9e-9), 5.0 * (1 + 1.8e-9)])

    class Fit:
        def __init__(self) -> None:
            self.inertia = next(inertias)
            self.centers, self.weights = on_line(self.inertia, 0), np.ones(2)

    monkeypatch.setattr(
        seeds, "kmeans_runs", lambda *_, n_runs, **__: [Fit() for _ in range(n_runs)]
    )
    monkeypatch.setattr(seeds, "_by_ward", lambda *_: [])
    few = partial(best_seeds, effort=SeedEffort(restarts=5, children=0))
    found = few(State(on_line(0, 1, 2), np.ones(3)), 2, 4, stream(0, 0))
    assert [seed.centers[0, 0] for seed in found] == [5.0, 9.0, 9.0 * (1 + 2e-9)]
    inertias = iter([9.0, 5.0, 9.1, 9.2, 9.3])
    assert few(State(on_line(0, 1, 2), np.ones(3)), 2, 0, stream(0, 0)) == []
    for behind, n in ((0.799, 1), (0.8 + 1e-12, 2)):
        inertias = iter([9.0, 5.0, 9.1, 9.2, 9.3])
        found = few(State(on_line(0, 1, 2), np.ones(3)), 2, 4, stream(0, 0), behind=behind)
        assert [seed.centers[0, 0] for seed in found] == [5.0, 9.0][:n]


@pytest.mark.parametrize(
    ("options", "n_starts"),
    [
        ({}, 1),
        ({"sums_only": True}, 1),
        ({"n_init": 8}, 8),
        ({"min_cluster_size": 5}, 8),
        ({"n": 800}, 27),
        # Not refined among all means, whose inertia includes scatter within coarse ones.
        ({"k": 12, "d": 5, "spread": 4, "n": 25_000, "n_sites": 500}, 1),
    ],
)
def test_starts_far_behind_are_not_asked_about(options: dict[str, Any], n_starts: int) -> None:
    """Unless so many were asked for, or the description may hide what they are good for."""
    given = {"k": 8, "d": 3, "spread": 9, "n": 2000, "n_sites": 2} | options
    k, d, spread, n, n_sites = (given.pop(each) for each in ("k", "d", "spread", "n", "n_sites"))
    rng = np.random.default_rng(0)
    X = rng.normal(0, spread, (k, d))[rng.integers(k, size=n)] + rng.normal(size=(n, d))
    model = FederatedKMeans(k, random_state=0, **given).fit(X, sites=np.arange(n) % n_sites)
    said = re.search(r"best of (\d+) starts", model.stop_reason_)
    assert (int(said[1]) if said else 1) == n_starts


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        ({}, {"SiteSummaries": 1}),
        ({"init": "summaries"}, {"SiteSummaries": 1}),
        ({"sums_only": True}, {"VarianceTree": 1}),
        ({"init": "sums"}, {"VarianceTree": 1}),
        ({"init": "k-means++"}, {"FKM": 32}),
        ({"init": "random", "n_init": 3}, {"FKM": 3}),
        ({"init": "random", "algorithm": "lloyd"}, {"FKM": 1}),
    ],
    ids=str,
)
def test_what_the_first_round_asks_for(spec: dict[str, Any], asked: dict[str, int]) -> None:
    plan = clustering(fit_of(4, **spec))
    names = [type(task.step).__name__ for task in next(plan)]
    assert {name: names.count(name) for name in names} == asked


# The race


@pytest.mark.parametrize(
    ("spec", "racing"),
    [
        (fit_of(20), {0: 8, 2: 4, 4: 2}),
        (fit_of(20, n_init=8), {0: 8, 2: 4, 4: 2}),
        (fit_of(20, n_init=16), {0: 16, 2: 8, 4: 4}),
        (fit_of(40, n_init=32), {0: 32, 4: 12, 8: 4}),
        (fit_of(40, n_init=48, site_rows=(999.0,)), {0: 48, 4: 12, 8: 4}),
        (fit_of(20, site_rows=(999.0,)), {0: 48, 2: 16, 4: 4}),
        (fit_of(20, site_rows=(999.0,), init="random"), {0: 32, 4: 12, 8: 4}),
    ],
)
def test_of_few_starts_and_of_many_fewer_go_on(spec, racing, monkeypatch):
    """So many from so many rounds on, where none is without hope; the last scores the finalists."""
    monkeypatch.setattr(_search._Runner, "gains_behind", 1e9)  # noqa: SLF001
    monkeypatch.setattr(_search, "LONG_RUN", 300)
    X = np.random.default_rng(0).uniform(size=(3000, 2))
    asked = steps(run_plan(clustering(replace(spec, tol=0.0)), engine(X)))
    assert asked[0] == ({"SiteSummaries": 1} if spec.init == "auto" else {"FKM": 32})
    races = [each["Lloyd"] for each in asked[1:-1]]
    for (begin, runs), (end, _) in pairwise([*racing.items(), (len(races), 0)]):
        assert max(races[begin:end]) == runs
    assert asked[-1] == {"Inertia": min(racing.values()) if 8 not in racing else 2}


MEANS = State(np.random.default_rng(0).uniform(size=(400, 2)), np.ones(400))


@pytest.mark.parametrize(
    ("spec", "racing"),
    [
        (fit_of(20), 8),
        (fit_of(20, site_rows=(1000.0, 9.0)), 8),
        (fit_of(20, site_rows=(999.0, 9.0)), 16),
        (fit_of(20, site_rows=(990.0, 9.0)), 48),
        (fit_of(20, site_rows=(990.0, 9.0), sums_only=True), 48),
        (fit_of(20, site_rows=(990.0, 9.0), grouped=True), 16),
        (fit_of(20, site_rows=(990.0, 9.0), means=MEANS), 16),
        (fit_of(20, site_rows=(990.0, 9.0), n_init=3), 3),
        (fit_of(20, sums_only=True, site_rows=(9000.0,)), 16),
        (fit_of(20, n_init=3, sums_only=True), 3),
        (fit_of(20, algorithm="lloyd"), 1),
    ],
)
def test_more_runs_race_from_sums_and_where_sites_are_small(spec: Fit, racing: int) -> None:
    X = np.random.default_rng(0).uniform(size=(2000, 2))
    first = next(each for each in steps(run_plan(clustering(spec), engine(X))) if "Lloyd" in each)
    assert first["Lloyd"] == racing


def test_the_default_race_is_eager_and_one_asked_for_by_name_is_not() -> None:
    """Runs that are left are asked at three places after round 8, and by name at one."""
    X = np.random.default_rng(0).uniform(size=(3000, 2))
    for algorithm, places in (("auto", 3), ("lloyd", 1)):
        asked = steps(
            run_plan(clustering(fit_of(20, algorithm=algorithm, n_init=8, tol=0.0)), engine(X))
        )
        assert asked[8]["Lloyd"] == 2
        assert asked[9]["Lloyd"] == 2 * places


def test_runs_that_have_met_are_one() -> None:
    """Numbered differently, the same centres are the same run."""
    X = np.random.default_rng(0).uniform(size=(400, 2))
    starts_ = [State.at(X[:9]), State.at(X[9:18]), State.at(X[:9][::-1])]
    for keep, racing in (({9: 3}, [3, 2, 2]), (None, [3, 3, 3])):
        found = run_plan(race(Lloyd(tol=0), starts_, keep=keep), engine(X))
        assert [len(each.steps) for each in found.communication_rounds][:3] == racing
        assert len(found.value) == racing[-1]


def test_a_race_ends_with_its_first_when_no_more_are_to_be_dropped() -> None:
    """The best has converged in round 2, when the last are dropped; the other goes on moving."""
    X = on_line(0, 1, 10, 11)
    good, poor = State.at(on_line(0.5, 10.5)), State.at(on_line(0, 0.4))
    for keep, rounds in (({1: 2}, 1), ({2: 2}, 2)):
        found = run_plan(race(Lloyd(tol=0), [poor, good], keep=keep), engine(X))
        assert len(found.communication_rounds) == rounds
        assert_array_equal(found.value[0].state.centers, good.centers)
    assert found.value[0].reason == "converged after 1 round, best of 2 starts"
    assert found.value[1].reason == (
        "stopped after 2 rounds, when the run that was ahead ended, best of 2 starts"
    )
    to_the_end = run_plan(race(Lloyd(tol=0), [poor, good]), engine(X))
    assert all(result.state.converged for result in to_the_end.value)
    assert len(to_the_end.communication_rounds) > 2


def test_runs_without_hope_leave_an_eager_race() -> None:
    """A group of wide spread needs two centres: with one there, all else gains too little."""
    wide, narrow = np.linspace(0, 10, 400), np.linspace(100, 101, 200)
    X = on_line(*wide, *narrow)
    good, behind, without = on_line(1, 2, 100), on_line(0, 1, 100), on_line(5, 100, 100.001)
    starts_ = [State.at(each) for each in (without, behind, good)]
    for eager, racing in ((True, [3, 3, 2, 2]), (False, [3, 3, 3, 3])):
        plan = race(Lloyd(tol=0), starts_, keep={9: 3}, max_rounds=4, eager=eager)
        tasks = [len(each.steps) for each in run_plan(plan, engine(X)).communication_rounds]
        assert tasks == racing


@pytest.mark.parametrize("limit", [0, 235])
def test_a_long_run_that_is_eager_is_sooner_at_a_fixed_point(limit: int) -> None:
    """Uniform rows, where steps are small; with as many rows in it as limits let through else."""
    X = np.random.default_rng(1).uniform(size=(2000, 4))
    clients = [Client("one", Data(X), filters=[MinClusterSize(limit)] if limit else [])]
    results = {}
    for eager in (False, True):
        plan = race(Lloyd(tol=0), [State.at(X[:8])], eager=eager, ahead=eager)
        results[eager] = run_plan(plan, LocalEngine(clients))
    slow, fast = (results[eager].value[0] for eager in (False, True))
    rounds = [len(results[eager].communication_rounds) for eager in (False, True)]
    assert rounds[1] == len(fast.history) < 0.8 * rounds[0]
    assert fast.state.weights.sum() >= slow.state.weights.sum()
    [again] = run_plan(race(Lloyd(tol=0), [fast.state], max_rounds=1), LocalEngine(clients)).value
    assert_array_equal(again.state.centers, fast.state.centers)
    tasks = [len(each.steps) for each in results[True].communication_rounds]
    assert tasks == [1] * 8 + [3] * (rounds[1] - 8)


def test_a_long_fuzzy_run_is_sooner_at_the_same_optimum_where_nothing_is_hidden() -> None:
    """Two clouds for five centres, of which several come to rest in one place."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(at, 1, (100, 2)) for at in (0, 9)])
    spec = fit_of(5, m=2.0, n_init=2, tol=1e-6, max_iter=900)
    named = replace(spec, algorithm="fcm", init="summaries")
    hidden = replace(spec, smallest=2, max_iter=12)
    short, long, alone = (run_plan(clustering(each), engine(X)) for each in (spec, named, hidden))
    assert max(steps(short)[-2].values()) > 2 >= max(steps(alone)[-2].values())
    assert len(short.communication_rounds) < 0.7 * len(long.communication_rounds)
    assert short.value.state.converged
    assert long.value.state.converged
    assert short.value.state.inertia == pytest.approx(long.value.state.inertia, rel=1e-9)


def test_limits_may_send_a_run_in_a_circle_which_ends_it() -> None:
    """Sites of eight rows that tell of clusters of five rows: told and hidden ones take turns."""
    rng = np.random.default_rng(3)
    X, sites = rng.standard_t(2, (480, 3)), np.arange(480) // 8
    parts = [Client(str(s), Data(X[sites == s]), filters=[MinClusterSize(3)]) for s in range(60)]
    rounds = {}
    for eager in (False, True):
        plan = race(Lloyd(tol=0), [State.at(X[:6])], max_rounds=90, eager=eager)
        [result] = run_plan(plan, LocalEngine(parts)).value
        rounds[eager] = len(result.history)
    assert "limits made centres return to where they were" in result.reason
    assert rounds[True] < rounds[False] == 90


def test_a_result_says_what_limits_hid_from_it() -> None:
    """One row of ten, 99 from its centre at 1: it holds 99^2 of the inertia; nine hold 6."""
    X = on_line(0, 1, 2, 0, 1, 2, 0, 1, 2, 100)
    for limit, said in ((1, ""), (2, "; limits hid 10.00% of the rows, which hold 100% of the")):
        client = Client("one", Data(X), filters=[MinClusterSize(limit)])
        start = on_line(1, 60)
        spec = fit_of(2, algorithm="lloyd", init=start, smallest=limit)
        result = run_plan(clustering(spec), LocalEngine([client])).value
        assert said in result.reason
        assert ("limits" in result.reason) == (limit > 1)


def test_runs_come_by_rising_inertia_with_what_they_were_best_of() -> None:
    X = on_line(0, 1, 10, 11)
    far, near = State.at(on_line(100, 200)), State.at(on_line(0, 10))
    plan = race(Lloyd(tol=0), [far, near], max_rounds=1)
    outcome = run_plan(plan, engine(X))
    assert len(outcome.communication_rounds) == 1
    first, second = outcome.value
    assert first.reason.startswith("stopped at the limit of 1 round, best")
    assert_allclose(first.state.centers, on_line(0.5, 10.5))
    assert first.state.inertia < second.state.inertia
    assert first.reason.endswith(", best of 2 starts")
    [alone] = run_plan(race(Lloyd(tol=0), [near], max_rounds=1), engine(X)).value
    assert "best of" not in alone.reason


@pytest.mark.parametrize("eager", [False, True])
def test_the_order_of_rows_chooses_none_of_the_runs_with_the_same_clusters(eager: bool) -> None:
    """They end at the same inertia but for rounding, in other numbers of rounds."""
    rng = np.random.default_rng(0)
    X = np.concatenate([c + rng.normal(size=(40, 2)) for c in ([0, 0], [5, 0], [0, 5])])
    starts_ = [State.at(X[each]) for each in ([0, 1, 2], [0, 40, 80], [81, 41, 1])]
    rounds = set()
    for _ in range(20):
        sites = (rng.permutation(part) for part in (X[:50], X[50:]))
        asked = LocalEngine([Client(f"s{i}", Data(each)) for i, each in enumerate(sites)])
        found = run_plan(race(Lloyd(), starts_, eager=eager), asked).value
        rounds.add(tuple(len(each.history) for each in found))
    [(first, *others)] = rounds
    assert set(others) - {first}


def test_a_run_behind_the_best_by_rounding_has_hope():

    def at(inertia: float) -> Iteration:
        return Iteration(1, "Lloyd", inertia, 0.0, ("a",), (), {})

    best, alike, other = (
        _Runner(State(on_line(0), inertia=inertia), (at(inertia),) * 2)
        for inertia in (2.0, 2.0 + 1e-15, 2.0 + 1e-6)
    )
    assert [each.may_catch_up(best) for each in (best, alike, other)] == [True, True, False]


# Fuzzy starts


def test_fuzzy_starts_are_fuzzy_optima_of_the_means_best_first() -> None:
    """From the best k-means of heavy tails, fuzzy c-means of the means ends in worse optima."""
    rng = np.random.default_rng(102)
    state = State(rng.standard_t(2, (400, 5)), rng.integers(1, 9, 400).astype(float))
    found = best_fuzzy_seeds(state, 8, 4, 2.0, np.random.default_rng(0))

    def j_m(centers: np.ndarray) -> float:
        passed = fuzzy_cmeans(state.centers, centers, 2.0, state.weights, tol=1e-3).last_pass
        return float(passed.errors.sum())

    assert 1 <= len(found) <= 4
    told = [j_m(seed.centers) for seed in found]
    assert told[0] == pytest.approx(min(told), rel=1e-3)
    crisp = [j_m(seed.centers) for seed in best_seeds(state, 8, 4, np.random.default_rng(0))]
    assert told[0] <= min(crisp) * (1 + 1e-4)


def test_fuzzy_starts_that_end_in_one_optimum_are_one() -> None:
    points = np.repeat([0.0, 90.0, 300.0], 5)[:, None] + np.tile(np.arange(5.0), 3)[:, None]
    found = best_fuzzy_seeds(State(points, np.ones(15)), 3, 8, 2.0, np.random.default_rng(0))
    assert len(found) == 1
    assert_allclose(np.sort(found[0].centers, axis=0), on_line(2, 92, 302), atol=0.1)


def test_fuzzy_starts_of_too_few_means_are_those_of_k_means() -> None:
    state = State(on_line(0, 8), np.array([3.0, 5.0]))
    [crisp] = best_seeds(state, 5, 4, stream(0, 0))
    for m in (None, 2.0):
        [same] = best_seeds(state, 5, 4, stream(0, 0), m)
        assert_array_equal(same.centers, crisp.centers)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:only [67] of 8")  # the best J_m has centres at one place
@pytest.mark.parametrize("seed", [101, 102])
def test_fuzzy_clusters_of_heavy_tails_are_as_good_as_pooled_ones(seed: int) -> None:
    """Student's t with two degrees of freedom; k-means starts alone end 6 and 21 % above."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2, (1500, 5))
    site = rng.integers(5, size=1500)
    pooled = float(central_fuzzy_cmeans(X, 8, 2.0, n_init=5, tol=1e-5).last_pass.errors.sum())
    model = FederatedFuzzyCMeans(8, random_state=seed - 100).fit(X, sites=site)
    assert model.inertia_ <= pooled * 1.0005


# The whole


def test_canonical_order_is_by_falling_weight_then_by_coordinates() -> None:
    centers = np.array([[1.0, 0.0], [0.0, 9.0], [0.0, 1.0], [5.0, 5.0]])
    state = canonical(State(centers, np.array([2.0, 2.0, 2.0, 3.0])), Lloyd())
    assert_array_equal(state.centers, [[5, 5], [0, 1], [0, 9], [1, 0]])
    assert_array_equal(state.weights, [3, 2, 2, 2])


def test_rounding_puts_no_cluster_before_another() -> None:
    centers = np.array([[0.5, 2.0], [0.5, -3.0], [4.0, 0.0]])
    noise = np.array([[3e-14, 0.0], [-3e-14, 0.0], [0.0, 0.0]])
    for sign in (-1.0, 1.0):
        weights = 100.0 + 1e-12 * sign * np.array([1.0, -1.0, 0.0])
        state = canonical(State(centers + sign * noise, weights), Lloyd())
        assert_allclose(state.centers, centers[[1, 0, 2]], atol=1e-12)


def test_a_given_start_keeps_its_order_and_is_the_only_one() -> None:
    X = on_line(0, 1, 10, 11, 12)
    given = run_plan(clustering(fit_of(2, init=on_line(0, 11))), engine(X))
    assert_allclose(given.value.state.centers, on_line(0.5, 11))
    assert {step for each in steps(given) for step in each} == {"Lloyd", "Inertia"}
    chosen = run_plan(clustering(fit_of(2)), engine(X)).value
    assert_allclose(chosen.state.centers, on_line(11, 0.5))


def test_a_plan_without_a_limit_of_rounds_ends_at_300() -> None:
    class Restless(Lloyd):
        def server_step(self, state: State, *args: Any) -> State:
            return State(state.centers + 1.0, np.ones(1), round=state.round + 1)

    result: Result = run_plan(
        iterate(Restless(), State.at(on_line(0))), engine(on_line(0, 1))
    ).value
    assert len(result.history) == 300


@pytest.mark.parametrize(
    ("rows", "parameters", "groups"),
    [
        ((0, 1, 2, 100, 101, 102), (2,), [3, 3]),
        ((0, 1, 100, 101, 102), (2, 3), [5]),
        ((0, 1), (7,), [1, 1]),
        ((0, 1, 10, 11, 50), (5, 1, 2), [1, 4]),
        ((0, 1, 10, 11, 50), (5, 1, 6), [5]),
        ((0, 0, 0, 4, 9, 9), (6, 2), [2, 4]),
    ],
    ids=str,
)
def test_a_site_s_summaries_by_hand(monkeypatch, rows, parameters, groups):
    """Of as many means as are wanted, or as rows allow; smaller groups are joined; one draw."""
    options: list[dict[str, Any]] = []

    def listening(*args: Any, **given: Any) -> Any:
        options.append(given)
        return kmeans(*args, **given)

    monkeypatch.setattr(summaries, "kmeans", listening)
    answer = SiteSummaries(*parameters).client_step(
        State(), Data(on_line(*rows)), np.random.default_rng(0)
    )
    assert sorted(answer.weights) == groups
    assert [each["n_init"] for each in options] == [1]


def test_many_rows_are_described_by_means_of_leaves() -> None:
    """5000 rows in 2048 leaves; the outlier keeps a mean of its own, and all weights count."""
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(5000, 3)), rng.uniform(0.01, 0.05, 5000)
    X[7] = 1e4
    answer = SiteSummaries(40).client_step(State(), Data(X, weight), rng)
    assert len(answer.weights) == 40
    assert answer.support is not None
    assert answer.support.sum() == 5000
    assert answer.weights.sum() == pytest.approx(weight.sum())
    assert_allclose(answer.sums.sum(axis=0), weight @ X)
    means = answer.sums / answer.weights[:, None]
    far = int(means[:, 0].argmax())
    assert_allclose(means[far], X[7])
    assert answer.support[far] == 1
    again = SiteSummaries(40, 5).client_step(State(), Data(X, weight), np.random.default_rng(0))
    assert again.support is not None
    assert again.support.min() >= 5


def test_rows_without_weight_are_not_described() -> None:
    X, weight = on_line(0, 1, 50), np.array([1.0, 1.0, 0.0])
    answer = SiteSummaries(3).client_step(State(), Data(X, weight), np.random.default_rng(0))
    assert sorted((answer.sums[:, 0] / answer.weights).tolist()) == [0, 1]


def apart(n: int, k: int, d: int) -> tuple[Floats, float]:
    """Return rows of clusters that are apart, and the inertia about their means."""
    rng = np.random.default_rng([n, k, d])
    cluster = rng.permutation(np.arange(n) % k)
    X = (1.5 * rng.normal(size=(k, d)))[cluster] + rng.normal(size=(n, d))
    means = np.stack([X[cluster == j].mean(axis=0) for j in range(k)])
    return X, float(((X - means[cluster]) ** 2).sum())


@pytest.mark.filterwarnings("ignore:only .* clusters have rows")
@pytest.mark.parametrize(
    ("n", "k", "d", "n_sites", "init", "most"),
    [
        (9_000, 300, 48, 2, "auto", 1.002),  # a site's leaves are few beside its means
        (6_000, 300, 48, 2, "auto", 1.002),  # its rows are few enough for restarts
        (12_000, 1200, 24, 12, "auto", 1.06),  # sites with fewer rows than means
        (12_000, 1200, 24, 3, "sums", 1.06),
        (12_000, 1200, 24, 3, "auto", 1.02),  # many means beside those that Ward's method takes
    ],
)
def test_hundreds_of_clusters_in_many_columns_are_found(
    n: int, k: int, d: int, n_sites: int, init: str, most: float
) -> None:
    X, inertia = apart(n, k, d)
    sites = np.random.default_rng(1).integers(n_sites, size=n)
    fit = FederatedKMeans(k, init=init, random_state=0).fit(X, sites=sites)
    assert fit.inertia_ < most * inertia


def test_ward_merges_more_means_than_there_are_clusters() -> None:
    state = State(np.arange(100.0)[:, None] ** 2, np.ones(100))
    few = SeedEffort(most_of_ward=40)
    [fit] = _by_ward(state, _Means.of(state, 50), np.random.default_rng(0), few)
    assert np.count_nonzero(fit.weights) == 50


def test_rows_that_lie_apart_stand_for_those_near_them() -> None:
    X, weights = np.array([[0.0], [0.0], [5.0], [5.2], [9.0]]), np.array([1.0, 2.0, 1.0, 1.0, 1.0])
    found = summaries.Points.apart(Data(X, weights), np.random.default_rng(0), 3)
    order = np.argsort(found.X[:, 0])
    assert_allclose(found.X[order, 0], [0.0, 5.1, 9.0])
    assert found.weights[order].tolist() == [3.0, 2.0, 1.0]
    assert found.counts[order].tolist() == [2.0, 2.0, 1.0]
    every = summaries.Points.apart(Data(X, weights), np.random.default_rng(0), 40)
    assert sorted(every.X[:, 0]) == [0.0, 5.0, 5.2, 9.0]
