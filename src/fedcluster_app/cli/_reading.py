"""Read the rows of a command, from data files, one per site, or by site files."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import isdir
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcluster.core import Data, Labels
from fedcluster.engines.client import Client
from fedcluster.errors import InputError, ReadingNote, listed
from fedcluster.frames.cells import FROM_DATES, affine, checked_how, days_of_texts, is_date
from fedcluster.frames.columns import (
    SourceSummary,
    called,
    choose,
    code_questions,
    column_list,
    common_columns,
    common_levels,
    common_names,
    first_twice,
    is_index,
    note_sites,
    own_names,
    put,
    quoted,
)
from fedcluster.frames.reader import (
    ColumnRoles,
    Recoding,
    Table,
    check_no_total,
    counts_rows,
    each_site,
)
from fedcluster.frames.rows import (
    FILE_OPTIONS,
    FileSource,
    SiteRows,
    WarehouseSource,
    chunks_of,
    error_prefix,
)
from fedcluster.model import Model
from fedcluster.model.run import Run
from fedcluster.options.refusals import refused
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.preprocessing.agreement import columns_apart
from fedcluster.preprocessing.comparison import unlike_sites
from fedcluster.preprocessing.screening import no_features, screened
from fedcluster.preprocessing.spec import MOST_CATEGORIES, FitReport
from fedcluster.privacy import Groups
from fedcluster.texts import dotted
from fedcluster_app.cli._options import FileOptions, JoinOptions, ValueOptions, named
from fedcluster_app.cli._screen import HELD, Doing, silent
from fedcluster_app.tables.matrices import Matrix, matrix_rows
from fedcluster_app.tables.outputs import write_joined
from fedcluster_app.tables.remote import SCHEMES, WEB, fetched
from fedcluster_app.tables.sources import (
    FORMATS,
    OwnTable,
    hold,
    load,
    names_of,
    open_source,
    padded_columns,
    read_as,
    suffix_of,
)
from fedcluster_app.tables.table_rows import has_partitions

if TYPE_CHECKING:
    from fedcluster_app.site.file import SiteFile

ADDRESS = re.compile(r"^(?:[^=/]+=)?([\w+]{2,})://")  # two letters at least: C:// is a drive
AS_READ = re.compile(rf":({'|'.join((*FILE_OPTIONS, 'query'))})=")
AS_THEY_ARE = ValueOptions()
OneSource = FileSource | WarehouseSource


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Rows of the sites, and the decisions about their columns.

    Parameters
    ----------
    tables : dict of str to SiteRows
        The rows of each site.
    left_out : mapping of str to str
        Columns that were left out, each with the reason.
    notes : tuple of str
        Sentences on columns that may have another meaning.
    dates : mapping of str to str
        By column, how dates were converted.
    summaries : mapping of str to SourceSummary
        The content of the columns at each site, for rows in memory that are to be prepared.
    names : mapping of str to str
        The actual names of columns that options spell otherwise.
    warnings : tuple of str
        Warnings of suspicious values and columns.
    """

    tables: dict[str, SiteRows]
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    dates: Mapping[str, str] = field(default_factory=dict)
    summaries: Mapping[str, SourceSummary] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def roles_of(options: FileOptions) -> dict[str, Any]:
    """Return the columns of labels, weights, groups and sites, by role."""
    roles = ("label", "weight", "group", "site")
    columns = {role: getattr(options, f"{role}_column") for role in roles}
    return {role: name for role, name in columns.items() if name is not None}


def read(
    files: Sequence[str],
    options: FileOptions,
    doing: Doing,
    prepare: PreprocessingSpec | None = None,
) -> Reading:
    """Read the sites' rows for a fit, from one file each, one file of all, or site files.

    Rows that are to be prepared may have text and missing values; if no columns were chosen, those
    that are not measurements are left out.
    """
    roles = _roles_for(options, prepare)
    tables = _read(files, options, roles, doing)
    dates = _dates_of(options.dates, tables)
    if dates:
        roles = replace(roles, dates=dates)
        tables = _read(files, options, roles, doing)
        # the order of dates applies to later rows as well
        dates = dict(roles.in_known_orders().dates)
    names: dict[str, str] = {}
    screening = FitReport()
    summaries: dict[str, SourceSummary] = {}
    if prepare is not None:
        summaries = {
            site: SourceSummary.from_data(table.rows, table.padded)
            for site, table in tables.items()
            if isinstance(table.rows, Data)
        }
        names = _spelled(tables, roles, prepare.said)
        prepare = prepare.in_names(names)
        apart = _columns_apart(tables, prepare)
        if not options.lenient:
            _check_readable(tables)
            _check_alike(apart if roles.values is None else {})
        tables, screening = screen(
            tables, summaries, prepare, dates, apart, chosen=roles.values is not None
        )
    tables, found = _protected(tables, options, roles), screening
    return Reading(tables, found.left_out, found.notes, dates, summaries, names, found.warnings)


