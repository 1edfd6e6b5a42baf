"""Files as a command names them, and the tables among them that clusters are joined to."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.cli._options import JoinOptions, ValueOptions
from fedcluster.core import Labels
from fedcluster.errors import InputError
from fedcluster.io.cells import COMMA, POINT
from fedcluster.io.columns import column_list
from fedcluster.io.outputs import write_joined
from fedcluster.io.remote import SCHEMES, fetched
from fedcluster.io.rows import FILE_OPTIONS, FileSource, SiteRows, chunks_of
from fedcluster.io.sources import CSV, FORMATS, OwnTable, suffix_of
from fedcluster.model import Model
from fedcluster.options.refusals import refused
from fedcluster.site.file import SiteFile

ADDRESS = re.compile(r"^(?:[^=/]+=)?([\w+]+)://")
OPTION = re.compile(rf":({'|'.join(FILE_OPTIONS)})=")


def named_sources(
    arguments: Iterable[str], decimal: str | None = None, encoding: str | None = None
) -> dict[str, FileSource]:
    """Name the sites of files: ``path`` after the file's stem, ``name=path`` as it says.

    Parameters
    ----------
    arguments : iterable of str
        The files as a command names them, each with options of its own, or none.
    decimal : {".", ","}, optional
        What the decimals begin with in those that are CSV; by default each file shows it.
    encoding : str, optional
        How the letters of those that are CSV are written; by default each file shows it.

    Returns
    -------
    dict of str to FileSource
        In the order of the names.

    Raises
    ------
    InputError
        If two sites have one name, or an option is unknown.

    Examples
    --------
    >>> sources = named_sources(["data/south.csv", "Upper North=data/n1.parquet"])
    >>> [(site, str(source)) for site, source in sources.items()]
    [('Upper North', 'data/n1.parquet'), ('south', 'data/south.csv')]
    >>> source = named_sources(["east=east_de.csv:decimal=,:encoding=latin-1"])["east"]
    >>> str(source), source.decimal, source.encoding
    ('east_de.csv', ',', 'latin-1')
    """
    sources: dict[str, FileSource] = {}
    for argument in arguments:
        site, source = _named(argument)
        if site in sources:
            raise InputError(
                f"two sites are called {site!r} ({sources[site]} and {source}); give one of them "
                f"another name, as in {shlex.quote(f'{site}-2={source}')}"
            )
        if FORMATS.get(suffix_of(source.path.name) or "") is CSV:
            decimals, letters = source.decimal or decimal, source.encoding or encoding
            source = replace(source, decimal=decimals, encoding=letters)
        sources[site] = source
    return dict(sorted(sources.items()))


def _named(argument: str) -> tuple[str, FileSource]:
    """Return the name of a site and its file, with the options that are given there."""
    options: dict[str, Any] = {}
    if not Path(argument).exists():
        argument, *parts = OPTION.split(argument)
        options = _options(argument, parts)
        _check_no_option(argument)
    if scheme := ADDRESS.search(argument):
        return _remote(argument, scheme[1], options)
    name, equals, path = argument.partition("=")
    if equals and not Path(argument).exists():
        if not name.strip() or not path:
            raise InputError(f"{argument!r} must be FILE or NAME=FILE")
        return name.strip(), FileSource(Path(path), **options)
    return _stem(argument), FileSource(Path(argument), **options)


def _remote(argument: str, scheme: str, options: dict[str, Any]) -> tuple[str, FileSource]:
    """Return the name of a site and the copy of its file, given the address."""
    if scheme not in SCHEMES:  # the address is not shown, there may be a password in it
        raise InputError(
            f"{scheme}://... is the address of a database; name a site.toml whose [source] has "
            "the url and a query"
        )
    before, _, rest = argument.partition("://")
    name = before.rpartition("=")[0]
    path = fetched(f"{scheme}://{rest}")
    return name.strip() or _stem(path.name), FileSource(path, **options)


def _stem(path: str) -> str:
    """Return what a site is called whose file has no other name."""
    file = Path(path).name
    return file[: len(file) - len(suffix_of(file) or "")] or path


def _options(file: str, parts: list[str]) -> dict[str, Any]:
    """Return options from their names and values in turn."""
    shown = "the address" if ADDRESS.search(file) else file  # there may be a password in it
    options: dict[str, Any] = {}
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        if name in options or not value.strip():
            what = "is given twice" if name in options else "has no value"
            raise InputError(f"{shown}: the option {name} {what}")
        options[name] = tuple(column_list(value, "names") or ()) if name == "names" else value
    if options.get("decimal", POINT) not in (POINT, COMMA):
        raise InputError(f'{shown}: decimal must be "." or ",", not {options["decimal"]!r}')
    return options


def _check_no_option(file: str) -> None:
    """Refuse what stands behind a file like an option and is none."""
    path, _, unknown = file.rpartition(":")
    if ADDRESS.search(file) is None and "=" in unknown and suffix_of(path) is not None:
        raise InputError(
            f"{path} has no option {unknown.partition('=')[0]!r}; there are "
            f"{', '.join(FILE_OPTIONS)}, as in {path}:decimal=,"
        )


def are_site_files(files: Sequence[str]) -> bool:
    """Return whether site files were given, which do not go together with others."""
    tomls = [name for name in files if name.lower().endswith(".toml")]
    if tomls and len(tomls) < len(files):
        other = next(name for name in files if name not in tomls)
        raise InputError(f"{tomls[0]} is a site file and {other} is none; write one for it, too")
    return bool(tomls)


TABLES = "tables"
"""The folder of tables with clusters, beside that of labels."""


@dataclass(frozen=True, slots=True, eq=False)
class Joining:
    """The tables that rows were read from, to which clusters are joined back.

    Parameters
    ----------
    own : mapping of str to OwnTable
        The tables by site, that of all sites under None; where no table is written again, sites
        whose rows have no keys may be lacking.
    append : bool, default=False
        Whether the tables are written again with the clusters.
    """

    own: Mapping[str | None, OwnTable] = field(default_factory=dict)
    append: bool = False

    def keys(self, rows: SiteRows) -> tuple[str, Any] | None:
        """Return the name of the column of keys, and the key of each row, if that was asked."""
        own = self._own(rows.name)
        return None if own is None else own.keys(rows.row_ids)

    def write(self, folder: Path, file: str, rows: SiteRows, model: Model, labels: Labels) -> None:
        """Write a site's table with the clusters of its rows, if that was asked."""
        own = self._own(rows.name)
        if self.append and own is not None:
            (folder / TABLES).mkdir(exist_ok=True)
            table = own.read(rows.row_ids)
            more = _appended(rows, model, labels)
            write_joined(folder / self.file_of(file), table, more, *own.dialect)

    def files(self, labels: Sequence[str]) -> list[str]:
        """Return the tables that are written beside files of labels."""
        return list(map(self.file_of, labels)) if self.append else []

    @staticmethod
    def file_of(labels: str) -> str:
        """Return the file of a site's table, given that of its labels."""
        return f"{TABLES}/{Path(labels).name}"

    def _own(self, site: str) -> OwnTable | None:
        return self.own.get(site, self.own.get(None))


