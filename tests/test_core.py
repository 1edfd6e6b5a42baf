"""The values that everything else is made of, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedcluster import Data, State, Summary
from fedcluster.core import Answers, SiteInfo


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


def test_lines_that_are_not_kept_say_nothing() -> None:
    kept = summary([5, 7], [9, 2], [1, 2]).keep(np.array([False, True]))
    assert_array_equal(kept.sums, [[0], [7]])
    assert_array_equal(kept.weights, [0, 2])
    assert_array_equal(kept.rows, [0, 2])
    assert summary([5], [9]).keep(np.array([True])).support is None


def test_support_does_not_leave_the_site() -> None:
    leaving = summary([5], [9], [1]).leaving()
    assert leaving.support is None
    assert_array_equal(leaving.weights, [9])
    plain = summary([5], [9])
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


def test_canonical_order_is_by_the_first_column_then_the_next_then_the_weight() -> None:
    rows = np.array([[1.0, 5.0], [0.0, 9.0], [1.0, 4.0], [1.0, 4.0]])
    data = Data(rows, np.array([1.0, 2.0, 4.0, 3.0])).canonical()
    assert_array_equal(data.X, [[0, 9], [1, 4], [1, 4], [1, 5]])
    assert_array_equal(data.sample_weight, [2, 3, 4, 1])


def test_answers_add_up_in_the_order_of_their_names() -> None:
    by_site = {name: summary([x], [1]) for name, x in {"a": 1e16, "b": 1.0, "c": -1e16}.items()}
    total = Answers(by_site).total()
    assert_array_equal(total.sums, [[0]])  # 1e16 + 1 is 1e16
    assert_array_equal(total.weights, [3])


def test_a_start_is_a_copy_and_has_no_weight() -> None:
    given = np.array([[1, 2], [3, 4]])
    state = State.at(given)
    assert state.centers.dtype == np.float64
    assert not np.shares_memory(State.at(given.astype(float)).centers, given)
    assert_array_equal(state.weights, [0, 0])
    assert (state.round, state.converged, dict(state.memory)) == (0, False, {})
    assert np.isnan(state.inertia)


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
