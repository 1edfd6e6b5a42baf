"""Preprocessor: what scikit-learn finds on the pooled rows, from sums, for any partition."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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
from partitions import InChunks
from sklearn.decomposition import PCA
from sklearn.preprocessing import RobustScaler, StandardScaler

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
from fedcluster.options.choices import Scale
from fedcluster.preprocessing import Category, NumericColumn, PreprocessingSpec, Preprocessor
from fedcluster.preprocessing.agreement import agree, odd_sites
from fedcluster.preprocessing.fitting import fit
from fedcluster.preprocessing.moments import Principal, principal, quantiles
from fedcluster.preprocessing.screening import no_features
from fedcluster.privacy import Groups, MinClusterSize, MinRows
from fedcluster.rounds import iterate, run_plan, with_preprocessing
from fedcluster_app.cli import app
from fedcluster_app.tables._files import values_in

OFFSETS = st.sampled_from([0.0, -3.0, 1e4, 1e8])


def engine_of(sites: Mapping[str, Data], filters: Sequence = (MinRows(2),)) -> LocalEngine:
    return LocalEngine(Client(name, data, filters) for name, data in sites.items())


def fitted(engine: LocalEngine, prepare: PreprocessingSpec) -> Any:
    schema = agree(disclosed_columns(engine, texts=prepare.named), prepare.columns)
    return run_plan(fit(prepare, schema), engine).value


def split(X: np.ndarray, rng: np.random.Generator, n_sites: int) -> dict[str, Data]:
    site = rng.integers(0, n_sites, len(X))
    site[: 2 * n_sites] = np.repeat(np.arange(n_sites), 2)
    return {f"s{i}": Data(X[site == i]) for i in range(n_sites)}


def people(*rows: tuple) -> Data:
    """Rows of age and sex."""
    sexes = sorted({sex for _, sex in rows if sex})
    X = np.array([[age, sexes.index(sex) if sex else np.nan] for age, sex in rows], dtype=float)
    return Data(X, columns=(Column("age"), Column("sex", "text", tuple(sexes))))


# Against scikit-learn on pooled rows


@given(seed=st.integers(0, 2**32 - 1), n_sites=st.integers(1, 5), offset=OFFSETS)
def test_standardised_as_if_pooled(seed: int, n_sites: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rng.integers(2 * n_sites, 80), 3)) * [1.0, 1e-2, 50.0] + offset
    pooled = StandardScaler().fit(X - offset)
    found = fitted(engine_of(split(X, rng, n_sites)), PreprocessingSpec()).preprocessor.columns
    np.testing.assert_allclose([c.shift for c in found], pooled.mean_ + offset, rtol=1e-9)
    rounding = len(X) * 1e-16 * (abs(offset) / np.sqrt(pooled.var_)) ** 1
    np.testing.assert_allclose([c.scale**2 for c in found], pooled.var_, rtol=1e-9 + rounding.max())


def test_the_variance_at_an_offset_of_1e8_is_that_of_the_rows_as_they_are_stored() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 2)) + 1e8
    exact = np.array([np.var((X[:, j] - 1e8).astype(np.longdouble)) for j in range(2)], dtype=float)
    found = fitted(engine_of(split(X, rng, 7)), PreprocessingSpec()).preprocessor.columns
    np.testing.assert_allclose([c.scale**2 for c in found], exact, rtol=1e-9)


@given(
    seed=st.integers(0, 2**32 - 1),
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


def test_quantiles_come_as_finely_as_they_are_wanted() -> None:
    rng = np.random.default_rng(1)
    X = rng.lognormal(size=(4000, 2))
    moments = X.mean(axis=0), X.var(axis=0), np.full(2, 4000.0)
    plan = quantiles([0.25, 0.5], *moments, small=0.0, resolution=2.0**-45)
    outcome = run_plan(plan, engine_of(split(X, rng, 3)))
    np.testing.assert_allclose(
        outcome.value[0], np.quantile(X, [0.25, 0.5], axis=0), rtol=0, atol=1e-10
    )
    assert len(outcome.communication_rounds) < 50


def test_the_search_for_quantiles_ends_before_counts_are_small() -> None:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40_000, 1))
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
    found = fitted(engine_of(split(X, rng, 4)), PreprocessingSpec("robust")).preprocessor.columns
    np.testing.assert_allclose([c.shift for c in found], pooled.center_, rtol=1e-3)
    np.testing.assert_allclose([c.scale for c in found], pooled.scale_, rtol=1e-3)


@pytest.mark.parametrize("offset", [0.0, 1e8])
@pytest.mark.parametrize("whole", [True, False])
def test_principal_components_are_those_of_the_pooled_rows(offset: float, whole: bool) -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(600, 30)) @ np.diag(1.3 ** -np.arange(30)) @ rng.normal(size=(30, 30))
    pooled = PCA(4, svd_solver="full").fit(X)
    plan = principal(4, whole=2000 if whole else 10)
    outcome = run_plan(plan, engine_of(split(X + offset, rng, 5)))
    found = outcome.value
    # at 1e8, the rows themselves are rounded to 1e-8
    np.testing.assert_allclose(found.variances, pooled.explained_variance_, rtol=1e-8)
    np.testing.assert_allclose(found.components, pooled.components_, atol=1e-5)
    assert len(outcome.communication_rounds) <= (2 if whole else 30)


@given(seed=st.integers(0, 2**32 - 1))
def test_weights_count_as_repetition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, weight = rng.normal(size=(40, 2)), rng.integers(0, 4, 40).astype(float)
    X[rng.random(40) < 0.1, 1] = np.nan
    weight[:4] = 1.0
    X[:4] = [[0.0, 1.0], [1.0, 0.0], [2.0, 5.0], [3.0, 3.0]]
    again = Data(np.repeat(X, weight.astype(int), axis=0))
    for prepare in (PreprocessingSpec(missing="mean"), PreprocessingSpec("robust", missing="drop")):
        a = fitted(engine_of({"s": Data(X, weight)}), prepare).preprocessor
        b = fitted(engine_of({"s": again}), prepare).preprocessor
        for one, other in zip(a.columns, b.columns, strict=True):
            assert one.shift == pytest.approx(other.shift, rel=1e-12, abs=1e-12)
            assert one.scale == pytest.approx(other.scale, rel=1e-12, abs=1e-12)


# Missing values


MISSING = {
    "north": Data(np.array([[1.0, 10.0], [2.0, np.nan], [3.0, 30.0]])),
    "south": Data(np.array([[4.0, 50.0], [5.0, 60.0], [np.nan, 70.0]])),
}


def test_missing_values_are_counted_and_filled_with_the_mean_of_all_sites() -> None:
    found = fitted(engine_of(MISSING), PreprocessingSpec("none", missing="mean"))
    assert found.fit_report.missing == {"north": {"x1": 1}, "south": {"x0": 1}}
    X = found.preprocessor.apply(MISSING["north"]).X
    assert X[1].tolist() == [2.0, 44.0]


def test_missing_values_are_filled_with_the_median_of_all_sites() -> None:
    X = np.concatenate([np.arange(100.0), [1e6]])[:, None]
    lacking = Data(np.concatenate([X, [[np.nan]]]))
    found = fitted(
        engine_of({"a": Data(X), "b": lacking}), PreprocessingSpec("none", missing="median")
    )
    assert found.preprocessor.apply(lacking).X[-1, 0] == pytest.approx(50.0, abs=5.0)


def test_rows_with_missing_values_can_be_dropped_from_all_that_is_computed() -> None:
    preprocessor = fitted(engine_of(MISSING), PreprocessingSpec(missing="drop")).preprocessor
    whole = np.array([[1.0, 10.0], [3.0, 30.0], [4.0, 50.0], [5.0, 60.0]])
    np.testing.assert_allclose([c.shift for c in preprocessor.columns], whole.mean(axis=0))
    np.testing.assert_allclose([c.scale for c in preprocessor.columns], whole.std(axis=0))
    assert preprocessor.complete(MISSING["north"]).tolist() == [True, False, True]
    assert len(preprocessor.apply(MISSING["north"])) == 2


def test_the_variance_is_that_of_the_filled_rows() -> None:
    pooled = np.concatenate([data.X for data in MISSING.values()])
    filled = np.where(np.isnan(pooled), np.nanmean(pooled, axis=0), pooled)
    found = fitted(engine_of(MISSING), PreprocessingSpec(missing="mean")).preprocessor
    np.testing.assert_allclose([c.scale for c in found.columns], filled.std(axis=0))


def test_missing_values_are_an_error_that_names_all_of_them() -> None:
    with pytest.raises(InputError, match="1 of 'x1' at north; 1 of 'x0' at south; drop their rows"):
        fitted(engine_of(MISSING), PreprocessingSpec())


def test_a_column_that_a_site_has_no_value_of_is_left_out_unless_it_is_named() -> None:
    sites = {"north": MISSING["north"], "west": Data(np.array([[1.0, np.nan], [2.0, np.nan]]))}
    found = fitted(engine_of(sites), PreprocessingSpec(missing="mean"))
    assert found.fit_report.left_out == {"x1": "numbers at north, no value at west"}
    assert found.preprocessor.names == ("x0",)
    with pytest.raises(InputError, match=r"column 'x1' holds numbers at north, no value at west;"):
        fitted(engine_of(sites), PreprocessingSpec(missing="mean", columns=["x0", "x1"]))


def test_new_rows_with_missing_values_are_refused_where_nothing_says_how_to_fill_them() -> None:
    whole = Data(np.array([[1.0, 10.0], [3.0, 30.0]]))
    preprocessor = fitted(engine_of({"s": whole}), PreprocessingSpec()).preprocessor
    with pytest.raises(
        InputError, match="1 of 3 rows have a missing value, the first one is row 2"
    ):
        preprocessor.apply(MISSING["north"])


# Categories


def test_categories_become_columns_of_0_and_1_whatever_a_site_s_codes() -> None:
    north = people(*[(30, "M")] * 3, *[(40, "F")] * 2)
    south = people(*[(50, "M")] * 2, *[(60, "X")] * 4)
    found = fitted(engine_of({"north": north, "south": south}), PreprocessingSpec("none", rare=1))
    assert found.preprocessor.names == ("age", "sex=F", "sex=M", "sex=X")
    assert found.preprocessor.apply(south).X[[0, 2]].tolist() == [[50, 0, 1, 0], [60, 0, 0, 1]]
    assert found.fit_report.only_at == {("sex", "F"): "north", ("sex", "X"): "south"}


def test_rare_levels_are_pooled_and_a_text_of_one_row_is_never_named() -> None:
    north = people(*[(30, "M")] * 9, *[(40, "F")] * 9, (41, "Ann"))
    south = people(*[(50, "M")] * 9, *[(60, "X")] * 3)
    found = fitted(engine_of({"north": north, "south": south}), PreprocessingSpec("none", rare=5))
    assert found.preprocessor.names == ("age", "sex=F", "sex=M", "sex=(other)")
    assert found.fit_report.pooled == {"sex": ("X",)}
    told = disclosed_columns(engine_of({"north": north}))["north"]
    assert "Ann" not in str(told)
    assert found.preprocessor.apply(north).X[-1].tolist() == [41, 0, 0, 1]


def test_a_site_s_limit_decides_which_texts_it_names() -> None:
    north = people(*[(30, "M")] * 9, *[(40, "F")] * 4)
    told = Client("north", north, [MinClusterSize(5)]).describe()
    assert told == (Column("age"), Column("sex", "text", ("M",)))


def test_numbers_can_be_categories_and_agree_with_text() -> None:
    north = Data(np.array([[1.0], [2.0], [1.0], [2.0]]), columns=(Column("sex"),))
    south = Data(
        np.array([[0.0], [0.0], [1.0], [1.0]]), columns=(Column("sex", "text", ("1", "9")),)
    )
    engine = engine_of({"north": north, "south": south})
    found = fitted(engine, PreprocessingSpec(categories=["sex"], rare=1)).preprocessor
    assert found.names == ("sex=1", "sex=2", "sex=9")
    assert found.apply(north).X[0].tolist() == found.apply(south).X[0].tolist() == [1, 0, 0]


def test_a_missing_category_is_the_most_frequent_one() -> None:
    north = people(*[(30, "M")] * 3, *[(40, "F")] * 2, (50, ""))
    found = fitted(engine_of({"north": north}), PreprocessingSpec("none", missing="mean", rare=1))
    assert found.fit_report.missing == {"north": {"sex": 1}}
    assert found.preprocessor.apply(north).X[-1].tolist() == [50, 0, 1]


def test_an_unknown_text_of_new_rows_is_counted() -> None:
    north = people(*[(30, "M")] * 3, *[(40, "F")] * 2)
    preprocessor = fitted(
        engine_of({"north": north}), PreprocessingSpec("none", rare=1)
    ).preprocessor
    new = people((30, "X"), (30, "M"), (20, "Y"))
    assert preprocessor.unknown(new) == {"sex": 2}
    assert preprocessor.apply(new).X.tolist() == [[30, 0, 0], [30, 0, 1], [20, 0, 0]]


def test_values_of_new_rows_that_are_filled_in_are_counted() -> None:
    north = people(*[(30, "M")] * 3, *[(40, "F")] * 2)
    new = people((np.nan, "X"), (30, ""), (np.nan, ""))
    engine = engine_of({"north": north})
    filling = fitted(engine, PreprocessingSpec("none", missing="mean", rare=1)).preprocessor
    assert filling.filled(new) == {"age": 2, "sex": 2}
    assert (
        fitted(engine, PreprocessingSpec("none", missing="drop", rare=1)).preprocessor.filled(new)
        == {}
    )


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ([f"name {i}" for i in range(60)], "text of which no two rows of a site are equal"),
        ([f"name {i // 2}" for i in range(60)], "text with more than 20 different values"),
        (["a"] * 60, "the same text, 'a', everywhere"),
        (
            ["a"] * 20 + [f"b{i}" for i in range(40)],
            "text of which most rows have a value that few",
        ),
        (["a", "a", "b", "b"] + [f"c{i}" for i in range(56)], "text without a value that enough"),
    ],
)
def test_text_that_makes_no_category_is_left_out_with_the_reason(texts, reason) -> None:
    rows = people(*((20.0, text) for text in texts))
    found = fitted(engine_of({"north": rows}), PreprocessingSpec())
    assert found.preprocessor.names == ("age",)
    assert found.fit_report.left_out["sex"].startswith(reason)
    with pytest.raises(InputError, match=r"column 'sex' cannot be used: .*text"):
        fitted(engine_of({"north": rows}), PreprocessingSpec(columns=["age", "sex"]))


# Agreement


def test_a_site_that_keeps_all_from_using_a_column_is_warned_of() -> None:
    """One that says another kind than most, whether by mistake or to change the clusters."""
    number, text = Column("age"), Column("age", "text", ("old",))
    sex = Column("sex", "text", ("F",))
    said: dict[str, tuple[list[Column | None], str | None]] = {
        "another kind": ([number, number, text], "text at c"),
        "dates": ([number, number, Column("age", "date")], "dates at c"),
        "lacking": ([number, number, None], "is lacking at c"),
        "no majority": ([number, text], None),
        "two of four": ([number, number, text, text], None),
        "unusable at most": ([Column("age", "mixed"), Column("age", "mixed"), number], None),
        "of one site alone": ([number, None, None], None),
        "alike": ([number, number, number], None),
    }
    for what, (columns, warned) in said.items():
        told = {
            name: [sex, *([] if column is None else [column])]
            for name, column in zip("abcd", columns, strict=False)
        }
        schema = agree(told)
        assert ("age" in schema.left_out) is (what != "alike"), what
        if warned is None:
            assert schema.warnings == (), what
        else:
            [line] = schema.warnings
            assert warned in line
            assert line.endswith("left out at all sites because of c alone; correct it there")
        assert agree(told, ["sex"]).warnings == ()  # left out on purpose


NUMBER, WORDS = Column("age"), Column("age", "text", ("old", "young"))
FREE, SEX = Column("age", "text"), Column("sex", "text", ("F",))


@pytest.mark.parametrize(
    ("ages", "spec", "odd"),
    [
        ([NUMBER, NUMBER, WORDS], {}, ["c"]),
        ([WORDS, WORDS, NUMBER], {}, ["c"]),
        ([NUMBER, NUMBER, Column("age", "date")], {}, ["c"]),
        ([NUMBER, NUMBER, Column("age", "mixed")], {}, ["c"]),
        ([NUMBER, NUMBER, NUMBER, WORDS, FREE], {}, ["d", "e"]),
        ([NUMBER, NUMBER, WORDS], {"columns": ["sex"]}, []),  # not asked about
        ([NUMBER, NUMBER, Column("age", "empty")], {}, []),  # no value is no other kind
        ([NUMBER, NUMBER, None], {}, []),
        ([FREE, FREE, NUMBER], {}, []),  # text that no fit uses, as few rows share it
        ([WORDS, WORDS, NUMBER], {"categories": "none"}, []),
        ([FREE, FREE, NUMBER], {"categories": ["age"]}, ["c"]),
        ([NUMBER, WORDS], {}, None),
        ([NUMBER, NUMBER, WORDS, WORDS], {}, None),
        ([NUMBER, WORDS, Column("age", "date")], {}, None),
    ],
)
def test_the_odd_ones_hold_another_kind_than_most_where_it_matters(ages, spec, odd) -> None:
    told = {
        name: [SEX, *filter(None, [column])] for name, column in zip("abcde", ages, strict=False)
    }
    if odd is None:
        with pytest.raises(
            InputError, match=r"^column 'age' holds .*, and no kind is that of most"
        ):
            odd_sites(told, PreprocessingSpec(**spec))
        return
    found, said = odd_sites(told, PreprocessingSpec(**spec))
    assert found == {name: ["age"] for name in odd}
    assert ("column 'age' holds" in said) is bool(odd)


def of_kinds(odd: Any) -> dict[str, Any]:
    """Rows of four sites in two clusters of age and size; at the last, age is something else."""
    rng = np.random.default_rng(2)
    sites = {}
    for name in "abcd":
        cluster = np.arange(80) % 2
        age = 20.0 + 50 * cluster + rng.normal(size=80)
        size = 5.0 * rng.normal(size=80)
        sites[name] = pd.DataFrame({"age": age, "size": size})
    sites["d"]["age"] = odd(sites["d"]["age"])
    return sites


ODD = {
    "text": lambda age: np.where(age > 50, "old", "young"),
    "dates": lambda age: pd.to_datetime("2020-01-01") + pd.to_timedelta(age.round(), "D"),
}


@pytest.mark.parametrize("kind", ODD)
def test_an_estimator_refuses_an_odd_site_by_name(kind) -> None:
    sites = of_kinds(ODD[kind])
    line = rf"^column 'age' holds numbers at a, b and c, {kind} at d: correct it at d, or name "
    with pytest.raises(InputError, match=line):
        FederatedKMeans(2, prepare="standard", random_state=0).fit(sites)


def test_categories_are_texts_although_their_levels_are_numbers() -> None:
    frame = pd.DataFrame({"ward": pd.Categorical([1, 7] * 20)})
    arrow = pa.table({"ward": pa.array([1, 7] * 20).dictionary_encode()})
    for rows in (frame, arrow, pl.DataFrame({"ward": ["1", "7"] * 20}, {"ward": pl.Enum("17")})):
        model = FederatedKMeans(2, prepare="standard", random_state=0).fit({"north": rows})
        assert model.preprocessor_ is not None
        assert model.preprocessor_.names == ("ward=1", "ward=7")
        for new in (frame[:2], pd.DataFrame({"ward": [1, 7]})):
            np.testing.assert_array_equal(model.predict(new), model.labels_[:2])
    assert sorted(FederatedKMeans(2).fit(frame).cluster_centers_.ravel()) == [1, 7]


def test_all_differences_are_named_at_once() -> None:
    told = {
        "north": [Column("age"), Column("sex", "text"), Column("bmi"), Column("born")],
        "south": [Column("age"), Column("sex"), Column("bmi"), Column("born", "date")],
        "west": [Column("age", "mixed"), Column("sex", "text"), Column("BMI"), Column("born")],
    }
    with pytest.raises(InputError) as error:
        agree(told, ["age", "sex", "bmi", "born"])
    assert str(error.value) == (
        "column 'age' holds numbers at north and south, numbers and text at west; "
        "column 'sex' holds text at north and west, numbers at south; "
        "column 'bmi' is lacking at west, but west has 'BMI' (--set sites.west.rename.BMI=bmi if "
        "it is the same); "
        "column 'born' holds numbers at north and west, dates at south; "
        "mend that: no column is the same everywhere"
    )
    left_out = {
        "age": "numbers at north and south, numbers and text at west",
        "sex": "text at north and west, numbers at south",
        "bmi": "lacking at west, but west has 'BMI' (--set sites.west.rename.BMI=bmi if it is the "
        "same)",
        "born": "numbers at north and west, dates at south",
        "BMI": "only west has it, but north has 'bmi' and south has 'bmi'",
    }
    with pytest.raises(InputError) as error:
        agree(told)
    assert str(error.value) == "the sites have no column in common: " + "; ".join(
        f"{name!r} ({why})" for name, why in left_out.items()
    )
    more = {site: [*columns, Column("weight")] for site, columns in told.items()}
    schema = agree(more)
    assert [column.name for column in schema.columns] == ["weight"]
    assert schema.left_out == left_out


# What can be asked for


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"scale": "big"},
            "scale must be one of 'standard', 'minmax', 'robust', 'none', not 'big'",
        ),
        ({"missing": "no"}, "missing must be one of"),
        (
            {"categories": "sex"},
            "categories must be 'auto', 'none' or a list of columns, not 'sex'",
        ),
        ({"pca": 0}, "pca must be at least 1, not 0"),
        ({"weights": {"x": 0.0}}, "the weight of 'x' must be above 0 and at most 1e.12, not 0.0"),
        ({"weights": {"x": float("nan")}}, "the weight of 'x' must be above 0 and .*, not nan"),
        ({"bounds": {"x": (2, 1)}}, "the bounds of 'x', 2 and 1, are no interval"),
    ],
)
def test_what_means_nothing_is_refused(wrong, message) -> None:
    with pytest.raises(ValueError, match=message):
        PreprocessingSpec(**wrong)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (
            PreprocessingSpec(log=["sex"]),
            "the logarithm of 'sex': that is no column of numbers; there are age",
        ),
        (PreprocessingSpec(bounds={"y": (0, 1)}), "bounds of 'y': that is no column of numbers"),
        (PreprocessingSpec(scale="minmax"), "scaling by minmax needs bounds of 'age'"),
        (PreprocessingSpec(categories=["size"]), "there is no column 'size' to make categories of"),
        (PreprocessingSpec(weights={"size": 2}), "no column 'size' to weigh; there are age, sex"),
        (
            PreprocessingSpec(categories="none", weights={"sex": 2}),
            "column 'sex' cannot be used: text, and not among the categories",
        ),
        (
            PreprocessingSpec(columns=["sex"], categories="none"),
            "column 'sex' cannot be used: text, and not",
        ),
    ],
)
def test_what_these_columns_do_not_allow_is_refused(prepare, message) -> None:
    engine = engine_of({"north": people(*[(30, "M")] * 30, *[(40, "F")] * 20)})
    with pytest.raises(InputError, match=message):
        fitted(engine, prepare)


def test_a_negative_value_has_no_logarithm_and_the_site_says_so() -> None:
    with pytest.raises(SiteError, match=r"site 's'.*column 'x0' has a negative value") as error:
        fitted(engine_of({"s": Data(np.array([[-7.5], [1.0]]))}), PreprocessingSpec(log=["x0"]))
    assert "7.5" not in str(error.value)


def test_bounds_and_logarithms_come_before_all_else() -> None:
    X = np.array([[0.0], [3.0], [99.0]])
    found = fitted(
        engine_of({"s": Data(X)}), PreprocessingSpec("minmax", bounds={"x0": (1, 7)}, log=["x0"])
    )
    X = found.preprocessor.apply(Data(X)).X
    np.testing.assert_allclose(X.ravel(), [0.0, 0.5, 1.0])
    np.testing.assert_allclose(found.preprocessor.invert(X).ravel(), [1.0, 3.0, 7.0])


@pytest.mark.parametrize("scale", ["standard", "robust", "minmax", "none"])
def test_a_weight_multiplies_the_squared_differences_of_a_column(scale: Scale) -> None:
    """Of all levels of a text, and of a number; the others keep their bits."""
    sites = {"north": people(*[(30, "M")] * 30, *[(41, "F")] * 20, *[(52, "M")] * 12)}
    how = PreprocessingSpec(scale, bounds={"age": (0, 99)})
    both, one = (replace(how, weights=w) for w in ({"age": 4.0, "sex": 0.25}, {"age": 4.0}))
    plain, weighed, only = (
        fitted(engine_of(sites), each).preprocessor for each in (how, both, one)
    )
    X = plain.apply(sites["north"]).X
    np.testing.assert_array_equal(weighed.apply(sites["north"]).X, X * [2.0, 0.5, 0.5])
    np.testing.assert_array_equal(only.apply(sites["north"]).X, X * [2.0, 1.0, 1.0])
    np.testing.assert_allclose(weighed.invert(X * [2.0, 0.5, 0.5]), plain.invert(X), rtol=1e-15)


def test_weights_come_before_principal_components() -> None:
    rng = np.random.default_rng(0)
    data = Data(rng.normal(size=(50, 3)))
    how = PreprocessingSpec(scale="none", weights={"x1": 9.0}, pca=2)
    found = fitted(engine_of({"s": data}), how).preprocessor
    expected = np.abs(PCA(2).fit_transform(data.X * [1.0, 3.0, 1.0]))
    np.testing.assert_allclose(np.abs(found.apply(data).X), expected, atol=1e-10)


def test_the_scatter_within_groups_is_weighed_as_the_rows_are() -> None:
    rng = np.random.default_rng(0)
    columns = (*map(Column, "xyz"), Column("t", "text", ("a", "b")))
    X = np.column_stack([rng.normal(size=(200, 3)), np.arange(200) % 2])
    data = Data(X, columns=columns)
    client = Client("s", data, protection=Groups(5))
    plain = Preprocessor((NumericColumn("x"), Category("t", ("a", "b"))))
    weighed = Preprocessor((NumericColumn("x", scale=0.5), Category("t", ("a", "b"), scale=2.0)))
    before, after = plain.apply(client.data), weighed.apply(client.data)
    np.testing.assert_array_equal(after.X, before.X * [2.0, 0.5, 0.5])
    assert before.within is not None
    assert after.within is not None
    assert before.within.all()
    np.testing.assert_allclose(after.within, before.within * [4.0, 0.25, 0.25], rtol=1e-14)


def test_the_scatter_within_groups_turns_with_the_rows() -> None:
    """Along (0.6, 0.8), variances that are known of each column alone count by the squares."""
    data = Data(np.random.default_rng(0).normal(size=(200, 2)) * [1.0, 5.0])
    groups = Client("s", data, protection=Groups(5)).data
    plain = Preprocessor((NumericColumn("x0"), NumericColumn("x1")))
    turn = Principal((0.0, 0.0), ((0.6, 0.8), (-0.8, 0.6)), (1.0, 1.0))
    before, after = plain.apply(groups).within, replace(plain, principal=turn).apply(groups).within
    assert before is not None
    assert after is not None
    assert before.all()
    np.testing.assert_allclose(after, np.array([[0.36, 0.64], [0.64, 0.36]]) @ before, rtol=1e-14)


# A fitted preparation


@st.composite
def preprocessors(draw: st.DrawFn) -> tuple[PreprocessingSpec, dict[str, Data]]:
    """Anything that can be asked for, and sites with numbers, text and missing values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sites = {}
    for name in ("north", "south"):
        X = np.column_stack([rng.gamma(2.0, size=(60, 2)), rng.integers(0, 3, 60)])
        X[rng.random(X.shape) < 0.05] = np.nan
        levels = tuple(rng.permutation(["a", "b", "c"]).tolist())
        columns = (Column("x"), Column("y"), Column("z", "text", levels))
        sites[name] = Data(X, columns=columns)
    prepare = PreprocessingSpec(
        draw(st.sampled_from(["standard", "minmax", "robust", "none"])),
        missing=draw(st.sampled_from(["drop", "mean", "median"])),
        categories=draw(st.sampled_from(["auto", "none"])),
        log=draw(st.sampled_from([[], ["x"]])),
        bounds={"x": (0.5, 4.0), "y": (0.0, 5.0)},
        weights=draw(st.sampled_from([{}, {"x": 2.0}])),
        pca=draw(st.sampled_from([None, 2])),
    )
    return prepare, sites


