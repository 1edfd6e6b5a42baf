"""What a source holds, column by column: read once, at the site, and told to nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedcluster.errors import InputError
from fedcluster.io._decimals import NAMES
from fedcluster.io._groups import GroupCounter, Persons
from fedcluster.io._matrices import Matrix
from fedcluster.io._reader import Reader, has_columns
from fedcluster.io._sources import FileSource, SqlSource, open_source
from fedcluster.io._tables import FilePart, Parted, error_prefix
from fedcluster.io._values import kind_of, missing_in

ROWS = 1 << 14
"""Rows that are read at a time."""


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """What one column holds.

    Parameters
    ----------
    name : str
        Its name.
    kind : str
        "number", "text", "date", "mixed" of numbers and text, or "empty"; "decimal commas" or
        "decimal points" where its numbers are not written as those of the source should be.
    missing : int
        Rows without a value.
    """

    name: str
    kind: str
    missing: int

    def __add__(self, more: ColumnProfile) -> ColumnProfile:
        kinds = {self.kind, more.kind} - {"empty"}
        kinds -= {"number"} if kinds & set(NAMES.values()) else set()
        kind = "mixed" if len(kinds) > 1 else next(iter(kinds), "empty")
        return ColumnProfile(self.name, kind, self.missing + more.missing)


@dataclass(frozen=True, slots=True)
class Profile:
    """What a source holds.

    Parameters
    ----------
    rows : int
        How many there are.
    columns : tuple of ColumnProfile
        In the order of the source.
    persons : Persons, optional
        Whose they are, where a column says so.
    """

    rows: int
    columns: tuple[ColumnProfile, ...]
    persons: Persons | None = None


def profile(source: FileSource | SqlSource, owner: str, group: str | None = None) -> Profile:
    """Read a source once and describe its columns.

    Parameters
    ----------
    source : FileSource or SqlSource
        Where the rows come from.
    owner : str
        How an error message begins, such as "site 'north'".
    group : str, optional
        The column that says whose row it is.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    with error_prefix(owner):
        tables = open_source(source, owner)
        if isinstance(tables, Matrix):
            return _of_matrix(tables)
        columns: dict[str, ColumnProfile] = {}
        tally, rows = GroupCounter(), 0
        for part in _parts(tables, owner, group):
            rows += part.rows.num_rows
            for name in part.rows.column_names:
                column = part.rows[name]
                found = ColumnProfile(name, kind_of(column, part.decimal), missing_in(column))
                columns[name] = columns[name] + found if name in columns else found
            if group is not None:
                tally.add(Reader(owner, part).groups(group))
        if not rows:
            raise InputError(f"{source} has no rows")
        return Profile(rows, tuple(columns.values()), tally.persons() if group else None)


def _parts(tables: list[Parted], owner: str, group: str | None) -> Iterator[FilePart]:
    texts = [] if group is None else [group]
    for table in tables:
        has_columns(owner, table.names, texts)
        yield from table.parts([name for name in table.names if name], ROWS, texts)


def _of_matrix(matrix: Matrix) -> Profile:
    missing = np.zeros(len(matrix.names), dtype=np.int64)
    size = max(1, (1 << 20) // len(missing))
    for start in range(0, matrix.n_rows, size):
        missing += np.isnan(matrix.block(slice(start, start + size), None)).sum(axis=0)
    columns = zip(matrix.names, missing.tolist(), strict=True)
    return Profile(matrix.n_rows, tuple(ColumnProfile(name, "number", n) for name, n in columns))
