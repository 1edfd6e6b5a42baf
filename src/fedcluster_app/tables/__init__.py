"""Reading of rows from files, folders and databases, whole or in chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from

if TYPE_CHECKING:
    from fedcluster_app.tables.sources import open_rows

__all__ = ["open_rows"]

__getattr__ = names_from(__name__, {"open_rows": "sources"})
