"""Commands that show a run on a page: ``report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedcluster.cli._options import AsJson, Quiet
from fedcluster.cli._screen import Screen

RunFolder = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        show_default=False,
        help="The folder that a job wrote (--out), or a run of a federation: DIR/runs/RUN.",
    ),
]


def report(folder: RunFolder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Write report.html: a page on a run, to read in a browser, print or hand on.

    It is made of what fit, select-k and evaluate wrote into DIR, needs no network, and holds sums,
    counts and means of all rows: no row, and no label of one.
    """
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from fedcluster._pages._page import write_report
        from fedcluster._pages._run import written_by

        path = written_by(folder) / write_report(folder)
    screen.result({"report": str(path)}, [f"Wrote {path}: open it in a browser."])
