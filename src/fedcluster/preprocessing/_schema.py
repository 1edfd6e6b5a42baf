"""Agreement on the columns: every difference between the sites is named before any sum is asked.

Names and kinds of columns are no sums; each site tells them of itself, as it tells its name and
its limits. The texts of a column are rows' values: a site names those that several of its rows
share and that its limits let out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fedcluster.core import Column
from fedcluster.errors import InputError

HOLDS = {
    "number": "numbers",
    "text": "text",
    "date": "dates",
    "mixed": "numbers and text",
    "empty": "no value",
}


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns that the sites agree on.

    Parameters
    ----------
    columns : tuple of Column
        Those that are used, in the order of the first site; with all levels that a site named, in
        alphabetical order.
    left_out : mapping of str to str
        The others, each with the reason.
    only_at : mapping of (str, str) to str
        Levels (column, level) that a single one of several sites named, and that site.
    """

    columns: tuple[Column, ...]
    left_out: Mapping[str, str]
    only_at: Mapping[tuple[str, str], str]


def agree(described: Mapping[str, Sequence[Column]], chosen: Sequence[str] | None = None) -> Schema:
    """Find the columns of all sites, or say where they differ.

    Parameters
    ----------
    described : mapping of str to sequence of Column
        What each site told of itself.
    chosen : sequence of str, optional
        The columns to use, in this order, which every site must have. Without it, all those that
        every site has; a column is left out if at most half of the sites have it.

    Raises
    ------
    InputError
        If columns that should be used are lacking at a site, hold numbers here and text there,
        dates, or nothing: one line with every site and column.

    Examples
    --------
    >>> north = [Column("age"), Column("sex", "text", ("F", "M"))]
    >>> south = [Column("sex", "text", ("F",)), Column("age"), Column("note", "text")]
    >>> west = [Column("age"), Column("sex", "text", ("F",))]
    >>> schema = agree({"north": north, "south": south, "west": west})
    >>> [column.name for column in schema.columns], schema.left_out
    (['age', 'sex'], {'note': 'only south has it'})
    >>> schema.only_at
    {('sex', 'M'): 'north'}
    """
    by_site = {site: {column.name: column for column in told} for site, told in described.items()}
    names = list(dict.fromkeys(name for told in by_site.values() for name in told))
    if chosen is None:
        left_out = _extra(by_site, names)
        chosen = [name for name in names if name not in left_out]
    else:
        left_out = {name: "not chosen" for name in names if name not in chosen}
    complaints = [line for name in chosen for line in _differences(by_site, name)]
    if complaints:
        raise InputError(_said(complaints, [n for n in chosen if not _differences(by_site, n)]))
    if not chosen:
        raise InputError("the sites have no column in common")
    columns = tuple(_common(by_site, name) for name in chosen)
    return Schema(columns, left_out, _lone_levels(by_site, columns))


def _extra(by_site: Mapping[str, Mapping[str, Column]], names: Collection[str]) -> dict[str, str]:
    """Return columns that some site lacks and at most half of the sites have, with the reason."""
    having = {name: [site for site, told in by_site.items() if name in told] for name in names}
    return {
        name: f"only {listed(sites)} {'has' if len(sites) == 1 else 'have'} it"
        f"{_alike(by_site, [site for site in by_site if site not in sites], name)}"
        for name, sites in having.items()
        if len(sites) < len(by_site) and len(sites) <= len(by_site) / 2
    }


def _differences(by_site: Mapping[str, Mapping[str, Column]], name: str) -> list[str]:
    """Return what is wrong with a column, one phrase each."""
    lacking = [site for site, told in by_site.items() if name not in told]
    by_kind: dict[str, list[str]] = {}
    for site, told in by_site.items():
        if name in told:
            by_kind.setdefault(told[name].kind, []).append(site)
    alike = _alike(by_site, lacking, name)
    said = [f"column {name!r} is lacking at {listed(lacking)}{alike}"] if lacking else []
    if len(by_kind) > 1 or by_kind.keys() & {"date", "mixed", "empty"}:
        holds = [f"{HOLDS[kind]} at {listed(sites)}" for kind, sites in by_kind.items()]
        said.append(f"column {name!r} holds {', '.join(holds)}")
    return said


def _alike(by_site: Mapping[str, Mapping[str, Column]], sites: Sequence[str], name: str) -> str:
    """Return what sites without a column call one that differs in capitals or blanks only."""
    same = "".join(name.split()).casefold()
    others = {
        site: [other for other in by_site[site] if "".join(other.split()).casefold() == same]
        for site in sites
    }
    said = [f"{site} has {names[0]!r}" for site, names in others.items() if names]
    return f", but {listed(said)}" if said else ""


def _said(complaints: Sequence[str], agreed: Sequence[str]) -> str:
    mend = f"mend that or choose among {', '.join(agreed)}"
    advice = mend if agreed else "mend that: no column is the same everywhere"
    return f"{'; '.join(complaints)}; {advice}"


def _common(by_site: Mapping[str, Mapping[str, Column]], name: str) -> Column:
    told = [columns[name] for columns in by_site.values()]
    levels = sorted({level for column in told for level in column.levels})
    return Column(name, told[0].kind, tuple(levels))


def _lone_levels(
    by_site: Mapping[str, Mapping[str, Column]], columns: Sequence[Column]
) -> dict[tuple[str, str], str]:
    """Return the levels that one of several sites named, each with the site."""
    lone = {}
    for column in columns if len(by_site) > 1 else ():
        for level in column.levels:
            sites = [s for s, told in by_site.items() if level in told[column.name].levels]
            if len(sites) == 1:
                lone[column.name, level] = sites[0]
    return lone


def listed(names: Sequence[str]) -> str:
    """Return names as a sentence lists them: a, b and c."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
