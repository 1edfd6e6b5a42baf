"""The site's own filters on what leaves, and what they cost."""

from fedcluster.privacy.limits import MinClusterSize, MinRows

__all__ = ["MinClusterSize", "MinRows"]
