"""The gallery of the documentation: its code runs, and draws the pictures that it shows."""

import re
import runpy
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "report.md").read_text("utf-8")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.* lies in one cluster")
def test_the_code_of_the_gallery_draws_its_plots(tmp_path):
    script = runpy.run_path(str(DOCS / "pictures" / "gallery.py"))
    plots = re.findall(r"\(pictures/(gallery-\w+\.svg)\)", PAGE)
    assert len(plots) >= 7
    assert list(script["drawn"](tmp_path)) == plots
    assert all((tmp_path / plot).stat().st_size > 5_000 for plot in plots)


def test_each_picture_is_there_and_described():
    pictures = dict(re.findall(r"!\[([^]]+)\]\((pictures/[^)]+)\)", PAGE))
    assert len(pictures) == len(re.findall(r"!\[", PAGE)) >= 12
    assert [path for path in pictures.values() if not (DOCS / path).exists()] == []
