"""Reading of rows from files, folders and databases, whole or in chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from

if TYPE_CHECKING:
    from fedcluster.io.reader import ColumnRoles
    from fedcluster.io.rows import FileSource, WarehouseSource
    from fedcluster.io.sources import open_rows

__all__ = ["ColumnRoles", "FileSource", "WarehouseSource", "open_rows"]

__getattr__ = names_from(  # arrays in memory need none of pyarrow
    __name__,
    {"ColumnRoles": "reader", "FileSource WarehouseSource": "rows", "open_rows": "sources"},
)
