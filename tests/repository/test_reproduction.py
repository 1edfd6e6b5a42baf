"""The verdicts of reproduction/, which are computed and never typed in."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from matplotlib import rcParams

from reproduction import report
from reproduction.report import PAGE, PAPERS, home_of, rows_of, summary
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
    monkeypatch.setattr(report, "HERE", tmp_path / "reproduction")
    monkeypatch.setattr(report, "PAGE", tmp_path / "none.md")
    figure = [Row.of("figure 0", "a number", [cell(1.5, 1.25, Tolerance(1))], reason="because")]
    reproduce("ffcm", [lambda folder, quick: figure], quick=False)
    reproduce("fkm", [lambda folder, quick: figure], quick=False)
    full = (tmp_path / "reproduction/RESULTS.md").read_text(encoding="utf-8")
    line = "| figure 0 | a number | 1.2500 | 1.5000 | 0 of 1 | 1.0 |  | differs |"
    assert full.count(line) == 2
    assert full.count("- *figure 0*: allowed: 1 SE. because") == 2
    assert "| FKM | 0 | 0 | 1 | 0 | 0 |" in full
    assert f"numpy {np.__version__}, " in full
    assert full.index("## Garst & Reinders") < full.index("(FFCM), FL-AAAI")
    reproduce("fkm", [lambda folder, quick: figure * 2], quick=True)
    assert (tmp_path / "reproduction/RESULTS.md").read_text(encoding="utf-8") == full
    assert (tmp_path / ".cache/reproduction/RESULTS.md").exists()


def test_figures_have_a_style_that_other_pictures_do_not_have(tmp_path, monkeypatch) -> None:
    """The program's own pictures are drawn in the same process by the tests."""
    monkeypatch.setattr(report, "HERE", tmp_path / "reproduction")
    before, drawn = dict(rcParams), []

    def figure(folder: Path, quick: bool) -> list[Row]:
        drawn.append((rcParams["svg.hashsalt"], rcParams["axes.titlesize"]))
        return [Row.of("figure 0", "", [cell(1, 1)])]

    assert rcParams["svg.hashsalt"] is None  # though reproduction.pictures has been imported
    reproduce("fkm", [figure], quick=True)
    assert drawn == [("fedcluster", 9.0)]
    assert dict(rcParams) == before


def test_few_runs_compare_only_what_knows_no_chance(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(report, "HERE", tmp_path / "reproduction")
    by_chance = Row.of("figure 1", "", [cell(1.5, 1.25, Tolerance(1))])
    exact, wrong = (Row.of("table 1", "", [cell(ours, 2)]) for ours in (2, 3))
    reproduce("fkm", [lambda folder, quick: [by_chance, exact]], quick=True)
    told = capsys.readouterr().out
    assert [line.split()[3] for line in told.splitlines()] == ["ran", "agrees"]
    with pytest.raises(SystemExit, match=r"not the published numbers.*'table 1'"):
        reproduce("fkm", [lambda folder, quick: [by_chance, wrong]], quick=True)


def test_a_perfect_reproduction_is_not_within_everywhere() -> None:
    """One standard error holds 68 % of normal means, and a number without one is there or not."""
    theirs = Estimate(1.0, 0.1, 1)
    cells = [Cell({}, Estimate(1.0), theirs, Tolerance(1))] * 100 + [cell(1, 1)]
    row = Row.of("figure 0", "", cells)
    assert (row.within, row.expected) == ("101 of 101", "69.3")
    assert row.error_is_of == "the paper's runs alone"


@pytest.mark.parametrize(
    ("ours", "published", "of"),
    [
        (Estimate(1, 0.2, 4), Estimate(1), "our runs alone"),
        (Estimate(1), Estimate(1, 0.2, 4), "the paper's runs alone"),
        (Estimate(1, 0.2, 4), Estimate(1, 0.3, 4), "our runs and the paper's"),
        (Estimate(1, 0.2, 4), Estimate(1, 0.2, 10), "our runs, for the paper's too"),
        (
            Estimate(1, 0.2, 4),
            Estimate.quartiles(1, 0, 2, 9),
            "our runs and the published quartiles",
        ),
        (Estimate(1), Estimate(1), ""),
        (Estimate(1, 0.2, 4), None, ""),
    ],
)
def test_a_standard_error_says_whose_runs_it_is_of(ours, published, of) -> None:
    assert Cell({}, ours, published).error_is_of == of


@pytest.mark.parametrize(
    ("tolerance", "text"),
    [
        (EXACT, "nothing"),
        (Tolerance(3, 0.002), "3 SE + 0.002"),
        (Tolerance(0, relative=0.1), "10 %"),
    ],
)
def test_a_tolerance_in_words(tolerance: Tolerance, text: str) -> None:
    assert str(tolerance) == text


def test_a_band_for_each_number_is_told_by_the_narrowest_and_the_widest() -> None:
    cells = [cell(1, 1, Tolerance(0, absolute=0.01 * i)) for i in (3, 1, 2, 4)]
    assert Row.of("figure 0", "", cells).allowed == "0.01 to 0.04, a band for each number"
    assert Row.of("figure 0", "", cells[:2]).allowed == "0.01; 0.03"


def test_rows_that_stand_in_are_not_judged() -> None:
    assert Row.of("figure 0", "", [cell(1, 2)], shape=True, stand_in=True).verdict == "stand-in"


def test_the_page_of_the_documentation_shows_the_results_as_they_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = {paper: rows_of(paper, home_of(quick=False)) for paper in PAPERS}
    _, _, text = page.partition("<!-- verdicts -->\n")
    shown, _, _ = text.partition("<!-- end of verdicts -->")
    assert shown == summary(rows)
    assert all(f"| {name} |" in shown for name in ("FKM", "FFCM", "framework"))


def tenfold_and_seed(setting: int, seed: int) -> tuple[int, int]:
    return 10 * setting, seed


@pytest.mark.thorough
def test_runs_on_two_processes_come_in_the_order_of_their_seeds() -> None:
    one, two = runs_of(tenfold_and_seed, [1, 2], 60)
    np.testing.assert_array_equal(one, [(10, seed) for seed in range(60)])
    np.testing.assert_array_equal(two, [(20, seed) for seed in range(60)])
