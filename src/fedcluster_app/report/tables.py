"""What sites hold and sent, and tables of results, fitted to the width of a screen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster import metrics as measures
from fedcluster import model as models
from fedcluster.core import Floats, Labels, Limit
from fedcluster.errors import listed
from fedcluster.preprocessing import Category, NumericColumn, Preprocessor
from fedcluster.privacy.limits import is_rounded, rounded
from fedcluster.recipes.succession import succession_table
from fedcluster.texts import NOTHING, Table, counted, number, percent, short_number, shortened


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
        The number of values sent in all rounds.
    limits : tuple of Limit
        The limits of the site.
    rows_held_back : int
        The largest number of rows that limits held back in one message.
    lone_rows : int
        The largest number of clusters with a single row in one message.
    values_held : int
        Number of rows times columns, if both are known.
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
        """Whether the site sent anything."""
        return self.values_sent > 0

    @property
    def local_facts(self) -> dict[str, Any]:
        """Return the facts that are known only where the rows are."""
        known = {
            "rows": self.rows,
            "clusters": list(self.clusters),
            "rows_held_back": self.rows_held_back,
            "lone_rows": self.lone_rows,
        }
        return {**known, "labels": self.labels} if self.labels else known


def site_record(name: str, labels: Labels, k: int, file: str, **sent: Any) -> SiteRecord:
    """Return the record of a site with its rows counted by cluster; the label -1 is ignored."""
    # counting copies the array, so count in parts
    parts = np.array_split(labels, 1 + len(labels) // 1_000_000)
    counts = np.sum([np.bincount(part[part >= 0], minlength=k) for part in parts], axis=0)
    record = SiteRecord(name, len(labels), tuple(counts.tolist()), file, **sent)
    if not is_rounded(record.limits):
        return record
    held, lone = rounded(record.rows_held_back), rounded(record.lone_rows)
    clusters = tuple(map(rounded, record.clusters))
    return replace(
        record, rows=rounded(record.rows), clusters=clusters, rows_held_back=held, lone_rows=lone
    )


MOST_ROWS = 12
"""Number of rows of a table on a screen, which says how many more there are, and where."""

BLANKS = 2
"""Number of blanks between two columns."""

LONGEST_SITE = 32
"""Number of characters of a site's or column's name that a screen shows."""


def fitting(columns: Iterable[Sequence[str]], width: float) -> int:
    """Return how many of the first columns fit on a screen."""
    widths = [max(map(len, column)) + BLANKS for column in columns]
    return int((np.cumsum(widths) <= width).sum())


def beside(
    title: str,
    header: Sequence[str],
    lines: Sequence[Sequence[str]],
    width: int,
    elsewhere: str,
    total: Sequence[str] = (),
) -> Table:
    """Return a table with a column for each site after two others, of which the last may not fit.

    Examples
    --------
    >>> table = beside("Sites", ["column", "use", "a", "b"], [["x", "", "1", "2"]], 15, "--json")
    >>> table.title, table.rows
    ('Sites (1 more site: see --json)', (('x', '', '1'),))
    """
    kept = max(3, fitting(zip(header, *lines, *([total] if total else []), strict=True), width))
    more = f" ({counted(cut, 'more site')}: see {elsewhere})" if (cut := len(header) - kept) else ""
    rows = tuple(tuple(line[:kept]) for line in lines)
    return Table(f"{title}{more}", tuple(header[:kept]), rows, tuple(total[:kept]))


def cut_off(table: Table, elsewhere: str) -> Table:
    """Return the first rows of a table for a screen; its title says where all rows are.

    Examples
    --------
    >>> cut_off(Table("Columns", ("column",), [(str(i),) for i in range(20)]), "--json").title
    'Columns (8 more rows: see --json)'
    >>> cut_off(Table("Columns (2 more sites: see a)", (), [("a",)] * 20), "a").title
    'Columns (2 more sites, 8 more rows: see a)'
    """
    if (more := len(table.rows) - MOST_ROWS) <= 0:
        return table
    where = f": see {elsewhere})"
    lead = f"{table.title} (".replace(f"{where} (", ", ")
    title = f"{lead}{counted(more, 'more row')}{where}"
    return replace(table, title=title, rows=table.rows[:MOST_ROWS])


def cluster_table(sites: Sequence[SiteRecord], width: int, elsewhere: str) -> Table:
    """Return a table, fitted to the screen, of rows by site and cluster and of values sent.

    What does not fit is summarised in one line or column that says where to find it.
    """
    most = len(sites) if len(sites) <= MOST_ROWS else MOST_ROWS - 1
    lines = [(shortened(site.name, LONGEST_SITE), [site]) for site in sites[:most]]
    if rest := list(sites[most:]):
        lines.append((f"… {counted(len(rest), 'more site')}", rest))
    lines.append(("all", list(sites)))
    sent = ("numbers sent",) if any(site.took_part for site in sites) else ()
    k = len(sites[0].clusters)
    heads = (*map(str, range(k)), "rows", *sent)
    counts = [_counts(some)[: len(heads)] for _, some in lines]
    widest = [(head, f"{n:,}") for head, n in zip(heads, counts[-1], strict=True)]
    room = width - max(len(name) for name, _ in lines)
    room -= sum(max(map(len, each)) + BLANKS for each in widest[k:])
    kept, together = k, [counted(len(rest), "site")] if rest else []
    if k > 2 and fitting(widest[:k], room) < k:
        of_rest = max(len("00…00"), len(widest[k][1])) + BLANKS
        kept = max(1, min(fitting(widest[:k], room - of_rest), k - 2))
        together.append(f"clusters {kept} to {k - 1}")
        heads = (*heads[:kept], f"{kept}…{k - 1}", *heads[k:])
        counts = [(*each[:kept], sum(each[kept:k]), *each[k:]) for each in counts]
    rows = [
        (name, *(f"{n:,}" for n in each)) for (name, _), each in zip(lines, counts, strict=True)
    ]
    title = "Rows by site and cluster"
    title += f" ({listed(together)} together: see {elsewhere})" if together else ""
    return Table(title, ("site", *heads), tuple(rows[:-1]), rows[-1] if len(sites) > 1 else ())


def _counts(sites: Sequence[SiteRecord]) -> tuple[int, ...]:
    """Return, for some sites, the rows by cluster, all rows, and the numbers of values sent."""
    each = [(*site.clusters, site.rows, site.values_sent) for site in sites]
    return tuple(map(sum, zip(*each, strict=True)))


def names_table(names: Sequence[str], weights: Floats) -> Table:
    """Return a table of the names of the clusters, with their rows and shares.

    Examples
    --------
    >>> names_table(["old", "young"], np.array([30.0, 10.0])).rows
    (('0 old', '30', '75 %'), ('1 young', '10', '25 %'))
    """
    total = max(float(weights.sum()), 1e-300)
    rows = tuple(
        (f"{j} {shortened(name, 60)}", number(n), percent(n / total))
        for j, (name, n) in enumerate(zip(names, weights.tolist(), strict=True))
    )
    return Table("Clusters", ("cluster", "rows", "share"), rows)


def centers_table(
    preprocessor: Preprocessor, centers: Floats, weights: Floats, width: int, elsewhere: str
) -> Table | None:
    """Return a table, fitted to the screen, of the centres in the units of the columns.

    Beside them stands the mean of all rows, if all clusters fit. A text column shows its most
    frequent level and its share. Return None if there is nothing to show.
    """
    total = float(weights.sum())
    mean = weights @ centers / total if total > 0 else np.full(centers.shape[1:], np.nan)
    values = preprocessor.invert(np.vstack([mean, centers]))
    rows, start = [], 0
    for column in preprocessor.columns:
        part = values[:, start : start + len(column.names)]
        start += len(column.names)
        rows.append((shortened(column.name, LONGEST_SITE), *_center_cells(column, part)))
    if not (rows and len(centers)):
        return None
    room = width - max(len(row[0]) for row in rows[:MOST_ROWS]) - BLANKS
    header = ["column", "all rows", *map(str, range(len(centers)))]
    if fitting(list(zip(*rows[:MOST_ROWS], strict=True))[1:], room) <= len(centers):
        header.pop(1)
        rows = [(row[0], *row[2:]) for row in rows]
    kept = max(1, fitting(list(zip(*rows[:MOST_ROWS], strict=True))[1:], room))
    more = {"cluster": len(header) - 1 - kept, "column": len(rows) - MOST_ROWS}
    cut = [counted(n, f"more {what}") for what, n in more.items() if n > 0]
    return Table(
        "Centres, in the units of the columns"
        + (f" ({listed(cut)}: see {elsewhere})" if cut else ""),
        header[: 1 + kept],
        tuple(row[: 1 + kept] for row in rows[:MOST_ROWS]),
    )


def _center_cells(column: NumericColumn | Category, values: Floats) -> list[str]:
    """Return one column's value at each centre."""
    if isinstance(column, NumericColumn):
        return [short_number(x) for x in values[:, 0]]
    levels = [name.removeprefix(f"{column.name}=") for name in column.names]
    largest = values.argmax(axis=1)
    return [
        f"{shortened(levels[j], 12)} {min(max(share[j], 0.0), 1.0):.0%}"
        for j, share in zip(largest, values, strict=True)
    ]


