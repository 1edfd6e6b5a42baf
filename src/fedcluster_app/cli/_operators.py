"""Commands for those who run a coordinator: its operators, its runs, and the log of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcluster.recipes.specifications import RunOptions
from fedcluster_app.cli._options import (
    AsJson,
    KnownHash,
    ShowOptions,
    argument,
    option,
)
from fedcluster_app.cli._screen import (
    TRANSPORTS,
    Commands,
    Screen,
    diagnosed,
    needs,
    private,
    say,
    verified_log,
)

if TYPE_CHECKING:
    from fedcluster.jobs import Job
    from fedcluster_app.coordinator.folder import Federation
    from fedcluster_app.coordinator.service_client import Coordinator


app = typer.Typer(
    cls=Commands,
    help="Cluster over a network: for the coordinator.",
    callback=private,
    no_args_is_help=True,
)

Folder = Annotated[Path, argument("DIR", "Folder of the federation.")]
OutAgain = Annotated[
    Path | None,
    option("DIR", "Folder to write.", "--out", "-o", show_default="as when the run was begun"),
]


def federation_at(folder: Path) -> Federation:
    """Return the federation in a folder, if the libraries for federations are installed."""
    needs("cryptography", "flower")
    from fedcluster_app.coordinator.folder import Federation

    return Federation.load(folder)


@contextmanager
def coordinator_at(
    folder: Path, *, options: RunOptions | None = None, run: str | None = None
) -> Iterator[Coordinator]:
    """Yield the coordinator of a folder, which is that of a federation or of an operator.

    Options, or the name of a run, are checked first. Over FLARE, whose server is started
    separately, this program becomes the coordinator if there is no other.
    """
    needs("httpx", "flower")
    from fedcluster_app.coordinator.service_client import Coordinator

    coordinator = Coordinator.at(folder)
    coordinator.check(options=options, run=run)
    federation = coordinator.federation
    if federation is None or not federation.has_flare or coordinator.answers():
        yield coordinator
        return
    needs("nvflare", "flare")
    from fedcluster_app.coordinator.service import operated
    from fedcluster_app.transports.flare.coordinator import FlareCarrier
    from fedcluster_app.trust.owned_files import running

    with running(federation.folder), operated(FlareCarrier(federation)):
        yield coordinator


def begin(
    folder: Path, job: Job, options: RunOptions, show: ShowOptions, columns: Any = None
) -> None:
    """Run a job at the coordinator and show its outcome."""
    from fedcluster.frames.columns import column_list

    show.check_folder(options.out)
    if columns is not None:
        options = replace(options, columns=column_list(columns))
    screen = Screen(as_json=show.as_json, quiet=show.quiet)
    with coordinator_at(folder, options=options) as coordinator:
        follow(coordinator, screen, lambda: coordinator.begin(job, options), options.out)


def follow(coordinator: Coordinator, screen: Screen, begun: Callable[[], str], out: Path) -> None:
    """Begin a run, wait for its outcome, write its files and show it."""
    from fedcluster_app.report.messages import file_of, shown

    with screen:
        screen.doing("handing the job to the coordinator")
        outcome = coordinator.wait(begun(), out, screen.doing)
        screen.warnings += outcome.pop("doubts", [])
    screen.result(outcome, shown(outcome, screen.width), file_of(outcome))


SOON = 60
"""Days before its end from which on an expiring certificate is reported."""

RunName = Annotated[str, argument("RUN", "Name of the run.")]


@app.command(epilog="Example: fedcluster federation show trial")
def show(folder: Folder, as_json: AsJson = False) -> None:
    """List the sites and the runs: who asked for what and when, and how they ended."""
    from fedcluster.texts import Table

    with Screen(as_json=as_json, quiet=False) as screen, coordinator_at(folder) as coordinator:
        status = coordinator.get("/sites")
        runs = coordinator.get("/runs")["runs"]
        screen.warnings += _warnings(status)
    sites = status.pop("sites")
    rows = tuple(
        (
            name,
            "connected" if site["connected"] else "not connected",
            _when(site["last_answer"]),
            str(site["answered"]),
            str(site["missed"]),
        )
        for name, site in sites.items()
    )
    header = ("site", "now", "last answer (UTC)", "rounds answered", "missed")
    screen.result(
        {"sites": sites, "runs": runs, "coordinator": status},
        [
            Table("Sites", header, rows),
            *_pace(status),
            *([Table("Runs", RUNS, tuple(map(_row_of, runs)))] if runs else ["No runs yet."]),
            *(f"Run {run['name']}: {run['error']}" for run in runs if run["error"]),
        ],
    )


RUNS = ("run", "state", "operator", "job", "began (UTC)", "rounds", "seconds")


def _row_of(run: dict[str, Any]) -> tuple[str, ...]:
    """Return the row of a run in the table of runs."""
    began, ended = (run[key] and datetime.fromisoformat(run[key]) for key in ("began", "ended"))
    return (
        *(run[key] for key in ("name", "state", "operator", "job")),
        run["began"][:16].replace("T", " "),
        str(run["rounds"]),
        f"{(ended - began).total_seconds():.0f}" if began and ended else "",
    )


def _when(at: float | None) -> str:
    return "" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


def _pace(status: dict[str, Any]) -> list[str]:
    """Return the duration of rounds, and the number of waiting runs."""
    lines = []
    if (mean := status["seconds_of_a_round"]) is not None:
        last = status["seconds_of_last_round"]
        lines.append(f"A round takes {mean:.1f} s in the mean; the last took {last:.1f} s.")
    if waiting := status["queue"]:
        lines.append(f"{waiting} run{'s wait' if waiting > 1 else ' waits'}.")
    return lines


def _warnings(status: dict[str, Any]) -> list[str]:
    """Return a warning if the coordinator's certificate expires soon, or has expired."""
    days = status["days_of_certificate"]
    if days is None or days > SOON:
        return []
    return [f"the coordinator's certificate {'ended' if days < 0 else f'ends in {days:.0f} days'}"]


