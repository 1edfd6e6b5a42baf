"""Names that users choose by, known without importing what they stand for.

The command line shows them in its help, which must appear at once; estimators, commands and sites
look them up here. An algorithm gets its name by one row, which says where it is built from the
parameters of a fit.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from fedcluster.core import Algorithm, FitParameters

AlgorithmName = Literal["auto", "lloyd", "fkm", "kfed", "fedavg"]
ALGORITHMS: Mapping[str, str] = {
    "auto": "_lloyd:Lloyd.from_fit",
    "lloyd": "_lloyd:Lloyd.from_fit",
    "fkm": "fkm:FKM.from_fit",
    "kfed": "_kfed:KFed.from_fit",
    "fedavg": "_fedavg:FedAvg.from_fit",
}
"""Values of ``algorithm`` for hard clusters, and where in `fedcluster.algorithms` each is built."""

FuzzyAlgorithmName = Literal["auto", "fcm", "ffcm"]
FUZZY_ALGORITHMS: Mapping[str, str] = {
    "auto": "_ffcm:FFCM.from_fit",
    "fcm": "_ffcm:FFCM.from_fit",
    "ffcm": "_ffcm:FFCM.paper_from_fit",
}
"""Values of ``algorithm`` for fuzzy clusters."""

STEPS: dict[str, str] = {
    name: f"fedcluster.{module}.{name}"
    for module, names in {
        "algorithms._fedavg": "FedAvg",
        "algorithms._ffcm": "FFCM",
        "algorithms._incomplete": "IncompleteKMeans",
        "algorithms._kfed": "KFed",
        "algorithms._lloyd": "Lloyd SphericalKMeans",
        "algorithms.fkm": "FKM",
        "algorithms.gaussian_mixture": "GaussianMixture MergedMixture",
        "algorithms.private": "BallScatter BoxMoments GridCells RelativeLloyd",
        "algorithms.summaries": "SiteSummaries",
        "algorithms.trimmed": "TrimmedLloyd",
        "algorithms.variance_tree": "VarianceTree",
        "metrics.clusters": "Inertia Scatter Spread",
        "metrics.columns": "AxisCounts ClusterCells ClusterColumns ColumnShape",
        "metrics.external": "Agreement Contingency Separation SiteARI",
        "metrics.gaussians": "ColumnSpread LogLikelihood MixtureLikelihood MixtureOverlap",
        "metrics.leaves": "LeafMoments",
        "metrics.moments": "Means Moments SiteSize Squares",
        "metrics.objectives": "FuzzyObjective FuzzyScatter PresentInertia",
        "metrics.silhouettes": "ClusterSilhouettes SimplifiedSilhouette SquaredSilhouette",
        "preprocessing.moments": "Covariance Histogram Missing",
    }.items()
    for name in names.split()
}
"""Steps that every site knows, by the names that messages and model files have for them."""

INSTEAD_OF_LLOYD: Mapping[str, str] = {
    "metric='cosine'": "_lloyd:SphericalKMeans.from_fit",
    "missing='ignore'": "_incomplete:IncompleteKMeans.from_fit",
    "model='mixture'": "gaussian_mixture:GaussianMixture.from_fit",
}
"""Options for which "auto" and "lloyd" mean another algorithm, and other names are refused."""

Model = Literal["auto", "k-means", "mixture", "merged"]
Covariance = Literal["full", "tied", "diag", "spherical"]
Metric = Literal["euclidean", "cosine"]
Init = Literal["auto", "summaries", "sums", "k-means++", "random"]
Protection = Literal["groups", "limits"]
RuleName = Literal[
    "likelihood",
    "vote",
    "mixture-bic",
    "bic",
    "gap",
    "calinski-harabasz",
    "squared-silhouette",
    "simplified-silhouette",
    "davies-bouldin",
    "xie-beni",
    "fuzzy-db",
    "inertia",
]
"""Values of ``rule``: the likelihood, the vote, or an index that can choose k alone."""
FUZZY_RULES = ("fuzzy-db", "xie-beni")
"""Rules that judge only fuzzy clusters."""
Scale = Literal["standard", "minmax", "robust", "none"]
Missing = Literal["error", "drop", "mean", "median", "ignore"]
Adjust = Literal["none", "site", "site-scale"]
Pick = Literal["best", "elbow"]
Averaging = Literal["avg_1", "avg_2"]

MODELS: tuple[str, ...] = get_args(Model)
COVARIANCES: tuple[Covariance, ...] = get_args(Covariance)
METRICS: tuple[str, ...] = get_args(Metric)
INITS: tuple[str, ...] = get_args(Init)
PROTECTIONS: tuple[str, ...] = get_args(Protection)
RULES: tuple[str, ...] = get_args(RuleName)
SCALES: tuple[Scale, ...] = get_args(Scale)
MISSING: tuple[str, ...] = get_args(Missing)
ADJUSTS: tuple[Adjust, ...] = get_args(Adjust)
PICKS: tuple[str, ...] = get_args(Pick)
AVERAGINGS: tuple[str, ...] = get_args(Averaging)


PARTS = ("apply", "invert", "names", "check")
"""The methods of a user's own preparation."""
PREPARATIONS: dict[str, type[Any]] = {}
OWN_STEPS: dict[str, type[Any]] = {}
"""Preparations and steps of plugins by name, see `load_plugins`. They are only
those named by the person who runs this process; no message and no file adds to them."""


