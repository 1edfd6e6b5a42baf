"""``fedcluster site``: what one site of a federation does."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedcluster.cli._options import AsJson, Quiet
from fedcluster.cli._screen import Screen, needs, until_interrupted

app = typer.Typer(
    help="Cluster over a network: for a site.", no_args_is_help=True, rich_markup_mode=None
)

SiteToml = Annotated[
    Path, typer.Argument(metavar="SITE.TOML", show_default=False, help="The site's file.")
]


@app.command(epilog="Example: fedcluster site start site.toml")
def start(site_file: SiteToml, quiet: Quiet = False) -> None:
    """Take part in a federation, until interrupted.

    Connects to the coordinator, and only outwards. Runs Flower's SuperNode; what it prints goes
    to flower/supernode.log beside the site's file.
    """
    needs("flwr", "flower")
    from fedcluster.transports.flower._supernode import take_part

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")

    def say(what: str) -> None:
        if not quiet:
            typer.echo(what)
            sys.stdout.flush()

    with until_interrupted():
        take_part(site_file, say)
    say("Ended.")


@app.command(epilog="Example: fedcluster site log site.toml --last 20")
def log(
    site_file: SiteToml,
    last: Annotated[int, typer.Option(metavar="N", min=1, help="How many answers are shown.")] = 50,
    as_json: AsJson = False,
) -> None:
    """Show what left this site."""
    from fedcluster._site import SiteFile
    from fedcluster.federation._membership import Membership, read_log
    from fedcluster.federation._messages import log_lines

    with Screen(as_json=as_json, quiet=False) as screen:
        site = SiteFile.load(site_file)
        path = site_file.parent / Membership.from_site_file(site).log
        lines = read_log(path)
    count = f"{len(lines):,} answers have left site {site.name}: {path}"
    screen.result(
        {"log": str(path), "answers": lines[-last:], "all": len(lines)},
        [*log_lines(lines[-last:]), count],
    )
