"""Commands that show a run on a page: ``report`` and ``watch``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcluster.cli._options import AsJson, Quiet
from fedcluster.cli._screen import Screen, say, until_interrupted

RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        show_default=False,
        help="Folder of results (--out), or of a run of a federation: DIR/runs/RUN.",
    ),
]


def report(folder: RunFolder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Write report.html, a page about a run to read in a browser, print or hand on.

    The page shows what fit, select-k, evaluate and profile wrote to DIR and needs no network. It
    contains sums, counts and means, but no row and no label of a row.
    """
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from fedcluster._pages._page import write_report
        from fedcluster._pages._run import written_by

        path = written_by(folder) / write_report(folder)
    screen.result({"report": str(path)}, [f"Wrote {path}: open it in a browser."])


def watch(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            show_default=False,
            help="Folder of a federation, to follow its last run, or its first once it begins; or "
            "of a run: DIR/runs/RUN.",
        ),
    ],
    port: Annotated[
        int,
        typer.Option(metavar="PORT", min=0, max=65535, help="Port of the page; 0: any free one."),
    ] = 0,
) -> None:
    """Follow a run of a federation on a live page, until interrupted.

    The page shows the round, the inertia, the shift of the centres, and which sites answer, are
    late or gone. When the run ends, it becomes the report. It is served to this machine only, and
    only to those who know its address.
    """
    with Screen(as_json=False, quiet=False):
        from fedcluster._pages._live import Server, Watched, followed, is_federation

        run = followed(folder)
        with Server(Watched(run), port) as server, until_interrupted():
            run_name = f"the first run of {run.name}" if is_federation(run) else run.name
            say(f"Follow {run_name} at {server.address} and end it here with Ctrl-C.")
            server.serve_forever()
    say("Ended.")