def index_table(
    n_clusters: int,
    rule: str,
    says: Mapping[str, int],
    scores: Mapping[int, Mapping[str, float | None]],
    elsewhere: str,
) -> Table:
    """Return a table of the indices for each k, with a star at the k that an index chooses.

    If there are many k, it shows those that an index chooses and those near the verdict.

    Parameters
    ----------
    n_clusters : int
        The verdict.
    rule : str
        The rule.
    says : mapping of str to int
        The best k by each index.
    scores : mapping of int to mapping of str to float
        All indices for each k; nan or None if an index is undefined.
    elsewhere : str
        Where all of them can be found.

    Examples
    --------
    >>> scores = {1: {"gap": 0.5, "inertia": 90.0}, 2: {"gap": 1.25, "inertia": 10.0}}
    >>> index_table(2, "gap", {"gap": 2, "inertia": 1}, scores, "--json").rows
    (('1', '0.5000 ', '90.0*'), ('2 <', '1.2500*', '10.0 '))
    """
    own = rule.split(",")[0]
    shown = [index for index in measures.INDICES if measures.CHOOSING[index].always_shown]
    indices = [i for i in dict.fromkeys([*shown, own]) if i in says]
    last = [*(says[i] for i in indices), n_clusters]
    known = [k for k, own in scores.items() if any(_digits(own[i]) != "-" for i in indices)]
    near = sorted(known, key=lambda k: (k not in last, abs(k - n_clusters), k))[:MOST_ROWS]
    more = len(known) - len(near)
    rows = []
    for k in sorted(near):
        own_scores = scores[k]
        stars = ["*" if says[i] == k else " " for i in indices]
        cells = [f"{_digits(own_scores[i])}{star}" for i, star in zip(indices, stars, strict=True)]
        rows.append((f"{k} <" if k == n_clusters else str(k), *cells))
    return Table(
        "What each index says of each k (* its choice, < the verdict)"
        + (f" ({more} more k: see {elsewhere})" if more else ""),
        ("k", *(f"{i} " for i in indices)),
        tuple(rows),
    )


