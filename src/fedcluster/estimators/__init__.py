"""Clustering over sites under scikit-learn's contract."""

from fedcluster.estimators._clusterers import FederatedFuzzyCMeans, FederatedKMeans, select_k

__all__ = ["FederatedFuzzyCMeans", "FederatedKMeans", "select_k"]
