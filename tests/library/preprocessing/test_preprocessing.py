"""Preprocessor: what scikit-learn finds on the pooled rows, from sums, for any partition."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from introductions import disclosed_columns
from numpy.testing import assert_allclose, assert_array_equal
from partitions import InChunks, on_line
from prepared_sites import engine_of, fitted
from sklearn.decomposition import PCA
from sklearn.preprocessing import RobustScaler, StandardScaler
from typed import run

from fedcluster import FederatedKMeans
from fedcluster.algorithms import Lloyd
from fedcluster.core import Column, Data, State, Task
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import HeldBackError, InputError, SiteError
from fedcluster.frames.cells import may_be_number
from fedcluster.frames.columns import common_levels
from fedcluster.frames.inputs import read_table
from fedcluster.frames.reader import ColumnRoles
from fedcluster.metrics.moments import Means
from fedcluster.preprocessing import Category, NumericColumn, PreprocessingSpec, Preprocessor
from fedcluster.preprocessing.agreement import agree, odd_sites
from fedcluster.preprocessing.moments import Principal, principal, quantiles
from fedcluster.preprocessing.screening import no_features
from fedcluster.privacy import Groups, MinClusterSize
from fedcluster.rounds import run_plan
from fedcluster_app.tables._files import values_in

SEEDS = st.integers(0, 2**32 - 1)
OFFSETS = st.sampled_from([0.0, -3.0, 1e4, 1e8])


def split(X: np.ndarray, rng: np.random.Generator, n_sites: int) -> dict[str, Data]:
    site = rng.integers(0, n_sites, len(X))
    site[: 2 * n_sites] = np.repeat(np.arange(n_sites), 2)
    return {f"s{i}": Data(X[site == i]) for i in range(n_sites)}


def scaling(preprocessor: Preprocessor) -> np.ndarray:
    """The shifts of numbers, and their scales."""
    return np.array([[c.shift, c.scale] for c in preprocessor.numeric]).T


def people(*rows: tuple) -> Data:
    """Rows of age and sex, each as often as is said."""
    sexes = sorted({sex for _, sex, *_ in rows if sex})
    often = [(age, sex) for age, sex, *n in rows for _ in range(n[0] if n else 1)]
    X = [[age, sexes.index(sex) if sex else np.nan] for age, sex in often]
    return Data(np.array(X, float), columns=(Column("age"), Column("sex", "text", tuple(sexes))))


@given(seed=SEEDS, n_sites=st.integers(1, 5), offset=OFFSETS)
def test_standardised_as_if_pooled(seed: int, n_sites: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rng.integers(2 * n_sites, 80), 3)) * [1.0, 1e-2, 50.0] + offset
    pooled = StandardScaler().fit(X - offset)
    shifts, scales = scaling(fitted(split(X, rng, n_sites)).preprocessor)
    assert_allclose(shifts, pooled.mean_ + offset, rtol=1e-9)
    rounding = len(X) * 1e-16 * abs(offset) / np.sqrt(pooled.var_)
    assert_allclose(scales**2, pooled.var_, rtol=1e-9 + rounding.max())


@given(
    seed=SEEDS,
    n_sites=st.integers(1, 4),
    offset=OFFSETS,
    ties=st.booleans(),
    share=st.sampled_from([0.01, 0.25, 0.5, 0.9]),
)
def test_quantiles_are_off_by_half_a_step_at_most(seed, n_sites, offset, ties, share) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_t(2, size=(rng.integers(2 * n_sites, 300), 2))
    X = (np.round(X) if ties else X) + offset
    plan = quantiles([share], X.mean(axis=0), X.var(axis=0), np.full(2, float(len(X))))
    values, steps = run_plan(plan, engine_of(split(X, rng, n_sites))).value
    true = np.quantile(X, share, axis=0)
    assert (np.abs(values[0] - true) <= steps[0] / 2 + 1e-15 * np.abs(X).max()).all()


def test_the_search_for_quantiles_ends_before_counts_are_small() -> None:
    X = np.random.default_rng(2).normal(size=(40_000, 1))
    engine: Any = engine_of({"all": Data(X)})
    asked: list[np.ndarray] = []
    answers = engine.ask

    def listening(tasks, sites=None):
        found = answers(tasks, sites)
        asked.extend(a.total().weights for a in found)
        return found

    engine.ask = listening
    run_plan(quantiles([0.5], X.mean(axis=0), X.var(axis=0), np.array([40_000.0]), small=5), engine)
    averages = [weights.sum() / len(weights) for weights in asked[1:]]
    assert averages
    assert min(averages) >= 4.9


def test_robust_scaling_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(3)
    X = rng.gamma(2.0, size=(20_000, 3)) * [1.0, 100.0, 0.01]
    pooled = RobustScaler().fit(X)
    found = scaling(fitted(split(X, rng, 4), scale="robust").preprocessor)
    assert_allclose(found, [pooled.center_, pooled.scale_], rtol=1e-3)


@pytest.mark.parametrize(("whole", "rounds"), [(2000, 2), (10, 30)])
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_principal_components_are_those_of_the_pooled_rows(offset, whole, rounds) -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(600, 30)) @ np.diag(1.3 ** -np.arange(30)) @ rng.normal(size=(30, 30))
    pooled = PCA(4, svd_solver="full").fit(X)
    outcome = run_plan(principal(4, whole=whole), engine_of(split(X + offset, rng, 5)))
    # at 1e8, the rows themselves are rounded to 1e-8
    assert_allclose(outcome.value.variances, pooled.explained_variance_, rtol=1e-8)
    assert_allclose(outcome.value.components, pooled.components_, atol=1e-5)
    assert len(outcome.communication_rounds) <= rounds


@given(seed=SEEDS)
def test_weights_count_as_repetition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, weight = rng.normal(size=(40, 2)), rng.integers(0, 4, 40).astype(float)
    X[rng.random(40) < 0.1, 1] = np.nan
    weight[:4] = 1.0
    X[:4] = [[0.0, 1.0], [1.0, 0.0], [2.0, 5.0], [3.0, 3.0]]
    again = Data(np.repeat(X, weight.astype(int), axis=0))
    for how in ({"missing": "mean"}, {"scale": "robust", "missing": "drop"}):
        a, b = (scaling(fitted({"s": x}, **how).preprocessor) for x in (Data(X, weight), again))
        assert_allclose(a, b, rtol=1e-12, atol=1e-12)


MISSING = {
    "north": Data(np.array([[1.0, 10.0], [2.0, np.nan], [3.0, 30.0]])),
    "south": Data(np.array([[4.0, 50.0], [5.0, 60.0], [np.nan, 70.0]])),
}
POOLED = np.concatenate([data.X for data in MISSING.values()])


def test_missing_values_are_counted_and_filled_with_the_mean_before_the_variance() -> None:
    found = fitted(MISSING, missing="mean")
    assert found.fit_report.missing == {"north": {"x1": 1}, "south": {"x0": 1}}
    filled = np.where(np.isnan(POOLED), np.nanmean(POOLED, axis=0), POOLED)
    X = np.concatenate([found.preprocessor.apply(data).X for data in MISSING.values()])
    assert_allclose(X, (filled - filled.mean(axis=0)) / filled.std(axis=0), atol=1e-12)


def test_missing_values_are_filled_with_the_median_of_all_sites() -> None:
    X = on_line(*range(100), 1e6)
    lacking = Data(np.append(X, [[np.nan]], axis=0))
    found = fitted({"a": Data(X), "b": lacking}, scale="none", missing="median")
    assert found.preprocessor.apply(lacking).X[-1, 0] == pytest.approx(50.0, abs=5.0)


def test_rows_with_missing_values_can_be_dropped_from_all_that_is_computed() -> None:
    preprocessor = fitted(MISSING, missing="drop").preprocessor
    whole = POOLED[~np.isnan(POOLED).any(axis=1)]
    assert_allclose(scaling(preprocessor), [whole.mean(axis=0), whole.std(axis=0)])
    assert len(preprocessor.apply(MISSING["north"])) == 2
    sites = MISSING | {"west": Data(np.array([[np.nan, 1.0], [1.0, np.nan]]))}
    said = r"site 'west', .*no row is left after those with a missing"
    with pytest.raises(SiteError, match=said):
        fitted(sites, missing="drop")


def test_missing_values_are_an_error_that_names_all_of_them() -> None:
    with pytest.raises(InputError, match="1 of 'x1' at north; 1 of 'x0' at south; drop their rows"):
        fitted(MISSING)
    preprocessor = fitted({"s": Data(np.eye(2))}).preprocessor
    said = "1 of 3 rows have a missing value, the first one is row 2"
    with pytest.raises(InputError, match=said):
        preprocessor.apply(MISSING["north"])


def test_a_column_that_a_site_has_no_value_of_is_left_out_unless_it_is_named() -> None:
    sites = {"north": MISSING["north"], "west": Data(np.array([[1.0, np.nan], [2.0, np.nan]]))}
    found = fitted(sites, missing="mean")
    assert found.fit_report.left_out == {"x1": "numbers at north, no value at west"}
    assert found.preprocessor.names == ("x0",)
    with pytest.raises(InputError, match=r"column 'x1' holds numbers at north, no value at west;"):
        fitted(sites, missing="mean", columns=["x0", "x1"])


def test_categories_become_columns_of_0_and_1_whatever_a_site_s_codes() -> None:
    sites = {
        "north": people((30, "M", 3), (40, "F", 2)),
        "south": people((50, "M", 2), (60, "X", 4)),
    }
    found = fitted(sites, scale="none", rare=1)
    assert found.preprocessor.names == ("age", "sex=F", "sex=M", "sex=X")
    assert found.preprocessor.apply(sites["south"]).X[1:3].tolist() == [
        [50, 0, 1, 0],
        [60, 0, 0, 1],
    ]
    assert found.fit_report.only_at == {("sex", "F"): "north", ("sex", "X"): "south"}


def test_rare_levels_are_pooled_and_a_text_of_one_row_or_of_fewer_than_a_limit_is_never_named():
    north = people((30, "M", 9), (40, "F", 9), (41, "Ann"))
    south = people((50, "M", 9), (60, "X", 3))
    found = fitted({"north": north, "south": south}, scale="none", rare=5)
    assert found.preprocessor.names == ("age", "sex=F", "sex=M", "sex=(other)")
    assert found.fit_report.pooled == {"sex": ("X",)}
    assert "Ann" not in str(disclosed_columns(engine_of({"north": north}))["north"])
    assert found.preprocessor.apply(north).X[-1].tolist() == [41, 0, 0, 1]
    told = Client("north", people((30, "M", 9), (40, "F", 4)), [MinClusterSize(5)]).describe()
    assert told == (Column("age"), Column("sex", "text", ("M",)))


def test_numbers_can_be_categories_and_agree_with_text() -> None:
    texts = (Column("sex", "text", ("1", "9")),)
    sites = {
        "north": Data(on_line(1, 2, 1, 2), columns=(Column("sex"),)),
        "south": Data(on_line(0, 0, 1, 1), columns=texts),
    }
    found = fitted(sites, categories=["sex"], rare=1).preprocessor
    assert found.names == ("sex=1", "sex=2", "sex=9")
    assert [found.apply(data).X[0].tolist() for data in sites.values()] == [[1, 0, 0]] * 2


def test_unknown_texts_and_missing_values_of_new_rows_are_counted() -> None:
    sites = {"north": people((30, "M", 3), (40, "F", 2))}
    filling, dropping = (
        fitted(sites, scale="none", missing=how, rare=1).preprocessor for how in ("mean", "drop")
    )
    new = people((30, "X"), (30, "M"), (20, "Y"))
    assert dropping.unknown(new) == {"sex": 2}
    assert dropping.apply(new).X.tolist() == [[30, 0, 0], [30, 0, 1], [20, 0, 0]]
    lacking = people((np.nan, "X"), (30, ""), (np.nan, ""))
    assert filling.filled(lacking) == {"age": 2, "sex": 2}
    assert filling.apply(lacking).X[1].tolist() == [30, 0, 1]
    assert dropping.filled(lacking) == {}


def test_categories_are_texts_although_their_levels_are_numbers() -> None:
    frame = pd.DataFrame({"ward": pd.Categorical([1, 7] * 20)})
    arrow = pa.table({"ward": pa.array([1, 7] * 20).dictionary_encode()})
    for rows in (frame, arrow, pl.DataFrame({"ward": ["1", "7"] * 20}, {"ward": pl.Enum("17")})):
        model = FederatedKMeans(2, prepare="standard", random_state=0).fit({"north": rows})
        assert model.preprocessor_ is not None
        assert model.preprocessor_.names == ("ward=1", "ward=7")
        for new in (frame[:2], pd.DataFrame({"ward": [1, 7]})):
            assert_array_equal(model.predict(new), model.labels_[:2])
    assert sorted(FederatedKMeans(2).fit(frame).cluster_centers_.ravel()) == [1, 7]


NUMBER, WORDS = Column("age"), Column("age", "text", ("old", "young"))
FREE, SEX = Column("age", "text"), Column("sex", "text", ("F",))
DATE, MIXED, EMPTY = (Column("age", kind) for kind in ("date", "mixed", "empty"))


def told_of(ages: Any) -> dict[str, list[Column]]:
    """What sites tell of a column that some lack, beside another one."""
    return {name: [SEX, *filter(None, [age])] for name, age in zip("abcde", ages, strict=False)}


@pytest.mark.parametrize(
    ("ages", "warned"),
    [
        ([NUMBER, NUMBER, WORDS], "text at c"),
        ([NUMBER, NUMBER, None], "is lacking at c"),
        ([NUMBER, NUMBER, DATE], "dates at c"),
        ([NUMBER, WORDS], None),
        ([NUMBER, NUMBER, WORDS, WORDS], None),
        ([MIXED, MIXED, NUMBER], None),
        ([NUMBER, None, None], None),
    ],
)
def test_a_site_that_keeps_all_from_using_a_column_is_warned_of(ages, warned) -> None:
    """One that says another kind than most, whether by mistake or to change the clusters."""
    schema = agree(told_of(ages))
    assert "age" in schema.left_out
    assert len(schema.warnings) == (warned is not None)
    for line in schema.warnings:
        assert warned in line
        assert line.endswith("left out at all sites because of c alone; correct it there")
    assert agree(told_of(ages), ["sex"]).warnings == ()  # left out on purpose
    alike = agree(told_of([NUMBER] * 3))
    assert (alike.warnings, alike.left_out) == ((), {})


@pytest.mark.parametrize(
    ("ages", "spec", "odd"),
    [
        ([NUMBER, NUMBER, NUMBER, WORDS, FREE], {}, ["d", "e"]),
        ([NUMBER, NUMBER, WORDS, WORDS], {}, None),
        ([NUMBER, NUMBER, WORDS], {}, ["c"]),
        ([WORDS, WORDS, NUMBER], {}, ["c"]),
        ([NUMBER, NUMBER, DATE], {}, ["c"]),
        ([NUMBER, NUMBER, MIXED], {}, ["c"]),
        ([NUMBER, NUMBER, WORDS], {"columns": ["sex"]}, []),  # not asked about
        ([NUMBER, NUMBER, EMPTY], {}, []),  # no value is no other kind
        ([NUMBER, NUMBER, None], {}, []),
        ([FREE, FREE, NUMBER], {}, []),  # text that no fit uses, as few rows share it
        ([WORDS, WORDS, NUMBER], {"categories": "none"}, []),
        ([FREE, FREE, NUMBER], {"categories": ["age"]}, ["c"]),
        ([NUMBER, WORDS, DATE], {}, None),
    ],
)
def test_the_odd_ones_hold_another_kind_than_most_where_it_matters(ages, spec, odd) -> None:
    if odd is None:
        said = r"^column 'age' holds .*, and no kind is that of most"
        with pytest.raises(InputError, match=said):
            odd_sites(told_of(ages), PreprocessingSpec(**spec))
        return
    found, said = odd_sites(told_of(ages), PreprocessingSpec(**spec))
    assert found == {name: ["age"] for name in odd}
    assert ("column 'age' holds" in said) is bool(odd)


@pytest.mark.parametrize(
    ("kind", "odd"), [("text", ["old", "young"] * 10), ("dates", pd.date_range("2020", periods=20))]
)
def test_an_estimator_refuses_an_odd_site_by_name(kind, odd) -> None:
    frame = pd.DataFrame({"age": 20.0 + np.arange(20), "size": np.arange(20.0) % 7})
    sites = dict.fromkeys("abc", frame) | {"d": frame.assign(age=odd)}
    line = rf"^column 'age' holds numbers at a, b and c, {kind} at d: correct it at d, or name "
    with pytest.raises(InputError, match=line):
        FederatedKMeans(2, prepare="standard", random_state=0).fit(sites)


def test_all_differences_are_named_at_once() -> None:
    told = {
        "north": [Column("age"), Column("sex", "text"), Column("bmi"), Column("born")],
        "south": [Column("age"), Column("sex"), Column("bmi"), Column("born", "date")],
        "west": [Column("age", "mixed"), Column("sex", "text"), Column("BMI"), Column("born")],
    }
    why = {
        "age": "numbers at north and south, numbers and text at west",
        "sex": "text at north and west, numbers at south",
        "bmi": "lacking at west, but west has 'BMI' (--set sites.west.rename.BMI=bmi if it is the "
        "same)",
        "born": "numbers at north and west, dates at south",
    }
    with pytest.raises(InputError) as error:
        agree(told, list(why))
    holds = [f"column {name!r} {'is' if name == 'bmi' else 'holds'} {why[name]}" for name in why]
    holds += ["mend that: no column is the same everywhere"]
    assert str(error.value) == "; ".join(holds)
    why["BMI"] = "only west has it, but north has 'bmi' and south has 'bmi'"
    with pytest.raises(InputError) as error:
        agree(told)
    assert str(error.value) == "the sites have no column in common: " + "; ".join(
        f"{name!r} ({each})" for name, each in why.items()
    )
    schema = agree({site: [*columns, Column("weight")] for site, columns in told.items()})
    assert [column.name for column in schema.columns] == ["weight"]
    assert schema.left_out == why


NO_INTERVAL = "the bounds of 'x', .* are no interval"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bounds": {"x": (2, 1)}}, "the bounds of 'x', 2 and 1, are no interval"),
        ({"weights": {"x": 0.0}}, "the weight of 'x' must be above 0 and at most 1e.12, not 0.0"),
        ({"scale": "big"}, "must be one of 'standard', 'minmax', 'robust', 'none', not 'big'"),
        ({"missing": "no"}, "missing must be one of"),
        ({"categories": "sex"}, "must be 'auto', 'none' or a list of columns, not 'sex'"),
        ({"pca": 0}, "pca must be at least 1, not 0"),
        ({"weights": {"x": float("nan")}}, "the weight of 'x' must be above 0 and .*, not nan"),
        ({"bounds": {"x": (1.0, 1.0)}}, NO_INTERVAL),
        ({"bounds": {"x": (-np.inf, 1.0)}}, NO_INTERVAL),
        ({"bounds": {"x": (0, np.inf)}}, NO_INTERVAL),
    ],
)
def test_what_means_nothing_is_refused(wrong, message) -> None:
    with pytest.raises(ValueError, match=message):
        PreprocessingSpec(**wrong)


NO_CATEGORY = "column 'sex' cannot be used: text, and not among the categories"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"log": ["sex"]}, "the logarithm of 'sex': that is no column of numbers; there are age"),
        ({"scale": "minmax"}, "scaling by minmax needs bounds of 'age'"),
        ({"bounds": {"y": (0, 1)}}, "bounds of 'y': that is no column of numbers"),
        ({"categories": ["size"]}, "there is no column 'size' to make categories of"),
        ({"weights": {"size": 2}}, "no column 'size' to weigh; there are age, sex"),
        ({"categories": "none", "weights": {"sex": 2}}, NO_CATEGORY),
        ({"categories": "none", "columns": ["sex"]}, NO_CATEGORY),
    ],
)
def test_what_these_columns_do_not_allow_is_refused(how, message) -> None:
    with pytest.raises(InputError, match=message):
        fitted({"north": people((30, "M", 30), (40, "F", 20))}, **how)


def test_a_negative_value_has_no_logarithm_and_the_site_says_so() -> None:
    with pytest.raises(SiteError, match=r"site 's'.*column 'x0' has a negative value") as error:
        fitted({"s": Data(on_line(-7.5, 1))}, log=["x0"])
    assert "7.5" not in str(error.value)


@pytest.mark.parametrize("scale", ["robust", "minmax", "standard", "none"])
def test_a_weight_multiplies_the_squared_differences_of_a_column(scale) -> None:
    """Of all levels of a text, and of a number; the others keep their bits."""
    north = people((30, "M", 30), (41, "F", 20), (52, "M", 12))
    plain, weighed, only = (
        fitted({"north": north}, scale=scale, bounds={"age": (0, 99)}, weights=w).preprocessor
        for w in ({}, {"age": 4.0, "sex": 0.25}, {"age": 4.0})
    )
    X = plain.apply(north).X
    assert_array_equal(weighed.apply(north).X, X * [2.0, 0.5, 0.5])
    assert_array_equal(only.apply(north).X, X * [2.0, 1.0, 1.0])
    assert_allclose(weighed.invert(X * [2.0, 0.5, 0.5]), plain.invert(X), rtol=1e-15)


def test_weights_come_before_principal_components() -> None:
    data = Data(np.random.default_rng(0).normal(size=(50, 3)))
    found = fitted({"s": data}, scale="none", weights={"x1": 9.0}, pca=2).preprocessor
    expected = np.abs(PCA(2).fit_transform(data.X * [1.0, 3.0, 1.0]))
    assert_allclose(np.abs(found.apply(data).X), expected, atol=1e-10)


TURNED = np.array([[0.6, 0.8], [-0.8, 0.6]])


@pytest.mark.parametrize(
    ("columns", "turn", "squares"),
    [
        ((NumericColumn("x0", scale=0.5), Category("t", ("a", "b"), scale=2.0)), None,
         np.diag([4, 0.25, 0.25])),
        ((NumericColumn("x0"), NumericColumn("x1")), TURNED, TURNED**2),
    ],
    ids=["weighed", "turned"],
)  # fmt: skip
def test_the_scatter_within_groups_is_weighed_and_turned_as_the_rows_are(columns, turn, squares):
    """Along (0.6, 0.8), variances that are known of each column alone count by the squares."""
    X = np.column_stack([np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) % 2])
    names = (Column("x0"), Column("x1"), Column("x2"), Column("t", "text", ("a", "b")))
    groups = Client("s", Data(X, columns=names), protection=Groups(5)).data
    plain = Preprocessor(tuple(replace(column, scale=1.0) for column in columns))
    made = Preprocessor(columns)
    if turn is not None:
        axes = tuple(map(tuple, turn.tolist()))
        made = replace(plain, principal=Principal((0.0, 0.0), axes, (1.0, 1.0)))
    before, after = plain.apply(groups), made.apply(groups)
    assert before.within is not None
    assert after.within is not None
    assert before.within.all()
    assert_allclose(after.X, before.X @ (np.sqrt(squares) if turn is None else turn.T))
    assert_allclose(after.within, squares @ before.within, rtol=1e-14)


@st.composite
def preprocessors(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Data]]:
    """Anything that can be asked for, and sites with numbers, text and missing values."""
    rng = np.random.default_rng(draw(SEEDS))
    sites = {}
    for name in ("north", "south"):
        X = np.column_stack([rng.gamma(2.0, size=(60, 2)), rng.integers(0, 3, 60)])
        X[rng.random(X.shape) < 0.05] = np.nan
        levels = tuple(rng.permutation(["a", "b", "c"]).tolist())
        columns = (Column("x"), Column("y"), Column("z", "text", levels))
        sites[name] = Data(X, columns=columns)
    choices: dict[str, Any] = {
        "scale": ["standard", "minmax", "robust", "none"],
        "missing": ["drop", "mean", "median"],
        "categories": ["auto", "none"],
        "log": [[], ["x"]],
        "weights": [{}, {"x": 2.0}],
        "pca": [None, 2],
    }
    prepare = {name: draw(st.sampled_from(each)) for name, each in choices.items()}
    return prepare | {"bounds": {"x": (0.5, 4.0), "y": (0.0, 5.0)}}, sites


@given(given_=preprocessors())
def test_a_preparation_is_the_same_after_json_in_chunks_and_backwards_but_for_a_step(given_):
    prepare, sites = given_
    found = fitted(sites, **prepare).preprocessor
    again = Preprocessor.from_plain(json.loads(json.dumps(found.plain())))
    assert again == found
    north = sites["north"]
    X = found.apply(north).X
    assert_array_equal(again.apply(north).X, X)
    assert len(X) == found.complete(north).sum()
    assert np.isfinite(X).all()
    chunks = {name: InChunks(data, 17) for name, data in sites.items()}
    streamed = fitted(chunks, **prepare).preprocessor
    for name, data in sites.items():
        expected = found.apply(data).X
        assert_allclose(streamed.apply(data).X, expected, rtol=1e-9, atol=1e-9, err_msg=name)
    x = found.numeric[0]
    step = x.step * x.scale * (5.0 if x.log else 1.0)  # values are at most 4: e^y is at most 5
    if found.principal is None and found.missing != "drop":
        there = ~np.isnan(north.X[:, 0])
        bounded = np.clip(north.X[there, 0], 0.5, 4.0)
        assert_allclose(found.invert(X)[there, 0], bounded, rtol=1e-12, atol=0.51 * step)


def test_a_step_sees_prepared_rows_and_the_client_keeps_them(monkeypatch) -> None:
    applied = []
    apply = Preprocessor.apply

    def counted(self: Preprocessor, data: Data) -> Data:
        applied.append(self)
        return apply(self, data)

    monkeypatch.setattr(Preprocessor, "apply", counted)
    preprocessor = Preprocessor((NumericColumn("x0", shift=5.0, scale=2.0),))
    client = Client("s", Data(on_line(5, 7, 9)))
    for _ in range(2):
        answer = client.answer(Task(Lloyd(), State.at([[0.0], [2.0]]), preprocessor=preprocessor))
    assert answer.sums[:, 0].tolist() == [1.0, 2.0]
    again = Preprocessor.from_plain(preprocessor.plain())
    client.answer(Task(Means(), State(), preprocessor=again))
    assert applied == [preprocessor]


def test_other_columns_are_left_alone_and_lacking_ones_named() -> None:
    preprocessor = Preprocessor((NumericColumn("b"), Category("c", ("u", "v"))))
    columns = (Column("c", "text", ("v", "u")), Column("a"), Column("b"))
    rows = Data(np.array([[0.0, 1.0, 2.0]]), columns=columns)
    assert preprocessor.apply(rows).X.tolist() == [[2.0, 0.0, 1.0]]
    with pytest.raises(InputError, match="there is no column 'b', 'c'; there are x0"):
        preprocessor.apply(Data(np.zeros((2, 1))))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bounds", [None, (-0.5, 2.0)])
def test_columns_side_by_side_have_the_bits_of_each_alone(dtype, bounds) -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(1e3, 1e-2, (40_000, 3)).astype(dtype)
    X[rng.random(X.shape) < 1e-3] = np.nan
    measures = (
        NumericColumn("x2", fill=1e3, shift=1e3, scale=0.01),
        NumericColumn("x0", bounds, shift=1.0, scale=3.0),
        NumericColumn("x1", fill=-0.0, scale=7.0),
    )
    data = Data(X)
    alone = np.concatenate([m.apply(data, j) for m, j in zip(measures, (2, 0, 1), strict=True)], 1)
    found = Preprocessor(measures, "keep").apply(data).X
    assert_array_equal(found, alone.astype(dtype), strict=True)


def test_limits_hold_back_preparation_too() -> None:
    sites = {"small": Data(on_line(*range(4))), "large": Data(on_line(*range(100, 120)))}
    [column] = fitted(sites, MinClusterSize(5)).preprocessor.columns
    assert column.shift == pytest.approx(109.5)  # the small site's rows are missing
    with pytest.raises(HeldBackError):
        fitted(sites, MinClusterSize(50))


def test_a_crowd_of_sites_is_prepared_as_one() -> None:
    rng = np.random.default_rng(0)
    X = Data(rng.normal(3.0, 2.0, size=(200, 2)))
    found = fitted(LocalEngine.from_table(X, rng.integers(0, 20, 200)))
    assert_allclose(found.preprocessor.apply(X).X.std(axis=0), 1.0)


def calls(made: Callable[[], object]) -> int:
    """The number of calls that something takes, of functions in Python and in C."""
    n = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal n
        n += event in ("call", "c_call")

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        made()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return n


KINDS_OF_COLUMNS: dict[str, Callable[[int, np.random.Generator], Any]] = {
    "numbers": lambda _, rng: rng.normal(size=80),
    "few values": lambda _, rng: rng.integers(0, 3, 80),
    "texts": lambda _, rng: rng.choice(["a", "b", "c"], 80),
    "copies": lambda j, _: np.arange(80) * 7919 % 83 * (1.0 + j),
    "keys": lambda _, rng: rng.permutation(10**6)[:80],
    "another unit": lambda _, rng: (30 + rng.normal(size=80)) * np.tile([25.4, 1, 1, 1], 20),
    "another spelling": lambda *_: np.tile(np.repeat(["no", "yes", "Yes"], [2, 1, 1]), 20),
}


class Name(str):
    """A name that is compared in Python, so that comparisons are counted."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)


