"""K-means of rows with missing values as they are: that of the pooled rows, nothing filled in."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import nan_euclidean_distances
from typer.testing import CliRunner

from fedcluster import Client, Data, FederatedKMeans, LocalEngine, PreprocessingSpec, State
from fedcluster.algorithms import GaussianMixture, IncompleteKMeans, Lloyd, MergedMixture
from fedcluster.core import Column, Floats, Task
from fedcluster.errors import InputError, PolicyError
from fedcluster.frames.inputs import read_table
from fedcluster.frames.reader import ColumnRoles
from fedcluster.jobs import Evaluate, SelectK, execute, fit_of, model_of
from fedcluster.metrics.gaussians import log_likelihoods
from fedcluster.metrics.objectives import PresentInertia, nearest_present
from fedcluster.model import Model
from fedcluster.preprocessing import NumericColumn, Preprocessor
from fedcluster.privacy import Groups, MinClusterSize
from fedcluster.rounds import run, with_preprocessing
from fedcluster.testing import Example, check_laws
from fedcluster_app.cli import app
from fedcluster_app.wire.policy import Policy

NAN = float("nan")
AS_THEY_ARE = PreprocessingSpec("none", missing="ignore")


def planted(seed: int, n: int = 240, d: int = 6, share: float = 0.3) -> tuple[Floats, Any]:
    """Rows about four centres with gaps, and the cluster of each; no row is all gaps."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    X = (rng.normal(size=(4, d)) * 2)[y] + rng.normal(size=(n, d))
    gaps = rng.random(X.shape) < share
    gaps[gaps.all(axis=1), 0] = False
    X[gaps] = NAN
    return X, y


def parts(X: Floats, n_sites: int) -> dict[str, Floats]:
    return {f"s{i}": X[i::n_sites] for i in range(n_sites)}


def pooled(X: Floats, centers: Floats, rounds: int) -> tuple[Floats, Floats]:
    """Centres after some rounds, and J before each, as the formulas say it."""
    C, js = centers.copy(), []
    for _ in range(rounds):
        distances = np.nansum((X[:, None, :] - C) ** 2, axis=2)
        labels = distances.argmin(axis=1)
        js.append(distances.min(axis=1).sum())
        for j in range(len(C)):
            there = ~np.isnan(X[labels == j])
            sums = np.nansum(X[labels == j], axis=0)
            C[j] = np.where(there.any(axis=0), sums / np.maximum(there.sum(axis=0), 1), C[j])
    return C, np.array(js)


@pytest.mark.filterwarnings("ignore:stopped at the limit")
@given(seed=st.integers(0, 2**32 - 1), n_sites=st.integers(1, 4), rounds=st.integers(1, 8))
def test_its_centres_are_those_of_the_pooled_rows(seed: int, n_sites: int, rounds: int) -> None:
    X, _ = planted(seed)
    how: dict[str, Any] = {"algorithm": "lloyd", "prepare": AS_THEY_ARE, "tol": 0.0}
    start = np.nan_to_num(X[:4])
    found = FederatedKMeans(4, init=start, max_iter=rounds, **how).fit(parts(X, n_sites))
    expected, js = pooled(X, start, rounds)
    np.testing.assert_allclose(found.cluster_centers_, expected, rtol=1e-9, atol=1e-12)
    inertias = [done["inertia"] for done in found.history_]
    np.testing.assert_allclose(inertias, js[: len(inertias)], rtol=1e-9)
    assert (np.diff(inertias) <= 1e-9 * inertias[0]).all()
    labels, squared = nearest_present(X, found.cluster_centers_)
    np.testing.assert_array_equal(found.predict(X), labels)
    assert found.inertia_ == pytest.approx(squared.sum())
    assert found.score(X) == pytest.approx(-found.inertia_)


@pytest.mark.parametrize("seed", range(3))
def test_of_whole_rows_it_is_lloyd(seed: int) -> None:
    example = Example.random(seed)
    rows, state = example.data, example.start(Lloyd())
    engine = LocalEngine([Client("s", rows, ())])
    a, b = (run(step, engine, state) for step in (Lloyd(), IncompleteKMeans()))
    np.testing.assert_allclose(b.state.centers, a.state.centers, rtol=1e-9)
    np.testing.assert_allclose(b.state.weights, a.state.weights)
    assert b.reason == a.reason
    assert b.state.inertia == pytest.approx(a.state.inertia)


