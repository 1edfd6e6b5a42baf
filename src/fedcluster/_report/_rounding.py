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
    counts = _Counts(sites)
    met, profiles = report.fit_report, report.profiles
    missing, clipped = _by_site(met.missing), _by_site(met.clipped)
    found: Report = replace(
        report,
        outcome=replace(report.outcome, value=counts.of_value(report.outcome.value)),
        sites=tuple(map(counts.of_site, sites)),
        fit_report=replace(met, missing=missing, clipped=clipped),
        profiles=None if profiles is None else counts.of_profiles(profiles),
    )
    return found


class _Counts:
    """Which numbers of a report are counts, and these rounded.

    Weights are counts where those of all rows are as many as these; where that is not known, whole
    numbers are, and those that add up to the rows.
    """

    def __init__(self, sites: Sequence[SiteInfo]) -> None:
        self._rows = sum(site.n_rows or 0.0 for site in sites) or (sites[0].total_rows or 0.0)
        every = ((site.weight, site.n_rows) for site in sites)
        known = [w == n for w, n in every if w is not None and n is not None]
        self._are_counts = all(known) if known else None

    def weights(self, weights: Any) -> Any:
        """Return weights, rounded if they are counts."""
        are_counts = self._are_counts
        if are_counts is None:
            numbers = np.atleast_1d(weights)[np.isfinite(np.atleast_1d(weights))]
            whole = bool((np.abs(numbers - np.rint(numbers)) < NEARLY).all())
            are_counts = whole or abs(numbers.sum() - self._rows) < NEARLY * self._rows
        return rounded(weights) if are_counts else weights

    def of_site(self, site: SiteInfo) -> SiteInfo:
        """Return what a site told of its size."""
        sizes = (site.n_rows, site.total_rows)
        n, total = (None if each is None else float(rounded(each)) for each in sizes)
        weight = None if site.weight is None else float(self.weights(site.weight))
        return replace(site, n_rows=n, total_rows=total, weight=weight)

    def of_value(self, value: Any) -> Any:
        """Return what came of a job."""
        if isinstance(value, Result):
            weights = self.weights(value.state.weights)
            return replace(value, state=replace(value.state, weights=weights))
        if isinstance(value, Selection):
            results = {k: self.of_value(each) for k, each in value.results.items()}
            return replace(value, results=results)
        return self.of_profiles(value) if isinstance(value, Profiles) else value

    def of_profiles(self, profiles: Profiles) -> Profiles:
        """Return profiles of clusters."""
        columns = tuple(
            replace(column, weights=self.weights(column.weights))
            if isinstance(column, NumberProfile)
            else replace(
                column, weights=self.weights(column.weights), counts=self.weights(column.counts)
            )
            for column in profiles.columns
        )
        sizes = {site: self.weights(each) for site, each in profiles.sizes.items()}
        return replace(
            profiles, sizes=sizes, columns=columns, totals=self.weights(profiles.weights)
        )


def _by_site(counts: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    return {site: {c: rounded(n) for c, n in each.items()} for site, each in counts.items()}