@given(given_=preprocessors())
def test_a_preparation_is_the_same_after_json(given_) -> None:
    prepare, sites = given_
    found = fitted(engine_of(sites), prepare).preprocessor
    again = Preprocessor.from_plain(json.loads(json.dumps(found.plain())))
    assert again == found
    X = found.apply(sites["north"]).X
    np.testing.assert_array_equal(again.apply(sites["north"]).X, X)
    assert len(X) == found.complete(sites["north"]).sum()
    assert np.isfinite(X).all()


@given(given_=preprocessors())
def test_chunks_and_partitions_make_no_difference(given_) -> None:
    prepare, sites = given_
    whole = fitted(engine_of(sites), prepare).preprocessor
    streamed = fitted(
        LocalEngine(Client(name, InChunks(data, 17)) for name, data in sites.items()), prepare
    ).preprocessor
    for name, data in sites.items():
        np.testing.assert_allclose(
            streamed.apply(data).X, whole.apply(data).X, rtol=1e-9, atol=1e-9, err_msg=name
        )


@given(given_=preprocessors())
def test_rows_come_back_from_a_preparation_but_for_a_step(given_) -> None:
    prepare, sites = given_
    found = fitted(engine_of(sites), prepare).preprocessor
    x = found.numeric[0]
    step = x.step * x.scale * (5.0 if x.log else 1.0)  # values are at most 4: e^y is at most 5
    if found.principal is None and found.missing != "drop":
        back = found.invert(found.apply(sites["north"]).X)
        there = ~np.isnan(sites["north"].X[:, 0])
        bounded = np.clip(sites["north"].X[there, 0], 0.5, 4.0)
        np.testing.assert_allclose(back[there, 0], bounded, rtol=1e-12, atol=0.51 * step)


