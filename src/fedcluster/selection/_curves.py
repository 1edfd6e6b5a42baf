"""Picture of the curves of the indices over k."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcluster.metrics._indices import CHOOSING, JUDGES

if TYPE_CHECKING:
    from fedcluster.selection._verdict import Selection

INK, PALE_INK, LINE, CHOSEN = "#1d2733", "#6b7683", "#3b6fb6", "#e0853a"
WRAPPED = 115
"""Signs in a line of the reason."""


def draw(selection: Selection, path: Path) -> None:
    """Draw the curves of the judges, the rule and two more, with what each says, into a PNG.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    shown = dict.fromkeys([*JUDGES, "davies-bouldin", selection.rule.split(",")[0], "inertia"])
    indices = [index for index in shown if index in selection.says]
    reason = textwrap.wrap(selection.reason, WRAPPED)
    lines = -(-len(indices) // 2)
    head, width, height = 0.85 + 0.2 * len(reason), 8.4, 0.85 + 0.2 * len(reason) + 2.0 * lines
    figure = Figure(figsize=(width, height), dpi=160, facecolor="white")
    grid = figure.add_gridspec(
        lines, 2, left=0.085, right=0.98, top=1 - head / height, bottom=0.45 / height,
        wspace=0.2, hspace=0.5,
    )  # fmt: skip
    for i, index in enumerate(indices):
        axes = figure.add_subplot(grid[i // 2, i % 2])
        _draw_curve(axes, selection, index)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("number of clusters k" if i >= len(indices) - 2 else "")
        axes.xaxis.label.set(color=PALE_INK, fontsize=8.5)
    n = selection.n_clusters
    title = f"{n} cluster{'' if n == 1 else 's'}"
    figure.text(0.02, 1 - 0.32 / height, title, fontsize=13, fontweight="bold", color=INK)
    for i, text in enumerate(reason):
        figure.text(0.02, 1 - (0.56 + 0.2 * i) / height, text, fontsize=9, color=PALE_INK)
    figure.savefig(path, format="png", metadata={"Software": None})


def _draw_curve(axes: Any, selection: Selection, index: str) -> None:
    """Draw one index over k: a line, what it says as a full dot, the verdict as a faint line."""
    ks = np.array(sorted(selection.table))
    values = np.array([selection.table[k].get(index, np.nan) for k in ks])
    values = np.where(np.isfinite(values), values, np.nan)
    says = selection.says[index]
    axes.axvline(selection.n_clusters, color=CHOSEN, linewidth=5, alpha=0.22, zorder=0)
    if index == "gap":
        errors = [selection.table[k]["gap-error"] for k in ks]
        axes.errorbar(ks, values, errors, fmt="none", ecolor=PALE_INK, elinewidth=0.9, capsize=2)
    axes.plot(ks, values, "-o", color=LINE, linewidth=1.3, markersize=3.2, markerfacecolor="white")
    axes.plot([says], values[ks == says], "o", color=CHOSEN, markersize=6.5)
    axes.set_xlim(ks[0] - 0.5, ks[-1] + 0.5)
    name = CHOOSING[index].label.removeprefix("the ")
    axes.set_title(name[:1].upper() + name[1:], fontsize=9, color=INK, loc="left", pad=4)
    axes.set_title(f"says {says}", fontsize=9, color=CHOSEN, loc="right", pad=4)
    axes.tick_params(labelsize=8, colors=PALE_INK, length=2.5)
    axes.ticklabel_format(axis="y", useOffset=False, scilimits=(-3, 7))
    axes.yaxis.get_offset_text().set(fontsize=7.5, color=PALE_INK)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#d9dde3")