def verdict_line(n_clusters: int, reason: str) -> str:
    """Return the verdict and the reason.

    Examples
    --------
    >>> verdict_line(1, "The gap statistic says 1.")
    '1 cluster. The gap statistic says 1.'
    """
    return f"{counted(n_clusters, 'cluster')}. {reason}"


def _digits(x: float | None) -> str:
    """Return four digits of small numbers, and large numbers without decimals."""
    if x is None or math.isnan(x):
        return "-"
    if abs(x) < 1e5:
        return f"{x:,.{4 if abs(x) < 10 else 1 if abs(x) < 1000 else 0}f}"
    return number(float(f"{x:.6g}"))


MOST_CLUSTERS, MOST_COLUMNS = MOST_ROWS, 5
"""Largest number of clusters with a table, and of columns in it."""
HOW_TO_READ = (
    "difference: how far the mean of a cluster is from that of all other rows, in standard "
    "deviations (Cohen's d; 0.2 is small, 0.5 medium, 0.8 large); V, of texts: Cramér's V, 0 to 1."
)

Plain = Mapping[str, Any]


def profile_tables(profiles: Plain, width: int, elsewhere: str) -> list[Table | str]:
    """Return a table for each cluster, with the columns in which it differs most.

    Parameters
    ----------
    profiles : mapping
        The content of ``profiles.json``.
    width : int
        The width of the screen.
    elsewhere : str
        Where the rest can be found.
    """
    clusters, longest = profiles["clusters"], max(20, width - 40)
    sizes = tuple(
        (
            f"{each['cluster']} {shortened(each['name'], longest)}",
            f"{each['weight']:,.6g}",
            percent(each["share"]),
            f"{len(each['sites']):,}",
        )
        for each in clusters
    )
    overview = Table("Clusters", ("cluster", "rows", "share", "sites"), sizes)
    made = [_profile_table(each, profiles["all"]["columns"]) for each in clusters[:MOST_CLUSTERS]]
    tables = [table for table in made if table.rows]
    read = HOW_TO_READ if tables else "No column sets the clusters apart."
    hidden = range(MOST_CLUSTERS, len(clusters))
    others = f"Clusters {hidden[0]} to {hidden[-1]}, and all" if len(hidden) > 1 else "All"
    others = f"Cluster {hidden[0]}, and all" if len(hidden) == 1 else others
    return [overview, *tables, read, f"{others} columns and sites: {elsewhere}."]


