"""Leaves that hold all rows, clusters and mixtures that are made of them, and what is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.datasets import load_iris

from fedcluster import FederatedGaussianMixture
from fedcluster.algorithms import GaussianMixture, MergedMixture
from fedcluster.algorithms.gaussian_mixture import merged_state
from fedcluster.core import Column, Data, State
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.jobs import execute, fit_of, model_of
from fedcluster.metrics.external import adjusted_rand_index
from fedcluster.metrics.gaussians import PresentValues, densities, variance_within
from fedcluster.metrics.leaves import LeafMoments, Leaves, begun
from fedcluster.mixtures import on_leaves
from fedcluster.mixtures.on_leaves import LeafRows, Loss, Parts, Search, agglomerated, leaves_plan
from fedcluster.mixtures.table import KINDS, Kind, Table, table_plan, with_noise
from fedcluster.preprocessing import Category, NumericColumn, PreprocessingSpec, Preprocessor
from fedcluster.privacy import Groups
from fedcluster.recipes import _mixtures
from fedcluster.rounds import run_plan, with_preprocessing
from fedcluster.selection._mixtures import EFFORT, confirmed_plan, likely_mixtures
from fedcluster.selection.sweep import _agree, _by_means

HOW = Preprocessor(
    (
        NumericColumn("age", shift=50.0, scale=9.0),
        NumericColumn("weight", shift=70.0, scale=3.0),
        NumericColumn("group", shift=4.0, scale=2.0),
        Category("ward", ("a", "b", "c"), scale=2.0),
    )
)


def wards(n: int = 90) -> tuple[Table, np.ndarray, np.ndarray]:
    """What is known of two numbers, one of two values and a text; the rows as mixtures see them."""
    rng = np.random.default_rng(5)
    kind = rng.integers(0, 3, n)
    numbers = np.array([[30.0, 60], [50, 75], [70, 60]])[kind] + rng.normal(0, [4, 2], (n, 2))
    X = np.column_stack(
        [numbers, np.where(kind == 1, 2.0, 6.0), (kind + rng.integers(0, 2, n)) % 3]
    )
    columns = (*map(Column, ("age", "weight", "group")), Column("ward", "text", ("a", "b", "c")))
    engine = LocalEngine([Client(str(i), Data(X[i::2], columns=columns), ()) for i in (0, 1)])
    table: Table = run_plan(with_preprocessing(table_plan(HOW), HOW), engine).value
    table = run_plan(with_preprocessing(with_noise(table), HOW), engine).value
    assert table.preprocessor is not None
    seen = np.asarray(table.preprocessor.apply(Data(X, columns=columns)).X, dtype=np.float64)
    return table, seen, rng.uniform(0.5, 2.0, n)


def of_rows(table: Table, seen: np.ndarray, weights: np.ndarray) -> Leaves:
    """A leaf of each row."""
    p = table.n_numbers
    return Leaves(weights, seen, np.zeros((len(seen), p, p)))


def fitted(kind: Kind, rows: LeafRows, k: int = 3) -> State:
    """A mixture of which each component is one of the clusters that leaves are cut into."""
    count, centers = len(rows.leaves.weights), rows.leaves.means[:k]
    hard = np.eye(k + kind[1])[np.arange(count) % k]
    step = rows.table.step(kind)
    return rows.next(step, rows.table.start(step, centers), hard, np.zeros(count))


def same_state(one: State, other: State) -> None:
    assert_allclose(one.centers, other.centers, atol=1e-9)
    assert_allclose(one.weights, other.weights, rtol=1e-9)
    assert_allclose(one.inertia, other.inertia, rtol=1e-9)
    assert one.memory.keys() == other.memory.keys()
    for name, each in one.memory.items():
        assert_allclose(each, other.memory[name], rtol=1e-6, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mixture_of_leaves_of_one_row_each_is_that_of_the_rows(kind: Kind) -> None:
    """With a text, a column of two values, weights, and noise: a step of both is the same."""
    table, seen, weights = wards()
    rows, step = LeafRows(of_rows(table, seen, weights), table), table.step(kind)
    state, rng = fitted(kind, rows), np.random.default_rng(0)
    for _ in range(3):
        of_leaves = rows.next(step, state, *rows.posteriors(step, state))
        answer = step.client_step(state, Data(seen, weights), rng)
        state = table.with_common(step.server_step(state, [answer], rng))
        same_state(of_leaves, state)


@pytest.mark.parametrize("kind", KINDS)
def test_a_leaf_has_the_mean_log_density_of_its_rows_and_adds_what_they_add(kind: Kind) -> None:
    table, seen, weights = wards()
    single, step = LeafRows(of_rows(table, seen, weights), table), table.step(kind)
    labels = (np.arange(len(seen)) % 12).astype(np.intc)
    rows = LeafRows(single.leaves.merged(labels, 12, single.numeric), table)
    state = fitted(kind, single)
    logs = single.logs(step, state) * weights[:, None]
    sums = np.array([logs[labels == i].sum(axis=0) for i in range(12)])
    assert_allclose(rows.logs(step, state), sums / rows.leaves.weights[:, None], rtol=1e-8)
    tau, likelihood = rows.posteriors(step, state)
    alike = single.next(step, state, tau[labels], likelihood[labels])
    same_state(rows.next(step, state, tau, likelihood), alike)


def asked(table: Table, seen: np.ndarray, k: int = 7) -> State:
    return begun(seen[:k], table.unit, table.texts)


@pytest.mark.parametrize("products", [True, False])
def test_leaves_have_the_moments_of_the_rows_nearest_to_their_points(products: bool) -> None:
    table, seen, weights = wards()
    state, step, rng = asked(table, seen), LeafMoments(products), np.random.default_rng(0)
    parts = [Data(seen[i::2], weights[i::2]) for i in (0, 1)]
    total = step.client_step(state, parts[0], rng) + step.client_step(state, parts[1], rng)
    found = Leaves.from_total(step, state, total, table.covariance, 0.0)
    apart = (seen[:, None] - state.centers) / table.unit
    labels = (apart**2).sum(axis=2).argmin(axis=1).astype(np.intc)
    numeric = np.flatnonzero(table.texts == 0)
    exact = of_rows(table, seen, weights).merged(labels, 7, numeric)
    assert_allclose(found.weights, exact.weights)
    assert_allclose(found.means, exact.means, atol=1e-12)
    variances = np.einsum("lii->li", exact.covariances)
    if products:
        assert_allclose(found.covariances, exact.covariances, atol=1e-9)
        return
    assert_allclose(np.einsum("lii->li", found.covariances), variances, atol=1e-9)
    share = exact.weights / exact.weights.sum()
    centered = exact.means[:, numeric] - share @ exact.means[:, numeric]
    between = table.covariance - (centered.T * share) @ centered
    off = ~np.eye(len(numeric), dtype=bool)
    assert_allclose(found.covariances[:, off], np.broadcast_to(between[off], (7, off.sum())))


def test_leaves_of_groups_have_the_variance_within_the_groups() -> None:
    """The rows of a group count as at its mean, with the variance that all groups share."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3)) * [1.0, 5.0, 2.0]
    grouped = Client("one", Data(X), (), Groups(5)).data
    state = begun(np.zeros((1, 3)), np.ones(3), np.zeros(3))
    total = LeafMoments().client_step(state, grouped, rng)
    leaves = Leaves.from_total(LeafMoments(), state, total, np.eye(3), 0.0)
    means = np.asarray(grouped.X)
    within = (
        np.diag(leaves.covariances[0])
        - np.cov(means.T, aweights=grouped.sample_weight, ddof=0).diagonal()
    )
    assert np.allclose(within, np.asarray(variance_within(grouped)))
    assert (within > 0.05 * X.var(axis=0)).all()


