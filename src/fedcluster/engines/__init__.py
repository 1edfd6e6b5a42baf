"""Engines carry tasks to sites and answers back."""

from fedcluster.engines.crowd import CrowdEngine
from fedcluster.engines.local import LocalEngine

__all__ = ["CrowdEngine", "LocalEngine"]
