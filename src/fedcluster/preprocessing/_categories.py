"""Columns of text: which of them are categories, and which of their levels are frequent enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedcluster.core import Column, Floats
from fedcluster.preprocessing._spec import PreprocessingSpec
from fedcluster.preprocessing._transform import Category, NumericColumn, Preprocessor

MOST_LEVELS = 20
"""Levels up to which a column of text is taken for a category, unless it is named as one."""


def level_cells(first: Preprocessor, categories: Sequence[Category]) -> dict[str, Floats]:
    """Cells that hold one coded level each, and a last one for texts that no site named."""
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
    """The columns with frequent levels only; the levels that were pooled; what is left out."""
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
    """Why levels that are so rare make no category, if they make none."""
    if not levels:
        return "text without a value that enough rows share"
    if not named and others > rows / 2:
        return "text of which most rows have a value that few share"
    if not named and len(levels) == 1 and not others:
        return f"the same text, {levels[0]!r}, everywhere"
    return None


def unfit(prepare: PreprocessingSpec, column: Column) -> str | None:
    """Why a column of text is no category, if it is none."""
    if not column.levels:
        return "text of which no two rows of a site are equal"
    if column.name in prepare.named:
        return None
    if prepare.categories != "auto":
        return "text, and not among the categories"
    if len(column.levels) > MOST_LEVELS:
        return f"text with more than {MOST_LEVELS} different values"
    return None
