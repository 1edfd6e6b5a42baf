"""Compositions of runs: the default way to cluster, and its evaluation.

The loss of federated clustering against pooled clustering lies in the start, not in the sums. So:
a good start from few rounds, many runs from it in the same rounds (a race), and, if asked for, a
search that goes on from the winners (crossover and breathing).
"""

from fedcluster._specifications import FitSpec
from fedcluster.recipes._mixtures import mixture
from fedcluster.recipes._stochastic_em import stepwise
from fedcluster.recipes.fit import clustering
from fedcluster.recipes.scores import evaluation

__all__ = ["FitSpec", "clustering", "evaluation", "mixture", "stepwise"]
