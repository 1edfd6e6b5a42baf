"""Charts of the pages as SVG, which needs no script and no library, and can be printed.

Colours are classes of the style sheet, so that dark mode can change them. A chart has a title and a
description for screen readers; the table beside it has its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from fedcluster.core import Floats
from fedcluster.texts import DEEPEST, called, number
from fedcluster_app.report.html import TEMPLATE

WIDTH = 480.0
"""Width of a chart in units, each about one pixel on a phone."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Scale from values to positions in a chart.

    Parameters
    ----------
    low, high : float
        The values at its ends.
    start, end : float
        Their positions.
    log : bool
        Whether equal factors have equal lengths.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the position of a value, to a tenth."""
        low, high, x = (
            (math.log10(each) if self.log else each) for each in (self.low, self.high, value)
        )
        share = (x - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, most: int = 5) -> list[float]:
        """Return round values along the axis.

        Examples
        --------
        >>> Axis(0.0, 12.0, 0.0, 1.0).ticks(), Axis(2e-4, 3.0, 0.0, 1.0, log=True).ticks()
        ([0.0, 5.0, 10.0], [0.001, 0.01, 0.1, 1.0])
        """
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            powers = range(first, last + 1, max(1, -(-(last - first) // most)))
            return [10.0**power for power in powers]
        step = _round_step((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(i * step, 12) for i in range(first, last + 1)]

    def whole(self) -> list[float]:
        """Return the ticks that are whole numbers."""
        return [tick for tick in self.ticks(8) if tick == int(tick)]

    @staticmethod
    def short(value: float) -> str:
        """Return a number in few characters.

        Examples
        --------
        >>> [Axis.short(x) for x in (0, 0.25, 1250, 2_500_000, 1e-07)]
        ['0', '0.25', '1,250', '2.5 M', '1e-07']
        """
        for size, unit in ((1e9, "G"), (1e6, "M")):
            if abs(value) >= size:
                return f"{value / size:.3g} {unit}" if abs(value) < 1e12 else f"{value:.1e}"
        return f"{value:,.10g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.0e}"


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5, 10, ... that is at least a number."""
    if not least > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= least * (1 - 1e-9))


_svg: Any = TEMPLATE.get_template("charts.html").module


def curve(
    name: str,
    about: str,
    xs: Sequence[float],
    ys: Sequence[float],
    *,
    label: str,
    marked: float | None = None,
    log: bool = False,
) -> Markup:
    """Return a line chart of one series.

    Parameters
    ----------
    name, about : str
        Its title, and what it shows.
    xs, ys : sequence of float
        The points; those that are not finite, or not above 0 on a logarithmic axis, are left out.
    label : str
        The label of the horizontal axis.
    marked : float, optional
        The x of the highlighted point.
    log : bool, default=False
        Whether the vertical axis is logarithmic.
    """
    points = [
        (x, y)
        for x, y in zip(xs, ys, strict=True)
        if math.isfinite(y) and (y > 0 or not log) and math.isfinite(x)
    ]
    if len(points) < 2:
        return Markup("")
    height = 190.0
    low, high = min(y for _, y in points), max(y for _, y in points)
    across = Axis(points[0][0], points[-1][0], 62, WIDTH - 14)
    up = Axis(low, high, height - 40, 14, log=log)
    if high == low:
        up = Axis(low - 1, high + 1, height - 40, 14)
    large, small = (5, "marked"), (3 if len(points) < 60 else 1.5, "dot")
    dots = [
        (across.at(x), up.at(y), f"{label} {x:g}: {number(y)}", *(large if x == marked else small))
        for x, y in points
    ]
    return Markup(_svg.curve(name, about, height, across, up, label, dots))


def survival(
    name: str, about: str, clusters: Sequence[tuple[int, Mapping[str, Any]]], label: str
) -> Markup:
    """Return Kaplan-Meier curves of clusters, with their numbers at risk below.

    ``clusters`` are numbers of clusters and what a comparison of outcomes holds of each.
    """
    height = 236.0 + 18 * len(clusters)
    # the last cell may be open
    times = [t for t in clusters[0][1]["time"] if t is not None]
    across = Axis(0.0, max(times, default=1.0), 48, WIDTH - 24)
    up = Axis(0.0, 1.0, 190, 10)
    ticks = across.ticks()
    lines = []
    for j, each in clusters:
        steps = zip(times, each["surviving"], strict=False)
        path = "".join(f"H{across.at(t)}V{up.at(s)}" for t, s in steps)
        at_risk = np.append(each["at_risk"], 0.0)[np.searchsorted(times, ticks, "right")]
        end = up.at(each["surviving"][max(len(times), 1) - 1])
        lines.append((j, f"M{across.at(0)} {up.at(1)}{path}", end, [f"{n:,.0f}" for n in at_risk]))
    return Markup(_svg.survival(name, about, height, across, up, ticks, label, lines))