@pytest.mark.parametrize("seed", range(3))
def test_its_default_start_is_as_good_as_many_starts(seed: int) -> None:
    X, _ = planted(seed)
    found = FederatedKMeans(4, prepare=AS_THEY_ARE, random_state=0).fit(parts(X, 3))
    rng = np.random.default_rng(seed)
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    starts = [filled[rng.choice(len(X), 4, replace=False)] for _ in range(20)]
    best = min(pooled(X, start, 30)[1][-1] for start in starts)
    assert found.inertia_ <= best * 1.001


@given(seed=st.integers(0, 2**32 - 1), weighed=st.booleans())
def test_every_law_holds_with_gaps(seed: int, weighed: bool) -> None:
    X, _ = planted(seed, 40, 3)
    weight = np.random.default_rng(seed).integers(0, 4, len(X)).astype(float) if weighed else None
    data = Data(X, weight)
    for step in (IncompleteKMeans(), PresentInertia()):
        example = Example(data, np.arange(len(X)) % 3)
        check_laws(step, example, [State.at(np.nan_to_num(X[:4]))], n_rounds=1)


def test_by_hand() -> None:
    """A centre without a value in a column stays there; distances are over what there is."""
    rows = Data(np.array([[1.0, NAN], [NAN, 7.0], [3.0, NAN]]), np.array([1.0, 2.0, 3.0]))
    state = State.at([[0.0, 9.0], [50.0, 0.0]])
    step, rng = IncompleteKMeans(tol=0.0), np.random.default_rng(0)
    answer = step.client_step(state, rows, rng)
    np.testing.assert_array_equal(answer.sums[:, 0], [10, 14, 0, 0, 0, 0])
    np.testing.assert_array_equal(answer.sums[:, 1], [28, 8, 0, 0, 0, 0])
    np.testing.assert_array_equal(answer.weights, [4, 2, 0, 0, 6, 0])
    np.testing.assert_array_equal(answer.rows, [2, 1, 0, 0, 3, 0])
    after = step.server_step(state, [answer], rng)
    np.testing.assert_array_equal(after.centers, [[2.5, 7], [50, 0]])
    np.testing.assert_array_equal(after.weights, [6, 0])
    assert after.inertia == 36
    assert PresentInertia().client_step(state, rows, rng).sums.tolist() == [[36.0]]
    assert step.objective() == PresentInertia()
    assert step.answer_shape(state, 2) == answer.sums.shape


def test_a_limit_counts_values_and_not_rows() -> None:
    """A sum over one value is that value, however many rows the cluster has."""
    rows = Data(np.array([[1.0, NAN], [2.0, NAN], [3.0, 7.0]]))
    client = Client("s", rows, [MinClusterSize(2)])
    answer = client.answer(Task(IncompleteKMeans(), State.at([[0.0, 0.0]])))
    np.testing.assert_array_equal(answer.sums[:, 0], [6, 0, 0])
    np.testing.assert_array_equal(answer.weights, [3, 0, 3])


def test_scales_are_those_of_the_values_there_are() -> None:
    X, _ = planted(3)
    X = X * [1, 10, 100, 1, 1, 1] + 5
    how = PreprocessingSpec(missing="ignore")
    found = FederatedKMeans(4, prepare=how, random_state=0).fit(parts(X, 2))
    Z = (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0)
    assert found.preprocessor_ is not None
    prepared = found.preprocessor_.aligned(Data(X))
    np.testing.assert_allclose(prepared, Z, rtol=1e-9, atol=1e-9)
    labels, squared = nearest_present(Z, found.cluster_centers_)
    np.testing.assert_array_equal(found.predict(X), labels)
    assert found.inertia_ == pytest.approx(squared.sum())
    expected = nan_euclidean_distances(Z, found.cluster_centers_)
    np.testing.assert_allclose(found.transform(X), expected)
    robust = FederatedKMeans(4, prepare=PreprocessingSpec("robust", missing="ignore"))
    robust.set_params(random_state=0).fit(parts(X, 2))
    assert robust.preprocessor_ is not None
    quartiles = np.nanpercentile(robust.preprocessor_.aligned(Data(X)), [25, 50, 75], axis=0)
    np.testing.assert_allclose(quartiles[2] - quartiles[0], 1.0, atol=0.2)
    np.testing.assert_allclose(quartiles[1], 0.0, atol=0.1)


