"""Where a site's rows come from: a file of any kind that is read here, a folder, or a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fedcluster.core import RowStream
from fedcluster.errors import InputError
from fedcluster.io._csv_files import CSV_KINDS
from fedcluster.io._decimals import POINT
from fedcluster.io._disk_cache import CachedRows
from fedcluster.io._files import opened
from fedcluster.io._matrices import Matrix, MatrixRows, opened_matrix
from fedcluster.io._reader import Columns
from fedcluster.io._streams import ParquetRows, parquet_files
from fedcluster.io._tables import ParquetFile, Parted, error_prefix

Roles = Callable[[Sequence[str]], Columns]
Advise = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True)
class FileSource:
    """Rows in a file: CSV, Parquet or a folder of it, ``.npy``, ``.npz`` (sparse) or ``.h5ad``.

    Parameters
    ----------
    path : Path
        The file or the folder.
    names : tuple of str, optional
        Of ``.npy`` and ``.npz``, the names of the columns; by default x0, x1, ...
    matrix : str, optional
        Of ``.h5ad``, which matrix: "X" by default, "layers/NAME" or "obsm/NAME".
    decimal : {".", ","}, optional
        Of CSV, what the decimals begin with; by default a point.
    """

    path: Path
    names: tuple[str, ...] | None = None
    matrix: str | None = None
    decimal: str | None = None

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class SqlSource:
    """Rows that a database answers a query with.

    Parameters
    ----------
    url : str
        As SQLAlchemy writes it; ``${NAME}`` stands for a variable of the environment. It holds
        no password itself.
    query : str
        What is asked.
    password_file : Path, optional
        A file that holds the password.
    folder : Path
        Where a relative path of SQLite begins.
    """

    url: str
    query: str
    password_file: Path | None = None
    folder: Path = Path()

    def __str__(self) -> str:
        return self.url


class OpenRows(RowStream, Protocol):
    """Rows in chunks whose columns are known."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to cluster by."""
        ...


def opened_rows(
    source: FileSource | SqlSource, roles: Roles, *, owner: str, advise: Advise
) -> OpenRows:
    """Open a source.

    Parameters
    ----------
    source : FileSource or SqlSource
        Where the rows come from.
    roles : callable
        Which columns play which part, given the names of all.
    owner : str
        How an error message begins, such as "site 'north'".
    advise : callable
        What to do where columns are no numbers, given those that are.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    with error_prefix(owner):
        found = open_source(source, owner)
        if isinstance(found, Matrix):
            return MatrixRows(found, roles(found.names), owner=owner)
        columns = roles(found[0].names)
        if not isinstance(found[0], ParquetFile):
            return CachedRows(found[0], columns, owner=owner, advise=advise)
        return ParquetRows(
            [table.path for table in found],
            columns.values,
            columns.weight,
            group_column=columns.group,
            label_column=columns.label,
            owner=owner,
            advise=advise,
            raw=columns.raw,
            coded=columns.coded,
        )


def open_source(source: FileSource | SqlSource, owner: str) -> list[Parted] | Matrix:
    """Open a source and see what it is: one table or those of a folder, or a matrix."""
    if isinstance(source, SqlSource):
        from fedcluster.io._sql import Query

        return [Query(source.url, source.query, source.password_file, source.folder)]
    if source.decimal is not None and not source.path.name.lower().endswith(CSV_KINDS):
        raise InputError(f"decimal is for CSV, and {source.path} is none")
    matrix = opened_matrix(source.path, source.names, source.matrix)
    if matrix is not None:
        return matrix
    decimal = source.decimal or POINT
    return [opened(path, owner, decimal) for path in parquet_files(source.path)]
