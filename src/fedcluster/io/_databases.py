"""Tables of databases that are files: SQLite and DuckDB, opened only to read."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from fedcluster.errors import InputError
from fedcluster.io._reader import ArrowTable
from fedcluster.io._rows import readable

TABLES = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite~_%' "
    "ESCAPE '~' ORDER BY name"
)


def open_sqlite(path: Path, table: str | None = None) -> ArrowTable:
    """Read a table or a view of an SQLite file, by default its only one.

    Raises
    ------
    InputError
        If it is no SQLite file, or has no such table.
    """
    with readable(path):
        path.open("rb").close()
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            name = _chosen([name for (name,) in database.execute(TABLES)], table, path)
            answer = database.execute(f"SELECT * FROM {_quoted(name)}")
            names = [str(each[0]) for each in answer.description]
            rows = answer.fetchall()
    except sqlite3.Error as error:
        raise InputError(f"{path} cannot be read as SQLite: {error}") from error
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return ArrowTable(path, pa.Table.from_arrays([_column(cells) for cells in columns], names))


def open_duckdb(path: Path, table: str | None = None) -> ArrowTable:
    """Read a table or a view of a DuckDB file, by default its only one.

    Raises
    ------
    InputError
        If it is no DuckDB file, has no such table, or if the extra ``duckdb`` is not installed.
    """
    try:
        import duckdb  # an optional extra
    except ImportError as error:
        raise InputError(f"reading {path} needs pip install 'fedcluster[duckdb]'") from error
    with readable(path):
        path.open("rb").close()
    try:
        with closing(duckdb.connect(str(path), read_only=True)) as database:
            held = database.execute("SHOW TABLES").fetchall()
            name = _chosen([each for (each,) in held], table, path)
            rows = database.sql(f"SELECT * FROM {_quoted(name)}").to_arrow_table()
            return ArrowTable(path, rows)
    except duckdb.Error as error:
        first = str(error).partition("\n")[0]
        raise InputError(f"{path} cannot be read as DuckDB: {first}") from error


def _chosen(names: Sequence[str], wanted: str | None, path: Path) -> str:
    """Return the table that is asked for, or the only one."""
    have = ", ".join(names) or "none"
    if wanted is not None and wanted not in names:
        raise InputError(f"{path} has no table {wanted!r}; it has {have}")
    if wanted is None and len(names) != 1:
        raise InputError(f"{path} has the tables {have}; name one, as in {path.name}:table=NAME")
    return names[0] if wanted is None else wanted


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _column(cells: Sequence[Any]) -> pa.Array:
    """Return a column, whose cells SQLite lets be of any kind; of many kinds, as text."""
    try:
        return pa.array(cells)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        if all(cell is None or isinstance(cell, int | float) for cell in cells):
            return pa.array([None if cell is None else float(cell) for cell in cells])
        return pa.array([None if cell is None else str(cell) for cell in cells])
