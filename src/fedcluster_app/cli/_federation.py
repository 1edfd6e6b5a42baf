"""Commands of a coordinator, ``fedcluster federation``: its folder, sites, keys and certificate."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcluster.recipes.specifications import Compare, Evaluate, Fit, Profile, RunOptions, SelectK
from fedcluster.texts import command_line
from fedcluster_app.cli import _options as cli
from fedcluster_app.cli._screen import (
    TRANSPORTS,
    Commands,
    Format,
    LogFormat,
    Screen,
    diagnosed,
    needs,
    private,
    say,
    telling,
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

Folder = Annotated[Path, cli.argument("DIR", "Folder of the federation.")]
OutAgain = Annotated[
    Path | None,
    cli.option("DIR", "Folder to write.", "--out", "-o", show_default="as when the run was begun"),
]


def federation_at(folder: Path) -> Federation:
    """Return the federation in a folder, if the libraries for federations are installed."""
    needs("cryptography", "flower")
    from fedcluster_app.coordinator.folder import Federation

    return Federation.load(folder)


def coordinator_at(
    folder: Path, *, options: RunOptions | None = None, run: str | None = None
) -> Coordinator:
    """Return the coordinator of a folder, which is that of a federation or of an operator.

    Options, or the name of a run, are checked first.
    """
    needs("httpx", "flower")
    from fedcluster_app.coordinator.service_client import Coordinator

    coordinator = Coordinator.at(folder)
    coordinator.check(options=options, run=run)
    return coordinator


def begin(
    folder: Path, job: Job, options: RunOptions, show: cli.ShowOptions, columns: Any = None
) -> None:
    """Run a job at the coordinator and show its outcome."""
    from fedcluster.frames.columns import column_list

    show.check_folder(options.out)
    if columns is not None:
        options = replace(options, columns=column_list(columns))
    screen = Screen(as_json=show.as_json, quiet=show.quiet)
    coordinator = coordinator_at(folder, options=options)
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

RunName = Annotated[str, cli.argument("RUN", "Name of the run.")]


@app.command(epilog="Example: fedcluster federation show trial --last 40")
def show(
    folder: Folder,
    last: Annotated[
        int, cli.option("N", "Number of runs, newest first.", min=1, show_default=True)
    ] = 12,
    as_json: cli.AsJson = False,
) -> None:
    """List the sites, and the last runs: who asked for what and when, and how they ended.

    All sites that are not connected come first; of more than twelve, connected ones are left out.
    """
    from fedcluster.texts import Table, counted
    from fedcluster_app.report.tables import MOST_ROWS

    with Screen(as_json=as_json, quiet=False) as screen:
        coordinator = coordinator_at(folder)
        status = coordinator.get("/sites")
        runs = coordinator.get("/runs")["runs"][::-1]
        screen.warnings += _warnings(status)
    sites = status.pop("sites")
    ordered = sorted(sites.items(), key=lambda item: item[1]["connected"])
    rows = [
        (
            name,
            "connected" if site["connected"] else "not connected",
            _when(site["last_answer"]),
            str(site["answered"]),
            str(site["missed"]),
        )
        for i, (name, site) in enumerate(ordered)
        if i < MOST_ROWS or not site["connected"]
    ]
    more = len(sites) - len(rows)
    title = f"Sites ({counted(more, 'more site')} connected: see --json)" if more else "Sites"
    header = ("site", "now", "last answer (UTC)", "rounds answered", "missed")
    shown = runs[:last]
    about = f"Runs (the last {last} of {len(runs)})" if len(runs) > last else "Runs"
    screen.result(
        {"sites": sites, "runs": runs, "coordinator": status},
        [
            Table(title, header, tuple(rows)),
            *_pace(status),
            *([Table(about, RUNS, tuple(map(_row_of, shown)))] if runs else ["No runs yet."]),
            *(f"Run {run['name']}: {run['error']}" for run in shown if run["error"]),
        ],
        whole=True,
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
def doctor(folder: Folder, as_json: cli.AsJson = False) -> None:
    """Examine a coordinator: each file that its start reads, its sites, port, runs and disk.

    The exit status is 1 if something is wrong.
    """
    needs("cryptography", "flower")
    from fedcluster_app.coordinator.doctor import examined

    diagnosed(lambda: examined(folder, TRANSPORTS, _check_transport), as_json=as_json)


def _check_transport(federation: Federation) -> None:
    _transport(_loaded(federation.folder)).check_state(federation)


def _transport(federation: Federation) -> ModuleType:
    """Return what carries the runs of a federation."""
    name = "flare" if federation.has_flare else "flower"
    return import_module(f"fedcluster_app.transports.{name}.coordinator")


@app.command(epilog="Example: fedcluster federation cancel trial 20260102-030405-ab12")
def cancel(folder: Folder, name: RunName) -> None:
    """Cancel a run that waits or goes on; its sites are told."""
    state = coordinator_at(folder, run=name).post(f"/runs/{name}/cancel")["state"]
    say(f"Run {name} is {'cancelled' if state == 'cancelled' else 'being cancelled'}.")


@app.command(epilog="Example: fedcluster federation prune trial --older-than 90 --keep 20")
def prune(
    folder: Folder,
    days: Annotated[
        float | None, cli.option("DAYS", "Only of runs that ended earlier.", "--older-than", min=0)
    ] = None,
    keep: Annotated[int | None, cli.option("N", "Not of the last N runs.", min=0)] = None,
    as_json: cli.AsJson = False,
) -> None:
    """Remove what sites answered in runs that have ended; results and the list of runs stay.

    Runs without these records resume, or forget a site, by asking everything again.
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
    last: Annotated[
        int, cli.option("N", "Number of lines to show.", min=1, show_default=True)
    ] = 50,
    head: cli.KnownHash = "",
    as_json: cli.AsJson = False,
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
    Path | None,
    cli.option("FILE", "File with the passphrase in its first line; else it is asked for."),
]


