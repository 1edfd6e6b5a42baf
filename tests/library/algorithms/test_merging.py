"""What servers do with sums, by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from partitions import on_line

from fedcluster import Data, Summary
from fedcluster.algorithms.merging import (
    mean_variance,
    means,
    pool,
    site_tolerance,
    tolerance,
    total,
)


def test_the_mean_variance_of_rows_from_the_sums_of_clusters() -> None:
    """Rows 0 2 | 10 14, asked about 0 and 10: errors 4 and 16, means 1 and 12. About the means
    the errors are 2 and 8; about 6.5, the mean of all, the means lie 2 * 30.25 twice. The mean
    of the squares about 6.5 is (10 + 121) / 4.
    """
    errors, weights = np.array([4.0, 16.0]), np.array([2.0, 2.0])
    variance = mean_variance(on_line(1, 12), errors, weights, asked=on_line(0, 10))
    assert variance == pytest.approx(131 / 4, rel=1e-15)
    assert variance == pytest.approx(np.var([0, 2, 10, 14]), rel=1e-15)


def test_the_mean_variance_is_one_of_a_column() -> None:
    """Rows (0, 0) and (2, 4): variances 1 and 4. A cluster of weight 0 says nothing."""
    centers = np.array([[1.0, 2.0], [100.0, 100.0]])
    variance = mean_variance(centers, np.array([10.0, 0.0]), np.array([2.0, 0.0]), centers)
    assert variance == 2.5


def test_the_variance_of_no_rows_and_one_below_0_are_0() -> None:
    centers = on_line(1, 2)
    assert mean_variance(centers, np.zeros(2), np.zeros(2), centers) == 0
    assert mean_variance(centers, np.ones(2), -np.ones(2), centers) == 0
    assert mean_variance(centers, np.array([-9.0, 0.0]), np.ones(2), centers) == 0


def test_a_mean_over_nothing_or_less_stays_where_it_was() -> None:
    """With noise a weight can be negative."""
    sums, weights = on_line(2, 5, 5, 0.5), np.array([4.0, 0.0, -1.0, 0.5])
    assert_allclose(means(sums, weights, on_line(7, 8, 9, 10)), on_line(0.5, 8, 9, 1))


def test_means_lie_one_under_the_other_and_empty_ones_are_left_out() -> None:
    north = Summary(on_line(2, 0), np.array([4.0, 0.0]))
    south = Summary(on_line(0, 9, -1), np.array([0.0, 3.0, 0.25]))
    centers, weights = pool([north, south])
    assert_array_equal(centers, on_line(0.5, 3, -4))
    assert_array_equal(weights, [4, 3, 0.25])


def test_a_total_is_exact_in_any_order() -> None:
    """1e16 + 1 - 1e16 is 1, also where 1e16 + 1 is rounded to 1e16."""
    answers = [Summary(on_line(x), np.ones(1)) for x in (1e16, 1.0, -1e16)]
    assert total(answers).sums[0, 0] == 1
    assert total([answers[0], answers[2], answers[1]]).sums[0, 0] == 1
    assert total(answers).weights[0] == 3


def test_a_tolerance_is_relative_to_the_mean_variance_of_a_column() -> None:
    """Columns 0 2 and 0 4 have the variances 1 and 4; without a tolerance they do not matter."""
    X = np.array([[0.0, 0.0], [2.0, 4.0]])
    assert tolerance(X, 0.5) == 1.25
    assert tolerance(X, 0.0) == tolerance(np.full((2, 1), np.inf), 0.0) == 0
    data = Data(X)
    assert site_tolerance(data, 0.5) == 1.25
    assert site_tolerance(data, 2.0) == 5  # the variance is kept, not the tolerance
