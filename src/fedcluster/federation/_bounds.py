"""Bounds of what sites are believed: their numbers of rows, and the public ranges of columns."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedcluster.errors import InputError
from fedcluster.io._outputs import write_json

FIRST_ROWS = "first-rows.json"
"""File in a federation's folder with the number of rows that each site first told of."""
MOST_ROWS = 1e12
"""The largest number of rows that can be stated."""


def checked_rows(content: Mapping[str, Any], sites: Collection[str]) -> dict[str, float]:
    """Return the table ``rows``: the largest number of rows of each site that is named.

    Raises
    ------
    InputError
        If there is no such site, or the number is none of rows.

    Examples
    --------
    >>> checked_rows({"rows": {"north": 5000}}, ["north", "south"])
    {'north': 5000.0}
    """
    rows: dict[str, float] = {}
    for site, most in _table(content, "rows").items():
        if site not in sites:
            raise InputError(f"rows of {site!r}: the federation has no such site")
        if isinstance(most, bool) or not isinstance(most, int | float) or not 0 < most <= MOST_ROWS:
            raise InputError(f"rows of {site!r} must be a number above 0, not {most!r}")
        rows[site] = float(most)
    return rows


def checked_ranges(content: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return the table ``ranges``: the smallest and the largest value of each column.

    Raises
    ------
    InputError
        If a range is not two finite numbers, the smaller one first.

    Examples
    --------
    >>> checked_ranges({"ranges": {"age": [0, 120]}})
    {'age': (0.0, 120.0)}
    """
    ranges: dict[str, tuple[float, float]] = {}
    for column, given in _table(content, "ranges").items():
        pair = tuple(given) if isinstance(given, list | tuple) else ()
        numbers = [x for x in pair if isinstance(x, int | float) and not isinstance(x, bool)]
        if len(pair) != 2 or len(numbers) != 2 or not all(map(math.isfinite, numbers)):
            raise InputError(f"the range of {column!r} must be two numbers, not {given!r}")
        low, high = map(float, numbers)
        if low >= high:
            raise InputError(f"the range of {column!r} must go up, not from {low:g} to {high:g}")
        ranges[column] = low, high
    return ranges


def _table(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, Mapping):
        raise InputError(f"[{name}] must be a table")
    return table


def first_rows(path: Path) -> dict[str, float]:
    """Return how many rows each site told of when it was first asked, from a file.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text("utf-8"))
        return {str(site): float(rows) for site, rows in content.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({error}); delete it to ask sites anew") from error


def keep_first_rows(path: Path, told: Mapping[str, float]) -> None:
    """Write down what sites told of their rows that had told nothing before."""
    before = first_rows(path)
    if told.keys() - before.keys():
        write_json(path, {**told, **before})


def rows_from_options(given: Iterable[str]) -> dict[str, float]:
    """Return the numbers of rows that options name as SITE:ROWS, also with commas between.

    Examples
    --------
    >>> rows_from_options(["north:5000,south:800"])
    {'north': 5000.0, 'south': 800.0}
    """
    pairs: list[Any] = [
        _split(part, 1, "--rows", "SITE:ROWS, as in north:5000") for part in _parts(given)
    ]
    return dict(pairs)


def ranges_from_options(given: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Return the ranges that options name as COLUMN:LOW:HIGH, also with commas between.

    Examples
    --------
    >>> ranges_from_options(["age:0:120"])
    {'age': (0.0, 120.0)}
    """
    said = "COLUMN:LOW:HIGH, as in age:0:120"
    triples = [_split(part, 2, "--range", said) for part in _parts(given)]
    return {column: (low, high) for column, low, high in triples}


def _parts(given: Iterable[str]) -> list[str]:
    return [part.strip() for text in given for part in text.split(",")]


def _split(text: str, n: int, option: str, said: str) -> tuple[Any, ...]:
    """Return the name and the n numbers of an option."""
    name, *numbers = text.rsplit(":", n)
    try:
        values = tuple(map(float, numbers))
    except ValueError:
        values = ()
    if not name or len(values) != n:
        raise InputError(f"{option} {text!r} must be {said}")
    return name, *values
