"""Indices of the quality of a clustering, from sums; a metric is a step like any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from

if TYPE_CHECKING:
    from fedcluster.metrics.clusters import Inertia
    from fedcluster.metrics.external import Contingency as Contingency
    from fedcluster.metrics.indices import CHOOSING as CHOOSING
    from fedcluster.metrics.indices import INDICES as INDICES
    from fedcluster.metrics.indices import METRICS, Index
    from fedcluster.metrics.leaves import LeafMoments as LeafMoments
    from fedcluster.metrics.objectives import FuzzyObjective
    from fedcluster.metrics.objectives import nearest_present as nearest_present

__all__ = ["METRICS", "FuzzyObjective", "Index", "Inertia"]

__getattr__ = names_from(  # lazy: column moments are also used without numba
    __name__,
    {
        "Inertia": "clusters",
        "Contingency": "external",
        "LeafMoments": "leaves",
        "CHOOSING INDICES METRICS Index": "indices",
        "FuzzyObjective nearest_present": "objectives",
    },
)