def shade(apart: float) -> str:
    """Return the class of a cell's colour: h-5 to below 0, above 0 to h5.

    Examples
    --------
    >>> shade(0.1), shade(-9.0), shade(1.0)
    ('h0', 'h-5', 'h3')
    """
    if not math.isfinite(apart):
        return "h0"
    bounded = max(-1.0, min(1.0, apart / DEEPEST))
    return f"h{math.floor(abs(bounded) * 5 + 0.5) * (1 if bounded >= 0 else -1)}"


def bars(name: str, about: str, lines: Sequence[str], shares: Sequence[Floats]) -> Markup:
    """Return a chart with a bar for each line, divided by clusters in their colours.

    Parameters
    ----------
    name, about : str
        Its title, and what it shows.
    lines : sequence of str
        The names of the bars.
    shares : sequence of ndarray of shape (k,)
        The shares of each bar, with a sum of at most 1.
    """
    axis, drawn = Axis(0.0, 1.0, 130.0, WIDTH - 10), []
    for words, own in zip(lines, shares, strict=True):
        ends = np.concatenate([[0.0], np.cumsum(own)])
        places = [(j, axis.at(ends[j]), axis.at(ends[j + 1])) for j in range(len(own))]
        drawn.append((words, [(*at, f"{own[at[0]]:.1%}") for at in places if own[at[0]] > 0]))
    return Markup(_svg.bars(name, about, drawn))


def ranges(
    name: str,
    about: str,
    rows: Sequence[tuple[int, float, float, float]],
    label: str,
    ends: tuple[float, float],
    limits: Sequence[float] = (),
    names: Sequence[str] = (),
) -> Markup:
    """Return a chart with a line for each cluster from a low to a high value, and a dot between.

    Parameters
    ----------
    name, about : str
        Its title, and what it shows.
    rows : sequence of (int, float, float, float)
        For each cluster, its number, the low value, that of the dot and the high one. Values that
        are not finite are left out.
    label : str
        The label of the horizontal axis.
    ends : (float, float)
        The values at the ends of the axis.
    limits : sequence of float
        Values with a dashed line.
    names : sequence of str
        The names of all clusters.
    """
    height = 44.0 + 26 * len(rows)
    lines = [
        (
            18.0 + 26 * i,
            *row,
            f"{called(row[0], names)}: {row[2]:.4g}, from {row[1]:.4g} to {row[3]:.4g}",
        )
        for i, row in enumerate(rows)
        if all(map(math.isfinite, row[1:]))
    ]
    return Markup(
        _svg.ranges(name, about, height, Axis(*ends, 22, WIDTH - 22), lines, label, limits)
    )


