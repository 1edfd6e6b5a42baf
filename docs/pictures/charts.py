"""Draw the charts of docs/quality.md and docs/performance.md from the tables of benchmarks/results.

    python docs/pictures/charts.py [FOLDER]

After a new measurement, change a table there and run this. Equal tables give equal files, with
the same matplotlib.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
BLUE, ORANGE, GREEN, GREY = "#2a6fbb", "#d9730d", "#2f8f5b", "#8a8f98"
WIDTH = 4.2
"""Inches: narrow, so that a phone shows the texts large enough."""

STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "font.size": 8.5,
    "grid.color": "#e4e6ea",
    "legend.frameon": False,
    "svg.hashsalt": "fedcluster",
}
"""Set while the charts are drawn: other pictures of the same process are not these."""


def section(page: str, heading: str) -> str:
    """Return the text of a page from a heading to the next one of the same level."""
    text = (RESULTS / page).read_text("utf-8")
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if found is None:
        raise ValueError(f"{page} has no heading {heading!r}")
    return found[1]


def tables(page: str, heading: str) -> list[list[list[str]]]:
    """Return the tables of a section: lines of cells, without the line of names."""
    blocks = re.findall(r"(?:^\|.*\n)+", section(page, heading), re.M)
    lines = [[line.strip()[1:-1] for line in block.splitlines()[2:]] for block in blocks]
    return [[[cell.strip() for cell in line.split("|")] for line in block] for block in lines]


def number(text: str) -> float:
    """Return the first number of a cell, or nan."""
    found = re.search(r"\d*\.?\d+", text.replace(",", ""))
    return float(found[0]) if found else np.nan


def measured(heading: str) -> dict[str, dict[str, tuple[float, float]]]:
    """Return mean and largest J of each method and set in a block of fixed columns."""
    values: dict[str, dict[str, tuple[float, float]]] = {}
    for line in section("quality.md", heading).split("```")[1].splitlines()[2:]:
        mean, largest = (float(each) for each in line[40:].split()[:2])
        values.setdefault(line[18:40].strip(), {})[line[:18].strip()] = mean, largest
    return values


def per_cent(value: float, _: Any = None) -> str:
    """Return a share as a label of an axis."""
    return f"{100 * value:g} %"


def short(text: str) -> str:
    """Return a text with its thousands and millions abbreviated."""
    return text.replace(",000,000", "M").replace(",000", "k").replace(" x ", "×")


def lost(axis: Any, ticks: Sequence[float], linear: float) -> None:
    """Make an axis show J - 1, linear near 0 and logarithmic beyond."""
    axis.set_xscale("symlog", linthresh=linear, linscale=0.7)
    axis.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(per_cent))
    axis.axvline(0, color="#333333", linewidth=0.8)


def methods(heading: str, shown: Sequence[str], title: str, height: float) -> Any:
    """Draw the mean J of each set as a dot, a line for each method."""
    values = measured(heading)
    figure, axes = pyplot.subplots(figsize=(WIDTH, height))
    for i, name in enumerate(shown):
        means = np.array([mean for mean, _ in values[name].values()]) - 1
        colour = BLUE if "auto" in name else ORANGE
        axes.plot(means, np.full(len(means), i), "o", color=colour, markersize=5, alpha=0.6)
    axes.set_yticks(range(len(shown)), shown)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    lost(axes, [-0.0001, 0, 0.0001, 0.001, 0.01, 0.1, 1, 5], 1e-4)
    axes.set_xlim(-0.0009, 8)
    axes.tick_params(axis="x", labelrotation=45)
    axes.set(title=title)
    figure.supxlabel("inertia above the pooled result, mean of each set", fontsize=8.5)
    return figure


def papers_sets() -> Any:
    """Draw how far each method is above pooled k-means on the papers' sets."""
    names = ["auto", "auto, sums only", "lloyd, k-means++", "fkm", "fkm of 2023"]
    names += ["fedavg", "kfed"]
    return methods("The papers' sets", names, "k-means: thirteen sets, thirty seeds each", 2.9)


def fuzzy() -> Any:
    """Draw how far fuzzy methods are above pooled fuzzy c-means."""
    names = ["fuzzy auto", "fuzzy auto, sums only", "ffcm avg_2", "ffcm avg_1"]
    return methods("Fuzzy c-means", names, "fuzzy c-means: nine sets, ten seeds each", 2.1)


def families() -> Any:
    """Draw the largest J of each family."""
    rows = tables("quality.md", "Rows of every kind")[0]
    labels = [row[0].removeprefix("- ") for row in rows]
    labels[0], labels[-1] = "all, default", "all, sums only"
    largest = [number(row[4]) - 1 for row in rows]
    figure, axes = pyplot.subplots(figsize=(WIDTH, 2.7))
    axes.barh(labels, largest, color=[BLUE] * (len(rows) - 1) + [ORANGE], height=0.6)
    axes.axvline(0.01, color="#333333", linestyle="--", linewidth=0.8)
    axes.text(0.0098, 0.9, "bound: 1 %", ha="right", va="center", fontsize=8)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(FuncFormatter(per_cent))
    axes.set(title="the worst fit of each family")
    figure.supxlabel("inertia above pooled k-means with ten restarts", fontsize=8.5)
    return figure


