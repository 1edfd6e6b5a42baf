"""Choice of the number of clusters: every k in the same rounds, every index, and a verdict."""

from fedcluster.metrics._indices import INDICES, JUDGES
from fedcluster.selection._gap import gaps
from fedcluster.selection._sweep import Sweep, clustered_by, select_k_plan, sweep
from fedcluster.selection._verdict import Rule, Selection

__all__ = [
    "INDICES",
    "JUDGES",
    "Rule",
    "Selection",
    "Sweep",
    "clustered_by",
    "gaps",
    "select_k_plan",
    "sweep",
]
