"""Commands on Parquet files by a Dask cluster, as in ``fedcluster fit --set engine=dask``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster import jobs
from fedcluster.core import Data, Floats, Labels
from fedcluster.core.threads import thread_count
from fedcluster.engines import DaskEngine
from fedcluster.errors import InputError
from fedcluster.frames.columns import column_list
from fedcluster.frames.reader import ColumnRoles
from fedcluster.jobs import Evaluate, Fit, Job, JobReport, Profile, SelectK
from fedcluster.model import Model
from fedcluster.options.refusals import refused
from fedcluster.privacy import Groups
from fedcluster_app.cli._options import FileOptions, check_like_fit
from fedcluster_app.cli._reading import roles_of
from fedcluster_app.cli._runs import Counts, Evaluation, FittedSites, records_of, write_fit
from fedcluster_app.cli._screen import Doing, watching
from fedcluster_app.cli._study import as_written
from fedcluster_app.report.tables import SiteRecord, site_record
from fedcluster_app.tables.outputs import atomic_folder, label_files, write_labels
from fedcluster_app.tables.remote import PARQUET, check_alike

SHARE = 4
"""Share of the workers' memory above which rows are read anew in every round."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Parquet files, whose partitions a Dask cluster reads.

    Parameters
    ----------
    files : sequence of str
        The files.
    rows : FileOptions
        How they are read.
    address : str
        The address of the cluster; "" for one that is started on this machine.
    doing : Doing
        Shows the progress.
    """

    files: Sequence[str]
    rows: FileOptions
    address: str
    doing: Doing

    def fit(
        self, job: Fit, out: Path, said: Mapping[str, Any]
    ) -> tuple[FittedSites, dict[str, Any], list[str]]:
        """Find clusters, and write them and the labels of each partition."""
        with self._started(None) as (engine, _):
            report = _executed(job, engine, self.doing)
            model = jobs.model_of(report)
            fitted = FittedSites(report, model, {}, {}, ())

            def labelled(folder: Path) -> FittedSites:
                paths = label_files(engine.names)
                found = _labelled(model, model.row_form.roles, engine, self.doing)
                written = ((at, each.labels) for at, each in _written(found, folder, paths))
                records = records_of(report, written, len(model.weights), paths)
                none = [(each.name, each.rows - sum(each.clusters)) for each in records]
                doubts = [f"{n:,} rows of {at} are in no cluster (-1)" for at, n in none if n]
                return replace(fitted, records=records, doubts=doubts)

            study = as_written(said, self.files, {}, out)
            return write_fit(out, fitted, study, label=labelled)

    def select_k(self, job: SelectK) -> JobReport:
        """Choose the number of clusters."""
        with self._started(None) as (engine, _):
            return _executed(job, engine, self.doing)

    def on_model(self, job: Evaluate | Profile, roles: ColumnRoles) -> Evaluation:
        """Score or profile the clusters of a model on the rows of all partitions together."""
        if isinstance(job, Evaluate):
            job = replace(job, labels=self.rows.label_column is not None)
        with self._started(roles) as (engine, _):
            report = _executed(job, engine, self.doing)
            own = replace(roles, **roles_of(self.rows))
            found = _labelled(job.model, own, engine, self.doing)
            labels = ((at, each.labels) for at, each in found)
            return Evaluation(report, {}, records_of(report, labels, len(job.model.weights)))

    def predict(
        self, model: Model, roles: ColumnRoles, out: Path, *, strict: bool
    ) -> tuple[list[SiteRecord], dict[str, list[str]], Counts, Counts, list[str]]:
        """Write the labels of each partition.

        Returns
        -------
        records : list of SiteRecord
            What each partition holds.
        ignored : dict of str to list of str
            The columns of each partition that the model does not use.
        unknown, filled : dict of str to dict of str to int
            The counts of unknown texts and of values that were filled in, by partition and column.
        unlike : list of str
            In which columns rows are unlike those of the fit, of the first such partition.
        """
        if model.adjusts:
            raise refused("adjust-site", what="a Dask collection, whose partitions are no sites")
        unlike: list[str] = []
        unknown: Counts = {}
        filled: Counts = {}
        records = []
        with (
            self._started(roles, keep=False) as (engine, ignored),
            atomic_folder(out) as folder,
        ):
            paths = label_files(engine.names, "")
            found = _labelled(model, roles, engine, self.doing)
            for name, each in _written(found, folder, paths):
                records.append(site_record(name, each.labels, len(model.weights), paths[name]))
                unknown |= {name: each.unknown} if each.unknown else {}
                filled |= {name: each.filled} if each.filled else {}
                unlike = unlike or [f"{name}, {line}" for line in each.unlike]
                check_like_fit(unlike if strict else ())
        every = {record.name: ignored for record in records}
        return records, every, unknown, filled, unlike

    @contextmanager
    def _started(
        self, roles: ColumnRoles | None, *, keep: bool = True
    ) -> Iterator[tuple[DaskEngine, list[str]]]:
        """Give the engine, on a cluster that is started if it has no address.

        Also gives the columns of the files that have no role.
        """
        import distributed

        with ExitStack() as started:
            how = "connecting to" if self.address else "starting"
            self.doing(f"{how} the Dask cluster")
            local = {"n_workers": thread_count(), "threads_per_worker": 1, "silence_logs": "ERROR"}
            try:
                here: Any = self.address or started.enter_context(
                    distributed.LocalCluster(dashboard_address=":0", **local)
                )
                client = started.enter_context(distributed.Client(here))
            except OSError as error:
                at = f"at {self.address or 'this machine'} ({type(error).__name__})"
                raise InputError(f"no Dask scheduler answers {at}") from None
            self.doing("reading the files")
            yield _engine(self.files, self.rows, roles, client, keep=keep)


def _executed(job: Job, engine: DaskEngine, doing: Doing) -> JobReport:
    """Run a job on partitions."""
    is_fit = isinstance(job, Fit | SelectK)
    described = engine.introduce(columns=True)[0].columns if is_fit else ()
    columns = [column.name for column in described]
    return jobs.execute(job, engine, columns=columns, watch=watching(doing))


def _engine(
    files: Sequence[str], rows: FileOptions, roles: ColumnRoles | None, client: Any, *, keep: bool
) -> tuple[DaskEngine, list[str]]:
    """Return the engine for some files, which it reads anew in every round if they are large.

    Without roles of a model, the columns are those that options name, or all. Also returns the
    columns that are ignored.
    """
    collection, n_rows = _read(files)
    if roles is None:
        chosen, excluded = column_list(rows.columns), column_list(rows.exclude) or ()
        roles = ColumnRoles(tuple(chosen) if chosen else None, raw=True, excluded=tuple(excluded))
    roles = ColumnRoles.from_columns(replace(roles, **roles_of(rows)), tuple(collection.columns))
    values = roles.values or ()
    workers = client.scheduler_info()["workers"].values()
    memory = sum(worker["memory_limit"] or 0 for worker in workers)
    engine = DaskEngine(
        collection,
        columns=roles,
        weight_column=rows.weight_column,
        group_column=rows.group_column,
        label_column=rows.label_column,
        protection=Groups() if rows.protection == "groups" else None,
        client=client,
        keep=keep and 8 * n_rows * len(values) * SHARE < memory,
    )
    used = {*values, *roles.others}
    return engine, [name for name in collection.columns if name not in used]


def _read(files: Sequence[str]) -> tuple[Any, int]:
    """Return Parquet files as a lazy data frame, and its number of rows.

    Raises
    ------
    InputError
        If there is no such file, the files are no common table, or they have no rows.
    """
    import dask.dataframe as dd

    if other := [file for file in files if not (re.search(PARQUET, file) or file.endswith("/"))]:
        raise InputError(
            f"{other[0]}: engine dask reads Parquet files; convert it, or leave engine out"
        )
    try:
        check_alike(files)
        collection = dd.read_parquet(list(files) if len(files) > 1 else files[0])
        n_rows = len(collection)
    except InputError:
        raise
    except FileNotFoundError as error:
        lacking = (file for file in files if file.split("://")[-1] in str(error))
        raise InputError(f"{next(lacking, files[0])} does not exist; check the path") from None
    except Exception as error:
        kind = type(error).__name__
        raise InputError(f"the files cannot be read as one Parquet table ({kind})") from None
    if not n_rows:
        raise InputError(f"no rows in {', '.join(files)}; check the path, and what wrote the files")
    return collection, n_rows


# The labels of partitions


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Labels of the rows of a partition (n,), their memberships, and what was odd in the rows."""

    labels: Labels
    memberships: Floats | None
    unknown: dict[str, int]
    filled: dict[str, int]
    unlike: tuple[str, ...] = ()