def groups() -> Any:
    """Draw what groups cost over the number of groups in a cluster."""
    rows = tables("quality.md", "What groups cost")[0]
    counts = np.array([20.0, 40, 80, 200])
    far = {"lognormal", "Pareto", "Cauchy"}
    figure, axes = pyplot.subplots(figsize=(WIDTH, 3.2))
    for row in rows:
        cost = np.maximum([number(each) for each in row[1:]], 0.01)
        style = {"color": ORANGE if row[0] in far else BLUE, "alpha": 0.6}
        axes.plot(counts, cost, marker="o", markersize=3.5, linewidth=1, **style)
        if row[0] in far:
            axes.annotate(row[0], (200, cost[-1]), (4, 0), textcoords="offset points", va="center")
    axes.plot(counts, 30 / counts, "--", color="#333333", linewidth=1.2)
    axes.annotate(
        "rule of thumb: 0.3 K p / N", (40, 0.75), (48, 3.6), arrowprops={"arrowstyle": "-"}
    )
    axes.annotate("ten other kinds", (203, 0.03), (4, 0), textcoords="offset points", va="center")
    axes.set(
        xscale="log", yscale="log", xlim=(18, 480), xlabel="groups for each cluster, N / (K p)"
    )
    axes.set(title="groups of five: inertia lost, by kind of rows")
    axes.xaxis.set_major_locator(FixedLocator(counts))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: ("≤ " if value < 0.02 else "") + f"{value:g} %")
    )
    return figure


def limits() -> Any:
    """Draw what limits cost on rows of several kinds."""
    rows = tables("quality.md", "What limits cost")[0]
    figure, axes = pyplot.subplots(figsize=(WIDTH, 3.4))
    for i, row in enumerate(rows):
        costs = [max(number(row[1]), 0.001), max(number(row[3]), 0.001)]
        axes.plot(costs, [i, i], color="#c9ccd2", linewidth=2, zorder=1)
        for cost, colour in zip(costs, (BLUE, ORANGE), strict=True):
            axes.plot(cost, i, "o", color=colour, markersize=5)
    for p, colour in ((2, BLUE), (5, ORANGE)):
        axes.plot([], [], "o", color=colour, label=f"p = {p}")
    names = [re.sub(r"(?<=.{12}),? (?=K|[0-9]+ col|over)", "\n", row[0], count=1) for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=7.5)
    axes.set(xscale="log", xlabel="inertia lost", title="limits on small clusters")
    axes.xaxis.set_major_locator(FixedLocator([0.001, 0.01, 0.1, 1, 10, 100]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda value, _: ("≤ " if value < 0.002 else "") + per_cent(value))
    )
    axes.tick_params(axis="x", labelrotation=45)
    axes.invert_yaxis()
    axes.legend(loc="upper right")
    return figure


def kernels() -> Any:
    """Draw the time of each piece of work in that of its peer."""
    text = section("speed.md", "Single passes and rounds").split("```")[1]
    lines = [line for line in text.splitlines()[2:] if "absolute" not in line]
    names = [short(re.sub(r" \(.*\)", "", line[:62].strip())) for line in lines]
    ratios = [float(line.split()[-2]) for line in lines]
    figure, axes = pyplot.subplots(figsize=(WIDTH, 4.3))
    kinds = {"hard": BLUE, "30": GREEN, "object": ORANGE, "fuzzy": "#7b55a8"}
    colours = [kinds.get(name.split()[0], GREY) for name in names]
    axes.barh([f"{i} {name}" for i, name in enumerate(names)], ratios, color=colours, height=0.7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.axvline(1, color="#333333", linestyle="--", linewidth=0.8)
    axes.grid(visible=False, axis="y")
    axes.invert_yaxis()
    axes.set(xlim=(0, 1.1))
    figure.supxlabel("time / time of the peer (below 1: faster)", fontsize=8.5)
    return figure


def whole_fits() -> Any:
    """Draw the time of whole fits in that of each peer."""
    rows = tables("speed.md", "Whole fits to convergence")[0]
    figure, axes = pyplot.subplots(figsize=(WIDTH, 0.8 + 0.19 * len(rows)))
    names, of_peer = [], ("lloyd", "elkan", "intelex", "faiss")
    rows_of, kind = "", ""
    for row in rows:
        if row[0]:
            said = row[0].split(", ")
            rows_of = rows_of if said[0] == "the same" else ", ".join(said[:2])
            kind = next((s for s in said if s in ("separated", "overlapping", "uniform")), said[-1])
        names.append(f"{rows_of}, {kind}, {row[1].split()[0]}")
    for i, row in enumerate(rows):
        for cell, colour in zip(row[2:], (BLUE, GREEN, ORANGE, GREY), strict=True):
            ratios = [float(each) for each in re.findall(r"\d*\.\d+", cell)]
            axes.plot(ratios, [i] * len(ratios), "-o", color=colour, markersize=5, alpha=0.8)
    for name, colour in zip(of_peer, (BLUE, GREEN, ORANGE, GREY), strict=True):
        axes.plot([], [], "o", color=colour, label=name)
    axes.set_yticks(range(len(names)), [short(name) for name in names], fontsize=6.5)
    axes.axvline(1, color="#333333", linestyle="--", linewidth=0.8)
    axes.set(xlim=(0, 1.65))
    figure.supxlabel("time / time of the peer (below 1: faster)", fontsize=8.5)
    axes.invert_yaxis()
    figure.legend(loc="outside upper center", ncols=4, handletextpad=0.1)
    return figure


CHARTS: dict[str, Callable[[], Any]] = {
    "quality-papers": papers_sets,
    "quality-fuzzy": fuzzy,
    "quality-families": families,
    "quality-groups": groups,
    "quality-limits": limits,
    "speed-passes": kernels,
    "speed-fits": whole_fits,
}


def main(folder: Path) -> None:
    """Write every chart into a folder."""
    matplotlib.use("Agg")
    with matplotlib.rc_context(STYLE):
        for name, draw in CHARTS.items():
            figure = draw()
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
            pyplot.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
