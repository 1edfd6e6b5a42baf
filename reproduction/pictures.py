"""Pictures: ours beside the published, as vectors, in the style of papers.mplstyle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

STYLE = Path(__file__).with_name("papers.mplstyle")
"""How all figures look; `reproduction.results.reproduce` draws in it, and in no other place."""

OURS, PUBLISHED, RECIPE, POOLED = "#0072b2", "#999999", "#d55e00", "#009e73"
RIVAL, RIVAL_PUBLISHED = "#cc79a7", "#d9c3cf"
"""Colours that the colour-blind can tell apart (Okabe & Ito)."""

CLUSTERS = [(colour, marker) for marker in "o^sx" for colour in (OURS, RECIPE, POOLED, RIVAL)]
"""Sixteen marks: no two clusters have both the colour and the shape of one another."""

MOST_POINTS = 4000
"""If a figure has as many, its points are drawn as pixels inside the vectors."""

FEW_POINTS = 100
"""An artist of so few is a mark, such as a centre or one of a legend, and remains vectors."""

Box = Mapping[str, float]


def panels(
    columns: int = 1, rows: int = 1, width: float = 4.0, height: float = 3.2
) -> tuple[Figure, NDArray[np.object_]]:
    """A figure with axes, (rows, columns)."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def legend(figure: Figure, ax: Axes, title: str = "") -> None:
    """One legend for all panels, beside them, from the labels of one."""
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(handles, labels, title=title, loc="outside right upper")


def clusters(ax: Axes, X: NDArray[np.floating], labels: NDArray[np.integer]) -> None:
    """Rows on a plane, each cluster with a mark of its own."""
    for label, (colour, marker) in zip(np.unique(labels), cycle(CLUSTERS), strict=False):
        ax.plot(*X[labels == label].T, marker, color=colour, ms=2, mew=0.5, alpha=0.8)
    ax.set_aspect("equal")


def save(figure: Figure, folder: Path, name: str) -> str:
    """Write NAME.svg, the same file from the same runs; returns the file's name."""
    points = figure.findobj(lambda artist: _n_points(artist) > FEW_POINTS)
    crowded = sum(map(_n_points, points)) >= MOST_POINTS
    for artist in points:
        artist.set_rasterized(crowded)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    return f"{name}.svg"


def _n_points(artist: Artist) -> int:
    """How many points an artist draws without lines between them."""
    if isinstance(artist, PathCollection):
        return len(np.asarray(artist.get_offsets()))
    if isinstance(artist, Line2D) and artist.get_linestyle() == "None":
        return len(np.asarray(artist.get_xdata()))
    return 0


def box_of(sample: ArrayLike) -> Box:
    """The box of a sample, whiskers as matplotlib's: the last run within 1.5 of its length."""
    runs = np.asarray(sample, float)
    q1, med, q3 = np.percentile(runs, [25, 50, 75])
    inside = runs[(runs >= q1 - 1.5 * (q3 - q1)) & (runs <= q3 + 1.5 * (q3 - q1))]
    return {"q1": q1, "med": med, "q3": q3, "whislo": inside.min(), "whishi": inside.max()}


def published_box(median: float, q25: float, q75: float) -> Box:
    """A published box; its whiskers are not drawn."""
    return {"q1": q25, "med": median, "q3": q75, "whislo": q25, "whishi": q75}


def boxes(ax: Axes, drawn: Mapping[str, tuple[str, Sequence[Box | None]]]) -> None:
    """Groups of boxes at the places 0, 1, ... of the x axis; by label: colour, a box a place."""
    width = 0.8 / len(drawn)
    for i, (label, (colour, given)) in enumerate(drawn.items()):
        there = {place: dict(box) for place, box in enumerate(given) if box is not None}
        ax.bxp(
            list(there.values()),
            positions=[place - 0.4 + (i + 0.5) * width for place in there],
            widths=0.8 * width,
            showfliers=False,
            patch_artist=True,
            boxprops={"facecolor": colour, "edgecolor": colour, "alpha": 0.5},
            medianprops={"color": "black"},
            whiskerprops={"color": colour},
            capprops={"color": colour},
            manage_ticks=False,
        )
        ax.plot([], [], "s", color=colour, alpha=0.6, label=label)


def places(ax: Axes, names: Sequence[object], axis: str = "") -> None:
    """Name the places 0, 1, ... of the x axis."""
    ax.set_xticks(range(len(names)), [str(name) for name in names])
    ax.set_xlim(-0.6, len(names) - 0.4)
    ax.set_xlabel(axis)
    ax.grid(visible=False, axis="x")
