"""Commands that work on files of this machine: fit, select-k, warm-up and audit.

Slow imports are done within the commands, so that help appears at once, and those that need the
compiler only after rows are read, so that mistakes are reported at once.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedcluster.recipes.specifications import Fit, SelectK
from fedcluster_app.cli import _options as cli
from fedcluster_app.cli._keys import with_options
from fedcluster_app.cli._screen import REFUSALS, Screen


@with_options
def fit(
    files: cli.Files,
    *,
    columns: cli.Columns = None,
    exclude: cli.Exclude = None,
    lenient: cli.Lenient = False,
    dates: Any = None,
    scaling: cli.Scaling,
    rows: cli.FileOptions,
    words: Fit,
    fuzzy: cli.Fuzzy = False,
    min_cluster_size: cli.MinClusterSize = None,
    engine: str | None = None,
    out: cli.Out = Path("result"),
    report: bool = True,
    join: cli.JoinOptions,
    show: cli.ShowOptions,
    said: dict[str, Any],
) -> None:
    """Cluster the rows of several sites.

    Give one FILE for each site: CSV, Parquet, Excel, SAS, SPSS, Stata, SQLite, DuckDB, .npy, .npz
    or .h5ad. A site has the name of its file; NAME=FILE sets another one. Columns are matched by
    name. FILE may also be a site.toml, which says where the rows of a site are and what may leave
    it. Or give one study.toml, which names the sites and says all else; options count before it.

    Columns are prepared in the same way at all sites: numbers are scaled, missing values filled
    in, and text with few values turned into columns of 0 and 1. The output says what was done,
    and the model stores it.

    Writes model.json (the centres), labels/SITE.csv (the cluster of each row; with --fuzzy also
    its memberships), history.json (the rounds, and what each site sent) and report.html (all but
    the labels, as a page); with -k auto also selection.json and curves.png (see select-k); with
    --append also tables/SITE.csv; and study.toml, of which fedcluster fit does the same again.
    """
    with Screen(as_json=show.as_json, quiet=show.quiet) as screen:
        from fedcluster_app.cli import _reading as reading

        cli.check_least("--min-cluster-size", min_cluster_size)
        job, used = cli.fit_asked(words, scaling, columns, fuzzy=fuzzy)
        show.check_folder(out)
        rows = replace(rows, columns=used, exclude=exclude, lenient=lenient, dates=dates or {})
        rows = replace(rows, id_column=join.id_column)
        if engine is None:
            joined = reading.open_tables(files, join, rows, of_all=rows.site_column is not None)
            read = reading.read(files, rows, screen.doing, job.prepare)
            from fedcluster_app.cli import _runs as runs
            from fedcluster_app.cli._study import as_written

            fitted = screen.wait_for(lambda: runs.fit(job, read, screen.doing, min_cluster_size))
            fitted, content, written = runs.write_fit(
                out,
                fitted,
                as_written(said, files, read.dates, out),
                joining=joined,
                report=report,
            )
        else:
            address = cli.check_engine(
                engine, rows, min_cluster_size, append=join.append, report=report
            )
            from fedcluster_app.cli import _dask as on_dask
            from fedcluster_app.cli import _runs as runs

            fitted, content, written = screen.wait_for(
                lambda: on_dask.fit(job, files, rows, address, out, screen.doing, said)
            )
        screen.warnings += content["warnings"]
        from fedcluster_app.report import messages, tables
    screen.result(
        runs.result(content, out, written),
        [
            *fitted.shown(screen.width, out),
            *tables.profiles_shown(content, screen.width, out / "history.json"),
            tables.cluster_table(fitted.records, screen.width, str(out / "history.json")),
            messages.summary_line(content),
            *(messages.notes(fitted.records) if job.epsilon is None else ()),
            *messages.privacy_lines(content, exact=True),
            *runs.unlabelled({at: int((each < 0).sum()) for at, each in fitted.labels.items()}),
            *messages.written_lines(out, written),
        ],
        out / "history.json",
    )


@with_options
def select_k(
    files: cli.Files,
    *,
    job: SelectK,
    gap_bounds: Any = None,
    columns: cli.Columns = None,
    exclude: cli.Exclude = None,
    lenient: cli.Lenient = False,
    dates: Any = None,
    scaling: cli.Scaling,
    rows: cli.FileOptions,
    min_cluster_size: cli.MinClusterSize = None,
    engine: str | None = None,
    out: cli.OutIfAny = None,
    show: cli.ShowOptions,
) -> None:
    """Choose the number of clusters of several sites' rows, and give the reason.

    Give one FILE for each site: CSV, Parquet, Excel, SAS, SPSS, Stata, SQLite, DuckDB, .npy, .npz
    or .h5ad, or a site.toml; or one study.toml. A site has the name of its file; NAME=FILE sets
    another one. Columns are matched by name. Every k is tried in the same rounds.

    Shows how likely each k is or, by another --rule, every index for every k. With --out, writes
    the same to selection.json and, with matplotlib, curves.png. To keep the clusters, use
    fedcluster fit -k auto.
    """
    with Screen(as_json=show.as_json, quiet=show.quiet) as screen:
        cli.check_options(job)
        cli.check_least("--min-cluster-size", min_cluster_size)
        show.check_folder(out)
        prepare = cli.preparation(scaling, columns)
        job = cli.with_choice(job, prepare, gap_bounds)
        rows = replace(rows, columns=columns, exclude=exclude, lenient=lenient, dates=dates or {})
        if engine is None:
            from fedcluster_app.cli import _reading as reading
            from fedcluster_app.cli import _runs as runs

            read = reading.read(files, rows, screen.doing, job.prepare)
            chosen = screen.wait_for(
                lambda: runs.run_job(job, read, screen.doing, min_cluster_size)[0]
            )
        else:
            address = cli.check_engine(engine, rows, min_cluster_size)
            from fedcluster_app.cli import _dask as on_dask
            from fedcluster_app.cli import _runs as runs

            chosen = screen.wait_for(
                lambda: on_dask.select_k(job, files, rows, address, screen.doing)
            )
        from fedcluster_app.report import messages
        from fedcluster_app.report.job_files import content_of

        screen.warnings += [*chosen.fit_report.doubts, *chosen.outcome.value.warnings]
        content = content_of(chosen)
        written = runs.write_report(out, chosen, content)
    screen.result(
        runs.result(content, out, written),
        [
            *runs.selection_shown(chosen, str(out / "selection.json" if out else "--json")),
            *messages.written_lines(out, written),
        ],
    )


def warm_up(as_json: cli.AsJson = False, quiet: cli.Quiet = False) -> None:
    """Compile the numerical kernels, so that the first fit need not wait.

    Kernels are compiled once on a machine, for its processor and this version, and stored beside
    the program, where they serve all accounts, or, if that is not possible, in the user's cache
    folder; NUMBA_CACHE_DIR sets another one. A fit compiles the kernels that it needs and does not
    find, and says so.
    """
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from time import perf_counter

        from fedcluster_app.cli import _warming as warming

        begun = perf_counter()
        compiled = screen.wait_for(lambda: warming.warmed(screen.doing))
        seconds = perf_counter() - begun
    line = (
        f"Compiled {compiled} kernels in {seconds:.0f} seconds."
        if compiled
        else "No kernel was missing."
    )
    screen.result({"compiled": compiled, "seconds": round(seconds, 1)}, [line])


FAILED = 1
"""The exit status if an attack reads more rows than --fail-above allows."""


def audit(
    site_file: Annotated[
        Path | None,
        cli.argument("[SITE.TOML]", "The site file."),
    ] = None,
    *,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Attack simulated patients instead.")
    ] = False,
    rows: Annotated[
        int, cli.option("N", "Largest number of rows to use.", min=50, show_default=True)
    ] = 500,
    n_clusters: Annotated[
        int,
        cli.option(
            "K",
            "Number of clusters of the fits whose inertia is compared.",
            "-k",
            min=1,
            show_default=True,
        ),
    ] = 8,
    seed: cli.Seed = 0,
    fail_above: Annotated[
        int | None,
        cli.option(
            "N", "Exit with status 1 if an attack reads more rows of the site as it is.", min=0
        ),
    ] = None,
    out: cli.OutIfAny = None,
    as_json: cli.AsJson = False,
    quiet: cli.Quiet = False,
) -> None:
    """Attack a site on its own machine with known attacks, and count the rows that each reads.

    A fifth of the rows is set aside to measure hits by chance. Nothing is sent, and the site's
    groups and log do not change.
    """
    with Screen(as_json=as_json, quiet=quiet, muted=REFUSALS) as screen:
        from fedcluster.core.files import write_json
        from fedcluster.errors import InputError
        from fedcluster_app.audit.audit import audit as played
        from fedcluster_app.audit.audit import audit_table, content, rows_of, sentences

        if simulated == (site_file is not None):
            raise InputError("name a site.toml, or give --simulated")
        data, protections = rows_of(site_file, rows, seed)
        audits = []
        for each in played(data, protections, n_clusters=n_clusters, seed=seed):
            audits.append(each)
            screen.doing(f"played against {each.protection}")
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            write_json(out / "audit.json", content(audits))
    screen.result(content(audits), [audit_table(audits), *sentences(audits)], whole=True)
    if fail_above is not None and audits[0].worst > fail_above:
        raise typer.Exit(FAILED)
