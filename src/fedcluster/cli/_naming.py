"""How the command line names the files of sites: ``[NAME=]FILE[:OPTION=VALUE...]``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcluster.errors import InputError
from fedcluster.io._cells import COMMA, POINT
from fedcluster.io._columns import column_list
from fedcluster.io._remote import SCHEMES, fetched
from fedcluster.io._rows import FILE_OPTIONS, FileSource
from fedcluster.io._sources import CSV, FORMATS, suffix_of

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
