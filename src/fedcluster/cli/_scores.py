"""What ``evaluate`` does between the arguments and the screen: ask the sites, show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster._artefacts import better, scores_content, write_scores
from fedcluster.cli import _runs as runs
from fedcluster.client import Client
from fedcluster.core import Filter
from fedcluster.engines import LocalEngine
from fedcluster.errors import InputError
from fedcluster.io._outputs import atomic_folder
from fedcluster.io._rows import SiteRows, chunks_of
from fedcluster.jobs import Evaluate, JobReport, execute
from fedcluster.model import Model
from fedcluster.privacy import MinClusterSize, MinRows
from fedcluster.report import SiteRecord, Table, number, plain

NOTHING = "–"
GAP = 2

Scores = Mapping[str, float]


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """All scores of a model on the rows of some sites.

    Parameters
    ----------
    report : JobReport
        What came of asking all sites together.
    by_site : mapping of str to mapping
        What each site finds of its own rows alone.
    sites : tuple of SiteRecord
        What each site sent.
    """

    report: JobReport
    by_site: Mapping[str, Scores]
    sites: tuple[SiteRecord, ...]

    @property
    def scores(self) -> Scores:
        """Return the scores over all sites, by index."""
        scores: Scores = self.report.outcome.value
        return scores


def evaluate(model: Model, tables: Mapping[str, SiteRows], min_cluster_size: int) -> Evaluation:
    """Score a model's clusters by all indices that apply, on these sites' rows."""
    if min_cluster_size > 1 and any(table.limits is not None for table in tables.values()):
        raise InputError("--min-cluster-size and --label-column are what a site file says itself")
    limits: list[Filter] = [MinRows(2)] if len(tables) > 1 else []
    limits += [MinClusterSize(min_cluster_size)] if min_cluster_size > 1 else []
    clients = runs.clients_of(tables, limits)
    job = Evaluate(model, classes=_classes(tables.values()))
    report = execute(job, LocalEngine(clients))
    alone = {name: Client(name, table.rows, ()) for name, table in tables.items()}
    by_site = {
        name: execute(job, LocalEngine([client])).outcome.value for name, client in alone.items()
    }
    records = tuple(
        runs.record_of(client, report, _labels(model, client), len(model.centers))
        for client in clients
    )
    return Evaluation(report, by_site, records)


def _labels(model: Model, client: Client) -> Any:
    return np.concatenate([model.predict(chunk.weighed()) for chunk in chunks_of(client.rows)])


def _classes(tables: Iterable[SiteRows]) -> tuple[str, ...] | None:
    """Return all labels of all sites; None where no site has any."""
    by_site = {table.name: _labels_of(table) for table in tables}
    lacking = [name for name, labels in by_site.items() if labels is None]
    if len(lacking) == len(by_site):
        return None
    if lacking:
        raise InputError(
            f"site {lacking[0]!r} names no label_column and another site does; name one at every "
            "site, or at none"
        )
    return tuple(sorted(set().union(*(labels or () for labels in by_site.values()))))


def _labels_of(table: SiteRows) -> set[str] | None:
    """Return the labels that a site has; none of them may be missing."""
    labels: set[str] = set()
    for chunk in chunks_of(table.rows):
        if chunk.y is None:
            return None
        labels.update(chunk.y.tolist())
    if "" in labels:
        raise InputError(
            f"site {table.name!r}: the label of a row is missing; fill it in or drop the row"
        )
    return labels


def content(scored: Evaluation, model_file: str) -> dict[str, Any]:
    """Return what ``scores.json`` and ``--json`` say, without the rounds."""
    told = scores_content(scored.report, scored.sites) | {"model": model_file}
    sites = [{**site, "scores": plain(scored.by_site[site["name"]])} for site in told["sites"]]
    return told | {"sites": sites}


def write(out: Path, scored: Evaluation, content: Mapping[str, Any]) -> list[str]:
    """Write ``scores.json`` into a folder; returns the line that says so."""
    with atomic_folder(out) as folder:
        write_scores(folder, scored.report, content)
    return [f"Wrote {out / 'scores.json'}."]


def table(scored: Evaluation, width: int) -> Table:
    """A line for each index, for a screen of so many columns; the last sites may not fit."""
    sites = scored.by_site if len(scored.by_site) > 1 else {}
    header = ["index", "better", "all", *sites]
    lines = [
        [name, better(name) or "", _cell(score), *(_cell(own[name]) for own in sites.values())]
        for name, score in scored.scores.items()
    ]
    kept = _fitting([header, *lines], width)
    cut = len(header) - kept
    more = f" ({cut} more {'site' if cut == 1 else 'sites'} in --json)" if cut else ""
    return Table(
        f"How good the clusters are{more}",
        tuple(header[:kept]),
        tuple(tuple(line[:kept]) for line in lines),
    )


def _cell(score: float) -> str:
    return NOTHING if math.isnan(score) else number(score)


def _fitting(lines: Sequence[Sequence[str]], width: int) -> int:
    """How many columns have room, at least those of all rows together."""
    widths = [max(map(len, column)) + GAP for column in zip(*lines, strict=True)]
    return max(3, int((np.cumsum(widths) <= width).sum()))


def summary_line(scored: Evaluation) -> str:
    """How it was found out, in one line."""
    sent = sum(site.values_sent for site in scored.sites)
    rows = sum(site.rows for site in scored.sites)
    rounds = len(scored.report.outcome.communication_rounds)
    said = f"{rows:,} rows; {sent:,} numbers sent in {rounds} rounds."
    if len(scored.sites) > 1:
        said += " Under a site stands what it would find out alone."
    every = [scored.scores, *scored.by_site.values()]
    if any(math.isnan(score) for scores in every for score in scores.values()):
        said += f" {NOTHING} means that an index says nothing."
    return said
