"""Weighted sums, the only thing that a site ever sends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from fedcluster.core.data import Floats
from fedcluster.core.exact import exact_sum

MOST_FOR_A_ROW = 1e150
"""Value in a row from which on squares overflow, so that other sites could not answer."""


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """The only thing that a site ever sends: weighted sums and their weights.

    A line of weight 0 carries no information. Summaries of the same shape add up.

    Parameters
    ----------
    sums : ndarray of shape (k, p), float64
        Weighted sums, one line for each cluster (or for whatever the step counts).
    weights : ndarray of shape (k,), float64
        The weight of the rows in each line.
    support : ndarray of shape (k,), float64, optional
        The number of rows, or persons, in each line, if that is not the weight itself (rows may be
        weighted); a step counts the rows that it sees, which may be groups. The site's filters read
        it; it never leaves the site.
    rest : ndarray of shape (c, k, p + 1), float64, optional
        For a total: the rounding errors of the sums and, in the last column, of the weights. Added
        exactly to the rounded numbers, they give the exact total.

    Examples
    --------
    Addition is exact: in any order, in one step or through sums of sums, the bits are the same.

    >>> a = Summary(np.array([[2.0, 4.0]]), np.array([2.0]))
    >>> b = Summary(np.array([[1.0, 1.0]]), np.array([1.0]))
    >>> (a + b).sums / (a + b).weights[:, None]
    array([[1.        , 1.66666667]])
    """

    sums: Floats
    weights: Floats
    support: Floats | None = None
    rest: Floats | None = None

    def __post_init__(self) -> None:
        if self.sums.ndim != 2 or self.weights.shape != self.sums.shape[:1]:
            raise ValueError(
                f"a summary has sums (k, p) and weights (k,), "
                f"not {self.sums.shape} and {self.weights.shape}"
            )
        shape = (*self.sums.shape[:1], self.sums.shape[1] + 1)
        if self.rest is not None and (self.rest.ndim != 3 or self.rest.shape[1:] != shape):
            raise ValueError(f"what rounding took of sums has shape {self.rest.shape}")

    def __add__(self, other: Summary) -> Summary:
        return Summary.total([self, other])

    def without(self, part: Summary) -> Summary:
        """Return the exact sum of the other summaries of a `total`, correctly rounded.

        Examples
        --------
        >>> one, other = (Summary(np.array([[x]]), np.ones(1)) for x in (1e16, 1.0))
        >>> (one + other).without(one).sums
        array([[1.]])
        """
        support = None if part.support is None else -part.support
        rest = None if part.rest is None else -part.rest
        return self + Summary(-part.sums, -part.weights, support, rest)

    @staticmethod
    def total(answers: Iterable[Summary]) -> Summary:
        """Return the sum of summaries of one shape, correctly rounded, with its rounding errors.

        Parameters
        ----------
        answers : iterable of Summary
            At least one; a single one is returned unchanged.

        Examples
        --------
        >>> parts = [Summary(np.array([[x]]), np.ones(1)) for x in (1e16, 1.0, -1e16)]
        >>> Summary.total(parts).sums, (parts[0] + parts[1]).sums + parts[2].sums
        (array([[1.]]), array([[0.]]))
        """
        left = iter(answers)
        total = next(left)
        while some := list(islice(left, 1024)):
            total = _added([total, *some])
        return total

    @property
    def planes(self) -> Floats:
        """Sums and, in the last column, weights, followed by the rounding errors: (c, k, p + 1)."""
        first = np.column_stack([self.sums, self.weights])[None]
        return first if self.rest is None else np.concatenate([first, self.rest])

    @staticmethod
    def from_planes(planes: Floats, support: Floats | None = None) -> Summary:
        """Return the summary of `planes`, a canonical expansion."""
        sums, weights = (
            np.ascontiguousarray(part) for part in (planes[0, :, :-1], planes[0, :, -1])
        )
        return Summary(sums, weights, support, planes[1:] if len(planes) > 1 else None)

    @property
    def rows(self) -> Floats:
        """Number of rows in each line, (k,)."""
        return self.weights if self.support is None else self.support

    @property
    def n_values(self) -> int:
        """Number of values that carry information: those in lines with a weight."""
        n_planes = 1 if self.rest is None else 1 + len(self.rest)
        return int(np.count_nonzero(self.weights) * (self.sums.shape[1] + 1)) * n_planes

    @property
    def is_finite(self) -> bool:
        """True if no number is NaN or infinite."""
        return bool(np.isfinite(self.sums).all() and np.isfinite(self.weights).all())

    @property
    def is_too_large(self) -> bool:
        """True if numbers are not finite, or if squares of means would not be.

        Examples
        --------
        >>> sums = np.array([[2e150]])
        >>> [Summary(sums, np.array([rows])).is_too_large for rows in (1.0, 10.0)]
        [True, False]
        """
        if np.abs(self.sums).max(initial=0.0) <= MOST_FOR_A_ROW and np.isfinite(self.weights).all():
            return False  # for any weights
        if not self.is_finite:
            return True
        most = MOST_FOR_A_ROW * np.maximum(self.weights, 1.0)
        return bool((np.abs(self.sums) > most[:, None]).any())

    def keep(self, lines: NDArray[np.bool_]) -> Summary:
        """Return the summary with all lines zero but those in ``lines``, (k,) booleans."""
        if lines.all():
            return self
        support = None if self.support is None else np.where(lines, self.support, 0.0)
        rest = None if self.rest is None else np.where(lines[:, None], self.rest, 0.0)
        sums = np.where(lines[:, None], self.sums, 0.0)
        return Summary(sums, np.where(lines, self.weights, 0.0), support, rest)

    def leaving(self) -> Summary:
        """Return what leaves the site: everything but the support and the rounding errors."""
        if self.support is None and self.rest is None:
            return self
        return Summary(self.sums, self.weights)


def _added(answers: Sequence[Summary]) -> Summary:
    """Return the sum of a few summaries."""
    support = None
    if any(answer.support is not None for answer in answers):
        support = np.sum([answer.rows for answer in answers], axis=0)
    k, p = answers[0].sums.shape
    terms = np.empty((len(answers), k, p + 1))
    for term, answer in zip(terms, answers, strict=True):
        term[:, :-1], term[:, -1] = answer.sums, answer.weights
    rests = [plane for answer in answers if answer.rest is not None for plane in answer.rest]
    return Summary.from_planes(exact_sum([*terms, *rests]), support)
