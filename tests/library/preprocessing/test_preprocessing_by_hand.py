"""Thresholds, intervals and messages of preprocessing, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from grids import KNOWN
from introductions import disclosed_columns
from numpy.testing import assert_allclose, assert_array_equal
from partitions import on_line
from test_replies import Postman

from fedcluster.core import Answers, Column, Data, State, Summary
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import HeldBackError, InputError
from fedcluster.jobs import execute, fit_of
from fedcluster.options.choices import Missing
from fedcluster.preprocessing import (
    Category,
    NumericColumn,
    PreprocessingSpec,
    Preprocessor,
    fitting,
)
from fedcluster.preprocessing.agreement import agree
from fedcluster.preprocessing.fitting import first_tasks, fit
from fedcluster.preprocessing.moments import (
    ColumnMoments,
    Histogram,
    Principal,
    PrincipalEffort,
    means_from_total,
    principal,
    quantiles,
)
from fedcluster.preprocessing.spec import FitReport, in_words, noticed_in_words
from fedcluster.preprocessing.transform import on_whole_rows
from fedcluster.rounds import run_plan
from fedcluster_app.wire.remote import RemoteEngine
from fedcluster_app.wire.responder import Responder


def engine_of(sites: Mapping[str, Data]) -> LocalEngine:
    return LocalEngine(Client(name, data, filters=()) for name, data in sites.items())


def fitted(sites: Mapping[str, Data], **prepare: Any) -> Any:
    engine, spec = engine_of(sites), PreprocessingSpec(**prepare)
    schema = agree(disclosed_columns(engine, texts=spec.named), spec.columns)
    return run_plan(fit(spec, schema), engine).value


def numbers(*values: float) -> Data:
    return Data(np.array(values, dtype=float)[:, None], columns=(Column("x"),))


def texts(*values: str) -> Data:
    levels = tuple(sorted(set(values)))
    X = np.array([[float(levels.index(value)), 0.0] for value in values])
    X[:, 1] = np.arange(len(values))
    return Data(X, columns=(Column("t", "text", levels), Column("x")))


# Scales


def test_a_column_is_constant_where_its_variance_is_what_rounding_leaves() -> None:
    """At 1e8 one of ten rows may be off by a bit, 1.5e-8: that is no spread. 1e-5 is one."""
    unit = np.spacing(1e8)
    for step, constant in ((0.0, True), (unit, True), (1e-5, False)):
        values = np.full(10, 1e8)
        values[0] += step
        [column] = fitted({"a": numbers(*values)}).preprocessor.columns
        assert (column.scale == 1.0) == constant
        if not constant:
            assert column.scale == pytest.approx(values.std(), rel=1e-3)


def test_minmax_takes_the_bounds_after_the_logarithm() -> None:
    sites = {"a": numbers(0, 1, 3)}
    bounds = {"x": (1.0, 3.0)}
    [plain] = fitted(sites, scale="minmax", bounds=bounds).preprocessor.columns
    assert (plain.shift, plain.scale) == (1.0, 2.0)
    [logged] = fitted(sites, scale="minmax", bounds=bounds, log=("x",)).preprocessor.columns
    assert (logged.shift, logged.scale) == pytest.approx((np.log(2), np.log(2)))
    X = fitted(sites, scale="minmax", bounds=bounds).preprocessor.apply(sites["a"]).X
    assert_array_equal(X.ravel(), [0, 0, 1])


def test_robust_scaling_takes_the_deviation_where_quartiles_are_no_further_apart_than_steps():
    """Eight of ten rows are 5: the quartiles coincide, and the deviation scales."""
    values = [5.0] * 8 + [0.0, 10.0]
    [column] = fitted({"a": numbers(*values)}, scale="robust").preprocessor.columns
    assert column.scale == pytest.approx(np.std(values))
    [wide] = fitted({"a": numbers(*range(101))}, scale="robust").preprocessor.columns
    assert wide.scale == pytest.approx(50, abs=5)
    assert wide.shift == pytest.approx(50, abs=5)
    [alike] = fitted({"a": numbers(*[7.0] * 9)}, scale="robust").preprocessor.columns
    assert alike.scale == 1.0


def test_without_scaling_numbers_stay_as_they_are() -> None:
    [column] = fitted({"a": numbers(1, 5, 9)}, scale="none").preprocessor.columns
    assert (column.shift, column.scale) == (0.0, 1.0)


# Quantiles


def first_edges(share: float, weight: float, **options: Any) -> list[np.ndarray]:
    """Where the first round cuts a column of mean 10 and variance 4."""
    one = np.ones(1)
    plan = quantiles([share], 10 * one, 4 * one, weight * one, **options)
    [task] = next(plan)
    assert isinstance(task.step, Histogram)
    return list(task.state.memory["edges"])


def test_a_search_begins_as_far_from_the_mean_as_a_quantile_can_be() -> None:
    """Cantelli: the median of 101 rows lies within a deviation, that is from 8 to 12, and an upper
    quartile of 101 rows, rank 75, from 10 - 2 sqrt(25.5 / 75.5) to 10 + 2 sqrt(75.5 / 25.5).
    """
    [edges] = first_edges(0.5, 101)
    assert np.isinf(edges[[0, -1]]).all()
    assert_allclose(edges[[1, -2]], [8, 12], rtol=1e-3)
    assert edges[1] < 8
    assert edges[-2] > 12
    [edges] = first_edges(0.75, 101)
    assert_allclose(edges[1], 10 - 2 * np.sqrt(25.5 / 75.5), rtol=1e-3)
    assert_allclose(edges[-2], 10 + 2 * np.sqrt(75.5 / 25.5), rtol=1e-3)
    assert_allclose(np.diff(edges[1:-1]), (edges[-2] - edges[1]) / (len(edges) - 3))


@pytest.mark.parametrize(("weight", "cells"), [(101, 20), (9, 2), (5, 2), (1001, 32), (161, 32)])
def test_an_interval_is_cut_into_cells_of_five_rows(weight: float, cells: int) -> None:
    """From two to 32 of them; what lies outside has two more."""
    [edges] = first_edges(0.5, weight)
    assert len(edges) == cells + 1 + 2


def test_between_two_rows_a_quantile_needs_both() -> None:
    """The median of 100 rows lies between those of rank 49 and 50, that of 101 is one row."""
    assert len(first_edges(0.5, 100)) == 2
    assert len(first_edges(0.5, 101)) == 1
    assert len(first_edges(0.25, 101)) == 1
    assert len(first_edges(0.25, 100)) == 2


def told(plan: Any, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Answer a plan from some values; its result and its rounds."""
    outcome = run_plan(plan, engine_of({"a": Data(values[:, None])}))
    quantile, step = outcome.value
    return quantile.ravel(), step.ravel(), len(outcome.communication_rounds)