@app.command(epilog="Example: fedcluster federation backup trial trial.backup")
def backup(
    folder: Folder,
    file: Annotated[Path, cli.argument("FILE", "File to write.")],
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
    file: Annotated[Path, cli.argument("FILE", "File of a backup.")],
    folder: Annotated[Path, cli.argument("DIR", "Folder to write.")],
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
    start = command_line("federation", "start", folder)
    if federation.has_flare:
        needs("nvflare", "flare")
        from fedcluster_app.transports.flare.locks import harden

        harden(federation.file("flare", "server"))
    sites = counted(len(federation.sites), "site")
    say(f"Wrote {folder}, with {sites}. End the coordinator elsewhere first;")
    say(f"then: {start}")


def _passphrase(file: Path | None, *, is_new: bool) -> str:
    """Return the passphrase of a backup from a file that only its owner may read, or ask for it."""
    from fedcluster.errors import InputError, reason
    from fedcluster_app.trust.owned_files import check_private

    if file is None:
        if not sys.stdin.isatty():
            raise InputError("no terminal to ask for the passphrase at: give --passphrase-file")
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
    name: Annotated[str | None, cli.argument("[NAME]", "Name of the operator to add.")] = None,
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
        cli.option(
            "FOLDER", "Write a folder for the operator's own machine, instead of showing the token."
        ),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the operator instead.")] = False,
    as_json: cli.AsJson = False,
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
        how = command_line("federation", "run", out.name)
        say(f"Wrote {out}: hand it to {name}, who then types {how}.")
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


run_app = typer.Typer(
    cls=Commands,
    help="Run a job at the sites of a federation.",
    no_args_is_help=True,
)
app.add_typer(run_app, name="run")


@app.command(
    epilog="Example: fedcluster federation new trial --sites north,south,west "
    "--address cluster.example.org:8443"
)
def new(
    folder: Folder,
    sites: Annotated[str, cli.option("A,B,C", "Names of the sites.")],
    address: Annotated[
        str,
        cli.option(
            "HOST:PORT", "Address at which the sites reach the coordinator.", show_default=True
        ),
    ] = "127.0.0.1:8443",
    bind: Annotated[
        str | None, cli.option("IP", "IP address at which the coordinator listens.")
    ] = None,
    authority_key: Annotated[
        Path | None,
        cli.option("FILE", "Where the authority's key is written; by default certificates/ca.key."),
    ] = None,
) -> None:
    """Create the folder of a federation.

    It holds certificates, a key for each site and, in sites/NAME, the folder for each site. Its
    README describes the next steps.
    """
    needs("flwr", "flower")
    from fedcluster_app.coordinator.folder import create
    from fedcluster_app.secure.cohort import two_sites_line

    federation = create(
        folder,
        sites.split(","),
        address,
        bind=bind,
        authority_key=authority_key,
    )
    say(f"Wrote {folder}: hand sites/NAME to each of {', '.join(federation.sites)}.")
    for line in two_sites_line(len(federation.sites)):
        say(f"warning: {line}")
    say(f"How to go on is written in {folder / 'README.md'}.")


@app.command(epilog="Example: fedcluster federation start trial")
def start(folder: Folder, log_format: LogFormat = Format.TEXT, _plugin: cli.Plugin = None) -> None:
    """Let the sites connect and carry out runs, until interrupted.

    Runs Flower's SuperLink, whose output goes to DIR/flower/superlink.log, or FLARE's server (to
    DIR/logs/flare-server.log). Runs that wait, or were broken off when the coordinator ended, go
    on.
    """
    federation = _loaded(folder)
    from fedcluster_app.cli._screen import until_interrupted
    from fedcluster_app.coordinator.lifecycle import expiry_notice
    from fedcluster_app.coordinator.service import operated, started

    with (
        until_interrupted(),
        telling(federation.file("logs", "coordinator.jsonl"), log_format) as tell,
        started(federation, _transport(federation)) as (carrier, program),
        operated(carrier),
    ):
        if notice := expiry_notice(federation):
            tell(notice)
        tell(f"The sites can connect to {federation.address}; Ctrl-C ends it.")
        program.watch()
    if log_format is Format.TEXT:
        say("Ended.")


def _loaded(folder: Path) -> Federation:
    """Return the federation of a folder, after checking what only its transport needs."""
    federation = federation_at(folder)
    needs(*(("nvflare", "flare") if federation.has_flare else ("flwr", "flower")))
    return federation


@app.command(
    epilog="Example: fedcluster federation permit trial hips-2026 --purpose 'Hip surgery' "
    "--columns age,bmi --rounds 200 --end 2026-12-31"
)
def permit(
    folder: Folder,
    name: Annotated[str, cli.argument("ID", "Name of the permit.")],
    *,
    purpose: Annotated[str, cli.option("TEXT", "Purpose of the study.")],
    columns: Annotated[str, cli.option("A,B,C", "Columns that it covers.")],
    rounds: Annotated[int, cli.option("N", "Number of rounds that a site answers.")],
    end: Annotated[datetime, cli.option("DATE", "Last day, UTC.", formats=["%Y-%m-%d"])],
    start: Annotated[
        datetime | None,
        cli.option("DATE", "First day, UTC.", formats=["%Y-%m-%d"], show_default="today"),
    ] = None,
    steps: Annotated[str, cli.option("A,B,C", "Steps that it covers.", show_default="usual")] = "",
    labels: Annotated[
        bool, typer.Option("--labels", help="Also cover labels of the rows.")
    ] = False,
    sites: Annotated[str, cli.option("A,B,C", "Sites that it covers.", show_default="all")] = "",
) -> None:
    """Write and sign a permit for a study; each site decides whether to accept it.

    Send DIR/permits/ID.toml and ID.sig to each site, which runs fedcluster site permit --accept.
    Then use it: fedcluster federation run DIR fit --permit ID.
    """
    federation = _loaded(folder)
    from fedcluster.frames.columns import column_list
    from fedcluster_app.coordinator.folder import grant
    from fedcluster_app.coordinator.operators import noted
    from fedcluster_app.trust.permits import LABEL_STEPS, STEPS

    usual = STEPS + LABEL_STEPS if labels else STEPS
    path = grant(
        federation,
        id=name,
        purpose=purpose,
        sites=tuple(sites.split(",")) if sites else (),
        columns=tuple(column_list(columns) or ()),
        labels=labels,
        steps=tuple(steps.split(",")) if steps else usual,
        rounds=rounds,
        start=(start or datetime.now(UTC)).date(),
        end=end.date(),
    )
    noted(federation.folder, "permit granted", permit=name)
    say(f"Wrote {path} and {path.with_suffix('.sig').name}: hand both to each site.")


Columns = Annotated[
    str | None,
    cli.option("A,B,C", "Columns to use; by default all that the sites have.", show_default=True),
]


@run_app.callback()
def run(context: typer.Context, folder: Folder) -> None:
    """Run a job at the sites of a federation."""
    context.obj = folder


@run_app.command(epilog="Example: fedcluster federation run trial fit -k 4 --out result")
@cli.with_options
def fit(
    context: typer.Context,
    *,
    words: Fit,
    fuzzy: cli.Fuzzy = False,
    columns: Columns = None,
    scaling: cli.Scaling,
    options: RunOptions,
    show: cli.ShowOptions,
    _plugins: Sequence[str] = (),
) -> None:
    """Cluster the rows of all sites.

    Columns are prepared as by fedcluster fit: numbers are scaled, missing values filled in, and
    text with few values turned into columns of 0 and 1. Sites must allow your own algorithms among
    their steps.

    Writes model.json, history.json and report.html; with -k auto also selection.json and, with
    matplotlib, curves.png. Every site gets the model and writes the clusters of its rows itself.
    Limits on what leaves a site are set in its site.toml.
    """
    job, used = cli.fit_asked(words, scaling, columns, fuzzy=fuzzy)
    begin(context.obj, job, options, show, used)


@run_app.command(
    name="select-k", epilog="Example: fedcluster federation run trial select-k --k-max 9 --out k"
)
@cli.with_options
def select_k(
    context: typer.Context,
    *,
    job: SelectK,
    gap_bounds: Any = None,
    columns: Columns = None,
    scaling: cli.Scaling,
    options: RunOptions,
    show: cli.ShowOptions,
    _plugins: Sequence[str] = (),
) -> None:
    """Choose the number of clusters of all sites' rows, and give the reason.

    Shows the same as fedcluster select-k, and writes it to selection.json and, with matplotlib,
    curves.png.
    """
    cli.check_options(job)
    job = cli.with_choice(job, cli.preparation(scaling, columns), gap_bounds)
    begin(context.obj, job, options, show, columns)


@run_app.command(
    epilog="Example: fedcluster federation run trial evaluate result/model.json --out scores"
)
@cli.with_options
def evaluate(
    context: typer.Context,
    model_file: cli.ModelFile,
    *,
    labels: Annotated[
        bool,
        typer.Option(
            "--labels",
            help="Also compare the clusters with the reference labels in the column that each site "
            "names as label_column in its site.toml.",
        ),
    ] = False,
    metrics: Sequence[str] = (),
    own_algorithm: str | None = None,
    profile: cli.AlsoProfile = False,
    beside: cli.Beside = None,
    options: RunOptions,
    show: cli.ShowOptions,
    _plugins: Sequence[str] = (),
) -> None:
    """Compute how good the clusters of a model are at all sites; write scores.json.

    With --labels, also compare them with reference labels: each site tells which labels enough of
    its rows have, and how many rows of each cluster have which. Sites must allow your own metrics
    and algorithms among their steps.
    """
    from fedcluster.model import Model

    algorithms = list(filter(None, [cli.own(own_algorithm)]))
    files = [str(file.absolute()) for file in (model_file, beside) if file is not None]
    columns = [name for file in files for name in Model.load(file, algorithms).columns]
    options = replace(options, columns=tuple(dict.fromkeys(columns)))
    job = Evaluate(
        files[0],
        labels,
        metrics=cli.from_current_folder(metrics),
        algorithms=algorithms,
        profile=profile,
        beside=files[1] if beside else None,
    )
    begin(context.obj, job, options, show)


@run_app.command(
    epilog="Example: fedcluster federation run trial profile result/model.json --out profiles"
)
@cli.with_options
def profile(
    context: typer.Context,
    model_file: cli.ModelFile,
    *,
    own_algorithm: str | None = None,
    outcome: cli.Outcomes = None,
    time_column: cli.TimeColumn = None,
    options: RunOptions,
    show: cli.ShowOptions,
    _plugins: Sequence[str] = (),
) -> None:
    """Describe what sets the clusters of a model apart at all sites, and propose names.

    Takes two rounds and writes profiles.json, as fedcluster profile does. Values over few rows are
    missing if a site's limits hold them back. With --outcome, instead compares the clusters by
    outcomes in three rounds and writes comparison.json, as fedcluster compare does.
    """
    from fedcluster.model import Model

    algorithms = list(filter(None, [cli.own(own_algorithm)]))
    columns, file = Model.load(model_file, algorithms).columns, str(model_file.absolute())
    job: Compare | Profile = Profile(file, algorithms)
    if outcome or time_column:
        job = Compare(file, tuple(dict.fromkeys(outcome or ())), time_column, algorithms=algorithms)
        columns += job.columns
    begin(context.obj, job, replace(options, columns=columns), show)


@run_app.command(epilog="Example: fedcluster federation run trial resume 20260102-030405-ab12")
def resume(
    context: typer.Context,
    name: Annotated[str, cli.argument("RUN", "Name of the run.")],
    out: OutAgain = None,
    as_json: cli.AsJson = False,
    quiet: cli.Quiet = False,
    _plugin: cli.Plugin = None,
) -> None:
    """Continue an interrupted run from its last round, or follow one that goes on.

    Of a run that is done, fetch the files.
    """
    coordinator = coordinator_at(context.obj, run=name)
    screen = Screen(as_json=as_json, quiet=quiet)
    where = out or coordinator.out_of(name)
    follow(coordinator, screen, lambda: coordinator.resume(name), where)


@run_app.command(
    epilog="Example: fedcluster federation run trial forget 20260102-030405-ab12 north --out new"
)
@cli.with_options
def forget(
    context: typer.Context,
    name: Annotated[str, cli.argument("RUN", "Name of the run.")],
    site: Annotated[str, cli.argument("SITE", "Name of the site.")],
    *,
    out: cli.Out,
    show: cli.ShowOptions,
    _plugin: cli.Plugin = None,
) -> None:
    """Do a run again as if a site had never been asked.

    The result is exactly that of a run without the site. What the other sites answered before is
    used as long as the questions do not depend on the site; then they are asked again.
    """
    show.check_folder(out)
    coordinator = coordinator_at(context.obj)
    screen = Screen(as_json=show.as_json, quiet=show.quiet)
    follow(coordinator, screen, lambda: coordinator.forget(name, site, out), out)
    before = coordinator.folder / "runs" / name if coordinator.federation else f"run {name}"
    say(f"Delete {before} and its results: they hold sums of {site}.")


SHORTLY = 10.0
"""Seconds within which a running coordinator notices a change."""

PublicKey = Annotated[
    Path | None,
    cli.option(
        "FILE",
        "Public key that the site made with site key --new; then no private key travels.",
    ),
]
Site = Annotated[str, cli.argument("SITE", "Name of the site.")]


@app.command("add-site", epilog="Example: fedcluster federation add-site trial east")
def add_site(
    folder: Folder,
    names: Annotated[list[str], cli.argument("SITE...", "Names of the sites.")],
    public_key: PublicKey = None,
) -> None:
    """Add sites, also while the coordinator and other sites run.

    Writes sites/SITE, to be handed to the site, over FLARE with its startup kit. Runs that begin
    later ask it, too.
    """
    before = federation_at(folder)
    from fedcluster_app.coordinator.lifecycle import add_sites

    if before.has_flare:
        kits = _kits(before, public_key)
    federation = add_sites(folder, names, public_key)
    if federation.has_flare:
        kits.add_kits(federation, names)
    for name in names:
        secret = "its key is the one that it made" if public_key else "the key in it is secret"
        say(f"Wrote {federation.file('sites', name)}: hand it to {name}; {secret}.")
    _await_notice(federation)


@app.command("remove-site", epilog="Example: fedcluster federation remove-site trial east")
def remove_site(folder: Folder, site: Site) -> None:
    """Take a site out, also while it is connected.

    A run that asks it goes on with it; then it is disconnected. Runs that begin later do not ask
    it. Records and results of earlier runs stay. To cut a site off at once, revoke its key
    (rotate-key).
    """
    federation_at(folder)
    from fedcluster.texts import counted
    from fedcluster_app.coordinator import lifecycle

    federation = lifecycle.remove_site(folder, site)
    say(f"Removed {site}; the federation has {counted(len(federation.sites), 'site')}.")
    _await_notice(federation)


@app.command("rotate-key", epilog="Example: fedcluster federation rotate-key trial east")
def rotate_key(
    folder: Folder,
    site: Site,
    public_key: PublicKey = None,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Only take back its key, at once: it was stolen.")
    ] = False,
) -> None:
    """Give a site a new key. The old one counts until the site has connected with the new one.

    With --revoke, for example because the key was lost or stolen, the site is disconnected, and a
    run that goes on refuses its answers. It stays a member: runs need it, or a quorum without it,
    until a new key lets it in, or remove-site takes it out.
    """
    federation = federation_at(folder)
    from fedcluster.errors import InputError
    from fedcluster_app.coordinator import lifecycle
    from fedcluster_app.coordinator.certificates import digest_of

    if revoke:
        if public_key is not None:
            raise InputError("--revoke gives no new key: leave --public-key out")
        lifecycle.revoke(folder, site)
        say(f"The key of {site} does not count any more.")
    elif federation.has_flare:
        _kits(federation, public_key).renew_kits(folder, [site])
        _tell_of_kit(federation, site)
    elif public_key is not None:
        lifecycle.rotate_key(folder, site, public_key)
        say(f"Accepted the key with the digest {digest_of(public_key)}; {site} takes it by itself.")
    else:
        path = lifecycle.rotate_key(folder, site)
        say(f"Wrote {path}: hand it to {site} by a way that nobody else can read, and delete it.")
        say("The site puts it in the place of its own file of that name; one that runs notices.")
    _await_notice(federation)