def profiles_shown(content: Plain, width: int, file: Path | None) -> list[Table | str]:
    """Return tables of the profiles and the stability in the content of a job, if present."""
    shown: list[Table | str] = []
    if "profiles" in content:
        shown += profile_tables(content["profiles"], width, str(file or "--json"))
    if "stability" in content:
        shown += [models.stability_table(content["stability"]), *content["stability"]["meaning"]]
    if "since" in content:
        shown += [succession_table(content["since"]), *content["since"]["meaning"]]
    if "beside" in content:
        shown += _crossing(content["beside"]["rows"], str(file or "--json"))
        shown += content["beside"]["meaning"]
    return shown


def _crossing(rows: Sequence[Sequence[float]], elsewhere: str) -> list[Table | str]:
    """Return a table of the rows in each pair of clusters of two models, or where it is."""
    first, second = len(rows) - 1, len(rows[0]) - 1
    if max(first, second) > MOST_CLUSTERS:
        return [f"Rows in each pair of clusters: {elsewhere}."]
    of_none = [any(rows[-1]), any(line[-1] for line in rows)]
    lines = [(str(i), *map(number, line)) for i, line in enumerate(rows[:-1])]
    lines += [("none", *map(number, rows[-1]))] * of_none[0]
    stop = None if of_none[1] else -1
    header = ("cluster", *map(str, range(second)), "none")
    title = "Rows in each cluster (lines), and in those of the other model (columns)"
    return [Table(title, header[:stop], [line[:stop] for line in lines])]


def _profile_table(cluster: Plain, overall: Sequence[Plain]) -> Table:
    """Return the columns in which a cluster differs."""
    of_all = {column["column"]: column for column in overall}
    telling = [each for each in cluster["columns"] if _tells(each)][:MOST_COLUMNS]
    rows = tuple(_line(each, of_all[each["column"]]) for each in telling)
    header = ("column", "mean", "spread", "median", "all rows", "difference")
    return Table(f"Cluster {cluster['cluster']}: {cluster['name']}", header, rows)


def _tells(column: Plain) -> bool:
    """Return whether a column differs in a cluster; an infinite effect is null in a file."""
    effect = column["effect"]
    bound = column.get("difference", column.get("association"))
    # Effect, as Cohen's d, below which a column is not shown.
    return effect >= 0.2 if effect is not None else bound is None or bound == 1


def _line(column: Plain, of_all: Plain) -> tuple[str, ...]:
    """Return the cells of one column."""
    name = column["column"]
    if column["kind"] == "number":
        cells = [*map(short_number, (column["mean"], column["spread"])), _median(column)]
        apart = column["difference"]
        difference = NOTHING if apart is None else f"{apart:+z.2f}"
        return (shortened(name, 24), *cells, short_number(of_all["mean"]), difference)
    own, every = ({k: x or 0.0 for k, x in c["shares"].items()} for c in (column, of_all))
    level = max(own, key=lambda each: own[each] - every[each])
    shares = (f"{own[level]:.0%}", f"{every[level]:.0%}")
    v = column["association"]
    strength = NOTHING if v is None else f"V {v:.2f}"
    return (shortened(f"{name}={level}", 32), shares[0], "", "", shares[1], strength)


def _median(column: Plain) -> str:
    """Return the median of a column with its significant digits.

    Examples
    --------
    >>> _median({"median": 79.512, "median_step": 0.42}), _median({"median": None})
    ('79.5', '–')
    """
    median = column["median"]
    if median is None:
        return NOTHING
    step = max(column["median_step"], abs(median) * 1e-4, 1e-300)
    known = round(median, -math.floor(math.log10(step)))
    return short_number(known + 0.0)