def _spelled(
    tables: Mapping[str, SiteRows], roles: ColumnRoles, said: Sequence[str]
) -> dict[str, str]:
    """Return the actual names of columns that the preparation spells otherwise."""
    there = [name for each in tables.values() for name in (*each.columns, *each.ignored)]
    names: dict[str, str] = {}
    for name in said:
        new = roles.renamed.get("", {}).get(name, name)
        names[name] = own_names(there, [new]).get(new, new)
    return {name: new for name, new in names.items() if new != name}


def _roles_for(options: FileOptions, prepare: PreprocessingSpec | None) -> ColumnRoles:
    """Return the roles of columns from the options."""
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
        named=(*(() if prepare is None else prepare.said), *filter(None, options.dates)),
        renamed=_renamed(options),
    )


def _renamed(options: ValueOptions) -> dict[str, dict[str, str]]:
    """Return the new names of columns by site ("" for all) from the options."""
    own = {site: table["rename"] for site, table in options.sites.items() if "rename" in table}
    return {"": dict(options.rename), **own}


def _recoding(options: ValueOptions) -> Recoding:
    """Return the recoding of values from the options.

    Examples
    --------
    >>> west = {"factors": {"sbp": 7.5}}
    >>> recoding = _recoding(ValueOptions({"west": west}, codes={"sex": {"female": "F"}}))
    >>> recoding.codes, recoding.factors
    ({'sex': {'female': 'F'}}, {'west': {'sbp': (7.5, 0.0)}})
    """
    factors: dict[str, dict[str, tuple[float, float]]] = {}
    for site, table in options.sites.items():
        for name, value in table.get("factors", {}).items():
            try:
                factors.setdefault(site, {})[name] = affine(str(value))
            except ValueError as error:
                where = dotted("sites", site, "factors", name)
                raise InputError(f"{where}={value}: {error}; write 7.5, or 1.8x+32") from error
    codes = {
        name: {text.strip(): meant.strip() for text, meant in own.items()}
        for name, own in options.codes.items()
    }
    return Recoding(tuple(map(str, options.missing_values)), codes, factors)


def _dates_of(said: Mapping[str, str], tables: Mapping[str, SiteRows]) -> dict[str, str]:
    """Return the conversion of dates by column, from that of some, or of all under ""."""
    if not said:
        return {}
    columns = [column for table in tables.values() for column in table.described_columns]
    dates = list(dict.fromkeys(column.name for column in columns if column.kind == "date"))
    named = {name: checked_how(how.strip()) for name, how in said.items()}
    if "" in named and len(named) > 1:
        raise InputError(f"dates must be one of {', '.join(FROM_DATES)}, or by column dates.A=age")
    if unknown := [name for name in named if name and name not in dates]:
        others = f"{', '.join(dates)} {'does' if len(dates) == 1 else 'do'}"
        texts = (c.levels for c in columns if c.name == unknown[0] and c.levels)
        why = next(map(_no_dates, texts), others if dates else "none does")
        raise InputError(f"dates: column {unknown[0]!r} holds no dates; {why}")
    return dict.fromkeys(dates, named[""]) if "" in named else named


def _no_dates(texts: Sequence[str]) -> str:
    """Return which of some texts is no date, or which two are dates of different forms.

    Examples
    --------
    >>> _no_dates(["1.5.2021", "soon"]), _no_dates(["1/13/2021", "13/1/2021"])
    ("'soon' is none", "'13/1/2021' is written otherwise than '1/13/2021'")
    """
    first = texts[0]
    for text in texts:
        if not is_date(text):
            return f"{text!r} is none"
    other = next((each for each in texts if days_of_texts([first, each]) is None), texts[-1])
    return f"{other!r} is written otherwise than {first!r}"


def read_for_models(
    model_files: Sequence[Path],
    files: Sequence[str],
    options: FileOptions,
    doing: Doing,
    algorithm: str | None = None,
    more: Sequence[str] = (),
) -> tuple[list[Model], Reading]:
    """Read models, and the columns that they need together from the sites' files.

    Parameters
    ----------
    model_files : sequence of Path
        The models.
    files : sequence of str
        The files of the sites.
    options : FileOptions
        Options for reading them, with weights, groups and labels.
    doing : callable taking a str
        Called with each file before it is read.
    algorithm : str, optional
        The dotted name of a user's own algorithm that assigns rows.
    more : sequence of str
        Further columns to read.
    """
    models, roles = models_of(model_files, options, algorithm, more)
    return models, Reading(_protected(_read(files, options, roles, doing), options, roles))


