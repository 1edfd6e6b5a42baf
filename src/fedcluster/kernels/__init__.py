"""Compiled inner loops, from arrays to arrays: the only home of numba."""

from fedcluster.kernels._fuzzy import FuzzyFit, fuzzy_cmeans, fuzzy_pass, memberships
from fedcluster.kernels._hard import hard_pass, hard_sums, nearest
from fedcluster.kernels._lloyd import LloydFit, kmeans
from fedcluster.kernels._seeding import kmeans_plusplus

__all__ = [
    "FuzzyFit",
    "LloydFit",
    "fuzzy_cmeans",
    "fuzzy_pass",
    "hard_pass",
    "hard_sums",
    "kmeans",
    "kmeans_plusplus",
    "memberships",
    "nearest",
]
