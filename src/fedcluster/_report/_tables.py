"""Records of what sites hold and sent, and tables as wide as a screen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from fedcluster._report._rounding import is_rounded, rounded
from fedcluster.core import Floats, Labels, Limit
from fedcluster.metrics.indices import CHOOSING, INDICES
from fedcluster.preprocessing import Category, NumericColumn, Preprocessor

MOST_SITES = 20
"""Sites that a table shows; the others come as one line."""

GAP = 2
"""Blanks between two columns."""


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """Rows, clusters and messages of one site; it stays where the labels stay.

    Parameters
    ----------
    name : str
    rows : int
    clusters : tuple of int
        Rows of each cluster.
    labels : str
        The file of the rows' labels, relative to the folder of outputs.
    values_sent : int
        In all rounds together.
    limits : tuple of Limit
        What the site holds back.
    rows_held_back : int
        The most rows that the limits held back in one message.
    lone_rows : int
        The most clusters of a single row in one message.
    values_held : int
        Rows times columns, where both are known.
    """

    name: str
    rows: int
    clusters: tuple[int, ...]
    labels: str
    values_sent: int = 0
    limits: tuple[Limit, ...] = ()
    rows_held_back: int = 0
    lone_rows: int = 0
    values_held: int = 0

    @property
    def took_part(self) -> bool:
        """Return whether anything was sent."""
        return self.values_sent > 0

    @property
    def told_here(self) -> dict[str, Any]:
        """Return the facts that are known only where the rows are."""
        known = {
            "rows": self.rows,
            "clusters": list(self.clusters),
            "rows_held_back": self.rows_held_back,
            "lone_rows": self.lone_rows,
        }
        return {**known, "labels": self.labels} if self.labels else known


@dataclass(frozen=True, slots=True)
class Comparison:
    """Quality of one clustering on all rows.

    Parameters
    ----------
    name : str
        Who found it.
    inertia : float
        Over all rows, in squared units of the rows.
    ratio : float
        The inertia, as a multiple of that of k-means on the pooled rows.
    ari : float
        Adjusted Rand index with the reference labels, 1 for the same groups.
    """

    name: str
    inertia: float
    ratio: float
    ari: float


def plain(value: Any) -> Any:
    """Return a record, or a value that holds some, as JSON can hold it: nan becomes null.

    Examples
    --------
    >>> plain((Comparison("Oslo alone", inertia=2.0, ratio=float("nan"), ari=0.5),))
    [{'name': 'Oslo alone', 'inertia': 2.0, 'ratio': None, 'ari': 0.5}]
    """
    if isinstance(value, Limit):
        return value.plain()
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def site_record(name: str, labels: Labels, k: int, file: str, **sent: Any) -> SiteRecord:
    """Return the record of a site, its rows counted by cluster; the label -1 is in none."""
    parts = np.array_split(labels, 1 + len(labels) // 1_000_000)  # what counts copies its part
    counts = np.sum([np.bincount(part[part >= 0], minlength=k) for part in parts], axis=0)
    record = SiteRecord(name, len(labels), tuple(counts.tolist()), file, **sent)
    if not is_rounded(record.limits):
        return record
    held, lone = rounded(record.rows_held_back), rounded(record.lone_rows)
    clusters = tuple(map(rounded, record.clusters))
    return replace(
        record, rows=rounded(record.rows), clusters=clusters, rows_held_back=held, lone_rows=lone
    )


# Tables


@dataclass(frozen=True, slots=True)
class Table:
    """Table of texts to show: the first column left, the others right.

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
    """Return a number to six significant digits, with commas.

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
    """Return rows by site and cluster, and numbers sent, for a screen of so many columns.

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
    sent = ("numbers sent",) if total.took_part else ()
    header = ("site", *map(str, range(kept)), *others, "rows", *sent)
    return Table(
        title,
        header,
        tuple(_cells(line, kept, with_sent=total.took_part) for line in lines),
        _cells(total, kept, with_sent=total.took_part) if len(sites) > 1 else (),
    )


def _cells(line: SiteRecord, kept: int, *, with_sent: bool) -> tuple[str, ...]:
    """Return the texts of a line, the first clusters one by one and the others together."""
    counts = [*line.clusters[:kept]]
    if kept < len(line.clusters):
        counts.append(sum(line.clusters[kept:]))
    counts += [line.rows, *([line.values_sent] if with_sent else [])]
    return (line.name, *(f"{count:,}" for count in counts))


