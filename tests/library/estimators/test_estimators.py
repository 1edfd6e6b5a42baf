"""FederatedKMeans: scikit-learn's contract, the shapes of input, and bad input."""

from __future__ import annotations

import datetime
import inspect
import re
import sys
import tracemalloc
from pathlib import Path
from traceback import walk_stack
from typing import Any, get_args

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from grids import flower_engine
from numba.core.dispatcher import Dispatcher
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedcluster import (
    FederatedFuzzyCMeans,
    FederatedGaussianMixture,
    FederatedKMeans,
    Model,
)
from fedcluster.algorithms import FKM, Lloyd
from fedcluster.core import Column, Data
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.frames.inputs import by_site as by_site_of
from fedcluster.frames.inputs import read_table
from fedcluster.options.choices import (
    ALGORITHMS,
    FUZZY_ALGORITHMS,
    AlgorithmName,
    FuzzyAlgorithmName,
)
from fedcluster_app.wire.recorder import RecordedEngine

pytestmark = pytest.mark.usefixtures("short_searches")

RNG = np.random.default_rng(0)
CENTERS = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
X = CENTERS[RNG.integers(0, 3, 90)] + RNG.normal(size=(90, 2))
SITE = np.array(["north", "south", "west"])[RNG.integers(0, 3, 90)]
PARTS = {name: X[name == SITE] for name in ("north", "south", "west")}


def expected_failures(estimator: Any) -> dict[str, str]:
    """Checks of scikit-learn that a mixture with one start does not pass; with more it does."""
    if getattr(estimator, "n_init", None) != 1:
        return {}
    why = "has one start, drawn among the rows; the default search passes in the long tests"
    return {f"check_sample_weight_equivalence_on_{kind}_data": why for kind in ("dense", "sparse")}


