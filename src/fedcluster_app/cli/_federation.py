"""Commands of a coordinator, ``fedcluster federation``: its folder, sites, keys and certificate."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcluster.recipes.specifications import Evaluate, Fit, Profile, RunOptions, SelectK
from fedcluster_app.cli._keys import with_options
from fedcluster_app.cli._operators import (
    Folder,
    OutAgain,
    app,
    begin,
    coordinator_at,
    federation_at,
    follow,
)
from fedcluster_app.cli._options import (
    AlsoProfile,
    AsJson,
    Beside,
    Fuzzy,
    ModelFile,
    Out,
    OwnMetrics,
    Plugin,
    Quiet,
    Scaling,
    ShowOptions,
    argument,
    check_options,
    fit_asked,
    from_current_folder,
    option,
    own,
    preparation,
    with_choice,
)
from fedcluster_app.cli._screen import Commands, Format, LogFormat, Screen, needs, say, telling

if TYPE_CHECKING:
    from fedcluster_app.coordinator.folder import Federation


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
    sites: Annotated[str, option("A,B,C", "Names of the sites.")],
    address: Annotated[
        str,
        option("HOST:PORT", "Address at which the sites reach the coordinator.", show_default=True),
    ] = "127.0.0.1:8443",
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="No encryption and no keys; for trials on one machine."),
    ] = False,
    bind: Annotated[
        str | None, option("IP", "IP address at which the coordinator listens.")
    ] = None,
    authority_key: Annotated[
        Path | None,
        option("FILE", "Where the authority's key is written; by default certificates/ca.key."),
    ] = None,
) -> None:
    """Create the folder of a federation.

    It holds certificates, a key for each site and, in sites/NAME, the folder for each site. Its
    README describes the next steps.
    """
    needs("flwr", "flower")
    from fedcluster_app.coordinator.folder import create
    from fedcluster_app.report.messages import two_sites_line

    federation = create(
        folder,
        sites.split(","),
        address,
        insecure=insecure,
        bind=bind,
        authority_key=authority_key,
    )
    say(f"Wrote {folder}: hand sites/NAME to each of {', '.join(federation.sites)}.")
    for line in two_sites_line(len(federation.sites)):
        say(f"warning: {line}")
    if insecure:
        say("INSECURE: nothing is encrypted and any program of this machine may take part.")
    say(f"How to go on is written in {folder / 'README.md'}.")


@app.command(epilog="Example: fedcluster federation start trial")
def start(folder: Folder, log_format: LogFormat = Format.TEXT, _plugin: Plugin = None) -> None:
    """Let the sites connect and carry out runs, until interrupted.

    Runs Flower's SuperLink, whose output goes to DIR/flower/superlink.log. Runs that wait, or were
    broken off when the coordinator ended, go on. For FLARE, use fedcluster flare start.
    """
    federation = _loaded(folder)
    from fedcluster.errors import InputError
    from fedcluster_app.cli._screen import until_interrupted
    from fedcluster_app.coordinator.renewal import expiry_notice
    from fedcluster_app.coordinator.service import operated
    from fedcluster_app.transports.flower.coordinator import run_jobs, serve

    if federation.has_flare:
        server = federation.file("flare", "server")
        raise InputError(f"FLARE carries this federation: run fedcluster flare start {server}")
    with (
        until_interrupted(),
        telling(federation.file("logs", "coordinator.jsonl"), log_format) as tell,
        serve(federation) as carrier,
        operated(carrier) as queue,
    ):
        if federation.insecure:
            tell("INSECURE: nothing is encrypted; for trials on this machine only.")
        if notice := expiry_notice(federation):
            tell(notice)
        tell(f"The sites can connect to {federation.address}; Ctrl-C ends it.")
        run_jobs(carrier, queue.close)
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
    name: Annotated[str, argument("ID", "Name of the permit.")],
    *,
    purpose: Annotated[str, option("TEXT", "Purpose of the study.")],
    columns: Annotated[str, option("A,B,C", "Columns that it covers.")],
    rounds: Annotated[int, option("N", "Number of rounds that a site answers.")],
    end: Annotated[datetime, option("DATE", "Last day, UTC.", formats=["%Y-%m-%d"])],
    start: Annotated[
        datetime | None,
        option("DATE", "First day, UTC.", formats=["%Y-%m-%d"], show_default="today"),
    ] = None,
    steps: Annotated[str, option("A,B,C", "Steps that it covers.", show_default="usual")] = "",
    labels: Annotated[
        bool, typer.Option("--labels", help="Also cover labels of the rows.")
    ] = False,
    sites: Annotated[str, option("A,B,C", "Sites that it covers.", show_default="all")] = "",
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
    option("A,B,C", "Columns to use; by default all that the sites have.", show_default=True),
]


@run_app.callback()
def run(context: typer.Context, folder: Folder) -> None:
    """Run a job at the sites of a federation."""
    context.obj = folder


@run_app.command(epilog="Example: fedcluster federation run trial fit -k 4 --out result")
@with_options
def fit(
    context: typer.Context,
    *,
    words: Fit,
    fuzzy: Fuzzy = False,
    columns: Columns = None,
    scaling: Scaling,
    options: RunOptions,
    show: ShowOptions,
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
    job, used = fit_asked(words, scaling, columns, fuzzy=fuzzy)
    begin(context.obj, job, options, show, used)


@run_app.command(
    name="select-k", epilog="Example: fedcluster federation run trial select-k --k-max 9 --out k"
)
@with_options
def select_k(
    context: typer.Context,
    *,
    job: SelectK,
    gap_bounds: Any = None,
    columns: Columns = None,
    scaling: Scaling,
    options: RunOptions,
    show: ShowOptions,
    _plugins: Sequence[str] = (),
) -> None:
    """Choose the number of clusters of all sites' rows, and give the reason.

    Shows the same as fedcluster select-k, and writes it to selection.json and, with matplotlib,
    curves.png.
    """
    check_options(job)
    job = with_choice(job, preparation(scaling, columns), gap_bounds)
    begin(context.obj, job, options, show, columns)


@run_app.command(
    epilog="Example: fedcluster federation run trial evaluate result/model.json --out scores"
)
@with_options
def evaluate(
    context: typer.Context,
    model_file: ModelFile,
    *,
    labels: Annotated[
        bool,
        typer.Option(
            "--labels",
            help="Also compare the clusters with the reference labels in the column that each site "
            "names as label_column in its site.toml.",
        ),
    ] = False,
    metric: OwnMetrics = None,
    own_algorithm: str | None = None,
    profile: AlsoProfile = False,
    beside: Beside = None,
    options: RunOptions,
    show: ShowOptions,
    _plugins: Sequence[str] = (),
) -> None:
    """Compute how good the clusters of a model are at all sites; write scores.json.

    With --labels, also compare them with reference labels: each site tells which labels enough of
    its rows have, and how many rows of each cluster have which. Sites must allow your own metrics
    and algorithms among their steps.
    """
    from fedcluster.model import Model

    algorithms = list(filter(None, [own(own_algorithm)]))
    files = [str(file.absolute()) for file in (model_file, beside) if file is not None]
    columns = [name for file in files for name in Model.load(file, algorithms).columns]
    options = replace(options, columns=tuple(dict.fromkeys(columns)))
    job = Evaluate(
        files[0],
        labels,
        metrics=from_current_folder(metric) or [],
        algorithms=algorithms,
        profile=profile,
        beside=files[1] if beside else None,
    )
    begin(context.obj, job, options, show)


@run_app.command(
    epilog="Example: fedcluster federation run trial profile result/model.json --out profiles"
)
@with_options
def profile(
    context: typer.Context,
    model_file: ModelFile,
    *,
    own_algorithm: str | None = None,
    options: RunOptions,
    show: ShowOptions,
    _plugins: Sequence[str] = (),
) -> None:
    """Describe what sets the clusters of a model apart at all sites, and propose names.

    Takes two rounds and writes profiles.json, as fedcluster profile does. Values over few rows are
    missing if a site's limits hold them back.
    """
    from fedcluster.model import Model

    algorithms = list(filter(None, [own(own_algorithm)]))
    options = replace(options, columns=Model.load(model_file, algorithms).columns)
    job = Profile(str(model_file.absolute()), algorithms)
    begin(context.obj, job, options, show)


@run_app.command(epilog="Example: fedcluster federation run trial resume 20260102-030405-ab12")
def resume(
    context: typer.Context,
    name: Annotated[str, argument("RUN", "Name of the run.")],
    out: OutAgain = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
    _plugin: Plugin = None,
) -> None:
    """Continue an interrupted run from its last round, or follow one that goes on.

    Of a run that is done, fetch the files.
    """
    with coordinator_at(context.obj, run=name) as coordinator:
        screen = Screen(as_json=as_json, quiet=quiet)
        where = out or coordinator.out_of(name)
        follow(coordinator, screen, lambda: coordinator.resume(name), where)


@run_app.command(
    epilog="Example: fedcluster federation run trial forget 20260102-030405-ab12 north --out new"
)
@with_options
def forget(
    context: typer.Context,
    name: Annotated[str, argument("RUN", "Name of the run.")],
    site: Annotated[str, argument("SITE", "Name of the site.")],
    *,
    out: Out,
    show: ShowOptions,
    _plugin: Plugin = None,
) -> None:
    """Do a run again as if a site had never been asked.

    The result is exactly that of a run without the site. What the other sites answered before is
    used as long as the questions do not depend on the site; then they are asked again.
    """
    show.check_folder(out)
    with coordinator_at(context.obj) as coordinator:
        screen = Screen(as_json=show.as_json, quiet=show.quiet)
        follow(coordinator, screen, lambda: coordinator.forget(name, site, out), out)
    before = coordinator.folder / "runs" / name if coordinator.federation else f"run {name}"
    say(f"Delete {before} and its results: they hold sums of {site}.")


if TYPE_CHECKING:
    from fedcluster_app.coordinator.folder import Federation

SHORTLY = 10.0
"""Seconds within which a running coordinator notices a change."""

PublicKey = Annotated[
    Path | None,
    option(
        "FILE",
        "Public key that the site made with site key --new; then no private key travels.",
    ),
]
Site = Annotated[str, argument("SITE", "Name of the site.")]


@app.command("add-site", epilog="Example: fedcluster federation add-site trial east")
def add_site(
    folder: Folder,
    names: Annotated[list[str], argument("SITE...", "Names of the sites.")],
    public_key: PublicKey = None,
) -> None:
    """Add sites, also while the coordinator and other sites run.

    Writes sites/SITE, to be handed to the site, over FLARE with its startup kit. Runs that begin
    later ask it, too.
    """
    before = federation_at(folder)
    from fedcluster_app.coordinator.lifecycle import add_sites

    if before.has_flare:
        needs("nvflare", "flare")
        from fedcluster_app.transports.flare.coordinator import add_kits, lead_by_authority

        lead_by_authority(before)
    federation = add_sites(folder, names, public_key)
    if federation.has_flare:
        add_kits(federation, names)
    for name in names:
        secret = "its key is the one that it made" if public_key else "the key in it is secret"
        secret = "" if federation.insecure else f"; {secret}"
        say(f"Wrote {federation.file('sites', name)}: hand it to {name}{secret}.")
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
        _await_notice(federation)
        return
    path = lifecycle.rotate_key(folder, site, public_key)
    if public_key is not None:
        say(f"Accepted the key with the digest {digest_of(public_key)}; {site} takes it by itself.")
    else:
        say(f"Wrote {path}: hand it to {site} by a way that nobody else can read, and delete it.")
        say("The site puts it in the place of its own file of that name; one that runs notices.")
    _await_notice(federation)


@app.command(epilog="Example: fedcluster federation certificate trial server.crt --ca ca.crt")
def certificate(
    folder: Folder,
    file: Annotated[
        Path | None,
        argument("[FILE]", "Certificate of another authority in PEM, then intermediate ones."),
    ] = None,
    *,
    ca: Annotated[
        Path | None,
        option(
            "FILE",
            "Certificate of that authority, for the sites; without it, sites trust the "
            "authorities that their machines trust.",
        ),
    ] = None,
    key: Annotated[
        Path | None, option("FILE", "Its private key in PEM; by default the coordinator's own.")
    ] = None,
    authority_key: Annotated[
        Path | None,
        option("FILE", "Where the key of the authority is kept; by default in the folder."),
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
    from fedcluster_app.coordinator import renewal

    if file is not None:
        if authority_key or new_key or new_authority:
            raise InputError(f"{file} is signed by another authority: give --ca and --key only")
        end = renewal.install(folder, file, ca, key)
        handed = f"hand {folder / 'certificates' / 'ca.crt'} to all sites"
        if_new = f"If it is a new authority: {handed}."
        say(if_new if ca else 'Sites write certificate = "system".')
    elif ca or key:
        raise InputError("--ca and --key belong to a certificate: name its file, too")
    elif federation.has_flare and not (authority_key or new_key):
        end = _renew_kits(federation, new_authority=new_authority)
    else:
        made = {"new_key": new_key, "new_authority": new_authority}
        end = renewal.renew(folder, authority_key=authority_key, **made)
        if new_authority:
            say(f"Hand {folder / 'certificates' / 'ca.crt'} to all sites; each puts it in the")
            say("place of its own. Grant permits anew, as they name the coordinator by its")
            say("authority.")
    say(f"The certificate is valid until {end:%Y-%m-%d}.")


def _renew_kits(federation: Federation, *, new_authority: bool) -> datetime:
    needs("nvflare", "flare")
    from fedcluster_app.coordinator.renewal import FLARE, certificate_end
    from fedcluster_app.transports.flare.coordinator import renew_kits

    renew_kits(federation, new_authority=new_authority)
    kit = federation.file("sites", "SITE", "flare")
    say(f"Hand {kit} to each site: it puts the folder startup in the place of its own and starts")
    say(f"again. Start the server again: fedcluster flare start {federation.file('flare/server')}")
    old = "do not count any more" if new_authority else "count until they end"
    say(f"Certificates made before {old}.")
    return certificate_end(federation.file(FLARE[0]))


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
