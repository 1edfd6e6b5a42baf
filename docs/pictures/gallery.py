"""Make the pictures of docs/report.md: run the code of its gallery, and photograph a report.

    python docs/pictures/gallery.py [FOLDER]

Each picture ``gallery-NAME.svg`` is the figure that the code before it has drawn. Pictures of the
report, ``report-SECTION.png``, need a Chromium; without one they stay as they are.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib
from matplotlib import pyplot

HERE = Path(__file__).parent
PAGE = (HERE.parent / "report.md").read_text("utf-8")
PIECES = re.compile(r"^```python\n(?!>>>)(.*?)^```|\(pictures/([a-z]+-[a-z]+\.\w+)\)", re.M | re.S)
CLINICS = [f"clinics/{name}.csv" for name in ("north", "south", "west")]
ALL_DRAWN = (
    "document.querySelectorAll('section').forEach(s => s.style.contentVisibility = 'visible')"
)
PADDING = 12
"""Pixels around a section of the report."""


def drawn(folder: Path) -> Iterator[str]:
    """Run the code of the page, write its figures into a folder, and yield their names."""
    matplotlib.use("Agg")
    style = {"figure.figsize": (5.2, 3.4), "font.size": 9, "svg.hashsalt": "fedcluster"}
    names: dict[str, Any] = {}
    with matplotlib.rc_context(style), TemporaryDirectory() as place, contextlib.chdir(place):
        for code, picture in PIECES.findall(PAGE):
            if code:
                exec(code, names)
            elif picture.endswith(".svg"):
                figure = pyplot.gcf()
                figure.savefig(folder / picture, metadata={"Date": None}, bbox_inches="tight")
                pyplot.close("all")
                yield picture


def photographed(folder: Path) -> Iterator[str]:
    """Write a picture of each section of a report that the page shows, and yield their names."""
    sys.path.insert(0, str(HERE.parents[1] / "tests"))
    import browser  # the tests' own; not needed for the plots

    if browser.program() is None:
        return
    sections = re.findall(r"\(pictures/report-(\w+)\.png\)", PAGE)
    with TemporaryDirectory(ignore_cleanup_errors=True) as place:
        report = written(place)
        with browser.page(Path(place) / "profile") as page:
            page.open(report.as_uri(), width=1100)
            page.value(ALL_DRAWN)
            for section in sections:
                (folder / f"report-{section}.png").write_bytes(picture_of(page, section))
                yield f"report-{section}.png"


def written(place: str) -> Path:
    """Fit the clinics in a folder, and return the report."""
    run = [sys.executable, "-m"]
    subprocess.run([*run, "fedcluster_app.datasets", "clinics"], cwd=place, check=True)
    fit = [
        "fedcluster",
        "fit",
        *CLINICS,
        "-k",
        "auto",
        "--profile",
        "--seed",
        "0",
        "--out",
        "result",
    ]
    subprocess.run([*run, *fit], cwd=place, check=True, stdout=subprocess.DEVNULL)
    return Path(place) / "result" / "report.html"


def picture_of(page: Any, section: str) -> bytes:
    """Return a section of an open page as PNG."""
    box = page.value(
        f"(({{x, y, width, height}}) => ({{x, y, width, height}}))"
        f"(document.getElementById('{section}').getBoundingClientRect())"
    )
    clip = {
        "x": box["x"] - PADDING,
        "y": box["y"] - PADDING + page.value("scrollY"),
        "width": box["width"] + 2 * PADDING,
        "height": box["height"] + 2 * PADDING,
        "scale": 1,
    }
    shot = page.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
    return base64.b64decode(shot["data"])


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else HERE).resolve()
    os.environ.setdefault("COLUMNS", "100")
    for name in [*drawn(target), *photographed(target)]:
        print(name)
