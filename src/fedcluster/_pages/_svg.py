"""Parts of charts as SVG, which needs no script and no library, and prints as it is.

Colours are classes of the style sheet, so that they are others in the dark. A chart has a title
and a description for screen readers; the table beside it has its numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedcluster._html import Html, element

WIDTH = 480.0
"""Units of a chart's width: on a phone about one pixel each."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Scale from values to places in a chart.

    Parameters
    ----------
    low, high : float
        The values at its ends.
    start, end : float
        Their places.
    log : bool
        Whether equal factors have equal lengths.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        """Return the place of a value, to a tenth."""
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
    """Return the smallest of 1, 2, 5, 10, ... that is not below."""
    if not least > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * each for each in (1, 2, 5, 10) if power * each >= least * (1 - 1e-9))


def figure(name: str, about: str, height: float, *drawn: object) -> Html:
    """Return a chart with a title and a description.

    Parameters
    ----------
    name, about : str
        What it is called, and what it shows.
    height : float
        Its height; the width is `WIDTH`.
    *drawn : object
        What is in it.
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


def text(x: float, y: float, said: str, *, anchor: str = "start", **more: object) -> Html:
    """Return a text of a chart."""
    return element("text", said, x=x, y=y, text_anchor=anchor, **more)


def line(x1: float, y1: float, x2: float, y2: float, class_: str = "grid") -> Html:
    """Return a straight line of a chart."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def upright(axis: Axis, bottom: float) -> list[object]:
    """Return the upright lines of a horizontal axis, with their numbers."""
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
    """Return a number in few signs, for an axis.

    Examples
    --------
    >>> [short(x) for x in (0, 0.25, 1250, 2_500_000, 1e-07)]
    ['0', '0.25', '1,250', '2.5 M', '1e-07']
    """
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}" if abs(value) < 1e12 else f"{value:.1e}"
    return f"{value:,.10g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.0e}"