def imported(path: str) -> Any:
    """Import and return the object of a dotted name, such as ``"my_module.Mine"``."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def written(path: str) -> tuple[str, dict[str, Any]]:
    """Return the dotted name and the parameters of an object as it is written on a command line.

    Raises
    ------
    ValueError
        If it is not written as ``my_module.Mine`` or ``my_module.Mine(beta=3)``.

    Examples
    --------
    >>> written("my_module.Mine(beta=0.5, rule='mean')")
    ('my_module.Mine', {'beta': 0.5, 'rule': 'mean'})
    """
    if "(" not in path:
        return path, {}
    try:
        call = ast.parse(path.strip(), mode="eval").body
        if isinstance(call, ast.Call) and not call.args and all(each.arg for each in call.keywords):
            parameters = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
            return ast.unparse(call.func), parameters
    except (MemoryError, RecursionError, SyntaxError, ValueError):
        pass
    raise ValueError("write it as my_module.Mine(beta=3, rule='mean')")


def known_name(kind: type[Any]) -> str:
    """Return the name of a class in `STEPS`, "" if it is another one."""
    dotted = f"{kind.__module__}.{kind.__qualname__}"
    return kind.__name__ if STEPS.get(kind.__name__) == dotted else ""


def is_step(value: Any, *names: str) -> bool:
    """Return whether a value is a step of one of these names of `STEPS`, without importing them.

    Examples
    --------
    >>> from fedcluster.algorithms import Lloyd
    >>> is_step(Lloyd(), "Lloyd", "FKM"), is_step(Lloyd(), "FKM"), is_step("Lloyd", "Lloyd")
    (True, False, False)
    """
    return any(known_name(kind) in names for kind in type(value).__mro__)


def made(path: str, **more: Any) -> Any:
    """Import a class by its dotted name, and return an object of it with its parameters."""
    name, parameters = written(path)
    return imported(name)(**more, **parameters)


def builder(
    name: str, *, fuzzy: bool, wish: str | None = None
) -> Callable[[FitParameters], Algorithm]:
    """Return the function that builds an algorithm from the parameters of a fit.

    Parameters
    ----------
    name : str
        The name.
    fuzzy : bool
        Whether clusters are fuzzy.
    wish : str, optional
        One of `INSTEAD_OF_LLOYD`, if the name is "auto" or "lloyd".
    """
    names = FUZZY_ALGORITHMS if fuzzy else ALGORITHMS
    place = names[name] if wish is None else INSTEAD_OF_LLOYD[wish]
    module, _, path = place.partition(":")
    home: Any = import_module(f"fedcluster.algorithms.{module}")
    build: Callable[[FitParameters], Algorithm] = attrgetter(path)(home)
    return build
