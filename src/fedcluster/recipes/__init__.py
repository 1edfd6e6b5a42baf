"""Compositions of runs: the default way to cluster, and its evaluation.

The loss of federated clustering against pooled clustering is due to the start, not to the sums. The
default way is therefore a good start from few rounds, and many runs from it in the same rounds (a
race).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from

if TYPE_CHECKING:
    from fedcluster.recipes._mixtures import mixture
    from fedcluster.recipes.fit import clustering
    from fedcluster.recipes.scores import evaluation
    from fedcluster.recipes.scores import evaluation_steps as evaluation_steps
    from fedcluster.recipes.specifications import Fit

__all__ = ["Fit", "clustering", "evaluation", "mixture"]

__getattr__ = names_from(  # lazy: the help of the command line needs the parameters only
    __name__,
    {
        "Fit": "specifications",
        "clustering": "fit",
        "evaluation evaluation_steps": "scores",
        "mixture": "_mixtures",
    },
)
