"""Clustering over sites under scikit-learn's contract."""

from fedcluster.estimators._fuzzy import FederatedFuzzyCMeans
from fedcluster.estimators._kmeans import FederatedKMeans
from fedcluster.estimators._select import select_k

__all__ = ["FederatedFuzzyCMeans", "FederatedKMeans", "select_k"]
