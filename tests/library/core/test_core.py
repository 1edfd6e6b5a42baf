"""The values that everything else is made of, by hand."""

from __future__ import annotations

import inspect
from typing import Any, Unpack, get_type_hints

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from fedcluster import Data, State, Summary
from fedcluster.algorithms import Lloyd
from fedcluster.core import (
    Answers,
    Engine,
    FitParameters,
    Introduction,
    Limit,
    SiteInfo,
    Task,
    first_alike,
)
from fedcluster.core.data import lexicographic
from fedcluster.engines import LocalEngine
from fedcluster.preprocessing import NumericColumn, Preprocessor
from fedcluster.privacy import MinRows
from fedcluster_app.wire.remote import RemoteEngine


def summary(sums: list[float], weights: list[float], support: list[float] | None = None) -> Summary:
    rows = None if support is None else np.array(support)
    return Summary(np.array(sums)[:, None], np.array(weights), rows)


def test_support_adds_up_where_one_summary_alone_has_it() -> None:
    """One row of weight 9 and four rows of weight 1 are five rows, in any order of adding."""
    weighed, counted = summary([5], [9], [1]), summary([3], [4])
    for both in (weighed + counted, counted + weighed):
        assert_array_equal(both.sums, [[8]])
        assert_array_equal(both.weights, [13])
        assert_array_equal(both.rows, [5])
    assert_array_equal((weighed + weighed).rows, [2])
    assert (counted + counted).support is None
    assert_array_equal((counted + counted).rows, [8])


def test_lines_that_are_not_kept_say_nothing_and_support_does_not_leave_the_site() -> None:
    given = summary([5, 7], [9, 2], [1, 2])
    kept = given.keep(np.array([False, True]))
    assert_array_equal(kept.sums, [[0], [7]])
    assert_array_equal(kept.weights, [0, 2])
    assert_array_equal(kept.rows, [0, 2])
    assert given.leaving().support is None
    assert_array_equal(given.leaving().weights, [9, 2])
    plain = summary([5], [9])
    assert plain.keep(np.array([True])).support is None
    assert plain.leaving() is plain


def test_numbers_are_those_of_lines_with_a_weight() -> None:
    """Two lines of three columns and a weight each say 8 numbers; an empty one says none."""
    assert Summary(np.ones((3, 3)), np.array([1.0, 0.0, -2.0])).n_values == 8
    assert Summary(np.zeros((0, 3)), np.zeros(0)).n_values == 0


def test_rows_of_weight_0_are_left_out_with_all_that_belongs_to_them() -> None:
    rows = np.arange(6.0).reshape(3, 2)
    weight, y, groups = np.array([1.0, 0.0, 2.0]), np.array(["a", "b", "c"]), np.array([7, 8, 9])
    data = Data(rows, weight, y, groups=groups).weighed()
    assert_array_equal(data.X, rows[[0, 2]])
    assert_array_equal(data.sample_weight, [1, 2])
    assert_array_equal(data.y, ["a", "c"])
    assert_array_equal(data.groups, [7, 9])
    for whole in (Data(rows), Data(rows, weight + 1)):
        assert whole.weighed() is whole


