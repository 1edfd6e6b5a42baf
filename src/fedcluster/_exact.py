"""Exact sums of many floating-point numbers, cell by cell of arrays of one shape.

A sum that is rounded after every addition depends on the order, and on who adds first: a relay that
adds its sites and a coordinator that adds relays would get other bits than a coordinator that adds
all sites. So sums are carried as expansions (J. R. Shewchuk, Adaptive precision floating-point
arithmetic and fast robust geometric predicates, 1997): several numbers whose exact sum is the exact
sum of all terms. Terms are cut where their sums are exact, as in S. M. Rump, T. Ogita & S. Oishi,
Accurate floating-point summation part I (2008).

An expansion is *canonical* if each number is the exact rest, correctly rounded. Then it is the only
one of its sum: its bits tell nothing of the terms, of their order or of how they were added.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MOST_PLANES = 40
"""Numbers of the longest canonical expansion: 53 bits each, from 2^-1074 to 2^1024."""

FEW = 4
"""Arrays up to which nothing is cut before they are added."""

AT_ONCE = 1 << 15
"""Terms, of all cells together, that are cut at once: they stay in the processor's cache."""

LARGEST = 2.0**960
"""Where a term is as large as this, or not finite, all are added as floating-point numbers."""


def exact_sum(terms: Sequence[Floats]) -> Floats:
    """Return the canonical expansion of the sum of arrays of one shape.

    Parameters
    ----------
    terms : sequence of ndarray of shape (...)
        The arrays, at least one.

    Returns
    -------
    ndarray of shape (c, ...)
        The sum, correctly rounded, then what that leaves out, correctly rounded, and so on; as many
        as are needed, at least one.

    Examples
    --------
    >>> exact_sum(np.array([[1e16], [1.0], [-1e16], [2.0**-60]]))
    array([[1.00000000e+00],
           [8.67361738e-19]])
    """
    planes = list(terms[:FEW])
    step = max(FEW, AT_ONCE // max(1, terms[0].size))
    for start in range(FEW, len(terms), step):
        cut = _cut([*planes, *terms[start : start + step]])
        if cut is None:
            return np.stack([np.sum(terms, axis=0)])
        planes = cut
    return canonical(planes)


def canonical(planes: Sequence[Floats]) -> Floats:
    """Return the canonical expansion, (c, ...), of the sum of a few arrays of one shape."""
    parts = np.stack(planes) + 0.0  # of zeros, only 0 and not -0
    if not _magnitude(parts).max(initial=0.0) < LARGEST:
        return np.stack([parts.sum(axis=0)])
    for first in range(len(parts) - 1):
        rest = parts[first:]
        while _distil(rest):
            pass
        _break_tie(rest)
    n_needed = len(parts)
    while n_needed > 1 and not parts[n_needed - 1].any():
        n_needed -= 1
    return parts[:n_needed]


def is_canonical(planes: Floats) -> bool:
    """Return whether finite numbers, (c, ...), are a canonical expansion of their sum.

    Examples
    --------
    >>> is_canonical(np.array([[1.0], [2.0**-60]])), is_canonical(np.array([[1.0], [0.5]]))
    (True, False)
    """
    again = canonical(list(planes))
    return again.shape == planes.shape and bool((again == planes).all())


def _magnitude(terms: Floats) -> Floats:
    """Return the largest magnitude of each cell; NaN where a term is NaN."""
    largest: Floats = np.maximum(terms.max(axis=0), -terms.min(axis=0))
    return largest


def _cut(terms: Sequence[Floats]) -> list[Floats] | None:
    """Return a few arrays with the exact sum of many: one for each cut through their digits.

    With s = 2^(e + b) above n terms of at most 2^e, (s + x) - s is x to a multiple of ulp(s): sums
    of n of these are exact in any order, and what is left of x is smaller than its last digit.
    Returns None where sums may overflow.
    """
    left = np.stack(terms)
    head, extra = np.empty_like(left), len(left).bit_length() + 1
    planes: list[Floats] = []
    while True:
        largest = _magnitude(left)
        if not largest.any():
            return planes or [largest]
        if not largest.max() < LARGEST:
            return None
        step = np.ldexp(1.0, np.frexp(largest)[1] + extra)
        np.add(step, left, out=head)
        head -= step
        planes.append(head.sum(axis=0))
        left -= head


def _distil(parts: Floats) -> bool:
    """Move what fits to the number before, from the last on; return whether any number changed."""
    moved = False
    for j in range(len(parts) - 1, 0, -1):
        high, low = parts[j - 1], parts[j]
        total = high + low
        virtual = total - high
        rest = (high - (total - virtual)) + (low - virtual)
        moved = moved or not np.array_equal(total, high)
        parts[j - 1], parts[j] = total, rest
    return moved


def _break_tie(parts: Floats) -> None:
    """Round the first number up where the rest is half of its last digit, and more follows.

    Half of a last digit alone was rounded to even, which what follows it may make wrong.
    """
    if len(parts) < 3 or not parts[2].any():
        return
    high, low, after = parts[:3]
    double = 2.0 * low
    up = high + double
    tied = (double == up - high) & (np.sign(low) * np.sign(after) > 0)
    parts[0], parts[1] = np.where(tied, up, high), np.where(tied, -low, low)
