"""Filters of a site on what leaves, and the persons that they count."""

from fedcluster.privacy._limits import MinClusterSize, MinRows

__all__ = ["MinClusterSize", "MinRows"]
