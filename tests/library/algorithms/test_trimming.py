"""Trimmed k-means from sums and counts is the pooled one, to the row."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from partitions import InChunks, on_line

from fedcluster import Client, FederatedFuzzyCMeans, FederatedKMeans, Task
from fedcluster.algorithms import TrimmedLloyd
from fedcluster.algorithms.trimmed import RadiusSearch
from fedcluster.core import Data, State, Summary
from fedcluster.core.task import stream
from fedcluster.errors import HeldBackError, InputError
from fedcluster.metrics.silhouettes import ClusterSilhouettes
from fedcluster.recipes._trimming import kept_weights, trimmed_seeds

Rows = NDArray[np.float64]


def drawn(seed: int = 0, n: int = 400, k: int = 5, outliers: int = 20) -> Rows:
    """Clouds, and some rows in a wide box."""
    rng = np.random.default_rng(seed)
    rows = 8 * rng.normal(size=(k, 2))[rng.integers(k, size=n)] + rng.normal(size=(n, 2))
    rows[:outliers] = rng.uniform(-80, 80, (outliers, 2))
    return rows


def pooled_step(rows: Rows, centers: Rows, n_kept: int) -> tuple[Rows, float]:
    """One concentration step on rows in one place: the new centres, and the error before it."""
    squared = ((rows[:, None] - centers) ** 2).sum(axis=2)
    kept = np.argsort(squared.min(axis=1), kind="stable")[:n_kept]
    labels = squared.argmin(axis=1)
    new = centers.copy()
    for j in np.unique(labels[kept]):
        new[j] = rows[kept][labels[kept] == j].mean(axis=0)
    return new, float(squared.min(axis=1)[kept].sum())


def pooled(rows: Rows, k: int, n_kept: int, restarts: int = 60) -> float:
    """The least error of trimmed k-means on rows in one place, from many random starts."""
    rng, errors = np.random.default_rng(0), []
    for _ in range(restarts):
        centers, before = rows[rng.choice(len(rows), k, replace=False)], np.inf
        for _ in range(100):
            centers, error = pooled_step(rows, centers, n_kept)
            if error == before:
                break
            before = error
        errors.append(error)
    return min(errors)


@pytest.mark.parametrize(("seed", "how"), [(0, {}), (1, {"sums_only": True}), (2, {})], ids=str)
def test_it_is_a_pooled_trimmed_k_means(seed: int, how: dict[str, Any]) -> None:
    rows = drawn(seed)
    sites = rows[:, 0].argsort().argsort() * 4 // len(rows)  # each its own strip
    model = FederatedKMeans(5, trim=0.05, tol=0, random_state=0, **how).fit(rows, sites=sites)
    assert (model.labels_ == -1).sum() == 20
    np.testing.assert_array_equal(model.predict(rows), model.labels_)
    again, error = pooled_step(rows, model.cluster_centers_, 380)
    np.testing.assert_allclose(again, model.cluster_centers_, atol=1e-10)
    assert model.inertia_ == pytest.approx(error, rel=1e-9)
    assert model.inertia_ <= 1.001 * pooled(rows, 5, 380)
    assert model.cluster_weights_.sum() == 380
    assert model.stop_reason_.startswith("converged after")
    assert len(model.history_) <= 60


def test_a_round_by_hand() -> None:
    """Rows 0, 1, 3 and 10 about centres 0 and 4, within a radius of 3.

    Distances 0, 1, 1 and 6: the squares 0, 1, 1 lie within 9, and 36 does not.
    """
    step, rows, rng = TrimmedLloyd(0.25), Data(on_line(0, 1, 3, 10)), stream(0, 0)
    edges = np.array([0.5, 1.0, 40.0, *np.arange(41.0, 69.0)])
    memory = {"radius": np.array([9.0]), "edges": edges, "seen": np.zeros(1)}
    asked = State(on_line(0, 4), np.zeros(2), memory=memory)
    answer = step.client_step(asked, rows, rng)
    assert answer.sums[:2].tolist() == [[1.0, 1.0], [3.0, 1.0]]
    assert answer.weights[:6].tolist() == [2.0, 1.0, 1.0, 2.0, 1.0, 0.0]
    after = step.server_step(asked, [answer], rng)
    assert after.centers.tolist() == [[0.5], [3.0]]
    assert after.memory["radius"] == [1.0]  # the smallest edge with three of four rows
    assert after.memory["seen"] == [4.0]
    assert after.memory["edges"][[0, -1]].tolist() == [0.0, 2.0]  # 0.5 to 1, and twice aside
    held = replace(asked, memory={**memory, "radius": np.zeros(1)})
    counted = step.client_step(held, rows, rng)
    assert not counted.weights[:2].any()  # no sums are asked for
    assert step.server_step(held, [counted], rng).centers.tolist() == [[0.0], [4.0]]


def test_it_goes_on_while_the_radius_is_of_another_place() -> None:
    """The centre rests at the mean of all rows, which lie within the radius of its start."""
    rows = Data(np.array([[4.0], [2.0]]), sample_weight=np.array([3.0, 1.0]))
    step, state = TrimmedLloyd(0.25), State.at([[-1.75]])
    while not state.converged:
        state = step.server_step(state, [step.client_step(state, rows, stream(0, 0))], stream(0, 0))
    assert state.centers.tolist() == [[4.0]]
    assert step.assign(state, rows.X).tolist() == [0, -1]


def test_the_search_finds_every_quantile_and_follows_it() -> None:
    rng = np.random.default_rng(3)
    step, rows = TrimmedLloyd(0.3), np.exp(rng.normal(0, 4, (101, 1)))
    state = State.at([[0.0]])
    for scale in (1.0, 1e-6, 1e9):  # the rows come closer, and go away
        data = Data(rows * scale)
        for _ in range(60):
            held = State(state.centers, state.weights, memory={**state.memory})
            answer = step.client_step(held, data, stream(0, 0))
            search = RadiusSearch.after(held, answer, step.trim)
            state = State(held.centers, held.weights, memory=search.memory())
            if search.exact:
                break
        assert search.target == 71.0  # 70.7 of 101 rows
        assert (search.radius >= data.X**2).sum() == 71


def test_a_centre_without_rows_goes_beside_the_largest_error() -> None:
    rows, step, rng = Data(on_line(0, 4, 10, 10.5, 900)), TrimmedLloyd(0.2), stream(0, 0)
    memory = {"radius": np.array([5.0]), "edges": np.arange(31.0), "seen": np.zeros(1)}
    asked = State(on_line(2, 10, 903), np.zeros(3), memory=memory)
    after = step.server_step(asked, [step.client_step(asked, rows, rng)], rng)
    assert after.centers[:2].tolist() == [[2.0], [10.25]]
    assert 0 < abs(after.centers[2, 0] - 2.0) < 0.1


def test_groups_leave_out_nearly_as_many_rows() -> None:
    rows = drawn(2, 1500, 5, 75)
    model = FederatedKMeans(5, trim=0.05, protection="groups", random_state=0)
    model.fit(rows, sites=np.arange(1500) % 5)
    assert 45 <= (model.labels_ == -1).sum() <= 105
    assert (model.labels_[:75] == -1).mean() > 0.8


def test_limits_end_the_search_and_the_fit() -> None:
    rows = drawn(2, 1000, 5, 50)
    model = FederatedKMeans(5, trim=0.05, min_cluster_size=5, random_state=0)
    model.fit(rows, sites=np.arange(1000) % 2)
    assert len(model.history_) <= 100
    assert 25 <= (model.labels_ == -1).sum() <= 75
    assert model.inertia_ > 0


def test_a_start_beside_outliers_is_not_drawn() -> None:
    points = np.vstack([np.random.default_rng(0).normal(size=(60, 2)), [[500.0, 0], [0, 900.0]]])
    state, rng = State(points, np.ones(62)), np.random.default_rng(0)
    for start in trimmed_seeds(state, 3, 0.1, 4, rng):
        assert (np.abs(start.centers) < 5).all()
        assert start.weights.sum() == pytest.approx(0.9 * 62)
    kept = kept_weights(np.array([3.0, 1.0, 2.0]), np.array([1.0, 5.0, 2.0]), 0.25)
    assert kept.tolist() == [0.0, 5.0, 1.0]  # the nearest ones
    with pytest.raises(HeldBackError, match="no site described its rows"):
        trimmed_seeds(State(), 3, 0.1, 4, rng)


def test_an_answer_of_no_rows_is_zeros() -> None:
    none = TrimmedLloyd(0.1).client_step(State.at([[0.0]]), Data(np.zeros((0, 1))), stream(0, 0))
    assert isinstance(none, Summary)
    assert not none.weights.any()


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"trim": -0.1}, "trim must be from 0 to 0.5, not -0.1"),
        ({"participation": 0.5}, "participation is for other fits, not for trimmed k-means .trim"),
        ({"trim": 0.6}, "trim must be from 0 to 0.5, not 0.6"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(how: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        FederatedKMeans(3, **{"trim": 0.1, **how}).fit(drawn(), sites=np.arange(400) % 3)
    assert "trim" not in FederatedFuzzyCMeans().get_params()


def test_what_is_missing_of_the_kept_weight_counts_at_the_radius() -> None:
    """Three of 0 1 2 50 are to be kept; within r^2 = 1/4 of 1 lies one, and two count 1/4 each."""
    edges, step, rng = np.linspace(0.125, 4.0, 31), TrimmedLloyd(0.25), stream(0, 0)
    edges[0] = 0.25
    memory = {"radius": np.array([0.25]), "edges": edges, "seen": np.array([4.0])}
    state = State(np.array([[1.0]]), np.zeros(1), memory=memory)
    answer = step.client_step(state, Data(on_line(0, 1, 2, 50)), rng)
    assert answer.weights[0] == 1
    assert answer.sums[0, 1] == 0
    assert step.server_step(state, [answer], rng).inertia == 0.25 * (3 - 1)


def test_a_site_all_of_whose_rows_are_in_no_cluster_answers_from_chunks_as_from_memory() -> None:
    """Also in a chunk alone; nothing tells such a site from others by an error."""

    class OfNone:
        """A preparation that leaves rows above 1 in no cluster."""

        n_columns_out, offset_rows = 1, np.inf

        def apply(self, data: Data) -> Data:
            kept = data.take(data.X[:, 0] <= 1)
            return replace(kept, assigned=np.zeros(len(kept), np.int32))

    how: Any = OfNone()
    for X in (np.array([[9.0], [8.0], [7.0]]), np.array([[9.0], [0.0], [0.5]])):
        task = Task(ClusterSilhouettes(), State.at([[0.0], [1.0]]), preprocessor=how)
        data = Data(X)
        whole = Client("north", data, ()).answer(task)
        parts = Client("north", InChunks(data, 1), ()).answer(task)
        np.testing.assert_allclose(parts.sums, whole.sums)
        np.testing.assert_array_equal(parts.weights, whole.weights)
