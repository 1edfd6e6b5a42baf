"""What the commands do between the arguments and the screen: read, cluster, write."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster._choices import ALGORITHMS, FUZZY_ALGORITHMS
from fedcluster.client import Client
from fedcluster.core import Labels
from fedcluster.errors import InputError
from fedcluster.estimators import FederatedFuzzyCMeans, FederatedKMeans
from fedcluster.io._outputs import (
    atomic_folder,
    json_text,
    label_files,
    write_labels,
)
from fedcluster.io._rows import SiteRows, chunks_of
from fedcluster.model import Model
from fedcluster.report import Record, SiteRecord, plain, site_record

HISTORY = {"format": "fedcluster-history", "format_version": 1}

Counts = dict[str, dict[str, int]]
"""By site and column."""
Doing = Callable[[str], None]
Estimator = FederatedKMeans | FederatedFuzzyCMeans


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


def enough_rows(k: int, tables: Mapping[str, SiteRows]) -> None:
    """Refuse more clusters than rows."""
    rows = sum(map(len, tables.values()))
    if k > rows:
        raise InputError(
            f"-k {k} asks for more clusters than there are rows in all ({rows}); "
            f"ask for at most {rows}"
        )


def cluster(
    tables: Mapping[str, SiteRows],
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


def fitted(estimator: Estimator, tables: Mapping[str, SiteRows]) -> Estimator:
    """An estimator, fitted to the rows that were read."""
    clients = [
        Client(site, table.rows, table.limits)
        for site, table in tables.items()
        if table.limits is not None
    ]
    if clients:
        if estimator.min_cluster_size != "auto":
            raise InputError("--min-cluster-size is what each site file says itself, in [limits]")
        return estimator.fit_clients(clients, next(iter(tables.values())).columns)
    rows = {site: table.data for site, table in tables.items()}
    if estimator.prepare is not None:
        return estimator.fit(rows)
    weights = {s: each.sample_weight for s, each in rows.items() if each.sample_weight is not None}
    groups = {site: each.groups for site, each in rows.items() if each.groups is not None}
    return estimator.fit(
        {site: each.X for site, each in rows.items()},
        sample_weight=weights or None,
        groups=groups or None,
    )


def write(
    out: Path,
    estimator: Estimator,
    tables: Mapping[str, SiteRows],
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


def used_columns(estimator: Estimator, tables: Mapping[str, SiteRows]) -> tuple[str, ...]:
    """The columns that were clustered by."""
    if estimator.preprocessor_ is None:
        return next(iter(tables.values())).columns
    return tuple(column.name for column in estimator.preprocessor_.columns)


def noticed(model: Model, tables: Mapping[str, SiteRows]) -> tuple[Counts, Counts]:
    """Texts of new rows that a model does not know, and values that it fills in."""
    unknown: Counts = {}
    filled: Counts = {}
    if model.preprocessor is None:
        return unknown, filled
    for site, table in tables.items():
        texts, gaps = Counter[str](), Counter[str]()
        for part in chunks_of(table.rows):
            texts.update(model.preprocessor.unknown(part))
            gaps.update(model.preprocessor.filled(part))
        if texts:
            unknown[site] = dict(texts)
        if gaps:
            filled[site] = dict(gaps)
    return unknown, filled


def label(model: Model, tables: Mapping[str, SiteRows]) -> dict[str, Labels]:
    """The labels of each site's rows."""
    found = {}
    for site, table in tables.items():
        try:
            found[site] = np.concatenate([model.predict(part) for part in chunks_of(table.rows)])
        except InputError as error:
            raise InputError(f"site {site!r}: {error}") from error
    return found


def write_labels_of(
    out: Path, model: Model, tables: Mapping[str, SiteRows], labels: Mapping[str, Labels]
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
    tables: Mapping[str, SiteRows],
    labels: Mapping[str, Labels],
    model: Model,
) -> None:
    (folder / "labels").mkdir()
    for site, table in tables.items():
        rows = table.data if model.preprocessor else table.data.X
        degrees = model.memberships(rows) if model.fuzzy else None
        write_labels(folder / files[site], table.row_ids, labels[site], degrees)


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
