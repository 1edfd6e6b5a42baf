"""Fixed-point numbers for secure sums: each value as a few integers modulo 2^64, which add up.

A value x is written in base 2^48, ``x = sum_w word_w 2^(48 w - fraction)``, in words that have its
sign and, but for the last, lie within 2^48. So the words of up to 2^15 sites are added
independently of each other modulo 2^64, and no carry is lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedcluster.core import Floats, State

Words = NDArray[np.uint64]

DIGIT = 48
"""Bits of a word that a value fills; the other 16 are room for the sum of the sites' words."""

MOST_SITES = 1 << 15
"""The most values that are added."""


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """A format of fixed-point numbers.

    Parameters
    ----------
    n_words : int
        Words of one value.
    fraction : int
        Bits below the point: values are multiples of 2^-fraction.

    Examples
    --------
    >>> two = FixedPoint(2, 48)
    >>> words = two.encode(np.array([1.5, -0.25]))
    >>> words.shape, two.decode(words + words)
    ((2, 2), array([ 3. , -0.5]))
    """

    n_words: int
    fraction: int

    @property
    def limit(self) -> float:
        """Bound that sums are below where they are what they seem to be."""
        power = 63 + DIGIT * (self.n_words - 1) - self.fraction
        return math.ldexp(1.0, power) if power < 1024 else math.inf

    def encode(self, values: Floats) -> Words:
        """Return values as words, rounded to the nearest multiple of 2^-fraction.

        A value that has no room is taken modulo 2^64 in its last word, as the sum is. It is not
        refused, which would tell how large it is: see `size_of`.

        Parameters
        ----------
        values : ndarray of shape (q,)
            The values.

        Returns
        -------
        ndarray of shape (q, n_words), uint64
            The words, the lowest first.

        Raises
        ------
        ValueError
            If a value is not finite.
        """
        if not np.isfinite(values).all():
            raise ValueError("a sum is not finite")
        rest = _rounded(values, self.fraction)
        words = np.empty((len(values), self.n_words), dtype=np.uint64)
        for w in range(self.n_words - 1, 0, -1):
            unit = DIGIT * w - self.fraction
            digit = np.trunc(np.ldexp(rest, -unit))
            rest = rest - np.ldexp(digit, unit)
            words[:, w] = _modulo(digit)
        words[:, 0] = _modulo(np.ldexp(rest, self.fraction))
        return words

    def decode(self, words: Words) -> Floats:
        """Return the values whose words were added, each rounded once to the nearest float64."""
        signed = words.view(np.int64)
        totals = [0] * len(signed)
        for w in range(self.n_words):
            shift, column = DIGIT * w, signed[:, w].tolist()
            totals = [a + (b << shift) for a, b in zip(totals, column, strict=True)]
        one = 1 << self.fraction
        return np.array([_ratio(total, one) for total in totals], dtype=np.float64)


def _ratio(total: int, one: int) -> float:
    """Return a ratio, rounded once; infinite where no float64 is as large."""
    try:
        return total / one
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _modulo(digits: Floats) -> Words:
    """Return whole numbers modulo 2^64."""
    within = np.fmod(digits, 2.0**64)
    high = np.abs(within) >= 2.0**63
    return (
        np.where(high, within - np.copysign(2.0**64, within), within)
        .astype(np.int64)
        .view(np.uint64)
    )


def _rounded(values: Floats, fraction: int) -> Floats:
    """Return values rounded to multiples of 2^-fraction; large ones are such multiples already."""
    small = np.abs(values) < np.ldexp(1.0, 53 - fraction)
    scaled = np.ldexp(np.where(small, values, 0.0), fraction)
    return np.where(small, np.ldexp(np.rint(scaled), -fraction), values)


NARROW = FixedPoint(3, 72)
"""For rows of ordinary size: multiples of 2.1e-22, up to 1.5e26."""

WIDE = FixedPoint(6, 144)
"""For rows of any size: multiples of 4.5e-44, up to 7e47."""

SIZE = FixedPoint(25, 144)
"""For the size of all values of an answer together: up to the largest float64."""

ORDINARY = 2.0**-10, 2.0**20
"""Where the largest centre of each column lies if rows are of ordinary size."""


def format_for(state: State) -> FixedPoint:
    """Return the format for the answers about a state, which all sites know.

    Examples
    --------
    >>> format_for(State.at([[0.5, 40.0], [2.0, 0.0]])) == NARROW
    True
    >>> format_for(State.at([[1e-12, 40.0]])) == format_for(State()) == WIDE
    True
    """
    largest = np.abs(state.centers).max(axis=0, initial=0.0)
    low, high = ORDINARY
    return NARROW if largest.size and (low <= largest).all() and (largest <= high).all() else WIDE


def size_of(values: Floats) -> Floats:
    """Return the sum of absolute values, (1,), that tells whether sums of such values have room.

    Sites cannot refuse what has no room: whoever asks could scale the rows until one site refuses,
    and so measure its sums. The sum over all sites of this size is below the limit only if that of
    each value is, and each is then what it seems to be.
    """
    with np.errstate(over="ignore"):
        size: Floats = np.minimum(np.abs(values).sum(keepdims=True), np.finfo(np.float64).max)
    return size
