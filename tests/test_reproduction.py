"""The verdicts of reproduction/, which are computed and never typed in."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from reproduction import results
from reproduction.results import EXACT, Cell, Estimate, Row, Tolerance, reproduce, write_table
from reproduction.runs import runs_of


def cell(ours: float, published: float | None, tolerance: Tolerance = EXACT) -> Cell:
    theirs = None if published is None else Estimate(published)
    return Cell({"n": 1}, Estimate(ours), theirs, tolerance)


def test_standard_errors_are_those_of_both_samples() -> None:
    """0.3 / sqrt(9) and 0.4 / sqrt(16) make hypot(0.1, 0.1); ours is 0.2 away."""
    both = Cell({}, Estimate(1.2, 0.3, 9), Estimate(1.0, 0.4, 16))
    assert both.error == pytest.approx(0.1 * 2**0.5)
    assert both.deviation == pytest.approx(2**0.5)


def test_a_median_is_less_certain_than_a_mean() -> None:
    sample = np.arange(9.0)
    ratio = Estimate.median(sample).error / Estimate.mean(sample).error
    assert ratio == pytest.approx((np.pi / 2) ** 0.5)
    assert Estimate.quartiles(5.0, 5.0 - 0.6745, 5.0 + 0.6745, 1).spread == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("tolerance", "within"),
    [
        (EXACT, False),
        (Tolerance(0, absolute=0.09), False),
        (Tolerance(0, absolute=0.11), True),
        (Tolerance(0, relative=0.04), False),
        (Tolerance(0, relative=0.06), True),
    ],
)
def test_tolerances_without_an_error(tolerance: Tolerance, within: bool) -> None:
    found = cell(2.1, 2.0, tolerance)
    assert found.within is within
    assert found.deviation is None


def test_tolerance_counts_standard_errors() -> None:
    theirs = Estimate(1.0, 0.1, 1)
    assert Cell({}, Estimate(1.29), theirs).within
    assert not Cell({}, Estimate(1.31), theirs).within


@pytest.mark.parametrize(
    ("good", "bad", "alone", "shape", "verdict"),
    [
        (20, 0, 0, None, "agrees"),
        (19, 1, 5, True, "agrees"),
        (18, 2, 0, None, "differs"),
        (18, 2, 0, True, "agrees in shape"),
        (20, 0, 0, False, "differs"),
        (0, 0, 4, None, "ours alone"),
        (0, 0, 0, True, "agrees in shape"),
        (0, 0, 0, False, "differs"),
    ],
)
def test_the_verdict_follows_from_the_cells(good, bad, alone, shape, verdict) -> None:
    cells = [cell(1, 1)] * good + [cell(1, 2)] * bad + [cell(1, None)] * alone
    assert Row.of("figure 0", "", cells, required=0.95, shape=shape).verdict == verdict


def test_a_table_has_both_columns_and_the_deviation(tmp_path: Path) -> None:
    cells = [Cell({"beta": 0.1}, Estimate(1.2, 0.3, 9), Estimate(1.0, 0.4, 16))]
    assert write_table(tmp_path, "t", "A table", cells) == ["t.md", "t.csv"]
    [line] = csv.DictReader((tmp_path / "t.csv").read_text("utf-8").splitlines())
    assert line == {
        "beta": "0.1",
        "published": "1 ± 0.4",
        "ours": "1.2000 ± 0.3",
        "runs": "9",
        "deviation in standard errors": "+1.4",
        "within": "yes",
    }
    text = (tmp_path / "t.md").read_text(encoding="utf-8")
    assert text.startswith("# A table\n\n| beta | published | ours |")


def test_rows_of_all_papers_are_gathered_and_quick_ones_kept_apart(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(results, "HERE", tmp_path / "reproduction")
    figure = [Row.of("figure 0", "a number", [cell(1.5, 1.25)])]
    reproduce("ffcm", [lambda folder, quick: figure], quick=False)
    reproduce("fkm", [lambda folder, quick: figure], quick=False)
    full = (tmp_path / "reproduction/RESULTS.md").read_text(encoding="utf-8")
    assert full.count("| figure 0 | a number | 1.2500 | 1.5000 |  | differs |") == 2
    assert full.index("Garst & Reinders") < full.index("FFCM")
    reproduce("fkm", [lambda folder, quick: figure * 2], quick=True)
    assert (tmp_path / "reproduction/RESULTS.md").read_text(encoding="utf-8") == full
    assert (tmp_path / ".cache/reproduction/RESULTS.md").exists()


def tenfold_and_seed(setting: int, seed: int) -> tuple[int, int]:
    return 10 * setting, seed


def test_runs_on_two_processes_come_in_the_order_of_their_seeds() -> None:
    one, two = runs_of(tenfold_and_seed, [1, 2], 60)
    np.testing.assert_array_equal(one, [(10, seed) for seed in range(60)])
    np.testing.assert_array_equal(two, [(20, seed) for seed in range(60)])