@app.command(epilog="Example: fedcluster federation certificate trial server.crt --ca ca.crt")
def certificate(
    folder: Folder,
    file: Annotated[
        Path | None,
        cli.argument("[FILE]", "Certificate of another authority in PEM, then intermediate ones."),
    ] = None,
    *,
    ca: Annotated[
        Path | None,
        cli.option(
            "FILE",
            "Certificate of that authority, for the sites; without it, sites trust the "
            "authorities that their machines trust.",
        ),
    ] = None,
    key: Annotated[
        Path | None, cli.option("FILE", "Its private key in PEM; by default the coordinator's own.")
    ] = None,
    authority_key: Annotated[
        Path | None,
        cli.option("FILE", "Where the key of the authority is kept; by default in the folder."),
    ] = None,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Also make a new key of the coordinator.")
    ] = False,
    new_authority: Annotated[
        bool,
        typer.Option(
            "--new-authority",
            help="Make a new authority and a new key; nothing made before counts.",
        ),
    ] = False,
) -> None:
    """Write another certificate for the coordinator's address. Sites need nothing new.

    With a file, use a certificate of your organisation's authority, or of a public one. A
    coordinator that runs uses it within seconds. Only with --new-authority or another --ca do the
    sites get a new file, ca.crt, without which they cannot connect any more. Over FLARE, all kits
    get other certificates, and no option but --new-authority has a meaning.

    For another address, first write it into federation.toml, then end and start the coordinator.
    """
    federation = federation_at(folder)
    from fedcluster.errors import InputError
    from fedcluster_app.coordinator import lifecycle

    if file is not None:
        if authority_key or new_key or new_authority:
            raise InputError(f"{file} is signed by another authority: give --ca and --key only")
        end = lifecycle.install(folder, file, ca, key)
        handed = f"hand {folder / 'certificates' / 'ca.crt'} to all sites"
        if_new = f"If it is a new authority: {handed}."
        say(if_new if ca else 'Sites write certificate = "system".')
    elif ca or key:
        raise InputError("--ca and --key belong to a certificate: name its file, too")
    else:
        made = {"new_key": new_key, "new_authority": new_authority}
        end = _renewed(federation, authority_key=authority_key, **made)
    say(f"The certificate is valid until {end:%Y-%m-%d}.")


