"""The built documentation in a browser: it needs mkdocs (group docs) and a Chromium."""

import subprocess
import sys

import browser
import pytest
from test_project import ROOT

WIDER_THAN_THE_PAGE = """
[...document.querySelectorAll("article *")].filter(element => {
  if (element.getBoundingClientRect().right <= innerWidth + 1) return false;
  for (let up = element; up; up = up.parentElement)
    if (getComputedStyle(up).overflowX != "visible") return false;
  return true;
}).map(element => element.textContent.trim().slice(0, 60))
"""


@pytest.mark.long
@pytest.mark.skipif(not browser.program(), reason="no Chromium")
def test_no_page_of_the_site_scrolls_sideways_on_a_phone_or_asks_another_host(tmp_path):
    """Wide tables and code scroll within themselves; text, formulas and pictures fit."""
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "--site-dir"]
    built = subprocess.run(
        [*command, tmp_path / "site"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    pages = sorted((tmp_path / "site").rglob("index.html"))
    assert len(pages) > 20
    with browser.page(tmp_path / "profile") as page:
        for path in pages:
            page.open(f"file://{path}", width=390)
            assert page.value("document.documentElement.scrollWidth") <= 390, path
            assert page.value(WIDER_THAN_THE_PAGE) == [], path
        assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []
