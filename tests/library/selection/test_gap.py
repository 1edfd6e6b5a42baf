"""The gap statistic, by hand and by equivalences."""

from __future__ import annotations

import numpy as np
import pytest

from fedcluster.core.task import stream
from fedcluster.kernels import kmeans
from fedcluster.selection import sweep
from fedcluster.selection.sweep import box, gaps

UNIT = np.zeros(2), np.ones(2)


def test_the_error_of_the_mean_reference_is_a_root_larger_than_their_spread() -> None:
    """s_k = sd sqrt(1 + 1 / B). Of one reference the sd is 0; the first of two is the same one, so
    that the second is known from both gaps, and the sd of two is half of what lies between.
    """
    within = {1: 3.0, 3: 1.0}
    one, two = (gaps(within, 50, UNIT, n_references=b, seed=4) for b in (1, 2))
    for k in within:
        assert one[k][1] == 0
        sd = abs(one[k][0] - two[k][0])  # of the mean of two from the first
        assert sd > 0
        assert two[k][1] == pytest.approx(sd * np.sqrt(1.5), rel=1e-9)


def test_the_gap_is_by_how_much_references_are_worse_on_a_log_scale() -> None:
    """Both within sums of squares are divided by their n - k degrees of freedom; with k = 1 that of
    a reference is the sum of squares about its mean.
    """
    n, rng = 50, stream(4, 0, "references")
    rows = rng.uniform(*UNIT, (n, 2))
    reference = ((rows - rows.mean(axis=0)) ** 2).sum() / (n - 1)
    ours = gaps({1: 3.0}, n, UNIT, n_references=1, seed=4)[1][0]
    assert ours == pytest.approx(np.log(reference) - np.log(3.0 / 49), rel=1e-9)


def test_a_gap_has_its_own_degrees_of_freedom_for_each_k() -> None:
    """Where k is larger, a within sum of squares of the same rest stands for fewer of them."""
    n = 40
    rng = stream(0, 0, "references")
    rows = rng.uniform(*UNIT, (n, 2))
    first, third = (kmeans(rows, k, rng=rng, n_init=2).inertia / (n - k) for k in (1, 3))
    found = gaps({1: 4.0, 3: 2.0}, n, UNIT, n_references=1, seed=0)
    assert found[1][0] == pytest.approx(np.log(first / (4.0 / 39)), rel=1e-9)
    assert found[3][0] == pytest.approx(np.log(third / (2.0 / 37)), rel=1e-9)


@pytest.mark.parametrize(("within", "weight"), [(0.0, 50.0), (1.0, 3.0)])
def test_a_gap_without_a_within_or_without_freedom_is_nothing(within: float, weight: float) -> None:
    """All rows equal, or no more weight than clusters: log 0, or a division by it."""
    [gap, error] = gaps({3: within}, weight, UNIT, n_references=2)[3]
    assert np.isnan(gap)
    assert np.isfinite(error)


@pytest.mark.parametrize(
    ("weight", "d", "ks", "rows"),
    [
        (50, 2, (1, 3), 50),
        (1e6, 2, (1, 3), 2048),
        (1e6, 1024, (1, 2), 256),  # 2^18 values
        (1e6, 1024, (1, 10), 640),  # but 64 of each cluster
        (1e6, 2, (1, 40), 2048),
        (3, 2, (1, 5), 6),  # one more than clusters
    ],
)
def test_references_have_as_many_rows_as_there_are_or_as_can_be_afforded(
    monkeypatch: pytest.MonkeyPatch, weight: float, d: int, ks: tuple[int, int], rows: int
) -> None:
    seen: set[tuple[int, int]] = set()

    class Fit:
        inertia = 1.0

    def fit(X: np.ndarray, k: int, **options: object) -> Fit:
        seen.add(X.shape)
        return Fit()

    monkeypatch.setattr(sweep, "kmeans", fit)
    gaps(dict.fromkeys(ks, 1.0), weight, (np.zeros(d), np.ones(d)))
    assert seen == {(rows, d)}


def test_ten_references_are_drawn_unless_another_number_is_said() -> None:
    within = {1: 3.0, 2: 2.0}
    assert gaps(within, 50, UNIT) == gaps(within, 50, UNIT, n_references=10, seed=0)
    assert gaps(within, 50, UNIT) != gaps(within, 50, UNIT, n_references=9)
    assert gaps(within, 50, UNIT) != gaps(within, 50, UNIT, seed=1)


def test_the_box_has_the_mean_and_the_variance_of_each_column() -> None:
    """A uniform column of width w has the variance w^2 / 12."""
    lower, upper = box(np.array([5.0, -1.0, 2.0]), np.array([3.0, 12.0, 0.0]))
    np.testing.assert_allclose((upper - lower) ** 2 / 12, [3, 12, 0])
    np.testing.assert_allclose((upper + lower) / 2, [5, -1, 2])