def test_a_step_sees_prepared_rows_and_the_client_keeps_them(monkeypatch) -> None:
    applied = []
    apply = Preprocessor.apply

    def counted(self: Preprocessor, data: Data) -> Data:
        applied.append(self)
        return apply(self, data)

    monkeypatch.setattr(Preprocessor, "apply", counted)
    preprocessor = Preprocessor((NumericColumn("x0", shift=5.0, scale=2.0),))
    client = Client("s", Data(np.array([[5.0], [7.0], [9.0]])))
    for _ in range(2):
        answer = client.answer(Task(Lloyd(), State.at([[0.0], [2.0]]), preprocessor=preprocessor))
    assert answer.sums[:, 0].tolist() == [1.0, 2.0]
    assert applied == [preprocessor]
    again = Preprocessor.from_plain(preprocessor.plain())
    client.answer(Task(Means(), State(), preprocessor=again))
    assert len(applied) == 1


def test_a_plan_asks_about_prepared_rows() -> None:
    engine = engine_of({"s": Data(np.array([[5.0], [7.0], [9.0], [11.0]]))})
    preprocessor = Preprocessor((NumericColumn("x0", shift=5.0, scale=2.0),))
    plan = with_preprocessing(iterate(Lloyd(), State.at([[0.0], [3.0]])), preprocessor)
    assert run_plan(plan, engine).value.state.centers.ravel().tolist() == [0.5, 2.5]