def opened(
    files: Sequence[str], options: JoinOptions, values: ValueOptions, *, of_all: bool = False
) -> Joining:
    """Open the tables that clusters are to be joined to, before any row is read.

    Parameters
    ----------
    files : sequence of str
        The files as the command names them.
    options : JoinOptions
        What was asked for.
    values : ValueOptions
        How files are read.
    of_all : bool, default=False
        Whether one file holds the rows of all sites.

    Raises
    ------
    InputError
        If a file cannot be read or has no such column, or if options were given that are for
        files of rows, with site files.
    """
    is_asked = options.id_column is not None or options.append
    if are_site_files(files):
        if is_asked:
            raise refused("site-file-joined")
        return Joining(_of_site_files(files))
    if not is_asked:
        return Joining()
    own: dict[str | None, OwnTable] = {}
    for site, source in named_sources(files, values.decimal, values.encoding).items():
        owner = str(source) if of_all else f"site {site!r}"
        own[None if of_all else site] = OwnTable.open(source, owner, options.id_column)
    return Joining(own, options.append)


def _of_site_files(files: Sequence[str]) -> dict[str | None, OwnTable]:
    """Return the tables of the sites that name a column of keys."""
    sites = [SiteFile.load(file) for file in files]
    tables = [(site.name, site.own_table()) for site in sites]
    return {name: own for name, own in tables if own is not None}


def _appended(rows: SiteRows, model: Model, labels: Labels) -> dict[str, Any]:
    """Return the columns that are appended: the cluster, how far its centre is, and the margin."""
    columns: dict[str, Any] = {"cluster": labels}
    if len(model.centers):
        parts, start = [], 0
        for part in chunks_of(rows.rows):
            own = labels[start : start + len(part)]
            parts.append(model.assignment.margins(model.prepared(part), own))
            start += len(part)
        columns["distance"], columns["margin"] = np.concatenate(parts, axis=1)
    return columns
