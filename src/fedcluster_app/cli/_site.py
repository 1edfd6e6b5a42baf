"""Commands of one site: ``fedcluster check`` and ``fedcluster site``."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcluster_app.cli import _options as cli
from fedcluster_app.cli._screen import (
    REFUSALS,
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
    until_interrupted,
    verified_log,
)

if TYPE_CHECKING:
    from fedcluster.frames.columns import SourceSummary
    from fedcluster.texts import Table
    from fedcluster_app.site.file import SiteFile
    from fedcluster_app.trust.audit_log import AuditLog
    from fedcluster_app.trust.permits import SitePermits

app = typer.Typer(
    cls=Commands,
    help="Cluster over a network: for a site.",
    callback=private,
    no_args_is_help=True,
)

SiteToml = Annotated[Path, cli.argument("SITE.TOML", "The site file.")]


@app.command(epilog="Example: fedcluster site start site.toml")
def start(
    site_file: SiteToml,
    log_format: LogFormat = Format.TEXT,
    quiet: cli.Quiet = False,
    _plugin: cli.Plugin = None,
) -> None:
    """Take part in a federation, until interrupted.

    Connects to the coordinator; opens no port. Numerical kernels that were never compiled on this
    machine are compiled before, so that the first answer is not late. With a startup kit of NVIDIA
    FLARE, the folder flare beside the site file, this is its sub_start.sh --once, which prints
    lines of its own.
    """
    from fedcluster.engines.warming import ensure_warmed
    from fedcluster_app.site.file import SiteFile
    from fedcluster_app.site.membership import Membership, site_models

    if (site_file.absolute().parent / "flare").is_dir():
        needs("nvflare", "flare")
        from fedcluster_app.transports.flare.node import take_part
    else:
        needs("flwr", "flower")
        from fedcluster_app.transports.flower.node import take_part

    path = site_file.absolute().parent / "logs" / "site.jsonl"
    site = SiteFile.load(site_file)
    _ask_for_names(site)
    with telling(path, log_format, site.name, quiet=quiet) as tell:
        with until_interrupted():
            take_part(site_file, tell, ensure_warmed)
        waits = site_models(site, Membership.from_site_file(site)).are_waiting
        tell("Ended." + " The next start labels the rows." * waits)


def _ask_for_names(site: SiteFile) -> None:
    """Ask the person who starts a site at a terminal which names of columns may leave, once."""
    if site.columns is not None or site.columns_file.exists() or not sys.stdin.isatty():
        return
    names = site.told_names()
    say(f"Others will be told the names of the columns of site {site.name}: {', '.join(names)}.")
    if not typer.confirm("May these names leave?"):
        raise typer.Exit(1)
    site.confirm()


@app.command(epilog="Example: fedcluster site reload site.toml")
def reload(site_file: SiteToml, as_json: cli.AsJson = False) -> None:
    """Let a site that is connected read its file and its rows anew, before the next run.

    A site notices by itself that files have changed. This is for a site file that was changed,
    and for databases whose change nothing shows. A wrong site file is refused here.
    """
    from fedcluster_app.transports import reloading

    with Screen(as_json=as_json, quiet=False) as screen:
        site = reloading.reload(site_file)
    screen.result(
        {"site": site.name, "reload": True},
        [f"Site {site.name} reads its file and its rows anew before the next run."],
    )


@app.command(epilog="Example: fedcluster site doctor site.toml")
def doctor(site_file: SiteToml, as_json: cli.AsJson = False) -> None:
    """Examine a site: its files, rows, connection, certificate, disk and versions.

    Opens a connection to the coordinator, and asks it for its version and whether the site's key
    counts. Shows no value of a row. The exit status is 1 if something is wrong.
    """
    from fedcluster_app.site.doctor import examined
    from fedcluster_app.transports.reloading import check_start

    diagnosed(
        lambda: examined(site_file, TRANSPORTS, _coordinator_reply(site_file), check_start),
        as_json=as_json,
    )


def _coordinator_reply(site_file: Path) -> dict[str, str]:
    """Return what a coordinator over Flower tells the owner of the site's key."""
    if find_spec("flwr") is None:
        return {}
    from fedcluster_app.transports.flower.node import told_by_coordinator

    return told_by_coordinator(site_file)


