"""What the commands do between the arguments and the screen: read, cluster, write."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.cli._sites import (
    OpenSite,
    are_site_files,
    one_file_of_all,
    open_sites,
    said_by_site_files,
)
from fedcluster.core import Data, Labels, Rows
from fedcluster.errors import InputError
from fedcluster.estimators import FederatedFuzzyCMeans, FederatedKMeans
from fedcluster.io._decimals import POINT
from fedcluster.io._files import (
    Source,
    column_list,
    read_columns,
    read_one_file,
    read_raw_file,
    read_raw_sites,
    read_sites,
    sources,
)
from fedcluster.io._outputs import (
    atomic_folder,
    json_text,
    label_files,
    write_labels,
)
from fedcluster.io._reader import Reader, SiteTable
from fedcluster.model import Model
from fedcluster.preprocessing import Category, PreprocessingSpec, Preprocessor
from fedcluster.recipes import ALGORITHMS, FUZZY_ALGORITHMS
from fedcluster.report import Record, SiteRecord, plain, site_record

HISTORY = {"format": "fedcluster-history", "format_version": 1}

Table = SiteTable | OpenSite
Counts = dict[str, dict[str, int]]
"""By site and column."""
Doing = Callable[[str], None]
Estimator = FederatedKMeans | FederatedFuzzyCMeans


@dataclass(frozen=True, slots=True)
class Reading:
    """How the files are read, as the options say.

    Parameters
    ----------
    columns : str, optional
        Those to cluster by, as ``--columns`` takes them.
    site, weight, group : str, optional
        The column with the names of the sites, with the weights, and with whose row it is.
    decimal : {".", ","}, default="."
        What decimals begin with in CSV files.
    """

    columns: str | None = None
    site: str | None = None
    weight: str | None = None
    group: str | None = None
    decimal: str = POINT

    @property
    def chosen(self) -> list[str] | None:
        """The columns to cluster by, which play no other part."""
        chosen = column_list(self.columns)
        part = {"site": self.site, "weight": self.weight, "group": self.group}
        for which, name in part.items():
            if name is not None and name in (chosen or []):
                raise InputError(
                    f"--{which}-column {name!r} is among --columns too; leave it out there"
                )
        return chosen

    def check(self, files: Sequence[str]) -> None:
        """Refuse options that do not go together with these files."""
        if are_site_files(files):
            said_by_site_files(self.decimal, self.site, self.weight, self.group)
        one_file_of_all(self.site, files)


def read(
    files: Sequence[str], how: Reading, doing: Doing, prepare: PreprocessingSpec | None = None
) -> Mapping[str, Table]:
    """The sites' rows, from one file each, from one file of all, or as their site files say.

    Those that are to be prepared may have text and missing values.
    """
    chosen = how.chosen
    how.check(files)
    if are_site_files(files):
        return open_sites(files, chosen, doing, raw=prepare is not None)
    given = sources(files, how.decimal)

    def watch(source: Source) -> None:
        doing(f"reading {source.path.name}")

    if how.site is None:
        if prepare is None:
            return read_sites(given, chosen, how.weight, watch, how.group)
        return read_raw_sites(given, chosen, how.weight, prepare.named, watch, how.group)
    watch(given[0])
    if prepare is None:
        return read_one_file(given[0], how.site, chosen, how.weight, how.group)
    return read_raw_file(given[0], how.site, chosen, how.weight, prepare.named, how.group)


def check_numbers(
    k: int = 1,
    n_init: int | None = None,
    max_iter: int = 1,
    tol: float = 0,
    min_cluster_size: int | None = None,
    seed: int = 0,
) -> None:
    """Refuse numbers that mean nothing."""
    from_one = {
        "-k": k,
        "--n-init": n_init,
        "--max-iter": max_iter,
        "--min-cluster-size": min_cluster_size,
    }
    for option, value in from_one.items():
        if value is not None and value < 1:
            raise InputError(f"{option} must be at least 1, not {value}")
    if not tol >= 0:
        raise InputError(f"--tol must be at least 0, not {tol}")
    if not 0 <= seed < 2**32:
        raise InputError(f"--seed must be from 0 to {2**32 - 1}, not {seed}")


def fuzzifier(algorithm: str, m: float | None, *, fuzzy: bool) -> float | None:
    """The fuzzifier of a fuzzy clustering, None for a hard one."""
    fuzzy = fuzzy or m is not None
    if algorithm not in (FUZZY_ALGORITHMS if fuzzy else ALGORITHMS):
        raise InputError(
            f"--algorithm {algorithm} is not fuzzy; leave out {'--fuzzy' if m is None else '-m'}"
            if fuzzy
            else f"--algorithm {algorithm} is fuzzy; add --fuzzy"
        )
    if m is not None and not 1 < m < np.inf:
        raise InputError(f"-m must be above 1, not {m:g}; near 1, degrees are nearly 0 and 1")
    return (m or 2.0) if fuzzy else None


def fraction(participation: float) -> float:
    """The fraction of the sites that is asked in a round, checked."""
    if not 0 < participation <= 1:
        raise InputError(f"--participation must be above 0 and at most 1, not {participation:g}")
    return participation


def most(k: int | str | range) -> int:
    """The most clusters that ``-k`` asks for; auto asks for what there is."""
    return 1 if isinstance(k, str) else k if isinstance(k, int) else max(k)


def enough_rows(k: int, tables: Mapping[str, Table]) -> None:
    """Refuse more clusters than rows."""
    rows = sum(map(len, tables.values()))
    if k > rows:
        raise InputError(
            f"-k {k} asks for more clusters than there are rows in all ({rows}); "
            f"ask for at most {rows}"
        )


def cluster(
    tables: Mapping[str, Table],
    k: int | str | range,
    seed: int,
    doing: Doing,
    m: float | None = None,
    **parameters: Any,
) -> Estimator:
    """A fitted estimator; with a fuzzifier m, a fuzzy one."""
    rounds = itertools.count(1)
    estimator: Estimator = (
        FederatedKMeans(k, random_state=seed, **parameters)
        if m is None
        else FederatedFuzzyCMeans(k, m=m, random_state=seed, **parameters)
    )
    estimator._watch = lambda exchange: doing(
        f"round {next(rounds)} done with {len(exchange.answered)} sites"
    )
    doing("clustering")
    return fitted(estimator, tables)


def fitted(estimator: Estimator, tables: Mapping[str, Table]) -> Estimator:
    """An estimator, fitted to the rows that were read."""
    clients = [table.client for table in tables.values() if isinstance(table, OpenSite)]
    if clients:
        if estimator.min_cluster_size != "auto":
            raise InputError("--min-cluster-size is what each site file says itself, in [limits]")
        return estimator.fit_clients(clients, next(iter(tables.values())).columns)
    if estimator.prepare is not None:
        return estimator.fit(
            {site: table.data for site, table in tables.items() if isinstance(table, SiteTable)}
        )
    weights = {site: table.weights for site, table in tables.items() if table.weights is not None}
    groups = {site: table.groups for site, table in tables.items() if table.groups is not None}
    return estimator.fit(
        {site: table.X for site, table in tables.items()},
        sample_weight=weights or None,
        groups=groups or None,
    )


def write(
    out: Path,
    estimator: Estimator,
    tables: Mapping[str, Table],
    draw: Callable[[Path, Record], list[str]] = lambda folder, record: [],
    **more: Any,
) -> tuple[Record, list[str]]:
    """Write the outputs of a fit; returns its record and the files, relative to the folder.

    ``draw(folder, record)`` may add files, whose names it returns; ``more`` goes into the
    history.
    """
    labels = label_files(list(tables))
    columns = used_columns(estimator, tables)
    narrow = all(table.dtype == np.float32 for table in tables.values())
    model = Model.from_estimator(
        estimator, columns=columns, dtype="float32" if narrow else "float64"
    )
    record = Record.of(estimator, columns, labels)
    with atomic_folder(out, obsolete=_labels_of_earlier_run(out)) as folder:
        drawn = draw(folder, record)
        _write_labels(folder, labels, tables, estimator.site_labels_, model)
        model.save(folder / "model.json")
        files = ["model.json", "history.json", *drawn, *labels.values()]
        history = HISTORY | plain(record) | more | {"files": files}
        (folder / "history.json").write_text(json_text(history), encoding="utf-8")
    return record, files


def used_columns(estimator: Estimator, tables: Mapping[str, Table]) -> tuple[str, ...]:
    """The columns that were clustered by."""
    if estimator.preprocessor_ is None:
        return next(iter(tables.values())).columns
    return tuple(column.name for column in estimator.preprocessor_.columns)


def read_for(
    model: Model, files: Sequence[str], doing: Doing, decimal: str = POINT
) -> Mapping[str, Table]:
    """The rows of new files or of site files, with the model's columns."""
    if are_site_files(files):
        said_by_site_files(decimal)
        return open_sites(files, model.columns, doing, raw=model.preprocessor is not None)
    tables = {}
    for source in sources(files, decimal):
        doing(f"reading {source.path.name}")
        tables[source.site] = (
            read_columns(source, model.columns)
            if model.preprocessor is None
            else _read_raw(source, model.preprocessor)
        )
    return tables


