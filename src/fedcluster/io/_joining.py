"""The tables that rows were read from, as they are written: clusters are joined back to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedcluster.errors import InputError
from fedcluster.io._cells import POINT
from fedcluster.io._columns import has_columns
from fedcluster.io._matrices import Matrix
from fedcluster.io._reader import Table, WholeTable
from fedcluster.io._rows import FileSource, readable
from fedcluster.io._sources import names_of, open_source
from fedcluster.io._spreadsheets import CsvFile


@dataclass(frozen=True, slots=True, eq=False)
class OwnTable:
    """The table that rows of a site were read from, opened before they were.

    Parameters
    ----------
    source : FileSource
        Its file.
    opened : list of Table or Matrix
        The table, of which not more than the names need be in memory.
    id_column : str, optional
        The column that holds the rows' keys.
    """

    source: FileSource
    opened: list[Table] | Matrix
    id_column: str | None = None

    @classmethod
    def open(cls, source: FileSource, owner: str, id_column: str | None = None) -> OwnTable:
        """Open a file, or a folder of Parquet files, that has a column of keys if one is named.

        Raises
        ------
        InputError
            If it cannot be read, or lacks the column.
        """
        own = cls(source, open_source(source, owner), id_column)
        has_columns(owner, own.names, () if id_column is None else (id_column,))
        return own

    @property
    def dialect(self) -> tuple[str, str]:
        """Return what parts two values of a text file and what its decimals begin with."""
        first = None if isinstance(self.opened, Matrix) else self.opened[0]
        return (first.delimiter, first.decimal) if isinstance(first, CsvFile) else (",", POINT)

    def keys(self, rows: NDArray[np.int64] | range) -> tuple[str, pa.ChunkedArray] | None:
        """Return the name of the column of keys, and the key of each row; None without one."""
        if self.id_column is None:
            return None
        return self.id_column, self.read(rows, [self.id_column])[self.id_column]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all columns, those beside a matrix too."""
        beside = self.opened.beside if isinstance(self.opened, Matrix) else ()
        return (*names_of(self.opened), *beside)

    def read(self, rows: NDArray[np.int64] | range, names: Sequence[str] | None = None) -> pa.Table:
        """Read columns of some rows as they are written, by default all columns.

        Parameters
        ----------
        rows : ndarray of shape (n,) or range
            The numbers of the rows in the file, from 1.
        names : sequence of str, optional
            The columns.

        Raises
        ------
        InputError
            If the file has changed since it was opened.
        """
        wanted = list(dict.fromkeys(self.names if names is None else names))
        table = self._all(wanted)
        if len(rows) and int(np.max(rows)) > table.num_rows:
            raise InputError(f"{self.source} has lost rows since they were read; start again")
        every = len(rows) == table.num_rows and isinstance(rows, range)
        return table if every else table.take(np.asarray(rows, np.int64) - 1)

    def _all(self, wanted: Sequence[str]) -> pa.Table:
        if isinstance(self.opened, Matrix):
            return _of_matrix(self.opened, wanted)
        parts = []
        for table in self.opened:
            assert isinstance(table, WholeTable)
            if table.fingerprint is not None:
                table.fingerprint.check()
            with readable(table.path):
                parts.append(table.read(wanted, wanted).rows)
        return _one_below_the_other(parts)


def _one_below_the_other(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of several files; where they hold a column as other kinds, as texts."""
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except pa.ArrowTypeError:
        texts = pa.schema([(name, pa.string()) for name in parts[0].column_names])
        return pa.concat_tables([part.cast(texts) for part in parts])


def _of_matrix(matrix: Matrix, wanted: Sequence[str]) -> pa.Table:
    """Return columns of a matrix, and of what is beside it."""
    matrix.check()
    every, place = slice(None), {name: j for j, name in enumerate(matrix.names)}
    inside = [name for name in wanted if name in place]
    dense = matrix.dense(every, np.array([place[name] for name in inside], np.intp))
    columns: dict[str, Any] = dict(zip(inside, dense.T, strict=True))
    columns |= {name: matrix.beside[name](every) for name in wanted if name not in place}
    return pa.table({name: pa.array(columns[name]) for name in wanted})