def test_a_search_ends_where_an_interval_has_less_than_twice_the_smallest_number() -> None:
    """A fine one has a step of a row; a coarse one ends as soon as fewer than 2 s rows are inside.

    The value is the middle, off by half a step at most.
    """
    values = np.arange(1.0, 1002.0)
    mean, variance, weight = (np.array([x]) for x in (501.0, values.var(), 1001.0))
    for small, most in ((1.0, 1.0), (5.0, 10.0), (50.0, 100.0)):
        plan = quantiles([0.5], mean, variance, weight, small=small, resolution=1e-9)
        [median], [step], _ = told(plan, values)
        assert abs(median - 501) <= step / 2 + 1e-9
        assert step <= most
        if small > 1:
            assert step > most / 32 / 2


def test_a_quantile_between_two_rows_is_on_the_line_between_them() -> None:
    """Of 0 10 20 30 the quartile at 0.25 * 3 = 0.75 is 7.5, and the median 15."""
    values = np.array([0.0, 10.0, 20.0, 30.0])
    mean, variance, weight = (np.array([x]) for x in (15.0, 125.0, 4.0))
    plan = quantiles([0.25, 0.5], mean, variance, weight, small=0.0, resolution=1e-12)
    found, steps, _ = told(plan, values)
    assert_allclose(found, [7.5, 15], atol=1e-6)
    assert (steps < 1e-6).all()


def test_the_step_of_a_quantile_is_the_larger_of_its_two_rows() -> None:
    """Where one of the two lies among many and the other one among few."""
    values = np.array([0.0] * 5 + [1.0] * 5 + [9.0, 30.0, 90.0, 300.0])
    mean, variance, weight = (np.array([x]) for x in (values.mean(), values.var(), 14.0))
    for share in (0.25, 0.7, 0.72, 0.9):
        plan = quantiles([share], mean, variance, weight, small=1.0, resolution=1e-9)
        [found], [step], _ = told(plan, values)
        assert abs(found - np.quantile(values, share)) <= step / 2 + 1e-9, share


def test_a_resolution_is_a_share_of_the_first_interval() -> None:
    values = np.linspace(0, 1, 4001)
    mean, variance, weight = (np.array([x]) for x in (0.5, values.var(), 4001.0))
    width = 2 * np.sqrt(values.var())
    for resolution in (0.1, 0.01):
        plan = quantiles([0.5], mean, variance, weight, small=1.0, resolution=resolution)
        _, [step], _ = told(plan, values)
        assert resolution * width / 33 < step <= 1.002 * resolution * width


def test_weights_of_rows_count_in_cells() -> None:
    memory = {"columns": np.array([1.0, 0.0]), "edges": np.array([[0.0, 1, 2], [-1.0, 0, 9]])}
    X = np.array([[0.0, 1.0], [5.0, 2.0], [6.0, np.nan], [10.0, 0.0]])
    data = Data(X, np.array([1.0, 2.0, 4.0, 8.0]))
    answer = Histogram().client_step(State(memory=memory), data, np.random.default_rng(0))
    assert_array_equal(answer.weights, [1, 2, 1, 6])
    assert_array_equal(answer.rows, [1, 1, 1, 2])


# Agreement on columns


def schema_of(chosen: str | None = None, **sites: str) -> Any:
    told = {site: [Column(name) for name in columns] for site, columns in sites.items()}
    return agree(told, chosen)


def test_a_column_of_at_most_half_of_the_sites_is_left_out() -> None:
    """Of more than half it is lacking at the others: an error where it is chosen."""
    half = schema_of(a="xy", b="xy", c="x", d="x")
    assert [column.name for column in half.columns] == ["x"]
    assert half.left_out == {"y": "only a and b have it"}
    assert schema_of(a="xy", b="xy", c="xy", d="x").left_out == {"y": "lacking at d"}
    assert schema_of(a="xy", b="xy", c="x").left_out == {"y": "lacking at c"}
    with pytest.raises(InputError, match=r"^column 'y' is lacking at d; mend that or choose am"):
        schema_of(chosen="xy", a="xy", b="xy", c="xy", d="x")
    with pytest.raises(InputError, match="column 'y' is lacking at c"):
        schema_of(chosen="xy", a="xy", b="xy", c="x")
    assert schema_of(a="xy", b="x", c="x").left_out == {"y": "only a has it"}


