"""Pictures of centres and of clusters; they need matplotlib, extra ``plot``."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.core import Floats
from fedcluster.report.records import SiteRecord
from fedcluster.texts.colours import COLOURS, INK, PALE_INK
from fedcluster.texts.words import counted


def pictured(
    what: str, path: Path, draw: Callable[[Path], None], needs: str = "matplotlib", of: str = "plot"
) -> list[str]:
    """Write a file by an optional library; return its name, or only a warning without the library.

    Parameters
    ----------
    what : str
        What the file shows, such as "picture of the centres".
    path : Path
        The file.
    draw : callable taking a Path
        Writes it.
    needs, of : str
        The library, and the extra that installs it.
    """
    try:
        draw(path)
    except ImportError:
        warnings.warn(
            f'no {what} without {needs}: pip install "fedcluster[{of}]"',
            stacklevel=3,
        )
        return []
    return [path.name]


SLIDE = 40 / 3, 7.5
"""Width and height of a slide in inches."""


def slide(title: str, lines: Sequence[str], cards: Sequence[Sequence[str]]) -> Any:
    """Return a figure of the clusters in the size of a slide.

    Parameters
    ----------
    title : str
        The heading.
    lines : (str, str)
        The line below it, and the one at the foot.
    cards : sequence of sequence of str
        For each cluster its label, its size, and what sets it apart.

    Raises
    ------
    ImportError
        Without matplotlib.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=SLIDE, dpi=144, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 1), ylim=(0, 1))
    axes.axis("off")
    figure.text(0.04, 0.9, _wrapped(title, 54, 1), fontsize=27, fontweight="bold", color=INK)
    figure.text(0.04, 0.865, _wrapped(lines[0], 115, 2), fontsize=14, color=PALE_INK, va="top")
    figure.text(0.04, 0.04, lines[1], fontsize=11, color=PALE_INK)
    columns = min(len(cards), 4) if len(cards) != 6 else 3
    rows = -(-len(cards) // max(columns, 1))
    wide, high = 0.92 / max(columns, 1), min(0.68 / max(rows, 1), 0.42)
    size = ((18, 15), (15, 12), (12, 9))[min(rows, 3) - 1]
    width = int(1300 * wide / size[0])
    for j, (name, share, *facts) in enumerate(cards):
        x, top = 0.04 + wide * (j % columns), 0.78 - high * (j // columns)
        sides, ends = (x, x + wide - 0.01), (top - high + 0.016, top - 0.006)
        axes.fill(
            (*sides, *sides[::-1]), np.repeat(ends, 2), facecolor="#f5f7f9", linewidth=2,
            edgecolor=COLOURS[j % len(COLOURS)],
        )  # fmt: skip
        label = _wrapped(name, width, 2)
        told = "\n".join(_wrapped(each, int(width * 1.3), 2) for each in facts[: 5 - rows])
        below = top - 0.03 - size[0] * 1.35 / 72 / SLIDE[1] * (label.count("\n") + 1)
        ink: dict[str, Any] = {"va": "top", "color": INK}
        figure.text(x + 0.012, top - 0.02, label, fontsize=size[0], fontweight="bold", **ink)
        figure.text(x + 0.012, below, f"{share}\n{told}", fontsize=size[1], linespacing=1.3, **ink)
    return figure


def _wrapped(words: str, width: int, most: int) -> str:
    """Return words in at most some lines, as plain text of a picture."""
    told = textwrap.wrap(words, width, max_lines=most, placeholder=" …")
    return "\n".join(told).replace("$", r"\$")


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
