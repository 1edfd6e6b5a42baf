"""The papers' data, split over sites."""

from fedcluster.datasets._cancers import four_cancers, like_four_cancers
from fedcluster.datasets._clouds import FFCM_CASES, ffcm_case, pentagon, triebe
from fedcluster.datasets._femnist import leaf_femnist
from fedcluster.datasets._fkm import plane16, variable_k
from fedcluster.datasets._g2 import g2, read_g2
from fedcluster.datasets._split import SplitRows

__all__ = [
    "FFCM_CASES",
    "SplitRows",
    "ffcm_case",
    "four_cancers",
    "g2",
    "leaf_femnist",
    "like_four_cancers",
    "pentagon",
    "plane16",
    "read_g2",
    "triebe",
    "variable_k",
]
