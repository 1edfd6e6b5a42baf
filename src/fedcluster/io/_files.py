"""The rows of several sites from their files: columns by name, every value a finite number."""

from __future__ import annotations

import csv
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedcluster.errors import InputError
from fedcluster.io._csv_files import CSV_KINDS, CsvFile
from fedcluster.io._decimals import POINT, is_number
from fedcluster.io._reader import Reader, SiteTable, choose, named
from fedcluster.io._tables import FileTable, ParquetFile, readable
from fedcluster.io._values import counts_rows

ADDRESS = re.compile(r"^(?:[^=/]+=)?([\w+]+)://")
EXTENSIONS = re.compile(r"\.(csv|tsv|parquet|pq)(\.gz)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """A site's name, its file, and what the decimals begin with if that is CSV."""

    site: str
    path: Path
    decimal: str = POINT

    @property
    def owner(self) -> str:
        """How an error message begins."""
        return f"site {self.site!r}"

    def opened(self) -> CsvFile | ParquetFile:
        """The file, opened."""
        return opened(self.path, self.owner, self.decimal)


def sources(arguments: Iterable[str], decimal: str = POINT) -> list[Source]:
    """Name the sites of files: ``path`` after the file's stem, ``name=path`` as it says.

    Parameters
    ----------
    arguments : iterable of str
        The files as a command names them.
    decimal : {".", ","}, default="."
        What the decimals begin with in those that are CSV.

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
    for argument in arguments:
        source = replace(_source(argument), decimal=decimal)
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
    if scheme := ADDRESS.search(argument):  # not shown, there may be a password in it
        raise InputError(
            f"{scheme[1]}://... is the address of a database; name a site.toml whose [source] has "
            "the url and a query"
        )
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
    group_column: str | None = None,
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
    group_column : str, optional
        The column that says whose row it is.

    Returns
    -------
    dict of str to SiteTable
        By the sites' names.

    Raises
    ------
    InputError
        With site, column, row and what to do.
    """
    files = {source.site: source.opened() for source in given}
    others = named(weight_column, group_column)
    chosen = columns
    if chosen is None:
        chosen = common_columns({site: _without(file, others) for site, file in files.items()})
    tables = {}
    for source in given:
        watch(source)
        reader = Reader(source.owner, files[source.site])
        tables[source.site] = reader.table(chosen, named(weight_column), group_column)
    if columns is None:
        _warn_of_row_numbers(tables)
    return _weighing_something(tables, weight_column)


def read_one_file(
    source: Source,
    site_column: str,
    columns: Sequence[str] | None = None,
    weight_column: str | None = None,
    group_column: str | None = None,
) -> dict[str, SiteTable]:
    """Read one file with the rows of all sites, whose names stand in ``site_column``.

    Returns
    -------
    dict of str to SiteTable
        By the sites' names.
    """
    file = source.opened()
    chosen = columns
    if chosen is None:
        others = named(site_column, weight_column, group_column)
        chosen = common_columns({source.site: _without(file, others)})
    reader = Reader(str(source.path), file)
    names = reader.texts(site_column)
    whole = reader.table(chosen, named(weight_column), group_column)
    if columns is None:
        _warn_of_row_numbers({source.site: whole})
    return _weighing_something(_by_site(whole, names), weight_column)


def read_raw_sites(
    given: Sequence[Source],
    columns: Sequence[str] | None = None,
    weight_column: str | None = None,
    texts: Collection[str] = (),
    watch: Callable[[Source], None] = lambda source: None,
    group_column: str | None = None,
) -> dict[str, SiteTable]:
    """Read one file for each site, as it is: text and missing values are allowed.

    Parameters
    ----------
    given, columns, weight_column, watch, group_column
        As for `read_sites`; by default, every site has all columns of its own.
    texts : collection of str
        Columns that may hold numbers and text, all of them names.
    """
    others = named(weight_column, group_column)
    tables = {}
    for source in given:
        watch(source)
        file = source.opened()
        tables[source.site] = Reader(source.owner, file).raw(
            columns or _measured(file, others), named(weight_column), texts, group_column
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
    group_column: str | None = None,
) -> dict[str, SiteTable]:
    """The same for one file with the rows of all sites, whose names stand in ``site_column``."""
    file = source.opened()
    reader = Reader(str(source.path), file)
    names = reader.texts(site_column)
    chosen = columns or _measured(file, named(site_column, weight_column, group_column))
    whole = reader.raw(chosen, named(weight_column), texts, group_column)
    if columns is None:
        _warn_of_row_numbers({source.site: whole})
    return _weighing_something(_by_site(whole, names), weight_column)


def _by_site(whole: SiteTable, names: NDArray[np.str_]) -> dict[str, SiteTable]:
    """The rows of each site, in the order of the names."""
    places = {site: np.flatnonzero(names == site) for site in sorted(set(names.tolist()))}
    return {site: replace(whole, ignored=()).take(place) for site, place in places.items()}


def _measured(file: FileTable, reserved: Sequence[str]) -> list[str]:
    """The columns of a file that may be clustered by."""
    names = [name for name in _without(file, reserved) if not _is_index(name)]
    if not names:
        raise InputError(f"{file.path} has no column to cluster by")
    return names


def read_columns(source: Source, columns: Sequence[str]) -> SiteTable:
    """Read the named columns of one file; the others are ignored."""
    return Reader(source.owner, source.opened()).table(columns)


def open_table(path: Path, decimal: str = POINT) -> CsvFile | ParquetFile:
    """Open a CSV or Parquet file and read the names of its columns.

    Parameters
    ----------
    path : Path
        The file.
    decimal : {".", ","}, default="."
        What the decimals begin with, if it is CSV.

    Raises
    ------
    InputError
        If it is not there, cannot be read, is empty or of another kind.
    """
    name = path.name.lower()
    if path.is_dir():
        raise InputError(f"{path} is a folder; give one file for each site")
    with readable(path):
        if name.endswith(CSV_KINDS):
            return CsvFile.open(path, decimal)
        if name.endswith((".parquet", ".pq")):
            return ParquetFile.open(path)
        path.open("rb").close()
    raise InputError(
        f"{path} is of an unknown kind; give CSV (.csv, .tsv, also with .gz) or Parquet (.parquet)"
    )


def opened(path: Path, owner: str, decimal: str = POINT) -> CsvFile | ParquetFile:
    """Open the owner's file and see that its columns have names of their own."""
    try:
        file = open_table(path, decimal)
    except InputError as error:
        raise InputError(f"{owner}: {error}") from error
    if twice := _twice(name for name in file.names if name):
        raise InputError(
            f"{owner}, column {twice!r}: {path} has two columns of this name; rename one of them"
        )
    if _looks_like_rows(file.names, decimal):
        raise InputError(
            f"{owner}: the first line of {path} holds numbers; "
            "put a line with the columns' names above it"
        )
    return file


def _twice(names: Iterable[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _looks_like_rows(names: Sequence[str], decimal: str) -> bool:
    """Whether what should be names are values: all numbers, and not 0, 1, 2, ..."""
    counted = [[str(i) for i in range(start, start + len(names))] for start in (0, 1)]
    numbers = all(is_number(name, decimal) for name in names)
    return bool(names) and list(names) not in counted and numbers


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
