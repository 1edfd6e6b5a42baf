"""What was published of the k-means papers, and what a perfect reproduction would score."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from reproduction.fkm import published, real_data
from reproduction.triebe import perfect, runs

pytestmark = pytest.mark.thorough


def test_figures_3_and_8_are_published_in_all_cells() -> None:
    """Sixteen clusters get no easier to tell apart as noise grows; pooled rows know no beta."""
    cells = list(product(("0.1", "1", "10"), ("50", "100", "200")))
    for method, (beta, rows) in product(("FKM", "kFed", "central"), cells):
        noises = ("1", "1.1", "1.2", "1.3", "1.4", "1.5")
        means = [published.on_plane(method, beta, rows, noise)["mean"] for noise in noises]
        assert means == sorted(means, reverse=True), (method, beta, rows)
        if method == "central":
            assert means[0] == published.on_plane(method, "1", rows, "1")["mean"]


def test_rows_on_which_methods_agree_tell_nothing() -> None:
    theirs = [0.21, 0.19, 0.214]
    assert "cannot tell" in real_data.what_it_tells([0.3191, 0.3192, 0.3193], theirs)
    assert "k-FED holds" in real_data.what_it_tells([0.31, 0.26, 0.32], theirs)
    assert "does not hold" in real_data.what_it_tells([0.26, 0.31, 0.32], theirs)


def every_setting(sample: np.ndarray) -> runs.Found:
    """All settings of figures 1 to 5 with the same runs."""
    return {runs.setting_of(p): sample for panel in runs.PANELS for p in runs.points(panel)}


def test_runs_without_chance_lie_inside_their_band() -> None:
    counts = perfect.points_inside(list(runs.PANELS), every_setting(np.full((4, 4), 0.5)))
    assert sum(least for least in map(perfect.least, counts.values())) == 222


@pytest.mark.parametrize("panel", ["1", "4a"])
def test_two_values_lie_inside_as_often_as_counted(panel: str) -> None:
    """Runs of 0 or 1: a band about the mean m of k runs is sqrt(m (1 - m)), and our mean, of very
    many runs, is 1/2. It is inside but for k equal runs and, with |m - 1/2| > sqrt(m (1 - m)), for
    m < (2 - sqrt 2) / 4 = 0.146 and its mirror.
    """
    sample = np.tile(np.repeat([0.0, 1.0], 500)[:, None], (1, 4))
    counts = perfect.points_inside([panel], every_setting(sample))[panel]
    outside = {30: 2 * 0.0000297, 10: 22 / 1024, 3: 0.25}  # at most 4 of 30, 1 of 10, 0 of 3
    points = [p for p in runs.points(panel) if not np.isnan(p.train_mean)]
    expected = sum(2 * (1 - outside[runs.published_runs(p)]) for p in points)
    assert counts.mean() == pytest.approx(expected, abs=0.15)


def test_a_range_in_words() -> None:
    """Of 1 to 100, nineteen of twenty reach 5."""
    counts = np.arange(1, 101)
    assert (perfect.least(counts), perfect.in_words(counts)) == (5, "50 (5 to 95 %: 5 to 96)")
