"""Spherical k-means: that of the pooled rows, whatever the partition; rows of unit length."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from partitions import Case, cases
from sklearn.cluster import KMeans
from sklearn.preprocessing import normalize
from typer.testing import CliRunner

from fedcluster import Client, Data, FederatedKMeans, LocalEngine, PreprocessingSpec, State
from fedcluster.algorithms import SphericalKMeans
from fedcluster.core import Column, Floats
from fedcluster.errors import InputError
from fedcluster.jobs import Evaluate, execute, fit_of
from fedcluster.metrics import Inertia
from fedcluster.model import Model
from fedcluster.preprocessing import NumericColumn, Preprocessor
from fedcluster.preprocessing.transform import to_unit_length
from fedcluster.rounds import run
from fedcluster_app.cli import app


def cones(seed: int, n: int = 240, d: int = 5) -> Floats:
    """Rows about four directions, of very different lengths."""
    rng = np.random.default_rng(seed)
    towards = np.repeat(np.eye(d)[:4], n // 4, axis=0)
    rows: Floats = (towards + 0.2 * rng.normal(size=(n, d))) * rng.lognormal(0, 2, (n, 1))
    return rows


def pooled(X: Floats, centers: Floats, rounds: int) -> Floats:
    """Dhillon & Modha's algorithm as they write it: largest cosines, sums, lengths."""
    U = X / np.linalg.norm(X, axis=1, keepdims=True)
    C = centers / np.linalg.norm(centers, axis=1, keepdims=True)
    for _ in range(rounds):
        labels = (U @ C.T).argmax(axis=1)
        sums = np.array([U[labels == j].sum(axis=0) for j in range(len(C))])
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        C = np.where(lengths > 0, sums / np.where(lengths > 0, lengths, 1.0), C)
    return C


def parts(X: Floats, seed: int, n_sites: int) -> dict[str, Floats]:
    site = np.random.default_rng(seed).integers(0, n_sites, len(X))
    return {f"s{i}": X[site == i] for i in range(n_sites)}


