"""Records of what sites hold and sent, and rounding of published counts.

A site's preset may require counts of rows to be rounded. A site's answers remain exact sums of its
groups, because rounded sums would change the clustering. So counts are rounded at the end of a job,
in its files and messages: rows of sites and clusters, values of columns and levels, and the weights
in a model file. Sums of weights that are not counts are unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fedcluster.core import Labels, Limit, Result, SiteInfo
from fedcluster.model.profiles import NumberProfile, Profiles
from fedcluster.selection import Selection

STEP = 5
"""Base to which published counts are rounded, as in OpenSAFELY."""
NEARLY = 1e-6
"""Tolerance by which sums of shares may differ from a whole number."""
FEWEST = 20
"""Smallest number of rows of a site with groups."""
Report = TypeVar("Report", bound=Any)


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """Rows, clusters and messages of one site; it stays where the labels stay.

    Parameters
    ----------
    name : str
    rows : int
    clusters : tuple of int
        Rows of each cluster.
    labels : str
        The file of the rows' labels, relative to the folder of outputs.
    values_sent : int
        The number of values sent in all rounds.
    limits : tuple of Limit
        The limits of the site.
    rows_held_back : int
        The largest number of rows that limits held back in one message.
    lone_rows : int
        The largest number of clusters with a single row in one message.
    values_held : int
        Number of rows times columns, if both are known.
    """

    name: str
    rows: int
    clusters: tuple[int, ...]
    labels: str
    values_sent: int = 0
    limits: tuple[Limit, ...] = ()
    rows_held_back: int = 0
    lone_rows: int = 0
    values_held: int = 0

    @property
    def took_part(self) -> bool:
        """Whether the site sent anything."""
        return self.values_sent > 0

    @property
    def local_facts(self) -> dict[str, Any]:
        """Return the facts that are known only where the rows are."""
        known = {
            "rows": self.rows,
            "clusters": list(self.clusters),
            "rows_held_back": self.rows_held_back,
            "lone_rows": self.lone_rows,
        }
        return {**known, "labels": self.labels} if self.labels else known


@dataclass(frozen=True, slots=True)
class Comparison:
    """Quality of one clustering on all rows.

    Parameters
    ----------
    name : str
        The name of the clustering.
    inertia : float
        The inertia over all rows, in squared units of the rows.
    ratio : float
        The inertia relative to that of k-means on the pooled rows.
    ari : float
        Adjusted Rand index with the reference labels, 1 for the same groups.
    """

    name: str
    inertia: float
    ratio: float
    ari: float


def plain(value: Any) -> Any:
    """Return a record, or a value with records in it, for JSON; nan becomes null.

    Examples
    --------
    >>> plain((Comparison("Oslo alone", inertia=2.0, ratio=float("nan"), ari=0.5),))
    [{'name': 'Oslo alone', 'inertia': 2.0, 'ratio': None, 'ari': 0.5}]
    """
    if isinstance(value, Limit):
        return value.plain()
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def site_record(name: str, labels: Labels, k: int, file: str, **sent: Any) -> SiteRecord:
    """Return the record of a site with its rows counted by cluster; the label -1 is ignored."""
    parts = np.array_split(labels, 1 + len(labels) // 1_000_000)  # what counts copies its part
    counts = np.sum([np.bincount(part[part >= 0], minlength=k) for part in parts], axis=0)
    record = SiteRecord(name, len(labels), tuple(counts.tolist()), file, **sent)
    if not is_rounded(record.limits):
        return record
    held, lone = rounded(record.rows_held_back), rounded(record.lone_rows)
    clusters = tuple(map(rounded, record.clusters))
    return replace(
        record, rows=rounded(record.rows), clusters=clusters, rows_held_back=held, lone_rows=lone
    )


def is_rounded(limits: Iterable[Limit]) -> bool:
    """Return whether a site with these limits requires rounded counts.

    Examples
    --------
    >>> from fedcluster.privacy import Groups
    >>> is_rounded([Groups(10).limit]), is_rounded([Groups.strict().limit])
    (False, True)
    """
    return any(dict(limit.parameters).get("preset") == "strict" for limit in limits)


def rounded(counts: Any) -> Any:
    """Return counts rounded to multiples of 5, at least 5 unless they are 0.

    Examples
    --------
    >>> rounded(np.array([0.0, 1.2, 13.0, 998.0])), rounded(12)
    (array([   0.,    5.,   15., 1000.]), 10)
    """
    numbers = np.asarray(counts, dtype=np.float64)
    result = np.where(numbers > 0, np.maximum(STEP * np.rint(numbers / STEP), STEP), 0.0)
    result = np.where(np.isfinite(numbers), result, numbers)
    return int(result) if isinstance(counts, int) else float(result) if result.ndim == 0 else result


def published(report: Report) -> Report:
    """Return a report with rounded counts, if a site requires them."""
    sites: Sequence[SiteInfo] = report.sites
    if not any(is_rounded(site.limits) for site in sites):
        return report
    fit_report, profiles = report.fit_report, report.profiles
    missing, clipped = _by_site(fit_report.missing), _by_site(fit_report.clipped)
    rounded_report: Report = replace(
        report,
        outcome=replace(report.outcome, value=_of_value(report.outcome.value)),
        sites=tuple(map(_of_site, sites)),
        fit_report=replace(fit_report, missing=missing, clipped=clipped),
        profiles=None if profiles is None else _of_profiles(profiles),
    )
    return rounded_report


def _if_counts(weights: Any) -> Any:
    """Return weights, rounded if they are counts: whole numbers, or shares of whole rows.

    Shares of rows add up to a whole number, which is larger than for weights normalised to 1.

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
    """Return the metadata of a site with rounded sizes."""
    sizes = (site.n_rows, site.total_rows)
    n, total = (None if each is None else float(rounded(each)) for each in sizes)
    weight = None if site.weight is None else float(_if_counts(site.weight))
    return replace(site, n_rows=n, total_rows=total, weight=weight)


def _of_value(value: Any) -> Any:
    """Return the result of a job with rounded counts."""
    if isinstance(value, Result):
        weights = _if_counts(value.state.weights)
        return replace(value, state=replace(value.state, weights=weights))
    if isinstance(value, Selection):
        results = {k: _of_value(each) for k, each in value.results.items()}
        return replace(value, results=results)
    return _of_profiles(value) if isinstance(value, Profiles) else value


def _of_profiles(profiles: Profiles) -> Profiles:
    """Return profiles with rounded counts."""
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