def test_leaves_of_rows_with_gaps_have_the_moments_of_what_is_there() -> None:
    rng = np.random.default_rng(2)
    X = np.concatenate([rng.normal(size=(60, 2)), 20 + rng.normal(size=(60, 2))])
    X[rng.random(X.shape) < 0.3] = np.nan
    X = X[~np.isnan(X).all(axis=1)]
    step, state = (
        LeafMoments(gaps=True),
        begun(np.array([[1.0, 1], [18, 18]]), np.ones(2), np.zeros(2)),
    )
    total = step.client_step(state, Data(X), rng)
    leaves = Leaves.from_total(step, state, total, np.eye(2), 0.0)
    for i, part in enumerate((X[np.nanmax(X, axis=1) < 10], X[np.nanmax(X, axis=1) > 10])):
        assert leaves.weights[i] == len(part)
        assert_allclose(leaves.means[i], np.nanmean(part, axis=0), atol=1e-10)
        assert_allclose(np.diag(leaves.covariances[i]), np.nanvar(part, axis=0), atol=1e-9)
    assert_allclose(np.asarray(leaves.missing), np.isnan(X).mean(axis=0), atol=1e-12)


def test_groups_bound_the_parameters_of_what_is_judged() -> None:
    """Thirty means of five rows were nine clusters with 134 parameters, of 150 rows."""
    X, _ = load_iris(return_X_y=True)
    X = X[np.random.default_rng(5).permutation(len(X))]
    engine = LocalEngine(Client(str(i), Data(X[i::3]), (), Groups(5)) for i in range(3))
    found = execute(fit_of("auto", prepare=PreprocessingSpec()), engine).outcome.value
    assert found.n_clusters in (2, 3)
    assert any("22 rows, persons or groups are few for" in each for each in found.warnings)