def test_a_column_that_every_site_has_is_used_however_few_they_are() -> None:
    assert [column.name for column in schema_of(a="xy").columns] == ["x", "y"]
    assert schema_of(a="x", b="x").left_out == {}
    with pytest.raises(InputError, match="no column in common"):
        schema_of(a="x", b="y")


def test_a_level_of_one_of_several_sites_is_told() -> None:
    def sites(*levels: str) -> dict[str, list[Column]]:
        return {f"s{i}": [Column("t", "text", tuple(each))] for i, each in enumerate(levels)}

    assert agree(sites("ab", "b")).only_at == {("t", "a"): "s0"}
    assert agree(sites("ab", "b", "c")).only_at == {("t", "a"): "s0", ("t", "c"): "s2"}
    assert agree(sites("ab")).only_at == {}


def test_what_a_column_holds_elsewhere_is_said() -> None:
    described = {"a": [Column("x")], "b": [Column("x", "text", ("u",))], "c": [Column("x")]}
    with pytest.raises(InputError) as caught:
        agree(described, ["x"])
    assert str(caught.value) == (
        "column 'x' holds numbers at a and c, text at b; "
        "mend that: no column is the same everywhere"
    )
    with pytest.raises(InputError) as caught:
        agree(described)
    assert str(caught.value) == (
        "the sites have no column in common: 'x' (numbers at a and c, text at b)"
    )


# Texts


def sexes(**counts: int) -> Data:
    return texts(*(level for level, n in counts.items() for _ in range(n)))


def test_a_level_of_fewer_rows_than_rare_is_pooled() -> None:
    found = fitted({"a": sexes(f=6, m=5, x=4)}, rare=5)
    category = found.preprocessor.categories[0]
    assert (category.levels, category.other) == (("f", "m"), True)
    assert found.fit_report.pooled == {"t": ("x",)}
    whole = fitted({"a": sexes(f=6, m=5)}, rare=5)
    assert (whole.preprocessor.categories[0].other, whole.fit_report.pooled) == (False, {})


def test_text_that_most_rows_share_with_few_is_left_out() -> None:
    """Half of the rows may have rare levels, but no more, unless the column is named."""
    many = {"f": 6, **{f"r{i}": 2 for i in range(3)}}
    kept = fitted({"a": sexes(**many)}, rare=5)
    assert kept.preprocessor.categories[0].levels == ("f",)
    more = {"f": 6, **{f"r{i}": 2 for i in range(4)}}
    left = fitted({"a": sexes(**more)}, rare=5)
    assert left.fit_report.left_out["t"] == "text of which most rows have a value that few share"
    named = fitted({"a": sexes(**more)}, rare=5, categories=("t",))
    assert named.preprocessor.categories[0].levels == ("f",)


def test_rows_of_unnamed_texts_are_rows() -> None:
    """Five of eleven have a text of their own: less than half."""
    few = fitted({"a": texts(*"ffffff", *"vwxyz")}, rare=5).preprocessor.categories[0]
    assert (few.levels, few.other) == (("f",), True)
    many = fitted({"a": texts(*"ffffff", *"tuvwxyz")}, rare=5).fit_report.left_out
    assert many["t"] == "text of which most rows have a value that few share"


def test_text_that_is_the_same_everywhere_is_left_out_unless_it_is_named() -> None:
    found = fitted({"a": sexes(f=20)})
    assert found.fit_report.left_out["t"] == "the same text, 'f', everywhere"
    named = fitted({"a": sexes(f=20)}, categories=("t",))
    assert named.preprocessor.names == ("t=f", "x")


def test_text_of_more_levels_than_20_is_left_out_unless_it_is_named() -> None:
    enough = {f"l{i:02}": 10 for i in range(20)}
    assert len(fitted({"a": sexes(**enough)}, rare=5).preprocessor.categories[0].levels) == 20
    many = {**enough, "more": 10}
    left = fitted({"a": sexes(**many)}, rare=5).fit_report.left_out
    assert left["t"] == "text with more than 20 different values"
    named = fitted({"a": sexes(**many)}, rare=5, categories=("t",))
    assert len(named.preprocessor.categories[0].levels) == 21
    none = fitted({"a": sexes(f=6, m=6)}, categories="none").fit_report.left_out
    assert none["t"] == "text, and not among the categories"


def test_missing_text_becomes_the_commonest() -> None:
    data = sexes(f=6, m=9)
    data.X[0, 0] = np.nan
    for missing, fill in (("mean", "m"), ("median", "m"), ("drop", None)):
        found = fitted({"a": data}, missing=missing, rare=2).preprocessor.categories[0]
        assert found.fill == fill


# One column


