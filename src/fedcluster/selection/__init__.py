"""How many clusters are there? Every k in the same rounds, every index of each, and a verdict."""

from fedcluster.selection.choosing import choosing, clustered_by
from fedcluster.selection.gap import gaps
from fedcluster.selection.sweep import Sweep, sweep
from fedcluster.selection.verdict import INDICES, JUDGES, PICKS, RULES, Rule, Selection

__all__ = [
    "INDICES",
    "JUDGES",
    "PICKS",
    "RULES",
    "Rule",
    "Selection",
    "Sweep",
    "choosing",
    "clustered_by",
    "gaps",
    "sweep",
]
