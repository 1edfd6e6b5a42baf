"""What ``select-k`` does between the arguments and the screen: ask, write, show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcluster._artefacts import selection_content, sentences, write_selection
from fedcluster._specifications import MOST_CLUSTERS
from fedcluster.cli import _runs as runs
from fedcluster.errors import InputError
from fedcluster.io._outputs import atomic_folder
from fedcluster.io._rows import SiteRows
from fedcluster.jobs import JobReport, SelectK, limits_of, within
from fedcluster.preprocessing import PreprocessingSpec
from fedcluster.report import Table


def specified(
    job: SelectK, prepare: PreprocessingSpec | None, bounds: str | None, *, elbow: bool
) -> SelectK:
    """Return the job as the options say, checked."""
    most = _most(job)
    if job.k_min > most:
        raise InputError(f"--k-min {job.k_min} is above --k-max {most}; the first k comes first")
    if elbow and job.rule == "vote":
        raise InputError("--elbow is for a single index; name it by --rule")
    if bounds is not None and prepare is not None:
        raise InputError("--bounds are those of rows that are taken as they are: add --scale none")
    return replace(
        job,
        pick="elbow" if elbow else "best",
        bounds=None if bounds is None else _bounds(bounds),
        prepare=prepare,
    )


def _most(job: SelectK) -> int:
    return job.k_max or max(job.k_min, MOST_CLUSTERS)


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


def within_rows(job: SelectK, tables: Mapping[str, SiteRows]) -> SelectK:
    """Return as many k as there are rows for; refuses more where the user asked for them."""
    rows = sum(map(len, tables.values()))
    for option, k in (("--k-min", job.k_min), ("--k-max", job.k_max or 0)):
        if k > rows:
            raise InputError(
                f"{option} {k} asks for more clusters than there are rows in all ({rows}); "
                f"ask for at most {rows}"
            )
    return within(job, rows)


def choose(
    job: SelectK,
    tables: Mapping[str, SiteRows],
    doing: runs.Doing,
    min_cluster_size: int | None = None,
) -> JobReport:
    """Cluster with each k, score, choose."""
    clients = runs.clients_of(tables, limits_of(job, min_cluster_size), min_cluster_size)
    doing(f"clustering with k = {job.k_min} to {_most(job)}")
    return runs.carry_out(job, clients, runs.columns_of(tables), doing)


def write(out: Path, report: JobReport) -> list[str]:
    """Write a choice into a folder; returns the files."""
    with atomic_folder(out) as folder:
        return write_selection(folder, report)


def result(report: JobReport, out: Path | None, files: Sequence[str]) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return runs.result(selection_content(report), out, files)


def shown(report: JobReport, out: Path | None, files: Sequence[str]) -> list[Table | str]:
    """Return what people see."""
    sent, rounds = report.outcome.values_sent(), len(report.outcome.communication_rounds)
    took = (
        f"All k in the same {rounds} rounds with {len(sent)} site{'' if len(sent) == 1 else 's'}, "
        f"{sum(sent.values()):,} numbers sent. Seed {report.job.seed}."
    )
    wrote = [f"Wrote {' and '.join(str(out / file) for file in files)}."] if out and files else []
    return [*runs.verdict(report.outcome.value), *sentences(report), took, *wrote]