def test_codes_go_to_their_levels_others_to_the_last_column_and_nan_stays() -> None:
    data = Data(
        np.array([[0.0], [1.0], [2.0], [np.nan]]), columns=(Column("t", "text", ("a", "b", "c")),)
    )
    plain, other, filled = (
        Category("t", ("b", "a"), **options) for options in ({}, {"other": True}, {"fill": "a"})
    )
    nan = np.nan
    assert_array_equal(plain.apply(data, 0), [[0, 1], [1, 0], [0, 0], [nan, nan]])
    assert_array_equal(other.apply(data, 0), [[0, 1, 0], [1, 0, 0], [0, 0, 1], [nan] * 3])
    assert_array_equal(filled.apply(data, 0), [[0, 1], [1, 0], [0, 0], [0, 1]])
    assert (plain.unknown(data, 0), plain.filled(data, 0)) == (1, 0)
    assert (filled.unknown(data, 0), filled.filled(data, 0)) == (1, 1)
    first = Category("t", ("b", "a"), fill="b")
    assert first.filled(data, 0) == 1
    gone = Category("t", ("b", "a"), fill="z")  # a text that is no level fills nothing in
    assert_array_equal(gone.apply(data, 0), plain.apply(data, 0))
    assert gone.filled(data, 0) == 0
    coded = Category("t", ("b", "a"), coded=True)
    assert_array_equal(coded.apply(data, 0), [[1], [0], [2], [nan]])
    assert other.names == ("t=b", "t=a", "t=(other)")
    assert coded.names == ("t",)
    half = Category("t", ("b", "a"), other=True, scale=2.0)
    assert_array_equal(half.apply(data, 0), [[0, 0.5, 0], [0.5, 0, 0], [0, 0, 0.5], [nan] * 3])
    assert_array_equal(half.invert(half.apply(data, 0)), other.apply(data, 0))
    assert_array_equal(replace(coded, scale=2.0).apply(data, 0), coded.apply(data, 0))


def test_numbers_are_moved_within_bounds_logged_filled_and_scaled_in_this_order() -> None:
    column = NumericColumn("x", (0.0, 3.0), log=True, fill=1.0, shift=0.5, scale=2.0)
    data = Data(np.array([[-5.0], [1.0], [7.0], [np.nan]]))
    expected = (np.array([0.0, np.log(2), np.log(4), 1.0]) - 0.5) / 2
    assert_allclose(column.apply(data, 0).ravel(), expected)
    assert_allclose(column.invert(column.apply(data, 0)).ravel()[:3], [0, 1, 3], atol=1e-12)
    assert column.filled(data, 0) == 1
    assert NumericColumn("x").filled(data, 0) == 0
    with pytest.raises(InputError, match="column 'x' has a negative value"):
        NumericColumn("x", log=True).apply(data, 0)
    zero = NumericColumn("x", log=True).apply(Data(np.zeros((1, 1))), 0)
    assert zero.item() == 0


def test_of_equal_coordinates_the_first_is_positive() -> None:
    """On the line x = -y, but for rounding."""
    for tilt in (0.0, 1e-9, -1e-9):
        X = np.array([[1.0, -1.0 - tilt], [-1.0, 1.0 + tilt], [3.0, -3.0 - 3 * tilt]])
        found = run_plan(principal(1), engine_of({"a": Data(X)})).value
        assert_allclose(found.components, [[np.sqrt(0.5), -np.sqrt(0.5)]], rtol=1e-6)
        # of three rows with the mean 1: squares of 0, -2 and 2 along the line, times two, by n - 1
        assert_allclose(found.variances, [2 * 8 / 2], rtol=1e-6)
    X = np.array([[1.0, -2.0], [-1.0, 2.0]])
    [[first, second]] = run_plan(principal(1), engine_of({"a": Data(X)})).value.components
    assert first < 0 < second


def test_principal_components_subtract_the_mean_and_turn() -> None:
    turned = Principal((1.0, 2.0), ((0.6, 0.8),), (1.0,))
    assert_allclose(turned.apply(np.array([[2.0, 4.0]])), [[0.6 + 1.6]])
    assert_allclose(turned.invert(np.array([[5.0]])), [[4.0, 6.0]])


def test_a_preprocessor_names_and_counts_what_it_makes() -> None:
    columns = (NumericColumn("x"), Category("t", ("a", "b")))
    plain = Preprocessor(columns)
    turned = Preprocessor(columns, principal=Principal((0.0,) * 3, ((1.0, 0, 0),) * 2, (1.0, 1.0)))
    assert (plain.names_out, plain.n_columns_out) == (("x", "t=a", "t=b"), 3)
    assert (turned.names_out, turned.n_columns_out) == (("pc0", "pc1"), 2)


@pytest.mark.parametrize(
    ("low", "high", "fits"),
    [
        (0.0, 1.0, True),
        (1.0, 1.0, False),
        (2.0, 1.0, False),
        (-np.inf, 1.0, False),
        (0, np.inf, False),
    ],
)
def test_bounds_are_an_interval(low: float, high: float, fits: bool) -> None:
    if fits:
        PreprocessingSpec(bounds={"x": (low, high)})
        return
    with pytest.raises(ValueError, match="are no interval"):
        PreprocessingSpec(bounds={"x": (low, high)})


def test_a_mean_needs_every_column() -> None:
    total = Summary(np.array([[6.0], [5.0]]), np.array([3.0, 2.0]))
    assert_array_equal(means_from_total(total), [[2, 2.5], [3, 2]])
    with pytest.raises(HeldBackError, match="held back every value of a column"):
        means_from_total(Summary(np.array([[6.0], [0.0]]), np.array([3.0, 0.0])))


# What is asked, and how often


def rounds_of(sites: Mapping[str, Data], **prepare: Any) -> list[str]:
    """What every round of a fit asks, the search for quantiles as one."""
    engine, spec = engine_of(sites), PreprocessingSpec(**prepare)
    schema = agree(disclosed_columns(engine, texts=spec.named), spec.columns)
    asked = [" ".join(r.steps) for r in run_plan(fit(spec, schema), engine).communication_rounds]
    return [
        each
        for i, each in enumerate(asked)
        if not each == (asked[i - 1] if i else "") == "Histogram"
    ]