@app.command(epilog="Example: fedcluster federation doctor trial")
def doctor(folder: Folder, as_json: AsJson = False) -> None:
    """Examine a coordinator: its folder, certificate, keys, log, port, runs, disk and versions.

    The exit status is 1 if something is wrong.
    """
    needs("cryptography", "flower")
    from fedcluster_app.coordinator.doctor import examined

    diagnosed(lambda: examined(folder, TRANSPORTS), as_json=as_json)


@app.command(epilog="Example: fedcluster federation cancel trial 20260102-030405-ab12")
def cancel(folder: Folder, name: RunName) -> None:
    """Cancel a run that waits or goes on; its sites are told."""
    with coordinator_at(folder, run=name) as coordinator:
        state = coordinator.post(f"/runs/{name}/cancel")["state"]
    say(f"Run {name} is {'cancelled' if state == 'cancelled' else 'being cancelled'}.")


@app.command(epilog="Example: fedcluster federation prune trial --older-than 90 --keep 20")
def prune(
    folder: Folder,
    days: Annotated[
        float | None, option("DAYS", "Only of runs that ended earlier.", "--older-than", min=0)
    ] = None,
    keep: Annotated[int | None, option("N", "Not of the last N runs.", min=0)] = None,
    as_json: AsJson = False,
) -> None:
    """Remove what sites answered in runs that have ended; results and the list of runs stay.

    Runs without these records can neither be resumed without asking again, nor forget a site.
    """
    from fedcluster.errors import InputError

    federation = federation_at(folder)
    from fedcluster.texts import counted
    from fedcluster_app.coordinator.operators import noted
    from fedcluster_app.coordinator.runs import prune as prune_runs

    if days is None and keep is None:
        raise InputError("say of which runs: --older-than DAYS, --keep N, or both")
    with Screen(as_json=as_json, quiet=False) as screen:
        age = None if days is None else timedelta(days=days)
        pruned = prune_runs(federation, older_than=age, keep=keep)
        if pruned:
            noted(federation.folder, "pruned", runs=pruned)
    count = f"Removed the records of {counted(len(pruned), 'run')}."
    screen.result({"pruned": pruned}, [count])


@app.command(epilog="Example: fedcluster federation log trial --head 3f2a9c41d07b55e8")
def log(
    folder: Folder,
    last: Annotated[int, option("N", "Number of lines to show.", min=1, show_default=True)] = 50,
    head: KnownHash = "",
    as_json: AsJson = False,
) -> None:
    """Show who asked this coordinator for what, and what was refused; check the log.

    The exit status is not 0 if a line was changed, removed, moved, inserted or cut off.
    """
    federation = federation_at(folder)
    from fedcluster.texts import counted
    from fedcluster_app.coordinator.operators import log_line, operators_log
    from fedcluster_app.trust.audit_log import read_log

    with Screen(as_json=as_json, quiet=False) as screen:
        path = operators_log(federation.folder).path
        lines = list(read_log(path))
        about, checked, wrong = verified_log(path, head)
    shown = [log_line(line) for line in lines[-last:]]
    content = {"log": str(path), "lines": lines[-last:], "all": len(lines), **about}
    screen.result(content, [*shown, f"{counted(len(lines), 'line')}: {path}", *checked])
    if wrong is not None:
        raise wrong


PassphraseFile = Annotated[
    Path | None, option("FILE", "File with the passphrase in its first line; else it is asked for.")
]


