"""Exact sums of many floating-point numbers, cell by cell of arrays of one shape.

A sum that is rounded after every addition depends on the order and on the grouping of the terms: a
coordinator that adds sums of sums would get other bits than one that adds all sites itself.
Therefore sums are carried as expansions (J. R. Shewchuk, Adaptive precision floating-point
arithmetic and fast robust geometric predicates, 1997): several numbers whose exact sum is the exact
sum of all terms. Terms are cut where their sums are exact, as in S. M. Rump, T. Ogita & S. Oishi,
Accurate floating-point summation part I (2008).

An expansion is *canonical* if each number is the exact rest, correctly rounded. Each sum has
exactly one such expansion, so its bits reveal nothing about the terms, their order or how they were
added.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FEW_ARRAYS = 4
"""Number of arrays up to which they are added without being cut first."""

AT_ONCE = 1 << 15
"""Number of terms, over all cells, that are cut at once, so that they stay in the cache."""

LARGEST_TERM = 2.0**960
"""Magnitude of a term from which all terms are added as plain floating-point numbers."""


def exact_sum(terms: Sequence[Floats]) -> Floats:
    """Return the canonical expansion of the sum of arrays of one shape.

    Parameters
    ----------
    terms : sequence of ndarray of shape (...)
        The arrays, at least one.

    Returns
    -------
    ndarray of shape (c, ...)
        The sum, correctly rounded, then the remainder, correctly rounded, and so on, until nothing
        remains; at least one.

    Examples
    --------
    >>> exact_sum(np.array([[1e16], [1.0], [-1e16], [2.0**-60]]))
    array([[1.00000000e+00],
           [8.67361738e-19]])
    """
    shape, cells = terms[0].shape, terms[0].size
    if cells > AT_ONCE // FEW_ARRAYS:
        flat, starts = [term.ravel() for term in terms], range(0, cells, AT_ONCE // FEW_ARRAYS)
        parts = [exact_sum([term[i : i + starts.step] for term in flat]) for i in starts]
        joined = np.zeros((max(map(len, parts)), cells))
        for i, part in zip(starts, parts, strict=True):
            joined[: len(part), i : i + starts.step] = part
        return joined.reshape(-1, *shape)
    # more terms rarely fit into two numbers
    if len(terms) <= 4 * FEW_ARRAYS and (pair := _in_two(terms)) is not None:
        return pair
    planes = list(terms[:FEW_ARRAYS])
    step = max(FEW_ARRAYS, AT_ONCE // max(1, cells))
    for start in range(FEW_ARRAYS, len(terms), step):
        cut = _cut([*planes, *terms[start : start + step]])
        if cut is None:
            return np.stack([np.sum(terms, axis=0)])
        planes = cut
    return canonical(planes)


def _in_two(terms: Sequence[Floats]) -> Floats | None:
    """Return the canonical expansion of a few terms if two numbers hold it, which is usual.

    Terms are added one by one, and their rounding errors likewise: if the errors add up without
    another one, both totals hold the sum. It costs about half of `_cut` and `canonical`.
    """
    high, low = terms[0], None
    with np.errstate(over="ignore", invalid="ignore"):  # `high` tells below
        for term in terms[1:]:
            high, error = _two_sum(high, term)
            if low is None:
                low = error
            else:
                low, left = _two_sum(low, error)
                if left.any():  # also if it is NaN
                    return None
    if low is None or not _magnitude(high[None]).max(initial=0.0) < LARGEST_TERM:
        return None
    pair = np.stack(_two_sum(high, low)) + 0.0  # adding 0.0 turns -0.0 into 0.0
    return pair if pair[1].any() else pair[:1]


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the rounded sums of two arrays and their rounding errors (D. E. Knuth)."""
    total = a + b
    virtual = total - a
    rest = total - virtual
    np.subtract(a, rest, out=rest)
    np.subtract(b, virtual, out=virtual)
    rest += virtual
    return total, rest


def exact_group_sums(values: Floats, group: NDArray[np.intp], n_groups: int) -> list[Floats]:
    """Return a few arrays (g,) that together hold the exact sum of the values (n,) of each group.

    Values are cut into parts, whose sums over the largest group are exact in any order.

    Examples
    --------
    >>> values, group = np.array([1e16, 1.0, -1e16, 0.25]), np.array([1, 1, 1, 0])
    >>> exact_sum(exact_group_sums(values, group, 2))[0]
    array([0.25, 1.  ])
    """
    most = int(np.bincount(group, minlength=1).max())
    left, room, planes = values, 52 - most.bit_length(), [np.zeros(n_groups)]
    while left.any():
        if not (largest := np.abs(left).max()) < LARGEST_TERM:
            return [np.bincount(group, values, n_groups).astype(np.float64)]
        step = max(float(np.ldexp(1.0, int(np.frexp(largest)[1]) - room)), 2.0**-1074)
        head = np.rint(left / step) * step
        planes.append(np.bincount(group, head, n_groups).astype(np.float64))
        left = left - head
    return planes


