"""Limits and persons by hand: how few rows may be behind what leaves a site."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from fedcluster.core import Data, Grouped, Summary
from fedcluster.privacy import MinClusterSize, MinRows
from fedcluster.privacy.disclosure import PersonCounter, PersonCounts, behind_groups


def lines(*rows: float) -> Summary:
    n = len(rows)
    return Summary(np.ones((n, 2)), np.full(n, 0.5), np.array(rows))


def test_a_line_needs_as_many_rows_as_the_limit_says() -> None:
    for p, kept in ((1, [0.5, 0.5, 0.5]), (2, [0, 0.5, 0.5]), (3, [0, 0, 0.5])):
        assert_array_equal(MinClusterSize(p)(lines(1, 2, 3), 6).weights, kept)
    assert_array_equal(MinClusterSize()(lines(1, 2), 3).weights, [0, 0.5])


def test_a_site_needs_as_many_rows_as_the_limit_says_for_any_line() -> None:
    for n_rows, kept in ((1, 0.0), (2, 0.5), (3, 0.5)):
        found = MinRows()(lines(0, 1, 2), n_rows)
        assert_array_equal(found.weights, [kept] * 3)
        assert_array_equal(found.sums, np.full((3, 2), kept * 2))
    assert_array_equal(MinRows(1)(lines(1), 1).weights, [0.5])
    assert not MinRows(4)(lines(3), 3).weights.any()


@pytest.mark.parametrize("limit", [MinClusterSize, MinRows])
def test_a_limit_is_two_unless_another_number_of_at_least_1_is_said(limit: type) -> None:
    [default] = [p.default for p in inspect.signature(limit).parameters.values()]
    assert default == 2
    limit(1)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match=f"at least 1, not {wrong}"):
            limit(wrong)


def counted(*groups: list[int]) -> PersonCounts:
    counter = PersonCounter()
    for each in groups:
        counter.add(np.array(each, dtype=np.int64))
    return counter.persons()


def test_persons_come_by_their_rows_whatever_chunk_they_were_in() -> None:
    """Seven has three rows, five two, nine one: the first k persons have 3, 5 and 6."""
    for groups in ([[7, 5, 7], [9, 7, 5]], [[7, 5, 7, 9, 7, 5]], [[7], [5], [7], [9], [7], [5]]):
        persons = counted(*groups)
        assert_array_equal(persons.most, [0, 3, 5, 6])
        assert len(persons) == 3
    many = counted(*[[i % 5, 0] for i in range(3 * PersonCounter.many)])
    assert_array_equal(np.diff(many.most)[:1], [3 * PersonCounter.many + 20])
    assert many.most[-1] == 6 * PersonCounter.many
    assert len(counted()) == 0
    assert_array_equal(counted().most, [0])


def test_the_fewest_persons_that_rows_may_be_of() -> None:
    """Four rows are at least two persons', and 5.5 three; no more than there are rows."""
    persons = PersonCounts(np.array([0.0, 3, 5, 6]))
    rows = np.array([0.0, 1, 3, 4, 5, 5.5, 6, 0.5])
    assert_array_equal(persons.min_groups(rows), [0, 1, 1, 2, 2, 3, 3, 0.5])
    hardly = np.array([3 + 2 * 0.9e-6, 3 + 2 * 1.5e-6])  # rounding is not a person
    assert_array_equal(persons.min_groups(hardly), [1, 2])


def test_rows_that_are_surely_of_so_many_persons() -> None:
    """Four rows are of two, six of three; nothing is of four."""
    persons = PersonCounts(np.array([0.0, 3, 5, 6]))
    assert [persons.rows_of(k) for k in (1, 2, 3, 4)] == [1, 4, 6, np.inf]


def test_the_rows_behind_a_share_of_a_group_are_that_share_of_them() -> None:
    """Of groups of 5, 6 and 9 rows: half of the second, and all of them but for rounding."""
    grouped = Grouped(np.array([5.0, 9.0, 6.0]))
    data = Data(np.zeros((3, 1)), grouped.counts, grouped=grouped)
    line = Summary(np.zeros((2, 0)), np.ones(2), np.array([1.5, 3.0 - 1e-9]))
    behind = behind_groups(line, data, grouped)
    assert_array_equal(behind.support, [5.0 + 6.0 / 2, 20.0])
    assert_array_equal(MinClusterSize(20)(behind, 20).weights, [0.0, 1.0])