@app.command(epilog="Example: fedcluster federation backup trial trial.backup")
def backup(
    folder: Folder,
    file: Annotated[Path, argument("FILE", "File to write.")],
    passphrase_file: PassphraseFile = None,
) -> None:
    """Write all that the coordinator needs into one file, encrypted with a passphrase.

    The coordinator may run meanwhile. The file has keys and what sites answered, but no folder of
    a site. The program age opens it, too.
    """
    federation_at(folder)
    needs("pyrage", "flower")
    from fedcluster_app.coordinator.backup import back_up

    n = back_up(folder, file, _passphrase(passphrase_file, is_new=True))
    say(f"Wrote {file}: {n} files, for fedcluster federation restore.")


@app.command(epilog="Example: fedcluster federation restore trial.backup trial")
def restore(
    file: Annotated[Path, argument("FILE", "File of a backup.")],
    folder: Annotated[Path, argument("DIR", "Folder to write.")],
    passphrase_file: PassphraseFile = None,
) -> None:
    """Write the folder of a federation from its backup.

    Started there, at the same address, the coordinator goes on where the backup was made: sites
    reconnect by themselves, and runs continue.
    """
    needs("pyrage", "flower")
    from fedcluster.texts import counted
    from fedcluster_app.coordinator.backup import restore as restored

    federation = restored(file, folder, _passphrase(passphrase_file, is_new=False))
    start = f"federation start {folder}"
    if federation.has_flare:
        needs("nvflare", "flare")
        from fedcluster_app.transports.flare.locks import harden

        server = federation.file("flare", "server")
        harden(server, "../..")
        start = f"flare start {server}"
    sites = counted(len(federation.sites), "site")
    say(f"Wrote {folder}, with {sites}. End the coordinator elsewhere first;")
    say(f"then: fedcluster {start}")


def _passphrase(file: Path | None, *, is_new: bool) -> str:
    """Return the passphrase of a backup from a file that only its owner may read, or ask for it."""
    from fedcluster.errors import InputError, reason
    from fedcluster_app.trust.owned_files import check_private

    if file is None:
        return str(
            typer.prompt("Passphrase", hide_input=True, confirmation_prompt=is_new, err=True)
        )
    check_private([], secret=[file])
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {reason(error)}") from error
    if not lines or not lines[0]:
        raise InputError(f"{file}: the first line is empty: write the passphrase there")
    return lines[0]


@app.command(epilog="Example: fedcluster federation operator trial ada --out ada")
def operator(
    folder: Folder,
    name: Annotated[str | None, argument("[NAME]", "Name of the operator to add.")] = None,
    admin: Annotated[
        bool,
        typer.Option(
            "--admin",
            help="Also lets the runs of others be cancelled, resumed and read, and your own code "
            "be asked for.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        option(
            "FOLDER", "Write a folder for the operator's own machine, instead of showing the token."
        ),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the operator instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """List who may start runs, or add an operator, and show the token once.

    Only a hash of it is kept. The token of one that was removed is refused from then on.
    """
    from fedcluster.errors import InputError

    federation = federation_at(folder)
    if name is None:
        if remove or admin or out is not None:
            raise InputError("say which operator: give a NAME")
        _list_operators(federation, as_json=as_json)
    elif remove:
        _remove_operator(federation, name)
    else:
        _add_operator(federation, name, out, admin=admin)


def _add_operator(federation: Federation, name: str, out: Path | None, *, admin: bool) -> None:
    from fedcluster_app.coordinator.operators import VARIABLE, add_operator, noted
    from fedcluster_app.coordinator.service_client import check_remote, write_remote

    if out is not None:
        check_remote(federation, out)
    token = add_operator(federation.folder, name, admin=admin)
    noted(federation.folder, "operator added", operator=name, admin=admin)
    if out is not None:
        write_remote(federation, out, token)
        say(f"Wrote {out}: hand it to {name}, who then runs fedcluster federation run {out.name}.")
    else:
        say(token)
        say(f"This is shown once. {name} sets it as {VARIABLE}.")


def _remove_operator(federation: Federation, name: str) -> None:
    from fedcluster_app.coordinator.operators import noted, remove_operator

    remove_operator(federation.folder, name)
    noted(federation.folder, "operator removed", operator=name)
    say(f"Removed {name}; runs of this operator that wait or go on do so until they are cancelled.")


def _list_operators(federation: Federation, *, as_json: bool) -> None:
    from fedcluster.texts import Table
    from fedcluster_app.coordinator.operators import operators

    with Screen(as_json=as_json, quiet=False) as screen:
        known = operators(federation.folder)
    content = [{"name": each.name, "admin": each.admin, "added": each.added} for each in known]
    rows = tuple((each.name, "yes" if each.admin else "", each.added) for each in known)
    table = Table("Operators", ("operator", "administrator", "since (UTC)"), rows)
    screen.result({"operators": content}, [table] if rows else ["There are no operators."])
