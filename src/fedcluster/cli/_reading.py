"""Read the rows that a command is given: from data files, one a site, or as site files say."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster.cli._naming import are_site_files, named_sources
from fedcluster.cli._options import FileOptions, ValueOptions
from fedcluster.core import Data
from fedcluster.engines.client import Client
from fedcluster.errors import InputError, listed
from fedcluster.io.columns import SourceSummary, choose, column_list, common_columns, is_index
from fedcluster.io.matrices import Matrix
from fedcluster.io.reader import ColumnRoles, Table, counts_rows
from fedcluster.io.recoding import HOW, Recoding, checked_how, recoding_from_options
from fedcluster.io.rows import FileSource, SiteRows
from fedcluster.io.sources import (
    load,
    load_readable,
    names_of,
    open_source,
    padded_columns,
    read_as,
)
from fedcluster.model import Model
from fedcluster.options.refusals import refused
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.preprocessing.screening import Screening, screened
from fedcluster.privacy import Groups
from fedcluster.site.file import SiteFile

Doing = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Rows that were read for a fit, and what was decided on their columns.

    Parameters
    ----------
    tables : dict of str to SiteRows
        The rows of each site.
    left_out : mapping of str to str
        Columns that were set aside, each with the reason.
    notes : tuple of str
        Sentences on columns that may mean something else.
    dates : mapping of str to str
        By column, what became of its dates.
    summaries : mapping of str to SourceSummary
        What the columns held at each site, of rows in memory that are to be prepared.
    """

    tables: dict[str, SiteRows]
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    dates: Mapping[str, str] = field(default_factory=dict)
    summaries: Mapping[str, SourceSummary] = field(default_factory=dict)


def roles_of(options: FileOptions) -> dict[str, Any]:
    """Return the columns that are not clustered by, by their role."""
    given = {
        role: getattr(options, f"{role}_column") for role in ("label", "weight", "group", "site")
    }
    return {role: name for role, name in given.items() if name is not None}


def read(
    files: Sequence[str],
    options: FileOptions,
    doing: Doing,
    prepare: PreprocessingSpec | None = None,
) -> Reading:
    """Read the sites' rows for a fit: from one file each, from one of all, or by site files.

    Rows that are to be prepared may have text and missing values; where no columns were chosen,
    those that hold no measurements are set aside.
    """
    roles = _roles_for(options, prepare)
    tables = _read(files, options, roles, doing)
    dates = _dates_of(options.dates, tables)
    if dates:
        tables = _read(files, options, replace(roles, dates=dates), doing)
    left_out: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
    summaries: dict[str, SourceSummary] = {}
    if prepare is not None:
        summaries = {
            site: SourceSummary.from_data(table.rows, table.padded)
            for site, table in tables.items()
            if isinstance(table.rows, Data)
        }
        chosen = roles.values is not None
        tables, screening = screen(tables, summaries, prepare, dates, chosen=chosen)
        left_out, notes = screening.left_out, screening.notes
        for line in screening.warnings:
            warnings.warn(line, stacklevel=2)
    return Reading(_protected(tables, options, roles), left_out, notes, dates, summaries)


def _roles_for(options: FileOptions, prepare: PreprocessingSpec | None) -> ColumnRoles:
    """Return the columns that options ask for."""
    chosen, excluded = column_list(options.columns), column_list(options.exclude, "--exclude")
    parts = roles_of(options)
    if options.id_column is not None:
        parts["id"] = options.id_column
        excluded = list(dict.fromkeys([*(excluded or ()), options.id_column]))
    for role, name in parts.items():
        if name in (chosen or []):
            raise InputError(f"--{role}-column {name!r} is among --columns too; leave it out there")
    if both := [name for name in excluded or () if name in (chosen or [])]:
        raise InputError(f"--exclude {both[0]!r} is among --columns too; leave it out there")
    return ColumnRoles(
        None if chosen is None else tuple(chosen),
        raw=prepare is not None,
        coded=() if prepare is None else tuple(prepare.named),
        excluded=tuple(excluded or ()),
        recoding=_recoding(options),
    )


def _recoding(options: ValueOptions) -> Recoding:
    return recoding_from_options(options.missing_values, options.codes, options.factor)


