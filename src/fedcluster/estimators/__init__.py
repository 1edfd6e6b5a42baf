"""Clustering over sites under scikit-learn's contract."""

from fedcluster.estimators.fuzzy import FederatedFuzzyCMeans
from fedcluster.estimators.kmeans import FederatedKMeans
from fedcluster.estimators.select import select_k, selecting

__all__ = ["FederatedFuzzyCMeans", "FederatedKMeans", "select_k", "selecting"]
