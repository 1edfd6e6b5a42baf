"""Rows that other groups of a site hold: what was grouped once is new in no other groups.

Two groupings of the same rows together tell of single rows, whatever differs between them: columns,
the smallest size, rules, a flag more. So the files of groups in a folder are its register. Each
has a digest of every value of the rows in its groups, by which other groups of the folder recognise
these rows.

The rows of others may agree with them in a column of few values. So columns are compared in parts,
each of as few columns as tell nearly all rows apart. Rows are taken for the same if they agree in
half of the parts, or in one in which more rows agree than rows of others would: as many of the
grouped rows agree with another one of them. Columns that changed since, or are not in both, do not
hide them, as long as a part is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Data
from fedcluster.frames.columns import columns_of
from fedcluster.privacy.partition import Cells, Ids, Partition, cells_of
from fedcluster.privacy.persons import mixed, unique_ids

SUFFIX = ".groups"

Chunks = Callable[[], Iterable[Data]]


def earlier_file(file: Path, generation: int) -> Path:
    """Return the file that keeps the groups of an earlier generation."""
    return file.with_suffix(f".generation-{generation}{SUFFIX}")


def others_of(file: Path) -> list[Path]:
    """Return the other files of groups in the folder of a file, those of its own past included."""
    return [each for each in sorted(file.parent.glob(f"*{SUFFIX}")) if each != file]


def names_of(data: Data, roles: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of all values of rows: columns, weights and labels."""
    names = [column.name for column in columns_of(data)]
    names += [] if data.sample_weight is None else [roles.get("weight_column", " weight")]
    return (*names, *([] if data.y is None else [roles.get("label_column", " label")]))


def with_cells(kept: Cells, new: Cells) -> Cells:
    """Return the digests of some rows and of others, each row once."""
    if not len(kept):
        return new
    known, ids = (unique_ids(_digests(cells, range(new.shape[1]))) for cells in (kept, new))
    return np.concatenate([kept, new[~np.isin(ids, known)]])


def known_rows(
    kept: Partition, chunks: Chunks, roles: Mapping[str, str], *, many: int = 4
) -> NDArray[np.bool_]:
    """Return whether each of some rows is in groups, or was, (n,).

    Parameters
    ----------
    kept : Partition
        The groups. If they were made by an earlier version, which kept no digests, all rows may be.
    chunks : callable
        Returns the rows.
    roles : mapping of str to str
        The columns of weights and labels.
    many : int
        Number of parts from which on a column or two that changed leave enough of them as they
        were.
    """
    ours: list[Cells] = []
    shared: list[int] = []
    n = 0
    for chunk in chunks():
        names = names_of(chunk, roles)
        shared = [j for j, name in enumerate(kept.names) if name in names]
        ours.append(cells_of(chunk, kept.key)[:, [names.index(kept.names[j]) for j in shared]])
        n += len(chunk)
    if not kept.names or not shared or not len(kept.cells):
        return np.full(n, bool(len(kept.units)) and not kept.names)
    theirs, rows = kept.cells[:, shared], np.concatenate(ours)
    columns = list(range(len(shared)))
    parts = [*_parts(theirs, columns)] or [columns]
    turned = [columns[j:] + columns[:j] for j in columns[1:]] if len(parts) < many else []
    others = [part for order in turned for part in islice(_parts(theirs, order), 1)]
    agree, known = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    for i, part in enumerate([*parts, *others]):
        ids, of_kept = _digests(rows, part), _digests(theirs, part)
        same = np.isin(unique_ids(ids), unique_ids(of_kept))
        agree += same & (i < len(parts))
        if _are_more_than_chance(same, of_kept):
            known |= same
    return np.asarray(known | (agree >= max(1, len(parts) // 2)))


def _digests(cells: Cells, part: Iterable[int]) -> Ids:
    """Return a digest of each row in some columns, the same for equal rows, (n,)."""
    ids = np.zeros(len(cells), np.uint64)
    for j in part:
        ids ^= mixed(cells[:, [j]].astype(np.uint64), np.full((1, 1), j, np.uint64))[:, 0]
    return ids


def _parts(cells: Cells, columns: Iterable[int], *, apart: float = 0.9) -> Iterator[list[int]]:
    """Yield the parts of columns, in an order, by which rows are told apart.

    ``apart``: share of rows with different values from which on a part of the columns identifies a
    row.
    """
    part, ids = list[int](), np.zeros(len(cells), np.uint64)
    for j in columns:
        part.append(j)
        ids ^= _digests(cells, [j])
        if len(np.unique(ids)) >= apart * len(cells):
            yield part
            part, ids = [], np.zeros(len(cells), np.uint64)


def _are_more_than_chance(same: NDArray[np.bool_], ids: Ids, *, deviations: float = 3.0) -> bool:
    """Return whether more rows (n,) agree with grouped ones than would if they were of others.

    ``deviations``: standard deviations by which more rows agree than by chance, of a number that is
    as for rare events.
    """
    _, times = np.unique(ids, return_counts=True)
    chance = float(times[times > 1].sum()) / len(ids) * len(same)
    return bool(np.count_nonzero(same) > chance + deviations * (chance + 1.0) ** 0.5)
