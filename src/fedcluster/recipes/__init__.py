"""Compositions of runs: the default way to cluster.

The loss of federated clustering against pooled clustering lies in the start, not in the sums. So:
a good start from few rounds (`starts`), many runs from it in the same rounds (`race`), and, if
asked for, a search that goes on from the winner (`breathing`).
"""

from fedcluster._specifications import FitSpec
from fedcluster.recipes._breathing import breathe
from fedcluster.recipes._clustering import (
    algorithm_of,
    canonical,
    clustering,
    measure,
)
from fedcluster.recipes._evaluation import evaluation
from fedcluster.recipes._race import race

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