@pytest.mark.thorough
def test_rows_of_a_person_count_as_one() -> None:
    """Of three kinds; as rows alone, whoever is far from others would be a cluster."""
    rng = np.random.default_rng(7)
    kind, whose = rng.integers(3, size=60), np.repeat(np.arange(60), 15)
    means = np.array([[0, 0, 0, 0], [6, 0, 0, 0], [0, 6, 6, 0]])[kind]
    own = means + 0.8 * rng.normal(size=means.shape)
    X = own[whose] + 0.4 * rng.normal(size=(900, 4))
    found = []
    for groups in (whose, None):
        parts = [
            Data(X[whose % 3 == i], groups=None if groups is None else groups[whose % 3 == i])
            for i in range(3)
        ]
        engine = LocalEngine(Client(str(i), part, ()) for i, part in enumerate(parts))
        report = execute(fit_of("auto", prepare=PreprocessingSpec()), engine)
        found.append((report.outcome.value.n_clusters, model_of(report).predict(X)))
    assert found[0][0] == 3 < found[1][0]
    assert len(np.unique(np.c_[kind[whose], found[0][1]], axis=0)) == 3


@pytest.mark.parametrize("sizes", [(300, 300, 300, 300), (90, 200, 360, 550)])
def test_leaves_part_clusters_that_few_of_many_columns_tell(sizes: Sequence[int]) -> None:
    """In units of all rows, the 57 columns of noise decide which point is nearest."""
    rng, corners = np.random.default_rng(40), np.array([[0, 0, 0], [7, 0, 1], [0, 7, 2], [1, 1, 8]])
    y = np.repeat(np.arange(4), sizes)
    X = np.hstack([corners[y] + rng.normal(size=(1200, 3)), rng.normal(size=(1200, 57))])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    engine = LocalEngine(Client(str(i), Data(X[i::2]), ()) for i in (0, 1))
    table, rows = run_plan(leaves_plan(None), engine).value
    assert (table.between[:3] > 0.5).all()
    assert (table.between[3:] == 0).all()
    leaf = cdist(X / table.unit, rows.leaves.means / table.unit).argmin(axis=1)
    shared = np.zeros((4, len(rows.leaves.weights)))
    np.add.at(shared, (y, leaf), 1.0)
    assert shared.max(axis=0).sum() >= 0.98 * len(X)


def test_a_small_leaf_is_part_of_the_nearest_one_in_units() -> None:
    means = np.array([[0.0, 0.0], [30.0, 9.0], [20.0, 0.0]])
    leaves = Leaves(np.array([9.0, 9.0, 1.0]), means, np.zeros((3, 2, 2)))
    numeric = np.arange(2)
    assert_allclose(leaves.joined(np.ones(2), numeric, 5.0).weights, [9, 10])
    assert_allclose(leaves.joined(np.array([100.0, 1.0]), numeric, 5.0).weights, [10, 9])


