"""Command ``fedcluster audit``: attacks on a site's own rows, played on its own machine."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from fedcluster.cli._options import AsJson, OutIfAny, Quiet, Seed
from fedcluster.cli._screen import Screen

FAILED = 1
"""The exit status where an attack reads more rows than --fail-above allows."""


def audit(
    site_file: Annotated[
        Path | None,
        typer.Argument(metavar="[SITE.TOML]", show_default=False, help="The site file."),
    ] = None,
    *,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Attack simulated patients instead.")
    ] = False,
    rows: Annotated[
        int, typer.Option(metavar="N", min=50, help="Largest number of rows to use.")
    ] = 500,
    n_clusters: Annotated[
        int,
        typer.Option(
            "-k",
            metavar="K",
            min=1,
            help="Number of clusters of the fits whose inertia is compared.",
        ),
    ] = 8,
    seed: Seed = 0,
    fail_above: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            show_default=False,
            help="Exit with status 1 if an attack reads more rows of the site as it is.",
        ),
    ] = None,
    out: OutIfAny = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Attack a site on its own machine with known attacks, and count the rows that each reads.

    A fifth of the rows is set aside to measure hits by chance. Nothing is sent, and the site's
    groups and log do not change.
    """
    logging.getLogger("fedcluster.engines").setLevel(logging.CRITICAL)  # many are refused
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from fedcluster._attacks._audit import audit as played
        from fedcluster._attacks._audit import audit_table, content, rows_of, sentences
        from fedcluster.errors import InputError
        from fedcluster.io._outputs import write_json

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
    screen.result(content(audits), [audit_table(audits), *sentences(audits)])
    if fail_above is not None and audits[0].worst > fail_above:
        raise typer.Exit(FAILED)
