"""Read rows from files, folders and databases, whole or in chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster._lazy import names_from

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

__getattr__ = names_from(  # arrays in memory need none of pyarrow
    __name__,
    {
        "ColumnRoles": "_reader",
        "FileSource SqlSource open_rows": "_sources",
        "MatrixRows MemoryMap": "_matrices",
        "ParquetRows": "_table_rows",
        "SiteRows": "_rows",
    },
)
