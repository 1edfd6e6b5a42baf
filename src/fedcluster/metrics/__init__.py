"""Indices of how good a clustering is, from sums; what a metric asks is a step like any other."""

from fedcluster.metrics._clusters import Clusters, Inertia, Scatter, Spread
from fedcluster.metrics._external import Contingency, SiteARI, knowledge_gap, normalised_gap
from fedcluster.metrics._fuzzy import FuzzyObjective, FuzzyScatter
from fedcluster.metrics._indices import METRICS, Choosing, Index, Measurement
from fedcluster.metrics._mixture import ColumnSpread, MixtureLikelihood
from fedcluster.metrics._moments import Moments, SiteSize
from fedcluster.metrics._silhouettes import (
    SimplifiedSilhouette,
    SquaredSilhouette,
    pooled_silhouette,
)

__all__ = [
    "METRICS",
    "Choosing",
    "Clusters",
    "ColumnSpread",
    "Contingency",
    "FuzzyObjective",
    "FuzzyScatter",
    "Index",
    "Inertia",
    "Measurement",
    "MixtureLikelihood",
    "Moments",
    "Scatter",
    "SimplifiedSilhouette",
    "SiteARI",
    "SiteSize",
    "Spread",
    "SquaredSilhouette",
    "knowledge_gap",
    "normalised_gap",
    "pooled_silhouette",
]
