"""Values of every option that the covering array is drawn from.

A factor is a name with its values, the first of which is the default. Factors of a job are the
fields of its dataclass, those of a site the fields of its site file; a field without values here
makes a test fail.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from fedcluster.algorithms import Lloyd
from fedcluster.core import State
from fedcluster.jobs import Compare, Evaluate, Profile, SelectK, fit_of
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.recipes.specifications import WORDS
from fedcluster.selection import Rule
from fedcluster_app.site.file import SiteFile
from fedcluster_app.tables.plugins import load_plugins
from pairs.own import Halved

PLUGIN = "pairs.own"
load_plugins([PLUGIN])

Factors = Mapping[str, Mapping[str, Any]]
"""Of each factor its values, by what they are called."""

Value = tuple[str, str]
"""A factor and the name of one of its values."""

Combination = Mapping[str, str]
"""Of each factor the name of a value."""

MEANS = np.array([[0.0, 160.0, 0.0], [6.0, 352.0, 0.125], [-5.0, 256.0, -0.125]])
"""Where the rows' three clusters are, in the columns x, y and z."""


def named(*values: Any) -> dict[str, Any]:
    """Values that are called as they are written."""
    return {str(value): value for value in values}


PREPARE: dict[str, Any] = {
    "none": None,
    "mean": PreprocessingSpec(missing="mean"),
    "auto": PreprocessingSpec(missing="mean"),
    "drop": PreprocessingSpec("robust", missing="drop", categories="none"),
    "median": PreprocessingSpec(
        "minmax",
        missing="median",
        bounds={"x": (-16.0, 16.0), "y": (64.0, 448.0), "z": (-1.0, 1.0)},
        categories="none",
    ),
    "ignore": PreprocessingSpec(missing="ignore", weights={"x": 2.0}),
    "pca": PreprocessingSpec(missing="mean", log=("y",), pca=2),
    "own": PreprocessingSpec(missing="mean", then=Halved()),
    "levels": PreprocessingSpec(missing="mean", categories=("auto", "ward")),
    "site": PreprocessingSpec(missing="mean", adjust="site"),
    "site-scale": PreprocessingSpec(missing="mean", adjust="site-scale"),
}

FIT: Factors = {
    "n_clusters": named(3, (2, 3, 4), "auto", 1),
    "algorithm": {**named("auto", "lloyd", "fkm", "kfed", "fedavg", "ffcm"), "own": Lloyd()},
    "init": {**named("auto", "summaries", "sums", "k-means++", "random"), "array": MEANS + 0.5},
    "n_init": named(None, 2),
    "m": named(None, 2.0, 1.5),
    "sums_only": named(False, True),
    "max_iter": named(300, 3),
    "tol": named(1e-4, 0.0, 0.01),
    "metric": named("euclidean", "cosine"),
    "model": named("k-means", "mixture", "auto", "merged"),
    "covariance_type": named("full", "tied", "diag", "spherical"),
    "reg_covar": named(1e-6, 1e-3),
    "noise": named(False, True, 900.0),
    "seed": named(0, 7),
    "start": {"none": None, "means": State.at(MEANS + 0.25)},
    "means": {"none": None, "given": State(MEANS + 0.25, np.array([30.0, 20.0, 10.0]))},
    "also": named(None),
    "init_columns": named(()),
    "previous": named(None, "plain", "prepared"),
    "grouped": named(False, True),
    "participation": named(1.0, 0.6),
    "prepare": PREPARE,
    "site_rows": named((), (30.0, 60.0)),
    "smallest": named(1, 4),
    "trim": named(0.0, 0.1),
    "robust": named(0, 1),
    "profile": named(False, True),
    "stability": named(False, True, 2),
    "rule": {"none": None, "bic": Rule("bic"), "vote": Rule("vote"), "elbow": Rule("gap", "elbow")},
    "epsilon": named(None, 20.0),
    "delta": named(1e-6, 1e-3),
    "group_size": named(1, 2),
    "bounds": {
        "none": None,
        "pair": (-512.0, 512.0),
        "mapping": {"x": (-16.0, 16.0), "y": (64.0, 448.0), "z": (-1.0, 1.0)},
    },
    "n_rows": named(None, 120.0),
}

SELECT_K: Factors = {
    "k_min": named(1, 2),
    "k_max": named(4, None, 3),
    "rule": named("likelihood", "vote", "fuzzy-db", "bic", "gap"),
    "averaging": named("avg_2", "avg_1"),
    "m": named(None, 2.0),
    "sums_only": named(False, True),
    "metric": named("euclidean", "cosine"),
    "seed": named(0, 7),
    "pick": named("best", "elbow"),
    "bounds": {"none": None, "pair": ((-16.0, 64.0, -1.0), (16.0, 448.0, 1.0))},
    "participation": named(1.0, 0.6),
    "prepare": PREPARE,
}

MODELS = ("plain", "prepared", "fuzzy", "mixture", "trimmed", "ignoring", "cosine", "adjusted")
"""Models that others are scored and told of; see `worlds.model`."""

