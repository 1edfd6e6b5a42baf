"""Commands on a model and on results: predict, evaluate, profile, name, report and watch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fedcluster.errors import InputError
from fedcluster.recipes.specifications import Evaluate, Profile
from fedcluster_app.cli import _options as cli
from fedcluster_app.cli._keys import with_options
from fedcluster_app.cli._screen import Doing, Screen, say, until_interrupted

if TYPE_CHECKING:
    from fedcluster.model import Model
    from fedcluster_app.cli._runs import Counts, Evaluation
    from fedcluster_app.report.records import SiteRecord

    Labelled = tuple[list[SiteRecord], dict[str, list[str]], Counts, Counts, list[str]]
    """What each site holds, ignored columns, unknown and filled cells, and files of tables."""


@with_options
def predict(
    model_file: cli.ModelFile,
    files: cli.Files,
    *,
    out: cli.Out,
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
        given = (model_file, files, rows, cli.own(own_algorithm), join, out, screen)
        sites, ignored, unknown, filled, tables = (
            _label(*given) if engine is None else _label_by_dask(engine, *given)
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


def _label(
    model_file: Path,
    files: Sequence[str],
    rows: cli.FileOptions,
    algorithm: str | None,
    join: cli.JoinOptions,
    out: Path,
    screen: Screen,
) -> Labelled:
    """Label the rows of files, and write the labels."""
    from fedcluster_app.cli import _reading as reading

    joined = reading.open_tables(files, join, rows)
    [model], read = reading.read_for_models([model_file], files, rows, screen.doing, algorithm)
    from fedcluster_app.cli import _runs as runs

    screen.doing("labelling")
    tables = read.tables
    labels = screen.wait_for(
        lambda: runs.label(model, {site: table.rows for site, table in tables.items()})
    )
    sites = runs.write_predictions(out, model, tables, labels, joined)
    ignored = {
        site: [name for name in table.ignored if name != join.id_column]
        for site, table in tables.items()
    }
    written = joined.files([site.labels for site in sites])
    return sites, ignored, *runs.unknown_and_filled(model, tables), written


def _label_by_dask(
    engine: str,
    model_file: Path,
    files: Sequence[str],
    rows: cli.FileOptions,
    algorithm: str | None,
    join: cli.JoinOptions,
    out: Path,
    screen: Screen,
) -> Labelled:
    """Label the rows of partitions on a Dask cluster, and write the labels."""
    address = cli.check_engine(engine, rows, append=join.append)
    from fedcluster_app.cli import _dask as on_dask
    from fedcluster_app.cli import _reading as reading

    [model], roles = reading.models_of([model_file], rows, algorithm)
    labelled = screen.wait_for(
        lambda: on_dask.predict(model, files, rows, roles, address, out, screen.doing)
    )
    return *labelled, []


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
    address = cli.check_engine(engine, rows, smallest if smallest > 1 else None)
    from fedcluster_app.cli import _dask as on_dask

    models, roles = reading.models_of(model_files, rows, algorithm)
    return models, lambda job: on_dask.on_model(job, files, rows, roles, address, doing)


@with_options
def evaluate(
    model_file: cli.ModelFile,
    files: cli.Files,
    *,
    label_column: Annotated[
        str | None,
        cli.option("NAME", "Column with reference labels, to compare the clusters with."),
    ] = None,
    metric: cli.OwnMetrics = None,
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
        algorithm, metric = cli.own(own_algorithm), cli.from_current_folder(metric)
        rows = replace(rows, label_column=label_column)
        both = [model_file, *([beside] if beside else [])]
        [model, *other], ask = _asking(
            engine, both, files, rows, algorithm, min_cluster_size, screen.doing
        )
        job = Evaluate(
            model,
            metrics=metric or (),
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


@with_options
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


def name(
    model_file: cli.ModelFile,
    names: Annotated[
        list[str],
        cli.argument("CLUSTER=NAME...", "Clusters and their names."),
    ],
    as_json: cli.AsJson = False,
    quiet: cli.Quiet = False,
) -> None:
    """Name the clusters of a model, without reading rows.

    CLUSTER is the number of a cluster. The model stores the names; other clusters keep the
    names that its report shows.
    """
    with Screen(as_json=as_json, quiet=quiet) as screen:
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


def report(
    folder: RunFolder,
    *,
    as_json: cli.AsJson = False,
    quiet: cli.Quiet = False,
) -> None:
    """Write report.html, a page about a run to read in a browser, print or hand on.

    The page shows what fit, select-k, evaluate and profile wrote to DIR and needs no network. It
    contains sums, counts and means, but no row and no label of a row. To compare two models, use
    fedcluster evaluate --beside.
    """
    with Screen(as_json=as_json, quiet=quiet) as screen:
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
    again. It shows the round, the inertia, the shift of the centres, and which sites answer or are
    late. When the run ends, it becomes the report.
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