def test_a_leaf_is_halved_along_its_first_axis_in_units() -> None:
    unit, turn = np.array([100.0, 2.0]), np.array([[0.6, -0.8], [0.8, 0.6]])
    own = turn @ np.diag([9.0, 1.0]) @ turn.T * unit[:, None] * unit
    leaf = Leaves(np.array([50.0]), np.array([[5.0, 7.0]]), own[None])
    points = leaf.halved(2, unit, np.arange(2), 5.0)
    step = np.sqrt(2 * 9.0 / np.pi) * turn[:, 0] * unit
    assert_allclose(
        np.sort(points, axis=0), np.sort([leaf.means[0] - step, leaf.means[0] + step], axis=0)
    )


def test_columns_alike_but_for_rounding_are_halved_by_their_place() -> None:
    """An eigendecomposition sorts them by their last digits, which the order of rows decides."""
    rng, halved = np.random.default_rng(0), []
    for _ in range(4):
        variances = 1 + np.finfo(float).eps * rng.integers(-3, 4, 7)
        leaf = Leaves(np.array([50.0]), np.zeros((1, 7)), np.diag(variances)[None])
        halved.append(leaf.halved(8, np.ones(7), np.arange(7), 5.0).round(9))
    assert np.count_nonzero(halved[0][0]) == 3
    for each in halved[1:]:
        assert_array_equal(np.unique(each, axis=0), np.unique(halved[0], axis=0))


def test_rows_that_weigh_2_are_described_by_the_leaves_of_twice_as_many_rows() -> None:
    rows, leaves = np.random.default_rng(3).normal(size=(60, 4)), list[Any]()
    step, often = GaussianMixture("diag"), np.arange(60) % 3
    for X, weight in ((rows, often.astype(float)), (np.repeat(rows, often, axis=0), None)):
        engine = LocalEngine([Client("a", Data(X, weight), ())])
        spec = fit_of(3, model="mixture").at(engine.introduce())
        plan = _mixtures._described(step, spec, None)  # noqa: SLF001
        leaves.append(run_plan(plan, engine).value[1].leaves)
    assert_array_equal(leaves[0].weights, leaves[1].weights)
    assert_allclose(leaves[0].means, leaves[1].means, rtol=1e-9)


# Leaves that are joined


def loss_by_hand(members: Sequence[int], parts: Parts, prior: np.ndarray, criterion: str) -> float:
    """Of a cluster of leaves, from the formulas at the top of the module."""
    w, x = parts.weights[[*members]], parts.means[[*members]]
    n, p = w.sum(), x.shape[1]
    apart = x - w @ x / n
    between = (apart.T * w) @ apart
    wide = parts.scatters.ndim == 2
    scatter = parts.scatters[[*members]].sum(axis=0) + (np.diag(between) if wide else between)
    trace = scatter.sum() if wide else np.trace(scatter)
    shrunk = (scatter + (p + 2) * prior) / (n + p + 2)
    log_det = np.log(shrunk).sum() if wide else np.linalg.slogdet(shrunk)[1]
    unit = (prior if wide else np.diag(prior)).mean()
    loss = trace / (2 * unit) if criterion == "ward" else n / 2 * log_det
    for counts in parts.counts:
        own, shares = counts[[*members]].sum(axis=0), counts.sum(axis=0) / parts.weights.sum()
        loss -= (own * np.log((own + shares / 2) / (own.sum() + 0.5))).sum()
    return float(loss)


def prior_by_hand(parts: Parts) -> np.ndarray:
    """Half the pooled covariance of the leaves, half that of all rows in a leaf's volume."""
    (count, p), share = parts.means.shape, parts.weights / parts.weights.sum()
    apart = parts.means - share @ parts.means
    within, between = parts.scatters.sum(axis=0) / parts.weights.sum(), (apart.T * share) @ apart
    between = np.diag(between) if within.ndim == 1 else between
    return np.asarray(within / 2 + (within + between) * count ** (-2 / p) / 2)


