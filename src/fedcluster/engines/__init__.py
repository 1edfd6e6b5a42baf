"""Engines carry tasks to sites and answers back."""

from fedcluster.engines._local import LocalEngine, PooledEngine
from fedcluster.engines._recorded import RecordedEngine
from fedcluster.engines._remote import RemoteEngine

__all__ = ["LocalEngine", "PooledEngine", "RecordedEngine", "RemoteEngine"]