def test_a_row_without_any_value_has_no_label_and_moves_nothing() -> None:
    X, _ = planted(4)
    more, start = np.insert(X, [0, 9], NAN, axis=0), np.nan_to_num(X[:4])
    a, b = (
        FederatedKMeans(4, prepare=AS_THEY_ARE, algorithm="lloyd", init=start)
        .fit({"s": rows, "t": X[::3]})
        for rows in (X, more)
    )  # fmt: skip
    np.testing.assert_array_equal(a.cluster_centers_, b.cluster_centers_)
    assert np.flatnonzero(b.site_labels_["s"] < 0).tolist() == [0, 10]
    np.testing.assert_array_equal(b.predict(np.full((2, 6), NAN)), [-1, -1])
    assert np.isnan(b.transform(np.full((1, 6), NAN))).all()


def test_text_may_be_missing_too() -> None:
    rng = np.random.default_rng(0)
    sex = np.array(["F", "M", None], dtype=object)[rng.choice(3, 300, p=[0.4, 0.4, 0.2])]
    age = np.where(sex == "F", 30.0, 60.0) + rng.normal(size=300)
    age[rng.random(300) < 0.2] = NAN
    frame = pd.DataFrame({"age": age, "sex": sex})
    found = FederatedKMeans(2, prepare=PreprocessingSpec(missing="ignore"), random_state=0)
    found.fit({"n": frame[:150], "s": frame[150:]})
    assert found.preprocessor_ is not None
    assert found.preprocessor_.names == ("age", "sex=F", "sex=M")
    np.testing.assert_array_equal(found.labels_ >= 0, frame.notna().any(axis=1))
    known = frame["sex"].notna().to_numpy()
    assert adjusted_rand_score(sex[known].astype(str), found.labels_[known]) == 1.0


def test_steps_that_take_no_gaps_see_rows_filled_in() -> None:
    how = Preprocessor((NumericColumn("x0", fill=4.0, shift=1.0),), missing="ignore")
    data = Data(np.array([[1.0], [NAN]]))
    tasks = [Task(IncompleteKMeans(), State.at([[0.0]])), Task(Lloyd(), State.at([[0.0]]))]

    def plan() -> Any:
        return (yield tasks)

    asked, other = next(with_preprocessing(plan(), how))
    assert asked.preprocessor is how
    assert other.preprocessor == Preprocessor(how.columns)
    np.testing.assert_array_equal(how.apply(data).X, [[0]])
    np.testing.assert_array_equal(how.completing().apply(data).X, [[0], [3]])
    assert how.filled(data) == {}
    assert how.completing().filled(data) == {"x0": 1}
    assert Preprocessor.from_plain(how.plain()) == how


def test_a_site_answers_about_gaps_where_a_step_takes_them() -> None:
    """And about filled rows others; its policy knows before it reads a row."""
    how = Preprocessor((NumericColumn("x0", fill=4.0),), missing="ignore")

    def check(step: Any, preprocessor: Preprocessor) -> None:
        task = Task(step, State.at([[0.0]]), preprocessor=preprocessor)
        Policy().check({"run": "r", "exchange": 0}, [task], ["x0"], 1)

    check(IncompleteKMeans(), how)
    check(PresentInertia(), how)
    check(Lloyd(), how.completing())
    with pytest.raises(PolicyError, match="Lloyd: rows must have no missing value"):
        check(Lloyd(), how)


def test_clusters_of_present_values_are_scored_by_rows_filled_in_and_k_is_chosen() -> None:
    X, _ = planted(5)
    columns = tuple(map(Column, "abcdef"))
    how = PreprocessingSpec(missing="ignore")
    clients = [Client(name, Data(x, columns=columns)) for name, x in parts(X, 2).items()]
    one = FederatedKMeans(4, prepare=how, random_state=0).fit_clients(clients, list("abcdef"))
    model, engine = Model.from_estimator(one), LocalEngine(clients)
    assert model.assigned_by == IncompleteKMeans(1e-4)
    scores = execute(Evaluate(model), engine).outcome.value
    assert np.isfinite(scores["squared-silhouette"])
    assert one.preprocessor_ is not None
    filled = one.preprocessor_.completing().apply(Data(X, columns=columns)).X
    labels = one.predict(X)
    assert (labels != nearest_present(filled, one.cluster_centers_)[0]).any()
    squares = (filled - one.cluster_centers_[labels]) ** 2
    assert scores["inertia"] == pytest.approx(squares.sum())
    chosen = execute(SelectK(2, 6, rule="vote", prepare=how), engine).outcome.value
    assert set(chosen.results) == {2, 3, 4, 5, 6}
    assert "PresentInertia()" in one.steps_


