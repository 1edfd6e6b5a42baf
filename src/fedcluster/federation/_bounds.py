"""Bounds of what sites are believed: their numbers of rows, and the public ranges of columns."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedcluster._records import load_record
from fedcluster.errors import InputError
from fedcluster.io._outputs import write_json

FIRST_ROWS = "first-rows.json"
"""File in a federation's folder with the number of rows that each site first told of."""
MOST_ROWS = 1e12
"""The largest number of rows that can be stated."""


def check_bounds(
    rows: Mapping[str, float], ranges: Mapping[str, tuple[float, float]], sites: Collection[str]
) -> None:
    """Check the most rows of sites and the ranges of columns.

    Raises
    ------
    InputError
        If there is no such site, a number is none of rows, or a range is not two finite numbers,
        the smaller one first.
    """
    for site, most in rows.items():
        if site not in sites:
            raise InputError(f"rows of {site!r}: the federation has no such site")
        if not 0 < most <= MOST_ROWS:
            raise InputError(f"rows of {site!r} must be a number above 0, not {most!r}")
    for column, (low, high) in ranges.items():
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InputError(f"the range of {column!r} must be two numbers, not {[low, high]}")
        if low >= high:
            raise InputError(f"the range of {column!r} must go up, not from {low:g} to {high:g}")


def first_rows(path: Path) -> dict[str, float]:
    """Return how many rows each site told of when it was first asked, from a file.

    Raises
    ------
    InputError
        If the file is damaged.
    """
    remedy = "; delete it to ask sites anew"
    return load_record(path, dict[str, float], remedy=remedy) if path.exists() else {}


def keep_first_rows(path: Path, rows: Mapping[str, float]) -> None:
    """Write down the numbers of rows of the sites that the file does not have yet."""
    before = first_rows(path)
    if rows.keys() - before.keys():
        write_json(path, {**rows, **before})


def rows_from_options(options: Iterable[str]) -> dict[str, float]:
    """Return the numbers of rows that options name as SITE:ROWS, also with commas between.

    Examples
    --------
    >>> rows_from_options(["north:5000,south:800"])
    {'north': 5000.0, 'south': 800.0}
    """
    pairs: list[Any] = [
        _split(part, 1, "--rows", "SITE:ROWS, as in north:5000") for part in _parts(options)
    ]
    return dict(pairs)


def ranges_from_options(options: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Return the ranges that options name as COLUMN:LOW:HIGH, also with commas between.

    Examples
    --------
    >>> ranges_from_options(["age:0:120"])
    {'age': (0.0, 120.0)}
    """
    form = "COLUMN:LOW:HIGH, as in age:0:120"
    triples = [_split(part, 2, "--range", form) for part in _parts(options)]
    return {column: (low, high) for column, low, high in triples}


def _parts(options: Iterable[str]) -> list[str]:
    return [part.strip() for text in options for part in text.split(",")]


def _split(text: str, n: int, option: str, form: str) -> tuple[Any, ...]:
    """Return the name and the n numbers of an option."""
    name, *numbers = text.rsplit(":", n)
    try:
        values = tuple(map(float, numbers))
    except ValueError:
        values = ()
    if not name or len(values) != n:
        raise InputError(f"{option} {text!r} must be {form}")
    return name, *values
