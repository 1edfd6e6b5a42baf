"""What combinations of two options have shown to be wrong, each by itself."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pairs.factors import with_needs
from pairs.worlds import MAKERS, World, frames, job_of
from partitions import InChunks
from scipy.spatial.distance import cdist
from secure_sites import Wire, federation, site

from fedcluster import Client, Data, LocalEngine, State
from fedcluster.algorithms import Lloyd
from fedcluster.algorithms.variance_tree import VarianceTree
from fedcluster.errors import HeldBackError, InputError, SiteError
from fedcluster.frames.columns import columns_of
from fedcluster.jobs import Evaluate, execute, fit_of, model_of
from fedcluster.model import Model
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.privacy import Groups
from fedcluster.recipes._seeds import best_seeds
from fedcluster.selection.verdict import _elbow
from fedcluster_app.coordinator.run_job import run_job
from fedcluster_app.secure.engine import SecureEngine
from fedcluster_app.site.file import SiteFile
from fedcluster_app.wire.remote import RemoteEngine

pytestmark = pytest.mark.thorough

ROWS = np.arange(12.0)[:, None]


class Silent:
    """A transport of a coordinator that is to send nothing."""

    exchange = staticmethod(lambda *_: pytest.fail("a site was asked"))


def chunked_rows(weights: np.ndarray, offset: float = 0.0) -> InChunks:
    return InChunks(Data(ROWS + offset, weights), 5, ("weight",))


def engine(protection: Groups | None = None) -> LocalEngine:
    return LocalEngine([Client(name, Data(ROWS), protection=protection) for name in "ab"])


@pytest.mark.parametrize("n_clusters", ["auto", 2])
def test_groups_that_leave_no_row_are_said_so(n_clusters: object) -> None:
    with pytest.raises(InputError, match="the sites tell of no row: each has fewer than"):
        execute(fit_of(n_clusters), engine(Groups(min_rows=20)), columns=["x"])


def trimmed(moved: float = 0.0) -> Model:
    """A trimmed model of the rows, or one whose clusters are far away."""
    result = execute(fit_of(2, trim=0.1), engine(), columns=["x"]).outcome.value
    state = result.state
    how = {"memory": dict(state.memory), "assigned_by": result.algorithm}
    return Model(state.centers + moved, state.weights, ("x",), **how)


def test_rows_of_no_cluster_are_not_said_to_be_missing() -> None:
    """Those of a trimmed model whose clusters are far away; other sites may have rows that are."""
    model = trimmed(1e6)
    assert set(model.predict(ROWS)) == {-1}
    with pytest.raises(HeldBackError, match=r"or belongs to no cluster of the model: lower"):
        execute(Evaluate(model), engine(), columns=["x"])
    for rows in (Data(ROWS + 1e6), chunked_rows(np.ones(12), 1e6)):
        sites = LocalEngine([*engine().clients.values(), Client("c", rows)])
        scores = execute(Evaluate(model, profile=True), sites, columns=["x"])
        [first, *_] = scores.outcome.communication_rounds
        assert [name for name, n in first.values_sent.items() if n] == ["c"]
        assert scores.profiles is not None


@pytest.mark.parametrize("chunked", [False, True])
def test_a_site_whose_rows_all_lack_a_value_is_no_site_without_a_cluster(chunked: bool) -> None:
    rows = chunked_rows(np.ones(12), np.nan) if chunked else Data(np.full((12, 1), np.nan))
    sites = LocalEngine([*engine().clients.values(), Client("c", rows)])
    with pytest.raises(SiteError, match="'c'"):
        execute(Evaluate(trimmed()), sites, columns=["x"])


def test_secure_sums_know_columns_of_text_from_the_first_question_on() -> None:
    """The size of all rows is asked for in the same introduction, and names columns alone."""
    c = with_needs("fit", ("engine", "secure"), ("text", "True"))
    world = World("fit", c, frames(c))
    told = MAKERS["secure"](world, job_of(world)).introduce(columns=True)
    kinds = [{each.name: each.kind for each in site.columns}["town"] for site in told]
    assert kinds == ["text"] * 3


@pytest.mark.parametrize("bounds", [(0.0, 1.0), None])
def test_a_private_run_names_its_columns(tmp_path: Path, bounds: object) -> None:
    job = {"epsilon": 1.0, "n_clusters": 2, "bounds": bounds}
    content = {"job": "fit", "parameters": job, "columns": None, "sites": ["a"], "out": "out"}
    silent = RemoteEngine(Silent(), ["a"])
    named = r"name them in --set .prepare.bounds.age=.0, 120.., or by --columns"
    with pytest.raises(InputError, match=named):
        run_job(silent, content, tmp_path / "run")


@pytest.mark.parametrize("chunked", [False, True])
def test_sites_of_one_process_tell_what_their_rows_weigh_as_over_a_network(chunked: bool) -> None:
    weights = np.array([0.125, 0.75, *[2.25] * 9, 0.0])
    rows = chunked_rows(weights) if chunked else Data(ROWS, weights)
    here = LocalEngine([Client(name, rows) for name in "ab"])
    ends = {name: site(name, rows, None, columns=["x"]) for name in "ab"}  # type: ignore[arg-type]
    there = RemoteEngine(Wire(ends), ends)
    told = [[(site.n_rows, site.weight) for site in each.introduce()] for each in (here, there)]
    assert told[0] == told[1] == [(11.0, weights.sum())] * 2


@pytest.mark.parametrize("is_secure", [False, True])
def test_there_are_as_many_clusters_as_rows_however_light_these_are(is_secure: bool) -> None:
    rows = Data(ROWS, np.full(12, 0.125))
    parts = dict.fromkeys("abc", rows)
    kind = SecureEngine if is_secure else RemoteEngine
    engine = kind(federation(parts, secure=is_secure), parts)
    found = execute(fit_of(5, init="sums"), engine, columns=["x0"]).outcome.value
    assert found.state.weights.sum() == pytest.approx(4.5)
    assert len(found.state.weights) == 5


@pytest.mark.parametrize(("seed", "m"), [(0, None), (1, None), (3, 2.0)])
def test_rounding_does_not_choose_among_starts_with_the_same_clusters(seed, m):
    """Restarts often find the same, each with its own numbers; they were ranked by last digits."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(60, 3)) + 5 * np.eye(3)[np.arange(60) % 3]
    nearly = rows * (1 + 2.0**-52 * rng.integers(-2, 3, size=rows.shape))
    found = [
        best_seeds(State(each, np.ones(60)), 4, 8, np.random.default_rng(1), m)
        for each in (rows, nearly)
    ]
    one, other = ([state.centers for state in each] for each in found)
    assert len(one) == len(other)
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_a_tree_cuts_the_first_of_columns_that_vary_alike_but_for_rounding() -> None:
    """All columns that are standardised vary alike."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 5))
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    tree, first = VarianceTree(2), set()
    for order in [rng.permutation(40) for _ in range(20)]:
        state = State()
        for _ in range(2):
            state = tree.server_step(state, [tree.client_step(state, Data(rows[order]), rng)], rng)
        first.add(int(state.memory["feature"][0]))
    assert first == {0}


@dataclass(frozen=True)
class Soft(Lloyd):
    """Shares of rows by their distances, in as many columns as the centres have."""

    def assign(self, state: State, X: np.ndarray) -> Any:
        near = np.exp(-cdist(X, state.centers))
        return near / near.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("pca", [None, 1])
def test_a_model_is_asked_for_shares_of_rows_as_wide_as_prepared_ones(pca: int | None) -> None:
    rows = Data(np.random.default_rng(0).normal(size=(20, 3)))
    sites = LocalEngine([Client(name, rows) for name in "ab"])
    job = fit_of(2, algorithm=Soft(), prepare=None if pca is None else PreprocessingSpec(pca=pca))
    model = model_of(execute(job, sites, columns=["x0", "x1", "x2"]))
    shares = model.memberships(rows.X)
    assert model.fuzzy
    assert shares is not None
    np.testing.assert_array_equal(shares.argmax(axis=1), model.predict(rows.X))


def test_a_curve_above_the_line_between_its_ends_bends_at_the_first_of_them() -> None:
    """By rounding, the last end lay above or below the line."""
    rng = np.random.default_rng(0)
    curves = rng.random((50, 3)) * [1.0, 1.0, 3.0] + [0.0, 4.0, -2.0]
    assert {_elbow(np.array([1.0, 2.0, 3.0]), curve) for curve in curves} == {0}


def test_a_start_is_held_against_the_rows_where_columns_are_not_named() -> None:
    engine = LocalEngine([Client("north", Data(ROWS)), Client("south", Data(ROWS + 50))])
    start = np.array([[0.0], [60.0]])
    found = execute(fit_of(2, init=start, seed=0), engine).outcome.value
    assert found.state.centers.shape == (2, 1)
    with pytest.raises(InputError, match="the rows have 1 column"):
        execute(fit_of(2, init=start[:, [0, 0]], seed=0), engine)


@pytest.mark.parametrize("source", ["csv", "database", "store"])
@pytest.mark.parametrize("of", ["codes", "rename", "dates"])
def test_a_site_file_says_what_columns_mean_that_are_not_chosen(source: str, of: str) -> None:
    """A database was read without them, so that the site file was said to name no column."""
    said = {"codes": "town", "rename": "z", "dates": "age"}[of]
    c = with_needs("fit", ("source", source), (f"site.{of}", said), ("prepare", "mean"))
    world = World("fit", c, frames(c))
    file = SiteFile.load(world.site_files[0].path)
    rows = replace(file, columns=("y", "x")).kept().rows(raw=True)
    assert isinstance(rows, Data)
    assert [column.name for column in columns_of(rows)] == ["y", "x"]
