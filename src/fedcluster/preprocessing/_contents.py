"""What the columns hold: how many values are missing, and which texts are frequent levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import Generator

from fedcluster.core import Answers, Column, Data, Floats, State, Summary
from fedcluster.errors import InputError
from fedcluster.preprocessing._columns import Category, NumericColumn
from fedcluster.preprocessing._spec import PreprocessingSpec
from fedcluster.preprocessing._transform import Preprocessor

MOST_LEVELS = 20
"""Levels up to which a column of text is taken for a category, unless it is named as one."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Count the missing values of each column, out of how many rows.

    A site sends 2 d numbers: a line for each column. Rows are counted, whatever they weigh.

    Examples
    --------
    >>> rows = Data(np.array([[1.0, 5.0], [2.0, np.nan]]))
    >>> Missing().client_step(State(), rows, np.random.default_rng(0)).sums.ravel()
    array([0., 1.])
    """

    client_additive: ClassVar[bool] = True
    server_additive: ClassVar[bool] = True

    def answer_shape(self, state: State, n_columns: int) -> tuple[int | None, int]:
        """Return the shape of an answer: a line for each column."""
        return n_columns, 1

    def client_step(self, state: State, data: Data, rng: Generator) -> Summary:
        """Count NaN in each column."""
        n, d = data.X.shape
        return Summary(
            np.isnan(data.X).sum(axis=0, dtype=np.float64)[:, None], np.full(d, float(n))
        )


def missing_by_site(answers: Answers, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the numbers of missing values by site and column, where there are some."""
    counts = {
        site: {name: int(n) for name, n in zip(names, answer.sums[:, 0], strict=True) if n}
        for site, answer in answers.by_site.items()
    }
    return {site: columns for site, columns in counts.items() if columns}


def refuse_empty(answers: Answers, names: Sequence[str]) -> None:
    """Refuse columns of which a site has no value at all: nothing there tells how to fill them.

    Raises
    ------
    InputError
        Naming every such site and column.
    """
    empty = [
        f"column {name!r} at {site}"
        for site, answer in answers.by_site.items()
        for name, n, rows in zip(names, answer.sums[:, 0], answer.weights, strict=True)
        if rows and n == rows
    ]
    if empty:
        raise InputError(f"every value is missing of {'; '.join(empty)}; leave out column or site")


def refuse_missing(missing: Mapping[str, Mapping[str, int]]) -> None:
    """Refuse missing values, naming every site and column.

    Raises
    ------
    InputError
        If there is one.
    """
    if missing:
        where = "; ".join(
            f"{n} of {name!r} at {site}"
            for site, columns in missing.items()
            for name, n in columns.items()
        )
        raise InputError(
            f"values are missing: {where}; drop their rows or fill them in: missing is one of "
            "drop, mean and median"
        )


def level_cells(first: Preprocessor, categories: Sequence[Category]) -> dict[str, Floats]:
    """Return cells that hold one coded level each, and a last one for texts that no site named."""
    places = [first.names.index(category.name) for category in categories]
    most = max(len(category.levels) for category in categories) + 1
    edges = [
        np.pad(np.arange(len(c.levels) + 2) - 0.5, (0, most - len(c.levels) - 1), mode="edge")
        for c in categories
    ]
    return {"columns": np.array(places, dtype=np.float64), "edges": np.array(edges)}


def pool(
    prepare: PreprocessingSpec,
    columns: Sequence[NumericColumn | Category],
    counts: Mapping[str, Floats],
) -> tuple[tuple[NumericColumn | Category, ...], dict[str, tuple[str, ...]], dict[str, str]]:
    """Return the columns with frequent levels only, the levels pooled, and what is left out."""
    kept: list[NumericColumn | Category] = []
    pooled: dict[str, tuple[str, ...]] = {}
    left_out: dict[str, str] = {}
    for column in columns:
        if isinstance(column, NumericColumn):
            kept.append(column)
            continue
        *each, unnamed = counts[column.name].tolist()
        by_level = dict(zip(column.levels, each, strict=True))
        levels = tuple(level for level, n in by_level.items() if n >= prepare.rare)
        rare = tuple(level for level in column.levels if level not in levels)
        others = unnamed + sum(n for n in each if n < prepare.rare)
        if reason := _too_rare(levels, sum(each) + unnamed, others, column.name in prepare.named):
            left_out[column.name] = reason
            continue
        commonest = column.levels[int(np.argmax(each))]
        fill = commonest if prepare.missing in ("mean", "median") else None
        kept.append(Category(column.name, levels, others > 0, fill))
        pooled |= {column.name: rare} if rare else {}
    return tuple(kept), pooled, left_out


def _too_rare(levels: Sequence[str], rows: float, others: float, named: bool) -> str | None:
    """Return why levels that are so rare make no category, if they make none."""
    if not levels:
        return "text without a value that enough rows share"
    if not named and others > rows / 2:
        return "text of which most rows have a value that few share"
    if not named and len(levels) == 1 and not others:
        return f"the same text, {levels[0]!r}, everywhere"
    return None


def unfit(prepare: PreprocessingSpec, column: Column) -> str | None:
    """Return why a column of text is no category, if it is none."""
    if not column.levels:
        return "text of which no two rows of a site are equal"
    if column.name in prepare.named:
        return None
    if prepare.categories != "auto":
        return "text, and not among the categories"
    if len(column.levels) > MOST_LEVELS:
        return f"text with more than {MOST_LEVELS} different values"
    return None
