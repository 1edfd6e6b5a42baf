"""A model is more than centres: how rows are assigned, in every place that labels them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from outsiders import Halves, IsotropicEM, LabelledHalves
from partitions import on_line
from sklearn.metrics import adjusted_rand_score, calinski_harabasz_score, silhouette_score
from sklearn.mixture import GaussianMixture
from test_replies import Postman

from fedcluster import Client, Data, FederatedFuzzyCMeans, FederatedKMeans, State
from fedcluster.algorithms import FedAvg, Lloyd, VarianceTree
from fedcluster.core import Assigns, Column, Summary, Task
from fedcluster.core.ranges import CENTERS, Allowed, Array, Real
from fedcluster.engines import LocalEngine
from fedcluster.engines.wire import STEPS
from fedcluster.errors import InputError, SiteError
from fedcluster.jobs import Evaluate, execute
from fedcluster.kernels import memberships, nearest
from fedcluster.metrics.clusters import Scatter
from fedcluster.model import Model
from fedcluster.model.assigned_rows import AssignedRows, row_transform
from fedcluster.model.assignment import Assignment
from fedcluster.privacy import Groups
from fedcluster.recipes.fit import canonical
from fedcluster.testing import check_laws
from fedcluster_app.site import worker
from fedcluster_app.site.worker import keep_results
from fedcluster_app.wire.policy import Policy, PolicyLimits
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder

pytestmark = pytest.mark.usefixtures("short_searches")


def wide_and_narrow() -> np.ndarray:
    """200 rows about 0 with deviation 4, 300 about 6 with deviation 1/2."""
    rng = np.random.default_rng(3)
    return np.concatenate([rng.normal(0, 4, (200, 2)), rng.normal([6, 0], 0.5, (300, 2))])


@pytest.fixture(scope="module")
def mixture() -> FederatedKMeans:
    X = wide_and_narrow()
    model = FederatedKMeans(2, algorithm=IsotropicEM(), random_state=0, max_iter=500)
    return model.fit({"a": X[::2], "b": X[1::2]})


@pytest.fixture(scope="module")
def pooled() -> GaussianMixture:
    """scikit-learn's, on the pooled rows; by falling weight the narrow component comes first."""
    fit = GaussianMixture(2, covariance_type="spherical", tol=1e-10, max_iter=500, random_state=0)
    return fit.fit(wide_and_narrow())


def test_rows_are_labelled_by_the_algorithm_and_not_by_the_nearest_centre(mixture, pooled):
    X = wide_and_narrow()
    order = np.argsort(-pooled.weights_)
    assert_allclose(mixture.cluster_centers_, pooled.means_[order], atol=1e-3)
    variances = mixture.state_.memory["variances"]
    assert_allclose(variances, pooled.covariances_[order], rtol=1e-3)
    assert_allclose(mixture.predict_proba(X), pooled.predict_proba(X)[:, order], atol=1e-3)
    expected = np.argsort(order)[pooled.predict(X)]
    assert_array_equal(mixture.predict(X), expected)
    assert_array_equal(mixture.site_labels_["a"], expected[::2])
    assert (nearest(X, mixture.cluster_centers_)[0] != expected).sum() > 20
    with pytest.raises(InputError, match=r"nearest centre, IsotropicEM does not: use predict"):
        mixture.to_sklearn()


def test_the_whole_state_is_kept_its_memory_in_the_order_of_its_clusters(mixture):
    """By falling weight the narrow component comes first, whatever the start's order."""
    assert mixture.algorithm_ == IsotropicEM()
    assert mixture.state_.converged
    assert mixture.state_.round > 3
    assert mixture.state_.centers is mixture.cluster_centers_
    assert mixture.cluster_weights_[0] > mixture.cluster_weights_[1]
    narrow, wide = mixture.state_.memory["variances"]
    assert narrow < 0.5 < 10 < wide


