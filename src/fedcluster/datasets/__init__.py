"""Data sets of the papers, split over sites."""

from fedcluster.datasets._clouds import (
    FFCM_CASES,
    ffcm_case,
    g2,
    pentagon,
    plane16,
    read_g2,
    triebe,
    variable_k,
)
from fedcluster.datasets._real import four_cancers, leaf_femnist, like_four_cancers
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