@pytest.mark.parametrize("criterion", ["likelihood", "ward"])
@pytest.mark.parametrize("wide", [False, True])
def test_the_two_clusters_are_joined_that_lose_least(criterion: Any, wide: bool) -> None:
    rng = np.random.default_rng(3)
    roots = rng.normal(size=(9, 2, 2))
    w = rng.uniform(3, 9, 9)
    scatters = roots @ np.swapaxes(roots, 1, 2) * w[:, None, None]
    scatters = np.einsum("lii->li", scatters) if wide else scatters
    counts = rng.dirichlet(np.full(3, 0.3), 9) * w[:, None]
    parts = Parts(w, 3 * rng.normal(size=(9, 2)), scatters, [counts])
    found, prior = agglomerated(parts, criterion, 9), prior_by_hand(parts)
    for k in range(9, 1, -1):
        more = [np.flatnonzero(found[k] == i).tolist() for i in range(k)]
        less = {frozenset(np.flatnonzero(found[k - 1] == i).tolist()) for i in range(k - 1)}
        lost = {
            (i, j): loss_by_hand(more[i] + more[j], parts, prior, criterion)
            - loss_by_hand(more[i], parts, prior, criterion)
            - loss_by_hand(more[j], parts, prior, criterion)
            for i, j in combinations(range(k), 2)
        }
        i, j = min(lost, key=lost.__getitem__)
        assert frozenset(more[i] + more[j]) in less


# What is judged


def blobs(k: int, n: int = 60, d: int = 2) -> np.ndarray:
    rng = np.random.default_rng(4)
    return np.asarray(20 * np.arange(k)[:, None, None] + rng.normal(size=(k, n, d))).reshape(-1, d)


def test_rows_of_few_values_have_one_mixture_in_any_order() -> None:
    """Ties between axes, leaves and points are many, and rounding decides none of them."""
    rng = np.random.default_rng([77, 11])
    kind, site = rng.integers(0, 3, 360), rng.integers(0, 4, 360)
    chance = np.where(kind[:, None] == np.arange(4) % 3, 0.9, 0.1)
    rows = (rng.random((360, 4)) < chance).astype(float) * [1.0, 3.0, 0.7, 1.0] + [0, 2, 0.1, -1]
    fit = FederatedGaussianMixture("auto", merge=True, noise=True, prepare="auto", random_state=0)
    one = clone(fit).fit(rows, sites=site)
    found = []
    for _ in range(3):
        order = rng.permutation(360)
        other = clone(fit).fit(rows[order], sites=site[order])
        assert_array_equal(other.labels_, one.labels_[order])
        found.append(other.state_.memory)
    for memory in found:
        for name, each in memory.items():
            assert_allclose(each, one.state_.memory[name], rtol=1e-8, atol=1e-8, err_msg=name)


def test_components_are_in_one_order_whatever_order_they_were_fitted_in() -> None:
    rng = np.random.default_rng(0)
    step = MergedMixture("diag")
    mixture = GaussianMixture("diag").start(
        np.array([[0.0, 1.0], [5.0, 0.0], [0.0, -1.0], [9.0, 9.0]]),
        np.array([7.0, 9.0, 7.0, 3.0]),
        precisions_cholesky=rng.uniform(1.0, 2.0, (4, 2)),
    )
    one = merged_state(step, mixture, [[0, 3], [1, 2]])
    assert one.weights.tolist() == [16.0, 10.0]
    assert one.memory["parts"].tolist() == [9.0, 7.0, 7.0, 3.0]
    assert one.memory["means"].tolist() == [[5.0, 0.0], [0.0, -1.0], [0.0, 1.0], [9.0, 9.0]]
    assert one.memory["cluster"].tolist() == [0.0, 0.0, 1.0, 1.0]
    order = np.array([3, 2, 0, 1])
    memory = {name: each[order] for name, each in mixture.memory.items()}
    turned = replace(
        mixture,
        centers=mixture.centers[order],
        weights=mixture.weights[order] * (1.0 + 1e-15 * rng.normal(size=4)),
        memory=memory,
    )
    other = merged_state(step, turned, [[3, 1], [2, 0]])
    for name, each in one.memory.items():
        assert_allclose(other.memory[name], each, rtol=1e-12, err_msg=name)