def test_squares_are_asked_about_the_mean_where_those_about_0_hold_few_digits() -> None:
    """The mean squared is 2^20 variances, and a little more."""
    for beyond, rounds in ((0.0, []), (1e-3, ["Squares"])):
        X = np.array([[1023.0 + beyond], [1025.0 + beyond]])
        assert rounds_of({"a": Data(X)}) == ["Missing Squares", *rounds]
    X = 1e8 + np.arange(9.0)[:, None] / 3
    [column] = fitted({"a": Data(X[:4]), "b": Data(X[4:])}).preprocessor.columns
    assert (column.shift, column.scale) == pytest.approx((X.mean(), X.std()), rel=1e-9)


@pytest.mark.parametrize(
    ("missing", "scale", "whole", "more"),
    [
        ("error", "none", [], None),
        ("error", "standard", [], None),
        ("error", "robust", ["Histogram"], None),
        ("drop", "none", [], []),
        ("drop", "standard", [], ["Squares"]),
        ("mean", "none", [], []),
        ("mean", "standard", [], ["Squares"]),  # the mean stays what it was
        ("mean", "robust", ["Histogram"], ["Squares", "Histogram"]),
        ("median", "none", ["Histogram"], ["Histogram"]),
        ("median", "standard", ["Histogram"], ["Histogram", "Squares"]),
        ("ignore", "standard", [], []),
    ],
)
def test_only_what_filling_in_changes_is_asked_again(missing, scale, whole, more):
    X = np.arange(60.0)[:, None] ** 2
    known = ["Missing Squares"]
    assert rounds_of({"a": Data(X)}, missing=missing, scale=scale) == [*known, *whole]
    if more is not None:
        X[3] = np.nan
        assert rounds_of({"a": Data(X)}, missing=missing, scale=scale) == [*known, *more]


@pytest.mark.parametrize("missing", ["error", "drop", "mean"])
def test_only_numbers_are_scaled_and_only_they_are_asked_about(missing: Missing) -> None:
    """A row is dropped for what any column lacks, so that all columns are asked about then."""
    data = sexes(f=12, m=13)
    for is_missing in (False, True):
        if is_missing and missing == "error":
            continue
        if is_missing:
            data.X[4, 0] = np.nan
        engine = engine_of({"a": data})
        schema = agree(disclosed_columns(engine))
        plan = fit(PreprocessingSpec(missing=missing), schema)
        [*_, last] = run_plan(plan, engine).communication_rounds
        assert last.steps == (("Squares",) if is_missing else ("Missing", "Histogram", "Squares"))
        if is_missing:
            assert last.values_sent == {"a": 3 * (3 if missing == "drop" else 1)}


def test_a_single_text_that_nobody_shares_makes_a_column_of_others() -> None:
    one = fitted({"a": texts(*"ffffff", "z")}, rare=5).preprocessor.categories[0]
    assert (one.levels, one.other) == (("f",), True)
    none = fitted({"a": texts(*"ffffff", *"mmmmm")}, rare=5).preprocessor.categories[0]
    assert (none.levels, none.other) == (("f", "m"), False)


@pytest.mark.parametrize(
    ("steps", "scale"), [((1.0, 9.0, 1.5), 3.0), ((1.2, 0.0, 1.9), 7.0), ((1.5, 0.0, 1.5), 7.0)]
)
def test_quartiles_are_told_apart_by_more_than_the_steps_of_both(monkeypatch, steps, scale):
    """Quartiles 3 apart, each known to half a step; else the deviation, 7, scales."""

    def known(shares: list[float], plan: Any) -> Any:
        assert shares == [0.25, 0.5, 0.75]
        found = yield from plan
        return on_line(1, 2, 4), on_line(*steps), replace(found, variance=np.array([49.0]))

    monkeypatch.setattr(fitting, "_quantiles", known)
    [column] = fitted({"a": numbers(*range(9))}, scale="robust").preprocessor.columns
    assert (column.shift, column.scale) == (2, scale)


# More of quantiles


def test_a_search_of_very_few_or_very_many_rows() -> None:
    """Of one row the median lies 1 deviation about the mean; no share is below 1e-12."""
    [edges] = first_edges(0.5, 1)
    assert_allclose(edges[[1, -2]], [8, 12], rtol=1e-3)
    low, high = (first_edges(share, 1e13)[0] for share in (0.0, 1.0))
    assert_allclose(low[1], 10 - 2 * 1e6, rtol=2e-3)
    assert_allclose(high[-2], 10 + 2 * 1e6, rtol=2e-3)
    for small in (0.0, 0.5, 1.0):
        assert len(first_edges(0.5, 9, small=small)[0]) == 9 + 1 + 2
    assert len(first_edges(0.5, 9, small=2.0)[0]) == 4 + 1 + 2


def test_a_search_among_equal_rows_ends_at_a_share_of_two_to_the_minus_30() -> None:
    """They never get fewer. At 1e8 no interval is narrower than a few roundings."""
    values = np.concatenate([np.linspace(0, 1, 400), np.full(600, 0.3)])
    for at in (0.0, 1e8):
        mean, variance, weight = (np.array([x]) for x in (values.mean() + at, values.var(), 1000.0))
        _, [step], _ = told(quantiles([0.5], mean, variance, weight), values + at)
        width = 2.002 * np.sqrt(values.var()) * 2.0**-30
        if not at:
            assert width / 33 < step <= width * 1.001
        else:
            assert np.spacing(1e8) <= step <= 4 * np.spacing(1e8)


