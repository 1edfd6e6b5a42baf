"""Choice of the number of clusters: every k in the same rounds, every index, and a verdict."""

from fedcluster.metrics.indices import INDICES
from fedcluster.selection.verdict import Rule, Selection

__all__ = ["INDICES", "Rule", "Selection"]
