"""Algorithms, one paper per file; each is a frozen dataclass of its hyper-parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from

if TYPE_CHECKING:
    from fedcluster.algorithms._fedavg import FedAvg
    from fedcluster.algorithms._ffcm import FFCM
    from fedcluster.algorithms._incomplete import IncompleteKMeans
    from fedcluster.algorithms._kfed import KFed
    from fedcluster.algorithms._lloyd import Lloyd, SphericalKMeans
    from fedcluster.algorithms.fkm import FKM
    from fedcluster.algorithms.gaussian_mixture import GaussianMixture, MergedMixture
    from fedcluster.algorithms.merging import means, total
    from fedcluster.algorithms.private import RelativeLloyd
    from fedcluster.algorithms.summaries import SiteSummaries
    from fedcluster.algorithms.trimmed import TrimmedLloyd
    from fedcluster.algorithms.variance_tree import VarianceTree

__all__ = [
    "FFCM",
    "FKM",
    "FedAvg",
    "GaussianMixture",
    "IncompleteKMeans",
    "KFed",
    "Lloyd",
    "MergedMixture",
    "RelativeLloyd",
    "SiteSummaries",
    "SphericalKMeans",
    "TrimmedLloyd",
    "VarianceTree",
    "means",
    "total",
]

__getattr__ = names_from(  # lazy: a fit imports only the algorithm that it uses
    __name__,
    {
        "FedAvg": "_fedavg",
        "FFCM": "_ffcm",
        "IncompleteKMeans": "_incomplete",
        "KFed": "_kfed",
        "Lloyd SphericalKMeans": "_lloyd",
        "FKM": "fkm",
        "GaussianMixture MergedMixture": "gaussian_mixture",
        "means total": "merging",
        "RelativeLloyd": "private",
        "SiteSummaries": "summaries",
        "TrimmedLloyd": "trimmed",
        "VarianceTree": "variance_tree",
    },
)
