"""Clustering of rows that must stay where they are.

Several sites hold rows that may not leave them, and want one common clustering: federated
k-means from sums alone, as good as if the rows lay in one place.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedcluster.client import Client
    from fedcluster.core import Data, Result, State, Summary, Task
    from fedcluster.engines._local import LocalEngine
    from fedcluster.estimators import FederatedFuzzyCMeans, FederatedKMeans, select_k
    from fedcluster.kernels import nearest
    from fedcluster.model import Model
    from fedcluster.preprocessing import PreprocessingSpec
    from fedcluster.privacy import MinClusterSize, MinRows
    from fedcluster.rounds import run

__version__ = "0.1.0.dev0"

_HOME = {
    "Client": "client",
    "Data": "core",
    "FederatedFuzzyCMeans": "estimators",
    "FederatedKMeans": "estimators",
    "LocalEngine": "engines._local",
    "MinClusterSize": "privacy",
    "MinRows": "privacy",
    "Model": "model",
    "PreprocessingSpec": "preprocessing",
    "Result": "core",
    "State": "core",
    "Summary": "core",
    "Task": "core",
    "nearest": "kernels",
    "run": "rounds",
    "select_k": "estimators",
}

__all__ = [
    "Client",
    "Data",
    "FederatedFuzzyCMeans",
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


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the compiled parts are not free."""
    if name not in _HOME:
        raise AttributeError(f"module 'fedcluster' has no attribute {name!r}")
    return getattr(import_module(f"fedcluster.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