def test_a_site_whose_rows_are_all_dropped_says_so() -> None:
    sites = dict(MISSING, west=Data(np.array([[np.nan, 1.0], [1.0, np.nan]])))
    with pytest.raises(
        SiteError, match=r"site 'west', .*no row is left after those with a missing"
    ):
        fitted(engine_of(sites), PreprocessingSpec(missing="drop"))


def test_other_columns_are_left_alone_and_lacking_ones_named() -> None:
    preprocessor = Preprocessor((NumericColumn("b"), Category("c", ("u", "v"))))
    columns = (Column("c", "text", ("v", "u")), Column("a"), Column("b"))
    assert preprocessor.apply(Data(np.array([[0.0, 1.0, 2.0]]), columns=columns)).X.tolist() == [
        [2.0, 0.0, 1.0]
    ]
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
    np.testing.assert_array_equal(found, alone.astype(dtype), strict=True)


def test_float32_rows_stay_float32() -> None:
    rows = Data(np.arange(10.0, dtype=np.float32)[:, None])
    assert (
        fitted(engine_of({"s": rows}), PreprocessingSpec()).preprocessor.apply(rows).X.dtype
        == np.float32
    )


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content.pop("columns"),
        lambda content: content["columns"][0].pop("name"),
        lambda content: content["columns"][0].update(scale=0),
        lambda content: content["columns"][0].update(kind="?"),
        lambda content: content["columns"][1].update(levels="ab"),
        lambda content: content.update(missing="?"),
        lambda content: content["principal"].update(mean=[1.0]),
    ],
)
def test_a_damaged_preparation_is_refused(damage) -> None:
    sites = {"s": people(*[(30 + i, "MF"[i % 2]) for i in range(30)])}
    content = json.loads(
        json.dumps(fitted(engine_of(sites), PreprocessingSpec(pca=1)).preprocessor.plain())
    )
    damage(content)
    with pytest.raises((ValueError, LookupError, TypeError)):
        Preprocessor.from_plain(content)