@app.command(epilog="Example: fedcluster site log site.toml --last 20")
def log(
    site_file: SiteToml,
    last: Annotated[
        int, cli.option("N", "Number of answers to show.", min=1, show_default=True)
    ] = 50,
    head: cli.KnownHash = "",
    as_json: cli.AsJson = False,
) -> None:
    """Show what left this site, who asked for it, and what the answers of each run reveal.

    Also what is spent of the privacy budget, and whether the log is in order: the exit status is
    not 0 if a line was changed, removed, moved, inserted or cut off, or if the groups are an older
    copy than those of which it tells. With --head, also if it is not the log that somebody else
    knows: the coordinator, which gets a hash with every answer, or whoever noted the hash that
    this command shows.
    """
    from fedcluster.texts import counted
    from fedcluster_app.site import logs as messages
    from fedcluster_app.site.file import SiteFile
    from fedcluster_app.site.membership import (
        Membership,
        site_budget,
        site_log,
        site_models,
        site_questions,
    )
    from fedcluster_app.trust.audit_log import read_log

    with Screen(as_json=as_json, quiet=False) as screen:
        site = SiteFile.load(site_file)
        membership = Membership.from_site_file(site)
        path, labels = site_log(site, membership).path, site_models(site, membership).outcome()
        answers = list(messages.answers_of(read_log(path)))
        events = messages.event_lines(read_log(path))
        runs, ledger = messages.run_records(answers), site_budget(site)
        spent = {"budget": messages.budget_content(ledger, answers)} if ledger else {}
        kept = partial(site_questions(site, membership).check, path)
        about, checked, wrong = verified_log(path, head, kept, site.check_groups)
    content = {"log": str(path), "answers": answers[-last:], "all": len(answers), "runs": runs}
    screen.result(
        {**content, "labels": labels, **spent, **about},
        [
            *messages.run_parts(runs),
            *events[-last:],
            *map(messages.answer_line, answers[-last:]),
            f"{counted(len(answers), 'answer')} left site {site.name}: {path}",
            *filter(None, [labels and f"Labels: {labels}"]),
            *(messages.budget_parts(spent["budget"]) if spent else ()),
            *checked,
        ],
    )
    if wrong is not None:
        raise wrong


@app.command(epilog="Example: fedcluster site groups site.toml")
def groups(site_file: SiteToml, as_json: cli.AsJson = False) -> None:
    """Group a table that is larger than memory, once: the site then answers from the means.

    Writes SITE.means.parquet beside the site file, whole or not at all, in memory that does not
    grow with the rows. Rows that come later are in no group: the table must stay as it is.
    """
    with Screen(as_json=as_json, quiet=False) as screen:
        from fedcluster_app.site.file import SiteFile
        from fedcluster_app.site.means import group_once

        site = SiteFile.load(site_file)
        screen.doing(f"grouping the rows of {site.name}")
        n_groups, n_in, n_rows = group_once(site)
    content = {"site": site.name, "means": str(site.means_file), "groups": n_groups}
    content |= {"p": site.groups.p, "rows": n_rows, "rows_in_groups": n_in}
    lines = [
        f"{site.means_file}: {n_groups:,} groups of at least {site.groups.p} rows, "
        f"{n_in:,} of {n_rows:,} rows. Questions are answered from these means."
    ]
    screen.result(content, [*lines, "Nothing was sent."])