def models_of(
    model_files: Sequence[Path],
    options: FileOptions,
    algorithm: str | None = None,
    more: Sequence[str] = (),
) -> tuple[list[Model], ColumnRoles]:
    """Read models; return them, and the roles of all columns that are needed."""
    models = [Model.load(file, [algorithm] if algorithm else ()) for file in model_files]
    roles = models[0].row_form.roles
    if len(models) > 1 or more:
        further = [ColumnRoles(tuple(more))] if more else []
        roles = _together([*(each.row_form.roles for each in models), *further])
    own = {} if options.id_column is None else {"id": options.id_column}
    for role, name in (roles_of(options) | own).items():
        if name in (roles.values or ()):
            raise InputError(
                f"--{role}-column {name!r} is a column of the model; fit again without it, "
                "with the others in --columns"
            )
    return models, replace(roles, recoding=_recoding(options), renamed=_renamed(options))


def _together(roles: Sequence[ColumnRoles]) -> ColumnRoles:
    """Return the roles of columns that several models need, as rows that are not prepared.

    Raises
    ------
    RefusedError
        If a date becomes another number in each of them.
    """
    dates: dict[str, str] = {}
    levels: dict[str, Sequence[str]] = {}
    for each in roles:
        for name, how in each.dates.items():
            if dates.setdefault(name, how) != how:
                raise refused("beside-dates", column=name, one=dates[name], other=how)
        for name, own in each.levels.items():
            levels[name] = list(dict.fromkeys([*levels.get(name, ()), *own]))
    numeric = frozenset().union(*(each.numeric for each in roles))
    values = dict.fromkeys(name for each in roles for name in each.values or ())
    coded = tuple(name for name in levels if name not in numeric)
    return ColumnRoles(
        tuple(values), raw=True, coded=coded, dates=dates, numeric=numeric, levels=levels
    )


def _read(
    files: Sequence[str], options: FileOptions, roles: ColumnRoles, doing: Doing
) -> dict[str, SiteRows]:
    if are_site_files(files):
        values = ("source", "missing_values", "codes", "rename")
        said = [name for name in values if getattr(options, name)]
        said += [named(f"{role}_column") for role in roles_of(options)]
        for site, own in options.sites.items():
            said += [dotted("sites", site, key) for key in own if key != "path"]
        if said:
            raise refused("site-file-own", option=said[0])
        return _open_sites(files, roles, options.protection, doing)
    if options.site_column is not None and len(files) > 1:
        raise refused("files-site", n_files=len(files))
    sources, roles = (
        named_sources(files, options),
        replace(roles, **roles_of(options)),
    )
    return read_sites(sources, roles, doing)


def _protected(
    tables: dict[str, SiteRows], options: FileOptions, roles: ColumnRoles
) -> dict[str, SiteRows]:
    """Return the rows of files, in groups if the options require it."""
    if options.protection != "groups":
        return tables
    groups = Groups(scale="standard" if roles.raw else "none")
    return {
        name: replace(table, protected=_grouped(table, groups)) if table.limits is None else table
        for name, table in tables.items()
    }


def _grouped(table: SiteRows, groups: Groups) -> Callable[[Sequence[str], Any], Client]:
    """Return a factory of clients that answer with groups of a file's rows."""
    return lambda _columns, limits: Client(table.name, table.rows, limits, groups)


def _own_groups(site: SiteFile, *, raw: bool) -> Callable[[Sequence[str], Any], Client]:
    """Return a factory of clients that answer with a site file's groups, under its limits."""
    return lambda columns, _limits: site.grouped_client().with_columns(columns, raw=raw)


def _site_files(files: Sequence[str]) -> list[SiteFile]:
    """Read site files, and now the rows of databases that they name."""
    # lazy: reading files does not need the site package
    from fedcluster_app.site.file import SiteFile

    return [SiteFile.load(file).kept(_now) for file in files]


def _open_sites(
    files: Sequence[str], roles: ColumnRoles, protection: str | None, doing: Doing
) -> dict[str, SiteRows]:
    """Open the rows of site files, reading those of databases and text files.

    Without columns, all sites must have the same ones, unless the rows are to be prepared: then the
    columns that all sites have are used.
    """
    sites: dict[str, SiteFile] = {}
    for site in _site_files(files):
        if site.name in sites:
            raise InputError(
                f"two sites are called {site.name!r} ({sites[site.name].path} and {site.path}); "
                "give one of them another name"
            )
        sites[site.name] = site
    sites = dict(sorted(sites.items()))
    streams = {name: site.opened(roles.values, raw=roles.raw) for name, site in sites.items()}
    if roles.values is None:
        every = common_names({name: each.columns for name, each in streams.items()}, roles.said)
        streams = {name: each.called(every[name]) for name, each in streams.items()}
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
        if roles.raw and isinstance(rows, Data):
            check_no_total(f"site {name!r}", rows)
        own: dict[str, Any] = {"limits": site.limits.filters}
        if (protection or site.protection) == "groups":
            own["protected"] = _own_groups(site, raw=roles.raw)
        opened[name] = SiteRows(name, rows, columns, range(1, len(rows) + 1), **own)
    return opened


