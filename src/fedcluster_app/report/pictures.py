"""Pictures of centres and of clusters; they need matplotlib, extra ``plot``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.core import Floats
from fedcluster.texts.colours import COLOURS, INK, PALE_INK
from fedcluster.texts.words import counted
from fedcluster_app.report.records import SiteRecord


def pictured(what: str, path: Path, draw: Callable[[Path], None]) -> list[str]:
    """Write a picture; return the name of its file, or only a warning without matplotlib.

    Parameters
    ----------
    what : str
        What the file shows, such as "picture of the centres".
    path : Path
        The file.
    draw : callable taking a Path
        Writes it.
    """
    try:
        draw(path)
    except ImportError:
        warnings.warn(
            f'no {what} without matplotlib: pip install "fedcluster[plot]"',
            stacklevel=3,
        )
        return []
    return [path.name]


def picture(
    path: Path,
    centers: Floats,
    sites: Sequence[SiteRecord],
    *,
    shape: tuple[int, int],
    title: str,
    subtitle: str,
    captions: Mapping[str, str],
) -> None:
    """Draw each centre as an image, with the sites that have rows of its cluster below.

    Parameters
    ----------
    path : Path
        The file to write, a PNG.
    centers : ndarray of shape (k, d)
        The centres.
    sites : sequence of SiteRecord
        For the bars under the centres.
    shape : (int, int)
        Numbers of lines and columns of an image, with product d.
    title, subtitle : str
        The headings.
    captions : mapping of str to str
        The legend's text for each site.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    from matplotlib.figure import Figure

    k, columns = len(centers), min(len(centers), 5)
    lines = -(-k // columns)
    width, height = 1.75 * columns + 0.5, 2.05 * lines + 1.9
    figure = Figure(figsize=(width, height), dpi=160, facecolor="white")
    top, bottom = 1 - 1.0 / height, 1.0 / height
    grid = figure.add_gridspec(
        lines, columns, left=0.03, right=0.97, top=top, bottom=bottom, wspace=0.14, hspace=0.3
    )
    grey = (centers.min(), centers.max())
    for j in range(k):
        axes = figure.add_subplot(grid[j // columns, j % columns])
        _draw_center(axes, centers[j].reshape(shape), grey, j, [s.clusters[j] for s in sites])
    figure.text(0.03, 1 - 0.36 / height, title, fontsize=13, fontweight="bold", color=INK)
    figure.text(0.03, 1 - 0.64 / height, subtitle, fontsize=9.5, color=PALE_INK)
    _draw_legend(figure, sites, captions, bottom=0.28 / height)
    figure.savefig(path, format="png", metadata={"Software": None})


def _draw_center(
    axes: Any, image: Floats, grey: tuple[float, float], j: int, counts: Sequence[int]
) -> None:
    """Draw one centre, its number, and a bar with the share of each site."""
    framed = np.pad(image, 1, constant_values=grey[0])
    axes.imshow(framed, cmap="Greys", vmin=grey[0], vmax=grey[1], interpolation="bicubic")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color("#d9dde3")
    axes.set_title(f"cluster {j}", fontsize=8.5, color=INK, loc="left", pad=3)
    axes.set_title(counted(sum(counts), "row"), fontsize=8.5, color=PALE_INK, loc="right", pad=3)
    bar = axes.inset_axes((0, -0.1, 1, 0.055))
    bar.axis("off")
    bar.set(xlim=(0, max(1, sum(counts))), ylim=(-0.5, 0.5))
    start = 0
    for i, count in enumerate(counts):
        bar.barh(0, count, left=start, height=1, color=COLOURS[i % len(COLOURS)], linewidth=0)
        start += count


def _draw_legend(
    figure: Any, sites: Sequence[SiteRecord], captions: Mapping[str, str], bottom: float
) -> None:
    """Draw the sites' colours, names and captions along the lower edge."""
    for i, site in enumerate(sites):
        x = 0.03 + 0.965 * i / len(sites)
        figure.text(x, bottom, "■", fontsize=11, color=COLOURS[i % len(COLOURS)], va="center")
        figure.text(x + 0.022, bottom, site.name, fontsize=9.5, color=INK, va="center")
        caption = captions.get(site.name, "")
        figure.text(x + 0.022, bottom - 0.028, caption, fontsize=8, color=PALE_INK, va="center")