@app.command(epilog="Example: fedcluster site evidence site.toml --out evidence.json")
def evidence(
    site_file: SiteToml,
    out: Annotated[
        Path | None,
        cli.option(
            "FILE.json",
            "File for all numbers; a page, FILE.html, is written beside it.",
            "--out",
            "-o",
        ),
    ] = None,
    *,
    rows: Annotated[
        int,
        cli.option(
            "N", "Largest number of rows that attacks are given.", min=50, show_default=True
        ),
    ] = 500,
    seed: cli.Seed = 0,
    as_json: cli.AsJson = False,
) -> None:
    """Show what stands behind every number that leaves a site, and what has left it.

    For each column of the groups: the largest share of one row (person) in a sum, and how many
    groups the rules of output checkers find. Then answers, versions of the rows, budget, cohorts,
    permits and the log, and what known attacks read of the site as it is. The last line is a
    statement that a person can sign. Nothing is sent, and nothing at the site changes.
    """
    needs("cryptography", "flower")
    with Screen(as_json=as_json, quiet=False, muted=REFUSALS) as screen:
        from fedcluster.errors import InputError
        from fedcluster_app.audit import evidence as found
        from fedcluster_app.audit.audit import audit, rows_of
        from fedcluster_app.site.file import SiteFile

        if out is not None and out.suffix != ".json":
            raise InputError(f"--out {out}: name a file that ends with .json")
        site = SiteFile.load(site_file)
        screen.doing(f"attacking {site.name} on this machine")
        data, protections = rows_of(site_file, rows, seed)
        audits = list(audit(data, protections[:1], seed=seed))
        screen.doing(f"reading the groups of {site.name}")
        content = found.evidence(site, audits)
        written = [] if out is None else found.write_evidence(out, content)
    wrote = [f"Wrote {' and '.join(map(str, written))}."] if written else []
    screen.result(content, [*wrote, *found.evidence_parts(content)])


@app.command(epilog="Example: fedcluster site key site.toml --new")
def key(
    site_file: SiteToml,
    new: Annotated[
        bool, typer.Option("--new", help="Make a new key for the coordinator instead.")
    ] = False,
    as_json: cli.AsJson = False,
) -> None:
    """Show the key by which the other sites know this one, for secure sums; make it first.

    Write the line into peers.toml, beside site.toml, together with those of all other sites: the
    same file everywhere, passed on without the coordinator. With that file, this command also shows
    its fingerprint; compare it with the other sites, for example by telephone.

    With --new, make a new key by which the coordinator knows this site; only its public part
    leaves. Send key.pub to the coordinator, who compares the digest with you, for example by
    telephone, and runs fedcluster federation rotate-key. A site that runs then takes the new key
    by itself.
    """
    needs("cryptography", "flower")
    from fedcluster_app.site.file import SiteFile

    with Screen(as_json=as_json, quiet=False) as screen:
        site = SiteFile.load(site_file)
        content, lines = (_new_key if new else _peer_key)(site)
    screen.result({"site": site.name, **content}, lines)


def _peer_key(site: SiteFile) -> tuple[dict[str, Any], list[str]]:
    """Return the key by which other sites know a site, and the fingerprint of all."""
    from fedcluster_app.trust import identity
    from fedcluster_app.trust.permits import public_text

    own = public_text(identity.identity(site.state_folder, make=True).public_key())
    path, lines = site.path.absolute().parent / identity.PEERS, [f'{site.name} = "{own}"']
    content: dict[str, Any] = {"key": own}
    if path.exists():
        peers = identity.load_peers(path)
        identity.check_own(path, site.name, peers, own)
        content |= {"peers": sorted(peers), "fingerprint": identity.fingerprint(peers)}
        lines.append(f"{path} has {len(peers)} sites; its fingerprint is")
        lines.append(content["fingerprint"])
    return content, lines


def _new_key(site: SiteFile) -> tuple[dict[str, Any], list[str]]:
    """Make a key by which the coordinator knows a site."""
    from fedcluster_app.coordinator.certificates import make_site_key

    made = make_site_key(site.path.absolute().parent, str(site.federation.get("key", "key")))
    lines = [f"Wrote {made.public}: send it to the coordinator. Its digest is", made.digest]
    if made.waits:
        lines.append("The present key counts until the coordinator has accepted the new one.")
    return {"public_key": str(made.public), "digest": made.digest, "waits": made.waits}, lines