def _dates_of(asked: str | None, tables: Mapping[str, SiteRows]) -> dict[str, str]:
    """Return what becomes of dates, by column: as ``A=HOW,B=HOW`` says, or HOW of all dates."""
    if asked is None:
        return {}
    kinds: dict[str, set[str]] = {}
    for table in tables.values():
        for column in table.columns_told:
            kinds.setdefault(column.name, set()).add(column.kind)
    held = [name for name, kind in kinds.items() if "date" in kind]
    pairs = [part.rpartition("=") for part in column_list(asked, "--dates") or []]
    given = {name.strip(): checked_how(how.strip()) for name, _, how in pairs}
    if "" in given and len(given) > 1:
        raise InputError(f"--dates {asked!r} must be one of {', '.join(HOW)}, or by column A=age")
    if unknown := [name for name in given if name and name not in held]:
        raise InputError(
            f"--dates: column {unknown[0]!r} holds no dates; "
            + (f"{', '.join(held)} {'does' if len(held) == 1 else 'do'}" if held else "none does")
        )
    return dict.fromkeys(held, given[""]) if "" in given else given


def read_for(
    model: Model, files: Sequence[str], options: FileOptions, doing: Doing
) -> dict[str, SiteRows]:
    """Read the model's columns of new rows, with weights, groups and labels as options say."""
    own = {} if options.id_column is None else {"id": options.id_column}
    for role, name in (roles_of(options) | own).items():
        if name in model.columns:
            raise InputError(
                f"--{role}-column {name!r} is a column of the model; fit again without it, "
                "with the others in --columns"
            )
    roles = replace(model.row_form.roles, recoding=_recoding(options))
    return _protected(_read(files, options, roles, doing), options, roles)


def _read(
    files: Sequence[str], options: FileOptions, roles: ColumnRoles, doing: Doing
) -> dict[str, SiteRows]:
    if are_site_files(files):
        if options.label_column:
            raise refused("site-file-labels")
        own = (
            options.decimal,
            options.encoding,
            options.missing_values,
            options.codes,
            options.factor,
        )
        if any(own) or roles_of(options):
            raise refused("site-file-options")
        return _open_sites(files, roles, options.protection, doing)
    if options.site_column is not None and len(files) > 1:
        raise refused("files-site", n_files=len(files))
    sources, roles = (
        named_sources(files, options.decimal, options.encoding),
        replace(roles, **roles_of(options)),
    )
    return read_sites(sources, roles, doing)


def _protected(
    tables: dict[str, SiteRows], options: FileOptions, roles: ColumnRoles
) -> dict[str, SiteRows]:
    """Return the rows of files, seen in groups where that is asked for."""
    if options.protection != "groups":
        return tables
    groups = Groups(scale="standard" if roles.raw else "none")
    return {
        name: replace(table, protected=_grouped(table, groups)) if table.limits is None else table
        for name, table in tables.items()
    }


def _grouped(table: SiteRows, groups: Groups) -> Callable[[Sequence[str], Any], Client]:
    """Return what makes the client of a file's rows, which is asked for the columns it has."""
    return lambda _columns, limits: Client(table.name, table.rows, limits, groups)


def _own_groups(site: SiteFile, *, raw: bool) -> Callable[[Sequence[str], Any], Client]:
    """Return what makes the client of a site file's groups, which has its own limits."""
    return lambda columns, _limits: site.grouped_client().with_columns(columns, raw=raw)


def _open_sites(
    files: Sequence[str], roles: ColumnRoles, protection: str | None, doing: Doing
) -> dict[str, SiteRows]:
    """Open the sites of site files; rows of databases and text files are read.

    Without columns all sites must have the same, unless the rows are still to be prepared, which
    finds the columns that all sites have.
    """
    sites: dict[str, SiteFile] = {}
    for file in files:
        site = SiteFile.load(Path(file))
        if site.name in sites:
            raise InputError(
                f"two sites are called {site.name!r} ({sites[site.name].path} and {file}); "
                "give one of them another name"
            )
        sites[site.name] = site
    sites = dict(sorted(sites.items()))
    streams = {name: site.opened(roles.values, raw=roles.raw) for name, site in sites.items()}
    _check_excluded(roles.excluded, {name: each.columns for name, each in streams.items()})
    for name, stream in streams.items() if roles.excluded else ():
        rest = [column for column in stream.columns if column not in roles.excluded]
        streams[name] = sites[name].opened(rest, raw=roles.raw)
    if not roles.raw:
        order = common_columns({name: each.columns for name, each in streams.items()})
        for name, stream in streams.items():
            streams[name] = stream if stream.columns == order else sites[name].opened(order)
    opened = {}
    for name, site in sites.items():
        doing(f"reading {name}")
        rows, columns = site.held(streams[name]), streams[name].columns
        ids = range(1, len(rows) + 1)
        own: dict[str, Any] = {"limits": site.limits.filters}
        if (protection or site.protection) == "groups":
            own["protected"] = _own_groups(site, raw=roles.raw)
        opened[name] = SiteRows(name, rows, columns, ids, **own)
    return opened


