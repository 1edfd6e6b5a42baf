"""Check of a published file: what it tells of sites whose counts are rounded.

It is read as an attacker reads it. If a mean of n values is known to many digits, only one n within
the rounding makes the sum of the values a multiple of their last digit: then n is known, and the
sum. All n and all last digits are tried, for centres, means and shares, and for the shifts and
scales of a preparation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from fedcluster.jobs.release import coarse
from fedcluster.model.run import FILES, damaged
from fedcluster.privacy.limits import SMALLEST, STEP

COUNTS = frozenset(
    [
        *("weight", "weights", "rows", "rows_held_back", "rows_then", "rows_now"),
        *("clusters", "sizes", "missing"),
    ]
)
"""Keys of files whose numbers count rows."""
SKIPPED = frozenset(
    [
        "algorithm",
        "centers_in_units",
        "communication_rounds",
        "influence",
        "limits",
        "memory",
        "shares",
    ]
)
"""Keys of files below which no number counts rows, though columns may be called as if one did."""
DIGITS = [m * 10.0**e for e in range(6, -10, -1) for m in (5.0, 2.5, 2.0, 1.0)]
"""Last digits that values may have, largest first."""

Mean = tuple[str, float, float, int, float]
"""A mean in a file: what it is of, its value, the rounded number of rows, by how much this may err,
and by how much the mean does."""


def check_file(path: Path) -> list[str]:
    """Return what a published file tells beyond rounded counts; see `findings`.

    Raises
    ------
    InputError
        If the file is not one that a job writes.
    """
    with damaged(path):
        content = json.loads(path.read_text("utf-8"))
        kinds = [f"fedcluster-{name}" for name in FILES]
        if content.get("format") not in kinds:
            raise ValueError(f"its format is none of {', '.join(kinds)}")
        return findings(content)


def findings(content: Mapping[str, Any]) -> list[str]:
    """Return what a published file tells beyond rounded counts, in sentences.

    Parameters
    ----------
    content : mapping
        The content of ``model.json``, ``history.json``, ``profiles.json``, ``scores.json`` or
        ``selection.json``.

    Examples
    --------
    >>> findings({"weights": [450.0], "centers_in_units": {"smoker": [1 / 448]}})
    ['smoker of cluster 0 is a mean of 448 rows, and the sum is 1: 450 rows are published']
    >>> findings({"weights": [448.0], "centers_in_units": {"smoker": [0.02]}})
    ['weights[0] is 448: counts are 0, or at least 10 and multiples of 5']
    """
    found = [
        f"{where} is {n:g}: counts are 0, or at least {SMALLEST} and multiples of {STEP}"
        for where, n in _counts(content)
        if n and (n % STEP or n < SMALLEST)
    ]
    for mean in _means(content):
        found += _undone(*mean)
    return list(dict.fromkeys([*found, *_digits(content)]))


def _counts(content: Any, where: str = "", *, inside: bool = False) -> Iterator[tuple[str, float]]:
    """Yield the place and the value of each number that counts rows."""
    if isinstance(content, Mapping):
        for key in content.keys() - SKIPPED:
            here = f"{where}.{key}" if where else str(key)
            is_count = key in COUNTS or (inside and not isinstance(content[key], list))
            yield from _counts(content[key], here, inside=is_count)
    elif isinstance(content, list):
        for i, each in enumerate(content):
            flat = inside and not isinstance(each, Mapping)
            yield from _counts(each, f"{where}[{i}]", inside=flat)
    elif inside and isinstance(content, int | float) and not isinstance(content, bool):
        yield where, float(content)


def _means(content: Any) -> Iterator[Mean]:
    """Yield all means in a file."""
    if isinstance(content, Mapping):
        yield from _of_centers(content)
        yield from _of_preparation(content)
        yield from _of_profile(content)
        content = [each for key, each in content.items() if key not in SKIPPED]
    if isinstance(content, list):
        for each in content:
            yield from _means(each)


def _of_centers(content: Mapping[str, Any]) -> Iterator[Mean]:
    """Yield the coordinates of centres, in the units of the columns if these are known."""
    weights = content.get("weights")
    if not isinstance(weights, list):
        return
    columns = content.get("centers_in_units")
    if not columns:
        centers = content.get("centers") or []
        columns = {f"column {j}": each for j, each in enumerate(zip(*centers, strict=True))}
    for name, means in columns.items():
        for j, (mean, weight) in enumerate(zip(means, weights, strict=True)):
            yield f"{name} of cluster {j}", mean, weight, STEP // 2, _error(mean)


def _of_preparation(content: Mapping[str, Any]) -> Iterator[Mean]:
    """Yield the means by which columns are shifted, and shares that follow from scales."""
    weights, how = content.get("weights"), content.get("preprocessing") or {}
    if not isinstance(weights, list) or not isinstance(how, Mapping):
        return
    n, within = sum(weights), STEP // 2 * (len(weights) + 1)
    for column in how.get("columns", []):
        if column["kind"] == "number":
            shift, name = column["shift"], column["name"]
            yield f"the shift of {name}", shift, n, within, _error(shift)
            yield from _of_spread(f"the scale of {name}", column["scale"], n, within)
            yield f"the fill of {name}", column["fill"], n, within, _error(column["fill"])


def _of_spread(name: str, spread: float | None, weight: float, within: int) -> Iterator[Mean]:
    """Yield the share of the ones that a spread tells, if all values are 0 and 1."""
    if spread and spread < 0.5:
        square = float(f"{spread**2:.12g}")
        share, slope = (1 - math.sqrt(1 - 4 * square)) / 2, math.sqrt(1 - 4 * square)
        yield name, share, weight, within, _error(square) / max(slope, 1e-9)


def _of_profile(content: Mapping[str, Any]) -> Iterator[Mean]:
    """Yield the means and shares of a cluster's profile, or of that of all rows."""
    who = f"cluster {content['cluster']}" if "cluster" in content else "all rows"
    columns = content.get("columns")
    for column in columns if isinstance(columns, list) else ():
        if not isinstance(column, Mapping):
            continue
        weight, name = column.get("weight", 0.0), f"{column.get('column')} of {who}"
        within = STEP // 2 * (1 if "cluster" in content else 10)
        if column.get("mean") is not None:
            yield name, column["mean"], weight, within, _error(column["mean"])
        yield from _of_spread(f"the spread of {name}", column.get("spread"), weight, within)
        for level, share in column.get("shares", {}).items():
            yield f"{column.get('column')}={level} of {who}", share, weight, within, _error(share)


