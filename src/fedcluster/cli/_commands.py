"""Commands that work on files of this machine: fit, predict, select-k, evaluate and demo.

What is slow to import is imported by the commands, so that help comes at once, and what needs the
compiler only once the rows are read, so that mistakes do.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from fedcluster._specifications import Fit, SelectK
from fedcluster.cli._options import (
    AlsoProfile,
    AsJson,
    Columns,
    Dates,
    Elbow,
    Exclude,
    FileOptions,
    Files,
    Fuzzy,
    GapBounds,
    JoinOptions,
    LeastRows,
    MinClusterSize,
    ModelFile,
    Out,
    OutIfAny,
    OutOfFit,
    OwnAlgorithm,
    OwnMetrics,
    Quiet,
    Scaling,
    Seed,
    Shaping,
    ShowOptions,
    ValueOptions,
    asked,
    check_least,
    check_options,
    with_fuzzifier,
    with_options,
)
from fedcluster.cli._screen import Screen


@with_options
def fit(
    files: Files,
    *,
    columns: Columns = None,
    exclude: Exclude = None,
    dates: Dates = None,
    scaling: Scaling,
    shaping: Shaping,
    rows: FileOptions,
    job: Fit,
    fuzzy: Fuzzy = False,
    min_cluster_size: MinClusterSize = None,
    out: OutOfFit = Path("result"),
    report: Annotated[
        bool, typer.Option(help="Write report.html, a page on the run to read in a browser.")
    ] = True,
    join: JoinOptions,
    show: ShowOptions,
) -> None:
    """Find clusters of the rows of several sites.

    FILE is CSV, Parquet, Excel, SAS, SPSS, Stata, SQLite, DuckDB, .npy, .npz or .h5ad, one for
    each site, which is called like its file; NAME=FILE gives it another name,
    FILE:decimal=,:encoding=cp1252 or FILE:sheet=NAME says how it is read. Columns are matched by
    name. Or FILE is a site.toml, one for each site, which says where its rows lie and what may
    leave.

    Columns of numbers are scaled, missing values filled in and text with few values turned into
    columns of 0 and 1, the same at all sites; what was done is shown, and kept in the model.

    Writes model.json (the centres), labels/SITE.csv (the cluster of each row, with --fuzzy also
    its degrees), history.json (what happened, and what each site sent) and report.html (all of
    that but the labels, to read); with -k auto also selection.json and curves.png (why so many,
    see select-k); with --append tables/SITE.csv.
    """
    with Screen(as_json=show.as_json, quiet=show.quiet) as screen:
        from fedcluster.cli import _joining as joining
        from fedcluster.cli import _reading as reading

        check_options(job)
        check_least("--min-cluster-size", min_cluster_size)
        job = with_fuzzifier(job, fuzzy=fuzzy)
        show.check_folder(out)
        job = replace(job, prepare=asked(scaling, columns, shaping))
        rows = replace(rows, columns=columns, exclude=exclude, dates=dates)
        rows = replace(rows, id_column=join.id_column)
        joined = joining.opened(files, join, rows, of_all=rows.site_column is not None)
        read = reading.read(files, rows, screen.doing, job.prepare)
        from fedcluster._report import _messages as messages
        from fedcluster._report import _tables as tables
        from fedcluster._report._profiles import profiles_shown
        from fedcluster.cli import _runs as runs

        job = runs.with_dates(job, read.dates)
        fitted = screen.wait_for(
            lambda: runs.cluster(job, read.tables, screen.doing, min_cluster_size)
        )
        fitted = fitted.with_decisions(read.left_out, read.notes)
        screen.warnings += fitted.warnings
        content, written = runs.write(out, fitted, joining=joined, report=report)
    screen.result(
        runs.result(content, out, written),
        [
            *fitted.shown(screen.width, str(out / "model.json")),
            *profiles_shown(content, screen.width, out / "history.json"),
            tables.cluster_table(fitted.records, screen.width, str(out / "history.json")),
            messages.summary_line(content),
            *messages.notes(fitted.records),
            *runs.unlabelled(fitted.labels),
            messages.written_line(out, written),
        ],
    )


@with_options
def predict(
    model_file: ModelFile,
    files: Files,
    *,
    out: Out,
    algorithm: OwnAlgorithm = None,
    values: ValueOptions,
    join: JoinOptions,
    show: ShowOptions,
) -> None:
    """Give each row of new files the cluster of a model.

    FILE is CSV, Parquet, Excel, SAS, SPSS, Stata, SQLite, DuckDB, .npy, .npz or .h5ad; NAME=FILE
    names its site; or it is a site's own file, site.toml. The model's columns are found by name,
    others are ignored. Writes labels/SITE.csv: the number of each row and its cluster; with
    --append also tables/SITE.csv.
    """
    with Screen(as_json=show.as_json, quiet=show.quiet) as screen:
        from fedcluster.cli import _joining as joining
        from fedcluster.cli import _reading as reading
        from fedcluster.model import Model

        model = Model.load(model_file, [algorithm] if algorithm else ())
        show.check_folder(out)
        joined = joining.opened(files, join, values)
        rows = FileOptions(**asdict(values), id_column=join.id_column)
        tables = reading.read_for(model, files, rows, screen.doing)
        from fedcluster._report import _messages as messages
        from fedcluster._report import _tables as report
        from fedcluster.cli import _runs as runs
        from fedcluster.preprocessing._messages import noticed_in_words

        screen.doing("labelling")
        labels = screen.wait_for(lambda: runs.label(model, tables))
        sites = runs.write_labels_of(out, model, tables, labels, joined)
        unknown, filled = runs.noticed(model, tables)
    written = [site.labels for site in sites]
    written += joined.files(written)
    kept = (join.id_column,)
    ignored = {
        site: [name for name in table.ignored if name not in kept] for site, table in tables.items()
    }
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
            *messages.ignored_lines(ignored),
            *noticed_in_words(unknown, filled),
            *runs.unlabelled(labels),
            messages.written_line(out, written),
        ],
    )


@with_options
def select_k(
    files: Files,
    *,
    job: SelectK,
    elbow: Elbow = False,
    bounds: GapBounds = None,
    columns: Columns = None,
    exclude: Exclude = None,
    dates: Dates = None,
    scaling: Scaling,
    rows: FileOptions,
    min_cluster_size: MinClusterSize = None,
    out: OutIfAny = None,
    show: ShowOptions,
) -> None:
    """Say how many clusters the rows of several sites have, and why.

    FILE is CSV, Parquet, Excel, SAS, SPSS, Stata, SQLite, DuckDB, .npy, .npz or .h5ad, one for
    each site, which is called like its file; NAME=FILE gives it another name; or it is a site's
    own file, site.toml. Columns are matched by name. Every k is tried in the same rounds.

    Shows what each index says of each k. With --out writes selection.json (the same) and, with
    matplotlib, curves.png. To keep the clusters, use fedcluster fit -k auto.
    """
    with Screen(as_json=show.as_json, quiet=show.quiet) as screen:
        from fedcluster.cli import _indices as indices
        from fedcluster.cli import _reading as reading
        from fedcluster.cli import _runs as runs

        check_options(job)
        check_least("--min-cluster-size", min_cluster_size)
        show.check_folder(out)
        job = indices.specified(job, asked(scaling, columns), bounds, elbow=elbow)
        rows = replace(rows, columns=columns, exclude=exclude, dates=dates)
        read = reading.read(files, rows, screen.doing, job.prepare)
        job = runs.with_dates(job, read.dates)
        chosen = screen.wait_for(
            lambda: indices.choose(job, read.tables, screen.doing, min_cluster_size)
        )
        chosen = chosen.with_decisions(read.left_out, read.notes)
        screen.warnings += chosen.fit_report.warnings
        screen.warnings += chosen.outcome.value.warnings
        written = indices.write_choice(out, chosen) if out is not None else []
    screen.result(
        indices.selection_result(chosen, out, written),
        indices.selection_shown(chosen, out, written),
    )


@with_options
def evaluate(
    model_file: ModelFile,
    files: Files,
    *,
    label_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column with labels, to compare the clusters with."),
    ] = None,
    metric: OwnMetrics = None,
    algorithm: OwnAlgorithm = None,
    rows: FileOptions,
    min_cluster_size: LeastRows = 1,
    profile: AlsoProfile = False,
    out: OutIfAny = None,
    show: ShowOptions,
) -> None:
    """Say how good the clusters of a model are, by site and in all.

    FILE is CSV, Parquet, Excel, SAS, SPSS, Stata, SQLite, DuckDB, .npy, .npz or .h5ad, one for
    each site; NAME=FILE gives it another name; or it is a site's own file, site.toml. The model's
    columns are found by name, others are ignored. The sites answer with sums alone, in two rounds;
    what stands under a site is what it would find out alone. With --out writes scores.json, the
    same.
    """
    with Screen(as_json=show.as_json, quiet=show.quiet) as screen:
        from fedcluster._report import _messages as messages
        from fedcluster._report import _profiles as report
        from fedcluster.cli import _indices as indices
        from fedcluster.cli import _reading as reading
        from fedcluster.model import Model

        check_least("--min-cluster-size", min_cluster_size)
        model = Model.load(model_file, [algorithm] if algorithm else ())
        show.check_folder(out)
        sites = reading.read_for(
            model, files, replace(rows, label_column=label_column), screen.doing
        )
        screen.doing("asking the sites")
        scored = screen.wait_for(
            lambda: indices.evaluate(model, sites, min_cluster_size, metric or (), profile=profile)
        )
        content = indices.evaluation_content(scored, str(model_file))
        written = indices.write_evaluation(out, scored, content) if out is not None else []
    screen.result(
        content,
        [
            indices.evaluation_table(scored, screen.width),
            *content["meaning"],
            *report.profiles_shown(content, screen.width, out and out / "scores.json"),
            indices.evaluation_line(scored),
            *messages.notes(scored.sites, absent_too=""),
            *written,
        ],
    )


def warm_up(as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Compile the numerical kernels, so that no first fit has to wait for that.

    They are compiled once on a machine, for its processor and this version, and kept beside the
    program or, where that cannot be written, in the user's folder of caches; NUMBA_CACHE_DIR names
    another. A fit compiles what it needs and is not there, and says so.
    """
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from time import perf_counter

        from fedcluster.cli import _warming as warming

        begun = perf_counter()
        compiled = screen.wait_for(lambda: warming.warmed(screen.doing))
        seconds = perf_counter() - begun
    said = (
        f"Compiled {compiled} kernels in {seconds:.0f} seconds."
        if compiled
        else "No kernel was missing."
    )
    screen.result({"compiled": compiled, "seconds": round(seconds, 1)}, [said])