@pytest.mark.usefixtures("here")
def test_the_command_line_ignores_what_is_missing() -> None:
    X, _ = planted(6)
    X[3] = NAN
    frames = {name: pd.DataFrame(x, columns=list("abcdef")) for name, x in parts(X, 2).items()}
    for name, frame in frames.items():
        frame.to_csv(f"{name}.csv", index=False)
    run, files = CliRunner().invoke, ["s0.csv", "s1.csv"]
    ran = run(app, ["fit", *files, "-k", "4", "--missing", "ignore", "--out", "out"])
    assert ran.exit_code == 0, ran.output
    assert "they count in no distance; rows without any value have the label -1." in ran.stdout
    assert "site 's1': 1 row is left out for lack of any value, as row 2" in ran.stderr
    how = PreprocessingSpec(missing="ignore")
    found = FederatedKMeans(4, prepare=how, random_state=0).fit(frames)
    np.testing.assert_array_equal(Model.load("out").centers, found.cluster_centers_)
    again = run(app, ["predict", "out/model.json", *files, "--out", "again"])
    assert again.exit_code == 0, again.output
    assert "filled in" not in again.stdout
    assert "Rows without a cluster (-1): 1 of s1." in again.stdout
    for file in files:
        labels = Path("again", file).read_text().replace("\n2,-1\n", "\n")
        assert labels == Path("out/labels", file).read_text()


