"""Thresholds, intervals and messages of preprocessing, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from introductions import columns_told
from numpy.testing import assert_allclose, assert_array_equal

from fedcluster.client import Client
from fedcluster.core import Column, Data, State, Summary
from fedcluster.engines import LocalEngine
from fedcluster.errors import HeldBackError, InputError
from fedcluster.preprocessing import Category, NumericColumn, PreprocessingSpec, Preprocessor
from fedcluster.preprocessing._fitting import fit
from fedcluster.preprocessing._moments import Principal, means_from_total, principal
from fedcluster.preprocessing._quantiles import Histogram, quantiles
from fedcluster.preprocessing._spec import agree
from fedcluster.rounds import run_plan


def engine_of(sites: Mapping[str, Data]) -> LocalEngine:
    return LocalEngine(Client(name, data, filters=()) for name, data in sites.items())


def fitted(sites: Mapping[str, Data], **prepare: Any) -> Any:
    engine, spec = engine_of(sites), PreprocessingSpec(**prepare)
    schema = agree(columns_told(engine, texts=spec.named), spec.columns)
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


def test_robust_scaling_takes_the_deviation_where_quartiles_are_no_further_apart_than_steps() -> (
    None
):
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


def schema_of(**sites: str) -> Any:
    return agree({site: [Column(name) for name in columns] for site, columns in sites.items()})


def test_a_column_of_at_most_half_of_the_sites_is_left_out() -> None:
    """Of more than half it is lacking at the others: an error."""
    half = schema_of(a="xy", b="xy", c="x", d="x")
    assert [column.name for column in half.columns] == ["x"]
    assert half.left_out == {"y": "only a and b have it"}
    with pytest.raises(InputError, match=r"^column 'y' is lacking at d; mend that or choose am"):
        schema_of(a="xy", b="xy", c="xy", d="x")
    with pytest.raises(InputError, match="column 'y' is lacking at c"):
        schema_of(a="xy", b="xy", c="x")
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
        agree(described)
    assert str(caught.value) == (
        "column 'x' holds numbers at a and c, text at b; "
        "mend that: no column is the same everywhere"
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
