"""The built documentation in a browser: it needs mkdocs (group docs) and a Chromium."""

import functools
import http.server
import json
import subprocess
import sys
import threading
import time

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
SEARCH = """
(query => {
  const input = document.querySelector("input.md-search__input")
  input.focus()
  input.value = query
  input.dispatchEvent(new KeyboardEvent("keyup", { bubbles: true }))
  return [...document.querySelectorAll(".md-search-result__link")].map(a => a.pathname)
})(%s)
"""
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not browser.program(), reason="no Chromium"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site, built for these tests."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "--site-dir", folder]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def test_no_page_of_the_site_scrolls_sideways_on_a_phone_or_asks_another_host(site, tmp_path):
    """Wide tables and code scroll within themselves; text, formulas and pictures fit."""
    pages = sorted(site.rglob("index.html"))
    assert len(pages) > 20
    with browser.page(tmp_path / "profile") as page:
        for path in pages:
            page.open(f"file://{path}", width=390)
            assert page.value("document.documentElement.scrollWidth") <= 390, path
            assert page.value(WIDER_THAN_THE_PAGE) == [], path
        assert [url for url in page.requests if not url.startswith(("file:", "data:"))] == []


def test_an_option_is_found_by_its_name_with_dashes(site, tmp_path):
    """The search of the theme takes a dash before a word for "without"."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    serve = functools.partial(Handler, directory=site)
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server,
        browser.page(tmp_path / "profile") as page,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.open(f"http://127.0.0.1:{server.server_port}/")
        for option in ("--secure", "--min-cluster-size", "-k", "--out", "--head"):
            for query, is_found in (("zzzz", False), (option, True)):
                end = time.monotonic() + 60
                while ("/commands/" in page.value(SEARCH % json.dumps(query))) != is_found:
                    assert time.monotonic() < end, query
                    time.sleep(0.2)
        server.shutdown()
