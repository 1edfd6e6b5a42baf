"""Runs as operators ask the coordinator for them: begun, followed, fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcluster._specifications import RunOptions
from fedcluster.cli._options import ShowOptions, argument, option
from fedcluster.cli._screen import Screen, needs

if TYPE_CHECKING:
    from fedcluster.federation._folder import Federation
    from fedcluster.federation._service_client import Coordinator
    from fedcluster.jobs import Job

app = typer.Typer(
    help="Cluster over a network: for the coordinator.", no_args_is_help=True, rich_markup_mode=None
)

Folder = Annotated[Path, argument("DIR", "Folder of the federation.")]
OutAgain = Annotated[
    Path | None,
    option("DIR", "Folder to write.", "--out", "-o", show_default="as when the run was begun"),
]


def federation_at(folder: Path) -> Federation:
    """Return the federation of a folder; asks first for what only federations need."""
    needs("cryptography", "flower")
    from fedcluster.federation._folder import Federation

    return Federation.load(folder)


@contextmanager
def coordinator_at(
    folder: Path, *, options: RunOptions | None = None, run: str | None = None
) -> Iterator[Coordinator]:
    """Yield the coordinator of a folder, that of its federation or of an operator.

    Options, or the name of a run, are checked before anything is asked. Over FLARE, whose server
    is started by itself, this program is the coordinator where no other is.
    """
    needs("httpx", "flower")
    from fedcluster.federation._service_client import Coordinator

    coordinator = Coordinator.at(folder)
    coordinator.check(options=options, run=run)
    federation = coordinator.federation
    if federation is None or not federation.has_flare or coordinator.answers():
        yield coordinator
        return
    needs("nvflare", "flare")
    from fedcluster.federation._private import running
    from fedcluster.federation._service import operated
    from fedcluster.transports.flare._coordinator import FlareCarrier

    with running(federation.folder), operated(FlareCarrier(federation)):
        yield coordinator


def begin(
    folder: Path, job: Job, options: RunOptions, show: ShowOptions, columns: str | None = None
) -> None:
    """Have a job done and show its outcome."""
    from fedcluster.io._columns import column_list

    show.check_folder(options.out)
    if columns is not None:
        options = replace(options, columns=column_list(columns))
    screen = Screen(as_json=show.as_json, quiet=show.quiet)
    with coordinator_at(folder, options=options) as coordinator:
        follow(coordinator, screen, lambda: coordinator.begin(job, options), options.out)


def follow(coordinator: Coordinator, screen: Screen, begun: Callable[[], str], out: Path) -> None:
    """Begin a run, wait for its outcome, write its files and show it."""
    from fedcluster.federation._messages import shown

    with screen:
        screen.doing("handing the job to the coordinator")
        outcome = coordinator.wait(begun(), out, screen.doing)
        screen.warnings += outcome.pop("doubts", [])
    screen.result(outcome, shown(outcome, screen.width))
