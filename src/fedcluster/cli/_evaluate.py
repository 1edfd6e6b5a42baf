"""``fedcluster evaluate``: how good the clusters of a model are."""

from __future__ import annotations

from typing import Annotated

import typer

from fedcluster.cli._arguments import (
    AsJson,
    Decimal,
    Files,
    GroupColumn,
    ModelFile,
    Quiet,
    SiteColumn,
    WeightColumn,
)
from fedcluster.cli._choices import DecimalSign
from fedcluster.cli._screen import Screen

EXAMPLE = "Example: fedcluster evaluate result/model.json north.csv south.csv west.csv"


def evaluate(
    model_file: ModelFile,
    files: Files,
    label_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column with labels, to compare the clusters with."),
    ] = None,
    site_column: SiteColumn = None,
    weight_column: WeightColumn = None,
    group_column: GroupColumn = None,
    decimal: Decimal = DecimalSign.POINT,
    min_cluster_size: Annotated[
        int, typer.Option(metavar="ROWS", help="A site does not send a sum over fewer rows.")
    ] = 1,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say how good the clusters of a model are, by site and in all.

    FILE is CSV or Parquet, one for each site; NAME=FILE gives it another name; or it is a site's
    own file, site.toml. The model's columns are found by name, others are ignored. The sites
    answer with sums alone, in two rounds; what stands under a site is what it would find out alone.
    """
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from fedcluster import report
        from fedcluster.cli import _reading as reading
        from fedcluster.cli import _runs as runs
        from fedcluster.cli import _scores as scores
        from fedcluster.model import Model

        runs.check_numbers(min_cluster_size=min_cluster_size)
        model = Model.load(model_file)
        options = reading.ReadOptions(
            site=site_column,
            weight=weight_column,
            group=group_column,
            label=label_column,
            decimal=decimal.value,
        )
        sites = reading.read_for(model, files, options, screen.doing)
        clients = scores.clients(sites, min_cluster_size)
        screen.doing("asking the sites")
        found = screen.wait_for(lambda: scores.evaluate(model, clients))
    screen.result(
        scores.result(found, str(model_file)),
        [
            scores.table(found, screen.width),
            scores.summary_line(found),
            *report.notes(found.sites, absent_too=""),
        ],
    )
