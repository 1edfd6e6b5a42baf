"""Engines carry tasks to sites and answers back."""

from fedcluster.engines._local import CrowdEngine, LocalEngine
from fedcluster.engines.relay import Relay

__all__ = ["CrowdEngine", "LocalEngine", "Relay"]
