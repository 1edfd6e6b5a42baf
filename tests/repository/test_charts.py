"""The charts of the documentation are those of its tables."""

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = DOCS / "pictures" / "charts.py"


@pytest.fixture(scope="module")
def charts():
    """What the script of the charts defines."""
    return runpy.run_path(str(SCRIPT))


def test_each_chart_is_drawn_and_shown_with_words_for_who_cannot_see_it(charts):
    pages = "".join((DOCS / f"{name}.md").read_text("utf-8") for name in ("quality", "performance"))
    shown = dict(re.findall(r"!\[([^]]+)\]\(pictures/([a-z-]+)\.svg\)", pages))
    assert sorted(shown.values()) == sorted(charts["CHARTS"])
    assert all(len(words) > 60 for words in shown)
    assert {path.stem for path in SCRIPT.parent.glob("*.svg")} >= set(charts["CHARTS"])


def test_charts_show_the_numbers_of_the_tables(charts):
    figure = charts["families"]()
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert widths[0] == pytest.approx(0.0013)
    assert widths[-1] == pytest.approx(0.0045)
    assert len(widths) == 9


def test_every_set_and_method_is_read_from_the_fixed_columns(charts):
    values = charts["measured"]("The papers' sets")
    assert values["kfed"]["variable k"] == (1.53096, 2.22781)
    assert len(values["auto"]) == len(values["fkm of 2023"]) == 13
    assert len(charts["measured"]("Fuzzy c-means")["fuzzy auto, sums only"]) == 9
