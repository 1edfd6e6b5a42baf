"""Site files in the place of data files: each site with its own source, columns and limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster._site import SiteFile, held
from fedcluster.client import Client
from fedcluster.core import Data, Rows, RowStream
from fedcluster.errors import InputError
from fedcluster.io._decimals import POINT
from fedcluster.io._files import common_columns
from fedcluster.io._sources import OpenRows


@dataclass(frozen=True, slots=True, eq=False)
class OpenSite:
    """A site that was opened from its file, with what a fit writes of it.

    Parameters
    ----------
    columns : tuple of str
        The columns that are clustered by.
    client : Client
        The site as it answers tasks.
    """

    columns: tuple[str, ...]
    client: Client
    weights: None = None
    groups: None = None
    ignored: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.client.rows)

    @property
    def numbers(self) -> range:
        """The number of each row in the source, from 1."""
        return range(1, len(self) + 1)

    @property
    def data(self) -> Data:
        """All rows at once, and all that is known of them."""
        rows = self.client.rows
        return rows if isinstance(rows, Data) else rows.load()

    @property
    def X(self) -> Rows:
        """All rows at once."""
        return self.data.X

    def chunks(self) -> Iterable[Data]:
        """The same in parts, where they are many."""
        return parts(self.client.rows)

    @property
    def dtype(self) -> np.dtype[Any]:
        """What rows are read as."""
        rows = self.client.rows
        return rows.X.dtype if isinstance(rows, Data) else next(rows.chunks()).X.dtype


def parts(rows: Data | RowStream) -> Iterable[Data]:
    """Rows chunk by chunk, where they come so."""
    return [rows] if isinstance(rows, Data) else rows.chunks()


def are_site_files(files: Sequence[str]) -> bool:
    """Whether site files were given, which do not go together with others."""
    tomls = [name for name in files if name.lower().endswith(".toml")]
    if tomls and len(tomls) < len(files):
        other = next(name for name in files if name not in tomls)
        raise InputError(f"{tomls[0]} is a site file and {other} is none; write one for it, too")
    return bool(tomls)


def said_by_site_files(decimal: str, *columns: str | None) -> None:
    """Refuse options whose part a site file plays."""
    if decimal != POINT or any(name is not None for name in columns):
        raise InputError(
            "--site-column, --weight-column, --group-column and --decimal are what a site file "
            "says itself"
        )


def one_file_of_all(site_column: str | None, files: Sequence[Any]) -> None:
    """Refuse a column with the sites' names where each site has a file of its own."""
    if site_column is not None and len(files) > 1:
        raise InputError(f"--site-column is for one file of all sites, not for {len(files)} files")


def open_sites(
    files: Sequence[str],
    columns: Sequence[str] | None,
    doing: Callable[[str], None],
    *,
    raw: bool = False,
) -> dict[str, OpenSite]:
    """Open the sites of site files; rows of databases are read.

    Parameters
    ----------
    files : sequence of str
        The site files.
    columns : sequence of str, optional
        The columns to cluster by; by default all, which must then be the same at every site.
    doing : callable
        Told what takes so long.
    raw : bool
        Whether the rows are still to be prepared, which finds the columns that all sites have.

    Raises
    ------
    InputError
        With site, column and what to do.
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
    rows = {name: site.opened(columns, raw=raw) for name, site in sites.items()}
    if not raw:
        rows = _in_one_order(sites, rows)
    opened = {}
    for name, site in sites.items():
        doing(f"reading {name}")
        client = Client(name, held(rows[name]), site.limits.filters)
        opened[name] = OpenSite(rows[name].columns, client)
    return opened


def _in_one_order(
    sites: Mapping[str, SiteFile], rows: Mapping[str, OpenRows]
) -> dict[str, OpenRows]:
    """The rows with the first site's order of columns."""
    order = tuple(common_columns({name: each.columns for name, each in rows.items()}))
    return {
        name: each if each.columns == order else sites[name].opened(order)
        for name, each in rows.items()
    }