@with_options
def demo(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write.")] = (
        Path("demo")
    ),
    seed: Seed = 0,
    show: ShowOptions,
) -> None:
    """See it work: handwritten digits at five sites that each saw only some of them.

    Compares what the sites find together with k-means on the pooled rows and with each site
    alone. Writes what fit writes and, with matplotlib, centers.png.
    """
    with Screen(as_json=show.as_json, quiet=show.quiet) as screen:
        from fedcluster import _demo as digits
        from fedcluster._report import _messages as messages
        from fedcluster._report import _tables as report
        from fedcluster.cli import _runs as runs

        job = Fit(10, seed=seed)
        check_options(job)
        replace(show, overwrite=True).check_folder(out)
        screen.doing("reading the digits")
        sites = digits.digits_by_site(seed)
        fitted = screen.wait_for(lambda: runs.cluster(job, digits.tables(sites), screen.doing))
        centers = fitted.model.centers
        screen.doing("comparing with pooled k-means and with each site alone")
        compared = screen.wait_for(lambda: digits.compare(sites, centers, seed))
        screen.doing("drawing")
        content, written = runs.write(
            out,
            fitted,
            lambda folder: digits.draw(folder, fitted.records, centers, sites),
            comparison=report.plain(compared),
        )
    screen.result(
        runs.result(content, out, written),
        [
            digits.story(sites),
            report.comparison_table(compared),
            digits.MEANING,
            messages.summary_line(content),
            digits.sent(fitted.records),
            messages.written_line(out, written),
            *digits.what_next(out, written),
        ],
    )
