"""``fedcluster federation``: what the coordinator of sites over a network does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcluster.cli._arguments import (
    AsJson,
    Averaging,
    Elbow,
    Fuzzifier,
    GapBounds,
    LargestK,
    ModelFile,
    Out,
    Overwrite,
    Quiet,
    Rule,
    Seed,
    SmallestK,
    SumsOnly,
)
from fedcluster.cli._choices import Algorithm, AveragingName, Init, Quality, RuleName
from fedcluster.cli._preparing import (
    Bounds,
    Categories,
    Log,
    Missing,
    Pca,
    Scale,
    ScaleName,
    asked,
)
from fedcluster.cli._screen import Screen, needs

if TYPE_CHECKING:
    from fedcluster.federation._jobs import Job
    from fedcluster.transports.flower._coordinator import RunOptions


app = typer.Typer(
    help="Cluster over a network: for the coordinator.", no_args_is_help=True, rich_markup_mode=None
)
run_app = typer.Typer(
    help="Ask the sites of a federation.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(run_app, name="run")

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", show_default=False, help="The folder of the federation.")
]


@app.command(
    epilog="Example: fedcluster federation new trial --sites north,south,west "
    "--address cluster.example.org:8443"
)
def new(
    folder: Folder,
    sites: Annotated[
        str, typer.Option(metavar="A,B,C", show_default=False, help="The names of the sites.")
    ],
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the sites reach the coordinator.")
    ] = "127.0.0.1:8443",
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="No encryption and no keys; for one machine, for trials."),
    ] = False,
) -> None:
    """Make the folder of a federation.

    In it: certificates, a key for each site, and in sites/NAME what is handed to each site. Its
    README says how to go on.
    """
    needs("flwr", "flower")
    from fedcluster.federation._folder import create

    federation = create(folder, sites.split(","), address, insecure=insecure)
    typer.echo(f"Wrote {folder}: hand sites/NAME to each of {', '.join(federation.sites)}.")
    if insecure:
        typer.echo("INSECURE: nothing is encrypted and any program of this machine may take part.")
    typer.echo(f"How to go on is written in {folder / 'README.md'}.")


@app.command(epilog="Example: fedcluster federation start trial")
def start(folder: Folder) -> None:
    """Let the sites connect, until interrupted.

    Runs Flower's SuperLink; what it prints goes to DIR/flower/superlink.log.
    """
    needs("flwr", "flower")
    import time

    from fedcluster.cli._screen import until_interrupted
    from fedcluster.federation._folder import Federation
    from fedcluster.transports.flower._superlink import serve

    federation = Federation.load(folder)
    with until_interrupted(), serve(federation) as superlink:
        if federation.insecure:
            typer.echo("INSECURE: nothing is encrypted; for trials on this machine only.")
        typer.echo(f"The sites can connect to {federation.address}; Ctrl-C ends it.")
        sys.stdout.flush()
        while True:
            superlink.check()
            time.sleep(0.5)
    typer.echo("Ended.")


@app.command(epilog="Example: fedcluster federation show trial")
def show(folder: Folder, as_json: AsJson = False) -> None:
    """Show which sites are connected, and the runs."""
    needs("flwr", "flower")
    from fedcluster.federation._folder import Federation
    from fedcluster.report import Table
    from fedcluster.transports.flower._coordinator import runs
    from fedcluster.transports.flower._superlink import sites_online

    federation = Federation.load(folder)
    with Screen(as_json=as_json, quiet=False) as screen:
        online = sites_online(federation)
        outcomes = runs(federation)
    sites = {name: "connected" if name in online else "not connected" for name in federation.sites}
    screen.result(
        {"sites": sites, "runs": outcomes},
        [
            Table("Sites", ("site", "now"), tuple(sites.items())),
            Table("Runs", ("run", "outcome"), tuple(outcomes.items())),
        ],
    )


Columns = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C", help="Columns to cluster by; by default all that the sites have."
    ),
]
Quorum = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        show_default="all",
        help="How many sites must answer a round; it goes on without the others.",
    ),
]
Deadline = Annotated[
    float,
    typer.Option(
        metavar="S",
        help="Seconds to wait for a site in a round. Flower notices after at most 65 that a site "
        "has died.",
    ),
]


@run_app.callback()
def run(context: typer.Context, folder: Folder) -> None:
    """Ask the sites of a federation."""
    context.obj = folder


@run_app.command(epilog="Example: fedcluster federation run trial fit -k 4 --out result")
def fit(
    context: typer.Context,
    k: Annotated[
        int,
        typer.Option(
            "-k", "--clusters", metavar="K", show_default=False, help="How many clusters."
        ),
    ],
    out: Out,
    algorithm: Annotated[Algorithm, typer.Option(help="As of fedcluster fit.")] = Algorithm["AUTO"],
    init: Annotated[Init, typer.Option(help="Where it starts.")] = Init["AUTO"],
    n_init: Annotated[
        int | None,
        typer.Option(metavar="N", show_default="the algorithm's", help="How many starts to try."),
    ] = None,
    fuzzy: Annotated[bool, typer.Option("--fuzzy", help="Fuzzy c-means.")] = False,
    m: Annotated[
        float | None,
        typer.Option("-m", metavar="M", show_default="2", help="The fuzzifier. Means --fuzzy."),
    ] = None,
    quality: Annotated[
        Quality, typer.Option(help="better and best search longer, for more rounds.")
    ] = Quality["GOOD"],
    sums_only: SumsOnly = False,
    participation: Annotated[
        float,
        typer.Option(metavar="C", help="The fraction of the sites that is asked in a round."),
    ] = 1.0,
    max_iter: Annotated[int, typer.Option(metavar="N", help="The most rounds.")] = 300,
    tol: Annotated[
        float,
        typer.Option(metavar="T", help="Stop when the centres move less, as in scikit-learn."),
    ] = 1e-4,
    seed: Seed = 0,
    columns: Columns = None,
    scale: Scale = ScaleName.STANDARD,
    missing: Missing = None,
    categories: Categories = None,
    log: Log = None,
    bounds: Bounds = None,
    pca: Pca = None,
    quorum: Quorum = None,
    deadline: Deadline = 120.0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find clusters of the rows of all sites.

    Rows are prepared as by fedcluster fit: scaled, missing values filled in, text with few values
    as columns of 0 and 1.

    Writes model.json and history.json here. Every site gets the model, and writes the clusters of
    its rows for itself. What a site holds back stands in its site.toml.
    """
    from fedcluster.cli import _runs as runs

    runs.check_numbers(k, n_init, max_iter, tol, seed=seed)
    fuzzifier = runs.fuzzifier(algorithm.value, m, fuzzy=fuzzy)
    needs("flwr", "flower")
    from fedcluster.federation._jobs import Fit

    job = Fit(
        n_clusters=k,
        algorithm=algorithm.value,
        init=init.value,
        n_init=n_init,
        max_iter=max_iter,
        tol=tol,
        quality=quality.value,
        sums_only=sums_only,
        m=fuzzifier,
        participation=runs.fraction(participation),
        seed=seed,
        prepare=asked(scale, missing, categories, columns, log, bounds, pca),
    )
    terms = _terms(out, columns, quorum, deadline, overwrite=overwrite)
    _begin(context.obj, job, terms, Screen(as_json=as_json, quiet=quiet))


