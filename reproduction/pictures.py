"""Pictures: ours beside the published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from PIL import Image

OURS, PUBLISHED, RECIPE, POOLED = "#0072b2", "#999999", "#d55e00", "#009e73"
RIVAL, RIVAL_PUBLISHED = "#cc79a7", "#d9c3cf"
"""Colours that the colour-blind can tell apart (Okabe & Ito)."""

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
    figure.legend(handles, labels, title=title, fontsize="x-small", loc="outside right upper")


def save(figure: Figure, folder: Path, name: str) -> str:
    """Write NAME.png, in 64 colours: small enough to keep; returns the file's name."""
    drawn = BytesIO()
    figure.savefig(drawn, dpi=100)
    Image.open(drawn).convert("RGB").quantize(64).save(folder / f"{name}.png", optimize=True)
    return f"{name}.png"


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
    ax.grid(axis="y", alpha=0.3)