def _renewed(federation: Federation, *, new_authority: bool, **how: Any) -> datetime:
    """Renew the coordinator's certificate, over FLARE with all kits; return when it ends."""
    from fedcluster_app.coordinator import lifecycle

    folder = federation.folder
    kits = _kits(federation) if federation.has_flare else None
    end = lifecycle.renew(folder, new_authority=new_authority, **how)
    if new_authority:
        say(f"Hand {folder / 'certificates' / 'ca.crt'} to all sites; each puts it in the")
        say("place of its own. Grant permits anew, as they name the coordinator by its")
        say("authority.")
    if kits is not None:
        kits.renew_kits(folder, new_authority=new_authority)
        _tell_of_kit(federation, "SITE")
        say(f"End the coordinator, and start it: {command_line('federation', 'start', folder)}")
        end = min(map(lifecycle.certificate_end, lifecycle.own_certificates(federation)))
    return end


def _kits(federation: Federation, public_key: Path | None = None) -> ModuleType:
    """Return the module that makes kits of FLARE, if it can make some."""
    from fedcluster.errors import InputError

    needs("nvflare", "flare")
    from fedcluster_app.transports.flare import coordinator

    if public_key is not None:
        raise InputError("FLARE makes the keys of its kits: leave --public-key out")
    coordinator.check_authority(federation)
    return coordinator


def _tell_of_kit(federation: Federation, site: str) -> None:
    kit = federation.file("sites", site, "flare")
    say(f"Hand {kit} to {site}: it puts the folder startup in the place of its own and starts")
    say("again. Its old kit counts until then, but not after --new-authority or --revoke.")


def _await_notice(federation: Federation) -> None:
    """Wait until a running coordinator has noticed a change, and print that it has."""
    from fedcluster_app.coordinator.lifecycle import is_noticed
    from fedcluster_app.trust.owned_files import is_running

    end = time.monotonic() + SHORTLY
    while is_running(federation.folder) and time.monotonic() < end:
        if is_noticed(federation):
            say("The coordinator, which runs, has taken notice.")
            return
        time.sleep(0.1)
    say("It counts as soon as the coordinator starts, or looks at its folder again.")