def _read_raw(source: Source, preprocessor: Preprocessor) -> SiteTable:
    """The columns of one file that a preparation needs."""
    names = [column.name for column in preprocessor.columns]
    texts = [column.name for column in preprocessor.columns if isinstance(column, Category)]
    return Reader(source.owner, source.opened()).raw(names, texts=texts)


def _rows(model: Model, table: Table) -> Rows | Data:
    """Rows as a model takes them."""
    return table.data if model.preprocessor else table.X


def noticed(model: Model, tables: Mapping[str, Table]) -> tuple[Counts, Counts]:
    """Texts of new rows that a model does not know, and values that it fills in."""
    unknown: Counts = {}
    filled: Counts = {}
    if model.preprocessor is None:
        return unknown, filled
    for site, table in tables.items():
        texts, gaps = Counter[str](), Counter[str]()
        for part in _parts(table):
            texts.update(model.preprocessor.unknown(part))
            gaps.update(model.preprocessor.filled(part))
        if texts:
            unknown[site] = dict(texts)
        if gaps:
            filled[site] = dict(gaps)
    return unknown, filled


def _parts(table: Table) -> Iterable[Data]:
    """The rows of a table; those of a site file in chunks, where they are many."""
    return table.chunks() if isinstance(table, OpenSite) else [table.data]


