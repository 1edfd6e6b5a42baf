"""Compiled inner loops, which map arrays to arrays: the only modules that use numba."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from

if TYPE_CHECKING:
    from fedcluster.kernels._groups import partition, ward_merges
    from fedcluster.kernels._hard import hard_pass, hard_sums, nearest
    from fedcluster.kernels.fuzzy import fuzzy_cmeans as fuzzy_cmeans
    from fedcluster.kernels.fuzzy import fuzzy_pass, memberships
    from fedcluster.kernels.iteration import kmeans
    from fedcluster.kernels.seeding import kmeans_plusplus

__all__ = [
    "fuzzy_pass",
    "hard_pass",
    "hard_sums",
    "kmeans",
    "kmeans_plusplus",
    "memberships",
    "nearest",
    "partition",
    "ward_merges",
]

__getattr__ = names_from(  # lazy: loading a model must not import numba
    __name__,
    {
        "fuzzy_cmeans fuzzy_pass memberships": "fuzzy",
        "hard_pass hard_sums nearest": "_hard",
        "partition ward_merges": "_groups",
        "kmeans": "iteration",
        "kmeans_plusplus": "seeding",
    },
)
