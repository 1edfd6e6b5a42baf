"""One paper a file; each algorithm is a frozen dataclass of its hyper-parameters."""

from fedcluster.algorithms.breathing import ErrorAndUtility
from fedcluster.algorithms.fedavg import FedAvg
from fedcluster.algorithms.ffcm import FFCM
from fedcluster.algorithms.fkm import FKM
from fedcluster.algorithms.kfed import KFed
from fedcluster.algorithms.lloyd import Lloyd
from fedcluster.algorithms.summaries import SiteSummaries
from fedcluster.algorithms.variance_tree import VarianceTree

__all__ = [
    "FFCM",
    "FKM",
    "ErrorAndUtility",
    "FedAvg",
    "KFed",
    "Lloyd",
    "SiteSummaries",
    "VarianceTree",
]