def _error(value: float | None) -> float:
    """Return by how much a number may err that is known to its last digit, of twelve at most.

    Examples
    --------
    >>> _error(2500.0), _error(0.8999999999999999)
    (50.0, 0.05)
    """
    if not value or not math.isfinite(value):
        return 0.0
    return 0.5 * 10.0 ** int(Decimal(f"{value:.12g}").normalize().as_tuple().exponent)


def _undone(
    name: str, mean: float | None, weight: float, within: int, known: float
) -> Iterator[str]:
    """Yield a sentence if a mean gives the number of rows back that was rounded."""
    if not mean or not math.isfinite(mean) or weight < SMALLEST or weight % 1:
        return
    n = np.arange(max(1.0, weight - within), weight + within + 1)
    error = n * known
    for unit in DIGITS:
        # Probability from which on a sum may be a multiple of a last digit by chance.
        if len(n) * 2 * error.max() / unit > 1e-3:
            return
        sums = np.rint(mean * n / unit) * unit
        fits = np.abs(mean * n - sums) <= error
        if fits.any():
            rounded = (n[fits] % STEP == 0) & (sums[fits] % STEP == 0) & (n[fits] >= SMALLEST)
            if not rounded.any():
                rows, total = n[fits][0], sums[fits][0]
                yield (
                    f"{name} is a mean of {rows:g} rows, and the sum is {total:g}: {weight:g} rows "
                    "are published"
                )
            return


def _digits(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence if the inertia has more digits than ten rows can change."""
    inertia, weights = content.get("inertia"), content.get("weights")
    if isinstance(weights, Sequence) and inertia and sum(weights) >= SMALLEST:
        n = sum(weights) + STEP * len(weights)
        if coarse(inertia, 4 * n) != inertia:
            yield f"inertia is {inertia!r}: it has more digits than {n:g} rows may tell"
