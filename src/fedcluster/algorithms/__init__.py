"""Algorithms, one paper a file; each is a frozen dataclass of its hyper-parameters."""

from fedcluster.algorithms._fedavg import FedAvg
from fedcluster.algorithms._ffcm import FFCM
from fedcluster.algorithms._fkm import FKM
from fedcluster.algorithms._gaussian_mixture import GaussianMixture
from fedcluster.algorithms._incomplete import IncompleteKMeans
from fedcluster.algorithms._kfed import KFed
from fedcluster.algorithms._lloyd import Lloyd
from fedcluster.algorithms._merging import means, total
from fedcluster.algorithms._relative_lloyd import RelativeLloyd
from fedcluster.algorithms._spherical import SphericalKMeans
from fedcluster.algorithms._summaries import SiteSummaries
from fedcluster.algorithms._trimmed import TrimmedLloyd
from fedcluster.algorithms._variance_tree import VarianceTree

__all__ = [
    "FFCM",
    "FKM",
    "FedAvg",
    "GaussianMixture",
    "IncompleteKMeans",
    "KFed",
    "Lloyd",
    "RelativeLloyd",
    "SiteSummaries",
    "SphericalKMeans",
    "TrimmedLloyd",
    "VarianceTree",
    "means",
    "total",
]