@app.command(epilog="Example: fedcluster site permit site.toml hips-2026.toml --accept")
def permit(
    site_file: SiteToml,
    offered: Annotated[
        str | None,
        cli.argument("[PERMIT]", "File of a permit that is offered, or the name of one to revoke."),
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Sign it; the site then answers under it.")
    ] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Stop answering under it, at once.")
    ] = False,
    as_json: cli.AsJson = False,
) -> None:
    """Show the permits that this site has accepted, or one that is offered; accept or revoke it."""
    from fedcluster.errors import InputError
    from fedcluster.texts import counted
    from fedcluster_app.site.logs import permit_lines

    with Screen(as_json=as_json, quiet=False) as screen:
        if (accept or revoke) and (offered is None or accept == revoke):
            raise InputError("--accept needs the file of a permit, --revoke the name of one")
        permits, log = _permits(site_file)
        if revoke:
            permits.revoke(str(offered), log)
            lines = [f"Revoked permit {offered}."]
        elif accept:
            taken = permits.accept(Path(str(offered)), log)
            rounds = counted(taken.rounds, "round")
            lines = [f"Accepted permit {taken.id} for {rounds}, until {taken.end}."]
        with log.locked() as head:
            is_file = offered is not None and not (accept or revoke)
            known = [(permits.read(Path(str(offered))), {})] if is_file else permits.known(head)
    content = [{**each.plain(), **state} for each, state in known]
    if not (accept or revoke):
        lines = permit_lines(content) or ["No permit was accepted here."]
    screen.result({"permits": content}, lines)


def _permits(site_file: Path) -> tuple[SitePermits, AuditLog]:
    """Return the permits of a site and the log in which they are recorded."""
    from fedcluster_app.site.file import SiteFile
    from fedcluster_app.site.membership import Membership, site_log, site_permits

    site = SiteFile.load(site_file)
    membership = Membership.from_site_file(site)
    return site_permits(site, membership), site_log(site, membership)


@cli.with_options
def check(
    files: cli.Files,
    *,
    rows: cli.ColumnOptions,
    scaling: cli.Scaling,
    as_json: cli.AsJson = False,
    quiet: cli.Quiet = False,
) -> None:
    """Check a site file or a result, or compare the files of several sites before a fit.

    Given a site.toml, shows its rows and columns, missing values, and how many rows would be in
    groups, or the effect of the site's limits. Given data files, one for each site as for
    fedcluster fit, shows what each column holds at each site and what would be left out, and
    warns of values, units and spellings that look wrong. Sends nothing. Writes only, for a site of
    a federation, which names of columns may leave: those that it shows.

    Given a model.json or another result, checks that it tells no count that preset "strict"
    rounds. Counts must be multiples of 5, and at least 10 unless they are 0. For each mean, share,
    centre and scale, all numbers of rows within the rounding are tried: none may follow. One line
    for each finding; the exit status is 1 if there is one.
    """
    if len(files) == 1 and files[0].endswith(".json"):
        _check_release(Path(files[0]), as_json=as_json, quiet=quiet)
        return
    if len(files) == 1 and not suffix_of_data(files[0]):
        _check_site(Path(files[0]), as_json=as_json, quiet=quiet)
        return
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from fedcluster.preprocessing.spec import met_in_words
        from fedcluster_app.cli._runs import compared

        scaling = replace(scaling, missing=scaling.missing or "mean")
        prepare = cli.preparation(scaling, rows.columns)
        found = compared(files, rows, prepare, screen.doing)
        screen.warnings += found.fit_report.doubts
    screen.result(
        found.content,
        [
            found.table(screen.width),
            *met_in_words(found.fit_report, prepare.missing),
            "Nothing was sent, and nothing was written.",
        ],
    )


def _check_release(file: Path, *, as_json: bool, quiet: bool) -> None:
    """Show which rounded counts a published file gives back."""
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from fedcluster_app.report.release_check import check_file

        found = check_file(file)
    lines = found or [f"{file} passes: nothing in it gives rounded counts back."]
    screen.result({"file": str(file), "findings": found}, lines)
    if found:
        raise typer.Exit(1)


def suffix_of_data(file: str) -> bool:
    """Return whether a file holds rows, by its ending; it may have a name."""
    from fedcluster_app.cli._reading import ADDRESS
    from fedcluster_app.tables.sources import suffix_of

    return bool(ADDRESS.search(file)) or suffix_of(file) is not None


