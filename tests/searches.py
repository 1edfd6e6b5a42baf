"""Searches of few runs, for tests of what is done with their results."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from fedcluster.mixtures.on_leaves import Search
from fedcluster.recipes._seeds import SeedEffort
from fedcluster.selection._mixtures import Effort

FEW: dict[str, dict[str, Any]] = {
    "recipes.fit": {"N_SEEDS": 3, "N_MORE": 4, "N_FINE": 4, "N_MOST": 6, "MANY": {2: 4, 4: 2}},
    "recipes._seeds": {
        "SEED_EFFORT": SeedEffort(restarts=6, children=8, patience=4, fuzzy_restarts=6),
    },
    "recipes._mixtures": {
        **{"RESTARTS": 3, "DRAWN_STARTS": 6, "POPULATION": 3, "CHILDREN": 4, "GENERATIONS": 2},
        **{"FIRST": {4: 5, 8: 3}, "KEEP": {6: 6, 10: 4, 15: 3, 25: 2}, "ROWS_FOR_LEAVES": 150},
    },
    "recipes._trimming": {"TRIMMED_SEEDS": 4, "FITS_A_START": 2, "KEEP": {6: 3, 10: 2, 14: 1}},
    "recipes.bootstrap": {"REPLICATES": 3, "MOST_STEPS": 4},
    "recipes.specifications": {"MOST_CLUSTERS": 5},
    "jobs._kinds": {"MOST_CLUSTERS": 5, "MOST_TRIED": 8},
    "selection.sweep": {"EFFORT": Effort(confirmed=3, others=1, replicated=2, restarts=2)},
}
"""Runs of a search, by module: they go the same way, where they are few."""
FEW_COMPONENTS = {"first": 4, "patience": 2, "brief": 3, "most_promising": 2, "long": 4}
"""Mixtures of a search among leaves."""


def shorten(put: Callable[[Any, str, Any], object]) -> None:
    """Put them in place of what the modules have."""
    for name, values in FEW.items():
        module = import_module(f"fedcluster.{name}")
        for value in values.items():
            put(module, *value)
    for value in FEW_COMPONENTS.items():
        put(Search, *value)
