"""Estimators in model files: what a file can hold of their parameters, and reading it back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import RandomState

from fedcluster import algorithms
from fedcluster.core import Assigns
from fedcluster.errors import InputError
from fedcluster.model import Model
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.privacy import Groups
from fedcluster.selection import Rule

STARTS = ("init", "weights_init", "means_init", "precisions_init")
"""Parameters that are arrays where they are lists in a file."""
KINDS: Mapping[str, Callable[..., Any]] = {
    "prepare": PreprocessingSpec,
    "rule": Rule,
    "protection": Groups,
}
"""What parameters are where they are objects in a file."""


def check_savable(parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that a file cannot hold.

    Raises
    ------
    InputError
        With the first of them, and what to do.
    """
    algorithm = parameters.get("algorithm")
    named = algorithm is None or isinstance(algorithm, str)
    own = not named and not hasattr(algorithms, type(algorithm).__name__)
    refused = {
        "init": callable(parameters.get("init")) and "a function",
        "random_state": isinstance(parameters["random_state"], RandomState) and "a RandomState",
        "algorithm": own and not isinstance(algorithm, Assigns) and "an object of your own",
    }
    for name, what in refused.items():
        if what:
            raise InputError(
                f"{name} is {what}, which no file can hold; save the clusters alone, by "
                "Model.from_estimator(...).save(path)"
            )


def parameters_of(
    model: Model, names: Collection[str], known: Collection[str], path: Path
) -> dict[str, Any]:
    """Return the parameters of an estimator that a model file holds.

    Parameters
    ----------
    model : Model
        The content of the file.
    names : collection of str
        The parameters that the estimator has.
    known : collection of str
        The algorithms that it knows by name.
    path : Path
        The file.

    Raises
    ------
    InputError
        If one of them cannot be made.
    """
    k = model.algorithm.get("n_clusters")
    given = {"n_components": k, "random_state": model.seed, **model.algorithm}
    given["algorithm"] = _algorithm(given.pop("name", "auto"), model, known)
    parameters = {}
    for name, value in given.items():
        if name in names:
            try:
                parameters[name] = _made(name, value)
            except (TypeError, ValueError) as error:
                raise InputError(f"{path} is damaged: {name!r}: {error}; fit again") from error
    return parameters


def _algorithm(plain: Any, model: Model, known: Collection[str]) -> Any:
    """Return an algorithm of the package by its name or as an object, or what assigns rows."""
    if isinstance(plain, Mapping) and hasattr(algorithms, str(plain.get("name"))):
        parameters = {name: value for name, value in plain.items() if name != "name"}
        return getattr(algorithms, plain["name"])(**parameters)
    return plain if plain in known else model.assigned_by or "auto"


def _made(name: str, value: Any) -> Any:
    """Return a parameter from what a file holds of it."""
    if name in STARTS and isinstance(value, list):
        return np.array(value, dtype=np.float64)
    if name in KINDS and isinstance(value, Mapping):
        kept = {key: each for key, each in value.items() if key != "name" or name == "rule"}
        if name == "rule" and kept.get("bounds") is not None:
            kept["bounds"] = tuple(map(np.array, kept["bounds"]))
        return KINDS[name](**{key: _with_tuples(each) for key, each in kept.items()})
    return value


def _with_tuples(value: Any) -> Any:
    """Return a value with tuples where a file has lists."""
    if isinstance(value, Mapping):
        return {key: _with_tuples(each) for key, each in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def kind_of(model: Model) -> str:
    """Return the name of the estimator that a model is of."""
    if isinstance(model.assigned_by, algorithms.GaussianMixture):
        return "FederatedGaussianMixture"
    return "FederatedKMeans" if model.algorithm.get("m") is None else "FederatedFuzzyCMeans"
