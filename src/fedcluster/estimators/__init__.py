"""Clustering over sites under scikit-learn's contract."""

from fedcluster.estimators._clusterers import FederatedFuzzyCMeans, FederatedKMeans, select_k
from fedcluster.estimators._mixtures import FederatedGaussianMixture

__all__ = ["FederatedFuzzyCMeans", "FederatedGaussianMixture", "FederatedKMeans", "select_k"]
