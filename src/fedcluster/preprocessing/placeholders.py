"""Values of a column that stand for something else: a code for a missing value, or a mistake."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedcluster.core import Floats
from fedcluster.errors import listed
from fedcluster.frames.columns import NumberSample
from fedcluster.preprocessing.units import ODD
from fedcluster.texts import setting

SIGNS = frozenset((-9.0, -8.0, -7.0, -2.0, -1.0, 7.0, 8.0, 9.0))
"""Small numbers that people use as placeholders for an unknown value."""


def placeholders(sample: NumberSample) -> tuple[dict[float, int], NumberSample]:
    """Return values that seem to stand for missing ones, with their counts, and the other values.

    Examples
    --------
    >>> ages = np.arange(20.0, 80.0)
    >>> found, rest = placeholders(NumberSample.from_values(np.append(ages, [-999.0] * 5)))
    >>> found, rest.low, rest.high
    ({-999.0: 5}, 20.0, 79.0)
    >>> placeholders(NumberSample.from_values(ages))[0]
    {}
    """
    found: dict[float, int] = {}
    while len(found) < 3 and (value := _placeholder(sample)) is not None:
        found[value] = int(sample.counts[sample.values == value].sum())
        sample = sample.without(value)
    return found, sample


def _placeholder(sample: NumberSample) -> float | None:
    """Return the first or last value if it is far from all others, or a frequent one, or None."""
    if len(sample.values) < 4:
        return None
    for end in (0, -1):
        value, count = float(sample.values[end]), int(sample.counts[end])
        rest = sample.without(value)
        while _is_sign(value) and len(rest.values) > 3 and _is_sign(float(rest.values[end])):
            rest = rest.without(float(rest.values[end]))
        if _is_apart(value, count, rest):
            return value
    # a long one among measurements, of which few are equal
    value = float(sample.values[np.argmax(sample.counts)])
    *_, second, most = np.sort(sample.counts)
    is_long = _is_sign(value) and abs(value) >= 99.9
    return value if is_long and most >= ODD.often * second else None


def _is_apart(value: float, count: int, rest: NumberSample) -> bool:
    gap = max(rest.low - value, value - rest.high) / (rest.high - rest.low)
    is_often, share = count >= 3, count / (count + rest.n)
    if value == 0:
        return is_often and len(rest.values) > ODD.few and gap > ODD.gap
    if _is_sign(value):
        is_only_negative = value <= -99 and rest.low >= 0
        return (is_often and is_only_negative) or gap > (ODD.gap if is_often else ODD.margin)
    if not is_often or share < ODD.rare:
        return False
    is_enough = count + rest.n >= ODD.enough
    if value in SIGNS and share <= 0.5 and is_enough and _is_beside(value, rest):
        return True
    is_sure = count >= 5 or gap > ODD.often * ODD.margin
    return value.is_integer() and is_sure and gap > ODD.margin


def _is_sign(value: float) -> bool:
    """Return whether people use this number as a placeholder for an unknown value.

    Examples
    --------
    >>> [_is_sign(value) for value in (-999.0, 99.99, 8888.8, 9.0, 998.0, 1.9)]
    [True, True, True, False, False, False]
    """
    digits = f"{abs(value):.15g}".replace(".", "")
    return len(digits) > 1 and set(digits) in ({"9"}, {"8"}, {"7"})


def _is_beside(value: float, rest: NumberSample) -> bool:
    """Return whether a small number stands for an unknown value beside others.

    It is the only negative one, where others have decimals or all are above 0; or follows a few
    whole numbers, of which the next two are lacking.
    """
    if value < 0:
        return rest.low > 0 or (rest.low >= 0 and not rest.whole)
    return rest.whole and len(rest.values) <= ODD.few and value - rest.high > 2


def placeholder_line(
    name: str, site: str | None, found: Mapping[float, int], n: int, rest: NumberSample
) -> str:
    """Return the warning of values that stand for missing ones."""
    which = listed([f"{written(value)} ({count / n:.1%})" for value, count in found.items()])
    values = [value if value else f"{name}:0" for value in found]
    say = setting("missing_values", to=values)
    return (
        f"{in_words(name, site)}: {which} of the values, the others are {written(rest.low)} to "
        f"{written(rest.high)}; if that means missing, say {say}"
    )


def typing_errors(sample: NumberSample) -> list[float]:
    """Return the few values far from the others, among which a power of ten brings them.

    Examples
    --------
    >>> heights = np.arange(150.0, 200.0)
    >>> typing_errors(NumberSample.from_values(np.append(heights, 17_800.0)))
    [17800.0]
    >>> typing_errors(NumberSample.from_values(heights))
    []
    """
    values, n = sample.values, sample.n
    most = min(3, max(1, int(ODD.rare * n)))
    if n < ODD.enough or len(values) < ODD.fewest:
        return []
    quartiles = sample.quantile(0.75) - sample.quantile(0.25)
    for k in range(1, most + 1):
        for odd, rest in ((slice(-k, None), slice(-k)), (slice(k), slice(k, None))):
            is_rare = sample.counts[odd].sum() <= most
            if is_rare and _is_mistyped(values[odd], values[rest], quartiles):
                return [float(value) for value in values[odd]]
    return []


def misplaced_points(sample: NumberSample, others: NumberSample) -> list[float]:
    """Return the values of a site that a power of ten brings among those of all other sites.

    They are far from these, and fewer than half. A single one is far beyond all others.

    Examples
    --------
    >>> heights = NumberSample.from_values(np.arange(150.0, 200.0))
    >>> misplaced_points(NumberSample.from_values(np.array([1.6, 171, 172, 16.8, 173])), heights)
    [1.6, 16.8]
    >>> few = NumberSample.from_values(np.arange(150.0, 156.0))
    >>> misplaced_points(NumberSample.from_values(np.array([171, 172, 1e19])), few)
    [1e+19]
    """
    values, low, high = sample.values, others.low, others.high
    is_enough = others.n >= max(ODD.enough, sample.n / 2)
    if others.n < ODD.fewest or not len(values) or not high > low:
        return []
    widths = ODD.often ** (2 if is_enough else 6)  # of the others, between them and what is far
    is_alone = np.maximum(low - values, values - high) > widths * (high - low)
    ends = np.append(values[~is_alone], (low, high))
    alone = values[is_alone]
    apart = np.maximum(ends.min() - alone, alone - ends.max())
    is_rare = 2 * sample.counts[is_alone].sum() < sample.n
    if is_rare and 0 < len(alone) < ODD.fewest and (apart > widths * np.ptp(ends)).all():
        return [float(value) for value in alone]
    if not is_enough:
        return []
    far = (values > 2 * high) | (values < low / 2)
    n = int(sample.counts[far].sum())
    if low <= 0 or high > 5 * low or not 1 < n < sample.n / 2:
        return []
    near = np.append(values[~far], (low, high))
    apart = np.abs(np.log(values[far][:, None] / near)).min() if values[0] > 0 else 0.0
    back = values[far][:, None] * 10.0 ** np.array([-3, -2, -1, 1, 2, 3])
    fits = ((low / 2 < back) & (back < 2 * high)).any(axis=1).all()
    return [float(value) for value in values[far]] if fits and apart > math.log(2) else []


def _is_mistyped(odd: Floats, rest: Floats, quartiles: float) -> bool:
    """Return whether odd values are far from the rest, and powers of ten bring them there.

    Of amounts that reach down to 0, a small one is near the others; and the wider these are beside
    the distance of their quartiles, the farther some lie.
    """
    low, high = float(rest[0]), float(rest[-1])
    powers = 10.0 ** np.array([-3, -2, -1, 1, 2, 3])
    back = np.abs(odd)[:, None] * np.append(powers, -powers)
    if not ((low <= back) & (back <= high)).any(axis=1).all():
        return False
    if low > 0 and odd[0] > 0:
        is_apart = odd[0] > high or low - odd[-1] > ODD.gap * (high - low)
        off = max(odd[0] / high, low / odd[-1])
        return bool(is_apart and math.log(off) >= ODD.spread * math.log(high / low))
    return bool(max(odd[0] - high, low - odd[-1]) * quartiles > ODD.spread * (high - low) ** 2)


# How unlikely, and in words


def evidence(share: Floats, most: Floats) -> Floats:
    """Return how unlikely a share of values is where at most another is due, for each value.

    By Chernoff's bound, n times that is at most minus the logarithm of its probability.
    """
    with np.errstate(all="ignore"):
        rest = np.where(share < 1, (1 - share) * np.log((1 - share) / (1 - most)), 0.0)
        found = np.nan_to_num(share * np.log(share / most) + rest, nan=0.0)
    unlikely: Floats = np.where(share > most, found, 0.0)
    return unlikely


def in_words(name: str, site: str | None) -> str:
    """Return a column of a site, in words."""
    return f"column {name!r}" if site is None else f"column {name!r} at {site}"


def written(value: float) -> str:
    """Return a number as short as it is exact to six digits."""
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.6g}"


def shown(values: Sequence[float] | Floats, most: int = 5) -> str:
    """Return the first values in words."""
    return listed([written(value) for value in values[:most]] + ["more"] * (len(values) > most))
