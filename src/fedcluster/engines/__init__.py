"""Engines carry tasks to sites and answers back."""

from fedcluster.engines._local import LocalEngine
from fedcluster.engines._pooled import PooledEngine

__all__ = ["LocalEngine", "PooledEngine"]
