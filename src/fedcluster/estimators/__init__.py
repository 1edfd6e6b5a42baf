"""Clustering over sites with scikit-learn's interface."""

from fedcluster.estimators._clusterers import FederatedFuzzyCMeans, FederatedKMeans, select_k
from fedcluster.estimators._mixtures import FederatedGaussianMixture

__all__ = ["FederatedFuzzyCMeans", "FederatedGaussianMixture", "FederatedKMeans", "select_k"]