@pytest.mark.parametrize("kind", ["pandas", "path", "polars", "arrow"])
def test_rows_without_any_value_keep_their_place_in_frames_with_a_warning(kind, tmp_path):
    rng = np.random.default_rng(9)
    frame = pd.DataFrame({"a": rng.normal(size=40), "b": rng.normal(size=40), "s": ["x", "y"] * 20})
    frame.loc[[3, 30]] = None
    frame.loc[7, "a"] = None
    frame.to_csv(tmp_path / "n.csv", index=False)
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    made = {"pandas": frame, "polars": pl.from_pandas(frame), "arrow": arrow}
    rows: Any = {"n": made.get(kind, tmp_path / "n.csv")}
    said = "site 'n': 2 rows have no value in any column, as row 3; all of their"
    with pytest.warns(UserWarning, match=said):
        found = FederatedKMeans(2, prepare="auto", random_state=0).fit(rows)
    assert found.labels_.shape == (40,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        how = PreprocessingSpec(missing="ignore")
        without = FederatedKMeans(2, prepare=how, random_state=0).fit(rows)
    assert np.flatnonzero(without.labels_ == -1).tolist() == [3, 30]


def test_groups_with_missing_values_are_means_of_what_they_tell() -> None:
    """Steps see means of groups, without those columns of which a group tells nothing."""
    X, y = planted(7, 900, 5, 0.15)
    clients = [Client(n, Data(x), protection=Groups(5)) for n, x in parts(X, 2).items()]
    data, state = clients[0].data, State.at([[0.0] * 5, [1.0] * 5])
    assert np.isnan(data.X).any()
    how = PreprocessingSpec(missing="ignore")
    found = FederatedKMeans(4, prepare=how, random_state=0).fit_clients(clients)
    exact = FederatedKMeans(4, prepare=how, random_state=0).fit(parts(X, 2))
    agrees = adjusted_rand_score(np.concatenate([y[::2], y[1::2]]), found.labels_)
    assert agrees >= adjusted_rand_score(y, exact.labels_) - 0.1
    answer = clients[0].answer(Task(IncompleteKMeans(), state))
    assert data.within is not None
    assert data.sample_weight is not None
    _, squared = nearest_present(data.X, state.centers)
    expected = squared @ data.sample_weight + data.within.sum()
    assert answer.sums[:10, 1].sum() == pytest.approx(expected)


@pytest.mark.thorough
def test_k_is_judged_by_present_values_and_so_are_the_clusters() -> None:
    """K-means of rows with gaps would take more rounds, of which each may need the next."""
    rng = np.random.default_rng(33)
    y = np.arange(450) % 3
    X = 8.0 * np.eye(3)[y] + rng.normal(size=(450, 3))
    X[rng.random(X.shape) < np.where(y == 1, 0.3, 0.1)[:, None]] = np.nan
    engine = LocalEngine(Client(name, Data(x)) for name, x in parts(X, 3).items())
    report = execute(fit_of("auto", prepare=PreprocessingSpec(missing="ignore")), engine)
    assert isinstance(report.clustering.algorithm, MergedMixture)
    asked = [set(each.steps) for each in report.outcome.communication_rounds]
    assert sum(not each <= {"Missing", "Means", "Squares", "Histogram"} for each in asked) <= 10
    whole = ~np.isnan(X).any(axis=1)
    assert adjusted_rand_score(y[whole], model_of(report).predict(X[whole])) >= 0.98


def mostly_filled(kind: str) -> tuple[pd.DataFrame, Any]:
    """Three clusters of which cells are missing in a way, and the cluster of each row."""
    rng = np.random.default_rng(41)
    y = np.arange(240) % 3
    X = 8.0 * np.eye(3)[y] + rng.normal(size=(240, 3))
    frame = pd.DataFrame(X, columns=list("abc"))
    if kind == "text":
        frame["t"] = np.array(["p", "q", "r"])[np.where(rng.random(240) < 0.8, y, 0)]
    share = np.full(frame.shape, 0.2)
    if kind == "cluster":
        share = np.where(y == 1, 0.2, 0.02)[:, None] * np.ones(frame.shape)
    elif kind == "site":  # a column that one site hardly has
        share = np.where((np.arange(240) % 2 == 0)[:, None], [0.9, 0.1, 0.0], 0.0)
    frame = frame.mask(rng.random(frame.shape) < share)
    frame.iloc[[4, 9]] = None
    return frame, y


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["cluster", "site", "text"])
def test_clusters_that_were_judged_label_rows_by_the_values_that_they_have(kind, tmp_path):
    """Values that k-means has filled in pull a row towards the middle, which is a cluster's."""
    frame, y = mostly_filled(kind)
    engine = LocalEngine(
        Client(name, read_table(frame.iloc[i::2].reset_index(drop=True), ColumnRoles(raw=True)))
        for i, name in enumerate(("n", "s"))
    )
    job = fit_of("auto", prepare=PreprocessingSpec(missing="mean"), profile=kind == "site")
    report = execute(job, engine)
    model, found = model_of(report), report.clustering
    assert model.preprocessor is not None
    assert model.preprocessor.missing == "ignore"
    rows = replace(model, preprocessor=model.preprocessor.keeping()).prepared(frame)
    there = ~np.isnan(rows).all(axis=1)
    np.testing.assert_array_equal(there, frame.notna().any(axis=1))
    own = found.algorithm.assign(found.state, rows[there])  # type: ignore[union-attr]
    labels, each = model.predict(frame), model.memberships(frame)
    np.testing.assert_array_equal(labels[there], own.argmax(axis=1))
    assert (labels[~there] == -1).all()
    assert adjusted_rand_score(y[there], labels[there]) >= 0.9
    model.save(tmp_path / "model.json")
    loaded = Model.load(tmp_path / "model.json")
    parts = [loaded.memberships(frame.iloc[[i]]) for i in range(len(frame))]
    np.testing.assert_array_equal(np.concatenate(parts), each)  # type: ignore[arg-type]
    said = " ".join(report.prepared)
    assert "not filled in, as clusters are told by the values that a row has" in said
    if report.profiles is not None:
        sizes = sum(report.profiles.sizes.values())
        np.testing.assert_allclose(sizes, np.bincount(labels[there]))


@pytest.mark.thorough
@pytest.mark.parametrize(("n", "model", "says"), [(3, "auto", 0), (45, "k-means", 1)])
def test_few_gaps_leave_clusters_to_k_means_and_many_are_warned_of(n, model, says):
    """As it has values filled in, in rows that may belong elsewhere by the values they have."""
    X = 8.0 * np.eye(3)[np.arange(180) % 3] + np.random.default_rng(2).normal(size=(180, 3))
    X[:n, 0] = NAN
    engine = LocalEngine(Client(name, Data(x)) for name, x in parts(X, 3).items())
    report = execute(fit_of("auto", model=model, prepare=PreprocessingSpec(missing="mean")), engine)
    assert not isinstance(report.clustering.algorithm, MergedMixture)
    assert report.preprocessor is not None
    assert report.preprocessor.missing == "error"
    said = report.outcome.value.warnings
    assert sum("in up to 25 % of the rows" in line for line in said) == says


