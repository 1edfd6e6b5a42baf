"""How good a clustering is, answered by sums; what a metric asks is a step like any other."""

from fedcluster.metrics.clusters import Clusters, Scatter, Spread
from fedcluster.metrics.external import Contingency, SiteARI
from fedcluster.metrics.fuzzy import FuzzyScatter
from fedcluster.metrics.holdings import Holdings
from fedcluster.metrics.indices import METRICS, Index
from fedcluster.metrics.internal import FuzzyObjective, Inertia
from fedcluster.metrics.known import knowledge_gap, normalised_gap
from fedcluster.metrics.mixture import ColumnSpread, MixtureLikelihood
from fedcluster.metrics.moments import Moments
from fedcluster.metrics.silhouettes import (
    SimplifiedSilhouette,
    SquaredSilhouette,
    pooled_silhouette,
)

__all__ = [
    "METRICS",
    "Clusters",
    "ColumnSpread",
    "Contingency",
    "FuzzyObjective",
    "FuzzyScatter",
    "Holdings",
    "Index",
    "Inertia",
    "MixtureLikelihood",
    "Moments",
    "Scatter",
    "SimplifiedSilhouette",
    "SiteARI",
    "Spread",
    "SquaredSilhouette",
    "knowledge_gap",
    "normalised_gap",
    "pooled_silhouette",
]
