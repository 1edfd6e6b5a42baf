"""Arrays in, arrays out: the compiled inner loops. The only home of numba."""

from fedcluster.kernels.fuzzy import FuzzyFit, FuzzyPass, fuzzy_cmeans, fuzzy_pass, memberships
from fedcluster.kernels.hard import HardPass, hard_pass, nearest
from fedcluster.kernels.leaves import Cuts, LeafSums, leaf_sums
from fedcluster.kernels.lloyd import LloydFit, kmeans, lloyd
from fedcluster.kernels.minibatch import MiniBatchFit, minibatch_epochs
from fedcluster.kernels.remembered import HardSums, hard_sums
from fedcluster.kernels.seeding import farthest_first, kmeans_plusplus

__all__ = [
    "Cuts",
    "FuzzyFit",
    "FuzzyPass",
    "HardPass",
    "HardSums",
    "LeafSums",
    "LloydFit",
    "MiniBatchFit",
    "farthest_first",
    "fuzzy_cmeans",
    "fuzzy_pass",
    "hard_pass",
    "hard_sums",
    "kmeans",
    "kmeans_plusplus",
    "leaf_sums",
    "lloyd",
    "memberships",
    "minibatch_epochs",
    "nearest",
]
