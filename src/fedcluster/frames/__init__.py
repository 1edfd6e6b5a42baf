"""Rows in memory: arrays, data frames and tables, and what their columns hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from

if TYPE_CHECKING:
    from fedcluster.frames.reader import ColumnRoles
    from fedcluster.frames.rows import FileSource, WarehouseSource

__all__ = ["ColumnRoles", "FileSource", "WarehouseSource"]

__getattr__ = names_from(  # lazy: arrays in memory must not import pyarrow
    __name__, {"ColumnRoles": "reader", "FileSource WarehouseSource": "rows"}
)
