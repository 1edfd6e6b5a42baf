"""Commands ``profile`` and ``name``: what sets the clusters of a model apart, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from fedcluster._specifications import Profile
from fedcluster.cli._options import (
    AsJson,
    FileOptions,
    Files,
    KeepNames,
    LeastRows,
    ModelFile,
    OutIfAny,
    OwnAlgorithm,
    Quiet,
    ShowOptions,
    check_least,
    with_options,
)
from fedcluster.cli._screen import Screen
from fedcluster.errors import InputError


@with_options
def profile(
    model_file: ModelFile,
    files: Files,
    *,
    algorithm: OwnAlgorithm = None,
    rows: FileOptions,
    min_cluster_size: LeastRows = 1,
    keep_names: KeepNames = False,
    out: OutIfAny = None,
    show: ShowOptions,
) -> None:
    """Describe what sets the clusters of a model apart, column by column, and propose names.

    Give one FILE for each site: CSV, Parquet, Excel, SAS, SPSS, Stata, SQLite, DuckDB, .npy, .npz
    or .h5ad, or a site.toml; NAME=FILE sets another name. Columns of the model are found by name;
    others are ignored. The sites answer with sums and counts, in two rounds: means, spreads and
    medians of numbers, and shares of texts, in the units of the files. With --out, writes the
    same to profiles.json. To change a name, use fedcluster name.
    """
    with Screen(as_json=show.as_json, quiet=show.quiet) as screen:
        from fedcluster._model_file import write_names
        from fedcluster._report import _messages as messages
        from fedcluster._report._profiles import profiles_shown
        from fedcluster.cli import _indices as indices
        from fedcluster.cli import _reading as reading
        from fedcluster.cli import _runs as runs
        from fedcluster.jobs import content_of
        from fedcluster.model import Model

        check_least("--min-cluster-size", min_cluster_size)
        own = [algorithm] if algorithm else []
        model = Model.load(model_file, own)
        show.check_folder(out)
        sites = reading.read_for(model, files, replace(rows, label_column=None), screen.doing)
        screen.doing("asking the sites")
        report, records = screen.wait_for(
            lambda: indices.answered(Profile(model, own), sites, min_cluster_size)
        )
        content = content_of(report, records) | {"model": str(model_file)}
        files = runs.write_found(out, report, content)
        written = [f"Wrote {out / file}." for file in files if out is not None]
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
    )


def name(
    model_file: ModelFile,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="CLUSTER=NAME...", show_default=False, help="Clusters and their names."
        ),
    ],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Name the clusters of a model, without reading rows.

    CLUSTER is the number of a cluster. The model stores the names; clusters without a name keep
    their number.
    """
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from fedcluster._model_file import write_names

        every = write_names(model_file, names_by_number(names))
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
