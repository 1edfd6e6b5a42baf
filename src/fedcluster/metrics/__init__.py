"""Indices of how good a clustering is, from sums; what a metric asks is a step like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster._lazy import names_from

if TYPE_CHECKING:
    from fedcluster.metrics._clusters import Inertia
    from fedcluster.metrics._external import SiteARI, knowledge_gap, normalised_gap
    from fedcluster.metrics._fuzzy import FuzzyObjective, FuzzyScatter
    from fedcluster.metrics._indices import METRICS, Choosing, Index, Measurement
    from fedcluster.metrics._silhouettes import pooled_silhouette

__all__ = [
    "METRICS",
    "Choosing",
    "FuzzyObjective",
    "FuzzyScatter",
    "Index",
    "Inertia",
    "Measurement",
    "SiteARI",
    "knowledge_gap",
    "normalised_gap",
    "pooled_silhouette",
]

__getattr__ = names_from(  # column moments are used where nothing compiled is
    __name__,
    {
        "Inertia": "_clusters",
        "SiteARI knowledge_gap normalised_gap": "_external",
        "FuzzyObjective FuzzyScatter": "_fuzzy",
        "METRICS Choosing Index Measurement": "_indices",
        "pooled_silhouette": "_silhouettes",
    },
)
