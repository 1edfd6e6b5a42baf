"""What happened, as ``history.json`` and ``--json`` keep it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Record:
    """What one fit did, as ``history.json`` keeps it.

    ``history`` has the rounds of the start that won, ``exchanges`` every round with the sites:
    the numbers that a site sent in these add up to its ``values_sent``.
    """

    n_clusters: int
    algorithm: str
    columns: tuple[str, ...]
    seed: int
    rounds: int
    stop_reason: str
    inertia: float
    sites: tuple[SiteRecord, ...]
    history: tuple[Mapping[str, Any], ...]
    communication_rounds: tuple[Mapping[str, Any], ...]

    @classmethod
    def of(cls, estimator: Any, columns: Sequence[str], labels: Mapping[str, str]) -> Record:
        """The record of a fitted estimator; ``labels`` names each site's file of labels."""
        k = len(estimator.cluster_centers_)
        return cls(
            n_clusters=k,
            algorithm=str(estimator.algorithm),
            columns=tuple(columns),
            seed=estimator.random_state,
            rounds=estimator.n_iter_,
            stop_reason=estimator.stop_reason_,
            inertia=float(estimator.inertia_),
            sites=tuple(
                site_record(
                    site.name,
                    estimator.site_labels_[site.name],
                    k,
                    labels[site.name],
                    values_sent=estimator.values_sent_[site.name],
                    limits=site.limits,
                    rows_held_back=estimator.rows_held_back_[site.name],
                    lone_rows=estimator.lone_rows_[site.name],
                )
                for site in estimator.sites_
            ),
            history=tuple(estimator.history_),
            communication_rounds=tuple(estimator.communication_rounds_),
        )


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
