"""Compositions of runs: the default way to cluster, and its evaluation.

The loss of federated clustering against pooled clustering lies in the start, not in the sums. So:
a good start from few rounds, many runs from it in the same rounds (`race`), and, if asked for, a
search that goes on from the winner (`breathe`).
"""

from fedcluster._specifications import FitSpec
from fedcluster.recipes._clustering import algorithm_of, canonical, clustering
from fedcluster.recipes._evaluation import evaluation, measure
from fedcluster.recipes._search import breathe, race

__all__ = [
    "FitSpec",
    "algorithm_of",
    "breathe",
    "canonical",
    "clustering",
    "evaluation",
    "measure",
    "race",
]
