"""What happened, as ``history.json`` and ``--json`` keep it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from fedcluster.core import Labels, Limit


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """What one site held and sent; it stays where the labels stay.

    Parameters
    ----------
    name : str
    rows : int
    clusters : tuple of int
        Rows of each cluster.
    labels : str
        The file of the rows' labels, relative to the folder of outputs.
    values_sent : int
        In all rounds together.
    limits : tuple of Limit
        What the site holds back.
    rows_held_back : int
        The most rows that the limits held back in one message.
    lone_rows : int
        The most clusters of a single row in one message.
    """

    name: str
    rows: int
    clusters: tuple[int, ...]
    labels: str
    values_sent: int = 0
    limits: tuple[Limit, ...] = ()
    rows_held_back: int = 0
    lone_rows: int = 0

    @property
    def took_part(self) -> bool:
        """Whether anything was sent."""
        return self.values_sent > 0

    @property
    def told_here(self) -> dict[str, Any]:
        """What is known of the site only where its rows are."""
        known = {
            "rows": self.rows,
            "clusters": list(self.clusters),
            "rows_held_back": self.rows_held_back,
            "lone_rows": self.lone_rows,
        }
        return {**known, "labels": self.labels} if self.labels else known


@dataclass(frozen=True, slots=True)
class Comparison:
    """How good one clustering is on all rows.

    Parameters
    ----------
    name : str
        Who found it.
    inertia : float
        Over all rows, in squared units of the rows.
    ratio : float
        The inertia, as a multiple of that of k-means on the pooled rows.
    ari : float
        Adjusted Rand index with the reference labels, 1 for the same groups.
    """

    name: str
    inertia: float
    ratio: float
    ari: float


def plain(value: Any) -> Any:
    """A record, or whatever holds some, as JSON can hold it: nan becomes null.

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
    """Count a site's rows by cluster; those with the label -1 are in none."""
    parts = np.array_split(labels, 1 + len(labels) // 1_000_000)  # what counts copies its part
    counts = np.sum([np.bincount(part[part >= 0], minlength=k) for part in parts], axis=0)
    clusters = tuple(counts.tolist())
    return SiteRecord(name, len(labels), clusters, file, **sent)
