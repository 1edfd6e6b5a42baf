"""Trimmed k-means from sums and counts is the pooled one, to the row."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from partitions import InChunks
from typer.testing import CliRunner

from fedcluster import Client, FederatedFuzzyCMeans, FederatedKMeans, Task
from fedcluster.algorithms import Lloyd, TrimmedLloyd
from fedcluster.algorithms.trimmed import RadiusSearch
from fedcluster.core import Data, State, Summary
from fedcluster.core.task import stream
from fedcluster.errors import HeldBackError, InputError
from fedcluster.metrics.silhouettes import ClusterSilhouettes
from fedcluster.model import Model
from fedcluster.recipes._trimming import kept_weights, trimmed_seeds
from fedcluster_app.cli import app

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


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("how", [{}, {"sums_only": True}], ids=str)
def test_it_is_a_pooled_trimmed_k_means(seed: int, how: dict[str, Any]) -> None:
    rows = drawn(seed)
    sites = rows[:, 0].argsort().argsort() * 4 // len(rows)  # each its own strip
    model = FederatedKMeans(5, trim=0.05, tol=0, random_state=0, **how).fit(rows, sites=sites)
    assert (model.labels_ == -1).sum() == 20
    again, error = pooled_step(rows, model.cluster_centers_, 380)
    np.testing.assert_allclose(again, model.cluster_centers_, atol=1e-10)
    assert model.inertia_ == pytest.approx(error, rel=1e-9)
    assert model.inertia_ <= 1.001 * pooled(rows, 5, 380)
    assert model.cluster_weights_.sum() == 380
    assert model.stop_reason_.startswith("converged after")
    assert len(model.history_) <= 60


def test_rows_that_are_kept_are_the_nearest_ones() -> None:
    rows = drawn()
    model = FederatedKMeans(5, trim=0.1, random_state=0).fit(rows, sites=np.arange(400) % 3)
    squared = model.transform(rows).min(axis=1)
    left_out = model.labels_ == -1
    assert left_out.sum() == 40
    assert squared[left_out].min() > squared[~left_out].max()
    assert (model.transform(rows).argmin(axis=1) == model.labels_)[~left_out].all()
    assert (model.predict(rows) == model.labels_).all()


def test_weights_are_copies_of_rows() -> None:
    """A row of weight 2 is two rows, and a share of the weight is left out."""
    rows, weights = drawn(1, 200, 3, 10), np.repeat([1.0, 2.0], 100)
    sites, start = np.arange(200) % 3, drawn(1, 200, 3, 10)[100:103]
    given: dict[str, Any] = {"trim": 0.1, "init": start, "tol": 0, "random_state": 0}
    one = FederatedKMeans(3, **given).fit(rows, sites=sites, sample_weight=weights)
    copied = np.repeat(np.arange(200), weights.astype(int))
    other = FederatedKMeans(3, **given).fit(rows[copied], sites=sites[copied])
    np.testing.assert_allclose(one.cluster_centers_, other.cluster_centers_, atol=1e-10)
    assert one.inertia_ == pytest.approx(other.inertia_)
    kept = weights[one.labels_ >= 0].sum()
    assert kept - 2 < 270 <= kept == (other.labels_ >= 0).sum()


def test_a_round_by_hand() -> None:
    """Rows 0, 1, 3 and 10 about centres 0 and 4, within a radius of 3.

    Distances 0, 1, 1 and 6: the squares 0, 1, 1 lie within 9, and 36 does not.
    """
    step, rows = TrimmedLloyd(0.25), Data(np.array([[0.0], [1.0], [3.0], [10.0]]))
    edges = np.array([0.5, 1.0, 40.0, *np.arange(41.0, 69.0)])
    memory = {"radius": np.array([9.0]), "edges": edges, "seen": np.zeros(1)}
    state = State.at([[0.0], [4.0]])
    asked = State(state.centers, state.weights, memory=memory)
    answer = step.client_step(asked, rows, stream(0, 0))
    assert answer.sums[:2].tolist() == [[1.0, 1.0], [3.0, 1.0]]
    assert answer.weights[:6].tolist() == [2.0, 1.0, 1.0, 2.0, 1.0, 0.0]
    after = step.server_step(asked, [answer], stream(0, 0))
    assert after.centers.tolist() == [[0.5], [3.0]]
    assert after.memory["radius"] == [1.0]  # the smallest edge with three of four rows
    assert after.memory["seen"] == [4.0]
    assert after.memory["edges"][[0, -1]].tolist() == [0.0, 2.0]  # 0.5 to 1, and twice aside
    held = State(asked.centers, asked.weights, memory={**memory, "radius": np.zeros(1)})
    counted = step.client_step(held, rows, stream(0, 0))
    assert not counted.weights[:2].any()  # no sums are asked for
    assert step.server_step(held, [counted], stream(0, 0)).centers.tolist() == [[0.0], [4.0]]


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
    rows = Data(np.array([[0.0], [4.0], [10.0], [10.5], [900.0]]))
    memory = {"radius": np.array([9.0]), "edges": np.arange(31.0), "seen": np.zeros(1)}
    asked = State(np.array([[2.0], [10.0], [903.0]]), np.zeros(3), memory=memory)
    asked.memory["radius"][0] = 5.0
    step = TrimmedLloyd(0.2)
    after = step.server_step(asked, [step.client_step(asked, rows, stream(0, 0))], stream(0, 0))
    assert after.centers[:2].tolist() == [[2.0], [10.25]]
    assert 0 < abs(after.centers[2, 0] - 2.0) < 0.1


def test_without_trimming_it_is_lloyd() -> None:
    rows, start = drawn(), drawn()[50:54]
    memory = {"radius": np.array([1e9]), "edges": np.arange(31.0), "seen": np.zeros(1)}
    asked = State(start, np.zeros(4), memory=memory)
    data, rng = Data(rows), stream(0, 0)
    one = TrimmedLloyd(0.0).server_step(
        asked, [TrimmedLloyd(0.0).client_step(asked, data, rng)], rng
    )
    other = Lloyd().server_step(asked, [Lloyd().client_step(asked, data, rng)], rng)
    np.testing.assert_allclose(one.centers, other.centers, rtol=1e-12)
    assert one.inertia == pytest.approx(other.inertia)


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
    state = State(points, np.ones(62))
    for start in trimmed_seeds(state, 3, 0.1, 4, np.random.default_rng(0)):
        assert (np.abs(start.centers) < 5).all()
        assert start.weights.sum() == pytest.approx(0.9 * 62)


def test_without_a_description_there_is_no_start() -> None:
    with pytest.raises(HeldBackError, match="no site described its rows"):
        trimmed_seeds(State(), 3, 0.1, 4, np.random.default_rng(0))


def test_kept_weights_are_the_nearest_ones() -> None:
    kept = kept_weights(np.array([3.0, 1.0, 2.0]), np.array([1.0, 5.0, 2.0]), 0.25)
    assert kept.tolist() == [0.0, 5.0, 1.0]


def test_an_answer_of_no_rows_is_zeros() -> None:
    none = TrimmedLloyd(0.1).client_step(State.at([[0.0]]), Data(np.zeros((0, 1))), stream(0, 0))
    assert isinstance(none, Summary)
    assert not none.weights.any()


def test_the_model_file_keeps_the_radius(tmp_path: Path) -> None:
    rows = drawn()
    model = FederatedKMeans(5, trim=0.05, random_state=0).fit(rows, sites=np.arange(400) % 3)
    Model.from_estimator(model).save(tmp_path / "model.json")
    assert json.loads((tmp_path / "model.json").read_text())["algorithm"]["trim"] == 0.05
    again = Model.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict(rows), model.labels_)


def test_the_command_trims(tmp_path: Path) -> None:
    rows = drawn()
    for name, part in (("north", rows[:200]), ("south", rows[200:])):
        np.savetxt(tmp_path / f"{name}.csv", part, delimiter=",", header="x,y", comments="")
    files = [str(tmp_path / f"{name}.csv") for name in ("north", "south")]
    given = ["fit", *files, "-k", "5", "--set", "fit.trim=0.05", "--scale", "none", "--seed", "3"]
    done = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0
    labels = [
        np.loadtxt(path, delimiter=",", skiprows=1)[:, 1]
        for path in sorted((tmp_path / "out" / "labels").glob("*.csv"))
    ]
    assert (np.concatenate(labels) == -1).sum() == 20
    refused = CliRunner().invoke(app, [*given, "--fuzzy", "--out", str(tmp_path / "no")])
    assert refused.exit_code != 0
    assert "--fuzzy is for fuzzy clusters, not for trimmed k-means (fit.trim)" in refused.stderr


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"trim": 0.6}, "trim must be from 0 to 0.5, not 0.6"),
        ({"trim": -0.1}, "trim must be from 0 to 0.5, not -0.1"),
        ({"participation": 0.5}, "participation is for other fits, not for trimmed k-means .trim"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_refused(how: dict[str, Any], why: str) -> None:
    given = {"n_clusters": 3, "trim": 0.1, "random_state": 0, **how}
    with pytest.raises(InputError, match=why):
        FederatedKMeans(**given).fit(drawn(), sites=np.arange(400) % 3)


def test_fuzzy_clusters_have_no_trim() -> None:
    assert "trim" not in FederatedFuzzyCMeans().get_params()


def test_a_site_in_chunks_answers_as_one() -> None:
    """Client additive: over chunks of its rows, from states of a run."""
    rows, step = drawn(), TrimmedLloyd(0.05)
    state = State.at(rows[50:55])
    for _ in range(6):
        data = [Data(rows[:150]), Data(rows[150:])]
        parts = [step.client_step(state, each, stream(0, 0)) for each in data]
        one = step.client_step(state, Data(rows), stream(0, 0))
        np.testing.assert_allclose((parts[0] + parts[1]).sums, one.sums, rtol=1e-10, atol=1e-8)
        np.testing.assert_array_equal((parts[0] + parts[1]).weights, one.weights)
        state = step.server_step(state, [one], stream(0, 0))


def test_what_is_missing_of_the_kept_weight_counts_at_the_radius() -> None:
    """Three of 0 1 2 50 are to be kept; within r^2 = 1/4 of 1 lies one, and two count 1/4 each."""
    edges = np.linspace(0.125, 4.0, 31)
    edges[0] = 0.25
    memory = {"radius": np.array([0.25]), "edges": edges, "seen": np.array([4.0])}
    step, state, rng = (
        TrimmedLloyd(0.25),
        State(np.array([[1.0]]), np.zeros(1), memory=memory),
        stream(0, 0),
    )
    answer = step.client_step(state, Data(np.array([[0.0], [1.0], [2.0], [50.0]])), rng)
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
