"""Work of ``select-k`` and ``evaluate`` between the arguments and the screen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.cli import _runs as runs
from fedcluster.core import Filter
from fedcluster.engines import LocalEngine
from fedcluster.engines.client import Client
from fedcluster.errors import InputError
from fedcluster.io.columns import label_counts
from fedcluster.io.rows import SiteRows, chunks_of, error_prefix
from fedcluster.jobs import (
    Evaluate,
    JobReport,
    Profile,
    SelectK,
    content_of,
    execute,
    limits_of,
    within,
)
from fedcluster.model import Model
from fedcluster.options.refusals import refused
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.privacy import MinClusterSize, MinRows
from fedcluster.report.records import SiteRecord, plain
from fedcluster.report.tables import number
from fedcluster.texts.html import Table

NOTHING = "–"
GAP = 2

Scores = Mapping[str, float]


# select-k


def specified(
    job: SelectK, prepare: PreprocessingSpec | None, bounds: str | None, *, elbow: bool
) -> SelectK:
    """Return the job as the options say, checked."""
    most = job.k_last
    if job.k_min > most:
        raise InputError(f"--k-min {job.k_min} is above --k-max {most}; the first k comes first")
    if elbow and job.rule in ("likelihood", "vote"):
        raise refused("choice-elbow", command=True)
    if bounds is not None and prepare is not None:
        raise refused("choice-bounds", command=True)
    return replace(
        job,
        pick="elbow" if elbow else "best",
        bounds=None if bounds is None else _bounds(bounds),
        prepare=prepare,
    )


def _bounds(text: str) -> tuple[list[float], list[float]]:
    """Return LOW:HIGH pairs, one for each column or one for all, as two lists."""
    try:
        pairs = [tuple(map(float, pair.split(":"))) for pair in text.split(",")]
        lower, upper = ([float(x) for x in side] for side in zip(*pairs, strict=True))
    except ValueError:
        lower, upper = [math.nan], [math.nan]
    if not all(
        low <= high < math.inf and low > -math.inf for low, high in zip(lower, upper, strict=True)
    ):
        raise InputError(
            f"--bounds '{text}' must be LOW:HIGH for all columns, or one such pair for each column "
            "with commas between, as in 0:120,-5:5"
        )
    return lower, upper


def choose(
    job: SelectK,
    tables: Mapping[str, SiteRows],
    doing: runs.Doing,
    min_cluster_size: int | None = None,
) -> JobReport:
    """Cluster with each k that there are rows for, score, choose."""
    options = {"--k-min": job.k_min, "--k-max": job.k_max or 0}
    job = within(job, runs.check_rows(options, tables))
    clients = runs.clients_of(tables, limits_of(job, min_cluster_size), min_cluster_size)
    doing(f"clustering with k = {job.k_min} to {job.k_last}")
    return runs.carry_out(job, clients, runs.columns_of(tables), doing)


def selection_shown(report: JobReport, out: Path | None, files: Sequence[str]) -> list[Table | str]:
    """Return what people see."""
    sent, rounds = report.outcome.values_sent(), len(report.outcome.communication_rounds)
    took = (
        f"All k in the same {rounds} rounds with {len(sent)} site{'' if len(sent) == 1 else 's'}, "
        f"{sum(sent.values()):,} numbers sent. Seed {report.job.seed}."
    )
    wrote = [f"Wrote {' and '.join(str(out / file) for file in files)}."] if out and files else []
    return [*runs.verdict(report.outcome.value), *report.prepared, took, *wrote]


# evaluate


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Scores of a model on the rows of some sites.

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


def evaluate(
    model: Model,
    tables: Mapping[str, SiteRows],
    min_cluster_size: int,
    metrics: Sequence[str] = (),
    *,
    algorithms: Sequence[str] = (),
    profile: bool = False,
) -> Evaluation:
    """Score a model's clusters by all indices that apply, on these sites' rows."""
    own: dict[str, Any] = {"metrics": metrics, "algorithms": algorithms}
    job = Evaluate(model, classes=_classes(tables.values()), profile=profile, **own)
    report, records = answered(job, tables, min_cluster_size)
    alone = {name: Client(name, table.rows, ()) for name, table in tables.items()}
    job = replace(job, n_references=0, profile=False)  # of all rows together, once
    by_site = {
        name: execute(job, LocalEngine([client])).outcome.value for name, client in alone.items()
    }
    return Evaluation(report, by_site, records)


def answered(
    job: Evaluate | Profile, tables: Mapping[str, SiteRows], min_cluster_size: int
) -> tuple[JobReport, tuple[SiteRecord, ...]]:
    """Carry out a job about a model at these sites; return also what each sent.

    The sites have their own limits or else this one.
    """
    if min_cluster_size > 1 and any(table.limits is not None for table in tables.values()):
        raise refused("site-file-labels")
    limits: list[Filter] = [MinRows(2)] if len(tables) > 1 else []
    limits += [MinClusterSize(min_cluster_size)] if min_cluster_size > 1 else []
    clients, model = runs.clients_of(tables, limits), job.model
    report = execute(job, LocalEngine(clients))
    records = []
    for client in clients:
        weighed = [model.predict(chunk.weighed()) for chunk in chunks_of(client.source)]
        records.append(runs.record_of(client, report, np.concatenate(weighed), len(model.weights)))
    return report, tuple(records)


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
    with error_prefix(f"site {table.name!r}"):
        counts = label_counts(chunks_of(table.rows))
    return None if counts is None else set(counts)


def evaluation_content(scored: Evaluation, model_file: str) -> dict[str, Any]:
    """Return what ``scores.json`` and ``--json`` say, without the rounds."""
    content = content_of(scored.report, scored.sites)
    by_site = scored.by_site
    sites = [{**site, "scores": plain(by_site[site["name"]])} for site in content["sites"]]
    return content | {"model": model_file, "sites": sites}


def evaluation_table(scored: Evaluation, width: int) -> Table:
    """Return a line for each index, for a screen of so many columns; the last sites may not fit."""
    sites = scored.by_site if len(scored.by_site) > 1 else {}
    better = content_of(scored.report)["better"]
    header = ["index", "better", "all", *sites]
    lines = [
        [
            name,
            better[name] or "",
            _cell(score),
            *(_cell(own[name]) if name in own else "" for own in sites.values()),
        ]
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
    """Count the columns that have room, at least those of all rows together."""
    widths = [max(map(len, column)) + GAP for column in zip(*lines, strict=True)]
    return max(3, int((np.cumsum(widths) <= width).sum()))


def evaluation_line(scored: Evaluation) -> str:
    """Return how the scores were computed, in one line."""
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
