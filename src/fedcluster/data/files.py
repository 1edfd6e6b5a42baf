"""The rows of several sites from their files: columns by name, every value a finite number."""

from __future__ import annotations

import csv
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedcluster.data.cells import counts_rows, is_number
from fedcluster.data.reader import Reader, SiteTable, choose
from fedcluster.data.tables import CsvFile, FileTable, InputError, ParquetFile, open_table

__all__ = [
    "InputError",
    "SiteTable",
    "Source",
    "column_list",
    "common_columns",
    "opened",
    "read_columns",
    "read_one_file",
    "read_raw_file",
    "read_raw_sites",
    "read_sites",
    "sources",
]

EXTENSIONS = re.compile(r"\.(csv|tsv|parquet|pq)(\.gz)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """A site's name and its file."""

    site: str
    path: Path


def sources(arguments: Iterable[str]) -> list[Source]:
    """Name the sites of files: ``path`` after the file's stem, ``name=path`` as it says.

    Returns
    -------
    list of Source
        In the order of the names.

    Raises
    ------
    InputError
        If two sites have one name.

    Examples
    --------
    >>> [source.site for source in sources(["data/south.csv", "Upper North=data/n1.parquet"])]
    ['Upper North', 'south']
    """
    found: dict[str, Source] = {}
    for source in map(_source, arguments):
        if source.site in found:
            raise InputError(
                f"two sites are called {source.site!r} ({found[source.site].path} and "
                f"{source.path}); give one of them another name, as in "
                f"{shlex.quote(f'{source.site}-2={source.path}')}"
            )
        found[source.site] = source
    return [found[site] for site in sorted(found)]


def _source(argument: str) -> Source:
    name, equals, path = argument.partition("=")
    if equals and not Path(argument).exists():
        if not name.strip() or not path:
            raise InputError(f"{argument!r} must be FILE or NAME=FILE")
        return Source(name.strip(), Path(path))
    return Source(EXTENSIONS.sub("", Path(argument).name) or argument, Path(argument))


def column_list(text: str | None, option: str = "--columns") -> list[str] | None:
    """Split ``a,b,c`` into names; one that holds a comma stands in double quotes.

    Examples
    --------
    >>> column_list('age, "height, cm"')
    ['age', 'height, cm']
    """
    if text is None:
        return None
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    if not names or "" in names:
        raise InputError(f"{option} {text!r} has an empty name; write {option} a,b,c")
    if twice := _twice(names):
        raise InputError(f"{option} names {twice!r} twice")
    return names


def read_sites(
    given: Sequence[Source],
    columns: Sequence[str] | None = None,
    weight_column: str | None = None,
    watch: Callable[[Source], None] = lambda source: None,
) -> dict[str, SiteTable]:
    """Read one file for each site.

    Parameters
    ----------
    given : sequence of Source
        The files.
    columns : sequence of str, optional
        The columns to read, in this order; by default all, which must then be the same at every
        site, in the order of the first site.
    weight_column : str, optional
        The column with the rows' weights.
    watch : callable taking a Source, optional
        Told of each file before it is read.

    Returns
    -------
    dict of str to SiteTable
        By the sites' names.

    Raises
    ------
    InputError
        With site, column, row and what to do.
    """
    files = {source.site: opened(source.path, f"site {source.site!r}") for source in given}
    weight = [] if weight_column is None else [weight_column]
    chosen = columns
    if chosen is None:
        chosen = common_columns({site: _without(file, weight) for site, file in files.items()})
    tables = {}
    for source in given:
        watch(source)
        reader = Reader(f"site {source.site!r}", files[source.site])
        tables[source.site] = reader.table(chosen, weight)
    if columns is None:
        _warn_of_row_numbers(tables)
    return _weighing_something(tables, weight_column)


def read_one_file(
    source: Source,
    site_column: str,
    columns: Sequence[str] | None = None,
    weight_column: str | None = None,
) -> dict[str, SiteTable]:
    """Read one file with the rows of all sites, whose names stand in ``site_column``.

    Returns
    -------
    dict of str to SiteTable
        By the sites' names.
    """
    file = opened(source.path, f"site {source.site!r}")
    weight = [] if weight_column is None else [weight_column]
    chosen = columns
    if chosen is None:
        chosen = common_columns({source.site: _without(file, [site_column, *weight])})
    reader = Reader(str(source.path), file)
    names = reader.texts(site_column)
    whole = reader.table(chosen, weight)
    if columns is None:
        _warn_of_row_numbers({source.site: whole})
    tables = {}
    for site in sorted(set(names.tolist())):
        mine = np.flatnonzero(names == site)
        weights = None if whole.weights is None else whole.weights[mine]
        tables[site] = SiteTable(whole.columns, whole.X[mine], mine + 1, weights)
    return _weighing_something(tables, weight_column)


def read_raw_sites(
    given: Sequence[Source],
    columns: Sequence[str] | None = None,
    weight_column: str | None = None,
    texts: Collection[str] = (),
    watch: Callable[[Source], None] = lambda source: None,
) -> dict[str, SiteTable]:
    """Read one file for each site, as it is: text and missing values are allowed.

    Parameters
    ----------
    given, columns, weight_column, watch
        As for `read_sites`; by default, every site has all columns of its own.
    texts : collection of str
        Columns that may hold numbers and text, all of them names.
    """
    weight = [] if weight_column is None else [weight_column]
    tables = {}
    for source in given:
        watch(source)
        owner = f"site {source.site!r}"
        file = opened(source.path, owner)
        tables[source.site] = Reader(owner, file).raw(
            columns or _measured(file, weight), weight, texts
        )
    if columns is None:
        _warn_of_row_numbers(tables)
    return _weighing_something(tables, weight_column)


def read_raw_file(
    source: Source,
    site_column: str,
    columns: Sequence[str] | None = None,
    weight_column: str | None = None,
    texts: Collection[str] = (),
) -> dict[str, SiteTable]:
    """The same for one file with the rows of all sites, whose names stand in ``site_column``."""
    file = opened(source.path, f"site {source.site!r}")
    weight = [] if weight_column is None else [weight_column]
    reader = Reader(str(source.path), file)
    names = reader.texts(site_column)
    whole = reader.raw(columns or _measured(file, [site_column, *weight]), weight, texts)
    if columns is None:
        _warn_of_row_numbers({source.site: whole})
    tables = {}
    for site in sorted(set(names.tolist())):
        mine = np.flatnonzero(names == site)
        weights = None if whole.weights is None else whole.weights[mine]
        tables[site] = SiteTable(whole.columns, whole.X[mine], mine + 1, weights, kinds=whole.kinds)
    return _weighing_something(tables, weight_column)


def _measured(file: FileTable, reserved: Sequence[str]) -> list[str]:
    """The columns of a file that may be clustered by."""
    names = [name for name in _without(file, reserved) if not _is_index(name)]
    if not names:
        raise InputError(f"{file.path} has no column to cluster by")
    return names


def read_columns(source: Source, columns: Sequence[str]) -> SiteTable:
    """Read the named columns of one file; the others are ignored."""
    owner = f"site {source.site!r}"
    return Reader(owner, opened(source.path, owner)).table(columns)


def opened(path: Path, owner: str) -> CsvFile | ParquetFile:
    """Open the owner's file and see that its columns have names of their own."""
    try:
        file = open_table(path)
    except InputError as error:
        raise InputError(f"{owner}: {error}") from error
    if twice := _twice(name for name in file.names if name):
        raise InputError(
            f"{owner}, column {twice!r}: {path} has two columns of this name; rename one of them"
        )
    if _looks_like_rows(file.names):
        raise InputError(
            f"{owner}: the first line of {path} holds numbers; "
            "put a line with the columns' names above it"
        )
    return file


def _twice(names: Iterable[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _looks_like_rows(names: Sequence[str]) -> bool:
    """Whether what should be names are values: all numbers, and not 0, 1, 2, ..."""
    counted = [[str(i) for i in range(start, start + len(names))] for start in (0, 1)]
    return bool(names) and list(names) not in counted and all(map(is_number, names))


def _without(file: FileTable, reserved: Sequence[str]) -> list[str]:
    return [name for name in file.names if name not in reserved]


def common_columns(names: Mapping[str, Sequence[str]]) -> list[str]:
    """The columns of all sites, which must be the same, in the order of the first."""
    first, *others = names
    common = [name for name in names[first] if all(name in names[site] for site in others)]
    for site in others:
        for here, there in ((site, first), (first, site)):
            for name in names[there]:
                if name not in names[here]:
                    raise InputError(
                        f"site {here!r} has no column {name!r}, which site {there!r} has; "
                        + (choose(common) if common else "the sites have no column in common")
                    )
    if not common:
        raise InputError(f"site {first!r}: there is no column to cluster by")
    if unnamed := [name for name in common if _is_index(name)]:
        what = f"column {unnamed[0]!r} is an index" if unnamed[0] else "a column has no name"
        advice = choose([name for name in common if not _is_index(name)])
        raise InputError(f"site {first!r}: {what}; {advice}")
    return common


def _is_index(name: str) -> bool:
    """Whether a column is the index of a data frame, as pandas writes it."""
    return not name or re.fullmatch(r"__index_level_\d+__", name) is not None


def _weighing_something(
    tables: dict[str, SiteTable], weight_column: str | None
) -> dict[str, SiteTable]:
    """The tables, unless all rows of one weigh nothing."""
    for site, table in tables.items():
        if table.weights is not None and not table.weights.any():
            raise InputError(
                f"site {site!r}, column {weight_column!r}: every weight is 0; "
                "leave the site out or weigh some row"
            )
    return tables


def _counts_rows(table: SiteTable, name: str) -> bool:
    j = table.columns.index(name)
    is_text = bool(table.kinds) and table.kinds[j].kind != "number"
    return not is_text and counts_rows(table.X[:, j])


def _warn_of_row_numbers(tables: Mapping[str, SiteTable]) -> None:
    """Warn of columns that were not chosen and look like mere numbers of the rows."""
    first, *others = tables.values()
    columns = [name for name in first.columns if all(name in each.columns for each in others)]
    counts = [name for name in columns if any(_counts_rows(t, name) for t in tables.values())]
    if 0 < len(counts) < len(columns):
        some = ", ".join(map(repr, counts))
        warnings.warn(
            f"clustered by {some} too, which only counts the rows; "
            + choose([name for name in columns if name not in counts]),
            stacklevel=3,
        )