def test_canonical_reorders_every_axis_of_length_k_and_places_of_clusters():
    class Step(Lloyd):
        allowed = Allowed(
            memory={
                "of": Array(("k", "d")),
                "between": Array(("k", "k")),
                "place": Array(("cuts",), below="k"),
                "columns": Array(("d",)),
            }
        )

    memory = {
        "of": on_line(0, 1, 2),
        "between": np.arange(9.0).reshape(3, 3),
        "place": np.array([2.0, 0.0]),
        "columns": np.array([7.0]),
    }
    state = State(on_line(4, 5, 6), np.array([1.0, 3.0, 2.0]), memory=memory)
    there = canonical(state, Step())
    assert_array_equal(there.centers.ravel(), [5, 6, 4])
    assert_array_equal(there.memory["of"].ravel(), [1, 2, 0])
    assert_array_equal(there.memory["between"], [[4, 5, 3], [7, 8, 6], [1, 2, 0]])
    assert_array_equal(there.memory["place"], [1, 2])
    assert there.memory["columns"].tolist() == [7.0]
    other = State(state.centers, state.weights, memory={**memory, "undeclared": np.ones(3)})
    assert canonical(other, Step()) is other, "its order is the algorithm's own"


def test_the_leaves_of_a_reordered_tree_are_still_cut_from_the_same_leaves():
    rng = np.random.default_rng(0)
    data, tree, state = Data(rng.normal(size=(200, 2)) ** 3), VarianceTree(6), State()
    while not state.converged:
        state = tree.server_step(state, [tree.client_step(state, data, rng)], rng)
    there = canonical(state, tree)
    assert not np.array_equal(there.centers, state.centers)
    for name in ("parent", "child"):
        before, after = (each.centers[each.memory[name].astype(int)] for each in (state, there))
        assert_array_equal(before, after)


def test_an_averaged_momentum_is_reordered():
    X = np.repeat(on_line(0, 9, 40), 20, axis=0)
    X = X + np.random.default_rng(0).normal(size=X.shape)
    model = FederatedKMeans(3, algorithm=FedAvg(momentum=0.5), random_state=0, max_iter=5)
    memory = model.fit([X[::2], X[1::2]]).state_.memory
    assert set(memory) == {"velocity", "small_for"}
    assert memory["velocity"].shape == (3, 1)


def test_by_default_rows_belong_to_the_nearest_centre():
    X = wide_and_narrow()
    hard = FederatedKMeans(3, random_state=0).fit([X])
    assert_array_equal(hard.predict(X), nearest(X, hard.cluster_centers_)[0])
    assert not hasattr(hard, "predict_proba")
    assert not isinstance(hard.algorithm_, Assigns)
    fuzzy = FederatedFuzzyCMeans(3, random_state=0).fit([X])
    expected = memberships(X, fuzzy.cluster_centers_, 2.0)
    assert_array_equal(fuzzy.predict_proba(X), expected)
    assert_array_equal(fuzzy.predict(X), expected.argmax(axis=1))


def changed_file(model: Any, folder: Path, **change: Any) -> dict[str, Any]:
    """Save a model with another content, and return what it had; ... stands for nothing."""
    path = folder / "model.json"
    Model.from_estimator(model).save(path)
    content = json.loads(path.read_text())
    made = {key: value for key, value in (content | change).items() if value is not ...}
    path.write_text(json.dumps(made))
    return content


def test_the_model_file_holds_the_whole_state_and_labels_alike(tmp_path, mixture):
    X = wide_and_narrow()
    content = changed_file(mixture, tmp_path)
    assert content["format_version"] == 3
    how = {"name": "outsiders.IsotropicEM", "parameters": {"tol": 1e-8, "broken": False}}
    assert content["assigned_by"] == how
    for known in ([IsotropicEM], ["outsiders.IsotropicEM"]):
        model = Model.load(tmp_path, known)
        assert_array_equal(model.predict(X), mixture.predict(X))
        assert_array_equal(model.memberships(X), mixture.predict_proba(X))
        assert (model.state.round, model.state.converged) == (mixture.state_.round, True)
        assert model.state.inertia == mixture.state_.inertia
        for name, array in mixture.state_.memory.items():
            assert_array_equal(model.state.memory[name], array)
    said = "rows are assigned by outsiders.IsotropicEM, which is no"
    with pytest.raises(InputError, match=said):
        Model.load(tmp_path)


def test_memory_that_is_declared_must_be_there(tmp_path, mixture):
    strict = {"name": "test_assignment.Strict", "parameters": {}}
    changed_file(mixture, tmp_path, memory=..., assigned_by=strict)
    with pytest.raises(InputError, match="memory must hold variances, and that alone; fit again"):
        Model.load(tmp_path, [Strict])


