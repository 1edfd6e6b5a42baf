"""Read the rows that a command is given: from data files, one a site, or as site files say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcluster._site import SiteFile, held
from fedcluster.errors import InputError
from fedcluster.io._decimals import POINT
from fedcluster.io._files import (
    Source,
    column_list,
    common_columns,
    read_one_file,
    read_raw_file,
    read_raw_sites,
    read_sites,
    sources,
)
from fedcluster.io._reader import Reader, SiteTable
from fedcluster.io._rows import SiteRows
from fedcluster.io._sources import OpenRows
from fedcluster.model import Model
from fedcluster.preprocessing import Category, PreprocessingSpec

Doing = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How files are read, as a command's options say.

    Parameters
    ----------
    columns : str, optional
        Those to cluster by, as ``--columns`` takes them.
    site, weight, group, label : str, optional
        The column with the names of the sites, with the weights, with whose row it is, and with
        reference labels.
    decimal : {".", ","}, default="."
        What decimals begin with in CSV files.
    """

    columns: str | None = None
    site: str | None = None
    weight: str | None = None
    group: str | None = None
    label: str | None = None
    decimal: str = POINT

    @property
    def roles(self) -> dict[str, str]:
        """Return the columns that are not clustered by, by their role."""
        given = {r: getattr(self, r) for r in ("label", "weight", "group", "site")}
        return {role: name for role, name in given.items() if name is not None}

    def chosen(self) -> list[str] | None:
        """Return the columns to cluster by, which play no other role."""
        chosen = column_list(self.columns)
        for role, name in self.roles.items():
            if name in (chosen or []):
                raise InputError(
                    f"--{role}-column {name!r} is among --columns too; leave it out there"
                )
        return chosen

    def check_model(self, model: Model) -> None:
        """Refuse a column that the model clusters by and that is given another role."""
        for role, name in self.roles.items():
            if name in model.columns:
                raise InputError(
                    f"--{role}-column {name!r} is a column of the model; fit again without it, "
                    "with the others in --columns"
                )


def read(
    files: Sequence[str],
    options: ReadOptions,
    doing: Doing,
    prepare: PreprocessingSpec | None = None,
) -> dict[str, SiteRows]:
    """Read the sites' rows for a fit: from one file each, from one of all, or by site files.

    Rows that are to be prepared may have text and missing values.
    """
    texts = None if prepare is None else tuple(prepare.named)
    return _read(files, options, options.chosen(), texts, doing)


def read_for(
    model: Model, files: Sequence[str], options: ReadOptions, doing: Doing
) -> dict[str, SiteRows]:
    """Read the model's columns of new rows, with weights, groups and labels as options say."""
    options.check_model(model)
    texts = None
    if model.preprocessor is not None:
        texts = tuple(c.name for c in model.preprocessor.columns if isinstance(c, Category))
    return _read(files, options, model.columns, texts, doing)


def _read(
    files: Sequence[str],
    options: ReadOptions,
    columns: Sequence[str] | None,
    texts: Sequence[str] | None,
    doing: Doing,
) -> dict[str, SiteRows]:
    """Read the rows of each site; with ``texts``, they are still to be prepared."""
    if _are_site_files(files):
        if options.label:
            raise InputError(
                "--min-cluster-size and --label-column are what a site file says itself"
            )
        if options.decimal != POINT or options.roles:
            raise InputError(
                "--site-column, --weight-column, --group-column and --decimal are what a site "
                "file says itself"
            )
        return _open_sites(files, columns, doing, raw=texts is not None)
    if options.site is not None and len(files) > 1:
        raise InputError(f"--site-column is for one file of all sites, not for {len(files)} files")
    given = sources(files, options.decimal)

    def watch(source: Source) -> None:
        doing(f"reading {source.path.name}")

    tables = _tables(given, options, columns, texts, watch)
    labels = _labels(given, options, tables)
    return {
        site: SiteRows(
            site,
            replace(table.data, y=labels[site]),
            table.columns,
            table.numbers,
            table.ignored,
        )
        for site, table in tables.items()
    }


def _tables(
    given: Sequence[Source],
    options: ReadOptions,
    columns: Sequence[str] | None,
    texts: Sequence[str] | None,
    watch: Callable[[Source], None],
) -> dict[str, SiteTable]:
    weight, group = options.weight, options.group
    if options.site is None:
        if texts is None:
            return read_sites(given, columns, weight, watch, group)
        return read_raw_sites(given, columns, weight, texts, watch, group)
    watch(given[0])
    if texts is None:
        return read_one_file(given[0], options.site, columns, weight, group)
    return read_raw_file(given[0], options.site, columns, weight, texts, group)


def _labels(
    given: Sequence[Source], options: ReadOptions, tables: Mapping[str, SiteTable]
) -> dict[str, NDArray[np.str_] | None]:
    """Read the labels of each site's rows, where a column of them was named."""
    if options.label is None:
        return dict.fromkeys(tables)
    if options.site is None:
        return {source.site: _label_column(source, options.label) for source in given}
    every = _label_column(given[0], options.label)
    return {site: every[table.numbers - 1] for site, table in tables.items()}


def _label_column(source: Source, column: str) -> NDArray[np.str_]:
    """Read a column of labels as they are written, (n,); none may be missing."""
    owner, file = source.owner, source.opened()
    Reader(owner, file).check([column])
    [read] = file.read([column], [column])
    labels = np.array([text.strip() if text else "" for text in read.to_pylist()])
    if not all(labels):
        where = file.where(int(np.argmax(labels == "")))
        raise InputError(
            f"{owner}, column {column!r}, {where}: the label is missing; fill it in or drop the row"
        )
    return labels


def _are_site_files(files: Sequence[str]) -> bool:
    """Return whether site files were given, which do not go together with others."""
    tomls = [name for name in files if name.lower().endswith(".toml")]
    if tomls and len(tomls) < len(files):
        other = next(name for name in files if name not in tomls)
        raise InputError(f"{tomls[0]} is a site file and {other} is none; write one for it, too")
    return bool(tomls)


def _open_sites(
    files: Sequence[str], columns: Sequence[str] | None, doing: Doing, *, raw: bool
) -> dict[str, SiteRows]:
    """Open the sites of site files; rows of databases and text files are read.

    Without ``columns`` all sites must have the same, unless the rows are still to be prepared,
    which finds the columns that all sites have.
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
    streams: dict[str, OpenRows] = {n: s.opened(columns, raw=raw) for n, s in sites.items()}
    if not raw:
        order = tuple(common_columns({name: each.columns for name, each in streams.items()}))
        for name, stream in streams.items():
            streams[name] = stream if stream.columns == order else sites[name].opened(order)
    opened = {}
    for name, site in sites.items():
        doing(f"reading {name}")
        rows: Any = held(streams[name])
        opened[name] = SiteRows(
            name,
            rows,
            streams[name].columns,
            range(1, len(rows) + 1),
            limits=site.limits.filters,
        )
    return opened