EVALUATE: Factors = {
    "model": named(*MODELS),
    "labels": named(False, True),
    "classes": named(None, ("a", "b", "c")),
    "metrics": named((), ("fedcluster.metrics.Inertia",)),
    "algorithms": named((), ("fedcluster.algorithms.GaussianMixture",)),
    "participation": named(1.0, 0.6),
    "seed": named(0, 7),
    "n_references": named(2, 0),
    "profile": named(False, True),
    "beside": named(None, *MODELS),
}

PROFILE: Factors = {
    "model": named(*MODELS),
    "algorithms": named((), ("fedcluster.algorithms.GaussianMixture",)),
    "participation": named(1.0, 0.6),
    "seed": named(0, 7),
}

COMPARE: Factors = {
    **PROFILE,
    "outcomes": named(("ill", "cost"), ("ill",), ("stage", "ill")),
    "time": named(None, "days"),
    "levels": {
        "none": None,
        "known": {"ill": None, "cost": None, "days": None, "stage": ("early", "late")},
    },
}

JOBS: Mapping[str, tuple[Callable[..., Any], Factors]] = {
    "fit": (fit_of, FIT),
    "select-k": (SelectK, SELECT_K),
    "evaluate": (Evaluate, EVALUATE),
    "profile": (Profile, PROFILE),
    "compare": (Compare, COMPARE),
}

SITE: Factors = {
    "columns": named(None, ("y", "x", "z")),
    "weight_column": named(None, "weight"),
    "group_column": named(None, "person"),
    "label_column": named(None, "label"),
    "id_column": named(None, "id"),
    "codes": {"none": {}, "town": {"town": {"A": "Ahlen", "B": "Bonn", "C": "Celle"}}},
    "missing_values": named((), (-999,), ("z:-999",)),
    "rename": {"none": {}, "z": {"depth": "z"}},
    "factors": {"none": {}, "z": {"z": 4.0}, "offset": {"z": "4x+32"}},
    "dates": {"none": {}, "age": {"seen": "age:2024-12-31"}},
    "protection": named("limits", "groups", None),
    "groups": {"default": {}, "3": {"p": 3, "min_rows": 6, "scale": "none"}},
    "limits": {
        "default": {},
        "5": {"min_rows": 12, "min_cluster_size": 5},
        "none": {"min_rows": 1, "min_cluster_size": 1},
    },
    "cost": {"default": {}, "small": {"seconds": 60, "message_mb": 10}},
    "policy": {"default": {}, "narrow": {"max_clusters": 60, "denied": ["FedAvg"]}},
    "privacy": {
        "none": {},
        "budget": {"epsilon": 40.0, "delta": 1e-3, "group_size": 2},
        "shared": {"epsilon": 40.0, "delta": 1e-3, "colluders": 1},
        "strict": {"preset": "strict"},
        "diverse": {"dominance": True, "sensitive": ["label"], "diversity": 2},
    },
    "values_in_memory": named(1 << 23, 0),
    "plugins": named((), (PLUGIN,)),
    "permits": {"none": {}, "not required": {"required": False}},
}
"""Fields of a site file; what they say that a federation over a network adds is its engine."""


def values_in(text: str) -> list[Value]:
    pairs = (each.partition("=") for each in text.split("; ") if each)
    return [(name, value) for name, _, value in pairs]


PRIVATE = "epsilon=20.0; bounds=mapping; site.protection=limits"
BUDGET = "epsilon=20.0; bounds=mapping; site.protection=None"
NEEDS: Mapping[str, str] = {
    value: needed
    for needed, values in {
        "prepare=mean": "text=True; dates held=True",
        "prepare=mean; model=prepared": "missing=True",
        "text=True": "prepare=levels",
        "m=2.0": "algorithm=ffcm; rule=fuzzy-db",
        "rule=fuzzy-db; m=2.0": "averaging=avg_1",
        "rule=gap": "pick=elbow",
        "n_clusters=auto": "model=auto; model=merged",
        "n_clusters=(2, 3, 4)": "rule=bic; rule=vote; rule=elbow",
        "model=mixture": "noise=True; noise=900.0; start=means; covariance_type=tied; "
        "covariance_type=diag; covariance_type=spherical; reg_covar=0.001",
        "bounds=mapping; site.protection=limits": "epsilon=20.0",
        "epsilon=20.0; site.protection=limits": "bounds=mapping; bounds=pair",
        PRIVATE: "delta=0.001; group_size=2; n_rows=120.0",
        "site.label_column=label": "classes=('a', 'b', 'c'); labels=True",
        "text=True; prepare=mean": "site.codes=town",
        "dates held=True; prepare=mean": "site.dates=age",
        "missing=True; prepare=mean; model=prepared": "site.missing_values=(-999,); "
        "site.missing_values=('z:-999',)",
        "site.protection=groups; site.groups=default": "site.privacy=strict",
        "site.protection=groups; site.label_column=label": "site.privacy=diverse",
        f"{BUDGET}; group_size=2; engine=wire": "site.privacy=budget",
        f"{BUDGET}; engine=secure": "site.privacy=shared",
    }.items()
    for value in values.split("; ")
}
"""What a value needs beside it to mean anything: without that, it is refused."""

