"""The site's own filters on what leaves, and what they cost."""

from fedcluster.privacy._limits import MinClusterSize, MinRows

__all__ = ["MinClusterSize", "MinRows"]
