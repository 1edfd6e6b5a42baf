"""Clustering of rows that must stay where they are.

Several sites hold rows that may not leave them, and want one common clustering: federated
k-means from sums alone, as good as if the rows lay in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedcluster.lazy import names_from

if TYPE_CHECKING:
    from fedcluster.core import Data, Result, State, Summary, Task
    from fedcluster.engines import LocalEngine
    from fedcluster.engines.client import Client
    from fedcluster.estimators import (
        FederatedFuzzyCMeans,
        FederatedGaussianMixture,
        FederatedKMeans,
        select_k,
    )
    from fedcluster.kernels import nearest
    from fedcluster.model import Model
    from fedcluster.preprocessing import PreprocessingSpec
    from fedcluster.privacy import MinClusterSize, MinRows
    from fedcluster.rounds import run


__version__ = "0.1.0.dev0"

__all__ = [
    "Client",
    "Data",
    "FederatedFuzzyCMeans",
    "FederatedGaussianMixture",
    "FederatedKMeans",
    "LocalEngine",
    "MinClusterSize",
    "MinRows",
    "Model",
    "PreprocessingSpec",
    "Result",
    "State",
    "Summary",
    "Task",
    "nearest",
    "run",
    "select_k",
]

__getattr__ = names_from(
    __name__,
    {
        "Client": "engines.client",
        "Data Result State Summary Task": "core",
        "FederatedFuzzyCMeans FederatedGaussianMixture FederatedKMeans select_k": "estimators",
        "LocalEngine": "engines",
        "MinClusterSize MinRows": "privacy",
        "Model": "model",
        "PreprocessingSpec": "preprocessing",
        "nearest": "kernels",
        "run": "rounds",
    },
)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