def _check_site(site_file: Path, *, as_json: bool, quiet: bool) -> None:
    """Show what a federation would find at a site."""
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from fedcluster.frames.columns import has_columns
        from fedcluster_app.site.file import SiteFile

        site = SiteFile.load(site_file)
        screen.doing(f"reading the rows of {site.name}")
        summary = site.summary()
        names = [column.name for column in summary.columns.values()]
        roles = site.roles(names)
        has_columns(f"site {site.name!r}", names, [*roles.chosen, *roles.others])
        if coded := [name for name in site.codes if name in roles.chosen]:
            # reading all rows raises for a code without a meaning
            for _ in site.opened(coded, raw=True).chunks():
                pass
        content = _content(site, summary)
        if site.privacy is not None:
            content["privacy"] = _privacy(site)
        elif site.protection == "groups" or (site.protection is None and site.federation):
            screen.doing(f"grouping the rows of {site.name}")
            content |= _groups(site)
        confirmed = []
        if site.federation and site.columns is None:
            content["names"] = names = list(site.confirm())
            confirmed = [_confirmed(site, names)]
        for line in _refused(site, summary):
            warnings.warn(line, stacklevel=1)
        lines = _noticed(site)
    screen.result(
        content,
        [
            _table(site, summary),
            *_decimals(summary),
            *lines,
            *_left(site, content),
            *confirmed,
            "Nothing was sent.",
        ],
    )


def _confirmed(site: SiteFile, names: Sequence[str]) -> str:
    """Return in words which names of columns may leave from now on."""
    return (
        f"Over a network, the names of these columns may leave, and no others: {', '.join(names)}. "
        f"They are in {site.columns_file}; write columns = [...] into the site file for fewer."
    )


def _noticed(site: SiteFile) -> list[str]:
    """Return findings from the first rows of a site; nothing if they cannot be read."""
    from fedcluster.errors import InputError
    from fedcluster_app.cli._runs import doubts_about

    with suppress(InputError):
        first = next(iter(site.opened(raw=True).chunks()), None)
        return [] if first is None else doubts_about(first)
    return []


def _content(site: SiteFile, summary: SourceSummary) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    limits, persons = site.limits, summary.persons
    counted = summary.n_rows if persons is None else len(persons)
    smallest = limits.min_cluster_size
    sent_from = smallest if persons is None else persons.rows_of(smallest)
    return {
        "site": site.name,
        "source": str(site.source),
        "rows": summary.n_rows,
        "persons": None if persons is None else len(persons),
        "columns": [
            {"name": c.name, "role": _role(site, c.name), "holds": c.kind, "missing": c.missing}
            for c in summary.columns.values()
        ],
        "limits": {
            "min_rows": limits.min_rows,
            "takes_part": counted >= limits.min_rows,
            "min_cluster_size": smallest,
            "sent_from_rows": int(sent_from) if sent_from <= summary.n_rows else None,
        },
    }


def _groups(site: SiteFile) -> dict[str, Any]:
    """Return the number of rows in groups, without storing new groups, and their limits."""
    import numpy as np

    from fedcluster_app.site.file import RULES

    limits, limit = site.limits, dict(site.groups.limit.parameters)
    rules: dict[str, Any] = {key: limit[key] for key in RULES if key in limit}
    history: dict[str, int] = {}
    if site.has_means:  # the means are all that is known of the site
        data, examined = site.grouped_client().data, None
    else:
        data, examined = site.grouping.examined(site.rows(raw=True))
        history = {"versions": examined.n_versions, "following": examined.n_following}
    assert data.grouped is not None
    if "dominance" in rules and examined is not None:
        rules |= {"in_none": examined.n_out, "largest_shares": dict(examined.most)}
    if site.groups.sensitive and examined is not None:
        rules["agreeing"] = dict(examined.agreeing)
    behind, rows = data.grouped.smallest_first, np.cumsum(np.sort(data.grouped.counts))
    sent_from = max(1, int(np.searchsorted(behind, limits.min_cluster_size)))
    sent = sent_from <= len(data)
    return {
        "groups": {
            "p": site.groups.p,
            "groups": len(data),
            "rows_in_groups": int(data.n_rows),
            **history,
            **rules,
        },
        "limits": {
            "min_rows": limits.min_rows,
            "takes_part": bool(len(data) and behind[-1] >= limits.min_rows),
            "min_cluster_size": limits.min_cluster_size,
            "sent_from_groups": sent_from if sent else None,
            "sent_from_rows": int(rows[sent_from - 1]) if sent else None,
        },
    }


