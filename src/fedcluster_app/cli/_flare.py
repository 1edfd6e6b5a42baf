"""Commands for federations over NVIDIA FLARE: ``fedcluster flare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcluster.texts import command_line
from fedcluster_app.cli._federation import Folder
from fedcluster_app.cli._options import AsJson, argument, option
from fedcluster_app.cli._screen import Commands, Screen, needs, private, say

app = typer.Typer(
    cls=Commands,
    help="Cluster over a network by NVIDIA FLARE.",
    callback=private,
    no_args_is_help=True,
)

Kit = Annotated[Path, argument("KIT", "Startup kit.")]


@app.command(
    epilog="Example: fedcluster flare kit trial --sites north,south,west "
    "--address cluster.example.org:8443"
)
def kit(
    folder: Folder,
    sites: Annotated[str, option("A,B,C", "Names of the sites, for a new federation.")] = "",
    address: Annotated[
        str, option("HOST:PORT", "Address of the server, for a new federation.", show_default=True)
    ] = "127.0.0.1:8443",
) -> None:
    """Make the startup kits of a federation by nvflare provision, and lock them.

    The kit of the server is DIR/flare/server, that of a site DIR/sites/NAME/flare. With --sites,
    make the folder of the federation first.
    """
    needs("nvflare", "flare")
    from fedcluster_app.coordinator.folder import Federation, create
    from fedcluster_app.transports.flare.coordinator import make_kits

    federation = create(folder, sites.split(","), address) if sites else Federation.load(folder)
    make_kits(federation)
    say(f"Wrote {folder}: hand sites/NAME to each of {', '.join(federation.sites)}.")
    say(f"Start the coordinator: {command_line('federation', 'start', folder)}")
    say("Start a site: fedcluster site start site.toml, once that is right.")


@app.command(epilog="Example: fedcluster flare check north/flare --harden")
def check(
    kit: Kit,
    harden: Annotated[
        bool,
        typer.Option("--harden", help="First write the locks, also into one made elsewhere."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check that a startup kit has all locks; name each that is missing, and exit with 1.

    Only fedcluster's class may be named by a job, nobody may bring code or use shell commands, and
    no log leaves. Neither fedcluster's part of a site nor that of the server starts in a kit that
    lacks a lock. The kit of a site is the folder flare beside its site.toml, that of the server
    DIR/flare/server. With --harden, other components and rights of the kit are replaced.
    """
    from fedcluster_app.transports.flare import locks

    with Screen(as_json=as_json, quiet=False) as screen:
        kind = locks.kind_of(kit)
        if harden:
            locks.harden(kit)
        missing = locks.lacking(kit)
    lines = [f"LACKS {each}" for each in missing] or [f"{kit} has all locks of a {kind}."]
    screen.result({"kit": str(kit), "kind": kind, "lacks": missing}, lines)
    if missing:
        raise typer.Exit(1)
