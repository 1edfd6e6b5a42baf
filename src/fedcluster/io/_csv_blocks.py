"""Columns of numbers of a CSV file, read by several threads into rows that lie side by side.

Arrow reads a file into columns, which then are copied into rows: twice the memory, and time. Here
blocks of lines are read on their own, and each is put in its place while it is in the cache.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from fedcluster.core import Floats, Rows
from fedcluster.io._rows import in_order

BLOCK = 1 << 21
"""Bytes of a block."""
HEAD = 1 << 16
"""Bytes whose values show what the columns hold."""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines of a file that are read together.

    Parameters
    ----------
    start, size : int
        Where they begin in the file, and how many bytes they have.
    row : int
        How many rows lie before them.
    n_rows : int
        How many lines there are.
    """

    start: int
    size: int
    row: int
    n_rows: int


@dataclass(frozen=True, slots=True)
class BlockReader:
    """Reads blocks of a file of UTF-8 text as Arrow reads all of it.

    Parameters
    ----------
    path : Path
        The file.
    header_lines : int
        How many lines stand above the rows.
    read, parse, convert : ReadOptions, ParseOptions, ConvertOptions
        How Arrow reads lines of it; its columns are called by their places.
    """

    path: Path
    header_lines: int
    read: pyarrow.csv.ReadOptions
    parse: pyarrow.csv.ParseOptions
    convert: pyarrow.csv.ConvertOptions

    @property
    def columns(self) -> list[str]:
        """Return the columns that are read."""
        return list(self.convert.include_columns)

    @property
    def types(self) -> dict[str, pa.DataType]:
        """Return what columns hold, as far as it is known."""
        return dict(self.convert.column_types)

    def lines(self, block: Block) -> bytes:
        """Return the lines of a block as they are written."""
        with self.path.open("rb", buffering=0) as file:
            file.seek(block.start)
            return file.read(block.size)

    def table(self, lines: bytes) -> pa.Table:
        """Return the columns of lines."""
        options = self.read, self.parse, self.convert
        return pyarrow.csv.read_csv(pa.BufferReader(lines), *options)

    def ends_in_quotes(self, lines: bytes) -> bool:
        """Return whether the last line ends within quotes, as a value goes on in the next one.

        Within other lines Arrow tells: it finds fewer rows than lines.
        """
        last = lines[lines.rfind(b"\n", 0, -1) + 1 :]
        if b'"' not in last:
            return False
        record = next(csv.reader([last.decode()], delimiter=self.parse.delimiter))
        return "\n" in record[-1]

    def with_types(self, lines: bytes) -> BlockReader:
        """Return a reader that takes each column for what it holds in the first of some lines.

        Numbers are floats, whole ones too: if all values of a column can be read so, they are
        what Arrow would find in the whole file.
        """
        head = self.table(lines[: lines.rfind(b"\n", 0, HEAD) + 1] or lines)
        found = {field.name: field.type for field in head.schema} | self.types
        types = {name: pa.float64() if _is_number(kind) else kind for name, kind in found.items()}
        convert = pyarrow.csv.ConvertOptions(
            include_columns=self.columns,
            column_types=types,
            decimal_point=self.convert.decimal_point,
        )
        return replace(self, convert=convert)


def read_blocks(
    reader: BlockReader, values: Sequence[str], *, missing: bool, size: int = BLOCK
) -> tuple[Rows, pa.Table] | None:
    """Return columns as rows, and the other ones as Arrow holds them.

    Parameters
    ----------
    reader : BlockReader
        Reads blocks of the file.
    values : sequence of str
        The columns to put side by side, by their places in the file.
    missing : bool
        Whether values may be missing, or columns hold something else than numbers.
    size : int
        Bytes of a block at most, not more than Arrow is told.

    Returns
    -------
    X : ndarray of shape (n, d), float64
        The values, NaN where one is missing; of columns that hold no numbers it holds nothing.
    others : pyarrow.Table
        Those, and the columns besides the values.

    None of a file that is not as simple as that, or is wrong somewhere: it has blank lines or ends
    of lines in quotes, numbers that become text later on, values that are not finite, lines of
    unequal length.
    """
    try:
        blocks = _blocks(reader.path, reader.header_lines, size)
        return _placed(reader, blocks, values, missing=missing) if blocks else None
    except (pa.ArrowInvalid, csv.Error, UnicodeError, OSError):
        return None


def _placed(
    reader: BlockReader, blocks: Sequence[Block], values: Sequence[str], *, missing: bool
) -> tuple[Rows, pa.Table] | None:
    """Read blocks, each into its rows."""
    reader = reader.with_types(reader.lines(blocks[0]))
    numbers = [name for name in values if pa.types.is_float64(reader.types[name])]
    if not missing and len(numbers) < len(values):
        return None
    others = [name for name in reader.columns if name not in numbers]
    places = [values.index(name) for name in numbers]
    X = np.empty((blocks[-1].row + blocks[-1].n_rows, len(values)))

    def place(block: Block) -> pa.Table | None:
        lines = reader.lines(block)
        table = reader.table(lines)
        is_last = block is blocks[-1]
        if table.num_rows > block.n_rows or (not is_last and reader.ends_in_quotes(lines)):
            return None
        rows = X[block.row : block.row + table.num_rows]
        for j, name in zip(places, numbers, strict=True):
            column = table.column(name).to_numpy()
            if not _is_fine(column, missing=missing):
                return None
            rows[:, j] = column
        is_whole = table.num_rows == block.n_rows or is_last  # blank lines at the end
        return table.select(others) if is_whole else None

    tables = []
    for table in in_order(place, blocks, pa.cpu_count()):
        if table is None:
            return None
        tables.append(table)
    n_rows = blocks[-1].row + tables[-1].num_rows
    return X[:n_rows], pa.concat_tables(tables)


def _blocks(path: Path, header_lines: int, size: int) -> list[Block]:
    """Return the blocks of whole lines below the header, none where a line is longer than one."""
    blocks: list[Block] = []
    row, seen = 0, bytearray(size)
    with path.open("rb") as file:
        for _ in range(header_lines):
            file.readline()
        start = file.tell()
        while n := file.readinto(seen):
            whole = n if n < size else seen.rfind(b"\n") + 1
            if not whole:
                return []
            ends = np.frombuffer(seen, np.uint8, whole) == ord("\n")
            n_rows = int(np.count_nonzero(ends)) + (not ends[-1])
            blocks.append(Block(start, whole, row, n_rows))
            start, row = start + whole, row + n_rows
            file.seek(start)
    return blocks


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_float64(kind) or pa.types.is_null(kind))


def _is_fine(values: Floats, *, missing: bool) -> bool:
    """Return whether values are finite, or missing where they may be."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum()):
            return True
    return bool((np.isfinite(values) | np.isnan(values)).all()) if missing else False
