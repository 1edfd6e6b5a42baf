"""Clustering over sites with scikit-learn's interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from

if TYPE_CHECKING:
    from fedcluster.estimators._clusterers import FederatedFuzzyCMeans, FederatedKMeans, select_k
    from fedcluster.estimators._mixtures import FederatedGaussianMixture

__all__ = ["FederatedFuzzyCMeans", "FederatedGaussianMixture", "FederatedKMeans", "select_k"]

__getattr__ = names_from(  # lazy: a fit of k-means must not import the mixtures
    __name__,
    {
        "FederatedFuzzyCMeans FederatedKMeans select_k": "_clusterers",
        "FederatedGaussianMixture": "_mixtures",
    },
)
