"""What happened, in tables as wide as a screen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedcluster.core import Floats
from fedcluster.preprocessing import Category, NumericColumn, Preprocessor
from fedcluster.report._records import Comparison, SiteRecord

MOST_SITES = 20
"""Sites that a table shows; the others come as one line."""

GAP = 2
"""Blanks between two columns."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table to show: texts, the first column left, the others right.

    Parameters
    ----------
    title : str
    header : tuple of str
    rows : tuple of tuple of str
    total : tuple of str, optional
        A last line that stands out.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    total: tuple[str, ...] = ()


def number(x: float) -> str:
    """A number to six significant digits, with commas.

    Examples
    --------
    >>> number(1165165.3), number(78.851441), number(4.0)
    ('1,165,165', '78.8514', '4')
    """
    if not math.isfinite(x) or x == 0 or not 1e-4 <= abs(x) < 1e15:
        return f"{x:g}"
    digits = max(0, 5 - math.floor(math.log10(abs(x))))
    text = f"{x:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def cluster_table(sites: Sequence[SiteRecord], width: int, elsewhere: str) -> Table:
    """Rows by site and cluster, and numbers sent, for a screen of so many columns.

    What does not fit is summed up in one line or column, with a hint where to find it.
    """
    shown, rest = list(sites), []
    if len(sites) > MOST_SITES + 1:
        shown, rest = list(sites[:MOST_SITES]), list(sites[MOST_SITES:])
    lines = [_line(_short(site.name), [site]) for site in shown]
    if rest:
        lines.append(_line(f"… {len(rest)} more, see {elsewhere}", rest))
    total = _line("all", sites)
    k = len(total.clusters)
    kept = _fitting(total, max(len(line.name) for line in [*lines, total]), width)
    title = "Rows by site and cluster"
    if kept < k:
        title += f" (clusters {kept} to {k - 1} together, see {elsewhere})"
    others = (f"{kept}…{k - 1}",) if kept < k else ()
    sent = ("numbers sent",) if total.sent else ()
    header = ("site", *map(str, range(kept)), *others, "rows", *sent)
    return Table(
        title,
        header,
        tuple(line.cells(kept, bool(total.sent)) for line in lines),
        total.cells(kept, bool(total.sent)) if len(sites) > 1 else (),
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the table of clusters, of one or several sites."""

    name: str
    clusters: tuple[int, ...]
    rows: int
    sent: int

    def cells(self, kept: int, with_sent: bool) -> tuple[str, ...]:
        """Its texts, with the first clusters one by one and the others together."""
        counts = [*self.clusters[:kept]]
        if kept < len(self.clusters):
            counts.append(sum(self.clusters[kept:]))
        counts += [self.rows, *([self.sent] if with_sent else [])]
        return (self.name, *(f"{count:,}" for count in counts))


def _line(name: str, sites: Sequence[SiteRecord]) -> _Line:
    clusters = tuple(sum(counts) for counts in zip(*(s.clusters for s in sites), strict=True))
    return _Line(name, clusters, sum(s.rows for s in sites), sum(s.values_sent for s in sites))


def _short(name: str, most: int = 32) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _fitting(total: _Line, names: int, width: int) -> int:
    """How many clusters have room for a column of their own beside the sites' names."""

    def column(header: str, value: int) -> int:
        return max(len(header), len(f"{value:,}")) + GAP

    room = width - names - column("rows", total.rows)
    room -= column("numbers sent", total.sent) if total.sent else 0
    columns = np.cumsum([column(str(j), count) for j, count in enumerate(total.clusters)])
    if columns[-1] <= room or len(columns) <= 2:
        return len(columns)
    together = column("00…00", total.rows)
    return max(1, int((columns + together <= room)[:-2].sum()))


def centers_table(
    preprocessor: Preprocessor, centers: Floats, width: int, elsewhere: str
) -> Table | None:
    """The centres in the units of the columns, for a screen of so many columns.

    Of a text, the commonest level and its share. Without anything to show, None.
    """
    values = preprocessor.invert(centers)
    rows, start = [], 0
    for column in preprocessor.columns:
        part = values[:, start : start + len(column.names)]
        start += len(column.names)
        rows.append((column.name, *_center_cells(column, part)))
    room = width - max(len(_short(row[0])) for row in rows[:MOST_SITES]) - GAP
    widths = np.cumsum([max(len(row[1 + j]) for row in rows) + GAP for j in range(len(centers))])
    kept = int((widths <= room).sum())
    if not kept:
        return None
    cut = kept < len(centers) or len(rows) > MOST_SITES
    return Table(
        "Centres, in the units of the columns" + (f" (all: see {elsewhere})" if cut else ""),
        ("column", *map(str, range(kept))),
        tuple((_short(row[0]), *row[1 : 1 + kept]) for row in rows[:MOST_SITES]),
    )


def _center_cells(column: NumericColumn | Category, values: Floats) -> list[str]:
    """One column's value at each centre."""
    if isinstance(column, NumericColumn):
        return [f"{x:.4g}" if abs(x) < 1e4 else f"{x:,.0f}" for x in values[:, 0]]
    levels = [name.removeprefix(f"{column.name}=") for name in column.names]
    return [
        f"{_short(levels[j], 12)} {min(max(share[j], 0.0), 1.0):.0%}"
        for share in values
        for j in [int(share.argmax())]
    ]


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Inertia and adjusted Rand index of several clusterings."""
    return Table(
        "How good the clusters are, on the rows of all sites",
        ("who", "inertia", "of pooled", "ARI"),
        tuple((c.name, number(c.inertia), f"{c.ratio:.3f}", f"{c.ari:.3f}") for c in comparisons),
    )
