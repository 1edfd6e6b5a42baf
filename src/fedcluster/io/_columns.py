"""What columns hold: numbers, or texts as codes; and what a site tells of them.

Text is held as the codes 0, 1, ... of its levels, NaN where it is missing. Each part of a site's
rows may have codes of its own; what a level is called is the same everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Column, Data, Floats
from fedcluster.errors import InputError

KINDS = ("number", "text", "date", "mixed", "empty")
"""What a column may hold."""

MOST_LEVELS = 1000
"""Levels of one column that a site names, the most frequent ones."""

SHARED = 2
"""Rows of a site that must have a level before the site names it."""


def columns_of(data: Data) -> tuple[Column, ...]:
    """What the columns of rows are; where nothing is known, numbers called x0, x1, ...

    Examples
    --------
    >>> [column.name for column in columns_of(Data(np.zeros((3, 2))))]
    ['x0', 'x1']
    """
    return data.columns or tuple(Column(f"x{j}") for j in range(data.X.shape[1]))


def codes(data: Data, j: int) -> tuple[tuple[str, ...], Floats]:
    """The levels of a column and the code of each row, (n,), NaN where the value is missing.

    Numbers are levels, too: as they are written without needless digits.

    Examples
    --------
    >>> codes(Data(np.array([[2.0], [1.0], [2.0]])), 0)
    (('1', '2'), array([1., 0., 1.]))
    """
    column, values = columns_of(data)[j], data.X[:, j].astype(np.float64)
    if column.kind == "text":
        return column.levels, values
    there = ~np.isnan(values)
    found, place = np.unique(values[there], return_inverse=True)
    values[there] = place
    return tuple(map(_written, found.tolist())), values


def _written(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def described(
    chunks: Iterable[Data],
    texts: Collection[str],
    passes: Callable[[Floats, int], NDArray[np.bool_]],
) -> tuple[Column, ...]:
    """What a site tells of its columns.

    Parameters
    ----------
    chunks : iterable of Data
        Its rows.
    texts : collection of str
        Columns whose numbers are names.
    passes : callable
        ``passes(counts, n)`` says which levels, with so many of the n rows each, may leave.

    Returns
    -------
    tuple of Column
        With the levels in alphabetical order, those that at least two rows have.
    """
    kinds: dict[str, str] = {}
    levels: dict[str, Counter[str]] = {}
    n_rows = 0
    for chunk in chunks:
        n_rows += len(chunk)
        for j, column in enumerate(columns_of(chunk)):
            kind = _kind(chunk, j, column, texts)
            kinds[column.name] = _merged(kinds.get(column.name, "empty"), kind)
            if kind == "text":
                levels.setdefault(column.name, Counter()).update(_counts(chunk, j))
    return tuple(
        Column(name, kind, _named(levels[name], n_rows, passes) if kind == "text" else ())
        for name, kind in kinds.items()
    )


def _kind(chunk: Data, j: int, column: Column, texts: Collection[str]) -> str:
    """What a column holds in one chunk."""
    if column.kind in ("date", "mixed"):
        return column.kind
    if np.isnan(chunk.X[:, j]).all():
        return "empty"
    return "text" if column.name in texts else column.kind


def _merged(one: str, other: str) -> str:
    """What a column holds that holds this in one chunk and that in another."""
    kinds = {one, other} - {"empty"}
    return "mixed" if len(kinds) > 1 else next(iter(kinds), "empty")


def _counts(chunk: Data, j: int) -> dict[str, int]:
    """How many rows have each level."""
    names, place = codes(chunk, j)
    counts = np.bincount(place[~np.isnan(place)].astype(np.intp), minlength=len(names))
    return {name: n for name, n in zip(names, counts.tolist(), strict=True) if n}


def _named(
    levels: Counter[str], n_rows: int, passes: Callable[[Floats, int], NDArray[np.bool_]]
) -> tuple[str, ...]:
    """The levels that may leave, in alphabetical order."""
    shared = {level: n for level, n in levels.items() if n >= SHARED}
    frequent = sorted(shared, key=lambda level: (-shared[level], level))[:MOST_LEVELS]
    counts = np.array([shared[level] for level in frequent], dtype=np.float64)
    kept = passes(counts, n_rows) if frequent else np.zeros(0, dtype=bool)
    return tuple(sorted(level for level, keep in zip(frequent, kept, strict=True) if keep))


def classes(
    chunks: Iterable[Data], passes: Callable[[Floats, int], NDArray[np.bool_]]
) -> tuple[str, ...] | None:
    """The reference labels that a site tells of: those that at least two rows have.

    Parameters
    ----------
    chunks : iterable of Data
        Its rows.
    passes : callable
        As of `described`.

    Returns
    -------
    tuple of str, or None
        In alphabetical order; None of rows without labels.

    Raises
    ------
    InputError
        If a row has no label and others have.

    Examples
    --------
    >>> rows = Data(np.zeros((5, 1)), y=np.array(["b", "a", "b", "c", "a"]))
    >>> classes([rows], lambda counts, n_rows: counts > 1)
    ('a', 'b')
    """
    labels: Counter[str] = Counter()
    n_rows = 0
    for chunk in chunks:
        if chunk.y is None:
            return None
        names, counts = np.unique(chunk.y.astype(str), return_counts=True)
        labels.update(dict(zip(names.tolist(), counts.tolist(), strict=True)))
        n_rows += len(chunk)
    if "" in labels:
        raise InputError("the label of a row is missing; fill it in or drop the row")
    return _named(labels, n_rows, passes)