@run_app.command(
    name="select-k", epilog="Example: fedcluster federation run trial select-k --k-max 9 --out k"
)
def select_k(
    context: typer.Context,
    out: Out,
    k_min: SmallestK = 1,
    k_max: LargestK = None,
    rule: Rule = RuleName["VOTE"],
    elbow: Elbow = False,
    averaging: Averaging = AveragingName["AVG_2"],
    bounds: GapBounds = None,
    m: Fuzzifier = None,
    sums_only: SumsOnly = False,
    seed: Seed = 0,
    columns: Columns = None,
    scale: Scale = ScaleName.STANDARD,
    missing: Missing = None,
    categories: Categories = None,
    quorum: Quorum = None,
    deadline: Deadline = 120.0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say how many clusters there are at all sites together, and why.

    As fedcluster select-k: shows what each index says of each k. Writes selection.json here and,
    with matplotlib, curves.png.
    """
    from fedcluster.cli import _runs as runs
    from fedcluster.cli import _selections as selections

    ks = selections.k_range(k_min, k_max)
    runs.check_numbers(seed=seed)
    prepare = asked(scale, missing, categories, columns)
    raw = prepare is None
    how = selections.rule(rule.value, averaging.value, bounds, m, elbow=elbow, raw=raw)
    needs("flwr", "flower")
    from fedcluster.federation._jobs import SelectK

    how |= {"fewer": k_max is None, "sums_only": sums_only, "seed": seed, "prepare": prepare}
    terms = _terms(out, columns, quorum, deadline, overwrite=overwrite)
    job = SelectK(ks[0], ks[-1], **how)
    _begin(context.obj, job, terms, Screen(as_json=as_json, quiet=quiet))


@run_app.command(
    epilog="Example: fedcluster federation run trial evaluate result/model.json --out scores"
)
def evaluate(
    context: typer.Context,
    model_file: ModelFile,
    out: Out,
    labels: Annotated[
        bool,
        typer.Option(
            "--labels",
            help="Compare the clusters with the labels of the rows too, in the column that each "
            "site's site.toml names as label_column.",
        ),
    ] = False,
    quorum: Quorum = None,
    deadline: Deadline = 120.0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Say how good the clusters of a model are at all sites together. Writes scores.json here.

    With --labels also how far they agree with reference labels: each site tells which labels
    enough of its rows have, and how many rows of each cluster have which.
    """
    needs("flwr", "flower")
    from fedcluster.federation._jobs import Evaluate
    from fedcluster.model import Model
    from fedcluster.transports.flower._coordinator import RunOptions

    columns = Model.load(model_file).columns
    terms = _terms(out, None, quorum, deadline, overwrite=overwrite)
    terms = RunOptions(terms.out, columns, terms.quorum, terms.deadline)
    screen = Screen(as_json=as_json, quiet=quiet)
    _begin(context.obj, Evaluate(str(model_file.absolute()), labels), terms, screen)


@run_app.command(epilog="Example: fedcluster federation run trial resume 20260102-030405-ab12")
def resume(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="RUN", show_default=False, help="Its name.")],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Let a run that was broken off go on from its last round."""
    needs("flwr", "flower")
    from fedcluster.federation._folder import Federation
    from fedcluster.transports.flower import _coordinator as coordinator

    federation = Federation.load(context.obj)
    with Screen(as_json=as_json, quiet=quiet) as screen:
        folder = coordinator.resume(federation, name)
        outcome = coordinator.wait(federation, folder, screen.doing)
    _show(screen, outcome)


def _terms(
    out: Path, columns: str | None, quorum: int | None, deadline: float, *, overwrite: bool
) -> RunOptions:
    """The terms of a job, checked."""
    from fedcluster.errors import InputError
    from fedcluster.io._columns import column_list
    from fedcluster.io._outputs import check_folder
    from fedcluster.transports.flower._coordinator import RunOptions

    check_folder(out, overwrite=overwrite)
    if not deadline > 0:
        raise InputError(f"--deadline must be above 0 seconds, not {deadline:g}")
    names = column_list(columns)
    return RunOptions(out, None if names is None else tuple(names), quorum, deadline)


def _begin(folder: Path, job: Job, terms: RunOptions, screen: Screen) -> None:
    """Have a job done and show what came of it."""
    from fedcluster.federation._folder import Federation
    from fedcluster.transports.flower import _coordinator as coordinator

    federation = Federation.load(folder)
    with screen:
        screen.doing("handing the job to Flower")
        run = coordinator.begin(federation, job, terms)
        outcome = coordinator.wait(federation, run, screen.doing)
    _show(screen, outcome)


def _show(screen: Screen, outcome: dict[str, Any]) -> None:
    """What came of a job, for people and for programs."""
    from fedcluster.federation._messages import shown

    screen.result(outcome, shown(outcome, screen.width))
