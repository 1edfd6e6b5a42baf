"""How good a clustering is, answered by sums; what a metric asks is a step like any other."""

from fedcluster.metrics.clusters import Clusters, Scatter, Spread
from fedcluster.metrics.fuzzy import FuzzyScatter
from fedcluster.metrics.indices import METRICS, Index
from fedcluster.metrics.internal import FuzzyObjective, Inertia
from fedcluster.metrics.mixture import MixtureLikelihood
from fedcluster.metrics.moments import Moments
from fedcluster.metrics.silhouettes import (
    SimplifiedSilhouette,
    SquaredSilhouette,
    pooled_silhouette,
)

__all__ = [
    "METRICS",
    "Clusters",
    "FuzzyObjective",
    "FuzzyScatter",
    "Index",
    "Inertia",
    "MixtureLikelihood",
    "Moments",
    "Scatter",
    "SimplifiedSilhouette",
    "Spread",
    "SquaredSilhouette",
    "pooled_silhouette",
]
