"""What fit and predict write beside the clusters of rows: their keys, and the tables themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster._refusals import refused
from fedcluster._site import SiteFile
from fedcluster.cli._naming import named_sources
from fedcluster.cli._options import JoinOptions, ValueOptions
from fedcluster.cli._reading import are_site_files
from fedcluster.core import Labels
from fedcluster.io._joining import OwnTable
from fedcluster.io._outputs import write_joined
from fedcluster.io._rows import SiteRows, chunks_of
from fedcluster.model import Model

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