class Strict(LabelledHalves):
    """One that declares what it cannot do without."""

    allowed = Allowed(memory={"variances": Array(("k",))})


def test_nothing_is_imported_because_a_file_names_it(tmp_path, mixture):
    (tmp_path / "trap.py").write_text("raise SystemExit('it was imported')")
    changed_file(mixture, tmp_path, assigned_by={"name": "trap.Mine", "parameters": {}})
    with pytest.raises(InputError, match=r"allow it by --algorithm trap\.Mine"):
        Model.load(tmp_path, ["outsiders.IsotropicEM"])


def by(name: str, **parameters: Any) -> dict[str, Any]:
    return {"assigned_by": {"name": f"outsiders.{name}", "parameters": parameters}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memory": {"variances": [1.0, -1.0]}}, "variances must be an array"),
        (by("Halves"), "has no assign"),
        ({"memory": {"variances": [1.0]}}, "variances must be an array"),
        ({"memory": {"variances": [[1.0, 1.0]]}}, "variances must be an array"),
        ({"memory": {"variances": [1.0, "2"]}}, "memory.variances must be an array of numbers"),
        ({"memory": {"variances": [[1.0], 2.0]}}, "memory.variances must be an array of numbers"),
        ({"memory": {"variances": [True, True]}}, "memory.variances must be an array of numbers"),
        ({"assigned_by": "outsiders.IsotropicEM"}, "assigned_by must be a table"),
        (by("IsotropicEM", x=1), "cannot be"),
        (by("IsotropicEM", tol=9), "tol must be 0 to 1"),
        ({"centers": [], "weights": []}, "weights must be a list of some numbers"),
        ({"converged": 1}, "converged must be true or false, not 1"),
        ({"last_round": -1}, "last_round must be a whole number of at least 0, not -1"),
    ],
)
def test_a_state_that_a_site_would_refuse_is_refused_in_a_file(tmp_path, mixture, change, message):
    changed_file(mixture, tmp_path, **change)
    with pytest.raises(InputError, match=message):
        Model.load(tmp_path, ["outsiders.IsotropicEM", "outsiders.Halves"])


def test_sites_label_their_rows_by_an_algorithm_that_they_allow(tmp_path, mixture):
    X = wide_and_narrow()
    content = Model.from_estimator(mixture).plain()

    def chunks(_columns: object, _raw: bool) -> list[Data]:
        return [Data(X[:100]), Data(X[100:])]

    allowed = ["outsiders.IsotropicEM"]
    assert not keep_results(chunks, content, tmp_path / "results", allowed)
    lines = (tmp_path / "results" / "labels.csv").read_text().splitlines()[1:]
    written = np.array([line.split(",") for line in lines], dtype=float)
    assert_array_equal(written[:, 1], mixture.predict(X))
    assert_allclose(written[:, 2:], mixture.predict_proba(X), atol=1e-6)
    with pytest.raises(InputError, match="which is no algorithm of fedcluster"):
        keep_results(chunks, content, tmp_path / "others")


def test_the_results_of_every_run_stay(tmp_path):
    results, rows = tmp_path / "results", [Data(on_line(0, 1, 9))]
    contents = []
    for i in range(3):
        model = Model(on_line(i, 9 - i), np.array([2.0, 1.0]), ("x",))
        contents.append(model.plain())
        for _ in range(2):  # a model that comes again after a kill is kept once
            assert not keep_results(lambda *_: rows, contents[-1], results)
        os.utime(results / "model.json", (86400, 86400))
    earlier = sorted(path.relative_to(results) for path in results.glob("earlier/*"))
    assert list(map(str, earlier)) == ["earlier/19700102-000000", "earlier/19700102-000000_2"]
    for place, content in zip([*earlier, "."], contents, strict=True):
        assert json.loads((results / place / "model.json").read_text()) == content
        assert len((results / place / "labels.csv").read_text().split()) == 4
    assert all(not path.stat().st_mode & 0o77 for path in results.rglob("*"))

    def broken(*_):
        raise OSError("the disk")

    assert "the disk" in keep_results(broken, contents[0], results)
    assert not (results / "labels.csv").exists()  # they are not this model's
    assert len(list(results.glob("earlier/*/labels.csv"))) == 3