@pytest.mark.filterwarnings("ignore:stopped at the limit")
@given(seed=st.integers(0, 2**32 - 1), n_sites=st.integers(1, 5), rounds=st.integers(1, 10))
def test_its_centres_are_those_of_the_pooled_rows(seed: int, n_sites: int, rounds: int) -> None:
    X = cones(seed)
    start = X[:: len(X) // 4][:4]
    found = FederatedKMeans(
        4, metric="cosine", algorithm="lloyd", init=start, tol=0.0, max_iter=rounds,
        min_cluster_size=1,
    ).fit(parts(X, seed, n_sites))  # fmt: skip
    expected = pooled(X, start, rounds)
    np.testing.assert_allclose(found.cluster_centers_, expected, atol=1e-12)
    cosines = normalize(X) @ expected.T
    assert found.inertia_ == pytest.approx(2 * (1 - cosines.max(axis=1)).sum(), rel=1e-9)
    np.testing.assert_array_equal(found.predict(X), cosines.argmax(axis=1))


@pytest.mark.parametrize(("seed", "dtype"), [(0, np.float64), (1, np.float32), (2, np.float64)])
def test_its_default_is_as_good_as_k_means_of_unit_rows(seed: int, dtype: type) -> None:
    """Of scikit-learn, whose means are then given the length 1."""
    U = normalize(cones(seed))
    twin = KMeans(4, n_init=10, random_state=0).fit(U)
    reached = 2 * (1 - (U @ normalize(twin.cluster_centers_).T).max(axis=1)).sum()
    found = FederatedKMeans(4, metric="cosine", random_state=0)
    found.fit(parts(cones(seed).astype(dtype), seed, 3))
    assert found.inertia_ <= reached * 1.001
    np.testing.assert_allclose(np.linalg.norm(found.cluster_centers_, axis=1), 1.0, rtol=1e-12)


@given(case=cases())
def test_no_round_raises_the_inertia(case: Case) -> None:
    X = case.pooled.X.astype(np.float64)
    assume(X.any())
    X = normalize(X[X.any(axis=1)])
    engine = LocalEngine([Client("s", Data(X), ())])
    result = run(SphericalKMeans(tol=0.0), engine, State.at(case.centers), max_rounds=20)
    inertias = [done.inertia for done in result.history]
    assert (np.diff(inertias) <= 1e-9).all()


def test_by_hand() -> None:
    """Two rows at right angles have the direction between them; where rows cancel, none."""
    rows = Data(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
    step, rng = SphericalKMeans(), np.random.default_rng(0)
    state = State.at([[5.0, 5.0], [0.0, -0.1]])
    answer = step.client_step(state, rows, rng)
    near = 2 - np.sqrt(2)  # |x - c|^2 at 45 degrees
    np.testing.assert_allclose(answer.sums, [[1, 1, 2 * near], [0, -1, 0]], atol=1e-15)
    after = step.server_step(state, [answer], rng)
    np.testing.assert_allclose(after.centers, [[0.5**0.5, 0.5**0.5], [0, -1]])
    assert after.converged
    opposite = Data(np.array([[0.0, 1.0], [0.0, -1.0]]))
    state = State.at([[1.0, 0.0], [-1.0, 0.0]])
    after = step.server_step(state, [step.client_step(state, opposite, rng)], rng)
    np.testing.assert_array_equal(after.centers, state.centers)
    assert step.objective() == Inertia()


def test_a_row_of_zeros_has_no_label_and_moves_nothing() -> None:
    X = cones(2)
    with_zeros = np.insert(X, [0, 100], 0.0, axis=0)
    a, b = (
        FederatedKMeans(4, metric="cosine", random_state=0).fit({"s": rows, "t": X[::7]})
        for rows in (X, with_zeros)
    )
    np.testing.assert_array_equal(a.cluster_centers_, b.cluster_centers_)
    assert np.flatnonzero(b.site_labels_["s"] < 0).tolist() == [0, 101]
    assert b.predict(np.zeros((1, 5))).tolist() == [-1]
    assert np.isnan(b.transform(np.zeros((1, 5)))).all()
    assert b.score(np.zeros((1, 5))) == 0.0


@pytest.mark.parametrize("missing", ["error", "drop"])
def test_what_is_dropped_has_a_missing_value_or_no_direction(missing: str) -> None:
    how = Preprocessor((NumericColumn("x0"), NumericColumn("x1", shift=1.0)), missing, unit=True)
    data = Data(np.array([[3.0, 5.0], [0.0, 1.0], [0.0, -9.0]]), sample_weight=np.arange(3.0) + 1)
    nan = float("nan")
    np.testing.assert_allclose(how.apply(data).X, np.array([[0.6, 0.8], [0, -1]]))
    assert how.apply(data).sample_weight == pytest.approx([1.0, 3.0])
    np.testing.assert_allclose(how.aligned(data), np.array([[0.6, 0.8], [nan, nan], [0, -1]]))
    assert how.complete(data).tolist() == [True, False, True]
    np.testing.assert_allclose(how.invert(np.array([[0.6, 0.8]])), [[0.6, 1.8]])
    assert Preprocessor.from_plain(json.loads(json.dumps(how.plain()))) == how
    with pytest.raises(TypeError):
        Preprocessor.from_plain({**how.plain(), "unit": 1})
    holes = Data(np.array([[nan, 5.0], [0.0, 1.0], [0.0, 2.0]]))
    if missing == "drop":
        np.testing.assert_allclose(how.aligned(holes), np.array([[nan, nan], [nan, nan], [0, 1]]))
        np.testing.assert_allclose(how.apply(holes).X, np.array([[0, 1]]))
    else:
        with pytest.raises(InputError, match="1 of 3 rows have a missing value"):
            how.apply(holes)


def test_unit_rows_come_after_everything_else() -> None:
    data = Data(np.random.default_rng(3).normal(size=(60, 3)) * [1, 5, 9] + 4)
    job = fit_of(2, prepare=PreprocessingSpec(pca=2), metric="cosine")
    how = execute(job, LocalEngine([Client("s", data)])).preprocessor
    assert how is not None
    assert how.unit
    assert how.principal is not None
    scaled = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    np.testing.assert_allclose(how.apply(data).X, normalize(how.principal.apply(scaled)))


def test_float32_rows_stay_so_and_tiny_and_huge_ones_have_directions() -> None:
    rows = np.array([[3e-30, 4e-30], [3e30, 4e30]], dtype=np.float32)
    assert not to_unit_length(rows).any()
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, [[0.6, 0.8]] * 2, rtol=1e-6)


def test_every_way_in_gives_the_same_clusters() -> None:
    model, other = (FederatedKMeans(4, metric="cosine", random_state=0) for _ in range(2))
    sites = parts(cones(4), 1, 2)
    frames = {name: pd.DataFrame(x, columns=list("abcde")) for name, x in sites.items()}
    model.fit(frames)
    columns = tuple(map(Column, "abcde"))
    clients = [Client(name, Data(x, columns=columns)) for name, x in sites.items()]
    other.fit_clients(clients)
    np.testing.assert_array_equal(other.cluster_centers_, model.cluster_centers_)
    site = np.repeat(list(sites), [len(x) for x in sites.values()])
    other.fit_engine(LocalEngine.from_table(Data(np.concatenate(list(sites.values()))), sites=site))
    np.testing.assert_allclose(other.cluster_centers_, model.cluster_centers_, atol=1e-12)
    scores = execute(Evaluate(Model.from_estimator(model)), LocalEngine(clients)).outcome.value
    assert scores["inertia"] == pytest.approx(model.inertia_)


@pytest.mark.usefixtures("short_search", "here")
def test_the_command_line_writes_a_model_of_directions() -> None:
    X = cones(5)
    X[7] = 0.0
    frames = {name: pd.DataFrame(X[i::2], columns=list("abcde")) for i, name in enumerate("ns")}
    for name, frame in frames.items():
        frame.to_csv(f"{name}.csv", index=False)
    run = CliRunner().invoke
    options = ["n.csv", "s.csv", "--metric", "cosine"]
    ran = run(app, ["fit", *options, "-k", "4", "--scale", "none", "--out", "out"])
    assert ran.exit_code == 0, ran.output
    assert "each row divided by its length; rows of zeros have the label -1" in ran.stdout
    assert "Rows without a cluster (-1): 1 of s." in ran.stdout
    found = FederatedKMeans(4, metric="cosine", random_state=0).fit(frames)
    np.testing.assert_array_equal(Model.load("out").centers, found.cluster_centers_)
    assert Path("out/labels/s.csv").read_text().splitlines()[4] == "4,-1"
    assert "4 clusters" in run(app, ["select-k", *options, "--scale", "none"]).stdout
    ran = run(app, ["fit", *options, "-k", "2", "--fuzzy", "--out", "no"])
    assert ran.exit_code == 2
    line = "--metric cosine is for clusters of directions, not for fuzzy clusters (--fuzzy)"
    assert line in ran.stderr


def test_an_unknown_metric_is_refused() -> None:
    line = "metric must be one of 'euclidean', 'cosine', not 'manhattan'"
    with pytest.raises(ValueError, match=line):
        FederatedKMeans(2, metric="manhattan").fit(cones(0))  # type: ignore[arg-type]


def test_groups_of_rows_are_directions_too() -> None:
    """The mean of a group has a direction; where rows of a group agree, that of its rows."""
    X = np.repeat(cones(7, 80), 5, axis=0)
    how: dict[str, Any] = {"metric": "cosine", "random_state": 0}
    sites = {"n": X[:200], "s": X[200:]}
    with pytest.warns(UserWarning, match="rows are seen in groups"):
        found = FederatedKMeans(4, protection="groups", **how).fit(sites)
    exact = FederatedKMeans(4, **how).fit(sites)
    reached = 2 * (1 - (normalize(X) @ found.cluster_centers_.T).max(axis=1)).sum()
    assert reached <= exact.inertia_ * 1.02
