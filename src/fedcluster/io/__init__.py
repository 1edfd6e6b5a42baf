"""Read rows from files, folders and databases, whole or in chunks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcluster.io._matrices import MatrixRows, MemoryMap
    from fedcluster.io._reader import ColumnRoles
    from fedcluster.io._rows import SiteRows
    from fedcluster.io._sources import FileSource, SqlSource, open_rows
    from fedcluster.io._table_rows import ParquetRows

__all__ = [
    "ColumnRoles",
    "FileSource",
    "MatrixRows",
    "MemoryMap",
    "ParquetRows",
    "SiteRows",
    "SqlSource",
    "open_rows",
]

_MODULES = {
    "ColumnRoles": "_reader",
    "FileSource": "_sources",
    "MatrixRows": "_matrices",
    "MemoryMap": "_matrices",
    "ParquetRows": "_table_rows",
    "SiteRows": "_rows",
    "SqlSource": "_sources",
    "open_rows": "_sources",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for: arrays in memory need none of pyarrow."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