@pytest.mark.parametrize("room", [0, 1, 2, 3])
def test_sorted_columns_are_kept_as_long_as_there_is_room(room):
    X = np.random.default_rng(0).normal(size=(50, 3))

    class Step(Histogram):
        kept_bytes = room * X[:, 0].nbytes

    data, rng = Data(X), np.random.default_rng(0)
    memory = {"columns": np.arange(3.0), "edges": np.array([[-np.inf, 0, np.inf]] * 3)}
    first, again = (Step().client_step(State(memory=memory), data, rng) for _ in range(2))
    assert_array_equal(first.weights, np.column_stack([(X <= 0).sum(0), (X > 0).sum(0)]).ravel())
    assert_array_equal(first.weights, again.weights)
    kept = data.cache["sorted columns"]
    assert list(kept) == list(range(room))
    for j, (values, _, _) in kept.items():
        assert_array_equal(values, np.sort(X[:, j]))
        kept[j] = np.sort(X[:, j] - 100), None, None  # and used
    below = Histogram().client_step(State(memory=memory), data, rng).weights[::2]
    assert_array_equal(below == 50, np.arange(3) < room)


# Principal components, further


def asked_of(plan: Any, d: int) -> list[State]:
    """Answer the first question of a plan, of the mean; the next state it asks about."""
    next(plan)
    answer = Summary(np.zeros((d, 1)), np.full(d, 9.0))
    return [task.state for task in plan.send([Answers({"a": answer})])]


def test_up_to_2000_columns_have_a_whole_covariance_and_others_ten_spare_directions() -> None:
    [whole] = asked_of(principal(3), 2000)
    assert "basis" not in whole.memory
    [part] = asked_of(principal(3), 2001)
    assert part.memory["basis"].shape == (2001, 13)
    [narrow] = asked_of(principal(7, whole=10), 12)
    assert narrow.memory["basis"].shape == (12, 12)
    for n in (0, 3):
        with pytest.raises(InputError, match=f"{n} principal components are asked for, of 2 col"):
            asked_of(principal(n), 2)
    [_] = asked_of(principal(2), 2)


@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_directions_that_are_found_in_turns_belong_to_their_variances(scale):
    """Forty turns are enough or all that there are: rows alike in all directions settle late."""
    X = scale * np.random.default_rng(0).normal(size=(300, 40))
    plain = X - X.mean(axis=0)
    exact = np.linalg.svd(plain)[1][:2] ** 2 / 299
    for most, rounds in ((3, 3), (40, 40)):
        effort = PrincipalEffort(most_rounds=most)
        outcome = run_plan(principal(2, whole=10, effort=effort), engine_of({"a": Data(X)}))
        assert len(outcome.communication_rounds) <= 1 + rounds
        components = np.array(outcome.value.components)
        assert_allclose(components @ components.T, np.eye(2), atol=1e-12)
        along = np.square(plain @ components.T).sum(axis=0) / 299
        assert_allclose(outcome.value.variances, along, rtol=1e-10)
    assert_allclose(outcome.value.variances, exact, rtol=1e-3)


def test_one_direction_that_stands_out_is_found_in_few_turns() -> None:
    rng = np.random.default_rng(0)
    direction = np.ones(30) / np.sqrt(30)
    X = rng.normal(size=(200, 1)) * direction + 1e-3 * rng.normal(size=(200, 30))
    for scale in (1.0, 1e-5, 1e5):
        outcome = run_plan(principal(1, whole=10), engine_of({"a": Data(scale * X)}))
        assert 3 <= len(outcome.communication_rounds) <= 5
        assert_allclose(outcome.value.components, [direction], atol=1e-3)


def test_variances_of_components_are_those_of_samples() -> None:
    """(1, -2) and (-1, 2): squares of 10 by n - 1 = 1; across the line none."""
    X = np.array([[1.0, -2.0], [-1.0, 2.0]])
    found = run_plan(principal(2), engine_of({"a": Data(X)})).value
    assert_allclose(found.variances, [10, 0], atol=1e-14)
    light = run_plan(principal(1), engine_of({"a": Data(X, np.full(2, 0.25))})).value
    assert_allclose(light.variances, [2.5])  # of less than two rows, by 1


def test_variances_do_not_depend_on_the_unit_of_weights() -> None:
    X = np.array([[1.0], [3.0]])
    for weight in (0.25, 1.0, 4.0):
        engine = engine_of({"a": Data(X, np.full(2, weight))})
        for plan in (ColumnMoments.about(np.array([5.0])), ColumnMoments.unknown()):
            found = run_plan(plan, engine).value
            assert (found.mean.item(), found.variance.item()) == (2, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"variances": [1.0]},
        {"components": [[1.0, 0.0]]},
        {"components": [[1.0, 0.0], [1.0]]},
        {"mean": [0.0]},
    ],
)
def test_components_of_another_length_are_refused(wrong: dict[str, Any]) -> None:
    right = {
        "mean": [0.0, 0.0],
        "components": [[1.0, 0.0], [0.0, 1.0]],
        "variances": [2.0, 1.0],
    }
    assert Principal.from_plain(right).variances == (2, 1)
    with pytest.raises(ValueError, match="not all the same length"):
        Principal.from_plain({**right, **wrong})


# Rows that lack something


