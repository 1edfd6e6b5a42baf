"""The papers' data, split over sites: one paper a file."""

from fedcluster.datasets.fedavg import triebe
from fedcluster.datasets.ffcm import FFCM_CASES, ffcm_case
from fedcluster.datasets.fkm import plane16, variable_k
from fedcluster.datasets.split import SplitRows

__all__ = ["FFCM_CASES", "SplitRows", "ffcm_case", "plane16", "triebe", "variable_k"]