@pytest.mark.filterwarnings("ignore:only . of 8 clusters have rows")  # some checks have 4 rows
@parametrize_with_checks(
    [
        FederatedKMeans(random_state=0),
        FederatedFuzzyCMeans(random_state=0),
        # of 15 rows in 10 columns there are no full covariances of three components
        FederatedGaussianMixture(3, covariance_type="diag", n_init=1, random_state=0),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_s_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.long
@parametrize_with_checks(
    [
        FederatedKMeans("auto", random_state=0),
        FederatedGaussianMixture(random_state=0),
        FederatedGaussianMixture(3, covariance_type="diag", random_state=0),
    ]
)
def test_scikit_learn_s_checks_of_variants(estimator: Any, check: Any) -> None:
    check(estimator)


def test_every_form_of_input_gives_the_same_clusters_and_labels_in_the_order_of_the_rows() -> None:
    """Clusters are numbered by falling weight."""
    model = FederatedKMeans(np.int32(3), random_state=0)
    frames = {name: pd.DataFrame(rows, columns=["a", "b"]) for name, rows in PARTS.items()}
    by_dict, by_frame, by_list = (
        clone(model).fit(given) for given in (PARTS, frames, list(PARTS.values()))
    )
    by_sites = clone(model).fit(X, sites=SITE)
    assert_array_equal(by_dict.cluster_centers_, by_sites.cluster_centers_)
    assert_array_equal(by_dict.cluster_centers_, by_frame.cluster_centers_)
    assert_allclose(by_dict.cluster_centers_, by_list.cluster_centers_)
    assert list(by_list.site_labels_) == ["site-0", "site-1", "site-2"]
    assert_array_equal(by_sites.labels_, by_sites.predict(X))
    for name in PARTS:
        assert_array_equal(by_dict.site_labels_[name], by_sites.labels_[name == SITE])
    assert (np.diff(np.bincount(by_sites.labels_)) <= 0).all()


@pytest.mark.parametrize("least", [1.0, 0.0])  # rows of weight 0 have labels, too
@pytest.mark.parametrize(
    "how",
    [{"init": X[:3]}, {"init": (X[:3] - X.mean(0)) / X.std(0), "prepare": "standard"}, {}],
)
def test_labels_distances_and_errors_are_those_of_the_model(how, least):
    weights = {name: np.linspace(least, 2, len(rows)) for name, rows in PARTS.items()}
    fitted = FederatedKMeans(3, random_state=0, **how).fit(PARTS, sample_weight=weights)
    model = Model.from_estimator(fitted)
    assert_array_equal(fitted.labels_, model.predict(PARTS))
    assert_array_equal(fitted.predict(PARTS), model.predict(PARTS))
    distances, squared = fitted.transform(PARTS), model.squared_errors(PARTS)
    assert_array_equal(fitted.labels_, distances.argmin(axis=1))
    assert fitted.score(PARTS) == -float(squared.sum())
    assert_allclose(squared, distances.min(axis=1) ** 2)


def test_centres_that_are_set_by_hand_are_those_of_the_file() -> None:
    fitted = FederatedKMeans(3, random_state=0).fit(X)
    fitted.cluster_centers_ = fitted.cluster_centers_[::-1].copy()
    assert_array_equal(fitted.predict(X), 2 - fitted.labels_)
    assert_array_equal(Model.from_estimator(fitted).predict(X), 2 - fitted.labels_)


WIDE = np.random.default_rng(3).normal(size=(24, 30))  # more columns than rows
WIDE[::2, 20:] += 6
WIDE_SITE = np.array(["b", "a", "c"])[np.arange(24) % 3]
LETTERS = [f"c{j}" for j in range(30)]


def framed(**given: Any) -> pd.DataFrame:
    """The wide rows with other names of rows or columns."""
    return pd.DataFrame(WIDE).set_axis(**given)


TABLES: dict[str, Any] = {
    "whole numbers": pd.DataFrame(WIDE),
    "other whole numbers": framed(labels=np.arange(30)[::-1] - 3, axis=1),
    "fractions": framed(labels=np.arange(30) / 2, axis=1),
    "one name for all": framed(labels=[0] * 30, axis=1),
    "tuples": framed(labels=pd.MultiIndex.from_product([["v", "w"], range(15)]), axis=1),
    "dates": framed(labels=pd.date_range("2020-01-01", periods=30), axis=1),
    "rows by text": framed(labels=[f"r{i % 5}" for i in range(24)], axis=0),
    "rows turned": framed(labels=np.arange(24)[::-1], axis=0),
    "rows by tuples": framed(labels=pd.MultiIndex.from_product([range(6), list("wxyz")]), axis=0),
    "a slice": pd.DataFrame(np.repeat(WIDE, 2, axis=0)).iloc[::2],
    "named": pd.DataFrame(WIDE, [0] * 24, LETTERS),
    "polars": pl.DataFrame(WIDE, schema=LETTERS),
    "a slice of polars": pl.DataFrame(np.repeat(WIDE, 2, axis=0), schema=LETTERS)[::2],
    "arrow": pa.table(dict(zip(LETTERS, WIDE.T, strict=True))),
    "arrow in chunks": pa.concat_tables(
        [pa.table(dict(zip(LETTERS, rows.T, strict=True))) for rows in (WIDE[:5], WIDE[5:])]
    ),
    "a batch": pa.record_batch(list(map(pa.array, WIDE.T)), LETTERS),
    "lists": WIDE.tolist(),
    "by columns": np.asfortranarray(WIDE),
    "objects": WIDE.astype(object),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize(
    "sites",
    [
        WIDE_SITE,
        WIDE_SITE.tolist(),
        pd.Series(WIDE_SITE, np.arange(24)[::-1]),
        pl.Series(WIDE_SITE),
        pa.chunked_array([pa.array(WIDE_SITE)]),
        None,
    ],
    ids=["array", "list", "pandas", "polars", "arrow", "none"],
)
def test_rows_of_any_table_are_taken_by_their_position(table: Any, sites: Any) -> None:
    by_site = None if sites is None else WIDE_SITE
    for part, expected in zip(by_site_of(table, sites), by_site_of(WIDE, by_site), strict=True):
        assert part.name == expected.name
        assert_array_equal(read_table(part.table).X, expected.table)


@pytest.mark.parametrize("name", ["whole numbers", "tuples", "rows turned", "polars", "a batch"])
@pytest.mark.parametrize(
    "model",
    [
        FederatedKMeans(2, algorithm="lloyd", random_state=0),
        FederatedFuzzyCMeans(2, algorithm="fcm", init="sums", random_state=0),
        FederatedGaussianMixture(2, covariance_type="spherical", n_init=1, random_state=0),
        FederatedKMeans(2, algorithm="lloyd", prepare="standard", random_state=0),
    ],
    ids=["k-means", "fuzzy", "mixture", "prepared"],
)
def test_any_table_is_fitted_and_scored_as_its_array_is(model: Any, name: str) -> None:
    table, weight = TABLES[name], np.arange(24) % 4
    ours = clone(model).fit(table, sites=WIDE_SITE, sample_weight=pd.Series(weight))
    expected = clone(model).fit(WIDE, sites=WIDE_SITE, sample_weight=weight)
    assert_array_equal(ours.labels_, expected.labels_)
    assert_array_equal(ours.cluster_centers_, expected.cluster_centers_)
    assert_array_equal(ours.predict(table), expected.labels_)
    assert_array_equal(ours.transform(table), expected.transform(WIDE))
    assert ours.score(table) == expected.score(WIDE)
    if hasattr(ours, "predict_proba"):
        assert_array_equal(ours.predict_proba(table), expected.predict_proba(WIDE))


def test_a_column_of_sites_needs_names_of_columns() -> None:
    with pytest.raises(ValueError, match="the columns of X have no names that are text"):
        FederatedKMeans(2).fit(TABLES["whole numbers"], sites="site")
    unknown = pd.array(["a", None] * 12, dtype="string")
    for table, sites in ((WIDE, unknown), (TABLES["named"].assign(site=unknown), "site")):
        with pytest.raises(ValueError, match="row 1 has no site"):
            FederatedKMeans(2).fit(table, sites=sites)


@pytest.mark.parametrize("algorithm", ["auto", "lloyd", "fkm", "kfed"])
def test_the_order_of_sites_does_not_touch_a_bit_and_that_of_rows_none_above_1e_12(algorithm):
    model = FederatedKMeans(3, algorithm=algorithm, random_state=5)
    one = clone(model).fit(PARTS)
    other = clone(model).fit(dict(reversed(PARTS.items())))
    assert one.cluster_centers_.tobytes() == other.cluster_centers_.tobytes()
    assert str(one.history_) == str(other.history_)
    order = np.random.default_rng(1).permutation(len(X))
    other = clone(model).fit(X[order], sites=SITE[order])
    assert_allclose(one.cluster_centers_, other.cluster_centers_, rtol=1e-12)
    assert_array_equal(one.predict(X)[order], other.labels_)


@pytest.mark.filterwarnings("ignore:stopped at the limit")
@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_the_number_of_threads_does_not_touch_a_bit(threads, monkeypatch):
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(60_000, 4))
    site = rng.integers(0, 3, len(rows))
    model = FederatedKMeans(6, random_state=0, max_iter=3, n_init=2)
    monkeypatch.setenv("FEDCLUSTER_NUM_THREADS", "3")
    expected = clone(model).fit(rows, sites=site).cluster_centers_.tobytes()
    monkeypatch.setenv("FEDCLUSTER_NUM_THREADS", threads)
    assert clone(model).fit(rows, sites=site).cluster_centers_.tobytes() == expected


def test_weights_are_repetition() -> None:
    weight = np.random.default_rng(3).integers(1, 5, len(X))
    model = FederatedKMeans(3, algorithm="lloyd", init=X[:3], tol=0)
    weighted = clone(model).fit(X, sites=SITE, sample_weight=weight)
    repeated = clone(model).fit(np.repeat(X, weight, axis=0), sites=np.repeat(SITE, weight))
    assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, rtol=1e-12)
    assert_allclose(weighted.inertia_, repeated.inertia_, rtol=1e-12)


def test_as_good_as_pooled() -> None:
    ours = FederatedKMeans(3, random_state=0).fit(PARTS)
    pooled = KMeans(3, n_init=10, random_state=0).fit(X)
    assert ours.inertia_ <= pooled.inertia_ * 1.0001
    assert ours.score(X) == pytest.approx(-ours.inertia_, rel=1e-12)
    every = FederatedKMeans(9, random_state=0).fit({"a": X[:4], "b": X[4:9]})
    assert every.inertia_ == pytest.approx(0.0, abs=1e-20)  # as many clusters as rows


def test_an_init_array_keeps_its_order() -> None:
    model = FederatedKMeans(3, algorithm="lloyd", init=CENTERS[::-1]).fit(PARTS)
    assert_allclose(model.cluster_centers_, CENTERS[::-1], atol=0.6)


@pytest.mark.parametrize("algorithm", ["lloyd", "fkm"])
@pytest.mark.parametrize(("init", "n_init"), [("k-means++", 5), ("random", 5), (CENTERS, "auto")])
def test_every_init_finds_clear_clusters(algorithm: AlgorithmName, init: Any, n_init: Any) -> None:
    model = FederatedKMeans(3, algorithm=algorithm, init=init, n_init=n_init, random_state=0)
    model.fit(PARTS)
    assert model.inertia_ < 1.05 * KMeans(3, n_init=10, random_state=0).fit(X).inertia_


@pytest.mark.parametrize("kind", [FederatedKMeans, FederatedFuzzyCMeans])
def test_every_name_of_an_algorithm_finds_clear_clusters(kind: Any) -> None:
    for name in FUZZY_ALGORITHMS if kind is FederatedFuzzyCMeans else ALGORITHMS:
        model = kind(3, algorithm=name, random_state=0).fit(PARTS)
        assert len(np.unique(model.labels_)) == 3, name
        assert model.rows_held_back_.keys() == PARTS.keys(), name


def test_a_callable_draws_the_seeds_at_each_site() -> None:
    seen = []

    def first_rows(rows: np.ndarray, n_clusters: int, random_state: int) -> np.ndarray:
        seen.append(len(rows))
        return rows[:n_clusters]

    FederatedKMeans(3, algorithm="lloyd", init=first_rows, random_state=0).fit(PARTS)
    assert sorted(seen) == sorted(map(len, PARTS.values()))


def test_an_algorithm_object_brings_its_own_parameters() -> None:
    fkm = FKM(3, local_iterations=5, server_n_init=3)
    model = FederatedKMeans(3, algorithm=fkm, max_iter=4, random_state=0).fit(PARTS)
    assert [done["step"] for done in model.history_] == ["FKM"] * 4
    start = FederatedKMeans(3, algorithm=Lloyd(tol=0), random_state=0).fit(PARTS)
    assert start.history_[0]["step"] == "SiteSummaries"  # Lloyd needs a start, and gets one


def test_to_sklearn() -> None:
    frames = {name: pd.DataFrame(rows, columns=["a", "b"]) for name, rows in PARTS.items()}
    ours = FederatedKMeans(3, random_state=0).fit(frames)
    twin = ours.to_sklearn()
    pooled = pd.DataFrame(X, columns=["a", "b"])
    assert isinstance(twin, KMeans)
    assert_array_equal(twin.predict(pooled), ours.predict(pooled))
    assert_allclose(twin.transform(pooled), ours.transform(pooled))
    assert twin.score(pooled) == pytest.approx(ours.score(pooled))


@pytest.mark.parametrize(
    ("algorithm", "prepare"),
    [("auto", None), ("auto", "standard"), ("lloyd", None), ("kfed", None), ("fkm", None)],
)
def test_a_site_with_one_row_never_takes_part_and_one_with_fewer_than_clusters_does(
    algorithm: Any, prepare: Any
) -> None:
    model = FederatedKMeans(3, algorithm=algorithm, prepare=prepare, random_state=0)
    with pytest.warns(UserWarning, match="^alone took no part: its limits held back all rows$"):
        model.fit({"few": X[:2], "many": X[2:], "alone": np.array([[100.0, 100.0]])})
    assert model.values_sent_["alone"] == 0
    assert model.rows_held_back_["alone"] == 1
    assert np.abs(model.cluster_centers_).max() < 15
    assert len(model.site_labels_["few"]) == 2


def test_a_limit_keeps_every_row_from_being_sent_as_it_is() -> None:
    """Nor as a seed: without a limit, a row may be a mean of its own, and is counted."""
    model = FederatedKMeans(3, random_state=0).fit(PARTS)
    assert max(model.lone_rows_.values()) > 0
    for smallest in (2, 5):
        model = FederatedKMeans(3, min_cluster_size=smallest, random_state=0).fit(PARTS)
        assert set(model.lone_rows_.values()) == {0}


def test_fkm_holds_lone_rows_back_as_in_the_paper() -> None:
    outlier = {"a": np.vstack([PARTS["north"], [[500.0, 500.0]]]), "b": PARTS["south"]}
    model = FederatedKMeans(3, algorithm="fkm", random_state=0).fit(outlier)
    assert model.rows_held_back_["a"] >= 1
    assert set(model.lone_rows_.values()) == {0}
    free = FederatedKMeans(3, algorithm="fkm", min_cluster_size=1, random_state=0).fit(outlier)
    assert free.lone_rows_["a"] >= 1


@pytest.mark.parametrize(
    ("params", "given", "message"),
    [
        ({"n_clusters": 0}, PARTS, "n_clusters must be a whole number of at least 1, not 0"),
        ({"n_clusters": 2.0}, PARTS, "n_clusters must be a whole number of at least 1, not 2.0"),
        ({"n_clusters": 91}, PARTS, "n_samples=90 rows: too few for n_clusters=91"),
        ({"max_iter": 0}, PARTS, "max_iter must be a whole number of at least 1, not 0"),
        ({"n_init": "many"}, PARTS, "n_init must be a whole number of at least 1, not 'many'"),
        ({"tol": -1}, PARTS, "tol must be at least 0, not -1"),
        ({"tol": None}, PARTS, "tol must be a number, not None"),
        ({"trim": "some"}, PARTS, "trim must be a number, not 'some'"),
        ({"tol": float("nan")}, PARTS, "tol must be at least 0, not nan"),
        ({"algorithm": "loyd"}, PARTS, "algorithm must be one of 'auto', 'lloyd', 'fkm', 'kfed'"),
        ({"init": "kmeans"}, PARTS, "init must be one of 'auto', 'summaries'"),
        ({"init": np.zeros((2, 2))}, PARTS, "init has shape (2, 2), but n_clusters=3"),
        ({"init": np.full((3, 4), np.nan)}, PARTS, "Input init contains NaN"),
        ({"algorithm": FKM(4)}, PARTS, "n_clusters=3, but algorithm is FKM(n_clusters=4"),
        ({"algorithm": Lloyd}, PARTS, "the class Lloyd; give an object of it, as in Lloyd()"),
        ({"min_cluster_size": 1000}, PARTS, "MinClusterSize(p=1000) at north, south, west"),
        ({"min_cluster_size": 0}, PARTS, "min_cluster_size must be a whole number"),
        ({}, {"a": X[:5], "b": X[5:, :1]}, "same number of columns, not {'a': 2, 'b': 1}"),
        ({}, {"a": X[:0], "b": X}, "site 'a': Found array with 0 sample(s)"),
        ({}, {}, "no site was given"),
        ({}, {1: X[:5], "1": X[5:]}, "two sites have the same name"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_words(params: Any, given: Any, message: str) -> None:
    model = FederatedKMeans(**{"n_clusters": 3, "random_state": 0, **params})
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        model.fit(given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "site 'b', column 'y', row 3: the value is missing"),
        (-np.inf, "site 'b', column 'y', row 3: the value is infinite"),
        ("n/a", "site 'b', column 'y', row 3: the value is missing"),
        ("low", "site 'b', column 'y', row 3: 'low' is not a number, as most of this column are"),
    ],
)
def test_a_bad_value_is_named_by_site_row_and_column(value: Any, message: str) -> None:
    a, b = (pd.DataFrame(X[:10], columns=["x", "y"]).astype(object) for _ in range(2))
    b.loc[3, "y"] = value
    with pytest.raises(ValueError, match=re.escape(message)):
        FederatedKMeans(2).fit({"a": a, "b": b})


@pytest.mark.parametrize("library", [pd, pl])
@pytest.mark.parametrize("day", [datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1)])
def test_dates_are_no_numbers_of_nanoseconds(library: Any, day: datetime.date) -> None:
    table = library.DataFrame({"x": [1.0, 2.0, 3.0], "born": [day] * 3})
    said = "column 'born', row 0: the value, a date"
    with pytest.raises(ValueError, match=f"^site 'b', {said}"):
        FederatedKMeans(2).fit({"b": table})
    model = FederatedKMeans(2, random_state=0).fit(pd.DataFrame(X, columns=["x", "born"]))
    for given, where in ((table, "the table"), ({"a": table}, "site 'a'")):
        with pytest.raises(ValueError, match=f"^{where}, {said}"):
            model.predict(given)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pl.DataFrame({"x": [1.0, 2.0]}).lazy(), "it is lazy; give what its collect"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), "^the table, column 'x0', row 0: the value, a"),
        (
            pd.DataFrame({"age": [31.0, 47.0], "n": [1, 2], "sex": ["f", "m"]}),
            "or give a data frame of columns of numbers: 'age', 'n'$",
        ),
    ],
)
def test_what_holds_no_rows_yet_or_no_numbers_is_refused(table: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_table(table)


def test_a_column_that_one_site_lacks_is_named() -> None:
    a = pd.DataFrame(X[:10], columns=["x", "y"])
    with pytest.raises(ValueError, match=r"^site 'b' has no column 'y'; it has x, z$"):
        FederatedKMeans(2).fit({"a": a, "b": a.rename(columns={"y": "z"})})
    with pytest.raises(ValueError, match=r"^site 'b', columns: it alone has 'z'; every site must"):
        FederatedKMeans(2).fit({"a": a, "b": a.rename(columns={"y": "Y"}).assign(z=1.0)})


@pytest.mark.parametrize(
    ("given", "how", "message"),
    [
        (X, {"sites": SITE[:-1]}, "sites must name the site of each of the 90 rows"),
        (X, {"sample_weight": np.ones(89)}, r"has shape \(89,\), but there are 90 rows"),
        (X, {"sample_weight": -np.ones(90)}, "sample_weight must be finite and at least 0"),
        (X, {"sample_weight": ["w"] * 90}, "sample_weight must hold numbers: could not convert"),
        (X, {"sample_weight": np.zeros(90)}, "sample_weight is zero for every row"),
        (PARTS, {"sites": SITE}, "sites= names the rows of one table"),
        (PARTS, {"sample_weight": {"north": np.ones(3)}}, "one array for each of the sites"),
    ],
)
def test_sites_and_weights_must_fit_the_rows(given: Any, how: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FederatedKMeans(2).fit(given, **how)


@pytest.mark.parametrize("algorithm", ["auto", "lloyd", "kfed", "fkm"])
def test_duplicates_and_constant_columns_work(algorithm: AlgorithmName) -> None:
    same = {"a": np.ones((10, 2)), "b": np.ones((6, 2))}
    model = FederatedKMeans(1, algorithm=algorithm, random_state=0).fit(same)
    assert_array_equal(model.cluster_centers_, [[1.0, 1.0]])
    if algorithm in ("auto", "lloyd"):
        with pytest.warns(match="only 1 of 3 clusters have rows"):
            model = FederatedKMeans(3, algorithm=algorithm, random_state=0).fit(same)
        assert_array_equal(model.cluster_centers_, np.ones((3, 2)))


def counted(compiled: Any, frames: dict[str, int]) -> Any:
    """A compiled function that notes the frames from `fit` to each of its calls."""

    def call(*given: Any) -> Any:
        codes = [each.f_code for each, _ in walk_stack(inspect.currentframe())]
        fits = [i for i, code in enumerate(codes) if code.co_name == "fit"]
        at = [i for i in fits if codes[i].co_filename.endswith("estimators/_base.py")]
        name = compiled.__name__
        frames[name] = max([*at[:1], frames.get(name, 0)])
        return compiled(*given)

    return call


@pytest.mark.parametrize(("n_rows", "worth_bounds"), [(90, 1 << 22), (18000, 1 << 22), (18000, 1)])
def test_few_frames_lie_between_fit_and_a_kernel(n_rows, worth_bounds, monkeypatch):
    """Python's frames from `fit`, which counts, to a compiled function, which does not."""
    frames: dict[str, int] = {}
    rows = np.concatenate([X] * (n_rows // 90)) + RNG.normal(size=(n_rows, 2))
    model = FederatedKMeans(3, n_init=2, random_state=0)
    monkeypatch.setattr("fedcluster.kernels._hard.WORTH_BOUNDS", worth_bounds)
    model.fit([rows[::2], rows[1::2]])  # compiles
    for name, module in list(sys.modules.items()):
        if name.startswith("fedcluster.kernels."):
            for given, value in list(vars(module).items()):
                if isinstance(value, Dispatcher):
                    monkeypatch.setattr(module, given, counted(value, frames))
    model.fit([rows[::2], rows[1::2]])
    assert "sweep_chunk" in frames
    assert 5 < max(frames.values()) <= 15


@pytest.mark.parametrize(
    "engine",
    [
        lambda given, tmp_path: LocalEngine(given),
        lambda given, tmp_path: RecordedEngine(LocalEngine(given), tmp_path),
        lambda given, tmp_path: flower_engine(given),
        lambda given, tmp_path: RecordedEngine(flower_engine(given), tmp_path),
    ],
    ids=["local", "recorded", "flower", "recorded-flower"],
)
@pytest.mark.parametrize(("n_clusters", "prepare"), [(3, "standard"), ("auto", None), (3, None)])
def test_a_fit_on_any_engine_gives_the_bits_of_a_fit_on_its_sites(
    engine, n_clusters, prepare, tmp_path
):
    columns = (Column("a"), Column("b"))
    clients = [Client(name, Data(rows, columns=columns)) for name, rows in PARTS.items()]
    model = FederatedKMeans(n_clusters, prepare=prepare, random_state=0)
    here = clone(model).fit_clients(clients, ["a", "b"])
    there = clone(here).fit(X[:9], sites=SITE[:9]).fit_engine(engine(clients, tmp_path))
    assert there.preprocessor_ == here.preprocessor_
    assert_array_equal(here.cluster_centers_, there.cluster_centers_)
    assert list(there.feature_names_in_) == ["a", "b"]
    assert there.values_sent_ == here.values_sent_
    np.testing.assert_equal(there.history_, here.history_)
    assert_array_equal(
        there.predict(pd.DataFrame(PARTS["west"], columns=["a", "b"])), here.site_labels_["west"]
    )
    for unknown in ("labels_", "site_labels_", "rows_held_back_", "lone_rows_"):
        assert hasattr(here, unknown)
        assert not hasattr(there, unknown)


def test_a_fit_on_a_table_of_sites_finds_their_clusters() -> None:
    apart = FederatedKMeans(3, random_state=0).fit(X, sites=SITE)
    engine = LocalEngine.from_table(Data(X), SITE)
    crowd = FederatedKMeans(3, random_state=0).fit_engine(engine)
    assert_allclose(crowd.cluster_centers_, apart.cluster_centers_)
    assert not hasattr(crowd, "feature_names_in_")
    assert_array_equal(crowd.predict(X), apart.labels_)
    assert [site.name for site in crowd.sites_] == [*apart.site_labels_]
    with pytest.raises(ValueError, match="too few for n_clusters=91"):
        FederatedKMeans(91).fit_engine(engine)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("ba", "site 'south' has its columns in another order than site 'north'"),
        ("ac", "site 'south' has no column 'b', which site 'north' has"),
    ],
)
def test_sites_of_an_engine_whose_columns_differ_are_refused(columns: str, says: str) -> None:
    named = {"north": tuple(map(Column, "ab")), "south": tuple(map(Column, columns))}
    clients = [Client(site, Data(PARTS[site], columns=own)) for site, own in named.items()]
    with pytest.raises(ValueError, match=says):
        FederatedKMeans(2).fit_engine(LocalEngine(clients))


@pytest.mark.parametrize(
    "model",
    [FederatedKMeans(3, verbose=1), FederatedFuzzyCMeans(3), FederatedGaussianMixture(3)],
    ids=lambda model: type(model).__name__,
)
def test_verbose_says_each_round(model: Any, capsys: pytest.CaptureFixture[str]) -> None:
    quiet = clone(model).set_params(random_state=0, verbose=0).fit(PARTS)
    assert capsys.readouterr().out == ""
    model = clone(model).set_params(random_state=0, verbose=1).fit(PARTS)
    *rounds, end = capsys.readouterr().out.splitlines()
    assert len(rounds) == model.n_iter_
    for number, (line, done) in enumerate(zip(rounds, model.communication_rounds_, strict=True), 1):
        sent = sum(done["values_sent"].values())
        assert line.startswith(f"round {number}: ")
        assert line.endswith(f"; 3 sites answered, {sent:,} numbers")
        assert all(step in line for step in done["tasks"])
    assert end == f"{model.stop_reason_}; {model.n_iter_} rounds with the sites"
    assert model.cluster_centers_.tobytes() == quiet.cluster_centers_.tobytes()


def test_each_name_that_a_parameter_takes_is_among_its_types() -> None:
    assert get_args(AlgorithmName) == tuple(ALGORITHMS)
    assert get_args(FuzzyAlgorithmName) == tuple(FUZZY_ALGORITHMS)


@pytest.mark.thorough
@pytest.mark.parametrize("how", [{}, {"metric": "cosine"}, {"prepare": "standard"}])
def test_half_precision_gives_the_bits_of_double_precision(how: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    centers = rng.normal(size=(5, 12))
    X = (3 * centers[rng.integers(5, size=5000)] + rng.normal(size=(5000, 12))).astype(np.float16)
    half, double = (
        FederatedKMeans(5, random_state=0, **how).fit([rows[:2400], rows[2400:]])
        for rows in (X, X.astype(np.float64))
    )
    assert_array_equal(half.cluster_centers_, double.cluster_centers_)
    assert_array_equal(half.labels_, double.labels_)


@pytest.mark.thorough
def test_rows_of_half_precision_are_copied_once_in_single_precision(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(40_000, 128)).astype(np.float16)
    rows += 8 * rng.integers(4, size=(40_000, 1)).astype(np.float16)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    fit = FederatedKMeans(4, n_init=1, max_iter=2, tol=0.1, random_state=0)
    fit.fit([mapped[:5000]])  # compiled
    tracemalloc.start()
    fit.fit([mapped])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3.5 * rows.nbytes, peak / rows.nbytes
