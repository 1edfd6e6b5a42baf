"""Compiled inner loops, from arrays to arrays: the only home of numba."""

from fedcluster.kernels._fuzzy import FuzzyFit, FuzzyPass, fuzzy_cmeans, fuzzy_pass, memberships
from fedcluster.kernels._hard import HardPass, hard_pass, hard_sums, nearest
from fedcluster.kernels._lloyd import LloydFit, kmeans, lloyd
from fedcluster.kernels._minibatch import MiniBatchFit, minibatch_epochs
from fedcluster.kernels._seeding import farthest_first, kmeans_plusplus
from fedcluster.kernels._sweep import HardSums

__all__ = [
    "FuzzyFit",
    "FuzzyPass",
    "HardPass",
    "HardSums",
    "LloydFit",
    "MiniBatchFit",
    "farthest_first",
    "fuzzy_cmeans",
    "fuzzy_pass",
    "hard_pass",
    "hard_sums",
    "kmeans",
    "kmeans_plusplus",
    "lloyd",
    "memberships",
    "minibatch_epochs",
    "nearest",
]
