"""Profiles of clusters as tables and sentences, from what ``profiles.json`` says of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedcluster._report._tables import Table
from fedcluster._texts import shortened

MOST_CLUSTERS, MOST_COLUMNS = 12, 5
"""Clusters that have a table, and columns in it."""
SMALL = 0.2
"""Effect, as Cohen's d, below which a column is not shown."""
NOTHING = "–"
HOW_TO_READ = (
    "difference: how far the mean of a cluster is from that of all its other rows, in standard "
    "deviations (Cohen's d; 0.2 is small, 0.5 medium, 0.8 large); V, of texts: Cramér's V, 0 to 1."
)

Plain = Mapping[str, Any]


def profile_tables(profiles: Plain, width: int, elsewhere: str) -> list[Table | str]:
    """Return profiles as tables, that of each cluster with the columns that set it apart most.

    Parameters
    ----------
    profiles : mapping
        What ``profiles.json`` says.
    width : int
        The width of the screen.
    elsewhere : str
        Where the rest is found.
    """
    clusters = profiles["clusters"]
    shown = [_table(each, profiles["all"]["columns"]) for each in clusters[:MOST_CLUSTERS]]
    tables = [table for table in shown if table.rows]
    said = [HOW_TO_READ] if tables else ["No column sets the clusters apart."]
    return [_overview(clusters, width), *tables, *said, f"All columns and sites: {elsewhere}."]


def profiles_shown(content: Plain, width: int, file: Path | None) -> list[Table | str]:
    """Return profiles and stability in the content of a job, if there; a file holds all of it."""
    shown: list[Table | str] = []
    if "profiles" in content:
        shown += profile_tables(content["profiles"], width, str(file or "--json"))
    if "stability" in content:
        shown += stability_shown(content["stability"])
    return shown


def stability_shown(stability: Plain) -> list[Table | str]:
    """Return the stability of clusters as a table, and in words what it means."""
    rows = tuple(
        (
            str(each["cluster"]),
            NOTHING if each["stability"] is None else f"{each['stability']:.2f}",
            each["word"],
            NOTHING if each["separation"] is None else f"{each['separation']:.1f}",
            each["apart"],
            str(each["neighbour"]),
        )
        for each in stability["clusters"]
    )
    header = ("cluster", "stability", "", "separation", "gap", "nearest")
    title = f"Stability in {stability['replicates']} replicates, and distance from the neighbour"
    return [Table(title, header, rows), *stability["meaning"]]


def _overview(clusters: Sequence[Plain], width: int) -> Table:
    """Return a line for each cluster: its name, size, share and sites."""
    longest = max(20, width - 40)
    rows = tuple(
        (
            f"{each['cluster']} {shortened(each['name'], longest)}",
            f"{each['weight']:,.6g}",
            f"{each['share']:.1%}",
            f"{len(each['sites']):,}",
        )
        for each in clusters
    )
    return Table("Clusters", ("cluster", "rows", "share", "sites"), rows)


def _table(cluster: Plain, overall: Sequence[Plain]) -> Table:
    """Return what sets a cluster apart."""
    of_all = {column["column"]: column for column in overall}
    lines = (_line(each, of_all[each["column"]]) for each in cluster["columns"] if _tells(each))
    rows = tuple(line for line, _ in zip(lines, range(MOST_COLUMNS), strict=False))
    header = ("column", "mean", "spread", "median", "all rows", "difference")
    return Table(f"Cluster {cluster['cluster']}: {cluster['name']}", header, rows)


def _tells(column: Plain) -> bool:
    """Return whether a column sets a cluster apart; an effect without bound is null in a file."""
    effect = column["effect"]
    bound = column.get("difference", column.get("association"))
    return effect >= SMALL if effect is not None else bound is None or bound == 1


def _line(column: Plain, of_all: Plain) -> tuple[str, ...]:
    """Return the cells of one column."""
    name = column["column"]
    if column["kind"] == "number":
        told = [*map(_number, (column["mean"], column["spread"])), _median(column)]
        apart = column["difference"]
        difference = NOTHING if apart is None else f"{apart:+.2f}"
        return (shortened(name, 24), *told, _number(of_all["mean"]), difference)
    level = max(_apart(column["shares"], of_all["shares"]), key=lambda each: each[1])[0]
    shares = (f"{column['shares'][level] or 0:.0%}", f"{of_all['shares'][level] or 0:.0%}")
    v = column["association"]
    strength = NOTHING if v is None else f"V {v:.2f}"
    return (shortened(f"{name}={level}", 32), shares[0], "", "", shares[1], strength)


def _apart(own: Plain, every: Plain) -> Iterator[tuple[str, float]]:
    """Yield each level with how much more frequent it is here than among all rows."""
    return ((level, (own[level] or 0.0) - (every[level] or 0.0)) for level in own)


def _number(x: float | None) -> str:
    if x is None:
        return NOTHING
    return f"{x:.4g}" if abs(x) < 1e4 else f"{x:,.0f}"


def _median(column: Plain) -> str:
    """Return the median of a column to the digits that are known.

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
    return _number(known + 0.0)