LIFTS: Mapping[str, str] = {
    "rule=fuzzy-db": "averaging=avg_1",
    **dict.fromkeys(
        ("site.protection=None", "engine=wire", "engine=resumed wire", "engine=secure"),
        "site.privacy=budget",
    ),
    "site.group_column=person": "site.privacy=budget",
}
"""Values that are refused beside some others, each with one that makes them go together: sites that
say nothing make groups of their rows, which noise does not go with, unless they have a budget; over
a network they answer nothing with noise without one. Positions, not means, are sums alone. Persons
need a budget that counts their rows."""

EARLIER = "previous=plain; previous=prepared"
AT_HOME = "engine=local; engine=resumed; engine=dask"
APART = [
    frozenset([one, other])
    for text, others in {
        # a sparse matrix, or a table of numbers, has no names and no texts
        "source=npz": "text=True; dates held=True; missing=True; engine=dask; site.id_column=id; "
        f"{EARLIER}; site.weight_column=weight; site.group_column=person; site.label_column=label; "
        "outcomes=('stage', 'ill')",
        "way=array": f"text=True; dates held=True; {EARLIER}",
        "way=sparse": f"text=True; dates held=True; missing=True; {EARLIER}",
        # how many columns texts become depends on the rows that groups and limits leave
        "text=True": "init=array; start=means; means=given",
        # there is no such column
        "text=False": "site.codes=town; prepare=levels",
        "prepare=levels": "site.columns=('y', 'x', 'z')",
        "dates held=False": "site.dates=age",
        "missing=False": "site.missing_values=(-999,); site.missing_values=('z:-999',)",
        # a preset is not loosened; rules of groups name a column
        "site.privacy=strict": "site.groups=3",
        "site.privacy=diverse": "site.label_column=None",
        # what a budget allows is a matter of the network's end
        "site.privacy=budget": AT_HOME,
        "site.privacy=shared": AT_HOME,
        # the owner of a collection prepares its dates; rows of a partition lie in memory
        "engine=dask": "site.dates=age; site.privacy=diverse; site.values_in_memory=0",
    }.items()
    for one in values_in(text)
    for other in values_in(others)
]
"""Pairs of values of which no combination can be made, nor of what needs both."""


NOT_DRAWN = {"name", "colluders", "path", "federation", "source", "confirmed"}
"""Fields of a site file that are drawn as other factors, or are no choice."""

ROWS: Factors = {
    "sites": {"3": (3, 40), "4": (4, 40), "6": (6, 40)},
    "source": named("csv", "parquet", "sqlite", "npz", "database", "store"),
    "text": named(False, True),
    "missing": named(False, True),
    "dates held": named(False, True),
}
"""How many sites with how many rows, from which files, and what their columns hold."""

ENGINES = ("local", "wire", "resumed", "resumed wire", "secure", "dask")
TABLES = ("pandas", "array", "polars", "arrow", "sparse", "paths")
FILES = ("files", "odd files", "one file")
COMMANDS = (*FILES, "site files")
"""How a user asks for it on this machine: an estimator given tables, or the command line; or none,
of what is asked for over a network alone.

Odd files have lines above the table, decimal commas, another encoding, and columns to leave out."""


@cache
def factors_of(job: str) -> Factors:
    """All factors of a job, of its sites and rows, of engines and ways."""
    own = JOBS[job][1]
    ways = ("none", *(TABLES if job == "fit" else ()), *COMMANDS)
    site = {f"site.{name}": values for name, values in SITE.items()}
    return {**own, **site, **ROWS, "engine": named(*ENGINES), "way": named(*ways)}


@cache
def defaults(job: str) -> Mapping[str, str]:
    return {name: next(iter(values)) for name, values in factors_of(job).items()}


def with_needs(job: str, *values: Value) -> dict[str, str]:
    """The combination of some values, of what they need, and of defaults."""
    c, factors = dict(defaults(job)), factors_of(job)
    for value in sorted(values):
        needed = values_in(NEEDS.get("=".join(value), ""))
        c |= {name: need for name, need in needed if need in factors.get(name, ())}
    return c | dict(values)


def undeclared() -> dict[str, Sequence[str]]:
    """Fields without values here, and values of fields that there are not."""
    declared = {name: (kind, set(own)) for name, (kind, own) in JOBS.items()}
    declared["site"] = (SiteFile, {*SITE, *NOT_DRAWN})
    found = {name: names_of(kind) ^ own for name, (kind, own) in declared.items()}
    return {name: sorted(names) for name, names in found.items() if names}


def names_of(kind: Any) -> set[str]:
    known: Any = kind
    return {*WORDS} if kind is fit_of else {each.name for each in fields(known)}
