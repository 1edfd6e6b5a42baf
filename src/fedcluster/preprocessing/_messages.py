"""Sentences about a preprocessor: its effect, and the facts found while it was fitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fedcluster.errors import listed
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
FILLED = {
    "drop": "their rows are dropped and have the label -1",
    "mean": "filled in with the mean, or the commonest text, of all sites",
    "ignore": "they count in no distance; rows without any value have the label -1",
    "median": "filled in with the median, or the commonest text, of all sites",
}


def in_words(
    prepare: PreprocessingSpec, preprocessor: Preprocessor, fit_report: FitReport
) -> list[str]:
    """Return sentences on a fitted preprocessor, the missing values and the columns left out."""
    numbers, categories = preprocessor.numeric, preprocessor.categories
    said = []
    if numbers:
        said.append(f"{_list([n.name for n in numbers])} {SCALED[prepare.scale]}")
    if logs := [n.name for n in numbers if n.log]:
        said.append(f"of {_list(logs)} the logarithm")
    if categories:
        levels = sum(len(c.names) for c in categories)
        said.append(f"{_list([c.name for c in categories])} as {levels} columns of 0 and 1")
    if prepare.weights:
        weights = [f"{name} {factor:g} times" for name, factor in prepare.weights.items()]
        said.append(f"squares of {_list(weights)}")
    if preprocessor.principal is not None:
        what = "principal components" if prepare.then is None else "columns of a preparation"
        said.append(f"of all that {len(preprocessor.names_out)} {what}")
    if preprocessor.unit:
        said.append("each row divided by its length; rows of zeros have the label -1")
    sentences = [f"Prepared: {'; '.join(said)}."]
    return [*sentences, *met_in_words(fit_report, prepare.missing)]


def met_in_words(fit_report: FitReport, missing: str) -> Iterator[str]:
    """Yield sentences on what was met while a preprocessor was fitted."""
    if fit_report.missing:
        yield f"Missing values: {_where(fit_report.missing)}; {FILLED[missing]}."
    if fit_report.clipped:
        yield f"Moved to the bounds: {_where(fit_report.clipped)}."
    if fit_report.left_out:
        yield f"Left out: {left_out_in_words(fit_report.left_out)}."
    yield from fit_report.notes
    for name, levels in fit_report.pooled.items():
        yield f"Rare values of {name} are one: {_list(levels)}."


def left_out_in_words(left_out: Mapping[str, str]) -> str:
    """Return columns that are left out, those of one reason together.

    Examples
    --------
    >>> left_out_in_words({"born": "dates", "note": "text", "seen": "dates"})
    'born and seen (dates); note (text)'
    """
    by_reason: dict[str, list[str]] = {}
    for name, why in left_out.items():
        by_reason.setdefault(why, []).append(name)
    return "; ".join(f"{_list(names)} ({why})" for why, names in by_reason.items())


def noticed_in_words(
    unknown: Mapping[str, Mapping[str, int]], filled: Mapping[str, Mapping[str, int]]
) -> list[str]:
    """Return sentences on unknown texts and missing values in new rows, by site and column."""
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
    """Return names as a sentence lists them, at most `MOST` and how many more."""
    if len(names) > MOST + 1:
        names = [*names[:MOST], f"{len(names) - MOST} more"]
    return listed(names)
