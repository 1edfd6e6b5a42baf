"""The means of a site's groups as a table, in a file or in an orchestrator's session.

| columns | what they hold |
|---|---|
| those of the rows | the mean of each group; of text 0, or nothing where it is not told |
| `` weight``, `` rows``, `` fewest`` | weight and rows of a group, and the fewest behind a column |
| `` texts NAME``, `` shares NAME`` | places of the levels of a text in a group, and their shares |
| `` texts``, `` shares`` | the same of labels, by weight |
| `` about`` | in the last line, JSON: columns, levels, labels, scatter, how groups were made |

It is one table of plain columns, so that any program can pass it on completely.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
import scipy

from fedcluster.core import Column, Data, Grouped
from fedcluster.core.files import atomic_write
from fedcluster.errors import InputError
from fedcluster.frames.rows import readable

MEANS_VERSION = 1
ABOUT = " about"
"""Name of a column; it begins with a blank, unlike any name of a data column."""


def means_table(data: Data, about: Mapping[str, Any]) -> pa.Table:
    """Return the means of groups as a table.

    Parameters
    ----------
    data : Data
        The means.
    about : mapping
        How the groups were made.

    Examples
    --------
    >>> from fedcluster.privacy import Grouping, Groups
    >>> rows = Data(np.arange(40.0)[:, None], columns=(Column("a"),))
    >>> groups = Grouping(Groups(p=5)).grouped(rows)
    >>> again, about = means_of(means_table(groups, {"p": 5}))
    >>> about["p"], bool((again.X == groups.X).all()), again.columns
    (5, True, (Column(name='a', kind='number', levels=()),))
    """
    grouped = data.grouped
    assert grouped is not None
    assert data.sample_weight is not None
    columns = {column.name: pa.array(data.X[:, j]) for j, column in enumerate(data.columns)}
    behind = grouped.counts if grouped.behind is None else grouped.behind
    columns |= {" weight": pa.array(data.sample_weight), " rows": pa.array(grouped.counts)}
    columns[" fewest"] = pa.array(behind)
    for j, shares in grouped.shares.items():
        columns |= _lists(shares, f" {data.columns[j].name}")
    if grouped.labels is not None:
        columns |= _lists(scipy.sparse.csr_array(grouped.labels), "")
    head = {
        **about,
        "format": MEANS_VERSION,
        "columns": [[c.name, c.kind, list(c.levels)] for c in data.columns],
        "classes": grouped.classes,
        "scatter": dict(grouped.scatter),
        "even": grouped.even,
    }
    text = pa.array([None] * len(data), pa.string())
    last = pa.array([json.dumps(head)], pa.string())
    end = {name: pa.nulls(1, each.type) for name, each in columns.items()}
    whole = {n: pa.chunked_array([each, end[n]]) for n, each in columns.items()}
    return pa.table({**whole, ABOUT: pa.chunked_array([text, last])})


def _lists(shares: Any, name: str) -> dict[str, pa.Array]:
    """Return a sparse array of shares (n, l) as lists of positions and of shares."""
    rows = shares.tocsr()
    parts = ("texts", rows.indices, np.int32), ("shares", rows.data, np.float64)
    return {
        f" {word}{name}": pa.ListArray.from_arrays(rows.indptr.astype(np.int32), each.astype(kind))
        for word, each, kind in parts
    }


def means_of(table: Any) -> tuple[Data, dict[str, Any]]:
    """Return the means of groups in a table, and how they were made.

    Parameters
    ----------
    table : pyarrow.Table or pandas.DataFrame
        The table, as returned by `means_table`.

    Raises
    ------
    InputError
        If the table has another form.
    """
    made = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table)
    return _means(made.column)


def _means(column: Callable[[str], pa.ChunkedArray]) -> tuple[Data, dict[str, Any]]:
    """Return the means from columns that are read one at a time, as all may fill the memory."""
    try:
        about = column(ABOUT)
        head = json.loads(about.drop_null()[-1].as_py())
        if head["format"] != MEANS_VERSION:
            raise InputError(
                f"the means of groups are of format {head['format']}, not {MEANS_VERSION}"
            )
        is_mean = pa.compute.is_null(about)
        return _read(lambda name: column(name).filter(is_mean), head), head
    except (KeyError, ValueError, IndexError, TypeError, pa.ArrowException) as error:
        raise InputError(
            "there are no means of groups in it; fedcluster site groups makes them"
        ) from error


def _read(column: Callable[[str], pa.ChunkedArray], head: Mapping[str, Any]) -> Data:
    columns = tuple(Column(name, kind, tuple(levels)) for name, kind, levels in head["columns"])
    weight, rows, fewest = (column(f" {word}").to_numpy() for word in ("weight", "rows", "fewest"))
    X = np.empty((len(rows), len(columns)))
    for j, each in enumerate(columns):
        X[:, j] = column(each.name).to_numpy()
    shares = {
        j: _sparse(column, f" {each.name}", len(each.levels))
        for j, each in enumerate(columns)
        if each.levels
    }
    classes = None if head["classes"] is None else tuple(head["classes"])
    grouped = Grouped(
        rows,
        shares,
        classes,
        None if classes is None else _sparse(column, "", len(classes)).toarray(),
        head["scatter"],
        fewest,
        head["even"],
    )
    return Data(X, weight, None, columns, None, grouped)


def _sparse(
    column: Callable[[str], pa.ChunkedArray], name: str, width: int
) -> scipy.sparse.csr_array:
    places = column(f" texts{name}").combine_chunks()
    lengths = pa.compute.list_value_length(places).to_numpy(False)
    shares = column(f" shares{name}").combine_chunks().flatten().to_numpy(False)
    start = np.append(0, np.cumsum(lengths))
    indices = places.flatten().to_numpy(False).astype(np.int32)
    return scipy.sparse.csr_array(
        (shares.astype(np.float64), indices, start), shape=(len(lengths), width)
    )


def write_means(file: Path, blocks: Iterable[Data], about: Mapping[str, Any]) -> tuple[int, int]:
    """Write the means of groups as they arrive, the last with the scatter; all or nothing.

    Returns the numbers of groups and of rows in them.
    """
    n_groups = n_rows = 0
    with atomic_write(file) as draft:
        writer = None
        for block in blocks:
            n_groups, n_rows = n_groups + len(block), n_rows + round(block.n_rows)
            table = means_table(block, about)
            writer = writer or pa.parquet.ParquetWriter(draft, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()
    return n_groups, n_rows


def read_means(file: Path) -> tuple[Data, dict[str, Any]]:
    """Return the means of groups in a file, and how they were made.

    Raises
    ------
    InputError
        If the file is missing or has another form.
    """
    with readable(file):
        try:
            with pa.parquet.ParquetFile(file) as whole:
                return _means(lambda name: whole.read(columns=[name]).column(name))
        except (InputError, pa.ArrowInvalid) as error:
            own = isinstance(error, InputError)
            why = str(error) if own else "it is not a whole Parquet file; put back a copy"
            raise InputError(f"{file}: {why}") from error
