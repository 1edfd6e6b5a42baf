"""What happened, in words, tables and pictures; how they look on a terminal is not known here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.core import Floats, Labels
from fedcluster.preparation import Category, Measure, Preparation

__all__ = [
    "Comparison",
    "Record",
    "SiteRecord",
    "Table",
    "centers_table",
    "cluster_table",
    "comparison_table",
    "ignored_lines",
    "notes",
    "number",
    "picture",
    "plain",
    "site_record",
    "summary_line",
    "written_line",
]

MOST_SITES = 20
"""Sites that a table shows; the others come as one line."""

GAP = 2
"""Blanks between two columns."""

LIMITS = {
    "MinRows": "a site with fewer than {} rows sends nothing",
    "MinClusterSize": "a site does not send a cluster of fewer than {} of its rows",
}

COLOURS = ("#3b6fb6", "#e0853a", "#4a9d6f", "#b4528c", "#8a7cc8", "#c9a227", "#5aa9b8", "#8c6d52")
INK, PALE_INK = "#1d2733", "#6b7683"


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """What one site held and sent; it stays where the labels stay.

    Parameters
    ----------
    name : str
    rows : int
    clusters : tuple of int
        Rows of each cluster.
    labels : str
        The file of the rows' labels, relative to the folder of outputs.
    numbers_sent : int
        In all rounds together.
    limits : tuple of str
        What the site holds back.
    rows_held_back : int
        The most rows that the limits held back in one message.
    lone_rows : int
        The most clusters of a single row in one message.
    """

    name: str
    rows: int
    clusters: tuple[int, ...]
    labels: str
    numbers_sent: int = 0
    limits: tuple[str, ...] = ()
    rows_held_back: int = 0
    lone_rows: int = 0

    @property
    def took_part(self) -> bool:
        """Whether anything was sent."""
        return self.numbers_sent > 0


@dataclass(frozen=True, slots=True)
class Record:
    """What one fit did, as ``history.json`` keeps it."""

    n_clusters: int
    algorithm: str
    columns: tuple[str, ...]
    seed: int
    rounds: int
    stop_reason: str
    inertia: float
    sites: tuple[SiteRecord, ...]
    history: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, estimator: Any, columns: Sequence[str], labels: Mapping[str, str]) -> Record:
        """The record of a fitted estimator; ``labels`` names each site's file of labels."""
        k = len(estimator.cluster_centers_)
        return cls(
            n_clusters=k,
            algorithm=str(estimator.algorithm),
            columns=tuple(columns),
            seed=estimator.random_state,
            rounds=estimator.n_iter_,
            stop_reason=estimator.stop_reason_,
            inertia=float(estimator.inertia_),
            sites=tuple(
                site_record(
                    site.name,
                    estimator.site_labels_[site.name],
                    k,
                    labels[site.name],
                    numbers_sent=estimator.numbers_sent_[site.name],
                    limits=site.limits,
                    rows_held_back=estimator.rows_held_back_[site.name],
                    lone_rows=estimator.lone_rows_[site.name],
                )
                for site in estimator.sites_
            ),
            history=tuple(estimator.history_),
        )