def dropping() -> tuple[Preprocessor, Data]:
    columns = (NumericColumn("x0", shift=1.0), NumericColumn("x1", scale=2.0))
    X = np.array([[1.0, 2.0], [np.nan, 4.0], [3.0, 6.0]], dtype=np.float32)
    return Preprocessor(columns, "drop"), Data(X)


def test_rows_that_are_dropped_stay_in_their_place_where_results_are_aligned() -> None:
    preprocessor, data = dropping()
    rows = preprocessor.aligned(data)
    assert rows.dtype == np.float32
    assert_array_equal(rows, [[0, 1], [np.nan, np.nan], [2, 3]])
    whole = data.take(np.array([0, 2]))
    assert_array_equal(preprocessor.aligned(whole), [[0, 1], [2, 3]])
    assert_array_equal(preprocessor.complete(data), [True, False, True])


def test_work_is_done_on_whole_rows_and_the_others_get_something_else() -> None:
    preprocessor, data = dropping()
    rows = preprocessor.aligned(data)
    seen: list[int] = []

    def work(whole: np.ndarray) -> np.ndarray:
        seen.append(len(whole))
        return whole.astype(np.int64)

    found = on_whole_rows(work, rows, -1)
    assert_array_equal(found, [[0, 1], [-1, -1], [2, 3]])
    assert found.dtype == np.int64
    assert_array_equal(on_whole_rows(lambda some: some.sum(axis=1), rows, 9.0), [1, 9, 5])
    assert_array_equal(on_whole_rows(work, rows[[0, 2]], -1), [[0, 1], [2, 3]])
    assert seen == [2, 2]


NUMBER = {
    "kind": "number", "name": "x", "bounds": None, "log": False, "fill": None, "shift": 0.0,
    "scale": 0.5, "step": 0.0,
}  # fmt: skip
TEXT = {
    "kind": "category", "name": "t", "levels": ["a"], "other": False, "fill": None, "coded": False,
    "scale": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("column", "change"),
    [
        (NUMBER, {"name": 3}),
        (NUMBER, {"scale": -1.0}),
        (NUMBER, {"scale": 0.0}),
        (NUMBER, {"bounds": [1.0]}),
        (NUMBER, {"shift": "x"}),
        (NUMBER, {"step": "x"}),
        (NUMBER, {"fill": "x"}),
        (NUMBER, {"kind": "text"}),
        (TEXT, {"name": None}),
        (TEXT, {"levels": "ab"}),
        (TEXT, {"levels": [1, 2]}),
        (TEXT, {"levels": ["a", 2]}),
        (TEXT, {"scale": 0.0}),
        (TEXT, {"scale": "x"}),
    ],
)
def test_a_column_that_makes_no_sense_is_refused(column, change):
    content = {"columns": [column], "missing": "keep", "principal": None}
    right = Preprocessor.from_plain(content)
    levels = {"levels": ("a",)} if column is TEXT else {}
    assert right.plain()["columns"][0] == {**column, **levels}
    with pytest.raises((ValueError, TypeError)):
        Preprocessor.from_plain({**content, "columns": [{**column, **change}]})


def test_a_column_that_is_read_back_does_the_same() -> None:
    column = {**NUMBER, "bounds": [0, 4], "fill": 1, "shift": 2, "scale": 4}
    [number] = Preprocessor.from_plain(
        {"columns": [column], "missing": "error", "principal": None}
    ).columns
    assert number == NumericColumn("x", (0.0, 4.0), False, 1.0, 2.0, 4.0)
    assert isinstance(number, NumericColumn)
    kinds = [number.shift, number.scale, number.fill, *(number.bounds or ())]
    assert {type(each) for each in kinds} == {float}


def test_a_categorical_preprocessor_counts_by_blocks_of_rows() -> None:
    """However few rows a block has."""
    data = sexes(f=6, m=9, x=3)
    data.X[4, 0] = np.nan
    preprocessor = Preprocessor((Category("t", ("f", "m"), other=True), NumericColumn("x")), "keep")
    whole = preprocessor.apply(data).X
    assert np.isnan(whole[4]).tolist() == [True, True, True, False]
    for size in (1, 4, 13, 1000):

        class Blocks(Preprocessor):
            block_values, fewest_rows = size, size

        assert_array_equal(Blocks(preprocessor.columns, "keep").apply(data).X, whole)


def test_half_or_fewer_sites_that_have_a_column_are_named_with_what_others_call_it() -> None:
    told = {"a": [Column("x"), Column("y y")], "b": [Column("x"), Column("YY")], "c": [Column("x")]}
    found = agree(told)
    assert found.left_out == {
        "y y": "only a has it, but b has 'YY'",
        "YY": "only b has it, but a has 'y y'",
    }
    assert agree(told, ["x"]).left_out == {"y y": "not chosen", "YY": "not chosen"}
    with pytest.raises(
        InputError, match="lacking at b and c, but b has 'YY'; mend that: no column"
    ):
        agree(told, ["y y"])


@pytest.mark.parametrize("kind", ["date", "mixed", "empty"])
def test_columns_of_what_is_no_number_and_no_text_are_left_out_or_refused(kind: str) -> None:
    described = {site: [Column("x", kind), Column("y")] for site in "ab"}
    assert list(agree(described).left_out) == ["x"]
    with pytest.raises(InputError, match=r"column 'x' holds .* at a and b; mend that or choose am"):
        agree(described, ["x", "y"])


