"""Protection of a site: groups of rows, or filters on what leaves."""

from fedcluster.privacy._groups import Grouping
from fedcluster.privacy._limits import Groups, MinClusterSize, MinRows

__all__ = ["Grouping", "Groups", "MinClusterSize", "MinRows"]
