"""Make the pictures of docs/report.md, by its gallery and photographs, and those of a study.

    python docs/pictures/gallery.py [FOLDER]

Each picture ``gallery-NAME.svg`` is the figure of the code before it. ``study-NAME.svg``
shows what the commands of the study in docs/tutorial.md find. Pictures of the report,
``report-SECTION.png``, need a Chromium; without one they stay as they are.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot

from fedcluster.texts import COLOURS

HERE = Path(__file__).parent
PAGE = (HERE.parent / "report.md").read_text("utf-8")
PIECES = re.compile(r"^```python\n(?!>>>)(.*?)^```|\(pictures/([a-z]+-[a-z]+\.\w+)\)", re.M | re.S)
CLINICS = [f"clinics/{name}.csv" for name in ("north", "south", "west")]
ALL_DRAWN = (
    "document.querySelectorAll('section').forEach(s => s.style.contentVisibility = 'visible')"
)
STUDY = (HERE.parent / "tutorial.md").read_text("utf-8").partition("## A study from end")[2]
STYLE = {"figure.figsize": (5.2, 3.4), "font.size": 9, "svg.hashsalt": "fedcluster"}
PADDING = 12
"""Pixels around a section of the report."""


def drawn(folder: Path) -> Iterator[str]:
    """Run the code of the page, write its figures into a folder, and yield their names."""
    matplotlib.use("Agg")
    names: dict[str, Any] = {}
    with matplotlib.rc_context(STYLE), TemporaryDirectory() as place, contextlib.chdir(place):
        for code, picture in PIECES.findall(PAGE):
            if code:
                exec(code, names)
            elif picture.endswith(".svg"):
                yield saved(folder / picture)


def saved(path: Path) -> str:
    """Write the current figure, and return its name."""
    pyplot.gcf().savefig(path, metadata={"Date": None}, bbox_inches="tight")
    pyplot.close("all")
    return path.name


def studied(folder: Path) -> Iterator[str]:
    """Type the study of the tutorial, draw what it finds, and yield the names of the pictures."""
    code = re.search(r"```python\n(.*?)```", STUDY, re.S)
    assert code
    lines = "\n".join(line[4:] for line in code[1].splitlines())
    commands = [c.split() for c in re.findall(r"^\$ (fedcluster (?:fit|compare) .*)", STUDY, re.M)]
    with matplotlib.rc_context(STYLE), TemporaryDirectory() as place, contextlib.chdir(place):
        exec(f"import pandas as pd\n{lines}", {})
        for command in commands:
            is_last = command[1] == "compare"
            ran = [sys.executable, "-m", "fedcluster_app", *command[1:], *["--json"] * is_last]
            said = subprocess.run(ran, check=True, capture_output=True, text=True).stdout
        axes = pyplot.subplots(1, 2, figsize=(7.5, 1.6), sharey=True)[1]
        titles = ("As the files are", "Offsets of hospitals subtracted")
        for axis, title, name in zip(axes, titles, ("plain", "study"), strict=True):
            sites = json.loads(Path(name, "history.json").read_text())["sites"][::-1]
            bars(axis, title, {each["name"]: each["clusters"] for each in sites})
        yield saved(folder / "study-sites.svg")
        survival(pyplot.subplots()[1], json.loads(said)["comparison"]["outcomes"][0]["clusters"])
        yield saved(folder / "study-survival.svg")


def bars(axis: Any, title: str, sites: dict[str, list[int]]) -> None:
    """Draw the shares of clusters at sites."""
    left = np.zeros(len(sites))
    for j, n in enumerate(np.transpose([*sites.values()])):
        share = n / np.sum([*sites.values()], axis=1)
        axis.barh([*sites], share, left=left, color=COLOURS[j], edgecolor="white")
        for i, x in enumerate(share):
            if x > 0.05:
                axis.text(left[i] + x / 2, i, str(j), color="white", ha="center", va="center")
        left += share
    axis.set_title(title, loc="left", fontsize=9, weight="bold")
    axis.set_xticks([])
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)


def survival(axis: Any, clusters: list[dict[str, Any]]) -> None:
    """Draw curves of survival, and how many rows are at risk."""
    marks = [0, 200, 400, 600]
    for j, each in enumerate(clusters):
        time = [0.0, *(t for t in each["time"] if t is not None)]
        curve = [1.0, *each["surviving"][: len(time) - 1]]
        axis.step(time, curve, where="post", color=COLOURS[j])
        axis.text(time[-1], curve[-1], f" {j}", color=COLOURS[j], va="center", weight="bold")
        for mark in marks:
            n = each["at_risk"][int(np.searchsorted(time[1:], mark, "right"))]
            where = {"xy": (mark, -0.22 - 0.08 * j), "xycoords": ("data", "axes fraction")}
            axis.annotate(f"{n:.0f}", **where, ha="center", color=COLOURS[j])
    axis.set(xticks=marks, ylim=(0, 1), xlim=(0, None), xlabel="days, and rows at risk")
    axis.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
    axis.spines[["top", "right"]].set_visible(False)


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
        "fedcluster_app",
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
    for name in [*drawn(target), *studied(target), *photographed(target)]:
        print(name)