def _privacy(site: SiteFile) -> dict[str, Any]:
    """Return the privacy budget of a site, and its cost so far."""
    from fedcluster_app.site.logs import budget_content
    from fedcluster_app.site.membership import site_budget

    ledger = site_budget(site)
    assert ledger is not None
    return budget_content(ledger)


def _left(site: SiteFile, content: dict[str, Any]) -> Iterator[Table | str]:
    """Yield what may leave a site: its limits in words, and their effect on its rows."""
    from fedcluster.privacy.disclosure import Disclosure
    from fedcluster_app.report.messages import limits_line
    from fedcluster_app.site.logs import budget_parts

    if "privacy" in content:
        yield "Every answer has noise, and nothing else of the rows leaves."
        yield from budget_parts(content["privacy"])
        return
    groups = site.groups if "groups" in content else None
    yield limits_line(Disclosure.of(site.disclosure, groups).stated)
    unit = "rows" if content["persons"] is None else "persons"
    found = {"limits count": unit, **content.get("groups", {}), **content["limits"]}
    if "groups" in content:
        found["rows_in_no_group"] = content["rows"] - found["rows_in_groups"]
    yield _effects(found)
    if not content["limits"]["takes_part"]:
        yield "Nothing leaves: this site has too few for its limits."
    elif content["limits"]["sent_from_rows"] is None:
        yield "No sum leaves: none is surely over enough."


EFFECTS = {
    "p": "smallest size of a group",
    "following": "single values that follow from all that was told",
    "in_none": "in no group",
    "largest_shares": "largest share of one in a sum, {}",
    "agreeing": "groups whose members agree in {}",
    "sent_from_groups": "groups from which on a sum leaves",
    "sent_from_rows": "rows from which on a sum leaves",
}
"""What the owner of a site reads of the effect of its limits, where the key says too little."""


def _effects(found: Mapping[str, Any]) -> Table:
    """Return the effect of the limits on the rows of a site, for its owner only."""
    from fedcluster.texts import Table

    flat = {
        EFFECTS.get(key, key).replace("_", " ").format(name): each
        for key, value in found.items()
        for name, each in (value.items() if isinstance(value, dict) else [("", value)])
    }
    rows = [(key, _shown(value)) for key, value in flat.items() if value is not None]
    return Table("Effect of the limits", ("what", "here"), rows)


def _shown(value: Any) -> str:
    """Return a fact in words: shares in percent."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.1%}" if isinstance(value, float) else str(value)


def _role(site: SiteFile, name: str) -> str:
    """Return the role of a column."""
    roles = {site.weight_column: "weight", site.group_column: "group", site.label_column: "label"}
    if name in roles:
        return roles[name]
    if name == site.id_column:
        return "key"
    return "clustered by" if site.columns is None or name in site.columns else "not used"


def _refused(site: SiteFile, summary: SourceSummary) -> Iterator[str]:
    """Yield a line for each column that a fit would refuse."""
    holds = {"date": "dates", "mixed": "numbers and text", "empty": "no value"}
    for column in summary.columns.values():
        if column.kind in holds and _role(site, column.name) == "clustered by":
            yield (
                f"column {column.name!r} holds {holds[column.kind]}, which a fit refuses; "
                "write columns = [...] without it into the site file"
            )


def _table(site: SiteFile, summary: SourceSummary) -> Table:
    from fedcluster.texts import Table, counted

    persons = "" if summary.persons is None else f" of {counted(len(summary.persons), 'person')}"
    return Table(
        f"Site {site.name}: {counted(summary.n_rows, 'row')}{persons} from {site.source}",
        ("column", "use", "holds", "missing"),
        tuple(
            (c.name, _role(site, c.name), c.kind, f"{c.missing:,}")
            for c in summary.columns.values()
        ),
    )


def _decimals(summary: SourceSummary) -> Iterator[str]:
    """Yield columns whose decimal sign may not be that of the site file."""
    from fedcluster.frames.cells import COMMA, NAMES

    for sign, name in NAMES.items():
        if columns := [column.name for column in summary.columns.values() if column.kind == name]:
            verb = "write" if sign == COMMA else "leave"
            where = "under [source]" if sign == COMMA else "there out"
            yield f'{", ".join(columns)} may have {name}: then {verb} decimal = "," {where}.'
