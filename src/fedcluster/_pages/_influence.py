"""Section of the report on how far each site moves the centres."""

from __future__ import annotations

from typing import Any

from fedcluster._html import Html
from fedcluster._pages._parts import named, paragraphs, section, table
from fedcluster._pages._run import Run

LEAD = (
    "What the centres of the last round would be without each site, by its sums alone. Shifts are "
    "in units of the clusters' spread, the root mean squared distance of rows to their centre. "
    "Then comes by how much the other sites' inertia is higher because of the site, and how many "
    "clusters it has alone. The first site adds most for its share of the rows: if it is far above "
    "the others, it has rows of another kind, or its sums are wrong."
)
HEADER = (
    *("site", "share of the rows", "largest shift", "mean shift"),
    *("inertia of the others", "clusters it has alone"),
)


def influence(run: Run) -> Html:
    """Return how far each site moves the centres, the farthest first."""
    told = run.history.get("influence") if run.history else None
    if not told:
        return Html()
    rows = [
        [
            named(each["site"]),
            _number(each.get("share"), 100, " %"),
            _number(each["largest_shift"]),
            _number(each["mean_shift"]),
            _number(each["inertia_change"], 100, " %", "+"),
            str(each["alone"]),
        ]
        for each in told
    ]
    numbers = table("Influence of each site", HEADER, rows)
    return section("influence", "Influence of the sites", paragraphs([LEAD]), numbers)


def _number(x: Any, factor: float = 1, unit: str = "", sign: str = "") -> str:
    """Return a number as the table shows it; an en dash where it is not known."""
    return "–" if x is None else f"{factor * x:{sign}.3g}{unit}"