def _found(model: Model, rows: Data | None) -> Labelled:
    """Return the labels of the rows of a partition that have a weight."""
    how = model.preprocessor
    if rows is None or not len(rows := rows.weighed()):
        none = np.zeros((0, len(model.weights))) if model.fuzzy else None
        return Labelled(np.zeros(0, np.int32), none, {}, {})
    odd: tuple[dict[str, int], dict[str, int]]
    odd = ({}, {}) if how is None else (how.unknown(rows), how.filled(rows))
    degrees = model.memberships(rows) if model.fuzzy else None
    return Labelled(model.predict(rows), degrees, *odd, model.check(rows))


def _labelled(
    model: Model, roles: ColumnRoles, engine: DaskEngine, doing: Doing
) -> Iterator[tuple[str, Labelled]]:
    """Yield the labels of each partition as they arrive."""
    parts = zip(engine.names, engine.of_each(partial(_found, model), roles), strict=True)
    for i, part in enumerate(parts, 1):
        doing(f"labelling partition {i} of {len(engine.names)}")
        yield part


def _written(
    parts: Iterator[tuple[str, Labelled]], folder: Path, paths: Mapping[str, str]
) -> Iterator[tuple[str, Labelled]]:
    """Write the labels of each partition into a folder, and yield them."""
    for name, each in parts:
        file = folder / paths[name]
        file.parent.mkdir(exist_ok=True)
        write_labels(file, range(1, len(each.labels) + 1), each.labels, each.memberships)
        yield name, each
