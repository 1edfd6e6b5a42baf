"""Engines carry tasks to sites and answers back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster._lazy import names_from

if TYPE_CHECKING:
    from fedcluster.engines._local import LocalEngine, PooledEngine
    from fedcluster.engines._recorded import RecordedEngine
    from fedcluster.engines._remote import RemoteEngine

__all__ = ["LocalEngine", "PooledEngine", "RecordedEngine", "RemoteEngine"]

__getattr__ = names_from(  # a simulation needs no messages
    __name__,
    {
        "LocalEngine PooledEngine": "_local",
        "RecordedEngine": "_recorded",
        "RemoteEngine": "_remote",
    },
)
