"""Charts of the pages as SVG, which needs no script and no library, and can be printed.

Colours are classes of the style sheet, so that dark mode can change them. A chart has a title and a
description for screen readers; the table beside it has its numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster.core import Floats
from fedcluster.texts.colours import DEEPEST
from fedcluster.texts.html import Html, element
from fedcluster.texts.untrusted import shortened
from fedcluster.texts.words import called, number

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


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5, 10, ... that is at least a number."""
    if not least > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= least * (1 - 1e-9))


def figure(name: str, about: str, height: float, *drawn: object) -> Html:
    """Return a chart with a title and a description.

    Parameters
    ----------
    name, about : str
        Its title, and what it shows.
    height : float
        Its height; the width is `WIDTH`.
    *drawn : object
        The content.
    """
    return element(
        "svg",
        element("desc", about),
        drawn,
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        role="img",
        aria_label=name,
        class_="chart",
    )


def text(x: float, y: float, words: str, *, anchor: str = "start", **more: object) -> Html:
    """Return a text of a chart."""
    return element("text", words, x=x, y=y, text_anchor=anchor, **more)


def line(x1: float, y1: float, x2: float, y2: float, class_: str = "grid") -> Html:
    """Return a straight line of a chart."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def upright(axis: Axis, bottom: float) -> list[object]:
    """Return the grid lines of a horizontal axis, with their numbers."""
    return [
        part
        for t in axis.ticks(6)
        for part in (
            line(axis.at(t), 4, axis.at(t), bottom),
            text(axis.at(t), bottom + 14, f"{t:g}", anchor="middle", class_="pale"),
        )
    ]


def whole(axis: Axis) -> list[float]:
    """Return the ticks of an axis that are whole numbers."""
    return [tick for tick in axis.ticks(8) if tick == int(tick)]


def short(value: float) -> str:
    """Return a number in few characters, for an axis.

    Examples
    --------
    >>> [short(x) for x in (0, 0.25, 1250, 2_500_000, 1e-07)]
    ['0', '0.25', '1,250', '2.5 M', '1e-07']
    """
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}" if abs(value) < 1e12 else f"{value:.1e}"
    return f"{value:,.10g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.0e}"


COLOURS = 8
"""Number of colours of clusters; more clusters repeat them, and are told apart by numbers."""


def curve(
    name: str,
    about: str,
    xs: Sequence[float],
    ys: Sequence[float],
    *,
    label: str,
    marked: float | None = None,
    log: bool = False,
) -> Html:
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
        return Html()
    height = 190.0
    low, high = min(y for _, y in points), max(y for _, y in points)
    across = Axis(points[0][0], points[-1][0], 62, WIDTH - 14)
    up = Axis(low, high, height - 40, 14, log=log)
    if high == low:
        up = Axis(low - 1, high + 1, height - 40, 14)
    path = "M" + "L".join(f"{across.at(x)} {up.at(y)}" for x, y in points)
    dots = [
        _dot(across.at(x), up.at(y), f"{label} {x:g}: {number(y)}", x == marked, len(points))
        for x, y in points
    ]
    traced = element("path", d=path, class_="line")
    return figure(name, about, height, _frame(across, up, height, label), traced, dots)


def _dot(x: float, y: float, words: str, marked: bool, n: int) -> Html:
    """Return a point of a curve with n points; a marked point is larger."""
    size = 5 if marked else 3 if n < 60 else 1.5
    return element(
        "circle", element("title", words), cx=x, cy=y, r=size, class_="marked" if marked else "dot"
    )


def _frame(across: Axis, up: Axis, height: float, label: str) -> list[Html]:
    """Return the lines and numbers of two axes."""
    return [
        *(line(across.start, up.at(t), across.end, up.at(t)) for t in up.ticks(4)),
        *(text(across.start - 6, up.at(t) + 4, short(t), anchor="end") for t in up.ticks(4)),
        *(text(across.at(t), height - 22, f"{t:g}", anchor="middle") for t in whole(across)),
        text(across.end, height - 4, label, anchor="end", class_="pale"),
    ]


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


def bars(name: str, about: str, lines: Sequence[str], shares: Sequence[Floats]) -> Html:
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
    step, left = 20.0, 130.0
    axis, drawn = Axis(0.0, 1.0, left, WIDTH - 10), []
    for i, (words, own) in enumerate(zip(lines, shares, strict=True)):
        y, ends = step * i + 4, np.concatenate([[0.0], np.cumsum(own)])
        drawn.append(text(left - 6, y + 12, shortened(words, 20), anchor="end"))
        line_name = shortened(words, 80)
        drawn += [
            _part(
                axis.at(ends[j]), axis.at(ends[j + 1]), y, j, f"{line_name}, cluster {j}: {x:.1%}"
            )
            for j, x in enumerate(own.tolist())
            if x > 0
        ]
    return figure(name, about, step * len(lines) + 8, drawn)


def _part(start: float, end: float, y: float, j: int, words: str) -> Html:
    """Return a part of a bar, with the number of its cluster if there is room."""
    wide = round(max(end - start - 0.8, 0.4), 1)
    number = text(round((start + end) / 2, 1), y + 12, str(j), anchor="middle")
    return element(
        "g",
        element("title", words),
        element("rect", x=start, y=y, width=wide, height=16),
        number if wide > 16 else None,
        class_=f"cluster c{j % COLOURS}",
        data_cluster=j,
    )


def ranges(
    name: str,
    about: str,
    rows: Sequence[tuple[int, float, float, float]],
    label: str,
    ends: tuple[float, float],
    limits: Sequence[float] = (),
    names: Sequence[str] = (),
) -> Html:
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
    axis, bottom = Axis(*ends, 22, WIDTH - 22), height - 34
    drawn: list[object] = upright(axis, bottom)
    drawn += [line(axis.at(x), 4, axis.at(x), bottom, "limit") for x in limits]
    for i, (j, low, middle, high) in enumerate(rows):
        if all(map(math.isfinite, (low, middle, high))):
            y = 18.0 + 26 * i
            reach = line(axis.at(low), y, axis.at(high), y, f"reach cluster c{j % COLOURS}")
            said = called(j, names)
            words = f"{said}: {middle:.4g}, from {low:.4g} to {high:.4g}"
            dot = numbered_dot(j, axis.at(middle), y, words)
            drawn.append(element("g", reach, dot, data_cluster=j))
    drawn.append(text(WIDTH - 10, height - 4, label, anchor="end", class_="pale"))
    return figure(name, about, height, drawn)


def numbered_dot(j: int, x: float, y: float, words: str) -> Html:
    """Return the dot of a cluster with its number; the words are its tooltip."""
    return element(
        "g",
        element("title", words),
        element("circle", cx=x, cy=y, r=8),
        text(x, y + 4, str(j), anchor="middle"),
        class_=f"cluster c{j % COLOURS}",
        data_cluster=j,
    )


def plane(
    name: str,
    about: str,
    places: Floats,
    sizes: Floats,
    rings: Sequence[Floats | None],
    along: Sequence[str] = ("", ""),
    names: Sequence[str] = (),
) -> Html:
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
    drawn = [
        element("g", _ellipse(r * scale**2, x, y), class_=f"cluster c{j % COLOURS}", data_cluster=j)
        for j, (r, (x, y)) in enumerate(zip(rings, true.tolist(), strict=True))
        if r is not None
    ]
    for j, (x, y) in enumerate(at.round(1).tolist()):
        x0, y0 = true[j].round(1).tolist()
        drawn.append(
            element(
                "g",
                element("title", f"{called(j, names)}: {share[j]:.1%} of the rows"),
                line(x0, y0, x, y, "lead") if math.hypot(x - x0, y - y0) > 1 else None,
                element("circle", cx=x, cy=y, r=round(float(radius[j]), 1)),
                text(x, y + 4.5, str(j), anchor="middle"),
                class_=f"cluster c{j % COLOURS}",
                data_cluster=j,
            )
        )
    axes = [
        text(10, 14, f"↑ {along[1]}", class_="pale") if along[1] else None,
        text(WIDTH - 10, inner + TOP + 16, f"{along[0]} →", anchor="end", class_="pale")
        if along[0]
        else None,
    ]
    return figure(name, about, round(inner + TOP + 24, 1), drawn, axes)


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


def _ellipse(covariance: Floats, x: float, y: float) -> Html:
    """Return the ellipse of one standard deviation around a point; y points down."""
    values, vectors = np.linalg.eigh(covariance)
    wide, narrow = np.sqrt(np.maximum(values[::-1], 0.0))
    turned = -math.degrees(math.atan2(vectors[1, 1], vectors[0, 1]))
    place = f"rotate({turned:.1f} {x:.1f} {y:.1f})"
    rounded = {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "rx": f"{wide:.1f}", "ry": f"{narrow:.1f}"}
    return element("ellipse", **rounded, transform=place, class_="ring")


def presence(name: str, about: str, sites: Sequence[str], there: Sequence[Sequence[str]]) -> Html:
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
    height, left = 14.0 * len(sites) + 30, 130.0
    width = (WIDTH - left - 10) / max(n, 1)
    drawn: list[object] = []
    for i, (site, marks) in enumerate(zip(sites, there, strict=True)):
        y = 4.0 + 14 * i
        kinds = (("yes", "answered"), ("missing", "missed"))
        drawn.append(
            element(
                "g",
                text(left - 6, y + 9, shortened(site, 20), anchor="end"),
                [_strip(marks, kind, class_, left, y, width) for kind, class_ in kinds],
                data_site=i,
            )
        )
    axis = Axis(1, max(n, 2), left + width / 2, WIDTH - 10 - width / 2)
    drawn += [text(axis.at(t), height - 14, f"{t:g}", anchor="middle") for t in whole(axis)]
    drawn.append(text(WIDTH - 10, height - 2, "round", anchor="end", class_="pale"))
    return figure(name, about, height, drawn)


def _strip(
    marks: Sequence[str], kind: str, class_: str, left: float, y: float, width: float
) -> Html | None:
    """Return the rounds of one kind as one path, with neighbours joined."""
    runs: list[tuple[int, int]] = []
    for r, mark in enumerate(marks):
        if mark == kind:
            if runs and runs[-1][1] == r:
                runs[-1] = (runs[-1][0], r + 1)
            else:
                runs.append((r, r + 1))
    if not runs:
        return None
    path = "".join(
        f"M{left + a * width:.1f} {y}h{max((b - a) * width - 0.5, 0.5):.1f}v11"
        f"h-{max((b - a) * width - 0.5, 0.5):.1f}z"
        for a, b in runs
    )
    return element("path", d=path, class_=class_)