def plain(value: Any) -> Any:
    """A record, or whatever holds some, as JSON can hold it: nan becomes null.

    Examples
    --------
    >>> plain((Comparison("Oslo alone", inertia=2.0, ratio=float("nan"), ari=0.5),))
    [{'name': 'Oslo alone', 'inertia': 2.0, 'ratio': None, 'ari': 0.5}]
    """
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def site_record(name: str, labels: Labels, k: int, file: str, **sent: Any) -> SiteRecord:
    """Count a site's rows by cluster; those with the label -1 are in none."""
    parts = np.array_split(labels, 1 + len(labels) // 1_000_000)  # what counts copies its part
    counts = np.sum([np.bincount(part[part >= 0], minlength=k) for part in parts], axis=0)
    clusters = tuple(counts.tolist())
    return SiteRecord(name, len(labels), clusters, file, **sent)


@dataclass(frozen=True, slots=True)
class Comparison:
    """How good one clustering is on all rows.

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
    return _Line(name, clusters, sum(s.rows for s in sites), sum(s.numbers_sent for s in sites))


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
    preparation: Preparation, centers: Floats, width: int, elsewhere: str
) -> Table | None:
    """The centres in the units of the columns, for a screen of so many columns.

    Of a text, the commonest level and its share. Without anything to show, None.
    """
    values = preparation.invert(centers)
    rows, start = [], 0
    for column in preparation.columns:
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


def _center_cells(column: Measure | Category, values: Floats) -> list[str]:
    """One column's value at each centre."""
    if isinstance(column, Measure):
        return [f"{x:.4g}" if abs(x) < 1e4 else f"{x:,.0f}" for x in values[:, 0]]
    levels = [name.removeprefix(f"{column.name}=") for name in column.names]
    return [
        f"{_short(levels[j], 12)} {min(max(share[j], 0.0), 1.0):.0%}"
        for share in values
        for j in [int(share.argmax())]
    ]


def summary_line(record: Record) -> str:
    """The result in one line."""
    return (
        f"{_count(record.n_clusters, 'cluster')}, inertia {number(record.inertia)}, "
        f"{record.stop_reason}; {_count(record.rounds, 'round')} in all with "
        f"{_count(len(record.sites), 'site')}. Algorithm {record.algorithm}, seed {record.seed}."
    )


def notes(
    sites: Sequence[SiteRecord], absent_too: str = " It has labels all the same."
) -> list[str]:
    """What left the sites and what did not, one sentence each.

    ``absent_too`` is what is said of a site that took no part.
    """
    said = [_limits_in_force(sites)]
    absent = [site for site in sites if not site.took_part]
    held = [site for site in sites if site.took_part and site.rows_held_back]
    lone = [site for site in sites if site.lone_rows]
    for site in absent[:5]:
        rows = "its only row" if site.rows == 1 else f"all its {site.rows:,} rows"
        said.append(f"Site {site.name} took no part: its limits held back {rows}.{absent_too}")
    if absent[5:]:
        said.append(f"Nor did {_count(len(absent) - 5, 'more site')}.")
    if held:
        some = [f"{_count(site.rows_held_back, 'row')} of {site.name}" for site in held]
        said.append(f"Held back in some rounds, which went without them: up to {_list(some)}.")
    elif not absent:
        said.append("No row was held back.")
    if lone:
        first, *others = lone
        some = [f"at most {first.lone_rows} in a message of {first.name}"]
        some += [f"{site.lone_rows} of {site.name}" for site in others]
        said.append(
            f"Some sums stood for a single row ({_list(some)}): who reads the message knows "
            "that row. --min-cluster-size 2 holds such sums back."
        )
    return said


def _limits_in_force(sites: Sequence[SiteRecord]) -> str:
    """The limits in plain words, by site where they differ."""
    by_limit: dict[str, list[str]] = {}
    for site in sites:
        by_limit.setdefault("; ".join(_in_words(site.limits)), []).append(site.name)
    if list(by_limit) == [""]:
        return "No limit is in force: a single row may leave its site."
    if len(by_limit) == 1:
        return f"Limits in force: {next(iter(by_limit))}."
    each = [f"{limit or 'none'} ({_list(names)})" for limit, names in by_limit.items()]
    return f"Limits in force: {'; '.join(each)}."


def _in_words(limits: Sequence[str]) -> list[str]:
    """Limits such as "MinRows(n=2)" in words; those that hold nothing back are left out."""
    words = []
    for limit in limits:
        match = re.fullmatch(r"(\w+)\(\w+=(\d+)\)", limit)
        if not match or match[1] not in LIMITS:
            words.append(limit)
        elif int(match[2]) > 1:
            words.append(LIMITS[match[1]].format(match[2]))
    return words


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def _list(names: Sequence[str], most: int = 5) -> str:
    more = [f"{len(names) - most} more"] if len(names) > most else []
    shown = [*names[:most], *more]
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def ignored_lines(ignored: Mapping[str, Sequence[str]]) -> list[str]:
    """The columns of each file that a model has no use for, in one line for equal ones."""
    by_columns: dict[tuple[str, ...], list[str]] = {}
    for site, columns in ignored.items():
        by_columns.setdefault(tuple(columns), []).append(site)
    return [
        f"Ignored at {_list(sites)}: {'column' if len(columns) == 1 else 'columns'} "
        f"{_list(columns, most=8)}."
        for columns, sites in by_columns.items()
        if columns
    ]


def written_line(out: Path, files: Sequence[str]) -> str:
    """What was written."""
    labels = [file for file in files if file.startswith("labels/")]
    others = [str(out / file) for file in files if not file.startswith("labels/")]
    where = str(out / labels[0]) if len(labels) == 1 else f"{out / 'labels'} ({len(labels)} files)"
    return f"Wrote {_list([*others, where])}."


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Inertia and adjusted Rand index of several clusterings."""
    return Table(
        "How good the clusters are, on the rows of all sites",
        ("who", "inertia", "of pooled", "ARI"),
        tuple((c.name, number(c.inertia), f"{c.ratio:.3f}", f"{c.ari:.3f}") for c in comparisons),
    )


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
    """Draw each centre as an image, and under it the sites whose rows it stands for.

    Parameters
    ----------
    path : Path
        The file to write, a PNG.
    centers : ndarray of shape (k, d)
        The centres.
    sites : sequence of SiteRecord
        For the bars under the centres.
    shape : (int, int)
        Lines and columns of an image, d in all.
    title, subtitle : str
        What stands above.
    captions : mapping of str to str
        What the legend says of each site.

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
    """One centre, its number, and a bar with the share of each site."""
    framed = np.pad(image, 1, constant_values=grey[0])
    axes.imshow(framed, cmap="Greys", vmin=grey[0], vmax=grey[1], interpolation="bicubic")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color("#d9dde3")
    axes.set_title(f"cluster {j}", fontsize=8.5, color=INK, loc="left", pad=3)
    axes.set_title(_count(sum(counts), "row"), fontsize=8.5, color=PALE_INK, loc="right", pad=3)
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
    """The sites' colours, names and captions along the lower edge."""
    for i, site in enumerate(sites):
        x = 0.03 + 0.965 * i / len(sites)
        figure.text(x, bottom, "■", fontsize=11, color=COLOURS[i % len(COLOURS)], va="center")
        figure.text(x + 0.022, bottom, site.name, fontsize=9.5, color=INK, va="center")
        caption = captions.get(site.name, "")
        figure.text(x + 0.022, bottom - 0.028, caption, fontsize=8, color=PALE_INK, va="center")