def test_the_results_of_the_oldest_runs_go(tmp_path, monkeypatch):
    monkeypatch.setattr(worker.Versions, "runs_kept", 2)
    for i in range(5):
        model = Model(on_line(i), np.array([3.0]), ("x",))
        assert not keep_results(lambda *_: [Data(np.zeros((3, 1)))], model.plain(), tmp_path)
        os.utime(tmp_path / "model.json", (i * 86400, i * 86400))
    kept = sorted(path.name for path in tmp_path.glob("earlier/*"))
    assert kept == ["19700102-000000", "19700103-000000", "19700104-000000"]


PARTS = [on_line(0, 1), on_line(8, 9)]


def test_what_has_no_centres_and_assigns_no_row_is_refused():
    with pytest.raises(InputError, match=r"^Halves has no centres, so rows have no nearest one"):
        FederatedKMeans(2, algorithm=Halves()).fit(PARTS)
    with pytest.raises(InputError, match="the state has no centres"):
        Assignment(State())


def test_clusters_need_no_centres_where_rows_are_assigned(tmp_path):
    model = FederatedKMeans(2, algorithm=LabelledHalves()).fit(PARTS)
    assert model.labels_.tolist() == [0, 0, 1, 1]
    assert (model.n_clusters_, model.state_.memory["middle"].tolist()) == (2, [4.5])
    with pytest.raises(ValueError, match="LabelledHalves assigns labels, not memberships"):
        model.predict_proba(PARTS[0])
    Model.from_estimator(model).save(tmp_path / "model.json")
    read = Model.load(tmp_path, [LabelledHalves])
    assert read.predict([[0.0], [9.0]]).tolist() == [0, 1]
    assert read.memberships([[0.0]]) is None


class Says:
    """Assigns what it is told, whatever the rows."""

    def __init__(self, *given: object) -> None:
        self.given = given

    def assign(self, state: State, X: np.ndarray) -> np.ndarray:
        return np.array(self.given)


CLUSTERS = State.at([[0.0], [1.0]])


@pytest.mark.parametrize(
    "given", [[0, 2], [0, -2], [0], [0.0, 1.0], [[0.5, 0.5]], [[0.5, -0.5], [1.0, 0.0]]]
)
def test_what_is_neither_labels_nor_memberships_is_refused(given):
    with pytest.raises(ValueError, match=r"^Says.assign returned .* for 2 rows: return labels"):
        Assignment(CLUSTERS, Says(*given)).labels(np.zeros((2, 1)))


def test_rows_of_no_cluster_have_the_label_minus_one_and_gaps_go_to_what_takes_them():
    rows = np.zeros((3, 1))
    shares = [[0.5, 0.4], [0.3, 0.3], [0.2, 0.4]]
    assert Assignment(CLUSTERS, Says(*shares)).labels(rows).tolist() == [0, -1, 1]
    assert Assignment(CLUSTERS, Says(0, -1, 1)).labels(rows).tolist() == [0, -1, 1]
    assert Assignment(CLUSTERS, Says(0, 1)).labels(on_line(0, np.nan, 1)).tolist() == [0, -1, 1]

    class Gaps(Says):
        allowed = Allowed(gaps=True)

    gaps = np.array([[0.0, np.nan], [np.nan, np.nan], [1.0, 1.0]])
    assert Assignment(State.at(np.zeros((2, 2))), Gaps(1, 0)).labels(gaps).tolist() == [1, -1, 0]