def _line(name: str, sites: Sequence[SiteRecord]) -> SiteRecord:
    """Return several sites as one."""
    clusters = tuple(sum(counts) for counts in zip(*(s.clusters for s in sites), strict=True))
    sent = sum(s.values_sent for s in sites)
    return SiteRecord(name, sum(s.rows for s in sites), clusters, "", sent)


def _short(name: str, most: int = 32) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _fitting(total: SiteRecord, names: int, width: int) -> int:
    """Count the clusters that have room for a column of their own beside the sites' names."""

    def column(header: str, value: int) -> int:
        return max(len(header), len(f"{value:,}")) + GAP

    room = width - names - column("rows", total.rows)
    room -= column("numbers sent", total.values_sent) if total.took_part else 0
    columns = np.cumsum([column(str(j), count) for j, count in enumerate(total.clusters)])
    if columns[-1] <= room or len(columns) <= 2:
        return len(columns)
    together = column("00…00", total.rows)
    return max(1, int((columns + together <= room)[:-2].sum()))


def centers_table(
    preprocessor: Preprocessor, centers: Floats, width: int, elsewhere: str
) -> Table | None:
    """Return the centres in the units of the columns, for a screen of so many columns.

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
    """Return one column's value at each centre."""
    if isinstance(column, NumericColumn):
        return [f"{x:.4g}" if abs(x) < 1e4 else f"{x:,.0f}" for x in values[:, 0]]
    levels = [name.removeprefix(f"{column.name}=") for name in column.names]
    return [
        f"{_short(levels[j], 12)} {min(max(share[j], 0.0), 1.0):.0%}"
        for share in values
        for j in [int(share.argmax())]
    ]


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Return the inertia and the adjusted Rand index of several clusterings."""
    return Table(
        "How good the clusters are, on the rows of all sites",
        ("who", "inertia", "of pooled", "ARI"),
        tuple((c.name, number(c.inertia), f"{c.ratio:.3f}", f"{c.ari:.3f}") for c in comparisons),
    )


def index_table(
    n_clusters: int,
    rule: str,
    says: Mapping[str, int],
    scores: Mapping[int, Mapping[str, float | None]],
) -> Table:
    """Return every k with its indices; a star marks the k that an index chooses.

    Parameters
    ----------
    n_clusters : int
        The verdict.
    rule : str
        By which rule.
    says : mapping of str to int
        The k that each index takes for the best.
    scores : mapping of int to mapping of str to float
        All indices of each k; nan or None where an index says nothing.

    Examples
    --------
    >>> scores = {1: {"gap": 0.5, "inertia": 90.0}, 2: {"gap": 1.25, "inertia": 10.0}}
    >>> index_table(2, "gap", {"gap": 2, "inertia": 1}, scores).rows
    (('1', '0.5000 ', '90.0*'), ('2 <', '1.2500*', '10.0 '))
    """
    own = rule.split(",")[0]
    shown = [index for index in INDICES if CHOOSING[index].always_shown]
    indices = [i for i in dict.fromkeys([*shown, own]) if i in says]
    rows = []
    for k, own_scores in scores.items():
        stars = ["*" if says[i] == k else " " for i in indices]
        cells = [f"{_digits(own_scores[i])}{star}" for i, star in zip(indices, stars, strict=True)]
        rows.append((f"{k} <" if k == n_clusters else str(k), *cells))
    return Table(
        "What each index says of each k (* its choice, < the verdict)",
        ("k", *((CHOOSING[i].header or i) + " " for i in indices)),
        tuple(rows),
    )


def verdict_line(n_clusters: int, reason: str) -> str:
    """Return the verdict and the reason.

    Examples
    --------
    >>> verdict_line(1, "The gap statistic says 1.")
    '1 cluster. The gap statistic says 1.'
    """
    return f"{n_clusters} cluster{'' if n_clusters == 1 else 's'}. {reason}"


def _digits(x: float | None) -> str:
    """Return four digits of small numbers, and whole numbers where they are large."""
    if x is None or math.isnan(x):
        return "-"
    if abs(x) < 1e5:
        return f"{x:,.{4 if abs(x) < 10 else 1 if abs(x) < 1000 else 0}f}"
    return number(float(f"{x:.6g}"))
