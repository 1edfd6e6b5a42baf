"""Commands that work on files of this machine, on a model and on results.

Slow imports are done within the commands, so that help appears at once, and those that need the
compiler only after rows are read, so that mistakes are reported at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcluster.errors import InputError
from fedcluster.recipes.specifications import Compare, Evaluate, Fit, Profile, SelectK
from fedcluster_app.cli import _options as cli
from fedcluster_app.cli._screen import REFUSALS, Doing, Screen, say, until_interrupted

if TYPE_CHECKING:
    from fedcluster.model import Model
    from fedcluster_app.cli._dask import Partitions
    from fedcluster_app.cli._runs import Counts, Evaluation
    from fedcluster_app.report.tables import SiteRecord

    Labelled = tuple[list[SiteRecord], dict[str, list[str]], Counts, Counts, list[str]]
    """What each site holds, ignored columns, unknown and filled cells, and files of tables."""


@cli.with_options
def fit(
    files: cli.Files,
    *,
    rows: cli.ColumnOptions,
    scaling: cli.Scaling,
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
        job, used = cli.fit_asked(words, scaling, rows.columns, fuzzy=fuzzy)
        show.check_folder(out)
        rows = replace(rows, columns=used, id_column=join.id_column)
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
            more = {"append": join.append, "report": report}
            partitions = _on_dask(engine, files, rows, screen.doing, min_cluster_size, **more)
            from fedcluster_app.cli import _runs as runs

            fitted, content, written = screen.wait_for(lambda: partitions.fit(job, out, said))
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


@cli.with_options
def select_k(
    files: cli.Files,
    *,
    job: SelectK,
    gap_bounds: Any = None,
    rows: cli.ColumnOptions,
    scaling: cli.Scaling,
    min_cluster_size: cli.MinClusterSize = None,
    engine: str | None = None,
    out: cli.OutIfAny = None,
    show: cli.ShowOptions,
) -> None:
    """Choose the number of clusters of several sites' rows, and give the reason.

    Give one FILE for each site: CSV, Parquet, Excel, SAS, SPSS, Stata, SQLite, DuckDB, .npy, .npz
    or .h5ad, or a site.toml; or one study.toml. A site has the name of its file; NAME=FILE sets
    another one. Columns are matched by name. Every k is tried in the same rounds.

    Shows how likely each k is or, by another select_k.rule, every index for every k. With --out,
    writes the same to selection.json and, with matplotlib, curves.png. To keep the clusters, use
    fedcluster fit -k auto.
    """
    with Screen(as_json=show.as_json, quiet=show.quiet) as screen:
        cli.check_options(job)
        cli.check_least("--min-cluster-size", min_cluster_size)
        show.check_folder(out)
        prepare = cli.preparation(scaling, rows.columns)
        job = cli.with_choice(job, prepare, gap_bounds)
        if engine is None:
            from fedcluster_app.cli import _reading as reading
            from fedcluster_app.cli import _runs as runs

            read = reading.read(files, rows, screen.doing, job.prepare)
            chosen = screen.wait_for(
                lambda: runs.run_job(job, read, screen.doing, min_cluster_size)[0]
            )
        else:
            partitions = _on_dask(engine, files, rows, screen.doing, min_cluster_size)
            from fedcluster_app.cli import _runs as runs

            chosen = screen.wait_for(lambda: partitions.select_k(job))
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


def warm_up(quiet: cli.Quiet = False) -> None:
    """Compile the numerical kernels, so that the first fit need not wait.

    Kernels are compiled once on a machine, for its processor and this version, and stored beside
    the program, where they serve all accounts, or, if that is not possible, in the user's cache
    folder; NUMBA_CACHE_DIR sets another one. A fit compiles the kernels that it needs and does not
    find, and says so.
    """
    with Screen(as_json=False, quiet=quiet) as screen:
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
    screen.result({}, [line])


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
        for each in played(data, protections, seed=seed):
            audits.append(each)
            screen.doing(f"played against {each.protection}")
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            write_json(out / "audit.json", content(audits))
    screen.result(content(audits), [audit_table(audits), *sentences(audits)], whole=True)
    if fail_above is not None and audits[0].worst > fail_above:
        raise typer.Exit(FAILED)


@cli.with_options
def predict(
    model_file: cli.ModelFile,
    files: cli.Files,
    *,
    out: cli.Out,
    strict: Annotated[
        bool, typer.Option("--strict", help="Write nothing if rows are unlike those of the fit.")
    ] = False,
    own_algorithm: str | None = None,
    engine: str | None = None,
    values: cli.ValueOptions,
    join: cli.JoinOptions,
    show: cli.ShowOptions,
) -> None:
    """Assign the rows of new files to the clusters of a model.

    FILE is CSV, Parquet, Excel, SAS, SPSS, Stata, SQLite, DuckDB, .npy, .npz or .h5ad, or a
    site.toml; NAME=FILE names its site. Columns of the model are found by name; others are
    ignored. Writes SITE.csv into the folder, with the number and the cluster of each row; with
    --append also tables/SITE.csv.
    """
    with Screen(as_json=show.as_json, quiet=show.quiet) as screen:
        show.check_folder(out)
        rows = cli.FileOptions(**asdict(values), id_column=join.id_column)
        algorithm = cli.own(own_algorithm)
        sites, ignored, unknown, filled, tables = _label(
            engine, model_file, files, rows, algorithm, join, out, screen, strict=strict
        )
        from fedcluster.core.files import plain
        from fedcluster.preprocessing.spec import noticed_in_words
        from fedcluster_app.cli import _runs as runs
        from fedcluster_app.report import messages
        from fedcluster_app.report import tables as report
    written = [*(site.labels for site in sites), *tables]
    screen.result(
        {
            "sites": plain(sites),
            "ignored": ignored,
            "unknown": unknown,
            "filled": filled,
            "warnings": [line for line in screen.warnings if line not in screen.notes],
            "out": str(out),
            "files": written,
        },
        [
            report.cluster_table(sites, screen.width, "--json"),
            *messages.ignored_lines(ignored),
            *noticed_in_words(unknown, filled),
            *runs.unlabelled({site.name: site.rows - sum(site.clusters) for site in sites}),
            *messages.written_lines(out, written),
        ],
    )


def _on_dask(
    engine: str,
    files: Sequence[str],
    rows: cli.FileOptions,
    doing: Doing,
    smallest: int | None = None,
    **more: bool,
) -> Partitions:
    """Return files on a Dask cluster, after checking that all options apply there."""
    address = cli.check_engine(engine, rows, smallest, **more)
    from fedcluster_app.cli._dask import Partitions

    return Partitions(files, rows, address, doing)


def _label(
    engine: str | None,
    model_file: Path,
    files: Sequence[str],
    rows: cli.FileOptions,
    algorithm: str | None,
    join: cli.JoinOptions,
    out: Path,
    screen: Screen,
    *,
    strict: bool,
) -> Labelled:
    """Label the rows of files, and write the labels."""
    from fedcluster_app.cli import _reading as reading

    if engine is not None:
        partitions = _on_dask(engine, files, rows, screen.doing, append=join.append)
        [model], roles = reading.models_of([model_file], rows, algorithm)
        found = screen.wait_for(lambda: partitions.predict(model, roles, out, strict=strict))
        screen.warnings += found[-1]
        return *found[:-1], []
    joined = reading.open_tables(files, join, rows)
    [model], read = reading.read_for_models([model_file], files, rows, screen.doing, algorithm)
    from fedcluster_app.cli import _runs as runs

    screen.doing("labelling")
    tables = read.tables
    labels = screen.wait_for(
        lambda: runs.label(model, {site: table.rows for site, table in tables.items()})
    )
    unlike = runs.unlike(model, tables)
    cli.check_like_fit(unlike if strict else ())
    sites = runs.write_predictions(out, model, tables, labels, joined)
    screen.warnings += unlike
    ignored = {
        site: [name for name in table.ignored if name != join.id_column]
        for site, table in tables.items()
    }
    written = joined.files([site.labels for site in sites])
    return sites, ignored, *runs.unknown_and_filled(model, tables), written


def _asking(
    engine: str | None,
    model_files: Sequence[Path],
    files: Sequence[str],
    rows: cli.FileOptions,
    algorithm: str | None,
    smallest: int,
    doing: Doing,
) -> tuple[list[Model], Callable[[Evaluate | Profile], Evaluation]]:
    """Return models, and a function that runs a job on them where the rows are."""
    from fedcluster_app.cli import _reading as reading

    if engine is None:
        models, read = reading.read_for_models(model_files, files, rows, doing, algorithm)
        from fedcluster_app.cli import _runs as runs

        return models, lambda job: runs.on_model(job, read, doing, smallest)
    partitions = _on_dask(engine, files, rows, doing, smallest if smallest > 1 else None)
    models, roles = reading.models_of(model_files, rows, algorithm)
    return models, lambda job: partitions.on_model(job, roles)


@cli.with_options
def evaluate(
    model_file: cli.ModelFile,
    files: cli.Files,
    *,
    label_column: Annotated[
        str | None,
        cli.option("NAME", "Column with reference labels, to compare the clusters with."),
    ] = None,
    metrics: Sequence[str] = (),
    own_algorithm: str | None = None,
    engine: str | None = None,
    rows: cli.FileOptions,
    min_cluster_size: cli.LeastRows = 1,
    profile: cli.AlsoProfile = False,
    beside: cli.Beside = None,
    out: cli.OutIfAny = None,
    show: cli.ShowOptions,
) -> None:
    """Compute how good the clusters of a model are, for each site and in all.

    Give one FILE for each site: CSV, Parquet, Excel, SAS, SPSS, Stata, SQLite, DuckDB, .npy, .npz
    or .h5ad, or a site.toml; NAME=FILE sets another name. Columns of the model are found by name;
    others are ignored. The sites answer with sums, in two rounds. The column of a site shows what
    it would find alone. With --out, writes the same to scores.json.
    """
    with Screen(as_json=show.as_json, quiet=show.quiet) as screen:
        cli.check_least("--min-cluster-size", min_cluster_size)
        show.check_folder(out)
        algorithm, metrics = cli.own(own_algorithm), cli.from_current_folder(metrics)
        rows = replace(rows, label_column=label_column)
        both = [model_file, *([beside] if beside else [])]
        [model, *other], ask = _asking(
            engine, both, files, rows, algorithm, min_cluster_size, screen.doing
        )
        job = Evaluate(
            model,
            metrics=metrics,
            algorithms=[algorithm] if algorithm else [],
            profile=profile,
            beside=other[0] if other else None,
        )
        scored = screen.wait_for(lambda: ask(job))
        from fedcluster_app.cli import _runs as runs
        from fedcluster_app.report import messages
        from fedcluster_app.report.tables import profiles_shown

        content = scored.content | {"model": str(model_file)}
        written = runs.write_report(out, scored.report, content)
    file = out and out / "scores.json"
    screen.result(
        content,
        [
            scored.table(screen.width, str(file or "--json")),
            *content["meaning"],
            *profiles_shown(content, screen.width, file),
            scored.line,
            *messages.notes(scored.sites, absent_too=""),
            *messages.written_lines(out, written),
        ],
        file,
    )


@cli.with_options
def profile(
    model_file: cli.ModelFile,
    files: cli.Files,
    *,
    own_algorithm: str | None = None,
    engine: str | None = None,
    rows: cli.FileOptions,
    min_cluster_size: cli.LeastRows = 1,
    keep_names: cli.KeepNames = False,
    out: cli.OutIfAny = None,
    show: cli.ShowOptions,
) -> None:
    """Describe what sets the clusters of a model apart, column by column, and propose names.

    Give one FILE for each site: CSV, Parquet, Excel, SAS, SPSS, Stata, SQLite, DuckDB, .npy, .npz
    or .h5ad, or a site.toml; NAME=FILE sets another name. Columns of the model are found by name;
    others are ignored. The sites answer with sums and counts, in two rounds: means, spreads and
    medians of numbers, and shares of texts, in the units of the files. With --out, writes the
    same to profiles.json. To change a name, use fedcluster name.
    """
    with Screen(as_json=show.as_json, quiet=show.quiet) as screen:
        from fedcluster.model.file import write_names
        from fedcluster_app.cli import _runs as runs
        from fedcluster_app.report import messages
        from fedcluster_app.report.job_files import content_of
        from fedcluster_app.report.tables import profiles_shown

        cli.check_least("--min-cluster-size", min_cluster_size)
        show.check_folder(out)
        algorithm = cli.own(own_algorithm)
        [model], ask = _asking(
            engine, [model_file], files, rows, algorithm, min_cluster_size, screen.doing
        )
        profiled = screen.wait_for(lambda: ask(Profile(model, [algorithm] if algorithm else [])))
        report, records = profiled.report, profiled.sites
        content = content_of(report, records) | {"model": str(model_file)}
        written = messages.written_lines(out, runs.write_report(out, report, content))
        if keep_names and report.profiles is not None:
            write_names(model_file, dict(enumerate(report.profiles.names)))
            written.append(f"Wrote the names into {model_file}.")
    screen.result(
        content,
        [
            *profiles_shown(content, screen.width, out and out / "profiles.json"),
            *messages.notes(records, absent_too=""),
            *written,
        ],
        out and out / "profiles.json",
    )


@cli.with_options
def compare(
    model_file: cli.ModelFile,
    files: cli.Files,
    *,
    outcome: cli.Outcomes = None,
    time_column: cli.TimeColumn = None,
    values: cli.ValueOptions,
    min_cluster_size: cli.LeastRows = 1,
    out: cli.OutIfAny = None,
    show: cli.ShowOptions,
) -> None:
    """Compare the clusters of a model by outcomes that were not clustered by.

    Give one FILE for each site, as for fedcluster profile. Texts, and numbers that are 0 or 1, are
    compared by counts, other numbers by means and ranks, and, with --time, what is 0 or 1 by
    survival; each over all rows and within sites, corrected for the number of outcomes. The sites
    answer with sums and counts, in three rounds. With --out, writes comparison.json, with effect
    sizes, intervals and survival curves.
    """
    with Screen(as_json=show.as_json, quiet=show.quiet) as screen:
        from fedcluster_app.cli import _reading as reading

        cli.check_least("--min-cluster-size", min_cluster_size)
        show.check_folder(out)
        job = Compare(None, tuple(dict.fromkeys(outcome or ())), time_column)
        rows = cli.FileOptions(**asdict(values))
        [model], read = reading.read_for_models(
            [model_file], files, rows, screen.doing, more=job.columns
        )
        from fedcluster_app.cli import _runs as runs
        from fedcluster_app.report import messages
        from fedcluster_app.report.job_files import content_of

        job = replace(job, model=model)
        found = screen.wait_for(lambda: runs.on_model(job, read, screen.doing, min_cluster_size))
        content = content_of(found.report, found.sites) | {"model": str(model_file)}
        written = runs.write_report(out, found.report, content)
    screen.result(
        content,
        [
            *content["comparison"]["sentences"],
            *messages.notes(found.sites, absent_too=""),
            *messages.written_lines(out, written),
        ],
        out and out / "comparison.json",
    )


def simulate(
    model_file: cli.ModelFile,
    *,
    out: cli.Out,
    seed: cli.Seed = 0,
    overwrite: cli.Overwrite = False,
) -> None:
    """Draw files shaped like those of the sites of a model, to write a study's code by.

    Writes SITE.csv for each site of the fit, with the columns of the model in their units and
    texts, drawn from its clusters. Nothing but MODEL is read, so that no row of a site can appear,
    and the files tell no more than it does. The output says what a model does not hold.
    """
    with Screen(as_json=False, quiet=False) as screen:
        from fedcluster.model import Model
        from fedcluster.model.simulation import not_known
        from fedcluster_app.report.messages import written_lines
        from fedcluster_app.tables.outputs import check_folder, write_tables

        check_folder(out, overwrite=overwrite)
        model = Model.load(model_file)
        tables, labels = model.simulate(seed=seed)
        written = write_tables(out, tables)
        n = len(next(iter(labels.values())))
    lines = [f"Drew {n:,} rows for each site.", *not_known(model), *written_lines(out, written)]
    screen.result({}, lines)


def name(
    model_file: cli.ModelFile,
    names: Annotated[
        list[str],
        cli.argument("CLUSTER=NAME...", "Clusters and their names."),
    ],
    as_json: cli.AsJson = False,
) -> None:
    """Name the clusters of a model, without reading rows.

    CLUSTER is the number of a cluster. The model stores the names; other clusters keep the
    names that its report shows.
    """
    with Screen(as_json=as_json, quiet=False) as screen:
        from fedcluster.model.file import read, write_names
        from fedcluster.model.run import Run, read_run

        given, folder = names_by_number(names), model_file
        if model_file.name == "model.json":
            folder = model_file.parent
        run = read_run(folder) if folder.is_dir() else Run(model=read(folder))
        every = write_names(model_file, dict(enumerate(run.names)) | given)
    shown = [f"{j}: {each}" for j, each in enumerate(every)]
    content = {"names": list(every), "model": str(model_file)}
    screen.result(content, [*shown, f"Wrote the names into {model_file}."])


def names_by_number(arguments: Sequence[str]) -> dict[int, str]:
    """Return names by the number of the cluster, from CLUSTER=NAME.

    Examples
    --------
    >>> names_by_number(["0=older, high bp", "2=young"])
    {0: 'older, high bp', 2: 'young'}
    """
    names: dict[int, str] = {}
    for each in arguments:
        number, equals, name = each.partition("=")
        if not equals or not number.strip().isdecimal():
            raise InputError(f"{each!r} names no cluster: write its number, =, and the name")
        if int(number) in names:
            raise InputError(f"cluster {int(number)} is named twice; name it once")
        names[int(number)] = name
    return names


RunFolder = Annotated[
    Path,
    cli.argument("DIR", "Folder of results (--out), or of a run of a federation: DIR/runs/RUN."),
]


def report(folder: RunFolder, *, as_json: cli.AsJson = False) -> None:
    """Write report.html, a page about a run to read in a browser, print or hand on.

    The page shows what fit, select-k, evaluate, profile and compare wrote to DIR and needs no
    network. It contains sums, counts and means, but no row and no label of a row. To compare two
    models, use fedcluster evaluate --beside.
    """
    with Screen(as_json=as_json, quiet=False) as screen:
        from fedcluster.model.run import read_run, written_by
        from fedcluster_app.report.page import write_report

        place = written_by(folder)
        path = place / write_report(place, read_run(folder))
    screen.result({"report": str(path)}, [f"Wrote {path}: open it in a browser."])


def watch(
    folder: Annotated[
        Path,
        cli.argument(
            "DIR", "Folder of a federation, to follow its last run, or of a run: DIR/runs/RUN."
        ),
    ],
) -> None:
    """Follow a run of a federation on a page, until it ends or Ctrl-C.

    The page, live.html in the folder of the run, is written each second, and a browser reads it
    again. It shows the round and which sites answer or are late. When the run ends, it becomes the
    report.
    """
    with Screen(as_json=False, quiet=False):
        from fedcluster_app.coordinator.live import PAGE, followed, write_live

        run = followed(folder)
        goes_on = write_live(run, time.time())
        say(f"Open {run / PAGE} in a browser; end it here with Ctrl-C.")
        with until_interrupted():
            while goes_on:
                time.sleep(1)
                goes_on = write_live(run, time.time())
    say("Ended.")
