"""What fit and predict write beside the clusters of rows: their keys, and the tables themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.cli._naming import named_sources
from fedcluster.cli._options import JoinOptions, ValueOptions
from fedcluster.cli._reading import are_site_files
from fedcluster.core import Labels
from fedcluster.errors import InputError
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
        The tables by site, or one of all sites.
    id_column : str, optional
        The column that holds the rows' keys.
    append : bool, default=False
        Whether the tables are written again with the clusters.
    """

    own: Mapping[str, OwnTable] = field(default_factory=dict)
    id_column: str | None = None
    append: bool = False

    def keys(self, rows: SiteRows) -> tuple[str, Any] | None:
        """Return the name of the column of keys, and the key of each row, if that was asked."""
        if self.id_column is None:
            return None
        own = self._own(rows.name).read(rows.row_ids, [self.id_column])
        return self.id_column, own[self.id_column]

    def write(self, folder: Path, file: str, rows: SiteRows, model: Model, labels: Labels) -> None:
        """Write a site's table with the clusters of its rows, if that was asked."""
        if self.append:
            (folder / TABLES).mkdir(exist_ok=True)
            table = self._own(rows.name).read(rows.row_ids)
            write_joined(folder / self.file_of(file), table, _appended(rows, model, labels))

    def files(self, labels: Sequence[str]) -> list[str]:
        """Return the tables that are written beside files of labels."""
        return list(map(self.file_of, labels)) if self.append else []

    @staticmethod
    def file_of(labels: str) -> str:
        """Return the file of a site's table, given that of its labels."""
        return f"{TABLES}/{Path(labels).name}"

    def _own(self, site: str) -> OwnTable:
        return self.own[site] if site in self.own else next(iter(self.own.values()))


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
        If a file cannot be read or has no such column, or if site files were given.
    """
    if options.id_column is None and not options.append:
        return Joining()
    if are_site_files(files):
        raise InputError(
            "--id-column and --append are for files of rows, and a site file is none; "
            "give the file that it names"
        )
    wanted = () if options.id_column is None else (options.id_column,)
    own = {
        site: OwnTable.open(source, str(source) if of_all else f"site {site!r}", wanted)
        for site, source in named_sources(files, values.decimal, values.encoding).items()
    }
    return Joining(own, options.id_column, options.append)


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
