"""Clustering over sites under scikit-learn's contract."""

from fedcluster.estimators.fuzzy import FederatedFuzzyCMeans
from fedcluster.estimators.kmeans import FederatedKMeans

__all__ = ["FederatedFuzzyCMeans", "FederatedKMeans"]