SHAPES: Any = {"full": (3, 4, 4), "tied": (4, 4), "diag": (3, 4), "spherical": (3,)}


def mixture_and_gaps(kind: Any, *, text: bool) -> tuple[GaussianMixture, State, Floats]:
    """A mixture of three components in four columns, of which one may be text, and rows."""
    rng = np.random.default_rng(5)
    X = 2 * rng.normal(size=(60, 4))
    X[:, 3] = rng.integers(0, 2, 60)
    X[rng.random(X.shape) < 0.25] = NAN
    factors = rng.uniform(0.3, 1.0, SHAPES[kind])
    factors = np.triu(factors) if kind in ("full", "tied") else factors
    centers = np.c_[2 * rng.normal(size=(3, 3)), [0.2, 0.5, 0.7]]
    memory, texts = {"precisions_cholesky": factors}, np.array([0.0, 0.0, 0.0, 1.0])
    if text:
        shares = {"texts": texts, "shares": centers * texts, "overall": 0.4 * texts}
        memory |= {**shares, "noise": np.ones(1)}
    step = GaussianMixture(kind, log_noise=-9.0 if text else None, levels=text)
    state = step.start(centers, np.array([3.0, 2.0, 1.0]), **memory)
    return step, state, X[~np.isnan(X[:, :3]).all(axis=1)]


@pytest.mark.parametrize("kind", SHAPES)
def test_a_row_with_gaps_has_the_same_bits_whatever_rows_are_beside_it(kind: Any) -> None:
    step, state, X = mixture_and_gaps(kind, text=True)
    whole = step.assign(state, X)
    for size in (1, 7):
        some = [step.assign(state, X[i : i + size]) for i in range(0, len(X), size)]
        np.testing.assert_array_equal(np.concatenate(some), whole)


@pytest.mark.parametrize("kind", SHAPES)
def test_a_row_with_gaps_has_the_density_of_scipy_s_in_the_columns_it_has(kind: Any) -> None:
    step, state, X = mixture_and_gaps(kind, text=False)
    factors = state.memory["precisions_cholesky"]
    for x, told in zip(X, log_likelihoods(step, state, X), strict=True):
        there, density = ~np.isnan(x), 0.0
        for j, weight in enumerate(state.weights / 6):
            root = factors if kind == "tied" else factors[j]
            root = root * np.eye(4) if kind in ("diag", "spherical") else root
            covariance = np.linalg.inv(root @ root.T)[np.ix_(there, there)]
            density += weight * multivariate_normal(state.centers[j][there], covariance).pdf(
                x[there]
            )
        assert told == pytest.approx(np.log(density), rel=1e-9)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"algorithm": Lloyd()}, "'ignore' needs an algorithm that takes missing values; L"),
        ({"metric": "cosine"}, "missing='ignore' is for other fits, not for clusters"),
        ({"algorithm": "fkm"}, "algorithm='fkm' is for k-means, not for rows with gaps"),
    ],
)
def test_what_needs_whole_rows_is_one_line(options: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line):
        FederatedKMeans(2, prepare=AS_THEY_ARE, **options).fit(planted(0)[0])


def test_no_pipeline_takes_gaps() -> None:
    model = FederatedKMeans(2, prepare=AS_THEY_ARE, random_state=0).fit(planted(0)[0])
    with pytest.raises(InputError, match="IncompleteKMeans does not"):
        model.to_sklearn()


def test_rows_beyond_a_block_have_their_own_centres() -> None:
    rng = np.random.default_rng(8)
    k, d = 64, 2
    X, centers = rng.normal(size=((1 << 16) // k + 9, d)), rng.normal(size=(k, d))
    X[rng.random(X.shape) < 0.2] = np.nan
    labels, squared = nearest_present(X, centers)
    expected = np.nansum((X[:, None] - centers) ** 2, axis=2)
    np.testing.assert_allclose(squared, expected.min(axis=1))
    np.testing.assert_allclose(expected[np.arange(len(X)), labels], squared)