class ExactSums:
    """Sums of values by group, correctly rounded whatever the order of the values.

    Parameters
    ----------
    n_groups : int
        Number of groups g.

    Examples
    --------
    >>> sums = ExactSums(2)
    >>> for value in (1e16, 1.0, -1e16):
    ...     sums.add(np.array([value]), np.array([1]))
    >>> sums.total
    array([0., 1.])
    """

    def __init__(self, n_groups: int) -> None:
        self._planes = np.zeros((1, n_groups))

    def add(self, values: Floats, group: NDArray[np.intp]) -> None:
        """Add values (n,) to the sums of their groups (n,)."""
        if not len(group):
            return
        here, place = np.unique(group, return_inverse=True)
        more = exact_group_sums(values, place, len(here))
        found = exact_sum([*self._planes[:, here], *more])
        lacking = max(0, len(found) - len(self._planes))
        self._planes = np.pad(self._planes, ((0, lacking), (0, 0)))
        self._planes[:, here] = 0.0
        self._planes[: len(found), here] = found

    @property
    def total(self) -> Floats:
        """The correctly rounded sums, (g,)."""
        total: Floats = self._planes[0]
        return total


def exact_product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return the rounded products (n,) and their rounding errors.

    T. J. Dekker, A floating-point technique for extending the available precision, Numer. Math. 18,
    1971. The error is given as 0 if a number is too large or too small to be split.

    Examples
    --------
    >>> product, rest = exact_product(np.array([0.1]), np.array([0.1]))
    >>> from fractions import Fraction
    >>> Fraction(product[0]) + Fraction(rest[0]) == Fraction(0.1) ** 2
    True
    """
    product = a * b
    with np.errstate(over="ignore", invalid="ignore"):
        (a1, a2), (b1, b2) = _halves(a), _halves(b)
        rest = a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)
    return product, np.where(np.isfinite(rest), rest, 0.0)


def _halves(numbers: Floats) -> tuple[Floats, Floats]:
    """Return each number (n,) as the sum of two numbers with half as many digits."""
    large = 134217729.0 * numbers  # 2^27 + 1, the constant of Dekker's splitting
    high = large - (large - numbers)
    return high, numbers - high


def canonical(planes: Sequence[Floats]) -> Floats:
    """Return the canonical expansion, (c, ...), of the sum of a few arrays of one shape."""
    parts = np.stack(planes) + 0.0  # adding 0.0 turns -0.0 into 0.0
    if not _magnitude(parts).max(initial=0.0) < LARGEST_TERM:
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


def _magnitude(terms: Floats) -> Floats:
    """Return the largest magnitude in each cell; NaN if a term is NaN."""
    largest: Floats = np.maximum(terms.max(axis=0), -terms.min(axis=0))
    return largest


def _cut(terms: Sequence[Floats]) -> list[Floats] | None:
    """Return a few arrays with the same exact sum as many: one for each segment of their digits.

    With s = 2^(e + b) above n terms of at most 2^e, (s + x) - s is x to a multiple of ulp(s): sums
    of n of these are exact in any order, and what is left of x is smaller than its last digit.
    Returns None if sums may overflow.
    """
    left = np.stack(terms)
    head, extra = np.empty_like(left), len(left).bit_length() + 1
    planes: list[Floats] = []
    while True:
        largest = _magnitude(left)
        if not largest.any():
            return planes or [largest]
        if not largest.max() < LARGEST_TERM:
            return None
        step = np.ldexp(1.0, np.frexp(largest)[1] + extra)
        np.add(step, left, out=head)
        head -= step
        planes.append(head.sum(axis=0))
        left -= head


def _distil(parts: Floats) -> bool:
    """Renormalise from the last number to the first; return whether any number changed."""
    moved = False
    for j in range(len(parts) - 1, 0, -1):
        total, rest = _two_sum(parts[j - 1], parts[j])
        moved = moved or not np.array_equal(total, parts[j - 1])
        parts[j - 1], parts[j] = total, rest
    return moved


def _break_tie(parts: Floats) -> None:
    """Round the first number up if the rest is half of its last digit and more follows.

    A tie was rounded to even, which is wrong if the remaining numbers break the tie upwards.
    """
    if len(parts) < 3 or not parts[2].any():
        return
    high, low, after = parts[:3]
    double = 2.0 * low
    up = high + double
    tied = (double == up - high) & (np.sign(low) * np.sign(after) > 0)
    parts[0], parts[1] = np.where(tied, up, high), np.where(tied, -low, low)