def label(model: Model, tables: Mapping[str, Table]) -> dict[str, Labels]:
    """The labels of each site's rows."""
    found = {}
    for site, table in tables.items():
        try:
            found[site] = np.concatenate([model.predict(part) for part in _parts(table)])
        except InputError as error:
            raise InputError(f"site {site!r}: {error}") from error
    return found


def write_labels_of(
    out: Path, model: Model, tables: Mapping[str, Table], labels: Mapping[str, Labels]
) -> list[SiteRecord]:
    """Write the labels of new rows; returns what each site holds."""
    files = label_files(list(tables))
    with atomic_folder(out) as folder:
        _write_labels(folder, files, tables, labels, model)
    k = len(model.centers)
    return [site_record(site, found, k, files[site]) for site, found in labels.items()]


def _write_labels(
    folder: Path,
    files: Mapping[str, str],
    tables: Mapping[str, Table],
    labels: Mapping[str, Labels],
    model: Model,
) -> None:
    (folder / "labels").mkdir()
    for site, table in tables.items():
        degrees = model.memberships(_rows(model, table)) if model.fuzzy else None
        write_labels(folder / files[site], table.numbers, labels[site], degrees)


def _labels_of_earlier_run(out: Path) -> list[str]:
    """Files of labels that an earlier fit wrote here, by its own account."""
    try:
        history = json.loads((out / "history.json").read_text("utf-8"))
        if history["format"] != HISTORY["format"]:
            return []
        files = [Path(name) for name in history["files"]]
    except (OSError, ValueError, LookupError, TypeError):
        return []
    return [str(f) for f in files if f.parent == Path("labels") and f.suffix == ".csv"]


def result(record: Record, out: Path, files: Sequence[str], **more: Any) -> dict[str, Any]:
    """What ``--json`` prints of a fit: the record without the rounds, and what was written."""
    rounds = ("history", "communication_rounds")
    content = {name: value for name, value in plain(record).items() if name not in rounds}
    return content | more | {"out": str(out), "files": list(files)}