def plane(
    name: str,
    about: str,
    places: Floats,
    sizes: Floats,
    rings: Sequence[Floats | None],
    along: Sequence[str] = ("", ""),
    names: Sequence[str] = (),
) -> Markup:
    """Return a chart of the centres in a plane: discs with areas in proportion to size.

    Parameters
    ----------
    name, about : str
        Its title, and what it shows.
    places : ndarray of shape (k, 2)
        The position of each centre, with both axes in the same units.
    sizes : ndarray of shape (k,)
        The number of rows of each cluster.
    rings : sequence of ndarray of shape (2, 2) or None
        The covariance of each cluster in the plane, if known.
    along : (str, str)
        The labels of the horizontal and the vertical axis.
    names : sequence of str
        The names of the clusters.
    """
    spread = np.array([np.zeros(2) if r is None else np.sqrt(np.diag(r)) for r in rings])
    low, high = (places - spread).min(axis=0), (places + spread).max(axis=0)
    middle, reach = (low + high) / 2, max(float((high - low).max()) / 2, 1e-12) * 1.15
    inner = min(WIDTH, max(200.0, WIDTH * float(high[1] - low[1]) * 1.3 / (2 * reach)))
    scale = (WIDTH / 2 - 24) / reach
    true = (places - middle) * scale * [1, -1] + [WIDTH / 2, inner / 2 + TOP]
    share = sizes / max(float(sizes.sum()), 1e-300)
    radius = 7.0 + 20 * np.sqrt(sizes / max(float(sizes.max()), 1e-300))
    radius *= min(1.0, math.sqrt(0.3 * WIDTH * inner / float(math.pi * (radius**2).sum())))
    radius = np.maximum(radius, 7.0)
    at = _parted(true, radius, (WIDTH, inner + TOP))
    ellipses = [
        (j, *_ellipse(r * scale**2, x, y))
        for j, (r, (x, y)) in enumerate(zip(rings, true.tolist(), strict=True))
        if r is not None
    ]
    discs = []
    for j, (x, y) in enumerate(at.round(1).tolist()):
        place = true[j].round(1).tolist()
        moved = math.hypot(x - place[0], y - place[1]) > 1
        words = f"{called(j, names)}: {share[j]:.1%} of the rows"
        discs.append((j, x, y, round(float(radius[j]), 1), place if moved else None, words))
    height = round(inner + TOP + 24, 1)
    return Markup(_svg.plane(name, about, height, ellipses, discs, along))


TOP = 20.0
"""Height above a map."""


def _parted(true: Floats, radius: Floats, size: tuple[float, float]) -> Floats:
    """Return positions near the true ones at which no discs overlap, (k, 2).

    Two overlapping discs each move apart by half of the overlap, repeatedly.
    """
    at = true.copy()
    at += 1e-3 * np.stack([np.cos(np.arange(len(at))), np.sin(np.arange(len(at)))], axis=1)
    least = radius[:, None] + radius + 1.0
    for _ in range(500):
        between = at[:, None] - at
        far = np.maximum(np.sqrt((between**2).sum(axis=2)), 1e-9)
        short = np.maximum(least - far, 0.0)
        np.fill_diagonal(short, 0.0)
        if not short.max() > 0.1:
            break
        at += (between / far[:, :, None] * short[:, :, None] / 2).sum(axis=1) * 0.6
        at[:, 0] = np.clip(at[:, 0], radius + 1, size[0] - radius - 1)
        at[:, 1] = np.clip(at[:, 1], TOP + radius, size[1] - radius)
    return at


def _ellipse(covariance: Floats, x: float, y: float) -> Sequence[str]:
    """Return the ellipse of one standard deviation around a point: x, y, two radii and an angle.

    y points down.
    """
    values, vectors = np.linalg.eigh(covariance)
    wide, narrow = np.sqrt(np.maximum(values[::-1], 0.0))
    turned = -math.degrees(math.atan2(vectors[1, 1], vectors[0, 1]))
    return [f"{each:.1f}" for each in (x, y, wide, narrow, turned)]


def presence(name: str, about: str, sites: Sequence[str], there: Sequence[Sequence[str]]) -> Markup:
    """Return a chart with a line for each site, and marks for rounds answered or missed.

    Parameters
    ----------
    name, about : str
        Its title, and what it shows.
    sites : sequence of str
        Their names.
    there : sequence of sequence of str
        For each site and round "yes", "missing", or "" if the site was not asked.
    """
    n = max(map(len, there), default=0)
    left = 130.0
    width = (WIDTH - left - 10) / max(n, 1)
    strips = [
        (site, *(_strip(marks, kind, left, 4.0 + 14 * i, width) for kind in ("yes", "missing")))
        for i, (site, marks) in enumerate(zip(sites, there, strict=True))
    ]
    axis = Axis(1, max(n, 2), left + width / 2, WIDTH - 10 - width / 2)
    return Markup(_svg.presence(name, about, axis, strips))


def _strip(marks: Sequence[str], kind: str, left: float, y: float, width: float) -> str:
    """Return the path of the rounds of one kind, with neighbours joined."""
    runs: list[tuple[int, int]] = []
    for r, mark in enumerate(marks):
        if mark == kind:
            if runs and runs[-1][1] == r:
                runs[-1] = (runs[-1][0], r + 1)
            else:
                runs.append((r, r + 1))
    return "".join(
        f"M{left + a * width:.1f} {y}h{max((b - a) * width - 0.5, 0.5):.1f}v11"
        f"h-{max((b - a) * width - 0.5, 0.5):.1f}z"
        for a, b in runs
    )
