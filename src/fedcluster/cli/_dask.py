"""Fits of Parquet files by a Dask cluster: ``fedcluster fit --engine dask``."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcluster import jobs
from fedcluster.cli._options import FileOptions
from fedcluster.cli._progress import TimedEngine, watching
from fedcluster.cli._runs import FittedSites, write_fit
from fedcluster.cli._screen import Doing
from fedcluster.core import Labels
from fedcluster.core.threads import thread_count
from fedcluster.engines import DaskEngine
from fedcluster.errors import InputError
from fedcluster.io.columns import column_list
from fedcluster.io.outputs import label_files, write_labels
from fedcluster.jobs import Fit, JobReport
from fedcluster.model import Model
from fedcluster.privacy import Groups
from fedcluster.report.records import SiteRecord, site_record

AHEAD = 2
"""Number of partitions that each worker may label before their labels are written."""
SHARE = 4
"""Share of the workers' memory above which rows are read anew in every round."""


def fit(
    job: Fit, files: Sequence[str], rows: FileOptions, address: str, out: Path, doing: Doing
) -> tuple[FittedSites, dict[str, Any], list[str]]:
    """Find clusters of Parquet files, and write them and the labels of each partition."""
    import distributed

    with ExitStack() as started:
        doing("connecting to the Dask cluster" if address else "starting the Dask cluster")
        local = {"n_workers": thread_count(), "threads_per_worker": 1, "silence_logs": "ERROR"}
        try:
            here: Any = address or started.enter_context(
                distributed.LocalCluster(dashboard_address=":0", **local)
            )
            client = started.enter_context(distributed.Client(here))
        except OSError as error:
            at = f"at {address or 'this machine'} ({type(error).__name__})"
            raise InputError(f"no Dask scheduler answers {at}") from None
        doing("reading the files")
        engine = _engine(files, rows, client)
        timed = TimedEngine(engine)
        columns = [column.name for column in engine.introduce(columns=True)[0].columns]
        report = jobs.execute(job, timed, columns=columns, watch=watching(doing, timed))
        model = jobs.model_of(report)
        fitted = FittedSites(report, model, {}, {}, ())

        def labelled(folder: Path) -> FittedSites:
            records = tuple(_labelled(model, report, engine, client, folder, doing))
            none = {record.name: record.rows - sum(record.clusters) for record in records}
            doubts = [f"{n:,} rows of {at} are in no cluster (-1)" for at, n in none.items() if n]
            return replace(fitted, records=records, doubts=doubts)

        return write_fit(out, fitted, label=labelled)


def _engine(files: Sequence[str], rows: FileOptions, client: Any) -> DaskEngine:
    """Return the engine for some files, which it reads anew in every round if they are large."""
    import dask.dataframe as dd

    if other := [file for file in files if not re.search(r"\.parq(uet)?$|/$", file)]:
        raise InputError(
            f"{other[0]}: --engine dask reads Parquet files; convert it, or leave --engine out"
        )
    try:
        collection = dd.read_parquet(list(files) if len(files) > 1 else files[0])
        n_rows = len(collection)
    except FileNotFoundError:
        raise InputError(f"{files[0]} does not exist; check the path") from None
    except Exception as error:
        kind = type(error).__name__
        raise InputError(f"the files cannot be read as one Parquet table ({kind})") from None
    left_out = {*(column_list(rows.exclude) or ()), rows.weight_column, rows.group_column}
    columns = column_list(rows.columns) or [c for c in collection.columns if c not in left_out]
    workers = client.scheduler_info()["workers"].values()
    memory = sum(worker["memory_limit"] or 0 for worker in workers)
    return DaskEngine(
        collection,
        columns=columns,
        weight_column=rows.weight_column,
        group_column=rows.group_column,
        protection=Groups() if rows.protection == "groups" else None,
        client=client,
        keep=8 * n_rows * len(columns) * SHARE < memory,
    )


def _labelled(
    model: Model, report: JobReport, engine: DaskEngine, client: Any, folder: Path, doing: Doing
) -> Iterator[SiteRecord]:
    """Write the labels of each partition as they arrive; yield what it holds and sent."""
    parts = engine.parts(engine.label(model))
    degrees = (
        engine.parts(engine.label(model, memberships=True)) if model.fuzzy else [None] * len(parts)
    )
    sent, files, k = report.outcome.values_sent(), label_files(engine.names), len(model.weights)
    (folder / "labels").mkdir()
    each = zip(engine.names, _computed(zip(parts, degrees, strict=True), client), strict=True)
    for i, (name, (labels, shares)) in enumerate(each, 1):
        doing(f"labelling partition {i} of {len(parts)}", i / len(parts))
        found: Labels = labels.to_numpy()
        memberships = None if shares is None else shares.to_numpy()
        write_labels(folder / files[name], range(1, len(found) + 1), found, memberships)
        held = len(found) * len(report.columns)
        yield site_record(
            name, found, k, files[name], values_sent=sent.get(name, 0), values_held=held
        )


def _computed(parts: Iterable[Any], client: Any) -> Iterator[Any]:
    """Yield lazy parts as they are computed, a few at a time, in order."""
    most, coming = AHEAD * len(client.scheduler_info()["workers"]), deque[Any]()
    for part in parts:
        coming.append(client.compute(list(part)))
        if len(coming) > most:
            yield client.gather(coming.popleft())
    while coming:
        yield client.gather(coming.popleft())