# Files of several sites


def read_sites(
    sources: Mapping[str, OneSource],
    columns: ColumnRoles | Sequence[str] | None = None,
    doing: Doing = silent,
) -> dict[str, SiteRows]:
    """Read one file for each site, or one file of all sites.

    Parameters
    ----------
    sources : mapping of str to FileSource or WarehouseSource
        The files by site; only one if ``columns`` names a column of sites.
    columns : ColumnRoles or sequence of str, optional
        The columns to read, in this order; by default all, which must then be the same at every
        site unless rows are to be prepared.
    doing : callable taking a str, optional
        Called with each file before it is read.

    Returns
    -------
    dict of str to SiteRows
        By the sites' names.

    Raises
    ------
    InputError
        With site, column, row and advice.
    """
    roles = ColumnRoles.from_columns(columns)
    said = [*roles.said, *(name for each in roles.renamed.values() for name in each)]
    opened = {site: open_source(source, f"site {site!r}", said) for site, source in sources.items()}
    names, own_of, roles = _common_names(
        {site: names_of(each) for site, each in opened.items()}, roles
    )
    values = _values(sources, names, roles)

    def rows_of(site: str, roles: ColumnRoles) -> dict[str, SiteRows]:
        source = sources[site]
        doing(f"reading {source.path.name if isinstance(source, FileSource) else site}")
        own = replace(roles, values=values[site])
        by_name, rows = roles.values is not None, opened[site]
        if isinstance(rows, Matrix) and _is_large(rows, own):
            return {site: _in_chunks(site, rows, own, own_of[site])}
        return _rows_of(site, source, rows, own, own_of[site], by_name=by_name)

    read: dict[str, SiteRows] = {}
    for of_site in each_site(sources, roles, rows_of):
        read |= of_site
    opened.clear()
    held = {site: rows.rows for site, rows in read.items() if isinstance(rows.rows, Data)}
    for site, data in held.items() if roles.raw else ():
        check_no_total(f"site {site!r}", data)
    if roles.raw and not roles.levels:
        held = common_levels(held, MOST_CATEGORIES, roles.coded)
        read |= {site: replace(read[site], rows=data) for site, data in held.items()}
    if roles.values is None and not roles.raw and held:
        _warn_of_row_numbers([read[site] for site in held])
    for site, data in held.items():
        weight = data.sample_weight
        if weight is not None and not weight.any():
            raise InputError(
                f"site {site!r}, column {roles.weight!r}: every weight is 0; "
                "leave the site out or weigh some row"
            )
    return read


def _common_names(
    names: Mapping[str, tuple[str, ...]], roles: ColumnRoles
) -> tuple[dict[str, tuple[str, ...]], dict[str, dict[str, str]], ColumnRoles]:
    """Return the common and the own names of each site's columns, and the roles by common names.

    Names that an option replaces are replaced first, also in the other options.
    """
    new = _new_names(names, roles.renamed)
    shown = {site: tuple(new[site].get(n, n) for n in each) for site, each in names.items()}
    roles = roles.in_names(roles.renamed.get("", {}))
    spelled = common_names(shown, roles.said)
    own: dict[str, dict[str, str]] = {}
    for site, columns in names.items():
        common = {name: other for other, name in spelled[site].items()}
        both = zip(columns, shown[site], strict=True)
        pairs = [(old, common.get(now, now)) for old, now in both]
        own[site] = {now: old for old, now in pairs if now != old}
        shown[site] = tuple(now for _, now in pairs)
    every = [name for each in shown.values() for name in each]
    roles = roles.in_names({n: own_names(every, [n]).get(n, n) for n in roles.said})
    factors = {
        site: {new.get(site, {}).get(name, name): x for name, x in each.items()}
        for site, each in roles.recoding.factors.items()
    }
    return shown, own, replace(roles, recoding=replace(roles.recoding, factors=factors))