def prepared_columns(kind: str, d: int) -> Callable[[], object]:
    """Read, agree on, prepare and inspect d columns of four sites, or agree on other names."""
    rng = np.random.default_rng(0)
    if kind in ("chosen", "other names"):
        told = {
            site: [Column(Name(f"{'C' if i and kind != 'chosen' else 'c'} {j}")) for j in range(d)]
            for i, site in enumerate("abc")
        }
        chosen = [column.name for column in told["a"]] if kind == "chosen" else None
        told = {site: [Column("x"), *told["a" if site == "c" else site]] for site in told}
        return lambda: agree(told, chosen)
    made = {f"col {j}": KINDS_OF_COLUMNS[kind](j, rng) for j in range(d)} | {"x": np.arange(80.0)}
    frame = pd.DataFrame(made)

    def all_of_it() -> None:
        read = {f"s{i}": read_table(frame.iloc[i::4], ColumnRoles(raw=True)) for i in range(4)}
        if kind == "numbers":  # x0, x1, ... by their places
            read = {site: Data(rows.X) for site, rows in read.items()}
        read = common_levels(read, 20)
        preprocessor = fitted(read).preprocessor
        assert preprocessor.apply(read["s0"]).X.shape[1] >= d
        list(no_features(read))

    return all_of_it


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["chosen", "other names", *KINDS_OF_COLUMNS])
def test_twice_the_columns_take_twice_the_work(kind: str) -> None:
    prepared_columns(kind, 4)()  # what is made once
    few, more, most = (calls(prepared_columns(kind, d)) for d in (15, 30, 60))
    assert most - more < 2.5 * (more - few)


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["check", "fit", "profile", "predict"])
def test_commands_take_twice_the_work_for_twice_the_columns(tmp_path, command) -> None:
    def ran_well(*words: object) -> None:
        assert run(*words).exit_code == 0

    def ran(d: int) -> Callable[[], object]:
        rng, folder, files = np.random.default_rng(0), tmp_path / str(d), []
        for site in "ab":
            group = np.repeat([0, 1], 25)
            made = {f"c{j}": 3 * group + rng.normal(size=50).round(4) for j in range(d)}
            texts = {f"t{j}": rng.choice(["no", "yes"], 50) for j in range(d // 5)}
            files.append(folder.with_name(f"{site}{d}.csv"))
            pd.DataFrame(made | texts).to_csv(files[-1], index=False)
        if command == "check":
            return lambda: ran_well("check", *files)
        fit = "fit", *files, "-k", 2, "--out", folder
        if command == "fit":
            return lambda: ran_well(*fit)
        ran_well(*fit)
        return lambda: ran_well(command, folder, *files, "--out", folder.with_name(f"{d} again"))

    ran(5)()  # what is made once
    few, more, most = (calls(ran(d)) for d in (20, 40, 80))
    assert most - more < 2.1 * (more - few)


def test_each_cell_of_the_first_rows_is_examined_once(monkeypatch) -> None:
    seen: Counter[str] = Counter()

    def counted(cell: str) -> bool:
        seen[cell] += 1
        return may_be_number(cell)

    monkeypatch.setattr("fedcluster_app.tables._files.may_be_number", counted)
    names, rows = ["c 10", "no", "7"], [[f"x{i}", f"y{i}", str(i / 3)] for i in range(20)]
    assert values_in(names, rows) == ""
    assert set(seen.values()) == {1}