def test_merged_components_have_the_shape_and_the_noise_that_were_asked_for() -> None:
    """Rows along an oblique line are likelier under full covariances, and none is noise."""
    rng = np.random.default_rng(6)
    line = rng.normal(size=(300, 1)) * [8.0, 8.0] + rng.normal(size=(300, 2))
    far = rng.uniform(-200, 200, (20, 2))
    rows = np.concatenate([line, far])
    fit = FederatedGaussianMixture("auto", merge=True, covariance_type="diag", noise=True)
    model = fit.fit({"a": rows[::2], "b": rows[1::2]})
    assert model.state_.memory["precisions_cholesky"].ndim == 2
    labels = np.concatenate([model.site_labels_[name] for name in "ab"])
    assert 5 < (labels == -1).sum() < 40


@pytest.mark.parametrize("model", ["k-means", "auto"])
@pytest.mark.parametrize(("k", "ks"), [(5, (2, 3)), (5, (1, 2)), (2, (5, 6))])
@pytest.mark.usefixtures("short_search")
def test_there_are_as_many_clusters_as_may_be_whatever_is_likeliest(k, ks, model):
    rows = blobs(k)
    engine = LocalEngine([Client(name, Data(rows[i::2]), ()) for i, name in enumerate("ab")])
    report = execute(fit_of(ks, model=model), engine, columns=["x", "y"])
    assert len(report.clustering.state.centers) == report.outcome.value.n_clusters
    assert report.outcome.value.n_clusters in ks


def test_clusters_agree_by_the_rows_behind_the_leaves() -> None:
    table, seen, _ = wards()
    weights = np.where(seen[:, 0] > np.median(seen[:, 0]), 50.0, 1.0)
    rows, kind = LeafRows(of_rows(table, seen, weights), table), KINDS[1]
    state, centers = fitted(kind, rows), table.clustered(seen[[0, 1, 5]])
    best = SimpleNamespace(state=state, covariance_type=kind[0], noise=None)
    verdict: Any = SimpleNamespace(mixture=best, groups=((0,), (1,), (2,)))
    by_means: Any = SimpleNamespace(state=State.at(centers))
    near = cdist(table.clustered(seen), centers).argmin(axis=1)
    own = rows.posteriors(table.step(kind), state)[0].argmax(axis=1)
    both = np.zeros((3, 3))
    np.add.at(both, (own, near), weights)
    assert _agree(rows, verdict, by_means) == pytest.approx(adjusted_rand_index(both))
    alike = np.zeros((3, 3))
    np.add.at(alike, (own, near), 1.0)
    assert abs(adjusted_rand_index(both) - adjusted_rand_index(alike)) > 0.01


def test_brief_runs_ask_the_leaves_once_about_each_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do two start from the same clusters, and Ward's method looks at single columns."""
    table, seen, weights = wards()
    calls, scatters, starts = Counter[str](), set[tuple[str, int]](), list[bytes]()
    begin, loss = LeafRows.started, Loss.of

    def looked(own: Loss, parts: Parts) -> Any:
        scatters.add((own.criterion, parts.scatters.ndim))
        return loss(own, parts)

    def started(rows: LeafRows, step: GaussianMixture, k: int, labels: np.ndarray) -> State:
        starts.append(repr((step, k)).encode() + labels.tobytes())
        return begin(rows, step, k, labels)

    def counted(name: str) -> Any:
        call = getattr(LeafRows, name)
        return lambda *given: calls.update([name]) or call(*given)

    for name in ("next", "posteriors"):
        monkeypatch.setattr(LeafRows, name, counted(name))
    monkeypatch.setattr(LeafRows, "started", started)
    monkeypatch.setattr(Loss, "of", looked)
    monkeypatch.setattr(Search, "most", 3)
    monkeypatch.setattr(on_leaves, "_promising", lambda found: [])
    Search(LeafRows(of_rows(table, seen, weights), table), KINDS).likely()
    assert calls["posteriors"] == calls["next"] > 7 * 3 * 3
    assert len(starts) == len(set(starts))
    assert scatters == {("likelihood", 3), ("ward", 2)}


