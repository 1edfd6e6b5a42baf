"""Counts of rows in what is published, where a site's preset asks for them to be rounded.

A site's answers stay as exact as the sums of its groups: a clustering of rounded sums would be
another one. So counts are rounded where a job ends, in what people and files are told of it: rows
of sites and clusters, values of columns and levels, and the weights in a model file. Sums of
weights that are no counts stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from fedcluster._profiles import NumberProfile, Profiles
from fedcluster.core import Limit, Result, SiteInfo
from fedcluster.selection import Selection

STEP = 5
"""What published counts are multiples of, as OpenSAFELY has it."""
NEARLY = 1e-6
"""By how much sums of shares may miss a whole number."""
FEWEST = 20
"""Rows that a site of groups has at least."""
Report = TypeVar("Report", bound=Any)


def is_rounded(limits: Iterable[Limit]) -> bool:
    """Return whether a site with these limits asks for rounded counts.

    Examples
    --------
    >>> from fedcluster.privacy import Groups
    >>> is_rounded([Groups(10).limit]), is_rounded([Groups.strict().limit])
    (False, True)
    """
    return any(dict(limit.parameters).get("preset") == "strict" for limit in limits)


def rounded(counts: Any) -> Any:
    """Return counts as the nearest multiples of 5; what is there is at least 5.

    Examples
    --------
    >>> rounded(np.array([0.0, 1.2, 13.0, 998.0])), rounded(12)
    (array([   0.,    5.,   15., 1000.]), 10)
    """
    numbers = np.asarray(counts, dtype=np.float64)
    found = np.where(numbers > 0, np.maximum(STEP * np.rint(numbers / STEP), STEP), 0.0)
    found = np.where(np.isfinite(numbers), found, numbers)
    return int(found) if isinstance(counts, int) else float(found) if found.ndim == 0 else found


def published(report: Report) -> Report:
    """Return a report with rounded counts, where a site asks for them."""
    sites: Sequence[SiteInfo] = report.sites
    if not any(is_rounded(site.limits) for site in sites):
        return report
    met, profiles = report.fit_report, report.profiles
    missing, clipped = _by_site(met.missing), _by_site(met.clipped)
    found: Report = replace(
        report,
        outcome=replace(report.outcome, value=_of_value(report.outcome.value)),
        sites=tuple(map(_of_site, sites)),
        fit_report=replace(met, missing=missing, clipped=clipped),
        profiles=None if profiles is None else _of_profiles(profiles),
    )
    return found


def _if_counts(weights: Any) -> Any:
    """Return weights, rounded if they are counts: whole numbers, or shares of whole rows.

    Those add up to a whole number, of more rows than weights that add up to 1 would.

    Examples
    --------
    >>> _if_counts(np.array([12.25, 28.75])), _if_counts(np.array([0.25, 0.75]))
    (array([10., 30.]), array([0.25, 0.75]))
    """
    numbers = np.atleast_1d(weights)[np.isfinite(np.atleast_1d(weights))]
    each, total = (np.abs(n - np.rint(n)) for n in (numbers, numbers.sum()))
    shares = numbers.sum() >= FEWEST and total < max(NEARLY, NEARLY**1.5 * numbers.sum())
    return rounded(weights) if shares or (each < NEARLY).all() else weights


def _of_site(site: SiteInfo) -> SiteInfo:
    """Return what a site told of its size."""
    sizes = (site.n_rows, site.total_rows)
    n, total = (None if each is None else float(rounded(each)) for each in sizes)
    weight = None if site.weight is None else float(_if_counts(site.weight))
    return replace(site, n_rows=n, total_rows=total, weight=weight)


def _of_value(value: Any) -> Any:
    """Return what came of a job."""
    if isinstance(value, Result):
        weights = _if_counts(value.state.weights)
        return replace(value, state=replace(value.state, weights=weights))
    if isinstance(value, Selection):
        results = {k: _of_value(each) for k, each in value.results.items()}
        return replace(value, results=results)
    return _of_profiles(value) if isinstance(value, Profiles) else value


def _of_profiles(profiles: Profiles) -> Profiles:
    """Return profiles of clusters."""
    columns = tuple(
        replace(column, weights=_if_counts(column.weights))
        if isinstance(column, NumberProfile)
        else replace(column, weights=_if_counts(column.weights), counts=_if_counts(column.counts))
        for column in profiles.columns
    )
    sizes = {site: _if_counts(each) for site, each in profiles.sizes.items()}
    return replace(profiles, sizes=sizes, columns=columns, totals=_if_counts(profiles.weights))


def _by_site(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {site: {c: rounded(n) for c, n in each.items()} for site, each in counts.items()}
