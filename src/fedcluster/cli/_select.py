"""``fedcluster select-k``: how many clusters there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from fedcluster.cli._arguments import (
    AsJson,
    Averaging,
    Decimal,
    Elbow,
    Files,
    Fuzzifier,
    GapBounds,
    GroupColumn,
    LargestK,
    Overwrite,
    Quiet,
    Rule,
    Seed,
    SiteColumn,
    SmallestK,
    SumsOnly,
    WeightColumn,
)
from fedcluster.cli._choices import AveragingName, DecimalSign, RuleName
from fedcluster.cli._preparing import Categories, Missing, Scale, ScaleName
from fedcluster.cli._preparing import asked as preprocessor
from fedcluster.cli._screen import Screen

EXAMPLE = "Example: fedcluster select-k north.csv south.csv west.csv --k-max 8 --out chosen"


def number_of_clusters(text: str) -> int | str | range:
    """What ``-k`` takes: a number, "auto", or FIRST-LAST to choose from.

    Examples
    --------
    >>> number_of_clusters("8"), number_of_clusters("auto"), number_of_clusters("2-20")
    (8, 'auto', range(2, 21))
    """
    if text == "auto":
        return text
    several = re.fullmatch(r"(\d+)-(\d+)", text)
    if several and 1 <= int(several[1]) <= int(several[2]):
        return range(int(several[1]), int(several[2]) + 1)
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(
            f"'{text}' is not a number of clusters; give a whole number, auto, or the numbers to "
            "choose from as in 2-20"
        ) from None


def select_k(
    files: Files,
    k_min: SmallestK = 1,
    k_max: LargestK = None,
    rule: Rule = RuleName["VOTE"],
    elbow: Elbow = False,
    averaging: Averaging = AveragingName["AVG_2"],
    bounds: GapBounds = None,
    m: Fuzzifier = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Columns to cluster by; by default all."),
    ] = None,
    scale: Scale = ScaleName.STANDARD,
    missing: Missing = None,
    categories: Categories = None,
    site_column: SiteColumn = None,
    weight_column: WeightColumn = None,
    group_column: GroupColumn = None,
    decimal: Decimal = DecimalSign.POINT,
    sums_only: SumsOnly = False,
    min_cluster_size: Annotated[
        int | None,
        typer.Option(
            metavar="ROWS",
            show_default="the algorithm's",
            help="A site does not send a cluster of fewer rows.",
        ),
    ] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="DIR", show_default=False, help="Folder to write."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say how many clusters the rows of several sites have, and why.

    FILE is CSV or Parquet, one for each site, which is called like its file; NAME=FILE gives it
    another name; or it is a site's own file, site.toml. Columns are matched by name. Every k is
    tried in the same rounds.

    Shows what each index says of each k. With --out writes selection.json (the same) and, with
    matplotlib, curves.png. To keep the clusters, use fedcluster fit -k auto.
    """
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from fedcluster.cli import _reading as reading
        from fedcluster.cli import _runs as runs
        from fedcluster.cli import _selections as selections
        from fedcluster.io._outputs import check_folder

        ks = selections.k_range(k_min, k_max)
        runs.check_numbers(min_cluster_size=min_cluster_size, seed=seed)
        if out is not None:
            check_folder(out, overwrite=overwrite)
        prepare = preprocessor(scale, missing, categories, columns)
        raw = prepare is None
        asked = selections.rule(rule.value, averaging.value, bounds, m, elbow=elbow, raw=raw)
        options = reading.ReadOptions(
            columns, site_column, weight_column, group_column, decimal=decimal.value
        )
        tables = reading.read(files, options, screen.doing, prepare)
        ks = selections.enough_rows(ks, tables, given=k_max is not None)
        limits = {"sums_only": sums_only, "min_cluster_size": min_cluster_size or "auto"}
        found = screen.wait_for(
            lambda: selections.choose(
                tables, ks, asked | limits | {"prepare": prepare}, seed, screen.doing
            )
        )
        screen.warnings += found.selection.warnings
        written = selections.write(out, found) if out is not None else []
    screen.result(selections.result(found, out, written), selections.shown(found, out, written))