def scored(model: Model, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    clients = [Client("a", Data(X[::2], y=y[::2])), Client("b", Data(X[1::2], y=y[1::2]))]
    report = execute(Evaluate(model, labels=True), LocalEngine(clients), columns=model.columns)
    scores: dict[str, float] = report.outcome.value
    return scores


def test_scores_are_those_of_the_clusters_that_rows_are_assigned_to(mixture):
    X, y = wide_and_narrow(), np.repeat([0, 1], [200, 300])
    model, labels = Model.from_estimator(mixture), mixture.predict(X)
    scores = scored(model, X, y)
    assert scores["ari"] == pytest.approx(adjusted_rand_score(y, labels), abs=1e-12)
    assert scores["ari"] > 0.05 + adjusted_rand_score(y, nearest(X, model.centers)[0])
    expected = silhouette_score(X, labels, metric="sqeuclidean")
    assert scores["squared-silhouette"] == pytest.approx(expected, abs=1e-9)
    assert scores["calinski-harabasz"] == pytest.approx(calinski_harabasz_score(X, labels))
    squares = sum(((X[labels == j] - X[labels == j].mean(axis=0)) ** 2).sum() for j in (0, 1))
    assert scores["within"] == pytest.approx(squares)


def test_rows_of_no_cluster_do_not_count_in_scores():
    X, y = on_line(0, 1, 50, 9, 10, 60).repeat(4, axis=0), np.repeat([0, 0, 5, 1, 1, 5], 4)
    model = Model(on_line(0.5, 9.5), np.array([2.0, 2.0]), ("x",), assigned_by=Near(5.0))
    scores = scored(model, X, y)
    assert scores["ari"] == 1.0
    assert scores["within"] == pytest.approx(4.0)


@dataclass(frozen=True)
class Near(IsotropicEM):
    """Rows far from every centre are of no cluster."""

    allowed = Allowed({"tol": Real(0, 1000)}, CENTERS)

    def assign(self, state: State, X: np.ndarray) -> np.ndarray:
        labels, squared = nearest(X, state.centers)
        return np.where(squared > self.tol**2, -1, labels)


def test_a_site_over_a_network_labels_its_rows_for_scores(mixture):
    """The same scores to the bit; with a preparation and without."""
    X, y = wide_and_narrow(), np.repeat([0, 1], [200, 300])
    data = Data(X, y=y, columns=(Column("p"), Column("q")))
    for prepare in (None, "standard"):
        fit = FederatedKMeans(
            2, algorithm=IsotropicEM(), random_state=0, max_iter=50, prepare=prepare
        )
        model = Model.from_estimator(fit.fit({"a": data}), columns=["p", "q"])
        job = Evaluate(model, classes=["0", "1"])
        here = execute(job, LocalEngine([Client("a", data)]), columns=["p", "q"])
        steps = {**STEPS, "IsotropicEM": IsotropicEM}
        there = execute(job, over_bytes(Client("a", data), steps), columns=["p", "q"])
        assert there.outcome.value == pytest.approx(here.outcome.value, rel=0, nan_ok=True)
        with pytest.raises(SiteError, match="step 'IsotropicEM' is not among the steps"):
            execute(job, over_bytes(Client("a", data), STEPS), columns=["p", "q"])


def test_groups_are_assigned_as_rows_are():
    X = np.concatenate([np.random.default_rng(0).normal(c, 0.3, (60, 2)) for c in (0, 9)])
    data, y = Data(X, y=np.repeat(["a", "b"], 60)), np.repeat([0, 1], 60)
    model = Model.from_estimator(
        FederatedKMeans(2, algorithm=IsotropicEM(), random_state=0).fit([X])
    )
    client = Client("a", data, protection=Groups(5))
    report = execute(Evaluate(model, labels=True), LocalEngine([client]), columns=["x0", "x1"])
    assert report.outcome.value["ari"] == 1.0
    within = sum(((X[y == j] - X[y == j].mean(axis=0)) ** 2).sum() for j in (0, 1))
    assert report.outcome.value["within"] == pytest.approx(within, rel=0.05)


def over_bytes(client: Client, steps: Any, **more: Any) -> RemoteEngine:
    """An engine that asks one site as over a network."""
    site = Responder(
        client,
        columns=("p", "q"),
        choose=lambda *_given, **_raw: client,
        steps=steps,
        preprocessors=partial(row_transform, steps=steps),
        **more,
    )
    engine = RemoteEngine(Postman({"a": site}), ["a"])
    engine.choose(["p", "q"], raw=True)
    return engine


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"memory": {}, "tol": 2.0}, "IsotropicEM: tol must be 0 to 1"),
        ({"memory": {"variances": np.ones(3)}}, "IsotropicEM: variances must be an array"),
        ({"memory": {"other": np.ones(2)}}, "IsotropicEM: memory must hold variances"),
        ({"centers": np.full((2, 2), 1e200)}, "IsotropicEM: centers must be"),
        ({"policy": PolicyLimits(denied=("IsotropicEM",))}, "IsotropicEM: the step is not among"),
    ],
)
def test_a_site_holds_what_labels_its_rows_against_its_policy(change, message):
    data = Data(wide_and_narrow(), columns=(Column("p"), Column("q")))
    given = {"centers": np.eye(2), "memory": {"variances": np.ones(2)}, "tol": 0.5} | change
    state = State(given["centers"], np.ones(2), memory=given["memory"])
    how = AssignedRows(None, Task(IsotropicEM(given["tol"]), state))
    steps = {**STEPS, "IsotropicEM": IsotropicEM}
    policy = Policy(given.get("policy"))
    engine = over_bytes(Client("a", data), steps, policy=policy)
    with pytest.raises(SiteError, match=message):
        engine.ask([Task(Scatter(), State.at(np.eye(2)), preprocessor=how)])


