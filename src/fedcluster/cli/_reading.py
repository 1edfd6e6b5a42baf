"""Read the rows that a command is given: from data files, one a site, or as site files say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedcluster._site import SiteFile, held
from fedcluster.errors import InputError
from fedcluster.io._cells import POINT
from fedcluster.io._columns import column_list, common_columns
from fedcluster.io._reader import ColumnRoles
from fedcluster.io._rows import SiteRows
from fedcluster.io._sources import FileSource, named_sources, read_sites
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
    chosen = options.chosen()
    coded = () if prepare is None else tuple(prepare.named)
    roles = ColumnRoles(None if chosen is None else tuple(chosen), raw=prepare is not None)
    return _read(files, options, replace(roles, coded=coded), doing)


def read_for(
    model: Model, files: Sequence[str], options: ReadOptions, doing: Doing
) -> dict[str, SiteRows]:
    """Read the model's columns of new rows, with weights, groups and labels as options say."""
    options.check_model(model)
    roles = ColumnRoles(tuple(model.columns))
    if model.preprocessor is not None:
        coded = [c.name for c in model.preprocessor.columns if isinstance(c, Category)]
        roles = replace(roles, raw=True, coded=tuple(coded))
    return _read(files, options, roles, doing)


def _read(
    files: Sequence[str], options: ReadOptions, roles: ColumnRoles, doing: Doing
) -> dict[str, SiteRows]:
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
        return _open_sites(files, roles, doing)
    if options.site is not None and len(files) > 1:
        raise InputError(f"--site-column is for one file of all sites, not for {len(files)} files")

    def watch(source: FileSource) -> None:
        doing(f"reading {source.path.name}")

    roles = replace(
        roles,
        weight=options.weight,
        group=options.group,
        label=options.label,
        site=options.site,
    )
    return read_sites(named_sources(files, options.decimal), roles, watch)


def _are_site_files(files: Sequence[str]) -> bool:
    """Return whether site files were given, which do not go together with others."""
    tomls = [name for name in files if name.lower().endswith(".toml")]
    if tomls and len(tomls) < len(files):
        other = next(name for name in files if name not in tomls)
        raise InputError(f"{tomls[0]} is a site file and {other} is none; write one for it, too")
    return bool(tomls)


def _open_sites(files: Sequence[str], roles: ColumnRoles, doing: Doing) -> dict[str, SiteRows]:
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
    if not roles.raw:
        order = common_columns({name: each.columns for name, each in streams.items()})
        for name, stream in streams.items():
            streams[name] = stream if stream.columns == order else sites[name].opened(order)
    opened = {}
    for name, site in sites.items():
        doing(f"reading {name}")
        rows, columns = held(streams[name]), streams[name].columns
        ids = range(1, len(rows) + 1)
        opened[name] = SiteRows(name, rows, columns, ids, limits=site.limits.filters)
    return opened