# Files of several sites


def read_sites(
    sources: Mapping[str, FileSource],
    columns: ColumnRoles | Sequence[str] | None = None,
    doing: Doing = lambda _what: None,
) -> dict[str, SiteRows]:
    """Read one file for each site, or one file of all sites.

    Parameters
    ----------
    sources : mapping of str to FileSource
        The files by site; only one where ``columns`` names a column of sites.
    columns : ColumnRoles or sequence of str, optional
        The columns to read, in this order; by default all, which must then be the same at every
        site, unless rows are still to be prepared.
    doing : callable taking a str, optional
        Told of each file before it is read.

    Returns
    -------
    dict of str to SiteRows
        By the sites' names.

    Raises
    ------
    InputError
        With site, column, row and what to do.
    """
    roles = ColumnRoles.from_columns(columns)
    opened = {site: _one_file(site, source) for site, source in sources.items()}
    names = {site: names_of(each) for site, each in opened.items()}
    values = _values(sources, names, roles)
    read: dict[str, SiteRows] = {}
    for site, source in sources.items():
        doing(f"reading {source.path.name}")
        own = replace(roles, values=values[site])
        by_name = roles.values is not None
        read |= _rows_of(site, source, opened.pop(site), own, by_name=by_name)
    if roles.values is None and not roles.raw:
        _warn_of_row_numbers(list(read.values()))
    for site, rows in read.items():
        weight = rows.data.sample_weight
        if weight is not None and not weight.any():
            raise InputError(
                f"site {site!r}, column {roles.weight!r}: every weight is 0; "
                "leave the site out or weigh some row"
            )
    return read


def _rows_of(
    site: str,
    source: FileSource,
    opened: list[Table] | Matrix,
    roles: ColumnRoles,
    *,
    by_name: bool,
) -> dict[str, SiteRows]:
    """Read the rows of a site, or of all sites of one file.

    Columns that cannot be read and were not named are told as unreadable.
    """
    owner = f"site {site!r}" if roles.site is None else str(source)
    load_rows = load if by_name else load_readable
    data, homes, *complaints = load_rows(opened, roles, owner)
    unreadable = complaints[0] if complaints else {}
    chosen = tuple(name for name in roles.chosen if name not in unreadable)
    used = {*chosen, *roles.others}
    rows = SiteRows(
        site,
        data,
        chosen,
        range(1, len(data) + 1),
        tuple(name for name in names_of(opened) if name not in used),
        unreadable=unreadable,
        padded=padded_columns(opened) if roles.raw else (),
        read_as=read_as(opened, source),
    )
    by_site = {site: rows} if homes is None else _by_site(rows, data, homes)
    recoding = roles.recoding
    return {name: replace(r, rows=recoding.apply(r.data, name)) for name, r in by_site.items()}


def _one_file(site: str, source: FileSource) -> list[Table] | Matrix:
    if source.path.is_dir():
        raise InputError(f"site {site!r}: {source} is a folder; give one file for each site")
    return open_source(source, f"site {site!r}")


def _values(
    sources: Mapping[str, FileSource], names: Mapping[str, Sequence[str]], roles: ColumnRoles
) -> dict[str, tuple[str, ...]]:
    """Return the columns of each site to cluster by."""
    if roles.values is not None:
        return dict.fromkeys(names, roles.values)
    _check_excluded(roles.excluded, names)
    no_values = {*roles.others, *roles.excluded}
    free = {site: [n for n in each if n not in no_values] for site, each in names.items()}
    if not roles.raw:
        return dict.fromkeys(names, common_columns(free))
    values = {site: tuple(n for n in each if not is_index(n)) for site, each in free.items()}
    for site, each in values.items():
        if not each:
            raise InputError(f"{sources[site]} has no column to cluster by")
    return values


