"""Records of what sites hold and sent, and rounding of their counts.

A site's preset may require counts of rows to be rounded; see `fedcluster.report.release`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from fedcluster.core import Labels, Limit
from fedcluster.privacy.limits import STRICT_P

STEP = 5
"""Base to which published counts are rounded, as in OpenSAFELY."""
SMALLEST = STRICT_P
"""Smallest published count that is not 0: that of a group where counts are rounded."""


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
    """Return counts rounded to multiples of 5: those below 10 to 0 or 10.

    Examples
    --------
    >>> rounded(np.array([0.0, 1.2, 5.0, 13.0, 998.0])), rounded(12)
    (array([   0.,    0.,   10.,   15., 1000.]), 10)
    """
    numbers = np.asarray(counts, dtype=np.float64)
    result = np.where(numbers < STEP, 0.0, np.maximum(STEP * np.rint(numbers / STEP), SMALLEST))
    result = np.where(np.isfinite(numbers), result, numbers)
    return int(result) if isinstance(counts, int) else float(result) if result.ndim == 0 else result
