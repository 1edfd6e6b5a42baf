"""Thresholds, intervals and messages of preprocessing, by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from grids import KNOWN
from numpy.testing import assert_allclose, assert_array_equal
from partitions import on_line
from prepared_sites import engine_of, fitted, outcome_of
from test_replies import Postman

from fedcluster.core import Answers, Column, Data, State, Summary
from fedcluster.engines.client import Client
from fedcluster.errors import HeldBackError, InputError
from fedcluster.jobs import execute, fit_of
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


def numbers(*values: float) -> dict[str, Data]:
    """A site with values of x."""
    return {"a": Data(on_line(*values), columns=(Column("x"),))}


def texts(**counts: int) -> Data:
    """So many rows with each text of t, and x."""
    n = sum(counts.values())
    X = np.column_stack([np.repeat(np.arange(len(counts)), [*counts.values()]), np.arange(n)])
    return Data(X.astype(float), columns=(Column("t", "text", tuple(counts)), Column("x")))


def test_a_column_is_constant_where_its_variance_is_what_rounding_leaves() -> None:
    """At 1e8 one of ten rows may be off by a bit, 1.5e-8: that is no spread. 1e-5 is one."""
    for step in (0.0, np.spacing(1e8), 1e-5):
        values = np.full(10, 1e8)
        values[0] += step
        [column] = fitted(numbers(*values)).preprocessor.columns
        expected = values.std() if step == 1e-5 else 1.0
        assert column.scale == pytest.approx(expected, rel=1e-3 if step == 1e-5 else 0)


def test_bounds_and_logarithms_come_before_all_else() -> None:
    sites, how = numbers(0, 1, 3, 9), {"scale": "minmax", "bounds": {"x": (1.0, 3.0)}}
    for log, ends in (((), (1.0, 2.0)), (("x",), (np.log(2), np.log(2)))):
        found = fitted(sites, log=log, **how).preprocessor
        [column] = found.columns
        assert (column.shift, column.scale) == pytest.approx(ends)
        X = found.apply(sites["a"]).X
        assert_allclose(X.ravel(), [0, 0, 1, 1], atol=1e-15)
        assert_allclose(found.invert(X).ravel(), [1, 1, 3, 3])


def test_robust_scaling_takes_the_deviation_where_quartiles_are_no_further_apart_than_steps():
    """Eight of ten rows are 5: the quartiles coincide, and the deviation scales."""
    values = [5.0] * 8 + [0.0, 10.0]
    [column] = fitted(numbers(*values), scale="robust").preprocessor.columns
    assert column.scale == pytest.approx(np.std(values))
    [alike] = fitted(numbers(*[7.0] * 9), scale="robust").preprocessor.columns
    assert alike.scale == 1.0


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
    [column] = fitted(numbers(*range(9)), scale="robust").preprocessor.columns
    assert (column.shift, column.scale) == (2, scale)


def first_edges(share: float, weight: float, **options: Any) -> list[np.ndarray]:
    """Where the first round cuts a column of mean 10 and variance 4."""
    one = np.ones(1)
    [task] = next(quantiles([share], 10 * one, 4 * one, weight * one, **options))
    assert isinstance(task.step, Histogram)
    return list(task.state.memory["edges"])


def test_a_search_begins_as_far_from_the_mean_as_a_quantile_can_be() -> None:
    """Cantelli: the median of 101 rows lies within a deviation, that is from 8 to 12, and an upper
    quartile of 101 rows, rank 75, from 10 - 2 sqrt(25.5 / 75.5) to 10 + 2 sqrt(75.5 / 25.5); no
    share is below 1e-12.
    """
    for weight in (101, 1):
        [edges] = first_edges(0.5, weight)
        assert np.isinf(edges[[0, -1]]).all()
        assert_allclose(edges[[1, -2]], [8, 12], rtol=1e-3)
        assert edges[1] < 8
        assert edges[-2] > 12
    [edges] = first_edges(0.75, 101)
    ends = 10 - 2 * np.sqrt(25.5 / 75.5), 10 + 2 * np.sqrt(75.5 / 25.5)
    assert_allclose(edges[[1, -2]], ends, rtol=1e-3)
    assert_allclose(np.diff(edges[1:-1]), (edges[-2] - edges[1]) / (len(edges) - 3))
    assert_allclose(first_edges(0.0, 1e13)[0][1], 10 - 2e6, rtol=2e-3)
    assert_allclose(first_edges(1.0, 1e13)[0][-2], 10 + 2e6, rtol=2e-3)


@pytest.mark.parametrize(
    ("weight", "small", "cells"),
    [
        *((101, None, 20), (9, None, 2), (5, None, 2), (1001, None, 32), (161, None, 32)),
        *((9, 0.0, 9), (9, 0.5, 9), (9, 1.0, 9), (9, 2.0, 4)),
    ],
)
def test_an_interval_is_cut_into_cells_of_five_rows_or_as_few_as_is_said(weight, small, cells):
    """From two to 32 of them; what lies outside has two more."""
    [edges] = first_edges(0.5, weight, **({} if small is None else {"small": small}))
    assert len(edges) == cells + 1 + 2


@pytest.mark.parametrize(
    ("share", "n", "rows"), [(0.5, 100, 2), (0.5, 101, 1), (0.25, 101, 1), (0.25, 100, 2)]
)
def test_between_two_rows_a_quantile_needs_both(share, n, rows) -> None:
    """The median of 100 rows lies between those of rank 49 and 50, that of 101 is one row."""
    assert len(first_edges(share, n)) == rows


def searched(values: Any, shares: Any, **how: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """The quantiles of some values, their steps, and the rounds that they took."""
    X = on_line(*values)
    plan = quantiles(shares, X.mean(axis=0), X.var(axis=0), np.full(1, float(len(X))), **how)
    outcome = run_plan(plan, engine_of({"a": Data(X)}))
    quantile, step = outcome.value
    return quantile.ravel(), step.ravel(), len(outcome.communication_rounds)


@pytest.mark.parametrize(("small", "most"), [(1.0, 1.0), (5.0, 10.0), (50.0, 100.0)])
def test_a_search_ends_where_an_interval_has_less_than_twice_the_smallest_number(small, most):
    """A fine one has a step of a row; a coarse one ends as soon as fewer than 2 s rows are inside.

    The value is the middle, off by half a step at most.
    """
    [median], [step], _ = searched(np.arange(1.0, 1002.0), [0.5], small=small, resolution=1e-9)
    assert abs(median - 501) <= step / 2 + 1e-9
    assert step <= most
    if small > 1:
        assert step > most / 32 / 2


def test_a_quantile_between_two_rows_is_on_the_line_between_them_as_finely_as_is_wanted() -> None:
    """Of 0 10 20 30 the quartile at 0.25 * 3 = 0.75 is 7.5, and the median 15."""
    found, steps, rounds = searched([0, 10, 20, 30], [0.25, 0.5], small=0.0, resolution=2.0**-45)
    assert_allclose(found, [7.5, 15], atol=1e-10)
    assert (steps < 1e-12).all()
    assert rounds < 50


@pytest.mark.parametrize("share", [0.25, 0.7, 0.72, 0.9])
def test_the_step_of_a_quantile_is_the_larger_of_its_two_rows(share) -> None:
    """Where one of the two lies among many and the other one among few."""
    values = np.array([0.0] * 5 + [1.0] * 5 + [9.0, 30.0, 90.0, 300.0])
    [found], [step], _ = searched(values, [share], small=1.0, resolution=1e-9)
    assert abs(found - np.quantile(values, share)) <= step / 2 + 1e-9


@pytest.mark.parametrize("resolution", [0.1, 0.01])
def test_a_resolution_is_a_share_of_the_first_interval(resolution) -> None:
    values = np.linspace(0, 1, 4001)
    width = 2 * np.sqrt(values.var())
    _, [step], _ = searched(values, [0.5], small=1.0, resolution=resolution)
    assert resolution * width / 33 < step <= 1.002 * resolution * width


def test_a_search_among_equal_rows_ends_at_a_share_of_two_to_the_minus_30() -> None:
    """They never get fewer. At 1e8 no interval is narrower than a few roundings."""
    values = np.concatenate([np.linspace(0, 1, 400), np.full(600, 0.3)])
    width = 2.002 * np.sqrt(values.var()) * 2.0**-30
    _, [step], _ = searched(values, [0.5])
    assert width / 33 < step <= width * 1.001
    _, [step], _ = searched(values + 1e8, [0.5])
    assert np.spacing(1e8) <= step <= 4 * np.spacing(1e8)


def test_weights_of_rows_count_in_cells() -> None:
    memory = {"columns": np.array([1.0, 0.0]), "edges": np.array([[0.0, 1, 2], [-1.0, 0, 9]])}
    X = np.array([[0.0, 1.0], [5.0, 2.0], [6.0, np.nan], [10.0, 0.0]])
    data = Data(X, np.array([1.0, 2.0, 4.0, 8.0]))
    answer = Histogram().client_step(State(memory=memory), data, np.random.default_rng(0))
    assert_array_equal(answer.weights, [1, 2, 1, 6])
    assert_array_equal(answer.rows, [1, 1, 1, 2])


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


def schema_of(chosen: str | None = None, **sites: str) -> Any:
    told = {site: [Column(name) for name in columns] for site, columns in sites.items()}
    return agree(told, chosen)


@pytest.mark.parametrize(
    ("sites", "left_out"),
    [
        ({"a": "xy", "b": "xy", "c": "x", "d": "x"}, "only a and b have it"),
        ({"a": "xy", "b": "xy", "c": "xy", "d": "x"}, "lacking at d"),
        ({"a": "xy", "b": "xy", "c": "x"}, "lacking at c"),
        ({"a": "xy", "b": "x", "c": "x"}, "only a has it"),
        ({"a": "xy"}, None),
    ],
)
def test_a_column_of_at_most_half_of_the_sites_is_left_out(sites, left_out) -> None:
    """Of more than half it is lacking at the others: an error where it is chosen."""
    found = schema_of(**sites)
    assert [column.name for column in found.columns] == (["x"] if left_out else ["x", "y"])
    assert found.left_out == ({"y": left_out} if left_out else {})
    if left_out and left_out.startswith("lacking"):
        with pytest.raises(InputError, match=f"^column 'y' is {left_out}; mend that or choose am"):
            schema_of(chosen="xy", **sites)


def test_a_level_of_one_of_several_sites_is_told() -> None:
    def only_at(*levels: str) -> Any:
        told = {f"s{i}": [Column("t", "text", tuple(each))] for i, each in enumerate(levels)}
        return agree(told).only_at

    assert only_at("ab", "b") == {("t", "a"): "s0"}
    assert only_at("ab", "b", "c") == {("t", "a"): "s0", ("t", "c"): "s2"}
    assert only_at("ab") == {}


def test_half_or_fewer_sites_that_have_a_column_are_named_with_what_others_call_it() -> None:
    told = {"a": [Column("x"), Column("y y")], "b": [Column("x"), Column("YY")], "c": [Column("x")]}
    assert agree(told).left_out == {
        "y y": "only a has it, but b has 'YY'",
        "YY": "only b has it, but a has 'y y'",
    }
    assert agree(told, ["x"]).left_out == {"y y": "not chosen", "YY": "not chosen"}
    said = "lacking at b and c, but b has 'YY'; mend that: no column"
    with pytest.raises(InputError, match=said):
        agree(told, ["y y"])


@pytest.mark.parametrize("kind", ["date", "mixed", "empty"])
def test_columns_of_what_is_no_number_and_no_text_are_left_out_or_refused(kind: str) -> None:
    described = {site: [Column("x", kind), Column("y")] for site in "ab"}
    assert list(agree(described).left_out) == ["x"]
    with pytest.raises(InputError, match=r"column 'x' holds .* at a and b; mend that or choose am"):
        agree(described, ["x", "y"])


@pytest.mark.parametrize("missing", ["drop", "mean", "error"])
def test_every_value_missing_at_a_site_names_column_and_site(missing) -> None:
    sites = {"a": Data(np.eye(2)), "b": Data(np.array([[1.0, np.nan], [3.0, np.nan]]))}
    schema = agree(dict.fromkeys("ab", (Column("x0"), Column("x1"))))
    with pytest.raises(InputError, match=r"^every value is missing of column 'x1' at b; leave"):
        run_plan(fit(PreprocessingSpec(missing=missing), schema), engine_of(sites))


FEW, MOST = ({"f": 6, **{f"r{i}": 2 for i in range(n)}} for n in (3, 4))
TWENTY = {f"l{i:02}": 10 for i in range(20)}
RARE = "text of which most rows have a value that few share"


@pytest.mark.parametrize(
    ("counts", "levels", "pooled", "reason"),
    [
        ({"f": 6, "m": 5, "x": 4}, ("f", "m"), ("x",), None),
        (MOST, ("f",), ("r0", "r1", "r2", "r3"), RARE),  # half of the rows, but no more
        (FEW, ("f",), ("r0", "r1", "r2"), None),
        ({"f": 6, "m": 5}, ("f", "m"), None, None),
        ({"f": 6, "z": 1}, ("f",), (), None),
        (dict(f=6, **dict.fromkeys("vwxyz", 1)), ("f",), (), None),
        (dict(f=6, **dict.fromkeys("tuvwxyz", 1)), ("f",), (), RARE),
        ({"f": 20}, ("f",), None, "the same text, 'f', everywhere"),
        (TWENTY, tuple(TWENTY), None, None),
        (TWENTY | {"m": 10}, (*TWENTY, "m"), None, "text with more than 20 different values"),
        ({"a": 2, "b": 2, "c": 1, "d": 1}, None, None, "text without a value that enough"),
        (dict.fromkeys(TWENTY, 1), None, None, "text of which no two rows of a site are equal"),
    ],
)
def test_text_makes_a_category_or_is_left_out_with_the_reason_unless_it_is_named(
    counts, levels, pooled, reason
) -> None:
    sites, how = {"a": texts(**counts)}, {}
    if reason:
        found = fitted(sites, rare=5)
        assert found.fit_report.left_out["t"].startswith(reason)
        assert found.preprocessor.names == ("x",)
        with pytest.raises(InputError, match=f"column 't' cannot be used: {reason}"):
            fitted(sites, rare=5, columns=["x", "t"])
        how = {"categories": ("t",)}
    if levels:
        found = fitted(sites, rare=5, **how)
        [category] = found.preprocessor.categories
        assert (category.levels, category.other) == (levels, pooled is not None)
        assert found.fit_report.pooled == ({"t": pooled} if pooled else {})


def test_missing_text_becomes_the_commonest() -> None:
    data = texts(f=6, m=9)
    data.X[0, 0] = np.nan
    for missing, fill in (("mean", "m"), ("median", "m"), ("drop", None)):
        found = fitted({"a": data}, missing=missing, rare=2)
        assert found.preprocessor.categories[0].fill == fill
        assert found.fit_report.missing == {"a": {"t": 1}}


def test_codes_go_to_their_levels_others_to_the_last_column_and_nan_stays() -> None:
    levels, nan = (Column("t", "text", ("a", "b", "c")),), np.nan
    data = Data(on_line(0, 1, 2, nan), columns=levels)
    plain = Category("t", ("b", "a"))
    other, filled, gone, coded = (
        replace(plain, **how)
        for how in ({"other": True}, {"fill": "a"}, {"fill": "z"}, {"coded": True})
    )
    expected = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1], [nan] * 3])
    assert_array_equal(plain.apply(data, 0), expected[:, :2])
    assert_array_equal(other.apply(data, 0), expected)
    assert_array_equal(filled.apply(data, 0), [[0, 1], [1, 0], [0, 0], [0, 1]])
    assert (plain.unknown(data, 0), plain.filled(data, 0)) == (1, 0)
    assert (filled.unknown(data, 0), filled.filled(data, 0)) == (1, 1)
    assert replace(plain, fill="b").filled(data, 0) == 1
    assert_array_equal(gone.apply(data, 0), expected[:, :2])  # no level: it fills nothing in
    assert gone.filled(data, 0) == 0
    assert_array_equal(coded.apply(data, 0), [[1], [0], [2], [nan]])
    assert other.names == ("t=b", "t=a", "t=(other)")
    assert coded.names == ("t",)
    half = replace(other, scale=2.0)
    assert_array_equal(half.apply(data, 0), expected / 2)
    assert_array_equal(half.invert(half.apply(data, 0)), expected)
    assert_array_equal(replace(coded, scale=2.0).apply(data, 0), coded.apply(data, 0))


def test_numbers_are_moved_within_bounds_logged_filled_and_scaled_in_this_order() -> None:
    column = NumericColumn("x", (0.0, 3.0), log=True, fill=1.0, shift=0.5, scale=2.0)
    data = Data(on_line(-5, 1, 7, np.nan))
    expected = (np.array([0.0, np.log(2), np.log(4), 1.0]) - 0.5) / 2
    assert_allclose(column.apply(data, 0).ravel(), expected)
    assert_allclose(column.invert(column.apply(data, 0)).ravel()[:3], [0, 1, 3], atol=1e-12)
    assert column.filled(data, 0) == 1
    assert NumericColumn("x").filled(data, 0) == 0
    logged = NumericColumn("x", log=True)
    with pytest.raises(InputError, match="column 'x' has a negative value"):
        logged.apply(data, 0)
    assert logged.apply(Data(on_line(0)), 0).item() == 0


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


def test_a_mean_needs_every_column() -> None:
    total = Summary(np.array([[6.0], [5.0]]), np.array([3.0, 2.0]))
    assert_array_equal(means_from_total(total), [[2, 2.5], [3, 2]])
    with pytest.raises(HeldBackError, match="held back every value of a column"):
        means_from_total(Summary(np.array([[6.0], [0.0]]), np.array([3.0, 0.0])))


def rounds_of(sites: Mapping[str, Data], **prepare: Any) -> list[str]:
    """What every round of a fit asks, the search for quantiles as one."""
    found = outcome_of(sites, **prepare).communication_rounds
    asked = [" ".join(each.steps) for each in found]
    return [
        each
        for i, each in enumerate(asked)
        if not each == (asked[i - 1] if i else "") == "Histogram"
    ]


def test_squares_are_asked_about_the_mean_where_those_about_0_hold_few_digits() -> None:
    """The mean squared is 2^20 variances, and a little more."""
    for beyond, rounds in ((0.0, []), (1e-3, ["Squares"])):
        sites = numbers(1023.0 + beyond, 1025.0 + beyond)
        assert rounds_of(sites) == ["Missing Squares", *rounds]
    X = 1e8 + np.arange(9.0)[:, None] / 3
    [column] = fitted({"a": Data(X[:4]), "b": Data(X[4:])}).preprocessor.columns
    assert (column.shift, column.scale) == pytest.approx((X.mean(), X.std()), rel=1e-9)


@pytest.mark.parametrize(
    ("missing", "scale", "whole", "more"),
    [
        ("mean", "robust", ["Histogram"], ["Squares", "Histogram"]),
        ("median", "standard", ["Histogram"], ["Histogram", "Squares"]),
        ("median", "none", ["Histogram"], ["Histogram"]),
        ("mean", "none", [], []),
        ("mean", "standard", [], ["Squares"]),  # the mean stays what it was
        ("drop", "none", [], []),
        ("drop", "standard", [], ["Squares"]),
        ("ignore", "standard", [], []),
        ("error", "none", [], None),
        ("error", "standard", [], None),
        ("error", "robust", ["Histogram"], None),
    ],
)
def test_only_what_filling_in_changes_is_asked_again(missing, scale, whole, more):
    X = np.arange(60.0)[:, None] ** 2
    known = ["Missing Squares"]
    assert rounds_of({"a": Data(X)}, missing=missing, scale=scale) == [*known, *whole]
    if more is not None:
        X[3] = np.nan
        assert rounds_of({"a": Data(X)}, missing=missing, scale=scale) == [*known, *more]


def test_only_numbers_are_scaled_and_only_they_are_asked_about() -> None:
    """A row is dropped for what any column lacks, so that all columns are asked about then."""
    data = texts(f=12, m=13)
    for missing in ("error", "drop", "mean"):
        [*_, last] = outcome_of({"a": data}, missing=missing).communication_rounds
        assert last.steps == ("Missing", "Histogram", "Squares")
    data.X[4, 0] = np.nan
    for missing, columns in (("drop", 3), ("mean", 1)):
        [*_, last] = outcome_of({"a": data}, missing=missing).communication_rounds
        assert (last.steps, last.values_sent) == (("Squares",), {"a": 3 * columns})


def components_of(X: np.ndarray, n: int = 1, weight: Any = None, **how: Any) -> Any:
    """The outcome of a search for principal components."""
    return run_plan(principal(n, **how), engine_of({"a": Data(X, weight)}))


def test_of_equal_coordinates_the_first_is_positive() -> None:
    """On the line x = -y, but for rounding."""
    for tilt in (0.0, 1e-9, -1e-9):
        found = components_of(np.outer([1, -1, 3], [1.0, -1.0 - tilt])).value
        assert_allclose(found.components, [[np.sqrt(0.5), -np.sqrt(0.5)]], rtol=1e-6)
        # of three rows with the mean 1: squares of 0, -2 and 2 along the line, times two, by n - 1
        assert_allclose(found.variances, [2 * 8 / 2], rtol=1e-6)


def test_variances_of_components_are_those_of_samples() -> None:
    """(1, -2) and (-1, 2): squares of 10 by n - 1 = 1; across the line none."""
    X = np.array([[1.0, -2.0], [-1.0, 2.0]])
    found = components_of(X, 2).value
    assert_allclose(found.variances, [10, 0], atol=1e-14)
    assert found.components[0][0] < 0 < found.components[0][1]
    light = components_of(X, weight=np.full(2, 0.25)).value
    assert_allclose(light.variances, [2.5])  # of less than two rows, by 1


def asked_of(plan: Any, d: int) -> Any:
    """The state that is asked about next, after an answer to the question of the mean."""
    next(plan)
    answer = Summary(np.zeros((d, 1)), np.full(d, 9.0))
    [task] = plan.send([Answers({"a": answer})])
    return task.state.memory


def test_up_to_2000_columns_have_a_whole_covariance_and_others_ten_spare_directions() -> None:
    assert "basis" not in asked_of(principal(3), 2000)
    assert asked_of(principal(3), 2001)["basis"].shape == (2001, 13)
    assert asked_of(principal(7, whole=10), 12)["basis"].shape == (12, 12)
    for n in (0, 3):
        with pytest.raises(InputError, match=f"{n} principal components are asked for, of 2 col"):
            asked_of(principal(n), 2)
    asked_of(principal(2), 2)


@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_directions_that_are_found_in_turns_belong_to_their_variances(scale):
    """Forty turns are enough or all that there are: rows alike in all directions settle late."""
    X = scale * np.random.default_rng(0).normal(size=(300, 40))
    plain = X - X.mean(axis=0)
    exact = np.linalg.svd(plain)[1][:2] ** 2 / 299
    for most in (3, 40):
        outcome = components_of(X, 2, whole=10, effort=PrincipalEffort(most_rounds=most))
        assert len(outcome.communication_rounds) <= 1 + most
        components = np.array(outcome.value.components)
        assert_allclose(components @ components.T, np.eye(2), atol=1e-12)
        along = np.square(plain @ components.T).sum(axis=0) / 299
        assert_allclose(outcome.value.variances, along, rtol=1e-10)
    assert_allclose(outcome.value.variances, exact, rtol=1e-3)


@pytest.mark.parametrize("scale", [1.0, 1e-5, 1e5])
def test_one_direction_that_stands_out_is_found_in_few_turns(scale) -> None:
    rng = np.random.default_rng(0)
    direction = np.ones(30) / np.sqrt(30)
    X = rng.normal(size=(200, 1)) * direction + 1e-3 * rng.normal(size=(200, 30))
    outcome = components_of(scale * X, whole=10)
    assert 3 <= len(outcome.communication_rounds) <= 5
    assert_allclose(outcome.value.components, [direction], atol=1e-3)


def test_variances_do_not_depend_on_the_unit_of_weights() -> None:
    for weight in (0.25, 1.0, 4.0):
        engine = engine_of({"a": Data(on_line(1, 3), np.full(2, weight))})
        for plan in (ColumnMoments.about(np.array([5.0])), ColumnMoments.unknown()):
            found = run_plan(plan, engine).value
            assert (found.mean.item(), found.variance.item()) == (2, 1)


def test_rows_that_are_dropped_stay_in_their_place_and_work_is_done_on_whole_ones() -> None:
    columns = (NumericColumn("x0", shift=1.0), NumericColumn("x1", scale=2.0))
    X = np.array([[1.0, 2.0], [np.nan, 4.0], [3.0, 6.0]], dtype=np.float32)
    preprocessor, data = Preprocessor(columns, "drop"), Data(X)
    rows = preprocessor.aligned(data)
    assert rows.dtype == np.float32
    assert_array_equal(rows, [[0, 1], [np.nan, np.nan], [2, 3]])
    assert_array_equal(preprocessor.aligned(data.take(np.array([0, 2]))), [[0, 1], [2, 3]])
    assert_array_equal(preprocessor.complete(data), [True, False, True])
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


def content_of(column: Mapping[str, Any], missing: str = "keep") -> dict[str, Any]:
    return {"columns": [column], "missing": missing, "principal": None}


@pytest.mark.parametrize(
    ("column", "change"),
    [
        *((NUMBER, {"bounds": [1.0]}), (TEXT, {"levels": ["a", 2]})),
        *((NUMBER, {"name": 3}), (NUMBER, {"scale": -1.0}), (NUMBER, {"scale": 0.0})),
        *((NUMBER, {"shift": "x"}), (NUMBER, {"step": "x"}), (NUMBER, {"fill": "x"})),
        *((NUMBER, {"kind": "text"}), (NUMBER, {"name": ...}), (TEXT, {"name": None})),
        *((TEXT, {"levels": "ab"}), (TEXT, {"levels": [1, 2]})),
        *((TEXT, {"scale": 0.0}), (TEXT, {"scale": "x"})),
    ],
)
def test_a_column_that_makes_no_sense_is_refused(column, change):
    """Of which anything is another, or lacks."""
    right = Preprocessor.from_plain(content_of(column))
    levels = {"levels": ("a",)} if column is TEXT else {}
    assert right.plain()["columns"][0] == {**column, **levels}
    wrong = {key: value for key, value in (column | change).items() if value is not ...}
    with pytest.raises((LookupError, ValueError, TypeError)):
        Preprocessor.from_plain(content_of(wrong))


@pytest.mark.parametrize("change", [{"columns": ...}, {"missing": "?"}])
def test_a_damaged_preparation_is_refused(change) -> None:
    content = content_of(NUMBER) | change
    with pytest.raises((LookupError, ValueError)):
        Preprocessor.from_plain({key: value for key, value in content.items() if value is not ...})


@pytest.mark.parametrize(
    "wrong",
    [
        {"components": [[1.0, 0.0], [1.0]]},
        {"mean": [0.0]},
        {"variances": [1.0]},
        {"components": [[1.0, 0.0]]},
    ],
)
def test_components_of_another_length_are_refused(wrong: dict[str, Any]) -> None:
    right = {"mean": [0.0, 0.0], "components": [[1.0, 0.0], [0.0, 1.0]], "variances": [2.0, 1.0]}
    assert Principal.from_plain(right).variances == (2, 1)
    with pytest.raises(ValueError, match="not all the same length"):
        Preprocessor.from_plain(content_of(NUMBER) | {"principal": {**right, **wrong}})


def test_a_column_that_is_read_back_does_the_same() -> None:
    column = {**NUMBER, "bounds": [0, 4], "fill": 1, "shift": 2, "scale": 4}
    [number] = Preprocessor.from_plain(content_of(column, "error")).columns
    assert number == NumericColumn("x", (0.0, 4.0), False, 1.0, 2.0, 4.0)
    assert isinstance(number, NumericColumn)
    kinds = [number.shift, number.scale, number.fill, *(number.bounds or ())]
    assert {type(each) for each in kinds} == {float}


@pytest.mark.parametrize("size", [1, 4, 13, 1000])
def test_a_categorical_preprocessor_counts_by_blocks_of_rows(size) -> None:
    """However few rows a block has."""
    data = texts(f=6, m=9, x=3)
    data.X[4, 0] = np.nan
    preprocessor = Preprocessor((Category("t", ("f", "m"), other=True), NumericColumn("x")), "keep")
    whole = preprocessor.apply(data).X
    assert np.isnan(whole[4]).tolist() == [True, True, True, False]

    class Blocks(Preprocessor):
        block_values, fewest_rows = size, size

    assert_array_equal(Blocks(preprocessor.columns, "keep").apply(data).X, whole)


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (7, "c0, c1, c2, c3, c4, c5 and c6"),  # as long as that six and one more
        (8, "c0, c1, c2, c3, c4, c5 and 2 more"),
        (1, "c0"),
        (2, "c0 and c1"),
        (20, "c0, c1, c2, c3, c4, c5 and 14 more"),
    ],
)
def test_a_sentence_lists_a_few_names(n: int, said: str) -> None:
    preprocessor = Preprocessor(tuple(NumericColumn(f"c{i}") for i in range(n)))
    found = in_words(PreprocessingSpec("none"), preprocessor, FitReport())
    assert found == [f"Prepared: {said} as they are."]


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


class Looking(RemoteEngine):
    """An engine to which a round costs much."""

    asks_early = True


def over_a_network(sites: Mapping[str, Data], **how: Any) -> tuple[Any, int]:
    """The centres of a fit that is asked by messages, and the number of exchanges."""
    ends = {}
    for name, rows in sites.items():
        client = Client(name, rows)
        names = tuple(column.name for column in rows.columns)
        choose = partial(lambda client, _columns, *, raw=False: client, client)
        ends[name] = Responder(client, columns=names, choose=choose, **KNOWN)
    post = Postman(ends)
    engine = Looking(post, ends)
    engine.choose(None, raw=True)
    job = fit_of(2, prepare=PreprocessingSpec(**how))
    report, here = execute(job, engine), execute(job, engine_of(sites))
    more = post.communication_rounds - len(report.outcome.communication_rounds)
    in_vain = more > 0 and "bounds" not in how
    for name, rows in sites.items():  # what was asked in vain was sent, too
        first = engine_of({name: rows}).ask(first_tasks(rows.columns))
        sent = report.outcome.values_sent()[name] - here.outcome.values_sent()[name]
        assert sent == in_vain * sum(answers.values_sent[name] for answers in first)
    centers = report.outcome.value.state.centers
    assert_array_equal(centers, here.outcome.value.state.centers)
    return report, more


@pytest.mark.parametrize(
    ("how", "more"),
    [
        ({"missing": "mean"}, 0),
        ({"columns": ("age",)}, 1),  # others than all
        ({}, 0),
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
    sites = {"a": texts(f=30, m=30), "b": texts(f=20, m=40)}
    report, more = over_a_network(sites)
    assert more == 1
    assert report.preprocessor.categories
    plain = Preprocessor.as_they_are(())
    told = plain.disclosed_only(lambda _: sites["a"].columns)
    assert told.names == ("x",)
    with pytest.raises(ValueError, match="some of those asked about"):
        replace(plain, unit=True).check(("x",))
