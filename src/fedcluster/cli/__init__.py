"""The command line: ``fit``, ``predict``, ``select-k``, ``evaluate``, ``federation`` and so on.

What is slow to import is imported by the commands, so that help comes at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedcluster.cli import _check as checking
from fedcluster.cli import _federation as federation
from fedcluster.cli import _site as site
from fedcluster.cli._arguments import (
    AsJson,
    Decimal,
    Files,
    GroupColumn,
    ModelFile,
    Out,
    Overwrite,
    Quiet,
    Seed,
    SiteColumn,
    SumsOnly,
    WeightColumn,
)
from fedcluster.cli._choices import Algorithm, DecimalSign, Init, Quality
from fedcluster.cli._evaluate import EXAMPLE, evaluate
from fedcluster.cli._preparing import (
    Bounds,
    Categories,
    Log,
    Missing,
    Pca,
    Scale,
    ScaleName,
    asked,
    content,
    shown,
    unlabelled,
)
from fedcluster.cli._screen import OneLine, Screen
from fedcluster.cli._select import EXAMPLE as SELECT_EXAMPLE
from fedcluster.cli._select import number_of_clusters, select_k

__all__ = ["app"]


app = typer.Typer(
    name="fedcluster",
    cls=OneLine,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,  # they would show rows
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(federation.app, name="federation")
app.add_typer(site.app, name="site")


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Cluster rows that must stay where they are.

    Several sites hold rows of the same kind. Each sends only weighted sums, and all get the
    clusters that k-means finds on the rows of all sites together.
    """
    if version:
        from fedcluster import __version__

        typer.echo(f"fedcluster {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(
    epilog="Example: fedcluster fit north.csv south.csv west.parquet -k 3 --columns age,bmi "
    "--out result"
)
def fit(
    files: Files,
    k: Annotated[
        Any,
        typer.Option(
            "-k",
            "--clusters",
            metavar="K",
            parser=number_of_clusters,
            show_default=False,
            help="How many clusters; auto chooses from 1 to 12, 2-20 from these.",
        ),
    ],
    out: Out,
    columns: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Columns to cluster by; by default all."),
    ] = None,
    scale: Scale = ScaleName.STANDARD,
    missing: Missing = None,
    categories: Categories = None,
    log: Log = None,
    bounds: Bounds = None,
    pca: Pca = None,
    site_column: SiteColumn = None,
    weight_column: WeightColumn = None,
    group_column: GroupColumn = None,
    decimal: Decimal = DecimalSign.POINT,
    algorithm: Annotated[
        Algorithm,
        typer.Option(
            help="auto: exact, best of many starts. lloyd: exact, from --init. fkm: Garst & "
            "Reinders. kfed: one round, Dennis et al. fedavg: Triebe & Rajagopal. With --fuzzy: "
            "auto; fcm, exact from --init; ffcm, Stallmann & Wilbik."
        ),
    ] = Algorithm["AUTO"],
    init: Annotated[Init, typer.Option(help="Where it starts.")] = Init["AUTO"],
    n_init: Annotated[
        int | None,
        typer.Option(metavar="N", show_default="the algorithm's", help="How many starts to try."),
    ] = None,
    fuzzy: Annotated[
        bool, typer.Option("--fuzzy", help="Fuzzy c-means: rows belong to clusters by degrees.")
    ] = False,
    m: Annotated[
        float | None,
        typer.Option(
            "-m",
            metavar="M",
            show_default="2",
            help="The fuzzifier, above 1: near 1, degrees are nearly 0 and 1. Means --fuzzy.",
        ),
    ] = None,
    quality: Annotated[
        Quality,
        typer.Option(help="better and best search longer, for more rounds and more numbers sent."),
    ] = Quality["GOOD"],
    sums_only: SumsOnly = False,
    participation: Annotated[
        float,
        typer.Option(metavar="C", help="The fraction of the sites that is asked in a round."),
    ] = 1.0,
    max_iter: Annotated[int, typer.Option(metavar="N", help="The most rounds.")] = 300,
    tol: Annotated[
        float,
        typer.Option(metavar="T", help="Stop when the centres move less, as in scikit-learn."),
    ] = 1e-4,
    min_cluster_size: Annotated[
        int | None,
        typer.Option(
            metavar="ROWS",
            show_default="the algorithm's",
            help="A site does not send a cluster of fewer rows.",
        ),
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find clusters of the rows of several sites.

    FILE is CSV or Parquet, one for each site, which is called like its file; NAME=FILE gives it
    another name. Columns are matched by name. Or FILE is a site.toml, one for each site, which
    says where its rows lie and what may leave.

    Columns of numbers are scaled, missing values filled in and text with few values turned into
    columns of 0 and 1, the same at all sites; what was done is shown, and kept in the model.

    Writes model.json (the centres), labels/SITE.csv (the cluster of each row, with --fuzzy also
    its degrees) and history.json (what happened, and what each site sent); with -k auto also
    selection.json and curves.png (why so many, see select-k).
    """
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from fedcluster import report
        from fedcluster.cli import _reading as reading
        from fedcluster.cli import _runs as runs
        from fedcluster.cli import _selections as selections
        from fedcluster.io._outputs import check_folder

        runs.check_numbers(runs.most(k), n_init, max_iter, tol, min_cluster_size, seed)
        fuzzifier = runs.fuzzifier(algorithm.value, m, fuzzy=fuzzy)
        check_folder(out, overwrite=overwrite)
        prepare = asked(scale, missing, categories, columns, log, bounds, pca)
        options = reading.ReadOptions(
            columns, site_column, weight_column, group_column, decimal=decimal.value
        )
        tables = reading.read(files, options, screen.doing, prepare)
        runs.enough_rows(runs.most(k), tables)
        parameters = {
            "prepare": prepare,
            "algorithm": algorithm.value,
            "init": init.value,
            "n_init": n_init or "auto",
            "max_iter": max_iter,
            "tol": tol,
            "min_cluster_size": min_cluster_size or "auto",
            "quality": quality.value,
            "sums_only": sums_only,
            "participation": runs.fraction(participation),
        }
        estimator = screen.wait_for(
            lambda: runs.cluster(tables, k, seed, screen.doing, fuzzifier, **parameters)
        )
        chosen = selections.of(estimator)
        screen.warnings += chosen.warnings
        more = {**chosen.content, **content(estimator)}
        record, written = runs.write(out, estimator, tables, chosen.draw, **more)
    screen.result(
        runs.result(record, out, written, **more),
        [
            *chosen.shown,
            *shown(estimator, screen.width, str(out / "model.json")),
            report.cluster_table(record.sites, screen.width, str(out / "history.json")),
            report.summary_line(record),
            *report.notes(record.sites),
            *unlabelled(estimator.site_labels_),
            report.written_line(out, written),
        ],
    )


@app.command(epilog="Example: fedcluster predict result/model.json new.csv --out new-labels")
def predict(
    model_file: ModelFile,
    files: Files,
    out: Out,
    decimal: Decimal = DecimalSign.POINT,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Give each row of new files the cluster of a model.

    FILE is CSV or Parquet; NAME=FILE names its site; or it is a site's own file, site.toml. The
    model's columns are found by name, others are ignored. Writes labels/SITE.csv: the number of
    each row and its cluster.
    """
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from fedcluster import report
        from fedcluster.cli import _reading as reading
        from fedcluster.cli import _runs as runs
        from fedcluster.io._outputs import check_folder
        from fedcluster.model import Model
        from fedcluster.preprocessing import noticed_in_words

        model = Model.load(model_file)
        check_folder(out, overwrite=overwrite)
        options = reading.ReadOptions(decimal=decimal.value)
        tables = reading.read_for(model, files, options, screen.doing)
        screen.doing("labelling")
        labels = screen.wait_for(lambda: runs.label(model, tables))
        sites = runs.write_labels_of(out, model, tables, labels)
        unknown, filled = runs.noticed(model, tables)
    written = [site.labels for site in sites]
    ignored = {site: list(table.ignored) for site, table in tables.items()}
    screen.result(
        {
            "sites": report.plain(sites),
            "ignored": ignored,
            "unknown": unknown,
            "filled": filled,
            "out": str(out),
            "files": written,
        },
        [
            report.cluster_table(sites, screen.width, str(out / "labels")),
            *report.ignored_lines(ignored),
            *noticed_in_words(unknown, filled),
            *unlabelled(labels),
            report.written_line(out, written),
        ],
    )


app.command("select-k", epilog=SELECT_EXAMPLE)(select_k)
app.command(
    epilog=checking.EXAMPLE,
    short_help="Read a site's rows as its file says, and send nothing.",
)(checking.check)
app.command(epilog=EXAMPLE)(evaluate)


@app.command(
    short_help="Cluster handwritten digits at five simulated sites.",
    epilog="Example: fedcluster demo --out demo",
)
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write.")] = (
        Path("demo")
    ),
    seed: Seed = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """See it work: handwritten digits at five sites that each saw only some of them.

    Compares what the sites find together with k-means on the pooled rows and with each site
    alone. Writes what fit writes and, with matplotlib, centers.png.
    """
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from fedcluster import _demo as digits
        from fedcluster import report
        from fedcluster.cli import _runs as runs
        from fedcluster.io._outputs import check_folder

        runs.check_numbers(seed=seed)
        check_folder(out, overwrite=True)
        screen.doing("reading the digits")
        sites = digits.digits_by_site(seed)
        tables = digits.tables(sites)
        estimator = screen.wait_for(lambda: runs.cluster(tables, 10, seed, screen.doing))
        screen.doing("comparing with pooled k-means and with each site alone")
        compared = screen.wait_for(lambda: digits.compare(sites, estimator.cluster_centers_, seed))
        screen.doing("drawing")
        record, written = runs.write(
            out,
            estimator,
            tables,
            lambda folder, record: digits.draw(folder, record, estimator.cluster_centers_, sites),
            comparison=report.plain(compared),
        )
    screen.result(
        runs.result(record, out, written, comparison=report.plain(compared)),
        [
            digits.story(sites),
            report.comparison_table(compared),
            report.summary_line(record),
            *report.notes(record.sites),
            report.written_line(out, written),
        ],
    )