def _check_excluded(excluded: Sequence[str], names: Mapping[str, Sequence[str]]) -> None:
    """Refuse to exclude a column that no site has."""
    for name in excluded:
        if not any(name in each for each in names.values()):
            have = ", ".join(filter(None, next(iter(names.values()))))
            raise InputError(f"--exclude: no site has a column {name!r}; there are {have}")


def _by_site(rows: SiteRows, data: Data, homes: NDArray[np.str_]) -> dict[str, SiteRows]:
    """Part the rows of one file into sites, in the order of the names."""
    places = {site: np.flatnonzero(homes == site) for site in sorted(set(homes.tolist()))}
    return {
        site: SiteRows(
            site,
            data.take(place),
            rows.columns,
            place + 1,
            unreadable=rows.unreadable,
            padded=rows.padded,
            read_as=rows.read_as,
        )
        for site, place in places.items()
    }


def _warn_of_row_numbers(sites: Sequence[SiteRows]) -> None:
    """Warn of columns that were not chosen and look like mere numbers of the rows."""
    common = set.intersection(*(set(site.columns) for site in sites))
    columns = [name for name in sites[0].columns if name in common]
    counts = [name for name in columns if any(_counts_rows(site, name) for site in sites)]
    if 0 < len(counts) < len(columns):
        some = ", ".join(map(repr, counts))
        warnings.warn(
            f"clustered by {some} too, which only counts the rows; "
            + choose([name for name in columns if name not in counts]),
            stacklevel=3,
        )


def _counts_rows(site: SiteRows, name: str) -> bool:
    j = site.columns.index(name)
    return site.data.columns[j].kind == "number" and counts_rows(site.data.X[:, j])


def screen(
    tables: Mapping[str, SiteRows],
    summaries: Mapping[str, SourceSummary],
    prepare: PreprocessingSpec,
    dates: Collection[str] = (),
    *,
    chosen: bool,
) -> tuple[dict[str, SiteRows], Screening]:
    """Return the rows without columns that hold no measurements, and what is said of the others.

    Parameters
    ----------
    tables : mapping of str to SiteRows
        The rows of each site, which are to be prepared.
    summaries : mapping of str to SourceSummary
        What they hold, of rows in memory.
    prepare : PreprocessingSpec
        What is to be done to them.
    dates : collection of str
        Columns whose dates became numbers.
    chosen : bool
        Whether somebody chose the columns; then none is set aside.
    """
    screening = screened(summaries, prepare.named, dates)
    if chosen:
        return dict(tables), replace(screening, left_out={}, notes=())
    if any(table.limits is not None for table in tables.values()):
        return dict(tables), Screening(warnings=screening.warnings)
    unreadable = {
        name: f"at {site}, {reason}"
        for site, table in tables.items()
        for name, reason in table.unreadable.items()
    }
    left_out = unreadable | dict(screening.left_out)
    rest = {site: table.without(left_out) for site, table in tables.items()}
    return rest, replace(screening, left_out=left_out, notes=(*_written(tables), *screening.notes))


def _written(tables: Mapping[str, SiteRows]) -> Iterator[str]:
    """Yield how files are written that are not written as usual."""
    sites: dict[str, list[str]] = {}
    for site, table in tables.items():
        for what in table.read_as:
            sites.setdefault(what, []).append(site)
    if sites:
        yield f"Read with {'; '.join(f'{what}: {listed(at)}' for what, at in sites.items())}."


def noticed(data: Data) -> list[str]:
    """Return what the rows of one site show that its file lets be clustered by.

    Parameters
    ----------
    data : Data
        Some of its rows, still to be prepared.
    """
    screening = screened({"this site": SourceSummary.from_data(data)})
    lines = [
        f"Column {name!r} would be clustered by: {why.partition(': --')[0]}; choose columns "
        "without it if that is not meant."
        for name, why in screening.left_out.items()
    ]
    return [*lines, *(f"Look at {line}." for line in screening.warnings)]