# Limits


def test_limits_hold_back_preparation_too() -> None:
    sites = {
        "small": Data(np.arange(4.0)[:, None]),
        "large": Data(np.arange(100.0, 120.0)[:, None]),
    }
    [column] = fitted(
        engine_of(sites, [MinClusterSize(5)]), PreprocessingSpec()
    ).preprocessor.columns
    assert column.shift == pytest.approx(109.5)  # the small site's rows are missing
    with pytest.raises(HeldBackError):
        fitted(engine_of(sites, [MinClusterSize(50)]), PreprocessingSpec())


def test_a_crowd_of_sites_is_prepared_as_one() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(3.0, 2.0, size=(200, 2))
    found = fitted(
        LocalEngine.from_table(Data(X), rng.integers(0, 20, 200)), PreprocessingSpec()
    ).preprocessor
    np.testing.assert_allclose(found.apply(Data(X)).X.std(axis=0), 1.0)


# Many columns


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
        preprocessor = fitted(engine_of(read), PreprocessingSpec()).preprocessor
        assert preprocessor.apply(read["s0"]).X.shape[1] >= d
        list(no_features(read))

    return all_of_it


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["chosen", "other names", *KINDS_OF_COLUMNS])
def test_twice_the_columns_take_twice_the_work(kind: str) -> None:
    prepared_columns(kind, 4)()  # what is made once
    few, more, most = (calls(prepared_columns(kind, d)) for d in (15, 30, 60))
    assert most - more < 2.5 * (more - few)


@pytest.mark.parametrize("command", ["check", "fit", "profile", "predict"])
def test_commands_take_twice_the_work_for_twice_the_columns(tmp_path, command) -> None:
    def run(*words: object) -> None:
        with pytest.raises(SystemExit) as done:
            app([*map(str, words)])
        assert done.value.code == 0

    def ran(d: int) -> Callable[[], object]:
        rng, folder, files = np.random.default_rng(0), tmp_path / str(d), []
        for site in "ab":
            group = np.repeat([0, 1], 25)
            made = {f"c{j}": 3 * group + rng.normal(size=50).round(4) for j in range(d)}
            texts = {f"t{j}": rng.choice(["no", "yes"], 50) for j in range(d // 5)}
            files.append(folder.with_name(f"{site}{d}.csv"))
            pd.DataFrame(made | texts).to_csv(files[-1], index=False)
        if command == "check":
            return lambda: run("check", *files)
        fit = "fit", *files, "-k", 2, "--out", folder
        if command == "fit":
            return lambda: run(*fit)
        run(*fit)
        return lambda: run(command, folder, *files, "--out", folder.with_name(f"{d} again"))

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
