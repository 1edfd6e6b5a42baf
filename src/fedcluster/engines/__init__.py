"""Engines carry tasks to sites and answers back."""

from fedcluster.engines._local import LocalEngine, PooledEngine

__all__ = ["LocalEngine", "PooledEngine"]
