"""Records of what sites hold and sent.

A site's preset may require counts of rows to be rounded; see `fedcluster.jobs.release`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedcluster.core import Labels, Limit
from fedcluster.privacy.limits import is_rounded, rounded


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