@pytest.mark.parametrize("levels", [1, 2, 3, 40, 10**6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_canonical_order_is_the_lexicographic_one(levels: int, dtype: type) -> None:
    rng = np.random.default_rng(levels)
    X: NDArray[Any] = rng.integers(levels, size=(300, 4)).astype(dtype)
    X[rng.random(X.shape) < 0.05] = np.nan
    X[rng.random(X.shape) < 0.05] = -0.0
    weight = rng.integers(1, 3, size=300).astype(float)
    same = np.arange(300)  # rows that are alike stay in their order
    for given, keys in ((weight, [weight]), (None, [])):
        order, data = np.lexsort([*keys, *X.T[::-1]]), Data(X, given, y=same).canonical()
        assert data.y is not None
        assert_array_equal(data.y, order)
        assert_array_equal(data.X, X[order])
        if keys:
            assert_array_equal(data.sample_weight, weight[order])
    assert len(Data(X[:0]).canonical()) == 0


@pytest.mark.parametrize("levels", [3, 10**9])
def test_tables_are_sorted_one_after_another(levels: int) -> None:
    X = np.random.default_rng(0).integers(levels, size=(300, 2)).astype(float)
    tables = np.repeat(np.arange(30, dtype=np.uint8), 10)
    assert_array_equal(lexicographic([*X.T], tables), np.lexsort([*X.T[::-1], tables]))


def test_answers_add_up_exactly() -> None:
    by_site = {name: summary([x], [1]) for name, x in {"a": 1e16, "b": 1.0, "c": -1e16}.items()}
    total = Answers(by_site).total()
    assert_array_equal(total.sums, [[1]])  # though 1e16 + 1 is 1e16
    assert_array_equal(total.weights, [3])
    assert total.rest is None


def test_a_start_is_a_copy_without_weight_and_by_default_without_a_centre() -> None:
    given = np.array([[1, 2], [3, 4]])
    state = State.at(given)
    assert state.centers.dtype == np.float64
    assert not np.shares_memory(State.at(given.astype(float)).centers, given)
    assert_array_equal(state.weights, [0, 0])
    assert (state.round, state.converged, dict(state.memory)) == (0, False, {})
    assert np.isnan(state.inertia)
    assert State().centers.shape == (0, 0)
    assert State().weights.shape == (0,)
    assert Task(Lloyd(), state).seed == 0
    assert FitParameters(3).tol == Lloyd().tol == 1e-4


def test_a_site_with_other_rows_is_the_same_site() -> None:
    site = SiteInfo("north", labels=("a", "b"), n_rows=5, weight=7.0, n_columns=2)
    assert site == SiteInfo("north", labels=("a", "b"), n_rows=6, weight=8.0, n_columns=3)
    assert site != SiteInfo("north")
    assert site != SiteInfo("north", labels=("a", "b"), streams=True)
    assert site != SiteInfo("north", labels=("a", "b"), answered=False)


@pytest.mark.parametrize(
    ("sums", "weights"), [((2, 3), (3,)), ((2,), (2,)), ((2, 3), (2, 1)), ((1, 2, 3), (1,))]
)
def test_sums_and_weights_belong_together(sums: tuple[int, ...], weights: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a summary has sums"):
        Summary(np.zeros(sums), np.zeros(weights))
    with pytest.raises(ValueError, match=r"what rounding took of sums has shape \(1, 2, 2\)"):
        Summary(np.zeros((2, 2)), np.zeros(2), rest=np.zeros((1, 2, 2)))


def test_what_is_kept_of_rows_is_no_part_of_them() -> None:
    data = Data(np.zeros((2, 1)))
    data.cache["sorted"] = np.ones(9)
    assert "cache" not in repr(data)
    assert "cache" not in inspect.signature(Data).parameters
    assert len(Data(np.zeros((2, 5)))) == 2
    assert data.take(slice(1)).cache == {}


@pytest.mark.parametrize("engine", [LocalEngine, RemoteEngine])
def test_every_engine_is_asked_in_the_same_way(engine: type[Engine]) -> None:
    for name in ("introduce", "ask"):
        ours, protocol = (
            {p.name: p.default for p in inspect.signature(getattr(kind, name)).parameters.values()}
            for kind in (engine, Engine)
        )
        if "requested" in ours:  # handed on as it comes
            hints = get_type_hints(engine.introduce)
            assert hints["requested"] == Unpack[Introduction]
            ours = {"self": ours["self"], **DEFAULTS}
        assert ours == protocol
    assert [*inspect.signature(Engine.introduce).parameters][1:] == list(DEFAULTS)
    assert get_type_hints(Introduction).keys() == DEFAULTS.keys()


DEFAULTS = {
    **{"columns": False, "texts": (), "labels": False, "steps": (), "first_tasks": None},
    "sends": False,
}
"""What an engine is asked of the sites when nothing is said."""


def test_tasks_that_share_a_preprocessor_name_the_first_of_them() -> None:
    one, other = Preprocessor((NumericColumn("x"),)), Preprocessor((NumericColumn("x"),))
    given = (one, None, other, one, None, other)
    tasks = [Task(Lloyd(), State(), preprocessor=each) for each in given]
    assert first_alike(tasks) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(
    "content",
    [[], "MinRows", {"n": 2}, {"name": 3}, {"name": "MinRows", "n": [2]}, {"name": "M", "n": {}}],
)
def test_a_limit_is_a_name_with_scalars(content: object) -> None:
    limit = Limit.from_plain({"name": "MinRows", "n": 2, "why": "so", "f": 0.5, "no": None})
    assert limit == Limit("MinRows", (("n", 2), ("why", "so"), ("f", 0.5), ("no", None)))
    assert str(limit) == "MinRows(n=2, why='so', f=0.5, no=None)"
    assert str(Limit("Own")) == "Own"
    assert Limit.from_plain(limit.plain()) == limit
    with pytest.raises(ValueError, match=r"is not a limit: an object|are not scalars"):
        Limit.from_plain(content)


def test_a_limit_that_is_no_dataclass_is_told_as_it_is() -> None:
    class Own:
        def __call__(self, summary: Summary, n_rows: int) -> Summary:
            return summary

        def __repr__(self) -> str:
            return "Own limit"

    assert Limit.from_filter(Own()) == Limit("Own limit")
    assert Limit.from_filter(MinRows(3)) == Limit("MinRows", (("n", 3),))


TOO_LARGE: dict[str, tuple[float, float, bool]] = {
    "a row": (2e150, 1.0, True),
    "two rows": (2e150, 2.0, False),
    "less than nothing": (-5e150, 2.0, True),
    "a row of little weight": (1e149, 1e-3, False),  # the sum, not the mean, is what others add to
    "a row of little weight, and too much": (2e150, 1e-3, True),
    "a weight below 0, by noise": (5.0, -3.0, False),
    "not a number": (np.nan, 1.0, True),
    "infinite weight": (1.0, np.inf, True),
    "nothing": (0.0, 0.0, False),
}


@pytest.mark.parametrize("case", TOO_LARGE)
def test_a_sum_is_too_large_for_its_rows_and_never_for_less_than_one(case: str) -> None:
    value, weight, too_large = TOO_LARGE[case]
    lines = Summary(np.array([[1.0, 1.0], [1.0, value]]), np.array([1.0, weight]))
    assert lines.is_too_large is too_large
    answers = Answers({"a": lines, "b": Summary(np.ones((2, 2)), np.ones(2))})
    assert answers.too_large() == ["a"] * too_large
    assert Summary(lines.sums[::-1], lines.weights[::-1]).is_too_large is too_large


def test_answers_without_a_site_still_count_what_came_before() -> None:
    line = Summary(np.ones((1, 2)), np.ones(1))
    answers = Answers({"a": line, "b": line}, early={"a": 5, "b": 7})
    assert dict(answers.values_sent) == {"a": 8, "b": 10}
    assert dict(answers.without("a").values_sent) == {"b": 10}
