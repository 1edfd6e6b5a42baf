"""Answer of a database that is read once and kept, so that every later pass sees the same rows."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import pyarrow as pa

from fedcluster.io._reader import Table, TablePart

BATCH = 8192
"""Rows that are kept together."""


class HeldTable:
    """Rows of a table, all columns, on disk in a file without a name.

    Parameters
    ----------
    table : Table
        What is read, now and completely.

    Attributes
    ----------
    digest : str
        A hash of the names, the values and the order of the rows.

    Examples
    --------
    >>> from fedcluster.io._reader import ArrowTable
    >>> rows = pa.table({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "z"]})
    >>> held = HeldTable(ArrowTable(Path("here"), rows))
    >>> [part.rows.to_pydict() for part in held.parts(["b"], 2)]
    [{'b': ['x', 'y']}, {'b': ['z']}]
    """

    decimal = None
    fingerprint = None  # what is kept does not change

    def __init__(self, table: Table) -> None:
        self.path: Path = table.path
        self.names = tuple(table.names)
        self._file = tempfile.TemporaryFile(prefix="fedcluster-")  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._places: list[tuple[int, int]] = []
        digest = sha256(repr(self.names).encode())
        for part in table.parts(self.names, BATCH):
            content = _bytes_of(part.rows)
            digest.update(content)
            self._places.append((self._file.tell(), len(content)))
            self._file.write(content)
        self._file.flush()
        self.digest = digest.hexdigest()

    def parts(
        self, columns: Sequence[str], n_rows: int, texts: Sequence[str] = ()
    ) -> Iterator[TablePart]:
        """Read columns by name, at most ``n_rows`` rows at a time."""
        start = 0
        for place, size in self._places:
            content = os.pread(self._file.fileno(), size, place)  # of several passes at a time
            with pa.ipc.open_stream(content) as stream:
                rows = stream.read_all().select(list(columns))
            for first in range(0, rows.num_rows, n_rows):
                few = rows.slice(first, n_rows)
                yield TablePart(self, start, few)
                start += few.num_rows

    def where(self, row: int) -> str:
        """Return where a row, counted from 0, is found."""
        return f"row {row + 1} of {self.path}"


def _bytes_of(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    content: bytes = sink.getvalue().to_pybytes()
    return content