def _new_names(
    names: Mapping[str, tuple[str, ...]], renamed: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """Return the names that an option replaces at each site, with the new ones."""
    new: dict[str, dict[str, str]] = {site: {} for site in names}
    for site, each in renamed.items():
        if site and site not in names:
            raise InputError(f"rename: there is no site {site!r}; there are {', '.join(names)}")
        for old, name in each.items():
            at = [other for other in names if other == (site or other) and old in names[other]]
            if not at:
                which = f"site {site!r} has" if site else "no site has a"
                has = f"no column {old!r}" if site else f"column {old!r}"
                raise InputError(f"rename: {which} {has}")
            also = {*renamed.get("", {}), *each}  # two columns may exchange their names
            if full := [other for other in at if name in names[other] and name not in also]:
                raise InputError(f"rename: site {full[0]!r} has a column {name!r} already")
            for other in at:
                put(new[other], old, name, "rename", repr(old))
    for site, each in new.items():
        if (twice := first_twice(each.values())) is not None:
            raise InputError(f"rename: two columns of site {site!r} are to be called {twice!r}")
    return new


def _rows_of(
    site: str,
    source: OneSource,
    opened: list[Table] | Matrix,
    roles: ColumnRoles,
    own: Mapping[str, str],
    *,
    by_name: bool,
) -> dict[str, SiteRows]:
    """Read the rows of a site, or of all sites from one file.

    Unreadable columns that no option names are skipped.

    Parameters
    ----------
    site : str
        The site.
    source : FileSource or WarehouseSource
        Its file.
    opened : list of Table or Matrix
        The opened tables.
    roles : ColumnRoles
        The columns to read, by their common names.
    own : mapping of str to str
        The file's own names of some columns.
    by_name : bool
        Whether the user chose the columns.
    """
    owner = f"site {site!r}" if roles.site is None else str(source)
    loaded = load(opened, roles.in_names(own), owner, skip=not by_name)
    common = {name: each for each, name in own.items()}

    def of_all(each: Mapping[str, Any]) -> dict[str, Any]:
        return {common.get(name, name): value for name, value in each.items()}

    read = replace(
        loaded,
        data=called(loaded.data, own),
        unreadable=of_all(loaded.unreadable),
    )
    chosen = tuple(name for name in roles.chosen if name not in read.unreadable)
    used = {*chosen, *roles.others}
    ignored = tuple(n for n in (common.get(n, n) for n in names_of(opened)) if n not in used)
    padded = tuple(common.get(n, n) for n in (padded_columns(opened) if roles.raw else ()))
    recoding = roles.recoding.without(ignored)
    how, sites = read_as(opened, source), read.sites
    rows, every = {}, [site] if sites is None else sorted(set(sites.tolist()))
    note_sites(every)
    for name in every:
        place = None if sites is None else np.flatnonzero(sites == name)
        data = read.data if place is None else read.data.take(place)
        # only for a fit, where no model gives the columns
        is_fit = roles.raw and not (roles.numeric or roles.levels)
        if is_fit and 0 < (n_empty := int((empty := data.empty).sum())) < len(data):
            some = "1 row is" if n_empty == 1 else f"{n_empty:,} rows are"
            said = f"site {name!r}: {some} left out for lack of any value, as row"
            warnings.warn(f"{said} {int(np.argmax(empty)) + 1}", ReadingNote, stacklevel=2)
            place = (np.arange(len(data)) if place is None else place)[~empty]
            data = read.data.take(place)
        rows[name] = SiteRows(
            name,
            recoding.apply(data, name, gaps=roles.raw),
            chosen,
            range(1, len(data) + 1) if place is None else place + 1,
            ignored,
            unreadable=read.unreadable,
            padded=padded,
            read_as=how,
        )
    return rows


def _is_large(matrix: Matrix, roles: ColumnRoles) -> bool:
    """Return whether a matrix of numbers alone is read in chunks, as sites read theirs."""
    needs_all = roles.others or roles.coded or roles.recoding.codes
    return not needs_all and matrix.n_rows * len(roles.chosen) > matrix.held_values


def _in_chunks(site: str, matrix: Matrix, roles: ColumnRoles, own: Mapping[str, str]) -> SiteRows:
    """Return the rows of a site, read anew each time; see `_rows_of`."""
    rows = matrix_rows(matrix, roles.in_names(own), f"site {site!r}").called(own)
    ignored = tuple(name for name in matrix.names if name not in rows.columns)
    rows = roles.recoding.without(ignored).in_chunks(rows, site, gaps=roles.raw)
    return SiteRows(site, rows, roles.chosen, range(1, len(rows) + 1), ignored)


def _values(
    sources: Mapping[str, OneSource], names: Mapping[str, Sequence[str]], roles: ColumnRoles
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
    """Raise an error for an excluded column that no site has."""
    for name in excluded:
        if not any(name in each for each in names.values()):
            have = ", ".join(filter(None, next(iter(names.values()))))
            raise InputError(f"--exclude: no site has a column {name!r}; there are {have}")


def _warn_of_row_numbers(sites: Sequence[SiteRows]) -> None:
    """Warn of columns that only number the rows, if the user chose no columns."""
    columns = sites[0].columns
    counts = [
        name
        for j, name in enumerate(columns)
        if any(s.data.columns[j].kind == "number" and counts_rows(s.data.X[:, j]) for s in sites)
    ]
    if 0 < len(counts) < len(columns):
        some = ", ".join(map(repr, counts))
        warnings.warn(
            f"clustered by {some} too, which only counts the rows; "
            + choose([name for name in columns if name not in counts]),
            stacklevel=3,
        )


def _columns_apart(tables: Mapping[str, SiteRows], prepare: PreprocessingSpec) -> dict[str, str]:
    """Return what sites hold in columns that differ between sites, as questions if so.

    Sites with limits of their own are asked when they take part.
    """
    if any(table.limits is not None for table in tables.values()):
        return {}
    described = {site: table.described_columns for site, table in tables.items()}
    rows = {site: each.rows for site, each in tables.items() if isinstance(each.rows, Data)}
    apart = columns_apart(described, prepare)
    questions = code_questions(rows) if apart else {}
    return {name: questions.get(name, held) for name, held in apart.items()}


def _check_alike(apart: Mapping[str, str]) -> None:
    """Raise an error for columns that hold text at some sites and numbers at others."""
    if apart:
        line, *others = apart.values()
        more = f" (as {len(others)} more columns are odd)" if others else ""
        names = ",".join(map(quoted, apart))
        raise InputError(
            f"{line}{more}; --categories auto,{names} takes all of it as text; "
            f"--exclude {names} or --set lenient=true goes on without"
        )


def _check_readable(tables: Mapping[str, SiteRows]) -> None:
    """Raise an error for rows with an unreadable column, naming its first bad cell and a remedy."""
    found = [(s, n, why) for s, table in tables.items() for n, why in table.unreadable.items()]
    if found:
        site, name, reason = found[0]
        reason = reason.removeprefix(f"site {site!r}, column {name!r}: ")
        if {each for each, _, _ in found} < {*tables}:
            own = dotted("sites", site, "decimal")
            reason = re.sub(r"(?<!do not )say --set source\.decimal", f"say --set {own}", reason)
        names = list(dict.fromkeys(quoted(column) for _, column, _ in found))
        more = f" (as {len(found) - 1} more columns of the sites are odd)" if found[1:] else ""
        raise InputError(
            f"site {site!r}, column {name!r}, {reason}{more}; --exclude {','.join(names)} or "
            "--set lenient=true goes on without"
        )


def screen(
    tables: Mapping[str, SiteRows],
    summaries: Mapping[str, SourceSummary],
    prepare: PreprocessingSpec,
    dates: Collection[str] = (),
    apart: Mapping[str, str] | None = None,
    *,
    chosen: bool,
) -> tuple[dict[str, SiteRows], FitReport]:
    """Return the rows without columns that are not measurements, and notes on all columns.

    Parameters
    ----------
    tables : mapping of str to SiteRows
        The rows of each site, before preparation.
    summaries : mapping of str to SourceSummary
        The summaries of rows in memory.
    prepare : PreprocessingSpec
        The preparation.
    dates : collection of str
        Columns whose dates were converted to numbers.
    apart : mapping of str to str, optional
        Columns that differ between sites, and what the sites hold.
    chosen : bool
        Whether the user chose the columns; then none is left out.
    """
    screening = screened(summaries, prepare.named, dates)
    unreadable = {
        name: f"at {site}, {reason}"
        for site, table in tables.items()
        for name, reason in table.unreadable.items()
    }
    unlike = {
        name: why.partition(" holds ")[2].partition(": correct")[0].partition("; if")[0]
        for name, why in (apart or {}).items()
    }
    left_out = {} if chosen else unreadable | unlike | dict(screening.left_out)
    rest = {site: table.without(left_out) for site, table in tables.items()}
    rows = {site: each.rows for site, each in rest.items() if isinstance(each.rows, Data)}
    filled = prepare.missing in ("mean", "median")
    odd = [*unlike_sites(rows, prepare.named, prepare.bounds)] if rows else []
    if len(rows) == len(rest):
        odd += no_features(rows, chosen=chosen, filled=filled)
    screening = replace(screening, warnings=tuple(odd))
    if chosen:
        return dict(tables), replace(screening, left_out={}, notes=())
    if any(table.limits is not None for table in tables.values()):
        return dict(tables), FitReport(warnings=screening.warnings)
    return rest, replace(screening, left_out=left_out, notes=(*_written(tables), *screening.notes))


def _written(tables: Mapping[str, SiteRows]) -> Iterator[str]:
    """Yield the dialects of files that have an unusual one."""
    sites: dict[str, list[str]] = {}
    for site, table in tables.items():
        for what in table.read_as:
            sites.setdefault(what, []).append(site)
    if sites:
        yield f"Read with {'; '.join(f'{what}: {listed(at)}' for what, at in sites.items())}."


# Files as a command names them


def named_sources(
    arguments: Iterable[str], options: ValueOptions = AS_THEY_ARE
) -> dict[str, OneSource]:
    """Return the files by site: ``path`` is named by its stem, and ``name=path`` sets a name.

    Parameters
    ----------
    arguments : iterable of str
        The files as arguments of a command.
    options : ValueOptions
        How files are read, all and those of single sites.

    Returns
    -------
    dict of str to FileSource or WarehouseSource
        The files, sorted by name.

    Raises
    ------
    InputError
        If two sites have the same name, or none has one that an option says.

    Examples
    --------
    >>> sources = named_sources(["data/south.csv", "Upper North=data/n1.parquet"])
    >>> [(site, str(source)) for site, source in sources.items()]
    [('Upper North', 'data/n1.parquet'), ('south', 'data/south.csv')]
    >>> german = {"decimal": ",", "encoding": "latin-1"}
    >>> source = named_sources(["east=de.csv"], ValueOptions({"east": german}))["east"]
    >>> str(source), source.decimal, source.encoding
    ('de.csv', ',', 'latin-1')
    """
    sources: dict[str, OneSource] = {}
    for argument in arguments:
        site, source = _named(argument, options)
        if site in sources:
            raise InputError(
                f"two sites are called {site!r} ({sources[site]} and {source}); give one of them "
                f"another name, as in {shlex.quote(f'{site}-2={source}')}"
            )
        sources[site] = source
    own = {} if getattr(options, "site_column", None) else options.sites
    if alone := [site for site in own if site not in sources and "path" not in own[site]]:
        there = ", ".join(sorted(sources))
        raise InputError(
            f"{dotted('sites', alone[0])}: no file belongs to this site; the sites are {there}"
        )
    return dict(sorted(sources.items()))


def _named(argument: str, options: ValueOptions) -> tuple[str, OneSource]:
    """Return the name of a site and its file, with what is said of how it is read."""
    name, path = name_and_path(argument)
    if scheme := ADDRESS.search(path):
        return name, _remote(name, path, scheme[1], options)
    if isdir(path) and not path.endswith("/") and not has_partitions(Path(path)):
        raise InputError(
            f"{path} is a folder; give one file for each site, or write {path}/ if its Parquet "
            "files are the rows of one"
        )
    return name, _file(name, Path(path), options)


def name_and_path(argument: str) -> tuple[str, str]:
    """Return the name of a site, and its file or address.

    Examples
    --------
    >>> name_and_path("a/north.csv"), name_and_path("b=https://x.org/south.csv?v=2")
    (('north', 'a/north.csv'), ('b', 'https://x.org/south.csv?v=2'))
    """
    name, equals, path = argument.partition("=")
    address = ADDRESS.search(argument)
    if not equals or (Path(argument).exists() if address is None else "/" in name):
        place = argument.partition("?")[0].rstrip("/")
        name, path = _stem(argument if address is None else PurePosixPath(place).name), argument
    if not name.strip() or not path:
        raise InputError(f"{argument!r} must be FILE or NAME=FILE")
    if (said := AS_READ.search(argument)) and not Path(argument).exists():
        raise InputError(
            f"{said[1]} of a file is a key of the study file: --set sites.SITE.{said[1]}=VALUE"
        )
    return name.strip(), path


def _file(site: str, path: Path, options: ValueOptions) -> FileSource:
    """Return the file of a site; what is said of all files counts for those of its kinds."""
    form = FORMATS.get(suffix_of(path.name) or "")
    usual = {name: value for name, value in options.source.items() if form and name in form.options}
    own = _keys_of(site, options)
    if other := own.keys() - set(FILE_OPTIONS):
        raise InputError(f"{dotted('sites', site, min(other))} is for a database, not for {path}")
    return FileSource(path, **{**usual, **own})


def _keys_of(site: str, options: ValueOptions) -> dict[str, Any]:
    """Return what is said of how a site's rows are read."""
    others = ("path", "rename", "factors")
    return {key: value for key, value in options.sites.get(site, {}).items() if key not in others}


def _remote(name: str, address: str, scheme: str, options: ValueOptions) -> OneSource:
    """Return what is at an address: a copy of a file, or a warehouse."""
    place = address.partition("?")[0].rstrip("/")
    if scheme in WEB or (scheme in SCHEMES and suffix_of(place)):
        return _file(name, fetched(address), options)
    own = _keys_of(name, options)
    if other := own.keys() - {"query", "table", "where", "order", "version", "password_file"}:
        raise InputError(f"{scheme}://...: {dotted('sites', name, min(other))} is for files")
    secret = own.get("password_file")
    source = WarehouseSource(address, **{**own, "password_file": secret and Path(secret)})
    with error_prefix(f"{scheme}://..."):
        source.check()
    return _now(source)


def _now(source: WarehouseSource, columns: Sequence[str] | None = None) -> WarehouseSource:
    """Return a source with its present rows, read once per command."""
    held = HELD.get()
    held = {} if held is None else held
    key = source, tuple(columns or ())
    if key not in held:
        held[key] = hold(source, columns)
    found: WarehouseSource = held[key]
    return found


def _stem(path: str) -> str:
    """Return the name of a site whose file is given without a name."""
    file = Path(path).name
    return file[: len(file) - len(suffix_of(file) or "")] or path


def are_site_files(files: Sequence[str]) -> bool:
    """Return whether files are site files, which cannot be mixed with others."""
    tomls = [name for name in files if name.lower().endswith(".toml")]
    if tomls and len(tomls) < len(files):
        other = next(name for name in files if name not in tomls)
        raise InputError(
            f"{tomls[0]} is a site file and {other} is not; write a site file for it, too"
        )
    return bool(tomls)


# Tables that clusters are joined to


TABLES = "tables"
"""The folder of tables with clusters, beside that of labels."""


@dataclass(frozen=True, slots=True, eq=False)
class Joining:
    """Tables of the rows, to which clusters are joined.

    Parameters
    ----------
    own : mapping of str to OwnTable
        The tables by site, with that of all sites under None; if ``append`` is False, sites whose
        rows have no keys may be missing.
    append : bool, default=False
        Whether to write the tables again with the clusters.
    """

    own: Mapping[str | None, OwnTable] = field(default_factory=dict)
    append: bool = False

    def keys(self, rows: SiteRows) -> tuple[str, Any] | None:
        """Return the name of the column of keys and the key of each row; None without keys."""
        own = self._own(rows.name)
        return None if own is None else own.keys(rows.row_ids)

    def write(self, folder: Path, file: str, rows: SiteRows, model: Model, labels: Labels) -> None:
        """Write a site's table with the clusters of its rows, if tables are to be written."""
        own = self._own(rows.name)
        if self.append and own is not None:
            (folder / TABLES).mkdir(exist_ok=True)
            table = own.read(rows.row_ids)
            more = _appended(rows, model, labels)
            write_joined(folder / self.file_of(file), table, more, *own.dialect)

    def files(self, labels: Sequence[str]) -> list[str]:
        """Return the files of the tables that accompany files of labels."""
        return list(map(self.file_of, labels)) if self.append else []

    @staticmethod
    def file_of(labels: str) -> str:
        """Return the file of a site's table, which is named like that of its labels."""
        return f"{TABLES}/{Path(labels).name}"

    def _own(self, site: str) -> OwnTable | None:
        return self.own.get(site, self.own.get(None))


def open_tables(
    files: Sequence[str], options: JoinOptions, values: ValueOptions, *, of_all: bool = False
) -> Joining:
    """Open the tables to which clusters will be joined, before any row is read.

    Parameters
    ----------
    files : sequence of str
        The files as arguments of the command.
    options : JoinOptions
        Options for keys, and for writing tables again.
    values : ValueOptions
        Options for reading files.
    of_all : bool, default=False
        Whether one file holds the rows of all sites.

    Raises
    ------
    InputError
        If a file cannot be read or has no such column, or if options for files of rows were given
        with site files.
    """
    is_asked = options.id_column is not None or options.append
    if are_site_files(files):
        if is_asked:
            raise refused("site-file-joined")
        tables = {site.name: site.own_table() for site in _site_files(files)}
        return Joining({name: own for name, own in tables.items() if own is not None})
    if not is_asked:
        return Joining()
    own: dict[str | None, OwnTable] = {}
    for site, source in named_sources(files, values).items():
        owner = str(source) if of_all else f"site {site!r}"
        own[None if of_all else site] = OwnTable.open(source, owner, options.id_column)
    return Joining(own, options.append)


def _appended(rows: SiteRows, model: Model, labels: Labels) -> dict[str, Any]:
    """Return the columns to append: cluster, its name, distance to its centre, and margin."""
    names = Run(model=model.plain()).names
    columns: dict[str, Any] = {"cluster": labels, "cluster_name": np.array([*names, ""])[labels]}
    if len(model.centers):
        parts, start = [], 0
        for part in chunks_of(rows.rows):
            own = labels[start : start + len(part)]
            parts.append(model.assignment.margins(model.prepared(part), own))
            start += len(part)
        columns["distance"], columns["margin"] = np.concatenate(parts, axis=1)
    return columns