@pytest.mark.parametrize(("n", "p", "kinds"), [(150, 30, 7), (149, 30, 6), (300, 31, 5)])
def test_covariances_of_single_components_are_not_tried_in_many_columns(
    n: int, p: int, kinds: int
) -> None:
    """Of fewer rows than five per column, they are not tried with noise, unless alone."""
    rows: Any = SimpleNamespace(
        table=SimpleNamespace(n_seen=n, n_numbers=p), parts=lambda: None, finer=lambda: None
    )
    assert len(Search(rows, KINDS).kinds) == kinds
    assert Search(rows, [("full", True)]).kinds == [("full", True)]


def test_leaves_count_the_levels_of_texts_and_what_is_left_of_them() -> None:
    """Of a column of 0 and 1 the rows of both, and of a text those of no level that is told."""
    table, seen, weights = wards()
    parts = LeafRows(of_rows(table, seen, weights), table).parts()
    (level,) = np.flatnonzero(table.texts == table.texts.max())
    assert_allclose([each.sum(axis=1) for each in parts.counts], [weights, weights])
    shares = np.stack([seen[:, level], 1 - seen[:, level]], 1)
    assert_allclose(parts.counts[-1], shares * weights[:, None], atol=1e-12)
    assert_allclose(parts.means.std(axis=0), 1.0, rtol=0.2)


def test_k_means_of_leaves_starts_in_the_columns_that_are_clustered() -> None:
    table, seen, weights = wards()
    rows = LeafRows(of_rows(table, seen[:4], weights[:4]), table)
    [task] = next(_by_means(rows, 4, 0, EFFORT))
    assert_allclose(task.state.centers, table.clustered(seen[:4]))
    assert not np.allclose(task.state.centers, seen[:4])


def test_a_number_for_noise_is_its_volume() -> None:
    rows = blobs(2)
    engine = LocalEngine([Client(name, Data(rows[i::2]), ()) for i, name in enumerate("ab")])
    table, _ = run_plan(leaves_plan(None, 0, 900.0), engine).value
    assert table.log_noise == pytest.approx(-np.log(900.0))


def test_components_overlap_by_all_rows_where_only_the_fullest_are_looked_at() -> None:
    """A fifth of the rows lacks none; what these share is scaled to all, unless noise has some."""
    X = blobs(3, 80, 3)
    rng = np.random.default_rng(7)
    X[rng.random(X.shape) < 0.4] = np.nan
    X = X[~np.isnan(X).all(axis=1)]
    columns = tuple(map(Column, "xyz"))
    how = Preprocessor(tuple(NumericColumn(n, shift=20.0, scale=16.0, fill=0.0) for n in "xyz"))
    engine = LocalEngine([Client(str(i), Data(X[i::2], columns=columns), ()) for i in (0, 1)])
    _, rows = run_plan(with_preprocessing(leaves_plan(how), how), engine).value
    likely = [each for each in likely_mixtures(rows, [3])[0] if not each.kind[1]]
    found = run_plan(with_preprocessing(confirmed_plan(rows, likely[:1]), how), engine).value
    [best] = found
    assert_allclose(best.overlaps.sum(axis=1), best.weights, rtol=0.2)
    assert best.overlaps.sum() == pytest.approx(best.weights.sum())


def test_noise_has_its_part_of_a_row_for_each_number_that_is_there() -> None:
    step = GaussianMixture("diag", log_noise=-6.0)
    state = State(np.zeros((1, 3)), np.array([3.0]))
    memory = {"precisions_cholesky": np.ones((1, 3)), "noise": np.array(1.0)}
    model = densities(step, replace(state, memory=memory))
    X = np.array([[1.0, 2, 3], [1, np.nan, 3], [np.nan, 2, np.nan]])
    logs = PresentValues(model, step.log_noise).logs(X)
    assert_allclose(logs[:, 1], np.log(0.25) - np.array([6.0, 4.0, 2.0]))
    squares = np.nansum(X**2, axis=1)
    there = np.array([3, 2, 1])
    assert_allclose(logs[:, 0], np.log(0.75) - there / 2 * np.log(2 * np.pi) - squares / 2)