def test_texts_are_not_labelled_as_numbers():
    texts = Column("p", "text", ("no", "yes"))
    data = Data(np.eye(2).repeat(9, axis=0), columns=(texts, Column("q")))
    how = AssignedRows(None, Task(IsotropicEM(), State(np.eye(2), np.ones(2))))
    engine = over_bytes(Client("a", data), {**STEPS, "IsotropicEM": IsotropicEM})
    with pytest.raises(SiteError, match="a column of numbers must hold numbers"):
        engine.ask([Task(Scatter(), State.at(np.eye(2)), preprocessor=how)])


STATES = [
    State(np.array([[4.0, 5.0], [6.0, 5.0]]), weights, memory={"variances": np.array([0.5, 2.0])})
    for weights in (np.array([9.0, 1.0]), np.array([2.0, 30.0]))
]


def test_a_mixture_keeps_all_laws_and_a_broken_expectation_step_is_caught():
    """Responsibilities divided by the site's rows, from the start and from given states."""
    check_laws(IsotropicEM(), n_rounds=4)
    check_laws(IsotropicEM(), states=STATES)
    for states in (None, STATES):
        with pytest.raises(AssertionError, match='breaks the law "client_additive" in round 1'):
            check_laws(IsotropicEM(broken=True), states=states)


@dataclass(frozen=True)
class LateBroken(IsotropicEM):
    """Broken once the memory knows of variances only."""

    def client_step(self, state: State, data: Data, rng: np.random.Generator) -> Summary:
        sums = super().client_step(state, data, rng)
        n = len(data) if state.memory else 1
        return Summary(sums.sums / n, sums.weights / n, sums.support)


def test_a_step_that_breaks_in_a_later_round_is_caught_there_and_by_given_states():
    check_laws(LateBroken(), n_rounds=1)
    with pytest.raises(AssertionError, match='"client_additive" in round 2'):
        check_laws(LateBroken(), n_rounds=2)
    with pytest.raises(AssertionError, match='"client_additive" in round 1'):
        check_laws(LateBroken(), states=STATES, n_rounds=1)


@dataclass(frozen=True)
class Otherwise(IsotropicEM):
    """One that assigns rows otherwise than its step does."""

    def client_step(self, state: State, data: Data, rng: np.random.Generator) -> Summary:
        return IsotropicEM().client_step(state, data, rng)


class AllTogether(Otherwise):
    """A row's memberships depend on the rows that are asked about with it."""

    def assign(self, state: State, X: np.ndarray) -> np.ndarray:
        return super().assign(state, X - X.mean(axis=0))


class ByPlace(Otherwise):
    """The first cluster is the largest, whatever the memory says."""

    def assign(self, state: State, X: np.ndarray) -> np.ndarray:
        memory = {"variances": np.arange(1.0, 1.0 + len(state.weights))}
        return super().assign(replace(state, memory=memory), X)


@pytest.mark.parametrize(
    ("step", "message"), [(AllTogether(), "other rows matter"), (ByPlace(), "order of clusters")]
)
def test_rows_that_are_not_assigned_each_for_itself_are_caught(step, message):
    with pytest.raises(AssertionError, match=f'(?s)breaks the law "assign" in round .*{message}'):
        check_laws(step, states=STATES)
