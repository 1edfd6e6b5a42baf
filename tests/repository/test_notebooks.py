"""The notebooks of the documentation: they run, and no old output is kept in them."""

import runpy
from pathlib import Path

import nbformat
import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def hook():
    """What shows notebooks on the site."""
    return runpy.run_path(str(DOCS / "hooks" / "notebooks.py"))


FIRST, *LATE = NOTEBOOKS
LONG = [pytest.param(path, marks=pytest.mark.long) for path in LATE]


@pytest.mark.thorough
@pytest.mark.parametrize("path", [FIRST, *LONG], ids=lambda path: path.stem)
def test_a_notebook_runs_and_each_picture_is_described(path, hook):
    cells = hook["executed"](path).cells
    texts = [text for cell in cells for text in hook["shown"](cell)]
    pictures = [text for text in texts if text.startswith("<img")]
    assert len(pictures) >= 3
    assert not [text for text in pictures if 'alt=""' in text]
    assert sum("<table>" in text for text in texts) >= 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_keeps_no_output_and_has_a_page(path, hook):
    for cell in nbformat.read(path, as_version=4).cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    [page] = [page for page, name in hook["NOTEBOOKS"].items() if DOCS / name == path]
    assert f"(notebooks/{path.name})" in (DOCS / page).read_text("utf-8")