def test_every_value_missing_at_a_site_names_column_and_site() -> None:
    first = np.array([[1.0, 2.0], [3.0, 4.0]])
    gone = np.array([[1.0, np.nan], [3.0, np.nan]])
    columns = (Column("x"), Column("y"))
    engine = engine_of({"a": Data(first, columns=columns), "b": Data(gone, columns=columns)})
    schema = agree(dict.fromkeys("ab", columns))
    for missing in ("drop", "mean", "error"):
        with pytest.raises(InputError, match=r"^every value is missing of column 'y' at b; leave"):
            run_plan(fit(PreprocessingSpec(missing=missing), schema), engine)


# In words


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (1, "c0 as they are"),
        (2, "c0 and c1 as they are"),
        (7, "c0, c1, c2, c3, c4, c5 and c6 as they are"),  # as long as that six and one more
        (8, "c0, c1, c2, c3, c4, c5 and 2 more as they are"),
        (20, "c0, c1, c2, c3, c4, c5 and 14 more as they are"),
    ],
)
def test_a_sentence_lists_a_few_names(n: int, said: str) -> None:
    preprocessor = Preprocessor(tuple(NumericColumn(f"c{i}") for i in range(n)))
    found = in_words(PreprocessingSpec("none"), preprocessor, FitReport())
    assert found == [f"Prepared: {said}."]


def test_what_was_prepared_is_told_in_order() -> None:
    preprocessor = Preprocessor(
        (NumericColumn("x", log=True), NumericColumn("y"), Category("t", ("a", "b"), other=True)),
        principal=Principal((0.0,) * 5, ((1.0, 0, 0, 0, 0),) * 2, (1.0, 1.0)),
    )
    fit_report = FitReport(
        {"north": {"x": 1200, "t": 2}, "south": {"x": 1}}, {"note": "only north has it"},
        {"t": ("c", "d")},
    )  # fmt: skip
    assert in_words(PreprocessingSpec(missing="median"), preprocessor, fit_report) == [
        "Prepared: x and y with mean 0 and variance 1; of x the logarithm; "
        "t as 3 columns of 0 and 1; of all that 2 principal components.",
        "Missing values: 1,200 of x at north, 2 of t at north and 1 of x at south; "
        "filled in with the median, or the commonest text, of all sites.",
        "Left out: note (only north has it).",
        "Rare values of t are one: c and d.",
    ]
    assert noticed_in_words({}, {}) == []
    assert noticed_in_words({"north": {"t": 2}}, {"south": {"x": 1}}) == [
        "Texts that the model does not know, taken for none: 2 of t at north.",
        "Missing values: 1 of x at south; filled in as in the fit.",
    ]


# The first round, which comes along with the columns over a network


def _as_it_is(client: Client, _columns: Any, *, raw: bool = False) -> Client:
    return client


class Looking(RemoteEngine):
    """An engine to which a round costs much."""

    asks_early = True


def over_a_network(sites: Mapping[str, Data], **how: Any) -> tuple[Any, int]:
    """The centres of a fit that is asked by messages, and the number of exchanges."""
    ends = {}
    for name, rows in sites.items():
        client = Client(name, rows)
        names = tuple(column.name for column in rows.columns)
        choose = partial(_as_it_is, client)
        ends[name] = Responder(client, columns=names, choose=choose, **KNOWN)
    post = Postman(ends)
    engine = Looking(post, ends)
    engine.choose(None, raw=True)
    report = execute(fit_of(2, prepare=PreprocessingSpec(**how)), engine)
    here = execute(fit_of(2, prepare=PreprocessingSpec(**how)), engine_of(sites))
    more = post.communication_rounds > len(report.outcome.communication_rounds)
    in_vain = more and "bounds" not in how
    for name, rows in sites.items():  # what was asked in vain was sent, too
        first = engine_of({name: rows}).ask(first_tasks(rows.columns))
        sent = report.outcome.values_sent()[name] - here.outcome.values_sent()[name]
        assert sent == in_vain * sum(answers.values_sent[name] for answers in first)
    centers = report.outcome.value.state.centers
    assert_array_equal(centers, here.outcome.value.state.centers)
    return report, post.communication_rounds - len(report.outcome.communication_rounds)


@pytest.mark.parametrize(
    ("how", "more"),
    [
        ({}, 0),
        ({"missing": "mean"}, 0),
        ({"columns": ("age",)}, 1),  # others than all
        ({"bounds": {"age": (0.0, 120.0)}}, 1),
    ],
)
def test_the_first_round_comes_along_with_numbers_as_they_are(how: Any, more: int) -> None:
    rng = np.random.default_rng(0)
    columns = Column("age"), Column("bmi")
    places = np.repeat([[30.0, 20.0], [80.0, 30.0]], 20, axis=0)
    sites = {name: Data(places + rng.normal(size=(40, 2)), columns=columns) for name in "ab"}
    assert over_a_network(sites, **how)[1] == more


def test_texts_are_counted_and_never_summed() -> None:
    """Codes of texts are no numbers: their sum would tell of a level that one row has."""
    sites = {"a": sexes(f=30, m=30), "b": sexes(f=20, m=40)}
    report, more = over_a_network(sites)
    assert more == 1
    assert report.preprocessor.categories
    plain = Preprocessor.as_they_are(())
    told = plain.disclosed_only(lambda _: sites["a"].columns)
    assert told.names == ("x",)
    with pytest.raises(ValueError, match="some of those asked about"):
        replace(plain, unit=True).check(("x",))
