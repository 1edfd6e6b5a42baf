"""Commands of one site: ``fedcluster check`` and ``fedcluster site``."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcluster.cli._options import AsJson, Quiet
from fedcluster.cli._screen import Screen, needs, until_interrupted

if TYPE_CHECKING:
    from fedcluster._report._tables import Table
    from fedcluster._site import Profile, SiteFile

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
    from fedcluster.federation._messages import log_line

    with Screen(as_json=as_json, quiet=False) as screen:
        site = SiteFile.load(site_file)
        path = site_file.parent / Membership.from_site_file(site).log
        lines = read_log(path)
    count = f"{len(lines):,} answers have left site {site.name}: {path}"
    screen.result(
        {"log": str(path), "answers": lines[-last:], "all": len(lines)},
        [*map(log_line, lines[-last:]), count],
    )


def check(
    site_file: Annotated[
        Path, typer.Argument(metavar="SITE", show_default=False, help="A site's file, site.toml.")
    ],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Read a site's rows as its file says, and show what a federation would meet.

    Shows rows, columns, what they hold, what is missing, and what the site's limits would do.
    Nothing is sent, and nothing is written.
    """
    with Screen(as_json=as_json, quiet=quiet) as screen:
        from fedcluster._site import SiteFile
        from fedcluster.errors import InputError
        from fedcluster.io._columns import has_columns
        from fedcluster.io._sources import suffix_of

        if suffix_of(site_file.name):
            raise InputError(
                f"{site_file} holds rows; name a site.toml that says path = {site_file.name!r}"
            )
        site = SiteFile.load(site_file)
        screen.doing(f"reading the rows of {site.name}")
        profile = site.profile()
        names = [column.name for column in profile.columns]
        roles = site.roles(names)
        has_columns(f"site {site.name!r}", names, [*roles.chosen, *roles.others])
        if coded := [name for name in site.codes if name in roles.chosen]:
            for _ in site.opened(coded, raw=True).chunks():  # a code without a meaning is an error
                pass
        content = _content(site, profile)
        for line in _refused(site, profile):
            warnings.warn(line, stacklevel=1)
    screen.result(
        content,
        [_table(site, profile), *_decimals(profile), *_limits(content), "Nothing was sent."],
    )


def _content(site: SiteFile, profile: Profile) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    limits, persons = site.limits, profile.persons
    counted = profile.rows if persons is None else len(persons)
    smallest = limits.min_cluster_size
    sent_from = smallest if persons is None else persons.rows_of(smallest)
    return {
        "site": site.name,
        "source": str(site.source),
        "rows": profile.rows,
        "persons": None if persons is None else len(persons),
        "columns": [
            {"name": c.name, "role": _role(site, c.name), "holds": c.kind, "missing": c.missing}
            for c in profile.columns
        ],
        "limits": {
            "min_rows": limits.min_rows,
            "takes_part": counted >= limits.min_rows,
            "min_cluster_size": smallest,
            "sent_from_rows": int(sent_from) if sent_from <= profile.rows else None,
        },
    }


def _role(site: SiteFile, name: str) -> str:
    """Return what a column is used for."""
    roles = {site.weight_column: "weight", site.group_column: "group", site.label_column: "label"}
    if name in roles:
        return roles[name]
    return "clustered by" if site.columns is None or name in site.columns else "not used"


def _refused(site: SiteFile, profile: Profile) -> Iterator[str]:
    """Yield a line for each column that a fit would not take."""
    holds = {"date": "dates", "mixed": "numbers and text", "empty": "no value"}
    for column in profile.columns:
        if column.kind in holds and _role(site, column.name) == "clustered by":
            yield (
                f"column {column.name!r} holds {holds[column.kind]}, which a fit refuses; "
                "write columns = [...] without it into the site file"
            )


def _table(site: SiteFile, profile: Profile) -> Table:
    from fedcluster._report._messages import counted
    from fedcluster._report._tables import Table

    persons = "" if profile.persons is None else f" of {counted(len(profile.persons), 'person')}"
    return Table(
        f"Site {site.name}: {counted(profile.rows, 'row')}{persons} from {site.source}",
        ("column", "use", "holds", "missing"),
        tuple((c.name, _role(site, c.name), c.kind, f"{c.missing:,}") for c in profile.columns),
    )


def _decimals(profile: Profile) -> Iterator[str]:
    """Yield which columns may have decimals that do not begin as the site file says."""
    from fedcluster.io._cells import COMMA, NAMES

    for sign, name in NAMES.items():
        if columns := [column.name for column in profile.columns if column.kind == name]:
            verb = "write" if sign == COMMA else "leave"
            where = "under [source]" if sign == COMMA else "there out"
            yield f'{", ".join(columns)} may have {name}: then {verb} decimal = "," {where}.'


def _limits(content: dict[str, Any]) -> Iterator[str]:
    """Yield sentences on what the site's limits would do."""
    from fedcluster._report._messages import counted

    limits, unit = content["limits"], "rows" if content["persons"] is None else "persons"
    there = content["rows"] if content["persons"] is None else content["persons"]
    verb = "takes part" if limits["takes_part"] else "sends nothing"
    least = limits["min_rows"]
    yield f"The site {verb}: it has {counted(there, unit[:-1])}, and at least {least:,} must be."
    smallest, sent_from = limits["min_cluster_size"], limits["sent_from_rows"]
    if smallest == 1:
        yield "A sum over a single row may leave, and is that row."
    elif sent_from is None:
        yield f"No sum leaves: none is surely over at least {smallest:,} {unit}."
    elif content["persons"] is None:
        yield f"A sum over fewer than {smallest:,} rows does not leave."
    else:
        yield (
            f"A sum leaves if surely at least {smallest:,} persons stand behind it: "
            f"from {sent_from:,} rows on."
        )
