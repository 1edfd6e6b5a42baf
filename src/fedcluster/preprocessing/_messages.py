"""Sentences on a preprocessor: what it does, and what was met while it was fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedcluster.preprocessing._schema import listed
from fedcluster.preprocessing._spec import FitReport, PreprocessingSpec
from fedcluster.preprocessing._transform import Preprocessor

MOST = 6
"""Names that a sentence lists."""
SCALED = {
    "standard": "with mean 0 and variance 1",
    "robust": "with median 0 and quartiles 1 apart",
    "minmax": "with their bounds as 0 and 1",
    "none": "as they are",
}


def in_words(
    prepare: PreprocessingSpec, preprocessor: Preprocessor, fit_report: FitReport
) -> list[str]:
    """Return the sentences of a fit."""
    measures, categories = preprocessor.numeric, preprocessor.categories
    said = []
    if measures:
        said.append(f"{_list([m.name for m in measures])} {SCALED[prepare.scale]}")
    if logs := [m.name for m in measures if m.log]:
        said.append(f"of {_list(logs)} the logarithm")
    if categories:
        levels = sum(len(c.names) for c in categories)
        said.append(f"{_list([c.name for c in categories])} as {levels} columns of 0 and 1")
    if preprocessor.principal is not None:
        said.append(f"of all that {len(preprocessor.names_out)} principal components")
    sentences = [f"Prepared: {'; '.join(said)}."]
    sentences += _missing(prepare, fit_report.missing)
    if fit_report.left_out:
        reasons = [f"{name} ({why})" for name, why in fit_report.left_out.items()]
        sentences.append(f"Left out: {_list(reasons)}.")
    for name, levels_ in fit_report.pooled.items():
        sentences.append(f"Rare values of {name} are one: {_list(levels_)}.")
    return sentences


def _missing(prepare: PreprocessingSpec, missing: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return how many values are missing where, and what became of them."""
    if not missing:
        return []
    done = {
        "drop": "their rows are dropped and have the label -1",
        "mean": "filled in with the mean, or the commonest text, of all sites",
        "median": "filled in with the median, or the commonest text, of all sites",
    }
    return [f"Missing values: {_where(missing)}; {done.get(prepare.missing, 'not allowed')}."]


def noticed_in_words(
    unknown: Mapping[str, Mapping[str, int]], filled: Mapping[str, Mapping[str, int]]
) -> list[str]:
    """Return how many texts a model does not know, and values it fills in, by site and column."""
    said = []
    if unknown:
        said.append(f"Texts that the model does not know, taken for none: {_where(unknown)}.")
    if filled:
        said.append(f"Missing values: {_where(filled)}; filled in as in the fit.")
    return said


def _where(counts: Mapping[str, Mapping[str, int]]) -> str:
    """Return counts by site and column."""
    parts = [(n, name, site) for site, names in counts.items() for name, n in names.items()]
    return _list([f"{n:,} of {name} at {site}" for n, name, site in parts])


def _list(names: Sequence[str]) -> str:
    if len(names) > MOST + 1:
        names = [*names[:MOST], f"{len(names) - MOST} more"]
    return listed(names)
