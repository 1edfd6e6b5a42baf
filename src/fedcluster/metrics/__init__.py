"""How good a clustering is, answered by sums; a metric is a step like any other."""

from fedcluster.metrics.holdings import Holdings
from fedcluster.metrics.internal import FuzzyObjective, Inertia

__all__ = ["FuzzyObjective", "Holdings", "Inertia"]
